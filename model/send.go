package model

// send.go owns send queues: the producer's record, fetching and checking work
// requests, gathering frames, completions, errors and the flush after one. It
// does not change headers (offload.go) or memory keys (umr.go).
// Manual: chapter "Send queue", sections on WQE formats and completion errors.
//
// Every WQE is copied before it is looked at: the host may change it meanwhile.
// Order: frames leave, then the completion is written, then its event.

import "time"

// Places in a send WQE, in bytes.
const (
	ctrlOpcode = 0  // wqe_ctrl_seg.opmod_idx_opcode
	ctrlQPNDS  = 4  // wqe_ctrl_seg.qpn_ds
	ctrlFlags  = 11 // wqe_ctrl_seg.fm_ce_se
	ctrlImm    = 12 // wqe_ctrl_seg.imm

	esegAt       = 16 // tx_wqe.eth
	esegSWP      = 0  // wqe_eth_seg.swp_outer_l4_offset
	esegCsum     = 4  // wqe_eth_seg.cs_flags
	esegSWPFlags = 5  // wqe_eth_seg.swp_flags
	esegMSS      = 6  // wqe_eth_seg.mss
	esegMeta     = 8  // wqe_eth_seg.flow_table_metadata
	esegInline   = 12 // wqe_eth_seg.inline_hdr.sz
	esegStart    = 14 // wqe_eth_seg.inline_hdr.start
	esegTCI      = 14 // wqe_eth_seg.insert.vlan_tci

	dsegCount = 0 // wqe_data_seg.byte_count
	dsegKey   = 4 // wqe_data_seg.lkey
	dsegAddr  = 8 // wqe_data_seg.addr
	inlineAt  = 4 // wqe_inline_seg.data
)

// Values in it.
const (
	opNOP         = 0x00 // wqe_opcode.MLX5_OPCODE_NOP
	opSend        = 0x0a // wqe_opcode.MLX5_OPCODE_SEND
	opLSO         = 0x0e // wqe_opcode.MLX5_OPCODE_LSO
	opUMR         = 0x25 // wqe_opcode.MLX5_OPCODE_UMR
	opMPSW        = 0x29 // wqe_opcode.MLX5_OPCODE_ENHANCED_MPSW
	dsMask        = 0x3f // wqe_ctrl_mask.MLX5_WQE_CTRL_DS_MASK
	qpnShift      = 8    // wqe_ctrl_mask.MLX5_WQE_CTRL_QPN_SHIFT
	indexShift    = 8    // wqe_ctrl_mask.MLX5_WQE_CTRL_WQE_INDEX_SHIFT
	wantCQE       = 0x8  // wqe_ctrl_flag.MLX5_WQE_CTRL_CQ_UPDATE
	wantSolicited = 0x2  // wqe_ctrl_flag.MLX5_WQE_CTRL_SOLICITED
	dsBytes       = 16   // wqe_size.MLX5_SEND_WQE_DS
	wqebbBytes    = 64   // wqe_size.MLX5_SEND_WQE_BB
	wqeMax        = 1024 // wqe_size.MLX5_SEND_WQE_MAX_SIZE, the profiles' max_wqe_sz_sq

	inlineSegment = 0x80000000 // wqe_data_flag.MLX5_INLINE_SEG
	inlineMask    = 0x3ff      // wqe_data_flag.MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK
	insertVLAN    = 0x8000     // wqe_eth_insert_flag.MLX5_ETH_WQE_INSERT_VLAN
	insertSVLAN   = 0x1        // wqe_eth_insert_flag.MLX5_ETH_WQE_SVLAN
	inlineNone    = 0x0        // wqe_inline_mode.MLX5_INLINE_MODE_NONE
	inlineIP      = 0x2        // wqe_inline_mode.MLX5_INLINE_MODE_IP
)

// Limits of one work request.
const (
	frameMin = 14      // an Ethernet header
	framePad = 60      // what the MAC pads to, without FCS
	fcsBytes = 4       // of every frame on the wire
	sendMax  = 1 << 16 // bytes of one frame that are gathered
	lsoMax   = 1 << 18 // payload of one LSO request: max_lso_cap 18
	sqBudget = 1 << 16 // WQEs of one turn: more than any ring has
)

