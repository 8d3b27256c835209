package main

// stats.go owns counters by name: which there are, where each comes from, sums.
// It does not own who counts: queues count what they do, the device what never
// reached a queue.
//
// Names and order are those of ethtool -S on mlx5e (Linux 6.12), of what this driver
// does; what it counts beyond that stands behind all of these (ownStats,
// ownDeviceStats). Per queue the order is another than that of the sums, there and
// here.
// Manual: chapters Q Counters, Vport Counters, PPCNT, Vnic Environment.

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// stat is one counter with its value.
type stat struct {
	name  string
	value uint64
}

// queueStat is a counter that every channel has.
type queueStat struct {
	side string // "rx", "tx" or "ch": ethtool's rx3_packets is packets of rx, queue 3
	name string
	get  reading
	drop bool // frames that are lost are counted here
}

// reading is a channel's value of a counter; ok is false where it lacks the queue.
type reading func(c *channel) (v uint64, ok bool)

// of reads what each channel has; where get returns nil the channel has none.
func of(get func(*channel) *counter) reading {
	return func(c *channel) (uint64, bool) {
		if k := get(c); k != nil {
			return k.get(), true
		}
		return 0, false
	}
}

// ofReceive, ofPool and ofProgram read what a channel's receive queue, page pool
// and program count.
func ofReceive(get func(*rxStats) *counter) reading {
	return of(func(c *channel) *counter { return get(&c.rxStats) })
}

func ofPool(get func(*poolStats) *counter) reading {
	return of(func(c *channel) *counter { return get(&c.pool.stats) })
}

func ofProgram(get func(*xdpStats) *counter) reading {
	return of(func(c *channel) *counter { return get(&c.xdpStats) })
}

// ofSends reads what the send queues count that stand under a channel's number. A
// port's are those of its channels' own queues and of those on which other ports'
// channels forward to it: both are sums of the same name, as they leave by the same
// port.
func ofSends(get func(*txStats) *counter) reading {
	return func(c *channel) (v uint64, ok bool) {
		for _, q := range c.n.sentBy(c) {
			v += get(&q.stats).get()
		}
		return v, true
	}
}

// ofAnswers is what a channel's XDP send queue counts of answers, ofRedirects what
// one counts of frames from elsewhere, sent here by another port's program or our
// own.
func ofAnswers(get func(*txStats) *counter) reading {
	return of(func(c *channel) *counter {
		if q := c.xdpSeen.Load(); q != nil && !c.generates {
			return get(&q.stats)
		}
		return nil
	})
}

func ofRedirects(get func(*txStats) *counter) reading {
	return of(func(c *channel) *counter {
		if q := c.xdpSeen.Load(); q != nil && c.generates {
			return get(&q.stats)
		}
		if c.n.redirected[c.index].Load() {
			return get(&c.n.guests[c.index].stats)
		}
		return nil
	})
}

// ofSocket and ofSocketSends are counters of a channel's socket queues.
func ofSocket(get func(*xskStats) *counter) reading {
	return of(func(c *channel) *counter {
		if c.xsk == nil {
			return nil
		}
		return get(&c.xsk.stats)
	})
}

func ofSocketSends(get func(*txStats) *counter) reading {
	return of(func(c *channel) *counter {
		if c.xsk == nil {
			return nil
		}
		return get(&c.xsk.tx.stats)
	})
}

// queueOrder is how the counters of channels stand: all channels' of the first
// line, then all channels' of the next, of each channel table by table.
var queueOrder = [][][]queueStat{
	{loopStats},
	{recvStats, socketRecvStats, answerStats},
	{sendStats},
	{socketSendStats, redirectStats},
}

var loopStats = []queueStat{
	{"ch", "events", of(func(c *channel) *counter { return &c.stats.events }), false},
	{"ch", "poll", of(func(c *channel) *counter { return &c.stats.polls }), false},
	{"ch", "arm", of(func(c *channel) *counter { return &c.stats.arms }), false},
}

