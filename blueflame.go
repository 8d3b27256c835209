package main

// blueflame.go owns BlueFlame: whether a send queue can have it, and how it rings
// by it. With its doorbell a burst of one work request of 64 bytes takes that
// along, so that the device need not read it from the ring: a lone packet saves one
// trip over the bus and back. It does not own what stands in the work request
// (txpath.go), nor how stores are made to combine (vfio.go, mtrr.go).
// Manual: chapters "UAR page" and "BlueFlame".
//
// A register has two buffers, used in turn: the stores to one may still wait in
// the processor when the next burst comes, and must not be joined with it. Behind
// every doorbell, also a plain one, a fence has them leave at once. Each queue has
// its page and so its register for itself: nothing is locked, and no completion or
// event queue is armed through a page whose stores may be late.
//
// Nothing here has met silicon. What is assumed:
//   - the order: work request in the ring, doorbell record, barrier, the 64 bytes
//     ascending, fence. The ring and the record are right by themselves, so that
//     where the bytes come apart on their way the first 8 are a plain doorbell;
//   - where the device has other work of the queue in hand it reads the ring;
//   - that stores combine is not assumed but tried (flameprobe.go).

// Registers are at least two WQEs long and end with their page.
const (
	minFlame = 2 * wqebb
	maxFlame = uarPageSize - uarSQ
)

// chooseBlueFlame decides whether so many send queues (queues) can have BlueFlame on
// doorbell pages of their own, and how long a buffer is. pages is how many pages the
// machine can make combine stores, why what keeps it from more.
func chooseBlueFlame(c caps, pages, queues int, why error) (buffer int, err error) {
	switch {
	case c.flame == 0:
		return 0, wishf("-blueflame: the device has none")
	case c.flame < minFlame || c.flame > maxFlame:
		return 0, wishf("-blueflame: the device says that its registers have %d bytes: %d to %d make sense", c.flame, minFlame, maxFlame)
	case pages == 0 && why != nil:
		return 0, wishf("-blueflame: %v", why)
	case pages < queues:
		return 0, wishf("-blueflame: doorbell pages of %d queues can combine stores, there are %d: fewer -queues, or without", pages, queues)
	}
	return c.flame / 2, nil
}

// flame is a send queue's BlueFlame register. The queue's owner writes it.
type flame struct {
	regs []byte // the page
	at   int    // the buffer whose turn it is
	turn int    // what leads from one buffer to the other and back; 0 where there is none
	end  uint32 // producer counter at the last doorbell
}

// newFlame is the first register of a page of doorbells.
func newFlame(regs []byte, buffer int) flame { return flame{regs: regs, at: uarSQ, turn: buffer} }

// ring rings for what stands before block end, the last of which is the WQE that
// starts with block w. It reports whether that went along: the burst is it alone,
// and it is one block long.
func (f *flame) ring(w *wqeBlock, end uint32) (whole bool) {
	if whole = end-f.end == 1; whole {
		regWriteLine(f.regs, f.at, &w[0].a)
	} else {
		regWrite64(f.regs, f.at, be64word(w[0].a))
		storeFence()
	}
	f.at ^= f.turn
	f.end = end
	return whole
}
