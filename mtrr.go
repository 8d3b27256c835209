package main

// mtrr.go owns memory type range registers: a page of doorbells gets the type
// write-combining by one of them. It does not know which page that is (vfio.go) nor
// what it is good for (blueflame.go).
// Linux: Documentation/arch/x86/mtrr.rst, asm/mtrr.h. Intel SDM volume 3, chapter
// Memory Cache Control; AMD64 APM volume 2, chapter Memory System.
//
// VFIO maps registers of a device as UC- ("uncached minus"), which is the one page
// type that a range register of type write-combining overrides, as long as the
// mapping is made of small pages (vfioabi.go). Only a range that no other register
// covers is any good: where several do, uncached wins, and Linux takes ours all the
// same. What was added through a file is dropped when that is closed, so that
// nothing stays behind a process, however it ends.
//
// Each change stops all processors for a moment: they are for opening and closing.
// The kernel has BAR0 mapped for itself too, perhaps by large pages; it does not
// touch it while VFIO lends it out.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Requests on /proc/mtrr, which count in pages: _IOW('M', 5), _IOW('M', 7) of the
// first argument, _IOWR('M', 8) of the second.
const (
	mtrrAddPages = 0x40104d05
	mtrrDelPages = 0x40104d07
	mtrrGetPages = 0xc0184d08

	sizeMTRRAdd = 16 // first page 64 bits, pages 32, type 32
	sizeMTRRGet = 24 // first page 64 bits, pages 32, register 32, type 32, padding

	mtrrCombining = 1
	maxMTRR       = 256 // more than any processor has
)

// mtrrTypes are the names of types, as /proc/mtrr has them.
var mtrrTypes = map[uint32]string{0: "uncachable", 1: "write-combining", 4: "write-through", 5: "write-protect", 6: "write-back"}

// mtrrRange is what one register covers, in pages.
type mtrrRange struct {
	first uint64
	n     uint32 // 0 is a register that is free
	kind  uint32
}

func (r mtrrRange) meets(first, n uint64) bool {
	return r.n > 0 && r.first < first+n && first < r.first+uint64(r.n)
}

func (r mtrrRange) typeName() string {
	if s, ok := mtrrTypes[r.kind]; ok {
		return s
	}
	return fmt.Sprintf("type %d", r.kind)
}

// mtrrs is an open /proc/mtrr.
type mtrrs struct {
	k  vfioKernel
	fd int
}

// openMTRRs opens the file at path.
func openMTRRs(k vfioKernel, path string) (mtrrs, error) {
	fd, err := k.open(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return mtrrs{}, fmt.Errorf("there is no %s: only x86 has memory type registers, and Linux shows them with CONFIG_MTRR: %w", path, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return mtrrs{}, fmt.Errorf("%s: run as root or grant CAP_SYS_ADMIN: %w", path, err)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO):
		return mtrrs{}, fmt.Errorf("%s: Linux leaves the memory type registers alone (off in the BIOS, or a guest without them): %w", path, err)
	case err != nil:
		return mtrrs{}, fmt.Errorf("%s: %w", path, err)
	}
	return mtrrs{k, fd}, nil
}

// read returns register i; ok is false where there are not so many.
func (m mtrrs) read(i int) (r mtrrRange, ok bool, err error) {
	arg := make([]byte, sizeMTRRGet)
	native.PutUint32(arg[12:], uint32(i))
	_, err = m.k.ioctl(m.fd, mtrrGetPages, arg)
	if errors.Is(err, unix.EINVAL) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("memory type register %d can't be read: %w", i, err)
	}
	return mtrrRange{native.Uint64(arg), native.Uint32(arg[8:]), native.Uint32(arg[16:])}, true, nil
}

// free counts the free registers. That one covers any of n pages from first on is
// an error, unless it is of ours: a single page that combines.
func (m mtrrs) free(first, n uint64) (free int, err error) {
	for i := range maxMTRR {
		r, ok, err := m.read(i)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			return free, nil
		case r.n == 0:
			free++
		case r.meets(first, n) && (r.n > 1 || r.kind != mtrrCombining):
			return 0, fmt.Errorf("memory type register %d has the device's registers as %s: firmware must leave them out", i, r.typeName())
		}
	}
	return free, nil
}

// combine makes one page combine stores, and checks that a register says so.
func (m mtrrs) combine(page uint64) error {
	i, err := m.k.ioctl(m.fd, mtrrAddPages, mtrrArg(page))
	switch {
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("no memory type register is free: use fewer queues: %w", err)
	case err != nil:
		return fmt.Errorf("no memory type register takes page %#x (dmesg may say why): %w", page, err)
	}
	r, ok, err := m.read(i)
	if err == nil && (!ok || r != (mtrrRange{page, 1, mtrrCombining})) {
		err = fmt.Errorf("memory type register %d does not hold what was put in", i)
	}
	if err != nil {
		return joinLine(err, m.restore(page))
	}
	return nil
}

// restore takes back what combine did.
func (m mtrrs) restore(page uint64) error {
	if _, err := m.k.ioctl(m.fd, mtrrDelPages, mtrrArg(page)); err != nil {
		return fmt.Errorf("the memory type register of page %#x can't be freed: %w", page, err)
	}
	return nil
}

func mtrrArg(page uint64) []byte {
	arg := make([]byte, sizeMTRRAdd)
	native.PutUint64(arg, page)
	native.PutUint32(arg[8:], 1)
	native.PutUint32(arg[12:], mtrrCombining)
	return arg
}
