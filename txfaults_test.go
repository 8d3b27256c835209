package main

// txfaults_test.go owns what happens when sending goes wrong: frames that cannot
// be sent, a ring that is full, a doorbell that is missed, memory that the device
// cannot reach, completions that do not come. The rule is the same for all: the
// cause is named once, the queue works again by itself, what was lost is counted,
// every page comes home, and no other queue notices. That what is right is sent
// right is txpath_test.go's.

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// nowhere is a bus address that no memory of ours has.
const nowhere = 0x7f_0000_0000

// notes are what an operator was told so far.
func (r *sendRig) notes() (out []string) {
	for {
		select {
		case s := <-r.nic.notices:
			out = append(out, s)
		default:
			return out
		}
	}
}

// settleFault lets the device work, takes completions and recovers the queue as
// its channel does, for whom the last reset was a while ago.
func (r *sendRig) settleFault() {
	r.q.reborn = time.Time{}
	r.settleFaultNow()
}

// settleFaultNow is the same right now.
func (r *sendRig) settleFaultNow() {
	r.settle()
	r.dev.resume()
	for c := r.nic.channels[0]; c.complete(r.nic, r.q, napiBudget) > 0; {
	}
	r.dev.pause()
	r.drain()
}

// Frames that the device would refuse are refused before it sees them: counted,
// their pages given back, the queue and its neighbours in the burst unharmed.
func TestUnfitFrames(t *testing.T) {
	many := make([]int, maxPieces+1)
	for i := range many {
		many[i] = 10
	}
	cases := []struct {
		name   string
		pieces []int
		form   txForm
		mss    uint16
		or     bool // may also be sent
	}{
		{name: "13 bytes", pieces: []int{13}},
		{name: "1 byte", pieces: []int{1}},
		{name: "13 bytes in two pieces", pieces: []int{6, 7}},
		{name: "18 pieces", pieces: many},
		{name: "empty", pieces: []int{0}},
		{name: "empty piece first", pieces: []int{0, 100}, or: true},
		{name: "empty piece within", pieces: []int{100, 0, 100}, or: true},
		{name: "empty piece last", pieces: []int{100, 0}, or: true},
		{name: "beyond 64 KiB", pieces: []int{20000, 20000, 20000, 20000}},
		{name: "headers only", pieces: []int{54}, form: txHeader(54), mss: 100, or: true},
		{name: "no segment size", pieces: []int{54, 1000}, form: txHeader(54)},
		{name: "headers shorter than Ethernet's", pieces: []int{300}, form: txHeader(5), mss: 100},
		{name: "headers of 13 bytes", pieces: []int{300}, form: txHeader(13), mss: 100},
		{name: "headers beyond the limit", pieces: []int{300}, form: txHeader(maxInline + 1), mss: 100},
		{name: "headers beyond the frame", pieces: []int{60, 60}, form: txHeader(180), mss: 100},
	}
	for _, profile := range []string{"cx4", "cx5"} {
		t.Run(profile, func(t *testing.T) {
			r := newSendRig(t, rigConfig{profile: profile, runs: 40})
			good := numberedFrame(100, 1)
			for _, c := range cases {
				burst := r.place(txOffload{}, good)
				var pieces [][]byte
				for _, n := range c.pieces {
					pieces = append(pieces, numberedFrame(max(n, 14), 2)[:n])
				}
				bad := r.place(txOffload{mss: c.mss}, pieces...)
				bad[0].form |= c.form
				burst = append(append(burst, bad...), r.place(txOffload{}, good)...)
				before := r.q.stats.dropped.get()
				require.NotPanics(t, func() { require.Equal(t, len(burst), r.q.send(burst), c.name) }, c.name)
				r.settle()
				r.requireHome()
				require.False(t, r.q.failed, "%s: %v", c.name, r.q.cause)
				dropped, wire := r.q.stats.dropped.get()-before, r.wire.frames()
				r.wire.forget()
				require.GreaterOrEqual(t, len(wire), 2, "%s: the neighbours are lost", c.name)
				require.Equal(t, good, wire[0], c.name)
				require.Equal(t, good, wire[len(wire)-1], c.name)
				if len(wire) > 2 && c.or {
					require.Zero(t, dropped, c.name)
					continue
				}
				require.Len(t, wire, 2, c.name)
				require.EqualValues(t, 1, dropped, c.name)
			}
			r.requireHealthy()
		})
	}
}

