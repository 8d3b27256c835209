package main

// xskwork.go owns the three modes of a socket inside the appliance (-datapath xsk):
// a handler that has a socket on its own channel and works the application's side
// of the rings in the same goroutine. It does not own that side (xskapp.go) nor
// the driver's (xsk.go).

import "fmt"

// xskWorkConfig says what such a handler does.
type xskWorkConfig struct {
	mode string
	umem umemConfig
	size int      // of frames to send
	file *xskFile // to send instead; nil where there is none
	mac  [6]byte
	left func(n int) int // how many of n frames to send -count still lets through
}

// xskWork is that handler.
type xskWork struct {
	sendQuota
	app  *xskApp
	mode string
	size int
	swap bool
	file *xskFile
	sock *xskSocket
}

// newXSKWork opens a socket on channel c. Its undo must run before the NIC closes,
// and while the channel does not run or takes calls.
func newXSKWork(c *channel, cfg xskWorkConfig, u *undo) (*xskWork, error) {
	if err := cfg.umem.check(); err != nil {
		return nil, err
	}
	if most := min(c.n.params.frame, cfg.umem.frame); cfg.mode == modeSend && cfg.file == nil && (cfg.size <= etherHeader || cfg.size > most) {
		return nil, wishf("-size %d: %d to %d can be sent", cfg.size, etherHeader+1, most)
	}
	entries := 1 << logCeil(cfg.umem.frames)
	places, size, err := layoutRings([xskRings]int{entries, entries, entries, entries})
	if err != nil {
		return nil, err
	}
	frames, err := ownFrames(cfg.umem, u)
	if err != nil {
		return nil, err
	}
	rings, err := newSharedMemory("mlx5d-rings", size)
	if err != nil {
		return nil, err
	}
	u.add("rings", rings.close)
	mem, err := newUMEM(c.n.mem, frames, cfg.umem)
	if err != nil {
		return nil, err
	}
	u.add("UMEM's mapping", func() error { return mem.close(c.n.mem) })
	w := &xskWork{app: newXSKApp(frames, cfg.umem.frame, rings.b, places), mode: cfg.mode, size: cfg.size, file: cfg.file, sendQuota: sendQuota{left: cfg.left},
		sock: newSocket(mem, rings.b, places)}
	w.sock.wakeups, w.sock.ours, w.swap = true, true, c.xskTo == c.n
	if err := c.attachXSK(w.sock); err != nil {
		return nil, err
	}
	u.add(fmt.Sprintf("socket of queue %d", c.index), c.detachXSK)
	w.prepare(c, cfg)
	return w, nil
}

// ownFrames is memory for a UMEM that no other process maps: from huge pages when
// the machine has any free. What others map never is: a peer that punched a hole
// could leave us without the page.
func ownFrames(c umemConfig, u *undo) ([]byte, error) {
	b, err := mapMemory((c.bytes() + hugePageSize - 1) &^ (hugePageSize - 1))
	if err != nil {
		return nil, fmt.Errorf("UMEM: %w", err)
	}
	u.add("UMEM", func() error { return unmapMemory(b) })
	return b[:c.bytes():c.bytes()], nil
}

// prepare gives the frames their place: in the fill ring, or with a packet to send
// in each.
func (w *xskWork) prepare(c *channel, cfg xskWorkConfig) {
	if cfg.mode != modeSend {
		w.app.giveFrames(cfg.umem.frames)
		c.do(c.xsk.refill)
		return
	}
	if w.file != nil {
		w.file.fill(w.app.mem, cfg.umem.frame)
		return
	}
	for at := 0; at < len(w.app.mem); at += cfg.umem.frame {
		fillTestFrame(w.app.mem[at:at+cfg.size], cfg.mac, c.index)
	}
}

func (w *xskWork) handle(*channel, []packet) {}
func (w *xskWork) drops()                    {}
func (w *xskWork) idle(*channel)             {}

// turn is the application's turn. It puts into the TX ring only what the send queue
// has room for.
func (w *xskWork) turn(c *channel) int {
	switch w.mode {
	case modeDrop:
		return w.app.drop(napiBudget)
	case modeForward:
		return w.app.forward(napiBudget, w.swap)
	}
	waiting := int(w.app.tx.at - w.sock.tx.at)
	if w.file != nil {
		return w.sent(w.file.send(w.app, min(c.xsk.tx.room(1)-waiting, napiBudget), w.take))
	}
	w.app.reclaim()
	n := w.take(max(0, min(c.xsk.tx.room(1)-waiting, len(w.app.free), napiBudget)))
	return w.sent(w.app.put(n, w.size))
}
