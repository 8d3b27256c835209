package model

// wire_gen_test.go checks every generated frame with a checker of its own: it
// shares no code with the generator. It takes a frame apart by the RFCs, adds
// up every checksum, puts fragments and streams together again, and collects
// the names an inspector would find.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// frameChecker holds what it has seen of a sequence of frames.
type frameChecker struct {
	kinds     map[string]int
	hosts     map[netip.Addr]bool
	tuples    map[string]bool
	streams   map[string]*checkedStream
	fragments map[string][]byte
	dns       map[string]int
	sni       map[string]int
	httpHost  map[string]int
}

// checkedStream is one direction of a TCP connection.
type checkedStream struct {
	next      uint32
	data      []byte
	syn, fin  bool
	finished  int
	connected int
}

func newFrameChecker() *frameChecker {
	return &frameChecker{kinds: map[string]int{}, hosts: map[netip.Addr]bool{}, tuples: map[string]bool{},
		streams: map[string]*checkedStream{}, fragments: map[string][]byte{},
		dns: map[string]int{}, sni: map[string]int{}, httpHost: map[string]int{}}
}

// onesSum adds 16-bit words with end-around carry, one at a time.
func onesSum(parts ...[]byte) uint16 {
	sum := uint64(0)
	for _, p := range parts { // of even length, all but the last
		for i, b := range p {
			sum += uint64(b) << (8 * (1 - i%2))
		}
	}
	return uint16(sum % 0xffff) // 0 is right: the checksum makes it a multiple
}

func (k *frameChecker) fail(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// check looks at the next frame of the sequence. Whatever makes the checker
// reach beyond the frame is a fault of the frame too.
func (k *frameChecker) check(f []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v in % x", p, f)
		}
	}()
	k.ethernet(f, true)
	return nil
}

