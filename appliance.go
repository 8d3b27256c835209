package main

// appliance.go owns one run: it opens a device and a NIC, gives every channel
// its work, waits for the end and adds up the result. It does not own flags and
// printing to the terminal (main.go) nor any of the parts it connects.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
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
}

// appliance is one run.
type appliance struct {
	o       options
	log     *slog.Logger
	out     io.Writer
	ports   []*onePort
	mem     *arena         // shared by all ports
	work    []*inspectWork // in mode inspect
	capture *captureFile
	left    atomic.Int64  // packets until -count, when set
	full    chan struct{} // closed by the worker that reaches -count
	undo    undo
}

// runAppliance does what o says until it is done or ctx ends, and prints the
// result on out. The error of the run comes before one of the clean-up.
func runAppliance(ctx context.Context, o options, log *slog.Logger, out io.Writer) (err error) {
	a := &appliance{o: o, log: log, out: out, full: make(chan struct{})}
	a.left.Store(int64(min(o.count, 1<<62)))
	defer func() {
		if again := a.undo.run(); err == nil {
			err = again
		}
	}()
	for _, step := range []func(context.Context) error{a.openDevices, a.openNICs, a.openCapture, a.start, a.listenXSK} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	a.wait(ctx)
	for _, p := range a.ports {
		p.nic.stop()
	}
	return a.report(time.Since(begun))
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

func (a *appliance) openNIC(ctx context.Context, i int, p *onePort) (err error) {
	o := a.o
	queues := o.queues
	if queues == 0 && len(a.ports) > 1 {
		queues = max(runtime.NumCPU()/len(a.ports), 1) // ports pair their channels: all have as many
	}
	p.nic, err = openNIC(ctx, p.dev, p.vf, openOptions{
		wishes: wishes{queues: queues, rxRing: o.rxRing, txRing: o.txRing, mtu: o.mtu, promisc: o.promisc, noAllMulti: !o.allMulti, groups: neighbourGroups(o.addrs), largest: o.mode == modeInspect && o.listen == "", txInline: o.txInline, xdp: o.programs(),
			xsk: o.listen != "" || o.datapath == datapathXSK, xskSpread: o.datapath == datapathXSK && len(o.rules) == 0,
			strip: o.strip, trap: o.trap, coalesce: o.coalesce, adaptive: o.adaptive},
		cpus:     runtime.NumCPU(),
		progress: func(text string) { a.log.Info(text) },
		mem:      a.mem,
		index:    i,
		flags:    func(c caps) (privFlags, error) { return choosePrivFlags(c, o.flagWishes) },
		rules:    o.rules,
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
	c, err := openCaptureFile(captureConfig{path: a.o.write, queues: len(a.channels()), snaplen: a.o.snaplen, wait: a.lossless()})
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
	var nics []*nic
	for _, p := range a.ports {
		nics = append(nics, p.nic)
	}
	s, err := listenXSK(a.o.listen, nics, a.log)
	if err != nil {
		return err
	}
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
		return newXSKWork(c, xskWorkConfig{mode: a.o.mode, umem: a.o.umemConfig(), size: a.o.size, mac: [6]byte(p.nic.mac), left: a.allowed}, &a.undo)
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
		if a.o.read != "" {
			return newFileWork(c, fileWish{path: a.o.read, offloads: a.o.offloads, queue: queue, queues: len(a.channels())}, a.allowed)
		}
		if most := min(p.nic.params.frame, pageSize); a.o.size <= etherHeader || a.o.size > most {
			return nil, wishf("-size %d: %d to %d can be sent", a.o.size, etherHeader+1, most)
		}
		w, ok := newSendWork(c, [6]byte(p.nic.mac), a.o.size, a.allowed)
		if !ok {
			return nil, errors.New("no page for the frame to send")
		}
		if a.o.datapath == datapathXDP {
			return newXDPSendWork(c, w), nil
		}
		return w, nil
	}
	w := &inspectWork{a: a, queue: queue, scratch: make([]byte, p.nic.params.rxLayout.room()),
		inspector: newInspector(inspectConfig{flows: a.o.flows}), times: stamper{clock: p.nic.clock}}
	if a.capture != nil {
		w.capture = a.capture.queue(queue)
	}
	a.work = append(a.work, w)
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

// wireCheck is how often the end of an emulated wire is looked for.
const wireCheck = 2 * time.Millisecond

// wait returns when the run is over: signal, -duration, -count, or an emulated
// wire that has delivered all it had. SIGUSR1 prints the counters meanwhile.
func (a *appliance) wait(ctx context.Context) {
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	defer signal.Stop(usr1)
	var timer <-chan time.Time
	if a.o.duration > 0 {
		timer = time.After(a.o.duration)
	}
	tick := time.NewTicker(wireCheck)
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	rate := rateMeter{at: time.Now()}
	var toggle <-chan time.Time
	if a.o.togglePeriod > 0 {
		t := time.NewTicker(a.o.togglePeriod)
		defer t.Stop()
		toggle = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer:
			return
		case <-a.full:
			return
		case <-usr1:
			a.printStats()
		case <-toggle:
			a.toggleFlag()
		case now := <-second.C:
			if a.o.mode != modeInspect {
				a.log.Info("rate", rate.update(now, a.traffic())...)
			}
		case <-tick.C:
			a.tellNotices()
			if a.wireDone() {
				return
			}
		}
	}
}

// toggleFlag switches the flag of -toggle on every port.
func (a *appliance) toggleFlag() {
	f, err := findPrivFlag(a.o.toggleName)
	for _, p := range a.ports {
		if err == nil {
			err = p.nic.setPrivFlag(f.name, !*f.field(&p.nic.params.flags))
		}
	}
	if err != nil {
		a.log.Warn(err.Error())
	}
}

// tellNotices logs what the NICs want an operator to know.
func (a *appliance) tellNotices() {
	for _, p := range a.ports {
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

// trafficCount is what went through all channels so far.
type trafficCount struct{ rxPackets, rxBytes, txPackets, txBytes, txDropped uint64 }

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
			t.txDropped += q.tx.stats.dropped.get()
		}
	}
	return t
}

// rateMeter turns counts into rates since the last look.
type rateMeter struct {
	at   time.Time
	last trafficCount
}

func (r *rateMeter) update(now time.Time, t trafficCount) []any {
	sec := now.Sub(r.at).Seconds()
	per := func(now, then uint64) uint64 { return uint64(float64(now-then) / max(sec, 1e-9)) }
	out := []any{"rx_pps", per(t.rxPackets, r.last.rxPackets), "tx_pps", per(t.txPackets, r.last.txPackets),
		"rx_packets", t.rxPackets, "tx_packets", t.txPackets}
	r.at, r.last = now, t
	return out
}

// printStats prints all counters in the form of ethtool -S.
func (a *appliance) printStats() {
	for _, p := range a.ports {
		if err := p.stats.update(); err != nil {
			a.log.Warn(err.Error())
		}
		fmt.Fprint(a.out, formatStats(p.dev.name(), p.stats.read()), p.nic.formatPrivFlags(), p.nic.formatCoalesce(), p.nic.formatRules())
	}
}

// report prints the result, whatever else fails, and returns the first failure.
// The channels have stopped.
func (a *appliance) report(ran time.Duration) (first error) {
	keep := func(err error) {
		if first == nil {
			first = err
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
		a.printStats()
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
		return a.printCounts(lost, ran)
	}
	var parts []*summary
	for _, w := range a.work {
		parts = append(parts, w.inspector.summary())
	}
	s := mergeSummaries(parts...)
	s.finish(lost, ran)
	return a.print(s, func() string { return s.text() + verdictText(lost) })
}

// countSummary is the result of a mode that does not inspect.
type countSummary struct {
	Mode      string            `json:"mode"`
	RxPackets uint64            `json:"rx_packets"`
	RxBytes   uint64            `json:"rx_bytes"`
	TxPackets uint64            `json:"tx_packets"`
	TxBytes   uint64            `json:"tx_bytes"`
	TxDropped uint64            `json:"tx_dropped"`
	Drops     map[string]uint64 `json:"drops"`
	DurationS float64           `json:"duration_s"`
	RxPPS     float64           `json:"rx_pps"`
	TxPPS     float64           `json:"tx_pps"`
}

func (a *appliance) printCounts(lost map[string]uint64, ran time.Duration) error {
	return a.printTraffic(a.traffic(), lost, ran)
}

// printTraffic prints counts.
func (a *appliance) printTraffic(t trafficCount, lost map[string]uint64, ran time.Duration) error {
	s := countSummary{Mode: a.o.mode, RxPackets: t.rxPackets, RxBytes: t.rxBytes, TxPackets: t.txPackets, TxBytes: t.txBytes,
		TxDropped: t.txDropped, Drops: lost, DurationS: round(ran.Seconds())}
	if sec := ran.Seconds(); sec > 0 {
		s.RxPPS, s.TxPPS = round(float64(t.rxPackets)/sec), round(float64(t.txPackets)/sec)
	}
	return a.print(s, func() string {
		text := fmt.Sprintf("%s: received %d packets, %d bytes (%g packets/s), sent %d packets, %d bytes (%g packets/s) in %g s\n",
			s.Mode, s.RxPackets, s.RxBytes, s.RxPPS, s.TxPackets, s.TxBytes, s.TxPPS, s.DurationS)
		for _, l := range sortedCounts(s.Drops, len(s.Drops)) {
			if l.Count > 0 {
				text += fmt.Sprintf("  %s: %d\n", l.Name, l.Count)
			}
		}
		return text + verdictText(lost)
	})
}

// verdictText says who lost packets, a line each.
func verdictText(lost map[string]uint64) (text string) {
	for _, line := range lossVerdict(lost) {
		text += line + "\n"
	}
	return text
}

// print writes a result as JSON or, where nobody reads standard output, as text
// beside the frames.
func (a *appliance) print(v any, text func() string) error {
	if a.o.asJSON {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s\n", b)
		return err
	}
	out := a.out
	if a.o.write == "-" {
		out = os.Stderr
	}
	_, err := io.WriteString(out, text())
	return err
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
	var sums [csumVerdicts]uint64
	noComplete := c.have&wantNoComplete != 0
	w.times.begin(time.Now().UnixNano())
	for i := range packets {
		p := &packets[i]
		meta := packetMeta{ts: w.times.at(p.timestamp), hash: p.rssHash(), queue: w.queue, vlan: p.vlan(), stripped: p.stripped()}
		sums[p.verdict(noComplete)]++
		b := c.rx.contiguous(p, w.scratch)
		w.inspector.packet(b, len(b), meta)
		if w.capture != nil {
			w.capture.put(b, len(b), meta)
		}
	}
	c.csum.count(&sums)
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

// turn answers whoever asks for a summary of the running inspection.
func (w *inspectWork) turn(*channel) int {
	w.inspector.serve()
	return 0
}

func (w *inspectWork) idle(*channel) {}
