package main

// capture.go owns the packet files that -w writes: pcap with nanosecond times
// (magic a1b23c4d) or, for a name that ends in .pcapng, pcapng with
// if_tsresol 9. It does not own what is captured (the receive path) and does not
// look into frames, but for putting back a VLAN tag that the NIC removed: the
// file holds what was on the wire.
// Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
//
// Each receive queue copies its frames into a ring of its own; one goroutine
// writes the rings out. Frames of one queue stay in order. When the disk is
// slower than the wire a frame that does not fit is dropped and counted; with
// wait the queue stands still instead, for sources that lose nothing.
//
// The file is valid at any time a write ends: writes end where records end, and
// after a failed write the file is cut back to the last whole record.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

const (
	captureSnaplen = 262144  // default, as tcpdump's
	captureRing    = 8 << 20 // default bytes of a queue's ring
	captureFlush   = 256 << 10
	captureIdle    = time.Millisecond // how long the writer sleeps when all is written
	captureBatch   = 64               // frames of one ring before the next one's turn

	// A record in the ring: header, bytes, padding to 8. A header with length
	// ringSkip sends the reader to the ring's start.
	ringHeader = 24
	ringSkip   = ^uint32(0)
)

// captureConfig says where to and how.
type captureConfig struct {
	path    string   // "-" is standard output
	file    *os.File // open already, to be emptied and closed; nil opens path
	queues  int
	snaplen int  // bytes kept of a frame, 0 for captureSnaplen
	ring    int  // bytes of each queue's ring, 0 for captureRing
	wait    bool // stand still rather than drop
}

// captureStats are totals over all queues.
type captureStats struct {
	written uint64 // frames in the file
	dropped uint64 // writer_dropped: frames that are not in the file
}

// captureFile is an open packet file.
type captureFile struct {
	rings   []captureQueue
	out     recordBuffer
	pcap    *pcapgo.Writer
	ng      *pcapgo.NgWriter
	file    *os.File
	ownFile bool // close it; not so standard output

	written atomic.Uint64
	failed  atomic.Uint64 // frames taken from rings after a failed write
	stop    atomic.Bool
	done    chan struct{}
	closing sync.Once
	err     error // of the writer goroutine; read after done
}

// captureQueue is a ring with one writer (the queue's goroutine) and one reader
// (the file's). head and tail only grow. The writer's fields fill one cache line,
// the reader's the next.
type captureQueue struct {
	buf     []byte
	snaplen int
	wait    bool
	stop    *atomic.Bool
	head    atomic.Uint64 // bytes put in
	dropped atomic.Uint64
	tail    atomic.Uint64 // bytes taken out
	_       [56]byte
}

// openCaptureFile creates the file, writes its header and starts the writer.
func openCaptureFile(c captureConfig) (*captureFile, error) {
	if c.path == "-" {
		return newCapture(c, os.Stdout, false)
	}
	f := c.file
	if f == nil {
		var err error
		if f, err = createCapture(c.path); err != nil {
			return nil, err
		}
	}
	cf, err := newCapture(c, f, true)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return cf, nil
}

// createCapture creates the file or opens the one that is there, which keeps what is
// in it for now.
func createCapture(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create capture file: %w; check -w", err)
	}
	return f, nil
}

// emptyFile takes away what is in a file; a pipe or a terminal has nothing to take away.
func emptyFile(f *os.File) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	return f.Truncate(0)
}

func newCapture(c captureConfig, f *os.File, own bool) (*captureFile, error) {
	if c.queues < 1 {
		return nil, fmt.Errorf("capture for %d queues: at least 1 is needed", c.queues)
	}
	if c.snaplen <= 0 || c.snaplen > captureSnaplen {
		c.snaplen = captureSnaplen
	}
	w := &captureFile{
		file: f, ownFile: own, rings: make([]captureQueue, c.queues), done: make(chan struct{}),
	}
	for i := range w.rings {
		q := &w.rings[i]
		q.buf = make([]byte, ringSize(c.ring))
		q.snaplen, q.wait, q.stop = c.snaplen, c.wait, &w.stop
	}
	if own {
		if err := emptyFile(f); err != nil {
			return nil, fmt.Errorf("empty capture file: %w", err)
		}
	}
	w.out.init(f)
	if err := w.header(strings.HasSuffix(c.path, ".pcapng"), c.snaplen); err != nil {
		return nil, fmt.Errorf("write header of capture file: %w", err)
	}
	go w.run()
	return w, nil
}

