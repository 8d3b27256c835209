package main

// xskwide_arm64.go owns what stands in the place of xskwide_amd64.go's loops:
// nothing. The loops in Go do all. Manual: chapters Receive WQE, Send WQE.

func descsWide(*seg, *uint64, *xdpDesc, int, *descRules) (n int, bytes uint32) { return 0, 0 }

func takeWide(*xdpDesc, *uint32, *cqe, int, *takeRules) (n int, bytes uint32) { return 0, 0 }

func postWide(*seg, *uint32, *uint64, int, *postRules) (n int) { return 0 }

func wholeWide(*uint64, *uint64, int, uint64) {}

func describeWide(*xdpDesc, *uint64, int, uint32) {}

func dropWide(*uint64, *xdpDesc, int, uint64) (more, bytes uint64) { return 0, 0 }

func forwardWide(*xdpDesc, *xdpDesc, int, *byte, uint64) (done int, bytes uint64) { return 0, 0 }
