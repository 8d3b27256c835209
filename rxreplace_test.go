package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A bulk of which some pages could be replaced and others not is posted later, when
// these have come home by themselves. Its WQEs then name the pages that were put in:
// the ones before belong to somebody else. (Posts are checked, see init.)
func TestHalfReplacedBulkNamesItsPages(t *testing.T) {
	for _, replaced := range []int{1, 2, 3} {
		r, err := newBenchRigFor("cx5", "gen:size=64,count=256", wishes{queues: 1, promisc: true, rxRing: 64})
		require.NoError(t, err)
		q := r.nic.channels[0].rx
		require.EqualValues(t, 4, q.pages, "pages a bulk")
		r.settle()
		packets, _ := q.poll(napiBudget)
		require.Len(t, packets, 64)
		var refs []pageRef
		for i := range packets[:minBulk] { // a consumer holds all frames of the first bulk
			refs = q.hold(refs, &packets[i])
		}
		var taken []uint32
		for n, ok := q.pool.take(); ok; n, ok = q.pool.take() {
			taken = append(taken, n)
		}
		for _, n := range taken[:replaced] { // of four pages wanted, so many are there
			q.pool.giveBack(n)
		}
		q.finish()
		require.Zero(t, q.posted-q.head, "posted without its pages")
		require.True(t, q.waits())
		for _, ref := range refs {
			q.pool.release(ref)
		}
		q.finish()
		require.EqualValues(t, 64, q.posted-q.head)
		for _, n := range taken[replaced:] {
			q.pool.giveBack(n)
		}
		got := 64
		for range 8 {
			r.settle()
			packets, _ := q.poll(napiBudget)
			got += len(packets)
			q.finish()
		}
		require.Equal(t, 256, got)
		require.Zero(t, r.dev.m.Stats().DMAFaults)
		requirePagesHome(t, q)
		require.NoError(t, r.close())
	}
}

// The same of a striding queue's WQE: the pages that were put in are named to the
// device before it is posted, also when those that were missing come home by
// themselves meanwhile. Else frames would be written to pages of somebody else, and
// read where they are not.
func TestHalfReplacedStridesNameTheirPages(t *testing.T) {
	for _, free := range []int{1, 2, 5} {
		wire, d, _, c := recoverKinds[2].rig(t, 1<<20)
		q, k, next, halves := c.rx, &keeper{}, uint64(0), 0
		for round := 0; halves < 20; round++ {
			require.Less(t, round, 5000, "no WQE was replaced by half")
			settleDevice(d)
			packets, _ := q.poll(napiBudget)
			for i := range packets {
				b := q.contiguous(&packets[i], make([]byte, 2048))
				require.Equal(t, next, be64(b, numberAt), "round %d", round)
				next++
				k.refs = q.hold(k.refs, &packets[i])
			}
			k.takePages(q, free)
			q.finish()
			if q.pool.free == 0 && q.ring.short {
				halves++
			}
			k.giveBack(q)
			q.finish()
		}
		require.NotZero(t, next)
		wire.open.Store(false)
	}
}