// A burst whose last frame is not whole loses that frame alone.
func TestLastPieceMissing(t *testing.T) {
	r := newSendRig(t, rigConfig{})
	burst := append(r.place(txOffload{}, numberedFrame(100, 1)), r.place(txOffload{}, numberedFrame(50, 1), numberedFrame(50, 2))...)
	burst[2].form |= txMore
	require.Equal(t, 3, r.q.send(burst))
	r.requireHome()
	r.requireHealthy()
	require.Len(t, r.wire.ends, 1)
	require.EqualValues(t, 1, r.q.stats.dropped.get())
}

// Headers that are to be repeated may lie in a piece of their own: that is how
// they are built in front of data that stays where it is.
func TestLargeSendWithHeadersApart(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		r := newSendRig(t, rigConfig{profile: profile})
		b := numberedFrame(54+1000, 5)
		copy(b[12:], []byte{8, 0, 0x45, 0, 4, 4, 0, 7, 0x40, 0, 64, 6})
		b[46], b[47] = 0x50, 0x19
		f := softFrame{b: b, outer: headers{l3: 14, l4: 34}, csum: csumL3 | csumL4, header: 54, mss: 300}
		want := &recordWire{}
		ref := softNIC{wire: want, longest: r.most}
		ref.send(&f)
		frame := r.place(txOffload{csum: csumL3 | csumL4, mss: 300}, b[:54], b[54:600], b[600:])
		frame[0].form |= txHeader(54)
		require.Equal(t, 3, r.q.send(frame))
		r.drain()
		_, what := r.wire.firstDifference(want)
		require.Empty(t, what, profile)
		r.requireHome()
		r.requireHealthy()
	}
}

// A tag that the driver puts into the inlined headers moves what the software
// parser was told by as much.
func TestTagMovesParserOffsets(t *testing.T) {
	r := newSendRig(t, rigConfig{profile: "cx5"})
	b := numberedFrame(54+100, 5)
	copy(b[12:], []byte{8, 0, 0x45, 0, 0, 140, 0, 7, 0x40, 0, 64, 6})
	b[46], b[47] = 0x50, 0x19
	f := softFrame{b: b, outer: headers{l3: 14, l4: 34}, csum: csumL3 | csumL4, header: 54, mss: 50, tag: true, tci: 5}
	want := &recordWire{}
	ref := softNIC{wire: want, longest: r.most}
	ref.send(&f)
	o := txOffload{csum: csumL3 | csumL4, mss: 50, insert: true, vlan: 5, swp: [4]uint8{17, 7}}
	frame := r.place(o, b)
	frame[0].form |= txHeader(54)
	require.Equal(t, 1, r.q.send(frame))
	r.drain()
	_, what := r.wire.firstDifference(want)
	require.Empty(t, what)
	r.requireHome()
	r.requireHealthy()
}

// Frames longer than the port's MTU do not leave, and do not harm the queue.
func TestLongerThanPort(t *testing.T) {
	r := newSendRig(t, rigConfig{})
	for _, n := range []int{r.most - 1, r.most, r.most + 1, 9600, 16384} {
		require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(n, uint32(n)))))
	}
	r.drain()
	require.Len(t, r.wire.ends, 2)
	r.requireHome()
	r.requireHealthy()
}

// A doorbell that the device overlooks does no harm: the record says the same.
func TestMissedDoorbell(t *testing.T) {
	missed := 0
	r := newSendRig(t, rigConfig{script: &model.Script{MissDoorbell: func(uint32) bool { missed++; return true }}})
	for i := range 100 {
		r.q.send(r.place(txOffload{}, numberedFrame(100, uint32(i))))
		r.drain()
	}
	require.NotZero(t, missed)
	require.Len(t, r.wire.ends, 100)
	r.requireHome()
	r.requireHealthy()
}

