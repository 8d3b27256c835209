package main

// txmodel_test.go owns the reference that the send path is held against: a plain
// software NIC, which does in bytes what a frame's offloads ask for, a wire that
// remembers what a device sent, memory for frames, and random frames. The
// reference knows nothing of WQEs and shares no code with the driver or the
// emulated device; only what is asked of a frame is in the driver's terms.
// Sources: RFC 1071 (sums), 768, 791, 8200, 9293, 3168 (CWR), 7348, 8926; IEEE
// 802.1Q; the order is inner sums, outer sums, tag, padding.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"
)

// recordWire remembers all that is sent on it. It counts only while quiet.
type recordWire struct {
	b     []byte
	ends  []int
	count uint64
	quiet bool
}

func (w *recordWire) Peek(time.Time) []byte { return nil }
func (w *recordWire) Take()                 {}
func (w *recordWire) Lossless() bool        { return true }
func (w *recordWire) Done() bool            { return false }
func (w *recordWire) LinkUp() bool          { return true }
func (w *recordWire) Close() error          { return nil }

func (w *recordWire) Transmit(frame []byte) {
	w.count++
	if !w.quiet {
		w.b = append(w.b, frame...)
		w.ends = append(w.ends, len(w.b))
	}
}

// forget empties the record.
func (w *recordWire) forget() { w.b, w.ends = w.b[:0], w.ends[:0] }

// frame is the i-th one remembered.
func (w *recordWire) frame(i int) []byte {
	from := 0
	if i > 0 {
		from = w.ends[i-1]
	}
	return w.b[from:w.ends[i]]
}

// frames are all of them, as copies.
func (w *recordWire) frames() (out [][]byte) {
	for i := range w.ends {
		out = append(out, bytes.Clone(w.frame(i)))
	}
	return out
}

// firstDifference says where what was sent differs from what should have been,
// or is empty. It returns the number of the frame.
func (w *recordWire) firstDifference(want *recordWire) (at int, what string) {
	for i := range min(len(w.ends), len(want.ends)) {
		got, exp := w.frame(i), want.frame(i)
		if bytes.Equal(got, exp) {
			continue
		}
		off := 0
		for off < min(len(got), len(exp)) && got[off] == exp[off] {
			off++
		}
		return i, fmt.Sprintf("frame %d: %d bytes, want %d; first difference at byte %d\n got %x\nwant %x",
			i, len(got), len(exp), off, got[:min(len(got), off+16, 256)], exp[:min(len(exp), off+16, 256)])
	}
	if len(w.ends) != len(want.ends) {
		return min(len(w.ends), len(want.ends)), fmt.Sprintf("%d frames were sent, want %d", len(w.ends), len(want.ends))
	}
	return 0, ""
}

// headers is where one pair of IP and TCP or UDP headers stands; 0 is none.
type headers struct {
	l3, l4  int
	v6, udp bool
}

// softFrame is a frame and what a NIC shall do to it, in a software NIC's terms.
type softFrame struct {
	b            []byte // as the host gives it
	outer, inner headers
	csum         uint8 // by the names of prm.go, as they are what is asked for
	tag          bool
	tci          uint16
	header, mss  int // LSO, when header is not 0
}

// softNIC sends frames as a plain software NIC does. mtu is the longest frame
// that leaves; padding goes up to 60 bytes.
type softNIC struct {
	wire    *recordWire
	longest int    // frame
	lost    uint64 // longer than that
	scratch []byte
}

const softPadded = 60

// send puts what f becomes on the wire.
func (n *softNIC) send(f *softFrame) {
	if f.header == 0 {
		n.finish(f, append(n.scratch[:0], f.b...))
		return
	}
	payload := f.b[f.header:]
	for i, off := 0, 0; off < len(payload); i, off = i+1, off+f.mss {
		end := min(off+f.mss, len(payload))
		s := append(append(n.scratch[:0], f.b[:f.header]...), payload[off:end]...)
		f.outer.cut(s, i)
		last := f.outer
		if f.inner.l3 != 0 {
			f.inner.cut(s, i)
			last = f.inner
		}
		last.cutTCP(s, off, i == 0, end == len(payload))
		n.finish(f, s)
	}
}

