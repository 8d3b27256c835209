package main

// blueflame_test.go checks that a lone work request goes out with its doorbell and
// all else as before, on every device, and that BlueFlame is refused with a reason
// where it cannot be had.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// bus is what crossed the device's bus since then.
func (r *sendRig) bus(then model.PCICounts) model.PCICounts { return r.dev.m.PCI().Sub(then) }

// requireFlames asserts that the device took so many work requests from its
// registers, and none that was not whole.
func (r *sendRig) requireFlames(n uint64) {
	r.t.Helper()
	s := r.dev.m.Stats()
	r.q.publish()
	require.Equal(r.t, n, s.SQ.Flames)
	require.Zero(r.t, s.TornFlames, s.TornFlame)
	require.Zero(r.t, s.BadDoorbells, s.BadDoorbell)
}

// flames is how many were taken so far; opening takes some.
func (r *sendRig) flames() uint64 { return r.dev.m.Stats().SQ.Flames }

// Lone frames leave as they were, and the device reads no work request: 64 bytes
// come with each doorbell.
func TestBlueFlameAlone(t *testing.T) {
	for _, profile := range model.Profiles() {
		for _, mpw := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", profile, mpw), func(t *testing.T) {
				r := newSendRig(t, rigConfig{profile: profile, ring: minRing, blueflame: true})
				r.q.sessions(mpw)
				r.settle()
				before, bus, n := r.flames(), r.dev.m.PCI(), 5*minRing
				var want [][]byte
				for i := range n {
					b := numberedFrame(60+i, uint32(i))
					want = append(want, b)
					require.Equal(t, 1, r.q.send(r.place(txOffload{}, b)))
					r.drain()
				}
				require.Equal(t, want, r.wire.frames())
				got := r.bus(bus)
				require.Zero(t, got[model.PCIWQEFetch].Bytes)
				require.EqualValues(t, n, got[model.PCIDoorbell].Ops)
				require.EqualValues(t, 64*n, got[model.PCIDoorbell].Bytes)
				r.requireFlames(before + uint64(n))
				require.EqualValues(t, n, r.q.stats.flames.get())
				r.requireHome()
				r.requireHealthy()
			})
		}
	}
}

// What a lone frame costs on the bus, in both directions, is less: a request and
// an answer with 64 bytes against 56 more with the doorbell.
func TestBlueFlameBusBytes(t *testing.T) {
	var load [2]model.PCILoad
	for i, on := range []bool{false, true} {
		r := newSendRig(t, rigConfig{blueflame: on})
		r.settle()
		bus := r.dev.m.PCI()
		for range 64 {
			r.q.send(r.place(txOffload{}, numberedFrame(60, 1)))
			r.drain()
		}
		got := r.bus(bus)
		load[i] = got.Load(r.dev.m.PCISettings())
	}
	require.Less(t, load[1].In, load[0].In)
	require.Less(t, load[1].Out, load[0].Out)
	t.Logf("bytes a lone frame: in %.0f, with BlueFlame %.0f; out %.0f, %.0f", load[0].In/64, load[1].In/64, load[0].Out/64, load[1].Out/64)
}

// Only a burst of one work request of one block takes it along: not one of several,
// not a long one, not one behind NOPs.
func TestBlueFlameOnlyAlone(t *testing.T) {
	r := newSendRig(t, rigConfig{ring: minRing, blueflame: true})
	r.q.sessions(false)
	r.settle()
	pieces := func(n int) (out [][]byte) {
		for i := range n {
			out = append(out, numberedFrame(40, uint32(i)))
		}
		return out
	}
	for i := range 3 * minRing {
		for _, c := range []struct {
			name  string
			burst []txFrame
			whole bool
		}{
			{"one", r.place(txOffload{}, pieces(1)...), true},
			{"two", append(r.place(txOffload{}, pieces(1)...), r.place(txOffload{}, pieces(1)...)...), false},
			{"two pieces", r.place(txOffload{}, pieces(2)...), true},
			{"three pieces", r.place(txOffload{}, pieces(3)...), false},
		} {
			before, bus, nops := r.flames(), r.dev.m.PCI(), r.q.tally.nops
			require.Equal(t, len(c.burst), r.q.send(c.burst))
			r.drain()
			got := r.bus(bus)
			require.Equal(t, c.whole, got[model.PCIWQEFetch].Bytes == 0, "%d: %s", i, c.name)
			require.Equal(t, c.whole, got[model.PCIDoorbell].Bytes == 64, "%d: %s", i, c.name)
			require.True(t, c.whole || got[model.PCIDoorbell].Bytes == 8)
			require.False(t, c.whole && r.q.tally.nops > nops)
			if c.whole {
				before++
			}
			r.requireFlames(before)
		}
	}
	require.NotZero(t, r.q.stats.nop.get(), "no long one met the ring's edge")
	r.requireHome()
	r.requireHealthy()
}

