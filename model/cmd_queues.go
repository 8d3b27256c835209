package model

// cmd_queues.go owns the commands of event, completion and send queues: their
// limits, states and references. It does not own those of receive queues and memory
// pools (cmd_receive.go), those of TIR, TIS and RQT (cmd_transport.go), nor how queues
// work (queue.go, send.go). Manual: chapters "Event queue", "Completion queue",
// "Send queue".

// ringShape is a queue buffer as a context describes it.
type ringShape struct {
	logSize   uint8
	logStride uint8
	logPage   uint8  // log2 of the page size in bytes
	offset    uint64 // in units of 1/64 page
	pas       []byte // page addresses
}

// build checks a shape and makes the ring. Pages are aligned to their size.
func (s ringShape) build() (ring, *refusal) {
	r := ring{logSize: s.logSize, stride: s.logStride, logPage: s.logPage}
	page := uint64(1) << s.logPage
	r.offset = s.offset * page / 64
	bytes := r.offset + uint64(1)<<s.logSize<<s.logStride
	n := (bytes + page - 1) / page
	switch {
	case s.logPage > 31:
		return r, badParam(codeRange, "buffer pages of 2^%d bytes", s.logPage)
	case r.offset%(1<<s.logStride) != 0:
		return r, badParam(synPageOffset, "buffer starts %d bytes into its page", r.offset)
	case n > uint64(len(s.pas)/8):
		return r, refuse(statBadInLen, codeLength, "%d page addresses for a buffer of %d pages", len(s.pas)/8, n)
	}
	r.pas = make([]uint64, n)
	for i := range r.pas {
		r.pas[i] = be64(s.pas, 8*i)
		if r.pas[i]%page != 0 || r.pas[i] == 0 {
			return r, badParam(codeAlign, "page %d of the buffer is %#x, pages have 2^%d bytes", i, r.pas[i], s.logPage)
		}
	}
	return r, nil
}

// uarRef finds the UAR page that a queue names.
func (d *Device) uarRef(n uint32) (*uar, *refusal) {
	if u := d.uars.get(n); u != nil {
		return u, nil
	}
	return nil, noObject("UAR", n)
}

// Event queues.

func (d *Device) cmdCreateEQ(in, out []byte) *refusal {
	c := createEQEqContextEntry.in(in)
	u, no := d.uarRef(eqcUarPage.u32(c))
	switch {
	case no != nil:
		return no
	case d.eqs.full():
		return tooMany("eq", d.eqs.live)
	case eqcStatus.on(c) || eqcEc.on(c):
		return badParam(synEQContext, "status and ec are not for the host to set")
	case eqcLogEqSize.get(c) > d.genVal(capLogMaxEqSz):
		return badParam(synEQContext, "2^%d entries", eqcLogEqSize.get(c))
	case eqcIntr.get(c) >= vectorCount:
		return badParam(synEQContext, "vector %d of %d", eqcIntr.get(c), vectorCount)
	}
	r, no := ringShape{eqcLogEqSize.u8(c), 6, eqcLogPageSize.u8(c) + 12, eqcPageOffset.get(c), createEQPas.in(in)}.build()
	if no != nil {
		return no
	}
	e := d.eqs.add(func(n uint32) *eq {
		return &eq{n: n, ring: r, uar: u.n, vector: int(eqcIntr.get(c)), mask: be64(createEQEventBitmask.in(in), 0), oi: eqcOi.on(c)}
	})
	u.refs++
	outNumber8.set(out, uint64(e.n))
	return nil
}

func (d *Device) cmdQueryEQ(in, out []byte) *refusal {
	e := d.eqs.get(inNumber8.u32(in))
	if e == nil {
		return noObject("EQ", inNumber8.u32(in))
	}
	c := queryEQOutEqContextEntry.in(out)
	if e.failed {
		eqcStatus.set(c, eqStatusFailed)
	}
	eqcOi.flag(c, e.oi)
	eqcSt.set(c, eqStateFired)
	if e.armed {
		eqcSt.set(c, eqStateArmed)
	}
	eqcLogEqSize.set(c, uint64(e.ring.logSize))
	eqcUarPage.set(c, uint64(e.uar))
	eqcIntr.set(c, uint64(e.vector))
	eqcLogPageSize.set(c, uint64(e.ring.logPage-12))
	eqcPageOffset.set(c, e.ring.offset*64>>e.ring.logPage)
	eqcConsumerCounter.set(c, uint64(e.ci))
	eqcProducerCounter.set(c, uint64(e.pi))
	queryEQOutEventBitmask.set(out, e.mask)
	return nil
}

