package main

// rxpath.go owns receive queues: buffers laid out once over pages, the poll that
// turns completions into packet views, and the refill. It does not own the pages
// (pagepool.go), multi-packet WQEs (strides.go), the completion ring (queue.go),
// compressed completions (minicqe.go) or when to look (napi.go).
// Manual: chapters Receive Queue, Completion Queues.
//
// The memory scheme (Linux: legacy RQ of mlx5e). Every fragment of every WQE has
// its place in a page from the start; the map is built once and never written
// again. WQEs that share pages form a bulk and are always posted together: the
// first takes its pages, the last gives them back. A page of which nothing was
// lent stays where it is, so that refilling costs no store but the doorbell
// record. A bulk whose pages are lent is left alone for a while, since they
// usually come home soon, and gets others only when the ring runs low.

import (
	"fmt"
	"time"
)

// packet is a view of one received frame. It is good until the queue's finish.
type packet struct {
	b         []byte // first fragment, cut where the frame or the fragment ends
	size      uint32 // of the whole frame, without FCS
	slot      uint32 // WQE in the ring; of a striding queue the position of the frame
	hash      uint32
	page      uint32 // of the pool, with the first fragment
	timestamp uint64 // in the device's format
	tag       uint32 // flow tag of the rule that let it in
	checksum  uint16 // ones' complement sum over the IP packet; see summed
	vlan      uint16 // tag that the device stripped
	frags     uint8
	hashType  uint8
	headers   uint8  // l4_hdr_type[6:4] l3_hdr_type[3:2] has_vlan[0]
	ok        uint8  // l2_ok[0] l3_ok[1] l4_ok[2] summed[7]
	off       uint16 // of the first fragment in its page
}

// summed in packet.ok says that checksum holds: compressed completions carry
// either the checksum or the hash.
const summed = 1 << 7

// stripped reports whether the device took a VLAN tag out of the frame.
func (p *packet) stripped() bool { return p.headers&1 != 0 }

// rxFrag is the fixed place of a fragment: which page of the ring, from where.
type rxFrag struct {
	page uint32 // index into recvQueue.held
	off  uint16
	size uint16
}

// rxStats counts what a receive queue did, by mlx5e's names. The owner adds to
// its own tally and publishes that now and then.
type rxStats struct {
	packets   counter
	bytes     counter
	wqeErr    counter // error completions
	oversize  counter // longer than the MTU allows or the buffers hold
	starved   counter // bulks not posted for want of pages
	doorbells counter // stores to the receive doorbell record
	polls     counter
	filler    counter // completions that only fill up a multi-packet WQE
	blocks    counter // compressed sessions
	small     counter // completions in them
	recover   counter // resets after an error
}

// rxTally is what has been counted and not yet published.
type rxTally struct {
	packets, bytes, wqeErr, oversize, starved, doorbells, polls, filler, blocks, small, recovered uint64
}

// publish makes the tally visible to others.
func (q *recvQueue) publish() {
	t, s := &q.tally, &q.stats
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.wqeErr.add(t.wqeErr)
	s.oversize.add(t.oversize)
	s.starved.add(t.starved)
	s.doorbells.add(t.doorbells)
	s.polls.add(t.polls)
	s.filler.add(t.filler)
	s.blocks.add(t.blocks)
	s.small.add(t.small)
	s.recover.add(t.recovered)
	*t = rxTally{}
	q.pool.publish()
}

// recvConfig is what a receive queue is made from.
type recvConfig struct {
	id      int      // number of its page pool
	layout  rxLayout // of a legacy queue
	log     uint8    // log2 of the WQEs
	frame   int      // longest frame to let in, without FCS
	lkey    uint32   // of a legacy queue's buffers
	mini    uint8    // what compressed completions carry
	strides strideLayout
	pageKey uint32    // of a striding queue's buffers
	ico     *icoQueue // that names a striding queue's pages
}

// recvQueue is one receive queue. One goroutine owns it.
type recvQueue struct {
	cq     *compQueue
	n      uint32 // RQN
	buf    dmaMem
	segs   []seg // the ring: 1<<(logStride-4) segments a WQE
	rec    record
	lkey   uint32
	layout rxLayout
	mask   uint32
	head   uint32   // WQEs handed out; owner
	posted uint32   // WQEs given to the device; owner
	frags  []rxFrag // of WQE i: from i*layout.frags on; fixed
	held   []uint32 // page behind each place of the map, noHold before the first
	perWQE uint32   // segments a WQE
	pages  uint32   // pages a bulk
	limit  uint32   // longest frame to let in
	pool   *pagePool
	ring   *strideRing // of a striding queue, which has no use for what stands above
	minis  miniCQEs
	batch  [napiBudget]packet
	failed bool     // an error completion was seen; the queue waits for recovery
	cause  cqeError // of that
	since  time.Time
	short  bool // the last fill wanted pages that were not there
	tally  rxTally
	stats  rxStats
}

