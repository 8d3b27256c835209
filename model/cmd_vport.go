package model

// cmd_vport.go owns the function's side of the port: virtual port state,
// context and counters, the table that says which unicast addresses are ours,
// and the UDP ports that carry VXLAN. The physical side is in registers.go; what
// is filtered is in receive.go. Manual: chapter "NIC virtual port".

import "slices"

// l2Entry is one row of the table of unicast addresses.
type l2Entry struct {
	mac     [6]byte
	hasVLAN bool
	vlan    uint16
}

// resetVport puts the virtual port into its power-on state.
func (d *Device) resetVport() {
	old := d.vport
	d.vport = vport{
		mac:        d.cfg.MAC,
		permanent:  d.cfg.MAC,
		mtu:        d.prof.maxMTU,
		adminState: adminUp,
		minInline:  d.prof.minInline,
		rxUni:      old.rxUni, rxMulti: old.rxMulti, rxBroad: old.rxBroad,
		txUni: old.txUni, txMulti: old.txMulti, txBroad: old.txBroad,
		steerMiss: old.steerMiss, filtered: old.filtered, ruleDrops: old.ruleDrops,
	}
}

// thisVport refuses commands about other virtual ports: there are none.
func thisVport(in []byte) *refusal {
	if inOtherVport.on(in) && inVportNumber.on(in) {
		return badParam(codeFunction, "virtual port %d", inVportNumber.get(in))
	}
	return nil
}

func (d *Device) cmdQueryVportState(in, out []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	if d.prof.vf && cmdOpMod.get(in) != 0 {
		return badParam(codeFunction, "state of the uplink or the switch port")
	}
	up := d.port.operUp && d.vport.adminState != adminDown
	vportStateOutState.flag(out, up)
	vportStateOutAdminState.set(out, uint64(d.vport.adminState))
	return nil
}

func (d *Device) cmdModifyVportState(in, _ []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	state := vportStateInAdminState.u8(in)
	if state > adminAuto {
		return badParam(codeRange, "admin state %d", state)
	}
	d.vport.adminState = state
	return nil
}

// vportList is one of the address lists of the virtual port.
type vportList struct {
	n     int
	limit field
	put   func(b []byte, i int)
}

// listOf gives access to a list for a query.
func (d *Device) listOf(kind uint64) (vportList, bool) {
	v := &d.vport
	macs := func(list [][6]byte) func([]byte, int) {
		return func(b []byte, i int) { copy(b[2:8], list[i][:]) }
	}
	switch kind {
	case listUC:
		return vportList{len(v.uc), capLogMaxCurrentUcList, macs(v.uc)}, true
	case listMC:
		return vportList{len(v.mc), capLogMaxCurrentMcList, macs(v.mc)}, true
	case listVLAN:
		return vportList{len(v.vlans), capLogMaxVlanList, func(b []byte, i int) { vlanEntryVlan.set(b, uint64(v.vlans[i])) }}, true
	}
	return vportList{}, false
}

func (d *Device) cmdQueryNICVport(in, out []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	kind := queryVportAllowedListType.get(in)
	list, ok := d.listOf(kind)
	if !ok {
		return badParam(codeRange, "list type %d", kind)
	}
	v, c := &d.vport, queryVportOutNicVportContext.in(out)
	if d.ethVal(ethWqeInlineMode) == inlineFromVport {
		nvcMinWqeInlineMode.set(c, uint64(v.minInline))
	}
	nvcDisableUcLocalLb.flag(c, v.localLBOff)
	nvcDisableMcLocalLb.flag(c, v.localLBOff)
	nvcMtu.set(c, uint64(v.mtu))
	nvcSystemImageGuid.set(c, guid(d.cfg.MAC))
	nvcPortGuid.set(c, guid(d.cfg.MAC))
	nvcNodeGuid.set(c, guid(d.cfg.MAC))
	nvcPromiscUc.flag(c, v.promiscUC)
	nvcPromiscMc.flag(c, v.promiscMC)
	nvcPromiscAll.flag(c, v.promiscAll)
	nvcArmChangeEvent.flag(c, v.watch != 0)
	copy(nvcPermanentAddress.in(c)[2:], v.permanent)
	rows := field{nvcCurrentUcMacAddress.of, queryVportOutNicVportContext.bit + nvcCurrentUcMacAddress.bit, 0}.in(out)
	n := min(list.n, len(rows)/8)
	nvcAllowedListType.set(c, kind)
	nvcAllowedListSize.set(c, uint64(n))
	for i := range n {
		list.put(rows[i*8:][:8], i)
	}
	return nil
}

