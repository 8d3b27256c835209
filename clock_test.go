package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func TestClockRegistersAreWhereTheManualSays(t *testing.T) {
	want := map[string]int{"internal_timer_h": regInternalTimer, "internal_timer_l": regInternalTimer + 4,
		"real_time_h": regRealTime, "real_time_l": regRealTime + 4}
	for _, r := range readTSV(t, sharedFile(t, "prm", "datapath.tsv")) {
		at, ours := want[r[1]]
		if r[0] != "init_seg" || !ours {
			continue
		}
		off, err := strconv.Atoi(r[2])
		require.NoError(t, err)
		require.Equal(t, at, off, r[1])
		delete(want, r[1])
	}
	require.Empty(t, want)
}

// A clock that runs on between any two reads, over the wrap of its lower half, is
// never read as a time that it did not show.
func TestSplitReadIsNotTorn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		wrap := uint64(1+rng.Uint32N(100)) << 32
		now := wrap - uint64(rng.Uint32N(20))
		from := now
		read := func(off int) uint32 {
			v := now
			now += uint64(rng.Uint32N(8))
			if off == 0x1000 {
				return uint32(v >> 32)
			}
			return uint32(v)
		}
		got := readSplit(read, 0x1000)
		require.GreaterOrEqual(t, got, from)
		require.LessOrEqual(t, got, now)
	}
}

// hostEpoch is a moment of today, nanoseconds since 1970.
const hostEpoch = int64(1_700_000_000_000_000_000)

// crystal is a free-running counter that is off its nominal rate.
type crystal struct {
	khz   float64
	off   float64 // share by which it runs fast
	start uint64
}

// ticks is what it shows ns nanoseconds after hostEpoch.
func (c crystal) ticks(ns int64) uint64 {
	return c.start + uint64(math.Round(float64(ns)*c.khz/1e6*(1+c.off)))
}

// A stamp has one time, to a nanosecond, whether it is looked at before or after the line is bent:
// frames of two queues keep their order.
func TestStampHasOneTime(t *testing.T) {
	c := crystal{156_250, 80e-6, 1 << 20}
	s := newClockServo(156_250)
	var before conversion
	for ns := int64(0); ns < int64(5*time.Second); ns += int64(time.Second) {
		line := s.update(clockSample{stamp: c.ticks(ns), host: hostEpoch + ns})
		if ns > 0 {
			for back := uint64(0); back < 1e8; back += 12_345_678 {
				require.InDelta(t, before.wall(line.from-back), line.wall(line.from-back), 1, "%d ticks before", back) // rounding
			}
		}
		before = line
	}
}

// Converted times follow the host's clock however the oscillator is off and however
// coarsely it is read, across the wrap of the counter, and never run backwards.
func TestFreeRunningClockIsFollowed(t *testing.T) {
	for _, khz := range []uint32{156_250, 275_000, 1_000_000} {
		for _, off := range []float64{0, 30e-6, -100e-6, 1.6e-3} {
			t.Run(fmt.Sprintf("%d kHz %+g", khz, off), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(khz), 7))
				// The compared part of the counter wraps in the tenth second.
				c := crystal{float64(khz), off, 5<<timerBits - uint64(khz)*9500}
				s := newClockServo(khz)
				last := int64(0)
				for sec := range int64(60) {
					at := sec * 1e9
					late := rng.Int64N(20_000) // the register shows what was a moment ago
					line := s.update(clockSample{stamp: c.ticks(at - late), host: hostEpoch + at})
					worst := int64(0)
					for ns := at; ns < at+1e9; ns += 7_654_321 {
						got := line.wall(c.ticks(ns))
						require.GreaterOrEqual(t, got, last, "second %d", sec)
						last = got
						worst = max(worst, time.Duration(got-hostEpoch-ns).Abs().Nanoseconds())
					}
					if sec > 30 {
						require.Less(t, worst, int64(60_000), "second %d", sec)
					}
					require.Less(t, worst, int64(5_000_000), "second %d", sec)
				}
				require.InDelta(t, -off, s.drift, 30e-6, "the drift was not learned")
			})
		}
	}
}

func TestStampsBeforeTheLastComparison(t *testing.T) {
	s := newClockServo(1_000_000)
	s.update(clockSample{stamp: 1000, host: hostEpoch})
	line := s.update(clockSample{stamp: 1_000_001_000, host: hostEpoch + 1e9})
	require.InDelta(t, hostEpoch+500_000_000, line.wall(500_001_000), 1000)
}