// newRecvQueue prepares memory for 2^log WQEs; nothing is posted yet.
func newRecvQueue(mem *arena, cq *compQueue, c recvConfig, u *undo) (*recvQueue, error) {
	n := 1 << c.log
	q := &recvQueue{cq: cq, layout: c.layout, lkey: c.lkey, mask: uint32(n - 1), perWQE: 1 << (c.layout.logStride - 4),
		limit: uint32(c.frame), minis: miniCQEs{format: c.mini}}
	size, total := n<<c.layout.logStride, 0
	if c.strides.on() {
		size, total = n*strideWQESize, n*c.strides.pages()
	} else {
		q.frags, q.pages = mapFragments(c.layout, n)
		total = int(q.pages) * (n / c.layout.bulk)
		q.held = make([]uint32, total)
		for i := range q.held {
			q.held[i] = noHold
		}
	}
	var err error
	if q.buf, err = mem.alloc(size); err != nil {
		return nil, fmt.Errorf("receive ring: %w", err)
	}
	u.add("receive ring", func() error { mem.free(q.buf); return nil })
	if q.rec, err = mem.newRecord(); err != nil {
		return nil, fmt.Errorf("receive ring: %w", err)
	}
	u.add("doorbell record", func() error { mem.freeRecord(q.rec); return nil })
	if q.pool, err = newPagePool(mem, c.id, total+sparePages(total)); err != nil {
		return nil, err
	}
	u.add("receive pages", func() error { q.pool.close(mem); return nil })
	q.segs = segments(q.buf)
	if c.strides.on() {
		q.ring = newStrideRing(c.strides, c.log, q.segs, c.pageKey, q.pool, c.ico)
	}
	return q, nil
}

// sparePages is how many pages a pool may grow to beyond the ring's: what
// consumers may hold while the ring stays full. At least half as many again.
func sparePages(ring int) int { return max(ring/2, min(3*ring, 1536)) }

// mapFragments places the fragments of n WQEs in pages, half pages in pairs, and
// returns the places and the pages of one bulk. Bulks share no page: an even
// number of WQEs has an even number of halves.
func mapFragments(l rxLayout, n int) (frags []rxFrag, pages uint32) {
	next := uint32(0) // page not used yet
	half, open := uint32(0), false
	for i := range n {
		for f := range l.frags {
			at := rxFrag{page: next, size: uint16(l.size[f])}
			switch {
			case l.size[f] == pageSize:
				next++
			case open:
				at.page, at.off, open = half, rxFragSmall, false
			default:
				half, open = next, true
				next++
			}
			frags = append(frags, at)
		}
		if i == l.bulk-1 {
			pages = next
		}
	}
	return frags, pages
}

// ringMemory is what the queue's buffers take, in bytes.
func (q *recvQueue) ringMemory() int {
	if q.ring != nil {
		return len(q.ring.held) * pageSize
	}
	return len(q.held) * pageSize
}

// fill posts what it can; at start and after each poll.
func (q *recvQueue) fill() {
	if q.ring != nil {
		q.fillStrides()
		return
	}
	bulk, patience := uint32(q.layout.bulk), (q.mask+1)/4
	from := q.posted
	q.short = false
	for free := q.mask + 1 - (q.posted - q.head); free >= bulk; free -= bulk {
		if !q.post(q.posted&q.mask/bulk, free <= patience) {
			break
		}
		q.posted += bulk
	}
	if q.posted != from {
		q.rec.store(recordRQ, q.posted&0xffff)
		q.tally.doorbells++
	}
}

func (q *recvQueue) fillStrides() {
	if q.ring.fill() {
		q.rec.store(recordRQ, q.ring.posted&0xffff)
		q.tally.doorbells++
	}
	if q.ring.short {
		q.tally.starved++
	}
	if q.ring.ico.failed && !q.failed {
		q.failed, q.cause = true, q.ring.ico.cause
	}
}

