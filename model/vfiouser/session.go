package vfiouser

// This file owns one client's session: what each message does to the device
// and what it is answered. It owns the client's interrupt descriptors. The
// source is the vfio-user specification, version 0; the structures are VFIO's.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// session is one client, from its first message to its last.
type session struct {
	dev   Device
	areas []Area
	ch    *channel
	mem   memory
	irq   []int // eventfd by vector, -1 where none
	greet bool  // VERSION has been exchanged
	buf   []byte
}

func newSession(dev Device, areas []Area, ch *channel) *session {
	s := &session{dev: dev, areas: areas, ch: ch, irq: make([]int, dev.Vectors())}
	for i := range s.irq {
		s.irq[i] = -1
	}
	return s
}

// run serves messages until the client goes or breaks the protocol. It returns
// io.EOF when the client closed its socket between two messages.
func (s *session) run() error {
	for {
		m, err := s.ch.next()
		if err != nil {
			return err
		}
		if err := s.serve(m); err != nil {
			return err
		}
		// Received frames and timers go on whether or not a reply was wanted.
		s.dev.Step()
	}
}

// serve does one message and answers it. An error ends the session. The
// message's descriptors are closed before the client has its answer.
func (s *session) serve(m *message) error {
	defer m.closeFDs()
	if m.flags&typeMask != typeCommand {
		return fmt.Errorf("%w: message type %d", errRubbish, m.flags&typeMask)
	}
	if !s.greet && m.cmd != cmdVersion {
		return fmt.Errorf("%w: command %d before VERSION", errRubbish, m.cmd)
	}
	body, fd, err := s.dispatch(m)
	m.closeFDs()
	if m.flags&flagNoReply != 0 {
		return nil
	}
	return s.ch.reply(m, errnoOf(err), body, fd)
}

// errnoOf is the number that a refusal is answered with.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EINVAL
}

func (s *session) dispatch(m *message) (body []byte, fd int, err error) {
	fd = -1
	switch m.cmd {
	case cmdVersion:
		body, err = s.version(m.body)
	case cmdDMAMap:
		err = s.dmaMap(m)
	case cmdDMAUnmap:
		body, err = s.dmaUnmap(m.body)
	case cmdDeviceInfo:
		body, err = s.deviceInfo(m.body)
	case cmdRegionInfo:
		body, fd, err = s.regionInfo(m.body)
	case cmdIRQInfo:
		body, err = s.irqInfo(m.body)
	case cmdSetIRQs:
		err = s.setIRQs(m)
	case cmdRegionRead:
		body, err = s.regionRead(m.body)
	case cmdRegionWrite:
		body, err = s.regionWrite(m.body)
	case cmdReset:
		s.dev.Reset()
	default:
		err = unix.ENOTSUP
	}
	return body, fd, err
}

// version is the first message: both sides say what they can do.
func (s *session) version(b []byte) ([]byte, error) {
	if s.greet || len(b) < 4 || le.Uint16(b) != 0 {
		return nil, unix.EINVAL
	}
	text, _, _ := bytes.Cut(b[4:], []byte{0})
	if len(text) > 0 {
		var their struct {
			Capabilities struct {
				MaxFDs *uint32 `json:"max_msg_fds"`
			} `json:"capabilities"`
		}
		if err := json.Unmarshal(text, &their); err != nil {
			return nil, unix.EINVAL
		}
		// Region information passes one descriptor.
		if n := their.Capabilities.MaxFDs; n != nil && *n == 0 {
			s.areas = nil
		}
	}
	s.greet = true
	out := make([]byte, 4)
	out = fmt.Appendf(out, `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d,"pgsizes":%d,"max_dma_maps":%d}}`,
		maxFDs, maxTransfer, pageSize, maxRanges)
	return append(out, 0), nil
}

// dmaMap: argsz, flags, file offset, address, size.
func (s *session) dmaMap(m *message) error {
	const readable, writable = 1, 2
	b := m.body
	if len(b) != 32 || len(m.fds) > 1 {
		return unix.EINVAL
	}
	flags := le.Uint32(b[4:])
	if flags&^(readable|writable) != 0 || flags == 0 {
		return unix.EINVAL
	}
	fd := -1
	if len(m.fds) == 1 {
		fd = m.fds[0]
	}
	return s.mem.lend(s.dev, fd, le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), flags&writable != 0)
}

