package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mustRules reads rules and gives them their locations.
func mustRules(t testing.TB, texts ...string) []rule {
	t.Helper()
	var out []rule
	for _, text := range texts {
		r, err := parseRule(text)
		require.NoError(t, err, text)
		out = append(out, r)
	}
	out, err := placeRules(out)
	require.NoError(t, err)
	return out
}

// What is read, and how it is written again: words in the order of the flow type,
// masks only where something is ignored, values without ignored bits.
func TestParseRule(t *testing.T) {
	for _, c := range []struct{ text, again string }{
		{"flow-type tcp4 src-ip 192.168.0.1 dst-port 80 action 2 loc 1", "="},
		{"flow-type udp4 dst-port 5000 action 6", "="},
		{"  flow-type \t udp4  dst-port 0x1388 action 0x6\n", "flow-type udp4 dst-port 5000 action 6"},
		{"flow-type udp4 action -1 loc 1023", "="},
		{"flow-type udp4 loc 0 action 0", "flow-type udp4 action 0 loc 0"},
		{"flow-type tcp4 dst-port 80 src-ip 10.1.2.3 m 0.0.0.255 action 0", "flow-type tcp4 src-ip 10.1.2.0 m 0.0.0.255 dst-port 80 action 0"},
		{"flow-type tcp4 src-ip 10.1.2.3 m 255.255.255.255 action 0", "flow-type tcp4 action 0"},
		{"flow-type tcp4 src-ip 10.1.2.3 m 0.0.0.0 action 0", "flow-type tcp4 src-ip 10.1.2.3 action 0"},
		{"flow-type tcp4 dst-port 4660 m 255 action 0", "flow-type tcp4 dst-port 4608 m 0xff action 0"},
		{"flow-type tcp4 tos 0x28 m 3 dst-ip 1.2.3.4 action 0", "flow-type tcp4 dst-ip 1.2.3.4 tos 0x28 m 0x3 action 0"},
		{"flow-type ip4 l4proto 47 action 0", "="},
		{"flow-type ip4 src-ip 1.2.3.4 dst-ip 1.2.3.4 src-ip-mask 0.0.0.255 queue 3", "flow-type ip4 src-ip 1.2.3.0 m 0.0.0.255 dst-ip 1.2.3.4 action 3"},
		{"flow-type ether src 02:00:00:00:00:01 src-mask 00:00:00:00:00:0f vlan-etype 0x8100 m 0 action 3", "flow-type ether src 02:00:00:00:00:00 m 00:00:00:00:00:0f vlan-etype 0x8100 action 3"},
		{"flow-type ip6 src-ip 2001:db8::1 dst-ip 2001:db8:: m ::ffff tclass 0x2 l4proto 58 action 1", "="},
		{"flow-type tcp6 src-ip ::ffff:1.2.3.4 action 1", "="},
		{"flow-type ether action 3", "="},
		{"flow-type ether src 02:00:00:00:00:01 dst ff:ff:ff:ff:ff:ff proto 0x806 action 0", "="},
		{"flow-type ether dst 01:80:C2:00:00:00 m 00:00:00:00:00:0f action -1", "flow-type ether dst 01:80:c2:00:00:00 m 00:00:00:00:00:0f action -1"},
		{"flow-type udp6 dst-port 5 vlan 5 m 0xf000 vlan-etype 0x8100 dst-mac 02:00:00:00:00:02 action 4", "flow-type udp6 dst-port 5 vlan-etype 0x8100 vlan 0x5 m 0xf000 dst-mac 02:00:00:00:00:02 action 4"},
		{"flow-type udp6 vlan 5 m 0xffff action 4", "flow-type udp6 action 4"},
		{"flow-type ether vlan-etype 0x88a8 vlan 0xffff action 4", "="},
		{"flow-type sctp4 dst-ip 1.2.3.4 action 0", "="},
		{"flow-type sctp6 action 0", "="},
		{"flow-type ah4 tos 0x1 action 0", "="},
		{"flow-type ah6 action 0", "="},
		{"flow-type esp4 spi 4294967295 action 0", "="},
		{"flow-type esp6 spi 0x100 m 0xff action 0", "flow-type esp6 spi 256 m 0xff action 0"},
	} {
		r, err := parseRule(c.text)
		require.NoError(t, err, c.text)
		want := c.again
		if want == "=" {
			want = c.text
		}
		require.Equal(t, want, r.String())
		again, err := parseRule(want)
		require.NoError(t, err, want)
		require.Equal(t, r, again, "reading what was written")
	}
}

