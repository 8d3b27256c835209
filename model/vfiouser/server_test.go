package vfiouser

// This file owns the tests of the server as a client sees it: the messages of
// a well-behaved one, and everything that one may do wrong.

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestVersion(t *testing.T) {
	l := startLab(t, Options{})
	c := l.dial(t)
	out, errno := c.call(cmdVersion, versionBody(`{"capabilities":{"max_msg_fds":8,"twin_socket":{"supported":false}}}`))
	require.Zero(t, errno)
	require.Equal(t, []byte{0, 0, 0, 0}, out[:4])
	require.Zero(t, out[len(out)-1])
	var caps struct {
		Capabilities map[string]int `json:"capabilities"`
	}
	require.NoError(t, json.Unmarshal(out[4:len(out)-1], &caps))
	require.Equal(t, map[string]int{"max_msg_fds": 16, "max_data_xfer_size": 1 << 20, "pgsizes": 4096, "max_dma_maps": 65535}, caps.Capabilities)
	_, errno = c.call(cmdVersion, versionBody(""))
	require.Equal(t, unix.EINVAL, errno)
}

func TestVersionRefused(t *testing.T) {
	for name, body := range map[string][]byte{
		"major 1":   append([]byte{1, 0, 0, 0}, 0),
		"short":     {0, 0},
		"rubbish":   versionBody(`{"capabilities":`),
		"not a map": versionBody(`[1]`),
	} {
		t.Run(name, func(t *testing.T) {
			c := startLab(t, Options{}).dial(t)
			_, errno := c.call(cmdVersion, body)
			require.Equal(t, unix.EINVAL, errno)
		})
	}
}

func TestCommandBeforeVersionEndsTheSession(t *testing.T) {
	l := startLab(t, Options{})
	c := l.dial(t)
	c.send(cmdReset, typeCommand, nil)
	c.cutOff()
	l.departed(t, 1)
	require.ErrorIs(t, l.why(0), errRubbish)
}

func TestInformation(t *testing.T) {
	c := startLab(t, Options{}).greeted(t)
	out, errno := c.call(cmdDeviceInfo, words(16, 0, 0, 0))
	require.Zero(t, errno)
	require.Equal(t, words(16, 3, 9, 5), out)
	for index, size := range map[uint32]uint64{0: fakeBAR, 1: 0, 6: 0, 7: 4096, 8: 0} {
		out, errno = c.call(cmdRegionInfo, append(words(32, 0, index, 0), make([]byte, 16)...))
		require.Zero(t, errno)
		require.Equal(t, size, le.Uint64(out[16:]))
		require.Equal(t, size != 0, le.Uint32(out[4:]) == 3)
	}
	_, errno = c.call(cmdRegionInfo, append(words(32, 0, 9, 0), make([]byte, 16)...))
	require.Equal(t, unix.EINVAL, errno)
	for index, count := range map[uint32]uint32{0: 0, 1: 0, 2: 8, 3: 1, 4: 0} {
		out, errno = c.call(cmdIRQInfo, words(16, 0, index, 0))
		require.Zero(t, errno)
		require.Equal(t, count, le.Uint32(out[12:]))
	}
	_, errno = c.call(cmdIRQInfo, words(16, 0, 5, 0))
	require.Equal(t, unix.EINVAL, errno)
}

