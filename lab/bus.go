package main

// This file owns what sending costs on the bus: the device's own count of its PCI
// Express accesses, turned into bytes a packet towards the device and the share of
// a link, and how that compares with what the authors of Linux's multi-packet work
// requests published. That the unmodified driver comes close to their figures is
// what vouches for the count.

import (
	"errors"
	"fmt"
	"strings"

	"mlx5d/model"
)

// busCost is per packet, towards the device unless it says otherwise.
type busCost struct {
	In float64 `json:"inbound_bytes"`
	// Quiet is the same without interrupts and the arming of queues after each.
	// How often they come depends on the host's load.
	Quiet     float64            `json:"inbound_bytes_without_interrupts"`
	Out       float64            `json:"outbound_bytes"`
	Arms      float64            `json:"arms"` // of completion and event queues
	WQEReads  float64            `json:"wqe_reads"`
	DataBytes float64            `json:"data_bytes"`      // whole words of 4: unaligned frames cost more
	Percent   map[string]float64 `json:"percent_inbound"` // by link, at the rate of the published figures
}

// busCounts is what a device did on its bus; only answers to stats have it.
type busCounts struct{ Counts model.PCICounts }

// since is what came after an earlier look.
func (d busCounts) since(then busCounts) busCounts { return busCounts{d.Counts.Sub(then.Counts)} }

// per is the cost of one of n packets. The device process runs with the default settings.
func (d busCounts) per(n uint64) busCost {
	c := d.Counts
	per := func(v uint64) float64 { return round(float64(v) / float64(n)) }
	load := c.Load(model.PCISettings{}).Per(n)
	b := busCost{In: round(load.In), Out: round(load.Out), Arms: per(c[model.PCIArm].Ops), WQEReads: per(c[model.PCIWQEFetch].Asks),
		DataBytes: per(c[model.PCIDataRead].Carried), Percent: map[string]float64{}}
	b.shares()
	for _, k := range []model.PCIKind{model.PCIEQEWrite, model.PCIInterrupt, model.PCIArm} {
		c[k] = model.PCITraffic{}
	}
	b.Quiet = round(c.Load(model.PCISettings{}).Per(n).In)
	return b
}

// less is the cost of one of n packets that came on top of what o cost. Both are
// of whole runs: a longer one may well have fewer interrupts.
func (b busCost) less(o busCost, n float64) busCost {
	d := busCost{In: b.In - o.In, Quiet: b.Quiet - o.Quiet, Out: b.Out - o.Out, Arms: b.Arms - o.Arms, WQEReads: b.WQEReads - o.WQEReads,
		DataBytes: b.DataBytes - o.DataBytes, Percent: map[string]float64{}}
	for _, v := range []*float64{&d.In, &d.Quiet, &d.Out, &d.Arms, &d.WQEReads, &d.DataBytes} {
		*v = round(*v / n)
	}
	d.shares()
	return d
}

// shares fills in the shares of links.
func (b *busCost) shares() {
	for i, p := range model.PCILinux {
		b.Percent[p.Link] = round(model.PCILinks[i].Percent(b.In, p.Rate))
	}
}

// busTolerance is how many points may lie between the published share of a link
// and that of the unmodified driver here.
const busTolerance = 3

// nearPublished holds the shares of Linux's sends against the published ones. How
// often an interrupt came is not published and here a matter of the host's load:
// what counts is that some rate between none and one a burst explains the figure.
func (f *figures) nearPublished() error {
	var bad []error
	for i, p := range model.PCILinux {
		for _, k := range []struct {
			name string
			m    *perMode
			want float64
		}{{"without sessions", &f.Off, p.Off}, {"with sessions", &f.On, p.On}} {
			b, interrupt := k.m.Bus, 0.0 // bytes of one
			if k.m.Interrupts > 0 {
				interrupt = (b.In - b.Quiet) / k.m.Interrupts
			}
			lo := model.PCILinks[i].Percent(b.Quiet, p.Rate)
			hi := model.PCILinks[i].Percent(b.Quiet+interrupt/figureBurst, p.Rate)
			if k.want < lo-busTolerance || k.want > hi+busTolerance {
				bad = append(bad, fmt.Errorf("PCI %s %s: %.1f to %.1f %%, published %.1f %%", p.Link, k.name, lo, hi, k.want))
			}
		}
	}
	return errors.Join(bad...)
}

// busTable sets Linux's sends and ours beside what was published.
func (f *figures) busTable(ours *ourFigures) string {
	var t strings.Builder
	fmt.Fprintf(&t, "      %-26s", "bus inbound, published")
	for _, p := range model.PCILinux {
		fmt.Fprintf(&t, "  %s %.1f -> %.1f %%", p.Link, p.Off, p.On)
	}
	row := func(name string, off, on busCost) {
		fmt.Fprintf(&t, "\n      %-26s", name)
		for _, p := range model.PCILinux {
			fmt.Fprintf(&t, "  %s %.1f -> %.1f %%", p.Link, off.Percent[p.Link], on.Percent[p.Link])
		}
		fmt.Fprintf(&t, "  %.1f -> %.1f bytes", off.In, on.In)
	}
	row("bus inbound, Linux here", f.Off.Bus, f.On.Bus)
	if ours != nil {
		row("bus inbound, the appliance", ours.Off.Bus, ours.On.Bus)
	}
	return t.String()
}