// failure is what an error completion says: hardware error and its type, then
// vendor and standard syndrome. The zero value is success. Recorded from real
// completions where one is known for the cause.
type failure struct{ hw, kind, vendor, syndrome uint8 }

var (
	failNone       = failure{}
	failInline     = failure{0x60, 0x10, 0x68, synLocalLength} // headers not inlined, or a length that cannot be
	failOpcode     = failure{0x01, 0x00, 0x68, synLocalOp}     // not a WQE, or one this queue must not execute
	failUMRSize    = failure{0x86, 0x00, 0x68, synLocalOp}     // translation not aligned
	failProtection = failure{0x9d, 0x00, 0x53, synLocalProt}   // memory key or address
	failUMRSmall   = failure{0x0f, 0x00, 0x78, synBind}        // update beyond the memory key
	failUMRGone    = failure{0x08, 0x00, 0x78, synBind}        // memory key to update does not exist
	failRxTooLong  = failure{0x00, 0x00, 0x68, synLocalLength} // frame longer than the posted buffer
	failRxProt     = failure{0x93, 0x00, 0x32, synLocalProt}   // posted buffer cannot be written
)

const vendorFlushed = 0xf9 // vendor syndrome of a work request behind a bad one

const (
	synLocalLength = 0x1 // cqe_syndrome.MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR
	synLocalOp     = 0x2 // cqe_syndrome.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
	synLocalProt   = 0x4 // cqe_syndrome.MLX5_CQE_SYNDROME_LOCAL_PROT_ERR
	synFlush       = 0x5 // cqe_syndrome.MLX5_CQE_SYNDROME_WR_FLUSH_ERR
	synBind        = 0x6 // cqe_syndrome.MLX5_CQE_SYNDROME_MW_BIND_ERR
)

// sqRun is what an SQ keeps between turns.
type sqRun struct {
	// What a record held when its queue started again says nothing: the host
	// starts at 0 and writes it first with its next work. So it is not polled
	// until it changes or a doorbell is rung.
	stale uint32
	rung  bool
	rec   recordCache
	cause failure // that put it into the error state
	// fetched is the block up to which reads of the ring have been counted.
	fetched uint32
}

// sendWQE is one work request, copied.
type sendWQE struct {
	b      []byte // ds * 16 bytes
	opcode uint8
	flags  uint8
	bbs    uint32 // WQEBBs in the ring
}

// doorbellSQ executes a write to a send doorbell register: the first 8 bytes of
// the last WQE's control segment. Only the queue number matters; the producer
// is in the record.
func (d *Device) doorbellSQ(first8 uint64) { d.ringSQ(uint32(first8)>>qpnShift, 8) }

// ringSQ is a doorbell of so many bytes for queue n.
func (d *Device) ringSQ(n uint32, bytes int) {
	d.stats.Doorbells++
	d.work.pci.count(PCIDoorbell, 0, bytes)
	if d.script.MissDoorbell != nil && d.script.MissDoorbell(n) {
		return
	}
	q := d.sqs.get(n)
	if q == nil || q.state == sqRST {
		d.badDoorbell("SQ %#x is not there or was reset", n)
		return
	}
	q.sent.Doorbells++
	d.stats.SQ.Doorbells++
	q.run.rung = true
	d.runSQ(q, sqBudget)
}

