package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inspectFrames runs frames through one inspector and returns the result.
func inspectFrames(frames []testFrame) *summary {
	w := newInspector(inspectConfig{flows: 4096})
	for _, f := range frames {
		w.packet(f.data, f.wireLen, packetMeta{ts: f.ts})
	}
	s := mergeSummaries(w.summary())
	s.finish(nil, 0)
	return s
}

func namesOf(list []nameLine) []string {
	names := []string{}
	for _, l := range list {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

// inspectExceptions are the captures where the reference decoder counts
// otherwise, each for a reason that is right for it and not for us.
var inspectExceptions = map[string]string{
	// It joins fragments before it looks for names and whole datagrams.
	"pcapplusplus_ip6_fragments.pcap mdns names": "names lie in fragments",
	"pcapplusplus_ip4_fragments.pcap udp":        "it counts complete datagrams, we count first fragments",
	// It goes by the port; we go by the content, and the request is one.
	"zeek_get-to-ssh-server.pcap hosts":    "HTTP request on port 22",
	"zeek_get-to-ssh-server.pcap http":     "HTTP request on port 22",
	"zeek_get-to-ssh-server.pcap ssh":      "HTTP request on port 22",
	"zeek_get-to-ssh-server.pcap requests": "HTTP request on port 22",
	// Its conversations know no VLANs: the second and third are retransmissions.
	"zeek_vlan-collisions.pcap http":     "same request in three VLANs",
	"zeek_vlan-collisions.pcap requests": "same request in three VLANs",
	// Bodies whose end it marks count as HTTP too.
	"suricata_tls-subjectaltname.pcap http": "response bodies",
	"arkime_sctp-www.pcap http":             "response bodies",
}

// countedExactly are protocols that must agree to the frame. tls is not among
// them: we count every segment that carries some, it only those where a record
// ends.
var countedExactly = []string{
	"eth", "vlan", "ieee8021ad", "llc", "mpls", "pwethcw", "arp", "ip", "ipv6", "ipv6.hopopts",
	"ipv6.fraghdr", "tcp", "udp", "sctp", "icmp", "icmpv6", "igmp", "gre", "vxlan", "geneve",
	"eigrp", "rsvp", "lldp", "stp", "cdp", "vtp", "dtp", "isis", "loop", "dns", "mdns", "llmnr",
	"nbns", "nbdgm", "http", "quic", "ssh", "bgp", "dhcp", "dhcpv6", "ntp", "telnet",
}

func TestInspectCaptures(t *testing.T) {
	for _, e := range readExpected(t) {
		c := readCapture(t, sharedFile(t, "pcaps", e.File))
		if c.linkType != 1 {
			continue
		}
		s := inspectFrames(c.frames)
		require.Equal(t, []uint64{e.Packets, e.CapturedBytes, e.WireBytes}, []uint64{s.Packets, s.Bytes, s.WireBytes}, e.File)
		check := func(what string, want, got any) {
			t.Helper()
			key := e.File + " " + what
			if inspectExceptions[key] == "" {
				require.Equal(t, want, got, key)
				return
			}
			require.NotEqual(t, want, got, "%s is no exception any more", key)
		}
		for _, name := range countedExactly {
			check(name, e.Protocols[name], int(s.Protocols[name]))
		}
		check("dns names", sorted(e.DNS.Names.Names), namesOf(s.DNSNames))
		check("mdns names", sorted(e.MDNS.Names.Names), namesOf(s.MDNSNames))
		check("llmnr names", sorted(e.LLMNR.Names.Names), namesOf(s.LLMNRNames))
		check("sni", sorted(e.TLS.SNI.Names), namesOf(s.SNI))
		check("hosts", sorted(e.HTTP.Hosts.Names), namesOf(s.HTTPHosts))
		check("hellos", e.TLS.Hellos, int(s.Events["tls_client_hello"]))
		check("requests", e.HTTP.Requests, int(s.Events["http_request"]))
		for reason := range s.DecodeErrors {
			require.NotContains(t, reason, "panic", e.File)
		}
	}
}

func sorted(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return list
}

// Flow counts equal the conversations where nothing but TCP and UDP outside of
// tunnels is there.
func TestInspectFlowCounts(t *testing.T) {
	for _, file := range []string{
		"ipfixprobe_http.pcap", "ipfixprobe_tls.pcap", "ipfixprobe_dns.pcap", "zeek_wikipedia.pcap",
		"ipfixprobe_bstats.pcap", "pcapplusplus_ip4_fragments.pcap", "pcapplusplus_ip6_fragments.pcap",
		"tcpdump_bgp-4byte-asn.pcap", "zeek_tcp-timestamp.pcap", "ndpi_steam.pcapng",
	} {
		for _, e := range readExpected(t) {
			if e.File == file {
				s := inspectFrames(readCapture(t, sharedFile(t, "pcaps", file)).frames)
				require.Equal(t, e.TCP.Distinct+e.UDP.Distinct, int(s.Flows), file)
			}
		}
	}
}

func TestInspectSplitClientHello(t *testing.T) {
	frames := readCapture(t, sharedFile(t, "pcaps", "arkime_tls-split-client-hello.pcap")).frames
	s := inspectFrames(frames)
	require.Equal(t, []nameLine{{"clients2.google.com", 1}}, s.SNI)
	require.Equal(t, "clients2.google.com", s.TopFlows[0].Name)
	require.Equal(t, "tls", s.TopFlows[0].App)
}

// buildHello is a ClientHello message with a server name behind some padding.
func buildHello(name string, padding int) []byte {
	ext := binary.BigEndian.AppendUint16([]byte{0, 21}, uint16(padding))
	ext = append(ext, make([]byte, padding)...)
	n := len(name)
	ext = append(ext, 0, 0, byte((n+5)>>8), byte(n+5), byte((n+3)>>8), byte(n+3), 0, byte(n>>8), byte(n))
	ext = append(ext, name...)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(ext))), ext...)
	return append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

