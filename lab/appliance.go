package main

// This file owns the scenario appliance: our image boots on a machine with an
// IOMMU, opens the device through the kernel's VFIO, sees the same traffic as
// the embedded device shows, and leaves a device on which Linux comes up.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// replayed are the captures that the appliance inspects.
var replayed = []string{"zeek_wikipedia.pcap", "ipfixprobe_mixed.pcap"}

// slot0 is where the first function of a machine is: behind the first root port.
const slot0 = "0000:01:00.0"

func applianceBoots(ctx context.Context, l *lab) error {
	img, err := l.image(ctx)
	if err != nil {
		return err
	}
	for _, capture := range replayed {
		if err := l.inspectCapture(ctx, img, capture); err != nil {
			return fmt.Errorf("%s: %w", capture, err)
		}
	}
	if err := l.handOver(ctx, replayed[0]); err != nil {
		return fmt.Errorf("handing over to Linux: %w", err)
	}
	return nil
}

// image builds the appliance's initramfs with the lab kernel's VFIO modules.
func (l *lab) image(ctx context.Context) (string, error) {
	trees, err := filepath.Glob(filepath.Join(l.cache, "kernel/usr/lib/modules/*"))
	if err != nil || len(trees) != 1 {
		return "", fmt.Errorf("%d module trees in %s", len(trees), l.cache)
	}
	out := filepath.Join(l.out, "appliance.img")
	cmd := exec.CommandContext(ctx, "go", "run", "./image", "-modules", trees[0], "-o", out, l.binary)
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the image: %w: %s", err, b)
	}
	return out, nil
}

// embedded is the summary of the same capture on the embedded device.
func (l *lab) embedded(ctx context.Context, file string) (map[string]any, error) {
	out, err := exec.CommandContext(ctx, l.binary, "-emulate", "-wire", "replay:"+file, "-queues=1", "-json").Output()
	if err != nil {
		return nil, fmt.Errorf("the embedded run: %w", err)
	}
	return summaryOf(string(out))
}

// timed are the keys of a summary that say when and how fast.
var timed = regexp.MustCompile(`^(duration_s|pps|bits_per_s|first_ns|last_ns|.*_per_s)$`)

// summaryOf parses a JSON summary and leaves out what depends on time.
func summaryOf(line string) (map[string]any, error) {
	var s map[string]any
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return nil, fmt.Errorf("no JSON summary: %w", err)
	}
	strip(s)
	return s, nil
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if timed.MatchString(k) {
				delete(v, k)
			} else {
				strip(inner)
			}
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}

// difference names the first key that differs.
func difference(got, want map[string]any) error {
	for k := range want {
		if !reflect.DeepEqual(got[k], want[k]) {
			return fmt.Errorf("%s is %v, on the embedded device %v", k, got[k], want[k])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d keys, on the embedded device %d", len(got), len(want))
	}
	return nil
}

// fault is what the kernel prints for a DMA access that the IOMMU stopped.
var fault = regexp.MustCompile(`DMAR:.*(fault|DMA (Read|Write))|IOMMU.*fault`)

// noFaults looks for such lines.
func noFaults(lines []string) error {
	for _, s := range lines {
		if fault.MatchString(s) {
			return fmt.Errorf("the IOMMU stopped the device: %s", s)
		}
	}
	return nil
}

var (
	summaryLine = regexp.MustCompile(`^(\{"packets":.*\})$`)
	exitReport  = regexp.MustCompile(`mlx5d: exit code (\d+)`)
)

// bootPatienceAppliance is for boot, the run and power-off.
const bootPatienceAppliance = 90 * time.Second

// inspectCapture boots the image with the capture on the wire and compares what
// it prints with the embedded run.
func (l *lab) inspectCapture(ctx context.Context, img, capture string) error {
	ctx, cancel := context.WithTimeout(ctx, bootPatienceAppliance)
	defer cancel()
	file := filepath.Join(l.shared, "pcaps", capture)
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("the capture is missing: %w", err)
	}
	want, err := l.embedded(ctx, file)
	if err != nil {
		return err
	}
	s, err := l.serve(ctx, 1, "-wire", "replay:"+file)
	if err != nil {
		return err
	}
	words := fmt.Sprintf("intel_iommu=on mitigations=off -- -pci=%s -bind -queues=1 -json -count=%.0f -on-exit=poweroff", slot0, want["packets"])
	g, err := l.boot(ctx, machine{name: strings.TrimSuffix(capture, filepath.Ext(capture)), sockets: s.sockets, iommu: true, initrd: img, append: words})
	if err != nil {
		return err
	}
	line, _, err := g.expect(ctx, 0, summaryLine)
	if err != nil {
		return errors.Join(err, noFaults(g.transcript()))
	}
	code, _, err := g.expect(ctx, 0, exitReport)
	if err != nil {
		return err
	}
	got, err := summaryOf(line[1])
	if err != nil {
		return err
	}
	if err := difference(got, want); err != nil {
		return err
	}
	if code[1] != "0" {
		return fmt.Errorf("the appliance's exit code is %s", code[1])
	}
	if err := g.wait(20 * time.Second); err != nil {
		return err
	}
	if err := noFaults(g.transcript()); err != nil {
		return err
	}
	left, err := s.next("detached", s.sockets[0])
	if err != nil {
		return err
	}
	return errors.Join(left.Stats.clean(), left.Stats.sound())
}

// handOver runs the appliance as a program of a Linux guest, and then gives the
// same device, which nobody has reset in between, to the Linux driver.
func (l *lab) handOver(ctx context.Context, capture string) error {
	file := filepath.Join(l.shared, "pcaps", capture)
	binary, err := os.ReadFile(l.binary)
	if err != nil {
		return err
	}
	want, err := l.embedded(ctx, file)
	if err != nil {
		return err
	}
	s, err := l.serve(ctx, 1, "-wire", "replay:"+file)
	if err != nil {
		return err
	}
	g, err := l.start(ctx, machine{name: "handover", sockets: s.sockets, iommu: true, append: "intel_iommu=on mitigations=off", files: map[string][]byte{"bin/mlx5d": binary}})
	if err != nil {
		return err
	}
	a := address{dev: "eth0"}
	return steps(ctx,
		step{"modules", func() error { return errors.Join(g.all("load vfio_iommu_type1 vfio-pci"), g.quiet()) }},
		step{"appliance", func() error {
			out, err := g.run("mlx5d -pci %s -bind -queues 1 -json -count %.0f 2>/tmp/err || { cat /tmp/err; false; }", slot0, want["packets"])
			if err != nil {
				return err
			}
			got, err := summaryOf(lastLine(out))
			if err != nil {
				return err
			}
			return difference(got, want)
		}},
		step{"given back", func() error {
			return g.until(fmt.Sprintf("[ ! -e /sys/bus/pci/devices/%s/driver ]", slot0))
		}},
		step{"device left clean", func() error { return leftClean(s) }},
		step{"mlx5_core", func() error { return g.loadDriver(1) }},
		step{"link", func() error { return errors.Join(g.all("ip link set eth0 up"), g.carrier(a)) }},
		step{"ethtool", func() error {
			return g.says("/usr/sbin/ethtool eth0", `Speed: 100000Mb/s`, `Link detected: yes`)
		}},
		step{"unload", g.unloadDriver},
		step{"no faults", func() error { return noFaults(g.transcript()) }},
		step{"device left clean again", func() error { return leftClean(s) }},
		step{"power off", g.off},
	)
}
