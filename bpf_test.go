package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// interpret runs a program one instruction after another, straight from the
// language's description. It is what the compiled form is held against.
func interpret(prog []bpfInsn, f *xdpFrame, mac [6]byte) uint32 {
	var a, x uint32
	var mem [16]uint32
	b := f.data()
	fetch := func(at uint64, n int) (v uint32, ok bool) {
		if at+uint64(n) > uint64(len(b)) {
			return 0, false
		}
		for _, c := range b[at:][:n] {
			v = v<<8 | uint32(c)
		}
		return v, true
	}
	width := map[uint16]int{0x00: 4, 0x08: 2, 0x10: 1}
	for pc := 0; ; pc++ {
		i := prog[pc]
		k, ok := i.k, true
		operand := k
		if i.code&0x08 != 0 {
			operand = x
		}
		switch i.code {
		case 0x00:
			a = k
		case 0x20, 0x28, 0x30:
			switch {
			case k >= 0xfffff000:
				a = interpretAncillary(k-0xfffff000, a, x, f, mac)
			case k >= 0xfff00000:
				a, ok = fetch(uint64(k-0xfff00000)+14, width[i.code&0x18])
			case k >= 0xffe00000:
				a, ok = fetch(uint64(k-0xffe00000), width[i.code&0x18])
			default:
				a, ok = fetch(uint64(k), width[i.code&0x18])
			}
		case 0x40, 0x48, 0x50:
			a, ok = fetch(uint64(x)+uint64(k), width[i.code&0x18])
		case 0x60:
			a = mem[k]
		case 0x80:
			a = uint32(len(b))
		case 0x01:
			x = k
		case 0x61:
			x = mem[k]
		case 0x81:
			x = uint32(len(b))
		case 0xb1:
			var v uint32
			switch {
			case k >= 0xfffff000:
				ok = false
			case k >= 0xfff00000:
				v, ok = fetch(uint64(k-0xfff00000)+14, 1)
			case k >= 0xffe00000:
				v, ok = fetch(uint64(k-0xffe00000), 1)
			default:
				v, ok = fetch(uint64(k), 1)
			}
			x = v & 15 << 2
		case 0x02:
			mem[k] = a
		case 0x03:
			mem[k] = x
		case 0x04, 0x0c:
			a += operand
		case 0x14, 0x1c:
			a -= operand
		case 0x24, 0x2c:
			a *= operand
		case 0x34, 0x3c:
			if ok = operand != 0; ok {
				a /= operand
			}
		case 0x94, 0x9c:
			if ok = operand != 0; ok {
				a %= operand
			}
		case 0x44, 0x4c:
			a |= operand
		case 0x54, 0x5c:
			a &= operand
		case 0x64, 0x6c:
			a <<= operand % 32
		case 0x74, 0x7c:
			a >>= operand % 32
		case 0x84:
			a = -a
		case 0xa4, 0xac:
			a ^= operand
		case 0x05:
			pc += int(k)
		case 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d:
			hit := map[uint16]bool{0x10: a == operand, 0x20: a > operand, 0x30: a >= operand, 0x40: a&operand != 0}[i.code&0xf0]
			if hit {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		case 0x06:
			return k
		case 0x16:
			return a
		case 0x07:
			x = a
		case 0x87:
			a = x
		default:
			panic(fmt.Sprintf("opcode %#x", i.code))
		}
		if !ok {
			return 0
		}
	}
}

func interpretAncillary(what, a, x uint32, f *xdpFrame, mac [6]byte) uint32 {
	b := f.data()
	tag, stripped := f.vlan()
	switch {
	case what == 0 && len(b) >= 14 && (b[12] >= 6):
		return uint32(b[12])<<8 | uint32(b[13])
	case what == 0 && len(b) >= 16 && b[14] == 0xff && b[15] == 0xff:
		return 1
	case what == 0 && len(b) >= 14:
		return 4
	case what == 4 && len(b) >= 6 && bytes.Equal(b[:6], mac[:]):
		return 0
	case what == 4 && len(b) >= 6 && bytes.Equal(b[:6], bytes.Repeat([]byte{255}, 6)):
		return 1
	case what == 4 && len(b) >= 6 && b[0]%2 == 1:
		return 2
	case what == 4:
		return 3
	case what == 24:
		return uint32(f.queue)
	case what == 28:
		return 1
	case what == 32 && f.meta.hashType != 0:
		return f.meta.hash
	case what == 40:
		return a ^ x
	case what == 44 && stripped:
		return uint32(tag)
	case what == 48 && stripped:
		return 1
	case what == 60 && stripped:
		return 0x8100
	}
	return 0
}

var testMAC = [6]byte{2, 0, 0, 0, 0, 1}

// randomInsn is an instruction that verifies where so many stand behind it. It has
// no random number in it, which would have no right answer.
func randomInsn(r *rand.Rand, behind int) bpfInsn {
	for {
		code := uint16(r.IntN(256))
		if !bpfOpcodes[code] || code&bpfClass == bpfRET && r.IntN(8) != 0 {
			continue
		}
		i := bpfInsn{code, uint8(r.IntN(min(behind, 40) + 1)), uint8(r.IntN(min(behind, 40) + 1)), uint32(r.IntN(64))}
		switch r.IntN(8) {
		case 0:
			i.k = r.Uint32()
		case 1:
			i.k = bpfAncillary + uint32(r.IntN(17))*4
		case 2:
			i.k = []uint32{bpfLinkLayer, bpfNetLayer}[r.IntN(2)] + uint32(r.IntN(40))
		}
		if i.code == bpfJMP|bpfJA {
			i.k = uint32(r.IntN(behind + 1))
		}
		if i.k == bpfAncillary+bpfRandom || verifyInsn(i, behind) != nil {
			continue
		}
		return i
	}
}

func randomProgram(r *rand.Rand) []bpfInsn {
	n := 2 + r.IntN(60)
	prog := make([]bpfInsn, n)
	for pc := range n - 1 {
		prog[pc] = randomInsn(r, n-1-pc)
	}
	prog[n-1] = bpfInsn{code: bpfRET | uint16(r.IntN(2))<<4, k: r.Uint32()}
	return prog
}

// testFrameOf wraps bytes and metadata as a program sees them.
func testFrameOf(b []byte, p *packet, queue uint16) *xdpFrame {
	mem := make([]byte, rxHeadroom+len(b)+64)
	copy(mem[rxHeadroom:], b)
	p.b, p.size = mem[rxHeadroom:][:len(b)], uint32(len(b))
	return &xdpFrame{mem: mem, start: rxHeadroom, end: uint32(rxHeadroom + len(b)), meta: p, queue: queue}
}

func randomBPFFrame(r *rand.Rand) *xdpFrame {
	b := make([]byte, r.IntN(120))
	for i := range b {
		b[i] = byte(r.IntN(256)) >> (r.IntN(3) * 3)
	}
	switch r.IntN(4) {
	case 0:
		copy(b, testMAC[:])
	case 1:
		copy(b, bytes.Repeat([]byte{255}, 6))
	case 2:
		if len(b) > 16 {
			copy(b[12:], []byte{byte(r.IntN(9)), byte(r.IntN(256)), 0xff, 0xff})
		}
	}
	p := &packet{hash: r.Uint32(), hashType: uint8(r.IntN(2)), info: r.Uint32()}
	return testFrameOf(b, p, uint16(r.IntN(8)))
}

// requireSameValue holds the compiled program against the interpreted one.
func requireSameValue(t *testing.T, prog []bpfInsn, f *bpfFilter, frame *xdpFrame) {
	f.state.frame, f.state.data = frame, frame.data()
	got, want := f.value(&f.state), interpret(prog, frame, testMAC)
	if got != want {
		t.Fatalf("%v\nof %x: %d, the interpreter says %d", prog, frame.data(), got, want)
	}
}

func TestBPFRandomProgramsAgreeWithTheInterpreter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kept, mutants := 0, 0
	for range 20_000 {
		prog := randomProgram(r)
		require.NoError(t, verifyBPF(prog))
		f := newBPFFilter(prog, testMAC)
		for range 8 {
			frame := randomBPFFrame(r)
			requireSameValue(t, prog, f, frame)
			if f.value(&f.state) != 0 {
				kept++
			}
		}
		bad := slices.Clone(prog)
		switch i := &bad[r.IntN(len(bad))]; r.IntN(4) {
		case 0:
			i.code = uint16(r.Uint32())
		case 1:
			i.k = r.Uint32()
		case 2:
			i.jt, i.jf = uint8(r.Uint32()), uint8(r.Uint32())
		case 3:
			bad = bad[:1+r.IntN(len(bad))]
		}
		if verifyBPF(bad) != nil || slices.ContainsFunc(bad, func(i bpfInsn) bool { return i.k == bpfAncillary+bpfRandom }) {
			continue
		}
		mutants++
		f = newBPFFilter(bad, testMAC)
		for range 4 {
			requireSameValue(t, bad, f, randomBPFFrame(r))
		}
	}
	require.Greater(t, kept, 10_000, "most programs reject everything: they test little")
	require.Greater(t, mutants, 1000)
}

