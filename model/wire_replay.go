package model

// wire_replay.go owns the wire that plays a capture file. It does not own the
// file formats (pcapfile.go) or the pace (wire.go). It stands outside the
// manual.
//
// A record's captured bytes go out as one frame: not padded, not completed, and
// without the frame check sequence where the file says that there is one.
// Files up to preloadLimit lie in memory before the first frame; larger ones
// are read ahead by a goroutine, so that no device ever waits for a disk.

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// preloadLimit is the largest file, in bytes, that is held in memory.
	preloadLimit = 256 << 20
	// batchBytes is when a batch of frames is full; one more frame still fits.
	batchBytes = 1 << 20
	// readAhead is the number of batches of a file that is not in memory.
	readAhead = 4
	// longestGap bounds the pause between two records under realtime. It is there
	// for damaged time stamps, which can lie decades apart.
	longestGap = time.Minute
)

// frameBatch is a run of frames in file order.
type frameBatch struct {
	bytes []byte
	ends  []int           // of each frame in bytes
	gaps  []time.Duration // from the record before, 0 to longestGap
}

// noFrames is nobody's to write to.
var noFrames = &frameBatch{}

func (b *frameBatch) frame(i int) []byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.bytes[start:b.ends[i]:b.ends[i]]
}

// captureScan turns a capture into batches.
type captureScan struct {
	r       *CaptureReader
	last    time.Time
	begun   bool
	frames  uint64
	skipped uint64 // records that are not Ethernet
}

// fill puts frames into b, whose old content is gone, until it is full or the
// file ends, well (io.EOF) or not.
func (s *captureScan) fill(b *frameBatch) error {
	b.bytes, b.ends, b.gaps = b.bytes[:0], b.ends[:0], b.gaps[:0]
	for len(b.bytes) < batchBytes && len(b.ends) < batchBytes/64 {
		rec, err := s.r.Next()
		if err != nil {
			return err
		}
		if rec.LinkType != LinkEthernet {
			s.skipped++
			continue
		}
		s.frames++
		b.bytes = append(b.bytes, withoutFCS(&rec)...)
		b.ends = append(b.ends, len(b.bytes))
		b.gaps = append(b.gaps, s.gap(rec.Time))
	}
	return nil
}

// gap is the time since the record before: never negative, as stamps may run
// backwards, and never longer than longestGap.
func (s *captureScan) gap(t time.Time) time.Duration {
	last, first := s.last, !s.begun
	s.last, s.begun = t, true
	if first {
		return 0
	}
	return max(0, min(t.Sub(last), longestGap))
}

// withoutFCS cuts off as much of a declared frame check sequence as was captured.
func withoutFCS(rec *Record) []byte {
	if rec.FCSLen == 0 {
		return rec.Data
	}
	return rec.Data[:max(0, min(len(rec.Data), rec.OrigLen-rec.FCSLen))]
}

// frameFeed hands out batches. It returns nil when there is none yet, and with
// over when there will be none any more.
type frameFeed interface {
	next() (b *frameBatch, over bool)
	close() error
}

type replayWire struct {
	name    string
	feed    frameFeed
	pace    pacer
	batch   *frameBatch
	pos     int  // of the next frame in batch
	waited  bool // the next frame's gap is in the pace
	over    bool // the feed has no more
	damage  error
	failed  atomic.Pointer[error] // damage, once the good frames are taken
	skipped *atomic.Uint64
}

// openReplay opens a file and reads enough of it to know that it can be played.
func openReplay(s *wireSpec) (Wire, error) {
	w, err := newReplay(s.arg, newPacer(s), s.numberOr("loop", 1), preloadLimit)
	if err != nil {
		return nil, inputError("replay %s: %w", s.arg, err)
	}
	return w, nil
}

func newReplay(path string, pace pacer, loops uint64, limit int64) (*replayWire, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plainPathError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plainPathError(err)
	}
	w := &replayWire{name: path, pace: pace, batch: noFrames, skipped: &atomic.Uint64{}}
	if info.Size() > limit {
		return w, w.stream(f, loops)
	}
	defer f.Close()
	return w, w.preload(f, loops)
}

