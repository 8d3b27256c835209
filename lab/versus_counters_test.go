package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Counters are read from either form of -stats.
func TestCountersOfARun(t *testing.T) {
	text := "msg=\"NIC is up\" rx=64\n{\"packets\":3,\"drops\":{\"rx_crc_errors_phy\":1}}\n"
	r, err := parseRun(text + "{\"device\":\"x\",\"counters\":{\"rx_packets\":3,\"rx0_packets\":3},\"rules\":[]}\n")
	require.NoError(t, err)
	require.EqualValues(t, 3, r.RxPackets)
	require.Equal(t, map[string]uint64{"rx_packets": 3, "rx0_packets": 3}, r.counters())
	r, err = parseRun(text + "NIC statistics (x):\n     rx_packets: 3\n")
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"rx_packets": 3}, r.counters())
}
