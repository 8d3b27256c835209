package main

// bpfcode.go owns running packet filters: a checked program becomes closures, one
// for each run of instructions without a jump in or out, which name each other. It
// does not own the language (bpf.go) or what becomes of the verdict (verdicts.go).
//
// A filter keeps a frame by returning anything but 0. A load from outside the
// frame and a division by zero return 0, as in Linux.

import (
	"math/rand/v2"
)

// bpfState is what a program works on.
type bpfState struct {
	a, x  uint32
	data  []byte
	frame *xdpFrame
	mem   [bpfSlots]uint32
}

// bpfStep is one instruction. It returns false to end with 0.
type bpfStep func(s *bpfState) bool

// bpfBlock is a run of instructions. It either names the block that comes next or
// has no run and is the end: with value, or with what A holds.
type bpfBlock struct {
	run     func(s *bpfState) *bpfBlock
	value   uint32
	returnA bool
}

// bpfReject is where a program ends that goes wrong.
var bpfReject = &bpfBlock{}

// bpfFilter is a program ready to run, with a state of its own: one goroutine uses
// it. What the frames come in by gives mac, the own address.
type bpfFilter struct {
	entry *bpfBlock
	reads bool // it reads memory, which must be 0 before
	mac   [6]byte
	state bpfState
}

// newBPFFilter compiles a program that verifyBPF has let through.
func newBPFFilter(prog []bpfInsn, mac [6]byte) *bpfFilter {
	f := &bpfFilter{mac: mac}
	for _, i := range prog {
		class := i.code & bpfClass
		f.reads = f.reads || (class == bpfLD || class == bpfLDX) && i.code&bpfMode == bpfMEM
	}
	leads := bpfLeaders(prog)
	blocks := make([]*bpfBlock, len(prog))
	for pc := len(prog) - 1; pc >= 0; pc-- {
		if leads[pc] { // what it jumps to stands behind and is there already
			blocks[pc] = f.compile(prog, pc, leads, blocks)
		}
	}
	f.entry = blocks[0]
	return f
}

// run is the filter as a program: a batch of verdicts.
func (f *bpfFilter) run(frames []xdpFrame, verdicts []xdpVerdict) {
	s := &f.state
	for i := range frames {
		s.frame, s.data = &frames[i], frames[i].data()
		verdicts[i] = xdpDrop
		if f.value(s) != 0 {
			verdicts[i] = xdpPass
		}
	}
	s.frame, s.data = nil, nil
}

// value is what the program returns for the frame in s.
func (f *bpfFilter) value(s *bpfState) uint32 {
	s.a, s.x = 0, 0
	if f.reads {
		s.mem = [bpfSlots]uint32{}
	}
	b := f.entry
	for b.run != nil {
		b = b.run(s)
	}
	if b.returnA {
		return s.a
	}
	return b.value
}

// bpfLeaders marks the instructions at which a block begins.
func bpfLeaders(prog []bpfInsn) []bool {
	leads := make([]bool, len(prog)+1)
	leads[0] = true
	for pc, i := range prog {
		switch {
		case i.code == bpfJMP|bpfJA:
			leads[pc+1], leads[pc+1+int(i.k)] = true, true
		case i.code&bpfClass == bpfJMP:
			leads[pc+1], leads[pc+1+int(i.jt)], leads[pc+1+int(i.jf)] = true, true, true
		case i.code&bpfClass == bpfRET:
			leads[pc+1] = true
		}
	}
	return leads
}

