package main

// Tests of capture.go. The reader here is our own and independent of pcapgo, so
// that what is written is not checked by its writer; it also feeds the tests of
// the parser and of inspection.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"
	"github.com/stretchr/testify/require"
)

// testFrame is one record of a packet file.
type testFrame struct {
	ts      int64 // ns
	wireLen int
	data    []byte
}

// testCapture is a packet file in memory.
type testCapture struct {
	magic    uint32
	linkType uint32
	snaplen  uint32
	tsresol  byte // pcapng
	frames   []testFrame
	cutShort bool // the file ends inside a record
}

func readCapture(t testing.TB, path string) *testCapture {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	c, err := parseCapture(b)
	require.NoError(t, err, path)
	return c
}

var errCapture = errors.New("not a sound packet file")

func parseCapture(b []byte) (*testCapture, error) {
	if len(b) < 24 {
		return nil, errCapture
	}
	if binary.LittleEndian.Uint32(b) == 0x0a0d0d0a {
		return parsePcapng(b)
	}
	return parsePcap(b)
}

func parsePcap(b []byte) (*testCapture, error) {
	order := binary.ByteOrder(binary.LittleEndian)
	if m := binary.BigEndian.Uint32(b); m == 0xa1b2c3d4 || m == 0xa1b23c4d {
		order = binary.BigEndian
	}
	c := &testCapture{magic: order.Uint32(b), snaplen: order.Uint32(b[16:]), linkType: order.Uint32(b[20:])}
	scale := int64(1000)
	switch c.magic {
	case 0xa1b2c3d4:
	case 0xa1b23c4d:
		scale = 1
	default:
		return nil, errCapture
	}
	for b = b[24:]; len(b) > 0; {
		if len(b) < 16 {
			c.cutShort = true
			break
		}
		n := int(order.Uint32(b[8:]))
		if n > len(b)-16 {
			c.cutShort = true
			break
		}
		c.frames = append(c.frames, testFrame{
			ts:      int64(order.Uint32(b))*1e9 + int64(order.Uint32(b[4:]))*scale,
			wireLen: int(order.Uint32(b[12:])), data: b[16 : 16+n : 16+n],
		})
		b = b[16+n:]
	}
	return c, nil
}

func parsePcapng(b []byte) (*testCapture, error) {
	order := binary.ByteOrder(binary.LittleEndian)
	if binary.BigEndian.Uint32(b[8:]) == 0x1a2b3c4d {
		order = binary.BigEndian
	}
	c := &testCapture{magic: 0x0a0d0d0a, linkType: 0xffffffff}
	var resolutions []int64
	for len(b) > 0 {
		if len(b) < 12 {
			return nil, errCapture
		}
		kind, n := order.Uint32(b), int(order.Uint32(b[4:]))
		if n < 12 || n%4 != 0 || n > len(b) || int(order.Uint32(b[n-4:])) != n {
			return nil, errCapture
		}
		body := b[8 : n-4]
		switch kind {
		case 1:
			c.linkType, c.snaplen = uint32(order.Uint16(body)), order.Uint32(body[4:])
			c.tsresol = tsResolution(order, body[8:])
			ns := int64(1)
			for i := c.tsresol; i < 9; i++ {
				ns *= 10
			}
			resolutions = append(resolutions, ns)
		case 6:
			ts := int64(order.Uint32(body[4:]))<<32 | int64(order.Uint32(body[8:]))
			capLen := int(order.Uint32(body[12:]))
			c.frames = append(c.frames, testFrame{
				ts:      ts * resolutions[order.Uint32(body)],
				wireLen: int(order.Uint32(body[16:])), data: body[20 : 20+capLen : 20+capLen],
			})
		}
		b = b[n:]
	}
	return c, nil
}

// tsResolution reads option 9 of an interface block; without it time is in µs.
func tsResolution(order binary.ByteOrder, b []byte) byte {
	for len(b) >= 4 {
		code, n := order.Uint16(b), int(order.Uint16(b[2:]))
		if code == 9 {
			return b[4]
		}
		b = b[4+(n+3)&^3:]
	}
	return 6
}

