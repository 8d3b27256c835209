package main

// stats.go owns counters by name: which there are, where each comes from, sums.
// Names are those of ethtool -S on mlx5e. It does not own who counts: queues
// count what they do, the device what never reached a queue.
// Manual: chapters Q Counters, Vport Counters, PPCNT, Vnic Environment.

import (
	"fmt"
	"slices"
	"sync"
)

// stat is one counter with its value.
type stat struct {
	name  string
	value uint64
}

// queueStat is a counter that every channel has, or nil where one lacks the queue.
type queueStat struct {
	side string // "rx", "tx" or "ch": ethtool's rx3_packets is packets of rx, queue 3
	name string
	get  func(*channel) *counter
	drop bool // frames that are lost are counted here
}

// channelStats are the tables of what channels count, in the order of ethtool -S.
// The counters of send queues stand apart (sendStats).
var channelStats = [][]queueStat{queueStats, xdpQueueStats, xskQueueStats}

var queueStats = []queueStat{
	{"rx", "packets", func(c *channel) *counter { return &c.rxStats.packets }, false},
	{"rx", "bytes", func(c *channel) *counter { return &c.rxStats.bytes }, false},
	{"rx", "wqe_err", func(c *channel) *counter { return &c.rxStats.wqeErr }, true},
	{"rx", "oversize_pkts_sw_drop", func(c *channel) *counter { return &c.rxStats.oversize }, true},
	{"rx", "buff_alloc_err", func(c *channel) *counter { return &c.rxStats.starved }, false},
	{"rx", "recover", func(c *channel) *counter { return &c.rxStats.recover }, false},
	{"rx", "mpwqe_filler_cqes", func(c *channel) *counter { return &c.rxStats.filler }, false},
	{"rx", "cqe_compress_blks", func(c *channel) *counter { return &c.rxStats.blocks }, false},
	{"rx", "cqe_compress_pkts", func(c *channel) *counter { return &c.rxStats.small }, false},
	{"rx", "pp_alloc_fast", func(c *channel) *counter { return &c.pool.stats.allocFast }, false},
	{"rx", "pp_alloc_slow", func(c *channel) *counter { return &c.pool.stats.allocSlow }, false},
	{"rx", "pp_alloc_empty", func(c *channel) *counter { return &c.pool.stats.allocEmpty }, false},
	{"rx", "pp_alloc_refill", func(c *channel) *counter { return &c.pool.stats.allocRefill }, false},
	{"rx", "pp_alloc_waive", func(c *channel) *counter { return &c.pool.stats.allocWaive }, false},
	{"rx", "pp_recycle_cached", func(c *channel) *counter { return &c.pool.stats.cached }, false},
	{"rx", "pp_recycle_cache_full", func(c *channel) *counter { return &c.pool.stats.cacheFull }, false},
	{"rx", "pp_recycle_ring", func(c *channel) *counter { return &c.pool.stats.ring }, false},
	{"rx", "pp_recycle_ring_full", func(c *channel) *counter { return &c.pool.stats.ringFull }, false},
	{"rx", "pp_recycle_released_ref", func(c *channel) *counter { return &c.pool.stats.releasedRefs }, false},
	{"rx", "doorbells", func(c *channel) *counter { return &c.rxStats.doorbells }, false},
	{"rx", "csum_unnecessary", func(c *channel) *counter { return &c.csum[csumUnnecessary] }, false},
	{"rx", "csum_complete", func(c *channel) *counter { return &c.csum[csumComplete] }, false},
	{"rx", "csum_none", func(c *channel) *counter { return &c.csum[csumNone] }, false},
	{"ch", "events", func(c *channel) *counter { return &c.stats.events }, false},
	{"ch", "poll", func(c *channel) *counter { return &c.stats.polls }, false},
	{"ch", "arm", func(c *channel) *counter { return &c.stats.arms }, false},
}

// ofAnswers is what a channel's XDP send queue counts of answers, ofRedirects what
// one counts of frames from elsewhere, sent here by another port's program or our
// own: nil where it has none.
func ofAnswers(get func(*txStats) *counter) func(*channel) *counter {
	return func(c *channel) *counter {
		if q := c.xdpSeen.Load(); q != nil && !c.generates {
			return get(&q.stats)
		}
		return nil
	}
}

func ofRedirects(get func(*txStats) *counter) func(*channel) *counter {
	return func(c *channel) *counter {
		if q := c.xdpSeen.Load(); q != nil && c.generates {
			return get(&q.stats)
		}
		if c.n.redirected[c.index].Load() {
			return get(&c.n.guests[c.index].stats)
		}
		return nil
	}
}

