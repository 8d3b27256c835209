package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func TestXDPFrameEndsStayInBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		size, room := etherHeader+r.IntN(1500), r.IntN(300)
		mem := bytes.Repeat([]byte{0xaa}, rxHeadroom+size+room)
		f := &xdpFrame{mem: mem, start: rxHeadroom, end: uint32(rxHeadroom + size), meta: &packet{at: 5 * pageSize}}
		start, end := rxHeadroom, rxHeadroom+size
		for range 30 {
			delta := r.IntN(700) - 350
			switch r.IntN(8) {
			case 0:
				delta = []int{-1 << 62, 1<<62 - 1, -1 << 31, 1 << 31, 1 << 32, -start, end - start - etherHeader, len(mem) - end}[r.IntN(8)]
			}
			if r.IntN(2) == 0 {
				can := start+delta >= 0 && start+delta <= end-etherHeader && delta > -1<<40 && delta < 1<<40
				require.Equal(t, can, f.adjustHead(delta), "head %d of %d..%d", delta, start, end)
				if can {
					start += delta
				}
			} else {
				can := end+delta <= len(mem) && end+delta >= start+etherHeader && delta > -1<<40 && delta < 1<<40
				require.Equal(t, can, f.adjustTail(delta), "tail %d of %d..%d", delta, start, end)
				if can {
					if delta > 0 {
						require.Equal(t, make([]byte, delta), mem[end:end+delta], "what a frame grows by is zero")
					}
					end += delta
				}
			}
			require.Len(t, f.data(), end-start)
			require.Equal(t, cap(f.data()), end-start, "it ends where the frame ends")
			require.EqualValues(t, 5*pageSize+start-rxHeadroom, f.place())
		}
	}
}

// What the test's program does with a frame follows from the frame's number.
const (
	doDrop = iota
	doPass
	doGrowHead // by 20 bytes of 0xee, then pass
	doCutHead  // by 4 bytes, then pass
	doCutTail  // by 4 bytes, then answer
	doGrowTail // by 12 bytes, then answer
	doRedirect
	doNonsense
	doings
)

// fateProgram gives every frame its fate and refuses to be run by two at once.
type fateProgram struct {
	sinks []xdpSink
	runs  atomic.Int32
	bad   atomic.Uint64
	last  uint64 // timestamp
	fates [doings]atomic.Uint64
}

func (p *fateProgram) run(frames []xdpFrame, verdicts []xdpVerdict) {
	if p.runs.Add(1) != 1 {
		p.bad.Add(1)
	}
	for i := range frames {
		f := &frames[i]
		number := binary.BigEndian.Uint64(f.data()[numberAt:])
		fate := number % doings
		if fate == doRedirect && len(p.sinks) == 0 {
			fate = doPass
		}
		p.fates[fate].Add(1)
		verdicts[i] = xdpPass
		ok := f.meta.size == f.end-f.start && f.start == rxHeadroom && f.to == nil && f.checksums() != csumNone &&
			f.timestamp() != 0 && f.timestamp() >= p.last
		p.last = f.timestamp()
		switch fate {
		case doDrop:
			verdicts[i] = xdpDrop
		case doGrowHead:
			ok = f.adjustHead(-20) && ok
			copy(f.data(), bytes.Repeat([]byte{0xee}, 20))
		case doCutHead:
			ok = f.adjustHead(4) && ok
		case doCutTail:
			ok = f.adjustTail(-4) && ok
			verdicts[i] = xdpTX
		case doGrowTail:
			f.adjustTail(12)
			verdicts[i] = xdpTX
		case doRedirect:
			f.to, verdicts[i] = p.sinks[number/doings%uint64(len(p.sinks))], xdpRedirect
		case doNonsense:
			verdicts[i] = xdpVerdict(5 + number%250)
			if number%3 == 0 {
				verdicts[i] = xdpAborted
			}
		}
		if !ok {
			p.bad.Add(1)
		}
	}
	p.runs.Add(-1)
}

