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
// What the filter does not let through is dropped by the device and counted
// there (rx_steer_missed_packets).

import (
	"encoding/binary"
	"fmt"
	"net"
)

const (
	hashAddrs = hashSrcIP | hashDstIP
	hashPorts = hashAddrs | hashSrcPort | hashDstPort

	ipTCP = 6
	ipUDP = 17
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
	filter uint32 // the first table
	spread uint32
	groups [3]uint32 // of the filter: address, multicast bit, all
	mac    [6]byte
	next   uint32 // free entry of the address group
}

// Entries of the filter table.
const (
	filterLog    = 7
	filterMulti  = 1<<filterLog - 2 // the one multicast entry
	filterAll    = 1<<filterLog - 1 // the one catch-all entry
	filterUnused = ^uint32(0)
	spreadLog    = 4
	filterLevel  = 0
	spreadLevel  = 1
)

// matchFor returns mask and value of a class in the spread table. A device that
// cannot match the IP version is shown the EtherType instead.
func matchFor(c rssClass, byVersion bool) (mask, value []byte) {
	mask, value = make([]byte, matchOuter.n), make([]byte, matchOuter.n)
	g := spreadGroups[c.group]
	if g.version && byVersion {
		l2l4IpVersion.set(mask, 0xf)
		l2l4IpVersion.set(value, uint32(c.version))
	} else if g.version {
		l2l4Ethertype.set(mask, 0xffff)
		l2l4Ethertype.set(value, map[uint8]uint32{4: ethIPv4, 6: ethIPv6}[c.version])
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

// newSteering builds TIRs and tables in front of receive queues rqns and makes
// the filter the root. Nothing passes the filter yet: see setFilter.
func newSteering(fw firmware, c caps, td uint32, rqns []uint32, rqtSize int, mac [6]byte, u *undo) (*steering, error) {
	s := &steering{fw: fw, mac: mac}
	rqt, err := fw.createRQT(queueSpread(rqns, rqtSize))
	if err != nil {
		return nil, fmt.Errorf("indirection table: %w", err)
	}
	u.add("indirection table", func() error { return fw.destroy(opDestroyRQT, rqt) })
	if s.spread, err = fw.createFlowTable(spreadLevel, spreadLog, 0); err != nil {
		return nil, fmt.Errorf("spread table: %w", err)
	}
	u.add("spread table", func() error { return fw.destroyFlowTable(s.spread) })
	if err := s.addClasses(c, td, rqt, u); err != nil {
		return nil, err
	}
	if s.filter, err = fw.createFlowTable(filterLevel, filterLog, 0); err != nil {
		return nil, fmt.Errorf("filter table: %w", err)
	}
	u.add("filter table", func() error { return fw.destroyFlowTable(s.filter) })
	if err := s.addFilterGroups(u); err != nil {
		return nil, err
	}
	if c.setRoot {
		if err := fw.setFlowTableRoot(s.filter); err != nil {
			return nil, fmt.Errorf("filter table as root: %w", err)
		}
	}
	return s, nil
}

// addClasses creates a TIR, and a rule that leads to it, for every class.
func (s *steering) addClasses(c caps, td, rqt uint32, u *undo) error {
	group, last := uint32(0), -1
	for i, class := range rssClasses {
		if class.frag && !c.outerFrag {
			continue
		}
		tir, err := s.fw.createTIR(td, rqt, class.hash, symmetricKey[:], false)
		if err != nil {
			return fmt.Errorf("TIR for %s: %w", class.name, err)
		}
		u.add("TIR", func() error { return s.fw.destroy(opDestroyTIR, tir) })
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
		if err := s.fw.setFlowEntry(s.spread, group, uint32(i), value, destTIR, tir); err != nil {
			return fmt.Errorf("rule for %s: %w", class.name, err)
		}
		u.add("rule", func() error { return s.fw.deleteFlowEntry(s.spread, uint32(i)) })
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
// else its own address, broadcast, and all multicast.
func (s *steering) setFilter(promisc bool, u *undo) error {
	rules := []struct {
		what  string
		group int
		index uint32
		mac   [6]byte
		on    bool
	}{
		{"all frames", 2, filterAll, [6]byte{}, promisc},
		{"own address", 0, 0, s.mac, true},
		{"broadcast", 0, 1, [6]byte{255, 255, 255, 255, 255, 255}, true},
		{"multicast", 1, filterMulti, [6]byte{1, 0, 0, 0, 0, 0}, true},
	}
	for _, r := range rules {
		if !r.on {
			continue
		}
		if err := s.fw.setFlowEntry(s.filter, s.groups[r.group], r.index, macMatch(r.mac), destTable, s.spread); err != nil {
			return fmt.Errorf("filter for %s: %w", r.what, err)
		}
		u.add("filter for "+r.what, func() error { return s.fw.deleteFlowEntry(s.filter, r.index) })
	}
	return nil
}
