package main

// xsk.go owns the driver's side of an XSK socket: the receive queue whose buffers
// are UMEM frames, the rings towards the client, need-wakeup, and the counters of
// both. Sending and a turn of both is xsktx.go's. It does not own the frames' layout
// (umem.go), the rings' (xskring.go), nor how a socket comes to a queue and leaves it
// (xskbind.go).
// Manual: chapters Receive Queue, Send Queue.
//
// Life of a frame: the client puts its address into the fill ring; the driver
// points a receive WQE at it; the device writes a packet into it; the completion
// becomes an entry of the RX ring; the client reads the packet there and then
// fills again, or sends the frame: its address goes through the TX ring into a
// send WQE and comes back by the completion ring. No byte is copied.
//
// What a client says is not believed. Indices that claim more than a ring holds
// end the socket with a reason: from there on nothing it says makes sense. An
// entry that names memory outside the UMEM is counted and skipped, with no answer
// in any ring, as Linux does, and only so many in a turn: the next turn goes on. An address that is named twice does harm only to
// who named it. Entries are read once, into locals; Go's memory model forbids the
// compiler to read again.
//
// A packet that finds the RX ring full is dropped and counted, as Linux does, and
// its frame used again, so that a slow client never stops the queue. Where no
// frame is posted the device drops and counts (rx_xsk_out_of_buffer).

import (
	"fmt"
	"time"
)

// xskStats counts what an XSK queue did, by mlx5e's names where it has one, else
// by AF_XDP's statistics. Written by publish.
type xskStats struct {
	packets  counter // received into UMEM frames
	bytes    counter
	redirect counter // of these, given to the client
	drop     counter // dropped by a program
	abort    counter // dropped because a program gave up or answered nonsense
	ringFull counter // dropped: the RX ring was full
	wqeErr   counter // error completions, and packets lost with the queue that one stopped
	oversize counter // longer than the MTU allows or the frames hold
	flushed  counter // received, and lost because the client went away
	noPage   counter // passed by a program, and lost for want of a page to copy them into
	allocErr counter // polls that found the fill ring empty while buffers were missing
	badFill  counter // fill entries outside the UMEM
	recover  counter
	copied   counter // packets of other queues that were copied into frames
	full     counter // polls that found no room in the send queue
	badDescs counter // TX entries that were refused
	txEmpty  counter // polls that found the TX ring empty
	wakes    counter // wake-ups sent to the client
	stripped counter // frames out of which the device took a tag

	csum   csumStats // of packets that a program passes to the handler
	unsent counter   // TX entries of our own that were not sent when the channel stopped
}

// xskTally is what has been counted and not yet published.
type xskTally struct {
	packets, bytes, redirect, drop, abort, ringFull, wqeErr, oversize, flushed, noPage, allocErr, badFill, recovered, copied uint64
	full, badDescs, txEmpty, wakes, stripped, unsent                                                                         uint64
}

// xskRecv is the receive queue of a channel's socket. Its ring lives as long as
// the NIC; what it points at comes and goes with the client. One goroutine owns
// it, while nobody is attached whoever attaches.
type xskRecv struct {
	cq     *compQueue
	n      uint32 // RQN
	buf    dmaMem
	segs   []seg
	rec    record
	mask   uint32
	perWQE uint32 // segments a WQE
	lkey   uint32
	limit  uint32 // longest frame to let in
	strip  uint64 // 1 where the device takes VLAN tags out

	pieces uint32   // frames a WQE has now
	head   uint32   // WQEs handed out
	posted uint32   // WQEs given to the device
	frames []uint32 // number of each WQE's frames; noHold where one is missing
	free   []uint32 // frames to use before the fill ring's are the first nfree
	nfree  int
	failed bool
	cause  cqeError
	since  time.Time
}

