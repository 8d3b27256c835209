package main

// This file owns the scenario appliance-figures: what our binary costs per packet
// when it sends 60-byte frames over VFIO in a guest of the same kind as Linux's
// (linux-figures), with and without multi-packet work requests. The device counts
// what it fetches and writes, the emulator what each function executes. Doorbells
// are trapped, so that every burst is done when its doorbell returns, and what is
// counted does not depend on time.

import (
	"context"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ourFigures are per packet unless they say otherwise.
type ourFigures struct {
	FrameBytes int     `json:"frame_bytes"` // without FCS
	Burst      int     `json:"burst"`
	Packets    int     `json:"packets"` // difference of two runs
	On         ourMode `json:"mpwqe_on"`
	Off        ourMode `json:"mpwqe_off"`
}

type ourMode struct {
	WQEBytes   float64 `json:"wqe_bytes"`
	RingBytes  float64 `json:"ring_bytes"`
	Doorbells  float64 `json:"doorbells"`
	CQEs       float64 `json:"cqes"`
	PerSession float64 `json:"packets_per_session"`
	// Driver is instructions in the files that send: posting, completion, giving
	// pages back. Program is all of our own code, with the poll loop and the mode.
	Driver  float64 `json:"instructions_driver"`
	Program float64 `json:"instructions_program"`
	Bus     busCost `json:"bus"`
}

// sendFiles are where the send path is, in Go and in assembly.
var sendFiles = []string{"txrecover.go", "txpath.go", "blueflame.go", "mpwqe.go", "pagepool.go", "burst_amd64.go", "burst_amd64.s", "frame.go",
	"queue.go", "dma.go", "barrier_amd64.go", "barrier_amd64.s"}

// Two runs differ in what the second sends more. The binary sends in bursts of
// 64.
const (
	ourBurst = 64
	ourFew   = 500 * ourBurst
	ourMany  = 3500 * ourBurst
)

func applianceFigures(ctx context.Context, l *lab) error {
	program, err := readProgram(l.binary)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(l.binary)
	if err != nil {
		return err
	}
	// The second function holds the other end of the wire; nobody is there.
	s, err := l.serve(ctx, 2)
	if err != nil {
		return err
	}
	places := filepath.Join(l.out, "places")
	g, err := l.start(ctx, machine{name: "box", sockets: s.sockets[:1], iommu: true, append: "intel_iommu=on iommu=pt mitigations=off hugepages=60",
		plugin: filepath.Join(l.cache, "pagecount.so") + ",out=" + places, files: map[string][]byte{"bin/mlx5d": binary}})
	if err != nil {
		return err
	}
	m := &meter{g: g, s: s, program: program, places: places, out: l.out}
	f := ourFigures{FrameBytes: 60, Burst: ourBurst, Packets: ourMany - ourFew}
	err = steps(ctx,
		step{"modules", func() error { return g.all("load vfio_iommu_type1 vfio-pci") }},
		step{"MPWQE on", func() (err error) { f.On, err = m.measure("on"); return err }},
		step{"MPWQE off", func() (err error) { f.Off, err = m.measure("off"); return err }},
		step{"no faults", func() error { return noFaults(g.transcript()) }},
		step{"device left clean", func() error { return leftClean(s) }},
		step{"power off", g.off},
	)
	if err != nil {
		return err
	}
	return f.keep(l)
}

// program is our binary's functions: from an address of code to the file that
// declares what is there.
type program struct{ table *gosym.Table }

func readProgram(path string) (*program, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, lines := f.Section(".text"), f.Section(".gopclntab")
	if text == nil || lines == nil {
		return nil, fmt.Errorf("%s has no code or no line table", path)
	}
	b, err := lines.Data()
	if err != nil {
		return nil, err
	}
	t, err := gosym.NewTable(nil, gosym.NewLineTable(b, text.Addr))
	if err != nil {
		return nil, fmt.Errorf("%s: line table: %w", path, err)
	}
	return &program{t}, nil
}

// function names the function at pc and its file, when it is one of ours.
func (p *program) function(pc uint64) (name, file string) {
	f := p.table.PCToFunc(pc)
	if f == nil || !strings.HasPrefix(f.Name, "main.") {
		return "", ""
	}
	path, _, _ := p.table.PCToLine(f.Entry)
	return f.Name, filepath.Base(path)
}

// meter runs our binary and reads the counters on both sides.
type meter struct {
	g       *guest
	s       *server
	program *program
	places  string // the emulator's counts
	out     string
}

// executed is the emulator's counts of user space so far, by address.
func (m *meter) executed() (map[uint64]uint64, error) {
	b, err := os.ReadFile(m.places)
	if err != nil {
		return nil, fmt.Errorf("reading the emulator's counts: %w", err)
	}
	all := map[uint64]uint64{}
	for ; len(b) >= 16; b = b[16:] {
		at, n := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
		if n > 0 && at>>63 == 0 {
			all[at] = n
		}
	}
	return all, nil
}

// sent is one run: what was executed at each place, and what the device counted.
type sent struct {
	places map[uint64]uint64
	device counts
	bus    busCost // of the run
}

// send runs our binary for n packets.
func (m *meter) send(n int, flag string) (r sent, err error) {
	before, err := m.s.stats()
	if err != nil {
		return r, err
	}
	was, err := m.executed()
	if err != nil {
		return r, err
	}
	out, err := m.g.run("mlx5d -json -bind -pci %s -mode txonly -queues 1 -size 60 -count %d -priv-flags skb_tx_mpwqe=%s 2>/tmp/err || { cat /tmp/err; false; }", slot0, n, flag)
	if err != nil {
		return r, err
	}
	if r.places, err = m.executed(); err != nil {
		return r, err
	}
	for at, n := range was {
		r.places[at] -= n
	}
	ran, err := parseRun(out)
	if err != nil {
		return r, err
	}
	after, err := m.s.stats()
	if err != nil {
		return r, err
	}
	a, b := after[0].SQ, before[0].SQ
	r.device = counts{SQ: sendCounts{Packets: a.Packets - b.Packets, WQEBytes: a.WQEBytes - b.WQEBytes, RingBytes: a.RingBytes - b.RingBytes,
		Doorbells: a.Doorbells - b.Doorbells, CQEs: a.CQEs - b.CQEs, MPWQEs: a.MPWQEs - b.MPWQEs, MPWPackets: a.MPWPackets - b.MPWPackets}}
	r.bus = after[0].PCI.since(before[0].PCI).per(1)
	if ran.TxPackets != uint64(n) || r.device.SQ.Packets != uint64(n) {
		return r, fmt.Errorf("of %d packets we say that we sent %d, the device %d", n, ran.TxPackets, r.device.SQ.Packets)
	}
	return r, after[0].sound()
}

// measure takes one mode's figures as the difference of two runs: what starting
// and ending cost is in both.
func (m *meter) measure(flag string) (o ourMode, err error) {
	few, err := m.send(ourFew, flag)
	if err != nil {
		return o, err
	}
	many, err := m.send(ourMany, flag)
	if err != nil {
		return o, err
	}
	const packets = ourMany - ourFew
	a, b := many.device.SQ, few.device.SQ
	per := func(a, b uint64) float64 { return round(float64(int64(a-b)) / packets) }
	o = ourMode{WQEBytes: per(a.WQEBytes, b.WQEBytes), RingBytes: per(a.RingBytes, b.RingBytes), Doorbells: per(a.Doorbells, b.Doorbells), CQEs: per(a.CQEs, b.CQEs),
		Bus: many.bus.less(few.bus, packets)}
	if n := a.MPWQEs - b.MPWQEs; n > 0 {
		o.PerSession = round(float64(a.MPWPackets-b.MPWPackets) / float64(n))
	}
	functions := map[string]int64{}
	driver, all := int64(0), int64(0)
	for at, n := range many.places {
		name, file := m.program.function(at)
		if name == "" {
			continue
		}
		more := int64(n) - int64(few.places[at])
		functions[file+" "+name] += more
		all += more
		if slices.Contains(sendFiles, file) {
			driver += more
		}
	}
	o.Driver, o.Program = round(float64(driver)/packets), round(float64(all)/packets)
	return o, m.list(flag, functions)
}

// list writes what each function executed per packet among the logs.
func (m *meter) list(flag string, functions map[string]int64) error {
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(functions[b] - functions[a]) })
	var text strings.Builder
	for _, name := range names {
		if per := float64(functions[name]) / (ourMany - ourFew); per >= 0.01 {
			fmt.Fprintf(&text, "%8.2f %s\n", per, name)
		}
	}
	return os.WriteFile(filepath.Join(m.out, "functions-"+flag+".txt"), []byte(text.String()), 0o644)
}

