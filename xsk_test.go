package main

// xsk_test.go owns the proof of the socket's driver side in one process: rings,
// frames, lengths, wake-ups, lies. Other processes are xskserve_test.go's.

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// xskConfig says what an xskRig is made of; zero values are 512 frames of 2048
// bytes and rings of 512.
type xskConfig struct {
	profile string
	w       wishes
	umem    umemConfig
	ring    int
	wakeups bool
	multi   bool
	wire    model.Wire
}

// xskRig is a NIC whose device works only when told to, with a socket on its only
// channel to which all traffic goes, and the application's side of that.
type xskRig struct {
	t    testing.TB
	dev  *emulatedDevice
	nic  *nic
	c    *channel
	sock *xskSocket
	app  *xskApp
	umem *umem
	mem  sharedMemory
	gate gatedWire // opened when the application has given frames: nobody waits for a queue without
}

func newXSKRig(t testing.TB, c xskConfig) *xskRig {
	t.Helper()
	r := &xskRig{t: t}
	cfg := model.Config{Profile: c.profile}
	if c.wire != nil {
		r.gate.Wire = c.wire
		cfg.Wire = &r.gate
	}
	r.dev = testDevice(t, cfg)
	w := c.w
	w.queues, w.promisc, w.xskSpread = 1, true, true
	if w.rxRing == 0 {
		w.rxRing = 256
	}
	var err error
	r.nic, err = openToSend(r.dev, w)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.nic.close())
		requireClean(t, r.dev)
	})
	r.c = r.nic.channels[0]
	if c.umem.frame == 0 {
		c.umem.frame = 2048
	}
	if c.umem.frames == 0 {
		c.umem.frames = 512
	}
	if c.ring == 0 {
		c.ring = 512
	}
	r.attach(c)
	r.dev.pause()
	t.Cleanup(func() {
		r.dev.resume()
		r.detach()
	})
	return r
}

// attach opens a socket on the rig's channel.
func (r *xskRig) attach(c xskConfig) {
	var err error
	r.mem, err = newSharedMemory("umem", c.umem.bytes())
	require.NoError(r.t, err)
	r.umem, err = newUMEM(r.nic.mem, r.mem.b, c.umem)
	require.NoError(r.t, err)
	places, size, err := layoutRings([xskRings]int{c.ring, c.ring, c.ring, c.ring})
	require.NoError(r.t, err)
	b := make([]byte, size+pageSize)
	r.sock = newSocket(r.umem, b, places)
	r.sock.wakeups, r.sock.multi = c.wakeups, c.multi
	r.app = newXSKApp(r.mem.b, c.umem.frame, b, places)
	require.NoError(r.t, r.c.attachXSK(r.sock))
}

// detach ends it and looks at what is left.
func (r *xskRig) detach() {
	require.NoError(r.t, r.c.detachXSK())
	require.NoError(r.t, r.umem.close(r.nic.mem))
	require.NoError(r.t, r.mem.close())
	require.Zero(r.t, r.nic.mem.guestMemory())
}

// turn lets the device and the channel work until neither has anything to do.
func (r *xskRig) turn() {
	r.c.poll(napiBudget) // posts what the application has filled
	r.gate.open.Store(true)
	for again := true; again; {
		again = r.dev.m.Step()
		for r.c.poll(napiBudget) > 0 {
			again = true
		}
	}
	r.c.publish()
}

