package model

// walk.go owns the way of a received frame through the flow tables: match
// parameters from headers, groups with masks, entries, and what they do. It
// changes nothing but its own compiled copies; cmd_steer.go owns the rules.
// Manual: chapter "Flow steering", flow group and flow entry contexts.
//
// A table's groups are tried in order of their first index, and the first hit
// wins. Without one the miss action counts. No walk takes more than stepsMax
// tables, so rules that lead in a circle end as a miss.

import "slices"

const (
	stepsMax   = 128
	matchWords = 128 // fte_match_param, in words
	setWords   = 16  // words of each set of parameters in it
	setOuter   = 0   // fte_match_param.outer_headers, in sets
	setMisc    = 1   // fte_match_param.misc_parameters, in sets
	setInner   = 2   // fte_match_param.inner_headers, in sets
)

// Bits of words of fte_match_set_lyr_2_4.
const (
	bitCVLAN     = 1 << 15 // fte_match_set_lyr_2_4.cvlan_tag
	bitSVLAN     = 1 << 14 // fte_match_set_lyr_2_4.svlan_tag
	bitFrag      = 1 << 13 // fte_match_set_lyr_2_4.frag
	shiftVersion = 9       // fte_match_set_lyr_2_4.ip_version
	shiftProto   = 24      // fte_match_set_lyr_2_4.ip_protocol
	shiftTOS     = 16      // fte_match_set_lyr_2_4.ip_ecn
	shiftL4Type  = 30      // fte_match_set_lyr_2_4.l4_type
	shiftIHL     = 12      // fte_match_set_lyr_2_4.ipv4_ihl
	l4TypeTCP    = 0x1     // flow_misc.MLX5_PACKET_L4_TYPE_TCP
	l4TypeUDP    = 0x2     // flow_misc.MLX5_PACKET_L4_TYPE_UDP
)

// matchParam is a packet's fte_match_param as words.
type matchParam [matchWords]uint32

// matchProgram is a flow group, compiled: the words of its mask that matter
// and its entries by hash of the masked words.
type matchProgram struct {
	rev    uint64
	words  []matchWord
	slots  []*flowEntry // open addressing, a power of two; nil is free
	values []uint32     // len(words) for each slot
}

type matchWord struct {
	index uint32
	mask  uint32
}

// steerState is what the walk knows of all tables.
type steerState struct {
	rev  uint64
	root *flowTable
	need uint8 // match sets that some group looks at
	open bool  // some way leads from the root to a TIR
	live int   // tables there were: a reset takes them away without a command
}

// rxDest is one place that a frame goes to.
type rxDest struct {
	tir   *tir
	tag   uint32
	frame []byte // nil where the frame is unchanged
	rq    *rq    // chosen by the TIR
	hash  uint32
	kind  uint8 // hash type
	sure  bool  // the queue has a buffer for it: looked up already
}

// learnTables finds the root and what needs parsing. A function that can set
// its root starts nowhere before it did; another starts at the lowest level.
func (d *Device) learnTables() {
	s := &d.work.steer
	if s.rev == d.steerRev+1 && s.live == d.tables.live {
		return
	}
	*s = steerState{rev: d.steerRev + 1, live: d.tables.live, root: d.tables.get(d.rootRX)}
	if s.root != nil && (d.rootRX == 0 || s.root.kind != tableNICRX) {
		s.root = nil
	}
	implicit := d.rootRX == 0 && !ftpModifyRoot.on(d.tableCap(tableNICRX))
	for _, t := range d.tables.list {
		if t.kind != tableNICRX {
			continue
		}
		for _, g := range t.groups {
			s.need |= g.enable
		}
		if implicit && (s.root == nil || t.level < s.root.level) {
			s.root = t
		}
	}
	s.open = d.leadsOn(s.root, map[*flowTable]bool{})
}

