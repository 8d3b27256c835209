package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Frame builders: each returns its header in front of what it is given.

func ethFrame(typ uint16, body []byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	return append(binary.BigEndian.AppendUint16(b, typ), body...)
}

func vlanTagged(tci, typ uint16, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tci), typ), body...)
}

// ip4Packet builds a packet with the given fragment word.
func ip4Packet(proto uint8, frag uint16, body []byte) []byte {
	b := make([]byte, 20, 20+len(body))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(body)))
	binary.BigEndian.PutUint16(b[4:], 0x1234)
	binary.BigEndian.PutUint16(b[6:], frag)
	copy(b[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	return append(b, body...)
}

func ip6Packet(next uint8, body []byte) []byte {
	b := make([]byte, 40, 40+len(body))
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
	b[8], b[23], b[24], b[39] = 0xfd, 1, 0xfd, 2
	return append(b, body...)
}

func udpDatagram(sport, dport uint16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, sport), dport)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(body)))
	return append(append(b, 0, 0), body...)
}

func tcpSegment(sport, dport uint16, seq uint32, flags uint8, body []byte) []byte {
	b := make([]byte, 20, 20+len(body))
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	binary.BigEndian.PutUint32(b[4:], seq)
	b[12], b[13] = 0x50, flags
	return append(b, body...)
}

func arpRequest() []byte {
	b := make([]byte, 28)
	copy(b, []byte{0, 1, 8, 0, 6, 4, 0, 1})
	return ethFrame(ethARP, b)
}

func parseTest(b []byte) *parsed {
	p := new(parsed)
	parseFrame(p, b[:len(b):len(b)], len(b), &packetMeta{})
	return p
}

// sampleFrames are one of each kind that the parser knows.
func sampleFrames() map[string][]byte {
	udp := udpDatagram(1000, 2000, []byte("payload"))
	inner := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(80, 81, 7, tcpACK, []byte("x"))))
	mpls := []byte{0, 1, 0x10, 64, 0, 2, 0x11, 64}
	vxlan := append([]byte{8, 0, 0, 0, 0, 0x12, 0x34, 0}, inner...)
	geneve := append([]byte{1, 0, 0x65, 0x58, 0, 0x12, 0x34, 0, 0, 0, 0, 0}, inner...)
	gre := append([]byte{0x20, 0, 0x08, 0, 0, 0, 0, 99}, inner[14:]...)
	hop := []byte{60, 0, 1, 4, 0, 0, 0, 0}
	dst := []byte{17, 0, 1, 4, 0, 0, 0, 0}
	return map[string][]byte{
		"arp":      arpRequest(),
		"udp":      ethFrame(ethIPv4, ip4Packet(17, 0, udp)),
		"tcp":      ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(1, 2, 3, tcpSYN, nil))),
		"icmp":     ethFrame(ethIPv4, ip4Packet(1, 0, []byte{8, 0, 0, 0, 0, 9, 0, 1})),
		"icmpErr":  ethFrame(ethIPv4, ip4Packet(1, 0, append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, ip4Packet(17, 0, udp)...))),
		"sctp":     ethFrame(ethIPv4, ip4Packet(132, 0, make([]byte, 28))),
		"vlan":     ethFrame(ethVLAN, vlanTagged(5, ethIPv4, ip4Packet(17, 0, udp))),
		"qinq":     ethFrame(ethQinQ, vlanTagged(5, ethVLAN, vlanTagged(6, ethIPv6, ip6Packet(17, udp)))),
		"mpls":     ethFrame(typeMPLS, append(slices.Clone(mpls), ip4Packet(17, 0, udp)...)),
		"pw":       ethFrame(typeMPLS, append(append(slices.Clone(mpls), 0, 0, 0, 0), inner...)),
		"pppoe":    ethFrame(typePPPoES, append([]byte{0x11, 0, 0, 1, 0, byte(2 + 20 + len(udp)), 0, 0x21}, ip4Packet(17, 0, udp)...)),
		"snap":     ethFrame(uint16(8+20+len(udp)), append([]byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ip4Packet(17, 0, udp)...)),
		"stp":      ethFrame(38, append([]byte{0x42, 0x42, 3}, make([]byte, 43)...)),
		"ipv6":     ethFrame(ethIPv6, ip6Packet(0, append(append(hop, dst...), udp...))),
		"fragment": ethFrame(ethIPv6, ip6Packet(44, append([]byte{17, 0, 0, 1, 0, 0, 0, 9}, udp...))),
		"vxlan":    ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(9, 4789, vxlan))),
		"geneve":   ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(9, 6081, geneve))),
		"gre":      ethFrame(ethIPv4, ip4Packet(47, 0, gre)),
		"ipip":     ethFrame(ethIPv4, ip4Packet(4, 0, inner[14:])),
		"6in4":     ethFrame(ethIPv4, ip4Packet(41, 0, ip6Packet(17, udp))),
		"ah":       ethFrame(ethIPv4, ip4Packet(51, 0, append([]byte{17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, udp...))),
	}
}