// checkAll looks at a whole table.
func (k *frameChecker) checkAll(t *testing.T, frames [][]byte) {
	t.Helper()
	for i, f := range frames {
		if err := k.check(f); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
}

func (k *frameChecker) ethernet(f []byte, outer bool) {
	if len(f) < 14 {
		k.fail("%d bytes of Ethernet", len(f))
	}
	if f[6]&1 != 0 {
		k.fail("a source that is a group")
	}
	kind, p := binary.BigEndian.Uint16(f[12:]), f[14:]
	for tags := 0; kind == 0x8100 || kind == 0x88a8; tags++ {
		if tags == 2 {
			k.fail("three tags")
		}
		k.kinds[fmt.Sprintf("tag%d", tags+1)]++
		kind, p = binary.BigEndian.Uint16(p[2:]), p[4:]
	}
	switch kind {
	case 0x0800:
		k.ipv4(p, outer)
	case 0x86dd:
		k.ipv6(p)
	case 0x0806:
		k.kinds["arp"]++
		if !bytes.Equal(p[:6], []byte{0, 1, 8, 0, 6, 4}) || p[7] < 1 || p[7] > 2 || !bytes.Equal(p[8:14], f[6:12]) {
			k.fail("ARP % x", p)
		}
	case 0x88cc:
		k.lldp(p)
	default:
		k.fail("EtherType %04x", kind)
	}
}

func (k *frameChecker) lldp(p []byte) {
	k.kinds["lldp"]++
	for want := 1; ; want++ {
		head := binary.BigEndian.Uint16(p)
		kind, n := int(head>>9), int(head&0x1ff)
		if kind == 0 {
			if want < 4 {
				k.fail("LLDP without its three duties")
			}
			return
		}
		if want <= 3 && kind != want {
			k.fail("LLDP TLV %d where %d belongs", kind, want)
		}
		p = p[2+n:]
	}
}

var allowedPrefixes = func() (all []netip.Prefix) {
	for _, p := range []string{"10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "ff02::/16"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}()

func (k *frameChecker) host(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	if k.hosts[a] {
		return a
	}
	allowed := false
	for _, p := range allowedPrefixes {
		allowed = allowed || p.Contains(a)
	}
	if !allowed {
		k.fail("address %s is neither private nor for documentation", a)
	}
	k.hosts[a] = true
	return a
}

func (k *frameChecker) ipv4(p []byte, outer bool) {
	head, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if p[0]>>4 != 4 || head < 20 || total < head || total > len(p) {
		k.fail("IPv4 header % x of %d bytes", p[:20], len(p))
	}
	if onesSum(p[:head]) != 0 {
		k.fail("IPv4 header checksum: % x", p[:head])
	}
	src, dst := p[12:16], p[16:20]
	k.host(src)
	k.host(dst)
	k.kinds["ipv4"]++
	payload, proto := p[head:total], p[9]
	flags := binary.BigEndian.Uint16(p[6:])
	if flags&0x3fff != 0 {
		k.kinds["fragment"]++
		id := string(p[4:6]) + string(src) + string(dst)
		if int(flags&0x1fff)*8 != len(k.fragments[id]) {
			k.fail("fragment at %d, expected at %d", int(flags&0x1fff)*8, len(k.fragments[id]))
		}
		payload = append(k.fragments[id], payload...)
		k.fragments[id] = payload
		if flags&0x2000 != 0 {
			return
		}
		delete(k.fragments, id)
	}
	switch proto {
	case 1:
		k.kinds["icmp"]++
		if onesSum(payload) != 0 {
			k.fail("ICMP checksum")
		}
	case 47:
		k.kinds["gre"]++
		if !bytes.Equal(payload[:4], []byte{0, 0, 8, 0}) || !outer {
			k.fail("GRE % x", payload[:4])
		}
		k.ipv4(payload[4:], false)
	default:
		k.transport(src, dst, proto, payload, outer)
	}
}

func (k *frameChecker) ipv6(p []byte) {
	n := int(binary.BigEndian.Uint16(p[4:]))
	if p[0]>>4 != 6 || 40+n > len(p) {
		k.fail("IPv6 header % x of %d bytes", p[:40], len(p))
	}
	src, dst, payload := p[8:24], p[24:40], p[40:40+n]
	k.host(src)
	k.host(dst)
	k.kinds["ipv6"]++
	if p[6] != 58 {
		k.transport(src, dst, p[6], payload, true)
		return
	}
	k.kinds[fmt.Sprintf("icmp6-%d", payload[0])]++
	if onesSum(src, dst, binary.BigEndian.AppendUint32(nil, uint32(n)), []byte{0, 0, 0, 58}, payload) != 0 {
		k.fail("ICMPv6 checksum")
	}
	if payload[0] >= 135 && p[7] != 255 {
		k.fail("neighbour discovery with hop limit %d", p[7])
	}
}

func (k *frameChecker) transport(src, dst []byte, proto byte, s []byte, outer bool) {
	pseudo := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(s))), uint32(proto))
	if onesSum(src, dst, pseudo, s) != 0 {
		k.fail("checksum of protocol %d: % x", proto, s)
	}
	sport, dport := binary.BigEndian.Uint16(s), binary.BigEndian.Uint16(s[2:])
	from, to := fmt.Sprintf("%x:%d", src, sport), fmt.Sprintf("%x:%d", dst, dport)
	tuple := fmt.Sprintf("%d %s %s", proto, min(from, to), max(from, to))
	switch {
	case proto == 6:
		k.tuples[tuple] = true
		k.tcp(fmt.Sprintf("%s > %s", from, to), fmt.Sprintf("%s > %s", to, from), sport, dport, s)
		return
	case proto != 17:
		k.fail("protocol %d", proto)
	}
	if n := int(binary.BigEndian.Uint16(s[4:])); n != len(s) || binary.BigEndian.Uint16(s[6:]) == 0 {
		k.fail("UDP length %d of %d, checksum % x", n, len(s), s[6:8])
	}
	k.kinds["udp"]++
	switch {
	case dport == 4789 && outer:
		k.kinds["vxlan"]++
		if s[8] != 8 {
			k.fail("VXLAN flags")
		}
		k.ethernet(s[16:], false)
		return
	case dport == 53 || sport == 53:
		k.dnsMessage(s[8:], sport == 53)
	}
	k.tuples[tuple] = true
}