// Frames come up to the client as they were sent, in frames of its own; it sends
// them back from where they are.
func TestXSKReceivesAndSends(t *testing.T) {
	for _, profile := range model.Profiles() {
		for _, w := range []wishes{{}, {txInline: 64}} {
			if profile == "cx4" && w.txInline > 0 {
				continue // refused: it has no multi-packet send WQEs
			}
			sent := &recordWire{}
			in := &listWire{}
			for i := range 1000 {
				in.frames = append(in.frames, numberedUDP(uint64(i), 60+i%1400))
			}
			r := newXSKRig(t, xskConfig{profile: profile, wire: &twoWires{in, sent}, w: w, umem: umemConfig{headroom: 64}})
			r.c.setHandler(dropWork{})
			r.app.giveFrames(512)
			got, rounds := 0, 0
			for got < len(in.frames) {
				rounds++
				require.Less(t, rounds, 50)
				r.turn()
				r.app.refill()
				for n, _ := r.app.rx.ready(1); n > 0; n, _ = r.app.rx.ready(1) {
					d := r.app.rx.descs[r.app.rx.at&r.app.rx.mask]
					require.EqualValues(t, 256+64, d.addr%2048, "data stands behind XDP's and the UMEM's headroom")
					require.True(t, bytes.Equal(in.frames[got], r.mem.b[d.addr:][:d.len]), "frame %d", got)
					require.Equal(t, 1, r.app.forward(1, false))
					got++
				}
			}
			r.turn()
			require.Len(t, sent.ends, len(in.frames))
			for i, b := range sent.frames() {
				require.Equal(t, in.frames[i], b, "frame %d", i)
			}
			s := &r.c.xsk.stats
			require.EqualValues(t, 1000, s.packets.get())
			require.EqualValues(t, 1000, s.redirect.get())
			require.EqualValues(t, 1000, r.c.xsk.tx.stats.packets.get())
			require.Zero(t, s.badDescs.get()+s.badFill.get()+s.ringFull.get()+s.wqeErr.get())
		}
	}
}

// twoWires receives from one and sends on another.
type twoWires struct {
	model.Wire
	out *recordWire
}

func (w *twoWires) Transmit(b []byte) { w.out.Transmit(b) }

// D2: what is wrong with a UMEM or a ring is said in words of its own.
func TestXSKWrongSizesSayWhatIsWrong(t *testing.T) {
	mem := newArena(testDevice(t, model.Config{}))
	defer func() { require.NoError(t, mem.close()) }()
	area, err := newSharedMemory("umem", 16*2048)
	require.NoError(t, err)
	defer func() { require.NoError(t, area.close()) }()
	good := umemConfig{frame: 2048, frames: 16}
	seen := map[string]bool{}
	for _, c := range []struct {
		area []byte
		c    umemConfig
		says string
	}{
		{area.b[8:], good, "misaligned"},
		{nil, good, "size 0"},
		{area.b, umemConfig{frame: 2048}, "holds nothing"},
		{area.b, umemConfig{frame: 1024, frames: 16}, "2048 or 4096"},
		{area.b, umemConfig{frame: 2048, frames: 15}, "even number"},
		{area.b, umemConfig{frame: 2048, frames: 8}, "16384"},
		{area.b, umemConfig{frame: 2048, frames: 16, headroom: 1800}, "headroom"},
		{area.b, umemConfig{frame: 2048, frames: -16}, "-16"},
	} {
		_, err := newUMEM(mem, c.area, c.c)
		require.ErrorContains(t, err, c.says)
		require.ErrorAs(t, err, new(wishError))
		require.False(t, seen[err.Error()], "said before: %v", err)
		seen[err.Error()] = true
	}
	for i, name := range xskRingNames {
		entries := [xskRings]int{64, 64, 64, 64}
		entries[i] = 1000
		_, _, err := layoutRings(entries)
		require.ErrorContains(t, err, name+" ring of 1000 entries: not a power of two")
		entries[i] = 0
		_, _, err = layoutRings(entries)
		require.ErrorContains(t, err, name+" ring of size 0")
		entries[i] = 1 << 20
		_, _, err = layoutRings(entries)
		require.Error(t, err)
	}
	u, err := newUMEM(mem, area.b, good)
	require.NoError(t, err)
	require.NoError(t, u.close(mem))
	require.Zero(t, mem.guestMemory())
}

// The words of rings lie apart, inside the memory, and nothing overlaps.
func TestXSKRingLayout(t *testing.T) {
	for _, n := range []int{1, 2, 64, 4096, maxXSKRing} {
		places, size, err := layoutRings([xskRings]int{n, 2, n, 1})
		require.NoError(t, err)
		last := uint64(0)
		for i, p := range places {
			require.GreaterOrEqual(t, p.producer, last)
			require.GreaterOrEqual(t, p.consumer, p.producer+64)
			require.GreaterOrEqual(t, p.flags, p.consumer+64)
			require.GreaterOrEqual(t, p.desc, p.flags+64)
			last = p.desc + uint64(p.entries)*uint64(entrySize(i))
		}
		require.LessOrEqual(t, last, uint64(size))
		require.Zero(t, size%pageSize)
	}
}

