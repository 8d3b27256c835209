package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// cli runs the program in this process.
func cli(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	require.NoError(t, ctx.Err(), "%v did not end", args)
	return code, out.String(), errs.String()
}

// expectation is what is known of a capture.
type expectation struct {
	File      string `json:"file"`
	ReadToEnd bool   `json:"read_to_end"`
	LinkTypes []int  `json:"linktypes"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"captured_bytes"`
}

func expectations(t testing.TB) (out []expectation) {
	b, err := os.ReadFile(sharedFile(t, "pcaps", "expected.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(b) {
		var e expectation
		require.NoError(t, json.Unmarshal(line, &e))
		out = append(out, e)
	}
	return out
}

func (e expectation) ethernet() bool { return slices.Contains(e.LinkTypes, 1) }

// Every capture goes through the emulated NIC without loss: what is inspected
// and what is dropped by name is what the file holds, and what is written back
// is the same frames.
func TestReplayedCapturesAreExact(t *testing.T) {
	for _, e := range expectations(t) {
		for _, profile := range []string{"cx5", "cx4"} {
			t.Run(e.File+"/"+profile, func(t *testing.T) {
				file := sharedFile(t, "pcaps", e.File)
				back := filepath.Join(t.TempDir(), "back.pcapng")
				code, out, errs := cli(t, "-emulate", "-profile", profile, "-wire", "replay:"+file, "-json", "-queues", "2", "-w", back)
				if !e.ethernet() {
					require.Equal(t, exitUsage, code)
					require.Contains(t, errs, "RAW (101)")
					require.Empty(t, out)
					return
				}
				if e.ReadToEnd {
					require.Equal(t, exitDone, code, errs)
				} else {
					require.Equal(t, exitUsage, code)
					require.Contains(t, errs, "cut short")
				}
				var s summary
				require.NoError(t, json.Unmarshal([]byte(out), &s))
				lost := uint64(0)
				for _, n := range s.Drops {
					lost += n
				}
				require.Equal(t, e.Packets, s.Packets+lost)
				require.Zero(t, lost, "a lossless wire lost frames: %v", s.Drops)
				require.Equal(t, e.Bytes, s.Bytes)
				require.Equal(t, frameHashes(t, file), frameHashes(t, back))
			})
		}
	}
}

// frameHashes is the sorted list of hashes of the Ethernet frames in a capture.
func frameHashes(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := model.NewReader(f)
	require.NoError(t, err)
	for {
		rec, err := r.Next()
		if err != nil {
			break // the end, or where the file was cut
		}
		out = append(out, fmt.Sprintf("%x", sha256.Sum256(rec.Data)))
	}
	slices.Sort(out)
	return out
}

// Frames keep their order within a queue: with one queue the file written back
// is the file replayed.
func TestReplayKeepsOrder(t *testing.T) {
	file := sharedFile(t, "pcaps", "suricata_tls-subjectaltname.pcap")
	back := filepath.Join(t.TempDir(), "back.pcap")
	code, _, errs := cli(t, "-emulate", "-wire", "replay:"+file, "-json", "-queues", "1", "-w", back)
	require.Equal(t, exitDone, code, errs)
	read := func(path string) (out [][]byte) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		r, err := model.NewReader(f)
		require.NoError(t, err)
		for {
			rec, err := r.Next()
			if err != nil {
				return out
			}
			out = append(out, bytes.Clone(rec.Data))
		}
	}
	require.Equal(t, read(file), read(back))
}

