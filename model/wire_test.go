package model

// wire_test.go holds the spelling of SPEC, the class of errors and the pace,
// and has the clock and the small helpers of the other wire tests.

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wireClock is a clock that only the test moves.
type wireClock struct{ now time.Time }

func newWireClock() *wireClock { return &wireClock{time.Unix(1700000000, 0)} }

func (c *wireClock) add(d time.Duration) time.Time {
	c.now = c.now.Add(d)
	return c.now
}

// openWire opens a spec that must be right and closes it with the test.
func openWire(t testing.TB, spec string) Wire {
	t.Helper()
	w, err := ParseWire(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// drainWire takes all there is at one moment, copied, at most limit frames.
func drainWire(w Wire, now time.Time, limit int) [][]byte {
	var all [][]byte
	for len(all) < limit {
		f := w.Peek(now)
		if f == nil {
			break
		}
		all = append(all, append([]byte{}, f...))
		w.Take()
	}
	return all
}

func TestParseWireRefuses(t *testing.T) {
	for spec, text := range map[string]string{
		"":                             `unknown kind ""; use replay:FILE[,pps=N][,rate=BITS][,realtime][,loop=N], gen[,mode=imix|SIZE]`,
		"wifi":                         `unknown kind "wifi"; use replay:FILE`,
		"replay":                       "FILE is missing; write replay:FILE",
		"replay:":                      "FILE is missing",
		"replay,pps=1":                 "FILE is missing",
		"replay:x.pcap,speed=1":        `unknown option "speed=1"; write replay:FILE[,pps=N]`,
		"replay:x.pcap,":               `unknown option ""`,
		"gen:":                         `unknown option ""`,
		"gen,":                         `unknown option ""`,
		"loop:":                        `unknown option ""`,
		"replay:x.pcap,pps":            "write pps=N",
		"replay:x.pcap,pps=":           "whole number from 1 to 1000000000",
		"replay:x.pcap,pps=0":          "whole number from 1",
		"replay:x.pcap,pps=-1":         "whole number from 1",
		"replay:x.pcap,pps=1.5":        "whole number from 1",
		"replay:x.pcap,pps=2G":         "whole number from 1",
		"replay:x.pcap,pps=k":          "whole number from 1",
		"replay:x,pps=99999999999999G": "whole number from 1",
		"replay:x.pcap,pps=1,pps=2":    "given twice",
		"replay:x.pcap,realtime=1":     `option "realtime=1": write realtime`,
		"replay:x.pcap,realtime,pps=1": "options pps and realtime exclude each other",
		"replay:x.pcap,loop=x":         "loop=x: write a whole number from 0",
		"replay:/no/such/file.pcap":    "replay /no/such/file.pcap: no such file or directory",
		"replay:/":                     "replay /: not a regular file",
		"replay:/dev/zero":             "not a regular file",
		"gen:mode=big":                 "write imix or a frame size from 64 to 16000",
		"gen:mode=63":                  "write imix or a frame size from 64",
		"gen:mode=imix,size=64":        "exclude each other",
		"gen:mode=64,mode=65":          "option mode is given twice",
		"gen:size=63":                  "whole number from 64 to 16000",
		"gen:flows=0":                  "whole number from 1 to 8192",
		"gen:dst=router":               "write an Ethernet address",
		"gen:dst=02:00:00:00:00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f": "write an Ethernet address",
		"gen:imix":                  `unknown option "imix"`,
		"gen,pps=1,rate=1":          "pps and rate exclude each other",
		"loop:x":                    `unknown option "x"; loop takes none`,
		"none,x=1":                  `unknown option "x=1"; none takes none`,
		"tap":                       "NAME is missing; write tap:NAME",
		"tap:t0,pps=1":              `unknown option "pps=1"; tap takes none`,
		"tap:this-name-is-too-long": "is not an interface name",
		"tap:a/b":                   "is not an interface name",
		"if:no-such-if":             "wire if:no-such-if: there is no interface of this name",
		"if:a b":                    "is not an interface name",
	} {
		w, err := ParseWire(spec)
		require.Nil(t, w, spec)
		require.ErrorContains(t, err, text, spec)
		require.NotContains(t, err.Error(), "\n", spec)
		var input *InputError
		require.True(t, errors.As(err, &input), "%s: not an InputError", spec)
	}
}

func TestParseCount(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "64": 64, "10k": 10000, "2K": 2000, "3M": 3e6, "4G": 4e9, "18446744073709551615": 1<<64 - 1,
	} {
		n, ok := parseCount(text)
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "k", "-1", "+1", "0x10", "1 ", "1kk", "18446744073709551616", "18446744073709551615k"} {
		_, ok := parseCount(text)
		require.False(t, ok, text)
	}
}

func TestUnplugged(t *testing.T) {
	w := openWire(t, "none")
	w.Transmit([]byte("lost"))
	w.Take()
	require.Nil(t, w.Peek(time.Now()))
	require.False(t, w.LinkUp())
	require.False(t, w.Done(), "a port without a cable waits for one")
}

func TestPacerIsExact(t *testing.T) {
	for _, c := range []struct {
		pace   pacer
		length int
		want   time.Duration // of frame 3e6
	}{
		{pacer{rate: 3}, 60, 1e6 * time.Second},
		{pacer{rate: 1e6}, 60, 3 * time.Second},
		{pacer{rate: 7e6}, 60, 428571428},
		{pacer{rate: 10e9, bits: true}, 60, 201600 * time.Microsecond}, // 84 bytes
		{pacer{rate: 100e9, bits: true}, maxCaptured, time.Duration(float64((maxCaptured+24)*8) * 3e6 / 100)},
	} {
		for range 3000000 {
			c.pace.sent(c.length)
		}
		require.Equal(t, c.want, c.pace.due)
	}
}

// pacedFrames steps the clock and returns after how long each frame came.
func pacedFrames(w Wire, step time.Duration, n int) (at []time.Duration) {
	clock := newWireClock()
	start := clock.now
	for len(at) < n && !w.Done() && clock.now.Sub(start) < time.Hour {
		for w.Peek(clock.now) != nil {
			at = append(at, clock.now.Sub(start))
			w.Take()
		}
		clock.add(step)
	}
	return at
}

func TestPacedByFrames(t *testing.T) {
	w := openWire(t, "gen:pps=4,count=9")
	require.False(t, w.Lossless())
	ms := time.Millisecond
	require.Equal(t, []time.Duration{0, 250 * ms, 500 * ms, 750 * ms, 1000 * ms, 1250 * ms, 1500 * ms, 1750 * ms, 2000 * ms},
		pacedFrames(w, 10*ms, 9))
	require.True(t, w.Done())
}

func TestPacedByBits(t *testing.T) {
	// 1250 bytes with FCS are 1270 with preamble and gap: 10160 bits.
	w := openWire(t, "gen:size=1250,rate=10160,count=3")
	require.False(t, w.Lossless())
	require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, pacedFrames(w, time.Second/4, 3))
}

