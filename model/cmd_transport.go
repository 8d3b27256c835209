package model

// cmd_transport.go owns the commands of TIR, TIS and RQT: where received
// packets go after steering, and on whose behalf packets are sent. It does not own
// the hash (rss.go). Manual: chapters "TIR", "TIS" and "RQT".

func (d *Device) cmdCreateTIR(in, out []byte) *refusal {
	c := createTIRCtx.in(in)
	domain := d.tds.get(tircTransportDomain.u32(c))
	switch {
	case domain == nil:
		return noObject("transport domain", tircTransportDomain.u32(c))
	case d.tirs.full():
		return tooMany("tir", d.tirs.live)
	}
	if no := d.checkTIR(c); no != nil {
		return no
	}
	t := tir{
		td:       domain.n,
		direct:   tircDispType.get(c) == tirDirect,
		lroMask:  tircPacketMergeMask.u8(c),
		selfLB:   tircSelfLbBlock.u8(c),
		tunneled: tircTunneledOffloadEn.on(c),
	}
	if t.direct {
		t.rqn = tircInlineRqn.u32(c)
	} else {
		t.rqt = tircIndirectTable.u32(c)
	}
	t.setHash(c)
	made := d.tirs.add(func(n uint32) *tir { t.n = n; return &t })
	domain.refs++
	d.holdTIR(made, 1)
	outNumber.set(out, uint64(made.n))
	return nil
}

// checkTIR checks a context against the capabilities and what it leads to.
func (d *Device) checkTIR(c []byte) *refusal {
	hash := tircRxHashFn.get(c)
	inner := d.eth(ethTunnelStatelessGre) || d.eth(ethTunnelStatelessVxlan)
	switch {
	case tircTlsEn.on(c):
		return badParam(codeCapability, "TLS")
	case tircPacketMergeMask.on(c) && !d.eth(ethLroCap):
		return badParam(codeCapability, "packet merge mask %#x", tircPacketMergeMask.get(c))
	case tircTunneledOffloadEn.on(c) && !inner:
		return badParam(synTIRInner, "inner headers")
	case tircRxHashFieldSelectorInner.on(c) && !inner:
		return badParam(synTIRInner, "a hash of inner headers")
	}
	switch tircDispType.get(c) {
	case tirDirect:
		if hash != hashNone {
			return badParam(codeMismatch, "hash function %d for a single queue", hash)
		}
		if d.rqs.get(tircInlineRqn.u32(c)) == nil {
			return noObject("RQ", tircInlineRqn.u32(c))
		}
		return nil
	case tirIndirect:
		if d.rqts.get(tircIndirectTable.u32(c)) == nil {
			return noObject("RQT", tircIndirectTable.u32(c))
		}
		return checkHash(c)
	}
	return badParam(codeRange, "dispatch type %d", tircDispType.get(c))
}

// checkHash checks how an indirect TIR spreads packets.
func checkHash(c []byte) *refusal {
	if fn := tircRxHashFn.get(c); fn != hashXOR8 && fn != hashToeplitz {
		return badParam(codeRange, "hash function %d with an indirection table", fn)
	}
	for _, at := range []field{tircRxHashFieldSelectorOuter, tircRxHashFieldSelectorInner} {
		if sel := hashFieldSelectedFields.get(at.in(c)); sel&^(2*hashESPSPI-1) != 0 {
			return badParam(codeReserved, "hash fields %#x", sel)
		}
	}
	return nil
}

// setHash takes over how packets are spread.
func (t *tir) setHash(c []byte) {
	t.hash = tircRxHashFn.u8(c)
	t.sym = tircRxHashSymmetric.on(c)
	copy(t.key[:], tircRxHashToeplitzKey.in(c))
	t.outer = readHashFields(tircRxHashFieldSelectorOuter.in(c))
	t.inner = readHashFields(tircRxHashFieldSelectorInner.in(c))
	t.lut = nil
}

func readHashFields(b []byte) hashFields {
	sel := hashFieldSelectedFields.u32(b)
	return hashFields{ip6: hashFieldL3ProtType.on(b), udp: hashFieldL4ProtType.on(b), sel: sel, have: sel != 0}
}

func (f hashFields) write(b []byte) {
	hashFieldL3ProtType.flag(b, f.ip6)
	hashFieldL4ProtType.flag(b, f.udp)
	hashFieldSelectedFields.set(b, uint64(f.sel))
}

// holdTIR counts what a TIR leads to, up or down.
func (d *Device) holdTIR(t *tir, by int) {
	if t.direct {
		if q := d.rqs.get(t.rqn); q != nil {
			q.refs += by
		}
		return
	}
	if r := d.rqts.get(t.rqt); r != nil {
		r.refs += by
	}
}

