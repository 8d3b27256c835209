package main

// benchxsk.go owns the benchmarks of zero-copy sockets: driver and ring time of
// xdpsock's three modes, what a socket in another process costs beside one in
// ours, and Linux's own AF_XDP beside it where the machine lets us. How figures
// are made is benchkit.go's, how they are printed bench.go's.
//
// What is timed is the channel's own turn with the application's side of the rings
// in the same thread, as xdpsock has it: completions, RX ring, fill ring, refill;
// TX ring, WQEs, completion ring. The device works between sections.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// xskBench is a socket on the rig's channel.
type xskBench struct {
	*benchRig
	c    *channel
	work *xskWork
	send bool
}

// xskBenchFrames is how many frames a benchmark's UMEM has: the receive ring, what
// it sends, and what the application has in its hands.
const xskBenchFrames = 2048

var xskVariants = []struct{ name, wire, mode string }{
	{"xsk.txonly", "none", modeSend},
	{"xsk.rxdrop", "gen:size=64,count=0", modeDrop},
	{"xsk.l2fwd", "gen:size=64,count=0", modeForward},
}

// newXSKBench prepares one of xskVariants.
func newXSKBench(name string) (*xskBench, error) {
	for _, v := range xskVariants {
		if v.name != name {
			continue
		}
		r, err := newBenchRigFor("cx5", v.wire, wishes{queues: 1, promisc: true, xskSpread: true})
		if err != nil {
			return nil, err
		}
		b := &xskBench{benchRig: r, c: r.nic.channels[0], send: v.mode == modeSend}
		cfg := xskWorkConfig{mode: v.mode, umem: umemConfig{frame: minUMEMFrame, frames: xskBenchFrames}, size: benchFrame, left: func(n int) int { return min(n, benchBurst) }}
		if b.work, err = newXSKWork(b.c, cfg, &r.u); err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.u.add("device's goroutine", func() error { r.dev.resume(); return nil }) // detaching asks firmware
		b.c.setHandler(b.work)
		b.c.xsk.tx.sessions(true)
		if err := b.letIn(); err != nil {
			return nil, errors.Join(err, r.close())
		}
		return b, nil
	}
	return nil, fmt.Errorf("no benchmark %s", name)
}

// section is what is timed.
//
//go:noinline
func (b *xskBench) section() {
	for range benchBursts {
		b.c.poll(benchBurst)
	}
}

// measure returns nanoseconds a packet in the median of so many sections.
func (b *xskBench) measure(sections int) (float64, error) {
	for range 16 { // every frame was used once, and the rings are full
		b.settle()
		b.section()
	}
	b.settle()
	b.c.publish()
	before := b.packets()
	ns, err := medianSection(sections, b.refill, b.section)
	if err != nil {
		return 0, err
	}
	b.c.publish()
	if got, want := b.packets()-before, uint64(sections*benchBurst*benchBursts); got != want {
		return 0, fmt.Errorf("%d packets were to be handled, %d counted", want, got)
	}
	s := &b.c.xsk.stats
	if lost := s.wqeErr.get() + s.oversize.get() + s.ringFull.get() + s.badDescs.get() + s.badFill.get() + b.c.xsk.tx.stats.cqeErr.get(); lost != 0 || b.dev.m.Stats().DMAFaults != 0 {
		return 0, fmt.Errorf("%d packets lost to errors", lost)
	}
	return ns, nil
}

// packets is how many were handled so far.
func (b *xskBench) packets() uint64 {
	if b.send {
		return b.c.xsk.tx.stats.packets.get()
	}
	return b.c.xsk.stats.redirect.get()
}

// benchXSK measures sockets.
func benchXSK() (out []figure, err error) {
	var names []string
	for _, v := range xskVariants {
		names = append(names, v.name)
	}
	benches, out, err := measureAll(names, newXSKBench, "xsk.allocs")
	defer closeAll(benches)
	if err != nil {
		return nil, err
	}
	attached, err := attachedFigures()
	if err != nil {
		return nil, fmt.Errorf("xsk.attached: %w", err)
	}
	counted, err := instructionFigures(names...)
	return append(append(out, attached...), counted...), err
}

// attachedBench is a NIC that listens, and a client which drops what comes: in a
// goroutine of this process or in a process of its own, all else the same.
type attachedBench struct {
	*benchRig
	c *channel
}