// records cuts a handshake message into TLS records of n bytes.
func records(msg []byte, n int) []byte {
	var b []byte
	for len(msg) > 0 {
		k := min(n, len(msg))
		b = append(b, 22, 3, 1, byte(k>>8), byte(k))
		b = append(b, msg[:k]...)
		msg = msg[k:]
	}
	return b
}

// The name is found however the hello is cut into records and segments, in any
// order of the segments, with retransmissions, and across a sequence wrap.
func TestInspectHelloAnyCut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for round := range 400 {
		msg := buildHello("host.example.org", rnd.IntN(2000))
		stream := records(msg, max(len(msg)/8, 1+rnd.IntN(len(msg)+100)))
		base := uint32(0xffffff00)
		w := newInspector(inspectConfig{flows: 64})
		send := func(seq uint32, flags uint8, body []byte) {
			b := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(50000, 443, seq, flags, body)))
			w.packet(b, len(b), packetMeta{ts: 1})
		}
		send(base-1, tcpSYN, nil)
		var cuts []span
		for at := 0; at < len(stream); {
			n := min(max(len(stream)/4, 1+rnd.IntN(600)), len(stream)-at)
			cuts = append(cuts, span{at, at + n})
			at += n
		}
		if round%2 == 1 {
			rnd.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
		}
		for _, c := range cuts {
			send(base+uint32(c.from), tcpACK, stream[c.from:c.to])
			if round%3 == 0 {
				send(base+uint32(c.from), tcpACK, stream[c.from:c.to])
			}
		}
		s := w.summary()
		require.Equal(t, map[string]uint64{"host.example.org": 1}, s.names[nameSNI], "round %d cuts %v", round, cuts)
	}
}

func TestInspectHTTPSplitAndPipelined(t *testing.T) {
	request := "GET /a HTTP/1.1\r\nUser-Agent: x\r\nHOST:  one.example \r\n\r\n" +
		"HEAD /b HTTP/1.0\r\nHost: two.example:8080\r\n\r\n" +
		"GET /c HTTP/1.1\nHost: three.example\n\n"
	for cut := 1; cut < len(request); cut++ {
		w := newInspector(inspectConfig{flows: 64})
		for _, c := range []span{{0, cut}, {cut, len(request)}} {
			b := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(50000, 8080, uint32(c.from), tcpACK, []byte(request[c.from:c.to]))))
			w.packet(b, len(b), packetMeta{ts: 1})
		}
		require.Equal(t, map[string]uint64{"one.example": 1, "two.example:8080": 1, "three.example": 1}, w.summary().names[nameHost], "cut at %d", cut)
	}
}

