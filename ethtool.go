package main

// ethtool.go owns the NIC in ethtool's words: who it is, its rings, channels and
// link. It changes nothing by itself; numbers come from nic.go and its parts.
// Names are those that ethtool prints for mlx5.

import "fmt"

// driverInfo is what ethtool -i shows.
type driverInfo struct {
	driver   string
	version  string
	firmware string // with the board's PSID, as mlx5 shows it
	bus      string
}

func (n *nic) driverInfo() driverInfo {
	return driverInfo{"mlx5d", version, fmt.Sprintf("%s (%s)", n.version, n.psid), n.dev.name()}
}

// ringInfo is what ethtool -g shows, in entries.
type ringInfo struct{ rxMax, txMax, rx, tx int }

func (n *nic) ringInfo() ringInfo {
	most := min(maxRing, 1<<n.caps.logMaxWQ)
	return ringInfo{most, most, 1 << n.params.logRQ, 1 << n.params.logSQ}
}

// channelInfo is what ethtool -l shows.
type channelInfo struct{ combinedMax, combined int }

func (n *nic) channelInfo() channelInfo {
	return channelInfo{mostQueues(n.caps, n.dev.vectors()), n.params.queues}
}

// linkInfo is the part of ethtool without flags that a reader looks for first.
type linkInfo struct {
	speed int // Mbit/s, 0 is unknown
	up    bool
}

// linkInfo asks the port. A VF is not told the port's speed.
func (n *nic) linkInfo() (linkInfo, error) {
	l := linkInfo{up: n.control.linkUp.Load()}
	if !n.port.owner || !l.up {
		return l, nil
	}
	var err error
	l.speed, err = n.port.speed()
	return l, err
}

// describe is one line about an open NIC, as key and value pairs.
func (n *nic) describe() ([]any, error) {
	link, err := n.linkInfo()
	if err != nil {
		return nil, err
	}
	i, r, c := n.driverInfo(), n.ringInfo(), n.channelInfo()
	speed := "unknown"
	if link.speed > 0 {
		speed = fmt.Sprintf("%dMb/s", link.speed)
	}
	return []any{"bus-info", i.bus, "firmware-version", i.firmware, "address", n.mac.String(),
		"link", map[bool]string{true: "yes", false: "no"}[link.up], "speed", speed, "mtu", n.params.mtu,
		"combined", fmt.Sprintf("%d/%d", c.combined, c.combinedMax), "rx", r.rx, "tx", r.tx,
		"promisc", n.params.promisc, "rx-ring-memory-KiB", n.ringMemory() >> 10}, nil
}
