package main

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// bitmap is the arena seen page by page: who holds what.
type bitmap map[uint64]int // page -> owner

// holds takes the pages of m for owner; they must be free.
func (b bitmap) take(t *testing.T, m dmaMem, owner int) {
	for _, a := range m.pages() {
		if other, ok := b[a]; ok {
			t.Fatalf("page %#x was given to %d and to %d", a, other, owner)
		}
		b[a] = owner
	}
}

func (b bitmap) give(m dmaMem) {
	for _, a := range m.pages() {
		delete(b, a)
	}
}

// requireWhole asserts that every chunk is one free run again.
func requireWhole(t *testing.T, a *arena) {
	t.Helper()
	for _, c := range a.chunks {
		require.Equal(t, []pageRun{{0, len(c.mem.b) / pageSize}}, c.free, "free runs were not joined")
	}
	require.Zero(t, a.used())
}

// The arena against a bitmap, in random order: no page has two owners, what is
// handed out is zero and where it says, and at the end all is one run again.
func TestArenaAgainstBitmap(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newFakeCard()
		a := newArena(c)
		pages := bitmap{}
		type holding struct {
			m     dmaMem
			owner int
		}
		var held []holding
		bytesHeld := 0
		for turn := range 3000 {
			if len(held) == 0 || rng.IntN(100) < 52 {
				n := 1 + rng.IntN(5*pageSize)
				if rng.IntN(50) == 0 {
					n = 1 + rng.IntN(600*pageSize)
				}
				m, err := a.alloc(n)
				require.NoError(t, err)
				require.Len(t, m.b, (n+pageSize-1)/pageSize*pageSize)
				require.Equal(t, len(m.b), cap(m.b), "room beyond the end")
				require.Zero(t, m.iova%pageSize)
				require.True(t, allZero(m.b), "memory of another shines through")
				pages.take(t, m, turn)
				m.b[0], m.b[len(m.b)-1] = byte(turn), byte(turn>>8)
				seen := c.at(m.iova, len(m.b))
				require.NotNil(t, seen, "not mapped for the device")
				require.Equal(t, []byte{byte(turn), byte(turn >> 8)}, []byte{seen[0], seen[len(seen)-1]})
				held = append(held, holding{m, turn})
				bytesHeld += len(m.b)
			} else {
				i := rng.IntN(len(held))
				h := held[i]
				require.Equal(t, []byte{byte(h.owner), byte(h.owner >> 8)}, []byte{h.m.b[0], h.m.b[len(h.m.b)-1]}, "somebody else wrote here")
				h.m.b[0] = 0xff
				pages.give(h.m)
				bytesHeld -= len(h.m.b)
				if rng.IntN(4) == 0 { // page by page, in any order
					for _, p := range rng.Perm(len(h.m.b) / pageSize) {
						a.freePage(h.m.iova + uint64(p)*pageSize)
					}
				} else {
					a.free(h.m)
				}
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
			}
			require.Equal(t, bytesHeld, a.used())
		}
		for _, c := range a.chunks {
			for i := 1; i < len(c.free); i++ {
				require.Less(t, c.free[i-1].first+c.free[i-1].n, c.free[i].first, "free runs touch or are out of order")
			}
		}
		for _, h := range held {
			a.free(h.m)
		}
		requireWhole(t, a)
		require.NoError(t, a.close())
		require.Empty(t, c.maps)
	}
}

// Several goroutines at once.
func TestArenaFromManyGoroutines(t *testing.T) {
	c := newFakeCard()
	a := newArena(c)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range 500 {
				m, err := a.alloc(1 + rng.IntN(9*pageSize))
				r, err2 := a.newRecord()
				if err != nil || err2 != nil {
					t.Error(err, err2)
					return
				}
				for i := range m.b {
					m.b[i] = byte(g + 1)
				}
				r.store(0, uint32(g))
				if bytes.Count(m.b, []byte{byte(g + 1)}) != len(m.b) || r.load(0) != uint32(g) {
					t.Error("two owners")
				}
				a.free(m)
				a.freeRecord(r)
			}
		})
	}
	wg.Wait()
	require.Zero(t, a.used())
	require.NoError(t, a.close())
	require.Empty(t, c.maps)
}