// A ring takes exactly as many frames of one block as it promises, and what does not
// fit stays the caller's. The queue stops once and wakes once.
func TestFullRing(t *testing.T) {
	for _, c := range []struct {
		profile string
		o       txOffload
	}{{"cx4", txOffload{}}, {"cx4", txOffload{insert: true}}, {"cx5", txOffload{}}, {"cx5", txOffload{insert: true}}} {
		for ring := minRing; ring <= 1024; ring *= 4 {
			t.Run(fmt.Sprintf("%s/%v/%d", c.profile, c.o.insert, ring), func(t *testing.T) {
				r := newSendRig(t, rigConfig{profile: c.profile, ring: ring, loose: 2 * ring, runs: 1})
				r.q.limit = 0
				for lap := range 3 {
					promised, sent := r.q.room(1), 0
					frame := r.place(c.o, numberedFrame(100, uint32(lap)))
					for sent <= ring && r.q.send(frame) == 1 {
						sent++
						frame = r.place(c.o, numberedFrame(100, uint32(lap)))
					}
					require.Equal(t, promised, sent, "the ring promised room for so many frames")
					require.Zero(t, r.q.room(1))
					require.Zero(t, r.q.send(frame))
					require.EqualValues(t, lap+1, r.q.tally.stopped, "once until it wakes, however often it is asked")
					r.drain()
					require.Equal(t, 1, r.q.send(frame), "what did not fit is still the caller's to send")
					r.drain()
					require.Len(t, r.wire.ends, sent+1)
					r.wire.forget()
				}
				r.requireHome()
				r.requireHealthy()
				require.Zero(t, r.q.stats.dropped.get())
				require.EqualValues(t, 3, r.q.stats.wake.get(), "a full queue wakes once")
			})
		}
	}
}

// What a ring promises it keeps, wherever its edge is and whatever frames take: in
// sessions with and without frames put in, with headers inline, in several pieces.
func TestRoomIsKept(t *testing.T) {
	script := map[uint8]*model.Script{inlineIP: answerInline(inlineIP), inlineTCP: answerInline(inlineTCP)}
	for _, c := range []struct {
		profile string
		mode    uint8 // inline mode, where it is not the profile's
		limit   uint32
		inline  int
	}{
		{profile: "cx5"}, {profile: "cx5", limit: sessionLimit}, {profile: "cx5", limit: 5, inline: 200}, {profile: "cx5", inline: 200},
		{profile: "cx5", limit: sessionLimit, inline: 60}, {profile: "cx5", limit: sessionLimit, inline: inlineXDP},
		{profile: "cx5", limit: sessionLimit, inline: 200}, {profile: "cx5", limit: sessionLimit, inline: maxInlineFrame},
		{profile: "cx4"}, {profile: "cx4", mode: inlineIP}, {profile: "cx4", mode: inlineTCP},
	} {
		for _, pieces := range []int{1, maxFrags} {
			t.Run(fmt.Sprintf("%s/%d/%d/%d/%d", c.profile, c.mode, c.limit, c.inline, pieces), func(t *testing.T) {
				r := newSendRig(t, rigConfig{profile: c.profile, ring: minRing, loose: 8 * minRing, runs: 1, script: script[c.mode]})
				r.q.limit = c.limit
				r.q.inlineUpTo(c.inline)
				r.keepsRoom(pieces, rand.New(rand.NewPCG(11, uint64(c.inline))))
			})
		}
	}
}

// keepsRoom sends as many frames as the ring promises, of up to so many pieces, from
// wherever the ring stands: in every other round all are as long as can be.
func (r *sendRig) keepsRoom(pieces int, rng *rand.Rand) {
	t, sent := r.t, 0
	for round := range 150 {
		for range rng.IntN(4) { // moves the ring's edge
			require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(60, 0))))
			sent++
		}
		n := r.q.room(uint32(pieces))
		require.NotZero(t, n, "a ring with next to nothing in it has no room")
		for worst := round%2 == 0; n > 0; {
			var burst []txFrame
			for range 1 + rng.IntN(n) {
				size, parts := 60+rng.IntN(1000), 1+rng.IntN(pieces)
				if worst {
					size, parts = max(200, int(r.q.small.most)), pieces
				}
				b := numberedFrame(size, uint32(round))
				if worst || rng.IntN(2) == 0 {
					longHeaders(b)
				}
				burst = append(burst, r.place(txOffload{}, inPieces(b, parts)...)...)
				n--
				sent++
			}
			require.Equal(t, len(burst), r.q.send(burst), "round %d: the ring does not keep what it promised", round)
		}
		r.drain()
		r.mem.rest()
	}
	require.Len(t, r.wire.ends, sent)
	r.requireHome()
	r.requireHealthy()
	require.Zero(t, r.q.stats.dropped.get())
}

// longHeaders gives a frame that is long enough the longest headers that are looked
// at: two tags, IPv4 and TCP, both with all their options.
func longHeaders(b []byte) {
	if len(b) < 14+8+60+60 {
		return
	}
	copy(b[12:], []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0, 0x4f})
	b[22+9], b[22+60+12] = ipTCP, 0xf0
}

// inPieces cuts b into n pieces.
func inPieces(b []byte, n int) (out [][]byte) {
	for ; n > 1; n-- {
		out = append(out, b[:len(b)/n])
		b = b[len(b)/n:]
	}
	return append(out, b)
}