// Each error names the word and says in one line what would be right.
func TestParseRuleRefuses(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "a rule starts with flow-type"},
		{"flow-type", "a rule starts with flow-type"},
		{"tcp4 dst-port 80 action 1", "a rule starts with flow-type"},
		{"flow-type tcp dst-port 80 action 1", "flow-type tcp: ether, ip4, tcp4"},
		{"flow-type tcp4 dst-port 80", "action is missing: action N leads to queue N, action -1 drops"},
		{"flow-type tcp4 dst-port 80 action", "action: its value is missing"},
		{"flow-type tcp4 dst-port 80 action -2", "action -2: a queue's number, or action -1 to drop"},
		{"flow-type tcp4 dst-port 80 action two", "action two: a queue's number"},
		{"flow-type tcp4 dst-port 80 action 99999999999", "action 99999999999: a queue's number"},
		{"flow-type tcp4 action 1 loc 1024", "loc 1024: 0 to 1023"},
		{"flow-type tcp4 action 1 loc -1", "loc -1: 0 to 1023"},
		{"flow-type tcp4 action 1 m 1", "m: flow-type tcp4 has src-ip, dst-ip, tos, src-port, dst-port, vlan-etype, vlan, dst-mac, action, queue, loc"},
		{"flow-type tcp4 action 1 action 2", "action stands twice"},
		{"flow-type tcp4 dst-port 1 dst-port 2 action 2", "dst-port stands twice"},
		{"flow-type tcp4 dst-port 65536 action 1", "dst-port 65536: 0 to 65535"},
		{"flow-type tcp4 dst-port 99999999999999999999 action 1", "dst-port 99999999999999999999: 0 to 65535"},
		{"flow-type tcp4 dst-port http action 1", "dst-port http: a decimal number, or one in hex behind 0x"},
		{"flow-type tcp4 dst-port 010 action 1", "dst-port 010: a decimal number"},
		{"flow-type tcp4 dst-port +10 action 1", "dst-port +10: a decimal number"},
		{"flow-type tcp4 dst-port 0x action 1", "dst-port 0x: a decimal number"},
		{"flow-type tcp4 dst-port 0x-1 action 1", "dst-port 0x-1: a decimal number"},
		{"flow-type tcp4 dst-port 80 m", "dst-port: the mask behind m is missing"},
		{"flow-type tcp4 dst-port 80 m action 1", "dst-port m action: a decimal number"},
		{"flow-type tcp4 src-ip 10.0.0 action 1", "src-ip 10.0.0: an IPv4 address such as 192.168.0.1"},
		{"flow-type tcp4 src-ip 10.0.0.0/8 action 1", "src-ip 10.0.0.0/8: an IPv4 address such as 192.168.0.1 (m 0.0.0.255 ignores its last byte)"},
		{"flow-type tcp4 src-ip fd00::1 action 1", "src-ip fd00::1: an IPv4 address"},
		{"flow-type tcp6 src-ip 10.0.0.1 action 1", "src-ip 10.0.0.1: an IPv6 address"},
		{"flow-type tcp6 src-ip fe80::1%eth0 action 1", "src-ip fe80::1%eth0: an IPv6 address"},
		{"flow-type tcp4 src-ip 10.0.0.1 m 8 action 1", "src-ip m 8: an IPv4 address"},
		{"flow-type tcp4 tclass 1 action 1", "tclass: flow-type tcp4 has"},
		{"flow-type tcp6 tos 1 action 1", "tos: flow-type tcp6 has"},
		{"flow-type ip4 tos 256 action 1", "tos 256: 0 to 255"},
		{"flow-type ip4 src-port 1 action 1", "src-port: flow-type ip4 has none: use tcp4 or udp4"},
		{"flow-type ip6 dst-port 1 action 1", "dst-port: flow-type ip6 has none: use tcp6 or udp6"},
		{"flow-type ip4 spi 1 action 1", "spi: use flow-type esp4"},
		{"flow-type ip4 l4data 1 action 1", "l4data: the device matches ports by protocol"},
		{"flow-type tcp4 user-def 1 action 1", "user-def: the device has no field of one's own"},
		{"flow-type tcp4 vf 1 action 1", "vf: rules lead to this function's own queues"},
		{"flow-type tcp4 queue 1 action 1", "queue: action says where to already"},
		{"flow-type tcp4 queue -1", "queue -1: a queue's number, or action -1 to drop"},
		{"flow-type tcp4 dst-port-mask 1 dst-port 1 action 1", "dst-port-mask: dst-port with its value stands before it"},
		{"flow-type tcp4 dst-port 1 m 3 dst-port-mask 1 action 1", "dst-port-mask: dst-port has a mask already"},
		{"flow-type tcp4 dst-port 1 dst-port-mask x action 1", "dst-port m x: a decimal number"},
		{"flow-type tcp4 dst-port 1 dst-port-mask", "dst-port-mask: its value is missing"},
		{"flow-type tcp4 loc-mask 1 action 1", "loc-mask: loc with its value stands before it"},
		{"flow-type tcp4 context 1", "context: there is one RSS table"},
		{"flow-type sctp4 dst-port 1 action 1", "dst-port: the device parses TCP and UDP headers, not SCTP's"},
		{"flow-type ah6 spi 1 action 1", "spi: the device finds that of ESP only"},
		{"flow-type esp4 src-port 1 action 1", "src-port: flow-type esp4 has src-ip, dst-ip, tos, spi,"},
		{"flow-type ether src 1:2:3:4:5 action 1", "src 1:2:3:4:5: six bytes such as 02:00:00:00:00:01"},
		{"flow-type ether src 02:00:00:00:00:00:00:01 action 1", "six bytes"},
		{"flow-type ether dst-mac 02:00:00:00:00:01 action 1", "dst-mac: flow-type ether calls it dst"},
		{"flow-type ether src-ip 1.2.3.4 action 1", "src-ip: flow-type ether has src, dst, proto, vlan-etype, vlan, action, queue, loc"},
		{"flow-type ether proto 0x8100 action 1", "proto 0x8100: the device looks at the EtherType behind the tag: write vlan-etype 0x8100"},
		{"flow-type ether vlan-etype 0x9100 action 1", "vlan-etype: 0x8100 or 0x88a8, without a mask"},
		{"flow-type ether vlan-etype 0x8100 m 0x1 action 1", "vlan-etype: 0x8100 or 0x88a8, without a mask"},
		{"flow-type ether vlan 65536 action 1", "vlan 65536: 0 to 65535"},
	} {
		_, err := parseRule(c.text)
		require.Error(t, err, c.text)
		require.ErrorContains(t, err, c.says, c.text)
		require.NotContains(t, err.Error(), "\n")
		require.ErrorAs(t, err, &wishError{})
	}
}

