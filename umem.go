package main

// umem.go owns the memory of an XSK socket: frames of one size in one area that
// the device reaches at a bus address of its own. It does not know who holds
// which frame (xsk.go, xskapp.go), nor what stands in it.
//
// A frame in the UMEM, received:
//
//	| 256 bytes for XDP | headroom | data ...                  |
//	^ address in fill ring          ^ address in RX descriptor
//
// Sent, the descriptor's address says where data begins, anywhere in a frame:
// neither the 256 bytes nor the headroom mean anything then. All addresses are
// offsets from the start of the UMEM.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	minUMEMFrame = 2048
	maxUMEMFrame = pageSize
	maxUMEM      = 1 << 32 // bytes
	minUMEMRoom  = 128     // bytes that must be left for data
)

// umemConfig is what a UMEM is made from.
type umemConfig struct {
	frame    int // bytes
	frames   int
	headroom int
}

// bytes is the size of the area.
func (c umemConfig) bytes() int { return c.frame * c.frames }

// check finds what is wrong with a UMEM before anything is made.
func (c umemConfig) check() error {
	switch {
	case c.frame == 0 || c.frames == 0:
		return wishf("a UMEM of %d frames of %d bytes holds nothing: give both", c.frames, c.frame)
	case c.frame != minUMEMFrame && c.frame != maxUMEMFrame:
		return wishf("UMEM frames of %d bytes: %d or %d", c.frame, minUMEMFrame, maxUMEMFrame)
	case c.frames < 0 || c.frames > maxUMEM/c.frame:
		return wishf("a UMEM of %d frames: 1 to %d of this size", c.frames, maxUMEM/c.frame)
	case c.bytes()%pageSize != 0:
		return wishf("a UMEM of %d frames of %d bytes is not whole pages of %d: give an even number", c.frames, c.frame, pageSize)
	case c.headroom < 0 || c.headroom > c.frame-rxHeadroom-minUMEMRoom:
		return wishf("a headroom of %d bytes: frames of %d have room for 0 to %d beside XDP's %d", c.headroom, c.frame,
			c.frame-rxHeadroom-minUMEMRoom, rxHeadroom)
	}
	return nil
}

// checkArea finds what is wrong with memory that is to be a UMEM.
func (c umemConfig) checkArea(area []byte) error {
	switch {
	case len(area) == 0:
		return wishf("a UMEM of size 0: give memory")
	case !pageAligned(area):
		return wishf("the UMEM's area is misaligned: it must begin at a multiple of %d, as memory from mmap does", pageSize)
	case len(area) != c.bytes():
		return wishf("the UMEM's area has %d bytes, %d frames of %d are %d", len(area), c.frames, c.frame, c.bytes())
	}
	return nil
}

// umem is such memory, mapped for all devices of an arena.
type umem struct {
	mem      dmaMem
	log      uint8  // log2 of a frame's bytes
	frame    uint32 // bytes
	frames   uint32
	headroom uint32
}

// newUMEM maps area for the devices. close ends that.
func newUMEM(mem *arena, area []byte, c umemConfig) (*umem, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.checkArea(area); err != nil {
		return nil, err
	}
	m, err := mem.mapGuest(area)
	if err != nil {
		return nil, fmt.Errorf("UMEM of %d KiB: %w", len(area)>>10, err)
	}
	u := c.shape()
	u.mem = m
	return &u, nil
}

// shape is a UMEM without its memory, to see whether it would do.
func (c umemConfig) shape() umem {
	return umem{log: logCeil(c.frame), frame: uint32(c.frame), frames: uint32(c.frames), headroom: uint32(c.headroom)}
}

// close takes the memory from the devices, which must have let go of it.
func (u *umem) close(mem *arena) error { return mem.unmapGuest(u.mem) }

// start is where in a frame received data begins, room how much there is.
func (u *umem) start() uint32 { return rxHeadroom + u.headroom }
func (u *umem) room() uint32  { return u.frame - u.start() }

// largestMTU is the largest MTU whose frames fit into so many UMEM frames.
func (u *umem) largestMTU(pieces int) int { return pieces*int(u.room()) - etherHeader - vlanTag }

// sharedMemory is memory with a file descriptor, for another process to map. It is
// sealed: it can neither shrink under us nor grow. (What a peer can still do is
// punch holes; they read as zero, to us as to it.)
type sharedMemory struct {
	fd int
	b  []byte
}

// newSharedMemory makes zeroed memory of n bytes, whole pages.
func newSharedMemory(name string, n int) (f sharedMemory, err error) {
	if f.fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return sharedMemory{}, fmt.Errorf("memory to share: %w", err)
	}
	if err = unix.Ftruncate(f.fd, int64(n)); err == nil {
		f.b, err = unix.Mmap(f.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(f.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return sharedMemory{}, errors.Join(fmt.Errorf("%d KiB of memory to share: %w", n>>10, err), f.close())
	}
	_ = unix.Madvise(f.b, unix.MADV_HUGEPAGE) // where the machine gives them to such files
	return f, nil
}

// close gives the memory back. A peer that has it mapped keeps its own view, of
// nothing: what it touches from now on is its own.
func (f sharedMemory) close() (err error) {
	if f.b != nil {
		err = errors.Join(unix.Munmap(f.b),
			unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(f.b))))
	}
	return errors.Join(err, unix.Close(f.fd))
}