// A burst that only fits in part is taken up to a whole frame and goes on later,
// in order.
func TestBurstBeyondRing(t *testing.T) {
	for _, limit := range []uint32{0, 5, sessionLimit} {
		r := newSendRig(t, rigConfig{ring: minRing, loose: 2048, runs: 1})
		r.q.limit = limit
		want := &recordWire{}
		var rest []txFrame
		for i := range 700 {
			b := numberedFrame(90, uint32(i))
			want.Transmit(b)
			if i%9 == 0 {
				rest = append(rest, r.place(txOffload{}, b[:30], b[30:50], b[50:])...)
			} else {
				rest = append(rest, r.place(txOffload{}, b)...)
			}
		}
		for calls := 0; len(rest) > 0; calls++ {
			require.Less(t, calls, 100)
			took := r.q.send(rest)
			require.True(t, took == len(rest) || took == 0 || rest[took-1].form&txMore == 0, "a frame was cut")
			rest = rest[took:]
			r.drain()
		}
		_, what := r.wire.firstDifference(want)
		require.Empty(t, what, "session limit %d", limit)
		r.requireHome()
		r.requireHealthy()
		require.NotZero(t, r.q.stats.stopped.get())
	}
}

// A frame that the device cannot reach fails its WQE. The cause is told once with
// its queue and place, all else is flushed, the queue starts anew and goes on,
// and no page is lost.
func TestUnreachableFrame(t *testing.T) {
	for _, c := range []struct {
		name        string
		limit       uint32
		before      int
		addr        uint64
		lkey        uint32 // added to the right one
		index, sent int    // of the failed WQE; frames that left before it
		exact       bool   // the device says exactly which frame it was
		inline      int
		form        txForm // of the frame that is out of reach
	}{
		{name: "first, alone", addr: nowhere, index: 0, exact: true},
		{name: "fifth, alone", before: 4, addr: nowhere, index: 4, sent: 4, exact: true},
		{name: "fifth, in a session", limit: sessionLimit, before: 4, addr: nowhere, index: 0, sent: 4},
		{name: "second session", limit: 10, before: 10, addr: nowhere, index: 3, sent: 10, exact: true},
		{name: "behind inlined frames", limit: sessionLimit, before: 8, addr: nowhere, index: 15, sent: 8, exact: true, inline: 200, form: txAlone},
		{name: "among inlined frames", limit: sessionLimit, before: 3, addr: nowhere, index: 0, sent: 3, inline: 200},
		{name: "wrong key", lkey: 1 << 8, index: 0, exact: true},
		{name: "wrong key in a session", limit: sessionLimit, lkey: 1 << 8, index: 0, exact: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSendRig(t, rigConfig{dirty: true})
			r.q.limit = c.limit
			r.q.inlineUpTo(c.inline)
			good := numberedFrame(100, 1)
			var burst []txFrame
			for range c.before {
				burst = append(burst, r.place(txOffload{}, good)...)
			}
			bad := r.place(txOffload{}, good)
			if c.addr != 0 {
				bad[0].addr = c.addr
				bad[0].form |= c.form
			}
			burst = append(burst, bad...)
			for range 40 {
				burst = append(burst, r.place(txOffload{}, good)...)
			}
			r.q.lkey += c.lkey
			require.Equal(t, len(burst), r.q.send(burst))
			r.q.lkey -= c.lkey
			r.settle()
			r.q.complete(napiBudget)
			require.True(t, r.q.failed)
			require.EqualValues(t, 4, r.q.cause.syndrome, "%v", r.q.cause)
			require.EqualValues(t, c.index, r.q.cause.counter, "%v", r.q.cause)
			r.settleFault()
			notes := r.notes()
			require.Len(t, notes, 1, "one cause, one line")
			for _, part := range []string{fmt.Sprintf("%#x", r.q.n), "local protection error", fmt.Sprintf("WQE index %#x", c.index), "reset"} {
				require.Contains(t, notes[0], part)
			}
			require.Len(t, r.wire.ends, c.sent)
			r.requireHome()
			require.NotZero(t, r.q.stats.cqeErr.get())
			require.EqualValues(t, 1, r.q.stats.recover.get())
			lost := uint64(len(burst) - c.sent)
			if c.exact {
				require.Equal(t, lost, r.q.stats.dropped.get(), "what did not leave is counted, and nothing else")
			} else {
				require.GreaterOrEqual(t, r.q.stats.dropped.get(), lost)
			}
			r.wire.forget()
			for range 3 * len(r.q.wqes) / 8 { // more than a lap
				require.Equal(t, 8, r.q.send(append(append(r.place(txOffload{}, good, good), r.place(txOffload{}, good, good)...), r.place(txOffload{}, good, good, good, good)...)))
				r.drain()
			}
			require.Len(t, r.wire.ends, 9*len(r.q.wqes)/8)
			r.requireHome()
			require.EqualValues(t, 1, r.q.stats.recover.get())
			require.Empty(t, r.notes())
		})
	}
}

