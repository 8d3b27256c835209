package main

// rxrecover_test.go owns the proof of what a receive queue's reset costs: every frame
// that is lost is counted, no page has two owners however few are free, and the
// channel waits for none.

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireCounted asserts that the device and the MTU took nothing from q, and returns
// what it has counted as lost with its errors.
func requireCounted(t testing.TB, q *recvQueue) int {
	t.Helper()
	q.publish()
	require.Zero(t, q.stats.oversize.get())
	return int(q.stats.wqeErr.get())
}

// recoverKind is a kind of receive queue.
type recoverKind struct {
	name string
	w    wishes
}

var recoverKinds = []recoverKind{
	{"legacy", wishes{}},
	{"jumbo", wishes{mtu: 9000}},
	{"striding", wishes{rxStriding: true}},
	{"striding jumbo", wishes{rxStriding: true, mtu: 9000}},
	{"compressed", wishes{rxCompress: true}},
	{"striding compressed", wishes{rxStriding: true, rxCompress: true}},
	{"striding jumbo compressed", wishes{rxStriding: true, rxCompress: true, mtu: 9000}},
}

// rig is a NIC with such a queue and numbered frames of every size for it.
func (k recoverKind) rig(t *testing.T, packets int) (*shutWire, *emulatedDevice, *nic, *channel) {
	k.w.rxRing = 64
	largest := max(k.w.mtu, 1500)
	wire := &shutWire{numberedWire: newNumberedWire(11, packets, 60, largest)}
	wire.flows = 1 // or nothing would be compressed
	wire.open.Store(true)
	d, n, c := rxRig(t, wire, k.w)
	return wire, d, n, c
}

// queueEnds are the ways in which a failed queue comes to its end.
var queueEnds = []struct {
	name string
	run  func(*channel, *recvQueue) // nil is a reset
}{
	{"reset", nil},
	{"leave", func(c *channel, q *recvQueue) { c.next = q; c.leave(q) }},
	{"leave when -count is reached", func(c *channel, q *recvQueue) {
		c.quota, c.next = &quota{}, q
		c.leave(q)
	}},
	{"end of the run", func(c *channel, q *recvQueue) { c.abandon() }},
}

// What a queue had completed when it is reset or left is counted, frame by frame,
// ordinary and compressed, and what only fills up is not.
func TestWhatAResetLosesIsCounted(t *testing.T) {
	const packets = 1500
	for _, k := range recoverKinds {
		for _, end := range queueEnds {
			t.Run(k.name+"/"+end.name, func(t *testing.T) {
				wire, d, n, c := k.rig(t, packets)
				q, got := c.rx, 0
				for round := 0; !wire.Done() || q.visible(); round++ {
					require.Less(t, round, 20*packets, "the wire does not run dry: %d left", wire.left)
					settleDevice(d)
					p, _ := q.poll(5)
					got += len(p)
					q.finish()
					if round%37 == 36 && end.run == nil {
						q.failed, q.since = true, time.Time{}
						d.resume()
						n.recoverRX(c)
						d.pause()
						require.False(t, q.failed)
					}
					if end.run != nil && wire.Done() {
						q.failed = true // nothing resets it any more
						end.run(c, q)
					}
				}
				require.Equal(t, packets, got+requireCounted(t, q))
				require.NotZero(t, q.stats.wqeErr.get(), "nothing was lost: the test looks at nothing")
				require.Equal(t, k.w.rxCompress, q.stats.small.get() > 0)
				requirePagesHome(t, q)
			})
		}
	}
}

// A session whose title makes no sense is one error, however often it is looked at.
func TestBadSessionCountsOnce(t *testing.T) {
	for _, looked := range []bool{true, false} {
		d, n, c := rxRig(t, nil, wishes{rxCompress: true, rxRing: 64})
		q := c.rx
		writeCQE(q.cq, q.cq.ci, cqe{byteCount: swap32(65)}, cqeRecv, cqeCompressed, 0)
		if looked {
			packets, _ := q.poll(1)
			require.Empty(t, packets)
			require.True(t, q.failed)
		}
		q.failed = true
		d.resume()
		n.recoverRX(c)
		d.pause()
		require.Equal(t, 1, requireCounted(t, q))
	}
}