func TestSharedDoorbells(t *testing.T) {
	l := startLab(t, Options{Doorbells: []Area{{Offset: 0x8000, Size: 0x2000}}})
	c := l.greeted(t)
	ask := func(room uint32) (header, []byte, []int) {
		c.send(cmdRegionInfo, typeCommand, append(words(room, 0, 0, 0), make([]byte, 16)...))
		h, out, fds, err := c.reply()
		require.NoError(t, err)
		return h, out, fds
	}
	_, out, fds := ask(32)
	require.Equal(t, words(64, 15, 0, 0), out[:16])
	require.Len(t, fds, 1)
	_ = unix.Close(fds[0])
	_, out, fds = ask(64)
	require.Len(t, out, 64)
	require.Equal(t, words(64, 15, 0, 32), out[:16])
	require.Equal(t, words(1|1<<16, 0, 1, 0), out[32:48])
	require.EqualValues(t, 0x8000, le.Uint64(out[48:]))
	require.EqualValues(t, 0x2000, le.Uint64(out[56:]))
	require.Len(t, fds, 1)
	mem, err := unix.Mmap(fds[0], 0x8000, 0x2000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	mem[5] = 77
	require.EqualValues(t, 77, l.dev.bar[0x8005])
	require.NoError(t, unix.Munmap(mem))
	require.Error(t, unix.Ftruncate(fds[0], 0), "a client must not be able to shrink BAR0")
	_ = unix.Close(fds[0])
}

func TestAreasAreChecked(t *testing.T) {
	dev := newFakeDevice(t)
	for _, a := range []Area{{-4096, 4096}, {0, 0}, {1, 4096}, {0, 100}, {fakeBAR, 4096}, {0, fakeBAR + 4096}, {4096, 1 << 62}} {
		_, err := Listen(filepath.Join(t.TempDir(), "s"), dev, Options{Doorbells: []Area{a}})
		require.Error(t, err, "%v", a)
	}
}

func TestRegisters(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	out, errno := c.call(cmdRegionWrite, accessBody(0x10, regionBAR0, 4, 1, 2, 3, 4))
	require.Zero(t, errno)
	require.Equal(t, accessBody(0x10, regionBAR0, 4), out)
	out, errno = c.call(cmdRegionRead, accessBody(0x11, regionBAR0, 2))
	require.Zero(t, errno)
	require.Equal(t, accessBody(0x11, regionBAR0, 2, 2, 3), out)
	_, errno = c.call(cmdRegionWrite, accessBody(0xffc, regionConfig, 4, 9, 8, 7, 6))
	require.Zero(t, errno)
	out, errno = c.call(cmdRegionRead, accessBody(0xffc, regionConfig, 4))
	require.Zero(t, errno)
	require.Equal(t, []byte{9, 8, 7, 6}, out[16:])
	_, errno = c.call(cmdReset, nil)
	require.Zero(t, errno)
	_, _, resets := l.dev.lent()
	require.Equal(t, 1, resets)
}

func TestAccessOutsideIsRefused(t *testing.T) {
	c := startLab(t, Options{}).greeted(t)
	for name, body := range map[string][]byte{
		"past the end":    accessBody(fakeBAR, regionBAR0, 4),
		"across the end":  accessBody(fakeBAR-2, regionBAR0, 4),
		"wraps":           accessBody(^uint64(0)-1, regionBAR0, 4),
		"nothing":         accessBody(0, regionBAR0, 0),
		"huge":            accessBody(0, regionBAR0, 1<<31),
		"no such region":  accessBody(0, 100, 4),
		"empty region":    accessBody(0, 1, 4),
		"config overflow": accessBody(4094, regionConfig, 4),
		"short":           accessBody(0, regionBAR0, 4)[:15],
	} {
		_, errno := c.call(cmdRegionRead, body)
		require.Equal(t, unix.EINVAL, errno, name)
		_, errno = c.call(cmdRegionWrite, append(body, 1, 2, 3, 4))
		require.Equal(t, unix.EINVAL, errno, name)
	}
	_, errno := c.call(cmdRegionWrite, accessBody(0, regionBAR0, 8, 1, 2, 3, 4))
	require.Equal(t, unix.EINVAL, errno, "fewer bytes than announced")
	_, errno = c.call(99, nil)
	require.Equal(t, unix.ENOTSUP, errno)
}

func TestMemoryAndInterrupts(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	fd := memfd(t, 64<<10, unix.F_SEAL_SHRINK)
	mem, err := unix.Mmap(fd, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mem) }()
	_, errno := c.call(cmdDMAMap, dmaMapBody(3, 0x4000, 0x100000, 0x2000), fd)
	require.Zero(t, errno)
	_, errno = c.call(cmdDMAMap, dmaMapBody(3, 0, 0x200000, 0x1000), fd)
	require.Zero(t, errno, "a second slice of the same file")
	ev := eventfd(t)
	_, errno = c.call(cmdSetIRQs, irqBody(0x24, irqMSIX, 0, 1))
	require.Zero(t, errno, "a vector without a descriptor")
	_, errno = c.call(cmdSetIRQs, irqBody(0x24, irqMSIX, 0, 1), ev)
	require.Zero(t, errno)
	copy(mem[0x4100:], "abcdefgh")
	_, errno = c.call(cmdRegionWrite, accessBody(fakeDoorbell, regionBAR0, 8, le.AppendUint64(nil, 0x100100)...))
	require.Zero(t, errno)
	require.Equal(t, "abcdefgh", string(mem[0x4108:0x4110]), "done before the reply")
	require.EqualValues(t, 1, eventCount(ev))
	out, errno := c.call(cmdDMAUnmap, dmaUnmapBody(0, 0x100000, 0x2000))
	require.Zero(t, errno)
	require.Equal(t, dmaUnmapBody(0, 0x100000, 0x2000), out)
	maps, irqs, _ := l.dev.lent()
	require.Equal(t, 1, maps)
	require.Equal(t, 1, irqs)
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(2, 0, 0))
	require.Zero(t, errno)
	_, errno = c.call(cmdSetIRQs, irqBody(0x21, irqMSIX, 0, 0))
	require.Zero(t, errno)
	maps, irqs, _ = l.dev.lent()
	require.Zero(t, maps+irqs)
}