// recvStats are what receive queues count. The checksum verdicts are those of
// frames that became packets for a handler, so that their sum is packets. Modes
// rxdrop and l2fwd look at no frame's checksums, and these counters stay 0 there:
// reading the verdict would cost them several instructions a frame.
var recvStats = []queueStat{
	{"rx", "packets", ofReceive(func(s *rxStats) *counter { return &s.packets }), false},
	{"rx", "bytes", ofReceive(func(s *rxStats) *counter { return &s.bytes }), false},
	{"rx", "csum_complete", of(func(c *channel) *counter { return &c.csum[csumComplete] }), false},
	{"rx", "csum_unnecessary", of(func(c *channel) *counter { return &c.csum[csumUnnecessary] }), false},
	{"rx", "csum_none", of(func(c *channel) *counter { return &c.csum[csumNone] }), false},
	{"rx", "xdp_drop", ofProgram(func(s *xdpStats) *counter { return &s.drop }), true},
	{"rx", "xdp_redirect", ofProgram(func(s *xdpStats) *counter { return &s.redirect }), false},
	{"rx", "removed_vlan_packets", ofReceive(func(s *rxStats) *counter { return &s.stripped }), false},
	{"rx", "wqe_err", ofReceive(func(s *rxStats) *counter { return &s.wqeErr }), true},
	{"rx", "mpwqe_filler_cqes", ofReceive(func(s *rxStats) *counter { return &s.filler }), false},
	{"rx", "mpwqe_filler_strides", ofReceive(func(s *rxStats) *counter { return &s.fillerStrides }), false},
	{"rx", "oversize_pkts_sw_drop", ofReceive(func(s *rxStats) *counter { return &s.oversize }), true},
	{"rx", "buff_alloc_err", ofReceive(func(s *rxStats) *counter { return &s.starved }), false},
	{"rx", "cqe_compress_blks", ofReceive(func(s *rxStats) *counter { return &s.blocks }), false},
	{"rx", "cqe_compress_pkts", ofReceive(func(s *rxStats) *counter { return &s.small }), false},
	{"rx", "congst_umr", ofReceive(func(s *rxStats) *counter { return &s.congested }), false},
	{"rx", "recover", ofReceive(func(s *rxStats) *counter { return &s.recover }), false},
	{"rx", "pp_alloc_fast", ofPool(func(s *poolStats) *counter { return &s.allocFast }), false},
	{"rx", "pp_alloc_slow", ofPool(func(s *poolStats) *counter { return &s.allocSlow }), false},
	{"rx", "pp_alloc_empty", ofPool(func(s *poolStats) *counter { return &s.allocEmpty }), false},
	{"rx", "pp_alloc_refill", ofPool(func(s *poolStats) *counter { return &s.allocRefill }), false},
	{"rx", "pp_alloc_waive", ofPool(func(s *poolStats) *counter { return &s.allocWaive }), false},
	{"rx", "pp_recycle_cached", ofPool(func(s *poolStats) *counter { return &s.cached }), false},
	{"rx", "pp_recycle_cache_full", ofPool(func(s *poolStats) *counter { return &s.cacheFull }), false},
	{"rx", "pp_recycle_ring", ofPool(func(s *poolStats) *counter { return &s.ring }), false},
	{"rx", "pp_recycle_ring_full", ofPool(func(s *poolStats) *counter { return &s.ringFull }), false},
	{"rx", "pp_recycle_released_ref", ofPool(func(s *poolStats) *counter { return &s.releasedRefs }), false},
}

// socketRecvStats are what receive queues of zero-copy sockets count. Checksum
// verdicts are those of frames that a program passes to the handler. They go on
// over detach and attach.
var socketRecvStats = []queueStat{
	{"rx", "xsk_packets", ofSocket(func(s *xskStats) *counter { return &s.packets }), false},
	{"rx", "xsk_bytes", ofSocket(func(s *xskStats) *counter { return &s.bytes }), false},
	{"rx", "xsk_csum_complete", ofSocket(func(s *xskStats) *counter { return &s.csum[csumComplete] }), false},
	{"rx", "xsk_csum_unnecessary", ofSocket(func(s *xskStats) *counter { return &s.csum[csumUnnecessary] }), false},
	{"rx", "xsk_csum_none", ofSocket(func(s *xskStats) *counter { return &s.csum[csumNone] }), false},
	{"rx", "xsk_removed_vlan_packets", ofSocket(func(s *xskStats) *counter { return &s.stripped }), false},
	{"rx", "xsk_xdp_drop", ofSocket(func(s *xskStats) *counter { return &s.drop }), true},
	{"rx", "xsk_xdp_redirect", ofSocket(func(s *xskStats) *counter { return &s.redirect }), false},
	{"rx", "xsk_wqe_err", ofSocket(func(s *xskStats) *counter { return &s.wqeErr }), true},
	{"rx", "xsk_oversize_pkts_sw_drop", ofSocket(func(s *xskStats) *counter { return &s.oversize }), true},
	{"rx", "xsk_buff_alloc_err", ofSocket(func(s *xskStats) *counter { return &s.allocErr }), false},
}

