package main

// protocols.go owns what is read of application protocols without gopacket:
// which protocol a payload is, the server name of a TLS ClientHello, method and
// host of an HTTP/1 request, the shape of a QUIC header, SCTP chunks, and the
// checks that a message must pass before gopacket may see it.
// It keeps no state and does not count (inspect.go does).
// Standards: RFC 8446 and 6066 (TLS), 9112 (HTTP/1.1), 8999 and 9369 (QUIC),
// 1035 (DNS), 2131 and 8415 (DHCP), 4861 (neighbour discovery), 9260 (SCTP).

import (
	"bytes"
	"encoding/binary"
)

// Protocols above layer 4, known by content or port.
const (
	protoDNS protocolID = protoHeaders + iota
	protoMDNS
	protoLLMNR
	protoNBNS
	protoNBDGM
	protoNBSS
	protoTLS
	protoDTLS
	protoHTTP
	protoQUIC
	protoSSH
	protoBGP
	protoDHCP
	protoDHCPv6
	protoNTP
	protoSNMP
	protoSyslog
	protoTFTP
	protoISAKMP
	protoESPinUDP
	protoSSDP
	protoSIP
	protoSTUN
	protoRADIUS
	protoRIP
	protoLDP
	protoTDP
	protoHSRP
	protoGTP
	protoBFD
	protoWireGuard
	protoBabel
	protoNetFlow
	protoSFlow
	protoSMTP
	protoFTP
	protoTelnet
	protoPOP
	protoIMAP
	protoLDAP
	protoRDP
	protoMySQL
	protoPgSQL
	protoMQTT
	protoModbus
	protoCount
)

var applicationNames = [protoCount - protoHeaders]string{
	"dns", "mdns", "llmnr", "nbns", "nbdgm", "nbss", "tls", "dtls", "http", "quic", "ssh",
	"bgp", "dhcp", "dhcpv6", "ntp", "snmp", "syslog", "tftp", "isakmp", "udpencap",
	"ssdp", "sip", "stun", "radius", "rip", "ldp", "tdp", "hsrp", "gtp", "bfd", "wg",
	"babel", "cflow", "sflow", "smtp", "ftp", "telnet", "pop", "imap", "ldap", "rdp",
	"mysql", "pgsql", "mqtt", "modbus",
}

func (id protocolID) String() string {
	switch {
	case id < protoHeaders:
		return headerNames[id]
	case id < protoCount:
		return applicationNames[id-protoHeaders]
	}
	return "unknown"
}

// readState is the outcome of reading something that may continue in a later
// segment.
type readState uint8

const (
	notThis readState = iota // is something else, or broken
	needMore
	complete
)

const (
	maxHostName    = 255
	maxRecords     = 16 // TLS records looked at in one piece
	maxRecordBody  = 1<<14 + 2048
	maxDNSRecords  = 256 // all sections together
	maxDNSNames    = 64  // questions
	maxDNSJumps    = 32  // compression pointers in one name
	maxOptions     = 128 // options of DHCP and neighbour discovery
	maxChunks      = 16  // SCTP chunks in a packet
	maxRequests    = 16  // pipelined HTTP requests in a segment
	maxRequestLine = 4096
)

// portProtocol ties a port, in either direction, to a protocol.
type portProtocol struct {
	port uint16
	id   protocolID
}

var udpPorts = []portProtocol{
	{53, protoDNS}, {67, protoDHCP}, {68, protoDHCP}, {69, protoTFTP}, {123, protoNTP},
	{137, protoNBNS}, {138, protoNBDGM}, {161, protoSNMP}, {162, protoSNMP},
	{319, protoPTP}, {320, protoPTP}, {500, protoISAKMP}, {514, protoSyslog},
	{520, protoRIP}, {546, protoDHCPv6}, {547, protoDHCPv6}, {646, protoLDP},
	{711, protoTDP}, {1812, protoRADIUS}, {1813, protoRADIUS}, {1900, protoSSDP},
	{1985, protoHSRP}, {2055, protoNetFlow}, {2123, protoGTP}, {2152, protoGTP},
	{3784, protoBFD}, {4500, protoESPinUDP}, {4739, protoNetFlow}, {4791, protoInfiniBand},
	{5353, protoMDNS}, {5355, protoLLMNR}, {6343, protoSFlow}, {6696, protoBabel},
	{51820, protoWireGuard},
}

