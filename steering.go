package main

// steering.go owns where a received packet goes: the filter on destination
// addresses, the spread over queues (RSS) as a table, and the flow tables that
// say both to the device. It does not own receive queues (rxpath.go).
// Manual: chapters Flow Tables, TIR, RQT.
//
// The path of a packet:
//
//	filter table (own MAC | broadcast | multicast | all) -> spread table
//	(fragment? protocol? IP version?) -> TIR (which fields to hash) -> RQT -> RQ
//
// The user's rules, where there are some, come before all that (ruletable.go).
//
// Where control traffic is set apart, a table of what that is stands between the
// two and leads to a receive queue of its own, as does what is not IP at all, or
// says so and was not found to be on a device that matches the IP version. A flood
// of it then costs its own queue's buffers and time, not those of the rest.
//
// Errored frames. Those that are wrong as Ethernet (FCS, length) never come this far:
// the port drops and counts them (rx_crc_errors_phy and the like). Those with a wrong
// IP, TCP or UDP checksum go where their headers lead, since tables match headers
// alone: the match parameters that Linux 6.12 knows have no field for what the checks
// found, nor have the profiles that are emulated the capability. Newer devices
// (ConnectX-6 Dx on) are said to have both; how they count a datagram without a
// checksum is not known here, and a wrong guess would set wanted traffic apart. The
// completion tells on arrival (metadata.go: csumNone), for whoever looks.
//
// What the filter does not let through is dropped by the device and counted
// there (rx_steer_missed_packets). A device that does not count that is led to a
// queue without buffers instead, which does (sink.go).

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
)

const (
	hashAddrs = hashSrcIP | hashDstIP
	hashPorts = hashAddrs | hashSrcPort | hashDstPort
)

// rssClass is one kind of traffic: what it matches in the spread table, and
// what of it is hashed. Classes are tried in order of their group.
type rssClass struct {
	name    string
	group   int   // index into spreadGroups
	version uint8 // 4, 6 or 0 for any
	proto   uint8
	frag    bool
	hash    rssHash
}

// rssClasses is the spread table. Fragments come first and by address alone: a
// fragment but the first has no ports, and all must meet on one queue.
var rssClasses = []rssClass{
	{"ipv4-frag", 0, 4, 0, true, rssHash{0, 0, hashAddrs}},
	{"ipv6-frag", 0, 6, 0, true, rssHash{hashIPv6, 0, hashAddrs}},
	{"tcp4", 1, 4, ipTCP, false, rssHash{0, 0, hashPorts}},
	{"tcp6", 1, 6, ipTCP, false, rssHash{hashIPv6, 0, hashPorts}},
	{"udp4", 1, 4, ipUDP, false, rssHash{0, hashUDP, hashPorts}},
	{"udp6", 1, 6, ipUDP, false, rssHash{hashIPv6, hashUDP, hashPorts}},
	{"ipv4", 2, 4, 0, false, rssHash{0, 0, hashAddrs}},
	{"ipv6", 2, 6, 0, false, rssHash{hashIPv6, 0, hashAddrs}},
	{"other", 3, 0, 0, false, rssHash{0, 0, hashAddrs}},
}

// spreadGroups says what the rules of each group look at.
var spreadGroups = []struct{ version, proto, frag bool }{
	{version: true, frag: true},
	{version: true, proto: true},
	{version: true},
	{},
}

// trapRule is a kind of control traffic. Rules of one group look at the same bits.
type trapRule struct {
	name    string
	group   int
	version uint8 // of IP, 0 for any; then protocol and ports count too
	sport   uint16
	dport   uint16
	ether   uint16
	bridge  bool // to the addresses that no bridge forwards
}

const (
	portBGP = 179
	ethLLDP = 0x88cc
	ethSlow = 0x8809 // slow protocols: LACP, OAM
)

// trapRules are what is set apart: link-local control by EtherType and by address
// (IEEE 802.1D, table 7-10), and BGP in both directions (RFC 4271).
var trapRules = []trapRule{
	{name: "LLDP", group: 0, ether: ethLLDP},
	{name: "slow protocols", group: 0, ether: ethSlow},
	{name: "bridge control", group: 1, bridge: true},
	{name: "BGP to a speaker, IPv4", group: 2, version: 4, dport: portBGP},
	{name: "BGP to a speaker, IPv6", group: 2, version: 6, dport: portBGP},
	{name: "BGP from a speaker, IPv4", group: 3, version: 4, sport: portBGP},
	{name: "BGP from a speaker, IPv6", group: 3, version: 6, sport: portBGP},
}

