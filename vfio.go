package main

// vfio.go owns a real PCI function, opened over Linux VFIO: container, group and
// device file, BAR0, configuration space, vectors, DMA mappings, reset. It finds
// no functions and binds no drivers (pci.go), and does not know what lies in BAR0
// or in the memory it maps.
//
// Order matters twice. Opening: the group must be in a container with an IOMMU
// before the kernel gives out the device. Closing: DMA is forbidden first,
// memory is unmapped after. All that an open acquires goes on an undo list at
// once, so that every way out gives it back.
//
// A group can be opened once and has one container, so functions of one group
// that are used together share both, and share the bus addresses.
// Linux: driver-api/vfio.rst; numbers, layouts and calls are in vfioabi.go.

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// minBAR0 holds the initialization segment, the MSI-X table behind it and the
	// first UAR pages. Real functions have 1 MiB to 64 MiB.
	minBAR0 = 64 << 10
	// addressShare is what one function of a shared group gets of the bus
	// addresses. A 39-bit IOMMU, the smallest there is, has 8 such shares.
	addressShare = 64 << 30

	configCommand  = 4 // offset in configuration space, 16 bits
	commandMemory  = 1 << 1
	commandMaster  = 1 << 2
	configGone     = 0xffff // what reads give when no function answers
	defaultEntries = 65535  // dma_entry_limit of vfio_iommu_type1
)

var errVFIOClosed = errors.New("the function is closed")

// vfioGroups is the groups this process has open. Locked memory is counted here
// because the limit holds for the process.
type vfioGroups struct {
	k      vfioKernel
	mu     sync.Mutex
	open   map[string]*vfioGroup
	locked uint64 // bytes mapped for devices
}

func newVFIOGroups(k vfioKernel) *vfioGroups {
	return &vfioGroups{k: k, open: map[string]*vfioGroup{}}
}

// processGroups is one for each process since the kernel's rules are.
var processGroups = newVFIOGroups(linuxKernel{})

// vfioGroup is an IOMMU group in its container. mu of vfioGroups guards it.
type vfioGroup struct {
	id            string
	container, fd int
	info          iommuInfo
	entryLimit    int      // dma_entry_limit, for the message
	entries       int      // mappings there are
	users         []string // function in each address share, "" for a free one
	undo          undo
}

var _ device = (*vfioDevice)(nil)

// vfioDevice is an opened function.
type vfioDevice struct {
	info   functionInfo
	groups *vfioGroups
	group  *vfioGroup
	fd     int
	config vfioRegion
	fs     sysfs
	bar    []byte
	nvec   int
	flags  uint32 // deviceCanReset
	ranges []iovaRange

	mu      sync.Mutex // guards what follows
	undo    undo
	maps    []dmaRange
	events  []int // eventfds of vectors, at least as many as are enabled
	enabled int
	removal int // eventfd, -1 when none
	types   mtrrs
	typed   bool   // types is open
	base    uint64 // first page of BAR0 for the processor, once typed
	closed  bool
}

type dmaRange struct{ iova, size uint64 }