func (k *frameChecker) dnsMessage(m []byte, response bool) {
	if (m[2]&0x80 != 0) != response || binary.BigEndian.Uint16(m[4:]) != 1 || m[7] != m[2]>>7 {
		k.fail("DNS header % x", m[:12])
	}
	var labels []string
	at := 12
	for m[at] != 0 {
		labels = append(labels, string(m[at+1:at+1+int(m[at])]))
		at += 1 + int(m[at])
	}
	kind := binary.BigEndian.Uint16(m[at+1:])
	at += 5
	if response {
		n := int(binary.BigEndian.Uint16(m[at+10:]))
		if !bytes.Equal(m[at:at+2], []byte{0xc0, 12}) || binary.BigEndian.Uint16(m[at+2:]) != kind ||
			n != map[uint16]int{1: 4, 28: 16}[kind] {
			k.fail("DNS answer % x", m[at:])
		}
		k.host(m[at+12 : at+12+n])
		at += 12 + n
	}
	if !bytes.Equal(m[at:at+3], []byte{0, 0, 41}) || at+11+int(binary.BigEndian.Uint16(m[at+9:])) != len(m) {
		k.fail("DNS additional % x of %d bytes", m[at:at+11], len(m)-at)
	}
	k.dns[strings.Join(labels, ".")]++
}

func (k *frameChecker) tcp(name, back string, sport, dport uint16, s []byte) {
	k.kinds["tcp"]++
	head := int(s[12]>>4) * 4
	if head < 20 || head > len(s) {
		k.fail("TCP header of %d bytes", head)
	}
	st := k.streams[name]
	if st == nil {
		st = &checkedStream{}
		k.streams[name] = st
	}
	seq, ack, flags, payload := binary.BigEndian.Uint32(s[4:]), binary.BigEndian.Uint32(s[8:]), s[13], s[head:]
	if flags&2 != 0 {
		st.syn, st.fin, st.next, st.data = true, false, seq, nil
		st.connected++
	}
	if !st.syn || seq != st.next {
		k.fail("%s: sequence %d, expected %d", name, seq, st.next)
	}
	if flags&16 != 0 && ack != k.streams[back].next {
		k.fail("%s: acknowledges %d of %d", name, ack, k.streams[back].next)
	}
	if st.fin && len(payload) > 0 {
		k.fail("%s: data behind the FIN", name)
	}
	st.next += uint32(len(payload))
	st.data = append(st.data, payload...)
	if flags&2 != 0 {
		st.next++
	}
	if flags&1 != 0 {
		st.next++
		st.fin = true
		st.finished++
		k.application(st.data, sport, dport)
	}
}

// application reads the whole of one direction.
func (k *frameChecker) application(data []byte, sport, dport uint16) {
	switch {
	case sport == 443 || dport == 443:
		k.tlsStream(data, dport == 443)
	case sport == 80:
		for len(data) > 0 {
			head, rest, ok := strings.Cut(string(data), "\r\n\r\n")
			_, length, _ := strings.Cut(head, "Content-Length: ")
			n := 0
			fmt.Sscan(length, &n)
			if !ok || !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || n > len(rest) {
				k.fail("HTTP response %q", head)
			}
			data = []byte(rest[n:])
		}
	case dport == 80:
		for _, request := range strings.SplitAfter(strings.TrimSuffix(string(data), "\r\n\r\n"), "\r\n\r\n") {
			lines := strings.Split(request, "\r\n")
			if !strings.HasPrefix(lines[0], "GET /") || !strings.HasSuffix(lines[0], " HTTP/1.1") {
				k.fail("HTTP request %q", lines[0])
			}
			k.httpHost[strings.TrimPrefix(lines[1], "Host: ")]++
		}
	}
}

func (k *frameChecker) tlsStream(data []byte, client bool) {
	for first := true; len(data) > 0; first = false {
		n := int(binary.BigEndian.Uint16(data[3:]))
		if n > 1<<14+256 || 5+n > len(data) || data[1] != 3 || (data[0] == 22) != first {
			k.fail("TLS record % x with %d bytes to come", data[:5], len(data)-5)
		}
		body := data[5 : 5+n]
		if first {
			k.hello(body, client)
		}
		data = data[5+n:]
	}
}

