package main

// ethtool.go owns the NIC in ethtool's words: who it is, its rings, channels and
// link, and changing flags and moderation of a running NIC. It does not own how queues
// are replaced (rebuild.go) nor the adaptive choice (moderation.go); numbers come from
// nic.go and its parts. Names are those that ethtool prints for mlx5.

import (
	"fmt"
	"strconv"
	"strings"
)

// privFlag is one private flag (ethtool --show-priv-flags), in Linux's order.
type privFlag struct {
	name  string
	field func(*privFlags) *bool
	// refuse says why the device cannot have the flag on; "" is that it can.
	refuse func(c caps) string
	// live says whether the flag can be changed while packets flow; otherwise it
	// takes effect at start.
	live func(c caps) bool
}

func always(caps) bool { return true }

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
		unless(func(c caps) bool { return c.fromCQE }, "the device cannot start moderation at the completion"), movesPeriod},
	{"tx_cqe_moder", func(f *privFlags) *bool { return &f.txCQEModer },
		unless(func(c caps) bool { return c.fromCQE }, "the device cannot start moderation at the completion"), movesPeriod},
	{"rx_cqe_compress", func(f *privFlags) *bool { return &f.rxCompress },
		unless(func(c caps) bool { return c.compress }, "the device does not compress completions"), always},
	{"rx_striding_rq", func(f *privFlags) *bool { return &f.rxStriding },
		unless(func(c caps) bool { return c.striding && c.strideMin }, "the device has no multi-packet receive WQE of small strides"), always},
	{"rx_no_csum_complete", func(f *privFlags) *bool { return &f.rxNoCsumComplete },
		unless(func(c caps) bool { return c.csum }, "the device does not sum packets"), always},
	{"xdp_tx_mpwqe", func(f *privFlags) *bool { return &f.xdpTxMPWQE }, caps.refusesMPWQE, always},
	{"skb_tx_mpwqe", func(f *privFlags) *bool { return &f.skbTxMPWQE }, caps.refusesMPWQE, always},
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
	if *f.field(&n.params.flags) == on && !(n.moder.torn && f.moderates(n.caps)) {
		return nil
	}
	if !f.live(n.caps) {
		return wishf("private flag %s can only be set at start (-priv-flags %s=%s)", name, name, onOff(on))
	}
	if err := n.applyFlag(f, on); err != nil {
		return fmt.Errorf("private flag %s: %w", name, err)
	}
	return nil
}

// moderates reports whether the flag is one of moderation that can be changed now.
func (f privFlag) moderates(c caps) bool {
	var flags privFlags
	at := f.field(&flags)
	return (at == &flags.rxCQEModer || at == &flags.txCQEModer) && f.live(c)
}

// applyFlag changes a flag, and moderation where it is about that, and replaces the receive queues where it is about their
// kind. When that fails nothing has changed.
func (n *nic) applyFlag(f privFlag, on bool) error {
	p := n.params
	*f.field(&p.flags) = on
	if f.moderates(n.caps) {
		return n.setModerFlags(p.flags)
	}
	p.xdp = p.xdp || n.channels[0].xdpSeen.Load() != nil // attached meanwhile
	if err := p.chooseRX(n.caps, p.flags.rxStriding, p.flags.rxCompress, n.rxMini); err != nil {
		return err
	}
	if p.rxStrides != n.params.rxStrides || p.rxCompress != n.params.rxCompress {
		if err := n.rebuildRX(p); err != nil {
			return err
		}
	}
	if p.rxWhy != n.params.rxWhy {
		n.notify("receive queues: %s", p.rxWhy)
	}
	n.params = p
	n.applyFlags()
	return nil
}