// A session that fits one block goes whole, whoever is in it.
func TestBlueFlameSession(t *testing.T) {
	r := newSendRig(t, rigConfig{blueflame: true})
	for _, c := range []struct {
		inline int
		sizes  []int
		whole  bool
	}{
		{0, []int{60, 200}, true}, // a segment each
		{0, []int{60, 60, 60}, false},
		{60, []int{28}, true}, // 4 bytes of length and the frame: two segments
		{60, []int{29}, false},
		{20, []int{18, 200}, false}, // three segments
	} {
		r.q.inlineUpTo(c.inline)
		var burst []txFrame
		for i, n := range c.sizes {
			burst = append(burst, r.place(txOffload{}, numberedFrame(n, uint32(i)))...)
		}
		before := r.flames()
		require.Equal(t, len(burst), r.q.send(burst))
		r.drain()
		require.Equal(t, len(burst), len(r.wire.ends))
		r.wire.forget()
		if c.whole {
			before++
		}
		r.requireFlames(before)
	}
	r.requireHome()
	r.requireHealthy()
}

// Random frames, offloads, pieces, bursts and toggles leave as from a software NIC.
func TestBlueFlameLikeSoftwareNIC(t *testing.T) {
	for i, profile := range model.Profiles() {
		for k, ring := range []int{minRing, 512} {
			t.Run(fmt.Sprintf("%s/%d", profile, ring), func(t *testing.T) {
				r := &mixRun{sendRig: newSendRig(t, rigConfig{profile: profile, ring: ring, loose: 1024, runs: 40, blueflame: true})}
				r.m = &mixer{Rand: rand.New(rand.NewPCG(4, uint64(2*i+k))), swp: r.nic.caps.swp}
				r.ref = softNIC{wire: &r.want, longest: r.most}
				r.run(20_000)
				require.NotZero(t, r.q.stats.flames.get())
				require.Less(t, r.q.stats.flames.get(), r.q.stats.doorbell.get())
				s := r.dev.m.Stats()
				require.Zero(t, s.DMAFaults)
				// The device did not work after each burst. What a doorbell left of an
				// older work request is no fault: that is not the next one then.
				require.Zero(t, s.TornFlames, s.TornFlame)
			})
		}
	}
}

// Lone frames on a device that works all the time: none is lost, doubled or out of
// order, whatever the device saw of each doorbell.
func TestBlueFlameWhileDeviceRuns(t *testing.T) {
	w := &sequenceWire{}
	r := newSendRig(t, rigConfig{wire: w, ring: minRing, loose: 256, runs: 1, blueflame: true})
	r.dev.resume()
	rnd := rand.New(rand.NewPCG(1, 2))
	sent := uint32(0)
	for sent < 50_000 {
		var burst []txFrame
		for range 1 + rnd.IntN(2)*rnd.IntN(2)*rnd.IntN(30) {
			f, ok := r.numbered(sent + uint32(len(burst)))
			if !ok {
				break
			}
			burst = append(burst, f)
		}
		took := r.q.send(burst)
		r.q.giveUp(burst[took:])
		if sent += uint32(took); took < len(burst) || len(burst) == 0 || rnd.IntN(4) == 0 {
			r.q.complete(napiBudget)
			runtime.Gosched()
		}
		for wait := rnd.IntN(8) == 0; wait && w.seen.Load() < sent; { // some find the device idle
			runtime.Gosched()
		}
	}
	for w.seen.Load() < sent {
		runtime.Gosched()
	}
	r.dev.pause()
	require.Empty(t, w.bad)
	require.Equal(t, sent, w.next)
	r.requireHome()
	r.requireHealthy()
	require.NotZero(t, r.q.stats.flames.get())
	s := r.dev.m.Stats()
	t.Logf("%d doorbells, %d with the work request, of which %d were used, %d were caught halfway", s.SQ.Doorbells, r.q.stats.flames.get(), s.SQ.Flames, s.TornFlames)
}

