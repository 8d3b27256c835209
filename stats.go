package main

// stats.go owns counters by name: which there are, where each comes from, sums.
// Names are those of ethtool -S on mlx5e. It does not own who counts: queues
// count what they do, the device what never reached a queue.
// Manual: chapters Q Counters, Vport Counters, PPCNT, Vnic Environment.

import (
	"fmt"
	"sync"
)

// stat is one counter with its value.
type stat struct {
	name  string
	value uint64
}

// queueStat is a counter that every channel has.
type queueStat struct {
	side string // "rx" or "tx": ethtool's rx3_packets is packets of rx, queue 3
	name string
	get  func(*channel) *counter
	drop bool // frames that are lost are counted here
}

var queueStats = []queueStat{
	{"rx", "packets", func(c *channel) *counter { return &c.rx.stats.packets }, false},
	{"rx", "bytes", func(c *channel) *counter { return &c.rx.stats.bytes }, false},
	{"rx", "wqe_err", func(c *channel) *counter { return &c.rx.stats.wqeErr }, true},
	{"rx", "oversize_pkts_sw_drop", func(c *channel) *counter { return &c.rx.stats.oversize }, true},
	{"rx", "buff_alloc_err", func(c *channel) *counter { return &c.rx.stats.starved }, false},
	{"rx", "recover", func(c *channel) *counter { return &c.rx.stats.recover }, false},
	{"rx", "mpwqe_filler_cqes", func(c *channel) *counter { return &c.rx.stats.filler }, false},
	{"rx", "cqe_compress_blks", func(c *channel) *counter { return &c.rx.stats.blocks }, false},
	{"rx", "cqe_compress_pkts", func(c *channel) *counter { return &c.rx.stats.small }, false},
	{"rx", "pp_alloc_fast", func(c *channel) *counter { return &c.rx.pool.stats.allocFast }, false},
	{"rx", "pp_alloc_slow", func(c *channel) *counter { return &c.rx.pool.stats.allocSlow }, false},
	{"rx", "pp_alloc_empty", func(c *channel) *counter { return &c.rx.pool.stats.allocEmpty }, false},
	{"rx", "pp_alloc_refill", func(c *channel) *counter { return &c.rx.pool.stats.allocRefill }, false},
	{"rx", "pp_alloc_waive", func(c *channel) *counter { return &c.rx.pool.stats.allocWaive }, false},
	{"rx", "pp_recycle_cached", func(c *channel) *counter { return &c.rx.pool.stats.cached }, false},
	{"rx", "pp_recycle_cache_full", func(c *channel) *counter { return &c.rx.pool.stats.cacheFull }, false},
	{"rx", "pp_recycle_ring", func(c *channel) *counter { return &c.rx.pool.stats.ring }, false},
	{"rx", "pp_recycle_ring_full", func(c *channel) *counter { return &c.rx.pool.stats.ringFull }, false},
	{"rx", "pp_recycle_released_ref", func(c *channel) *counter { return &c.rx.pool.stats.releasedRefs }, false},
	{"rx", "doorbells", func(c *channel) *counter { return &c.rx.stats.doorbells }, false},
	{"rx", "csum_unnecessary", func(c *channel) *counter { return &c.csum[csumUnnecessary] }, false},
	{"rx", "csum_complete", func(c *channel) *counter { return &c.csum[csumComplete] }, false},
	{"rx", "csum_none", func(c *channel) *counter { return &c.csum[csumNone] }, false},
	{"ch", "events", func(c *channel) *counter { return &c.stats.events }, false},
	{"ch", "poll", func(c *channel) *counter { return &c.stats.polls }, false},
	{"ch", "arm", func(c *channel) *counter { return &c.stats.arms }, false},
	{"tx", "packets", func(c *channel) *counter { return &c.tx.stats.packets }, false},
	{"tx", "bytes", func(c *channel) *counter { return &c.tx.stats.bytes }, false},
	{"tx", "mpwqe_blks", func(c *channel) *counter { return &c.tx.stats.blocks }, false},
	{"tx", "mpwqe_pkts", func(c *channel) *counter { return &c.tx.stats.shared }, false},
	{"tx", "inlnw", func(c *channel) *counter { return &c.tx.stats.inlined }, false},
	{"tx", "tso_packets", func(c *channel) *counter { return &c.tx.stats.tso }, false},
	{"tx", "tso_bytes", func(c *channel) *counter { return &c.tx.stats.tsoBytes }, false},
	{"tx", "added_vlan_packets", func(c *channel) *counter { return &c.tx.stats.vlans }, false},
	{"tx", "csum_partial", func(c *channel) *counter { return &c.tx.stats.csum }, false},
	{"tx", "csum_partial_inner", func(c *channel) *counter { return &c.tx.stats.csumIn }, false},
	{"tx", "csum_none", func(c *channel) *counter { return &c.tx.stats.csumNone }, false},
	{"tx", "nop", func(c *channel) *counter { return &c.tx.stats.nop }, false},
	{"tx", "recover", func(c *channel) *counter { return &c.tx.stats.recover }, false},
	{"tx", "xmit_more", func(c *channel) *counter { return &c.tx.stats.more }, false},
	{"tx", "queue_stopped", func(c *channel) *counter { return &c.tx.stats.stopped }, false},
	{"tx", "queue_wake", func(c *channel) *counter { return &c.tx.stats.wake }, false},
	{"tx", "queue_dropped", func(c *channel) *counter { return &c.tx.stats.dropped }, false},
	{"tx", "cqes", func(c *channel) *counter { return &c.tx.stats.cqes }, false},
	{"tx", "cqe_err", func(c *channel) *counter { return &c.tx.stats.cqeErr }, false},
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
	statVport
	statVnicEnv
	statRFC2819
	statRFC2863
	statIEEE8023
	statGroups
)