// plainPathError drops the path, which the caller names.
func plainPathError(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// preload reads the whole file. One that is damaged is played once, so that the
// damage is told after its good records and not after for ever.
func (w *replayWire) preload(f io.Reader, loops uint64) error {
	r, err := NewReader(f)
	if err != nil {
		return err
	}
	m := &memoryFeed{loops: loops, forever: loops == 0}
	scan := captureScan{r: r}
	for err == nil {
		b := &frameBatch{}
		err = scan.fill(b)
		if len(b.ends) > 0 {
			m.batches = append(m.batches, b)
		}
	}
	w.skipped.Store(scan.skipped)
	w.feed = m
	if err != io.EOF {
		m.loops, m.forever, w.damage = 1, false, err
	}
	return playable(&scan, err)
}

// playable judges a scan that ended with err: is there anything to play?
func playable(s *captureScan, err error) error {
	if s.frames > 0 {
		return nil
	}
	if err != io.EOF {
		return err
	}
	var names []string
	for _, l := range s.r.LinkTypes() {
		if l == LinkEthernet {
			return nil // an empty capture
		}
		names = append(names, l.String())
	}
	if len(names) == 0 {
		return errors.New("the file describes no interface, so there is nothing to play")
	}
	return errors.New("link type " + strings.Join(names, ", ") + ": only " + LinkEthernet.String() + ", Ethernet, can be played")
}

// refill makes pos a frame of batch, or returns false.
func (w *replayWire) refill() bool {
	for w.pos >= len(w.batch.ends) {
		if w.over {
			return false
		}
		w.batch, w.pos = noFrames, 0 // the old one goes back to the feed
		b, over := w.feed.next()
		if over {
			w.finish()
			return false
		}
		if b == nil {
			return false
		}
		w.batch = b
	}
	return true
}

// finish ends the traffic and lets the damage be seen.
func (w *replayWire) finish() {
	w.over = true
	if s, ok := w.feed.(*streamFeed); ok {
		w.damage = s.damage
	}
	if w.damage != nil {
		err := inputError("replay %s: %w", w.name, w.damage)
		w.failed.Store(&err)
	}
}

// Peek returns the next frame that is due. Its length may be 0.
func (w *replayWire) Peek(now time.Time) []byte {
	if w.pos >= len(w.batch.ends) && !w.refill() {
		return nil
	}
	if !w.waited {
		w.pace.wait(w.batch.gaps[w.pos])
		w.waited = true
	}
	if !w.pace.ready(now) {
		return nil
	}
	return w.batch.frame(w.pos)
}

// Take moves on to the next frame.
func (w *replayWire) Take() {
	if w.pos >= len(w.batch.ends) {
		return
	}
	w.pace.sent(len(w.batch.frame(w.pos)))
	w.pos++
	w.waited = false
}

func (w *replayWire) Lossless() bool { return !w.pace.paced() }

// Transmit lets the frame go: a recording does not listen.
func (w *replayWire) Transmit([]byte) {}
func (w *replayWire) Done() bool      { return !w.refill() && w.over }
func (w *replayWire) LinkUp() bool    { return true }

func (w *replayWire) Close() error {
	w.batch, w.pos, w.over = noFrames, 0, true
	return w.feed.close()
}

// Err is the damage of the file, an *InputError, once all good records before
// it are taken; nil before that and for a sound file.
func (w *replayWire) Err() error {
	if p := w.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Skipped counts the records of the file that are not Ethernet, once each
// however often the file is played.
func (w *replayWire) Skipped() uint64 { return w.skipped.Load() }

// memoryFeed plays batches that are all in memory.
type memoryFeed struct {
	batches []*frameBatch
	pos     int
	loops   uint64 // times to play, this one included
	forever bool
}

func (m *memoryFeed) next() (*frameBatch, bool) {
	if m.pos == len(m.batches) {
		if m.loops--; len(m.batches) == 0 || m.loops == 0 && !m.forever {
			m.batches, m.pos = nil, 0
			return nil, true
		}
		m.pos = 0
	}
	m.pos++
	return m.batches[m.pos-1], false
}

func (m *memoryFeed) close() error {
	m.batches, m.pos = nil, 0
	return nil
}

// streamFeed plays a file that a goroutine reads ahead. Batches go round
// between the two, so their number bounds the memory.
type streamFeed struct {
	f       *os.File
	full    chan *frameBatch // closed behind the last one
	empty   chan *frameBatch
	stop    chan struct{}
	stopped chan struct{}
	current *frameBatch // lent to the wire
	damage  error       // written before full is closed, read after
	closed  bool
}

// stream checks the file up to its first Ethernet record and starts reading.
func (w *replayWire) stream(f *os.File, loops uint64) error {
	err := checkStream(f)
	if err != nil {
		f.Close()
		return err
	}
	s := &streamFeed{f: f, full: make(chan *frameBatch, readAhead), empty: make(chan *frameBatch, readAhead),
		stop: make(chan struct{}), stopped: make(chan struct{})}
	for range readAhead {
		s.empty <- &frameBatch{}
	}
	w.feed = s
	go s.run(loops, w.skipped)
	return nil
}

func checkStream(f io.Reader) error {
	r, err := NewReader(f)
	if err != nil {
		return err
	}
	scan := captureScan{r: r}
	for err == nil && scan.frames == 0 {
		var rec Record
		if rec, err = r.Next(); err == nil && rec.LinkType == LinkEthernet {
			scan.frames++
		}
	}
	return playable(&scan, err)
}

// run reads the file as often as asked, until it is damaged or stop is closed.
func (s *streamFeed) run(loops uint64, skipped *atomic.Uint64) {
	defer close(s.stopped)
	defer close(s.full)
	for pass := uint64(0); pass < loops || loops == 0; pass++ {
		counter := skipped
		if pass > 0 {
			counter = nil
		}
		err := s.play(counter)
		if err == errStreamStopped {
			return
		}
		if err != io.EOF {
			s.damage = err
			return
		}
	}
}

var errStreamStopped = errors.New("the wire was closed")

// play reads the file once. It returns io.EOF at its end.
func (s *streamFeed) play(skipped *atomic.Uint64) error {
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := NewReader(s.f)
	if err != nil {
		return err
	}
	scan := captureScan{r: r}
	for err == nil {
		var b *frameBatch
		select {
		case b = <-s.empty:
		case <-s.stop:
			return errStreamStopped
		}
		err = scan.fill(b)
		if skipped != nil {
			skipped.Add(scan.skipped)
			scan.skipped = 0
		}
		s.full <- b // has room for every batch there is
	}
	if err == io.EOF && scan.frames == 0 {
		return errors.New("the file was changed while it was played")
	}
	return err
}

func (s *streamFeed) next() (*frameBatch, bool) {
	if s.current != nil {
		s.empty <- s.current
		s.current = nil
	}
	select {
	case b, ok := <-s.full:
		s.current = b
		return b, !ok
	default:
		return nil, false
	}
}

func (s *streamFeed) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.stop)
	<-s.stopped
	return s.f.Close()
}