// A frame that cannot be reached fails its queue; after the reset BlueFlame goes on.
func TestBlueFlameAfterReset(t *testing.T) {
	r := newSendRig(t, rigConfig{ring: minRing, dirty: true, blueflame: true})
	for lap := range 20 {
		before := r.flames()
		for i := range lap {
			require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(100, uint32(i)))))
			r.drain()
		}
		bad := r.place(txOffload{}, numberedFrame(100, 1))
		bad[0].addr = nowhere
		require.Equal(t, 1, r.q.send(bad))
		r.settleFault()
		require.Len(t, r.notes(), 1)
		r.requireFlames(before + uint64(lap) + 1) // the bad one was taken too
		r.requireHome()
		require.Len(t, r.wire.ends, lap)
		r.wire.forget()
		require.EqualValues(t, lap+1, r.q.stats.recover.get())
		require.EqualValues(t, lap+1, r.q.stats.dropped.get())
	}
}

// A doorbell that the device overlooks does no harm here either.
func TestBlueFlameMissed(t *testing.T) {
	missed := false
	r := newSendRig(t, rigConfig{blueflame: true, script: &model.Script{MissDoorbell: func(uint32) bool { return missed }}})
	missed = true
	for i := range 100 {
		r.q.send(r.place(txOffload{}, numberedFrame(100, uint32(i))))
		r.drain()
	}
	require.Len(t, r.wire.ends, 100)
	r.requireHome()
	r.requireHealthy()
}

func TestBlueFlameAllocatesNothing(t *testing.T) {
	r := newSendRig(t, rigConfig{blueflame: true})
	r.wire.quiet = true
	frame := make([]txFrame, 1)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		f, ok := r.numbered(1)
		if frame[0] = f; !ok || r.q.send(frame) != 1 {
			panic("not sent")
		}
		r.drain()
	}))
	r.requireHome()
}

// Only the channels' own send queues ring this way, each by a page that nobody else
// uses.
func TestBlueFlamePages(t *testing.T) {
	r := newSendRig(t, rigConfig{queues: 4, blueflame: true})
	seen := map[uint32]bool{}
	for _, c := range r.nic.channels {
		seen[c.uarPage] = true
		for _, q := range []*compQueue{c.rx.cq, c.tx.cq} {
			require.NotSame(t, &q.uar[0], &c.tx.uar[0], "a completion queue is armed through it")
		}
		require.NotSame(t, &c.eq.uar[0], &c.tx.uar[0])
	}
	for _, c := range r.nic.channels {
		require.False(t, seen[c.tx.uarPage], "two queues ring by one page")
		seen[c.tx.uarPage] = true
		require.NotZero(t, c.tx.flame.turn)
	}
	plain := newSendRig(t, rigConfig{})
	require.Zero(t, plain.q.flame.turn)
	plain.q.send(plain.place(txOffload{}, numberedFrame(60, 1)))
	plain.drain()
	plain.requireFlames(0)
}

// combineDevice is the embedded device with pages that combine as it says.
type combineDevice struct {
	*emulatedDevice
	pages   int
	why     error
	failAt  int // this call of combine fails
	made    []int
	taken   []int
	objects []int // UARs that there were then
}

func (d *combineDevice) combining() (int, error) { return d.pages, d.why }

func (d *combineDevice) combine(n int) (func() error, error) {
	if len(d.made)+1 == d.failAt {
		return nil, errors.New("out of registers")
	}
	d.made = append(d.made, n)
	return func() error {
		d.taken = append(d.taken, n)
		d.objects = append(d.objects, d.m.Stats().Objects["uar"])
		return nil
	}, nil
}

