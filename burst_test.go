package main

// burst_test.go owns the tests that hold the loops in wide registers equal to the
// loops in Go: twin queues and pools live the same life, one with each, and must
// have the same memory at every step.

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// twin is one of two queues with a pool of its own.
type twin struct {
	q    *sendQueue
	p    *pagePool
	wide bool
}

const (
	twinBlocks = 64
	twinPages  = 96
)

func newTwin(wide bool, inline int) *twin {
	mem := dmaMem{make([]byte, twinPages*pageSize), 1 << 33}
	for i := range mem.b {
		mem.b[i] = byte(uint32(i) * 2654435761 >> 13)
	}
	p := &pagePool{mem: mem, id: 3 << 24, own: make([]uint32, twinPages), pages: make([]rxPage, twinPages), cache: make([]uint32, twinPages)}
	ring := dmaMem{make([]byte, twinBlocks*wqebb), 1 << 32}
	q := &sendQueue{segs: segments(ring), wqes: blocks(ring), mask: twinBlocks - 1, refs: make([]pageRef, twinBlocks*segsPerBlock),
		fmask: twinBlocks*segsPerBlock - 1, marks: make([]txMark, twinBlocks), lkey: 0x00a1b2c3, n: 0x123456, sizes: upTo(1600),
		maxLSO: 1 << 16, uar: make([]byte, pageSize), rec: record{w: new([2]uint32)}}
	q.home(p)
	q.inlineUpTo(inline)
	return &twin{q, p, wide}
}

// as runs f with this twin's loops.
func (w *twin) as(f func()) {
	was := wideLoops
	wideLoops = w.wide
	defer func() { wideLoops = was }()
	f()
}

// frame makes one from pages of the twin's pool; equal random numbers make equal
// frames. It is false when the pool is empty.
func (w *twin) frame(r *rand.Rand, esegs []seg) (f txFrame, ok bool) {
	size := uint32(r.IntN(80))
	if r.IntN(8) == 0 {
		size = uint32(r.IntN(1700))
	}
	if r.IntN(3) > 0 {
		size = uint32(leastBlock + r.IntN(mostBlock-leastBlock+1))
	}
	f = txFrame{form: txSize(size), eseg: esegs[0], page: noPage}
	if r.IntN(20) == 0 {
		f.eseg = esegs[r.IntN(len(esegs))]
	}
	if r.IntN(60) == 0 {
		f.form |= []txForm{txAlone, txMore, txHeader(14)}[r.IntN(3)]
	}
	kind, off, uses, lend := r.IntN(24), uint64(r.IntN(pageSize)), r.IntN(3), r.IntN(12)
	if kind < 2 { // nobody's, and another pool's
		f.addr = w.p.mem.iova + uint64(r.IntN(len(w.p.mem.b)))
		if kind == 1 {
			f.page, f.addr = 4<<24|7, 1<<40
		}
		return f, true
	}
	n, ok := w.p.take()
	if !ok {
		return f, false
	}
	f.page = w.p.lendOwn(n)
	for range uses / 2 {
		w.p.lendOwn(n) // a further frame lies in it, which is never sent
	}
	if lend == 0 {
		w.p.lend(n)
	}
	if lend != 1 {
		w.p.giveBack(n)
	}
	f.addr = w.p.addr(n, uint32(off))
	return f, true
}

// requireEqual compares all that the loops write.
func requireEqual(t *testing.T, a, b *twin) {
	t.Helper()
	require.Equal(t, a.q.segs, b.q.segs)
	require.Equal(t, a.q.refs, b.q.refs)
	require.Equal(t, a.q.tally, b.q.tally)
	require.Equal(t, []uint32{a.q.pi, a.q.last, a.q.fhead, a.q.ftail, a.q.posted}, []uint32{b.q.pi, b.q.last, b.q.fhead, b.q.ftail, b.q.posted})
	require.Equal(t, a.p.own, b.p.own)
	require.Equal(t, a.p.cache[:a.p.free], b.p.cache[:b.p.free])
	require.Equal(t, a.p.tally, b.p.tally)
}

