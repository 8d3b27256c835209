package model

// control_host_test.go is a host for tests of the control side: memory that the
// device may reach, a poster of commands, and the steps of a bring-up. It
// builds entries and mailboxes by byte offset, apart from the device's code.

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharedFile finds a file of the shared material. Where that is missing the
// test is skipped, in CI it fails.
func sharedFile(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("shared material is missing: %v", err)
		}
		t.Skipf("shared material is missing: %v", err)
	}
	return path
}

// ctlWire is a plug that carries nothing.
type ctlWire struct{ up bool }

func (w *ctlWire) Peek(time.Time) []byte { return nil }
func (w *ctlWire) Take()                 {}
func (w *ctlWire) Lossless() bool        { return true }
func (w *ctlWire) Transmit([]byte)       {}
func (w *ctlWire) Done() bool            { return true }
func (w *ctlWire) LinkUp() bool          { return w.up }
func (w *ctlWire) Close() error          { return nil }

const (
	ctlBase  = 0x1_0000_0000
	ctlSlots = 32
)

// ctlHost drives a device as a host does.
type ctlHost struct {
	t       testing.TB
	d       *Device
	mem     []byte
	used    int
	queue   uint64
	boxes   []uint64
	token   uint8
	mapped  bool // ring through BAR memory and Step, not by trapped writes
	uar     uint32
	eqn     uint32
	pd      uint32
	td      uint32
	out     []byte // of the last command
	irqs    int
	freePgs []uint64
}

// newCtlHost makes a device with 64 MiB of host memory behind it.
func newCtlHost(t testing.TB, profile string, wire Wire) *ctlHost {
	t.Helper()
	d, err := New(Config{Profile: profile, Wire: wire})
	require.NoError(t, err)
	h := &ctlHost{t: t, d: d, mem: make([]byte, 96<<20)}
	if c, ok := t.(interface{ Cleanup(func()) }); ok {
		c.Cleanup(func() { _ = d.Close() })
	}
	require.NoError(t, d.MapDMA(ctlBase, h.mem, true))
	d.WriteConfig(4, []byte{6, 0})
	for v := range d.Vectors() {
		d.SetIRQ(v, func() { h.irqs++ })
	}
	h.queue = h.alloc(4096)
	for range 512 {
		h.boxes = append(h.boxes, h.alloc(1024))
	}
	h.setQueue()
	return h
}

// setQueue writes the command queue address.
func (h *ctlHost) setQueue() {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(h.queue>>32))
	h.d.Write(0x10, b[:])
	binary.BigEndian.PutUint32(b[:], uint32(h.queue))
	h.d.Write(0x14, b[:])
}

// alloc hands out zeroed memory, aligned to its size up to a page.
func (h *ctlHost) alloc(n int) uint64 {
	align := min(n, 4096)
	h.used = (h.used + align - 1) / align * align
	at := h.used
	h.used += n
	require.LessOrEqual(h.t, h.used, len(h.mem))
	return ctlBase + uint64(at)
}

// at is host memory at a bus address.
func (h *ctlHost) at(iova uint64, n int) []byte { return h.mem[iova-ctlBase:][:n:n] }

// post writes a command into a slot and rings for it.
func (h *ctlHost) post(slot int, in []byte, outLen int) {
	h.place(slot, in, outLen)
	h.ring(1 << slot)
}

// place writes a command into a slot.
func (h *ctlHost) place(slot int, in []byte, outLen int) {
	h.token++
	e := h.at(h.queue+uint64(slot)*64, 64)
	clear(e)
	e[0] = 7
	be := binary.BigEndian
	be.PutUint32(e[4:], uint32(len(in)))
	copy(e[16:32], in)
	boxes := h.boxes[slot*16:]
	if slot == 0 || slot == 31 {
		boxes = h.boxes
	}
	rest := in[min(16, len(in)):]
	used := 0
	if len(rest) > 0 {
		be.PutUint64(e[8:], boxes[0])
		used = h.chain(boxes, rest, len(rest))
	}
	if outLen > 16 {
		be.PutUint64(e[48:], boxes[used])
		h.chain(boxes[used:], nil, outLen-16)
	}
	be.PutUint32(e[56:], uint32(outLen))
	e[60] = h.token
	e[63] = 1
	e[61] = ^xorOf(e)
}

