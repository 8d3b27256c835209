package main

// txsessions_test.go owns the proof that sessions change nothing but the cost: they
// are switched on and off while frames flow, and frames of every size leave the same
// with and without them. The rig and what is sent by all means together are
// txpath_test.go's.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sequenceWire checks that numbered frames come in order, each once.
type sequenceWire struct {
	recordWire
	next uint32
	bad  string // what was wrong first
	seen atomic.Uint32
}

func (w *sequenceWire) Transmit(frame []byte) {
	if n := binary.BigEndian.Uint32(frame[14:]); n != w.next && w.bad == "" {
		w.bad = fmt.Sprintf("frame %d after %d frames", n, w.next)
	}
	w.next++
	w.seen.Store(w.next)
}

// flagToggler is a channel's work while a private flag changes: numbered frames,
// as many as the ring takes.
type flagToggler struct {
	r    *sendRig
	end  atomic.Bool // no more frames
	done chan struct{}
	sent uint32
	rest []txFrame
}

func (w *flagToggler) handle(*channel, []packet) {}
func (w *flagToggler) idle(*channel)             {}

func (w *flagToggler) turn(c *channel) int {
	for len(w.rest) < 64 && !w.end.Load() {
		f, ok := w.r.numbered(w.sent)
		if !ok {
			break
		}
		w.rest = append(w.rest, f)
		w.sent++
	}
	took := c.tx.send(w.rest)
	w.rest = w.rest[:copy(w.rest, w.rest[took:])]
	if w.end.Load() && len(w.rest) == 0 && c.tx.mtail == c.tx.mhead && w.done != nil {
		close(w.done)
		w.done = nil
	}
	runtime.Gosched()
	return took
}

// The private flag is switched a thousand times while the channel sends what it
// can: not one frame is lost, doubled or out of order.
func TestToggleFlagWhileSending(t *testing.T) {
	w := &sequenceWire{}
	r := newSendRig(t, rigConfig{wire: w, loose: 4096, runs: 1})
	work := &flagToggler{r: r, done: make(chan struct{})}
	done := work.done
	r.dev.resume()
	r.nic.start([]handler{work}, true, nil)
	deadline := time.Now().Add(20 * time.Second)
	for i := range 1000 {
		require.NoError(t, r.nic.setPrivFlag("skb_tx_mpwqe", i%2 == 1))
		for before := w.seen.Load(); w.seen.Load()-before < 64; {
			require.True(t, time.Now().Before(deadline), "frames are stuck")
			runtime.Gosched()
		}
	}
	work.end.Store(true)
	<-done
	r.nic.stop()
	r.dev.pause()
	require.Empty(t, w.bad)
	require.Equal(t, work.sent, w.next)
	r.requireHome()
	r.requireHealthy()
	require.EqualValues(t, work.sent, r.q.stats.packets.get())
	require.Greater(t, r.q.stats.shared.get(), uint64(5_000), "the flag was on")
	require.Greater(t, r.q.stats.packets.get()-r.q.stats.shared.get(), uint64(5_000), "the flag was off")
}

// numbered is a frame of 60 bytes in a page of its own, for a sequenceWire.
func (r *sendRig) numbered(n uint32) (txFrame, bool) {
	p := r.mem.pool
	page, ok := p.take()
	if !ok {
		return txFrame{}, false
	}
	b := p.bytes(page, 0, 60)
	copy(b, numberedFrame(14, 0))
	binary.BigEndian.PutUint32(b[14:], n)
	f := txFrame{addr: p.addr(page, 0), form: txSize(60), page: p.lendOwn(page)}
	p.giveBack(page)
	return f, true
}

// Sessions are switched on and off a thousand times while frames flow as fast as
// they can: not one is lost, doubled or out of order.
func TestToggleSessionsAtFullRate(t *testing.T) {
	w := &sequenceWire{}
	r := newSendRig(t, rigConfig{wire: w, loose: 4096, runs: 1})
	m := &mixer{Rand: rand.New(rand.NewPCG(1, 2))}
	r.dev.resume()
	burst, sent, deadline := []txFrame(nil), uint32(0), time.Now().Add(20*time.Second)
	for toggles := 0; toggles < 1000; toggles++ {
		r.q.sessions(toggles%2 == 0)
		for until := r.q.fhead + 64 + m.Uint32N(256); int32(until-r.q.fhead) > 0; {
			require.True(t, time.Now().Before(deadline), "frames are stuck")
			for len(burst) < 64 {
				f, ok := r.numbered(sent)
				if !ok {
					break
				}
				if m.chance(100) {
					f.form |= txAlone
				}
				burst = append(burst, f)
				sent++
			}
			took := r.q.send(burst)
			burst = burst[:copy(burst, burst[took:])]
			if r.q.complete(napiBudget) == 0 && took == 0 {
				runtime.Gosched()
			}
		}
	}
	for r.q.mtail != r.q.mhead || len(burst) > 0 {
		burst = burst[:copy(burst, burst[r.q.send(burst):])]
		r.q.complete(napiBudget)
		require.True(t, time.Now().Before(deadline), "frames are stuck")
		runtime.Gosched()
	}
	r.dev.pause()
	require.Empty(t, w.bad)
	require.Equal(t, sent, w.next)
	require.Greater(t, sent, uint32(50_000))
	r.requireHome()
	r.requireHealthy()
	require.EqualValues(t, sent, r.q.stats.packets.get())
	require.Greater(t, r.q.stats.shared.get(), uint64(10_000), "sessions were on")
	require.Greater(t, r.q.stats.packets.get()-r.q.stats.shared.get(), uint64(10_000), "sessions were off")
}

