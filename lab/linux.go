package main

// This file owns what the Linux scenarios share: loading the driver, reading
// its kernel messages, its counters and settings. It asserts nothing about a
// scenario's traffic.

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// expected are the kernel's warnings that say nothing against the device.
var expected = []struct {
	line *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`mlx5_core .*Failed to get valid vendor specific ID`),
		"the device has no vendor specific capability, as some firmware: firmware dumps and software reset are then left out"},
	{regexp.MustCompile(`mlx5_core .*PTM is not supported by PCIe`),
		"precision time measurement is a root complex matter and optional"},
	{regexp.MustCompile(`mlx5_core .*invalid device_frequency_khz, aborting HW clock init`),
		"firmware as old as that of profile cx4 tells its frequency in MHz only"},
	{regexp.MustCompile(`mlx5_core .*Self loop back prevention is not supported`),
		"and has no such thing"},
	{regexp.MustCompile(`mlx5_core .*Disabling rxhash, not supported when CQE compress is active`),
		"the kernel's own choice: compressed completions hold either checksum or hash"},
}

// starved are warnings that say only that the host had no time for the guest.
var starved = regexp.MustCompile(`hrtimer: interrupt took \d+ ns|clocksource: .*(skew|unstable|Marking)|workqueue: .* hogged CPU`)

var rawMessage = regexp.MustCompile(`^<(\d+)>(.*)$`)

// complaints are the kernel messages since the last call that are warnings or
// worse and not expected.
func (g *guest) complaints() error {
	out, err := g.run("dmesg -r -c")
	if err != nil {
		return err
	}
	var bad []error
	for _, line := range strings.Split(out, "\n") {
		m := rawMessage.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		level, _ := strconv.Atoi(m[1])
		if level&7 <= 4 && !isExpected(m[2]) {
			bad = append(bad, errors.New("kernel: "+strings.TrimSpace(m[2])))
		}
	}
	if len(bad) > 6 {
		bad = append(bad[:6], fmt.Errorf("and %d lines more", len(bad)-6))
	}
	return errors.Join(bad...)
}

func isExpected(line string) bool {
	if starved.MatchString(line) {
		return true
	}
	for _, e := range expected {
		if e.line.MatchString(line) {
			return true
		}
	}
	return false
}

// quiet drops the kernel messages so far: a machine's own at boot.
func (g *guest) quiet() error {
	_, err := g.run("dmesg -c >/dev/null")
	return err
}

// loadDriver loads mlx5_core and waits for its interfaces, eth0 and up.
func (g *guest) loadDriver(n int) error {
	if err := g.quiet(); err != nil {
		return err
	}
	if _, err := g.run("load mlx5_core"); err != nil {
		return fmt.Errorf("loading mlx5_core: %w", err)
	}
	if err := g.until(fmt.Sprintf("[ -e /sys/class/net/eth%d ]", n-1)); err != nil {
		return errors.Join(fmt.Errorf("mlx5_core made no interface eth%d", n-1), g.complaints())
	}
	return g.complaints()
}

// until polls a condition in the guest for as long as a probe may take.
func (g *guest) until(condition string) error {
	_, err := g.run("i=0; until %s; do i=$((i+1)); [ $i -lt 100 ] || break; sleep 0.1; done; %s", condition, condition)
	return err
}

// unloadDriver removes mlx5_core.
func (g *guest) unloadDriver() error {
	if _, err := g.run("rmmod mlx5_core"); err != nil {
		return err
	}
	return g.complaints()
}

// address is where an interface is and what it is called on the network.
type address struct {
	where string // command prefix that enters its network namespace
	dev   string
	ip4   string
	ip6   string
}

// pair gives a guest's two interfaces to two network namespaces, so that what
// one sends to the other has to cross the wire.
func (g *guest) pair(mtu int) (a, b address, err error) {
	a = address{where: "ip netns exec one ", dev: "eth0", ip4: "10.0.0.1", ip6: "fd00::1"}
	b = address{where: "ip netns exec two ", dev: "eth1", ip4: "10.0.0.2", ip6: "fd00::2"}
	err = g.all("ip netns add one", "ip netns add two", "ip link set eth0 netns one", "ip link set eth1 netns two")
	if err != nil {
		return a, b, err
	}
	if err := g.configure(a, mtu); err != nil {
		return a, b, err
	}
	return a, b, g.configure(b, mtu)
}