// A rule is on all bits of a word where it says nothing else, by the manual's
// places, and on the protocol and version that its flow type implies.
func TestRuleMatch(t *testing.T) {
	r := mustRules(t, "flow-type tcp4 src-ip 192.168.0.1 m 0.0.0.255 dst-port 80 tos 0x29 vlan 0x2005 dst-mac 02:00:00:00:00:07 action 1")[0]
	for _, byVersion := range []bool{true, false} {
		mask, value := r.match(byVersion)
		require.Len(t, mask, matchOuter.n+matchMisc.n)
		for i := range mask {
			require.Zero(t, value[i]&^mask[i], "byte %d", i)
		}
		require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 192, 168, 0, 0}, l2l4Src.in(value))
		require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 0}, l2l4Src.in(mask))
		require.True(t, allZero(l2l4Dst.in(mask)))
		for _, p := range []struct {
			at          field
			mask, value uint32
		}{
			{l2l4TcpDport, 0xffff, 80}, {l2l4TcpSport, 0, 0}, {l2l4UdpDport, 0, 0}, {l2l4IpProtocol, 0xff, ipTCP},
			{l2l4IpDscp, 0x3f, 0x0a}, {l2l4IpEcn, 3, 1}, {l2l4Cvlan, 1, 1}, {l2l4Svlan, 0, 0},
			{l2l4FirstPrio, 7, 1}, {l2l4FirstCfi, 1, 0}, {l2l4FirstVid, 0xfff, 5},
			{l2l4DmacHi, 0xffffffff, 0x02000000}, {l2l4DmacLo, 0xffff, 7}, {l2l4SmacHi, 0, 0},
		} {
			require.Equal(t, p.mask, p.at.get(mask), "mask of %+v", p.at)
			require.Equal(t, p.value, p.at.get(value), "value of %+v", p.at)
		}
		require.Equal(t, byVersion, l2l4IpVersion.on(mask))
		require.Equal(t, !byVersion, l2l4Ethertype.on(mask))
		require.EqualValues(t, enableOuter, setsOf(mask))
	}
	mask, value := mustRules(t, "flow-type esp6 spi 0x12345678 action 1")[0].match(true)
	require.EqualValues(t, 0x12345678, miscOuterEspSpi.get(matchMisc.in(value)))
	require.EqualValues(t, enableOuter|enableMisc, setsOf(mask))
	mask, _ = mustRules(t, "flow-type ether action 1")[0].match(true)
	require.Zero(t, setsOf(mask), "all frames")
}