// answerStats are what programs' answers count.
var answerStats = []queueStat{
	{"rx", "xdp_tx_xmit", ofAnswers(func(s *txStats) *counter { return &s.packets }), false},
	{"rx", "xdp_tx_mpwqe", ofAnswers(func(s *txStats) *counter { return &s.blocks }), false},
	{"rx", "xdp_tx_inlnw", ofAnswers(func(s *txStats) *counter { return &s.inlined }), false},
	{"rx", "xdp_tx_nops", ofAnswers(func(s *txStats) *counter { return &s.nop }), false},
	{"rx", "xdp_tx_full", ofProgram(func(s *xdpStats) *counter { return &s.full }), true},
	{"rx", "xdp_tx_err", ofAnswers(func(s *txStats) *counter { return &s.dropped }), true},
	{"rx", "xdp_tx_cqes", ofAnswers(func(s *txStats) *counter { return &s.cqes }), false},
}

var sendStats = []queueStat{
	{"tx", "packets", ofSends(func(s *txStats) *counter { return &s.packets }), false},
	{"tx", "bytes", ofSends(func(s *txStats) *counter { return &s.bytes }), false},
	{"tx", "tso_packets", ofSends(func(s *txStats) *counter { return &s.tso }), false},
	{"tx", "tso_bytes", ofSends(func(s *txStats) *counter { return &s.tsoBytes }), false},
	{"tx", "tso_inner_packets", ofSends(func(s *txStats) *counter { return &s.tsoIn }), false},
	{"tx", "tso_inner_bytes", ofSends(func(s *txStats) *counter { return &s.tsoInB }), false},
	{"tx", "csum_partial", ofSends(func(s *txStats) *counter { return &s.csum }), false},
	{"tx", "csum_partial_inner", ofSends(func(s *txStats) *counter { return &s.csumIn }), false},
	{"tx", "added_vlan_packets", ofSends(func(s *txStats) *counter { return &s.vlans }), false},
	{"tx", "nop", ofSends(func(s *txStats) *counter { return &s.nop }), false},
	{"tx", "mpwqe_blks", ofSends(func(s *txStats) *counter { return &s.blocks }), false},
	{"tx", "mpwqe_pkts", ofSends(func(s *txStats) *counter { return &s.shared }), false},
	{"tx", "csum_none", ofSends(func(s *txStats) *counter { return &s.csumNone }), false},
	{"tx", "stopped", ofSends(func(s *txStats) *counter { return &s.stopped }), false},
	{"tx", "dropped", ofSends(func(s *txStats) *counter { return &s.dropped }), true},
	{"tx", "xmit_more", ofSends(func(s *txStats) *counter { return &s.more }), false},
	{"tx", "recover", ofSends(func(s *txStats) *counter { return &s.recover }), false},
	{"tx", "cqes", ofSends(func(s *txStats) *counter { return &s.cqes }), false},
	{"tx", "wake", ofSends(func(s *txStats) *counter { return &s.wake }), false},
	{"tx", "cqe_err", ofSends(func(s *txStats) *counter { return &s.cqeErr }), false},
}

var socketSendStats = []queueStat{
	{"tx", "xsk_xmit", ofSocketSends(func(s *txStats) *counter { return &s.packets }), false},
	{"tx", "xsk_mpwqe", ofSocketSends(func(s *txStats) *counter { return &s.blocks }), false},
	{"tx", "xsk_inlnw", ofSocketSends(func(s *txStats) *counter { return &s.inlined }), false},
	{"tx", "xsk_full", ofSocket(func(s *xskStats) *counter { return &s.full }), false},
	{"tx", "xsk_err", ofSocketSends(func(s *txStats) *counter { return &s.dropped }), true},
	{"tx", "xsk_cqes", ofSocketSends(func(s *txStats) *counter { return &s.cqes }), false},
}

var redirectStats = []queueStat{
	{"tx", "xdp_xmit", ofRedirects(func(s *txStats) *counter { return &s.packets }), false},
	{"tx", "xdp_mpwqe", ofRedirects(func(s *txStats) *counter { return &s.blocks }), false},
	{"tx", "xdp_inlnw", ofRedirects(func(s *txStats) *counter { return &s.inlined }), false},
	{"tx", "xdp_nops", ofRedirects(func(s *txStats) *counter { return &s.nop }), false},
	{"tx", "xdp_full", ofRedirects(func(s *txStats) *counter { return &s.stopped }), false},
	{"tx", "xdp_err", ofRedirects(func(s *txStats) *counter { return &s.dropped }), true},
	{"tx", "xdp_cqes", ofRedirects(func(s *txStats) *counter { return &s.cqes }), false},
}