// What was made to combine is taken back, last first, while its page is still ours;
// also when opening fails half-way.
func TestBlueFlameUndo(t *testing.T) {
	for _, failAt := range []int{0, 1, 3} {
		d := &combineDevice{emulatedDevice: testDevice(t, model.Config{}), pages: 4, failAt: failAt}
		n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: 3, blueflame: true}, cpus: 3})
		if failAt == 0 {
			require.NoError(t, err)
			require.Len(t, d.made, 3)
			require.NoError(t, n.close())
		} else {
			require.ErrorAs(t, err, new(wishError))
			oneLine(t, err, "-blueflame", "out of registers")
			require.Len(t, d.made, failAt-1)
		}
		requireClean(t, d.emulatedDevice)
		require.Len(t, d.taken, len(d.made))
		for i, page := range d.taken {
			require.Equal(t, d.made[len(d.made)-1-i], page)
			require.NotZero(t, d.objects[i])
		}
	}
}

// Every refusal says why, and that it is a wish.
func TestBlueFlameRefusals(t *testing.T) {
	able := caps{flame: 512}
	for _, c := range []struct {
		name          string
		caps          caps
		pages, queues int
		why           error
		buffer        int
		says          []string
	}{
		{"as cards have it", able, 8, 8, nil, 256, nil},
		{"the smallest", caps{flame: 128}, 1, 1, nil, 64, nil},
		{"the largest", caps{flame: 2048}, 1, 1, nil, 1024, nil},
		{"none", caps{}, 8, 1, nil, 0, []string{"the device has none"}},
		{"too small", caps{flame: 64}, 8, 1, nil, 0, []string{"64 bytes", "128 to 2048"}},
		{"too large", caps{flame: 4096}, 8, 1, nil, 0, []string{"4096 bytes"}},
		{"senseless", caps{flame: 1 << 31}, 8, 1, nil, 0, []string{"make sense"}},
		{"no pages", able, 0, 1, errors.New("there is no /proc/mtrr"), 0, []string{"no /proc/mtrr"}},
		{"few pages", able, 3, 4, nil, 0, []string{"3 queues", "there are 4", "fewer -queues"}},
	} {
		buffer, err := chooseBlueFlame(c.caps, c.pages, c.queues, c.why)
		require.Equal(t, c.buffer, buffer, c.name)
		if c.says == nil {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorAs(t, err, new(wishError), c.name)
		oneLine(t, err, append(c.says, "-blueflame")...)
	}
}

// Firmware that has none, pages that cannot be had: opening is refused before there
// is a queue.
func TestBlueFlameRefusedAtOpen(t *testing.T) {
	noBF := &model.Script{Answer: func(opcode uint16, out []byte) {
		if opcode == opQueryHCACap {
			out[16+capBf.off] &^= 0x80
		}
	}}
	for _, c := range []struct {
		dev  *combineDevice
		says string
	}{
		{&combineDevice{emulatedDevice: testDevice(t, model.Config{Script: noBF}), pages: 9}, "the device has none"},
		{&combineDevice{emulatedDevice: testDevice(t, model.Config{}), why: errors.New("0000:03:00.0: no memory type register is free")}, "register is free"},
		{&combineDevice{emulatedDevice: testDevice(t, model.Config{}), pages: 1}, "fewer -queues"},
	} {
		_, err := openNIC(context.Background(), c.dev, false, openOptions{wishes: wishes{queues: 2, blueflame: true}, cpus: 2})
		require.ErrorAs(t, err, new(wishError))
		oneLine(t, err, "-blueflame", c.says)
		require.Empty(t, c.dev.made)
		requireClean(t, c.dev.emulatedDevice)
		n, err := openNIC(context.Background(), c.dev, false, openOptions{wishes: wishes{queues: 2}, cpus: 2})
		require.NoError(t, err, "without it all is well")
		require.NoError(t, n.close())
	}
}

// A device that gets no work request in one piece is found out at open, as is one
// that does not answer.
func TestBlueFlameTrialFails(t *testing.T) {
	d := testDevice(t, model.Config{Script: &model.Script{MissDoorbell: func(uint32) bool { return true }}})
	_, err := testOpen(d, wishes{queues: 1, blueflame: true})
	require.ErrorAs(t, err, new(wishError))
	oneLine(t, err, "-blueflame", "do not combine", "none of 32")
	requireClean(t, d)

	d = testDevice(t, model.Config{Script: &model.Script{StallSQ: func(uint32) bool { return true }}})
	_, err = testOpen(d, wishes{queues: 1, blueflame: true})
	oneLine(t, err, "does not complete")
	requireClean(t, d)
}

// A ping is answered with one doorbell that says it all.
func TestBlueFlameEcho(t *testing.T) {
	file := filepath.Join(t.TempDir(), "arp.pcap")
	arp := make([]byte, 60)
	copy(arp, []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9})
	target := netip.MustParseAddr("192.0.2.1").As4()
	copy(arp[28:], []byte{192, 0, 2, 9})
	copy(arp[38:], target[:])
	writePcap(t, file, [][]byte{arp})
	code, out, errs := cli(t, "-emulate", "-wire", "replay:"+file, "-mode", "echo", "-addr", "192.0.2.1", "-queues", "1", "-blueflame", "-stats")
	require.Zero(t, code, errs)
	require.Contains(t, out, "tx_packets: 1\n")
	require.Contains(t, out, "tx_blueflame: 1\n")
	require.Equal(t, 2, strings.Count(out, "_blueflame: 1\n"), "the sum and the queue's")
}

