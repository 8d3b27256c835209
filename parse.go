package main

// parse.go owns the parser for layers 2 to 4: where each header of a frame
// lies, who talks to whom, and why a frame cannot be decoded. It reads headers
// and nothing else: payloads are protocols.go, flows are flows.go.
// Standards: IEEE 802.3, 802.1Q, RFC 791, 8200, 3032, 2516, 2784, 7348, 8926.
//
// The frame comes from the wire and is hostile. Every read is behind a length
// check against the slice, every loop has a bound, and offsets only grow, so
// that the work is bounded by the frame. Nothing is allocated.
//
// At most three levels of layer 3 are looked at: the outer one, the one inside
// a tunnel, and the one that an ICMP error quotes.

import (
	"encoding/binary"
	"math/bits"
)

const (
	maxLinkSteps = 16 // VLAN tags, MPLS stacks, PPPoE, LLC before layer 3
	maxLabels    = 16 // labels in one MPLS stack
	maxExtension = 12 // IPv6 extension headers
	maxKeyTags   = 2  // VLAN IDs kept for the flow key; deeper tags are counted only
)

// packetMeta is what the receive path knows about a frame beside its bytes.
type packetMeta struct {
	ts       int64  // arrival, nanoseconds since 1970 UTC
	hash     uint32 // receive-side scaling hash of the NIC, 0 if it gave none
	queue    int    // receive queue
	vlan     uint16 // tag control word of the 802.1Q tag that the NIC removed
	stripped bool   // vlan is valid
}

// protocolID names a protocol that is counted. The names are Wireshark's. Those
// of layers 2 to 4 and of what lies directly on them are here.
type protocolID uint8

const (
	protoNone protocolID = iota
	protoEth
	protoVLAN
	protoVLANAD
	protoLLC
	protoMPLS
	protoPWControl
	protoPPPoES
	protoPPPoED
	protoPPP
	protoARP
	protoRARP
	protoIPv4
	protoIPv6
	protoHopOpts
	protoRouting
	protoFragHdr
	protoDstOpts
	protoAH
	protoESP
	protoTCP
	protoUDP
	protoUDPLite
	protoSCTP
	protoDCCP
	protoICMP
	protoICMPv6
	protoIGMP
	protoGRE
	protoERSPAN
	protoVXLAN
	protoGeneve
	protoEIGRP
	protoOSPF
	protoPIM
	protoVRRP
	protoRSVP
	protoL2TP
	protoLLDP
	protoSTP
	protoCDP
	protoVTP
	protoDTP
	protoUDLD
	protoISIS
	protoLoop
	protoSlow
	protoEAPOL
	protoMACsec
	protoPTP
	protoFCoE
	protoInfiniBand
	protoIPX
	protoNetBIOS
	protoHeaders // the first that belongs to protocols.go
)

var headerNames = [protoHeaders]string{
	"", "eth", "vlan", "ieee8021ad", "llc", "mpls", "pwethcw", "pppoes", "pppoed", "ppp",
	"arp", "rarp", "ip", "ipv6", "ipv6.hopopts", "ipv6.routing", "ipv6.fraghdr",
	"ipv6.dstopts", "ah", "esp", "tcp", "udp", "udplite", "sctp", "dccp", "icmp",
	"icmpv6", "igmp", "gre", "erspan", "vxlan", "geneve", "eigrp", "ospf", "pim", "vrrp",
	"rsvp", "l2tp", "lldp", "stp", "cdp", "vtp", "dtp", "udld", "isis", "loop", "slow",
	"eapol", "macsec", "ptp", "fcoe", "infiniband", "ipx", "netbios",
}

// maxProtocols bounds protocolID.
const maxProtocols = 128

// protoSet is a set of protocols; it counts each once per frame.
type protoSet [2]uint64

func (s *protoSet) add(id protocolID) { s[id>>6&1] |= 1 << (id & 63) }

// addTo adds one to the counter of each protocol in the set.
func (s *protoSet) addTo(counts *[maxProtocols]uint64) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			counts[i<<6+bits.TrailingZeros64(word)]++
		}
	}
}

// decodeReason says why a frame could not be decoded to the end of layer 4.
type decodeReason uint8

