package model

// cmd_receive.go owns the commands of receive queues and receive memory pools:
// limits, states and references. How they receive is in receive.go.
// Manual: chapters "Receive queue" and "Receive memory pool".

// leastStridingWQE is log2 of the least bytes that one striding WQE must
// offer; cards refuse less, although stride and count are each in range.
const leastStridingWQE = 14

func (d *Device) cmdCreateRQ(in, out []byte) *refusal {
	c, w := createRQCtx.in(in), wqOf(in, createRQCtx, rqcWq)
	done := d.cqs.get(rqcCqn.u32(c))
	switch {
	case done == nil:
		return noObject("CQ", rqcCqn.u32(c))
	case d.rqs.full():
		return tooMany("rq", d.rqs.live)
	}
	if no := d.checkRQ(c); no != nil {
		return no
	}
	q := rq{
		cqn:        done.n,
		vsd:        rqcVsd.on(c),
		flushErr:   rqcFlushInErrorEn.on(c),
		counterSet: rqcCounterSetId.u32(c),
		userIndex:  rqcUserIndex.u32(c),
		tsFormat:   rqcTsFormat.u8(c),
		hold:       newHold(),
	}
	no := d.bufferRQ(&q, c, w)
	if no != nil {
		return no
	}
	made := d.rqs.add(func(n uint32) *rq { q.n = n; return &q })
	done.users++
	d.holdRQ(made, 1)
	d.resetRQ(made)
	outNumber.set(out, uint64(made.n))
	return nil
}

// holdRQ counts what a receive queue refers to, up or down, apart from its CQ.
func (d *Device) holdRQ(q *rq, by int) {
	if p := d.pds.get(q.pd); p != nil {
		p.refs += by
	}
	if s := d.qctrs.get(q.counterSet); s != nil {
		s.refs += by
	}
	if m := d.rmps.get(q.rmp); m != nil {
		m.refs += by
	}
}

// checkRQ checks a context against the capabilities.
func (d *Device) checkRQ(c []byte) *refusal {
	counters := rqcCounterSetId.u32(c)
	switch {
	case rqcState.get(c) != rqRST:
		return badParam(codeState, "a receive queue is created in state RST, not %d", rqcState.get(c))
	case rqcHairpin.on(c):
		return badParam(codeCapability, "hairpin")
	case rqcRlky.on(c):
		return badParam(codeCapability, "reserved lkey")
	case rqcScatterFcs.on(c) && !d.eth(ethScatterFcs):
		return badParam(codeCapability, "the FCS in memory")
	case rqcDelayDropEn.on(c) && !d.gen(capRqDelayDrop):
		return badParam(codeCapability, "delay drop")
	case counters != 0 && d.qctrs.get(counters) == nil:
		return noObject("queue counter", counters)
	}
	return checkTimestamps(rqcTsFormat.get(c), d.genVal(capRqTsFormat))
}

// bufferRQ takes over where a receive queue gets its buffers: its own ring or
// a pool's.
func (d *Device) bufferRQ(q *rq, c, w []byte) *refusal {
	switch rqcMemRqType.get(c) {
	case rqInline:
	case rqInRMP:
		m := d.rmps.get(rqcRmpn.u32(c))
		if m == nil {
			return noObject("RMP", rqcRmpn.u32(c))
		}
		q.rmp, q.pd, q.cyclic, q.wqType = m.n, m.pd, m.wqType == wqCyclic, m.wqType
		return nil
	default:
		return badParam(codeRange, "memory type %d", rqcMemRqType.get(c))
	}
	// Without a protection domain no memory key fits: right for a queue that
	// never gets a buffer.
	if wqPd.on(w) && d.pds.get(wqPd.u32(w)) == nil {
		return noObject("PD", wqPd.u32(w))
	}
	if no := d.checkWQ(w); no != nil {
		return no
	}
	if no := d.checkReceiveWQ(w); no != nil {
		return no
	}
	r, no := wqRing(w)
	if no != nil {
		return no
	}
	q.ring, q.pd, q.dbr = r, wqPd.u32(w), wqDbrAddr.get(w)
	q.wqType = wqType.u8(w)
	q.cyclic = q.wqType == wqCyclic
	q.endPad = wqEndPaddingMode.on(w)
	q.shift = wqTwoByteShiftEn.on(w)
	if isStriding(uint64(q.wqType)) {
		q.logStride = wqLogWqeStrideSize.u8(w) + strideSizeBase
		q.logStrides = logStrides(w)
	}
	return nil
}

