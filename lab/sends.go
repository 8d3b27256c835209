package main

// This file owns the scenario appliance-sends: our binary sends frames whose
// checksums, tags and segments are left to the device, and Linux receives them.
// Every frame that arrives is the one that a NIC has to make of it, Linux's own
// counters know of no wrong checksum, and its sockets get the payloads.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sendRun is one way to send. Counters are ours, by ethtool's names.
type sendRun struct {
	name        string
	args        string
	mtu         int
	grow, still []string
	large       bool // frames longer than a page, several pieces each
	software    bool // Linux checks sums itself instead of asking its device
}

// sendRuns by profile of the device. cx4 wants headers in the WQE and has no
// multi-packet WQEs and no software parser.
var sendRuns = []struct {
	profile string
	inner   bool // checksums inside tunnels are filled in
	runs    []sendRun
}{
	{"cx5", true, []sendRun{
		{name: "sessions", mtu: 1500, grow: []string{"tx_mpwqe_blks"}},
		{name: "one packet a WQE", args: "-priv-flags skb_tx_mpwqe=off", mtu: 1500, still: []string{"tx_mpwqe_blks"}, software: true},
		{name: "frames in the WQE", args: "-tx-inline 256", mtu: 1500, grow: []string{"tx_mpwqe_blks", "tx_inlnw"}},
		{name: "toggled", args: "-toggle skb_tx_mpwqe=1ms -tx-ring 256", mtu: 1500, software: true},
		{name: "jumbo", mtu: 9000, grow: []string{"tx_mpwqe_blks"}, large: true, software: true},
	}},
	{"cx4", false, []sendRun{
		{name: "inline headers", mtu: 1500, still: []string{"tx_mpwqe_blks"}, software: true},
		{name: "inline headers, jumbo", mtu: 9000, large: true},
	}},
}

// sentFrames and sentBytes bound what a run puts on the wire: the wire and Linux's
// receive ring hold it all, however slow the guest is.
const (
	sentFrames = 4000
	sentBytes  = 6 << 20
	linuxRing  = 8192
)

// linuxMAC is that of the first device.
var linuxMAC = [6]byte{2, 0, 0, 0, 0, 1}

// sendTraffic makes a run's frames: payloads of all sizes, in runs of the same
// shape so that sessions grow, and large ones to be cut.
func sendTraffic(mtu int, inner, large bool) *traffic {
	var t traffic
	size, bytes := 0, 0
	for i := 0; len(t.sent) < sentFrames-40 && bytes < sentBytes-60000; i++ {
		s := shapes[i/6%len(shapes)]
		if s.tunnel != noTunnel && !inner {
			s = shapes[i/6%8]
		}
		room := mtu - s.overhead() + 14
		if s.tag {
			room += 4
		}
		switch {
		case s.tcp && i%6 == 5:
			t.add(s, linuxMAC, 2*room+i*61%(min(54000, 12*room)-2*room), mtu)
		case large && i%6 == 4:
			t.add(s, linuxMAC, room-i%300, mtu)
		default:
			size = (size + 13) % (room + 1)
			t.add(s, linuxMAC, size, mtu)
		}
		bytes += len(t.given[i])
	}
	return &t
}

func applianceSends(ctx context.Context, l *lab) error {
	for _, p := range sendRuns {
		if err := l.sendAs(ctx, p.profile, p.inner, p.runs); err != nil {
			return fmt.Errorf("profile %s: %w", p.profile, err)
		}
	}
	return nil
}

