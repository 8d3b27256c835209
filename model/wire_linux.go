package model

// wire_linux.go owns the wires that reach the Linux network: tap, an interface
// made here whose far end is the port, and if, an interface that exists, shared
// with the kernel through a packet socket. It does not own the spec (wire.go).
// Sources: Linux tuntap.rst, packet(7), virtio_net_hdr of the virtio
// specification. It stands outside the manual.
//
// Nothing here blocks. An idle wire costs a system call per idlePause of the
// clock given to Peek, not per Peek.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	idlePause = 50 * time.Microsecond
	// linkPause is how long the carrier's state is believed.
	linkPause = 100 * time.Millisecond
	// tagRoom is kept in front of a received frame for a VLAN tag.
	tagRoom = 4
	// readLimit bounds the frames dropped or ignored in one Peek.
	readLimit = 64
)

// netdev is what both wires know of the interface: its name and its carrier.
type netdev struct {
	name    string
	fd      int
	control int    // a socket for interface requests
	wants   uint16 // interface flags that together are a carrier
	buf     []byte // tagRoom, then the frame as read
	frame   []byte // the frame of the last Peek, in buf or elsewhere
	have    bool
	idle    bool
	idleAt  time.Time
	link    bool
	linkAt  time.Time
	closed  bool
	gone    atomic.Bool
	dropped atomic.Uint64
}

// prepare checks the name and makes what both wires need. On an error there is
// nothing to close.
func (d *netdev) prepare(name string, wants uint16) error {
	if name == "" || len(name) >= unix.IFNAMSIZ || name == "." || name == ".." || strings.ContainsAny(name, "/:% \t\n") {
		return inputError("%q is not an interface name: 1 to %d characters, none of / : %% or space", name, unix.IFNAMSIZ-1)
	}
	control, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: open a control socket: %w", name, err)
	}
	d.name, d.fd, d.control, d.wants = name, -1, control, wants
	d.buf = make([]byte, tagRoom+maxCaptured)
	return nil
}

// request makes one interface request and returns the answer.
func (d *netdev) request(code uint, set func(*unix.Ifreq)) (*unix.Ifreq, error) {
	r, err := unix.NewIfreq(d.name)
	if err != nil {
		return nil, err
	}
	if set != nil {
		set(r)
	}
	return r, unix.IoctlIfreq(d.control, code, r)
}

// LinkUp asks the kernel at most once per linkPause.
func (d *netdev) LinkUp() bool {
	if d.closed || d.gone.Load() {
		return false
	}
	now := time.Now()
	if now.Sub(d.linkAt) < linkPause {
		return d.link
	}
	r, err := d.request(unix.SIOCGIFFLAGS, nil)
	if errors.Is(err, unix.ENODEV) {
		d.gone.Store(true)
	}
	d.link, d.linkAt = err == nil && r.Uint16()&d.wants == d.wants, now
	return d.link
}

// resting reports whether the last look found nothing and is recent. A clock
// that runs backwards ends the rest.
func (d *netdev) resting(now time.Time) bool {
	if !d.idle {
		return false
	}
	since := now.Sub(d.idleAt)
	if since >= 0 && since < idlePause {
		return true
	}
	d.idle = false
	return false
}

// took judges the error of a read: again means look once more at once.
func (d *netdev) took(err error, now time.Time) (again bool) {
	switch err {
	case unix.EINTR:
		return true
	case unix.EINVAL: // one frame that the kernel cannot describe; it is gone
		d.dropped.Add(1)
		return true
	case unix.ENODEV, unix.ENXIO, unix.EBADFD:
		d.gone.Store(true)
	}
	d.idle, d.idleAt = true, now // nothing there, or the interface is down
	return false
}

// Take consumes the frame of the last Peek.
func (d *netdev) Take() { d.have, d.frame = false, nil }

// Lossless is false: the kernel's queue overflows when nobody reads.
func (d *netdev) Lossless() bool { return false }

// Done becomes true when the interface is removed.
func (d *netdev) Done() bool { return !d.have && (d.closed || d.gone.Load()) }

// Err says that the interface was removed.
func (d *netdev) Err() error {
	if d.gone.Load() {
		return fmt.Errorf("interface %s was removed", d.name)
	}
	return nil
}

// Dropped counts the frames that the kernel did not take or could not hand over
// whole. What overflowed in the kernel is in the interface's own counters.
func (d *netdev) Dropped() uint64 { return d.dropped.Load() }