// xskSocket is what a client shares with the driver. The rings' other side is the
// client's, in this process or another.
type xskSocket struct {
	umem     *umem
	fill     xskRing
	comp     xskRing
	rx       xskRing
	tx       xskRing
	rxHead   uint32      // RX entries written
	compHead uint32      // completion entries written, told or not
	sent     uint32      // elements of the send queue that were told
	skip     bool        // TX entries are skipped up to the end of a packet
	multi    bool        // packets may take several frames
	wakeups  bool        // the client looks at need-wakeup flags
	ours     bool        // the client is the appliance itself: what it gives is to be sent
	bell     *bell       // rung for a client that sleeps; nil in this process. Nobody else writes to it
	fault    chan string // why the driver gave up on it; room for one
	broken   bool
	slept    [2]uint32 // producers of TX and fill ring when we went to sleep last
}

// newSocket views the rings at places in b. The area behind u is the client's.
func newSocket(u *umem, b []byte, places [xskRings]ringPlace) *xskSocket {
	return &xskSocket{umem: u, fault: make(chan string, 1),
		fill: viewRing(b, ringFill, places[ringFill]), comp: viewRing(b, ringCompletion, places[ringCompletion]),
		rx: viewRing(b, ringRX, places[ringRX]), tx: viewRing(b, ringTX, places[ringTX])}
}

// xskQueue is what a channel has for XSK. Its goroutine owns it.
type xskQueue struct {
	name   string // of the receive queue, for people
	recv   xskRecv
	tx     *sendQueue
	sock   *xskSocket // who is attached; nil is nobody
	id     pageRef    // upper 8 bits of references to frames that other queues send
	out    uint32     // frames that these hold
	number uint16     // of its receive queue, as users count (queueOf)
	mtu    int        // that its receive queue was made for
	asleep bool       // the flags say so
	due    bool       // the client is to be woken at the end of this turn
	skips  int        // bad entries of the fill ring that this turn may still skip
	// leaving is set from detach until both queues are ready for the next socket, held
	// while somebody prepares a socket for them.
	leaving bool
	held    bool
	judge   *xskJudge // for programs; nil until there was one
	judged  bool      // a program is here or about to be
	frames  [napiBudget]txFrame
	tally   xskTally
	stats   xskStats
}

// xskJudge is what a channel needs for programs on its socket's packets.
type xskJudge struct {
	packets  [napiBudget]packet
	frames   [napiBudget]xdpFrame
	numbers  [napiBudget]uint32 // of the UMEM frames
	verdicts [napiBudget]xdpVerdict
	out      [napiBudget]txFrame
	which    [napiBudget]uint8
	refs     [napiBudget]pageRef
}

// xskFragments is how many frames a packet may take with multi-buffer.
const xskFragments = maxFrags

// newXSKRecv prepares a ring of 2^log WQEs; a WQE holds several frames where
// packets of so many bytes may need that.
func newXSKRecv(mem *arena, cq *compQueue, log uint8, frame int, lkey uint32, u *undo) (r xskRecv, err error) {
	r = xskRecv{cq: cq, mask: 1<<log - 1, perWQE: 1, limit: uint32(frame), lkey: lkey}
	if frame > minUMEMFrame-rxHeadroom {
		r.perWQE = xskFragments
	}
	if r.buf, err = mem.alloc(int(r.perWQE) * segment << log); err != nil {
		return r, fmt.Errorf("receive ring for UMEM frames: %w", err)
	}
	buf := r.buf
	u.add("receive ring for UMEM frames", func() error { mem.free(buf); return nil })
	if r.rec, err = mem.newRecord(); err != nil {
		return r, fmt.Errorf("receive ring for UMEM frames: %w", err)
	}
	rec := r.rec
	u.add("doorbell record", func() error { mem.freeRecord(rec); return nil })
	r.segs = segments(r.buf)
	return r, nil
}

// logWQE is the log2 of the bytes of such a WQE.
func (r *xskRecv) logWQE() uint8 { return 4 + logCeil(int(r.perWQE)) }