// What a large frame became and was sent before a failure is not lost either.
func TestLargeFrameBeforeFault(t *testing.T) {
	r := newSendRig(t, rigConfig{dirty: true})
	b := numberedFrame(54+1000, 5)
	copy(b[12:], []byte{8, 0, 0x45, 0, 4, 4, 0, 7, 0x40, 0, 64, 6})
	b[46] = 0x50
	large := r.place(txOffload{mss: 300}, b[:54], b[54:])
	large[0].form |= txHeader(54)
	bad := r.place(txOffload{}, b)
	bad[0].addr = nowhere
	require.Equal(t, 3, r.q.send(append(large, bad...)))
	r.settleFault()
	r.requireHome()
	require.Len(t, r.wire.ends, 4)
	require.EqualValues(t, 5, r.q.stats.packets.get())
	require.EqualValues(t, 1, r.q.stats.dropped.get())
}

// Nothing is lost at the port without being counted: what would be too long for
// it, with its tag or as a segment, is refused.
func TestTooLongForPort(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		for _, limit := range []uint32{0, sessionLimit} {
			for _, inline := range []int{0, 60} {
				r := newSendRig(t, rigConfig{profile: profile, loose: 64, runs: 60})
				if profile == "cx5" {
					r.q.limit = limit
					r.q.inlineUpTo(inline)
				}
				send := func(o txOffload, form txForm, pieces ...[]byte) {
					f := r.place(o, pieces...)
					f[0].form |= form
					require.Equal(t, len(f), r.q.send(f))
				}
				for n := r.most - 6; n <= r.most+2; n++ {
					for _, insert := range []bool{false, true} {
						send(txOffload{insert: insert}, 0, numberedFrame(n, 1))
						send(txOffload{insert: insert}, 0, numberedFrame(n, 1)[:5000], numberedFrame(n, 1)[5000:])
					}
				}
				b := numberedFrame(15000, 5)
				copy(b[12:], []byte{8, 0, 0x45, 0, 58, 122, 0, 7, 0x40, 0, 64, 6})
				b[46] = 0x50
				for mss := r.most - 54 - 6; mss <= r.most-54+2; mss++ {
					for _, insert := range []bool{false, true} {
						send(txOffload{insert: insert, mss: uint16(mss)}, txHeader(54), b)
					}
				}
				r.requireHome()
				r.requireHealthy()
				s := &r.q.stats
				require.EqualValues(t, r.wire.count, s.packets.get(), "%s: posted, not on the wire and not counted", profile)
				require.EqualValues(t, 2*(2+6)+2+6, s.dropped.get(), profile)
			}
		}
	}
}

// A frame in many pieces is one frame, also when it is lost.
func TestLostPiecesAreOneFrame(t *testing.T) {
	r := newSendRig(t, rigConfig{dirty: true})
	b := numberedFrame(100, 1)
	bad := r.place(txOffload{}, b)
	bad[0].addr = nowhere
	bad[0].form |= txAlone
	burst := append(bad, r.place(txOffload{}, b[:20], b[20:40], b[40:60], b[60:])...)
	require.Equal(t, len(burst), r.q.send(burst))
	r.settleFault()
	r.requireHome()
	require.EqualValues(t, 2, r.q.stats.dropped.get())
}

// faultySender sends numbered frames from its channel's goroutine; one of them,
// when it is told to, from memory that the device cannot reach.
type faultySender struct {
	index int
	mem   *pagePool
	bad   uint32 // number of the frame that is out of reach
	last  uint32 // frames to send
	sent  uint32
	burst []txFrame
	over  bool
	done  chan struct{}
}

func (s *faultySender) handle(*channel, []packet) {}
func (s *faultySender) idle(*channel)             {}