func TestRangesWithoutAFileAreIgnored(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	_, errno := c.call(cmdDMAMap, dmaMapBody(3, 0, 0xfe000000, 0x1000))
	require.Zero(t, errno)
	maps, _, _ := l.dev.lent()
	require.Zero(t, maps)
	_, errno = c.call(cmdDMAMap, dmaMapBody(3, 0, 0xfe000000, 0x1000))
	require.Equal(t, unix.EEXIST, errno)
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(0, 0xfe000000, 0x1000))
	require.Zero(t, errno)
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(0, 0xfe000000, 0x1000))
	require.Zero(t, errno, "unmapping nothing is no error, as in VFIO")
}

func TestMemoryThatIsRefused(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	fd := memfd(t, 64<<10, unix.F_SEAL_SHRINK)
	unsealable := memfd(t, 64<<10, unix.F_SEAL_SEAL)
	readOnly, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer func() { _ = readOnly.Close() }()
	cases := []struct {
		name string
		body []byte
		fds  []int
		want unix.Errno
	}{
		{"unaligned address", dmaMapBody(3, 0, 0x100, 0x1000), []int{fd}, unix.EINVAL},
		{"unaligned size", dmaMapBody(3, 0, 0x1000, 0x10), []int{fd}, unix.EINVAL},
		{"nothing", dmaMapBody(3, 0, 0x1000, 0), []int{fd}, unix.EINVAL},
		{"wraps", dmaMapBody(3, 0, 0xfffffffffffff000, 0x2000), []int{fd}, unix.EINVAL},
		{"past the file", dmaMapBody(3, 0xf000, 0x1000, 0x2000), []int{fd}, unix.EINVAL},
		{"offset past the file", dmaMapBody(3, 1<<63, 0x1000, 0x1000), []int{fd}, unix.EINVAL},
		{"offset not a page", dmaMapBody(3, 1, 0x1000, 0x1000), []int{fd}, unix.EINVAL},
		{"unknown flags", dmaMapBody(11, 0, 0x1000, 0x1000), []int{fd}, unix.EINVAL},
		{"neither read nor write", dmaMapBody(0, 0, 0x1000, 0x1000), []int{fd}, unix.EINVAL},
		{"two files", dmaMapBody(3, 0, 0x1000, 0x1000), []int{fd, fd}, unix.EINVAL},
		{"short", dmaMapBody(3, 0, 0x1000, 0x1000)[:31], []int{fd}, unix.EINVAL},
		{"may shrink", dmaMapBody(3, 0, 0x1000, 0x1000), []int{unsealable}, unix.EPERM},
		{"a device", dmaMapBody(1, 0, 0x1000, 0x1000), []int{int(readOnly.Fd())}, unix.EINVAL},
	}
	before := openFDs(t)
	for _, k := range cases {
		_, errno := c.call(cmdDMAMap, k.body, k.fds...)
		require.Equal(t, k.want, errno, k.name)
	}
	l.dev.refuseMaps(true)
	_, errno := c.call(cmdDMAMap, dmaMapBody(3, 0, 0x1000, 0x1000), fd)
	require.Equal(t, unix.EINVAL, errno, "the device refuses")
	l.dev.refuseMaps(false)
	require.Equal(t, before, openFDs(t))
	_, errno = c.call(cmdDMAMap, dmaMapBody(3, 0, 0x1000, 0x4000), fd)
	require.Zero(t, errno)
	for _, at := range []uint64{0x1000, 0x4000} {
		_, errno = c.call(cmdDMAMap, dmaMapBody(3, 0, at, 0x1000), fd)
		require.Equal(t, unix.EEXIST, errno)
	}
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(0, 0x2000, 0x1000))
	require.Equal(t, unix.EINVAL, errno, "a hole in a range")
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(1, 0x1000, 0x4000))
	require.Equal(t, unix.ENOTSUP, errno, "dirty pages")
	_, errno = c.call(cmdDMAUnmap, dmaUnmapBody(0, 0, 0x100000))
	require.Zero(t, errno, "a range that covers more")
	maps, _, _ := l.dev.lent()
	require.Zero(t, maps)
}

