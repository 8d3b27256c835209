// Command frames is a guest's end of the lab's traffic: it sends the frames of a
// capture file from a packet socket, receives datagrams with ordinary sockets,
// and compares what arrived with what should have, byte for byte.
//
//	frames send DEV FILE           each frame of FILE, in order, as it is
//	frames talk IP PORT MOST       a datagram of each size up to MOST to IP
//	frames receive FILE PORT       the payloads that FILE's datagrams to PORT have
//	frames compare WANT GOT        WANT's frames are GOT's, in order
//	frames audit GOT PORT MOST     GOT has what `talk` sends, with right sums
//
// Each prints one line and exits with 1 when something is not as it should be.
// Frames are told from what a kernel sends by itself by their source address,
// which is that of WANT's first frame. Missing frames are counted, not an error:
// whoever asks knows how many were dropped.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"mlx5d/model"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("frames:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			n = -1
		}
		return n
	}
	switch {
	case len(args) == 3 && args[0] == "send":
		return send(args[1], args[2])
	case len(args) == 4 && args[0] == "talk":
		return talk(args[1], number(2), number(3))
	case len(args) == 3 && args[0] == "receive":
		return receive(args[1], number(2))
	case len(args) == 3 && args[0] == "compare":
		return compare(args[1], args[2])
	case len(args) == 4 && args[0] == "audit":
		return audit(args[1], number(2), number(3))
	}
	return errors.New("send DEV FILE | talk IP PORT MOST | receive FILE PORT | compare WANT GOT | audit GOT PORT MOST")
}

// read returns all frames of a capture.
func read(path string) (frames [][]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r, err := model.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		frames = append(frames, bytes.Clone(rec.Data))
	}
}

func send(dev, path string) error {
	frames, err := read(path)
	if err != nil {
		return err
	}
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	// A queueing discipline would send one flow before the other.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return err
	}
	to := &unix.SockaddrLinklayer{Ifindex: ifi.Index}
	for i, b := range frames {
		for try := 0; ; try++ {
			err := unix.Sendto(fd, b, 0, to)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.ENOBUFS) || try == 1000 {
				return fmt.Errorf("frame %d: %w", i, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Printf("sent %d\n", len(frames))
	return nil
}

// pattern is the payload of n bytes that talk sends.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n*31 + i>>8)
	}
	return b
}

func talk(ip string, port, most int) error {
	c, err := net.Dial("udp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	for n := range most + 1 {
		if _, err := c.Write(pattern(n)); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	fmt.Printf("sent %d\n", most+1)
	return nil
}

// datagram is what is known of a UDP packet in a frame.
type datagram struct {
	from    netip.Addr
	to      uint16
	payload []byte
	sums    bool // its checksums are right
}

const (
	typeVLAN, typeIPv4, typeIPv6 = 0x8100, 0x0800, 0x86dd
	protoUDP                     = 17
	portVXLAN, portGeneve        = 4789, 6081
)

// udp finds the innermost UDP packet of a frame.
func udp(b []byte) (d datagram, ok bool) {
	be := binary.BigEndian
	if len(b) < 18 {
		return d, false
	}
	kind := be.Uint16(b[12:])
	if b = b[14:]; kind == typeVLAN {
		kind, b = be.Uint16(b[2:]), b[4:]
	}
	sum, l4, n := uint64(protoUDP), 0, 0
	switch {
	case kind == typeIPv4 && len(b) >= 20 && b[9] == protoUDP:
		l4, n = int(b[0]&15)*4, int(be.Uint16(b[2:]))
		d.from, d.sums = netip.AddrFrom4([4]byte(b[12:16])), fold(add(0, b[:l4])) == 0xffff
		sum = add(sum, b[12:20])
	case kind == typeIPv6 && len(b) >= 40 && b[6] == protoUDP:
		l4, n = 40, 40+int(be.Uint16(b[4:]))
		d.from, d.sums = netip.AddrFrom16([16]byte(b[8:24])), true
		sum = add(sum, b[8:40])
	default:
		return d, false
	}
	if n > len(b) || n < l4+8 {
		return d, false
	}
	u := b[l4:n]
	d.to, d.payload = be.Uint16(u[2:]), u[8:]
	if d.to == portVXLAN && len(u) > 16 {
		return udp(u[16:])
	}
	if d.to == portGeneve && len(u) > 16 {
		return udp(u[16+int(u[8]&63)*4:])
	}
	d.sums = d.sums && be.Uint16(u[6:]) != 0 && fold(add(sum+uint64(len(u)), u)) == 0xffff
	return d, true
}

func add(sum uint64, b []byte) uint64 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint64 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

// receive waits for the datagrams of a capture. Each source's come in order;
// sources may overtake each other.
func receive(path string, port int) error {
	frames, err := read(path)
	if err != nil {
		return err
	}
	want, left := map[netip.Addr][][]byte{}, 0
	for _, b := range frames {
		if d, ok := udp(b); ok && int(d.to) == port {
			want[d.from] = append(want[d.from], d.payload)
			left++
		}
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	err = errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}), err)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	all, buf := left, make([]byte, 1<<16)
	for left > 0 {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return fmt.Errorf("%d of %d datagrams: %w", all-left, all, err)
		}
		a := from.Addr().Unmap().WithZone("")
		if len(want[a]) == 0 || !bytes.Equal(want[a][0], buf[:n]) {
			return fmt.Errorf("after %d datagrams one of %d bytes from %v that was not to come", all-left, n, a)
		}
		want[a] = want[a][1:]
		left--
	}
	fmt.Printf("received %d from %d sources\n", all, len(want))
	return nil
}

