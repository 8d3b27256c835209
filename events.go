package main

// events.go owns the control events: one goroutine that reads the command, the
// asynchronous and the page request queue, and one that serves page requests, so
// that a command may wait while events go on. Data completions are not its
// business (napi.go). The loop sleeps in the kernel, on a thread of its own
// (prompt.go says why).
// Manual: chapter Events.

import (
	"sync"
	"sync/atomic"
	"time"
)

// controlLoop reads control events. The counters are written by its goroutine.
type controlLoop struct {
	vec      *bell
	eqs      [3]*eventQueue
	cmd      *commander
	pages    *firmwarePages
	requests chan pageRequest
	wg       sync.WaitGroup

	linkUp   atomic.Bool
	flaps    counter      // link changes
	cqErrors counter      // completion queues that failed
	wqErrors counter      // work queues that broke without a completion
	fatal    counter      // internal errors the device reported
	unknown  counter      // events of kinds that we did not ask for
	failures counter      // page requests that could not be served
	stops    counter      // times that firmware stood still; written by health.go, as the next
	illness  counter      // times that it showed why it is ill
	broken   chan hwEvent // the errors of queues, for who watches over them (health.go)
}

// pageRequest is firmware asking for (n > 0) or offering (n < 0) pages.
type pageRequest struct {
	function uint32
	n        int
}

// controlWait bounds a sleep of the control loop.
const controlWait = time.Second

// start arms the queues and lets commands complete by event.
func (l *controlLoop) start(cmd *commander, pages *firmwarePages, vec *bell) {
	l.cmd, l.pages, l.vec = cmd, pages, vec
	l.requests, l.broken = make(chan pageRequest, 64), make(chan hwEvent, 64)
	for _, q := range l.eqs {
		q.arm()
	}
	l.wg.Add(2)
	go l.read()
	go l.serve()
	cmd.events.Store(true)
}

// stop ends the loop. Commands are polled for from here on.
func (l *controlLoop) stop() error {
	l.cmd.events.Store(false)
	l.vec.halt()
	l.wg.Wait()
	return l.vec.close()
}

func (l *controlLoop) read() {
	defer l.wg.Done()
	defer close(l.requests)
	for l.vec.wait(controlWait) {
		for _, q := range l.eqs {
			for ev, ok := q.next(); ok; ev, ok = q.next() {
				l.take(ev)
			}
			q.arm()
		}
	}
}

// take acts on one event.
func (l *controlLoop) take(ev hwEvent) {
	switch ev.kind {
	case eventCommand:
		l.cmd.finish(be32(ev.data[:], 0))
	case eventPageRequest:
		select {
		case l.requests <- pageRequest{uint32(be16(ev.data[:], 2)), int(int32(be32(ev.data[:], 4)))}:
		default:
			l.failures.add(1) // a flood; firmware asks again
		}
	case eventPortChange:
		if ev.sub == portSubActive || ev.sub == portSubDown {
			l.linkUp.Store(ev.sub == portSubActive)
			l.flaps.add(1)
		}
	case eventCQError:
		l.cqErrors.add(1)
		l.report(ev)
	case eventWQCatas, eventWQInvalid, eventWQAccess:
		l.wqErrors.add(1)
		l.report(ev)
	case eventInternal:
		l.fatal.add(1)
	case eventVportChange:
	default:
		l.unknown.add(1)
	}
}

// report passes on that a queue broke. In a flood of these, or when nobody listens,
// the counter must do.
func (l *controlLoop) report(ev hwEvent) {
	select {
	case l.broken <- ev:
	default:
	}
}

// serve answers page requests in order.
func (l *controlLoop) serve() {
	defer l.wg.Done()
	for r := range l.requests {
		if err := l.pages.serve(r.function, r.n); err != nil {
			l.failures.add(1)
		}
	}
}