func xorOf(b []byte) (x byte) {
	for _, v := range b {
		x ^= v
	}
	return x
}

// chain fills mailboxes for n bytes and returns how many it took.
func (h *ctlHost) chain(boxes []uint64, data []byte, n int) int {
	count := (n + 511) / 512
	for i := range count {
		b := h.at(boxes[i], 576)
		clear(b)
		data = data[copy(b[:512], data):]
		if i+1 < count {
			binary.BigEndian.PutUint64(b[560:], boxes[i+1])
		}
		binary.BigEndian.PutUint32(b[568:], uint32(i))
		b[573] = h.token
		b[574] = ^xorOf(b[512:574])
		b[575] = ^xorOf(b[:575])
	}
	return count
}

// ring rings the command doorbell.
func (h *ctlHost) ring(slots uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], slots)
	if h.mapped {
		copy(h.d.BAR()[0x18:], b[:])
		h.d.Step()
		return
	}
	h.d.Write(0x18, b[:])
}

// collect reads the answer of a slot: nil and its delivery status if that is
// not OK, or nil and 0xff if there is none yet.
func (h *ctlHost) collect(slot, outLen int) ([]byte, uint8) {
	e := h.at(h.queue+uint64(slot)*64, 64)
	if e[63]&1 != 0 {
		return nil, 0xff
	}
	if e[63] != 0 {
		return nil, e[63] >> 1
	}
	out := append([]byte{}, e[32:32+min(outLen, 16)]...)
	box := binary.BigEndian.Uint64(e[48:])
	for len(out) < outLen {
		b := h.at(box, 576)
		out = append(out, b[:min(512, outLen-len(out))]...)
		box = binary.BigEndian.Uint64(b[560:])
	}
	return out, 0
}

// exec executes a command in slot 0 and returns status and syndrome.
func (h *ctlHost) exec(in []byte, outLen int) (uint8, uint32) {
	h.t.Helper()
	h.post(0, in, outLen)
	out, delivery := h.collect(0, outLen)
	require.Zero(h.t, delivery, "delivery status of opcode %x: %s", in[:2], h.d.Stats().LastRefusal)
	h.out = out
	return out[0], binary.BigEndian.Uint32(out[4:])
}

// ok executes a command that has to succeed and returns the number in its
// answer.
func (h *ctlHost) ok(in []byte, outLen int) uint32 {
	h.t.Helper()
	status, _ := h.exec(in, outLen)
	require.Zero(h.t, status, h.d.Stats().LastRefusal)
	if len(h.out) < 12 {
		return 0
	}
	return binary.BigEndian.Uint32(h.out[8:]) & 0xffffff
}

// msg builds a command of n bytes; fields come in pairs of place and value.
func msg(op uint16, n int, pairs ...any) []byte {
	b := make([]byte, n)
	binary.BigEndian.PutUint16(b, op)
	for i := 0; i+1 < len(pairs); i += 2 {
		pairs[i].(field).set(b, uint64(pairs[i+1].(int)))
	}
	return b
}

// inside moves fields of a nested structure to where it stands in a message.
func inside(at field, f field) field { return field{f.of, at.bit + f.bit, f.width} }

// mod sets the operation modifier.
func mod(b []byte, m uint16) []byte {
	binary.BigEndian.PutUint16(b[6:], m)
	return b
}

// num sets the 24-bit object number most commands have.
func num(op uint16, n uint32) []byte {
	b := msg(op, 16)
	binary.BigEndian.PutUint32(b[8:], n)
	return b
}