// waits reports whether the queue can only go on when memory or a UMR comes back.
func (q *recvQueue) waits() bool { return q.short || q.ring != nil && q.ring.waits() }

// idle reports whether nothing is posted that was to be: the first UMRs of a
// striding queue are under way.
func (q *recvQueue) idle() bool { return q.ring != nil && q.ring.posted == 0 }

// debugPosts, set at build time (-ldflags '-X main.debugPosts=on') or by tests,
// has every post checked against the sharing rule.
var debugPosts string

// post makes bulk b ready: each of its pages is there and lent to nobody. With
// patience it leaves a bulk that has lent pages as it is; without, these are
// replaced. It returns false, and has changed nothing that matters, when the bulk
// is not ready.
func (q *recvQueue) post(b uint32, patience bool) bool {
	held := q.held[b*q.pages:][:q.pages]
	own := q.pool.own
	for _, n := range held {
		if n == noHold || own[n] != ownHeld {
			return q.replace(b, patience)
		}
	}
	if debugPosts != "" {
		q.checkBulk(b)
	}
	return true
}

// replace is post for a bulk whose pages are not all there and free.
func (q *recvQueue) replace(b uint32, patience bool) bool {
	held := q.held[b*q.pages:][:q.pages]
	changed := false
	for i, n := range held {
		if n != noHold && !q.pool.busy(n) {
			continue
		}
		if n != noHold && patience {
			q.short = true // looked at again although nothing may come in meanwhile
			return false
		}
		fresh, ok := q.pool.take()
		if !ok {
			q.tally.starved++
			q.short = true
			return false // what was replaced so far is in held and is written next time
		}
		if n != noHold {
			q.pool.giveBack(n)
		}
		held[i] = fresh
		changed = true
	}
	if changed {
		q.write(b)
	}
	if debugPosts != "" {
		q.checkBulk(b)
	}
	return true
}

// checkBulk panics when posting bulk b would break the sharing rule: a WQE of it
// is with the device, or one of its pages is lent, not held, or also another
// bulk's. Only debug builds get here.
func (q *recvQueue) checkBulk(b uint32) {
	bulk := uint32(q.layout.bulk)
	if q.posted-q.head > q.mask+1-bulk {
		panic(fmt.Sprintf("bulk %d is posted while the device has WQEs of it", b))
	}
	for i := b * q.pages; i < (b+1)*q.pages; i++ {
		if n := q.held[i]; n == noHold || q.pool.own[n] != ownHeld {
			panic(fmt.Sprintf("bulk %d is posted with page %d, which is not its alone", b, int32(n)))
		}
	}
	for w := b * bulk; w < (b+1)*bulk; w++ {
		for f := range uint32(q.layout.frags) {
			fr := &q.frags[w*uint32(q.layout.frags)+f]
			if fr.page/q.pages != b {
				panic(fmt.Sprintf("WQE %d of bulk %d lies in a page of another", w, b))
			}
			room := uint32(0)
			if f == 0 {
				room = uint32(q.layout.headroom)
			}
			if q.segs[w*q.perWQE+f] != dataSeg(uint32(fr.size)-room, q.lkey, q.pool.addr(q.held[fr.page], uint32(fr.off)+room)) {
				panic(fmt.Sprintf("WQE %d names another page than its map", w))
			}
		}
	}
}

// write fills the segments of bulk b from the fixed map and the pages held now.
func (q *recvQueue) write(b uint32) {
	n := uint32(q.layout.frags)
	for w := b * uint32(q.layout.bulk); w < (b+1)*uint32(q.layout.bulk); w++ {
		at := w * q.perWQE
		for f := uint32(0); f < q.perWQE; f++ {
			if f >= n {
				q.segs[at+f] = dataSeg(0, invalidLkey, 0)
				continue
			}
			fr := &q.frags[w*n+f]
			room := uint32(0)
			if f == 0 {
				room = uint32(q.layout.headroom)
			}
			q.segs[at+f] = dataSeg(uint32(fr.size)-room, q.lkey, q.pool.addr(q.held[fr.page], uint32(fr.off)+room))
		}
	}
}

