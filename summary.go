package main

// summary.go owns the result of inspection: one struct that is added up over
// queues, completed with the NIC's drops, and written as JSON or as text. It
// only computes; it knows neither frames nor gopacket (inspect.go).

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	topLines = 20  // flows and talkers listed
	topNames = 100 // names listed of each kind
)

// nameKind is a table of names.
type nameKind uint8

const (
	nameDNS nameKind = iota
	nameMDNS
	nameLLMNR
	nameSNI
	nameHost
	nameDHCP
	nameKinds
)

// summary is what inspection saw. The order of the fields is the order of the
// JSON object; maps are written with sorted keys.
type summary struct {
	Packets      uint64            `json:"packets"`
	Bytes        uint64            `json:"bytes"`      // captured
	WireBytes    uint64            `json:"wire_bytes"` // before any cut
	DurationS    float64           `json:"duration_s"`
	PPS          float64           `json:"pps"`
	BitsPerS     float64           `json:"bits_per_s"` // on the wire, without preamble and gap
	FirstNS      int64             `json:"first_ns"`   // packet times, ns since 1970
	LastNS       int64             `json:"last_ns"`
	Drops        map[string]uint64 `json:"drops"`
	DecodeErrors map[string]uint64 `json:"decode_errors"`
	Protocols    map[string]uint64 `json:"protocols"`
	Events       map[string]uint64 `json:"events"`
	Flows        uint64            `json:"flows"`
	FlowTable    map[string]uint64 `json:"flow_table"`
	TopFlows     []flowLine        `json:"top_flows"`
	TopTalkers   []talkerLine      `json:"top_talkers"`
	DNSNames     []nameLine        `json:"dns_names"`
	MDNSNames    []nameLine        `json:"mdns_names"`
	LLMNRNames   []nameLine        `json:"llmnr_names"`
	SNI          []nameLine        `json:"sni"`
	HTTPHosts    []nameLine        `json:"http_hosts"`
	DHCPHosts    []nameLine        `json:"dhcp_hosts"`

	all   map[flowKey]*flow // of this summary alone, cut to TopFlows when printed
	names [nameKinds]map[string]uint64
}

// flowLine is a flow for people: src is the end that spoke first.
type flowLine struct {
	Proto      string  `json:"proto"`
	Src        string  `json:"src"`
	Dst        string  `json:"dst"`
	VLANs      []int   `json:"vlans,omitempty"`
	Tunnel     string  `json:"tunnel,omitempty"`
	TunnelID   uint32  `json:"tunnel_id,omitempty"`
	App        string  `json:"app,omitempty"`
	Name       string  `json:"name,omitempty"` // server name or host
	Packets    uint64  `json:"packets"`
	Bytes      uint64  `json:"bytes"` // on the wire, both directions
	PacketsOut uint64  `json:"packets_src"`
	BytesOut   uint64  `json:"bytes_src"`
	DurationS  float64 `json:"duration_s"`
}

type talkerLine struct {
	Addr    string `json:"addr"`
	Packets uint64 `json:"packets"` // sent and received
	Bytes   uint64 `json:"bytes"`
}

type nameLine struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

func emptySummary() *summary {
	s := &summary{
		Drops: map[string]uint64{}, DecodeErrors: map[string]uint64{},
		Protocols: map[string]uint64{}, Events: map[string]uint64{},
		FlowTable: map[string]uint64{}, all: map[flowKey]*flow{},
	}
	for i := range s.names {
		s.names[i] = map[string]uint64{}
	}
	return s
}

func addCount(m map[string]uint64, name string, n uint64) {
	if n != 0 {
		m[name] += n
	}
}

// addFlow adds f to what is known under its key and says whether that is new.
func (s *summary) addFlow(f *flow) bool {
	g := s.all[f.key]
	if g == nil {
		c := *f
		s.all[f.key] = &c
		return true
	}
	for dir := range f.bytes {
		g.packets[dir] += f.packets[dir]
		g.bytes[dir] += f.bytes[dir]
	}
	if f.first < g.first {
		g.first, g.starter = f.first, f.starter
	}
	g.last = max(g.last, f.last)
	if g.app == protoNone {
		g.app = f.app
	}
	if g.named == 0 {
		g.name, g.named = f.name, f.named
	}
	return false
}

