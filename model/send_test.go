package model

// send_test.go drives send queues as a driver does and looks at the wire and
// at the completions, error completions against recorded ones included.

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSend(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	key := r.pa()
	f := rigUDP(58, 1000)
	at := r.put(f)
	// pointer only, inlined headers, inlined headers of 18, two pieces, all inline
	q.post(opSend, 0, 0, append(rigEseg(0, 0, nil), rigSeg(len(f), key, at)...))
	q.post(opSend, 0, 0, append(rigEseg(0, 0, f[:18]), rigSeg(len(f)-18, key, at+18)...))
	q.post(opSend, 0, 0, append(rigEseg(0, 0, f[:14]), rigSeg(len(f)-14, key, at+14)...))
	two := append(rigEseg(0, 0, nil), rigSeg(33, key, at)...)
	q.post(opSend, 0, 0, append(two, rigSeg(len(f)-33, key, at+33)...))
	in := make([]byte, 4, 128)
	putBE32(in, 0, inlineSegment|uint32(len(f)))
	first := q.pc
	q.post(opSend, wantCQE, 0, append(rigEseg(0, 0, nil), append(in, f...)...))
	q.kick()
	require.Len(t, r.wire.out, 5)
	for _, out := range r.wire.out {
		require.Equal(t, f, out)
	}
	b := c.poll()
	require.NotNil(t, b)
	require.Equal(t, byte(0), b[63])
	require.Equal(t, uint16(first), be16(b, 60))
	require.Equal(t, uint32(opSend)<<24|q.n, be32(b, 56))
	require.Nil(t, c.poll())
	require.Equal(t, q.pc, q.ci)
	s := q.sent
	require.Equal(t, uint64(5), s.WQEs)
	require.Equal(t, uint64(5), s.Packets)
	require.Equal(t, uint64(1), s.Doorbells)
	require.Equal(t, uint64(1), s.CQEs)
	require.Equal(t, uint64(18+14+len(f)), s.Inline)
	require.Equal(t, uint64(q.pc)*64, s.RingBytes)
	require.Equal(t, uint64(len(f)*5), s.Inline+s.DataBytes)
	require.Zero(t, r.d.stats.DMAFaults)
}

func TestSendPadsAndWraps(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(8, e)
	q := r.sq(3, c) // 8 WQEBBs
	key := r.pa()
	f := rigUDP(1, 7) // 43 bytes
	at := r.put(f)
	for i := range 40 {
		body := rigEseg(0, 0, nil)
		for range 1 + i%3*4 { // 1, 2 or 3 WQEBBs
			body = append(body, rigSeg(1, key, at)...)
		}
		body = append(body, rigSeg(len(f)-1-i%3*4, key, at+uint64(1+i%3*4))...)
		first := q.pc
		q.post(opSend, wantCQE, 0, body)
		q.kick()
		b := c.poll()
		require.NotNil(t, b, i)
		require.Equal(t, uint16(first), be16(b, 60))
	}
	require.Len(t, r.wire.out, 40)
	for i, out := range r.wire.out {
		require.Len(t, out, 60)
		if i%3 == 0 {
			require.True(t, bytes.HasPrefix(out, f))
			require.Equal(t, make([]byte, 60-len(f)), out[len(f):])
		}
	}
}

