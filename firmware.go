package main

// firmware.go owns the meaning of firmware commands: one short function each,
// which fills the question, asks, and reads the answer. It keeps no state and
// decides nothing; sizes and choices come from params.go, order from nic.go.
// Manual: chapter Command Reference.

import "fmt"

// version is what -version prints and firmware is told.
const version = "0.1.0"

// firmware speaks to the device's firmware.
type firmware struct{ *commander }

// request starts a message of n bytes.
func request(op, mod uint16, n int) []byte {
	b := make([]byte, n)
	cmdOpcode.set(b, uint32(op))
	cmdOpMod.set(b, uint32(mod))
	return b
}

// simple runs a command that has nothing but an object number in and out.
func (fw firmware) simple(op, mod uint16, object uint32) (uint32, error) {
	in := request(op, mod, 16)
	cmdObject.set(in, object)
	out, err := fw.exec(in, 16)
	if err != nil {
		return 0, err
	}
	return cmdObject.get(out), nil
}

// create runs a command whose answer is the number of a new object.
func (fw firmware) create(in []byte) (uint32, error) {
	out, err := fw.exec(in, 16)
	if err != nil {
		return 0, err
	}
	return cmdObject.get(out), nil
}

// run is for commands whose answer is only that they worked.
func (fw firmware) run(in []byte) error {
	_, err := fw.exec(in, 16)
	return err
}

// destroy ends an object; op is its DESTROY or DEALLOC command.
func (fw firmware) destroy(op uint16, n uint32) error {
	_, err := fw.simple(op, 0, n)
	return err
}

// alloc makes one of the objects that need no parameters: op is ALLOC_UAR,
// ALLOC_PD, ALLOC_TRANSPORT_DOMAIN or ALLOC_Q_COUNTER.
func (fw firmware) alloc(op uint16) (uint32, error) {
	return fw.simple(op, 0, 0)
}

func (fw firmware) enableHCA() error  { return fw.run(request(opEnableHCA, 0, 16)) }
func (fw firmware) disableHCA() error { return fw.run(request(opDisableHCA, 0, 16)) }
func (fw firmware) initHCA() error    { return fw.run(request(opInitHCA, 0, 16)) }

// teardownHCA ends what initHCA began, gracefully (profile 0).
func (fw firmware) teardownHCA() error { return fw.run(request(opTeardownHCA, 0, 16)) }

// queryISSI returns the bit set of interface step sequence ids the device knows.
func (fw firmware) queryISSI() (uint32, error) {
	out, err := fw.exec(request(opQueryISSI, 0, 16), 112)
	if err != nil {
		return 0, err
	}
	return issiOutSupported.get(out), nil
}

func (fw firmware) setISSI(id uint32) error {
	in := request(opSetISSI, 0, 16)
	setISSIInIssi.set(in, id)
	return fw.run(in)
}

// queryPages returns how many pages firmware wants at this stage (queryPagesBoot
// or queryPagesInit) and for which function. The number is signed.
func (fw firmware) queryPages(stage uint16) (function uint32, pages int, err error) {
	out, err := fw.exec(request(opQueryPages, stage, 16), 16)
	if err != nil {
		return 0, 0, err
	}
	return queryPagesOutFunctionId.get(out), int(int32(queryPagesOutNumPages.get(out))), nil
}

// givePages lends pages of 4096 bytes, named by bus address, to firmware.
func (fw firmware) givePages(function uint32, pages []uint64) error {
	in := request(opManagePages, pagesGive, 16+8*len(pages))
	managePagesInFunctionId.set(in, function)
	managePagesInNum.set(in, uint32(len(pages)))
	for i, p := range pages {
		putBE64(in, managePagesInPas.off+8*i, p)
	}
	return fw.run(in)
}

// refusePages tells firmware that a request for pages cannot be met.
func (fw firmware) refusePages(function uint32) error {
	in := request(opManagePages, pagesCantGive, 16)
	managePagesInFunctionId.set(in, function)
	return fw.run(in)
}

