package main

// channel.go owns the life of a channel: start and stop, its turn (in which order
// queues are looked at, when settings are taken over and counters published), and
// how a queue that failed is set up anew. It does not own when a turn is taken
// (napi.go), nor what stands in the queues (rxpath.go, txpath.go), nor how they came
// to be (nic.go).
// Manual: chapters Receive Queue, Send Queue (states).

import (
	"fmt"
	"slices"
	"time"
)

// Settings that a channel takes over between two bursts.
const (
	wantSKB        = 1 << iota // multi-packet WQEs for what handlers send, here and on another NIC
	wantXDP                    // and for what programs and sockets send
	wantNoComplete             // no checksum verdict "complete"
)

// applyFlags tells every channel the flags that can change while it runs.
func (n *nic) applyFlags() {
	want := uint32(0)
	if n.params.flags.skbTxMPWQE {
		want |= wantSKB
	}
	if n.params.flags.xdpTxMPWQE {
		want |= wantXDP
	}
	if n.params.flags.rxNoCsumComplete {
		want |= wantNoComplete
	}
	for _, c := range n.channels {
		c.want.Store(want)
	}
}

// takeOver applies settings; the channel's goroutine calls it, or newChannel.
func (c *channel) takeOver(want uint32) {
	c.have, c.noComplete = want, want&wantNoComplete != 0
	c.tx.sessions(want&wantSKB != 0)
	if c.forward != nil {
		c.forward.sessions(want&c.forwardFlag() != 0)
	}
	if c.xsk != nil {
		c.xsk.tx.sessions(want&wantXDP != 0)
	}
	if c.xdp != nil {
		c.xdp.sessions(want&wantXDP != 0)
	}
}

// forwardFlag is which of both is about the channel's queue on another NIC. It goes by
// where that queue is counted: as programs', or as the port's own.
func (c *channel) forwardFlag() uint32 {
	if c.peer.redirected[c.index].Load() {
		return wantXDP
	}
	return wantSKB
}

// start gives every channel its handler and its goroutine. stop ends them.
func (n *nic) start(handlers []handler, busy bool, cpus []int) {
	n.applyFlags()
	for i, c := range n.channels {
		c.setHandler(handlers[i])
		c.busy, c.cpu = busy, -1
		if i < len(cpus) {
			c.cpu = cpus[i]
		}
		c.done = make(chan struct{})
		c.mail.open()
		go func() {
			defer close(c.done)
			c.run(c)
		}()
	}
	n.undo.add("channels", func() error { n.stop(); return nil })
}

// setHandler gives a channel that does not run its work.
func (c *channel) setHandler(h handler) {
	c.handler = h
	_, c.drops = h.(dropHandler)
	c.direct, _ = h.(directHandler)
}

// stop ends the channels' goroutines after a last look at their queues. What is in
// these then, is lost and counted.
func (n *nic) stop() {
	for _, c := range n.channels {
		c.vec.halt()
	}
	for _, c := range n.channels {
		<-c.done
	}
	for _, c := range n.channels { // what others sent to one that had stopped already
		c.do(func() {
			if c.visited() {
				c.lastTurns(func() bool { return c.turn(c) })
			}
		})
	}
	for _, c := range n.channels {
		c.do(func() {
			c.abandon()
			c.publish()
		})
	}
}

// The last look at a channel's queues ends when a device that owes something has
// done nothing for lastQuiet and so many turns, in which it was us who slept where
// time went by without them; and after lastMost whatever happens.
const (
	lastQuiet = 100 * time.Millisecond
	lastEmpty = 100 // turns
	lastMost  = time.Second
	lastPause = 50 * time.Microsecond // for the device, where nothing was to be done
)

// lastTurns takes turns until nothing is owed any more of what there was when the channel
// was told to stop: a full send ring keeps packets in the receive ring, or in a
// socket's, until the device completes. Of a wire that goes on it takes as much as
// its queues can have held.
func (c *channel) lastTurns(turn func() bool) {
	turn() // the handler's last one of its own will
	h := c.handler
	defer func() { c.handler = h }()
	if e, ok := h.(endingHandler); ok {
		e.end()
	} else {
		c.handler = silentHandler{h}
	}
	from, most := c.looked()
	begun := time.Now()
	since, empty := begun, 0
	for (empty < lastEmpty || time.Since(since) < lastQuiet) && time.Since(begun) < lastMost {
		at, _ := c.looked()
		receives, worked := at-from < most, false
		if receives {
			worked = turn()
		} else {
			worked = c.sendRest() > 0
		}
		switch {
		case worked:
			since, empty = time.Now(), 0
		case !c.owes(receives):
			return
		default:
			empty++
			time.Sleep(lastPause)
		}
	}
}

