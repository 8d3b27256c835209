package main

// moderation.go owns interrupt moderation: how long and for how many completions
// a completion queue holds its event back, and the adaptive choice of that. It
// decides; a small worker asks firmware, so that no queue's goroutine ever waits
// for a command. It does not own arming (queue.go) or the loop (napi.go).
// Manual: chapter Completion Queues (moderation), MODIFY_CQ.
//
// The adaptive algorithm is a hill climb over a table of profiles (Linux: net DIM).
// Over each 64 events it measures bytes, packets and events a millisecond. While
// the next profile makes things better it goes on in the same direction; when one
// makes them worse it turns; at the top, or when it has walked for too long, it
// rests there until the load changes.

import (
	"sync"
	"sync/atomic"
	"time"
)

// mostUsecs is the longest period that a completion queue can be told.
const mostUsecs = 4095

// rxProfiles are what adaptive moderation chooses from, by where the period starts:
// at the event, and at the completion. Source: Linux, lib/dim (figures).
var rxProfiles = [2][]moderation{
	{{1, 256}, {8, 256}, {64, 256}, {128, 256}, {256, 256}},
	{{2, 256}, {8, 128}, {16, 64}, {32, 64}, {64, 64}},
}

const (
	firstProfile = 1  // where a climb starts
	sampleEvents = 64 // events that a measurement takes
	significant  = 10 // percent by which rates must differ
)

// loadSample is what a queue had counted at a moment.
type loadSample struct {
	at      time.Time
	events  uint64
	packets uint64
	bytes   uint64
}

// loadRate is a load, each a millisecond, rounded up.
type loadRate struct{ bytes, packets, events uint64 }

// rateBetween is the load between two samples; ok is false where no time passed.
func rateBetween(a, b loadSample) (r loadRate, ok bool) {
	us := uint64(max(b.at.Sub(a.at).Microseconds(), 0))
	if us == 0 {
		return r, false
	}
	per := func(n uint64) uint64 { return (n*1000 + us - 1) / us }
	return loadRate{per(b.bytes - a.bytes), per(b.packets - a.packets), per(b.events - a.events)}, true
}

// differs reports whether a rate differs from the one before by more than chance
// explains, in whole percent of that. Whatever comes where there was nothing does.
func differs(now, before uint64) bool {
	if before == 0 {
		return now > 0
	}
	return 100*(max(now, before)-min(now, before))/before > significant
}

// compareLoad is +1 when now is better than before, -1 when worse, 0 when neither:
// more bytes, else more packets, else fewer events.
func compareLoad(now, before loadRate) int {
	for _, r := range [...]struct {
		now, before uint64
		more        int // what it is when there is more
	}{
		{now.bytes, before.bytes, 1}, {now.packets, before.packets, 1}, {now.events, before.events, -1},
	} {
		if differs(r.now, r.before) {
			if r.now > r.before {
				return r.more
			}
			return -r.more
		}
	}
	return 0
}

// climbState is what a climber does.
type climbState uint8

const (
	climbing  climbState = iota
	onTop                // rests until the load changes
	exhausted            // rests for a number of measurements
)

// climber looks for the best of a number of profiles.
type climber struct {
	level  int // of the profile in force
	top    int // the last profile
	state  climbState
	step   int    // +1 towards longer periods, -1 back
	taken  [2]int // steps since the last turn: back, forth
	tired  int    // steps since the last rest; of an exhausted one, measurements to rest
	before loadRate
}

func newClimber(profiles int) climber {
	return climber{level: firstProfile, top: profiles - 1, step: 1}
}

// decide takes a measurement and reports whether another profile is wanted now.
func (c *climber) decide(now loadRate) bool {
	was, rested := c.level, c.state == onTop
	change := compareLoad(now, c.before)
	switch c.state {
	case onTop:
		if change != 0 {
			c.leave()
		}
	case exhausted:
		if c.tired--; c.tired == 0 {
			c.leave()
		}
	case climbing:
		if change <= 0 {
			c.turn()
		}
		if c.summit() {
			c.rest(onTop)
		} else {
			c.walk()
		}
	}
	if !rested || c.state != onTop {
		c.before = now // one that rests compares with how it was when it arrived
	}
	return c.level != was
}

