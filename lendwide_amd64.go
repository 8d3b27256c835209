package main

// lendwide_amd64.go owns the loops over received frames that are sent on, in
// 32-byte registers (AVX2). As in burst_amd64.go each takes what it can from the
// front, tells how far it came, and leaves the rest to the loop in Go that its
// caller has anyway, which does the same; wideLoops says whether they can be used.
//
// They check what the device says, but no bounds: callers do, before. The assembly
// is in lendwide_amd64.s. Manual: chapter Completion Queues.

// lendWide is lendRun for as many whole fours as are all as expected. Frames that
// begin up to offset last of the pool lie in pages that own has.
//
//go:noescape
func lendWide(out *txFrame, starts *uint32, run *cqe, fours int, own *uint32, c *lendRules) (n int, bytes uint32)

// swapWide exchanges the addresses of n frames, n > 0, which begin at starts in mem.
//
//go:noescape
func swapWide(starts *uint32, n int, mem *byte)
