package model

// cmd_steer.go owns the commands of flow steering: tables, groups and roots, and the
// rules they obey. It does not own entries and counters (cmd_fte.go), nor how a packet
// walks through them (walk.go, which learns of every change from steerRev).
// Manual: chapter "Flow table".
//
// A table has a level and may lead only to tables of a higher one. A group
// owns a range of entries and one mask for them; ranges do not overlap.

import "slices"

// tableOf finds the table that a command names, by type and number. Other
// virtual ports have none.
func (d *Device) tableOf(in []byte) (*flowTable, *refusal) {
	if no := ownVport(in); no != nil {
		return nil, no
	}
	n := tableRefTableId.u32(in)
	t := d.tables.get(n)
	if t == nil || t.kind != tableRefTableType.u8(in) {
		return nil, noObject("flow table of this type", n)
	}
	return t, nil
}

// ownVport refuses flow tables of other virtual ports.
func ownVport(in []byte) *refusal {
	if inOtherVport.on(in) || inVportNumber.on(in) {
		return badParam(synTableVport, "flow tables of virtual port %d", inVportNumber.get(in))
	}
	return nil
}

func (d *Device) cmdCreateFlowTable(in, out []byte) *refusal {
	if no := ownVport(in); no != nil {
		return no
	}
	kind, c := createTableTableType.u8(in), createTableCtx.in(in)
	able := d.tableCap(kind)
	switch {
	case able == nil:
		return badParam(codeCapability, "flow tables of type %d", kind)
	case d.tables.full():
		return tooMany("flow_table", d.tables.live)
	case ftxLogSize.get(c) > ftpLogMaxFtSize.get(able):
		return badParam(codeRange, "2^%d entries", ftxLogSize.get(c))
	case ftxLevel.get(c) > ftpMaxFtLevel.get(able):
		return badParam(codeRange, "level %d", ftxLevel.get(c))
	case ftxReformatEn.on(c) || ftxDecapEn.on(c) || ftxSwOwner.on(c) || ftxTerminationTable.on(c) || ftxRtcValid.on(c):
		return badParam(codeCapability, "reformat, software ownership or termination")
	}
	next, no := d.missTable(c, kind, ftxLevel.u8(c))
	if no != nil {
		return no
	}
	t := d.tables.add(func(n uint32) *flowTable {
		return &flowTable{n: n, kind: kind, level: ftxLevel.u8(c), logSize: ftxLogSize.u8(c)}
	})
	t.miss(next)
	d.steerRev++
	outNumber.set(out, uint64(t.n))
	return nil
}

// missTable checks the miss action of a table of this type and level. The
// table it leads to is nil for the default action. identified_miss_table_mode
// is about changing it later: Linux names the next table at creation on every
// firmware.
func (d *Device) missTable(c []byte, kind, level uint8) (*flowTable, *refusal) {
	action := ftxTableMissAction.get(c)
	if action == missDefault {
		return nil, nil
	}
	next := d.tables.get(ftxTableMissId.u32(c))
	switch {
	case action != missForward:
		return nil, badParam(codeCapability, "miss action %d", action)
	case next == nil || next.kind != kind:
		return nil, noObject("flow table of this type", ftxTableMissId.u32(c))
	case next.level <= level:
		return nil, badParam(codeRange, "a miss leads from level %d to %d", level, next.level)
	}
	return next, nil
}

// miss sets the miss action; nil is the default.
func (t *flowTable) miss(next *flowTable) {
	t.missAction, t.missTable = missDefault, 0
	if next != nil {
		t.missAction, t.missTable = missForward, next.n
		next.refs++
	}
}

// unmiss gives up what the miss action leads to.
func (d *Device) unmiss(t *flowTable) {
	if t.missAction == missForward {
		if next := d.tables.get(t.missTable); next != nil {
			next.refs--
		}
	}
	t.missAction = missDefault
}