// expected is what the material's reference decoder says of a capture.
type expected struct {
	File          string         `json:"file"`
	Packets       uint64         `json:"packets"`
	CapturedBytes uint64         `json:"captured_bytes"`
	WireBytes     uint64         `json:"wire_bytes"`
	LinkTypes     []uint32       `json:"linktypes"`
	VLANLayers    map[string]int `json:"vlan_tag_layers"`
	L3            map[string]int `json:"outer_l3"`
	IPProto       map[string]int `json:"outer_ip_proto"`
	IPv6Next      map[string]int `json:"outer_ipv6_nxt"`
	Protocols     map[string]int `json:"protocol_frames"`
	TCP           struct {
		Distinct int `json:"distinct_5tuples"`
	} `json:"tcp_conversations"`
	UDP struct {
		Distinct int `json:"distinct_5tuples"`
	} `json:"udp_conversations"`
	DNS, MDNS, LLMNR struct {
		Queries   int `json:"query_messages"`
		Responses int `json:"response_messages"`
		Names     struct {
			Names []string `json:"names"`
		} `json:"query_names"`
	}
	TLS struct {
		Hellos int `json:"client_hello_frames"`
		SNI    struct {
			Names []string `json:"names"`
		} `json:"sni"`
	}
	HTTP struct {
		Requests int `json:"requests"`
		Hosts    struct {
			Names []string `json:"names"`
		} `json:"hosts"`
	}
	IPv4Fragments int `json:"ipv4_fragments"`
	FragHeaders   int `json:"ipv6_fragment_headers"`
}

func readExpected(t testing.TB) []expected {
	t.Helper()
	f, err := os.Open(sharedFile(t, "pcaps", "expected.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	var list []expected
	for sc := newLineScanner(f); sc.Scan(); {
		var e expected
		require.NoError(t, json.Unmarshal(sc.Bytes(), &e))
		list = append(list, e)
	}
	require.NotEmpty(t, list)
	return list
}

func newLineScanner(r io.Reader) *bufio.Scanner {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	return sc
}

func testFrames(n int) []testFrame {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := make([]testFrame, n)
	for i := range list {
		b := make([]byte, 14+rnd.IntN(1500))
		if i%10 == 9 {
			b = make([]byte, 10_000)
		}
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		list[i] = testFrame{ts: 1_700_000_000_123_456_789 + int64(i)*1001, wireLen: len(b), data: b}
	}
	return list
}

// requireFrames compares records, whichever way the file was made.
func requireFrames(t *testing.T, want, got []testFrame) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].ts, got[i].ts, "time of frame %d", i)
		require.Equal(t, want[i].wireLen, got[i].wireLen, "length of frame %d", i)
		require.True(t, bytes.Equal(want[i].data, got[i].data), "bytes of frame %d", i)
	}
}

func TestCaptureReadBack(t *testing.T) {
	want := testFrames(500)
	for _, name := range []string{"a.pcap", "a.pcapng"} {
		path := filepath.Join(t.TempDir(), name)
		w, err := openCaptureFile(captureConfig{path: path, queues: 1, wait: true})
		require.NoError(t, err)
		for i := range want {
			w.queue(0).put(want[i].data, want[i].wireLen, packetMeta{ts: want[i].ts})
		}
		require.NoError(t, w.close())
		require.Equal(t, uint64(len(want)), w.stats().written)
		require.Zero(t, w.stats().dropped)
		c := readCapture(t, path)
		requireFrames(t, want, c.frames)
		require.Equal(t, uint32(1), c.linkType)
		require.Equal(t, uint32(captureSnaplen), c.snaplen)
		if name == "a.pcap" {
			require.Equal(t, uint32(0xa1b23c4d), c.magic)
		} else {
			require.Equal(t, byte(9), c.tsresol)
		}
		require.Equal(t, len(want), countWithPcapgo(t, path), "gopacket's reader agrees")
	}
}

func countWithPcapgo(t *testing.T, path string) int {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var read func() error
	if filepath.Ext(path) == ".pcapng" {
		r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
		require.NoError(t, err)
		read = func() error { _, _, err := r.ReadPacketData(); return err }
	} else {
		r, err := pcapgo.NewReader(f)
		require.NoError(t, err)
		read = func() error { _, _, err := r.ReadPacketData(); return err }
	}
	for n := 0; ; n++ {
		if err := read(); err != nil {
			require.ErrorIs(t, err, io.EOF)
			return n
		}
	}
}

