package main

// inspect.go owns inspection: what is done with each received frame, the calls
// into gopacket, and the protocol events. It does not own how results are added
// up and shown (summary.go), the header parser (parse.go), the readers of
// application protocols (protocols.go), the flow table (flows.go) nor files
// (capture.go).
//
// Of gopacket only the decoders in layerKind are used, one layer a call, into
// structs made once. A message reaches them only after a check of our own has
// walked it, because they read past short input, loop on lengths and allocate
// by counts they were sent. Each call is recovered and counted all the same.
//
// One inspector belongs to one receive queue and its goroutine; nothing is
// shared, locked or allocated per packet. Its summary is taken when that has ended.

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// layerKind is the white list of gopacket decoders.
type layerKind uint8

const (
	layerARP layerKind = iota
	layerDNS
	layerDHCPv4
	layerDHCPv6
	layerNeighborSolicitation
	layerNeighborAdvertisement
	layerRouterSolicitation
	layerRouterAdvertisement
	layerNTP
	layerTLS
	layerCount
)

var layerNames = [layerCount]string{
	"arp", "dns", "dhcp", "dhcpv6", "icmpv6_ns", "icmpv6_na", "icmpv6_rs", "icmpv6_ra",
	"ntp", "tls",
}

// event is something a protocol said that is worth a counter.
type event uint8

const (
	eventARPRequest event = iota
	eventARPReply
	eventDNSQuery
	eventDNSResponse
	eventDNSNXDomain
	eventDNSServFail
	eventTLSHello
	eventTLSAlert
	eventQUICInitial
	eventHTTPRequest
	eventHTTPResponse
	eventDHCPRequest
	eventDHCPReply
	eventDHCPv6
	eventNeighbour
	eventRouter
	eventNTPClient
	eventNTPServer
	eventTCPSyn
	eventTCPReset
	eventFragment
	eventNoLength
	eventTunnel
	eventCount
)

var eventNames = [eventCount]string{
	"arp_request", "arp_reply", "dns_query", "dns_response", "dns_nxdomain",
	"dns_servfail", "tls_client_hello", "tls_alert", "quic_initial", "http_request",
	"http_response", "dhcp_request", "dhcp_reply", "dhcpv6_message",
	"neighbour_discovery", "router_discovery", "ntp_client", "ntp_server", "tcp_syn",
	"tcp_reset", "ip_fragment", "ip_length_zero", "tunnel",
}

// decoders are gopacket's layers, made once. What they hold after a call points
// into the frame and is valid only during it.
type decoders struct {
	arp    layers.ARP
	dns    layers.DNS
	dhcp   layers.DHCPv4
	dhcpv6 layers.DHCPv6
	ns     layers.ICMPv6NeighborSolicitation
	na     layers.ICMPv6NeighborAdvertisement
	rs     layers.ICMPv6RouterSolicitation
	ra     layers.ICMPv6RouterAdvertisement
	ntp    layers.NTP
	tls    layers.TLS
}

// inspector is the inspection of one receive queue.
type inspector struct {
	packets   uint64
	bytes     uint64 // captured, with a VLAN tag that the NIC removed
	wireBytes uint64
	first     int64
	last      int64
	protocols [maxProtocols]uint64
	reasons   [reasonCount]uint64
	malformed [layerCount]uint64
	truncated [layerCount]uint64
	panics    [layerCount]uint64
	events    [eventCount]uint64

	p       parsed
	flows   *flowTable
	names   [nameKinds]nameTable
	dec     decoders
	scratch [streamBytes]byte       // a ClientHello that lies in several records
	dnsBuf  [maxDNSNames * 260]byte // header and questions for gopacket
}

// inspectConfig holds what can be chosen.
type inspectConfig struct {
	flows int // size of the flow table, 0 for the default
}