// poll takes up to budget completions and returns views of the frames, good
// until finish, and how many completions there were. What the device says is
// checked against what we posted.
func (q *recvQueue) poll(budget int) (packets []packet, done int) {
	budget = min(budget, len(q.batch))
	from, n, bytes := q.cq.ci, 0, uint64(0)
	for done < budget && !q.failed {
		e, w := q.next()
		if e == nil {
			break
		}
		done++
		size, slot, ok := q.place(e, w)
		if !ok {
			continue
		}
		p := &q.batch[n]
		q.describe(p, e, w, size)
		if q.ring != nil {
			q.viewStrides(p, slot)
		} else {
			q.viewWhole(p, slot)
		}
		n++
		bytes += uint64(size)
	}
	q.account(from, n, bytes)
	return q.batch[:n], done
}

// drop takes up to budget completions and counts their frames: what poll does for
// a handler that looks at none, without building views.
func (q *recvQueue) drop(budget int) (done int) {
	from, n, bytes := q.cq.ci, 0, uint64(0)
	for done < budget && !q.failed {
		if q.minis.left() == 0 {
			k, b := q.dropPlain(budget - done)
			done, n, bytes = done+k, n+k, bytes+b
			if done == budget {
				break
			}
		}
		e, w := q.next()
		if e == nil {
			break
		}
		done++
		if size, _, ok := q.place(e, w); ok {
			n++
			bytes += uint64(size)
		}
	}
	q.account(from, n, bytes)
	return done
}

// account ends a poll.
func (q *recvQueue) account(from uint32, packets int, bytes uint64) {
	q.tally.polls++
	q.tally.packets += uint64(packets)
	q.tally.bytes += bytes
	if q.cq.ci != from {
		q.cq.consumed(q.cq.ci)
	}
}

// dropPlain counts ordinary completions, one after another, up to the first that
// is anything else.
func (q *recvQueue) dropPlain(most int) (n int, bytes uint64) {
	if q.ring != nil {
		return q.dropStrides(most)
	}
	cq, head := q.cq, q.head
	ci, mask := cq.ci, tailMask(q.mask)
	most = min(most, int(q.posted-head))
	for n < most {
		if (cq.tail(ci)^recvTail(ci, cq.log, head))&mask != 0 {
			break
		}
		size := be32word(cq.at(ci).byteCount)
		if size > q.limit {
			break
		}
		bytes += uint64(size)
		ci++
		head++
		n++
	}
	cq.ci, q.head = ci, head
	return n, bytes
}

// dropStrides is dropPlain for a striding queue.
func (q *recvQueue) dropStrides(most int) (n int, bytes uint64) {
	cq, r := q.cq, q.ring
	ci, mask, total := cq.ci, tailMask(0xffff), uint32(1)<<r.layout.logStrides
	head, stride := r.head, r.stride
	for n < most && head != r.posted {
		if (cq.tail(ci)^recvTail(ci, cq.log, stride))&mask != 0 {
			break
		}
		e := cq.at(ci)
		count := be32word(e.byteCount)
		size, took := count&(1<<strideShift-1), count>>strideShift
		if uint32(be16word(e.wqeID)) != head&r.mask || size > q.limit || took-1 >= total-stride || size > took<<r.layout.logStride {
			break // also a filler: its mark makes took too large
		}
		if stride += took; stride == total {
			head, stride = head+1, 0
		}
		bytes += uint64(size)
		ci++
		n++
	}
	cq.ci, r.head, r.stride = ci, head, stride
	return n, bytes
}

// next returns the completion that comes next with its tail, taken out of a
// compressed session or the ring, or nil. The consumer index is past it then.
func (q *recvQueue) next() (*cqe, uint64) {
	for q.minis.left() == 0 {
		ci := q.cq.ci
		e, w := q.cq.peek(ci)
		if e == nil {
			return nil, 0
		}
		if tailFormat(w) != cqeCompressed {
			q.cq.ci = ci + 1
			return e, w
		}
		n := q.minis.open(q.cq, ci, e, w)
		if n == 0 {
			q.fail(cqeError{opcode: tailOpcode(w), counter: tailCounter(w)})
			return nil, 0
		}
		q.cq.ci = ci + n
		q.tally.blocks++
		q.tally.small += uint64(n)
	}
	return q.minis.take()
}

// fail marks the queue for recovery. The first cause counts; what follows is
// flushed.
func (q *recvQueue) fail(cause cqeError) {
	if !q.failed {
		q.failed, q.cause = true, cause
	}
	q.tally.wqeErr++
}

