package main

// rebuild.go owns the replacement of receive queues while packets flow: by ones of
// another kind, striding or not, with compressed completions or not. It does not
// own the making of a queue (nic.go), how a channel polls two of them (channel.go)
// or where packets are led (steering.go).
// Manual: chapters Receive Queue, RQT (MODIFY_RQT).
//
// The order: first everything that can fail for want of something is made, the new
// queues of all channels, filled and ready. Each channel then polls two queues. One
// command leads the packets of a table to the new queues, all at once; each channel
// delivers what its old queue holds and from then on prefers the new one. Last the
// old queues are destroyed, after which their completion queues get nothing more;
// what these still hold is delivered, and the pages go back to the channel's pool.
// So no frame is lost and none of a flow overtakes another: old frames go before
// new ones, since packets are only ever led away from a queue that goes first.
//
// A failure before the tables change takes the new queues back, one while they
// change leads the packets back in the same way as they came. Only when that fails
// too both kinds of queue stay in use, which works, and the error says so.
//
// Assumed of silicon and not tested on it: a packet whose queue was looked up
// before MODIFY_RQT completed is in its queue within settleTime, and DESTROY_RQ
// completes after the last completion was written. A frame that is later than that
// is still delivered until the old queue is destroyed, then behind newer ones.

import (
	"fmt"
	"slices"
	"time"
)

const (
	// settleTime is how long a packet that the device has taken in may take to its
	// receive queue: a thousand times what it does.
	settleTime = time.Millisecond
	// drainTime is how long a channel's handler may refuse packets, because its
	// send queue is full, until the order of packets is given up. A send queue that
	// stalls is reset long before.
	drainTime = 2 * txTimeout
	lookTime  = 20 * time.Microsecond // between looks at what a channel does
)

// rebuildRX replaces every channel's receive queue by one of the kind and sizes in
// p, which become the NIC's. Channels must have their handlers. One goroutine may
// call it at a time, and no channel's own.
func (n *nic) rebuildRX(p params) error {
	for _, c := range n.channels {
		if c.handler == nil {
			return wishf("receive queues can be replaced while the channels run, not before")
		}
	}
	if err := n.finishRX(); err != nil { // what was left over the last time
		return err
	}
	moves := make(map[uint32]uint32, len(n.channels))
	for _, c := range n.channels {
		was, _ := c.queues()
		q, err := n.prepareRX(c, &p)
		if err != nil {
			return n.abandonRX(fmt.Errorf("channel %d: %w", c.index, err))
		}
		moves[was.n] = q.n
	}
	if err := n.steering.redirect(moves); err != nil {
		return n.leadBack(moves, err, p)
	}
	n.changeOver()
	n.params = p
	if err := n.finishRX(); err != nil {
		n.notify("receive queues were replaced, but an old one stays until it is tried again: %v", err)
	}
	return nil
}

// replace replaces the receive queues after the completion queue of one has failed. It is
// for who else replaces receive queues, since one goroutine may at a time. What the device
// had taken in and could complete nowhere is counted by nobody.
func (h *health) replace(now time.Time) {
	if now.Before(h.again) || !h.stale.Swap(false) {
		return
	}
	h.again = now.Add(watchEvery)
	if err := h.n.rebuildRX(h.n.params); err != nil {
		h.stale.Store(true)
		h.again = now.Add(txTimeout)
		h.n.notify("receive queues cannot be replaced, tried again in %v: %v", txTimeout, err)
		return
	}
	h.n.notify("receive queues are replaced and work again")
}

// queues are channel c's receive queues: the preferred one, and the other if any.
func (c *channel) queues() (rx, next *recvQueue) {
	c.do(func() { rx, next = c.rx, c.next })
	return rx, next
}

// prepareRX makes a further queue for channel c, fills it and readies it. At least
// half of it must be filled, lest it loses what the old one would not.
func (n *nic) prepareRX(c *channel, p *params) (*recvQueue, error) {
	q, err := n.newRX(c, p)
	if err != nil {
		if again := c.discard(c.made[len(c.made)-1]); again != nil {
			err = fmt.Errorf("%w; then %w", err, again)
		}
		return nil, err
	}
	c.do(func() { c.join(q) })
	filled := func() (ok bool) {
		c.do(func() {
			q.fill()
			ok = q.half()
		})
		return ok
	}
	for end := time.Now().Add(firstFill); !filled(); time.Sleep(lookTime) {
		if time.Now().After(end) {
			return nil, errNotFilled
		}
	}
	if err := n.fw.modifyRQ(q.n, queueReset, queueReady); err != nil {
		return nil, fmt.Errorf("receive queue: %w", err)
	}
	return q, nil
}

