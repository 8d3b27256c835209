package model

// wire_gen_talk.go owns what is said in the built-in traffic: one method of the
// builder for each kind of conversation, and the messages of DNS, HTTP and TLS.
// It does not own the headers around them (wire_gen_frame.go). It stands outside
// the manual; the formats are those of the RFCs named below.

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// genWords and genZones make the names.
var (
	genWords = []string{"www", "api", "cdn", "mail", "img", "login", "static", "shop", "news", "video", "docs",
		"auth", "search", "files", "chat", "maps", "status", "blog", "media", "pay", "telemetry", "update"}
	genZones = []string{"example.com", "example.net", "example.org"}
)

// genName is the host name of conversation n: 66 plain ones, then numbered ones.
func genName(n int) string {
	word, zone := genWords[n%len(genWords)], genZones[n/len(genWords)%len(genZones)]
	if round := n / (len(genWords) * len(genZones)); round > 0 {
		word += "-" + strconv.Itoa(round)
	}
	return word + "." + zone
}

// short reports that frames are so small that messages must be terse.
func (b *genBuilder) short() bool { return b.largest() < 300 }

// length draws a length from lo to hi, an eighth of it for small frames.
func (b *genBuilder) length(lo, hi int) int {
	n := lo + b.rand.below(hi-lo+1)
	if b.short() {
		n /= 8
	}
	return n
}

// genStream is one endless RTP stream (RFC 3550): the server sends.
type genStream struct {
	c     *genConv
	seq   uint16
	stamp uint32
	ssrc  uint32
}

const genRTPHeader = 12

// stream starts an endless stream. Eight frames of it are part of the order; all
// further ones fill slots.
func (b *genBuilder) stream(c *genConv) {
	c.port[1] = 16384 + uint16(c.n%512)*2
	s := &genStream{c: c, seq: uint16(b.rand.next()), stamp: uint32(b.rand.next()), ssrc: uint32(b.rand.next())}
	if !s.fits(b, len(b.sizes)-1) {
		b.failed = true
		return
	}
	b.streams = append(b.streams, s)
	for i := range 8 {
		size := i / 4 % len(b.sizes)
		if !s.fits(b, size) {
			size = len(b.sizes) - 1
		}
		b.out = append(b.out, genFrame{size: size, stream: s})
	}
}

func (s *genStream) fits(b *genBuilder, size int) bool {
	return s.c.head(8)+genRTPHeader <= b.sizes[size]
}

// frame builds the stream's next frame at exactly this size.
func (s *genStream) frame(b *genBuilder, size int) []byte {
	p := make([]byte, genRTPHeader, b.sizes[size])
	p[0], p[1] = 0x80, 96
	binary.BigEndian.PutUint16(p[2:], s.seq)
	binary.BigEndian.PutUint32(p[4:], s.stamp)
	binary.BigEndian.PutUint32(p[8:], s.ssrc)
	s.seq++
	s.stamp += 1500
	p = append(p, b.rand.bytes(b.sizes[size]-s.c.head(8)-genRTPHeader)...)
	return b.udpFrame(s.c, false, p)
}

// finish is the frame itself; one of a stream is built now.
func (f *genFrame) finish(b *genBuilder) []byte {
	if f.stream != nil {
		return f.stream.frame(b, f.size)
	}
	return f.data
}

// filler is a frame of this size that no conversation had: of a stream that can
// send it. The first one, IPv4 without tags, can send any size.
func (b *genBuilder) filler(turn, size int) []byte {
	s := b.streams[turn%len(b.streams)]
	if !s.fits(b, size) {
		s = b.streams[0]
	}
	return s.frame(b, size)
}

// chat is a plain TCP exchange of short lines.
func (b *genBuilder) chat(c *genConv) {
	t := b.connect(c, 9000+uint16(c.n%64))
	for i := range 3 + b.rand.below(3) {
		line := []byte("ready\n")
		if i%2 == 1 {
			line = []byte("line " + strconv.Itoa(i) + " of " + c.name + "\n")
		}
		t.say(i%2 == 0, func(more int) []byte { return genText(line, more) })
	}
	t.finish()
}

// genText is start and more letters behind it.
func genText(start []byte, more int) []byte {
	const letters = "the quick brown fox jumps over the lazy dog "
	text := append([]byte(nil), start...)
	for i := range more {
		text = append(text, letters[i%len(letters)])
	}
	return text
}

