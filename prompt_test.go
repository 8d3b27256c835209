package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlx5d/model"
)

// A ring that comes before the sleep ends it, and two rings are one.
func TestBellKeepsARing(t *testing.T) {
	b, err := newBell()
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	b.ring()
	b.ring()
	require.True(t, b.wait(time.Hour))
	require.False(t, rings(t, b), "a ring was heard and is still there")
	b.ring()
	b.hush()
	require.False(t, rings(t, b), "a ring was to be forgotten and is still there")
	require.True(t, b.wait(time.Millisecond), "nothing rang; the time is over")
}

// rings reports whether the bell has rung and nobody has heard it.
func rings(t *testing.T, b *bell) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, 0)
	require.NoError(t, err)
	return n > 0
}

// Whoever sleeps, or goes to sleep later, is told that the bell stops.
func TestBellStops(t *testing.T) {
	b, err := newBell()
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	var wg sync.WaitGroup
	wg.Go(func() {
		for b.wait(time.Hour) {
		}
	})
	b.halt()
	wg.Wait()
	require.False(t, b.wait(time.Hour))
}

// The copy of a device's interrupt hears what the device raises, and closing it
// leaves the device its own.
func TestBellOnAnInterrupt(t *testing.T) {
	its, err := newBell()
	require.NoError(t, err)
	b, err := bellOn(its.fd)
	require.NoError(t, err)
	its.ring()
	require.True(t, rings(t, b))
	require.True(t, b.wait(time.Hour))
	require.NoError(t, b.close())
	its.ring()
	require.True(t, rings(t, its))
	require.NoError(t, its.close())
	_, err = bellOn(its.fd)
	require.ErrorContains(t, err, "interrupt")
}

// A loop offers its CPU only while a command is under way, and then not at each poll.
func TestLoopsGiveWayToCommands(t *testing.T) {
	var c courtesy
	c.giveWay()
	require.Zero(t, c.last, "no command, and the CPU was offered")
	require.False(t, hurried())
	underway.Add(1)
	defer underway.Add(-1)
	require.True(t, hurried(), "the emulated device's turns stay long")
	c.giveWay()
	require.NotZero(t, c.last)
	future := time.Now().Add(time.Hour)
	c.last = future
	c.giveWay()
	require.Equal(t, future, c.last, "offered again too soon")
	require.Zero(t, testing.AllocsPerRun(100, c.giveWay))
}

// A command is under way until it ends, however it ends.
func TestCommandsUnderWay(t *testing.T) {
	before := underway.Load()
	card := newFakeCard()
	cmd := fakeCommander(t, card, 20*time.Millisecond)
	cmd.events.Store(true)
	seen := make(chan int32, 8)
	card.serve(t, func(q question) {
		seen <- underway.Load()
		if q.op() == 0x101 {
			return // firmware hangs
		}
		q.answer(0, echo(q))
		cmd.finish(1 << q.slot)
	})
	_, err := cmd.exec(numbered(0x100, 1, 16), 16)
	require.NoError(t, err)
	require.Equal(t, before+1, <-seen)
	require.Equal(t, before, underway.Load())
	_, err = cmd.exec(numbered(0x101, 2, 16), 16)
	require.ErrorContains(t, err, "no answer within")
	require.Equal(t, before, underway.Load())
	_, err = cmd.exec(make([]byte, maxMessage+1), 16)
	require.Error(t, err)
	cmd.lost.Store(true)
	_, err = cmd.exec(numbered(0x100, 3, 16), 16)
	require.True(t, errors.Is(err, errDeviceLost))
	require.Equal(t, before, underway.Load())
}

// The bells of the command slots are closed with the NIC.
func TestBellsAreClosed(t *testing.T) {
	eventfds := func() (n int) {
		paths, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		for _, p := range paths {
			if to, err := os.Readlink(p); err == nil && strings.Contains(to, "eventfd") {
				n++
			}
		}
		return n
	}
	before := eventfds()
	d, err := openEmulated(model.Config{Wire: &pingWire{}, Profile: "cx5"})
	require.NoError(t, err)
	n, err := testOpen(d, wishes{queues: 1})
	require.NoError(t, err)
	require.GreaterOrEqual(t, eventfds(), before+n.fw.usable)
	require.NoError(t, n.close())
	require.NoError(t, d.close())
	require.Equal(t, before, eventfds())
}

// Percentiles of several runs are those of all their times together.
func TestPooledFigure(t *testing.T) {
	quick, slow := make([]float64, 100), make([]float64, 100)
	for i := range quick {
		quick[i], slow[i] = 1, 1
	}
	copy(slow, []float64{50, 50, 50, 50}) // 2 of 100 of all, in one of two runs
	f := pooled("x", 0.99, [][]float64{quick, slow})
	require.Equal(t, figure{Name: "x", Value: 50, Unit: "us", Runs: 2, Min: 1, Max: 50}, f)
	out := compareCommands("p99", 0.99, [][]float64{quick, quick}, [][]float64{quick, slow})
	require.Equal(t, 50.0, out[0].Value, "slow commands of one run count")
	require.Equal(t, 50.0, out[0].Max)
}