// piecesFor is how many frames of u a WQE needs, 0 where even the most allowed
// cannot hold the longest frame.
func (r *xskRecv) piecesFor(u *umem, multi bool) uint32 {
	need := (r.limit + u.room() - 1) / u.room()
	if most := r.perWQE; need > most || need > 1 && !multi {
		return 0
	}
	return need
}

// refusesProgram says why no program can see the packets of the socket that is
// attached: it would see those that take several frames cut. Linux refuses that too,
// unless a program says that it can do with pieces, which ours have no means to.
func (q *xskQueue) refusesProgram() error {
	if q.sock == nil || q.recv.pieces <= 1 {
		return nil
	}
	return wishf("a program sees packets in one piece, and a socket has frames of %d bytes, which hold those of an MTU of up to %d: -xsk-frame 4096, or a smaller -mtu",
		q.sock.umem.frame, q.sock.umem.largestMTU(1))
}

// refusesSocket is the same the other way round, for a socket with UMEM u.
func (q *xskQueue) refusesSocket(u *umem, multi bool) error {
	if !q.judged || q.recv.piecesFor(u, multi) <= 1 {
		return nil
	}
	return wishf("a program is attached, which sees packets in one piece, and frames of %d bytes hold those of an MTU of up to %d: frames of 4096 bytes (-xsk-frame), or a smaller -mtu",
		u.frame, u.largestMTU(1))
}

// attach gives the queue to a client. Nothing is posted yet.
func (q *xskQueue) attach(s *xskSocket) {
	r := &q.recv
	r.pieces = r.piecesFor(s.umem, s.multi)
	n := int(r.mask+1) * int(r.pieces)
	r.frames, r.free, r.nfree = make([]uint32, n), make([]uint32, n+int(s.umem.frames)), 0
	for i := range r.frames {
		r.frames[i] = noHold
	}
	for end := r.pieces; end < uint32(len(r.segs)) && r.pieces < r.perWQE; end += r.perWQE {
		r.segs[end] = dataSeg(0, invalidLkey, 0)
	}
	q.tx.home(&pagePool{mem: s.umem.mem})
	q.tx.others, q.tx.quiet = q, true
	s.sent = q.tx.ftail
	q.asleep, q.due, q.skips = false, false, napiBudget
	q.sock = s
}

// detach takes the queue from the client, whose memory the device may still use.
func (q *xskQueue) detach() {
	q.sock, q.asleep, q.leaving = nil, false, true
	q.tx.home(&pagePool{})
}

// reset starts both queues anew after the device has let go of them: what had
// been received and not been looked at is counted.
func (q *xskQueue) reset() {
	q.recv.reset(&q.tally.flushed)
	q.tx.reset()
	q.recv.frames, q.recv.free, q.recv.nfree = nil, nil, 0
}

// reset empties the ring and adds to lost what had been received; frames that were
// posted are to be posted again.
func (r *xskRecv) reset(lost *uint64) {
	r.flush(lost)
	for ; r.head != r.posted && r.pieces == 1; r.head++ {
		r.keep(r.frames[r.head&r.mask])
	}
	r.head, r.posted, r.failed = 0, 0, false
	r.rec.store(recordRQ, 0)
}

// flush adds to lost what was received and not looked at. The ring is to be reset
// before it is used again.
func (r *xskRecv) flush(lost *uint64) {
	ci := r.cq.ci
	for e, w := r.cq.peek(ci); e != nil; e, w = r.cq.peek(ci) {
		if tailOpcode(w) == cqeRecv {
			*lost++
		}
		ci++
	}
	r.cq.consumed(ci)
}

// visible reports whether there is a completion to take.
func (r *xskRecv) visible() bool {
	e, _ := r.cq.peek(r.cq.ci)
	return e != nil && !r.failed
}

