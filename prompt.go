package main

// prompt.go owns how threads sleep until an interrupt and are woken, and what poll
// loops do for those between firmware's answer and who asked for it. What they wait
// for is command.go's, events.go's and napi.go's.
//
// Linux takes a command's completion in an interrupt. We have threads, and two
// things would delay those by milliseconds. A wake-up through the Go scheduler is a
// relay of up to three threads (one that waits for files, one that has the
// processor, the one that is meant), each of which must get a CPU; so here a thread
// sleeps in the kernel, on an eventfd of its own, and is woken itself. Loops of
// packets sleep so too: their interrupts would keep the relay busy for all others.
// And who is woken while every CPU polls waits until the kernel next looks at time
// slices: a tick, 4 ms with 250 Hz. So while a command is under way poll loops offer
// their CPU between two polls. Nothing of this needs a right.
//
// Real-time priority is no alternative: a goroutine that goes on while the collector
// looks at its stack spins until that is done. A real-time thread that has just taken
// the collector's CPU would spin there until the kernel stops it, most of a second.
// A short time slice (sched_setattr, from Linux 6.12) was tried: it wins nothing where
// loops give way, and asking for it takes a command longer.

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// underway counts the commands that wait for firmware, those of all NICs, since
// they share the CPUs. Written by the callers of commands, read by every poll loop.
var underway atomic.Int32

// offerEvery bounds how often a loop offers its CPU. A slow command then takes it two
// of a hundred turns, where an offer at each poll could take a quarter.
const offerEvery = 20 * time.Microsecond

// hurried reports whether a command is under way. A loop whose turns are long, as the
// emulated device's are, makes them shorter then.
func hurried() bool { return underway.Load() != 0 }

// courtesy is what one poll loop does for commands.
type courtesy struct {
	last time.Time // when it last offered its CPU
}

// giveWay lets who waits for this CPU have it while a command is under way.
func (c *courtesy) giveWay() {
	if !hurried() {
		return
	}
	if now := time.Now(); now.Sub(c.last) >= offerEvery {
		c.last = now
		offerCPU()
	}
}

// offerCPU lets threads that wait for this CPU run first.
func offerCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// bell is an eventfd that one thread sleeps on in the kernel: an interrupt, or what
// takes its place. It keeps what rings before the sleep.
type bell struct {
	fd   int
	stop atomic.Bool
}

func newBell() (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &bell{fd: fd}, nil
}

// bellOn takes a copy of an eventfd that belongs to the device.
func bellOn(fd int) (*bell, error) {
	own, err := copyInterrupt(fd)
	if err != nil {
		return nil, err
	}
	return &bell{fd: own}, nil
}

// copyInterrupt makes a descriptor of our own, which does not block.
func copyInterrupt(fd int) (int, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("interrupt: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return 0, fmt.Errorf("interrupt: %w", err)
	}
	return own, nil
}

// wait sleeps until the bell rings, most at the longest, and sometimes shorter. It
// returns false when the bell was told to stop.
func (b *bell) wait(most time.Duration) bool {
	if b.stop.Load() {
		return false
	}
	// What fails here, such as by a signal, ends the sleep early.
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, int(most.Milliseconds()))
	b.hush()
	return !b.stop.Load()
}

// hush forgets that the bell rang.
func (b *bell) hush() {
	var v [8]byte
	_, _ = unix.Read(b.fd, v[:]) // fails when it did not
}

// ring wakes who waits, or who waits next.
func (b *bell) ring() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(b.fd, one[:]) // fails when 2^64-1 rings wait unread
}

// halt wakes the waiter for the last time.
func (b *bell) halt() {
	b.stop.Store(true)
	b.ring()
}

func (b *bell) close() error { return unix.Close(b.fd) }