func TestParseSamples(t *testing.T) {
	wantPorts := map[string]string{
		"udp": "1000>2000", "tcp": "1>2", "icmp": "9>9", "vlan": "1000>2000", "qinq": "1000>2000",
		"mpls": "1000>2000", "pw": "80>81", "pppoe": "1000>2000", "snap": "1000>2000",
		"ipv6": "1000>2000", "fragment": "1000>2000", "vxlan": "80>81", "geneve": "80>81",
		"gre": "80>81", "ipip": "80>81", "6in4": "1000>2000", "ah": "1000>2000",
	}
	for name, b := range sampleFrames() {
		p := parseTest(b)
		require.Equal(t, reasonNone, p.reason, "%s: %s", name, reasonNames[p.reason])
		h := p.best()
		if want := wantPorts[name]; want != "" {
			require.Equal(t, want, fmt.Sprintf("%d>%d", h.sport, h.dport), name)
		}
	}
	p := parseTest(sampleFrames()["gre"])
	require.Equal(t, tunnelGRE, p.tunnel)
	require.Equal(t, uint32(99), p.tunnelID)
	p = parseTest(sampleFrames()["vxlan"])
	require.Equal(t, uint32(0x1234), p.tunnelID)
	require.True(t, p.protos.has(protoVXLAN) && p.protos.has(protoTCP) && p.protos.has(protoUDP))
	p = parseTest(sampleFrames()["qinq"])
	require.Equal(t, [maxKeyTags]uint16{5, 6}, p.vlans)
}

// checkParsed holds for every result, whatever the frame.
func checkParsed(t testing.TB, b []byte, p *parsed) {
	for i := range p.hdr {
		h := &p.hdr[i]
		if h.l4off == 0 {
			continue
		}
		if h.l3off < 0 || h.l4off < h.l3off || h.payload < h.l4off || h.end > len(b) {
			t.Fatalf("offsets out of order: %+v, frame of %d bytes", h, len(b))
		}
		if h.flags&flagPayload != 0 && h.payload > h.end {
			t.Fatalf("payload %d behind end %d", h.payload, h.end)
		}
	}
}

// Every length of every sample, and of the first frames of every capture: no
// panic, no offset outside.
func TestParseEveryLength(t *testing.T) {
	for _, b := range sampleFrames() {
		everyLength(t, b)
	}
	for _, e := range readExpected(t) {
		frames := readCapture(t, sharedFile(t, "pcaps", e.File)).frames
		for _, f := range frames[:min(len(frames), 60)] {
			everyLength(t, f.data[:min(len(f.data), 220)])
		}
	}
}

func everyLength(t *testing.T, b []byte) {
	for n := range len(b) + 1 {
		for _, wireLen := range []int{n, len(b)} {
			p := new(parsed)
			parseFrame(p, b[:n:n], wireLen, &packetMeta{})
			checkParsed(t, b[:n], p)
		}
	}
}