func (d *netdev) Close() error {
	if d.closed {
		return nil
	}
	d.closed, d.have, d.frame = true, false, nil
	var err error
	if d.fd >= 0 {
		err = unix.Close(d.fd)
	}
	return errors.Join(err, unix.Close(d.control))
}

// netError adds what to do to an error of the kernel's.
func netError(what, name string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("wire %s:%s: %w: run as root or with CAP_NET_ADMIN and CAP_NET_RAW", what, name, err)
	case errors.Is(err, unix.ENODEV):
		return inputError("wire %s:%s: there is no interface of this name", what, name)
	}
	return fmt.Errorf("wire %s:%s: %w", what, name, err)
}

// tapWire is the far end of a TAP interface.
type tapWire struct{ netdev }

// openTap makes the interface, or takes one that exists and is free, and brings
// it up. One that was made here goes with the wire.
func openTap(s *wireSpec) (Wire, error) {
	w := &tapWire{}
	if err := w.prepare(s.arg, unix.IFF_UP); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		w.Close()
		return nil, netError("tap", s.arg, err)
	}
	return w, nil
}

func (w *tapWire) open() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO):
		return errors.New("no /dev/net/tun: the kernel needs CONFIG_TUN, or its module tun")
	case err != nil:
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	w.fd = fd
	r, err := unix.NewIfreq(w.name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	switch err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); {
	case errors.Is(err, unix.EBUSY):
		return errors.New("the interface is in use by another process")
	case errors.Is(err, unix.EINVAL):
		return inputError("an interface of this name exists and is not a TAP interface")
	case err != nil:
		return fmt.Errorf("make the interface: %w", err)
	}
	return w.up()
}

func (d *netdev) up() error {
	r, err := d.request(unix.SIOCGIFFLAGS, nil)
	if err != nil {
		return fmt.Errorf("read its flags: %w", err)
	}
	flags := r.Uint16() | unix.IFF_UP
	if _, err := d.request(unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(flags) }); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}
	return nil
}

func (w *tapWire) Peek(now time.Time) []byte {
	if w.have {
		return w.frame
	}
	if w.closed || w.gone.Load() || w.resting(now) {
		return nil
	}
	for range readLimit {
		n, err := unix.Read(w.fd, w.buf)
		if err == nil {
			w.frame, w.have = w.buf[:n:n], true
			return w.frame
		}
		if !w.took(err, now) {
			return nil
		}
	}
	return nil
}

func (w *tapWire) Transmit(frame []byte) {
	if w.closed {
		return
	}
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.dropped.Add(1)
	}
}

// packetWire is an interface that exists, through a packet socket. The kernel
// hands frames over without their outer VLAN tag, with transport checksums not
// yet made and several segments in one; the wire undoes all three, so that what
// comes out is what would be on a cable.
type packetWire struct {
	netdev
	header  [virtioHeader]byte
	vectors [][]byte // header, frame
	oob     []byte
	split   splitter
	tag     uint32 // of the frames in split
	none    [virtioHeader]byte
	output  [][]byte
}

// openPacket opens an interface and makes it promiscuous while it is open.
func openPacket(s *wireSpec) (Wire, error) {
	w := &packetWire{oob: make([]byte, 256)}
	if err := w.prepare(s.arg, unix.IFF_UP|unix.IFF_RUNNING); err != nil {
		return nil, err
	}
	w.vectors, w.output = [][]byte{w.header[:], w.buf[tagRoom:]}, [][]byte{w.none[:], nil}
	if err := w.open(); err != nil {
		w.Close()
		return nil, netError("if", s.arg, err)
	}
	return w, nil
}

func (w *packetWire) open() error {
	r, err := w.request(unix.SIOCGIFHWADDR, nil)
	if err != nil {
		return err
	}
	if kind := r.Uint16(); kind != unix.ARPHRD_ETHER && kind != unix.ARPHRD_LOOPBACK {
		return inputError("the interface is not Ethernet (hardware type %d)", kind)
	}
	if r, err = w.request(unix.SIOCGIFINDEX, nil); err != nil {
		return err
	}
	index := int(r.Uint32())
	// Protocol 0 keeps frames of other interfaces out until the socket is bound.
	w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	for _, option := range []int{unix.PACKET_AUXDATA, unix.PACKET_VNET_HDR} {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, option, 1); err != nil {
			return fmt.Errorf("packet socket option %d: %w", option, err)
		}
	}
	// Since Linux 4.20; before, and for certain, accept looks at each frame.
	_ = unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	promiscuous := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(w.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous); err != nil {
		return fmt.Errorf("make it promiscuous: %w", err)
	}
	if err := unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index}); err != nil {
		return fmt.Errorf("bind the packet socket: %w", err)
	}
	return nil
}

