package main

// xsktx.go owns sending from UMEM frames: entries of the TX ring become WQEs of
// the socket's own send queue, and what has left becomes entries of the completion
// ring; and the turn of a socket. It does not own the send queue itself (txpath.go)
// nor receiving (xsk.go).
// Manual: chapters Send Queue, Send WQE.
//
// A packet leaves from where its descriptor says it is. Completions come in the
// order of sending, so an entry of the completion ring is written when a packet is
// posted, and telling that it has left is one store a batch. An entry is posted
// only while the completion ring has room for it.

// begin is the first part of a turn: what was sent. What came in is next.
func (q *xskQueue) begin(budget int) int {
	q.skips = napiBudget
	if q.asleep {
		q.wakeUp()
	}
	return q.complete(budget)
}

// end is the last part of a turn: new buffers, what is to be sent, and a client that
// sleeps is woken.
func (q *xskQueue) end() int {
	if !q.recv.failed {
		q.refill()
	}
	done := q.transmit()
	q.ring()
	return done
}

// complete takes completions of the send queue and tells the client.
func (q *xskQueue) complete(budget int) int {
	t, s := q.tx, q.sock
	done := t.complete(budget)
	if n := t.ftail - s.sent; n != 0 {
		s.sent = t.ftail
		s.comp.gave(n)
		q.notify(&s.comp)
	}
	return done
}

// transmit posts up to a batch of the TX ring's entries and rings once. It returns
// how many it took.
func (q *xskQueue) transmit() int {
	t, s := q.tx, q.sock
	if t.failed || t.dead || s.broken {
		return 0
	}
	n, ok := s.tx.ready(napiBudget)
	if !ok {
		q.breakOff(ringTX, claimsEntries)
		return 0
	}
	if n = min(n, napiBudget); n == 0 {
		q.tally.txEmpty++
		return 0
	}
	room, ok := s.comp.room(s.compHead, n)
	if !ok {
		q.breakOff(ringCompletion, claimsTaken)
		return 0
	}
	from, took := t.pi, uint32(0)
	for n = min(n, room); took < n; {
		at := (s.tx.at + took) & s.tx.mask
		k := uint32(0)
		if !s.skip {
			k = q.run(s.tx.descs[at:][:min(n-took, s.tx.size()-at)])
		}
		if k == 0 {
			k = q.postNext(s.tx.at+took, n-took)
		}
		if took += k; k == 0 {
			break
		}
	}
	if t.pi != from {
		t.ring()
	}
	s.tx.took(took)
	return int(took)
}

// run posts packets in one piece from the front of descs and returns how many, 0
// when the ring is full or the first is anything else.
func (q *xskQueue) run(descs []xdpDesc) uint32 {
	t, s := q.tx, q.sock
	rules := descRules{key: dataSeg(0, t.lkey, 0).a, base: s.umem.mem.iova, size: uint64(len(s.umem.mem.b)), frame: s.umem.frame, fit: t.sizes}
	if t.limit > 0 && t.small.most == 0 {
		return q.session(descs, &rules)
	}
	k := 0
	for ; k < min(len(descs), len(q.frames)); k++ {
		d := descs[k] // read once: the client may change it
		if d.options != 0 || !rules.good(d) || rules.fit.refuses(d.len) {
			break
		}
		q.frames[k] = txFrame{addr: rules.base + d.addr, form: txSize(d.len), page: noPage}
	}
	if k == 0 {
		return 0
	}
	from := t.fhead
	n := q.post(q.frames[:k])
	for i := range t.fhead - from { // what could not be sent after all was counted as dropped
		q.completion(q.frames[i].addr - rules.base)
	}
	return uint32(n)
}

// completion writes the entry for a frame that was posted just now.
func (q *xskQueue) completion(addr uint64) {
	s := q.sock
	s.comp.addrs[s.compHead&s.comp.mask] = addr
	s.compHead++
}