// The two buffers take turns, for plain doorbells too, over errors and resets, and
// nothing is stored anywhere else in the page.
func TestBlueFlameBuffersInTurn(t *testing.T) {
	r := newSendRig(t, rigConfig{blueflame: true, dirty: true})
	r.settle()
	at := r.q.flame.at
	for i := range 50 {
		burst := r.place(txOffload{}, numberedFrame(60, uint32(i)))
		for range i % 3 * 2 { // more than a block: a plain doorbell
			burst = append(burst, r.place(txOffload{}, numberedFrame(60, uint32(i)))...)
		}
		if i%10 == 9 {
			burst[0].addr = nowhere
		}
		require.Equal(t, len(burst), r.q.send(burst))
		n := 8
		if len(burst) == 1 {
			n = wqebb
			require.Equal(t, blockBytes(&r.q.wqes[r.q.last&r.q.mask]), r.q.uar[at:at+wqebb])
		}
		require.NotZero(t, be64(r.q.uar, at))
		require.Equal(t, make([]byte, wqebb-n), r.q.uar[at+n:at+wqebb])
		require.Equal(t, make([]byte, at), r.q.uar[:at])
		require.Equal(t, make([]byte, uarPageSize-at-wqebb), r.q.uar[at+wqebb:])
		r.settleFault()
		at ^= 0x800 ^ 0x900
	}
	require.EqualValues(t, 5, r.q.stats.recover.get()+r.q.tally.recovered)
	r.requireHome()
}

// blockBytes is a WQEBB as it lies in memory.
func blockBytes(w *wqeBlock) (b []byte) {
	for _, s := range w {
		b = native.AppendUint64(native.AppendUint64(b, s.a), s.b)
	}
	return b
}

// A device that is slow to answer the trial is not taken for one that gets no work
// request in one piece.
func TestBlueFlameTrialAnsweredLate(t *testing.T) {
	r := newSendRig(t, rigConfig{})
	r.settle()
	var late sync.WaitGroup
	late.Go(func() {
		time.Sleep(10 * flameWait)
		r.dev.resume()
	})
	require.NoError(t, r.q.light(r.dev, 256, &r.nic.undo))
	late.Wait()
	r.dev.pause()
	require.LessOrEqual(t, r.q.pi, uint32(2), "one trial is enough")
	require.NotZero(t, r.flames())
	require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(60, 1))))
	r.requireHome()
	require.Len(t, r.wire.ends, 1)
	r.requireHealthy()
}
