package main

// txpath.go owns send queues: the eth segment, one-packet WQEs, completion and
// back-pressure. It does not own where frames live (pagepool.go) nor the
// completion ring (queue.go). Many packets in one WQE are mpwqe.go's.
// Manual: chapters Send Queue, Send WQE.
//
// A burst is written in order: as few WQEs as the frames allow, one completion
// and one doorbell for all. What was given back is known from the completion
// alone: a mark remembers how far ring and frames were when it was asked for.

import (
	"fmt"
	"time"
)

// txOffload is what the device shall do to a frame. The zero value is nothing.
type txOffload struct {
	csum     uint8  // csumL3, csumL4, csumL3Inner, csumL4Inner
	mss      uint16 // payload of a segment; with a header length in the frame's kind
	vlan     uint16 // tag to insert, when insert is set
	insert   bool
	swp      [4]uint8 // software parser: outer L4, outer L3, inner L4, inner L3, in 2-byte units
	swpFlags uint8    // swpOuterUDP, swpOuterIPv6, swpInnerUDP, swpInnerIPv6
	metadata uint32   // for flow tables; IPsec where a profile has it
}

// eseg is the eth segment that says so. Frames with equal segments may share a
// WQE. A VLAN tag and inline headers exclude each other in a segment: with both
// wanted the tag must stand in the headers.
func (o txOffload) eseg() seg {
	last := uint32(0)
	if o.insert {
		last = insertVLAN<<16 | uint32(o.vlan)
	}
	return seg{
		be64word(uint64(o.swp[0])<<56 | uint64(o.swp[1])<<48 | uint64(o.swp[2])<<40 | uint64(o.swp[3])<<32 |
			uint64(o.csum)<<24 | uint64(o.swpFlags)<<16 | uint64(o.mss)),
		be64word(uint64(o.metadata)<<32 | uint64(last)),
	}
}

// txMark remembers what a completion covers. Marks are in ring order.
type txMark struct {
	end    uint32 // producer counter after the WQE that asked for completion
	first  uint16 // counter of that WQE, which the completion names
	frames uint32 // frames posted until then
}

// txStats counts what a send queue did, by mlx5e's names. The owner adds to its
// own tally and publishes that now and then, so that a burst costs no locked
// store a counter.
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
	recover  counter // resets after an error or a missing completion
}

// txTally is what has been counted and not yet published.
type txTally struct {
	packets, bytes, blocks, shared, cqes, cqeErr, nops, bursts, stopped, dropped, recovered uint64
}

// publish makes the tally visible to others. Called when the owner goes idle and
// every few polls.
func (q *sendQueue) publish() {
	t, s := &q.tally, &q.stats
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.blocks.add(t.blocks)
	s.shared.add(t.shared)
	s.cqes.add(t.cqes)
	s.cqeErr.add(t.cqeErr)
	s.nop.add(t.nops)
	s.more.add(t.packets - min(t.packets, t.bursts))
	s.stopped.add(t.stopped)
	s.dropped.add(t.dropped)
	s.doorbell.add(t.bursts)
	s.recover.add(t.recovered)
	*t = txTally{}
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
	segs   []seg      // the ring by segments
	wqes   []wqeBlock // the same by WQEBBs
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
	failed bool     // an error completion was seen; the queue waits for recovery
	cause  cqeError // of that
	seen   uint32   // completions at the last look of stalled
	since  time.Time
	tally  txTally
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
	q.segs, q.wqes = segments(q.buf), blocks(q.buf)
	return q, nil
}

// home names the pool whose owner is this queue's goroutine too.
func (q *sendQueue) home(p *pagePool) { q.pool = p }

// l2Inline is what inline mode L2 asks for: the header with one VLAN tag. It
// fills the two bytes that the eth segment holds and one more segment.
const l2Inline = etherHeader + vlanTag