func TestParseReasons(t *testing.T) {
	udp := ip4Packet(17, 0, udpDatagram(1, 2, nil))
	change := func(b []byte, off int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[off:], v)
		return b
	}
	tags := func(n int) []byte {
		b := vlanTagged(1, ethIPv4, udp)
		for range n - 1 {
			b = vlanTagged(1, ethVLAN, b)
		}
		return ethFrame(ethVLAN, b)
	}
	extensions := func(n int) []byte {
		b := udpDatagram(1, 2, nil)
		next := byte(17)
		for range n {
			b = append([]byte{next, 0, 0, 0, 0, 0, 0, 0}, b...)
			next = 60
		}
		return ethFrame(ethIPv6, ip6Packet(next, b))
	}
	for _, c := range []struct {
		name string
		b    []byte
		want decodeReason
	}{
		{"empty", nil, reasonTruncatedL2},
		{"13 bytes", make([]byte, 13), reasonTruncatedL2},
		{"cut VLAN tag", ethFrame(ethVLAN, []byte{0, 1, 8}), reasonTruncatedVLAN},
		{"cut LLC", ethFrame(2, []byte{0xaa, 0xaa}), reasonTruncatedLLC},
		{"cut SNAP", ethFrame(7, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8}), reasonTruncatedLLC},
		{"MPLS without bottom", ethFrame(typeMPLS, make([]byte, 8)), reasonTruncatedMPLS},
		{"deep MPLS", ethFrame(typeMPLS, make([]byte, 4*1000)), reasonTooManyTags},
		{"deep VLAN", tags(1000), reasonTooManyTags},
		{"few VLAN", tags(8), reasonNone},
		{"cut PPPoE", ethFrame(typePPPoES, make([]byte, 7)), reasonTruncatedPPPoE},
		{"bad PPPoE", ethFrame(typePPPoES, make([]byte, 8)), reasonBadPPPoE},
		{"cut ARP", arpRequest()[:41], reasonTruncatedARP},
		{"ARP sizes", change(arpRequest(), 18, 255, 255), reasonTruncatedARP},
		{"cut IPv4", ethFrame(ethIPv4, udp[:19]), reasonTruncatedIP},
		{"version 5", ethFrame(ethIPv4, change(udp, 0, 0x55)), reasonBadIPVersion},
		{"version 4 in IPv6", ethFrame(ethIPv6, make([]byte, 40)), reasonBadIPVersion},
		{"IHL 4", ethFrame(ethIPv4, change(udp, 0, 0x44)), reasonBadIPHeaderLength},
		{"IHL 15", ethFrame(ethIPv4, change(udp, 0, 0x4f)), reasonTruncatedIP},
		{"total 19", ethFrame(ethIPv4, change(udp, 2, 0, 19)), reasonBadIPTotalLength},
		{"total 65535", ethFrame(ethIPv4, change(udp, 2, 255, 255)), reasonTruncatedIP},
		{"cut extension", ethFrame(ethIPv6, ip6Packet(60, make([]byte, 7))), reasonTruncatedExtension},
		{"long extension", ethFrame(ethIPv6, ip6Packet(60, []byte{17, 255, 0, 0, 0, 0, 0, 0})), reasonTruncatedExtension},
		{"many extensions", extensions(100), reasonTooManyExtensions},
		{"some extensions", extensions(8), reasonNone},
		{"cut UDP", ethFrame(ethIPv4, ip4Packet(17, 0, make([]byte, 7))), reasonTruncatedL4},
		{"cut TCP", ethFrame(ethIPv4, ip4Packet(6, 0, make([]byte, 19))), reasonTruncatedL4},
		{"TCP offset 4", ethFrame(ethIPv4, ip4Packet(6, 0, make([]byte, 20))), reasonBadTCPOffset},
		{"TCP offset 15", ethFrame(ethIPv4, ip4Packet(6, 0, change(make([]byte, 20), 12, 0xf0))), reasonTruncatedL4},
		{"UDP length 7", ethFrame(ethIPv4, ip4Packet(17, 0, []byte{0, 1, 0, 2, 0, 7, 0, 0})), reasonBadUDPLength},
		{"UDP length 9", ethFrame(ethIPv4, ip4Packet(17, 0, []byte{0, 1, 0, 2, 0, 9, 0, 0})), reasonBadUDPLength},
		{"GRE key missing", ethFrame(ethIPv4, ip4Packet(47, 0, []byte{0x20, 0, 8, 0})), reasonTruncatedTunnel},
		{"VXLAN cut", ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(1, 4789, make([]byte, 7)))), reasonTruncatedTunnel},
		{"GENEVE options", ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(1, 6081, []byte{63, 0, 8, 0, 0, 0, 0, 0}))), reasonTruncatedTunnel},
		{"unknown type", ethFrame(0x1234, nil), reasonNone},
	} {
		p := parseTest(c.b)
		require.Equal(t, reasonNames[c.want], reasonNames[p.reason], c.name)
	}
	for r := reasonNone + 1; r < reasonCount; r++ {
		require.NotEmpty(t, reasonNames[r])
	}
}

