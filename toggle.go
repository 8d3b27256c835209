package main

// toggle.go owns -toggle: private flags that are switched on and off all the time, each
// with a period of its own. It does not own what a flag is or how it is changed
// (ethtool.go). One goroutine owns all of it.

import (
	"slices"
	"time"
)

// toggle is one such flag.
type toggle struct {
	flag   privFlag
	period time.Duration
	next   time.Time
	done   int   // switches
	failed int   // switches that did not work
	why    error // the first of these
}

// parseToggles reads NAME=PERIOD, one a text.
func parseToggles(texts []string) (out []*toggle, err error) {
	for _, text := range texts {
		pairs, err := wordPairs("-toggle", text, toggleForm)
		if err != nil || len(pairs) == 0 {
			return nil, wishf("-toggle %s: %s", text, toggleForm)
		}
		for _, p := range pairs {
			t := &toggle{}
			if t.flag, err = findPrivFlag(p[0]); err != nil {
				return nil, err
			}
			if t.period, err = parseTime(p[1]); err != nil || t.period <= 0 {
				return nil, wishf("-toggle %s: %s", text, toggleForm)
			}
			if slices.ContainsFunc(out, func(o *toggle) bool { return o.flag.name == t.flag.name }) {
				return nil, wishf("-toggle: %s stands twice", t.flag.name)
			}
			out = append(out, t)
		}
	}
	return out, nil
}

const toggleForm = "NAME=PERIOD, such as skb_tx_mpwqe=10ms"

// parseTime reads a time with its unit, or seconds.
func parseTime(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	return time.ParseDuration(s + "s")
}

// suits says why a NIC of these sizes cannot switch the flag while packets flow.
func (t *toggle) suits(c caps, p *params) error {
	if why := t.flag.refuse(c); why != "" {
		return wishf("-toggle %s: %s", t.flag.name, why)
	}
	if !t.flag.live(c) {
		return wishf("-toggle %s: on this device it can only be set at start (-priv-flags)", t.flag.name)
	}
	on := *p
	*t.flag.field(&on.flags) = true
	if err := on.chooseRX(c, on.flags.rxStriding, on.flags.rxCompress, 0); err != nil {
		return err
	}
	if on.rxWhy != "" {
		return wishf("-toggle %s: %s", t.flag.name, on.rxWhy)
	}
	return nil
}

// switchOver switches the flag on every one of nics.
func (t *toggle) switchOver(nics []*nic) {
	for _, n := range nics {
		if err := n.setPrivFlag(t.flag.name, !*t.flag.field(&n.params.flags)); err != nil {
			t.failed++
			if t.why == nil {
				t.why = err
			}
			continue
		}
		t.done++
	}
}

// untilNext is how long it is until one of toggles is due; ok is false without any.
func untilNext(toggles []*toggle, now time.Time) (d time.Duration, ok bool) {
	if len(toggles) == 0 {
		return 0, false
	}
	first := slices.MinFunc(toggles, func(a, b *toggle) int { return a.next.Compare(b.next) })
	return max(first.next.Sub(now), 0), true
}

// switchDue switches what is due. A switch that is late moves those that follow it.
func switchDue(toggles []*toggle, nics []*nic, now time.Time) {
	for _, t := range toggles {
		if t.next.After(now) {
			continue
		}
		t.switchOver(nics)
		if t.next = t.next.Add(t.period); t.next.Before(now) {
			t.next = now
		}
	}
}