// What the user gets wrong is one line on standard error and exit code 2.
func TestWrongUse(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short.pcap")
	require.NoError(t, os.WriteFile(short, []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0}, 0o600))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-nonsense"}, "-nonsense"},
		{[]string{"-emulate", "extra"}, "extra"},
		{[]string{}, "-pci"},
		{[]string{"-emulate", "-pci", "03:00.0"}, "exclude"},
		{[]string{"-bind"}, "-pci"},
		{[]string{"-pci", "not-an-address"}, "not-an-address"},
		{[]string{"-emulate", "-profile", "cx9"}, "cx5"},
		{[]string{"-emulate", "-mode", "fly"}, "inspect"},
		{[]string{"-emulate", "-log", "xml"}, "json"},
		{[]string{"-emulate", "-duration", "-1s"}, "negative"},
		{[]string{"-emulate", "-queues", "many"}, "queues"},
		{[]string{"-emulate", "-queues", "1000"}, "1 to "},
		{[]string{"-emulate", "-queues", "-1"}, "1 to "},
		{[]string{"-emulate", "-mtu", "20000"}, "10218"},
		{[]string{"-emulate", "-mtu", "67"}, "68"},
		{[]string{"-emulate", "-rx-ring", "7"}, "64 to "},
		{[]string{"-emulate", "-tx-ring", "1000000"}, "64 to "},
		{[]string{"-emulate", "-wire", "replay:" + short}, "short.pcap"},
		{[]string{"-emulate", "-wire", "replay:/nowhere/x.pcap"}, "/nowhere/x.pcap"},
		{[]string{"-emulate", "-wire", "gen:mode=huge"}, "huge"},
		{[]string{"-emulate", "-wire", "carrier-pigeon"}, "carrier-pigeon"},
		{[]string{"-bench", "lunch"}, "lunch"},
		{[]string{"-serve", "a,b,c"}, "pairs"},
	} {
		code, out, errs := cli(t, c.args...)
		require.Equal(t, exitUsage, code, "%v: %s", c.args, errs)
		require.Empty(t, out, "%v", c.args)
		last := strings.TrimRight(errs, "\n")
		require.NotContains(t, last, "\n", "%v: more than one line", c.args)
		require.True(t, strings.HasPrefix(last, "mlx5d: "), "%v: %s", c.args, errs)
		require.Contains(t, last, c.says, "%v", c.args)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	code, out, _ := cli(t, "-h")
	require.Equal(t, exitDone, code)
	var o options
	f := newFlags(&o)
	f.VisitAll(func(fl *flag.Flag) { require.Contains(t, out, "  -"+fl.Name, "-h does not show it") })
	for _, g := range flagGroups {
		require.Contains(t, out, g.example)
	}
}

// -count is exact over all queues, when inspecting and when sending, whatever fits in
// the ring.
func TestCountIsExact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.pcap")
	writePcap(t, path, [][]byte{numberedFrame(60, 1), numberedFrame(900, 2), numberedFrame(300, 3)})
	for _, datapath := range []string{"", "xdp", "xsk"} {
		for _, args := range []string{"", "-tx-ring 64", "-tx-inline 60", "-tx-ring 64 -tx-inline 972 -size 900", "-queues 8", "-queues 8 -tx-ring 64",
			"-tx-ring 64 -tx-inline 972 -r " + path} {
			if datapath != "" && strings.Contains(args, "-r ") {
				continue
			}
			list := append(strings.Fields("-emulate -wire none -mode txonly -json -count 12345"), strings.Fields(args)...)
			if datapath != "" {
				list = append(list, "-datapath", datapath)
			}
			code, out, errs := cli(t, list...)
			require.Equal(t, exitDone, code, errs)
			var s countSummary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			require.EqualValues(t, 12345, s.TxPackets, "%v", list)
			require.Zero(t, s.TxDropped, "%v", list)
		}
	}
	code, out, errs := cli(t, "-emulate", "-wire", "gen:count=0", "-json", "-count", "12345", "-queues", "2")
	require.Equal(t, exitDone, code, errs)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.EqualValues(t, 12345, s.Packets)
}

