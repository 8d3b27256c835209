package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// checkPosts makes the test a debug build: every post is checked against the sharing
// rule. Call it before the NIC is opened.
func checkPosts(t testing.TB) {
	debugPosts = "on"
	t.Cleanup(func() { debugPosts = "" })
}

// numberedWire sends frames that say who they are: IPv4 and UDP, with a number
// behind the headers and then bytes that follow from it.
type numberedWire struct {
	mu       sync.Mutex
	rand     *rand.Rand
	left     int
	smallest int
	largest  int
	lossless bool
	shut     bool // nothing comes yet; changed only while the device is paused
	flows    int
	control  int // one frame in so many is control traffic; 0 is none
	next     uint64
	frame    []byte
	ready    bool
}

const (
	numberAt    = etherHeader + 20 + 8
	controlFlow = 0xffff // of frames to an address that no bridge forwards
)

func newNumberedWire(seed uint64, n, smallest, largest int) *numberedWire {
	return &numberedWire{rand: rand.New(rand.NewPCG(seed, 1)), left: n, smallest: max(smallest, numberAt+8), largest: largest, lossless: true,
		flows: 64, frame: make([]byte, largest)}
}

// fillNumbered writes the frame with this number.
func fillNumbered(b []byte, number uint64, flow uint16) {
	clear(b[:numberAt])
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45})
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-etherHeader))
	if flow == controlFlow {
		copy(b, []byte{0x01, 0x80, 0xc2, 0, 0, 0x0e})
	}
	b[22], b[23] = 64, ipUDP
	copy(b[26:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(b[34:], flow)
	binary.BigEndian.PutUint16(b[36:], 7)
	binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
	binary.BigEndian.PutUint64(b[numberAt:], number)
	x := number*0x9e3779b97f4a7c15 + 1
	for i := numberAt + 8; i < len(b); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

func (w *numberedWire) Peek(time.Time) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut || w.left == 0 {
		return nil
	}
	if !w.ready {
		size := w.smallest + w.rand.IntN(w.largest-w.smallest+1)
		if w.rand.IntN(3) == 0 {
			size = w.smallest
		}
		w.frame = w.frame[:size]
		flow := uint16(w.rand.IntN(w.flows))
		if w.control > 0 && w.rand.IntN(w.control) == 0 {
			flow = controlFlow
		}
		fillNumbered(w.frame, w.next, flow)
		w.ready = true
	}
	return w.frame
}

func (w *numberedWire) Take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left--
	w.next++
	w.ready = false
}

func (w *numberedWire) Lossless() bool  { return w.lossless }
func (w *numberedWire) Transmit([]byte) {}
func (w *numberedWire) LinkUp() bool    { return true }
func (w *numberedWire) Close() error    { return nil }
func (w *numberedWire) Done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left == 0
}

// heldFrame is a frame that a consumer keeps.
type heldFrame struct {
	pieces [maxFrags][]byte
	refs   [maxFrags]pageRef
	n      int
	size   uint32
}

// checkWork checks every frame, some of them later and elsewhere.
type checkWork struct {
	t       testing.TB
	rand    *rand.Rand
	seen    []atomic.Uint32 // by number
	last    []uint64        // number seen last, plus 1: of each flow, or where it has one element of all
	scratch []byte
	want    []byte
	later   chan heldFrame
	share   int // one in so many is held; 0 is none
	got     atomic.Uint64
	bad     atomic.Uint64
}

func (w *checkWork) check(b []byte, want []byte) (uint64, bool) {
	if len(b) < numberAt+8 {
		return 0, false
	}
	number := binary.BigEndian.Uint64(b[numberAt:])
	if number >= uint64(len(w.seen)) {
		return 0, false
	}
	want = want[:len(b)]
	fillNumbered(want, number, binary.BigEndian.Uint16(b[34:]))
	return number, string(want) == string(b)
}

