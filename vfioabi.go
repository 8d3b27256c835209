package main

// vfioabi.go owns what VFIO and its type 1 IOMMU exchange with a program: ioctl
// numbers, argument bytes, the chain of capabilities, and the few system calls
// that carry them. It does not decide what is called when (vfio.go).
// Linux: include/uapi/linux/vfio.h. All fields are in the machine's byte order,
// every argument starts with its own size (argsz) and flags, 32 bits each.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// Requests: _IO(';', 100+n) in the header.
const (
	vfioGetAPIVersion       = 0x3b64
	vfioCheckExtension      = 0x3b65
	vfioSetIOMMU            = 0x3b66
	vfioGroupGetStatus      = 0x3b67
	vfioGroupSetContainer   = 0x3b68
	vfioGroupUnsetContainer = 0x3b69
	vfioGroupGetDeviceFD    = 0x3b6a
	vfioDeviceGetInfo       = 0x3b6b
	vfioDeviceGetRegionInfo = 0x3b6c
	vfioDeviceGetIRQInfo    = 0x3b6d
	vfioDeviceSetIRQs       = 0x3b6e
	vfioDeviceReset         = 0x3b6f
	vfioIOMMUGetInfo        = 0x3b70
	vfioIOMMUMapDMA         = 0x3b71
	vfioIOMMUUnmapDMA       = 0x3b72
)

// Values of arguments and answers.
const (
	vfioAPIVersion = 0
	vfioType1v2    = 3 // VFIO_TYPE1v2_IOMMU

	groupViable       = 1 << 0
	groupHasContainer = 1 << 1

	deviceCanReset = 1 << 0
	deviceIsPCI    = 1 << 1

	regionBAR0   = 0
	regionConfig = 7
	regionRead   = 1 << 0
	regionWrite  = 1 << 1
	regionMmap   = 1 << 2

	irqMSIX    = 2
	irqRequest = 4 // VFIO_PCI_REQ_IRQ_INDEX: the host wants the function back
	irqEventFD = 1 << 0

	irqSetNone    = 1<<0 | 1<<5 // DATA_NONE, ACTION_TRIGGER
	irqSetEventFD = 1<<2 | 1<<5 // DATA_EVENTFD, ACTION_TRIGGER

	iommuPageSizes = 1 << 0
	iommuCaps      = 1 << 1
	capIOVARange   = 1
	capDMAAvail    = 3

	dmaReadWrite = 1<<0 | 1<<1
)

// Sizes of the fixed parts of the arguments, bytes.
const (
	sizeGroupStatus = 8
	sizeDeviceInfo  = 20 // with cap_offset
	sizeRegionInfo  = 32
	sizeIRQInfo     = 16
	sizeIRQSet      = 20 // followed by one 32-bit eventfd for each vector
	sizeIOMMUInfo   = 24 // with cap_offset and padding
	sizeDMAMap      = 32
	sizeDMAUnmap    = 24
	sizeCapHeader   = 8
	sizeIOVARange   = 16
	// maxIOMMUInfo bounds the chain of capabilities that we accept.
	maxIOMMUInfo = 64 << 10
)

// newVFIOArg returns a zeroed argument whose size field is set.
func newVFIOArg(size int) []byte {
	b := make([]byte, size)
	native.PutUint32(b, uint32(size))
	return b
}

// argFlags reads the flags that the kernel filled in.
func argFlags(b []byte) uint32 { return native.Uint32(b[4:]) }

// indexedArg asks about region or interrupt number index.
func indexedArg(size int, index uint32) []byte {
	b := newVFIOArg(size)
	native.PutUint32(b[8:], index)
	return b
}

// vfioRegion is a window in the device's file.
type vfioRegion struct {
	flags        uint32
	size, offset uint64
}

// parseRegion reads the answer to VFIO_DEVICE_GET_REGION_INFO.
func parseRegion(b []byte) vfioRegion {
	return vfioRegion{argFlags(b), native.Uint64(b[16:]), native.Uint64(b[24:])}
}

