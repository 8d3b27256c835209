package main

// This file owns the frames that our binary and Linux send each other: what they
// look like, what a NIC with all offloads has to make of them, and the capture
// files that hold them. It computes checksums, tags and segments by itself and
// shares no code with the driver or the emulated device. Sources: RFC 791, 768,
// 1071, 8200, 9293, 7348, 8926; IEEE 802.1Q.

import (
	"encoding/binary"
	"net/netip"
)

// shape is a kind of frame: the headers from the outside in.
type shape struct {
	tag    bool // VLAN 100
	tunnel tunnel
	outer6 bool // the tunnel runs over IPv6
	v6     bool // innermost IP
	tcp    bool
	net    byte // of the innermost addresses: 10.NET.0.x, fd0NET::x
}

type tunnel uint8

const (
	noTunnel tunnel = iota
	vxlan
	geneve
)

// Numbers in frames.
const (
	labVLAN    = 100
	labPort    = 5000 // of UDP and TCP
	labOptions = 12   // bytes of TCP options: time stamps
)

var labSource = [6]byte{6, 0, 0, 0, 0, 0xaa} // whom test frames come from

// shapes are what is sent. Each net is an interface of the receiver.
var shapes = []shape{
	{}, {tcp: true}, {v6: true}, {v6: true, tcp: true},
	{tag: true, net: 1}, {tag: true, tcp: true, net: 1}, {tag: true, v6: true, net: 1}, {tag: true, v6: true, tcp: true, net: 1},
	{tunnel: vxlan, net: 2}, {tunnel: vxlan, tcp: true, net: 2}, {tunnel: vxlan, v6: true, net: 2}, {tunnel: vxlan, v6: true, tcp: true, net: 2},
	{tunnel: vxlan, outer6: true, net: 3}, {tunnel: vxlan, outer6: true, v6: true, tcp: true, net: 3},
	{tunnel: geneve, net: 4}, {tunnel: geneve, tcp: true, net: 4}, {tunnel: geneve, v6: true, net: 4},
}

// overhead is the bytes of a frame that are not payload.
func (s shape) overhead() int {
	n := 14 + 20 + 8
	if s.v6 {
		n += 20
	}
	if s.tcp {
		n += 12 + labOptions
	}
	if s.tag {
		n += 4
	}
	if s.tunnel != noTunnel {
		n += 14 + 20 + 8 + 8
		if s.outer6 {
			n += 20
		}
	}
	return n
}

// packer writes frames. With sums it computes checksums, without it puts in what
// is certainly wrong, for the device to replace.
type packer struct {
	to   [6]byte
	sums bool
}

// segment says which part of a TCP stream a frame is.
type segment struct {
	index  int // among those cut from one frame
	offset int
	last   bool
}

// frame number n of shape s.
func (p packer) frame(s shape, n int, payload []byte, g segment) []byte {
	from, to := labAddresses(s.v6, s.net)
	b := p.transport(s.tcp, n, from, to, payload, g)
	b = p.network(s.v6, proto(s.tcp), n+g.index, from, to, b)
	if s.tunnel == noTunnel {
		return p.link(p.to, s.tag, kind(s.v6), b)
	}
	b = p.link([6]byte{2, 0, 0, 0, 1, s.net}, false, kind(s.v6), b)
	head := []byte{8, 0, 0, 0, 0, 0, s.net, 0} // VXLAN: network identifier valid
	port := 4789
	if s.tunnel == geneve {
		head, port = []byte{0, 0, 0x65, 0x58, 0, 0, s.net, 0}, 6081
	}
	from, to = labAddresses(s.outer6, 0)
	// Over IPv4 a tunnel's UDP has no checksum, as Linux sends it.
	b = p.udp(49152+n%1000, port, from, to, append(head, b...), s.outer6)
	b = p.network(s.outer6, 17, n+g.index, from, to, b)
	return p.link(p.to, s.tag, kind(s.outer6), b)
}

func proto(tcp bool) byte {
	if tcp {
		return 6
	}
	return 17
}

func kind(v6 bool) uint16 {
	if v6 {
		return 0x86dd
	}
	return 0x0800
}

// labAddresses are the sender's and the receiver's.
func labAddresses(v6 bool, net byte) (from, to []byte) {
	a, b := netip.AddrFrom4([4]byte{10, net, 0, 1}), netip.AddrFrom4([4]byte{10, net, 0, 2})
	if v6 {
		a, b = netip.AddrFrom16([16]byte{0xfd, net, 15: 1}), netip.AddrFrom16([16]byte{0xfd, net, 15: 2})
	}
	return a.AsSlice(), b.AsSlice()
}

func (p packer) link(to [6]byte, tag bool, kind uint16, body []byte) []byte {
	b := append(append([]byte{}, to[:]...), labSource[:]...)
	if tag {
		b = append(b, 0x81, 0, 0, labVLAN)
	}
	b = append(b, byte(kind>>8), byte(kind))
	return append(b, body...)
}

