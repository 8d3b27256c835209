package main

// This file owns the device process of a scenario: the appliance's own binary
// with -serve, and what it reports: one JSON line a device when it is asked
// (SIGUSR1) and when a client has left.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// report is one line of the device process.
type report struct {
	Event  string    `json:"event"` // serving, attached, stats, detached
	Socket string    `json:"socket"`
	Error  string    `json:"error"`
	Stats  counts    `json:"stats"`
	PCI    busCounts `json:"pci"`
}

// counts is what the lab compares of a device's own counters.
type counts struct {
	Objects      map[string]int
	Pages        int
	DMAFaults    uint64
	LastFault    string
	BadDoorbells uint64
	BadDoorbell  string
	Commands     uint64
	CommandFails uint64
	Overruns     uint64
	Interrupts   uint64
	Doorbells    uint64
	CQArms       uint64
	EQArms       uint64
	CQEs         uint64
	RxFrames     uint64
	RxDelivered  uint64
	TxFrames     uint64
	WireDropped  uint64
	SQ           sendCounts

	PCI busCounts `json:"-"` // beside the others in a report
}

type sendCounts struct {
	WQEs, MPWQEs, MPWPackets, NOPs, UMRs, Packets     uint64
	WQEBytes, RingBytes, DataBytes, DataReads, Inline uint64
	Doorbells, CQEs, Errors                           uint64
}

// server is the device process.
type server struct {
	cmd     *exec.Cmd
	sockets []string
	log     *os.File
	reports chan report
	ended   chan struct{}
	err     error
}

const servePatience = 20 * time.Second

// serve starts the device process with n functions and waits until it listens.
// args are further arguments, such as -profile and -wire.
func (l *lab) serve(ctx context.Context, n int, args ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "mlx5d-lab")
	if err != nil {
		return nil, err
	}
	s := &server{reports: make(chan report, 1024), ended: make(chan struct{})}
	for i := range n {
		s.sockets = append(s.sockets, filepath.Join(dir, fmt.Sprintf("%d", i)))
	}
	l.servers++
	if s.log, err = os.Create(filepath.Join(l.out, fmt.Sprintf("device%d.log", l.servers))); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, l.binary, append([]string{"-serve", strings.Join(s.sockets, ",")}, args...)...)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 10 * time.Second
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the device: %w", err)
	}
	l.cleanup = append(l.cleanup, func() { s.stop(); _ = os.RemoveAll(dir) })
	go s.read(out)
	for range s.sockets {
		if _, err := s.next("serving", ""); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *server) read(out io.Reader) {
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		fmt.Fprintln(s.log, in.Text())
		var r report
		if json.Unmarshal(in.Bytes(), &r) == nil && r.Event != "" {
			s.reports <- r
		}
	}
	s.err = s.cmd.Wait()
	close(s.ended)
}

// next waits for the next report of an event, of one socket unless that is
// empty; others are dropped.
func (s *server) next(event, socket string) (report, error) {
	deadline := time.After(servePatience)
	for {
		select {
		case r := <-s.reports:
			if r.Event == event && (socket == "" || r.Socket == socket) {
				return r, nil
			}
		case <-s.ended:
			return report{}, fmt.Errorf("the device process ended: %w", errors.Join(s.err, errors.New("see "+s.log.Name())))
		case <-deadline:
			return report{}, fmt.Errorf("the device process reported no %q: see %s", event, s.log.Name())
		}
	}
}

// stats asks for the counters of every function, in the sockets' order.
func (s *server) stats() ([]counts, error) {
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return nil, fmt.Errorf("asking the device process for its counters: %w", err)
	}
	out := make([]counts, len(s.sockets))
	for i, socket := range s.sockets {
		r, err := s.next("stats", socket)
		if err != nil {
			return nil, err
		}
		out[i], out[i].PCI = r.Stats, r.PCI
	}
	return out, nil
}

// stop ends the process; it is the second time a no-op.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	_ = s.log.Close()
}

// clean is an error unless the host has everything back: the state after a
// driver has left.
func (c *counts) clean() error {
	live := 0
	for _, n := range c.Objects {
		live += n
	}
	if live != 0 || c.Pages != 0 {
		return fmt.Errorf("the device still holds %d objects (%v) and %d pages", live, c.Objects, c.Pages)
	}
	return nil
}

// sound is an error if the device saw anything that a correct driver never does.
func (c *counts) sound() error {
	if c.DMAFaults != 0 || c.BadDoorbells != 0 || c.Overruns != 0 || c.SQ.Errors != 0 {
		return fmt.Errorf("the device saw %d DMA faults (%s), %d bad doorbells (%s), %d overruns, %d send errors",
			c.DMAFaults, c.LastFault, c.BadDoorbells, c.BadDoorbell, c.Overruns, c.SQ.Errors)
	}
	return nil
}