// openVFIO opens the function at an address given by the user. It must be bound
// to vfio-pci. DMA is off, no vector is enabled, memory can be mapped. Errors
// are one line with cause and remedy; a malformed address wraps errBadAddress.
func openVFIO(s sysfs, address string) (device, error) {
	v, err := processGroups.openFunction(s, address)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (gs *vfioGroups) openFunction(s sysfs, address string) (*vfioDevice, error) {
	f, err := findFunction(s, address)
	if err != nil {
		return nil, err
	}
	v := &vfioDevice{info: f, groups: gs, fs: s, removal: -1}
	for _, step := range []func() error{
		func() error { return mayOpen(f) },
		func() error { return v.joinGroup(s) },
		v.openFile,
		v.readRegions,
		v.mapBAR0,
		v.readVectors,
		v.enableMemory,
	} {
		if err := step(); err != nil {
			_ = v.undo.run() // the first cause is the one that helps
			return nil, fmt.Errorf("%s: %w", f.addr, err)
		}
	}
	return v, nil
}

// mayOpen checks what sysfs tells, just before the open: another program may
// have moved the function since it was bound. Whether the group is viable is
// left to the kernel.
func mayOpen(f functionInfo) error {
	if err := notIsolated(f); err != nil {
		return err
	}
	if !isVFIODriver(f.driver) {
		return fmt.Errorf("the driver is %s, not vfio-pci: add -bind", orDash(f.driver))
	}
	return nil
}

// joinGroup opens the function's group, or shares it when it is open here.
func (v *vfioDevice) joinGroup(s sysfs) error {
	gs := v.groups
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.open[v.info.group]
	if g == nil {
		var err error
		if g, err = gs.openGroup(s, v.info); err != nil {
			return err
		}
	}
	if slices.Contains(g.users, v.info.addr) {
		return errors.New("it is open already in this process: name it once")
	}
	share := slices.Index(g.users, "")
	if share < 0 {
		share = len(g.users)
		g.users = append(g.users, "")
	}
	g.users[share] = v.info.addr
	v.group = g
	v.undo.add("the IOMMU group", func() error { return gs.leave(g, share) })
	v.ranges = g.info.ranges
	if len(g.users) > 1 || slices.ContainsFunc(v.info.others, func(m groupMember) bool { return isVFIODriver(m.driver) }) {
		v.ranges = shareRanges(g.info.ranges, share)
	}
	if len(v.ranges) == 0 {
		return fmt.Errorf("IOMMU group %s has no bus addresses left: too few for %d functions", g.id, share+1)
	}
	return nil
}

// leave gives up a share of the group. The last one closes the group.
func (gs *vfioGroups) leave(g *vfioGroup, share int) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g.users[share] = ""
	if slices.ContainsFunc(g.users, func(u string) bool { return u != "" }) {
		return nil
	}
	delete(gs.open, g.id)
	return g.undo.run()
}

// shareRanges is the part of the bus addresses that share number i gets.
func shareRanges(all []iovaRange, i int) []iovaRange {
	from := uint64(i) * addressShare
	to := from + addressShare - 1
	var part []iovaRange
	for _, r := range all {
		if r.last >= from && r.first <= to {
			part = append(part, iovaRange{max(r.first, from), min(r.last, to)})
		}
	}
	return part
}

// openGroup opens container and group and joins them. gs.mu is held.
func (gs *vfioGroups) openGroup(s sysfs, f functionInfo) (*vfioGroup, error) {
	g := &vfioGroup{id: f.group}
	g.entryLimit = s.readInt(filepath.Join(s.sys, "module/vfio_iommu_type1/parameters/dma_entry_limit"), defaultEntries)
	for _, step := range []func() error{
		func() error { return gs.openContainer(g, filepath.Join(s.dev, "vfio/vfio")) },
		func() error { return gs.openGroupNode(g, filepath.Join(s.dev, "vfio", f.group)) },
		func() error { return gs.checkViable(g, f) },
		func() error { return gs.attach(g, f) },
		func() error { return gs.readIOMMU(g) },
	} {
		if err := step(); err != nil {
			_ = g.undo.run()
			return nil, err
		}
	}
	gs.open[g.id] = g
	return g, nil
}

func (gs *vfioGroups) openContainer(g *vfioGroup, path string) error {
	fd, err := gs.k.open(path)
	if err != nil {
		return explainNode(path, err)
	}
	g.container = fd
	g.undo.add("the container", func() error { return gs.k.close(fd) })
	v, err := gs.k.ioctlValue(fd, vfioGetAPIVersion, 0)
	if err != nil {
		return fmt.Errorf("%s is not VFIO's container: %w", path, err)
	}
	if v != vfioAPIVersion {
		return fmt.Errorf("%s speaks version %d of VFIO, not %d: use another kernel", path, v, vfioAPIVersion)
	}
	if ok, err := gs.k.ioctlValue(fd, vfioCheckExtension, vfioType1v2); err != nil || ok <= 0 {
		return errNoType1
	}
	return nil
}

