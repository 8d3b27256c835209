package main

// flameprobe.go owns giving a send queue BlueFlame: its page is made to combine
// stores, and then it is tried whether the device gets them in one piece. What is
// written how is in blueflame.go.
//
// The trial: work requests that do nothing, asking for a completion only in the
// copy that goes to the register. A completion tells that the copy was used. Those
// whose copy came apart, or met a device that had read the ring already, leave no
// trace; so there are several, and one more at the end that completes in any case.

import (
	"errors"
	"fmt"
	"time"
)

const (
	flameTrials = 32
	flameWait   = 2 * time.Millisecond // for a trial; a device answers in microseconds
	flameEnd    = 2 * time.Second      // for the last one
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
	works := false
	for range min(flameTrials, int(q.mask)) {
		if works, err = q.tryFlame(ctrlCQE, 0, flameWait); works || err != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	switch done, err := q.tryFlame(ctrlCQE, ctrlCQE, flameEnd); {
	case err != nil:
		return err
	case !done:
		return errors.New("BlueFlame: the send queue does not complete its first work request")
	case !works:
		return errNoFlame
	}
	return nil
}

// tryFlame posts a WQE that does nothing, with these flags in the copy and in the
// ring, and reports whether it is completed by then.
func (q *sendQueue) tryFlame(copied, ring uint8, wait time.Duration) (bool, error) {
	at := uint16(q.pi)
	w := &q.wqes[q.pi&q.mask]
	*w = wqeBlock{ctrlSeg(wqeNOP, at, q.n, 1, ring)}
	out := wqeBlock{ctrlSeg(wqeNOP, at, q.n, 1, copied)}
	q.pi++
	q.rec.store(recordSQ, q.pi&0xffff)
	q.flame.ring(&out, q.pi)
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Microsecond) {
		if e, tail := q.cq.peek(q.cq.ci); e != nil {
			q.cq.consumed(q.cq.ci + 1)
			if tailOpcode(tail) != cqeReq {
				return false, fmt.Errorf("BlueFlame: %w", decodeError(e, tail))
			}
			if tailCounter(tail) == at {
				q.ci = q.pi
				return true, nil
			}
			continue // of an earlier one, later than it was waited for
		}
		if time.Now().After(end) {
			return false, nil
		}
	}
}