// session is run where packets share a WQE and none stands in it.
func (q *xskQueue) session(descs []xdpDesc, rules *descRules) uint32 {
	t, s := q.tx, q.sock
	blocks, k := t.window(len(descs))
	if blocks == 0 {
		return 0
	}
	w, at := t.segs[(t.pi&t.mask)*segsPerBlock:], s.compHead&s.comp.mask
	descs = descs[:min(uint32(k), blocks*segsPerBlock-2, t.limit, s.comp.size()-at)]
	n, bytes := fillFromDescs(w[2:], s.comp.addrs[at:], descs, rules)
	if n == 0 {
		return 0
	}
	ds := n + 2
	w[0] = ctrlSeg(wqeMPSW, uint16(t.pi), t.n, uint8(ds), 0)
	w[1] = seg{}
	t.fhead += n
	t.last = t.pi
	t.pi += (ds + segsPerBlock - 1) / segsPerBlock
	t.tally.shared += uint64(n)
	t.tally.blocks++
	t.account(seg{}, int(n), bytes)
	s.compHead += n
	return n
}

// fillFromDescs writes data segments for entries that are packets in one piece and
// the completion entries for them, up to the first that is anything else. It is
// apart so that all it needs stays in registers.
//
//go:noinline
func fillFromDescs(out []seg, comp []uint64, descs []xdpDesc, c *descRules) (n uint32, bytes uint64) {
	out, comp = out[:len(descs)], comp[:len(descs)]
	if fours := len(descs) / 4; wideLoops && fours > 0 {
		k, sum := descsWide(&out[0], &comp[0], &descs[0], fours, c)
		n, bytes = uint32(k), uint64(sum)
	}
	key, base, most, frame, inFrame, fit := c.key, c.base, c.size, c.frame, c.frame-1, c.fit
	for i := int(n); i < len(descs); i++ {
		d := &descs[i]
		addr, size, options := d.addr, d.len, d.options // read once: the client may change them
		if options != 0 || fit.refuses(size) || addr >= most || uint32(addr)&inFrame+size > frame {
			return uint32(i), bytes
		}
		w := &out[i]
		w.a, w.b = key|uint64(be32word(size)), be64word(base+addr)
		comp[i] = addr
		bytes += uint64(size)
	}
	return uint32(len(descs)), bytes
}

// postNext posts the packet at TX index at, of at most n entries, or refuses it.
// It returns how many entries that took, 0 when it has to wait.
func (q *xskQueue) postNext(at, n uint32) uint32 {
	t, s := q.tx, q.sock
	rules := descRules{base: s.umem.mem.iova, size: uint64(len(s.umem.mem.b)), frame: s.umem.frame}
	total, k, bad := uint64(0), uint32(0), s.skip
	for more := true; more; k++ {
		if k == n {
			if bad || k == napiBudget || k > maxPieces { // a packet that long is none
				s.skip = true
				q.tally.badDescs += uint64(k)
				return k
			}
			return 0 // its end is not there yet
		}
		d := s.tx.descs[(at+k)&s.tx.mask]
		more = d.options&xdpContinue != 0
		if k >= maxPieces || d.options&^xdpContinue != 0 || more && !s.multi || !rules.good(d) {
			bad = true
			continue
		}
		total += uint64(d.len)
		q.frames[k] = txFrame{addr: rules.base + d.addr, form: txSize(d.len) | txMore, page: noPage}
	}
	s.skip = false
	if bad || total > uint64(^uint32(0)) || t.sizes.refuses(uint32(total)) {
		q.tally.badDescs += uint64(k)
		return k
	}
	q.frames[k-1].form &^= txMore
	from := t.fhead
	if q.post(q.frames[:k]) == 0 {
		q.tally.full++
		return 0
	}
	if t.fhead == from { // it could not be sent and was counted as dropped
		return k
	}
	for i := range k {
		q.completion(q.frames[i].addr - rules.base)
	}
	return k
}

// post writes WQEs for one packet without ringing, and returns 0 when the ring is
// full.
func (q *xskQueue) post(frames []txFrame) int {
	t := q.tx
	switch {
	case !frames[0].form.plain() || t.inline != inlineNone:
		return t.single(frames)
	case t.limit > 0:
		return t.session(frames)
	}
	return t.plain(frames)
}

// unsent is how many entries an application of our own has put into the TX ring and
// nobody has taken.
func (q *xskQueue) unsent() uint32 {
	s := q.sock
	if s == nil || s.broken || !s.ours {
		return 0
	}
	n, ok := s.tx.ready(s.tx.size())
	if !ok {
		return 0
	}
	return n
}

// abandon counts as lost what is still in the queues.
func (q *xskQueue) abandon() {
	q.recv.flush(&q.tally.flushed)
	q.tx.abandon()
	if n := q.unsent(); n > 0 {
		q.tally.unsent += uint64(n)
		q.sock.tx.took(n)
	}
}
