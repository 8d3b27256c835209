package main

// serve.go owns -serve: the emulated ConnectX as a device that virtual machines
// attach to over vfio-user sockets, and its reports as JSON lines. It does not
// own the protocol (package vfiouser) or the device (package model).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"mlx5d/model"
	"mlx5d/model/vfiouser"
)

// serveReport is one line of output: serving, attached, detached or stats.
type serveReport struct {
	Event  string       `json:"event"`
	Socket string       `json:"socket"`
	Error  string       `json:"error,omitempty"`
	Stats  *model.Stats `json:"stats,omitempty"`
	PCI    *servedPCI   `json:"pci,omitempty"`
}

// servedPCI is what a device did on its bus: accesses by kind, and the bytes that
// they put on a link.
type servedPCI struct {
	Counts model.PCICounts
	Load   model.PCILoad
}

// pciOf looks at a device's bus.
func pciOf(d *model.Device) *servedPCI {
	c := d.PCI()
	return &servedPCI{Counts: c, Load: c.Load(d.PCISettings())}
}

// reporter writes reports from several goroutines, one whole line each.
type reporter struct {
	mu  sync.Mutex
	out io.Writer
}

func (r *reporter) say(v serveReport) {
	b, err := json.Marshal(v)
	if err != nil {
		return // a report holds nothing that cannot be written
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%s\n", b)
}

// served is one device behind a socket.
type served struct {
	path string
	dev  *model.Device
	srv  *vfiouser.Server
}

// firstDoorbell is where pages begin that may be shared as memory: what lies
// below are the initialization segment and the interrupt table.
const firstDoorbell = 0x10000

// runServe serves devices until ctx ends. SIGUSR1 reports their counters.
func runServe(ctx context.Context, o options, out io.Writer) (err error) {
	rep := &reporter{out: out}
	paths := strings.Split(o.serve, ",")
	wires, err := serveWires(o, len(paths))
	if err != nil {
		return err
	}
	var undo undo
	defer func() {
		if again := undo.run(); err == nil {
			err = again
		}
	}()
	var all []*served
	for i, path := range paths {
		s, err := openServed(o, path, i, wires[i], rep, &undo)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	defer signal.Stop(usr1)
	var running sync.WaitGroup
	failed := make(chan error, len(all))
	for _, s := range all {
		rep.say(serveReport{Event: "serving", Socket: s.path})
		running.Add(1)
		go func() {
			defer running.Done()
			failed <- s.srv.Serve(ctx)
		}()
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	for {
		select {
		case <-usr1:
			for _, s := range all {
				stats := s.dev.Stats()
				rep.say(serveReport{Event: "stats", Socket: s.path, Stats: &stats, PCI: pciOf(s.dev)})
			}
		case <-done:
			close(failed)
			for e := range failed {
				err = errors.Join(err, e)
			}
			return err
		}
	}
}

// serveWires plugs n ports: in pairs when there are several, else what -wire
// says, or nothing.
func serveWires(o options, n int) ([]model.Wire, error) {
	switch {
	case n > 1 && o.set["wire"]:
		return nil, wishf("-wire plugs one port; the ports of several sockets are joined in pairs")
	case n > 1 && n%2 != 0:
		return nil, wishf("-serve with %d sockets: ports are joined in pairs, give an even number", n)
	case n > 1:
		var wires []model.Wire
		for range n / 2 {
			a, b := model.Join()
			wires = append(wires, a, b)
		}
		return wires, nil
	case !o.set["wire"]:
		o.wire = "none"
	}
	w, err := model.ParseWire(o.wire)
	if err != nil {
		return nil, err
	}
	return []model.Wire{w}, nil
}

// openServed makes device number i and listens on path.
func openServed(o options, path string, i int, wire model.Wire, rep *reporter, u *undo) (*served, error) {
	d, err := model.New(model.Config{Profile: o.profile, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}, Wire: wire})
	if err != nil {
		return nil, errors.Join(err, wire.Close())
	}
	u.add("device", d.Close)
	opts := vfiouser.Options{
		Attached: func() { rep.say(serveReport{Event: "attached", Socket: path}) },
		Detached: func(err error) {
			stats := d.Stats()
			r := serveReport{Event: "detached", Socket: path, Stats: &stats}
			if err != nil {
				r.Error = err.Error()
			}
			rep.say(r)
		},
	}
	if o.mmapDoorbells {
		opts.Doorbells = []vfiouser.Area{{Offset: firstDoorbell, Size: len(d.BAR()) - firstDoorbell}}
	}
	srv, err := vfiouser.Listen(path, d, opts)
	if err != nil {
		return nil, err
	}
	u.add("socket "+path, srv.Close)
	return &served{path, d, srv}, nil
}