// takePages asks firmware for up to n pages back and returns their addresses.
func (fw firmware) takePages(function uint32, n int) ([]uint64, error) {
	in := request(opManagePages, pagesTake, 16)
	managePagesInFunctionId.set(in, function)
	managePagesInNum.set(in, uint32(n))
	out, err := fw.exec(in, 16+8*n)
	if err != nil {
		return nil, err
	}
	got := int(managePagesOutNum.get(out))
	if got > n {
		return nil, fmt.Errorf("firmware returned %d pages where %d were asked for", got, n)
	}
	pages := make([]uint64, got)
	for i := range pages {
		pages[i] = be64(out, managePagesOutPas.off+8*i)
	}
	return pages, nil
}

// queryCaps reads one group of capabilities: 4096 bytes.
func (fw firmware) queryCaps(group, mode uint16) ([]byte, error) {
	out, err := fw.exec(request(opQueryHCACap, group<<1|mode, 16), 16+4096)
	if err != nil {
		return nil, err
	}
	return out[16:], nil
}

// setCaps asks for the general capabilities in caps.
func (fw firmware) setCaps(caps []byte) error {
	in := request(opSetHCACap, capGroupGeneral<<1, 16+4096)
	copy(in[16:], caps)
	return fw.run(in)
}

// setDriverVersion tells who we are; support tools show it.
func (fw firmware) setDriverVersion(text string) error {
	in := request(opSetDriverVersion, 0, 80)
	copy(driverVersionInText.in(in)[:driverVersionInText.n-1], text)
	return fw.run(in)
}

// queryAdapter returns the board's parameter set identification.
func (fw firmware) queryAdapter() (psid string, err error) {
	out, err := fw.exec(request(opQueryAdapter, 0, 16), 272)
	if err != nil {
		return "", err
	}
	return asciiText(adapterPsid.in(out[16:])), nil
}

// asciiText is b up to its first byte that is not printable ASCII.
func asciiText(b []byte) string {
	for i, c := range b {
		if c < 0x20 || c > 0x7e {
			return string(b[:i])
		}
	}
	return string(b)
}

// accessRegister reads (regRead) or writes (regWrite) a register; data is its
// layout, filled in with the question and returned with the answer.
func (fw firmware) accessRegister(mode uint16, id uint32, data []byte) ([]byte, error) {
	in := request(opAccessReg, mode, 16+len(data))
	accessInId.set(in, id)
	copy(in[accessInData.off:], data)
	out, err := fw.exec(in, 16+len(data))
	if err != nil {
		return nil, fmt.Errorf("register %#x: %w", id, err)
	}
	return out[accessOutData.off:], nil
}

// setPas writes a list of page addresses.
func setPas(b []byte, pas []uint64) {
	for i, p := range pas {
		putBE64(b, 8*i, p)
	}
}

// createEQ makes an event queue over pages (log page size of the driver's,
// 4096) with interrupt vector and the mask of event types that come to it.
func (fw firmware) createEQ(logSize uint8, uar uint32, vector int, mask uint64, pages []uint64) (uint32, error) {
	in := request(opCreateEQ, 0, createEQInPas.off+8*len(pages))
	ctx := createEQInCtx.in(in)
	eqcLogEqSize.set(ctx, uint32(logSize))
	eqcUarPage.set(ctx, uar)
	eqcIntr.set(ctx, uint32(vector))
	putBE64(createEQInEventBitmask.in(in), 0, mask)
	setPas(createEQInPas.in(in), pages)
	n, err := fw.create(in)
	return n & 0xff, err
}

// createMkey makes the key under which the device reaches all of our memory by
// bus address (physical access, 64-bit length).
func (fw firmware) createMkey(pd uint32) (uint32, error) {
	in := request(opCreateMkey, 0, createMkeyInMtt.off)
	ctx := createMkeyInCtx.in(in)
	mkcLw.set(ctx, 1)
	mkcLr.set(ctx, 1)
	mkcPd.set(ctx, pd)
	mkcLength64.set(ctx, 1)
	mkcQpn.set(ctx, indexMask24)
	n, err := fw.create(in)
	return n << 8, err
}

