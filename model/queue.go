package model

// queue.go owns event and completion queues: rings in host memory, owner bits,
// arming, moderation and overrun, and the doorbells that go with them. It does
// not know what a completion says; send.go, receive.go and compress.go do.
// Manual: chapters "Event queues", "Completion queues" and "UAR page".
//
// Order within a turn: entry first, last 8 bytes of it at once, then the event,
// then the interrupt. An arm that comes too late is answered at once.

import (
	"fmt"
	"time"
)

// Places in completion and event queue entries, in bytes.
const (
	eqeType    = 1  // eqe.type
	eqeSubType = 3  // eqe.sub_type
	eqeData    = 32 // eqe.data
	eqeOwner   = 63 // eqe.owner

	eqeCompCQN  = 24 // eqe_comp.cqn
	eqeCQErrCQN = 0  // eqe_cq_err.cqn
	eqeCQErrSyn = 11 // eqe_cq_err.syndrome
	eqeWQType   = 20 // eqe_qp_srq.type
	eqeWQNumber = 24 // eqe_qp_srq.qp_srq_n

	cqeTunneled  = 0  // cqe64.tls_outer_l3_tunneled
	cqeWQEID     = 2  // cqe64.wqe_id
	cqeHash      = 12 // cqe64.rss_hash_result
	cqeHashType  = 16 // cqe64.rss_hash_type
	cqeCheckSum  = 20 // cqe64.check_sum
	cqeOK        = 28 // cqe64.hds_ip_ext
	cqeHdrType   = 29 // cqe64.l4_l3_hdr_type
	cqeVLAN      = 30 // cqe64.vlan_info
	cqeSRQN      = 32 // cqe64.srqn
	cqeByteCnt   = 44 // cqe64.byte_cnt
	cqeTimestamp = 48 // cqe64.timestamp_h
	cqeVendorSyn = 54 // err_cqe.vendor_err_synd
	cqeSyndrome  = 55 // err_cqe.syndrome
	cqeQPN       = 56 // cqe64.sop_drop_qpn
	cqeCounter   = 60 // cqe64.wqe_counter
	cqeSignature = 62 // cqe64.signature
	cqeOpOwn     = 63 // cqe64.op_own
	cqeHWError   = 52 // not in the public headers: hardware error code, then its type
)

// Values in them.
const (
	cqeReq         = 0x0 // cqe_opcode.MLX5_CQE_REQ
	cqeRespSend    = 0x2 // cqe_opcode.MLX5_CQE_RESP_SEND
	cqeReqErr      = 0xd // cqe_opcode.MLX5_CQE_REQ_ERR
	cqeRespErr     = 0xe // cqe_opcode.MLX5_CQE_RESP_ERR
	cqeOpShift     = 4   // cqe_shift.CQE_OPCODE_SHIFT
	cqeFormatShift = 2   // cqe_shift.CQE_FORMAT_SHIFT
	cqeSendShift   = 24  // cqe_shift.CQE_SEND_OPCODE_SHIFT
	cqeSolicited   = 0x2 // wqe_ctrl_flag.MLX5_WQE_CTRL_SOLICITED, the same bit in op_own

	eventComp         = 0x0  // event_type.MLX5_EVENT_TYPE_COMP
	eventCQError      = 0x4  // event_type.MLX5_EVENT_TYPE_CQ_ERROR
	eventWQCatas      = 0x5  // event_type.MLX5_EVENT_TYPE_WQ_CATAS_ERROR
	eventWQAccess     = 0x11 // event_type.MLX5_EVENT_TYPE_WQ_ACCESS_ERROR
	eventFromRQ       = 0x1  // event_queue_type.MLX5_EVENT_QUEUE_TYPE_RQ
	eventFromSQ       = 0x2  // event_queue_type.MLX5_EVENT_QUEUE_TYPE_SQ
	cqOverrun         = 0x1  // event_cq_error_syndrome.MLX5_CQ_ERROR_SYNDROME_CQ_OVERRUN
	cqAccessViolation = 0x2  // event_cq_error_syndrome.MLX5_CQ_ERROR_SYNDROME_CQ_ACCESS_VIOLATION_ERROR

	recCQConsumer = 0 // db_record.DB_RECORD_CQ_SET_CI_DWORD
	recCQArm      = 1 // db_record.DB_RECORD_CQ_ARM_DWORD
	recRQ         = 0 // db_record.MLX5_RCV_DBR
	recSQ         = 1 // db_record.MLX5_SND_DBR

	ci24          = 0xffffff  // uar.CQ_DOORBELL_CI_MASK, uar.EQ_DOORBELL_CI_MASK
	armShift      = 28        // uar.CQ_DOORBELL_SN_SHIFT
	armMask       = 0x3       // uar.CQ_DOORBELL_SN_MASK
	armSolicited  = 0x1000000 // cq_doorbell_cmd.MLX5_CQ_DB_REQ_NOT_SOL
	armFreshShift = 0x2       // the sequence number of a record never armed: cq_doorbell_cmd.MLX5_CQ_INIT_CMD_SN >> 28

	eqeSize = 64 // eqe.MLX5_EQE_SIZE
	cqeSize = 64 // the short completion; a long one has it in its second half
)