// TestBPFFiltersMatchTcpdump runs filters that tcpdump made over captures and
// expects the number of frames that tcpdump itself picked out of them.
func TestBPFFiltersMatchTcpdump(t *testing.T) {
	matched := 0
	for _, row := range readTSV(t, filepath.Join("testdata", "bpf", "counts.tsv")) {
		name, expr, file := row[0], row[1], row[2]
		prog, err := loadBPF(filepath.Join("testdata", "bpf", name+".ddd"))
		require.NoError(t, err)
		f, n := newBPFFilter(prog, testMAC), 0
		c := readCapture(t, sharedFile(t, "pcaps", file))
		for _, frame := range c.frames {
			x := []xdpFrame{*testFrameOf(frame.data, &packet{}, 0)}
			var verdicts [1]xdpVerdict
			f.run(x, verdicts[:])
			if verdicts[0] == xdpPass {
				n++
			}
			requireSameValue(t, prog, f, &x[0])
		}
		require.Equal(t, row[3], fmt.Sprint(len(c.frames)), file)
		require.Equal(t, row[4], fmt.Sprint(n), "%s of %s", expr, file)
		matched += n
	}
	require.Greater(t, matched, 10_000)
}

// TestBPFSeesStrippedTags runs what tcpdump prints for a Linux interface, which
// asks for the tag beside the frame.
func TestBPFSeesStrippedTags(t *testing.T) {
	frame := make([]byte, 60)
	copy(frame, testMAC[:])
	copy(frame[12:], []byte{8, 0, 0x45})
	value := func(name string, info uint32) bool {
		prog, err := loadBPF(filepath.Join("testdata", "bpf", name+".ddd"))
		require.NoError(t, err)
		f := newBPFFilter(prog, testMAC)
		requireSameValue(t, prog, f, testFrameOf(frame, &packet{info: info}, 0))
		return f.value(&f.state) != 0
	}
	tagged := func(tag uint16) uint32 { return 1<<8 | uint32(be16word(tag))<<16 }
	require.False(t, value("linux-vlan", 0))
	require.True(t, value("linux-vlan", tagged(7)))
	require.True(t, value("linux-vlan-5-ip", tagged(0x6005)))
	require.False(t, value("linux-vlan-5-ip", tagged(6)))
	require.True(t, value("linux-inbound", 0))
}

