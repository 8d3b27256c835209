package main

// benchrx.go owns the benchmarks of receiving: what is timed, what the page pool
// keeps in use, and what a ring's buffers take. How figures are made is benchkit.go's,
// how they are printed bench.go's.
//
// What is timed is the channel's own turn: completions, handler, refill, send
// completions. The device fills the ring between sections, outside the clock, so
// that pages are reused and buffers posted inside it.

import (
	"errors"
	"fmt"
	"strings"
)

// rxBench receives on the rig's channel.
type rxBench struct {
	*benchRig
	c *channel
}

// rxVariants are what is timed, by the figure's name. Compression makes sessions
// of completions that are alike: its traffic is one flow. Forwarding is without a
// copy: no frame is inlined into its WQE.
var rxVariants = []struct {
	name, wire string
	wishes     wishes
	handler    func() handler
}{
	{"rx.drop.legacy", "gen:size=64,count=0", wishes{}, dropHandlerOf},
	{"rx.drop.striding", "gen:size=64,count=0", wishes{rxStriding: true}, dropHandlerOf},
	{"rx.drop.compressed", "gen:size=64,count=0,flows=1", wishes{rxCompress: true}, dropHandlerOf},
	{"rx.l2fwd", "gen:size=64,count=0", wishes{}, func() handler { return newForwardWork() }},
}

func dropHandlerOf() handler { return dropWork{} }

// newRxBench prepares one of rxVariants.
func newRxBench(name string) (*rxBench, error) {
	for _, v := range rxVariants {
		if v.name != name {
			continue
		}
		w := v.wishes
		w.queues, w.promisc = 1, true
		r, err := newBenchRigFor("cx5", v.wire, w)
		if err != nil {
			return nil, err
		}
		b := &rxBench{r, r.nic.channels[0]}
		b.c.setHandler(v.handler())
		b.c.tx.sessions(true)
		return b, nil
	}
	return nil, fmt.Errorf("no benchmark %s", name)
}

// section is what is timed.
//
//go:noinline
func (b *rxBench) section() (packets int) {
	for range benchBursts {
		packets += b.c.poll(benchBurst)
	}
	return packets
}

// measure returns nanoseconds a packet in the median of so many sections.
func (b *rxBench) measure(sections int) (float64, error) {
	for range 4 { // every buffer was used once, and the ring is full
		b.settle()
		b.section()
	}
	b.settle()
	b.c.publish()
	before, _ := b.c.load()
	ns, err := medianSection(sections, b.refill, func() { b.section() })
	if err != nil {
		return 0, err
	}
	b.c.publish()
	s := &b.c.rxStats
	got, _ := b.c.load()
	got -= before
	if want := uint64(sections * benchBurst * benchBursts); got != want {
		return 0, fmt.Errorf("%d packets were there to receive, %d counted", want, got)
	}
	if lost := s.wqeErr.get() + s.oversize.get(); lost != 0 || b.dev.m.Stats().DMAFaults != 0 {
		return 0, fmt.Errorf("%d packets lost to errors", lost)
	}
	return ns, nil
}

// benchRX measures the receive path.
func benchRX() (out []figure, err error) {
	var names []string
	for _, v := range rxVariants {
		names = append(names, v.name)
	}
	benches, out, err := measureAll(names, newRxBench, "rx.allocs")
	defer closeAll(benches)
	if err != nil {
		return nil, err
	}
	s := &benches[0].c.rxStats
	out = append(out, summarize("rx.doorbells_per_64", "doorbells", []float64{64 * float64(2*s.doorbells.get()) / float64(s.packets.get())}))
	memory, err := memoryFigures()
	if err != nil {
		return nil, err
	}
	counted, err := instructionFigures(names...)
	return append(append(out, memory...), counted...), err
}

// memoryFigures opens a NIC for each MTU and compares what its ring's buffers
// take with a scheme of whole pages for each WQE.
func memoryFigures() (out []figure, err error) {
	for _, mtu := range []int{1500, 3500, 9000, 10240} {
		// The port's largest MTU counts the headers.
		r, err := newBenchRigFor("cx5", "none", wishes{queues: 1, mtu: min(mtu, 10240-hardMTU)})
		if err != nil {
			return nil, err
		}
		p := &r.nic.params
		whole := (p.frame + rxHeadroom + pageSize - 1) / pageSize * pageSize << p.logRQ
		ratio := float64(r.nic.ringMemory()) / float64(whole)
		if err := r.close(); err != nil {
			return nil, err
		}
		out = append(out, summarize(fmt.Sprintf("rx.memory.ratio.%d", mtu), "of whole pages", []float64{ratio}))
	}
	return out, nil
}

// The slow consumer of the pool's figures: one packet in a hundred is held for
// 100 ms, in a virtual time in which a million packets arrive a second.
const (
	slowShare   = 100
	slowHold    = 100_000 // packets that arrive meanwhile
	slowPackets = 1_000_000
)

// slowWork holds packets as another goroutine would.
type slowWork struct {
	seen int
	held []slowRef
}

type slowRef struct {
	due int
	ref pageRef
}

func (w *slowWork) handle(c *channel, packets []packet) {
	var refs [maxFrags]pageRef
	for i := range packets {
		if w.seen++; w.seen%slowShare == 0 {
			for _, r := range c.rx.hold(refs[:0], &packets[i]) {
				w.held = append(w.held, slowRef{w.seen + slowHold, r})
			}
		}
	}
	w.release(c, w.seen)
}

// release gives back what is due by now.
func (w *slowWork) release(c *channel, now int) {
	for len(w.held) > 0 && w.held[0].due <= now {
		c.rx.pool.release(w.held[0].ref)
		w.held = w.held[1:]
	}
}

func (w *slowWork) turn(*channel) int { return 0 }
func (w *slowWork) idle(*channel)     {}

// benchPool measures which share of the pages that a receive queue uses has been
// used before, with the pool and with a FIFO page cache under the same load.
func benchPool() ([]figure, error) {
	pool, err := recycledByPool()
	if err != nil {
		return nil, err
	}
	fifo := summarize("pool.recycled.fifo", "%", []float64{recycledByFIFO(defaultRing/2, slowPackets, slowShare, slowHold)})
	return []figure{summarize("pool.recycled", "%", []float64{pool}).against(fifo), fifo}, nil
}

func recycledByPool() (percent float64, err error) {
	r, err := newBenchRigFor("cx5", "gen:size=64,count=0", wishes{queues: 1, promisc: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	c, w := r.nic.channels[0], &slowWork{}
	c.setHandler(w)
	c.publish()
	pool := c.rx.pool
	slow := pool.stats.allocSlow.get() // the ring's own first pages
	for w.seen < slowPackets {
		r.settle()
		for c.poll(napiBudget) > 0 {
		}
	}
	w.release(c, w.seen+slowHold)
	c.publish()
	slow = pool.stats.allocSlow.get() - slow
	if lost := c.rx.stats.starved.get(); lost > 0 {
		return 0, fmt.Errorf("the pool of %d pages was too small %d times", len(pool.own), lost)
	}
	used := w.seen / c.rx.layout.bulk * int(c.rx.pages)
	return 100 * (1 - float64(slow)/float64(used)), nil
}

// isRX tells the receive benchmarks from the others by name.
func isRX(name string) bool { return strings.HasPrefix(name, "rx.") }
