package main

// quota.go owns -count where packets are counted as they are received: how many may
// still be taken out of receive rings, by all channels together. It does not own what
// counts as a packet (channel.go), nor -count of handlers that choose by themselves
// (appliance.go).
//
// A channel takes places before it looks at its ring and gives back those that it had
// no packet for, so the sum is exact and what comes later stays where it is. Who finds
// no place while others hold the last ones looks again: what stands in its ring raises
// an event as soon as the ring is armed.

import "sync/atomic"

// quota is how many packets may still be received. Any channel may call it.
type quota struct {
	left atomic.Int64  // places that nobody holds
	open atomic.Int64  // packets that have not come yet
	full chan struct{} // closed when the last one has come
}

// newQuota lets n packets through, at least one, and closes full behind the last.
func newQuota(n uint64, full chan struct{}) *quota {
	q := &quota{full: full}
	q.left.Store(int64(min(n, 1<<62)))
	q.open.Store(q.left.Load())
	return q
}

// take takes up to n places and returns how many.
func (q *quota) take(n int) int {
	for {
		left := q.left.Load()
		k := min(int64(n), left)
		if k <= 0 {
			return 0
		}
		if q.left.CompareAndSwap(left, left-k) {
			return int(k)
		}
	}
}

// over reports whether the last packet has come. What is in a ring then stays there.
func (q *quota) over() bool { return q != nil && q.open.Load() == 0 }

// settle ends a turn for which taken places were taken: used is how many packets came.
func (q *quota) settle(taken, used int) {
	q.left.Add(int64(taken - used))
	if used > 0 && q.open.Add(int64(-used)) == 0 {
		close(q.full)
	}
}