// chunkBits is the grain in which ring pages are translated: host mappings may
// be as small as the smallest page.
const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
)

// cqRun is what a CQ keeps between completions.
type cqRun struct {
	rec       recordCache
	ci        uint32 // consumer as last read from the record, 24 bits
	solicited uint32 // pi after the last solicited completion
	events    uint64 // completion events sent
	spentSN   uint32 // arm sequence number of the last event
	armWord   uint32 // last arm word seen in the record
	lastEvent time.Time
	onTimer   bool // in scratch.timed
}

// scratch is working memory of the data path, and its counts.
type scratch struct {
	now     time.Time // of this turn
	stamped time.Time // what ticks and utc were computed for
	ticks   uint64
	utc     uint64
	pci     pciMeter
	timed   []*cq // CQs whose event waits for moderation
	open    []*cq // CQs with an open compression session
	wqe     [wqeMax]byte
	flame   flame
	frame   []byte
	segment []byte
	sum     SQStats // of the SQ that runs now
	pkt     packet
	match   matchParam
	hits    []*flowEntry
	dests   []rxDest
	steer   steerState
	list    []scatterSeg
	luts    []*toeplitzTable
}

// translate looks up the host bytes of the ring's pages.
func (d *Device) translate(r *ring, write bool) {
	r.gen, r.write = d.mem.gen, write
	size := r.offset&^63 + uint64(1)<<r.logSize<<r.stride
	pages := uint64(len(r.pas))
	r.host = r.host[:0]
	for off := uint64(0); off < size; off += chunkSize {
		page := off >> r.logPage
		if page >= pages {
			break
		}
		at := r.pas[page]&^(chunkSize-1) + off&(1<<r.logPage-1)
		r.host = append(r.host, d.mem.at(at, chunkSize, write))
	}
}

// ringEntry returns entry i (modulo the size) of a ring that the device reads,
// or nil, counted as a fault, where it is not mapped.
func (d *Device) ringEntry(r *ring, i uint32) []byte {
	if r.gen != d.mem.gen || r.write {
		d.translate(r, false)
	}
	return d.entry(r, i)
}

// ringSlot is ringEntry for a ring that the device writes.
func (d *Device) ringSlot(r *ring, i uint32) []byte {
	if r.gen != d.mem.gen || !r.write {
		d.translate(r, true)
	}
	return d.entry(r, i)
}

// place is how far entry i (modulo the size) lies behind the ring's first page.
func (r *ring) place(i uint32) uint64 {
	return r.offset&^63 + uint64(i&(1<<r.logSize-1))<<r.stride
}

