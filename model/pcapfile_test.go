package model

// pcapfile_test.go holds the capture reader against what tshark says of every
// shared capture, against files made here byte by byte, and against damage.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharedPcaps is the directory of the shared captures. Without it the test is
// skipped, except under CI, where it must be there.
func sharedPcaps(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "shared", "pcaps")
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the shared captures are missing: %v", err)
		}
		t.Skipf("the shared captures are missing: %v", err)
	}
	return dir
}

// expectedCapture is one line of expected.jsonl; FIELDS.md explains it.
type expectedCapture struct {
	File       string         `json:"file"`
	ReadToEnd  bool           `json:"read_to_end"`
	LinkTypes  []int          `json:"linktypes"`
	Packets    int            `json:"packets"`
	Captured   int            `json:"captured_bytes"`
	Wire       int            `json:"wire_bytes"`
	MinLen     int            `json:"min_captured_len"`
	MaxLen     int            `json:"max_captured_len"`
	First      string         `json:"first_time_epoch"`
	Last       string         `json:"last_time_epoch"`
	Interfaces map[string]int `json:"packets_per_interface"`
	Cut        int            `json:"frames_cut_by_snaplen"`
}

func readExpected(t testing.TB) []expectedCapture {
	f, err := os.Open(filepath.Join(sharedPcaps(t), "expected.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	var all []expectedCapture
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e expectedCapture
		require.NoError(t, json.Unmarshal(in.Bytes(), &e))
		all = append(all, e)
	}
	require.NoError(t, in.Err())
	require.NotEmpty(t, all)
	return all
}

// epoch writes a time as tshark's frame.time_epoch.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

func TestSharedCapturesReadAsTsharkReadsThem(t *testing.T) {
	for _, e := range readExpected(t) {
		t.Run(e.File, func(t *testing.T) {
			f, err := os.Open(filepath.Join(sharedPcaps(t), e.File))
			require.NoError(t, err)
			defer f.Close()
			r, err := NewReader(f)
			require.NoError(t, err)
			got := expectedCapture{Interfaces: map[string]int{}, MinLen: 1 << 30}
			for {
				var rec Record
				if rec, err = r.Next(); err != nil {
					break
				}
				if got.Packets == 0 {
					got.First = epoch(rec.Time)
				}
				got.Last = epoch(rec.Time)
				require.Equal(t, rec.CapLen, len(rec.Data))
				got.Packets++
				got.Captured += rec.CapLen
				got.Wire += rec.OrigLen
				got.MinLen, got.MaxLen = min(got.MinLen, rec.CapLen), max(got.MaxLen, rec.CapLen)
				if rec.CapLen < rec.OrigLen {
					got.Cut++
				}
				got.Interfaces[strconv.Itoa(rec.Interface)]++
				require.Contains(t, e.LinkTypes, int(rec.LinkType))
			}
			got.File, got.LinkTypes, got.ReadToEnd = e.File, e.LinkTypes, err == io.EOF
			if e.Interfaces == nil {
				got.Interfaces = nil
			}
			require.Equal(t, e, got)
			if !e.ReadToEnd {
				require.EqualError(t, err, "cut short in the middle of record 2")
			}
			_, again := r.Next()
			require.Equal(t, err, again)
		})
	}
}

// pcapBytes makes a pcap file; each record has its real length.
func pcapBytes(order binary.AppendByteOrder, magic, link uint32, records ...[]byte) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(order.AppendUint16(b, 2), 4)
	for _, v := range []uint32{0, 0, 65535, link} {
		b = order.AppendUint32(b, v)
	}
	for i, r := range records {
		for _, v := range []uint32{uint32(100 + i), 5, uint32(len(r)), uint32(len(r))} {
			b = order.AppendUint32(b, v)
		}
		b = append(b, r...)
	}
	return b
}

// block makes a pcapng block around a body, which it pads.
func ngBlock(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	n := uint32(12 + len(body))
	b := append(order.AppendUint32(order.AppendUint32(nil, kind), n), body...)
	return order.AppendUint32(b, n)
}

func sectionBlock(order binary.AppendByteOrder) []byte {
	body := order.AppendUint32(nil, magicOrder)
	body = order.AppendUint16(order.AppendUint16(body, 1), 0)
	return ngBlock(order, magicSection, order.AppendUint64(body, ^uint64(0)))
}

