package model

// wire_gen.go owns the wire with the built-in traffic: which conversations there
// are, the sizes of their frames, and the order in which these follow one
// another. It does not own what is said (wire_gen_talk.go), the headers around
// it (wire_gen_frame.go) or the pace (wire.go). It stands outside the manual.
//
// All frames are built before the first one is sent and then sent round and
// round, so that a frame costs a few nanoseconds. Equal options give equal
// frames. A conversation's frames keep their order. Addresses are those set
// aside for documentation and private use: 10/8, RFC 5737, RFC 3849, and names
// below example.com, .net and .org (RFC 2606).
//
// Sizes: a table of sizes and a pattern of slots. Simple IMIX is 7:4:1 of 64,
// 570 and 1518 bytes, exactly, over each round of the table. What a frame says
// is grown to fill the smallest size it fits: headers, padding extensions and
// options first; where a protocol has none, bytes follow behind the packet, as
// Ethernet's padding does.

import (
	"fmt"
	"time"
)

const (
	genSizeMin  = 64    // with FCS: the least that Ethernet allows
	genSizeMax  = 16000 // with FCS: one TLS record still fills a frame
	genFlowsMax = 8192
	genFlows    = 256
	genCount    = 1000000
	// genWindow is how many conversations are under way at a time.
	genWindow = 24
)

// genDefaultMAC is the device's own address unless told otherwise, so that a
// port which is not promiscuous gets the unicast frames, as a router would.
var genDefaultMAC = [6]byte{2, 0, 0, 0, 0, 1}

type genWire struct {
	frames  [][]byte
	next    int
	left    uint64
	forever bool
	pace    pacer
}

// openGen builds the traffic that the options ask for.
func openGen(s *wireSpec) (Wire, error) {
	sizes, pattern, err := genSizes(s)
	if err != nil {
		return nil, inputError("wire gen: %w", err)
	}
	dst, err := s.macOr("dst", genDefaultMAC)
	if err != nil {
		return nil, inputError("wire gen: %w", err)
	}
	b := &genBuilder{sizes: sizes, dst: dst, rand: genRand(s.numberOr("seed", 1))}
	count := s.numberOr("count", genCount)
	return &genWire{
		frames: b.table(int(s.numberOr("flows", genFlows)), pattern),
		left:   count, forever: count == 0, pace: newPacer(s),
	}, nil
}

// genSizes reads mode= and size= into frame sizes without FCS, ascending, and
// the order in which they are sent.
func genSizes(s *wireSpec) (sizes, pattern []int, err error) {
	mode, given := s.word["mode"]
	size, fixed := s.number["size"]
	switch {
	case fixed && given:
		return nil, nil, fmt.Errorf("options mode and size exclude each other")
	case !fixed && (!given || mode == "imix"):
		return []int{60, 566, 1514}, []int{0, 1, 0, 0, 1, 0, 0, 2, 1, 0, 0, 1}, nil
	case !fixed:
		n, ok := parseCount(mode)
		if !ok || n < genSizeMin || n > genSizeMax {
			return nil, nil, fmt.Errorf("mode=%s: write imix or a frame size from %d to %d", mode, genSizeMin, genSizeMax)
		}
		size = n
	}
	return []int{int(size) - 4}, []int{0}, nil
}

func (w *genWire) Peek(now time.Time) []byte {
	if w.Done() || !w.pace.ready(now) {
		return nil
	}
	return w.frames[w.next]
}

func (w *genWire) Take() {
	if w.Done() {
		return
	}
	w.pace.sent(len(w.frames[w.next]))
	w.left-- // wraps when it never ends, which nobody reads
	if w.next++; w.next == len(w.frames) {
		w.next = 0
	}
}

func (w *genWire) Lossless() bool  { return !w.pace.paced() }
func (w *genWire) Transmit([]byte) {}
func (w *genWire) Done() bool      { return w.left == 0 && !w.forever }
func (w *genWire) LinkUp() bool    { return true }

func (w *genWire) Close() error {
	w.left, w.forever = 0, false
	return nil
}

// genRand is SplitMix64: small, and the same for ever.
type genRand uint64

func (r *genRand) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *genRand) below(n int) int { return int(r.next() % uint64(n)) }

func (r *genRand) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.next())
	}
	return b
}

// genFrame is a frame and the index of its size. One of a stream is built when
// its turn comes, so that its numbers are in order.
type genFrame struct {
	size   int
	data   []byte
	stream *genStream
}

// genBuilder builds conversations and puts their frames in order.
type genBuilder struct {
	sizes   []int
	dst     [6]byte
	rand    genRand
	out     []genFrame // of the conversation being built
	failed  bool       // a frame of it did not fit the largest size
	streams []*genStream
}