func (d *Device) cmdDestroyEQ(in, _ []byte) *refusal {
	n := inNumber8.u32(in)
	e := d.eqs.get(n)
	switch {
	case e == nil:
		return noObject("EQ", n)
	case e.refs > 0:
		return inUse("EQ", n, e.refs)
	}
	if u := d.uars.get(e.uar); u != nil {
		u.refs--
	}
	d.eqs.remove(n)
	return nil
}

// Completion queues.

func (d *Device) cmdCreateCQ(in, out []byte) *refusal {
	c := createCQCqContext.in(in)
	u, no := d.uarRef(cqcUarPage.u32(c))
	if no != nil {
		return no
	}
	e := d.eqs.get(cqcCEqn.u32(c))
	if e == nil {
		return noObject("EQ", cqcCEqn.u32(c))
	}
	if d.cqs.full() {
		return tooMany("cq", d.cqs.live)
	}
	if no := d.checkCQ(in, c); no != nil {
		return no
	}
	size := cqcCqeSz.u8(c)
	r, no := ringShape{cqcLogCqSize.u8(c), 6 + size, cqcLogPageSize.u8(c) + 12, cqcPageOffset.get(c), createCQPas.in(in)}.build()
	if no != nil {
		return no
	}
	made := d.cqs.add(func(n uint32) *cq {
		return &cq{
			n: n, ring: r, eqn: e.n, uar: u.n,
			dbr:      cqcDbrAddr.get(c),
			oi:       cqcOi.on(c),
			cqeSize:  64 << size,
			period:   uint16(cqcCqPeriod.get(c)),
			maxCount: uint16(cqcCqMaxCount.get(c)),
			fromCQE:  cqcCqPeriodMode.get(c) == periodFromCQE,
			compress: cqcCqeCompEn.on(c),
			miniFmt:  cqcMiniCqeResFormat.u8(c),
			layout:   cqcCqeCompressionLayout.u8(c),
		}
	})
	e.refs++
	u.refs++
	outNumber.set(out, uint64(made.n))
	return nil
}

// checkCQ checks a context against the capabilities.
func (d *Device) checkCQ(in, c []byte) *refusal {
	format := cqcMiniCqeResFormat.get(c)
	switch {
	case createCQCqUmemValid.on(in) || cqcDbrUmemValid.on(c) || cqcApuCq.on(c):
		return badParam(codeCapability, "user memory objects and APU elements")
	case cqcStatus.on(c):
		return badParam(codeReserved, "status is not for the host to set")
	case cqcLogCqSize.get(c) > d.genVal(capLogMaxCqSz):
		return badParam(codeRange, "2^%d entries", cqcLogCqSize.get(c))
	case cqcCqeSz.get(c) > 1:
		return badParam(codeRange, "entry size code %d", cqcCqeSz.get(c))
	case cqcDbrAddr.get(c)%8 != 0 || cqcDbrAddr.get(c) == 0:
		return badParam(codeAlign, "doorbell record at %#x", cqcDbrAddr.get(c))
	case cqcOi.on(c) && !d.gen(capCqOi):
		return badParam(codeCapability, "overrun ignore")
	case (cqcCqPeriod.on(c) || cqcCqMaxCount.on(c)) && !d.gen(capCqModeration):
		return badParam(codeCapability, "moderation")
	case cqcCqPeriodMode.get(c) > periodFromCQE || cqcCqPeriodMode.on(c) && !d.gen(capCqPeriodStartFromCqe):
		return badParam(codeCapability, "period mode %d", cqcCqPeriodMode.get(c))
	case cqcCqeCompEn.on(c) && !d.gen(capCqeCompression):
		return badParam(codeCapability, "CQE compression")
	case cqcCqeCompEn.on(c) && format > miniCsum && (format != miniStrideIndex || !d.gen(capMiniCqeRespStrideIndex)):
		return badParam(codeCapability, "mini CQE format %d", format)
	case cqcCqeCompressionLayout.on(c) && !d.gen(capEnhancedCqeCompression):
		return badParam(codeCapability, "enhanced CQE compression")
	case cqcScqeBreakModerationEn.on(c) && !d.gen(capScqeBreakModeration):
		return badParam(codeCapability, "solicited events that break moderation")
	}
	return nil
}

