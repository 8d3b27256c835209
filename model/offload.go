package model

// offload.go owns what the device changes in a frame on its way out: IP and L4
// checksums, VLAN insertion and segmentation (LSO). It does not gather frames
// or send them; send.go does. Manual: chapter "Send queue", sections "Stateless
// offloads" and "LSO"; RFC 1071 for the sums, RFC 3168 for CWR.
//
// Order: inner checksums before outer ones, which cover them; then the VLAN
// tag, so that offsets given by software are those of the frame as gathered.

import (
	"encoding/binary"
	"math/bits"
)

// Checksum requests and the header kinds that go with software-given offsets.
const (
	csumInnerL3 = 0x10 // wqe_eth_csum_flag.MLX5_ETH_WQE_L3_INNER_CSUM
	csumInnerL4 = 0x20 // wqe_eth_csum_flag.MLX5_ETH_WQE_L4_INNER_CSUM
	csumL3      = 0x40 // wqe_eth_csum_flag.MLX5_ETH_WQE_L3_CSUM
	csumL4      = 0x80 // wqe_eth_csum_flag.MLX5_ETH_WQE_L4_CSUM

	swpInnerIPv6 = 0x01 // wqe_eth_swp_flag.MLX5_ETH_WQE_SWP_INNER_L3_IPV6
	swpInnerUDP  = 0x02 // wqe_eth_swp_flag.MLX5_ETH_WQE_SWP_INNER_L4_UDP
	swpOuterIPv6 = 0x10 // wqe_eth_swp_flag.MLX5_ETH_WQE_SWP_OUTER_L3_IPV6
	swpOuterUDP  = 0x20 // wqe_eth_swp_flag.MLX5_ETH_WQE_SWP_OUTER_L4_UDP

	tcpFIN, tcpPSH, tcpACK, tcpCWR = 0x01, 0x08, 0x10, 0x80 // RFC 9293
)

// place says where one pair of IP and L4 headers stands. 0 is none.
type place struct {
	l3, l4 int
	v6     bool
	proto  uint8
	frag   bool
}

// places finds the headers of f: where software said, else by parsing.
func places(f []byte, e *eseg) (outer, inner place) {
	if e.swp != [4]uint8{} {
		outer = swpPlace(f, e.swp[1], e.swp[0], e.swpFlags&swpOuterIPv6 != 0, e.swpFlags&swpOuterUDP != 0)
		inner = swpPlace(f, e.swp[3], e.swp[2], e.swpFlags&swpInnerIPv6 != 0, e.swpFlags&swpInnerUDP != 0)
		return outer, inner
	}
	var p packet
	p.parse(f, true)
	return p.outer.place(), p.inner.place()
}

func swpPlace(f []byte, l3, l4 uint8, v6, udp bool) place {
	p := place{l3: int(l3) * 2, l4: int(l4) * 2, v6: v6, proto: protoTCP}
	if udp {
		p.proto = protoUDP
	}
	least := ip4Min
	if v6 {
		least = ip6Header
	}
	if p.l3 == 0 || p.l3+least > len(f) {
		return place{}
	}
	if p.l4 <= p.l3 || p.l4 >= len(f) {
		p.l4 = 0
	}
	return p
}

// offload applies e to f and returns the frame, which may have moved.
func offload(f []byte, e *eseg) []byte {
	if e.csum != 0 {
		outer, inner := places(f, e)
		if e.csum&csumInnerL4 != 0 {
			sumL4(f, inner)
		}
		if e.csum&csumInnerL3 != 0 {
			sumL3(f, inner)
		}
		if e.csum&csumL4 != 0 {
			sumL4(f, outer)
		}
		if e.csum&csumL3 != 0 {
			sumL3(f, outer)
		}
	}
	if e.insert {
		tpid := uint16(etherVLAN)
		if e.svlan {
			tpid = etherQinQ
		}
		f = append(f, 0, 0, 0, 0)
		copy(f[16:], f[12:len(f)-4])
		putBE16(f, 12, tpid)
		putBE16(f, 14, e.tci)
	}
	return f
}

// sumL3 fills in the header checksum of an IPv4 header.
func sumL3(f []byte, p place) {
	if p.l3 == 0 || p.v6 {
		return
	}
	end := p.l3 + int(f[p.l3]&15)*4
	if end < p.l3+ip4Min || end > len(f) {
		return
	}
	putBE16(f, p.l3+10, 0)
	putBE16(f, p.l3+10, ^fold(sum(f[p.l3:end])))
}

// sumL4 fills in the TCP or UDP checksum over all that the IP header covers.
func sumL4(f []byte, p place) {
	if p.l4 == 0 || p.frag {
		return
	}
	end := p.end(f)
	at := p.l4 + 16
	if p.proto == protoUDP {
		at = p.l4 + 6
	} else if p.proto != protoTCP {
		return
	}
	if at+2 > end {
		return
	}
	putBE16(f, at, 0)
	v := ^fold(sum(f[p.l4:end]) + p.pseudo(f, end-p.l4))
	if v == 0 && p.proto == protoUDP {
		v = 0xffff // RFC 768: 0 would mean none
	}
	putBE16(f, at, v)
}

// end is where the IP packet at p ends: by its length, or with the frame where
// the length is 0 or too great.
func (p place) end(f []byte) int {
	if p.v6 {
		if n := int(be16(f, p.l3+4)); n != 0 {
			return min(p.l3+ip6Header+n, len(f))
		}
		return len(f)
	}
	if n := int(be16(f, p.l3+2)); n != 0 {
		return min(p.l3+n, len(f))
	}
	return len(f)
}

