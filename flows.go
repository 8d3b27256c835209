package main

// flows.go owns the flow table of one worker: the key, the fixed memory, who is
// put out when it is full, the ports of fragments, and the few kilobytes of a
// TCP stream that are put together to read a name from it; and the tables that
// count names. It does not know protocols above layer 4 (protocols.go) and does
// not print (summary.go).
//
// All memory is taken when the table is made. Nothing here locks: a table
// belongs to the goroutine of its queue. Hashes are keyed with a random seed,
// so that traffic cannot be made to meet in one bucket.

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

const (
	flowWays      = 8               // entries in a bucket
	flowsPerQueue = 1 << 15         // default size: about 10 MB a queue
	flowIdle      = 120_000_000_000 // ns; after that an entry may be reused freely
	doneFlows     = 32              // largest flows kept after they were put out
	maxFlowName   = 127             // bytes kept of a server name in the flow
	fragWays      = 4
	fragSets      = 256
	fragLife      = 30_000_000_000 // ns that a datagram's ports are remembered
	streamBytes   = 8192           // most that is put together of one direction
	streamSlots   = 128
	streamRanges  = 4 // gaps that may be open in one stream
	noSlot        = -1

	nameWays = 8
	nameSets = 64
	maxName  = 255
)

// flowKey says which packets belong together, either direction: a is the lower
// of the two ends. It has no padding: it is compared as memory.
type flowKey struct {
	a, b         [16]byte
	portA, portB uint16
	vlans        uint32 // VLAN IDs, outer in bits 16..27, inner in 0..11
	tunnelID     uint32
	proto        uint8
	l3           l3Kind
	tunnel       tunnelKind
	_            uint8
}

// Directions of a packet in its flow.
const (
	fromA = 0
	fromB = 1
)

// stream is what is known of one direction's TCP bytes.
type stream struct {
	base  uint32 // sequence number of the first byte
	next  uint32 // sequence number behind the last byte seen
	known bool   // base is from a SYN
	seen  bool   // next is valid
	first bool   // the byte at base was looked at
	slot  int16  // buffer in use, or noSlot
}

// flow is one entry; all of it lies in the table's array.
type flow struct {
	key     flowKey
	first   int64 // time of the first and last packet, ns since 1970
	last    int64
	packets [2]uint64
	bytes   [2]uint64
	streams [2]stream
	self    int32 // index in the table
	app     protocolID
	starter uint8 // the end that spoke first
	named   uint8 // bytes of name in use
	name    [maxFlowName]byte
}

func (f *flow) setName(s []byte) { f.named = uint8(copy(f.name[:], s)) }

// flowCounters are counted for ever.
type flowCounters struct {
	created       uint64
	evictedIdle   uint64 // reused after flowIdle without a packet
	evictedActive uint64 // put out although in use: the table is too small
	fragOrphans   uint64 // later fragments whose first was not seen
	fragEvicted   uint64 // datagrams forgotten before fragLife for lack of room
	streamStolen  uint64 // stream buffers taken away before a name was found
	streamGaps    uint64 // segments not kept: too many gaps
}

type flowTable struct {
	tags  []uint32 // part of the hash, 0 for a free entry
	flows []flow
	mask  uint64 // buckets - 1
	seed  uint64
	live  int
	flowCounters
	done  [doneFlows]flow // largest of those put out
	ndone int
	frags [fragSets * fragWays]fragment
	pool  streamPool
}

// fragment remembers the ports of a fragmented datagram.
type fragment struct {
	tag          uint64 // hash of addresses, protocol and identification; 0 is free
	seen         int64
	sport, dport uint16
}

// newFlowTable makes a table for at least n flows; n is rounded up to a power of
// two, and 0 means the default.
func newFlowTable(n int) *flowTable {
	if n <= 0 {
		n = flowsPerQueue
	}
	n = max(n, flowWays)
	n = 1 << bits.Len(uint(n-1))
	t := &flowTable{
		tags:  make([]uint32, n),
		flows: make([]flow, n),
		mask:  uint64(n/flowWays - 1),
		seed:  rand.Uint64(),
	}
	t.pool.init()
	return t
}

// setKey fills the key from the headers and says which end sent the packet.
func (k *flowKey) setKey(p *parsed, h *ipHeaders, sport, dport uint16) int {
	k.vlans = uint32(p.vlans[0])<<16 | uint32(p.vlans[1])
	k.proto, k.l3 = h.proto, h.l3
	if h == &p.hdr[levelInner] {
		k.tunnel, k.tunnelID = p.tunnel, p.tunnelID
	}
	if less(&h.dst, &h.src) || h.src == h.dst && dport < sport {
		k.a, k.b, k.portA, k.portB = h.dst, h.src, dport, sport
		return fromB
	}
	k.a, k.b, k.portA, k.portB = h.src, h.dst, sport, dport
	return fromA
}

