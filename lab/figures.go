package main

// This file owns the scenario linux-figures: what the Linux driver costs per
// packet when its own packet generator sends 60-byte frames in bursts of 32,
// with and without multi-packet work requests. The device counts what it
// fetches and writes; the emulator, whose clock is then the number of
// instructions executed, counts what the guest executes. lab/figures.json keeps
// the result as the reference that the appliance is measured against.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// figures is lab/figures.json. All numbers are per packet unless they say
// otherwise.
type figures struct {
	Kernel     string  `json:"kernel"`
	FrameBytes int     `json:"frame_bytes"` // without FCS
	Burst      int     `json:"burst"`
	Packets    int     `json:"packets_a_run"`
	Floor      cost    `json:"floor_instructions"` // generator and stack, on a dummy device
	On         perMode `json:"mpwqe_on"`
	Off        perMode `json:"mpwqe_off"`
	// Ratio is instructions with multi-packet work requests against without,
	// the floor taken off both.
	Ratio float64 `json:"ratio_without_floor"`

	Appliance *ourFigures `json:"appliance,omitempty"` // what our binary costs, by another scenario
}

type perMode struct {
	WQEBytes   float64 `json:"wqe_bytes"`  // in units of 16 as the device must read
	RingBytes  float64 `json:"ring_bytes"` // in units of 64 as the ring advances
	DataBytes  float64 `json:"data_bytes"`
	Doorbells  float64 `json:"doorbells"`
	CQEs       float64 `json:"cqes"`
	Interrupts float64 `json:"interrupts"`
	PerSession float64 `json:"packets_per_session"` // 0 where there is none
	NOPs       float64 `json:"nops"`
	Cost       cost    `json:"instructions"`
	// Driver is the part of the instructions that lies in mlx5_core. It is
	// taken over whole runs, with the generator's start and end.
	Driver float64 `json:"instructions_mlx5_core"`
	Bus    busCost `json:"bus"`
}

// cost is a figure that is taken several times. How often the queue stops for
// an interrupt depends on the host's load, so the least is what counts.
type cost struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func costOf(v []float64) cost {
	s := slices.Sorted(slices.Values(v))
	return cost{Median: s[len(s)/2], Min: s[0], Max: s[len(s)-1], Runs: len(s)}
}

const (
	figureBurst   = 32
	figurePackets = 200000
	figureRuns    = 5
	figureFile    = "lab/figures.json"
)

func linuxFigures(ctx context.Context, l *lab) error {
	// The second function holds the other end of the wire; nobody is there.
	s, err := l.serve(ctx, 2)
	if err != nil {
		return err
	}
	pages := filepath.Join(l.out, "pages")
	g, err := l.start(ctx, machine{name: "a", sockets: s.sockets[:1], icount: true, plugin: filepath.Join(l.cache, "pagecount.so") + ",out=" + pages})
	if err != nil {
		return err
	}
	var p *profiler
	f := figures{FrameBytes: 60, Burst: figureBurst, Packets: figurePackets}
	err = steps(ctx,
		step{"probe", func() error { return g.loadDriver(1) }},
		step{"link", func() error {
			return errors.Join(g.all("echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6", "ip link set eth0 up"), g.carrier(address{dev: "eth0"}))
		}},
		step{"floor", func() (err error) { f.Floor, err = g.floor(); return err }},
		step{"profile", func() (err error) { p, err = g.profile(pages, "mlx5_core"); return err }},
		step{"MPWQE on", func() (err error) { f.On, err = g.measure(s, p, "on"); return err }},
		step{"MPWQE off", func() (err error) { f.Off, err = g.measure(s, p, "off"); return err }},
		step{"kernel messages", g.complaints},
		step{"kernel", func() (err error) { f.Kernel, err = g.run("uname -r"); return err }},
		step{"unload", g.unloadDriver},
		step{"device left clean", func() error { return leftClean(s) }},
		step{"power off", g.off},
	)
	if err != nil {
		return err
	}
	f.Ratio = round((f.On.Cost.Min - f.Floor.Min) / (f.Off.Cost.Min - f.Floor.Min))
	if ref, err := readFigures(); err == nil {
		fmt.Println(f.busTable(ref.Appliance))
	}
	if err := f.plausible(); err != nil {
		return err
	}
	return f.keep(l)
}

