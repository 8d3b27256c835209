package model

// hold_test.go owns the proof of whom a lossless wire waits for. Time is the test's.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turns lets the device take from the wire every step, n times from at on, and
// returns the time after.
func (r *rig) turns(at time.Time, n int, step time.Duration) time.Time {
	for range n {
		r.d.pollReceive(at, 1<<20)
		at = at.Add(step)
	}
	return at
}

// holdRig is a ready queue of eight WQEs behind a lossless wire, with counters.
func holdRig(t *testing.T) (*rig, *rigCQ, *rigRQ, uint32, *queueCounter) {
	r, c, q, key := rigRX(t, 6, 3, 2048)
	set := r.d.qctrs.add(func(n uint32) *queueCounter { return &queueCounter{n: n} })
	q.counterSet, r.wire.lossless = set.n, true
	return r, c, q, key, set
}

// A queue that became ready and has had no buffer since holds nobody: each frame is
// counted as out of buffer.
func TestNobodyWaitsForAQueueThatNobodyFilled(t *testing.T) {
	r, _, q, key, set := holdRig(t)
	q.hold.ready()
	r.wire.in = append(r.wire.in, rigUDP(40, 1), rigUDP(40, 2), rigUDP(40, 3))
	r.turns(time.Now(), 1, 0)
	require.Empty(t, r.wire.in)
	require.EqualValues(t, 3, set.outOfBuffer)
	q.post(key, 1) // from here on it is at work
	r.wire.in = append(r.wire.in, rigUDP(40, 4), rigUDP(40, 5))
	r.turns(time.Now(), 1, 0)
	require.Len(t, r.wire.in, 1)
	require.EqualValues(t, 3, set.outOfBuffer)
	account(t, r.d)
}

// A host that has not taken its completions yet is waited for, be it for an hour.
func TestAHostAtWorkIsWaitedFor(t *testing.T) {
	r, c, q, key, set := holdRig(t)
	q.post(key, 1)
	r.wire.in = append(r.wire.in, rigUDP(40, 1), rigUDP(40, 2))
	at := r.turns(time.Now(), 3600, time.Second)
	require.Len(t, r.wire.in, 1)
	require.Zero(t, set.outOfBuffer)
	require.NotNil(t, c.poll())
	r.turns(at, 1, 0)
	require.Len(t, r.wire.in, 1, "and a moment longer, until it posts")
	q.post(key, 1)
	r.turns(at, 1, 0)
	require.Empty(t, r.wire.in)
	require.Zero(t, set.outOfBuffer)
	account(t, r.d)
}

// A host that has taken everything and posts nothing holds the wire once, for
// holdMost, and then no more until it posts again.
func TestAHostThatStoppedHoldsTheWireOnce(t *testing.T) {
	r, c, q, key, set := holdRig(t)
	q.post(key, 1)
	r.wire.in = append(r.wire.in, rigUDP(40, 1), rigUDP(40, 2), rigUDP(40, 3))
	at := r.turns(time.Now(), 1, 0)
	require.NotNil(t, c.poll())
	const step = time.Millisecond
	n := int(holdMost / step)
	at = r.turns(at, n, step)
	require.Len(t, r.wire.in, 2, "held so far")
	at = r.turns(at, 2, step)
	require.Empty(t, r.wire.in)
	require.EqualValues(t, 2, set.outOfBuffer)
	r.wire.in = append(r.wire.in, rigUDP(40, 4))
	at = r.turns(at.Add(time.Hour), 1, step)
	require.Empty(t, r.wire.in, "given up, however long ago that was")
	require.EqualValues(t, 3, set.outOfBuffer)
	q.post(key, 1)
	r.wire.in = append(r.wire.in, rigUDP(40, 5), rigUDP(40, 6))
	at = r.turns(at, 1, step)
	require.NotNil(t, c.poll())
	at = r.turns(at, n, step)
	require.Len(t, r.wire.in, 1, "back at work, and an hour has earned all of it")
	r.turns(at, 2, step)
	require.EqualValues(t, 4, set.outOfBuffer)
	account(t, r.d)
}

