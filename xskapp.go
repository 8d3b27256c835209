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
	inside  uint32 // the entry that comes next is a further piece of its packet
	sent    uint64 // packets put into the TX ring
	load    uint64 // bytes of these
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
	for k := uint32(0); k < n; {
		at, to := (a.rx.at+k)&a.rx.mask, (a.fill.at+k)&a.fill.mask
		part := min(n-k, a.rx.size()-at, a.fill.size()-to)
		more, bytes := dropRun(a.rx.descs[at:][:part], a.fill.addrs[to:], ^(a.frame - 1))
		a.packets += uint64(part - more)
		a.bytes += bytes
		k += part
	}
	a.rx.took(n)
	a.fill.gave(n)
	return int(n)
}

// dropRun moves the frames of entries to another ring. It returns how many of them
// are not the last of their packet, and all bytes.
//
//go:noinline
func dropRun(descs []xdpDesc, addrs []uint64, whole uint64) (more uint32, bytes uint64) {
	addrs = addrs[:len(descs)]
	done := 0
	if fours := len(descs) / 4; wideLoops && fours > 0 {
		var k uint64
		k, bytes = dropWide(&addrs[0], &descs[0], fours, whole)
		more, done = uint32(k), fours*4
	}
	for i := done; i < len(descs); i++ {
		d := &descs[i]
		addrs[i] = d.addr & whole
		bytes += uint64(d.len)
		more += d.options & xdpContinue
	}
	return more, bytes
}

// reclaim takes frames that were sent back into our hands.
func (a *xskApp) reclaim() {
	n, _ := a.comp.ready(napiBudget)
	if n = min(n, uint32(cap(a.free)-len(a.free))); n == 0 {
		return
	}
	for k := uint32(0); k < n; {
		at := (a.comp.at + k) & a.comp.mask
		part := a.comp.addrs[at:][:min(n-k, a.comp.size()-at)]
		wholeFrames(a.free[len(a.free):][:len(part)], part, ^(a.frame - 1))
		a.free = a.free[:len(a.free)+len(part)]
		k += uint32(len(part))
	}
	a.out -= n
	a.comp.took(n)
}

// send puts up to n of our frames into the TX ring, size bytes of each, and takes
// back what has left. It returns how many.
func (a *xskApp) send(n, size int) int {
	a.reclaim()
	return a.put(n, size)
}

// put is send without taking back.
func (a *xskApp) put(n, size int) int {
	room, _ := a.tx.room(a.tx.at, uint32(n))
	k := min(n, int(room), len(a.free))
	if k == 0 {
		return 0
	}
	for left := k; left > 0; {
		at := (a.tx.at + uint32(k-left)) & a.tx.mask
		part := min(left, int(a.tx.size()-at))
		describeFrames(a.tx.descs[at:][:part], a.free[len(a.free)-part:], uint32(size))
		a.free = a.free[:len(a.free)-part]
		left -= part
	}
	a.out += uint32(k)
	a.sent += uint64(k)
	a.load += uint64(k) * uint64(size)
	a.tx.gave(uint32(k))
	return k
}

// left is what has left through the driver: what was put into the TX ring without
// the entries that are out, which are the last ones.
func (a *xskApp) left() (packets, bytes uint64) {
	packets, bytes = a.sent, a.load
	for i := range min(a.out, a.tx.size()) {
		d := &a.tx.descs[(a.tx.at-1-i)&a.tx.mask]
		bytes -= uint64(d.len)
		if d.options&xdpContinue == 0 {
			packets--
		}
	}
	return packets, bytes
}

// wholeFrames copies addresses as those of the frames that they lie in.
//
//go:noinline
func wholeFrames(out, in []uint64, whole uint64) {
	out = out[:len(in)]
	done := 0
	if fours := len(in) / 4; wideLoops && fours > 0 {
		wholeWide(&out[0], &in[0], fours, whole)
		done = fours * 4
	}
	for i := done; i < len(in); i++ {
		out[i] = in[i] & whole
	}
}

// describeFrames writes entries for packets that begin where their frames do.
//
//go:noinline
func describeFrames(out []xdpDesc, frames []uint64, size uint32) {
	frames = frames[:len(out)]
	done := 0
	if fours := len(out) / 4; wideLoops && fours > 0 {
		describeWide(&out[0], &frames[0], fours, size)
		done = fours * 4
	}
	for i := done; i < len(out); i++ {
		d := &out[i]
		d.addr, d.len, d.options = frames[i], size, 0
	}
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
	for k := uint32(0); k < n; {
		at, to := (a.comp.at+k)&a.comp.mask, (a.fill.at+k)&a.fill.mask
		part := min(n-k, a.comp.size()-at, a.fill.size()-to)
		wholeFrames(a.fill.addrs[to:], a.comp.addrs[at:][:part], ^(a.frame - 1))
		k += part
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
	for k := uint32(0); k < n; {
		at, to := (a.rx.at+k)&a.rx.mask, (a.tx.at+k)&a.tx.mask
		part := min(n-k, a.rx.size()-at, a.tx.size()-to)
		more, bytes := a.forwardRun(a.rx.descs[at:][:part], a.tx.descs[to:], mem)
		a.packets += uint64(part - more)
		a.sent += uint64(part - more)
		a.bytes += bytes
		a.load += bytes
		k += part
	}
	a.out += n
	a.rx.took(n)
	a.tx.gave(n)
	return int(n)
}

// forwardRun copies entries from one ring to the other and swaps the addresses at
// the front of packets that lie in mem. It returns what dropRun does.
//
//go:noinline
func (a *xskApp) forwardRun(in, out []xdpDesc, mem []byte) (more uint32, bytes uint64) {
	out = out[:len(in)]
	last := uint64(max(len(mem), 16) - 16)
	inside, done := a.inside, 0
	if wideLoops && inside == 0 && len(mem) >= 16 && len(in) > 0 {
		done, bytes = forwardWide(&out[0], &in[0], len(in), &mem[0], last)
	}
	for i := done; i < len(in); i++ {
		d, to := &in[i], &out[i]
		addr, size, options := d.addr, d.len, d.options
		if inside == 0 && addr < last {
			swapAddresses(mem[addr:][:16])
		}
		to.addr, to.len, to.options = addr, size, options
		bytes += uint64(size)
		inside = options & xdpContinue
		more += inside
	}
	a.inside = inside
	return more, bytes
}