// htons turns a port-like number into the byte order of the network.
func htons(v uint16) uint16 { return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)}) }

func (w *packetWire) Peek(now time.Time) []byte {
	if w.have {
		return w.frame
	}
	if w.split.left() {
		return w.deliver(w.split.next())
	}
	if w.closed || w.gone.Load() || w.resting(now) {
		return nil
	}
	for range readLimit {
		n, oobn, flags, from, err := unix.RecvmsgBuffers(w.fd, w.vectors, w.oob, unix.MSG_DONTWAIT)
		if err != nil {
			if w.took(err, now) {
				continue
			}
			return nil
		}
		if frame := w.accept(n, w.oob[:oobn], flags, from); frame != nil {
			return frame
		}
	}
	return nil
}

// accept judges a message of n bytes; nil is one that is no frame from outside.
func (w *packetWire) accept(n int, oob []byte, flags int, from unix.Sockaddr) []byte {
	if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
		return nil
	}
	if n < virtioHeader || flags&unix.MSG_TRUNC != 0 {
		w.dropped.Add(1)
		return nil
	}
	w.tag = auxTag(oob)
	frame := w.buf[tagRoom : tagRoom+n-virtioHeader]
	if w.split.start(w.header[:], frame) {
		return w.deliver(w.split.next())
	}
	completeChecksum(w.header[:], frame)
	return w.deliver(w.buf[:tagRoom+len(frame)])
}

// deliver makes b, which has tagRoom bytes in front, the frame of this Peek.
func (w *packetWire) deliver(b []byte) []byte {
	if w.tag != 0 && len(b) >= tagRoom+12 {
		copy(b, b[tagRoom:tagRoom+12])
		binary.BigEndian.PutUint32(b[12:], w.tag)
	} else {
		b = b[tagRoom:]
	}
	w.frame, w.have = b[:len(b):len(b)], true
	return w.frame
}

func (w *packetWire) Done() bool { return !w.split.left() && w.netdev.Done() }

// Transmit sends a frame as it is: its checksums are made, it is one segment.
func (w *packetWire) Transmit(frame []byte) {
	if w.closed {
		return
	}
	w.output[1] = frame
	if _, err := unix.SendmsgBuffers(w.fd, w.output, nil, nil, unix.MSG_DONTWAIT); err != nil {
		w.dropped.Add(1)
	}
	w.output[1] = nil
}

// auxTag finds the VLAN tag that the kernel took out of a frame: protocol and
// control information, or 0 (struct tpacket_auxdata).
func auxTag(oob []byte) uint32 {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		oob = rest
		if h.Level != unix.SOL_PACKET || h.Type != unix.PACKET_AUXDATA || len(data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			return 0
		}
		protocol := uint32(unix.ETH_P_8021Q)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			protocol = uint32(binary.NativeEndian.Uint16(data[18:]))
		}
		return protocol<<16 | uint32(binary.NativeEndian.Uint16(data[16:]))
	}
	return 0
}

// The header in front of every frame of a packet socket with PACKET_VNET_HDR, in
// the machine's byte order.
const (
	virtioHeader    = 10
	virtioFlags     = 0
	virtioGSOType   = 1
	virtioGSOSize   = 4
	virtioCsumStart = 6
	virtioCsumField = 8

	virtioNeedsCsum = 1
	virtioTCP4      = 1
	virtioTCP6      = 4
	virtioUDP       = 5 // UDP segmentation, either IP version
	virtioECN       = 0x80
)

