package main

// mpwqe.go owns WQEs that carry many packets: which frames may share one (the send
// session, enhanced multi-packet send) and its data segments. It does not own the
// ring's counters and the segments in front (txpath.go).
// Manual: chapter Send WQE, enhanced multi-packet WQE.
//
// A session is one control segment, one eth segment and then one data segment
// of 16 bytes a packet. It ends when a packet wants another eth segment or a WQE
// of its own, when it is full, at the ring's edge, and with the burst. It is
// never padded with NOPs: what does not fit before the edge opens the next
// session behind it.

// txFrame is a frame to send, or a piece of one, in DMA memory. It holds no
// pointer, so that bursts of it cost the garbage collector nothing.
type txFrame struct {
	addr uint64  // where the device finds it
	eseg seg     // what shall be done to it; the zero value is nothing
	size uint32  // bytes
	page pageRef // given back when it has left; noPage when nobody waits
	kind txKind
}

// txKind says what keeps a frame from sharing a WQE. The zero value is a frame
// in one piece with nothing special about it.
type txKind uint32

const (
	txMore  txKind = 1 << 0 // the next element is a further piece of this frame
	txAlone txKind = 1 << 1 // wants a WQE of its own (a mark for TLS)
	// txHeader is the length of the headers of a frame that the device shall cut
	// into segments (LSO), in the upper 16 bits.
	txHeaderShift = 16
)

// header is the length of the headers to repeat, 0 when the frame is sent as is.
func (k txKind) header() uint32 { return uint32(k >> txHeaderShift) }

// sessionLimit is how many packets fit: the length of a WQE has 6 bits and
// counts 16-byte segments, two of which are not packets. Linux stops at 58.
const sessionLimit = maxDS - 2

// fillSession writes the data segments of the session that the first frame opens
// and remembers the pages, until a frame comes that cannot join. It returns the
// number of frames and their bytes. out and refs are at least as long as frames.
func fillSession(out []seg, refs []pageRef, frames []txFrame, lkey uint32) (n int, bytes uint64) {
	out, refs = out[:len(frames)], refs[:len(frames)]
	if len(frames) == 0 {
		return 0, 0
	}
	eseg := frames[0].eseg
	for i := range frames {
		f := &frames[i]
		size := f.size
		if f.eseg.a^eseg.a|f.eseg.b^eseg.b|uint64(f.kind) != 0 || size < etherHeader {
			break
		}
		out[i] = dataSeg(size, lkey, f.addr)
		refs[i] = f.page
		bytes += uint64(size)
		n++
	}
	return n, bytes
}
