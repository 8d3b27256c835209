package main

// bench.go owns the benchmarks: which figures there are, how one is measured, and
// how it is printed. It measures the same code that runs in the appliance.
//
// Driver time is measured apart from the device's: a timed section is 16 bursts
// of 32 packets of 60 bytes; the device works in the same thread between
// sections, outside the clock. Rings are warm and the doorbell is a store to
// cached memory, so no figure says anything about PCIe or DDIO. A figure is the
// median of several repetitions; those that are compared are measured in turn.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"mlx5d/model"
)

// figure is one result, a line with -json.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Runs    int     `json:"runs"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
}

// benchRuns is how often each figure is measured.
const benchRuns = 9

const (
	benchBurst    = 32
	benchBursts   = 16 // a section
	benchSections = 1000
	benchFrame    = 60
	benchPackets  = benchBurst * benchBursts * benchSections
)

// benchGroups are the benchmarks by the first part of their names.
var benchGroups = []struct {
	name string
	run  func() ([]figure, error)
}{
	{"tx", benchTX},
	{"pci", benchPCI},
	{"rx", benchRX},
	{"pool", benchPool},
}

func benchNames() (names []string) {
	for _, g := range benchGroups {
		names = append(names, g.name)
	}
	return names
}

// runBench measures what list names, groups or single figures, and prints it.
func runBench(list string, asJSON bool, out io.Writer) error {
	if list == "all" {
		list = strings.Join(benchNames(), ",")
	}
	for _, want := range strings.Split(list, ",") {
		group, _, single := strings.Cut(want, ".")
		i := slices.Index(benchNames(), group)
		if i < 0 {
			return wishf("-bench %s: there is %s", want, strings.Join(benchNames(), ", "))
		}
		figures, err := benchGroups[i].run()
		if err != nil {
			return fmt.Errorf("benchmark %s: %w", group, err)
		}
		found := false
		for _, f := range figures {
			if single && f.Name != want {
				continue
			}
			found = true
			if err := printFigure(out, f, asJSON); err != nil {
				return err
			}
		}
		if !found {
			return wishf("-bench %s: no such figure in %s", want, group)
		}
	}
	return nil
}