// configure brings an interface up with its addresses and waits for carrier.
func (g *guest) configure(a address, mtu int) error {
	return errors.Join(g.hush(a), g.all(
		a.where+"ip link set lo up",
		a.where+fmt.Sprintf("ip link set %s mtu %d up", a.dev, mtu),
		a.where+fmt.Sprintf("ip addr add %s/24 dev %s", a.ip4, a.dev),
		a.where+fmt.Sprintf("ip addr add %s/64 dev %s nodad", a.ip6, a.dev),
	), g.carrier(a))
}

// hush keeps the kernel from sending on its own some seconds after the fact: what
// is counted at the end of a run must not change while it is counted.
func (g *guest) hush(a address) error {
	return g.all(fmt.Sprintf("%ssh -c 'cd /proc/sys/net; echo 0 >ipv6/conf/%[2]s/router_solicitations; echo 1 >ipv6/mld_qrv; echo 1 >ipv6/conf/%[2]s/mldv2_unsolicited_report_interval; "+
		"for v in 4 6; do echo 3600 >ipv$v/neigh/%[2]s/delay_first_probe_time; done'", a.where, a.dev))
}

func (g *guest) carrier(a address) error {
	if err := g.until(a.where + "/bin/grep -q 1 /sys/class/net/" + a.dev + "/carrier"); err != nil {
		return fmt.Errorf("%s has no carrier", a.dev)
	}
	return nil
}

var pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// ping sends echo requests of so many payload bytes until count of them have
// come back unchanged. Requests that are still under way then are not lost:
// the counters tell.
func (g *guest) ping(from address, to string, size, count int) error {
	out, err := g.run("%s/usr/bin/ping -q -c %d -i 0.01 -w 20 -p a55a -s %d %s", from.where, count, size, to)
	m := pingSummary.FindStringSubmatch(out)
	got := 0
	if m != nil {
		got, _ = strconv.Atoi(m[2])
	}
	if err != nil || got < count || strings.Contains(out, "wrong data") || strings.Contains(out, "DUP") {
		return fmt.Errorf("ping of %d bytes from %s to %s: %s", size, from.dev, to, strings.ReplaceAll(out, "\n", " / "))
	}
	return nil
}

var counterLine = regexp.MustCompile(`^\s*([\w\[\]]+): (\d+)$`)

// counters is ethtool -S.
func (g *guest) counters(a address) (map[string]uint64, error) {
	out, err := g.run("%s/usr/sbin/ethtool -S %s", a.where, a.dev)
	if err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for _, line := range strings.Split(out, "\n") {
		if m := counterLine.FindStringSubmatch(line); m != nil {
			all[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
		}
	}
	if len(all) < 100 {
		return nil, fmt.Errorf("ethtool -S %s knows %d counters only", a.dev, len(all))
	}
	return all, nil
}

// says requires that a command's output matches every pattern.
func (g *guest) says(command string, patterns ...string) error {
	out, err := g.run("%s", command)
	if err != nil {
		return err
	}
	return says(fmt.Sprintf("%q", command), out, patterns...)
}

// says is an error that names who unless text matches every pattern.
func says(who, text string, patterns ...string) error {
	for _, p := range patterns {
		if ok, err := regexp.MatchString("(?m)"+p, text); err != nil || !ok {
			return fmt.Errorf("%s does not say %q", who, p)
		}
	}
	return nil
}

// steps runs named checks in order and stops at the first that fails.
func steps(ctx context.Context, list ...step) error {
	for _, s := range list {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("before %s: %w", s.name, err)
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

type step struct {
	name string
	do   func() error
}

// settle gives frames that are under way time to arrive and be counted.
const settle = 300 * time.Millisecond