// floor is what generator and network stack cost without a driver.
func (g *guest) floor() (cost, error) {
	if err := g.all("load dummy", "ip link add dummy0 type dummy 2>/dev/null; ip link set dummy0 up"); err != nil {
		return cost{}, err
	}
	c, _, err := g.instructions("dummy0")
	return c, err
}

// instructions runs the generator several times; guest time is instructions.
func (g *guest) instructions(dev string) (c cost, sent uint64, err error) {
	var per []float64
	for range figureRuns {
		us, n, err := g.pktgen(dev, pktgenRun{count: figurePackets, burst: figureBurst, clone: figurePackets, mac: "02:00:00:00:00:02"})
		if err != nil {
			return cost{}, 0, err
		}
		sent += uint64(n)
		per = append(per, round(float64(us)*1000/float64(n)))
	}
	return costOf(per), sent, nil
}

// measure takes one mode's figures from both sides of the bus.
func (g *guest) measure(s *server, p *profiler, flag string) (perMode, error) {
	if err := errors.Join(g.all("ethtool --set-priv-flags eth0 skb_tx_mpwqe "+flag), g.carrier(address{dev: "eth0"})); err != nil {
		return perMode{}, err
	}
	time.Sleep(settle)
	before, err := s.stats()
	if err != nil {
		return perMode{}, err
	}
	ran, err := p.executed()
	if err != nil {
		return perMode{}, err
	}
	c, sent, err := g.instructions("eth0")
	if err != nil {
		return perMode{}, err
	}
	end, err := p.executed()
	if err != nil {
		return perMode{}, err
	}
	after, err := s.stats()
	if err != nil {
		return perMode{}, err
	}
	a, b := after[0], before[0]
	if n := a.SQ.Packets - b.SQ.Packets; n != sent {
		return perMode{}, fmt.Errorf("the device sent %d packets, the generator %d", n, sent)
	}
	per := func(after, before uint64) float64 { return round(float64(after-before) / float64(sent)) }
	m := perMode{
		WQEBytes: per(a.SQ.WQEBytes, b.SQ.WQEBytes), RingBytes: per(a.SQ.RingBytes, b.SQ.RingBytes),
		DataBytes: per(a.SQ.DataBytes, b.SQ.DataBytes), Doorbells: per(a.SQ.Doorbells, b.SQ.Doorbells),
		CQEs: per(a.SQ.CQEs, b.SQ.CQEs), Interrupts: per(a.Interrupts, b.Interrupts), NOPs: per(a.SQ.NOPs, b.SQ.NOPs), Cost: c,
		Driver: per(end, ran), Bus: a.PCI.since(b.PCI).per(sent),
	}
	if n := a.SQ.MPWQEs - b.SQ.MPWQEs; n > 0 {
		m.PerSession = round(float64(a.SQ.MPWPackets-b.SQ.MPWPackets) / float64(n))
	}
	return m, a.sound()
}

// profiler reads how many instructions a module has executed so far.
type profiler struct {
	file       string
	start, end uint64 // the module's code
}

// profile finds where a module lies.
func (g *guest) profile(file, module string) (*profiler, error) {
	out, err := g.run("grep '^%s ' /proc/modules", module)
	if err != nil {
		return nil, err
	}
	f := strings.Fields(out)
	if len(f) < 6 {
		return nil, fmt.Errorf("/proc/modules: %q", out)
	}
	size, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return nil, err
	}
	start, err := strconv.ParseUint(f[5], 0, 64)
	if err != nil || start == 0 {
		return nil, fmt.Errorf("/proc/modules: %q", out)
	}
	return &profiler{file: file, start: start, end: start + size}, nil
}

func (p *profiler) executed() (n uint64, err error) {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return 0, fmt.Errorf("reading the emulator's counts: %w", err)
	}
	for ; len(b) >= 16; b = b[16:] {
		if page := binary.NativeEndian.Uint64(b); page >= p.start && page < p.end {
			n += binary.NativeEndian.Uint64(b[8:])
		}
	}
	return n, nil
}

// round keeps five decimals, so that a file does not change in its last digits.
func round(v float64) float64 { return math.Round(v*1e5) / 1e5 }

