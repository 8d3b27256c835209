package model

// wire_join.go owns the wires that carry frames back into this process: loop,
// where a port hears itself, and Join, a cable between two ports. It does not
// own what the ports do with the frames. It stands outside the manual.
//
// Both are built on frameQueue. A device calls its wire with its own lock held,
// so the order of locks is device, then queue; a queue never calls out, which
// is why two devices on one cable cannot deadlock.

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueFrames and queueBytes bound what is under way in one direction. 4096
	// frames of 1514 bytes and more fit; of longer ones fewer do.
	queueFrames = 4096
	queueBytes  = 8 << 20
)

// frameQueue holds copies of frames in order. Any goroutine may put; one at a
// time may peek and take. The consumer takes no lock: head and tail order what
// each side wrote for the other. The frames lie in one ring of bytes, each in
// one piece.
type frameQueue struct {
	head, tail atomic.Uint64 // frames ever taken, ever put
	dropped    atomic.Uint64
	spans      []frameSpan // by number modulo queueFrames
	bytes      []byte

	put   sync.Mutex
	write int // where the next frame may start; under put
}

type frameSpan struct{ start, length int }

// add copies the frame to the end, or drops and counts it where it does not fit.
func (q *frameQueue) add(frame []byte) {
	q.put.Lock()
	defer q.put.Unlock()
	if q.spans == nil {
		q.spans, q.bytes = make([]frameSpan, queueFrames), make([]byte, queueBytes)
	}
	tail := q.tail.Load()
	start := q.room(tail, max(len(frame), 1))
	if start < 0 {
		q.dropped.Add(1)
		return
	}
	copy(q.bytes[start:], frame)
	q.spans[tail%queueFrames] = frameSpan{start, len(frame)}
	q.write = start + max(len(frame), 1)
	q.tail.Store(tail + 1)
}

// room finds n bytes in one piece, or returns -1. The bytes from the oldest
// frame up to write are in use; write never catches up with that frame, so that
// write == start means that all of them lie behind it.
func (q *frameQueue) room(tail uint64, n int) int {
	head := q.head.Load()
	if tail == head {
		q.write = 0
		if n <= len(q.bytes) {
			return 0
		}
		return -1
	}
	if tail-head == queueFrames {
		return -1
	}
	oldest := q.spans[head%queueFrames].start
	switch {
	case q.write > oldest && q.write+n <= len(q.bytes):
		return q.write
	case q.write > oldest && n < oldest:
		return 0
	case q.write < oldest && q.write+n < oldest:
		return q.write
	}
	return -1
}

func (q *frameQueue) empty() bool { return q.head.Load() == q.tail.Load() }

// peek returns the oldest frame, or nil. It stays valid until take.
func (q *frameQueue) peek() []byte {
	head := q.head.Load()
	if head == q.tail.Load() {
		return nil
	}
	s := q.spans[head%queueFrames]
	return q.bytes[s.start : s.start+s.length : s.start+s.length]
}

// take drops the oldest frame, if there is one.
func (q *frameQueue) take() {
	if !q.empty() {
		q.head.Add(1)
	}
}

// loopWire is a plug whose transmit pair is wired to its receive pair. Frames
// wait for the receiver; a transmitter that runs ahead by more than the queue
// loses frames, which Dropped counts.
type loopWire struct{ queue frameQueue }

func newLoop() *loopWire { return &loopWire{} }

func (w *loopWire) Peek(time.Time) []byte { return w.queue.peek() }
func (w *loopWire) Take()                 { w.queue.take() }
func (w *loopWire) Lossless() bool        { return true }
func (w *loopWire) Transmit(frame []byte) { w.queue.add(frame) }
func (w *loopWire) Done() bool            { return false }
func (w *loopWire) LinkUp() bool          { return true }
func (w *loopWire) Close() error          { return nil }

// Dropped counts the frames that found the queue full.
func (w *loopWire) Dropped() uint64 { return w.queue.dropped.Load() }

// Join returns the two ends of a cable. What one end transmits the other one
// receives, up to 4096 frames or 8 MiB under way each way; the end that sent
// more counts them in Dropped. Frames that find no receive buffer are lost, as
// on a real cable; method SetLossless(true) of an end makes that end's receiver
// let them wait. Closing one end takes the carrier from both, and the other end
// is done when it has taken what was under way.
func Join() (a, b Wire) {
	c := &cable{}
	return &cableEnd{c: c, in: &c.queues[0], out: &c.queues[1], own: &c.closed[0], peer: &c.closed[1]},
		&cableEnd{c: c, in: &c.queues[1], out: &c.queues[0], own: &c.closed[1], peer: &c.closed[0]}
}

type cable struct {
	queues [2]frameQueue // by receiving end
	closed [2]atomic.Bool
}

type cableEnd struct {
	c         *cable
	in, out   *frameQueue
	own, peer *atomic.Bool
	lossless  atomic.Bool
}

func (e *cableEnd) Peek(time.Time) []byte { return e.in.peek() }
func (e *cableEnd) Take()                 { e.in.take() }
func (e *cableEnd) Lossless() bool        { return e.lossless.Load() }

// SetLossless makes frames wait at this end until its receiver takes them, for those
// who test a driver.
func (e *cableEnd) SetLossless(on bool) { e.lossless.Store(on) }

func (e *cableEnd) Transmit(frame []byte) {
	if e.own.Load() || e.peer.Load() {
		e.out.dropped.Add(1)
		return
	}
	e.out.add(frame)
}

func (e *cableEnd) Done() bool   { return (e.own.Load() || e.peer.Load()) && e.in.empty() }
func (e *cableEnd) LinkUp() bool { return !e.own.Load() && !e.peer.Load() }

func (e *cableEnd) Close() error {
	e.own.Store(true)
	return nil
}

// Dropped counts the frames this end sent that the cable lost.
func (e *cableEnd) Dropped() uint64 { return e.out.dropped.Load() }
