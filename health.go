package main

// health.go owns the watch over an open NIC beside its packets: whether the device is
// still there and still ours, what firmware shows of itself, which control events an
// operator must hear of, and queues that broke where no completion tells it.
// It does not own the reading of events (events.go), how a queue is reset (channel.go),
// nor what follows when the device is lost (appliance.go).
// Manual: chapters Initialization Segment (health buffer), Events.
//
// Firmware that is ill or stands still is only told of: packets may go on, and what a
// reset would need is firmware.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// errWantedBack ends a run as errDeviceLost does, but the device still answers.
var errWantedBack = errors.New("the host asks for the function, which is being unbound or removed: it has been given back; start again when it is free")

const (
	// watchEvery is the time between looks. Linux looks every two seconds.
	watchEvery = time.Second
	// stillLooks is how many looks in a row firmware's counter may stand still.
	stillLooks = 5
	// tellEvery is the least time between two notices of one kind.
	tellEvery = time.Minute
)

// vitals is what one look at the registers saw.
type vitals struct {
	there    bool
	beat     uint32
	syndrome uint8
}

func readVitals(bar []byte) vitals {
	beat, syndrome := readHealth(bar)
	return vitals{present(bar), beat, syndrome} // asked last: what was read before is right then
}

// pulse is what the looks so far come to.
type pulse struct {
	last  vitals
	still int // looks in a row in which the counter stood still
}

// condition is what a look comes to; each is given once, when it comes to be so.
type condition int

const (
	fit condition = iota
	lost
	ill
	stopped
)

// judge adds a look to those before.
func (p *pulse) judge(v vitals) condition {
	before := p.last
	if !v.there {
		return lost
	}
	if p.last = v; v.beat == before.beat {
		p.still++
	} else {
		p.still = 0
	}
	switch {
	case v.syndrome != 0 && v.syndrome != before.syndrome:
		return ill
	case p.still == stillLooks:
		return stopped
	}
	return fit
}

// health is the watch. Its goroutine owns what is not atomic.
type health struct {
	n     *nic
	pulse pulse
	link  bool // as last told
	seen  [len(tellings)]uint64
	told  [len(tellings)]time.Time
	deaf  bool      // the kernel does not announce removals
	due   []hwEvent // that came before the last look
	end   atomic.Pointer[error]
	stale atomic.Bool // receive queues are to be replaced; cleared by replace
	again time.Time   // not before; replace alone uses it
	stop  chan struct{}
	done  sync.WaitGroup
}

// tellings are the events that an operator hears of.
var tellings = [...]struct {
	count func(*controlLoop) *counter
	text  string
}{
	{func(l *controlLoop) *counter { return &l.fatal }, "firmware reports an internal error (%d so far): if traffic stops, power-cycle the machine; a newer firmware may help"},
	{func(l *controlLoop) *counter { return &l.failures }, "firmware asked for memory, or gave some back, and that failed (%d so far): it may refuse further queues and rules"},
	{func(l *controlLoop) *counter { return &l.cqErrors }, "completion queues have failed (%d so far)"},
	{func(l *controlLoop) *counter { return &l.wqErrors }, "work queues have broken (%d so far)"},
}

func newHealth(n *nic) *health {
	return &health{n: n, link: n.control.linkUp.Load(), stop: make(chan struct{})}
}

// watchHealth begins the watch over a NIC that is up.
func watchHealth(n *nic) *health {
	h := newHealth(n)
	h.done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for now := time.Now(); h.look(now); {
			select {
			case now = <-tick.C:
			case <-h.stop:
				return
			}
		}
	})
	return h
}

// close ends the watch.
func (h *health) close() error {
	close(h.stop)
	h.done.Wait()
	return nil
}

// over is why the NIC can't be used any longer; nil while it can. Any goroutine may
// ask.
func (h *health) over() error {
	if err := h.end.Load(); err != nil {
		return *err
	}
	if h.n.fw.lost.Load() {
		return errDeviceLost
	}
	return nil
}

// look is one turn. It returns false when there is nothing left to look at.
func (h *health) look(now time.Time) bool {
	n := h.n
	if err := h.wanted(); err != nil {
		h.end.Store(&err)
		return false
	}
	switch v := readVitals(n.dev.bar0()); h.pulse.judge(v) {
	case lost:
		n.fw.lost.Store(true)
		return false
	case ill:
		n.control.illness.add(1)
		n.notify("firmware is ill: %s (syndrome %#x): if traffic stops, power-cycle the machine", nameOf(healthNames, v.syndrome), v.syndrome)
	case stopped:
		n.control.stops.add(1)
		n.notify("firmware has stood still for %v: it takes no commands; if that lasts, power-cycle the machine", stillLooks*watchEvery)
	}
	h.tellEvents(now)
	h.mend()
	return true
}

// wanted is errWantedBack when the host asks for the function.
func (h *health) wanted() error {
	if h.deaf {
		return nil
	}
	wanted, err := h.n.dev.wantedBack()
	if err != nil {
		h.deaf = true
		h.n.notify("%v: to take the function away, end this program first", err)
	}
	if wanted {
		return errWantedBack
	}
	return nil
}