// givePages lends what the function asks for.
func (h *ctlHost) givePages(which uint16) int {
	h.t.Helper()
	h.ok(mod(msg(0x107, 16), which), 16)
	n := int(int32(binary.BigEndian.Uint32(h.out[12:])))
	if n > 0 {
		h.give(n)
	}
	return n
}

// give lends n pages.
func (h *ctlHost) give(n int) {
	h.t.Helper()
	in := mod(msg(0x108, 16+8*n), 1)
	binary.BigEndian.PutUint32(in[12:], uint32(n))
	for i := range n {
		if len(h.freePgs) == 0 {
			h.freePgs = append(h.freePgs, h.alloc(4096))
		}
		last := len(h.freePgs) - 1
		binary.BigEndian.PutUint64(in[16+8*i:], h.freePgs[last])
		h.freePgs = h.freePgs[:last]
	}
	h.ok(in, 16)
}

// take takes up to n pages back and returns how many came.
func (h *ctlHost) take(n int) int {
	h.t.Helper()
	in := mod(msg(0x108, 16), 2)
	binary.BigEndian.PutUint32(in[12:], uint32(n))
	h.ok(in, 16+8*n)
	got := int(binary.BigEndian.Uint32(h.out[8:]))
	for i := range got {
		h.freePgs = append(h.freePgs, binary.BigEndian.Uint64(h.out[16+8*i:]))
	}
	return got
}

// up brings the function to where objects can be made, with a UAR page, a
// completion EQ and both domains.
func (h *ctlHost) up() *ctlHost {
	h.t.Helper()
	h.init()
	h.uar = h.ok(msg(0x802, 16), 16)
	h.eqn = h.ok(h.eqMsg(0, 4), 16)
	h.pd = h.ok(msg(0x800, 16), 16)
	h.td = h.ok(msg(0x816, 16), 16)
	return h
}

// init brings the function up to INIT_HCA.
func (h *ctlHost) init() {
	h.t.Helper()
	h.ok(msg(0x104, 16), 12)
	h.ok(msg(0x10b, 16, issiInCurrentIssi, 1), 16)
	h.givePages(1)
	h.givePages(2)
	h.ok(msg(0x102, 16), 16)
}

// down ends it and takes all pages back.
func (h *ctlHost) down() {
	h.t.Helper()
	h.ok(num(0x817, h.td), 16)
	h.ok(num(0x801, h.pd), 16)
	h.ok(num(0x302, h.eqn), 16)
	h.ok(num(0x803, h.uar), 16)
	h.ok(msg(0x103, 16), 16)
	for h.take(700) > 0 {
	}
	h.ok(msg(0x105, 16), 12)
}

// pages appends the addresses of n fresh pages to a message.
func (h *ctlHost) pages(in []byte, n int) []byte {
	for range n {
		in = binary.BigEndian.AppendUint64(in, h.alloc(4096))
	}
	return in
}

// The messages that make the main objects, right unless a test changes them.

func (h *ctlHost) eqMsg(mask uint64, vector int) []byte {
	in := msg(0x301, 272,
		inside(createEQEqContextEntry, eqcLogEqSize), 6,
		inside(createEQEqContextEntry, eqcUarPage), int(h.uar),
		inside(createEQEqContextEntry, eqcIntr), vector)
	binary.BigEndian.PutUint64(in[88:], mask)
	return h.pages(in, 1)
}

func (h *ctlHost) cqMsg() []byte {
	in := msg(0x400, 272,
		inside(createCQCqContext, cqcLogCqSize), 6,
		inside(createCQCqContext, cqcUarPage), int(h.uar),
		inside(createCQCqContext, cqcCEqn), int(h.eqn),
		inside(createCQCqContext, cqcDbrAddr), int(h.alloc(64)))
	return h.pages(in, 1)
}

