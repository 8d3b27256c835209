package main

// benchnapi.go owns the benchmarks of what is apart from what: firmware commands
// from received packets, and a wanted flow from a flood of control frames. How
// figures are made is benchkit.go's, how they are printed bench.go's.
//
// Command latency is what the caller of a command sees. Both sides have the device
// run without naps in a goroutine of its own. That goroutine executes commands and
// moves packets in turns, which silicon does side by side. A turn is at most 256
// frames, and ends within 16 while a command is under way (model.Config.Hurry), so
// that under load a command waits for these at most. The figures named host leave
// that out: they count from the device's answer to the caller's return, which is the
// part that the host's event handling is answerable for. A device has processors of
// its own; this one's thread offers its CPU whenever it raises the control interrupt,
// with the receive side busy or idle.
//
// The rate of the wanted flow counts the time that the loop of its queue takes, in
// turns measured one after another on one CPU. Each group has a loop of its own;
// the other group's is outside the clock, as it would be on another CPU. So the figure
// shows what the groups share in the driver, not in the caches of one CPU.

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mlx5d/model"
)

// commandBench measures commands on a NIC with one channel.
type commandBench struct {
	*benchRig
	answered atomic.Int64 // when the device last answered, nanoseconds since begun
	begun    time.Time
}

// newCommandBench opens a NIC on wire and lets device and channel run.
func newCommandBench(wire string) (*commandBench, error) {
	r, err := newBenchRigFor("cx5", wire, wishes{queues: 1, promisc: true})
	if err != nil {
		return nil, err
	}
	b := &commandBench{benchRig: r, begun: time.Now()}
	r.dev.m.SetScript(&model.Script{Answer: func(uint16, []byte) { b.answered.Store(int64(time.Since(b.begun))) }})
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for courtesy := new(courtesy); ; {
			select {
			case <-stop:
				return
			default:
				r.dev.m.Step()
				courtesy.giveWay()
			}
		}
	})
	r.u.add("device's turns", func() error {
		close(stop)
		done.Wait()
		r.dev.resume()
		return nil
	})
	r.nic.start([]handler{dropWork{}}, false, nil)
	return b, nil
}

// commandsPerRun is how many commands one repetition times.
const commandsPerRun = 800

// latencies are times in microseconds: what the callers of commands saw, and the
// host's part of that.
type latencies struct{ whole, host []float64 }

// run times commands that read counters.
func (b *commandBench) run() (l latencies, err error) {
	for range commandsPerRun {
		start := time.Since(b.begun)
		if _, err := b.nic.fw.queryVportCounters(); err != nil {
			return l, err
		}
		end := time.Since(b.begun)
		l.whole = append(l.whole, float64(end-start)/1e3)
		l.host = append(l.host, float64(int64(end)-b.answered.Load())/1e3)
		time.Sleep(100 * time.Microsecond) // commands are rare
	}
	return l, nil
}

// commandParts are the figures of one side, by name behind napi.command_latency.
var commandParts = []struct {
	name string
	host bool
	at   float64 // share of the times that are shorter
}{
	{"p50", false, 0.5},
	{"p99", false, 0.99},
	{"host.p50", true, 0.5},
	{"host.p99", true, 0.99},
}

// pooled is the figure of all runs' times together, so that every slow command
// counts, in whichever run it was; the figure's limits are the runs' own.
func pooled(name string, at float64, runs [][]float64) figure {
	var each, all []float64
	for _, times := range runs {
		each = append(each, percentile(times, at))
		all = append(all, times...)
	}
	f := summarize(name, "us", each)
	f.Value = percentile(all, at)
	return f
}

func percentile(times []float64, at float64) float64 {
	v := slices.Sorted(slices.Values(times))
	return v[int(float64(len(v))*at)]
}

// benchCommands compares command latency with the receive side saturated and idle,
// in turn.
func benchCommands() (out []figure, err error) {
	before := spareThreads(2)
	defer runtime.GOMAXPROCS(before)
	var sides [2][2][][]float64 // idle and busy, whole and host, by run
	for run := range benchRuns + 1 {
		for i, wire := range []string{"none", "gen:size=64,count=0"} {
			l, err := commandRun(wire)
			if err != nil {
				return nil, err
			}
			if run > 0 { // the first warms up
				sides[i][0] = append(sides[i][0], l.whole)
				sides[i][1] = append(sides[i][1], l.host)
			}
		}
	}
	for _, part := range commandParts {
		of := 0
		if part.host {
			of = 1
		}
		out = append(out, compareCommands(part.name, part.at, sides[0][of], sides[1][of])...)
	}
	return out, nil
}

// compareCommands are the figures of one percentile: the ratio, busy and idle.
func compareCommands(name string, at float64, idleRuns, busyRuns [][]float64) []figure {
	name = "napi.command_latency." + name
	idle, busy := pooled(name+".idle", at, idleRuns), pooled(name+".busy", at, busyRuns)
	var ratios []float64
	for i := range idleRuns {
		ratios = append(ratios, percentile(busyRuns[i], at)/percentile(idleRuns[i], at))
	}
	ratio := summarize(name, "of idle", ratios)
	ratio.Value = busy.Value / idle.Value
	return []figure{ratio, busy.against(idle), idle}
}

func commandRun(wire string) (l latencies, err error) {
	b, err := newCommandBench(wire)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.run()
}

// burstWire gives bursts of two kinds of frames, mixed: a wanted flow and a flood.
type burstWire struct {
	frames [2][]byte
	left   [2]int
	next   int
}