func TestInterruptsThatAreRefused(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	ev, pipe := eventfd(t), memfd(t, 4096, 0)
	cases := []struct {
		name string
		body []byte
		fds  []int
	}{
		{"past the last vector", irqBody(0x24, irqMSIX, 8, 1), []int{ev}},
		{"start past the end", irqBody(0x24, irqMSIX, 9, 0), nil},
		{"overflow", irqBody(0x24, irqMSIX, 1, 0xffffffff), []int{ev}},
		{"no pin", irqBody(0x24, 0, 0, 1), []int{ev}},
		{"error event, two descriptors", irqBody(0x24, 3, 0, 1), []int{ev, ev}},
		{"error event, not an eventfd", irqBody(0x24, 3, 0, 1), []int{pipe}},
		{"error event masked", irqBody(0x09, 3, 0, 1), nil},
		{"error event, two actions", irqBody(0x31, 3, 0, 1), nil},
		{"error event, flags as data", irqBody(0x22, 3, 0, 1, 1), nil},
		{"no such kind", irqBody(0x24, 5, 0, 0), nil},
		{"no action", irqBody(0x04, irqMSIX, 0, 1), []int{ev}},
		{"two actions", irqBody(0x34, irqMSIX, 0, 1), []int{ev}},
		{"two kinds of data", irqBody(0x25, irqMSIX, 0, 1), []int{ev}},
		{"fewer descriptors", irqBody(0x24, irqMSIX, 0, 3), []int{ev, ev}},
		{"not an eventfd", irqBody(0x24, irqMSIX, 0, 2), []int{ev, pipe}},
		{"no room for the flags", irqBody(0x22, irqMSIX, 0, 2, 1), nil},
		{"short", irqBody(0x24, irqMSIX, 0, 1)[:19], []int{ev}},
	}
	before := openFDs(t)
	for _, k := range cases {
		_, errno := c.call(cmdSetIRQs, k.body, k.fds...)
		require.Equal(t, unix.EINVAL, errno, k.name)
	}
	_, irqs, _ := l.dev.lent()
	require.Zero(t, irqs)
	require.Equal(t, before, openFDs(t))
}

// TestSilentInterrupts sets up what a client sets up for every PCI Express
// function: the pin, where configuration space names one, and the error event.
func TestSilentInterrupts(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	_, errno := c.call(cmdRegionWrite, accessBody(configPin, regionConfig, 1, 1))
	require.Zero(t, errno)
	out, errno := c.call(cmdIRQInfo, words(16, 0, irqPin, 0))
	require.Zero(t, errno)
	require.Equal(t, words(16, 7, irqPin, 1), out)
	ev := eventfd(t)
	before := openFDs(t)
	for name, body := range map[string][]byte{
		"pin": irqBody(0x24, irqPin, 0, 1), "error": irqBody(0x24, irqError, 0, 1),
	} {
		_, errno = c.call(cmdSetIRQs, body, ev)
		require.Zero(t, errno, name)
	}
	for name, body := range map[string][]byte{
		"mask": irqBody(0x09, irqPin, 0, 1), "unmask": irqBody(0x11, irqPin, 0, 1), "disable": irqBody(0x21, irqPin, 0, 0),
	} {
		_, errno = c.call(cmdSetIRQs, body)
		require.Zero(t, errno, name)
	}
	require.Equal(t, before, openFDs(t))
}