// keep writes the figures among the logs and holds them against what the work
// request formats force, against what we promise, and against the reference.
// Nothing in them depends on time: more than 1 % of bytes or 10 % of instructions
// beyond the reference is a loss, less is welcome (-update keeps it).
func (f *ourFigures) keep(l *lab) error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(l.out, "figures.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	if err := f.plausible(); err != nil {
		return err
	}
	ref, err := readFigures()
	if err != nil {
		return err
	}
	if l.update {
		ref.Appliance = f
		return ref.write()
	}
	if ref.Appliance == nil {
		return fmt.Errorf("%s has no figures of ours: run the scenario with -update", figureFile)
	}
	return f.against(ref)
}

// plausible: a session of 61 packets is 63 units of 16 bytes, one of 3 has 5.
func (f *ourFigures) plausible() error {
	var bad []error
	for _, k := range []struct {
		name        string
		got, lo, hi float64
	}{
		{"WQE bytes with sessions", f.On.WQEBytes, 16.9, 17.1},
		{"ring bytes with sessions", f.On.RingBytes, 17.9, 19},
		{"WQE bytes without", f.Off.WQEBytes, 48, 48.1},
		{"ring bytes without", f.Off.RingBytes, 64, 64.1},
		{"packets a session", f.On.PerSession, 31, 33},
		{"packets a session without", f.Off.PerSession, 0, 0},
		{"doorbells with", f.On.Doorbells, 1.0 / 64, 1.02 / 64},
		{"doorbells without", f.Off.Doorbells, 1.0 / 64, 1.02 / 64},
		{"instructions with", f.On.Driver, 5, 60},
		{"instructions without", f.Off.Driver, 5, 100},
	} {
		if k.got < k.lo || k.got > k.hi {
			bad = append(bad, fmt.Errorf("%s: %g is outside %g..%g", k.name, k.got, k.lo, k.hi))
		}
	}
	return errors.Join(bad...)
}

