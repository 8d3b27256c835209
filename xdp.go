package main

// xdp.go owns programs that see a frame before it becomes a packet: what they are
// shown, what they may answer, how far they may move a frame's ends, and the
// programs that are built in. Those do with less than a program may ask and move. It
// does not own the packet filter language (bpf.go), what the device knows of a frame
// (metadata.go), or what a channel does with an answer (verdicts.go).
// (Linux: XDP.)

import (
	"encoding/binary"
	"sync/atomic"
)

// xdpVerdict is a program's answer for one frame, by Linux's numbers. What is none
// of these counts as xdpAborted.
type xdpVerdict uint8

const (
	xdpAborted  xdpVerdict = iota // the program failed: the frame is lost and counted
	xdpDrop                       // the frame is not wanted
	xdpPass                       // on to the handler
	xdpTX                         // out of the port that it came in by
	xdpRedirect                   // to where the frame's to says
)

// xdpFrame is one received frame as a program sees it, and may change it: the
// bytes mem[start:end], with headroom before and room behind. It is good until
// the program returns.
type xdpFrame struct {
	mem   []byte // the fragment that it lies in, from rxHeadroom before the frame on
	start uint32
	end   uint32
	meta  *packet // what the device said about the frame as it came in
	to    xdpSink // where xdpRedirect leads; the program sets it
	queue uint16  // number of the receive queue
}

// data is the frame.
func (f *xdpFrame) data() []byte { return f.mem[f.start:f.end:f.end] }

// adjustHead moves the frame's start by delta bytes, negative into the headroom.
// It refuses to leave the memory or less than an Ethernet header.
// (Linux: bpf_xdp_adjust_head.)
func (f *xdpFrame) adjustHead(delta int) bool {
	at := int64(f.start) + int64(delta)
	if at < 0 || at > int64(f.end)-etherHeader {
		return false
	}
	f.start = uint32(at)
	return true
}

// adjustTail moves the frame's end by delta bytes. It refuses to leave the
// fragment or less than an Ethernet header. What a frame grows by is zero.
// (Linux: bpf_xdp_adjust_tail.)
func (f *xdpFrame) adjustTail(delta int) bool {
	at := int64(f.end) + int64(delta)
	if at > int64(len(f.mem)) || at < int64(f.start)+etherHeader {
		return false
	}
	if delta > 0 {
		clear(f.mem[f.end:at])
	}
	f.end = uint32(at)
	return true
}

// hash is the receive-side scaling hash and the fields that it was made of, 0 and
// 0 where the device made none.
func (f *xdpFrame) hash() (value uint32, kind uint8) { return f.meta.rssHash(), f.meta.hashType }

// timestamp is when the frame came in, in the device's format (clock.go).
func (f *xdpFrame) timestamp() uint64 { return f.meta.timestamp }

// checksums is what the device knows of the frame's checksums as it came in.
func (f *xdpFrame) checksums() csumVerdict { return f.meta.verdict(false) }

// vlan is the tag that the device took out of the frame; ok is false where it
// took none.
func (f *xdpFrame) vlan() (tag uint16, ok bool) { return f.meta.vlan(), f.meta.stripped() }

// xdpProgram decides about frames, a batch at a time: verdicts has one place a
// frame, each holding xdpAborted. Only one goroutine runs a program that keeps
// state of its own; one without may be run by many at once.
type xdpProgram interface {
	run(frames []xdpFrame, verdicts []xdpVerdict)
}

// xdpSink is where a redirect leads: another queue, another port, a socket. One
// belongs to one channel and is called from its goroutine.
type xdpSink interface {
	// redirect takes frames[i] for each i of which, in order, as far as it can. The
	// frames lie in pages of pool, to be lent from it where they are to outlive the
	// call (see xdpFrame.place); with no pool they lie elsewhere and must be copied.
	// What became of each is counted once in t, there or later (outcomes).
	redirect(pool *pagePool, frames []xdpFrame, which []uint8, t *xdpTally)
}

