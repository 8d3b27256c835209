package main

// xskbind.go owns how a socket comes to a channel's queues and leaves them: what is
// checked before anything is touched, and in which order device, channel and
// memory let go. It does not own what a socket does (xsk.go) nor who asks for it
// (xskserve.go, xskwork.go).
// Manual: chapters Receive Queue, Send Queue (states).
//
// Attaching changes no queue state: the receive queue is ready all the time, with
// nothing posted while nobody is there. Detaching is: the channel stops looking at
// the rings; the device lets go of both queues (error, reset); what was under way
// is counted; the queues are ready again, and empty. Only then may the UMEM be
// unmapped. The channel's other queues go on all the while.

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// xskChannel finds the channel of socket queue number i. Sockets are counted from 0
// on, and as rules count them behind the regular queues: both numbers will do, since
// a regular queue has no socket of its own. (The queue of control traffic has
// neither.)
func (n *nic) xskChannel(i int) (*channel, error) {
	q := 0 // by what there is: params may be written meanwhile
	for q < len(n.channels) && n.channels[q].xsk != nil {
		q++
	}
	switch {
	case q == 0:
		return nil, wishf("this NIC was opened without socket queues (-xsk-listen or -datapath xsk makes them)")
	case i < 0 || i >= 2*q:
		return nil, wishf("queue %d: there are 0 to %d, or as rules count them %d to %d", i, q-1, q, 2*q-1)
	}
	return n.channels[i%q], nil
}

// checkXSK finds what keeps a socket with UMEM u from channel c.
func (c *channel) checkXSK(u *umem, multi bool) error {
	if c.xsk.recv.piecesFor(u, multi) != 0 {
		return nil
	}
	most, hint := u.largestMTU(1), ""
	if u.headroom > 0 {
		hint += ", more with less headroom (-xsk-headroom)"
	}
	if u.frame < maxUMEMFrame {
		hint += fmt.Sprintf(", or frames of %d bytes (-xsk-frame)", maxUMEMFrame)
	}
	switch {
	case multi:
		most, hint = u.largestMTU(int(c.xsk.recv.perWQE)), ""
	case c.xsk.recv.perWQE > 1:
		hint += ", or multi-buffer takes several frames a packet (-xsk-multi-buffer)"
	}
	return wishf("MTU %d is too large for a UMEM of frames of %d bytes with a headroom of %d: it can be up to %d (-mtu)%s",
		c.xsk.mtu, u.frame, u.headroom, most, hint)
}

// attachXSK gives channel c's queues to socket s.
func (c *channel) attachXSK(s *xskSocket) (err error) {
	if err := c.checkXSK(s.umem, s.multi); err != nil {
		return err
	}
	if err := c.reserveXSK(s.umem, s.multi); err != nil {
		return err
	}
	return c.bindXSK(s)
}

// errHasSocket ends with the socket that has the queue.
var errHasSocket = errors.New("has a socket already")

// reserveXSK keeps channel c's queues for a socket with UMEM u that is yet to be made,
// which takes memory. Then bindXSK or freeXSK follows.
func (c *channel) reserveXSK(u *umem, multi bool) (err error) {
	c.do(func() {
		if c.xsk.sock != nil || c.xsk.leaving || c.xsk.held {
			err = fmt.Errorf("queue %d %w", c.index, errHasSocket)
			return
		}
		if err = c.xsk.refusesSocket(u, multi); err == nil {
			c.xsk.held = true
		}
	})
	return err
}

func (c *channel) freeXSK() { c.do(func() { c.xsk.held = false }) }

// bindXSK gives the queues that were reserved to socket s, which checkXSK has let
// through; a program may have come since. Where it fails they stay reserved.
func (c *channel) bindXSK(s *xskSocket) (err error) {
	c.do(func() {
		if err = c.xsk.refusesSocket(s.umem, s.multi); err != nil {
			return
		}
		c.xsk.held = false
		c.xsk.attach(s)
		c.xsk.refill()
	})
	return err
}

// detachXSK takes channel c's queues from its socket. When it returns an error the
// device may still use the UMEM, which must then stay mapped until the NIC is
// closed.
func (c *channel) detachXSK() error {
	q := c.xsk
	c.do(func() { q.detach() })
	steps := []struct {
		what string
		do   func() error
	}{
		{"receive queue", func() error { return c.n.resetRecv(q.recv.n) }},
		{"send queue", func() error { return c.xskTo.resetSend(q.tx.n) }},
		{"XDP send queue", c.callHome},
		{"rings", func() error { c.do(q.reset); return nil }},
		{"receive queue", func() error { return c.n.fw.modifyRQ(q.recv.n, queueReset, queueReady) }},
		{"send queue", func() error { return c.xskTo.fw.modifySQ(q.tx.n, queueReset, queueReady) }},
	}
	for i, s := range steps {
		if err := s.do(); err != nil {
			if i > 3 { // the device has let go: the queue alone is lost
				c.n.notify("queue %d's socket: %s does not become ready again: %v", c.index, s.what, err)
				return nil
			}
			return fmt.Errorf("taking a socket from queue %d: %s: %w", c.index, s.what, err)
		}
	}
	c.do(func() { q.leaving = false })
	return nil
}

// callHome waits until no other queue sends from the socket's frames any more; the
// one that still does after a while is reset.
func (c *channel) callHome() error {
	out := uint32(0)
	for end := time.Now().Add(time.Second); ; time.Sleep(100 * time.Microsecond) {
		c.do(func() {
			if out = c.xsk.out; out > 0 {
				c.complete(c.n, c.xdp, napiBudget)
			}
		})
		if out == 0 {
			return nil
		}
		if time.Now().After(end) {
			break
		}
	}
	c.do(func() {
		c.n.recoverTX(c.xdp, "a socket whose frames it sends leaves")
		out = c.xsk.out
	})
	if out > 0 {
		return fmt.Errorf("%d frames are not given back", out)
	}
	return nil
}

// forwardXSK has channel c's socket send through another NIC.
func (n *nic) forwardXSK(c *channel, to *nic) (err error) {
	own := c.xsk.tx
	if c.xsk.tx, err = to.newSQ(to.channels[c.index], &pagePool{}, to.params.flags.xdpTxMPWQE); err != nil {
		return err
	}
	c.xsk.tx.name += " of a socket on another port"
	c.xskTo = to
	c.cqs = slices.DeleteFunc(c.cqs, func(q *compQueue) bool { return q == own.cq })
	return nil
}

// pairXSK has the sockets of two NICs send through each other.
func pairXSK(x, y *nic) error {
	for i := range min(x.params.queues, y.params.queues) {
		if err := x.forwardXSK(x.channels[i], y); err != nil {
			return err
		}
		if err := y.forwardXSK(y.channels[i], x); err != nil {
			return err
		}
	}
	return nil
}