func (w *checkWork) handle(c *channel, packets []packet) {
	for i := range packets {
		p := &packets[i]
		b := c.rx.contiguous(p, w.scratch)
		number, ok := w.check(b, w.want)
		last := &w.last[0]
		if ok && len(w.last) > 1 {
			last = &w.last[be16(b, 34)]
		}
		if !ok || number < *last || len(b) != int(p.size) || p.ok() != 7 {
			w.bad.Add(1)
			continue
		}
		*last = number + 1
		w.seen[number].Add(1)
		w.got.Add(1)
		if w.share > 0 && w.rand.IntN(w.share) == 0 {
			h := heldFrame{n: int(p.frags), size: p.size}
			c.rx.hold(h.refs[:0], p)
			for f := range h.n {
				h.pieces[f] = c.rx.fragment(p, uint8(f))
			}
			w.later <- h
		}
	}
}

func (w *checkWork) turn(*channel) int { return 0 }
func (w *checkWork) idle(*channel)     {}

// consume looks again at frames that were held, after a while, and gives them
// back.
func (w *checkWork) consume(pool *pagePool, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	scratch, want := make([]byte, 0, 1<<14), make([]byte, 1<<14)
	var kept []heldFrame
	end := func(h heldFrame) {
		scratch = scratch[:0]
		for _, b := range h.pieces[:h.n] {
			scratch = append(scratch, b...)
		}
		if _, ok := w.check(scratch, want); !ok || len(scratch) != int(h.size) {
			w.bad.Add(1)
		}
		for _, ref := range h.refs[:h.n] {
			pool.release(ref)
		}
	}
	for h := range w.later {
		if kept = append(kept, h); len(kept) < 20 {
			continue
		}
		i := r.IntN(len(kept))
		end(kept[i])
		kept[i] = kept[len(kept)-1]
		kept = kept[:len(kept)-1]
	}
	for _, h := range kept {
		end(h)
	}
}

// requirePagesHome asserts that a queue's pages are either free or in its ring,
// each once, and that nobody has a part in any.
func requirePagesHome(t testing.TB, q *recvQueue) {
	t.Helper()
	held := q.held
	if q.ring != nil {
		held = q.ring.held
	}
	owner := make([]int, len(q.pool.own))
	inRing := 0
	for _, n := range held {
		if n == noHold {
			continue
		}
		inRing++
		owner[n]++
		require.False(t, q.pool.busy(n), "page %d is still lent", n)
	}
	home := q.pool.home()
	require.Equal(t, len(q.pool.own), home+inRing, "pages lost")
	for _, n := range q.pool.cache[:q.pool.free] {
		owner[n]++
	}
	for n := range owner[:q.pool.fresh] {
		require.Equal(t, 1, owner[n], "owners of page %d", n)
	}
}

// rxCase is one set-up of the property test.
type rxCase struct {
	profile string
	w       wishes
	above   int // sizes go beyond the MTU by so much
	share   int // one packet in so many is held by another goroutine
	queues  int
	lossy   bool // the wire waits for nobody
	checked bool // every post is checked
}

func (c rxCase) name() string {
	kind := "legacy"
	if c.w.rxStriding {
		kind = "striding"
	}
	if c.w.rxCompress {
		kind += fmt.Sprintf("-compressed%d", c.w.rxMini)
	}
	if c.lossy {
		kind += "/lossy"
	}
	if c.checked {
		kind += "/checked"
	}
	return fmt.Sprintf("%s/%s/mtu%d/ring%d/hold%d", c.profile, kind, c.w.mtu, c.w.rxRing, c.share)
}

// rxCases are all; half of them run as users do, without the check, and so that over
// the profiles each kind of queue meets each size both ways.
func rxCases() (out []rxCase) {
	for p, profile := range model.Profiles() {
		for k, kind := range []wishes{{}, {rxStriding: true}, {rxCompress: true}, {rxCompress: true, rxMini: 1 + miniChecksum},
			{rxStriding: true, rxCompress: true}, {rxStriding: true, rxCompress: true, rxMini: 1 + miniChecksum}, {rxStriding: true, rxCompress: true, rxMini: 1 + miniHash}} {
			for i, size := range []struct{ mtu, ring, above, share int }{{1500, 64, 0, 150}, {3500, 64, 0, 0}, {9000, 128, 300, 3}, {300, 64, 200, 20}, {1500, 1024, 40, 100}, {1500, 64, 40, 5}} {
				w := kind
				w.mtu, w.rxRing, w.promisc = size.mtu, size.ring, true
				out = append(out, rxCase{profile, w, size.above, size.share, 1 + len(out)%2, i == 5, (p+k+i)%2 == 0})
			}
		}
	}
	return out
}

