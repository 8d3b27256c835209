package main

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func TestModerationConstantsAreTheManuals(t *testing.T) {
	want := map[string]uint64{"MLX5_CQ_INIT_CMD_SN": cqArmNever, "MLX5_CQ_MODIFY_PERIOD": cqModifyPeriod, "MLX5_CQ_MODIFY_COUNT": cqModifyCount,
		"MLX5_CQ_MODIFY_PERIOD_MODE": cqModifyPeriodMode, "MLX5_MAX_CQ_PERIOD": mostUsecs}
	for _, r := range readTSV(t, sharedFile(t, "prm", "values.tsv")) {
		v, ours := want[r[1]]
		if !ours {
			continue
		}
		got, err := strconv.ParseUint(r[2], 0, 64)
		require.NoError(t, err)
		require.Equal(t, v, got, r[1])
		delete(want, r[1])
	}
	require.Empty(t, want)
	for mode, profiles := range rxProfiles {
		for i := 1; i < len(profiles); i++ {
			require.Greater(t, profiles[i].usecs, profiles[i-1].usecs, "mode %d", mode)
			require.LessOrEqual(t, profiles[i].usecs, uint16(mostUsecs))
		}
	}
}

func TestCompareLoad(t *testing.T) {
	for _, c := range []struct {
		name        string
		now, before loadRate
		want        int
	}{
		{"the same", loadRate{1000, 100, 10}, loadRate{1000, 100, 10}, 0},
		{"within chance", loadRate{1090, 109, 9}, loadRate{1000, 100, 9}, 0},
		{"more bytes", loadRate{1200, 100, 90}, loadRate{1000, 100, 10}, 1},
		{"fewer bytes but more packets", loadRate{800, 900, 1}, loadRate{1000, 100, 10}, -1},
		{"more packets", loadRate{1000, 120, 90}, loadRate{1000, 100, 10}, 1},
		{"fewer packets", loadRate{1000, 80, 1}, loadRate{1000, 100, 10}, -1},
		{"fewer events", loadRate{1000, 100, 5}, loadRate{1000, 100, 10}, 1},
		{"more events", loadRate{1000, 100, 20}, loadRate{1000, 100, 10}, -1},
		{"from nothing", loadRate{1, 1, 1}, loadRate{}, 1},
		{"to nothing", loadRate{}, loadRate{1, 1, 1}, -1},
		{"nothing", loadRate{}, loadRate{}, 0},
	} {
		require.Equal(t, c.want, compareLoad(c.now, c.before), c.name)
	}
}

func TestRateBetween(t *testing.T) {
	at := time.Unix(1, 0)
	r, ok := rateBetween(loadSample{at, 10, 20, 30}, loadSample{at.Add(2 * time.Millisecond), 13, 120, 6030})
	require.True(t, ok)
	require.Equal(t, loadRate{bytes: 3000, packets: 50, events: 2}, r, "a millisecond, rounded up")
	_, ok = rateBetween(loadSample{at: at}, loadSample{at: at})
	require.False(t, ok)
	_, ok = rateBetween(loadSample{at: at}, loadSample{at: at.Add(-time.Second)})
	require.False(t, ok, "a clock that ran backwards")
}

// hill is a load that is best at one profile: each step from it costs 30 %.
func hill(best, level int) loadRate {
	v := uint64(1_000_000)
	for range max(best-level, level-best) {
		v = v * 7 / 10
	}
	return loadRate{bytes: v, packets: v / 100, events: 100}
}

// Wherever the best profile is, the climb ends there or beside it and rests; when
// the load changes it climbs again.
func TestClimberFindsTheTop(t *testing.T) {
	for best := range 5 {
		c := newClimber(5)
		spent := map[int]int{}
		for i := range 200 {
			c.decide(hill(best, c.level))
			if i >= 50 {
				spent[c.level]++
			}
		}
		require.Greater(t, spent[best], 100, "best %d: spent %v", best, spent)
	}
	c := newClimber(5)
	for range 60 {
		c.decide(hill(4, c.level))
	}
	require.Equal(t, 4, c.level)
	require.Equal(t, onTop, c.state)
	reached := false
	for range 60 {
		c.decide(hill(0, c.level))
		reached = reached || c.level == 0
	}
	require.True(t, reached, "a new load was not followed")
}

func TestClimberRestsWhereNothingMatters(t *testing.T) {
	c := newClimber(5)
	changes := 0
	for range 1000 {
		if c.decide(loadRate{1000, 10, 10}) {
			changes++
		}
	}
	require.LessOrEqual(t, changes, 500, "half of the time it rests, exhausted")
}

