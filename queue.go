package main

// queue.go owns the rings that we share with the device: work queues, completion
// queues and event queues. Counters, ownership, doorbells. It does not know what
// a packet is (rxpath.go, txpath.go) nor when to look (napi.go).
// Manual: chapters Work Queues, Completion Queues, Event Queues, UAR.
//
// All counters run freely and wrap; the ring's mask gives the slot and the next
// bit above it the owner bit of the lap. Who writes what: each ring has one
// owner goroutine on our side; the device writes CQEs and EQEs and reads WQEs
// and doorbell records.

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// counter is a 64-bit number with one writer, read by anyone. It costs one store
// an addition, so the data path adds once a poll, not once a packet.
type counter struct{ v atomic.Uint64 }

func (c *counter) add(n uint64) {
	if n != 0 {
		c.v.Store(c.v.Load() + n)
	}
}

func (c *counter) get() uint64 { return c.v.Load() }

// seg is one 16-byte segment of a WQE, a DS, as it lies in memory. Builders
// return whole segments, so that no stale bit survives from the last lap.
type seg struct{ a, b uint64 }

// dataSeg points at n bytes at bus address addr.
func dataSeg(n, lkey uint32, addr uint64) seg {
	return seg{bits.ReverseBytes64(uint64(n)<<32 | uint64(lkey)), bits.ReverseBytes64(addr)}
}

// ctrlSeg starts a WQE: opcode, index of its first block, queue number, length
// in segments, and the completion flags (fm_ce_se).
func ctrlSeg(opcode uint8, index uint16, qpn uint32, ds uint8, flags uint8) seg {
	return seg{
		bits.ReverseBytes64(uint64(index)<<40 | uint64(opcode)<<32 | uint64(qpn)<<8 | uint64(ds)),
		bits.ReverseBytes64(uint64(flags) << 32),
	}
}

// segments views DMA memory as a ring of segments.
func segments(m dmaMem) []seg {
	return unsafe.Slice((*seg)(unsafe.Pointer(&m.b[0])), len(m.b)/segment)
}

// wqeBlock is one WQEBB.
type wqeBlock [segsPerBlock]seg

const segsPerBlock = wqebb / segment

// blocks views the same memory as a ring of WQEBBs.
func blocks(m dmaMem) []wqeBlock {
	return unsafe.Slice((*wqeBlock)(unsafe.Pointer(&m.b[0])), len(m.b)/wqebb)
}

// memoryLine is a cache line of memory that is ours, as it lies there.
type memoryLine [cacheLine]byte

const cacheLine = 64

// memoryLines views memory as cache lines.
func memoryLines(m dmaMem) []memoryLine {
	return unsafe.Slice((*memoryLine)(unsafe.Pointer(&m.b[0])), len(m.b)/cacheLine)
}

// cqe is a completion queue entry of 64 bytes. All fields are big endian. tail
// is loaded atomically: owner bit, opcode and WQE counter in one word; what
// stands before it may be read after it.
type cqe struct {
	_         [2]byte
	wqeID     uint16
	_         [8]byte
	hash      uint32
	hashType  uint8
	_         [3]byte
	checksum  uint16
	_         [6]byte
	info      uint32 // hds_ip_ext, l4_l3_hdr_type, vlan_info
	_         [12]byte
	byteCount uint32
	timestamp uint64
	tail      uint64 // sop_drop_qpn, wqe_counter, signature, op_own
}

const cqeSize = 64

// The overlays must have the manual's size.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(cqe{})-cqeSize]
	_ = [1]struct{}{}[unsafe.Sizeof([miniArray]miniCQE{})-cqeSize]
)

// miniCQE is a small completion, of which miniArray fill an entry. What the first
// word is depends on the CQ's format: the RSS hash, or checksum and stride index.
type miniCQE struct {
	word      uint32
	byteCount uint32
}

const miniArray = 8

// Parts of cqe.tail, as loaded on a little-endian machine.
func tailOpcode(w uint64) uint8   { return uint8(w >> 60) }
func tailOwner(w uint64) uint32   { return uint32(w >> 56 & 1) }
func tailFormat(w uint64) uint8   { return uint8(w >> tailFormatShift & 3) }
func tailCounter(w uint64) uint16 { return bits.ReverseBytes16(uint16(w >> 32)) }

