package main

// clock.go owns time: the device's clocks, as BAR0 shows them, and the conversion
// of time stamps in completions to nanoseconds since 1970 UTC. It does not own
// where stamps come from (rxpath.go) or who wants them.
// Manual: chapters Initialization Segment (internal timer, real time), Completion
// Queues (timestamp).
//
// Stamps come in two formats. Free running is a count of ticks of the card's
// oscillator, which the keeper compares with the host's clock about once a second:
// it learns how fast the oscillator really runs and publishes a new straight line
// that starts where the last one ended, so that time neither jumps nor runs
// backwards. Real time is seconds and nanoseconds. Where somebody keeps that clock,
// firmware or PTP, it may be better than the host's: but for the whole seconds of
// its scale it is left alone. Nobody says whether somebody does. A clock that is
// hours off was never set, and one that is near but wanders away from the host's by
// more than two kept clocks do has been left: both are steered as a free-running
// one is. (A host that nobody keeps beside a card that PTP keeps looks the same;
// the host is what all other times here go by.)
//
// Limits: a free-running stamp must lie within 2^40 ticks of the last comparison
// (18 minutes at 1 GHz). A time is as right as the host's clock, give or take the
// time that a register takes to read; that of a kept clock is as right as its keeper.

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// timerBits of the internal timer are compared (Linux: CLOCKSOURCE_MASK(41)).
	timerBits = 41
	// rateShift is the binary point of conversion.rate.
	rateShift = 40

	clockPeriod = time.Second
	clockReads  = 8                      // of which the best is taken
	clockGap    = 150 * time.Microsecond // between two of them
	clockWidth  = 2000                   // nanoseconds that a reading may take longer than others

	clockJump   = 10 * time.Millisecond // farther off is no drift: the clock was set
	clockDoubt  = 2                     // samples in a row that must say so
	driftMost   = 5e-3                  // share by which an oscillator may be off its nominal rate
	gainPhase   = 0.7                   // share of an error that is made good until the next sample
	gainRate    = 0.3                   // share of it that is put down to the oscillator
	stampFuture = int64(time.Second)
)

// Of clocks in real time.
const (
	realUnset = time.Hour // farther off is no time scale: the clock was never set
	// realWander is how far a kept clock may wander from where it was found. NTP over
	// the worst of networks holds a host to some tens of milliseconds.
	realWander = 50 * time.Millisecond
	// realJump is how far off a clock that was set may be and keep its scale. It is
	// more than half a second by what wandering may have added.
	realJump = time.Second/2 + realWander
	// realRates is the part of the time between two samples that two clocks may differ
	// by then: for machines that slept.
	realRates = 5000
	// fadeMost is how much of the phase a clock had when it was left is made good a
	// sample (as adjtime slews).
	fadeMost = int64(500 * time.Microsecond)
)

// readSplit reads a 64-bit clock of two 32-bit registers, the upper at offset at.
// The upper is read twice: when it changed, the lower wrapped in between.
func readSplit(read func(off int) uint32, at int) uint64 {
	hi, lo := read(at), read(at+4)
	if again := read(at); again != hi {
		return uint64(again)<<32 | uint64(read(at+4))
	}
	return uint64(hi)<<32 | uint64(lo)
}

// conversion turns stamps into nanoseconds since 1970. It is never changed once
// it is published.
type conversion struct {
	real   bool   // stamps are seconds and nanoseconds, and ticks are nanoseconds
	base   int64  // time at tick from
	from   uint64 // ticks
	rate   uint64 // nanoseconds a tick from then on, times 2^rateShift
	before uint64 // the same until then: a stamp has one time, whenever it is looked at
}

// ticks of a stamp.
func (c *conversion) ticks(stamp uint64) uint64 {
	if c.real {
		return uint64(realTime(stamp))
	}
	return stamp
}

// wall is the time of a stamp.
func (c *conversion) wall(stamp uint64) int64 {
	d := int64(c.ticks(stamp) - c.from)
	if !c.real {
		d = d << (64 - timerBits) >> (64 - timerBits)
	}
	if d < 0 {
		return c.base - scaled(uint64(-d), c.before)
	}
	return c.base + scaled(uint64(d), c.rate)
}

// scaled is d ticks in nanoseconds.
func scaled(d, rate uint64) int64 {
	hi, lo := bits.Mul64(d, rate)
	return int64(hi<<(64-rateShift) | lo>>rateShift)
}

