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
	mss      uint16 // payload of a segment; with a header length in the frame's form
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

// csumOf is an eth segment's checksum flags: the fifth byte in memory.
func csumOf(eseg seg) uint8 { return uint8(eseg.a >> 32) }

// txMark remembers what a completion covers. Marks are in ring order.
type txMark struct {
	end     uint32 // producer counter after the WQE that asked for completion
	first   uint16 // counter of that WQE, which the completion names
	frames  uint32 // elements posted until then
	packets uint32 // packets posted until then
}

// txStats counts what a send queue did, by mlx5e's names. The owner adds to its
// own tally and publishes that now and then, so that a burst costs no locked
// store a counter.
type txStats struct {
	packets  counter
	bytes    counter
	blocks   counter // multi-packet WQEs
	shared   counter // packets in them
	inlined  counter // packets of these that stood in the WQE itself
	cqes     counter
	cqeErr   counter
	nop      counter
	more     counter // packets that needed no doorbell of their own
	csum     counter // packets with checksums filled in, outer headers
	csumIn   counter // the same, inner headers
	csumNone counter
	vlans    counter // tags inserted
	tso      counter // frames that the device cut
	tsoBytes counter // their payload
	tsoIn    counter // as tso, but frames in a tunnel: these are not in tso
	tsoInB   counter // their payload
	stopped  counter // times that the ring had no room, each until it woke
	wake     counter // times that a full ring had room again
	dropped  counter // frames lost to an error of the queue or not fit to send
	doorbell counter
	flames   counter // of these, with the burst's only WQE
	recover  counter // resets after an error or a missing completion
}

// txTally is what has been counted and not yet published.
type txTally struct {
	packets, bytes, blocks, shared, inlined, cqes, cqeErr, nops, bursts, flames, stopped, woken, dropped, recovered uint64
	csum, csumInner, csumNone, vlans, tsoPackets, tsoBytes, tsoInner, tsoInnerBytes                                 uint64
}

// publish makes the tally visible to others. Called when the owner goes idle and
// every few polls.
func (q *sendQueue) publish() {
	t, s := &q.tally, &q.stats
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.blocks.add(t.blocks)
	s.shared.add(t.shared)
	s.inlined.add(t.inlined)
	s.cqes.add(t.cqes)
	s.cqeErr.add(t.cqeErr)
	s.nop.add(t.nops)
	s.more.add(t.packets - min(t.packets, t.bursts))
	s.csum.add(t.csum)
	s.csumIn.add(t.csumInner)
	s.csumNone.add(t.csumNone)
	s.vlans.add(t.vlans)
	s.tso.add(t.tsoPackets)
	s.tsoBytes.add(t.tsoBytes)
	s.tsoIn.add(t.tsoInner)
	s.tsoInB.add(t.tsoInnerBytes)
	s.stopped.add(t.stopped)
	s.wake.add(t.woken)
	s.dropped.add(t.dropped)
	s.doorbell.add(t.bursts)
	s.flames.add(t.flames)
	s.recover.add(t.recovered)
	*t = txTally{}
}

// sendConfig is what a send queue is made from.
type sendConfig struct {
	log       uint8 // log2 of the ring in WQEBBs
	uar       []byte
	uarPage   uint32
	lkey      uint32
	minInline uint8
	mpw       bool
	frame     int // bytes of the longest frame
	maxLSO    int
}

// sendQueue is one send queue. One goroutine owns it.
type sendQueue struct {
	segs    []seg      // the ring by segments
	wqes    []wqeBlock // the same by WQEBBs
	mask    uint32
	pi      uint32    // WQEBBs posted
	ci      uint32    // WQEBBs known to be done
	last    uint32    // first WQEBB of the WQE posted last
	fhead   uint32    // elements posted
	ftail   uint32    // elements given back
	posted  uint32    // packets posted
	left    uint32    // packets known to have left
	refs    []pageRef // of frames posted, a ring
	fmask   uint32
	lkey    uint32
	limit   uint32    // packets a session can hold; 0 is no sessions
	inline  uint8     // least inline mode
	n       uint32    // SQN
	name    string    // for people: by channel and use
	pool    *pagePool // whose pages this goroutine may return directly
	others  refOwner  // of all else that was sent from; nil where there is nothing
	quiet   bool      // nothing is given back frame by frame: who owns the frames counts
	one     [1]pageRef
	small   inlineSession
	marks   []txMark
	mhead   uint32
	mtail   uint32
	rec     record
	uar     []byte
	flame   flame // of the same page
	cq      *compQueue
	buf     dmaMem
	full    bool // there was no room and the queue has not woken since
	sizes   sizeRange
	maxLSO  uint32   // bytes of the largest frame to cut; 0 is none
	failed  bool     // an error completion was seen; the queue waits for recovery
	cause   cqeError // of that
	dead    bool     // out of service: the device may still own what was posted
	severed bool     // for good: its completion queue has failed
	seen    uint32   // completions at the last look of stalled
	since   time.Time
	reborn  time.Time // when a recovery was last tried
	again   time.Time // when that of a dead queue is tried next
	tally   txTally
	stats   txStats

	uarPage uint32
}

