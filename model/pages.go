package model

// pages.go owns the life of the function, from ENABLE_HCA to DISABLE_HCA, and
// the pages of host memory that it borrows for it: boot pages before
// capabilities, init pages before INIT_HCA, more on request, all back after
// TEARDOWN_HCA. It does not own capabilities (profile.go).
// Manual: chapters "HCA initialization" and "Page management".
//
// Lent pages are marked, and looked at when they go back: a host that writes
// to a page it lent is told so in Stats.LastFault.

import "fmt"

// pageBook is the host memory that the function holds.
type pageBook struct {
	held    []uint64
	has     map[uint64]bool
	spare   int // pages offered back by a page request event
	request int // pages asked for by a page request event and not given yet
	refused int // times the host could not give
}

func (b *pageBook) count() int { return len(b.held) }

// pageMark stands at the start of every lent page, with the address mixed in.
const pageMark = 0x6c656e7420706167

func (d *Device) cmdEnableHCA(in, _ []byte) *refusal {
	if enableHCAFunctionId.on(in) || enableHCAEmbeddedCpuFunction.on(in) {
		return badParam(codeFunction, "function %d is not this one", enableHCAFunctionId.get(in))
	}
	d.hca.phase = phaseEnabled
	return nil
}

func (d *Device) cmdDisableHCA(in, _ []byte) *refusal {
	if enableHCAFunctionId.on(in) || enableHCAEmbeddedCpuFunction.on(in) {
		return badParam(codeFunction, "function %d is not this one", enableHCAFunctionId.get(in))
	}
	d.hca.phase = phaseOff
	d.hca.issi = 0
	d.hca.caps = d.prof.newCaps()
	d.hca.checksum = false
	return nil
}

func (d *Device) cmdInitHCA(_, _ []byte) *refusal {
	if need := d.prof.bootPages + d.prof.initPages; d.pages.count() < need {
		return refuse(statNoRes, codeLimit, "%d pages lent, %d are needed", d.pages.count(), need)
	}
	d.hca.phase = phaseReady
	d.hca.checksum = capCmdifChecksum.get(d.hca.caps[groupGeneral].current) == checksumOn
	return nil
}

// cmdTeardownHCA ends what INIT_HCA began. A graceful close is refused while
// there are objects; a forced one, where the profile has it, destroys them and
// says in state whether it could.
func (d *Device) cmdTeardownHCA(in, out []byte) *refusal {
	switch profile := teardownProfile.get(in); profile {
	case teardownGraceful:
		if kind, n := d.someObject(); n != 0 {
			return refuse(statBadResState, codeInUse, "%d objects of kind %s are left", n, kind)
		}
	case teardownForce, teardownFast:
		able := capForceTeardown
		if profile == teardownFast {
			able = capFastTeardown
		}
		if !d.gen(able) {
			teardownOutState.set(out, 1)
			return nil
		}
		d.dropObjects()
	default:
		return badParam(codeRange, "profile %d", profile)
	}
	d.hca.phase = phaseEnabled
	d.hca.checksum = false
	d.hca.vxlan = nil
	d.hca.l2, d.hca.l2ByMAC = map[uint32]l2Entry{}, map[[6]byte]int{}
	d.resetVport()
	return nil
}

// someObject names a kind of which objects exist.
func (d *Device) someObject() (kind string, n int) {
	for _, k := range d.objectCounts() {
		if k.n != 0 {
			return k.kind, k.n
		}
	}
	return "", 0
}

func (d *Device) cmdQueryISSI(_, out []byte) *refusal {
	issiOutCurrentIssi.set(out, uint64(d.hca.issi))
	issiOutSupportedIssiDw0.set(out, 1<<1)
	return nil
}

func (d *Device) cmdSetISSI(in, _ []byte) *refusal {
	if v := issiInCurrentIssi.get(in); v != 1 {
		return badParam(codeRange, "interface revision %d: only 1 is supported", v)
	}
	d.hca.issi = 1
	return nil
}

// cmdQueryPages says how many pages the function needs now for what comes next.
func (d *Device) cmdQueryPages(in, out []byte) *refusal {
	if queryPagesInFunctionId.on(in) || queryPagesInEmbeddedCpuFunction.on(in) {
		return badParam(codeFunction, "function %d is not this one", queryPagesInFunctionId.get(in))
	}
	need := 0
	switch cmdOpMod.get(in) {
	case bootPagesMod:
		need = d.prof.bootPages - d.pages.count()
	case initPagesMod:
		if d.hca.phase == phaseEnabled {
			need = d.prof.bootPages + d.prof.initPages - d.pages.count()
		}
	case regularPagesMod:
		need = d.pages.request - d.pages.spare
		queryPagesOutNumPages.set(out, uint64(int64(need)))
		return nil
	default:
		return badParam(codeRange, "operation modifier 0")
	}
	queryPagesOutNumPages.set(out, uint64(max(need, 0)))
	return nil
}