// Whatever is measured, levels stay in range and change by one at a time, and the
// climber never walks on for ever without a rest.
func TestClimberOnAnyLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := newClimber(5)
	walked := 0
	for range 100_000 {
		was := c.level
		changed := c.decide(loadRate{rng.Uint64N(4000), rng.Uint64N(40), rng.Uint64N(9)})
		require.Equal(t, changed, c.level != was)
		require.LessOrEqual(t, max(c.level-was, was-c.level), 1)
		require.True(t, c.level >= 0 && c.level <= c.top)
		if walked++; c.state != climbing {
			walked = 0
		}
		require.LessOrEqual(t, walked, 2*(c.top+1)+1)
	}
}

func TestParseCoalesce(t *testing.T) {
	w, adaptive, err := parseCoalesce("rx-usecs 8,rx-frames=128,tx-usecs 0")
	require.NoError(t, err)
	require.Equal(t, coalesceWish{"rx-usecs": 8, "rx-frames": 128, "tx-usecs": 0}, w)
	require.Empty(t, adaptive)
	w, adaptive, err = parseCoalesce("adaptive-rx on rx-usecs 8 tx-frames 3")
	require.NoError(t, err)
	require.Equal(t, coalesceWish{"rx-usecs": 8, "tx-frames": 3}, w)
	require.Equal(t, "on", adaptive)
	for list, want := range map[string]string{
		"rx-usecs":          "NAME N",
		"rx-usecs 4096":     "0 to 4095",
		"tx-frames 65536":   "0 to 65535",
		"rx-usecs -1":       "0 to 4095",
		"rx-usec 1":         "there is rx-usecs",
		"rx-usecs 1,":       "NAME N",
		"rx-usecs 1 2":      "NAME N",
		"rx-frames onehund": "0 to 65535",
		"adaptive-rx 1":     "on or off",
		"adaptive-tx on":    "there is rx-usecs",

		"rx-usecs 1 rx-usecs 2": "rx-usecs stands twice",
	} {
		_, _, err := parseCoalesce(list)
		require.ErrorContains(t, err, want, list)
		require.ErrorAs(t, err, &wishError{}, list)
	}
}

