package model

// parse_test.go checks what the parser finds, on built frames and on every
// shorter and damaged version of them, which must only be safe.

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseIPv6Extensions(t *testing.T) {
	eth := dataFrame(t, "020000000001 020000000002 86dd")
	ip := func(next byte, n int) []byte {
		b := make([]byte, 40)
		b[0], b[6] = 0x60, next
		putBE16(b, 4, uint16(n))
		return b
	}
	udp := dataFrame(t, "0035 1234 0008 0000")
	hop := dataFrame(t, "2b 00 0000 0000 0000")                         // then routing
	routing := dataFrame(t, "11 01 0000 0000 0000 0000 0000 0000 0000") // 16 bytes, then UDP
	fragFirst := dataFrame(t, "3c 00 0001 00000001")                    // offset 0, more; then options
	options := dataFrame(t, "11 00 ffff ffff ffff")                     // bytes that look like an offset
	fragLater := dataFrame(t, "11 00 0008 00000001")                    // offset 1
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	var p packet
	p.parse(join(eth, ip(protoHopByHop, 32), hop, routing, udp), true)
	require.Equal(t, uint8(protoUDP), p.outer.proto)
	require.Equal(t, 14+40+24, p.outer.l4)
	require.Equal(t, 64, p.outer.l3Len)
	p.parse(join(eth, ip(protoFragment, 24), fragFirst, options, udp), true)
	require.True(t, p.outer.frag)
	require.Equal(t, uint8(protoUDP), p.outer.proto)
	require.Zero(t, p.outer.l4)
	p.parse(join(eth, ip(protoFragment, 16), fragLater, udp), true)
	require.True(t, p.outer.frag)
	require.Equal(t, uint8(protoUDP), p.outer.proto)
	p.parse(join(eth, ip(protoHopByHop, 4), hop), true)
	require.Zero(t, p.outer.l4, "the extension is longer than the packet")
}

// parseSamples are frames of many kinds.
func parseSamples(t testing.TB) [][]byte {
	gre := rigUDP(60, 1)
	gre[23] = protoGRE
	copy(gre[34:], dataFrame(t, "b000 6558 1111 0000 00c0ffee 00000001"))
	copy(gre[50:], rigUDP(2, 1))
	ipip := rigUDP(60, 1)
	ipip[23] = protoIPIP
	copy(ipip[34:], rigUDP(30, 1)[14:])
	geneve := vxlan(rigTCP(10, true, tcpACK))
	putBE16(geneve, 36, portGENEVE)
	copy(geneve[42:], dataFrame(t, "0080 6558 abcdef00"))
	esp := rigUDP(30, 1)
	esp[23] = protoESP
	return [][]byte{
		rigUDP(0, 1), rigUDP(100, 2), rigTCP(10, false, 2), rigTCP(10, true, tcpACK), vxlan(rigTCP(3, false, 0)),
		gre, ipip, geneve, esp,
		dataFrame(t, "020000000001 020000000002 88a8 2001 8100 3002 0800 4500001c 00000000 40110000 0a000001 0a000002 0001000200080000"),
	}
}

func TestParseTunnels(t *testing.T) {
	s := parseSamples(t)
	want := []uint8{0, 0, 0, 0, tunnelVXLAN, tunnelGRE, tunnelIP, tunnelGENEVE, 0, 0}
	for i, f := range s {
		var p packet
		p.parse(f, true)
		require.Equal(t, want[i], p.tunnel, i)
		if p.tunnel != tunnelNone {
			require.NotZero(t, p.inner.version, i)
		}
		p.parse(f, false)
		require.Equal(t, uint8(tunnelNone), p.tunnel)
	}
	var p packet
	p.parse(s[5], true)
	var m matchParam
	m.fill(&p, matchMisc)
	require.Equal(t, uint32(0xb0)<<24, m[16])
	require.Equal(t, uint32(0x6558), m[19])
	require.Equal(t, uint32(0xc0ffee), m[20])
	p.parse(s[7], true)
	m.fill(&p, matchMisc)
	require.Equal(t, uint32(0xabcdef)<<8|1, m[22])
	f := vxlan(rigUDP(1, 1))
	putBE16(f, 36, 8472)
	p.parse(f, true)
	require.Equal(t, uint8(tunnelNone), p.tunnel)
	p.vxlan = []uint16{8472}
	p.parse(f, true)
	require.Equal(t, uint8(tunnelVXLAN), p.tunnel, "a port that the host added")
}

// exercise runs everything that reads a parsed frame.
func exercise(f []byte) {
	var p packet
	p.parse(f, true)
	var m matchParam
	m.fill(&p, 7)
	x := rxDest{tir: &tir{tunneled: true}}
	var e [64]byte
	fillRxCQE(&e, &p, &x)
	var buf [hashInputMax]byte
	for _, h := range []*l3Header{&p.outer, &p.inner} {
		for _, v6 := range []bool{false, true} {
			hashInput(&buf, f, h, hashFields{ip6: v6, sel: 0x1f}, true)
			hashInput(&buf, f, h, hashFields{ip6: v6, udp: true, sel: 0x1f}, false)
		}
	}
	headersEnd(f, true)
	offload(append([]byte(nil), f...), &eseg{csum: 0xf0})
}

func TestParseDamaged(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	for _, f := range parseSamples(t) {
		for n := range len(f) + 1 {
			exercise(f[:n:n])
		}
		for range 2000 {
			g := append([]byte(nil), f[:rnd.Intn(len(f)+1)]...)
			for range 1 + rnd.Intn(4) {
				if len(g) > 0 {
					g[rnd.Intn(len(g))] = byte(rnd.Intn(256))
				}
			}
			exercise(g)
		}
	}
}