// ownStats are counters that mlx5e does not have.
var ownStats = []queueStat{
	{"rx", "stop_drop", ofReceive(func(s *rxStats) *counter { return &s.ended }), true},
	{"rx", "doorbells", ofReceive(func(s *rxStats) *counter { return &s.doorbells }), false},
	{"rx", "xdp_aborted", ofProgram(func(s *xdpStats) *counter { return &s.aborted }), true}, // mlx5e: in xdp_drop
	{"rx", "xdp_redirect_full", ofProgram(func(s *xdpStats) *counter { return &s.lost }), true},
	{"rx", "xdp_redirect_no_socket", ofProgram(func(s *xdpStats) *counter { return &s.nobody }), true},
	{"rx", "xsk_xdp_aborted", ofSocket(func(s *xskStats) *counter { return &s.abort }), true},
	{"rx", "xsk_ring_full", ofSocket(func(s *xskStats) *counter { return &s.ringFull }), true},
	{"rx", "xsk_detach_drop", ofSocket(func(s *xskStats) *counter { return &s.flushed }), true},
	{"rx", "xsk_xdp_no_page", ofSocket(func(s *xskStats) *counter { return &s.noPage }), true},
	{"rx", "xsk_invalid_descs", ofSocket(func(s *xskStats) *counter { return &s.badFill }), false},
	{"rx", "xsk_copied", ofSocket(func(s *xskStats) *counter { return &s.copied }), false},
	{"rx", "xsk_recover", ofSocket(func(s *xskStats) *counter { return &s.recover }), false},
	{"rx", "xsk_wakeups", ofSocket(func(s *xskStats) *counter { return &s.wakes }), false},
	{"tx", "inlnw", ofSends(func(s *txStats) *counter { return &s.inlined }), false},
	{"tx", "blueflame", ofSends(func(s *txStats) *counter { return &s.flames }), false},
	{"tx", "xsk_invalid_descs", ofSocket(func(s *xskStats) *counter { return &s.badDescs }), false},
	{"tx", "xsk_ring_empty_descs", ofSocket(func(s *xskStats) *counter { return &s.txEmpty }), false},
	{"tx", "xsk_stop_drop", ofSocket(func(s *xskStats) *counter { return &s.unsent }), true},
}

// controlStat is a counter of what concerns a NIC as a whole; mlx5e has none of them.
type controlStat struct {
	name string
	get  func(*controlLoop) *counter
}

var controlStats = []controlStat{
	{"ev_link_change", func(l *controlLoop) *counter { return &l.flaps }},
	{"ev_cq_error", func(l *controlLoop) *counter { return &l.cqErrors }},
	{"ev_wq_error", func(l *controlLoop) *counter { return &l.wqErrors }},
	{"ev_internal_error", func(l *controlLoop) *counter { return &l.fatal }},
	{"ev_unknown", func(l *controlLoop) *counter { return &l.unknown }},
	{"fw_page_refusals", func(l *controlLoop) *counter { return &l.failures }},
	{"fw_health_stops", func(l *controlLoop) *counter { return &l.stops }},
	{"fw_health_errors", func(l *controlLoop) *counter { return &l.illness }},
}