// irqCount reads the answer to VFIO_DEVICE_GET_IRQ_INFO: how many vectors can
// be bound to eventfds.
func irqCount(b []byte) int {
	if argFlags(b)&irqEventFD == 0 {
		return 0
	}
	return int(min(native.Uint32(b[12:]), 2048)) // what MSI-X can have
}

// irqSetArg binds vectors 0 to len(fds)-1 of an interrupt index to eventfds, or
// switches all of them off when there are none.
func irqSetArg(index uint32, fds []int) []byte {
	b := newVFIOArg(sizeIRQSet + 4*len(fds))
	flags := uint32(irqSetEventFD)
	if len(fds) == 0 {
		flags = irqSetNone
	}
	native.PutUint32(b[4:], flags)
	native.PutUint32(b[8:], index)
	native.PutUint32(b[16:], uint32(len(fds)))
	for i, fd := range fds {
		native.PutUint32(b[sizeIRQSet+4*i:], uint32(fd))
	}
	return b
}

// dmaMapArg lets the device read and write n bytes at our address vaddr.
func dmaMapArg(vaddr, iova, n uint64) []byte {
	b := newVFIOArg(sizeDMAMap)
	native.PutUint32(b[4:], dmaReadWrite)
	native.PutUint64(b[8:], vaddr)
	native.PutUint64(b[16:], iova)
	native.PutUint64(b[24:], n)
	return b
}

// dmaUnmapArg ends that. The kernel answers in it with what it unmapped.
func dmaUnmapArg(iova, n uint64) []byte {
	b := newVFIOArg(sizeDMAUnmap)
	native.PutUint64(b[8:], iova)
	native.PutUint64(b[16:], n)
	return b
}

func unmappedSize(b []byte) uint64 { return native.Uint64(b[16:]) }

// iommuInfo is what the kernel says about a container's IOMMU.
type iommuInfo struct {
	pageSizes uint64      // bit n: pages of 2^n bytes
	ranges    []iovaRange // ascending
	avail     int         // mappings left, -1 when the kernel doesn't say
}

// defaultRanges is assumed when the kernel names none (before Linux 5.4): all
// addresses but the window in which x86 takes writes for interrupts.
var defaultRanges = []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<64 - 1}}

var errIOMMUInfo = errors.New("the kernel's description of the IOMMU makes no sense")

// parseIOMMUInfo reads the answer to VFIO_IOMMU_GET_INFO. Offsets in the chain
// of capabilities must ascend, which also ends it.
func parseIOMMUInfo(b []byte) (iommuInfo, error) {
	info := iommuInfo{pageSizes: pageSize, avail: -1}
	if len(b) < sizeIOMMUInfo {
		return info, fmt.Errorf("%w: %d bytes", errIOMMUInfo, len(b))
	}
	if argFlags(b)&iommuPageSizes != 0 {
		info.pageSizes = native.Uint64(b[8:])
	}
	if argFlags(b)&iommuCaps != 0 {
		if err := info.parseCaps(b); err != nil {
			return info, err
		}
	}
	if info.ranges == nil {
		info.ranges = slices.Clone(defaultRanges)
	}
	return info, nil
}

// parseCaps walks the chain. Unknown capabilities are skipped.
func (info *iommuInfo) parseCaps(b []byte) error {
	last := uint64(sizeIOMMUInfo - 1)
	for off := uint64(native.Uint32(b[16:])); off != 0; {
		if off <= last || off+sizeCapHeader > uint64(len(b)) {
			return fmt.Errorf("%w: capability at %d of %d bytes", errIOMMUInfo, off, len(b))
		}
		one := b[off:]
		switch native.Uint16(one) {
		case capIOVARange:
			ranges, err := parseRanges(one)
			if err != nil {
				return err
			}
			info.ranges = ranges
		case capDMAAvail:
			if len(one) < sizeCapHeader+4 {
				return fmt.Errorf("%w: short capability %d", errIOMMUInfo, capDMAAvail)
			}
			info.avail = int(native.Uint32(one[8:]))
		}
		last, off = off, uint64(native.Uint32(one[4:]))
	}
	return nil
}

