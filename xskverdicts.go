package main

// xskverdicts.go owns what becomes of packets of a socket's receive queue when the
// channel has a program: it is shown the UMEM frames themselves, once a batch. It
// does not own the program (xdp.go) nor the socket's turn without one (xsktx.go).
//
// Without a program every packet goes to the client. With one: what is dropped is
// posted again; what is answered leaves from its frame by the channel's XDP send
// queue; what passes is copied for the handler, as Linux does, since nobody may
// keep the client's memory; a redirect leads to the client, or is copied elsewhere.

// xskSink leads to the socket of the same channel. From the socket's own receive
// queue nothing is copied; from another queue a packet is copied into a frame.
type xskSink struct{ q *xskQueue }

// redirect copies frames that are not the socket's into frames that are.
func (s xskSink) redirect(_ *pagePool, frames []xdpFrame, which []uint8, t *xdpTally) {
	q := s.q
	if q.sock == nil || q.sock.broken {
		t.nobody += uint64(len(which))
		return
	}
	u, took := q.sock.umem, 0
	for _, i := range which {
		f := &frames[i]
		size := f.end - f.start
		if room, ok := q.sock.rx.room(q.sock.rxHead, 1); !ok || room == 0 || size > u.room() {
			break
		}
		n, ok := q.nextFrame()
		if !ok {
			break
		}
		at := uint64(n)<<u.log + uint64(u.start())
		copy(u.mem.b[at:][:size], f.data())
		q.put(at, size)
		q.tally.copied++
		took++
	}
	q.sock.fill.took(0)
	q.tell()
	q.tally.redirect -= uint64(took) // they count where they came in
	t.redirect += uint64(took)
	t.lost += uint64(len(which) - took)
}

// receiveXSK is the receive side of the socket's turn with a program.
func (c *channel) receiveXSK(budget int) (done int) {
	q := c.xsk
	if q.judge == nil {
		q.judge = new(xskJudge)
	}
	for done < budget && !q.recv.failed && !q.sock.broken {
		n, took := q.show(min(budget-done, napiBudget), c.xsk.number)
		if took == 0 {
			break
		}
		done += took
		c.judgeXSK(n)
	}
	return done
}

// show takes up to most completions and makes frames for the program of them. It
// returns how many frames, and how many completions there were.
func (q *xskQueue) show(most int, queue uint16) (n, took int) {
	r, j, u := &q.recv, q.judge, q.sock.umem
	for took < most && !r.failed {
		e, w := r.cq.peek(r.cq.ci)
		if e == nil {
			break
		}
		r.cq.ci++
		took++
		slot, size, ok := q.consume(e, w)
		if !ok {
			continue
		}
		q.tally.packets++
		q.tally.bytes += uint64(size)
		number := r.frames[slot] // its only one: see refusesProgram
		r.frames[slot] = noHold
		p := &j.packets[n]
		describe(p, e, size)
		at := uint64(number) << u.log
		mem := u.mem.b[at:][:u.frame:u.frame]
		p.b, p.frags = mem[u.start():][:size:size], 1
		j.numbers[n] = number
		j.frames[n] = xdpFrame{mem: mem, start: u.start(), end: u.start() + size, meta: p, queue: queue}
		n++
	}
	return n, took
}

// judgeXSK runs the program on n frames and carries its verdicts out.
func (c *channel) judgeXSK(n int) {
	q, j := c.xsk, c.xsk.judge
	frames, verdicts := j.frames[:n], j.verdicts[:n]
	clear(verdicts)
	c.work.program.run(frames, verdicts)
	answers, away, passes := j.out[:0], j.which[:0], 0
	u := q.sock.umem
	for i, v := range verdicts {
		f, number := &frames[i], j.numbers[i]
		at := uint64(number)<<u.log + uint64(f.start)
		own, isOwn := f.to.(xskSink)
		switch {
		case v == xdpTX:
			q.out++
			answers = append(answers, txFrame{addr: u.mem.iova + at, form: txSize(f.end - f.start), page: q.id | pageRef(number)})
			continue
		case v == xdpRedirect && (f.to == nil || isOwn && own.q == q):
			if room, ok := q.sock.rx.room(q.sock.rxHead, 1); ok && room > 0 {
				q.put(at, f.end-f.start)
				continue
			}
			q.tally.ringFull++
		case v == xdpRedirect:
			away = append(away, uint8(i))
			continue
		case v == xdpPass:
			passes++
			continue
		case v == xdpDrop:
			q.tally.drop++
		default:
			q.tally.abort++
		}
		q.recv.keep(number)
	}
	q.tell()
	if len(answers) > 0 {
		c.sendXDP(answers)
	}
	c.redirect(nil, frames, away)
	for _, i := range away {
		q.recv.keep(j.numbers[i])
	}
	if passes > 0 {
		c.passXSK(n)
	}
}

// passXSK gives the handler copies of the frames that pass.
func (c *channel) passXSK(n int) {
	q, j, k := c.xsk, c.xsk.judge, 0
	for i, v := range j.verdicts[:n] {
		if v != xdpPass {
			continue
		}
		q.recv.keep(j.numbers[i])
		g, ok := j.frames[i].guest(nil, c.rx.pool)
		if !ok {
			q.tally.noPage++
			continue
		}
		c.visitors[k] = g.packet(c.rx.pool)
		j.refs[k] = g.page
		k++
	}
	if k == 0 {
		return
	}
	c.rx.guest = c.rx.pool
	c.hand(c.visitors[:k], &q.stats.csum)
	c.rx.guest = nil
	for _, r := range j.refs[:k] {
		c.rx.pool.release(r)
	}
}