func (d *Device) cmdModifyFlowTable(in, _ []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	able, c := d.tableCap(t.kind), modifyTableCtx.in(in)
	sel := modifyTableModifyFieldSelect.get(in)
	if sel != modifyMissTable || !ftpFlowTableModify.on(able) || !ftpIdentifiedMissTableMode.on(able) {
		return badParam(codeCapability, "field select %#x", sel)
	}
	next, no := d.missTable(c, t.kind, t.level)
	if no != nil {
		return no
	}
	d.unmiss(t)
	t.miss(next)
	d.steerRev++
	return nil
}

func (d *Device) cmdQueryFlowTable(in, out []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	c := queryTableOutCtx.in(out)
	ftxTableMissAction.set(c, uint64(t.missAction))
	ftxTableMissId.set(c, uint64(t.missTable))
	ftxLevel.set(c, uint64(t.level))
	ftxLogSize.set(c, uint64(t.logSize))
	return nil
}

// cmdDestroyFlowTable forgets an empty table. A root that goes leaves none.
func (d *Device) cmdDestroyFlowTable(in, _ []byte) *refusal {
	t, no := d.tableOf(in)
	switch {
	case no != nil:
		return no
	case len(t.groups) > 0 || t.refs > 0:
		return badParam(synTableInUse, "flow table %#x has %d groups and %d references", t.n, len(t.groups), t.refs)
	}
	d.unmiss(t)
	switch t.n {
	case d.rootRX:
		d.rootRX = 0
	case d.rootTX:
		d.rootTX = 0
	}
	d.tables.remove(t.n)
	d.steerRev++
	return nil
}

// cmdSetFlowTableRoot chooses where packets start; operation modifier 1
// disconnects the present root.
func (d *Device) cmdSetFlowTableRoot(in, _ []byte) *refusal {
	kind := setRootTableType.u8(in)
	able := d.tableCap(kind)
	switch {
	case able == nil || !ftpModifyRoot.on(able):
		return badParam(codeCapability, "a root for type %d", kind)
	case setRootUnderlayQpn.on(in):
		return badParam(codeCapability, "IPoIB")
	case setRootTableEswitchOwnerVhcaIdValid.on(in) || setRootTableOfOtherVport.on(in):
		return badParam(codeFunction, "a table of another function")
	}
	if no := ownVport(in); no != nil {
		return no
	}
	root := uint32(0)
	if cmdOpMod.get(in) == 0 {
		t, no := d.tableOf(in)
		if no != nil {
			return no
		}
		root = t.n
	}
	if kind == tableNICRX {
		d.rootRX = root
	} else {
		d.rootTX = root
	}
	d.steerRev++
	return nil
}

// Groups.

func (d *Device) cmdCreateFlowGroup(in, out []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	start, end := createGroupStartFlowIndex.u32(in), createGroupEndFlowIndex.u32(in)
	switch {
	case d.groups.full():
		return tooMany("flow_group", d.groups.live)
	case createGroupGroupType.on(in) || createGroupMatchDefinerId.on(in) || createGroupSourceEswitchOwnerVhcaIdValid.on(in):
		return badParam(codeCapability, "group type, match definer or source function")
	case start > end || end >= 1<<t.logSize:
		return badParam(codeRange, "entries %d to %d in a table of 2^%d", start, end, t.logSize)
	}
	at := 0
	for i, g := range t.groups {
		if start <= g.end && end >= g.start {
			return badParam(codeMismatch, "entries %d to %d overlap group %#x", start, end, g.n)
		}
		if g.start < start {
			at = i + 1
		}
	}
	enable, mask := createGroupMatchCriteriaEnable.u8(in), createGroupMatchCriteria.in(in)
	if no := checkCriteria(enable, mask, d.tableCap(t.kind)); no != nil {
		return no
	}
	g := d.groups.add(func(n uint32) *flowGroup {
		return &flowGroup{n: n, table: t, start: start, end: end, enable: enable, mask: slices.Clone(mask), entries: map[uint32]*flowEntry{}}
	})
	t.groups = slices.Insert(t.groups, at, g)
	d.steerRev++
	outNumber.set(out, uint64(g.n))
	return nil
}