func TestTestInterrupts(t *testing.T) {
	c := startLab(t, Options{}).greeted(t)
	a, b := eventfd(t), eventfd(t)
	_, errno := c.call(cmdSetIRQs, irqBody(0x24, irqMSIX, 3, 2), a, b)
	require.Zero(t, errno)
	_, errno = c.call(cmdSetIRQs, irqBody(0x22, irqMSIX, 3, 2, 0, 1))
	require.Zero(t, errno)
	require.Zero(t, eventCount(a))
	require.EqualValues(t, 1, eventCount(b))
	_, errno = c.call(cmdSetIRQs, irqBody(0x21, irqMSIX, 3, 2))
	require.Zero(t, errno)
	require.EqualValues(t, 1, eventCount(a))
	require.EqualValues(t, 1, eventCount(b))
}

func TestPostedWrites(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	l.dev.mu.Lock()
	before := l.dev.steps
	l.dev.mu.Unlock()
	for i := range 5 {
		c.send(cmdRegionWrite, flagNoReply, accessBody(0x20, regionBAR0, 1, byte(i)))
	}
	c.send(cmdRegionWrite, flagNoReply, accessBody(fakeBAR, regionBAR0, 1, 1))
	out, errno := c.call(cmdRegionRead, accessBody(0x20, regionBAR0, 1))
	require.Zero(t, errno, "the next reply is that of the next command")
	require.EqualValues(t, 4, out[16])
	require.Eventually(t, func() bool {
		l.dev.mu.Lock()
		defer l.dev.mu.Unlock()
		return l.dev.steps >= before+7
	}, 5*time.Second, time.Millisecond, "the device goes on after a message without a reply")
}

func TestBrokenFraming(t *testing.T) {
	big := make([]byte, headerSize)
	header{cmd: cmdRegionWrite, size: maxMessage + 1}.put(big)
	huge := make([]byte, headerSize)
	header{cmd: cmdRegionWrite, size: 0xffffffff}.put(huge)
	small := make([]byte, headerSize)
	header{cmd: cmdRegionWrite, size: headerSize - 1}.put(small)
	answer := make([]byte, headerSize)
	header{cmd: cmdRegionRead, size: headerSize, flags: typeReply}.put(answer)
	for name, b := range map[string][]byte{"oversize": big, "huge": huge, "undersize": small, "a reply": answer, "text": []byte("GET / HTTP/1.1\r\n\r\n")} {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, Options{})
			c := l.greeted(t)
			c.raw(b, eventfd(t))
			c.cutOff()
			l.departed(t, 1)
			require.ErrorIs(t, l.why(0), errRubbish)
			l.greeted(t)
		})
	}
}

func TestTooManyDescriptors(t *testing.T) {
	l := startLab(t, Options{})
	c := l.greeted(t)
	fds := make([]int, 200)
	ev := eventfd(t)
	for i := range fds {
		fds[i] = ev
	}
	before := openFDs(t)
	c.send(cmdSetIRQs, typeCommand, irqBody(0x24, irqMSIX, 0, 8), fds...)
	c.cutOff()
	l.departed(t, 1)
	require.Eventually(t, func() bool { return openFDs(t) < before }, 5*time.Second, time.Millisecond, "only the connection went, nothing came")
}

