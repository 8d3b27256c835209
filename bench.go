package main

// bench.go owns the list of benchmarks: which groups there are, which figures are
// wanted, and how one is printed. What is measured is benchtx.go's and its
// neighbours', how it is measured benchkit.go's.

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	{"napi", benchNAPI},
	{"xdp", benchXDP},
	{"xsk", benchXSK},
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
	wants := strings.Split(list, ",")
	if slices.Contains(wants, "xsk") && !slices.Contains(wants, "xdp") {
		wants = append(wants, "xdp") // the figures of one system
	}
	for _, want := range wants {
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
	if f.Disturbed > 0 {
		text += fmt.Sprintf("  %d disturbed, %.3f with them", f.Disturbed, f.All)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// newReceiveBench prepares a benchmark whose section is a channel's turn.
func newReceiveBench(name string) (*rxBench, error) {
	if isXDP(name) {
		return newXDPBench(name)
	}
	return newRxBench(name)
}

// runBenchChild is the process that is counted.
func runBenchChild(what string) error {
	runtime.LockOSThread() // what else this process does is on other threads
	name, n, _ := strings.Cut(what, ":")
	sections, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	if isRX(name) || isXDP(name) {
		b, err := newReceiveBench(name)
		if err != nil {
			return err
		}
		defer b.close()
		_, err = b.measure(sections)
		return err
	}
	if isXSK(name) {
		b, err := newXSKBench(name)
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
