package main

// xskredirect_test.go owns the proof of redirects to sockets by queue number: from
// the socket's own receive queue, from its channel's, from another channel's.

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spreadWire gives numbered packets of many flows, every third for the queue of the
// socket itself while it is attached, as long as fewer than a hundred are under way.
type spreadWire struct {
	given   int
	until   atomic.Int64
	done    atomic.Int64 // of those given, at rest
	regular atomic.Bool  // none is for the socket's own queue
	frame   []byte
}

// spreadFrame is packet i; it reuses b.
func spreadFrame(b []byte, i int, own bool) []byte {
	b = b[:64+i*13%1400]
	fillNumbered(b, uint64(i), uint16(1000+i%97))
	port := uint16(6000)
	if own && i%3 == 0 {
		port = noisePort
	}
	binary.BigEndian.PutUint16(b[36:], port)
	return b
}

func (w *spreadWire) Peek(time.Time) []byte {
	if int64(w.given) >= w.until.Load() || int64(w.given)-w.done.Load() >= 100 {
		return nil
	}
	w.frame = spreadFrame(w.frame[:cap(w.frame)], w.given, !w.regular.Load())
	return w.frame
}

func (w *spreadWire) Take()           { w.given++ }
func (w *spreadWire) Lossless() bool  { return true }
func (w *spreadWire) Transmit([]byte) {}
func (w *spreadWire) Done() bool      { return int64(w.given) >= w.until.Load() }
func (w *spreadWire) LinkUp() bool    { return true }
func (w *spreadWire) Close() error    { return nil }

// Whatever queue a packet came in at, it comes to the socket once and whole. With
// the client gone each is counted as lost, and no page is.
func TestXDPRedirectsToSocket(t *testing.T) {
	const packets = 6000
	wire := &spreadWire{frame: make([]byte, 2048)}
	r := newServeRig(t, 3, wire, new(atomic.Int64))
	program, err := parseProgram("redirect:3") // the socket of queue 0
	require.NoError(t, err)
	require.NoError(t, r.nic.attach(program)) // while it runs
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	c.app.giveFrames(512)
	c.nudge()
	r.filled()
	wire.until.Store(packets)

	var seen [packets]int
	want := make([]byte, 2048)
	for got, end := 0, time.Now().Add(time.Minute); got < packets; {
		n, ok := c.app.rx.ready(1)
		require.True(t, ok)
		if n == 0 {
			require.True(t, time.Now().Before(end), "%d of %d packets came", got, packets)
			c.sleep(10 * time.Millisecond)
			continue
		}
		d := c.app.rx.descs[c.app.rx.at&c.app.rx.mask]
		b := c.mem[d.addr:][:d.len]
		i := int(binary.BigEndian.Uint64(b[numberAt:]))
		require.Less(t, i, packets)
		want = spreadFrame(want[:cap(want)], i, true)
		require.Equal(t, want, b)
		seen[i]++
		require.Equal(t, 1, c.app.drop(1))
		c.nudge()
		got++
		wire.done.Add(1)
	}
	for i := range seen {
		require.Equal(t, 1, seen[i], "packet %d", i)
	}
	sums := func() (redirect, lost, nobody uint64) {
		for _, c := range r.nic.channels {
			c.do(c.publish)
			redirect += c.xdpStats.redirect.get()
			lost += c.xdpStats.lost.get()
			nobody += c.xdpStats.nobody.get()
		}
		return redirect, lost, nobody
	}
	redirect, lost, nobody := sums()
	require.EqualValues(t, packets*2/3, redirect)
	require.Zero(t, lost)
	require.Zero(t, nobody)
	require.EqualValues(t, packets/3, r.nic.channels[0].xsk.stats.redirect.get(), "copies count where they came in")
	require.EqualValues(t, packets*2/3, r.nic.channels[0].xsk.stats.copied.get())
	for _, c := range r.nic.channels {
		require.NotZero(t, c.xdpStats.redirect.get(), "channel %d had none to redirect", c.index)
	}

	require.NoError(t, c.close())
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 }, 10*time.Second, time.Millisecond)
	wire.regular.Store(true)
	wire.done.Store(1 << 40)
	wire.until.Store(2 * packets)
	require.Eventually(t, func() bool { _, lost, nobody = sums(); return lost+nobody >= packets }, 10*time.Second, time.Millisecond)
	r.nic.stop()
	redirect, lost, nobody = sums()
	require.EqualValues(t, packets*2/3, redirect, "each is counted once: as lost")
	require.EqualValues(t, packets, lost+nobody)
	require.NotZero(t, nobody)
	for _, c := range r.nic.channels {
		require.NotZero(t, c.xdpStats.nobody.get(), "channel %d: who sent it counts it", c.index)
	}
	for _, c := range r.nic.channels {
		requirePagesHome(t, c.rx)
	}
}

// A queue that is none is refused at start, with those that there are.
func TestXDPRedirectRefusesQueues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xsk.sock")
	for args, says := range map[string]string{
		"-xdp redirect:4 -xsk-listen " + path:  "a redirect to queue 4: queues are 0 to 3, from 2 on those of sockets",
		"-xdp redirect:-1 -xsk-listen " + path: "a redirect to queue -1: queues are 0 to 3, from 2 on",
		"-xdp redirect:2":                      "a redirect to queue 2: queues are 0 to 1 (from 2 on they are those of sockets: -xsk-listen)",
		"-xdp redirect:9":                      "a redirect to queue 9: queues are 0 to 1",
	} {
		var out, log strings.Builder
		require.Equal(t, 2, run(context.Background(), strings.Fields("-emulate -wire none -queues 2 -duration 1ms "+args), &out, &log), "%s: %s", args, &log)
		require.Contains(t, log.String(), says)
	}
	var out, log strings.Builder
	require.Zero(t, run(context.Background(), strings.Fields("-emulate -wire none -queues 2 -duration 1ms -xdp redirect:3 -xsk-listen "+path), &out, &log), "%s", &log)
}
