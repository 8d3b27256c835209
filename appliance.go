package main

// appliance.go owns one run: it opens a device and a NIC, gives every channel
// its work, waits for the end and adds up the result. It does not own flags
// (options.go), what is printed how (report.go, main.go), nor any of the parts it
// connects.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"mlx5d/model"
)

// onePort is a function that the appliance drives.
type onePort struct {
	dev      device
	vf       bool
	emulated *emulatedDevice // nil on hardware
	nic      *nic
	stats    *statReader
	health   *health
	warned   bool // that its link is down
}

// appliance is one run.
type appliance struct {
	o       options
	log     *slog.Logger
	out     io.Writer
	ports   []*onePort
	mem     *arena            // shared by all ports
	work    []*inspectWork    // in mode inspect
	file    *os.File          // of -w, until the capture has it
	socket  *net.UnixListener // of -xsk-listen
	capture *captureFile
	left    atomic.Int64  // packets until -count, where handlers choose
	quota   *quota        // the same where receive rings are counted; nil elsewhere
	full    chan struct{} // closed by the worker that reaches -count
	usr1    chan os.Signal
	undo    undo
}

// runAppliance does what o says until it is done or ctx ends, and prints the
// result on out. The error of the run comes before one of the clean-up.
func runAppliance(ctx context.Context, o options, log *slog.Logger, out io.Writer) error {
	return newAppliance(o, log, out).run(ctx)
}

func newAppliance(o options, log *slog.Logger, out io.Writer) *appliance {
	a := &appliance{o: o, log: log, out: out, full: make(chan struct{}), usr1: make(chan os.Signal, 1)}
	a.left.Store(int64(min(o.count, 1<<62)))
	if o.count > 0 && (o.mode == modeDrop || o.mode == modeForward || o.mode == modeEcho) {
		a.quota = newQuota(o.count, a.full)
	}
	return a
}

func (a *appliance) run(ctx context.Context) (err error) {
	signal.Notify(a.usr1, syscall.SIGUSR1)
	defer signal.Stop(a.usr1)
	defer func() {
		if again := a.undo.run(); err == nil {
			err = again
		}
	}()
	for _, step := range []func(context.Context) error{a.openFiles, a.openDevices, a.openNICs, a.openCapture, a.start, a.listenXSK, a.watch} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	a.wait(ctx)
	over := a.over()
	for _, p := range a.ports {
		p.nic.stop()
	}
	if err := a.report(time.Since(begun)); over == nil {
		return err
	}
	return over
}

// watch begins the watch over each NIC's health.
func (a *appliance) watch(context.Context) error {
	for _, p := range a.ports {
		p.health = watchHealth(p.nic)
		a.undo.add("health", p.health.close)
	}
	return nil
}

// over is why the run can't go on: a device is lost.
func (a *appliance) over() error {
	for _, p := range a.ports {
		if err := p.health.over(); err != nil {
			return fmt.Errorf("%s: %w", p.dev.name(), err)
		}
	}
	return nil
}

// openFiles opens what flags name, so that a name that is wrong is known before a device
// is touched.
func (a *appliance) openFiles(context.Context) (err error) {
	if a.o.read != "" {
		frames, err := readFrames(a.o.read, 0, 1)
		if err != nil {
			return err
		}
		a.o.fileFrames = len(frames)
		for _, b := range frames {
			a.o.fileLongest = max(a.o.fileLongest, len(b))
		}
		if err := a.o.fits(a.o.likelyMTU(), a.o.queues); err != nil {
			return err
		}
	}
	if a.o.write != "" && a.o.write != "-" {
		if a.file, err = createCapture(a.o.write); err != nil {
			return wishError{err.Error()}
		}
		a.undo.add("capture file", func() error { return ignoring(a.file.Close(), os.ErrClosed) })
	}
	if a.o.listen != "" {
		if a.socket, err = openXSKSocket(a.o.listen); err != nil {
			return wishError{err.Error()}
		}
		a.undo.add("-xsk-listen", func() error { return ignoring(a.socket.Close(), net.ErrClosed) })
	}
	return nil
}