// place is where the frame begins in its pool.
func (f *xdpFrame) place() uint32 { return f.meta.at + f.start - rxHeadroom }

// xdpUniform is a program that answers the same for every frame. Its channel need
// not show it any.
type xdpUniform interface {
	xdpProgram
	uniform() xdpVerdict
}

// xdpSame is the program that drops or passes every frame.
type xdpSame xdpVerdict

func (p xdpSame) uniform() xdpVerdict { return xdpVerdict(p) }

func (p xdpSame) run(_ []xdpFrame, verdicts []xdpVerdict) {
	for i := range verdicts {
		verdicts[i] = xdpVerdict(p)
	}
}

// xdpSwap is the program that sends every frame back to where it came from: it
// swaps the addresses.
type xdpSwap struct{}

func (xdpSwap) uniform() xdpVerdict { return xdpTX }

func (xdpSwap) run(frames []xdpFrame, verdicts []xdpVerdict) {
	for i := range frames {
		if b := frames[i].data(); len(b) >= etherHeader {
			swapAddresses(b)
			verdicts[i] = xdpTX
		}
	}
}

// xdpTo is the program that redirects every frame to one place.
type xdpTo struct{ sink xdpSink }

func (xdpTo) uniform() xdpVerdict { return xdpRedirect }

func (p xdpTo) run(frames []xdpFrame, verdicts []xdpVerdict) {
	for i := range frames {
		frames[i].to, verdicts[i] = p.sink, xdpRedirect
	}
}

// swapAddresses exchanges the destination and source address of a frame.
func swapAddresses(b []byte) {
	_ = b[11]
	to, from := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[4:]) // from begins in the upper 48 bits
	binary.LittleEndian.PutUint64(b, from>>16|to<<48)
	binary.LittleEndian.PutUint32(b[8:], uint32(to>>16))
}

// whole reports whether every frame lies in one piece, which a program needs.
func (q *recvQueue) whole() bool {
	if q.ring != nil {
		return q.ring.layout.linear
	}
	return q.layout.linear()
}

// show makes frames of packets, for a program of receive queue number queue.
func (q *recvQueue) show(frames []xdpFrame, packets []packet, queue uint16) {
	frames = frames[:len(packets)]
	stride := uint32(0)
	if q.ring != nil {
		stride = 1<<q.ring.layout.logStride - rxHeadroom
	}
	for i := range packets {
		p, room := &packets[i], stride
		if q.ring == nil {
			room = uint32(q.frags[p.slot].size)
		}
		frames[i] = xdpFrame{mem: q.pool.cut(p.at-rxHeadroom, rxHeadroom+room), start: rxHeadroom, end: rxHeadroom + p.size,
			meta: p, queue: queue}
	}
}

// moved takes over what a program made of p. A sum over what the frame was says
// nothing of what it is now. (Linux: no "checksum complete" under XDP.)
func (p *packet) moved(f *xdpFrame) {
	p.at, p.size, p.b, p.checksum = f.place(), f.end-f.start, f.data(), 0
}

// lent is the frame to send, lent from the pool of this goroutine.
func (f *xdpFrame) lent(pool *pagePool) txFrame {
	at := f.place()
	return txFrame{addr: pool.mem.iova + uint64(at), form: txSize(f.end - f.start), page: pool.lendOwn(at >> logPage)}
}

// copied is the frame to send, copied into a page of the pool of this goroutine;
// false when there is none.
func (f *xdpFrame) copied(pool *pagePool) (txFrame, bool) {
	n, ok := f.copyTo(pool)
	if !ok {
		return txFrame{}, false
	}
	out := txFrame{addr: pool.addr(n, rxHeadroom), form: txSize(f.end - f.start), page: pool.lendOwn(n)}
	pool.giveBack(n)
	return out, true
}

// copyTo copies the frame into a page of its own, behind rxHeadroom. The page is
// held then, as by a receive queue.
func (f *xdpFrame) copyTo(pool *pagePool) (n uint32, ok bool) {
	if f.end-f.start > pageSize-rxHeadroom {
		return 0, false
	}
	if n, ok = pool.take(); ok {
		copy(pool.bytes(n, rxHeadroom, pageSize), f.data())
	}
	return n, ok
}

