package main

// echo.go owns the responder: what answers ARP, ping and neighbour discovery for
// the addresses it was given. It turns a request into its reply in place and
// knows nothing of queues.
// Standards: RFC 826, 792, 4443, 4861.

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// responder answers for its addresses. It is read only after it was made.
type responder struct {
	mac   [6]byte
	addrs []netip.Addr
}

const (
	arpBytes        = etherHeader + 28
	icmpEchoRequest = 8
	icmp6Echo       = 128
	icmp6EchoReply  = 129
	icmp6Solicit    = 135
	icmp6Advertise  = 136
	// adviceBytes is a neighbour advertisement with the link-layer option.
	adviceBytes = etherHeader + ipv6Header + 24 + 8
)

// owns reports whether b is one of our addresses.
func (r *responder) owns(b []byte) bool {
	for i := range r.addrs {
		a := r.addrs[i].As16()
		if len(b) == 4 && r.addrs[i].Is4() && bytes.Equal(a[12:], b) || len(b) == 16 && bytes.Equal(a[:], b) {
			return true
		}
	}
	return false
}

// reply turns the request at the front of a frame into its reply. b is the first
// piece of a frame of size bytes; what lies behind it stays as it is. It returns
// the reply's size, 0 when there is nothing to answer.
func (r *responder) reply(b []byte, size int) int {
	if len(b) < etherHeader {
		return 0
	}
	n := 0
	switch binary.BigEndian.Uint16(b[12:]) {
	case ethARP:
		n = r.arp(b)
	case ethIPv4:
		n = r.ping4(b, size)
	case ethIPv6:
		n = r.ip6(b, size)
	}
	if n > 0 {
		copy(b[0:6], b[6:12])
		copy(b[6:12], r.mac[:])
	}
	return n
}

// arp answers who-has over Ethernet and IPv4.
func (r *responder) arp(b []byte) int {
	if len(b) < arpBytes || !bytes.Equal(b[14:22], []byte{0, 1, 8, 0, 6, 4, 0, 1}) || !r.owns(b[38:42]) {
		return 0
	}
	var target [4]byte
	copy(target[:], b[38:42])
	b[21] = 2
	copy(b[32:42], b[22:32])
	copy(b[22:28], r.mac[:])
	copy(b[28:32], target[:])
	return arpBytes
}

// ping4 answers an ICMP echo request that is not a fragment. The checksum is
// updated, not computed anew: the rest of the message may lie elsewhere.
func (r *responder) ping4(b []byte, size int) int {
	if len(b) < etherHeader+20+8 || b[14] != 0x45 || b[23] != ipICMP || !r.owns(b[30:34]) {
		return 0
	}
	total := int(binary.BigEndian.Uint16(b[16:]))
	if binary.BigEndian.Uint16(b[20:])&0x3fff != 0 || b[34] != icmpEchoRequest || total < 28 || etherHeader+total > size {
		return 0
	}
	b[34] = 0
	sum := uint32(binary.BigEndian.Uint16(b[36:])) + icmpEchoRequest<<8
	binary.BigEndian.PutUint16(b[36:], uint16(sum+sum>>16))
	swap(b[26:30], b[30:34])
	return etherHeader + total
}

// ip6 answers an echo request or a neighbour solicitation.
func (r *responder) ip6(b []byte, size int) int {
	if len(b) < etherHeader+ipv6Header+8 || b[14]>>4 != 6 || b[20] != ipICMPv6 {
		return 0
	}
	total := ipv6Header + int(binary.BigEndian.Uint16(b[18:]))
	if total < ipv6Header+8 || etherHeader+total > size {
		return 0
	}
	switch {
	case b[54] == icmp6Echo && r.owns(b[38:54]):
		b[54] = icmp6EchoReply
		// One's complement subtraction of 1<<8: the checksum falls as the type grows.
		sum := uint32(binary.BigEndian.Uint16(b[56:])) + 0xffff - (icmp6EchoReply-icmp6Echo)<<8
		binary.BigEndian.PutUint16(b[56:], uint16(sum+sum>>16))
		swap(b[22:38], b[38:54])
		return etherHeader + total
	case b[54] == icmp6Solicit && total >= ipv6Header+24 && cap(b) >= adviceBytes && len(b) >= etherHeader+ipv6Header+24 && r.owns(b[62:78]):
		return r.advertise(b[:adviceBytes])
	}
	return 0
}

// advertise turns a solicitation into the advertisement of its target. One for
// duplicate detection comes from the unspecified address and is answered to all.
func (r *responder) advertise(b []byte) int {
	binary.BigEndian.PutUint16(b[18:], 24+8)
	b[21] = 255
	copy(b[38:54], b[22:38])
	flags := byte(0x60) // solicited, override
	if bytes.Equal(b[38:54], make([]byte, 16)) {
		all := netip.MustParseAddr("ff02::1").As16()
		copy(b[38:54], all[:])
		flags = 0x20
	}
	copy(b[22:38], b[62:78])
	b[54], b[55] = icmp6Advertise, 0
	copy(b[58:62], []byte{flags, 0, 0, 0})
	b[78], b[79] = 2, 1
	copy(b[80:86], r.mac[:])
	b[56], b[57] = 0, 0
	binary.BigEndian.PutUint16(b[56:], ^sumWords(ipICMPv6+32, b[22:86]))
	return adviceBytes
}

// sumWords is the ones' complement sum of b, which has an even length, and start.
func sumWords(start uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		start += uint32(binary.BigEndian.Uint16(b))
	}
	start = start>>16 + start&0xffff
	return uint16(start + start>>16)
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// neighbourGroups are the multicast addresses on which neighbours ask for addrs:
// all nodes and each address's solicited-node group (RFC 4291, 2464).
func neighbourGroups(addrs []netip.Addr) [][6]byte {
	out := [][6]byte{{0x33, 0x33, 0, 0, 0, 1}}
	for _, a := range addrs {
		if b := a.As16(); a.Is6() {
			out = append(out, [6]byte{0x33, 0x33, 0xff, b[13], b[14], b[15]})
		}
	}
	return out
}