// tellEvents tells of the link, and of what was counted since it was last told.
func (h *health) tellEvents(now time.Time) {
	l := &h.n.control
	if up := l.linkUp.Load(); up != h.link {
		h.link = up
		h.n.notify("the link is %s (%d changes so far)", map[bool]string{true: "up", false: "down"}[up], l.flaps.get())
	}
	for i, t := range tellings {
		if v := t.count(l).get(); v != h.seen[i] && now.Sub(h.told[i]) >= tellEvery {
			h.seen[i], h.told[i] = v, now
			h.n.notify(t.text, v)
		}
	}
}

// mend sees to queues whose completions are lost, and to those that broke before the last
// look: meanwhile channels have taken what was completed, and have seen to what a
// completion tells. It may wait for firmware.
func (h *health) mend() {
	for _, ev := range h.due {
		switch kind, number := ev.workQueue(); kind {
		case eventFromRQ:
			h.n.mendRX(number, nameOf(workQueueErrors, ev.kind))
		case eventFromSQ:
			h.n.mendTX(number, nameOf(workQueueErrors, ev.kind))
		}
	}
	h.due = h.due[:0]
	for range cap(h.n.control.broken) {
		select {
		case ev := <-h.n.control.broken:
			if ev.kind == eventCQError {
				h.mendCQ(ev.cqn(), nameOf(cqErrors, ev.data[11]))
			} else {
				h.due = append(h.due, ev)
			}
		default:
			return
		}
	}
}

// mendCQ sees to the queue whose completions are lost. It keeps the completion queue that
// it was made with, so that a receive queue is replaced (rebuild.go) and any other one is out
// of service. The number is the device's word and may be any.
func (h *health) mendCQ(cqn uint32, why string) {
	n := h.n
	for _, c := range n.channels {
		c.do(func() {
			if c.rx.cq.n == cqn || c.next != nil && c.next.cq.n == cqn {
				h.stale.Store(true)
				n.notify("completion queue of receive queue rx%d: %s: receive queues are replaced", c.index, why)
			}
			for _, q := range c.lasting() {
				if q.cq.n == cqn {
					n.notify("completion queue of %s: %s: the queue is out of service until the next start", q.name, why)
				}
			}
		})
	}
	n.senders(func(q *sendQueue) {
		if q.cq.n == cqn && !q.severed {
			n.severTX(q, why)
		}
	})
}

// named is a completion queue and what it is of.
type named struct {
	name string
	cq   *compQueue
}

// lasting are those of the channel's completion queues that are neither replaced nor
// senders'.
func (c *channel) lasting() (all []named) {
	if c.ico != nil {
		all = append(all, named{fmt.Sprintf("the queue that fills rx%d", c.index), c.ico.cq})
	}
	if c.xsk != nil {
		all = append(all, named{"receive queue " + c.xsk.name, c.xsk.recv.cq})
	}
	return all
}

// senders calls f for every send queue of n's, in the goroutine of the channel that owns
// it: one of another NIC's, where that forwards through n. Numbers are a device's own, so
// that such a queue must not be looked for among its owner's.
func (n *nic) senders(f func(*sendQueue)) {
	for _, c := range n.channels {
		owners := []*channel{c}
		for _, other := range []*nic{c.peer, c.xskTo} {
			if other != nil && other != n && c.index < len(other.channels) {
				owners = append(owners, other.channels[c.index])
			}
		}
		for _, o := range owners {
			o.do(func() { o.sendersTo(n, f) })
		}
	}
}

// sendersTo calls f for the channel's send queues that are n's.
func (c *channel) sendersTo(n *nic, f func(*sendQueue)) {
	for _, q := range c.sendQueues() {
		if q == c.forward && c.peer == n || q != c.forward && c.n == n {
			f(q)
		}
	}
	if c.xsk != nil && c.xskTo == n {
		f(c.xsk.tx)
	}
}

// mendTX resets the send queue of that number if it is in error and no completion says so.
// The number is the device's word and may be any.
func (n *nic) mendTX(sqn uint32, why string) {
	n.senders(func(q *sendQueue) {
		if q.n != sqn || q.failed || q.dead {
			return
		}
		if state, err := n.fw.querySQ(sqn); err == nil && state == queueError {
			n.recoverTX(q, why)
		}
	})
}

// mendRX resets the receive queue of that number if it is in error and its channel has
// not noticed. The number is the device's word and may be any.
func (n *nic) mendRX(rqn uint32, why string) {
	for _, c := range n.channels {
		c.do(func() {
			switch {
			case c.rx.n == rqn && !c.rx.failed && n.inError(rqn):
				n.renewRX(c, why)
			case c.xsk != nil && c.xsk.recv.n == rqn && !c.xsk.recv.failed && n.inError(rqn):
				n.renewXSK(c.xsk, why)
			}
		})
	}
}

func (n *nic) inError(rqn uint32) bool {
	state, err := n.fw.queryRQ(rqn)
	return err == nil && state == queueError
}
