package model

// parse.go owns finding headers in a frame: Ethernet with up to two tags, IPv4,
// IPv6 and its extension headers, TCP, UDP, fragments, IPsec, and what VXLAN,
// GENEVE, GRE and IP-in-IP carry. It keeps offsets, never copies, and accepts
// any bytes. What to make of them is for others (walk.go, rss.go, offload.go).
// Sources: IEEE 802.1Q, RFC 791, 8200, 9293, 768, 4303, 4302, 7348, 8926, 2784.

// Numbers of the protocols that the device knows.
const (
	etherIPv4   = 0x0800
	etherVLAN   = 0x8100
	etherIPv6   = 0x86dd
	etherQinQ   = 0x88a8
	etherBridge = 0x6558 // Ethernet in GRE or GENEVE

	protoHopByHop = 0
	protoIPIP     = 4
	protoTCP      = 6
	protoUDP      = 17
	protoIPv6     = 41
	protoRouting  = 43
	protoFragment = 44
	protoGRE      = 47
	protoESP      = 50
	protoAH       = 51
	protoNone     = 59
	protoDestOpts = 60

	portVXLAN  = 4789
	portGENEVE = 6081

	ip4Min       = 20
	ip6Header    = 40
	tcpMin       = 20
	udpHeader    = 8
	maxTags      = 2
	maxExtension = 8 // IPv6 extension headers that are followed
)

// l2Header is one Ethernet header with its tags.
type l2Header struct {
	at        int    // of the destination address
	next      int    // what follows the last EtherType
	etherType uint16 // after the tags
	tags      int
	tpid, tci [maxTags]uint16
}

// l3Header is one IP header and the L4 header after it. version 0 is none.
type l3Header struct {
	version uint8
	proto   uint8 // after the extension headers
	frag    bool  // any fragment; L4 is not looked at
	l3      int
	l3Len   int // with extension headers
	l4      int // 0 where there is none to look at
	end     int // of the IP packet in the frame: by its length, or truncated
	short   bool
}

// tunnel kinds.
const (
	tunnelNone = iota
	tunnelVXLAN
	tunnelGENEVE
	tunnelGRE
	tunnelIP
)

// packet is a parsed frame. The zero value can be used again and again.
type packet struct {
	b        []byte
	eth      l2Header
	outer    l3Header
	tunnel   uint8
	at       int // of the tunnel header
	innerEth l2Header
	inner    l3Header
	vxlan    []uint16 // more UDP ports that carry VXLAN
}

// parse looks at frame b; with tunnels also at what a tunnel carries.
func (p *packet) parse(b []byte, tunnels bool) {
	p.b = b
	p.tunnel, p.at = tunnelNone, 0
	p.inner = l3Header{}
	p.outer = l3Header{}
	if !p.eth.parse(b, 0) {
		return
	}
	p.outer.parse(b, p.eth.etherType, p.eth.next)
	if tunnels && p.outer.version != 0 && !p.outer.frag {
		p.enter()
	}
}

// parse reads the Ethernet header at offset at.
func (h *l2Header) parse(b []byte, at int) bool {
	h.at, h.tags, h.etherType = at, 0, 0
	h.next = at + 14
	if len(b) < h.next {
		h.next = len(b)
		return false
	}
	h.etherType = be16(b, at+12)
	for h.tags < maxTags && (h.etherType == etherVLAN || h.etherType == etherQinQ) && len(b) >= h.next+4 {
		h.tpid[h.tags], h.tci[h.tags] = h.etherType, be16(b, h.next)
		h.etherType = be16(b, h.next+2)
		h.tags++
		h.next += 4
	}
	return true
}

// parse reads the IP header that EtherType says stands at offset at.
func (h *l3Header) parse(b []byte, etherType uint16, at int) {
	switch etherType {
	case etherIPv4:
		h.parse4(b, at)
	case etherIPv6:
		h.parse6(b, at)
	}
}

func (h *l3Header) parse4(b []byte, at int) {
	if len(b) < at+ip4Min || b[at]>>4 != 4 {
		return
	}
	n := int(b[at]&15) * 4
	if n < ip4Min || len(b) < at+n {
		return
	}
	h.version, h.l3, h.l3Len, h.proto = 4, at, n, b[at+9]
	h.frag = be16(b, at+6)&0x3fff != 0 // MF or an offset
	h.limit(b, int(be16(b, at+2)), n)
	h.findL4(b)
}

