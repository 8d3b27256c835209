package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// bpdu is a frame of the spanning tree protocol, or another 802.3 frame to dst.
func bpdu(dst [6]byte) []byte {
	b := make([]byte, 60)
	copy(b, dst[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 9, 0, 38, 0x42, 0x42, 3})
	return b
}

// to sets a frame's destination address.
func to(b []byte, dst [6]byte) []byte {
	copy(b, dst[:])
	return b
}

// trapTraffic is what each kind of frame is to the trap queue.
var trapTraffic = []struct {
	name  string
	trap  bool
	frame []byte
}{
	{"LLDP", true, floodFrame},
	{"LLDP to another address", true, ethFrame(ethLLDP, numberedBody(0))},
	{"LACP", true, to(ethFrame(ethSlow, numberedBody(0)), [6]byte{0x01, 0x80, 0xc2, 0, 0, 2})},
	{"STP", true, bpdu([6]byte{0x01, 0x80, 0xc2, 0, 0, 0})},
	{"802.1X", true, to(ethFrame(0x888e, numberedBody(0)), [6]byte{0x01, 0x80, 0xc2, 0, 0, 3})},
	{"IP to the last bridge address", true, to(ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(1, 2, numberedBody(0)))), [6]byte{0x01, 0x80, 0xc2, 0, 0, 0x0f})},
	{"beyond the bridge addresses", false, to(ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(1, 2, numberedBody(0)))), [6]byte{0x01, 0x80, 0xc2, 0, 0, 0x10})},
	{"BGP to a speaker", true, ethFrame(ethIPv4, ip4Packet(ipTCP, 0, tcpSegment(50000, portBGP, 1, 0x10, numberedBody(0))))},
	{"BGP from a speaker", true, ethFrame(ethIPv4, ip4Packet(ipTCP, 0, tcpSegment(portBGP, 50000, 1, 0x10, numberedBody(0))))},
	{"BGP over IPv6", true, ethFrame(ethIPv6, ip6Packet(ipTCP, tcpSegment(50000, portBGP, 1, 0x10, numberedBody(0))))},
	{"BGP from a speaker over IPv6", true, ethFrame(ethIPv6, ip6Packet(ipTCP, tcpSegment(portBGP, 50000, 1, 0x10, numberedBody(0))))},
	{"BGP in a VLAN", true, ethFrame(ethVLAN, vlanTagged(5, ethIPv4, ip4Packet(ipTCP, 0, tcpSegment(50000, portBGP, 1, 0x10, numberedBody(0)))))},
	{"UDP port 179", false, ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(50000, portBGP, numberedBody(0))))},
	{"TCP port 180", false, ethFrame(ethIPv4, ip4Packet(ipTCP, 0, tcpSegment(50000, portBGP+1, 1, 0x10, numberedBody(0))))},
	{"ARP", true, ethFrame(ethARP, append(arpRequest(), numberedBody(0)...))},
	{"unknown EtherType", true, ethFrame(0x88b5, numberedBody(0))},
	{"UDP", false, wantedFrame},
	{"UDP in a VLAN", false, ethFrame(ethVLAN, vlanTagged(7, ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(1, 2, numberedBody(0)))))},
	{"a fragment", false, ethFrame(ethIPv4, ip4Packet(ipUDP, 185, numberedBody(0)))},
	{"a wrong checksum of the IPv4 header", false, changed(udp4, etherHeader+10, 0xba, 0xd0)},
	{"a wrong UDP checksum", false, changed(udp4, etherHeader+26, 0xba, 0xd0)},
	{"a wrong TCP checksum", false, changed(tcp4, etherHeader+36, 0xba, 0xd0)},
}

// Control traffic goes to the last channel and nothing else does, on every profile.
// Without the trap queue all of it is spread.
func TestControlTrafficHasAQueueOfItsOwn(t *testing.T) {
	for _, profile := range model.Profiles() {
		var frames [][]byte
		for i, c := range trapTraffic {
			f := append([]byte(nil), c.frame...)
			for len(f) < 60 {
				f = append(f, 0)
			}
			putBE32(f, len(f)-4, uint32(i))
			frames = append(frames, f)
		}
		queues, _ := received(t, profile, wishes{queues: 2, promisc: true, trap: true}, frames, len(frames))
		for i, c := range trapTraffic {
			require.Len(t, queues[uint32(i)], 1, "%s: %s", profile, c.name)
			require.Equal(t, c.trap, queues[uint32(i)][0] == 2, "%s: %s came to queue %d", profile, c.name, queues[uint32(i)][0])
		}
		queues, _ = received(t, profile, wishes{queues: 2, promisc: true}, frames, len(frames))
		for i, c := range trapTraffic {
			require.Less(t, queues[uint32(i)][0], 2, "%s: %s", profile, c.name)
		}
	}
}