// commandContexts are the CQ contexts that commands of one opcode carried.
func (l *commandLog) contexts(op uint16, ctx area) (out []([]byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.seen {
		if c.Opcode == op {
			out = append(out, ctx.in(c.In))
		}
	}
	return out
}

func (l *commandLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

// moderOf is what a CQ context says about moderation.
func moderOf(ctx []byte) (moderation, bool) {
	return moderation{uint16(cqcPeriod.get(ctx)), uint16(cqcMaxCount.get(ctx))}, cqcPeriodMode.on(ctx)
}

// Wishes, defaults and private flags become what CREATE_CQ and MODIFY_CQ say.
func TestModerationReachesFirmware(t *testing.T) {
	log := &commandLog{fail: -1}
	d := testDevice(t, model.Config{Script: log.script()})
	o := openOptions{wishes: wishes{queues: 2, coalesce: coalesceWish{"rx-usecs": 7, "rx-frames": 77, "tx-usecs": 9}}, cpus: 2,
		flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }}
	n, err := openNIC(t.Context(), d, false, o)
	require.NoError(t, err)
	created := log.contexts(opCreateCQ, createCQInCtx)
	require.Len(t, created, 4)
	for i, ctx := range created {
		m, fromCQE := moderOf(ctx)
		if i%2 == 0 {
			require.Equal(t, moderation{7, 77}, m)
			require.True(t, fromCQE, "rx_cqe_moder is on by default")
		} else {
			require.Equal(t, moderation{9, defaultTxModer.frames}, m)
			require.False(t, fromCQE)
		}
	}
	log.reset()
	require.NoError(t, n.setCoalesce([2]moderation{{1, 2}, {3, 4}}, false))
	require.NoError(t, n.setPrivFlag("tx_cqe_moder", true))
	changed := log.contexts(opModifyCQ, modifyCQInCtx)
	require.Len(t, changed, 8)
	for i, ctx := range changed {
		m, fromCQE := moderOf(ctx)
		require.Equal(t, []moderation{{1, 2}, {3, 4}}[i%2], m)
		require.Equal(t, i%2 == 0 || i >= 4, fromCQE)
	}
	require.Contains(t, n.formatCoalesce(), "rx-usecs: 1\nrx-frames: 2\ntx-usecs: 3\ntx-frames: 4\n")
	require.NoError(t, n.close())
	requireClean(t, d)
}

// A flag that changes where the period starts brings the other default along; a
// card that cannot change it says so.
func TestPeriodModeIsLiveWhereTheCardCan(t *testing.T) {
	for _, profile := range model.Profiles() {
		d := testDevice(t, model.Config{Profile: profile})
		n, err := openNIC(t.Context(), d, d.virtual(), openOptions{wishes: wishes{queues: 1}, cpus: 1,
			flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
		require.NoError(t, err)
		require.Equal(t, defaultRxModer[1], n.params.moder[0])
		err = n.setPrivFlag("rx_cqe_moder", false)
		if profile == "cx4" {
			require.ErrorContains(t, err, "only be set at start")
			require.True(t, n.params.flags.rxCQEModer)
		} else {
			require.NoError(t, err, profile)
			require.Equal(t, defaultRxModer[0], n.params.moder[0])
		}
		require.NoError(t, n.close())
	}
}

// A completion queue with moderation sends one event for many completions.
func TestModerationHoldsEventsBack(t *testing.T) {
	const frames = 64
	events := func(m moderation) (n uint64) {
		wire := &burstWire{frames: [2][]byte{wantedFrame, floodFrame}}
		r, err := newBenchRigOn("cx5", wire, wishes{queues: 1, promisc: true, coalesce: coalesceWish{"rx-usecs": m.usecs, "rx-frames": m.frames}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.close()) }()
		c := r.nic.channels[0]
		c.setHandler(dropWork{})
		c.rest(c)
		for range frames {
			wire.left[0] = 1
			r.settle()
			if c.wake(); c.seen == n {
				continue // the loop would still sleep
			}
			n = c.seen
			for c.poll(napiBudget) > 0 {
			}
			c.rest(c)
			r.settle()
		}
		return n
	}
	require.EqualValues(t, frames, events(moderation{}), "each completion has its event")
	begun := time.Now()
	held := events(moderation{mostUsecs, 16})
	periods := uint64(time.Since(begun) / (mostUsecs * time.Microsecond))
	require.NotZero(t, held)
	require.LessOrEqual(t, held, frames/16+1+periods)
}

// The loop never waits for firmware: a slow MODIFY_CQ delays nothing, and while it
// is under way no other is asked for.
func TestAdaptiveNeverWaits(t *testing.T) {
	var asked atomic.Int32
	var slow atomic.Bool
	d := testDevice(t, model.Config{Script: &model.Script{Command: func(c model.CommandInfo) model.Verdict {
		if c.Opcode == opModifyCQ {
			asked.Add(1)
			if slow.Load() {
				return model.Verdict{Delay: 300 * time.Millisecond}
			}
		}
		return model.Verdict{}
	}}})
	n, err := testOpen(d, wishes{queues: 1, adaptive: true})
	require.NoError(t, err)
	a := &n.channels[0].adapt
	now := loadSample{at: time.Unix(1, 0)}
	slow.Store(true)
	begun := time.Now()
	a.sample(now) // takes the wish over and asks for the first profile
	for i := range uint64(1000) {
		now = loadSample{now.at.Add(time.Millisecond), now.events + sampleEvents, now.packets + 100*(i%7), now.bytes + 9000*(i%5)}
		a.sample(now)
	}
	require.Less(t, time.Since(begun), 200*time.Millisecond)
	require.Eventually(t, func() bool { return n.moder.changes.get() == 1 && !a.asked.Load() }, 5*time.Second, time.Millisecond)
	require.EqualValues(t, 1, asked.Load())
	slow.Store(false)
	for i := range uint64(200) {
		now = loadSample{now.at.Add(time.Millisecond), now.events + sampleEvents, now.packets + 100*(i%7), now.bytes + 9000*(i%5)}
		a.sample(now)
		for a.asked.Load() {
			time.Sleep(50 * time.Microsecond)
		}
	}
	require.Greater(t, asked.Load(), int32(5))
	require.Zero(t, n.moder.failures.get())

	// Switched off, what the user set is in force and stays so.
	before := asked.Load()
	require.NoError(t, n.setCoalesce(n.params.moder, false))
	require.EqualValues(t, before+2, asked.Load(), "receive and send queue")
	for range 10 {
		now.events += sampleEvents
		now.at = now.at.Add(time.Millisecond)
		a.sample(now)
	}
	time.Sleep(10 * time.Millisecond)
	require.EqualValues(t, before+2, asked.Load())
	require.NoError(t, n.close())
	requireClean(t, d)
}
