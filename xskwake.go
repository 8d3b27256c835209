package main

// xskwake.go owns how wake-ups pass between a channel and a client in another process:
// the eventfds of both directions and the goroutine that stands between them. It does
// not own when a channel has something to tell (xsk.go), nor the client's other
// belongings (xskserve.go).
//
//	channel -> bell -> goroutine -> wake -> client
//	client  -> kick -> goroutine -> interrupt -> channel
//
// What a client holds too, it holds as the same file description, and whether that
// blocks is a property of the description: a client may clear O_NONBLOCK and fill the
// counter, and the next write sleeps in the kernel until somebody reads. So nobody
// writes or reads what is shared but one goroutine a client, which no other waits for.
// The channel rings a bell that is ours alone.
//
// The goroutine writes wake and never reads kick. Each write to an eventfd is an edge
// to epoll, whether or not the counter was read, also while the goroutine is between
// two waits: the kernel then keeps it for the next. A client that fills its own
// counter can kick no more, and that is all.
//
// It ends when it is told to. Where it hangs in its write then, the counter is read
// empty, which lets it go; against a client that fills it again and again that may
// take as long as the client lives. Such a goroutine is left behind. The descriptors it
// uses are closed by it, when it gets out, so that they cannot be another's meanwhile.

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// xskWaker is that for one client.
type xskWaker struct {
	bell *bell // the channel rings it
	vec  *bell // what kicks lead to
	// The goroutine's, which closes them. Others may pass them on until halt.
	epoll, kick, wake int
	spare             int           // wake again, of who ends the goroutine
	over              chan struct{} // closed by halt: nobody else uses the goroutine's descriptors from here on
	done              chan struct{} // closed by the goroutine, last
}

// newXSKWaker makes what run needs, which is to have a goroutine. halt and gone end that.
func newXSKWaker(vec *bell) (w *xskWaker, err error) {
	w = &xskWaker{vec: vec, over: make(chan struct{}), done: make(chan struct{})}
	var u undo
	defer func() {
		if err != nil {
			err = errors.Join(err, u.run())
		}
	}()
	if w.bell, err = newBell(); err != nil {
		return nil, err
	}
	u.add("bell", w.bell.close)
	for _, step := range []struct {
		what string
		to   *int
		do   func() (int, error)
	}{
		{"wake-ups of the driver", &w.kick, func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }},
		{"wake-ups of the client", &w.wake, func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }},
		{"a copy of these", &w.spare, func() (int, error) { return unix.FcntlInt(uintptr(w.wake), unix.F_DUPFD_CLOEXEC, 0) }},
		{"waiting for wake-ups", &w.epoll, func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }},
	} {
		if *step.to, err = step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		fd := *step.to
		u.add(step.what, func() error { return unix.Close(fd) })
	}
	for _, fd := range []int{w.bell.fd, w.kick} {
		if err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}); err != nil {
			return nil, fmt.Errorf("waiting for wake-ups: %w", err)
		}
	}
	return w, nil
}

// run passes wake-ups on until it is told to end, and then closes what it has used.
func (w *xskWaker) run() {
	defer close(w.done)
	for w.pass() {
	}
	<-w.over
	closeFDs([]int{w.epoll, w.kick, w.wake, w.bell.fd})
}

// pass sleeps until there are wake-ups and passes them on. It returns false when there
// are to be no more.
func (w *xskWaker) pass() bool {
	var came [2]unix.EpollEvent
	n, err := unix.EpollWait(w.epoll, came[:], -1)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	for i := range came[:n] {
		switch {
		case w.bell.stop.Load():
			return false
		case came[i].Fd == int32(w.kick):
			w.vec.ring()
		default:
			_, _ = unix.Write(w.wake, wakeOne[:]) // fails only when the client is awake anyway
		}
	}
	return true
}

// halt tells the goroutine to end. The channel must have let go of the bell.
func (w *xskWaker) halt() {
	w.bell.halt()
	close(w.over)
}

// gone waits until the goroutine has ended, most at the longest, and reports whether
// it has. Every pause it makes room for a write that hangs. Who is told true must not
// ask again.
func (w *xskWaker) gone(most, pause time.Duration) bool {
	end := time.NewTimer(most)
	defer end.Stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-w.done:
			_ = unix.Close(w.spare)
			return true
		case <-end.C:
			return false
		case <-tick.C:
			w.makeRoom()
		}
	}
}

// makeRoom reads the counter of wake, and waits for nothing: O_NONBLOCK is the client's
// as much as ours, RWF_NOWAIT is not. Where Linux has no such reads of eventfds (before
// 5.8) a goroutine that hangs stays until the client lets it go.
func (w *xskWaker) makeRoom() {
	var b [8]byte
	_, _ = unix.Preadv2(w.spare, [][]byte{b[:]}, -1, unix.RWF_NOWAIT) // fails where there is nothing to read
}
