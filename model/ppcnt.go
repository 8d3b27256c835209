package model

// ppcnt.go owns the port's counters as registers PPCNT and MPCNT show them.
// What is counted when is in receive.go and send.go. Manual: chapter
// "Registers", PPCNT counter groups; RFC 2819, 2863 and 3635.

import "time"

// counterRow is one counter of a group.
type counterRow struct {
	at field
	v  func(p *port) uint64
}

// portCounters lists the counters of each group that are not always zero.
var portCounters = map[uint64][]counterRow{
	groupIEEE8023: {
		{c8023AFramesTransmittedOk, func(p *port) uint64 { return p.txPackets }},
		{c8023AFramesReceivedOk, func(p *port) uint64 { return p.rxPackets }},
		{c8023AOctetsTransmittedOk, func(p *port) uint64 { return p.txBytes }},
		{c8023AOctetsReceivedOk, func(p *port) uint64 { return p.rxBytes }},
		{c8023AMulticastFramesXmittedOk, func(p *port) uint64 { return p.txMulti }},
		{c8023ABroadcastFramesXmittedOk, func(p *port) uint64 { return p.txBroad }},
		{c8023AMulticastFramesReceivedOk, func(p *port) uint64 { return p.rxMulti }},
		{c8023ABroadcastFramesReceivedOk, func(p *port) uint64 { return p.rxBroad }},
		{c8023AFrameTooLongErrors, func(p *port) uint64 { return p.oversize }},
	},
	groupRFC2863: {
		{c2863IfInOctets, func(p *port) uint64 { return p.rxBytes }},
		{c2863IfInUcastPkts, func(p *port) uint64 { return p.rxPackets - p.rxMulti - p.rxBroad }},
		{c2863IfInDiscards, func(p *port) uint64 { return p.discards }},
		{c2863IfInErrors, func(p *port) uint64 { return p.undersize + p.oversize }},
		{c2863IfOutOctets, func(p *port) uint64 { return p.txBytes }},
		{c2863IfOutUcastPkts, func(p *port) uint64 { return p.txPackets - p.txMulti - p.txBroad }},
		{c2863IfInMulticastPkts, func(p *port) uint64 { return p.rxMulti }},
		{c2863IfInBroadcastPkts, func(p *port) uint64 { return p.rxBroad }},
		{c2863IfOutMulticastPkts, func(p *port) uint64 { return p.txMulti }},
		{c2863IfOutBroadcastPkts, func(p *port) uint64 { return p.txBroad }},
	},
	groupRFC2819: {
		{c2819EtherStatsOctets, func(p *port) uint64 { return p.rxBytes }},
		{c2819EtherStatsPkts, func(p *port) uint64 { return p.rxPackets }},
		{c2819EtherStatsBroadcastPkts, func(p *port) uint64 { return p.rxBroad }},
		{c2819EtherStatsMulticastPkts, func(p *port) uint64 { return p.rxMulti }},
		{c2819EtherStatsUndersizePkts, func(p *port) uint64 { return p.undersize }},
		{c2819EtherStatsOversizePkts, func(p *port) uint64 { return p.oversize }},
	},
	groupRFC3635: {
		{c3635Dot3statsFrameTooLongs, func(p *port) uint64 { return p.oversize }},
	},
	groupEthExtended: nil,
	groupPerTC:       nil,
	groupCongestion:  nil,
	groupPhysicalStat: {
		{physStatPhyReceivedBits, func(p *port) uint64 { return p.rxBytes * 8 }},
	},
}

// readPPCNT fills one group. Per-priority counters show all traffic on
// priority 0: there is no quality of service. Clearing is refused, as the
// counters are also the model's own.
func (d *Device) readPPCNT(b []byte) *refusal {
	group, prio := ppcntGrp.get(b), ppcntPrioTc.get(b)
	if ppcntClr.on(b) {
		return badParam(codeCapability, "counters can't be cleared")
	}
	c, p := ppcntCounterSet.in(b), &d.port
	clear(c)
	switch group {
	case groupPerPriority:
		if prio > 7 {
			return badParam(codeRange, "priority %d", prio)
		}
		if prio == 0 {
			prioRxOctets.set(c, p.rxBytes)
			prioRxFrames.set(c, p.rxPackets)
			prioTxOctets.set(c, p.txBytes)
			prioTxFrames.set(c, p.txPackets)
			prioRxDiscards.set(c, p.discards)
		}
		return nil
	case groupPhysical:
		physTimeSinceLastClear.set(c, d.uptime())
		physLinkDownEvents.set(c, p.linkDowns)
		return nil
	}
	rows, ok := portCounters[group]
	if !ok {
		return badParam(codeNumber, "counter group %#x", group)
	}
	for _, r := range rows {
		r.at.set(c, r.v(p))
	}
	if group == groupRFC2819 {
		for i, n := range p.sizes {
			at := c2819EtherStatsPkts64octets
			at.bit += 64 * uint32(i)
			at.set(c, n)
		}
	}
	if group == groupPhysicalStat {
		physStatTimeSinceLastClear.set(c, d.uptime())
	}
	return nil
}

// uptime is the time since reset in milliseconds.
func (d *Device) uptime() uint64 { return uint64(max(time.Since(d.started), 0).Milliseconds()) }

func (d *Device) readMPCNT(b []byte) *refusal {
	if mpcntGrp.get(b) != groupPCIe {
		return badParam(codeNumber, "counter group %#x", mpcntGrp.get(b))
	}
	c := mpcntCounterSet.in(b)
	clear(c)
	field{pcieLifeTimeCounterHigh.of, pcieLifeTimeCounterHigh.bit, 64}.set(c, d.uptime())
	return nil
}