func compare(wantPath, gotPath string) error {
	want, err := read(wantPath)
	if err != nil {
		return err
	}
	got, err := read(gotPath)
	if err != nil {
		return err
	}
	if len(want) == 0 {
		return errors.New("nothing to compare with")
	}
	at, missing, equal, mine := 0, 0, 0, want[0][6:12]
	for i, b := range got {
		if len(b) < 14 || !bytes.Equal(b[6:12], mine) {
			continue
		}
		next := at
		for next < len(want) && !bytes.Equal(want[next], b) {
			next++
		}
		if next == len(want) {
			return fmt.Errorf("%d equal, %d missing; then %s", equal, missing, difference(i, b, want[min(at, len(want)-1)]))
		}
		missing += next - at
		equal, at = equal+1, next+1
	}
	missing += len(want) - at
	fmt.Printf("equal %d missing %d\n", equal, missing)
	return nil
}

// difference describes a frame that is not the one that was to come.
func difference(i int, got, want []byte) string {
	off := 0
	for off < min(len(got), len(want)) && got[off] == want[off] {
		off++
	}
	return fmt.Sprintf("frame %d of %d bytes differs from the expected one of %d bytes at byte %d: %x, %x",
		i, len(got), len(want), off, got[:min(len(got), 96)], want[:min(len(want), 96)])
}

func audit(path string, port, most int) error {
	frames, err := read(path)
	if err != nil {
		return err
	}
	seen := map[netip.Addr][]bool{}
	equal := 0
	for i, b := range frames {
		d, ok := udp(b)
		if !ok || int(d.to) != port {
			continue
		}
		n := len(d.payload)
		if n > most || !bytes.Equal(d.payload, pattern(n)) {
			return fmt.Errorf("frame %d: a payload of %d bytes is not what was sent", i, n)
		}
		if !d.sums {
			return fmt.Errorf("frame %d, %d bytes: wrong checksum", i, n)
		}
		if seen[d.from] == nil {
			seen[d.from] = make([]bool, most+1)
		}
		if seen[d.from][n] {
			return fmt.Errorf("frame %d: the datagram of %d bytes from %v came twice", i, n, d.from)
		}
		seen[d.from][n] = true
		equal++
	}
	fmt.Printf("equal %d missing %d\n", equal, len(seen)*(most+1)-equal)
	return nil
}