// rxPackets is how many packets the property test sends in all.
func rxPackets(t testing.TB) int {
	n := 300_000
	if s := os.Getenv("MLX5D_RX_PACKETS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	return n
}

// Every frame arrives once, in order in its queue and byte-identical, or is
// counted; at the end all pages are home: for all profiles, kinds of queue, sizes
// and consumers.
func TestReceiveProperty(t *testing.T) {
	cases := rxCases()
	each := max(rxPackets(t)/len(cases), 500)
	for i, c := range cases {
		t.Run(c.name(), func(t *testing.T) { runReceiveCase(t, c, uint64(i), each) })
	}
}

func runReceiveCase(t *testing.T, rc rxCase, seed uint64, packets int) {
	if rc.checked {
		checkPosts(t)
	}
	frame := rc.w.mtu + etherHeader + vlanTag
	wire := newNumberedWire(seed, packets, 60, frame+rc.above)
	wire.lossless = !rc.lossy
	d := testDevice(t, model.Config{Profile: rc.profile, Wire: &shutWire{numberedWire: wire}})
	rc.w.queues = rc.queues
	n, err := testOpen(d, rc.w)
	require.NoError(t, err)
	if rc.above > 0 {
		require.NoError(t, n.port.setMTU(frame+fcs+rc.above), "others on the port may want longer frames")
	}
	seen := make([]atomic.Uint32, packets)
	var work []*checkWork
	var handlers []handler
	var consumers sync.WaitGroup
	for i, c := range n.channels {
		w := &checkWork{t: t, rand: rand.New(rand.NewPCG(seed, uint64(i))), seen: seen, last: make([]uint64, 1), scratch: make([]byte, 1<<14),
			want: make([]byte, 1<<14), later: make(chan heldFrame, 16), share: rc.share}
		work, handlers = append(work, w), append(handlers, w)
		pool := c.rx.pool
		consumers.Go(func() { w.consume(pool, seed) })
	}
	n.start(handlers, false, nil)
	d.wire.(*shutWire).open.Store(true)
	require.Eventually(t, d.m.WireDone, 60*time.Second, time.Millisecond, "the wire does not run dry")
	n.stop()
	got, bad, oversize, failed, small, filler := uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0)
	for i, w := range work {
		close(w.later)
		c := n.channels[i]
		c.rx.publish()
		got, bad = got+w.got.Load(), bad+w.bad.Load()
		oversize += c.rx.stats.oversize.get()
		failed += c.rx.stats.wqeErr.get() + c.rx.stats.recover.get()
		small += c.rx.stats.small.get()
		filler += c.rx.stats.filler.get()
	}
	consumers.Wait()
	for _, w := range work {
		bad += w.bad.Load()
	}
	require.Zero(t, bad, "frames that were wrong or out of order")
	require.Zero(t, failed, "errors")
	s := d.m.Stats()
	require.Zero(t, s.DMAFaults, s.LastFault)
	lost, err := n.fw.queryMissed(n.counters)
	require.NoError(t, err)
	require.EqualValues(t, packets, got+oversize+uint64(lost), "delivered and dropped; device %+v", s)
	require.True(t, rc.lossy || lost == 0, "%d frames lost where the wire waits", lost)
	once := uint64(0)
	for i := range seen {
		require.LessOrEqual(t, seen[i].Load(), uint32(1), "frame %d came twice", i)
		once += uint64(seen[i].Load())
	}
	require.Equal(t, got, once)
	if rc.lossy { // and may have lost all that is rare
		for _, c := range n.channels {
			requirePagesHome(t, c.rx)
		}
		require.NoError(t, n.close())
		requireClean(t, d)
		return
	}
	require.Equal(t, rc.above > 0, oversize > 0)
	require.Equal(t, rc.w.rxCompress, small > 0, "compressed completions")
	require.Equal(t, n.params.rxStrides.on() && !n.params.rxStrides.linear, filler > 0, "fillers")
	for _, c := range n.channels {
		requirePagesHome(t, c.rx)
	}
	if rc.w.rxStriding && !n.params.rxStrides.on() {
		require.NotEmpty(t, n.params.rxWhy)
	}
	require.NoError(t, n.close())
	requireClean(t, d)
}

