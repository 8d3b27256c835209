package main

// This file owns the scenario linux-traffic: two guests with the unmodified
// Linux driver talk TCP over the wire while one feature after the other is
// switched. What arrives is compared by checksum, and each setting has counters
// that prove it was really in use.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// setting is one configuration of both ends.
type setting struct {
	name string
	set  []string // commands; DEV is the interface
	// grow are counters that have to grow on either side while data flows, and
	// still are those that must not.
	grow, still []string
}

// settings run in order; each leaves the interface as the next one expects.
var settings = []setting{
	{"as probed", nil, []string{"tx_tso_packets", "tx_csum_partial", "rx_csum_complete|rx_csum_unnecessary", "tx_mpwqe_blks"}, nil},
	{"TSO off", []string{"ethtool -K DEV tso off"}, []string{"tx_csum_partial"}, []string{"tx_tso_packets"}},
	{"checksum offloads off", []string{"ethtool -K DEV tx off rx off"}, []string{"rx_csum_none"}, []string{"tx_csum_partial", "rx_csum_complete", "rx_csum_unnecessary"}},
	{"offloads on again", []string{"ethtool -K DEV tx on rx on tso on"}, []string{"tx_tso_packets", "tx_csum_partial"}, nil},
	{"MPWQE off", []string{"ethtool --set-priv-flags DEV skb_tx_mpwqe off"}, []string{"tx_packets"}, []string{"tx_mpwqe_blks"}},
	{"MPWQE on", []string{"ethtool --set-priv-flags DEV skb_tx_mpwqe on"}, []string{"tx_mpwqe_blks"}, nil},
	{"legacy RQ", []string{"ethtool --set-priv-flags DEV rx_striding_rq off"}, []string{"rx_packets"}, nil},
	{"legacy RQ, MTU 9000", []string{"ip link set DEV mtu 9000"}, []string{"tx_tso_packets"}, nil},
	{"striding RQ, MTU 9000", []string{"ethtool --set-priv-flags DEV rx_striding_rq on"}, []string{"tx_tso_packets"}, nil},
	{"striding RQ", []string{"ip link set DEV mtu 1500"}, []string{"rx_packets"}, nil},
	{"CQE compression, striding RQ", []string{"ethtool --set-priv-flags DEV rx_cqe_compress on"}, []string{"rx_cqe_compress_blks"}, nil},
	{"CQE compression, legacy RQ", []string{"ethtool --set-priv-flags DEV rx_striding_rq off"}, []string{"rx_cqe_compress_blks"}, nil},
	{"as probed again", []string{"ethtool --set-priv-flags DEV rx_cqe_compress off", "ethtool --set-priv-flags DEV rx_striding_rq on"}, nil, []string{"rx_cqe_compress_blks"}},
	{"small rings", []string{"ethtool -G DEV rx 128 tx 128"}, []string{"rx_packets"}, nil},
	{"large rings", []string{"ethtool -G DEV rx 4096 tx 4096"}, []string{"rx_packets"}, nil},
}

// ends are the two guests.
type ends struct {
	g [2]*guest
	a [2]address
}

var oneAddress = [2]address{{dev: "eth0", ip4: "10.0.0.1", ip6: "fd00::1"}, {dev: "eth0", ip4: "10.0.0.2", ip6: "fd00::2"}}

