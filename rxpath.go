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
// usually come home soon, and gets others when the ring is half empty.

import (
	"fmt"
	"time"
)

// packet is a view of one received frame. It is good until the queue's finish.
type packet struct {
	b         []byte // first fragment, cut where the frame or the fragment ends
	size      uint32 // of the whole frame, without FCS
	slot      uint32 // WQE in the ring; of a striding queue the frame's position; of a guest the room it may grow to (roomy)
	at        uint32 // offset of b in the pool
	hash      uint32
	timestamp uint64 // in the device's format
	info      uint32 // bytes of the completion, see its methods
	checksum  uint16 // ones' complement sum over the IP packet; 0 is not known
	hashType  uint8
	frags     uint8
}

// stripped reports whether the device took a VLAN tag out of the frame, which
// vlan then returns.
func (p *packet) stripped() bool { return p.headers()&1 != 0 }
func (p *packet) vlan() uint16   { return be16word(uint16(p.info >> 16)) }

// headers is l4_hdr_type[6:4] l3_hdr_type[3:2] has_vlan[0].
func (p *packet) headers() uint8 { return uint8(p.info >> 8) }

// ok is what the device found right: l2_ok[0] l3_ok[1] l4_ok[2].
func (p *packet) ok() uint8 { return uint8(p.info) }

// rxFrag is the fixed place of a fragment: which page of the ring, from where,
// and how much of the frame it holds. What stands before it is headroom.
type rxFrag struct {
	page uint32 // index into recvQueue.held
	off  uint16
	size uint16
}

// lendRules is what lendRun goes by.
type lendRules struct {
	want, mask  uint64 // of a completion's tail
	head, limit uint32
	iova        uint64 // of the pool
	last        uint32 // offset in the pool that a frame can begin at
	id          pageRef
}

// rxStats counts what a receive queue did, by mlx5e's names. The owner adds to
// its own tally and publishes that now and then.
type rxStats struct {
	packets   counter
	bytes     counter
	wqeErr    counter // error completions, and frames lost with the queue that one stopped
	oversize  counter // longer than the MTU allows or the buffers hold
	starved   counter // bulks not posted for want of pages
	doorbells counter // stores to the receive doorbell record
	filler    counter // completions that only fill up a multi-packet WQE
	blocks    counter // compressed sessions
	small     counter // completions in them
	recover   counter // resets after an error

	fillerStrides counter // strides that these cost
	congested     counter // fills that found UMRs from before the last fill under way
	stripped      counter // frames out of which the device took a tag
	ended         counter // packets that nobody had taken when the channel stopped
}

// rxTally is what has been counted and not yet published.
type rxTally struct {
	packets, bytes, wqeErr, oversize, starved, doorbells, filler, blocks, small, recovered uint64
	fillerStrides, stripped, ended                                                         uint64
}

// publish makes the tally visible to others.
func (q *recvQueue) publish() {
	t, s := &q.tally, q.stats
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.wqeErr.add(t.wqeErr)
	s.oversize.add(t.oversize)
	s.starved.add(t.starved)
	s.doorbells.add(t.doorbells)
	s.filler.add(t.filler)
	s.blocks.add(t.blocks)
	s.small.add(t.small)
	s.recover.add(t.recovered)
	s.fillerStrides.add(t.fillerStrides)
	s.stripped.add(t.stripped)
	s.ended.add(t.ended)
	*t = rxTally{}
	if q.ring != nil {
		s.congested.add(q.ring.congested)
		q.ring.congested = 0
	}
	q.pool.publish()
}

// recvConfig is what a receive queue is made from.
type recvConfig struct {
	pool    *pagePool
	stats   *rxStats
	layout  rxLayout // of a legacy queue
	log     uint8    // log2 of the WQEs
	frame   int      // longest frame to let in, without FCS
	lkey    uint32   // of a legacy queue's buffers
	strip   bool     // the device takes VLAN tags out
	mini    uint8    // what compressed completions carry
	strides strideLayout
	pageKey uint32    // of a striding queue's buffers
	ico     *icoQueue // that names a striding queue's pages
}