// A reading that was interrupted or shows an old register is not the one taken.
func TestBestSample(t *testing.T) {
	line := newClockServo(0).line
	all := []clockSample{
		{stamp: realStamp(hostEpoch - 300_000), host: hostEpoch, width: 900},
		{stamp: realStamp(hostEpoch + 100_000), host: hostEpoch + 200_000, width: 1000},
		{stamp: realStamp(hostEpoch + 20e6), host: hostEpoch + 10e6, width: 20e6},
	}
	require.Equal(t, all[1], bestSample(all, line))
	require.Equal(t, all[0], bestSample(all[:1], line))
}

// One reading that makes no sense changes nothing; a clock that was really set does.
func TestOneOddReadingIsNotBelieved(t *testing.T) {
	s := newClockServo(1_000_000)
	s.update(clockSample{stamp: 0, host: hostEpoch})
	before := s.update(clockSample{stamp: 1e9, host: hostEpoch + 1e9})
	torn := s.update(clockSample{stamp: 2e9 + 1<<32, host: hostEpoch + 2e9})
	require.Equal(t, before, torn)
	line := s.update(clockSample{stamp: 3e9, host: hostEpoch + 3e9})
	require.InDelta(t, hostEpoch+3e9, line.wall(3e9), 1000)
	hour := int64(time.Hour) // the host's clock is set
	s.update(clockSample{stamp: 4e9, host: hostEpoch + 4e9 + hour})
	line = s.update(clockSample{stamp: 5e9, host: hostEpoch + 5e9 + hour})
	require.InDelta(t, hostEpoch+5e9+hour, line.wall(5e9), 1000)
}

func realStamp(ns int64) uint64 { return uint64(ns/1e9)<<32 | uint64(ns%1e9) }

func TestRealTimeKeepsItsPhase(t *testing.T) {
	for _, c := range []struct {
		name        string
		off, remain int64 // of the device's clock; what may remain of it
	}{
		{"right", 0, 0},
		{"PTP is better than the host", 300_000, 300_000},
		{"TAI", 37e9 + 1200, 1200},
		{"never set", -hostEpoch + 12_345, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newClockServo(0)
			var line conversion
			for i := range int64(4) {
				line = s.update(clockSample{stamp: realStamp(hostEpoch + c.off + i*1e9), host: hostEpoch + i*1e9})
			}
			require.Equal(t, hostEpoch+9e9+c.remain, line.wall(realStamp(hostEpoch+c.off+9e9)))
		})
	}
}

// cardTime is a card's clock in real time that runs at a rate of its own.
type cardTime struct {
	off int64   // ahead of hostEpoch at the start
	ppm float64 // that it runs fast
}

// stamp is what it shows ns nanoseconds after hostEpoch.
func (c cardTime) stamp(ns int64) uint64 {
	return realStamp(hostEpoch + c.off + ns + int64(math.Round(float64(ns)*c.ppm/1e6)))
}

// twoDays is what a servo's times were like beside a card's clock, seconds long.
type twoDays struct {
	worst   int64 // farthest off the host
	settled int64 // the same after calm seconds
	jump    int64 // largest change of that within a third of a second
	moved   int64 // farthest that a stamp's time moved when the line was bent
	back    int   // times that ran backwards
}

func (r *twoDays) watch(s *clockServo, card cardTime, seconds, calm int64) {
	rng := rand.New(rand.NewPCG(3, uint64(card.ppm+100)))
	far := func(v int64) int64 { return max(v, -v) }
	last, off := int64(math.MinInt64), int64(0)
	for sec := range seconds {
		ns, before := sec*1e9, s.line
		line := s.update(clockSample{stamp: card.stamp(ns - rng.Int64N(20_000)), host: hostEpoch + ns})
		if sec > 0 {
			v := card.stamp(ns - rng.Int64N(1e9))
			r.moved = max(r.moved, far(line.wall(v)-before.wall(v)))
		}
		for i := range int64(3) {
			now := ns + i*333_333_333
			at := line.wall(card.stamp(now))
			err := at - hostEpoch - now
			if at < last {
				r.back++
			}
			if last != math.MinInt64 {
				r.jump = max(r.jump, far(err-off))
			}
			last, off = at, err
			if r.worst = max(r.worst, far(err)); sec >= calm {
				r.settled = max(r.settled, far(err))
			}
		}
	}
}