func (d *Device) cmdQueryTIR(in, out []byte) *refusal {
	t := d.tirs.get(inNumber.u32(in))
	if t == nil {
		return noObject("TIR", inNumber.u32(in))
	}
	c := queryTIROutCtx.in(out)
	if t.direct {
		tircDispType.set(c, tirDirect)
		tircInlineRqn.set(c, uint64(t.rqn))
	} else {
		tircDispType.set(c, tirIndirect)
		tircIndirectTable.set(c, uint64(t.rqt))
	}
	tircPacketMergeMask.set(c, uint64(t.lroMask))
	tircRxHashSymmetric.flag(c, t.sym)
	tircTunneledOffloadEn.flag(c, t.tunneled)
	tircRxHashFn.set(c, uint64(t.hash))
	tircSelfLbBlock.set(c, uint64(t.selfLB))
	tircTransportDomain.set(c, uint64(t.td))
	copy(tircRxHashToeplitzKey.in(c), t.key[:])
	t.outer.write(tircRxHashFieldSelectorOuter.in(c))
	t.inner.write(tircRxHashFieldSelectorInner.in(c))
	return nil
}

// cmdModifyTIR changes the hash, loopback blocking or merging, by its bitmask.
func (d *Device) cmdModifyTIR(in, _ []byte) *refusal {
	t := d.tirs.get(inNumber.u32(in))
	if t == nil {
		return noObject("TIR", inNumber.u32(in))
	}
	mask, c := modifyTIRBitmask.in(in), modifyTIRCtx.in(in)
	switch {
	case tirMaskPacketMerge.on(mask) && tircPacketMergeMask.on(c) && !d.eth(ethLroCap):
		return badParam(codeCapability, "packet merge mask %#x", tircPacketMergeMask.get(c))
	case tirMaskHash.on(mask) && t.direct:
		return badParam(codeMismatch, "a hash for a single queue")
	}
	if tirMaskHash.on(mask) {
		if no := checkHash(c); no != nil {
			return no
		}
		t.setHash(c)
	}
	// Firmware that cannot block loopback ignores the wish: Linux asks for it
	// at every start, after a warning.
	if tirMaskSelfLbEn.on(mask) && d.eth(ethSelfLbEnModifiable) {
		t.selfLB = tircSelfLbBlock.u8(c)
	}
	if tirMaskPacketMerge.on(mask) {
		t.lroMask = tircPacketMergeMask.u8(c)
	}
	return nil
}

func (d *Device) cmdDestroyTIR(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	t := d.tirs.get(n)
	switch {
	case t == nil:
		return noObject("TIR", n)
	case t.refs > 0:
		return inUse("TIR", n, t.refs)
	}
	d.holdTIR(t, -1)
	if domain := d.tds.get(t.td); domain != nil {
		domain.refs--
	}
	d.tirs.remove(n)
	return nil
}

// Transport interface send.

func (d *Device) cmdCreateTIS(in, out []byte) *refusal {
	c := createTISCtx.in(in)
	domain := d.tds.get(tiscTransportDomain.u32(c))
	protection := d.pds.get(tiscPd.u32(c))
	switch {
	case domain == nil:
		return noObject("transport domain", tiscTransportDomain.u32(c))
	case tiscPd.on(c) && protection == nil:
		return noObject("PD", tiscPd.u32(c))
	case tiscTlsEn.on(c):
		return badParam(codeCapability, "TLS")
	case tiscUnderlayQpn.on(c):
		return badParam(codeCapability, "IPoIB")
	case tiscLagTxPortAffinity.on(c) || tiscStrictLagTxPortAffinity.on(c):
		return badParam(codeCapability, "link aggregation")
	}
	t := d.tises.add(func(n uint32) *tis {
		return &tis{n: n, td: domain.n, pd: tiscPd.u32(c), prio: tiscPrio.u8(c)}
	})
	if t == nil {
		return tooMany("tis", d.tises.live)
	}
	domain.refs++
	if protection != nil {
		protection.refs++
	}
	outNumber.set(out, uint64(t.n))
	return nil
}

func (d *Device) cmdQueryTIS(in, out []byte) *refusal {
	t := d.tises.get(inNumber.u32(in))
	if t == nil {
		return noObject("TIS", inNumber.u32(in))
	}
	c := queryTISOutCtx.in(out)
	tiscPrio.set(c, uint64(t.prio))
	tiscTransportDomain.set(c, uint64(t.td))
	tiscPd.set(c, uint64(t.pd))
	return nil
}