// newSendQueue prepares memory for 2^log WQEBBs.
func newSendQueue(mem *arena, cq *compQueue, c sendConfig, u *undo) (*sendQueue, error) {
	n := 1 << c.log
	q := &sendQueue{cq: cq, uar: c.uar, uarPage: c.uarPage, lkey: c.lkey, inline: c.minInline, mask: uint32(n - 1), marks: make([]txMark, n),
		refs: make([]pageRef, n*segsPerBlock), fmask: uint32(n*segsPerBlock - 1), sizes: upTo(c.frame), maxLSO: uint32(c.maxLSO)}
	q.sessions(c.mpw)
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
func (q *sendQueue) home(p *pagePool) {
	q.pool = p
	q.small.mem, q.small.base, q.small.lkey = p.mem.b, p.mem.iova, q.lkey
	q.small.prepare()
}

// sessions turns multi-packet WQEs on or off, between two bursts. Where headers
// must stand inline there are none.
func (q *sendQueue) sessions(on bool) {
	q.limit = 0
	if on && q.inline == inlineNone {
		q.limit = sessionLimit
	}
}

// inlineUpTo puts frames of up to n bytes into sessions themselves; 0 puts none.
// Only the queue's owner, or a stopped channel's, may call it.
func (q *sendQueue) inlineUpTo(n int) {
	q.small.most = uint32(n)
	q.small.prepare()
}

// l2Inline is what inline mode L2 asks for: the header with one VLAN tag. It
// fills the two bytes that the eth segment holds and one more segment.
const l2Inline = etherHeader + vlanTag

// send posts frames in order and rings once. It returns how many elements the
// ring took; the caller keeps the rest. A frame that is not fit to send is
// counted as dropped and its page given back.
func (q *sendQueue) send(frames []txFrame) (took int) {
	if q.dead {
		q.dropAll(frames)
		return len(frames)
	}
	from := q.pi
	for took < len(frames) {
		n := 0
		switch rest := frames[took:]; {
		case !rest[0].form.plain() || q.inline != inlineNone:
			n = q.single(rest)
		case q.limit > 0:
			n = q.session(rest)
		default:
			n = q.plain(rest)
		}
		if n == 0 {
			q.stop()
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
// barrier (the atomic store is one), register. The register gets the 8 bytes that
// it needs. The whole WQE (BlueFlame) it gets only where the page combines stores:
// elsewhere 64 bytes would cross the bus as eight writes.
func (q *sendQueue) ring() {
	w := &q.wqes[q.last&q.mask]
	ctrl := &w[0]
	ctrl.b = be64word(ctrlCQE << 32)
	q.marks[q.mhead&q.mask] = txMark{q.pi, uint16(q.last), q.fhead, q.posted}
	q.mhead++
	q.rec.store(recordSQ, q.pi&0xffff)
	q.tally.bursts++
	if q.flame.turn != 0 {
		q.ringFlame(w)
		return
	}
	regWrite64(q.uar, uarSQ, be64word(ctrl.a))
}

// ringFlame is the register's part of that with BlueFlame.
func (q *sendQueue) ringFlame(w *wqeBlock) {
	if q.flame.ring(w, q.pi) {
		q.tally.flames++
	}
}

// keep remembers a page until completion.
func (q *sendQueue) keep(r pageRef) {
	q.refs[q.fhead&q.fmask] = r
	q.fhead++
}

// pieces is how many elements the frame at the front has.
func pieces(frames []txFrame) int {
	for i := range frames {
		if frames[i].form&txMore == 0 {
			return i + 1
		}
	}
	return 0 // the last piece is missing
}

// free is how many WQEBBs of the ring nothing stands in.
func (q *sendQueue) free() uint32 { return q.mask + 1 - (q.pi - q.ci) }

// room is how many frames of up to so many pieces each surely fit. Who asks waits
// when there is none, so that this is where a queue stops: send only meets a full
// ring where nobody asked.
func (q *sendQueue) room(pieces uint32) int {
	n := int(q.free())
	if pieces != 1 || uint32(q.inline)|q.small.most != 0 {
		n = q.fits(q.mostBlocksOf(pieces))
	}
	if n == 0 {
		q.stop()
	}
	return n
}

// ample reports at little cost that a batch surely fits, of frames in any number of
// fragments with nothing inlined: these take two blocks each.
func (q *sendQueue) ample() bool {
	return q.free() > 2*napiBudget && uint32(q.inline)|q.small.most == 0
}

const _ = uint(2*segsPerBlock - 2 - maxFrags)

// stop notes that there is no room, once until the queue wakes (see complete).
// (Linux: netif_tx_stop_queue.)
func (q *sendQueue) stop() {
	if !q.full {
		q.full = true
		q.tally.stopped++
	}
}

// fits is how many WQEs of up to so many blocks fit, whatever each takes: those
// before the ring's edge and those behind it, since NOPs fill what is left there.
func (q *sendQueue) fits(blocks uint32) int {
	free := q.free()
	edge := min(free, q.mask+1-q.pi&q.mask)
	return int(edge/blocks + (free-edge)/blocks)
}

// mostBlocksOf is the most blocks that a frame of up to so many pieces can take
// which is not to be cut: alone in its WQE, where it shares one it takes less. What
// stands in a session falls back to a pointer where there is no room for it.
func (q *sendQueue) mostBlocksOf(pieces uint32) uint32 {
	segs := 2 + pieces + [...]uint32{inlineNone: 0, inlineL2: 1, inlineIP: mostInline, inlineTCP: mostInline}[q.inline&3]
	if q.limit > 0 && q.small.most > 0 {
		segs = max(segs, 2+min(inlineSegs(q.small.most), q.limit))
	}
	return (segs + segsPerBlock - 1) / segsPerBlock
}

// sendOrDrop sends frames and drops what the ring has no room for.
func (q *sendQueue) sendOrDrop(frames []txFrame) {
	q.dropAll(frames[q.send(frames):])
}

// giveUp gives frames back uncounted: who could not post them counts.
func (q *sendQueue) giveUp(frames []txFrame) {
	for i := range frames {
		q.one[0] = frames[i].page
		q.takeBack(q.one[:])
	}
}

// dropAll drops frames one by one, so that each is counted.
func (q *sendQueue) dropAll(frames []txFrame) {
	for len(frames) > 0 {
		n := pieces(frames)
		if n == 0 {
			n = len(frames)
		}
		q.drop(frames[:n])
		frames = frames[n:]
	}
}

// window is how many of k frames can be posted back to back: contiguous blocks
// of the ring at one block a frame, and contiguous places to remember pages.
func (q *sendQueue) window(k int) (blocks uint32, frames int) {
	at := q.pi & q.mask
	blocks = min(q.free(), q.mask+1-at)
	return blocks, min(k, int(q.fmask+1-q.fhead&q.fmask))
}

// session posts frames from the front of a burst in one WQE and returns how many
// it took, 0 when the ring is full. The first frame must be plain.
func (q *sendQueue) session(frames []txFrame) int {
	blocks, k := q.window(len(frames))
	if blocks == 0 {
		return 0
	}
	segs := min(blocks*segsPerBlock-2, q.limit)
	frames = frames[:min(k, int(segs))]
	at, from := (q.pi&q.mask)*segsPerBlock, int(q.fhead&q.fmask)
	out, refs := q.segs[at+2:at+2+segs], q.refs[from:from+len(frames)]
	eseg, n, used, bytes := frames[0].eseg, 0, 0, uint32(0)
	sizes := q.sizes.with(eseg)
	if q.small.most > 0 {
		var inlined int
		n, used, inlined, bytes = q.small.fill(out, refs, frames, sizes)
		q.tally.inlined += uint64(inlined)
	} else {
		n, bytes = fillSession(out, refs, frames, q.lkey, sizes)
		used = n
	}
	if n == 0 {
		return q.drop(frames[:1])
	}
	ds := uint32(used) + 2
	w := &q.wqes[q.pi&q.mask]
	w[0], w[1] = ctrlSeg(wqeMPSW, uint16(q.pi), q.n, uint8(ds), 0), eseg
	q.fhead += uint32(n)
	q.last = q.pi
	q.pi += (ds + segsPerBlock - 1) / segsPerBlock
	q.tally.shared += uint64(n)
	q.tally.blocks++
	q.account(eseg, n, uint64(bytes))
	return n
}

// plain posts frames from the front of a burst, one WQE each, while they are in
// one piece with nothing to inline and want the same done to them. It returns how
// many, 0 when the ring is full.
func (q *sendQueue) plain(frames []txFrame) int {
	blocks, k := q.window(len(frames))
	frames = frames[:min(k, int(blocks))]
	if len(frames) == 0 {
		return 0
	}
	wqes, refs := q.wqes[q.pi&q.mask:][:len(frames)], q.refs[q.fhead&q.fmask:][:len(frames)]
	ctrl, lkey, pi := ctrlSeg(wqeSend, 0, q.n, 3, 0), q.lkey, uint16(q.pi)
	eseg := frames[0].eseg
	sizes := q.sizes.with(eseg)
	n, bytes := 0, uint32(0)
	if wideLoops {
		n, bytes = plainWide(&wqes[0], &refs[0], &frames[0], len(frames)/4, ctrl.a, pi, lkey, sizes)
	}
	for ; n < len(frames); n++ {
		f := &frames[n]
		size := uint32(f.form)
		if f.eseg != eseg || sizes.refuses(size) {
			break
		}
		w := &wqes[n]
		w[0] = seg{ctrl.a | uint64(be16word(pi+uint16(n)))<<8, 0}
		w[1] = eseg
		w[2] = dataSeg(size, lkey, f.addr)
		refs[n] = f.page
		bytes += size
	}
	if n == 0 {
		return q.drop(frames[:1])
	}
	q.pi += uint32(n)
	q.last = q.pi - 1
	q.fhead += uint32(n)
	q.account(eseg, n, uint64(bytes))
	return n
}

// account counts n packets that were posted with the same eth segment.
func (q *sendQueue) account(eseg seg, n int, bytes uint64) {
	k := uint64(n)
	q.posted += uint32(n)
	q.tally.packets += k
	q.tally.bytes += bytes
	csum := csumOf(eseg)
	switch {
	case csum&(csumL3Inner|csumL4Inner) != 0:
		q.tally.csumInner += k
	case csum&(csumL3|csumL4) != 0:
		q.tally.csum += k
	default:
		q.tally.csumNone += k
	}
	if tagged(eseg) {
		q.tally.vlans += k
	}
}

// single posts one frame in a WQE of its own. It returns the elements used, 0
// when the ring is full.
func (q *sendQueue) single(frames []txFrame) int {
	n := pieces(frames)
	if n == 0 {
		return q.drop(frames)
	}
	frames = frames[:n]
	var room [maxInline + vlanTag]byte
	front, total, fit := q.front(room[vlanTag:vlanTag], frames)
	if !fit {
		return q.drop(frames)
	}
	eseg, hdr := inlined(room[:0], frames[0].eseg, front)
	skip, rest := uint32(len(front)), n
	for rest > 0 && skip >= frames[n-rest].form.size() { // pieces that are wholly inline
		skip -= frames[n-rest].form.size()
		rest--
	}
	ds := 2 + uint32(max(len(hdr), 2)-2+segment-1)/segment + uint32(rest)
	blocks := (ds + segsPerBlock - 1) / segsPerBlock
	at, ok := q.reserve(blocks)
	if !ok {
		return 0
	}
	w := q.segs[at*segsPerBlock : (at+blocks)*segsPerBlock]
	opcode, header := uint8(wqeSend), frames[0].form.header()
	if header > 0 {
		opcode = wqeLSO
	}
	w[0] = ctrlSeg(opcode, uint16(q.pi), q.n, uint8(ds), 0)
	w[1] = eseg
	s := 2
	if len(hdr) > 2 {
		for b := hdr[2:]; len(b) > 0; s++ {
			w[s] = bytesSeg(b)
			b = b[min(segment, len(b)):]
		}
	}
	for i := range frames {
		q.keep(frames[i].page)
		if i >= n-rest {
			w[s] = dataSeg(frames[i].form.size()-skip, q.lkey, frames[i].addr+uint64(skip))
			s, skip = s+1, 0
		}
	}
	q.last = q.pi
	q.pi += blocks
	q.accountSingle(frames[0].eseg, total, header)
	return n
}

// accountSingle counts one frame; one that the device cuts counts as the packets
// that leave, as mlx5e does.
func (q *sendQueue) accountSingle(eseg seg, total, header uint32) {
	if header == 0 {
		q.account(eseg, 1, uint64(total))
		return
	}
	mss := uint32(uint16(be64word(eseg.a)))
	cuts := (total - header + mss - 1) / mss
	if csumOf(eseg)&(csumL3Inner|csumL4Inner) != 0 {
		q.tally.tsoInner++
		q.tally.tsoInnerBytes += uint64(total - header)
	} else {
		q.tally.tsoPackets++
		q.tally.tsoBytes += uint64(total - header)
	}
	q.account(eseg, int(cuts), uint64(total)+uint64(cuts-1)*uint64(header))
}

// front gathers into b the bytes of a frame that must stand in the WQE. It
// returns the frame's size, and false when the frame cannot be sent: a piece is
// empty, it is too short, too long or in too many pieces, or the bytes to inline
// are not in this goroutine's own pool.
func (q *sendQueue) front(b []byte, frames []txFrame) (front []byte, total uint32, ok bool) {
	if len(frames) > maxPieces {
		return nil, 0, false
	}
	for i := range frames {
		size := frames[i].form.size()
		if size == 0 || size > maxPiece {
			return nil, 0, false
		}
		total += size
	}
	header := frames[0].form.header()
	mss := uint16(be64word(frames[0].eseg.a))
	switch {
	case header == 0 && q.sizes.with(frames[0].eseg).refuses(total):
		return nil, 0, false
	case header > 0 && (header < etherHeader || header >= total || header > maxInline || mss == 0 || total > q.maxLSO):
		return nil, 0, false
	case header > 0 && q.sizes.with(frames[0].eseg).refuses(min(total, header+uint32(mss))): // a cut is too long
		return nil, 0, false
	case header > 0:
		front, ok = q.gather(b, frames, header)
		return front, total, ok
	case q.inline == inlineNone:
		return nil, total, true
	}
	want := uint32(l2Inline)
	if tagged(frames[0].eseg) {
		want = etherHeader // the tag that is put in makes up the rest
	}
	if q.inline > inlineL2 {
		if front, ok = q.gather(b, frames, min(total, maxInline)); !ok {
			return nil, 0, false
		}
		want = max(want, headerLength(front, q.inline))
	}
	front, ok = q.gather(b, frames, min(total, want))
	return front, total, ok
}

// maxPiece bounds a piece: what fills the field of its size may have been more.
const maxPiece = uint32(txSizeMask) - 1

// gather copies the first n bytes of a frame over its pieces into b[:0].
func (q *sendQueue) gather(b []byte, frames []txFrame, n uint32) ([]byte, bool) {
	b = b[:0]
	for i := range frames {
		left := n - uint32(len(b))
		if left == 0 {
			break
		}
		part := q.bytesOf(&frames[i], min(left, frames[i].form.size()))
		if part == nil {
			return nil, false
		}
		b = append(b, part...)
	}
	return b, uint32(len(b)) == n
}

// inlined puts a frame's front into the eth segment and, in hdr, behind it. The
// segment has no place for inline bytes and a tag to insert at once: such a tag
// is put into the bytes, and the offsets of the software parser move with them.
func inlined(hdr []byte, eseg seg, front []byte) (seg, []byte) {
	if len(front) == 0 {
		return eseg, hdr
	}
	last := uint32(be64word(eseg.b))
	if last&(insertVLAN<<16) != 0 {
		hdr = append(append(hdr, front[:12]...), ethVLAN>>8, ethVLAN&0xff, byte(last>>8), byte(last))
		hdr = append(hdr, front[12:]...)
		eseg.a = be64word(moveOffsets(be64word(eseg.a), vlanTag/2))
	} else {
		hdr = front
	}
	eseg.b = be64word(be64word(eseg.b)&^0xffffffff | uint64(len(hdr))<<16 | uint64(hdr[0])<<8 | uint64(hdr[1]))
	return eseg, hdr
}

// moveOffsets adds by to each software parser offset that is set; they are the
// four upper bytes of the eth segment's first word.
func moveOffsets(a uint64, by uint64) uint64 {
	for shift := 32; shift < 64; shift += 8 {
		if a>>shift&0xff != 0 {
			a += by << shift
		}
	}
	return a
}

// maxPieces is how many pieces a frame may have: what fits behind the longest
// inline header in 63 segments, and Linux's limit.
const maxPieces = 17

// maxInline bounds the headers that are looked at: Ethernet with two tags, IPv6
// with extensions, TCP with options.
const maxInline = 192

// mostInline is the segments of the longest such headers, with a tag that was put
// in, behind the two bytes that the eth segment holds.
const mostInline = (maxInline + vlanTag - 2 + segment - 1) / segment

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

// bytesOf is the first n bytes of a piece, or nothing when it does not lie in
// memory that this goroutine may read.
func (q *sendQueue) bytesOf(f *txFrame, n uint32) []byte {
	if b := q.pool.at(f.addr, n); b != nil {
		return b
	}
	if o, ok := q.others.(memoryOwner); ok {
		return o.bytesOf(f.page, f.addr, n)
	}
	return nil
}

// reserve returns the place of a WQE of so many blocks that does not cross the
// ring's edge; NOPs fill what remains before it.
func (q *sendQueue) reserve(blocks uint32) (at uint32, ok bool) {
	at = q.pi & q.mask
	skip := uint32(0)
	if left := q.mask + 1 - at; left < blocks {
		skip = left
	}
	if q.free() < blocks+skip {
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

// drop gives back the pieces of a frame that cannot be sent.
func (q *sendQueue) drop(frames []txFrame) int {
	q.giveUp(frames)
	q.tally.dropped++
	return len(frames)
}

// complete takes up to budget completions and gives back what they cover. It
// returns how many completions there were.
func (q *sendQueue) complete(budget int) int {
	ci, end, errs := q.cq.ci, q.ftail, uint64(0)
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
		q.ci, q.left, end = m.end, m.packets, m.frames
	}
	done := int(ci - q.cq.ci)
	if done == 0 {
		return 0
	}
	q.giveBack(end)
	q.tally.cqes += uint64(done)
	q.tally.cqeErr += errs
	q.cq.consumed(ci)
	if q.full && q.free() > (q.mask+1)/wakeShare {
		q.full = false
		q.tally.woken++
	}
	return done
}

// wakeShare is the part of a ring that must be free before a queue that was full
// counts as awake again: waking at the first free block would stop it at once.
const wakeShare = 4

// refOwner takes back what a send queue's pool does not know: frames of a UMEM,
// pages of another channel. noPage may be among refs, and so may the pool's own.
type refOwner interface{ takeBack(refs []pageRef) }

// memoryOwner is a refOwner that also shows the memory behind n bytes at bus
// address addr in r, for headers that must stand in a WQE.
type memoryOwner interface {
	refOwner
	bytesOf(r pageRef, addr uint64, n uint32) []byte
}

// takeBack returns pages to whom they belong.
func (q *sendQueue) takeBack(refs []pageRef) {
	if q.pool.returnAll(refs) > 0 && q.others != nil {
		q.others.takeBack(refs)
	}
}

// giveBack returns the pages of frames up to number end.
func (q *sendQueue) giveBack(end uint32) {
	if q.quiet {
		q.ftail = end
	}
	for q.ftail != end {
		at := q.ftail & q.fmask
		n := min(end-q.ftail, q.fmask+1-at)
		q.takeBack(q.refs[at : at+n])
		q.ftail += n
	}
}

// bytesSeg is a segment of 16 bytes as they are, zero behind the end of b.
func bytesSeg(b []byte) seg {
	var s [segment]byte
	copy(s[:], b)
	return seg{be64word(be64(s[:], 0)), be64word(be64(s[:], 8))}
}