// cut sets lengths and identification for segment i.
func (h headers) cut(s []byte, i int) {
	be := binary.BigEndian
	if h.v6 {
		be.PutUint16(s[h.l3+4:], uint16(len(s)-h.l3-40))
	} else {
		be.PutUint16(s[h.l3+2:], uint16(len(s)-h.l3))
		be.PutUint16(s[h.l3+4:], be.Uint16(s[h.l3+4:])+uint16(i))
	}
	if h.udp {
		be.PutUint16(s[h.l4+4:], uint16(len(s)-h.l4))
	}
}

// cutTCP sets sequence number and flags of a segment that starts off bytes into
// the payload: FIN and PSH belong to the last, CWR to the first.
func (h headers) cutTCP(s []byte, off int, first, last bool) {
	const fin, psh, cwr = 0x01, 0x08, 0x80
	t := s[h.l4:]
	binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(off))
	if !last {
		t[13] &^= fin | psh
	}
	if !first {
		t[13] &^= cwr
	}
}

// finish fills in checksums and tag, pads, and sends.
func (n *softNIC) finish(f *softFrame, s []byte) {
	for _, c := range []struct {
		bit uint8
		do  func([]byte)
	}{
		{csumL4Inner, f.inner.fillL4}, {csumL3Inner, f.inner.fillL3}, {csumL4, f.outer.fillL4}, {csumL3, f.outer.fillL3},
	} {
		if f.csum&c.bit != 0 {
			c.do(s)
		}
	}
	if f.tag {
		s = append(s, 0, 0, 0, 0)
		copy(s[16:], s[12:len(s)-4])
		binary.BigEndian.PutUint16(s[12:], 0x8100)
		binary.BigEndian.PutUint16(s[14:], f.tci)
	}
	for len(s) < softPadded {
		s = append(s, 0)
	}
	n.scratch = s[:0]
	if len(s) > n.longest {
		n.lost++
		return
	}
	n.wire.Transmit(s)
}

// onesSum adds b to v as 16-bit big-endian words, an odd byte being a high half.
// Words of 32 bits serve as well: 2^16 is 1 in this arithmetic.
func onesSum(v uint64, b []byte) uint64 {
	for ; len(b) >= 4; b = b[4:] {
		v += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		v += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		v += uint64(b[0]) << 8
	}
	return v
}

// onesEnd folds a sum and takes its complement.
func onesEnd(v uint64) uint16 {
	for v>>16 != 0 {
		v = v>>16 + v&0xffff
	}
	return ^uint16(v)
}

func (h headers) fillL3(s []byte) {
	if h.l3 == 0 || h.v6 {
		return
	}
	ip := s[h.l3 : h.l3+int(s[h.l3]&0xf)*4]
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], onesEnd(onesSum(0, ip)))
}

func (h headers) fillL4(s []byte) {
	if h.l4 == 0 {
		return
	}
	addresses, end, proto, at := s[h.l3+12:h.l3+20], h.l3+int(binary.BigEndian.Uint16(s[h.l3+2:])), 6, h.l4+16
	if h.v6 {
		addresses, end = s[h.l3+8:h.l3+40], h.l3+40+int(binary.BigEndian.Uint16(s[h.l3+4:]))
	}
	if h.udp {
		proto, at = 17, h.l4+6
	}
	s[at], s[at+1] = 0, 0
	v := onesEnd(onesSum(onesSum(uint64(proto+end-h.l4), addresses), s[h.l4:end]))
	if v == 0 && h.udp {
		v = 0xffff
	}
	binary.BigEndian.PutUint16(s[at:], v)
}

// frameMemory is where frames to send lie: a pool's loose pages, shared by
// pieces, and runs of pages for what is longer than a page.
type frameMemory struct {
	pool  *pagePool
	loose int // pages
	page  uint32
	at    uint32 // in page
	held  bool   // there is a page
	run   int    // next run to try
	runs  int
}

// runPages is the length of a run: one piece may have so many pages.
const runPages = 5

