package model

// compress.go owns completion compression, basic layout: a run of receive
// completions that differ in few fields becomes one title and arrays of eight
// small ones. It does not own what a completion says (receive.go) nor where it is put
// (queue.go). Manual: chapter "Completion queue", section "CQE compression".
//
// A session of n completions takes n entries of the ring. Its title stands in
// the first, the first array in the second, array k in entry 8*k; the entries
// between are not written, and the host must mark them as consumed itself. The
// title is written last: with it the whole session becomes visible. Sessions
// end with the turn, so that nothing waits for company.

import "encoding/binary"

const (
	miniPerArray = 8  // cqe_mini_format.MLX5_MINI_CQE_ARRAY_SIZE
	miniBytes    = 8  // bytes of a mini_cqe8
	sessionMax   = 64 // completions in a session

	miniHash    = 0x0 // mini format: RSS hash and byte count
	miniCsumAt  = 0   // mini_cqe8.checksum
	miniStride  = 2   // mini_cqe8.stridx
	miniByteCnt = 4   // mini_cqe8.byte_cnt

	formatCompressed = 0x3 // cqe_format.MLX5_COMPRESSED
)

// compression is the open session of a CQ; the zero value is none.
type compression struct {
	n     uint32
	next  uint16 // counter that the next completion must have
	title [cqeSize]byte
	minis [sessionMax][miniBytes]byte
}

// sameMask has zeros where completions of one session may differ: hash, check
// sum, byte count, timestamp, counter and signature.
var sameMask = func() (m [cqeSize / 8]uint64) {
	var b [cqeSize]byte
	for i := range b {
		b[i] = 0xff
	}
	clear(b[cqeHash : cqeHash+4])
	clear(b[cqeCheckSum : cqeCheckSum+2])
	clear(b[cqeByteCnt : cqeByteCnt+4])
	clear(b[cqeTimestamp : cqeTimestamp+8])
	clear(b[cqeCounter : cqeCounter+2])
	b[cqeSignature] = 0
	for i := range m {
		m[i] = binary.BigEndian.Uint64(b[i*8:])
	}
	return m
}()

// accepts reports whether e can join the session: everything that the small
// form does not carry is equal, and the counter follows.
func (s *compression) accepts(format uint8, e *[cqeSize]byte) bool {
	for i, m := range sameMask {
		if (be64(s.title[:], i*8)^be64(e[:], i*8))&m != 0 {
			return false
		}
	}
	return format == miniStrideIndex || be16(e[:], cqeCounter) == s.next
}

// compressCQE adds e to c's session, which it may close or open. step is the
// distance to the next counter in a row. False means that c has failed.
func (d *Device) compressCQE(c *cq, e *[cqeSize]byte, step uint16) bool {
	s := &c.session
	if s.n > 0 && (s.n == sessionMax || !s.accepts(c.miniFmt, e)) {
		d.flushSession(c)
	}
	if !d.cqRoom(c, s.n+1) {
		return false
	}
	if s.n == 0 {
		s.title = *e
		d.work.open = append(d.work.open, c)
	}
	s.minis[s.n] = mini(c.miniFmt, e)
	s.n++
	s.next = be16(e[:], cqeCounter) + step
	return true
}

// mini is the small form of e.
func mini(format uint8, e *[cqeSize]byte) (m [miniBytes]byte) {
	copy(m[miniByteCnt:], e[cqeByteCnt:cqeByteCnt+4])
	switch format {
	case miniHash:
		copy(m[:4], e[cqeHash:cqeHash+4])
	case miniStrideIndex:
		copy(m[miniStride:miniStride+2], e[cqeCounter:cqeCounter+2])
		fallthrough
	default:
		copy(m[miniCsumAt:miniCsumAt+2], e[cqeCheckSum:cqeCheckSum+2])
	}
	return m
}

// flushSessions ends every open session.
func (d *Device) flushSessions() {
	for i, c := range d.work.open {
		d.flushSession(c)
		d.work.open[i] = nil
	}
	d.work.open = d.work.open[:0]
}

// flushSession writes what c has collected: arrays first, then the title. A
// session of one is an ordinary completion.
func (d *Device) flushSession(c *cq) {
	s := &c.session
	n := s.n
	s.n = 0
	switch {
	case n == 0 || c.failed:
		return
	case n == 1:
		d.pushCQE(c, &s.title)
		return
	}
	for k := uint32(0); k*miniPerArray < n; k++ {
		at := c.pi + max(1, k*miniPerArray)
		slot := d.ringSlot(&c.ring, at)
		if len(slot) < cqeSize {
			d.failCQ(c, cqAccessViolation)
			return
		}
		for i, m := range s.minis[k*miniPerArray : min(n, (k+1)*miniPerArray)] {
			copy(slot[i*miniBytes:], m[:])
		}
		d.work.pci.count(PCICQEWrite, 0, cqeSize)
	}
	e := &s.title
	putBE32(e[:], cqeByteCnt, n)
	e[cqeOpOwn] = e[cqeOpOwn]&0xf0 | formatCompressed<<cqeFormatShift | byte(c.pi>>c.ring.logSize)&1
	sign(c.pi, e)
	if !d.storeCQE(c, c.pi, e) {
		return
	}
	c.pi += n
	d.stats.CQEs += uint64(n)
	d.signal(c, n, false)
}