func TestSendMany(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	key := r.pa()
	body := rigEseg(csumL3|csumL4, 0, nil)
	var want [][]byte
	for i := range 20 {
		f := rigUDP(30+i, uint16(i))
		want = append(want, append([]byte(nil), f...))
		putBE16(f, 24, 0xbad)
		putBE16(f, 40, 0xbad)
		if i%4 == 3 {
			in := make([]byte, 4+len(f), 128)
			putBE32(in, 0, inlineSegment|uint32(len(f)))
			copy(in[4:], f)
			for len(in)%16 != 0 {
				in = append(in, 0)
			}
			body = append(body, in...)
			continue
		}
		body = append(body, rigSeg(len(f), key, r.put(f))...)
	}
	q.post(opMPSW, wantCQE, 0, body)
	q.kick()
	require.Equal(t, want, r.wire.out)
	require.Equal(t, uint64(1), q.sent.MPWQEs)
	require.Equal(t, uint64(20), q.sent.MPWPackets)
	require.NotNil(t, c.poll())

	ethEnhancedMultiPktSendWqe.set(r.d.hca.caps[groupEthernet].current, 0)
	q.post(opMPSW, 0, 0, body)
	q.kick()
	b := c.poll()
	require.NotNil(t, b, "a device that has no such capability refuses")
	require.Equal(t, byte(cqeReqErr), b[63]>>4)
	require.Equal(t, byte(sqERR), q.state)
}

// wildRecord is a line of the recorded completions.
type wildRecord struct {
	Kind, Hex, Context, Pair string
	Decoded                  map[string]string
}

func wildRecords(t *testing.T) (list []wildRecord) {
	b, err := os.ReadFile(dataShared(t, "traces", "wild.jsonl"))
	require.NoError(t, err)
	for _, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		var w wildRecord
		require.NoError(t, json.Unmarshal(line, &w))
		list = append(list, w)
	}
	return list
}

// TestWildErrors replays the WQEs of recorded failures at the same index on a
// queue of the same number and compares the error completion byte by byte,
// owner bit and signature apart, which depend on the CQ's counter.
func TestWildErrors(t *testing.T) {
	cqes := map[string][][]byte{}
	wqes := map[string][]byte{}
	for _, w := range wildRecords(t) {
		b, _ := hex.DecodeString(w.Hex)
		switch {
		case w.Pair == "":
		case w.Kind == "err_cqe":
			cqes[w.Pair] = append(cqes[w.Pair], b)
		case w.Kind == "wqe":
			wqes[w.Pair] = b
		}
	}
	require.Len(t, wqes, 3)
	for pair, wqe := range wqes {
		t.Run(pair, func(t *testing.T) {
			want := cqes[pair][0]
			r := newRig(t)
			e, _ := r.eq(6)
			c := r.cq(6, e)
			q := r.sq(6, c)
			number := be32(want, 56) & 0xffffff
			r.d.sqs.items = append(r.d.sqs.items, make([]*sq, number)...)
			r.d.sqs.items[number-r.d.sqs.first] = q.sq
			q.n = number
			q.minInline = inlineL2
			q.pc, q.ci = uint32(be16(want, 60)), uint32(be16(want, 60))
			if pair == "B" {
				k := r.key(mkey{pd: rigPD, mode: accessMTT, umr: true, lw: true, mtt: make([]uint64, 1024)})
				putBE32(wqe, 12, k)
			}
			if pair == "A" {
				m := r.d.mkeys.get(r.pa() >> 8)
				r.d.mkeys.items = append(r.d.mkeys.items, make([]*mkey, 0x800)...)
				m.n = be32(wqe, 36)
				r.d.mkeys.items[m.n>>8-r.d.mkeys.first] = m
				putBE64(wqe, 40, r.put(rigUDP(1, 1)))
			}
			for len(wqe)%64 != 0 {
				wqe = append(wqe, 0)
			}
			q.raw(wqe)
			if len(cqes[pair]) > 1 {
				q.raw(wqe) // what follows is flushed
			}
			q.kick()
			for _, want := range cqes[pair] {
				got := c.poll()
				require.NotNil(t, got)
				require.Equal(t, want[:62], got[:62])
				require.Equal(t, want[63], got[63])
			}
			require.Nil(t, c.poll())
			require.Equal(t, byte(sqERR), q.state)
			require.Empty(t, r.wire.out)
		})
	}
}