// keep puts a frame aside, to be posted before those of the fill ring.
func (r *xskRecv) keep(frame uint32) {
	if r.nfree < len(r.free) {
		r.free[r.nfree] = frame
		r.nfree++
	}
}

// breakOff ends the use of a socket whose client has lied; who serves it is told
// why and detaches it.
func (q *xskQueue) breakOff(ring int, why string) {
	q.sock.broken = true
	select {
	case q.sock.fault <- fmt.Sprintf("%s ring: %s", xskRingNames[ring], why):
	default:
	}
}

// What clients claim that ends a socket.
const (
	claimsEntries = "the producer is further ahead than the ring is long"
	claimsTaken   = "the consumer has taken entries that were never given"
)

// receive turns up to budget completions into entries of the RX ring.
func (q *xskQueue) receive(budget int) (done int) {
	r, s := &q.recv, q.sock
	for done < budget && !r.failed && !s.broken {
		e, w := r.cq.peek(r.cq.ci)
		if e == nil {
			break
		}
		if r.pieces == 1 {
			n := q.takePlain(budget - done)
			if done += n; n > 0 || s.broken {
				continue
			}
		}
		r.cq.ci++
		done++
		q.takeOne(e, w)
	}
	q.tell()
	return done
}

// tell makes new RX entries visible.
func (q *xskQueue) tell() {
	s := q.sock
	n := s.rxHead - s.rx.at
	if n == 0 {
		return
	}
	s.rx.gave(n)
	q.tally.redirect += uint64(n) // entries; takeOne takes back what is more than packets
	q.notify(&s.rx)
}

// notify notes that the client sleeps on a ring that has got entries.
func (q *xskQueue) notify(ring *xskRing) {
	if !q.due && q.sock.bell != nil {
		q.due = ring.wants()
	}
}

// ring wakes a client that sleeps, once a turn: the one system call of the data path.
func (q *xskQueue) ring() {
	if q.due {
		q.due = false
		q.sock.bell.ring()
		q.tally.wakes++
	}
}

// takePlain hands out ordinary completions of frames in one piece, as far as the
// RX ring has room and no ring's edge comes, up to the first that is anything else.
func (q *xskQueue) takePlain(most int) int {
	r, s := &q.recv, q.sock
	room, ok := s.rx.room(s.rxHead, uint32(most))
	if !ok {
		q.breakOff(ringRX, claimsTaken)
		return 0
	}
	slot, at := r.head&r.mask, s.rxHead&s.rx.mask
	run, owner := r.cq.run(r.cq.ci, int(min(uint32(most), room, r.posted-r.head, r.mask+1-slot, s.rx.size()-at)))
	n, bytes := takeRun(s.rx.descs[at:], r.frames[slot:], run, &takeRules{tailWant(owner), tailMask(r.mask), r.head, r.limit, s.umem.log, s.umem.start()})
	if r.strip != 0 {
		q.tally.stripped += tagsOf(run[:n])
	}
	r.head += n
	r.cq.ci += n
	s.rxHead += n
	q.tally.packets += uint64(n)
	q.tally.bytes += bytes
	return int(n)
}

// takeRun writes RX entries for completions that are as expected. It is apart so
// that all it needs stays in registers.
//
//go:noinline
func takeRun(descs []xdpDesc, frames []uint32, run []cqe, c *takeRules) (n uint32, bytes uint64) {
	frames, descs = frames[:len(run)], descs[:len(run)]
	if fours := len(run) / 4; wideLoops && fours > 0 {
		k, sum := takeWide(&descs[0], &frames[0], &run[0], fours, c)
		n, bytes = uint32(k), uint64(sum)
	}
	want, mask, head, limit, log, start := c.want, c.mask, c.head, c.limit, c.log&31, uint64(c.start)
	for i := int(n); i < len(run); i++ {
		e := &run[i]
		if (e.load()^(want|tailCount(head+uint32(i))))&mask != 0 {
			return uint32(i), bytes
		}
		size := be32word(e.byteCount)
		if size > limit {
			return uint32(i), bytes
		}
		d := &descs[i]
		d.addr, d.len, d.options = uint64(frames[i])<<log+start, size, 0
		bytes += uint64(size)
	}
	return uint32(len(run)), bytes
}

