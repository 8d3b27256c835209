package model

// receive.go owns the way of a frame from the wire into a receive queue: port
// and vport counters, the vport's address filter, posted buffers of cyclic,
// linked-list and striding queues, and receive completions. Which queue it is
// steer and hash decide (walk.go, rss.go).
// Manual: chapters "Receive queue" and "Completion queue entry".
//
// Every frame taken from the wire ends in exactly one count: delivered, or one
// of the named drops. A lossless wire's frame is not taken before every queue
// it goes to has a buffer, or is not waited for (hold.go).

import (
	"hash/crc32"
	"time"
)

// Values in receive WQEs and completions.
const (
	startPadding = 0x80000000 // wqe_data_flag.MLX5_HW_START_PADDING
	endOfList    = 0x100      // wqe_data_flag.MLX5_TERMINATE_SCATTER_LIST_LKEY
	nextSegment  = 16         // bytes of rx_wqe_ll.next
	nextIndex    = 2          // wqe_srq_next_seg.next_wqe_index
	scatterMax   = 64         // data segments of a receive WQE

	okL2 = 0x1 // cqe_ok_flag.CQE_L2_OK
	okL3 = 0x2 // cqe_ok_flag.CQE_L3_OK
	okL4 = 0x4 // cqe_ok_flag.CQE_L4_OK

	l3IPv6 = 0x1 // cqe_l3_hdr_type.MLX5_CQE_L3_HDR_TYPE_IPV6
	l3IPv4 = 0x2 // cqe_l3_hdr_type.MLX5_CQE_L3_HDR_TYPE_IPV4

	l4TCP     = 0x1 // cqe_l4_hdr_type.CQE_L4_HDR_TYPE_TCP_NO_ACK
	l4UDP     = 0x2 // cqe_l4_hdr_type.CQE_L4_HDR_TYPE_UDP
	l4Ack     = 0x3 // cqe_l4_hdr_type.CQE_L4_HDR_TYPE_TCP_ACK_NO_DATA
	l4AckData = 0x4 // cqe_l4_hdr_type.CQE_L4_HDR_TYPE_TCP_ACK_AND_DATA

	hdrL4Shift  = 4  // cqe_shift.CQE_L4_HDR_TYPE_SHIFT
	hdrL3Shift  = 2  // cqe_shift.CQE_L3_HDR_TYPE_SHIFT
	hdrHasVLAN  = 1  // cqe_shift.CQE_HAS_VLAN_BIT, as a mask
	tunneledBit = 1  // cqe_shift.CQE_TUNNELED_BIT, as a mask
	fillerBit   = 15 // cqe_shift.CQE_MPWRQ_FILLER_BIT, of the upper half of byte_cnt

	wqCyclicStriding = 0x3 // wq_type.MLX5_WQ_TYPE_CYCLIC_STRIDING_RQ
)

// rqRun is what an RQ or RMP keeps between frames.
type rqRun struct {
	rec  recordCache
	head uint32 // linked list: WQE that is consumed next
	ci   uint32 // RMP: WQEs consumed
	// known is the producer as the device last had to read it, fetched the WQE up
	// to which reads of the ring have been counted.
	known, fetched uint32
}

// scatterSeg is one posted buffer.
type scatterSeg struct {
	n    uint32
	key  uint32
	addr uint64
}

// work queue of an RQ: its own, or that of its RMP.
type recvWQ struct {
	ring *ring
	dbr  uint64
	pd   uint32
	run  *rqRun
	ci   *uint32
}

func (d *Device) recvWQ(q *rq) (w recvWQ, ok bool) {
	if q.rmp == 0 {
		return recvWQ{&q.ring, q.dbr, q.pd, &q.run, &q.ci}, true
	}
	m := d.rmps.get(q.rmp)
	if m == nil {
		return w, false
	}
	return recvWQ{&m.ring, m.dbr, m.pd, &m.run, &m.run.ci}, true
}

// linked reports whether WQEs begin with a next segment.
func (q *rq) linked() bool { return !q.cyclic && q.wqType != wqCyclicStriding }