// Every flow type reads every word that it does not refuse, and the device is told
// of it: no word is read and then forgotten.
func TestEveryWordIsMatched(t *testing.T) {
	samples := map[string]string{"src": "02:03:04:05:06:07", "dst": "02:03:04:05:06:07", wordMAC: "02:03:04:05:06:07", wordVLANType: "0x8100"}
	for _, f := range flowTypes {
		plain, _ := mustRules(t, "flow-type "+f.name+" action 0")[0].match(true)
		for _, w := range f.words {
			if w.cannot != "" {
				continue
			}
			v, ok := samples[w.name]
			switch {
			case ok:
			case w.form == formIP && f.version == 4:
				v = "1.2.3.4"
			case w.form == formIP:
				v = "1:2:3:4:5:6:7:8"
			default:
				v = "0x7b"
			}
			mask, value := mustRules(t, "flow-type "+f.name+" "+w.name+" "+v+" action 0")[0].match(true)
			require.NotEqual(t, plain, mask, "%s %s", f.name, w.name)
			require.NotEqual(t, make([]byte, len(value)), value)
			set := 0
			for i := range mask {
				for b := mask[i] &^ plain[i]; b != 0; b &= b - 1 {
					set++
				}
			}
			extra := 0
			if w.name == wordVLAN {
				extra = 1 // and there must be a tag
			}
			if w.name == wordVLANType {
				extra = 1 - int(w.bits)
			}
			require.Equal(t, int(w.bits)+extra, set, "%s %s: all bits of the value", f.name, w.name)
		}
	}
}

// Locations: those that were asked for, and for the rest the last ones that are
// free, as ethtool chooses them.
func TestPlaceRules(t *testing.T) {
	rules := mustRules(t, "flow-type tcp4 action 0", "flow-type tcp4 action 1 loc 1022", "flow-type tcp4 action 2", "flow-type tcp4 action 3 loc 0")
	var got [][2]int
	for _, r := range rules {
		got = append(got, [2]int{r.loc, r.action})
	}
	require.Equal(t, [][2]int{{0, 3}, {1021, 2}, {1022, 1}, {1023, 0}}, got)

	r := mustRules(t, "flow-type tcp4 action 0 loc 7")[0]
	_, err := placeRules([]rule{r, r})
	require.EqualError(t, err, "-rule: loc 7 is given twice")

	many := make([]rule, maxRules)
	for i := range many {
		many[i] = mustRules(t, "flow-type tcp4 action 0")[0]
		many[i].loc = anyLoc
	}
	many[5].loc = 5
	placed, err := placeRules(many)
	require.NoError(t, err)
	for i, r := range placed {
		require.Equal(t, i, r.loc)
	}
	_, err = placeRules(append(many, many[0]))
	require.EqualError(t, err, "-rule: 1025 rules: there is room for 1024")
}

