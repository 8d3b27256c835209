package model

// memory.go owns the way from a bus address to host bytes: mappings, DMA reads
// and writes, and the few words that host and device share. It does not know
// what lies there; rings are in queue.go, memory keys in umr.go.
// Manual: chapters on DMA, doorbell records and address translation.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"
)

// hostMemory is what the host lets the device reach. The zero value reaches
// nothing. gen changes whenever a translation made before may be wrong.
type hostMemory struct {
	maps []mapping // ascending, never overlapping
	last int       // index of the last hit
	gen  uint64
}

// mapping is one run of bus addresses: mem[0] stands at iova.
type mapping struct {
	iova     uint64
	mem      []byte
	writable bool
}

var (
	errMapEmpty   = errors.New("DMA mapping of no bytes: give at least one page")
	errMapWraps   = errors.New("DMA mapping beyond the last bus address: give a lower one")
	errMapOverlap = errors.New("DMA mapping over one that exists: unmap that first")
	errMapAlign   = errors.New("DMA mapping whose memory and bus address differ modulo 8: align both to pages")
)

// add maps mem at bus address iova. The bytes must stay valid until remove.
func (m *hostMemory) add(iova uint64, mem []byte, writable bool) error {
	if len(mem) == 0 {
		return errMapEmpty
	}
	if iova+uint64(len(mem)) < iova {
		return errMapWraps
	}
	if (uint64(uintptr(unsafe.Pointer(&mem[0])))^iova)&7 != 0 {
		return errMapAlign // shared words are loaded and stored whole
	}
	i := m.after(iova)
	if i > 0 && iova-m.maps[i-1].iova < uint64(len(m.maps[i-1].mem)) {
		return errMapOverlap
	}
	if i < len(m.maps) && m.maps[i].iova-iova < uint64(len(mem)) {
		return errMapOverlap
	}
	m.maps = slices.Insert(m.maps, i, mapping{iova, mem, writable})
	m.changed()
	return nil
}

// remove unmaps size bytes at iova. Mappings that are only partly inside are
// cut; addresses that were not mapped are no fault.
func (m *hostMemory) remove(iova, size uint64) {
	end := iova + size
	if end < iova {
		end = ^uint64(0)
	}
	var keep []mapping
	for _, p := range m.maps {
		pEnd := p.iova + uint64(len(p.mem))
		if pEnd <= iova || p.iova >= end {
			keep = append(keep, p)
			continue
		}
		if p.iova < iova {
			keep = append(keep, mapping{p.iova, p.mem[:iova-p.iova], p.writable})
		}
		if pEnd > end {
			keep = append(keep, mapping{end, p.mem[end-p.iova:], p.writable})
		}
	}
	m.maps = keep
	m.changed()
}

// clear unmaps everything.
func (m *hostMemory) clear() {
	m.maps = nil
	m.changed()
}

func (m *hostMemory) changed() {
	m.last = 0
	m.gen++
}

// after is the index of the first mapping that starts above iova.
func (m *hostMemory) after(iova uint64) int {
	return sort.Search(len(m.maps), func(i int) bool { return m.maps[i].iova > iova })
}

// find returns the mapping that holds iova, or nil.
func (m *hostMemory) find(iova uint64) *mapping {
	if m.last < len(m.maps) {
		if p := &m.maps[m.last]; iova-p.iova < uint64(len(p.mem)) {
			return p
		}
	}
	lo, hi := 0, len(m.maps)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.maps[mid].iova > iova {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return nil
	}
	p := &m.maps[lo-1]
	if iova-p.iova >= uint64(len(p.mem)) {
		return nil
	}
	m.last = lo - 1
	return p
}

// at returns the n host bytes at iova if one mapping holds them all and allows
// the access, else nil. What it returns ends where the request ends.
func (m *hostMemory) at(iova uint64, n int, write bool) []byte {
	p := m.find(iova)
	if p == nil || n < 0 || write && !p.writable {
		return nil
	}
	off := iova - p.iova
	if uint64(n) > uint64(len(p.mem))-off {
		return nil
	}
	return p.mem[off : off+uint64(n) : off+uint64(n)]
}

