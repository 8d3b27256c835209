package main

// txpath.go owns send queues: the eth segment, one-packet WQEs, completion and
// back-pressure. It does not own where frames live (pagepool.go) nor the
// completion ring (queue.go). Many packets in one WQE are mpwqe.go's.
// Manual: chapters Send Queue, Send WQE.
//
// A burst is written in order: as few WQEs as the frames allow, one completion
// and one doorbell for all. What was given back is known from the completion
// alone: a mark remembers how far ring and frames were when it was asked for.

import "fmt"

// txFrame is a frame to send, or a piece of one, in DMA memory. It holds no
// pointer, so that bursts of it cost the garbage collector nothing.
type txFrame struct {
	addr uint64  // where the device finds it
	eseg seg     // what shall be done to it; the zero value is nothing
	size uint32  // bytes
	page pageRef // given back when it has left; noPage when nobody waits
	kind txKind
}

// txKind says what keeps a frame from sharing a WQE. The zero value is a frame
// in one piece with nothing special about it.
type txKind uint32

const (
	txMore  txKind = 1 << 0 // the next element is a further piece of this frame
	txAlone txKind = 1 << 1 // wants a WQE of its own (a mark for TLS)
	// txHeader is the length of the headers of a frame that the device shall cut
	// into segments (LSO), in the upper 16 bits.
	txHeaderShift = 16
)

// header is the length of the headers to repeat, 0 when the frame is sent as is.
func (k txKind) header() uint32 { return uint32(k >> txHeaderShift) }

// txMark remembers what a completion covers. Marks are in ring order.
type txMark struct {
	end    uint32 // producer counter after the WQE that asked for completion
	first  uint16 // counter of that WQE, which the completion names
	frames uint32 // frames posted until then
}

// txStats counts what a send queue did, by mlx5e's names. Written by the owner.
type txStats struct {
	packets  counter
	bytes    counter
	blocks   counter // multi-packet WQEs
	shared   counter // packets in them
	cqes     counter
	cqeErr   counter
	nop      counter
	more     counter // packets that needed no doorbell of their own
	stopped  counter // bursts that the ring had no room for
	dropped  counter // frames lost to an error of the queue or not fit to send
	doorbell counter
}

// txTally is a burst's share of txStats, kept in locals until it is over.
type txTally struct {
	packets, bytes, blocks, shared, nops, dropped uint64
}

// sendConfig is what a send queue is made from.
type sendConfig struct {
	log       uint8 // log2 of the ring in WQEBBs
	uar       []byte
	lkey      uint32
	minInline uint8
	mpw       bool
}

// sendQueue is one send queue. One goroutine owns it.
type sendQueue struct {
	segs   []seg // four a WQEBB
	mask   uint32
	pi     uint32    // WQEBBs posted
	ci     uint32    // WQEBBs known to be done
	last   uint32    // first WQEBB of the WQE posted last
	fhead  uint32    // frames posted
	ftail  uint32    // frames given back
	refs   []pageRef // of frames posted, a ring
	fmask  uint32
	lkey   uint32
	limit  uint32    // packets a session can hold; 0 is no sessions
	inline uint8     // least inline mode
	n      uint32    // SQN
	pool   *pagePool // whose pages this goroutine may return directly
	marks  []txMark
	mhead  uint32
	mtail  uint32
	rec    record
	uar    []byte
	cq     *compQueue
	buf    dmaMem
	failed bool
	stats  txStats
}

// newSendQueue prepares memory for 2^log WQEBBs.
func newSendQueue(mem *arena, cq *compQueue, c sendConfig, u *undo) (*sendQueue, error) {
	n := 1 << c.log
	q := &sendQueue{cq: cq, uar: c.uar, lkey: c.lkey, inline: c.minInline, mask: uint32(n - 1), marks: make([]txMark, n),
		refs: make([]pageRef, n*segsPerBlock), fmask: uint32(n*segsPerBlock - 1)}
	if c.mpw && c.minInline == inlineNone {
		q.limit = sessionLimit
	}
	var err error
	if q.buf, err = mem.alloc(n * wqebb); err != nil {
		return nil, fmt.Errorf("send ring: %w", err)
	}
	u.add("send ring", func() error { mem.free(q.buf); return nil })
	if q.rec, err = mem.newRecord(); err != nil {
		return nil, fmt.Errorf("send ring: %w", err)
	}
	u.add("doorbell record", func() error { mem.freeRecord(q.rec); return nil })
	q.segs = segments(q.buf)
	return q, nil
}

