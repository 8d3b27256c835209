package main

// xskserve.go owns the socket of -xsk-listen: who may connect, what a request gets,
// and that all of it is taken back when the client goes, however it goes. It does
// not own the bytes (xskproto.go) nor the order of attach and detach (xskbind.go).
//
// One goroutine serves one client, a second one passes wake-ups on (xskwake.go), a third
// one hears of the driver's verdict. A client that breaks a rule of the rings is told why and loses its
// queue; so does one that is killed, since the kernel closes its socket.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// xskClients is how many clients may be connected at once; each may have a queue.
const xskClients = 2 * maxQueues

// xskServer gives queues of nics to other processes.
type xskServer struct {
	nics  []*nic
	log   *slog.Logger
	lis   *net.UnixListener
	mu    sync.Mutex
	conns map[*net.UnixConn]struct{}
	shut  bool
	run   sync.WaitGroup
	lives atomic.Int32 // clients with a queue
	stray atomic.Int32 // what clients that have left still hold
	mem   memoryLimit
}

// listenXSK opens the socket at path and serves who connects.
func listenXSK(path string, nics []*nic, log *slog.Logger) (*xskServer, error) {
	lis, err := openXSKSocket(path)
	if err != nil {
		return nil, err
	}
	return serveXSK(lis, nics, log), nil
}

// openXSKSocket opens the socket at path, which only its owner may connect to. Who
// does waits until it is served.
func openXSKSocket(path string) (*net.UnixListener, error) {
	if err := clearXSKPath(path); err != nil {
		return nil, err
	}
	old := unix.Umask(0o177)
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("-xsk-listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("-xsk-listen: %w", err), lis.Close())
	}
	return lis, nil
}

// serveXSK serves who connects to lis until the server is closed, and lis with it.
func serveXSK(lis *net.UnixListener, nics []*nic, log *slog.Logger) *xskServer {
	s := &xskServer{nics: nics, log: log, lis: lis, conns: map[*net.UnixConn]struct{}{},
		mem: memoryLimit{most: machineMemory("/sys/fs/cgroup") / xskMemoryShare}}
	s.run.Go(s.accept)
	return s
}

// clearXSKPath removes a socket that nobody answers at.
func clearXSKPath(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("-xsk-listen: %w", err)
	case st.Mode().Type() != os.ModeSocket:
		return wishf("-xsk-listen %s: it exists and is no socket: choose another path", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return wishf("-xsk-listen %s: somebody listens there already: choose another path", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("-xsk-listen: %w", err)
	}
	return nil
}

// close drops all clients and returns when their queues are free.
func (s *xskServer) close() error {
	s.mu.Lock()
	s.shut = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.lis.Close()
	s.run.Wait()
	return err
}

// acceptPause is the wait after a client that could not be taken in, for example
// since file descriptors ran out: trying at once again would only spin.
const acceptPause = 100 * time.Millisecond

func (s *xskServer) accept() {
	for {
		conn, err := s.lis.AcceptUnix()
		if err != nil {
			if s.over() {
				return
			}
			s.log.Warn("-xsk-listen: " + err.Error())
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptPause)
			continue
		}
		if !s.enter(conn) {
			_ = conn.Close()
			continue
		}
		s.run.Go(func() {
			s.serve(conn)
			s.leave(conn)
		})
	}
}

func (s *xskServer) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shut
}

// enter takes a connection into the list while there is room.
func (s *xskServer) enter(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut || len(s.conns) >= xskClients {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *xskServer) leave(conn *net.UnixConn) {
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	_ = conn.Close()
}

// peerAllowed reports whether who connected is root or the user that we run as.
func peerAllowed(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d may not attach: only root and user %d", cred.Uid, os.Geteuid())
	}
	return nil
}

// serve talks to one client until it goes.
func (s *xskServer) serve(conn *net.UnixConn) {
	if err := peerAllowed(conn); err != nil {
		s.log.Warn("-xsk-listen: " + err.Error())
		_ = writeMessage(conn, xskRefusal(xskClosed, err.Error()))
		return
	}
	l := &xskLease{server: s, conn: conn}
	err := l.talk()
	if again := l.end(); again != nil {
		s.log.Warn("-xsk-listen: a socket's memory stays mapped: " + again.Error())
	}
	if !errors.Is(err, io.EOF) && !s.over() {
		s.log.Warn("-xsk-listen: a client was dropped: " + err.Error())
		_ = writeMessage(conn, xskRefusal(xskClosed, err.Error()))
	}
}