// shutWire sends nothing until it is opened.
type shutWire struct {
	*numberedWire
	open atomic.Bool
}

func (w *shutWire) Peek(now time.Time) []byte {
	if !w.open.Load() {
		return nil
	}
	return w.numberedWire.Peek(now)
}

// A frame longer than what the device finds posted costs its buffer alone: it is
// counted, and the next one is whole.
func TestFrameLongerThanItsBuffer(t *testing.T) {
	wire := &listWire{shut: true, frames: [][]byte{numberedUDP(0, 60), numberedUDP(1, 900), numberedUDP(2, 900)}}
	d, _, c := rxRig(t, wire, wishes{rxRing: 64})
	q := c.rx
	was := q.segs[q.perWQE]
	q.segs[q.perWQE] = dataSeg(100, q.lkey, q.pool.addr(q.held[q.frags[1].page], uint32(q.frags[1].off)))
	wire.shut = false
	settleDevice(d)
	packets, done := q.poll(napiBudget)
	require.Equal(t, 3, done)
	require.Equal(t, 2, len(packets))
	require.Equal(t, numberedUDP(2, 900), packets[1].b)
	require.False(t, q.failed)
	q.publish()
	require.EqualValues(t, 1, q.stats.oversize.get())
	require.EqualValues(t, 0, q.stats.wqeErr.get())
	q.segs[q.perWQE] = was
}

// An error completion stops the queue: it is reset and filled by itself, counted,
// and frames come in again; no page is owned twice, also when pages are short
// while it is filled.
func TestReceiveQueueRecovers(t *testing.T) {
	for _, short := range []bool{false, true} {
		wire := newNumberedWire(5, 4000, 60, 1400)
		wire.shut = true
		d, n, c := rxRig(t, wire, wishes{rxRing: 64})
		q := c.rx
		w := 9 * q.perWQE
		good := q.segs[w]
		q.segs[w] = dataSeg(1500, q.lkey^0x5500, 4096)
		wire.shut = false
		settleDevice(d)
		packets, _ := q.poll(napiBudget)
		require.Equal(t, 9, len(packets), "those before it")
		require.True(t, q.failed)
		require.EqualValues(t, 0x04, q.cause.syndrome, "the root cause, not what was flushed behind it")
		var refs []pageRef
		var taken []uint32
		if short { // a consumer holds frames, and the pool is empty
			for i := range packets {
				refs = q.hold(refs, &packets[i])
			}
			for {
				n, ok := q.pool.take()
				if !ok {
					break
				}
				taken = append(taken, n)
			}
		}
		q.segs[w] = good
		d.resume()
		n.recoverRX(c)
		d.pause()
		require.False(t, q.failed)
		require.Equal(t, !short, q.posted == q.mask+1, "posted %d", q.posted)
		for _, r := range refs {
			q.pool.release(r)
		}
		for _, n := range taken {
			q.pool.giveBack(n)
		}
		got := 9
		for range 1000 {
			q.finish()
			settleDevice(d)
			packets, _ := q.poll(napiBudget)
			got += len(packets)
		}
		q.publish()
		require.EqualValues(t, 1, q.stats.recover.get())
		require.EqualValues(t, 1, q.stats.wqeErr.get())
		require.EqualValues(t, 3999, got, "all but the one that failed")
		requirePagesHome(t, q)
	}
}