// compile makes the block that begins at pc.
func (f *bpfFilter) compile(prog []bpfInsn, pc int, leads []bool, blocks []*bpfBlock) *bpfBlock {
	var steps []bpfStep
	first := pc
	for {
		i := prog[pc]
		switch i.code & bpfClass {
		case bpfRET:
			return bpfPrefix(steps, &bpfBlock{value: i.k, returnA: i.code&bpfA != 0})
		case bpfJMP:
			if i.code == bpfJMP|bpfJA {
				return bpfPrefix(steps, blocks[pc+1+int(i.k)])
			}
			yes, no := blocks[pc+1+int(i.jt)], blocks[pc+1+int(i.jf)]
			if pc == first+1 {
				if b := bpfFused(prog[first], i, yes, no); b != nil {
					return b
				}
			}
			return &bpfBlock{run: bpfJump(i, steps, yes, no)}
		}
		steps = append(steps, f.step(i))
		if pc++; leads[pc] {
			return bpfPrefix(steps, blocks[pc])
		}
	}
}

// bpfSteps does steps in order.
func bpfSteps(s *bpfState, steps []bpfStep) bool {
	for _, do := range steps {
		if !do(s) {
			return false
		}
	}
	return true
}

// bpfPrefix is a block of steps that goes on with next, or next itself.
func bpfPrefix(steps []bpfStep, next *bpfBlock) *bpfBlock {
	if len(steps) == 0 {
		return next
	}
	return &bpfBlock{run: func(s *bpfState) *bpfBlock {
		if !bpfSteps(s, steps) {
			return bpfReject
		}
		return next
	}}
}

// bpfJump is a block that does steps and then compares A.
func bpfJump(i bpfInsn, steps []bpfStep, yes, no *bpfBlock) func(*bpfState) *bpfBlock {
	k, x := i.k, i.code&bpfX != 0
	var compare func(a, b uint32) bool
	switch i.code & bpfOp {
	case bpfJEQ:
		compare = func(a, b uint32) bool { return a == b }
	case bpfJGT:
		compare = func(a, b uint32) bool { return a > b }
	case bpfJGE:
		compare = func(a, b uint32) bool { return a >= b }
	case bpfJSET:
		compare = func(a, b uint32) bool { return a&b != 0 }
	}
	return func(s *bpfState) *bpfBlock {
		if !bpfSteps(s, steps) {
			return bpfReject
		}
		b := k
		if x {
			b = s.x
		}
		if compare(s.a, b) {
			return yes
		}
		return no
	}
}

// bpfFused is what filters are mostly made of in one closure: a load from a fixed
// place and a comparison with a constant. Anything else is nil.
func bpfFused(load, jump bpfInsn, yes, no *bpfBlock) *bpfBlock {
	at, ok := bpfPlace(load.k)
	if jump.code != bpfJMP|bpfJEQ || !ok {
		return nil
	}
	k := jump.k
	switch load.code {
	case bpfLD | bpfB | bpfABS:
		return &bpfBlock{run: func(s *bpfState) *bpfBlock {
			if at >= uint64(len(s.data)) {
				return bpfReject
			}
			if s.a = uint32(s.data[at]); s.a == k {
				return yes
			}
			return no
		}}
	case bpfLD | bpfH | bpfABS:
		return &bpfBlock{run: func(s *bpfState) *bpfBlock {
			if at+2 > uint64(len(s.data)) {
				return bpfReject
			}
			if s.a = uint32(be16(s.data, int(at))); s.a == k {
				return yes
			}
			return no
		}}
	case bpfLD | bpfW | bpfABS:
		return &bpfBlock{run: func(s *bpfState) *bpfBlock {
			if at+4 > uint64(len(s.data)) {
				return bpfReject
			}
			if s.a = be32(s.data, int(at)); s.a == k {
				return yes
			}
			return no
		}}
	}
	return nil
}

// bpfPlace is where in a frame an operand points; ok is false where it points at
// something else. What is outside every frame is a place too.
func bpfPlace(k uint32) (at uint64, ok bool) {
	switch {
	case k >= bpfAncillary:
		return 0, false
	case k >= bpfNetLayer:
		return uint64(k-bpfNetLayer) + etherHeader, true
	case k >= bpfLinkLayer:
		return uint64(k - bpfLinkLayer), true
	}
	return uint64(k), true
}