// newFrameMemory makes a pool of loose pages and runs behind them.
func newFrameMemory(mem *arena, id, loose, runs int) (*frameMemory, error) {
	p, err := newPagePool(mem, id, loose+runs*runPages)
	if err != nil {
		return nil, err
	}
	m := &frameMemory{pool: p, loose: loose, runs: runs}
	for range loose + runs*runPages {
		p.take()
	}
	for n := range uint32(loose) {
		p.giveBack(n)
	}
	return m, nil
}

// place copies one piece into memory and lends it. It reports false when there
// is no memory now.
func (m *frameMemory) place(b []byte) (txFrame, bool) {
	n := uint32(len(b))
	if n > pageSize {
		return m.placeLong(b)
	}
	if !m.held || pageSize-m.at < n {
		m.rest()
		page, ok := m.pool.take()
		if !ok {
			return txFrame{}, false
		}
		m.page, m.at, m.held = page, 0, true
	}
	copy(m.pool.bytes(m.page, m.at, m.at+n), b)
	f := txFrame{addr: m.pool.addr(m.page, m.at), form: txSize(n), page: m.pool.lendOwn(m.page)}
	m.at += n
	return f, true
}

// rest lets go of the page that pieces are being put into.
func (m *frameMemory) rest() {
	if m.held {
		m.pool.giveBack(m.page)
	}
	m.held = false
}

// placeLong puts a piece into a run that is not in use.
func (m *frameMemory) placeLong(b []byte) (txFrame, bool) {
	page := uint32(m.loose + m.run*runPages)
	if m.pool.busy(page) || len(b) > runPages*pageSize {
		return txFrame{}, false
	}
	m.run = (m.run + 1) % m.runs
	copy(m.pool.mem.b[int(page)*pageSize:], b)
	return txFrame{addr: m.pool.addr(page, 0), form: txSize(uint32(len(b))), page: m.pool.lendOwn(page)}, true
}

// away says which pages are not home, or is empty.
func (m *frameMemory) away() string {
	m.rest()
	if n := m.pool.home(); n != m.loose {
		return fmt.Sprintf("%d of %d loose pages are home", n, m.loose)
	}
	seen := make([]bool, m.loose)
	for _, n := range m.pool.cache[:m.pool.free] {
		if int(n) >= m.loose || seen[n] {
			return fmt.Sprintf("page %d is free twice or was never to be", n)
		}
		seen[n] = true
	}
	for i := range m.runs {
		if page := uint32(m.loose + i*runPages); m.pool.busy(page) {
			return fmt.Sprintf("the long frame in page %d was not given back", page)
		}
	}
	return ""
}

// Bits of txOffload.swpFlags (PRM: wqe_eth_swp_flag).
const (
	swpInnerIsV6, swpInnerIsUDP = 0x01, 0x02
	swpOuterIsV6, swpOuterIsUDP = 0x10, 0x20
)

// mixer makes random frames.
type mixer struct {
	*rand.Rand
	swp bool // the device takes offsets from software
	buf []byte
}

func (m *mixer) chance(of int) bool { return m.IntN(of) == 0 }

// size draws a frame's length: mostly short, now and then up to the MTU and a
// little beyond it.
func (m *mixer) size() int {
	switch m.IntN(16) {
	case 0:
		return 1 + m.IntN(60)
	case 1, 2:
		return 14 + m.IntN(9100)
	case 3:
		return 8990 + m.IntN(60)
	case 4, 5, 6, 7:
		return 54 + m.IntN(1500)
	default:
		return 14 + m.IntN(240)
	}
}

// random appends n random bytes.
func (m *mixer) random(b []byte, n int) []byte {
	for ; n >= 8; n -= 8 {
		b = binary.LittleEndian.AppendUint64(b, m.Uint64())
	}
	for range n {
		b = append(b, byte(m.Uint32()))
	}
	return b
}

// ether appends an Ethernet header.
func (m *mixer) ether(b []byte, kind uint16, tags int) []byte {
	b = m.random(b, 12)
	b[len(b)-12] &^= 1
	for range tags {
		b = append(b, 0x81, 0x00, byte(m.Uint32()), byte(m.Uint32()))
	}
	return append(b, byte(kind>>8), byte(kind))
}

