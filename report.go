package main

// report.go owns what a run prints: counters, and the result of a mode that does not
// inspect, each as text or as one JSON object on a line. It does not own what is counted
// (stats.go), nor what inspection saw (summary.go).

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// printJSON prints v as one line.
func printJSON(out io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", b)
	return err
}

// printEither prints a result as JSON, or as text.
func printEither(out io.Writer, asJSON bool, v any, text func() string) error {
	if asJSON {
		return printJSON(out, v)
	}
	_, err := io.WriteString(out, text())
	return err
}

// portCounters are a port's counters and settings as one JSON object.
type portCounters struct {
	Device    string            `json:"device"`
	Counters  map[string]uint64 `json:"counters"`
	PrivFlags map[string]bool   `json:"priv_flags"`
	Coalesce  map[string]any    `json:"coalesce"`
	Rules     []string          `json:"rules"`
}

// printCounters prints all counters of n, in the form of ethtool -S, and what ethtool
// tells of its settings.
func printCounters(out io.Writer, asJSON bool, n *nic, all []stat) error {
	if !asJSON {
		_, err := fmt.Fprint(out, formatStats(n.dev.name(), all), n.formatPrivFlags(), n.formatCoalesce(), n.formatRules())
		return err
	}
	m := n.params.moder
	c := portCounters{Device: n.dev.name(), Counters: map[string]uint64{}, PrivFlags: map[string]bool{}, Rules: []string{},
		Coalesce: map[string]any{wordAdaptive: n.params.adaptive, "rx-usecs": m[0].usecs, "rx-frames": m[0].frames, "tx-usecs": m[1].usecs, "tx-frames": m[1].frames}}
	for _, s := range all {
		c.Counters[s.name] += s.value // a name that two groups have is one counter, which counts in either
	}
	for _, f := range privFlagTable {
		c.PrivFlags[f.name] = *f.field(&n.params.flags)
	}
	for _, r := range n.rules.rules {
		c.Rules = append(c.Rules, r.String())
	}
	return printJSON(out, c)
}

// socketCounters are those of a zero-copy socket as one JSON object.
type socketCounters struct {
	Device   string            `json:"device"`
	Counters map[string]uint64 `json:"counters"`
}

// printSocket prints a socket's counters.
func printSocket(out io.Writer, asJSON bool, title string, all []stat) error {
	c := socketCounters{title, map[string]uint64{}}
	for _, s := range all {
		c.Counters[s.name] = s.value
	}
	return printEither(out, asJSON, c, func() string { return formatCounters("Socket statistics ("+title+"):\n", all) })
}

// trafficCount is what went through all channels so far.
type trafficCount struct{ rxPackets, rxBytes, txPackets, txBytes, txDropped uint64 }

// rateMeter turns counts into rates since the last look.
type rateMeter struct {
	begun time.Time
	at    time.Time
	last  trafficCount
}

func newRateMeter() rateMeter {
	now := time.Now()
	return rateMeter{begun: now, at: now}
}

func (r *rateMeter) update(now time.Time, t trafficCount) []any {
	sec := now.Sub(r.at).Seconds()
	per := func(now, then uint64) uint64 { return uint64(float64(now-then) / max(sec, 1e-9)) }
	out := []any{"rx_pps", per(t.rxPackets, r.last.rxPackets), "tx_pps", per(t.txPackets, r.last.txPackets),
		"rx_packets", t.rxPackets, "tx_packets", t.txPackets}
	r.at, r.last = now, t
	return out
}

// countSummary is the result of a mode that does not inspect.
type countSummary struct {
	Mode      string            `json:"mode"`
	RxPackets uint64            `json:"rx_packets"`
	RxBytes   uint64            `json:"rx_bytes"`
	TxPackets uint64            `json:"tx_packets"`
	TxBytes   uint64            `json:"tx_bytes"`
	TxDropped uint64            `json:"tx_dropped"`
	Drops     map[string]uint64 `json:"drops"`
	DurationS float64           `json:"duration_s"`
	RxPPS     float64           `json:"rx_pps"`
	TxPPS     float64           `json:"tx_pps"`
}

// printTraffic prints what a mode counted and what was lost.
func printTraffic(out io.Writer, asJSON bool, mode string, t trafficCount, lost map[string]uint64, ran time.Duration) error {
	s := countSummary{Mode: mode, RxPackets: t.rxPackets, RxBytes: t.rxBytes, TxPackets: t.txPackets, TxBytes: t.txBytes,
		TxDropped: t.txDropped, Drops: lost, DurationS: round(ran.Seconds())}
	if sec := ran.Seconds(); sec > 0 {
		s.RxPPS, s.TxPPS = round(float64(t.rxPackets)/sec), round(float64(t.txPackets)/sec)
	}
	return printEither(out, asJSON, s, func() string {
		text := fmt.Sprintf("%s: received %d packets, %d bytes (%g packets/s), sent %d packets, %d bytes (%g packets/s), dropped %d in sending, in %g s\n",
			s.Mode, s.RxPackets, s.RxBytes, s.RxPPS, s.TxPackets, s.TxBytes, s.TxPPS, s.TxDropped, s.DurationS)
		for _, l := range sortedCounts(s.Drops, len(s.Drops)) {
			if l.Count > 0 {
				text += fmt.Sprintf("  %s: %d\n", l.Name, l.Count)
			}
		}
		return text + verdictText(lost)
	})
}

// verdictText says who lost packets, a line each.
func verdictText(lost map[string]uint64) (text string) {
	for _, line := range lossVerdict(lost) {
		text += line + "\n"
	}
	return text
}
