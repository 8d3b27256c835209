package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// D5: a completion ring that is smaller than what is sent holds sends up until there
// is room in it, and the flag asks for the wake-up that tells of that. Nothing else
// wakes the driver here.
func TestXSKSmallCompletionRing(t *testing.T) {
	onlyWakeUps(t)
	r := newServeRig(t, 1, nil, new(atomic.Int64))
	q := askFor(0)
	q.entries[ringCompletion] = 64
	c, err := dialXSK(r.path, q)
	require.NoError(t, err)
	require.Equal(t, 512, c.app.put(512, 60))
	c.nudge()
	for back := uint32(0); back < 512; {
		require.True(t, c.sleep(time.Minute), "%d of 512 frames came back", back)
		c.app.reclaim()
		c.nudge()
		back = 512 - c.app.out
	}
	require.NoError(t, c.close())
}

// D11: two ports, a socket on each, with UMEMs of different sizes. One client takes
// its packets and one does not: what the second loses is counted for its socket and
// its port alone, and asked for by its client.
// (Its alias names do not apply: ports are PCI addresses, which have none.)
func TestXSKTwoPorts(t *testing.T) {
	var nics []*nic
	path := filepath.Join(t.TempDir(), "xsk.sock")
	for i := range 2 {
		taken := new(atomic.Int64)
		d := testDevice(t, model.Config{Wire: newSplitWire(0, taken)})
		lead, err := parseRule(fmt.Sprintf("flow-type udp4 dst-port %d action %d", noisePort, 2+i)) // port i, queue i
		require.NoError(t, err)
		rules, err := placeRules([]rule{lead})
		require.NoError(t, err)
		n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: 2, rxRing: 256, promisc: true, xsk: true}, cpus: 2,
			index: i, rules: rules, flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
		require.NoError(t, err)
		n.start([]handler{dropWork{}, dropWork{}}, false, nil)
		nics = append(nics, n)
		t.Cleanup(func() {
			require.Zero(t, n.mem.guestMemory())
			require.NoError(t, n.close())
			requireClean(t, d)
		})
	}
	server, err := listenXSK(path, nics, slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.close()) })
	_, err = dialXSK(path, xskRequest{port: 2, umem: umemConfig{frame: 2048, frames: 64}, entries: [xskRings]int{64, 64, 64, 64}})
	require.ErrorContains(t, err, "port 2: there are 0 to 1")

	taker, err := dialXSK(path, askFor(0)) // 512 frames, rings that hold them all
	require.NoError(t, err)
	idler, err := dialXSK(path, xskRequest{port: 1, queue: 1, umem: umemConfig{frame: 4096, frames: 1024},
		entries: [xskRings]int{1024, 64, 64, 64}, flags: xskZeroCopy})
	require.NoError(t, err)
	require.Len(t, taker.mem, 512*2048)
	require.Len(t, idler.mem, 1024*4096)
	taker.app.giveFrames(512)
	taker.nudge()
	idler.app.giveFrames(1024)
	idler.nudge()

	lost := func(c *xskClient) uint64 {
		b, err := c.ask(xskCounts)
		require.NoError(t, err)
		require.Equal(t, "rx_ring_full", xskCountNames[3])
		return le.Uint64(b[8*3:])
	}
	got := 0
	require.Eventually(t, func() bool {
		got += taker.app.drop(64)
		taker.nudge()
		return got > 5000 && lost(idler) > 0
	}, 20*time.Second, time.Microsecond)
	require.Zero(t, lost(taker), "what the other socket loses is not this one's")
	full := func(n *nic) uint64 {
		for _, s := range newStatReader(n).read() {
			if s.name == "rx_xsk_ring_full" {
				return s.value
			}
		}
		t.Fatal("no such counter")
		return 0
	}
	require.Eventually(t, func() bool { return full(nics[1]) > 0 }, 10*time.Second, time.Millisecond)
	require.Zero(t, full(nics[0]))
	require.NoError(t, idler.close())
	next, err := dialXSK(path, xskRequest{port: 1, queue: 1, umem: umemConfig{frame: 4096, frames: 64}, entries: [xskRings]int{64, 64, 64, 64}})
	require.NoError(t, err)
	require.Zero(t, lost(next), "what the queue's last socket lost is not this one's")
	require.NoError(t, next.close())
	require.NoError(t, taker.close())
	require.Eventually(t, func() bool { return nics[0].mem.guestMemory()+nics[1].mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
}