// Frames of the two kinds, without FCS: UDP to a server, and LLDP.
var (
	wantedFrame = benchFrameOf([]byte{2, 0, 0, 0, 0, 1}, []byte{0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x66, 0xb3,
		192, 0, 2, 1, 192, 0, 2, 2, 0x40, 0, 0x40, 1, 0, 26, 0, 0})
	floodFrame = benchFrameOf([]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e}, []byte{0x88, 0xcc, 2, 7, 4, 2, 0, 0, 0, 0, 2, 4, 2, 7, 'a', 6, 2, 0, 120, 0, 0})
)

// benchFrameOf is a frame to dst, with what follows the addresses.
func benchFrameOf(dst, rest []byte) []byte {
	b := make([]byte, benchFrame)
	copy(b, dst)
	copy(b[6:], []byte{2, 0, 0, 0, 0, 2})
	copy(b[12:], rest)
	return b
}

func (w *burstWire) Peek(time.Time) []byte {
	for range w.left {
		if w.left[w.next] > 0 {
			return w.frames[w.next]
		}
		w.next ^= 1
	}
	return nil
}

func (w *burstWire) Take() {
	w.left[w.next]--
	if w.left[w.next^1] > 0 {
		w.next ^= 1
	}
}

func (w *burstWire) Lossless() bool  { return true }
func (w *burstWire) Transmit([]byte) {}
func (w *burstWire) Done() bool      { return false }
func (w *burstWire) LinkUp() bool    { return true }
func (w *burstWire) Close() error    { return nil }

// sortWork looks at each frame as far as it takes to tell the wanted from the rest.
type sortWork struct{ wanted, rest int }

func (w *sortWork) handle(_ *channel, packets []packet) {
	wanted := 0
	for i := range packets {
		if b := packets[i].b; len(b) > etherHeader && be16(b, 12) == ethIPv4 {
			wanted++
		}
	}
	w.wanted += wanted
	w.rest += len(packets) - wanted
}

func (w *sortWork) turn(*channel) int { return 0 }
func (w *sortWork) idle(*channel)     {}

// groupBench is a NIC whose first channel receives the wanted flow.
type groupBench struct {
	*benchRig
	wire *burstWire
	work []*sortWork // by channel
}

// newGroupBench opens a NIC with one queue, and one for control traffic with trap.
func newGroupBench(trap bool) (*groupBench, error) {
	b := &groupBench{wire: &burstWire{frames: [2][]byte{wantedFrame, floodFrame}}}
	var err error
	b.benchRig, err = newBenchRigOn("cx5", b.wire, wishes{queues: 1, promisc: true, trap: trap})
	if err != nil {
		return nil, err
	}
	for _, c := range b.nic.channels {
		w := &sortWork{}
		c.setHandler(w)
		b.work = append(b.work, w)
	}
	return b, nil
}

// What one section of a group benchmark brings: as much flood as flow, so that both
// fit one ring.
const (
	groupWanted   = benchBurst * benchBursts
	groupFlood    = groupWanted
	groupSections = 300
)

// arrive brings a section's frames. Where the flood has a queue of its own it comes
// first and is dealt with, so that what is timed finds caches as warm as without.
func (b *groupBench) arrive(flood int) {
	for _, c := range b.nic.channels[1:] {
		b.wire.left = [2]int{0, flood}
		for b.settle(); c.poll(napiBudget) > 0; b.settle() {
		}
		flood = 0
	}
	b.wire.left = [2]int{groupWanted, flood}
	b.settle()
}

// measure returns which share of its rate alone the wanted flow has under a flood:
// sections without and with one in turn, the median of each. A section that another
// program interrupted says nothing.
func (b *groupBench) measure() (share float64, err error) {
	var spent [2][]time.Duration
	before := b.work[0].wanted
	for i := range 2 * groupSections {
		if b.arrive(groupFlood * (i & 1)); b.wire.left != [2]int{} {
			return 0, fmt.Errorf("%d frames did not fit the rings", b.wire.left)
		}
		start := time.Now()
		for b.nic.channels[0].poll(napiBudget) > 0 {
		}
		spent[i&1] = append(spent[i&1], time.Since(start))
	}
	if got, want := b.work[0].wanted-before, 2*groupSections*groupWanted; got != want {
		return 0, fmt.Errorf("%d wanted packets were sent, %d received", want, got)
	}
	if len(b.work) > 1 && (b.work[0].rest != 0 || b.work[1].wanted != 0) {
		return 0, fmt.Errorf("%d frames of the flood and %d wanted ones came to the wrong queue", b.work[0].rest, b.work[1].wanted)
	}
	slices.Sort(spent[0])
	slices.Sort(spent[1])
	return float64(spent[0][groupSections/2]) / float64(spent[1][groupSections/2]), nil
}

// benchTrap measures the rate of a wanted flow under a flood, in share of its rate
// alone: with a queue of its own for the flood, and with one queue for all.
func benchTrap() (out []figure, err error) {
	for _, v := range []struct {
		name string
		trap bool
	}{{"napi.wanted_rate", true}, {"napi.wanted_rate.shared", false}} {
		b, err := newGroupBench(v.trap)
		if err != nil {
			return nil, err
		}
		var shares []float64
		for run := range benchRuns + 1 {
			share, err := b.measure()
			if err != nil {
				return nil, errors.Join(err, b.close())
			}
			if run > 0 { // the first warms up
				shares = append(shares, share)
			}
		}
		if err := b.close(); err != nil {
			return nil, err
		}
		out = append(out, summarize(v.name, "of its rate alone", shares))
	}
	out[0] = out[0].against(out[1])
	return out, nil
}

// benchNAPI is all of it.
func benchNAPI() ([]figure, error) {
	commands, err := benchCommands()
	if err != nil {
		return nil, err
	}
	rates, err := benchTrap()
	return append(commands, rates...), err
}