var tcpPorts = []portProtocol{
	{21, protoFTP}, {22, protoSSH}, {23, protoTelnet}, {25, protoSMTP}, {53, protoDNS},
	{110, protoPOP}, {139, protoNBSS}, {143, protoIMAP}, {179, protoBGP}, {389, protoLDAP},
	{445, protoNBSS}, {502, protoModbus}, {587, protoSMTP}, {646, protoLDP},
	{711, protoTDP}, {1883, protoMQTT}, {3306, protoMySQL}, {3389, protoRDP},
	{5432, protoPgSQL},
}

// portTable is a direct lookup, one byte a port.
type portTable [1 << 16]protocolID

var udpTable, tcpTable = newPortTable(udpPorts), newPortTable(tcpPorts)

func newPortTable(list []portProtocol) *portTable {
	t := new(portTable)
	for _, e := range list {
		t[e.port] = e.id
	}
	return t
}

// lookup prefers the destination's port: that is where a client knocks.
func (t *portTable) lookup(sport, dport uint16) protocolID {
	if id := t[dport]; id != protoNone {
		return id
	}
	return t[sport]
}

// udpProtocol names the protocol of a datagram by its content, else its ports.
func udpProtocol(sport, dport uint16, b []byte) protocolID {
	if id := udpTable.lookup(sport, dport); id != protoNone {
		return id
	}
	switch {
	case quicInitial(b):
		return protoQUIC
	case len(b) >= 20 && b[0]&0xc0 == 0 && binary.BigEndian.Uint32(b[4:]) == 0x2112a442:
		return protoSTUN
	case len(b) >= 13 && b[0] >= 20 && b[0] <= 25 && b[1] == 0xfe && b[2] >= 0xfc:
		return protoDTLS
	case sport == 5060 || dport == 5060:
		if bytes.Contains(b[:min(len(b), 256)], []byte("SIP/2.0")) {
			return protoSIP
		}
	}
	return protoNone
}

// quicInitial recognises a long header of type Initial: fixed bit, a known
// version, connection IDs of at most 20 bytes. RFC 9000 section 17.2, RFC 9369
// (version 2 has other type bits), drafts ff0000xx, Google's Q043 to Q099.
func quicInitial(b []byte) bool {
	if len(b) < 7 || b[0]&0x80 == 0 {
		return false
	}
	version := binary.BigEndian.Uint32(b[1:])
	kind := b[0] >> 4 & 3
	switch {
	case version == 1 || version>>8 == 0xff0000:
		if b[0]&0x40 == 0 || kind != 0 {
			return false
		}
	case version == 0x6b3343cf:
		if b[0]&0x40 == 0 || kind != 1 {
			return false
		}
	case version>>16 == 0x5130 && version>>8&0xff >= '3': // Q03x to Q09x
		return true
	default:
		return false
	}
	dst := int(b[5])
	if dst > 20 || 6+dst >= len(b) {
		return false
	}
	src := int(b[6+dst])
	return src <= 20 && 7+dst+src <= len(b)
}

// tlsRecord says whether b starts with a TLS record header: content type 20 to
// 24, version 3.x, a legal length.
func tlsRecord(b []byte) bool {
	return len(b) >= 5 && b[0] >= 20 && b[0] <= 24 && b[1] == 3 && b[2] <= 4 &&
		int(binary.BigEndian.Uint16(b[3:])) <= maxRecordBody
}