// mergeSummaries adds the summaries of all queues. A flow whose packets came in
// on several queues, such as fragments, counts once.
func mergeSummaries(parts ...*summary) *summary {
	s := emptySummary()
	for _, part := range parts {
		if part.Packets != 0 && (s.Packets == 0 || part.FirstNS < s.FirstNS) {
			s.FirstNS = part.FirstNS
		}
		s.LastNS = max(s.LastNS, part.LastNS)
		s.Packets += part.Packets
		s.Bytes += part.Bytes
		s.WireBytes += part.WireBytes
		s.Flows += part.Flows
		for _, f := range part.all {
			if !s.addFlow(f) {
				s.Flows--
			}
		}
		for i, m := range [...]map[string]uint64{part.Drops, part.DecodeErrors, part.Protocols, part.Events, part.FlowTable} {
			to := [...]map[string]uint64{s.Drops, s.DecodeErrors, s.Protocols, s.Events, s.FlowTable}[i]
			for k, n := range m {
				to[k] += n
			}
		}
		for kind, m := range part.names {
			for k, n := range m {
				s.names[kind][k] += n
			}
		}
	}
	return s
}

// finish adds what the caller knows and makes the lists: drops by name from the
// NIC's counters, and how long it ran; with 0 the packets' own times tell.
func (s *summary) finish(drops map[string]uint64, ran time.Duration) {
	for k, n := range drops {
		s.Drops[k] += n
	}
	if ran <= 0 {
		ran = time.Duration(s.LastNS - s.FirstNS)
	}
	s.DurationS = round(ran.Seconds())
	if sec := ran.Seconds(); sec > 0 {
		s.PPS = round(float64(s.Packets) / sec)
		s.BitsPerS = round(float64(s.WireBytes) * 8 / sec)
	}
	s.TopFlows, s.TopTalkers = s.topFlows()
	for kind, to := range [...]*[]nameLine{&s.DNSNames, &s.MDNSNames, &s.LLMNRNames, &s.SNI, &s.HTTPHosts, &s.DHCPHosts} {
		*to = sortedCounts(s.names[kind], topNames)
	}
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// topFlows lists the largest flows and addresses by bytes.
func (s *summary) topFlows() ([]flowLine, []talkerLine) {
	flows := make([]*flow, 0, len(s.all))
	talkers := map[[16]byte]*talkerLine{}
	for _, f := range s.all {
		flows = append(flows, f)
		for _, addr := range [...][16]byte{f.key.a, f.key.b} {
			t := talkers[addr]
			if t == nil {
				t = &talkerLine{Addr: netip.AddrFrom16(addr).Unmap().String()}
				talkers[addr] = t
			}
			t.Packets += f.packets[fromA] + f.packets[fromB]
			t.Bytes += f.total()
		}
	}
	slices.SortFunc(flows, func(x, y *flow) int {
		return cmp.Or(cmp.Compare(y.total(), x.total()), x.key.compare(&y.key)) // not by time: two runs must agree
	})
	lines := make([]flowLine, 0, topLines)
	for _, f := range flows[:min(len(flows), topLines)] {
		lines = append(lines, f.line())
	}
	list := make([]talkerLine, 0, len(talkers))
	for _, t := range talkers {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(x, y talkerLine) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Addr, y.Addr))
	})
	return lines, list[:min(len(list), topLines)]
}

// compare orders keys by everything in them.
func (k *flowKey) compare(o *flowKey) int {
	return cmp.Or(slices.Compare(k.a[:], o.a[:]), slices.Compare(k.b[:], o.b[:]),
		cmp.Compare(k.portA, o.portA), cmp.Compare(k.portB, o.portB), cmp.Compare(k.vlans, o.vlans),
		cmp.Compare(k.tunnelID, o.tunnelID), cmp.Compare(k.proto, o.proto), cmp.Compare(k.l3, o.l3), cmp.Compare(k.tunnel, o.tunnel))
}

func (f *flow) line() flowLine {
	k := &f.key
	l := flowLine{
		Proto: protoNumber(k.proto), App: f.application().String(), Name: string(f.name[:f.named]),
		Packets: f.packets[fromA] + f.packets[fromB], Bytes: f.total(),
		PacketsOut: f.packets[f.starter], BytesOut: f.bytes[f.starter],
		Src: endpoint(k.a, k.portA, k.proto), Dst: endpoint(k.b, k.portB, k.proto),
		Tunnel: tunnelNames[k.tunnel], TunnelID: k.tunnelID,
		DurationS: round(time.Duration(f.last - f.first).Seconds()),
	}
	if f.starter == fromB {
		l.Src, l.Dst = l.Dst, l.Src
	}
	for _, id := range [...]uint32{k.vlans >> 16, k.vlans & 0xfff} {
		if id != 0 {
			l.VLANs = append(l.VLANs, int(id))
		}
	}
	return l
}