func interfaceBlock(order binary.AppendByteOrder, link uint16, snap uint32, options ...byte) []byte {
	body := order.AppendUint16(order.AppendUint16(nil, link), 0)
	return ngBlock(order, blockInterface, append(order.AppendUint32(body, snap), options...))
}

func ngOption(order binary.AppendByteOrder, code uint16, value ...byte) []byte {
	b := order.AppendUint16(order.AppendUint16(nil, code), uint16(len(value)))
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func enhancedBlock(order binary.AppendByteOrder, number uint32, stamp uint64, data []byte, options ...byte) []byte {
	body := order.AppendUint32(nil, number)
	return packetBody(order, blockEnhanced, body, stamp, data, options)
}

func packetBody(order binary.AppendByteOrder, kind uint32, body []byte, stamp uint64, data, options []byte) []byte {
	for _, v := range []uint32{uint32(stamp >> 32), uint32(stamp), uint32(len(data)), uint32(len(data) + 3)} {
		body = order.AppendUint32(body, v)
	}
	body = append(body, data...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return ngBlock(order, kind, append(body, options...))
}

func joinBytes(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// readAll reads everything and copies the data.
func readAll(t testing.TB, file []byte) ([]Record, error) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var all []Record
	for {
		rec, err := r.Next()
		if err != nil {
			return all, err
		}
		rec.Data = bytes.Clone(rec.Data)
		all = append(all, rec)
		require.Less(t, len(all), 1<<20)
	}
}

var byteOrders = []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian}

func TestPcapBothOrdersBothResolutions(t *testing.T) {
	for _, order := range byteOrders {
		for magic, stamp := range map[uint32]time.Time{
			magicMicro: time.Unix(100, 5000).UTC(), magicNano: time.Unix(100, 5).UTC(),
		} {
			all, err := readAll(t, pcapBytes(order, magic, 1, []byte("first"), nil, []byte("third")))
			require.Equal(t, io.EOF, err)
			require.Len(t, all, 3)
			require.Equal(t, Record{Time: stamp, CapLen: 5, OrigLen: 5, LinkType: 1, Data: []byte("first")}, all[0])
			require.Empty(t, all[1].Data)
			require.Equal(t, "third", string(all[2].Data))
		}
	}
}

func TestPcapDeclaredFCS(t *testing.T) {
	all, err := readAll(t, pcapBytes(binary.BigEndian, magicMicro, 2<<28|1<<26|1, []byte("abcd")))
	require.Equal(t, io.EOF, err)
	require.Equal(t, 4, all[0].FCSLen)
	require.Equal(t, LinkEthernet, all[0].LinkType)
}

func TestPcapngSectionsOfBothOrders(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	file := joinBytes(
		sectionBlock(be), interfaceBlock(be, 101, 0, ngOption(be, 2, []byte("eth0")...)...),
		interfaceBlock(be, 1, 9, ngOption(be, 9, 9)...),
		ngBlock(be, 4, make([]byte, 100000)), // name resolution, skipped
		enhancedBlock(be, 1, 1500000000123456789, []byte("odd"), ngOption(be, 1, []byte("comment")...)...),
		sectionBlock(le), interfaceBlock(le, 1, 4, joinBytes(ngOption(le, 14, le.AppendUint64(nil, 7)...), ngOption(le, 0))...),
		packetBody(le, blockPacket, le.AppendUint16(le.AppendUint16(nil, 0), 55), 1500000, []byte("old one"), nil),
		ngBlock(le, blockSimple, append(le.AppendUint32(nil, 90), "simp"...)),
		ngBlock(le, 0x40000bad, []byte("custom")),
	)
	all, err := readAll(t, file)
	require.Equal(t, io.EOF, err)
	require.Equal(t, []Record{
		{Time: time.Unix(1500000000, 123456789).UTC(), CapLen: 3, OrigLen: 6, LinkType: 1, Interface: 1, Data: []byte("odd")},
		{Time: time.Unix(8, 500000000).UTC(), CapLen: 7, OrigLen: 10, LinkType: 1, Data: []byte("old one")},
		{CapLen: 4, OrigLen: 90, LinkType: 1, Data: []byte("simp")},
	}, all)
}

func TestPcapngTimeResolutions(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		resolution byte
		stamp      uint64
		want       time.Time // zero: refused
	}{
		{0, 77, time.Unix(77, 0)},
		{3, 77001, time.Unix(77, 1e6)},
		{6, 77000001, time.Unix(77, 1000)},
		{12, 77000000001999, time.Unix(77, 1)},
		{19, 15000000000000000000, time.Unix(1, 500000000)},
		{0x80, 77, time.Unix(77, 0)},
		{0x80 | 10, 77<<10 | 512, time.Unix(77, 500000000)},
		{0x80 | 32, 77<<32 | 1<<31, time.Unix(77, 500000000)},
		{0x80 | 63, 3 << 62, time.Unix(1, 500000000)},
		{0, ^uint64(0), time.Unix(lastSecond, 0)},
		{20, 0, time.Time{}},
		{0x7f, 0, time.Time{}},
		{0x80 | 64, 0, time.Time{}},
		{0xff, 0, time.Time{}},
	} {
		all, err := readAll(t, joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0, ngOption(le, 9, c.resolution)...),
			enhancedBlock(le, 0, c.stamp, []byte("data"))))
		if c.want.IsZero() {
			require.ErrorContains(t, err, "time resolution", "0x%02x", c.resolution)
			continue
		}
		require.Equal(t, io.EOF, err, "0x%02x", c.resolution)
		require.Equal(t, c.want.UTC(), all[0].Time, "0x%02x", c.resolution)
	}
}

