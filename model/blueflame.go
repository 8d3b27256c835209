package model

// blueflame.go owns send doorbells as they arrive: 8 bytes that name a queue, or
// 64 that bring its next work request along (BlueFlame), so that the device need
// not read it from the ring. What a work request does is in send.go.
// Manual: chapters "UAR page" and "BlueFlame".
//
// A register of 2^log_bf_reg_size bytes has two buffers, which hosts use in turn:
// stores to one may still wait in the processor while the other is written. A
// work request in a buffer is a copy: the ring has it too, and the two must be
// equal. It is used if it is the next one of its queue, else the ring is read.
//
// Stores that did not combine arrive one by one. The first 8 bytes are a doorbell
// like any other then, and the rest says nothing. Hosts that store to BAR0 as
// memory can be caught halfway: that too is a doorbell, and is counted (TornFlames).

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Registers of a UAR page.
const (
	bfRegister  = 1 << 9 // cmd_hca_cap.log_bf_reg_size, in every profile
	bfRegisters = 4      // uar.MLX5_BFREGS_PER_UAR
)

// flame is the 64 bytes that came with the doorbell that is executed now.
type flame struct {
	b     [wqebbBytes]byte
	here  bool // there are such and they have not been looked at yet
	whole bool // they arrived in one piece: whatever is wrong with them is the host's fault
}

// writeSend executes a trapped store to the send buffer at in of page u.
func (d *Device) writeSend(u *uar, in int, p []byte) {
	last := &u.rung[(in-uarSend)/bfRegister]
	twice := *last == in
	*last = in
	switch {
	case len(p) < wqebbBytes:
		d.doorbellSQ(binary.BigEndian.Uint64(p))
	case twice:
		d.badDoorbell("BlueFlame twice in a row into the buffer at %#x of UAR %#x", in, u.n)
		d.doorbellSQ(binary.BigEndian.Uint64(p))
	default:
		d.work.flame = flame{b: [wqebbBytes]byte(p), here: true, whole: true}
		d.flameSQ(u)
	}
}

// long points at an 8-byte register of BAR0 as memory.
func (d *Device) long(off int) *uint64 {
	return (*uint64)(unsafe.Pointer(&d.bar[off : off+8][0]))
}

// takeSend looks whether the send buffer at off of BAR0 was stored to as memory.
// What lies behind the first 8 bytes is read before these are taken: as long as
// they stand, no later store to this buffer has begun.
func (d *Device) takeSend(u *uar, off int) bool {
	first := atomic.LoadUint64(d.long(off))
	if first == 0 {
		return false
	}
	var b [wqebbBytes]byte
	binary.NativeEndian.PutUint64(b[:], first)
	rest := uint64(0)
	for i := 8; i < wqebbBytes; i += 8 {
		v := atomic.LoadUint64(d.long(off + i))
		binary.NativeEndian.PutUint64(b[i:], v)
		rest |= v
	}
	if !atomic.CompareAndSwapUint64(d.long(off), first, 0) {
		return true // rung again: the next turn sees it
	}
	if rest == 0 {
		d.doorbellSQ(binary.BigEndian.Uint64(b[:]))
		return true
	}
	for i := 8; i < wqebbBytes; i += 8 { // so that the next plain doorbell is one
		atomic.CompareAndSwapUint64(d.long(off+i), binary.NativeEndian.Uint64(b[i:]), 0)
	}
	d.work.flame = flame{b: b, here: true}
	d.flameSQ(u)
	return true
}

// flameSQ executes a doorbell of 64 bytes that was written to page u.
func (d *Device) flameSQ(u *uar) {
	f := &d.work.flame
	n := be32(f.b[:], ctrlQPNDS) >> qpnShift
	if q := d.sqs.get(n); q != nil && q.uar != u.n {
		d.badDoorbell("BlueFlame of SQ %#x in UAR %#x, its own is %#x", n, u.n, q.uar)
		f.here = false
		return
	}
	d.ringSQ(n, wqebbBytes)
	f.here = false
}

// flamed returns the block that came with the doorbell, if it is the work request
// at q's consumer, which starts with block b of the ring.
func (d *Device) flamed(q *sq, b []byte) []byte {
	f := &d.work.flame
	if !f.here {
		return nil
	}
	f.here = false // only the first to be executed can be it
	if uint16(be32(f.b[:], ctrlOpcode)>>indexShift) != uint16(q.ci) {
		return nil
	}
	n := int(be32(f.b[:], ctrlQPNDS)&dsMask) * dsBytes
	switch {
	case n == 0 || n > wqebbBytes:
		d.unlikeRing(f, "BlueFlame of SQ %#x at %#x: a work request of %d bytes", q.n, q.ci, n)
		return nil
	case !sameRequest(f.b[:n], b[:n]):
		d.unlikeRing(f, "BlueFlame of SQ %#x at %#x is %x, in the ring %x", q.n, q.ci, f.b[:n], b[:n])
		return nil
	}
	return f.b[:]
}

// sameRequest compares a work request with its copy. One that does nothing may
// differ in what it asks for when it is done: hosts tell by that which copy was
// used, and so whether their stores combine.
func sameRequest(copied, ring []byte) bool {
	if copied[ctrlOpcode+3] != opNOP {
		return bytes.Equal(copied, ring)
	}
	return bytes.Equal(copied[:ctrlFlags], ring[:ctrlFlags]) && bytes.Equal(copied[ctrlFlags+1:], ring[ctrlFlags+1:])
}

// unlikeRing counts a copy that cannot be used.
func (d *Device) unlikeRing(f *flame, format string, a ...any) {
	if f.whole {
		d.badDoorbell(format, a...)
		return
	}
	if d.stats.TornFlames++; d.stats.TornFlame == "" {
		d.stats.TornFlame = fmt.Sprintf(format, a...)
	}
}