func (d *Device) entry(r *ring, i uint32) []byte {
	off := r.place(i)
	lo, hi := off&(chunkSize-1), off&(chunkSize-1)+1<<r.stride
	if c := off >> chunkBits; c < uint64(len(r.host)) && hi <= uint64(len(r.host[c])) {
		return r.host[c][lo:hi:hi]
	}
	d.ringFault(r, off)
	return nil
}

// ringFault counts an entry that no mapping holds.
func (d *Device) ringFault(r *ring, off uint64) {
	at := off
	if page := off >> r.logPage; page < uint64(len(r.pas)) {
		at = r.pas[page]&^(chunkSize-1) + off&(1<<r.logPage-1)
	}
	d.fault(at, 1<<r.stride, "ring entry")
}

// postEQE writes an event to e and interrupts if the host waits for one. data
// is the event's own part, at most 28 bytes.
func (d *Device) postEQE(e *eq, typ, sub uint8, data []byte) {
	if e == nil || e.failed {
		return
	}
	if !e.oi && e.pi-e.ci >= 1<<e.ring.logSize {
		e.failed = true
		d.stats.Overruns++
		return
	}
	slot := d.ringSlot(&e.ring, e.pi)
	if len(slot) < eqeSize {
		e.failed = true
		return
	}
	var b [eqeSize]byte
	b[eqeType], b[eqeSubType] = typ, sub
	copy(b[eqeData:eqeData+28], data)
	b[eqeOwner] = byte(e.pi>>e.ring.logSize) & 1
	publish(slot, &b)
	e.pi++
	d.stats.EQEs++
	d.work.pci.count(PCIEQEWrite, 0, eqeSize)
	if e.armed {
		e.armed = false
		d.work.pci.count(PCIInterrupt, 0, 4)
		d.interrupt(e.vector)
	}
}

// event posts to every EQ that asked for this type of event; without one it is
// lost, as on silicon.
func (d *Device) event(typ, sub uint8, data []byte) {
	d.eqs.each(func(e *eq) {
		if e.mask>>(typ&63)&1 != 0 {
			d.postEQE(e, typ, sub, data)
		}
	})
}

// workQueueEvent reports that queue n of kind eventFromSQ or eventFromRQ broke.
func (d *Device) workQueueEvent(typ uint8, kind uint8, n uint32) {
	var data [28]byte
	data[eqeWQType] = kind
	putBE32(data[:], eqeWQNumber, n)
	d.event(typ, 0, data[:])
}

// badDoorbell counts a doorbell that makes no sense, and keeps why for the first.
func (d *Device) badDoorbell(format string, a ...any) {
	if d.stats.BadDoorbells++; d.stats.BadDoorbell == "" {
		d.stats.BadDoorbell = fmt.Sprintf(format, a...)
	}
}

// doorbellEQ executes a write to an EQ register: consumer index and, if arm,
// the wish for one interrupt.
func (d *Device) doorbellEQ(n uint32, ci uint32, arm bool) {
	d.work.pci.count(PCIArm, 0, 4)
	e := d.eqs.get(n)
	if e == nil {
		d.badDoorbell("EQ %#x is not there", n)
		return
	}
	behind := (e.pi - ci) & ci24
	if behind > 1<<e.ring.logSize && !e.oi { // consumed what was never produced
		d.badDoorbell("EQ %#x: consumer %#x, producer %#x", n, ci, e.pi)
		return
	}
	e.ci = e.pi - behind
	if !arm {
		return
	}
	d.stats.EQArms++
	e.armed = behind == 0
	if !e.armed {
		d.work.pci.count(PCIInterrupt, 0, 4)
		d.interrupt(e.vector)
	}
}

// doorbellCQ executes a write to the CQ register: hi is the arm word (sequence
// number, kind and consumer index), lo the CQ number.
func (d *Device) doorbellCQ(hi, lo uint32) {
	d.work.pci.count(PCIArm, 0, 8)
	c := d.cqs.get(lo & ci24)
	if c == nil {
		d.badDoorbell("CQ %#x is not there", lo&ci24)
		return
	}
	c.run.armWord = hi // the record says the same
	d.armCQ(c, hi)
}

