package main

// dma.go owns memory that the device can reach: where it comes from, at which
// bus addresses (IOVA) it stands, who holds which pages, and the few ways to
// touch words that the device also touches. It does not know what lies in them.
// Manual: chapters on DMA, the UAR page and the doorbell record.
//
// Three kinds of live word (they must not be mixed):
//   - memory the device writes last: atomic load (loadBE32, loadBE64);
//   - memory the device reads, such as a doorbell record: atomic store
//     (storeRecord), which on amd64 also orders every store before it;
//   - a device register: one plain store of 4 or 8 bytes (regWrite32,
//     regWrite64), in a function that is never inlined, so that the compiler
//     can neither drop nor merge it. Never an atomic: a locked access to PCIe
//     is a read-modify-write. Where a page combines stores, regWriteLine writes 64
//     bytes that the device may see as one.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	pageSize     = 4096
	logPage      = 12 // log2 of that
	hugePageSize = 2 << 20
	// firstIOVA is where bus addresses start if the IOMMU allows it: above the
	// 4 GiB that hold interrupt windows and, on real machines, other devices.
	firstIOVA = 1 << 32
	// chunkSize is the least the arena grows by. Few large mappings stay far
	// below the IOMMU container's limit of 65535 entries.
	chunkSize = 16 * hugePageSize
)

// dmaSpace is what a device lets us map memory into.
type dmaSpace interface {
	// iovaRanges lists the bus addresses that the IOMMU lets us use, ascending.
	iovaRanges() []iovaRange
	// mapDMA lets the device read and write mem at bus address iova.
	// Both and the length are multiples of 4096.
	mapDMA(mem []byte, iova uint64) error
	// unmapDMA takes back what mapDMA gave, whole.
	unmapDMA(iova, size uint64) error
}

// iovaRange is one run of allowed bus addresses, both ends included.
type iovaRange struct{ first, last uint64 }

// sameSpace reports whether two devices stand behind one IOMMU container, so
// that memory mapped for one is mapped for the other.
func sameSpace(a, b dmaSpace) bool {
	x, ok := a.(interface{ space() any })
	y, also := b.(interface{ space() any })
	return ok && also && x.space() == y.space()
}

// dmaMem is a run of whole pages: the same bytes seen by us and by the device.
type dmaMem struct {
	b    []byte
	iova uint64
}

// slice is a part of m. It panics like a slice expression when out of range.
func (m dmaMem) slice(off, n int) dmaMem {
	return dmaMem{m.b[off : off+n : off+n], m.iova + uint64(off)}
}

// pages lists the bus addresses of the 4096-byte pages of m.
func (m dmaMem) pages() []uint64 {
	out := make([]uint64, len(m.b)/pageSize)
	for i := range out {
		out[i] = m.iova + uint64(i)*pageSize
	}
	return out
}

// chunk is one mapping of the device, cut into page runs.
type chunk struct {
	mem  dmaMem
	free []pageRun // ascending, never adjacent
}

type pageRun struct{ first, n int }

// arena hands out DMA memory. It is for the control plane: it locks.
// All devices that share it see the memory at the same bus addresses.
type arena struct {
	devs   []dmaSpace
	mu     sync.Mutex
	chunks []*chunk
	ranges []iovaRange // what of the allowed addresses is not used yet
	inUse  int         // bytes handed out
	recs   []dmaMem    // free doorbell records
	pages  []dmaMem    // pages that hold doorbell records
	guests []dmaMem    // memory of others that is mapped now
	spare  []iovaRange // addresses that guests had, ascending, never adjacent
}

// newArena prepares an arena without memory; it grows when asked.
func newArena(dev dmaSpace) *arena {
	return &arena{devs: []dmaSpace{dev}, ranges: orderRanges(dev.iovaRanges())}
}

// share lets another device reach the arena's memory too. It must be called
// before memory is handed out: the bus addresses are cut to what both allow.
func (a *arena) share(dev dmaSpace) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.chunks) > 0 {
		return errors.New("DMA memory is in use already and cannot be shared any more")
	}
	for _, d := range a.devs {
		if sameSpace(d, dev) {
			return nil // one mapping serves both
		}
	}
	a.devs = append(a.devs, dev)
	a.ranges = orderRanges(intersect(a.ranges, dev.iovaRanges()))
	return nil
}

// intersect returns the addresses that are in both lists.
func intersect(x, y []iovaRange) (out []iovaRange) {
	for _, a := range x {
		for _, b := range y {
			if r := (iovaRange{max(a.first, b.first), min(a.last, b.last)}); r.first <= r.last {
				out = append(out, r)
			}
		}
	}
	return out
}

