package model

// data_rig_test.go builds a device by hand, without firmware commands: host
// memory, queues and tables as they stand after a driver's work. It also plays
// the driver's part at the rings: posting, polling, owner bits.

import (
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// dataFrame decodes hex with blanks.
func dataFrame(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// rigWire keeps what was sent and gives what is queued.
type rigWire struct {
	in       [][]byte
	out      [][]byte
	keep     bool
	sent     int
	lossless bool
}

func (w *rigWire) Peek(time.Time) []byte {
	if len(w.in) == 0 {
		return nil
	}
	return w.in[0]
}
func (w *rigWire) Take()          { w.in = w.in[1:] }
func (w *rigWire) Lossless() bool { return w.lossless }
func (w *rigWire) Transmit(f []byte) {
	w.sent++
	if w.keep {
		w.out = append(w.out, append([]byte(nil), f...))
	}
}
func (w *rigWire) Done() bool   { return len(w.in) == 0 }
func (w *rigWire) LinkUp() bool { return true }
func (w *rigWire) Close() error { return nil }

const (
	rigBase = 0x100000000 // bus address of the rig's memory
	rigSize = 4 << 20
	rigPD   = 7
)

// rig is a device and the host's side of it.
type rig struct {
	t    testing.TB
	d    *Device
	wire *rigWire
	mem  []byte
	next int // first free byte of mem
	irqs int
}

func newRig(t testing.TB) *rig {
	t.Helper()
	w := &rigWire{keep: true}
	d, err := New(Config{Profile: "cx5", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Wire: w})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	r := &rig{t: t, d: d, wire: w}
	r.mem, err = unix.Mmap(-1, 0, rigSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(r.mem) })
	require.NoError(t, d.mem.add(rigBase, r.mem, true))
	d.config[4] |= 0x04 // bus master
	d.irq[0] = func() { r.irqs++ }
	d.port.adminUp, d.port.operUp, d.port.mtu = true, true, 10240
	d.vport.promiscAll = true
	d.vport.minInline = 0
	ftpModifyRoot.set(d.tableCap(tableNICRX), 0) // the root is the lowest level
	return r
}

// alloc takes n bytes, page-aligned, and gives their offset.
func (r *rig) alloc(n int) int {
	at := r.next
	r.next += (n + 4095) &^ 4095
	require.LessOrEqual(r.t, r.next, rigSize)
	return at
}

func (r *rig) bus(off int) uint64 { return rigBase + uint64(off) }

// ring allocates a ring of 1<<logSize entries of 1<<stride bytes.
func (r *rig) ring(logSize, stride uint8) (ring, int) {
	n := 1 << (logSize + stride)
	at := r.alloc(n)
	g := ring{logPage: 12, logSize: logSize, stride: stride}
	for off := 0; off < max(n, 4096); off += 4096 {
		g.pas = append(g.pas, r.bus(at+off))
	}
	return g, at
}

func (r *rig) record() (off int) { return r.alloc(64) }

// eq makes an event queue on vector 0 that also takes asynchronous events.
func (r *rig) eq(logSize uint8) (*eq, int) {
	g, at := r.ring(logSize, 6)
	for i := range 1 << logSize {
		r.mem[at+i*64+63] = 1
	}
	e := r.d.eqs.add(func(n uint32) *eq { return &eq{n: n, ring: g, mask: 0x1f02be} })
	require.NotNil(r.t, e)
	return e, at
}

// rigCQ is a CQ and the host's view of it.
type rigCQ struct {
	*cq
	r   *rig
	at  int // ring
	rec int
	cc  uint32
}

func (r *rig) cq(logSize uint8, e *eq) *rigCQ {
	g, at := r.ring(logSize, 6)
	for i := range 1 << logSize {
		r.mem[at+i*64+63] = 0xf1
	}
	rec := r.record()
	putBE32(r.mem, rec+4, 2<<28)
	c := r.d.cqs.add(func(n uint32) *cq {
		return &cq{n: n, ring: g, eqn: e.n, dbr: r.bus(rec), cqeSize: 64}
	})
	require.NotNil(r.t, c)
	return &rigCQ{cq: c, r: r, at: at, rec: rec}
}

// poll returns the next completion, nil if there is none, and consumes it.
func (c *rigCQ) poll() []byte {
	size := uint32(1) << c.ring.logSize
	b := c.r.mem[c.at+int(c.cc&(size-1))*64:][:64]
	if b[63]&1 != byte(c.cc>>c.ring.logSize)&1 || b[63]>>4 == 0xf {
		return nil
	}
	c.cc++
	putBE32(c.r.mem, c.rec, c.cc&0xffffff)
	return b
}

// rigSQ is an SQ and the host's view of it.
type rigSQ struct {
	*sq
	r   *rig
	at  int
	rec int
	pc  uint32
}

func (r *rig) sq(logSize uint8, c *rigCQ) *rigSQ {
	g, at := r.ring(logSize, 6)
	rec := r.record()
	q := r.d.sqs.add(func(n uint32) *sq {
		return &sq{n: n, ring: g, cqn: c.n, pd: rigPD, dbr: r.bus(rec), state: sqRDY, mpw: true, flushErr: true, reg: true}
	})
	require.NotNil(r.t, q)
	return &rigSQ{sq: q, r: r, at: at, rec: rec}
}

// post writes one WQE: control segment, then body, and advances the producer.
func (q *rigSQ) post(opcode, flags uint8, imm uint32, body []byte) {
	ds := 1 + (len(body)+15)/16
	b := make([]byte, (ds+3)/4*64)
	putBE32(b, 0, uint32(uint16(q.pc))<<8|uint32(opcode))
	putBE32(b, 4, q.n<<8|uint32(ds))
	b[11] = flags
	putBE32(b, 12, imm)
	copy(b[16:], body)
	q.raw(b)
}

// raw writes whole WQEBBs.
func (q *rigSQ) raw(b []byte) {
	mask := uint32(1)<<q.ring.logSize - 1
	for i := 0; i < len(b); i += 64 {
		copy(q.r.mem[q.at+int(q.pc&mask)*64:], b[i:i+64])
		q.pc++
	}
}

// ring publishes the producer and rings the doorbell.
func (q *rigSQ) kick() {
	putBE32(q.r.mem, q.rec+4, uint32(uint16(q.pc)))
	q.r.d.doorbellSQ(uint64(q.n) << 8)
}

// rigSeg is a data segment.
func rigSeg(n int, key uint32, addr uint64) []byte {
	b := make([]byte, 16)
	putBE32(b, 0, uint32(n))
	putBE32(b, 4, key)
	putBE64(b, 8, addr)
	return b
}

// rigEseg is an Ethernet segment with inlined headers.
func rigEseg(csum uint8, mss int, inline []byte) []byte {
	b := make([]byte, 16)
	b[4] = csum
	putBE16(b, 6, uint16(mss))
	putBE16(b, 12, uint16(len(inline)))
	if len(inline) == 0 {
		return b
	}
	b = append(b[:14], inline...)
	for len(b) < 16 || len(b)%16 != 0 {
		b = append(b, 0)
	}
	return b
}

// pa makes a physical-address key.
func (r *rig) pa() uint32 {
	return r.key(mkey{pd: rigPD, mode: accessPA, lr: true, lw: true, length64: true})
}

func (r *rig) key(m mkey) uint32 {
	k := r.d.mkeys.add(func(n uint32) *mkey {
		m.n = n<<8 | 0x5a
		return &m
	})
	require.NotNil(r.t, k)
	return k.n
}

// put places bytes in a page of host memory and gives their bus address.
func (r *rig) put(b []byte) uint64 {
	at := r.alloc(len(b))
	copy(r.mem[at:], b)
	return r.bus(at)
}

// rigRQ is a receive queue with one buffer a WQE.
type rigRQ struct {
	*rq
	r       *rig
	at, rec int
	pc      uint32
	bufs    map[uint32]int
	bufSize int
}

func (r *rig) rq(logSize, stride uint8, c *rigCQ, bufSize int) *rigRQ {
	g, at := r.ring(logSize, stride)
	rec := r.record()
	q := r.d.rqs.add(func(n uint32) *rq {
		return &rq{n: n, ring: g, cyclic: true, wqType: 1, cqn: c.n, pd: rigPD, dbr: r.bus(rec), state: rqRDY, vsd: true, flushErr: true, hold: newHold()}
	})
	require.NotNil(r.t, q)
	return &rigRQ{rq: q, r: r, at: at, rec: rec, bufs: map[uint32]int{}, bufSize: bufSize}
}

// post gives the queue one WQE of count equal buffers.
func (q *rigRQ) post(key uint32, count int) {
	size := q.bufSize / count
	slot := q.pc & (1<<q.ring.logSize - 1)
	at := q.at + int(slot)<<q.ring.stride
	buf, ok := q.bufs[slot]
	if !ok {
		buf = q.r.alloc(q.bufSize + 64)
		q.bufs[slot] = buf
	}
	for i := range q.bufSize + 64 {
		q.r.mem[buf+i] = 0xee // canary
	}
	for i := range count {
		copy(q.r.mem[at+i*16:], rigSeg(size, key, q.r.bus(buf+i*size)))
	}
	if count<<4 < 1<<q.ring.stride {
		copy(q.r.mem[at+count*16:], rigSeg(0, endOfList, 0))
	}
	q.pc++
	putBE32(q.r.mem, q.rec, uint32(uint16(q.pc)))
}

// buf is the buffer of the WQE with this counter.
func (q *rigRQ) buf(counter uint16) []byte {
	return q.r.mem[q.bufs[uint32(counter)&(1<<q.ring.logSize-1)]:][:q.bufSize+64]
}

// direct sends every frame to q: one table, one group without a mask.
func (r *rig) direct(q *rq) *tir {
	x := r.d.tirs.add(func(n uint32) *tir { return &tir{n: n, direct: true, rqn: q.n} })
	r.catchAll(flowDest{destTIR, x.n})
	return x
}

// table adds a NIC receive table.
func (r *rig) table(level uint8) *flowTable {
	t := r.d.tables.add(func(n uint32) *flowTable { return &flowTable{n: n, kind: tableNICRX, level: level} })
	r.d.steerRev++
	return t
}

// group adds a group with this mask and entries.
func (r *rig) group(t *flowTable, enable uint8, mask []byte, entries ...*flowEntry) *flowGroup {
	g := r.d.groups.add(func(n uint32) *flowGroup {
		return &flowGroup{n: n, table: t, enable: enable, mask: mask, entries: map[uint32]*flowEntry{}}
	})
	for i, e := range entries {
		e.index = uint32(i)
		if e.value == nil {
			e.value = make([]byte, 512)
		}
		g.entries[e.index] = e
	}
	t.groups = append(t.groups, g)
	r.d.steerRev++
	return g
}

func (r *rig) catchAll(dests ...flowDest) (*flowTable, *flowEntry) {
	t := r.table(0)
	e := &flowEntry{action: actionForward, dests: dests}
	r.group(t, 0, make([]byte, 512), e)
	return t, e
}

// receive lets the device take what the wire has.
func (r *rig) receive(frames ...[]byte) {
	r.wire.in = append(r.wire.in, frames...)
	r.d.pollReceive(time.Now(), 1<<20)
}

// rigUDP is a UDP frame with right checksums and n bytes of payload.
func rigUDP(n int, sport uint16) []byte {
	f := make([]byte, 42+n)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	f[14], f[22], f[23] = 0x45, 64, 17
	putBE16(f, 16, uint16(28+n))
	copy(f[26:], []byte{192, 168, 1, 1, 192, 168, 1, 2})
	putBE16(f, 34, sport)
	putBE16(f, 36, 53)
	putBE16(f, 38, uint16(8+n))
	for i := range n {
		f[42+i] = byte(i*7 + 1)
	}
	return offload(f, &eseg{csum: csumL3 | csumL4})
}

// rigTCP is a TCP frame over IPv4 or IPv6.
func rigTCP(n int, v6 bool, flags uint8) []byte {
	eth := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	putBE16(ip, 2, uint16(40+n))
	putBE16(ip, 4, 0x1234)
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	if v6 {
		eth[12], eth[13] = 0x86, 0xdd
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, 6, 64
		putBE16(ip, 4, uint16(20+n))
		ip[8], ip[23], ip[24], ip[39] = 0xfd, 1, 0xfd, 2
	}
	tcp := make([]byte, 20+n)
	putBE16(tcp, 0, 40000)
	putBE16(tcp, 2, 80)
	putBE32(tcp, 4, 0xfffffff0) // wraps soon
	tcp[12], tcp[13] = 0x50, flags
	for i := range n {
		tcp[20+i] = byte(i)
	}
	return offload(append(append(eth, ip...), tcp...), &eseg{csum: csumL3 | csumL4})
}
