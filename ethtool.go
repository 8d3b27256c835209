package main

// ethtool.go owns the NIC in ethtool's words: who it is, its rings, channels and
// link. It changes nothing by itself; numbers come from nic.go and its parts.
// Names are those that ethtool prints for mlx5.

import (
	"fmt"
	"strings"
)

// privFlag is one private flag (ethtool --show-priv-flags), in Linux's order.
type privFlag struct {
	name  string
	field func(*privFlags) *bool
	// refuse says why the device cannot have the flag on; "" is that it can.
	refuse func(c caps) string
	// live flags can be changed while packets flow; others take effect at start.
	live bool
}

// canMPWQE is the condition of both flags for multi-packet send WQEs.
func canMPWQE(c caps) string {
	switch {
	case !c.mpw:
		return "the device has no enhanced multi-packet send WQE"
	case c.inlineMode != inlineNone:
		return "the device needs packet headers inline in each send WQE"
	}
	return ""
}

// unless refuses with text when a capability is missing.
func unless(has func(caps) bool, text string) func(caps) string {
	return func(c caps) string {
		if has(c) {
			return ""
		}
		return text
	}
}

var privFlagTable = []privFlag{
	{"rx_cqe_moder", func(f *privFlags) *bool { return &f.rxCQEModer },
		unless(func(c caps) bool { return c.fromCQE }, "the device cannot start moderation at the completion"), false},
	{"tx_cqe_moder", func(f *privFlags) *bool { return &f.txCQEModer },
		unless(func(c caps) bool { return c.fromCQE }, "the device cannot start moderation at the completion"), false},
	{"rx_cqe_compress", func(f *privFlags) *bool { return &f.rxCompress },
		unless(func(c caps) bool { return c.compress }, "the device does not compress completions"), false},
	{"rx_striding_rq", func(f *privFlags) *bool { return &f.rxStriding },
		unless(func(c caps) bool { return c.striding && c.strideMin }, "the device has no multi-packet receive WQE of small strides"), false},
	{"rx_no_csum_complete", func(f *privFlags) *bool { return &f.rxNoCsumComplete },
		unless(func(c caps) bool { return c.csum }, "the device does not sum packets"), false},
	{"xdp_tx_mpwqe", func(f *privFlags) *bool { return &f.xdpTxMPWQE }, canMPWQE, true},
	{"skb_tx_mpwqe", func(f *privFlags) *bool { return &f.skbTxMPWQE }, canMPWQE, true},
}

// findPrivFlag looks a flag up by name.
func findPrivFlag(name string) (privFlag, error) {
	var names []string
	for _, f := range privFlagTable {
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	return privFlag{}, wishf("private flag %q: there is %s", name, strings.Join(names, ", "))
}

// choosePrivFlags starts from the defaults and applies what the user wants.
func choosePrivFlags(c caps, wanted map[string]bool) (out privFlags, err error) {
	out = defaultFlags(c)
	for name, on := range wanted {
		f, err := findPrivFlag(name)
		if err != nil {
			return out, err
		}
		if why := f.refuse(c); on && why != "" {
			return out, wishf("private flag %s: %s", name, why)
		}
		*f.field(&out) = on
	}
	return out, nil
}

// setPrivFlag changes a flag of a running NIC. The channels take the new setting
// over between two bursts, so that no packet is lost or reordered. One goroutine
// may call it at a time.
func (n *nic) setPrivFlag(name string, on bool) error {
	f, err := findPrivFlag(name)
	if err != nil {
		return err
	}
	if why := f.refuse(n.caps); on && why != "" {
		return wishf("private flag %s: %s", name, why)
	}
	if *f.field(&n.params.flags) == on {
		return nil
	}
	if !f.live {
		return wishf("private flag %s can only be set at start (-priv-flags %s=%s)", name, name, onOff(on))
	}
	*f.field(&n.params.flags) = on
	n.applyFlags()
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// parsePrivFlags reads NAME=on|off[,NAME=on|off].
func parsePrivFlags(list string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, part := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(part, "=")
		if _, err := findPrivFlag(name); err != nil {
			return nil, err
		}
		if value != "on" && value != "off" {
			return nil, wishf("private flag %s=%s: on or off", name, value)
		}
		out[name] = value == "on"
	}
	return out, nil
}

// formatPrivFlags is the form of ethtool --show-priv-flags.
func (n *nic) formatPrivFlags() string {
	text := fmt.Sprintf("Private flags for %s:\n", n.dev.name())
	for _, f := range privFlagTable {
		text += fmt.Sprintf("%-19s: %s\n", f.name, onOff(*f.field(&n.params.flags)))
	}
	return text
}

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