// wordPairs reads NAME VALUE pairs as ethtool has them, all behind each other, or
// NAME=VALUE, with commas between pairs or without. A name stands once.
func wordPairs(flag, list, form string) (pairs [][2]string, err error) {
	if list == "" {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, part := range strings.Split(list, ",") {
		words := strings.FieldsFunc(part, func(r rune) bool { return r == ' ' || r == '=' || r == '\t' })
		if len(words) == 0 || len(words)%2 != 0 {
			return nil, wishf("%s %q: %s", flag, part, form)
		}
		for ; len(words) > 0; words = words[2:] {
			if seen[words[0]] {
				return nil, wishf("%s: %s stands twice", flag, words[0])
			}
			seen[words[0]] = true
			pairs = append(pairs, [2]string{words[0], words[1]})
		}
	}
	return pairs, nil
}

// coalesceMost are ethtool's names of moderation and the largest values.
var coalesceMost = map[string]uint64{"rx-usecs": mostUsecs, "tx-usecs": mostUsecs, "rx-frames": 1<<16 - 1, "tx-frames": 1<<16 - 1}

// wordAdaptive is ethtool's name for what -adaptive-rx is too.
const wordAdaptive = "adaptive-rx"

// parseCoalesce reads moderation in ethtool's words. adaptive is what the list says of
// adaptive-rx, "" where it says nothing.
func parseCoalesce(list string) (out coalesceWish, adaptive string, err error) {
	pairs, err := wordPairs("-coalesce", list, "NAME N, such as rx-usecs 8")
	if err != nil || pairs == nil {
		return nil, "", err
	}
	out = coalesceWish{}
	for _, p := range pairs {
		name, value := p[0], p[1]
		most, known := coalesceMost[name]
		v, err := strconv.ParseUint(value, 10, 32)
		switch {
		case name == wordAdaptive && (value == "on" || value == "off"):
			adaptive = value
			continue
		case name == wordAdaptive:
			return nil, "", wishf("-coalesce %s %s: on or off", name, value)
		case !known:
			return nil, "", wishf("-coalesce %q: there is rx-usecs, rx-frames, tx-usecs, tx-frames, adaptive-rx", name)
		case err != nil || v > most:
			return nil, "", wishf("-coalesce %s %s: 0 to %d", name, value, most)
		}
		out[name] = uint16(v)
	}
	return out, adaptive, nil
}

// formatCoalesce is the form of ethtool --show-coalesce.
func (n *nic) formatCoalesce() string {
	m := n.params.moder
	return fmt.Sprintf("Coalesce parameters for %s:\nAdaptive RX: %s  TX: off\nrx-usecs: %d\nrx-frames: %d\ntx-usecs: %d\ntx-frames: %d\n",
		n.dev.name(), onOff(n.params.adaptive), m[0].usecs, m[0].frames, m[1].usecs, m[1].frames)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// parsePrivFlags reads private flags in ethtool's words.
func parsePrivFlags(list string) (map[string]bool, error) {
	pairs, err := wordPairs("-priv-flags", list, "NAME on|off, such as skb_tx_mpwqe off")
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, p := range pairs {
		name, value := p[0], p[1]
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

// formatRules is the form of ethtool -n; nothing where there are no rules.
func (n *nic) formatRules() string {
	if len(n.rules.rules) == 0 {
		return ""
	}
	return formatRules(n.rules.rules, n.params.queues+n.params.sockets())
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

// ringInfo is what ethtool -g shows: receive in frames, whatever holds them, and send
// in WQEBBs.
type ringInfo struct{ rxMax, txMax, rx, tx int }

func (n *nic) ringInfo() ringInfo {
	most := min(maxRing, 1<<n.caps.logMaxWQ)
	return ringInfo{most, most, 1 << n.params.logRing, 1 << n.params.logSQ}
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
		"combined", fmt.Sprintf("%d/%d", c.combined, c.combinedMax), "rx", r.rx, "tx", r.tx, "tx-inline", n.params.inlineInForce(),
		"promisc", n.params.promisc, "rx-ring-memory-KiB", n.ringMemory() >> 10}, nil
}
