package model

// wire_gen_frame.go owns the headers of the built-in traffic: Ethernet, VLAN
// tags, tunnels, IPv4 and IPv6, UDP, and TCP connections with their sequence
// numbers. All checksums are right. It does not own what the frames carry
// (wire_gen_talk.go). It stands outside the manual.

import "encoding/binary"

// genConv is who talks to whom, and through what.
type genConv struct {
	n                  int
	v6                 bool
	name               string // the server's
	mac                [2][6]byte
	ip                 [2][]byte // of the client and the server
	port               [2]uint16
	id                 [2]uint16 // next IPv4 identification
	tags               []uint32  // tag protocol and control information
	vxlan, gre         bool
	outer              [2][]byte
	outerID, outerPort uint16 // next identification, source port
}

func (b *genBuilder) newConv(n int, v6 bool) *genConv {
	host, server := n%97, n%61
	c := &genConv{n: n, v6: v6, name: genName(n), port: [2]uint16{uint16(20000 + n), 0}}
	c.mac[0] = [6]byte{2, 0, 0x5e, 0, 1, byte(host)}
	c.mac[1] = [6]byte{2, 0, 0x5e, 0, 2, byte(server)}
	c.id = [2]uint16{uint16(b.rand.next()), uint16(b.rand.next())}
	c.outerPort = 49152 + uint16(b.rand.below(16384))
	if v6 {
		c.ip[0] = []byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, byte(host)}
		c.ip[1] = []byte{0x20, 1, 0xd, 0xb8, 0, 2, 0, byte(server % 3), 0, 0, 0, 0, 0, 0, 2, byte(server)}
		return c
	}
	nets := [3][3]byte{{192, 0, 2}, {198, 51, 100}, {203, 0, 113}}
	net := nets[server%3]
	c.ip[0] = []byte{10, 1, byte(host % 7), byte(10 + host)}
	c.ip[1] = []byte{net[0], net[1], net[2], byte(10 + server)}
	return c
}

func genVLAN(c *genConv) {
	c.tags = []uint32{0x8100<<16 | uint32(100+c.n%16)}
}

func genQinQ(c *genConv) {
	c.tags = []uint32{0x88a8<<16 | uint32(200+c.n%8), 0x8100<<16 | 3<<13 | uint32(300+c.n%8)}
}

func genVXLAN(c *genConv) {
	c.vxlan = true
	c.outer = [2][]byte{{10, 255, 0, byte(1 + c.n%4)}, {10, 255, 1, byte(1 + c.n%4)}}
}

func genGRE(c *genConv) {
	c.gre = true
	c.outer = [2][]byte{{10, 254, 0, byte(1 + c.n%4)}, {10, 254, 1, byte(1 + c.n%4)}}
}

// head is the number of bytes in front of the transport's payload, where the
// transport's own header takes l4.
func (c *genConv) head(l4 int) int {
	n := 14 + 4*len(c.tags) + 20 + l4
	if c.v6 {
		n += 20
	}
	if c.vxlan {
		n += 20 + 8 + 8 + 14
	}
	if c.gre {
		n += 20 + 4
	}
	return n
}

// genSide is the index of the sender.
func genSide(up bool) int {
	if up {
		return 0
	}
	return 1
}

const (
	genICMP, genTCPProto, genUDP, genGREProto, genICMP6 = 1, 6, 17, 47, 58

	genDontFragment = 0x4000
	genMoreFragment = 0x2000
)

// frame puts everything around a transport segment whose checksum is set.
func (b *genBuilder) frame(c *genConv, up bool, proto byte, l4 []byte) []byte {
	from := genSide(up)
	kind, packet := uint16(0x86dd), []byte(nil)
	if c.v6 {
		packet = genIPv6(c.ip[from], c.ip[1-from], proto, 64, l4)
	} else {
		kind, packet = 0x0800, genIPv4(c.ip[from], c.ip[1-from], proto, c.id[from], genDontFragment, l4)
		c.id[from]++
	}
	switch {
	case c.vxlan:
		inner := append([]byte{8, 0, 0, 0, 0, 0x12, 0x34, 0}, genEthernet(c.mac[1-from], c.mac[from], nil, kind, packet)...)
		udp := genUDPSegment(c.outer[from], c.outer[1-from], c.outerPort, 4789, inner)
		kind, packet = 0x0800, genIPv4(c.outer[from], c.outer[1-from], genUDP, c.outerID, genDontFragment, udp)
		c.outerID++
	case c.gre:
		inner := append(binary.BigEndian.AppendUint16([]byte{0, 0}, kind), packet...)
		kind, packet = 0x0800, genIPv4(c.outer[from], c.outer[1-from], genGREProto, c.outerID, genDontFragment, inner)
		c.outerID++
	}
	return genEthernet(b.dst, c.mac[from], c.tags, kind, packet)
}

func genEthernet(dst, src [6]byte, tags []uint32, kind uint16, packet []byte) []byte {
	f := make([]byte, 0, 14+4*len(tags)+len(packet))
	f = append(append(f, dst[:]...), src[:]...)
	for _, t := range tags {
		f = binary.BigEndian.AppendUint32(f, t)
	}
	return append(binary.BigEndian.AppendUint16(f, kind), packet...)
}