func (k *frameChecker) hello(m []byte, client bool) {
	if int(m[1])<<16|int(binary.BigEndian.Uint16(m[2:])) != len(m)-4 || (m[0] == 1) != client {
		k.fail("hello % x of %d bytes", m[:4], len(m))
	}
	p := m[4+2+32:]
	p = p[1+int(p[0]):]
	if client {
		p = p[2+int(binary.BigEndian.Uint16(p)):]
		p = p[1+int(p[0]):]
	} else {
		p = p[3:]
	}
	if int(binary.BigEndian.Uint16(p)) != len(p)-2 {
		k.fail("extensions of %d bytes in %d", binary.BigEndian.Uint16(p), len(p)-2)
	}
	for p = p[2:]; len(p) > 0; {
		kind, n := binary.BigEndian.Uint16(p), int(binary.BigEndian.Uint16(p[2:]))
		if kind == 0 {
			name := p[4 : 4+n]
			if int(binary.BigEndian.Uint16(name)) != n-2 || name[2] != 0 || int(binary.BigEndian.Uint16(name[3:])) != n-5 {
				k.fail("server name % x", name)
			}
			k.sni[string(name[5:])]++
		}
		p = p[4+n:]
	}
}

// genTable opens a generator and returns one round of its frames.
func genTable(t testing.TB, options string) [][]byte {
	w := openWire(t, "gen:"+options)
	return w.(*genWire).frames
}

func TestGenEveryFrameIsRight(t *testing.T) {
	for _, options := range []string{"mode=imix", "mode=imix,flows=500,seed=9", "mode=64", "mode=65,flows=64", "mode=100",
		"size=128", "size=256,flows=64", "mode=303", "size=304,flows=64", "mode=1518", "size=9018,flows=64", "size=16000,flows=64",
		"flows=1", "flows=31"} {
		t.Run(options, func(t *testing.T) {
			frames := genTable(t, options)
			k := newFrameChecker()
			k.checkAll(t, frames)
			k.checkAll(t, frames) // the second round starts every connection again
			require.Empty(t, k.fragments)
			for name, s := range k.streams {
				require.Equal(t, 2, s.connected, name)
				require.Equal(t, 2, s.finished, name)
			}
		})
	}
}

// TestGenCheckerSeesDamage: every bit that a checksum covers matters to the
// checker, so that the test above means something.
func TestGenCheckerSeesDamage(t *testing.T) {
	kinds := map[string]bool{}
	for _, f := range genTable(t, "size=256,flows=32") {
		k := newFrameChecker()
		if k.check(f) != nil || len(k.kinds) == 0 {
			continue // a frame in the middle of a connection, or a fragment
		}
		kind := fmt.Sprint(k.kinds)
		if kinds[kind] || k.kinds["arp"]+k.kinds["lldp"]+k.kinds["fragment"] > 0 {
			continue
		}
		kinds[kind] = true
		length := map[byte]int{0x45: 14 + int(binary.BigEndian.Uint16(f[16:])), 0x60: 54 + int(binary.BigEndian.Uint16(f[18:]))}[f[14]]
		for at := 14; at < length; at++ {
			bad := bytes.Clone(f)
			bad[at] ^= 0x10
			label := at >= 15 && at < 18 || at == 21 // traffic class, flow label, hop limit: no sum covers them
			if f[14] == 0x60 && label {
				continue
			}
			require.Error(t, newFrameChecker().check(bad), "byte %d of % x", at, f)
		}
	}
	require.Greater(t, len(kinds), 4)
}

func TestGenImixSizes(t *testing.T) {
	frames := genTable(t, "mode=imix")
	count := map[int]int{}
	for _, f := range frames {
		count[len(f)]++
		require.Equal(t, len(f), cap(f))
	}
	n := count[1514]
	require.Equal(t, map[int]int{60: 7 * n, 566: 4 * n, 1514: n}, count)
	require.Greater(t, len(frames), 2000)
	require.Less(t, len(frames), 10000)
}

func TestGenFixedSizes(t *testing.T) {
	for options, size := range map[string]int{"mode=64": 60, "size=64": 60, "mode=1518": 1514, "size=700,flows=32": 696, "size=9018,flows=32": 9014} {
		for _, f := range genTable(t, options) {
			require.Len(t, f, size, options)
		}
	}
}

