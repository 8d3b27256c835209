package main

// verdicts.go owns what becomes of a program's verdicts: the receive side of a
// channel's turn, the send queue that answers leave by, where a redirect can lead.
// It does not own what a program is (xdp.go), how it came here (attach.go), or the
// rest of the turn (channel.go).
//
// Who drops or answers every frame is not shown any: counting completions, or
// lending their pages to the send queue, does the same.

// Frames of answers are put into their WQEs when the device does not keep up, which
// then reads less: from so many blocks of the ring on that it owes, and until it
// owes fewer. Source: Linux mlx5e (figures).
const (
	inlineFrom  = 128
	inlineUntil = 10
	inlineXDP   = 16*segment - 4 // bytes of the longest such frame
)

// watchInline decides whether the next frames are put in.
func (q *sendQueue) watchInline() {
	switch owed := q.pi - q.ci; {
	case owed >= inlineFrom && q.small.most == 0:
		q.inlineUpTo(inlineXDP)
	case owed <= inlineUntil && q.small.most != 0:
		q.inlineUpTo(0)
	}
}

// roomXDP is how many frames sendXDP takes at least.
func (c *channel) roomXDP() int {
	c.xdp.watchInline()
	return c.xdp.room(1)
}

// sendXDP sends frames in one piece each through the channel's XDP send queue and
// returns how many it took. The others are given back and counted: the ring had no
// room. The channel's goroutine calls it.
func (c *channel) sendXDP(frames []txFrame) int {
	q := c.xdp
	q.watchInline()
	took := q.send(frames)
	if took < len(frames) {
		c.xdpTally.full += uint64(len(frames) - took)
		q.giveUp(frames[took:])
	}
	return took
}

// receivePlain is the receive side of a turn without a program.
func (c *channel) receivePlain(budget int) (done int) {
	if c.drops {
		return c.rx.drop(budget)
	}
	if c.direct != nil {
		budget = min(budget, c.direct.room(c))
		done = c.direct.receive(c, budget)
	}
	packets, n := c.rx.poll(budget - done)
	if len(packets) > 0 {
		c.hand(packets, &c.csum)
	}
	return done + n
}

// hand gives packets to the handler and counts in to what the device says of their
// checksums; not for a handler that can do without views, of which it gets some at
// most.
func (c *channel) hand(packets []packet, to *csumStats) {
	if c.direct == nil && !c.drops {
		to.note(packets, c.noComplete)
	}
	c.handler.handle(c, packets)
}

// receiveXDP is the receive side of a turn with a program: it runs on up to budget
// frames, each verdict is carried out, and what passes goes to the handler. It
// returns how many completions there were.
func (c *channel) receiveXDP(budget int) (done int) {
	w := c.work
	packets, bytes := c.rx.tally.packets, c.rx.tally.bytes
	switch {
	case w.all && w.same == xdpDrop:
		done = c.rx.drop(budget)
		c.xdpTally.drop += c.rx.tally.packets - packets
		c.consumed(packets, bytes)
		return done
	case w.all && w.same == xdpPass:
		return c.receivePlain(budget)
	case w.all && w.same == xdpTX:
		budget = min(budget, c.roomXDP()) // what it has no room for waits in the ring
		done = c.answerPlain(budget)
		c.consumed(packets, bytes)
		if done == budget {
			return done
		}
	}
	if c.direct != nil {
		budget = min(budget, done+c.direct.room(c))
	}
	views, n := c.rx.poll(budget - done)
	if len(views) > 0 {
		c.judge(w, views)
	}
	return done + n
}

// consumed moves what was counted since then from the receive queue, of whose
// packets the handler sees none, to the program.
func (c *channel) consumed(packets, bytes uint64) {
	t := &c.rx.tally
	c.xdpTally.packets += t.packets - packets
	c.xdpTally.bytes += t.bytes - bytes
	t.packets, t.bytes = packets, bytes
}

// answerPlain is xdpSwap for frames that need no view, and returns how many.
func (c *channel) answerPlain(budget int) int {
	frames := c.work.out[:min(budget, napiBudget)]
	if frames = frames[:c.rx.lendSwapped(frames)]; len(frames) > 0 {
		c.sendXDP(frames)
	}
	return len(frames)
}

// judge runs the program on a batch and carries its verdicts out.
func (c *channel) judge(w *xdpWork, packets []packet) {
	frames, verdicts := w.frames[:len(packets)], w.verdicts[:len(packets)]
	c.rx.show(frames, packets, c.number)
	clear(verdicts)
	w.program.run(frames, verdicts)
	answers, redirects, passes := w.out[:0], w.which[:0], 0
	for i, v := range verdicts {
		switch v {
		case xdpPass:
			passes++
			continue
		case xdpDrop:
			c.xdpTally.drop++
		case xdpTX:
			answers = append(answers, frames[i].lent(c.rx.pool))
		case xdpRedirect:
			redirects = append(redirects, uint8(i))
		default:
			c.xdpTally.aborted++
		}
		c.rx.tally.packets--
		c.rx.tally.bytes -= uint64(packets[i].size)
		c.xdpTally.packets++
		c.xdpTally.bytes += uint64(packets[i].size)
	}
	if len(answers)+len(redirects) > 0 {
		c.rx.lentAt = c.rx.posted
	}
	if len(answers) > 0 {
		c.sendXDP(answers)
	}
	c.redirect(c.rx.pool, frames, redirects)
	if passes > 0 {
		c.hand(pass(packets, frames, verdicts), &c.csum)
	}
}

