package main

// emulated.go owns the embedded model as a device: the same interface as VFIO,
// with the emulated ConnectX running in a goroutine of this process. It does not
// own what that device does (package model).

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"mlx5d/model"
)

// emulatedDevice is a function of the embedded model.
type emulatedDevice struct {
	m      *model.Device
	wire   model.Wire
	title  string
	fds    []int         // eventfds by vector
	stop   chan struct{} // nil while paused
	done   sync.WaitGroup
	once   sync.Once
	wanted atomic.Bool // set by tests
}

// openEmulated creates a model and runs it.
func openEmulated(cfg model.Config) (*emulatedDevice, error) {
	cfg.Between, cfg.Hurry = new(courtesy).giveWay, hurried
	m, err := model.New(cfg)
	if err != nil {
		return nil, err
	}
	d := &emulatedDevice{m: m, wire: cfg.Wire, title: "emulated " + cfg.Profile}
	d.resume()
	return d, nil
}

// resume lets the model run in a goroutine of its own; pause ends that, after
// which it works only when its Step is called. One goroutine may call them.
func (d *emulatedDevice) resume() {
	if d.stop != nil {
		return
	}
	stop := make(chan struct{})
	d.stop = stop
	d.done.Go(func() { d.m.Run(stop) })
}

func (d *emulatedDevice) pause() {
	if d.stop != nil {
		close(d.stop)
		d.done.Wait()
		d.stop = nil
	}
}

func (d *emulatedDevice) name() string { return d.title }
func (d *emulatedDevice) bar0() []byte { return d.m.BAR() }
func (d *emulatedDevice) vectors() int { return d.m.Vectors() }

// iovaRanges are those of a machine with an IOMMU of 48 bits and the interrupt
// window of x86.
func (d *emulatedDevice) iovaRanges() []iovaRange {
	return []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<48 - 1}}
}

func (d *emulatedDevice) mapDMA(mem []byte, iova uint64) error {
	return d.m.MapDMA(iova, mem, true)
}

func (d *emulatedDevice) unmapDMA(iova, size uint64) error {
	return d.m.UnmapDMA(iova, size)
}

// enableVectors has interrupts raised as eventfds. A NIC has processors of its own, and
// its first interrupt, that of control events, reaches a CPU whatever the NIC does
// next. Here its thread may run on the very CPU that the interrupt is for, so it offers
// that.
func (d *emulatedDevice) enableVectors(n int) ([]int, error) {
	if n > d.m.Vectors() {
		return nil, fmt.Errorf("%d interrupt vectors asked for, the device has %d", n, d.m.Vectors())
	}
	for len(d.fds) < n {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("eventfd: %w", err)
		}
		d.fds = append(d.fds, fd)
		one, control := []byte{1, 0, 0, 0, 0, 0, 0, 0}, len(d.fds) == 1
		d.m.SetIRQ(len(d.fds)-1, func() {
			_, _ = unix.Write(fd, one) // fails only when 2^64-1 events wait unread
			if control {
				offerCPU()
			}
		})
	}
	return d.fds[:n], nil
}

// combining: the registers are memory, of which every page is as good.
func (d *emulatedDevice) combining() (int, error) { return len(d.bar0()) / pageSize, nil }

func (d *emulatedDevice) combine(int) (func() error, error) { return func() error { return nil }, nil }

func (d *emulatedDevice) setBusMaster(on bool) error {
	cmd := []byte{commandMemory, 0}
	if on {
		cmd[0] |= commandMaster
	}
	d.m.WriteConfig(configCommand, cmd)
	return nil
}

// wantedBack: nobody but a test asks.
func (d *emulatedDevice) wantedBack() (bool, error) { return d.wanted.Load(), nil }

func (d *emulatedDevice) reset() error {
	d.m.Reset()
	return nil
}

// close stops the model. The wire is closed with it.
func (d *emulatedDevice) close() (err error) {
	d.once.Do(func() {
		d.pause()
		for i := range d.fds {
			d.m.SetIRQ(i, nil)
			_ = unix.Close(d.fds[i])
		}
		err = d.m.Close()
	})
	return err
}

// virtual reports whether the profile is a virtual function.
func (d *emulatedDevice) virtual() bool {
	var id [2]byte
	d.m.ReadConfig(2, id[:])
	m, ok := findModel(uint16(id[0]) | uint16(id[1])<<8)
	return ok && m.vf
}

// lossless reports whether the wire waits for us.
func (d *emulatedDevice) lossless() bool { return d.wire.Lossless() }

// wireError is what ended the wire early, such as a capture cut short.
func (d *emulatedDevice) wireError() error {
	if w, ok := d.wire.(interface{ Err() error }); ok {
		return w.Err()
	}
	return nil
}
