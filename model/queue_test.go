package model

// queue_test.go checks event and completion queues as the host sees them:
// owner bits over laps, arming, moderation, overrun; and host memory.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nop posts n NOPs, the last with a completion, and rings.
func (q *rigSQ) nop(n int) {
	for i := range n {
		var flags uint8
		if i == n-1 {
			flags = wantCQE
		}
		q.post(opNOP, flags, 0, nil)
	}
	q.kick()
}

// arm arms for completions beyond the consumer, as a driver does.
func (c *rigCQ) arm(sn uint32, flags uint32) {
	word := sn<<28 | flags | c.cc&0xffffff
	putBE32(c.r.mem, c.rec+4, word)
	c.r.d.doorbellCQ(word, c.n)
}

func TestOwnerOverLaps(t *testing.T) {
	r := newRig(t)
	e, eqAt := r.eq(2) // 4 events
	c := r.cq(2, e)    // 4 completions
	q := r.sq(4, c)
	for i := range uint32(100) {
		c.arm(i&3, 0)
		q.nop(3)
		b := c.poll()
		require.NotNil(t, b, i)
		require.Equal(t, uint16(3*i+2), be16(b, 60))
		require.Nil(t, c.poll())
		ev := r.mem[eqAt+int(i&3)*64:][:64]
		require.Equal(t, byte(i>>2)&1, ev[63], i)
		require.Equal(t, byte(eventComp), ev[1])
		require.Equal(t, c.n, be32(ev, 56))
		r.d.doorbellEQ(e.n, i+1, true)
	}
	require.Equal(t, 99, r.irqs, "armed after the first event, so the first made none")
	require.Zero(t, r.d.stats.Overruns)
	require.Equal(t, uint64(100), r.d.stats.EQEs)
}

func TestArm(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	events := func() int { return int(e.pi) }
	q.nop(1)
	require.Equal(t, 0, events(), "not armed")
	c.arm(0, 0)
	require.Equal(t, 1, events(), "completions were there: at once")
	q.nop(1)
	require.Equal(t, 1, events(), "one event for each arm")
	c.arm(0, 0)
	require.Equal(t, 1, events(), "a sequence number that was used arms nothing")
	c.arm(1, 0)
	require.Equal(t, 2, events())
	for c.poll() != nil {
	}
	c.arm(2, 0)
	require.Equal(t, 2, events())
	q.nop(1)
	require.Equal(t, 3, events())
	for c.poll() != nil {
	}
	c.arm(3, armSolicited)
	q.nop(1)
	require.Equal(t, 3, events(), "only solicited completions count")
	q.post(opNOP, wantCQE|wantSolicited, 0, nil)
	q.kick()
	require.Equal(t, 4, events())
	// By record alone; the same word twice is one arm.
	for c.poll() != nil {
	}
	putBE32(r.mem, c.rec+4, 0<<28|c.cc)
	require.True(t, r.d.pollRecords())
	require.False(t, r.d.pollRecords())
	q.nop(1)
	require.Equal(t, 5, events())
	require.False(t, r.d.pollRecords())
	// A consumer ahead of the producer.
	r.d.doorbellCQ(1<<28|100, c.n)
	r.d.doorbellCQ(0, 0xffff)
	r.d.doorbellEQ(200, 0, true)
	r.d.doorbellEQ(e.n, 99, true)
	require.Equal(t, uint64(4), r.d.stats.BadDoorbells)
}

func TestEQArmIsOneShot(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	r.d.doorbellEQ(e.n, 0, true)
	r.d.postEQE(e, 9, 4, nil)
	r.d.postEQE(e, 9, 4, nil)
	require.Equal(t, 1, r.irqs)
	r.d.doorbellEQ(e.n, 1, true)
	require.Equal(t, 2, r.irqs, "an event beyond ci: at once")
	r.d.doorbellEQ(e.n, 2, false)
	r.d.postEQE(e, 9, 4, nil)
	require.Equal(t, 2, r.irqs)
	require.Equal(t, uint32(2), e.ci)
}

func TestOverrun(t *testing.T) {
	r := newRig(t)
	e, eqAt := r.eq(6)
	c := r.cq(2, e)
	q := r.sq(6, c)
	for range 4 {
		q.nop(1)
	}
	require.False(t, c.failed)
	q.nop(1)
	require.True(t, c.failed)
	require.Equal(t, byte(eventCQError), r.mem[eqAt+1])
	require.Equal(t, c.n, be32(r.mem, eqAt+32))
	require.Equal(t, byte(cqOverrun), r.mem[eqAt+32+11])
	require.Equal(t, byte(sqERR), q.state)
	for i := range uint16(4) {
		require.Equal(t, i, be16(c.poll(), 60), "nothing is overwritten")
	}

	c2 := r.cq(2, e)
	c2.oi = true
	q2 := r.sq(6, c2)
	for range 9 {
		q2.nop(1)
	}
	require.False(t, c2.failed)

	small, at := r.eq(1)
	small.mask = 0
	for range 3 {
		r.d.postEQE(small, 9, 4, nil)
	}
	require.True(t, small.failed)
	require.Equal(t, byte(0), r.mem[at+63])
	require.Equal(t, uint64(2), r.d.stats.Overruns)
}

