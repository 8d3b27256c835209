package main

// xskattach.go owns a run of -attach PATH: a process that drops, sends or forwards
// through a queue that another one gave it, with a rate line each second and a
// summary. It does not own the queue (xskclient.go).

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
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
	w := &attachRun{c: c, o: o, log: log, out: out, begun: time.Now(), rate: newRateMeter(), usr1: make(chan os.Signal, 1)}
	signal.Notify(w.usr1, syscall.SIGUSR1)
	defer signal.Stop(w.usr1)
	go c.listen()
	c.work(o.mode, o.size, o.busy, w.left, func() bool { return w.done(ctx) })
	return errors.Join(w.gone, w.report())
}

// report prints the result.
func (w *attachRun) report() error {
	all, lost := w.counters(), map[string]uint64{}
	for _, s := range all {
		if s.name == "rx_dropped" || s.name == "rx_ring_full" {
			lost[s.name] = s.value
		}
	}
	err := printTraffic(w.out, w.o.asJSON, w.o.mode, w.traffic(), lost, time.Since(w.begun))
	if w.o.stats {
		err = errors.Join(err, printSocket(w.out, w.o.asJSON, w.title(), all))
	}
	return err
}

// title names the socket for people.
func (w *attachRun) title() string { return fmt.Sprintf("queue %d of %s", w.o.attachQueue, w.o.attach) }

// counters are the socket's by AF_XDP's names. There are none when the appliance has
// gone.
func (w *attachRun) counters() (all []stat) {
	now := w.c.counts()
	for i, name := range xskCountNames {
		if at := 8 * i; at+8 <= len(now) {
			all = append(all, stat{name, le.Uint64(now[at:])})
		}
	}
	return all
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
	log   *slog.Logger
	out   io.Writer
	begun time.Time
	rate  rateMeter
	usr1  chan os.Signal
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

// left is how many of n packets -count still lets through: what is forwarded is received
// and sent, and counts once. An entry is a packet or less.
func (w *attachRun) left(n int) int {
	if w.o.count == 0 {
		return n
	}
	return int(min(uint64(n), w.o.count-min(w.o.count, max(w.c.app.packets, w.c.app.sent))))
}

// done reports whether the run is over, and logs the rate each second.
func (w *attachRun) done(ctx context.Context) bool {
	if w.o.count > 0 && max(w.c.app.packets, w.c.app.sent) >= w.o.count && w.c.app.out == 0 {
		return true
	}
	if w.turns++; w.turns%lookEvery != 0 {
		return false
	}
	now := time.Now()
	if now.Sub(w.rate.at) >= time.Second {
		w.log.Info("rate", w.rate.update(now, w.traffic())...)
	}
	select {
	case <-ctx.Done():
		return true
	case err := <-w.c.over:
		w.gone = err
		return true
	case <-w.usr1:
		if err := printSocket(w.out, w.o.asJSON, w.title(), w.counters()); err != nil {
			w.log.Warn(err.Error())
		}
	default:
	}
	return w.o.duration > 0 && now.Sub(w.begun) >= w.o.duration
}