// ringSize is a power of two that holds at least a few of the largest frames.
func ringSize(n int) int {
	if n <= 0 {
		n = captureRing
	}
	size := 64 << 10
	for size < n {
		size *= 2
	}
	return size
}

func (w *captureFile) header(ng bool, snaplen int) (err error) {
	if !ng {
		w.pcap = pcapgo.NewWriterNanos(&w.out)
		err = w.pcap.WriteFileHeader(uint32(snaplen), layers.LinkTypeEthernet)
	} else {
		w.ng, err = pcapgo.NewNgWriterInterface(&w.out, pcapgo.NgInterface{
			Name: "mlx5d", OS: runtime.GOOS, LinkType: layers.LinkTypeEthernet,
			SnapLength: uint32(snaplen), TimestampResolution: 9,
		}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
			Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "mlx5d",
		}})
	}
	if err != nil {
		return err
	}
	return w.flush()
}

// queue is the ring of receive queue i, counted from 0.
func (w *captureFile) queue(i int) *captureQueue { return &w.rings[i] }

// put copies frame b into the ring. Only the queue's goroutine may call it.
// wireLen is the frame's length before any cut, without a tag that the NIC
// removed; such a tag is put back.
func (q *captureQueue) put(b []byte, wireLen int, meta packetMeta) {
	wireLen = max(wireLen, len(b))
	tagged := meta.stripped && len(b) >= 12
	total := len(b)
	if tagged {
		total += vlanTag
		wireLen += vlanTag
	}
	keep := min(total, q.snaplen)
	need := uint64(ringHeader+keep+7) &^ 7
	rec := q.reserve(need)
	for rec == nil && q.wait && need <= uint64(len(q.buf))/2 && !q.stop.Load() {
		time.Sleep(20 * time.Microsecond)
		rec = q.reserve(need)
	}
	if rec == nil {
		q.dropped.Add(1)
		return
	}
	binary.LittleEndian.PutUint32(rec[0:], uint32(keep))
	binary.LittleEndian.PutUint32(rec[4:], uint32(wireLen))
	binary.LittleEndian.PutUint64(rec[8:], uint64(meta.ts))
	data := rec[ringHeader : ringHeader+keep]
	if tagged {
		var tag [vlanTag]byte
		binary.BigEndian.PutUint16(tag[0:], ethVLAN)
		binary.BigEndian.PutUint16(tag[2:], meta.vlan)
		n := copy(data, b[:12])
		n += copy(data[n:], tag[:])
		copy(data[n:], b[12:])
	} else {
		copy(data, b)
	}
	q.head.Add(need)
}

// reserve returns n bytes in a row, or nil if they are not free. A record never
// wraps: the rest of the ring is skipped where it is too short.
func (q *captureQueue) reserve(n uint64) []byte {
	size := uint64(len(q.buf))
	if n > size/2 { // could wait for ever for a place in a row
		return nil
	}
	head := q.head.Load()
	at, free := head&(size-1), size-(head-q.tail.Load())
	if rest := size - at; n > rest {
		if rest+n > free {
			return nil
		}
		// Both ends are multiples of 8, so a length always fits.
		binary.LittleEndian.PutUint32(q.buf[at:], ringSkip)
		q.head.Store(head + rest)
		at, free = 0, free-rest
	}
	if n > free {
		return nil
	}
	return q.buf[at : at+n : at+n]
}

// run is the writer: it takes from the rings in turn until told to stop and all
// are empty. After a failed write it goes on taking, so that no queue waits for
// ever, and counts what it throws away.
func (w *captureFile) run() {
	defer close(w.done)
	for {
		stopping := w.stop.Load() // read before the rings: nothing comes after it
		moved := 0
		for i := range w.rings {
			moved += w.drain(&w.rings[i])
		}
		if moved != 0 {
			continue
		}
		w.keep(w.flush())
		if stopping {
			return
		}
		time.Sleep(captureIdle)
	}
}

// keep remembers the first error.
func (w *captureFile) keep(err error) {
	if err != nil && w.err == nil {
		w.err = err
	}
}

