package main

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// notOurs are the counters of mlx5e that we lack, and why, as patterns.
var notOurs = []struct{ pattern, why string }{
	{"rx*_lro_*", "no frames are merged on receive"},
	{"rx*_gro_*", "nor by software"},
	{"rx*_hds_*", "headers are not split off"},
	{"rx*_ecn_mark", "no frame is marked"},
	{"rx*_csum_complete_tail*", "padding is not summed in software: short frames have no complete checksum"},
	{"rx*_csum_unnecessary_inner", "TIRs do not look into tunnels"},
	{"rx*_arfs_*", "no rules follow applications"},
	{"rx*_pp_alloc_slow_high_order", "pages are of order 0"},
	{"rx*_xsk_mpwqe_filler_*", "queues of sockets are not striding"},
	{"rx*_xsk_cqe_compress_*", "nor are their completions compressed"},
	{"rx*_xsk_congst_umr", "nor do they need UMRs"},
	{"ch*_aff_change", "channels stay on their CPU"},
	{"ch*_force_irq", "wake-ups are eventfds"},
	{"ch*_eq_rearm", "event queues are not looked at for lost events"},
	{"tx0_timestamps", "no time of sending is asked for"},
	{"rx_if_down_packets", "no queue counts while the interface is down"},
	{"?x_vport_rdma_*", "no RDMA"},
	{"rx_pcs_symbol_err_phy", "signal quality is for mlxlink"},
	{"rx_corrected_bits_phy", "the same"},
	{"?x_pci_signal_integrity", "the same"},
	{"?x_prio?_*", "no priorities"},
	{"?x_global_pause*", "pause frames are the port's setting, which we leave"},
	{"module_*", "nothing is kept of module events"},
}

// ethtoolNames are the recorded names, those that we lack left out.
func ethtoolNames(t *testing.T) (out []string) {
	b, err := os.ReadFile("testdata/ethtool-S.txt")
	require.NoError(t, err)
	lacking := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		name := strings.TrimPrefix(strings.TrimSpace(line), "+")
		if strings.HasPrefix(name, "#") {
			continue
		}
		ours := true
		for _, n := range notOurs {
			if ok, err := path.Match(n.pattern, name); ok {
				require.NoError(t, err)
				ours, lacking[n.pattern] = false, true
			}
		}
		if ours {
			out = append(out, name)
		}
	}
	require.Len(t, lacking, len(notOurs), "every pattern is for some name")
	return out
}

// Names and order are those that Linux has printed, sums, the device's and a
// channel's; what is ours alone stands behind.
func TestCountersStandInEthtoolsOrder(t *testing.T) {
	want := ethtoolNames(t)
	d := testDevice(t, model.Config{Profile: "cx5"})
	n, err := openToSend(d, wishes{queues: 1, promisc: true, xsk: true, xdp: true})
	require.NoError(t, err)
	require.NoError(t, n.readyForXDP())
	r := newStatReader(n)
	require.NoError(t, r.update())
	answers := names(r.read())
	n.channels[0].generates = true // what its XDP send queue counts stands on the other side then
	redirects := names(r.read())
	all := func(name string) bool { return !slices.Contains(answers, name) && !slices.Contains(redirects, name) }
	require.Empty(t, slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !all(name) }), "missing")
	for _, got := range [][]string{answers, redirects} {
		k := slices.Index(got, ownStats[0].sumName())
		require.Positive(t, k)
		here := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !slices.Contains(got, name) })
		require.Equal(t, here, got[:k])
		own := got[k:]
		for _, s := range ownStats {
			require.Contains(t, own, s.sumName())
			require.NotContains(t, want, s.sumName())
		}
	}
	require.NoError(t, n.close())
}

// Each counter has one place among the sums, and each sum its counters.
func TestEverySumHasItsPlace(t *testing.T) {
	want := map[string]bool{}
	for _, line := range queueOrder {
		for _, table := range line {
			for _, s := range table {
				require.False(t, want[s.sumName()], "%s stands twice", s.sumName())
				want[s.sumName()] = true
			}
		}
	}
	for _, name := range sumOrder {
		require.True(t, want[name], "%s is no sum", name)
		delete(want, name)
	}
	require.Empty(t, want)
}

// countsOf are a NIC's counters by name.
func countsOf(t *testing.T, n *nic) map[string]uint64 {
	t.Helper()
	r, out := newStatReader(n), map[string]uint64{}
	require.NoError(t, r.update())
	for _, s := range r.read() {
		out[s.name] = s.value
	}
	return out
}

