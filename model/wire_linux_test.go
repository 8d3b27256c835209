package model

// wire_linux_test.go runs the Linux wires against the kernel, in a network
// namespace of its own; where that is not permitted these tests are skipped.
// What the kernel leaves undone in a frame is tested on frames made here.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNamespace moves the test's goroutine into a fresh network namespace. Its
// thread is never unlocked, so it ends with the goroutine, and so does the
// namespace.
func inNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		skipUnlessCI(t, "no network namespace of our own: %v", err)
	}
	// Without IPv6, where there is any, the kernel has nothing to say by itself.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
}

// skipUnlessCI skips for want of something that CI must have.
func skipUnlessCI(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func needTun(t *testing.T) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		skipUnlessCI(t, "no TAP interfaces: %v", err)
	}
	require.NoError(t, unix.Close(fd))
}

// await looks at the wire until a frame comes that want accepts.
func await(t *testing.T, w Wire, want func([]byte) bool) []byte {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		f := bytes.Clone(w.Peek(time.Now()))
		if f != nil {
			require.Equal(t, f, w.Peek(time.Now()), "Peek repeats until Take")
			w.Take()
		}
		if f != nil && want(f) {
			return f
		}
	}
	t.Fatal("the frame does not come")
	return nil
}

func equals(want []byte) func([]byte) bool {
	return func(f []byte) bool { return bytes.Equal(want, f) }
}