// A clock that nobody keeps is followed for two days, whether it was never set or was
// near when it was found: it never jumps nor runs backwards, a stamp keeps its time
// when the line is bent, and what a near one was off at first fades once it is known
// that nobody keeps it.
func TestRealTimeThatNobodyKeepsIsFollowed(t *testing.T) {
	const seconds = 48 * 3600
	const settled = int64(60_000)
	for _, c := range []struct {
		name        string
		off, found  int64 // of the card's clock; what it is off but for its scale
		calm, worst int64
	}{
		{"never set", -hostEpoch + 1e9, 0, 30, settled},
		{"set once", 0, 0, seconds / 4, int64(realWander) + settled},
		{"set once, and not well", 480e6, 480e6, seconds / 4, 480e6 + int64(realWander) + settled},
		{"set once to TAI", 37e9 - 300e6, -300e6, seconds / 4, 300e6 + int64(realWander) + settled},
	} {
		for _, ppm := range []float64{-20, 20} {
			t.Run(fmt.Sprintf("%s %+g ppm", c.name, ppm), func(t *testing.T) {
				s := newClockServo(0)
				var r twoDays
				r.watch(&s, cardTime{c.off, ppm}, seconds, c.calm)
				require.Less(t, r.worst, c.worst)
				require.GreaterOrEqual(t, r.worst, max(c.found, -c.found))
				require.Less(t, r.settled, settled)
				require.Less(t, r.jump, 2*fadeMost)
				require.Less(t, r.moved, int64(10), "by rounding alone")
				require.Zero(t, r.back)
				require.InDelta(t, -ppm/1e6, s.drift, 30e-6)
				require.False(t, s.kept)
				t.Logf("%+v", r)
			})
		}
	}
}

// A clock that somebody keeps has its exact phase for two days, however NTP moves
// the host to and fro, and is on another scale after a leap second.
func TestKeptRealTimeIsLeftAlone(t *testing.T) {
	const tai, phase = int64(37e9), int64(1200)
	s := newClockServo(0)
	host := func(sec int64) int64 {
		return hostEpoch + sec*1e9 + int64(20e6*math.Sin(float64(sec)/3000))
	}
	for sec := range int64(48 * 3600) {
		line := s.update(clockSample{stamp: realStamp(hostEpoch + tai + phase + sec*1e9), host: host(sec)})
		v := hostEpoch + sec*1e9 + 123_456_789
		if got := line.wall(realStamp(v + tai + phase)); got != v+phase {
			require.Equal(t, v+phase, got, "second %d", sec)
		}
	}
	for i := range int64(clockDoubt) {
		sec := 48*3600 + i
		s.update(clockSample{stamp: realStamp(hostEpoch + tai + phase + sec*1e9), host: host(sec) - 1e9})
	}
	require.Equal(t, hostEpoch+phase-1e9, s.line.wall(realStamp(hostEpoch+tai+phase)))
	require.True(t, s.kept)
}

// run gives the servo so many samples, one a second, of a card's clock that is off
// so much and of a host's that was stepped.
func (s *clockServo) run(from, n int64, card cardTime, step int64) {
	for sec := from; sec < from+n; sec++ {
		s.update(clockSample{stamp: card.stamp(sec * 1e9), host: hostEpoch + sec*1e9 + step})
	}
}

// What was never set and then is, is kept from there on, at its phase.
func TestUnsetRealTimeThatIsSetLater(t *testing.T) {
	s := newClockServo(0)
	s.run(0, 1000, cardTime{-hostEpoch, 20}, 0)
	require.False(t, s.kept)
	s.run(1000, 100, cardTime{37e9 + 700, 0}, 0)
	require.True(t, s.kept)
	require.Equal(t, hostEpoch+700, s.line.wall(realStamp(hostEpoch+37e9+700)))
	s.run(1100, 100, cardTime{-hostEpoch, 20}, 0) // the card was reset
	require.False(t, s.kept)
	v := cardTime{-hostEpoch, 20}.stamp(1200e9)
	require.InDelta(t, hostEpoch+1200e9, s.line.wall(v), 1000)
}

// Once nobody keeps a clock, a step of the host's is followed and does not make it
// a kept one.
func TestHostIsSteppedBesideClockThatWasLeft(t *testing.T) {
	s, card := newClockServo(0), cardTime{0, 20}
	s.run(0, 20_000, card, 0)
	require.True(t, s.left)
	s.run(20_000, 100, card, 700e6)
	require.False(t, s.kept)
	require.InDelta(t, hostEpoch+20_100e9+700e6, s.line.wall(card.stamp(20_100e9)), 1000)
}