// newInspector takes all memory that inspection of one queue will ever use:
// about 14 MB with the default flow table.
func newInspector(c inspectConfig) *inspector {
	w := &inspector{flows: newFlowTable(c.flows)}
	for i := range w.names {
		w.names[i].seed = rand.Uint64()
	}
	d := &w.dec
	d.dns.Questions = make([]layers.DNSQuestion, 0, maxDNSNames)
	d.dhcp.Options = make(layers.DHCPOptions, 0, maxOptions)
	d.dhcpv6.Options = make(layers.DHCPv6Options, 0, maxOptions)
	d.ns.Options = make(layers.ICMPv6Options, 0, maxOptions)
	d.na.Options = make(layers.ICMPv6Options, 0, maxOptions)
	d.rs.Options = make(layers.ICMPv6Options, 0, maxOptions)
	d.ra.Options = make(layers.ICMPv6Options, 0, maxOptions)
	d.tls.Handshake = make([]layers.TLSHandshakeRecord, 0, maxRecords)
	d.tls.AppData = make([]layers.TLSAppDataRecord, 0, maxRecords)
	d.tls.Alert = make([]layers.TLSAlertRecord, 0, maxRecords)
	d.tls.ChangeCipherSpec = make([]layers.TLSChangeCipherSpecRecord, 0, maxRecords)
	return w
}

// packet inspects one frame. b is valid during the call only; wireLen is its
// length before the capture cut it, without a tag that the NIC removed.
func (w *inspector) packet(b []byte, wireLen int, meta packetMeta) {
	b = b[:len(b):len(b)]
	wireLen = max(wireLen, len(b))
	p := &w.p
	parseFrame(p, b, wireLen, &meta)
	if meta.stripped {
		wireLen += 4
		w.bytes += 4
	}
	if w.packets == 0 || meta.ts < w.first {
		w.first = meta.ts
	}
	w.last = max(w.last, meta.ts)
	w.packets++
	w.bytes += uint64(len(b))
	w.wireBytes += uint64(wireLen)
	w.layer3(b, wireLen, meta.ts)
	p.protos.addTo(&w.protocols)
	if p.reason != reasonNone {
		w.reasons[p.reason]++
	}
}

// layer3 finds the flow and reads the application protocol.
func (w *inspector) layer3(b []byte, wireLen int, ts int64) {
	p := &w.p
	if p.tunnel != tunnelNone {
		w.events[eventTunnel]++
	}
	h := p.best()
	if h.flags&flagNoLength != 0 {
		w.events[eventNoLength]++
	}
	if h.flags&(flagFragFirst|flagFragLater) != 0 {
		w.events[eventFragment]++
	}
	if h.l4off == 0 {
		return
	}
	if h.l3 == l3ARP {
		w.arp(b[h.l4off:])
		return
	}
	if h.flags&(flagPorts|flagFragLater) == 0 && hasPorts(h.proto) {
		return // the reason is counted; without ports it belongs to no flow
	}
	f, dir := w.flows.find(p, h, ts)
	f.account(dir, wireLen, ts)
	if h.flags&flagFragLater != 0 {
		return
	}
	w.application(b, h, f, dir)
}

func (w *inspector) application(b []byte, h *ipHeaders, f *flow, dir int) {
	p := &w.p
	if q := &p.hdr[levelQuoted]; q.flags&flagPayload != 0 && q.proto == ipUDP && q.end-q.payload >= 12 {
		if id := udpTable.lookup(q.sport, q.dport); id != protoNone {
			p.protos.add(id)
		}
	}
	if h.flags&flagPayload == 0 {
		return
	}
	data := b[h.payload:h.end:h.end]
	whole := h.flags&(flagFragFirst|flagCut) == 0
	switch h.proto {
	case ipTCP:
		w.tcp(f, dir, h, data)
	case ipUDP:
		if len(data) != 0 {
			w.udp(f, h, data, whole)
		}
	case ipICMPv6:
		w.neighbour(h.icmpType, b[h.l4off:h.end:h.end], whole)
	case ipSCTP:
		w.sctp(f, data)
	}
}

// decode runs one gopacket decoder over b, which its check has passed, and says
// whether the layer can be read.
func (w *inspector) decode(kind layerKind, b []byte) (ok bool) {
	defer w.recovered(kind, &ok)
	b = b[:len(b):len(b)]
	var err error
	d, feedback := &w.dec, gopacket.NilDecodeFeedback
	switch kind {
	case layerARP:
		err = d.arp.DecodeFromBytes(b, feedback)
	case layerDNS:
		err = d.dns.DecodeFromBytes(b, feedback)
	case layerDHCPv4:
		err = d.dhcp.DecodeFromBytes(b, feedback)
	case layerDHCPv6:
		err = d.dhcpv6.DecodeFromBytes(b, feedback)
	case layerNeighborSolicitation:
		err = d.ns.DecodeFromBytes(b, feedback)
	case layerNeighborAdvertisement:
		err = d.na.DecodeFromBytes(b, feedback)
	case layerRouterSolicitation:
		err = d.rs.DecodeFromBytes(b, feedback)
	case layerRouterAdvertisement:
		err = d.ra.DecodeFromBytes(b, feedback)
	case layerNTP:
		err = d.ntp.DecodeFromBytes(b, feedback)
	case layerTLS:
		err = d.tls.DecodeFromBytes(b, feedback)
	}
	if err != nil {
		w.malformed[kind]++
		return false
	}
	return true
}