// TestBPFTwoFormsOfOneFilter reads what -ddd and -dd print.
func TestBPFTwoFormsOfOneFilter(t *testing.T) {
	a, err := loadBPF(filepath.Join("testdata", "bpf", "tcp-port-80.ddd"))
	require.NoError(t, err)
	b, err := loadBPF(filepath.Join("testdata", "bpf", "tcp-port-80.dd"))
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestBPFParseErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "line 1: the file ends before",
		"tcp port 80":                     "line 1: a filter begins with the number",
		"x":                               "line 1: \"x\" is not a number of instructions",
		"0":                               "line 1: \"0\" is not",
		"4097":                            "line 1: \"4097\" is not",
		"2\n6 0 0 1":                      "line 3: the first line says 2 instructions, the file ends after 1",
		"1\n6 0 0 1\n6 0 0 1":             "line 3: the first line says 1",
		"1\n6 0 0":                        "line 2: 3 numbers",
		"1\n6 0 0 1 2":                    "line 2: 5 numbers",
		"1\n\n# why\n6 0 300 1":           "line 4: jf \"300\"",
		"1\n6 0 0 99999999999":            "line 2: k \"99999999999\"",
		"1\n70000 0 0 1":                  "line 2: opcode \"70000\"",
		"{ 0x28, 0, 0, 0x0c },\n{ 6, 0 }": "line 2: 2 numbers",
		strings.Repeat("\n", 2<<20):       "longer than",
		strings.Repeat("{ 6, 0, 0, 1 },\n", 4097): "line 4097: more than 4096",
	} {
		_, err := parseBPF(strings.NewReader(text))
		require.ErrorContains(t, err, want, "%.40q", text)
	}
	_, err := loadBPF(filepath.Join(t.TempDir(), "none"))
	require.ErrorAs(t, err, new(wishError))
}

