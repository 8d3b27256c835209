package main

// pagepool.go owns packet memory: order-0 pages, mapped once for the life of the
// pool. Take, lend, give back. It does not know what lies in a page (rxpath.go,
// txpath.go) and never asks the device.
//
// A page is held as a whole by the receive queue and in fragments by those who
// keep a packet. What the pool's own goroutine lends to itself, for example to
// the send queue beside the receive queue, it counts without atomics; what it
// lends to others costs these one atomic when they give it back. Whoever finds
// that nothing is out any more puts the page back: the owner into its cache,
// everybody else onto a chain that the owner takes over whole, just before it
// would otherwise use memory that is not warm. A slow consumer so holds its own
// pages and nobody else's. (Linux: page_pool, fragment counts.)
//
// The chain stands where page_pool has a ring: it has no size to overflow, and a
// consumer that is interrupted while it gives a page back hides only that page.
//
// The pool grows page by page up to its limit: pages that were never out stay
// untouched while there are enough that were.
//
// Pages are named by number, not by pointer: the data path stores no pointers,
// so the garbage collector has no part in it.

import (
	"fmt"
	"sync/atomic"
)

// poolMax is the most pages of a pool: offsets in it have 32 bits.
const poolMax = 1 << 20

// noHold marks a place in a receive queue's map that has no page yet.
const noHold = ^uint32(0)

// xskOwners is the first owner number of UMEM frames; pools have those below.
const xskOwners = 128

// pageBias is what a page counts for its owner while it is lent to others: more
// than can ever be lent at once.
const pageBias = 1 << 30

// The owner's part in a page, one word of pagePool.own: how many fragments its
// own queues have, whether the receive queue holds it, whether it was lent.
const (
	ownOne  = 1
	ownHeld = 1 << 30
	ownLent = 1 << 31
)

// rxPage is what others have of a page. lent is the owner goroutine's; next
// belongs to whoever puts the page on the chain.
type rxPage struct {
	refs atomic.Int32 // pageBias, less what others gave back, while lent
	lent int32        // fragments lent to others since the page was taken
	next uint32       // page below this one on the chain, plus 1
}

// pagePool is the memory of one channel. Only release may be called by others
// than the owner goroutine.
type pagePool struct {
	mem   dmaMem
	lines []memoryLine // the same
	id    pageRef      // upper 8 bits of every reference
	own   []uint32     // the owner's part in each page; owner only
	pages []rxPage
	cache []uint32 // free pages are the first free of it; owner only
	free  int
	fresh uint32        // pages from this one on were never taken
	chain atomic.Uint32 // page given back last by others, plus 1; 0 is none
	tally poolTally
	stats poolStats
}

// poolStats counts as mlx5e's rx_pp_ counters do, one each of the pool's pages
// taken or given back. Written by publish.
type poolStats struct {
	allocFast    counter // taken from the cache
	allocSlow    counter // taken from memory that was never used
	allocEmpty   counter // found the cache and the chain empty
	allocRefill  counter // takings for which the cache was filled from the chain
	allocWaive   counter // from another memory node: a pool has one, so always 0
	cached       counter // given back by the owner into its cache
	cacheFull    counter // the cache holds all pages: a page given back twice
	ring         counter // given back by others
	ringFull     counter // the chain has no end: always 0
	releasedRefs counter // the owner's last use ended before a consumer's
}

// poolTally is what has been counted and not yet published.
type poolTally struct {
	fast, slow, empty, refill, cached, full, ring, released uint64
}

// publish makes the tally visible to others.
func (p *pagePool) publish() {
	t, s := &p.tally, &p.stats
	s.allocFast.add(t.fast)
	s.allocSlow.add(t.slow)
	s.allocEmpty.add(t.empty)
	s.allocRefill.add(t.refill)
	s.cached.add(t.cached)
	s.cacheFull.add(t.full)
	s.ring.add(t.ring)
	s.releasedRefs.add(t.released)
	*t = poolTally{}
}

// newPagePool reserves n pages of DMA memory, the most it can grow to, for pool
// number id.
func newPagePool(mem *arena, id, n int) (*pagePool, error) {
	if n > poolMax {
		return nil, fmt.Errorf("%d pages in a pool: at most %d", n, poolMax)
	}
	m, err := mem.alloc(n * pageSize)
	if err != nil {
		return nil, fmt.Errorf("%d packet pages: %w", n, err)
	}
	return &pagePool{mem: m, lines: memoryLines(m), id: pageRef(id) << 24, own: make([]uint32, n), pages: make([]rxPage, n), cache: make([]uint32, n)}, nil
}

// close gives the memory back. The device must not use it any more and no
// consumer may hold a fragment.
func (p *pagePool) close(mem *arena) { mem.free(p.mem) }

// put makes page n free.
func (p *pagePool) put(n uint32) {
	if uint(p.free) >= uint(len(p.cache)) {
		p.tally.full++
		return
	}
	p.cache[p.free] = n
	p.free++
}

// busy reports whether a fragment of page n is lent to anyone. A page that
// others have given back whole is not busy any more.
func (p *pagePool) busy(n uint32) bool {
	own := p.own[n] &^ ownHeld
	return own != 0 && (own != ownLent || !p.reclaim(n))
}

// reclaim ends the lending of page n if all is back. The last to give back did
// not put it on the chain, for the owner's part still counted.
func (p *pagePool) reclaim(n uint32) bool {
	pg := &p.pages[n]
	if pg.refs.Load() != pageBias-pg.lent {
		return false
	}
	pg.lent = 0
	p.own[n] &^= ownLent
	return true
}