// mapAll maps b for every device, or for none.
func (a *arena) mapAll(b []byte, iova uint64) error {
	for i, d := range a.devs {
		if err := d.mapDMA(b, iova); err != nil {
			for _, done := range a.devs[:i] {
				err = errors.Join(err, done.unmapDMA(iova, uint64(len(b))))
			}
			return err
		}
	}
	return nil
}

// orderRanges aligns the allowed ranges to huge pages and puts the part from
// firstIOVA on before the part below it.
func orderRanges(in []iovaRange) []iovaRange {
	var high, low []iovaRange
	for _, r := range in {
		first := (r.first + hugePageSize - 1) &^ (hugePageSize - 1)
		if first < r.first || first > r.last {
			continue
		}
		if first == 0 {
			first = hugePageSize // bus address 0 reads as "none" in too many places
		}
		switch {
		case first >= firstIOVA:
			high = append(high, iovaRange{first, r.last})
		case r.last >= firstIOVA:
			high = append(high, iovaRange{firstIOVA, r.last})
			low = append(low, iovaRange{first, firstIOVA - 1})
		default:
			low = append(low, iovaRange{first, r.last})
		}
	}
	return append(high, low...)
}

// takeIOVA carves size bytes out of the unused addresses.
func (a *arena) takeIOVA(size uint64) (uint64, error) {
	for i := range a.ranges {
		r := &a.ranges[i]
		if r.first > r.last || r.last-r.first < size-1 {
			continue
		}
		at := r.first
		if r.first += size; r.first == 0 { // the range went up to the last address
			r.first, r.last = 1, 0
		}
		return at, nil
	}
	return 0, fmt.Errorf("no room for %d MiB in the bus addresses that the IOMMU allows", size>>20)
}

// alloc returns n bytes, rounded up to whole pages, zeroed, contiguous for us
// and for the device. Free it with free.
func (a *arena) alloc(n int) (dmaMem, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allocLocked(n)
}

func (a *arena) allocLocked(n int) (dmaMem, error) {
	if n <= 0 {
		return dmaMem{}, fmt.Errorf("%d bytes of DMA memory asked for", n)
	}
	want := (n + pageSize - 1) / pageSize
	for _, c := range a.chunks {
		if m, ok := c.take(want); ok {
			a.inUse += len(m.b)
			clear(m.b)
			return m, nil
		}
	}
	c, err := a.grow(want * pageSize)
	if err != nil {
		return dmaMem{}, err
	}
	m, _ := c.take(want)
	a.inUse += len(m.b)
	return m, nil
}

// take cuts the first run that is long enough.
func (c *chunk) take(want int) (dmaMem, bool) {
	for i := range c.free {
		r := &c.free[i]
		if r.n < want {
			continue
		}
		m := c.mem.slice(r.first*pageSize, want*pageSize)
		r.first += want
		r.n -= want
		if r.n == 0 {
			c.free = append(c.free[:i], c.free[i+1:]...)
		}
		return m, true
	}
	return dmaMem{}, false
}

// free gives m back. m must be exactly what alloc returned.
func (a *arena) free(m dmaMem) {
	if m.b == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chunks {
		if m.iova >= c.mem.iova && m.iova < c.mem.iova+uint64(len(c.mem.b)) {
			c.give(pageRun{int(m.iova-c.mem.iova) / pageSize, len(m.b) / pageSize})
			a.inUse -= len(m.b)
			return
		}
	}
}

// freePage gives back one page of a longer run, found by its bus address.
func (a *arena) freePage(iova uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chunks {
		if off := iova - c.mem.iova; iova >= c.mem.iova && off < uint64(len(c.mem.b)) {
			c.give(pageRun{int(off / pageSize), 1})
			a.inUse -= pageSize
			return
		}
	}
}

// give puts a run back and joins it with its neighbours.
func (c *chunk) give(r pageRun) {
	i := sort.Search(len(c.free), func(i int) bool { return c.free[i].first > r.first })
	c.free = append(c.free, pageRun{})
	copy(c.free[i+1:], c.free[i:])
	c.free[i] = r
	if i+1 < len(c.free) && r.first+r.n == c.free[i+1].first {
		c.free[i].n += c.free[i+1].n
		c.free = append(c.free[:i+1], c.free[i+2:]...)
	}
	if i > 0 && c.free[i-1].first+c.free[i-1].n == c.free[i].first {
		c.free[i-1].n += c.free[i].n
		c.free = append(c.free[:i], c.free[i+1:]...)
	}
}

// grow maps one more chunk of at least n bytes, and of no more where the bus
// addresses are short.
func (a *arena) grow(n int) (*chunk, error) {
	least := (n + hugePageSize - 1) &^ (hugePageSize - 1)
	size := max(chunkSize, least)
	iova, err := a.takeIOVA(uint64(size))
	if err != nil && size > least {
		size = least
		iova, err = a.takeIOVA(uint64(size))
	}
	if err != nil {
		return nil, err
	}
	b, err := mapMemory(size)
	if err != nil {
		return nil, err
	}
	if err := a.mapAll(b, iova); err != nil {
		_ = unmapMemory(b)
		return nil, err
	}
	c := &chunk{mem: dmaMem{b, iova}, free: []pageRun{{0, size / pageSize}}}
	a.chunks = append(a.chunks, c)
	return c, nil
}

