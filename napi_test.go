package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlx5d/model"
)

// hookedPoller is a channel during whose loop something can happen at each point.
type hookedPoller struct {
	*channel
	at   map[string]func()
	last int // what the last poll found
}

func (h *hookedPoller) happen(point string) {
	if f := h.at[point]; f != nil {
		f()
	}
}

func (h *hookedPoller) poll(budget int) int {
	h.happen("before the poll")
	h.last = h.channel.poll(budget)
	h.happen("between poll and arm")
	return h.last
}

func (h *hookedPoller) arm() {
	h.channel.arm()
	h.happen("between the arms")
}

func (h *hookedPoller) idle() {
	h.happen("after the arms")
	h.channel.idle()
}

// readable reports whether an interrupt waits in the eventfd.
func readable(t *testing.T, v *bell) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(v.fd), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, 0)
	require.NoError(t, err)
	return fds[0].Revents&unix.POLLIN != 0
}

// loopPoints are where in the loop something may come between.
var loopPoints = []string{"before the poll", "between poll and arm", "between the arms", "after the arms"}

// A frame that comes at any point of the loop either is found by the poll or wakes
// the sleeper at once, also the first of all. The device is stepped by hand;
// doorbells are memory.
func TestNoWakeUpIsLost(t *testing.T) {
	for first := range loopPoints {
		for _, striding := range []bool{false, true} {
			noWakeUpIsLost(t, first, striding)
		}
	}
}

func noWakeUpIsLost(t *testing.T, first int, striding bool) {
	wire := &burstWire{frames: [2][]byte{wantedFrame, floodFrame}}
	r, err := newBenchRigOn("cx5", wire, wishes{queues: 1, promisc: true, rxStriding: striding, coalesce: coalesceWish{"rx-usecs": 0, "rx-frames": 0}})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.close()) }()
	c, work := r.nic.channels[0], &sortWork{}
	c.setHandler(work)
	rng := rand.New(rand.NewPCG(5, uint64(first)))
	sent := 0
	for round := range 600 {
		point := loopPoints[(first+round)%len(loopPoints)]
		h, came := &hookedPoller{channel: c, at: map[string]func(){}}, false
		for _, p := range loopPoints {
			turn := rng.IntN(2) == 0 // the device takes one here
			h.at[p] = func() {
				if p == point && !came {
					came = true
					sent++
					wire.left[0] = 1
					r.settle()
				} else if turn {
					r.dev.m.Step()
				}
			}
		}
		// The loop as run has it, up to the sleep.
		for c.turn(h) {
		}
		c.rest(h)
		r.settle() // the device gets to the arms at last
		if work.wanted != sent {
			require.True(t, readable(t, c.vec), "round %d: a frame came %s, and nothing wakes the loop", round, point)
		}
		require.True(t, c.vec.wait(time.Millisecond))
		c.wake()
		for c.turn(h) {
		}
		require.Equal(t, sent, work.wanted, "round %d: %s", round, point)
	}
}

// pingWire gives one frame each time it is asked to.
type pingWire struct {
	burstWire
	asked atomic.Int64
	given int64
}

func (w *pingWire) Peek(time.Time) []byte {
	if w.given < w.asked.Load() {
		return wantedFrame
	}
	return nil
}

func (w *pingWire) Take() { w.given++ }

// countWork counts frames for a reader in another goroutine.
type countWork struct{ n atomic.Int64 }

func (w *countWork) handle(_ *channel, packets []packet) { w.n.Add(int64(len(packets))) }
func (w *countWork) turn(*channel) int                   { return 0 }
func (w *countWork) idle(*channel)                       {}