func (h *ctlHost) wq(in []byte, ctx field, typ, stride, size int) []byte {
	w := field{"", ctx.bit + 384, 1536}
	for _, p := range []struct {
		f field
		v int
	}{
		{wqType, typ}, {wqPd, int(h.pd)}, {wqUarPage, int(h.uar)}, {wqDbrAddr, int(h.alloc(64))},
		{wqLogWqStride, stride}, {wqLogWqSz, size},
	} {
		inside(w, p.f).set(in, uint64(p.v))
	}
	return h.pages(in, max(1, 1<<(stride+size)/4096))
}

func (h *ctlHost) sqMsg(cqn, tisn uint32) []byte {
	in := msg(0x904, 272, inside(createSQCtx, sqcCqn), int(cqn), inside(createSQCtx, sqcTisLstSz), 1, inside(createSQCtx, sqcTisNum0), int(tisn))
	if h.d.ethVal(ethWqeInlineMode) == inlineFromVport {
		inside(createSQCtx, sqcMinWqeInlineMode).set(in, uint64(h.d.prof.minInline))
	}
	return h.wq(in, createSQCtx, 1, 6, 6)
}

func (h *ctlHost) rqMsg(cqn uint32) []byte {
	return h.wq(msg(0x908, 272, inside(createRQCtx, rqcCqn), int(cqn)), createRQCtx, 1, 6, 6)
}

func (h *ctlHost) rqtMsg(most int, rqns ...uint32) []byte {
	in := msg(0x916, 272, inside(createRQTCtx, rqtcRqtMaxSize), most, inside(createRQTCtx, rqtcRqtActualSize), len(rqns))
	for _, n := range rqns {
		in = binary.BigEndian.AppendUint32(in, n)
	}
	return in
}

func (h *ctlHost) tirMsg(rqtn uint32) []byte {
	return msg(0x900, 272,
		inside(createTIRCtx, tircDispType), 1, inside(createTIRCtx, tircIndirectTable), int(rqtn),
		inside(createTIRCtx, tircRxHashFn), 2, inside(createTIRCtx, tircTransportDomain), int(h.td))
}

func (h *ctlHost) tableMsg(level, logSize int) []byte {
	return msg(0x930, 64, inside(createTableCtx, ftxLevel), level, inside(createTableCtx, ftxLogSize), logSize)
}

func (h *ctlHost) groupMsg(table uint32, from, to, enable int, mask ...any) []byte {
	in := msg(0x933, 1024, tableRefTableId, int(table), createGroupStartFlowIndex, from, createGroupEndFlowIndex, to, createGroupMatchCriteriaEnable, enable)
	for i := 0; i+1 < len(mask); i += 2 {
		inside(createGroupMatchCriteria, mask[i].(field)).set(in, uint64(mask[i+1].(int)))
	}
	return in
}

func (h *ctlHost) fteMsg(table, group uint32, index, action int, dests ...flowDest) []byte {
	in := msg(0x936, 832, tableRefTableId, int(table), setFTEFlowIndex, index,
		inside(setFTECtx, flowGroupId), int(group), inside(setFTECtx, flowAction), action,
		inside(setFTECtx, flowDestinationListSize), len(dests))
	for _, d := range dests {
		in = append(in, d.kind, byte(d.id>>16), byte(d.id>>8), byte(d.id), 0, 0, 0, 0)
	}
	return in
}

func (h *ctlHost) mkeyMsg() []byte {
	return msg(0x200, 272,
		inside(createMkeyMemoryKeyMkeyEntry, mkcLr), 1, inside(createMkeyMemoryKeyMkeyEntry, mkcLw), 1,
		inside(createMkeyMemoryKeyMkeyEntry, mkcQpn), 0xffffff, inside(createMkeyMemoryKeyMkeyEntry, mkcLength64), 1,
		inside(createMkeyMemoryKeyMkeyEntry, mkcPd), int(h.pd))
}

// reg reads (1) or writes (0) a register; data is the register.
func (h *ctlHost) reg(id uint16, op uint16, data []byte) (uint8, uint32) {
	in := mod(msg(0x805, 16, regRegisterId, int(id)), op)
	return h.exec(append(in, data...), 16+len(data))
}
