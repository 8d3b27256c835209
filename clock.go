package main

// clock.go owns time: the device's clocks, as BAR0 shows them, and the conversion
// of time stamps in completions to nanoseconds since 1970 UTC. It does not own
// where stamps come from (rxpath.go) or who wants them.
// Manual: chapters Initialization Segment (internal timer, real time), Completion
// Queues (timestamp).
//
// Stamps come in two formats. Real time is seconds and nanoseconds of a clock that
// firmware or PTP keeps. Free running is a count of ticks of the card's oscillator,
// which the keeper compares with the host's clock about once a second: it learns
// how fast the oscillator really runs and publishes a new straight line that starts
// where the last one ended, so that time neither jumps nor runs backwards.
//
// Limits: a stamp must lie within 2^40 ticks of the last comparison (18 minutes
// at 1 GHz), and is as right as the host's clock, give or take the time that a
// register takes to read.

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
	realJump    = 500 * time.Millisecond
	realUnset   = time.Hour // farther off is no time scale: the clock was never set
	driftMost   = 5e-3      // share by which an oscillator may be off its nominal rate
	gainPhase   = 0.7       // share of an error that is made good until the next sample
	gainRate    = 0.3       // share of it that is put down to the oscillator
	stampFuture = int64(time.Second)
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
	real   bool   // stamps are seconds and nanoseconds; else ticks
	base   int64  // time at tick from; what to add to real time
	from   uint64 // ticks
	rate   uint64 // nanoseconds a tick from then on, times 2^rateShift
	before uint64 // the same until then: a stamp has one time, whenever it is looked at
}

// wall is the time of a stamp.
func (c *conversion) wall(stamp uint64) int64 {
	if c.real {
		return realTime(stamp) + c.base
	}
	d := int64((stamp-c.from)<<(64-timerBits)) >> (64 - timerBits)
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
type clockServo struct {
	nominal float64 // nanoseconds a tick; 0 for real time
	drift   float64 // learned: share by which the oscillator is slow
	line    conversion
	started bool
	doubts  int // samples in a row that were too far off to believe
}

// newClockServo follows a clock of so many kHz, or of real time when khz is 0.
func newClockServo(khz uint32) clockServo {
	if khz == 0 {
		return clockServo{line: conversion{real: true}}
	}
	return clockServo{nominal: 1e6 / float64(khz)}
}

// update takes a sample and returns the conversion that holds from now on.
func (s *clockServo) update(m clockSample) conversion {
	off := m.host - s.line.wall(m.stamp)
	most := clockJump
	if s.line.real {
		most = realJump
	}
	switch {
	case s.started && time.Duration(off).Abs() <= most:
		s.doubts = 0
		s.steer(m, off)
		return s.line
	case s.started:
		if s.doubts++; s.doubts < clockDoubt {
			return s.line // a torn or delayed reading: one proves nothing
		}
	}
	s.started, s.doubts = true, 0
	s.set(m, off)
	return s.line
}

// set starts anew at a sample.
func (s *clockServo) set(m clockSample, off int64) {
	if s.line.real {
		s.line.base += timeScale(off)
		return
	}
	s.line = straightLine(m, s.rate(0))
}

// straightLine goes through a sample and has one slope.
func straightLine(m clockSample, rate uint64) conversion {
	return conversion{base: m.host, from: m.stamp, rate: rate, before: rate}
}

// timeScale is what to add to a real-time clock that is off by so much. One that
// was set may keep another scale, such as TAI: whole seconds away from UTC.
func timeScale(off int64) int64 {
	if time.Duration(off).Abs() > realUnset {
		return off
	}
	return int64(time.Duration(off).Round(time.Second))
}

// steer bends the line so that an error of off nanoseconds fades.
func (s *clockServo) steer(m clockSample, off int64) {
	if s.line.real {
		return
	}
	at := s.line.wall(m.stamp)
	span := max(float64(at-s.line.base), float64(clockPeriod))
	s.drift = clampDrift(s.drift + gainRate*float64(off)/span)
	s.line = conversion{base: at, from: m.stamp, rate: s.rate(gainPhase * float64(off) / span), before: s.line.rate}
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
	return straightLine(m, c.servo.rate(0))
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