func (gs *vfioGroups) openGroupNode(g *vfioGroup, path string) error {
	fd, err := gs.k.open(path)
	if err != nil {
		return explainNode(path, err)
	}
	g.fd = fd
	g.undo.add("the group's file", func() error { return gs.k.close(fd) })
	return nil
}

// checkViable trusts the kernel's flag, and uses what sysfs shows only to say
// who is in the way.
func (gs *vfioGroups) checkViable(g *vfioGroup, f functionInfo) error {
	arg := newVFIOArg(sizeGroupStatus)
	if _, err := gs.k.ioctl(g.fd, vfioGroupGetStatus, arg); err != nil {
		return fmt.Errorf("IOMMU group %s does not tell its status: %w", g.id, err)
	}
	if argFlags(arg)&groupViable == 0 {
		return errNotViable(g.id, offenders(f.others))
	}
	if argFlags(arg)&groupHasContainer != 0 {
		return fmt.Errorf("IOMMU group %s is in a container already: end the other program that uses it", g.id)
	}
	return nil
}

// attach puts the group into the container and gives that an IOMMU.
func (gs *vfioGroups) attach(g *vfioGroup, f functionInfo) error {
	arg := make([]byte, 4)
	native.PutUint32(arg, uint32(g.container))
	if _, err := gs.k.ioctl(g.fd, vfioGroupSetContainer, arg); err != nil {
		if bad := offenders(f.others); len(bad) > 0 {
			return fmt.Errorf("%w (%w)", errNotViable(g.id, bad), err)
		}
		return fmt.Errorf("IOMMU group %s can't be put into a container: %w", g.id, err)
	}
	g.undo.add("the group's place in the container", func() error {
		_, err := gs.k.ioctlValue(g.fd, vfioGroupUnsetContainer, 0)
		return err
	})
	_, err := gs.k.ioctlValue(g.container, vfioSetIOMMU, vfioType1v2)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the machine can't isolate interrupts: switch interrupt remapping on (x2APIC in the BIOS, no intremap=off), or accept the risk with vfio_iommu_type1 allow_unsafe_interrupts=1: %w", err)
	}
	if err != nil {
		return fmt.Errorf("the container takes no IOMMU of type 1 (dmesg may say why): %w", err)
	}
	return nil
}

// readIOMMU asks twice when the answer is longer than its fixed part.
func (gs *vfioGroups) readIOMMU(g *vfioGroup) error {
	for size := sizeIOMMUInfo; ; {
		arg := newVFIOArg(size)
		if _, err := gs.k.ioctl(g.container, vfioIOMMUGetInfo, arg); err != nil {
			return fmt.Errorf("the IOMMU does not tell what it can do: %w", err)
		}
		need := int(native.Uint32(arg))
		if need > maxIOMMUInfo {
			return fmt.Errorf("%w: %d bytes", errIOMMUInfo, need)
		}
		if need > size {
			size = need
			continue
		}
		var err error
		g.info, err = parseIOMMUInfo(arg)
		return err
	}
}

// openFile asks the group for the function's file and what that can do.
func (v *vfioDevice) openFile() error {
	k := v.groups.k
	fd, err := k.ioctl(v.group.fd, vfioGroupGetDeviceFD, append([]byte(v.info.addr), 0))
	if err != nil {
		return v.explainFile(err)
	}
	v.fd = fd
	v.undo.add("the function's file", func() error { return k.close(fd) })
	arg := newVFIOArg(sizeDeviceInfo)
	if _, err := k.ioctl(fd, vfioDeviceGetInfo, arg); err != nil {
		return fmt.Errorf("VFIO does not describe the function: %w", err)
	}
	v.flags = argFlags(arg)
	if v.flags&deviceIsPCI == 0 {
		return errors.New("VFIO says that this is not a PCI function")
	}
	return nil
}