// ignoring is err, unless it is what was to be expected.
func ignoring(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// openDevices opens what -pci or -emulate names, and the memory for all.
func (a *appliance) openDevices(context.Context) error {
	var err error
	if a.o.emulate {
		err = a.openEmulated()
	} else {
		err = a.openFunctions()
	}
	if err != nil {
		return err
	}
	a.mem = newArena(a.ports[0].dev)
	a.undo.add("DMA memory", a.mem.close)
	for _, p := range a.ports[1:] {
		if err := a.mem.share(p.dev); err != nil {
			return err
		}
	}
	return nil
}

func (a *appliance) openEmulated() error {
	wire, err := model.ParseWire(a.o.wire)
	if err != nil {
		return err
	}
	d, err := openEmulated(model.Config{Profile: a.o.profile, Wire: wire})
	if err != nil {
		return errors.Join(err, wire.Close())
	}
	a.undo.add("device", d.close)
	a.ports = append(a.ports, &onePort{dev: d, vf: d.virtual(), emulated: d})
	return nil
}

func (a *appliance) openFunctions() error {
	addresses := strings.Split(a.o.pci, ",")
	if a.o.bind {
		b, err := bindFunctions(realSysfs(), addresses)
		if err != nil {
			return err
		}
		a.undo.add("binding", func() error { return b.release(releaseTimeout) })
	}
	for _, address := range addresses {
		f, err := findFunction(realSysfs(), address)
		if err != nil {
			return err
		}
		d, err := openVFIO(realSysfs(), address)
		if err != nil {
			return err
		}
		a.undo.add("device", d.close)
		a.ports = append(a.ports, &onePort{dev: d, vf: f.model.vf})
	}
	return nil
}

func (a *appliance) openNICs(ctx context.Context) error {
	for i, p := range a.ports {
		if err := a.openNIC(ctx, i, p); err != nil {
			return err
		}
	}
	if a.o.mode != modeForward || len(a.ports) != 2 {
		return nil
	}
	x, y := a.ports[0].nic, a.ports[1].nic
	if a.o.datapath == datapathXSK {
		return pairXSK(x, y)
	}
	for i := range min(len(x.channels), len(y.channels)) {
		if err := x.newForward(x.channels[i], y); err != nil {
			return err
		}
		if err := y.newForward(y.channels[i], x); err != nil {
			return err
		}
	}
	return nil
}

// wishes are what the flags want of a NIC.
func (a *appliance) wishes(queues int) wishes {
	o := &a.o
	return wishes{queues: queues, rxRing: o.rxRing, txRing: o.txRing, mtu: o.mtu, largest: o.mode == modeInspect && o.listen == "",
		promisc: o.promisc, noAllMulti: !o.allMulti, groups: neighbourGroups(o.addrs), strip: o.strip, trap: o.trap,
		txInline: o.txInline, blueflame: o.blueflame, coalesce: o.coalesce, adaptive: o.adaptive, xdp: o.programs(),
		xsk: o.listen != "" || o.datapath == datapathXSK, xskSpread: o.datapath == datapathXSK && len(o.rules) == 0}
}

func (a *appliance) openNIC(ctx context.Context, i int, p *onePort) (err error) {
	o := a.o
	queues := o.queues
	if queues == 0 && len(a.ports) > 1 {
		queues = max(runtime.NumCPU()/len(a.ports), 1) // ports pair their channels: all have as many
	}
	p.nic, err = openNIC(ctx, p.dev, p.vf, openOptions{
		wishes:   a.wishes(queues),
		cpus:     runtime.NumCPU(),
		progress: func(text string) { a.log.Info(text) },
		mem:      a.mem,
		index:    i,
		flags:    func(c caps) (privFlags, error) { return choosePrivFlags(c, o.flagWishes) },
		rules:    o.rules,
		accepts:  a.o.accepts,
		hold:     a.holds(),
	})
	if err != nil {
		return err
	}
	a.undo.add("NIC", p.nic.close)
	p.stats = newStatReader(p.nic)
	if a.holds() {
		return nil
	}
	return a.announce(p)
}

// holds reports whether traffic is let in after the channels have got their work:
// sockets of our own bring the buffers of their queues.
func (a *appliance) holds() bool { return a.o.datapath == datapathXSK }

// announce says that a NIC is up.
func (a *appliance) announce(p *onePort) error {
	about, err := p.nic.describe()
	if err != nil {
		return err
	}
	a.log.Info("NIC is up", about...)
	a.tellNotices()
	for _, r := range a.o.rules {
		a.log.Info("rule", "is", r.String())
	}
	return nil
}

// channels are those of all ports, in order; a queue's number for inspection and
// capture is its place here.
func (a *appliance) channels() (all []*channel) {
	for _, p := range a.ports {
		all = append(all, p.nic.channels...)
	}
	return all
}

// lossless reports whether every wire waits for us.
func (a *appliance) lossless() bool {
	for _, p := range a.ports {
		if p.emulated == nil || !p.emulated.lossless() {
			return false
		}
	}
	return true
}

// openCapture opens -w FILE. A wire that waits for us is never dropped from.
func (a *appliance) openCapture(context.Context) error {
	if a.o.write == "" {
		return nil
	}
	c, err := openCaptureFile(captureConfig{path: a.o.write, file: a.file, queues: len(a.channels()), snaplen: a.o.snaplen, wait: a.lossless()})
	if err != nil {
		return err
	}
	a.capture = c
	a.undo.add("capture file", c.close)
	return nil
}

// start gives the channels their work.
func (a *appliance) start(context.Context) error {
	before := spareThreads(len(a.channels()))
	a.undo.add("threads", func() error { runtime.GOMAXPROCS(before); return nil })
	cpus := pinning(runtime.NumCPU(), len(a.channels()))
	if a.o.busy {
		a.checkCPUs(cpus)
	}
	queue := 0
	for _, p := range a.ports {
		if err := a.attach(p.nic); err != nil {
			return err
		}
		var handlers []handler
		for _, c := range p.nic.channels {
			c.quota = a.quota
			h, err := a.handlerFor(p, c, queue)
			if err != nil {
				return err
			}
			handlers = append(handlers, h)
			queue++
		}
		n := min(len(handlers), len(cpus))
		p.nic.start(handlers, a.o.busy, cpus[:n])
		cpus = cpus[n:]
	}
	if !a.holds() {
		return nil
	}
	for _, p := range a.ports {
		if err := p.nic.bringUp(); err != nil {
			return err
		}
		if err := a.announce(p); err != nil {
			return err
		}
	}
	return nil
}

// attach puts the program that was asked for in front of a NIC's handlers.
func (a *appliance) attach(n *nic) error {
	program, err := parseProgram(a.o.xdp)
	switch {
	case err != nil:
		return err
	case !a.o.programs():
		return nil
	case a.o.filter != nil:
		program = filterBy(a.o.filter)
	case a.o.datapath == datapathXDP && a.o.mode == modeDrop:
		program, err = parseProgram("drop")
	case a.o.datapath == datapathXDP && a.o.mode == modeForward && len(a.ports) == 2:
		program = toPeer
	case a.o.datapath == datapathXDP && a.o.mode == modeForward:
		program, err = parseProgram("tx")
	case a.o.datapath == datapathXDP:
		err = n.readyForXDP() // what it sends goes through the same queue
	}
	if err != nil {
		return err
	}
	return n.attach(program)
}

// listenXSK opens the socket of -xsk-listen.
func (a *appliance) listenXSK(context.Context) error {
	if a.o.listen == "" {
		return nil
	}
	s := serveXSK(a.socket, a.nics(), a.log)
	a.undo.add("-xsk-listen", s.close)
	return nil
}

// checkCPUs warns of what takes time from loops that poll without a pause: a stop
// of 100 us is 15 000 small packets at 100 Gbit/s, more than a ring holds.
func (a *appliance) checkCPUs(cpus []int) {
	if len(cpus) == 0 {
		a.log.Warn("polling loops take every CPU: none is pinned, and they share with all else (-queues N for fewer)")
		return
	}
	if irqs := interruptsOn("/proc", cpus); len(irqs) > 0 {
		a.log.Warn("interrupts are served by CPUs that poll, which costs packets: write other CPUs to /proc/irq/N/smp_affinity_list",
			"irqs", strings.Join(irqs, ","), "cpus", fmt.Sprint(cpus))
	}
}

// handlerFor makes the handler of one channel, queue number queue of all.
func (a *appliance) handlerFor(p *onePort, c *channel, queue int) (handler, error) {
	if a.o.datapath == datapathXSK && c.xsk != nil {
		return a.socketHandler(p, c, queue)
	}
	switch a.o.mode {
	case modeDrop:
		return dropWork{}, nil
	case modeForward:
		if a.o.datapath == datapathXDP {
			return dropWork{}, nil // its program lets nothing through
		}
		return newForwardWork(), nil
	case modeEcho:
		return newEchoWork(&responder{mac: [6]byte(p.nic.mac), addrs: a.o.addrs}), nil
	case modeSend:
		return a.sendHandler(p, c, queue)
	}
	w := &inspectWork{a: a, queue: queue, scratch: make([]byte, p.nic.params.rxLayout.room()),
		inspector: newInspector(inspectConfig{flows: a.o.flows}), times: stamper{clock: p.nic.clock}}
	if a.capture != nil {
		w.capture = a.capture.queue(queue)
	}
	a.work = append(a.work, w)
	return w, nil
}

// socketHandler is handlerFor with -datapath xsk.
func (a *appliance) socketHandler(p *onePort, c *channel, queue int) (handler, error) {
	cfg := xskWorkConfig{mode: a.o.mode, umem: a.o.umemConfig(), size: a.o.size, mac: [6]byte(p.nic.mac), left: a.allowed}
	if a.o.read != "" {
		frames, err := readFrames(a.o.read, queue, len(a.channels()))
		if err != nil {
			return nil, err
		}
		cfg.file = newXSKFile(frames, cfg.umem)
	}
	return newXSKWork(c, cfg, &a.undo)
}

// sendHandler is handlerFor in mode txonly.
func (a *appliance) sendHandler(p *onePort, c *channel, queue int) (handler, error) {
	xdp := a.o.datapath == datapathXDP
	if a.o.read != "" {
		return newFileWork(c, fileWish{path: a.o.read, offloads: a.o.offloads, queue: queue, queues: len(a.channels()), xdp: xdp}, a.allowed)
	}
	w, ok := newSendWork(c, [6]byte(p.nic.mac), a.o.size, a.allowed)
	if !ok {
		return nil, errors.New("no page for the frame to send")
	}
	if xdp {
		return newXDPSendWork(c, w), nil
	}
	return w, nil
}

// pinning chooses CPUs for n loops: one each while there are enough, else none
// is pinned, since two loops on one CPU would starve each other.
func pinning(cpus, n int) (out []int) {
	if n >= cpus {
		return nil
	}
	for i := range n {
		out = append(out, cpus-n+i)
	}
	return out
}

// The end of an emulated wire is looked for every wireCheck at first, then after each
// further wireShare-th part of the run, at the latest after slowCheck.
const (
	wireCheck = 2 * time.Millisecond
	wireShare = 50
	slowCheck = 200 * time.Millisecond
)

// wait returns when the run is over: signal, -duration, -count, an emulated wire that
// has delivered all it had, or a device that is lost. SIGUSR1 prints the counters meanwhile.
func (a *appliance) wait(ctx context.Context) {
	var timer <-chan time.Time
	if a.o.duration > 0 {
		timer = time.After(a.o.duration)
	}
	tick := time.NewTimer(wireCheck)
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	rate := newRateMeter()
	due := time.NewTimer(math.MaxInt64)
	defer due.Stop()
	for _, t := range a.o.toggles {
		t.next = rate.begun.Add(t.period)
	}
	a.setAlarm(due)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer:
			return
		case <-a.full:
			return
		case <-a.usr1:
			if err := a.printStats(); err != nil {
				a.log.Warn(err.Error())
			}
		case <-due.C:
			switchDue(a.o.toggles, a.nics(), time.Now())
			a.setAlarm(due)
		case now := <-second.C:
			if a.o.mode != modeInspect {
				a.log.Info("rate", rate.update(now, a.traffic())...)
			}
			a.warnLink()
		case now := <-tick.C:
			a.tellNotices()
			if a.wireDone() || a.over() != nil {
				return
			}
			for _, p := range a.ports {
				p.health.replace(now)
			}
			tick.Reset(a.checkAfter(now.Sub(rate.begun)))
		}
	}
}

