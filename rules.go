package main

// rules.go owns rules about received packets in the words of ethtool -N: reading
// and writing them, what the device can look at, and where that stands among its
// match parameters. Everything here is a pure function; the table in the device is
// ruletable.go's.
// Manual: chapter Flow Tables, section Flow Table Entry (fte_match_param).
//
//	flow-type tcp4 src-ip 192.168.0.0 m 0.0.0.255 dst-port 80 action 2 loc 1
//
// A bit that is set behind m is ignored, as ethtool has it; without m all count. The
// mask may also stand apart (src-ip-mask), and queue N says the same as action N.
// The rule at the lowest location is looked at first and the first that fits
// decides. Rules without one take locations from the last downwards, as ethtool
// hands them out: of two such, the later is looked at first.
//
// A later fragment has no ports, and no rule that names some fits it.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	maxRules = 1024 // locations, as many as Linux has
	anyLoc   = -1
	ruleDrop = -1 // action
)

// rule is one rule. What it looks at stands in the order of its flow type's words.
type rule struct {
	flow   *flowType
	terms  []ruleTerm
	action int  // a queue, or ruleDrop
	loc    int  // or anyLoc
	placed bool // loc is ours, not the user's
}

// ruleTerm is one word with its value. Bits of mask that are set count; the value
// has no others.
type ruleTerm struct {
	word        *ruleWord
	value, mask ruleValue
}

// ruleValue is a number of up to 128 bits, an address or part of one.
type ruleValue [16]byte

// flowType is a kind of traffic with what can be said about it.
type flowType struct {
	name    string
	title   string // in ethtool -n
	version uint8  // of IP, 0 where rules are about the Ethernet header
	proto   uint8  // behind IP, 0 for any
	words   []ruleWord
}

// ruleForm is how a value is written.
type ruleForm uint8

const (
	formDecimal ruleForm = iota
	formHex
	formMAC
	formIP
)

// ruleWord is a word, the value behind it, and where that lies.
type ruleWord struct {
	name   string
	label  string // in ethtool -n; "" is not shown there
	form   ruleForm
	bits   uint
	pieces []rulePiece
	cannot string // why the device cannot do it
}

// rulePiece is a part of a value: the bits from low on that fill field at.
type rulePiece struct {
	set area // of fte_match_param
	at  field
	low uint
	can field // the device's word for it (flow_table_fields_supported)
}

func outer(at field, low uint, can field) rulePiece { return rulePiece{matchOuter, at, low, can} }

// The words of the Ethernet header and the tag, by ethtool's names.
const (
	wordVLAN     = "vlan"
	wordVLANType = "vlan-etype"
	wordMAC      = "dst-mac"
	wordProto    = "proto"
)

var (
	dstMAC = []rulePiece{outer(l2l4DmacHi, 16, ftFieldOuterDmac), outer(l2l4DmacLo, 0, ftFieldOuterDmac)}
	srcMAC = []rulePiece{outer(l2l4SmacHi, 16, ftFieldOuterSmac), outer(l2l4SmacLo, 0, ftFieldOuterSmac)}

	etherWords = []ruleWord{
		{name: "src", label: "Src MAC addr", form: formMAC, bits: 48, pieces: srcMAC},
		{name: "dst", label: "Dest MAC addr", form: formMAC, bits: 48, pieces: dstMAC},
		{name: wordProto, label: "Ethertype", form: formHex, bits: 16, pieces: []rulePiece{outer(l2l4Ethertype, 0, ftFieldOuterEtherType)}},
		{name: wordMAC, cannot: "flow-type ether calls it dst"},
	}
	// tagWords can stand in every rule. The kind of tag has no piece: see match.
	tagWords = []ruleWord{
		{name: wordVLANType, label: "VLAN EtherType", form: formHex, bits: 16},
		{name: wordVLAN, label: "VLAN", form: formHex, bits: 16, pieces: []rulePiece{
			outer(l2l4FirstPrio, 13, ftFieldOuterFirstPrio),
			outer(l2l4FirstCfi, 12, ftFieldOuterFirstCfi),
			outer(l2l4FirstVid, 0, ftFieldOuterFirstVid)}},
		{name: "user-def", label: "User-defined", form: formHex, bits: 64, cannot: "the device has no field of one's own"},
		{name: "vf", cannot: "rules lead to this function's own queues"},
		{name: "context", cannot: "there is one RSS table, which takes what no rule fits"},
	}
	macWord = ruleWord{name: wordMAC, label: "Dest MAC addr", form: formMAC, bits: 48, pieces: dstMAC}

	l4Word = ruleWord{name: "l4proto", label: "Protocol", form: formDecimal, bits: 8, pieces: []rulePiece{outer(l2l4IpProtocol, 0, ftFieldOuterIpProtocol)}}

	espWord = ruleWord{name: "spi", label: "SPI", form: formDecimal, bits: 32, pieces: []rulePiece{{matchMisc, miscOuterEspSpi, 0, ftFieldOuterEspSpi}}}
	ahWord  = ruleWord{name: "spi", label: "SPI", form: formDecimal, bits: 32, cannot: "the device finds that of ESP only, not that of AH"}

	ruleTCPPorts  = portWords(l2l4TcpSport, l2l4TcpDport, ftFieldOuterTcpSport, ftFieldOuterTcpDport)
	ruleUDPPorts  = portWords(l2l4UdpSport, l2l4UdpDport, ftFieldOuterUdpSport, ftFieldOuterUdpDport)
	ruleSCTPPorts = noPorts("the device parses TCP and UDP headers, not SCTP's")
)

