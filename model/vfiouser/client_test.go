package vfiouser

// This file owns the scripted client that the tests of this package drive the
// server with, and a small device of memory behind it.

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeDevice has registers of plain memory. A write to doorbell copies eight
// bytes of DMA memory: [doorbell+0] = bus address to read, result to the next
// eight bytes of it, and fires vector 0.
type fakeDevice struct {
	mu     sync.Mutex
	bar    []byte
	fd     int
	config [configSize]byte
	maps   map[uint64][]byte
	write  map[uint64]bool
	irq    []func()
	resets int
	steps  int
	refuse bool // MapDMA fails
}

const (
	fakeBAR      = 64 << 10
	fakeDoorbell = 0x8000
)

func newFakeDevice(tb testing.TB) *fakeDevice {
	fd := memfd(tb, fakeBAR, 0)
	bar, err := unix.Mmap(fd, 0, fakeBAR, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = unix.Munmap(bar) })
	return &fakeDevice{bar: bar, fd: fd, maps: map[uint64][]byte{}, write: map[uint64]bool{}, irq: make([]func(), 8)}
}

func (d *fakeDevice) BAR() []byte  { return d.bar }
func (d *fakeDevice) BARFile() int { return d.fd }
func (d *fakeDevice) Vectors() int { return len(d.irq) }

func (d *fakeDevice) Read(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(p, d.bar[off:off+len(p)])
}

func (d *fakeDevice) Write(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.bar[off:off+len(p)], p)
	if off != fakeDoorbell || len(p) != 8 {
		return
	}
	if mem := d.at(le.Uint64(p), 16); mem != nil {
		copy(mem[8:16], mem[:8])
	}
	if d.irq[0] != nil {
		d.irq[0]()
	}
}

func (d *fakeDevice) at(iova uint64, n int) []byte {
	for base, mem := range d.maps {
		if iova >= base && iova-base <= uint64(len(mem)) && uint64(len(mem))-(iova-base) >= uint64(n) && d.write[base] {
			return mem[iova-base:]
		}
	}
	return nil
}

func (d *fakeDevice) ReadConfig(off int, p []byte)  { copy(p, d.config[off:off+len(p)]) }
func (d *fakeDevice) WriteConfig(off int, p []byte) { copy(d.config[off:off+len(p)], p) }

func (d *fakeDevice) MapDMA(iova uint64, mem []byte, writable bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse {
		return os.ErrPermission
	}
	d.maps[iova], d.write[iova] = mem, writable
	return nil
}

func (d *fakeDevice) UnmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uint64(len(d.maps[iova])) != size {
		return os.ErrNotExist
	}
	delete(d.maps, iova)
	return nil
}

func (d *fakeDevice) UnmapAllDMA() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.maps)
}

func (d *fakeDevice) SetIRQ(v int, fire func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.irq[v] = fire
}

func (d *fakeDevice) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
}

func (d *fakeDevice) Step() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps++
	return false
}

func (d *fakeDevice) Run(stop <-chan struct{}) { <-stop }

// lent is what the device still holds of a client.
func (d *fakeDevice) lent() (maps, irqs, resets int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.irq {
		if f != nil {
			irqs++
		}
	}
	return len(d.maps), irqs, d.resets
}

func (d *fakeDevice) refuseMaps(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = yes
}

// memfd makes a memory file; seals are F_SEAL_* bits.
func memfd(tb testing.TB, size int64, seals int) int {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(tb, unix.Ftruncate(fd, size))
	if seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(tb, err)
	}
	return fd
}

func eventfd(tb testing.TB) int {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// eventCount takes an eventfd's counter; 0 is not signalled.
func eventCount(fd int) uint64 {
	var b [8]byte
	if n, err := unix.Read(fd, b[:]); err != nil || n != 8 {
		return 0
	}
	return le.Uint64(b[:])
}

// lab is a running server on a socket of its own.
type lab struct {
	dev  *fakeDevice
	srv  *Server
	path string

	mu   sync.Mutex
	left []error // what Detached was told
}

func startLab(tb testing.TB, opts Options) *lab {
	l := &lab{dev: newFakeDevice(tb)}
	dir, err := os.MkdirTemp("", "vu")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	l.path = filepath.Join(dir, "s")
	opts.Detached = func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = append(l.left, err)
	}
	l.srv, err = Listen(l.path, l.dev, opts)
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.srv.Serve(ctx) }()
	tb.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(tb, err)
		case <-time.After(10 * time.Second):
			tb.Error("Serve did not end")
		}
	})
	return l
}

