// Command lab runs the appliance and the emulated device against programs that
// nobody here wrote: the unmodified Linux driver and, later, DPDK, in virtual
// machines without hardware acceleration.
//
// This file owns the table of scenarios, their order and time, and what is
// printed: one line a scenario and a closing line. guest.go owns machines,
// server.go the device process, and each scenario has a file of its own. What
// machines need is built once by the script lab/build.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed guest/init
var agent []byte

// scenario is one line of the lab's output.
type scenario struct {
	name  string
	limit time.Duration
	run   func(ctx context.Context, l *lab) error
}

// scenarios in the order in which they run: each relies on what those before
// it have shown.
var scenarios = []scenario{
	{"linux-up", 4 * time.Minute, linuxUp},
	{"linux-traffic", 10 * time.Minute, linuxTraffic},
	{"linux-figures", 4 * time.Minute, linuxFigures},
	{"appliance-figures", 4 * time.Minute, applianceFigures},
	{"appliance", 5 * time.Minute, applianceBoots},
	{"appliance-vs-linux", 5 * time.Minute, applianceVersusLinux},
	{"appliance-receives", 6 * time.Minute, applianceReceives},
	{"appliance-between", 6 * time.Minute, applianceBetween},
	{"appliance-sends", 5 * time.Minute, applianceSends},
}

// lab is what a scenario works with.
type lab struct {
	cache  string // what lab/build made
	root   string // a Debian root inside it
	out    string // logs of this scenario
	binary string // mlx5d
	shared string // reference material; the scenario appliance replays captures of it
	accel  string
	update bool // write reference files instead of comparing with them
	agent  []byte

	servers int
	guests  []*guest
	cleanup []func()
}

func main() {
	names := flag.String("scenario", "", "run only these, comma separated")
	binary := flag.String("mlx5d", "", "the binary to test; default: built from the checkout")
	out := flag.String("out", "lab/out", "folder for logs")
	accel := flag.String("accel", "tcg", "emulator acceleration: tcg, or kvm while developing")
	update := flag.Bool("update", false, "write lab/figures.json instead of comparing with it")
	shared := flag.String("shared", "../shared", "folder with reference captures")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: go run ./lab [-scenario NAME[,NAME]] [-mlx5d FILE] [-out FOLDER]\nScenarios:")
		for _, s := range scenarios {
			fmt.Fprintf(os.Stderr, "  %s\n", s.name)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	todo, err := choose(*names)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "lab:", errors.Join(err))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	base := lab{out: *out, binary: *binary, shared: *shared, accel: *accel, update: *update, agent: agent}
	if err := base.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
	failed := 0
	for _, s := range todo {
		if !base.perform(ctx, s) {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(todo)-failed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func choose(names string) ([]scenario, error) {
	if names == "" {
		return scenarios, nil
	}
	var out []scenario
	for _, n := range strings.Split(names, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == n })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q", n)
		}
		out = append(out, scenarios[i])
	}
	return out, nil
}

// prepare builds what is missing: the machines' parts and the binary.
func (l *lab) prepare(ctx context.Context) error {
	var stdout bytes.Buffer
	build := exec.CommandContext(ctx, "bash", "lab/build")
	build.Stdout, build.Stderr = &stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("lab/build: %w (run it from the top of the checkout)", err)
	}
	l.cache = strings.TrimSpace(stdout.String())
	l.root = filepath.Join(l.cache, "root")
	if err := os.MkdirAll(l.out, 0o755); err != nil {
		return err
	}
	if l.binary != "" {
		return nil
	}
	l.binary = filepath.Join(l.out, "mlx5d")
	return goBuild(ctx, l.binary, ".")
}

// goBuild makes a static binary of a package of this module.
func goBuild(ctx context.Context, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, b)
	}
	return nil
}

// perform runs one scenario in a folder of its own and prints its line.
func (l *lab) perform(ctx context.Context, s scenario) bool {
	own := *l
	own.out = filepath.Join(l.out, s.name)
	began := time.Now()
	err := own.attempt(ctx, s)
	took := time.Since(began).Seconds()
	if err == nil {
		fmt.Printf("ok    %-22s %6.1f s\n", s.name, took)
		return true
	}
	fmt.Printf("FAIL  %-22s %6.1f s  %s\n", s.name, took, strings.ReplaceAll(err.Error(), "\n", "; "))
	for _, g := range own.guests {
		fmt.Printf("      serial output of %s: %s\n", g.name, g.log)
	}
	return false
}

func (l *lab) attempt(ctx context.Context, s scenario) error {
	_ = os.RemoveAll(l.out)
	if err := os.MkdirAll(l.out, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	defer l.tidy()
	err := s.run(ctx, l)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (limit %v)", err, s.limit)
	}
	return err
}

// tidy ends what a scenario left running: guests first, so that they see no
// device vanish.
func (l *lab) tidy() {
	for _, g := range l.guests {
		g.kill()
	}
	for _, f := range slices.Backward(l.cleanup) {
		f()
	}
}
