package model

// receive_test.go gives frames to the wire and looks at buffers, completions
// and counters, as a driver and as an accountant: nothing may be lost unnamed,
// and no byte written outside a posted buffer.

import (
	"bytes"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rigRX is a device that delivers everything to one cyclic RQ.
func rigRX(t testing.TB, logCQ, logRQ uint8, bufSize int) (*rig, *rigCQ, *rigRQ, uint32) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(logCQ, e)
	q := r.rq(logRQ, 6, c, bufSize)
	r.direct(q.rq)
	return r, c, q, r.pa()
}

// account checks that every frame taken has exactly one end.
func account(t testing.TB, d *Device) {
	t.Helper()
	s, p, v := &d.stats, &d.port, &d.vport
	require.Equal(t, s.RxFrames, p.rxPackets+p.undersize+p.oversize)
	ends := s.RxDelivered + s.RxNoBuffer + s.RxBadBuffer + v.steerMiss + v.ruleDrops
	require.Equal(t, p.rxPackets, ends)
	require.Equal(t, p.rxPackets-v.filtered, v.rxUni.packets+v.rxMulti.packets+v.rxBroad.packets)
}

func TestReceive(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	frames := [][]byte{rigUDP(18, 1), rigUDP(400, 2), rigTCP(0, false, 2), rigTCP(700, true, tcpACK), rigUDP(1472, 3)}
	for i := range 40 {
		f := frames[i%len(frames)]
		q.post(key, 1+i%4)
		r.receive(f)
		b := c.poll()
		require.NotNil(t, b, i)
		require.Equal(t, byte(cqeRespSend<<4), b[63]&0xf0)
		require.Equal(t, uint16(i), be16(b, 60))
		require.Equal(t, uint32(len(f)), be32(b, 44))
		buf := q.buf(uint16(i))
		require.Equal(t, f, buf[:len(f)])
		require.Equal(t, bytes.Repeat([]byte{0xee}, len(buf)-len(f)), buf[len(f):])
		require.Equal(t, byte(okL2|okL3|okL4), b[28])
		require.Equal(t, slowSum(f[14:]), be16(b, 20))
		require.NotZero(t, be64(b, 48))
	}
	require.Equal(t, uint64(40), r.d.stats.RxDelivered)
	account(t, r.d)
}

// TestReceiveLikeSilicon receives the frame behind a recorded completion and
// compares the parse fields, all but the hash, whose key is not known.
func TestReceiveLikeSilicon(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	f := rigTCP(20, false, 2) // a SYN with 20 bytes of options: 74 bytes
	f[46] = 0xa0
	f = offload(f, &eseg{csum: csumL3 | csumL4})
	q.post(key, 1)
	q.pd++ // the recorded one failed on memory protection
	r.receive(f)
	b := c.poll()
	require.NotNil(t, b)
	require.Equal(t, dataFrame(t, "0718"), b[28:30])
	require.Equal(t, uint32(0x4a), be32(b, 44))
	require.Equal(t, []byte{0x93, 0x32, 0x04}, []byte{b[52], b[54], b[55]})
	require.Equal(t, byte(0xe0), b[63])
	require.Zero(t, be32(b, 56))
	require.Equal(t, byte(rqERR), q.state)
	require.Equal(t, uint64(1), r.d.stats.RxBadBuffer)
	account(t, r.d)
}