// dmaUnmap: argsz, flags, address, size. Dirty page tracking is not offered.
func (s *session) dmaUnmap(b []byte) ([]byte, error) {
	const dirtyBitmap, all = 1, 2
	if len(b) < 24 {
		return nil, unix.EINVAL
	}
	iova, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	switch flags := le.Uint32(b[4:]); {
	case flags&dirtyBitmap != 0:
		return nil, unix.ENOTSUP
	case flags == all && iova == 0 && size == 0:
		s.mem.drop(s.dev)
	case flags == 0 && len(b) == 24:
		if err := s.mem.takeBack(s.dev, iova, size); err != nil {
			return nil, err
		}
	default:
		return nil, unix.EINVAL
	}
	out := bytes.Clone(b[:24])
	le.PutUint32(out, 24)
	return out, nil
}

// deviceInfo: argsz, flags, regions, interrupt kinds.
func (s *session) deviceInfo(b []byte) ([]byte, error) {
	const canReset, pci = 1, 2
	if len(b) < 16 || le.Uint32(b) < 16 {
		return nil, unix.EINVAL
	}
	return words(16, canReset|pci, numRegions, numIRQs), nil
}

// words is a reply of 32-bit fields.
func words(w ...uint32) []byte {
	out := make([]byte, 0, 4*len(w))
	for _, v := range w {
		out = le.AppendUint32(out, v)
	}
	return out
}

func (s *session) regionSize(index uint32) int {
	switch index {
	case regionBAR0:
		return len(s.dev.BAR())
	case regionConfig:
		return configSize
	}
	return 0
}

// regionInfo: argsz, flags, index, capability offset, size, file offset. BAR0
// carries the list of areas that may be mapped, and the file to map them from,
// once the client has made room for the list.
func (s *session) regionInfo(b []byte) (out []byte, fd int, err error) {
	const read, write, mmap, caps = 1, 2, 4, 8
	const fixed, sparseID = 32, 1
	if len(b) < fixed || le.Uint32(b) < fixed {
		return nil, -1, unix.EINVAL
	}
	room, index := le.Uint32(b), le.Uint32(b[8:])
	if index >= numRegions {
		return nil, -1, unix.EINVAL
	}
	size := s.regionSize(index)
	flags := uint32(0)
	if size > 0 {
		flags = read | write
	}
	if index != regionBAR0 || len(s.areas) == 0 {
		out = words(fixed, flags, index, 0)
		out = le.AppendUint64(out, uint64(size))
		return le.AppendUint64(out, 0), -1, nil
	}
	need := uint32(fixed + 16 + 16*len(s.areas))
	flags |= mmap | caps
	if room < need {
		out = words(need, flags, index, 0)
		out = le.AppendUint64(out, uint64(size))
		return le.AppendUint64(out, 0), s.dev.BARFile(), nil
	}
	out = words(need, flags, index, fixed)
	out = le.AppendUint64(out, uint64(size))
	out = le.AppendUint64(out, 0)
	out = append(out, words(sparseID|1<<16, 0, uint32(len(s.areas)), 0)...)
	for _, a := range s.areas {
		out = le.AppendUint64(out, uint64(a.Offset))
		out = le.AppendUint64(out, uint64(a.Size))
	}
	return out, s.dev.BARFile(), nil
}

// interrupts is how many interrupts of a kind there are. The pin and the error
// event are offered as any PCI Express function offers them; this one never
// raises them.
func (s *session) interrupts(index uint32) uint32 {
	switch index {
	case irqPin:
		var pin [1]byte
		s.dev.ReadConfig(configPin, pin[:])
		return uint32(min(pin[0], 1))
	case irqMSIX:
		return uint32(len(s.irq))
	case irqError:
		return 1
	}
	return 0
}

// irqInfo: argsz, flags, index, count.
func (s *session) irqInfo(b []byte) ([]byte, error) {
	const eventfd, maskable, automasked = 1, 2, 4
	if len(b) < 16 || le.Uint32(b) < 16 || le.Uint32(b[8:]) >= numIRQs {
		return nil, unix.EINVAL
	}
	index := le.Uint32(b[8:])
	flags := uint32(0)
	switch count := s.interrupts(index); {
	case count > 0 && index == irqPin:
		flags = eventfd | maskable | automasked
	case count > 0:
		flags = eventfd
	}
	return words(16, flags, index, s.interrupts(index)), nil
}

// SET_IRQS flags: one kind of data, one action.
const (
	dataNone    = 1
	dataBool    = 2
	dataEventfd = 4
	actMask     = 0x08
	actUnmask   = 0x10
	actTrigger  = 0x20
)

