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

import "encoding/binary"

// txFrame is a frame to send, or a piece of one, in DMA memory: half a cache line.
// It holds no pointer, so that bursts of it cost the garbage collector nothing.
type txFrame struct {
	addr uint64  // where the device finds it
	eseg seg     // what shall be done to it; the zero value is nothing
	form txForm  // bytes, and what keeps it from sharing a WQE
	page pageRef // given back when it has left; noPage when nobody waits
}

// txForm is txSize(n), with what is special about the frame: txMore, txAlone and
// txHeader(n). A frame in one piece with nothing special is just its size, so
// that one unsigned comparison refuses all others with the sizes that do not fit.
type txForm uint32

const (
	txSizeMask  txForm = 1<<20 - 1
	txMore      txForm = 1 << 20 // the next element is a further piece of this frame
	txAlone     txForm = 1 << 21 // wants a WQE of its own (a mark for TLS)
	headerShift        = 22
)

// txSize is the form of a piece of n bytes. What is beyond the field is beyond
// every port as well.
func txSize(n uint32) txForm { return min(txForm(n), txSizeMask) }

// txHeader marks a frame that the device shall cut into segments (LSO), and says
// how long the headers are which every cut repeats.
func txHeader(n uint32) txForm { return txForm(min(n, 1<<(32-headerShift)-1)) << headerShift }

// size is how many bytes the piece has.
func (f txForm) size() uint32 { return uint32(f & txSizeMask) }

// plain reports whether nothing is special.
func (f txForm) plain() bool { return f <= txSizeMask }

// header is the length of the headers to repeat, 0 when the frame is sent as is.
func (f txForm) header() uint32 { return uint32(f >> headerShift) }

// sessionLimit is how many packets fit: the length of a WQE has 6 bits and
// counts 16-byte segments, two of which are not packets. Linux stops at 58.
const sessionLimit = maxDS - 2

// tagged reports whether an eth segment has a VLAN tag to insert.
func tagged(eseg seg) bool { return be64word(eseg.b)&(insertVLAN<<16) != 0 }

// sizeRange says which frames can be sent as they are: from a header up to what
// the port takes. One unsigned comparison checks both ends, and of a form that
// the frame is plain too.
type sizeRange uint32

func upTo(frame int) sizeRange { return sizeRange(frame - etherHeader) }

func (r sizeRange) refuses(size uint32) bool { return size-etherHeader > uint32(r) }

// with is the range for frames with this eth segment: a tag that the device
// inserts counts too.
func (r sizeRange) with(eseg seg) sizeRange {
	if tagged(eseg) {
		return r - vlanTag
	}
	return r
}

// fillSession writes the data segments of the session that the first frame opens
// and remembers the pages, until a frame comes that cannot join. It returns the
// number of frames and their bytes. out and refs are at least as long as frames.
func fillSession(out []seg, refs []pageRef, frames []txFrame, lkey uint32, ok sizeRange) (n int, bytes uint32) {
	out, refs = out[:len(frames)], refs[:len(frames)]
	if len(frames) == 0 {
		return 0, 0
	}
	eseg, key := frames[0].eseg, uint64(be32word(lkey))<<32
	for i := range frames {
		f := &frames[i]
		size := uint32(f.form)
		if (f.eseg.a^eseg.a)|(f.eseg.b^eseg.b) != 0 || ok.refuses(size) {
			return i, bytes
		}
		out[i] = seg{key | uint64(be32word(size)), be64word(f.addr)}
		refs[i] = f.page
		bytes += size
	}
	return len(frames), bytes
}

// inlineSession is a session whose small frames stand in the WQE itself, so that
// the device needs no second read for them: a length word, the bytes, and what
// fills the last segment. All frames lie in memory mem, at bus address base.
type inlineSession struct {
	mem  []byte
	base uint64
	most uint32 // bytes of the longest frame that is put in
	lkey uint32
}