// genKind is one kind of conversation.
type genKind struct {
	build func(b *genBuilder, c *genConv)
	v6    bool
	link  func(c *genConv) // what lies around it; nil is nothing
}

// genMix is the mix, repeated over the conversations in this order. The first is
// an endless stream: it also fills slots that no other has a frame for.
var genMix = []genKind{
	{build: (*genBuilder).stream},
	{build: (*genBuilder).tls},
	{build: (*genBuilder).dns},
	{build: (*genBuilder).http},
	{build: (*genBuilder).tls, v6: true},
	{build: (*genBuilder).ping},
	{build: (*genBuilder).tls, link: genVLAN},
	{build: (*genBuilder).arp},
	{build: (*genBuilder).chat},
	{build: (*genBuilder).dns, v6: true},
	{build: (*genBuilder).http, v6: true},
	{build: (*genBuilder).syslog},
	{build: (*genBuilder).http, link: genQinQ},
	{build: (*genBuilder).neighbour, v6: true},
	{build: (*genBuilder).tls},
	{build: (*genBuilder).http, link: genVXLAN},
	{build: (*genBuilder).chat},
	{build: (*genBuilder).dns},
	{build: (*genBuilder).http},
	{build: (*genBuilder).ping, v6: true},
	{build: (*genBuilder).chat, link: genVLAN},
	{build: (*genBuilder).dns, link: genGRE},
	{build: (*genBuilder).tls, v6: true},
	{build: (*genBuilder).stream, v6: true},
	{build: (*genBuilder).tls},
	{build: (*genBuilder).fragments},
	{build: (*genBuilder).chat},
	{build: (*genBuilder).lldp},
	{build: (*genBuilder).dns, link: genVLAN},
	{build: (*genBuilder).http},
	{build: (*genBuilder).tls, link: genVXLAN},
	{build: (*genBuilder).chat},
}

// conversation builds number n. A kind that does not fit the largest size, as
// IPv6 does not fit 64 bytes, gives way to a plain TCP conversation.
func (b *genBuilder) conversation(n int) []genFrame {
	kind := genMix[n%len(genMix)]
	c := b.newConv(n, kind.v6)
	if kind.link != nil {
		kind.link(c)
	}
	b.out, b.failed = nil, false
	streams := len(b.streams)
	kind.build(b, c)
	if b.failed {
		b.out, b.failed, b.streams = nil, false, b.streams[:streams]
		b.chat(b.newConv(n, false))
	}
	return b.out
}

// table builds all conversations and puts their frames into the order of the
// pattern: for each slot the next conversation under way whose next frame has
// the slot's size, or a frame of a stream.
func (b *genBuilder) table(flows int, pattern []int) [][]byte {
	pending := make([][]genFrame, flows)
	for i := range pending {
		pending[i] = b.conversation(i)
	}
	window := pending[:min(genWindow, flows)]
	waiting := pending[len(window):]
	var table [][]byte
	turn := 0
	for slot := 0; ; slot++ {
		if len(window) == 0 && slot%len(pattern) == 0 {
			return table
		}
		size := pattern[slot%len(pattern)]
		i := genPick(window, turn, size)
		if i < 0 {
			table = append(table, b.filler(slot, size))
			continue
		}
		table = append(table, window[i][0].finish(b))
		turn = i + 1
		if window[i] = window[i][1:]; len(window[i]) > 0 {
			continue
		}
		if len(waiting) > 0 {
			window[i], waiting = waiting[0], waiting[1:]
		} else {
			window = append(window[:i], window[i+1:]...)
		}
	}
}

// genPick finds the conversation from turn on, round and round, whose next frame
// has this size; -1 is none.
func genPick(window [][]genFrame, turn, size int) int {
	for k := range window {
		i := (turn + k) % len(window)
		if window[i][0].size == size {
			return i
		}
	}
	return -1
}

// emit finishes a frame and adds it to the conversation: padded to the smallest
// size that holds it.
func (b *genBuilder) emit(frame []byte) {
	for i, size := range b.sizes {
		if len(frame) <= size {
			b.out = append(b.out, genFrame{size: i, data: genPad(frame, size)})
			return
		}
	}
	b.failed = true
}

// genPad appends zeros and gives the frame memory that ends where it ends.
func genPad(frame []byte, size int) []byte {
	full := make([]byte, size)
	copy(full, frame)
	return full
}

// grow returns how many bytes of payload to send instead of n, so that the frame
// behind head bytes of headers is as long as one of the sizes. It is n where
// none is long enough.
func (b *genBuilder) grow(head, n int) int {
	for _, size := range b.sizes {
		if head+n <= size {
			return size - head
		}
	}
	return n
}

// largest is the size of the longest frame, without FCS.
func (b *genBuilder) largest() int { return b.sizes[len(b.sizes)-1] }
