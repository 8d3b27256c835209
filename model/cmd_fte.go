package model

// cmd_fte.go owns the commands of flow table entries and flow counters: what
// an entry may say and lead to. Tables and groups are in cmd_steer.go.
// Manual: chapter "Flow table", sections "Flow context" and "Flow counter".

import (
	"bytes"
	"slices"
)

// actionsKnown are the actions that exist here; which of them a table may use
// is its capabilities' affair.
const actionsKnown = actionAllow | actionDrop | actionForward | actionCount |
	actionPopVLAN | actionPopVLAN2 | actionPushVLAN | actionPushVLAN2

// cmdSetFTE makes an entry or, with operation modifier 1, changes one.
func (d *Device) cmdSetFTE(in, _ []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	able, c := d.tableCap(t.kind), setFTECtx.in(in)
	g, no := d.groupOf(t, flowGroupId.u32(c))
	if no != nil {
		return no
	}
	index := setFTEFlowIndex.u32(in)
	old := g.entries[index]
	modify := cmdOpMod.get(in) == 1
	switch {
	case index < g.start || index > g.end:
		return refuse(statIndex, codeRange, "index %d in a group of %d to %d", index, g.start, g.end)
	case modify && !ftpFlowModifyEn.on(able):
		return badParam(codeCapability, "entries can't be modified")
	case modify && old == nil:
		return noObject("flow entry", index)
	case !modify && old != nil:
		return refuse(statBadResState, codeInUse, "entry %d exists", index)
	case !modify && d.flowEntries >= 1<<ftpLogMaxFlow.get(able):
		return tooMany("flow_entry", d.flowEntries)
	}
	e, no := d.readEntry(in, c, t, g, able)
	if no != nil {
		return no
	}
	e.index = index
	if modify {
		if no := merge(e, old, setFTEModifyEnableMask.get(in)); no != nil {
			return no
		}
		if no := d.checkActions(e, t, able); no != nil {
			return no
		}
		d.holdEntry(old, -1)
		d.flowEntries--
	}
	d.holdEntry(e, 1)
	g.entries[index] = e
	d.flowEntries++
	d.steerRev++
	return nil
}

// merge keeps of old what mask does not name.
func merge(e, old *flowEntry, mask uint64) *refusal {
	has := func(bit uint) bool { return mask>>bit&1 != 0 }
	if mask>>(fteModifyCounters+1) != 0 {
		return badParam(codeCapability, "modify mask %#x", mask)
	}
	e.value = old.value
	if !has(fteModifyAction) {
		e.action, e.vlan = old.action, old.vlan
	}
	if !has(fteModifyTag) {
		e.tag = old.tag
	}
	if !has(fteModifyDests) {
		e.dests = old.dests
	}
	if !has(fteModifyCounters) {
		e.counter = old.counter
	}
	return nil
}

// readEntry reads and checks a flow context.
func (d *Device) readEntry(in, c []byte, t *flowTable, g *flowGroup, able []byte) (*flowEntry, *refusal) {
	e := &flowEntry{
		value:  slices.Clone(flowMatchValue.in(c)),
		action: uint16(flowAction.get(c)),
		tag:    flowFlowTag.u32(c),
	}
	copy(e.vlan[0][:], flowPushVlan.in(c))
	copy(e.vlan[1][:], flowPushVlan2.in(c))
	if flowExtendedDestination.on(c) || flowFlowSource.on(c) || flowUplinkHairpinEn.on(c) || flowPacketReformatId.on(c) {
		return nil, badParam(codeCapability, "extended destinations, sources or packet reformat")
	}
	for i, v := range e.value {
		if i < len(g.mask) && v&^g.mask[i] != 0 {
			return nil, badParam(synFTEOutsideMask, "byte %d of the match value is %#x, its mask %#x", i, v, g.mask[i])
		}
	}
	if no := d.readDests(e, in, c, t, able); no != nil {
		return nil, no
	}
	if cmdOpMod.get(in) == 1 {
		return e, nil // checked when merged
	}
	return e, d.checkActions(e, t, able)
}

