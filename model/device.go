package model

// device.go owns BAR0 and its registers, reset, the tables of objects, and the
// turns that the device takes. What a command does is in command.go and the
// cmd_*.go files; what a queue does in queue.go, send.go and receive.go;
// configuration space in config.go. Manual: chapters "Initialization segment"
// and "UAR page".
//
// BAR0 is reached in two ways, also mixed. Trapped: Read and Write are called
// for every access and a write is executed before it returns. As memory: the
// host loads and stores in BAR(), and Step finds what was stored.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in BAR0. The initialization segment is the first page and a bit.
const (
	barFWRev        = 0x0
	barCmdifSub     = 0x4
	barCmdQueueHigh = 0x10
	barCmdQueueLow  = 0x14
	barCmdDoorbell  = 0x18
	barInitializing = 0x1fc
	barHealth       = 0x200
	barTimerHigh    = 0x1000
	barTimerLow     = 0x1004
	barHealthCount  = 0x1010
	barRealTimeHigh = 0x1040
	barRealTimeLow  = 0x1044

	barSize     = 32 << 20
	uarPageSize = 4096

	// cmdQueueShape is log2 of the entries and log2 of the entry size, as they
	// read back in the low byte of the command queue address.
	cmdQueueShape = 0x56

	healthFWVer  = barHealth + 48
	healthHWID   = barHealth + 52
	healthIRISC  = barHealth + 60 // irisc index, syndrome, extended syndrome
	healthPeriod = 10 * time.Millisecond

	vectorCount = 64
)

// Doorbells in a UAR page. Send doorbells start at uarSend and repeat every
// half BlueFlame register, because hosts alternate between the two halves.
const (
	uarCQ      = 0x20
	uarEQArm   = 0x40
	uarEQ      = 0x48
	uarSend    = 0x800
	uarSendGap = 0x100
)

// hcaPhase is how far the host has brought the function up.
type hcaPhase uint8

const (
	phaseOff     hcaPhase = 1 << iota // after reset or DISABLE_HCA
	phaseEnabled                      // after ENABLE_HCA or TEARDOWN_HCA
	phaseReady                        // after INIT_HCA
)

// hcaState is what of the function is neither object nor port.
type hcaState struct {
	phase     hcaPhase
	issi      uint16
	nicState  uint32            // nic_interface as the host wrote it
	caps      map[uint16]capSet // by capability group
	checksum  bool              // commands carry checksums
	driver    string            // as told by SET_DRIVER_VERSION
	nodeDesc  [64]byte
	vxlan     []uint16 // UDP ports that carry VXLAN
	l2        map[uint32]l2Entry
	l2ByMAC   map[[6]byte]int // uses of each address in l2
	vanished  bool
	health    uint32 // health counter
	beat      time.Time
	rtcOffset time.Duration // real-time clock minus the host's
	rtcRate   int64         // parts per billion
	rtcFrom   time.Time     // when rtcRate took effect
	extAdmin  uint32        // ext_eth_proto_admin
	anOff     bool          // autonegotiation is off
	pfcTX     uint8         // priorities that pause
	pfcRX     uint8
	fec       [4]uint64 // admin, by row of fecRows
}

// New builds a function in its power-on state. It fails for an unknown profile
// or where shared memory for BAR0 can't be had.
func New(cfg Config) (*Device, error) {
	prof := findProfile(cfg.Profile)
	if prof == nil {
		return nil, fmt.Errorf("no profile %q: choose one of %v", cfg.Profile, Profiles())
	}
	if cfg.MAC == nil {
		cfg.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	}
	if len(cfg.MAC) != 6 {
		return nil, fmt.Errorf("%d bytes of permanent address: give 6", len(cfg.MAC))
	}
	cfg.PCI = cfg.PCI.Filled()
	if err := cfg.PCI.check(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, prof: prof, barFD: -1, irq: make([]func(), vectorCount)}
	if cfg.Script != nil {
		d.script = *cfg.Script
	}
	fd, err := unix.MemfdCreate("bar0", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory file for BAR0: %w", err)
	}
	d.barFD = fd
	if err = unix.Ftruncate(fd, barSize); err == nil {
		d.bar, err = unix.Mmap(fd, 0, barSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%d MiB for BAR0: %w", barSize>>20, err)
	}
	d.work.pci.set = cfg.PCI
	d.powerOnConfig()
	d.port.cable = true
	d.reset(time.Now())
	return d, nil
}

// Close frees BAR0 and unplugs the wire. The device can't be used after it.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil {
		return nil
	}
	d.mem.clear()
	err := errors.Join(unix.Munmap(d.bar), unix.Close(d.barFD))
	d.bar, d.barFD = nil, -1
	if d.cfg.Wire != nil {
		err = errors.Join(err, d.cfg.Wire.Close())
	}
	return err
}