// guestTool builds the guests' own program.
func (l *lab) guestTool(ctx context.Context, name string) ([]byte, error) {
	out := filepath.Join(l.out, name)
	if err := goBuild(ctx, out, "./lab/guest/"+name); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

func (l *lab) sendAs(ctx context.Context, profile string, inner bool, runs []sendRun) error {
	tool, err := l.guestTool(ctx, "frames")
	if err != nil {
		return err
	}
	files := map[string][]byte{"bin/frames": tool}
	mixes := map[string]*traffic{}
	for _, r := range runs {
		name := strconv.Itoa(r.mtu)
		if mixes[name] == nil {
			mixes[name] = sendTraffic(r.mtu, inner, r.large)
			maps.Copy(files, map[string][]byte{"given." + name: capture(mixes[name].given), "sent." + name: capture(mixes[name].sent)})
		}
	}
	v, err := l.face(ctx, 1, files, "-profile", profile)
	if err != nil {
		return err
	}
	v.one = address{dev: "eth0", ip4: "10.0.0.2", ip6: "fd00::2"}
	defer v.linux.kill()
	defer v.box.kill()
	// Linux's link is up while something of ours is at the other end.
	list := []step{{"receiver", func() error {
		if err := v.linux.all(fmt.Sprintf("ethtool -G eth0 rx %d", linuxRing), "ip link set eth0 mtu 9000 up"); err != nil {
			return err
		}
		_, _, _, err := v.during("-mode rxdrop -pci "+slot0, v.receiver)
		return err
	}}}
	for _, r := range runs {
		list = append(list, step{r.name, func() error { return v.sends(r, mixes[strconv.Itoa(r.mtu)], inner) }})
	}
	return steps(ctx, append(list, step{"end", func() error { return v.part(ctx) }})...)
}

// receiver gives Linux an interface for each net of shapes.
func (v *versus) receiver() error {
	g := v.linux
	err := errors.Join(
		g.all("load 8021q vxlan geneve"),
		g.configure(v.one, 9000),
		g.all("ethtool -K eth0 gro off",
			"ip link add net1 link eth0 type vlan id 100",
			"ip link add net2 type vxlan id 2 dstport 4789 local 10.0.0.2 remote 10.0.0.1 dev eth0",
			"ip link add net3 type vxlan id 3 dstport 4789 local fd00::2 remote fd00::1 dev eth0 udp6zerocsumrx",
			"ip link add net4 type geneve id 4 remote 10.0.0.1",
		))
	for net := 1; net <= 4; net++ {
		dev := fmt.Sprintf("net%d", net)
		if net > 1 {
			err = errors.Join(err, g.all(fmt.Sprintf("ip link set %s address 02:00:00:00:01:%02x mtu 8900", dev, net)))
		}
		err = errors.Join(err, g.all("ethtool -K "+dev+" gro off", "ip link set "+dev+" up",
			fmt.Sprintf("ip addr add 10.%d.0.2/24 dev %s", net, dev), fmt.Sprintf("ip -6 addr add fd%02x::2/64 dev %s nodad", net, dev)))
	}
	return err
}

// loss are Linux's counters of what it found wrong.
var loss = []string{"IpInHdrErrors", "IpExtInCsumErrors", "IpExtInTruncatedPkts", "UdpInErrors", "UdpInCsumErrors", "UdpRcvbufErrors", "UdpNoPorts", "TcpInErrs", "TcpInCsumErrors",
	"Ip6InHdrErrors", "Ip6InTruncatedPkts", "Udp6InErrors", "Udp6InCsumErrors", "Udp6RcvbufErrors", "Udp6NoPorts"}

// kernel is what the network stack of a namespace counted, by the names of nstat.
func (g *guest) kernel(where string) (map[string]uint64, error) {
	out, err := g.run("%scat /proc/net/snmp /proc/net/netstat /proc/net/snmp6", where)
	if err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	var names []string
	for _, line := range strings.Split(out, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && !strings.HasSuffix(f[0], ":"):
			all[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
		case len(f) > 1 && len(names) == len(f) && names[0] == f[0]:
			for i := range f[1:] {
				all[strings.TrimSuffix(f[0], ":")+names[i+1]], _ = strconv.ParseUint(f[i+1], 10, 64)
			}
			names = nil
		default:
			names = f
		}
	}
	if len(all) < 100 {
		return nil, fmt.Errorf("the kernel counts %d things only", len(all))
	}
	return all, nil
}

// sends has our binary send a run's frames once, and looks at what Linux got.
func (v *versus) sends(r sendRun, t *traffic, inner bool) error {
	g, on := v.linux, "on"
	if r.software {
		on = "off"
	}
	want := fmt.Sprintf("/sent.%d", r.mtu)
	err := errors.Join(g.all("ethtool -K eth0 rx "+on), g.all("rm -f /tmp/got; tcpdump -p -Z root -i eth0 -Q in -B 65536 -s 0 -U -w /tmp/got ether src 06:00:00:00:00:aa 2>/tmp/dump & echo $! >/tmp/dump.pid",
		fmt.Sprintf("frames receive %s %d >/tmp/sock & echo $! >/tmp/sock.pid", want, labPort)),
		g.until("grep -q 'listening on' /tmp/dump"), g.until("grep -q listening /tmp/sock"))
	if err != nil {
		return err
	}
	was, err := g.kernel("")
	if err != nil {
		return err
	}
	before, err := v.s.stats()
	if err != nil {
		return err
	}
	out, err := v.box.run("mlx5d -bind -pci %s -mode txonly -queues 1 -mtu %d -r /given.%d -count %d -offload csum,vlan,tso -stats %s 2>/tmp/err || { cat /tmp/err; false; }",
		slot0, r.mtu, r.mtu, len(t.given), r.args)
	if err != nil {
		return err
	}
	ours := (&boxRun{text: strings.Split(out, "\n")}).counters()
	after, err := v.s.stats()
	if err != nil {
		return err
	}
	if got := after[1].TxFrames - before[1].TxFrames; got != uint64(len(t.sent)) {
		return fmt.Errorf("the device sent %d frames of %d", got, len(t.sent))
	}
	if n := after[1].WireDropped - before[1].WireDropped; n > 0 {
		return fmt.Errorf("the wire had no room for %d frames", n)
	}
	return errors.Join(v.arrived(want, t, was), t.counted(ours, r, inner))
}

// arrived compares what Linux got with what had to come.
func (v *versus) arrived(want string, t *traffic, was map[string]uint64) error {
	g := v.linux
	out, err := g.run("wait $(cat /tmp/sock.pid); c=$?; cat /tmp/sock; [ $c = 0 ]")
	if err != nil {
		out2, _ := g.run("kill -INT $(cat /tmp/dump.pid); sleep 1; cat /tmp/dump; frames compare %s /tmp/got; cat /proc/net/snmp; ethtool -S eth0 | grep -v ': 0'", want)
		return fmt.Errorf("sockets: %s: %w (%s)", lastLine(out), err, lastLine(out2))
	}
	if err := g.until(fmt.Sprintf("[ $(wc -c </tmp/got) -ge %d ]", len(capture(t.sent)))); err != nil {
		return fmt.Errorf("tcpdump's file stays short: %w", err)
	}
	now, err := g.kernel("")
	if err != nil {
		return err
	}
	if out, err = g.run("kill -INT $(cat /tmp/dump.pid); wait $(cat /tmp/dump.pid); cat /tmp/dump >/dev/console; frames compare %s /tmp/got", want); err != nil {
		return fmt.Errorf("frames: %s", lastLine(out))
	}
	if all := fmt.Sprintf("equal %d missing 0", len(t.sent)); lastLine(out) != all {
		return fmt.Errorf("frames: %s instead of %s", lastLine(out), all)
	}
	for _, k := range loss {
		if now[k] != was[k] {
			return fmt.Errorf("the kernel counted %s: %d", k, now[k]-was[k])
		}
	}
	tcp := uint64(0)
	for _, s := range t.kinds {
		if s.tcp {
			tcp++
		}
	}
	if n := now["TcpInSegs"] - was["TcpInSegs"]; n != tcp {
		return fmt.Errorf("the kernel counted %d TCP segments of %d", n, tcp)
	}
	return nil
}

// counted holds our own counters against what had to be done.
func (t *traffic) counted(ours map[string]uint64, r sendRun, inner bool) error {
	tunnelled := t.tunnelled
	if !inner {
		tunnelled = 0
	}
	for _, k := range []struct {
		name string
		want int
	}{
		{"tx_packets", len(t.sent)}, {"tx_tso_packets", t.large}, {"tx_tso_inner_packets", t.largeInner}, {"tx_added_vlan_packets", t.tagged}, {"tx_csum_partial_inner", tunnelled},
		{"tx_csum_partial", len(t.sent) - tunnelled}, {"tx_csum_none", 0}, {"tx_queue_dropped", 0}, {"tx_cqe_err", 0}, {"tx_recover", 0},
	} {
		if got, ok := ours[k.name]; !ok || got != uint64(k.want) {
			return fmt.Errorf("our counter %s is %d, not %d", k.name, got, k.want)
		}
	}
	return moved(nil, ours, r.grow, r.still)
}