func TestReceiveCompletionFields(t *testing.T) {
	bad := rigUDP(40, 1)
	bad[40] ^= 1
	badIP := rigUDP(40, 1)
	badIP[24] ^= 1
	noSum := rigUDP(40, 1)
	putBE16(noSum, 40, 0)
	padded := append(rigTCP(2, false, tcpACK), 9, 9, 9, 9)
	frag := rigUDP(40, 1)
	putBE16(frag, 20, 0x2000)
	frag = offload(frag, &eseg{csum: csumL3})
	arp := dataFrame(t, "ffffffffffff 020000000002 0806 0001080006040001 020000000002 0a000001 000000000000 0a000002")
	for _, c := range []struct {
		name string
		f    []byte
		ok   byte
		hdr  byte
		sum  uint16
	}{
		{"udp", rigUDP(40, 1), 7, 2<<4 | 2<<2, slowSum(rigUDP(40, 1)[14:])},
		{"bad L4", bad, 3, 2<<4 | 2<<2, slowSum(bad[14:])},
		{"bad L3", badIP, 5, 2<<4 | 2<<2, slowSum(badIP[14:])},
		{"no UDP checksum", noSum, 7, 2<<4 | 2<<2, slowSum(noSum[14:])},
		{"tcp6 data", rigTCP(9, true, tcpACK), 7, 4<<4 | 1<<2, slowSum(rigTCP(9, true, tcpACK)[14:])},
		{"tcp ack", rigTCP(0, false, tcpACK), 7, 3<<4 | 2<<2, slowSum(rigTCP(0, false, tcpACK)[14:])},
		{"tcp padded", padded, 7, 4<<4 | 2<<2, slowSum(padded[14 : len(padded)-4])},
		{"fragment", frag, 3, 2 << 2, slowSum(frag[14:])},
		{"arp", arp, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, cq, q, key := rigRX(t, 6, 3, 2048)
			q.post(key, 1)
			r.receive(c.f)
			b := cq.poll()
			require.Equal(t, c.ok, b[28])
			require.Equal(t, c.hdr, b[29])
			require.Equal(t, c.sum, be16(b, 20))
		})
	}
}

func TestReceiveVLANAndFCS(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	f := rigUDP(40, 1)
	tagged := append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0x61, 0x23), f[12:]...)
	q.post(key, 1)
	r.receive(tagged)
	b := c.poll()
	require.Equal(t, byte(0), b[29]&1)
	require.Equal(t, tagged, q.buf(0)[:len(tagged)])
	q.vsd = false
	q.post(key, 1)
	r.receive(tagged)
	b = c.poll()
	require.Equal(t, byte(1), b[29]&1)
	require.Equal(t, uint16(0x6123), be16(b, 30))
	require.Equal(t, uint32(len(f)), be32(b, 44))
	require.Equal(t, f, q.buf(1)[:len(f)])
	require.Equal(t, slowSum(f[14:]), be16(b, 20))
	q.scatterFCS, q.shift = true, true
	q.post(key, 1)
	r.receive(f)
	b = c.poll()
	require.Equal(t, uint32(len(f)+4), be32(b, 44))
	buf := q.buf(2)
	require.Equal(t, []byte{0xee, 0xee}, buf[:2])
	require.Equal(t, f, buf[2:2+len(f)])
	sum := crc32.ChecksumIEEE(f)
	require.Equal(t, []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)}, buf[2+len(f):6+len(f)])
}

func TestReceiveTooLongForBuffer(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 256)
	for range 3 {
		q.post(key, 2)
	}
	big, small := rigUDP(256-42+1, 1), rigUDP(256-42, 2)
	r.receive(small, big, small)
	require.Equal(t, small, q.buf(0)[:256])
	b := c.poll()
	require.Equal(t, byte(cqeRespSend), b[63]>>4)
	b = c.poll()
	require.Equal(t, byte(cqeRespErr), b[63]>>4)
	require.Equal(t, byte(synLocalLength), b[55])
	require.Equal(t, uint16(1), be16(b, 60))
	require.Equal(t, bytes.Repeat([]byte{0xee}, 320), q.buf(1), "nothing is written")
	b = c.poll()
	require.Equal(t, byte(cqeRespSend), b[63]>>4, "the queue goes on")
	require.Equal(t, small, q.buf(2)[:256])
	require.Equal(t, uint64(1), r.d.stats.RxBadBuffer)
	account(t, r.d)
}

func TestReceiveProtectionFlushes(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 256)
	q.post(key^0x100, 1)
	q.post(key, 1)
	q.post(key, 1)
	r.receive(rigUDP(40, 1), rigUDP(40, 2))
	require.Equal(t, byte(synLocalProt), c.poll()[55])
	for i := range uint16(2) {
		b := c.poll()
		require.Equal(t, []byte{vendorFlushed, synFlush}, b[54:56])
		require.Equal(t, i+1, be16(b, 60))
	}
	require.Nil(t, c.poll())
	require.Equal(t, byte(rqERR), q.state)
	require.Equal(t, uint64(1), r.d.stats.RxNoBuffer)
	account(t, r.d)
}