// BAR is BAR0 as memory that may be shared. Words in it are big endian.
func (d *Device) BAR() []byte { return d.bar }

// BARFile is the memory file behind BAR.
func (d *Device) BARFile() int { return d.barFD }

// Vectors is the number of MSI-X vectors.
func (d *Device) Vectors() int { return vectorCount }

// SetIRQ binds what an interrupt on a vector does; nil masks it. fire is called
// with the device locked and must not call back.
func (d *Device) SetIRQ(vector int, fire func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if vector >= 0 && vector < len(d.irq) {
		d.irq[vector] = fire
	}
}

// interrupt sends an MSI-X message, unless masked or the function may not
// master the bus.
func (d *Device) interrupt(vector int) {
	if vector < 0 || vector >= len(d.irq) || !d.busMaster() {
		return
	}
	d.stats.Interrupts++
	if d.irq[vector] != nil {
		d.irq[vector]()
	}
}

// MapDMA lets the device reach mem at a bus address.
func (d *Device) MapDMA(iova uint64, mem []byte, writable bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mem.add(iova, mem, writable)
}

// UnmapDMA takes back what MapDMA gave.
func (d *Device) UnmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem.remove(iova, size)
	return nil
}

// UnmapAllDMA takes back everything.
func (d *Device) UnmapAllDMA() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem.clear()
}

// SetScript changes how the device misbehaves; nil makes it healthy.
func (d *Device) SetScript(s *Script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = Script{}
	if s != nil {
		d.script = *s
	}
}

// Reset is a function level reset: objects, pages and command state are gone,
// the port's counters stay. Configuration space keeps what the host set, as
// hosts restore it around a reset.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset(time.Now())
}

func (d *Device) reset(now time.Time) {
	d.started = now
	d.dropObjects()
	d.cmd = cmdUnit{seq: d.cmd.seq}
	d.pages = pageBook{}
	vanished := d.hca.vanished
	d.hca = hcaState{phase: phaseOff, caps: d.prof.newCaps(), l2: map[uint32]l2Entry{}, l2ByMAC: map[[6]byte]int{}, vanished: vanished, rtcFrom: now}
	if d.script.Infiniband {
		capPortType.set(d.hca.caps[groupGeneral].current, 0)
		capPortType.set(d.hca.caps[groupGeneral].max, 0)
	}
	d.resetPort()
	d.resetVport()
	clear(d.bar[:barTimerLow+0x100])
	d.putRegisters(now)
}

// dropObjects forgets every object the host made.
func (d *Device) dropObjects() {
	p := d.prof
	d.uars = newTable[uar](firstUAR, barSize/uarPageSize-firstUAR)
	d.pds = newTable[pd](1, p.limit(capLogMaxPd))
	d.tds = newTable[td](1, p.limit(capLogMaxTransportDomain))
	d.mkeys = newTable[mkey](0x40, p.limit(capLogMaxMkey)-0x40)
	d.eqs = newTable[eq](firstEQ, p.maxEQs())
	d.cqs = newTable[cq](1024, p.limit(capLogMaxCq)-1024)
	d.sqs = newTable[sq](0x100, p.limit(capLogMaxSq)-0x100)
	d.rqs = newTable[rq](0x200, p.limit(capLogMaxRq)-0x200)
	d.rmps = newTable[rmp](1, p.limit(capLogMaxRmp))
	d.tirs = newTable[tir](0, p.limit(capLogMaxTir))
	d.tises = newTable[tis](0, p.limit(capLogMaxTis))
	d.rqts = newTable[rqt](0, p.limit(capLogMaxRqt))
	d.qctrs = newTable[queueCounter](1, 255)
	d.tables = newTable[flowTable](1, p.flowTables())
	d.groups = newTable[flowGroup](0, 1<<24)
	d.fctrs = newTable[flowCounter](1, p.flowCounters())
	d.rootRX, d.rootTX = 0, 0
	d.flowEntries = 0
	d.steerRev++
}

// putRegisters fills the initialization segment.
func (d *Device) putRegisters(now time.Time) {
	p := d.prof
	d.putWord(barFWRev, p.fwMinor<<16|p.fwMajor)
	d.putWord(barCmdifSub, cmdifRevision<<16|p.fwSub)
	d.putWord(barCmdQueueLow, d.hca.nicState<<8|cmdQueueShape)
	d.putWord(healthFWVer, p.fwMajor<<24|p.fwMinor<<16|p.fwSub)
	d.putWord(healthHWID, p.hwID)
	d.beatHealth(now)
	d.putClocks(now)
}