// What a host may be told of when it changes, as bits of vport.watch.
const (
	watchUC = 1 << iota
	watchMC
	watchVLAN
	watchPromisc
	watchMTU
)

// cmdModifyNICVport changes what field_select names, all or nothing.
func (d *Device) cmdModifyNICVport(in, _ []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	sel, c := modifyVportFieldSelect.in(in), modifyVportNicVportContext.in(in)
	if no := d.checkVport(sel, c); no != nil {
		return no
	}
	v := &d.vport
	changed := uint8(0)
	if vportSelectAddressesList.on(sel) {
		bit, no := d.setList(in, c)
		if no != nil {
			return no
		}
		changed |= bit
	}
	if vportSelectMtu.on(sel) {
		v.mtu = uint16(nvcMtu.get(c))
		changed |= watchMTU
	}
	if vportSelectPromisc.on(sel) {
		v.promiscUC, v.promiscMC, v.promiscAll = nvcPromiscUc.on(c), nvcPromiscMc.on(c), nvcPromiscAll.on(c)
		changed |= watchPromisc
	}
	if vportSelectPermanentAddress.on(sel) {
		v.mac = slices.Clone(nvcPermanentAddress.in(c)[2:8])
	}
	if vportSelectMinInline.on(sel) {
		v.minInline = nvcMinWqeInlineMode.u8(c)
	}
	if vportSelectDisableUcLocalLb.on(sel) || vportSelectDisableMcLocalLb.on(sel) {
		v.localLBOff = nvcDisableUcLocalLb.on(c) || nvcDisableMcLocalLb.on(c)
	}
	d.tellVport(changed)
	if vportSelectChangeEvent.on(sel) {
		v.watch = readWatch(c)
	}
	return nil
}

// checkVport checks all that needs no list.
func (d *Device) checkVport(sel, c []byte) *refusal {
	switch {
	case vportSelectRoceEn.on(sel) && nvcRoceEn.on(c):
		return badParam(synRoCEOff, "RoCE")
	case vportSelectAffiliation.on(sel) || vportSelectNodeGuid.on(sel) || vportSelectPortGuid.on(sel):
		return badParam(codeCapability, "affiliation and identifiers can't be changed")
	case vportSelectDisableUcLocalLb.on(sel) && !d.gen(capDisableLocalLbUc), vportSelectDisableMcLocalLb.on(sel) && !d.gen(capDisableLocalLbMc):
		return badParam(codeCapability, "local loopback can't be changed")
	case vportSelectMinInline.on(sel) && d.ethVal(ethWqeInlineMode) != inlineFromVport:
		return badParam(codeCapability, "the inline mode can't be changed")
	case vportSelectMtu.on(sel) && nvcMtu.get(c) > uint64(d.port.maxMTU):
		return badParam(codeRange, "MTU %d, %d is the most", nvcMtu.get(c), d.port.maxMTU)
	case vportSelectChangeEvent.on(sel) && !d.gen(capNicVportChangeEvent):
		return badParam(codeCapability, "change events")
	case vportSelectPermanentAddress.on(sel) && len(nvcPermanentAddress.in(c)) < 8:
		return refuse(statBadInLen, codeLength, "the address is missing")
	}
	return nil
}