// Whatever a host does with its queue, others wait for a share of the time: one
// buffer is posted each time that the wire is almost let go.
func TestAHostileHostHoldsAShareOfTheTime(t *testing.T) {
	r, c, q, key, _ := holdRig(t)
	const step = 100 * time.Microsecond
	at, held, total := time.Now(), 0, int(20*time.Second/step)
	for range total {
		if len(r.wire.in) == 0 {
			r.wire.in = append(r.wire.in, rigUDP(40, 1))
		}
		before := r.d.stats.RxFrames
		r.d.pollReceive(at, 1<<20)
		if r.d.stats.RxFrames == before {
			held++
		}
		for c.poll() != nil {
		}
		if q.hold.left < 2*step && q.pc == uint32(q.ci) {
			q.post(key, 1)
		}
		at = at.Add(step)
	}
	require.Positive(t, held)
	require.Less(t, held, total/holdShare+2*int(holdMost/step))
	account(t, r.d)
}

// A device that did not run for long, with its host, blames nobody.
func TestAPauseIsNotTheHosts(t *testing.T) {
	r, c, q, key, set := holdRig(t)
	q.post(key, 1)
	r.wire.in = append(r.wire.in, rigUDP(40, 1), rigUDP(40, 2))
	at := r.turns(time.Now(), 1, 0)
	require.NotNil(t, c.poll())
	at = r.turns(at, 1, 0)
	at = r.turns(at.Add(time.Hour), 1, 0)
	require.Len(t, r.wire.in, 1)
	q.post(key, 1)
	r.turns(at, 1, 0)
	require.Empty(t, r.wire.in)
	require.Zero(t, set.outOfBuffer)
}

// A queue that is reset and filled meanwhile loses nothing, one that stays away
// holds nobody for long.
func TestAQueueInResetIsWaitedFor(t *testing.T) {
	for _, state := range []uint8{rqRST, rqERR} {
		r, _, q, key, set := holdRig(t)
		q.state = state
		r.wire.in = append(r.wire.in, rigUDP(40, 1))
		at := r.turns(time.Now(), 10, time.Millisecond)
		require.Len(t, r.wire.in, 1)
		q.state = rqRDY
		q.post(key, 1)
		at = r.turns(at, 1, 0)
		require.Empty(t, r.wire.in)
		require.Zero(t, set.outOfBuffer)
		q.state = state
		r.wire.in = append(r.wire.in, rigUDP(40, 2))
		r.turns(at, int(holdMost/time.Millisecond)+2, time.Millisecond)
		require.Empty(t, r.wire.in)
		require.EqualValues(t, 1, set.outOfBuffer)
		account(t, r.d)
	}
}

// A queue that was at work and is reset without a buffer is waited for a little: it
// may be a queue whose host has its pages elsewhere, or one that its user has left.
func TestAQueueThatIsReadyAnewIsWaitedForALittle(t *testing.T) {
	r, c, q, key, set := holdRig(t)
	q.hold.ready()
	q.post(key, 1)
	r.wire.in = append(r.wire.in, rigUDP(40, 1), rigUDP(40, 2))
	at := r.turns(time.Now(), 1, 0)
	r.d.resetRQ(q.rq)
	q.pc = 0
	putBE32(r.mem, q.rec, 0)
	require.NotNil(t, c.poll())
	q.hold.ready()
	at = r.turns(at, int(holdAnew/time.Millisecond), time.Millisecond)
	require.Len(t, r.wire.in, 1)
	at = r.turns(at, 2, time.Millisecond)
	require.Empty(t, r.wire.in)
	require.EqualValues(t, 1, set.outOfBuffer)
	q.hold.ready() // it was given up, and stays so
	r.wire.in = append(r.wire.in, rigUDP(40, 3))
	r.turns(at, 1, 0)
	require.Empty(t, r.wire.in)
	account(t, r.d)
}