// ofSocket and ofSocketSends are counters of a channel's socket queues.
func ofSocket(get func(*xskStats) *counter) func(*channel) *counter {
	return func(c *channel) *counter {
		if c.xsk == nil {
			return nil
		}
		return get(&c.xsk.stats)
	}
}

func ofSocketSends(get func(*txStats) *counter) func(*channel) *counter {
	return func(c *channel) *counter {
		if c.xsk == nil {
			return nil
		}
		return get(&c.xsk.tx.stats)
	}
}

// xskQueueStats are what zero-copy sockets count, by mlx5e's names and, behind
// those, by AF_XDP's. They go on over detach and attach.
var xskQueueStats = []queueStat{
	{"rx", "xsk_packets", ofSocket(func(s *xskStats) *counter { return &s.packets }), false},
	{"rx", "xsk_bytes", ofSocket(func(s *xskStats) *counter { return &s.bytes }), false},
	{"rx", "xsk_xdp_drop", ofSocket(func(s *xskStats) *counter { return &s.drop }), true},
	{"rx", "xsk_xdp_aborted", ofSocket(func(s *xskStats) *counter { return &s.abort }), true},
	{"rx", "xsk_xdp_redirect", ofSocket(func(s *xskStats) *counter { return &s.redirect }), false},
	{"rx", "xsk_wqe_err", ofSocket(func(s *xskStats) *counter { return &s.wqeErr }), true},
	{"rx", "xsk_oversize_pkts_sw_drop", ofSocket(func(s *xskStats) *counter { return &s.oversize }), true},
	{"rx", "xsk_buff_alloc_err", ofSocket(func(s *xskStats) *counter { return &s.allocErr }), false},
	{"rx", "xsk_ring_full", ofSocket(func(s *xskStats) *counter { return &s.ringFull }), true},
	{"rx", "xsk_detach_drop", ofSocket(func(s *xskStats) *counter { return &s.flushed }), true},
	{"rx", "xsk_invalid_descs", ofSocket(func(s *xskStats) *counter { return &s.badFill }), false},
	{"rx", "xsk_recover", ofSocket(func(s *xskStats) *counter { return &s.recover }), false},
	{"rx", "xsk_wakeups", ofSocket(func(s *xskStats) *counter { return &s.wakes }), false},
	{"tx", "xsk_xmit", ofSocketSends(func(s *txStats) *counter { return &s.packets }), false},
	{"tx", "xsk_mpwqe", ofSocketSends(func(s *txStats) *counter { return &s.blocks }), false},
	{"tx", "xsk_inlnw", ofSocketSends(func(s *txStats) *counter { return &s.inlined }), false},
	{"tx", "xsk_full", ofSocket(func(s *xskStats) *counter { return &s.full }), false},
	{"tx", "xsk_err", ofSocketSends(func(s *txStats) *counter { return &s.dropped }), false},
	{"tx", "xsk_cqes", ofSocketSends(func(s *txStats) *counter { return &s.cqes }), false},
	{"tx", "xsk_invalid_descs", ofSocket(func(s *xskStats) *counter { return &s.badDescs }), false},
	{"tx", "xsk_ring_empty_descs", ofSocket(func(s *xskStats) *counter { return &s.txEmpty }), false},
}

// xdpQueueStats are what programs and their send queues count. A frame that was
// lost is in one of them.
var xdpQueueStats = []queueStat{
	{"rx", "xdp_drop", func(c *channel) *counter { return &c.xdpStats.drop }, true},
	{"rx", "xdp_aborted", func(c *channel) *counter { return &c.xdpStats.aborted }, true},
	{"rx", "xdp_redirect", func(c *channel) *counter { return &c.xdpStats.redirect }, false},
	{"rx", "xdp_redirect_full", func(c *channel) *counter { return &c.xdpStats.lost }, true},
	{"rx", "xdp_redirect_no_socket", func(c *channel) *counter { return &c.xdpStats.nobody }, true},
	{"rx", "xdp_tx_xmit", ofAnswers(func(s *txStats) *counter { return &s.packets }), false},
	{"rx", "xdp_tx_mpwqe", ofAnswers(func(s *txStats) *counter { return &s.blocks }), false},
	{"rx", "xdp_tx_inlnw", ofAnswers(func(s *txStats) *counter { return &s.inlined }), false},
	{"rx", "xdp_tx_nops", ofAnswers(func(s *txStats) *counter { return &s.nop }), false},
	{"rx", "xdp_tx_full", func(c *channel) *counter { return &c.xdpStats.full }, true},
	{"rx", "xdp_tx_err", ofAnswers(func(s *txStats) *counter { return &s.dropped }), true},
	{"rx", "xdp_tx_cqes", ofAnswers(func(s *txStats) *counter { return &s.cqes }), false},
	{"tx", "xdp_xmit", ofRedirects(func(s *txStats) *counter { return &s.packets }), false},
	{"tx", "xdp_mpwqe", ofRedirects(func(s *txStats) *counter { return &s.blocks }), false},
	{"tx", "xdp_inlnw", ofRedirects(func(s *txStats) *counter { return &s.inlined }), false},
	{"tx", "xdp_nops", ofRedirects(func(s *txStats) *counter { return &s.nop }), false},
	{"tx", "xdp_full", ofRedirects(func(s *txStats) *counter { return &s.stopped }), false},
	{"tx", "xdp_err", ofRedirects(func(s *txStats) *counter { return &s.dropped }), false},
	{"tx", "xdp_cqes", ofRedirects(func(s *txStats) *counter { return &s.cqes }), false},
}