// A tag that the NIC removed is in the file again, QinQ included: only the outer
// tag is removed.
func TestCapturePutsTagBack(t *testing.T) {
	for _, ethType := range []uint16{0x0800, 0x8100} {
		wire := bytes.Repeat([]byte{0xaa}, 64)
		copy(wire, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x81\x00\x61\x23")
		binary.BigEndian.PutUint16(wire[16:], ethType)
		stripped := append(append([]byte{}, wire[:12]...), wire[16:]...)
		path := filepath.Join(t.TempDir(), "v.pcap")
		w, err := openCaptureFile(captureConfig{path: path, queues: 1, wait: true})
		require.NoError(t, err)
		w.queue(0).put(stripped, len(stripped), packetMeta{ts: 5, vlan: 0x6123, stripped: true})
		require.NoError(t, w.close())
		requireFrames(t, []testFrame{{5, len(wire), wire}}, readCapture(t, path).frames)
	}
}

func TestCaptureSnaplen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.pcapng")
	w, err := openCaptureFile(captureConfig{path: path, queues: 1, wait: true, snaplen: 20})
	require.NoError(t, err)
	frame := []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	w.queue(0).put(frame, 100, packetMeta{ts: 1})
	w.queue(0).put(frame[:7], 7, packetMeta{ts: 2})
	w.queue(0).put(frame[:18], 18, packetMeta{ts: 3, vlan: 1, stripped: true})
	require.NoError(t, w.close())
	c := readCapture(t, path)
	require.Equal(t, uint32(20), c.snaplen)
	tagged := append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 1, 'c', 'd', 'e', 'f')
	requireFrames(t, []testFrame{{1, 100, frame[:20]}, {2, 7, frame[:7]}, {3, 22, tagged}}, c.frames)
}

// Each queue's frames are in the file, in order, whatever the others do.
func TestCaptureQueues(t *testing.T) {
	const queues, each = 4, 3000
	path := filepath.Join(t.TempDir(), "q.pcap")
	w, err := openCaptureFile(captureConfig{path: path, queues: queues, wait: true, ring: 64 << 10})
	require.NoError(t, err)
	done := make(chan bool)
	for q := range queues {
		go func() {
			b := make([]byte, 60+q*301)
			for i := range each {
				binary.BigEndian.PutUint32(b, uint32(q))
				binary.BigEndian.PutUint32(b[4:], uint32(i))
				w.queue(q).put(b, len(b), packetMeta{ts: int64(i), queue: q})
			}
			done <- true
		}()
	}
	for range queues {
		<-done
	}
	require.NoError(t, w.close())
	var next [queues]uint32
	for _, f := range readCapture(t, path).frames {
		q := binary.BigEndian.Uint32(f.data)
		require.Equal(t, next[q], binary.BigEndian.Uint32(f.data[4:]), "order within queue %d", q)
		require.Len(t, f.data, 60+int(q)*301)
		next[q]++
	}
	require.Equal(t, [queues]uint32{each, each, each, each}, next)
}

// slowPipe opens a pipe as the capture's file; its reader takes bytes at the
// given pace until release is closed, then all.
func slowPipe(t *testing.T, release chan struct{}) (*os.File, chan []byte) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	got := make(chan []byte, 1)
	go func() {
		<-release
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			b = nil
		}
		got <- b
	}()
	return w, got
}

// A disk that stands still: what does not fit is dropped and counted, the file
// is valid and holds the rest.
func TestCaptureSlowDiskDrops(t *testing.T) {
	release := make(chan struct{})
	f, got := slowPipe(t, release)
	w, err := newCapture(captureConfig{path: "x.pcap", queues: 1, ring: 64 << 10}, f, true)
	require.NoError(t, err)
	const n = 5000
	b := make([]byte, 1000)
	for i := range n {
		binary.BigEndian.PutUint32(b, uint32(i))
		w.queue(0).put(b, len(b), packetMeta{ts: int64(i)})
	}
	require.NotZero(t, w.stats().dropped)
	close(release)
	require.NoError(t, w.close())
	s := w.stats()
	require.Equal(t, uint64(n), s.written+s.dropped)
	c, err := parseCapture(<-got)
	require.NoError(t, err)
	require.False(t, c.cutShort)
	require.Len(t, c.frames, int(s.written))
	require.NotEmpty(t, c.frames)
}

