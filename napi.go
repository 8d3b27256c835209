package main

// napi.go owns when to look: interrupts, the poll loop of a channel, and what others
// want done between two polls. It does not know what is polled (rxpath.go, txpath.go)
// and does not read control events (events.go).
// Manual: chapters Event Queues, Completion Queues (arming).
//
// No wake-up is lost. The order before a sleep is: poll finds nothing; each
// completion queue is armed with the consumer index that we have reached; the
// event queue is armed with its own; sleep. What completes before the first arm
// lies beyond that index, so the device sends the event when it sees the arm. What
// completes after it sends one by itself. Either way the event is in the event
// queue, whose arm interrupts at once when there is one beyond its index, and
// the eventfd keeps the interrupt until it is read. An event that is old news, of
// work that the last poll found, costs one empty poll.

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// mailbox takes calls from other goroutines to that of a loop. Who posts a call
// waits until it has run. While no loop runs there is nobody to disturb: then the
// poster runs the call itself, and a loop that starts meanwhile waits for it.
type mailbox struct {
	full  atomic.Bool // there may be calls; the loop looks at this alone
	mu    sync.Mutex  // guards what follows, and calls while no loop runs
	runs  bool        // a loop takes calls
	calls []call
}

// call is a function to run, and who waits for its end.
type call struct {
	f    func()
	done chan struct{}
}

// post has f run by the loop that v wakes, and returns when it has. Calls do not
// nest: f must not post to the same loop.
func (m *mailbox) post(v *bell, f func()) {
	m.mu.Lock()
	if !m.runs {
		defer m.mu.Unlock()
		f()
		return
	}
	done := make(chan struct{})
	m.calls = append(m.calls, call{f, done})
	m.full.Store(true)
	m.mu.Unlock()
	v.ring()
	<-done
}

// serve runs what was posted. The loop calls it between two polls.
func (m *mailbox) serve() {
	m.mu.Lock()
	calls := m.calls
	m.calls = nil
	m.full.Store(false)
	m.mu.Unlock()
	runCalls(calls)
}

// open is called before a loop starts, shut by the loop when it ends: what was
// posted until then still runs.
func (m *mailbox) open() {
	m.mu.Lock()
	m.runs = true
	m.mu.Unlock()
}

func (m *mailbox) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = false
	runCalls(m.calls)
	m.calls = nil
	m.full.Store(false)
}

func runCalls(calls []call) {
	for _, c := range calls {
		c.f()
		close(c.done)
	}
}

// poller is what a channel's loop turns. One interface call a poll, not a packet.
type poller interface {
	// poll works on up to budget completions and returns how many there were.
	poll(budget int) int
	// arm asks the device to raise an event for the next completion.
	arm()
	// idle is called when the loop is about to sleep.
	idle()
	// pending reports whether there is work whose end raises no event here.
	pending() bool
	// lastTurns takes those that are owed when the loop is told to stop.
	lastTurns(turn func() bool)
	// load is what has been received so far, for adaptive moderation.
	load() (packets, bytes uint64)
}

// napiStats counts what a loop did, by mlx5e's names.
type napiStats struct {
	events counter // completion events
	polls  counter
	arms   counter // times it went to sleep with its queues armed
}

// napiTally is what has been counted and not yet published.
type napiTally struct{ events, polls, arms uint64 }

// idleWait bounds a sleep, so that statistics of an idle channel stay fresh;
// pendingWait bounds it while a poll is the only way to see the end of work. A test
// lengthens the first, since no wake-up may depend on it.
var idleWait = 250 * time.Millisecond

const pendingWait = time.Millisecond

// napi is the loop of one channel.
type napi struct {
	eq       *eventQueue
	vec      *bell
	cpu      int  // to pin the thread to; -1 does not
	busy     bool // spin instead of sleeping
	cqs      []*compQueue
	mail     mailbox  // what others want done between two polls
	adapt    adaptive // moderation of the receive queue
	courtesy courtesy // to commands under way
	seen     uint64   // events of the receive queue
	tally    napiTally
	stats    napiStats
}

// spareThreads lets the Go runtime run as many loops beside everything else. Loops
// that never sleep would otherwise hold all the threads it runs code on, and the
// control goroutines would wait up to 10 ms for their turn; the kernel shares CPUs
// out sooner and puts who slept first. It returns what was before.
func spareThreads(loops int) int { return runtime.GOMAXPROCS(runtime.NumCPU() + loops) }

// run polls until the bell is halted. It owns the channel's queues meanwhile.
func (n *napi) run(p poller) {
	runtime.LockOSThread() // not unlocked: the pinned thread ends with the goroutine
	if n.cpu >= 0 {
		var set unix.CPUSet
		set.Set(n.cpu)
		_ = unix.SchedSetaffinity(0, &set) // best effort: a container may forbid it
	}
	for !n.vec.stop.Load() {
		if n.turn(p) || n.busy {
			n.courtesy.giveWay()
			continue
		}
		n.vec.wait(n.rest(p))
		n.wake()
	}
	p.lastTurns(func() bool { return n.turn(p) }) // what came before the halt
	p.idle()
	n.mail.shut() // from here on a caller owns the queues
}

// turn does what others want done, polls once and reports whether there was work.
func (n *napi) turn(p poller) bool {
	if n.mail.full.Load() {
		n.mail.serve()
	}
	n.tally.polls++
	return p.poll(napiBudget) > 0
}

// rest is what comes before a sleep: the queues are armed, then what they report
// to. It returns the longest that the sleep may be.
func (n *napi) rest(p poller) time.Duration {
	n.tally.arms++
	p.arm()
	n.eq.arm()
	p.idle()
	packets, bytes := p.load()
	n.adapt.sample(loadSample{time.Now(), n.seen, packets, bytes})
	if p.pending() {
		return pendingWait
	}
	return idleWait
}

// report makes the loop's counters visible.
func (n *napi) report() {
	n.stats.events.add(n.tally.events)
	n.stats.polls.add(n.tally.polls)
	n.stats.arms.add(n.tally.arms)
	n.tally = napiTally{}
}

// wake consumes the events that woke us and notes which queues they were for.
func (n *napi) wake() {
	for {
		ev, ok := n.eq.next()
		if !ok {
			return
		}
		for _, q := range n.cqs {
			if ev.kind != eventComp || q.n != ev.cqn() {
				continue
			}
			q.fired()
			n.tally.events++
			if n.adapt.covers(q.n) {
				n.seen++
			}
		}
	}
}

// interruptsOn lists the interrupts that are served by one of cpus now, by number,
// from proc (/proc). Where that cannot be read there are none.
func interruptsOn(proc string, cpus []int) (irqs []string) {
	lists, _ := filepath.Glob(filepath.Join(proc, "irq", "*", "effective_affinity_list"))
	for _, path := range lists {
		b, err := os.ReadFile(path)
		if err != nil || !meets(strings.TrimSpace(string(b)), cpus) {
			continue
		}
		irqs = append(irqs, filepath.Base(filepath.Dir(path)))
	}
	return irqs
}

// meets reports whether a list such as 0-3,8 names one of cpus.
func meets(list string, cpus []int) bool {
	for _, part := range strings.Split(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, err := strconv.Atoi(lo)
		last, again := strconv.Atoi(hi)
		if err != nil || again != nil {
			continue
		}
		for _, c := range cpus {
			if first <= c && c <= last {
				return true
			}
		}
	}
	return false
}