// recvQueue is one receive queue. One goroutine owns it.
type recvQueue struct {
	cq      *compQueue
	n       uint32 // RQN
	buf     dmaMem
	segs    []seg // the ring: 1<<(logStride-4) segments a WQE
	rec     record
	lkey    uint32
	layout  rxLayout
	mask    uint32
	head    uint32   // WQEs handed out; owner
	posted  uint32   // WQEs given to the device; owner
	frags   []rxFrag // of WQE i: from i*layout.frags on; fixed
	held    []uint32 // page behind each place of the map, noHold before the first
	starts  []uint32 // offset in the pool where WQE i's frame begins
	perWQE  uint32   // segments a WQE
	pages   uint32   // pages a bulk
	limit   uint32   // longest frame to let in
	pool    *pagePool
	ring    *strideRing // of a striding queue, which has no use for what stands above
	minis   miniCQEs
	strip   uint64 // 1 where the device takes VLAN tags out
	batch   [napiBudget]packet
	failed  bool      // an error completion was seen; the queue waits for recovery
	cause   cqeError  // of that
	since   time.Time // when it was recovered last, or that was tried
	bare    time.Time // since when UMRs owe it all its buffers, as watch saw it; zero is not
	short   bool      // the last fill wanted pages that were not there
	retired bool      // gets no more buffers
	lentAt  uint32    // posted when a page was lent last
	guest   *pagePool // of the packets that the handler has, which came in elsewhere; nil is ours
	tally   rxTally
	stats   *rxStats // of the channel: they outlive a queue that is replaced
	undo    *undo    // takes the queue back
}

// newRecvQueue prepares memory for 2^log WQEs; nothing is posted yet.
func newRecvQueue(mem *arena, cq *compQueue, c recvConfig, u *undo) (*recvQueue, error) {
	n := 1 << c.log
	q := &recvQueue{cq: cq, layout: c.layout, lkey: c.lkey, mask: uint32(n - 1), perWQE: 1 << (c.layout.logStride - 4),
		limit: uint32(c.frame), minis: miniCQEs{format: c.mini}, pool: c.pool, stats: c.stats, undo: u}
	if c.strip {
		q.strip = 1
	}
	size := n << c.layout.logStride
	if c.strides.on() {
		size = n * strideWQESize
	} else {
		q.frags, q.pages = mapFragments(c.layout, n, c.frame)
		q.held, q.starts = make([]uint32, int(q.pages)*(n/c.layout.bulk)), make([]uint32, n)
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
	q.segs = segments(q.buf)
	if c.strides.on() {
		q.ring = newStrideRing(c.strides, c.log, q.segs, c.pageKey, q.pool, c.ico)
	}
	return q, nil
}

// mapFragments places the fragments of n WQEs in pages, half pages in pairs, and
// returns the places and the pages of one bulk. Bulks share no page: an even
// number of WQEs has an even number of halves.
//
// Frames in one piece do not all begin at the same place: what the fragment has
// to spare shifts them by whole cache lines, or the headers of all would compete
// for the same few sets of the cache.
func mapFragments(l rxLayout, n, frame int) (frags []rxFrag, pages uint32) {
	next := uint32(0) // page not used yet
	half, open := uint32(0), false
	colors := 1
	if l.linear() {
		colors += (l.room() - frame) / cacheLine
	}
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
			if f == 0 {
				skip := uint16(l.headroom + i/2%colors*cacheLine)
				at.off, at.size = at.off+skip, at.size-skip
			}
			frags = append(frags, at)
		}
		if i == l.bulk-1 {
			pages = next
		}
	}
	return frags, pages
}

// pageMap is the pages behind the places of the ring.
func (q *recvQueue) pageMap() []uint32 {
	if q.ring != nil {
		return q.ring.held
	}
	return q.held
}

// ringMemory is what the queue's buffers take, in bytes.
func (q *recvQueue) ringMemory() int {
	return len(q.pageMap()) * pageSize
}

// refillChunk is how many WQEs are posted at once if the ring is long enough: two
// doorbell records are stored for as many packets.
const refillChunk = 64

// fill posts what it can, a chunk at least; at start and after each poll.
func (q *recvQueue) fill() {
	switch {
	case q.ring != nil:
		q.fillStrides()
		return
	case q.retired:
		return
	}
	size := q.mask + 1
	free := size - (q.posted - q.head)
	q.short = false
	if free < min(refillChunk, size/4) {
		return
	}
	from := q.posted
	if q.posted-q.lentAt > 2*size && debugPosts == "" {
		q.posted += free &^ (minBulk - 1) // no page was lent since each was looked at
	} else {
		q.postBulks(free)
	}
	if q.posted != from {
		q.tell(q.posted)
	}
}