// Completions out of order are no such queue's: it is reset, and nothing is handed
// out that the device may still write. (C7 is about shared receive queues, where they
// are in order; we make none, and each of ours completes as it was posted.)
func TestCompletionsOutOfOrderResetTheQueue(t *testing.T) {
	d, n, c := rxRig(t, nil, wishes{rxRing: 64})
	q := c.rx
	for i, counter := range []uint16{2, 0, 1} {
		writeCQE(q.cq, uint32(i), cqe{byteCount: swap32(60)}, cqeRecv, 0, counter)
	}
	packets, _ := q.poll(napiBudget)
	require.Empty(t, packets)
	require.True(t, q.failed)
	d.resume()
	n.recoverRX(c)
	d.pause()
	q.publish()
	require.EqualValues(t, 1, q.stats.recover.get())
	require.EqualValues(t, 3, q.stats.wqeErr.get(), "the one that was not its turn, and those behind it")
	require.False(t, q.failed)
}

// A queue that fails again and again does not keep firmware busy.
func TestRecoveriesKeepTheirDistance(t *testing.T) {
	d, n, c := rxRig(t, nil, wishes{rxRing: 64})
	q := c.rx
	require.False(t, q.recoverable(time.Now()), "nothing failed")
	q.failed = true
	d.resume()
	before := time.Now()
	n.recoverRX(c)
	d.pause()
	require.False(t, q.failed)
	require.False(t, q.since.Before(before), "counted from its end")
	q.failed = true
	require.False(t, q.recoverable(q.since.Add(recoverGap/2)))
	require.True(t, q.recoverable(q.since.Add(2*recoverGap)))
	q.retired = true
	require.False(t, q.recoverable(q.since.Add(2*recoverGap)), "it is about to be destroyed")
	q.failed, q.retired = false, false
}

// What a stopped consumer loses is counted: received and out of buffer make all.
func TestLossAtTheRingIsCounted(t *testing.T) {
	for _, w := range []wishes{{rxRing: 64}, {rxRing: 64, rxStriding: true}} {
		wire := newNumberedWire(3, 5000, 60, 1500)
		wire.lossless = false
		d, n, c := rxRig(t, wire, w)
		settleDevice(d)
		got := 0
		for range 100 {
			packets, _ := c.rx.poll(napiBudget)
			got += len(packets)
		}
		d.resume()
		lost, err := n.fw.queryMissed(n.counters)
		require.NoError(t, err)
		d.pause()
		require.NotZero(t, lost)
		require.EqualValues(t, 5000, got+int(lost))
	}
}

// A device that makes a completion's length larger after it was looked at shows
// nobody another frame's bytes.
func TestCompletionsWrittenAgain(t *testing.T) {
	d, _, c := rxRig(t, newNumberedWire(5, 8, 60, 1500), wishes{rxRing: 64})
	q := c.rx
	settleDevice(d)
	slot, ci := q.head&q.mask, q.cq.ci
	n, _ := q.dropPlain(8)
	require.Equal(t, 8, n)
	run, _ := q.cq.run(ci, n)
	for i := range run {
		run[i].byteCount = swap32(0xffffffff)
	}
	out := make([]packet, n)
	q.view(out, run, slot)
	for _, p := range out {
		require.Equal(t, q.limit, p.size)
		require.Len(t, p.b, int(q.limit))
	}
}

// A 32-bit counter of the device that wraps stays monotonic.
func TestWrappingCounter(t *testing.T) {
	var w wrapping
	last := uint64(0)
	for _, now := range []uint32{5, 0xfffffff0, 3, 0x80000000, 2} {
		v := w.update(now)
		require.Greater(t, v, last)
		require.EqualValues(t, now, uint32(v))
		last = v
	}
	require.Greater(t, last, uint64(1)<<33)
}