func (d *Device) cmdQueryCQ(in, out []byte) *refusal {
	q := d.cqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("CQ", inNumber.u32(in))
	}
	c := queryCQOutCqContext.in(out)
	if q.failed {
		cqcStatus.set(c, cqStatusOverflow)
	}
	if q.cqeSize == 128 {
		cqcCqeSz.set(c, 1)
	}
	cqcOi.flag(c, q.oi)
	if q.fromCQE {
		cqcCqPeriodMode.set(c, periodFromCQE)
	}
	cqcCqeCompEn.flag(c, q.compress)
	cqcMiniCqeResFormat.set(c, uint64(q.miniFmt))
	switch {
	case !q.armed:
		cqcSt.set(c, cqStateFired)
	case q.armSol:
		cqcSt.set(c, cqStateSolicited)
	default:
		cqcSt.set(c, cqStateArmed)
	}
	cqcPageOffset.set(c, q.ring.offset*64>>q.ring.logPage)
	cqcLogCqSize.set(c, uint64(q.ring.logSize))
	cqcUarPage.set(c, uint64(q.uar))
	cqcCqPeriod.set(c, uint64(q.period))
	cqcCqMaxCount.set(c, uint64(q.maxCount))
	cqcCEqn.set(c, uint64(q.eqn))
	cqcLogPageSize.set(c, uint64(q.ring.logPage-12))
	cqcConsumerCounter.set(c, uint64(q.run.ci))
	cqcProducerCounter.set(c, uint64(q.pi))
	cqcDbrAddr.set(c, q.dbr)
	return nil
}

// cmdModifyCQ changes moderation, overrun or the EQ. Resizing is not there.
func (d *Device) cmdModifyCQ(in, _ []byte) *refusal {
	q := d.cqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("CQ", inNumber.u32(in))
	}
	if cmdOpMod.get(in) != 0 {
		return badParam(codeCapability, "the CQ can't be resized")
	}
	c, sel := modifyCQCqContext.in(in), modifyCQSelect.get(in)
	const known = cqModifyPeriod | cqModifyCount | cqModifyOverrun | cqModifyEQN | cqModifyPeriodMode
	e := d.eqs.get(cqcCEqn.u32(c))
	switch {
	case sel&^known != 0:
		return badParam(codeReserved, "field select %#x", sel)
	case sel&(cqModifyPeriod|cqModifyCount) != 0 && !d.gen(capCqModeration):
		return badParam(codeCapability, "moderation")
	case sel&cqModifyOverrun != 0 && cqcOi.on(c) && !d.gen(capCqOi):
		return badParam(codeCapability, "overrun ignore")
	case sel&cqModifyPeriodMode != 0 && (!d.gen(capCqPeriodModeModify) || cqcCqPeriodMode.get(c) > periodFromCQE):
		return badParam(codeCapability, "period mode %d", cqcCqPeriodMode.get(c))
	case sel&cqModifyEQN != 0 && !d.gen(capCqEqRemap):
		return badParam(codeCapability, "another EQ")
	case sel&cqModifyEQN != 0 && e == nil:
		return noObject("EQ", cqcCEqn.u32(c))
	}
	if sel&cqModifyPeriod != 0 {
		q.period = uint16(cqcCqPeriod.get(c))
	}
	if sel&cqModifyCount != 0 {
		q.maxCount = uint16(cqcCqMaxCount.get(c))
	}
	if sel&cqModifyOverrun != 0 {
		q.oi = cqcOi.on(c)
	}
	if sel&cqModifyPeriodMode != 0 {
		q.fromCQE = cqcCqPeriodMode.get(c) == periodFromCQE
	}
	if sel&cqModifyEQN != 0 {
		if old := d.eqs.get(q.eqn); old != nil {
			old.refs--
		}
		e.refs++
		q.eqn = e.n
	}
	return nil
}

func (d *Device) cmdDestroyCQ(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	q := d.cqs.get(n)
	switch {
	case q == nil:
		return noObject("CQ", n)
	case q.users > 0:
		return refuse(statBadResState, synCQInUse, "%d queues complete on CQ %#x", q.users, n)
	}
	if e := d.eqs.get(q.eqn); e != nil {
		e.refs--
	}
	if u := d.uars.get(q.uar); u != nil {
		u.refs--
	}
	d.cqs.remove(n)
	return nil
}

// checkWQ checks what send and receive work queues have in common.
func (d *Device) checkWQ(w []byte) *refusal {
	switch {
	case wqDbrUmemValid.on(w) || wqWqUmemValid.on(w):
		return badParam(codeCapability, "user memory objects")
	case wqSignature.on(w):
		return badParam(codeCapability, "work request signatures")
	case wqLogWqSz.get(w) > d.genVal(capLogMaxWqSz):
		return badParam(codeRange, "2^%d work requests", wqLogWqSz.get(w))
	case wqDbrAddr.get(w)%8 != 0 || wqDbrAddr.get(w) == 0:
		return badParam(codeAlign, "doorbell record at %#x", wqDbrAddr.get(w))
	}
	return nil
}