// mapMemory returns zeroed anonymous memory of whole huge pages that stays where it
// is until unmapMemory: from 2 MiB huge pages set aside when there are enough, else
// aligned like them, and the kernel is asked to use such pages where it finds them.
func mapMemory(size int) ([]byte, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), prot, flags|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
	if err == nil {
		b := unsafe.Slice((*byte)(p), size)
		keepPages(b)
		return b, nil
	}
	if p, err = unix.MmapPtr(-1, 0, nil, uintptr(size)+hugePageSize, prot, flags); err != nil {
		return nil, fmt.Errorf("%d MiB of memory: %w (free memory, or set aside huge pages in /proc/sys/vm/nr_hugepages)", size>>20, err)
	}
	before := -uintptr(p) & (hugePageSize - 1)
	_ = unix.MunmapPtr(p, before) // nothing at all may be there
	b := unsafe.Slice((*byte)(unsafe.Add(p, before)), size)
	_ = unix.MunmapPtr(unsafe.Add(p, before+uintptr(size)), hugePageSize-before)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	keepPages(b)
	return b, nil
}

// keepPages keeps a child process from inheriting b: copy-on-write would move pages
// under the device.
func keepPages(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTFORK) }

// unmapMemory takes back what mapMemory gave, whole.
func unmapMemory(b []byte) error { return unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b))) }

// close unmaps everything. The device must have stopped DMA before.
func (a *arena) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, c := range a.chunks {
		for _, d := range a.devs {
			errs = append(errs, d.unmapDMA(c.mem.iova, uint64(len(c.mem.b))))
		}
		errs = append(errs, unmapMemory(c.mem.b))
	}
	for _, m := range a.guests { // whose owner could not be sure that DMA had ended
		errs = append(errs, a.unmapAll(m))
	}
	a.chunks, a.recs, a.pages, a.guests = nil, nil, nil, nil
	return errors.Join(errs...)
}

// mapGuest lets the devices reach b, memory of others in whole pages, at a bus
// address of its own, until unmapGuest. Whoever owns b keeps it where it is.
func (a *arena) mapGuest(b []byte) (dmaMem, error) {
	if !pageAligned(b) || len(b) == 0 || len(b)%pageSize != 0 {
		return dmaMem{}, fmt.Errorf("memory to map for DMA is not whole pages of %d bytes", pageSize)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	size := guestSpan(b)
	iova, ok := a.takeSpare(size)
	if !ok {
		var err error
		if iova, err = a.takeIOVA(size); err != nil {
			return dmaMem{}, err
		}
	}
	if err := a.mapAll(b, iova); err != nil {
		a.giveSpare(iovaRange{iova, iova + size - 1})
		return dmaMem{}, err
	}
	m := dmaMem{b, iova}
	a.guests = append(a.guests, m)
	return m, nil
}

// unmapGuest takes back what mapGuest gave. The devices must have let go of it.
func (a *arena) unmapGuest(m dmaMem) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.guests {
		if a.guests[i].iova != m.iova {
			continue
		}
		if err := a.unmapAll(m); err != nil {
			return err
		}
		a.guests = append(a.guests[:i], a.guests[i+1:]...)
		a.giveSpare(iovaRange{m.iova, m.iova + guestSpan(m.b) - 1})
		return nil
	}
	return fmt.Errorf("no memory is mapped at bus address %#x", m.iova)
}

// unmapAll takes m from every device.
func (a *arena) unmapAll(m dmaMem) (err error) {
	for _, d := range a.devs {
		err = errors.Join(err, d.unmapDMA(m.iova, uint64(len(m.b))))
	}
	return err
}

// guestSpan is what b takes of the bus addresses.
func guestSpan(b []byte) uint64 {
	return (uint64(len(b)) + hugePageSize - 1) &^ (hugePageSize - 1)
}

// takeSpare cuts size bytes off the first run of used addresses that is long
// enough.
func (a *arena) takeSpare(size uint64) (uint64, bool) {
	for i := range a.spare {
		r := &a.spare[i]
		if r.last-r.first < size-1 {
			continue
		}
		at := r.first
		if r.last-r.first == size-1 {
			a.spare = append(a.spare[:i], a.spare[i+1:]...)
		} else {
			r.first += size
		}
		return at, true
	}
	return 0, false
}