const (
	reasonNone decodeReason = iota
	reasonTruncatedL2
	reasonTruncatedVLAN
	reasonTruncatedLLC
	reasonTruncatedMPLS
	reasonTruncatedPPPoE
	reasonBadPPPoE
	reasonTooManyTags
	reasonTruncatedARP
	reasonTruncatedIP
	reasonBadIPVersion
	reasonBadIPHeaderLength
	reasonBadIPTotalLength
	reasonTruncatedExtension
	reasonTooManyExtensions
	reasonTruncatedL4
	reasonBadTCPOffset
	reasonBadUDPLength
	reasonTruncatedTunnel
	reasonCount
)

var reasonNames = [reasonCount]string{
	"", "truncated_l2", "truncated_vlan", "truncated_llc", "truncated_mpls",
	"truncated_pppoe", "bad_pppoe", "too_many_tags", "truncated_arp", "truncated_ip",
	"bad_ip_version", "bad_ip_header_length", "bad_ip_total_length",
	"truncated_ipv6_extension", "too_many_ipv6_extensions", "truncated_l4",
	"bad_tcp_offset", "bad_udp_length", "truncated_tunnel",
}

// l3Kind is the protocol of layer 3.
type l3Kind uint8

const (
	l3None l3Kind = iota
	l3IPv4
	l3IPv6
	l3ARP
)

// tunnelKind is how the inner headers are carried.
type tunnelKind uint8

const (
	tunnelNone tunnelKind = iota
	tunnelVXLAN
	tunnelGeneve
	tunnelGRE
	tunnelIPIP
)

var tunnelNames = [...]string{"", "vxlan", "geneve", "gre", "ipip"}

// hdrFlags are what the headers of one level say beside the 5-tuple.
type hdrFlags uint8

const (
	flagFragFirst hdrFlags = 1 << iota // first of several fragments: ports are there
	flagFragLater                      // later fragment: no ports, payload is raw
	flagNoLength                       // IP length field 0: the frame's end was taken
	flagCut                            // IP length reaches beyond the captured bytes
	flagPorts                          // sport and dport are valid
	flagPayload                        // payload is what layer 4 carries
)

// TCP flag bits, RFC 9293 section 3.1.
const (
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpACK = 0x10
)

// ipHeaders is one level of layers 3 and 4. Offsets count from the frame's
// start; the payload is frame[payload:end], without Ethernet padding.
// IPv4 addresses are in the mapped form ::ffff:a.b.c.d.
type ipHeaders struct {
	src, dst     [16]byte
	l3           l3Kind
	first        uint8 // protocol or next header in the fixed header
	proto        uint8 // protocol above all extension headers
	flags        hdrFlags
	sport, dport uint16 // ICMP echo: both are the identifier
	tcpFlags     uint8
	icmpType     uint8
	seq          uint32 // TCP sequence number
	fragID       uint32
	l3off, l4off int
	payload, end int
}

// Levels of layer 3.
const levelOuter, levelInner, levelQuoted, levelCount = 0, 1, 2, 3

// parsed is all that parseFrame found. It holds no reference to the frame.
type parsed struct {
	protos   protoSet
	tags     uint8 // VLAN tags, one removed by the NIC included
	vlans    [maxKeyTags]uint16
	tunnel   tunnelKind
	tunnelID uint32 // VNI or GRE key
	reason   decodeReason
	level    uint8
	cut      bool // the capture ends before the frame did
	hdr      [levelCount]ipHeaders
}

// EtherTypes that only inspection looks at; the others are params.go's.
const (
	typeTEB     = 0x6558 // Transparent Ethernet Bridging, RFC 1701
	typeMPLS    = 0x8847
	typeMPLSMC  = 0x8848
	typePPPoES  = 0x8864
	typeOldQinQ = 0x9100 // outer tags before IEEE 802.1ad
	maxLength   = 1500   // largest 802.3 length; above 1535 the field is a type
)

// parseFrame reads the headers of frame b into p. wireLen is the length that
// the frame had before it was cut, at least len(b).
func parseFrame(p *parsed, b []byte, wireLen int, meta *packetMeta) {
	*p = parsed{cut: wireLen > len(b)}
	off, typ, ok := p.ethernet(b, 0)
	if meta.stripped {
		p.protos.add(protoVLAN)
		p.tag(meta.vlan)
	}
	if ok {
		p.link(b, off, typ)
	}
}

