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
	"slices"
)

// ruleTable is the rules in force. One goroutine uses it at a time.
type ruleTable struct {
	s       *steering
	byVer   bool // rules match the IP version, not the EtherType
	counts  bool // the device counts by rule
	setRoot bool
	log     uint8 // of the table's entries
	to      spreadTo
	place   sinkPlace

	rules   []rule
	first   uint32 // the table that packets meet first
	isRoot  bool   // it is the root
	targets map[int]target
	drops   ruleDrops
	undo    undo // of the table in force
	lasting undo // of what stays when rules change: targets, counter
}

// target is a way to one queue: a TIR and a table of one entry, which can be made
// to name another receive queue while packets flow.
type target struct{ rqt, tir uint32 }

// ruleDrops is what counts packets that rules drop: a flow counter, or where the
// device has none a sink. It is made with the first rule that drops.
type ruleDrops struct {
	on      bool
	counter uint32
	sink    *sink
}

func newRuleTable(s *steering, c caps, to spreadTo, place sinkPlace) *ruleTable {
	return &ruleTable{s: s, byVer: c.outerVer, counts: c.flowCounts, setRoot: c.setRoot, log: min(logCeil(maxRules), c.logTable),
		to: to, place: place, first: s.filter, targets: map[int]target{}}
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
func (t *ruleTable) build(rules []rule, u *undo) (table uint32, err error) {
	fw := t.s.fw
	if table, err = fw.createFlowTable(rulesLevel, t.log, t.s.filter); err != nil {
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
		return t.s.addRule(table, group, uint32(r.loc), value, destTIR, to.tir, u)
	}
	if err := t.countDrops(); err != nil {
		return err
	}
	if t.drops.sink != nil {
		return t.s.addRule(table, group, uint32(r.loc), value, destTIR, t.drops.sink.tir, u)
	}
	if err := t.s.fw.setDropEntry(table, group, uint32(r.loc), value, t.drops.counter); err != nil {
		return err
	}
	u.add("rule", func() error { return t.s.fw.deleteFlowEntry(table, uint32(r.loc)) })
	return nil
}

// target finds or makes the way to a queue.
func (t *ruleTable) target(queue int) (to target, err error) {
	if to, ok := t.targets[queue]; ok {
		return to, nil
	}
	fw, rqn := t.s.fw, slices.Concat(t.to.rqns, t.to.upper)[queue]
	if to.rqt, err = fw.createRQT([]uint32{rqn}); err != nil {
		return to, fmt.Errorf("indirection table: %w", err)
	}
	t.lasting.add("indirection table", func() error { return fw.destroy(opDestroyRQT, to.rqt) })
	if to.tir, err = fw.createTIR(t.to.td, to.rqt, rssHash{fields: hashAddrs}, symmetricKey[:], false); err != nil {
		return to, fmt.Errorf("TIR: %w", err)
	}
	t.lasting.add("TIR", func() error { return fw.destroy(opDestroyTIR, to.tir) })
	t.targets[queue] = to
	return to, nil
}

// dropped is what counts packets that rules drop; it is not on where none does.
func (t *ruleTable) dropped() ruleDrops { return t.drops }

// countDrops makes what counts packets that rules drop, once.
func (t *ruleTable) countDrops() (err error) {
	d, fw := &t.drops, t.s.fw
	switch {
	case d.on:
		return nil
	case !t.counts:
		if d.sink, err = t.place.newSink(&t.lasting); err != nil {
			return fmt.Errorf("queue of what rules drop: %w", err)
		}
	default:
		if d.counter, err = fw.allocFlowCounter(); err != nil {
			return fmt.Errorf("flow counter: %w", err)
		}
		t.lasting.add("flow counter", func() error { return fw.deallocFlowCounter(d.counter) })
	}
	d.on = true
	return nil
}
