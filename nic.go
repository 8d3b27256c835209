package main

// nic.go owns the NIC as a whole: what it is made of, how it comes up and goes
// down. It does not own any single part; each has a file of its own.
// Manual: chapters Initialization Segment, Command Reference (the order of boot).
//
// # Theory
//
// A ConnectX is driven through memory. The driver writes work into rings, tells
// the device by a doorbell, and the device writes completions into other rings.
// Everything else is set up once by firmware commands.
//
//	            firmware commands            events
//	 openNIC ------- command.go ------> device ------> events.go (control EQs)
//	                                      |
//	  channel 0..n-1, one goroutine each  |
//	 +------------------------------------v-----------------------------+
//	 |  pages --> RQ (WQEs) ==> device ==> CQ --> poll --> handler      |
//	 |    ^                                                  |          |
//	 |    +------------------- finish -----------------------+          |
//	 |  handler --> SQ (WQEs) ==> device ==> CQ --> complete --> pages  |
//	 |                 EQ: one interrupt, only when a CQ is armed       |
//	 +------------------------------------------------------------------+
//
// Words: HCA, the device. EQ and EQE, event queue and entry. CQ and CQE,
// completion queue and entry. SQ and RQ, send and receive queue. WQE, work queue
// entry; WQEBB, its block of 64 bytes; DS, its segment of 16; eseg, the segment that
// says what is done to a frame. Session (MPWQE), one WQE for many packets. Striding
// RQ, one whose WQEs take many packets, each in strides of a fixed size. UAR, a page of
// doorbell registers. TIR, what a packet is hashed by; RQT, the table of RQs it
// is spread over; TIS, what a send queue sends through. mkey, the key to memory; UMR,
// a request that changes what a key leads to; ICO, the send queue whose UMRs name pages
// to striding RQs. Channel, one RQ and its SQs (own, forward, XDP) with their CQs, one
// EQ and interrupt, one poll loop. UMEM, a client's frames; XSK, a socket on them.
// IOVA, the address that the device uses for our memory.
//
// Life of a received packet: a rule of the user's leads it to its queue, or else
// the filter table lets it in, the spread table finds its TIR, the hash its RQ.
// The device writes it into the next WQE's fragments and then a CQE, whose last
// byte is the owner bit. The poll sees the bit, makes a view of the page's bytes
// (no copy) and hands a batch of views to the handler. When the handler is done
// the WQE is posted again; a page that the handler keeps is replaced.
//
// Life of a sent packet: the handler gives frames in DMA memory to the send
// queue, which writes WQEs, then the doorbell record, then the doorbell. The
// device reads them, sends, and writes one CQE for the burst; the poll gives the
// pages back.
//
// Who owns which memory when: a ring entry is ours until the doorbell record
// covers it and the device's until its completion; a CQE or EQE is the device's
// until its owner bit says otherwise. A page belongs to the RQ from post to
// finish, then to whoever it was lent to. Pages given to firmware are its own
// until MANAGE_PAGES returns them.
//
// What a doorbell promises: the record is in memory the device reads and is the
// truth; the register is only a hint to look at it. All that a WQE says is in
// memory before the record is, and the record before the register. A lone WQE may
// come with the register's store (blueflame.go); that too only says it again.
//
// Boot order: firmware ready, ENABLE_HCA, ISSI, boot pages, capabilities, init
// pages, INIT_HCA, event queues, protection domain and key, port, channels,
// steering. Every step adds its undo; closing runs them backwards and ends with
// TEARDOWN_HCA and DISABLE_HCA, no object and no page left. DMA is switched off
// before memory is freed.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// openOptions are for opening a NIC.
type openOptions struct {
	wishes   wishes
	cpus     int
	progress func(string) // told about once a second while waiting
	mem      *arena       // shared with other NICs; nil is one of our own
	index    int          // among NICs that share memory
	flags    func(caps) (privFlags, error)
	rules    []rule                    // about received packets, in order (placeRules)
	accepts  func(caps, *params) error // whether sizes suit who asks; nil takes all
	hold     bool                      // no traffic yet: queues get their buffers later, then bringUp is called
}

