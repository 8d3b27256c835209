// Package vfiouser offers an emulated PCI device to a virtual machine: it is
// the server side of the vfio-user protocol (version 0) over a UNIX socket.
//
// This file owns sockets, clients and the life of a session; protocol.go the
// bytes on the wire; session.go what each message does; memory.go the client's
// memory. None of them knows what the device is.
//
// A socket has one client at a time. Everything that a client lent (memory,
// interrupt descriptors) is dropped the moment it goes, however it goes, and
// the device is reset, as the kernel resets a function whose file is closed.
package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Device is what the server needs of a PCI function. Its methods may be called
// from any goroutine. When SetIRQ, UnmapDMA, UnmapAllDMA or Reset returns, the
// device no longer uses what was taken from it.
type Device interface {
	// BAR is region 0; BARFile a memfd with the same bytes.
	BAR() []byte
	BARFile() int
	// Read and Write are trapped accesses to region 0, inside its size. What a
	// write sets off is done when it returns.
	Read(off int, p []byte)
	Write(off int, p []byte)
	// ReadConfig and WriteConfig access the 4096 bytes of configuration space.
	ReadConfig(off int, p []byte)
	WriteConfig(off int, p []byte)
	MapDMA(iova uint64, mem []byte, writable bool) error
	UnmapDMA(iova, size uint64) error
	UnmapAllDMA()
	// SetIRQ binds an MSI-X vector; nil unbinds it. fire does not block.
	SetIRQ(vector int, fire func())
	Vectors() int
	Reset()
	// Step runs one bounded turn and says whether there was work.
	Step() bool
	// Run steps until stop is closed and costs next to nothing when idle.
	Run(stop <-chan struct{})
}

// Area is a part of BAR0, in bytes, whole pages.
type Area struct{ Offset, Size int }

// Options tune a server.
type Options struct {
	// Doorbells are the parts of BAR0 that the client may map as memory.
	// Without them every access to BAR0 is a message, and a doorbell has been
	// served before the client goes on.
	Doorbells []Area
	// Attached is told when a client has come. Detached is told that it is
	// gone, and why, before the device is reset: its objects and counters still
	// stand. err is nil when the client closed its socket between two messages.
	// Both may be nil. They are called from Serve and must not block: what the
	// client lent is dropped next.
	Attached func()
	Detached func(err error)
}

// Server offers one device on one socket.
type Server struct {
	dev  Device
	opts Options
	path string
	lis  *net.UnixListener

	mu     sync.Mutex
	client *net.UnixConn
	closed bool
}

// Configuration space: its size, and where it says which interrupt pin is used.
const (
	configSize = 4096
	configPin  = 0x3d
)

// Listen creates the socket at path. A socket file that is left over from a
// server that is gone is replaced; one that answers is an error, and so is any
// other kind of file.
func Listen(path string, dev Device, opts Options) (*Server, error) {
	if err := checkAreas(dev, opts.Doorbells); err != nil {
		return nil, err
	}
	if err := clearPath(path); err != nil {
		return nil, err
	}
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("vfio-user: listening: %w", err)
	}
	return &Server{dev: dev, opts: opts, path: path, lis: lis}, nil
}

// clearPath removes a stale socket.
func clearPath(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("vfio-user: looking at %s: %w", path, err)
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("vfio-user: %s exists and is no socket: choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("vfio-user: %s is served already: choose another path or stop the other server", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("vfio-user: removing the stale socket: %w", err)
	}
	return nil
}

// checkAreas refuses to share what is not whole pages of BAR0, and a memfd
// that a client could shrink under the device.
func checkAreas(dev Device, areas []Area) error {
	if len(areas) == 0 {
		return nil
	}
	for _, a := range areas {
		if a.Offset < 0 || a.Size <= 0 || a.Offset%pageSize != 0 || a.Size%pageSize != 0 || a.Size > len(dev.BAR()) || a.Offset > len(dev.BAR())-a.Size {
			return fmt.Errorf("vfio-user: doorbell area %#x+%#x is not whole pages of BAR0", a.Offset, a.Size)
		}
	}
	if dev.BARFile() < 0 {
		return errors.New("vfio-user: BAR0 is not shared memory: doorbells can't be mapped")
	}
	if !sealedAgainstShrinking(dev.BARFile()) {
		return errors.New("vfio-user: BAR0's memfd can't be sealed against shrinking: doorbells can't be mapped")
	}
	return nil
}

// Serve takes clients, one after the other, until ctx is done or the server is
// closed; then it returns nil. The device runs all the while.
func (s *Server) Serve(ctx context.Context) error {
	stop := make(chan struct{})
	var ran sync.WaitGroup
	ran.Add(1)
	go func() {
		defer ran.Done()
		s.dev.Run(stop)
	}()
	defer ran.Wait()
	defer close(stop)
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	for {
		conn, err := s.lis.AcceptUnix()
		if err != nil {
			if s.isClosed() {
				return nil
			}
			return fmt.Errorf("vfio-user: accepting a client: %w", err)
		}
		s.attend(conn)
	}
}

// attend serves one client from its first byte to its last.
func (s *Server) attend(conn *net.UnixConn) {
	if !s.enter(conn) {
		_ = conn.Close()
		return
	}
	if s.opts.Attached != nil {
		s.opts.Attached()
	}
	ses := newSession(s.dev, s.opts.Doorbells, newChannel(conn))
	err := ses.run()
	if errors.Is(err, io.EOF) || s.isClosed() {
		err = nil
	}
	if s.opts.Detached != nil {
		s.opts.Detached(err)
	}
	ses.quiesce()
	s.dev.Reset()
	s.leave()
	_ = conn.Close()
}

func (s *Server) enter(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.client = conn
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = nil
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends Serve and drops the client. It may be called more than once and
// from any goroutine. The device stays the caller's.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.client != nil {
		_ = s.client.Close()
	}
	return s.lis.Close()
}

// sealedAgainstShrinking reports whether a memfd can never become shorter, and
// makes it so where that is still possible. A file that shrinks under a mapping
// kills who touches it.
func sealedAgainstShrinking(fd int) bool {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return false
	}
	if seals&unix.F_SEAL_SHRINK != 0 {
		return true
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	return err == nil
}
