package main

// benchquiet.go owns which repetitions of a benchmark count. It does not know what
// is measured.
//
// A virtual CPU is often one of two threads of a core, and while the other thread
// works for someone else it runs at half its speed, for seconds or minutes. That is
// seen from outside the benchmark: a fixed piece of arithmetic, which touches no
// memory, is timed before and after each repetition. A repetition counts when both
// were about as fast as the fastest ever seen; the others are repeated, up to a
// limit. Where a machine is never quiet all count. Which it was is part of the
// figure.

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	quietSlack  = 1.1              // of the fastest arithmetic is about as fast
	quietRuns   = 7                // repetitions that count are enough
	quietWait   = 45 * time.Second // of repeating what does not count, at most
	probeRounds = 4000
)

// repetition is one measurement, and the slower of the probes around it.
type repetition struct {
	value float64
	probe time.Duration
}

// quietPlace is the thread that measures. It moves to the CPU that is faster just now.
type quietPlace struct {
	allowed unix.CPUSet // before
	others  unix.CPUSet // of these, those that it is not on; all where it does not choose
	cpus    []int
	fastest time.Duration
}

// newQuietPlace keeps the goroutine on its thread until leave.
func newQuietPlace() *quietPlace {
	runtime.LockOSThread()
	q := &quietPlace{fastest: time.Hour}
	if unix.SchedGetaffinity(0, &q.allowed) == nil {
		for cpu := range len(q.allowed) * 64 {
			if q.allowed.IsSet(cpu) {
				q.cpus = append(q.cpus, cpu)
			}
		}
	}
	q.others = q.allowed
	return q
}

func (q *quietPlace) leave() {
	_ = unix.SchedSetaffinity(0, &q.allowed)
	runtime.UnlockOSThread()
}

// move goes to the fastest CPU. Where threads must not choose it stays.
func (q *quietPlace) move() {
	best, at := time.Hour, -1
	for _, cpu := range q.cpus {
		if !moveTo(cpu) {
			return
		}
		if d := q.probe(); d < best {
			best, at = d, cpu
		}
	}
	if at >= 0 && moveTo(at) && len(q.cpus) > 1 {
		q.others = q.allowed
		q.others.Clear(at)
	}
}

// moveTo moves the calling thread.
func moveTo(cpu int) bool {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set) == nil
}

// elsewhere runs f on the other CPUs, where a process that it starts then stays.
func (q *quietPlace) elsewhere(f func() error) error {
	var here unix.CPUSet
	if err := unix.SchedGetaffinity(0, &here); err != nil {
		return f()
	}
	_ = unix.SchedSetaffinity(0, &q.others)
	defer func() { _ = unix.SchedSetaffinity(0, &here) }()
	return f()
}

// repeat takes one measurement.
func (q *quietPlace) repeat(measure func() (float64, error)) (r repetition, err error) {
	before := q.probe()
	r.value, err = measure()
	r.probe = max(before, q.probe())
	return r, err
}

// probe times the arithmetic: the best of several, since a moment's interruption
// is not what it looks for.
func (q *quietPlace) probe() time.Duration {
	best := time.Hour
	for range 8 {
		start := time.Now()
		arithmetic(probeRounds)
		best = min(best, time.Since(start))
	}
	q.fastest = min(q.fastest, best)
	return best
}

// arithmetic keeps several units of a core busy, as a benchmark does.
//
//go:noinline
func arithmetic(n uint64) uint64 {
	a, b, c, d := uint64(1), uint64(2), uint64(3), uint64(4)
	for i := range n {
		a += a ^ i
		b += b<<1 ^ i
		c ^= c>>3 + i
		d += d ^ 3
	}
	return a + b + c + d
}

// quiet reports whether a repetition counts.
func (q *quietPlace) quiet(r repetition) bool {
	return float64(r.probe) <= quietSlack*float64(q.fastest)
}

// enough reports whether of each benchmark enough repetitions count.
func (q *quietPlace) enough(all [][]repetition) bool {
	return !slices.ContainsFunc(all, func(of []repetition) bool {
		n := 0
		for _, r := range of {
			if q.quiet(r) {
				n++
			}
		}
		return n < quietRuns
	})
}

// timing is what was measured of one benchmark.
type timing struct {
	values []float64 // that count
	all    []float64
}

// choose keeps the repetitions that count, or all where these are too few.
func (q *quietPlace) choose(of []repetition) (t timing) {
	for _, r := range of {
		if t.all = append(t.all, r.value); q.quiet(r) {
			t.values = append(t.values, r.value)
		}
	}
	if len(t.values) < quietRuns {
		t.values = t.all
	}
	return t
}