func (s *faultySender) turn(c *channel) int {
	if s.sent == s.last && c.tx.mtail == c.tx.mhead {
		if !s.over {
			s.over = true
			c.tx.publish()
			close(s.done)
		}
		return 0
	}
	s.burst = s.burst[:0]
	for len(s.burst) < 32 && s.sent < s.last {
		page, ok := s.mem.take()
		if !ok {
			break
		}
		b := s.mem.bytes(page, 0, 64)
		copy(b, numberedFrame(14, 0))
		binary.BigEndian.PutUint32(b[14:], s.sent)
		b[18] = byte(s.index)
		f := txFrame{addr: s.mem.addr(page, 0), form: txSize(64), page: s.mem.lendOwn(page)}
		s.mem.giveBack(page)
		if s.sent == s.bad {
			f.addr = nowhere
		}
		s.burst = append(s.burst, f)
		s.sent++
	}
	rest := s.burst
	for len(rest) > 0 && !c.vec.stop.Load() {
		rest = rest[c.tx.send(rest):]
		c.complete(c.n, c.tx, napiBudget)
		runtime.Gosched()
	}
	return 1
}

// queuesWire remembers by queue which numbered frames came.
type queuesWire struct {
	recordWire
	seen [2][]uint32
}

func (w *queuesWire) Transmit(b []byte) {
	i := b[18] & 1
	w.seen[i] = append(w.seen[i], binary.BigEndian.Uint32(b[14:]))
}

// While one queue fails and recovers in its own goroutine another one's traffic
// is exact, and the first goes on in order.
func TestFaultInLiveQueue(t *testing.T) {
	w := &queuesWire{}
	r := newSendRig(t, rigConfig{queues: 2, wire: w, dirty: true, loose: 64, runs: 1})
	const frames, bad, sendersPages = 30_000, 9_000, 2048
	var senders []*faultySender
	var handlers []handler
	for i, c := range r.nic.channels {
		pool, err := newPagePool(r.nic.mem, 210+i, sendersPages)
		require.NoError(t, err)
		c.tx.home(pool)
		s := &faultySender{index: i, mem: pool, last: frames, bad: ^uint32(0), done: make(chan struct{})}
		senders, handlers = append(senders, s), append(handlers, s)
	}
	senders[0].bad = bad
	r.dev.resume()
	r.nic.start(handlers, false, nil)
	for _, s := range senders {
		select {
		case <-s.done:
		case <-time.After(20 * time.Second):
			t.Fatal("frames are stuck")
		}
	}
	r.nic.stop()
	r.dev.pause()
	require.Len(t, w.seen[1], frames, "the healthy queue")
	for i, n := range w.seen[1] {
		require.EqualValues(t, i, n, "the healthy queue")
	}
	seen := w.seen[0]
	require.Less(t, len(seen), frames)
	require.GreaterOrEqual(t, len(seen), frames-sendersPages, "the queue goes on")
	for i := 1; i < len(seen); i++ {
		require.Less(t, seen[i-1], seen[i], "order")
	}
	require.EqualValues(t, frames-1, seen[len(seen)-1])
	q0, q1 := r.nic.channels[0].tx, r.nic.channels[1].tx
	require.EqualValues(t, 1, q0.stats.recover.get())
	require.Zero(t, q1.stats.recover.get())
	require.Zero(t, q1.stats.dropped.get())
	lost := uint64(frames - len(seen))
	require.GreaterOrEqual(t, q0.stats.dropped.get(), lost)
	require.LessOrEqual(t, q0.stats.dropped.get(), lost+sessionLimit, "no more is counted as lost than the session of the failed frame")
	require.Len(t, r.notes(), 1)
	for _, s := range senders {
		require.Equal(t, len(s.mem.own), s.mem.home())
	}
}