// best is the level that a flow is keyed by: the inner one if it was decoded
// up to an IP header, else the outer one.
func (p *parsed) best() *ipHeaders {
	if h := &p.hdr[levelInner]; p.tunnel != tunnelNone && h.l4off != 0 && h.l3 != l3ARP {
		return h
	}
	return &p.hdr[levelOuter]
}

// fail keeps the first reason. Faults in a quoted packet are not the frame's.
func (p *parsed) fail(r decodeReason) {
	if p.reason == reasonNone && p.level != levelQuoted {
		p.reason = r
	}
}

func (p *parsed) at() *ipHeaders { return &p.hdr[p.level] }

func (p *parsed) tag(tci uint16) {
	if int(p.tags) < maxKeyTags {
		p.vlans[p.tags] = tci & 0xfff
	}
	p.tags++
}

// ethernet reads the two addresses and the type at off.
func (p *parsed) ethernet(b []byte, off int) (next int, typ uint16, ok bool) {
	if len(b)-off < 14 {
		p.fail(reasonTruncatedL2)
		return 0, 0, false
	}
	p.protos.add(protoEth)
	return off + 14, binary.BigEndian.Uint16(b[off+12:]), true
}

// link walks tags, labels and the like until layer 3.
func (p *parsed) link(b []byte, off int, typ uint16) {
	for range maxLinkSteps {
		ok := false
		switch typ {
		case ethVLAN, ethQinQ, typeOldQinQ:
			off, typ, ok = p.vlanTag(b, off, typ)
		case typeMPLS, typeMPLSMC:
			off, typ, ok = p.labels(b, off)
		case typePPPoES:
			b, off, typ, ok = p.pppoe(b, off)
		case typeTEB:
			off, typ, ok = p.ethernet(b, off)
		default:
			if typ > maxLength {
				p.network(b, off, typ)
				return
			}
			b, off, typ, ok = p.llc(b, off, int(typ))
		}
		if !ok {
			return
		}
	}
	p.fail(reasonTooManyTags)
}

func (p *parsed) vlanTag(b []byte, off int, typ uint16) (int, uint16, bool) {
	if len(b)-off < 4 {
		p.fail(reasonTruncatedVLAN)
		return 0, 0, false
	}
	if typ == ethQinQ {
		p.protos.add(protoVLANAD)
	} else {
		p.protos.add(protoVLAN)
	}
	p.tag(binary.BigEndian.Uint16(b[off:]))
	return off + 4, binary.BigEndian.Uint16(b[off+2:]), true
}

// labels reads an MPLS stack. MPLS does not say what it carries; as in RFC 4928
// the first nibble tells: an IP version, or 0 for a pseudowire control word.
func (p *parsed) labels(b []byte, off int) (int, uint16, bool) {
	p.protos.add(protoMPLS)
	for range maxLabels {
		if len(b)-off < 4 {
			p.fail(reasonTruncatedMPLS)
			return 0, 0, false
		}
		bottom := b[off+2]&1 != 0
		off += 4
		if bottom {
			return p.labelled(b, off)
		}
	}
	p.fail(reasonTooManyTags)
	return 0, 0, false
}

func (p *parsed) labelled(b []byte, off int) (int, uint16, bool) {
	if off >= len(b) {
		return 0, 0, false
	}
	switch b[off] >> 4 {
	case 4:
		return off, ethIPv4, true
	case 6:
		return off, ethIPv6, true
	case 0:
		if len(b)-off >= 4+14 {
			p.protos.add(protoPWControl)
			return off + 4, typeTEB, true
		}
	}
	return 0, 0, false
}

