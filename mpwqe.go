package main

// mpwqe.go owns WQEs that carry many packets: the send session (enhanced
// multi-packet send). It does not own what a session's packets have in common
// (the eth segment, txpath.go) nor the ring's counters, which it moves forward.
// Manual: chapter Send WQE, enhanced multi-packet WQE.
//
// A session is one control segment, one eth segment and then one data segment
// of 16 bytes a packet. It ends when a packet wants another eth segment or a WQE
// of its own, when it is full, at the ring's edge, and with the burst. It is
// never padded with NOPs: what does not fit before the edge opens the next
// session behind it.

// sessionLimit is how many packets fit: the length of a WQE has 6 bits and
// counts 16-byte segments, two of which are not packets. Linux stops at 58.
const sessionLimit = maxDS - 2

// session posts frames from the front of a burst in one WQE and returns how many
// it took, 0 when the ring is full. The first frame's kind must be 0.
func (q *sendQueue) session(frames []txFrame, t *txTally) int {
	at := q.pi & q.mask
	blocks := min(q.mask+1-(q.pi-q.ci), q.mask+1-at)
	if blocks == 0 {
		return 0
	}
	room := min(blocks*segsPerBlock-2, q.limit)
	w := q.segs[at*segsPerBlock:]
	out := w[2 : 2+room]
	if len(frames) > len(out) {
		frames = frames[:len(out)]
	}
	eseg, lkey, bytes, head := frames[0].eseg, q.lkey, uint64(0), q.fhead
	n := 0
	for n < len(frames) && n < len(out) {
		f := &frames[n]
		if f.kind != 0 || f.eseg != eseg || f.size < etherHeader {
			break
		}
		out[n] = dataSeg(f.size, lkey, f.addr)
		q.refs[(head+uint32(n))&q.fmask] = f.page
		bytes += uint64(f.size)
		n++
	}
	if n == 0 {
		return q.drop(frames[:1], t)
	}
	ds := uint32(n) + 2
	w[0] = ctrlSeg(wqeMPSW, uint16(q.pi), q.n, uint8(ds), 0)
	w[1] = eseg
	q.fhead = head + uint32(n)
	q.last = q.pi
	q.pi += (ds + segsPerBlock - 1) / segsPerBlock
	t.packets += uint64(n)
	t.shared += uint64(n)
	t.bytes += bytes
	t.blocks++
	return n
}
