package main

// bpf.go owns packet filters in classic BPF as data: reading what tcpdump -ddd and
// -dd print, and checking a program before it is used. It does not own how one
// runs (bpfcode.go).
// (S. McCanne, V. Jacobson: The BSD Packet Filter; Linux: Documentation/networking/filter.)

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// bpfInsn is one instruction: opcode, how far to jump when true and when false,
// operand.
type bpfInsn struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// Parts of an opcode. The class decides what the rest means.
const (
	bpfClass = 0x07
	bpfLD    = 0x00
	bpfLDX   = 0x01
	bpfST    = 0x02
	bpfSTX   = 0x03
	bpfALU   = 0x04
	bpfJMP   = 0x05
	bpfRET   = 0x06
	bpfMISC  = 0x07

	bpfSize = 0x18 // of a load
	bpfW    = 0x00
	bpfH    = 0x08
	bpfB    = 0x10

	bpfMode = 0xe0 // of a load
	bpfIMM  = 0x00
	bpfABS  = 0x20
	bpfIND  = 0x40
	bpfMEM  = 0x60
	bpfLEN  = 0x80
	bpfMSH  = 0xa0

	bpfOp  = 0xf0 // of arithmetic
	bpfADD = 0x00
	bpfSUB = 0x10
	bpfMUL = 0x20
	bpfDIV = 0x30
	bpfOR  = 0x40
	bpfAND = 0x50
	bpfLSH = 0x60
	bpfRSH = 0x70
	bpfNEG = 0x80
	bpfMOD = 0x90
	bpfXOR = 0xa0

	bpfJA   = 0x00 // of a jump
	bpfJEQ  = 0x10
	bpfJGT  = 0x20
	bpfJGE  = 0x30
	bpfJSET = 0x40

	bpfX = 0x08 // the operand is X, not k
	bpfA = 0x10 // return A, not k

	bpfTAX = 0x00
	bpfTXA = 0x80
)

const (
	bpfSlots = 16   // words of memory
	bpfMost  = 4096 // instructions, as in Linux
	bpfFile  = 1 << 20
)

// Offsets from here on are no place in the frame. What stands from bpfAncillary on
// says something about it.
const (
	bpfLinkLayer = 0xffe00000 // a place in the frame, from its start
	bpfNetLayer  = 0xfff00000 // a place behind the Ethernet header
	bpfAncillary = 0xfffff000
)

// Ancillary values, by their offset.
const (
	bpfProtocol  = 0
	bpfPktType   = 4
	bpfIfIndex   = 8
	bpfNLAttr    = 12
	bpfNLNest    = 16
	bpfMark      = 20
	bpfQueue     = 24
	bpfHaType    = 28
	bpfRxHash    = 32
	bpfCPU       = 36
	bpfXorX      = 40
	bpfVLAN      = 44
	bpfHasVLAN   = 48
	bpfPayOffset = 52
	bpfRandom    = 56
	bpfVLANProto = 60
)

// bpfUnknown says why an ancillary value cannot be had here.
var bpfUnknown = map[uint32]string{
	bpfIfIndex:   "the interface index: a port here is no kernel interface",
	bpfNLAttr:    "netlink attributes: a received frame has none",
	bpfNLNest:    "netlink attributes: a received frame has none",
	bpfMark:      "the mark: nothing has marked the frame yet",
	bpfCPU:       "the CPU: use the queue number",
	bpfPayOffset: "the payload offset: the frame has not been dissected yet",
}

// bpfKnown are the ancillary values that a program may load.
var bpfKnown = map[uint32]bool{bpfProtocol: true, bpfPktType: true, bpfQueue: true, bpfHaType: true, bpfRxHash: true,
	bpfXorX: true, bpfVLAN: true, bpfHasVLAN: true, bpfRandom: true, bpfVLANProto: true}

// bpfOpcodes are the opcodes that there are.
var bpfOpcodes = makeBPFOpcodes()

func makeBPFOpcodes() (known [256]bool) {
	for _, code := range []int{
		bpfLD | bpfIMM, bpfLD | bpfMEM, bpfLD | bpfLEN,
		bpfLD | bpfW | bpfABS, bpfLD | bpfH | bpfABS, bpfLD | bpfB | bpfABS,
		bpfLD | bpfW | bpfIND, bpfLD | bpfH | bpfIND, bpfLD | bpfB | bpfIND,
		bpfLDX | bpfIMM, bpfLDX | bpfMEM, bpfLDX | bpfLEN, bpfLDX | bpfB | bpfMSH,
		bpfST, bpfSTX, bpfALU | bpfNEG, bpfJMP | bpfJA, bpfRET, bpfRET | bpfA, bpfMISC | bpfTAX, bpfMISC | bpfTXA,
	} {
		known[code] = true
	}
	for _, op := range []int{bpfADD, bpfSUB, bpfMUL, bpfDIV, bpfOR, bpfAND, bpfLSH, bpfRSH, bpfMOD, bpfXOR} {
		known[bpfALU|op], known[bpfALU|op|bpfX] = true, true
	}
	for _, op := range []int{bpfJEQ, bpfJGT, bpfJGE, bpfJSET} {
		known[bpfJMP|op], known[bpfJMP|op|bpfX] = true, true
	}
	return known
}