// createPageKey makes the key of an address space of n pages, from address 0 on,
// whose pages UMR work requests will name (MTT). It is free until the first does.
func (fw firmware) createPageKey(pd uint32, n int) (uint32, error) {
	in := request(opCreateMkey, 0, createMkeyInMtt.off)
	ctx := createMkeyInCtx.in(in)
	mkcFree.set(ctx, 1)
	mkcUmrEn.set(ctx, 1)
	mkcLw.set(ctx, 1)
	mkcLr.set(ctx, 1)
	mkcModeLo.set(ctx, mkeyMTT)
	mkcPd.set(ctx, pd)
	mkcQpn.set(ctx, indexMask24)
	mkcLength.set(ctx, uint64(n)*pageSize)
	mkcOctwords.set(ctx, uint32(n/2))
	mkcLogPageSize.set(ctx, logPage)
	key, err := fw.create(in)
	return key << 8, err
}

// moderation is how long a completion queue holds its event back: for so many
// microseconds or so many completions, whichever is over first; 0 is not at all.
type moderation struct{ usecs, frames uint16 }

// cqConfig is all that a completion queue is made from.
type cqConfig struct {
	logSize  uint8
	uar      uint32
	eqn      uint32
	record   uint64 // bus address of the doorbell record
	pages    []uint64
	moder    moderation
	fromCQE  bool // the period starts at the completion, not at the event
	compress bool
	mini     uint8 // what small CQEs carry (miniHash...)
}

func (fw firmware) createCQ(c cqConfig) (uint32, error) {
	in := request(opCreateCQ, 0, createCQInPas.off+8*len(c.pages))
	ctx := createCQInCtx.in(in)
	cqcLogSize.set(ctx, uint32(c.logSize))
	cqcUarPage.set(ctx, c.uar)
	cqcEqn.set(ctx, c.eqn)
	cqcDbrAddr.set(ctx, c.record)
	cqcPeriod.set(ctx, uint32(c.moder.usecs))
	cqcMaxCount.set(ctx, uint32(c.moder.frames))
	cqcPeriodMode.flag(ctx, c.fromCQE)
	cqcCompEn.flag(ctx, c.compress)
	cqcMiniFormat.set(ctx, uint32(c.mini))
	setPas(createCQInPas.in(in), c.pages)
	return fw.create(in)
}

// modifyCQ changes how a completion queue holds its event back.
func (fw firmware) modifyCQ(cqn uint32, m moderation) error {
	return fw.run(modifyModeration(cqn, m, cqModifyPeriod|cqModifyCount))
}

// modifyCQMode is modifyCQ and changes where the period starts.
func (fw firmware) modifyCQMode(cqn uint32, m moderation, fromCQE bool) error {
	in := modifyModeration(cqn, m, cqModifyPeriod|cqModifyCount|cqModifyPeriodMode)
	cqcPeriodMode.flag(modifyCQInCtx.in(in), fromCQE)
	return fw.run(in)
}

func modifyModeration(cqn uint32, m moderation, fields uint32) []byte {
	in := request(opModifyCQ, 0, createCQInPas.off)
	modifyCQInCqn.set(in, cqn)
	putBE32(modifyCQInSelect.in(in), 0, fields)
	ctx := modifyCQInCtx.in(in)
	cqcPeriod.set(ctx, uint32(m.usecs))
	cqcMaxCount.set(ctx, uint32(m.frames))
	return in
}

// workQueue is the part that send and receive queues share.
type workQueue struct {
	kind      uint32 // wq_type
	pd        uint32
	uar       uint32
	record    uint64
	logStride uint8    // of an entry, bytes
	logSize   uint8    // entries
	strides   [2]uint8 // of wqStriding: log2 of bytes a stride, and of strides a WQE
	pages     []uint64
}

func (w workQueue) fill(ctx []byte) {
	wqType.set(ctx, w.kind)
	wqPd.set(ctx, w.pd)
	wqUarPage.set(ctx, w.uar)
	wqDbrAddr.set(ctx, w.record)
	wqLogStride.set(ctx, uint32(w.logStride))
	wqLogSize.set(ctx, uint32(w.logSize))
	if w.kind == wqStriding {
		wqStrideSize.set(ctx, uint32(w.strides[0]-strideSizeBase))
		wqNumStrides.set(ctx, uint32(w.strides[1]-stridesBase)&0xf)
	}
	setPas(wqPas.in(ctx), w.pages)
}