func (d *Device) cmdModifyTIS(in, _ []byte) *refusal {
	t := d.tises.get(inNumber.u32(in))
	if t == nil {
		return noObject("TIS", inNumber.u32(in))
	}
	mask, c := modifyTISBitmask.in(in), modifyTISCtx.in(in)
	if tisMaskLagTxPortAffinity.on(mask) || tisMaskStrictLagTxPortAffinity.on(mask) {
		return badParam(codeCapability, "link aggregation")
	}
	if tisMaskPrio.on(mask) {
		t.prio = tiscPrio.u8(c)
	}
	return nil
}

func (d *Device) cmdDestroyTIS(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	t := d.tises.get(n)
	switch {
	case t == nil:
		return noObject("TIS", n)
	case t.refs > 0:
		return inUse("TIS", n, t.refs)
	}
	if domain := d.tds.get(t.td); domain != nil {
		domain.refs--
	}
	if p := d.pds.get(t.pd); p != nil {
		p.refs--
	}
	d.tises.remove(n)
	return nil
}

// Receive queue tables.

func (d *Device) cmdCreateRQT(in, out []byte) *refusal {
	c := createRQTCtx.in(in)
	most := rqtcRqtMaxSize.get(c)
	switch {
	case d.rqts.full():
		return tooMany("rqt", d.rqts.live)
	case most == 0 || most > 1<<d.genVal(capLogMaxRqtSize):
		return badParam(codeRange, "at most %d entries", most)
	case rqtcListQType.on(c) || rqtcRqVhcaIdFormat.on(c):
		return badParam(codeCapability, "queues of another kind or function")
	}
	list := field{rqtcRqNum.of, createRQTCtx.bit + rqtcRqNum.bit, 0}
	entries, no := d.readRQT(c, list.in(in), int(most))
	if no != nil {
		return no
	}
	t := d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, max: int(most), entries: entries} })
	d.holdRQs(entries, 1)
	outNumber.set(out, uint64(t.n))
	return nil
}

// readRQT reads the queue numbers of a table. All must exist.
func (d *Device) readRQT(c, list []byte, most int) ([]uint32, *refusal) {
	n := int(rqtcRqtActualSize.get(c))
	switch {
	case n == 0 || n > most:
		return nil, badParam(codeRange, "%d entries in a table of at most %d", n, most)
	case len(list) < 4*n:
		return nil, refuse(statBadInLen, codeLength, "%d entries announced, %d bytes in the message", n, len(list))
	}
	entries := make([]uint32, n)
	for i := range entries {
		entries[i] = be32(list, 4*i) & 0xffffff
		if d.rqs.get(entries[i]) == nil {
			return nil, noObject("RQ", entries[i])
		}
	}
	return entries, nil
}

// holdRQs counts a table's use of its queues, up or down.
func (d *Device) holdRQs(entries []uint32, by int) {
	for _, n := range entries {
		if q := d.rqs.get(n); q != nil {
			q.refs += by
		}
	}
}

func (d *Device) cmdQueryRQT(in, out []byte) *refusal {
	t := d.rqts.get(inNumber.u32(in))
	if t == nil {
		return noObject("RQT", inNumber.u32(in))
	}
	c := queryRQTOutCtx.in(out)
	rqtcRqtMaxSize.set(c, uint64(t.max))
	rqtcRqtActualSize.set(c, uint64(len(t.entries)))
	list := field{rqtcRqNum.of, queryRQTOutCtx.bit + rqtcRqNum.bit, 0}.in(out)
	for i, n := range t.entries {
		if 4*i+4 <= len(list) {
			putBE32(list, 4*i, n)
		}
	}
	return nil
}

// cmdModifyRQT replaces the whole list.
func (d *Device) cmdModifyRQT(in, _ []byte) *refusal {
	t := d.rqts.get(inNumber.u32(in))
	if t == nil {
		return noObject("RQT", inNumber.u32(in))
	}
	if !rqtMaskRqnList.on(modifyRQTBitmask.in(in)) {
		return nil
	}
	list := field{rqtcRqNum.of, modifyRQTCtx.bit + rqtcRqNum.bit, 0}
	entries, no := d.readRQT(modifyRQTCtx.in(in), list.in(in), t.max)
	if no != nil {
		return no
	}
	d.holdRQs(entries, 1)
	d.holdRQs(t.entries, -1)
	t.entries = entries
	return nil
}

func (d *Device) cmdDestroyRQT(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	t := d.rqts.get(n)
	switch {
	case t == nil:
		return noObject("RQT", n)
	case t.refs > 0:
		return inUse("RQT", n, t.refs)
	}
	d.holdRQs(t.entries, -1)
	d.rqts.remove(n)
	return nil
}