// In a running NIC frames that come one by one, at any distance, are handled long
// before the loop would look by itself, with moderation and without.
func TestSingleFramesWakeTheLoop(t *testing.T) {
	for _, w := range []wishes{
		{queues: 1, promisc: true},
		{queues: 1, promisc: true, adaptive: true},
		{queues: 1, promisc: true, rxStriding: true},
		{queues: 1, promisc: true, coalesce: coalesceWish{"rx-usecs": 0, "rx-frames": 0}},
	} {
		wire := &pingWire{}
		d := testDevice(t, model.Config{Wire: wire})
		n, err := testOpen(d, w)
		require.NoError(t, err)
		work := &countWork{}
		n.start([]handler{work}, false, nil)
		rng := rand.New(rand.NewPCG(1, 9))
		late := 0
		for i := range int64(400) {
			begun := time.Now()
			wire.asked.Add(1)
			for work.n.Load() != i+1 {
				require.Less(t, time.Since(begun), 5*time.Second, "frame %d", i)
				time.Sleep(20 * time.Microsecond)
			}
			if time.Since(begun) > idleWait/2 {
				late++ // the machine may be busy, but not every time
			}
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
		require.Less(t, late, 4, "frames waited for the loop's own look")
		require.NoError(t, n.close())
		requireClean(t, d)
	}
}

// An idle NIC makes a handful of polls a second.
func TestIdleNICIsQuiet(t *testing.T) {
	for _, w := range []wishes{{queues: 2}, {queues: 2, rxStriding: true}, {queues: 2, trap: true}} {
		d := testDevice(t, model.Config{})
		n, err := testOpen(d, w)
		require.NoError(t, err)
		handlers := make([]handler, len(n.channels))
		for i := range handlers {
			handlers[i] = &countWork{}
		}
		n.start(handlers, false, nil)
		time.Sleep(2 * idleWait) // whatever the start left to do is done
		var before []uint64
		for _, c := range n.channels {
			before = append(before, c.stats.polls.get())
		}
		time.Sleep(time.Second)
		for i, c := range n.channels {
			polls := c.stats.polls.get() - before[i]
			require.LessOrEqual(t, polls, uint64(8), "channel %d", i)
			require.NotZero(t, polls)
		}
		require.NoError(t, n.close())
	}
}

// With -busy-poll the loop asks for no event and still sees every frame.
func TestBusyPollNeverArms(t *testing.T) {
	wire := &pingWire{}
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: 1, promisc: true})
	require.NoError(t, err)
	defer spareThreads(0)
	spareThreads(1)
	work := &countWork{}
	n.start([]handler{work}, true, nil)
	wire.asked.Store(500)
	require.Eventually(t, func() bool { return work.n.Load() == 500 }, 10*time.Second, time.Millisecond)
	n.stop()
	require.Zero(t, n.channels[0].stats.arms.get())
	require.Zero(t, n.channels[0].stats.events.get())
	require.NotZero(t, n.channels[0].stats.polls.get())
	require.NoError(t, n.close())
}

// Doorbell records are stored at most once a poll, whatever it finds.
func TestDoorbellsOnceAPoll(t *testing.T) {
	for _, w := range []wishes{{}, {rxStriding: true}, {rxCompress: true}, {mtu: 9000}} {
		t.Run(fmt.Sprintf("%+v", w), func(t *testing.T) {
			wire := &burstWire{frames: [2][]byte{wantedFrame, floodFrame}}
			w.queues, w.promisc = 1, true
			r, err := newBenchRigOn("cx5", wire, w)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.close()) }()
			c := r.nic.channels[0]
			work := &sortWork{}
			c.setHandler(work)
			doorbells := func() uint64 { return c.rx.stats.doorbells.get() + c.rx.tally.doorbells }
			from := doorbells()
			for range 40 {
				wire.left[0] = 640
				for r.settle(); ; r.settle() {
					before := doorbells()
					if c.poll(napiBudget) == 0 {
						break
					}
					require.LessOrEqual(t, doorbells(), before+1)
				}
			}
			require.Equal(t, 40*640, work.wanted)
			require.LessOrEqual(t, doorbells()-from, uint64(40*640/napiBudget*5/4), "more than one store a chunk of 64")
		})
	}
}

// H5: interrupts on the CPUs that poll are found, whatever the list looks like.
func TestInterruptsOnPollingCPUs(t *testing.T) {
	proc := t.TempDir()
	for irq, list := range map[string]string{"4": "0\n", "24": "2\n", "25": "0-1,3-5\n", "26": "\n", "27": "x-y,9999999999999999999\n", "28": "1,3\n"} {
		dir := filepath.Join(proc, "irq", irq)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "effective_affinity_list"), []byte(list), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "irq", "99"), 0o700)) // one without a list
	require.ElementsMatch(t, []string{"25", "28"}, interruptsOn(proc, []int{3}))
	require.ElementsMatch(t, []string{"4", "24", "25"}, interruptsOn(proc, []int{0, 2}))
	require.Empty(t, interruptsOn(proc, []int{7}))
	require.Empty(t, interruptsOn(proc, nil))
	require.Empty(t, interruptsOn(filepath.Join(proc, "nothing"), []int{0}))
}

// H5: loops that fill every CPU say so, and go on.
func TestBusyPollWarnsWithoutCPUsToSpare(t *testing.T) {
	code, _, errs := cli(t, "-emulate", "-wire", "gen:count=1000", "-busy-poll", "-queues", strconv.Itoa(min(runtime.NumCPU(), 32)), "-json")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, errs, "polling loops take every CPU")
}