// panicFrames reads the frames that crash gopacket.
func panicFrames(t testing.TB) (list []struct {
	where string
	layer int
	b     []byte
}) {
	t.Helper()
	raw, err := os.ReadFile(sharedFile(t, "field", "gopacket-panics.tsv"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n")[1:] {
		f := strings.Split(line, "\t")
		require.Len(t, f, 4)
		layer, err := strconv.Atoi(f[2])
		require.NoError(t, err)
		b, err := hex.DecodeString(f[3])
		require.NoError(t, err)
		list = append(list, struct {
			where string
			layer int
			b     []byte
		}{f[0], layer, b})
	}
	return list
}

// carry puts bytes that start at a gopacket layer into frames by which they can
// come in: every way for the layers that have one, and as a UDP and TCP payload,
// an EtherType and an IP protocol for all.
func carry(layer int, b []byte) [][]byte {
	if layer == 17 {
		return [][]byte{b}
	}
	types := map[int]uint16{10: ethARP, 24: typeMPLS, 25: typePPPoES, 26: typePPPoES, 16: 0x88b5}
	protos := map[int]uint8{18: 47, 27: 27, 28: 132, 50: 51, 51: 50, 52: 136, 119: 112, 123: 89, 16: 97}
	ports := map[int]uint16{107: 53, 114: 6343, 120: 6081, 64: 5555}
	snap := append([]byte{0xaa, 0xaa, 3, 0, 0, 12, 0x20, 0}, b...)
	port := ports[layer]
	frames := [][]byte{
		ethFrame(uint16(len(snap)), snap),
		ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(40000, max(port, 53), b))),
		ethFrame(ethIPv6, ip6Packet(17, udpDatagram(max(port, 5353), 40000, b))),
		ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(40000, 443, 1, tcpACK, b))),
		ethFrame(ethIPv4, ip4Packet(47, 0, append([]byte{0, 0, 0x88, 0xbe}, b...))),
	}
	if typ, ok := types[layer]; ok {
		frames = append(frames, ethFrame(typ, b))
	}
	if proto, ok := protos[layer]; ok {
		frames = append(frames, ethFrame(ethIPv4, ip4Packet(proto, 0, b)), ethFrame(ethIPv6, ip6Packet(proto, b)))
	}
	for _, p := range []uint16{67, 123, 546, 4789, 5355, 6081, 6343, 443} {
		frames = append(frames, ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(p, p, b))))
	}
	return frames
}