// wqRing builds the ring of a work queue.
func wqRing(w []byte) (ring, *refusal) {
	return ringShape{wqLogWqSz.u8(w), wqLogWqStride.u8(w), wqLogWqPgSz.u8(w) + 12, wqPageOffset.get(w), wqPas.in(w)}.build()
}

// wqOf is the work queue of a send or receive queue context, with the page
// list that follows it to the end of the message.
func wqOf(msg []byte, ctx, wq field) []byte {
	at := field{wq.of, ctx.bit + wq.bit, 0}
	return at.in(msg)
}

// checkTimestamps refuses a format that the clock does not have.
func checkTimestamps(format, able uint64) *refusal {
	ok := format == tsDefault
	switch able {
	case tsCapFreeRunning:
		ok = ok || format == tsFreeRunning
	case tsCapRealTime:
		ok = ok || format == tsRealTime
	case tsCapBoth:
		ok = ok || format == tsFreeRunning || format == tsRealTime
	}
	if !ok {
		return badParam(synTimestampFormat, "timestamp format %d", format)
	}
	return nil
}

// Send queues.

func (d *Device) cmdCreateSQ(in, out []byte) *refusal {
	c, w := createSQCtx.in(in), wqOf(in, createSQCtx, sqcWq)
	u, no := d.uarRef(wqUarPage.u32(w))
	if no != nil {
		return no
	}
	done, p := d.cqs.get(sqcCqn.u32(c)), d.pds.get(wqPd.u32(w))
	var t []uint32 // none: a queue for work that sends nothing
	if sqcTisLstSz.on(c) {
		t = []uint32{sqcTisNum0.u32(c)}
	}
	switch {
	case done == nil:
		return noObject("CQ", sqcCqn.u32(c))
	case p == nil:
		return noObject("PD", wqPd.u32(w))
	case t != nil && d.tises.get(t[0]) == nil:
		return noObject("TIS", t[0])
	case d.sqs.full():
		return tooMany("sq", d.sqs.live)
	}
	if no = d.checkSQ(c); no == nil {
		no = d.checkWQ(w)
	}
	if no != nil {
		return no
	}
	if wqType.get(w) != wqCyclic || wqLogWqStride.get(w) != 6 {
		return badParam(codeRange, "type %d with strides of 2^%d bytes: send queues are cyclic, in blocks of 64 bytes", wqType.get(w), wqLogWqStride.get(w))
	}
	r, no := wqRing(w)
	if no != nil {
		return no
	}
	q := d.sqs.add(func(n uint32) *sq {
		return &sq{
			n: n, ring: r, cqn: done.n, tis: t, uar: u.n,
			pd:        wqPd.u32(w),
			dbr:       wqDbrAddr.get(w),
			mpw:       sqcAllowMultiPktSendWqe.on(c),
			minInline: sqcMinWqeInlineMode.u8(c),
			flushErr:  sqcFlushInErrorEn.on(c),
			tsFormat:  sqcTsFormat.u8(c),
			userIndex: sqcUserIndex.u32(c),
			reg:       sqcRegUmr.on(c),
		}
	})
	done.users++
	d.holdTIS(q, 1)
	u.refs++
	p.refs++
	d.resetSQ(q)
	outNumber.set(out, uint64(q.n))
	return nil
}

// holdTIS counts that a send queue refers to its TIS, up or down.
func (d *Device) holdTIS(q *sq, by int) {
	for _, n := range q.tis {
		if t := d.tises.get(n); t != nil {
			t.refs += by
		}
	}
}

