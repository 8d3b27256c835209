package main

// xskwide_test.go owns the tests that hold the loops over a socket's rings in wide
// registers equal to those in Go, whatever a client or the device writes.

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	wideFrames = 32
	wideTail   = 5 // entries behind those that a loop may write
)

// oddDesc is a TX entry that is mostly good, else at or beyond one of the limits.
func oddDesc(r *rand.Rand, c descRules) xdpDesc {
	at := uint64(r.IntN(wideFrames)) * uint64(c.frame)
	d := xdpDesc{addr: at + uint64(r.IntN(int(c.frame)-60)), len: 60}
	if r.IntN(24) != 0 {
		return d
	}
	frame := c.frame
	odd := []xdpDesc{
		{at, etherHeader, 0}, {at, etherHeader - 1, 0}, {at, 0, 0}, {at, 1514, 0}, {at, 1515, 0}, {at, ^uint32(0), 0}, {at, 1 << 31, 0},
		{at + uint64(frame) - 60, 60, 0}, {at + uint64(frame) - 60, 61, 0}, {at + uint64(frame) - 1, 60, 0},
		{c.size - 60, 60, 0}, {c.size - 16, 14, 0}, {c.size - 17, 14, 0}, {c.size - 1, 60, 0}, {c.size, 60, 0}, {c.size + 5000, 60, 0}, {at | 1<<32, 60, 0}, {at | 1<<63, 60, 0}, {^uint64(0), 60, 0},
		{at, 60, xdpContinue}, {at, 60, 2}, {at, 60, 1 << 31}, {at, frame + 1, 0}, {at + 8, ^uint32(7), 0},
	}
	return odd[r.IntN(len(odd))]
}

// both runs f with the loops in wide registers and without and wants the same.
func both(t *testing.T, round uint64, f func() []any) {
	t.Helper()
	was := wideLoops
	defer func() { wideLoops = was }()
	wide := f()
	wideLoops = false
	require.Equal(t, f(), wide, "round %d", round)
}

func TestWideXSKLoopsDoTheSame(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	sent, taken, posted := 0, 0, 0
	for round := range uint64(6000) {
		r := rand.New(rand.NewPCG(round, 11))
		n, frame := r.IntN(67), uint32(minUMEMFrame)<<r.IntN(2)
		c := descRules{key: dataSeg(0, 0xa1b2c3, 0).a, base: 1<<33 + 1<<21, size: uint64(frame) * wideFrames, frame: frame, fit: upTo(1514)}
		if r.IntN(8) == 0 {
			c.size = maxUMEM
		}
		descs := make([]xdpDesc, n)
		for i := range descs {
			descs[i] = oddDesc(r, c)
		}
		both(t, round, func() []any {
			out, comp := make([]seg, n+wideTail), make([]uint64, n+wideTail)
			k, bytes := fillFromDescs(out[:n], comp[:n], descs, &c)
			for i := range descs[:k] {
				require.True(t, c.good(descs[i]), "entry %d of round %d", i, round)
			}
			sent += int(k)
			return []any{k, bytes, out[:k], comp[:k], out[n:], comp[n:]}
		})
		run, take := oddCompletions(r, n)
		numbers := make([]uint32, n)
		for i := range numbers {
			numbers[i] = uint32(r.IntN(wideFrames))
		}
		both(t, round, func() []any {
			out := make([]xdpDesc, n+wideTail)
			k, bytes := takeRun(out[:n], numbers, run, &take)
			taken += int(k)
			return []any{k, bytes, out[:k], out[n:]}
		})
		addrs := make([]uint64, n)
		for i := range addrs {
			addrs[i] = descs[i].addr
		}
		post := postRules{word: r.Uint64(), base: 1<<40 | 1<<12, logStep: uint8(r.IntN(4)), log: logCeil(int(frame)), frames: wideFrames}
		both(t, round, func() []any {
			out, frames := make([]seg, (n+wideTail)<<post.logStep), make([]uint32, n+wideTail)
			k := postRun(out[:n<<post.logStep], frames[:n], addrs, &post)
			posted += int(k)
			return []any{k, out, frames}
		})
	}
	require.Greater(t, min(sent, taken, posted), 100000, "most entries are good")
}