// giveSpare puts a run of addresses back and joins it with its neighbours.
func (a *arena) giveSpare(r iovaRange) {
	i := sort.Search(len(a.spare), func(i int) bool { return a.spare[i].first > r.first })
	a.spare = append(a.spare, iovaRange{})
	copy(a.spare[i+1:], a.spare[i:])
	a.spare[i] = r
	if i+1 < len(a.spare) && r.last+1 == a.spare[i+1].first {
		a.spare[i].last = a.spare[i+1].last
		a.spare = append(a.spare[:i+1], a.spare[i+2:]...)
	}
	if i > 0 && a.spare[i-1].last+1 == r.first {
		a.spare[i-1].last = a.spare[i].last
		a.spare = append(a.spare[:i], a.spare[i+1:]...)
	}
}

// pageAligned reports whether b begins at a page.
func pageAligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageSize == 0
}

// sharedWord views 4 bytes that another process also writes. It is for
// sync/atomic only. off must be divisible by 4 in memory that begins at a page.
func sharedWord(b []byte, off uint64) *uint32 {
	return (*uint32)(unsafe.Pointer(&b[off : off+4][0]))
}

// sharedArray views n elements of memory that another process also writes. What
// is read there is read once, into a local: it may change between two reads.
func sharedArray[T any](b []byte, off, n uint64) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[off : off+n*uint64(unsafe.Sizeof(one))][0])), n)
}

// record is one doorbell record: two 32-bit words that the device reads. It
// has a cache line of its own, so that queues do not slow each other down.
type record struct {
	mem dmaMem
	w   *[2]uint32
}

const recordSize = 64

// newRecord hands out a zeroed doorbell record.
func (a *arena) newRecord() (record, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.recs) == 0 {
		m, err := a.allocLocked(pageSize)
		if err != nil {
			return record{}, err
		}
		a.pages = append(a.pages, m)
		for off := pageSize - recordSize; off >= 0; off -= recordSize {
			a.recs = append(a.recs, m.slice(off, recordSize))
		}
	}
	m := a.recs[len(a.recs)-1]
	a.recs = a.recs[:len(a.recs)-1]
	clear(m.b)
	return record{m, (*[2]uint32)(unsafe.Pointer(&m.b[0]))}, nil
}

func (a *arena) freeRecord(r record) {
	if r.w == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recs = append(a.recs, r.mem)
}

// store publishes v in word i. The device sees every store made before.
func (r *record) store(i int, v uint32) { atomic.StoreUint32(&r.w[i], bits.ReverseBytes32(v)) }

// loadBE32 reads a word that the device writes, at an offset divisible by 4.
// Reads after it see what the device wrote before that word.
func loadBE32(b []byte, off int) uint32 {
	return bits.ReverseBytes32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0]))))
}

// storeBE32 is loadBE32's counterpart for memory that the device reads.
func storeBE32(b []byte, off int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0])), bits.ReverseBytes32(v))
}

// loadByte reads a byte that the device writes, such as an owner bit, together
// with the three before it: off+1 must be divisible by 4.
func loadByte(b []byte, off int) byte { return byte(loadBE32(b, off-3)) }

// regRead32 reads a device register.
//
//go:noinline
func regRead32(bar []byte, off int) uint32 {
	return bits.ReverseBytes32(*(*uint32)(unsafe.Pointer(&bar[off : off+4][0])))
}

// regWrite32 writes a device register with one 4-byte store. The device sees it
// after every atomic store made before.
//
//go:noinline
func regWrite32(bar []byte, off int, v uint32) {
	storeBarrier()
	*(*uint32)(unsafe.Pointer(&bar[off : off+4][0])) = bits.ReverseBytes32(v)
}

// regWrite64 is regWrite32 for the 8-byte registers.
//
//go:noinline
func regWrite64(bar []byte, off int, v uint64) {
	storeBarrier()
	*(*uint64)(unsafe.Pointer(&bar[off : off+8][0])) = bits.ReverseBytes64(v)
}

// regWriteLine writes 64 bytes, ascending, to a register whose page combines stores,
// and has them leave before anything that follows.
//
//go:noinline
func regWriteLine(bar []byte, off int, from *uint64) {
	storeBarrier()
	storeLine(&bar[off : off+64][0], from)
}

// be16, be32 and be64 read big-endian fields of memory that is already ours.
func be16(b []byte, off int) uint16 { return binary.BigEndian.Uint16(b[off:]) }
func be32(b []byte, off int) uint32 { return binary.BigEndian.Uint32(b[off:]) }
func be64(b []byte, off int) uint64 { return binary.BigEndian.Uint64(b[off:]) }

func putBE32(b []byte, off int, v uint32) { binary.BigEndian.PutUint32(b[off:], v) }
func putBE64(b []byte, off int, v uint64) { binary.BigEndian.PutUint64(b[off:], v) }
