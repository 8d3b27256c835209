package main

// coalesce_test.go owns the proof that moderation is changed on all queues or on none,
// whichever command firmware refuses, and that what is shown is what the device has.

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// cqModer is what the device holds a completion queue's events back by.
type cqModer struct {
	moderation
	fromCQE bool
}

// askModer asks the device.
func askModer(t *testing.T, fw firmware, q *compQueue) cqModer {
	t.Helper()
	in := request(opQueryCQ, 0, 16)
	cmdObject.set(in, q.n)
	out, err := fw.exec(in, 16+256)
	require.NoError(t, err)
	m, fromCQE := moderOf(out[16:])
	return cqModer{m, fromCQE}
}

// inForceOf is what the device has for receive and for send queues, sockets' among
// them, in a fixed order.
func inForceOf(t *testing.T, n *nic) (out [2][]cqModer) {
	for _, c := range n.channels {
		out[0] = append(out[0], askModer(t, n.fw, c.rx.cq))
		for _, q := range c.sendQueues() {
			out[1] = append(out[1], askModer(t, n.fw, q.cq))
		}
		if c.xsk != nil {
			out[0] = append(out[0], askModer(t, n.fw, c.xsk.recv.cq))
			out[1] = append(out[1], askModer(t, n.fw, c.xsk.tx.cq))
		}
	}
	return out
}

// requireShown asserts that the device has on every queue what is shown.
func requireShown(t *testing.T, n *nic) {
	t.Helper()
	want := [2]cqModer{{n.params.moder[0], n.params.flags.rxCQEModer}, {n.params.moder[1], n.params.flags.txCQEModer}}
	for side, all := range inForceOf(t, n) {
		require.NotEmpty(t, all)
		for i, m := range all {
			require.Equal(t, want[side], m, "side %d, queue %d", side, i)
		}
	}
	for _, c := range n.channels {
		require.Equal(t, adaptiveMode(n.params.adaptive, n.params.flags.rxCQEModer), c.adapt.want.Load())
	}
}

// refuser refuses some of the MODIFY_CQ commands, numbered from 0 on.
type refuser struct {
	seen   int
	refuse func(n int) bool
}

func (r *refuser) script() *model.Script {
	return &model.Script{Command: func(c model.CommandInfo) model.Verdict {
		if c.Opcode != opModifyCQ {
			return model.Verdict{}
		}
		r.seen++
		if r.refuse(r.seen - 1) {
			return model.Verdict{Status: 0x1, Syndrome: 0x4321}
		}
		return model.Verdict{}
	}}
}

// moderChange is a change of moderation and its way back.
type moderChange struct {
	name     string
	do, back func(n *nic) error
}

func flagChange(name string, on bool) moderChange {
	set := func(on bool) func(*nic) error { return func(n *nic) error { return n.setPrivFlag(name, on) } }
	return moderChange{name, set(on), set(!on)}
}

func coalesceChange(name string, was, is bool) moderChange {
	set := func(m [2]moderation, adaptive bool) func(*nic) error {
		return func(n *nic) error { return n.setCoalesce(m, adaptive) }
	}
	return moderChange{name, set([2]moderation{{5, 6}, {7, 8}}, is), set([2]moderation{defaultRxModer[1], defaultTxModer}, was)}
}

var moderChanges = []moderChange{
	flagChange("rx_cqe_moder", false), flagChange("tx_cqe_moder", true), coalesceChange("setCoalesce", false, false),
	coalesceChange("setCoalesce and adaptive on", false, true),
}