// errNotFilled is returned where a new ring could not be filled to its half.
var errNotFilled = fmt.Errorf("a new receive queue could not be filled within %v: too many packets are held, or the device does not complete UMR work requests", firstFill)

// discard takes back what a list has of a queue. What fails stays, with what is
// below it, for the next time.
func (c *channel) discard(u *undo) error {
	if err := u.back(); err != nil {
		return err
	}
	c.made = slices.DeleteFunc(c.made, func(other *undo) bool { return other == u })
	return nil
}

// abandonRX takes the queues back that channels do not prefer, because of err.
func (n *nic) abandonRX(err error) error {
	if again := n.finishRX(); again != nil {
		return fmt.Errorf("%w; then %w", err, again)
	}
	return err
}

// leadBack leads packets back to where they went before some of the tables changed
// as moves says, because of err. The queues are then as they were, or n's are p.
func (n *nic) leadBack(moves map[uint32]uint32, err error, p params) error {
	if !n.steering.leadsTo(moves) {
		return n.abandonRX(err)
	}
	n.changeOver()
	back := make(map[uint32]uint32, len(moves))
	for from, to := range moves {
		back[to] = from
	}
	if again := n.steering.redirect(back); again != nil {
		n.params = p // the preferred queues'
		return fmt.Errorf("%w; then %w: receive queues of both kinds stay in use until this is tried again", err, again)
	}
	n.changeOver()
	return n.abandonRX(err)
}

// changeOver has every channel deliver what its queue holds, and then prefer the
// other one.
func (n *nic) changeOver() {
	for _, c := range n.channels {
		n.drain(c)
	}
	time.Sleep(settleTime)
	for _, c := range n.channels {
		n.drain(c)
		c.do(c.prefer)
	}
}

// drain has channel c deliver what its preferred queue holds now.
func (n *nic) drain(c *channel) {
	empty := false
	for end := time.Now().Add(drainTime); !empty && time.Now().Before(end); {
		if c.do(func() { empty = c.deliver() }); !empty {
			time.Sleep(lookTime)
		}
	}
}

// finishRX destroys the queues that channels do not prefer, after leading away what
// still goes there.
func (n *nic) finishRX() error {
	moves, back, others := map[uint32]uint32{}, map[uint32]uint32{}, make([]*recvQueue, len(n.channels))
	for i, c := range n.channels {
		rx, next := c.queues()
		if others[i] = next; next != nil {
			moves[next.n], back[rx.n] = rx.n, next.n
		}
	}
	if n.steering.leadsTo(back) {
		n.changeOver() // packets leave a queue that goes first
		err := n.steering.redirect(moves)
		if n.changeOver(); err != nil {
			return err
		}
	}
	for i, c := range n.channels {
		if others[i] == nil {
			continue
		}
		if err := n.retire(c, others[i]); err != nil {
			return fmt.Errorf("channel %d: %w", c.index, err)
		}
	}
	return n.sweep()
}

// sweep takes back what is left of queues that are no channel's any more.
func (n *nic) sweep() error {
	for _, c := range n.channels {
		rx, _ := c.queues()
		for _, u := range slices.Clone(c.made) {
			if u == rx.undo {
				continue
			}
			if err := c.discard(u); err != nil {
				return fmt.Errorf("channel %d: %w", c.index, err)
			}
		}
	}
	return nil
}

// retire destroys q, which channel c does not prefer and no packet is led to,
// delivers what it holds and gives its pages back.
func (n *nic) retire(c *channel, q *recvQueue) error {
	if err := n.stopFilling(c, q); err != nil {
		return err
	}
	if err := q.undo.last(); err != nil {
		return err
	}
	empty := false
	for end := time.Now().Add(drainTime); !empty && time.Now().Before(end); {
		if c.do(func() { empty = c.deliverRest() }); !empty {
			time.Sleep(lookTime)
		}
	}
	c.do(func() { c.leave(q) })
	n.moder.settle(&c.adapt, q.cq.n)
	return c.discard(q.undo)
}

// stopFilling waits until no UMR is under way for q, which gets no more pages: its
// key may not go before.
func (n *nic) stopFilling(c *channel, q *recvQueue) error {
	for end := time.Now().Add(firstFill); ; time.Sleep(lookTime) {
		var waits, failed bool
		c.do(func() {
			q.retired = true
			q.fill()
			if q.ring != nil {
				waits, failed = q.ring.underWay(), q.ring.ico.failed
			}
		})
		switch {
		case !waits:
			return nil
		case failed:
			var err error
			if c.do(func() { err = n.resetICO(c) }); err != nil {
				return fmt.Errorf("control send queue: %w", err)
			}
		case time.Now().After(end):
			return errNoFill
		}
	}
}