// setList replaces one address list and returns its watch bit.
func (d *Device) setList(in, c []byte) (uint8, *refusal) {
	kind, n := nvcAllowedListType.get(c), int(nvcAllowedListSize.get(c))
	list, ok := d.listOf(kind)
	rows := field{nvcCurrentUcMacAddress.of, modifyVportNicVportContext.bit + nvcCurrentUcMacAddress.bit, 0}.in(in)
	switch {
	case !ok:
		return 0, badParam(codeRange, "list type %d", kind)
	case n > 1<<d.genVal(list.limit):
		return 0, badParam(codeRange, "%d entries in list %d", n, kind)
	case len(rows) < 8*n:
		return 0, refuse(statBadInLen, codeLength, "%d entries announced, %d bytes in the message", n, len(rows))
	}
	macs := make([][6]byte, n)
	vlans := make([]uint16, n)
	for i := range n {
		macs[i] = [6]byte(rows[8*i+2 : 8*i+8])
		vlans[i] = uint16(vlanEntryVlan.get(rows[8*i:]))
	}
	switch kind {
	case listUC:
		d.vport.uc = macs
		return watchUC, nil
	case listMC:
		d.vport.mc = macs
		return watchMC, nil
	}
	d.vport.vlans = vlans
	return watchVLAN, nil
}

// readWatch reads which changes raise an event; none unless armed.
func readWatch(c []byte) uint8 {
	if !nvcArmChangeEvent.on(c) {
		return 0
	}
	bits := uint8(0)
	for _, w := range []struct {
		at  field
		bit uint8
	}{
		{nvcEventOnUcAddressChange, watchUC}, {nvcEventOnMcAddressChange, watchMC}, {nvcEventOnVlanChange, watchVLAN},
		{nvcEventOnPromiscChange, watchPromisc}, {nvcEventOnMtu, watchMTU},
	} {
		if w.at.on(c) {
			bits |= w.bit
		}
	}
	return bits
}

// tellVport raises the one event that was armed for any of the changes.
func (d *Device) tellVport(changed uint8) {
	if changed&d.vport.watch == 0 {
		return
	}
	d.vport.watch = 0
	var data [28]byte
	d.event(eventVportChange, 0, data[:]) // virtual port 0
}

func (d *Device) cmdQueryVportCounter(in, out []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	if !d.gen(capVportCounters) {
		return badParam(codeCapability, "virtual port counters")
	}
	v := &d.vport
	for _, row := range []struct {
		at field
		v  *counterPair
	}{
		{vportCounterOutReceivedEthUnicast, &v.rxUni}, {vportCounterOutReceivedEthMulticast, &v.rxMulti}, {vportCounterOutReceivedEthBroadcast, &v.rxBroad},
		{vportCounterOutTransmittedEthUnicast, &v.txUni}, {vportCounterOutTransmittedEthMulticast, &v.txMulti}, {vportCounterOutTransmittedEthBroadcast, &v.txBroad},
	} {
		b := row.at.in(out)
		trafficPackets.set(b, row.v.packets)
		trafficOctets.set(b, row.v.bytes)
		if vportCounterInClear.on(in) {
			*row.v = counterPair{}
		}
	}
	return nil
}