func TestClientsThatVanish(t *testing.T) {
	l := startLab(t, Options{})
	fd, ev := memfd(t, 64<<10, 0), eventfd(t)
	whole := make([]byte, headerSize+32)
	header{cmd: cmdDMAMap, size: headerSize + 32}.put(whole)
	copy(whole[headerSize:], dmaMapBody(3, 0, 0x1000, 0x1000))
	before := openFDs(t)
	for i, cut := range []int{0, 1, 15, 16, 17, 47} {
		c := l.greeted(t)
		_, errno := c.call(cmdDMAMap, dmaMapBody(3, 0, 0x100000, 0x10000), fd)
		require.Zero(t, errno)
		_, errno = c.call(cmdSetIRQs, irqBody(0x24, irqMSIX, 0, 2), ev, ev)
		require.Zero(t, errno)
		if cut > 0 {
			c.raw(whole[:cut], fd)
		}
		require.NoError(t, c.conn.Close())
		l.departed(t, i+1)
		if cut == 0 {
			require.NoError(t, l.why(i))
		} else {
			require.ErrorIs(t, l.why(i), io.ErrUnexpectedEOF)
		}
	}
	require.Eventually(t, func() bool { return openFDs(t) == before }, 5*time.Second, time.Millisecond)
}

func TestASecondClientWaits(t *testing.T) {
	l := startLab(t, Options{})
	first := l.greeted(t)
	second := l.dial(t)
	second.send(cmdVersion, typeCommand, versionBody(""))
	_, errno := first.call(cmdReset, nil)
	require.Zero(t, errno)
	require.NoError(t, second.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := second.conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, first.conn.Close())
	_, _, _, err = second.reply()
	require.NoError(t, err)
}

func TestClientThatDoesNotReadIsDropped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the server's patience")
	}
	l := startLab(t, Options{})
	c := l.greeted(t)
	go func() {
		for range 100 {
			c.send(cmdRegionRead, typeCommand, accessBody(0, regionBAR0, fakeBAR))
		}
	}()
	require.Eventually(t, func() bool { _, _, r := l.dev.lent(); return r == 1 }, 2*replyPatience, 50*time.Millisecond)
	require.ErrorIs(t, l.why(0), os.ErrDeadlineExceeded)
}

func TestListenPaths(t *testing.T) {
	l := startLab(t, Options{})
	_, err := Listen(l.path, l.dev, Options{})
	require.ErrorContains(t, err, "served already")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("keep"), 0o600))
	_, err = Listen(file, l.dev, Options{})
	require.ErrorContains(t, err, "no socket")
	stale := filepath.Join(t.TempDir(), "stale")
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(s, &unix.SockaddrUnix{Name: stale}))
	require.NoError(t, unix.Close(s))
	srv, err := Listen(stale, l.dev, Options{})
	require.NoError(t, err)
	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close())
}

// FuzzMessages throws bytes at a session that has exchanged VERSION. Whatever
// they are, the server is there for the next client with nothing held over.
func FuzzMessages(f *testing.F) {
	frame := func(cmd uint16, flags uint32, body []byte) []byte {
		b := make([]byte, headerSize)
		header{cmd: cmd, size: uint32(headerSize + len(body)), flags: flags}.put(b)
		return append(b, body...)
	}
	f.Add(frame(cmdDMAMap, 0, dmaMapBody(3, 0, 0x1000, 0x1000)), uint8(1))
	f.Add(frame(cmdDMAUnmap, 0, dmaUnmapBody(2, 0, 0)), uint8(0))
	f.Add(frame(cmdSetIRQs, 0, irqBody(0x24, irqMSIX, 0, 2)), uint8(2))
	f.Add(frame(cmdRegionWrite, flagNoReply, accessBody(fakeDoorbell, 0, 8, 0, 16, 0, 0, 0, 0, 0, 0)), uint8(0))
	f.Add(frame(cmdRegionRead, 0, accessBody(0, 7, 4096)), uint8(0))
	f.Add(frame(cmdRegionInfo, 0, append(words(64, 0, 0, 0), make([]byte, 16)...)), uint8(0))
	f.Add(frame(cmdVersion, 0, versionBody("{}")), uint8(17))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		l := startLab(t, Options{Doorbells: []Area{{Offset: 0x8000, Size: 0x1000}}})
		c := l.greeted(t)
		fds := make([]int, n%24)
		for i := range fds {
			fds[i] = eventfd(t)
			if i%2 == 0 {
				fds[i] = memfd(t, 8192, 0)
			}
		}
		if len(b) > 0 {
			c.raw(b, fds...)
		}
		require.NoError(t, c.conn.CloseWrite())
		_, _ = io.Copy(io.Discard, c.conn)
		l.departed(t, 1)
		l.greeted(t)
	})
}