func TestCaptureWaitsForLosslessSource(t *testing.T) {
	release := make(chan struct{})
	f, got := slowPipe(t, release)
	w, err := newCapture(captureConfig{path: "x.pcap", queues: 1, ring: 64 << 10, wait: true}, f, true)
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	b := make([]byte, 1000)
	for i := range 3000 {
		w.queue(0).put(b, len(b), packetMeta{ts: int64(i)})
	}
	require.NoError(t, w.close())
	require.Equal(t, captureStats{written: 3000}, w.stats())
	c, err := parseCapture(<-got)
	require.NoError(t, err)
	require.Len(t, c.frames, 3000)
}

// A disk that fails: nothing hangs, even with wait; every frame is accounted for
// and close says what happened.
func TestCaptureFailingDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err, "every Linux has a device that is always full")
	_, err = newCapture(captureConfig{path: "x.pcap", queues: 1}, f, true)
	require.ErrorContains(t, err, "no space left")

	r, p, err := os.Pipe()
	require.NoError(t, err)
	w, err := newCapture(captureConfig{path: "x.pcapng", queues: 1, ring: 64 << 10, wait: true}, p, true)
	require.NoError(t, err)
	require.NoError(t, r.Close()) // from here on writes fail
	b := make([]byte, 1500)
	for i := range 2000 {
		w.queue(0).put(b, len(b), packetMeta{ts: int64(i)})
	}
	require.Error(t, w.close())
	require.Equal(t, captureStats{dropped: 2000}, w.stats())
}

// failAfter is a file that takes part of a write, then is full.
type failAfter struct {
	*os.File
	room int
}

func (f *failAfter) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	if _, err := f.File.Write(p[:n]); err != nil || n == len(p) {
		return n, err
	}
	return n, errors.New("disk full")
}

// A write that stops inside a record leaves a file that ends with a whole one.
func TestCaptureCutsBackToWholeRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.pcap")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	require.NoError(t, err)
	w := &captureFile{file: f, ownFile: true}
	w.out.init(&failAfter{f, 3_000})
	require.NoError(t, w.header(false, captureSnaplen))
	for range 2 {
		w.record(make([]byte, 1000), 1000, 1)
		require.NoError(t, w.flush())
	}
	w.record(make([]byte, 1000), 1000, 1)
	require.ErrorContains(t, w.flush(), "disk full")
	require.NoError(t, f.Close())
	c := readCapture(t, path)
	require.False(t, c.cutShort)
	require.Len(t, c.frames, 2)
}

func TestCaptureFrameTooLargeForRing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.pcap")
	w, err := openCaptureFile(captureConfig{path: path, queues: 1, ring: 1, wait: true})
	require.NoError(t, err)
	w.queue(0).put(make([]byte, 40_000), 40_000, packetMeta{})
	w.queue(0).put(make([]byte, 10_240), 10_240, packetMeta{})
	require.NoError(t, w.close())
	require.NoError(t, w.close(), "closing again does no harm")
	require.Equal(t, captureStats{written: 1, dropped: 1}, w.stats())
	require.Equal(t, uint64(1), w.dropped())
}

func TestCaptureNoAllocations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.pcap")
	w, err := openCaptureFile(captureConfig{path: path, queues: 1})
	require.NoError(t, err)
	b := make([]byte, 900)
	meta := packetMeta{ts: 1, vlan: 5, stripped: true}
	// The writer's goroutine is measured too: it must not allocate either.
	allocs := testing.AllocsPerRun(20_000, func() { w.queue(0).put(b, len(b), meta) })
	require.NoError(t, w.close())
	require.Zero(t, allocs)
}

func TestCaptureRefusals(t *testing.T) {
	_, err := openCaptureFile(captureConfig{path: filepath.Join(t.TempDir(), "no", "dir.pcap"), queues: 1})
	require.ErrorContains(t, err, "-w")
	_, err = openCaptureFile(captureConfig{path: filepath.Join(t.TempDir(), "a.pcap")})
	require.ErrorContains(t, err, "at least 1")
}

// The material itself is read right: otherwise no other test says anything.
func TestMaterialCounts(t *testing.T) {
	for _, e := range readExpected(t) {
		c := readCapture(t, sharedFile(t, "pcaps", e.File))
		var captured, wire uint64
		for _, f := range c.frames {
			captured += uint64(len(f.data))
			wire += uint64(f.wireLen)
		}
		require.Equal(t, fmt.Sprint(e.Packets, e.CapturedBytes, e.WireBytes), fmt.Sprint(len(c.frames), captured, wire), e.File)
		require.Equal(t, e.LinkTypes[0], c.linkType, e.File)
	}
}