// drain writes up to captureBatch frames of one ring.
func (w *captureFile) drain(q *captureQueue) int {
	size := uint64(len(q.buf))
	tail, head := q.tail.Load(), q.head.Load()
	n := 0
	for ; tail != head && n < captureBatch; n++ {
		rec := q.buf[tail&(size-1):]
		keep := binary.LittleEndian.Uint32(rec)
		if keep == ringSkip {
			tail += uint64(len(rec))
			q.tail.Store(tail)
			continue
		}
		data := rec[ringHeader : ringHeader+keep : ringHeader+keep]
		wireLen := int(binary.LittleEndian.Uint32(rec[4:]))
		w.record(data, wireLen, int64(binary.LittleEndian.Uint64(rec[8:])))
		tail += uint64(ringHeader+keep+7) &^ 7
		q.tail.Store(tail)
	}
	return n
}

func (w *captureFile) record(data []byte, wireLen int, ts int64) {
	if w.err != nil {
		w.failed.Add(1)
		return
	}
	info := gopacket.CaptureInfo{
		Timestamp: time.Unix(0, ts), CaptureLength: len(data), Length: wireLen,
	}
	var err error
	if w.ng != nil {
		err = w.ng.WritePacket(info, data)
	} else {
		err = w.pcap.WritePacket(info, data)
	}
	w.out.frames++
	if err == nil && len(w.out.b) >= captureFlush {
		err = w.flush()
	}
	w.keep(err)
}

// flush writes what is buffered. All of it is whole records. Frames count as
// written only now.
func (w *captureFile) flush() error {
	if w.ng != nil {
		if err := w.ng.Flush(); err != nil {
			return err
		}
	}
	frames := w.out.frames
	if err := w.out.flush(w.ownFile); err != nil {
		w.failed.Add(frames)
		return fmt.Errorf("write capture file: %w; what follows is not in it", err)
	}
	w.written.Add(frames)
	return nil
}

// close writes what is still in the rings and closes the file. The queues must
// have ended. It returns the first error since the file was opened; calling it
// again returns the same.
func (w *captureFile) close() error {
	w.closing.Do(w.end)
	return w.err
}

func (w *captureFile) end() {
	w.stop.Store(true)
	<-w.done
	if w.ng != nil && w.err == nil {
		w.keep(w.statistics())
	}
	if w.ownFile {
		w.keep(w.file.Close())
	}
}

// statistics ends a pcapng file with the counts of frames received and dropped.
func (w *captureFile) statistics() error {
	s := w.stats()
	err := w.ng.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: time.Now(), PacketsReceived: s.written + s.dropped, PacketsDropped: s.dropped,
	})
	if err != nil {
		return err
	}
	return w.flush()
}

// stats may be called from any goroutine.
func (w *captureFile) stats() captureStats {
	s := captureStats{written: w.written.Load(), dropped: w.failed.Load()}
	for i := range w.rings {
		s.dropped += w.rings[i].dropped.Load()
	}
	return s
}

// dropped is the number of frames that are not in the file.
func (w *captureFile) dropped() uint64 { return w.stats().dropped }

// recordBuffer collects whole records, so that one write to the file never ends
// inside one.
type recordBuffer struct {
	f      io.Writer
	b      []byte
	size   int64 // bytes written to the file
	frames uint64
}

func (r *recordBuffer) init(f io.Writer) {
	r.f, r.b = f, make([]byte, 0, captureFlush+captureSnaplen+4096)
}

// Write is io.Writer for pcapgo.
func (r *recordBuffer) Write(p []byte) (int, error) {
	r.b = append(r.b, p...)
	return len(p), nil
}

// flush writes the buffer. After a failed write a file is cut back to where the
// write began.
func (r *recordBuffer) flush(canCut bool) error {
	if len(r.b) == 0 {
		return nil
	}
	n, err := r.f.Write(r.b)
	whole := len(r.b)
	r.b, r.frames = r.b[:0], 0
	if err == nil {
		r.size += int64(whole)
		return nil
	}
	if f, ok := r.f.(interface{ Truncate(int64) error }); ok && canCut && n != 0 {
		err = errors.Join(err, f.Truncate(r.size))
	}
	return err
}