func (v *vfioDevice) explainFile(err error) error {
	bad := offenders(v.info.others)
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("its physical function is held by a program with a VF token: use a VF of a function that mlx5_core has: %w", err)
	case len(bad) > 0: // kernels with iommufd notice it only here
		return fmt.Errorf("%w (%w)", errNotViable(v.group.id, bad), err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("VFIO does not know the function: it has lost its vfio-pci binding, add -bind: %w", err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("the function is already open: another program uses it (fuser -v /dev/vfio/%s names it): %w", v.group.id, err)
	}
	return fmt.Errorf("VFIO does not open the function, dmesg may say why: %w", err)
}

func (v *vfioDevice) region(index uint32) (vfioRegion, error) {
	arg := indexedArg(sizeRegionInfo, index)
	if _, err := v.groups.k.ioctl(v.fd, vfioDeviceGetRegionInfo, arg); err != nil {
		return vfioRegion{}, fmt.Errorf("VFIO does not describe region %d: %w", index, err)
	}
	return parseRegion(arg), nil
}

// readRegions finds configuration space.
func (v *vfioDevice) readRegions() error {
	r, err := v.region(regionConfig)
	if err != nil {
		return err
	}
	if r.flags&(regionRead|regionWrite) != regionRead|regionWrite || r.size < 64 || r.size > 4096 || r.offset > math.MaxInt64-4096 {
		return fmt.Errorf("configuration space is not usable: %d bytes, flags %#x", r.size, r.flags)
	}
	v.config = r
	return nil
}

// mapBAR0 maps the whole register window.
func (v *vfioDevice) mapBAR0() error {
	k := v.groups.k
	r, err := v.region(regionBAR0)
	if err != nil {
		return err
	}
	if r.size < minBAR0 {
		return fmt.Errorf("BAR0 too small: %d bytes, at least %d are needed: check the BIOS for resource allocation (Above 4G decoding, pci=realloc)", r.size, minBAR0)
	}
	if r.flags&regionMmap == 0 || r.size > math.MaxInt || r.offset > math.MaxInt64 {
		return fmt.Errorf("BAR0 can't be mapped: %d bytes, flags %#x", r.size, r.flags)
	}
	// The MSI-X table lies in BAR0; kernels before 4.16 refuse to map it along.
	b, err := k.mmap(v.fd, int64(r.offset), int(r.size))
	if err != nil {
		return fmt.Errorf("BAR0 (%d KiB) can't be mapped, Linux 4.16 or later is needed: %w", r.size>>10, err)
	}
	v.bar = b
	v.undo.add("the mapping of BAR0", func() error { return k.munmap(b) })
	return nil
}

// readVectors finds how many vectors there are.
func (v *vfioDevice) readVectors() error {
	arg := indexedArg(sizeIRQInfo, irqMSIX)
	if _, err := v.groups.k.ioctl(v.fd, vfioDeviceGetIRQInfo, arg); err != nil {
		return fmt.Errorf("VFIO does not describe the interrupts: %w", err)
	}
	v.nvec = irqCount(arg)
	return nil
}

// enableMemory lets BAR0 answer. Before that, touching it would be fatal.
func (v *vfioDevice) enableMemory() error { return v.setCommand(commandMemory, commandMaster) }

// setCommand sets and clears bits of the PCI command register, and reads them
// back: the read also makes sure that the write has arrived.
func (v *vfioDevice) setCommand(set, clear uint16) error {
	was, err := v.readCommand()
	if err != nil {
		return err
	}
	var b [2]byte
	putLE16(b[:], was&^clear|set)
	if err := v.groups.k.pwrite(v.fd, b[:], int64(v.config.offset)+configCommand); err != nil {
		return fmt.Errorf("configuration space can't be written: %w", err)
	}
	is, err := v.readCommand()
	if err != nil {
		return err
	}
	if (is^set)&(set|clear)&commandMaster != 0 {
		return fmt.Errorf("the function does not take bus master %t: command register %#04x", set&commandMaster != 0, is)
	}
	return nil
}

func (v *vfioDevice) readCommand() (uint16, error) {
	var b [2]byte
	if err := v.groups.k.pread(v.fd, b[:], int64(v.config.offset)+configCommand); err != nil {
		return 0, fmt.Errorf("configuration space can't be read: %w", err)
	}
	c := uint16(b[0]) | uint16(b[1])<<8
	if c == configGone {
		return 0, errors.New("the function does not answer: it was removed or has failed (dmesg)")
	}
	return c, nil
}

// putLE16 writes in the byte order of configuration space.
func putLE16(b []byte, v uint16) { b[0], b[1] = byte(v), byte(v>>8) }

// space identifies the container behind which the function's memory is mapped.
func (v *vfioDevice) space() any { return v.group }

func (v *vfioDevice) name() string            { return v.info.addr }
func (v *vfioDevice) bar0() []byte            { return v.bar }
func (v *vfioDevice) iovaRanges() []iovaRange { return slices.Clone(v.ranges) }
func (v *vfioDevice) vectors() int            { return v.nvec }

// named puts the function's address in front of an error.
func (v *vfioDevice) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", v.info.addr, err)
}

