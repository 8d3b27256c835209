package main

// rxpath.go owns receive queues: buffers laid out once over pages, the poll that
// turns completions into packet views, and the refill. It does not own the pages
// (pagepool.go), the completion ring (queue.go) or when to look (napi.go).
// Manual: chapters Receive Queue, Completion Queues.
//
// The memory scheme (Linux: legacy RQ of mlx5e). Every fragment of every WQE has
// its place in a page from the start; the map is built once and never written
// again. WQEs that share pages form a bulk and are always posted together: the
// first takes its pages, the last gives them back. A page of which nothing was
// lent stays where it is, so that refilling costs no store but the doorbell
// record.

import "fmt"

// packet is a view of one received frame. It is good until the queue's finish.
type packet struct {
	b         []byte // first fragment, cut where the frame or the fragment ends
	size      uint32 // of the whole frame, without FCS
	slot      uint32 // WQE in the ring
	hash      uint32
	timestamp uint64 // in the device's format
	tag       uint32 // flow tag of the rule that let it in
	checksum  uint16 // ones' complement sum over the IP packet
	vlan      uint16 // tag that the device stripped
	frags     uint8
	hashType  uint8
	headers   uint8 // l4_hdr_type[6:4] l3_hdr_type[3:2] has_vlan[0]
	ok        uint8 // l2_ok[0] l3_ok[1] l4_ok[2]
}

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
	oversize  counter // longer than the buffers
	starved   counter // bulks not posted for want of pages
	doorbells counter // stores to the receive doorbell record
	polls     counter
}

// rxTally is what has been counted and not yet published.
type rxTally struct {
	packets, bytes, wqeErr, oversize, starved, doorbells, polls uint64
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
	*t = rxTally{}
}

// recvQueue is one legacy cyclic receive queue. One goroutine owns it.
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
	pool   *pagePool
	batch  [napiBudget]packet
	failed bool // an error completion was seen
	short  bool // the last fill wanted pages that were not there
	tally  rxTally
	stats  rxStats
}

// newRecvQueue prepares memory for 2^log WQEs; nothing is posted yet.
func newRecvQueue(mem *arena, cq *compQueue, id int, layout rxLayout, log uint8, lkey uint32, u *undo) (*recvQueue, error) {
	n := 1 << log
	q := &recvQueue{cq: cq, layout: layout, lkey: lkey, mask: uint32(n - 1), perWQE: 1 << (layout.logStride - 4)}
	q.frags, q.pages = mapFragments(layout, n)
	total := int(q.pages) * (n / layout.bulk)
	var err error
	if q.buf, err = mem.alloc(n << layout.logStride); err != nil {
		return nil, fmt.Errorf("receive ring: %w", err)
	}
	u.add("receive ring", func() error { mem.free(q.buf); return nil })
	if q.rec, err = mem.newRecord(); err != nil {
		return nil, fmt.Errorf("receive ring: %w", err)
	}
	u.add("doorbell record", func() error { mem.freeRecord(q.rec); return nil })
	// Half as many pages again: what consumers may hold while the ring stays full.
	if q.pool, err = newPagePool(mem, id, total+total/2); err != nil {
		return nil, err
	}
	u.add("receive pages", func() error { q.pool.close(mem); return nil })
	q.segs = segments(q.buf)
	q.held = make([]uint32, total)
	for i := range q.held {
		q.held[i] = noHold
	}
	return q, nil
}

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

// noHold marks a place that has no page yet.
const noHold = ^uint32(0)

// ringMemory is what the queue's buffers take, in bytes.
func (q *recvQueue) ringMemory() int { return len(q.held) * pageSize }

// fill posts every bulk that it can; at start and after each poll.
func (q *recvQueue) fill() {
	bulk := uint32(q.layout.bulk)
	from := q.posted
	q.short = false
	for q.posted-q.head+bulk <= q.mask+1 && q.post(q.posted&q.mask/bulk) {
		q.posted += bulk
	}
	if q.posted != from {
		q.rec.store(recordRQ, q.posted&0xffff)
		q.tally.doorbells++
	}
}