// unfate makes the frame again that the wire has sent, and the fate it must have
// had for that.
func unfate(b []byte) (frame []byte, fates []int) {
	switch {
	case len(b) > 20 && bytes.Equal(b[:20], bytes.Repeat([]byte{0xee}, 20)):
		return b[20:], []int{doGrowHead}
	case len(b) > 4 && bytes.Equal(b[:3], []byte{0, 1, 2}):
		return append([]byte{2, 0, 0, 0}, b...), []int{doCutHead}
	}
	return b, []int{doPass, doRedirect}
}

// rightFrame checks a frame that the program has passed.
func rightFrame(b []byte) (number uint64, ok bool) {
	orig, fates := unfate(b)
	if len(orig) < numberAt+8 {
		return 0, false
	}
	number = binary.BigEndian.Uint64(orig[numberAt:])
	want := make([]byte, len(orig))
	fillNumbered(want, number, binary.BigEndian.Uint16(orig[34:]))
	for _, f := range fates {
		ok = ok || number%doings == uint64(f)
	}
	return number, ok && bytes.Equal(want, orig)
}

// fateWire checks what is sent back.
type fateWire struct {
	*shutWire
	sent, wrong atomic.Uint64
	check       func(b []byte) bool
}

func (w *fateWire) Transmit(b []byte) {
	w.sent.Add(1)
	if !w.check(b) {
		w.wrong.Add(1)
	}
}

// rightAnswer checks a frame that fateProgram sends back.
func rightAnswer(b []byte) bool {
	if len(b) < numberAt+8 {
		return false
	}
	number := binary.BigEndian.Uint64(b[numberAt:])
	var want []byte
	switch number % doings {
	case doCutTail:
		want = make([]byte, len(b)+4)
	case doGrowTail:
		want = make([]byte, int(binary.BigEndian.Uint16(b[16:]))+etherHeader)
	default:
		return false
	}
	fillNumbered(want, number, binary.BigEndian.Uint16(b[34:]))
	n := min(len(want), len(b))
	return bytes.Equal(want[:n], b[:n]) && bytes.Equal(b[n:], make([]byte, len(b)-n)) && (n == len(b) || len(b) == n+12)
}

// fateWork checks what passes, and keeps some of it in another goroutine.
type fateWork struct {
	seen     []atomic.Uint32
	got, bad atomic.Uint64
	guests   atomic.Uint64
	every    int
	later    chan heldFrame
}

func (w *fateWork) handle(c *channel, packets []packet) {
	for i := range packets {
		p := &packets[i]
		number, ok := rightFrame(p.b)
		if !ok || len(p.b) != int(p.size) || p.frags != 1 || number >= uint64(len(w.seen)) || cap(c.rx.roomy(p)) < len(p.b) || p.checksum != 0 {
			w.bad.Add(1)
			continue
		}
		w.seen[number].Add(1)
		if c.rx.guest != nil {
			w.guests.Add(1)
		} else {
			w.got.Add(1)
		}
		if w.every > 0 && number%uint64(w.every) < 2 {
			h := heldFrame{n: 1, size: p.size}
			c.rx.hold(h.refs[:0], p)
			h.pieces[0] = p.b
			w.later <- h
		}
	}
}

func (w *fateWork) turn(*channel) int { return 0 }
func (w *fateWork) idle(*channel)     {}

// consume looks again at frames that were held and gives them back.
func (w *fateWork) consume(pools *poolTable) {
	for h := range w.later {
		if _, ok := rightFrame(h.pieces[0]); !ok {
			w.bad.Add(1)
		}
		pools.release(h.refs[0])
	}
}

// xdpSums adds up what all channels counted.
type xdpSums struct{ passed, drop, aborted, redirect, lost, full, sent, refused, oversize, consumed uint64 }

func sumXDP(n *nic) (s xdpSums) {
	for _, c := range n.channels {
		c.publish()
		s.passed += c.rx.stats.packets.get()
		s.oversize += c.rx.stats.oversize.get()
		s.drop += c.xdpStats.drop.get()
		s.aborted += c.xdpStats.aborted.get()
		s.redirect += c.xdpStats.redirect.get()
		s.lost += c.xdpStats.lost.get()
		s.full += c.xdpStats.full.get()
		s.consumed += c.xdpStats.packets.get()
		if c.xdp != nil {
			s.sent += c.xdp.stats.packets.get()
			s.refused += c.xdp.stats.dropped.get()
		}
	}
	return s
}

