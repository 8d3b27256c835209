package main

// benchkit.go owns how a figure is measured. It measures the same code that runs
// in the appliance.
//
// Driver time is measured apart from the device's: a timed section is 16 bursts
// of 32 packets of 60 bytes; the device works in the same thread between
// sections, outside the clock. Rings are warm and the doorbell is a store to
// cached memory, so no figure says anything about PCIe or DDIO. A figure is the
// median of several repetitions (benchquiet.go says which count); those that are
// compared are measured in turn.

import (
	"context"
	"errors"
	"fmt"
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
	// Repetitions that are left out, and the median with them.
	Disturbed int     `json:"disturbed,omitempty"`
	All       float64 `json:"all,omitempty"`
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

// summarize makes a figure of several measurements: their median.
func summarize(name, unit string, values []float64) figure {
	v := slices.Sorted(slices.Values(values))
	return figure{Name: name, Value: v[len(v)/2], Unit: unit, Runs: len(v), Min: v[0], Max: v[len(v)-1]}
}

// figure is the median of what counts.
func (t timing) figure(name, unit string) figure {
	f := summarize(name, unit, t.values)
	f.Disturbed = len(t.all) - len(t.values)
	if f.Disturbed > 0 {
		f.All = summarize(name, unit, t.all).Value
	}
	return f
}

// sectioned is a benchmark that repeats a section and knows its time a packet.
type sectioned interface {
	measure(sections int) (float64, error)
}

// medianSection times so many sections, with what prepare does before each outside
// the clock, and returns nanoseconds a packet in the median: sections that something
// else on the machine interrupted do not count.
func medianSection(sections int, prepare func() error, section func()) (float64, error) {
	spent := make([]time.Duration, sections)
	for i := range spent {
		if err := prepare(); err != nil {
			return 0, err
		}
		start := time.Now()
		section()
		spent[i] = time.Since(start)
	}
	slices.Sort(spent)
	return float64(spent[sections/2].Nanoseconds()) / (benchBurst * benchBursts), nil
}

// inTurn measures benchmarks one after the other, again and again, so that what
// else the machine does meets all of them: nanoseconds a packet by benchmark, and
// the allocations of all.
func inTurn[B sectioned](names []string, benches []B) (ns []timing, allocs []float64, err error) {
	place := newQuietPlace()
	defer place.leave()
	all := make([][]repetition, len(benches))
	for run, start := 0, time.Now(); run <= benchRuns || !place.enough(all) && time.Since(start) < quietWait; run++ {
		place.move()
		for i, b := range benches {
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			r, err := place.repeat(func() (float64, error) { return b.measure(benchSections) })
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", names[i], err)
			}
			runtime.ReadMemStats(&m1)
			if run > 0 { // the first warms up
				all[i] = append(all[i], r)
				allocs = append(allocs, float64(m1.Mallocs-m0.Mallocs)/benchPackets)
			}
		}
	}
	for _, of := range all {
		ns = append(ns, place.choose(of))
	}
	return ns, allocs, nil
}

// measureAll opens benchmarks by name and measures them in turn: a figure of each, and
// one of the allocations of all. Whoever calls it closes them, whatever went wrong.
func measureAll[B sectioned](names []string, open func(name string) (B, error), allocs string) (benches []B, out []figure, err error) {
	for _, name := range names {
		b, err := open(name)
		if err != nil {
			return benches, nil, err
		}
		benches = append(benches, b)
	}
	ns, perPacket, err := inTurn(names, benches)
	if err != nil {
		return benches, nil, err
	}
	for i, name := range names {
		out = append(out, ns[i].figure(name, "ns/packet"))
	}
	return benches, append(out, summarize(allocs, "allocs/packet", perPacket)), nil
}

// closeAll closes what measureAll has opened.
func closeAll[B interface{ close() error }](benches []B) {
	for _, b := range benches {
		_ = b.close() // nothing is measured any more
	}
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
	return newBenchRigOn(profile, w, want)
}

// newBenchRigOn is newBenchRigFor with a wire of the caller's making. Where all goes
// to sockets no traffic comes before letIn.
func newBenchRigOn(profile string, w model.Wire, want wishes) (r *benchRig, err error) {
	r = &benchRig{}
	if r.dev, err = openEmulated(model.Config{Profile: profile, Wire: w}); err != nil {
		return nil, err
	}
	r.u.add("device", r.dev.close)
	r.nic, err = openNIC(context.Background(), r.dev, r.dev.virtual(), openOptions{wishes: want, cpus: 1, hold: want.xskSpread})
	if err != nil {
		return nil, errors.Join(err, r.u.run())
	}
	r.u.add("NIC", r.nic.close)
	r.dev.pause()
	r.u.add("device's goroutine", func() error { r.dev.resume(); return nil })
	return r, nil
}

// letIn brings traffic to sockets, which have their buffers now. It ends before they
// do: a wire without end that nobody holds would leave the device no rest.
func (r *benchRig) letIn() error {
	r.dev.resume()
	defer r.dev.pause()
	if err := r.nic.bringUp(); err != nil {
		return err
	}
	r.u.add("traffic", func() error {
		r.dev.resume()
		return r.nic.port.setUp(false)
	})
	return nil
}

func (r *benchRig) close() error { return r.u.run() }

// settle lets the device do all there is to do.
func (r *benchRig) settle() {
	for r.dev.m.Step() {
	}
}

// refill is settle as medianSection wants it.
func (r *benchRig) refill() error {
	r.settle()
	return nil
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
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+file, "--toggle-collect=main.(*Bench).section", self)
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