// putClocks refreshes the words that move by themselves.
func (d *Device) putClocks(now time.Time) {
	t := d.clock(now)
	d.putWord(barTimerHigh, uint32(t>>32))
	d.putWord(barTimerLow, uint32(t))
	sec, nsec := d.realTime(now)
	d.putWord(barRealTimeHigh, sec)
	d.putWord(barRealTimeLow, nsec)
}

// beatHealth advances the health counter and shows scripted ill health.
func (d *Device) beatHealth(now time.Time) {
	d.hca.beat = now
	if d.script.HealthSyndrome == 0 {
		d.hca.health = (d.hca.health + 1) & 0xffffff
	}
	d.putWord(barHealthCount, d.hca.health)
	d.putWord(healthIRISC, uint32(d.script.HealthSyndrome)<<16)
	initializing := uint32(0)
	if wait := d.script.NotReady; wait < 0 || now.Sub(d.started) < wait {
		initializing = 1 << 31
	}
	d.putWord(barInitializing, initializing)
}

// clock is the free-running internal timer in ticks of the device frequency.
func (d *Device) clock(now time.Time) uint64 {
	hi, lo := bits.Mul64(uint64(max(now.Sub(d.started), 0)), uint64(d.prof.khz))
	q, _ := bits.Div64(hi%1_000_000, lo, 1_000_000)
	return q
}

// realTime is the real-time clock in seconds and nanoseconds of UTC.
func (d *Device) realTime(now time.Time) (sec, nsec uint32) {
	t := now.Add(d.hca.rtcOffset)
	if d.hca.rtcRate != 0 {
		drift := float64(now.Sub(d.hca.rtcFrom)) * float64(d.hca.rtcRate) / 1e9
		t = t.Add(time.Duration(drift))
	}
	return uint32(t.Unix()), uint32(t.Nanosecond())
}

// word points at a 4-byte register. off is a multiple of 4 within BAR0.
func (d *Device) word(off int) *uint32 {
	return (*uint32)(unsafe.Pointer(&d.bar[off : off+4][0]))
}

func (d *Device) putWord(off int, v uint32) {
	atomic.StoreUint32(d.word(off), bits.ReverseBytes32(v))
}

func (d *Device) getWord(off int) uint32 { return bits.ReverseBytes32(atomic.LoadUint32(d.word(off))) }

// takeWord reads a doorbell register that is plain memory and clears it. Zero
// is "nothing written".
func (d *Device) takeWord(off int) uint32 {
	w := d.word(off)
	if atomic.LoadUint32(w) == 0 {
		return 0
	}
	return bits.ReverseBytes32(atomic.SwapUint32(w, 0))
}

// takeLong is takeWord for an 8-byte register.
func (d *Device) takeLong(off int) uint64 {
	w := d.long(off)
	if atomic.LoadUint64(w) == 0 {
		return 0
	}
	return bits.ReverseBytes64(atomic.SwapUint64(w, 0))
}

// Read is a trapped register read of any size. Outside BAR0 it reads as ones.
func (d *Device) Read(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil || off < 0 || off > len(d.bar)-len(p) || d.vanish() {
		for i := range p {
			p[i] = 0xff
		}
		return
	}
	if off < barRealTimeLow+4 {
		now := time.Now()
		if off <= barHealthCount && off+len(p) > barHealthCount {
			d.beatHealth(now) // moves at every read: hosts may poll in virtual time
		}
		d.putClocks(now)
		d.keepQueueShape()
	}
	copy(p, d.bar[off:])
}

// Write is a trapped register write. It is executed before Write returns.
func (d *Device) Write(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil || off < 0 || len(p) == 0 || off > len(d.bar)-len(p) || d.vanish() {
		return
	}
	if off >= firstUAR*uarPageSize {
		d.writeUAR(off, p)
		return
	}
	if off == barCmdDoorbell && len(p) == 4 {
		if d.canWork(time.Now()) {
			d.ringCommands(binary.BigEndian.Uint32(p))
		}
		return
	}
	if off >= barCmdQueueHigh && off+len(p) <= barCmdDoorbell {
		copy(d.bar[off:], p)
		d.keepQueueShape()
	}
}