// sumName is the name of the sum over all queues; mlx5e drops a letter in one.
func (s queueStat) sumName() string {
	if s.name == "xdp_tx_cqes" {
		return "rx_xdp_tx_cqe"
	}
	return s.side + "_" + s.name
}

// sendStat is a counter that every send queue has. A port's are those of its
// channels' own queues and of those on which other ports' channels forward to it:
// both are sums of the same name, as they leave by the same port.
type sendStat struct {
	name string
	sum  string // name of the sum where it is another
	get  func(*txStats) *counter
}

var sendStats = []sendStat{
	{"packets", "", func(s *txStats) *counter { return &s.packets }},
	{"bytes", "", func(s *txStats) *counter { return &s.bytes }},
	{"tso_packets", "", func(s *txStats) *counter { return &s.tso }},
	{"tso_bytes", "", func(s *txStats) *counter { return &s.tsoBytes }},
	{"tso_inner_packets", "", func(s *txStats) *counter { return &s.tsoIn }},
	{"tso_inner_bytes", "", func(s *txStats) *counter { return &s.tsoInB }},
	{"added_vlan_packets", "", func(s *txStats) *counter { return &s.vlans }},
	{"nop", "", func(s *txStats) *counter { return &s.nop }},
	{"mpwqe_blks", "", func(s *txStats) *counter { return &s.blocks }},
	{"mpwqe_pkts", "", func(s *txStats) *counter { return &s.shared }},
	{"inlnw", "", func(s *txStats) *counter { return &s.inlined }},
	{"csum_none", "", func(s *txStats) *counter { return &s.csumNone }},
	{"csum_partial", "", func(s *txStats) *counter { return &s.csum }},
	{"csum_partial_inner", "", func(s *txStats) *counter { return &s.csumIn }},
	{"stopped", "queue_stopped", func(s *txStats) *counter { return &s.stopped }},
	{"dropped", "queue_dropped", func(s *txStats) *counter { return &s.dropped }},
	{"xmit_more", "", func(s *txStats) *counter { return &s.more }},
	{"recover", "", func(s *txStats) *counter { return &s.recover }},
	{"cqes", "", func(s *txStats) *counter { return &s.cqes }},
	{"wake", "queue_wake", func(s *txStats) *counter { return &s.wake }},
	{"cqe_err", "", func(s *txStats) *counter { return &s.cqeErr }},
}

// sumName is the name of the sum over all queues.
func (s sendStat) sumName() string {
	if s.sum != "" {
		return "tx_" + s.sum
	}
	return "tx_" + s.name
}

// sentBy are the send queues whose counters stand under channel c's number: its own
// and another port's that was put beside it.
func (n *nic) sentBy(c *channel) []*sendQueue {
	if q := n.guests[c.index]; q != nil && !n.redirected[c.index].Load() {
		return []*sendQueue{c.tx, q}
	}
	return []*sendQueue{c.tx}
}

// deviceStat is a counter that the device keeps, in one of the groups below.
type deviceStat struct {
	name  string
	group int
	get   func(b []byte) uint64
	drop  bool
}

// Groups of device counters: one command each.
const (
	statQCounter = iota
	statSocketCounter
	statVport
	statVnicEnv
	statRuleDrops
	statMissSink
	statRFC2819
	statRFC2863
	statIEEE8023
	statGroups
)

func traffic(a area, w wide) func([]byte) uint64 {
	return func(b []byte) uint64 { return w.get(a.in(b)) }
}