// leadsOn reports whether any frame can get from t to a TIR.
func (d *Device) leadsOn(t *flowTable, seen map[*flowTable]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	for _, g := range t.groups {
		for _, e := range g.entries {
			if e.action&actionForward == 0 {
				continue
			}
			for _, x := range e.dests {
				if x.kind == destTIR || x.kind == destTable && d.leadsOn(d.tables.get(x.id), seen) {
					return true
				}
			}
		}
	}
	return t.missAction == missForward && d.leadsOn(d.tables.get(t.missTable), seen)
}

// walk finds where the frame in d.work.pkt goes: destinations and the entries
// that were hit, both in d.work. verdict says why there is none.
func (d *Device) walk() (verdict walkVerdict) {
	w := &d.work
	w.hits, w.dests = w.hits[:0], w.dests[:0]
	d.learnTables()
	if w.steer.root == nil {
		return walkMiss
	}
	w.match.fill(&w.pkt, w.steer.need)
	steps := stepsMax
	return d.walkTable(w.steer.root, 0, nil, &steps)
}

// walkVerdict is how a walk ended.
type walkVerdict uint8

const (
	walkMiss walkVerdict = iota // nothing matched, or it led nowhere
	walkDrop                    // an entry said drop
	walkHit                     // there are destinations
)

// walkTable follows one table and what it leads to.
func (d *Device) walkTable(t *flowTable, tag uint32, frame []byte, steps *int) walkVerdict {
	for t != nil && t.kind == tableNICRX && *steps > 0 {
		*steps--
		e := d.lookup(t)
		if e == nil {
			if t.missAction != missForward {
				return walkMiss
			}
			t = d.tables.get(t.missTable)
			continue
		}
		d.work.hits = append(d.work.hits, e)
		if e.tag != 0 {
			tag = e.tag
		}
		if e.action&(actionPopVLAN|actionPopVLAN2|actionPushVLAN|actionPushVLAN2) != 0 {
			frame = d.changeTags(e)
		}
		if e.action&actionDrop != 0 {
			return walkDrop
		}
		if e.action&actionForward == 0 {
			return walkMiss
		}
		if len(e.dests) != 1 || e.dests[0].kind != destTable {
			return d.follow(e, tag, frame, steps)
		}
		t = d.tables.get(e.dests[0].id)
	}
	return walkMiss
}

// follow goes to every destination of e.
func (d *Device) follow(e *flowEntry, tag uint32, frame []byte, steps *int) walkVerdict {
	verdict := walkMiss
	for _, dest := range e.dests {
		switch dest.kind {
		case destTIR:
			if t := d.tirs.get(dest.id); t != nil {
				verdict = max(verdict, d.aim(t, tag, frame))
			}
		case destTable:
			verdict = max(verdict, d.walkTable(d.tables.get(dest.id), tag, frame, steps))
		}
	}
	return verdict
}

// aim adds the queue that t picks to the destinations.
func (d *Device) aim(t *tir, tag uint32, frame []byte) walkVerdict {
	x := rxDest{tir: t, tag: tag, frame: frame}
	var rqn uint32
	rqn, x.hash, x.kind = d.pickRQ(t, &d.work.pkt)
	if x.rq = d.rqs.get(rqn); x.rq == nil {
		return walkMiss
	}
	d.work.dests = append(d.work.dests, x)
	return walkHit
}

// changeTags removes and adds the VLAN tags that e says, and looks at the
// result anew. It works on a copy.
func (d *Device) changeTags(e *flowEntry) []byte {
	p := &d.work.pkt
	f := slices.Clone(p.b)
	for _, pop := range [...]uint16{actionPopVLAN, actionPopVLAN2} {
		if e.action&pop != 0 && len(f) >= 18 && (be16(f, 12) == etherVLAN || be16(f, 12) == etherQinQ) {
			f = slices.Delete(f, 12, 16)
		}
	}
	for i, push := range [...]uint16{actionPushVLAN, actionPushVLAN2} {
		if e.action&push != 0 && len(f) >= 14 {
			f = slices.Insert(f, 12, e.vlan[i][:]...)
		}
	}
	p.parse(f, true)
	d.work.match.fill(p, d.work.steer.need)
	return f
}