func (f *ourFigures) against(ref *figures) error {
	var bad []string
	for _, k := range []struct {
		name     string
		got, ref *ourMode
		linux    float64
	}{{"with sessions", &f.On, &ref.Appliance.On, ref.On.Driver}, {"without", &f.Off, &ref.Appliance.Off, ref.Off.Driver}} {
		for _, v := range []struct {
			name            string
			got, want, part float64
		}{
			{"WQE bytes", k.got.WQEBytes, k.ref.WQEBytes, 0.01}, {"ring bytes", k.got.RingBytes, k.ref.RingBytes, 0.01},
			{"doorbells", k.got.Doorbells, k.ref.Doorbells, 0.01}, {"CQEs", k.got.CQEs, k.ref.CQEs, 0.01},
			{"bytes on the bus", k.got.Bus.In, k.ref.Bus.In, 0.01},
			{"instructions", k.got.Driver, k.ref.Driver, 0.1}, {"instructions of all our code", k.got.Program, k.ref.Program, 0.1},
		} {
			if v.got > v.want*(1+v.part) {
				bad = append(bad, fmt.Sprintf("%s %s: %g, the reference %g", v.name, k.name, v.got, v.want))
			}
		}
		if k.got.Driver > k.linux/3 {
			bad = append(bad, fmt.Sprintf("instructions %s: %g, Linux's driver %g", k.name, k.got.Driver, k.linux))
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}