// match returns mask and value of a rule.
func (r trapRule) match(byVersion bool) (mask, value []byte) {
	mask, value = make([]byte, matchOuter.n), make([]byte, matchOuter.n)
	switch {
	case r.ether != 0:
		l2l4Ethertype.set(mask, 0xffff)
		l2l4Ethertype.set(value, uint32(r.ether))
	case r.bridge: // 01:80:c2:00:00:00 to 0f
		copy(mask, macMatch([6]byte{255, 255, 255, 255, 255, 0xf0}))
		copy(value, macMatch([6]byte{0x01, 0x80, 0xc2}))
	default:
		matchVersion(mask, value, r.version, byVersion)
		l2l4IpProtocol.set(mask, 0xff)
		l2l4IpProtocol.set(value, ipTCP)
		if r.sport != 0 {
			l2l4TcpSport.set(mask, 0xffff)
			l2l4TcpSport.set(value, uint32(r.sport))
		} else {
			l2l4TcpDport.set(mask, 0xffff)
			l2l4TcpDport.set(value, uint32(r.dport))
		}
	}
	return mask, value
}

// matchVersion sets mask and value for an IP version. A device that cannot match
// that is shown the EtherType instead.
func matchVersion(mask, value []byte, version uint8, byVersion bool) {
	if byVersion {
		l2l4IpVersion.set(mask, 0xf)
		l2l4IpVersion.set(value, uint32(version))
		return
	}
	l2l4Ethertype.set(mask, 0xffff)
	l2l4Ethertype.set(value, map[uint8]uint32{4: ethIPv4, 6: ethIPv6}[version])
}

// symmetricKey makes the Toeplitz hash the same for both directions of a
// connection, on every device: the key repeats every 16 bits, so that swapping
// source and destination changes nothing (Woo and Park, 2012).
var symmetricKey = func() (k [40]byte) {
	for i := range k {
		k[i] = [2]byte{0x6d, 0x5a}[i&1]
	}
	return k
}()

// steering is what stands in the device now.
type steering struct {
	fw     firmware
	filter uint32 // the first table but for the user's rules
	spread uint32
	first  uint32    // where the filter leads: the trap table or the spread table
	groups [3]uint32 // of the filter: address, multicast bit, all
	mac    [6]byte
	tables []*queueTable // every way to a receive queue goes through one of them
	missed *sink         // takes what the filter does not let through; nil where the device counts that
	lost   uint32        // TIR that leads there
}

// queueTable is an indirection table and what stands in it now.
type queueTable struct {
	n    uint32 // RQTN
	rqns []uint32
}

// Entries of the filter table.
const (
	filterLog   = 7
	filterMulti = 1<<filterLog - 2 // the one multicast entry
	filterAll   = 1<<filterLog - 1 // the one catch-all entry
	spreadLog   = 4
	trapLog     = 4
	rulesLevel  = 0 // kept free where there are none: they may come later
	filterLevel = 1
	trapLevel   = 2
	spreadLevel = 3
)

// spreadTo says which receive queues packets go to.
type spreadTo struct {
	td      uint32
	rqns    []uint32 // spread over by hash
	rqtSize int
	trap    bool // control traffic goes to trapRQ
	trapRQ  uint32
	missed  *sink // what no table wants; nil where the device counts it by itself
}

// matchFor returns mask and value of a class in the spread table.
func matchFor(c rssClass, byVersion bool) (mask, value []byte) {
	mask, value = make([]byte, matchOuter.n), make([]byte, matchOuter.n)
	g := spreadGroups[c.group]
	if g.version {
		matchVersion(mask, value, c.version, byVersion)
	}
	if g.proto {
		l2l4IpProtocol.set(mask, 0xff)
		l2l4IpProtocol.set(value, uint32(c.proto))
	}
	if g.frag {
		l2l4Frag.set(mask, 1)
		l2l4Frag.flag(value, c.frag)
	}
	return mask, value
}

// queueSpread fills an indirection table of n entries with the queues in turn.
func queueSpread(rqns []uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = rqns[i%len(rqns)]
	}
	return out
}