// home names the pool whose owner is this queue's goroutine too.
func (q *sendQueue) home(p *pagePool) { q.pool = p }

const segsPerBlock = wqebb / segment

// l2Inline is what inline mode L2 asks for: the header with one VLAN tag. It
// fills the two bytes that the eth segment holds and one more segment.
const l2Inline = etherHeader + vlanTag

// send posts frames in order and rings once. It returns how many elements the
// ring took; the caller keeps the rest. A frame that is not fit to send is
// counted as dropped and its page given back.
func (q *sendQueue) send(frames []txFrame) (took int) {
	var t txTally
	from := q.pi
	for took < len(frames) {
		n := 0
		if frames[took].kind == 0 && q.limit > 0 {
			n = q.session(frames[took:], &t)
		} else {
			n = q.single(frames[took:], &t)
		}
		if n == 0 {
			q.stats.stopped.add(1)
			break
		}
		took += n
	}
	if q.pi != from {
		q.ring()
		q.stats.more.add(t.packets - min(t.packets, 1))
	}
	q.count(&t)
	return took
}

// count adds a burst to the statistics.
func (q *sendQueue) count(t *txTally) {
	q.stats.packets.add(t.packets)
	q.stats.bytes.add(t.bytes)
	q.stats.blocks.add(t.blocks)
	q.stats.shared.add(t.shared)
	q.stats.nop.add(t.nops)
	q.stats.dropped.add(t.dropped)
}

// ring asks for completion of the WQE posted last and tells the device: record,
// barrier (the atomic store is one), register.
func (q *sendQueue) ring() {
	ctrl := &q.segs[(q.last&q.mask)*segsPerBlock]
	ctrl.b = be64word(ctrlCQE << 32)
	q.marks[q.mhead&q.mask] = txMark{q.pi, uint16(q.last), q.fhead}
	q.mhead++
	q.rec.store(recordSQ, q.pi&0xffff)
	regWrite64(q.uar, uarSQ, be64word(ctrl.a))
	q.stats.doorbell.add(1)
}

// keep remembers a page until completion.
func (q *sendQueue) keep(r pageRef) {
	q.refs[q.fhead&q.fmask] = r
	q.fhead++
}

// pieces is how many elements the frame at the front has.
func pieces(frames []txFrame) int {
	for i := range frames {
		if frames[i].kind&txMore == 0 {
			return i + 1
		}
	}
	return 0 // the last piece is missing
}

// single posts one frame in a WQE of its own. It returns the elements used, 0
// when the ring is full.
func (q *sendQueue) single(frames []txFrame, t *txTally) int {
	n := pieces(frames)
	if n == 0 {
		return q.drop(frames, t)
	}
	head := &frames[0]
	inline := q.inlineFor(head)
	b := q.bytesOf(head, inline)
	if head.size < etherHeader || uint32(len(b)) < inline || n > maxPieces {
		return q.drop(frames[:n], t)
	}
	ds := 2 + (max(inline, 2)-2+segment-1)/segment + uint32(n)
	blocks := (ds + segsPerBlock - 1) / segsPerBlock
	at, ok := q.reserve(blocks, t)
	if !ok {
		return 0
	}
	w := q.segs[at*segsPerBlock : (at+blocks)*segsPerBlock]
	opcode, eseg := uint8(wqeSend), head.eseg
	if head.kind.header() > 0 {
		opcode = wqeLSO
	}
	w[0] = ctrlSeg(opcode, uint16(q.pi), q.n, uint8(ds), 0)
	s := uint32(2)
	if inline > 0 {
		eseg.b = be64word(be64word(eseg.b)&^0xffffffff | uint64(inline)<<16 | uint64(b[0])<<8 | uint64(b[1]))
		for rest := b[2:]; len(rest) > 0; s++ {
			w[s] = bytesSeg(rest)
			rest = rest[min(segment, len(rest)):]
		}
	}
	w[1] = eseg
	for i := range frames[:n] {
		f, skip := &frames[i], uint32(0)
		if i == 0 {
			skip = inline
		}
		w[s] = dataSeg(f.size-skip, q.lkey, f.addr+uint64(skip))
		s++
		t.bytes += uint64(f.size)
		q.keep(f.page)
	}
	q.last = q.pi
	q.pi += blocks
	t.packets++
	return n
}

