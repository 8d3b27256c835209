package main

// flameprobe.go owns giving a send queue BlueFlame: its page is made to combine
// stores, and then it is tried whether the device gets them in one piece. What is
// written how is in blueflame.go.
//
// The trial: a work request that does nothing and asks for a completion only in the
// copy that goes to the register. A completion tells that the copy was used. One
// whose copy came apart, or met a device that had read the ring already, leaves no
// trace; so another follows that completes in any case, and there are several tries.
// Manual: chapters "UAR page" and "BlueFlame".

import (
	"errors"
	"fmt"
	"time"
)

const (
	flameTrials = 32
	flameWait   = 2 * time.Millisecond // for a trial; a device answers in microseconds
	flameEnd    = 2 * time.Second      // for what completes in any case
)

var errNoFlame = wishf("-blueflame: stores to the doorbell page do not combine: the device got none of %d work requests in one piece. "+
	"The machine (or the one it is a guest of) maps it uncached all the same; run without", flameTrials)

// light gives q BlueFlame with buffers of so many bytes. The queue is ready and has
// never been used.
func (q *sendQueue) light(dev device, buffer int, u *undo) error {
	restore, err := dev.combine(int(q.uarPage))
	if err != nil {
		return wishf("-blueflame: %v", err)
	}
	u.add("combined stores", restore)
	q.flame = newFlame(q.uar, buffer)
	for range flameTrials {
		if works, err := q.tryFlame(); works || err != nil {
			return err
		}
	}
	return errNoFlame
}

// tryFlame reports whether the device used the copy of a WQE.
func (q *sendQueue) tryFlame() (works bool, err error) {
	q.postTrial(0)
	if _, works, err = q.flameAnswer(flameWait); works || err != nil {
		q.ci = q.pi
		return works, err
	}
	for last := q.postTrial(ctrlCQE); ; works = true { // what comes before it is late
		switch at, ok, err := q.flameAnswer(flameEnd); {
		case err != nil:
			return false, err
		case !ok:
			return false, errors.New("BlueFlame: the send queue does not complete its first work request")
		case at == last:
			q.ci = q.pi
			return works, nil
		}
	}
}

// postTrial posts a WQE that does nothing: its copy asks for a completion, what
// stands in the ring does if flags say so. It returns the WQE's counter.
func (q *sendQueue) postTrial(flags uint8) (at uint16) {
	at = uint16(q.pi)
	q.wqes[q.pi&q.mask] = wqeBlock{ctrlSeg(wqeNOP, at, q.n, 1, flags)}
	out := wqeBlock{ctrlSeg(wqeNOP, at, q.n, 1, ctrlCQE)}
	q.pi++
	q.rec.store(recordSQ, q.pi&0xffff)
	q.flame.ring(&out, q.pi)
	return at
}

// flameAnswer waits for a completion and returns its WQE's counter.
func (q *sendQueue) flameAnswer(wait time.Duration) (at uint16, ok bool, err error) {
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Microsecond) {
		e, tail := q.cq.peek(q.cq.ci)
		switch {
		case e != nil && tailOpcode(tail) != cqeReq:
			return 0, false, fmt.Errorf("BlueFlame: %w", decodeError(e, tail))
		case e != nil:
			q.cq.consumed(q.cq.ci + 1)
			return tailCounter(tail), true, nil
		case time.Now().After(end):
			return 0, false, nil
		}
	}
}
