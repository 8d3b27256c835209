package main

// portlimits_test.go owns the proof that what the device says of itself counts, not
// what is usual: its largest MTU, and all 64 bits of its counters.

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// C19: the range of MTUs is the device's. A PF asks the port, a VF its vport.
func TestLargestMTUIsTheDevices(t *testing.T) {
	for _, c := range []struct {
		profile string
		script  func(most int) *model.Script
	}{
		{"cx5", func(most int) *model.Script {
			return answers(opAccessReg, func(out []byte) {
				if reg := out[16:]; len(reg) == 16 && pmtuMax.get(reg) == 10240 {
					pmtuMax.set(reg, uint32(most))
				}
			})
		}},
		{"cx5-vf", func(most int) *model.Script {
			return answers(opQueryNicVportContext, func(out []byte) {
				if len(out) > vportCtxOutCtx.off {
					vportMtu.set(vportCtxOutCtx.in(out), uint32(most))
				}
			})
		}},
	} {
		for _, most := range []int{1522, 4096, 10200} {
			d := testDevice(t, model.Config{Profile: c.profile, Script: c.script(most)})
			says := fmt.Sprintf("68 to %d", most-hardMTU)
			for _, mtu := range []int{minMTU, most - hardMTU} {
				n, err := testOpen(d, wishes{queues: 1, mtu: mtu})
				require.NoError(t, err, "%s: %d of %d", c.profile, mtu, most)
				require.Equal(t, mtu, n.params.mtu)
				if n.port.owner {
					_, now, err := n.fw.queryPMTU()
					require.NoError(t, err)
					require.Equal(t, mtu+hardMTU, now)
				}
				require.NoError(t, n.close())
			}
			for _, mtu := range []int{minMTU - 1, most - hardMTU + 1, 10218} {
				_, err := testOpen(d, wishes{queues: 1, mtu: mtu})
				require.ErrorContains(t, err, says, "%s: %d of %d", c.profile, mtu, most)
				require.ErrorAs(t, err, new(wishError))
			}
			requireClean(t, d)
		}
	}
}

// C11: counters of 64 bits come with both halves, whichever command brings them: of
// the port, the vport, its environment and a rule.
func TestWideCountersComeWhole(t *testing.T) {
	rules, err := placeRules([]rule{mustRule(t, "flow-type udp4 dst-port 9 action -1")})
	require.NoError(t, err)
	d := testDevice(t, model.Config{Profile: "cx6dx"})
	n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: 1, promisc: true}, cpus: 1, rules: rules})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.close()) }()
	require.Nil(t, n.rules.drops.Load().sink, "the rule has a flow counter")
	fill := func(b []byte) { // each word says where it stands in both halves
		for at := 0; at+8 <= len(b); at += 8 {
			putBE64(b, at, uint64(at+1)<<32|uint64(at))
		}
	}
	d.m.SetScript(&model.Script{Answer: func(opcode uint16, out []byte) {
		switch {
		case opcode == opQueryVportCounter || opcode == opQueryVnicEnv || opcode == opQueryFlowCounter:
			fill(out[16:])
		case opcode == opAccessReg && len(out) >= 16+ppcntSet.off+ppcntSet.n:
			fill(ppcntSet.in(out[16:]))
		}
	}})
	stats := newStatReader(n)
	require.NoError(t, stats.update())
	d.m.SetScript(nil)
	values, seen := map[string]uint64{}, 0
	for _, s := range stats.read() {
		values[s.name] = s.value
	}
	for _, s := range deviceStats {
		if s.group == statQCounter || s.group == statMissSink || s.group == statPhysical { // 32 bits
			continue
		}
		v, ok := values[s.name]
		require.True(t, ok, s.name)
		require.Equal(t, uint32(v)+1, uint32(v>>32), "%s is %#x", s.name, v)
		seen++
	}
	require.Equal(t, len(deviceStats)-3, seen)
}

func mustRule(t testing.TB, s string) rule {
	r, err := parseRule(s)
	require.NoError(t, err)
	return r
}