// sweep sends a burst of 32 frames of one size and returns what left and how many
// bytes of WQEs one of them took. At the edge of the ring, and of the ring of
// pages to give back, a burst takes two sessions: sweep goes past it first.
func (r *sendRig) sweep(size int) (wire [][]byte, wqeBytes float64) {
	for q := r.q; min(q.mask+1-q.pi&q.mask, q.fmask+1-q.fhead&q.fmask) < 160; {
		q.send(r.place(txOffload{}, numberedFrame(60, 0)))
		r.drain()
	}
	r.wire.forget()
	before := r.dev.m.Stats().SQ
	var burst []txFrame
	for k := range 32 {
		burst = append(burst, r.place(txOffload{}, numberedFrame(size, uint32(k)))...)
	}
	require.Equal(r.t, 32, r.q.send(burst))
	r.drain()
	after := r.dev.m.Stats().SQ
	return r.wire.frames(), float64(after.WQEBytes-before.WQEBytes) / float64(after.Packets-before.Packets)
}

// Every frame size from 64 to 1518 bytes (FCS not counted) leaves the same with
// sessions, with sessions that small frames stand in, and without. What a frame
// costs in descriptor bytes rises with its size or stays; it falls where frames
// become too long to stand in the WQE, and nowhere else.
func TestSizesWithAndWithoutSessions(t *testing.T) {
	const small = 200
	on, in, off := newSendRig(t, rigConfig{}), newSendRig(t, rigConfig{}), newSendRig(t, rigConfig{})
	on.q.inlineUpTo(0)
	in.q.inlineUpTo(small)
	off.q.sessions(false)
	last, text := 0.0, ""
	for size := 64; size <= 1518; size++ {
		a, costOn := on.sweep(size)
		b, costIn := in.sweep(size)
		c, costOff := off.sweep(size)
		require.Len(t, a, 32)
		for k := range a {
			require.True(t, bytes.Equal(a[k], numberedFrame(size, uint32(k))), "%d bytes, frame %d: %x", size, k, a[k])
		}
		require.Equal(t, a, b, "%d bytes: frames differ with small ones in the session", size)
		require.Equal(t, a, c, "%d bytes: frames differ with sessions on and off", size)
		require.EqualValues(t, 17, costOn, "%d bytes: a data segment and a share of the rest", size)
		require.EqualValues(t, 48, costOff, "%d bytes: control, Ethernet and data segment", size)
		if costIn != last {
			text += fmt.Sprintf(" %d:%.1f", size, costIn)
		}
		if size == small+1 {
			require.EqualValues(t, 17, costIn)
		} else {
			require.GreaterOrEqual(t, costIn, last, "descriptor bytes by size:%s", text)
		}
		last = costIn
	}
	t.Logf("descriptor bytes of a frame in bursts of 32: in a session 17, alone 48, standing in the session up to %d bytes, from size on:%s", small, text)
}

// What a frame tells the flow tables is its own: frames that differ in that alone
// share no session, and the device sees each value as often as it was given.
func TestMetadataOpensSessions(t *testing.T) {
	for _, inline := range []int{0, mostBlock} {
		r := newSendRig(t, rigConfig{})
		r.q.inlineUpTo(inline)
		before := r.dev.m.Stats().SQ
		var burst []txFrame
		want := uint64(0)
		for i, c := range []struct {
			metadata uint32
			frames   int
		}{{1, 5}, {1 << 10, 4}, {0, 3}, {1 << 20, 1}, {1, 2}, {1 << 31, 6}} {
			for range c.frames {
				burst = append(burst, r.place(txOffload{metadata: c.metadata}, numberedFrame(60, uint32(i)))...)
				want += uint64(c.metadata)
			}
		}
		require.Equal(t, len(burst), r.q.send(burst))
		r.drain()
		after := r.dev.m.Stats().SQ
		require.EqualValues(t, 6, after.MPWQEs-before.MPWQEs)
		require.EqualValues(t, len(burst), after.MPWPackets-before.MPWPackets)
		require.Equal(t, want, after.Metadata-before.Metadata)
		require.Len(t, r.wire.ends, len(burst))
		r.requireHome()
		r.requireHealthy()
	}
}
