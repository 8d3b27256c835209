package main

// vfiofake_test.go owns a kernel for tests: it keeps VFIO's rules of order, answers
// in the kernel's layouts and counts what is open, mapped and enabled. Every call
// can be made to fail.

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeFile is one open file of the fake kernel.
type fakeFile struct {
	kind, name string // container, group, device, event
	container  int    // of a group, 0 when none
	group      int    // of a device
	iommu      bool   // of a container
	maps       map[uint64]fakeMap
	command    uint16 // of a device
	vectors    []int
	request    int
	bars       int
	types      map[int]bool // registers that were filled through it
	rung       bool         // of an event
}

type fakeMap struct{ vaddr, size uint64 }

// fakeKernel is the kernel and the hardware below it.
type fakeKernel struct {
	mu      sync.Mutex
	next    int
	files   map[int]*fakeFile
	calls   int
	failAt  int              // this call gives EIO
	fail    map[string]error // calls that fail: "open group", "3b71"
	count   map[string]int
	faults  []string // rules that were broken
	limit   uint64
	limited bool

	// What the machine is like.
	notViable, noType1, gone, sticky bool
	version, vectorsLeft             int
	deviceFlags                      uint32
	bar                              vfioRegion
	barFree                          map[*byte]int
	vectors                          uint32
	types                            []mtrrRange // memory type registers; nil is a machine without
	lazy                             bool        // registers do not keep what is put into them
	iommu                            []byte      // answer to VFIO_IOMMU_GET_INFO
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		next: 100, files: map[int]*fakeFile{}, fail: map[string]error{}, count: map[string]int{}, barFree: map[*byte]int{},
		types:       []mtrrRange{{0, 0x80000, 6}, {}, {}, {}, {0xa0, 32, 0}, {}, {}, {}},
		deviceFlags: deviceCanReset | deviceIsPCI, vectors: 64,
		bar:   vfioRegion{regionRead | regionWrite | regionMmap, 1 << 20, 0},
		iommu: iommuAnswer([]iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}, 65535),
	}
}

// iommuAnswer builds what the kernel answers, with capabilities in its order.
func iommuAnswer(ranges []iovaRange, avail uint32) []byte {
	b := newVFIOArg(sizeIOMMUInfo)
	native.PutUint32(b[4:], iommuPageSizes|iommuCaps)
	native.PutUint64(b[8:], 4096|2<<20|1<<30)
	native.PutUint32(b[16:], sizeIOMMUInfo)
	c := make([]byte, 16) // VFIO_IOMMU_TYPE1_INFO_CAP_MIGRATION, shortened: to be skipped
	native.PutUint16(c, 2)
	native.PutUint32(c[4:], sizeIOMMUInfo+16)
	b = append(b, c...)
	c = make([]byte, 16+16*len(ranges))
	native.PutUint16(c, capIOVARange)
	native.PutUint16(c[2:], 1)
	native.PutUint32(c[4:], uint32(len(b)+len(c)))
	native.PutUint32(c[8:], uint32(len(ranges)))
	for i, r := range ranges {
		native.PutUint64(c[16+16*i:], r.first)
		native.PutUint64(c[24+16*i:], r.last)
	}
	b = append(b, c...)
	c = make([]byte, 12)
	native.PutUint16(c, capDMAAvail)
	native.PutUint16(c[2:], 1)
	native.PutUint32(c[8:], avail)
	b = append(b, c...)
	native.PutUint32(b, uint32(len(b)))
	return b
}

func (k *fakeKernel) broken(format string, a ...any) {
	k.faults = append(k.faults, fmt.Sprintf(format, a...))
}

// enter counts a call and says whether it has to fail.
func (k *fakeKernel) enter(what string) error {
	k.calls++
	k.count[what]++
	if k.calls == k.failAt {
		return unix.EIO
	}
	return k.fail[what]
}

func (k *fakeKernel) file(fd int, kind string) *fakeFile {
	f := k.files[fd]
	if f == nil || kind != "" && f.kind != kind {
		k.broken("%d is no open %s", fd, kind)
		return &fakeFile{kind: kind, maps: map[uint64]fakeMap{}}
	}
	return f
}

