package main

// txpath_test.go owns the proof that the send path puts on the wire what a plain
// software NIC would: a property test over random mixes, ring sizes, and what must
// not allocate. Sessions switched on and off are txsessions_test.go's, faults
// txfaults_test.go's, the reference is txmodel_test.go's.
//
// MLX5D_TX_PACKETS sets how many frames the property test sends and
// MLX5D_TX_SEED where its random numbers start. Ten million frames take
// about two minutes:
//
//	MLX5D_TX_PACKETS=10000000 go test -run TestSendLikeSoftwareNIC -timeout 30m .

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// rigConfig says what a sendRig is made of. Zero values are a cx5 with one queue
// of 1024 blocks.
type rigConfig struct {
	profile     string
	ring        int
	queues      int
	wire        model.Wire // instead of a record
	script      *model.Script
	loose, runs int
	dirty       bool // DMA faults are part of the test
	blueflame   bool
}

// sendRig is a NIC whose device works only when told to, and the first queue's
// memory for frames.
type sendRig struct {
	t    testing.TB
	dev  *emulatedDevice
	nic  *nic
	wire *recordWire
	q    *sendQueue
	mem  *frameMemory
	most int // the longest frame that may be sent, its tag included
}

// newSendRig opens the NIC and pauses its device. What is left over at the end of
// the test is a failure.
func newSendRig(t testing.TB, c rigConfig) *sendRig {
	t.Helper()
	if c.queues == 0 {
		c.queues = 1
	}
	if c.loose == 0 {
		c.loose, c.runs = 1024, 8
	}
	r := &sendRig{t: t, wire: &recordWire{}}
	wire := c.wire
	if wire == nil {
		wire = r.wire
	}
	r.dev = testDevice(t, model.Config{Profile: c.profile, Wire: wire, Script: c.script})
	var err error
	r.nic, err = openToSend(r.dev, wishes{queues: c.queues, rxRing: minRing, txRing: c.ring, mtu: 9000, blueflame: c.blueflame})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.dev.resume()
		require.NoError(t, r.nic.close())
		if !c.dirty {
			requireClean(t, r.dev)
		}
	})
	r.most = r.nic.params.frame
	r.dev.pause()
	r.q = r.nic.channels[0].tx
	r.mem, err = newFrameMemory(r.nic.mem, 200, c.loose, c.runs)
	require.NoError(t, err)
	r.q.home(r.mem.pool)
	return r
}

