package main

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func testPool(t testing.TB, pages int) *pagePool {
	d := testDevice(t, model.Config{})
	mem := newArena(d)
	t.Cleanup(func() { require.NoError(t, mem.close()) })
	p, err := newPagePool(mem, 3, pages)
	require.NoError(t, err)
	return p
}

// A page is free again when the queue, its own send queue and every consumer have
// given it back, in whatever order, and not before.
func TestPageComesHomeOnce(t *testing.T) {
	for order := range 6 {
		p := testPool(t, 4)
		n, ok := p.take()
		require.True(t, ok)
		own, other := p.lendOwn(n), p.lend(n)
		ends := []func(){func() { p.giveBack(n) }, func() { p.returnAll([]pageRef{own, noPage}) }, func() { p.release(other) }}
		for i, at := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}[order] {
			require.Equal(t, 3, p.home(), "order %d, after %d", order, i)
			ends[at]()
		}
		require.Equal(t, 4, p.home(), "order %d", order)
	}
}

// A page that consumers gave back while the queue still holds it is not busy.
func TestPageIsNotBusyWhenAllIsBack(t *testing.T) {
	p := testPool(t, 2)
	n, _ := p.take()
	require.False(t, p.busy(n))
	a, b := p.lend(n), p.lend(n)
	p.release(a)
	require.True(t, p.busy(n))
	p.release(b)
	require.False(t, p.busy(n))
	require.Equal(t, 1, p.home(), "the queue still holds it")
	p.giveBack(n)
	require.Equal(t, 2, p.home())
}

// The pool grows only when nothing has come home, up to its limit, and counts as
// mlx5e does.
func TestPoolGrowsAndCounts(t *testing.T) {
	p := testPool(t, 3)
	a, _ := p.take()
	b, _ := p.take()
	p.giveBack(a)
	again, _ := p.take()
	require.Equal(t, a, again, "warm before new")
	ref := p.lend(b)
	p.giveBack(b)
	p.release(ref)
	back, ok := p.take()
	require.True(t, ok)
	require.Equal(t, b, back)
	_, ok = p.take()
	require.True(t, ok)
	_, ok = p.take()
	require.False(t, ok, "the limit")
	p.publish()
	s := &p.stats
	for name, c := range map[string]struct {
		c    *counter
		want uint64
	}{"fast": {&s.allocFast, 2}, "slow": {&s.allocSlow, 3}, "empty": {&s.allocEmpty, 4}, "refill": {&s.allocRefill, 1}, "waive": {&s.allocWaive, 0},
		"cached": {&s.cached, 1}, "cache_full": {&s.cacheFull, 0}, "ring": {&s.ring, 1}, "ring_full": {&s.ringFull, 0}, "released_ref": {&s.releasedRefs, 1}} {
		require.Equal(t, c.want, c.c.get(), name)
	}
}

// Consumers in other goroutines give pages back at any time: none is lost, none
// is handed out twice.
func TestPoolWithManyConsumers(t *testing.T) {
	const consumers, rounds = 4, 20_000
	p := testPool(t, 96)
	work := make(chan pageRef, 64)
	var done sync.WaitGroup
	for i := range consumers {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			var kept []pageRef
			for ref := range work {
				if kept = append(kept, ref); len(kept) < 8 {
					continue
				}
				k := r.IntN(len(kept))
				p.release(kept[k])
				kept[k] = kept[len(kept)-1]
				kept = kept[:len(kept)-1]
			}
			for _, ref := range kept {
				p.release(ref)
			}
		})
	}
	r := rand.New(rand.NewPCG(9, 9))
	var held []uint32
	out := map[uint32]bool{}
	for range rounds {
		if n, ok := p.take(); ok {
			require.False(t, out[n], "page %d is handed out twice", n)
			out[n] = true
			held = append(held, n)
		}
		if len(held) == 0 {
			continue
		}
		k := r.IntN(len(held))
		n := held[k]
		for range r.IntN(3) {
			work <- p.lend(n)
		}
		if r.IntN(2) == 0 {
			own := p.lendOwn(n)
			p.returnAll([]pageRef{own})
		}
		p.giveBack(n)
		delete(out, n)
		held[k] = held[len(held)-1]
		held = held[:len(held)-1]
	}
	close(work)
	done.Wait()
	require.Equal(t, len(p.own), p.home()+len(held))
}

// One slow consumer does not keep others' pages from being used again. A FIFO page
// cache, with the same load, is blocked by it.
func TestSlowConsumerHoldsOnlyItsOwnPages(t *testing.T) {
	figures, err := benchPool()
	require.NoError(t, err)
	require.GreaterOrEqual(t, figures[0].Value, 99.0)
	require.Less(t, figures[1].Value, 50.0)
}

// Without anything held the FIFO cache is a good one: the comparison is fair.
func TestFIFOCacheWorksWithoutHolders(t *testing.T) {
	var f fifoCache
	for i := range 3 * len(f.pages) {
		require.True(t, f.put(i))
		page, ok := f.take(func(int) bool { return false })
		require.True(t, ok)
		require.Equal(t, i, page)
	}
	require.True(t, f.put(1))
	_, ok := f.take(func(int) bool { return true })
	require.False(t, ok)
}