// striding reports whether a WQE takes several frames.
func (q *rq) striding() bool { return !q.cyclic && q.logStride != 0 }

// commandGap is how many frames a turn takes between two looks at whether it should
// end: for a command, since on silicon firmware works beside the data path, or for
// someone who waits for the CPU that the device only borrows here.
const commandGap = 16

// pollReceive takes at most budget frames from the wire, commandGap at least where no
// command is posted, and reports whether there was one to take.
func (d *Device) pollReceive(now time.Time, budget int) bool {
	w := d.cfg.Wire
	if w == nil || !d.port.adminUp || !d.port.operUp {
		return false
	}
	d.work.now = now
	lossless := w.Lossless()
	if d.learnTables(); lossless && !d.work.steer.open {
		return false // nothing could be received yet
	}
	did := false
	for i := range budget {
		if i%commandGap == 0 && (d.getWord(barCmdDoorbell) != 0 || i > 0 && d.cfg.Hurry != nil && d.cfg.Hurry()) {
			did = true
			break
		}
		f := w.Peek(now)
		if f == nil || !d.receive(f, lossless) {
			break
		}
		w.Take()
		did = true
	}
	d.flushSessions()
	return did
}

// receive takes one frame to its end. It reports false, and has then counted
// nothing, where the frame has to wait for a buffer.
func (d *Device) receive(f []byte, lossless bool) bool {
	if !d.sizeOK(f) {
		return true
	}
	if !d.addressed(f) {
		d.countPort(f)
		d.vport.filtered++
		d.vport.steerMiss++
		return true
	}
	w := &d.work
	w.pkt.vxlan = d.hca.vxlan
	w.pkt.parse(f, true)
	verdict := d.walk()
	if lossless && d.mustWait(verdict, f) {
		return false
	}
	d.countPort(f)
	d.countVport(f)
	d.commitHits(len(f))
	switch verdict {
	case walkMiss:
		d.vport.steerMiss++
		return true
	case walkDrop:
		d.vport.ruleDrops++
		return true
	}
	d.deliverAll(f)
	return true
}

// deliverAll gives the frame to every destination. The frame is delivered if
// one of them took it.
func (d *Device) deliverAll(f []byte) {
	took := 0
	lost := deliverNoBuffer
	for i := range d.work.dests {
		x := &d.work.dests[i]
		b := f
		if x.frame != nil {
			b = x.frame
		}
		if &d.work.pkt.b[0] != &b[0] {
			d.work.pkt.parse(b, true)
		}
		switch r := d.deliver(x, b); r {
		case delivered:
			took++
		case deliverNoBuffer:
			x.rq.starved = true
			d.countNoBuffer(x.rq, len(d.work.dests) == 1)
			lost = r
		default:
			lost = r
		}
	}
	switch {
	case took > 0:
		d.stats.RxDelivered++
		d.stats.RxCopies += uint64(took - 1)
	case lost == deliverNoBuffer:
		d.stats.RxNoBuffer++
	default:
		d.stats.RxBadBuffer++
	}
}

// countNoBuffer counts in the queue's counter set; a queue without one shows
// its loss at the port.
func (d *Device) countNoBuffer(q *rq, only bool) {
	if c := d.qctrs.get(q.counterSet); c != nil {
		c.outOfBuffer++
	} else if only {
		d.port.discards++
	}
}

// sizeOK counts frames that are too short or too long, which go no further.
func (d *Device) sizeOK(f []byte) bool {
	p := &d.port
	switch {
	case len(f) < frameMin:
		p.undersize++
	case p.mtu != 0 && len(f)+fcsBytes > int(p.mtu):
		p.oversize++
	default:
		return true
	}
	d.stats.RxFrames++
	return false
}

// sizeBounds are the upper ends of the port's size classes, with FCS.
var sizeBounds = [...]int{64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191}

