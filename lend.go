package main

// lend.go owns how received frames outlive their batch: lent to a send queue of the
// same goroutine, with no byte copied, or held by a consumer elsewhere. It does not
// own the batch (rxpath.go) or the count of who has a page (pagepool.go).
// Manual: chapter Completion Queues.

import "encoding/binary"

// lendPlain is poll and lend in one, for frames that are sent on as they are: it
// fills out from ordinary completions of a queue whose frames lie in one
// fragment, up to the first that is anything else, and returns how many. What
// else stands in the frames of out stays: nothing is to be done to them.
func (q *recvQueue) lendPlain(out []txFrame) int {
	return len(q.lendStarts(out))
}

// lendSwapped is lendPlain for frames that go back to where they came from: their
// addresses are exchanged.
func (q *recvQueue) lendSwapped(out []txFrame) int {
	starts := q.lendStarts(out)
	swapRun(starts, q.pool)
	return len(starts)
}

// lendStarts lends frames to out and says where they begin.
func (q *recvQueue) lendStarts(out []txFrame) (starts []uint32) {
	if !q.layout.linear() || q.ring != nil || q.minis.left() > 0 || q.failed {
		return nil
	}
	slot, p := q.head&q.mask, q.pool
	run, owner := q.cq.run(q.cq.ci, int(min(uint32(len(out)), q.posted-q.head, q.mask+1-slot)))
	starts = q.starts[slot:][:len(run)]
	n, bytes := lendRun(out[:len(run)], starts, run, p.own, &lendRules{want: tailWant(owner), mask: tailMask(q.mask), head: q.head,
		limit: q.limit, iova: p.mem.iova, last: uint32(len(p.mem.b) - cacheLine), id: p.id})
	q.head += uint32(n)
	q.cq.ci += uint32(n)
	q.lentAt = q.posted
	q.account(n, uint64(bytes))
	if q.strip != 0 {
		q.countTags(n)
	}
	return starts[:n]
}

// lendRun lends the frames of a run of completions, which begin at starts, up to
// the first that is not as expected. It is apart so that all it needs stays in
// registers.
//
//go:noinline
func lendRun(out []txFrame, starts []uint32, run []cqe, own []uint32, c *lendRules) (n int, bytes uint32) {
	out, starts = out[:len(run)], starts[:len(run)]
	if fours := len(run) / 4; wideLoops && fours > 0 {
		n, bytes = lendWide(&out[0], &starts[0], &run[0], fours, &own[0], c)
	}
	want, mask, head, limit, iova, last, id := c.want, c.mask, c.head, c.limit, c.iova, c.last, c.id
	for ; n < len(run); n++ {
		e, at := &run[n], starts[n]
		if (e.load()^(want|tailCount(head+uint32(n))))&mask != 0 {
			break
		}
		size := be32word(e.byteCount)
		if size > limit || at > last {
			break
		}
		page := at >> logPage
		own[page] += ownOne
		f := &out[n]
		f.addr, f.form, f.page = iova+uint64(at), txForm(size), id|pageRef(page)
		bytes += size
	}
	return n, bytes
}

// swapRun exchanges the addresses of frames that were lent and begin at starts,
// which are starts of cache lines too.
//
//go:noinline
func swapRun(starts []uint32, p *pagePool) {
	if wideLoops && len(starts) > 0 {
		swapWide(&starts[0], len(starts), &p.mem.b[0])
		return
	}
	for _, at := range starts {
		l := &p.lines[at/cacheLine]
		to, from := binary.LittleEndian.Uint64(l[:]), binary.LittleEndian.Uint64(l[6:])
		binary.LittleEndian.PutUint64(l[:], from)
		binary.LittleEndian.PutUint64(l[6:], to<<16>>16|from>>48<<48)
	}
}

// lend appends the pieces of a frame to out, to be sent by a queue of the same
// goroutine: they stay valid beyond finish until that queue returns them. size
// is what of the frame is to be sent, at most what roomy and the further
// fragments hold.
func (q *recvQueue) lend(out []txFrame, p *packet, size uint32) []txFrame {
	if p.frags == 1 {
		return append(out, q.lendWhole(p, size))
	}
	q.lentAt = q.posted
	first := len(out)
	for i := uint32(0); size > 0; i++ {
		at, room := q.piece(p, i)
		part := min(size, room)
		out = append(out, txFrame{addr: q.pool.mem.iova + uint64(at), form: txSize(part) | txMore, page: q.pool.lendOwn(at >> logPage)})
		size -= part
	}
	if len(out) > first {
		out[len(out)-1].form &^= txMore
	}
	return out
}

// lendWhole is lend for a frame in one piece.
func (q *recvQueue) lendWhole(p *packet, size uint32) txFrame {
	switch q.guest {
	case nil:
	case q.pool:
		q.pool.adopt(p.at >> logPage)
	default:
		return txFrame{addr: q.guest.mem.iova + uint64(p.at), form: txSize(size), page: q.guest.share(p.at >> logPage)}
	}
	q.lentAt = q.posted
	return txFrame{addr: q.pool.mem.iova + uint64(p.at), form: txSize(size), page: q.pool.lendOwn(p.at >> logPage)}
}

// hold appends one reference for each piece of a frame to out, for a consumer in
// another goroutine: the bytes stay valid beyond finish until it has given every
// one to the pool's release. It must take what it wants of packet with it.
func (q *recvQueue) hold(out []pageRef, p *packet) []pageRef {
	if q.guest != nil {
		return append(out, q.guest.share(p.at>>logPage))
	}
	q.lentAt = q.posted
	for i := range uint32(p.frags) {
		at, _ := q.piece(p, i)
		out = append(out, q.pool.lend(at>>logPage))
	}
	return out
}
