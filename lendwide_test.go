package main

// lendwide_test.go owns the tests that hold the loops over received frames in wide
// registers equal to those in Go, whatever the device writes.

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWideLendLoopsDoTheSame(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	const pages = 24
	lent := 0
	for round := range uint64(6000) {
		r := rand.New(rand.NewPCG(round, 13))
		n := r.IntN(67)
		run, take := oddCompletions(r, n)
		c := lendRules{want: take.want, mask: take.mask, head: take.head, limit: take.limit, iova: 1<<33 | uint64(r.Uint32())<<12,
			last: pages*pageSize - cacheLine, id: pageRef(r.Uint32N(255) << 24)}
		starts := make([]uint32, n)
		for i := range starts {
			starts[i] = r.Uint32N(pages*pageSize/cacheLine) * cacheLine
			if r.IntN(200) == 0 {
				starts[i] = []uint32{pages * pageSize, pages*pageSize - cacheLine, 1 << 31, ^uint32(0)}[r.IntN(4)]
			}
		}
		both(t, round, func() []any {
			out, own := make([]txFrame, n+wideTail), make([]uint32, pages)
			for i := range out {
				out[i].eseg = seg{uint64(i), 7} // which stays
			}
			k, bytes := lendRun(out[:n], starts, run, own, &c)
			mem := make([]byte, pages*pageSize)
			for i := range mem {
				mem[i] = byte(i * 7)
			}
			swapRun(starts[:k], &pagePool{mem: dmaMem{b: mem}, lines: memoryLines(dmaMem{b: mem})})
			lent += k
			return []any{k, bytes, out[:k], out[n:], own, mem}
		})
	}
	require.Greater(t, lent, 100000, "most frames are good")
}

// The wide loop is in use: it takes whole fours up to the completion that is odd.
func TestWideLendTakesWhatIsGood(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	const n = 16
	for at := range n + 1 {
		var run [n]cqe
		var starts [n]uint32
		for i := range run {
			run[i] = cqe{byteCount: be32word(60), tail: tailWant(1) | tailCount(uint32(i)) | 0x00a5ffff_ffffffff&^tailMask(n-1)} // what is not looked at is odd
			starts[i] = uint32(i) << 11
		}
		c := lendRules{want: tailWant(1), mask: tailMask(n - 1), limit: 60, last: n<<11 - cacheLine}
		odd := []func(){
			func() { run[at].byteCount = be32word(61) },
			func() { run[at].tail ^= 1 << 56 }, // of the last lap
			func() { run[at].tail ^= tailCount(1) },
			func() { starts[at] = n << 11 },
		}
		for i, spoil := range odd {
			keep, from := run, starts
			if at < n {
				spoil()
			}
			var out [n]txFrame
			var own [n]uint32
			fours := at / 4 * 4
			k, bytes := lendWide(&out[0], &starts[0], &run[0], n/4, &own[0], &c)
			require.Equal(t, []int{fours, fours * 60}, []int{k, int(bytes)}, "kind %d, odd at %d", i, at)
			for page := range own {
				want := uint32(0)
				if page < fours/2 {
					want = 2
				}
				require.Equal(t, want, own[page], "kind %d, odd at %d, page %d", i, at, page)
			}
			run, starts = keep, from
		}
	}
}