// departed waits until n clients have gone and the device is its own again.
func (l *lab) departed(tb testing.TB, n int) {
	require.Eventually(tb, func() bool {
		_, _, resets := l.dev.lent()
		return resets >= n
	}, 5*time.Second, time.Millisecond)
	maps, irqs, _ := l.dev.lent()
	require.Zero(tb, maps)
	require.Zero(tb, irqs)
}

// why is what Detached was told of client i, from 0.
func (l *lab) why(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[i]
}

// client is the other end: it sends what it is told, well formed or not.
type client struct {
	tb   testing.TB
	conn *net.UnixConn
	id   uint16
}

func (l *lab) dial(tb testing.TB) *client {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.path, Net: "unix"})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return &client{tb: tb, conn: conn}
}

// greeted is a client that has exchanged VERSION.
func (l *lab) greeted(tb testing.TB) *client {
	c := l.dial(tb)
	_, errno := c.call(cmdVersion, versionBody(`{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}}`))
	require.Zero(tb, errno)
	return c
}

func versionBody(caps string) []byte {
	return append([]byte{0, 0, 1, 0}, append([]byte(caps), 0)...)
}

func (c *client) send(cmd uint16, flags uint32, body []byte, fds ...int) {
	c.id++
	b := make([]byte, headerSize, headerSize+len(body))
	header{id: c.id, cmd: cmd, size: uint32(headerSize + len(body)), flags: flags}.put(b)
	c.raw(append(b, body...), fds...)
}

func (c *client) raw(b []byte, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, _ = c.conn.WriteMsgUnix(b, oob, nil)
}

// reply reads one reply and the descriptors that came with it.
func (c *client) reply() (header, []byte, []int, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	head := make([]byte, headerSize)
	oob := make([]byte, 256)
	n, oobn, _, _, err := c.conn.ReadMsgUnix(head, oob)
	if err != nil || n == 0 {
		return header{}, nil, nil, io.EOF
	}
	if _, err := io.ReadFull(c.conn, head[n:]); err != nil {
		return header{}, nil, nil, err
	}
	var fds []int
	if cms, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(cms) > 0 {
		fds, _ = unix.ParseUnixRights(&cms[0])
	}
	h := readHeader(head)
	body := make([]byte, h.size-headerSize)
	_, err = io.ReadFull(c.conn, body)
	return h, body, fds, err
}

// call sends one command and returns the reply's body and errno.
func (c *client) call(cmd uint16, body []byte, fds ...int) ([]byte, unix.Errno) {
	c.send(cmd, typeCommand, body, fds...)
	h, out, got, err := c.reply()
	for _, fd := range got {
		_ = unix.Close(fd)
	}
	require.NoError(c.tb, err)
	require.Equal(c.tb, c.id, h.id)
	require.Equal(c.tb, cmd, h.cmd)
	require.EqualValues(c.tb, typeReply, h.flags&typeMask)
	require.Equal(c.tb, h.errno != 0, h.flags&flagError != 0)
	return out, unix.Errno(h.errno)
}

// cutOff requires that the server ends the conversation.
func (c *client) cutOff() {
	for {
		if _, _, _, err := c.reply(); err != nil {
			require.NotErrorIs(c.tb, err, os.ErrDeadlineExceeded)
			return
		}
	}
}

func dmaMapBody(flags uint32, offset, iova, size uint64) []byte {
	b := words(32, flags)
	b = le.AppendUint64(b, offset)
	b = le.AppendUint64(b, iova)
	return le.AppendUint64(b, size)
}

func dmaUnmapBody(flags uint32, iova, size uint64) []byte {
	b := words(24, flags)
	b = le.AppendUint64(b, iova)
	return le.AppendUint64(b, size)
}

func accessBody(off uint64, region, count uint32, data ...byte) []byte {
	b := le.AppendUint64(nil, off)
	b = append(b, words(region, count)...)
	return append(b, data...)
}

func irqBody(flags, index, start, count uint32, data ...byte) []byte {
	return append(words(uint32(20+len(data)), flags, index, start, count), data...)
}

func openFDs(tb testing.TB) int {
	e, err := os.ReadDir("/proc/self/fd")
	require.NoError(tb, err)
	return len(e)
}