// postBulks posts the bulks of free WQEs one by one. As long as the ring is half
// full it has patience with those whose pages are lent.
func (q *recvQueue) postBulks(free uint32) {
	pages, own := q.pages, q.pool.own
	for ; free >= minBulk; free -= minBulk {
		b := q.posted & q.mask / minBulk
		other := uint32(0)
		for _, n := range q.held[b*pages:][:pages] {
			if n >= uint32(len(own)) { // noHold
				other = 1
				break
			}
			other |= own[n] ^ ownHeld
		}
		if other != 0 && !q.replace(b, free <= (q.mask+1)/2) {
			return
		}
		if debugPosts != "" {
			q.checkBulk(b)
		}
		q.posted += minBulk
	}
}

// tell stores the doorbell records: how far completions were consumed, then how
// far WQEs are posted. There are never more completions than posted WQEs, or
// their strides, so that the completion queue cannot overrun meanwhile.
func (q *recvQueue) tell(posted uint32) {
	q.cq.consumed(q.cq.ci)
	q.rec.store(recordRQ, posted&0xffff)
	q.tally.doorbells++
}

func (q *recvQueue) fillStrides() {
	if q.retired {
		q.ring.ico.complete()
		q.ring.short = false
		return
	}
	if q.ring.fill() {
		q.tell(q.ring.posted)
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
func (q *recvQueue) idle() bool { return q.ring != nil && q.ring.posted == q.ring.head }

// half reports whether at least half of the ring is posted.
func (q *recvQueue) half() bool {
	if r := q.ring; r != nil {
		return r.posted-r.head >= (r.mask+1)/2
	}
	return q.posted-q.head >= (q.mask+1)/2
}

// visible reports whether there is a completion to take.
func (q *recvQueue) visible() bool {
	if q.minis.left() > 0 {
		return true
	}
	e, _ := q.cq.peek(q.cq.ci)
	return e != nil
}

// vacate gives the pages of a queue back that the device does not know any more,
// and makes its counts visible.
func (q *recvQueue) vacate() {
	held := q.pageMap()
	for i, n := range held {
		if n != noHold {
			q.pool.giveBack(n)
			held[i] = noHold
		}
	}
	q.publish()
}

// debugPosts, set at build time (-ldflags '-X main.debugPosts=on') or by tests,
// has every post checked against the sharing rule.
var debugPosts string

// replace makes bulk b ready whose pages are not all there and free. With patience
// it leaves pages that are lent as they are; without, these are replaced. It returns
// false when the bulk is not ready. What it did replace is written either way: the
// rest may come home by itself.
func (q *recvQueue) replace(b uint32, patience bool) (ready bool) {
	held := q.held[b*q.pages:][:q.pages]
	changed := false
	ready = true
	for i, n := range held {
		if n != noHold && !q.pool.busy(n) {
			continue
		}
		if ready = n == noHold || !patience; !ready {
			break
		}
		fresh, ok := q.pool.take()
		if ready = ok; !ok {
			q.tally.starved++
			break
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
	q.short = q.short || !ready // looked at again although nothing may come in meanwhile
	return ready
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
			if q.segs[w*q.perWQE+f] != dataSeg(uint32(fr.size), q.lkey, q.pool.addr(q.held[fr.page], uint32(fr.off))) {
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
			start := q.held[fr.page]<<logPage | uint32(fr.off)
			q.segs[at+f] = dataSeg(uint32(fr.size), q.lkey, q.pool.mem.iova+uint64(start))
			if f == 0 {
				q.starts[w] = start
			}
		}
	}
}

// poll takes up to budget completions and returns views of the frames, good
// until finish, and how many completions there were. What the device says is
// checked against what we posted.
func (q *recvQueue) poll(budget int) (packets []packet, done int) {
	budget = min(budget, len(q.batch))
	n, bytes := 0, uint64(0)
	for done < budget && !q.failed {
		if q.layout.linear() && q.ring == nil && q.minis.left() == 0 {
			k, b := q.viewPlain(q.batch[n : n+budget-done])
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
		size, slot, ok := q.place(e, w)
		if !ok {
			continue
		}
		q.tally.stripped += tagOf(e) & q.strip
		p := &q.batch[n]
		describe(p, e, size)
		if q.ring != nil {
			q.viewStrides(p, slot)
		} else {
			q.viewWhole(p, slot)
		}
		n++
		bytes += uint64(size)
	}
	q.account(n, bytes)
	return q.batch[:n], done
}

// viewPlain is the loop of poll for what there is most of: ordinary completions
// of a queue whose frames lie in one fragment, up to the first that is anything
// else. It looks at the completions first and then describes all, since one loop
// for both has more in hand than registers hold.
func (q *recvQueue) viewPlain(out []packet) (n int, bytes uint64) {
	slot, ci := q.head&q.mask, q.cq.ci
	n, bytes = q.dropPlain(min(len(out), int(q.mask+1-slot)))
	run, _ := q.cq.run(ci, n)
	if q.strip != 0 {
		q.tally.stripped += tagsOf(run)
	}
	q.view(out, run, slot)
	return n, bytes
}

// view describes the frames of a run that dropPlain has taken, which begins at slot.
// The device may have written the completions again since they were looked at, so
// sizes are held to the limit once more.
func (q *recvQueue) view(out []packet, run []cqe, slot uint32) {
	starts, all, limit := q.starts[slot:], q.pool.mem.b, q.limit
	out, starts = out[:len(run)], starts[:len(run)]
	for i := range run {
		p, at := &out[i], starts[i]
		describe(p, &run[i], min(be32word(run[i].byteCount), limit))
		b := all[at:]
		p.b = b[:p.size:p.size]
		p.slot, p.at, p.frags = slot+uint32(i), at, 1
	}
}

// drop takes up to budget completions and counts their frames: what poll does for
// a handler that looks at none, without building views.
func (q *recvQueue) drop(budget int) (done int) {
	n, bytes := 0, uint64(0)
	for done < budget && !q.failed {
		k, b := q.dropMany(budget - done)
		done, n, bytes = done+k, n+k, bytes+b
		if done == budget {
			break
		}
		e, w := q.next()
		if e == nil {
			break
		}
		done++
		if size, _, ok := q.place(e, w); ok {
			q.tally.stripped += tagOf(e) & q.strip
			n++
			bytes += uint64(size)
		}
	}
	q.account(n, bytes)
	return done
}

// account ends a poll.
func (q *recvQueue) account(packets int, bytes uint64) {
	q.tally.packets += uint64(packets)
	q.tally.bytes += bytes
}

// dropMany counts completions of one kind, one after another.
func (q *recvQueue) dropMany(most int) (n int, bytes uint64) {
	switch {
	case q.minis.left() == 0:
		if n, bytes = q.dropPlain(most); q.strip != 0 {
			q.countTags(n)
		}
	case q.ring == nil:
		n, bytes = q.minis.skim(min(most, int(q.posted-q.head)), q.limit)
		q.head += uint32(n)
		if q.strip != 0 {
			q.tally.stripped += uint64(n) * tagOf(&q.minis.whole)
		}
	}
	return n, bytes
}

// dropPlain counts ordinary completions, one after another, up to the first that
// is anything else.
func (q *recvQueue) dropPlain(most int) (n int, bytes uint64) {
	if q.ring != nil {
		return q.dropStrides(most)
	}
	head, mask, limit := q.head, tailMask(q.mask), q.limit
	run, owner := q.cq.run(q.cq.ci, min(most, int(q.posted-head)))
	want := tailWant(owner)
	for i := range run {
		e := &run[i]
		if (e.load()^(want|tailCount(head)))&mask != 0 {
			break
		}
		size := be32word(e.byteCount)
		if size > limit {
			break
		}
		bytes += uint64(size)
		head++
	}
	n = int(head - q.head)
	q.cq.ci += uint32(n)
	q.head = head
	return n, bytes
}

// dropStrides is dropPlain for a striding queue.
func (q *recvQueue) dropStrides(most int) (n int, bytes uint64) {
	r := q.ring
	head, stride, total, log := r.head, r.stride, uint32(1)<<r.layout.logStrides, r.layout.logStride
	mask, limit := tailMask(0xffff), q.limit
	run, owner := q.cq.run(q.cq.ci, most)
	want := tailWant(owner)
	for i := range run {
		e := &run[i]
		if head == r.posted || (e.load()^(want|tailCount(stride)))&mask != 0 {
			break
		}
		count := be32word(e.byteCount)
		size, took := count&(1<<strideShift-1), count>>strideShift
		if uint32(be16word(e.wqeID)) != head&r.mask || size > limit || took-1 >= total-stride || size > took<<log {
			break // also a filler: its mark makes took too large
		}
		if stride += took; stride == total {
			head, stride = head+1, 0
		}
		bytes += uint64(size)
		n++
	}
	q.cq.ci += uint32(n)
	r.head, r.stride = head, stride
	return n, bytes
}

// tagOf is 1 where the device took a tag out of the frame, or left one in.
func tagOf(e *cqe) uint64 { return uint64(e.info>>8) & 1 }

// countTags counts those of the n completions taken last, a run, whose frame's tag
// was taken out. Call it only where tags are.
func (q *recvQueue) countTags(n int) {
	run, _ := q.cq.run(q.cq.ci-uint32(n), n)
	q.tally.stripped += tagsOf(run)
}

// tagsOf is how many frames of a run have or had a tag.
//
//go:noinline
func tagsOf(run []cqe) (n uint64) {
	for i := range run {
		n += tagOf(&run[i])
	}
	return n
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
		q.cq.ci = ci + max(n, 1)
		if n == 0 {
			q.fail(cqeError{opcode: tailOpcode(w), counter: tailCounter(w)})
			return nil, 0
		}
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
		q.tally.fillerStrides += uint64(took)
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

// describe takes over what the completion says about a frame, whose size was checked.
func describe(p *packet, e *cqe, size uint32) {
	p.size = size
	p.hash, p.hashType, p.checksum = be32word(e.hash), e.hashType, be16word(e.checksum)
	p.timestamp, p.info = be64word(e.timestamp), e.info
}

// viewWhole points p at the frame in WQE slot, which is not longer than its
// fragments: the limit sees to that.
func (q *recvQueue) viewWhole(p *packet, slot uint32) {
	n := uint32(q.layout.frags)
	places := q.frags[slot*n:][:n]
	p.slot, p.at, p.frags = slot, q.starts[slot], 1
	for left := p.size; int(p.frags) < len(places) && left > uint32(places[p.frags-1].size); p.frags++ {
		left -= uint32(places[p.frags-1].size)
	}
	p.b = q.pool.cut(p.at, min(p.size, uint32(places[0].size)))
}

// viewStrides points p at the frame at position at of a striding queue. It may go
// on in the pages behind.
func (q *recvQueue) viewStrides(p *packet, at uint32) {
	off := at & (pageSize - 1)
	p.slot, p.at = at, q.ring.page(at)<<logPage|off
	p.frags = uint8((off+max(p.size, 1)-1)>>logPage) + 1
	p.b = q.pool.cut(p.at, min(p.size, pageSize-off))
}

// piece is where part i of a frame begins in the pool, and the most that it holds.
func (q *recvQueue) piece(p *packet, i uint32) (at, room uint32) {
	if q.ring != nil {
		if i > 0 {
			return q.ring.page(p.slot+i*pageSize) << logPage, pageSize
		}
		return p.at, pageSize - p.at&(pageSize-1)
	}
	fr := &q.frags[p.slot*uint32(q.layout.frags)+i]
	return q.held[fr.page]<<logPage | uint32(fr.off), uint32(fr.size)
}

// roomy is p.b with room to grow up to the end of its fragment.
func (q *recvQueue) roomy(p *packet) []byte {
	n := uint32(len(p.b))
	room := n
	switch r := q.ring; {
	case q.guest != nil:
		return q.guest.cut(p.at, p.slot)[:n]
	case r == nil:
		at, all := q.piece(p, 0)
		room = all - (p.at - at) // a program may have moved the frame's head
	case p.frags == 1: // the rest of its last stride
		room += -(p.at + n) & (1<<r.layout.logStride - 1)
	}
	return q.pool.cut(p.at, room)[:n]
}

// fragment returns part i of a frame; part 0 is p.b.
func (q *recvQueue) fragment(p *packet, i uint8) []byte {
	if i == 0 {
		return p.b
	}
	left := p.size - uint32(len(p.b))
	for f := uint8(1); ; f++ {
		at, room := q.piece(p, uint32(f))
		part := min(left, room)
		if f == i {
			return q.pool.cut(at, part)
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
