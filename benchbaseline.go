package main

// benchbaseline.go owns the baseline that the page pool is measured against: the FIFO
// page cache that drivers had before, run over the same load. It is no part of the
// driver: nothing but benchrx.go uses it, and order_test.go sees to that.

// fifoCache is a page cache of the old kind, for comparison: pages are put in
// when the queue is done with them, lent or not, and taken out in that order; one
// that is still lent blocks all behind it.
type fifoCache struct {
	pages [256]int // Linux: MLX5E_CACHE_SIZE
	head  int
	n     int
}

// put reports whether there was room.
func (f *fifoCache) put(page int) bool {
	if f.n == len(f.pages) {
		return false
	}
	f.pages[(f.head+f.n)%len(f.pages)] = page
	f.n++
	return true
}

// take returns the oldest page if it is not lent, as lent says.
func (f *fifoCache) take(lent func(page int) bool) (page int, ok bool) {
	if f.n == 0 || lent(f.pages[f.head]) {
		return 0, false
	}
	page = f.pages[f.head]
	f.head, f.n = (f.head+1)%len(f.pages), f.n-1
	return page, true
}

// recycledByFIFO runs a ring of so many pages, two packets each, over a FIFO cache
// and returns which share of the pages it got had been used before. Of packets that
// arrive one in share is held until hold more have arrived.
func recycledByFIFO(pages, packets, share, hold int) (percent float64) {
	var cache fifoCache
	until := map[int]int{} // page: held up to this packet
	ring := make([]int, pages)
	fresh := len(ring)
	for i := range ring {
		ring[i] = i
	}
	used, recycled := 0, 0
	for seen := 0; seen < packets; seen += 2 {
		at := seen / 2 % len(ring)
		if seen%share == 0 {
			until[ring[at]] = seen + hold
		}
		if !cache.put(ring[at]) {
			delete(until, ring[at]) // to the page allocator
		}
		used++
		page, ok := cache.take(func(page int) bool { return until[page] > seen })
		if ok {
			recycled++
		} else {
			page, fresh = fresh, fresh+1
		}
		ring[at] = page
	}
	return 100 * float64(recycled) / float64(used)
}