// plain is a group that is one counter.
func plain(b []byte) uint64 { return be64(b, 0) }

var deviceStats = []deviceStat{
	{"rx_out_of_buffer", statQCounter, plain, true},
	{"rx_xsk_out_of_buffer", statSocketCounter, plain, true},
	{"rx_rule_dropped", statRuleDrops, plain, true},
	{"rx_vport_unicast_packets", statVport, traffic(vportCounterOutRxUni, trafficPackets), false},
	{"rx_vport_unicast_bytes", statVport, traffic(vportCounterOutRxUni, trafficOctets), false},
	{"tx_vport_unicast_packets", statVport, traffic(vportCounterOutTxUni, trafficPackets), false},
	{"tx_vport_unicast_bytes", statVport, traffic(vportCounterOutTxUni, trafficOctets), false},
	{"rx_vport_multicast_packets", statVport, traffic(vportCounterOutRxMulti, trafficPackets), false},
	{"rx_vport_multicast_bytes", statVport, traffic(vportCounterOutRxMulti, trafficOctets), false},
	{"tx_vport_multicast_packets", statVport, traffic(vportCounterOutTxMulti, trafficPackets), false},
	{"tx_vport_multicast_bytes", statVport, traffic(vportCounterOutTxMulti, trafficOctets), false},
	{"rx_vport_broadcast_packets", statVport, traffic(vportCounterOutRxBroad, trafficPackets), false},
	{"rx_vport_broadcast_bytes", statVport, traffic(vportCounterOutRxBroad, trafficOctets), false},
	{"tx_vport_broadcast_packets", statVport, traffic(vportCounterOutTxBroad, trafficPackets), false},
	{"tx_vport_broadcast_bytes", statVport, traffic(vportCounterOutTxBroad, trafficOctets), false},
	{"rx_steer_missed_packets", statVnicEnv, vnicEnvSteerDiscard.get, true},
	{"rx_steer_missed_packets", statMissSink, plain, true}, // of devices that have no such counter
	{"rx_discards_vport_down", statVnicEnv, vnicEnvRxVportDown.get, true},
	{"rx_packets_phy", statIEEE8023, ieeeRxFrames.get, false},
	{"rx_bytes_phy", statIEEE8023, ieeeRxOctets.get, false},
	{"rx_crc_errors_phy", statIEEE8023, ieeeFcsErrors.get, true},
	{"tx_packets_phy", statIEEE8023, ieeeTxFrames.get, false},
	{"tx_bytes_phy", statIEEE8023, ieeeTxOctets.get, false},
	{"rx_undersize_pkts_phy", statRFC2819, rfc2819Undersize.get, true},
	{"rx_oversize_pkts_phy", statRFC2819, rfc2819Oversize.get, true},
	{"rx_fragments_phy", statRFC2819, rfc2819Fragments.get, true},
	{"rx_jabbers_phy", statRFC2819, rfc2819Jabbers.get, true},
	{"rx_discards_phy", statRFC2863, rfc2863InDiscards.get, true},
	{"tx_discards_phy", statRFC2863, rfc2863OutDiscards.get, false},
}

// wrapping turns a 32-bit counter that wraps into a 64-bit one that does not.
type wrapping struct {
	last  uint32
	total uint64
}

func (w *wrapping) update(now uint32) uint64 {
	w.total += uint64(now - w.last)
	w.last = now
	return w.total
}

// statReader reads a NIC's counters. Any goroutine may call read.
type statReader struct {
	n      *nic
	mu     sync.Mutex
	missed [statGroups]wrapping // of those groups that are a Q counter
	groups [statGroups][]byte   // as last read
}

func newStatReader(n *nic) *statReader { return &statReader{n: n} }

// missedBy asks for the packets that found no buffer in queues of one counter set.
func (r *statReader) missedBy(group int, counters uint32) func() ([]byte, error) {
	return func() ([]byte, error) {
		v, err := r.n.fw.queryMissed(counters)
		if err != nil {
			return nil, err
		}
		return putBE64Slice(r.missed[group].update(v)), nil
	}
}