// xdpSide is what a channel has for programs. Its goroutine owns it, but for what
// says otherwise.
type xdpSide struct {
	work     *xdpWork                  // program in front of the handler; nil is none
	xdp      *sendQueue                // for its answers; nil until a program is asked for
	xdpSeen  atomic.Pointer[sendQueue] // the same, for those who read counters
	xdpStats xdpStats
	xdpTally xdpTally
	owners   refOwners          // of what is sent from memory of others
	guests   *guestRing         // packets that came in elsewhere; there when xdp is
	visitors [napiBudget]packet // views of them
	visits   [napiBudget]pageRef
	inlet    *xdpInlet // for visitors to the channel's socket; nil where it has none
	sent     outcomes  // of what went to other channels' sockets

	generates bool // xdp carries frames of our own; set before the channel runs
}

// xdpInlet gives visitors to a sink of their channel's own.
type xdpInlet struct {
	sink   xdpSink
	tally  xdpTally
	frames [napiBudget]xdpFrame
	which  [napiBudget]uint8
}

// deliver hands packets over, which are copied, and tells who sent them what became
// of them.
func (l *xdpInlet) deliver(packets []packet, from *outcomes) {
	for i := range packets {
		p := &packets[i]
		l.frames[i] = xdpFrame{mem: p.b, end: p.size, meta: p}
		l.which[i] = uint8(i)
	}
	t := &l.tally
	l.sink.redirect(nil, l.frames[:len(packets)], l.which[:len(packets)], t)
	for _, o := range [...]struct {
		to *atomic.Uint64
		n  uint64
	}{{&from.given, t.redirect}, {&from.full, t.lost}, {&from.nobody, t.nobody}} {
		if o.n > 0 {
			o.to.Add(o.n)
		}
	}
	*t = xdpTally{}
}

// xdpWork is a program at work on a channel, whose goroutine owns it.
type xdpWork struct {
	program  xdpProgram
	same     xdpVerdict // of every frame, when all is set
	all      bool
	frames   [napiBudget]xdpFrame
	verdicts [napiBudget]xdpVerdict
	out      [napiBudget]txFrame // with nothing in it but address, size and page
	which    [napiBudget]uint8
}

func newXDPWork(p xdpProgram) *xdpWork {
	w := &xdpWork{program: p}
	if u, ok := p.(xdpUniform); ok {
		w.same, w.all = u.uniform(), true
	}
	return w
}

// xdpStats counts what became of frames by their verdicts, by mlx5e's names where
// it has them. What a program passes counts with the receive queue, as if there
// had been none; all else counts here alone.
type xdpStats struct {
	packets  counter // that did not pass
	bytes    counter // of these
	drop     counter
	aborted  counter // and what is no verdict
	redirect counter
	lost     counter // redirects that their destination had no room for
	nobody   counter // redirects to a socket that nobody holds
	full     counter // answers that the send ring had no room for
}

type xdpTally struct{ packets, bytes, drop, aborted, redirect, lost, nobody, full uint64 }

// publishXDP makes the tally visible to others.
func (c *xdpSide) publishXDP() {
	t, s, o := &c.xdpTally, &c.xdpStats, &c.sent
	t.redirect += o.given.Swap(0)
	t.lost += o.full.Swap(0)
	t.nobody += o.nobody.Swap(0)
	s.packets.add(t.packets)
	s.bytes.add(t.bytes)
	s.drop.add(t.drop)
	s.aborted.add(t.aborted)
	s.redirect.add(t.redirect)
	s.lost.add(t.lost)
	s.nobody.add(t.nobody)
	s.full.add(t.full)
	*t = xdpTally{}
}

// visited reports whether packets from other channels wait.
func (c *xdpSide) visited() bool {
	if c.guests == nil {
		return false
	}
	_, ok := c.guests.peek()
	return ok
}