// application is what the content showed, else what the ports suggest.
func (f *flow) application() protocolID {
	switch {
	case f.app != protoNone:
		return f.app
	case f.key.proto == ipTCP:
		return tcpTable.lookup(f.key.portA, f.key.portB)
	}
	return protoNone
}

func protoNumber(n uint8) string {
	if id := ipProtocols[n]; id != protoNone {
		return id.String()
	}
	return strconv.Itoa(int(n))
}

func endpoint(addr [16]byte, port uint16, proto uint8) string {
	a := netip.AddrFrom16(addr).Unmap()
	if hasPorts(proto) {
		return netip.AddrPortFrom(a, port).String()
	}
	return a.String()
}

// sortedCounts lists the n largest counters, equal ones by name.
func sortedCounts(m map[string]uint64, n int) []nameLine {
	list := make([]nameLine, 0, len(m))
	for k, c := range m {
		list = append(list, nameLine{k, c})
	}
	slices.SortFunc(list, func(x, y nameLine) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Name, y.Name))
	})
	return list[:min(len(list), n)]
}

// text is the summary for a person. Names come from the wire and are quoted, so
// that they cannot drive a terminal.
func (s *summary) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d packets, %d bytes captured (%d on the wire) in %g s: %g packets/s, %g Mbit/s\n",
		s.Packets, s.Bytes, s.WireBytes, s.DurationS, s.PPS, round(s.BitsPerS/1e6))
	for _, list := range [...]struct {
		title  string
		counts map[string]uint64
	}{{"drops", s.Drops}, {"decode errors", s.DecodeErrors}, {"protocols", s.Protocols}, {"events", s.Events}} {
		writeCounts(&b, list.title, sortedCounts(list.counts, math.MaxInt))
	}
	fmt.Fprintf(&b, "\n%d flows; the largest:\n", s.Flows)
	for _, f := range s.TopFlows {
		fmt.Fprintf(&b, "  %-5s %s > %s  %d packets, %d bytes  %s", f.Proto, f.Src, f.Dst, f.Packets, f.Bytes, f.App)
		if f.Name != "" {
			fmt.Fprintf(&b, " %s", printable(f.Name))
		}
		if len(f.VLANs) != 0 {
			fmt.Fprintf(&b, " vlan %v", f.VLANs)
		}
		if f.Tunnel != "" {
			fmt.Fprintf(&b, " in %s %d", f.Tunnel, f.TunnelID)
		}
		b.WriteByte('\n')
	}
	if len(s.TopTalkers) != 0 {
		b.WriteString("\ntop talkers:\n")
	}
	for _, t := range s.TopTalkers {
		fmt.Fprintf(&b, "  %-40s %d packets, %d bytes\n", t.Addr, t.Packets, t.Bytes)
	}
	for _, list := range [...]struct {
		title string
		names []nameLine
	}{{"DNS names", s.DNSNames}, {"mDNS names", s.MDNSNames}, {"LLMNR names", s.LLMNRNames},
		{"TLS server names", s.SNI}, {"HTTP hosts", s.HTTPHosts}, {"DHCP hosts", s.DHCPHosts}} {
		if len(list.names) != 0 {
			writeCounts(&b, list.title, list.names)
		}
	}
	return b.String()
}

// writeCounts lists what was counted at all.
func writeCounts(b *strings.Builder, title string, list []nameLine) {
	list = slices.DeleteFunc(list, func(l nameLine) bool { return l.Count == 0 })
	if len(list) == 0 {
		fmt.Fprintf(b, "\n%s: none\n", title)
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, l := range list {
		fmt.Fprintf(b, "  %12d  %s\n", l.Count, printable(l.Name))
	}
}

// printable shows a name as it is, or quoted if there is anything odd in it.
func printable(name string) string {
	if q := strconv.QuoteToASCII(name); len(q) != len(name)+2 {
		return q
	}
	return name
}