// sqConfig is all that a send queue is made from.
type sqConfig struct {
	wq        workQueue
	cqn       uint32
	tis       uint32
	minInline uint8
	mpw       bool // multi-packet WQEs
	swp       bool // software parser offsets
	umr       bool // UMR work requests, and no frames
	tsFormat  uint8
}

func (fw firmware) createSQ(c sqConfig) (uint32, error) {
	in := request(opCreateSQ, 0, createSQInCtx.off+sqcWq.off+wqPas.off+8*len(c.wq.pages))
	ctx := in[createSQInCtx.off:]
	sqcFlush.set(ctx, 1)
	sqcMpw.flag(ctx, c.mpw)
	sqcMinInline.set(ctx, uint32(c.minInline))
	sqcAllowSwp.flag(ctx, c.swp)
	sqcTsFormat.set(ctx, uint32(c.tsFormat))
	sqcCqn.set(ctx, c.cqn)
	sqcRegUmr.flag(ctx, c.umr)
	if !c.umr {
		sqcTisCount.set(ctx, 1)
		sqcTis.set(ctx, c.tis)
	}
	c.wq.fill(ctx[sqcWq.off:])
	return fw.create(in)
}

// modifySQ moves a send queue from one state to another.
func (fw firmware) modifySQ(n, from, to uint32) error {
	in := request(opModifySQ, 0, modifySQInCtx.off+modifySQInCtx.n)
	modifySQInState.set(in, from)
	modifySQInSqn.set(in, n)
	sqcState.set(modifySQInCtx.in(in), to)
	return fw.run(in)
}

// querySQ returns the state a send queue is in.
func (fw firmware) querySQ(n uint32) (state uint32, err error) {
	in := request(opQuerySQ, 0, 16)
	cmdObject.set(in, n)
	out, err := fw.exec(in, querySQOutCtx.off+querySQOutCtx.n)
	if err != nil {
		return 0, err
	}
	return sqcState.get(querySQOutCtx.in(out)), nil
}

// rqConfig is all that a receive queue is made from.
type rqConfig struct {
	wq        workQueue
	cqn       uint32
	stripVLAN bool
	counters  uint32 // Q counter that counts its misses
	tsFormat  uint8
}

func (fw firmware) createRQ(c rqConfig) (uint32, error) {
	in := request(opCreateRQ, 0, createRQInCtx.off+rqcWq.off+wqPas.off+8*len(c.wq.pages))
	ctx := in[createRQInCtx.off:]
	rqcVsd.flag(ctx, !c.stripVLAN)
	rqcFlush.set(ctx, 1)
	rqcTsFormat.set(ctx, uint32(c.tsFormat))
	rqcCqn.set(ctx, c.cqn)
	rqcCounterSetId.set(ctx, c.counters)
	c.wq.fill(ctx[rqcWq.off:])
	return fw.create(in)
}

// modifyRQ moves a receive queue from one state to another.
func (fw firmware) modifyRQ(n, from, to uint32) error {
	in := request(opModifyRQ, 0, modifyRQInCtx.off+modifyRQInCtx.n)
	modifyRQInState.set(in, from)
	modifyRQInRqn.set(in, n)
	rqcState.set(modifyRQInCtx.in(in), to)
	return fw.run(in)
}

// queryRQ returns the state a receive queue is in.
func (fw firmware) queryRQ(n uint32) (state uint32, err error) {
	in := request(opQueryRQ, 0, 16)
	cmdObject.set(in, n)
	out, err := fw.exec(in, queryRQOutCtx.off+queryRQOutCtx.n)
	if err != nil {
		return 0, err
	}
	return rqcState.get(queryRQOutCtx.in(out)), nil
}

// createTIS makes a transport interface send object of priority 0.
func (fw firmware) createTIS(td uint32) (uint32, error) {
	in := request(opCreateTIS, 0, createTISInCtx.off+createTISInCtx.n)
	ctx := createTISInCtx.in(in)
	tiscTd.set(ctx, td)
	return fw.create(in)
}

