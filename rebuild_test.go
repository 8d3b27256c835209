package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// switchRig is a NIC through which numbered frames flow while its receive queues are
// replaced: two queues and one for control traffic.
type switchRig struct {
	t         *testing.T
	d         *emulatedDevice
	n         *nic
	wire      *shutWire
	work      []*checkWork
	consumers sync.WaitGroup
	seen      []atomic.Uint32
	last      map[string]uint64
}

// switchFrames is more than any test needs.
const switchFrames = 8 << 20

func newSwitchRig(t *testing.T, profile string, w wishes, share int) *switchRig {
	r := &switchRig{t: t, last: map[string]uint64{}}
	w.queues, w.promisc, w.trap = 2, true, true
	numbered := newNumberedWire(1, switchFrames, 60, w.mtu+etherHeader)
	numbered.control = 10
	r.wire = &shutWire{numberedWire: numbered}
	r.d = testDevice(t, model.Config{Profile: profile, Wire: r.wire})
	var err error
	r.n, err = testOpen(r.d, w)
	require.NoError(t, err)
	r.seen = make([]atomic.Uint32, switchFrames)
	var handlers []handler
	for i, c := range r.n.channels {
		k := &checkWork{t: t, rand: rand.New(rand.NewPCG(7, uint64(i))), seen: r.seen, last: make([]uint64, 1<<16), scratch: make([]byte, 1<<14),
			want: make([]byte, 1<<14), later: make(chan heldFrame, 16), share: share}
		r.work, handlers = append(r.work, k), append(handlers, k)
		r.consumers.Go(func() { k.consume(c.pool, uint64(i)) })
	}
	r.n.start(handlers, false, nil)
	t.Cleanup(func() { _ = r.n.close() })
	rules := make([]rule, 2) // lead two of the flows to queues of their own
	for i := range rules {
		rules[i], err = parseRule(fmt.Sprintf("flow-type udp4 src-port %d action %d", i, 1-i))
		require.NoError(t, err)
	}
	rules, err = placeRules(rules)
	require.NoError(t, err)
	require.NoError(t, r.n.rules.set(rules))
	r.wire.open.Store(true)
	return r
}

func (r *switchRig) got() (n uint64) {
	for _, w := range r.work {
		n += w.got.Load()
	}
	return n
}