// piece is at for as many of the n bytes as the first mapping holds.
func (m *hostMemory) piece(iova uint64, n int, write bool) []byte {
	p := m.find(iova)
	if p == nil || write && !p.writable {
		return nil
	}
	off := iova - p.iova
	n = int(min(uint64(n), uint64(len(p.mem))-off))
	return p.mem[off : off+uint64(n) : off+uint64(n)]
}

// dmaRead fills p from host memory at iova. It reports false, and counts a
// fault, where a byte is not mapped; p is then partly filled.
func (d *Device) dmaRead(iova uint64, p []byte) bool {
	if b := d.mem.at(iova, len(p), false); b != nil {
		copy(p, b)
		return true
	}
	for len(p) > 0 {
		b := d.mem.piece(iova, len(p), false)
		if len(b) == 0 {
			d.fault(iova, len(p), "read")
			return false
		}
		copy(p, b)
		p, iova = p[len(b):], iova+uint64(len(b))
	}
	return true
}

// dmaWrite stores p in host memory at iova. It reports false, and counts a
// fault, where a byte is not mapped or read-only; what came before is written.
func (d *Device) dmaWrite(iova uint64, p []byte) bool {
	if b := d.mem.at(iova, len(p), true); b != nil {
		copy(b, p)
		return true
	}
	for len(p) > 0 {
		b := d.mem.piece(iova, len(p), true)
		if len(b) == 0 {
			d.fault(iova, len(p), "write")
			return false
		}
		copy(b, p)
		p, iova = p[len(b):], iova+uint64(len(b))
	}
	return true
}

// fault counts a DMA that the host's mappings do not allow.
func (d *Device) fault(iova uint64, n int, what string) {
	d.stats.DMAFaults++
	d.stats.LastFault = fmt.Sprintf("%s of %d bytes at bus address %#x", what, n, iova)
}

// recordCache remembers where a doorbell record lies in host memory.
type recordCache struct {
	addr, gen uint64
	b         []byte // 8 bytes, nil where unmapped
}

// loadRecord reads word i (0 or 1) of the doorbell record at bus address addr.
// An unmapped record is one fault for each change of the mappings.
func (d *Device) loadRecord(r *recordCache, addr uint64, i int) (uint32, bool) {
	if r.gen != d.mem.gen || r.addr != addr {
		r.gen, r.addr = d.mem.gen, addr
		r.b = nil
		if addr&3 == 0 {
			r.b = d.mem.at(addr, 8, false)
		}
		if r.b == nil {
			d.fault(addr, 8, "doorbell record read")
		}
	}
	if r.b == nil {
		return 0, false
	}
	return load32(r.b, i*4), true
}

// load32 reads a big-endian word that the host writes, at an offset divisible
// by 4. What is read after it is at least as new.
func load32(b []byte, off int) uint32 {
	return bits.ReverseBytes32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0]))))
}

// publish copies entry e to slot so that its last 8 bytes, owner bit included,
// appear at once and after all others. slot is 64 bytes, aligned to 8.
func publish(slot []byte, e *[64]byte) {
	copy(slot[:56], e[:56])
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&slot[56:64][0])), binary.NativeEndian.Uint64(e[56:]))
}

func be16(b []byte, off int) uint16       { return binary.BigEndian.Uint16(b[off:]) }
func be32(b []byte, off int) uint32       { return binary.BigEndian.Uint32(b[off:]) }
func be64(b []byte, off int) uint64       { return binary.BigEndian.Uint64(b[off:]) }
func putBE16(b []byte, off int, v uint16) { binary.BigEndian.PutUint16(b[off:], v) }
func putBE32(b []byte, off int, v uint32) { binary.BigEndian.PutUint32(b[off:], v) }
func putBE64(b []byte, off int, v uint64) { binary.BigEndian.PutUint64(b[off:], v) }