// runSQ executes at most budget WQEs of q up to its producer and reports
// whether there was one.
func (d *Device) runSQ(q *sq, budget int) bool {
	if q.state == sqRST || d.script.StallSQ != nil && d.script.StallSQ(q.n) {
		return false
	}
	word, ok := d.loadRecord(&q.run.rec, q.dbr, recSQ)
	if !ok {
		return false
	}
	posted := uint32(uint16(word) - uint16(q.ci))
	q.pi = q.ci + posted
	if posted == 0 {
		return false
	}
	if posted > 1<<q.ring.logSize {
		d.breakSQ(q, eventWQCatas)
		return true
	}
	d.work.pci.count(PCIRecordRead, q.dbr, 4)
	d.work.now = time.Now()
	d.work.sum = SQStats{}
	for n := 0; n < budget && q.ci != q.pi; n++ {
		if q.state == sqERR {
			d.flushWQE(q)
			continue
		}
		d.executeWQE(q)
	}
	q.sent.add(&d.work.sum)
	d.stats.SQ.add(&d.work.sum)
	return true
}

// breakSQ takes q out of service where no completion can tell why, and drops
// what it holds.
func (d *Device) breakSQ(q *sq, event uint8) {
	if q.state != sqERR {
		d.workQueueEvent(event, eventFromSQ, q.n)
	}
	d.badDoorbell("SQ %#x broke at %#x, producer %#x", q.n, q.ci, q.pi)
	q.state = sqERR
	q.run.cause = failOpcode
	q.ci = q.pi
}

// executeWQE runs the WQE at q's consumer.
func (d *Device) executeWQE(q *sq) {
	w, fail, ok := d.fetchWQE(q)
	if !ok {
		d.breakSQ(q, eventWQAccess)
		return
	}
	if fail == failNone {
		fail = d.perform(q, &w)
	}
	first := q.ci
	q.ci += w.bbs
	if fail != failNone {
		q.state, q.run.cause = sqERR, fail
		d.completeError(q, first, w.opcode, fail)
		return
	}
	if w.flags&wantCQE != 0 {
		d.complete(q, first, &w)
	}
}

// perform does what the WQE asks for.
func (d *Device) perform(q *sq, w *sendWQE) failure {
	switch w.opcode {
	case opNOP:
		d.work.sum.NOPs++
		return failNone
	case opSend:
		return d.send(q, w)
	case opMPSW:
		return d.sendMany(q, w)
	case opLSO:
		return d.sendLarge(q, w)
	case opUMR:
		return d.umr(q, w)
	}
	return failOpcode
}

// countFetch counts the reads that bring the ring up to block end. From a doorbell
// and its record the device knows how many blocks are posted, but not where WQEs
// begin among them: it reads whole blocks, NOPs included, as many at once as it
// may.
func (d *Device) countFetch(q *sq, end uint32) {
	at := &q.run.fetched
	if int32(*at-q.ci) < 0 || *at-q.ci > 1<<q.ring.logSize {
		*at = q.ci
	}
	for int32(end-*at) > 0 {
		n := d.work.pci.fetch(&q.ring, *at, q.pi-*at)
		d.work.pci.count(PCIWQEFetch, q.ring.place(*at), int(n)*wqebbBytes)
		*at += n
	}
}

// fetchWQE copies the WQE at q's consumer, from the ring or from where it came
// with the doorbell, and checks its control segment. It reports false where the
// ring is not mapped.
func (d *Device) fetchWQE(q *sq) (w sendWQE, fail failure, ok bool) {
	w.bbs = 1
	b := d.ringEntry(&q.ring, q.ci)
	if len(b) < wqebbBytes {
		return w, failNone, false
	}
	came := d.flamed(q, b)
	if came != nil {
		b = came
	}
	copy(d.work.wqe[:wqebbBytes], b)
	head, tail := be32(d.work.wqe[:], ctrlOpcode), be32(d.work.wqe[:], ctrlQPNDS)
	w.opcode = uint8(head)
	w.flags = d.work.wqe[ctrlFlags]
	ds := int(tail & dsMask)
	if ds > 0 {
		w.bbs = uint32(ds+3) / 4
	}
	if ds == 0 || w.bbs > q.pi-q.ci {
		w.bbs = 1
		return w, failOpcode, true
	}
	for i := uint32(1); i < w.bbs; i++ {
		b := d.ringEntry(&q.ring, q.ci+i)
		if len(b) < wqebbBytes {
			return w, failNone, false
		}
		copy(d.work.wqe[i*wqebbBytes:], b[:wqebbBytes])
	}
	w.b = d.work.wqe[:ds*dsBytes]
	s := &d.work.sum
	if came != nil {
		s.Flames++
	} else {
		d.countFetch(q, q.ci+w.bbs)
	}
	s.WQEs++
	s.WQEBytes += uint64(ds) * dsBytes
	s.RingBytes += uint64(w.bbs) * wqebbBytes
	if uint16(head>>indexShift) != uint16(q.ci) || tail>>qpnShift != q.n {
		return w, failOpcode, true
	}
	return w, failNone, true
}