// matchSets lists the parts of fte_match_param with their enable bits and the
// syndromes that real cards give for them.
var matchSets = []struct {
	at        field
	bit       uint8
	known     []matchField
	emptySyn  uint32 // enabled, but the mask is zero
	strayBits uint32 // not enabled, but the mask is not zero
}{
	{matchOuterHeaders, matchOuter, headerFields("outer"), synGroupOuterEmpty, codeMismatch},
	{matchMiscParameters, matchMisc, miscFields, codeMismatch, codeMismatch},
	{matchInnerHeaders, matchInner, headerFields("inner"), codeMismatch, synGroupInnerOff},
	{matchMiscParameters2, 1 << 3, nil, codeMismatch, codeMismatch},
	{matchMiscParameters3, 1 << 4, nil, codeMismatch, codeMismatch},
	{matchMiscParameters4, 1 << 5, nil, codeMismatch, codeMismatch},
	{matchMiscParameters5, 1 << 6, nil, codeMismatch, codeMismatch},
}

// matchField is a header field and the capability to match it.
type matchField struct {
	at  field
	cap field // zero: always
}

// supported finds the capability bit with this name.
func supported(name string) field {
	for _, r := range matchCaps {
		if r.f.of == "flow_table_fields_supported."+name {
			return r.f
		}
	}
	return field{"flow_table_fields_supported." + name, 0, 0}
}

// headerFields lists the fields of outer or inner headers.
func headerFields(side string) []matchField {
	ttl := field{}
	if side == "outer" {
		ttl = supported("outer_ipv4_ttl")
	}
	s := func(name string) field { return supported(side + "_" + name) }
	return []matchField{
		{lyrSmac4716, s("smac")}, {lyrSmac150, s("smac")}, {lyrEthertype, s("ether_type")},
		{lyrDmac4716, s("dmac")}, {lyrDmac150, s("dmac")},
		{lyrFirstPrio, s("first_prio")}, {lyrFirstCfi, s("first_cfi")}, {lyrFirstVid, s("first_vid")},
		{lyrCvlanTag, s("first_vid")}, {lyrSvlanTag, s("first_vid")},
		{lyrIpProtocol, s("ip_protocol")}, {lyrIpDscp, s("ip_dscp")}, {lyrIpEcn, s("ip_ecn")},
		{lyrFrag, s("frag")}, {lyrIpVersion, s("ip_version")}, {lyrTtlHoplimit, ttl},
		{lyrTcpFlags, s("tcp_flags")}, {lyrTcpSport, s("tcp_sport")}, {lyrTcpDport, s("tcp_dport")},
		{lyrUdpSport, s("udp_sport")}, {lyrUdpDport, s("udp_dport")},
		{lyrSrc, s("sip")}, {lyrDst, s("dip")},
	}
}

// miscFields lists the fields of misc_parameters.
var miscFields = []matchField{
	{miscSourcePort, supported("source_eswitch_port")},
	{miscOuterSecondPrio, supported("outer_second_prio")}, {miscOuterSecondCfi, supported("outer_second_cfi")}, {miscOuterSecondVid, supported("outer_second_vid")},
	{miscInnerSecondPrio, supported("inner_second_prio")}, {miscInnerSecondCfi, supported("inner_second_cfi")}, {miscInnerSecondVid, supported("inner_second_vid")},
	{miscOuterSecondCvlanTag, supported("outer_second_vid")}, {miscOuterSecondSvlanTag, supported("outer_second_vid")},
	{miscInnerSecondCvlanTag, supported("inner_second_vid")}, {miscInnerSecondSvlanTag, supported("inner_second_vid")},
	{miscGreCPresent, supported("outer_gre_protocol")}, {miscGreKPresent, supported("outer_gre_protocol")}, {miscGreSPresent, supported("outer_gre_protocol")},
	{miscGreProtocol, supported("outer_gre_protocol")}, {miscGreKey, supported("outer_gre_key")}, {miscVxlanVni, supported("outer_vxlan_vni")},
	{miscGeneveVni, supported("outer_geneve_vni")}, {miscGeneveOam, supported("outer_geneve_oam")},
	{miscGeneveOptLen, supported("outer_geneve_opt_len")}, {miscGeneveProtocolType, supported("outer_geneve_protocol_type")},
	{miscOuterIpv6FlowLabel, field{}}, {miscInnerIpv6FlowLabel, field{}}, {miscOuterEspSpi, supported("outer_esp_spi")},
}