func TestNoBuffer(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	set := r.d.qctrs.add(func(n uint32) *queueCounter { return &queueCounter{n: n} })
	q.counterSet = set.n
	q.post(key, 1)
	r.receive(rigUDP(40, 1), rigUDP(40, 2), rigUDP(40, 3))
	require.Equal(t, uint64(2), set.outOfBuffer)
	require.Zero(t, r.d.port.discards)
	require.True(t, q.starved)
	require.Empty(t, r.wire.in)
	q.counterSet = 0xff
	r.receive(rigUDP(40, 4))
	require.Equal(t, uint64(1), r.d.port.discards)
	account(t, r.d)
	// A lossless wire waits, and nothing is counted twice.
	r.wire.lossless = true
	r.receive(rigUDP(40, 5), rigUDP(40, 6))
	r.receive()
	require.Len(t, r.wire.in, 2)
	require.Equal(t, uint64(4), r.d.stats.RxFrames)
	q.post(key, 1)
	r.receive()
	require.Len(t, r.wire.in, 1)
	q.post(key, 1)
	r.receive()
	require.Empty(t, r.wire.in)
	require.Equal(t, uint64(6), r.d.stats.RxFrames)
	require.NotNil(t, c.poll())
	account(t, r.d)
}

func TestReceivePortCounters(t *testing.T) {
	r, _, q, key := rigRX(t, 8, 8, 2048)
	for range 64 {
		q.post(key, 1)
	}
	r.d.port.mtu = 1522
	r.d.vport.promiscAll = false
	r.d.vport.uc = [][6]byte{{2, 9, 9, 9, 9, 9}}
	r.d.vport.mc = [][6]byte{{1, 0, 0x5e, 0, 0, 1}}
	size := func(n int, to ...byte) []byte {
		f := rigUDP(n-46, 1) // n with FCS
		copy(f, to)
		return f
	}
	r.receive(
		make([]byte, 13), size(1523), size(1522), size(1518), size(64), size(65), size(127), size(128), size(512), size(1024),
		size(100, 2, 9, 9, 9, 9, 9), size(100, 2, 8, 8, 8, 8, 8), size(100, 1, 0, 0x5e, 0, 0, 1), size(100, 1, 0, 0x5e, 0, 0, 2),
		size(100, 255, 255, 255, 255, 255, 255),
	)
	p, v := &r.d.port, &r.d.vport
	require.Equal(t, [10]uint64{1, 7, 1, 0, 1, 2, 1}, p.sizes)
	require.Equal(t, uint64(1), p.undersize)
	require.Equal(t, uint64(1), p.oversize)
	require.Equal(t, uint64(13), p.rxPackets)
	require.Equal(t, uint64(1522+1518+64+65+127+128+512+1024+500), p.rxBytes)
	require.Equal(t, uint64(2), p.rxMulti)
	require.Equal(t, uint64(1), p.rxBroad)
	require.Equal(t, uint64(2), v.filtered)
	require.Equal(t, counterPair{9, 1522 + 1518 + 64 + 65 + 127 + 128 + 512 + 1024 + 100 - 9*4}, v.rxUni)
	require.Equal(t, uint64(11), r.d.stats.RxDelivered)
	account(t, r.d)
	v.promiscMC = true
	r.receive(size(100, 1, 0, 0x5e, 0, 0, 2), size(100, 2, 8, 8, 8, 8, 8))
	require.Equal(t, uint64(3), v.filtered)
	v.promiscUC = true
	r.receive(size(100, 2, 8, 8, 8, 8, 8))
	require.Equal(t, uint64(3), v.filtered)
	account(t, r.d)
}

// rigStriding makes a linked-list striding RQ over a page-list key: 4 WQEs of
// 16 strides of 256 bytes.
func rigStriding(t testing.TB, wqType uint8) (*rig, *rigCQ, *rigRQ, uint32) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(6, e)
	q := r.rq(2, 5, c, 4096)
	q.cyclic, q.wqType, q.logStride, q.logStrides = false, wqType, 8, 4
	m := mkey{pd: rigPD, mode: accessMTT, lw: true, length: 4 * 4096, logPage: 12}
	for range 4 {
		m.mtt = append(m.mtt, r.bus(r.alloc(4096))|mttWrite)
	}
	r.direct(q.rq)
	return r, c, q, r.key(m)
}

