package model

// cmd_objects.go owns the small objects that others stand on: UAR pages,
// protection and transport domains, queue counters and memory keys. What a
// memory key means to a work request is in umr.go. Manual: chapters "UAR",
// "Protection domain", "Memory key", "Queue counters".

// firstUAR is the lowest UAR page: below lie the initialization segment, the
// MSI-X table and its pending bits. Recorded from a real card.
const firstUAR = 0x10

// longestTranslation bounds one memory key, in octowords of 16 bytes.
const longestTranslation = 1 << 17

func (d *Device) cmdAllocUAR(_, out []byte) *refusal {
	u := d.uars.add(func(n uint32) *uar { return &uar{n: n} })
	if u == nil {
		return tooMany("uar", d.uars.live)
	}
	clear(d.bar[int(u.n)*uarPageSize:][:uarPageSize])
	outNumber.set(out, uint64(u.n))
	return nil
}

func (d *Device) cmdDeallocUAR(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	u := d.uars.get(n)
	switch {
	case u == nil:
		return noObject("UAR", n)
	case u.refs > 0:
		return inUse("UAR", n, u.refs)
	}
	d.uars.remove(n)
	return nil
}

func (d *Device) cmdAllocPD(_, out []byte) *refusal {
	p := d.pds.add(func(n uint32) *pd { return &pd{n: n} })
	if p == nil {
		return tooMany("pd", d.pds.live)
	}
	outNumber.set(out, uint64(p.n))
	return nil
}

func (d *Device) cmdDeallocPD(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	p := d.pds.get(n)
	switch {
	case p == nil:
		return noObject("PD", n)
	case p.refs > 0:
		return refuse(statBadResState, synPDInUse, "PD %#x is referred to %d times", n, p.refs)
	}
	d.pds.remove(n)
	return nil
}

func (d *Device) cmdAllocTD(_, out []byte) *refusal {
	t := d.tds.add(func(n uint32) *td { return &td{n: n} })
	if t == nil {
		return tooMany("td", d.tds.live)
	}
	outNumber.set(out, uint64(t.n))
	return nil
}

func (d *Device) cmdDeallocTD(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	t := d.tds.get(n)
	switch {
	case t == nil:
		return noObject("transport domain", n)
	case t.refs > 0:
		return inUse("transport domain", n, t.refs)
	}
	d.tds.remove(n)
	return nil
}

func (d *Device) cmdAllocQCounter(_, out []byte) *refusal {
	q := d.qctrs.add(func(n uint32) *queueCounter { return &queueCounter{n: n} })
	if q == nil {
		return tooMany("q_counter", d.qctrs.live)
	}
	outNumber8.set(out, uint64(q.n))
	return nil
}

func (d *Device) cmdDeallocQCounter(in, _ []byte) *refusal {
	n := inNumber8.u32(in)
	q := d.qctrs.get(n)
	switch {
	case q == nil:
		return noObject("queue counter", n)
	case q.refs > 0:
		return inUse("queue counter", n, q.refs)
	}
	d.qctrs.remove(n)
	return nil
}

func (d *Device) cmdQueryQCounter(in, out []byte) *refusal {
	n := qcounterInCounterSetId.u32(in)
	q := d.qctrs.get(n)
	switch {
	case q == nil:
		return noObject("queue counter", n)
	case qcounterInAggregate.on(in) || inOtherVport.on(in):
		return badParam(codeCapability, "counters of other virtual ports")
	}
	qcounterOutOutOfBuffer.set(out, q.outOfBuffer)
	if qcounterInClear.on(in) {
		q.outOfBuffer = 0
	}
	return nil
}

// cmdCreateMkey makes a memory key: physical addresses, a page list, or a list
// of other keys.
func (d *Device) cmdCreateMkey(in, out []byte) *refusal {
	c := createMkeyMemoryKeyMkeyEntry.in(in)
	domain := d.pds.get(mkcPd.u32(c))
	if domain == nil {
		return noObject("PD", mkcPd.u32(c))
	}
	if no := d.checkMkey(in, c); no != nil {
		return no
	}
	m := mkey{
		pd:       domain.n,
		home:     domain.n,
		mode:     mkcAccessMode10.u8(c),
		lr:       mkcLr.on(c),
		lw:       mkcLw.on(c),
		umr:      mkcUmrEn.on(c),
		free:     mkcFree.on(c),
		length64: mkcLength64.on(c),
		start:    mkcStartAddr.get(c),
		length:   mkcLen.get(c),
		logPage:  mkcLogPageSize.u8(c),
	}
	if no := m.translations(in, c); no != nil {
		return no
	}
	made := d.mkeys.add(func(n uint32) *mkey {
		m.n = n<<8 | mkcMkey70.u32(c)
		return &m
	})
	if made == nil {
		return tooMany("mkey", d.mkeys.live)
	}
	domain.refs++
	outNumber.set(out, uint64(made.n>>8))
	return nil
}

