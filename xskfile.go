package main

// xskfile.go owns mode txonly with -r FILE through a socket: the frames of a capture
// in the frames of a UMEM, sent in order, again and again. It does not own how a file
// is read (sendfile.go) nor the rings (xskapp.go).
//
// Completions come in the order of sending. So a UMEM frame that holds a packet of the
// file is free again when all before it are, and who holds what is one number: how many
// are out.

// xskFile is the part of a file that one socket sends. Its channel's goroutine owns it.
type xskFile struct {
	frames [][]byte // of the file
	size   uint64   // of a UMEM frame
	places uint32   // UMEM frames in use: the file, whole, as often as it fits
	next   uint32   // place to send from
	index  int      // frame of the file that stands there
}

// newXSKFile makes it of frames that each fit into a UMEM frame and together into all
// (fileFits).
func newXSKFile(frames [][]byte, umem umemConfig) *xskFile {
	return &xskFile{frames: frames, size: uint64(umem.frame), places: uint32(umem.frames / len(frames) * len(frames))}
}

// fill puts the file into the UMEM.
func (f *xskFile) fill(mem []byte, size int) {
	for i := range int(f.places) {
		copy(mem[i*size:(i+1)*size], f.frames[i%len(f.frames)])
	}
}

// send puts up to most packets into the TX ring, as many of them as left lets through,
// and returns how many.
func (f *xskFile) send(a *xskApp, most int, left func(n int) int) int {
	done, _ := a.comp.ready(napiBudget)
	a.out -= min(done, a.out)
	a.comp.took(done)
	room, _ := a.tx.room(a.tx.at, napiBudget)
	n := min(most, int(room), int(f.places-a.out))
	if n <= 0 {
		return 0
	}
	n = left(n)
	for i := range uint32(n) {
		size := uint32(len(f.frames[f.index]))
		a.tx.descs[(a.tx.at+i)&a.tx.mask] = xdpDesc{addr: uint64(f.next) * f.size, len: size}
		if f.next++; f.next == f.places {
			f.next = 0
		}
		if f.index++; f.index == len(f.frames) {
			f.index = 0
		}
		a.load += uint64(size)
	}
	a.out += uint32(n)
	a.sent += uint64(n)
	a.tx.gave(uint32(n))
	return n
}
