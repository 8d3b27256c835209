package main

// benchpci_test.go holds the bus figures against what was published for Linux's
// driver on real cards, and ours against Linux's.

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func TestPCIFigures(t *testing.T) {
	figures, err := benchPCI()
	require.NoError(t, err)
	v := map[string]float64{}
	for _, f := range figures {
		require.NotContains(t, v, f.Name)
		require.False(t, math.IsNaN(f.Value) || f.Value <= 0, f.Name)
		v[f.Name] = f.Value
	}
	for _, p := range model.PCILinux {
		name := "pci." + p.Link
		require.InDelta(t, p.Off, v[name+".linux.off"], 3, "Linux's ring costs what it was published to cost")
		require.InDelta(t, p.On, v[name+".linux.on"], 3)
		require.InDelta(t, p.Off, v[name+".off"], 3)
		require.LessOrEqual(t, v[name+".off"], v[name+".linux.off"])
		require.Less(t, v[name+".on"], v[name+".linux.on"]-1, "no NOPs")
		require.Less(t, v[name+".inline"], map[string]float64{"gen2": 40, "gen3": 33}[p.Link])
	}
}

// Frames that begin at a line and a loop that needs no interrupts cost less.
func TestPolledSendsCostLess(t *testing.T) {
	for _, way := range []string{"off", "on"} {
		with, err := busLoad(way, (*txBench).ourBurst)
		require.NoError(t, err)
		without, err := busLoad(way, (*txBench).polledBurst)
		require.NoError(t, err)
		require.Less(t, without.In, with.In-4, way)
	}
}

// TestLinuxRing: the ring that stands for Linux's is what the lab sees of Linux.
func TestLinuxRing(t *testing.T) {
	for way, want := range map[string][2]float64{"on": {21.333, 10.0 / 6 / benchBurst}, "off": {64, 0}} {
		b, err := newTxBenchFor("tx.mpwqe."+way, promptEvents)
		require.NoError(t, err)
		start := b.dev.m.Stats().Interrupts
		const bursts = 60 * benchBursts
		for n := range bursts {
			if n%benchBursts == 0 {
				require.NoError(t, b.load(), "pages come back")
			}
			b.linuxBurst(n)
			b.settle()
			b.q.complete(napiBudget)
		}
		s := b.dev.m.Stats()
		require.Zero(t, s.SQ.Errors+s.BadDoorbells+s.DMAFaults, s.BadDoorbell)
		require.Equal(t, uint64(bursts*benchBurst), s.SQ.Packets)
		require.InDelta(t, want[0], float64(s.SQ.RingBytes)/float64(s.SQ.Packets), 0.03)
		require.InDelta(t, want[1], float64(s.SQ.NOPs)/float64(s.SQ.Packets), 0.001)
		require.Equal(t, uint64(bursts), s.SQ.CQEs)
		require.InDelta(t, bursts/linuxRest, s.Interrupts-start, 1)
		require.NoError(t, b.close())
	}
}