// Padding of short frames is not payload.
func TestParsePadding(t *testing.T) {
	ack := ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(1, 2, 3, tcpACK, nil)))
	p := parseTest(append(ack, make([]byte, 60-len(ack))...))
	h := p.best()
	require.Equal(t, reasonNone, p.reason)
	require.Zero(t, h.end-h.payload)

	ack = ethFrame(ethIPv6, ip6Packet(6, tcpSegment(1, 2, 3, tcpACK, nil)))
	h = parseTest(append(ack, make([]byte, 10)...)).best()
	require.Zero(t, h.end-h.payload)
	datagram := ethFrame(ethIPv4, ip4Packet(17, 0, append(udpDatagram(1, 2, []byte("ab")), 0, 0)))
	h = parseTest(datagram).best()
	require.Equal(t, 2, h.end-h.payload, "the UDP length counts too")
}

func TestParseLengthZero(t *testing.T) {
	b := ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(1, 2, []byte("abc"))))
	binary.BigEndian.PutUint16(b[16:], 0)
	p := parseTest(b)
	h := p.best()
	require.Equal(t, reasonNone, p.reason)
	require.NotZero(t, h.flags&flagNoLength)
	require.Equal(t, "abc", string(b[h.payload:h.end]))
}

func TestParseFragments(t *testing.T) {
	udp := udpDatagram(7, 8, make([]byte, 24))
	first := parseTest(ethFrame(ethIPv4, ip4Packet(17, 0x2000, udp[:16]))).best()
	require.Equal(t, flagFragFirst|flagPorts|flagPayload, first.flags)
	require.Equal(t, uint16(8), first.dport)
	require.Equal(t, uint32(0x1234), first.fragID)
	later := parseTest(ethFrame(ethIPv4, ip4Packet(17, 2, udp[16:]))).best()
	require.Equal(t, flagFragLater, later.flags)

	header := func(word uint16) []byte { return []byte{17, 0, byte(word >> 8), byte(word), 0, 0, 1, 2} }
	first = parseTest(ethFrame(ethIPv6, ip6Packet(44, append(header(1), udp...)))).best()
	require.Equal(t, flagFragFirst|flagPorts|flagPayload, first.flags)
	require.Equal(t, uint32(0x102), first.fragID)
	atomic := parseTest(ethFrame(ethIPv6, ip6Packet(44, append(header(0), udp...)))).best()
	require.Equal(t, flagPorts|flagPayload, atomic.flags)
	later = parseTest(ethFrame(ethIPv6, ip6Packet(44, append(header(16), udp...)))).best()
	require.Equal(t, flagFragLater, later.flags)
	// What follows a later fragment's header is data, even if it is named as an
	// extension header.
	dstOpts := append([]byte{60, 0, 0, 16, 0, 0, 1, 2}, 0xff, 0xff, 0xff)
	p := parseTest(ethFrame(ethIPv6, ip6Packet(44, dstOpts)))
	require.Equal(t, reasonNone, p.reason)
	require.False(t, p.protos.has(protoDstOpts))
}

