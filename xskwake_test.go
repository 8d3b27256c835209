package main

// xskwake_test.go owns the proof that a client which does to the wake-ups and the fill
// ring whatever it can costs nobody else anything: the regular queue goes on, the end
// of its lease hangs nowhere, and once it has gone nothing is left of it.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// soon is long enough for anything here that does not hang.
const soon = 30 * time.Second

// fullCount is the most that an eventfd holds: the next write waits, or fails.
var fullCount = binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1)

// hostileClient is a client that has its wake-ups in its hands. What it fills is
// emptied at the end of the test, so that one that fails hangs nobody.
type hostileClient struct {
	*xskClient
	wake int // the eventfd by which the driver wakes it
}

func newHostileClient(t *testing.T, r *serveRig, q xskRequest) *hostileClient {
	c, err := dialXSK(r.path, q)
	require.NoError(t, err)
	h := &hostileClient{xskClient: c}
	raw, err := c.wake.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		h.wake, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}))
	require.NoError(t, err)
	t.Cleanup(func() {
		if h.wake >= 0 {
			_, _ = unix.Write(c.kick, wakeOne[:])
			h.empty()
			h.goes(t)
		}
	})
	return h
}

// goes closes all that the client has.
func (h *hostileClient) goes(t *testing.T) {
	require.NoError(t, unix.Close(h.wake))
	h.wake = -1
	if err := h.close(); err != nil {
		require.ErrorIs(t, err, net.ErrClosed) // the connection, before
	}
}

// jams makes the next write to the eventfd hang.
func (h *hostileClient) jams(t *testing.T) {
	_, err := unix.FcntlInt(uintptr(h.wake), unix.F_SETFL, unix.O_NONBLOCK)
	require.NoError(t, err)
	for {
		h.empty()
		if _, err = unix.Write(h.wake, fullCount); !errors.Is(err, unix.EAGAIN) { // another may write between
			break
		}
	}
	require.NoError(t, err)
	_, err = unix.FcntlInt(uintptr(h.wake), unix.F_SETFL, 0)
	require.NoError(t, err)
}

// empty reads the counter.
func (h *hostileClient) empty() {
	var b [8]byte
	_, _ = unix.Preadv2(h.wake, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
}

// asksForWakes fills frames and wants to be woken for each packet.
func (h *hostileClient) asksForWakes() {
	h.app.rx.ask(true)
	h.app.comp.ask(true)
	h.app.giveFrames(512)
	h.nudge()
}

// receives takes what has come and wants more, without a look at any eventfd.
func (h *hostileClient) receives() {
	h.app.drop(napiBudget)
	h.nudge()
}

// isWoken waits until the channel has woken the client so many times more.
func (r *serveRig) isWoken(t *testing.T, h *hostileClient, times uint64) {
	t.Helper()
	n := &r.nic.channels[0].xsk.stats.wakes
	from := n.get()
	require.Eventually(t, func() bool { h.receives(); return n.get() >= from+times }, soon, time.Millisecond, "the channel wakes nobody any more")
}

// goesOn waits until the regular queue has had more packets.
func goesOn(t *testing.T, taken *atomic.Int64) {
	t.Helper()
	at := taken.Load()
	require.Eventually(t, func() bool { return taken.Load() > at+1000 }, soon, time.Millisecond, "the regular queue")
}

// isFree waits until nobody has the queue any more, nor memory.
func (r *serveRig) isFree(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.server.mem.mu.Lock()
		defer r.server.mem.mu.Unlock()
		return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 && r.server.mem.taken == 0
	}, soon, time.Millisecond, "a lease that does not end")
}

// serves makes sure that another client gets queue 0 and its packets, and gives all
// back.
func (r *serveRig) serves(t *testing.T) {
	t.Helper()
	r.servesOne(t)
	r.isFree(t)
}