// bpfLoad reads size bytes at offset at, 4, 2 or 1.
func bpfLoad(b []byte, at uint64, size uint16) (v uint32, ok bool) {
	switch {
	case size == bpfW && at+4 <= uint64(len(b)):
		return be32(b, int(at)), true
	case size == bpfH && at+2 <= uint64(len(b)):
		return uint32(be16(b, int(at))), true
	case size == bpfB && at < uint64(len(b)):
		return uint32(b[at]), true
	}
	return 0, false
}

// step compiles an instruction that does not jump.
func (f *bpfFilter) step(i bpfInsn) bpfStep {
	k := i.k
	switch i.code & bpfClass {
	case bpfLD:
		return f.load(i)
	case bpfLDX:
		return bpfLoadX(i)
	case bpfST:
		return func(s *bpfState) bool { s.mem[k%bpfSlots] = s.a; return true }
	case bpfSTX:
		return func(s *bpfState) bool { s.mem[k%bpfSlots] = s.x; return true }
	case bpfALU:
		return bpfArithmetic(i)
	}
	if i.code&bpfTXA != 0 {
		return func(s *bpfState) bool { s.a = s.x; return true }
	}
	return func(s *bpfState) bool { s.x = s.a; return true }
}

// load compiles a load into A.
func (f *bpfFilter) load(i bpfInsn) bpfStep {
	k, size := i.k, i.code&bpfSize
	switch i.code & bpfMode {
	case bpfIMM:
		return func(s *bpfState) bool { s.a = k; return true }
	case bpfMEM:
		return func(s *bpfState) bool { s.a = s.mem[k%bpfSlots]; return true }
	case bpfLEN:
		return func(s *bpfState) bool { s.a = uint32(len(s.data)); return true }
	case bpfIND:
		return func(s *bpfState) (ok bool) {
			s.a, ok = bpfLoad(s.data, uint64(s.x)+uint64(k), size)
			return ok
		}
	}
	at, inFrame := bpfPlace(k)
	if !inFrame {
		return f.ancillary(k - bpfAncillary)
	}
	return func(s *bpfState) (ok bool) {
		s.a, ok = bpfLoad(s.data, at, size)
		return ok
	}
}

// bpfLoadX compiles a load into X.
func bpfLoadX(i bpfInsn) bpfStep {
	k := i.k
	switch i.code & bpfMode {
	case bpfIMM:
		return func(s *bpfState) bool { s.x = k; return true }
	case bpfMEM:
		return func(s *bpfState) bool { s.x = s.mem[k%bpfSlots]; return true }
	case bpfLEN:
		return func(s *bpfState) bool { s.x = uint32(len(s.data)); return true }
	}
	at, inFrame := bpfPlace(k) // the length of an IPv4 header
	return func(s *bpfState) bool {
		if !inFrame || at >= uint64(len(s.data)) {
			return false
		}
		s.x = uint32(s.data[at]&0xf) * 4
		return true
	}
}

// bpfArithmetic compiles an operation on A.
func bpfArithmetic(i bpfInsn) bpfStep {
	k := i.k
	if i.code&bpfX == 0 {
		switch i.code & bpfOp { // what filters are made of
		case bpfADD:
			return func(s *bpfState) bool { s.a += k; return true }
		case bpfAND:
			return func(s *bpfState) bool { s.a &= k; return true }
		case bpfLSH:
			return func(s *bpfState) bool { s.a <<= k & 31; return true }
		case bpfRSH:
			return func(s *bpfState) bool { s.a >>= k & 31; return true }
		}
		compute := bpfCompute(i.code & bpfOp)
		return func(s *bpfState) (ok bool) { s.a, ok = compute(s.a, k); return ok }
	}
	compute := bpfCompute(i.code & bpfOp)
	return func(s *bpfState) (ok bool) { s.a, ok = compute(s.a, s.x); return ok }
}