// flushWQE completes the WQE at q's consumer without executing it.
func (d *Device) flushWQE(q *sq) {
	first := q.ci
	b := d.ringEntry(&q.ring, q.ci)
	if len(b) < wqebbBytes {
		q.ci = q.pi
		return
	}
	opcode := uint8(be32(b, ctrlOpcode))
	bbs := max(1, (be32(b, ctrlQPNDS)&dsMask+3)/4)
	q.ci += min(bbs, q.pi-q.ci)
	if q.flushErr {
		d.completeError(q, first, opcode, failure{q.run.cause.hw, 0, vendorFlushed, synFlush})
	}
}

// complete writes the completion of the WQE that starts at WQEBB first.
func (d *Device) complete(q *sq, first uint32, w *sendWQE) {
	c := d.cqs.get(q.cqn)
	if c == nil {
		return
	}
	var e [cqeSize]byte
	putBE32(e[:], cqeSRQN, q.userIndex)
	putBE64(e[:], cqeTimestamp, d.stamp(q.tsFormat))
	putBE32(e[:], cqeQPN, uint32(w.opcode)<<cqeSendShift|q.n)
	putBE16(e[:], cqeCounter, uint16(first))
	e[cqeOpOwn] = cqeReq<<cqeOpShift | w.flags&wantSolicited
	d.work.sum.CQEs++
	if !d.pushCQE(c, &e) {
		q.state, q.run.cause = sqERR, failOpcode
	}
}

// completeError writes an error completion: zero but for the fields set here.
func (d *Device) completeError(q *sq, first uint32, opcode uint8, f failure) {
	d.work.sum.Errors++
	c := d.cqs.get(q.cqn)
	if c == nil {
		return
	}
	var e [cqeSize]byte
	putBE32(e[:], cqeSRQN, q.userIndex)
	e[cqeHWError], e[cqeHWError+1] = f.hw, f.kind
	e[cqeVendorSyn], e[cqeSyndrome] = f.vendor, f.syndrome
	putBE32(e[:], cqeQPN, uint32(opcode)<<cqeSendShift|q.n)
	putBE16(e[:], cqeCounter, uint16(first))
	e[cqeOpOwn] = cqeReqErr<<cqeOpShift | cqeSolicited
	d.work.sum.CQEs++
	d.pushCQE(c, &e)
}

// eseg is the Ethernet segment, decoded.
type eseg struct {
	csum     uint8
	swp      [4]uint8 // outer L4, outer L3, inner L4, inner L3, in 2-byte units
	swpFlags uint8
	mss      int
	meta     uint32
	insert   bool
	svlan    bool
	tci      uint16
	inlined  int // header bytes in the WQE
}

func decodeEseg(b []byte) eseg {
	e := eseg{
		csum:     b[esegCsum],
		swp:      [4]uint8(b[esegSWP : esegSWP+4]),
		swpFlags: b[esegSWPFlags],
		mss:      int(be16(b, esegMSS)),
		meta:     be32(b, esegMeta),
	}
	v := be16(b, esegInline)
	if v&insertVLAN != 0 {
		e.insert, e.svlan, e.tci = true, v&insertSVLAN != 0, be16(b, esegTCI)
	} else {
		e.inlined = int(v)
	}
	return e
}

// plain reports that a frame leaves as it was gathered.
func (e *eseg) plain() bool { return e.csum == 0 && !e.insert }

