package main

// strides.go owns striding receive queues' memory: multi-packet WQEs cut into
// strides, laid over order-0 pages by UMR work requests, and the queue that these
// go through. It does not know what a frame is or how it was completed
// (rxpath.go), nor the pages themselves (pagepool.go).
// Manual: chapters Receive Queue (striding), UMR WQE.
//
// Every WQE has a fixed run of addresses in one memory key. What UMR changes is
// which pages stand behind that run, so a WQE is written once for its life. Its
// pages are held until all of its strides are consumed; those of which nothing is
// lent then stay, and a WQE that kept all its pages is posted again for the price
// of a doorbell record. Else one UMR names the new pages, and the WQE is posted
// when that has completed.
//
// WQEs form a linked list that the device follows. Ours is the ring itself: the
// list is never out of order, since a WQE is spent only when the one before it
// is. The last WQE's link must lead to one that is not posted yet, so one always
// stays back.

import (
	"errors"
	"fmt"
	"slices"
)

// strideRing is the posted side of a striding queue. Its counters count WQEs and
// run freely: head <= posted <= mapped <= head + ring - 1.
type strideRing struct {
	layout strideLayout
	mask   uint32
	head   uint32 // WQEs that are spent
	stride uint32 // strides of the one at head that are spent
	posted uint32 // given to the device
	mapped uint32 // their pages are there or being named
	perWQE uint32 // pages
	held   []uint32
	state  []strideState // by WQE
	pool   *pagePool
	ico    *icoQueue
	key    uint32
	short  bool // the last fill wanted pages that were not there

	umrs      uint32 // under way
	found     uint32 // of these, when the last fill began
	lastUMRs  uint32 // posted by the last fill that posted any
	congested uint64 // fills that found more under way than that; since the last publish
}

// strideState says what of a WQE's pages the device knows.
type strideState uint8

const (
	strideStale   strideState = iota // nothing, or something else
	strideWaiting                    // a UMR is under way
	strideMapped                     // all
)

// newStrideRing writes 2^log WQEs into segs, for good.
func newStrideRing(l strideLayout, log uint8, segs []seg, key uint32, pool *pagePool, ico *icoQueue) *strideRing {
	n := 1 << log
	r := &strideRing{layout: l, mask: uint32(n - 1), perWQE: uint32(l.pages()), held: make([]uint32, n*l.pages()),
		state: make([]strideState, n), pool: pool, ico: ico, key: key}
	for i := range r.held {
		r.held[i] = noHold
	}
	for w := range n {
		segs[2*w] = nextSeg(uint16((w + 1) & (n - 1)))
		segs[2*w+1] = dataSeg(uint32(l.bytes()-l.headroom), key, uint64(w*l.bytes()+l.headroom))
	}
	return r
}

// strideWQESize is a striding WQE: a next segment and a data segment. Bytes, and
// their log2.
const (
	strideWQESize    = 2 * segment
	logStrideWQESize = 5
)

// nextSeg starts a WQE of a linked list: which one follows.
func nextSeg(index uint16) seg { return seg{be64word(uint64(index) << 32), 0} }

// reset starts anew after the device has let go of every WQE. What pages it knows
// it still knows, and a UMR that is under way still completes.
func (r *strideRing) reset() { r.head, r.stride, r.posted, r.mapped = 0, 0, 0, 0 }

// underWay reports whether a UMR of the ring is.
func (r *strideRing) underWay() bool { return slices.Contains(r.state, strideWaiting) }

// waits reports whether a WQE waits for its UMR or for pages.
func (r *strideRing) waits() bool { return r.posted != r.mapped || r.short }

// fill readies every WQE that it can and reports whether the producer moved.
func (r *strideRing) fill() bool {
	from := r.posted
	r.short = false
	r.ico.complete()
	if r.found = r.umrs; r.found > r.lastUMRs {
		r.congested++
	}
	for r.mapped-r.head < r.mask && r.prepare(r.mapped&r.mask) {
		r.mapped++
	}
	r.ico.ring()
	for r.posted != r.mapped && r.state[r.posted&r.mask] == strideMapped {
		r.posted++
	}
	return r.posted != from
}