// tlsWhole says whether b is a run of whole records with sensible bodies, at
// most maxRecords: only then gopacket may see it.
func tlsWhole(b []byte) bool {
	for range maxRecords {
		if !tlsRecord(b) {
			return false
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		switch kind := b[0]; {
		case len(b) < 5+n, kind == 24:
			return false
		case kind == 20 && n != 1, kind == 21 && n < 2:
			return false
		}
		b = b[5+n:]
		if len(b) == 0 {
			return true
		}
	}
	return false
}

// changeCipherSpec is the length of the record that TLS 1.3 clients send for old
// middleboxes before their second ClientHello (RFC 8446, D.4), or 0.
func changeCipherSpec(b []byte) int {
	if len(b) >= 6 && b[0] == 20 && b[1] == 3 && string(b[3:6]) == "\x00\x01\x01" {
		return 6
	}
	return 0
}

// clientHelloStart says whether b, the start of what a peer sends, may be a
// ClientHello. Fewer than 6 bytes leave it open.
func clientHelloStart(b []byte) bool {
	const pattern = "\x16\x03"
	if len(b) < 2 {
		return len(b) == 1 && b[0] == 0x16
	}
	if string(b[:2]) != pattern {
		return false
	}
	return (len(b) < 3 || b[2] <= 4) && (len(b) < 6 || b[5] == 1)
}

// clientHello reads the server name of a ClientHello that starts at b[0]; it may
// be cut into several records and b may hold only its beginning. scratch takes
// the message when it is spread over records. The name points into b or scratch
// and is empty where the client sends none.
func clientHello(b, scratch []byte) (name []byte, v readState) {
	if !clientHelloStart(b) {
		return nil, notThis
	}
	msg, v := handshakeBytes(b, scratch)
	if v == notThis {
		return nil, notThis
	}
	if len(msg) < 4 {
		return nil, v
	}
	size := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
	if msg[0] != 1 || size > 1<<16 {
		return nil, notThis
	}
	if len(msg) >= size {
		msg = msg[:size:size]
		v = complete
	} else if v == complete {
		v = needMore
	}
	name, found, ok := serverName(msg, v == complete)
	switch {
	case found:
		return name, complete
	case !ok && v == complete:
		return nil, notThis
	}
	return nil, v
}

// handshakeBytes joins the bodies of the handshake records at the front of b.
// The state is complete if b ends with a record's end.
func handshakeBytes(b, scratch []byte) ([]byte, readState) {
	n := 0
	for i := range maxRecords {
		if len(b) < 5 {
			return scratch[:n], needMore
		}
		if !tlsRecord(b) || b[0] != 22 {
			if i == 0 {
				return nil, notThis
			}
			return scratch[:n], complete
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		if i == 0 && len(b) < 5+size {
			return b[5:], needMore
		}
		if i == 0 && size >= 4 && 4+(int(b[6])<<16|int(b[7])<<8|int(b[8])) <= size {
			return b[5 : 5+size], complete // the usual case: nothing to join
		}
		body := b[5:min(len(b), 5+size)]
		n += copy(scratch[n:], body)
		if len(body) < size || n == len(scratch) {
			return scratch[:n], needMore
		}
		b = b[5+size:]
		if len(b) == 0 {
			return scratch[:n], complete
		}
	}
	return scratch[:n], complete
}

// serverName walks a ClientHello to its server_name extension. ok is false where
// a length field leads out of the message; whole says that the message is all
// there, else running out of bytes is no fault.
func serverName(m []byte, whole bool) (name []byte, found, ok bool) {
	rest, ok := skip(m, 4+2+32) // header, version, random
	for _, width := range [...]int{1, 2, 1} {
		// session ID, cipher suites, compression methods
		if ok {
			rest, ok = skipVector(rest, width)
		}
	}
	if !ok {
		return nil, false, !whole
	}
	if len(rest) < 2 {
		return nil, false, len(rest) == 0 || !whole
	}
	rest = rest[2:]
	for len(rest) >= 4 {
		kind, n := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+n {
			return nil, false, !whole
		}
		if kind == 0 {
			return hostEntry(rest[4 : 4+n : 4+n])
		}
		rest = rest[4+n:]
	}
	return nil, false, len(rest) == 0 || !whole
}

// hostEntry returns the first host_name of a server_name extension, RFC 6066.
func hostEntry(x []byte) (name []byte, found, ok bool) {
	if len(x) < 5 || x[2] != 0 {
		return nil, true, true
	}
	n := int(binary.BigEndian.Uint16(x[3:]))
	if n > len(x)-5 || n > maxHostName {
		return nil, false, false
	}
	return x[5 : 5+n : 5+n], true, true
}

func skip(b []byte, n int) ([]byte, bool) {
	if len(b) < n {
		return nil, false
	}
	return b[n:], true
}

// skipVector skips a vector with a length field of 1 or 2 bytes.
func skipVector(b []byte, width int) ([]byte, bool) {
	if len(b) < width {
		return nil, false
	}
	n := int(b[0])
	if width == 2 {
		n = int(binary.BigEndian.Uint16(b))
	}
	return skip(b, width+n)
}

var httpMethods = [...]string{
	"GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "CONNECT ", "PATCH ",
	"TRACE ", "PROPFIND ", "REPORT ", "MKCOL ",
}

// httpStart says whether b begins, or may begin, an HTTP/1 request.
func httpStart(b []byte) bool {
	for _, m := range httpMethods {
		if n := min(len(b), len(m)); n != 0 && string(b[:n]) == m[:n] {
			return true
		}
	}
	return false
}

// httpResponse says whether b begins with an HTTP/1 status line.
func httpResponse(b []byte) bool {
	return len(b) >= 12 && string(b[:7]) == "HTTP/1." && b[8] == ' ' && b[9] >= '1' && b[9] <= '5'
}

// httpRequest reads Host of the request at b[0]. size is the length
// of the head when it is all there. The host points into b.
func httpRequest(b []byte) (host []byte, size int, v readState) {
	if !httpStart(b) {
		return nil, 0, notThis
	}
	line := bytes.IndexByte(b[:min(len(b), maxRequestLine)], '\n')
	if line < 0 {
		if len(b) >= maxRequestLine {
			return nil, 0, notThis
		}
		return nil, 0, needMore
	}
	first := bytes.TrimSuffix(b[:line], []byte("\r"))
	if at := bytes.LastIndex(first, []byte(" HTTP/1.")); at < 0 || at+9 != len(first) {
		return nil, 0, notThis
	}
	return httpHead(b, line+1)
}

// httpHead reads header lines from at on until the empty one.
func httpHead(b []byte, at int) (host []byte, size int, v readState) {
	for at < len(b) {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			break
		}
		line := bytes.TrimSuffix(b[at:at+n], []byte("\r"))
		at += n + 1
		if len(line) == 0 {
			return host, at, complete
		}
		if host == nil && len(line) > 5 && line[4] == ':' && bytes.EqualFold(line[:4], []byte("host")) {
			host = bytes.TrimSpace(line[5:])
			host = host[:min(len(host), maxHostName)]
		}
	}
	return host, 0, needMore
}

// sctpData returns the user data of the next DATA chunk and what follows it.
// Chunks are padded to 4 bytes. ok is false when there is none.
func sctpData(b []byte) (data, rest []byte, ok bool) {
	for range maxChunks {
		if len(b) < 4 {
			return nil, nil, false
		}
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) {
			return nil, nil, false
		}
		chunk := b[:n:n]
		b = b[min(len(b), (n+3)&^3):]
		if chunk[0] == 0 && n >= 16 {
			return chunk[16:], b, true
		}
	}
	return nil, nil, false
}

