package main

// burst_amd64.go owns the loops over a burst in 32-byte registers (AVX2), which
// hold a whole txFrame. Each takes what it can from the front of a burst, tells
// how far it came and leaves the rest to the loop in Go that its caller has
// anyway: that one does the same, and is all there is on other architectures and
// processors. Neither loop is told from the other by what it leaves in memory.
//
// They check frames, but no bounds: callers do, before. The assembly is in
// burst_amd64.s. Manual: chapter Send WQE.

import "golang.org/x/sys/cpu"

// wideLoops reports whether the loops of this file can be used. Tests turn it off.
var wideLoops = cpu.X86.HasAVX2

// sessionWide writes data segments and pages of as many whole fours of frames as
// join the first frame, at most fours of them. limit is a sizeRange.
//
//go:noescape
func sessionWide(out *seg, refs *pageRef, frames *txFrame, fours int, lkey uint32, limit sizeRange) (n int, bytes uint32)

// plainWide writes a WQE for each frame of as many whole fours as want the same as
// the first. ctrl is the first word of their control segments, with index 0;
// index is that of the first.
//
//go:noescape
func plainWide(wqes *wqeBlock, refs *pageRef, frames *txFrame, fours int, ctrl uint64, index uint16, lkey uint32, limit sizeRange) (n int, bytes uint32)

// inlineWide puts up to n frames, as long as they want the same as the first and
// take just one block and most bytes, into blocks from out on. Their bytes lie in
// mem, which is at bus address base, and begin at offset last at most: whatever
// the size, mostBlock bytes are copied.
//
//go:noescape
func inlineWide(out *seg, refs *pageRef, frames *txFrame, n int, mem *byte, base, last uint64, most uint32) (done int, bytes uint32)

// returnWide ends the use of up to n pages that a queue has, until one was lent
// to others too. Numbers of pages that nobody has any more are put into cache,
// which has room for n. pages is how many the pool has, id its number; others
// counts references that are not the pool's.
//
//go:noescape
func returnWide(refs *pageRef, n int, own *uint32, pages uint32, id pageRef, cache *uint32) (done, freed, others int)