// pass moves the packets that pass to the front, as the program left them.
func pass(packets []packet, frames []xdpFrame, verdicts []xdpVerdict) []packet {
	n := 0
	for i, v := range verdicts {
		if v != xdpPass {
			continue
		}
		f := &frames[i]
		if n != i {
			packets[n] = packets[i]
		}
		packets[n].moved(f)
		n++
	}
	return packets[:n]
}

// redirect hands frames[i] for each i of which to where its program wants it. pool is
// as with xdpSink. The channel's goroutine calls it.
func (c *channel) redirect(pool *pagePool, frames []xdpFrame, which []uint8) {
	for len(which) > 0 {
		to := frames[which[0]].to
		same := 1 // as many from the front as lead to one place
		for same < len(which) && frames[which[same]].to == to {
			same++
		}
		if to != nil {
			to.redirect(pool, frames, which[:same], &c.xdpTally)
		} else {
			c.xdpTally.lost += uint64(same)
		}
		which = which[same:]
	}
}

// portSink leads to another port, through the channel's own send queue there.
type portSink struct {
	c   *channel
	out [napiBudget]txFrame
}

func newPortSink(c *channel) (*portSink, error) {
	if c.forward == nil {
		return nil, wishf("a redirect to another port needs a second function: -pci ADDR,ADDR")
	}
	if !c.peer.redirected[c.index].Swap(true) { // its sessions go by another flag now, see takeOver
		c.mail.post(c.vec, func() { c.have = ^c.want.Load() })
	}
	return &portSink{c: c}, nil
}

func (s *portSink) redirect(pool *pagePool, frames []xdpFrame, which []uint8, t *xdpTally) {
	out := s.out[:0]
	for _, i := range which {
		f := txFrame{}
		if pool != nil {
			f = frames[i].lent(pool)
		} else if copied, ok := frames[i].copied(s.c.rx.pool); ok {
			f = copied
		} else {
			break
		}
		out = append(out, f)
	}
	took := s.c.forward.send(out)
	s.c.forward.giveUp(out[took:])
	t.redirect += uint64(took)
	t.lost += uint64(len(which) - took)
}

// queueSink leads to another queue of the same NIC, whose handler gets the packet
// as if it had come in there, or whose socket gets a copy. The page is lent until
// that is done with it.
type queueSink struct {
	from, to *channel
	socket   bool
}

func newQueueSink(from *channel, queue int) (queueSink, error) {
	if queue < 0 || queue >= len(from.n.channels) {
		return queueSink{}, wishf("a redirect to queue %d: queues are 0 to %d", queue, len(from.n.channels)-1)
	}
	return queueSink{from: from, to: from.n.channels[queue]}, nil
}

func (s queueSink) redirect(pool *pagePool, frames []xdpFrame, which []uint8, t *xdpTally) {
	ring, took := s.to.guests, 0
	for _, i := range which {
		g, ok := frames[i].guest(pool, s.from.pool)
		if !ok {
			break
		}
		if s.socket {
			g.from = &s.from.sent
		}
		if !ring.put(g) {
			s.from.n.pools.release(g.page)
			break
		}
		took++
	}
	if took > 0 && ring.wakes() {
		s.to.vec.ring()
	}
	if t.lost += uint64(len(which) - took); !s.socket { // what becomes of the others is told later, see outcomes
		t.redirect += uint64(took)
	}
}

// guest is the frame as a packet for another channel, in a page lent from pool, or
// copied into one of own where there is no pool.
func (f *xdpFrame) guest(pool, own *pagePool) (g guest, ok bool) {
	size := f.end - f.start
	g = guest{size: size, hash: f.meta.hash, info: f.meta.info, timestamp: f.meta.timestamp, hashType: f.meta.hashType}
	if pool != nil {
		g.at = f.place()
		g.room = uint32(len(f.mem)) - f.start
		g.page = pool.lend(g.at >> logPage)
		return g, true
	}
	n, ok := f.copyTo(own)
	if !ok {
		return g, false
	}
	g.at, g.room = n<<logPage|rxHeadroom, pageSize-rxHeadroom
	g.page = own.lend(n)
	own.giveBack(n)
	return g, true
}

// receiveGuests gives the handler packets that other channels sent here and
// returns how many there were.
func (c *channel) receiveGuests(budget int) (done int) {
	for done < budget && c.visited() {
		done += c.guestRun(min(budget-done, len(c.visitors)))
	}
	return done
}

// guestRun handles up to most guests that lie in the same pool and go to the same
// place. What the socket has no room for is lost here, and whoever sent it is told.
func (c *channel) guestRun(most int) (n int) {
	var pool *pagePool
	var from *outcomes
	refs := &c.visits
	for n < most {
		g, ok := c.guests.peek()
		if !ok {
			break
		}
		p := c.n.pools.of(g.page)
		if n > 0 && (p != pool || g.from != from) {
			break
		}
		c.visitors[n] = g.packet(p)
		pool, from, refs[n] = p, g.from, g.page
		c.guests.drop()
		n++
	}
	if from != nil {
		c.inlet.deliver(c.visitors[:n], from)
	} else {
		c.rx.guest = pool
		c.handler.handle(c, c.visitors[:n])
		c.rx.guest = nil
	}
	for _, r := range refs[:n] {
		pool.release(r)
	}
	return n
}
