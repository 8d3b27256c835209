package main

// This file owns the scenario appliance-between: two Linux guests whose only way
// to each other is our binary, which forwards between two ports. They ping, talk
// TCP both ways and compare what they got by checksum, on every data path that
// the binary has.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// between is two Linux guests on functions 0 and 2, and ours on 1 and 3.
type between struct {
	versus
	ends
}

var pathList = regexp.MustCompile(`(?m)^\s*-datapath PATH\s.*\bPATH is (\w+(?:, \w+)*)`)

// dataPaths are the values of -datapath that the binary offers.
func (l *lab) dataPaths(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, l.binary, "-h").Output()
	if err != nil {
		return nil, fmt.Errorf("%s -h: %w", l.binary, err)
	}
	m := pathList.FindSubmatch(out)
	if m == nil {
		return []string{""}, nil
	}
	return strings.Split(string(m[1]), ", "), nil
}

func applianceBetween(ctx context.Context, l *lab) error {
	paths, err := l.dataPaths(ctx)
	if err != nil {
		return err
	}
	b, err := l.putBetween(ctx)
	if err != nil {
		return err
	}
	list := []step{
		{"modules", func() error { return b.box.all("load vfio_iommu_type1 vfio-pci") }},
		{"probe", func() error { return b.each(func(g *guest, _ address) error { return g.loadDriver(1) }) }},
		{"up", func() error {
			return b.both("ip link set eth0 up", fmt.Sprintf("dd if=/dev/urandom of=/tmp/data bs=64k count=%d 2>/dev/null", dataBytes>>16))
		}},
	}
	for _, path := range paths {
		list = append(list, step{"data path " + path, func() error { return b.forward(path) }})
	}
	list = append(list,
		step{"kernel messages", func() error { return b.each(func(g *guest, _ address) error { return g.complaints() }) }},
		step{"unload", func() error { return b.each(func(g *guest, _ address) error { return g.unloadDriver() }) }},
		step{"devices left clean", func() error { return leftClean(b.s) }},
		step{"no faults", func() error { return noFaults(b.box.transcript()) }},
		step{"power off", func() error { return errors.Join(b.g[0].off(), b.g[1].off(), b.box.off()) }},
	)
	return steps(ctx, list...)
}

// putBetween boots the three guests.
func (l *lab) putBetween(ctx context.Context) (*between, error) {
	binary, err := os.ReadFile(l.binary)
	if err != nil {
		return nil, err
	}
	s, err := l.serve(ctx, 4)
	if err != nil {
		return nil, err
	}
	b := &between{versus: versus{s: s, one: oneAddress[0]}, ends: ends{a: oneAddress}}
	for i, name := range []string{"a", "b"} {
		if b.g[i], err = l.boot(ctx, machine{name: name, posted: true, memory: 512, sockets: s.sockets[2*i : 2*i+1], append: "mitigations=off"}); err != nil {
			return nil, err
		}
	}
	b.linux = b.g[0]
	b.box, err = l.boot(ctx, machine{name: "box", posted: true, sockets: []string{s.sockets[1], s.sockets[3]}, iommu: true,
		append: "intel_iommu=on iommu=pt mitigations=off hugepages=120", files: map[string][]byte{"bin/mlx5d": binary}})
	if err != nil {
		return nil, err
	}
	return b, errors.Join(b.g[0].ready(), b.g[1].ready(), b.box.ready())
}

// forward has our binary forward on one data path while the guests talk.
func (b *between) forward(path string) error {
	args := "-mode l2fwd -promisc -pci " + slot0 + ",0000:02:00.0"
	if path != "" {
		args += " -datapath " + path
	}
	r, before, after, err := b.during(args, b.talk)
	if err != nil {
		return err
	}
	if r.RxPackets < 2*dataBytes/64/1024 {
		return fmt.Errorf("%d packets were forwarded", r.RxPackets)
	}
	return balance(r, before, after, 1, 3)
}

// talk pings and exchanges data both ways. Once the link has been up addresses
// stay.
func (b *between) talk() error {
	err := b.each(func(g *guest, a address) error {
		if _, err := g.run("ip addr show dev eth0 | grep -q %s/", a.ip4); err == nil {
			return g.carrier(a)
		}
		return errors.Join(g.configure(a, 1500), g.serveIperf(""))
	})
	if err != nil {
		return err
	}
	for i := range 2 {
		for _, size := range []int{18, 1000, 1472} {
			if err := b.g[i].ping(b.a[i], b.a[1-i].ip4, size, 5); err != nil {
				return err
			}
		}
		if err := b.g[i].ping(b.a[i], b.a[1-i].ip6, 1400, 5); err != nil {
			return err
		}
	}
	return b.exchange(b.a[0], b.a[1])
}
