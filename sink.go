package main

// sink.go owns the queue that takes nothing: a receive queue that never gets a
// buffer. What is led to it the device drops and counts as out of buffer, in a set
// of counters that nothing else uses. That is how packets are dropped by name on
// devices that cannot count by rule or count what their tables drop (ConnectX-4).
// Linux mlx5e counts what comes while its interface is down in the same way. It does not
// own what is led here (steering.go, ruletable.go).
// Manual: chapters Receive Queue, Q Counters.

import "fmt"

// sink is such a queue.
type sink struct {
	rqn      uint32
	counters uint32 // Q counter set
}

// sinkPlace is what a sink is made in: the event queue and doorbell page of a
// channel, which it never uses.
type sinkPlace struct {
	fw       firmware
	mem      *arena
	eqn      uint32
	uar      []byte
	uarPage  uint32
	tsFormat uint8
}

const logSink = 4 // entries of its queues, which stay empty

// newSink makes a sink.
func (p sinkPlace) newSink(u *undo) (*sink, error) {
	fw := p.fw
	n, err := fw.alloc(opAllocQCounter)
	if err != nil {
		return nil, fmt.Errorf("set of counters: %w", err)
	}
	s := &sink{counters: n & 0xff}
	u.add("Q counter", func() error { return fw.destroy(opDeallocQCounter, s.counters) })
	cq, err := newCompQueue(p.mem, logSink, p.uar)
	if err != nil {
		return nil, err
	}
	u.add("completion ring", func() error { cq.free(p.mem); return nil })
	if cq.n, err = fw.createCQ(cqConfig{logSize: logSink, uar: p.uarPage, eqn: p.eqn, record: cq.rec.mem.iova, pages: cq.buf.pages()}); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	u.add("completion queue", func() error { return fw.destroy(opDestroyCQ, cq.n) })
	if s.rqn, err = p.newRQ(cq.n, s.counters, u); err != nil {
		return nil, err
	}
	return s, nil
}

// newRQ makes the receive queue. Without a buffer it needs no protection domain.
func (p sinkPlace) newRQ(cqn, counters uint32, u *undo) (uint32, error) {
	const logStride = 4 // a WQE of one segment
	ring, err := p.mem.alloc(1 << (logStride + logSink))
	if err != nil {
		return 0, fmt.Errorf("receive ring: %w", err)
	}
	u.add("receive ring", func() error { p.mem.free(ring); return nil })
	rec, err := p.mem.newRecord()
	if err != nil {
		return 0, fmt.Errorf("receive ring: %w", err)
	}
	u.add("doorbell record", func() error { p.mem.freeRecord(rec); return nil })
	rqn, err := p.fw.createRQ(rqConfig{cqn: cqn, counters: counters, tsFormat: p.tsFormat,
		wq: workQueue{kind: wqCyclic, record: rec.mem.iova, logStride: logStride, logSize: logSink, pages: ring.pages()}})
	if err != nil {
		return 0, fmt.Errorf("receive queue: %w", err)
	}
	u.add("receive queue", func() error { return p.fw.destroy(opDestroyRQ, rqn) })
	if err := p.fw.modifyRQ(rqn, queueReset, queueReady); err != nil {
		return 0, fmt.Errorf("receive queue: %w", err)
	}
	return rqn, nil
}