// Indices wrap at 2^32 like AF_XDP's, on both sides.
func TestXSKIndicesWrap(t *testing.T) {
	places, size, err := layoutRings([xskRings]int{64, 64, 64, 64})
	require.NoError(t, err)
	b := make([]byte, size)
	give, take := viewRing(b, ringFill, places[ringFill]), viewRing(b, ringFill, places[ringFill])
	start := ^uint32(0) - 40
	give.at, give.seen, take.at, take.seen = start, start, start, start
	*give.producer, *give.consumer = start, start
	next, got := uint64(0), uint64(0)
	for got < 1000 {
		room, ok := give.room(give.at, 24)
		require.True(t, ok)
		k := min(room, 24)
		for i := range k {
			give.addrs[(give.at+i)&give.mask] = next
			next++
		}
		give.gave(k)
		n, ok := take.ready(64)
		require.True(t, ok)
		for i := range n {
			require.Equal(t, got, take.addrs[(take.at+i)&take.mask])
			got++
		}
		take.took(n)
	}
}

// D6: with an empty fill ring nothing comes; the flag says that the driver is to be
// woken, and after refill and wake-up packets come again.
func TestXSKEmptyFillRing(t *testing.T) {
	in := &listWire{}
	for i := range 300 {
		in.frames = append(in.frames, numberedUDP(uint64(i), 100))
	}
	r := newXSKRig(t, xskConfig{wire: in, wakeups: true})
	r.c.setHandler(dropWork{})
	r.c.poll(napiBudget)
	require.False(t, r.c.xsk.sleep())
	require.True(t, r.app.fill.wants(), "the driver sleeps with nothing posted")
	require.True(t, r.app.tx.wants())
	require.Zero(t, r.sock.rx.at)
	r.app.giveFrames(100)
	require.True(t, r.c.xsk.sleep(), "what came before the sleep is seen")
	r.turn()
	require.False(t, r.app.fill.wants(), "the driver is awake")
	require.EqualValues(t, 100, r.sock.rx.at)
	require.Equal(t, r.c.xsk.recv.cq.ci, r.c.xsk.recv.cq.told, "that all was taken is told without new buffers, also by a loop that never sleeps")
	require.False(t, r.c.xsk.sleep())
	require.True(t, r.app.fill.wants())
	require.Equal(t, 64, r.app.drop(64))
	r.turn() // the wake-up
	require.EqualValues(t, 164, r.sock.rx.at)
	for range 10 {
		r.app.drop(64)
		r.app.giveFrames(200)
		r.turn()
	}
	require.EqualValues(t, 300, r.sock.rx.at)
	require.NotZero(t, r.c.xsk.stats.allocErr.get())
}

// D9 and the canaries: without multi-buffer a frame that is longer than what a UMEM
// frame holds is dropped and counted, and no byte beside it changes; with it, it
// comes as a chain whose last entry alone does not say that it goes on.
func TestXSKLongFrames(t *testing.T) {
	long := numberedUDP(1, 9000)
	for _, c := range []struct {
		mtu, frame int
		multi      bool
		pieces     int
	}{{1500, 2048, false, 0}, {1500, 4096, false, 0}, {9000, 4096, true, 3}, {7000, 2048, true, 0}} {
		wire := &listWire{frames: [][]byte{numberedUDP(0, 100), long, numberedUDP(2, 1500)}}
		r := newXSKRig(t, xskConfig{wire: wire, w: wishes{mtu: c.mtu}, umem: umemConfig{frame: c.frame, frames: 512}, multi: c.multi})
		r.c.setHandler(dropWork{})
		r.dev.resume()
		require.NoError(t, r.nic.port.setMTU(9200), "others on the port may want longer frames")
		r.dev.pause()
		for i := range r.mem.b {
			r.mem.b[i] = 0xa5
		}
		r.app.giveFrames(512)
		r.turn()
		s := &r.c.xsk.stats
		if c.pieces == 0 {
			require.EqualValues(t, 2, r.sock.rx.at)
			require.EqualValues(t, 1, s.oversize.get()+s.ringFull.get())
			require.EqualValues(t, 1, s.oversize.get())
		} else {
			require.EqualValues(t, 2+c.pieces, r.sock.rx.at)
			var got []byte
			for i := range c.pieces {
				d := r.app.rx.descs[1+i]
				require.Equal(t, i < c.pieces-1, d.options&xdpContinue != 0)
				got = append(got, r.mem.b[d.addr:][:d.len]...)
			}
			require.Equal(t, long, got)
			require.EqualValues(t, 3, s.redirect.get())
		}
		r.requireCanaries(0xa5)
		for r.app.drop(64) > 0 {
		}
		r.turn()
	}
}