// prepare makes sure that the pages of WQE w are there and lent to nobody, and
// tells the device where they changed. It returns false when pages, or room for
// the work request, are short.
func (r *strideRing) prepare(w uint32) bool {
	first, end := r.perWQE, uint32(0) // what must be named anew
	switch r.state[w] {
	case strideStale:
		first, end = 0, r.perWQE
	case strideWaiting: // since before a reset
		r.short = true
		return false
	}
	held := r.held[w*r.perWQE:][:r.perWQE]
	for i := range held {
		n := held[i]
		if n != noHold && !r.pool.busy(n) {
			continue
		}
		fresh, ok := r.pool.take()
		if !ok {
			r.state[w], r.short = strideStale, true // what was replaced is named next time
			return false
		}
		if n != noHold {
			r.pool.giveBack(n)
		}
		held[i] = fresh
		first, end = min(first, uint32(i)), max(end, uint32(i)+1)
	}
	if end == 0 {
		return true
	}
	first, end = first&^(umrEntries-1), (end+umrEntries-1)&^(umrEntries-1)
	if !r.ico.mapPages(r, w, first, held[first:end]) {
		r.state[w], r.short = strideStale, true
		return false
	}
	r.state[w] = strideWaiting
	r.umrs++
	r.lastUMRs = r.umrs - r.found
	return true
}

// place is where stride s of WQE w begins, headroom left out, as a position in
// the ring's memory.
func (r *strideRing) place(w, s uint32) uint32 {
	return (w<<r.layout.logStrides+s)<<r.layout.logStride + uint32(r.layout.headroom)
}

// page is the page behind a position.
func (r *strideRing) page(at uint32) uint32 { return r.held[at>>logPage] }

// icoQueue is a send queue for internal control operations: UMR work requests of
// the receive queues of one channel, however many these are. One goroutine owns
// it.
type icoQueue struct {
	segs   []seg
	mask   uint32
	pi     uint32 // WQEBBs posted
	ci     uint32 // known to be done
	last   uint32 // first WQEBB of the WQE posted last
	rung   uint32 // pi at the last doorbell
	posts  []icoPost
	phead  uint32
	ptail  uint32
	marks  []icoMark
	mhead  uint32
	mtail  uint32
	n      uint32 // SQN
	rec    record
	uar    []byte
	cq     *compQueue
	buf    dmaMem
	failed bool
	cause  cqeError
}

// icoPost is a UMR under way: for whom.
type icoPost struct {
	ring *strideRing
	wqe  uint32
}

// icoMark is what a completion covers.
type icoMark struct {
	end   uint32 // WQEBBs
	first uint16 // of the WQE that asked for it
	posts uint32
}

// logICO is the log2 of the WQEBBs of an ICO queue.
const logICO = 8

// newICOQueue prepares memory for a queue.
func newICOQueue(mem *arena, cq *compQueue, uar []byte, u *undo) (*icoQueue, error) {
	n := 1 << logICO
	q := &icoQueue{cq: cq, uar: uar, mask: uint32(n - 1), posts: make([]icoPost, n), marks: make([]icoMark, n)}
	var err error
	if q.buf, err = mem.alloc(n * wqebb); err != nil {
		return nil, fmt.Errorf("control send ring: %w", err)
	}
	u.add("control send ring", func() error { mem.free(q.buf); return nil })
	if q.rec, err = mem.newRecord(); err != nil {
		return nil, fmt.Errorf("control send ring: %w", err)
	}
	u.add("doorbell record", func() error { mem.freeRecord(q.rec); return nil })
	q.segs = segments(q.buf)
	return q, nil
}