func (h *l3Header) parse6(b []byte, at int) {
	if len(b) < at+ip6Header || b[at]>>4 != 6 {
		return
	}
	h.version, h.l3, h.l3Len = 6, at, ip6Header
	total := int(be16(b, at+4))
	if total != 0 {
		total += ip6Header
	}
	h.limit(b, total, ip6Header)
	next := b[at+6]
	for range maxExtension {
		ext := at + h.l3Len
		if next != protoHopByHop && next != protoRouting && next != protoDestOpts && next != protoFragment || ext+8 > h.end {
			break
		}
		n, later := 8, false
		if next == protoFragment {
			h.frag, later = true, be16(b, ext+2)>>3 != 0
		} else {
			n += int(b[ext+1]) * 8
		}
		if ext+n > h.end {
			break
		}
		next = b[ext]
		h.l3Len += n
		if later {
			break // what follows is data, not a header
		}
	}
	h.proto = next
	h.findL4(b)
}

// limit sets where the packet ends: total bytes from its start, where 0 or
// less than the header means up to the end of the frame.
func (h *l3Header) limit(b []byte, total, header int) {
	h.end = len(b)
	if total < header {
		return
	}
	h.short = h.l3+total > len(b)
	if !h.short {
		h.end = h.l3 + total
	}
}

// findL4 sets l4 where a whole TCP or UDP header, or an IPsec one, follows.
func (h *l3Header) findL4(b []byte) {
	if h.frag {
		return
	}
	at, need := h.l3+h.l3Len, 0
	switch h.proto {
	case protoTCP:
		need = tcpMin
	case protoUDP, protoESP:
		need = udpHeader
	case protoAH:
		need = 12
	default:
		return
	}
	if at+need <= h.end {
		h.l4 = at
	}
}

// place is h as offload.go wants it.
func (h *l3Header) place() place {
	if h.version == 0 {
		return place{}
	}
	return place{l3: h.l3, l4: h.l4, v6: h.version == 6, proto: h.proto, frag: h.frag}
}

// isTCP and isUDP say that h has that L4 header, whole.
func (h *l3Header) isTCP() bool { return h.l4 != 0 && h.proto == protoTCP }
func (h *l3Header) isUDP() bool { return h.l4 != 0 && h.proto == protoUDP }

// spi is the IPsec security parameter index, and whether there is one.
func (h *l3Header) spi(b []byte) (uint32, bool) {
	switch {
	case h.l4 == 0:
	case h.proto == protoESP:
		return be32(b, h.l4), true
	case h.proto == protoAH:
		return be32(b, h.l4+4), true
	}
	return 0, false
}

// enter looks for a tunnel behind the outer headers and parses what it carries.
func (p *packet) enter() {
	h, b := &p.outer, p.b
	at := h.l3 + h.l3Len
	switch {
	case h.proto == protoIPIP:
		p.carryIP(tunnelIP, at, etherIPv4, at)
	case h.proto == protoIPv6:
		p.carryIP(tunnelIP, at, etherIPv6, at)
	case h.proto == protoGRE:
		p.enterGRE(at)
	case h.isUDP():
		at = h.l4 + udpHeader
		if at+8 > len(b) {
			return
		}
		switch port := be16(b, h.l4+2); {
		case port == portVXLAN || p.isVXLAN(port):
			p.carryEthernet(tunnelVXLAN, at, at+8)
		case port == portGENEVE:
			body := at + 8 + int(b[at]&0x3f)*4
			if kind := be16(b, at+2); kind == etherBridge {
				p.carryEthernet(tunnelGENEVE, at, body)
			} else {
				p.carryIP(tunnelGENEVE, at, kind, body)
			}
		}
	}
}

func (p *packet) isVXLAN(port uint16) bool {
	for _, v := range p.vxlan {
		if v == port {
			return true
		}
	}
	return false
}

// enterGRE follows a GRE header: version 0 with checksum, key and sequence
// optional, no routing.
func (p *packet) enterGRE(at int) {
	if at+4 > len(p.b) || be16(p.b, at)&0x4007 != 0 {
		return
	}
	flags, body := p.b[at], at+4
	for _, option := range [...]byte{greChecksum, greKey, greSequence} {
		if flags&option != 0 {
			body += 4
		}
	}
	if kind := be16(p.b, at+2); kind == etherBridge {
		p.carryEthernet(tunnelGRE, at, body)
	} else {
		p.carryIP(tunnelGRE, at, kind, body)
	}
}

// GRE options in the first byte.
const (
	greChecksum = 0x80
	greKey      = 0x20
	greSequence = 0x10
)

func (p *packet) carryEthernet(kind uint8, at, body int) {
	if !p.innerEth.parse(p.b, body) {
		return
	}
	p.tunnel, p.at = kind, at
	p.inner.parse(p.b, p.innerEth.etherType, p.innerEth.next)
}

func (p *packet) carryIP(kind uint8, at int, etherType uint16, body int) {
	p.inner.parse(p.b, etherType, body)
	if p.inner.version != 0 {
		p.tunnel, p.at = kind, at
		p.innerEth = l2Header{at: -1, etherType: etherType, next: body}
	}
}