// badCapture is a damaged file, the good records in front, and what the error
// says.
type badCapture struct {
	file    []byte
	records int
	text    string
}

func badCaptures() map[string]badCapture {
	le := binary.LittleEndian
	pcap := pcapBytes(le, magicMicro, 1, []byte("first"), []byte("second"))
	ng := joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0), enhancedBlock(le, 0, 1, []byte("first")))
	start := joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0))
	patch := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		le.PutUint32(b[at:], v)
		return b
	}
	return map[string]badCapture{
		"empty":               {nil, 0, "empty"},
		"three bytes":         {pcap[:3], 0, "not a capture: only 3 bytes"},
		"text":                {[]byte("hello, world, hello"), 0, "neither pcap nor pcapng"},
		"gzip":                {[]byte{0x1f, 0x8b, 8, 0, 0}, 0, "gzip"},
		"zstd":                {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0}, 0, "zstd"},
		"header cut":          {pcap[:23], 0, "cut short in the file header: 23 of 24 bytes"},
		"version":             {patch(pcap, 4, 3), 0, "pcap version 3.0"},
		"first header cut":    {pcap[:30], 0, "cut short in the middle of record 1"},
		"first data cut":      {pcap[:44], 0, "cut short in the middle of record 1"},
		"second header cut":   {pcap[:46], 1, "cut short in the middle of record 2"},
		"second data cut":     {pcap[:len(pcap)-1], 1, "cut short in the middle of record 2"},
		"huge record":         {patch(pcap, 32, 0xffffffff), 0, "record 1 claims 4294967295 captured bytes"},
		"over the limit":      {patch(pcap, 32, maxCaptured+1), 0, "more than 262144"},
		"at the limit":        {patch(pcap, 32, maxCaptured), 0, "cut short in the middle of record 1"},
		"section cut":         {ng[:27], 0, "cut short in the file header"},
		"section type only":   {ng[:6], 0, "cut short in the file header"},
		"section order":       {patch(ng, 8, 0x11223344), 0, "byte order"},
		"section version":     {patch(ng, 12, 9), 0, "pcapng version 9.0"},
		"section length 0":    {patch(ng, 4, 0), 0, "claims 0 bytes"},
		"section length 27":   {patch(ng, 4, 27), 0, "claims 27 bytes"},
		"section length odd":  {patch(ng, 4, 29), 0, "not a multiple of 4"},
		"section length huge": {patch(ng, 4, 0xfffffffc), 0, "cut short in the file header"},
		"trailing length":     {patch(ng, 24, 32), 0, "length 28 in front and 32 behind"},
		"block length 0":      {patch(ng, 32, 0), 0, "claims 0 bytes"},
		"block length 8":      {patch(ng, 32, 8), 0, "claims 8 bytes"},
		"block length huge":   {patch(ng, 32, 0xfffffffc), 0, "cut short in the middle of a block before record 1"},
		"description empty":   {joinBytes(sectionBlock(le), ngBlock(le, blockInterface, nil)), 0, "too short for what it must hold"},
		"option too long":     {joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0, 2, 0, 0xff, 0xff)), 0, "too short for its padding"},
		"option half":         {joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0, 9, 0, 1, 0)), 0, "too short for what it must hold"},
		"option size":         {joinBytes(sectionBlock(le), interfaceBlock(le, 1, 0, ngOption(le, 9, 1, 2)...)), 0, "option 9 has 2 bytes, not 1"},
		"packet, no device":   {joinBytes(sectionBlock(le), enhancedBlock(le, 0, 1, nil)), 0, "record 1 names interface 0 of 0"},
		"packet, device 1":    {joinBytes(start, enhancedBlock(le, 1, 1, nil)), 0, "record 1 names interface 1 of 1"},
		"packet of old":       {joinBytes(start, sectionBlock(le), enhancedBlock(le, 0, 1, nil)), 0, "names interface 0 of 0"},
		"simple, no device":   {joinBytes(sectionBlock(le), ngBlock(le, blockSimple, make([]byte, 8))), 0, "names interface 0 of none"},
		"simple too long":     {joinBytes(start, ngBlock(le, blockSimple, le.AppendUint32(nil, 500))), 0, "500 captured bytes in a block with room for 0"},
		"packet in no room":   {patch(ng, len(ng)-20, 100), 0, "room for 8"},
		"packet huge":         {patch(ng, len(ng)-20, 1<<31), 0, "claims 2147483648 captured bytes"},
		"packet short":        {joinBytes(start, ngBlock(le, blockEnhanced, make([]byte, 16))), 0, "too short for what it must hold"},
		"packet cut":          {ng[:len(ng)-7], 0, "cut short in the middle of record 1"},
		"packet trailer cut":  {ng[:len(ng)-1], 0, "cut short in the middle of record 1"},
		"block type cut":      {joinBytes(ng, []byte{1, 2, 3}), 1, "cut short in the middle of record 2"},
	}
}