// sshBanner, bgpMarker: content that names the protocol on any port.
func sshBanner(b []byte) bool { return len(b) >= 4 && string(b[:4]) == "SSH-" }

func bgpMarker(b []byte) bool {
	return len(b) >= 19 && binary.BigEndian.Uint64(b) == ^uint64(0) &&
		binary.BigEndian.Uint64(b[8:]) == ^uint64(0) && b[18] >= 1 && b[18] <= 5
}

// dnsWalk is what checkDNS found.
type dnsWalk struct {
	questions int
	prefix    int // bytes of header and question section
	rcode     uint8
}

// checkDNS walks a whole message: every name, record and length, with bounds on
// records, pointers and name lengths. Pointers must lead backwards, so a name
// ends. needMore means that the message ends too early but is sound so far.
func checkDNS(b []byte) (w dnsWalk, v readState) {
	if len(b) < 12 {
		return w, needMore
	}
	w.rcode = b[3] & 15
	w.questions = int(binary.BigEndian.Uint16(b[4:]))
	records := 0
	for at := 6; at < 12; at += 2 {
		records += int(binary.BigEndian.Uint16(b[at:]))
	}
	if w.questions > maxDNSNames || records > maxDNSRecords {
		return w, notThis
	}
	at := 12
	for range w.questions {
		if at, v = dnsName(b, at); v != complete {
			return w, v
		}
		if at += 4; at > len(b) {
			return w, needMore
		}
	}
	w.prefix = at
	for range records {
		if at, v = dnsName(b, at); v != complete {
			return w, v
		}
		if at+10 > len(b) {
			return w, needMore
		}
		if at += 10 + int(binary.BigEndian.Uint16(b[at+8:])); at > len(b) {
			return w, needMore
		}
	}
	return w, complete
}