// pppoe reads a session header and the PPP protocol, RFC 2516.
func (p *parsed) pppoe(b []byte, off int) ([]byte, int, uint16, bool) {
	if len(b)-off < 8 {
		p.fail(reasonTruncatedPPPoE)
		return b, 0, 0, false
	}
	p.protos.add(protoPPPoES)
	n := int(binary.BigEndian.Uint16(b[off+4:]))
	if b[off] != 0x11 || b[off+1] != 0 || n < 2 {
		p.fail(reasonBadPPPoE)
		return b, 0, 0, false
	}
	p.protos.add(protoPPP)
	if end := off + 6 + n; end < len(b) {
		b = b[:end]
	}
	switch binary.BigEndian.Uint16(b[off+6:]) {
	case 0x0021:
		return b, off + 8, ethIPv4, true
	case 0x0057:
		return b, off + 8, ethIPv6, true
	case 0x0281:
		return b, off + 8, typeMPLS, true
	}
	return b, 0, 0, false
}

// llc reads an 802.2 header, with SNAP the type in it. n is the 802.3 length.
func (p *parsed) llc(b []byte, off, n int) ([]byte, int, uint16, bool) {
	if end := off + n; end < len(b) {
		b = b[:end]
	}
	if len(b)-off < 3 {
		p.fail(reasonTruncatedLLC)
		return b, 0, 0, false
	}
	sap := binary.BigEndian.Uint16(b[off:])
	if sap == 0xffff { // raw 802.3, Novell
		p.protos.add(protoIPX)
		return b, 0, 0, false
	}
	p.protos.add(protoLLC)
	switch sap {
	case 0xaaaa:
		return p.snap(b, off+3)
	case 0x4242:
		p.protos.add(protoSTP)
	case 0xfefe:
		p.protos.add(protoISIS)
	case 0xe0e0:
		p.protos.add(protoIPX)
	case 0xf0f0:
		p.protos.add(protoNetBIOS)
	}
	return b, 0, 0, false
}

func (p *parsed) snap(b []byte, off int) ([]byte, int, uint16, bool) {
	if len(b)-off < 5 {
		p.fail(reasonTruncatedLLC)
		return b, 0, 0, false
	}
	oui := uint32(b[off])<<16 | uint32(b[off+1])<<8 | uint32(b[off+2])
	pid := binary.BigEndian.Uint16(b[off+3:])
	if oui == 0 && pid > maxLength {
		return b, off + 5, pid, true
	}
	if oui == 0x00000c {
		p.named(ciscoTypes, pid)
	}
	return b, 0, 0, false
}

// typeProtocol ties an EtherType, or a SNAP protocol of Cisco, to a protocol
// whose payload is not read further.
type typeProtocol struct {
	typ uint16
	id  protocolID
}

var linkTypes = []typeProtocol{
	{0x8035, protoRARP}, {0x8137, protoIPX}, {0x8809, protoSlow}, {0x8863, protoPPPoED},
	{0x888e, protoEAPOL}, {0x88cc, protoLLDP}, {0x88e5, protoMACsec}, {0x88f7, protoPTP},
	{0x8906, protoFCoE}, {0x8915, protoInfiniBand}, {0x9000, protoLoop},
}

var ciscoTypes = []typeProtocol{
	{0x010b, protoSTP}, {0x0111, protoUDLD}, {0x2000, protoCDP}, {0x2003, protoVTP},
	{0x2004, protoDTP},
}

func (p *parsed) named(list []typeProtocol, typ uint16) {
	for _, e := range list {
		if e.typ == typ {
			p.protos.add(e.id)
			return
		}
	}
}

func (p *parsed) network(b []byte, off int, typ uint16) {
	switch typ {
	case ethIPv4:
		p.ipv4(b, off)
	case ethIPv6:
		p.ipv6(b, off)
	case ethARP:
		p.arp(b, off)
	default:
		p.named(linkTypes, typ)
	}
}

// arp checks that the four addresses are there, whatever their sizes.
func (p *parsed) arp(b []byte, off int) {
	h := p.at()
	h.l3, h.l3off, h.end = l3ARP, off, len(b)
	p.protos.add(protoARP)
	if len(b)-off < 8 || len(b)-off < 8+2*int(b[off+4])+2*int(b[off+5]) {
		p.fail(reasonTruncatedARP)
		return
	}
	h.l4off, h.payload = off, off
}