func less(x, y *[16]byte) bool {
	xh, yh := binary.BigEndian.Uint64(x[:]), binary.BigEndian.Uint64(y[:])
	if xh != yh {
		return xh < yh
	}
	return binary.BigEndian.Uint64(x[8:]) < binary.BigEndian.Uint64(y[8:])
}

// mix folds a 64 by 64 bit product, the step of the wyhash family.
func mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, y^0xd6e8feb86659fd93)
	return hi ^ lo
}

func (k *flowKey) hash(seed uint64) uint64 {
	le := binary.LittleEndian
	h := mix(le.Uint64(k.a[:])^seed, le.Uint64(k.a[8:]))
	h = mix(h^le.Uint64(k.b[:]), le.Uint64(k.b[8:])^seed)
	h = mix(h^(uint64(k.portA)<<48|uint64(k.portB)<<32|uint64(k.vlans)), seed)
	rest := uint64(k.tunnelID)<<32 | uint64(k.proto)<<16 | uint64(k.l3)<<8 | uint64(k.tunnel)
	return mix(h^rest, seed)
}

// find returns the packet's flow, a new one if need be, and the packet's
// direction. It never fails: an old flow gives way.
func (t *flowTable) find(p *parsed, h *ipHeaders, ts int64) (*flow, int) {
	sport, dport := t.fragmentPorts(p, h, ts)
	var key flowKey
	dir := key.setKey(p, h, sport, dport)
	hash := key.hash(t.seed)
	tag := uint32(hash>>32) | 1
	set := int(hash&t.mask) * flowWays
	tags := t.tags[set : set+flowWays]
	for i, g := range tags {
		if g == tag && t.flows[set+i].key == key {
			return &t.flows[set+i], dir
		}
	}
	i := t.makeRoom(set, ts)
	t.tags[i] = tag
	f := &t.flows[i]
	*f = flow{key: key, first: ts, last: ts, self: int32(i), starter: uint8(dir)}
	f.streams[0].slot, f.streams[1].slot = noSlot, noSlot
	t.created++
	t.live++
	return f, dir
}

// makeRoom returns a free entry of the bucket; it puts out the flow that was
// silent for the longest time if there is none.
func (t *flowTable) makeRoom(set int, ts int64) int {
	oldest := set
	for i := set; i < set+flowWays; i++ {
		if t.tags[i] == 0 {
			return i
		}
		if t.flows[i].last < t.flows[oldest].last {
			oldest = i
		}
	}
	f := &t.flows[oldest]
	if ts-f.last > flowIdle {
		t.evictedIdle++
	} else {
		t.evictedActive++
	}
	t.release(f)
	t.keepDone(f)
	t.tags[oldest] = 0
	t.live--
	return oldest
}

// keepDone remembers f if it is among the largest that were put out.
func (t *flowTable) keepDone(f *flow) {
	if t.ndone < doneFlows {
		t.done[t.ndone] = *f
		t.ndone++
		return
	}
	least := 0
	for i := range t.done {
		if t.done[i].total() < t.done[least].total() {
			least = i
		}
	}
	if f.total() > t.done[least].total() {
		t.done[least] = *f
	}
}

func (f *flow) total() uint64 { return f.bytes[fromA] + f.bytes[fromB] }

// account adds a packet of n bytes on the wire.
func (f *flow) account(dir, n int, ts int64) {
	f.packets[dir]++
	f.bytes[dir] += uint64(n)
	if ts > f.last {
		f.last = ts
	}
}

// fragmentPorts returns the ports of the datagram that h is a fragment of. A
// first fragment is remembered; a later one without its first has ports 0 and
// so belongs to the flow of its two addresses.
func (t *flowTable) fragmentPorts(p *parsed, h *ipHeaders, ts int64) (sport, dport uint16) {
	if h.flags&(flagFragFirst|flagFragLater) == 0 {
		return h.sport, h.dport
	}
	var key flowKey
	key.setKey(p, h, 0, 0)
	key.portA, key.portB = uint16(h.fragID>>16), uint16(h.fragID)
	tag := key.hash(t.seed^uint64(h.src[15])) | 1
	set := int(tag>>8%fragSets) * fragWays
	if h.flags&flagFragFirst != 0 {
		t.remember(set, fragment{tag, ts, h.sport, h.dport})
		return h.sport, h.dport
	}
	for i := set; i < set+fragWays; i++ {
		if g := &t.frags[i]; g.tag == tag && ts-g.seen <= fragLife {
			return g.sport, g.dport
		}
	}
	t.fragOrphans++
	return 0, 0
}