// silentHandler is a handler that takes no turn.
type silentHandler struct{ handler }

func (silentHandler) turn(*channel) int { return 0 }

// looked is how many completions of receive queues were taken, and how many these
// queues hold at most.
func (c *channel) looked() (taken, most uint32) {
	taken, most = c.rx.cq.ci, c.rx.cq.mask+1
	if c.next != nil {
		taken, most = taken+c.next.cq.ci, most+c.next.cq.mask+1
	}
	if c.xsk != nil {
		taken, most = taken+c.xsk.recv.cq.ci, most+c.xsk.recv.cq.mask+1
	}
	return taken, most
}

// sendRest is a turn without the receive side.
func (c *channel) sendRest() int {
	done := c.completeAll(napiBudget) + c.handler.turn(c)
	if q := c.xsk; q != nil && q.sock != nil && !q.sock.broken {
		done += q.complete(napiBudget) + q.transmit()
		q.ring()
	}
	return done
}

// owes reports whether there is something to wait for: completions of what was sent,
// what an application of our own has put into its TX ring and, if the receive side
// is looked at, what has come there.
func (c *channel) owes(receives bool) bool {
	receives = receives && !c.quota.over()
	for _, q := range c.sendQueues() {
		if q.owed() > 0 {
			return true
		}
	}
	if q := c.xsk; q != nil && (q.tx.owed() > 0 || q.unsent() > 0 || receives && q.recv.visible()) {
		return true
	}
	return receives && (c.rx.visible() || c.next != nil && c.next.visible() || c.visited())
}

// abandon counts as lost what is still in the queues of a channel that has stopped.
func (c *channel) abandon() {
	c.rx.tally.ended += c.rx.discard()
	if c.next != nil {
		c.next.tally.ended += c.next.discard()
	}
	for _, q := range c.sendQueues() {
		q.abandon()
	}
	if c.xsk != nil {
		c.xsk.abandon()
	}
}

// poll is one turn of a channel: completions, handler, refill.
func (c *channel) poll(budget int) int {
	if want := c.want.Load(); want != c.have {
		c.takeOver(want)
	}
	done := c.completeAll(budget)
	if c.xdp != nil {
		done += c.receiveGuests(budget)
	}
	done += c.receive(budget) + c.handler.turn(c) // with the pages that came home just now
	if c.xsk != nil {
		done += c.pollXSK(budget)
	}
	if c.turns++; c.turns%publishTurns == 0 {
		c.publish()
	}
	return done
}

// do runs f in the channel's goroutine between two polls and returns when it has
// run; while the channel does not run it is the caller who runs f. Any goroutine
// may call it but the channel's own. f may change the channel's queues, but must
// not wait for long: packets wait meanwhile.
func (c *channel) do(f func()) { c.mail.post(c.vec, f) }

// pollXSK is the socket's part of a turn. What it brings to the application's side
// of the rings is seen by a handler in the next turn.
func (c *channel) pollXSK(budget int) int {
	q := c.xsk
	if q.sock == nil || q.sock.broken {
		return 0
	}
	done := q.begin(budget)
	done += c.takeXSK(budget)
	done += q.end()
	if q.tx.failed && !q.tx.dead {
		c.xskTo.failTX(q.tx)
	}
	if q.recv.failed {
		c.n.recoverXSK(q)
	}
	return done
}

// takeXSK is take for the socket's receive queue.
func (c *channel) takeXSK(budget int) (done int) {
	if c.quota == nil {
		return c.takeAllXSK(budget)
	}
	if budget = c.quota.take(budget); budget == 0 {
		return 0
	}
	before := c.xsk.tally.packets
	done = c.takeAllXSK(budget)
	c.quota.settle(budget, int(c.xsk.tally.packets-before))
	return done
}

// takeAllXSK is takeXSK without -count.
func (c *channel) takeAllXSK(budget int) int {
	if c.work != nil {
		return c.receiveXSK(budget)
	}
	return c.xsk.receive(budget)
}

// receive is the receive side of a turn.
func (c *channel) receive(budget int) int {
	if c.next != nil {
		return c.receiveBoth(budget)
	}
	return c.take(budget)
}