// sumOrder is how the sums over all channels stand.
var sumOrder = strings.Fields(`
	rx_packets rx_bytes tx_packets tx_bytes tx_tso_packets tx_tso_bytes tx_tso_inner_packets tx_tso_inner_bytes
	tx_added_vlan_packets tx_nop tx_mpwqe_blks tx_mpwqe_pkts rx_removed_vlan_packets rx_csum_unnecessary rx_csum_none
	rx_csum_complete rx_xdp_drop rx_xdp_redirect rx_xdp_tx_xmit rx_xdp_tx_mpwqe rx_xdp_tx_inlnw rx_xdp_tx_nops
	rx_xdp_tx_full rx_xdp_tx_err rx_xdp_tx_cqe tx_csum_none tx_csum_partial tx_csum_partial_inner tx_queue_stopped
	tx_queue_dropped tx_xmit_more tx_recover tx_cqes tx_queue_wake tx_cqe_err tx_xdp_xmit tx_xdp_mpwqe tx_xdp_inlnw
	tx_xdp_nops tx_xdp_full tx_xdp_err tx_xdp_cqes rx_wqe_err rx_mpwqe_filler_cqes rx_mpwqe_filler_strides
	rx_oversize_pkts_sw_drop rx_buff_alloc_err rx_cqe_compress_blks rx_cqe_compress_pkts rx_congst_umr rx_recover
	rx_pp_alloc_fast rx_pp_alloc_slow rx_pp_alloc_empty rx_pp_alloc_refill rx_pp_alloc_waive rx_pp_recycle_cached
	rx_pp_recycle_cache_full rx_pp_recycle_ring rx_pp_recycle_ring_full rx_pp_recycle_released_ref ch_events ch_poll ch_arm
	rx_xsk_packets rx_xsk_bytes rx_xsk_csum_complete rx_xsk_csum_unnecessary rx_xsk_csum_none rx_xsk_removed_vlan_packets
	rx_xsk_xdp_drop rx_xsk_xdp_redirect rx_xsk_wqe_err rx_xsk_oversize_pkts_sw_drop rx_xsk_buff_alloc_err
	tx_xsk_xmit tx_xsk_mpwqe tx_xsk_inlnw tx_xsk_full tx_xsk_err tx_xsk_cqes`)

// sumNames are those sums that mlx5e calls otherwise than the counters.
var sumNames = map[string]string{
	"rx_xdp_tx_cqes": "rx_xdp_tx_cqe",
	"tx_stopped":     "tx_queue_stopped",
	"tx_dropped":     "tx_queue_dropped",
	"tx_wake":        "tx_queue_wake",
}

// sumName is the name of the sum over all queues.
func (s queueStat) sumName() string {
	name := s.side + "_" + s.name
	if other, ok := sumNames[name]; ok {
		return other
	}
	return name
}

// allQueueStats are all counters of channels, ours alone last.
func allQueueStats() (out []queueStat) {
	for _, line := range queueOrder {
		out = append(out, slices.Concat(line...)...)
	}
	return append(out, ownStats...)
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
	statPhysical
	statGroups
)

func traffic(a area, w wide) func([]byte) uint64 {
	return func(b []byte) uint64 { return w.get(a.in(b)) }
}

// plain is a group that is one counter.
func plain(b []byte) uint64 { return be64(b, 0) }

// deviceStats stand in mlx5e's order.
var deviceStats = []deviceStat{
	{"rx_out_of_buffer", statQCounter, plain, true},
	{"rx_steer_missed_packets", statVnicEnv, vnicEnvSteerDiscard.get, true},
	{"rx_steer_missed_packets", statMissSink, plain, true}, // of devices that have no such counter
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
	{"tx_packets_phy", statIEEE8023, ieeeTxFrames.get, false},
	{"rx_packets_phy", statIEEE8023, ieeeRxFrames.get, false},
	{"rx_crc_errors_phy", statIEEE8023, ieeeFcsErrors.get, true},
	{"tx_bytes_phy", statIEEE8023, ieeeTxOctets.get, false},
	{"rx_bytes_phy", statIEEE8023, ieeeRxOctets.get, false},
	{"tx_multicast_phy", statIEEE8023, ieeeTxMulticast.get, false},
	{"tx_broadcast_phy", statIEEE8023, ieeeTxBroadcast.get, false},
	{"rx_multicast_phy", statIEEE8023, ieeeRxMulticast.get, false},
	{"rx_broadcast_phy", statIEEE8023, ieeeRxBroadcast.get, false},
	{"rx_in_range_len_errors_phy", statIEEE8023, ieeeInRangeLength.get, true},
	{"rx_out_of_range_len_phy", statIEEE8023, ieeeOutOfRangeLength.get, true},
	{"rx_oversize_pkts_phy", statIEEE8023, ieeeTooLong.get, true},
	{"rx_symbol_err_phy", statIEEE8023, ieeeSymbolErrors.get, true},
	{"tx_mac_control_phy", statIEEE8023, ieeeTxControl.get, false},
	{"rx_mac_control_phy", statIEEE8023, ieeeRxControl.get, false},
	{"rx_unsupported_op_phy", statIEEE8023, ieeeUnsupported.get, false},
	{"rx_pause_ctrl_phy", statIEEE8023, ieeeRxPause.get, false},
	{"tx_pause_ctrl_phy", statIEEE8023, ieeeTxPause.get, false},
	{"rx_discards_phy", statRFC2863, rfc2863InDiscards.get, true},
	{"tx_discards_phy", statRFC2863, rfc2863OutDiscards.get, true},
	{"tx_errors_phy", statRFC2863, rfc2863OutErrors.get, true},
	{"rx_undersize_pkts_phy", statRFC2819, rfc2819Undersize.get, true},
	{"rx_fragments_phy", statRFC2819, rfc2819Fragments.get, true},
	{"rx_jabbers_phy", statRFC2819, rfc2819Jabbers.get, true},
	{"rx_64_bytes_phy", statRFC2819, rfc2819To64.get, false},
	{"rx_65_to_127_bytes_phy", statRFC2819, rfc2819To127.get, false},
	{"rx_128_to_255_bytes_phy", statRFC2819, rfc2819To255.get, false},
	{"rx_256_to_511_bytes_phy", statRFC2819, rfc2819To511.get, false},
	{"rx_512_to_1023_bytes_phy", statRFC2819, rfc2819To1023.get, false},
	{"rx_1024_to_1518_bytes_phy", statRFC2819, rfc2819To1518.get, false},
	{"rx_1519_to_2047_bytes_phy", statRFC2819, rfc2819To2047.get, false},
	{"rx_2048_to_4095_bytes_phy", statRFC2819, rfc2819To4095.get, false},
	{"rx_4096_to_8191_bytes_phy", statRFC2819, rfc2819To8191.get, false},
	{"rx_8192_to_10239_bytes_phy", statRFC2819, rfc2819To10239.get, false},
	{"link_down_events_phy", statPhysical, func(b []byte) uint64 { return uint64(physLinkDowns.get(b)) }, false},
}