// A tag removed by the NIC makes no difference but to offsets.
func TestParseStrippedTag(t *testing.T) {
	wire := sampleFrames()["vlan"]
	tagged := parseTest(wire)
	stripped := new(parsed)
	b := append(slices.Clone(wire[:12]), wire[16:]...)
	parseFrame(stripped, b, len(b), &packetMeta{vlan: 5, stripped: true})
	require.Equal(t, tagged.protos, stripped.protos)
	require.Equal(t, tagged.vlans, stripped.vlans)
	require.Equal(t, tagged.tags, stripped.tags)
	require.Equal(t, tagged.best().payload-4, stripped.best().payload)
}

// outerCounts are what the reference decoder calls outer_*.
type outerCounts struct {
	l3, proto, next, tags map[string]int
}

func countOuter(frames []testFrame) outerCounts {
	c := outerCounts{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
	for _, f := range frames {
		p := new(parsed)
		parseFrame(p, f.data, f.wireLen, &packetMeta{})
		h := &p.hdr[levelOuter]
		c.l3[[]string{"none", "ip", "ipv6", "arp"}[h.l3]]++
		switch h.l3 {
		case l3IPv4:
			c.proto[fmt.Sprint(h.first)]++
		case l3IPv6:
			c.next[fmt.Sprint(h.first)]++
		}
		c.tags[fmt.Sprint(p.tags)]++
	}
	return c
}

func TestParseOuterCounts(t *testing.T) {
	files := 0
	for _, e := range readExpected(t) {
		c := readCapture(t, sharedFile(t, "pcaps", e.File))
		if c.linkType != 1 {
			continue
		}
		files++
		want := outerCounts{e.L3, e.IPProto, e.IPv6Next, e.VLANLayers}
		require.Equal(t, want, countOuter(c.frames), e.File)
	}
	require.Greater(t, files, 30)
}

func TestParseNoAllocations(t *testing.T) {
	for name, b := range sampleFrames() {
		p, meta := new(parsed), packetMeta{}
		require.Zero(t, testing.AllocsPerRun(100, func() { parseFrame(p, b, len(b), &meta) }), name)
	}
}

// Random bytes behind valid beginnings.
func TestParseRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	samples := sampleFrames()
	names := make([]string, 0, len(samples))
	for name := range samples {
		names = append(names, name)
	}
	slices.Sort(names)
	p := new(parsed)
	for range 200_000 {
		b := slices.Clone(samples[names[rnd.IntN(len(names))]])
		for range 1 + rnd.IntN(4) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		b = b[:rnd.IntN(len(b)+1)]
		parseFrame(p, b[:len(b):len(b)], len(b), &packetMeta{})
		checkParsed(t, b, p)
	}
}

func FuzzParse(f *testing.F) {
	for _, b := range sampleFrames() {
		f.Add(b, 0, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, extra int, stripped bool) {
		p := new(parsed)
		parseFrame(p, b[:len(b):len(b)], len(b)+max(0, extra%100), &packetMeta{vlan: 9, stripped: stripped})
		checkParsed(t, b, p)
	})
}

func BenchmarkParse(b *testing.B) {
	frame := sampleFrames()["tcp"]
	p, meta := new(parsed), packetMeta{}
	b.ReportAllocs()
	for b.Loop() {
		parseFrame(p, frame, len(frame), &meta)
	}
}

func (s *protoSet) has(id protocolID) bool { return s[id>>6&1]>>(id&63)&1 != 0 }