// createRQT makes an indirection table of receive queue numbers.
func (fw firmware) createRQT(rqns []uint32) (uint32, error) {
	in := request(opCreateRQT, 0, createRQTInCtx.off+rqtcRqNum.off+4*len(rqns))
	ctx := in[createRQTInCtx.off:]
	rqtcMaxSize.set(ctx, uint32(len(rqns)))
	fillRQT(ctx, rqns)
	return fw.create(in)
}

// modifyRQT replaces an indirection table's entries, all at once.
func (fw firmware) modifyRQT(rqt uint32, rqns []uint32) error {
	in := request(opModifyRQT, 0, modifyRQTInCtx.off+rqtcRqNum.off+4*len(rqns))
	modifyRQTInRqtn.set(in, rqt)
	rqtMaskList.set(modifyRQTInMask.in(in), 1)
	fillRQT(in[modifyRQTInCtx.off:], rqns)
	return fw.run(in)
}

func fillRQT(ctx []byte, rqns []uint32) {
	rqtcActualSize.set(ctx, uint32(len(rqns)))
	for i, n := range rqns {
		putBE32(ctx, rqtcRqNum.off+4*i, n)
	}
}

// rssHash says what of a packet is hashed (rx_hash_field_select).
type rssHash struct {
	l3, l4 uint32
	fields uint32
}

// createTIR makes a transport interface receive object that spreads packets
// over an indirection table; see steering.go for what hash holds.
func (fw firmware) createTIR(td, rqt uint32, hash rssHash, key []byte) (uint32, error) {
	in := request(opCreateTIR, 0, createTIRInCtx.off+createTIRInCtx.n)
	ctx := createTIRInCtx.in(in)
	tircDispType.set(ctx, tirIndirect)
	tircIndirectTable.set(ctx, rqt)
	tircTd.set(ctx, td)
	tircHashFn.set(ctx, hashToeplitz)
	copy(tircKey.in(ctx), key)
	sel := tircOuter.in(ctx)
	rxHashL3.set(sel, hash.l3)
	rxHashL4.set(sel, hash.l4)
	rxHashFields.set(sel, hash.fields)
	return fw.create(in)
}

// createFlowTable makes a NIC receive table of 2^logSize entries. What matches
// nothing goes on in table miss, or is dropped when that is 0.
func (fw firmware) createFlowTable(level, logSize uint8, miss uint32) (uint32, error) {
	in := request(opCreateFlowTable, 0, createTableInCtx.off+createTableInCtx.n)
	createTableInType.set(in, tableNICReceive)
	ctx := createTableInCtx.in(in)
	tableCtxLevel.set(ctx, uint32(level))
	tableCtxLogSize.set(ctx, uint32(logSize))
	if miss != 0 {
		tableCtxMissAction.set(ctx, missToTable)
		tableCtxMissId.set(ctx, miss)
	}
	return fw.create(in)
}

func (fw firmware) destroyFlowTable(table uint32) error {
	in := request(opDestroyFlowTable, 0, 64)
	destroyTableInType.set(in, tableNICReceive)
	destroyTableInTable.set(in, table)
	return fw.run(in)
}

// setFlowTableRoot makes table the first that a received packet meets.
func (fw firmware) setFlowTableRoot(table uint32) error {
	in := request(opSetFlowTableRoot, 0, 64)
	setRootInType.set(in, tableNICReceive)
	setRootInTable.set(in, table)
	return fw.run(in)
}

// createFlowGroup reserves entries first..last of table for rules that match
// exactly the bits in mask: the first one or two sets of fte_match_param, outer
// headers and what else there is.
func (fw firmware) createFlowGroup(table, first, last uint32, mask []byte) (uint32, error) {
	in := request(opCreateFlowGroup, 0, 1024)
	createGroupInType.set(in, tableNICReceive)
	createGroupInTable.set(in, table)
	createGroupInStart.set(in, first)
	createGroupInEnd.set(in, last)
	createGroupInEnable.set(in, setsOf(mask))
	copy(createGroupInCriteria.in(in), mask)
	return fw.create(in)
}