// oddCompletions is n completions as expected, now and then one that is not.
func oddCompletions(r *rand.Rand, n int) ([]cqe, takeRules) {
	owner, head := uint32(r.IntN(2)), r.Uint32()
	if r.IntN(2) == 0 {
		head |= 0xffd0 // the counter wraps
	}
	c := takeRules{want: tailWant(owner), mask: tailMask(1<<(8+r.IntN(8)) - 1), head: head, limit: 1518, log: 11 + uint8(r.IntN(2)), start: 256 + r.Uint32N(500)}
	run := make([]cqe, n)
	for i := range run {
		run[i] = cqe{byteCount: be32word(r.Uint32N(1519)), tail: tailWant(owner) | tailCount(head+uint32(i)) | r.Uint64()&^c.mask}
		if r.IntN(30) == 0 {
			run[i].tail ^= 1 << r.IntN(64)
		}
		if r.IntN(80) == 0 {
			run[i].byteCount = be32word([]uint32{1519, 1518, 1 << 31, ^uint32(0)}[r.IntN(4)])
		}
	}
	return run, c
}

func TestWideXSKAppLoopsDoTheSame(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	for round := range uint64(6000) {
		r := rand.New(rand.NewPCG(round, 12))
		n, frame := r.IntN(67), uint32(minUMEMFrame)
		c := descRules{size: 8 * uint64(frame), frame: frame}
		descs, addrs := make([]xdpDesc, n), make([]uint64, n)
		for i := range descs {
			descs[i], addrs[i] = oddDesc(r, c), r.Uint64()
		}
		size, whole := r.Uint32(), ^(uint64(frame) - 1)
		both(t, round, func() []any {
			out, entries := make([]uint64, n+wideTail), make([]xdpDesc, n+wideTail)
			wholeFrames(out[:n], addrs, whole)
			describeFrames(entries[:n], addrs, size)
			dropped := make([]uint64, n+wideTail)
			more, bytes := dropRun(descs, dropped[:n], whole)
			return []any{out, entries, dropped, more, bytes}
		})
		inside := r.Uint32N(8) / 7
		both(t, round, func() []any {
			mem, out := make([]byte, 8*frame), make([]xdpDesc, n+wideTail)
			for i := range mem {
				mem[i] = byte(i * 7)
			}
			a := &xskApp{inside: inside}
			swapped := mem
			if round%5 == 0 {
				swapped = nil
			}
			more, bytes := a.forwardRun(descs, out[:n], swapped)
			return []any{more, bytes, a.inside, out, mem}
		})
	}
}

// The wide loops are in use: they take whole fours up to the entry that is odd.
func TestWideXSKLoopsTakeWhatIsGood(t *testing.T) {
	if !wideLoops {
		t.Skip("this processor has no AVX2")
	}
	const n = 16
	c := descRules{size: n << 11, frame: 1 << 11, fit: upTo(1514)}
	for at := range n + 1 {
		var descs [n]xdpDesc
		var addrs [n]uint64
		var run [n]cqe
		for i := range descs {
			addrs[i] = uint64(i) << 11
			descs[i] = xdpDesc{addr: addrs[i], len: 60}
			run[i] = cqe{byteCount: be32word(60), tail: tailWant(1) | tailCount(uint32(i)) | 0x00a5ffff_ffffffff&^tailMask(n-1)} // what is not looked at is odd
		}
		if at < n {
			descs[at].options, run[at].byteCount, addrs[at] = xdpContinue, be32word(61), n<<11
		}
		fours := at / 4 * 4
		var out [n]seg
		var comp [n]uint64
		var frames [n]uint32
		var entries [n]xdpDesc
		k, bytes := descsWide(&out[0], &comp[0], &descs[0], n/4, &c)
		require.Equal(t, []int{fours, fours * 60}, []int{k, int(bytes)}, "TX, odd at %d", at)
		k, bytes = takeWide(&entries[0], &frames[0], &run[0], n/4, &takeRules{want: tailWant(1), mask: tailMask(n - 1), limit: 60, log: 11})
		require.Equal(t, []int{fours, fours * 60}, []int{k, int(bytes)}, "RX, odd at %d", at)
		if at < n {
			run[at].byteCount, run[at].tail = be32word(60), run[at].tail^1<<56 // of the last lap
			k, bytes = takeWide(&entries[0], &frames[0], &run[0], n/4, &takeRules{want: tailWant(1), mask: tailMask(n - 1), limit: 60, log: 11})
			require.Equal(t, []int{fours, fours * 60}, []int{k, int(bytes)}, "RX, not the device's at %d", at)
		}
		k = postWide(&out[0], &frames[0], &addrs[0], n/4, &postRules{log: 11, frames: n})
		require.Equal(t, fours, k, "fill, odd at %d", at)
		done, sum := forwardWide(&entries[0], &descs[0], n, &make([]byte, n<<11)[0], n<<11-16)
		require.Equal(t, []int{at, at * 60}, []int{done, int(sum)}, "forward, odd at %d", at)
	}
}