// Forwarding through a send ring that is always full gives all that the wire gave, by
// each datapath; MLX5D_END_RUNS says how often that is looked at.
func TestForwardingIsExact(t *testing.T) {
	const frames = 20_000
	for range envNumber(t, "MLX5D_END_RUNS", 2) {
		for _, args := range []string{"", "-datapath xdp", "-datapath xsk", "-queues 8", "-queues 8 -datapath xdp", "-queues 8 -datapath xsk", "-tx-inline 200", "-mtu 9000 -profile cx4"} {
			list := append(strings.Fields("-emulate -mode l2fwd -promisc -tx-ring 64 -json -wire"), fmt.Sprintf("gen:count=%d,size=192", frames))
			list = append(list, strings.Fields(args)...)
			code, out, errs := cli(t, list...)
			require.Equal(t, exitDone, code, errs)
			var s countSummary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			lost := uint64(0)
			for _, n := range s.Drops {
				lost += n
			}
			require.EqualValues(t, frames, s.RxPackets+s.Drops["rx_stop_drop"]+s.Drops["rx_xsk_detach_drop"], "%s: %s", args, out)
			if lost == 0 { // else the device stood still for as long as it is waited for
				require.EqualValues(t, frames, s.TxPackets, "%s: %s", args, out)
			}
			require.Equal(t, s.Drops["tx_queue_dropped"]+s.Drops["tx_xsk_err"]+s.Drops["tx_xsk_stop_drop"], s.TxDropped, "%s: %s", args, out)
		}
	}
}

// The text says what was not sent.
func TestTextNamesSendDrops(t *testing.T) {
	code, out, errs := cli(t, "-emulate", "-wire", "none", "-mode", "txonly", "-count", "100")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "sent 100 packets, 6000 bytes")
	require.Contains(t, out, ", dropped 0 in sending, ")
}

// A wire that does not wait loses by name what finds no buffer, and the sum is
// exact all the same. Runts and giants have counters of their own.
func TestLossIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd.pcap")
	var frames [][]byte
	for i := range 400 {
		frames = append(frames, bytes.Repeat([]byte{2}, 10+i%3000))
	}
	writePcap(t, path, frames)
	code, out, errs := cli(t, "-emulate", "-wire", "replay:"+path+",pps=5M,loop=40", "-json", "-mtu", "300", "-rx-ring", "64", "-queues", "1")
	require.Equal(t, exitDone, code, errs)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	sum := s.Packets
	for _, n := range s.Drops {
		sum += n
	}
	require.EqualValues(t, 400*40, sum, "%v", s.Drops)
	require.EqualValues(t, 4*40, s.Drops["rx_undersize_pkts_phy"])
	require.NotZero(t, s.Drops["rx_oversize_pkts_phy"])
}

// Frames that crash the decoder library pass through the whole appliance: every
// one is counted, nothing dies, and memory stays bounded.
func TestHostileFramesThroughTheNIC(t *testing.T) {
	var frames [][]byte
	for _, r := range readTSV(t, sharedFile(t, "field", "gopacket-panics.tsv")) {
		b, err := hex.DecodeString(r[3])
		require.NoError(t, err)
		frames = append(frames, b)
		for _, kind := range []uint16{ethIPv4, ethIPv6, ethARP, 0x8847, 0x88cc} { // what starts at a higher layer
			frames = append(frames, append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, byte(kind >> 8), byte(kind)}, b...))
		}
	}
	require.Greater(t, len(frames), 100)
	path := filepath.Join(t.TempDir(), "hostile.pcap")
	writePcap(t, path, frames)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	code, out, errs := cli(t, "-emulate", "-wire", "replay:"+path, "-json")
	runtime.ReadMemStats(&after)
	require.Equal(t, exitDone, code, errs)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	sum := s.Packets
	for _, n := range s.Drops {
		sum += n
	}
	require.EqualValues(t, len(frames), sum)
	require.NotEmpty(t, s.DecodeErrors)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), "bytes allocated")
}

// writePcap writes frames as a plain microsecond capture of Ethernet.
func writePcap(t testing.TB, path string, frames [][]byte) {
	t.Helper()
	le := func(b []byte, v ...uint32) []byte {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
		return b
	}
	b := le(nil, 0xa1b2c3d4, 2|4<<16, 0, 0, 262144, 1)
	for i, f := range frames {
		b = le(b, uint32(i), 0, uint32(len(f)), uint32(len(f)))
		b = append(b, f...)
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// A run leaves no goroutine, no file and no memory mapping behind.
func TestRunLeavesNothingBehind(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	cli(t, "-emulate", "-wire", "gen:count=100") // what is made once is made
	before := count()
	for range 5 {
		code, _, errs := cli(t, "-emulate", "-wire", "gen:count=100")
		require.Equal(t, exitDone, code, errs)
	}
	require.Equal(t, before, count())
}
