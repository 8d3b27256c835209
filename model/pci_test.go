package model

// pci_test.go checks the count of bus traffic against the work that made it.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPCICounts(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	f := rigUDP(958, 1)
	q.post(opSend, wantCQE, 0, append(rigEseg(0, 0, nil), rigSeg(len(f), r.pa(), r.put(f))...))
	c.arm(0, 0)
	q.kick()
	p := r.d.PCI()
	require.Equal(t, PCITraffic{Ops: 1, Bytes: 1000, Carried: 1000, Packets: 4, Asks: 2, Sizes: [pciSizes]uint64{10: 1}}, p[PCIDataRead])
	require.Equal(t, PCITraffic{Ops: 1, Bytes: 64, Carried: 64, Packets: 1, Asks: 1, Sizes: [pciSizes]uint64{6: 1}}, p[PCIWQEFetch])
	require.Equal(t, uint64(64), p[PCICQEWrite].Bytes)
	require.Equal(t, uint64(64), p[PCIEQEWrite].Bytes)
	require.Equal(t, uint64(2), p[PCIDoorbell].Ops)
	require.Equal(t, uint64(4), p[PCIRecordRead].Bytes)
	require.Equal(t, uint64(1000+64+16+4), p.ToDevice())
	require.Equal(t, uint64(128), p.FromDevice())
	none := pciMeter{set: PCISettings{}.Filled()}
	none.count(PCIDataRead, 0, 0)
	none.count(PCIDataRead, 0, -1)
	require.Zero(t, none.counts[PCIDataRead].Ops)
	none.count(PCIDataRead, 0, 1<<20)
	require.Equal(t, uint64(1), none.counts[PCIDataRead].Sizes[pciSizes-1])
}