// requireCanaries asserts that the device has written only behind the headroom of
// frames, and there no more than received entries say.
func (r *xskRig) requireCanaries(canary byte) {
	r.t.Helper()
	written := make([]bool, len(r.mem.b))
	for i := range r.sock.rx.at {
		d := r.app.rx.descs[i]
		for at := d.addr; at < d.addr+uint64(d.len); at++ {
			written[at] = true
		}
	}
	for i, b := range r.mem.b {
		if !written[i] && b != canary {
			require.Fail(r.t, "a byte was written that belongs to no packet", "offset %d of frame %d", i%int(r.umem.frame), i/int(r.umem.frame))
		}
	}
}

// D9, D12: what cannot be is refused before anything is touched, with what can.
func TestXSKRefusesTooLargeMTU(t *testing.T) {
	for _, mtu := range []int{9000, 1500} {
		r := newXSKRig(t, xskConfig{w: wishes{mtu: mtu}, umem: umemConfig{frame: 4096, frames: 64}, multi: mtu > 1500, ring: 64})
		r.dev.resume()
		other, err := newSharedMemory("umem", 64*2048)
		require.NoError(t, err)
		for _, c := range []struct {
			mtu, headroom int
			multi         bool
			says          string // at its end
		}{
			{9000, 0, false, "it can be up to 1774 (-mtu), or frames of 4096 bytes (-xsk-frame), or multi-buffer takes several frames a packet (-xsk-multi-buffer)"},
			{9000, 100, false, "up to 1674 (-mtu), more with less headroom (-xsk-headroom), or frames of 4096 bytes (-xsk-frame), or multi-buffer takes several frames a packet (-xsk-multi-buffer)"},
			{9000, 0, true, "up to 7150 (-mtu)"},
			{1500, 500, false, "up to 1274 (-mtu), more with less headroom (-xsk-headroom), or frames of 4096 bytes (-xsk-frame)"},
			{1500, 500, true, "up to 1274 (-mtu)"},
		} {
			if c.mtu != mtu {
				continue
			}
			u, err := newUMEM(r.nic.mem, other.b, umemConfig{frame: 2048, frames: 64, headroom: c.headroom})
			require.NoError(t, err)
			err = r.c.checkXSK(u, c.multi)
			require.ErrorAs(t, err, new(wishError))
			require.True(t, strings.HasSuffix(err.Error(), c.says), err.Error())
			require.NoError(t, u.close(r.nic.mem))
		}
		require.ErrorContains(t, r.c.attachXSK(r.sock), "has a socket already")
		require.NoError(t, other.close())
		r.dev.pause()
	}
}