func TestDamagedCaptures(t *testing.T) {
	for name, c := range badCaptures() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			all, err := readAll(t, c.file)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			require.NotEqual(t, io.EOF, err)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "\n")
			require.Len(t, all, c.records)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes allocated")
		})
	}
}

func TestTooManyInterfaces(t *testing.T) {
	le := binary.LittleEndian
	file := joinBytes(sectionBlock(le), bytes.Repeat(interfaceBlock(le, 1, 0), maxInterfaces+1))
	_, err := readAll(t, file)
	require.ErrorContains(t, err, "more than 65536 interfaces")
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestReadErrorIsNotTakenForTheEnd(t *testing.T) {
	broken := errors.New("input/output error")
	file := pcapBytes(binary.LittleEndian, magicMicro, 1, []byte("first"), []byte("second"))
	r, err := NewReader(io.MultiReader(bytes.NewReader(file[:50]), failingReader{broken}))
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
	_, err = NewReader(failingReader{broken})
	require.ErrorIs(t, err, broken)
}

func TestLinkTypeNames(t *testing.T) {
	require.Equal(t, "EN10MB (1)", LinkEthernet.String())
	require.Equal(t, "RAW (101)", LinkType(101).String())
	require.Equal(t, "unknown link type (4242)", LinkType(4242).String())
}

// FuzzCaptureReader: whatever the bytes, reading ends, with bounded records.
func FuzzCaptureReader(f *testing.F) {
	for _, c := range badCaptures() {
		f.Add(c.file)
	}
	f.Add(pcapBytes(binary.BigEndian, magicNano, 1, []byte("first"), nil))
	be := binary.BigEndian
	f.Add(joinBytes(sectionBlock(be), interfaceBlock(be, 1, 9, ngOption(be, 9, 0x8a)...), enhancedBlock(be, 0, 1<<40, []byte("data"))))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		total, records := 0, 0
		for {
			rec, err := r.Next()
			if err != nil {
				_, again := r.Next()
				require.Equal(t, err, again)
				break
			}
			require.Equal(t, rec.CapLen, len(rec.Data))
			require.LessOrEqual(t, rec.CapLen, maxCaptured)
			total += rec.CapLen
			records++
		}
		require.LessOrEqual(t, total, len(file))
		require.LessOrEqual(t, records*16, len(file))
	})
}