func (k *fakeKernel) newFile(f *fakeFile) int {
	k.next++
	f.maps = map[uint64]fakeMap{}
	k.files[k.next] = f
	return k.next
}

func (k *fakeKernel) open(path string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := "group"
	switch {
	case strings.HasSuffix(path, "vfio/vfio"):
		kind = "container"
	case strings.HasSuffix(path, "proc/mtrr"):
		kind = "types"
	}
	if err := k.enter("open " + kind); err != nil {
		return 0, err
	}
	if kind == "types" && k.types == nil {
		return 0, unix.ENOENT
	}
	for _, f := range k.files {
		if kind == "group" && f.name == path {
			return 0, unix.EBUSY
		}
	}
	return k.newFile(&fakeFile{kind: kind, name: path}), nil
}

// close lets go of the file even when it reports an error, as Linux does.
func (k *fakeKernel) close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.file(fd, "")
	if f.kind == "device" && (f.bars > 0 || len(f.vectors) > 0 && k.failAt == 0) {
		k.broken("device closed with %d vectors and %d mappings", len(f.vectors), f.bars)
	}
	if f.kind == "event" {
		for _, d := range k.files {
			for _, v := range d.vectors {
				if v == fd && k.failAt == 0 {
					k.broken("eventfd closed under a vector")
				}
			}
		}
	}
	for i := range f.types {
		k.types[i] = mtrrRange{}
	}
	delete(k.files, fd)
	return k.enter("close " + f.kind)
}

// master says whether a device of the container may do DMA.
func (k *fakeKernel) master(container int) bool {
	for _, d := range k.files {
		if d.kind == "device" && d.command&commandMaster != 0 && k.files[d.group] != nil && k.files[d.group].container == container {
			return true
		}
	}
	return false
}