func genIPv4(src, dst []byte, proto byte, id, fragment uint16, payload []byte) []byte {
	p := append(make([]byte, 20, 20+len(payload)), payload...)
	p[0], p[8], p[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[4:], id)
	binary.BigEndian.PutUint16(p[6:], fragment)
	copy(p[12:], src)
	copy(p[16:], dst)
	binary.BigEndian.PutUint16(p[10:], ^genSum(0, p[:20]))
	return p
}

func genIPv6(src, dst []byte, proto, hops byte, payload []byte) []byte {
	p := append(make([]byte, 40, 40+len(payload)), payload...)
	p[0], p[6], p[7] = 0x60, proto, hops
	binary.BigEndian.PutUint16(p[4:], uint16(len(payload)))
	copy(p[8:], src)
	copy(p[24:], dst)
	return p
}

// genSum adds b to a ones' complement sum (RFC 1071).
func genSum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// genTransportSum is the checksum of a segment whose checksum field is 0, over
// the pseudo header of IPv4 or IPv6 (RFC 9293, RFC 8200).
func genTransportSum(src, dst []byte, proto byte, segment []byte) uint16 {
	pseudo := uint32(genSum(0, src)) + uint32(genSum(0, dst)) + uint32(proto) + uint32(len(segment))
	return ^genSum(pseudo, segment)
}

func genUDPSegment(src, dst []byte, sport, dport uint16, payload []byte) []byte {
	s := append(make([]byte, 8, 8+len(payload)), payload...)
	binary.BigEndian.PutUint16(s, sport)
	binary.BigEndian.PutUint16(s[2:], dport)
	binary.BigEndian.PutUint16(s[4:], uint16(len(s)))
	sum := genTransportSum(src, dst, genUDP, s)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(s[6:], sum)
	return s
}

// udp emits one datagram of the conversation.
func (b *genBuilder) udp(c *genConv, up bool, payload []byte) {
	b.emit(b.udpFrame(c, up, payload))
}

func (b *genBuilder) udpFrame(c *genConv, up bool, payload []byte) []byte {
	from := genSide(up)
	s := genUDPSegment(c.ip[from], c.ip[1-from], c.port[from], c.port[1-from], payload)
	return b.frame(c, up, genUDP, s)
}

// genTCP is a connection under way.
type genTCP struct {
	b   *genBuilder
	c   *genConv
	seq [2]uint32
}

const (
	genFIN, genSYN, genPSH, genACK = 1, 2, 8, 16
)

// connect makes the three-way handshake.
func (b *genBuilder) connect(c *genConv, port uint16) *genTCP {
	c.port[1] = port
	t := &genTCP{b: b, c: c, seq: [2]uint32{uint32(b.rand.next()), uint32(b.rand.next())}}
	t.segment(true, genSYN, nil)
	t.segment(false, genSYN|genACK, nil)
	t.segment(true, genACK, nil)
	return t
}

// room is the most payload that one segment carries.
func (t *genTCP) room() int { return t.b.largest() - t.c.head(20) }

// segment emits one segment. A SYN tells the segment size where that does not
// cost it the smallest frame.
func (t *genTCP) segment(up bool, flags byte, payload []byte) {
	from := genSide(up)
	s := make([]byte, 20, 24+len(payload))
	s[12] = 5 << 4
	if flags&genSYN != 0 && t.c.head(24) <= t.b.sizes[0] {
		s = append(s, 2, 4, byte(t.room()>>8), byte(t.room()))
		s[12] = 6 << 4
	}
	binary.BigEndian.PutUint16(s, t.c.port[from])
	binary.BigEndian.PutUint16(s[2:], t.c.port[1-from])
	binary.BigEndian.PutUint32(s[4:], t.seq[from])
	if flags&genACK != 0 {
		binary.BigEndian.PutUint32(s[8:], t.seq[1-from])
	}
	s[13], s[14], s[15] = flags, 0xff, 0xff
	s = append(s, payload...)
	binary.BigEndian.PutUint16(s[16:], genTransportSum(t.c.ip[from], t.c.ip[1-from], genTCPProto, s))
	t.seq[from] += uint32(len(payload))
	if flags&(genSYN|genFIN) != 0 {
		t.seq[from]++
	}
	t.b.emit(t.b.frame(t.c, up, genTCPProto, s))
}

// send carries a message over in as few segments as possible; the receiver
// acknowledges every second one and the last. Where an acknowledgment alone does
// not fit the smallest frame it comes with the next data instead.
func (t *genTCP) send(up bool, message []byte) {
	room := t.room()
	if room < 1 {
		t.b.failed = true
		return
	}
	for sent := 1; len(message) > 0; sent++ {
		n, flags := min(len(message), room), byte(genACK)
		if n == len(message) {
			flags |= genPSH
		}
		t.segment(up, flags, message[:n])
		message = message[n:]
		if t.c.head(20) <= t.b.sizes[0] && (sent%2 == 0 || len(message) == 0) {
			t.segment(!up, genACK, nil)
		}
	}
}

// say sends what build returns, grown so that its last segment fills a frame.
// build(0) is the message at its natural length; build(n) should be n longer.
func (t *genTCP) say(up bool, build func(more int) []byte) {
	natural := len(build(0))
	room, head := t.room(), t.c.head(20)
	if room < 1 {
		t.b.failed = true
		return
	}
	rest := natural
	for rest > room {
		rest -= room
	}
	t.send(up, build(t.b.grow(head, rest)-rest))
}

// finish closes both directions.
func (t *genTCP) finish() {
	t.segment(true, genFIN|genACK, nil)
	t.segment(false, genFIN|genACK, nil)
	t.segment(true, genACK, nil)
}
