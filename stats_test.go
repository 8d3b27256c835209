package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// names are those of counters, in order.
func names(all []stat) (out []string) {
	for _, s := range all {
		out = append(out, s.name)
	}
	return out
}

// Counters have the names that ethtool -S prints for mlx5e: sums first, packets and
// bytes leading; then the device's; then every channel's.
func TestStatNames(t *testing.T) {
	d := testDevice(t, model.Config{Profile: "cx6dx"})
	n, err := testOpen(d, wishes{queues: 2, promisc: true})
	require.NoError(t, err)
	r := newStatReader(n)
	require.NoError(t, r.update())
	all := names(r.read())
	require.Equal(t, []string{"rx_packets", "rx_bytes", "tx_packets", "tx_bytes"}, all[:4])
	seen := map[string]bool{}
	for _, name := range all {
		require.False(t, seen[name], "%s stands twice", name)
		seen[name] = true
	}
	// mlx5e calls the sums of three counters otherwise than the counters themselves.
	for _, name := range strings.Fields("packets bytes tso_packets tso_bytes tso_inner_packets tso_inner_bytes added_vlan_packets nop mpwqe_blks mpwqe_pkts csum_none csum_partial " +
		"csum_partial_inner stopped dropped xmit_more recover cqes wake cqe_err") {
		sum := "tx_" + name
		if name == "stopped" || name == "dropped" || name == "wake" {
			require.NotContains(t, all, sum)
			sum = "tx_queue_" + name
		}
		require.Contains(t, all, sum)
		require.Contains(t, all, "tx0_"+name)
		require.Contains(t, all, "tx1_"+name)
	}
	require.NotContains(t, all, "tx0_queue_stopped")
	at := func(name string) int { return slices.Index(all, name) }
	order := []string{"rx_packets", "tx_queue_wake", "rx_out_of_buffer", "rx_vport_unicast_packets", "rx_packets_phy",
		"ch0_events", "ch1_events", "rx0_packets", "rx1_packets", "tx0_packets", "tx1_packets"}
	for i, name := range order[1:] {
		require.Less(t, at(order[i]), at(name), "%s before %s", order[i], name)
	}
	require.NotContains(t, all, "rx_rule_dropped", "there are no rules")
	require.NoError(t, n.close())
}

// A device that cannot answer for a group keeps its last values, and says so.
func TestStatsOfADeviceThatRefuses(t *testing.T) {
	r := newRuleRig(t, "cx5", wishes{queues: 1, promisc: true}, "flow-type udp4 action -1")
	r.send(udp4, udp4, tcp4)
	require.EqualValues(t, 2, r.counter("rx_rule_dropped"))
	r.d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
		return model.Verdict{Status: map[bool]uint8{true: 8}[c.Opcode == opQueryFlowCounter]}
	}})
	require.ErrorContains(t, r.stats.update(), "QUERY_FLOW_COUNTER")
	for _, s := range r.stats.read() {
		if s.name == "rx_rule_dropped" {
			require.EqualValues(t, 2, s.value)
		}
	}
	r.d.m.SetScript(nil)
	require.NoError(t, r.n.close())
}

// A sink counts in 32 bits that wrap; what is shown does not.
func TestSinkCounterWraps(t *testing.T) {
	r := newRuleRig(t, "cx4", wishes{queues: 1, promisc: true}, "flow-type udp4 action -1")
	r.send(udp4, udp4, udp4)
	require.EqualValues(t, 3, r.counter("rx_rule_dropped"))
	near := uint32(1<<32 - 2)
	r.d.m.SetScript(&model.Script{Answer: func(op uint16, out []byte) {
		if op == opQueryQCounter && qCounterOutOutOfBuffer.get(out) > 0 {
			qCounterOutOutOfBuffer.set(out, qCounterOutOutOfBuffer.get(out)-3+near)
		}
	}})
	require.EqualValues(t, near, r.counter("rx_rule_dropped"))
	for range 4 {
		r.wire.push(marked(udp4, r.sent))
		r.sent++
	}
	require.Eventually(t, func() bool { return r.counter("rx_rule_dropped") == uint64(near)+4 }, 10*time.Second, time.Millisecond)
	r.d.m.SetScript(nil)
	r.close()
}

// What the channels of one port forward to another is counted there: in its sums,
// and under the number of the channel beside the queue.
func TestForwardedFramesAreTheOtherPortsTraffic(t *testing.T) {
	wires := [2]*pushWire{{}, {}}
	var devices [2]*emulatedDevice
	for i := range devices {
		devices[i] = testDevice(t, model.Config{Wire: wires[i]})
	}
	mem := newArena(devices[0])
	require.NoError(t, mem.share(devices[1]))
	var ports [2]*nic
	for i, d := range devices {
		n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: 2, promisc: true}, cpus: 2, mem: mem, index: i,
			rules: mustRules(t, "flow-type udp4 action 1")})
		require.NoError(t, err)
		ports[i] = n
	}
	for i, n := range ports {
		for _, c := range n.channels {
			require.NoError(t, n.newForward(c, ports[1-i]))
		}
	}
	for _, n := range ports {
		n.start([]handler{newForwardWork(), newForwardWork()}, false, nil)
	}
	const frames = 100
	for i := range frames {
		wires[0].push(marked(udp4, i))
	}
	count := func(n *nic) map[string]uint64 {
		r, out := newStatReader(n), map[string]uint64{}
		for _, s := range r.read() {
			out[s.name] = s.value
		}
		return out
	}
	require.Eventually(t, func() bool { return count(ports[1])["tx_packets"] == frames }, 10*time.Second, time.Millisecond)
	sender, receiver := count(ports[0]), count(ports[1])
	require.EqualValues(t, frames, sender["rx1_packets"])
	require.Zero(t, sender["tx_packets"], "it sent nothing itself")
	require.EqualValues(t, frames, receiver["tx1_packets"])
	require.Zero(t, receiver["tx0_packets"])
	require.Zero(t, receiver["rx_packets"])
	for _, n := range ports {
		n.stop() // sums and parts are not read at once
	}
	for _, n := range ports {
		all := count(n)
		for _, s := range sendStats {
			require.Equal(t, all["tx0_"+s.name]+all["tx1_"+s.name], all[s.sumName()], s.name)
		}
	}
	for _, n := range ports {
		require.NoError(t, n.close())
	}
	require.NoError(t, mem.close())
}