func TestWideLoopsDoTheSame(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	esegs := []seg{{}, txOffload{csum: csumL3 | csumL4}.eseg(), txOffload{metadata: 1}.eseg(), txOffload{insert: true, vlan: 5}.eseg(), {a: 1 << 63}, {b: 1 << 63}}
	for _, c := range []struct {
		name   string
		limit  uint32
		inline int
	}{{"plain", 0, 0}, {"sessions", sessionLimit, 0}, {"short sessions", 6, 0}, {"inlined", sessionLimit, mostBlock}, {"inlined up to 50", sessionLimit, 50}, {"inlined up to 200", sessionLimit, 200}} {
		t.Run(c.name, func(t *testing.T) {
			twins := [2]*twin{newTwin(true, c.inline), newTwin(false, c.inline)}
			wideDid := uint64(0)
			for round := range uint64(3000) {
				var took [2]int
				for i, w := range twins {
					r := rand.New(rand.NewPCG(round, uint64(c.limit)))
					w.q.limit = c.limit
					if round == 0 { // where the 16-bit index of a WQE wraps
						w.q.pi, w.q.ci, w.q.fhead, w.q.ftail = 65536-24, 65536-24, 1<<32-40, 1<<32-40
					}
					w.as(func() {
						esegs := append([]seg{esegs[r.IntN(len(esegs))]}, esegs...)
						var burst []txFrame
						for range r.IntN(70) {
							if f, ok := w.frame(r, esegs); ok {
								burst = append(burst, f)
							}
						}
						took[i] = w.q.send(burst)
						w.q.dropAll(burst[took[i]:])
						if r.IntN(3) > 0 { // all is done
							w.q.ci, w.q.mtail = w.q.pi, w.q.mhead
							w.q.giveBack(w.q.fhead)
						}
						if r.IntN(6) == 0 { // pages stay out that are never sent or given back
							clear(w.p.own)
							clear(w.p.pages)
							w.q.ci, w.q.mtail, w.q.ftail = w.q.pi, w.q.mhead, w.q.fhead
							w.p.free, w.p.fresh = 0, 0
						}
					})
				}
				require.Equal(t, took[0], took[1], "round %d", round)
				requireEqual(t, twins[0], twins[1])
				wideDid = twins[0].q.tally.packets
			}
			require.Greater(t, wideDid, uint64(10_000), "too little was sent to compare")
		})
	}
}

// The wide loops are not only equal to the others but in use: they take whole
// bursts of frames that are alike, and stop where a frame differs, whatever it is
// that differs and wherever it stands.
func TestWideLoopsTakeWhatIsAlike(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	const n = 16
	w := newTwin(true, mostBlock)
	eseg := txOffload{csum: csumL3, metadata: 9}.eseg()
	limit := upTo(1514)
	differ := map[string]func(*txFrame){
		"nothing":   func(*txFrame) {},
		"eseg a":    func(f *txFrame) { f.eseg.a ^= 1 << 40 },
		"eseg b":    func(f *txFrame) { f.eseg.b ^= 1 },
		"too short": func(f *txFrame) { f.form = 13 },
		"too long":  func(f *txFrame) { f.form = 1515 },
		"more":      func(f *txFrame) { f.form |= txMore },
		"alone":     func(f *txFrame) { f.form |= txAlone },
		"header":    func(f *txFrame) { f.form |= txHeader(60) },
		"size":      func(f *txFrame) { f.form = 1<<32 - 1 },
	}
	for name, change := range differ {
		for at := 1; at < n; at++ {
			var frames [n]txFrame
			for i := range frames {
				frames[i] = txFrame{addr: w.p.addr(uint32(i), 7), eseg: eseg, form: txSize(60), page: pageRef(i)}
			}
			change(&frames[at])
			fours, alike := at/4*4, at
			if name == "nothing" {
				fours, alike = n, n
			}
			refs := make([]pageRef, n)
			done, bytes := sessionWide(&w.q.segs[0], &refs[0], &frames[0], n/4, 5, limit)
			require.Equal(t, []int{fours, fours * 60}, []int{done, int(bytes)}, "session, %s at %d", name, at)
			done, bytes = plainWide(&w.q.wqes[0], &refs[0], &frames[0], n/4, 0, 65530, 5, limit)
			require.Equal(t, []int{fours, fours * 60}, []int{done, int(bytes)}, "plain, %s at %d", name, at)
			done, bytes = inlineWide(&w.q.segs[0], &refs[0], &frames[0], n, &w.p.mem.b[0], w.p.mem.iova, uint64(len(w.p.mem.b)-wqebb), mostBlock)
			require.Equal(t, []int{alike, alike * 60}, []int{done, int(bytes)}, "inlined, %s at %d", name, at)
		}
	}
	done, bytes := sessionWide(&w.q.segs[0], &w.q.refs[0], &txFrame{}, 0, 5, limit)
	require.Zero(t, done+int(bytes))
}
