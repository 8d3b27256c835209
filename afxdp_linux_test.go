package main

// afxdp_linux_test.go owns Linux's own AF_XDP beside ours: the same application code
// (xskapp.go) on the kernel's rings, over a veth pair in a network namespace of its
// own. It proves that the rings are laid out alike, and lets both be timed in one run:
//
//	go test -bench AFXDP -run '^$' .
//
// What is compared is not the same work. Linux's figure is of copy mode, the only one
// that veth has: system calls, a socket buffer a packet, two copies, the veth, the
// XDP program at its other end. Ours is the driver's and the rings' time beside an
// emulated device that is outside the clock. user-ns/packet is Linux's without system
// calls: the application's side of the rings alone.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// afxdpSocket is a socket of the kernel, with the application's side of its rings.
type afxdpSocket struct {
	fd     int
	app    *xskApp
	kicked time.Duration // spent in system calls
	undo   undo
}

func setXDP(fd, option int, v unsafe.Pointer, size uintptr) error {
	if _, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(v), size, 0); e != 0 {
		return fmt.Errorf("AF_XDP socket: option %d: %w", option, e)
	}
	return nil
}

func getXDP(fd, option int, v unsafe.Pointer, size uint32) error {
	if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(v), uintptr(unsafe.Pointer(&size)), 0); e != 0 {
		return fmt.Errorf("AF_XDP socket: option %d: %w", option, e)
	}
	return nil
}

// openAFXDP opens a socket on queue 0 of a link, with a UMEM as our benchmarks have.
func openAFXDP(link string) (s *afxdpSocket, err error) {
	s = &afxdpSocket{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.undo.run())
		}
	}()
	dev, err := net.InterfaceByName(link)
	if err != nil {
		return s, err
	}
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return s, fmt.Errorf("AF_XDP socket: %w", err)
	}
	s.undo.add("socket", func() error { return unix.Close(s.fd) })
	mem, err := s.area(-1, 0, xskBenchFrames*minUMEMFrame)
	if err != nil {
		return s, err
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), Len: uint64(len(mem)), Size: minUMEMFrame}
	if err := setXDP(s.fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return s, err
	}
	if err := s.openRings(mem); err != nil {
		return s, err
	}
	for at := 0; at < len(mem); at += minUMEMFrame {
		fillTestFrame(mem[at:at+benchFrame], [6]byte{2}, 0)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY | unix.XDP_USE_NEED_WAKEUP, Ifindex: uint32(dev.Index)}); err != nil {
		return s, fmt.Errorf("AF_XDP socket on %s: %w", link, err)
	}
	return s, nil
}

// area maps memory: of the socket, or with fd -1 of nobody.
func (s *afxdpSocket) area(fd int, offset int64, size int) ([]byte, error) {
	flags := unix.MAP_SHARED | unix.MAP_POPULATE
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	b, err := unix.Mmap(fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err == nil {
		s.undo.add("memory", func() error { return unix.Munmap(b) })
	}
	return b, err
}

// openRings makes the rings and views them as we view ours.
func (s *afxdpSocket) openRings(mem []byte) error {
	size := int32(xskBenchFrames)
	for _, option := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING, unix.XDP_TX_RING} {
		if err := setXDP(s.fd, option, unsafe.Pointer(&size), 4); err != nil {
			return err
		}
	}
	var at unix.XDPMmapOffsets
	if err := getXDP(s.fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&at), uint32(unsafe.Sizeof(at))); err != nil {
		return err
	}
	s.app = &xskApp{mem: mem, frame: minUMEMFrame}
	for i, r := range [xskRings]struct {
		page int64
		at   unix.XDPRingOffset
		to   *xskRing
	}{
		ringFill:       {unix.XDP_UMEM_PGOFF_FILL_RING, at.Fr, &s.app.fill},
		ringCompletion: {unix.XDP_UMEM_PGOFF_COMPLETION_RING, at.Cr, &s.app.comp},
		ringRX:         {unix.XDP_PGOFF_RX_RING, at.Rx, &s.app.rx},
		ringTX:         {unix.XDP_PGOFF_TX_RING, at.Tx, &s.app.tx},
	} {
		b, err := s.area(s.fd, r.page, int(r.at.Desc)+xskBenchFrames*entrySize(i))
		if err != nil {
			return fmt.Errorf("the %s ring: %w", xskRingNames[i], err)
		}
		*r.to = viewRing(b, i, ringPlace{r.at.Producer, r.at.Consumer, r.at.Flags, r.at.Desc, xskBenchFrames})
	}
	for at := len(mem) - minUMEMFrame; at >= 0; at -= minUMEMFrame {
		s.app.free = append(s.app.free, uint64(at))
	}
	return nil
}

// kick has the kernel send what stands in the TX ring.
func (s *afxdpSocket) kick() error {
	start := time.Now()
	_, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	s.kicked += time.Since(start)
	if e != 0 && e != unix.EAGAIN && e != unix.EBUSY && e != unix.ENOBUFS { // these mean: again
		return fmt.Errorf("AF_XDP socket: sending: %w", e)
	}
	return nil
}

