package main

// xskrules.go owns what the loops over a socket's rings go by: what an entry is
// held against and what it becomes. It does not own the loops (xsk.go, xsktx.go,
// xskwide_amd64.go). Manual: chapters Receive WQE, Send WQE.

// descRules is what a TX entry is held against.
type descRules struct {
	key   uint64 // of a data segment
	base  uint64 // bus address of the UMEM
	size  uint64 // of it: never 0, at most maxUMEM
	frame uint32
	fit   sizeRange
}

// good reports whether d is a packet, or a piece of one, inside one frame.
func (c *descRules) good(d xdpDesc) bool {
	return d.addr < c.size && d.len != 0 && d.len <= c.frame && uint32(d.addr)&(c.frame-1)+d.len <= c.frame
}

// takeRules is what takeRun goes by.
type takeRules struct {
	want, mask  uint64
	head, limit uint32
	log         uint8
	start       uint32
}

// postRules is what postRun goes by.
type postRules struct {
	word    uint64 // of a data segment: length and key
	base    uint64
	logStep uint8 // of the segments of a WQE
	log     uint8
	frames  uint32 // never 0
}