// take is the receive side of a turn from one queue, as far as -count lets it.
func (c *channel) take(budget int) (done int) {
	if c.quota == nil {
		return c.takeAll(budget)
	}
	if budget = c.quota.take(budget); budget == 0 {
		return 0
	}
	before := c.rx.tally.packets + c.xdpTally.packets
	done = c.takeAll(budget)
	c.quota.settle(budget, int(c.rx.tally.packets+c.xdpTally.packets-before))
	return done
}

// takeAll is take without -count.
func (c *channel) takeAll(budget int) (done int) {
	if c.work != nil {
		done = c.receiveXDP(budget)
	} else {
		done = c.receivePlain(budget)
	}
	if c.rx.failed {
		c.n.recoverRX(c)
	} else if done > 0 || c.rx.waits() { // pages may have come home since
		c.rx.finish()
	}
	return done
}

// receiveBoth is receive while one receive queue takes the place of another. What
// comes first goes first: the queue that is not preferred is looked at before the
// preferred one is found empty, and of it only what was seen then is taken.
func (c *channel) receiveBoth(budget int) int {
	other := c.next
	seen := other.failed || other.visible()
	done := c.take(budget)
	switch {
	case done == 0 && seen:
		c.exchange()
		done = c.take(min(budget, max(1, int(other.minis.left()))))
		c.exchange()
	case other.waits():
		other.finish()
	}
	return done
}

func (c *channel) exchange() { c.rx, c.next = c.next, c.rx }

// join makes q a further queue of the channel, behind the one it has.
func (c *channel) join(q *recvQueue) {
	c.next = q
	c.cqs = append(c.cqs, q.cq)
}

// prefer makes the queue that was behind the one that goes first.
func (c *channel) prefer() {
	c.exchange()
	c.adapt.follow(c.rx.cq.n)
}

// deliver takes what the preferred queue holds when it is called and reports
// whether that was all of it: a handler whose send queue is full takes nothing.
func (c *channel) deliver() (all bool) {
	if c.quota.over() {
		return true
	}
	for left := int(c.rx.cq.mask) + 1; left > 0 && c.rx.visible(); {
		done := c.take(napiBudget)
		if done == 0 && c.completeAll(napiBudget) == 0 {
			return !c.rx.visible() || c.quota.over()
		}
		left -= done
	}
	return true
}

// deliverRest is deliver for the other queue, which the device does not know any
// more.
func (c *channel) deliverRest() (all bool) {
	if c.next.failed { // there is nothing to reset
		return true
	}
	c.exchange()
	defer c.exchange()
	return c.deliver()
}

// leave ends the use of q, which is not the preferred queue: its pages go back, and
// what its handler has refused for too long is lost and counted with its errors.
func (c *channel) leave(q *recvQueue) {
	if c.quota.over() { // what came behind the last packet counts as left at the end
		q.tally.ended += q.discard()
	} else {
		q.lose()
	}
	c.next = nil
	c.cqs = slices.DeleteFunc(c.cqs, func(cq *compQueue) bool { return cq == q.cq })
	q.vacate()
}

// sendQueues are those that the channel's goroutine owns.
func (c *channel) sendQueues() []*sendQueue {
	all := []*sendQueue{c.tx}
	for _, q := range []*sendQueue{c.forward, c.xdpSeen.Load()} {
		if q != nil {
			all = append(all, q)
		}
	}
	return all
}

// completeAll takes the send queues' completions and returns how many there were.
func (c *channel) completeAll(budget int) int {
	done := c.complete(c.n, c.tx, budget)
	if c.forward != nil {
		done += c.complete(c.peer, c.forward, budget)
	}
	if c.xdp != nil {
		done += c.complete(c.n, c.xdp, budget)
	}
	return done
}

// complete takes the completions of n's send queue q and recovers it from errors.
func (c *channel) complete(n *nic, q *sendQueue, budget int) int {
	done := q.complete(budget)
	if q.failed && !q.dead {
		n.failTX(q)
	}
	return done
}

// publishTurns is how many polls may pass before others see what was counted.
const publishTurns = 16

// publish makes the channel's counters visible and looks for a stalled queue.
func (c *channel) publish() {
	c.report()
	c.rx.publish()
	if c.next != nil {
		c.next.publish()
	}
	c.publishXDP()
	c.n.watchRX(c, time.Now())
	c.n.watchTX(c.tx)
	if c.xdp != nil {
		c.n.watchTX(c.xdp)
	}
	if c.forward != nil {
		c.peer.watchTX(c.forward)
	}
	if c.xsk != nil {
		c.xsk.publish()
		if c.xsk.sock != nil {
			c.xskTo.watchTX(c.xsk.tx)
		}
	}
}