// armCQ asks for one event for completions beyond the consumer index in word.
// The sequence number must differ from that of the last event, so that a word
// that is read twice arms once. It reports whether the word was news.
func (d *Device) armCQ(c *cq, word uint32) bool {
	sn := word >> armShift & armMask
	if c.run.events == 0 && sn == armFreshShift || c.run.events > 0 && sn == c.run.spentSN {
		return false
	}
	if c.period != 0 {
		d.work.now = time.Now()
	}
	d.stats.CQArms++
	c.armSN = sn
	c.armSol = word&armSolicited != 0
	ci := word & ci24
	behind := (c.pi - ci) & ci24
	if behind > ci24/2 && !c.oi { // consumed what was never produced
		d.badDoorbell("CQ %#x: consumer %#x, producer %#x", c.n, ci, c.pi)
		return true
	}
	// An arm in memory may be read late, when the host has long gone on without
	// an event: more than a ring behind is old, not wrong.
	if c.armSol {
		// Only solicited completions beyond ci count.
		behind = uint32(max(0, int32((c.run.solicited-ci)<<8)>>8))
	}
	if behind > 0 {
		d.eventCQ(c)
		return true
	}
	c.armed, c.pending = true, 0
	return true
}

// eventCQ sends the event that c was armed for.
func (d *Device) eventCQ(c *cq) {
	c.armed, c.pending = false, 0
	c.due = time.Time{}
	c.run.spentSN = c.armSN
	c.run.events++
	if c.period != 0 {
		c.run.lastEvent = d.work.now
	}
	var data [28]byte
	putBE32(data[:], eqeCompCQN, c.n)
	d.postEQE(d.eqs.get(c.eqn), eventComp, 0, data[:])
}

// signal decides, after n completions, whether the event goes now or waits.
func (d *Device) signal(c *cq, n uint32, solicited bool) {
	if solicited {
		c.run.solicited = c.pi
	}
	if !c.armed || c.armSol && !solicited {
		return
	}
	if c.period == 0 {
		d.eventCQ(c)
		return
	}
	c.pending += uint16(min(n, 1<<16-1-uint32(c.pending)))
	if c.maxCount != 0 && c.pending >= c.maxCount {
		d.eventCQ(c)
		return
	}
	period := time.Duration(c.period) * time.Microsecond
	switch {
	case c.fromCQE: // every completion starts the period anew
		c.due = d.work.now.Add(period)
	case c.due.IsZero():
		c.due = c.run.lastEvent.Add(period)
		if !c.due.After(d.work.now) {
			d.eventCQ(c)
			return
		}
	}
	if !c.run.onTimer {
		c.run.onTimer = true
		d.work.timed = append(d.work.timed, c)
	}
}

// cqTimers sends the events whose moderation period is over.
func (d *Device) cqTimers(now time.Time) bool {
	if len(d.work.timed) == 0 {
		return false
	}
	d.work.now = now
	did := false
	kept := d.work.timed[:0]
	for _, c := range d.work.timed {
		if d.cqs.get(c.n) != c || !c.armed || c.due.IsZero() {
			c.run.onTimer = false
			continue
		}
		if c.due.After(now) {
			kept = append(kept, c)
			continue
		}
		c.run.onTimer = false
		did = true
		d.eventCQ(c)
	}
	clear(d.work.timed[len(kept):])
	d.work.timed = kept
	return did
}

// pushCQE completes e on c: owner bit and signature are set here. It reports
// false where the CQ has failed or fails now.
func (d *Device) pushCQE(c *cq, e *[cqeSize]byte) bool {
	if c.session.n > 0 {
		d.flushSession(c)
	}
	if !d.cqRoom(c, 1) {
		return false
	}
	solicited := e[cqeOpOwn]&cqeSolicited != 0 || e[cqeOpOwn]>>cqeOpShift >= cqeReqErr
	e[cqeOpOwn] = e[cqeOpOwn]&^1 | byte(c.pi>>c.ring.logSize)&1
	sign(c.pi, e)
	if !d.storeCQE(c, c.pi, e) {
		return false
	}
	c.pi++
	d.stats.CQEs++
	d.signal(c, 1, solicited)
	return true
}