// maxPieces is how many pieces a frame may have: what fits behind the longest
// inline header in 63 segments, and Linux's limit.
const maxPieces = 17

// inlineFor is how many bytes of a frame must stand in the WQE itself.
func (q *sendQueue) inlineFor(f *txFrame) uint32 {
	switch {
	case f.kind.header() > 0:
		return f.kind.header()
	case q.inline == inlineNone:
		return 0
	default:
		return l2Inline
	}
}

// bytesOf is the first n bytes of a frame, or nothing when the frame has no more
// than these or does not lie in this goroutine's own pool.
func (q *sendQueue) bytesOf(f *txFrame, n uint32) []byte {
	off, all := f.addr-q.pool.mem.iova, q.pool.mem.b
	if n == 0 || n >= f.size || off >= uint64(len(all)) || uint64(len(all))-off < uint64(n) {
		return nil
	}
	return all[off:][:n:n]
}

// reserve returns the place of a WQE of so many blocks that does not cross the
// ring's edge; NOPs fill what remains before it.
func (q *sendQueue) reserve(blocks uint32, t *txTally) (at uint32, ok bool) {
	at = q.pi & q.mask
	skip := uint32(0)
	if left := q.mask + 1 - at; left < blocks {
		skip = left
	}
	if q.mask+1-(q.pi-q.ci) < blocks+skip {
		return 0, false
	}
	for range skip {
		q.segs[(q.pi&q.mask)*segsPerBlock] = ctrlSeg(wqeNOP, uint16(q.pi), q.n, 1, 0)
		q.last = q.pi
		q.pi++
		t.nops++
	}
	return q.pi & q.mask, true
}

// drop gives back what cannot be sent.
func (q *sendQueue) drop(frames []txFrame, t *txTally) int {
	for i := range frames {
		q.giveBackOne(frames[i].page)
	}
	t.dropped++
	return len(frames)
}

// complete takes up to budget completions and gives back what they cover. It
// returns how many completions there were.
func (q *sendQueue) complete(budget int) int {
	ci, errs := q.cq.ci, uint64(0)
	for n := 0; n < budget && q.mtail != q.mhead; n++ {
		e, w := q.cq.peek(ci)
		if e == nil {
			break
		}
		ci++
		m := &q.marks[q.mtail&q.mask]
		if tailOpcode(w) != cqeReq || tailCounter(w) != m.first {
			errs++
			q.failed = true
			continue
		}
		q.mtail++
		q.ci = m.end
		q.giveBack(m.frames)
	}
	done := int(ci - q.cq.ci)
	if done == 0 {
		return 0
	}
	q.stats.cqes.add(uint64(done))
	q.stats.cqeErr.add(errs)
	q.cq.consumed(ci)
	return done
}

// giveBack returns the pages of frames up to number end.
func (q *sendQueue) giveBack(end uint32) {
	for i := q.ftail; i != end; i++ {
		q.giveBackOne(q.refs[i&q.fmask])
	}
	q.ftail = end
}

func (q *sendQueue) giveBackOne(r pageRef) {
	if r != noPage && r&^pageMask == q.pool.id {
		q.pool.returnOwn(r.page())
	}
}

// bytesSeg is a segment of 16 bytes as they are, zero behind the end of b.
func bytesSeg(b []byte) seg {
	var s [segment]byte
	copy(s[:], b)
	return seg{be64word(be64(s[:], 0)), be64word(be64(s[:], 8))}
}
