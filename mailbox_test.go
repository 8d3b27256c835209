package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlx5d/model"
)

// callsOf posts n calls to c, each of which adds to a plain number: the race
// detector tells when two run at once.
func callsOf(c *channel, n int, sum *int) {
	for range n {
		c.do(func() { *sum++ })
	}
}

// mailRig opens a NIC of one queue on a wire that is idle or never ends.
func mailRig(t *testing.T, wire string) (*nic, *channel) {
	w, err := model.ParseWire(wire)
	require.NoError(t, err)
	n, err := testOpen(testDevice(t, model.Config{Wire: w}), wishes{queues: 1, promisc: true, rxRing: 64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	return n, n.channels[0]
}

// Calls run before start, while the channel sleeps, while it spins, while it is
// busy, and after stop; each has run when do returns.
func TestCallsRunBetweenPolls(t *testing.T) {
	for _, wire := range []string{"none", "gen:size=64,count=0"} {
		for _, busy := range []bool{false, true} {
			n, c := mailRig(t, wire)
			sum := 0
			callsOf(c, 1000, &sum)
			n.start([]handler{dropWork{}}, busy, nil)
			callsOf(c, 1000, &sum)
			require.Equal(t, 2000, sum)
			n.stop()
			callsOf(c, 1000, &sum)
			require.Equal(t, 3000, sum)
		}
	}
}

// A sleeper is woken by a call: ten thousand of them come with pauses that let it
// fall asleep at all points of its loop. Its sleep would not end by itself.
func TestCallsWakeASleeper(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	v, err := bellOn(fd)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	loop := napi{vec: v}
	loop.mail.open()
	var sleeper sync.WaitGroup
	sleeper.Go(func() {
		for !v.stop.Load() {
			loop.turn(noWork{})
			v.wait(time.Hour)
		}
		loop.mail.shut()
	})
	sum := 0
	for i := range 10_000 {
		for range i % 50 {
			runtime.Gosched()
		}
		loop.mail.post(v, func() { sum++ })
	}
	require.Equal(t, 10_000, sum)
	v.halt()
	sleeper.Wait()
	require.NoError(t, v.close())
}

// noWork is a channel without packets.
type noWork struct{}

func (noWork) poll(int) int           { return 0 }
func (noWork) arm()                   {}
func (noWork) idle()                  {}
func (noWork) lastTurns(func() bool)  {}
func (noWork) pending() bool          { return false }
func (noWork) load() (uint64, uint64) { return 0, 0 }

// Calls of several goroutines race with stop: each runs once, by the loop or by
// its poster, and none hangs.
func TestCallsRaceWithStop(t *testing.T) {
	for range 20 {
		n, c := mailRig(t, "none")
		n.start([]handler{dropWork{}}, false, nil)
		sum := 0
		var ran atomic.Uint64
		var posters sync.WaitGroup
		for range 4 {
			posters.Go(func() {
				for range 100 {
					c.do(func() { sum++; ran.Add(1) })
				}
			})
		}
		for ran.Load() < 100 {
			time.Sleep(10 * time.Microsecond)
		}
		n.stop()
		posters.Wait()
		require.Equal(t, 400, sum)
	}
}

// What is posted while the loop ends is run by the loop.
func TestCallsPostedAtTheEnd(t *testing.T) {
	var m mailbox
	_, c := mailRig(t, "none")
	m.open()
	ran := make(chan bool, 1)
	go func() {
		m.post(c.vec, func() {})
		ran <- true
	}()
	for !m.full.Load() {
		time.Sleep(10 * time.Microsecond)
	}
	require.Empty(t, ran)
	m.shut()
	require.True(t, <-ran)
	require.False(t, m.full.Load())
}