// place consumes what completion e stands for: the frame's size and where it is.
// ok is false when there is no frame to hand out, which is then counted.
func (q *recvQueue) place(e *cqe, w uint64) (size, slot uint32, ok bool) {
	if q.ring != nil {
		return q.placeStrides(e, w)
	}
	slot = q.head & q.mask
	if q.head == q.posted || uint32(tailCounter(w))&q.mask != slot {
		q.fail(decodeError(e, w)) // it speaks of a WQE that is not its turn
		return 0, 0, false
	}
	q.head++ // the WQE is spent, whatever became of it
	if tailOpcode(w) != cqeRecv {
		q.refused(e, w)
		return 0, 0, false
	}
	q.minis.advance(1)
	if size = be32word(e.byteCount); size > q.limit {
		q.tally.oversize++
		return 0, 0, false
	}
	return size, slot, true
}

// placeStrides is place for a striding queue: slot is the frame's position.
func (q *recvQueue) placeStrides(e *cqe, w uint64) (size, slot uint32, ok bool) {
	r := q.ring
	at := r.head & r.mask
	if tailOpcode(w) != cqeRecv {
		q.refused(e, w)
		q.failed = true // how many strides that cost is not known
		return 0, 0, false
	}
	count, total := be32word(e.byteCount), uint32(1)<<r.layout.logStrides
	took, start := count>>strideShift&strideMask, r.stride
	size = count & (1<<strideShift - 1)
	filler := count>>fillerBit != 0
	if r.head == r.posted || uint32(be16word(e.wqeID)) != at || uint32(tailCounter(w)) != start ||
		took == 0 || took > total-start || !filler && size > took<<r.layout.logStride {
		q.fail(decodeError(e, w))
		return 0, 0, false
	}
	q.minis.advance(uint16(took))
	if r.stride += took; r.stride == total {
		r.head, r.stride = r.head+1, 0
	}
	switch {
	case filler:
		q.tally.filler++
	case size > q.limit:
		q.tally.oversize++
	default:
		return size, r.place(at, start), true
	}
	return 0, 0, false
}

// refused counts an error completion. A frame that was too long for its buffer
// costs the buffer alone; all else stops the queue.
func (q *recvQueue) refused(e *cqe, w uint64) {
	cause := decodeError(e, w)
	if tailOpcode(w) == cqeRespErr && cause.syndrome == syndromeLength {
		q.tally.oversize++
		return
	}
	q.fail(cause)
}

// describe takes over what the completion says about the frame.
func (q *recvQueue) describe(p *packet, e *cqe, w uint64, size uint32) {
	p.size = size
	p.hash, p.hashType = be32word(e.hash), e.hashType
	p.checksum, p.ok = be16word(e.checksum), e.hdsExt&^summed
	if e.checksum != 0 {
		p.ok |= summed
	}
	p.headers, p.vlan = e.headers, be16word(e.vlan)
	p.timestamp, p.tag = be64word(e.timestamp), tailTag(w)
}

// viewWhole points p at the frame in WQE slot, which is not longer than its
// fragments: the limit sees to that.
func (q *recvQueue) viewWhole(p *packet, slot uint32) {
	fr := &q.frags[slot*uint32(q.layout.frags)]
	at, room := uint32(fr.off)+uint32(q.layout.headroom), uint32(fr.size)-uint32(q.layout.headroom)
	p.slot, p.page, p.off, p.frags = slot, q.held[fr.page], uint16(at), 1
	if p.size > room {
		for left, f := p.size-room, uint32(1); left > 0 && f < uint32(q.layout.frags); f++ {
			left -= min(left, uint32(q.frags[slot*uint32(q.layout.frags)+f].size))
			p.frags++
		}
	}
	p.b = q.pool.bytes(p.page, at, at+min(p.size, room))
}

// viewStrides points p at the frame at position at of a striding queue. It may go
// on in the pages behind.
func (q *recvQueue) viewStrides(p *packet, at uint32) {
	off := at & (pageSize - 1)
	p.slot, p.page, p.off = at, q.ring.page(at), uint16(off)
	p.frags = uint8((off+max(p.size, 1)-1)>>logPage) + 1
	p.b = q.pool.bytes(p.page, off, off+min(p.size, pageSize-off))
}

// piece is where part i of a frame lies: the page, from where, and the most that
// it holds.
func (q *recvQueue) piece(p *packet, i uint32) (page, off, room uint32) {
	if q.ring != nil {
		if i > 0 {
			return q.ring.page(p.slot + i*pageSize), 0, pageSize
		}
		return p.page, uint32(p.off), pageSize - uint32(p.off)
	}
	fr := &q.frags[p.slot*uint32(q.layout.frags)+i]
	if i > 0 {
		return q.held[fr.page], uint32(fr.off), uint32(fr.size)
	}
	return p.page, uint32(p.off), uint32(fr.size) - uint32(q.layout.headroom)
}