// openToSend opens a NIC with the private flags that it has when the user says
// nothing.
func openToSend(d *emulatedDevice, w wishes) (*nic, error) {
	return openNIC(context.Background(), d, d.virtual(), openOptions{wishes: w, cpus: w.queues,
		flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
}

// settle lets the device do all there is to do.
func (r *sendRig) settle() {
	for r.dev.m.Step() {
	}
}

// drain lets the device send and takes every completion.
func (r *sendRig) drain() {
	r.settle()
	for r.q.complete(napiBudget) > 0 {
	}
}

// place puts pieces into memory and joins them to one frame.
func (r *sendRig) place(o txOffload, pieces ...[]byte) (out []txFrame) {
	r.t.Helper()
	for i, b := range pieces {
		f, ok := r.mem.place(b)
		require.True(r.t, ok, "no memory for a frame")
		f.eseg = o.eseg()
		if i < len(pieces)-1 {
			f.form |= txMore
		}
		out = append(out, f)
	}
	return out
}

// requireHome asserts that nothing is outstanding and every page is home.
func (r *sendRig) requireHome() {
	r.t.Helper()
	r.drain()
	r.q.publish()
	require.Equal(r.t, r.q.mhead, r.q.mtail, "completions are missing")
	require.Equal(r.t, r.q.fhead, r.q.ftail, "frames were not given back")
	require.Empty(r.t, r.mem.away())
}

// requireHealthy asserts that the queue never saw an error.
func (r *sendRig) requireHealthy() {
	r.t.Helper()
	require.False(r.t, r.q.failed, "send queue failed: %v", r.q.cause)
	r.q.publish()
	require.Zero(r.t, r.q.stats.cqeErr.get(), "error completions: %v", r.q.cause)
	require.Zero(r.t, r.q.stats.recover.get())
	require.Zero(r.t, r.dev.m.Stats().SQ.Errors)
}

// numberedFrame is a frame of n bytes, all different from its neighbours'.
func numberedFrame(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint32(i)*7 + seed*31 + uint32(i)>>8)
	}
	copy(b, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return b
}

// mixRun is one run of the property test on one rig.
type mixRun struct {
	*sendRig
	m       *mixer
	ref     softNIC
	want    recordWire
	burst   []txFrame
	soft    []softFrame // of the burst, with copies of their bytes
	says    []txOffload
	size    []int // elements of each
	cutBuf  []int
	origin  []origin // of each frame that the reference has sent
	refused uint64
	posted  uint64
	meta    uint64 // words of all frames posted, added up
	stopped uint64
	bursts  uint64
}

// origin is what a wire frame was made from, for a person to read.
type origin struct {
	soft   softFrame
	says   txOffload
	pieces int
	first  uint32 // bytes in the first piece
	form   txForm
	limit  uint32
	inline uint32 // frames of up to so many bytes stand in a session
}

func (o origin) String() string {
	f := &o.soft
	return fmt.Sprintf("%d bytes in %d pieces (first %d), form %#x, outer %+v, inner %+v, csum %#x, tag %v, header %d, mss %d, swp %v, session limit %d, inline up to %d",
		len(f.b), o.pieces, o.first, o.form, f.outer, f.inner, f.csum, f.tag, f.header, f.mss, o.says.swp, o.limit, o.inline)
}

// unfit tells what the driver has to refuse, since the device or the port would:
// less than a header, more pieces than a WQE has room for, more bytes than the
// MTU allows with the tag.
func (r *mixRun) unfit(f *softFrame, pieces int) bool {
	longest := len(f.b)
	if f.header > 0 {
		longest = min(longest, f.header+f.mss)
	}
	if f.tag {
		longest += 4
	}
	return len(f.b) < 14 || pieces > maxPieces || f.header > maxInline || longest > r.most
}

// fill makes a burst of random frames. It ends early when memory is short.
func (r *mixRun) fill(frames int) {
	r.burst, r.soft, r.says, r.size = r.burst[:0], r.soft[:0], r.says[:0], r.size[:0]
	like := r.m.chance(2) // many frames alike, so that sessions grow
	f, o := r.m.next()
	for range frames {
		if !like || r.m.chance(24) {
			f, o = r.m.next()
		}
		start := len(r.burst)
		r.cutBuf = r.m.cuts(&f, r.cutBuf[:0])
		if !r.put(&f, o, start) {
			for _, e := range r.burst[start:] {
				r.mem.pool.returnAll([]pageRef{e.page})
			}
			r.burst = r.burst[:start]
			return
		}
		r.soft = append(r.soft, softFrame{b: append([]byte(nil), f.b...), outer: f.outer, inner: f.inner,
			csum: f.csum, tag: f.tag, tci: f.tci, header: f.header, mss: f.mss})
		r.says = append(r.says, o)
		r.size = append(r.size, len(r.burst)-start)
	}
}

// put places one frame's pieces.
func (r *mixRun) put(f *softFrame, o txOffload, start int) bool {
	b := f.b
	for _, n := range r.cutBuf {
		e, ok := r.mem.place(b[:n])
		if !ok {
			return false
		}
		b = b[n:]
		e.eseg = o.eseg()
		e.form |= txMore
		r.burst = append(r.burst, e)
	}
	r.burst[len(r.burst)-1].form &^= txMore
	head := &r.burst[start]
	head.form |= txHeader(uint32(f.header))
	if r.m.chance(10) {
		head.form |= txAlone
	}
	if r.m.chance(16) {
		r.mem.rest() // the next one has a page of its own
	}
	return true
}

// post sends the burst in as many calls as it takes, and lets the reference send
// the same.
func (r *mixRun) post() {
	rest, at, stuck := r.burst, 0, 0
	for len(rest) > 0 {
		was := r.q.tally.bursts
		took := r.q.send(rest)
		r.bursts += r.q.tally.bursts - was
		require.LessOrEqual(r.t, r.q.tally.bursts-was, uint64(1), "more than one doorbell for a call")
		rest = rest[took:]
		for took > 0 {
			require.GreaterOrEqual(r.t, took, r.size[at], "a frame was taken in part")
			head := &r.burst[len(r.burst)-len(rest)-took]
			took -= r.size[at]
			if r.unfit(&r.soft[at], r.size[at]) {
				r.refused++
			} else {
				r.ref.send(&r.soft[at])
				r.posted += r.soft[at].packets()
				r.meta += r.soft[at].packets() * uint64(r.says[at].metadata)
				for len(r.origin) < len(r.want.ends) {
					r.origin = append(r.origin, origin{r.soft[at], r.says[at], r.size[at], head.form.size(), head.form, r.q.limit, r.q.small.most})
				}
			}
			at, stuck = at+1, 0
		}
		if len(rest) > 0 {
			r.stopped++
			stuck++
			require.Less(r.t, stuck, 3, "an idle queue takes nothing")
			r.check()
			r.drain()
		}
	}
}

// check lets the device send what was posted and compares.
func (r *mixRun) check() {
	r.settle()
	if at, what := r.wire.firstDifference(&r.want); what != "" {
		from := "nothing"
		if at < len(r.origin) {
			from = r.origin[at].String()
		}
		r.t.Fatalf("%s\nmade from %s\nqueue failed: %v (%v)", what, from, r.q.failed, r.q.cause)
	}
	require.Equal(r.t, r.meta, r.dev.m.Stats().SQ.Metadata, "metadata of frames")
	r.wire.forget()
	r.want.forget()
	r.origin = r.origin[:0]
}

// run sends so many random frames.
func (r *mixRun) run(frames int) {
	mpw := r.q.limit > 0
	for done := 0; done < frames; {
		if mpw {
			r.q.sessions(!r.m.chance(4))
			if r.q.limit > 0 && r.m.chance(4) {
				r.q.limit = 1 + r.m.Uint32N(sessionLimit)
			}
			r.q.inlineUpTo([...]int{0, 0, 60, 20, 44, 45, 200, 900}[r.m.IntN(8)])
		}
		n := 1 + r.m.IntN(8)
		if r.m.chance(3) {
			n = 1 + r.m.IntN(256)
		}
		r.fill(n)
		if len(r.burst) == 0 {
			r.check()
			r.drain()
			r.mem.rest()
			continue
		}
		r.post()
		done += len(r.soft)
		if r.m.chance(3) {
			r.check()
		}
		if r.m.chance(3) {
			r.q.complete(1 + r.m.IntN(napiBudget))
		}
	}
	r.check()
	r.requireHome()
	r.requireHealthy()
	s := &r.q.stats
	require.Equal(r.t, r.refused, s.dropped.get(), "frames not fit to send are counted")
	require.Equal(r.t, r.posted, s.packets.get())
	require.Equal(r.t, r.stopped, s.stopped.get())
	require.Equal(r.t, r.bursts, s.doorbell.get())
	require.Equal(r.t, r.bursts, s.cqes.get(), "one completion a burst")
	require.Zero(r.t, r.ref.lost, "frames were lost at the port, uncounted")
	if mpw {
		require.NotZero(r.t, s.blocks.get())
		require.NotZero(r.t, s.inlined.get())
		require.Greater(r.t, s.shared.get(), s.blocks.get())
	}
}

// envNumber reads a number from the environment.
func envNumber(t testing.TB, name string, otherwise int) int {
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	require.NoError(t, err, name)
	return n
}

// nearWrap puts a fresh queue's counters shortly before they wrap.
func (r *sendRig) nearWrap() {
	q := r.q
	q.pi, q.ci, q.last = 0xffff0000, 0xffff0000, 0xffff0000
	q.fhead, q.ftail = 0xffffff80, 0xffffff80
	q.mhead, q.mtail = 0xfffffff0, 0xfffffff0
	q.flame.end = q.pi
}

// A form keeps what it is given apart, and what does not fit in its fields stays
// what has to be refused.
func TestFrameForm(t *testing.T) {
	for _, n := range []uint32{0, 14, 60, 9018, maxPiece, maxPiece + 1, 1 << 20, 1<<20 + 60, 1<<32 - 1} {
		for _, flags := range []txForm{0, txMore, txAlone, txMore | txAlone, txHeader(54), txHeader(54) | txMore} {
			f := txSize(n) | flags
			require.Equal(t, min(n, maxPiece+1), f.size())
			require.Equal(t, flags == 0, f.plain())
			require.Equal(t, flags&txMore, f&txMore)
			require.Equal(t, flags&txAlone, f&txAlone)
			require.Equal(t, flags>>headerShift, txForm(f.header()))
			require.Equal(t, flags != 0 || n < etherHeader || n > 9018, upTo(9018).refuses(uint32(f)))
		}
	}
	require.Greater(t, txHeader(1<<22+1).header(), uint32(maxInline), "long headers became short ones")
	require.EqualValues(t, maxInline, txHeader(maxInline).header())
	require.EqualValues(t, 32, reflect.TypeFor[txFrame]().Size())
}

// Random frames, offloads, pieces and bursts leave the device as they would have
// left a software NIC, in order, whatever the device, the ring and the sessions.
func TestSendLikeSoftwareNIC(t *testing.T) {
	packets, seed := envNumber(t, "MLX5D_TX_PACKETS", 300_000), envNumber(t, "MLX5D_TX_SEED", 1)
	profiles, rings := []string{"cx4", "cx5", "cx6dx", "cx5-vf"}, []int{64, 128, 512, 2048, 8192}
	each := max(1, packets/(len(profiles)*len(rings)))
	for i, profile := range profiles {
		for k, ring := range rings {
			t.Run(fmt.Sprintf("%s/%d", profile, ring), func(t *testing.T) {
				if profile == "cx5-vf" { // once with the loops in Go alone
					was := wideLoops
					wideLoops = false
					t.Cleanup(func() { wideLoops = was })
				}
				r := &mixRun{sendRig: newSendRig(t, rigConfig{profile: profile, ring: ring, loose: 1024, runs: 40})}
				require.Len(t, r.q.wqes, ring)
				require.Equal(t, profile != "cx4", r.q.limit > 0, "sessions are on where the device can")
				r.m = &mixer{Rand: rand.New(rand.NewPCG(uint64(seed), uint64(i*len(rings)+k))), swp: r.nic.caps.swp}
				r.ref = softNIC{wire: &r.want, longest: r.most}
				if k%2 == 1 {
					r.nearWrap()
				}
				r.run(each)
				require.Zero(t, r.dev.m.Stats().DMAFaults)
			})
		}
	}
}

// A frame that the device cuts counts as the packets that leave, and apart where
// it is a tunnel's, as mlx5e counts.
func TestLargeSendCounters(t *testing.T) {
	q := newTwin(false, 0).q
	q.accountSingle(txOffload{csum: csumL3 | csumL4, mss: 100}.eseg(), 54+250, 54)
	q.accountSingle(txOffload{csum: csumL3 | csumL3Inner | csumL4Inner, mss: 1000}.eseg(), 104+3000, 104)
	q.accountSingle(txOffload{}.eseg(), 60, 0)
	require.Equal(t, txTally{packets: 7, bytes: 304 + 2*54 + 3104 + 2*104 + 60, csum: 3, csumInner: 3, csumNone: 1,
		tsoPackets: 1, tsoBytes: 250, tsoInner: 1, tsoInnerBytes: 3000}, q.tally)
	q.publish()
	require.EqualValues(t, []uint64{1, 250, 1, 3000}, []uint64{q.stats.tso.get(), q.stats.tsoBytes.get(), q.stats.tsoIn.get(), q.stats.tsoInB.get()})
}

// Frames of ones that are sent at once by a fresh queue arrive as ones: the
// device reads them from where they lie.
func TestColdStarts(t *testing.T) {
	ones := bytes.Repeat([]byte{0xff}, 600)
	for range 20 {
		t.Run("", func(t *testing.T) {
			r := newSendRig(t, rigConfig{ring: 64, loose: 64, runs: 1})
			for range 50 { // a queue that was reset starts cold as well
				var burst []txFrame
				for k := range 10 {
					burst = append(burst, r.place(txOffload{}, ones[:60+k*60])...)
				}
				require.Equal(t, 10, r.q.send(burst))
				r.drain()
				require.Len(t, r.wire.ends, 10)
				for k, b := range r.wire.frames() {
					require.True(t, bytes.Equal(b, ones[:60+k*60]), "frame %d: %x", k, b)
				}
				r.wire.forget()
				r.recover()
			}
			r.requireHome()
		})
	}
}

// recover resets the queue as a channel does after an error.
func (r *sendRig) recover() {
	r.dev.resume()
	r.nic.recoverTX(r.q, "asked for by the test")
	r.dev.pause()
	select {
	case note := <-r.nic.notices:
		require.NotContains(r.t, note, "cannot")
	default:
	}
}

// The header that a device wants in the WQE is put together from as many pieces
// as it takes, and a frame may be no longer than it.
func TestInlineHeaderOverPieces(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		t.Run(profile, func(t *testing.T) {
			r := newSendRig(t, rigConfig{profile: profile})
			want := &recordWire{}
			for first := 1; first <= 40; first++ {
				for _, insert := range []bool{false, true} {
					f := softFrame{b: numberedFrame(100, uint32(first)), tag: insert, tci: 0x6123}
					ref := softNIC{wire: want, longest: r.most}
					ref.send(&f)
					r.q.send(r.place(txOffload{insert: insert, vlan: 0x6123}, f.b[:first], f.b[first:]))
				}
			}
			for size := 14; size <= 40; size++ {
				f := softFrame{b: numberedFrame(size, 1)}
				ref := softNIC{wire: want, longest: r.most}
				ref.send(&f)
				r.q.send(r.place(txOffload{}, f.b))
			}
			r.drain()
			_, what := r.wire.firstDifference(want)
			require.Empty(t, what)
			r.requireHome()
			r.requireHealthy()
			require.Zero(t, r.q.stats.dropped.get())
		})
	}
}