// drainPoll lets a paused device and its only channel work until neither has
// anything to do.
func drainPoll(d *emulatedDevice, c *channel) {
	for again := true; again; {
		again = d.m.Step()
		for c.poll(napiBudget) > 0 {
			again = true
		}
	}
	c.publish()
}

// Each frame whose tag the device took out is counted, whatever takes the frame and
// whatever its completion looks like; none is where tags stay.
func TestRemovedTagsAreCounted(t *testing.T) {
	const frames, tagged = 600, 200
	handlers := map[string]func() handler{
		"drop":    func() handler { return dropWork{} },
		"forward": func() handler { return newForwardWork() },
		"view":    func() handler { return &countWork{} },
	}
	for name, h := range handlers {
		for _, w := range []wishes{{}, {mtu: 9000}, {rxStriding: true}, {rxStriding: true, mtu: 9000}, {rxCompress: true}, {rxStriding: true, rxCompress: true}} {
			for _, w.strip = range []bool{true, false} {
				wire := &listWire{}
				for i := range frames {
					f := numberedUDP(uint64(i), 60)
					if i%30 < 10 {
						f = withTag(f, uint16(i/300)) // as long as it is the same they share a session
					}
					wire.frames = append(wire.frames, f)
				}
				w.rxRing = 128
				d, n, c := rxRig(t, wire, w)
				c.setHandler(h())
				drainPoll(d, c)
				d.resume()
				got := countsOf(t, n)
				d.pause()
				require.EqualValues(t, frames, got["rx_packets"], "%s %+v", name, w)
				require.EqualValues(t, map[bool]int{true: tagged}[w.strip], got["rx_removed_vlan_packets"], "%s %+v", name, w)
				require.Equal(t, w.rxCompress, got["rx_cqe_compress_pkts"] > 0)
			}
		}
	}
}

// The same of a socket's queue, in runs and one by one.
func TestRemovedTagsOfSocketsAreCounted(t *testing.T) {
	for _, strip := range []bool{true, false} {
		for _, headroom := range []int{0, 64} {
			in := &listWire{}
			for i := range 300 {
				f := numberedUDP(uint64(i), 60)
				if i%3 == 0 {
					f = withTag(f, uint16(i))
				}
				in.frames = append(in.frames, f)
			}
			r := newXSKRig(t, xskConfig{wire: in, w: wishes{strip: strip, xdp: true}, umem: umemConfig{headroom: headroom}})
			r.c.setHandler(dropWork{})
			if headroom > 0 { // a program gets every packet by itself
				r.dev.resume()
				require.NoError(t, r.nic.attach(func(*channel) (xdpProgram, error) { return xdpSame(xdpDrop), nil }))
				r.dev.pause()
			}
			r.app.giveFrames(512)
			r.turn()
			require.EqualValues(t, 300, r.c.xsk.stats.packets.get())
			require.EqualValues(t, map[bool]int{true: 100}[strip], r.c.xsk.stats.stripped.get())
		}
	}
}

// What a handler is shown has a verdict each, so that their sum is what came in; of
// what is dropped or forwarded without a view none is counted. What a program passes
// up from a socket's queue counts there.
func TestChecksumVerdictsAddUp(t *testing.T) {
	sum := func(got map[string]uint64, side string) uint64 {
		return got[side+"csum_complete"] + got[side+"csum_unnecessary"] + got[side+"csum_none"]
	}
	for _, c := range []struct {
		h    handler
		want int
	}{{&countWork{}, 300}, {newEchoWork(&responder{}), 300}, {dropWork{}, 0}, {newForwardWork(), 0}} {
		wire := &listWire{}
		for i := range 300 {
			wire.frames = append(wire.frames, numberedUDP(uint64(i), 60+i))
		}
		d, n, ch := rxRig(t, wire, wishes{mtu: 9000})
		ch.setHandler(c.h)
		drainPoll(d, ch)
		d.resume()
		got := countsOf(t, n)
		d.pause()
		require.EqualValues(t, 300, got["rx_packets"])
		require.EqualValues(t, c.want, sum(got, "rx_"), "%T", c.h)
	}
	in := &listWire{}
	for i := range 500 {
		in.frames = append(in.frames, numberedUDP(uint64(i), 60+i))
	}
	r := newXSKRig(t, xskConfig{wire: in, w: wishes{xdp: true}})
	r.c.setHandler(&passWork{})
	r.dev.resume()
	require.NoError(t, r.nic.attach(func(*channel) (xdpProgram, error) { return byNumber{}, nil }))
	r.dev.pause()
	r.app.giveFrames(400)
	for range 10 {
		r.turn()
		n, _ := r.app.rx.ready(64)
		r.app.drop(int(n))
	}
	r.dev.resume()
	got := countsOf(t, r.nic)
	r.dev.pause()
	require.EqualValues(t, 500, got["rx_xsk_packets"])
	require.EqualValues(t, 100, sum(got, "rx_xsk_"), "a fifth passes")
	require.Zero(t, sum(got, "rx_"))
}

