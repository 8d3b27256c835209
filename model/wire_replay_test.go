package model

// wire_replay_test.go plays the shared captures and damaged ones, from memory
// and as a stream.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// captureFile writes a capture for the test.
func captureFile(t testing.TB, file []byte) string {
	path := filepath.Join(t.TempDir(), "test.pcap")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return path
}

// finishWire takes everything until the wire is done, waiting for a stream.
func finishWire(t testing.TB, w Wire) [][]byte {
	var all [][]byte
	deadline := time.Now().Add(20 * time.Second)
	for !w.Done() {
		all = append(all, drainWire(w, time.Now(), 1<<20)...)
		require.True(t, time.Now().Before(deadline), "the wire does not end")
		runtime.Gosched()
	}
	return all
}

func wireErr(w Wire) error { return w.(interface{ Err() error }).Err() }

func wireSkipped(w Wire) uint64 { return w.(interface{ Skipped() uint64 }).Skipped() }

func TestReplaySharedCaptures(t *testing.T) {
	dir := sharedPcaps(t)
	for _, e := range readExpected(t) {
		path := filepath.Join(dir, e.File)
		if e.LinkTypes[0] != 1 {
			_, err := ParseWire("replay:" + path)
			require.ErrorContains(t, err, "link type RAW (101): only EN10MB (1), Ethernet, can be played")
			require.ErrorAs(t, err, new(*InputError))
			continue
		}
		for limit, kind := range map[int64]string{preloadLimit: "memory", 0: "stream"} {
			w, err := newReplay(path, pacer{}, 1, limit)
			require.NoError(t, err, e.File)
			require.True(t, w.Lossless())
			require.True(t, w.LinkUp())
			all := finishWire(t, w)
			require.Len(t, all, e.Packets, "%s from %s", e.File, kind)
			require.Len(t, bytes.Join(all, nil), e.Captured, "%s from %s", e.File, kind)
			require.Zero(t, w.Skipped())
			if e.ReadToEnd {
				require.NoError(t, w.Err())
			} else {
				require.EqualError(t, w.Err(), "replay "+path+": cut short in the middle of record 2")
				require.ErrorAs(t, w.Err(), new(*InputError))
				require.ErrorIs(t, w.Err(), io.ErrUnexpectedEOF)
			}
			require.NoError(t, w.Close())
			require.NoError(t, w.Close())
			require.True(t, w.Done())
		}
	}
}

func TestReplayRefusesWhatHasNothingGood(t *testing.T) {
	for name, c := range badCaptures() {
		path := captureFile(t, c.file)
		for _, limit := range []int64{preloadLimit, -1} {
			w, err := newReplay(path, pacer{}, 1, limit)
			if c.records == 0 {
				require.ErrorContains(t, err, c.text, name)
				continue
			}
			require.NoError(t, err, name)
			require.NoError(t, w.Err(), name)
			require.Len(t, finishWire(t, w), c.records, name)
			require.ErrorContains(t, w.Err(), c.text, name)
			require.NoError(t, w.Close())
		}
	}
}

func TestReplayOfNothing(t *testing.T) {
	le := binary.LittleEndian
	w := openWire(t, "replay:"+captureFile(t, pcapBytes(le, magicMicro, 1))+",loop=0")
	require.Nil(t, w.Peek(time.Now()))
	require.True(t, w.Done())
	require.NoError(t, wireErr(w))

	_, err := ParseWire("replay:" + captureFile(t, sectionBlock(le)))
	require.ErrorContains(t, err, "describes no interface")
	_, err = ParseWire("replay:" + captureFile(t, joinBytes(sectionBlock(le), interfaceBlock(le, 101, 0), interfaceBlock(le, 113, 0))))
	require.ErrorContains(t, err, "link type RAW (101), LINUX_SLL (113): only")
}

func TestReplaySkipsOtherLinkTypes(t *testing.T) {
	le := binary.LittleEndian
	path := captureFile(t, joinBytes(sectionBlock(le), interfaceBlock(le, 101, 0), interfaceBlock(le, 1, 0),
		enhancedBlock(le, 0, 1, []byte("raw")), enhancedBlock(le, 1, 2, []byte("good")), enhancedBlock(le, 0, 3, []byte("raw"))))
	for _, limit := range []int64{preloadLimit, 0} {
		w, err := newReplay(path, pacer{}, 3, limit)
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("good"), []byte("good"), []byte("good")}, finishWire(t, w))
		require.Equal(t, uint64(2), wireSkipped(w))
		require.NoError(t, w.Close())
	}
}