// Regions of odd size have exact bounds and leak nothing (A22).
func TestArenaOddSizes(t *testing.T) {
	c := newFakeCard()
	a := newArena(c)
	var all []dmaMem
	for _, n := range []int{1, 4095, 4096, 4097, hugePageSize - 1, hugePageSize + 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 12345} {
		m, err := a.alloc(n)
		require.NoError(t, err)
		want := (n + pageSize - 1) / pageSize * pageSize
		require.Len(t, m.b, want)
		require.Equal(t, want, cap(m.b))
		require.NotNil(t, c.at(m.iova, want), "%d bytes: the device cannot reach all of it", n)
		require.Len(t, m.pages(), want/pageSize)
		require.Equal(t, m.iova+uint64(want)-pageSize, m.pages()[want/pageSize-1])
		all = append(all, m)
	}
	for _, n := range []int{0, -1, -1 << 40} {
		_, err := a.alloc(n)
		require.Error(t, err)
	}
	require.Panics(t, func() { all[0].slice(0, pageSize+1) }, "a part that is not there")
	part := all[3].slice(10, 20)
	require.Equal(t, all[3].iova+10, part.iova)
	require.Equal(t, []int{20, 20}, []int{len(part.b), cap(part.b)})
	for _, m := range all {
		a.free(m)
	}
	a.free(dmaMem{}) // nothing
	requireWhole(t, a)
	require.NoError(t, a.close())
	require.Empty(t, c.maps)
}

// Memory that the device refuses is not kept, and the error is the device's.
func TestArenaWhenMappingFails(t *testing.T) {
	c := newFakeCard()
	c.maps[firstIOVA] = make([]byte, pageSize) // in the way of the first chunk
	a := newArena(c)
	_, err := a.alloc(1)
	require.ErrorContains(t, err, "mapped already")
	require.Empty(t, a.chunks)
	require.Zero(t, a.used())
	m, err := a.alloc(1)
	require.NoError(t, err, "the next addresses are free")
	a.free(m)
	require.NoError(t, a.close())
	require.Len(t, c.maps, 1)
}

// Doorbell records are 64 bytes apart, zero at first, and used again.
func TestDoorbellRecords(t *testing.T) {
	c := newFakeCard()
	a := newArena(c)
	used := map[uint64]bool{}
	var recs []record
	for range 3*pageSize/recordSize + 1 {
		r, err := a.newRecord()
		require.NoError(t, err)
		require.Zero(t, r.mem.iova%recordSize)
		require.False(t, used[r.mem.iova], "a record with two owners")
		used[r.mem.iova] = true
		require.Zero(t, r.load(0)|r.load(1))
		r.store(0, 0x01020304)
		r.store(1, 0xa0b0c0d0)
		require.Equal(t, []byte{1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0}, c.at(r.mem.iova, 8), "records are big endian")
		recs = append(recs, r)
	}
	require.Zero(t, a.used(), "pages of records are not what is handed out")
	require.Len(t, a.pages, 4)
	for _, r := range recs {
		a.freeRecord(r)
	}
	a.freeRecord(record{})
	for range recs {
		r, err := a.newRecord()
		require.NoError(t, err)
		require.True(t, used[r.mem.iova], "a new page although there were free records")
		delete(used, r.mem.iova)
		require.Zero(t, r.load(0)|r.load(1), "the last owner's value")
	}
	require.NoError(t, a.close())
	require.Empty(t, c.maps)
}

// Bus addresses: above 4 GiB first, aligned to huge pages, never 0, never beyond
// the range.
func TestOrderOfBusAddresses(t *testing.T) {
	const top = ^uint64(0)
	for _, c := range []struct{ in, want []iovaRange }{
		{nil, nil},
		{[]iovaRange{{0, top}}, []iovaRange{{firstIOVA, top}, {hugePageSize, firstIOVA - 1}}},
		{[]iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<48 - 1}}, []iovaRange{{firstIOVA, 1<<48 - 1}, {hugePageSize, 0xfedfffff}, {0xff000000, firstIOVA - 1}}},
		{[]iovaRange{{1 << 33, 1 << 34}, {0, 1 << 20}}, []iovaRange{{1 << 33, 1 << 34}, {hugePageSize, 1 << 20}}},
		{[]iovaRange{{1, hugePageSize - 1}}, nil},
		{[]iovaRange{{firstIOVA - 1, firstIOVA + 1}}, []iovaRange{{firstIOVA, firstIOVA + 1}}},
		{[]iovaRange{{top, top}, {top - 1, top}}, nil}, // aligning would wrap
		{[]iovaRange{{5, 4}}, nil},
	} {
		require.Equal(t, c.want, orderRanges(c.in), "%x", c.in)
	}
}

