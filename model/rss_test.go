package model

// rss_test.go holds the hash against the vectors that Microsoft publishes for
// it ("Verifying the RSS hash calculation"), and the choice of a queue.

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

var rssKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

var rssVectors = []struct {
	dst, src string
	ip, tcp  uint32
}{
	{"161.142.100.80:1766", "66.9.149.187:2794", 0x323e8fc2, 0x51ccc178},
	{"65.69.140.83:4739", "199.92.111.2:14230", 0xd718262a, 0xc626b0ea},
	{"12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0a5de, 0x5c2b394a},
	{"209.142.163.6:2217", "38.27.205.30:48228", 0x82989176, 0xafc7327f},
	{"202.188.127.2:1303", "153.39.163.191:44251", 0x5d1809c5, 0x10e828a2},
	{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc18cd5, 0x40207d3d},
	{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c461c, 0xdde51bbf},
	{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x4b61e985, 0x02d1feef},
}

// rssFrame is a TCP or UDP frame between two addresses.
func rssFrame(proto byte, src, dst netip.AddrPort) []byte {
	f := make([]byte, 14)
	l4 := make([]byte, 20)
	putBE16(l4, 0, src.Port())
	putBE16(l4, 2, dst.Port())
	l4[12] = 0x50
	if src.Addr().Is4() {
		putBE16(f, 12, etherIPv4)
		ip := make([]byte, 20)
		ip[0], ip[9] = 0x45, proto
		putBE16(ip, 2, 40)
		copy(ip[12:], src.Addr().AsSlice())
		copy(ip[16:], dst.Addr().AsSlice())
		return append(append(f, ip...), l4...)
	}
	putBE16(f, 12, etherIPv6)
	ip := make([]byte, 40)
	ip[0], ip[6] = 0x60, proto
	putBE16(ip, 4, 20)
	copy(ip[8:], src.Addr().AsSlice())
	copy(ip[24:], dst.Addr().AsSlice())
	return append(append(f, ip...), l4...)
}

func TestToeplitzVectors(t *testing.T) {
	r := newRig(t)
	table := r.d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, entries: []uint32{1, 2, 3, 4, 5, 6, 7, 8}} })
	odd := r.d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, entries: []uint32{1, 2, 3}} })
	for _, v := range rssVectors {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		v6 := src.Addr().Is6()
		ip := uint8(0x05)
		if v6 {
			ip = 0x0a
		}
		var p packet
		p.parse(rssFrame(protoTCP, src, dst), true)
		x := &tir{hash: hashToeplitz, key: rssKey, rqt: table.n, outer: hashFields{ip6: v6, sel: 0xf, have: true}}
		rq, h, kind := r.d.pickRQ(x, &p)
		require.Equal(t, v.tcp, h, v.src)
		require.Equal(t, 0x50|ip, kind)
		require.Equal(t, v.tcp&7+1, rq)
		x.rqt = odd.n
		rq, _, _ = r.d.pickRQ(x, &p)
		require.Equal(t, v.tcp%3+1, rq, "a table that is no power of two")
		x.outer.sel = 3
		_, h, kind = r.d.pickRQ(x, &p)
		require.Equal(t, v.ip, h)
		require.Equal(t, ip, kind)
		// A TIR for UDP hashes the addresses of a TCP packet only.
		x.outer.sel, x.outer.udp = 0xf, true
		_, h, _ = r.d.pickRQ(x, &p)
		require.Equal(t, v.ip, h)
		p.parse(rssFrame(protoUDP, src, dst), true)
		_, h, kind = r.d.pickRQ(x, &p)
		require.Equal(t, v.tcp, h)
		require.Equal(t, 0xa0|ip, kind)
		// The other IP version is not hashed.
		x.outer.ip6 = !v6
		_, h, kind = r.d.pickRQ(x, &p)
		require.Zero(t, h)
		require.Zero(t, kind)
	}
}

func TestSymmetricHash(t *testing.T) {
	r := newRig(t)
	table := r.d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, entries: []uint32{1}} })
	seen := map[uint32]bool{}
	for _, v := range rssVectors {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		x := &tir{hash: hashToeplitz, key: rssKey, rqt: table.n, sym: true, outer: hashFields{ip6: src.Addr().Is6(), sel: 0xf, have: true}}
		var p packet
		p.parse(rssFrame(protoTCP, src, dst), true)
		_, there, _ := r.d.pickRQ(x, &p)
		p.parse(rssFrame(protoTCP, dst, src), true)
		_, back, _ := r.d.pickRQ(x, &p)
		require.Equal(t, there, back)
		seen[there] = true
	}
	require.Len(t, seen, len(rssVectors), "different flows still differ")
}

func TestFragmentsHashByAddress(t *testing.T) {
	r := newRig(t)
	table := r.d.rqts.add(func(n uint32) *rqt { return &rqt{n: n, entries: []uint32{1}} })
	v := rssVectors[0]
	f := rssFrame(protoTCP, netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst))
	x := &tir{hash: hashToeplitz, key: rssKey, rqt: table.n, outer: hashFields{sel: 0xf, have: true}}
	for _, frag := range []uint16{0x2000, 0x2001, 0x0010} {
		putBE16(f, 20, frag)
		var p packet
		p.parse(f, true)
		_, h, kind := r.d.pickRQ(x, &p)
		require.Equal(t, v.ip, h, "first, middle and last fragment go to one queue")
		require.Equal(t, uint8(0x05), kind)
	}
}