// bpfCall is the bpf system call; attr begins with what the command takes.
func bpfCall(command uintptr, what string, attr *[16]uint64) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if e != 0 {
		return 0, fmt.Errorf("bpf: %s: %w", what, e)
	}
	return int(fd), nil
}

func words(low, high int) uint64 { return uint64(uint32(low)) | uint64(high)<<32 }

// An instruction of eBPF: opcode, destination and source register, immediate.
func ebpf(op, to, from byte, imm int) uint64 {
	return uint64(op) | uint64(to|from<<4)<<8 | uint64(imm)<<32
}

const (
	ebpfLoad64, ebpfMove, ebpfCall, ebpfExit = 0x18, 0xb4, 0x85, 0x95
	ebpfFromMap                              = 1 // the immediate of a load is a map's descriptor
	helperRedirectMap                        = 51
	verdictDrop                              = 1 // XDP_DROP
)

// program loads an XDP program and puts it before the receive path of a link.
func (p *vethPair) program(link string, code []uint64) error {
	dev, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	license := [4]byte{'M', 'I', 'T'}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&license)
	pin.Pin(&code[0])
	attr := [16]uint64{words(unix.BPF_PROG_TYPE_XDP, len(code)), uint64(uintptr(unsafe.Pointer(&code[0]))), uint64(uintptr(unsafe.Pointer(&license)))}
	attr[8] = words(0, unix.BPF_XDP) // interface, expected attach type
	fd, err := bpfCall(unix.BPF_PROG_LOAD, "loading an XDP program", &attr)
	if err != nil {
		return err
	}
	p.undo.add("program", func() error { return unix.Close(fd) })
	attr = [16]uint64{words(fd, dev.Index), words(unix.BPF_XDP, unix.XDP_FLAGS_DRV_MODE)}
	on, err := bpfCall(unix.BPF_LINK_CREATE, "attaching an XDP program to "+link, &attr)
	if err != nil {
		return err
	}
	p.undo.add("program on "+link, func() error { return unix.Close(on) })
	return nil
}

// socketMap makes a map in which slot 0 is a socket.
func (p *vethPair) socketMap(s *afxdpSocket) (int, error) {
	attr := [16]uint64{words(unix.BPF_MAP_TYPE_XSKMAP, 4), words(4, 1)}
	fd, err := bpfCall(unix.BPF_MAP_CREATE, "making an XSKMAP", &attr)
	if err != nil {
		return 0, err
	}
	p.undo.add("map", func() error { return unix.Close(fd) })
	key, value := uint32(0), uint32(s.fd)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&key)
	pin.Pin(&value)
	attr = [16]uint64{words(fd, 0), uint64(uintptr(unsafe.Pointer(&key))), uint64(uintptr(unsafe.Pointer(&value)))}
	_, err = bpfCall(unix.BPF_MAP_UPDATE_ELEM, "putting a socket into an XSKMAP", &attr)
	return fd, err
}

// vethPair is two links of a namespace that goes with its sockets: near sends, far
// receives. What near receives is dropped.
type vethPair struct {
	near, far *afxdpSocket
	mode      string
	undo      undo
}

// openVeth prepares a mode: where nothing is to be received the program drops.
func openVeth(mode string) (*vethPair, error) {
	p, done := &vethPair{mode: mode}, make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- p.open()
	}()
	if err := <-done; err != nil {
		return nil, errors.Join(err, p.undo.run())
	}
	return p, nil
}

func (p *vethPair) open() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network namespace: %w", err)
	}
	// Nobody but us is to say anything there.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, args := range []string{"link add near type veth peer name far", "link set near up", "link set far up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	for _, s := range []struct {
		link string
		to   **afxdpSocket
	}{{"near", &p.near}, {"far", &p.far}} {
		if *s.to, err = openAFXDP(s.link); err != nil {
			return err
		}
		p.undo.add("socket", (*s.to).undo.run)
	}
	drop := []uint64{ebpf(ebpfMove, 0, 0, verdictDrop), ebpf(ebpfExit, 0, 0, 0)}
	if err := p.program("near", drop); err != nil {
		return err
	}
	if p.mode == modeSend {
		return p.program("far", drop)
	}
	sockets, err := p.socketMap(p.far)
	if err != nil {
		return err
	}
	p.far.app.giveFrames(xskBenchFrames)
	return p.program("far", []uint64{
		ebpf(ebpfLoad64, 1, ebpfFromMap, sockets), 0,
		ebpf(ebpfMove, 2, 0, 0), // slot
		ebpf(ebpfMove, 3, 0, 0), // where that is empty: XDP_ABORTED
		ebpf(ebpfCall, 0, 0, helperRedirectMap),
		ebpf(ebpfExit, 0, 0, 0),
	})
}