// realTime converts a stamp in real-time format (seconds in the upper half,
// nanoseconds in the lower) to nanoseconds since 1970.
func realTime(v uint64) int64 { return int64(v>>32)*1e9 + int64(uint32(v)) }

// clockSample is one comparison: a stamp read from the device and the host's time
// at that moment, nanoseconds since 1970.
type clockSample struct {
	stamp uint64
	host  int64
	width int64 // how long the reading took: host is right to half of it
}

// clockServo follows the device's clock. It is a state and pure functions over it.
// An offset is by how much the host is ahead of the line.
type clockServo struct {
	nominal float64 // nanoseconds a tick
	drift   float64 // learned: share by which the oscillator is slow
	line    conversion
	started bool
	doubts  int // samples in a row that were too far off to believe

	// Of real time.
	kept  bool  // somebody keeps the clock: phase and rate are left alone
	left  bool  // nobody does, though it is near the host's
	phase int64 // the offset at which it was found, or as far as that has not faded
	last  int64 // the offset of the last sample
	at    int64 // the host's time then
}

// newClockServo follows a clock of so many kHz, or of real time when khz is 0.
func newClockServo(khz uint32) clockServo {
	if khz == 0 {
		return clockServo{nominal: 1, line: conversion{real: true, rate: 1 << rateShift, before: 1 << rateShift}}
	}
	return clockServo{nominal: 1e6 / float64(khz)}
}

// update takes a sample and returns the conversion that holds from now on.
func (s *clockServo) update(m clockSample) conversion {
	off := m.host - s.line.wall(m.stamp)
	switch {
	case !s.started:
		s.set(m)
	case time.Duration(m.width) > clockJump: // a reading that took so long says nothing
	case s.believes(m, off):
		s.doubts = 0
		s.follow(m, off)
	default: // a torn or delayed reading, or a clock was set: one proves nothing
		if s.doubts++; s.doubts >= clockDoubt {
			s.set(m)
		}
	}
	return s.line
}

// believes reports whether drift explains an offset.
func (s *clockServo) believes(m clockSample, off int64) bool {
	if s.kept {
		return time.Duration(off-s.last).Abs() <= clockJump+time.Duration((m.host-s.at)/realRates)
	}
	return time.Duration(off-s.phase).Abs() <= clockJump
}

// set starts anew at a sample.
func (s *clockServo) set(m clockSample) {
	was := s.kept
	near := s.line.real && time.Duration(m.host-realTime(m.stamp)).Abs() <= realUnset
	s.started, s.doubts, s.phase = true, 0, 0
	s.left = s.left && near // whom a step of the host's clock does not bring back
	if s.kept = near && !s.left; !s.kept {
		s.line = s.through(m, m.host, s.rate(0))
		return
	}
	if off := m.host - s.line.wall(m.stamp); !was || time.Duration(off).Abs() > realJump {
		s.line = s.through(m, realTime(m.stamp)+timeScale(m.host-realTime(m.stamp)), 1<<rateShift)
		s.drift = 0
	}
	s.phase = m.host - s.line.wall(m.stamp)
	s.last, s.at = s.phase, m.host
}

// through is a line of one slope through a sample at which it is at o'clock.
func (s *clockServo) through(m clockSample, at int64, rate uint64) conversion {
	return conversion{real: s.line.real, base: at, from: s.line.ticks(m.stamp), rate: rate, before: rate}
}

// timeScale is what to add to a real-time clock that is off by so much. One that
// was set may keep another scale, such as TAI: whole seconds away from UTC.
func timeScale(off int64) int64 { return int64(time.Duration(off).Round(time.Second)) }

// follow takes a sample that is believed. A kept clock that has wandered too far is
// left: from here on it is steered, and as what it is off is no step of anyone's, it
// must not become one of the line's.
func (s *clockServo) follow(m clockSample, off int64) {
	if !s.kept {
		s.steer(m, off-s.phase)
		return
	}
	s.last, s.at = off, m.host
	if time.Duration(off-s.phase).Abs() <= realWander {
		return
	}
	s.kept, s.left, s.phase = false, true, off
	s.line = s.through(m, s.line.wall(m.stamp), s.line.rate)
}