// ip appends an IP header that is followed by proto; its length is set by close.
func (m *mixer) ip(b []byte, v6 bool, proto byte) []byte {
	at := len(b)
	if v6 {
		b = m.random(b, 40)
		b[at], b[at+6] = 0x60|b[at]&0xf, proto
		return b
	}
	options := 4 * m.IntN(3) * m.IntN(2)
	b = m.random(b, 20)
	b[at], b[at+6], b[at+7], b[at+9] = 0x45+byte(options/4), 0x40, 0, proto
	for range options {
		b = append(b, 1) // no operation
	}
	return b
}

// l4 appends a TCP or UDP header.
func (m *mixer) l4(b []byte, udp bool, port uint16) []byte {
	at := len(b)
	if udp {
		b = m.random(b, 8)
		binary.BigEndian.PutUint16(b[at+2:], port)
		return b
	}
	options := 4 * m.IntN(11) * m.IntN(2)
	b = m.random(b, 20)
	binary.BigEndian.PutUint16(b[at+2:], port)
	b[at+12] = byte(5+options/4) << 4
	for range options {
		b = append(b, 1)
	}
	return b
}

// close sets the lengths of the headers at h for a packet that ends at end.
func (h headers) close(b []byte, end int) {
	if h.v6 {
		binary.BigEndian.PutUint16(b[h.l3+4:], uint16(end-h.l3-40))
	} else {
		binary.BigEndian.PutUint16(b[h.l3+2:], uint16(end-h.l3))
	}
	if h.udp {
		binary.BigEndian.PutUint16(b[h.l4+4:], uint16(end-h.l4))
	}
}

// pair appends an IP and an L4 header.
func (m *mixer) pair(b []byte, h *headers, port uint16) []byte {
	proto := byte(6)
	if h.udp {
		proto = 17
	}
	h.l3 = len(b)
	b = m.ip(b, h.v6, proto)
	h.l4 = len(b)
	return m.l4(b, h.udp, port)
}

func etherTypeOf(v6 bool) uint16 {
	if v6 {
		return 0x86dd
	}
	return 0x0800
}

// ipHeaders fills f with headers: Ethernet, IP, L4 and perhaps a tunnel.
func (m *mixer) ipHeaders(f *softFrame, tunnel, tcp bool) {
	b := m.buf[:0]
	f.outer.v6 = m.chance(2)
	b = m.ether(b, etherTypeOf(f.outer.v6), m.IntN(2)*m.IntN(2))
	if !tunnel {
		f.outer.udp = !tcp && m.chance(2)
		f.b = m.pair(b, &f.outer, 80)
		return
	}
	f.outer.udp = true
	if m.chance(2) {
		b = m.pair(b, &f.outer, 4789)
		b = append(b, 8, 0, 0, 0, 1, 2, 3, 0)
	} else {
		b = m.pair(b, &f.outer, 6081)
		options := m.IntN(4)
		b = append(b, byte(options), 0, 0x65, 0x58, 1, 2, 3, 0)
		b = m.random(b, options*4)
	}
	f.inner.v6, f.inner.udp = m.chance(2), !tcp && m.chance(2)
	b = m.ether(b, etherTypeOf(f.inner.v6), 0)
	f.b = m.pair(b, &f.inner, 80)
}

// next makes one frame and its offloads.
func (m *mixer) next() (f softFrame, o txOffload) {
	size := m.size()
	tunnel := m.chance(3)
	switch {
	case m.chance(3) || size < 54:
		f.b = m.ether(m.buf[:0], 0x88b5, 0)
		f.b = m.random(f.b, max(0, size-14))[:size]
		return m.asked(f)
	case m.chance(6):
		m.ipHeaders(&f, tunnel, true)
		m.large(&f)
		return m.asked(f)
	}
	m.ipHeaders(&f, tunnel, false)
	headersEnd := len(f.b)
	f.b = m.random(f.b, max(0, size-headersEnd))
	end := len(f.b)
	if m.chance(8) { // what follows the IP packet is no part of its sums
		f.b = m.random(f.b, 1+m.IntN(8))
	}
	f.closeHeaders(end)
	return m.asked(f)
}

