package main

// rxrecover.go owns the end of what a receive queue has under way: when a failed one
// may be reset, its reset, and the count of what that loses. It does not own the
// commands (channel.go) nor what comes in meanwhile (rxpath.go).
// Manual: chapters Receive Queue, Completion Queues.

import "time"

// stuck reports whether UMRs that are to bring back a queue's only buffers have been
// under way for firstFill. It is asked now and then.
func (q *recvQueue) stuck(now time.Time) bool {
	if !q.idle() || q.failed || !q.ring.underWay() {
		q.bare = time.Time{}
		return false
	}
	if q.bare.IsZero() {
		q.bare = now
	}
	return now.Sub(q.bare) >= firstFill
}

// firstFill is how long the device may take to name a striding queue's first
// pages. Linux waits 20 seconds.
const firstFill = 2 * time.Second

// recoverGap is the least time between two recoveries of a queue: one that fails
// at once again must not keep firmware busy.
const recoverGap = 100 * time.Millisecond

// recoverable reports whether a failed queue may be reset now.
func (q *recvQueue) recoverable(now time.Time) bool {
	return q.failed && !q.retired && now.Sub(q.since) >= recoverGap
}

// reset starts the ring anew after the device has let go of it: what it had
// completed is lost, and nothing is posted. Pages stay where they are.
func (q *recvQueue) reset() {
	q.lose()
	q.head, q.posted, q.lentAt = 0, 0, 0
	if q.ring != nil {
		q.ring.reset()
	}
	q.failed, q.bare = false, time.Time{}
	q.rec.store(recordRQ, 0)
	q.tally.recovered++
}

// discard takes all that has come and returns how many packets that were, which
// whoever calls it counts as lost. What lies behind an error counts as its loss.
func (q *recvQueue) discard() (lost uint64) {
	packets, bytes := q.tally.packets, q.tally.bytes
	for q.drop(napiBudget) > 0 {
	}
	lost = q.tally.packets - packets
	q.tally.packets, q.tally.bytes = packets, bytes
	if q.failed {
		q.lose()
	}
	return lost
}

// lose gives up what was completed and not taken, and counts the frames among it.
func (q *recvQueue) lose() {
	lost, ci := q.framesLeft(), q.cq.ci
	for range q.cq.mask + 1 {
		e, w := q.cq.peek(ci)
		if e == nil {
			break
		}
		step := uint32(1)
		if tailFormat(w) != cqeCompressed {
			if tailOpcode(w) == cqeRecv && !q.fills(e.byteCount) {
				lost++
			}
		} else if n := q.minis.open(q.cq, ci, e, w); n > 0 {
			step, lost = n, lost+q.framesLeft()
		} else {
			lost++ // at least: the title makes no sense
		}
		ci += step
	}
	q.minis.next = q.minis.n
	q.cq.consumed(ci)
	q.tally.wqeErr += uint64(lost)
}

// framesLeft is how many frames of the session are still to come.
func (q *recvQueue) framesLeft() (n int) {
	for _, m := range q.minis.mini[q.minis.next:q.minis.n] {
		if !q.fills(m.byteCount) {
			n++
		}
	}
	return n
}

// fills reports whether a completion with that byte count only fills up a
// multi-packet WQE.
func (q *recvQueue) fills(count uint32) bool {
	return q.ring != nil && be32word(count)>>fillerBit != 0
}