// ownDeviceStats are the device's counters that mlx5e does not show.
var ownDeviceStats = []deviceStat{
	{"rx_xsk_out_of_buffer", statSocketCounter, plain, true},
	{"rx_rule_dropped", statRuleDrops, plain, true},
	{"rx_discards_vport_down", statVnicEnv, vnicEnvRxVportDown.get, true},
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
		q[statPhysical] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntPhysical) }
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
// then each queue's, as ethtool -S does on mlx5e; then in the same order those that
// mlx5e does not have. A group that the device does not have is left out.
func (r *statReader) read() (out []stat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := r.sums()
	for _, name := range sumOrder {
		out = append(out, stat{name, sums[name]})
	}
	out = r.appendDevice(out, deviceStats)
	for _, line := range queueOrder {
		out = r.appendQueues(out, slices.Concat(line...))
	}
	for _, s := range ownStats {
		out = append(out, stat{s.sumName(), sums[s.sumName()]})
	}
	out = r.appendDevice(out, ownDeviceStats)
	for _, s := range controlStats {
		out = append(out, stat{s.name, s.get(&r.n.control).get()})
	}
	return r.appendQueues(out, ownStats)
}

// sums are those over all queues, by name.
func (r *statReader) sums() map[string]uint64 {
	out := map[string]uint64{}
	for _, s := range allQueueStats() {
		for _, c := range r.n.channels {
			v, _ := s.get(c)
			out[s.sumName()] += v
		}
	}
	return out
}

// appendQueues adds what each channel counts by table, of those queues that it has.
func (r *statReader) appendQueues(out []stat, table []queueStat) []stat {
	for _, c := range r.n.channels {
		for _, s := range table {
			if v, ok := s.get(c); ok {
				out = append(out, stat{fmt.Sprintf("%s%d_%s", s.side, c.index, s.name), v})
			}
		}
	}
	return out
}

// appendDevice adds what the device counts by table, of those groups that it has.
func (r *statReader) appendDevice(out []stat, table []deviceStat) []stat {
	for _, s := range table {
		if b := r.groups[s.group]; b != nil {
			out = append(out, stat{s.name, s.get(b)})
		}
	}
	return out
}

// dropNames lists the counters of frames that were lost: rx_ those that the wire gave
// and nobody got, tx_ those that were to be sent and were not.
func dropNames() map[string]bool {
	names := map[string]bool{}
	for _, s := range allQueueStats() {
		if s.drop {
			names[s.sumName()] = true
		}
	}
	for _, s := range slices.Concat(deviceStats, ownDeviceStats) {
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
	return formatCounters("NIC statistics ("+title+"):\n", all)
}

// formatCounters is a line of head and one for each counter.
func formatCounters(head string, all []stat) string {
	b := []byte(head)
	for _, s := range all {
		b = fmt.Appendf(b, "     %s: %d\n", s.name, s.value)
	}
	return string(b)
}
