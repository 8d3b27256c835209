package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// C13: discards at the port alone are the NIC's or its PCIe link's, and the verdict
// says so; each cause has its own sentence, the largest first.
func TestLossVerdict(t *testing.T) {
	require.Empty(t, lossVerdict(map[string]uint64{"rx_discards_phy": 0, "rx_out_of_buffer": 0}))
	only := lossVerdict(map[string]uint64{"rx_discards_phy": 1234, "rx_out_of_buffer": 0})
	require.Len(t, only, 1)
	require.True(t, strings.HasPrefix(only[0], "1234 dropped by the NIC or its PCIe link, not the host: "), only[0])
	both := lossVerdict(map[string]uint64{"rx_discards_phy": 3, "rx_out_of_buffer": 4, "rx_crc_errors_phy": 1, "rx_jabbers_phy": 1})
	require.Len(t, both, 3)
	require.True(t, strings.HasPrefix(both[0], "4 dropped by the host: "), both[0])
	require.True(t, strings.HasPrefix(both[1], "3 dropped by the NIC"), both[1])
	require.True(t, strings.HasPrefix(both[2], "2 dropped by the wire: "), both[2])
}

// Frames that were to be sent are lost by name as well.
func TestSendLossHasAVerdict(t *testing.T) {
	lines := lossVerdict(map[string]uint64{"tx_queue_dropped": 4, "tx_xdp_err": 2, "tx_xsk_err": 1, "rx_stop_drop": 2, "tx_xsk_stop_drop": 1})
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[0], "7 dropped by the send ring: "), lines[0])
	require.True(t, strings.HasPrefix(lines[1], "3 dropped by the end of the run: "), lines[1])
}

// soundsLost is what counters of lost frames are called by; noLoss are those that
// only sound like it.
var (
	soundsLost = regexp.MustCompile("drop|err|discard|full|lost|missed|abort|size_pkts|jabber|fragment|out_of|no_page|no_socket")
	noLoss     = []string{
		"rx_buff_alloc_err", "rx_xsk_buff_alloc_err", // buffers that were not posted
		"rx_pp_recycle_cache_full", "rx_pp_recycle_ring_full", // pages that went another way
		"tx_xdp_full", "tx_xsk_full", // frames that wait
		"tx_cqe_err", // completions: their frames are in tx_queue_dropped
	}
)

// No counter of lost frames is left out of the drops, whichever table it stands in.
func TestEveryLossIsADrop(t *testing.T) {
	lost, all := dropNames(), []string{}
	for _, s := range allQueueStats() {
		all = append(all, s.sumName())
	}
	for _, s := range slices.Concat(deviceStats, ownDeviceStats) {
		all = append(all, s.name)
	}
	for _, name := range all {
		require.Equal(t, soundsLost.MatchString(name) && !slices.Contains(noLoss, name), lost[name], name)
	}
}

// No loss is without a verdict, and none is counted in two.
func TestEveryDropHasAVerdict(t *testing.T) {
	names := dropNames()
	names["writer_dropped"], names["wire_dropped"] = true, true
	seen := map[string]bool{}
	for _, l := range losers {
		for _, name := range l.counters {
			require.True(t, names[name], "%s is no drop", name)
			require.False(t, seen[name], "%s is counted twice", name)
			seen[name] = true
		}
	}
	require.Len(t, seen, len(names))
}

// The port's discards come through the registers to the sentence.
func TestDiscardsAtThePortAreBlamedOnTheNIC(t *testing.T) {
	d := testDevice(t, model.Config{})
	n, err := testOpen(d, wishes{promisc: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.close()) }()
	d.m.SetScript(answers(opAccessReg, func(out []byte) {
		if reg := out[16:]; len(reg) > ppcntSet.off && ppcntGroup.get(reg) == ppcntRFC2863 {
			putBE64(ppcntSet.in(reg), rfc2863InDiscards.off, 77)
		}
	}))
	stats := newStatReader(n)
	require.NoError(t, stats.update())
	d.m.SetScript(nil)
	lines := lossVerdict(drops(stats.read()))
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "77 dropped by the NIC or its PCIe link, not the host")
}