// While a machine sleeps the clocks drift apart as ever: that is no step, however
// much it is at once.
func TestDriftOverSleepIsNoStep(t *testing.T) {
	s, card := newClockServo(0), cardTime{490e6, 20}
	s.run(0, 10, card, 0)
	require.True(t, s.kept)
	before := s.line
	s.run(3600, 2, card, 0) // 72 ms
	require.True(t, s.left)
	v := card.stamp(3601e9)
	require.InDelta(t, before.wall(v), s.line.wall(v), float64(fadeMost+100_000))
	s.run(3602, 2000, card, 0)
	require.InDelta(t, hostEpoch+5602e9, s.line.wall(card.stamp(5602e9)), 1000)
}

// Readings that took too long are passed over, however many come in a row.
func TestSlowReadingsAreNotBelieved(t *testing.T) {
	for _, khz := range []uint32{0, 1_000_000} {
		s := newClockServo(khz)
		stamp := func(sec int64) uint64 {
			if khz == 0 {
				return realStamp(hostEpoch + sec*1e9)
			}
			return uint64(sec * 1e9)
		}
		s.update(clockSample{stamp: stamp(0), host: hostEpoch})
		before := s.update(clockSample{stamp: stamp(1), host: hostEpoch + 1e9})
		for sec := int64(2); sec < 10; sec++ {
			line := s.update(clockSample{stamp: stamp(sec), host: hostEpoch + sec*1e9 + 60e6, width: 120e6})
			require.Equal(t, before, line)
		}
	}
}

func TestStamperNeverRunsBackwards(t *testing.T) {
	c := &deviceClock{}
	s := stamper{clock: c}
	s.begin(hostEpoch)
	require.Equal(t, hostEpoch, s.at(12345), "a device without a clock has the host's time")
	line := newClockServo(0).line
	c.line.Store(&line)
	s.begin(hostEpoch + 1000)
	require.Equal(t, hostEpoch+900, s.at(realStamp(hostEpoch+900)))
	require.Equal(t, hostEpoch+900, s.at(realStamp(hostEpoch+800)))
	require.Equal(t, hostEpoch+1000, s.at(math.MaxUint64), "a stamp far in the future is not believed")
	require.Equal(t, hostEpoch+1000, s.at(0))
	s.begin(hostEpoch - int64(time.Hour))
	require.Equal(t, hostEpoch-int64(time.Hour), s.at(realStamp(hostEpoch-int64(time.Hour))), "the host's clock was set back")
}

// On every profile the frames of a capture have times of now, in order.
func TestTimesOnEveryProfile(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.pcapng")
			begun := time.Now()
			code, out, errs := cli(t, "-emulate", "-profile", profile, "-wire", "gen:count=3000,pps=20000", "-queues", "1", "-json", "-w", file)
			ended := time.Now()
			require.Equal(t, exitDone, code, errs)
			var s summary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			r, err := model.NewReader(f)
			require.NoError(t, err)
			var first, last time.Time
			n := uint64(0)
			for ; ; n++ {
				rec, err := r.Next()
				if err != nil {
					break
				}
				require.False(t, rec.Time.Before(last), "frame %d", n)
				if last = rec.Time; n == 0 {
					first = last
				}
			}
			require.Equal(t, s.Packets, n)
			const slack = 50 * time.Millisecond
			require.WithinRange(t, first, begun.Add(-slack), ended)
			require.WithinRange(t, last, first.Add(time.Millisecond), ended.Add(slack))
		})
	}
}

// The clock behind the stamps of each profile is the one that its capabilities say.
func TestClockOfEveryProfile(t *testing.T) {
	for _, profile := range model.Profiles() {
		d := testDevice(t, model.Config{Profile: profile})
		n, err := testOpen(d, wishes{queues: 1})
		require.NoError(t, err)
		require.True(t, n.clock.known(), profile)
		require.Equal(t, n.caps.rqTime == timestampReal, n.clock.line.Load().real, profile)
		if n.caps.rqTime != timestampReal {
			require.NotZero(t, n.caps.clockKHz, profile)
		}
		before := n.clock.line.Load()
		n.clock.compare()
		require.NotSame(t, before, n.clock.line.Load())
		require.Eventually(t, func() bool { // the machine may be busy at any moment
			stamp := readSplit(n.clock.read, n.clock.at)
			return time.Duration(time.Now().UnixNano()-n.clock.line.Load().wall(stamp)).Abs() < 5*time.Millisecond
		}, 5*time.Second, time.Millisecond, profile)
		require.NoError(t, n.close())
	}
}