// post makes bulk b ready: each of its pages is there and lent to nobody. It
// returns false, and has changed nothing that matters, when pages are short.
func (q *recvQueue) post(b uint32) bool {
	first := b * q.pages
	changed := false
	for i := first; i < first+q.pages; i++ {
		n := q.held[i]
		if n != noHold && !q.pool.busy(n) {
			continue
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
		q.held[i] = fresh
		changed = true
	}
	if changed {
		q.write(b)
	}
	return true
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
	ci, head := q.cq.ci, q.head
	n, size, errs, long := 0, uint64(0), uint64(0), uint64(0)
	for seen := 0; seen < budget && n < len(q.batch); seen++ {
		e, w := q.cq.peek(ci)
		if e == nil {
			break
		}
		ci++
		slot := head & q.mask
		if head == q.posted || uint32(tailCounter(w))&q.mask != slot || tailOpcode(w) != cqeRecv {
			errs++
			q.failed = true
			if head != q.posted {
				head++ // the WQE is spent all the same
			}
			continue
		}
		head++
		p := &q.batch[n]
		if !q.view(p, e, w, slot) {
			long++
			continue
		}
		n++
		size += uint64(p.size)
	}
	if done = int(ci - q.cq.ci); done == 0 {
		return nil, 0
	}
	q.cq.consumed(ci)
	q.head = head
	q.tally.packets += uint64(n)
	q.tally.bytes += size
	q.tally.wqeErr += errs
	q.tally.oversize += long
	q.tally.polls++
	return q.batch[:n], done
}

// view describes the frame in WQE slot. It returns false when the device claims
// more bytes than the WQE has room for.
func (q *recvQueue) view(p *packet, e *cqe, w uint64, slot uint32) bool {
	n := uint32(q.layout.frags)
	fr := &q.frags[slot*n]
	size := be32word(e.byteCount)
	first := uint32(fr.size) - uint32(q.layout.headroom)
	p.frags = 1
	if size > first {
		left := size - first
		first = size - left
		for f := uint32(1); left > 0; f++ {
			if f == n {
				return false
			}
			left -= min(left, uint32(q.frags[slot*n+f].size))
			p.frags++
		}
	}
	at := uint32(fr.off) + uint32(q.layout.headroom)
	end := at + min(first, size)
	p.b = q.pool.bytes(q.held[fr.page], at, end)
	p.size, p.slot = size, slot
	p.hash, p.hashType = be32word(e.hash), e.hashType
	p.checksum, p.ok = be16word(e.checksum), e.hdsExt
	p.headers, p.vlan = e.headers, be16word(e.vlan)
	p.timestamp, p.tag = be64word(e.timestamp), tailTag(w)
	return true
}

// lend appends the pieces of a frame to out, to be sent by a queue of the same
// goroutine: they stay valid beyond finish until that queue returns them. size
// is what of the frame is to be sent, at most all of it.
func (q *recvQueue) lend(out []txFrame, p *packet, size uint32) []txFrame {
	first := len(out)
	for f := uint32(0); size > 0; f++ {
		fr := &q.frags[p.slot*uint32(q.layout.frags)+f]
		off, room := uint32(fr.off), uint32(fr.size)
		if f == 0 {
			off, room = off+uint32(q.layout.headroom), room-uint32(q.layout.headroom)
		}
		n, part := q.held[fr.page], min(size, room)
		out = append(out, txFrame{addr: q.pool.addr(n, off), size: part, page: q.pool.lendOwn(n), kind: txMore})
		size -= part
	}
	if len(out) > first {
		out[len(out)-1].kind = 0
	}
	return out
}

// roomy is p.b with room to grow up to the end of its fragment.
func (q *recvQueue) roomy(p *packet) []byte {
	fr := &q.frags[p.slot*uint32(q.layout.frags)]
	return q.pool.bytes(q.held[fr.page], uint32(fr.off)+uint32(q.layout.headroom), uint32(fr.off)+uint32(fr.size))[:len(p.b)]
}

// fragment returns part i of a frame; part 0 is p.b.
func (q *recvQueue) fragment(p *packet, i uint8) []byte {
	if i == 0 {
		return p.b
	}
	n := uint32(q.layout.frags)
	left := p.size - uint32(len(p.b))
	for f := uint8(1); ; f++ {
		fr := &q.frags[p.slot*n+uint32(f)]
		part := min(left, uint32(fr.size))
		if f == i {
			return q.pool.bytes(q.held[fr.page], uint32(fr.off), uint32(fr.off)+part)
		}
		left -= part
	}
}

// contiguous returns the whole frame in one piece: in place when it is, else
// gathered into scratch, which must hold layout.room() bytes.
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