func portWords(sport, dport, canS, canD field) []ruleWord {
	return []ruleWord{
		{name: "src-port", label: "Src port", form: formDecimal, bits: 16, pieces: []rulePiece{outer(sport, 0, canS)}},
		{name: "dst-port", label: "Dest port", form: formDecimal, bits: 16, pieces: []rulePiece{outer(dport, 0, canD)}},
	}
}

// noPorts are ports that ethtool shows and the device cannot match.
func noPorts(why string) []ruleWord {
	w := portWords(field{}, field{}, field{}, field{})
	for i := range w {
		w[i].pieces, w[i].cannot = nil, why
	}
	return w
}

// addressWords are those of an IP header.
func addressWords(version uint8) []ruleWord {
	tos := ruleWord{name: "tos", label: "TOS", form: formHex, bits: 8, pieces: []rulePiece{outer(l2l4IpDscp, 2, ftFieldOuterIpDscp), outer(l2l4IpEcn, 0, ftFieldOuterIpEcn)}}
	n := uint(32)
	if version == 6 {
		n, tos.name, tos.label = 128, "tclass", "Traffic Class"
	}
	return []ruleWord{
		{name: "src-ip", label: "Src IP addr", form: formIP, bits: n, pieces: addressPieces(l2l4Src, n, ftFieldOuterSip)},
		{name: "dst-ip", label: "Dest IP addr", form: formIP, bits: n, pieces: addressPieces(l2l4Dst, n, ftFieldOuterDip)},
		tos,
	}
}

// addressPieces are the dwords of an address of n bits, which ends where a ends.
func addressPieces(a area, n uint, can field) (out []rulePiece) {
	for low := uint(0); low < n; low += 32 {
		out = append(out, outer(field{a.off + a.n - 4 - int(low/8), 31, 0}, low, can))
	}
	return out
}

// flowTypes are ethtool's.
var flowTypes = slices.Concat(
	[]flowType{{"ether", "Raw Ethernet", 0, 0, slices.Concat(etherWords, tagWords)}},
	ipFlowTypes(4), ipFlowTypes(6))

func ipFlowTypes(version uint8) (out []flowType) {
	raw := fmt.Sprintf("ip%d", version)
	rawWords := append([]ruleWord{l4Word,
		{name: "l4data", label: "L4 bytes", form: formHex, bits: 32, cannot: "the device matches ports by protocol: use flow-type tcp or udp"},
		{name: "spi", cannot: fmt.Sprintf("use flow-type esp%d", version)}},
		unlabelled(noPorts(fmt.Sprintf("flow-type %s has none: use tcp%d or udp%d", raw, version, version)))...)
	for _, f := range []struct {
		name, title string
		proto       uint8
		words       []ruleWord
	}{
		{raw, fmt.Sprintf("Raw IPv%d", version), 0, rawWords},
		{"tcp", "TCP over IPv", ipTCP, ruleTCPPorts},
		{"udp", "UDP over IPv", ipUDP, ruleUDPPorts},
		{"sctp", "SCTP over IPv", ipSCTP, ruleSCTPPorts},
		{"ah", "IPSEC AH over IPv", ipAH, []ruleWord{ahWord}},
		{"esp", "IPSEC ESP over IPv", ipESP, []ruleWord{espWord}},
	} {
		t := flowType{f.name, f.title, version, f.proto, slices.Concat(addressWords(version), f.words, tagWords, []ruleWord{macWord})}
		if f.proto != 0 {
			t.name, t.title = fmt.Sprint(f.name, version), fmt.Sprint(f.title, version)
		}
		out = append(out, t)
	}
	return out
}

