package main

// lend.go owns how received frames outlive their batch: lent to a send queue of the
// same goroutine, with no byte copied, or held by a consumer elsewhere. It does not
// own the batch (rxpath.go) or the count of who has a page (pagepool.go).

import "encoding/binary"

// lendPlain is poll and lend in one, for frames that are sent on as they are: it
// fills out from ordinary completions of a queue whose frames lie in one
// fragment, up to the first that is anything else, and returns how many. What
// else stands in the frames of out stays: nothing is to be done to them.
func (q *recvQueue) lendPlain(out []txFrame) int {
	run, starts := q.plainRun(len(out))
	lendRun(out[:len(run)], run, starts, q.pool)
	return len(run)
}

// lendSwapped is lendPlain for frames that go back to where they came from: their
// addresses are exchanged.
func (q *recvQueue) lendSwapped(out []txFrame) int {
	run, starts := q.plainRun(len(out))
	swapRun(starts[:len(run)], q.pool.lines)
	lendRun(out[:len(run)], run, starts, q.pool)
	return len(run)
}

// plainRun takes up to most completions of frames that will all be lent, and says
// where these begin.
func (q *recvQueue) plainRun(most int) (run []cqe, starts []uint32) {
	if !q.layout.linear() || q.ring != nil || q.minis.left() > 0 || q.failed {
		return nil, nil
	}
	slot, ci := q.head&q.mask, q.cq.ci
	n, bytes := q.dropPlain(min(most, int(q.mask+1-slot)))
	run, _ = q.cq.run(ci, n)
	q.lentAt = q.posted
	q.account(n, bytes)
	return run, q.starts[slot:]
}

// lendRun lends the frames of a run of completions, which begin at starts. It is
// apart so that all it needs stays in registers.
//
//go:noinline
func lendRun(out []txFrame, run []cqe, starts []uint32, p *pagePool) {
	iova, own, id := p.mem.iova, p.own, p.id
	run, starts = run[:len(out)], starts[:len(out)]
	for i := range out {
		at := starts[i]
		n := at >> logPage
		own[n] += ownOne
		f := &out[i]
		f.addr = iova + uint64(at)
		f.form = txForm(be32word(run[i].byteCount)) & txSizeMask
		f.page = id | pageRef(n)
	}
}

// swapRun exchanges the addresses of the frames that begin at starts, which are
// starts of cache lines too.
//
//go:noinline
func swapRun(starts []uint32, lines []memoryLine) {
	for _, at := range starts {
		l := &lines[at/cacheLine]
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