// lookup finds the entry of t that the packet hits.
func (d *Device) lookup(t *flowTable) *flowEntry {
	for _, g := range t.groups {
		if len(g.entries) == 0 {
			continue
		}
		if g.prog.rev != d.steerRev+1 {
			g.compile(d.steerRev + 1)
		}
		if e := g.prog.find(&d.work.match); e != nil {
			return e
		}
	}
	return nil
}

// compile prepares g for look-ups.
func (g *flowGroup) compile(rev uint64) {
	p := &g.prog
	p.rev = rev
	p.words = p.words[:0]
	for i := 0; i*4+4 <= len(g.mask) && i < matchWords; i++ {
		if set := i / setWords; g.enable>>set&1 == 0 {
			continue
		}
		if m := be32(g.mask, i*4); m != 0 {
			p.words = append(p.words, matchWord{uint32(i), m})
		}
	}
	size := 2
	for size < 2*len(g.entries) {
		size *= 2
	}
	p.slots = make([]*flowEntry, size)
	p.values = make([]uint32, size*len(p.words))
	for _, e := range g.entries {
		p.put(e)
	}
}

// put adds e; where two entries are equal the lower index wins.
func (p *matchProgram) put(e *flowEntry) {
	var m matchParam
	for i := 0; i*4+4 <= len(e.value) && i < matchWords; i++ {
		m[i] = be32(e.value, i*4)
	}
	n := len(p.words)
	for at := p.home(&m); ; at = (at + 1) & (len(p.slots) - 1) {
		have := p.slots[at]
		if have != nil && !p.equal(at, &m) {
			continue
		}
		if have == nil || e.index < have.index {
			p.slots[at] = e
		}
		for k, w := range p.words {
			p.values[at*n+k] = m[w.index] & w.mask
		}
		return
	}
}

// find returns the entry that m hits, or nil.
func (p *matchProgram) find(m *matchParam) *flowEntry {
	for at := p.home(m); p.slots[at] != nil; at = (at + 1) & (len(p.slots) - 1) {
		if p.equal(at, m) {
			return p.slots[at]
		}
	}
	return nil
}