// bytes is page n's memory from off to end.
func (p *pagePool) bytes(n, off, end uint32) []byte {
	b := p.mem.b[int(n)*pageSize : int(n)*pageSize+pageSize]
	return b[off:end:end]
}

// cut is the n bytes of the pool's memory from offset at on.
func (p *pagePool) cut(at, n uint32) []byte {
	b := p.mem.b[at:]
	return b[:n:n]
}

// at is the n bytes at bus address addr, nothing where that is not in the pool.
func (p *pagePool) at(addr uint64, n uint32) []byte {
	off := addr - p.mem.iova
	if off >= uint64(len(p.mem.b)) || uint64(len(p.mem.b))-off < uint64(n) {
		return nil
	}
	return p.cut(uint32(off), n)
}

// addr is the bus address of byte off of page n.
func (p *pagePool) addr(n, off uint32) uint64 {
	return p.mem.iova + uint64(n)*pageSize + uint64(off)
}

// take returns a page that nobody holds, or false when all are out.
func (p *pagePool) take() (uint32, bool) {
	if p.free == 0 && !p.refill() {
		return p.grow()
	}
	p.free--
	n := p.cache[p.free]
	p.own[n] = ownHeld
	p.tally.fast++
	return n, true
}

// grow takes a page that was never out.
func (p *pagePool) grow() (uint32, bool) {
	p.tally.empty++
	if int(p.fresh) == len(p.own) {
		return 0, false
	}
	n := p.fresh
	p.fresh++
	p.own[n] = ownHeld
	p.tally.slow++
	return n, true
}

// refill takes over what others gave back.
func (p *pagePool) refill() bool {
	if p.chain.Load() == 0 {
		return false
	}
	for at := p.chain.Swap(0); at != 0; {
		n := at - 1
		at = p.pages[n].next
		p.put(n)
		p.tally.ring++
	}
	p.tally.refill++
	return true
}

// lend counts a fragment of page n that another goroutine keeps until release.
func (p *pagePool) lend(n uint32) pageRef {
	pg := &p.pages[n]
	if pg.lent == 0 {
		pg.refs.Store(pageBias)
		p.own[n] |= ownLent
	}
	pg.lent++
	return p.id | pageRef(n)
}

// share counts one more fragment of page n for whoever has one that is lent, in
// any goroutine; it too ends with release.
func (p *pagePool) share(n uint32) pageRef {
	p.pages[n].refs.Add(1)
	return p.id | pageRef(n)
}

// adopt gives the owner a part again in page n, of which it has a fragment that was
// lent, so that lendOwn may count on. It may have settled the page since.
func (p *pagePool) adopt(n uint32) {
	if p.own[n] == 0 {
		pg := &p.pages[n]
		pg.refs.Add(pageBias - 1)
		pg.lent, p.own[n] = 1, ownLent
	}
}

// lendOwn counts a fragment of page n that a queue of the same goroutine keeps
// until returnAll.
func (p *pagePool) lendOwn(n uint32) pageRef {
	p.own[n] += ownOne
	return p.id | pageRef(n)
}

// returnAll ends what lendOwn began, for a run of fragments. Those of other
// owners, and noPage, are left out; it returns how many these were.
func (p *pagePool) returnAll(refs []pageRef) (left int) {
	if wideLoops && len(refs) > 0 && p.free+len(refs) <= len(p.cache) {
		done, freed, others := returnWide(&refs[0], len(refs), &p.own[0], uint32(len(p.own)), p.id, &p.cache[p.free])
		p.free += freed
		p.tally.cached += uint64(freed)
		if left = others; done == len(refs) {
			return left
		}
		refs = refs[done:]
	}
	own, cache, free, id := p.own, p.cache, p.free, uint32(p.id)
	for _, r := range refs {
		n := uint32(r) - id
		if uint(n) >= uint(len(own)) {
			left++
			continue
		}
		rest := own[n] - ownOne
		own[n] = rest
		if rest == 0 && uint(free) < uint(len(cache)) {
			cache[free] = n
			free++
		} else if rest == ownLent {
			p.tally.cached += uint64(free - p.free)
			p.free = free
			p.settle(n)
			free = p.free
		}
	}
	p.tally.cached += uint64(free - p.free)
	p.free = free
	return left
}

// giveBack is the receive queue's end of holding page n.
func (p *pagePool) giveBack(n uint32) {
	p.own[n] &^= ownHeld
	if p.own[n]&^ownLent == 0 {
		p.settle(n)
	}
}

// settle ends the owner's part in a page.
func (p *pagePool) settle(n uint32) {
	pg := &p.pages[n]
	lent := pg.lent
	pg.lent, p.own[n] = 0, 0
	if lent == 0 || pg.refs.Add(lent-pageBias) == 0 {
		p.put(n)
		p.tally.cached++
		return
	}
	p.tally.released++
}

// release gives one lent fragment back, from any goroutine.
func (p *pagePool) release(r pageRef) {
	n := r.page()
	pg := &p.pages[n]
	if pg.refs.Add(-1) != 0 {
		return
	}
	for {
		top := p.chain.Load()
		pg.next = top
		if p.chain.CompareAndSwap(top, n+1) {
			return
		}
	}
}

// home is the number of pages that nobody holds: what a queue without buffers can
// hope for, and what checks at rest count.
func (p *pagePool) home() int {
	p.refill()
	return p.free + len(p.own) - int(p.fresh)
}