// checkAfter is how long to wait for the next look at wires and notices, so long after
// the start: a run that takes long may end a little later, and one on hardware does not
// end by its wire.
func (a *appliance) checkAfter(since time.Duration) time.Duration {
	if !slices.ContainsFunc(a.ports, func(p *onePort) bool { return p.emulated != nil }) {
		return slowCheck
	}
	return min(max(since/wireShare, wireCheck), slowCheck)
}

// setAlarm sets t to when the next flag is to be switched.
func (a *appliance) setAlarm(t *time.Timer) {
	if d, ok := untilNext(a.o.toggles, time.Now()); ok {
		t.Reset(d)
	}
}

// nics are those of all ports.
func (a *appliance) nics() (all []*nic) {
	for _, p := range a.ports {
		all = append(all, p.nic)
	}
	return all
}

// warnLink says once that what is sent goes nowhere.
func (a *appliance) warnLink() {
	if a.traffic().txPackets == 0 {
		return
	}
	for _, p := range a.ports {
		if p.warned || p.nic.control.linkUp.Load() {
			continue
		}
		p.warned = true
		a.log.Warn("the link is down: nothing that is sent leaves the port (is anything plugged in?)", "device", p.dev.name())
	}
}

// tellNotices logs what the NICs want an operator to know.
func (a *appliance) tellNotices() {
	for _, p := range a.ports {
		if p.nic == nil {
			continue
		}
		for {
			select {
			case text := <-p.nic.notices:
				a.log.Warn(text, "device", p.dev.name())
				continue
			default:
			}
			break
		}
	}
}

