package main

// mpwqe.go owns WQEs that carry many packets: which frames may share one (the send
// session, enhanced multi-packet send) and its data segments. It does not own the
// ring's counters and the segments in front (txpath.go), nor what a frame is
// (frame.go).
// Manual: chapter Send WQE, enhanced multi-packet WQE.
//
// A session is one control segment, one eth segment and then one data segment
// of 16 bytes a packet. It ends when a packet wants another eth segment or a WQE
// of its own, when it is full, at the ring's edge, and with the burst. It is
// never padded with NOPs: what does not fit before the edge opens the next
// session behind it.

import "encoding/binary"

// sessionLimit is how many packets fit: the length of a WQE has 6 bits and
// counts 16-byte segments, two of which are not packets. Linux stops at 58.
const sessionLimit = maxDS - 2

// fillSession writes the data segments of the session that the first frame opens
// and remembers the pages, until a frame comes that cannot join. It returns the
// number of frames and their bytes. out and refs are at least as long as frames.
func fillSession(out []seg, refs []pageRef, frames []txFrame, lkey uint32, ok sizeRange) (n int, bytes uint32) {
	out, refs = out[:len(frames)], refs[:len(frames)]
	if len(frames) == 0 {
		return 0, 0
	}
	if wideLoops {
		n, bytes = sessionWide(&out[0], &refs[0], &frames[0], len(frames)/4, lkey, ok)
	}
	for eseg := frames[0].eseg; n < len(frames); n++ {
		f := &frames[n]
		size := uint32(f.form)
		if f.eseg != eseg || ok.refuses(size) {
			break
		}
		out[n] = dataSeg(size, lkey, f.addr)
		refs[n] = f.page
		bytes += size
	}
	return n, bytes
}

// inlineSession is a session whose small frames stand in the WQE itself, so that
// the device needs no second read for them: a length word, the bytes, and what
// fills the last segment. All frames lie in memory mem, at bus address base.
type inlineSession struct {
	mem   []byte
	base  uint64
	most  uint32 // bytes of the longest frame that is put in
	lkey  uint32
	last  uint64 // the last offset in mem that a whole block can be read from
	block uint32 // bytes of the longest frame that fills a block; 0 is none
}

// prepare notes what follows from mem and most.
func (s *inlineSession) prepare() {
	s.last, s.block = 0, 0
	if s.most >= leastBlock && len(s.mem) >= wqebb {
		s.last, s.block = uint64(len(s.mem)-wqebb), min(s.most, mostBlock)
	}
}

// leastBlock is the least that takes a whole block with the length in front, and
// mostBlock the most. Every port takes frames of that size.
const (
	leastBlock = wqebb - 4 - segment + 1
	mostBlock  = wqebb - 4
	_          = uint(minMTU - mostBlock)
)

// fill is fillSession with frames put in. used is the number of segments.
func (s *inlineSession) fill(out []seg, refs []pageRef, frames []txFrame, ok sizeRange) (n, used, inlined int, bytes uint32) {
	if k := min(len(frames), int(uint(len(out))/segsPerBlock)); k > 0 && s.block > 0 {
		if wideLoops {
			n, bytes = inlineWide(&out[0], &refs[0], &frames[0], k, &s.mem[0], s.base, s.last, s.block)
		} else {
			n, bytes = s.blocks(out, refs, frames[:k])
		}
		used, inlined = n*segsPerBlock, n
	}
	for eseg := frames[0].eseg; n < len(frames); n++ {
		f := &frames[n]
		if f.eseg != eseg || ok.refuses(uint32(f.form)) {
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
		used, bytes = used+room, bytes+f.form.size()
	}
	return n, used, inlined, bytes
}

// blocks puts in frames from the front that take just one block; for small packets
// that is all of them. It is inlineWide in Go.
func (s *inlineSession) blocks(out []seg, refs []pageRef, frames []txFrame) (n int, bytes uint32) {
	refs, eseg, span := refs[:len(frames)], frames[0].eseg, s.block-leastBlock
	for i := range frames {
		f := &frames[i]
		size, off := uint32(f.form), f.addr-s.base
		if f.eseg != eseg || size-leastBlock > span || off > s.last {
			return i, bytes
		}
		// Written out here, since the compiler would call it: all 60 bytes, beyond a
		// shorter frame too. The device reads no more than the length says.
		o, m, le := (*wqeBlock)(out[i*segsPerBlock:]), (*[wqebb]byte)(s.mem[off:]), binary.LittleEndian
		o[0] = seg{uint64(be32word(size|dsInline)) | uint64(le.Uint32(m[:]))<<32, le.Uint64(m[4:])}
		o[1] = seg{le.Uint64(m[12:]), le.Uint64(m[20:])}
		o[2] = seg{le.Uint64(m[28:]), le.Uint64(m[36:])}
		o[3] = seg{le.Uint64(m[44:]), le.Uint64(m[52:])}
		refs[i] = f.page
		bytes += size
	}
	return len(frames), bytes
}

// inlineSegs is how many segments a frame of so many bytes takes that is put in.
func inlineSegs(size uint32) uint32 { return (size + 4 + segment - 1) / segment }

// one writes the segments of one frame of any size: put in where it is small and
// in our memory, else a pointer. It returns how many it took, 0 when there is no
// room.
func (s *inlineSession) one(out []seg, f *txFrame) (room int, put bool) {
	size, off := f.form.size(), f.addr-s.base
	room = int(inlineSegs(size))
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
