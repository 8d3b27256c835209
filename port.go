package main

// port.go owns the port and our vport: MTU, addresses, link, admin state. It
// does not own packets' way through flow tables (steering.go).
// Manual: chapters PMTU, PAOS, PTYS, NIC Vport Context.

import (
	"fmt"
	"net"
)

// port is what stands behind a function: a physical port that a PF may change,
// or only a vport of it.
type port struct {
	fw    firmware
	owner bool // the function may write the port's registers
}

// largestMTU is the port's largest MTU, counted with hardMTU. A VF may not ask
// the port; its vport's MTU is what the host allows it.
func (p port) largestMTU() (int, error) {
	if p.owner {
		most, _, err := p.fw.queryPMTU()
		if err != nil {
			return 0, fmt.Errorf("port MTU: %w", err)
		}
		if most < minMTU+hardMTU {
			return 0, fmt.Errorf("port MTU: the port says that it takes %d bytes at most, no Ethernet port does: reset the card", most)
		}
		return most, nil
	}
	ctx, err := p.fw.queryVport()
	if err != nil {
		return 0, fmt.Errorf("vport MTU: %w", err)
	}
	if mtu := int(vportMtu.get(ctx)); mtu >= minMTU+hardMTU {
		return mtu, nil
	}
	return 1500 + hardMTU, nil
}

// setMTU sets the largest frame, counted with hardMTU, and reads it back: a
// port may take less than it was told.
func (p port) setMTU(mtu int) error {
	if !p.owner {
		return p.vportMTU(mtu)
	}
	if err := p.fw.setPMTU(mtu); err != nil {
		return fmt.Errorf("port MTU %d: %w", mtu-hardMTU, err)
	}
	_, got, err := p.fw.queryPMTU()
	if err != nil {
		return fmt.Errorf("port MTU: %w", err)
	}
	if got < mtu {
		return fmt.Errorf("port MTU: asked for %d, the port took %d", mtu-hardMTU, got-hardMTU)
	}
	return p.vportMTU(mtu)
}

// vportMTU tells the vport.
func (p port) vportMTU(mtu int) error {
	err := p.fw.modifyVport(vportSelectMtu, func(ctx []byte) { vportMtu.set(ctx, uint32(mtu)) })
	if err != nil {
		return fmt.Errorf("vport MTU %d: %w", mtu-hardMTU, err)
	}
	return nil
}

// identity reads the function's address and, where the capability says so, the
// least inline header that send WQEs need.
func (p port) identity() (mac net.HardwareAddr, minInline uint8, err error) {
	ctx, err := p.fw.queryVport()
	if err != nil {
		return nil, 0, fmt.Errorf("vport: %w", err)
	}
	at := vportPermanent.in(ctx)
	mac = append(net.HardwareAddr(nil), at[2:8]...)
	return mac, uint8(vportMinInline.get(ctx)), nil
}

// promiscuous tells the vport that we want every frame. Flow tables decide what
// reaches a queue; this asks a switch in the card to let it come that far.
func (p port) promiscuous(all, allMulti bool, groups [][6]byte) error {
	if !allMulti {
		if err := p.fw.setVportList(vportListMC, groups); err != nil {
			return fmt.Errorf("multicast groups: %w", err)
		}
	}
	err := p.fw.modifyVport(vportSelectPromisc, func(ctx []byte) {
		vportPromiscAll.flag(ctx, all)
		vportPromiscUc.flag(ctx, all)
		vportPromiscMc.flag(ctx, all || allMulti)
	})
	if err != nil {
		return fmt.Errorf("promiscuous mode: %w", err)
	}
	return nil
}

// listAddress tells a switch in the card which address is ours.
func (p port) listAddress(mac net.HardwareAddr) error {
	if err := p.fw.setVportList(vportListUC, [][6]byte{[6]byte(mac)}); err != nil {
		return fmt.Errorf("address list: %w", err)
	}
	return nil
}

// setUp brings the port up or down. A VF's follows its host's.
func (p port) setUp(up bool) error {
	if !p.owner {
		return nil
	}
	status := uint32(portDown)
	if up {
		status = portUp
	}
	if err := p.fw.setPortAdmin(status); err != nil {
		return fmt.Errorf("port up: %w", err)
	}
	return nil
}

// linkSpeeds is megabits a second by PTYS link mode bit, old table and extended.
// Source: chapter PTYS.
var linkSpeeds = [2]map[int]int{
	{0: 1000, 1: 1000, 2: 10000, 3: 10000, 4: 10000, 5: 20000, 6: 40000, 7: 40000, 8: 56000, 12: 10000, 13: 10000, 14: 10000,
		15: 40000, 16: 40000, 18: 50000, 20: 100000, 21: 100000, 22: 100000, 23: 100000, 24: 100, 25: 1000, 26: 10000,
		27: 25000, 28: 25000, 29: 25000, 30: 50000, 31: 50000},
	{0: 100, 1: 1000, 3: 5000, 4: 10000, 5: 40000, 6: 25000, 7: 50000, 8: 50000, 9: 100000, 10: 100000, 11: 100000,
		12: 200000, 13: 200000, 15: 400000, 16: 400000, 19: 800000},
}

// speed is the link's rate in Mbit/s, 0 when it is down or unknown.
func (p port) speed() (int, error) {
	old, ext, err := p.fw.queryLinkModes()
	if err != nil {
		return 0, fmt.Errorf("link speed: %w", err)
	}
	return max(fastest(linkSpeeds[0], old), fastest(linkSpeeds[1], ext)), nil
}

func fastest(speeds map[int]int, modes uint32) (most int) {
	for bit, mbit := range speeds {
		if modes>>bit&1 != 0 {
			most = max(most, mbit)
		}
	}
	return most
}