// lend appends the pieces of a frame to out, to be sent by a queue of the same
// goroutine: they stay valid beyond finish until that queue returns them. size
// is what of the frame is to be sent, at most what roomy and the further
// fragments hold.
func (q *recvQueue) lend(out []txFrame, p *packet, size uint32) []txFrame {
	if p.frags == 1 {
		return append(out, txFrame{addr: q.pool.addr(p.page, uint32(p.off)), size: size, page: q.pool.lendOwn(p.page)})
	}
	first := len(out)
	for i := uint32(0); size > 0; i++ {
		page, off, room := q.piece(p, i)
		part := min(size, room)
		out = append(out, txFrame{addr: q.pool.addr(page, off), size: part, page: q.pool.lendOwn(page), kind: txMore})
		size -= part
	}
	if len(out) > first {
		out[len(out)-1].kind = 0
	}
	return out
}

// hold appends one reference for each piece of a frame to out, for a consumer in
// another goroutine: the bytes stay valid beyond finish until it has given every
// one to the pool's release. It must take what it wants of packet with it.
func (q *recvQueue) hold(out []pageRef, p *packet) []pageRef {
	out = append(out, q.pool.lend(p.page))
	for i := uint32(1); i < uint32(p.frags); i++ {
		page, _, _ := q.piece(p, i)
		out = append(out, q.pool.lend(page))
	}
	return out
}

// roomy is p.b with room to grow up to the end of its fragment.
func (q *recvQueue) roomy(p *packet) []byte {
	off := uint32(p.off)
	end := off + uint32(len(p.b))
	switch r := q.ring; {
	case r == nil:
		_, _, room := q.piece(p, 0)
		end = off + room
	case p.frags == 1:
		stride := uint32(1) << r.layout.logStride
		end = (end + stride - 1) &^ (stride - 1)
	}
	return q.pool.bytes(p.page, off, end)[:len(p.b)]
}

// fragment returns part i of a frame; part 0 is p.b.
func (q *recvQueue) fragment(p *packet, i uint8) []byte {
	if i == 0 {
		return p.b
	}
	left := p.size - uint32(len(p.b))
	for f := uint8(1); ; f++ {
		page, off, room := q.piece(p, uint32(f))
		part := min(left, room)
		if f == i {
			return q.pool.bytes(page, off, off+part)
		}
		left -= part
	}
}

// contiguous returns the whole frame in one piece: in place when it is, else
// gathered into scratch, which must hold the longest frame.
func (q *recvQueue) contiguous(p *packet, scratch []byte) []byte {
	if p.frags == 1 {
		return p.b
	}
	n := copy(scratch, p.b)
	for i := uint8(1); i < p.frags; i++ {
		n += copy(scratch[n:], q.fragment(p, i))
	}
	return scratch[:n:n]
}

// finish ends the use of the last poll's packets and refills the ring.
func (q *recvQueue) finish() { q.fill() }

// recoverGap is the least time between two recoveries of a queue: one that fails
// at once again must not keep firmware busy.
const recoverGap = 100 * time.Millisecond

// recoverable reports whether a failed queue may be reset now.
func (q *recvQueue) recoverable(now time.Time) bool {
	if !q.failed || now.Sub(q.since) < recoverGap {
		return false
	}
	q.since = now
	return true
}

// reset starts the ring anew after the device has let go of it: what it had
// completed is not looked at, and nothing is posted. Pages stay where they are.
func (q *recvQueue) reset() {
	q.tally.wqeErr += uint64(q.minis.left())
	ci := q.cq.ci
	for n := uint32(0); n <= q.cq.mask; n++ {
		e, w := q.cq.peek(ci)
		if e == nil {
			break
		}
		step := uint32(1)
		if tailFormat(w) == cqeCompressed {
			step = max(1, q.minis.open(q.cq, ci, e, w))
		}
		ci += step
	}
	q.minis.next = q.minis.n
	q.cq.consumed(ci)
	q.head, q.posted = 0, 0
	if q.ring != nil {
		q.ring.reset()
	}
	q.failed = false
	q.rec.store(recordRQ, 0)
	q.tally.recovered++
}