// steer bends the line so that an error of err nanoseconds fades, and some of the
// phase with it.
func (s *clockServo) steer(m clockSample, err int64) {
	at := s.line.wall(m.stamp)
	span := max(float64(at-s.line.base), float64(clockPeriod))
	s.drift = clampDrift(s.drift + gainRate*float64(err)/span)
	fade := max(-fadeMost, min(s.phase, fadeMost))
	s.phase -= fade
	bend := gainPhase*float64(err)/span + float64(fade)/float64(clockPeriod)
	s.line = conversion{real: s.line.real, base: at, from: s.line.ticks(m.stamp), rate: s.rate(bend), before: s.line.rate}
}

// rate is the slope of the line, bent by a share for the time being.
func (s *clockServo) rate(bend float64) uint64 {
	return uint64(math.Round(s.nominal * (1 + clampDrift(s.drift+bend)) * (1 << rateShift)))
}

func clampDrift(v float64) float64 { return max(-driftMost, min(v, driftMost)) }

// bestSample picks, of several readings at about one time, the one that shows the
// device's clock farthest ahead: a register may lag behind, but never leads. Those
// that were interrupted are left out.
func bestSample(all []clockSample, line conversion) clockSample {
	narrow := all[0].width
	for _, m := range all {
		narrow = min(narrow, m.width)
	}
	best, lead := all[0], int64(math.MinInt64)
	for _, m := range all {
		if d := line.wall(m.stamp) - m.host; d > lead && m.width <= 2*narrow+clockWidth {
			best, lead = m, d
		}
	}
	return best
}

// deviceClock is the clock of one function. Its keeper goroutine writes line, which
// any queue may read.
type deviceClock struct {
	read  func(off int) uint32
	at    int // of the clock's registers
	servo clockServo
	line  atomic.Pointer[conversion]
	stop  chan struct{}
	done  sync.WaitGroup
}

// newDeviceClock compares the clock behind stamps of format a first time. khz is
// the internal timer's rate.
func newDeviceClock(bar []byte, format uint8, khz uint32) *deviceClock {
	c := &deviceClock{read: func(off int) uint32 { return regRead32(bar, off) }, at: regInternalTimer, stop: make(chan struct{})}
	if format == timestampReal {
		c.at, khz = regRealTime, 0
	} else if khz == 0 {
		return c // a clock of unknown rate: there are no times
	}
	c.servo = newClockServo(khz)
	c.compare()
	return c
}

// known reports whether stamps can be converted at all.
func (c *deviceClock) known() bool { return c.line.Load() != nil }

// keep compares the clocks once a period, in a goroutine that halt ends.
func (c *deviceClock) keep() {
	if !c.known() {
		return
	}
	c.done.Go(func() {
		tick := time.NewTicker(clockPeriod)
		defer tick.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-tick.C:
				c.compare()
			}
		}
	})
}

// halt ends keep.
func (c *deviceClock) halt() {
	close(c.stop)
	c.done.Wait()
}

// compare reads both clocks and publishes the line that follows.
func (c *deviceClock) compare() {
	var all [clockReads]clockSample
	for i := range all {
		if i > 0 {
			time.Sleep(clockGap)
		}
		before := time.Now().UnixNano()
		all[i].stamp = readSplit(c.read, c.at)
		all[i].width = time.Now().UnixNano() - before
		all[i].host = before + all[i].width/2
	}
	line := c.servo.update(bestSample(all[:], c.guide(all[0])))
	c.line.Store(&line)
}

// guide is a line good enough to compare samples of one moment by.
func (c *deviceClock) guide(m clockSample) conversion {
	if c.servo.started || c.servo.line.real {
		return c.servo.line
	}
	return c.servo.through(m, m.host, c.servo.rate(0))
}

// stamper gives one queue's frames their times, which never run backwards. Its
// queue's goroutine owns it.
type stamper struct {
	clock *deviceClock
	line  *conversion
	now   int64
	last  int64
}

// begin is called once a batch with the host's time.
func (s *stamper) begin(now int64) {
	s.line, s.now = s.clock.line.Load(), now
	if s.last > now+stampFuture {
		s.last = 0 // the host's clock was set back: what was before counts no more
	}
}

// at is the time of a stamp. One that makes no sense, or of a device without a
// clock, is taken for the time of the batch.
func (s *stamper) at(stamp uint64) int64 {
	t := s.now
	if s.line != nil && stamp != 0 {
		if t = s.line.wall(stamp); t > s.now+stampFuture {
			t = s.now
		}
	}
	t = max(t, s.last)
	s.last = t
	return t
}