func moderRig(t *testing.T, w wishes) (*emulatedDevice, *nic) {
	d := testDevice(t, model.Config{})
	w.queues = 2
	n, err := openNIC(t.Context(), d, d.virtual(), openOptions{wishes: w, cpus: 2,
		flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
	require.NoError(t, err)
	t.Cleanup(func() {
		d.m.SetScript(nil)
		require.NoError(t, n.close())
		requireClean(t, d)
	})
	return d, n
}

// Whichever command is refused, everything is as before, and asking again works.
func TestModerationIsChangedOnAllQueuesOrNone(t *testing.T) {
	for _, ch := range moderChanges {
		t.Run(ch.name, func(t *testing.T) {
			d, n := moderRig(t, wishes{xdp: true, xsk: true})
			count := &refuser{refuse: func(int) bool { return false }}
			d.m.SetScript(count.script())
			require.NoError(t, ch.do(n))
			requireShown(t, n)
			require.NoError(t, ch.back(n))
			requireShown(t, n)
			total := count.seen / 2
			require.GreaterOrEqual(t, total, 8, "two channels of four queues")
			for at := range total {
				before, shown := inForceOf(t, n), n.moderSetting()
				r := &refuser{refuse: func(n int) bool { return n == at }}
				d.m.SetScript(r.script())
				require.ErrorContains(t, ch.do(n), "0x4321", "command %d", at)
				require.Equal(t, shown, n.moderSetting())
				require.Equal(t, before, inForceOf(t, n), "command %d", at)
				requireShown(t, n)
				require.False(t, n.moder.torn)
				require.NoError(t, ch.do(n), "asked again after command %d", at)
				require.NotEqual(t, shown, n.moderSetting())
				requireShown(t, n)
				require.NoError(t, ch.back(n))
			}
		})
	}
}

// Where firmware does not put back what it has changed either, that is said, and
// whatever is asked for next, be it what is shown, puts it right.
func TestModerationThatIsNotPutBack(t *testing.T) {
	for _, ch := range moderChanges {
		for _, again := range []bool{true, false} {
			d, n := moderRig(t, wishes{xsk: true})
			for at := range 8 {
				shown := n.moderSetting()
				r := &refuser{refuse: func(n int) bool { return n >= at }}
				d.m.SetScript(r.script())
				require.ErrorContains(t, ch.do(n), "not every queue has what is shown", "%s, command %d", ch.name, at)
				require.Equal(t, shown, n.moderSetting())
				d.m.SetScript(nil)
				if again {
					require.NoError(t, ch.do(n))
					requireShown(t, n)
				}
				require.NoError(t, ch.back(n), "%s, command %d", ch.name, at)
				requireShown(t, n)
			}
		}
	}
}

// Firmware that does not answer is asked once.
func TestModerationWithoutAnswer(t *testing.T) {
	d, n := moderRig(t, wishes{})
	var seen atomic.Int32 // the device's
	d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
		if c.Opcode != opModifyCQ {
			return model.Verdict{}
		}
		return model.Verdict{Swallow: seen.Add(1) == 2}
	}})
	n.fw.timeout = 50 * time.Millisecond
	err := n.setCoalesce([2]moderation{{1, 2}, {3, 4}}, false)
	require.ErrorContains(t, err, "no answer within")
	require.ErrorContains(t, err, errNotPutBack.Error())
	require.EqualValues(t, 2, seen.Load())
	require.True(t, n.moder.torn)
	n.fw.timeout = commandTimeout
	require.NoError(t, n.setCoalesce([2]moderation{{1, 2}, {3, 4}}, false))
	requireShown(t, n)
}

// A profile that the load has chosen is in force again after a change that failed, and
// the choice goes on from there.
func TestAdaptiveProfileIsPutBack(t *testing.T) {
	for _, ch := range []moderChange{
		coalesceChange("off", true, false), flagChange("rx_cqe_moder", false), flagChange("tx_cqe_moder", true), coalesceChange("on as before", true, true),
	} {
		t.Run(ch.name, func(t *testing.T) {
			d, n := moderRig(t, wishes{adaptive: true, xsk: true})
			for _, c := range n.channels { // no channel runs: the test is their loop
				c.adapt.sample(loadSample{at: time.Unix(1, 0)})
				require.Eventually(t, func() bool { return !c.adapt.asked.Load() }, 10*time.Second, time.Millisecond)
			}
			first := rxProfiles[1][firstProfile]
			require.NotEqual(t, first, n.params.moder[0])
			for at := range 8 {
				before, shown := inForceOf(t, n), n.moderSetting()
				for _, m := range before[0] {
					require.Equal(t, cqModer{first, true}, m)
				}
				r := &refuser{refuse: func(n int) bool { return n == at }}
				d.m.SetScript(r.script())
				if err := ch.do(n); err == nil {
					require.Less(t, r.seen, at+1, "it has taken fewer commands")
					break
				}
				require.Equal(t, shown, n.moderSetting())
				require.Equal(t, before, inForceOf(t, n), "command %d", at)
				for _, c := range n.channels {
					require.EqualValues(t, adaptCQE, c.adapt.want.Load())
				}
			}
			d.m.SetScript(nil)
			require.NoError(t, ch.do(n))
			require.NoError(t, ch.back(n))
		})
	}
}