func TestModeration(t *testing.T) {
	for _, c := range []struct {
		name    string
		fromCQE bool
		last    int // microseconds until the event after CQEs at 0, 60 and 120
	}{{"from event", false, 100}, {"from completion", true, 220}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.eq(6)
			cq := r.cq(6, e)
			cq.period, cq.maxCount, cq.fromCQE = 100, 8, c.fromCQE
			base := time.Now()
			at := func(us int) time.Time { return base.Add(time.Duration(us) * time.Microsecond) }
			cq.run.lastEvent = base
			cq.arm(0, 0)
			var entry [64]byte
			for _, us := range []int{0, 60, 120} {
				r.d.cqTimers(at(us))
				r.d.work.now = at(us)
				if us < c.last {
					require.Zero(t, e.pi)
				}
				r.d.pushCQE(cq.cq, &entry)
			}
			r.d.cqTimers(at(c.last - 1))
			if c.fromCQE {
				require.Zero(t, e.pi)
			}
			r.d.cqTimers(at(c.last))
			require.Equal(t, uint32(1), e.pi)
			require.Empty(t, r.d.work.timed)
			// By count.
			for cq.poll() != nil {
			}
			cq.arm(1, 0)
			for i := range 8 {
				require.Equal(t, uint32(1), e.pi, i)
				r.d.work.now = at(c.last + 1)
				r.d.pushCQE(cq.cq, &entry)
			}
			require.Equal(t, uint32(2), e.pi)
		})
	}
}

func TestLongCompletions(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	c.ring, c.at = r.ring(3, 7)
	for i := range 64 {
		r.mem[c.at+i] = 0xff
	}
	q := r.sq(6, c)
	q.nop(1)
	require.Equal(t, make([]byte, 64), r.mem[c.at:c.at+64])
	require.Equal(t, q.n, be32(r.mem, c.at+64+56)&0xffffff)
	require.Equal(t, byte(0), r.mem[c.at+127])
}

func TestUnmappedRings(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	q.nop(1)
	require.NotNil(t, c.poll())
	// Take the ring page away: the next WQE can't be fetched.
	r.d.mem.remove(q.ring.pas[0], 4096)
	q.nop(1)
	require.Equal(t, byte(sqERR), q.state)
	require.NotZero(t, r.d.stats.DMAFaults)
	require.Contains(t, r.d.stats.LastFault, "ring entry")
	// A CQ ring that is read-only fails the CQ.
	q2 := r.sq(6, c)
	page := r.mem[c.at : c.at+4096]
	r.d.mem.remove(c.ring.pas[0], 4096)
	require.NoError(t, r.d.mem.add(c.ring.pas[0], page, false))
	q2.nop(1)
	require.True(t, c.failed)
	// No record at all.
	q3 := r.sq(6, r.cq(6, e))
	q3.dbr = 4
	faults := r.d.stats.DMAFaults
	q3.kick()
	q3.kick()
	require.Equal(t, faults+1, r.d.stats.DMAFaults, "counted once")
}

func TestHostMemory(t *testing.T) {
	var m hostMemory
	a, b := make([]byte, 8192), make([]byte, 4096)
	require.ErrorIs(t, m.add(0x1000, nil, true), errMapEmpty)
	require.ErrorIs(t, m.add(^uint64(0)-4095, a, true), errMapWraps)
	require.ErrorIs(t, m.add(0x1001, a, true), errMapAlign)
	require.NoError(t, m.add(0x10000, a, true))
	require.NoError(t, m.add(0x12000, b, false))
	for _, at := range []uint64{0xf000, 0x10000, 0x11000, 0x12000} {
		require.ErrorIs(t, m.add(at, a, true), errMapOverlap)
	}
	require.Len(t, m.at(0x10000, 8192, true), 8192)
	require.Nil(t, m.at(0x10000, 8193, false), "two mappings")
	require.Nil(t, m.at(0x12000, 1, true), "read-only")
	require.Nil(t, m.at(0x10000, -1, false))
	require.Nil(t, m.at(0xffff, 1, false))
	require.Nil(t, m.at(0x13000, 1, false))
	d := &Device{mem: m}
	p := make([]byte, 100)
	a[8191], b[0] = 7, 9
	require.True(t, d.dmaRead(0x11fff, p))
	require.Equal(t, []byte{7, 9}, p[:2])
	require.False(t, d.dmaWrite(0x11fff, p), "the second half is read-only")
	require.False(t, d.dmaRead(0x12fff, p))
	require.Equal(t, uint64(2), d.stats.DMAFaults)
	gen := d.mem.gen
	d.mem.remove(0x10800, 0x1000)
	require.NotEqual(t, gen, d.mem.gen)
	require.Len(t, d.mem.at(0x10000, 0x800, true), 0x800)
	require.Nil(t, d.mem.at(0x10800, 1, true))
	require.Equal(t, byte(7), d.mem.at(0x11fff, 1, false)[0])
	d.mem.remove(0, ^uint64(0))
	require.Empty(t, d.mem.maps)
}
