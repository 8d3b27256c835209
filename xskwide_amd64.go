package main

// xskwide_amd64.go owns the loops over a socket's rings in 32-byte registers
// (AVX2), four entries at a time. As in burst_amd64.go each takes what it can from
// the front, tells how far it came, and leaves the rest to the loop in Go that its
// caller has anyway, which does the same; wideLoops says whether they can be used.
//
// They check what entries say, but no bounds: callers do, before. What a client
// can write is loaded once, and what is checked is what was loaded. The assembly
// is in xskwide_amd64.s. Manual: chapters Receive WQE, Send WQE.

// descsWide is fillFromDescs for as many whole fours as are all good.
//
//go:noescape
func descsWide(out *seg, comp *uint64, descs *xdpDesc, fours int, c *descRules) (n int, bytes uint32)

// takeWide is takeRun for as many whole fours as are all as expected. Of each
// completion the tail is loaded first, in one piece.
//
//go:noescape
func takeWide(descs *xdpDesc, frames *uint32, run *cqe, fours int, c *takeRules) (n int, bytes uint32)

// postWide is postRun for as many whole fours as are all inside the UMEM.
//
//go:noescape
func postWide(segs *seg, frames *uint32, addrs *uint64, fours int, c *postRules) (n int)

// wholeWide is wholeFrames for whole fours.
//
//go:noescape
func wholeWide(out, in *uint64, fours int, whole uint64)

// describeWide is describeFrames for whole fours.
//
//go:noescape
func describeWide(out *xdpDesc, frames *uint64, fours int, size uint32)

// dropWide is dropRun for whole fours.
//
//go:noescape
func dropWide(addrs *uint64, descs *xdpDesc, fours int, whole uint64) (more, bytes uint64)

// forwardWide copies up to n entries that are whole packets and begin before
// offset last of mem, and swaps their addresses there.
//
//go:noescape
func forwardWide(out, in *xdpDesc, n int, mem *byte, last uint64) (done int, bytes uint64)