// What says that it is IP and is not is unmatched where tables match the version that
// the device has found, and IP where they only match the EtherType. Each comes once.
func TestWhatIsNoIPIsUnmatched(t *testing.T) {
	frames := [][]byte{changed(udp4, etherHeader, 0x75), changed(udp4, etherHeader, 0x42), changed(udp6, etherHeader, 0x45)}
	for i, f := range frames {
		frames[i] = marked(f, i)
	}
	for _, profile := range model.Profiles() {
		queues, _ := received(t, profile, wishes{queues: 1, promisc: true, trap: true}, frames, len(frames))
		for i := range frames {
			require.Equal(t, []int{map[bool]int{true: 0, false: 1}[profile == "cx4"]}, queues[uint32(i)], "%s frame %d", profile, i)
		}
	}
}

// A frame whose checksum is wrong goes where its headers lead, and its verdict says
// that nothing was found right.
func TestWrongChecksumsAreToldOnArrival(t *testing.T) {
	right := numberedUDP(1, 100) // without a UDP checksum
	wire := &listWire{frames: [][]byte{right, changed(right, etherHeader+26, 0xba, 0xd0), changed(right, etherHeader+10, 0xba, 0xd0)}}
	d, n, c := rxRig(t, wire, wishes{trap: true})
	require.Len(t, n.channels, 2)
	n.params.flags.rxNoCsumComplete = true
	n.applyFlags()
	for _, c := range n.channels {
		c.setHandler(&countWork{})
	}
	drainPoll(d, c)
	drainPoll(d, n.channels[1])
	require.EqualValues(t, 1, c.csum[csumUnnecessary].get())
	require.EqualValues(t, 2, c.csum[csumNone].get())
	require.EqualValues(t, 3, c.rxStats.packets.get(), "none is set apart")
}

// Without promiscuous mode the filter still decides first.
func TestTrapStandsBehindTheFilter(t *testing.T) {
	foreign := to(append([]byte(nil), trapTraffic[7].frame...), [6]byte{2, 9, 9, 9, 9, 9})
	own := append([]byte(nil), trapTraffic[7].frame...)
	putBE32(own, len(own)-4, 1)
	queues, counters := received(t, "cx5", wishes{queues: 1, trap: true}, [][]byte{foreign, own}, 1)
	require.Equal(t, map[uint32][]int{1: {1}}, queues)
	require.EqualValues(t, 1, counters["rx_steer_missed_packets"])
}

// lossyWire is a wire that waits for nobody.
type lossyWire struct{ *burstWire }

func (lossyWire) Lossless() bool { return false }

// stuckWork never ends a turn until it is let go.
type stuckWork struct {
	countWork
	gate chan struct{}
}

func (w *stuckWork) handle(c *channel, packets []packet) {
	<-w.gate
	w.countWork.handle(c, packets)
}

// A flood of control frames that nobody reads fills its own queue; the wanted flow
// loses nothing, and what the flood lost is counted.
func TestFloodDoesNotStarveTheWantedFlow(t *testing.T) {
	const flood, wanted = 20_000, 480
	wire := lossyWire{&burstWire{frames: [2][]byte{wantedFrame, floodFrame}}}
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: 1, promisc: true, trap: true, rxRing: 1024})
	require.NoError(t, err)
	flow, control := &countWork{}, &stuckWork{gate: make(chan struct{})}
	n.start([]handler{flow, control}, false, nil)
	d.pause()
	for range 40 {
		wire.left = [2]int{wanted / 40, flood / 40}
		for d.m.Step() {
		}
	}
	d.resume()
	require.Eventually(t, func() bool { return flow.n.Load() == wanted }, 10*time.Second, time.Millisecond)
	close(control.gate)
	n.stop()
	stats := newStatReader(n)
	require.NoError(t, stats.update())
	counters := map[string]uint64{}
	for _, s := range stats.read() {
		counters[s.name] = s.value
	}
	require.EqualValues(t, wanted, counters["rx0_packets"])
	require.EqualValues(t, flood, counters["rx1_packets"]+counters["rx_out_of_buffer"])
	require.NotZero(t, counters["rx_out_of_buffer"])
	require.NoError(t, n.close())
}