func (k *fakeKernel) ioctlValue(fd int, request uint, value int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter(fmt.Sprintf("%x", request)); err != nil {
		return 0, err
	}
	switch request {
	case vfioGetAPIVersion:
		k.file(fd, "container")
		return k.version, nil
	case vfioCheckExtension:
		k.file(fd, "container")
		if value == vfioType1v2 && !k.noType1 {
			return 1, nil
		}
		return 0, nil
	case vfioSetIOMMU:
		for _, g := range k.files {
			if g.kind == "group" && g.container == fd && value == vfioType1v2 {
				k.file(fd, "container").iommu = true
				return 0, nil
			}
		}
		return 0, unix.EINVAL
	case vfioGroupUnsetContainer:
		g := k.file(fd, "group")
		for _, d := range k.files {
			if d.kind == "device" && d.group == fd {
				return 0, unix.EBUSY
			}
		}
		if len(k.files[g.container].maps) > 0 && k.failAt == 0 {
			k.broken("group left with %d mappings", len(k.files[g.container].maps))
		}
		g.container = 0
		return 0, nil
	case vfioDeviceReset:
		k.file(fd, "device").command = commandMaster // memory off: the worst a reset may leave
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (k *fakeKernel) ioctl(fd int, request uint, arg []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter(fmt.Sprintf("%x", request)); err != nil {
		return 0, err
	}
	switch request {
	case vfioGroupGetStatus, vfioGroupSetContainer, vfioGroupGetDeviceFD:
		return k.groupCall(fd, request, arg)
	case vfioIOMMUGetInfo, vfioIOMMUMapDMA, vfioIOMMUUnmapDMA:
		return k.iommuCall(fd, request, arg)
	case mtrrGetPages, mtrrAddPages, mtrrDelPages:
		return k.typesCall(k.file(fd, "types"), request, arg)
	}
	d := k.file(fd, "device")
	switch request {
	case vfioDeviceGetInfo:
		native.PutUint32(arg[4:], k.deviceFlags)
	case vfioDeviceGetRegionInfo:
		r := k.bar
		if native.Uint32(arg[8:]) == regionConfig {
			r = vfioRegion{regionRead | regionWrite, 4096, 7 << 40}
		}
		native.PutUint32(arg[4:], r.flags)
		native.PutUint64(arg[16:], r.size)
		native.PutUint64(arg[24:], r.offset)
	case vfioDeviceGetIRQInfo:
		if native.Uint32(arg[8:]) == irqMSIX {
			native.PutUint32(arg[4:], irqEventFD)
			native.PutUint32(arg[12:], k.vectors)
		}
	case vfioDeviceSetIRQs:
		return k.setIRQs(d, arg)
	default:
		return 0, unix.ENOTTY
	}
	return 0, nil
}

func (k *fakeKernel) groupCall(fd int, request uint, arg []byte) (int, error) {
	g := k.file(fd, "group")
	switch request {
	case vfioGroupGetStatus:
		if !k.notViable {
			native.PutUint32(arg[4:], groupViable)
		}
	case vfioGroupSetContainer:
		k.file(int(native.Uint32(arg)), "container")
		g.container = int(native.Uint32(arg))
	case vfioGroupGetDeviceFD:
		if arg[len(arg)-1] != 0 {
			return 0, unix.EFAULT
		}
		if g.container == 0 || !k.files[g.container].iommu {
			return 0, unix.EINVAL
		}
		return k.newFile(&fakeFile{kind: "device", name: string(arg[:len(arg)-1]), group: fd, command: commandMaster}), nil
	}
	return 0, nil
}

func (k *fakeKernel) iommuCall(fd int, request uint, arg []byte) (int, error) {
	c := k.file(fd, "container")
	if !c.iommu {
		return 0, unix.EINVAL
	}
	switch request {
	case vfioIOMMUGetInfo:
		// With too little room the kernel gives the fixed part and the size needed.
		n := min(len(arg), len(k.iommu))
		if n < len(k.iommu) {
			n = sizeIOMMUInfo
		}
		copy(arg, k.iommu[:n])
		if len(arg) < len(k.iommu) {
			native.PutUint32(arg[16:], 0)
		}
	case vfioIOMMUMapDMA:
		iova, m := native.Uint64(arg[16:]), fakeMap{native.Uint64(arg[8:]), native.Uint64(arg[24:])}
		for at, old := range c.maps {
			if iova < at+old.size && at < iova+m.size {
				return 0, unix.EEXIST
			}
		}
		if native.Uint32(arg[4:]) != dmaReadWrite || m.vaddr == 0 {
			return 0, unix.EINVAL
		}
		c.maps[iova] = m
	case vfioIOMMUUnmapDMA:
		iova, size := native.Uint64(arg[8:]), native.Uint64(arg[16:])
		if k.master(fd) && k.failAt == 0 && !k.sticky && len(k.fail) == 0 {
			k.broken("unmapped under DMA")
		}
		native.PutUint64(arg[16:], 0)
		if c.maps[iova].size == size {
			delete(c.maps, iova)
			native.PutUint64(arg[16:], size)
		}
	}
	return 0, nil
}

// typesCall is a request on /proc/mtrr. Linux does not mind that uncached wins over
// what is added, but minds other types.
func (k *fakeKernel) typesCall(f *fakeFile, request uint, arg []byte) (int, error) {
	if request == mtrrGetPages {
		i := int(native.Uint32(arg[12:]))
		if i >= len(k.types) {
			return 0, unix.EINVAL
		}
		native.PutUint64(arg, k.types[i].first)
		native.PutUint32(arg[8:], k.types[i].n)
		native.PutUint32(arg[16:], k.types[i].kind)
		return 0, nil
	}
	r := mtrrRange{native.Uint64(arg), native.Uint32(arg[8:]), native.Uint32(arg[12:])}
	free := -1
	for i, is := range k.types {
		switch {
		case is == r && request == mtrrDelPages:
			if !f.types[i] {
				k.broken("memory type register %d is not this file's", i)
			}
			delete(f.types, i)
			k.types[i] = mtrrRange{}
			return i, nil
		case is.meets(r.first, uint64(r.n)) && is.kind != 0:
			return 0, unix.EINVAL
		case is.n == 0 && free < 0:
			free = i
		}
	}
	switch {
	case request == mtrrDelPages:
		return 0, unix.EINVAL
	case free < 0:
		return 0, unix.ENOSPC
	}
	if f.types == nil {
		f.types = map[int]bool{}
	}
	f.types[free] = true
	if k.types[free] = r; k.lazy {
		k.types[free].kind = 0
	}
	return free, nil
}

func (k *fakeKernel) setIRQs(d *fakeFile, arg []byte) (int, error) {
	flags, index, start, n := native.Uint32(arg[4:]), native.Uint32(arg[8:]), native.Uint32(arg[12:]), int(native.Uint32(arg[16:]))
	if start != 0 || len(arg) != sizeIRQSet+4*n {
		return 0, unix.EINVAL
	}
	var fds []int
	for i := range n {
		fd := int(native.Uint32(arg[sizeIRQSet+4*i:]))
		k.file(fd, "event")
		fds = append(fds, fd)
	}
	switch {
	case index == irqRequest && flags == irqSetEventFD && n == 1:
		d.request = fds[0]
	case index == irqMSIX && flags == irqSetNone && n == 0:
		d.vectors = nil
	case index == irqMSIX && flags == irqSetEventFD && n > 0 && len(d.vectors) == 0:
		if k.vectorsLeft > 0 && n > k.vectorsLeft {
			return k.vectorsLeft, nil
		}
		d.vectors = fds
	default:
		return 0, unix.EINVAL
	}
	return 0, nil
}

func (k *fakeKernel) pread(fd int, p []byte, off int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("pread"); err != nil {
		return err
	}
	d := k.file(fd, "device")
	if off < 7<<40 || off+int64(len(p)) > 7<<40+4096 {
		k.broken("read of configuration space at %#x", off)
	}
	clear(p)
	if off == 7<<40+configCommand && len(p) == 2 {
		putLE16(p, d.command)
	}
	if k.gone {
		for i := range p {
			p[i] = 0xff
		}
	}
	return nil
}

func (k *fakeKernel) pwrite(fd int, p []byte, off int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("pwrite"); err != nil {
		return err
	}
	d := k.file(fd, "device")
	if off != 7<<40+configCommand || len(p) != 2 {
		k.broken("write of configuration space at %#x", off)
	}
	was := d.command
	d.command = uint16(p[0]) | uint16(p[1])<<8
	if k.sticky {
		d.command = d.command&^commandMaster | was&commandMaster
	}
	return nil
}

func (k *fakeKernel) mmap(fd int, off int64, n int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("mmap"); err != nil {
		return nil, err
	}
	k.file(fd, "device").bars++
	b := make([]byte, n)
	k.barFree[&b[0]] = fd
	return b, nil
}

func (k *fakeKernel) munmap(b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.enter("munmap")
	fd, ok := k.barFree[&b[0]]
	if !ok {
		k.broken("unmapped twice")
		return unix.EINVAL
	}
	delete(k.barFree, &b[0])
	k.file(fd, "device").bars--
	return err
}

func (k *fakeKernel) eventfd() (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("eventfd"); err != nil {
		return 0, err
	}
	return k.newFile(&fakeFile{kind: "event"}), nil
}

func (k *fakeKernel) signalled(fd int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file(fd, "event").rung
}

func (k *fakeKernel) address(mem []byte) uint64 { return linuxKernel{}.address(mem) }

func (k *fakeKernel) memlock() (uint64, bool) { return k.limit, k.limited }

// requireClean checks that nothing is left and no rule was broken.
func (k *fakeKernel) requireClean(t *testing.T, gs *vfioGroups) {
	t.Helper()
	require.Empty(t, k.faults)
	require.Empty(t, k.files)
	require.Empty(t, k.barFree)
	require.Empty(t, gs.open)
	require.Zero(t, gs.locked)
	for _, r := range k.types {
		require.False(t, r.n == 1 && r.kind == mtrrCombining, "a memory type register is left: %+v", r)
	}
}