func (p packer) network(v6 bool, proto byte, id int, from, to, body []byte) []byte {
	be := binary.BigEndian
	if v6 {
		h := []byte{0x60, 0, 0, 0, 0, 0, proto, 64}
		be.PutUint16(h[4:], uint16(len(body)))
		return append(append(append(h, from...), to...), body...)
	}
	h := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0}
	be.PutUint16(h[2:], uint16(20+len(body)))
	be.PutUint16(h[4:], uint16(id))
	h = append(append(h, from...), to...)
	p.fill(h, 10, 0, nil, nil, h)
	return append(h, body...)
}

func (p packer) transport(tcp bool, n int, from, to, payload []byte, g segment) []byte {
	if !tcp {
		return p.udp(40000, labPort, from, to, payload, true)
	}
	be := binary.BigEndian
	const size = 20 + labOptions
	h := make([]byte, size, size+len(payload))
	be.PutUint16(h, 40000)
	be.PutUint16(h[2:], labPort)
	be.PutUint32(h[4:], uint32(n)<<16+uint32(g.offset))
	be.PutUint32(h[8:], 77)
	h[12], h[13] = size/4<<4, 0x10 // ACK
	if g.last {
		h[13] |= 0x08 // PSH
	}
	be.PutUint16(h[14:], 0xffff)
	copy(h[20:], []byte{1, 1, 8, 10, 0, 0, byte(n >> 8), byte(n), 0, 0, 0, 1})
	b := append(h, payload...)
	p.fill(b, 16, 6, from, to, b)
	return b
}

func (p packer) udp(sport, dport int, from, to, payload []byte, summed bool) []byte {
	be := binary.BigEndian
	h := make([]byte, 8, 8+len(payload))
	be.PutUint16(h, uint16(sport))
	be.PutUint16(h[2:], uint16(dport))
	be.PutUint16(h[4:], uint16(8+len(payload)))
	b := append(h, payload...)
	if summed {
		p.fill(b, 6, 17, from, to, b)
	}
	return b
}

// fill writes the checksum of b at offset at of h.
func (p packer) fill(h []byte, at int, proto byte, from, to, b []byte) {
	v := uint64(0)
	for _, part := range [][]byte{from, to, b} {
		for i, c := range part {
			v += uint64(c) << (8 * (1 - i%2))
		}
	}
	if proto != 0 {
		v += uint64(proto) + uint64(len(b))
	}
	for v>>16 != 0 {
		v = v>>16 + v&0xffff
	}
	sum := ^uint16(v)
	if sum == 0 && proto == 17 {
		sum = 0xffff
	}
	if !p.sums {
		sum ^= 0x5a5a // cannot be right
		if sum == 0 {
			sum = 0x1111
		}
	}
	binary.BigEndian.PutUint16(h[at:], sum)
}

// labPayload is n bytes of frame number i, unlike any other's.
func labPayload(i, n int) []byte {
	b, v := make([]byte, n), uint32(i)*2654435761+uint32(n)
	for k := range b {
		v = v*1664525 + 1013904223
		b[k] = byte(v >> 24)
	}
	return b
}

// traffic is a run's frames: as they are given to the sender, and as they have
// to arrive.
type traffic struct {
	given, sent [][]byte
	kinds       []shape // of sent
	large       int     // of given, those that have to be cut
	largeInner  int     // and that are in a tunnel
	tagged      int     // of sent
	tunnelled   int
}

// add puts one frame in, with so many bytes of payload, cut where it is longer
// than the MTU.
func (t *traffic) add(s shape, to [6]byte, size, mtu int) {
	n := len(t.given)
	payload := labPayload(n, size)
	t.given = append(t.given, packer{to: to}.frame(s, n, payload, segment{last: true}))
	most := size
	header := s.overhead() - 14
	if s.tag {
		header -= 4
	}
	if header+size > mtu {
		most = mtu - header
		if s.tunnel != noTunnel {
			t.largeInner++
		} else {
			t.large++
		}
	}
	for off, i := 0, 0; off < size || i == 0; off, i = off+most, i+1 {
		end := min(off+most, size)
		b := packer{to: to, sums: true}.frame(s, n, payload[off:end], segment{index: i, offset: off, last: end == size})
		for len(b) < 60 {
			b = append(b, 0)
		}
		t.sent, t.kinds = append(t.sent, b), append(t.kinds, s)
		if s.tag {
			t.tagged++
		}
		if s.tunnel != noTunnel {
			t.tunnelled++
		}
	}
}

// capture is frames as a capture file, all at the same time.
func capture(frames [][]byte) []byte {
	var b []byte
	word := func(v ...uint32) {
		for _, w := range v {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
	}
	word(0xa1b2c3d4, 2|4<<16, 0, 0, 1<<18, 1)
	for _, f := range frames {
		word(0, 0, uint32(len(f)), uint32(len(f)))
		b = append(b, f...)
	}
	return b
}