// setsOf is match_criteria_enable for a mask: the sets that are not all zero.
func setsOf(mask []byte) (sets uint32) {
	for i, b := range mask {
		if b != 0 {
			sets |= enableOuter << (i / matchOuter.n)
		}
	}
	return sets
}

func (fw firmware) destroyFlowGroup(table, group uint32) error {
	in := request(opDestroyFlowGroup, 0, 64)
	destroyGroupInType.set(in, tableNICReceive)
	destroyGroupInTable.set(in, table)
	destroyGroupInGroup.set(in, group)
	return fw.run(in)
}

// flowEntry starts the command that writes the rule at index, for what equals
// value where the group's mask looks. ctx is its flow context, without an action.
func flowEntry(table, group, index uint32, value []byte) (in, ctx []byte) {
	in = request(opSetFlowTableEntry, 0, setFTEInCtx.off+flowCtxDest.off+16)
	setFTEInType.set(in, tableNICReceive)
	setFTEInTable.set(in, table)
	setFTEInIndex.set(in, index)
	ctx = in[setFTEInCtx.off:]
	flowCtxGroup.set(ctx, group)
	copy(flowCtxValue.in(ctx), value)
	return in, ctx
}

// setFlowEntry writes the rule at index: what equals value goes to the destination
// (destTIR or destTable).
func (fw firmware) setFlowEntry(table, group, index uint32, value []byte, destType, dest uint32) error {
	in, ctx := flowEntry(table, group, index, value)
	flowCtxAction.set(ctx, actionForward)
	flowCtxDests.set(ctx, 1)
	d := flowCtxDest.in(ctx)
	dstType.set(d, destType)
	dstId.set(d, dest)
	return fw.run(in)
}

// setDropEntry writes the rule at index: what equals value is dropped and counted
// in a flow counter.
func (fw firmware) setDropEntry(table, group, index uint32, value []byte, counter uint32) error {
	in, ctx := flowEntry(table, group, index, value)
	flowCtxAction.set(ctx, actionDrop|actionCount)
	flowCtxCounters.set(ctx, 1)
	counterListId.set(flowCtxDest.in(ctx), counter) // behind the destinations, of which there are none
	return fw.run(in)
}

// allocFlowCounter makes a counter that flow entries may count in.
func (fw firmware) allocFlowCounter() (uint32, error) {
	out, err := fw.exec(request(opAllocFlowCounter, 0, 16), 16)
	if err != nil {
		return 0, err
	}
	return allocCounterOutId.get(out), nil
}

func (fw firmware) deallocFlowCounter(counter uint32) error {
	in := request(opDeallocFlowCounter, 0, 16)
	deallocCounterInId.set(in, counter)
	return fw.run(in)
}

// queryFlowCounter reads the packets that flow entries counted.
func (fw firmware) queryFlowCounter(counter uint32) (packets uint64, err error) {
	in := request(opQueryFlowCounter, 0, 32)
	queryCounterInId.set(in, counter)
	out, err := fw.exec(in, queryCounterOutStats.off+trafficCounterSize)
	if err != nil {
		return 0, err
	}
	return trafficPackets.get(queryCounterOutStats.in(out)), nil
}

func (fw firmware) deleteFlowEntry(table, index uint32) error {
	in := request(opDeleteFlowTableEntry, 0, 64)
	deleteFTEInType.set(in, tableNICReceive)
	deleteFTEInTable.set(in, table)
	deleteFTEInIndex.set(in, index)
	return fw.run(in)
}

// queryVport reads our own NIC vport context.
func (fw firmware) queryVport() ([]byte, error) {
	out, err := fw.exec(request(opQueryNicVportContext, vportOwn, 16), vportCtxOutCtx.off+vportCtxOutCtx.n)
	if err != nil {
		return nil, err
	}
	return vportCtxOutCtx.in(out), nil
}

// modifyVport writes the parts of the NIC vport context that what names.
func (fw firmware) modifyVport(what field, fill func(ctx []byte)) error {
	in := request(opModifyNicVportContext, vportOwn, modVportInCtx.off+vportCurrent.off)
	what.set(in[modVportInSelect.off:], 1)
	fill(in[modVportInCtx.off:])
	return fw.run(in)
}