// setIRQs: argsz, flags, index, start, count, data. Descriptors come beside the
// message; an eventfd action without one unbinds.
func (s *session) setIRQs(m *message) error {
	b := m.body
	if len(b) < 20 {
		return unix.EINVAL
	}
	flags, index := le.Uint32(b[4:]), le.Uint32(b[8:])
	start, count := le.Uint32(b[12:]), le.Uint32(b[16:])
	if index >= numIRQs {
		return unix.EINVAL
	}
	limit := s.interrupts(index)
	if start > limit || count > limit-start {
		return unix.EINVAL
	}
	if index != irqMSIX {
		return silent(m, index, flags, count)
	}
	if flags&actTrigger == 0 {
		return unix.EINVAL
	}
	switch flags &^ actTrigger {
	case dataNone:
		if count == 0 {
			s.unbindAll()
			return nil
		}
		s.fire(start, count, nil)
	case dataBool:
		if uint32(len(b)-20) < count {
			return unix.EINVAL
		}
		s.fire(start, count, b[20:])
	case dataEventfd:
		return s.bind(m, int(start), int(count))
	default:
		return unix.EINVAL
	}
	return nil
}

// silent accepts what a client sets up for an interrupt that never comes. Its
// descriptor is checked as any other and not kept.
func silent(m *message, index, flags, count uint32) error {
	action := flags & (actMask | actUnmask | actTrigger)
	one := action == actTrigger || (index == irqPin && (action == actMask || action == actUnmask))
	kind := flags &^ action
	if !one || (kind != dataNone && kind != dataEventfd) || uint32(len(m.fds)) > count || (kind == dataNone && len(m.fds) > 0) {
		return unix.EINVAL
	}
	for _, fd := range m.fds {
		if !isEventfd(fd) {
			return unix.EINVAL
		}
	}
	return nil
}

// fire triggers vectors at the client's wish.
func (s *session) fire(start, count uint32, which []byte) {
	for i := range count {
		if fd := s.irq[start+i]; fd >= 0 && (which == nil || which[i] != 0) {
			signal(fd)
		}
	}
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// signal adds 1 to an eventfd. It does not block; a counter that is full is
// pending already.
func signal(fd int) { _, _ = unix.Write(fd, one) }

func (s *session) bind(m *message, start, count int) error {
	if len(m.fds) != 0 && len(m.fds) != count {
		return unix.EINVAL
	}
	for _, fd := range m.fds {
		if !isEventfd(fd) {
			return unix.EINVAL
		}
	}
	for i := range count {
		s.unbind(start + i)
		if len(m.fds) == 0 {
			continue
		}
		fd := m.takeFD(i)
		s.irq[start+i] = fd
		s.dev.SetIRQ(start+i, func() { signal(fd) })
	}
	return nil
}

// isEventfd keeps the device from writing into something that could block or
// that is no interrupt.
func isEventfd(fd int) bool {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && !strings.Contains(name, "[eventfd]") {
		return false
	}
	return unix.SetNonblock(fd, true) == nil
}

// unbind takes a vector's descriptor from the device, then closes it.
func (s *session) unbind(v int) {
	if s.irq[v] < 0 {
		return
	}
	s.dev.SetIRQ(v, nil)
	_ = unix.Close(s.irq[v])
	s.irq[v] = -1
}

func (s *session) unbindAll() {
	for v := range s.irq {
		s.unbind(v)
	}
}

// access checks offset, region and count of a REGION_READ or REGION_WRITE.
func (s *session) access(b []byte) (off, count int, region uint32, err error) {
	if len(b) < 16 {
		return 0, 0, 0, unix.EINVAL
	}
	o, n := le.Uint64(b), le.Uint32(b[12:])
	region = le.Uint32(b[8:])
	size := uint64(s.regionSize(region))
	if n == 0 || n > maxTransfer || uint64(n) > size || o > size-uint64(n) {
		return 0, 0, 0, unix.EINVAL
	}
	return int(o), int(n), region, nil
}

func (s *session) regionRead(b []byte) ([]byte, error) {
	off, n, region, err := s.access(b)
	if err != nil || len(b) != 16 {
		return nil, unix.EINVAL
	}
	s.buf = append(s.buf[:0], b...)
	s.buf = append(s.buf, make([]byte, n)...)
	if region == regionConfig {
		s.dev.ReadConfig(off, s.buf[16:])
	} else {
		s.dev.Read(off, s.buf[16:])
	}
	return s.buf, nil
}

func (s *session) regionWrite(b []byte) ([]byte, error) {
	off, n, region, err := s.access(b)
	if err != nil || len(b) != 16+n {
		return nil, unix.EINVAL
	}
	if region == regionConfig {
		s.dev.WriteConfig(off, b[16:])
	} else {
		s.dev.Write(off, b[16:])
	}
	return b[:16], nil
}

// quiesce drops all that the client lent: first its interrupts, then its memory.
func (s *session) quiesce() {
	s.unbindAll()
	s.mem.drop(s.dev)
}