// postStrides posts the WQE of ring slot i; next is the one after it.
func (q *rigRQ) postStrides(slot, next, key uint32) {
	b := make([]byte, 32)
	if q.linked() {
		putBE16(b, 2, uint16(next))
		copy(b[16:], rigSeg(4096, key, uint64(slot)*4096))
	} else {
		copy(b, rigSeg(4096, key, uint64(slot)*4096))
		copy(b[16:], rigSeg(0, endOfList, 0))
	}
	copy(q.r.mem[q.at+int(slot)*32:], b)
	q.pc++
	putBE32(q.r.mem, q.rec, uint32(uint16(q.pc)))
}

func TestStriding(t *testing.T) {
	for _, typ := range []uint8{2, 3} {
		r, c, q, key := rigStriding(t, typ)
		page := func(slot uint32) []byte {
			return r.d.mem.at(r.d.mkeys.get(key >> 8).mtt[slot]&^7, 4096, true)
		}
		// A linked list may be in any order; a cyclic ring is not.
		order := []uint32{0, 2, 3, 1}
		if typ == 3 {
			order = []uint32{0, 1, 2, 3}
		}
		for i, slot := range order {
			q.postStrides(slot, order[(i+1)%4], key)
		}
		wqe, stride := 0, uint32(0)
		for i := range 60 {
			f := rigUDP(20+(i*97)%1300, uint16(i))
			need := uint32(len(f)+255) / 256
			r.receive(f)
			b := c.poll()
			require.NotNil(t, b)
			if stride+need > 16 {
				require.Equal(t, 1<<31|(16-stride)<<16, be32(b, 44), "filler")
				require.Equal(t, uint16(stride), be16(b, 60))
				b = c.poll()
				require.NotNil(t, b)
				stride, wqe = 0, wqe+1
				q.postStrides(order[(wqe+3)%4], order[wqe%4], key)
			}
			require.Equal(t, need<<16|uint32(len(f)), be32(b, 44))
			require.Equal(t, uint16(stride), be16(b, 60))
			id := uint16(order[wqe%4])
			if typ == 3 {
				id = uint16(wqe)
			}
			require.Equal(t, id, be16(b, 2))
			require.Equal(t, f, page(order[wqe%4])[stride*256:][:len(f)])
			if stride += need; stride == 16 {
				stride, wqe = 0, wqe+1
				q.postStrides(order[(wqe+3)%4], order[wqe%4], key)
			}
		}
		require.Nil(t, c.poll())
		// Longer than a WQE: dropped, and no stride is used.
		r.receive(make([]byte, 4097))
		require.Nil(t, c.poll())
		require.Equal(t, uint64(1), r.d.stats.RxNoBuffer)
		require.Equal(t, stride, q.stride)
		account(t, r.d)
	}
}

func TestRMP(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(6, e)
	q := r.rq(3, 6, c, 512)
	m := r.d.rmps.add(func(n uint32) *rmp { return &rmp{n: n, ring: q.ring, dbr: q.dbr, pd: rigPD} })
	q.rmp = m.n
	q.rq.ring, q.rq.dbr = ring{}, 0
	q2 := r.rq(3, 6, c, 512)
	q2.rmp = m.n
	q.rq.ring.logSize, q.rq.ring.stride = 3, 6
	key := r.pa()
	q.post(key, 1)
	q.post(key, 1)
	r.catchAll(flowDest{destTIR, r.d.tirs.add(func(n uint32) *tir { return &tir{n: n, direct: true, rqn: q.n} }).n},
		flowDest{destTIR, r.d.tirs.add(func(n uint32) *tir { return &tir{n: n, direct: true, rqn: q2.n} }).n})
	f := rigUDP(100, 1)
	r.receive(f)
	for i := range uint16(2) {
		require.Equal(t, i, be16(c.poll(), 60))
		require.Equal(t, f, q.buf(i)[:len(f)])
	}
	require.Equal(t, uint64(1), r.d.stats.RxDelivered)
	require.Equal(t, uint64(1), r.d.stats.RxCopies)
}