// What kills gopacket does not kill us, costs no memory, and every frame is
// accounted for.
func TestInspectPanicFrames(t *testing.T) {
	w := newInspector(inspectConfig{flows: 1024})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent := uint64(0)
	for _, f := range panicFrames(t) {
		for _, b := range carry(f.layer, f.b) {
			for n := len(b); n >= max(0, len(b)-24); n-- {
				w.packet(b[:n], n, packetMeta{ts: int64(sent)})
				sent++
			}
		}
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	require.Equal(t, sent, w.packets)
	s := w.summary()
	require.NotZero(t, s.DecodeErrors["malformed_dns"])
	for reason := range s.DecodeErrors {
		require.NotContains(t, reason, "panic", "the checks before gopacket let it through")
	}
}

// Were a check to fail us, the call is recovered and counted all the same.
func TestInspectRecoversPanic(t *testing.T) {
	w := newInspector(inspectConfig{flows: 64})
	kinds := map[int]layerKind{10: layerARP, 107: layerDNS}
	want := map[string]uint64{}
	for _, f := range panicFrames(t) {
		kind, ok := kinds[f.layer]
		if !ok {
			continue
		}
		require.False(t, w.decode(kind, f.b), f.where)
		want["panic_"+layerNames[kind]]++
	}
	short := make([]byte, 240)
	short[2] = 250 // hardware length that wraps in the decoder
	require.False(t, w.decode(layerDHCPv4, short))
	want["panic_dhcp"]++
	require.False(t, w.decode(layerDHCPv6, append([]byte{1, 0, 0, 0, 0, 1, 0xff, 0xfc}, make([]byte, 0xfffc)...)))
	want["panic_dhcpv6"]++
	require.Equal(t, uint64(2), want["panic_arp"])
	require.Equal(t, uint64(3), want["panic_dns"])
	require.Equal(t, want, w.summary().DecodeErrors)
}

// An sFlow sample that announces 2^32 path entries: gopacket would ask for 16
// GiB. It is never given to gopacket.
func TestInspectNoHugeAllocation(t *testing.T) {
	w := newInspector(inspectConfig{flows: 64})
	b := ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(0, 0, bytes.Repeat([]byte{0xff}, 1400))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for port := range 0x10000 {
		binary.BigEndian.PutUint16(b[34:], uint16(port))
		binary.BigEndian.PutUint16(b[36:], uint16(port))
		w.packet(b, len(b), packetMeta{ts: 1})
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	require.NotZero(t, w.protocols[protoSFlow])
}

func TestInspectRandomDNS(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	w := newInspector(inspectConfig{flows: 64})
	body := make([]byte, 512)
	const rounds = 100_000
	for i := range rounds {
		n := rnd.IntN(120)
		for j := range n {
			body[j] = byte(rnd.Uint32())
		}
		if n > 12 && i%2 == 0 { // plausible counts, so that names and records are reached
			copy(body[4:], []byte{0, 1, 0, byte(i % 3), 0, 0, 0, byte(i % 2)})
			body[12] &= 0xc7
		}
		b := ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(40000, 53, body[:n])))
		w.packet(b, len(b), packetMeta{ts: int64(i)})
	}
	require.Equal(t, uint64(rounds), w.packets)
	require.Zero(t, w.panics)
	require.NotZero(t, w.malformed[layerDNS])
	require.NotZero(t, w.events[eventDNSQuery])
}

// Frames of all captures with bytes changed and cut: nothing dies, and gopacket
// never panics behind the checks.
func TestInspectMutatedCaptures(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	w := newInspector(inspectConfig{flows: 1024})
	for _, e := range readExpected(t) {
		for _, f := range readCapture(t, sharedFile(t, "pcaps", e.File)).frames {
			for range 5 {
				b := slices.Clone(f.data)
				for range 1 + rnd.IntN(8) {
					if len(b) > 0 {
						b[rnd.IntN(min(len(b), 200))] = byte(rnd.Uint32())
					}
				}
				b = b[:rnd.IntN(len(b)+1)]
				w.packet(b, f.wireLen, packetMeta{ts: f.ts})
			}
		}
	}
	require.Zero(t, w.panics)
}