// wireDone reports whether every wire is emulated and has given all it had.
func (a *appliance) wireDone() bool {
	for _, p := range a.ports {
		if p.emulated == nil || !p.emulated.m.WireDone() {
			return false
		}
	}
	return true
}

// wireDrops adds what an emulated wire itself could not carry.
func (a *appliance) wireDrops(lost map[string]uint64) {
	for _, p := range a.ports {
		if p.emulated == nil {
			continue
		}
		if w, ok := p.emulated.wire.(interface{ Dropped() uint64 }); ok {
			lost["wire_dropped"] += w.Dropped()
		}
		if w, ok := p.emulated.wire.(interface{ Skipped() uint64 }); ok && w.Skipped() > 0 {
			a.log.Warn("records that are not Ethernet were skipped", "records", w.Skipped())
		}
	}
}

// traffic is what went through all channels so far.
func (a *appliance) traffic() (t trafficCount) {
	for _, c := range a.channels() {
		packets, bytes := c.load() // also what a program or a socket took
		t.rxPackets, t.rxBytes = t.rxPackets+packets, t.rxBytes+bytes
		for _, q := range c.sendQueues() {
			t.txPackets += q.stats.packets.get()
			t.txBytes += q.stats.bytes.get()
			t.txDropped += q.stats.dropped.get()
		}
		t.txDropped += c.xdpStats.full.get()
		if q := c.xsk; q != nil {
			t.txPackets, t.txBytes = t.txPackets+q.tx.stats.packets.get(), t.txBytes+q.tx.stats.bytes.get()
			t.txDropped += q.tx.stats.dropped.get() + q.stats.unsent.get()
		}
	}
	return t
}