func (t *flowTable) remember(set int, g fragment) {
	oldest := set
	for i := set; i < set+fragWays; i++ {
		if t.frags[i].tag == 0 || t.frags[i].tag == g.tag {
			t.frags[i] = g
			return
		}
		if t.frags[i].seen < t.frags[oldest].seen {
			oldest = i
		}
	}
	if g.seen-t.frags[oldest].seen <= fragLife {
		t.fragEvicted++
	}
	t.frags[oldest] = g
}

// each calls fn for every flow: those in the table, then those kept of the ones
// put out. It is for summaries and runs in the table's goroutine.
func (t *flowTable) each(fn func(*flow)) {
	for i, tag := range t.tags {
		if tag != 0 {
			fn(&t.flows[i])
		}
	}
	for i := range t.ndone {
		fn(&t.done[i])
	}
}

// streamPool lends buffers to streams. When all are lent, the one lent first is
// taken back, so that half-open handshakes cannot hold them for ever.
type streamPool struct {
	slots [streamSlots]streamSlot
	next  int
}

type streamSlot struct {
	owner  int32 // flow index times 2 plus direction, or noSlot
	ranges [streamRanges]span
	n      int
	buf    [streamBytes]byte
}

// span is a run of bytes that arrived, to not included.
type span struct{ from, to int }

func (s *streamPool) init() {
	for i := range s.slots {
		s.slots[i].owner = noSlot
	}
}

// lend gives one direction of f a buffer whose first byte has sequence number
// base.
func (t *flowTable) lend(f *flow, dir int, base uint32) *streamSlot {
	pool := &t.pool
	i := pool.next
	pool.next = (i + 1) % streamSlots
	slot := &pool.slots[i]
	if slot.owner != noSlot {
		t.flows[slot.owner/2].streams[slot.owner%2].slot = noSlot
		t.streamStolen++
	}
	slot.owner, slot.n = f.self*2+int32(dir), 0
	f.streams[dir].slot, f.streams[dir].base = int16(i), base
	return slot
}

// giveBack ends the use of st's buffer.
func (t *flowTable) giveBack(st *stream) {
	if st.slot == noSlot {
		return
	}
	t.pool.slots[st.slot].owner = noSlot
	st.slot = noSlot
}

func (t *flowTable) release(f *flow) {
	t.giveBack(&f.streams[fromA])
	t.giveBack(&f.streams[fromB])
}

// put stores data at off bytes behind the base and returns how many bytes are
// there without a gap from the base on. It keeps what fits.
func (s *streamSlot) put(off int, data []byte) (ready int, kept bool) {
	if off < 0 {
		if -off >= len(data) {
			return s.ready(), true
		}
		data, off = data[-off:], 0
	}
	if off >= streamBytes {
		return s.ready(), true
	}
	sp := span{off, off + min(len(data), streamBytes-off)}
	merged := sp
	n := 0
	for _, r := range s.ranges[:s.n] {
		if r.from <= merged.to && merged.from <= r.to {
			merged = span{min(r.from, merged.from), max(r.to, merged.to)}
			continue
		}
		s.ranges[n] = r
		n++
	}
	s.n = n
	if n == streamRanges {
		return s.ready(), false
	}
	copy(s.buf[sp.from:sp.to], data)
	s.ranges[n] = merged
	s.n++
	return s.ready(), true
}

func (s *streamSlot) ready() int {
	for _, r := range s.ranges[:s.n] {
		if r.from == 0 {
			return r.to
		}
	}
	return 0
}

// nameTable counts names in fixed memory. In a full bucket a new name takes the
// place and the count of the rarest one (the Space-Saving rule of Metwally, Agrawal
// and El Abbadi), so that frequent names stay whatever else comes by; counts are upper bounds from then on.
type nameTable struct {
	seed    uint64
	entries [nameSets * nameWays]nameEntry
}

type nameEntry struct {
	hash  uint64
	count uint64
	size  uint8
	name  [maxName]byte
}

// add counts one occurrence; longer names are cut to maxName bytes.
func (t *nameTable) add(name []byte) {
	name = name[:min(len(name), maxName)]
	h := t.hash(name)
	set := t.entries[int(h%nameSets)*nameWays:][:nameWays]
	least := &set[0]
	for i := range set {
		e := &set[i]
		if e.count != 0 && e.hash == h && string(e.name[:e.size]) == string(name) {
			e.count++
			return
		}
		if e.count < least.count {
			least = e
		}
	}
	least.count++
	least.hash = h
	least.size = uint8(copy(least.name[:], name))
}

func (t *nameTable) hash(b []byte) uint64 {
	h := t.seed ^ uint64(len(b))
	for len(b) >= 8 {
		h = mix(h^binary.LittleEndian.Uint64(b), t.seed)
		b = b[8:]
	}
	var last uint64
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	return mix(h^last, t.seed)
}