// Rules that look at the same bits and stand side by side share a group; groups
// cover the whole table, in the order of locations.
func TestGroupRules(t *testing.T) {
	rules := mustRules(t, "flow-type tcp4 dst-port 1 action 0 loc 3", "flow-type tcp4 dst-port 2 action 0 loc 9",
		"flow-type udp4 action 0 loc 10", "flow-type tcp4 action 0 loc 11", "flow-type tcp4 dst-port 3 action 0 loc 900", "flow-type tcp4 dst-port 3 m 1 action 0 loc 901")
	groups := groupRules(rules, 10, true)
	var spans [][2]uint32
	for _, g := range groups {
		spans = append(spans, [2]uint32{g.first, g.last})
	}
	require.Equal(t, [][2]uint32{{0, 9}, {10, 899}, {900, 900}, {901, 1023}}, spans, "udp4 and tcp4 look at the same bits: version and protocol")
	require.Equal(t, groups[0].mask, groups[2].mask)
	require.Empty(t, groupRules(nil, 10, true))
}

// What a device cannot do is refused with the reason before anything is made.
func TestCheckRules(t *testing.T) {
	able := caps{tableLevel: 64, logTable: 16, setRoot: true, outerVer: true}
	for i := range able.matchable {
		able.matchable[i], able.maskable[i] = 0xff, 0xff
	}
	all := mustRules(t, "flow-type tcp4 dst-ip 1.2.3.4 m 0.0.0.1 action 3", "flow-type esp6 spi 1 action -1", "flow-type ether proto 0x1234 vlan 5 action 0")
	require.NoError(t, checkRules(all, able, 4, 0))
	require.NoError(t, checkRules(all, able, 2, 2), "upper queues count")
	require.NoError(t, checkRules(nil, caps{}, 1, 0), "no rule needs nothing")
	for _, c := range []struct {
		lack func(c *caps)
		rule string
		says string
	}{
		{func(c *caps) { c.tableLevel = 2 }, "flow-type tcp4 action 0", "the device's flow tables go down to level 2, 3 is needed"},
		{func(c *caps) { c.setRoot = false }, "flow-type tcp4 action 0", "the device has a fixed first flow table"},
		{func(c *caps) { c.logTable = 9 }, "flow-type tcp4 action 0", "loc 1023: the device's flow tables hold 512"},
		{func(*caps) {}, "flow-type tcp4 action 4", "action 4: queues are 0 to 3, or -1 to drop"},
		{func(c *caps) { ftFieldOuterSip.set(c.matchable[:], 0) }, "flow-type tcp4 src-ip 1.2.3.4 action 0", "src-ip: the device cannot match it"},
		{func(c *caps) { ftFieldOuterSip.set(c.maskable[:], 0) }, "flow-type tcp4 src-ip 1.2.3.4 m 0.0.0.1 action 0", "src-ip: the device matches it whole or not at all, not with this mask"},
		{func(c *caps) { ftFieldOuterEspSpi.set(c.matchable[:], 0) }, "flow-type esp4 spi 1 action 0", "spi: the device cannot match it"},
		{func(c *caps) { ftFieldOuterIpProtocol.set(c.matchable[:], 0) }, "flow-type tcp4 action 0", "flow-type tcp4: the device cannot match the IP protocol"},
		{func(c *caps) { ftFieldOuterFirstVid.set(c.matchable[:], 0) }, "flow-type ether vlan-etype 0x8100 action 0", "flow-type ether: the device cannot match VLAN tags"},
		{func(c *caps) { c.outerVer = false; ftFieldOuterEtherType.set(c.matchable[:], 0) }, "flow-type ip4 action 0", "the device cannot match the EtherType"},
	} {
		lacking := able
		c.lack(&lacking)
		err := checkRules(mustRules(t, c.rule), lacking, 4, 0)
		require.ErrorContains(t, err, c.says)
		require.ErrorAs(t, err, &wishError{})
	}
	err := checkRules(mustRules(t, "flow-type tcp4 dst-port 5 action 0 loc 9", "flow-type tcp4 src-port 5 action 0 loc 8", "flow-type tcp4 dst-port 5 action 1 loc 3"), able, 4, 0)
	require.EqualError(t, err, `-rule "flow-type tcp4 dst-port 5 action 0 loc 9": the rule at loc 3 fits the same packets and comes first`)
	require.ErrorContains(t, checkRules(mustRules(t, "flow-type tcp4 action 0 loc 1", "flow-type ip4 l4proto 6 action 0 loc 9"), able, 4, 0), "the rule at loc 1 fits the same packets")
	lacking := able
	ftFieldOuterSip.set(lacking.maskable[:], 0)
	require.NoError(t, checkRules(mustRules(t, "flow-type tcp4 src-ip 1.2.3.4 action 0", "flow-type tcp6 src-ip 1::2 action 0"), lacking, 1, 0), "whole addresses need no masks")
}