// takeOne handles any completion.
func (q *xskQueue) takeOne(e *cqe, w uint64) {
	slot, size, ok := q.consume(e, w)
	if !ok {
		return
	}
	q.tally.packets++
	q.tally.bytes += uint64(size)
	if !q.give(slot, size) {
		q.tally.ringFull++
		q.spare(slot)
	}
}

// consume takes completion e: the packet's WQE and size. ok is false where there is
// none to hand out, which is counted. The WQE is spent, whatever became of it.
func (q *xskQueue) consume(e *cqe, w uint64) (slot, size uint32, ok bool) {
	r := &q.recv
	slot = r.head & r.mask
	if r.head == r.posted || uint32(tailCounter(w))&r.mask != slot {
		q.fail(decodeError(e, w))
		return 0, 0, false
	}
	r.head++
	if size = be32word(e.byteCount); tailOpcode(w) == cqeRecv && size <= r.limit {
		q.tally.stripped += tagOf(e) & r.strip
		return slot, size, true
	}
	if cause := decodeError(e, w); tailOpcode(w) == cqeRecv || tailOpcode(w) == cqeRespErr && cause.syndrome == syndromeLength {
		q.tally.oversize++ // it costs the buffer alone
	} else {
		q.fail(cause)
	}
	q.spare(slot)
	return 0, 0, false
}

// spare keeps the frame of a WQE whose packet nobody gets; of several, each stays at
// its place.
func (q *xskQueue) spare(slot uint32) {
	if r := &q.recv; r.pieces == 1 {
		r.keep(r.frames[slot])
	}
}

// put writes an entry of the RX ring, which has room.
func (q *xskQueue) put(addr uint64, size uint32) {
	s := q.sock
	s.rx.descs[s.rxHead&s.rx.mask] = xdpDesc{addr: addr, len: size}
	s.rxHead++
}

// fail marks the receive queue for recovery.
func (q *xskQueue) fail(cause cqeError) {
	if !q.recv.failed {
		q.recv.failed, q.recv.cause = true, cause
	}
	q.tally.wqeErr++
}

// give writes the RX entries of the packet in WQE slot; it returns false, and has
// changed nothing, when there is no room for all.
func (q *xskQueue) give(slot, size uint32) bool {
	r, s := &q.recv, q.sock
	each := s.umem.room()
	n := max(1, (size+each-1)/each)
	room, ok := s.rx.room(s.rxHead, n)
	if !ok {
		q.breakOff(ringRX, claimsTaken)
		return false
	}
	if n > room || n > r.pieces {
		return false
	}
	frames := r.frames[slot*r.pieces:][:n]
	for i := range frames {
		d := xdpDesc{addr: uint64(frames[i])<<s.umem.log + uint64(s.umem.start()), len: min(size, each)}
		if size -= d.len; uint32(i) != n-1 {
			d.options = xdpContinue
		}
		s.rx.descs[s.rxHead&s.rx.mask] = d
		frames[i] = noHold
		s.rxHead++
	}
	q.tally.redirect -= uint64(n - 1)
	return true
}

// refill posts frames of the fill ring.
func (q *xskQueue) refill() {
	r, s := &q.recv, q.sock
	size := r.mask + 1
	free := size - (r.posted - r.head)
	if free < min(refillChunk, size/4) || s.broken {
		return
	}
	have, ok := s.fill.ready(min(free, napiBudget))
	if !ok {
		q.breakOff(ringFill, claimsEntries)
		return
	}
	if r.pieces == 1 && have == 0 && r.nfree == 0 {
		q.starve()
		return
	}
	from := r.posted
	if r.pieces == 1 && r.nfree == 0 {
		q.postPlain(min(free, have))
	} else {
		q.postOdd(free)
		s.fill.took(0)
	}
	if r.posted == from {
		q.starve()
		return
	}
	r.cq.consumed(r.cq.ci)
	r.rec.store(recordRQ, r.posted&0xffff)
}