// All of the allowed addresses are handed out before there are no more, each
// once, up to the very last.
func TestBusAddressesRunOut(t *testing.T) {
	const top = ^uint64(0)
	for _, r := range [][]iovaRange{
		{{top - 64<<20 + 1, top}},
		{{0, 16<<20 - 1}, {1 << 40, 1<<40 + 48<<20 + 17}},
	} {
		a := &arena{ranges: orderRanges(r)}
		seen := map[uint64]bool{}
		for {
			at, err := a.takeIOVA(hugePageSize)
			if err != nil {
				require.ErrorContains(t, err, "no room for 2 MiB in the bus addresses that the IOMMU allows")
				break
			}
			require.False(t, seen[at], "%#x twice", at)
			seen[at] = true
			inside := false
			for _, x := range r {
				inside = inside || at >= x.first && at+hugePageSize-1 <= x.last && at != 0
			}
			require.True(t, inside, "%#x is not allowed", at)
			require.LessOrEqual(t, len(seen), 32)
		}
		require.Contains(t, []int{32, 7 + 24}, len(seen))
	}
}

// A chunk is smaller than usual where the addresses are short.
func TestArenaFitsIntoFewAddresses(t *testing.T) {
	c := newFakeCard()
	c.ranges = []iovaRange{{hugePageSize, 3*hugePageSize - 1}}
	a := newArena(c)
	m, err := a.alloc(pageSize)
	require.NoError(t, err)
	other, err := a.alloc(hugePageSize)
	require.NoError(t, err)
	_, err = a.alloc(hugePageSize)
	require.ErrorContains(t, err, "no room for 2 MiB")
	a.free(m)
	a.free(other)
	requireWhole(t, a)
	require.NoError(t, a.close())
}

// Devices that share an arena see the same memory at the same addresses, taken
// from what both allow; one that refuses leaves nothing mapped in the others.
func TestSharedArena(t *testing.T) {
	one, two := newFakeCard(), newFakeCard()
	one.ranges = []iovaRange{{0, 1<<40 - 1}}
	two.ranges = []iovaRange{{1 << 36, 1<<37 - 1}, {1 << 50, 1 << 51}}
	a := newArena(one)
	require.NoError(t, a.share(two))
	m, err := a.alloc(3 * pageSize)
	require.NoError(t, err)
	require.Equal(t, uint64(1<<36), m.iova&^(chunkSize-1))
	m.b[5] = 0x77
	require.Equal(t, byte(0x77), one.at(m.iova, 6)[5])
	require.Equal(t, byte(0x77), two.at(m.iova, 6)[5])
	require.Error(t, a.share(newFakeCard()), "too late")
	a.free(m)
	requireWhole(t, a)

	two.maps[1<<36+chunkSize] = make([]byte, pageSize) // the second chunk is in its way
	_, err = a.alloc(2 * chunkSize)
	require.ErrorContains(t, err, "mapped already")
	require.Len(t, one.maps, 1)
	require.NoError(t, a.close())
	require.Empty(t, one.maps)
	require.Len(t, two.maps, 1)
}

// guestMemory is how much memory of others is mapped, in bytes.
func (a *arena) guestMemory() (sum int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.guests {
		sum += len(m.b)
	}
	return sum
}

// used is what is handed out now, in bytes, apart from doorbell record pages.
func (a *arena) used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse - len(a.pages)*pageSize
}

// load reads word i back.
func (r *record) load(i int) uint32 { return bits.ReverseBytes32(atomic.LoadUint32(&r.w[i])) }