// isStriding reports whether a work request of this queue type takes several
// frames.
func isStriding(typ uint64) bool { return typ == wqStriding || typ == wqCyclicStriding }

// logStrides decodes the number of strides: 4 bits, signed, from 2^9.
func logStrides(w []byte) uint8 {
	v := int(wqLogWqeNumOfStrides.get(w))
	if v > 7 {
		v -= 16
	}
	return uint8(stridesBase + v)
}

// checkReceiveWQ checks type, stride and strides.
func (d *Device) checkReceiveWQ(w []byte) *refusal {
	stride := wqLogWqStride.get(w)
	if stride < d.genVal(capLogMinStrideSzRq) || stride > d.genVal(capLogMaxStrideSzRq) {
		return badParam(codeRange, "work requests of 2^%d bytes", stride)
	}
	if wqEndPaddingMode.get(w) > 1 || wqEndPaddingMode.on(w) && !d.gen(capEndPad) {
		return badParam(codeCapability, "end padding mode %d", wqEndPaddingMode.get(w))
	}
	if wqShampoEnable.on(w) && !d.gen(capShampo) {
		return badParam(codeCapability, "header-data merge")
	}
	switch typ := wqType.get(w); {
	case typ == wqCyclic || typ == wqLinkedList:
		return nil
	case !isStriding(typ) || !d.gen(capStridingRq):
		return badParam(codeCapability, "work queue type %d", typ)
	}
	least, n := uint8(stridesBase), logStrides(w)
	if d.gen(capExtStrideNumRange) {
		least = stridesExtBase
	}
	bytes := n + wqLogWqeStrideSize.u8(w) + strideSizeBase
	if n < least || bytes < leastStridingWQE {
		return badParam(codeRange, "2^%d strides of 2^%d bytes", n, bytes-n)
	}
	return nil
}

func (d *Device) cmdQueryRQ(in, out []byte) *refusal {
	q := d.rqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("RQ", inNumber.u32(in))
	}
	c := queryRQOutCtx.in(out)
	rqcVsd.flag(c, q.vsd)
	rqcState.set(c, uint64(q.state))
	rqcFlushInErrorEn.flag(c, q.flushErr)
	rqcTsFormat.set(c, uint64(q.tsFormat))
	rqcUserIndex.set(c, uint64(q.userIndex))
	rqcCqn.set(c, uint64(q.cqn))
	rqcCounterSetId.set(c, uint64(q.counterSet))
	if q.rmp != 0 {
		rqcMemRqType.set(c, rqInRMP)
		rqcRmpn.set(c, uint64(q.rmp))
		return nil
	}
	w := rqcWq.in(c)
	putWQ(w, &q.ring, uint64(q.wqType), q.pd, q.dbr)
	wqEndPaddingMode.flag(w, q.endPad)
	wqTwoByteShiftEn.flag(w, q.shift)
	wqHwCounter.set(w, uint64(uint16(q.ci)))
	wqSwCounter.set(w, uint64(uint16(q.pi)))
	if isStriding(uint64(q.wqType)) {
		wqLogWqeStrideSize.set(w, uint64(q.logStride-strideSizeBase))
		wqLogWqeNumOfStrides.set(w, uint64(q.logStrides)-stridesBase)
	}
	return nil
}

