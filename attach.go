package main

// attach.go owns attaching programs to channels and detaching them while packets
// flow, and making what they need. It does not own what a program is (xdp.go) or
// what becomes of its verdicts (verdicts.go).
//
// A program is prepared for all channels first: queues are made, limits are
// checked. Only then does each channel take it over, between two polls, so that
// every frame is seen by one program, the old one or the new one, whole.

import (
	"fmt"
	"strconv"
	"strings"
)

// xdpProgramMaker makes a channel's own copy of a program.
type xdpProgramMaker func(c *channel) (xdpProgram, error)

// attach puts a program in front of every channel's handler, in the place of the
// one that is there; nil takes that away. When it returns no poll runs the old one
// any more. Control may call it while packets flow, one goroutine at a time.
func (n *nic) attach(program xdpProgramMaker) error {
	works, err := n.prepareWorks(program)
	if err == nil {
		err = n.expectPrograms(program != nil)
	}
	if err != nil {
		n.settleSockets()
		return err
	}
	for i, c := range n.channels {
		c.do(func() { c.work = works[i] })
	}
	n.settleSockets()
	n.params.xdp = program != nil
	return nil
}

// prepareWorks makes each channel's copy of a program, nothing where there is none.
func (n *nic) prepareWorks(program xdpProgramMaker) ([]*xdpWork, error) {
	works := make([]*xdpWork, len(n.channels))
	if program == nil {
		return works, nil
	}
	if err := n.readyForXDP(); err != nil {
		return nil, err
	}
	for i, c := range n.channels {
		p, err := program(c)
		if err != nil {
			return nil, err
		}
		works[i] = newXDPWork(p)
	}
	return works, nil
}

// expectPrograms makes sure that no socket is attached whose packets a program cannot
// see, nor comes meanwhile.
func (n *nic) expectPrograms(yes bool) (err error) {
	for _, c := range n.channels {
		if !yes || c.xsk == nil {
			continue
		}
		c.do(func() {
			if err = c.xsk.refusesProgram(); err == nil {
				c.xsk.judged = true
			}
		})
		if err != nil {
			return fmt.Errorf("queue %d: %w", c.index, err)
		}
	}
	return nil
}

// settleSockets lets such sockets come to the queues that have no program.
func (n *nic) settleSockets() {
	for _, c := range n.channels {
		if c.xsk != nil {
			c.do(func() { c.xsk.judged = c.work != nil })
		}
	}
}

// readyForXDP checks that programs can work here and makes what they need where it
// is not there yet: each channel's send queue for answers. It changes nothing when
// it fails.
func (n *nic) readyForXDP() error {
	if err := n.params.refusesXDP(); err != nil {
		return err
	}
	if n.channels[0].xdp != nil {
		return nil
	}
	var u undo
	queues := make([]*sendQueue, len(n.channels))
	err := n.apart(&u, func() (err error) {
		for i, c := range n.channels {
			if queues[i], err = n.newXDP(c); err != nil {
				return fmt.Errorf("channel %d: XDP: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		if again := u.run(); again != nil {
			err = fmt.Errorf("%w; then %w", err, again)
		}
		return err
	}
	for i, c := range n.channels {
		c.do(func() { c.takeXDP(queues[i]) })
	}
	n.extra.add("XDP send queues", u.run)
	return nil
}

// apart collects what f makes in u, not among what opening the NIC has made.
func (n *nic) apart(u *undo, f func() error) error {
	opened := n.undo
	n.undo = undo{}
	err := f()
	*u, n.undo = n.undo, opened
	return err
}

// parseProgram reads the name of a program that is built in: drop, pass, tx,
// redirect:QUEUE, see newNumberedSink. An empty name is no program.
func parseProgram(name string) (xdpProgramMaker, error) {
	same := func(p xdpProgram) xdpProgramMaker {
		return func(*channel) (xdpProgram, error) { return p, nil }
	}
	switch name {
	case "":
		return nil, nil
	case "drop":
		return same(xdpSame(xdpDrop)), nil
	case "pass":
		return same(xdpSame(xdpPass)), nil
	case "tx":
		return same(xdpSwap{}), nil
	}
	queue, ok := redirectQueue(name)
	if !ok {
		return nil, wishf("-xdp %s: drop, pass, tx or redirect:QUEUE", name)
	}
	return func(c *channel) (xdpProgram, error) {
		sink, err := newNumberedSink(c, queue)
		return xdpTo{sink}, err
	}, nil
}

// redirectQueue is the queue of a program called redirect:QUEUE.
func redirectQueue(name string) (queue int, ok bool) {
	to, ok := strings.CutPrefix(name, "redirect:")
	queue, err := strconv.Atoi(to)
	return queue, ok && err == nil
}

// checkRedirect refuses a queue that is not there: the first queues are the regular
// ones, as many again those of sockets where there are some.
func checkRedirect(queue, queues int, sockets bool) error {
	switch {
	case queue >= 0 && queue < queues || sockets && queue >= 0 && queue < 2*queues:
		return nil
	case sockets:
		return wishf("a redirect to queue %d: queues are 0 to %d, from %d on those of sockets", queue, 2*queues-1, queues)
	case queue >= queues && queue < 2*queues:
		return wishf("a redirect to queue %d: queues are 0 to %d (from %d on they are those of sockets: -xsk-listen)", queue, queues-1, queues)
	}
	return wishf("a redirect to queue %d: queues are 0 to %d", queue, queues-1)
}

// newNumberedSink leads from channel c to a receive queue by its number: the regular
// ones, then those of sockets, as rules count them. The rings of a socket have one
// producer, its own channel: from others packets go there as guests.
func newNumberedSink(c *channel, queue int) (xdpSink, error) {
	n := c.n.params.queues
	if err := checkRedirect(queue, n, c.n.params.xsk); err != nil {
		return nil, err
	}
	switch {
	case queue < n || !c.n.params.xsk:
		return newQueueSink(c, queue)
	case queue-n == c.index:
		return xskSink{c.xsk}, nil
	}
	s, err := newQueueSink(c, queue-n)
	s.socket = true
	return s, err
}

// toPeer makes the program that redirects every frame to the other port.
func toPeer(c *channel) (xdpProgram, error) {
	sink, err := newPortSink(c)
	return xdpTo{sink}, err
}

// filterBy makes programs of a filter that verifyBPF has let through.
func filterBy(filter []bpfInsn) xdpProgramMaker {
	return func(c *channel) (xdpProgram, error) { return newBPFFilter(filter, [6]byte(c.n.mac)), nil }
}

// newXDP makes channel c's send queue for answers.
func (n *nic) newXDP(c *channel) (*sendQueue, error) {
	q, err := n.newSQ(c, c.pool, n.params.flags.xdpTxMPWQE)
	if err != nil {
		return nil, err
	}
	q.name += " of XDP"
	q.inlineUpTo(0) // until the ring fills, see sendXDP
	return q, nil
}

// takeXDP gives channel c its send queue for answers, and all its send queues the
// means to send what is not of the channel's own pool.
func (c *channel) takeXDP(q *sendQueue) {
	c.xdp = q
	c.xdpSeen.Store(q)
	c.cqs = append(c.cqs, q.cq)
	c.guests = newGuestRing()
	c.owners = refOwners{pools: &c.n.pools, own: c.pool.id}
	if c.xsk != nil {
		c.owners.further = append(c.owners.further, c.xsk)
		c.inlet = &xdpInlet{sink: xskSink{c.xsk}}
	}
	for _, q := range c.sendQueues() {
		q.others = &c.owners
	}
	c.n.pools[c.pool.id>>24].Store(c.pool)
}
