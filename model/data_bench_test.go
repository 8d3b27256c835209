package model

// data_bench_test.go times the data path by itself and holds that a packet
// costs no allocation.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stillWire gives one frame for ever and keeps nothing.
type stillWire struct {
	frames [][]byte
	n      int
	left   int
}

func (w *stillWire) Peek(time.Time) []byte {
	if w.left == 0 {
		return nil
	}
	return w.frames[w.n%len(w.frames)]
}
func (w *stillWire) Take()           { w.n++; w.left-- }
func (w *stillWire) Lossless() bool  { return true }
func (w *stillWire) Transmit([]byte) { w.n++ }
func (w *stillWire) Done() bool      { return false }
func (w *stillWire) LinkUp() bool    { return true }
func (w *stillWire) Close() error    { return nil }

// sendBench is a ring that is posted once and executed again and again.
func sendBench(b *testing.B, many bool, csum uint8) {
	r := newRig(b)
	r.d.cfg.Wire = &stillWire{}
	e, _ := r.eq(6)
	c := r.cq(6, e)
	c.oi = true
	q := r.sq(10, c)
	key := r.pa()
	at := r.put(rigUDP(18, 1))
	packets := 0
	for q.pc < 900 {
		if many {
			body := rigEseg(csum, 0, nil)
			for range 32 {
				body = append(body, rigSeg(60, key, at)...)
			}
			q.post(opMPSW, wantCQE, 0, body)
			packets += 32
			continue
		}
		q.post(opSend, 0, 0, append(rigEseg(csum, 0, nil), rigSeg(60, key, at)...))
		packets++
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		q.ci = 0
		q.kick()
		n += packets
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/packet")
}

func BenchmarkSend(b *testing.B)         { sendBench(b, false, 0) }
func BenchmarkSendMany(b *testing.B)     { sendBench(b, true, 0) }
func BenchmarkSendManyCsum(b *testing.B) { sendBench(b, true, csumL3|csumL4) }

// receiveBench is RSS through the Linux chain of tables, or one catch-all.
func receiveBench(b *testing.B, rss, compress bool) {
	r := newRig(b)
	w := &stillWire{frames: [][]byte{rigUDP(18, 1), rigUDP(18, 2), rigUDP(18, 3)}}
	r.d.cfg.Wire = w
	e, _ := r.eq(8)
	c := r.cq(8, e)
	c.oi, c.compress, c.miniFmt = true, compress, miniCsum
	q := r.rq(8, 6, c, 2048)
	key := r.pa()
	for range 256 {
		q.post(key, 1)
	}
	if rss {
		t := r.d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, entries: []uint32{q.n, q.n, q.n, q.n}} })
		x := r.d.tirs.add(func(n uint32) *tir {
			return &tir{n: n, hash: hashToeplitz, key: rssKey, rqt: t.n, sym: true, outer: hashFields{sel: 0xf, udp: true, have: true}}
		})
		vlan, l2, ttc := r.table(1), r.table(2), r.table(3)
		r.group(vlan, 1, word(4, bitCVLAN), &flowEntry{action: actionForward, dests: []flowDest{{destTable, l2.n}}})
		r.group(l2, 1, join(word(2, ^uint32(0)), word(3, 0xffff0000)), &flowEntry{action: actionForward, dests: []flowDest{{destTable, ttc.n}},
			value: join(word(2, 0x02000000), word(3, 0x00010000))})
		r.group(ttc, 1, join(word(4, 0xff<<shiftProto), word(4, 0xf<<shiftVersion)),
			&flowEntry{action: actionForward, dests: []flowDest{{destTIR, x.n}}, value: word(4, 17<<shiftProto|4<<shiftVersion)})
	} else {
		r.direct(q.rq)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		w.left = 256
		putBE32(r.mem, q.rec, uint32(uint16(q.ci+256)))
		r.d.pollReceive(time.Now(), 256)
		n += 256
	}
	if w.left != 0 {
		b.Fatal("frames were left")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/packet")
}

func BenchmarkReceive(b *testing.B)         { receiveBench(b, false, false) }
func BenchmarkReceiveRSS(b *testing.B)      { receiveBench(b, true, false) }
func BenchmarkReceiveCompress(b *testing.B) { receiveBench(b, true, true) }

func TestNoAllocations(t *testing.T) {
	r, _, q, key := rigRX(t, 8, 8, 2048)
	r.cqsIgnoreOverrun()
	for range 256 {
		q.post(key, 1)
	}
	w := &stillWire{frames: [][]byte{rigUDP(18, 1)}}
	r.d.cfg.Wire = w
	turn := func() {
		w.left = 64
		putBE32(r.mem, q.rec, uint32(uint16(q.ci+64)))
		r.d.pollReceive(time.Now(), 64)
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(100, turn))
	e, _ := r.eq(6)
	s := r.sq(6, r.cq(6, e))
	r.cqsIgnoreOverrun()
	at := r.put(rigUDP(18, 1))
	s.post(opSend, wantCQE, 0, append(rigEseg(csumL3|csumL4, 0, nil), rigSeg(60, key, at)...))
	s.post(opMPSW, wantCQE, 0, append(rigEseg(csumL4, 0, nil), rigSeg(60, key, at)...))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.ci = 0
		s.kick()
	}))
	require.Equal(t, byte(sqRDY), s.state)
}

// cqsIgnoreOverrun lets completions go unread.
func (r *rig) cqsIgnoreOverrun() {
	for _, c := range r.d.cqs.list {
		c.oi = true
	}
}
