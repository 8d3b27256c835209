package model

// wire_join_test.go: nothing is lost without being counted, nothing is changed,
// and two busy ends cannot stop each other.

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func wireDropped(w Wire) uint64 { return w.(interface{ Dropped() uint64 }).Dropped() }

// numbered is frame n: its number and then bytes that follow from it.
func numbered(n, length int) []byte {
	f := make([]byte, max(length, 4))
	for i := range f {
		f[i] = byte(n + i)
	}
	binary.BigEndian.PutUint32(f, uint32(n))
	return f
}

func TestLoopBringsBackWhatWasSent(t *testing.T) {
	w := openWire(t, "loop")
	require.True(t, w.LinkUp())
	require.True(t, w.Lossless())
	frame := []byte("hello")
	w.Transmit(frame)
	frame[0] = 'j'
	require.Equal(t, "hello", string(w.Peek(time.Now())), "a copy")
	require.Equal(t, "hello", string(w.Peek(time.Now())), "again until Take")
	w.Take()
	require.Nil(t, w.Peek(time.Now()))
	w.Take()
	w.Transmit(nil)
	require.NotNil(t, w.Peek(time.Now()))
	require.False(t, w.Done())
}

func TestLoopIsBoundedAndCounts(t *testing.T) {
	for _, length := range []int{0, 60, 1514, 9000, 65535, maxCaptured, queueBytes, queueBytes + 1} {
		w := newLoop()
		frame := make([]byte, length)
		for range queueFrames + 100 {
			w.Transmit(frame)
		}
		got := 0
		for w.Peek(time.Time{}) != nil {
			require.Len(t, w.Peek(time.Time{}), length)
			w.Take()
			got++
		}
		require.Equal(t, min(queueFrames, queueBytes/max(length, 1)), got, "frames of %d bytes", length)
		require.Equal(t, uint64(queueFrames+100-got), wireDropped(w))
	}
}

// TestQueueKeepsContentWhileItWraps fills and drains by uneven steps, so that
// frames of all lengths come to lie across the end of the ring.
func TestQueueKeepsContentWhileItWraps(t *testing.T) {
	q := &frameQueue{}
	rand := genRand(3)
	sent, received, lost := 0, 0, uint64(0)
	var lengths []int
	for round := range 1000 {
		for range rand.below(20 + round/50%2*60) {
			length := 4 + rand.below(1<<rand.below(17))
			q.add(numbered(sent, length))
			if dropped := q.dropped.Load(); dropped != lost {
				lost = dropped
				continue
			}
			lengths = append(lengths, length)
			sent++
		}
		for range rand.below(40) {
			f := q.peek()
			if f == nil {
				break
			}
			if len(f) != lengths[received] || string(f) != string(numbered(received, lengths[received])) {
				t.Fatalf("frame %d was changed", received)
			}
			q.take()
			received++
		}
	}
	require.NotZero(t, lost, "the ring was never full")
	require.Greater(t, received, 5000)
}

func TestQueueCostsNoAllocation(t *testing.T) {
	w := newLoop()
	frame := make([]byte, 1514)
	w.Transmit(frame)
	require.Zero(t, testing.AllocsPerRun(10000, func() {
		w.Transmit(frame)
		w.Peek(time.Time{})
		w.Take()
	}))
}

func TestJoinCarriesBothWays(t *testing.T) {
	a, b := Join()
	require.True(t, a.LinkUp())
	require.True(t, b.LinkUp())
	require.False(t, a.Lossless())
	a.(interface{ SetLossless(bool) }).SetLossless(true)
	require.True(t, a.Lossless())
	require.False(t, b.Lossless())
	a.Transmit([]byte("to b"))
	b.Transmit([]byte("to a"))
	require.Equal(t, "to b", string(b.Peek(time.Now())))
	require.Equal(t, "to a", string(a.Peek(time.Now())))
	a.Take()
	require.Nil(t, a.Peek(time.Now()))
	require.False(t, b.Done())

	require.NoError(t, a.Close())
	require.False(t, a.LinkUp())
	require.False(t, b.LinkUp())
	require.False(t, b.Done(), "one frame is still under way")
	b.Transmit([]byte("nobody"))
	require.Equal(t, uint64(1), wireDropped(b))
	require.Zero(t, wireDropped(a))
	b.Take()
	require.True(t, b.Done())
	require.NoError(t, b.Close())
}

// joinedDevice stands for a device: it calls its wire under its own lock.
type joinedDevice struct {
	sync.Mutex
	wire     Wire
	received int
}

func (d *joinedDevice) turn(t *testing.T, sent *int, limit int) {
	d.Lock()
	defer d.Unlock()
	for range 32 {
		if *sent < limit {
			d.wire.Transmit(numbered(*sent, 60+*sent%1400))
			*sent++
		}
		if f := d.wire.Peek(time.Time{}); f != nil {
			if n := int(binary.BigEndian.Uint32(f)); n < d.received || len(f) != 60+n%1400 || f[len(f)-1] != byte(n+len(f)-1) {
				t.Errorf("frame %d after %d is wrong", n, d.received)
			}
			d.received++
			d.wire.Take()
		}
	}
}

func TestJoinedDevicesDoNotDeadlockAndAccount(t *testing.T) {
	const frames = 50000
	a, b := Join()
	ends := [2]*joinedDevice{{wire: a}, {wire: b}}
	var sent [2]int
	var all sync.WaitGroup
	for i, d := range ends {
		all.Go(func() {
			for sent[i] < frames {
				d.turn(t, &sent[i], frames)
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(30 * time.Second):
		t.Fatal("the two ends stopped each other")
	}
	for i, d := range ends {
		for d.wire.Peek(time.Time{}) != nil {
			d.received++
			d.wire.Take()
		}
		require.Equal(t, frames, d.received+int(wireDropped(ends[1-i].wire)))
	}
}

func TestJoinTakesFramesFromManyGoroutines(t *testing.T) {
	a, b := Join()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 900 {
				a.Transmit(numbered(1, 100))
			}
		})
	}
	all.Wait()
	require.Len(t, drainWire(b, time.Time{}, 1<<20), 3600)
	require.Zero(t, wireDropped(a))
}