// TestWildSignatures checks the signature rule on recorded completions whose
// place in the CQ is known.
func TestWildSignatures(t *testing.T) {
	known := map[string]uint32{
		"CQ 0x817 index 0x8": 0x8, "CQ 0x40b index 0": 0, "CQ 0x4c9 index 0": 0,
		"bad data address or key; CQ slot 0": 0, "second port; CQ slot 2": 2,
	}
	n := 0
	var pair []byte // two in a row at an unknown lap
	for _, w := range wildRecords(t) {
		if w.Kind != "err_cqe" {
			continue
		}
		b, _ := hex.DecodeString(w.Hex)
		e := [64]byte(b)
		want := e[62]
		if string(e[1:5]) == "seen" {
			clear(e[1:5]) // a mark of the host's
		}
		for place, counter := range known {
			if strings.Contains(w.Context, place) {
				sign(counter, &e)
				require.Equal(t, want, e[62], w.Context)
				n++
			}
		}
		if w.Pair == "C" {
			sign(0x2022+uint32(len(pair)), &e)
			pair = append(pair, want^e[62])
		}
	}
	require.Len(t, pair, 2)
	require.Equal(t, pair[0], pair[1], "the same lap")
	require.Equal(t, 5, n)
}

// sendFault is a bad work request and the failure it ends in.
type sendFault struct {
	name string
	do   func(r *rig, q *rigSQ, key uint32, at uint64)
	want failure
}

// sendFaults post one bad work request each; at is where a good frame lies.
func sendFaults() []sendFault {
	f := rigUDP(58, 1000)
	plain := func(n int, k uint32, at uint64) []byte {
		return append(rigEseg(0, 0, nil), rigSeg(n, k, at)...)
	}
	return []sendFault{
		{"wrong key", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(60, key^0x100, at)) }, failProtection},
		{"wrong variant", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(60, key^1, at)) }, failProtection},
		{"other PD", func(r *rig, q *rigSQ, key uint32, at uint64) { q.pd++; q.post(opSend, 0, 0, plain(60, key, at)) }, failProtection},
		{"unmapped", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(60, key, 0x1000)) }, failProtection},
		{"no bytes", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(0, key, at)) }, failInline},
		{"runt", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(13, key, at)) }, failInline},
		{"too long", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(opSend, 0, 0, plain(1<<17, key, at)) }, failInline},
		{"inline beyond WQE", func(r *rig, q *rigSQ, key uint32, at uint64) {
			b := plain(60, key, at)
			putBE16(b, 12, 400)
			q.post(opSend, 0, 0, b)
		}, failInline},
		{"opcode", func(r *rig, q *rigSQ, key uint32, at uint64) { q.post(0x08, 0, 0, plain(60, key, at)) }, failOpcode},
		{"no ds", func(r *rig, q *rigSQ, key uint32, at uint64) { q.raw(make([]byte, 64)) }, failOpcode},
		{"WQE index", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.pc++
			q.post(opSend, 0, 0, plain(60, key, at))
			q.pc--
			copy(r.mem[q.at:], r.mem[q.at+64:q.at+128])
		}, failOpcode},
		{"longer than posted", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.post(opSend, 0, 0, plain(60, key, at))
			r.mem[q.at+7] = 63
		}, failOpcode},
		{"LSO without mss", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.post(opLSO, 0, 0, append(rigEseg(0, 0, rigTCP(0, false, 0)), rigSeg(60, key, at)...))
		}, failInline},
		{"LSO of no TCP", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.post(opLSO, 0, 0, append(rigEseg(0, 100, make([]byte, 54)), rigSeg(60, key, at)...))
		}, failInline},
		{"UMR not allowed", func(r *rig, q *rigSQ, key uint32, at uint64) { q.reg = false; q.post(opUMR, 0, key, make([]byte, 112)) }, failOpcode},
		{"no tag's worth inlined", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.minInline = inlineL2
			q.post(opSend, 0, 0, append(rigEseg(0, 0, f[:17]), rigSeg(60, key, at)...))
		}, failInline},
		{"headers not inlined", func(r *rig, q *rigSQ, key uint32, at uint64) {
			q.minInline = inlineIP
			q.post(opSend, 0, 0, append(rigEseg(0, 0, f[:33]), rigSeg(60, key, at)...))
		}, failInline},
	}
}