// cmdQueryVnicEnv reports what went wrong in the function, as far as the
// capabilities name it.
func (d *Device) cmdQueryVnicEnv(in, out []byte) *refusal {
	if no := thisVport(in); no != nil {
		return no
	}
	c := vnicEnvOutVportEnv.in(out)
	broken, commands, others := 0, 0, 0
	d.sqs.each(func(q *sq) { broken += b2i(q.state == sqERR) })
	d.rqs.each(func(q *rq) { broken += b2i(q.state == rqERR) })
	d.eqs.each(func(e *eq) {
		if e.failed && e.mask != 0 {
			commands++
		} else if e.failed {
			others++
		}
	})
	overruns := 0
	d.cqs.each(func(q *cq) { overruns += b2i(q.failed) })
	for _, row := range []struct {
		able, at field
		v        uint64
	}{
		{capNicReceiveSteeringDiscard, envNicReceiveSteeringDiscard, d.vport.steerMiss},
		{capTransmitDiscardVportDown, envTransmitDiscardVportDown, d.port.txDropped},
		{capEqOverrunCount, envAsyncEqOverrun, uint64(commands)},
		{capEqOverrunCount, envCompEqOverrun, uint64(others)},
		{capInvalidCommandCount, envInvalidCommand, d.stats.CommandFails},
		{capVnicEnvCqOverrun, envCqOverrun, uint64(overruns)},
	} {
		if d.gen(row.able) {
			row.at.set(c, row.v)
		}
	}
	envTotalErrorQueues.set(c, uint64(broken))
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// cmdSetL2Entry says that a unicast address belongs to this function.
func (d *Device) cmdSetL2Entry(in, _ []byte) *refusal {
	n := l2TableIndex.u32(in)
	switch {
	case !d.gen(capEswitchManager):
		return refuse(statBadOp, codeCapability, "this function does not manage the switch")
	case n >= 1<<d.genVal(capLogMaxL2Table):
		return refuse(statIndex, codeRange, "index %d", n)
	case l2SilentModeValid.on(in):
		return badParam(codeCapability, "silent mode")
	}
	e := l2Entry{mac: [6]byte(l2MacAddress.in(in)[2:8]), hasVLAN: l2VlanValid.on(in), vlan: uint16(l2Vlan.get(in))}
	d.dropL2(n)
	d.hca.l2[n] = e
	d.hca.l2ByMAC[e.mac]++
	return nil
}

// dropL2 forgets a row and reports whether there was one.
func (d *Device) dropL2(n uint32) bool {
	e, ok := d.hca.l2[n]
	if !ok {
		return false
	}
	delete(d.hca.l2, n)
	if d.hca.l2ByMAC[e.mac]--; d.hca.l2ByMAC[e.mac] == 0 {
		delete(d.hca.l2ByMAC, e.mac)
	}
	return true
}

func (d *Device) cmdQueryL2Entry(in, out []byte) *refusal {
	e, ok := d.hca.l2[l2TableIndex.u32(in)]
	if !ok {
		return noObject("L2 table entry", l2TableIndex.u32(in))
	}
	copy(l2OutMacAddress.in(out)[2:], e.mac[:])
	l2OutVlanValid.flag(out, e.hasVLAN)
	l2OutVlan.set(out, uint64(e.vlan))
	return nil
}

func (d *Device) cmdDeleteL2Entry(in, _ []byte) *refusal {
	if n := l2TableIndex.u32(in); !d.dropL2(n) {
		return noObject("L2 table entry", n)
	}
	return nil
}

func (d *Device) cmdAddVXLANPort(in, _ []byte) *refusal {
	port := uint16(vxlanVxlanUdpPort.get(in))
	most := max(int(d.ethVal(ethMaxVxlanUdpPorts)), 1)
	switch {
	case !d.eth(ethTunnelStatelessVxlan):
		return badParam(codeCapability, "VXLAN")
	case port == 0 || slices.Contains(d.hca.vxlan, port):
		return badParam(codeInUse, "UDP port %d", port)
	case len(d.hca.vxlan) >= most:
		return refuse(statLimit, codeLimit, "all %d VXLAN ports are taken", most)
	}
	d.hca.vxlan = append(slices.Clone(d.hca.vxlan), port)
	return nil
}

func (d *Device) cmdDeleteVXLANPort(in, _ []byte) *refusal {
	port := uint16(vxlanVxlanUdpPort.get(in))
	i := slices.Index(d.hca.vxlan, port)
	if i < 0 {
		return noObject("VXLAN port", uint32(port))
	}
	d.hca.vxlan = slices.Delete(slices.Clone(d.hca.vxlan), i, i+1)
	return nil
}