// A frame that does not fit into the last blocks of the ring, or into what a
// session may hold, is pointed at instead: it is not lost.
func TestInlineWithoutRoom(t *testing.T) {
	r := newSendRig(t, rigConfig{ring: minRing})
	r.q.inlineUpTo(700)
	for left := uint32(1); left <= 3; left++ {
		for _, size := range []int{20, 60, 61, 200, 700} {
			for r.q.mask+1-r.q.pi&r.q.mask != left {
				f := r.place(txOffload{}, numberedFrame(60, 0))
				f[0].form |= txAlone
				require.Equal(t, 1, r.q.send(f))
				r.drain()
			}
			r.wire.forget()
			want, burst := &recordWire{}, []txFrame(nil)
			for i := range 5 {
				b := numberedFrame(size, uint32(i))
				burst = append(burst, r.place(txOffload{}, b)...)
				want.Transmit(append(b, make([]byte, max(0, softPadded-size))...))
			}
			require.Equal(t, 5, r.q.send(burst))
			r.drain()
			_, what := r.wire.firstDifference(want)
			require.Empty(t, what, "%d bytes, %d blocks before the edge", size, left)
		}
	}
	r.requireHome()
	r.requireHealthy()
	require.Zero(t, r.q.stats.dropped.get())
}

// Devices that want IP or TCP headers in the WQE get them whole, also where a
// frame is nothing but headers.
func TestInlineModes(t *testing.T) {
	for mode := uint8(inlineL2); mode <= inlineTCP; mode++ {
		t.Run(strconv.Itoa(int(mode)), func(t *testing.T) {
			r := newSendRig(t, rigConfig{profile: "cx4", script: answerInline(mode)})
			require.Equal(t, mode, r.q.inline)
			m := &mixer{Rand: rand.New(rand.NewPCG(7, uint64(mode)))}
			want := &recordWire{}
			ref := softNIC{wire: want, longest: r.most}
			for i := range 400 {
				f := softFrame{}
				m.ipHeaders(&f, i%5 == 4, false)
				f.b = m.random(f.b, i%3*m.IntN(20))
				f.closeHeaders(len(f.b))
				f.tag = i%7 == 6
				cut := 1 + m.IntN(len(f.b)-1)
				if i%2 == 0 {
					cut = len(f.b)
				}
				pieces := [][]byte{f.b[:cut]}
				if cut < len(f.b) {
					pieces = append(pieces, f.b[cut:])
				}
				ref.send(&f)
				frame := r.place(txOffload{insert: f.tag}, pieces...)
				require.Equal(t, len(frame), r.q.send(frame), "no room for frame %d", i)
				r.drain()
				require.False(t, r.q.failed, "frame %d, %x in %d pieces (first %d): %v", i, f.b, len(pieces), cut, r.q.cause)
			}
			_, what := r.wire.firstDifference(want)
			require.Empty(t, what)
			r.requireHome()
			r.requireHealthy()
		})
	}
}

