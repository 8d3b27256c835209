package main

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func stridingCaps() caps {
	return caps{striding: true, strideMin: true, logMaxWQ: 15, logMaxCQ: 22}
}

// Whatever the MTU and the ring, strides are what a device accepts and frames fit.
func TestStrideLayouts(t *testing.T) {
	for _, few := range []bool{true, false} {
		c := stridingCaps()
		c.strideMin = few
		fewest := stridesBase
		if few {
			fewest = stridesExtBase
		}
		for frame := minMTU + 18; frame <= 10240; frame += 13 {
			for ring := uint8(6); ring <= 13; ring++ {
				l, wqes, why := chooseStrides(c, frame, ring)
				if why != "" {
					require.Greater(t, l.pages()<<ring, 0)
					continue
				}
				require.GreaterOrEqual(t, int(l.logStrides), fewest)
				require.GreaterOrEqual(t, int(l.logStride), strideSizeBase)
				require.LessOrEqual(t, int(l.logStride), logPage)
				require.GreaterOrEqual(t, l.bytes(), 1<<14, "cards refuse less")
				require.Zero(t, l.pages()%umrEntries)
				require.LessOrEqual(t, umrWQEHeader+8*l.pages(), umrWQEMax, "one UMR names all")
				require.LessOrEqual(t, l.pages()<<wqes, maxStridePages)
				if l.linear {
					require.LessOrEqual(t, frame+rxHeadroom, 1<<l.logStride, "headroom counts")
				} else {
					require.Zero(t, l.headroom)
				}
				perFrame := (frame + l.headroom + 1<<l.logStride - 1) >> l.logStride
				room := (1<<wqes - 1) * (1 << l.logStrides / perFrame)
				require.GreaterOrEqual(t, room, 1<<ring/2, "MTU-sized frames in the ring")
			}
		}
	}
}

// Without the means, or with frames that are too long, the queue is a legacy one
// and it is said why.
func TestStridingFallsBackWithAReason(t *testing.T) {
	c := stridingCaps()
	_, ring, why := chooseStrides(caps{}, 1518, 10)
	require.EqualValues(t, 10, ring)
	require.Contains(t, why, "UMR")
	_, _, why = chooseStrides(c, 3*pageSize+257, 10)
	require.Contains(t, why, "pages")
	c.logMaxCQ = 9
	_, _, why = chooseStrides(c, 1518, 10)
	require.Contains(t, why, "completion queues")
	d := testDevice(t, model.Config{Profile: "cx4"})
	n, err := testOpen(d, wishes{queues: 1, rxStriding: true})
	require.NoError(t, err)
	require.False(t, n.params.rxStrides.on())
	require.NotEmpty(t, n.params.rxWhy)
	require.NoError(t, n.close())
	requireClean(t, d)
}

// A product of stride and count below the least is refused by the device, not
// taken for something else.
func TestDeviceRefusesTooSmallWQEs(t *testing.T) {
	_, n, c := rxRig(t, nil, wishes{})
	n.dev.(*emulatedDevice).resume()
	defer n.dev.(*emulatedDevice).pause()
	q := c.rx
	_, err := n.fw.createRQ(rqConfig{wq: workQueue{kind: wqStriding, pd: n.pd, record: q.rec.mem.iova, logStride: logStrideWQESize, logSize: 4,
		pages: q.buf.pages()[:1], strides: [2]uint8{6, 4}}, cqn: q.cq.n})
	require.ErrorContains(t, err, "BAD_PARAM")
}

// Only part of a frame over several strides and pages is sent on: the page counts
// are right all the same. (C14 is about a program that trims such a frame: programs
// are refused where a stride does not hold a whole one, refusesXDP.)
func TestTrimmedFramesLeaveNoPageBehind(t *testing.T) {
	wire := &listWire{}
	for i := range 200 {
		wire.frames = append(wire.frames, numberedUDP(uint64(i), 5000))
	}
	d, _, c := rxRig(t, wire, wishes{rxStriding: true, mtu: 9000, rxRing: 64})
	require.False(t, c.rx.ring.layout.linear)
	sent, several := 0, 0
	for range 400 {
		settleDevice(d)
		packets, _ := c.rx.poll(napiBudget)
		var frames []txFrame
		for i := range packets {
			if packets[i].frags > 1 {
				several++
			}
			frames = c.rx.lend(frames, &packets[i], 100)
		}
		sent += c.tx.send(frames)
		c.rx.finish()
		settleDevice(d)
		c.tx.complete(napiBudget)
	}
	require.Equal(t, 200, sent)
	require.NotZero(t, several)
	require.Equal(t, c.tx.fhead, c.tx.ftail, "all completed")
	requirePagesHome(t, c.rx)
}