// countPort counts a good frame at the port; its lengths include the FCS.
func (d *Device) countPort(f []byte) {
	p := &d.port
	n := len(f) + fcsBytes
	d.stats.RxFrames++
	p.rxPackets++
	p.rxBytes += uint64(n)
	if f[0]&1 != 0 {
		if isBroadcast(f) {
			p.rxBroad++
		} else {
			p.rxMulti++
		}
	}
	class := 0
	for class < len(sizeBounds) && n > sizeBounds[class] {
		class++
	}
	p.sizes[class]++
}

// countVport counts a frame that reached the function.
func (d *Device) countVport(f []byte) {
	c := &d.vport.rxUni
	if f[0]&1 != 0 {
		c = &d.vport.rxMulti
		if isBroadcast(f) {
			c = &d.vport.rxBroad
		}
	}
	c.packets++
	c.bytes += uint64(len(f))
}

// addressed reports whether the vport takes frames to this destination: its
// own addresses, broadcast, the lists in its context, or all of a kind.
func (d *Device) addressed(f []byte) bool {
	v := &d.vport
	if v.promiscAll {
		return true
	}
	to := [6]byte(f[:6])
	if to[0]&1 != 0 {
		return v.promiscMC || isBroadcast(f) || holds(v.mc, to)
	}
	if v.promiscUC || len(v.mac) == 6 && to == [6]byte(v.mac) || len(v.permanent) == 6 && to == [6]byte(v.permanent) {
		return true
	}
	return d.hca.l2ByMAC[to] > 0 || holds(v.uc, to)
}

func holds(list [][6]byte, a [6]byte) bool {
	for _, b := range list {
		if a == b {
			return true
		}
	}
	return false
}

// ready reports whether q has room for a frame of n bytes now. A striding WQE
// whose rest is too short is closed on the way.
func (d *Device) ready(q *rq, n int) bool {
	if q.state != rqRDY {
		return false
	}
	w, ok := d.recvWQ(q)
	if !ok || d.posted(q, &w) == 0 {
		return false
	}
	if !q.striding() {
		return true
	}
	need := q.strides(n)
	if total := uint32(1) << q.logStrides; need <= total && q.stride+need > total {
		return d.closeWQE(q, &w) && d.posted(q, &w) > 0
	}
	return true
}

// length is how many bytes of frame f arrive in the buffer.
func (q *rq) length(f []byte) int {
	n := len(f)
	if q.strips(f) {
		n -= 4
	}
	if q.scatterFCS {
		n += fcsBytes
	}
	return n
}

// strips reports whether q takes a tag out of f.
func (q *rq) strips(f []byte) bool {
	return !q.vsd && len(f) >= frameMin+4 && be16(f, 12) == etherVLAN
}

// strides is how many strides n bytes take.
func (q *rq) strides(n int) uint32 {
	if q.shift {
		n += 2
	}
	return max(1, uint32((n+1<<q.logStride-1)>>q.logStride))
}

// posted is how many WQEs wait in q. A producer beyond the ring breaks it.
func (d *Device) posted(q *rq, w *recvWQ) uint32 {
	word, ok := d.loadRecord(&w.run.rec, w.dbr, recRQ)
	if !ok {
		return 0
	}
	n := uint32(uint16(word) - uint16(*w.ci))
	q.pi = *w.ci + n
	if n > 1<<w.ring.logSize {
		d.badDoorbell("RQ %#x: producer %#x, at %#x", q.n, word, *w.ci)
		d.workQueueEvent(eventWQCatas, eventFromRQ, q.n)
		q.state = rqERR
		return 0
	}
	return n
}

// deliverResult is what became of a frame at one queue.
type deliverResult uint8

const (
	delivered deliverResult = iota
	deliverNoBuffer
	deliverBadBuffer
)