// section does what a section of our benchmarks does.
func (p *vethPair) section() error {
	for range benchBursts {
		for left := benchBurst; left > 0; {
			left -= p.near.app.send(left, benchFrame)
			if err := p.near.kick(); err != nil {
				return err
			}
		}
		if err := p.take(); err != nil {
			return err
		}
	}
	return nil
}

// take does with a burst at the far end what the mode says.
func (p *vethPair) take() error {
	end := time.Time{}
	for left := benchBurst; left > 0 && p.mode != modeSend; {
		n := 0
		if p.mode == modeDrop {
			n = p.far.app.drop(left)
		} else if n = p.far.app.forward(left, true); n > 0 {
			if err := p.far.kick(); err != nil {
				return err
			}
		}
		if left -= n; n > 0 {
			continue
		}
		switch now := time.Now(); {
		case end.IsZero():
			end = now.Add(5 * time.Second)
		case now.After(end):
			return fmt.Errorf("%d packets of a burst do not come over the veth", left)
		}
		runtime.Gosched()
	}
	return nil
}

// settle waits until all that was sent has left.
func (p *vethPair) settle() error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Microsecond) {
		p.near.app.reclaim()
		p.far.app.refill()
		if p.near.app.out == 0 && p.far.app.out == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d and %d frames do not come back", p.near.app.out, p.far.app.out)
		}
		if err := errors.Join(p.near.kick(), p.far.kick()); err != nil {
			return err
		}
	}
}

// lost adds up what a socket counts as lost.
func (s *afxdpSocket) lost() (n uint64, err error) {
	var c unix.XDPStatistics
	err = getXDP(s.fd, unix.XDP_STATISTICS, unsafe.Pointer(&c), uint32(unsafe.Sizeof(c)))
	return c.Rx_dropped + c.Rx_invalid_descs + c.Tx_invalid_descs + c.Rx_ring_full, err
}

// needVeth is openVeth where the kernel lets us; where not, it says what was refused.
func needVeth(t testing.TB, mode string) *vethPair {
	t.Helper()
	p, err := openVeth(mode)
	if err != nil {
		t.Skipf("Linux's AF_XDP cannot be had here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, p.undo.run()) })
	return p
}

// The application's code works on Linux's rings as on ours: all packets arrive,
// nothing is refused, every frame comes back.
func TestAFXDPSameRings(t *testing.T) {
	for _, mode := range []string{modeSend, modeDrop, modeForward} {
		t.Run(mode, func(t *testing.T) {
			p := needVeth(t, mode)
			const sections = 20 // the rings go round five times
			for range sections {
				require.NoError(t, p.section())
			}
			require.NoError(t, p.settle())
			const packets = sections * benchBurst * benchBursts
			near, far := p.near.app, p.far.app
			require.EqualValues(t, packets, near.sent)
			require.Len(t, near.free, xskBenchFrames)
			if mode != modeSend {
				require.EqualValues(t, packets, far.packets)
				require.EqualValues(t, packets*benchFrame, far.bytes)
			}
			if mode == modeForward {
				require.EqualValues(t, packets, far.sent)
			}
			for _, s := range []*afxdpSocket{p.near, p.far} {
				lost, err := s.lost()
				require.NoError(t, err)
				require.Zero(t, lost)
			}
		})
	}
}

// BenchmarkAFXDP times the three modes on Linux's sockets and on ours. Linux's
// rxdrop and l2fwd have a sender in the same thread, whose share txonly tells.
func BenchmarkAFXDP(b *testing.B) {
	for _, v := range xskVariants {
		b.Run(v.mode+"/linux-veth", func(b *testing.B) {
			p := needVeth(b, v.mode)
			for range 16 {
				require.NoError(b, p.section())
			}
			var whole, user []time.Duration
			for b.Loop() {
				from, start := p.near.kicked+p.far.kicked, time.Now()
				err := p.section()
				took := time.Since(start)
				require.NoError(b, err)
				whole, user = append(whole, took), append(user, took-(p.near.kicked+p.far.kicked-from))
			}
			require.NoError(b, p.settle())
			reportPackets(b, whole, "ns/packet")
			reportPackets(b, user, "user-ns/packet")
		})
		b.Run(v.mode+"/mlx5d", func(b *testing.B) {
			r, err := newXSKBench(v.name)
			require.NoError(b, err)
			defer func() { require.NoError(b, r.close()) }()
			var median []float64
			for b.Loop() {
				ns, err := r.measure(benchSections / 10)
				require.NoError(b, err)
				median = append(median, ns)
			}
			b.ReportMetric(summarize(v.name, "ns/packet", median).Value, "ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// reportPackets reports the median section, a packet.
func reportPackets(b *testing.B, sections []time.Duration, unit string) {
	slices.Sort(sections)
	b.ReportMetric(float64(sections[len(sections)/2].Nanoseconds())/(benchBurst*benchBursts), unit)
	b.ReportMetric(0, "ns/op")
}