func TestRQProducerBeyondRing(t *testing.T) {
	r, _, q, key := rigRX(t, 6, 3, 2048)
	q.post(key, 1)
	putBE32(r.mem, q.rec, 9)
	r.receive(rigUDP(40, 1))
	require.Equal(t, byte(rqERR), q.state)
	require.Equal(t, uint64(1), r.d.stats.BadDoorbells)
	require.Equal(t, uint64(1), r.d.stats.RxNoBuffer)
}

func TestTimestampFormats(t *testing.T) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	q.post(key, 1)
	r.receive(rigUDP(40, 1))
	free := be64(c.poll(), 48)
	require.Less(t, free, uint64(1)<<40, "ticks since power on")
	q.tsFormat = tsRealTime
	q.post(key, 1)
	r.receive(rigUDP(40, 1))
	sec, nsec := r.d.realTime(r.d.work.now)
	require.Equal(t, uint64(sec)<<32|uint64(nsec), be64(c.poll(), 48))
}

// TestLosslessWaitsForSteering has a host that makes its tables from the far
// end to the near one: nothing is taken before a frame can reach a queue.
func TestLosslessWaitsForSteering(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(6, e)
	q, to := r.rigTIR(c)
	q.post(r.pa(), 1)
	r.wire.lossless = true
	f := rigUDP(40, 1)
	r.receive(f)
	last := r.table(2)
	r.receive()
	first := r.table(1)
	last.missAction, last.missTable = missForward, first.n // a circle
	r.group(first, 0, make([]byte, 512), &flowEntry{action: actionForward, dests: []flowDest{{destTable, last.n}}})
	r.receive()
	require.Len(t, r.wire.in, 1)
	require.Zero(t, r.d.stats.RxFrames)
	r.group(last, 0, make([]byte, 512), &flowEntry{action: actionForward, dests: []flowDest{to}})
	r.receive()
	require.Empty(t, r.wire.in)
	require.Equal(t, f, q.buf(0)[:len(f)])
	account(t, r.d)
}

// TestNoWireWaitsForAQueueOfNoBuffers has a queue without a protection domain, which
// can never have a buffer: a lossless wire passes its frames, and they are counted
// where any frame is that finds none.
func TestNoWireWaitsForAQueueOfNoBuffers(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(6, e)
	q, to := r.rigTIR(c)
	set := r.d.qctrs.add(func(n uint32) *queueCounter { return &queueCounter{n: n} })
	q.counterSet, q.pd, q.hold.live = set.n, 0, false
	r.wire.lossless = true
	r.group(r.table(1), 0, make([]byte, 512), &flowEntry{action: actionForward, dests: []flowDest{to}})
	r.receive(rigUDP(40, 1), rigUDP(40, 2))
	require.Empty(t, r.wire.in)
	require.EqualValues(t, 2, set.outOfBuffer)
	require.EqualValues(t, 2, r.d.stats.RxNoBuffer)
	account(t, r.d)
}

// TestTurnsEndForThoseWhoWait: a posted command ends a turn at once, a hurried host
// after a few frames, and what is left comes in the next turns, in order.
func TestTurnsEndForThoseWhoWait(t *testing.T) {
	r, _, q, key := rigRX(t, 7, 6, 256)
	const frames = 3 * commandGap
	for range frames {
		q.post(key, 1)
	}
	for i := range frames {
		r.wire.in = append(r.wire.in, rigUDP(40, uint16(i)))
	}
	r.d.putWord(barCmdDoorbell, 1)
	require.True(t, r.d.pollReceive(time.Now(), frames))
	require.Len(t, r.wire.in, frames, "a command is posted")
	r.d.putWord(barCmdDoorbell, 0)
	hurry := true
	r.d.cfg.Hurry = func() bool { return hurry }
	require.True(t, r.d.pollReceive(time.Now(), frames))
	require.Len(t, r.wire.in, frames-commandGap)
	hurry = false
	require.True(t, r.d.pollReceive(time.Now(), frames))
	require.Empty(t, r.wire.in)
	for i := range frames {
		require.Equal(t, uint16(i), be16(q.buf(uint16(i)), 34), "frame %d", i)
	}
	account(t, r.d)
}