func (s xdpSums) total() uint64 {
	return s.passed + s.drop + s.aborted + s.redirect + s.lost + s.full + s.sent + s.refused
}

// settleXDP waits until all that stopped channels have sent is given back.
func settleXDP(t *testing.T, n *nic) {
	for _, c := range n.channels {
		for _, q := range c.sendQueues() {
			require.Eventually(t, func() bool { q.complete(napiBudget); return q.left == q.posted }, 5*time.Second, 100*time.Microsecond)
		}
	}
}

type xdpCase struct {
	profile string
	w       wishes
	every   int
}

func xdpCases() (out []xdpCase) {
	for _, profile := range model.Profiles() {
		for _, kind := range []wishes{{}, {rxStriding: true}, {rxCompress: true}, {rxStriding: true, rxCompress: true}} {
			for _, size := range []struct{ mtu, ring, every int }{{1500, 64, 9}, {xdpMTU, 128, 0}, {300, 1024, 50}} {
				w := kind
				w.mtu, w.rxRing, w.promisc, w.queues = size.mtu, size.ring, true, 1+len(out)%2
				w.xdp = len(out)%3 > 0
				out = append(out, xdpCase{profile, w, size.every})
			}
		}
	}
	return out
}

// Every frame that comes in has the fate that the program gave it, and is counted
// there: on all profiles, kinds of queue and sizes. At the end all pages are home.
func TestXDPVerdicts(t *testing.T) {
	for i, c := range xdpCases() {
		name := fmt.Sprintf("%s/striding=%v/compress=%v/mtu%d", c.profile, c.w.rxStriding, c.w.rxCompress, c.w.mtu)
		t.Run(name, func(t *testing.T) { runXDPCase(t, c, uint64(i), 2000) })
	}
}

func runXDPCase(t *testing.T, xc xdpCase, seed uint64, packets int) {
	wire := &fateWire{shutWire: &shutWire{numberedWire: newNumberedWire(seed, packets, 64, xc.w.mtu+etherHeader+vlanTag)}, check: rightAnswer}
	d := testDevice(t, model.Config{Profile: xc.profile, Wire: wire})
	n, err := testOpen(d, xc.w)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.close() }) // before the device goes, whatever failed
	seen := make([]atomic.Uint32, packets)
	var works []*fateWork
	var handlers []handler
	var consumers sync.WaitGroup
	for range n.channels {
		w := &fateWork{seen: seen, every: xc.every, later: make(chan heldFrame, 16)}
		works, handlers = append(works, w), append(handlers, w)
		consumers.Go(func() { w.consume(&n.pools) })
	}
	var programs []*fateProgram
	require.NoError(t, n.attach(func(c *channel) (xdpProgram, error) {
		p := &fateProgram{}
		for i := range n.channels {
			s, err := newQueueSink(c, i)
			require.NoError(t, err)
			p.sinks = append(p.sinks, s)
		}
		programs = append(programs, p)
		return p, nil
	}))
	n.start(handlers, false, nil)
	wire.open.Store(true)
	require.Eventually(t, d.m.WireDone, 60*time.Second, time.Millisecond, "the wire does not run dry")
	n.stop()
	for _, w := range works {
		close(w.later)
	}
	consumers.Wait()
	settleXDP(t, n)
	s := sumXDP(n)
	var fates [doings]uint64
	got, guests, bad := uint64(0), uint64(0), uint64(0)
	for i, w := range works {
		got, guests, bad = got+w.got.Load(), guests+w.guests.Load(), bad+w.bad.Load()
		bad += programs[i].bad.Load()
		for f := range fates {
			fates[f] += programs[i].fates[f].Load()
		}
	}
	require.Zero(t, bad, "wrong frames or wrong runs")
	require.Zero(t, wire.wrong.Load(), "wrong answers")
	require.EqualValues(t, packets, s.total(), "%+v", s)
	require.EqualValues(t, packets, s.passed+s.consumed)
	require.Equal(t, fates[doDrop], s.drop)
	require.Equal(t, fates[doNonsense], s.aborted)
	require.Equal(t, fates[doPass]+fates[doGrowHead]+fates[doCutHead], s.passed)
	require.Equal(t, s.passed, got)
	require.Equal(t, fates[doCutTail]+fates[doGrowTail], s.sent+s.full+s.refused)
	require.Equal(t, s.sent, wire.sent.Load())
	require.Equal(t, fates[doRedirect], s.redirect+s.lost)
	require.Equal(t, s.redirect, guests)
	require.NotZero(t, guests)
	for i := range seen {
		require.LessOrEqual(t, seen[i].Load(), uint32(1), "frame %d came twice", i)
	}
	for _, c := range n.channels {
		requirePagesHome(t, c.rx)
	}
	require.NoError(t, n.close())
	requireClean(t, d)
}