// printStats prints all counters.
func (a *appliance) printStats() (first error) {
	for _, p := range a.ports {
		if err := p.stats.update(); err != nil {
			a.log.Warn(err.Error())
		}
		if err := printCounters(a.out, a.o.asJSON, p.nic, p.stats.read()); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// report prints the result, whatever else fails, and returns the first failure.
// The channels have stopped.
func (a *appliance) report(ran time.Duration) (first error) {
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	a.tellNotices()
	a.warnLink()
	for _, t := range a.o.toggles {
		a.log.Info("toggled", "flag", t.flag.name, "switches", t.done, "failed", t.failed)
		if t.why != nil {
			a.log.Warn("switching a flag failed: " + t.why.Error())
		}
	}
	lost := map[string]uint64{}
	for _, p := range a.ports {
		keep(p.stats.update())
		for name, n := range drops(p.stats.read()) {
			lost[name] += n
		}
	}
	if a.capture != nil {
		keep(a.capture.close())
		lost["writer_dropped"] = a.capture.dropped()
	}
	a.wireDrops(lost)
	keep(a.printSummary(lost, ran))
	if a.o.stats {
		keep(a.printStats())
	}
	for _, p := range a.ports {
		if p.emulated != nil {
			keep(p.emulated.wireError())
		}
	}
	return first
}

// printSummary prints what inspection saw, or what another mode counted.
func (a *appliance) printSummary(lost map[string]uint64, ran time.Duration) error {
	if a.o.mode != modeInspect {
		return printTraffic(a.out, a.o.asJSON, a.o.mode, a.traffic(), lost, ran)
	}
	var parts []*summary
	for _, w := range a.work {
		parts = append(parts, w.inspector.summary())
	}
	s := mergeSummaries(parts...)
	s.finish(lost, ran)
	return printEither(a.out, a.o.asJSON, s, func() string { return s.text() + verdictText(lost) })
}

// inspectWork is the handler of one channel. Its channel's goroutine owns it.
type inspectWork struct {
	a         *appliance
	queue     int
	inspector *inspector
	capture   *captureQueue
	scratch   []byte // for frames in several fragments
	times     stamper
}

// handle inspects a batch.
func (w *inspectWork) handle(c *channel, packets []packet) {
	packets = packets[:w.a.allowed(len(packets))]
	w.times.begin(time.Now().UnixNano())
	for i := range packets {
		p := &packets[i]
		meta := packetMeta{ts: w.times.at(p.timestamp), hash: p.rssHash(), queue: w.queue, vlan: p.vlan(), stripped: p.stripped()}
		b := c.rx.contiguous(p, w.scratch)
		w.inspector.packet(b, len(b), meta)
		if w.capture != nil {
			w.capture.put(b, len(b), meta)
		}
	}
}

// allowed is how many of n packets -count still lets through.
func (a *appliance) allowed(n int) int {
	if a.o.count == 0 || n == 0 {
		return n
	}
	after := a.left.Add(int64(-n))
	if after > 0 {
		return n
	}
	if after+int64(n) > 0 {
		close(a.full) // this batch holds the last one
	}
	return int(max(after+int64(n), 0))
}

func (w *inspectWork) turn(*channel) int { return 0 }
func (w *inspectWork) idle(*channel)     {}
func (w *inspectWork) end()              {}