// loadBPF reads a filter from a file and checks it.
func loadBPF(path string) ([]bpfInsn, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, wishf("-bpf: %v", err)
	}
	defer f.Close()
	prog, err := parseBPF(f)
	if err == nil {
		err = verifyBPF(prog)
	}
	if err != nil {
		return nil, wishf("-bpf %s: %v", path, err)
	}
	return prog, nil
}

// parseBPF reads what tcpdump -ddd prints, a line with the number of instructions
// and then one a line, or what -dd prints, instructions in C's form. Empty lines
// and what stands behind a # count for nothing.
func parseBPF(r io.Reader) (prog []bpfInsn, err error) {
	limited := &io.LimitedReader{R: r, N: bpfFile + 1}
	in, line, want := bufio.NewScanner(limited), 0, -1
	for in.Scan() {
		line++
		text, _, _ := strings.Cut(in.Text(), "#")
		inC := strings.Contains(text, "{")
		words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("{}, \t\r", r) })
		switch {
		case len(words) == 0:
			continue
		case len(words) == 1 && !inC && want < 0 && len(prog) == 0:
			n, err := strconv.ParseUint(words[0], 10, 32)
			if err != nil || n < 1 || n > bpfMost {
				return nil, fmt.Errorf("line %d: %q is not a number of instructions from 1 to %d", line, words[0], bpfMost)
			}
			want = int(n)
			continue
		case want < 0 && !inC:
			return nil, fmt.Errorf("line %d: a filter begins with the number of its instructions (make one with tcpdump -ddd EXPRESSION)", line)
		case len(prog) == want:
			return nil, fmt.Errorf("line %d: the first line says %d instructions, here is one more", line, want)
		case len(prog) == bpfMost:
			return nil, fmt.Errorf("line %d: more than %d instructions", line, bpfMost)
		}
		i, err := parseInsn(words)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		prog = append(prog, i)
	}
	switch err := in.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	case limited.N == 0:
		return nil, fmt.Errorf("line %d: longer than %d bytes", line, bpfFile)
	case len(prog) == 0:
		return nil, fmt.Errorf("line %d: the file ends before the first instruction", line+1)
	case want >= 0 && len(prog) < want:
		return nil, fmt.Errorf("line %d: the first line says %d instructions, the file ends after %d", line+1, want, len(prog))
	}
	return prog, nil
}

// parseInsn reads the four numbers of an instruction.
func parseInsn(words []string) (i bpfInsn, err error) {
	names, bits := [...]string{"opcode", "jt", "jf", "k"}, [...]int{16, 8, 8, 32}
	if len(words) != len(names) {
		return i, fmt.Errorf("%d numbers, an instruction has four: code jt jf k", len(words))
	}
	var v [len(names)]uint64
	for n, w := range words {
		if v[n], err = strconv.ParseUint(w, 0, bits[n]); err != nil {
			return i, fmt.Errorf("%s %q is not a number of %d bits", names[n], w, bits[n])
		}
	}
	return bpfInsn{uint16(v[0]), uint8(v[1]), uint8(v[2]), uint32(v[3])}, nil
}

// verifyBPF refuses a program that could do anything but end with a verdict. Jumps
// lead forward only and stay inside, so that a program whose last instruction
// returns ends on every path.
func verifyBPF(prog []bpfInsn) error {
	if len(prog) == 0 || len(prog) > bpfMost {
		return fmt.Errorf("%d instructions: 1 to %d can be", len(prog), bpfMost)
	}
	for pc, i := range prog {
		if err := verifyInsn(i, len(prog)-pc-1); err != nil {
			return fmt.Errorf("instruction %d: %w", pc, err)
		}
	}
	if last := prog[len(prog)-1]; last.code&bpfClass != bpfRET {
		return fmt.Errorf("instruction %d: the last one must return", len(prog)-1)
	}
	return nil
}

// verifyInsn checks one instruction that has so many behind it.
func verifyInsn(i bpfInsn, behind int) error {
	if int(i.code) >= len(bpfOpcodes) || !bpfOpcodes[i.code] {
		return fmt.Errorf("there is no opcode %#x", i.code)
	}
	op, x := i.code&bpfOp, i.code&bpfX != 0
	switch class := i.code & bpfClass; {
	case class == bpfST || class == bpfSTX || (class == bpfLD || class == bpfLDX) && i.code&bpfMode == bpfMEM:
		if i.k >= bpfSlots {
			return fmt.Errorf("memory slot %d: there are %d", i.k, bpfSlots)
		}
	case class == bpfALU && !x && i.k == 0 && (op == bpfDIV || op == bpfMOD):
		return fmt.Errorf("division by zero")
	case class == bpfALU && !x && i.k >= 32 && (op == bpfLSH || op == bpfRSH):
		return fmt.Errorf("a shift by %d of 32 bits", i.k)
	case class == bpfJMP && op == bpfJA:
		if uint64(i.k) >= uint64(behind) {
			return fmt.Errorf("a jump over %d of the %d instructions behind it", i.k, behind)
		}
	case class == bpfJMP:
		if far := max(i.jt, i.jf); int(far) >= behind {
			return fmt.Errorf("a jump over %d of the %d instructions behind it", far, behind)
		}
	case class == bpfLD && i.code&bpfMode == bpfABS && i.k >= bpfAncillary:
		what := i.k - bpfAncillary
		if why := bpfUnknown[what]; why != "" {
			return fmt.Errorf("it loads %s", why)
		}
		if !bpfKnown[what] {
			return fmt.Errorf("it loads ancillary value %d, which does not exist", what)
		}
	}
	return nil
}