// numberProgram answers by the frame's number alone, so that what became of a
// frame says which program has seen it.
type numberProgram struct {
	verdict xdpVerdict
	mark    byte
	runs    *atomic.Uint64
}

func (p numberProgram) run(frames []xdpFrame, verdicts []xdpVerdict) {
	for i := range frames {
		b := frames[i].data()
		b[numberAt+8] = p.mark // the last word of every program that has seen it
		verdicts[i] = p.verdict
	}
	p.runs.Add(uint64(len(frames)))
}

// markWork counts what passes by the mark of the program that let it.
type markWork struct{ marks [256]atomic.Uint64 }

func (w *markWork) handle(_ *channel, packets []packet) {
	for i := range packets {
		w.marks[packets[i].b[numberAt+8]].Add(1)
	}
}
func (w *markWork) turn(*channel) int { return 0 }
func (w *markWork) idle(*channel)     {}

// Programs come, change and go a thousand times while frames flow. Every frame is
// seen by one program or by none, none is lost, and no old program runs once
// attach has returned.
func TestXDPAttachUnderLoad(t *testing.T) {
	for i, profile := range []string{"cx5", "cx4"} {
		for _, kind := range []wishes{{}, {rxStriding: true, rxCompress: true}} {
			t.Run(fmt.Sprintf("%s/striding=%v", profile, kind.rxStriding), func(t *testing.T) {
				kind.queues, kind.promisc, kind.rxRing = 2, true, 256
				runAttachUnderLoad(t, profile, kind, uint64(i))
			})
		}
	}
}

func runAttachUnderLoad(t *testing.T, profile string, kind wishes, seed uint64) {
	numbered := newNumberedWire(seed, 1<<30, 64, 200)
	wire := &fateWire{shutWire: &shutWire{numberedWire: numbered}, check: func([]byte) bool { return true }}
	wire.open.Store(true)
	d := testDevice(t, model.Config{Profile: profile, Wire: wire})
	n, err := testOpen(d, kind)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.close() })
	work := &markWork{}
	n.start([]handler{work, work}, false, nil)
	var seenBy [250]atomic.Uint64
	swaps := 1000
	if testing.Short() {
		swaps = 200
	}
	for i := range swaps {
		mark := byte(i % 250)
		verdict := []xdpVerdict{xdpPass, xdpDrop, xdpTX, xdpPass}[i%4]
		var program xdpProgramMaker
		switch i % 7 {
		case 0:
		case 1:
			program = func(*channel) (xdpProgram, error) { return xdpSame(xdpDrop), nil }
		case 2:
			program = func(*channel) (xdpProgram, error) { return xdpSwap{}, nil }
		default:
			program = func(*channel) (xdpProgram, error) { return numberProgram{verdict, mark, &seenBy[mark]}, nil }
		}
		if i%100 == 99 { // the queues change their kind too, with a program in place
			require.NoError(t, n.setPrivFlag("rx_striding_rq", i%200 == 99 && n.caps.striding))
		}
		require.NoError(t, n.attach(program))
		settled := seenBy[(i+249)%250].Load()
		if i%5 == 0 {
			time.Sleep(200 * time.Microsecond)
		}
		require.Equal(t, settled, seenBy[(i+249)%250].Load(), "the program that was replaced has run again")
	}
	numbered.mu.Lock()
	numbered.left = 1 // which may be on its way already
	numbered.mu.Unlock()
	require.Eventually(t, d.m.WireDone, 10*time.Second, time.Millisecond)
	n.stop()
	settleXDP(t, n)
	s := sumXDP(n)
	passed := uint64(0)
	for m := range work.marks {
		passed += work.marks[m].Load()
	}
	require.Equal(t, numbered.next, s.total(), "%+v of %d", s, numbered.next)
	require.Equal(t, s.passed, passed)
	require.Equal(t, s.sent, wire.sent.Load())
	require.NotZero(t, s.drop)
	require.NotZero(t, s.sent)
	require.NotZero(t, s.passed)
	for _, c := range n.channels {
		requirePagesHome(t, c.rx)
	}
	require.NoError(t, n.close())
	requireClean(t, d)
}

