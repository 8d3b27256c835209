package main

// burst_arm64.go owns what stands in the place of burst_amd64.go's loops: nothing.
// The loops in Go do all. Manual: chapter Send WQE.

// wideLoops is never true here.
var wideLoops = false

func sessionWide(*seg, *pageRef, *txFrame, int, uint32, sizeRange) (n int, bytes uint32) {
	return 0, 0
}

func plainWide(*wqeBlock, *pageRef, *txFrame, int, uint64, uint16, uint32, sizeRange) (n int, bytes uint32) {
	return 0, 0
}

func inlineWide(*seg, *pageRef, *txFrame, int, *byte, uint64, uint64, uint32) (done int, bytes uint32) {
	return 0, 0
}

func returnWide(*pageRef, int, *uint32, uint32, pageRef, *uint32) (done, freed, others int) {
	return 0, 0, 0
}