// packets is how many leave for f.
func (f *softFrame) packets() uint64 {
	if f.header == 0 {
		return 1
	}
	return uint64((len(f.b) - f.header + f.mss - 1) / f.mss)
}

// closeHeaders sets all lengths.
func (f *softFrame) closeHeaders(end int) {
	f.outer.close(f.b, end)
	if f.inner.l3 != 0 {
		f.inner.close(f.b, end)
	}
}

// large makes f one to be cut into segments.
func (m *mixer) large(f *softFrame) {
	f.header = len(f.b)
	payload := 1 + m.IntN(3000)
	if m.chance(8) {
		payload = 1 + m.IntN(50000)
	}
	f.mss = 1 + payload/(1+m.IntN(12))
	switch m.IntN(4) {
	case 0:
		f.mss = 8 + m.IntN(1500) + payload/64
	case 1:
		f.mss = 1448
	}
	f.mss = min(f.mss, 16000)
	f.b = m.random(f.b, payload)
	f.closeHeaders(len(f.b))
}

// asked draws what the device shall do to f.
func (m *mixer) asked(f softFrame) (softFrame, txOffload) {
	var o txOffload
	if m.chance(4) {
		f.tag, f.tci = true, uint16(m.Uint32())
		o.insert, o.vlan = true, f.tci
	}
	if f.outer.l3 != 0 && (f.header > 0 || m.chance(2)) {
		f.csum = [...]uint8{csumL3, csumL4, csumL3 | csumL4}[m.IntN(3)]
		if f.inner.l3 != 0 {
			f.csum = [...]uint8{csumL3Inner | csumL4Inner, csumL3 | csumL3Inner | csumL4Inner,
				csumL3 | csumL4 | csumL3Inner | csumL4Inner, csumL4Inner, csumL4}[m.IntN(5)]
		}
		o.csum = f.csum
		if m.swp && m.chance(2) {
			o.swp, o.swpFlags = f.parserOffsets()
		}
	}
	o.mss = uint16(f.mss)
	if m.chance(16) {
		o.metadata = m.Uint32()
	}
	m.buf = f.b[:0]
	return f, o
}

// parserOffsets are what the software parser tells the device of f.
func (f *softFrame) parserOffsets() (at [4]uint8, flags uint8) {
	at = [4]uint8{uint8(f.outer.l4 / 2), uint8(f.outer.l3 / 2), uint8(f.inner.l4 / 2), uint8(f.inner.l3 / 2)}
	for _, b := range []struct {
		on  bool
		bit uint8
	}{
		{f.outer.v6, swpOuterIsV6}, {f.outer.udp, swpOuterIsUDP}, {f.inner.v6, swpInnerIsV6}, {f.inner.udp, swpInnerIsUDP},
	} {
		if b.on {
			flags |= b.bit
		}
	}
	return at, flags
}

// cuts divides n bytes into pieces, each of at most a run's length.
func (m *mixer) cuts(f *softFrame, out []int) []int {
	n, pieces := len(f.b), 1
	switch m.IntN(4) {
	case 0:
		pieces = 1 + m.IntN(maxPieces)
		if m.chance(50) {
			pieces = maxPieces + 1 + m.IntN(3) // too many
		}
	case 1:
		pieces = 1 + m.IntN(3)
	}
	first := 0
	if f.header > 0 { // headers lie in the first piece
		pieces = max(pieces, 1+n/(runPages*pageSize-4096))
		first = f.header - 1
		if pieces > 1 && m.chance(2) {
			out = append(out, f.header)
			n -= f.header
			first = 0
			pieces--
		}
	}
	for ; pieces > 1 && n > first+pieces; pieces-- {
		most := min(n-first-pieces, max(1, 2*(n-first)/pieces))
		cut := first + 1 + m.IntN(most)
		out = append(out, cut)
		n -= cut
		first = 0
	}
	return append(out, n)
}