// newSteering builds TIRs and tables in front of receive queues. Nothing passes
// the filter yet (setFilter), and no packet meets it before it is the root
// (ruletable.go).
func newSteering(fw firmware, c caps, to spreadTo, mac [6]byte, u *undo) (*steering, error) {
	s := &steering{fw: fw, mac: mac, missed: to.missed}
	rqt, err := s.addTable(queueSpread(to.rqns, to.rqtSize), u)
	if err != nil {
		return nil, err
	}
	if s.spread, err = fw.createFlowTable(spreadLevel, spreadLog, 0); err != nil {
		return nil, fmt.Errorf("spread table: %w", err)
	}
	u.add("spread table", func() error { return fw.destroyFlowTable(s.spread) })
	trap := noTIR
	if to.trap {
		if trap, err = s.directTIR(to.td, to.trapRQ, u); err != nil {
			return nil, fmt.Errorf("control traffic: %w", err)
		}
	}
	if err := s.addClasses(c, to.td, rqt, trap, u); err != nil {
		return nil, err
	}
	if to.missed != nil {
		if s.lost, err = s.directTIR(to.td, to.missed.rqn, u); err != nil {
			return nil, fmt.Errorf("what is not for us: %w", err)
		}
	}
	s.first = s.spread
	if to.trap {
		if err := s.addTrap(c, trap, u); err != nil {
			return nil, fmt.Errorf("control traffic: %w", err)
		}
	}
	if s.filter, err = fw.createFlowTable(filterLevel, filterLog, 0); err != nil {
		return nil, fmt.Errorf("filter table: %w", err)
	}
	u.add("filter table", func() error { return fw.destroyFlowTable(s.filter) })
	if err := s.addFilterGroups(u); err != nil {
		return nil, err
	}
	return s, nil
}

// addTable makes an indirection table.
func (s *steering) addTable(rqns []uint32, u *undo) (rqt uint32, err error) {
	if rqt, err = s.fw.createRQT(rqns); err != nil {
		return 0, fmt.Errorf("indirection table: %w", err)
	}
	s.tables = append(s.tables, &queueTable{rqt, rqns})
	u.add("indirection table", func() error {
		s.tables = slices.DeleteFunc(s.tables, func(t *queueTable) bool { return t.n == rqt })
		return s.fw.destroy(opDestroyRQT, rqt)
	})
	return rqt, nil
}

// directTIR makes a TIR in front of one receive queue, through a table of one
// entry, so that redirect can lead it elsewhere.
func (s *steering) directTIR(td, rqn uint32, u *undo) (tir uint32, err error) {
	rqt, err := s.addTable([]uint32{rqn}, u)
	if err != nil {
		return 0, err
	}
	if tir, err = s.fw.createTIR(td, rqt, rssHash{fields: hashAddrs}, symmetricKey[:]); err != nil {
		return 0, fmt.Errorf("TIR: %w", err)
	}
	u.add("TIR", func() error { return s.fw.destroy(opDestroyTIR, tir) })
	return tir, nil
}

// redirect leads every packet that goes to a receive queue that moves names to the
// queue that it names for it. A table changes as a whole; when one cannot, those
// before it have changed and those behind it have not.
func (s *steering) redirect(moves map[uint32]uint32) error {
	for _, t := range s.tables {
		rqns, changed := make([]uint32, len(t.rqns)), false
		for i, n := range t.rqns {
			rqns[i] = n
			if to, ok := moves[n]; ok {
				rqns[i], changed = to, true
			}
		}
		if !changed {
			continue
		}
		if err := s.fw.modifyRQT(t.n, rqns); err != nil {
			return fmt.Errorf("indirection table: %w", err)
		}
		t.rqns = rqns
	}
	return nil
}

// leadsTo reports whether packets go to a queue that moves leads to.
func (s *steering) leadsTo(moves map[uint32]uint32) bool {
	for _, to := range moves {
		for _, t := range s.tables {
			if slices.Contains(t.rqns, to) {
				return true
			}
		}
	}
	return false
}

// noTIR is where nothing is set apart.
const noTIR = ^uint32(0)

// addTrap builds the table that leads control traffic to a TIR and all else to the
// spread table.
func (s *steering) addTrap(c caps, tir uint32, u *undo) (err error) {
	if s.first, err = s.fw.createFlowTable(trapLevel, trapLog, 0); err != nil {
		return err
	}
	u.add("table of control traffic", func() error { return s.fw.destroyFlowTable(s.first) })
	group, last := uint32(0), -1
	for i, r := range trapRules {
		mask, value := r.match(c.outerVer)
		if r.group != last {
			end := i
			for end+1 < len(trapRules) && trapRules[end+1].group == r.group {
				end++
			}
			if group, err = s.addGroup(s.first, uint32(i), uint32(end), mask, u); err != nil {
				return fmt.Errorf("rules for %s: %w", r.name, err)
			}
			last = r.group
		}
		if err := s.addRule(s.first, group, uint32(i), value, destTIR, tir, u); err != nil {
			return fmt.Errorf("rule for %s: %w", r.name, err)
		}
	}
	all := uint32(len(trapRules))
	if group, err = s.addGroup(s.first, all, all, nil, u); err != nil {
		return err
	}
	return s.addRule(s.first, group, all, make([]byte, matchOuter.n), destTable, s.spread, u)
}

