package main

// xskclient.go owns the other side of -xsk-listen: attaching to a queue of another
// process, sleeping and waking. It does not own the bytes spoken (xskproto.go), the
// work on the rings (xskapp.go), nor a whole run of such a process (xskattach.go).
//
// After the answer there are no more messages: packets go through the rings. There
// is a system call only where one side sleeps.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// xskClient is a queue that another process gave us.
type xskClient struct {
	conn  *net.UnixConn
	grant xskGrant
	mem   []byte
	rings []byte
	app   *xskApp
	kick  int
	wake  *os.File
	over  chan error  // why the other side ended it
	said  chan []byte // answers to xskCounts; listen writes it
	undo  undo
}

// dialXSK attaches to a queue of the process that listens at path.
func dialXSK(path string, r xskRequest) (c *xskClient, err error) {
	c = &xskClient{over: make(chan error, 1), said: make(chan []byte, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.undo.run())
		}
	}()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return c, fmt.Errorf("-attach: %w (an appliance with -xsk-listen makes this socket)", err)
	}
	c.conn = conn.(*net.UnixConn)
	c.undo.add("connection", c.conn.Close)
	if err := writeMessage(c.conn, r.encode()); err != nil {
		return c, fmt.Errorf("-attach: %w", err)
	}
	kind, b, fds, err := readMessage(c.conn, xskFDs)
	if err != nil {
		return c, fmt.Errorf("-attach: %w", err)
	}
	c.undo.add("file descriptors", func() error { closeFDs(fds); return nil })
	switch {
	case kind == xskRefused || kind == xskClosed:
		return c, wishf("-attach: refused: %s", b[xskHeader:])
	case kind != xskAttach|xskAnswer || len(fds) != xskFDs:
		return c, fmt.Errorf("-attach: %w: an answer of kind %#x with %d file descriptors", errXSKProtocol, kind, len(fds))
	}
	if c.grant, err = decodeGrant(b); err != nil {
		return c, err
	}
	return c, c.open(r, fds)
}

// open maps what came with the answer.
func (c *xskClient) open(r xskRequest, fds []int) (err error) {
	for _, m := range []struct {
		to   *[]byte
		fd   int
		size uint64
	}{{&c.mem, fds[xskFDUMEM], c.grant.umemSize}, {&c.rings, fds[xskFDRings], c.grant.ringSize}} {
		var st unix.Stat_t
		if err := unix.Fstat(m.fd, &st); err != nil || st.Size < int64(m.size) || m.size > maxUMEM {
			return fmt.Errorf("-attach: %w: a file shorter than the answer says", errXSKProtocol)
		}
		if *m.to, err = unix.Mmap(m.fd, 0, int(m.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return fmt.Errorf("-attach: %w", err)
		}
		b := *m.to
		c.undo.add("shared memory", func() error { return unix.Munmap(b) })
	}
	if uint64(r.umem.bytes()) != c.grant.umemSize {
		return fmt.Errorf("-attach: %w: a UMEM of %d bytes", errXSKProtocol, c.grant.umemSize)
	}
	wake, err := unix.FcntlInt(uintptr(fds[xskFDWake]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("-attach: %w", err)
	}
	c.kick, c.wake = fds[xskFDKick], os.NewFile(uintptr(wake), "wake")
	c.undo.add("wake-ups", c.wake.Close)
	c.app = newXSKApp(c.mem, r.umem.frame, c.rings, c.grant.places)
	return nil
}

// close gives the queue back.
func (c *xskClient) close() error { return c.undo.run() }

// listen reads what the other side says after the answer: counters that were asked for,
// and why it ends.
func (c *xskClient) listen() {
	kind, b, fds, err := readMessage(c.conn, 0)
	closeFDs(fds)
	for err == nil && kind == xskCounts|xskAnswer {
		select {
		case <-c.said: // it came too late for who asked
		default:
		}
		c.said <- b[xskHeader:]
		kind, b, fds, err = readMessage(c.conn, 0)
		closeFDs(fds)
	}
	switch {
	case err == nil && kind == xskClosed:
		err = fmt.Errorf("the appliance has taken the queue back: %s", b[xskHeader:])
	case err == nil || errors.Is(err, io.EOF):
		err = errors.New("the appliance has gone")
	}
	c.over <- err
	_ = c.wake.SetReadDeadline(time.Unix(1, 0))
}

// ask sends a request without a body and returns the answer's.
func (c *xskClient) ask(kind int) ([]byte, error) {
	b := make([]byte, xskHeader)
	putHeader(b, kind, xskHeader)
	if err := writeMessage(c.conn, b); err != nil {
		return nil, err
	}
	got, b, fds, err := readMessage(c.conn, 0)
	closeFDs(fds)
	if err == nil && got != kind|xskAnswer {
		err = fmt.Errorf("%w: an answer of kind %#x: %s", errXSKProtocol, got, b[xskHeader:])
	}
	if err != nil {
		return nil, err
	}
	return b[xskHeader:], nil
}

// countsPatience is how long the other side may take to tell its counters.
const countsPatience = time.Second

// counts asks for the socket's counters while listen reads; nil where they do not come.
func (c *xskClient) counts() []byte {
	b := make([]byte, xskHeader)
	putHeader(b, xskCounts, xskHeader)
	if writeMessage(c.conn, b) != nil {
		return nil
	}
	select {
	case b := <-c.said:
		return b
	case err := <-c.over:
		c.over <- err // for whoever asks next
	case <-time.After(countsPatience):
	}
	return nil
}

// nudge wakes the driver where it asks for that.
func (c *xskClient) nudge() {
	if c.app.tx.wants() || c.app.fill.wants() {
		_, _ = unix.Write(c.kick, wakeOne[:])
	}
}

// sleep waits for the driver, most at the longest, and reports whether that did
// anything.
func (c *xskClient) sleep(most time.Duration) (woken bool) {
	a := c.app
	a.rx.ask(true)
	a.comp.ask(true)
	n, _ := a.rx.ready(1)
	k, _ := a.comp.ready(1)
	if woken = n != 0 || k != 0; !woken {
		var b [8]byte
		if c.wake.SetReadDeadline(time.Now().Add(most)) == nil {
			_, err := c.wake.Read(b[:])
			woken = err == nil
		}
	}
	a.rx.ask(false)
	a.comp.ask(false)
	return woken
}

// clientSpins is how many empty turns come before a sleep, clientSleep how long
// one may be.
const (
	clientSpins = 200
	clientSleep = 100 * time.Millisecond
)

// work does mode until done says so, with as many of n packets as left lets through.
// A busy client never sleeps.
func (c *xskClient) work(mode string, size int, busy bool, left func(n int) int, done func() bool) {
	if mode != modeSend {
		c.app.giveFrames(len(c.app.free))
		c.nudge()
	}
	for idle := 0; !done(); {
		n := 0
		switch mode {
		case modeDrop:
			n = c.app.drop(left(napiBudget))
		case modeForward:
			n = c.app.forward(left(napiBudget), true)
		default:
			n = c.app.send(left(napiBudget), size)
		}
		c.nudge()
		if n > 0 || busy {
			idle = 0
		} else if idle++; idle > clientSpins {
			c.sleep(clientSleep)
			idle = 0
		}
	}
}