// checkActions checks that the actions exist, fit together, and have what they
// need.
func (d *Device) checkActions(e *flowEntry, t *flowTable, able []byte) *refusal {
	a := e.action
	verdicts := 0
	for _, v := range [...]uint16{actionAllow, actionDrop, actionForward} {
		if a&v != 0 {
			verdicts++
		}
	}
	switch {
	case a == 0:
		return badParam(synFTENoAction, "no action")
	case a&actionDrop != 0 && a&actionModifyHeader != 0:
		return badParam(synDropAndModify, "drop and modify header")
	case a&^actionsKnown != 0:
		return badParam(codeCapability, "action %#x", a)
	case verdicts > 1 || verdicts == 0 && t.kind == tableNICRX:
		return badParam(codeMismatch, "action %#x: allow, drop or forward", a)
	case a&actionForward != 0 && len(e.dests) == 0:
		return badParam(codeMismatch, "forward to no destination")
	case a&actionForward == 0 && len(e.dests) > 0:
		return badParam(codeMismatch, "destinations without forward")
	case a&actionCount != 0 && (!ftpFlowCounter.on(able) || e.counter == 0):
		return badParam(codeMismatch, "count without a counter")
	case a&actionCount == 0 && e.counter != 0:
		return badParam(codeMismatch, "a counter without count")
	}
	for _, v := range [...]struct {
		action uint16
		cap    field
	}{{actionPopVLAN, ftpPopVlan}, {actionPushVLAN, ftpPushVlan}, {actionPopVLAN2, ftpPopVlan2}, {actionPushVLAN2, ftpPushVlan2}} {
		if a&v.action != 0 && !v.cap.on(able) {
			return badParam(codeCapability, "action %#x", v.action)
		}
	}
	return nil
}

// destBytes is the size of a destination or counter in the list.
const destBytes = 8

// readDests reads destinations, then counters, from the end of the message.
func (d *Device) readDests(e *flowEntry, in, c []byte, t *flowTable, able []byte) *refusal {
	list := field{flowDestination.of, setFTECtx.bit + flowDestination.bit, 0}.in(in)
	dests, counters := flowDestinationListSize.get(c), flowFlowCounterListSize.get(c)
	switch {
	case dests > 1<<ftpLogMaxDestination.get(able):
		return badParam(codeRange, "%d destinations", dests)
	case counters > 1<<ftpLogMaxFlowCounter.get(able):
		return badParam(codeRange, "%d counters", counters)
	case uint64(len(list)) < (dests+counters)*destBytes:
		return refuse(statBadInLen, codeLength, "%d destinations and %d counters announced, %d bytes in the message", dests, counters, len(list))
	}
	for i := range int(dests) {
		dest, no := d.readDest(list[i*destBytes:][:destBytes], t, setFTEIgnoreFlowLevel.on(in) && ftpIgnoreFlowLevel.on(able))
		if no != nil {
			return no
		}
		e.dests = append(e.dests, dest)
	}
	if counters > 0 {
		n := counterListFlowCounterId.u32(list[dests*destBytes:])
		if d.fctrs.get(n) == nil {
			return noObject("flow counter", n)
		}
		e.counter = n
	}
	return nil
}

// readDest checks one destination of an entry in table t.
func (d *Device) readDest(b []byte, t *flowTable, anyLevel bool) (flowDest, *refusal) {
	dest := flowDest{kind: destDestinationType.u8(b), id: destDestinationId.u32(b)}
	if destDestinationEswitchOwnerVhcaIdValid.on(b) || destPacketReformat.on(b) {
		return dest, badParam(codeCapability, "a destination of another function")
	}
	switch dest.kind {
	case destTable:
		next := d.tables.get(dest.id)
		switch {
		case next == nil || next.kind != t.kind:
			return dest, noObject("flow table of this type", dest.id)
		case next.level <= t.level && !anyLevel:
			return dest, badParam(codeRange, "an entry leads from level %d to %d", t.level, next.level)
		}
		return dest, nil
	case destTIR:
		switch {
		case t.kind != tableNICRX:
			return dest, badParam(codeMismatch, "a TIR for packets that are sent")
		case d.tirs.get(dest.id) == nil:
			return dest, noObject("TIR", dest.id)
		}
		return dest, nil
	}
	return dest, badParam(codeCapability, "destination type %d", dest.kind)
}