// storeCQE writes one entry of the ring without advancing it.
func (d *Device) storeCQE(c *cq, i uint32, e *[cqeSize]byte) bool {
	slot := d.ringSlot(&c.ring, i)
	if len(slot) < cqeSize {
		d.failCQ(c, cqAccessViolation)
		return false
	}
	if len(slot) >= 2*cqeSize {
		clear(slot[:cqeSize])
		slot = slot[cqeSize : 2*cqeSize]
	}
	publish(slot, e)
	d.work.pci.count(PCICQEWrite, 0, cqeSize)
	return true
}

// cqRoom reports whether n more completions fit; if not, c fails.
func (d *Device) cqRoom(c *cq, n uint32) bool {
	if c.failed {
		return false
	}
	size := uint32(1) << c.ring.logSize
	if c.oi || (c.pi-c.run.ci+n-1)&ci24 < size {
		return true
	}
	if ci, ok := d.loadRecord(&c.run.rec, c.dbr, recCQConsumer); ok {
		c.run.ci = ci
	}
	if (c.pi-c.run.ci)&ci24+n <= size {
		return true
	}
	d.stats.Overruns++
	d.failCQ(c, cqOverrun)
	return false
}

// FailCQ makes a completion queue overrun, whatever is in it, and reports whether there
// is one of that number. It is for tests of hosts.
func (d *Device) FailCQ(cqn uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.cqs.get(cqn)
	if c == nil || c.failed {
		return false
	}
	d.stats.Overruns++
	d.failCQ(c, cqOverrun)
	return true
}

// failCQ puts c out of service and says so.
func (d *Device) failCQ(c *cq, syndrome uint8) {
	c.failed = true
	var data [28]byte
	putBE32(data[:], eqeCQErrCQN, c.n)
	data[eqeCQErrSyn] = syndrome
	d.event(eventCQError, 0, data[:])
}

// sign sets the signature byte: all 64 bytes and those of the running counter
// together have odd parity in every bit. Learned from recorded completions.
func sign(counter uint32, e *[cqeSize]byte) {
	e[cqeSignature] = 0
	v := be64(e[:], 0) ^ be64(e[:], 8) ^ be64(e[:], 16) ^ be64(e[:], 24) ^
		be64(e[:], 32) ^ be64(e[:], 40) ^ be64(e[:], 48) ^ be64(e[:], 56)
	w := uint32(v) ^ uint32(v>>32) ^ counter&ci24
	w ^= w >> 16
	e[cqeSignature] = ^byte(w ^ w>>8)
}

// stamp is the time in a completion: ticks of the free-running clock, or
// seconds and nanoseconds.
func (d *Device) stamp(format uint8) uint64 {
	w := &d.work
	if w.stamped != w.now {
		w.stamped = w.now
		w.ticks = d.clock(w.now)
		sec, nsec := d.realTime(w.now)
		w.utc = uint64(sec)<<32 | uint64(nsec)
	}
	if format == tsRealTime {
		return w.utc
	}
	return w.ticks
}

// pollRecords takes up what hosts that write BAR0 as plain memory say in
// doorbell records alone: producers of send queues and arms of CQs.
func (d *Device) pollRecords() bool {
	did := false
	for _, q := range d.sqs.list {
		if q.state != sqRST && d.polled(q) && d.runSQ(q, sqBudget) {
			did = true
		}
	}
	for _, c := range d.cqs.list {
		word, ok := d.loadRecord(&c.run.rec, c.dbr, recCQArm)
		if ok && word != c.run.armWord {
			c.run.armWord = word
			did = d.armCQ(c, word) || did
		}
	}
	return did
}