// pseudo sums the pseudo header for n bytes of L4.
func (p place) pseudo(f []byte, n int) uint64 {
	v := uint64(p.proto) + uint64(n)
	if p.v6 {
		return v + sum(f[p.l3+8:p.l3+40])
	}
	return v + sum(f[p.l3+12:p.l3+20])
}

// sum adds b as big-endian 16-bit words, not folded; an odd byte is the high
// half of a word. It cannot overflow below 2^48 bytes.
func sum(b []byte) uint64 {
	var v, carry uint64
	for len(b) >= 32 {
		v, carry = bits.Add64(v, binary.LittleEndian.Uint64(b), carry)
		v, carry = bits.Add64(v, binary.LittleEndian.Uint64(b[8:]), carry)
		v, carry = bits.Add64(v, binary.LittleEndian.Uint64(b[16:]), carry)
		v, carry = bits.Add64(v, binary.LittleEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		v, carry = bits.Add64(v, binary.LittleEndian.Uint64(b), carry)
		b = b[8:]
	}
	var last uint64
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v, carry = bits.Add64(v, last, carry)
	v, carry = bits.Add64(v, 0, carry)
	v += carry
	// The order of bytes does not matter to the sum but for a final swap.
	return uint64(bits.ReverseBytes16(fold(v)))
}

// fold brings a sum to 16 bits, end-around.
func fold(v uint64) uint16 {
	v = v>>32 + v&0xffffffff
	v = v>>32 + v&0xffffffff
	v = v>>16 + v&0xffff
	v = v>>16 + v&0xffff
	return uint16(v>>16 + v&0xffff)
}

// headersEnd is how far the IP header, or with l4 the TCP or UDP header, of f
// reaches; without IP it is the length of the Ethernet header.
func headersEnd(f []byte, l4 bool) int {
	var p packet
	p.parse(f, false)
	h := &p.outer
	switch {
	case h.version == 0:
		return min(frameMin, len(f))
	case !l4 || h.l4 == 0:
		return h.l3 + h.l3Len
	case h.proto == protoTCP:
		return min(h.l4+tcpMin, len(f))
	case h.proto == protoUDP:
		return min(h.l4+udpHeader, len(f))
	}
	return h.l3 + h.l3Len
}

// sendLarge executes LSO: the inlined headers go before every piece of mss
// bytes of the payload.
func (d *Device) sendLarge(q *sq, w *sendWQE) failure {
	if len(w.b) < esegAt+dsBytes {
		return failOpcode
	}
	e := decodeEseg(w.b[esegAt : esegAt+dsBytes])
	if e.mss == 0 || e.inlined < frameMin {
		return failInline
	}
	if fail := d.gather(q, w, &e, e.inlined+lsoMax); fail != failNone {
		return fail
	}
	headers, payload := d.work.frame[:e.inlined], d.work.frame[e.inlined:]
	outer, inner := places(headers, &e)
	last := outer
	if inner.l4 != 0 {
		last = inner
	}
	if last.l4 == 0 || last.proto != protoTCP && last.proto != protoUDP || last.headerEnd() > len(headers) {
		return failInline
	}
	for i, off := 0, 0; i == 0 || off < len(payload); i, off = i+1, off+e.mss {
		end := min(off+e.mss, len(payload))
		s := append(append(d.work.segment[:0], headers...), payload[off:end]...)
		d.work.segment = s
		outer.resize(s, i)
		if inner.l3 != 0 {
			outer.resizeUDP(s)
			inner.resize(s, i)
		}
		last.advance(s, off, i == 0, end == len(payload))
		if !e.plain() {
			s = offload(s, &e)
			d.work.segment = s
		}
		d.work.sum.Metadata += uint64(e.meta)
		d.transmit(s)
	}
	return failNone
}

// headerEnd is the least end of the L4 header.
func (p place) headerEnd() int {
	if p.proto == protoUDP {
		return p.l4 + udpHeader
	}
	return p.l4 + tcpMin
}

// resize sets the IP length for segment i of a large send, and its IPv4
// identification.
func (p place) resize(s []byte, i int) {
	if p.l3 == 0 {
		return
	}
	if p.v6 {
		putBE16(s, p.l3+4, uint16(len(s)-p.l3-ip6Header))
		return
	}
	putBE16(s, p.l3+2, uint16(len(s)-p.l3))
	putBE16(s, p.l3+4, be16(s, p.l3+4)+uint16(i))
}

func (p place) resizeUDP(s []byte) {
	if p.l4 != 0 && p.proto == protoUDP && p.l4+udpHeader <= len(s) {
		putBE16(s, p.l4+4, uint16(len(s)-p.l4))
	}
}

// advance sets what changes in the L4 header from segment to segment: the TCP
// sequence, FIN and PSH on the last only, CWR on the first only; UDP's length.
func (p place) advance(s []byte, off int, first, last bool) {
	if p.proto == protoUDP {
		p.resizeUDP(s)
		return
	}
	putBE32(s, p.l4+4, be32(s, p.l4+4)+uint32(off))
	flags := &s[p.l4+13]
	if !last {
		*flags &^= tcpFIN | tcpPSH
	}
	if !first {
		*flags &^= tcpCWR
	}
}
