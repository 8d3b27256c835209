package main

// xskattach.go owns a run of -attach PATH: a process that drops, sends or forwards
// through a queue that another one gave it, with a rate line each second and a
// summary. It does not own the queue (xskclient.go).

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"
)

// runAttach is -attach: it works until ctx ends, -duration or -count is over, or
// the appliance goes.
func runAttach(ctx context.Context, o options, log *slog.Logger, out io.Writer) (err error) {
	entries := 1 << logCeil(o.frames)
	c, err := dialXSK(o.attach, xskRequest{port: uint32(o.attachPort), queue: uint32(o.attachQueue), umem: o.umemConfig(),
		entries: [xskRings]int{entries, entries, entries, entries}, flags: o.requestFlags()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	log.Info("attached", "queue", c.grant.index, "rule_queue", c.grant.queue, "address", net.HardwareAddr(c.grant.mac[:]).String(), "mtu", c.grant.mtu, "frames", o.frames, "frame", o.frame,
		"data_at", c.grant.start, "zero_copy", c.grant.flags&xskZeroCopy != 0)
	if o.mode == modeSend {
		if o.size <= etherHeader || o.size > min(o.frame, int(c.grant.mtu)+etherHeader) {
			return wishf("-size %d: %d to %d can be sent from a frame", o.size, etherHeader+1, min(o.frame, int(c.grant.mtu)+etherHeader))
		}
		for at := 0; at < len(c.mem); at += o.frame {
			fillTestFrame(c.mem[at:at+o.size], c.grant.mac, int(c.grant.index))
		}
	}
	go c.listen()
	w := &attachRun{c: c, o: o, begun: time.Now(), rate: rateMeter{at: time.Now()}}
	c.work(o.mode, o.size, o.busy, w.left, func() bool { return w.done(ctx, log) })
	a := &appliance{o: o, out: out}
	return errors.Join(w.gone, a.printTraffic(w.traffic(), nil, time.Since(w.begun)))
}

// requestFlags are what -attach asks for.
func (o *xskOptions) requestFlags() uint32 {
	flags := uint32(xskNeedWakeup | xskZeroCopy)
	if o.multi {
		flags |= xskMultiBuffer
	}
	return flags
}

// attachRun is how far a client's run has come.
type attachRun struct {
	c     *xskClient
	o     options
	begun time.Time
	rate  rateMeter
	turns int
	gone  error
}

// lookEvery is how many turns pass between two looks at the clock.
const lookEvery = 64

// traffic is what went through the rings so far.
func (w *attachRun) traffic() trafficCount {
	a := w.c.app
	t := trafficCount{rxPackets: a.packets, rxBytes: a.bytes}
	t.txPackets, t.txBytes = a.left()
	return t
}

// left is how many of n packets -count still lets through.
func (w *attachRun) left(n int) int {
	if w.o.count == 0 {
		return n
	}
	return int(min(uint64(n), w.o.count-w.c.app.sent))
}

// done reports whether the run is over, and logs the rate each second.
func (w *attachRun) done(ctx context.Context, log *slog.Logger) bool {
	if w.o.count > 0 && max(w.c.app.packets, w.c.app.sent) >= w.o.count && w.c.app.out == 0 {
		return true
	}
	if w.turns++; w.turns%lookEvery != 0 {
		return false
	}
	now := time.Now()
	if now.Sub(w.rate.at) >= time.Second {
		log.Info("rate", w.rate.update(now, w.traffic())...)
	}
	select {
	case <-ctx.Done():
		return true
	case err := <-w.c.over:
		w.gone = err
		return true
	default:
	}
	return w.o.duration > 0 && now.Sub(w.begun) >= w.o.duration
}