// fill is fillSession with frames put in. used is the number of segments.
func (s *inlineSession) fill(out []seg, refs []pageRef, frames []txFrame, ok sizeRange) (n, used, inlined int, bytes uint32) {
	for n < len(frames) {
		k, sum := s.blocks(out[used:], refs[n:], frames[n:], frames[0].eseg, ok)
		n, used, inlined, bytes = n+k, used+k*segsPerBlock, inlined+k, bytes+sum
		if n == len(frames) {
			break
		}
		f := &frames[n]
		if f.eseg != frames[0].eseg || ok.refuses(uint32(f.form)) {
			break
		}
		room, put := s.one(out[used:], f)
		if room == 0 && n == 0 { // before the ring's edge not even the first may fit
			out[0], room = dataSeg(f.form.size(), s.lkey, f.addr), 1
		}
		if room == 0 {
			break
		}
		if put {
			inlined++
		}
		refs[n] = f.page
		used, bytes, n = used+room, bytes+f.form.size(), n+1
	}
	return n, used, inlined, bytes
}

// blocks puts in frames that take just one block, 45 to 60 bytes, from the front
// of frames; for small packets that is all of them.
func (s *inlineSession) blocks(out []seg, refs []pageRef, frames []txFrame, eseg seg, ok sizeRange) (n int, bytes uint32) {
	const least = wqebb - 4 - segment + 1
	if s.most < least || len(s.mem) < wqebb || ok.refuses(wqebb-4) {
		return 0, 0
	}
	frames = frames[:min(len(frames), len(out)/segsPerBlock)]
	refs = refs[:len(frames)]
	mem, base, last, span := s.mem, s.base, uint64(len(s.mem)-wqebb), min(s.most, wqebb-4)-least
	for i := range frames {
		f := &frames[i]
		size, off := uint32(f.form), f.addr-base
		if (f.eseg.a^eseg.a)|(f.eseg.b^eseg.b) != 0 || size-least > span || off > last {
			return i, bytes
		}
		// Written out here, since the compiler would call it: all 60 bytes, beyond a
		// shorter frame too. The device reads no more than the length says.
		o, m, le := (*wqeBlock)(out[i*segsPerBlock:]), (*[wqebb]byte)(mem[off:]), binary.LittleEndian
		o[0] = seg{uint64(be32word(size|dsInline)) | uint64(le.Uint32(m[:]))<<32, le.Uint64(m[4:])}
		o[1] = seg{le.Uint64(m[12:]), le.Uint64(m[20:])}
		o[2] = seg{le.Uint64(m[28:]), le.Uint64(m[36:])}
		o[3] = seg{le.Uint64(m[44:]), le.Uint64(m[52:])}
		refs[i] = f.page
		bytes += size
	}
	return len(frames), bytes
}

// one writes the segments of one frame of any size: put in where it is small and
// in our memory, else a pointer. It returns how many it took, 0 when there is no
// room.
func (s *inlineSession) one(out []seg, f *txFrame) (room int, put bool) {
	size, off := f.form.size(), f.addr-s.base
	room = int(size+4+segment-1) / segment
	if size > s.most || off >= uint64(len(s.mem)) || uint64(len(s.mem))-off < uint64(room*segment) {
		if len(out) == 0 {
			return 0, false
		}
		out[0] = dataSeg(size, s.lkey, f.addr)
		return 1, false
	}
	if room > len(out) {
		return 0, false
	}
	putInline(out[:room], s.mem[off:], size)
	return room, true
}

// putInline writes an inline data segment over all of out. It copies whole words,
// beyond the frame too: the device reads no more than the length says.
func putInline(out []seg, b []byte, size uint32) {
	le := binary.LittleEndian
	b = b[:len(out)*segment]
	out[0] = seg{uint64(be32word(size|dsInline)) | uint64(le.Uint32(b))<<32, le.Uint64(b[4:])}
	for i := 1; i < len(out); i++ {
		w := b[i*segment-4:][:segment]
		out[i] = seg{le.Uint64(w), le.Uint64(w[8:])}
	}
}
