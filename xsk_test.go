package main

// xsk_test.go owns the proof of the socket's driver side in one process: rings,
// frames, lengths, wake-ups, lies. Other processes are xskserve_test.go's.

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// xskConfig says what an xskRig is made of; zero values are 512 frames of 2048
// bytes and rings of 512.
type xskConfig struct {
	profile string
	w       wishes
	umem    umemConfig
	ring    int
	wakeups bool
	multi   bool
	wire    model.Wire
}

// xskRig is a NIC whose device works only when told to, with a socket on its only
// channel to which all traffic goes, and the application's side of that.
type xskRig struct {
	t    testing.TB
	dev  *emulatedDevice
	nic  *nic
	c    *channel
	sock *xskSocket
	app  *xskApp
	umem *umem
	mem  sharedMemory
}

func newXSKRig(t testing.TB, c xskConfig) *xskRig {
	t.Helper()
	r := &xskRig{t: t, dev: testDevice(t, model.Config{Profile: c.profile, Wire: c.wire})}
	w := c.w
	w.queues, w.promisc, w.xskSpread = 1, true, true
	if w.rxRing == 0 {
		w.rxRing = 256
	}
	var err error
	r.nic, err = openToSend(r.dev, w)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.nic.close())
		requireClean(t, r.dev)
	})
	r.c = r.nic.channels[0]
	if c.umem.frame == 0 {
		c.umem.frame = 2048
	}
	if c.umem.frames == 0 {
		c.umem.frames = 512
	}
	if c.ring == 0 {
		c.ring = 512
	}
	r.attach(c)
	r.dev.pause()
	t.Cleanup(func() {
		r.dev.resume()
		r.detach()
	})
	return r
}

// attach opens a socket on the rig's channel.
func (r *xskRig) attach(c xskConfig) {
	var err error
	r.mem, err = newSharedMemory("umem", c.umem.bytes())
	require.NoError(r.t, err)
	r.umem, err = newUMEM(r.nic.mem, r.mem.b, c.umem)
	require.NoError(r.t, err)
	places, size, err := layoutRings([xskRings]int{c.ring, c.ring, c.ring, c.ring})
	require.NoError(r.t, err)
	b := make([]byte, size+pageSize)
	r.sock = newSocket(r.umem, b, places)
	r.sock.wakeups, r.sock.multi = c.wakeups, c.multi
	r.app = newXSKApp(r.mem.b, c.umem.frame, b, places)
	require.NoError(r.t, r.c.attachXSK(r.sock))
}

// detach ends it and looks at what is left.
func (r *xskRig) detach() {
	require.NoError(r.t, r.c.detachXSK())
	require.NoError(r.t, r.umem.close(r.nic.mem))
	require.NoError(r.t, r.mem.close())
	require.Zero(r.t, r.nic.mem.guestMemory())
}

// turn lets the device and the channel work until neither has anything to do.
func (r *xskRig) turn() {
	for again := true; again; {
		again = r.dev.m.Step()
		for r.c.poll(napiBudget) > 0 {
			again = true
		}
	}
	r.c.publish()
}

// Frames come up to the client as they were sent, in frames of its own; it sends
// them back from where they are.
func TestXSKReceivesAndSends(t *testing.T) {
	for _, profile := range model.Profiles() {
		for _, w := range []wishes{{}, {txInline: 64}} {
			sent := &recordWire{}
			in := &listWire{}
			for i := range 1000 {
				in.frames = append(in.frames, numberedUDP(uint64(i), 60+i%1400))
			}
			r := newXSKRig(t, xskConfig{profile: profile, wire: &twoWires{in, sent}, w: w, umem: umemConfig{headroom: 64}})
			r.c.setHandler(dropWork{})
			r.app.giveFrames(512)
			got, rounds := 0, 0
			for got < len(in.frames) {
				rounds++
				require.Less(t, rounds, 50)
				r.turn()
				r.app.refill()
				for n, _ := r.app.rx.ready(1); n > 0; n, _ = r.app.rx.ready(1) {
					d := r.app.rx.descs[r.app.rx.at&r.app.rx.mask]
					require.EqualValues(t, 256+64, d.addr%2048, "data stands behind XDP's and the UMEM's headroom")
					require.True(t, bytes.Equal(in.frames[got], r.mem.b[d.addr:][:d.len]), "frame %d", got)
					require.Equal(t, 1, r.app.forward(1, false))
					got++
				}
			}
			r.turn()
			require.Len(t, sent.ends, len(in.frames))
			for i, b := range sent.frames() {
				require.Equal(t, in.frames[i], b, "frame %d", i)
			}
			s := &r.c.xsk.stats
			require.EqualValues(t, 1000, s.packets.get())
			require.EqualValues(t, 1000, s.redirect.get())
			require.EqualValues(t, 1000, r.c.xsk.tx.stats.packets.get())
			require.Zero(t, s.badDescs.get()+s.badFill.get()+s.ringFull.get()+s.wqeErr.get())
		}
	}
}

// twoWires receives from one and sends on another.
type twoWires struct {
	model.Wire
	out *recordWire
}

func (w *twoWires) Transmit(b []byte) { w.out.Transmit(b) }
