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
// everybody else into a ring that the owner empties. A slow consumer so holds
// its own pages and nobody else's. (Linux: page_pool, fragment counts.)
//
// Pages are named by number, not by pointer: the data path stores no pointers,
// so the garbage collector has no part in it.

import (
	"fmt"
	"sync/atomic"
)

// pageRef names a page of a pool: the pool's number in the upper 8 bits, the
// page in the lower 24. noPage belongs to nobody.
type pageRef uint32

const (
	noPage   = ^pageRef(0)
	pageMask = 1<<24 - 1
)

func (r pageRef) pool() uint32 { return uint32(r >> 24) }
func (r pageRef) page() uint32 { return uint32(r & pageMask) }

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

// rxPage is what others have of a page. lent is the owner goroutine's.
type rxPage struct {
	refs atomic.Int32 // pageBias, less what others gave back, while lent
	lent int32        // fragments lent to others since the page was taken
}

// pagePool is the memory of one channel. Only release may be called by others
// than the owner goroutine.
type pagePool struct {
	mem   dmaMem
	id    pageRef  // upper 8 bits of every reference
	own   []uint32 // the owner's part in each page; owner only
	pages []rxPage
	cache []uint32 // free pages are the first free of it; owner only
	free  int
	ring  []atomic.Uint32
	mask  uint32 // of ring
	rhead uint32
	rtail atomic.Uint32
	stats poolStats
}

// poolStats counts as mlx5e's rx_pp_ counters do. Written by the owner.
type poolStats struct {
	allocEmpty counter // cache and ring had nothing
	refill     counter // pages taken over from the ring
	released   counter // the owner's last use ended before a consumer's
}

// newPagePool takes n pages of DMA memory for pool number id.
func newPagePool(mem *arena, id, n int) (*pagePool, error) {
	if n > pageMask {
		return nil, fmt.Errorf("%d pages in a pool: at most %d", n, pageMask)
	}
	m, err := mem.alloc(n * pageSize)
	if err != nil {
		return nil, fmt.Errorf("%d packet pages: %w", n, err)
	}
	ring := 1 << logCeil(n)
	p := &pagePool{mem: m, id: pageRef(id) << 24, own: make([]uint32, n), pages: make([]rxPage, n), cache: make([]uint32, n),
		ring: make([]atomic.Uint32, ring), mask: uint32(ring - 1)}
	for i := range uint32(n) {
		p.put(uint32(n) - 1 - i)
	}
	return p, nil
}

// close gives the memory back. The device must not use it any more and no
// consumer may hold a fragment.
func (p *pagePool) close(mem *arena) { mem.free(p.mem) }

// put makes page n free.
func (p *pagePool) put(n uint32) {
	p.cache[p.free] = n
	p.free++
}

// busy reports whether a fragment of page n is lent to anyone.
func (p *pagePool) busy(n uint32) bool { return p.own[n]&^ownHeld != 0 }

// bytes is page n's memory from off to end.
func (p *pagePool) bytes(n, off, end uint32) []byte {
	b := p.mem.b[int(n)*pageSize : int(n)*pageSize+pageSize]
	return b[off:end:end]
}

// addr is the bus address of byte off of page n.
func (p *pagePool) addr(n, off uint32) uint64 {
	return p.mem.iova + uint64(n)*pageSize + uint64(off)
}

// take returns a page that nobody holds, or false when all are out.
func (p *pagePool) take() (uint32, bool) {
	if p.free == 0 && !p.refill() {
		p.stats.allocEmpty.add(1)
		return 0, false
	}
	p.free--
	n := p.cache[p.free]
	p.own[n] = ownHeld
	return n, true
}

// refill moves what others gave back from the ring into the cache.
func (p *pagePool) refill() bool {
	moved := uint64(0)
	for p.free < len(p.cache) {
		slot := &p.ring[p.rhead&p.mask]
		n := slot.Load()
		if n == 0 {
			break // empty, or its writer is between its two steps: next time
		}
		slot.Store(0)
		p.rhead++
		p.put(n - 1)
		moved++
	}
	p.stats.refill.add(moved)
	return moved > 0
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

// lendOwn counts a fragment of page n that a queue of the same goroutine keeps
// until returnAll.
func (p *pagePool) lendOwn(n uint32) pageRef {
	p.own[n] += ownOne
	return p.id | pageRef(n)
}

// returnAll ends what lendOwn began, for a run of fragments. Those of other
// pools, and noPage, are left out.
func (p *pagePool) returnAll(refs []pageRef) {
	own, cache, free, id := p.own, p.cache, p.free, uint32(p.id)
	for _, r := range refs {
		n := uint32(r) - id
		if uint(n) >= uint(len(own)) {
			continue
		}
		left := own[n] - ownOne
		own[n] = left
		if left == 0 && uint(free) < uint(len(cache)) {
			cache[free] = n
			free++
		} else if left == ownLent {
			p.free = free
			p.settle(n)
			free = p.free
		}
	}
	p.free = free
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
		return
	}
	p.stats.released.add(1)
}

// release gives one lent fragment back, from any goroutine.
func (p *pagePool) release(r pageRef) {
	n := r.page()
	if p.pages[n].refs.Add(-1) != 0 {
		return
	}
	at := p.rtail.Add(1) - 1
	p.ring[at&p.mask].Store(n + 1)
}

// home is the number of pages that nobody holds; for checks at rest.
func (p *pagePool) home() int {
	p.refill()
	return p.free
}