// starve is refill where there is nothing to post. That all completions were taken
// is told nevertheless: it is the client who is behind, not we.
func (q *xskQueue) starve() {
	q.tally.allocErr++
	if cq := q.recv.cq; cq.told != cq.ci {
		cq.consumed(cq.ci)
	}
}

// postPlain posts up to n frames that the fill ring has, one a WQE.
func (q *xskQueue) postPlain(n uint32) {
	r, s := &q.recv, q.sock
	rules := postRules{word: dataSeg(s.umem.room(), r.lkey, 0).a, base: s.umem.mem.iova + uint64(s.umem.start()),
		logStep: logCeil(int(r.perWQE)), log: s.umem.log, frames: s.umem.frames}
	took := uint32(0)
	for took < n && q.skips > 0 {
		slot, at := r.posted&r.mask, (s.fill.at+took)&s.fill.mask
		part := min(n-took, r.mask+1-slot, s.fill.size()-at)
		k := postRun(r.segs[slot*r.perWQE:], r.frames[slot:][:part], s.fill.addrs[at:], &rules)
		r.posted += k
		if took += k; k < part { // the entry is outside the UMEM
			took++
			q.skip()
		}
	}
	s.fill.took(took)
}

// postRun writes WQEs for as many entries of the fill ring as frames is long, and
// remembers the frames, up to the first entry that is outside the UMEM.
//
//go:noinline
func postRun(segs []seg, frames []uint32, addrs []uint64, c *postRules) uint32 {
	addrs = addrs[:len(frames)]
	word, base, step, log, most := c.word, c.base, c.logStep&31, c.log&31, uint64(c.frames)
	done := 0
	if fours := len(frames) / 4; wideLoops && fours > 0 {
		_ = segs[(len(frames)-1)<<step]
		done = postWide(&segs[0], &frames[0], &addrs[0], fours, c)
	}
	for i := done; i < len(frames); i++ {
		n := addrs[i] >> log
		if n >= most {
			return uint32(i)
		}
		w := &segs[i<<step]
		w.a, w.b = word, be64word(base+n<<log)
		frames[i] = uint32(n)
	}
	return uint32(len(frames))
}

// postOdd posts WQEs one by one: of several frames, or of frames put aside.
func (q *xskQueue) postOdd(free uint32) {
	r, s := &q.recv, q.sock
	for ; free > 0; free-- {
		slot := r.posted & r.mask
		frames := r.frames[slot*r.pieces:][:r.pieces]
		for i := range frames {
			if frames[i] != noHold && r.pieces > 1 {
				continue
			}
			n, ok := q.nextFrame()
			if !ok {
				return
			}
			frames[i] = n
			r.segs[slot*r.perWQE+uint32(i)] = dataSeg(s.umem.room(), r.lkey, s.umem.mem.iova+uint64(n)<<s.umem.log+uint64(s.umem.start()))
		}
		r.posted++
	}
}

// skip counts an entry of the fill ring that names no frame.
func (q *xskQueue) skip() {
	q.tally.badFill++
	q.skips--
}

// nextFrame takes a frame put aside, else the next good one of the fill ring, as far as
// the turn may look for it.
func (q *xskQueue) nextFrame() (uint32, bool) {
	r, s := &q.recv, q.sock
	if r.nfree > 0 {
		r.nfree--
		return r.free[r.nfree], true
	}
	for q.skips > 0 {
		have, ok := s.fill.ready(1)
		if !ok {
			q.breakOff(ringFill, claimsEntries)
		}
		if have == 0 || !ok {
			return 0, false
		}
		n := s.fill.addrs[s.fill.at&s.fill.mask] >> s.umem.log
		s.fill.at++
		if n < uint64(s.umem.frames) {
			return uint32(n), true
		}
		q.skip()
	}
	return 0, false
}