// openFrame starts a frame with the inlined headers and returns where the data
// segments begin. Their first two bytes lie within the Ethernet segment.
func (d *Device) openFrame(w *sendWQE, e *eseg) (next int, fail failure) {
	d.work.frame = d.work.frame[:0]
	next = esegAt + dsBytes
	if e.inlined == 0 {
		return next, failNone
	}
	start := esegAt + esegStart
	end := start + e.inlined
	if end > len(w.b) {
		return next, failInline
	}
	d.work.frame = append(d.work.frame, w.b[start:end]...)
	d.work.sum.Inline += uint64(e.inlined)
	return max(next, roundDS(end)), failNone
}

// roundDS rounds an offset up to whole 16-byte units.
func roundDS(n int) int { return (n + dsBytes - 1) &^ (dsBytes - 1) }

// appendSegment adds the data segment at off to the frame, which may grow to
// limit bytes, and returns where the next one begins.
func (d *Device) appendSegment(q *sq, w *sendWQE, off, limit int) (next int, fail failure) {
	count := be32(w.b, off+dsegCount)
	have := len(d.work.frame)
	if count&inlineSegment != 0 {
		n := int(count &^ inlineSegment)
		end := off + inlineAt + n
		if n > inlineMask || end > len(w.b) || have+n > limit {
			return off, failInline
		}
		d.work.frame = append(d.work.frame, w.b[off+inlineAt:end]...)
		d.work.sum.Inline += uint64(n)
		return roundDS(end), failNone
	}
	// A count of 0 means 2^31 bytes, more than any frame has.
	n := int(count)
	if n == 0 || have+n > limit {
		return off, failInline
	}
	if have+n > cap(d.work.frame) {
		grown := make([]byte, have, max(2*cap(d.work.frame), have+n, 4096))
		copy(grown, d.work.frame)
		d.work.frame = grown
	}
	d.work.frame = d.work.frame[:have+n]
	s := &d.work.sum
	s.DataReads++
	s.DataBytes += uint64(n)
	from := be64(w.b, off+dsegAddr)
	d.work.pci.count(PCIDataRead, from, n)
	if !d.readKey(q.pd, be32(w.b, off+dsegKey), from, d.work.frame[have:have+n]) {
		return off, failProtection
	}
	return off + dsBytes, failNone
}

// gather collects inlined headers and all data segments into one frame.
func (d *Device) gather(q *sq, w *sendWQE, e *eseg, limit int) failure {
	off, fail := d.openFrame(w, e)
	for fail == failNone && off+dsBytes <= len(w.b) {
		off, fail = d.appendSegment(q, w, off, limit)
	}
	return fail
}

// send executes SEND: one frame.
func (d *Device) send(q *sq, w *sendWQE) failure {
	if len(w.b) < esegAt+dsBytes {
		return failOpcode
	}
	e := decodeEseg(w.b[esegAt : esegAt+dsBytes])
	if fail := d.gather(q, w, &e, sendMax); fail != failNone {
		return fail
	}
	if len(d.work.frame) < frameMin || !d.inlineEnough(q, &e, e.inlined) {
		return failInline
	}
	d.emit(&e)
	return failNone
}

// sendMany executes ENHANCED_MPSW: one frame for each data segment. What was
// sent before a bad segment stays sent. The queue's allow_multi_pkt_send_wqe is
// about the older kind of multi-packet work request: this one needs the
// capability alone.
func (d *Device) sendMany(q *sq, w *sendWQE) failure {
	if !d.eth(ethEnhancedMultiPktSendWqe) || len(w.b) < esegAt+dsBytes {
		return failOpcode
	}
	d.work.sum.MPWQEs++
	e := decodeEseg(w.b[esegAt : esegAt+dsBytes])
	if e.inlined != 0 {
		return failInline
	}
	for off := esegAt + dsBytes; off+dsBytes <= len(w.b); {
		d.work.frame = d.work.frame[:0]
		inlined := be32(w.b, off+dsegCount)&inlineSegment != 0
		next, fail := d.appendSegment(q, w, off, sendMax)
		if fail != failNone {
			return fail
		}
		given := 0
		if inlined {
			given = len(d.work.frame)
		}
		if len(d.work.frame) < frameMin || !d.inlineEnough(q, &e, given) {
			return failInline
		}
		d.work.sum.MPWPackets++
		d.emit(&e)
		off = next
	}
	return failNone
}