func traffic(a area, w wide) func([]byte) uint64 {
	return func(b []byte) uint64 { return w.get(a.in(b)) }
}

var deviceStats = []deviceStat{
	{"rx_out_of_buffer", statQCounter, func(b []byte) uint64 { return uint64(be32(b, 0)) }, true},
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
	missed wrapping
	groups [statGroups][]byte // as last read
}

func newStatReader(n *nic) *statReader { return &statReader{n: n} }

// queries are the commands behind the groups; nil where the device lacks one.
func (r *statReader) queries() [statGroups]func() ([]byte, error) {
	n := r.n
	q := [statGroups]func() ([]byte, error){
		statQCounter: func() ([]byte, error) {
			v, err := n.fw.queryMissed(n.counters)
			return putBE32Slice(v), err
		},
		statVport: n.fw.queryVportCounters,
	}
	if n.caps.steerDrops || n.caps.downDrops {
		q[statVnicEnv] = n.fw.queryVnicEnv
	}
	if n.caps.portOwner {
		q[statRFC2819] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntRFC2819) }
		q[statRFC2863] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntRFC2863) }
		q[statIEEE8023] = func() ([]byte, error) { return n.fw.queryPortCounters(ppcntIEEE8023) }
	}
	return q
}

func putBE32Slice(v uint32) []byte {
	b := make([]byte, 4)
	putBE32(b, 0, v)
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

// read returns all counters as last updated: sums over queues, then each queue's,
// then the device's. A group that the device does not have is left out.
func (r *statReader) read() []stat {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []stat
	for _, s := range queueStats {
		sum := uint64(0)
		for _, c := range r.n.channels {
			sum += s.get(c).get()
		}
		out = append(out, stat{s.side + "_" + s.name, sum})
	}
	for _, c := range r.n.channels {
		for _, s := range queueStats {
			out = append(out, stat{fmt.Sprintf("%s%d_%s", s.side, c.index, s.name), s.get(c).get()})
		}
	}
	for _, s := range deviceStats {
		b := r.groups[s.group]
		if b == nil {
			continue
		}
		v := s.get(b)
		if s.group == statQCounter {
			v = r.missed.update(uint32(v))
		}
		out = append(out, stat{s.name, v})
	}
	return out
}

// dropNames lists the counters whose sum is what was lost on receive.
func dropNames() map[string]bool {
	names := map[string]bool{}
	for _, s := range queueStats {
		if s.drop {
			names[s.side+"_"+s.name] = true
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