// xskLease is what one client has.
type xskLease struct {
	server *xskServer
	conn   *net.UnixConn
	c      *channel // nil before attach
	held   bool     // the queue is reserved and has no socket yet
	sock   *xskSocket
	grant  xskGrant
	before []uint64  // the queue's counters, which go on from one socket to the next
	waker  *xskWaker // nil before attach
	undo   undo
	stop   context.CancelFunc
	done   sync.WaitGroup
	reason atomic.Pointer[string] // why the driver ended it
}

// talk answers requests until the client closes its socket or breaks a rule.
func (l *xskLease) talk() error {
	for {
		kind, b, fds, err := readMessage(l.conn, 0)
		closeFDs(fds)
		if why := l.reason.Load(); why != nil {
			return errors.New(*why)
		}
		if err != nil {
			return err
		}
		switch {
		case kind == xskAttach:
			err = l.attach(b)
		case (kind == xskGiven || kind == xskCounts) && l.c == nil:
			err = writeMessage(l.conn, xskRefusal(xskRefused, "attach to a queue first"))
		case kind == xskGiven:
			b := make([]byte, xskHeader+4)
			putHeader(b, xskGiven|xskAnswer, len(b))
			le.PutUint32(b[xskHeader:], l.grant.flags)
			err = writeMessage(l.conn, b)
		case kind == xskCounts:
			b := make([]byte, xskHeader, xskHeader+8*len(xskCountNames))
			putHeader(b, xskCounts|xskAnswer, xskHeader)
			for i, n := range l.c.xsk.stats.countsOf() {
				b = le.AppendUint64(b, n-l.before[i])
			}
			le.PutUint32(b[8:], uint32(len(b)))
			err = writeMessage(l.conn, b)
		default:
			return fmt.Errorf("%w: a message of kind %#x", errXSKProtocol, kind)
		}
		if err != nil {
			return err
		}
	}
}

// attach answers a request for a queue. What cannot be met is answered with the
// reason, and the client may ask again.
func (l *xskLease) attach(b []byte) error {
	r, err := decodeRequest(b)
	if err != nil {
		return err
	}
	if l.c != nil {
		return writeMessage(l.conn, xskRefusal(xskRefused, fmt.Sprintf("this connection has queue %d already: open another for a second", l.c.index)))
	}
	var fds []int
	if fds, err = l.open(r); err != nil {
		again := l.undo.run()
		l.c = nil
		l.dismiss()
		if again != nil {
			l.server.log.Warn("-xsk-listen: " + again.Error())
		}
		return writeMessage(l.conn, xskRefusal(xskRefused, err.Error()))
	}
	l.server.lives.Add(1)
	return writeMessage(l.conn, l.grant.encode(), fds...)
}

// open makes what a request asks for, each step with its undo. Whatever can be
// refused is refused before there is memory for it.
func (l *xskLease) open(r xskRequest) (fds []int, err error) {
	if int64(r.port) >= int64(len(l.server.nics)) {
		return nil, wishf("port %d: there are 0 to %d", r.port, len(l.server.nics)-1)
	}
	n := l.server.nics[r.port]
	c, err := n.xskChannel(int(r.queue))
	if err != nil {
		return nil, err
	}
	if err := r.umem.check(); err != nil {
		return nil, err
	}
	places, ringSize, err := layoutRings(r.entries)
	if err != nil {
		return nil, err
	}
	if err := l.reserve(c, r, ringSize); err != nil {
		return nil, err
	}
	if l.waker, err = l.server.wakerFor(c); err != nil {
		return nil, err
	}
	frames, err := newSharedMemory("mlx5d-umem", r.umem.bytes())
	if err != nil {
		return nil, err
	}
	l.undo.add("UMEM", frames.close)
	rings, err := newSharedMemory("mlx5d-rings", ringSize)
	if err != nil {
		return nil, err
	}
	l.undo.add("rings", rings.close)
	u, err := newUMEM(n.mem, frames.b, r.umem)
	if err != nil {
		return nil, err
	}
	l.undo.add("UMEM's mapping", func() error { return u.close(n.mem) })
	l.sock = newSocket(u, rings.b, places)
	l.sock.wakeups, l.sock.multi, l.sock.bell = r.flags&xskNeedWakeup != 0, r.flags&xskMultiBuffer != 0, l.waker.bell
	l.before = c.xsk.stats.countsOf()
	if err := c.bindXSK(l.sock); err != nil {
		return nil, err
	}
	l.held = false
	l.undo.add("socket", c.detachXSK)
	l.c = c
	l.grant = xskGrant{flags: r.flags | xskZeroCopy, queue: uint32(c.xsk.number), mtu: uint32(c.xsk.mtu),
		mac: [6]byte(c.xskTo.mac), index: uint16(c.index), start: u.start(), room: u.room(), umemSize: uint64(len(frames.b)), ringSize: uint64(ringSize), places: places}
	l.watch()
	return []int{frames.fd, rings.fd, l.waker.kick, l.waker.wake}, nil
}