// parseRanges reads the capability that lists usable bus addresses, and puts
// them in order. None may be empty or overlap another.
func parseRanges(b []byte) ([]iovaRange, error) {
	const fixed = sizeCapHeader + 8
	if len(b) < fixed {
		return nil, fmt.Errorf("%w: short list of ranges", errIOMMUInfo)
	}
	n := uint64(native.Uint32(b[8:]))
	if n == 0 || n > uint64(len(b)-fixed)/sizeIOVARange {
		return nil, fmt.Errorf("%w: %d ranges in %d bytes", errIOMMUInfo, n, len(b))
	}
	list := make([]iovaRange, n)
	for i := range list {
		at := b[fixed+sizeIOVARange*i:]
		list[i] = iovaRange{native.Uint64(at), native.Uint64(at[8:])}
	}
	slices.SortFunc(list, func(a, b iovaRange) int { return cmp.Compare(a.first, b.first) })
	for i, r := range list {
		if r.last < r.first || i > 0 && r.first <= list[i-1].last {
			return nil, fmt.Errorf("%w: range %#x to %#x", errIOMMUInfo, r.first, r.last)
		}
	}
	return list, nil
}

// vfioKernel is the few system calls that VFIO needs. linuxKernel makes them;
// tests stand in for it.
type vfioKernel interface {
	open(path string) (int, error)
	close(fd int) error
	ioctl(fd int, request uint, arg []byte) (int, error) // arg is read and written
	ioctlValue(fd int, request uint, value int) (int, error)
	pread(fd int, p []byte, off int64) error
	pwrite(fd int, p []byte, off int64) error
	mmap(fd int, off int64, n int) ([]byte, error)
	munmap(b []byte) error
	eventfd() (int, error)
	// signalled reports whether an eventfd was written to and not read since.
	signalled(fd int) bool
	// address is where mem lies for the kernel. It must stay there.
	address(mem []byte) uint64
	// memlock is how many bytes the process may lock; limited is false when it
	// may lock any number.
	memlock() (limit uint64, limited bool)
}

// linuxKernel makes the real calls.
type linuxKernel struct{}

func (linuxKernel) open(path string) (int, error) {
	return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
}

func (linuxKernel) close(fd int) error { return unix.Close(fd) }

func (linuxKernel) ioctl(fd int, request uint, arg []byte) (int, error) {
	for {
		r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
		if e == 0 {
			return int(r), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func (linuxKernel) ioctlValue(fd int, request uint, value int) (int, error) {
	for {
		r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(value))
		if e == 0 {
			return int(r), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func (linuxKernel) pread(fd int, p []byte, off int64) error {
	n, err := unix.Pread(fd, p, off)
	if err == nil && n != len(p) {
		return fmt.Errorf("%d of %d bytes read", n, len(p))
	}
	return err
}

func (linuxKernel) pwrite(fd int, p []byte, off int64) error {
	n, err := unix.Pwrite(fd, p, off)
	if err == nil && n != len(p) {
		return fmt.Errorf("%d of %d bytes written", n, len(p))
	}
	return err
}

// mmap has the mapping made of small pages: a processor may do anything where the
// memory type changes within a large one (mtrr.go). A kernel that knows no large
// pages refuses to be told.
func (linuxKernel) mmap(fd int, off int64, n int) ([]byte, error) {
	b, err := unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	}
	return b, err
}

func (linuxKernel) munmap(b []byte) error { return unix.Munmap(b) }

func (linuxKernel) eventfd() (int, error) {
	return unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
}

func (linuxKernel) signalled(fd int) bool {
	event := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(event, 0) // what fails, by a signal, is asked again
	return err == nil && n == 1 && event[0].Revents&unix.POLLIN != 0
}

func (linuxKernel) address(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// memlock raises the soft limit to the hard one first: that takes no right.
func (linuxKernel) memlock() (limit uint64, limited bool) {
	var caps [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if unix.Capget(&header, &caps[0]) == nil && caps[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return 0, false
	}
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil {
		return 0, false
	}
	if l.Cur < l.Max {
		raised := unix.Rlimit{Cur: l.Max, Max: l.Max}
		if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &raised) == nil {
			l = raised
		}
	}
	return l.Cur, l.Cur != unix.RLIM_INFINITY
}