func (p *parsed) ipv4(b []byte, off int) {
	h := p.at()
	h.l3, h.l3off = l3IPv4, off
	p.protos.add(protoIPv4)
	if len(b)-off < 20 {
		p.fail(reasonTruncatedIP)
		return
	}
	if b[off]>>4 != 4 {
		p.fail(reasonBadIPVersion)
		return
	}
	h.first = b[off+9]
	mapIPv4(&h.src, b[off+12:off+16])
	mapIPv4(&h.dst, b[off+16:off+20])
	hlen := int(b[off]&15) * 4
	if hlen < 20 {
		p.fail(reasonBadIPHeaderLength)
		return
	}
	if len(b)-off < hlen {
		p.fail(reasonTruncatedIP)
		return
	}
	b, ok := p.ipEnd(b, off, hlen, int(binary.BigEndian.Uint16(b[off+2:])))
	if !ok {
		return
	}
	h.fragID = uint32(binary.BigEndian.Uint16(b[off+4:]))
	frag := binary.BigEndian.Uint16(b[off+6:])
	p.fragment(frag&0x1fff, frag&0x2000 != 0)
	p.above(b, off+hlen, h.first)
}

// ipEnd cuts the frame at the end of the IP packet, so that padding is never
// taken for payload. A length of 0 comes from segmentation or merging by a NIC:
// the frame's end is taken. hlen is the least that is allowed.
func (p *parsed) ipEnd(b []byte, off, hlen, total int) ([]byte, bool) {
	switch {
	case total == 0:
		p.at().flags |= flagNoLength
	case total < hlen:
		p.fail(reasonBadIPTotalLength)
		return b, false
	case total <= len(b)-off:
		b = b[:off+total]
	default:
		p.at().flags |= flagCut
		if !p.cut {
			p.fail(reasonTruncatedIP)
		}
	}
	return b, true
}

func mapIPv4(dst *[16]byte, a []byte) {
	dst[10], dst[11] = 0xff, 0xff
	copy(dst[12:], a)
}

func (p *parsed) fragment(offset uint16, more bool) {
	switch h := p.at(); {
	case offset != 0:
		h.flags |= flagFragLater
	case more:
		h.flags |= flagFragFirst
	}
}

func (p *parsed) ipv6(b []byte, off int) {
	h := p.at()
	h.l3, h.l3off = l3IPv6, off
	p.protos.add(protoIPv6)
	if len(b)-off < 40 {
		p.fail(reasonTruncatedIP)
		return
	}
	if b[off]>>4 != 6 {
		p.fail(reasonBadIPVersion)
		return
	}
	h.first = b[off+6]
	copy(h.src[:], b[off+8:off+24])
	copy(h.dst[:], b[off+24:off+40])
	total := int(binary.BigEndian.Uint16(b[off+4:]))
	// Length 0 means a jumbogram only behind a hop-by-hop header, RFC 2675.
	if total != 0 || h.first != 0 {
		total += 40
	}
	b, ok := p.ipEnd(b, off, 40, total)
	if ok {
		p.above(b, off+40, h.first)
	}
}

// above walks extension headers, then reads layer 4. For IPv4 only the
// authentication header is one.
func (p *parsed) above(b []byte, off int, proto uint8) {
	h := p.at()
	for range maxExtension {
		if h.flags&flagFragLater != 0 {
			break
		}
		id, unit, least := extension(proto, h.l3)
		if id == protoNone {
			break
		}
		if len(b)-off < 8 {
			p.fail(reasonTruncatedExtension)
			return
		}
		p.protos.add(id)
		n := 8
		if unit != 0 {
			n = int(b[off+1])*unit + least
		}
		if len(b)-off < n {
			p.fail(reasonTruncatedExtension)
			return
		}
		if id == protoFragHdr {
			p.fragHeader(b[off : off+8])
		}
		proto = b[off]
		off += n
	}
	if id, _, _ := extension(proto, h.l3); id != protoNone && h.flags&flagFragLater == 0 {
		p.fail(reasonTooManyExtensions)
		return
	}
	p.transport(b, off, proto)
}

// extension says whether proto is an extension header, and that its length is
// byte 1 times unit plus least; unit 0 means 8 bytes. RFC 8200, 4302, 6275.
func extension(proto uint8, l3 l3Kind) (id protocolID, unit, least int) {
	if proto == ipAH {
		return protoAH, 4, 8
	}
	if l3 != l3IPv6 {
		return protoNone, 0, 0
	}
	switch proto {
	case ipHopOpts:
		return protoHopOpts, 8, 8
	case ipRouting:
		return protoRouting, 8, 8
	case ipFragment:
		return protoFragHdr, 0, 8
	case ipDstOpts, 135, 139, 140: // options, mobility, HIP, shim6 share one form
		return protoDstOpts, 8, 8
	}
	return protoNone, 0, 0
}