// bpfCompute is an operation on two words; false ends the program. A shift takes
// the lower five bits of its count, as Linux does.
func bpfCompute(op uint16) func(a, b uint32) (uint32, bool) {
	switch op {
	case bpfADD:
		return func(a, b uint32) (uint32, bool) { return a + b, true }
	case bpfSUB:
		return func(a, b uint32) (uint32, bool) { return a - b, true }
	case bpfMUL:
		return func(a, b uint32) (uint32, bool) { return a * b, true }
	case bpfDIV:
		return func(a, b uint32) (uint32, bool) {
			if b == 0 {
				return 0, false
			}
			return a / b, true
		}
	case bpfMOD:
		return func(a, b uint32) (uint32, bool) {
			if b == 0 {
				return 0, false
			}
			return a % b, true
		}
	case bpfOR:
		return func(a, b uint32) (uint32, bool) { return a | b, true }
	case bpfAND:
		return func(a, b uint32) (uint32, bool) { return a & b, true }
	case bpfXOR:
		return func(a, b uint32) (uint32, bool) { return a ^ b, true }
	case bpfLSH:
		return func(a, b uint32) (uint32, bool) { return a << (b & 31), true }
	case bpfRSH:
		return func(a, b uint32) (uint32, bool) { return a >> (b & 31), true }
	}
	return func(a, _ uint32) (uint32, bool) { return -a, true }
}

const (
	arphrdEther = 1 // type of link
	// Kinds of frame by their destination address.
	packetHost      = 0
	packetBroadcast = 1
	packetMulticast = 2
	packetOther     = 3
)

// ancillary compiles a load of what is known beside the frame's bytes.
func (f *bpfFilter) ancillary(what uint32) bpfStep {
	var get func(s *bpfState) uint32
	switch what {
	case bpfProtocol:
		get = func(s *bpfState) uint32 { return linkProtocol(s.data) }
	case bpfPktType:
		get = func(s *bpfState) uint32 { return packetType(s.data, f.mac) }
	case bpfQueue:
		get = func(s *bpfState) uint32 { return uint32(s.frame.queue) }
	case bpfHaType:
		get = func(*bpfState) uint32 { return arphrdEther }
	case bpfRxHash:
		get = func(s *bpfState) uint32 { v, _ := s.frame.hash(); return v }
	case bpfXorX:
		get = func(s *bpfState) uint32 { return s.a ^ s.x }
	case bpfVLAN:
		get = func(s *bpfState) uint32 { return strippedTag(s.frame, 0) }
	case bpfHasVLAN:
		get = func(s *bpfState) uint32 { return strippedTag(s.frame, 1) }
	case bpfVLANProto:
		get = func(s *bpfState) uint32 { return strippedTag(s.frame, ethVLAN) }
	default: // bpfRandom
		get = func(*bpfState) uint32 { return rand.Uint32() }
	}
	return func(s *bpfState) bool { s.a = get(s); return true }
}

// strippedTag is value, or the tag itself where that is 0, if the device took a
// tag out of the frame; else 0.
func strippedTag(f *xdpFrame, value uint32) uint32 {
	tag, ok := f.vlan()
	switch {
	case !ok:
		return 0
	case value == 0:
		return uint32(tag)
	}
	return value
}

// linkProtocol is a frame's protocol as Linux has it: the EtherType, or a number of
// its own where the field is a length.
func linkProtocol(b []byte) uint32 {
	const raw, llc = 1, 4 // Novell's IPX without LLC; IEEE 802.2
	switch {
	case len(b) < etherHeader:
		return 0
	case be16(b, 12) >= 0x600:
		return uint32(be16(b, 12))
	case len(b) >= etherHeader+2 && be16(b, etherHeader) == 0xffff:
		return raw
	}
	return llc
}

// packetType tells frames to mac from those to others and to groups.
func packetType(b []byte, mac [6]byte) uint32 {
	switch {
	case len(b) < 6:
		return packetOther
	case [6]byte(b[:6]) == mac:
		return packetHost
	case [6]byte(b[:6]) == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}:
		return packetBroadcast
	case b[0]&1 != 0:
		return packetMulticast
	}
	return packetOther
}
