package main

// xskring.go owns the four rings of an XSK socket: where their words lie, who
// writes which, and how far each side may go. It does not know what an entry
// means (xsk.go, xskapp.go).
//
// The layout is AF_XDP's: producer, consumer and flags are 32-bit words on cache
// lines of their own, entries stand behind them. The indices run freely and wrap;
// the ring's mask gives the place. Who fills entries writes them, then stores the
// producer; who takes them loads the producer, reads entries, then stores the
// consumer. Indices are stored with release and loaded with Go's atomics, which is
// all that this needs; only who goes on to ask whether the other side sleeps must
// have its own index visible first (wants).
//
//	ring        entries                 producer  consumer
//	fill        u64 address             client    driver
//	completion  u64 address             driver    client
//	RX          addr, length, options   driver    client
//	TX          addr, length, options   client    driver
//
// The flags word of fill and TX ring is the driver's: bit 0 asks for a wake-up
// after the next entry. That of the RX and completion ring is the client's: with
// bit 0 set it sleeps and wants to be woken. Each index is a promise of the other
// side and believed only as far as the ring is long.

import (
	"sync/atomic"
)

// Rings in the order of all tables here and of the attach protocol.
const (
	ringFill = iota
	ringCompletion
	ringRX
	ringTX
	xskRings
)

var xskRingNames = [xskRings]string{"fill", "completion", "RX", "TX"}

// xdpDesc is an entry of the RX and the TX ring.
type xdpDesc struct {
	addr    uint64
	len     uint32
	options uint32
}

const (
	xdpDescSize = 16
	xdpContinue = 1 << 0 // in options: the packet goes on in the next entry (XDP_PKT_CONTD)
	ringWake    = 1 << 0 // in flags (XDP_RING_NEED_WAKEUP)
	ringLine    = 128    // two cache lines: neighbours are fetched in pairs
	maxXSKRing  = 1 << 17
)

// ringPlace is where a ring lies in its memory: offsets in bytes.
type ringPlace struct {
	producer, consumer, flags, desc uint64
	entries                         uint32
}

// entrySize is the bytes of an entry of ring i.
func entrySize(i int) int {
	if i == ringRX || i == ringTX {
		return xdpDescSize
	}
	return 8
}

// layoutRings places rings of so many entries and returns the bytes they take.
func layoutRings(entries [xskRings]int) (places [xskRings]ringPlace, size int, err error) {
	for i, n := range entries {
		switch {
		case n == 0:
			return places, 0, wishf("%s ring of size 0: a power of two from 1 to %d", xskRingNames[i], maxXSKRing)
		case n < 0 || n > maxXSKRing || n&(n-1) != 0:
			return places, 0, wishf("%s ring of %d entries: not a power of two from 1 to %d", xskRingNames[i], n, maxXSKRing)
		}
		at := uint64(size)
		places[i] = ringPlace{at, at + ringLine, at + 2*ringLine, at + 3*ringLine, uint32(n)}
		size += (3*ringLine + n*entrySize(i) + ringLine - 1) / ringLine * ringLine
	}
	return places, (size + pageSize - 1) / pageSize * pageSize, nil
}

// xskRing is one side's view of a ring. All but the shared words belong to the
// goroutine that works on that side.
type xskRing struct {
	producer *uint32
	consumer *uint32
	flags    *uint32
	mask     uint32
	at       uint32    // our own index
	seen     uint32    // the other side's, as last read
	addrs    []uint64  // fill and completion ring
	descs    []xdpDesc // RX and TX ring
}

// viewRing views ring i, which lies at p in b, from either side. Both start where
// its words stand.
func viewRing(b []byte, i int, p ringPlace) xskRing {
	r := xskRing{producer: sharedWord(b, p.producer), consumer: sharedWord(b, p.consumer), flags: sharedWord(b, p.flags), mask: p.entries - 1}
	if entrySize(i) == xdpDescSize {
		r.descs = sharedArray[xdpDesc](b, p.desc, uint64(p.entries))
	} else {
		r.addrs = sharedArray[uint64](b, p.desc, uint64(p.entries))
	}
	return r
}

// size is the number of entries.
func (r *xskRing) size() uint32 { return r.mask + 1 }

// ready is how many entries there are to take; the shared word is read only when
// fewer than want are known. It is false when the other side claims more than the
// ring holds.
func (r *xskRing) ready(want uint32) (n uint32, ok bool) {
	if n = r.seen - r.at; n >= want {
		return n, true
	}
	r.seen = atomic.LoadUint32(r.producer)
	n = r.seen - r.at
	return n, n <= r.size()
}

// took tells the other side that n entries were taken beyond index at.
func (r *xskRing) took(n uint32) {
	r.at += n
	storeRelease(r.consumer, r.at)
}

// room is how many entries may be filled beyond index head, which is at, or ahead
// of it by what was filled and not told yet; the shared word is read only when
// there is less than want. It is false when the other side has taken what was
// never given.
func (r *xskRing) room(head, want uint32) (n uint32, ok bool) {
	if n = r.size() - (head - r.seen); n >= want {
		return n, true
	}
	r.seen = atomic.LoadUint32(r.consumer)
	if r.at-r.seen > r.size() {
		return 0, false
	}
	return r.size() - (head - r.seen), true
}

// gave tells the other side that n entries were filled.
func (r *xskRing) gave(n uint32) {
	if n != 0 {
		r.at += n
		storeRelease(r.producer, r.at)
	}
}

// wants reports whether the flags word asks for a wake-up. The other side sets it
// and then looks at our index once more; we tell our index and then look here. One
// of us sees the other, since neither load passes its store.
func (r *xskRing) wants() bool {
	fullBarrier()
	return atomic.LoadUint32(r.flags)&ringWake != 0
}

// came reports whether there are entries to take, and others than at *last, which
// becomes the producer seen now.
func (r *xskRing) came(last *uint32) bool {
	now := atomic.LoadUint32(r.producer)
	is := now != r.at && now != *last
	*last = now
	return is
}

// ask sets or clears that.
func (r *xskRing) ask(on bool) {
	v := uint32(0)
	if on {
		v = ringWake
	}
	atomic.StoreUint32(r.flags, v)
}