func (p *parsed) fragHeader(x []byte) {
	h := p.at()
	word := binary.BigEndian.Uint16(x[2:])
	h.fragID = binary.BigEndian.Uint32(x[4:])
	p.fragment(word>>3, word&1 != 0)
}

// ipProtocols names the protocol numbers of IANA that are counted.
var ipProtocols = [256]protocolID{
	ipICMP: protoICMP, 2: protoIGMP, ipTCP: protoTCP, ipUDP: protoUDP, ipDCCP: protoDCCP, 46: protoRSVP,
	ipGRE: protoGRE, ipESP: protoESP, ipICMPv6: protoICMPv6, 88: protoEIGRP, 89: protoOSPF,
	103: protoPIM, 112: protoVRRP, 115: protoL2TP, ipSCTP: protoSCTP, ipUDPLite: protoUDPLite,
}

// transport reads layer 4; b ends where the IP packet ends.
func (p *parsed) transport(b []byte, off int, proto uint8) {
	h := p.at()
	h.proto, h.l4off, h.payload, h.end = proto, off, off, len(b)
	if h.flags&flagFragLater != 0 || proto == ipNoNext {
		return
	}
	// As in Wireshark, a protocol that IPv4 announces needs a byte to count.
	if id := ipProtocols[proto]; id != protoNone && (off < len(b) || h.l3 == l3IPv6) {
		p.protos.add(id)
	}
	switch proto {
	case ipTCP:
		p.tcp(b, off)
	case ipUDP, ipUDPLite:
		p.udp(b, off)
	case ipSCTP, ipDCCP:
		p.ports(b, off, 12)
	case ipICMP, ipICMPv6:
		p.icmp(b, off)
	case ipGRE:
		p.gre(b, off)
	case ipIPv4:
		p.tunnelled(b, off, tunnelIPIP, 0, ethIPv4)
	case ipIPv6:
		p.tunnelled(b, off, tunnelIPIP, 0, ethIPv6)
	case ipMPLS:
		p.tunnelled(b, off, tunnelIPIP, 0, typeMPLS)
	}
}

// hasPorts says whether a flow of this protocol is known by its ports.
func hasPorts(proto uint8) bool { return proto == ipTCP || proto == ipUDP || proto == ipSCTP }

// ports reads the two ports of a header of hlen bytes.
func (p *parsed) ports(b []byte, off, hlen int) bool {
	if len(b)-off < hlen {
		p.fail(reasonTruncatedL4)
		return false
	}
	h := p.at()
	h.sport = binary.BigEndian.Uint16(b[off:])
	h.dport = binary.BigEndian.Uint16(b[off+2:])
	h.payload = off + hlen
	h.flags |= flagPorts | flagPayload
	return true
}

func (p *parsed) tcp(b []byte, off int) {
	if !p.ports(b, off, 20) {
		return
	}
	h := p.at()
	h.seq = binary.BigEndian.Uint32(b[off+4:])
	h.tcpFlags = b[off+13]
	hlen := int(b[off+12]>>4) * 4
	if hlen < 20 {
		h.flags &^= flagPayload
		p.fail(reasonBadTCPOffset)
		return
	}
	if len(b)-off < hlen {
		h.flags &^= flagPayload
		h.payload = len(b)
		p.fail(reasonTruncatedL4)
		return
	}
	h.payload = off + hlen
}

func (p *parsed) udp(b []byte, off int) {
	if !p.ports(b, off, 8) {
		return
	}
	h := p.at()
	n := int(binary.BigEndian.Uint16(b[off+4:]))
	switch {
	case n == 0 || h.proto == 136: // jumbogram, or coverage and not a length
	case n < 8:
		h.flags &^= flagPayload
		p.fail(reasonBadUDPLength)
		return
	case n <= len(b)-off:
		b = b[:off+n]
		h.end = off + n
	default:
		if h.flags&(flagFragFirst|flagCut) == 0 {
			p.fail(reasonBadUDPLength)
		}
	}
	switch h.dport {
	case 4789, 8472:
		p.vxlan(b, off+8)
	case 6081:
		p.geneve(b, off+8)
	}
}