func (r *serveRig) servesOne(t *testing.T) {
	t.Helper()
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	c.app.giveFrames(512)
	c.nudge()
	require.Eventually(t, func() bool { return c.app.drop(napiBudget) > 0 }, soon, time.Millisecond)
	require.NoError(t, c.close())
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 }, soon, time.Millisecond)
}

// closesServer closes the server, whatever its clients do.
func (r *serveRig) closesServer(t *testing.T) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- r.server.close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "the server does not close")
	}
}

// standing is what there is of things that can be left behind.
type standing struct{ fds, goroutines int }

func standingNow(t *testing.T) standing { return standing{countFDs(t), runtime.NumGoroutine()} }

// isAsBefore waits until there is no more than that.
func (s standing) isAsBefore(t *testing.T, r *serveRig) {
	t.Helper()
	now := standingNow(t) // not in Eventually, which has goroutines of its own
	for end := time.Now().Add(soon); time.Now().Before(end); now = standingNow(t) {
		if r.server.stray.Load() == 0 && now.fds <= s.fds && now.goroutines <= s.goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(t, "something is left behind", "%d strays; %+v, before %+v", r.server.stray.Load(), now, s)
}

// A client that lets the writes to its eventfd hang hangs no channel and no end of
// its lease, however it ends.
func TestXSKJammedWakeUpsHangNobody(t *testing.T) {
	for _, closed := range []bool{false, true} { // by the client, and by the server
		var taken atomic.Int64
		r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
		r.serves(t)
		before := standingNow(t)
		h := newHostileClient(t, r, askFor(0))
		h.asksForWakes()
		r.isWoken(t, h, 1)
		h.jams(t)
		r.isWoken(t, h, 100)
		goesOn(t, &taken)
		if closed {
			r.closesServer(t)
		} else {
			require.NoError(t, h.conn.Close()) // and it keeps all else
		}
		r.isFree(t)
		goesOn(t, &taken)
		if closed {
			var err error
			r.server, err = listenXSK(r.path, []*nic{r.nic}, r.server.log)
			require.NoError(t, err)
		}
		r.serves(t)
		h.goes(t)
		before.isAsBefore(t, r)
		require.Zero(t, r.work[0].bad.Load())
	}
}

// A client that fights for its full eventfd, after its lease too, keeps one goroutine
// at most, until it goes.
func TestXSKFightForWakeUps(t *testing.T) {
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	r.serves(t)
	before := standingNow(t)
	for range 3 {
		h := newHostileClient(t, r, askFor(0))
		h.asksForWakes()
		h.jams(t)
		var over atomic.Bool
		var fight sync.WaitGroup
		for range 2 {
			fight.Go(func() {
				for !over.Load() {
					_, _ = unix.Write(h.wake, fullCount) // hangs where it is full
				}
			})
		}
		r.isWoken(t, h, 10)
		require.NoError(t, h.conn.Close())
		r.isFree(t)
		goesOn(t, &taken)
		r.serves(t)
		over.Store(true)
		out := make(chan struct{})
		go func() { fight.Wait(); close(out) }()
		require.Eventually(t, func() bool {
			h.empty()
			select {
			case <-out:
				return true
			default:
				return false
			}
		}, soon, time.Millisecond)
		h.goes(t)
	}
	before.isAsBefore(t, r)
	require.Zero(t, r.work[0].bad.Load())
}

// A goroutine that its client does not let go is left behind: nobody waits for it, it
// is looked after, and of too many no more are made.
func TestXSKStrayWakeUps(t *testing.T) {
	was := wakerPause
	wakerPause = time.Hour // nobody makes room before the goroutine is left behind
	t.Cleanup(func() { wakerPause = was })
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	r.serves(t)
	before := standingNow(t)
	h := newHostileClient(t, r, askFor(0))
	h.asksForWakes()
	h.jams(t)
	r.isWoken(t, h, 10)
	require.NoError(t, h.conn.Close())
	r.isFree(t)
	r.serves(t)
	h.goes(t) // and leaves the counter full
	before.isAsBefore(t, r)

	r.server.stray.Store(mostStrays)
	_, err := dialXSK(r.path, askFor(0))
	require.ErrorContains(t, err, "clients that have left still hold 128 things")
	r.server.stray.Store(0)
	r.serves(t)
	before.isAsBefore(t, r)
}

// A client that has the kernel keep our hands off the memory of its lease, by a write to
// the file that sleeps in the middle, keeps that memory and nothing else, until it goes.
func TestXSKHeldMemoryHangsNobody(t *testing.T) {
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	r.serves(t)
	before := standingNow(t)
	h := newHostileClient(t, r, askFor(0))
	h.asksForWakes()
	r.isWoken(t, h, 1)
	fault, page := neverFilled(t)
	var write sync.WaitGroup
	frames := openFrames(t)
	write.Go(func() { _, _ = unix.Pwrite(frames, page, 0) })
	t.Cleanup(func() { _ = unix.Close(fault) })
	require.Eventually(t, func() bool { return someoneCalls(t, unix.SYS_PWRITE64, frames) }, soon, time.Millisecond)
	require.NoError(t, h.conn.Close())
	require.Eventually(t, func() bool { return r.server.stray.Load() == 1 }, soon, time.Millisecond, "it is left behind")
	require.Zero(t, r.nic.mem.guestMemory(), "the device has let go")
	r.servesOne(t)
	goesOn(t, &taken)
	r.closesServer(t)
	var err error
	old := r.server
	r.server, err = listenXSK(r.path, []*nic{r.nic}, r.server.log)
	require.NoError(t, err)
	require.NotZero(t, old.mem.taken)
	require.NoError(t, unix.Close(fault)) // it goes
	write.Wait()
	require.NoError(t, unix.Close(frames))
	h.goes(t)
	require.Eventually(t, func() bool { return old.stray.Load() == 0 }, soon, time.Millisecond)
	require.Zero(t, old.mem.taken)
	r.serves(t)
	before.isAsBefore(t, r)
}

// openFrames opens the file of the only UMEM that there is.
func openFrames(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, d := range list {
		path := "/proc/self/fd/" + d.Name()
		if to, _ := os.Readlink(path); strings.Contains(to, "memfd:mlx5d-umem") {
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			return fd
		}
	}
	require.Fail(t, "no UMEM is open")
	return -1
}

// neverFilled is memory whose first use sleeps until the descriptor is closed.
func neverFilled(t *testing.T) (fd int, b []byte) {
	b, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	u, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if e != 0 {
		t.Skip("page faults cannot be held up here: ", e)
	}
	api := [3]uint64{0xaa}
	_, _, e = unix.Syscall(unix.SYS_IOCTL, u, 0xc018aa3f, uintptr(unsafe.Pointer(&api))) // UFFDIO_API
	require.Zero(t, e)
	area := [4]uint64{uint64(uintptr(unsafe.Pointer(&b[0]))), pageSize, 1}
	_, _, e = unix.Syscall(unix.SYS_IOCTL, u, 0xc020aa00, uintptr(unsafe.Pointer(&area))) // UFFDIO_REGISTER
	require.Zero(t, e)
	return int(u), b
}

// testWaker is a waker without a goroutine, and a descriptor of what its kicks lead to.
type testWaker struct {
	*xskWaker
	kicked int
}

// newTestWaker makes one and tells how many files were open before.
func newTestWaker(t *testing.T) (w *testWaker, fds int) {
	makeTestWaker(t).stops(t) // the first has the runtime open files of its own
	fds = countFDs(t)
	return makeTestWaker(t), fds
}

func makeTestWaker(t *testing.T) *testWaker {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	vec, err := bellOn(fd)
	require.NoError(t, err)
	w, err := newXSKWaker(vec)
	require.NoError(t, err)
	return &testWaker{w, fd}
}

// stops gives it a goroutine and ends that.
func (w *testWaker) stops(t *testing.T) {
	go w.run()
	w.halt()
	w.ends(t, math.MaxInt)
}

// ends waits for the goroutine and looks for what is left.
func (w *testWaker) ends(t *testing.T, fds int) {
	require.True(t, w.gone(soon, time.Millisecond))
	require.NoError(t, w.vec.close())
	require.NoError(t, unix.Close(w.kicked))
	require.LessOrEqual(t, countFDs(t), fds)
}

// counted is how often an eventfd was written to since it was last read.
func counted(t *testing.T, fd int) uint64 {
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil {
		require.ErrorIs(t, err, unix.EAGAIN)
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// Whoever ends a goroutine that hangs is told so, and its descriptors stay until it
// gets out.
func TestXSKWakerThatHangs(t *testing.T) {
	w, fds := newTestWaker(t)
	go w.run()
	_, err := unix.FcntlInt(uintptr(w.spare), unix.F_SETFL, 0)
	require.NoError(t, err)
	_, err = unix.Write(w.spare, fullCount)
	require.NoError(t, err)
	w.bell.ring()
	require.Eventually(t, func() bool { return someoneCalls(t, unix.SYS_WRITE, w.wake) }, soon, time.Millisecond)
	w.halt()
	for range 3 {
		require.False(t, w.gone(10*time.Millisecond, time.Hour))
		for _, fd := range []int{w.bell.fd, w.epoll, w.kick, w.wake, w.spare} {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			require.NoError(t, err, "a descriptor is closed that is in use")
		}
	}
	w.ends(t, fds)
}

// someoneCalls reports whether a thread of ours is in that system call for fd.
func someoneCalls(t *testing.T, call, fd int) bool {
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, d := range threads {
		b, _ := os.ReadFile("/proc/self/task/" + d.Name() + "/syscall") // nothing of one that has ended
		if strings.HasPrefix(string(b), fmt.Sprintf("%d %#x ", call, fd)) {
			return true
		}
	}
	return false
}

// Each wake-up is passed on though no counter of them is ever read: one after the
// other, those that come between two waits, those on top of a counter that is all but
// full. A pass hangs where one is lost.
func TestXSKWakeUpsAreEdges(t *testing.T) {
	w, fds := newTestWaker(t)
	kick := func(n uint64) {
		_, err := unix.Write(w.kick, binary.NativeEndian.AppendUint64(nil, n))
		require.NoError(t, err)
	}
	passed := func(kicks, wakes uint64) {
		t.Helper()
		require.True(t, w.pass())
		require.Equal(t, []uint64{kicks, wakes}, []uint64{counted(t, w.kicked), counted(t, w.spare)})
	}
	for range 3 {
		kick(1)
		passed(1, 0)
		w.bell.ring()
		passed(0, 1)
	}
	for range 3 { // several of each are one
		kick(1)
		w.bell.ring()
		kick(2)
		w.bell.ring()
		passed(1, 1)
	}
	kick(math.MaxUint64 - 1 - 3 - 9 - 1)
	passed(1, 0)
	kick(1)
	passed(1, 0)
	_, err := unix.Write(w.kick, wakeOne[:])
	require.ErrorIs(t, err, unix.EAGAIN, "it is full now, which is its own misfortune")
	w.bell.ring()
	passed(0, 1)
	go w.run()
	w.halt()
	w.ends(t, fds)
	_, err = unix.FcntlInt(uintptr(w.kick), unix.F_GETFD, 0)
	require.ErrorIs(t, err, unix.EBADF)
}

// While kicks and waits run into one another none is lost.
func TestXSKKicksThatRace(t *testing.T) {
	w, fds := newTestWaker(t)
	go w.run()
	_, err := unix.FcntlInt(uintptr(w.kick), unix.F_SETFL, 0) // as a client may
	require.NoError(t, err)
	for i := range 100_000 {
		_, err := unix.Write(w.kick, wakeOne[:])
		require.NoError(t, err)
		rung := []unix.PollFd{{Fd: int32(w.vec.fd), Events: unix.POLLIN}}
		for {
			if _, err = unix.Poll(rung, int(soon.Milliseconds())); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		require.NoError(t, err)
		require.NotZero(t, rung[0].Revents, "kick %d is lost", i)
		w.vec.hush()
	}
	w.halt()
	w.ends(t, fds)
}

// A client that makes reads of its kicks hang ends like any other.
func TestXSKKicksThatBlock(t *testing.T) {
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	r.serves(t)
	before := standingNow(t)
	for range 3 {
		h := newHostileClient(t, r, askFor(0))
		_, err := unix.FcntlInt(uintptr(h.kick), unix.F_SETFL, 0)
		require.NoError(t, err)
		h.asksForWakes()
		for range 100 {
			_, err := unix.Write(h.kick, wakeOne[:])
			require.NoError(t, err)
		}
		r.isWoken(t, h, 10)
		require.NoError(t, h.conn.Close())
		r.isFree(t)
		r.serves(t)
		h.goes(t)
	}
	before.isAsBefore(t, r)
	goesOn(t, &taken)
}

// A client that fills its ring with entries that are none costs a turn no more than so
// many of them, wherever they are looked at; all are counted, and the good ones behind
// them are found without another word of the client.
func TestXSKBadFillsAreBounded(t *testing.T) {
	for _, way := range []string{"plain", "put aside", "pieces", "redirect"} {
		t.Run(way, func(t *testing.T) { testBadFills(t, way) })
	}
}

func testBadFills(t *testing.T, way string) {
	const entries, most = 1 << 14, napiBudget
	var taken atomic.Int64
	w, ask := wishes{queues: 1}, askFor(0)
	ask.entries[ringFill] = entries
	if way == "pieces" {
		w.mtu, ask.flags = 4000, ask.flags|xskMultiBuffer
	}
	r := newServeRigOf(t, w, newSplitWire(1<<40, &taken), &taken)
	h := newHostileClient(t, r, ask)
	c := r.nic.channels[0]
	q := c.xsk
	bad := func() uint64 { return q.stats.badFill.get() + q.tally.badFill }
	for i := range entries {
		h.app.fill.addrs[i] = math.MaxUint64 >> (i % 8)
		if i >= entries-8 {
			h.app.fill.addrs[i] = uint64(i%8) * 2048
		}
	}
	var byRedirects, byTurn uint64
	var tally xdpTally
	again := false
	c.do(func() { // here nothing may fail: it would take the channel with it
		switch h.app.fill.gave(entries); way {
		case "put aside":
			q.recv.keep(100)
		case "redirect":
			before := bad()
			for range 3 { // of as many batches as a turn may bring
				xskSink{q}.redirect(nil, []xdpFrame{{mem: make([]byte, 100), end: 100}}, []uint8{0}, &tally)
			}
			byRedirects = bad() - before
		}
		before := bad()
		c.poll(napiBudget)
		byTurn, again = bad()-before, q.sleep()
		q.wakeUp()
	})
	if way == "redirect" {
		require.EqualValues(t, most, byRedirects)
		require.Equal(t, xdpTally{lost: 3}, tally)
	}
	require.Equal(t, way == "pieces", q.recv.pieces > 1)
	require.EqualValues(t, most, byTurn)
	require.True(t, again, "it does not sleep over what is left")
	require.Eventually(t, func() bool { return q.stats.badFill.get() == entries-8 }, soon, time.Millisecond)
	require.Eventually(t, func() bool { return h.app.drop(napiBudget) > 0 }, soon, time.Millisecond)
	goesOn(t, &taken)
	h.goes(t)
	r.isFree(t)
}