// twoPorts opens two NICs that share memory, each with a send queue on the other.
func twoPorts(t *testing.T, profile string, wires [2]model.Wire, w wishes) (nics [2]*nic, devs [2]*emulatedDevice) {
	t.Helper()
	for i, wire := range wires {
		devs[i] = testDevice(t, model.Config{Profile: profile, Wire: wire})
	}
	mem := newArena(devs[0])
	require.NoError(t, mem.share(devs[1]))
	for i, d := range devs {
		var err error
		nics[i], err = openNIC(context.Background(), d, d.virtual(), openOptions{wishes: w, cpus: 2, mem: mem, index: i})
		require.NoError(t, err)
		t.Cleanup(func() { _ = nics[i].close() })
	}
	t.Cleanup(func() { require.NoError(t, errors.Join(nics[1].close(), nics[0].close(), mem.close())) })
	for i := range nics {
		for _, c := range nics[i].channels {
			require.NoError(t, nics[i].newForward(c, nics[1-i]))
		}
	}
	return nics, devs
}

// statOf reads one counter by its name.
func statOf(t *testing.T, n *nic, name string) uint64 {
	t.Helper()
	r := newStatReader(n)
	require.NoError(t, r.update())
	for _, s := range r.read() {
		if s.name == name {
			return s.value
		}
	}
	t.Fatalf("there is no counter %s", name)
	return 0
}

// Frames that a program redirects to the other port leave there as they came, by
// the queue that the receiving channel has there, under mlx5e's names.
func TestXDPRedirectToAnotherPort(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			const packets = 3000
			in := &fateWire{shutWire: &shutWire{numberedWire: newNumberedWire(5, packets, 64, 1000)}, check: func([]byte) bool { return false }}
			var seen [packets]atomic.Uint32
			out := &fateWire{shutWire: &shutWire{numberedWire: newNumberedWire(6, 0, 64, 64)}, check: func(b []byte) bool {
				number := binary.BigEndian.Uint64(b[numberAt:])
				want := make([]byte, len(b))
				fillNumbered(want, number, binary.BigEndian.Uint16(b[34:]))
				seen[number].Add(1)
				return bytes.Equal(want, b)
			}}
			nics, devs := twoPorts(t, profile, [2]model.Wire{in, out}, wishes{queues: 2, promisc: true, rxRing: 256, txRing: 1024, xdp: true})
			for _, n := range nics {
				require.NoError(t, n.attach(toPeer))
			}
			for _, n := range nics {
				n.start([]handler{dropWork{}, dropWork{}}, false, nil)
			}
			in.open.Store(true)
			require.Eventually(t, devs[0].m.WireDone, 30*time.Second, time.Millisecond)
			for _, n := range nics {
				n.stop()
			}
			settleXDP(t, nics[0])
			s := sumXDP(nics[0])
			require.EqualValues(t, packets, s.redirect+s.lost, "%+v", s)
			require.EqualValues(t, packets, s.consumed)
			require.Equal(t, s.redirect, out.sent.Load())
			require.Greater(t, s.redirect, uint64(packets/2))
			require.Zero(t, out.wrong.Load()+in.sent.Load())
			require.Equal(t, s.redirect, statOf(t, nics[1], "tx_xdp_xmit"))
			require.Zero(t, statOf(t, nics[0], "tx_xdp_xmit")+statOf(t, nics[1], "tx_packets"))
			require.Equal(t, s.redirect, statOf(t, nics[0], "rx_xdp_redirect"))
			for _, c := range nics[0].channels {
				requirePagesHome(t, c.rx)
			}
		})
	}
}