// syslog is a few one-way messages (RFC 5424).
func (b *genBuilder) syslog(c *genConv) {
	c.port[1] = 514
	for i := range 4 {
		line := fmt.Appendf(nil, "<134>1 2024-05-01T12:00:%02dZ %s app %d - - ", i, c.name, 1000+c.n)
		more := b.grow(c.head(8), len(line)) - len(line)
		b.udp(c, true, genText(line, more))
	}
}

// ping is three echo requests with their replies (RFC 792, RFC 4443).
func (b *genBuilder) ping(c *genConv) {
	kinds, proto := [2]byte{8, 0}, byte(genICMP)
	if c.v6 {
		kinds, proto = [2]byte{128, 129}, genICMP6
	}
	for seq := range 3 {
		n := b.grow(c.head(8), 10+46*(seq%2))
		data := genText(nil, n)
		for from, kind := range kinds {
			m := append([]byte{kind, 0, 0, 0, byte(c.n >> 8), byte(c.n), 0, byte(seq + 1)}, data...)
			sum := ^genSum(0, m)
			if c.v6 {
				sum = genTransportSum(c.ip[from], c.ip[1-from], proto, m)
			}
			binary.BigEndian.PutUint16(m[2:], sum)
			b.emit(b.frame(c, from == 0, proto, m))
		}
	}
}

// arp is a host that announces itself, asks for its router, and answers the
// router's own question (RFC 826).
func (b *genBuilder) arp(c *genConv) {
	broadcast := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	router := []byte{10, 1, 0, 1}
	for _, m := range []struct {
		op       byte
		dst, tha [6]byte
		tpa      []byte
	}{
		{1, broadcast, [6]byte{}, c.ip[0]},
		{1, broadcast, [6]byte{}, router},
		{2, b.dst, b.dst, router},
	} {
		p := append([]byte{0, 1, 8, 0, 6, 4, 0, m.op}, c.mac[0][:]...)
		p = append(append(append(p, c.ip[0]...), m.tha[:]...), m.tpa...)
		b.emit(genEthernet(m.dst, c.mac[0], c.tags, 0x0806, p))
	}
}

// neighbour is the same in IPv6: a solicitation for the router and the answer to
// the router's own (RFC 4861).
func (b *genBuilder) neighbour(c *genConv) {
	router := []byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	group := []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1}
	for _, m := range []struct {
		kind   byte
		flags  byte
		dst    [6]byte
		to     []byte
		target []byte
		option byte
	}{
		{135, 0, [6]byte{0x33, 0x33, 0xff, 0, 0, 1}, group, router, 1},
		{136, 0x60, b.dst, router, c.ip[0], 2},
	} {
		p := append([]byte{m.kind, 0, 0, 0, m.flags, 0, 0, 0}, m.target...)
		p = append(append(p, m.option, 1), c.mac[0][:]...)
		binary.BigEndian.PutUint16(p[2:], genTransportSum(c.ip[0], m.to, genICMP6, p))
		b.emit(genEthernet(m.dst, c.mac[0], c.tags, 0x86dd, genIPv6(c.ip[0], m.to, genICMP6, 255, p)))
	}
}

// lldp is one neighbour announcement of a switch (IEEE 802.1AB).
func (b *genBuilder) lldp(c *genConv) {
	tlv := func(p []byte, kind int, value ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(p, uint16(kind<<9|len(value))), value...)
	}
	p := tlv(nil, 1, append([]byte{4}, c.mac[1][:]...)...)
	p = tlv(p, 2, append([]byte{5}, "p"+strconv.Itoa(c.n%48)...)...)
	p = tlv(p, 3, 0, 120)
	if !b.short() {
		p = tlv(p, 5, []byte("switch-"+c.name)...)
	}
	b.emit(genEthernet([6]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, c.mac[1], c.tags, 0x88cc, tlv(p, 0)))
}