func (w *inspector) recovered(kind layerKind, ok *bool) {
	if recover() != nil {
		w.panics[kind]++
		*ok = false
	}
}

// checked counts a failed check and says whether to go on. A message that the
// capture or fragmentation cut is truncated, not malformed.
func (w *inspector) checked(kind layerKind, v readState, whole bool) bool {
	switch {
	case v == complete:
		return true
	case v == needMore && !whole:
		w.truncated[kind]++
	default:
		w.malformed[kind]++
	}
	return false
}

func (w *inspector) arp(b []byte) {
	if !checkARP(b) {
		w.malformed[layerARP]++
		return
	}
	if !w.decode(layerARP, b) {
		return
	}
	switch w.dec.arp.Operation {
	case layers.ARPRequest:
		w.events[eventARPRequest]++
	case layers.ARPReply:
		w.events[eventARPReply]++
	}
}

func (w *inspector) udp(f *flow, h *ipHeaders, b []byte, whole bool) {
	id := f.app
	if id == protoNone {
		id = udpProtocol(h.sport, h.dport, b)
		f.app = id
	}
	if id == protoNone {
		return
	}
	w.p.protos.add(id)
	switch id {
	case protoDNS:
		w.dns(nameDNS, b, whole)
	case protoMDNS:
		w.dns(nameMDNS, b, whole)
	case protoLLMNR:
		w.dns(nameLLMNR, b, whole)
	case protoDHCP:
		w.dhcp(b, whole)
	case protoDHCPv6:
		if w.checked(layerDHCPv6, checkDHCPv6(b), whole) && w.decode(layerDHCPv6, b) {
			w.events[eventDHCPv6]++
		}
	case protoNTP:
		w.ntp(b, whole)
	case protoQUIC:
		if quicInitial(b) {
			w.events[eventQUICInitial]++
		}
	}
}

// dns walks the message, then lets gopacket decode the header and the questions
// alone: its decoder of answers allocates for TXT and OPT records.
func (w *inspector) dns(kind nameKind, b []byte, whole bool) {
	walk, v := checkDNS(b)
	sound := w.checked(layerDNS, v, whole)
	if !sound && (v != needMore || whole || walk.prefix == 0) {
		return
	}
	n := copy(w.dnsBuf[:], b[:walk.prefix])
	clear(w.dnsBuf[6:12]) // no answers, authorities, additional records
	if !w.decode(layerDNS, w.dnsBuf[:n:n]) {
		return
	}
	if w.dec.dns.QR {
		w.events[eventDNSResponse]++
		switch walk.rcode {
		case 2:
			w.events[eventDNSServFail]++
		case 3:
			w.events[eventDNSNXDomain]++
		}
		return
	}
	w.events[eventDNSQuery]++
	for i := range w.dec.dns.Questions {
		name := w.dec.dns.Questions[i].Name
		if len(name) == 0 {
			name = rootName
		}
		w.names[kind].add(name)
	}
}

var rootName = []byte("<Root>")

func (w *inspector) dhcp(b []byte, whole bool) {
	if !w.checked(layerDHCPv4, checkDHCPv4(b), whole) || !w.decode(layerDHCPv4, b) {
		return
	}
	if w.dec.dhcp.Operation == layers.DHCPOpReply {
		w.events[eventDHCPReply]++
		return
	}
	w.events[eventDHCPRequest]++
	for i := range w.dec.dhcp.Options {
		if o := &w.dec.dhcp.Options[i]; o.Type == layers.DHCPOptHostname && len(o.Data) != 0 {
			w.names[nameDHCP].add(o.Data)
		}
	}
}

// ntp decodes the 48 bytes that versions 3 and 4 share. Control and private
// messages (modes 6 and 7) have another form and are only counted.
func (w *inspector) ntp(b []byte, whole bool) {
	if b[0]&7 >= 6 {
		return
	}
	v := complete
	if len(b) < 48 {
		v = needMore
	}
	if !w.checked(layerNTP, v, whole) || !w.decode(layerNTP, b) {
		return
	}
	switch w.dec.ntp.Mode {
	case 3:
		w.events[eventNTPClient]++
	case 4:
		w.events[eventNTPServer]++
	}
}