// writeUAR executes a doorbell. Stores to a page that is not allocated, or to
// no doorbell, are lost and counted.
func (d *Device) writeUAR(off int, p []byte) {
	u := d.uars.get(uint32(off / uarPageSize))
	if u == nil {
		d.badDoorbell("UAR page %#x is nobody's", off/uarPageSize)
		return
	}
	if !d.canWork(time.Now()) {
		return
	}
	switch in := off % uarPageSize; {
	case in == uarCQ && len(p) == 8:
		d.doorbellCQ(binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:]))
	case (in == uarEQArm || in == uarEQ) && len(p) == 4:
		v := binary.BigEndian.Uint32(p)
		d.doorbellEQ(v>>24, v&0xffffff, in == uarEQArm)
	case in >= uarSend && len(p) >= 8 && in%uarSendGap == 0:
		d.writeSend(u, in, p)
	default:
		d.writeHalf(off, p)
	}
}

// writeHalf copes with hosts that store an 8-byte doorbell as two words: the
// first waits in BAR0 for the second.
func (d *Device) writeHalf(off int, p []byte) {
	in := off % uarPageSize
	first := in == uarCQ || (in >= uarSend && in%uarSendGap == 0)
	second := in == uarCQ+4 || (in > uarSend && in%uarSendGap == 4)
	switch {
	case len(p) == 4 && first:
		copy(d.bar[off:], p)
	case len(p) == 4 && second:
		hi := d.takeWord(off - 4)
		lo := binary.BigEndian.Uint32(p)
		if in == uarCQ+4 {
			d.doorbellCQ(hi, lo)
		} else {
			d.doorbellSQ(uint64(hi)<<32 | uint64(lo))
		}
	case in < uarSend: // the rest of a BlueFlame copy needs no attention
		d.badDoorbell("%d bytes at %#x of a UAR page", len(p), in)
	}
}

// keepQueueShape puts the queue's size back into the address register, and
// follows nic_interface.
func (d *Device) keepQueueShape() {
	v := d.getWord(barCmdQueueLow)
	if v&0xff != cmdQueueShape {
		v = v&^0xff | cmdQueueShape
		d.putWord(barCmdQueueLow, v)
	}
	state := v >> 8 & 7
	if state == d.hca.nicState {
		return
	}
	d.hca.nicState = state
	switch state {
	case nicSWReset:
		addr := d.getWord(barCmdQueueHigh)
		d.reset(time.Now())
		d.hca.nicState = nicDisabled
		d.putWord(barCmdQueueHigh, addr)
		d.putWord(barCmdQueueLow, v&^0x7ff|nicDisabled<<8|cmdQueueShape)
	case nicDisabled:
		d.dropObjects()
	}
}

// vanish follows Script.Vanish: a device that is gone reads as ones, and comes
// back in its power-on state.
func (d *Device) vanish() bool {
	gone := d.script.Vanish != nil && d.script.Vanish()
	if gone == d.hca.vanished {
		return gone
	}
	d.hca.vanished = gone
	seg := d.bar[:barRealTimeLow+4]
	if gone {
		for i := range seg {
			seg[i] = 0xff
		}
		return true
	}
	d.reset(time.Now())
	return false
}

// canWork reports whether the device would fetch work from the host at all.
func (d *Device) canWork(now time.Time) bool {
	if !d.busMaster() {
		return false
	}
	wait := d.script.NotReady
	return wait == 0 || (wait > 0 && now.Sub(d.started) >= wait)
}

// stepBudget bounds how many frames one turn takes from the wire.
const stepBudget = 256

// Step takes one bounded turn: registers stored as memory, doorbell records,
// timers, the wire. It reports whether there was work.
func (d *Device) Step() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil || d.vanish() {
		return false
	}
	now := time.Now()
	if now.Sub(d.hca.beat) >= healthPeriod {
		d.beatHealth(now)
		d.keepQueueShape()
		d.followWire()
	}
	d.putClocks(now)
	if !d.canWork(now) {
		return false
	}
	work := d.releaseAnswers(now)
	// What a host stored before it posted a command comes before the command: the
	// last arm of a queue must not be met after the queue's end. So the commands
	// are found first, then the doorbells are taken, then the commands run.
	rung, posted := d.takeWord(barCmdDoorbell), uint32(0)
	if rung != 0 {
		d.keepQueueShape()
		posted = d.postedCommands()
	}
	if d.hca.phase == phaseReady {
		work = d.takeDoorbells() || work
	}
	if rung != 0 {
		d.ringCommands(posted)
		work = true
	}
	if d.hca.phase != phaseReady {
		return work
	}
	work = d.pollRecords() || work
	work = d.cqTimers(now) || work
	return d.pollReceive(now, stepBudget) || work
}

