package main

// txrecover.go owns the end of what a send queue has under way: whether it has
// stalled, how long it is out of service, its reset, and the count of what that loses.
// It does not own the commands (channel.go) nor what goes out meanwhile (txpath.go).
// Manual: chapters Send Queue, Completion Queues.

import "time"

// txTimeout is how long a completion may be missing. Linux waits 15 seconds; an
// appliance that forwards wants to know sooner.
const txTimeout = 5 * time.Second

// stalled reports whether the queue waits for a completion and has seen none for
// txTimeout. A queue that is only full of frames that go out slowly has not
// stalled: its completions come.
func (q *sendQueue) stalled(now time.Time) bool {
	if q.dead || q.mtail == q.mhead {
		q.since = time.Time{}
		return false
	}
	if q.seen != q.mtail || q.since.IsZero() {
		q.seen, q.since = q.mtail, now
		return false
	}
	return now.Sub(q.since) >= txTimeout
}

// owed is how many completions are missing that will come.
func (q *sendQueue) owed() uint32 {
	if q.dead {
		return 0
	}
	return q.mhead - q.mtail
}

// abandon counts as lost what was posted and not completed. Its pages stay where
// they are: the device may still read them.
func (q *sendQueue) abandon() {
	q.tally.dropped += uint64(q.posted - q.left - q.executed())
	q.left = q.posted
}

// die takes the queue out of service: it takes no frames and keeps the pages of
// those that the device may still read, until a later reset works. That is tried
// again at a time. What failed is kept: it tells what had left before.
func (q *sendQueue) die(again time.Time) {
	q.dead, q.again = true, again
}

// sever takes the queue out of service for good: its completions come no more, and it
// keeps the completion queue that it was made with. What it had under way is lost, and
// no handler waits for room in it. Pages that were not given back before, by a reset,
// stay where they are: the device may still read them.
func (q *sendQueue) sever() {
	q.abandon()
	q.dead, q.severed, q.full = true, true, false
	q.ci, q.mtail = q.pi, q.mhead
}

// ailment is why a queue is to be reset that is out of service.
func (q *sendQueue) ailment() string {
	if q.failed {
		return q.cause.Error()
	}
	return "out of service"
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
	q.tally.dropped += uint64(q.posted - q.left - q.executed())
	q.left = q.posted
	q.giveBack(q.fhead)
	q.pi, q.ci, q.last, q.mhead, q.mtail, q.flame.end = 0, 0, 0, 0, 0, 0
	q.failed, q.full, q.dead, q.since = false, false, q.severed, time.Time{}
	q.rec.store(recordSQ, 0)
	q.tally.recovered++
}

// executed counts the packets that left after the last completion and before the
// WQE that failed.
func (q *sendQueue) executed() (n uint32) {
	end := q.ci + uint32(q.cause.counter-uint16(q.ci))
	if !q.failed || end-q.ci > q.pi-q.ci {
		return 0
	}
	for at := q.ci; int32(end-at) > 0; {
		w := q.segs[(at&q.mask)*segsPerBlock:]
		ds := max(1, uint32(be64word(w[0].a)&maxDS))
		n += packetsIn(w[:min(ds, uint32(len(w)))])
		at += (ds + segsPerBlock - 1) / segsPerBlock
	}
	return min(n, q.posted-q.left)
}

// packetsIn is how many packets a WQE of ours stands for.
func packetsIn(w []seg) (n uint32) {
	switch opcode := uint8(be64word(w[0].a) >> 32); {
	case opcode == wqeSend:
		return 1
	case opcode == wqeMPSW:
		for s := 2; s < len(w); n++ {
			size := uint32(be64word(w[s].a) >> 32)
			if s++; size&dsInline != 0 {
				s += int(size&^dsInline+4+segment-1)/segment - 1
			}
		}
	case opcode == wqeLSO:
		header, payload := int(be64word(w[1].b)>>16&0xffff), uint32(0)
		for _, d := range w[2+(header-2+segment-1)/segment:] {
			payload += uint32(be64word(d.a) >> 32)
		}
		mss := uint32(uint16(be64word(w[1].a)))
		return (payload + mss - 1) / mss
	}
	return n
}