// Eight queues, mixed sizes: nothing is lost and no queue is dead.
func TestEveryQueueIsLive(t *testing.T) {
	const packets = 20_000
	wire := newNumberedWire(8, packets, 60, 1500)
	wire.flows = 1000
	d := testDevice(t, model.Config{Wire: &shutWire{numberedWire: wire}})
	n, err := testOpen(d, wishes{queues: 8, promisc: true, rxRing: 64})
	require.NoError(t, err)
	handlers := make([]handler, 8)
	for i := range handlers {
		handlers[i] = dropWork{}
	}
	n.start(handlers, false, nil)
	d.wire.(*shutWire).open.Store(true)
	require.Eventually(t, d.m.WireDone, 60*time.Second, time.Millisecond)
	n.stop()
	sum := uint64(0)
	for i, c := range n.channels {
		got := c.rx.stats.packets.get()
		require.Greater(t, got, uint64(packets/16), "queue %d", i)
		sum += got
	}
	require.EqualValues(t, packets, sum)
	require.NoError(t, n.close())
}

// creditWire loses what finds no buffer, and gives frames only while few are on their
// way: where nothing is wrong nothing is lost.
type creditWire struct {
	*numberedWire
	taken atomic.Int64
	given int64
}

const wireCredit = 40

func (w *creditWire) Peek(now time.Time) []byte {
	if w.given-w.taken.Load() >= wireCredit {
		return nil
	}
	return w.numberedWire.Peek(now)
}

func (w *creditWire) Take() {
	w.given++
	w.numberedWire.Take()
}

// creditWork gives credit back.
type creditWork struct{ w *creditWire }

func (h creditWork) handle(_ *channel, packets []packet) { h.w.taken.Add(int64(len(packets))) }
func (h creditWork) turn(*channel) int                   { return 0 }
func (h creditWork) idle(*channel)                       {}

// C17: sixteen queues, mixed sizes, a wire that waits for nobody but gives no more than
// rings can hold: every queue has its share, by the names that users see, and nothing
// is lost.
func TestSixteenQueuesAreLive(t *testing.T) {
	const packets, queues = 20_000, 16
	wire := &creditWire{numberedWire: newNumberedWire(16, packets, 60, 1500)}
	wire.flows, wire.lossless = 1000, false
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: queues, promisc: true, rxRing: 64})
	require.NoError(t, err)
	handlers := make([]handler, queues)
	for i := range handlers {
		handlers[i] = creditWork{wire}
	}
	n.start(handlers, false, nil)
	require.Eventually(t, func() bool { return wire.taken.Load() == packets }, 60*time.Second, time.Millisecond, "frames are lost")
	n.stop()
	sum := uint64(0)
	for i := range queues {
		got := statOf(t, n, fmt.Sprintf("rx%d_packets", i))
		require.Greater(t, got, uint64(packets/queues/2), "queue %d", i)
		sum += got
	}
	require.EqualValues(t, packets, sum)
	require.Zero(t, statOf(t, n, "rx_out_of_buffer"))
	require.NoError(t, n.close())
}

// The MTU that is set is the one that is read back; what cannot be is refused
// with the range.
func TestMTUIsReadBack(t *testing.T) {
	d := testDevice(t, model.Config{})
	for _, mtu := range []int{68, 1500, 9000, 10218} {
		n, err := testOpen(d, wishes{queues: 1, mtu: mtu})
		require.NoError(t, err)
		_, now, err := n.fw.queryPMTU()
		require.NoError(t, err)
		require.Equal(t, mtu+hardMTU, now)
		require.NoError(t, n.close())
	}
	for _, mtu := range []int{67, 10219, -1} {
		_, err := testOpen(d, wishes{queues: 1, mtu: mtu})
		require.ErrorContains(t, err, "68 to 10218")
	}
}

// The check of the sharing rule finds each way to break it.
func TestSharingRuleIsChecked(t *testing.T) {
	_, _, c := rxRig(t, nil, wishes{rxRing: 64})
	q := c.rx
	q.head += uint32(q.layout.bulk) // bulk 0 may be posted
	require.NotPanics(t, func() { q.checkBulk(0) })
	page := q.held[0]
	ref := q.pool.lendOwn(page)
	require.Panics(t, func() { q.checkBulk(0) }, "a lent page")
	q.pool.returnAll([]pageRef{ref})
	q.held[0] = q.held[q.pages]
	require.Panics(t, func() { q.checkBulk(0) }, "another bulk's page")
	q.held[0] = page
	q.head -= uint32(q.layout.bulk)
	require.Panics(t, func() { q.checkBulk(0) }, "the device has it")
}