// tailFormatShift is where a tail has the entry's format.
const tailFormatShift = 58

// tailWant is the tail of a receive completion of ring lap owner, without its WQE
// counter, which tailCount puts in, as far as tailMask covers it.
func tailWant(owner uint32) uint64 { return uint64(cqeRecv)<<60 | uint64(owner)<<56 }

func tailCount(n uint32) uint64 { return uint64(bits.ReverseBytes16(uint16(n))) << 32 }

// tailMask covers opcode, format and owner, and of the counter the bits in count.
func tailMask(count uint32) uint64 {
	return 0xfd<<56 | tailCount(count)
}

// withCounter is a tail with another WQE counter.
func withCounter(w uint64, n uint16) uint64 {
	return w&^(0xffff<<32) | uint64(bits.ReverseBytes16(n))<<32
}

// tailQueue is the queue that an error completion is about (24 bits).
func tailQueue(w uint64) uint32 { return bits.ReverseBytes32(uint32(w)) & indexMask24 }

// be16word, be32word and be64word turn a big-endian field of an overlay, which
// was loaded as a machine word.
func be16word(v uint16) uint16 { return bits.ReverseBytes16(v) }
func be32word(v uint32) uint32 { return bits.ReverseBytes32(v) }
func be64word(v uint64) uint64 { return bits.ReverseBytes64(v) }

// cqeError is what an error completion says (manual: error CQE).
type cqeError struct {
	opcode    uint8 // cqeReqErr or cqeRespErr
	syndrome  uint8
	vendor    uint8
	hardware  uint8 // hw_error_syndrome
	hwType    uint8 // hw_syndrome_type
	wqeOpcode uint8
	queue     uint32 // QPN of the queue, 0 on an Ethernet receive queue
	counter   uint16 // of the WQE
}

// decodeError reads an error completion; w is its tail.
func decodeError(e *cqe, w uint64) cqeError {
	v := be64word(e.timestamp) // the same 8 bytes carry syndromes in an error CQE
	return cqeError{
		opcode: tailOpcode(w), syndrome: uint8(v), vendor: uint8(v >> 8), hwType: uint8(v >> 16), hardware: uint8(v >> 24),
		wqeOpcode: uint8(w), queue: tailQueue(w), counter: tailCounter(w),
	}
}

func (e cqeError) Error() string {
	return fmt.Sprintf("%s (syndrome %#x, vendor %#x, hardware %#x/%#x), WQE index %#x, opcode %#x",
		nameOf(syndromeNames, e.syndrome), e.syndrome, e.vendor, e.hardware, e.hwType, e.counter, e.wqeOpcode)
}

// compQueue is a completion queue. Its owner is one goroutine.
type compQueue struct {
	cqes  []cqe
	mask  uint32
	log   uint8  // log2 of the number of entries
	ci    uint32 // entries consumed; written by the owner
	told  uint32 // of these, what the record says
	armSN uint32 // sequence number of arms; the device compares it
	n     uint32 // CQN
	rec   record
	uar   []byte // its page of doorbell registers
	buf   dmaMem
}

// newCompQueue prepares memory for 2^log entries, all of them the device's.
func newCompQueue(mem *arena, log uint8, uar []byte) (*compQueue, error) {
	buf, err := mem.alloc(cqeSize << log)
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	rec, err := mem.newRecord()
	if err != nil {
		mem.free(buf)
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	q := &compQueue{buf: buf, rec: rec, log: log, mask: 1<<log - 1, uar: uar}
	q.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&buf.b[0])), 1<<log)
	q.reset()
	return q, nil
}

// reset gives every entry back to the device. The queue must be idle.
func (q *compQueue) reset() {
	for i := range q.cqes {
		atomic.StoreUint64(&q.cqes[i].tail, uint64(cqeInvalid<<4|1)<<56)
	}
	q.ci, q.told, q.armSN = 0, 0, 0
	q.rec.store(recordCQ, 0)
	q.rec.store(recordCQArm, cqArmNever) // not 0: that is what the first arm looks like
}