// cmdModifyRQ changes the state, or in place VLAN stripping and the counter.
func (d *Device) cmdModifyRQ(in, _ []byte) *refusal {
	q := d.rqs.get(inNumber.u32(in))
	if q == nil {
		return noObject("RQ", inNumber.u32(in))
	}
	c, mask := modifyRQCtx.in(in), modifyRQModifyBitmask.get(in)
	next, counters := rqcState.u8(c), rqcCounterSetId.u32(c)
	switch {
	case mask&^(rqModifyVSD|rqModifyCounter) != 0:
		return badParam(codeCapability, "modify bitmask %#x", mask)
	case mask&rqModifyCounter != 0 && !d.gen(capModifyRqCounterSetId):
		return badParam(codeCapability, "another queue counter")
	case mask&rqModifyCounter != 0 && counters != 0 && d.qctrs.get(counters) == nil:
		return noObject("queue counter", counters)
	}
	if no := nextState("RQ", q.n, q.state, modifyRQRqState.u8(in), next); no != nil {
		return no
	}
	if mask&rqModifyVSD != 0 {
		q.vsd = rqcVsd.on(c)
	}
	if mask&rqModifyCounter != 0 {
		d.holdRQ(q, -1)
		q.counterSet = counters
		d.holdRQ(q, 1)
	}
	if next == rqRST {
		d.resetRQ(q)
	}
	if q.state == rqRST && next == rqRDY {
		q.hold.ready()
	}
	q.state = next
	return nil
}

func (d *Device) cmdDestroyRQ(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	q := d.rqs.get(n)
	switch {
	case q == nil:
		return noObject("RQ", n)
	case q.refs > 0:
		return inUse("RQ", n, q.refs)
	}
	if c := d.cqs.get(q.cqn); c != nil {
		c.users--
	}
	d.holdRQ(q, -1)
	d.rqs.remove(n)
	return nil
}

// Receive memory pools.

func (d *Device) cmdCreateRMP(in, out []byte) *refusal {
	c, w := createRMPCtx.in(in), wqOf(in, createRMPCtx, rmpcWq)
	typ := wqType.get(w)
	switch {
	case d.rmps.full():
		return tooMany("rmp", d.rmps.live)
	case rmpcState.get(c) != rmpRDY:
		return badParam(codeState, "a pool is created in state RDY, not %d", rmpcState.get(c))
	case rmpcBasicCyclicRcvWqe.on(c) && !d.gen(capBasicCyclicRcvWqe):
		return badParam(codeCapability, "basic cyclic work requests")
	case typ != wqCyclic && typ != wqLinkedList:
		return badParam(codeCapability, "work queue type %d in a pool", typ)
	}
	p := d.pds.get(wqPd.u32(w))
	if p == nil {
		return noObject("PD", wqPd.u32(w))
	}
	no := d.checkWQ(w)
	if no == nil {
		no = d.checkReceiveWQ(w)
	}
	if no != nil {
		return no
	}
	r, no := wqRing(w)
	if no != nil {
		return no
	}
	m := d.rmps.add(func(n uint32) *rmp {
		return &rmp{n: n, ring: r, dbr: wqDbrAddr.get(w), pd: wqPd.u32(w), wqType: uint8(typ)}
	})
	p.refs++
	outNumber.set(out, uint64(m.n))
	return nil
}

func (d *Device) cmdQueryRMP(in, out []byte) *refusal {
	m := d.rmps.get(inNumber.u32(in))
	if m == nil {
		return noObject("RMP", inNumber.u32(in))
	}
	c := queryRMPOutCtx.in(out)
	rmpcState.set(c, rmpRDY)
	putWQ(rmpcWq.in(c), &m.ring, uint64(m.wqType), m.pd, m.dbr)
	return nil
}

// cmdModifyRMP accepts to stay ready: there are no low-watermark events, and
// a pool breaks only by itself.
func (d *Device) cmdModifyRMP(in, _ []byte) *refusal {
	m := d.rmps.get(inNumber.u32(in))
	if m == nil {
		return noObject("RMP", inNumber.u32(in))
	}
	if modifyRMPBitmask.on(in) {
		return badParam(codeCapability, "modify bitmask %#x", modifyRMPBitmask.get(in))
	}
	next := rmpcState.get(modifyRMPCtx.in(in))
	if modifyRMPRmpState.get(in) != rmpRDY || next != rmpRDY {
		return refuse(statBadResState, codeState, "RMP %#x can't go to state %d", m.n, next)
	}
	return nil
}

func (d *Device) cmdDestroyRMP(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	m := d.rmps.get(n)
	switch {
	case m == nil:
		return noObject("RMP", n)
	case m.refs > 0:
		return inUse("RMP", n, m.refs)
	}
	if p := d.pds.get(m.pd); p != nil {
		p.refs--
	}
	d.rmps.remove(n)
	return nil
}