// newForward gives channel c a send queue on another NIC, for what c receives.
// It is c's goroutine that owns it. Where programs send through it, newPortSink says so.
func (n *nic) newForward(c *channel, to *nic) (err error) {
	c.peer = to
	if c.forward, err = to.newSQ(to.channels[c.index], c.pool, to.params.flags.skbTxMPWQE); err != nil {
		return err
	}
	c.forward.name += " from another port"
	to.guests[c.index] = c.forward
	return nil
}

// watchTX publishes a send queue's counters and recovers it when it has stalled.
func (n *nic) watchTX(q *sendQueue) {
	q.publish()
	switch now := time.Now(); {
	case q.dead && !q.severed && !now.Before(q.again):
		n.recoverTX(q, q.ailment())
	case q.stalled(now):
		n.recoverTX(q, fmt.Sprintf("no completion for %v", txTimeout))
	}
}

// failTX resets a send queue that has failed. One that was reset less than recoverGap
// ago is out of service until then, lest an error that comes with every burst keeps
// firmware and the channel busy; watchTX brings it back.
func (n *nic) failTX(q *sendQueue) {
	if ready := q.reborn.Add(recoverGap); time.Now().Before(ready) {
		q.die(ready)
		return
	}
	n.recoverTX(q, q.ailment())
}

// pending reports whether a queue of another NIC owes completions, or the receive
// ring waits for pages to come home: neither wakes this channel.
func (c *channel) pending() bool {
	return c.rx.waits() || c.next != nil && c.next.waits() || c.forward != nil && c.forward.mtail != c.forward.mhead ||
		c.xsk != nil && (c.xsk.sleepless() || c.xskTo != c.n && c.xsk.tx.mtail != c.xsk.tx.mhead)
}

// load is what has been received, by the socket too, as last published.
func (c *channel) load() (packets, bytes uint64) {
	packets, bytes = c.rxStats.packets.get()+c.xdpStats.packets.get(), c.rxStats.bytes.get()+c.xdpStats.bytes.get()
	if c.xsk != nil {
		packets, bytes = packets+c.xsk.stats.packets.get(), bytes+c.xsk.stats.bytes.get()
	}
	return packets, bytes
}

func (c *channel) arm() {
	c.rx.cq.arm()
	if c.next != nil {
		c.next.cq.arm()
	}
	if c.ico != nil {
		c.ico.cq.arm()
	}
	c.tx.cq.arm()
	if c.xsk != nil && c.xsk.sleep() {
		c.vec.ring()
	}
	if c.xdp != nil {
		c.xdp.cq.arm()
		c.guests.sleep(c.vec)
	}
}

func (c *channel) idle() {
	c.publish()
	c.handler.idle(c)
}

// recoverTX resets a send queue: error state, reset, ready. It runs in the
// goroutine that owns the queue; no other queue is touched.
func (n *nic) recoverTX(q *sendQueue, why string) {
	q.reborn = time.Now()
	if err := n.resetSend(q.n); err != nil {
		q.die(q.reborn.Add(txTimeout))
		n.notify("%s: %s: cannot be reset, tried again in %v: %v", q.title(), why, txTimeout, err)
		return
	}
	q.reset()
	if err := n.fw.modifySQ(q.n, queueReset, queueReady); err != nil {
		q.die(q.reborn.Add(txTimeout))
		n.notify("%s: %s: was reset but does not become ready, tried again in %v: %v", q.title(), why, txTimeout, err)
		return
	}
	n.notify("%s: %s: reset", q.title(), why)
}

// severTX takes a send queue out of service whose completion queue has failed. What
// completed before that has left. It runs in the goroutine that owns the queue.
func (n *nic) severTX(q *sendQueue, why string) {
	for left := int(q.cq.mask) + 1; left > 0; left -= napiBudget {
		q.complete(napiBudget)
	}
	kept := ""
	if err := n.resetSend(q.n); err == nil {
		q.reset() // the device has let go of the pages
	} else {
		kept = fmt.Sprintf(" (its pages stay with it: %v)", err)
	}
	q.sever()
	n.notify("completion queue of %s: %s: the queue is out of service until the next start, what is to be sent there is dropped%s", q.title(), why, kept)
}