// checkSQ checks a context against the capabilities.
func (d *Device) checkSQ(c []byte) *refusal {
	inline := d.ethVal(ethWqeInlineMode)
	switch {
	case sqcState.get(c) != sqRST:
		return badParam(codeState, "a send queue is created in state RST, not %d", sqcState.get(c))
	case sqcTisLstSz.get(c) > 1:
		return badParam(codeRange, "%d TIS: 1 is the most", sqcTisLstSz.get(c))
	case sqcHairpin.on(c) || sqcHairpinPeerRq.on(c) || sqcHairpinPeerVhca.on(c) || sqcNonWire.on(c):
		return badParam(codeCapability, "hairpin")
	case sqcRlky.on(c) || sqcCdMaster.on(c) || sqcFre.on(c):
		return badParam(codeCapability, "reserved lkey, master or fast register")
	case sqcPacketPacingRateLimitIndex.on(c) || sqcQosQueueGroupId.on(c):
		return badParam(codeCapability, "rate limits")
	case sqcTsCqeToDestCqn.on(c):
		return badParam(codeCapability, "timestamps on another CQ")
	case sqcAllowMultiPktSendWqe.on(c) && !d.eth(ethEnhancedMultiPktSendWqe) && !d.eth(ethMultiPktSendWqe):
		return badParam(codeCapability, "multi-packet work requests")
	case sqcRegUmr.on(c) && !d.eth(ethRegUmrSq):
		return badParam(codeCapability, "UMR")
	case sqcAllowSwp.on(c) && !d.eth(ethSwp):
		return badParam(codeCapability, "software parsing")
	case sqcMinWqeInlineMode.get(c) > inlineTCPUDP:
		return badParam(codeRange, "inline mode %d", sqcMinWqeInlineMode.get(c))
	case inline == inlineFromVport && sqcMinWqeInlineMode.u8(c) < d.vport.minInline && !sqcRegUmr.on(c):
		return badParam(codeRange, "inline mode %d: the virtual port demands %d", sqcMinWqeInlineMode.get(c), d.vport.minInline)
	}
	return checkTimestamps(sqcTsFormat.get(c), d.genVal(capSqTsFormat))
}

func (d *Device) cmdQuerySQ(in, out []byte) *refusal {
	q := d.sqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("SQ", inNumber.u32(in))
	}
	c := querySQOutCtx.in(out)
	sqcFlushInErrorEn.flag(c, q.flushErr)
	sqcAllowMultiPktSendWqe.flag(c, q.mpw)
	sqcMinWqeInlineMode.set(c, uint64(q.minInline))
	sqcState.set(c, uint64(q.state))
	sqcRegUmr.flag(c, q.reg)
	sqcTsFormat.set(c, uint64(q.tsFormat))
	sqcUserIndex.set(c, uint64(q.userIndex))
	sqcCqn.set(c, uint64(q.cqn))
	sqcTisLstSz.set(c, uint64(len(q.tis)))
	for _, t := range q.tis {
		sqcTisNum0.set(c, uint64(t))
	}
	w := sqcWq.in(c)
	putWQ(w, &q.ring, wqCyclic, q.pd, q.dbr)
	wqUarPage.set(w, uint64(q.uar))
	wqHwCounter.set(w, uint64(uint16(q.ci)))
	wqSwCounter.set(w, uint64(uint16(q.pi)))
	return nil
}

// putWQ writes a work queue context for a query.
func putWQ(w []byte, r *ring, typ uint64, pd uint32, dbr uint64) {
	wqType.set(w, typ)
	wqPd.set(w, uint64(pd))
	wqDbrAddr.set(w, dbr)
	wqLogWqStride.set(w, uint64(r.stride))
	wqLogWqSz.set(w, uint64(r.logSize))
	if r.logPage >= 12 {
		wqLogWqPgSz.set(w, uint64(r.logPage-12))
		wqPageOffset.set(w, r.offset*64>>r.logPage)
	}
}

// nextState checks a change of a send or receive queue; their states have the
// same numbers. Anything may go to ERR, and back to RST; only RST becomes RDY.
func nextState(kind string, n uint32, is, claimed, next uint8) *refusal {
	switch {
	case claimed != is:
		return refuse(statBadResState, codeState, "%s %#x is in state %d, not %d", kind, n, is, claimed)
	case next == sqRST || next == sqERR || next == is:
		return nil
	case next == sqRDY && is == sqRST:
		return nil
	}
	return refuse(statBadResState, codeState, "%s %#x can't go from state %d to %d", kind, n, is, next)
}

func (d *Device) cmdModifySQ(in, _ []byte) *refusal {
	q := d.sqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("SQ", inNumber.u32(in))
	}
	c := modifySQCtx.in(in)
	next := sqcState.u8(c)
	if no := nextState("SQ", q.n, q.state, modifySQSqState.u8(in), next); no != nil {
		return no
	}
	if modifySQModifyBitmask.on(in) {
		return badParam(codeCapability, "modify bitmask %#x", modifySQModifyBitmask.get(in))
	}
	if next == sqRST {
		d.resetSQ(q)
	}
	q.state = next
	return nil
}

func (d *Device) cmdDestroySQ(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	q := d.sqs.get(n)
	if q == nil {
		return noObject("SQ", n)
	}
	if c := d.cqs.get(q.cqn); c != nil {
		c.users--
	}
	d.holdTIS(q, -1)
	if u := d.uars.get(q.uar); u != nil {
		u.refs--
	}
	if p := d.pds.get(q.pd); p != nil {
		p.refs--
	}
	d.sqs.remove(n)
	return nil
}