// dnsName returns the offset behind the name at off.
func dnsName(b []byte, off int) (next int, v readState) {
	at, size, jumps, limit := off, 0, 0, off
	for at < len(b) {
		n := int(b[at])
		switch n & 0xc0 {
		case 0:
			if n == 0 {
				if jumps == 0 {
					next = at + 1
				}
				return next, complete
			}
			if size += n + 1; size > 254 {
				return 0, notThis
			}
			at += n + 1
		case 0xc0:
			if at+2 > len(b) {
				return 0, needMore
			}
			if jumps == 0 {
				next = at + 2
			}
			to := int(binary.BigEndian.Uint16(b[at:]) & 0x3fff)
			if jumps++; to >= limit || to < 12 || jumps > maxDNSJumps {
				return 0, notThis
			}
			at, limit = to, to
		default:
			return 0, notThis
		}
	}
	return 0, needMore
}

// checkARP says whether gopacket can read the message: its length sum must fit
// a byte there.
func checkARP(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	n := 8 + 2*int(b[4]) + 2*int(b[5])
	return n <= 255 && n <= len(b)
}

// checkDHCPv4 checks the fixed part, the cookie and every option's length.
// Padding counts as an option: gopacket keeps each.
func checkDHCPv4(b []byte) readState {
	if len(b) < 240 {
		return needMore
	}
	if b[2] > 16 || binary.BigEndian.Uint32(b[236:]) != 0x63825363 {
		return notThis
	}
	b = b[240:]
	for range maxOptions {
		switch {
		case len(b) == 0 || b[0] == 255:
			return complete
		case b[0] == 0:
			b = b[1:]
		case len(b) < 2 || len(b) < 2+int(b[1]):
			return needMore
		default:
			b = b[2+int(b[1]):]
		}
	}
	return notThis
}

// checkDHCPv6 checks every option's length. A length of 0xfffc and more would
// wrap in gopacket; it cannot fit a datagram anyway.
func checkDHCPv6(b []byte) readState {
	if len(b) < 4 {
		return needMore
	}
	at := 4
	if b[0] == 12 || b[0] == 13 { // relay messages
		at = 34
	}
	for options := 0; at < len(b); options++ {
		if options == maxOptions {
			return notThis
		}
		if len(b)-at < 4 {
			return needMore
		}
		at += 4 + int(binary.BigEndian.Uint16(b[at+2:]))
	}
	if at > len(b) {
		return needMore
	}
	return complete
}

// checkND checks the options of neighbour discovery message b, ICMPv6 header
// included; fixed is the length before the options.
func checkND(b []byte, fixed int) readState {
	if len(b) < fixed {
		return needMore
	}
	b = b[fixed:]
	for range maxOptions {
		if len(b) == 0 {
			return complete
		}
		if len(b) < 2 {
			return needMore
		}
		n := int(b[1]) * 8
		if n == 0 {
			return notThis
		}
		if n > len(b) {
			return needMore
		}
		b = b[n:]
	}
	return notThis
}