// send posts frames in order and rings once. It returns how many elements the
// ring took; the caller keeps the rest. A frame that is not fit to send is
// counted as dropped and its page given back.
func (q *sendQueue) send(frames []txFrame) (took int) {
	from := q.pi
	for took < len(frames) {
		n := 0
		switch rest := frames[took:]; {
		case rest[0].kind != 0 || q.inline != inlineNone:
			n = q.single(rest)
		case q.limit > 0:
			n = q.session(rest)
		default:
			n = q.plain(rest)
		}
		if n == 0 {
			q.tally.stopped++
			break
		}
		took += n
	}
	if q.pi != from {
		q.ring()
	}
	return took
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
	q.tally.bursts++
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

// room is how many frames in one piece fit at least.
func (q *sendQueue) room() int { return int(q.mask + 1 - (q.pi - q.ci)) }

// sendOrDrop sends frames and drops what the ring has no room for.
func (q *sendQueue) sendOrDrop(frames []txFrame) {
	rest := frames[q.send(frames):]
	for len(rest) > 0 {
		n := max(pieces(rest), 1)
		q.drop(rest[:n])
		rest = rest[n:]
	}
}

// window is how many of k frames can be posted back to back: contiguous blocks
// of the ring at one block a frame, and contiguous places to remember pages.
func (q *sendQueue) window(k int) (blocks uint32, frames int) {
	at := q.pi & q.mask
	blocks = min(q.mask+1-(q.pi-q.ci), q.mask+1-at)
	return blocks, min(k, int(q.fmask+1-q.fhead&q.fmask))
}

// session posts frames from the front of a burst in one WQE and returns how many
// it took, 0 when the ring is full. The first frame's kind must be 0.
func (q *sendQueue) session(frames []txFrame) int {
	blocks, k := q.window(len(frames))
	if blocks == 0 {
		return 0
	}
	w := q.segs[(q.pi&q.mask)*segsPerBlock:]
	frames = frames[:min(k, int(min(blocks*segsPerBlock-2, q.limit)))]
	n, bytes := fillSession(w[2:], q.refs[q.fhead&q.fmask:], frames, q.lkey)
	if n == 0 {
		return q.drop(frames[:1])
	}
	ds := uint32(n) + 2
	w[0] = ctrlSeg(wqeMPSW, uint16(q.pi), q.n, uint8(ds), 0)
	w[1] = frames[0].eseg
	q.fhead += uint32(n)
	q.last = q.pi
	q.pi += (ds + segsPerBlock - 1) / segsPerBlock
	q.tally.packets += uint64(n)
	q.tally.shared += uint64(n)
	q.tally.bytes += bytes
	q.tally.blocks++
	return n
}

// plain posts frames from the front of a burst, one WQE each, while they are in
// one piece with nothing to inline. It returns how many, 0 when the ring is full.
func (q *sendQueue) plain(frames []txFrame) int {
	blocks, k := q.window(len(frames))
	frames = frames[:min(k, int(blocks))]
	if len(frames) == 0 {
		return 0
	}
	wqes := q.wqes[q.pi&q.mask:][:len(frames)]
	refs := q.refs[q.fhead&q.fmask:][:len(frames)]
	ctrl, lkey, pi := ctrlSeg(wqeSend, 0, q.n, 3, 0), q.lkey, uint16(q.pi)
	n, bytes := 0, uint64(0)
	for i := range frames {
		f := &frames[i]
		size := f.size
		if f.kind != 0 || size < etherHeader {
			break
		}
		w := &wqes[i]
		w[0] = seg{ctrl.a | uint64(be16word(pi+uint16(i)))<<8, 0}
		w[1] = f.eseg
		w[2] = dataSeg(size, lkey, f.addr)
		refs[i] = f.page
		bytes += uint64(size)
		n++
	}
	if n == 0 {
		return q.drop(frames[:1])
	}
	q.fhead += uint32(n)
	q.pi += uint32(n)
	q.last = q.pi - 1
	q.tally.packets += uint64(n)
	q.tally.bytes += bytes
	return n
}

// single posts one frame in a WQE of its own. It returns the elements used, 0
// when the ring is full.
func (q *sendQueue) single(frames []txFrame) int {
	n := pieces(frames)
	if n == 0 {
		return q.drop(frames)
	}
	head := &frames[0]
	inline := q.inlineFor(head)
	if head.size < etherHeader || n > maxPieces || inline > maxInline {
		return q.drop(frames[:n])
	}
	front := q.bytesOf(head, inline)
	if uint32(len(front)) < inline {
		return q.drop(frames[:n])
	}
	var room [maxInline + vlanTag]byte
	eseg, hdr := inlined(room[:0], head.eseg, front)
	ds := 2 + uint32(max(len(hdr), 2)-2+segment-1)/segment + uint32(n)
	blocks := (ds + segsPerBlock - 1) / segsPerBlock
	at, ok := q.reserve(blocks)
	if !ok {
		return 0
	}
	w := q.segs[at*segsPerBlock : (at+blocks)*segsPerBlock]
	opcode := uint8(wqeSend)
	if head.kind.header() > 0 {
		opcode = wqeLSO
	}
	w[0] = ctrlSeg(opcode, uint16(q.pi), q.n, uint8(ds), 0)
	w[1] = eseg
	s := 2
	if len(hdr) > 2 {
		for rest := hdr[2:]; len(rest) > 0; s++ {
			w[s] = bytesSeg(rest)
			rest = rest[min(segment, len(rest)):]
		}
	}
	for i := range frames[:n] {
		f, skip := &frames[i], uint32(0)
		if i == 0 {
			skip = inline
		}
		w[s] = dataSeg(f.size-skip, q.lkey, f.addr+uint64(skip))
		s++
		q.tally.bytes += uint64(f.size)
		q.keep(f.page)
	}
	q.last = q.pi
	q.pi += blocks
	q.tally.packets++
	return n
}

// inlined puts a frame's front into the eth segment and, in hdr, behind it. The
// segment has no place for inline bytes and a tag to insert at once: such a tag
// is put into the bytes.
func inlined(hdr []byte, eseg seg, front []byte) (seg, []byte) {
	if len(front) == 0 {
		return eseg, hdr
	}
	last := uint32(be64word(eseg.b))
	hdr = append(hdr, front[:12]...)
	if last&(insertVLAN<<16) != 0 {
		hdr = append(hdr, ethVLAN>>8, ethVLAN&0xff, byte(last>>8), byte(last))
	}
	hdr = append(hdr, front[12:]...)
	eseg.b = be64word(be64word(eseg.b)&^0xffffffff | uint64(len(hdr))<<16 | uint64(hdr[0])<<8 | uint64(hdr[1]))
	return eseg, hdr
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
	case q.inline == inlineL2:
		return l2Inline
	}
	front := min(f.size-min(f.size, 1), maxInline)
	return max(l2Inline, headerLength(q.bytesOf(f, front), q.inline))
}

