package main

// minicqe.go owns compressed completions: a session of up to 64 receive
// completions that the device wrote as one title and arrays of eight small ones.
// It gives them back in order, each as a whole completion. It does not know what
// a completion leads to (rxpath.go).
// Manual: chapter Completion Queues, CQE compression (basic layout).
//
// A session of n completions takes n entries of the ring: the title stands in
// the first, the first array in the second, array k in entry 8k of the session.
// All is copied out when the title is seen, so that the entries can be given
// back at once and nothing is read twice that the device could change meanwhile.
// Entries that the device did not write keep what was there: they are marked as
// consumed, or the next lap would take them for its own.

// miniSession is the most completions in a session.
const miniSession = 64

// miniCQEs is the session that is being consumed.
type miniCQEs struct {
	format uint8 // of the CQ
	next   int   // small completion that comes next
	n      int
	count  uint16 // its counter, where the format does not give it
	whole  cqe    // the title, with what the last small completion said
	tail   uint64 // of the title
	mini   [miniSession]miniCQE
}

// left is how many completions of the session are still to come.
func (s *miniCQEs) left() int { return s.n - s.next }

// open takes the session whose title e, with tail w, is entry ci of q. It
// returns the entries that it takes, 0 for a title that makes no sense.
func (s *miniCQEs) open(q *compQueue, ci uint32, e *cqe, w uint64) uint32 {
	n := be32word(e.byteCount)
	if n == 0 || n > miniSession || n > q.mask+1 {
		return 0
	}
	s.whole, s.tail = *e, w&^(3<<tailFormatShift)
	s.count = tailCounter(w)
	s.next, s.n = 0, int(n)
	for k := uint32(0); k < n; k += miniArray {
		from := q.minis(ci + max(k, 1))
		copy(s.mini[k:n], from[:])
	}
	for done := uint32(0); done < n; {
		// A plain store: only we read it, until the consumer index, stored after it,
		// gives the entry back.
		run, owner := q.run(ci+done, int(n-done))
		for i := range run {
			run[i].tail = uint64(cqeInvalid)<<60 | uint64(owner)<<56
		}
		done += uint32(len(run))
	}
	return n
}

// skim takes up to most completions for a queue of one frame each, as long as
// they are no longer than limit, and returns how many and their bytes.
func (s *miniCQEs) skim(most int, limit uint32) (n int, bytes uint64) {
	for _, m := range s.mini[s.next:min(s.n, s.next+most)] {
		size := be32word(m.byteCount)
		if size > limit {
			break
		}
		bytes += uint64(size)
		n++
	}
	s.next += n
	s.count += uint16(n)
	return n, bytes
}

// take returns the next completion as it would have stood in the ring. It is
// good until the next call.
func (s *miniCQEs) take() (*cqe, uint64) {
	m := &s.mini[s.next]
	s.next++
	e := &s.whole
	e.byteCount = m.byteCount
	count := s.count
	switch s.format {
	case miniHash:
		e.hash, e.checksum = m.word, 0
	case miniStrideIndex:
		e.hash, e.hashType, e.checksum = 0, 0, uint16(m.word)
		count = be16word(uint16(m.word >> 16))
	default:
		e.hash, e.hashType, e.checksum = 0, 0, uint16(m.word)
	}
	return e, withCounter(s.tail, count)
}

// advance tells that the last completion took so many counter values.
func (s *miniCQEs) advance(step uint16) { s.count += step }