// whileOpen runs f unless the function is closed.
func (v *vfioDevice) whileOpen(f func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return v.named(errVFIOClosed)
	}
	return v.named(f())
}

func (v *vfioDevice) setBusMaster(on bool) error {
	return v.whileOpen(func() error {
		if on {
			return v.setCommand(commandMemory|commandMaster, 0)
		}
		return v.setCommand(0, commandMaster)
	})
}

// reset is a function level reset. It leaves DMA off and BAR0 answering; the
// kernel keeps the vectors.
func (v *vfioDevice) reset() error {
	return v.whileOpen(func() error {
		if v.flags&deviceCanReset == 0 {
			return errNoReset
		}
		if _, err := v.groups.k.ioctlValue(v.fd, vfioDeviceReset, 0); err != nil {
			return fmt.Errorf("function reset failed: %w", err)
		}
		return v.setCommand(commandMemory, commandMaster)
	})
}

// mapDMA makes one mapping, whatever the size. The pages are locked in memory.
func (v *vfioDevice) mapDMA(mem []byte, iova uint64) error {
	return v.whileOpen(func() error {
		vaddr := v.groups.k.address(mem)
		m := dmaRange{iova, uint64(len(mem))}
		if err := v.checkDMA(vaddr, m); err != nil {
			return err
		}
		if err := v.groups.reserve(v.group, m.size); err != nil {
			return err
		}
		if _, err := v.groups.k.ioctl(v.group.container, vfioIOMMUMapDMA, dmaMapArg(vaddr, m.iova, m.size)); err != nil {
			v.groups.unreserve(v.group, m.size)
			return v.explainMap(m, err)
		}
		v.maps = append(v.maps, m)
		return nil
	})
}

// checkDMA refuses what the kernel would refuse without saying why.
func (v *vfioDevice) checkDMA(vaddr uint64, m dmaRange) error {
	smallest := uint64(1) << (bits.TrailingZeros64(v.group.info.pageSizes) & 63)
	if page := max(smallest, pageSize); m.size == 0 || (vaddr|m.iova|m.size)%page != 0 {
		return fmt.Errorf("%d bytes at bus address %#x can't be mapped: memory, address and length must be multiples of %d", m.size, m.iova, page)
	}
	last := m.iova + m.size - 1
	for _, r := range v.ranges {
		if m.iova >= r.first && last <= r.last && last >= m.iova {
			return nil
		}
	}
	return fmt.Errorf("%d bytes at bus address %#x can't be mapped: outside of what the IOMMU allows", m.size, m.iova)
}

// reserve counts a mapping before it is made.
func (gs *vfioGroups) reserve(g *vfioGroup, size uint64) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	limit, limited := gs.k.memlock()
	if limited && (size > limit || gs.locked > limit-size) {
		return errMemlock(gs.locked+size, limit, nil)
	}
	if g.info.avail >= 0 && g.entries >= g.info.avail {
		return errEntries(g, unix.ENOSPC)
	}
	gs.locked += size
	g.entries++
	return nil
}