// inlineEnough reports whether the WQE carries the headers that the queue or
// the vport demands.
func (d *Device) inlineEnough(q *sq, e *eseg, inlined int) bool {
	mode := max(q.minInline, d.vport.minInline)
	if mode == inlineNone {
		return true
	}
	if inlined >= len(d.work.frame) {
		return true
	}
	// An Ethernet header with a tag, whether there is one or not: so do all drivers
	// that are known to work (Linux, DPDK).
	need := frameMin + 4
	if mode >= inlineIP {
		need = headersEnd(d.work.frame, mode >= inlineTCPUDP)
	}
	return inlined >= need
}

// emit sends the gathered frame after the offloads that e asks for.
func (d *Device) emit(e *eseg) {
	if !e.plain() {
		d.work.frame = offload(d.work.frame, e)
	}
	d.work.sum.Metadata += uint64(e.meta)
	d.transmit(d.work.frame)
}

// zeros pads short frames.
var zeros [framePad]byte

// transmit puts one frame on the wire and counts it. Short frames are padded;
// what the port cannot carry is dropped.
func (d *Device) transmit(f []byte) {
	if len(f) < framePad {
		n := len(f)
		d.work.segment = append(append(d.work.segment[:0], f...), zeros[n:]...)
		f = d.work.segment
	}
	n := uint64(len(f))
	p, v := &d.port, &d.vport
	d.work.sum.Packets++
	class := &v.txUni
	if f[0]&1 != 0 {
		class = &v.txMulti
		if isBroadcast(f) {
			class = &v.txBroad
		}
	}
	class.packets++
	class.bytes += n
	w := d.cfg.Wire
	if w == nil || !p.adminUp || !p.operUp || n+fcsBytes > uint64(p.mtu) && p.mtu != 0 {
		p.txDropped++
		return
	}
	p.txPackets++
	p.txBytes += n + fcsBytes
	switch class {
	case &v.txMulti:
		p.txMulti++
	case &v.txBroad:
		p.txBroad++
	}
	d.stats.TxFrames++
	w.Transmit(f)
}

// isBroadcast reports whether a frame goes to ff:ff:ff:ff:ff:ff.
func isBroadcast(f []byte) bool { return be32(f, 0) == 1<<32-1 && be16(f, 4) == 1<<16-1 }

// resetSQ puts q's counters back to zero, as at the way from RST to RDY.
func (d *Device) resetSQ(q *sq) {
	q.ci, q.pi, q.run.fetched = 0, 0, 0
	q.run.cause = failNone
	q.run.stale, _ = d.loadRecord(&q.run.rec, q.dbr, recSQ)
	q.run.rung = false
}

// polled reports whether q's record is worth reading without a doorbell.
func (d *Device) polled(q *sq) bool {
	if !q.run.rung {
		word, ok := d.loadRecord(&q.run.rec, q.dbr, recSQ)
		q.run.rung = ok && word != q.run.stale
	}
	return q.run.rung
}

// add adds o to s.
func (s *SQStats) add(o *SQStats) {
	s.WQEs += o.WQEs
	s.MPWQEs += o.MPWQEs
	s.MPWPackets += o.MPWPackets
	s.NOPs += o.NOPs
	s.UMRs += o.UMRs
	s.Packets += o.Packets
	s.WQEBytes += o.WQEBytes
	s.RingBytes += o.RingBytes
	s.DataBytes += o.DataBytes
	s.DataReads += o.DataReads
	s.Inline += o.Inline
	s.Metadata += o.Metadata
	s.Doorbells += o.Doorbells
	s.Flames += o.Flames
	s.CQEs += o.CQEs
	s.Errors += o.Errors
}