// icmp reads the type, an echo's identifier, and the packet that an error
// quotes: only to count what protocols are in it.
func (p *parsed) icmp(b []byte, off int) {
	if len(b)-off < 8 {
		if len(b)-off < 4 {
			p.fail(reasonTruncatedL4)
		}
		return
	}
	h := p.at()
	h.icmpType = b[off]
	h.flags |= flagPayload
	typ, quoted := uint16(ethIPv4), false
	if h.proto == ipICMP {
		switch h.icmpType {
		case 0, 8, 13, 14:
			p.echo(b, off)
		case 3, 4, 5, 11, 12:
			quoted = true
		}
	} else {
		typ = ethIPv6
		switch {
		case h.icmpType == 128 || h.icmpType == 129:
			p.echo(b, off)
		case h.icmpType >= 1 && h.icmpType <= 4:
			quoted = true
		}
	}
	if quoted && p.level != levelQuoted && off+8 < len(b) {
		level := p.level
		p.level = levelQuoted
		p.network(b, off+8, typ)
		p.level = level
	}
}

// echo uses the identifier as both ports, so that request and reply meet.
func (p *parsed) echo(b []byte, off int) {
	h := p.at()
	h.sport = binary.BigEndian.Uint16(b[off+4:])
	h.dport = h.sport
	h.flags |= flagPorts
}

// gre reads version 0, RFC 2784 and 2890. Version 1 carries PPP and is not
// opened; the routing field of RFC 1701 is not either.
func (p *parsed) gre(b []byte, off int) {
	if len(b)-off < 4 {
		p.fail(reasonTruncatedL4)
		return
	}
	flags, typ := binary.BigEndian.Uint16(b[off:]), binary.BigEndian.Uint16(b[off+2:])
	if flags&0x4007 != 0 {
		return
	}
	checksum, hasKey, sequence := int(flags>>15), int(flags>>13&1), int(flags>>12&1)
	n, key := 4+4*(checksum+hasKey+sequence), uint32(0)
	if len(b)-off < n {
		p.fail(reasonTruncatedTunnel)
		return
	}
	if hasKey != 0 {
		key = binary.BigEndian.Uint32(b[off+4+4*checksum:])
	}
	if typ == 0x88be || typ == 0x22eb {
		p.protos.add(protoERSPAN)
		return
	}
	p.tunnelled(b, off+n, tunnelGRE, key, typ)
}

func (p *parsed) vxlan(b []byte, off int) {
	if len(b)-off < 8 {
		p.fail(reasonTruncatedTunnel)
		return
	}
	if b[off]&0x08 == 0 { // no valid VNI: some other use of the port
		return
	}
	p.protos.add(protoVXLAN)
	p.tunnelled(b, off+8, tunnelVXLAN, binary.BigEndian.Uint32(b[off+4:])>>8, typeTEB)
}

func (p *parsed) geneve(b []byte, off int) {
	if len(b)-off < 8 {
		p.fail(reasonTruncatedTunnel)
		return
	}
	if b[off]>>6 != 0 {
		return
	}
	p.protos.add(protoGeneve)
	n := 8 + int(b[off]&0x3f)*4
	if len(b)-off < n {
		p.fail(reasonTruncatedTunnel)
		return
	}
	vni := binary.BigEndian.Uint32(b[off+4:]) >> 8
	p.tunnelled(b, off+n, tunnelGeneve, vni, binary.BigEndian.Uint16(b[off+2:]))
}

// tunnelled parses the inner headers, one level deep. Fragments are not opened:
// their inside is not whole.
func (p *parsed) tunnelled(b []byte, off int, kind tunnelKind, id uint32, typ uint16) {
	if p.level != levelOuter || p.at().flags&flagFragFirst != 0 || off >= len(b) {
		return
	}
	if typ <= maxLength {
		return
	}
	p.tunnel, p.tunnelID = kind, id
	p.level = levelInner
	p.link(b, off, typ)
	p.level = levelOuter
}