// testFrame is an experimental frame (EtherType 0x88b5) behind these tags.
func testFrame(length int, tags ...uint32) []byte {
	f := genEthernet([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, [6]byte{2, 0, 0, 0, 9, 9}, tags, 0x88b5, nil)
	for len(f) < length {
		f = append(f, byte(len(f)))
	}
	return f
}

func TestTapAndIfMeet(t *testing.T) {
	inNamespace(t)
	needTun(t)
	tap := openWire(t, "tap:test0")
	nic := openWire(t, "if:test0")
	require.True(t, tap.LinkUp())
	require.True(t, nic.LinkUp())
	require.False(t, tap.Lossless())
	require.False(t, nic.Lossless())
	for _, f := range [][]byte{
		testFrame(14), testFrame(60), testFrame(1514),
		testFrame(64, 0x8100<<16|5), testFrame(1518, 0x8100<<16|0xe123),
		testFrame(68, 0x88a8<<16|7), testFrame(72, 0x88a8<<16|7, 0x8100<<16|9), testFrame(72, 0x8100<<16|7, 0x8100<<16|9),
		testFrame(64, 0x8100<<16),
	} {
		tap.Transmit(f)
		await(t, nic, equals(f))
		if len(f) > 14 { // a packet socket sends no frame without a payload
			nic.Transmit(f)
			await(t, tap, equals(f))
		}
	}
	require.Zero(t, wireDropped(tap))
	require.Zero(t, wireDropped(nic))
	nic.Transmit(make([]byte, 5))
	nic.Transmit(make([]byte, 9000))
	require.Equal(t, uint64(2), wireDropped(nic), "what the kernel refuses is counted")
	require.Nil(t, nic.Peek(time.Now().Add(time.Hour)), "its own frames do not come back")
	require.False(t, tap.Done())
	require.NoError(t, wireErr(nic))
}

func TestIfNoticesThatTheInterfaceGoes(t *testing.T) {
	inNamespace(t)
	needTun(t)
	tap := openWire(t, "tap:test1")
	nic := openWire(t, "if:test1")
	require.True(t, nic.LinkUp())
	require.NoError(t, tap.Close())
	require.False(t, tap.LinkUp())
	require.True(t, tap.Done())
	require.Nil(t, tap.Peek(time.Now()))
	tap.Transmit(testFrame(60))
	require.Eventually(t, func() bool { return !nic.LinkUp() && nic.Done() }, 5*time.Second, 10*time.Millisecond)
	require.ErrorContains(t, wireErr(nic), "interface test1 was removed")
	require.Nil(t, nic.Peek(time.Now()))
	nic.Transmit(testFrame(60))
}

func TestTapInUseAndWrongKind(t *testing.T) {
	inNamespace(t)
	needTun(t)
	openWire(t, "tap:test2")
	_, err := ParseWire("tap:test2")
	require.ErrorContains(t, err, "wire tap:test2: the interface is in use by another process")
	_, err = ParseWire("tap:lo")
	require.ErrorContains(t, err, "wire tap:lo: an interface of this name exists and is not a TAP interface")
	require.ErrorAs(t, err, new(*InputError))
}

// TestIdleWireMakesFewCalls: an empty read is not repeated within the pause of
// the clock that Peek is given.
func TestIdleWireMakesFewCalls(t *testing.T) {
	inNamespace(t)
	needTun(t)
	tap := openWire(t, "tap:test3")
	nic := openWire(t, "if:test3")
	for pair := range 2 {
		from, to := [2]Wire{tap, nic}[pair], [2]Wire{nic, tap}[pair]
		clock := newWireClock()
		for to.Peek(clock.now) != nil {
			to.Take()
		}
		f := testFrame(60)
		from.Transmit(f)
		require.Nil(t, to.Peek(clock.add(idlePause-time.Nanosecond)))
		require.Equal(t, f, to.Peek(clock.add(time.Nanosecond)))
		to.Take()
		require.Nil(t, to.Peek(clock.now))
		from.Transmit(f)
		require.Equal(t, f, to.Peek(clock.add(-time.Hour)), "a clock that runs backwards ends the pause")
		to.Take()
	}
}

// ipCommand runs ip(8) in the namespace of this thread.
func ipCommand(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		skipUnlessCI(t, "no ip command")
	}
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// TestIfUndoesOffloads sends through the kernel's own TCP and UDP over a veth
// pair, whose frames have neither checksums nor the length of the wire.
func TestIfUndoesOffloads(t *testing.T) {
	inNamespace(t)
	ipCommand(t, "link", "add", "va", "type", "veth", "peer", "name", "vb")
	ipCommand(t, "addr", "add", "192.0.2.1/24", "dev", "va")
	ipCommand(t, "link", "set", "va", "up")
	ipCommand(t, "link", "set", "vb", "up")
	ipCommand(t, "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "va")
	w := openWire(t, "if:vb")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: 4000, Addr: [4]byte{192, 0, 2, 2}}))
	_, err = unix.Write(fd, []byte("check me"))
	require.NoError(t, err)
	isUDP := func(f []byte) bool { return len(f) > 42 && f[12] == 8 && f[13] == 0 && f[23] == 17 && f[36] == 4000>>8 }
	f := await(t, w, isUDP)
	require.Equal(t, "check me", string(f[42:]))
	require.NoError(t, newFrameChecker().check(f))

	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 1000); err != nil {
		skipUnlessCI(t, "no UDP segmentation: %v", err)
	}
	long := genText(nil, 4500)
	_, err = unix.Write(fd, long)
	require.NoError(t, err)
	var all []byte
	k := newFrameChecker()
	for i := range 5 {
		f := await(t, w, isUDP)
		require.Len(t, f, 42+min(1000, 4500-1000*i))
		require.NoError(t, k.check(f))
		all = append(all, f[42:]...)
	}
	require.Equal(t, string(long), string(all))
	require.NotZero(t, w.(*packetWire).split.n, "the kernel had cut it itself")
}