// leave starts to climb again, back first where that is possible.
func (c *climber) leave() {
	c.state, c.step = climbing, -1
	if c.level == 0 {
		c.step = 1
	}
	c.walk()
}

// turn goes the other way, of which no step has been taken yet.
func (c *climber) turn() {
	c.step = -c.step
	*c.steps(c.step) = 0
}

// steps counts those taken in one direction.
func (c *climber) steps(direction int) *int { return &c.taken[(direction+1)/2] }

// summit reports whether several steps one way were followed by a single one back:
// the last of the several made things worse, so that this is the best profile.
func (c *climber) summit() bool { return *c.steps(-c.step) > 1 && *c.steps(c.step) == 1 }

// walk takes one step, or rests where there is none or after too many.
func (c *climber) walk() {
	switch next := c.level + c.step; {
	case c.tired == 2*(c.top+1):
		c.rest(exhausted)
	case next < 0 || next > c.top:
		c.rest(onTop)
	default:
		c.level = next
		*c.steps(c.step)++
		c.tired++
	}
}

// rest stays where it is. An exhausted climber does so for as many measurements
// as it took steps.
func (c *climber) rest(how climbState) {
	c.state, c.taken = how, [2]int{}
	if how == onTop {
		c.tired = 0
	}
}

// Adaptive moderation, by where the period starts.
const (
	adaptOff = iota
	adaptEQE // at the event
	adaptCQE // at the completion
)

// adaptiveMode picks one of them.
func adaptiveMode(on, fromCQE bool) uint32 {
	switch {
	case !on:
		return adaptOff
	case fromCQE:
		return adaptCQE
	}
	return adaptEQE
}

// adaptive chooses the moderation of a channel's received completions: those of its
// queue and of its socket's, which wake one loop. Its queue's goroutine owns it, but
// for want and asked.
type adaptive struct {
	want     atomic.Uint32 // adaptOff...; written by control
	have     uint32        // the same, as taken over
	asked    atomic.Bool   // a profile is on its way to firmware
	climber  climber
	profiles []moderation
	from     loadSample // start of the measurement
	worker   *moderator
	cqn      atomic.Uint32 // written by the owner
	told     told          // guarded by the worker's mu
	also     uint32        // the queue of the channel's socket, which goes with it; 0 is none, set before the channel runs
}

// told is a profile that firmware has taken for a completion queue.
type told struct {
	cqn     uint32
	profile moderation
}

// covers reports whether it is about completion queue cqn.
func (a *adaptive) covers(cqn uint32) bool {
	return cqn == a.cqn.Load() || cqn == a.also && a.also != 0
}

// each calls f for all that it is about, which is cqn and what goes with it. It
// returns the first failure.
func (a *adaptive) each(cqn uint32, f func(cqn uint32) error) error {
	err := f(cqn)
	if a.also == 0 {
		return err
	}
	if other := f(a.also); err == nil {
		err = other
	}
	return err
}

// follow has moderation begin anew on another completion queue, which has the
// fixed moderation. The owner calls it.
func (a *adaptive) follow(cqn uint32) {
	a.cqn.Store(cqn)
	a.have = adaptOff
}

// sample looks at what the queue has counted, when it is about to sleep. Where
// a measurement ends with a wish, the worker gets it.
func (a *adaptive) sample(now loadSample) {
	if want := a.want.Load(); want != a.have {
		a.have, a.from = want, now
		if want != adaptOff {
			a.profiles = rxProfiles[want-adaptEQE]
			a.climber = newClimber(len(a.profiles))
			a.ask()
		}
		return
	}
	if a.have == adaptOff || a.asked.Load() || now.events-a.from.events < sampleEvents {
		return
	}
	if r, ok := rateBetween(a.from, now); ok && a.climber.decide(r) {
		a.ask()
	}
	a.from = now
}