func unlabelled(words []ruleWord) []ruleWord {
	for i := range words {
		words[i].label = ""
	}
	return words
}

// word finds a word of a flow type.
func (t *flowType) word(name string) *ruleWord {
	for i := range t.words {
		if t.words[i].name == name {
			return &t.words[i]
		}
	}
	return nil
}

// parseRule reads a rule. The error names the word that is wrong.
func parseRule(text string) (rule, error) {
	r := rule{action: anyLoc - 1, loc: anyLoc}
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != "flow-type" {
		return r, wishf("a rule starts with flow-type, such as flow-type tcp4 dst-port 80 action 2")
	}
	i := slices.IndexFunc(flowTypes, func(t flowType) bool { return t.name == words[1] })
	if i < 0 {
		return r, wishf("flow-type %s: %s", words[1], flowNames())
	}
	r.flow = &flowTypes[i]
	seen := map[string]bool{}
	for words = words[2:]; len(words) > 0; {
		name := words[0]
		if seen[name] {
			return r, wishf("%s stands twice", name)
		}
		seen[name] = true
		n, err := r.take(words)
		if err != nil {
			return r, err
		}
		words = words[n:]
	}
	switch {
	case seen["action"] && seen["queue"]:
		return r, wishf("queue: action says where to already")
	case !seen["action"] && !seen["queue"]:
		return r, wishf("action is missing: action N leads to queue N, action -1 drops")
	}
	return r, r.finish()
}

