package main

// appliance.go owns one run: it opens a device and a NIC, gives every channel
// its work, waits for the end and adds up the result. It does not own flags and
// printing to the terminal (main.go) nor any of the parts it connects.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"mlx5d/model"
)

// mode is one thing the appliance can do with packets.
type mode struct {
	name    string
	inspect bool // looks into packets and prints a summary of them
}

var modes = []mode{
	{"inspect", true},
	{"rxdrop", false},
}

func modeNames() (names []string) {
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

// appliance is one run.
type appliance struct {
	o        options
	log      *slog.Logger
	out      io.Writer
	dev      device
	emulated *emulatedDevice // nil on hardware
	vf       bool
	nic      *nic
	stats    *statReader
	work     []*inspectWork
	capture  *captureFile
	left     atomic.Int64  // packets until -count, when set
	full     chan struct{} // closed by the worker that reaches -count
	undo     undo
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
	for _, step := range []func(context.Context) error{a.openDevice, a.openNIC, a.openCapture, a.start} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	a.wait(ctx)
	a.nic.stop()
	return a.report(time.Since(begun))
}

// openDevice opens what -pci or -emulate names.
func (a *appliance) openDevice(context.Context) (err error) {
	if a.o.emulate {
		wire, err := model.ParseWire(a.o.wire)
		if err != nil {
			return err
		}
		if a.emulated, err = openEmulated(model.Config{Profile: a.o.profile, Wire: wire}); err != nil {
			return errors.Join(err, wire.Close())
		}
		a.dev = a.emulated
		a.vf = a.emulated.virtual()
	} else {
		if a.o.bind {
			b, err := bindFunctions(realSysfs(), []string{a.o.pci})
			if err != nil {
				return err
			}
			a.undo.add("binding", func() error { return b.release(releaseTimeout) })
		}
		f, err := findFunction(realSysfs(), a.o.pci)
		if err != nil {
			return err
		}
		if a.dev, err = openVFIO(realSysfs(), a.o.pci); err != nil {
			return err
		}
		a.vf = f.model.vf
	}
	a.undo.add("device", a.dev.close)
	return nil
}

func (a *appliance) openNIC(ctx context.Context) (err error) {
	o := a.o
	a.nic, err = openNIC(ctx, a.dev, a.vf, openOptions{
		wishes:   wishes{queues: o.queues, rxRing: o.rxRing, txRing: o.txRing, mtu: o.mtu, promisc: o.promisc, largest: o.mode == "inspect"},
		cpus:     runtime.NumCPU(),
		progress: func(text string) { a.log.Info(text) },
	})
	if err != nil {
		return err
	}
	a.undo.add("NIC", a.nic.close)
	a.stats = newStatReader(a.nic)
	about, err := a.nic.describe()
	if err != nil {
		return err
	}
	a.log.Info("NIC is up", about...)
	return nil
}

// openCapture opens -w FILE. A wire that waits for us is never dropped from.
func (a *appliance) openCapture(context.Context) error {
	if a.o.write == "" {
		return nil
	}
	c, err := openCaptureFile(captureConfig{path: a.o.write, queues: a.nic.params.queues, snaplen: a.o.snaplen, wait: a.emulated != nil && a.emulated.lossless()})
	if err != nil {
		return err
	}
	a.capture = c
	a.undo.add("capture file", c.close)
	return nil
}

// start gives the channels their work.
func (a *appliance) start(context.Context) error {
	handlers := make([]handler, len(a.nic.channels))
	for i := range handlers {
		w := &inspectWork{a: a, queue: i, scratch: make([]byte, a.nic.params.rxLayout.room())}
		w.hardTime = a.nic.caps.rqTime == timestampReal
		if a.o.mode == "inspect" {
			w.inspector = newInspector(inspectConfig{flows: a.o.flows})
		}
		if a.capture != nil {
			w.capture = a.capture.queue(i)
		}
		a.work = append(a.work, w)
		handlers[i] = w
	}
	a.nic.start(handlers, a.o.busy, pinning(runtime.NumCPU(), len(handlers)))
	return nil
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
		case <-tick.C:
			if a.emulated != nil && a.emulated.m.WireDone() {
				return
			}
		}
	}
}

// printStats prints all counters in the form of ethtool -S.
func (a *appliance) printStats() {
	if err := a.stats.update(); err != nil {
		a.log.Warn(err.Error())
	}
	fmt.Fprint(a.out, formatStats(a.dev.name(), a.stats.read()))
}

// report prints the result. The channels have stopped.
func (a *appliance) report(ran time.Duration) error {
	if err := a.stats.update(); err != nil {
		return err
	}
	lost := drops(a.stats.read())
	if a.capture != nil {
		if err := a.capture.close(); err != nil {
			return err
		}
		lost["writer_dropped"] = a.capture.dropped()
	}
	if err := a.printSummary(lost, ran); err != nil {
		return err
	}
	if a.o.stats {
		a.printStats()
	}
	if a.emulated != nil {
		return a.emulated.wireError()
	}
	return nil
}

// printSummary prints what inspection saw, or what a mode without it counted.
func (a *appliance) printSummary(lost map[string]uint64, ran time.Duration) error {
	var parts []*summary
	for _, w := range a.work {
		parts = append(parts, w.summary())
	}
	s := mergeSummaries(parts...)
	s.finish(lost, ran)
	if !a.o.asJSON {
		out := a.out
		if a.o.write == "-" {
			out = os.Stderr
		}
		_, err := io.WriteString(out, s.text())
		return err
	}
	b, err := s.json()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", b)
	return err
}

// inspectWork is the handler of one channel. Its channel's goroutine owns it.
type inspectWork struct {
	a         *appliance
	queue     int
	inspector *inspector // nil when packets are only counted
	capture   *captureQueue
	scratch   []byte // for frames in several fragments
	hardTime  bool   // CQEs carry wall-clock time
	packets   uint64
	bytes     uint64
}

// handle inspects a batch.
func (w *inspectWork) handle(c *channel, packets []packet) {
	packets = packets[:w.allowed(len(packets))]
	now := time.Now().UnixNano()
	for i := range packets {
		p := &packets[i]
		meta := packetMeta{ts: now, hash: p.hash, queue: w.queue, vlan: p.vlan, stripped: p.stripped()}
		if w.hardTime {
			meta.ts = realTime(p.timestamp)
		}
		b := c.rx.contiguous(p, w.scratch)
		if w.inspector != nil {
			w.inspector.packet(b, len(b), meta)
		} else {
			w.packets++
			w.bytes += uint64(len(b))
		}
		if w.capture != nil {
			w.capture.put(b, len(b), meta)
		}
	}
}

// allowed is how many of n packets -count still lets through.
func (w *inspectWork) allowed(n int) int {
	if w.a.o.count == 0 {
		return n
	}
	after := w.a.left.Add(int64(-n))
	if after > 0 {
		return n
	}
	if after+int64(n) > 0 {
		close(w.a.full) // this batch holds the last one
	}
	return int(max(after+int64(n), 0))
}

// idle flushes what waits for company.
func (w *inspectWork) idle(*channel) {}

// summary is what this channel saw. Its goroutine has ended.
func (w *inspectWork) summary() *summary {
	if w.inspector != nil {
		return w.inspector.summary()
	}
	s := emptySummary()
	s.Packets, s.Bytes, s.WireBytes = w.packets, w.bytes, w.bytes
	return s
}

// realTime converts a CQE's time stamp in real-time format (seconds in the upper
// half, nanoseconds in the lower) to nanoseconds since 1970.
func realTime(v uint64) int64 { return int64(v>>32)*1e9 + int64(uint32(v)) }