// fragments is two UDP datagrams, each in three IPv4 fragments (RFC 791).
func (b *genBuilder) fragments(c *genConv) {
	c.port[1] = 9900
	for i := range 2 {
		size := b.sizes[min(i, len(b.sizes)-1)]
		part := (size - c.head(0)) &^ 7
		last := b.grow(c.head(0), 20)
		s := genUDPSegment(c.ip[0], c.ip[1], c.port[0], c.port[1], genText([]byte(c.name+" "), 2*part+last-8-len(c.name)-1))
		for at := 0; at < len(s); at += part {
			end, flags := min(at+part, len(s)), uint16(at/8)
			if at/part < 2 {
				flags |= genMoreFragment
			} else {
				end = len(s)
			}
			packet := genIPv4(c.ip[0], c.ip[1], genUDP, c.id[0], flags, s[at:end])
			b.emit(genEthernet(b.dst, c.mac[0], c.tags, 0x0800, packet))
			if end == len(s) {
				break
			}
		}
		c.id[0]++
	}
}

// dns is a question for the address and its answer (RFC 1035).
func (b *genBuilder) dns(c *genConv) {
	c.port[1] = 53
	id := uint16(b.rand.next())
	kind, address := uint16(1), []byte{192, 0, 2, byte(1 + c.n%250)}
	if c.n%3 == 0 {
		kind, address = 28, []byte{0x20, 1, 0xd, 0xb8, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(c.n)}
	}
	for i, answer := range [][]byte{nil, address} {
		natural := len(genDNS(id, c.name, kind, answer, 0))
		more := b.grow(c.head(8), natural) - natural
		b.udp(c, i == 0, genDNS(id, c.name, kind, answer, more))
	}
}

// genDNS is a query, or the response where there is an answer. It is grown with
// EDNS padding (RFC 7830), which takes 4 bytes at least.
func genDNS(id uint16, name string, kind uint16, answer []byte, more int) []byte {
	be := binary.BigEndian
	flags, answers := uint16(0x0100), uint16(0)
	if answer != nil {
		flags, answers = 0x8180, 1
	}
	m := be.AppendUint16(be.AppendUint16(nil, id), flags)
	m = be.AppendUint16(be.AppendUint16(m, 1), answers)
	m = be.AppendUint16(be.AppendUint16(m, 0), 1)
	start := len(m)
	m = append(m, 0)
	for i := 0; i < len(name); i++ {
		if name[i] == '.' {
			m[start] = byte(len(m) - start - 1)
			start = len(m)
			m = append(m, 0)
			continue
		}
		m = append(m, name[i])
	}
	m[start] = byte(len(m) - start - 1)
	m = be.AppendUint16(append(m, 0), kind)
	m = be.AppendUint16(m, 1)
	if answer != nil {
		m = be.AppendUint16(append(m, 0xc0, 12), kind)
		m = be.AppendUint16(m, 1)
		m = be.AppendUint32(m, 300)
		m = append(be.AppendUint16(m, uint16(len(answer))), answer...)
	}
	m = append(m, 0, 0, 41, 0x10, 0, 0, 0, 0, 0)
	if more < 4 {
		return append(m, 0, 0)
	}
	m = be.AppendUint16(m, uint16(more))
	m = be.AppendUint16(be.AppendUint16(m, 12), uint16(more-4))
	return append(m, make([]byte, more-4)...)
}

// http is one or two requests over one connection (RFC 9112).
func (b *genBuilder) http(c *genConv) {
	t := b.connect(c, 80)
	for i := range 1 + b.rand.below(2) {
		body := b.length(40, 2400)
		path := "/" + genWords[(c.n+i)%len(genWords)]
		t.say(true, func(more int) []byte { return genRequest(path, c.name, b.short(), more) })
		t.say(false, func(more int) []byte { return genResponse(body, b.short(), more) })
	}
	t.finish()
}

// genRequest is a GET whose path is longer by more letters.
func genRequest(path, host string, short bool, more int) []byte {
	if more > 0 {
		path += "?q=x"[:min(more, 3)]
		more -= min(more, 3)
	}
	for ; more > 0; more-- {
		path += string(rune('a' + more%26))
	}
	m := "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	if !short {
		m += "User-Agent: gen/1.0\r\nAccept: */*\r\n"
	}
	return []byte(m + "\r\n")
}