// reserveWait is how long a client waits for a queue that another one has: who is
// started anew right after it was killed meets its own remains.
const reserveWait = time.Second

// reserve keeps the queue for the request and takes its memory off what all may have.
func (l *xskLease) reserve(c *channel, r xskRequest, ringSize int) error {
	shape, size := r.umem.shape(), r.umem.bytes()+ringSize
	if err := c.checkXSK(&shape, r.flags&xskMultiBuffer != 0); err != nil {
		return err
	}
	for end := time.Now().Add(reserveWait); ; time.Sleep(time.Millisecond) {
		err := c.reserveXSK(&shape, r.flags&xskMultiBuffer != 0)
		if err == nil {
			break
		}
		if !errors.Is(err, errHasSocket) || time.Now().After(end) {
			return err
		}
	}
	l.held = true
	l.undo.add("queue", func() error {
		if l.held {
			c.freeXSK()
		}
		l.held = false
		return nil
	})
	if err := l.server.mem.take(size); err != nil {
		return err
	}
	l.undo.add("memory", func() error { l.server.mem.give(size); return nil })
	return nil
}

// What a client that has left may still hold: the goroutine of its wake-ups (xskwake.go)
// and memory. The end of a lease waits for each so long; what is left behind then has a
// goroutine that waits on, and a thread, of which there are not endlessly many.
const (
	wakerPatience  = 500 * time.Millisecond
	memoryPatience = 3 * time.Second // it takes a while to give back gigabytes
	strayPause     = 100 * time.Millisecond
	mostStrays     = xskClients
)

var wakerPause = time.Millisecond // tests change it

// wakerFor passes wake-ups between channel c and a client.
func (s *xskServer) wakerFor(c *channel) (*xskWaker, error) {
	if n := s.stray.Load(); n >= mostStrays {
		return nil, wishf("clients that have left still hold %d things of ours, wake-ups or memory: end these processes", n)
	}
	w, err := newXSKWaker(c.vec)
	if err == nil {
		go w.run()
	}
	return w, err
}

// dismiss ends the lease's wake-ups, which no channel uses any more. Nobody waits for
// longer than that for a goroutine that its client does not let go.
func (l *xskLease) dismiss() {
	w, s := l.waker, l.server
	if l.waker = nil; w == nil {
		return
	}
	if w.halt(); w.gone(wakerPatience, wakerPause) {
		return
	}
	s.leaveBehind("the wake-ups to it", func() {
		for !w.gone(time.Hour, strayPause) {
		}
	})
}

// free gives back the memory, which the device has let go of. The kernel takes its pages
// only between two writes to the file, and a client may have one of its own that
// sleeps. Until it is free it counts as taken.
func (l *xskLease) free() error {
	rest, freed := l.undo, make(chan error, 1)
	l.undo = undo{}
	go func() { freed <- rest.run() }()
	select {
	case err := <-freed:
		return err
	case <-time.After(memoryPatience):
		l.server.leaveBehind("its memory", func() { <-freed })
		return nil
	}
}

// leaveBehind has what a client that has left does not let go waited for by nobody else.
func (s *xskServer) leaveBehind(what string, wait func()) {
	s.log.Warn("-xsk-listen: a client that has left still holds " + what + ": end that process")
	s.stray.Add(1)
	go func() {
		wait()
		s.stray.Add(-1)
	}()
}

// watch ends the talk when the driver has given up on the client.
func (l *xskLease) watch() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.done.Go(func() {
		select {
		case why := <-l.sock.fault:
			l.reason.Store(&why)
			_ = l.conn.CloseRead()
		case <-ctx.Done():
		}
	})
}

// end takes back all that the client had: first the queue, then what it used.
// When it returns an error the device may still use the memory, which stays.
func (l *xskLease) end() error {
	if l.c == nil {
		return nil
	}
	last := len(l.undo.steps) - 1
	detached := l.undo.steps[last].do()
	l.undo.steps = l.undo.steps[:last]
	l.stop()
	l.done.Wait()
	l.c = nil
	defer l.dismiss() // last: it may take a while
	l.server.lives.Add(-1)
	if detached != nil {
		return detached
	}
	mapping := undo{steps: l.undo.steps[last-1:]}
	l.undo.steps = l.undo.steps[:last-1]
	return errors.Join(mapping.run(), l.free())
}