// takeDoorbells collects what was stored in the UAR pages in use.
func (d *Device) takeDoorbells() bool {
	work := false
	for _, u := range d.uars.list {
		base := int(u.n) * uarPageSize
		if v := d.takeLong(base + uarCQ); v != 0 {
			d.doorbellCQ(uint32(v>>32), uint32(v))
			work = true
		}
		for off := base + uarEQArm; off <= base+uarEQ; off += uarEQ - uarEQArm {
			if v := d.takeWord(off); v != 0 {
				d.doorbellEQ(v>>24, v&0xffffff, off == base+uarEQArm)
				work = true
			}
		}
		for off := base + uarSend; off < base+uarPageSize; off += uarSendGap {
			work = d.takeSend(u, off) || work
		}
	}
	return work
}

// Run takes turns until stop is closed. It spins while there is work and a
// little longer, then sleeps up to a millisecond between turns.
func (d *Device) Run(stop <-chan struct{}) {
	const spins, longest = 64, time.Millisecond
	idle, pause := 0, 20*time.Microsecond
	for {
		select {
		case <-stop:
			return
		default:
		}
		worked := d.Step()
		if d.cfg.Between != nil {
			d.cfg.Between()
		}
		if worked {
			idle, pause = 0, 20*time.Microsecond
			continue
		}
		if idle++; idle < spins {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(pause*2, longest)
	}
}

// Stats reads the model's counts.
func (d *Device) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Pages = d.pages.count()
	if w, ok := d.cfg.Wire.(interface{ Dropped() uint64 }); ok {
		s.WireDropped = w.Dropped()
	}
	s.Objects = map[string]int{}
	for _, k := range d.objectCounts() {
		if k.n != 0 {
			s.Objects[k.kind] = k.n
		}
	}
	return s
}

// objectCount is the number of live objects of one kind.
type objectCount struct {
	kind string
	n    int
}

// objectCounts lists all kinds, those that others refer to last.
func (d *Device) objectCounts() []objectCount {
	return []objectCount{
		{"flow_entry", d.flowEntries}, {"flow_group", d.groups.live}, {"flow_table", d.tables.live}, {"flow_counter", d.fctrs.live},
		{"tir", d.tirs.live}, {"rqt", d.rqts.live}, {"rq", d.rqs.live}, {"rmp", d.rmps.live}, {"sq", d.sqs.live},
		{"tis", d.tises.live}, {"cq", d.cqs.live}, {"eq", d.eqs.live}, {"mkey", d.mkeys.live},
		{"q_counter", d.qctrs.live}, {"td", d.tds.live}, {"pd", d.pds.live}, {"uar", d.uars.live},
	}
}

// newTable returns an empty table for at most n objects numbered from first.
func newTable[T any](first, n uint32) table[T] {
	return table[T]{first: first, max: n}
}

// get returns the object with this number, nil if there is none.
func (t *table[T]) get(n uint32) *T {
	if i := n - t.first; i < uint32(len(t.items)) {
		return t.items[i]
	}
	return nil
}

// full reports whether another object would go beyond the limit.
func (t *table[T]) full() bool { return uint32(t.live) >= t.max }

// add makes an object with the next free number; nil if the table is full.
func (t *table[T]) add(build func(n uint32) *T) *T {
	if t.full() {
		return nil
	}
	if t.next >= t.max {
		t.next = 0
	}
	for t.next < uint32(len(t.items)) && t.items[t.next] != nil {
		if t.next++; t.next >= t.max {
			t.next = 0
		}
	}
	if t.next == uint32(len(t.items)) {
		t.items = append(t.items, nil)
	}
	v := build(t.first + t.next)
	t.items[t.next] = v
	t.next++
	t.live++
	t.list = append(t.list, v)
	return v
}

// remove forgets the object with this number.
func (t *table[T]) remove(n uint32) {
	v := t.get(n)
	if v == nil {
		return
	}
	t.items[n-t.first] = nil
	t.live--
	for i, x := range t.list {
		if x == v {
			t.list = append(t.list[:i], t.list[i+1:]...)
			break
		}
	}
}

// each calls visit for every live object, oldest first.
func (t *table[T]) each(visit func(*T)) {
	for _, v := range t.list {
		visit(v)
	}
}

// WireDone reports whether no frame will ever come again and none of those that
// came is left undelivered.
func (d *Device) WireDone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.Wire != nil && d.cfg.Wire.Done()
}