// A queue whose completions stay away is reset; one that is only full, or was
// idle before, is not. Time is made up.
func TestOnlyStalledQueueRecovers(t *testing.T) {
	var stall [3]bool
	var sqn [3]uint32
	script := &model.Script{StallSQ: func(n uint32) bool {
		for i := range sqn {
			if n == sqn[i] {
				return stall[i]
			}
		}
		return false
	}}
	r := newSendRig(t, rigConfig{queues: 3, ring: minRing, script: script})
	var q [3]*sendQueue
	for i, c := range r.nic.channels {
		q[i], sqn[i] = c.tx, c.tx.n
		q[i].home(r.mem.pool)
		q[i].limit = 0
	}
	now := time.Unix(1000, 0)
	fill := func(i int) {
		for {
			f := r.place(txOffload{}, numberedFrame(100, uint32(i)))
			if q[i].send(f) == 0 {
				r.mem.pool.returnAll([]pageRef{f[0].page})
				return
			}
		}
	}
	stall[0], stall[1] = true, true
	fill(0)
	first := time.Duration(0)
	for at := time.Duration(0); at < 4*txTimeout; at += 500 * time.Millisecond {
		fill(1)
		stall[1] = at%(txTimeout-time.Second) != 0 // a little goes out shortly before it would be too late
		r.settle()
		for i := range q {
			for q[i].complete(1) > 0 {
			}
		}
		if q[0].stalled(now.Add(at)) && first == 0 {
			first = at
		}
		require.False(t, q[1].stalled(now.Add(at)), "a queue that is only full, after %v", at)
		require.False(t, q[2].stalled(now.Add(at)), "an idle queue, after %v", at)
	}
	require.Equal(t, txTimeout, first)
	outstanding := uint64(q[0].fhead - q[0].ftail)
	r.dev.resume()
	r.nic.recoverTX(q[0], "no completion")
	r.dev.pause()
	stall = [3]bool{}
	for i := range 2 {
		r.settle()
		for q[i].complete(napiBudget) > 0 {
		}
		q[i].publish()
		require.Equal(t, q[i].mhead, q[i].mtail)
	}
	require.EqualValues(t, minRing, outstanding)
	require.Equal(t, outstanding, q[0].stats.dropped.get())
	require.EqualValues(t, 1, q[0].stats.recover.get())
	require.Zero(t, q[1].stats.recover.get()+q[1].stats.dropped.get()+q[1].stats.cqeErr.get())
	r.wire.forget()
	require.Equal(t, 1, q[0].send(r.place(txOffload{}, numberedFrame(100, 0))), "the queue goes on")
	r.drain()
	require.Len(t, r.wire.ends, 1)
	r.requireHome()
}

// A queue that has slept longer than the timeout has not stalled when its first
// burst is under way.
func TestSleptQueueIsNotStalled(t *testing.T) {
	r := newSendRig(t, rigConfig{})
	now := time.Unix(1000, 0)
	for range 3 {
		require.False(t, r.q.stalled(now), "idle")
		now = now.Add(2 * txTimeout)
		r.q.send(r.place(txOffload{}, numberedFrame(100, 1)))
		require.False(t, r.q.stalled(now), "just sent")
		require.False(t, r.q.stalled(now.Add(txTimeout-1)), "not yet")
		require.True(t, r.q.stalled(now.Add(txTimeout)), "a completion is missing")
		r.drain()
		now = now.Add(2 * txTimeout)
	}
	r.requireHome()
}

// The channel itself finds a stalled queue, resets it and says so.
func TestChannelRecoversStalledQueue(t *testing.T) {
	stalled := true
	r := newSendRig(t, rigConfig{script: &model.Script{StallSQ: func(uint32) bool { return stalled }}})
	frame := r.place(txOffload{}, numberedFrame(100, 1))
	require.Equal(t, 1, r.q.send(frame))
	r.nic.watchTX(r.q)
	r.q.since = r.q.since.Add(-txTimeout)
	r.dev.resume()
	r.nic.watchTX(r.q)
	r.dev.pause()
	stalled = false
	notes := r.notes()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "no completion for 5s")
	require.Contains(t, notes[0], fmt.Sprintf("%#x", r.q.n))
	r.requireHome()
	require.EqualValues(t, 1, r.q.stats.dropped.get())
	require.EqualValues(t, 1, r.q.stats.recover.get())
	require.Empty(t, r.wire.ends)
	require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(100, 1))))
	r.requireHome()
	require.Len(t, r.wire.ends, 1)
}