func (q *compQueue) free(mem *arena) {
	mem.freeRecord(q.rec)
	mem.free(q.buf)
}

// peek returns the next completion and its tail, or nil when there is none yet.
func (q *compQueue) peek(ci uint32) (*cqe, uint64) {
	e := &q.cqes[ci&q.mask]
	w := atomic.LoadUint64(&e.tail)
	if tailOwner(w) != ci>>(q.log&31)&1 || tailOpcode(w) == cqeInvalid {
		return nil, 0
	}
	return e, w
}

// load reads the tail; what stands before it may be read after.
func (e *cqe) load() uint64 { return atomic.LoadUint64(&e.tail) }

// run returns at most n entries from ci on that do not cross the ring's edge, and
// the owner bit that they have once the device has written them.
func (q *compQueue) run(ci uint32, n int) ([]cqe, uint32) {
	at := ci & q.mask
	return q.cqes[at : at+min(uint32(n), q.mask+1-at)], ci >> q.log & 1
}

// minis views entry i as an array of small completions.
func (q *compQueue) minis(i uint32) *[miniArray]miniCQE {
	return (*[miniArray]miniCQE)(unsafe.Pointer(&q.cqes[i&q.mask]))
}

// consumed publishes how far the owner has read. Once per poll.
func (q *compQueue) consumed(ci uint32) {
	q.ci, q.told = ci, ci
	q.rec.store(recordCQ, ci&indexMask24)
}

// arm asks for one event as soon as there is a completion beyond q.ci; when
// there is one already the event comes at once.
func (q *compQueue) arm() {
	if q.told != q.ci {
		q.consumed(q.ci)
	}
	word := (q.armSN&3)<<cqArmSN | cqArmAny | q.ci&indexMask24
	q.rec.store(recordCQArm, word)
	regWrite64(q.uar, uarCQArm, uint64(word)<<32|uint64(q.n))
}

// fired notes that the event asked for has come.
func (q *compQueue) fired() { q.armSN++ }

// hwEvent is one entry of an event queue, decoded. sub is the subtype, data what depends on
// kind.
type hwEvent struct {
	kind uint8
	sub  uint8
	data [28]byte
}

// cqn is the completion queue that a completion or CQ error event is about.
func (e hwEvent) cqn() uint32 {
	if e.kind == eventComp {
		return be32(e.data[:], 24) & indexMask24
	}
	return be32(e.data[:], 0) & indexMask24
}

// workQueue is the queue that broke, of which kind (event_queue_type) and number.
func (e hwEvent) workQueue() (kind uint8, n uint32) {
	return e.data[20], be32(e.data[:], 24) & indexMask24
}

const eqeSize = 64

// eventQueue is an event queue. Its owner is one goroutine.
type eventQueue struct {
	buf  dmaMem
	log  uint8
	ci   uint32
	n    uint32 // EQN
	uar  []byte
	page uint32 // UAR index of uar
}

func newEventQueue(mem *arena, log uint8, uar []byte, page uint32) (*eventQueue, error) {
	buf, err := mem.alloc(eqeSize << log)
	if err != nil {
		return nil, fmt.Errorf("event queue: %w", err)
	}
	for off := eqeSize - 4; off < len(buf.b); off += eqeSize {
		storeBE32(buf.b, off, 1) // the first lap's entries are the device's
	}
	return &eventQueue{buf: buf, log: log, uar: uar, page: page}, nil
}

func (q *eventQueue) free(mem *arena) { mem.free(q.buf) }

// next returns the next event; ok is false when there is none.
func (q *eventQueue) next() (ev hwEvent, ok bool) {
	e := q.buf.b[(q.ci&(1<<q.log-1))*eqeSize:][:eqeSize]
	if uint32(loadByte(e, eqeSize-1)&1) != q.ci>>q.log&1 {
		return hwEvent{}, false
	}
	ev.kind, ev.sub = e[1], e[3]
	copy(ev.data[:], e[32:60])
	q.ci++
	return ev, true
}

// arm tells how far we have read and asks for an interrupt at the next event,
// at once when there is one already.
func (q *eventQueue) arm() {
	regWrite32(q.uar, uarEQArm, q.n<<eqnShift|q.ci&indexMask24)
}