// plausible holds the figures against what the work request formats force:
// a session of 32 is 34 units of 16 bytes and a single packet is 3.
func (f *figures) plausible() error {
	var bad []error
	for _, k := range []struct {
		name        string
		got, lo, hi float64
	}{
		{"WQE bytes with sessions", f.On.WQEBytes, 17, 18.5},
		{"ring bytes with sessions", f.On.RingBytes, 18, 22},
		{"WQE bytes without", f.Off.WQEBytes, 48, 48.1},
		{"ring bytes without", f.Off.RingBytes, 64, 64.1},
		{"packets a session", f.On.PerSession, 31.5, 32.1},
		{"packets a session without", f.Off.PerSession, 0, 0},
		{"data bytes with", f.On.DataBytes, 60, 60.1},
		{"data bytes without", f.Off.DataBytes, 60, 60.1},
		{"doorbells with", f.On.Doorbells, 1.0 / 32, 1.05 / 32},
		{"doorbells without", f.Off.Doorbells, 1.0 / 32, 1.05 / 32},
		{"CQEs with", f.On.CQEs, 1.0 / 32, 1.05 / 32},
		{"CQEs without", f.Off.CQEs, 1.0 / 32, 1.05 / 32},
		{"floor", f.Floor.Min, 50, 110},
		{"instructions with", f.On.Cost.Min, 450, 700},
		{"instructions without", f.Off.Cost.Min, 580, 850},
		{"instructions of the driver with", f.On.Driver, 250, 550},
		{"instructions of the driver without", f.Off.Driver, 380, 700},
		{"ratio", f.Ratio, 0.65, 0.87},
	} {
		if k.got < k.lo || k.got > k.hi {
			bad = append(bad, fmt.Errorf("%s: %g is outside %g..%g", k.name, k.got, k.lo, k.hi))
		}
	}
	return errors.Join(append(bad, f.nearPublished())...)
}

// keep writes what was measured among the logs, and as the reference where that
// was asked for; otherwise it has to agree with the reference.
func (f *figures) keep(l *lab) error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if err := os.WriteFile(filepath.Join(l.out, "figures.json"), b, 0o644); err != nil {
		return err
	}
	ref, err := readFigures()
	if err != nil && !(l.update && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if l.update {
		f.Appliance = ref.Appliance
		return f.write()
	}
	return f.against(ref)
}

// readFigures reads the reference. It returns an empty one with an error.
func readFigures() (*figures, error) {
	ref := &figures{}
	b, err := os.ReadFile(figureFile)
	if err == nil {
		err = json.Unmarshal(b, ref)
	}
	if err != nil {
		return ref, fmt.Errorf("%s: %w (write it with -update)", figureFile, err)
	}
	return ref, nil
}

// write makes f the reference.
func (f *figures) write() error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(figureFile, append(b, '\n'), 0o644)
}

// against compares with the reference: what formats and the bus's rules force to
// 1 %, instructions, which move with the moment of interrupts, to 15 and 20 %.
func (f *figures) against(ref *figures) error {
	var bad []string
	near := func(name string, got, want, part float64) {
		if math.Abs(got-want) > want*part {
			bad = append(bad, fmt.Sprintf("%s is %g, the reference %g", name, got, want))
		}
	}
	for _, k := range []struct {
		name     string
		got, ref *perMode
	}{{"with sessions", &f.On, &ref.On}, {"without", &f.Off, &ref.Off}} {
		near("WQE bytes "+k.name, k.got.WQEBytes, k.ref.WQEBytes, 0.01)
		near("ring bytes "+k.name, k.got.RingBytes, k.ref.RingBytes, 0.01)
		near("doorbells "+k.name, k.got.Doorbells, k.ref.Doorbells, 0.01)
		near("CQEs "+k.name, k.got.CQEs, k.ref.CQEs, 0.01)
		near("bytes on the bus "+k.name, k.got.Bus.Quiet, k.ref.Bus.Quiet, 0.01)
		near("instructions "+k.name, k.got.Cost.Min, k.ref.Cost.Min, 0.15)
		near("instructions of the driver "+k.name, k.got.Driver, k.ref.Driver, 0.20)
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}