// finish puts what was read into its form: in order, without what is ignored.
func (r *rule) finish() error {
	var kept []ruleTerm
	for _, t := range r.terms {
		if err := t.sensible(); err != nil {
			return err
		}
		if t.value = t.value.and(t.mask); t.mask != (ruleValue{}) {
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, func(a, b ruleTerm) int { return cmp.Compare(r.flow.place(a.word), r.flow.place(b.word)) })
	r.terms = kept
	return nil
}

// flowNames lists the flow types for those who named another.
func flowNames() string {
	var names []string
	for _, t := range flowTypes {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}

// place is a word's among the flow type's.
func (t *flowType) place(w *ruleWord) int {
	return slices.IndexFunc(t.words, func(x ruleWord) bool { return x.name == w.name })
}

// take reads the first word with its value and mask and returns how many words
// that were.
func (r *rule) take(words []string) (n int, err error) {
	name := words[0]
	if len(words) == 1 {
		return 0, wishf("%s: its value is missing", name)
	}
	switch name {
	case "action", "queue":
		r.action, err = parseAction(name, words[1])
		return 2, err
	case "loc":
		v, err := parseNumber(words[1], 64)
		if err != nil || v >= maxRules {
			return 0, wishf("loc %s: 0 to %d", words[1], maxRules-1)
		}
		r.loc = int(v)
		return 2, nil
	}
	if of, ok := strings.CutSuffix(name, "-mask"); ok {
		return 2, r.takeMask(of, words[1])
	}
	w := r.flow.word(name)
	switch {
	case w == nil:
		return 0, wishf("%s: flow-type %s has %s", name, r.flow.name, r.flow.wordNames())
	case w.cannot != "":
		return 0, wishf("%s: %s", name, w.cannot)
	}
	t := ruleTerm{word: w, mask: ones(w.bits)}
	if t.value, err = w.parse(r.flow.version, words[1]); err != nil {
		return 0, wishf("%s %s: %v", name, words[1], err)
	}
	r.terms = append(r.terms, t)
	switch {
	case len(words) < 3 || words[2] != "m":
		return 2, nil
	case len(words) == 3:
		return 0, wishf("%s: the mask behind m is missing", name)
	}
	return 4, r.takeMask(name, words[3])
}

// takeMask reads the mask of a word that has been read.
func (r *rule) takeMask(name, mask string) error {
	i := slices.IndexFunc(r.terms, func(t ruleTerm) bool { return t.word.name == name })
	if i < 0 {
		return wishf("%s-mask: %s with its value stands before it", name, name)
	}
	t := &r.terms[i]
	if t.mask != ones(t.word.bits) {
		return wishf("%s-mask: %s has a mask already", name, name)
	}
	ignore, err := t.word.parse(r.flow.version, mask)
	if err != nil {
		return wishf("%s m %s: %v", name, mask, err)
	}
	t.mask = t.mask.without(ignore)
	return nil
}

// sensible refuses what would never fit a packet.
func (t ruleTerm) sensible() error {
	v, masked := binary.BigEndian.Uint16(t.value[14:]), t.mask != ones(t.word.bits)
	switch {
	case t.word.name == wordVLANType && (masked || v != ethVLAN && v != ethQinQ):
		return wishf("%s: %#x or %#x, without a mask", wordVLANType, ethVLAN, ethQinQ)
	case t.word.name == wordProto && (v == ethVLAN || v == ethQinQ) && !masked:
		return wishf("proto %#x: the device looks at the EtherType behind the tag: write vlan-etype %#x", v, v)
	}
	return nil
}

// wordNames lists what can be said of a flow type.
func (t *flowType) wordNames() string {
	var names []string
	for _, w := range t.words {
		if w.cannot == "" {
			names = append(names, w.name)
		}
	}
	return strings.Join(append(names, "action", "queue", "loc"), ", ")
}

func parseAction(word, s string) (int, error) {
	if s == "-1" && word == "action" {
		return ruleDrop, nil
	}
	v, err := parseNumber(s, 31)
	if err != nil {
		return 0, wishf("%s %s: a queue's number, or action -1 to drop", word, s)
	}
	return int(v), nil
}

// parse reads a value or a mask of the word.
func (w *ruleWord) parse(version uint8, s string) (v ruleValue, err error) {
	switch w.form {
	case formMAC:
		mac, err := net.ParseMAC(s)
		if err != nil || len(mac) != 6 {
			return v, fmt.Errorf("six bytes such as 02:00:00:00:00:01")
		}
		copy(v[10:], mac)
		return v, nil
	case formIP:
		a, err := netip.ParseAddr(s)
		switch {
		case version == 4 && (err != nil || !a.Is4()):
			return v, fmt.Errorf("an IPv4 address such as 192.168.0.1 (m 0.0.0.255 ignores its last byte)")
		case version == 6 && (err != nil || !a.Is6() || a.Zone() != ""):
			return v, fmt.Errorf("an IPv6 address such as 2001:db8::1 (m ::ffff ignores its last two bytes)")
		}
		copy(v[16-len(a.AsSlice()):], a.AsSlice())
		return v, nil
	}
	n, err := parseNumber(s, w.bits)
	binary.BigEndian.PutUint64(v[8:], n)
	return v, err
}

// parseNumber reads a decimal or 0x number of up to so many bits. A leading zero is
// refused: to ethtool it means octal, to most people it does not.
func parseNumber(s string, bits uint) (uint64, error) {
	base, digits := 10, s
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		base, digits = 16, s[2:]
	}
	if base == 10 && len(s) > 1 && s[0] == '0' || strings.ContainsAny(digits, "+-") {
		return 0, fmt.Errorf("a decimal number, or one in hex behind 0x")
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("a decimal number, or one in hex behind 0x")
	}
	if most := uint64(1)<<bits - 1; err != nil || v > most {
		return 0, fmt.Errorf("0 to %d", most)
	}
	return v, nil
}

// ones is the value of n set bits.
func ones(n uint) (v ruleValue) {
	for i := range v {
		if from := uint(15-i) * 8; n > from {
			v[i] = byte(1<<min(n-from, 8) - 1)
		}
	}
	return v
}

func (v ruleValue) and(m ruleValue) ruleValue {
	for i := range v {
		v[i] &= m[i]
	}
	return v
}

func (v ruleValue) without(m ruleValue) ruleValue {
	for i := range v {
		v[i] &^= m[i]
	}
	return v
}

// part is width bits of v from low on, at most 32.
func (v ruleValue) part(low, width uint) uint32 {
	w := [2]uint64{binary.BigEndian.Uint64(v[8:]), binary.BigEndian.Uint64(v[:8])}
	return uint32(w[low/64] >> (low % 64) & (1<<width - 1)) // no piece crosses the middle
}

func (p rulePiece) width() uint { return uint(p.at.hi-p.at.lo) + 1 }

// match returns mask and value of a rule, over outer headers and misc parameters.
func (r rule) match(byVersion bool) (mask, value []byte) {
	n := matchOuter.n + matchMisc.n
	mask, value = make([]byte, n), make([]byte, n)
	if r.flow.version != 0 {
		matchVersion(mask, value, r.flow.version, byVersion)
	}
	if r.flow.proto != 0 {
		l2l4IpProtocol.set(mask, 0xff)
		l2l4IpProtocol.set(value, uint32(r.flow.proto))
	}
	if tag := r.tag(); tag != (field{}) {
		tag.set(mask, 1)
		tag.set(value, 1)
	}
	for _, t := range r.terms {
		for _, p := range t.word.pieces {
			p.at.set(p.set.in(mask), t.mask.part(p.low, p.width()))
			p.at.set(p.set.in(value), t.value.part(p.low, p.width()))
		}
	}
	return mask, value
}

// tag is the kind of VLAN tag that a packet must have; none where the rule says
// nothing of one. A tag without a type is a customer's.
func (r rule) tag() (kind field) {
	for _, t := range r.terms {
		switch t.word.name {
		case wordVLANType:
			if binary.BigEndian.Uint16(t.value[14:]) == ethQinQ {
				return l2l4Svlan
			}
			return l2l4Cvlan
		case wordVLAN:
			kind = l2l4Cvlan
		}
	}
	return kind
}

// checkRules says what of rules this device cannot do. regular queues are numbered
// from 0 on, upper ones behind them.
func checkRules(rules []rule, c caps, regular, upper int) error {
	if len(rules) == 0 {
		return nil
	}
	switch {
	case c.tableLevel < trapLevels:
		return wishf("-rule: the device's flow tables go down to level %d, %d is needed", c.tableLevel, trapLevels)
	case !c.setRoot:
		return wishf("-rule: the device has a fixed first flow table, and rules would have to stand before it")
	case rules[len(rules)-1].loc >= 1<<c.logTable:
		return wishf("-rule: loc %d: the device's flow tables hold %d", rules[len(rules)-1].loc, 1<<c.logTable)
	}
	seen := map[string]int{}
	for _, r := range rules {
		if err := r.check(c, regular, upper); err != nil {
			return wishf("-rule %q: %v", r.written(), err)
		}
		mask, value := r.match(c.outerVer)
		key := string(mask) + string(value)
		if loc, ok := seen[key]; ok {
			return wishf("-rule %q: the rule at loc %d fits the same packets and comes first", r.written(), loc)
		}
		seen[key] = r.loc
	}
	return nil
}

func (r rule) check(c caps, regular, upper int) error {
	if r.action >= regular+upper {
		return wishf("action %d: queues are 0 to %d, or -1 to drop", r.action, regular+upper-1)
	}
	for _, need := range []struct {
		on   bool
		what string
		can  field
	}{
		{r.flow.version != 0 && !c.outerVer, "the EtherType", ftFieldOuterEtherType},
		{r.flow.proto != 0, "the IP protocol", ftFieldOuterIpProtocol},
		{r.tag() != field{}, "VLAN tags", ftFieldOuterFirstVid},
	} {
		if need.on && !need.can.on(c.matchable[:]) {
			return wishf("flow-type %s: the device cannot match %s", r.flow.name, need.what)
		}
	}
	for _, t := range r.terms {
		for _, p := range t.word.pieces {
			switch m := t.mask.part(p.low, p.width()); {
			case m == 0:
			case !p.can.on(c.matchable[:]):
				return wishf("%s: the device cannot match it", t.word.name)
			case uint(bits.OnesCount32(m)) != p.width() && !p.can.on(c.maskable[:]):
				return wishf("%s: the device matches it whole or not at all, not with this mask", t.word.name)
			}
		}
	}
	return nil
}

// placeRules gives every rule a location and sorts them by it.
func placeRules(rules []rule) ([]rule, error) {
	var taken [maxRules]bool
	out := slices.Clone(rules)
	for _, r := range out {
		if r.loc == anyLoc {
			continue
		}
		if taken[r.loc] {
			return nil, wishf("-rule: loc %d is given twice", r.loc)
		}
		taken[r.loc] = true
	}
	next := maxRules - 1
	for i := range out {
		if out[i].loc != anyLoc {
			continue
		}
		for next >= 0 && taken[next] {
			next--
		}
		if next < 0 {
			return nil, wishf("-rule: %d rules: there is room for %d", len(rules), maxRules)
		}
		out[i].loc, out[i].placed, taken[next] = next, true, true
	}
	slices.SortFunc(out, func(a, b rule) int { return cmp.Compare(a.loc, b.loc) })
	return out, nil
}

// ruleGroup is a run of locations whose rules look at the same bits.
type ruleGroup struct {
	first, last uint32
	mask        []byte
}

// groupRules cuts 2^log entries into groups for rules, which are sorted: one entry
// a location, so that the order of entries is that of locations. A group reaches up
// to where the next begins, and its spare entries take further rules of its kind
// without a change of groups. That of two groups the one with the lower entries is
// looked at first is what Linux relies on too. Every group costs the device a look-up:
// rules of one kind do best side by side.
func groupRules(rules []rule, log uint8, byVersion bool) (out []ruleGroup) {
	for _, r := range rules {
		mask, _ := r.match(byVersion)
		if n := len(out); n > 0 {
			if slices.Equal(out[n-1].mask, mask) {
				continue
			}
			out[n-1].last = uint32(r.loc) - 1
		}
		out = append(out, ruleGroup{uint32(r.loc), 1<<log - 1, mask})
	}
	if len(out) > 0 {
		out[0].first = 0
	}
	return out
}

// written is the rule as its user wrote it: without a location that we chose.
func (r rule) written() rule {
	if r.placed {
		r.loc = anyLoc
	}
	return r
}

// String writes a rule as parseRule reads it.
func (r rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flow-type %s", r.flow.name)
	for _, t := range r.terms {
		fmt.Fprintf(&b, " %s %s", t.word.name, t.word.format(t.word.form, t.value))
		if ignore := ones(t.word.bits).without(t.mask); ignore != (ruleValue{}) {
			fmt.Fprintf(&b, " m %s", t.word.format(t.word.maskForm(), ignore))
		}
	}
	fmt.Fprintf(&b, " action %d", r.action)
	if r.loc != anyLoc {
		fmt.Fprintf(&b, " loc %d", r.loc)
	}
	return b.String()
}

// maskForm is how a mask is written: a number's in hex.
func (w *ruleWord) maskForm() ruleForm {
	if w.form == formDecimal {
		return formHex
	}
	return w.form
}

func (w *ruleWord) format(form ruleForm, v ruleValue) string {
	switch form {
	case formMAC:
		return net.HardwareAddr(v[10:]).String()
	case formIP:
		a, _ := netip.AddrFromSlice(v[16-w.bits/8:])
		return a.String()
	case formHex:
		return fmt.Sprintf("%#x", binary.BigEndian.Uint64(v[8:]))
	}
	return strconv.FormatUint(binary.BigEndian.Uint64(v[8:]), 10)
}

// formatRules is the form of ethtool -n: all rules by location, and of each also
// what it does not look at.
func formatRules(rules []rule, queues int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d RX rings available\nTotal %d rules\n", queues, len(rules))
	for _, r := range rules {
		kind := "Rule Type"
		if r.flow.version == 0 {
			kind = "Flow Type"
		}
		fmt.Fprintf(&b, "\nFilter: %d\n\t%s: %s\n", r.loc, kind, r.flow.title)
		for i := range r.flow.words {
			if w := &r.flow.words[i]; w.label != "" && (r.extends(w) || r.isBasic(w)) {
				v, m := r.termOf(w)
				fmt.Fprintf(&b, "\t%s: %s mask: %s\n", w.label, shown(w, w.format(w.form, v)), shown(w, w.format(w.maskForm(), m)))
			}
		}
		if r.action == ruleDrop {
			b.WriteString("\tAction: Drop\n")
		} else {
			fmt.Fprintf(&b, "\tAction: Direct to queue %d\n", r.action)
		}
	}
	return b.String()
}

// shown is a value as ethtool shows it: what is Ethernet's in capitals.
func shown(w *ruleWord, s string) string {
	switch {
	case w.form == formMAC:
		return strings.ToUpper(s)
	case w.name == wordProto:
		return "0x" + strings.ToUpper(s[2:])
	}
	return s
}

// isBasic reports whether a word belongs to the flow type itself and is always
// shown.
func (r rule) isBasic(w *ruleWord) bool {
	return w.name != wordMAC && !slices.ContainsFunc(tagWords, func(x ruleWord) bool { return x.name == w.name })
}

// extends reports whether a word is one of an extension that the rule uses: the
// tag's stand or fall together.
func (r rule) extends(w *ruleWord) bool {
	if w.name == wordMAC {
		return slices.ContainsFunc(r.terms, func(t ruleTerm) bool { return t.word.name == wordMAC })
	}
	return !r.isBasic(w) && r.tag() != field{}
}

// termOf is what a rule says about a word: value, and bits ignored.
func (r rule) termOf(w *ruleWord) (value, ignored ruleValue) {
	for _, t := range r.terms {
		if t.word.name == w.name {
			return t.value, ones(w.bits).without(t.mask)
		}
	}
	return ruleValue{}, ones(w.bits)
}