func (gs *vfioGroups) unreserve(g *vfioGroup, size uint64) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.locked -= size
	g.entries--
}

// errMemlock gives both numbers in KiB, the unit of ulimit -l.
func errMemlock(need, limit uint64, err error) error {
	text := fmt.Sprintf("DMA memory needs %d KiB locked, but RLIMIT_MEMLOCK allows %d KiB: raise it (ulimit -l, LimitMEMLOCK=) or grant CAP_IPC_LOCK", need>>10, limit>>10)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return errors.New(text)
}

func errEntries(g *vfioGroup, err error) error {
	return fmt.Errorf("the IOMMU container is full after %d mappings, dma_entry_limit of vfio_iommu_type1 is %d: raise that, or use less DMA memory: %w", g.entries, g.entryLimit, err)
}

// explainMap says what a failed mapping means.
func (v *vfioDevice) explainMap(m dmaRange, err error) error {
	gs := v.groups
	gs.mu.Lock()
	defer gs.mu.Unlock()
	limit, limited := gs.k.memlock()
	switch {
	case errors.Is(err, unix.ENOMEM) && limited:
		return errMemlock(gs.locked+m.size, limit, err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("no memory to lock %d KiB for DMA, %d KiB are locked: free memory, or ask for smaller rings: %w", m.size>>10, gs.locked>>10, err)
	case errors.Is(err, unix.ENOSPC):
		return errEntries(v.group, err)
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("bus address %#x is mapped already: %w", m.iova, err)
	}
	return fmt.Errorf("%d KiB at bus address %#x can't be mapped: %w", m.size>>10, m.iova, err)
}

func (v *vfioDevice) unmapDMA(iova, size uint64) error {
	return v.whileOpen(func() error {
		i := slices.Index(v.maps, dmaRange{iova, size})
		if i < 0 {
			return fmt.Errorf("%d bytes at bus address %#x are not mapped as a whole", size, iova)
		}
		if err := v.unmap(v.maps[i]); err != nil {
			return err // it stays on the list: close tries again
		}
		v.groups.unreserve(v.group, size)
		v.maps = slices.Delete(v.maps, i, i+1)
		return nil
	})
}

func (v *vfioDevice) unmap(m dmaRange) error {
	arg := dmaUnmapArg(m.iova, m.size)
	if _, err := v.groups.k.ioctl(v.group.container, vfioIOMMUUnmapDMA, arg); err != nil {
		return fmt.Errorf("bus address %#x can't be unmapped: %w", m.iova, err)
	}
	if got := unmappedSize(arg); got != m.size {
		return fmt.Errorf("%d of %d bytes at bus address %#x were unmapped", got, m.size, m.iova)
	}
	return nil
}

// enableVectors enables vectors 0..n-1 in one call. A later call with another n
// keeps the eventfds that were given out.
func (v *vfioDevice) enableVectors(n int) (fds []int, err error) {
	err = v.whileOpen(func() error {
		if n < 1 || n > v.nvec {
			return fmt.Errorf("%d interrupt vectors asked for, the function has %d: use fewer queues", n, v.nvec)
		}
		for len(v.events) < n {
			fd, err := v.newEvent()
			if err != nil {
				return err
			}
			v.events = append(v.events, fd)
		}
		if v.enabled != n {
			if err := v.switchVectors(n); err != nil {
				return err
			}
		}
		fds = slices.Clone(v.events[:n])
		return nil
	})
	return fds, err
}

// newEvent makes an eventfd that lives until close.
func (v *vfioDevice) newEvent() (int, error) {
	fd, err := v.groups.k.eventfd()
	if err != nil {
		return 0, fmt.Errorf("no eventfd for an interrupt (ulimit -n may be too low): %w", err)
	}
	v.undo.add("an eventfd", func() error { return v.groups.k.close(fd) })
	return fd, nil
}

// switchVectors enables n vectors after disabling those there were; 0 disables.
func (v *vfioDevice) switchVectors(n int) error {
	k := v.groups.k
	if v.enabled > 0 {
		if _, err := k.ioctl(v.fd, vfioDeviceSetIRQs, irqSetArg(irqMSIX, nil)); err != nil {
			return fmt.Errorf("interrupt vectors can't be disabled: %w", err)
		}
		v.enabled = 0
	}
	if n == 0 {
		return nil
	}
	// A positive answer is how many vectors the machine had left.
	left, err := k.ioctl(v.fd, vfioDeviceSetIRQs, irqSetArg(irqMSIX, v.events[:n]))
	if err != nil {
		return fmt.Errorf("%d interrupt vectors can't be enabled: %w", n, err)
	}
	if left > 0 {
		return fmt.Errorf("the machine has %d interrupt vectors left, %d were asked for: use fewer queues", left, n)
	}
	v.enabled = n
	return nil
}

// removalEvent returns an eventfd that the kernel signals when the host wants
// the function back, as before a VF is removed: close the device then.
func (v *vfioDevice) removalEvent() (fd int, err error) {
	err = v.whileOpen(func() error {
		if v.removal < 0 {
			ev, err := v.newEvent()
			if err != nil {
				return err
			}
			if _, err := v.groups.k.ioctl(v.fd, vfioDeviceSetIRQs, irqSetArg(irqRequest, []int{ev})); err != nil {
				return fmt.Errorf("the kernel does not announce removals: %w", err)
			}
			v.removal = ev
		}
		fd = v.removal
		return nil
	})
	return fd, err
}

// wantedBack looks at the removal event. The first call asks for it: without that the
// host waits in silence.
func (v *vfioDevice) wantedBack() (wanted bool, err error) {
	fd, err := v.removalEvent()
	if err != nil {
		return false, err
	}
	err = v.whileOpen(func() error {
		wanted = v.groups.k.signalled(fd)
		return nil
	})
	return wanted, err
}

// combining counts free memory type registers.
func (v *vfioDevice) combining() (pages int, err error) {
	err = v.whileOpen(func() error {
		if err := v.openTypes(); err != nil {
			return err
		}
		pages, err = v.types.free(v.base, uint64(len(v.bar))/pageSize)
		if err == nil && pages == 0 {
			return errors.New("no memory type register is free")
		}
		return err
	})
	return pages, err
}

// openTypes opens the memory type registers and finds BAR0 among what they cover.
func (v *vfioDevice) openTypes() error {
	if v.typed {
		return nil
	}
	base, err := v.fs.barBase(v.info.addr, uint64(len(v.bar)))
	if err != nil {
		return err
	}
	types, err := openMTRRs(v.groups.k, filepath.Join(v.fs.proc, "mtrr"))
	if err != nil {
		return err
	}
	v.undo.add("the memory type registers", func() error { return v.groups.k.close(types.fd) })
	v.types, v.typed, v.base = types, true, base/pageSize
	return nil
}

// combine gives a page of BAR0 a memory type register. It goes with the function
// at the latest.
func (v *vfioDevice) combine(n int) (restore func() error, err error) {
	err = v.whileOpen(func() error {
		if n < 0 || n >= len(v.bar)/pageSize {
			return fmt.Errorf("BAR0 has no page %d", n)
		}
		if err := v.openTypes(); err != nil {
			return err
		}
		return v.types.combine(v.base + uint64(n))
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		return v.whileOpen(func() error { return v.types.restore(v.base + uint64(n)) })
	}, nil
}

// close stops DMA, then vectors, then unmaps, then closes. A failure does not
// stop the rest. A second call does nothing.
func (v *vfioDevice) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	errs := []error{v.setCommand(0, commandMaster), v.switchVectors(0)}
	for _, m := range slices.Backward(v.maps) {
		errs = append(errs, v.unmap(m))
		v.groups.unreserve(v.group, m.size) // what failed goes with the container
	}
	v.maps, v.events = nil, nil
	return v.named(joinLine(append(errs, v.undo.run())...))
}