// What is redirected to another queue is a packet like any other for its handler,
// which here sends it on: the page comes home over two goroutines.
func TestXDPGuestsAreSentOn(t *testing.T) {
	for _, profile := range model.Profiles() {
		for _, striding := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/striding=%v", profile, striding), func(t *testing.T) {
				const packets = 3000
				var seen [packets]atomic.Uint32
				wire := &fateWire{shutWire: &shutWire{numberedWire: newNumberedWire(7, packets, 64, 1000)}, check: func(b []byte) bool {
					number := binary.BigEndian.Uint64(b[numberAt:])
					want := make([]byte, len(b))
					fillNumbered(want, number, binary.BigEndian.Uint16(b[34:]))
					swapAddresses(want)
					seen[number].Add(1)
					return bytes.Equal(want, b)
				}}
				d := testDevice(t, model.Config{Profile: profile, Wire: wire})
				n, err := testOpen(d, wishes{queues: 3, promisc: true, rxRing: 256, rxStriding: striding})
				require.NoError(t, err)
				t.Cleanup(func() { _ = n.close() })
				n.start([]handler{newForwardWork(), newForwardWork(), newForwardWork()}, false, nil)
				program, err := parseProgram("redirect:1")
				require.NoError(t, err)
				require.NoError(t, n.attach(program)) // while it runs
				wire.open.Store(true)
				require.Eventually(t, d.m.WireDone, 30*time.Second, time.Millisecond)
				n.stop()
				settleXDP(t, n)
				s := sumXDP(n)
				require.EqualValues(t, packets, s.redirect+s.lost)
				c := n.channels[1]
				require.Equal(t, s.redirect, c.tx.stats.packets.get()+c.tx.stats.dropped.get())
				require.Equal(t, c.tx.stats.packets.get(), wire.sent.Load())
				require.Greater(t, wire.sent.Load(), uint64(packets/4))
				require.Zero(t, wire.wrong.Load())
				for i := range seen {
					require.LessOrEqual(t, seen[i].Load(), uint32(1))
				}
				for _, c := range n.channels {
					requirePagesHome(t, c.rx)
				}
				require.NoError(t, n.close())
				requireClean(t, d)
			})
		}
	}
}