// newAttachedBench starts the client and waits until it has the queue and has
// filled the rings.
func newAttachedBench(apart bool, place *quietPlace) (b *attachedBench, err error) {
	r, err := newBenchRigFor("cx5", "gen:size=64,count=0", wishes{queues: 1, promisc: true, xskSpread: true})
	if err != nil {
		return nil, err
	}
	b = &attachedBench{r, r.nic.channels[0]}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	b.c.setHandler(dropWork{})
	dir, err := os.MkdirTemp("", "mlx5d-bench")
	if err != nil {
		return nil, err
	}
	r.u.add("folder", func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "xsk")
	server, err := listenXSK(path, []*nic{r.nic}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	r.u.add("listener", server.close)
	r.u.add("device's goroutine", func() error { r.dev.resume(); return nil })
	r.dev.resume() // attaching may ask firmware
	if err := b.startClient(apart, path, place); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); server.lives.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, errors.New("the client does not attach")
		}
	}
	r.dev.pause()
	for end := time.Now().Add(10 * time.Second); b.c.xsk.recv.posted-b.c.xsk.recv.head <= b.c.xsk.recv.mask && time.Now().Before(end); {
		b.c.poll(benchBurst)
	}
	return b, b.letIn()
}

// startClient starts the client, and its undo. It spins and has CPUs of its own.
func (b *attachedBench) startClient(apart bool, path string, place *quietPlace) error {
	if apart {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.Command(self, "-attach", path, "-mode", modeDrop, "-busy-poll")
		if err := place.elsewhere(cmd.Start); err != nil {
			return err
		}
		b.u.add("client", func() error { _ = cmd.Process.Kill(); _ = cmd.Wait(); return nil })
		return nil
	}
	var stop atomic.Bool
	var client sync.WaitGroup
	b.u.add("client", func() error { stop.Store(true); client.Wait(); return nil })
	client.Go(func() {
		runtime.LockOSThread()
		_ = unix.SchedSetaffinity(0, &place.others)
		entries := 1 << logCeil(xskBenchFrames)
		c, err := dialXSK(path, xskRequest{umem: umemConfig{frame: minUMEMFrame, frames: xskBenchFrames},
			entries: [xskRings]int{entries, entries, entries, entries}, flags: xskNeedWakeup})
		if err != nil {
			return // nobody attaches, which the caller sees
		}
		c.work(modeDrop, 0, true, func(n int) int { return n }, stop.Load)
		_ = c.close()
	})
	return nil
}

// measure returns nanoseconds a packet in the median section: until the client has
// taken all of it.
func (b *attachedBench) measure(sections int) (float64, error) {
	spent := make([]time.Duration, sections)
	s := b.c.xsk.sock
	for i := range spent {
		b.settle()
		from, start := s.rx.at, time.Now()
		for s.rx.at-from < benchBurst*benchBursts {
			if b.c.poll(benchBurst) == 0 && time.Since(start) > time.Second {
				return 0, errors.New("packets do not come")
			}
		}
		for atomic.LoadUint32(s.rx.consumer) != s.rx.at {
			if time.Since(start) > time.Second {
				return 0, errors.New("the client does not take packets")
			}
		}
		spent[i] = time.Since(start) * benchBurst * benchBursts / time.Duration(s.rx.at-from)
	}
	slices.Sort(spent)
	return float64(spent[sections/2].Nanoseconds()) / (benchBurst * benchBursts), nil
}

// attachedFigures compares the rate of a client in a process of its own with that
// of one in this process, in turn.
func attachedFigures() ([]figure, error) {
	place := newQuietPlace()
	defer place.leave()
	all := make([][]repetition, 2)
	for run, start := 0, time.Now(); run < benchRuns || !place.enough(all) && time.Since(start) < quietWait; run++ {
		place.move()
		for i := range all {
			r, err := place.repeat(func() (float64, error) { return attachedRun(i == 0, place) })
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], r)
		}
	}
	there := place.choose(all[0]).figure("xsk.attached.rxdrop.ns", "ns/packet")
	here := place.choose(all[1]).figure("xsk.inprocess.rxdrop.ns", "ns/packet")
	ratio := summarize("xsk.attached.rxdrop", "of the rate", []float64{here.Value / there.Value})
	ratio.Against = here.Name
	ratio.Ratio = ratio.Value
	return []figure{ratio, there, here}, nil
}

// attachedRun is one measurement with a client of its own.
func attachedRun(apart bool, place *quietPlace) (ns float64, err error) {
	b, err := newAttachedBench(apart, place)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.measure(benchSections / 4)
}

// isXSK tells the benchmarks of sockets from the others by name.
func isXSK(name string) bool { return strings.HasPrefix(name, "xsk.") }