// ask hands the profile in force to the worker; a worker that is behind gets it
// with the next change.
func (a *adaptive) ask() {
	a.asked.Store(true)
	select {
	case a.worker.requests <- moderRequest{a.cqn.Load(), a.profiles[a.climber.level], a.have, a}:
	default:
		a.asked.Store(false)
	}
}

// moderRequest is a completion queue's wish.
type moderRequest struct {
	cqn  uint32
	want moderation
	mode uint32 // adaptEQE or adaptCQE
	from *adaptive
}

// moderator is the worker that tells firmware what adaptive moderation wants.
type moderator struct {
	fw       firmware
	mu       sync.Mutex // orders what firmware is told
	requests chan moderRequest
	torn     bool // control's: not every queue has what was set
	done     sync.WaitGroup
	changes  counter
	failures counter
}

// start begins work on requests of up to so many queues at a time.
func (m *moderator) start(fw firmware, queues int) {
	m.fw, m.requests = fw, make(chan moderRequest, queues)
	m.done.Go(func() {
		for r := range m.requests {
			m.serve(r)
		}
	})
}

// serve tells firmware. A wish that control has withdrawn meanwhile is dropped, as
// is one for a queue that was replaced.
func (m *moderator) serve(r moderRequest) {
	defer r.from.asked.Store(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.from.want.Load() != r.mode || r.from.cqn.Load() != r.cqn {
		return
	}
	if err := r.from.each(r.cqn, func(cqn uint32) error { return m.fw.modifyCQ(cqn, r.want) }); err != nil {
		m.failures.add(1)
		return
	}
	r.from.told = told{r.cqn, r.want}
	m.changes.add(1)
}

// rxModer is what holds back the events of a channel's received completions.
type rxModer struct {
	mode    uint32 // adaptOff...
	moder   moderation
	fromCQE bool
}

// inForce is what does on a's queues, where control has set was.
func (m *moderator) inForce(a *adaptive, was rxModer) rxModer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was.mode != adaptOff && a.told.cqn == a.cqn.Load() {
		was.moder = a.told.profile // the load has chosen
	}
	return was
}

// set puts to in force on a's queues and has adaptive moderation go on from there
// when its mode says so; one that has begun goes on as it is. mayMove tells that the
// device can change where the period starts.
func (m *moderator) set(a *adaptive, to rxModer, mayMove bool) error {
	if to.mode != adaptOff && a.want.Load() == to.mode {
		if !m.torn {
			return nil
		}
		return m.restore(a, m.inForce(a, to), mayMove)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.put(a, to, mayMove); err != nil {
		return err
	}
	a.told = told{}
	a.want.Store(to.mode)
	return nil
}

// restore brings back what inForce has returned. What adaptive moderation is to do
// is brought back whether firmware agrees or not.
func (m *moderator) restore(a *adaptive, to rxModer, mayMove bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cqn := a.cqn.Load()
	if to.mode != adaptOff && a.want.Load() == to.mode && a.told.cqn == cqn {
		to.moder = a.told.profile // it has gone on meanwhile
	}
	a.want.Store(to.mode)
	if a.told = (told{}); to.mode != adaptOff {
		a.told = told{cqn, to.moder}
	}
	return m.put(a, to, mayMove)
}

// put tells firmware.
func (m *moderator) put(a *adaptive, to rxModer, mayMove bool) error {
	return a.each(a.cqn.Load(), func(cqn uint32) error { return moderate(m.fw, cqn, to.moder, to.fromCQE, mayMove) })
}

// settle returns when the worker has nothing more to do with a's queue cqn, which was
// replaced before. Its number may become another's.
func (m *moderator) settle(a *adaptive, cqn uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.told.cqn == cqn {
		a.told = told{}
	}
}

// moderate puts m in force on a completion queue, and where its period starts if
// the device can move that.
func moderate(fw firmware, cqn uint32, m moderation, fromCQE, mayMove bool) error {
	if mayMove {
		return fw.modifyCQMode(cqn, m, fromCQE)
	}
	return fw.modifyCQ(cqn, m)
}

// halt ends the worker; nobody asks any more.
func (m *moderator) halt() {
	if m.requests != nil {
		close(m.requests)
		m.done.Wait()
	}
}