// genResponse is an answer with a body of about that length. The total grows by
// exactly more: what the digits of the length take comes out of the body.
func genResponse(body int, short bool, more int) []byte {
	head := func(n int, tag string) string {
		h := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(n) + "\r\n"
		if !short {
			h += "Content-Type: text/plain\r\nETag: \"" + tag + "\"\r\n"
		}
		return h + "\r\n"
	}
	target := len(head(body, "")) + body + more
	n := body + more
	for n > 0 && len(head(n, ""))+n > target {
		n--
	}
	tag := ""
	for !short && len(head(n, tag))+n < target {
		tag += "0"
	}
	return genText([]byte(head(n, tag)), n)
}

// tls is a TLS 1.3 connection as it looks from outside (RFC 8446): the hellos
// are real, all that is encrypted is random.
func (b *genBuilder) tls(c *genConv) {
	t := b.connect(c, 443)
	random, key := b.rand.bytes(64), b.rand.bytes(32)
	flight := b.length(400, 1900)
	t.say(true, func(more int) []byte { return genClientHello(random, key, c.name, b.short(), more) })
	t.say(false, func(more int) []byte {
		m := append(genServerHello(random, key), 20, 3, 3, 0, 1, 1)
		return b.sealed(m, flight+more)
	})
	t.say(true, func(more int) []byte { return b.sealed([]byte{20, 3, 3, 0, 1, 1}, 53+more) })
	for range 1 + b.rand.below(2) {
		request, response := b.length(80, 400), b.length(100, 2400)
		t.say(true, func(more int) []byte { return b.sealed(nil, request+more) })
		t.say(false, func(more int) []byte { return b.sealed(nil, response+more) })
	}
	t.say(true, func(more int) []byte { return b.sealed(nil, 19+more) })
	t.finish()
}

// sealed appends a record of application data with n bytes of cipher text.
func (b *genBuilder) sealed(m []byte, n int) []byte {
	m = append(m, 23, 3, 3, byte(n>>8), byte(n))
	return append(m, b.rand.bytes(n)...)
}

// genHandshake wraps a handshake message into its own header and a record.
func genHandshake(kind byte, body []byte) []byte {
	m := []byte{22, 3, 1, 0, 0, kind, 0, byte(len(body) >> 8), byte(len(body))}
	binary.BigEndian.PutUint16(m[3:], uint16(len(body)+4))
	return append(m, body...)
}

// genExtension appends one TLS extension.
func genExtension(list []byte, kind uint16, value ...byte) []byte {
	list = binary.BigEndian.AppendUint16(list, kind)
	list = binary.BigEndian.AppendUint16(list, uint16(len(value)))
	return append(list, value...)
}

// genClientHello offers name as the server name. It is grown with the padding
// extension (RFC 7685), which takes 4 bytes at least.
func genClientHello(random, key []byte, name string, short bool, more int) []byte {
	be := binary.BigEndian
	m := append([]byte{3, 3}, random[:32]...)
	sni := be.AppendUint16(nil, uint16(len(name)+3))
	sni = append(be.AppendUint16(append(sni, 0), uint16(len(name))), name...)
	list := genExtension(nil, 0, sni...)
	list = genExtension(list, 43, 2, 3, 4)
	if short {
		m = append(m, 0, 0, 2, 0x13, 1, 1, 0)
	} else {
		m = append(append(m, 32), random[32:64]...)
		m = append(m, 0, 10, 0x13, 1, 0x13, 2, 0x13, 3, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0)
		list = genExtension(list, 10, 0, 4, 0, 29, 0, 23)
		list = genExtension(list, 13, 0, 6, 4, 3, 8, 4, 4, 1)
		list = genExtension(list, 16, append([]byte{0, 12, 2, 'h', '2', 8}, "http/1.1"...)...)
		list = genExtension(list, 51, append([]byte{0, 36, 0, 29, 0, 32}, key...)...)
	}
	if more >= 4 {
		list = genExtension(list, 21, make([]byte, more-4)...)
	}
	return genHandshake(1, append(be.AppendUint16(m, uint16(len(list))), list...))
}

// genServerHello answers with TLS 1.3 and echoes the session id.
func genServerHello(random, key []byte) []byte {
	m := append([]byte{3, 3}, random[32:64]...)
	m = append(append(m, 32), random[32:64]...)
	m = append(m, 0x13, 1, 0)
	list := genExtension(nil, 43, 3, 4)
	list = genExtension(list, 51, append([]byte{0, 29, 0, 32}, key...)...)
	return genHandshake(2, append(binary.BigEndian.AppendUint16(m, uint16(len(list))), list...))
}