// addRule writes a rule that undo takes back.
func (s *steering) addRule(table, group, index uint32, value []byte, destType, dest uint32, u *undo) error {
	if err := s.fw.setFlowEntry(table, group, index, value, destType, dest); err != nil {
		return err
	}
	u.add("rule", func() error { return s.fw.deleteFlowEntry(table, index) })
	return nil
}

// addClasses creates a TIR, and a rule that leads to it, for every class. What is
// not IP goes to trap where there is one.
func (s *steering) addClasses(c caps, td, rqt, trap uint32, u *undo) error {
	group, last := uint32(0), -1
	for i, class := range rssClasses {
		if class.frag && !c.outerFrag {
			continue
		}
		tir, err := trap, error(nil)
		if tir == noTIR || class.group != len(spreadGroups)-1 {
			if tir, err = s.fw.createTIR(td, rqt, class.hash, symmetricKey[:]); err != nil {
				return fmt.Errorf("TIR for %s: %w", class.name, err)
			}
			u.add("TIR", func() error { return s.fw.destroy(opDestroyTIR, tir) })
		}
		mask, value := matchFor(class, c.outerVer)
		if class.group != last {
			end := i
			for end+1 < len(rssClasses) && rssClasses[end+1].group == class.group {
				end++
			}
			if group, err = s.addGroup(s.spread, uint32(i), uint32(end), mask, u); err != nil {
				return fmt.Errorf("rules for %s: %w", class.name, err)
			}
			last = class.group
		}
		if err := s.addRule(s.spread, group, uint32(i), value, destTIR, tir, u); err != nil {
			return fmt.Errorf("rule for %s: %w", class.name, err)
		}
	}
	return nil
}

// addGroup creates a flow group over an all-zero mask or a real one.
func (s *steering) addGroup(table, first, last uint32, mask []byte, u *undo) (uint32, error) {
	if allZero(mask) {
		mask = nil
	}
	g, err := s.fw.createFlowGroup(table, first, last, mask)
	if err != nil {
		return 0, err
	}
	u.add("flow group", func() error { return s.fw.destroyFlowGroup(table, g) })
	return g, nil
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// addFilterGroups lays out the filter table: addresses, multicast bit, all.
func (s *steering) addFilterGroups(u *undo) error {
	spans := [3][2]uint32{{0, filterMulti - 1}, {filterMulti, filterMulti}, {filterAll, filterAll}}
	for i, mac := range []net.HardwareAddr{{255, 255, 255, 255, 255, 255}, {1, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}} {
		var err error
		if s.groups[i], err = s.addGroup(s.filter, spans[i][0], spans[i][1], macMatch([6]byte(mac)), u); err != nil {
			return fmt.Errorf("filter group: %w", err)
		}
	}
	return nil
}

// macMatch is a mask or value over the destination address.
func macMatch(mac [6]byte) []byte {
	b := make([]byte, matchOuter.n)
	l2l4DmacHi.set(b, binary.BigEndian.Uint32(mac[:4]))
	l2l4DmacLo.set(b, uint32(binary.BigEndian.Uint16(mac[4:])))
	return b
}

// setFilter lets through what the appliance shall see: everything when promisc,
// else its own address, broadcast, and all multicast or only the groups given.
func (s *steering) setFilter(promisc, allMulti bool, groups [][6]byte, u *undo) error {
	type rule struct {
		what  string
		group int
		index uint32
		mac   [6]byte
		on    bool
	}
	rules := []rule{
		{"all frames", 2, filterAll, [6]byte{}, promisc},
		{"own address", 0, 0, s.mac, true},
		{"broadcast", 0, 1, [6]byte{255, 255, 255, 255, 255, 255}, true},
		{"multicast", 1, filterMulti, [6]byte{1, 0, 0, 0, 0, 0}, allMulti},
	}
	for i, mac := range groups {
		rules = append(rules, rule{"a multicast group", 0, uint32(2 + i), mac, !allMulti})
	}
	for _, r := range rules {
		if !r.on {
			continue
		}
		if err := s.fw.setFlowEntry(s.filter, s.groups[r.group], r.index, macMatch(r.mac), destTable, s.first); err != nil {
			return fmt.Errorf("filter for %s: %w", r.what, err)
		}
		u.add("filter for "+r.what, func() error { return s.fw.deleteFlowEntry(s.filter, r.index) })
	}
	if promisc || s.missed == nil {
		return nil
	}
	if err := s.addRule(s.filter, s.groups[2], filterAll, macMatch([6]byte{}), destTIR, s.lost, u); err != nil {
		return fmt.Errorf("filter for the rest: %w", err)
	}
	return nil
}