// checkCriteria checks that enable and mask agree and that the function can
// match what they name.
func checkCriteria(enable uint8, mask, able []byte) *refusal {
	for _, set := range matchSets {
		part := set.at.in(mask)
		on, empty := enable&set.bit != 0, allZero(part)
		switch {
		case on && empty:
			return badParam(set.emptySyn, "%s is enabled and its mask is zero", set.at.of)
		case !on && !empty:
			return badParam(set.strayBits, "%s is not enabled and its mask is not zero", set.at.of)
		}
		if no := checkMask(part, set.known, able); no != nil {
			return no
		}
	}
	if enable>>len(matchSets) != 0 {
		return badParam(codeReserved, "match criteria %#x", enable)
	}
	return nil
}

// checkMask checks every field that one set of a mask names.
func checkMask(part []byte, known []matchField, able []byte) *refusal {
	if allZero(part) {
		return nil
	}
	rest := slices.Clone(part)
	for _, m := range known {
		b := m.at.bytes(rest)
		if allZero(b) {
			continue
		}
		m.at.wipe(rest)
		if m.cap.of == "" {
			continue
		}
		if m.cap.width == 0 || !m.cap.on(ftpFtFieldSupport.in(able)) {
			return badParam(codeCapability, "%s can't be matched", m.at.of)
		}
		if !m.at.full(b) && !m.cap.on(ftpFtFieldBitmaskSupport.in(able)) {
			return badParam(codeCapability, "%s can only be matched whole", m.at.of)
		}
	}
	if !allZero(rest) {
		return badParam(codeCapability, "the mask names a field that can't be matched")
	}
	return nil
}

// bytes is the field's value, however wide.
func (f field) bytes(b []byte) []byte {
	if f.width > 64 {
		return f.in(b)
	}
	v := f.get(b)
	out := make([]byte, 8)
	putBE64(out, 0, v)
	return out
}

// full reports whether v, from bytes, has every bit of the field.
func (f field) full(v []byte) bool {
	if f.width > 64 {
		for _, x := range v {
			if x != 0xff {
				return false
			}
		}
		return true
	}
	return be64(v, 0) == 1<<f.width-1
}

// wipe zeroes the field, however wide.
func (f field) wipe(b []byte) {
	if f.width > 64 {
		clear(f.in(b))
		return
	}
	f.set(b, 0)
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// groupOf finds the group that a command names in a table.
func (d *Device) groupOf(t *flowTable, n uint32) (*flowGroup, *refusal) {
	g := d.groups.get(n)
	if g == nil || g.table != t {
		return nil, noObject("flow group of this table", n)
	}
	return g, nil
}

func (d *Device) cmdQueryFlowGroup(in, out []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	g, no := d.groupOf(t, groupRefGroupId.u32(in))
	if no != nil {
		return no
	}
	queryGroupOutStartFlowIndex.set(out, uint64(g.start))
	queryGroupOutEndFlowIndex.set(out, uint64(g.end))
	queryGroupOutMatchCriteriaEnable.set(out, uint64(g.enable))
	copy(queryGroupOutMatchCriteria.in(out), g.mask)
	return nil
}

func (d *Device) cmdDestroyFlowGroup(in, _ []byte) *refusal {
	t, no := d.tableOf(in)
	if no != nil {
		return no
	}
	g, no := d.groupOf(t, groupRefGroupId.u32(in))
	switch {
	case no != nil:
		return no
	case len(g.entries) > 0:
		return refuse(statBadResState, synGroupInUse, "flow group %#x has %d entries", g.n, len(g.entries))
	}
	if i := slices.Index(t.groups, g); i >= 0 {
		t.groups = slices.Delete(t.groups, i, i+1)
	}
	d.groups.remove(g.n)
	d.steerRev++
	return nil
}