// requireOwners asserts that every page of q's pool has one place: the ring, the
// cache, or out with who took it or keeps a frame of it; and that the device has none
// that somebody keeps.
func requireOwners(t testing.TB, q *recvQueue, refs []pageRef, taken []uint32) {
	t.Helper()
	q.pool.home() // takes over what others gave back
	lent, owners := map[uint32]bool{}, make([]int, len(q.pool.own))
	for _, r := range refs {
		lent[r.page()] = true
	}
	held := q.pageMap()
	for _, n := range held {
		if n != noHold {
			owners[n]++
		}
	}
	for _, n := range q.pool.cache[:q.pool.free] {
		require.False(t, lent[n], "page %d is free and kept", n)
		owners[n]++
	}
	for _, n := range taken {
		owners[n]++
	}
	for n := range q.pool.fresh {
		if lent[n] && owners[n] == 0 {
			owners[n] = 1
		}
		require.Equal(t, 1, owners[n], "owners of page %d", n)
	}
	head, posted, per, mask := q.head, q.posted, uint32(0), q.mask
	if r := q.ring; r != nil {
		head, posted, per, mask = r.head, r.posted, r.perWQE, r.mask
	} else {
		per = q.pages
		head, posted, mask = head/minBulk, posted/minBulk, (mask+1)/minBulk-1
	}
	for w := head; w != posted; w++ {
		for _, n := range held[(w&mask)*per:][:per] {
			require.False(t, lent[n], "the device has page %d, which is kept", n)
		}
	}
}

// notices are what the NIC has told so far.
func notices(n *nic) (all []string) {
	for {
		select {
		case s := <-n.notices:
			all = append(all, s)
		default:
			return all
		}
	}
}

// empty reports whether the device has no buffer of q's.
func empty(q *recvQueue) bool { return q.ring == nil && q.posted == q.head || q.idle() }

// keep takes what has come in and keeps all of it, and of the pool's pages all but so
// many. The last two undo that.
func (k *keeper) keep(q *recvQueue, free int) {
	packets, _ := q.poll(napiBudget)
	k.got += len(packets)
	for i := range packets {
		k.refs = q.hold(k.refs, &packets[i])
	}
	k.takePages(q, free)
}

// takePages takes all of the pool's pages but so many.
func (k *keeper) takePages(q *recvQueue, free int) {
	for n, ok := q.pool.take(); ok; n, ok = q.pool.take() {
		k.taken = append(k.taken, n)
	}
	for range min(free, len(k.taken)) {
		q.pool.giveBack(k.taken[len(k.taken)-1])
		k.taken = k.taken[:len(k.taken)-1]
	}
}

func (k *keeper) giveBack(q *recvQueue) {
	for _, r := range k.refs {
		q.pool.release(r)
	}
	for _, n := range k.taken {
		q.pool.giveBack(n)
	}
	k.refs, k.taken = nil, nil
}

// keeper has pages of a queue's pool.
type keeper struct {
	refs  []pageRef
	taken []uint32
	got   int // frames
}

// C5: a queue is reset while a consumer keeps frames and only so many pages are free,
// from none to all. The reset ends whatever there is, no page is owned twice at any
// time, what is short is said, and once the pages are back a few polls fill the ring.
func TestRecoveryWithFewPages(t *testing.T) {
	const fillPolls = 8
	for _, kind := range recoverKinds {
		t.Run(kind.name, func(t *testing.T) {
			wire, d, n, c := kind.rig(t, 1<<20)
			q, k, per := c.rx, &keeper{}, int(c.rx.pages)
			if q.ring != nil {
				per = int(q.ring.perWQE)
			}
			most := len(q.pageMap()) + per
			for free := 0; free <= most; free += 1 + free/16 {
				settleDevice(d)
				require.True(t, q.visible())
				k.keep(q, free)
				wire.open.Store(false) // it would not wait for pages that others keep
				notices(n)
				q.failed, q.since = true, time.Time{}
				d.resume()
				n.recoverRX(c)
				state, err := n.fw.queryRQ(q.n)
				d.pause()
				require.NoError(t, err)
				require.EqualValues(t, queueReady, state, "%d free", free)
				require.False(t, q.failed)
				requireOwners(t, q, k.refs, k.taken)
				said := strings.Join(notices(n), "\n")
				if free == 0 {
					require.Contains(t, said, "who keeps packets holds the other pages")
				}
				require.NotContains(t, said, "rx_striding_rq", "it is not the device")
				for range fillPolls {
					settleDevice(d)
					q.finish()
					requireOwners(t, q, k.refs, k.taken)
				}
				if free >= per {
					require.False(t, empty(q), "%d pages are free and nothing is posted", free)
				}
				k.giveBack(q)
				wire.open.Store(true)
				for range fillPolls {
					settleDevice(d)
					packets, _ := q.poll(napiBudget)
					k.got += len(packets)
					q.finish()
				}
				require.True(t, q.half(), "%d were free: %d polls do not fill the ring", free, fillPolls)
			}
			for q.visible() {
				packets, _ := q.poll(napiBudget)
				k.got += len(packets)
				q.finish()
			}
			require.EqualValues(t, wire.next, k.got+requireCounted(t, q), "delivered and counted")
			requirePagesHome(t, q)
		})
	}
}