func printFigure(out io.Writer, f figure, asJSON bool) error {
	if asJSON {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", b)
		return err
	}
	text := fmt.Sprintf("%-28s %10.3f %-14s (%d runs, %.3f to %.3f)", f.Name, f.Value, f.Unit, f.Runs, f.Min, f.Max)
	if f.Against != "" {
		text += fmt.Sprintf("  %.2f of %s", f.Ratio, f.Against)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// summarize makes a figure of several measurements: their median.
func summarize(name, unit string, values []float64) figure {
	v := slices.Sorted(slices.Values(values))
	return figure{Name: name, Value: v[len(v)/2], Unit: unit, Runs: len(v), Min: v[0], Max: v[len(v)-1]}
}

// against adds the ratio to another figure of the same run.
func (f figure) against(o figure) figure {
	f.Against = o.Name
	if o.Value != 0 {
		f.Ratio = f.Value / o.Value
	}
	return f
}

// benchRig is a NIC whose device works only when told to.
type benchRig struct {
	dev *emulatedDevice
	nic *nic
	u   undo
}

// newBenchRig opens a NIC with one queue and stops the device's goroutine.
func newBenchRig(profile, wire string) (*benchRig, error) {
	return newBenchRigFor(profile, wire, wishes{queues: 1, promisc: true})
}

// newBenchRigFor is newBenchRig for a NIC with other wishes.
func newBenchRigFor(profile, wire string, want wishes) (*benchRig, error) {
	w, err := model.ParseWire(wire)
	if err != nil {
		return nil, err
	}
	r := &benchRig{}
	if r.dev, err = openEmulated(model.Config{Profile: profile, Wire: w}); err != nil {
		return nil, err
	}
	r.u.add("device", r.dev.close)
	r.nic, err = openNIC(context.Background(), r.dev, r.dev.virtual(), openOptions{wishes: want, cpus: 1})
	if err != nil {
		return nil, errors.Join(err, r.u.run())
	}
	r.u.add("NIC", r.nic.close)
	r.dev.pause()
	r.u.add("device's goroutine", func() error { r.dev.resume(); return nil })
	return r, nil
}

func (r *benchRig) close() error { return r.u.run() }

// settle lets the device do all there is to do.
func (r *benchRig) settle() {
	for r.dev.m.Step() {
	}
}

// txBench sends from pages of its own on the rig's send queue.
type txBench struct {
	*benchRig
	q      *sendQueue
	pool   *pagePool
	frames []txFrame
}

// txVariants are the ways to send that are compared: packets a session can hold
// and bytes of the frames that stand in it.
var txVariants = map[string]struct {
	mpw    bool
	inline int
}{
	"tx.mpwqe.on":     {true, 0},
	"tx.mpwqe.off":    {false, 0},
	"tx.mpwqe.inline": {true, benchFrame},
}

// newTxBench prepares a section's frames.
func newTxBench(variant string) (*txBench, error) {
	r, err := newBenchRig("cx5", "none")
	if err != nil {
		return nil, err
	}
	b := &txBench{benchRig: r, q: r.nic.channels[0].tx, frames: make([]txFrame, benchBurst*benchBursts)}
	if b.pool, err = newPagePool(r.nic.mem, 1, 2*len(b.frames)); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.u.add("pages", func() error { b.pool.close(r.nic.mem); return nil })
	b.q.home(b.pool)
	v := txVariants[variant]
	b.q.inlineUpTo(v.inline)
	b.q.sessions(v.mpw)
	return b, nil
}

// load takes a page for every frame of a section, while those of the section
// before are still out.
func (b *txBench) load() error {
	for i := range b.frames {
		n, ok := b.pool.take()
		if !ok {
			return errors.New("a page did not come back")
		}
		ref := b.pool.lendOwn(n)
		b.pool.giveBack(n)
		b.frames[i] = txFrame{addr: b.pool.addr(n, 0), size: benchFrame, page: ref}
	}
	return nil
}

// section is what is timed: bursts are posted, and the completions of the
// section before are taken and its pages given back.
//
//go:noinline
func (b *txBench) section() {
	for i := 0; i < len(b.frames); i += benchBurst {
		b.q.complete(napiBudget)
		b.q.send(b.frames[i : i+benchBurst])
	}
}

// drain ends a section: the device sends, and what is left to complete is.
func (b *txBench) drain() {
	b.settle()
	for b.q.complete(napiBudget) > 0 {
	}
}

// measure returns nanoseconds a packet over so many sections.
func (b *txBench) measure(sections int) (float64, error) {
	before := b.q.stats.packets.get()
	spent := time.Duration(0)
	for range sections {
		if err := b.load(); err != nil {
			return 0, err
		}
		start := time.Now()
		b.section()
		spent += time.Since(start)
		b.settle()
	}
	b.drain()
	b.q.publish()
	packets := uint64(sections * len(b.frames))
	if got := b.q.stats.packets.get() - before; got != packets {
		return 0, fmt.Errorf("%d packets posted, %d counted", packets, got)
	}
	return float64(spent.Nanoseconds()) / float64(packets), nil
}

// benchTX measures the send path in its variants, in turn.
func benchTX() ([]figure, error) {
	names := []string{"tx.mpwqe.on", "tx.mpwqe.off", "tx.mpwqe.inline"}
	var rigs []*txBench
	for _, name := range names {
		b, err := newTxBench(name)
		if err != nil {
			return nil, err
		}
		defer b.close()
		rigs = append(rigs, b)
	}
	ns := make([][]float64, len(rigs))
	var allocs []float64
	for run := range benchRuns + 1 {
		for i, b := range rigs {
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			v, err := b.measure(benchSections)
			if err != nil {
				return nil, err
			}
			runtime.ReadMemStats(&m1)
			if run > 0 { // the first warms up
				ns[i] = append(ns[i], v)
				allocs = append(allocs, float64(m1.Mallocs-m0.Mallocs)/benchPackets)
			}
		}
	}
	off := summarize(names[1], "ns/packet", ns[1])
	out := []figure{summarize(names[0], "ns/packet", ns[0]).against(off), off, summarize(names[2], "ns/packet", ns[2]).against(off),
		summarize("tx.allocs", "allocs/packet", allocs)}
	out = append(out, wireFigures(rigs[0], rigs[1])...)
	counted, err := instructionFigures(names...)
	return append(out, counted...), err
}

// wireFigures are what the device counted of the two queues.
func wireFigures(on, off *txBench) []figure {
	s := [2]model.SQStats{on.dev.m.Stats().SQ, off.dev.m.Stats().SQ}
	per := func(n, d uint64) []float64 { return []float64{float64(n) / float64(d)} }
	return []figure{
		summarize("tx.wqe_bytes.on", "bytes/packet", per(s[0].WQEBytes, s[0].Packets)),
		summarize("tx.wqe_bytes.off", "bytes/packet", per(s[1].WQEBytes, s[1].Packets)),
		summarize("tx.ring_bytes.on", "bytes/packet", per(s[0].RingBytes, s[0].Packets)),
		summarize("tx.ring_bytes.off", "bytes/packet", per(s[1].RingBytes, s[1].Packets)),
		summarize("tx.doorbells_per_packet", "doorbells", per(on.q.stats.doorbell.get(), on.q.stats.packets.get())),
	}
}

// benchChild is set in a process that only repeats one section for a tool that
// counts its instructions: NAME:SECTIONS.
const benchChild = "MLX5D_BENCH_SECTIONS"

// instructionFigures counts instructions with valgrind's callgrind, as the
// difference of two fixed counts of sections. Without valgrind there are none.
func instructionFigures(names ...string) (out []figure, err error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, nil
	}
	for _, name := range names {
		few, err := countInstructions(name, 20)
		if err != nil {
			return nil, err
		}
		many, err := countInstructions(name, 120)
		if err != nil {
			return nil, err
		}
		out = append(out, summarize(name+".instructions", "per packet", []float64{(many - few) / (100 * benchBurst * benchBursts)}))
	}
	return out, nil
}

// countInstructions runs ourselves under callgrind, counting inside section only.
func countInstructions(name string, sections int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mlx5d-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "out")
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+file, "--toggle-collect=main.(*xBench).section", self)
	// Preemption signals upset callgrind.
	cmd.Env = append(os.Environ(), benchChild+"="+name+":"+strconv.Itoa(sections), "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	if b, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("callgrind: %w: %s", err, lastLine(b))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "totals: "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, errors.New("callgrind gave no total: the binary has lost its symbols")
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// runBenchChild is the process that is counted.
func runBenchChild(what string) error {
	runtime.LockOSThread() // what else this process does is on other threads
	name, n, _ := strings.Cut(what, ":")
	sections, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	if isRX(name) {
		b, err := newRxBench(name)
		if err != nil {
			return err
		}
		defer b.close()
		_, err = b.measure(sections)
		return err
	}
	b, err := newTxBench(name)
	if err != nil {
		return err
	}
	defer b.close()
	_, err = b.measure(sections)
	return err
}

// pciRates are the packet rates of the published figures for each link, of
// 64-byte packets: Linux mlx5e on ConnectX-5 without its multi-packet WQEs and
// with them. Generation 4 has no published figure; it gets generation 3's rate.
var pciRates = map[string]float64{"gen2": 36.864e6, "gen3": 56.064e6, "gen4": 56.064e6}

// benchPCI turns what the device counted on its bus into the share of a link
// that sending takes, towards the device.
func benchPCI() (out []figure, err error) {
	for _, variant := range []string{"off", "on", "inline"} {
		b, err := newTxBench("tx.mpwqe." + variant)
		if err != nil {
			return nil, err
		}
		load, err := b.pciLoad()
		if again := b.close(); err == nil {
			err = again
		}
		if err != nil {
			return nil, err
		}
		for _, l := range model.PCILinks {
			name := "pci." + l.Name + "." + variant
			out = append(out, summarize(name, "% inbound", []float64{l.Percent(load.In, pciRates[l.Name])}),
				summarize(name+".outbound", "% outbound", []float64{l.Percent(load.Out, pciRates[l.Name])}))
		}
		out = append(out, summarize("pci.bytes."+variant, "bytes inbound", []float64{load.In}))
	}
	return out, nil
}

// pciLoad is what a packet puts on the link, in bursts that the device takes one
// by one.
func (b *txBench) pciLoad() (model.PCILoad, error) {
	const rounds = 8
	before := b.dev.m.PCI()
	for range rounds {
		if err := b.load(); err != nil {
			return model.PCILoad{}, err
		}
		for i := 0; i < len(b.frames); i += benchBurst {
			b.q.send(b.frames[i : i+benchBurst])
			b.settle()
			b.q.complete(napiBudget)
		}
	}
	counts := b.dev.m.PCI().Sub(before)
	load := counts.Load()
	packets := float64(rounds * len(b.frames))
	return model.PCILoad{In: load.In / packets, Out: load.Out / packets}, nil
}