func TestBPFVerifierSaysWhy(t *testing.T) {
	ret := bpfInsn{code: bpfRET, k: 1}
	for _, c := range []struct {
		prog []bpfInsn
		want string
	}{
		{nil, "0 instructions"},
		{slices.Repeat([]bpfInsn{ret}, 4097), "4097 instructions"},
		{[]bpfInsn{{code: bpfLD | bpfIMM}}, "instruction 0: the last one must return"},
		{[]bpfInsn{{code: 0x26}, ret}, "instruction 0: there is no opcode 0x26"},
		{[]bpfInsn{{code: 0x106}, ret}, "there is no opcode 0x106"},
		{[]bpfInsn{{code: bpfST, k: 16}, ret}, "memory slot 16"},
		{[]bpfInsn{{code: bpfLDX | bpfMEM, k: 99}, ret}, "memory slot 99"},
		{[]bpfInsn{{code: bpfALU | bpfDIV}, ret}, "division by zero"},
		{[]bpfInsn{{code: bpfALU | bpfMOD}, ret}, "division by zero"},
		{[]bpfInsn{{code: bpfALU | bpfLSH, k: 32}, ret}, "a shift by 32"},
		{[]bpfInsn{{code: bpfJMP | bpfJA, k: 1}, ret}, "a jump over 1 of the 1"},
		{[]bpfInsn{{code: bpfJMP | bpfJA, k: ^uint32(0)}, ret}, "a jump over 4294967295"},
		{[]bpfInsn{{code: bpfJMP | bpfJEQ, jf: 1}, ret}, "a jump over 1 of the 1"},
		{[]bpfInsn{{code: bpfLD | bpfABS, k: bpfAncillary + bpfIfIndex}, ret}, "the interface index"},
		{[]bpfInsn{{code: bpfLD | bpfABS, k: bpfAncillary + 13}, ret}, "ancillary value 13"},
	} {
		require.ErrorContains(t, verifyBPF(c.prog), c.want)
	}
}

// TestBPFAllocatesNothing runs every filter over a batch.
func TestBPFAllocatesNothing(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "bpf", "*.ddd"))
	require.NoError(t, err)
	require.Greater(t, len(files), 12)
	frames, verdicts := make([]xdpFrame, napiBudget), make([]xdpVerdict, napiBudget)
	for i := range frames {
		b := make([]byte, 200)
		fillNumbered(b, uint64(i), uint16(i))
		frames[i] = *testFrameOf(b, &packet{}, 0)
	}
	for _, file := range files {
		prog, err := loadBPF(file)
		require.NoError(t, err)
		f := newBPFFilter(prog, testMAC)
		require.Zero(t, testing.AllocsPerRun(20, func() { f.run(frames, verdicts) }), file)
	}
}

// FuzzBPF takes anything for a filter file and, where it is one, runs it.
func FuzzBPF(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "bpf", "*.dd*"))
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b, make([]byte, 60))
	}
	f.Fuzz(func(t *testing.T, text, frame []byte) {
		prog, err := parseBPF(bytes.NewReader(text))
		if err != nil || verifyBPF(prog) != nil {
			return
		}
		filter := newBPFFilter(prog, testMAC)
		x := testFrameOf(frame[:min(len(frame), 2048)], &packet{}, 0)
		if slices.ContainsFunc(prog, func(i bpfInsn) bool { return i.k == bpfAncillary+bpfRandom }) {
			filter.run([]xdpFrame{*x}, make([]xdpVerdict, 1))
			return
		}
		requireSameValue(t, prog, filter, x)
	})
}
