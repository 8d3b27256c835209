package main

// xskrecover_test.go owns the proof of what becomes of a socket's packets where
// something went wrong: a queue that is reset, a program that cannot see them, a page
// that is not there.

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireAllCounted asserts that so many packets of a socket's queue were given to
// the client, sent on, passed on or dropped by a named counter.
func (r *xskRig) requireAllCounted(packets int, onward uint64) {
	r.t.Helper()
	stats := newStatReader(r.nic)
	require.NoError(r.t, stats.update())
	sum := r.c.xsk.stats.redirect.get() + onward
	for _, n := range drops(stats.read()) {
		sum += n
	}
	require.EqualValues(r.t, packets, sum)
}

// One bad completion resets a socket's queue. It and what had been received behind it
// are errors, for the client too, and none is the end of an application; frames come
// in again, none of the client's is lost.
func TestXSKResetCountsErrors(t *testing.T) {
	for _, multi := range []bool{false, true} {
		wire := &listWire{shut: true}
		for i := range 300 {
			wire.frames = append(wire.frames, numberedUDP(uint64(i), 200))
		}
		c := xskConfig{wire: wire, multi: multi}
		if multi {
			c.w.mtu = 3000
		}
		r := newXSKRig(t, c)
		r.c.setHandler(dropWork{})
		q := r.c.xsk
		require.Equal(t, multi, q.recv.pieces > 1)
		r.app.giveFrames(512)
		r.c.poll(napiBudget)
		r.gate.open.Store(true)
		all := wire.frames
		wire.frames, wire.shut = all[:200], false
		settleDevice(r.dev)
		bad := &q.recv.cq.cqes[q.recv.cq.ci&q.recv.cq.mask]
		bad.tail = withCounter(bad.tail, 7) // it speaks of a WQE that is not its turn
		r.dev.resume()
		r.c.poll(napiBudget)
		r.dev.pause()
		r.c.publish()
		require.False(t, q.recv.failed)
		require.EqualValues(t, 1, q.stats.recover.get())
		require.EqualValues(t, 200, q.stats.wqeErr.get())
		require.Zero(t, q.stats.flushed.get())
		require.EqualValues(t, 200, q.stats.countsOf()[0], "rx_dropped")
		wire.frames = all
		for range 4 {
			r.turn()
		}
		require.EqualValues(t, 100, r.sock.rx.at)
		require.EqualValues(t, 100, q.stats.redirect.get())
		r.dev.resume()
		r.requireAllCounted(300, 0)
		r.dev.pause()
	}
}

// What a client had in its ring when it went is the end of an application.
func TestXSKDetachCountsWhatWasReceived(t *testing.T) {
	wire := &listWire{}
	for i := range 50 {
		wire.frames = append(wire.frames, numberedUDP(uint64(i), 200))
	}
	r := newXSKRig(t, xskConfig{wire: wire})
	r.c.setHandler(dropWork{})
	r.app.giveFrames(512)
	r.c.xsk.refill()
	r.gate.open.Store(true)
	settleDevice(r.dev)
	r.dev.resume()
	require.NoError(t, r.c.detachXSK())
	r.dev.pause()
	r.c.publish()
	require.EqualValues(t, 50, r.c.xsk.stats.flushed.get())
	require.Zero(t, r.c.xsk.stats.wqeErr.get())
	r.dev.resume()
	require.NoError(t, r.c.attachXSK(r.sock)) // the rig takes it back
	r.dev.pause()
}