// commonTraffic is one frame of each kind that a network sees all day, and junk.
func commonTraffic() [][]byte {
	dns := func(flags byte, name string) []byte {
		b := []byte{0, 1, flags, 0, 0, 1, 0, 0, 0, 0, 0, 1}
		for _, label := range strings.Split(name, ".") {
			b = append(append(b, byte(len(label))), label...)
		}
		return append(b, 0, 0, 1, 0, 1, 0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 4, 0, 3, 0, 0)
	}
	dhcp := make([]byte, 300)
	dhcp[0], dhcp[2] = 1, 6
	copy(dhcp[236:], "\x63\x82\x53\x63\x35\x01\x01\x0c\x04host\xff")
	ntp := make([]byte, 48)
	ntp[0] = 0x23
	nd := append(append([]byte{135, 0, 0, 0}, make([]byte, 20)...), 1, 1, 2, 0, 0, 0, 0, 1)
	hello := records(buildHello("www.example.org", 100), 5000)
	udp := func(port uint16, body []byte) []byte { return ip4Packet(17, 0, udpDatagram(port, port, body)) }
	frames := [][]byte{
		ethFrame(ethIPv4, udp(53, dns(1, "www.example.org"))),
		ethFrame(ethIPv4, udp(53, dns(0x80, "www.example.org"))),
		ethFrame(ethIPv4, udp(53, []byte("this is no DNS message at all"))),
		ethFrame(ethIPv4, udp(67, dhcp)),
		ethFrame(ethIPv4, udp(123, ntp)),
		ethFrame(ethIPv4, udp(443, make([]byte, 1200))),
		ethFrame(ethIPv6, ip6Packet(58, nd)),
		ethFrame(ethIPv6, ip6Packet(6, tcpSegment(1000, 443, 1, tcpACK, hello))),
		ethFrame(ethIPv6, ip6Packet(6, tcpSegment(1001, 443, 1, tcpACK, hello[:60]))),
		ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(1002, 80, 1, tcpACK, []byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")))),
		ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(1003, 443, 1, tcpACK, []byte{21, 3, 3, 0, 2, 1, 0}))),
		ethFrame(ethVLAN, vlanTagged(7, ethIPv4, udp(4000, make([]byte, 100)))),
		make([]byte, 60), make([]byte, 5), nil,
		bytes.Repeat([]byte{0x88}, 200),
		ethFrame(ethIPv4, bytes.Repeat([]byte{0x45}, 100)),
	}
	for _, name := range []string{"arp", "vxlan", "gre", "fragment", "mpls", "qinq", "icmpErr"} {
		frames = append(frames, sampleFrames()[name])
	}
	return frames
}

func TestInspectNoAllocations(t *testing.T) {
	w := newInspector(inspectConfig{flows: 64})
	frames := commonTraffic()
	ts := int64(0)
	for i, b := range frames {
		w.packet(b, len(b), packetMeta{}) // gopacket's buffer of names grows once
		require.Zero(t, testing.AllocsPerRun(100, func() {
			ts++
			w.packet(b, len(b), packetMeta{ts: ts})
		}), "frame %d: %x", i, b[:min(len(b), 60)])
	}
	// New flows and evictions do not allocate either.
	b := tcpFrame(1, 2, 3, 4)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		ts++
		binary.BigEndian.PutUint32(b[26:], uint32(ts))
		w.packet(b, len(b), packetMeta{ts: ts})
	}))
	require.NotZero(t, w.flows.evictedActive)
}

// A flood of half-sent ClientHellos holds no more than the buffers there are.
func TestInspectHalfOpenFlood(t *testing.T) {
	w := newInspector(inspectConfig{flows: 1024})
	hello := records(buildHello("www.example.org", 3000), 9000)
	for i := range 5000 {
		b := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(uint16(i), 443, 1, tcpACK, hello[:1000])))
		w.packet(b, len(b), packetMeta{ts: int64(i)})
	}
	require.NotZero(t, w.flows.streamStolen)
	for from := 0; from < len(hello); from += 1000 {
		b := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(9999, 443, uint32(from), tcpACK, hello[from:min(from+1000, len(hello))])))
		w.packet(b, len(b), packetMeta{ts: 6000})
	}
	require.Equal(t, map[string]uint64{"www.example.org": 1}, w.summary().names[nameSNI], "an honest one still gets through")
}

func TestInspectStrippedTagCounts(t *testing.T) {
	wire := sampleFrames()["vlan"]
	whole, stripped := newInspector(inspectConfig{flows: 64}), newInspector(inspectConfig{flows: 64})
	whole.packet(wire, len(wire), packetMeta{ts: 1})
	b := append(slices.Clone(wire[:12]), wire[16:]...)
	stripped.packet(b, len(b), packetMeta{ts: 1, vlan: 5, stripped: true})
	require.Equal(t, text(t, whole), text(t, stripped))
}

func text(t *testing.T, w *inspector) string {
	s := mergeSummaries(w.summary())
	s.finish(nil, time.Second)
	j, err := json.Marshal(s)
	require.NoError(t, err)
	return s.text() + string(j)
}

