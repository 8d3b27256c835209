package main

// xdp.go owns programs that see a frame before it becomes a packet: what they are
// shown, what they may answer, how far they may move a frame's ends, and the
// programs that are built in. It does not own the packet filter language (bpf.go),
// what the device knows of a frame (metadata.go), or what a channel does with an
// answer (attach.go).
// (Linux: XDP.)

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
	// It returns how many it took; the caller counts the rest as lost.
	redirect(pool *pagePool, frames []xdpFrame, which []uint8) int
}

// place is where the frame begins in its pool.
func (f *xdpFrame) place() uint32 { return f.meta.at + f.start - rxHeadroom }