func (d *Device) cmdManagePages(in, out []byte) *refusal {
	if managePagesInFunctionId.on(in) || managePagesInEmbeddedCpuFunction.on(in) {
		return badParam(codeFunction, "function %d is not this one", managePagesInFunctionId.get(in))
	}
	n := int(managePagesInInputNumEntries.get(in))
	switch cmdOpMod.get(in) {
	case pagesGive:
		return d.givePages(n, managePagesInPas.in(in))
	case pagesTake:
		return d.takePages(n, out)
	}
	d.pages.refused++
	d.pages.request = 0
	return nil
}

// givePages borrows n pages. All are checked before the first is taken.
func (d *Device) givePages(n int, pas []byte) *refusal {
	if n == 0 {
		return badParam(codeRange, "no pages given")
	}
	if n > len(pas)/8 {
		return refuse(statBadInLen, codeLength, "%d pages announced, %d addresses in the message", n, len(pas)/8)
	}
	if d.pages.has == nil {
		d.pages.has = map[uint64]bool{}
	}
	fresh := make([]uint64, 0, n)
	for i := range n {
		pa := be64(pas, 8*i)
		switch {
		case pa%4096 != 0:
			return d.unlend(fresh, badParam(codeAlign, "page address %#x", pa))
		case d.pages.has[pa]:
			return d.unlend(fresh, badParam(codeInUse, "page %#x is lent already", pa))
		case !d.markPage(pa):
			return d.unlend(fresh, badParam(codeRange, "page %#x is not mapped for writing", pa))
		}
		d.pages.has[pa] = true
		fresh = append(fresh, pa)
	}
	d.pages.held = append(d.pages.held, fresh...)
	d.pages.request = max(d.pages.request-n, 0)
	return nil
}

// unlend undoes a gift that turned out bad.
func (d *Device) unlend(fresh []uint64, no *refusal) *refusal {
	for _, pa := range fresh {
		delete(d.pages.has, pa)
	}
	return no
}

// markPage writes the mark; it reports false where the page is not reachable.
func (d *Device) markPage(pa uint64) bool {
	b := d.mem.at(pa, 4096, true)
	if b == nil {
		d.fault(pa, 4096, "page lent")
		return false
	}
	putBE64(b, 0, pageMark^pa)
	return true
}

// takePages returns at most n pages, the last lent first: all of them while
// the function is down, else those offered by an event.
func (d *Device) takePages(n int, out []byte) *refusal {
	list := managePagesOutPas.in(out)
	give := min(n, len(list)/8, d.pages.count())
	if d.hca.phase == phaseReady {
		give = min(give, d.pages.spare)
		d.pages.spare -= give
	}
	for i := range give {
		last := len(d.pages.held) - 1
		pa := d.pages.held[last]
		d.pages.held = d.pages.held[:last]
		delete(d.pages.has, pa)
		d.checkMark(pa)
		putBE64(list, 8*i, pa)
	}
	managePagesOutOutputNumEntries.set(out, uint64(give))
	return nil
}

// checkMark notices a page that the host wrote to while it was lent.
func (d *Device) checkMark(pa uint64) {
	b := d.mem.at(pa, 8, false)
	if b != nil && be64(b, 0) != pageMark^pa {
		d.stats.DMAFaults++
		d.stats.LastFault = fmt.Sprintf("page %#x was written by the host while it was lent", pa)
	}
}

// RequestPages raises a page request event: for n more pages, or to offer -n
// pages back. It returns false if no EQ takes such events.
func (d *Device) RequestPages(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n >= 0 {
		d.pages.request += n
	} else {
		d.pages.spare = min(d.pages.spare-n, d.pages.count())
	}
	var data [28]byte
	putBE32(data[:], 4, uint32(int32(n)))
	return d.announce(eventPageRequest, 0, data[:])
}

// announce posts an event and reports whether any EQ wants it.
func (d *Device) announce(typ, sub uint8, data []byte) bool {
	for _, e := range d.eqs.list {
		if e.mask>>typ&1 != 0 {
			d.event(typ, sub, data)
			return true
		}
	}
	return false
}