// deliver writes frame f, parsed in d.work.pkt, to one queue and completes it.
func (d *Device) deliver(x *rxDest, f []byte) deliverResult {
	q := x.rq
	var e [cqeSize]byte
	if q.strips(f) {
		e[cqeHdrType] = hdrHasVLAN
		putBE16(e[:], cqeVLAN, be16(f, 14))
		b := append(d.work.frame[:0], f[:12]...)
		f = append(b, f[16:]...)
		d.work.frame = f
	}
	if q.scatterFCS {
		sum := crc32.ChecksumIEEE(f)
		f = append(append(d.work.frame[:0], f...), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		d.work.frame = f
	}
	c := d.cqs.get(q.cqn)
	if c == nil || c.failed || !x.sure && !d.ready(q, len(f)) {
		return deliverNoBuffer
	}
	w, _ := d.recvWQ(q)
	fillRxCQE(&e, &d.work.pkt, x)
	putBE32(e[:], cqeSRQN, q.userIndex&ci24)
	putBE64(e[:], cqeTimestamp, d.stamp(q.tsFormat))
	e[cqeOpOwn] = cqeRespSend << cqeOpShift
	q.starved = false
	if q.striding() {
		return d.deliverStrides(q, &w, c, &e, f)
	}
	return d.deliverWhole(q, &w, c, &e, f)
}

// position is the ring index of the WQE that is consumed next.
func (q *rq) position(w *recvWQ) uint32 {
	if q.linked() {
		return w.run.head
	}
	return *w.ci
}

// take consumes the WQE b: the next one follows, or is where it points.
func (q *rq) take(w *recvWQ, b []byte) {
	*w.ci++
	q.stride = 0
	if q.linked() && len(b) >= nextSegment {
		w.run.head = uint32(be16(b, nextIndex))
	}
}

// buffers lists the posted buffers of WQE b in d.work.list.
func (d *Device) buffers(q *rq, b []byte) []scatterSeg {
	list := d.work.list[:0]
	if q.linked() {
		b = b[min(nextSegment, len(b)):]
	}
	for len(b) >= dsBytes && len(list) < scatterMax {
		s := scatterSeg{be32(b, dsegCount) &^ startPadding, be32(b, dsegKey), be64(b, dsegAddr)}
		if s.n == 0 || s.key == endOfList {
			break
		}
		list = append(list, s)
		b = b[dsBytes:]
	}
	d.work.list = list
	return list
}

// scatter writes f over the buffers; skip bytes of the first stay untouched.
// It writes nothing where they are too short.
func (d *Device) scatter(pd uint32, list []scatterSeg, f []byte, skip uint64) failure {
	room := uint64(0)
	for _, s := range list {
		room += uint64(s.n)
	}
	if room < skip+uint64(len(f)) {
		return failRxTooLong
	}
	for _, s := range list {
		if skip >= uint64(s.n) {
			skip -= uint64(s.n)
			continue
		}
		n := min(uint64(len(f)), uint64(s.n)-skip)
		if n == 0 {
			break
		}
		d.work.pci.count(PCIDataWrite, s.addr+skip, int(n))
		if !d.writeKey(pd, s.key, s.addr+skip, f[:n]) {
			return failRxProt
		}
		f, skip = f[n:], 0
	}
	return failNone
}

// countPosted counts what has to be read for the WQE that is consumed next: the
// record when the device knows of no WQE any more, and WQEs as many at once as are
// posted. Those of a linked list tell where the next one is and come one by one.
func (d *Device) countPosted(q *rq, w *recvWQ) {
	m, at, left := &d.work.pci, *w.ci, q.pi-*w.ci
	// The device may have known less than the host has posted by now, never more.
	if w.run.known-at-1 >= left {
		w.run.known = q.pi
		m.count(PCIRecordRead, w.dbr, 4)
	}
	if q.linked() {
		m.count(PCIRxWQEFetch, w.ring.place(w.run.head), 1<<w.ring.stride)
		return
	}
	if w.run.fetched-at-1 >= left {
		n := m.fetch(w.ring, at, w.run.known-at)
		m.count(PCIRxWQEFetch, w.ring.place(at), int(n)<<w.ring.stride)
		w.run.fetched = at + n
	}
}

// deliverWhole uses one WQE for the frame.
func (d *Device) deliverWhole(q *rq, w *recvWQ, c *cq, e *[cqeSize]byte, f []byte) deliverResult {
	at := q.position(w)
	b := d.ringEntry(w.ring, at)
	if b == nil {
		d.breakRQ(q)
		return deliverBadBuffer
	}
	d.countPosted(q, w)
	var skip uint64
	if q.shift {
		skip = 2
	}
	fail := d.scatter(w.pd, d.buffers(q, b), f, skip)
	putBE16(e[:], cqeCounter, uint16(at))
	putBE32(e[:], cqeByteCnt, uint32(len(f)))
	q.take(w, b)
	if fail != failNone {
		d.completeRxError(q, w, c, e, fail)
		return deliverBadBuffer
	}
	return d.completeRx(q, c, e, 1)
}

// deliverStrides puts the frame behind the one before it in the same WQE.
func (d *Device) deliverStrides(q *rq, w *recvWQ, c *cq, e *[cqeSize]byte, f []byte) deliverResult {
	need, total := q.strides(len(f)), uint32(1)<<q.logStrides
	if need > total || need > 1<<fillerBit-1 {
		return deliverNoBuffer // longer than a whole WQE: it takes no stride
	}
	at := q.position(w)
	b := d.ringEntry(w.ring, at)
	if b == nil {
		d.breakRQ(q)
		return deliverBadBuffer
	}
	if q.stride == 0 {
		d.countPosted(q, w)
	}
	skip := uint64(q.stride) << q.logStride
	if q.shift {
		skip += 2
	}
	fail := d.scatter(w.pd, d.buffers(q, b), f, skip)
	putBE16(e[:], cqeWQEID, uint16(at))
	putBE16(e[:], cqeCounter, uint16(q.stride))
	putBE32(e[:], cqeByteCnt, need<<16|uint32(len(f)))
	q.stride += need
	if fail == failNone && q.stride == total {
		q.take(w, b)
	}
	if fail != failNone {
		d.completeRxError(q, w, c, e, fail)
		return deliverBadBuffer
	}
	return d.completeRx(q, c, e, need)
}

// closeWQE completes what is left of a striding WQE as filler.
func (d *Device) closeWQE(q *rq, w *recvWQ) bool {
	c := d.cqs.get(q.cqn)
	b := d.ringEntry(w.ring, q.position(w))
	if c == nil || b == nil {
		d.breakRQ(q)
		return false
	}
	var e [cqeSize]byte
	left := uint32(1)<<q.logStrides - q.stride
	putBE16(e[:], cqeWQEID, uint16(q.position(w)))
	putBE32(e[:], cqeSRQN, q.userIndex&ci24)
	putBE32(e[:], cqeByteCnt, 1<<(16+fillerBit)|left<<16)
	putBE64(e[:], cqeTimestamp, d.stamp(q.tsFormat))
	putBE16(e[:], cqeCounter, uint16(q.stride))
	e[cqeOpOwn] = cqeRespSend << cqeOpShift
	q.take(w, b)
	if !d.pushCQE(c, &e) {
		q.state = rqERR
		return false
	}
	return true
}

// completeRx writes a receive completion, compressed where the CQ wants that.
// step is by how much the next completion's counter is greater.
func (d *Device) completeRx(q *rq, c *cq, e *[cqeSize]byte, step uint32) deliverResult {
	ok := false
	if c.compress && c.layout == 0 && c.cqeSize == cqeSize {
		ok = d.compressCQE(c, e, uint16(step))
	} else {
		ok = d.pushCQE(c, e)
	}
	if !ok {
		q.state = rqERR
		return deliverBadBuffer
	}
	return delivered
}

// completeRxError writes an error completion, which keeps the parse fields. A
// frame that is too long costs its buffer only; all else stops the queue.
func (d *Device) completeRxError(q *rq, w *recvWQ, c *cq, e *[cqeSize]byte, f failure) {
	e[cqeHWError], e[cqeHWError+1] = f.hw, f.kind
	e[cqeVendorSyn], e[cqeSyndrome] = f.vendor, f.syndrome
	putBE32(e[:], cqeQPN, 0)
	e[cqeOpOwn] = cqeRespErr << cqeOpShift
	d.pushCQE(c, e)
	if f.syndrome == synLocalLength {
		return
	}
	q.state = rqERR
	if !q.flushErr {
		return
	}
	for left := d.posted(q, w); left > 0 && !c.failed; left-- {
		at := q.position(w)
		b := d.ringEntry(w.ring, at)
		if b == nil {
			return
		}
		var e [cqeSize]byte
		putBE32(e[:], cqeSRQN, q.userIndex&ci24)
		e[cqeHWError] = f.hw
		e[cqeVendorSyn], e[cqeSyndrome] = vendorFlushed, synFlush
		putBE16(e[:], cqeCounter, uint16(at))
		e[cqeOpOwn] = cqeRespErr << cqeOpShift
		q.take(w, b)
		d.pushCQE(c, &e)
	}
}

// breakRQ takes q out of service where no completion can tell why.
func (d *Device) breakRQ(q *rq) {
	if q.state != rqERR {
		q.state = rqERR
		d.workQueueEvent(eventWQAccess, eventFromRQ, q.n)
	}
}

// resetRQ puts q's counters back to zero, as at the way from RST to RDY.
func (d *Device) resetRQ(q *rq) {
	q.ci, q.pi, q.stride = 0, 0, 0
	q.starved = false
	q.run.head, q.run.known, q.run.fetched = 0, 0, 0
}

// fillRxCQE sets what a completion says about the packet.
func fillRxCQE(e *[cqeSize]byte, p *packet, x *rxDest) {
	putBE32(e[:], cqeHash, x.hash)
	e[cqeHashType] = x.kind
	putBE32(e[:], cqeQPN, x.tag&0xffffff)
	e[cqeOK] = okL2
	h := &p.outer
	if h.version == 0 {
		return
	}
	all, ok := verify(p.b, h)
	putBE16(e[:], cqeCheckSum, all)
	if x.tir.tunneled && p.tunnel != tunnelNone {
		e[cqeTunneled] |= tunneledBit
		if h = &p.inner; h.version != 0 {
			_, inner := verify(p.b, h)
			ok &= inner
		}
	}
	e[cqeOK] |= ok
	e[cqeHdrType] |= l4Kind(p.b, h)<<hdrL4Shift | l3Kind(h)<<hdrL3Shift
}

func l3Kind(h *l3Header) uint8 {
	switch h.version {
	case 4:
		return l3IPv4
	case 6:
		return l3IPv6
	}
	return 0
}

// l4Kind says which L4 header there is, and for TCP what it carries.
func l4Kind(b []byte, h *l3Header) uint8 {
	switch {
	case h.isUDP():
		return l4UDP
	case !h.isTCP():
		return 0
	case b[h.l4+13]&tcpACK == 0:
		return l4TCP
	case h.l4+int(b[h.l4+12]>>4)*4 < h.end:
		return l4AckData
	}
	return l4Ack
}

// verify sums the IP packet once: all is the ones'-complement sum of what its
// length covers, ok the checksums that are right.
func verify(b []byte, h *l3Header) (all uint16, ok uint8) {
	body := min(h.l3+h.l3Len, h.end)
	head, rest := sum(b[h.l3:body]), sum(b[body:h.end])
	all = fold(head + rest)
	if h.version == 6 || fold(head) == 0xffff {
		ok = okL3
	}
	if h.l4 == 0 || h.short {
		return all, ok
	}
	switch h.proto {
	case protoUDP:
		if be16(b, h.l4+6) == 0 && h.version == 4 {
			return all, ok | okL4 // RFC 768: the sender made none
		}
	case protoTCP:
	default:
		return all, ok
	}
	if fold(rest+h.place().pseudo(b, h.end-h.l4)) == 0xffff {
		ok |= okL4
	}
	return all, ok
}