// answerInline makes a device's vport demand an inline mode.
func answerInline(mode uint8) *model.Script {
	return &model.Script{Answer: func(opcode uint16, out []byte) {
		if opcode == opQueryNicVportContext && len(out) > vportCtxOutCtx.off {
			vportMinInline.set(vportCtxOutCtx.in(out), uint32(mode))
		}
	}}
}

// A tag goes in at the right place, whatever the pieces and the inline header.
func TestTagWithPieces(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		r := newSendRig(t, rigConfig{profile: profile})
		b := numberedFrame(156+132, 3)
		require.Equal(t, 2, r.q.send(r.place(txOffload{insert: true, vlan: 0x2abc}, b[:156], b[156:])))
		r.drain()
		want := append(append(bytes.Clone(b[:12]), 0x81, 0x00, 0x2a, 0xbc), b[12:]...)
		require.Equal(t, [][]byte{want}, r.wire.frames(), profile)
		r.requireHome()
		r.requireHealthy()
	}
}

// A million frames sent one by one leave every page where it was.
func TestMillionSingleFrames(t *testing.T) {
	r := newSendRig(t, rigConfig{loose: 256, runs: 1})
	r.wire.quiet = true
	frame := make([]txFrame, 1)
	for i := range 1_000_000 {
		var ok bool
		if frame[0], ok = r.numbered(uint32(i)); !ok {
			t.Fatalf("frame %d: a page did not come back", i)
		}
		frame[0].form = frame[0].form&^txAlone | txForm(i>>8&1)*txAlone
		r.q.limit = uint32(i>>9&1) * sessionLimit
		if r.q.send(frame) != 1 {
			t.Fatalf("frame %d was not taken", i)
		}
		if i%64 == 63 {
			r.drain()
		}
	}
	r.requireHome()
	r.requireHealthy()
	require.EqualValues(t, 1_000_000, r.wire.count)
	require.EqualValues(t, 1_000_000, r.q.stats.packets.get())
}