// A debug build finds what is wrong with a post when it is posted, also where the
// loop that users run has no need to look.
func TestPostsAreCheckedWhenAskedFor(t *testing.T) {
	wire := newNumberedWire(4, 2000, 60, 1500)
	d, _, c := rxRig(t, wire, wishes{rxRing: 64})
	q := c.rx
	for q.posted-q.lentAt <= 3*(q.mask+1) {
		settleDevice(d)
		packets, _ := q.poll(napiBudget)
		require.NotEmpty(t, packets)
		q.finish()
	}
	settleDevice(d)
	q.poll(napiBudget)
	w := q.posted & q.mask * q.perWQE
	good := q.segs[w]
	q.segs[w] = dataSeg(100, q.lkey, 4096)
	checkPosts(t)
	require.Panics(t, q.finish)
	q.segs[w] = good
	require.NotPanics(t, q.finish)
}

// Half the memory of a page for each WQE, at the MTU that most have.
func TestRingMemory(t *testing.T) {
	figures, err := memoryFigures()
	require.NoError(t, err)
	require.LessOrEqual(t, figures[0].Value, 0.52)
	for _, f := range figures {
		require.LessOrEqual(t, f.Value, 1.0, f.Name)
	}
}

// Swapping exchanges the two addresses and nothing else.
func TestSwapAddresses(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 0x08, 0x00, 99}
	swapAddresses(b)
	require.Equal(t, []byte{11, 12, 13, 14, 15, 16, 1, 2, 3, 4, 5, 6, 0x08, 0x00, 99}, b)
}

// A frame of the greatest length is taken, one that is a byte longer is not, however it
// is received and completed. The device would not bring the second: what it says is
// checked.
func TestLengthsAreHeldToTheLimit(t *testing.T) {
	for _, k := range recoverKinds {
		for _, drop := range []bool{true, false} {
			_, _, c := rxRig(t, nil, wishes{rxRing: 64, mtu: k.w.mtu, rxStriding: k.w.rxStriding, rxCompress: k.w.rxCompress})
			q := c.rx
			lengths := []uint32{q.limit, q.limit + 1, q.limit, q.limit + 1}
			index, stride := uint16(0), uint32(0)
			count := func(length uint32) uint32 {
				if q.ring == nil {
					return swap32(length)
				}
				n := (length + 1<<q.ring.layout.logStride - 1) >> q.ring.layout.logStride
				return swap32(length | n<<strideShift)
			}
			if k.w.rxCompress {
				var minis []miniCQE
				for _, n := range lengths {
					word := uint32(0)
					if q.minis.format == miniStrideIndex {
						word = stride
					}
					minis = append(minis, miniCQE{swap32(word), count(n)})
					stride += be32word(count(n)) >> strideShift
				}
				writeSession(q.cq, q.cq.ci, cqe{}, 0, minis)
			} else {
				for i, n := range lengths {
					index = uint16(i)
					if q.ring != nil {
						index = uint16(stride)
					}
					writeCQE(q.cq, q.cq.ci+uint32(i), cqe{byteCount: count(n)}, cqeRecv, 0, index)
					stride += be32word(count(n)) >> strideShift
				}
			}
			for range lengths {
				if drop {
					q.drop(napiBudget)
				} else {
					q.poll(napiBudget)
				}
			}
			q.publish()
			require.False(t, q.failed, k.name)
			require.EqualValues(t, 2, q.stats.packets.get(), "%s, drop %v", k.name, drop)
			require.EqualValues(t, 2, q.stats.oversize.get(), "%s, drop %v", k.name, drop)
			require.EqualValues(t, 2*q.limit, q.stats.bytes.get(), "%s, drop %v", k.name, drop)
		}
	}
}