// TestIfCutsTCP lets the kernel's TCP send to a peer that the test plays.
func TestIfCutsTCP(t *testing.T) {
	inNamespace(t)
	ipCommand(t, "link", "add", "va", "type", "veth", "peer", "name", "vb")
	ipCommand(t, "addr", "add", "192.0.2.1/24", "dev", "va")
	ipCommand(t, "link", "set", "va", "up")
	ipCommand(t, "link", "set", "vb", "up")
	ipCommand(t, "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "va")
	w := openWire(t, "if:vb")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9000, Addr: [4]byte{192, 0, 2, 2}})
	require.Equal(t, unix.EINPROGRESS, err)
	isTCP := func(f []byte) bool { return len(f) >= 54 && f[12] == 8 && f[13] == 0 && f[23] == 6 }
	syn := await(t, w, isTCP)
	be := binary.BigEndian
	reply := func(flags byte, ack uint32) {
		s := make([]byte, 20)
		copy(s, syn[36:38])
		copy(s[2:], syn[34:36])
		be.PutUint32(s[4:], 77777)
		if flags&genSYN == 0 {
			be.PutUint32(s[4:], 77778)
		}
		be.PutUint32(s[8:], ack)
		s[12], s[13], s[14] = 5<<4, flags, 0xff
		if flags&genSYN != 0 {
			s = append(s, 2, 4, 1000>>8, 1000&0xff)
			s[12] = 6 << 4
		}
		src, dst := []byte{192, 0, 2, 2}, []byte{192, 0, 2, 1}
		be.PutUint16(s[16:], genTransportSum(src, dst, 6, s))
		w.Transmit(genEthernet([6]byte(syn[6:12]), [6]byte{2, 0, 0, 0, 0, 2}, nil, 0x0800, genIPv4(src, dst, 6, 1, 0, s)))
	}
	isn := be.Uint32(syn[38:])
	reply(genSYN|genACK, isn+1)
	await(t, w, isTCP)
	long := genText(nil, 9500)
	_, err = unix.Write(fd, long)
	require.NoError(t, err)
	var all []byte
	for next := isn + 1; len(all) < len(long); {
		f := await(t, w, isTCP)
		payload := f[34+int(f[46]>>4)*4:]
		require.LessOrEqual(t, len(payload), 1000)
		require.Equal(t, next, be.Uint32(f[38:]))
		require.Zero(t, onesSum(f[26:34], []byte{0, 6}, be.AppendUint16(nil, uint16(len(f)-34)), f[34:]), "TCP checksum")
		require.Zero(t, onesSum(f[14:34]), "IPv4 checksum")
		all = append(all, payload...)
		next += uint32(len(payload))
		reply(genACK, next)
	}
	require.Equal(t, string(long), string(all))
	require.NotZero(t, w.(*packetWire).split.n, "the kernel had cut it itself")
}

// superFrame is a TCP or UDP frame of several segments, with the header that the
// kernel puts in front.
func superFrame(v6 bool, proto byte, size, payload int, tags ...uint32) (header, frame []byte) {
	c := (&genBuilder{}).newConv(3, v6)
	l4 := make([]byte, map[byte]int{6: 32, 17: 8}[proto])
	binary.BigEndian.PutUint16(l4, 5000)
	binary.BigEndian.PutUint16(l4[2:], 6000)
	if proto == 6 {
		binary.BigEndian.PutUint32(l4[4:], 1000)
		l4[12], l4[13] = 8<<4, 0x80|genPSH|genFIN|genACK
	}
	l4 = append(l4, genText(nil, payload)...)
	kind, packet, gso := uint16(0x0800), []byte(nil), byte(virtioTCP4)
	if v6 {
		kind, packet, gso = 0x86dd, genIPv6(c.ip[0], c.ip[1], proto, 64, l4), virtioTCP6
	} else {
		packet = genIPv4(c.ip[0], c.ip[1], proto, 0xfffe, 0, l4)
	}
	if proto == 17 {
		gso = virtioUDP
	}
	frame = genEthernet([6]byte{2}, c.mac[0], tags, kind, packet)
	header = make([]byte, virtioHeader)
	header[virtioFlags], header[virtioGSOType] = virtioNeedsCsum, gso|virtioECN
	binary.NativeEndian.PutUint16(header[virtioGSOSize:], uint16(size))
	binary.NativeEndian.PutUint16(header[virtioCsumStart:], uint16(len(frame)-len(l4)))
	binary.NativeEndian.PutUint16(header[virtioCsumField:], map[byte]uint16{6: 16, 17: 6}[proto])
	return header, frame
}

