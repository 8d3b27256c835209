package main

// This file owns what sending costs on the bus: the device's own count of its PCI
// Express accesses, turned into bytes a packet towards the device and the share of
// a link, and what the authors of Linux's multi-packet work requests published.
// That the unmodified driver comes close to their figures is what vouches for the
// count.

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"mlx5d/model"
)

// busCost is per packet; shares are of a link that carries packets at the rate of
// the published figures, towards the device.
type busCost struct {
	In        float64 `json:"inbound_bytes"`
	Out       float64 `json:"outbound_bytes"`
	Registers float64 `json:"register_writes"`
	WQEReads  float64 `json:"wqe_reads"`
	DataBytes float64 `json:"data_bytes"` // whole words of 4, so that unaligned frames cost more
	Gen2      float64 `json:"gen2_percent"`
	Gen3      float64 `json:"gen3_percent"`
}

// since is what came after an earlier look.
func (d busCounts) since(then busCounts) busCounts {
	return busCounts{d.Counts.Sub(then.Counts), model.PCILoad{In: d.Load.In - then.Load.In, Out: d.Load.Out - then.Load.Out}}
}

// per is the cost of one of n packets.
func (d busCounts) per(n uint64) busCost {
	c, load := d.Counts, d.Load.Per(n)
	per := func(v uint64) float64 { return round(float64(int64(v)) / float64(n)) }
	b := busCost{In: round(load.In), Out: round(load.Out), Registers: per(c[model.PCIDoorbell].Ops), WQEReads: per(c[model.PCIWQEFetch].Asks),
		DataBytes: per(c[model.PCIDataRead].Carried)}
	for _, p := range model.PCILinux {
		for _, l := range model.PCILinks {
			if v := b.share(p.Link); v != nil && l.Name == p.Link {
				*v = round(l.Percent(load.In, p.Rate))
			}
		}
	}
	return b
}

// share is where the figure for a link stands.
func (b *busCost) share(link string) *float64 {
	switch link {
	case "gen2":
		return &b.Gen2
	case "gen3":
		return &b.Gen3
	}
	return nil
}

// busTolerance is how many points may lie between the published share of a link
// and that of the unmodified driver here.
const busTolerance = 3

// nearPublished holds the shares of Linux's sends against the published ones.
func nearPublished(off, on busCost) error {
	var bad []error
	for _, p := range model.PCILinux {
		for _, k := range []struct {
			name      string
			got, want float64
		}{{"without sessions", *off.share(p.Link), p.Off}, {"with sessions", *on.share(p.Link), p.On}} {
			if math.Abs(k.got-k.want) > busTolerance {
				bad = append(bad, fmt.Errorf("PCI %s %s: %.1f %%, published %.1f %%", p.Link, k.name, k.got, k.want))
			}
		}
	}
	return errors.Join(bad...)
}

// busTable sets Linux's sends and ours beside what was published.
func busTable(off, on busCost, ours *ourFigures) string {
	var t strings.Builder
	row := func(name string, off, on func(p model.PCIPublished) float64, bytes [2]float64) {
		fmt.Fprintf(&t, "      %-26s", name)
		for _, p := range model.PCILinux {
			fmt.Fprintf(&t, "  %s %4.1f -> %4.1f %%", p.Link, off(p), on(p))
		}
		if bytes[0] != 0 {
			fmt.Fprintf(&t, "  %5.1f -> %5.1f bytes", bytes[0], bytes[1])
		}
		t.WriteByte('\n')
	}
	of := func(b busCost) func(p model.PCIPublished) float64 {
		return func(p model.PCIPublished) float64 { return *b.share(p.Link) }
	}
	row("bus inbound, published", func(p model.PCIPublished) float64 { return p.Off }, func(p model.PCIPublished) float64 { return p.On }, [2]float64{})
	row("bus inbound, Linux here", of(off), of(on), [2]float64{off.In, on.In})
	if ours != nil && ours.On.Bus.In != 0 {
		a, b := ours.Off.Bus, ours.On.Bus
		row("bus inbound, the appliance", of(a), of(b), [2]float64{a.In, b.In})
	}
	return t.String()
}