// Whatever stands in a client's rings, the driver goes on, sends and receives
// nothing outside the UMEM, and the device sees no bad address.
func TestXSKHostileEntries(t *testing.T) {
	for seed := range uint64(20) {
		in, out := &listWire{}, &recordWire{}
		for i := range 400 {
			in.frames = append(in.frames, numberedUDP(uint64(i), 60+i))
		}
		r := newXSKRig(t, xskConfig{wire: &twoWires{in, out}, umem: umemConfig{frame: 2048, frames: 64}, ring: 64, multi: seed%2 == 0, w: wishes{mtu: []int{3000, 1400}[index(seed%4 != 0)]}})
		require.Equal(t, seed%4 == 0, r.c.xsk.recv.pieces > 1)
		r.c.setHandler(dropWork{})
		m := rand.New(rand.NewPCG(seed, 5))
		odd := func() uint64 {
			switch m.IntN(5) {
			case 0:
				return m.Uint64()
			case 1:
				return uint64(len(r.mem.b)) + uint64(m.IntN(5000))
			case 2:
				return uint64(len(r.mem.b) - m.IntN(5000))
			}
			return uint64(m.IntN(len(r.mem.b)))
		}
		for range 200 {
			for range m.IntN(20) {
				r.app.fill.addrs[r.app.fill.at&63] = odd()
				if room, _ := r.app.fill.room(r.app.fill.at, 1); room > 0 {
					r.app.fill.gave(1)
				}
			}
			for range m.IntN(20) {
				r.app.tx.descs[r.app.tx.at&63] = xdpDesc{addr: odd(), len: uint32(m.IntN(3000)) * uint32(1+m.IntN(2)*m.IntN(1<<20)), options: uint32(m.IntN(4)) * uint32(m.IntN(2))}
				if room, _ := r.app.tx.room(r.app.tx.at, 1); room > 0 {
					r.app.tx.gave(1)
				}
			}
			r.turn()
			n, _ := r.app.rx.ready(64)
			r.app.rx.took(min(n, uint32(m.IntN(20))))
			n, _ = r.app.comp.ready(64)
			r.app.comp.took(min(n, uint32(m.IntN(20))))
		}
		require.False(t, r.sock.broken, "entries are skipped, not punished")
		require.Zero(t, r.dev.m.Stats().DMAFaults, r.dev.m.Stats().LastFault)
		require.NotZero(t, r.c.xsk.stats.badFill.get())
		require.NotZero(t, r.c.xsk.stats.badDescs.get())
		require.Zero(t, r.c.xsk.tx.stats.cqeErr.get()+r.c.xsk.stats.wqeErr.get())
		for i, b := range out.frames() {
			require.LessOrEqual(t, len(b), r.nic.params.frame, "frame %d", i)
		}
	}
}

// An index that cannot be ends the socket, with a reason, and only that.
func TestXSKHostileIndices(t *testing.T) {
	for _, c := range []struct {
		spoil func(r *xskRig)
		says  string
	}{
		{func(r *xskRig) { *r.app.fill.producer = r.app.fill.at + 5000 }, "fill ring: the producer"},
		{func(r *xskRig) { *r.app.fill.producer = r.app.fill.at - 100 }, "fill ring: the producer"},
		{func(r *xskRig) { *r.app.tx.producer = 1 << 31 }, "TX ring: the producer"},
		{func(r *xskRig) { *r.app.rx.consumer = *r.app.rx.producer + 5000 }, "RX ring: the consumer"},
		{func(r *xskRig) { r.app.send(64, 60); *r.app.comp.consumer = r.app.comp.at + 5000 }, "completion ring: the consumer"},
	} {
		in := &listWire{}
		for i := range 2000 {
			in.frames = append(in.frames, numberedUDP(uint64(i), 60))
		}
		r := newXSKRig(t, xskConfig{wire: in, umem: umemConfig{frame: 2048, frames: 512}, ring: 512})
		r.c.setHandler(dropWork{})
		r.app.giveFrames(400)
		for range 3 {
			r.dev.m.Step()
			r.c.poll(64)
		}
		for range 20 {
			c.spoil(r)
			r.turn()
			r.app.drop(64)
		}
		require.True(t, r.sock.broken, c.says)
		require.Contains(t, <-r.sock.fault, c.says)
		require.Zero(t, r.dev.m.Stats().DMAFaults)
	}
}

// byNumber answers by the number of a packet: abort, drop, pass, send back, to the
// socket, in turn.
type byNumber struct{}

func (byNumber) run(frames []xdpFrame, verdicts []xdpVerdict) {
	for i := range frames {
		b := frames[i].data()
		verdicts[i] = xdpVerdict(binary.BigEndian.Uint64(b[numberAt:]) % 5)
		if verdicts[i] == xdpTX {
			frames[i].adjustHead(-4)
			copy(frames[i].data(), b[:12])
		}
	}
}

// passWork notes what the handler is shown.
type passWork struct{ got [][]byte }

func (w *passWork) handle(_ *channel, packets []packet) {
	for i := range packets {
		w.got = append(w.got, bytes.Clone(packets[i].b))
	}
}
func (w *passWork) turn(*channel) int { return 0 }
func (w *passWork) idle(*channel)     {}