// A program sees packets whole: it and a socket whose packets take several frames
// refuse each other, whoever comes second, with the MTU that would do. Where one
// frame holds a packet they go together.
func TestXSKMultiBufferAndProgramsRefuseEachOther(t *testing.T) {
	pass := func(*channel) (xdpProgram, error) { return xdpSame(xdpPass), nil }
	r := newXSKRig(t, xskConfig{w: wishes{mtu: 3000}, multi: true})
	r.c.setHandler(dropWork{})
	r.dev.resume()
	defer r.dev.pause()
	err := r.nic.attach(pass)
	require.ErrorContains(t, err, "queue 0: a program sees packets in one piece")
	require.ErrorContains(t, err, "frames of 2048 bytes, which hold those of an MTU of up to 1774")
	require.ErrorAs(t, err, new(wishError))
	require.Nil(t, r.c.work)
	require.NoError(t, r.c.detachXSK())
	require.NoError(t, r.c.attachXSK(r.sock), "the program that was refused leaves nothing behind")
	require.NoError(t, r.c.detachXSK())
	require.NoError(t, r.nic.attach(pass))
	err = r.c.attachXSK(r.sock)
	require.ErrorContains(t, err, "a program is attached, which sees packets in one piece")
	require.ErrorContains(t, err, "an MTU of up to 1774")
	require.ErrorAs(t, err, new(wishError))
	require.Nil(t, r.c.xsk.sock)

	area, err := newSharedMemory("umem", 64*4096)
	require.NoError(t, err)
	u, err := newUMEM(r.nic.mem, area.b, umemConfig{frame: 4096, frames: 64})
	require.NoError(t, err)
	places, size, err := layoutRings([xskRings]int{64, 64, 64, 64})
	require.NoError(t, err)
	wide := newSocket(u, make([]byte, size+pageSize), places)
	wide.multi = true
	require.NoError(t, r.c.attachXSK(wide), "one frame is enough")
	require.NoError(t, r.nic.attach(nil))
	require.NoError(t, r.nic.attach(pass))
	require.NoError(t, r.nic.attach(nil))
	require.NoError(t, r.c.detachXSK())
	require.NoError(t, u.close(r.nic.mem))
	require.NoError(t, area.close())
	require.NoError(t, r.c.attachXSK(r.sock), "without a program several frames are fine")
}

// What a program passes on and no page is free for is not dropped by the program, and
// the verdict says who has the pages.
func TestXSKPassWithoutAPage(t *testing.T) {
	const packets = 90
	wire := &listWire{}
	for i := range packets {
		wire.frames = append(wire.frames, numberedUDP(uint64(i), 200))
	}
	r := newXSKRig(t, xskConfig{wire: wire, w: wishes{xdp: true}})
	work := &passWork{}
	r.c.setHandler(work)
	r.dev.resume()
	require.NoError(t, r.nic.attach(func(*channel) (xdpProgram, error) { return xdpSame(xdpPass), nil }))
	r.dev.pause()
	var taken []uint32
	for n, ok := r.c.pool.take(); ok; n, ok = r.c.pool.take() {
		taken = append(taken, n)
	}
	r.c.pool.giveBack(taken[0]) // a batch passes one packet at a time through it, or none
	r.app.giveFrames(512)
	r.turn()
	s := &r.c.xsk.stats
	require.EqualValues(t, packets, s.packets.get())
	require.Zero(t, s.drop.get()+s.abort.get())
	require.NotZero(t, s.noPage.get())
	require.EqualValues(t, packets, int(s.noPage.get())+len(work.got))
	r.dev.resume()
	r.requireAllCounted(packets, uint64(len(work.got)))
	stats := newStatReader(r.nic)
	require.NoError(t, stats.update())
	r.dev.pause()
	lines := lossVerdict(drops(stats.read()))
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], fmt.Sprintf("%d dropped by who keeps packets", s.noPage.get()))
	for _, n := range taken[1:] {
		r.c.pool.giveBack(n)
	}
	requirePagesHome(t, r.c.rx)
}

// A frame of the greatest length comes to the application, one that the device says is a
// byte longer does not.
func TestXSKLengthsAreHeldToTheLimit(t *testing.T) {
	for _, mtu := range []int{1500, 3000} {
		r := newXSKRig(t, xskConfig{multi: mtu > 1500, w: wishes{mtu: mtu}})
		r.c.setHandler(dropWork{})
		q := &r.c.xsk.recv
		require.Equal(t, mtu > 1500, q.pieces > 1)
		r.app.giveFrames(64)
		r.c.poll(napiBudget)
		for i, n := range []uint32{q.limit, q.limit + 1, q.limit, q.limit + 1} {
			writeCQE(q.cq, q.cq.ci+uint32(i), cqe{byteCount: swap32(n)}, cqeRecv, 0, uint16(i))
		}
		r.c.poll(napiBudget)
		r.c.publish()
		s := &r.c.xsk.stats
		require.False(t, q.failed)
		require.EqualValues(t, 2, s.packets.get())
		require.EqualValues(t, 2, s.oversize.get())
		require.EqualValues(t, 2*q.limit, s.bytes.get())
		require.EqualValues(t, 2, s.redirect.get())
		require.EqualValues(t, 2*q.pieces, r.sock.rx.at)
	}
}