func TestSummaryMerge(t *testing.T) {
	frames := readCapture(t, sharedFile(t, "pcaps", "zeek_wikipedia.pcap")).frames
	one := inspectFrames(frames)
	parts := []*inspector{newInspector(inspectConfig{flows: 512}), newInspector(inspectConfig{flows: 512})}
	for i, f := range frames { // both directions of a flow on different queues
		parts[i%2].packet(f.data, f.wireLen, packetMeta{ts: f.ts, queue: i % 2})
	}
	s := mergeSummaries(parts[0].summary(), parts[1].summary())
	s.finish(map[string]uint64{"rx_out_of_buffer": 3}, 0)
	require.Equal(t, one.Packets, s.Packets)
	require.Equal(t, one.Flows, s.Flows)
	require.Equal(t, one.Protocols["tcp"], s.Protocols["tcp"])
	require.Equal(t, one.DNSNames, s.DNSNames)
	require.Equal(t, one.TopTalkers, s.TopTalkers)
	require.Equal(t, one.DurationS, s.DurationS)
	require.Equal(t, map[string]uint64{"rx_out_of_buffer": 3}, s.Drops)
	for i := range one.TopFlows {
		require.Equal(t, one.TopFlows[i].Bytes, s.TopFlows[i].Bytes)
	}
}

// Flows of equal size are listed in the same order whatever their times were: two
// runs over the same frames must print the same.
func TestEqualFlowsHaveOneOrder(t *testing.T) {
	frames := readCapture(t, sharedFile(t, "pcaps", "zeek_wikipedia.pcap")).frames
	list := func(shuffle bool) (out []flowLine) {
		in := newInspector(inspectConfig{})
		for i, f := range frames {
			ts := f.ts
			if shuffle {
				ts = frames[0].ts + int64(i%7)*1000 // the order of first sight is another
			}
			in.packet(f.data, f.wireLen, packetMeta{ts: ts})
		}
		s := in.summary()
		s.finish(nil, time.Second)
		for _, f := range s.TopFlows {
			f.DurationS = 0
			out = append(out, f)
		}
		return out
	}
	require.Equal(t, list(false), list(true))
}

func TestSummaryJSON(t *testing.T) {
	s := inspectFrames(readCapture(t, sharedFile(t, "pcaps", "tcpreplay_test.pcap")).frames)
	b, err := json.Marshal(s)
	require.NoError(t, err)
	var order []string
	dec := json.NewDecoder(bytes.NewReader(b))
	_, err = dec.Token()
	require.NoError(t, err)
	for dec.More() {
		key, err := dec.Token()
		require.NoError(t, err)
		order = append(order, key.(string))
		var v json.RawMessage
		require.NoError(t, dec.Decode(&v))
		require.NotEqual(t, "null", string(v), key)
		require.NotRegexp(t, `^-?[0-9.]+[eE]`, string(v), key)
	}
	require.Equal(t, []string{
		"packets", "bytes", "wire_bytes", "duration_s", "pps", "bits_per_s", "first_ns", "last_ns",
		"drops", "decode_errors", "protocols", "events", "flows", "flow_table", "top_flows",
		"top_talkers", "dns_names", "mdns_names", "llmnr_names", "sni", "http_hosts", "dhcp_hosts",
	}, order)
	empty := mergeSummaries()
	empty.finish(nil, 0)
	b, err = json.Marshal(empty)
	require.NoError(t, err)
	require.NotContains(t, string(b), "null")
	require.NotContains(t, string(b), "NaN")
}

// Names from the wire cannot drive a terminal.
func TestSummaryTextIsPrintable(t *testing.T) {
	w := newInspector(inspectConfig{flows: 64})
	request := "GET / HTTP/1.1\r\nHost: \x1b[2Jevil\x07\xff\r\n\r\n"
	b := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(1, 80, 1, tcpACK, []byte(request))))
	w.packet(b, len(b), packetMeta{ts: 1})
	s := mergeSummaries(w.summary())
	s.finish(map[string]uint64{"writer_dropped": 2}, time.Second)
	out := s.text()
	require.Contains(t, out, `\x1b[2Jevil`)
	require.Contains(t, out, "writer_dropped")
	for _, r := range out {
		require.True(t, r == '\n' || r >= ' ' && r < 127, "%q", out)
	}
}