// checkMkey checks what of a context needs no memory.
func (d *Device) checkMkey(in, c []byte) *refusal {
	mode := mkcAccessMode42.get(c)<<2 | mkcAccessMode10.get(c)
	logPage := mkcLogPageSize.get(c)
	switch {
	case createMkeyMkeyUmemValid.on(in) || createMkeyDataDirect.on(in):
		return badParam(codeCapability, "user memory objects")
	case mode > accessKSM:
		return badParam(codeCapability, "access mode %d", mode)
	case mkcQpn.get(c) != 0xffffff:
		return badParam(codeRange, "QPN %#x: write 0xffffff, there are no QPs", mkcQpn.get(c))
	case mkcBsfEn.on(c) || mkcBsfOctwordSize.on(c) || mkcSyncUmr.on(c):
		return badParam(codeCapability, "signatures")
	case mkcRelaxedOrderingWrite.on(c) && !d.gen(capRelaxedOrderingWrite):
		return badParam(codeCapability, "relaxed ordering of writes")
	case mkcRelaxedOrderingRead.on(c) && !d.gen(capRelaxedOrderingRead):
		return badParam(codeCapability, "relaxed ordering of reads")
	case mode != accessPA && mkcLength64.on(c):
		return badParam(codeMismatch, "length64 is for physical addresses")
	case mode != accessPA && logPage > 31:
		return badParam(codeRange, "pages of 2^%d bytes", logPage)
	case mode == accessMTT && logPage < 12:
		return badParam(codeRange, "pages of 2^%d bytes: 2^12 is the least", logPage)
	case mkcFree.on(c) && !mkcUmrEn.on(c):
		return badParam(codeMismatch, "a free key that no UMR may fill")
	case (mode == accessKLM || mode == accessKSM) && mkcTranslationsOctwordSize.get(c) > 1<<d.genVal(capLogMaxKlmListSize):
		return badParam(codeRange, "%d translation entries", mkcTranslationsOctwordSize.get(c))
	}
	return nil
}

// translations reads the translation entries that come with the context.
func (m *mkey) translations(in, c []byte) *refusal {
	size := mkcTranslationsOctwordSize.get(c)
	given := createMkeyTranslationsOctwordActualSize.get(in)
	list := createMkeyKlmPasMtt.in(in)
	switch {
	case m.mode == accessPA && (size != 0 || given != 0):
		return badParam(codeMismatch, "translation entries for physical addresses")
	case m.mode == accessPA:
		return nil
	case size == 0 && m.mode == accessKSM:
		return badParam(synKSMEmpty, "no translation entries")
	case size == 0 || size > longestTranslation:
		return badParam(codeRange, "%d octowords of translation entries", size)
	case given > size:
		return badParam(codeMismatch, "%d octowords given for a key of %d", given, size)
	case uint64(len(list)) < 16*given:
		return refuse(statBadInLen, codeLength, "%d octowords announced, %d bytes in the message", given, len(list))
	}
	if m.mode == accessMTT {
		return m.pageList(list, int(size), int(given))
	}
	m.klms = make([]klm, size)
	for i := range m.klms[:given] {
		m.klms[i] = klm{be32(list, 16*i), be32(list, 16*i+4), be64(list, 16*i+8)}
	}
	return nil
}

// pageList reads MTTs, two an octoword: an address and permissions in its low
// bits.
func (m *mkey) pageList(list []byte, size, given int) *refusal {
	page := uint64(1) << m.logPage
	most := 2 * uint64(size) * page
	if m.length > most || m.start%page+m.length > most {
		return badParam(codeMismatch, "%d pages for %d bytes", 2*size, m.length)
	}
	m.mtt = make([]uint64, 2*size)
	for i := range m.mtt[:2*given] {
		m.mtt[i] = be64(list, 8*i)
		if m.mtt[i]&^3%page != 0 {
			return badParam(codeAlign, "translation entry %d is %#x", i, m.mtt[i])
		}
	}
	return nil
}

func (d *Device) cmdQueryMkey(in, out []byte) *refusal {
	n := inNumber.u32(in)
	m := d.mkeys.get(n)
	if m == nil {
		return noObject("mkey", n)
	}
	c := queryMkeyOutMemoryKeyMkeyEntry.in(out)
	mkcFree.flag(c, m.free)
	mkcAccessMode10.set(c, uint64(m.mode))
	mkcUmrEn.flag(c, m.umr)
	mkcLr.flag(c, m.lr)
	mkcLw.flag(c, m.lw)
	mkcLength64.flag(c, m.length64)
	mkcQpn.set(c, 0xffffff)
	mkcMkey70.set(c, uint64(m.n&0xff))
	mkcPd.set(c, uint64(m.pd))
	mkcStartAddr.set(c, m.start)
	mkcLen.set(c, m.length)
	mkcLogPageSize.set(c, uint64(m.logPage))
	mkcTranslationsOctwordSize.set(c, uint64(len(m.klms)+len(m.mtt)/2))
	return nil
}

func (d *Device) cmdDestroyMkey(in, _ []byte) *refusal {
	n := inNumber.u32(in)
	m := d.mkeys.get(n)
	if m == nil {
		return noObject("mkey", n)
	}
	if p := d.pds.get(m.home); p != nil {
		p.refs--
	}
	d.mkeys.remove(n)
	return nil
}

// cmdQuerySpecialContexts names the keys with a meaning of their own. None of
// the optional ones is advertised, and no queue may use the reserved one.
func (d *Device) cmdQuerySpecialContexts(_, out []byte) *refusal {
	specialResdLkey.set(out, reservedLkey)
	return nil
}

// reservedLkey is below every key that CREATE_MKEY hands out.
const reservedLkey = 0x700