// both runs commands on both guests.
func (e *ends) both(commands ...string) error {
	for _, c := range commands {
		c = strings.ReplaceAll(c, "DEV", "eth0")
		for _, g := range e.g {
			if err := g.tell(c); err != nil {
				return err
			}
		}
		var failed error
		for _, g := range e.g {
			r, err := g.await(commandPatience, c)
			if err == nil && r.code != 0 {
				err = fmt.Errorf("guest %s: %q gave %d: %s", g.name, c, r.code, lastLine(r.out))
			}
			failed = errors.Join(failed, err)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// each runs a check on both guests.
func (e *ends) each(do func(g *guest, a address) error) error {
	for i, g := range e.g {
		if err := do(g, e.a[i]); err != nil {
			return fmt.Errorf("guest %s: %w", g.name, err)
		}
	}
	return nil
}

// twoGuests boots two machines with a function each, joined by the wire.
func (l *lab) twoGuests(ctx context.Context, s *server, m machine) (*ends, error) {
	e := &ends{a: oneAddress}
	errs := make(chan error, 2)
	for i, name := range []string{"a", "b"} {
		own := m
		own.name, own.sockets = name, s.sockets[i:i+1]
		g, err := l.boot(ctx, own)
		if err != nil {
			return nil, err
		}
		e.g[i] = g
		go func() { errs <- g.ready() }()
	}
	return e, errors.Join(<-errs, <-errs)
}

func linuxTraffic(ctx context.Context, l *lab) error {
	tool := filepath.Join(l.out, "xdptx")
	if err := goBuild(ctx, tool, "./lab/guest/xdptx"); err != nil {
		return err
	}
	xdptx, err := os.ReadFile(tool)
	if err != nil {
		return err
	}
	s, err := l.serve(ctx, 2)
	if err != nil {
		return err
	}
	e, err := l.twoGuests(ctx, s, machine{cpus: 2, posted: true, append: "mitigations=off", files: map[string][]byte{"bin/xdptx": xdptx}})
	if err != nil {
		return err
	}
	return steps(ctx,
		step{"probe", func() error { return e.each(func(g *guest, _ address) error { return g.loadDriver(1) }) }},
		step{"link", func() error { return e.each(func(g *guest, a address) error { return g.configure(a, 1500) }) }},
		step{"data", func() error {
			return e.both(fmt.Sprintf("dd if=/dev/urandom of=/tmp/data bs=64k count=%d 2>/dev/null", dataBytes>>16))
		}},
		step{"iperf3", func() error { return e.each(func(g *guest, _ address) error { return g.serveIperf("") }) }},
		step{"settings", func() error { return e.walk(ctx) }},
		step{"VLAN", e.vlans},
		step{"queues", e.queues},
		step{"XDP", func() error { return e.xdp(ctx) }},
		step{"down and up", e.downUp},
		step{"kernel messages", func() error { return e.each(func(g *guest, _ address) error { return g.complaints() }) }},
		step{"reload", func() error { return e.reload(s) }},
		step{"power off", func() error { return errors.Join(e.g[0].off(), e.g[1].off()) }},
	)
}

// walk goes through the settings.
func (e *ends) walk(ctx context.Context) error {
	for _, k := range settings {
		err := steps(ctx,
			step{"setting", func() error { return e.both(k.set...) }},
			step{"carrier", func() error { return e.each((*guest).carrier) }},
			step{"traffic", func() error { return e.watched(k.grow, k.still, func() error { return e.exchange(e.a[0], e.a[1]) }) }},
			step{"kernel messages", func() error { return e.each(func(g *guest, _ address) error { return g.complaints() }) }},
		)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// watched does something and then requires that each counter of grow became
// larger on either side, and that none of still did, nor any that means loss.
func (e *ends) watched(grow, still []string, do func() error) error {
	var before [2]map[string]uint64
	for i, g := range e.g {
		c, err := g.counters(e.a[i])
		if err != nil {
			return err
		}
		before[i] = c
	}
	if err := do(); err != nil {
		return err
	}
	return e.each(func(g *guest, a address) error {
		after, err := g.counters(a)
		if err != nil {
			return err
		}
		was := before[0]
		if g == e.g[1] {
			was = before[1]
		}
		return moved(was, after, grow, still)
	})
}

// moved compares two readings; a name may hold alternatives, parted by a bar.
func moved(before, after map[string]uint64, grow, still []string) error {
	sum := func(c map[string]uint64, names string) (n uint64) {
		for _, k := range strings.Split(names, "|") {
			n += c[k]
		}
		return n
	}
	for _, k := range grow {
		if sum(after, k) <= sum(before, k) {
			return fmt.Errorf("counter %s stayed at %d", k, sum(after, k))
		}
	}
	for _, k := range append([]string{"rx_wqe_err", "tx_cqe_err", "rx_crc_errors_phy", "rx_oversize_pkts_buffer", "ch_eq_rearm", "tx_recover", "rx_recover"}, still...) {
		if sum(after, k) != sum(before, k) {
			return fmt.Errorf("counter %s went from %d to %d", k, sum(before, k), sum(after, k))
		}
	}
	return nil
}

// exchange sends data over TCP both ways, for a time and by checksum.
func (e *ends) exchange(a, b address) error {
	for _, args := range []string{b.ip4, b.ip4 + " -R", b.ip6} {
		if err := e.g[0].iperf("", e.refused, args); err != nil {
			return err
		}
	}
	if err := carry(e.g[0], e.g[1], b.ip4); err != nil {
		return err
	}
	return carry(e.g[1], e.g[0], a.ip6)
}

// streamBytes is what one test of iperf3 sends.
const streamBytes = 1 << 20

// refused counts the packets that found no buffer at either end: a guest under the
// emulator is slow, and a small ring is full when a window comes at once.
func (e *ends) refused() (n uint64, err error) {
	err = e.each(func(g *guest, a address) error {
		c, err := g.counters(a)
		n += c["rx_out_of_buffer"] + c["rx_xsk_out_of_buffer"]
		return err
	})
	return n, err
}

// nothing is refused where every packet must find a buffer.
func nothing() (uint64, error) { return 0, nil }

// iperf sends so much over TCP, and requires that it arrives and that nearly
// nothing of it was lost without being counted by refused: what was sent again
// only because a slow guest was late is reported as a duplicate by the end that
// gets it. How fast says more about the machine under the emulator.
func (g *guest) iperf(where string, refused func() (uint64, error), args ...string) error {
	before, err := g.kernel(where)
	if err != nil {
		return err
	}
	full, err := refused()
	if err != nil {
		return err
	}
	out, err := g.run("%siperf3 -J -n %d -c %s", where, streamBytes, strings.Join(args, " "))
	if err != nil {
		return err
	}
	var r struct {
		Error string `json:"error"`
		End   struct {
			Sent struct {
				Again int `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Bytes int `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out[max(0, strings.IndexByte(out, '{')):]), &r); err != nil || r.Error != "" {
		return fmt.Errorf("iperf3 %v: %s %w", args, r.Error, err)
	}
	twice := 0 // segments sent again for a reason that is known
	if r.End.Sent.Again > 20 {
		after, err := g.kernel(where)
		if err != nil {
			return err
		}
		for _, k := range []string{"TcpExtTCPDSACKRecv", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent"} {
			twice += int(after[k] - before[k])
		}
		now, err := refused()
		if err != nil {
			return err
		}
		twice += int(now - full)
	}
	if r.End.Received.Bytes < streamBytes/2 || r.End.Sent.Again > 20+twice {
		return fmt.Errorf("iperf3 %v: %d bytes came through, %d segments were sent again", args, r.End.Received.Bytes, r.End.Sent.Again)
	}
	return nil
}

// persist repeats a command that fails at once while the other end does not listen
// yet.
func persist(command string) string {
	return fmt.Sprintf("i=0; until %s; do i=$((i+1)); [ $i -lt 50 ] || break; sleep 0.1; done; [ $i -lt 50 ]", command)
}

// serveIperf starts iperf3's server, once, and waits until it listens.
func (g *guest) serveIperf(where string) error {
	const listening = "/bin/grep -q :1451 /proc/net/tcp6 /proc/net/tcp"
	if _, err := g.run("%s%s || %siperf3 -s -D", where, listening, where); err != nil {
		return err
	}
	return g.until(where + listening)
}

// dataBytes is the size of the file that is sent.
const dataBytes = 2 << 20

var digest = regexp.MustCompile(`[0-9a-f]{64}`)

// carry sends a file over TCP and compares its checksum at the other end.
func carry(from, to *guest, ip string) error {
	// A pipe that nobody closes: nc would close its side at the end of input.
	const listen = "[ -p /tmp/pipe ] || mkfifo /tmp/pipe; nc -l -p 5300 <>/tmp/pipe >/tmp/got; sha256sum </tmp/got; wc -c </tmp/got"
	if err := to.tell(listen); err != nil {
		return err
	}
	out, err := from.run("sha256sum </tmp/data; %s", persist("nc "+ip+" 5300 </tmp/data"))
	got, err2 := to.await(commandPatience, listen)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("sending a file to %s: %w", ip, err)
	}
	if sent := digest.FindString(out); sent == "" || sent != digest.FindString(got.out) {
		return fmt.Errorf("a file sent to %s arrived changed, %s bytes of %d: %s became %s", ip, lastLine(got.out), dataBytes, sent, digest.FindString(got.out))
	}
	return nil
}

// vlans talks over a VLAN with tags inserted and stripped by the device, then
// by the kernel.
func (e *ends) vlans() error {
	if err := e.both("load 8021q", "ip link add link eth0 name eth0.100 type vlan id 100", "ip link set eth0.100 up"); err != nil {
		return err
	}
	if err := e.each(func(g *guest, a address) error {
		return g.all(fmt.Sprintf("ip addr add 10.1.0%s/24 dev eth0.100", a.ip4[len("10.0.0"):]), fmt.Sprintf("ip addr add fd01::%s/64 dev eth0.100 nodad", a.ip4[len("10.0.0."):]))
	}); err != nil {
		return err
	}
	va, vb := address{ip4: "10.1.0.1", ip6: "fd01::1"}, address{ip4: "10.1.0.2", ip6: "fd01::2"}
	for _, k := range []struct {
		flag        string
		grow, still []string
	}{
		{"on", []string{"tx_added_vlan_packets", "rx_removed_vlan_packets"}, nil},
		{"off", nil, []string{"tx_added_vlan_packets", "rx_removed_vlan_packets"}},
		{"on", []string{"tx_added_vlan_packets", "rx_removed_vlan_packets"}, nil},
	} {
		if err := e.both("ethtool -K DEV rxvlan " + k.flag + " txvlan " + k.flag); err != nil {
			return err
		}
		if err := e.watched(k.grow, k.still, func() error { return e.exchange(va, vb) }); err != nil {
			return fmt.Errorf("offload %s: %w", k.flag, err)
		}
	}
	// A VLAN that nobody joined is filtered out by the other end.
	return e.both("ip link del eth0.100")
}

// queues spreads flows over two channels and requires that each receives.
func (e *ends) queues() error {
	if err := e.both("ethtool -L DEV combined 2"); err != nil {
		return err
	}
	if err := e.each((*guest).carrier); err != nil {
		return err
	}
	grow := []string{"rx0_packets", "rx1_packets", "tx0_packets|tx1_packets"}
	if err := e.watched(grow, nil, func() error { return e.g[0].iperf("", e.refused, e.a[1].ip4, "-P 16") }); err != nil {
		return fmt.Errorf("two channels: %w", err)
	}
	if err := e.both("ethtool -X DEV weight 0 1"); err != nil {
		return err
	}
	if err := e.watched([]string{"rx1_packets"}, []string{"rx0_packets"}, func() error { return e.g[0].iperf("", e.refused, e.a[1].ip4, "-P 8") }); err != nil {
		return fmt.Errorf("indirection to the second channel only: %w", err)
	}
	if err := e.both("ethtool -X DEV default", "ethtool -L DEV combined 1"); err != nil {
		return err
	}
	return e.each((*guest).carrier)
}

// xdpFrames is what pktgen sends for the XDP test: the receive ring has room
// for them all, however slow the guest is.
const xdpFrames = 3000

// xdp floods one guest, whose XDP program sends every frame back.
func (e *ends) xdp(ctx context.Context) error {
	if err := e.g[0].all("load pktgen"); err != nil {
		return err
	}
	mac, err := e.g[1].run("cat /sys/class/net/eth0/address")
	if err != nil {
		return err
	}
	for _, flag := range []string{"off", "on"} {
		if err := e.g[1].all("ethtool --set-priv-flags eth0 xdp_tx_mpwqe "+flag, "xdptx eth0 >/tmp/xdp 2>&1 & echo $! >/tmp/xdp.pid"); err != nil {
			return err
		}
		if err := e.g[1].until("grep -q attached /tmp/xdp"); err != nil {
			out, _ := e.g[1].run("cat /tmp/xdp")
			return fmt.Errorf("attaching the XDP program: %s", out)
		}
		if err := steps(ctx,
			step{"carrier", func() error { return e.each((*guest).carrier) }},
			step{"frames", func() error { return e.bounce(flag, lastLine(mac)) }},
			step{"detaching", func() error { return e.g[1].all("kill $(cat /tmp/xdp.pid); wait $(cat /tmp/xdp.pid); true") }},
		); err != nil {
			return fmt.Errorf("xdp_tx_mpwqe %s: %w", flag, err)
		}
	}
	return e.each((*guest).carrier)
}

// bounce sends frames to the XDP program and requires each of them back, but
// for those that a counter names as lost to a full ring.
func (e *ends) bounce(mpwqe, mac string) error {
	var before, after [2]map[string]uint64
	read := func(into *[2]map[string]uint64) error {
		for i, g := range e.g {
			c, err := g.counters(e.a[i])
			if err != nil {
				return err
			}
			into[i] = c
		}
		return nil
	}
	if err := read(&before); err != nil {
		return err
	}
	_, sent, err := e.g[0].pktgen("eth0", pktgenRun{count: xdpFrames, burst: 16, clone: 1000, mac: mac, delay: 20000})
	if err != nil {
		return err
	}
	time.Sleep(settle)
	if err := read(&after); err != nil {
		return err
	}
	grew := func(i int, name string) uint64 { return after[i][name] - before[i][name] }
	back, lost := grew(1, "rx_xdp_tx_xmit"), grew(1, "rx_out_of_buffer")+grew(1, "rx_xdp_tx_full")
	if back+lost < uint64(sent) || back < uint64(sent)*9/10 {
		return fmt.Errorf("%d of %d frames were sent back, %d found no room", back, sent, lost)
	}
	if n := grew(0, "rx_packets_phy"); n < back {
		return fmt.Errorf("%d of %d frames came back", n, back)
	}
	if n := grew(1, "rx_xdp_tx_mpwqe"); (n > 0) != (mpwqe == "on") {
		return fmt.Errorf("%d multi-packet work requests", n)
	}
	return nil
}

// downUp takes the interface down and up again, twenty times.
func (e *ends) downUp() error {
	if _, err := e.g[0].runFor(2*time.Minute, "for i in $(seq 20); do ip link set eth0 down && ip link set eth0 up || break; done"); err != nil {
		return err
	}
	if err := e.each((*guest).carrier); err != nil {
		return err
	}
	if err := e.g[0].all("ip -6 addr add " + e.a[0].ip6 + "/64 dev eth0 nodad"); err != nil {
		return err
	}
	return e.exchange(e.a[0], e.a[1])
}

// reload removes and loads the driver twice; each time the device is empty in
// between and works after.
func (e *ends) reload(s *server) error {
	for range 2 {
		if err := e.each(func(g *guest, _ address) error { return g.unloadDriver() }); err != nil {
			return err
		}
		if err := leftClean(s); err != nil {
			return err
		}
		if err := e.each(func(g *guest, a address) error {
			return errors.Join(g.loadDriver(1), g.configure(a, 1500))
		}); err != nil {
			return err
		}
		if err := e.exchange(e.a[0], e.a[1]); err != nil {
			return err
		}
	}
	if err := e.each(func(g *guest, _ address) error { return g.unloadDriver() }); err != nil {
		return err
	}
	return leftClean(s)
}

// pktgenRun is one run of the kernel's packet generator.
type pktgenRun struct {
	count, burst, clone int
	delay               int // nanoseconds between bursts
	mac                 string
	size                int // default 60
}

var pktgenResult = regexp.MustCompile(`Result: OK: (\d+)\(c(\d+)\+d(\d+)\) usec, (\d+) \((\d+)byte`)

// pktgen runs the generator on the first CPU and returns the microseconds that
// it did not idle, and how many frames it sent: it ends with a whole burst.
func (g *guest) pktgen(dev string, k pktgenRun) (busy, sent int, err error) {
	if k.size == 0 {
		k.size = 60
	}
	put := func(file, format string, args ...any) string {
		return fmt.Sprintf("echo "+format+" >/proc/net/pktgen/"+file, args...)
	}
	commands := []string{
		"load pktgen",
		put("kpktgend_0", "rem_device_all"), put("kpktgend_0", "add_device %s", dev),
		put(dev, "count %d", k.count), put(dev, "clone_skb %d", k.clone), put(dev, "pkt_size %d", k.size), put(dev, "burst %d", k.burst),
		put(dev, "delay %d", k.delay), put(dev, "dst_mac %s", k.mac), put(dev, "dst 198.18.0.2"), put(dev, "src_min 198.18.0.1"), put(dev, "src_max 198.18.0.1"),
	}
	if err := g.all(commands...); err != nil {
		return 0, 0, err
	}
	if _, err := g.runFor(2*time.Minute, "%s", put("pgctrl", "start")); err != nil {
		return 0, 0, err
	}
	out, err := g.run("cat /proc/net/pktgen/%s", dev)
	if err != nil {
		return 0, 0, err
	}
	m := pktgenResult.FindStringSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("pktgen on %s: %s", dev, lastLine(out))
	}
	busy, _ = strconv.Atoi(m[2])
	sent, _ = strconv.Atoi(m[4])
	if sent < k.count || sent >= k.count+k.burst {
		return 0, 0, fmt.Errorf("pktgen on %s sent %d of %d frames", dev, sent, k.count)
	}
	return busy, sent, nil
}