func TestDNSChecks(t *testing.T) {
	header := func(n ...byte) []byte { return append([]byte{0, 0, 0, 0}, n...) }
	for _, c := range []struct {
		name string
		b    []byte
		want readState
	}{
		{"short", make([]byte, 11), needMore},
		{"empty", make([]byte, 12), complete},
		{"many questions", header(255, 255, 0, 0, 0, 0, 0, 0), notThis},
		{"many answers", header(0, 0, 255, 255, 0, 0, 0, 0), notThis},
		{"question cut", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0, 0, 1, 0), needMore},
		{"question", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0, 0, 1, 0, 1), complete},
		{"pointer to itself", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0xc0, 12, 0, 1, 0, 1), notThis},
		{"pointer ahead", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0xc0, 14, 0, 1, 0, 1), notThis},
		{"pointer into header", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0xc0, 0, 0, 1, 0, 1), notThis},
		{"label type 0x40", append(header(0, 1, 0, 0, 0, 0, 0, 0), 0x41, 0, 0, 1, 0, 1), notThis},
		{"record cut", append(header(0, 0, 0, 1, 0, 0, 0, 0), 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 1, 2, 3), needMore},
		{"record", append(header(0, 0, 0, 1, 0, 0, 0, 0), 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4), complete},
	} {
		_, v := checkDNS(c.b)
		require.Equal(t, c.want, v, c.name)
	}
	long := header(0, 1, 0, 0, 0, 0, 0, 0)
	for range 10 {
		long = append(append(long, 63), make([]byte, 63)...)
	}
	_, v := checkDNS(append(long, 0, 0, 1, 0, 1))
	require.Equal(t, notThis, v, "name of 640 bytes")
}

func TestQUICHeader(t *testing.T) {
	initial := append([]byte{0xc3, 0, 0, 0, 1, 8}, make([]byte, 1200)...)
	require.True(t, quicInitial(initial))
	v2 := append([]byte{0xd3, 0x6b, 0x33, 0x43, 0xcf, 8}, make([]byte, 1200)...)
	require.True(t, quicInitial(v2))
	for _, b := range [][]byte{nil, initial[:6], initial[:14], {0x43, 0, 0, 0, 1, 8, 0, 0}, {0xe3, 0, 0, 0, 1, 0, 0, 0},
		{0xc3, 0, 0, 0, 1, 21, 0, 0}, {0xc3, 0, 0, 0, 7, 0, 0, 0}} {
		require.False(t, quicInitial(b), "%x", b)
	}
}

func TestProtocolNames(t *testing.T) {
	seen := map[string]bool{}
	for id := protoNone + 1; id < protoCount; id++ {
		require.NotEmpty(t, id.String())
		require.False(t, seen[id.String()], id.String())
		require.Equal(t, strings.ToLower(id.String()), id.String())
		seen[id.String()] = true
	}
	require.LessOrEqual(t, int(protoCount), maxProtocols)
	for _, name := range eventNames {
		require.NotEmpty(t, name)
	}
}

func FuzzInspect(f *testing.F) {
	for _, b := range commonTraffic() {
		f.Add(b, 0)
	}
	for _, b := range sampleFrames() {
		f.Add(b, 3)
	}
	w := newInspector(inspectConfig{flows: 256})
	f.Fuzz(func(t *testing.T, b []byte, extra int) {
		before := w.packets
		w.packet(b, len(b)+max(0, extra%64), packetMeta{ts: int64(before)})
		require.Equal(t, before+1, w.packets)
		if w.panics != [layerCount]uint64{} {
			t.Fatalf("gopacket panicked behind the checks: %s", fmt.Sprint(w.panics))
		}
	})
}

func BenchmarkInspect(b *testing.B) {
	frames := commonTraffic()
	w := newInspector(inspectConfig{})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		f := frames[i%len(frames)]
		i++
		w.packet(f, len(f), packetMeta{ts: int64(i)})
	}
}