// While a reset queue waits for pages its channel goes on: the pages that its own send
// queue has come back by that one's completions, and no one else's turn is needed.
func TestRecoveryLetsSendsComplete(t *testing.T) {
	const turns = 10
	for _, kind := range recoverKinds {
		t.Run(kind.name, func(t *testing.T) {
			_, d, n, c := kind.rig(t, 1<<20)
			q, k := c.rx, &keeper{}
			c.setHandler(dropWork{})
			for !empty(q) || q.visible() { // the send queue has what was received, to the last page
				settleDevice(d)
				packets, _ := q.poll(napiBudget)
				if len(packets) == 0 {
					break
				}
				var frames []txFrame
				for i := range packets {
					frames = q.lend(frames, &packets[i], min(packets[i].size, 60))
				}
				require.Equal(t, len(frames), c.tx.send(frames))
			}
			k.keep(q, 0)
			require.Empty(t, k.refs)
			q.failed, q.since = true, time.Time{}
			d.resume()
			n.recoverRX(c)
			d.pause()
			require.False(t, q.failed)
			require.True(t, empty(q), "all pages are out")
			require.True(t, c.pending(), "looked at again although nothing may come in")
			for i := 0; empty(q); i++ {
				require.Less(t, i, turns, "the send queue's pages do not come back")
				settleDevice(d)
				c.poll(napiBudget)
			}
			k.giveBack(q)
		})
	}
}

// A device that does not complete the UMRs which bring an empty ring its pages is told
// from pages that are kept: the queue and the one that its UMRs go through are reset.
func TestUMRsThatDoNotComplete(t *testing.T) {
	_, d, n, c := recoverKinds[2].rig(t, 1<<20)
	q, k := c.rx, &keeper{}
	for settleDevice(d); q.visible(); settleDevice(d) {
		k.keep(q, 0)
	}
	require.True(t, q.idle())
	now := time.Now()
	require.False(t, q.stuck(now), "nothing is under way")
	require.False(t, q.stuck(now.Add(2*firstFill)))
	rec, uar := c.ico.rec, c.ico.uar // from here on the device does not hear of UMRs
	var err error
	c.ico.rec, err = n.mem.newRecord()
	require.NoError(t, err)
	c.ico.uar = make([]byte, len(uar))
	k.giveBack(q)
	q.finish()
	settleDevice(d)
	q.finish()
	require.True(t, q.idle() && q.ring.underWay())
	require.False(t, q.stuck(now))
	require.False(t, q.stuck(now.Add(firstFill-1)))
	n.mem.freeRecord(c.ico.rec)
	c.ico.rec, c.ico.uar = rec, uar
	notices(n)
	d.resume()
	n.watchRX(c, now.Add(firstFill))
	d.pause()
	said := strings.Join(notices(n), "\n")
	require.Contains(t, said, errNoFill.Error())
	require.NotContains(t, said, "who keeps packets")
	for range 4 {
		q.finish()
		settleDevice(d)
	}
	require.True(t, q.half())
	packets, _ := q.poll(napiBudget)
	require.NotEmpty(t, packets)
	q.publish()
	require.EqualValues(t, 1, q.stats.recover.get())
}