// ndForms lists types 133 to 136: decoder and length before the options.
var ndForms = [4]struct {
	kind  layerKind
	fixed int
	event event
}{
	{layerRouterSolicitation, 8, eventRouter},
	{layerRouterAdvertisement, 16, eventRouter},
	{layerNeighborSolicitation, 24, eventNeighbour},
	{layerNeighborAdvertisement, 24, eventNeighbour},
}

func (w *inspector) neighbour(icmpType uint8, b []byte, whole bool) {
	if icmpType < 133 || icmpType > 136 {
		return
	}
	form := &ndForms[icmpType-133]
	if w.checked(form.kind, checkND(b, form.fixed), whole) && w.decode(form.kind, b[4:]) {
		w.events[form.event]++
	}
}

// sctp looks for HTTP in the user data of each chunk.
func (w *inspector) sctp(f *flow, b []byte) {
	for range maxChunks {
		data, rest, ok := sctpData(b)
		if !ok {
			return
		}
		b = rest
		w.http(f, data, true)
	}
}

// tcp follows one direction and reads what begins there.
func (w *inspector) tcp(f *flow, dir int, h *ipHeaders, data []byte) {
	st := &f.streams[dir]
	seq := h.seq
	if h.tcpFlags&tcpRST != 0 {
		w.events[eventTCPReset]++
	}
	if h.tcpFlags&tcpSYN != 0 {
		seq++
		w.synchronise(f, dir, h, seq)
	}
	if len(data) == 0 {
		return
	}
	old := st.seen && int32(seq-st.next) < 0
	if end := seq + uint32(len(data)); !st.seen || int32(end-st.next) > 0 {
		st.next, st.seen = end, true
	}
	w.stream(f, dir, seq, data, old)
	id := f.app
	if id == protoNone {
		id = tcpTable.lookup(h.sport, h.dport)
	}
	switch id {
	case protoNone, protoHTTP: // HTTP counts where a message begins
		return
	case protoDNS: // only a message that begins and ends in this segment
		if len(data) >= 2 && int(binary.BigEndian.Uint16(data)) == len(data)-2 {
			w.dns(nameDNS, data[2:], true)
		}
	case protoTLS:
		w.tls(data)
	}
	w.p.protos.add(id)
}

// synchronise starts a direction at a SYN. A new initial number on known ports
// is a new connection.
func (w *inspector) synchronise(f *flow, dir int, h *ipHeaders, base uint32) {
	w.events[eventTCPSyn]++
	st := &f.streams[dir]
	if st.known && st.base == base {
		return
	}
	w.flows.giveBack(st)
	*st = stream{base: base, known: true, slot: noSlot}
	if h.tcpFlags&tcpACK == 0 {
		f.app, f.named, f.starter = protoNone, 0, uint8(dir)
	}
}

// stream gives the bytes to the reader: as they are if something begins in this
// segment, or put together with what came before. old says that the segment
// starts within bytes already seen.
func (w *inspector) stream(f *flow, dir int, seq uint32, data []byte, old bool) {
	st := &f.streams[dir]
	off := int(int32(seq - st.base))
	early := st.known && !st.first && off > 0 && off < streamBytes
	if st.slot == noSlot && !early {
		if !old || !st.first {
			st.first = true
			w.begin(f, dir, seq, data)
		}
		return
	}
	if st.slot == noSlot {
		w.flows.lend(f, dir, st.base) // the segments before this one are missing yet
	}
	slot := &w.flows.pool.slots[st.slot]
	ready, kept := slot.put(off, data)
	if !kept {
		w.flows.streamGaps++
	}
	if off >= streamBytes {
		w.flows.giveBack(st)
		st.first = true
		return
	}
	if ready == 0 {
		return
	}
	st.first = true
	w.again(f, dir, slot, ready)
}

// begin reads a segment at which something may begin, and borrows a buffer if it
// is not all there.
func (w *inspector) begin(f *flow, dir int, seq uint32, data []byte) {
	used, v := w.recognise(f, data, w.p.cut)
	if v == needMore && !w.p.cut {
		w.flows.lend(f, dir, seq+uint32(used)).put(0, data[used:])
	}
}

