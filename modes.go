package main

// modes.go owns what a channel does with packets other than inspecting them:
// drop, answer, send back, generate. Each mode is a handler of one channel. It
// does not own rings (rxpath.go, txpath.go) or what an answer is (echo.go).

// The modes of the appliance: what it does with packets.
const (
	modeInspect = "inspect"
	modeDrop    = "rxdrop"
	modeSend    = "txonly"
	modeForward = "l2fwd"
	modeEcho    = "echo"
)

func modeNames() []string { return []string{modeInspect, modeDrop, modeSend, modeForward, modeEcho} }

// dropWork counts packets and drops them. Mode rxdrop.
type dropWork struct{}

func (dropWork) drops()                    {}
func (dropWork) handle(*channel, []packet) {}
func (dropWork) turn(*channel) int         { return 0 }
func (dropWork) idle(*channel)             {}

// forwardWork sends every packet on, from the page that it was received into: as
// it is to the other port where there is one, else back with its addresses
// swapped. Mode l2fwd.
type forwardWork struct {
	plain  [napiBudget]txFrame // with nothing in it but address, size and page
	frames []txFrame
}

func newForwardWork() *forwardWork {
	return &forwardWork{frames: make([]txFrame, 0, napiBudget*maxFrags)}
}

// room is what the send ring holds.
func (w *forwardWork) room(c *channel) int {
	q := c.tx
	if c.forward != nil {
		q = c.forward
	}
	if q.ample() {
		return napiBudget
	}
	if c.rx.whole() {
		return q.room(1)
	}
	return q.room(maxFrags)
}

// receive forwards what needs no view. It leaves the rest to handle.
func (w *forwardWork) receive(c *channel, budget int) int {
	frames := w.plain[:min(budget, napiBudget)]
	if c.forward != nil {
		frames = frames[:c.rx.lendPlain(frames)]
		c.forward.sendOrDrop(frames)
		return len(frames)
	}
	frames = frames[:c.rx.lendSwapped(frames)]
	c.tx.sendOrDrop(frames)
	return len(frames)
}

func (w *forwardWork) handle(c *channel, packets []packet) {
	w.frames = w.frames[:0]
	for i := range packets {
		p := &packets[i]
		if len(p.b) < etherHeader {
			continue
		}
		if c.forward == nil {
			swapAddresses(p.b)
		}
		w.frames = c.rx.lend(w.frames, p, p.size)
	}
	if c.forward != nil {
		c.forward.sendOrDrop(w.frames)
		return
	}
	c.tx.sendOrDrop(w.frames)
}

func (w *forwardWork) turn(*channel) int { return 0 }
func (w *forwardWork) idle(*channel)     {}

// echoWork answers what its responder answers and drops the rest. Mode echo.
type echoWork struct {
	responder *responder
	frames    []txFrame
}

func newEchoWork(r *responder) *echoWork {
	return &echoWork{responder: r, frames: make([]txFrame, 0, napiBudget*maxFrags)}
}

func (w *echoWork) handle(c *channel, packets []packet) {
	w.frames = w.frames[:0]
	for i := range packets {
		p := &packets[i]
		if n := w.responder.reply(c.rx.roomy(p), int(p.size)); n > 0 {
			w.frames = c.rx.lend(w.frames, p, uint32(n))
		}
	}
	c.tx.sendOrDrop(w.frames)
}

func (w *echoWork) turn(*channel) int { return 0 }
func (w *echoWork) idle(*channel)     {}

// sendQuota is a channel's part of -count. What it was let through and could not send
// stays its own, to be sent by a later turn, also after the end.
type sendQuota struct {
	left func(n int) int // how many of n frames -count still lets through
	held int             // let through and not sent
}

// take is how many of n frames may be sent.
func (q *sendQuota) take(n int) int {
	if n > q.held {
		q.held += q.left(n - q.held)
	}
	return min(n, q.held)
}

// sent notes how many were.
func (q *sendQuota) sent(n int) int {
	q.held -= n
	return n
}

// end lets nothing more through.
func (q *sendQuota) end() { q.left = func(int) int { return 0 } }

// sendWork sends one frame again and again, as fast as the ring takes it. Mode
// txonly.
type sendWork struct {
	sendQuota
	frames [napiBudget]txFrame
}

// fillTestFrame makes b the frame that mode txonly sends: broadcast of the
// experimental EtherType, with the queue's number behind the header.
func fillTestFrame(b []byte, mac [6]byte, queue int) {
	clear(b)
	copy(b, []byte{255, 255, 255, 255, 255, 255})
	copy(b[6:], mac[:])
	b[12], b[13], b[14] = 0x88, 0xb5, byte(queue)
}

// newSendWork prepares a channel's frame, of size bytes without FCS.
func newSendWork(c *channel, mac [6]byte, size int, left func(int) int) (*sendWork, bool) {
	n, ok := c.rx.pool.take()
	if !ok {
		return nil, false
	}
	fillTestFrame(c.rx.pool.bytes(n, 0, uint32(size)), mac, c.index)
	w := &sendWork{sendQuota: sendQuota{left: left}}
	for i := range w.frames {
		w.frames[i] = txFrame{addr: c.rx.pool.addr(n, 0), form: txSize(uint32(size)), page: noPage}
	}
	return w, true
}

func (w *sendWork) handle(*channel, []packet) {}
func (w *sendWork) idle(*channel)             {}

func (w *sendWork) turn(c *channel) int {
	n := w.take(min(c.tx.room(1), len(w.frames)))
	return w.sent(c.tx.send(w.frames[:n]))
}

// xdpSendWork sends the same through the channel's XDP send queue. Mode txonly with
// datapath xdp.
type xdpSendWork struct{ *sendWork }

func newXDPSendWork(c *channel, w *sendWork) xdpSendWork {
	c.generates = true
	return xdpSendWork{w}
}

func (w xdpSendWork) turn(c *channel) int {
	n := w.take(min(c.roomXDP(), len(w.frames)))
	return w.sent(c.xdp.send(w.frames[:n]))
}