// requireFlow asserts that every channel goes on to receive.
func (r *switchRig) requireFlow() {
	r.t.Helper()
	before := make([]uint64, len(r.work))
	for i, w := range r.work {
		before[i] = w.got.Load()
	}
	require.Eventually(r.t, func() bool {
		for i, w := range r.work {
			if w.got.Load() < before[i]+200 {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond, "a channel receives nothing any more")
	require.False(r.t, r.wire.Done(), "the wire ran dry")
}

// requireForward asserts that no counter of the receive side goes backwards.
func (r *switchRig) requireForward() {
	for _, s := range newStatReader(r.n).read() {
		if strings.HasPrefix(s.name, "rx") || strings.HasPrefix(s.name, "ch") {
			require.GreaterOrEqual(r.t, s.value, r.last[s.name], s.name)
			r.last[s.name] = s.value
		}
	}
}

// finish lets the wire end and asserts that every frame came once and in order,
// that no page is lost and that closing leaves nothing.
func (r *switchRig) finish() {
	t := r.t
	r.wire.mu.Lock()
	r.wire.left = index(r.wire.ready) // the device may be about to take one
	sent := r.wire.next + uint64(r.wire.left)
	r.wire.mu.Unlock()
	require.Eventually(t, func() bool { return r.got() >= sent }, 20*time.Second, time.Millisecond,
		"%d frames were sent, %d came", sent, r.got())
	r.n.stop()
	bad := uint64(0)
	for _, w := range r.work {
		close(w.later)
	}
	r.consumers.Wait()
	for _, w := range r.work {
		bad += w.bad.Load()
	}
	require.Zero(t, bad, "frames that were wrong or out of order")
	require.Equal(t, sent, r.got())
	for i := range sent {
		require.EqualValues(t, 1, r.seen[i].Load(), "frame %d", i)
	}
	r.requireForward()
	require.EqualValues(t, sent, r.last["rx_packets"])
	for _, name := range []string{"rx_wqe_err", "rx_oversize_pkts_sw_drop", "rx_recover"} {
		require.Zero(t, r.last[name], name)
	}
	require.Zero(t, r.d.m.Stats().DMAFaults, r.d.m.Stats().LastFault)
	for _, c := range r.n.channels {
		require.Nil(t, c.next)
		require.Len(t, c.made, 1)
		require.Len(t, c.cqs, 2+index(c.ico != nil))
		requirePagesHome(t, c.rx)
	}
	require.NoError(t, r.n.close())
	requireClean(t, r.d)
}

// kinds of receive queue, as private flags.
var kindFlags = []string{"rx_striding_rq", "rx_cqe_compress"}

// toggle changes one of the flags and asserts that the queues are of that kind then.
func (r *switchRig) toggle(name string) {
	f, err := findPrivFlag(name)
	require.NoError(r.t, err)
	want := !*f.field(&r.n.params.flags)
	require.NoError(r.t, r.n.setPrivFlag(name, want))
	require.Equal(r.t, want, *f.field(&r.n.params.flags))
	for _, c := range r.n.channels {
		rx, next := c.queues()
		require.Nil(r.t, next)
		require.Equal(r.t, r.n.params.rxStrides.on(), rx.ring != nil)
		require.Equal(r.t, r.n.params.flags.rxStriding, rx.ring != nil)
	}
}

// Receive queues are replaced again and again while frames flow, on every profile,
// with small and large rings, in one piece and in several, and while consumers hold
// packets: every frame comes once, in order, and nothing is lost.
func TestReceiveQueuesChangeWhilePacketsFlow(t *testing.T) {
	for i, c := range []struct {
		profile string
		w       wishes
		share   int
		times   int
	}{
		{"cx5", wishes{mtu: 1500}, 0, 100},
		{"cx6dx", wishes{mtu: 1500, rxRing: 64}, 7, 60},
		{"cx5", wishes{mtu: 3500, rxRing: 128, rxStriding: true}, 20, 40},
		{"cx5-vf", wishes{mtu: 9000, rxRing: 256, rxCompress: true}, 3, 20},
	} {
		t.Run(fmt.Sprintf("%s/mtu%d/ring%d/hold%d", c.profile, c.w.mtu, c.w.rxRing, c.share), func(t *testing.T) {
			r := newSwitchRig(t, c.profile, c.w, c.share)
			choose := rand.New(rand.NewPCG(3, uint64(i)))
			for n := range c.times {
				name := kindFlags[choose.IntN(len(kindFlags))]
				if f, _ := findPrivFlag(name); f.refuse(r.n.caps) != "" {
					continue
				}
				r.toggle(name)
				if n%8 == 0 {
					r.requireFlow()
					r.requireForward()
				}
			}
			r.requireFlow()
			r.finish()
		})
	}
}

// Whichever command of a switch fails, the NIC goes on as before, or with the new
// queues when these are in use already, and the next switch works; so does one when
// every command from there on fails, and when they are never carried out. No frame is
// lost in any of it.
func TestSwitchFailsAtEveryStep(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) {
			r := newSwitchRig(t, "cx5", wishes{mtu: 1500, rxRing: 64}, 0)
			failed, kept := 0, 0
			for at := 0; ; at++ {
				var count atomic.Int64
				r.d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
					if n := count.Add(1) - 1; n == int64(at) || all && n > int64(at) {
						return model.Verdict{Status: 8, Syndrome: 0x1234}
					}
					return model.Verdict{}
				}})
				was := r.n.params.flags.rxStriding
				err := r.n.setPrivFlag("rx_striding_rq", !was)
				r.d.m.SetScript(nil)
				if err != nil {
					failed++
					require.ErrorContains(t, err, "private flag rx_striding_rq: ")
					require.ErrorContains(t, err, "EXCEED_LIM")
					require.NotContains(t, err.Error(), "\n")
				}
				if r.n.params.flags.rxStriding == was {
					kept++
				}
				r.requireFlow()
				r.toggle("rx_cqe_compress") // and what was left over is gone
				if r.n.params.flags.rxStriding {
					r.toggle("rx_striding_rq")
				}
				if count.Load() <= int64(at) {
					break
				}
			}
			// For each of three channels CQ, key, RQ and its state; two tables.
			require.GreaterOrEqual(t, failed, 3*4+2)
			require.GreaterOrEqual(t, kept, 3*4+2-1, "the last may find one table changed and no way back")
			r.finish()
		})
	}
}

// A switch before the channels have their handlers is refused: nobody could take what
// has come in.
func TestSwitchBeforeStart(t *testing.T) {
	n, c := mailRig(t, "none")
	was := c.rx
	err := n.setPrivFlag("rx_striding_rq", true)
	require.ErrorContains(t, err, "while the channels run, not before")
	require.ErrorAs(t, err, new(wishError))
	require.Same(t, was, c.rx)
	require.False(t, n.params.flags.rxStriding)
}