// A queue that firmware does not reset stays out of use: what is sent on it is
// counted as dropped and comes home, what the device may still own does not, the
// other queue goes on, and closing leaves nothing behind.
func TestQueueThatCannotBeReset(t *testing.T) {
	for at := range 4 { // QUERY_SQ, then MODIFY_SQ to error, to reset, to ready
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			seen, armed := 0, false
			script := &model.Script{
				StallSQ: func(uint32) bool { return armed },
				Command: func(c model.CommandInfo) model.Verdict {
					if !armed || c.Opcode != opQuerySQ && c.Opcode != opModifySQ {
						return model.Verdict{}
					}
					if seen++; seen-1 == at {
						return model.Verdict{Status: 0x1, Syndrome: 0x4321}
					}
					return model.Verdict{}
				},
			}
			r := newSendRig(t, rigConfig{queues: 2, script: script})
			good := numberedFrame(100, 1)
			armed = true
			require.Equal(t, 1, r.q.send(r.place(txOffload{}, good)))
			r.mem.rest()
			r.settle()
			r.dev.resume()
			r.nic.recoverTX(r.q, "no completion")
			r.dev.pause()
			armed = false
			notes := r.notes()
			require.Len(t, notes, 1)
			require.Contains(t, notes[0], "0x4321")
			home := r.mem.pool.home()
			require.Equal(t, at == 3, home == r.mem.loose, "pages that the device may still read")
			before := r.q.tally.dropped
			burst := append(append(r.place(txOffload{}, good), r.place(txOffload{}, good[:50], good[50:])...), r.place(txOffload{}, good)...)
			r.mem.rest()
			require.Equal(t, len(burst), r.q.send(burst))
			require.EqualValues(t, 3, r.q.tally.dropped-before)
			require.Equal(t, home, r.mem.pool.home())
			require.False(t, r.q.stalled(time.Unix(1000, 0)))
			require.False(t, r.q.stalled(time.Unix(2000, 0)))
			other := r.nic.channels[1].tx
			other.home(r.mem.pool)
			require.Equal(t, 1, other.send(r.place(txOffload{}, good)))
			r.settle()
			require.Equal(t, 1, other.complete(napiBudget))
			require.Equal(t, good, r.wire.frame(len(r.wire.ends)-1))
		})
	}
}

// Whatever stands in a completion, and however wrong it is, the queue is whole
// again after it: no panic, no page lost, no more counted as lost than was sent.
func TestForgedCompletions(t *testing.T) {
	r := newSendRig(t, rigConfig{ring: minRing})
	m := &mixer{Rand: rand.New(rand.NewPCG(3, 4))}
	for i := range 300 {
		r.q.sessions(m.chance(2))
		r.q.inlineUpTo(m.IntN(2) * 100)
		var burst []txFrame
		for range 1 + m.IntN(40) {
			b := numberedFrame(40+m.IntN(200), uint32(i))
			if m.chance(2) {
				burst = append(burst, r.place(txOffload{}, b)...)
			} else {
				burst = append(burst, r.place(txOffload{}, b[:20], b[20:])...)
			}
		}
		took := r.q.send(burst)
		for _, f := range burst[took:] {
			r.mem.pool.returnAll([]pageRef{f.page})
		}
		r.settle()
		e := &r.q.cq.cqes[r.q.cq.ci&r.q.cq.mask]
		opcode := [...]uint64{cqeReq, cqeReqErr, cqeReqErr, cqeRespErr, uint64(m.IntN(15))}[m.IntN(5)]
		counter := be16word(uint16(m.Uint32() >> (16 + m.IntN(13))))
		e.timestamp = m.Uint64()
		atomic.StoreUint64(&e.tail, opcode<<60|e.tail&(1<<56)|uint64(counter)<<32|m.Uint64()&0xffffffff)
		r.settleFault()
		require.False(t, r.q.failed)
		r.requireHome()
		require.LessOrEqual(t, r.q.stats.dropped.get(), r.q.stats.packets.get())
		r.wire.forget()
		require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(100, 1))))
		r.requireHome()
		require.Len(t, r.wire.ends, 1, "the queue goes on")
		r.notes()
	}
	require.NotZero(t, r.q.stats.recover.get())
	require.Equal(t, r.q.posted, r.q.left)
}

// Every syndrome that the manual knows is told by a text of its own, with the
// place of the WQE, and one that it does not know by its number.
func TestEverySyndromeHasText(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range readTSV(t, sharedFile(t, "prm", "values.tsv")) {
		if row[0] != "cqe_syndrome" {
			continue
		}
		v, err := strconv.ParseUint(row[2], 0, 8)
		require.NoError(t, err)
		r := cqe{timestamp: be64word(0x9d<<24 | 0x53<<8 | v)}
		tail := uint64(cqeReqErr<<4)<<56 | uint64(be16word(0x1234))<<32 | uint64(be32word(wqeSend<<24|0x4567))
		text := decodeError(&r, tail).Error()
		require.Contains(t, text, "WQE index 0x1234", row[1])
		require.Contains(t, text, fmt.Sprintf("syndrome %#x", v), row[1])
		name, _, _ := strings.Cut(text, " (")
		require.False(t, strings.HasPrefix(name, "0x"), "%s has no text: %q", row[1], text)
		seen[name] = true
	}
	require.GreaterOrEqual(t, len(seen), 12)
	require.Contains(t, cqeError{syndrome: 0x77}.Error(), "0x77")
}
