package main

// coalesce.go owns changing the moderation of a running NIC: of all its completion
// queues, or of none. It does not own what moderation is nor the adaptive kind of it
// (moderation.go), nor the words for it (ethtool.go).
// Manual: chapter Completion Queues (moderation), MODIFY_CQ.
//
// What params say is in force on every queue. A queue that firmware refuses to change
// ends the change, and what was changed before it is put back. Where firmware refuses
// that too, or gives no answer at all, params say what was: which then is not so of
// every queue until a change has worked. The next one asks firmware again even when
// it changes nothing.

import (
	"errors"
	"fmt"
)

// movesPeriod is the condition of both flags for where moderation starts.
func movesPeriod(c caps) bool { return c.moderation && c.moderMode }

// moderSetting is all that a user can set of moderation.
type moderSetting struct {
	moder    [2]moderation // of receive and send completions
	adaptive bool
	fromCQE  [2]bool // where the period starts
}

// received is the part of it that is about receive completions.
func (s *moderSetting) received() rxModer {
	return rxModer{adaptiveMode(s.adaptive, s.fromCQE[0]), s.moder[0], s.fromCQE[0]}
}

func (n *nic) moderSetting() moderSetting {
	p := &n.params
	return moderSetting{p.moder, p.adaptive, [2]bool{p.flags.rxCQEModer, p.flags.txCQEModer}}
}

// setCoalesce puts moderation of receive and send completions in force on a
// running NIC. With adaptive the load changes that of receive from there on. One
// goroutine may call it at a time. (ethtool -C.)
func (n *nic) setCoalesce(m [2]moderation, adaptive bool) error {
	if !n.caps.moderation {
		return wishf("-coalesce: the device does not moderate completions")
	}
	to := n.moderSetting()
	to.moder, to.adaptive = m, adaptive
	return n.setModeration(to)
}

// setModerFlags is setPrivFlag for the flags that are about where the period starts.
// Who has the default of one place gets that of the other.
func (n *nic) setModerFlags(flags privFlags) error {
	to := n.moderSetting()
	if was := index(to.fromCQE[0]); to.moder[0] == defaultRxModer[was] {
		to.moder[0] = defaultRxModer[index(flags.rxCQEModer)]
	}
	to.fromCQE = [2]bool{flags.rxCQEModer, flags.txCQEModer}
	return n.setModeration(to)
}

// index is a flag as a place in a pair.
func index(on bool) int {
	if on {
		return 1
	}
	return 0
}

// setModeration changes all queues or none.
func (n *nic) setModeration(to moderSetting) error {
	was := n.moderSetting()
	var back undo
	if err := n.moderate(&was, &to, &back); err != nil {
		if again := putBack(&back, err); again != nil {
			n.moder.torn = true
			err = fmt.Errorf("%w; then %w: not every queue has what is shown, until a change works", err, again)
		}
		return err
	}
	p := &n.params
	p.moder, p.adaptive, p.flags.rxCQEModer, p.flags.txCQEModer = to.moder, to.adaptive, to.fromCQE[0], to.fromCQE[1]
	n.moder.torn = false
	return nil
}

// moderate changes queue after queue. A step of back comes before its change, for one
// that fails may have changed one of two queues.
func (n *nic) moderate(was, to *moderSetting, back *undo) error {
	moves := movesPeriod(n.caps)
	for _, c := range n.channels {
		what := fmt.Sprintf("moderation of receive queue %d", c.index)
		from := n.moder.inForce(&c.adapt, was.received())
		back.add(what, func() error { return n.moder.restore(&c.adapt, from, moves) })
		if err := n.moder.set(&c.adapt, to.received(), moves); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, q := range c.moderated() {
			what, fw := fmt.Sprintf("moderation of send queue %d", c.index), n.firmwareOf(c, q)
			back.add(what, func() error { return moderate(fw, q.cq.n, was.moder[1], was.fromCQE[1], moves) })
			if err := moderate(fw, q.cq.n, to.moder[1], to.fromCQE[1], moves); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	return nil
}

// moderated are the send queues of c that are, a socket's among them.
func (c *channel) moderated() []*sendQueue {
	queues := c.sendQueues()
	if c.xsk != nil {
		queues = append(queues, c.xsk.tx)
	}
	return queues
}

// firmwareOf is the firmware of the NIC that c's send queue q belongs to.
func (n *nic) firmwareOf(c *channel, q *sendQueue) firmware {
	switch {
	case q == c.forward:
		return c.peer.fw
	case c.xsk != nil && q == c.xsk.tx:
		return c.xskTo.fw
	}
	return n.fw
}

// putBack does what it can of back because of err, and returns the first failure.
// Firmware that has not answered is not asked again: each question would take as long.
func putBack(back *undo, err error) (first error) {
	for {
		var refused *cmdError
		switch answered := errors.As(err, &refused); {
		case !answered && first == nil:
			return errNotPutBack
		case !answered || len(back.steps) == 0:
			return first
		}
		if again := back.last(); again != nil {
			back.steps = back.steps[:len(back.steps)-1]
			if err = again; first == nil {
				first = again
			}
		}
	}
}

var errNotPutBack = errors.New("what was changed before is not put back")