// setVportList replaces the vport's list of addresses (vportListUC or MC).
func (fw firmware) setVportList(list uint32, macs [][6]byte) error {
	in := request(opModifyNicVportContext, vportOwn, modVportInCtx.off+vportCurrent.off+8*len(macs))
	vportSelectList.set(in[modVportInSelect.off:], 1)
	ctx := in[modVportInCtx.off:]
	vportList.set(ctx, list)
	vportListSize.set(ctx, uint32(len(macs)))
	for i, m := range macs {
		copy(ctx[vportCurrent.off+8*i+2:], m[:])
	}
	return fw.run(in)
}

// vportUp reports whether our vport has a link.
func (fw firmware) vportUp() (bool, error) {
	out, err := fw.exec(request(opQueryVportState, vportOwn, 16), 16)
	if err != nil {
		return false, err
	}
	return vportStateOutState.get(out) == portUp, nil
}

// queryVportCounters reads the traffic counters of our vport.
func (fw firmware) queryVportCounters() ([]byte, error) {
	return fw.exec(request(opQueryVportCounter, vportOwn, 32), vportCounterOutSize)
}

// queryMissed reads the packets that found no receive buffer: 32 bits, wrapping.
func (fw firmware) queryMissed(counter uint32) (uint32, error) {
	in := request(opQueryQCounter, 0, 32)
	qCounterInSet.set(in, counter)
	out, err := fw.exec(in, qCounterOutSize)
	if err != nil {
		return 0, err
	}
	return qCounterOutOutOfBuffer.get(out), nil
}

// queryVnicEnv reads the vport's diagnostic counters.
func (fw firmware) queryVnicEnv() ([]byte, error) {
	out, err := fw.exec(request(opQueryVnicEnv, vportOwn, 16), vnicEnvOutEnv.off+vnicEnvOutEnv.n)
	if err != nil {
		return nil, err
	}
	return vnicEnvOutEnv.in(out), nil
}

// queryPortCounters reads one group of physical port counters: 248 bytes.
func (fw firmware) queryPortCounters(group uint32) ([]byte, error) {
	reg := make([]byte, ppcntSet.off+ppcntSet.n)
	ppcntPort.set(reg, 1)
	ppcntGroup.set(reg, group)
	out, err := fw.accessRegister(regRead, regPPCNT, reg)
	if err != nil {
		return nil, err
	}
	return ppcntSet.in(out), nil
}

// queryPMTU returns the largest and the current MTU of the port. Both count
// the Ethernet header, one VLAN tag and the FCS (hardMTU).
func (fw firmware) queryPMTU() (largest, current int, err error) {
	reg := make([]byte, 16)
	pmtuPort.set(reg, 1)
	out, err := fw.accessRegister(regRead, regPMTU, reg)
	if err != nil {
		return 0, 0, err
	}
	return int(pmtuMax.get(out)), int(pmtuOper.get(out)), nil
}

// setPMTU sets the port's MTU, counted as in queryPMTU.
func (fw firmware) setPMTU(mtu int) error {
	reg := make([]byte, 16)
	pmtuPort.set(reg, 1)
	pmtuAdmin.set(reg, uint32(mtu))
	_, err := fw.accessRegister(regWrite, regPMTU, reg)
	return err
}

// setPortAdmin brings the port up (portUp) or down (portDown).
func (fw firmware) setPortAdmin(status uint32) error {
	reg := make([]byte, 16)
	paosPort.set(reg, 1)
	paosAdmin.set(reg, status)
	paosAse.set(reg, 1)
	_, err := fw.accessRegister(regWrite, regPAOS, reg)
	return err
}

// queryLinkModes returns the port's link modes, as bit sets of PTYS: what the
// old table names and what the extended one does.
func (fw firmware) queryLinkModes() (oper, extOper uint32, err error) {
	reg := make([]byte, 64)
	ptysPort.set(reg, 1)
	ptysProtoMask.set(reg, protoEthernet)
	out, err := fw.accessRegister(regRead, regPTYS, reg)
	if err != nil {
		return 0, 0, err
	}
	return ptysOper.get(out), ptysExtOper.get(out), nil
}