// ethtool -n shows all that a flow type can look at, and extensions where they are
// used.
func TestFormatRules(t *testing.T) {
	text := formatRules(mustRules(t, "flow-type tcp4 src-ip 192.168.0.1 dst-port 80 action 2 loc 1",
		"flow-type ether dst 01:80:c2:00:00:00 m 00:00:00:00:00:0f proto 0x88cc vlan 5 m 0xf000 action -1 loc 2",
		"flow-type ip6 l4proto 58 dst-mac 02:00:00:00:00:0a action 0 loc 3"), 4)
	require.Equal(t, `4 RX rings available
Total 3 rules

Filter: 1
	Rule Type: TCP over IPv4
	Src IP addr: 192.168.0.1 mask: 0.0.0.0
	Dest IP addr: 0.0.0.0 mask: 255.255.255.255
	TOS: 0x0 mask: 0xff
	Src port: 0 mask: 0xffff
	Dest port: 80 mask: 0x0
	Action: Direct to queue 2

Filter: 2
	Flow Type: Raw Ethernet
	Src MAC addr: 00:00:00:00:00:00 mask: FF:FF:FF:FF:FF:FF
	Dest MAC addr: 01:80:C2:00:00:00 mask: 00:00:00:00:00:0F
	Ethertype: 0x88CC mask: 0x0
	VLAN EtherType: 0x0 mask: 0xffff
	VLAN: 0x5 mask: 0xf000
	User-defined: 0x0 mask: 0xffffffffffffffff
	Action: Drop

Filter: 3
	Rule Type: Raw IPv6
	Src IP addr: :: mask: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
	Dest IP addr: :: mask: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
	Traffic Class: 0x0 mask: 0xff
	Protocol: 58 mask: 0x0
	L4 bytes: 0x0 mask: 0xffffffff
	Dest MAC addr: 02:00:00:00:00:0A mask: 00:00:00:00:00:00
	Action: Direct to queue 0
`, text)
}

// FuzzRule reads anything: what is accepted can be written, read again to the same
// rule, and told to a device; what is not is refused in one line.
func FuzzRule(f *testing.F) {
	for _, s := range []string{
		"flow-type tcp4 src-ip 192.168.0.1 m 0.0.0.255 dst-port 80 action 2 loc 1",
		"flow-type ether src 02:00:00:00:00:01 proto 0x800 vlan 5 m 0xf000 vlan-etype 0x88a8 action -1",
		"flow-type esp6 spi 7 tclass 1 m 2 src-ip ::1 m ::ff dst-mac 02:00:00:00:00:01 action 0",
		"flow-type ip4 l4proto 47 user-def 1 action 1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		if err != nil {
			require.ErrorAs(t, err, &wishError{})
			return
		}
		require.NotContains(t, r.String(), "\n")
		again, err := parseRule(r.String())
		require.NoError(t, err, r.String())
		require.Equal(t, r, again)
		for _, byVersion := range []bool{true, false} {
			mask, value := r.match(byVersion)
			for i := range mask {
				require.Zero(t, value[i]&^mask[i])
			}
		}
		placed, err := placeRules([]rule{r})
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(formatRules(placed, 1), "Action: "))
	})
}