// Strides that only fill up a WQE are counted, so that strides of frames and of
// fillers are all that were spent.
func TestFillerStridesAreCounted(t *testing.T) {
	wire := &listWire{}
	want := 0
	for i := range 200 {
		size := 60 + i*37%8000
		wire.frames = append(wire.frames, numberedUDP(uint64(i), size))
		want += (size + 1<<logSmallStride - 1) >> logSmallStride
	}
	d, n, c := rxRig(t, wire, wishes{rxStriding: true, mtu: 9000, rxRing: 64})
	c.setHandler(&countWork{})
	drainPoll(d, c)
	r := c.rx.ring
	require.EqualValues(t, logSmallStride, r.layout.logStride)
	d.resume()
	got := countsOf(t, n)
	d.pause()
	require.EqualValues(t, 200, got["rx_packets"])
	require.Greater(t, got["rx_mpwqe_filler_strides"], got["rx_mpwqe_filler_cqes"])
	require.EqualValues(t, r.head<<r.layout.logStrides+r.stride, uint64(want)+got["rx_mpwqe_filler_strides"])
}

// A device that is behind with UMRs is seen: more are under way than were asked for
// last.
func TestCongestedUMRsAreCounted(t *testing.T) {
	d, _, c := rxRig(t, newNumberedWire(7, 3000, 60, 1000), wishes{rxStriding: true, rxRing: 64})
	settleDevice(d)
	q, n := c.rx, uint64(0)
	var refs []pageRef
	hold := func(packets int) {
		for packets > 0 {
			views, done := q.poll(min(packets, napiBudget))
			require.Positive(t, done)
			for i := range views {
				refs = q.hold(refs, &views[i])
			}
			packets -= len(views)
		}
	}
	perWQE := 1 << q.ring.layout.logStrides
	for i := range 2 {
		hold(perWQE)
		q.finish() // asks for pages, and nobody answers
		require.EqualValues(t, i+1, q.ring.umrs)
		require.Zero(t, q.ring.congested)
	}
	for ; n < 3; n++ {
		q.finish()
		require.EqualValues(t, n+1, q.ring.congested)
	}
	settleDevice(d)
	q.finish()
	require.Zero(t, q.ring.umrs)
	q.publish()
	require.Equal(t, n, q.stats.congested.get())
	for _, r := range refs {
		q.pool.release(r)
	}
}

// What the port counts comes through the registers: sizes and kinds of frames add up
// to all.
func TestPortCountersAddUp(t *testing.T) {
	wire := &listWire{}
	for i := range 400 {
		f := numberedUDP(uint64(i), 60+i*20%1400)
		switch i % 4 {
		case 0:
			copy(f, []byte{1, 0, 0x5e, 0, 0, 1})
		case 1:
			copy(f, []byte{255, 255, 255, 255, 255, 255})
		}
		wire.frames = append(wire.frames, f)
	}
	d, n, c := rxRig(t, wire, wishes{})
	c.setHandler(dropWork{})
	drainPoll(d, c)
	d.resume()
	got := countsOf(t, n)
	d.pause()
	require.EqualValues(t, 400, got["rx_packets_phy"])
	require.EqualValues(t, 100, got["rx_multicast_phy"])
	require.EqualValues(t, 100, got["rx_broadcast_phy"])
	sum, kinds := uint64(0), 0
	for name, v := range got {
		if strings.HasSuffix(name, "_bytes_phy") && name != "rx_bytes_phy" && name != "tx_bytes_phy" {
			sum += v
			kinds++
		}
	}
	require.Equal(t, 10, kinds)
	require.EqualValues(t, 400, sum)
}