// bytesOf is n bytes at a bus address of one of our frames, for a queue that puts
// them into its WQE; nil where it is none.
func (q *xskQueue) bytesOf(ref pageRef, addr uint64, n uint32) []byte {
	if q.sock == nil || ref&^pageMask != q.id {
		return nil
	}
	m := q.sock.umem.mem
	if off := addr - m.iova; off < uint64(len(m.b)) && uint64(len(m.b))-off >= uint64(n) {
		return m.b[off:][:n:n]
	}
	return nil
}

// takeBack ends the use of frames by other queues, which send them.
func (q *xskQueue) takeBack(refs []pageRef) {
	for _, ref := range refs {
		if ref&^pageMask == q.id && ref != noPage {
			q.out--
			q.recv.keep(ref.page())
		}
	}
}

// lowWater reports whether the device has few buffers left: a quarter of the ring.
func (r *xskRecv) lowWater() bool { return r.posted-r.head < (r.mask+1)/4 }

// sleep says in the rings that nobody looks at them, and then looks once more: it
// returns true when something came meanwhile. Each change wakes once, so that
// what cannot be worked on does not keep the channel awake.
func (q *xskQueue) sleep() (again bool) {
	q.recv.cq.arm()
	q.tx.cq.arm()
	if s := q.sock; s == nil || s.broken || !s.wakeups {
		return false
	}
	for _, step := range sleepSteps {
		again = step(q) || again
	}
	return again
}

// sleepSteps are the steps of that for each ring, asking before looking. What the
// client does at any time between them it learns of from the flag, or we do.
var sleepSteps = [...]func(*xskQueue) bool{
	func(q *xskQueue) bool {
		if !q.asleep {
			q.asleep = true
			q.sock.tx.ask(true)
		}
		return false
	},
	func(q *xskQueue) bool {
		q.sock.fill.ask(q.recv.lowWater())
		return false
	},
	func(q *xskQueue) bool { return q.sock.tx.came(&q.sock.slept[0]) },
	func(q *xskQueue) bool { return q.sock.fill.came(&q.sock.slept[1]) && q.recv.lowWater() },
	func(q *xskQueue) bool { return q.skips == 0 && q.recv.lowWater() }, // there may be more than the turn looked at
}

// wakeUp says in the rings that they are looked at.
func (q *xskQueue) wakeUp() {
	q.asleep = false
	q.sock.tx.ask(false)
	q.sock.fill.ask(false)
}

// sleepless reports whether the client gives no wake-ups, so that the rings must
// be looked at all the time.
func (q *xskQueue) sleepless() bool { return q.sock != nil && !q.sock.broken && !q.sock.wakeups }

// publish makes the tally visible to others.
func (q *xskQueue) publish() {
	t, s := &q.tally, &q.stats
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.redirect.add(t.redirect)
	s.drop.add(t.drop)
	s.abort.add(t.abort)
	s.ringFull.add(t.ringFull)
	s.wqeErr.add(t.wqeErr)
	s.oversize.add(t.oversize)
	s.flushed.add(t.flushed)
	s.noPage.add(t.noPage)
	s.allocErr.add(t.allocErr)
	s.badFill.add(t.badFill)
	s.recover.add(t.recovered)
	s.copied.add(t.copied)
	s.full.add(t.full)
	s.badDescs.add(t.badDescs)
	s.txEmpty.add(t.txEmpty)
	s.wakes.add(t.wakes)
	s.stripped.add(t.stripped)
	s.unsent.add(t.unsent)
	*t = xskTally{}
}