// nic is an open NIC.
type nic struct {
	dev      device
	vf       bool
	index    int // among NICs that share memory
	mem      *arena
	fw       firmware
	caps     caps
	params   params
	rxMini   uint8 // what compressed completions shall carry (wishes.rxMini)
	mac      net.HardwareAddr
	psid     string
	version  string // of the firmware
	lkey     uint32
	pd, td   uint32
	tis      uint32
	counters uint32 // Q counter set of the receive queues
	unheld   uint32 // and of sockets' receive queues, where there are any
	vectors  []int  // eventfds
	pages    firmwarePages
	channels []*channel
	guests   [maxQueues + 1]*sendQueue // send queues of other NICs' channels, by the channel beside them
	steering *steering
	rules    *ruleTable
	clock    *deviceClock
	moder    moderator
	control  controlLoop
	port     port
	notices  chan string // what an operator should know; dropped when nobody reads
	undo     undo
	closed   sync.Once

	redirected [maxQueues + 1]atomic.Bool // which of guests programs send through

	extra undo      // of what was made since it is open
	pools poolTable // of channels whose pages others may get
}

// channel is one receive and one send queue with all that drives them.
type channel struct {
	napi
	xdpSide
	n       *nic
	index   int
	number  uint16 // of its receive queue, as users count (queueOf): that of control traffic, which no rule can name, comes last
	uar     []byte
	uarPage uint32
	rx      *recvQueue
	next    *recvQueue // that takes its place, or whose place it has taken; nil but while that happens
	ico     *icoQueue  // names pages to striding receive queues; nil where there never was one
	pool    *pagePool
	rxStats rxStats
	made    []*undo // what takes receive queues back
	icoUndo undo
	csum    csumStats // of frames that became packets, see hand
	drops   bool      // the handler only counts
	direct  directHandler
	tx      *sendQueue
	forward *sendQueue // of another NIC, for what this channel receives; may be nil
	peer    *nic       // that NIC
	xsk     *xskQueue  // queues of a zero-copy socket; nil where there are none
	xskTo   *nic       // through which the socket sends
	handler handler
	quota   *quota // of -count; nil lets everything in; set before start
	turns   uint32
	want    atomic.Uint32 // settings to take over, wantSKB and wantXDP
	have    uint32        // settings in force
	done    chan struct{} // closed when the loop has ended

	noComplete bool // of the settings in force: no checksum verdict "complete"
}

// handler is what a channel does with packets. It is called from the channel's
// goroutine, once a batch.
type handler interface {
	// handle may use the packets until it returns.
	handle(c *channel, packets []packet)
	// turn is called once a poll, also when nothing came in; it returns how much
	// it had to do by itself.
	turn(c *channel) int
	// idle is called before the channel sleeps.
	idle(c *channel)
}

// dropHandler is a handler that looks at no packet: its channel counts what comes
// and builds no views.
type dropHandler interface {
	handler
	// drops does nothing; having it is the point.
	drops()
}

// directHandler is a handler that can do with less than views.
type directHandler interface {
	handler
	// room is how many packets it can take now; the rest waits in the receive ring.
	room(c *channel) int
	// receive takes up to budget packets from the channel's queue by itself and
	// returns how many; what it leaves goes to handle.
	receive(c *channel, budget int) int
}

// endingHandler is a handler whose turn finishes what it has begun. Of others the
// channel takes no turn any more when it is told to stop.
type endingHandler interface {
	handler
	// end has it begin nothing more by itself.
	end()
}

