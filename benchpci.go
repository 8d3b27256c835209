package main

// benchpci.go owns the benchmarks of the bus: the share of a PCI Express link that
// sending takes, from what the device counted. It does not own the count and its
// settings (model/pci.go, model/pcilink.go).
//
// Beside our sends stand Linux's: the same device executes a ring that is laid out
// as Linux's driver lays it. Its figures were published, so that they say what
// the count is worth; ours, under the same conditions, say what our ring saves. What
// the appliance's own conditions save on top is polled: frames begin at a cache line
// and a busy loop needs no interrupts.

import (
	"slices"

	"mlx5d/model"
)

// pciRate is the packet rate of the published figures for a link, of 64-byte
// packets. Generation 4 has none; it gets generation 3's rate.
func pciRate(link string) (rate float64) {
	for _, p := range model.PCILinux {
		if rate = p.Rate; p.Link == link {
			break
		}
	}
	return rate
}

// benchPCI is the share of each link that sending takes, in our ways and Linux's.
func benchPCI() (out []figure, err error) {
	linux := map[string]figure{}
	for _, way := range []string{"off", "on"} {
		load, err := busLoad(way, (*txBench).linuxBurst)
		if err != nil {
			return nil, err
		}
		for _, l := range model.PCILinks {
			f := summarize("pci."+l.Name+".linux."+way, "% inbound", []float64{l.Percent(load.In, pciRate(l.Name))})
			linux[l.Name+way] = f
			out = append(out, f)
		}
		out = append(out, summarize("pci.bytes.linux."+way, "bytes inbound", []float64{load.In}))
	}
	for _, way := range []string{"off", "on", "inline"} {
		load, err := busLoad(way, (*txBench).ourBurst)
		if err != nil {
			return nil, err
		}
		polled, err := busLoad(way, (*txBench).polledBurst)
		if err != nil {
			return nil, err
		}
		for _, l := range model.PCILinks {
			name := "pci." + l.Name + "." + way
			in := summarize(name, "% inbound", []float64{l.Percent(load.In, pciRate(l.Name))})
			if f, ok := linux[l.Name+way]; ok {
				in = in.against(f)
			}
			out = append(out, in, summarize(name+".outbound", "% outbound", []float64{l.Percent(load.Out, pciRate(l.Name))}))
		}
		out = append(out, summarize("pci.bytes."+way, "bytes inbound", []float64{load.In}),
			summarize("pci.bytes.polled."+way, "bytes inbound", []float64{polled.In}))
	}
	return out, nil
}

// promptEvents lets no event wait: whether there is one must not depend on time.
var promptEvents = coalesceWish{"tx-usecs": 0, "tx-frames": 0}

// busLoad is what a packet puts on the link when bursts are posted one way and the
// device takes them one by one.
func busLoad(way string, burst func(b *txBench, n int)) (l model.PCILoad, err error) {
	b, err := newTxBenchFor("tx.mpwqe."+way, promptEvents)
	if err != nil {
		return l, err
	}
	defer func() {
		if again := b.close(); err == nil {
			err = again
		}
	}()
	const rounds = 48 // so that the ring's last page, cut short, does not matter
	before, sent := b.dev.m.PCI(), b.dev.m.Stats().SQ.Packets
	for round := range rounds {
		if err := b.load(); err != nil {
			return l, err
		}
		for n := range benchBursts {
			burst(b, round*benchBursts+n)
			b.settle()
			b.q.complete(napiBudget)
		}
	}
	counts := b.dev.m.PCI().Sub(before)
	return counts.Load(b.dev.m.PCISettings()).Per(b.dev.m.Stats().SQ.Packets - sent), nil
}

// burst is burst n's frames.
func (b *txBench) burst(n int) []txFrame { return b.frames[n%benchBursts*benchBurst:][:benchBurst] }

// polledBurst posts burst n as a busy loop does.
func (b *txBench) polledBurst(n int) { b.q.send(b.burst(n)) }

// ourBurst posts burst n as we do, under the conditions of the published figures.
func (b *txBench) ourBurst(n int) {
	frames := b.burst(n)
	for i := range frames {
		frames[i].addr += linuxFrameAt
	}
	b.q.send(frames)
	if n%linuxRest == 0 {
		b.rest(b.nic.channels[0].cqs)
	}
}

// How Linux's driver uses a ring, as the lab sees it: pages of 4 KiB, a session
// only where the longest that it would make has room before the page's end, and
// frames of its packet generator 2 bytes behind a cache line.
const (
	linuxPage    = 4096 / wqebb
	linuxLongest = 15 // WQEBBs
	linuxFrameAt = 2
	// linuxRest is how many bursts there are to an interrupt, after which a channel
	// arms five completion queues and the event queue. The lab counts 1.9 to 2.6.
	// How many there were when the figures were taken is not known; between one a
	// burst and none lie 3 points of a generation 2 link.
	linuxRest = 2
	linuxCQs  = 5
)

// linuxBurst posts burst n as Linux's driver does.
func (b *txBench) linuxBurst(n int) {
	q, frames := b.q, b.burst(n)
	if q.limit > 0 {
		for at := q.pi % linuxPage; at > linuxPage-linuxLongest && at < linuxPage; at++ {
			q.wqes[q.pi&q.mask][0] = ctrlSeg(wqeNOP, uint16(q.pi), q.n, 1, 0)
			q.pi++
		}
		q.last = q.pi
		b.linuxWQE(wqeMPSW, frames)
	} else {
		for i := range frames {
			q.last = q.pi
			b.linuxWQE(wqeSend, frames[i:i+1])
		}
	}
	q.ring()
	if n%linuxRest == 0 {
		b.rest(slices.Repeat([]*compQueue{q.cq}, linuxCQs))
	}
}

// linuxWQE posts one WQE for frames and lets their pages come back with it.
func (b *txBench) linuxWQE(opcode uint8, frames []txFrame) {
	q := b.q
	at := (q.pi & q.mask) * segsPerBlock
	ds := uint32(len(frames)) + 2
	q.segs[at], q.segs[at+1] = ctrlSeg(opcode, uint16(q.pi), q.n, uint8(ds), 0), seg{}
	for i := range frames {
		q.segs[int(at)+2+i] = dataSeg(benchFrame, q.lkey, frames[i].addr+linuxFrameAt)
		q.keep(frames[i].page)
	}
	q.pi += (ds + segsPerBlock - 1) / segsPerBlock
}

// rest is what a poll ends with that an interrupt began: events are taken and
// all queues armed. The device sees each register write.
func (b *txBench) rest(cqs []*compQueue) {
	c := b.nic.channels[0]
	b.settle()
	b.q.complete(napiBudget)
	c.wake()
	for _, cq := range cqs {
		cq.arm()
		b.settle()
	}
	c.eq.arm()
	b.settle()
}