func TestSendErrors(t *testing.T) {
	f := rigUDP(58, 1000)
	for _, c := range sendFaults() {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.eq(6)
			cq := r.cq(6, e)
			q := r.sq(6, cq)
			q.userIndex = 0x123456
			c.do(r, q, r.pa(), r.put(f))
			n := q.pc
			q.post(opNOP, 0, 0, nil)
			q.post(opNOP, wantCQE, 0, nil)
			q.kick()
			b := cq.poll()
			require.NotNil(t, b)
			require.Equal(t, []byte{c.want.hw, c.want.kind, c.want.vendor, c.want.syndrome}, b[52:56])
			require.Equal(t, byte(0xd2), b[63])
			require.Equal(t, uint32(0x123456), be32(b, 32))
			require.Equal(t, uint16(0), be16(b, 60))
			require.Equal(t, byte(sqERR), q.state)
			flushed := 0
			for b := cq.poll(); b != nil; b = cq.poll() {
				require.Equal(t, []byte{vendorFlushed, synFlush}, b[54:56])
				flushed++
			}
			require.GreaterOrEqual(t, flushed, 2)
			require.LessOrEqual(t, flushed, int(n)+2)
			require.Equal(t, q.pc, q.ci, "everything is flushed")
			require.Empty(t, r.wire.out)
		})
	}
}

func TestSendProducerBeyondRing(t *testing.T) {
	r := newRig(t)
	e, eqAt := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(3, c)
	q.pc = 9
	q.kick()
	require.Equal(t, byte(sqERR), q.state)
	require.Equal(t, uint64(1), r.d.stats.BadDoorbells)
	require.Equal(t, byte(eventWQCatas), r.mem[eqAt+1])
	require.Equal(t, q.n, be32(r.mem, eqAt+32+24))
}

func TestSendScript(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	f := rigUDP(58, 1)
	missed := 0
	stalled := true
	r.d.script = Script{
		MissDoorbell: func(n uint32) bool { missed++; return n == q.n },
		StallSQ:      func(n uint32) bool { return stalled },
	}
	q.post(opSend, wantCQE, 0, append(rigEseg(0, 0, nil), rigSeg(len(f), r.pa(), r.put(f))...))
	q.kick()
	require.Equal(t, 1, missed)
	require.False(t, r.d.pollRecords(), "stalled")
	require.Empty(t, r.wire.out)
	stalled = false
	require.True(t, r.d.pollRecords(), "the record tells what the register lost")
	require.Len(t, r.wire.out, 1)
	require.NotNil(t, c.poll())
}

func TestSendDownOrTooLongIsDropped(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	f := rigUDP(1500-28, 1)
	r.d.port.mtu = 1518
	wqe := append(rigEseg(0, 0, nil), rigSeg(len(f), r.pa(), r.put(append(f, 0)))...)
	q.post(opSend, wantCQE, 0, wqe)
	q.kick()
	require.Equal(t, 1, r.wire.sent)
	putBE32(wqe, 16, uint32(len(f)+1))
	q.post(opSend, wantCQE, 0, wqe)
	q.kick()
	r.d.port.operUp = false
	putBE32(wqe, 16, uint32(len(f)))
	q.post(opSend, wantCQE, 0, wqe)
	q.kick()
	require.Equal(t, 1, r.wire.sent)
	require.Equal(t, uint64(2), r.d.port.txDropped)
	require.Equal(t, uint64(1), r.d.port.txPackets)
	require.Equal(t, uint64(1518), r.d.port.txBytes)
	require.Equal(t, uint64(3), r.d.vport.txUni.packets)
	for range 3 {
		require.Equal(t, byte(0), c.poll()[63]>>4)
	}
}
