package model

// hold.go owns whom a lossless wire waits for. A real port waits for nobody: what
// finds no buffer is lost and counted as out of buffer. The emulated wire that gives
// frames as fast as they are taken would then lose most of them, so it waits, but
// only for a host that is at work on the queue. It does not own what becomes of a
// frame that nobody waits for (receive.go).
// Manual: chapter "Receive queue".
//
// The device knows nothing of who is behind a queue, but sees enough:
//
//   - A queue that has had no buffer since it first became ready is not waited for:
//     nobody has begun to use it (a socket queue that nobody is attached to).
//   - A queue whose completions the host has not all taken is waited for, however
//     long: the host has received frames to work off, and new buffers come when it
//     has. So is a queue of a virtual machine that is paused.
//   - A host that has taken everything and posted nothing (a socket whose client is
//     stopped or dead; pages that others hold), or a queue that is not ready (it is
//     being reset), may hold the wire for a share of the time alone: holdShare of it,
//     of which it can save up holdMost, and holdAnew where it was reset and is ready
//     without a buffer (a client has left; or a queue recovers while its pages are
//     with others). When that is used up its frames pass by as out of buffer until it
//     has a buffer again.
//
// So a queue that is served loses nothing, and one that is not, whatever its host
// does, costs all others holdMost once and holdShare of the time.

import "time"

const (
	holdShare = 16 // one part in so many
	holdMost  = 250 * time.Millisecond
	holdAnew  = 50 * time.Millisecond
	// holdStep is the most that passes between two looks of a device that runs, which
	// sleeps for a millisecond at the longest: more is not the host's fault.
	holdStep = 2 * time.Millisecond
)

// hold is how long a receive queue may still hold the wire.
type hold struct {
	live  bool // it is waited for at all
	used  bool // it has been ready
	waits bool // a frame was waiting when at was set
	left  time.Duration
	at    time.Time // of the last look; zero before the first
}

// newHold is that of a new queue: one that is being set up is waited for.
func newHold() hold { return hold{live: true, left: holdMost} }

// ready notes that the queue left the reset state.
func (h *hold) ready() {
	if !h.used {
		h.used, h.live = true, false // until it has a buffer
	}
	h.left = min(h.left, holdAnew)
}

// spend takes the time since the last look off what is left, or adds its share
// where no frame was waiting meanwhile. It reports whether the wire waits on.
func (h *hold) spend(now time.Time) bool {
	step := min(max(now.Sub(h.at), 0), holdStep)
	switch {
	case h.at.IsZero():
	case h.waits:
		h.left -= step
	default:
		h.left = min(h.left+max(now.Sub(h.at), 0)/holdShare, holdMost)
	}
	h.at = now
	h.waits = h.left > 0
	h.live = h.waits
	return h.waits
}

// mustWait reports whether a frame can't be delivered yet: a queue it goes to
// has no buffer, and is waited for.
func (d *Device) mustWait(verdict walkVerdict, f []byte) bool {
	if verdict != walkHit {
		return false
	}
	for i := range d.work.dests {
		x := &d.work.dests[i]
		b := f
		if x.frame != nil {
			b = x.frame
		}
		if x.sure = d.ready(x.rq, x.rq.length(b)); x.sure {
			x.rq.hold.live, x.rq.hold.waits = true, false
			continue
		}
		if d.holds(x.rq) {
			x.rq.starved = true
			return true
		}
	}
	return false
}

// holds reports whether q, which has no buffer, may hold the wire now.
func (d *Device) holds(q *rq) bool {
	h := &q.hold
	switch {
	case !h.live:
		return false
	case q.state == rqRDY && d.behind(q):
		h.waits = false
		return true
	}
	return h.spend(d.work.now)
}

// behind reports whether the host has not taken all completions of q yet.
func (d *Device) behind(q *rq) bool {
	c := d.cqs.get(q.cqn)
	if c == nil || c.failed {
		return false
	}
	if c.session.n > 0 {
		return true
	}
	ci, ok := d.loadRecord(&c.run.rec, c.dbr, recCQConsumer)
	return ok && (c.pi-ci)&ci24 != 0
}