// queries are the commands behind the groups; nil where the device lacks one.
func (r *statReader) queries() [statGroups]func() ([]byte, error) {
	n := r.n
	q := [statGroups]func() ([]byte, error){
		statQCounter: r.missedBy(statQCounter, n.counters),
		statVport:    n.fw.queryVportCounters,
	}
	if n.channels[0].xsk != nil {
		q[statSocketCounter] = r.missedBy(statSocketCounter, n.unheld)
	}
	if n.caps.steerDrops || n.caps.downDrops {
		q[statVnicEnv] = n.fw.queryVnicEnv
	}
	if s := n.steering.missed; s != nil {
		q[statMissSink] = r.missedBy(statMissSink, s.counters)
	}
	switch d := n.rules.drops.Load(); {
	case d == nil:
	case d.sink != nil:
		q[statRuleDrops] = r.missedBy(statRuleDrops, d.sink.counters)
	default:
		q[statRuleDrops] = func() ([]byte, error) {
			v, err := n.fw.queryFlowCounter(d.counter)
			return putBE64Slice(v), err
		}
	}
	if n.caps.portOwner {
		q[statRFC2819] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntRFC2819) }
		q[statRFC2863] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntRFC2863) }
		q[statIEEE8023] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntIEEE8023) }
	}
	return q
}

func putBE64Slice(v uint64) []byte {
	b := make([]byte, 8)
	putBE64(b, 0, v)
	return b
}

// update asks the device. A group whose query fails keeps its last values and
// is named in the error; the others are right.
func (r *statReader) update() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, query := range r.queries() {
		if query == nil {
			continue
		}
		b, e := query()
		if e != nil {
			if err == nil {
				err = fmt.Errorf("counters: %w", e)
			}
			continue
		}
		r.groups[g] = b
	}
	return err
}

// read returns all counters as last updated: sums over queues, then the device's,
// then each queue's, as ethtool -S does on mlx5e. A group that the device does not
// have is left out.
func (r *statReader) read() []stat {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.sums()
	for _, s := range deviceStats {
		if b := r.groups[s.group]; b != nil {
			out = append(out, stat{s.name, s.get(b)})
		}
	}
	for _, side := range []string{"ch", "rx", "tx"} {
		for _, c := range r.n.channels {
			if side == "tx" {
				out = r.n.appendSent(out, c)
			}
			out = appendChannel(out, c, side)
		}
	}
	return out
}

// sums are those over all queues, the packets and bytes of both sides first.
func (r *statReader) sums() (out []stat) {
	n, leading := r.n, 0
	lead := func(s stat) {
		if s.name == "rx_packets" || s.name == "rx_bytes" || s.name == "tx_packets" || s.name == "tx_bytes" {
			out = slices.Insert(out, leading, s)
			leading++
			return
		}
		out = append(out, s)
	}
	for _, s := range slices.Concat(channelStats...) {
		sum := uint64(0)
		for _, c := range n.channels {
			if k := s.get(c); k != nil {
				sum += k.get()
			}
		}
		lead(stat{s.sumName(), sum})
	}
	for _, s := range sendStats {
		sum := uint64(0)
		for _, c := range n.channels {
			for _, q := range n.sentBy(c) {
				sum += s.get(&q.stats).get()
			}
		}
		lead(stat{s.sumName(), sum})
	}
	return out
}

// appendSent adds what a channel's send queues count.
func (n *nic) appendSent(out []stat, c *channel) []stat {
	for _, s := range sendStats {
		sum := uint64(0)
		for _, q := range n.sentBy(c) {
			sum += s.get(&q.stats).get()
		}
		out = append(out, stat{fmt.Sprintf("tx%d_%s", c.index, s.name), sum})
	}
	return out
}

// appendChannel adds what a channel counts on one side.
func appendChannel(out []stat, c *channel, side string) []stat {
	for _, s := range slices.Concat(channelStats...) {
		if s.side != side {
			continue
		}
		if k := s.get(c); k != nil {
			out = append(out, stat{fmt.Sprintf("%s%d_%s", side, c.index, s.name), k.get()})
		}
	}
	return out
}

// dropNames lists the counters whose sum is what was lost on receive.
func dropNames() map[string]bool {
	names := map[string]bool{}
	for _, s := range slices.Concat(channelStats...) {
		if s.drop {
			names[s.sumName()] = true
		}
	}
	for _, s := range deviceStats {
		if s.drop {
			names[s.name] = true
		}
	}
	return names
}

// drops picks the drop counters out of all.
func drops(all []stat) map[string]uint64 {
	names, out := dropNames(), map[string]uint64{}
	for _, s := range all {
		if names[s.name] {
			out[s.name] = s.value
		}
	}
	return out
}

// formatStats is the form of ethtool -S.
func formatStats(title string, all []stat) string {
	b := []byte("NIC statistics (" + title + "):\n")
	for _, s := range all {
		b = fmt.Appendf(b, "     %s: %d\n", s.name, s.value)
	}
	return string(b)
}