// completeChecksum makes the transport checksum that the sender left to its
// device: the field holds the sum of the pseudo header.
func completeChecksum(header, frame []byte) {
	if header[virtioFlags]&virtioNeedsCsum == 0 {
		return
	}
	start := int(binary.NativeEndian.Uint16(header[virtioCsumStart:]))
	field := int(binary.NativeEndian.Uint16(header[virtioCsumField:]))
	at := start + field
	if at+2 > len(frame) {
		return
	}
	sum := ^genSum(0, frame[start:])
	if sum == 0 && field == 6 { // UDP, where 0 means that there is none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
}

// splitter cuts a frame of several segments into those of the wire.
type splitter struct {
	frame []byte // the long one, without tagRoom; nil is none
	out   []byte // tagRoom and one segment
	l3    int    // offset of the IP header
	l4    int    // offset of the TCP or UDP header
	head  int    // bytes of all headers
	size  int    // payload bytes of a segment
	at    int    // payload bytes sent
	n     uint16 // segments sent
	ip6   bool
	udp   bool
}

func (s *splitter) left() bool { return s.frame != nil }

// start takes a frame if it is a long one that this knows how to cut: TCP or UDP
// right behind IPv4 or an IPv6 header without extensions.
func (s *splitter) start(header, frame []byte) bool {
	kind := header[virtioGSOType] &^ virtioECN
	l4 := int(binary.NativeEndian.Uint16(header[virtioCsumStart:]))
	size := int(binary.NativeEndian.Uint16(header[virtioGSOSize:]))
	if kind != virtioTCP4 && kind != virtioTCP6 && kind != virtioUDP || size == 0 ||
		header[virtioFlags]&virtioNeedsCsum == 0 {
		return false
	}
	l3, ip6, ok := findIP(frame)
	ipLength := 40
	if ok && !ip6 {
		ipLength = int(frame[l3]&15) * 4
	}
	if !ok || l3+ipLength != l4 || ipLength < 20 || l4+20 > len(frame) {
		return false
	}
	head := l4 + 8
	if kind != virtioUDP {
		head = l4 + max(20, int(frame[l4+12]>>4)*4)
	}
	if head+size >= len(frame) {
		return false
	}
	*s = splitter{frame: frame, out: s.out, l3: l3, l4: l4, head: head, size: size, ip6: ip6, udp: kind == virtioUDP}
	return true
}

// findIP returns the offset of the IP header behind any VLAN tags. The frame has
// 20 bytes from there on, or 40 for IPv6.
func findIP(frame []byte) (offset int, ip6, ok bool) {
	for at := 12; at+2+40 <= len(frame); at += 4 {
		switch binary.BigEndian.Uint16(frame[at:]) {
		case unix.ETH_P_IP:
			return at + 2, false, true
		case unix.ETH_P_IPV6:
			return at + 2, true, true
		case unix.ETH_P_8021Q, unix.ETH_P_8021AD:
		default:
			return 0, false, false
		}
	}
	return 0, false, false
}

// next builds the next segment, with tagRoom bytes in front.
func (s *splitter) next() []byte {
	n := min(s.size, len(s.frame)-s.head-s.at)
	last := s.head+s.at+n == len(s.frame)
	s.out = append(append(s.out[:0], 0, 0, 0, 0), s.frame[:s.head]...)
	s.out = append(s.out, s.frame[s.head+s.at:s.head+s.at+n]...)
	s.adjust(s.out[tagRoom:], last)
	s.at += n
	s.n++
	if last {
		s.frame = nil
	}
	return s.out
}

// adjust makes the headers of one segment right.
func (s *splitter) adjust(f []byte, last bool) {
	be := binary.BigEndian
	ip, l4 := f[s.l3:], f[s.l4:]
	var src, dst []byte
	if s.ip6 {
		src, dst = ip[8:24], ip[24:40]
		be.PutUint16(ip[4:], uint16(len(l4)))
	} else {
		src, dst = ip[12:16], ip[16:20]
		be.PutUint16(ip[2:], uint16(len(ip)))
		be.PutUint16(ip[4:], be.Uint16(ip[4:])+s.n)
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^genSum(0, ip[:s.l4-s.l3]))
	}
	if s.udp {
		be.PutUint16(l4[4:], uint16(len(l4)))
		be.PutUint16(l4[6:], 0)
		sum := genTransportSum(src, dst, unix.IPPROTO_UDP, l4)
		if sum == 0 {
			sum = 0xffff
		}
		be.PutUint16(l4[6:], sum)
		return
	}
	const fin, psh, cwr = 1, 8, 0x80
	be.PutUint32(l4[4:], be.Uint32(l4[4:])+uint32(s.at))
	if !last {
		l4[13] &^= fin | psh
	}
	if s.n > 0 {
		l4[13] &^= cwr
	}
	be.PutUint16(l4[16:], 0)
	be.PutUint16(l4[16:], genTransportSum(src, dst, unix.IPPROTO_TCP, l4))
}