// mapPages posts a UMR that names pages, from page first of WQE w on. It returns
// false when the queue is full or has failed.
func (q *icoQueue) mapPages(r *strideRing, w, first uint32, pages []uint32) bool {
	ds := uint32(umrWQEHeader+8*len(pages)) / segment
	blocks := (ds + segsPerBlock - 1) / segsPerBlock
	at, ok := q.reserve(blocks)
	if !ok {
		return false
	}
	s := q.segs[at*segsPerBlock : (at+blocks)*segsPerBlock]
	words := uint32(len(pages)) / 2 // two entries in 16 bytes
	offset := (w*r.perWQE + first) / 2
	s[0] = ctrlSeg(wqeUMR, uint16(q.pi), q.n, uint8(ds), 0)
	s[0].b |= be64word(uint64(r.key)) // the key that is changed
	s[1] = seg{be64word(uint64(umrInline|umrHasOffset)<<56 | uint64(words)<<16 | uint64(offset)), be64word(umrMaskFree)}
	clear(s[2:8]) // the rest of the control part, and a key that is not free
	for i := range s[8:ds] {
		s[8+i] = seg{be64word(r.pool.addr(pages[2*i], 0) | mttReadWrite), be64word(r.pool.addr(pages[2*i+1], 0) | mttReadWrite)}
	}
	q.last = q.pi
	q.pi += blocks
	q.posts[q.phead&q.mask] = icoPost{r, w}
	q.phead++
	return true
}

// reserve returns the place of a WQE of so many blocks that does not cross the
// ring's edge; NOPs fill what remains before it.
func (q *icoQueue) reserve(blocks uint32) (at uint32, ok bool) {
	at = q.pi & q.mask
	skip := uint32(0)
	if left := q.mask + 1 - at; left < blocks {
		skip = left
	}
	if q.failed || q.mask+1-(q.pi-q.ci) < blocks+skip {
		return 0, false
	}
	for range skip {
		q.segs[(q.pi&q.mask)*segsPerBlock] = ctrlSeg(wqeNOP, uint16(q.pi), q.n, 1, 0)
		q.last = q.pi
		q.pi++
	}
	return q.pi & q.mask, true
}

// ring tells the device what was posted since the last time and asks for one
// completion of all.
func (q *icoQueue) ring() {
	if q.pi == q.rung {
		return
	}
	ctrl := &q.segs[(q.last&q.mask)*segsPerBlock]
	ctrl.b |= be64word(ctrlCQE << 32)
	q.marks[q.mhead&q.mask] = icoMark{q.pi, uint16(q.last), q.phead}
	q.mhead++
	q.rung = q.pi
	q.rec.store(recordSQ, q.pi&0xffff)
	regWrite64(q.uar, uarSQ, be64word(ctrl.a))
}

// complete takes what the device has done.
func (q *icoQueue) complete() {
	ci := q.cq.ci
	for q.mtail != q.mhead && !q.failed {
		e, w := q.cq.peek(ci)
		if e == nil {
			break
		}
		ci++
		m := &q.marks[q.mtail&q.mask]
		if tailOpcode(w) != cqeReq || tailCounter(w) != m.first {
			q.failed, q.cause = true, decodeError(e, w)
			break
		}
		q.mtail++
		q.ci = m.end
		for ; q.ptail != m.posts; q.ptail++ {
			p := &q.posts[q.ptail&q.mask]
			p.ring.state[p.wqe] = strideMapped
			p.ring.umrs--
		}
	}
	if ci != q.cq.ci {
		q.cq.consumed(ci)
	}
}

// reset empties the queue after the device has let go of it. What it was to map
// is not mapped.
func (q *icoQueue) reset() {
	ci := q.cq.ci
	for e, _ := q.cq.peek(ci); e != nil; e, _ = q.cq.peek(ci) {
		ci++
	}
	q.cq.consumed(ci)
	for ; q.ptail != q.phead; q.ptail++ {
		p := &q.posts[q.ptail&q.mask]
		p.ring.state[p.wqe] = strideStale
		p.ring.umrs--
		p.ring.mapped = p.ring.posted // what was to be mapped is looked at again
	}
	q.pi, q.ci, q.last, q.rung, q.mhead, q.mtail = 0, 0, 0, 0, 0, 0
	q.failed = false
	q.rec.store(recordSQ, 0)
}

// errNoFill is returned where the device names no page of a striding queue.
var errNoFill = errors.New("the device did not complete the UMR work requests that fill a striding receive queue: try without rx_striding_rq")