// A frame above the MTU, which the port lets in for another function's sake, is
// dropped and counted; what lies beside it in memory stays as it was.
func TestFramesAboveTheMTUTouchNoNeighbour(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		for _, striding := range []bool{false, true} {
			long := mtu + 18 + 300
			wire := &listWire{shut: true, frames: [][]byte{numberedUDP(0, mtu), numberedUDP(1, long), numberedUDP(2, mtu), numberedUDP(3, long), numberedUDP(4, mtu)}}
			d, n, c := rxRig(t, wire, wishes{rxStriding: striding, mtu: mtu, rxRing: 64})
			d.resume()
			require.NoError(t, n.port.setMTU(long+fcs))
			d.pause()
			want := make([]byte, 1<<14)
			wire.shut = false
			settleDevice(d)
			packets, _ := c.rx.poll(napiBudget)
			require.Equal(t, 3, len(packets))
			scratch := make([]byte, 1<<14)
			for i := range packets {
				b := c.rx.contiguous(&packets[i], scratch)
				fillNumbered(want[:mtu], uint64(2*i), uint16(2*i))
				require.Equal(t, want[:mtu], b, "mtu %d striding %v frame %d", mtu, striding, i)
			}
			c.rx.publish()
			require.EqualValues(t, 2, c.rx.stats.oversize.get())
			require.False(t, c.rx.failed, "no reset is needed for that")
		}
	}
}

// A UMR that fails takes its queue down, once: both are reset, and frames come in
// again.
func TestFailedUMRIsRecovered(t *testing.T) {
	for _, ring := range []int{64, 1024} {
		failedUMRIsRecovered(t, ring)
	}
}

func failedUMRIsRecovered(t *testing.T, ring int) {
	wire := newNumberedWire(7, 3000, 60, 1000)
	d, n, c := rxRig(t, wire, wishes{rxStriding: true, rxRing: ring})
	settleDevice(d)
	packets, _ := c.rx.poll(napiBudget)
	require.NotEmpty(t, packets)
	var refs []pageRef
	for i := range packets {
		refs = c.rx.hold(refs, &packets[i])
	}
	good := c.rx.ring.key
	c.rx.ring.key = 0x00ffff00 // no such key
	got := len(packets)
	for range 50 {
		c.rx.finish()
		settleDevice(d)
		packets, _ = c.rx.poll(napiBudget)
		got += len(packets)
	}
	require.True(t, c.rx.failed)
	c.rx.ring.key = good
	for _, r := range refs {
		c.rx.pool.release(r)
	}
	d.resume()
	n.recoverRX(c)
	d.pause()
	require.False(t, c.rx.failed)
	for range 3000 {
		settleDevice(d)
		packets, _ = c.rx.poll(napiBudget)
		got += len(packets)
		c.rx.finish()
	}
	settleDevice(d)
	c.ico.complete()
	require.Zero(t, c.rx.ring.umrs, "under way for ever")
	c.rx.publish()
	require.EqualValues(t, 1, c.rx.stats.recover.get())
	// What was delivered and not yet looked at when the queue was reset is counted.
	require.Equal(t, 3000, got+requireCounted(t, c.rx))
	require.True(t, d.m.WireDone())
	requirePagesHome(t, c.rx)
}

// Several queues share one queue for UMRs.
func TestOneControlQueueServesSeveral(t *testing.T) {
	_, n, c := rxRig(t, nil, wishes{rxStriding: true, rxRing: 64})
	d := n.dev.(*emulatedDevice)
	l, log := n.params.rxStrides, n.params.logRQ
	second, err := newPagePool(n.mem, 9, l.pages()<<log)
	require.NoError(t, err)
	defer second.close(n.mem)
	d.resume()
	key, err := n.fw.createPageKey(n.pd, l.pages()<<log)
	require.NoError(t, err)
	r := newStrideRing(l, log, make([]seg, 2<<log), key, second, c.ico)
	for end := time.Now().Add(5 * time.Second); r.posted != r.mask && time.Now().Before(end); {
		r.fill()
	}
	require.Equal(t, r.mask, r.posted, "every WQE but one")
	require.NoError(t, n.fw.destroy(opDestroyMkey, key>>8))
	d.pause()
}

// A striding queue's WQEs are written once; what they name does not change.
func TestStrideWQEs(t *testing.T) {
	_, n, c := rxRig(t, nil, wishes{rxStriding: true, rxRing: 64})
	l := n.params.rxStrides
	b := c.rx.buf.b
	for w := range 1 << n.params.logRQ {
		at := w * strideWQESize
		require.EqualValues(t, (w+1)&(1<<n.params.logRQ-1), binary.BigEndian.Uint16(b[at+2:]))
		require.EqualValues(t, l.bytes()-l.headroom, binary.BigEndian.Uint32(b[at+16:]))
		require.EqualValues(t, w*l.bytes()+l.headroom, binary.BigEndian.Uint64(b[at+24:]))
	}
}

// A completion that is not that of the UMR posted first names nobody's pages: the queue
// for these fails, and is reset with the one that it fills.
func TestForgedUMRCompletion(t *testing.T) {
	wire, d, n, c := recoverKinds[2].rig(t, 3000)
	q, k := c.rx, &keeper{}
	for c.ico.mtail == c.ico.mhead { // until a UMR is under way
		settleDevice(d)
		require.True(t, q.visible())
		k.keep(q, len(q.pageMap()))
		q.finish()
	}
	m := c.ico.marks[c.ico.mtail&c.ico.mask]
	writeCQE(c.ico.cq, c.ico.cq.ci, cqe{}, cqeReq, 0, m.first+1)
	c.ico.complete()
	require.True(t, c.ico.failed)
	q.finish()
	require.True(t, q.failed)
	k.giveBack(q)
	d.resume()
	n.recoverRX(c)
	d.pause()
	require.False(t, q.failed || c.ico.failed)
	for range 3000 {
		settleDevice(d)
		q.poll(napiBudget)
		q.finish()
	}
	require.True(t, wire.Done())
}