// holdEntry counts what an entry leads to, up or down.
func (d *Device) holdEntry(e *flowEntry, by int) {
	for _, dest := range e.dests {
		switch dest.kind {
		case destTable:
			if t := d.tables.get(dest.id); t != nil {
				t.refs += by
			}
		case destTIR:
			if t := d.tirs.get(dest.id); t != nil {
				t.refs += by
			}
		}
	}
	if c := d.fctrs.get(e.counter); c != nil {
		c.refs += by
	}
}

// entryOf finds the entry at an index of a table.
func entryOf(t *flowTable, index uint32) (*flowGroup, *flowEntry, *refusal) {
	for _, g := range t.groups {
		if e := g.entries[index]; e != nil {
			return g, e, nil
		}
	}
	return nil, nil, noObject("flow entry", index)
}

func (d *Device) cmdQueryFTE(in, out []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	g, e, no := entryOf(t, setFTEFlowIndex.u32(in))
	if no != nil {
		return no
	}
	c := queryFTEOutCtx.in(out)
	flowGroupId.set(c, uint64(g.n))
	flowFlowTag.set(c, uint64(e.tag))
	flowAction.set(c, uint64(e.action))
	copy(flowPushVlan.in(c), e.vlan[0][:])
	copy(flowPushVlan2.in(c), e.vlan[1][:])
	copy(flowMatchValue.in(c), e.value)
	flowDestinationListSize.set(c, uint64(len(e.dests)))
	var list bytes.Buffer
	for _, dest := range e.dests {
		var b [destBytes]byte
		destDestinationType.set(b[:], uint64(dest.kind))
		destDestinationId.set(b[:], uint64(dest.id))
		list.Write(b[:])
	}
	if e.counter != 0 {
		flowFlowCounterListSize.set(c, 1)
		var b [destBytes]byte
		counterListFlowCounterId.set(b[:], uint64(e.counter))
		list.Write(b[:])
	}
	copy(field{flowDestination.of, queryFTEOutCtx.bit + flowDestination.bit, 0}.in(out), list.Bytes())
	return nil
}

func (d *Device) cmdDeleteFTE(in, _ []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	g, e, no := entryOf(t, setFTEFlowIndex.u32(in))
	if no != nil {
		return no
	}
	d.holdEntry(e, -1)
	delete(g.entries, e.index)
	d.flowEntries--
	d.steerRev++
	return nil
}

// Flow counters.

func (d *Device) cmdAllocFlowCounter(in, out []byte) *refusal {
	if allocCounterFlowCounterBulk.on(in) || allocCounterFlowCounterBulkLogSize.on(in) {
		return badParam(codeCapability, "counters in bulk")
	}
	c := d.fctrs.add(func(n uint32) *flowCounter { return &flowCounter{n: n} })
	if c == nil {
		return tooMany("flow_counter", d.fctrs.live)
	}
	allocCounterOutFlowCounterId.set(out, uint64(c.n))
	return nil
}

func (d *Device) cmdDeallocFlowCounter(in, _ []byte) *refusal {
	n := deallocCounterFlowCounterId.u32(in)
	c := d.fctrs.get(n)
	switch {
	case c == nil:
		return noObject("flow counter", n)
	case c.refs > 0:
		return inUse("flow counter", n, c.refs)
	}
	d.fctrs.remove(n)
	return nil
}

// cmdQueryFlowCounter reads one counter, or num_of_counters in a row; numbers
// in between that do not exist read as zero.
func (d *Device) cmdQueryFlowCounter(in, out []byte) *refusal {
	n, count := queryCounterFlowCounterId.u32(in), int(max(queryCounterNumOfCounters.get(in), 1))
	list := queryCounterOutFlowStatistics.in(out)
	const size = 16
	if d.fctrs.get(n) == nil {
		return noObject("flow counter", n)
	}
	if len(list) < count*size {
		return refuse(statBadOutLen, codeLength, "%d counters in %d bytes", count, len(list))
	}
	for i := range count {
		c := d.fctrs.get(n + uint32(i))
		if c == nil {
			continue
		}
		trafficPackets.set(list[i*size:], c.packets)
		trafficOctets.set(list[i*size:], c.bytes)
		if queryCounterClear.on(in) {
			c.packets, c.bytes = 0, 0
		}
	}
	return nil
}