// openNIC brings the device up. On failure everything is taken back.
func openNIC(ctx context.Context, dev device, vf bool, o openOptions) (_ *nic, err error) {
	n := &nic{dev: dev, vf: vf, mem: o.mem, index: o.index, notices: make(chan string, 64)}
	defer func() {
		if err != nil {
			err = failing(err, &n.undo)
		}
	}()
	steps := []func() error{
		func() error { return n.startDMA() },
		func() error { return n.startFirmware(ctx, o) },
		n.enable,
		n.bootPages,
		n.negotiate,
		n.initialize,
		func() error { return n.choose(o) },
		n.startControl,
		n.createDomain,
		n.setUpPort,
		n.startWorkers,
		n.createChannels,
		func() error { return n.createSteering(o.rules) },
		func() error {
			if o.hold {
				return nil
			}
			return n.bringUp()
		},
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("stopped while opening: %w", err)
		}
		if err := step(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// failing takes back what was done because of err, and returns that with what went
// wrong then.
func failing(err error, u *undo) error {
	if again := u.run(); again != nil && !errors.Is(err, errDeviceLost) {
		return fmt.Errorf("%w; then %w", err, again)
	}
	return err
}

// close stops the channels and takes everything back.
func (n *nic) close() (err error) {
	n.closed.Do(func() { err = n.undo.run() })
	return err
}

// startDMA puts the function into a known state and lets it reach memory.
func (n *nic) startDMA() error {
	if err := n.dev.reset(); err != nil && !errors.Is(err, errNoReset) {
		return fmt.Errorf("resetting the function: %w", err)
	}
	if n.mem == nil {
		n.mem = newArena(n.dev)
		n.undo.add("DMA memory", n.mem.close)
	}
	if err := n.dev.setBusMaster(true); err != nil {
		return fmt.Errorf("enabling DMA: %w", err)
	}
	n.undo.add("bus master", func() error { return n.dev.setBusMaster(false) })
	return nil
}

func (n *nic) startFirmware(ctx context.Context, o openOptions) error {
	var tell func(time.Duration)
	if o.progress != nil {
		tell = func(d time.Duration) {
			o.progress(fmt.Sprintf("%s: firmware is initializing (%v of at most %v)", n.dev.name(), d.Round(time.Second), firmwareWait))
		}
	}
	c, err := newCommander(ctx, n.dev.bar0(), n.mem, firmwareWait, tell)
	if err != nil {
		return err
	}
	n.fw = firmware{c}
	n.undo.add("command queue", func() error { c.close(); return nil })
	seg := c.segment()
	n.version = fmt.Sprintf("%d.%d.%04d", segFwMajor.get(seg), segFwMinor.get(seg), segFwSubminor.get(seg))
	return nil
}

// enable is ENABLE_HCA and the interface step: ISSI 1 is the only one there is.
func (n *nic) enable() error {
	if err := n.fw.enableHCA(); err != nil {
		return err
	}
	n.undo.add("ENABLE_HCA", n.fw.disableHCA)
	known, err := n.fw.queryISSI()
	if err != nil {
		return err
	}
	if known&(1<<1) == 0 {
		return fmt.Errorf("firmware %s offers interface steps %#x, this driver needs step 1: update the card's firmware", n.version, known)
	}
	return n.fw.setISSI(1)
}

func (n *nic) bootPages() error {
	n.pages = firmwarePages{fw: n.fw, mem: n.mem, given: map[uint64]uint32{}}
	n.undo.add("firmware pages", n.pages.reclaim)
	return n.pages.provide(queryPagesBoot)
}

// negotiate tells firmware our byte order and settles the capabilities.
func (n *nic) negotiate() error {
	if !n.vf {
		// Little endian is 0; the register is a PF's.
		if _, err := n.fw.accessRegister(regWrite, regHostEndianness, make([]byte, 16)); err != nil {
			return fmt.Errorf("host byte order: %w", err)
		}
	}
	most, err := n.fw.queryCaps(capGroupGeneral, capMax)
	if err != nil {
		return err
	}
	now, err := n.fw.queryCaps(capGroupGeneral, capCurrent)
	if err != nil {
		return err
	}
	return n.fw.setCaps(wantedCaps(most, now))
}

// initialize is INIT_HCA with its pages; then the capabilities are final.
func (n *nic) initialize() error {
	if err := n.pages.provide(queryPagesInit); err != nil {
		return err
	}
	if err := n.fw.initHCA(); err != nil {
		return err
	}
	n.undo.add("INIT_HCA", n.fw.teardownHCA)
	var groups [3][]byte
	for i, g := range []uint16{capGroupGeneral, capGroupEthernet, capGroupFlowTable} {
		var err error
		if groups[i], err = n.fw.queryCaps(g, capCurrent); err != nil {
			return err
		}
	}
	n.caps = decodeCaps(groups[0], groups[1], groups[2], n.vf)
	switch {
	case !n.caps.ethernet:
		return fmt.Errorf("%s: the port's link type is InfiniBand: set it to Ethernet with mlxconfig -d %s set LINK_TYPE_P1=2, then reset the card", n.dev.name(), n.dev.name())
	case !n.caps.nicTables:
		return fmt.Errorf("%s: the function has no receive flow tables: it is not meant to be a NIC (check its firmware configuration)", n.dev.name())
	}
	if n.caps.version {
		if err := n.fw.setDriverVersion("Linux,mlx5d," + version); err != nil {
			return err
		}
	}
	var err error
	n.psid, err = n.fw.queryAdapter()
	return err
}

// choose turns wishes into sizes.
func (n *nic) choose(o openOptions) error {
	n.port = port{fw: n.fw, owner: n.caps.portOwner}
	mtu, err := n.port.largestMTU()
	if err != nil {
		return err
	}
	mac, asked, err := n.port.identity()
	if err != nil {
		return err
	}
	n.mac = mac
	if n.caps.inlineAsk {
		n.caps.inlineMode = asked
	}
	w, flags := o.wishes, defaultFlags(n.caps)
	if o.flags != nil {
		if flags, err = o.flags(n.caps); err != nil {
			return err
		}
		w.rxStriding, w.rxCompress = flags.rxStriding, flags.rxCompress
	}
	flags.rxStriding, flags.rxCompress = w.rxStriding, w.rxCompress
	n.rxMini = w.rxMini
	if n.params, err = chooseParams(n.caps, w, o.cpus, n.dev.vectors(), mtu); err != nil {
		return err
	}
	if w.blueflame {
		pages, why := n.dev.combining()
		if n.params.flame, err = chooseBlueFlame(n.caps, pages, n.params.channels(), why); err != nil {
			return err
		}
	}
	n.params.flags = flags
	if n.params.moder, err = chooseModeration(n.caps, w.coalesce, flags.rxCQEModer); err != nil {
		return err
	}
	if err = checkRules(o.rules, n.caps, n.params.queues, n.params.sockets()); err != nil {
		return err
	}
	if o.accepts != nil {
		if err = o.accepts(n.caps, &n.params); err != nil {
			return err
		}
	}
	n.params.adaptive = w.adaptive && n.caps.moderation
	if n.params.rxWhy != "" {
		n.notify("receive queues: %s", n.params.rxWhy)
	}
	if w.txInline > 0 && n.params.inlineInForce() == 0 {
		n.notify("-tx-inline %d has no effect while skb_tx_mpwqe is off", w.txInline)
	}
	n.vectors, err = n.dev.enableVectors(1 + n.params.channels())
	return err
}

// newUAR takes a page of doorbell registers. Every event queue and every channel
// has its own, so that no two threads store to one register.
func (n *nic) newUAR() (page uint32, regs []byte, err error) { return n.newUARIn(&n.undo) }

// newUARIn is newUAR with a list of its own for what takes it back.
func (n *nic) newUARIn(u *undo) (page uint32, regs []byte, err error) {
	if page, err = n.fw.alloc(opAllocUAR); err != nil {
		return 0, nil, err
	}
	u.add("UAR", func() error { return n.fw.destroy(opDeallocUAR, page) })
	bar := n.dev.bar0()
	at := int(page) * uarPageSize
	if at+uarPageSize > len(bar) {
		return 0, nil, fmt.Errorf("UAR %#x lies beyond BAR0 of %d MiB", page, len(bar)>>20)
	}
	return page, bar[at : at+uarPageSize : at+uarPageSize], nil
}

// newEQ makes an event queue on a UAR page of its own.
func (n *nic) newEQ(what string, log uint8, vector int, mask uint64) (*eventQueue, error) {
	page, regs, err := n.newUAR()
	if err != nil {
		return nil, fmt.Errorf("%s event queue: %w", what, err)
	}
	q, err := newEventQueue(n.mem, log, regs, page)
	if err != nil {
		return nil, fmt.Errorf("%s %w", what, err)
	}
	n.undo.add(what+" event ring", func() error { q.free(n.mem); return nil })
	if q.n, err = n.fw.createEQ(log, page, vector, mask, q.buf.pages()); err != nil {
		return nil, fmt.Errorf("%s event queue: %w", what, err)
	}
	n.undo.add(what+" event queue", func() error { return n.fw.destroy(opDestroyEQ, q.n) })
	return q, nil
}

// Events that the asynchronous queue takes: all that concern our objects and
// port, but not completions, commands and pages, which have queues of their own.
const asyncMask = 1<<eventCQError | 1<<eventWQCatas | 1<<eventWQInvalid | 1<<eventWQAccess | 1<<eventInternal | 1<<eventPortChange | 1<<eventVportChange

// startControl creates the three control queues on vector 0 and the loop that
// reads them. From here on commands complete by event.
func (n *nic) startControl() error {
	for i, q := range []struct {
		what string
		log  uint8
		mask uint64
	}{
		{"command", controlEQLog, 1 << eventCommand},
		{"asynchronous", asyncEQLog, asyncMask},
		{"page request", controlEQLog, 1 << eventPageRequest},
	} {
		eq, err := n.newEQ(q.what, q.log, 0, q.mask)
		if err != nil {
			return err
		}
		n.control.eqs[i] = eq
	}
	vec, err := bellOn(n.vectors[0])
	if err != nil {
		return err
	}
	n.control.start(n.fw.commander, &n.pages, vec)
	n.undo.add("control loop", n.control.stop)
	return nil
}

// createDomain makes what queues refer to: domain, key, TIS, counter set.
func (n *nic) createDomain() (err error) {
	for _, o := range []struct {
		what       string
		make, free uint16
		n          *uint32
	}{
		{"protection domain", opAllocPD, opDeallocPD, &n.pd},
		{"transport domain", opAllocTransportDomain, opDeallocTransportDomain, &n.td},
		{"Q counter", opAllocQCounter, opDeallocQCounter, &n.counters},
		{"Q counter of sockets", opAllocQCounter, opDeallocQCounter, &n.unheld},
	} {
		if o.n == &n.unheld && !n.params.xsk {
			continue
		}
		if *o.n, err = n.fw.alloc(o.make); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
		if o.make == opAllocQCounter {
			*o.n &= 0xff
		}
		n.undo.add(o.what, func() error { return n.fw.destroy(o.free, *o.n) })
	}
	if n.lkey, err = n.fw.createMkey(n.pd); err != nil {
		return fmt.Errorf("memory key: %w", err)
	}
	n.undo.add("memory key", func() error { return n.fw.destroy(opDestroyMkey, n.lkey>>8) })
	if n.tis, err = n.fw.createTIS(n.td); err != nil {
		return fmt.Errorf("TIS: %w", err)
	}
	n.undo.add("TIS", func() error { return n.fw.destroy(opDestroyTIS, n.tis) })
	return nil
}

// setUpPort sets the MTU and tells a switch in the card who we are.
func (n *nic) setUpPort() error {
	if err := n.port.setMTU(n.params.mtu + hardMTU); err != nil {
		return err
	}
	return n.port.listAddress(n.mac)
}

// startWorkers starts what goes on beside the channels: the clock's keeper and
// the worker of adaptive moderation.
func (n *nic) startWorkers() error {
	n.clock = newDeviceClock(n.dev.bar0(), n.caps.rqTime, n.caps.clockKHz)
	n.clock.keep()
	n.undo.add("clock", func() error { n.clock.halt(); return nil })
	n.moder.start(n.fw, n.params.channels())
	n.undo.add("moderation", func() error { n.moder.halt(); return nil })
	return nil
}

// createChannels makes the channels and readies their queues.
func (n *nic) createChannels() error {
	for i := range n.params.channels() {
		c, err := n.newChannel(i)
		if err != nil {
			return fmt.Errorf("channel %d: %w", i, err)
		}
		n.channels = append(n.channels, c)
	}
	n.undo.add("later queues", n.extra.run)
	return nil
}

func (n *nic) newChannel(i int) (*channel, error) {
	c := &channel{n: n, index: i, number: uint16(i), done: make(chan struct{})}
	if i >= n.params.queues {
		c.number += uint16(n.params.sockets())
	}
	close(c.done)
	var err error
	if c.uarPage, c.uar, err = n.newUAR(); err != nil {
		return nil, err
	}
	if c.eq, err = n.newEQ("completion", channelEQLog, 1+i, 0); err != nil {
		return nil, err
	}
	if c.vec, err = bellOn(n.vectors[1+i]); err != nil {
		return nil, err
	}
	n.undo.add("interrupt", c.vec.close)
	if c.pool, err = newPagePool(n.mem, n.index*maxQueues+i, n.params.poolPages(n.caps)); err != nil {
		return nil, err
	}
	n.undo.add("receive pages", func() error { c.pool.close(n.mem); return nil })
	n.undo.add("control send queue", c.icoUndo.run)
	n.undo.add("receive queue", c.takeBackRX)
	if c.rx, err = n.newRX(c, &n.params); err != nil {
		return nil, err
	}
	if err = n.readyRX(c.rx); err != nil {
		return nil, err
	}
	if err := n.newTX(c); err != nil {
		return nil, err
	}
	c.adapt.worker = &n.moder
	c.adapt.cqn.Store(c.rx.cq.n)
	c.adapt.want.Store(adaptiveMode(n.params.adaptive, n.params.flags.rxCQEModer))
	c.cqs = append(c.cqs, c.rx.cq, c.tx.cq)
	if n.params.xsk && i < n.params.queues {
		if err := n.newXSK(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// createCQ makes a completion queue on channel c as f says.
func (n *nic) createCQ(c *channel, f cqConfig) (*compQueue, error) {
	return n.createCQIn(c, f, &n.undo)
}

// createCQIn is createCQ with a list of its own for what takes it back.
func (n *nic) createCQIn(c *channel, f cqConfig, u *undo) (*compQueue, error) {
	q, err := newCompQueue(n.mem, f.logSize, c.uar)
	if err != nil {
		return nil, err
	}
	u.add("completion ring", func() error { q.free(n.mem); return nil })
	f.uar, f.eqn, f.record, f.pages = c.uarPage, c.eq.n, q.rec.mem.iova, q.buf.pages()
	if q.n, err = n.fw.createCQ(f); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	u.add("completion queue", func() error { return n.fw.destroy(opDestroyCQ, q.n) })
	return q, nil
}

// newRX makes a receive queue for channel c of the kind and sizes in p, in the
// reset state and with nothing posted. Its last undo step destroys the queue, those
// before what it was made of; until then they stand in the channel's list, also
// when it fails.
func (n *nic) newRX(c *channel, p *params) (*recvQueue, error) {
	u := &undo{}
	c.made = append(c.made, u)
	cq, err := n.createCQIn(c, cqConfig{logSize: p.logRxCQ, compress: p.rxCompress, mini: p.rxMini,
		moder: p.moder[0], fromCQE: p.flags.rxCQEModer}, u)
	if err != nil {
		return nil, err
	}
	cfg := recvConfig{pool: c.pool, stats: &c.rxStats, layout: p.rxLayout, log: p.logRQ, frame: p.frame, lkey: n.lkey,
		mini: p.rxMini, strides: p.rxStrides, strip: p.strip}
	if p.rxStrides.on() {
		if err := n.newICO(c); err != nil {
			return nil, err
		}
		cfg.ico = c.ico
		if cfg.pageKey, err = n.fw.createPageKey(n.pd, p.ringPages()); err != nil {
			return nil, fmt.Errorf("key of the receive pages: %w", err)
		}
		u.add("key of the receive pages", func() error { return n.fw.destroy(opDestroyMkey, cfg.pageKey>>8) })
	}
	q, err := newRecvQueue(n.mem, cq, cfg, u)
	if err != nil {
		return nil, err
	}
	wq := workQueue{kind: wqCyclic, pd: n.pd, record: q.rec.mem.iova, logStride: p.rxLayout.logStride, logSize: p.logRQ, pages: q.buf.pages()}
	if p.rxStrides.on() {
		wq.kind, wq.logStride, wq.strides = wqStriding, logStrideWQESize, [2]uint8{p.rxStrides.logStride, p.rxStrides.logStrides}
	}
	q.n, err = n.fw.createRQ(rqConfig{wq: wq, cqn: cq.n, stripVLAN: p.strip, counters: n.counters, tsFormat: n.caps.rqTime})
	if err != nil {
		return nil, fmt.Errorf("receive queue: %w", err)
	}
	u.add("receive queue", func() error { return n.fw.destroy(opDestroyRQ, q.n) })
	return q, nil
}

// takeBackRX takes back every receive queue that there is.
func (c *channel) takeBackRX() (first error) {
	for _, u := range c.made {
		if err := u.run(); err != nil && first == nil {
			first = err
		}
	}
	c.made = nil
	return first
}

// readyRX posts buffers and lets frames in. It waits for the first and so is for
// queues that no channel polls yet (renewRX).
func (n *nic) readyRX(q *recvQueue) error {
	q.fill()
	for end := time.Now().Add(firstFill); q.idle() && time.Now().Before(end); q.fill() {
		time.Sleep(10 * time.Microsecond)
	}
	if q.idle() {
		return errNoFill
	}
	if err := n.fw.modifyRQ(q.n, queueReset, queueReady); err != nil {
		return fmt.Errorf("receive queue: %w", err)
	}
	return nil
}

// newICO makes channel c's queue for internal control operations where there is
// none. It stays until the channel's end, whoever uses it.
func (n *nic) newICO(c *channel) (err error) {
	if c.ico != nil {
		return nil
	}
	u := &c.icoUndo
	defer func() {
		if err != nil {
			if again := u.back(); again != nil {
				err = fmt.Errorf("%w; then %w", err, again)
			}
		}
	}()
	page, uar, err := n.newUARIn(u)
	if err != nil {
		return err
	}
	cq, err := n.createCQIn(c, cqConfig{logSize: logICO}, u)
	if err != nil {
		return err
	}
	q, err := newICOQueue(n.mem, cq, uar, u)
	if err != nil {
		return err
	}
	q.n, err = n.fw.createSQ(sqConfig{
		wq:  workQueue{kind: wqCyclic, pd: n.pd, uar: page, record: q.rec.mem.iova, logStride: 6, logSize: logICO, pages: q.buf.pages()},
		cqn: cq.n, umr: true, tsFormat: n.caps.sqTime,
	})
	if err != nil {
		return fmt.Errorf("control send queue: %w", err)
	}
	u.add("control send queue", func() error { return n.fw.destroy(opDestroySQ, q.n) })
	if err := n.fw.modifySQ(q.n, queueReset, queueReady); err != nil {
		return fmt.Errorf("control send queue: %w", err)
	}
	c.mail.post(c.vec, func() { c.ico, c.cqs = q, append(c.cqs, cq) })
	return nil
}

// newTX makes channel c's own send queue.
func (n *nic) newTX(c *channel) (err error) {
	if c.tx, err = n.newSQ(c, c.pool, n.params.flags.skbTxMPWQE); err != nil || n.params.flame == 0 {
		return err
	}
	return c.tx.light(n.dev, n.params.flame, &n.undo)
}

// newXSK makes channel c's queues for a socket. Nobody is attached and nothing is
// posted: what is led there meets no buffer.
func (n *nic) newXSK(c *channel) error {
	p, q := &n.params, &xskQueue{id: pageRef(xskOwners+n.index*maxQueues+c.index) << 24}
	q.number, q.mtu = uint16(p.queues+c.index), p.mtu
	cq, err := n.createCQ(c, cqConfig{logSize: p.logRQ, moder: p.moder[0], fromCQE: p.flags.rxCQEModer})
	if err != nil {
		return err
	}
	if q.recv, err = newXSKRecv(n.mem, cq, p.logRQ, p.frame, n.lkey, &n.undo); err != nil {
		return err
	}
	if p.strip {
		q.recv.strip = 1
	}
	wq := workQueue{kind: wqCyclic, pd: n.pd, record: q.recv.rec.mem.iova, logStride: q.recv.logWQE(), logSize: p.logRQ, pages: q.recv.buf.pages()}
	q.recv.n, err = n.fw.createRQ(rqConfig{wq: wq, cqn: cq.n, stripVLAN: p.strip, counters: n.unheld, tsFormat: n.caps.rqTime})
	if err != nil {
		return fmt.Errorf("receive queue for a socket: %w", err)
	}
	n.undo.add("receive queue", func() error { return n.fw.destroy(opDestroyRQ, q.recv.n) })
	if err := n.fw.modifyRQ(q.recv.n, queueReset, queueReady); err != nil {
		return fmt.Errorf("receive queue for a socket: %w", err)
	}
	if q.tx, err = n.newSQ(c, &pagePool{}, p.flags.xdpTxMPWQE); err != nil {
		return err
	}
	q.name = fmt.Sprintf("rx%d of a socket", c.index)
	q.tx.name += " of a socket"
	c.xsk, c.xskTo = q, n
	c.cqs = append(c.cqs, cq, q.tx.cq)
	c.adapt.also = cq.n
	return nil
}

// newSQ makes a send queue beside channel c, for frames of pool, and readies it.
func (n *nic) newSQ(c *channel, pool *pagePool, mpw bool) (*sendQueue, error) {
	p := &n.params
	page, uar, err := n.newUAR()
	if err != nil {
		return nil, err
	}
	cq, err := n.createCQ(c, cqConfig{logSize: p.logTxCQ, moder: p.moder[1], fromCQE: p.flags.txCQEModer})
	if err != nil {
		return nil, err
	}
	q, err := newSendQueue(n.mem, cq, sendConfig{log: p.logSQ, uar: uar, uarPage: page, lkey: n.lkey, minInline: p.minInline, mpw: mpw,
		frame: p.frame, maxLSO: n.caps.maxLSO}, &n.undo)
	if err != nil {
		return nil, err
	}
	q.n, err = n.fw.createSQ(sqConfig{
		wq: workQueue{kind: wqCyclic, pd: n.pd, uar: page, record: q.rec.mem.iova, logStride: 6,
			logSize: p.logSQ, pages: q.buf.pages()},
		cqn: cq.n, tis: n.tis, minInline: p.minInline, mpw: n.caps.mpw, swp: n.caps.swp, tsFormat: n.caps.sqTime,
	})
	if err != nil {
		return nil, fmt.Errorf("send queue: %w", err)
	}
	n.undo.add("send queue", func() error { return n.fw.destroy(opDestroySQ, q.n) })
	if err := n.fw.modifySQ(q.n, queueReset, queueReady); err != nil {
		return nil, fmt.Errorf("send queue: %w", err)
	}
	q.name = fmt.Sprintf("tx%d", c.index)
	q.home(pool)
	q.inlineUpTo(p.txInline)
	return q, nil
}

// createSteering puts the channels behind flow tables, the first of which are the
// user's rules. Nothing is let in yet.
func (n *nic) createSteering(rules []rule) (err error) {
	rqns := make([]uint32, len(n.channels))
	for i, c := range n.channels {
		if rqns[i] = c.rx.n; n.params.xskSpread && c.xsk != nil {
			rqns[i] = c.xsk.recv.n
		}
	}
	to := spreadTo{td: n.td, rqns: rqns[:n.params.queues], rqtSize: n.params.rqt}
	if n.params.trap {
		to.trap, to.trapRQ = true, rqns[n.params.queues]
	}
	c := n.channels[0]
	place := sinkPlace{fw: n.fw, mem: n.mem, eqn: c.eq.n, uar: c.uar, uarPage: c.uarPage, tsFormat: n.caps.rqTime}
	if !n.params.promisc && !n.caps.steerDrops && n.port.owner {
		if to.missed, err = place.newSink(&n.undo); err != nil {
			return fmt.Errorf("queue of what is not for us: %w", err)
		}
	}
	if n.steering, err = newSteering(n.fw, n.caps, to, [6]byte(n.mac), &n.undo); err != nil {
		return err
	}
	n.rules = newRuleTable(n.steering, n.caps, n.td, n.queueOf, place)
	n.undo.add("rules", n.rules.close)
	return n.rules.set(rules)
}

// queueOf is the receive queue behind a queue's number as users count: the regular
// ones, which may have been replaced since they were opened, then the upper ones.
func (n *nic) queueOf(queue int) uint32 {
	if queue < n.params.queues {
		return n.channels[queue].rx.n
	}
	return n.channels[queue-n.params.queues].xsk.recv.n
}

// bringUp lets traffic in: the last step, when every queue is ready.
func (n *nic) bringUp() error {
	// The vport first: what its own filter takes never comes to our tables. Where the
	// device does not count what that takes, our tables take and count it all; no
	// other function shares the port then, since a PF with VFs is not opened.
	if err := n.port.promiscuous(n.params.promisc || n.steering.missed != nil, !n.params.noAllMulti, n.params.groups); err != nil {
		return err
	}
	n.undo.add("promiscuous mode", func() error { return n.port.promiscuous(false, true, nil) })
	if err := n.steering.setFilter(n.params.promisc, !n.params.noAllMulti, n.params.groups, &n.undo); err != nil {
		return err
	}
	// A VF's link is up already: no packet meets the tables before they are whole.
	if err := n.rules.open(); err != nil {
		return err
	}
	if err := n.port.setUp(true); err != nil {
		return err
	}
	n.undo.add("port", func() error { return n.port.setUp(false) })
	return n.readLink()
}

// readLink asks for the link's state. An event that comes meanwhile knows better
// than the answer: then it is asked again.
func (n *nic) readLink() error {
	for {
		before := n.control.flaps.get()
		up, err := n.fw.vportUp()
		if err != nil {
			return fmt.Errorf("link state: %w", err)
		}
		n.control.linkUp.Store(up)
		if n.control.flaps.get() == before {
			return nil
		}
	}
}

// ringMemory is what the receive rings' buffers take together, in bytes.
func (n *nic) ringMemory() (sum int) {
	for _, c := range n.channels {
		sum += c.rx.ringMemory()
	}
	return sum
}

// notify tells an operator, who may not listen.
func (n *nic) notify(format string, a ...any) {
	select {
	case n.notices <- fmt.Sprintf(format, a...):
	default:
	}
}
