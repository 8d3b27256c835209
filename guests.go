package main

// guests.go owns packets that come to a channel from another one: the ring they
// come through, and giving back what was sent from memory of others. It does not
// own the pages (pagepool.go) or where redirects lead (verdicts.go).

import "sync/atomic"

// guest is a packet that another channel received: what a packet says of itself,
// and the page that it lies in, lent to us.
type guest struct {
	at, size  uint32 // place in its pool
	room      uint32 // from there on it may grow up to here
	page      pageRef
	hash      uint32
	info      uint32
	timestamp uint64
	hashType  uint8
	from      *outcomes // it is for the channel's socket, not for its handler: who wants to know
}

// outcomes is what became of packets that a channel has sent to another one's
// socket, which may have no room for them. The other one writes it; the channel
// takes it over with its own counts, so that each packet is counted once.
type outcomes struct {
	given  atomic.Uint64
	full   atomic.Uint64
	nobody atomic.Uint64
}

// packet is the view of a guest that lies in pool.
func (g *guest) packet(pool *pagePool) packet {
	return packet{b: pool.cut(g.at, g.size), size: g.size, slot: g.room, at: g.at, hash: g.hash, timestamp: g.timestamp,
		info: g.info, hashType: g.hashType, frags: 1}
}

// guestSlots is how many packets may wait for a channel.
const guestSlots = 1024

// guestRing passes guests from any number of channels to one. It has a place for
// each, with a turn: a producer may write the place when the turn is the position
// that it has reserved, the consumer may read it when the turn is one more. (The
// bounded queue of D. Vyukov.) Nobody waits for anybody: a full ring refuses.
type guestRing struct {
	tail   atomic.Uint64 // next to reserve; producers
	_      [cacheLine - 8]byte
	head   uint64      // next to take; consumer
	asleep atomic.Bool // the consumer wants to be woken
	_      [cacheLine - 16]byte
	places [guestSlots]guestPlace
}

type guestPlace struct {
	turn atomic.Uint64
	guest
}

func newGuestRing() *guestRing {
	r := &guestRing{}
	for i := range r.places {
		r.places[i].turn.Store(uint64(i))
	}
	return r
}

// put hands a guest over; false when the ring is full. Any goroutine.
func (r *guestRing) put(g guest) bool {
	for {
		at := r.tail.Load()
		p := &r.places[at%guestSlots]
		switch turn := p.turn.Load(); {
		case turn < at:
			return false // not taken since the last lap
		case turn == at && r.tail.CompareAndSwap(at, at+1):
			p.guest = g
			p.turn.Store(at + 1)
			return true
		}
	}
}

// peek returns the guest that comes next; false when there is none. It is good
// until drop. Consumer only.
func (r *guestRing) peek() (g *guest, ok bool) {
	p := &r.places[r.head%guestSlots]
	return &p.guest, p.turn.Load() == r.head+1
}

// drop takes out the guest that peek has shown.
func (r *guestRing) drop() {
	r.places[r.head%guestSlots].turn.Store(r.head + guestSlots)
	r.head++
}

// sleep says that the consumer, which v wakes, is about to sleep. Who puts a guest
// in afterwards sees that; one that came just before wakes it here.
func (r *guestRing) sleep(v *bell) {
	r.asleep.Store(true)
	if _, ok := r.peek(); ok && r.wakes() {
		v.ring()
	}
}

// wakes reports whether the consumer must be woken for what was put: it said that
// it sleeps, and nobody has woken it since.
func (r *guestRing) wakes() bool { return r.asleep.Load() && r.asleep.CompareAndSwap(true, false) }

// poolTable finds a pool by the number that its references carry.
type poolTable [1 << 8]atomic.Pointer[pagePool]

func (t *poolTable) of(r pageRef) *pagePool { return t[r>>24].Load() }

// release gives back one reference, from any goroutine.
func (t *poolTable) release(r pageRef) {
	if p := t.of(r); p != nil {
		p.release(r)
	}
}

// refOwners gives back what the send queues of one channel have sent from memory
// that is not of the channel's own pool: pages of other channels, and what further
// owners know. The channel's goroutine uses it.
type refOwners struct {
	pools   *poolTable
	own     pageRef    // number of the channel's pool, which has been served already
	further []refOwner // such as UMEMs; each picks its own out of a run
}

// takeBack is refOwner's.
func (o *refOwners) takeBack(refs []pageRef) {
	for _, r := range refs {
		if r != noPage && r&^pageMask != o.own {
			o.pools.release(r)
		}
	}
	for _, f := range o.further {
		f.takeBack(refs)
	}
}

// bytesOf is the memory behind n bytes at bus address addr, in the page r; nothing
// where that is not known.
func (o *refOwners) bytesOf(r pageRef, addr uint64, n uint32) []byte {
	if p := o.pools.of(r); p != nil && r != noPage {
		return p.at(addr, n)
	}
	for _, f := range o.further {
		if m, ok := f.(memoryOwner); ok {
			if b := m.bytesOf(r, addr, n); b != nil {
				return b
			}
		}
	}
	return nil
}