// TestGenIsInteresting: an inspector finds every protocol and many names.
func TestGenIsInteresting(t *testing.T) {
	k := newFrameChecker()
	streams, table := 0, genTable(t, "flows=256")
	k.checkAll(t, table)
	for _, f := range table {
		if len(f) > 42 && f[23] == 17 && f[34] >= 64 && f[34] < 68 {
			streams++
		}
	}
	for _, kind := range []string{"arp", "lldp", "ipv4", "ipv6", "tcp", "udp", "icmp", "icmp6-128", "icmp6-129", "icmp6-135",
		"icmp6-136", "tag1", "tag2", "vxlan", "gre", "fragment"} {
		require.NotZero(t, k.kinds[kind], kind)
	}
	require.Greater(t, len(k.hosts), 100)
	require.Greater(t, len(k.sni), 24)
	require.Greater(t, len(k.dns), 24)
	require.Greater(t, len(k.httpHost), 12)
	for _, names := range []map[string]int{k.sni, k.dns, k.httpHost} {
		for name := range names {
			require.Regexp(t, `^[a-z]+(-[0-9]+)?\.example\.(com|net|org)$`, name)
		}
	}
	require.Less(t, streams, len(table)/4, "most frames belong to conversations")
	t.Logf("%v; hosts %d, 5-tuples %d, SNI %d, DNS %d, Host %d, stream frames %d", k.kinds, len(k.hosts), len(k.tuples),
		len(k.sni), len(k.dns), len(k.httpHost), streams)

	small := newFrameChecker()
	small.checkAll(t, genTable(t, "mode=64"))
	require.Greater(t, len(small.sni), 20, "split over segments of 6 bytes")
	require.Greater(t, len(small.httpHost), 12)
}

func TestGenFlowsAreDistinct(t *testing.T) {
	k := newFrameChecker()
	k.checkAll(t, genTable(t, "flows=2048,mode=64"))
	// All but ARP, LLDP, ICMP and the like have a 5-tuple of their own.
	require.Greater(t, len(k.tuples), 2048*26/32)
	k = newFrameChecker()
	k.checkAll(t, genTable(t, "flows=1"))
	require.Len(t, k.tuples, 1)
}

func TestGenIsDeterministic(t *testing.T) {
	for _, options := range []string{"seed=5", "seed=5,mode=64", "seed=0,flows=77"} {
		require.Equal(t, genTable(t, options), genTable(t, options), options)
	}
	require.NotEqual(t, genTable(t, "seed=5"), genTable(t, "seed=6"))
	require.Equal(t, genTable(t, ""+"seed=1"), genTable(t, "mode=imix"), "the default seed is 1")
}

func TestGenDestination(t *testing.T) {
	for options, want := range map[string][]byte{
		"flows=64": {2, 0, 0, 0, 0, 1}, "flows=64,dst=02:aa:bb:cc:dd:ee": {2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee},
	} {
		unicast := 0
		for _, f := range genTable(t, options) {
			if f[0]&1 == 0 {
				unicast++
				require.Equal(t, want, f[:6])
			}
		}
		require.NotZero(t, unicast)
	}
}

func TestGenCounts(t *testing.T) {
	w := openWire(t, "gen")
	require.True(t, w.Lossless())
	require.True(t, w.LinkUp())
	n, table := 0, w.(*genWire).frames
	for f := w.Peek(time.Time{}); f != nil; f = w.Peek(time.Time{}) {
		if n%1000 == 0 {
			require.Equal(t, table[n%len(table)], f)
		}
		w.Take()
		n++
	}
	require.Equal(t, 1000000, n)
	require.True(t, w.Done())

	w = openWire(t, "gen:count=7,size=64")
	require.Len(t, drainWire(w, time.Time{}, 99), 7)
	w.Take()
	require.True(t, w.Done())

	w = openWire(t, "gen:count=0,mode=64,flows=2")
	for range 100000 {
		require.NotNil(t, w.Peek(time.Time{}))
		w.Take()
	}
	require.False(t, w.Done())
}

func TestGenCostsNoAllocation(t *testing.T) {
	w := openWire(t, "gen:count=0,pps=1000M")
	now := time.Now()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Microsecond)
		w.Peek(now)
		w.Take()
	}))
}

func BenchmarkGenFrame(b *testing.B) {
	w := openWire(b, "gen:count=0")
	now := time.Now()
	for b.Loop() {
		w.Peek(now)
		w.Take()
	}
}