// maxInline bounds the headers that are looked at: Ethernet with two tags, IPv6
// with extensions, TCP with options.
const maxInline = 192

// headerLength is how much of b the headers take that an inline mode wants: up
// to layer 3 (inlineIP) or layer 4 (inlineTCP). What cannot be told apart is
// taken as layer 2 alone.
func headerLength(b []byte, mode uint8) uint32 {
	at := etherHeader
	if len(b) < at {
		return 0
	}
	kind := be16(b, 12)
	for range 2 {
		if (kind == ethVLAN || kind == ethQinQ) && len(b) >= at+vlanTag {
			kind = be16(b, at+2)
			at += vlanTag
		}
	}
	l4 := uint8(0)
	switch {
	case kind == ethIPv4 && len(b) >= at+20:
		l4 = b[at+9]
		at += int(b[at]&0xf) * 4
	case kind == ethIPv6 && len(b) >= at+ipv6Header:
		l4 = b[at+6]
		at += ipv6Header
	}
	if mode == inlineTCP && l4 == ipTCP && len(b) >= at+20 {
		at += int(b[at+12]>>4) * 4
	} else if mode == inlineTCP && l4 == ipUDP && len(b) >= at+8 {
		at += 8
	}
	return uint32(min(at, len(b)))
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
func (q *sendQueue) reserve(blocks uint32) (at uint32, ok bool) {
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
		q.tally.nops++
	}
	return q.pi & q.mask, true
}

// drop gives back what cannot be sent.
func (q *sendQueue) drop(frames []txFrame) int {
	for i := range frames {
		q.pool.returnAll([]pageRef{frames[i].page})
	}
	q.tally.dropped++
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
			if !q.failed {
				q.failed, q.cause = true, decodeError(e, w) // the first is the cause, what follows is flushed
			}
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
	q.tally.cqes += uint64(done)
	q.tally.cqeErr += errs
	q.cq.consumed(ci)
	return done
}

// giveBack returns the pages of frames up to number end.
func (q *sendQueue) giveBack(end uint32) {
	for q.ftail != end {
		at := q.ftail & q.fmask
		n := min(end-q.ftail, q.fmask+1-at)
		q.pool.returnAll(q.refs[at : at+n])
		q.ftail += n
	}
}

// txTimeout is how long a completion may be missing. Linux waits 15 seconds; an
// appliance that forwards wants to know sooner.
const txTimeout = 5 * time.Second

// stalled reports whether the queue waits for a completion and has seen none for
// txTimeout. A queue that is only full of frames that go out slowly has not
// stalled: its completions come.
func (q *sendQueue) stalled(now time.Time) bool {
	if q.mtail == q.mhead || q.seen != q.mtail || q.since.IsZero() {
		q.seen, q.since = q.mtail, now
		return false
	}
	return now.Sub(q.since) >= txTimeout
}

// reset empties the queue after the device has let go of it: outstanding frames
// are counted as dropped and their pages given back, and the ring starts anew.
func (q *sendQueue) reset() {
	ci := q.cq.ci
	for {
		e, _ := q.cq.peek(ci)
		if e == nil {
			break
		}
		ci++
	}
	q.tally.cqes += uint64(ci - q.cq.ci)
	q.cq.consumed(ci)
	q.tally.dropped += uint64(q.fhead - q.ftail)
	q.giveBack(q.fhead)
	q.pi, q.ci, q.last, q.mhead, q.mtail = 0, 0, 0, 0, 0
	q.failed, q.since = false, time.Time{}
	q.rec.store(recordSQ, 0)
	q.tally.recovered++
}

// bytesSeg is a segment of 16 bytes as they are, zero behind the end of b.
func bytesSeg(b []byte) seg {
	var s [segment]byte
	copy(s[:], b)
	return seg{be64word(be64(s[:], 0)), be64word(be64(s[:], 8))}
}