func TestSplitter(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, proto := range []byte{6, 17} {
			for _, payload := range []int{1001, 1999, 2000, 5500} {
				for _, tags := range [][]uint32{nil, {0x8100<<16 | 3}} {
					header, frame := superFrame(v6, proto, 1000, payload, tags...)
					var s splitter
					require.True(t, s.start(header, frame))
					k := newFrameChecker()
					var got []byte
					n := 0
					for ; s.left(); n++ {
						f := s.next()[tagRoom:]
						l4 := s.l4
						if proto == 17 {
							require.NoError(t, k.check(f))
							got = append(got, f[l4+8:]...)
							continue
						}
						require.Equal(t, uint32(1000+n*1000), binary.BigEndian.Uint32(f[l4+4:]))
						want := byte(genACK)
						if n == 0 {
							want |= 0x80
						}
						if !s.left() {
							want |= genPSH | genFIN
						}
						require.Equal(t, want, f[l4+13])
						addresses := f[l4-8 : l4]
						if v6 {
							addresses = f[l4-32 : l4]
						} else {
							require.Zero(t, onesSum(f[s.l3:l4]))
							require.Equal(t, 0xfffe+uint16(n), binary.BigEndian.Uint16(f[s.l3+4:]))
							require.Equal(t, len(f)-s.l3, int(binary.BigEndian.Uint16(f[s.l3+2:])))
						}
						require.Zero(t, onesSum(addresses, []byte{0, 6}, binary.BigEndian.AppendUint16(nil, uint16(len(f)-l4)), f[l4:]))
						got = append(got, f[l4+32:]...)
					}
					require.Equal(t, (payload+999)/1000, n)
					require.Equal(t, string(genText(nil, payload)), string(got))
				}
			}
		}
	}
}

// TestSplitterOnDamage: no header and no frame makes it reach beyond a frame.
func TestSplitterOnDamage(t *testing.T) {
	rand := genRand(7)
	for range 20000 {
		proto := []byte{6, 17}[rand.below(2)]
		header, frame := superFrame(rand.below(2) == 0, proto, 1+rand.below(40), rand.below(80))
		for range 1 + rand.below(3) {
			if rand.below(2) == 0 {
				header[rand.below(len(header))] = byte(rand.next())
			} else {
				frame[rand.below(len(frame))] = byte(rand.next())
			}
		}
		frame = frame[:rand.below(len(frame)+1):len(frame)]
		frame = frame[:len(frame):len(frame)]
		var s splitter
		if s.start(header, frame) {
			for n := 0; s.left(); n++ {
				require.LessOrEqual(t, len(s.next()), tagRoom+len(frame))
				require.Less(t, n, 100)
			}
		}
		completeChecksum(header, frame)
	}
}

func TestNetErrors(t *testing.T) {
	for err, text := range map[error]string{
		unix.EPERM:  "wire if:x: operation not permitted: run as root or with CAP_NET_ADMIN and CAP_NET_RAW",
		unix.EACCES: "wire if:x: permission denied: run as root",
		unix.EMFILE: "wire if:x: too many open files",
	} {
		require.ErrorContains(t, netError("if", "x", err), text)
		require.False(t, errors.As(netError("if", "x", err), new(*InputError)), "not the user's mistake")
	}
	require.ErrorAs(t, netError("if", "x", unix.ENODEV), new(*InputError))
}

func TestAuxTag(t *testing.T) {
	message := func(level, kind int32, data []byte) []byte {
		b := make([]byte, unix.CmsgSpace(len(data)))
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(len(data))))
		binary.NativeEndian.PutUint32(b[8:], uint32(level))
		binary.NativeEndian.PutUint32(b[12:], uint32(kind))
		copy(b[unix.CmsgLen(0):], data)
		return b
	}
	aux := func(status uint32, tci, protocol uint16) []byte {
		b := binary.NativeEndian.AppendUint32(nil, status)
		b = append(b, make([]byte, 12)...)
		return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(b, tci), protocol)
	}
	const valid, tpid = unix.TP_STATUS_VLAN_VALID, unix.TP_STATUS_VLAN_TPID_VALID
	other := message(unix.SOL_SOCKET, 1, []byte{1, 2, 3, 4})
	packet := func(b []byte) []byte { return message(unix.SOL_PACKET, unix.PACKET_AUXDATA, b) }
	require.Equal(t, uint32(0x88a80005), auxTag(joinBytes(other, packet(aux(valid|tpid, 5, 0x88a8)))))
	require.Equal(t, uint32(0x81000005), auxTag(packet(aux(valid, 5, 0))))
	require.Zero(t, auxTag(packet(aux(0, 5, 0x88a8))))
	require.Zero(t, auxTag(packet(aux(valid, 5, 0)[:12])))
	require.Zero(t, auxTag(other))
	require.Zero(t, auxTag([]byte{1, 2, 3}))
	require.Zero(t, auxTag(nil))
}
