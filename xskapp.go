package main

// xskapp.go owns the application's side of a socket's rings: who holds which frame
// there, and the three things that xdpsock does with packets: drop, send, forward.
// The same code runs beside the driver and in another process. It does not own the
// driver's side (xsk.go) nor how to get at the rings (xskclient.go, xskwork.go).
//
// Every frame is in one place: our stack, the fill ring, with the driver, the RX
// ring, in our hands, the TX ring, with the driver, or the completion ring. There
// are as many entries in the rings as frames, so that what is ours always fits.

// xskApp is the application's side. One goroutine owns it.
type xskApp struct {
	mem     []byte // the UMEM
	frame   uint64 // bytes
	fill    xskRing
	comp    xskRing
	rx      xskRing
	tx      xskRing
	free    []uint64 // addresses of frames in our hands
	out     uint32   // in the TX ring and behind
	packets uint64   // received
	bytes   uint64
	sent    uint64 // put into the TX ring
}

// newXSKApp views the rings at places in b and the frames in mem, all of which are
// ours at first.
func newXSKApp(mem []byte, frame int, b []byte, places [xskRings]ringPlace) *xskApp {
	a := &xskApp{mem: mem, frame: uint64(frame), fill: viewRing(b, ringFill, places[ringFill]), comp: viewRing(b, ringCompletion, places[ringCompletion]),
		rx: viewRing(b, ringRX, places[ringRX]), tx: viewRing(b, ringTX, places[ringTX]), free: make([]uint64, 0, len(mem)/frame)}
	for at := len(mem) - frame; at >= 0; at -= frame {
		a.free = append(a.free, uint64(at))
	}
	return a
}

// giveFrames puts up to n of our frames into the fill ring.
func (a *xskApp) giveFrames(n int) {
	room, _ := a.fill.room(a.fill.at, uint32(n))
	k := min(n, int(room), len(a.free))
	for i, addr := range a.free[len(a.free)-k:] {
		a.fill.addrs[(a.fill.at+uint32(i))&a.fill.mask] = addr
	}
	a.free = a.free[:len(a.free)-k]
	a.fill.gave(uint32(k))
}

// drop takes up to most received entries and fills their frames again. It returns
// how many.
func (a *xskApp) drop(most int) int {
	n, _ := a.rx.ready(uint32(most))
	if n = min(n, uint32(most)); n == 0 {
		return 0
	}
	room, _ := a.fill.room(a.fill.at, n)
	if n = min(n, room); n == 0 {
		return 0
	}
	packets, bytes := dropRun(a.rx.descs, a.rx.at, a.fill.addrs, a.fill.at, n, ^(a.frame - 1))
	a.packets += uint64(packets)
	a.bytes += bytes
	a.rx.took(n)
	a.fill.gave(n)
	return int(n)
}

// dropRun moves the frames of n entries from one ring to the other.
//
//go:noinline
func dropRun(descs []xdpDesc, at uint32, addrs []uint64, to, n uint32, whole uint64) (packets uint32, bytes uint64) {
	last, end, packets := uint32(len(descs)-1), uint32(len(addrs)-1), n
	for i := range n {
		d := &descs[(at+i)&last]
		addrs[(to+i)&end] = d.addr & whole
		bytes += uint64(d.len)
		packets -= d.options & xdpContinue
	}
	return packets, bytes
}

// reclaim takes frames that were sent back into our hands.
func (a *xskApp) reclaim() {
	n, _ := a.comp.ready(napiBudget)
	if n = min(n, uint32(cap(a.free)-len(a.free))); n == 0 {
		return
	}
	last, whole := a.comp.mask, ^(a.frame - 1)
	free := a.free[len(a.free) : len(a.free)+int(n)]
	for i := range free {
		free[i] = a.comp.addrs[(a.comp.at+uint32(i))&last] & whole
	}
	a.free = a.free[:len(a.free)+int(n)]
	a.out -= n
	a.comp.took(n)
}

// send puts up to n of our frames into the TX ring, size bytes of each, and takes
// back what has left. It returns how many.
func (a *xskApp) send(n, size int) int {
	a.reclaim()
	room, _ := a.tx.room(a.tx.at, uint32(n))
	k := min(n, int(room), len(a.free))
	if k == 0 {
		return 0
	}
	last, at := a.tx.mask, a.tx.at
	for i, addr := range a.free[len(a.free)-k:] {
		a.tx.descs[(at+uint32(i))&last] = xdpDesc{addr: addr, len: uint32(size)}
	}
	a.free = a.free[:len(a.free)-k]
	a.out += uint32(k)
	a.sent += uint64(k)
	a.tx.gave(uint32(k))
	return k
}

// refill puts frames that were sent back into the fill ring.
func (a *xskApp) refill() {
	n, _ := a.comp.ready(napiBudget)
	if n == 0 {
		return
	}
	room, _ := a.fill.room(a.fill.at, n)
	if n = min(n, room); n == 0 {
		return
	}
	last, end, whole := a.comp.mask, a.fill.mask, ^(a.frame - 1)
	for i := range n {
		a.fill.addrs[(a.fill.at+i)&end] = a.comp.addrs[(a.comp.at+i)&last] & whole
	}
	a.out -= n
	a.comp.took(n)
	a.fill.gave(n)
}

// forward sends up to most received entries on as they are, with the addresses of
// each packet swapped when swap is set, and fills frames that have left. It
// returns how many.
func (a *xskApp) forward(most int, swap bool) int {
	a.refill()
	n, _ := a.rx.ready(uint32(most))
	if n = min(n, uint32(most)); n == 0 {
		return 0
	}
	room, _ := a.tx.room(a.tx.at, n)
	if n = min(n, room); n == 0 {
		return 0
	}
	mem := a.mem
	if !swap {
		mem = nil
	}
	packets, bytes := forwardRun(a.rx.descs, a.rx.at, a.tx.descs, a.tx.at, n, mem)
	a.packets += uint64(packets)
	a.bytes += bytes
	a.sent += uint64(packets)
	a.out += n
	a.rx.took(n)
	a.tx.gave(n)
	return int(n)
}

// forwardRun copies n entries from one ring to the other and swaps the addresses
// at the front of packets that lie in mem.
//
//go:noinline
func forwardRun(in []xdpDesc, at uint32, out []xdpDesc, to, n uint32, mem []byte) (packets uint32, bytes uint64) {
	last, end, packets, front := uint32(len(in)-1), uint32(len(out)-1), n, true
	for i := range n {
		d := in[(at+i)&last]
		if front && d.addr < uint64(len(mem)) {
			if b := mem[d.addr:]; len(b) >= 2*6 {
				swapAddresses(b)
			}
		}
		out[(to+i)&end] = d
		bytes += uint64(d.len)
		front = d.options&xdpContinue == 0
		packets -= d.options & xdpContinue
	}
	return packets, bytes
}
