package main

// benchtx.go owns the benchmarks of the send path: driver time and instructions a
// packet, and what the device fetched. What that takes of a bus is benchpci.go's.

import (
	"errors"
	"fmt"
	"time"

	"mlx5d/model"
)

// txBench sends from pages of its own on the rig's send queue.
type txBench struct {
	*benchRig
	q      *sendQueue
	pool   *pagePool
	frames []txFrame
}

// txVariants are the ways to send that are compared: with sessions or without, and
// bytes of the frames that stand in them.
var txVariants = map[string]struct {
	mpw    bool
	inline int
}{
	"tx.mpwqe.on":     {true, 0},
	"tx.mpwqe.off":    {false, 0},
	"tx.mpwqe.inline": {true, benchFrame},
}

// newTxBench prepares a section's frames.
func newTxBench(variant string) (*txBench, error) { return newTxBenchFor(variant, nil) }

// newTxBenchFor is newTxBench with a wish for moderation.
func newTxBenchFor(variant string, coalesce coalesceWish) (*txBench, error) {
	r, err := newBenchRigFor("cx5", "none", wishes{queues: 1, promisc: true, coalesce: coalesce})
	if err != nil {
		return nil, err
	}
	b := &txBench{benchRig: r, q: r.nic.channels[0].tx, frames: make([]txFrame, benchBurst*benchBursts)}
	if b.pool, err = newPagePool(r.nic.mem, 1, 2*len(b.frames)); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.u.add("pages", func() error { b.pool.close(r.nic.mem); return nil })
	b.q.home(b.pool)
	v := txVariants[variant]
	b.q.inlineUpTo(v.inline)
	b.q.sessions(v.mpw)
	return b, nil
}

// load takes a page for every frame of a section, while those of the section
// before are still out.
func (b *txBench) load() error {
	for i := range b.frames {
		n, ok := b.pool.take()
		if !ok {
			return errors.New("a page did not come back")
		}
		ref := b.pool.lendOwn(n)
		b.pool.giveBack(n)
		b.frames[i] = txFrame{addr: b.pool.addr(n, 0), form: txSize(benchFrame), page: ref}
	}
	return nil
}

// section is what is timed: bursts are posted, and the completions of the
// section before are taken and its pages given back.
//
//go:noinline
func (b *txBench) section() {
	for i := 0; i < len(b.frames); i += benchBurst {
		b.q.complete(napiBudget)
		b.q.send(b.frames[i : i+benchBurst])
	}
}

// drain ends a section: the device sends, and what is left to complete is.
func (b *txBench) drain() {
	b.settle()
	for b.q.complete(napiBudget) > 0 {
	}
}

// measure returns nanoseconds a packet in the median of so many sections.
func (b *txBench) measure(sections int) (float64, error) {
	before := b.q.stats.packets.get()
	ns, err := medianSection(sections, func() error { b.settle(); return b.load() }, b.section)
	if err != nil {
		return 0, err
	}
	b.drain()
	b.q.publish()
	packets := uint64(sections * len(b.frames))
	if got := b.q.stats.packets.get() - before; got != packets {
		return 0, fmt.Errorf("%d packets posted, %d counted", packets, got)
	}
	return ns, nil
}

// benchTX measures the send path in its variants, in turn.
func benchTX() ([]figure, error) {
	names := []string{"tx.mpwqe.on", "tx.mpwqe.off", "tx.mpwqe.inline"}
	var rigs []*txBench
	for _, name := range names {
		b, err := newTxBench(name)
		if err != nil {
			return nil, err
		}
		defer b.close()
		rigs = append(rigs, b)
	}
	ns, allocs, err := inTurn(names, rigs)
	if err != nil {
		return nil, err
	}
	off := ns[1].figure(names[1], "ns/packet")
	out := []figure{ns[0].figure(names[0], "ns/packet").against(off), off, ns[2].figure(names[2], "ns/packet").against(off),
		summarize("tx.allocs", "allocs/packet", allocs)}
	out = append(out, wireFigures(rigs[0], rigs[1])...)
	e2e, err := endToEnd(out[0])
	if err != nil {
		return nil, err
	}
	counted, err := instructionFigures(names...)
	return append(append(out, e2e...), counted...), err
}

// endToEnd runs mode txonly with the model on the other core. What it costs more
// than the driver alone is the model's share.
func endToEnd(driver figure) ([]figure, error) {
	var ns []float64
	for range benchRuns {
		v, err := endToEndRun()
		if err != nil {
			return nil, err
		}
		ns = append(ns, v)
	}
	f := summarize("tx.e2e", "ns/packet", ns)
	return []figure{f, summarize("tx.e2e.model_share", "of the time", []float64{1 - min(driver.Value/f.Value, 1)})}, nil
}

// endToEndRun sends for a fixed time and returns nanoseconds a packet that left.
func endToEndRun() (ns float64, err error) {
	const packets = 2_000_000
	r, err := newBenchRig("cx5", "none")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.dev.resume()
	c := r.nic.channels[0]
	w, ok := newSendWork(c, [6]byte(r.nic.mac), benchFrame, func(n int) int { return n })
	if !ok {
		return 0, errors.New("no page to send from")
	}
	start := time.Now()
	r.nic.start([]handler{w}, false, nil)
	for c.tx.stats.packets.get() < packets {
		time.Sleep(time.Millisecond)
	}
	spent := time.Since(start)
	sent := c.tx.stats.packets.get()
	r.nic.stop()
	return float64(spent.Nanoseconds()) / float64(sent), nil
}

// wireFigures are what the device counted of the two queues.
func wireFigures(on, off *txBench) []figure {
	s := [2]model.SQStats{on.dev.m.Stats().SQ, off.dev.m.Stats().SQ}
	per := func(n, d uint64) []float64 { return []float64{float64(n) / float64(d)} }
	return []figure{
		summarize("tx.wqe_bytes.on", "bytes/packet", per(s[0].WQEBytes, s[0].Packets)),
		summarize("tx.wqe_bytes.off", "bytes/packet", per(s[1].WQEBytes, s[1].Packets)),
		summarize("tx.ring_bytes.on", "bytes/packet", per(s[0].RingBytes, s[0].Packets)),
		summarize("tx.ring_bytes.off", "bytes/packet", per(s[1].RingBytes, s[1].Packets)),
		summarize("tx.doorbells_per_packet", "doorbells", per(on.q.stats.doorbell.get(), on.q.stats.packets.get())),
	}
}