// again reads what was put together so far.
func (w *inspector) again(f *flow, dir int, slot *streamSlot, ready int) {
	st := &f.streams[dir]
	base := st.base
	used, v := w.recognise(f, slot.buf[:ready:ready], ready == streamBytes || w.p.cut)
	if v == needMore && used == 0 && ready < streamBytes {
		return
	}
	w.flows.giveBack(st)
	if v == needMore && used != 0 {
		w.flows.lend(f, dir, base+uint32(used)).put(0, slot.buf[used:ready])
	}
}

// recognise reads what begins at b[0]. used is what was finished of it before
// the part that needs more; last says that no more will come.
func (w *inspector) recognise(f *flow, b []byte, last bool) (used int, v readState) {
	if f.app != protoNone && f.app != protoTLS && f.app != protoHTTP {
		return 0, notThis
	}
	skip := changeCipherSpec(b)
	if clientHelloStart(b[skip:]) {
		name, v := clientHello(b[skip:], w.scratch[:])
		if v == complete {
			w.hello(f, name)
		}
		if v != notThis {
			return skip, v
		}
	}
	if f.app == protoTLS {
		return 0, notThis
	}
	if used, v = w.http(f, b, last); v != notThis {
		return used, v
	}
	switch {
	case tlsWhole(b):
		f.app = protoTLS
	case sshBanner(b):
		f.app = protoSSH
	case bgpMarker(b):
		f.app = protoBGP
	}
	return 0, notThis
}

func (w *inspector) hello(f *flow, name []byte) {
	f.app = protoTLS
	w.events[eventTLSHello]++
	if len(name) != 0 {
		w.names[nameSNI].add(name)
		f.setName(name)
	}
}

// http reads requests one behind the other, or notes a response.
func (w *inspector) http(f *flow, b []byte, last bool) (used int, v readState) {
	if httpResponse(b) {
		w.p.protos.add(protoHTTP)
		w.events[eventHTTPResponse]++
		f.app = protoHTTP
		return 0, complete
	}
	for range maxRequests {
		host, size, got := httpRequest(b[used:])
		if got == notThis || got == needMore && !last {
			if used != 0 && got == notThis {
				got = complete
			}
			return used, got
		}
		if got == needMore && host == nil {
			return used, got
		}
		w.p.protos.add(protoHTTP)
		w.events[eventHTTPRequest]++
		f.app = protoHTTP
		if len(host) != 0 {
			w.names[nameHost].add(host)
			f.setName(host)
		}
		if got == needMore {
			return used, complete
		}
		used += size
	}
	return used, complete
}

// tls lets gopacket decode a segment that holds whole records.
func (w *inspector) tls(b []byte) {
	if tlsWhole(b) && w.decode(layerTLS, b) {
		w.events[eventTLSAlert] += uint64(len(w.dec.tls.Alert))
	}
}

// summary copies everything out, after the inspector's goroutine has ended.
func (w *inspector) summary() *summary {
	s := emptySummary()
	s.Packets, s.Bytes, s.WireBytes = w.packets, w.bytes, w.wireBytes
	s.FirstNS, s.LastNS = w.first, w.last
	for id := protoNone + 1; id < protoCount; id++ {
		addCount(s.Protocols, id.String(), w.protocols[id])
	}
	for i, n := range w.reasons {
		addCount(s.DecodeErrors, reasonNames[i], n)
	}
	for i, name := range layerNames {
		addCount(s.DecodeErrors, "malformed_"+name, w.malformed[i])
		addCount(s.DecodeErrors, "truncated_"+name, w.truncated[i])
		addCount(s.DecodeErrors, "panic_"+name, w.panics[i])
	}
	for i, n := range w.events {
		addCount(s.Events, eventNames[i], n)
	}
	t := w.flows
	s.Flows = t.created
	s.FlowTable = map[string]uint64{
		"created": t.created, "live": uint64(t.live), "size": uint64(len(t.flows)),
		"evicted_idle": t.evictedIdle, "evicted_active": t.evictedActive,
		"fragments_orphaned": t.fragOrphans, "fragments_evicted": t.fragEvicted,
		"streams_stolen": t.streamStolen, "stream_gaps": t.streamGaps,
	}
	t.each(func(f *flow) { s.addFlow(f) })
	for kind := range w.names {
		for i := range w.names[kind].entries {
			e := &w.names[kind].entries[i]
			addCount(s.names[kind], string(e.name[:e.size]), e.count)
		}
	}
	return s
}