// A ring's size does not change what stands in a WQE, and one that is too great
// is refused with the sizes that can be.
// (B18 does not apply: there is no NIC without a receive queue, -queues 0 is one for
// each CPU, and what only sends leaves its receive queues to themselves.)
func TestRingSizes(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		for ring := minRing; ring <= maxRing; ring *= 2 {
			d := testDevice(t, model.Config{Profile: profile})
			n, err := openToSend(d, wishes{queues: 1, rxRing: minRing, txRing: ring})
			require.NoError(t, err)
			q := n.channels[0].tx
			require.Len(t, q.wqes, ring)
			require.Equal(t, profile == "cx4", q.inline == inlineL2)
			require.Equal(t, profile != "cx4", q.limit == sessionLimit)
			require.NoError(t, n.close())
			requireClean(t, d)
		}
	}
	d := testDevice(t, model.Config{})
	for _, ring := range []int{63, 8193, 32768} {
		_, err := openToSend(d, wishes{queues: 1, txRing: ring})
		require.ErrorContains(t, err, fmt.Sprintf("-tx-ring %d", ring))
		require.ErrorContains(t, err, "64 to 8192")
		requireClean(t, d)
	}
}

// Nothing allocates on the way of a frame, whichever it takes. The device works
// inside the measured function too, so its share counts.
func TestSendAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name, profile string
		limit         uint32
		form          txForm
		o             txOffload
		pieces        []int
		inline        int
	}{
		{"plain", "cx5", 0, 0, txOffload{}, []int{60}, 0},
		{"session", "cx5", sessionLimit, 0, txOffload{csum: csumL3 | csumL4}, []int{60}, 0},
		{"session of inline frames", "cx5", sessionLimit, 0, txOffload{}, []int{60}, 60},
		{"session of mixed frames", "cx5", sessionLimit, 0, txOffload{}, []int{100}, 100},
		{"alone", "cx5", sessionLimit, txAlone, txOffload{}, []int{200}, 0},
		{"inline", "cx4", 0, 0, txOffload{}, []int{60}, 0},
		{"inline and tag", "cx4", 0, 0, txOffload{insert: true}, []int{60}, 0},
		{"pieces", "cx5", sessionLimit, 0, txOffload{}, []int{100, 200, 300}, 0},
		{"inline over pieces", "cx4", sessionLimit, 0, txOffload{}, []int{5, 200, 300}, 0},
		{"large send", "cx5", sessionLimit, txHeader(54), txOffload{mss: 100}, []int{300, 300}, 0},
		{"not fit", "cx5", sessionLimit, 0, txOffload{}, []int{10}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSendRig(t, rigConfig{profile: c.profile})
			r.wire.quiet, r.q.limit = true, c.limit
			r.q.inlineUpTo(c.inline)
			var burst []txFrame
			for i := range 16 {
				b := numberedFrame(1000, uint32(i))
				copy(b[12:], []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6})
				b[46] = 0x50
				start := len(burst)
				for k, n := range c.pieces {
					f, ok := r.mem.place(b[:n])
					require.True(t, ok)
					f.page, f.eseg, b = noPage, c.o.eseg(), b[n:]
					if k < len(c.pieces)-1 {
						f.form |= txMore
					}
					burst = append(burst, f)
				}
				burst[start].form |= c.form
			}
			full := 0
			allocs := testing.AllocsPerRun(200, func() {
				if r.q.send(burst) != len(burst) {
					full++
				}
				r.drain()
			})
			require.Zero(t, allocs)
			require.Zero(t, full)
			r.requireHealthy()
			if c.name != "not fit" {
				require.Zero(t, r.q.stats.dropped.get())
				require.Equal(t, r.wire.count, r.q.stats.packets.get())
				require.GreaterOrEqual(t, r.wire.count, uint64(201*16))
			}
		})
	}
}