func TestReplayLoops(t *testing.T) {
	path := captureFile(t, pcapBytes(binary.LittleEndian, magicMicro, 1, []byte("one"), nil, []byte("three")))
	for _, limit := range []int64{preloadLimit, 0} {
		w, err := newReplay(path, pacer{}, 4, limit)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("onethree", 4), string(bytes.Join(finishWire(t, w), nil)))
		require.NoError(t, w.Close())

		w, err = newReplay(path, pacer{}, 0, limit)
		require.NoError(t, err)
		var all [][]byte
		for len(all) < 10000 {
			all = append(all, drainWire(w, time.Now(), 10000-len(all))...)
		}
		for i, f := range all {
			require.Equal(t, []string{"one", "", "three"}[i%3], string(f))
		}
		require.False(t, w.Done())
		require.NoError(t, w.Close())
		require.True(t, w.Done())
		require.Nil(t, w.Peek(time.Now()))
	}
}

func TestReplayPlaysADamagedFileOnce(t *testing.T) {
	file := pcapBytes(binary.LittleEndian, magicMicro, 1, []byte("one"), []byte("two"))
	path := captureFile(t, file[:len(file)-1])
	for _, limit := range []int64{preloadLimit, 0} {
		w, err := newReplay(path, pacer{}, 0, limit)
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("one")}, finishWire(t, w))
		require.ErrorContains(t, w.Err(), "cut short in the middle of record 2")
		require.NoError(t, w.Close())
	}
}

func TestReplayPeekRepeatsAndEmptyFramesCount(t *testing.T) {
	w := openWire(t, "replay:"+captureFile(t, pcapBytes(binary.LittleEndian, magicMicro, 1, nil, []byte("two"))))
	now := time.Now()
	require.NotNil(t, w.Peek(now), "a frame of no bytes is a frame")
	require.Empty(t, w.Peek(now))
	w.Take()
	require.Equal(t, "two", string(w.Peek(now)))
	require.Equal(t, 3, cap(w.Peek(now)))
	w.Take()
	w.Take()
	require.Nil(t, w.Peek(now))
	require.True(t, w.Done())
}

func TestReplayCutsOffADeclaredFCS(t *testing.T) {
	w := openWire(t, "replay:"+captureFile(t, pcapBytes(binary.LittleEndian, magicMicro, 2<<28|1<<26|1, []byte("frameFCS4"), []byte("FCS"))))
	require.Equal(t, [][]byte{[]byte("frame"), {}}, drainWire(w, time.Now(), 9))
}

func TestReplayRealtime(t *testing.T) {
	le := binary.LittleEndian
	second := uint64(1e6)
	stamps := []uint64{100 * second, 100*second + 1500, 90 * second, 90*second + 2*second, 92*second + 1000000*second}
	blocks := [][]byte{sectionBlock(le), interfaceBlock(le, 1, 0)}
	for _, s := range stamps {
		blocks = append(blocks, enhancedBlock(le, 0, s, []byte("data")))
	}
	path := captureFile(t, joinBytes(blocks...))
	w := openWire(t, "replay:"+path+",realtime,loop=2")
	require.False(t, w.Lossless())
	us, s := time.Microsecond, time.Second
	once := []time.Duration{0, 1500 * us, 1500 * us, 2*s + 1500*us, 62*s + 1500*us}
	want := once
	for _, d := range once {
		want = append(want, d+62*s+1500*us)
	}
	require.Equal(t, want, pacedFrames(w, 500*us, 99))
}

// TestReplayStreamReadsAheadBounded: a file larger than memory is played with a
// few batches, and a closed wire stops its reader.
func TestReplayStreamReadsAheadBounded(t *testing.T) {
	frame := bytes.Repeat([]byte{7}, 60000)
	frames := make([][]byte, 400)
	for i := range frames {
		frames[i] = frame
	}
	path := captureFile(t, pcapBytes(binary.BigEndian, magicNano, 1, frames...))
	w, err := newReplay(path, pacer{}, 2, 1<<20)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for !w.Done() {
		for w.Peek(time.Now()) != nil {
			n++
			w.Take()
		}
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, 800, n)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20<<20))
	require.NoError(t, w.Close())

	w, err = newReplay(path, pacer{}, 0, 1<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, open := <-w.feed.(*streamFeed).stopped
	require.False(t, open)
}

func TestReplayFileShrinksWhileItPlays(t *testing.T) {
	path := captureFile(t, pcapBytes(binary.LittleEndian, magicMicro, 1, []byte("one")))
	w, err := newReplay(path, pacer{}, 0, 0)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 24))
	finishWire(t, w)
	require.Error(t, w.Err())
	require.True(t, errors.As(w.Err(), new(*InputError)))
	require.NoError(t, w.Close())
}

func TestReplayCostsNoAllocation(t *testing.T) {
	path := captureFile(t, pcapBytes(binary.LittleEndian, magicMicro, 1, []byte("one"), []byte("two")))
	w := openWire(t, "replay:"+path+",loop=0")
	now := time.Now()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		w.Peek(now)
		w.Take()
	}))
}