// A program sees the packets of a socket's queue in their frames; each verdict is
// carried out, answers leave from the frames, and every frame comes home.
func TestXSKWithProgram(t *testing.T) {
	in, out := &listWire{}, &recordWire{}
	for i := range 1000 {
		in.frames = append(in.frames, numberedUDP(uint64(i), 60+i%1400))
	}
	r := newXSKRig(t, xskConfig{wire: &twoWires{in, out}, w: wishes{xdp: true}, umem: umemConfig{frame: 2048, frames: 512}})
	w := &passWork{}
	r.c.setHandler(w)
	r.dev.resume()
	require.NoError(t, r.nic.attach(func(*channel) (xdpProgram, error) { return byNumber{}, nil }))
	r.dev.pause()
	r.app.giveFrames(400)
	for i := 4; i < 1000; {
		r.turn()
		n, _ := r.app.rx.ready(64)
		for k := range n {
			d := r.app.rx.descs[(r.app.rx.at+k)&r.app.rx.mask]
			require.Equal(t, in.frames[i], r.mem.b[d.addr:][:d.len])
			i += 5
		}
		require.EqualValues(t, n, r.app.drop(int(n)))
	}
	r.turn()
	r.turn()
	s := &r.c.xsk.stats
	for _, c := range []*counter{&s.abort, &s.drop, &s.redirect} {
		require.EqualValues(t, 200, c.get())
	}
	require.EqualValues(t, 1000, s.packets.get())
	require.Len(t, w.got, 200)
	require.Len(t, out.ends, 200)
	for i := range 200 {
		require.Equal(t, in.frames[5*i+2], w.got[i])
		require.Equal(t, in.frames[5*i+3][12:], out.frame(i)[16:], "answer %d", i)
	}
	require.Zero(t, r.c.xsk.out)
	recv := &r.c.xsk.recv
	have, _ := r.sock.fill.ready(1)
	require.EqualValues(t, 400, recv.posted-recv.head+uint32(recv.nfree)+have+*r.app.fill.producer-r.sock.fill.seen, "every frame is with the queue or in the fill ring")
	requirePagesHome(t, r.c.rx)
}

// A redirect from the regular queue copies into a frame of the client's.
func TestXSKTakesRedirects(t *testing.T) {
	r := newXSKRig(t, xskConfig{})
	r.c.setHandler(dropWork{})
	r.app.giveFrames(10)
	frame := numberedUDP(7, 500)
	one := []xdpFrame{{mem: append(make([]byte, 256), frame...), start: 256, end: 256 + 500}}
	sink := xskSink{r.c.xsk}
	var tally xdpTally
	for range 8 {
		sink.redirect(nil, one, []uint8{0}, &tally)
	}
	require.Equal(t, xdpTally{redirect: 8}, tally)
	n, _ := r.app.rx.ready(10)
	require.EqualValues(t, 8, n)
	for i := range n {
		d := r.app.rx.descs[i]
		require.Equal(t, frame, r.mem.b[d.addr:][:d.len])
	}
	sink.redirect(nil, []xdpFrame{one[0], one[0], one[0]}, []uint8{0, 1, 2}, &tally)
	require.Equal(t, xdpTally{redirect: 10, lost: 1}, tally, "as many as there are frames")
	sink.redirect(nil, []xdpFrame{one[0], one[0]}, []uint8{0, 1}, &tally)
	r.c.xsk.sock.broken = true
	sink.redirect(nil, []xdpFrame{one[0], one[0]}, []uint8{0, 1}, &tally)
	require.Equal(t, xdpTally{redirect: 10, lost: 3, nobody: 2}, tally, "a socket that nobody serves is told apart")
	r.c.xsk.sock.broken = false
}

// What is asked for of a UMEM's memory lies in it as a whole, or is nothing.
func TestXSKBytesStayInTheUMEM(t *testing.T) {
	r := newXSKRig(t, xskConfig{})
	q, m := r.c.xsk, r.umem.mem
	for _, c := range []struct {
		ref  pageRef
		off  int
		n    uint32
		want bool
	}{
		{q.id, 0, 1, true}, {q.id, len(m.b) - 10, 10, true}, {q.id, len(m.b) - 10, 11, false}, {q.id, len(m.b), 0, false},
		{q.id, -1, 1, false}, {q.id, 0, 1 << 31, false}, {q.id ^ 1<<24, 0, 1, false},
	} {
		b := q.bytesOf(c.ref, m.iova+uint64(c.off), c.n)
		require.Equal(t, c.want, b != nil, "%+v", c)
		require.True(t, b == nil || len(b) == int(c.n), "%+v", c)
	}
}