// title names a send queue as its counters do, and by its number in the device.
func (q *sendQueue) title() string { return fmt.Sprintf("send queue %s (%#x)", q.name, q.n) }

// resetSend takes a send queue to the reset state from whichever it is in.
func (n *nic) resetSend(sqn uint32) error {
	state, err := n.fw.querySQ(sqn)
	if err != nil {
		return err
	}
	if state == queueReady {
		if err := n.fw.modifySQ(sqn, queueReady, queueError); err != nil {
			return err
		}
		state = queueError
	}
	if state == queueError {
		return n.fw.modifySQ(sqn, queueError, queueReset)
	}
	return nil
}

// recoverRX resets a failed receive queue. It runs in the goroutine that owns the
// queue, after the handler is done with what came before the error. A queue that
// fails again at once waits a while.
func (n *nic) recoverRX(c *channel) {
	if c.rx.recoverable(time.Now()) {
		n.renewRX(c, c.rx.cause.Error())
	}
}

// renewRX takes channel c's receive queue through error state, reset and ready, and
// posts what it can. It waits for firmware alone: what the queue lacks, because its
// pages are held or named by UMRs that are under way, comes with later polls, which
// also bring the send completions that give pages back. A queue that is ready
// without buffers loses nothing unseen: the device counts rx_out_of_buffer.
func (n *nic) renewRX(c *channel, why string) {
	q := c.rx
	err := n.resetRX(c)
	if err == nil {
		q.fill()
		err = n.fw.modifyRQ(q.n, queueReset, queueReady)
	}
	q.since = time.Now()
	switch {
	case err != nil:
		q.failed = true
		n.notify("receive queue rx%d (%#x): %v: cannot be reset: %v", c.index, q.n, why, err)
	case q.waits() && q.pool.home() == 0:
		n.notify("receive queue rx%d (%#x): %v: reset and filled in part: who keeps packets holds the other pages, which are taken as they come back", c.index, q.n, why)
	default:
		n.notify("receive queue rx%d (%#x): %v: reset and filled again", c.index, q.n, why)
	}
}

// watchRX renews a striding queue whose UMRs do not complete while it has no buffer
// left.
func (n *nic) watchRX(c *channel, now time.Time) {
	if c.rx.stuck(now) {
		c.ico.failed = true
		n.renewRX(c, errNoFill.Error())
	}
}

// resetRX takes channel c's receive queue to the reset state, and with it the queue
// that fills it when that is what failed.
func (n *nic) resetRX(c *channel) error {
	if err := n.resetRecv(c.rx.n); err != nil {
		return err
	}
	c.rx.reset()
	if c.ico == nil || !c.ico.failed {
		return nil
	}
	return n.resetICO(c)
}

// resetICO resets channel c's queue for internal control operations.
func (n *nic) resetICO(c *channel) error {
	if err := n.resetSend(c.ico.n); err != nil {
		return err
	}
	c.ico.reset()
	return n.fw.modifySQ(c.ico.n, queueReset, queueReady)
}

// resetRecv takes a receive queue to the reset state from whichever it is in.
func (n *nic) resetRecv(rqn uint32) error {
	state, err := n.fw.queryRQ(rqn)
	if err != nil {
		return err
	}
	if state == queueReady {
		if err := n.fw.modifyRQ(rqn, queueReady, queueError); err != nil {
			return err
		}
		state = queueError
	}
	if state == queueError {
		return n.fw.modifyRQ(rqn, queueError, queueReset)
	}
	return nil
}

// recoverXSK is recoverRX for a socket's receive queue: what was posted is posted
// again.
func (n *nic) recoverXSK(q *xskQueue) {
	if time.Since(q.recv.since) >= recoverGap {
		n.renewXSK(q, q.recv.cause.Error())
	}
}

// renewXSK is renewRX for a socket's receive queue.
func (n *nic) renewXSK(q *xskQueue, why string) {
	r := &q.recv
	err := n.resetRecv(r.n)
	if err == nil {
		r.reset(&q.tally.wqeErr)
		q.refill()
		err = n.fw.modifyRQ(r.n, queueReset, queueReady)
	}
	r.since = time.Now()
	if err != nil {
		r.failed = true
		n.notify("receive queue %s (%#x): %s: cannot be reset: %v", q.name, r.n, why, err)
		return
	}
	q.tally.recovered++
	n.notify("receive queue %s (%#x): %s: reset and filled again", q.name, r.n, why)
}