// What was missed comes at twice the pace and not in one burst; then the pace is the
// old one, and nothing was left out.
func TestPacedCatchesUpAfterALateLook(t *testing.T) {
	w := openWire(t, "gen:pps=10k,count=50000")
	clock := newWireClock()
	require.Len(t, drainWire(w, clock.now, 99000), 1)
	got := len(drainWire(w, clock.add(time.Second), 99000))
	require.LessOrEqual(t, got, 2*10+1, "twice what is due in a millisecond")
	for range 400 {
		n := len(drainWire(w, clock.add(time.Millisecond), 99000))
		require.InDelta(t, 20, n, 1)
		got += n
	}
	for range 1600 {
		got += len(drainWire(w, clock.add(time.Millisecond), 99000))
	}
	require.Equal(t, 30_000, got)
	require.Len(t, drainWire(w, clock.add(time.Millisecond), 99000), 10)
	require.Empty(t, drainWire(w, clock.add(-time.Minute), 99000), "a clock that runs backwards brings nothing")
	require.Len(t, drainWire(w, clock.add(time.Minute+time.Millisecond), 99000), 10)
}

func TestUsageNamesEveryKind(t *testing.T) {
	usage := wireUsage(wireKinds())
	for _, k := range wireKinds() {
		require.Contains(t, usage, k.usage())
		for _, o := range k.options {
			require.True(t, strings.Contains(k.usage(), o.usage()))
		}
	}
}
