package main

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// entryWork notes which queue the packets of each entry of the indirection table
// come to.
type entryWork struct {
	mu      sync.Mutex
	size    int
	entries map[uint32]map[int]bool // queues by entry
	got     int
}

func (w *entryWork) handle(c *channel, packets []packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range packets {
		e := packets[i].rssHash() % uint32(w.size)
		if w.entries[e] == nil {
			w.entries[e] = map[int]bool{}
		}
		w.entries[e][c.index] = true
		w.got++
	}
}

func (w *entryWork) turn(*channel) int { return 0 }
func (w *entryWork) idle(*channel)     {}

// C20: the indirection table has 128 entries or more, traffic follows every one of
// them, and the table is the same after a restart.
func TestTrafficFollowsEveryEntryOfTheTable(t *testing.T) {
	const queues, flows = 3, 1 << 13
	frames := make([][]byte, flows)
	for i := range frames {
		frames[i] = numberedUDP(uint64(i), 80)
	}
	for _, profile := range model.Profiles() {
		var before map[uint32]map[int]bool
		wire := &listWire{}
		d := testDevice(t, model.Config{Profile: profile, Wire: wire})
		for range 2 {
			n, err := testOpen(d, wishes{queues: queues, promisc: true})
			require.NoError(t, err)
			require.GreaterOrEqual(t, n.params.rqt, 128)
			table := n.steering.tables[0].rqns
			require.Len(t, table, n.params.rqt)
			w := &entryWork{size: len(table), entries: map[uint32]map[int]bool{}}
			n.start([]handler{w, w, w}, false, nil)
			d.pause()
			wire.frames, wire.next = frames, 0
			d.resume()
			require.Eventually(t, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.got == flows
			}, 20*time.Second, time.Millisecond)
			n.stop()
			require.Len(t, w.entries, len(table), "entries that no flow came through")
			for e, to := range w.entries {
				want := int(e) % queues
				require.Equal(t, map[int]bool{want: true}, to, "%s: entry %d", profile, e)
				require.Equal(t, n.channels[want].rx.n, table[e])
			}
			if before != nil {
				require.Equal(t, before, w.entries, "another table after a restart")
			}
			before = w.entries
			require.NoError(t, n.close())
		}
	}
}

// abandon ends a NIC as the end of its process does: no command is sent, no object is
// destroyed, its memory is gone from one moment to the next.
func abandon(t *testing.T, d *emulatedDevice, n *nic) {
	d.pause()
	for _, c := range n.channels {
		if c.handler == nil {
			c.setHandler(dropWork{}) // it was never started
		}
	}
	n.stop()
	require.NoError(t, n.control.stop())
	n.moder.halt()
	n.clock.halt()
	for _, c := range n.channels {
		require.NoError(t, c.vec.close())
	}
	n.fw.commander.close()
	require.NoError(t, d.setBusMaster(false)) // the kernel does that
	require.NoError(t, n.mem.close())
}

// C29: a process that is killed in the middle of a compressed session leaves a
// device that the next one starts without trouble; what it receives first is what
// comes first on the wire, whole.
func TestRestartAfterDeathInACompressedSession(t *testing.T) {
	for _, striding := range []bool{false, true} {
		wire := &listWire{shut: true}
		for i := range 200 {
			wire.frames = append(wire.frames, withFlow(numberedUDP(uint64(i), 120), 9))
		}
		d := testDevice(t, model.Config{Wire: wire})
		w := wishes{queues: 1, promisc: true, rxCompress: true, rxStriding: striding, rxRing: 64}
		n, err := testOpen(d, w)
		require.NoError(t, err)
		d.pause()
		wire.shut = false
		settleDevice(d)
		q := n.channels[0].rx
		packets, _ := q.poll(20)
		require.Len(t, packets, 20)
		require.NotZero(t, q.minis.left(), "not in the middle of a session")
		lost := wire.next // taken by the device for a host that is no more
		require.Less(t, lost, 200)
		wire.shut = true
		abandon(t, d, n)
		d.resume()

		n, err = testOpen(d, w)
		require.NoError(t, err)
		d.pause()
		wire.shut = false
		settleDevice(d)
		q = n.channels[0].rx
		require.NotNil(t, q)
		for next := lost; next < 200; {
			packets, _ = q.poll(napiBudget)
			require.NotEmpty(t, packets)
			for i := range packets {
				require.Equal(t, wire.frames[next], packets[i].b, "frame %d", next)
				next++
			}
			q.finish()
			settleDevice(d)
		}
		q.publish()
		require.NotZero(t, q.stats.small.get())
		require.Zero(t, q.stats.wqeErr.get()+q.stats.recover.get())
		require.Zero(t, d.m.Stats().DMAFaults, d.m.Stats().LastFault)
		d.resume()
		require.NoError(t, n.close())
		requireClean(t, d)
	}
}

// withFlow makes a numbered frame one of another flow.
func withFlow(b []byte, flow uint16) []byte {
	fillNumbered(b, be64(b, numberAt), flow)
	return b
}