// home is the slot where the search for m starts.
func (p *matchProgram) home(m *matchParam) int {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range p.words {
		h = (h ^ uint64(m[w.index]&w.mask)) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return int(h) & (len(p.slots) - 1)
}

func (p *matchProgram) equal(at int, m *matchParam) bool {
	values := p.values[at*len(p.words):]
	for k, w := range p.words {
		if values[k] != m[w.index]&w.mask {
			return false
		}
	}
	return true
}

// fill sets the match parameters of p in the sets that need names.
func (m *matchParam) fill(p *packet, need uint8) {
	if need&matchOuter != 0 {
		fillHeaders(m[setOuter*setWords:(setOuter+1)*setWords], p.b, &p.eth, &p.outer)
	}
	if need&matchInner != 0 {
		inner := m[setInner*setWords : (setInner+1)*setWords]
		clear(inner)
		if p.tunnel != tunnelNone {
			fillHeaders(inner, p.b, &p.innerEth, &p.inner)
		}
	}
	if need&matchMisc != 0 {
		fillMisc(m[setMisc*setWords:(setMisc+1)*setWords], p)
	}
}

// fillHeaders sets one fte_match_set_lyr_2_4.
func fillHeaders(m []uint32, b []byte, eth *l2Header, h *l3Header) {
	clear(m)
	m = m[:setWords]
	if eth.at >= 0 && len(b) >= eth.at+14 {
		m[0] = be32(b, eth.at+6)
		m[1] = uint32(be16(b, eth.at+10)) << 16
		m[2] = be32(b, eth.at)
		m[3] = uint32(be16(b, eth.at+4)) << 16
	}
	m[1] |= uint32(eth.etherType)
	if eth.tags > 0 {
		m[3] |= uint32(eth.tci[0])
		if eth.tpid[0] == etherVLAN {
			m[4] |= bitCVLAN
		} else {
			m[4] |= bitSVLAN
		}
	}
	if h.version == 0 {
		return
	}
	m[4] |= uint32(h.proto)<<shiftProto | uint32(h.version)<<shiftVersion
	if h.frag {
		m[4] |= bitFrag
	}
	if h.version == 4 {
		m[4] |= uint32(b[h.l3+1]) << shiftTOS
		m[6] = uint32(b[h.l3]&15)<<shiftIHL | uint32(b[h.l3+8])
		m[11], m[15] = be32(b, h.l3+12), be32(b, h.l3+16)
	} else {
		m[4] |= uint32(be16(b, h.l3)>>4&0xff) << shiftTOS
		m[6] = uint32(b[h.l3+7])
		for i := range 8 {
			m[8+i] = be32(b, h.l3+8+i*4)
		}
	}
	switch {
	case h.isTCP():
		m[4] |= uint32(be16(b, h.l4+12) & 0x1ff)
		m[5] = be32(b, h.l4)
		m[6] |= l4TypeTCP << shiftL4Type
	case h.isUDP():
		m[7] = be32(b, h.l4)
		m[6] |= l4TypeUDP << shiftL4Type
	}
}

// fillMisc sets fte_match_set_misc: second tags and tunnel headers. The source
// of a received frame is the uplink, vport 0 of a function without others.
func fillMisc(m []uint32, p *packet) {
	clear(m)
	m = m[:setWords]
	secondTag(m, &p.eth, 16, 31, 29)
	b, at := p.b, p.at
	if p.tunnel != tunnelNone {
		secondTag(m, &p.innerEth, 0, 30, 28)
	}
	switch p.tunnel {
	case tunnelVXLAN:
		m[5] = be32(b, at+4) &^ 0xff
	case tunnelGENEVE:
		m[6] = be32(b, at+4)&^0xff | uint32(b[at+1]>>7)
		m[9] = uint32(b[at]&0x3f)<<16 | uint32(be16(b, at+2))
	case tunnelGRE:
		flags := uint32(b[at])
		m[0] = flags & (greChecksum | greKey | greSequence) << 24
		m[3] |= uint32(be16(b, at+2))
		if flags&greKey != 0 {
			key := at + 4 + int(flags&greChecksum>>7)*4
			m[4] = be32(b, key)
		}
	}
	flowAndSPI(m, 7, 12, b, &p.outer)
	flowAndSPI(m, 8, 11, b, &p.inner)
}

// secondTag sets prio, cfi and vid of the second tag at shift of word 2, and
// which kind of tag it is in word 3.
func secondTag(m []uint32, h *l2Header, shift, cvlan, svlan uint) {
	if h.tags < 2 {
		return
	}
	m[2] |= uint32(h.tci[1]) << shift
	if h.tpid[1] == etherVLAN {
		m[3] |= 1 << cvlan
	} else {
		m[3] |= 1 << svlan
	}
}

// flowAndSPI sets an IPv6 flow label and an ESP security parameter index.
func flowAndSPI(m []uint32, label, spi int, b []byte, h *l3Header) {
	if h.version == 6 {
		m[label] = be32(b, h.l3) & 0xfffff
	}
	if h.l4 != 0 && h.proto == protoESP {
		m[spi] = be32(b, h.l4)
	}
}

// commitHits counts the frame in the flow counters of the entries it hit.
func (d *Device) commitHits(n int) {
	for _, e := range d.work.hits {
		if e.action&actionCount == 0 {
			continue
		}
		if c := d.fctrs.get(e.counter); c != nil {
			c.packets++
			c.bytes += uint64(n)
		}
	}
}