// G1: with tags stripped by the card, the capture has the wire's bytes all the same.
func TestStrippedTagsAreWrittenBack(t *testing.T) {
	for _, name := range []string{"zeek_vlan-collisions.pcap", "tcpdump_rpvstp-trunk-native-vid5.pcap", "tcpreplay_rewrite_vlan8021ad.pcap"} {
		for _, profile := range model.Profiles() {
			file := sharedFile(t, "pcaps", name)
			back := filepath.Join(t.TempDir(), "back.pcapng")
			code, out, errs := cli(t, "-emulate", "-profile", profile, "-wire", "replay:"+file, "-json", "-queues", "1",
				"-rx-vlan-offload", "on", "-trap-queue", "on", "-w", back)
			require.Equal(t, exitDone, code, errs)
			var s summary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			require.Equal(t, frameHashes(t, file), frameHashes(t, back), "%s on %s", name, profile)
			_, plain, _ := cli(t, "-emulate", "-profile", profile, "-wire", "replay:"+file, "-json", "-queues", "1")
			var p summary
			require.NoError(t, json.Unmarshal([]byte(plain), &p))
			require.Equal(t, p.Protocols, s.Protocols, "%s on %s", name, profile)
			require.Equal(t, p.WireBytes, s.WireBytes)
		}
	}
}

func TestChecksumVerdict(t *testing.T) {
	udp := ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(1, 2, make([]byte, 64))))
	sctp := ethFrame(ethIPv4, ip4Packet(ipSCTP, 0, make([]byte, 64)))
	sctp6 := ethFrame(ethVLAN, vlanTagged(5, ethIPv6, ip6Packet(ipSCTP, make([]byte, 64))))
	arp := ethFrame(ethARP, make([]byte, 64))
	const good = l3OK | l4OK | 1
	for _, c := range []struct {
		name       string
		b          []byte
		ok         uint8
		sum        uint16
		noComplete bool
		want       csumVerdict
	}{
		{"summed", udp, good, 0xffff, false, csumComplete},
		{"summed, found wrong", udp, l3OK, 0x1234, false, csumComplete},
		{"summed, but the flag is set", udp, good, 0xffff, true, csumUnnecessary},
		{"found wrong, and the flag is set", udp, l3OK, 0x1234, true, csumNone},
		{"no sum: a compressed completion", udp, good, 0, false, csumUnnecessary},
		{"no sum and wrong", udp, l4OK, 0, false, csumNone},
		{"may be padded", udp[:60], good, 0xffff, false, csumUnnecessary},
		{"SCTP", sctp, good, 0xffff, false, csumUnnecessary},
		{"SCTP over IPv6 in a VLAN", sctp6, good, 0xffff, false, csumUnnecessary},
		{"no IP", arp, 1, 0, false, csumNone},
		{"no IP but a sum", arp, 1, 0x1234, false, csumNone},
		{"cut short behind tags", udp[:13], good, 0x1234, false, csumUnnecessary},
	} {
		p := packet{b: c.b, size: uint32(len(c.b)), info: uint32(c.ok), checksum: c.sum}
		require.Equal(t, c.want, p.verdict(c.noComplete), c.name)
	}
}

// Each inspected frame has one verdict; the private flag turns complete ones into
// unnecessary ones, at start and live.
func TestChecksumCounters(t *testing.T) {
	counters := func(args ...string) map[string]uint64 {
		code, out, errs := cli(t, append([]string{"-emulate", "-wire", "gen:count=4000", "-queues", "1", "-stats"}, args...)...)
		require.Equal(t, exitDone, code, errs)
		m := map[string]uint64{}
		for _, name := range []string{"rx_packets", "rx_csum_complete", "rx_csum_unnecessary", "rx_csum_none"} {
			_, rest, ok := strings.Cut(out, " "+name+": ")
			require.True(t, ok, name)
			number, _, _ := strings.Cut(rest, "\n")
			v, err := strconv.ParseUint(number, 10, 64)
			require.NoError(t, err)
			m[name] = v
		}
		require.Equal(t, m["rx_packets"], m["rx_csum_complete"]+m["rx_csum_unnecessary"]+m["rx_csum_none"])
		return m
	}
	with := counters()
	require.NotZero(t, with["rx_csum_complete"])
	require.NotZero(t, with["rx_csum_none"], "ARP and LLDP have none")
	without := counters("-priv-flags", "rx_no_csum_complete=on")
	require.Zero(t, without["rx_csum_complete"])
	require.Greater(t, without["rx_csum_unnecessary"], with["rx_csum_unnecessary"])
}
