package main

// ruletable.go owns the user's rules in the device: the table that every packet
// meets first, the TIRs that lead to single queues, and the counter of what rules
// drop. It does not own what a rule is (rules.go) nor what comes behind (steering.go).
// Manual: chapters Flow Tables, TIR, Flow Counters.
//
//	rules (by location) -> a queue | dropped and counted
//	   | none fits
//	   v
//	filter table
//
// As in Linux rules come before the filter on addresses: what one of them takes
// need not be for us. Where there are none, packets meet the filter at once.
//
// Rules are changed by building a new table beside the old one, which is then made
// the root in one command: no packet ever meets half of them.

import (
	"fmt"
	"sync/atomic"
)

// ruleTable is the rules in force. One goroutine uses it at a time.
type ruleTable struct {
	s       *steering
	byVer   bool // rules match the IP version, not the EtherType
	counts  bool // the device counts by rule
	setRoot bool
	log     uint8 // of the table's entries
	td      uint32
	rqn     func(queue int) uint32 // the receive queue behind a queue's number
	place   sinkPlace

	rules   []rule
	first   uint32                    // the table that packets meet first
	isRoot  bool                      // it is the root
	targets map[int]uint32            // TIRs in front of single queues
	drops   atomic.Pointer[ruleDrops] // nil until a rule drops; whoever shows counters reads it
	undo    undo                      // of the table in force
	lasting undo                      // of what stays when rules change: targets, counter
}

// ruleDrops is what counts packets that rules drop: a flow counter, or where the
// device has none a sink. It is made with the first rule that drops.
type ruleDrops struct {
	counter uint32
	sink    *sink
	tir     uint32 // leads to the sink
}

func newRuleTable(s *steering, c caps, td uint32, rqn func(int) uint32, place sinkPlace) *ruleTable {
	return &ruleTable{s: s, byVer: c.outerVer, counts: c.flowCounts, setRoot: c.setRoot, log: min(logCeil(maxRules), c.logTable),
		td: td, rqn: rqn, place: place, first: s.filter, targets: map[int]uint32{}}
}

// set puts rules in force instead of those there were. They have been checked
// (checkRules) and are sorted. When it fails those there were stay.
func (t *ruleTable) set(rules []rule) (err error) {
	var u undo
	first := t.s.filter
	if len(rules) > 0 {
		if first, err = t.build(rules, &u); err != nil {
			return undone(&u, fmt.Errorf("rules: %w", err))
		}
	}
	if t.isRoot {
		if err := t.s.fw.setFlowTableRoot(first); err != nil {
			return undone(&u, fmt.Errorf("rules as root: %w", err))
		}
	}
	old := t.undo
	t.rules, t.first, t.undo = rules, first, u
	return old.run()
}

// undone takes u back because of err.
func undone(u *undo, err error) error {
	if again := u.run(); again != nil {
		return fmt.Errorf("%w; then %w", err, again)
	}
	return err
}

// open makes the first table the root, where the device lets us: from here on
// packets pass.
func (t *ruleTable) open() error {
	if !t.setRoot {
		return nil
	}
	if err := t.s.fw.setFlowTableRoot(t.first); err != nil {
		return fmt.Errorf("first flow table as root: %w", err)
	}
	t.isRoot = true
	return nil
}

// close takes everything back, whatever fails. Packets meet the filter first again
// before the table goes.
func (t *ruleTable) close() (first error) {
	if t.isRoot && t.first != t.s.filter {
		first = t.s.fw.setFlowTableRoot(t.s.filter)
	}
	for _, u := range []*undo{&t.undo, &t.lasting} {
		if err := u.run(); first == nil {
			first = err
		}
	}
	return first
}

// build makes a table of rules.
func (t *ruleTable) build(rules []rule, u *undo) (uint32, error) {
	fw := t.s.fw
	table, err := fw.createFlowTable(rulesLevel, t.log, t.s.filter)
	if err != nil {
		return 0, err
	}
	u.add("table of rules", func() error { return fw.destroyFlowTable(table) })
	groups := groupRules(rules, t.log, t.byVer)
	var group uint32
	for _, r := range rules {
		if len(groups) > 0 && uint32(r.loc) >= groups[0].first {
			if group, err = t.s.addGroup(table, groups[0].first, groups[0].last, groups[0].mask, u); err != nil {
				return 0, fmt.Errorf("%q: %w", r, err)
			}
			groups = groups[1:]
		}
		if err := t.add(table, group, r, u); err != nil {
			return 0, fmt.Errorf("%q: %w", r, err)
		}
	}
	return table, nil
}

// add writes a rule at its location.
func (t *ruleTable) add(table, group uint32, r rule, u *undo) error {
	_, value := r.match(t.byVer)
	if r.action != ruleDrop {
		to, err := t.target(r.action)
		if err != nil {
			return err
		}
		return t.s.addRule(table, group, uint32(r.loc), value, destTIR, to, u)
	}
	d, err := t.countDrops()
	if err != nil {
		return err
	}
	if d.sink != nil {
		return t.s.addRule(table, group, uint32(r.loc), value, destTIR, d.tir, u)
	}
	if err := t.s.fw.setDropEntry(table, group, uint32(r.loc), value, d.counter); err != nil {
		return err
	}
	u.add("rule", func() error { return t.s.fw.deleteFlowEntry(table, uint32(r.loc)) })
	return nil
}

// target finds or makes the TIR in front of a queue. It stays when rules go: others
// may lead there again.
func (t *ruleTable) target(queue int) (uint32, error) {
	if tir, ok := t.targets[queue]; ok {
		return tir, nil
	}
	tir, err := t.s.directTIR(t.td, t.rqn(queue), &t.lasting)
	if err != nil {
		return 0, fmt.Errorf("queue %d: %w", queue, err)
	}
	t.targets[queue] = tir
	return tir, nil
}

// countDrops finds or makes what counts packets that rules drop.
func (t *ruleTable) countDrops() (*ruleDrops, error) {
	if d := t.drops.Load(); d != nil {
		return d, nil
	}
	d, fw := &ruleDrops{}, t.s.fw
	var err error
	if t.counts {
		if d.counter, err = fw.allocFlowCounter(); err != nil {
			return nil, fmt.Errorf("flow counter: %w", err)
		}
		t.lasting.add("flow counter", func() error { return fw.deallocFlowCounter(d.counter) })
	} else {
		if d.sink, err = t.place.newSink(&t.lasting); err == nil {
			d.tir, err = t.s.directTIR(t.td, d.sink.rqn, &t.lasting)
		}
		if err != nil {
			return nil, fmt.Errorf("queue of what rules drop: %w", err)
		}
	}
	t.drops.Store(d)
	return d, nil
}