// A full ring refuses; what it has taken comes out once, in order for each who put
// it in.
func TestGuestRing(t *testing.T) {
	r := newGuestRing()
	for i := range guestSlots {
		require.True(t, r.put(guest{at: uint32(i)}))
	}
	require.False(t, r.put(guest{}), "it is full")
	for i := range guestSlots {
		g, ok := r.peek()
		require.True(t, ok)
		require.EqualValues(t, i, g.at)
		r.drop()
	}
	_, ok := r.peek()
	require.False(t, ok)
	const producers, each = 3, 20_000
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := 0; i < each; {
				if r.put(guest{at: uint32(p), size: uint32(i)}) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [producers]uint32
	for got := 0; got < producers*each; {
		g, ok := r.peek()
		if !ok {
			runtime.Gosched()
			continue
		}
		require.Equal(t, next[g.at], g.size)
		next[g.at]++
		r.drop()
		got++
	}
	wg.Wait()
}

// Programs want frames in one piece: that is refused before anything changes, at
// start and live, with the largest MTU that works.
func TestXDPRefusesLongFrames(t *testing.T) {
	d := testDevice(t, model.Config{})
	_, err := testOpen(d, wishes{queues: 1, mtu: 9000, xdp: true})
	require.ErrorAs(t, err, new(wishError))
	require.EqualError(t, err, "-mtu 9000: with an XDP program at most 3822")
	requireClean(t, d)
	n, err := testOpen(d, wishes{queues: 1, largest: true, xdp: true})
	require.NoError(t, err)
	require.Equal(t, 3822, n.params.mtu)
	require.True(t, n.channels[0].rx.whole())
	require.NoError(t, n.close())
	n, err = testOpen(d, wishes{queues: 1, mtu: 3823})
	require.NoError(t, err)
	require.False(t, n.channels[0].rx.whole(), "3822 is the most")
	drop, _ := parseProgram("drop")
	objects := d.m.Stats().Objects
	require.EqualError(t, n.attach(drop), "-mtu 3823: with an XDP program at most 3822")
	require.Equal(t, objects, d.m.Stats().Objects)
	require.NoError(t, n.close())
	for name, want := range map[string]string{"nothing": "drop, pass, tx or redirect:QUEUE", "redirect:x": "drop, pass", "redirect:": "drop, pass"} {
		_, err := parseProgram(name)
		require.ErrorContains(t, err, want)
	}
}

// Attaching that fails at any command takes back what it made and leaves a NIC
// that works.
func TestXDPAttachCutAtEveryCommand(t *testing.T) {
	wire := &fateWire{shutWire: &shutWire{numberedWire: newNumberedWire(9, 200, 64, 200)}, check: func([]byte) bool { return true }}
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: 2, promisc: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.close() })
	n.start([]handler{dropWork{}, dropWork{}}, false, nil)
	before := d.m.Stats().Objects
	tx := func(*channel) (xdpProgram, error) { return xdpSwap{}, nil }
	for at := 0; ; at++ {
		require.Less(t, at, 40)
		cut := &commandLog{fail: at}
		d.m.SetScript(cut.script())
		err := n.attach(tx)
		if err == nil {
			require.Equal(t, 8, at, "a UAR, a completion queue, a send queue and its first state for two channels")
			break
		}
		var ce *cmdError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, before, d.m.Stats().Objects, "command %d", at)
		require.Nil(t, n.channels[0].xdpSeen.Load())
	}
	d.m.SetScript(nil)
	wire.open.Store(true)
	require.Eventually(t, d.m.WireDone, 10*time.Second, time.Millisecond)
	n.stop()
	settleXDP(t, n)
	require.EqualValues(t, 200, wire.sent.Load())
	require.NoError(t, n.close())
	requireClean(t, d)
}

// A program costs no allocation, whatever it answers.
func TestXDPAllocatesNothing(t *testing.T) {
	prog, err := loadBPF(filepath.Join("testdata", "bpf", "tcp-port-80.ddd"))
	require.NoError(t, err)
	for name, program := range map[string]xdpProgramMaker{
		"drop":     func(*channel) (xdpProgram, error) { return xdpSame(xdpDrop), nil },
		"tx":       func(*channel) (xdpProgram, error) { return xdpSwap{}, nil },
		"bpf":      filterBy(prog),
		"every":    func(*channel) (xdpProgram, error) { return &fateless{}, nil },
		"redirect": func(c *channel) (xdpProgram, error) { s, err := newQueueSink(c, 0); return xdpTo{s}, err },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newBenchRigFor("cx5", "gen:size=64,count=0", wishes{queues: 1, promisc: true, xdp: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.close()) }()
			c := r.nic.channels[0]
			c.setHandler(&markWork{})
			r.dev.resume()
			require.NoError(t, r.nic.attach(program))
			r.dev.pause()
			for range 8 {
				r.settle()
				for c.poll(napiBudget) > 0 {
				}
			}
			r.settle()
			before, _ := c.load()
			require.Zero(t, testing.AllocsPerRun(1, func() {
				for range 6 {
					c.poll(napiBudget)
				}
			}))
			c.publish()
			after, _ := c.load()
			require.NotEqual(t, before, after)
		})
	}
}

// fateless answers each frame of a batch differently.
type fateless struct{}

func (*fateless) run(frames []xdpFrame, verdicts []xdpVerdict) {
	for i := range frames {
		verdicts[i] = xdpVerdict(i % 4)
	}
}
