package main

// txmodel_test.go owns the reference that the send path is held against: a plain
// software NIC, which does in bytes what a frame's offloads ask for, a wire that
// remembers what a device sent, and memory for frames. It knows nothing of WQEs
// and shares no code with the driver or the emulated device.
// Sources: RFC 1071 (sums), 768, 791, 8200, 9293, 3168 (CWR), 7348, 8926; IEEE
// 802.1Q; the order is inner sums, outer sums, tag, padding.

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
	f := txFrame{addr: m.pool.addr(m.page, m.at), size: n, page: m.pool.lendOwn(m.page)}
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
	return txFrame{addr: m.pool.addr(page, 0), size: uint32(len(b)), page: m.pool.lendOwn(page)}, true
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
