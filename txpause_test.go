package main

// txpause_test.go owns the proof that a send queue whose every burst fails keeps
// neither firmware nor its channel busy: it is out of service between two resets,
// what is sent meanwhile is lost by name, and it works again when the error is gone.

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// wrongKey is what makes a queue's memory key one that the device does not know.
const wrongKey = 1 << 8

// sendQueues is how many commands were about the state of send queues.
func (l *commandLog) sendQueues() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.seen {
		if c.Opcode == opQuerySQ || c.Opcode == opModifySQ {
			n++
		}
	}
	return n
}

// Between two resets a failed queue waits, however many bursts come; the commands are
// those of one reset. What had left before an error is not lost, also where the reset
// comes late.
func TestFailedSendQueueWaits(t *testing.T) {
	log := &commandLog{fail: -1}
	r := newSendRig(t, rigConfig{dirty: true})
	r.dev.m.SetScript(log.script())
	r.q.limit = 0 // a WQE each: the device says exactly which it was
	burst := func() {
		frames := r.place(txOffload{}, numberedFrame(100, 1))
		frames = append(frames, r.place(txOffload{}, numberedFrame(100, 2))...)
		frames[1].addr = nowhere
		require.Equal(t, 2, r.q.send(frames))
		r.settleFaultNow()
	}
	burst()
	require.False(t, r.q.dead, "the first error is dealt with at once")
	require.EqualValues(t, 1, r.q.tally.recovered)
	once := log.sendQueues()
	require.LessOrEqual(t, once, 4)
	require.NotZero(t, once)
	r.q.reborn = time.Now().Add(time.Hour)
	for range 100 {
		burst()
		r.dev.resume()
		r.nic.watchTX(r.q)
		r.dev.pause()
		require.True(t, r.q.dead)
	}
	require.Equal(t, once, log.sendQueues(), "commands while it waits")
	require.Zero(t, r.q.owed())
	require.Len(t, r.wire.ends, 2, "of the burst after the reset one frame left")
	require.EqualValues(t, 1+2*99, r.q.stats.dropped.get(), "the last error's are not counted yet")
	require.Len(t, r.notes(), 1)

	r.q.again = time.Now()
	r.dev.resume()
	r.nic.watchTX(r.q)
	r.dev.pause()
	require.False(t, r.q.dead)
	require.LessOrEqual(t, log.sendQueues(), 2*once)
	notes := r.notes()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "local protection error", "what it failed from")
	require.Equal(t, 1, r.q.send(r.place(txOffload{}, numberedFrame(100, 3))))
	r.requireHome()
	require.EqualValues(t, 2, r.q.stats.recover.get())
	require.Len(t, r.wire.ends, 3)
	require.EqualValues(t, 1+2*99+1, r.q.stats.dropped.get())
}

// What had left before the error of a queue that ends before it was reset, is not
// counted as lost.
func TestFailedSendQueueEnds(t *testing.T) {
	r := newSendRig(t, rigConfig{dirty: true})
	r.q.limit = 0
	r.q.reborn = time.Now().Add(time.Hour)
	frames := r.place(txOffload{}, numberedFrame(100, 1))
	for i := range 4 {
		frames = append(frames, r.place(txOffload{}, numberedFrame(100, uint32(i)))...)
	}
	frames[3].addr = nowhere
	require.Equal(t, 5, r.q.send(frames))
	r.settleFaultNow()
	require.True(t, r.q.dead)
	r.q.abandon()
	require.Len(t, r.wire.ends, 3)
	require.EqualValues(t, 2, r.q.tally.dropped)
	r.dev.resume()
	r.nic.recoverTX(r.q, "asked for by the test") // the pages come home
	r.dev.pause()
	r.requireHome()
	require.EqualValues(t, 2, r.q.stats.dropped.get())
}

// endlessWire gives one frame over and over while it is open, and counts.
type endlessWire struct {
	frame       []byte
	open        atomic.Bool
	given, sent atomic.Uint64
}

func (w *endlessWire) Peek(time.Time) []byte {
	if !w.open.Load() {
		return nil
	}
	return w.frame
}

func (w *endlessWire) Take()           { w.given.Add(1) }
func (w *endlessWire) Lossless() bool  { return true }
func (w *endlessWire) Transmit([]byte) { w.sent.Add(1) }
func (w *endlessWire) Done() bool      { return false }
func (w *endlessWire) LinkUp() bool    { return true }
func (w *endlessWire) Close() error    { return nil }

// steadySender sends bursts from its channel's goroutine for as long as it may.
type steadySender struct {
	pool *pagePool
	on   atomic.Bool
	sent atomic.Uint64
}

func (s *steadySender) handle(*channel, []packet) {}
func (s *steadySender) idle(*channel)             {}

func (s *steadySender) turn(c *channel) int {
	if !s.on.Load() {
		return 0
	}
	var burst [8]txFrame
	n := 0
	for ; n < len(burst); n++ {
		page, ok := s.pool.take()
		if !ok {
			break
		}
		copy(s.pool.bytes(page, 0, 64), numberedFrame(64, 1))
		burst[n] = txFrame{addr: s.pool.addr(page, 0), form: txSize(64), page: s.pool.lendOwn(page)}
		s.pool.giveBack(page)
	}
	c.tx.sendOrDrop(burst[:n])
	s.sent.Add(uint64(n))
	return n
}

// failingQueue is a queue of one kind that runs, with what is sent on it.
type failingQueue struct {
	n    *nic
	d    *emulatedDevice
	wire *endlessWire
	q    func() *sendQueue
	run  func(on bool)   // what is sent comes, or comes no more
	want func() uint64   // how much that was
	lost map[string]bool // by what names it may be lost
}

// failingHandler is what a handler sends, failingProgram what a program answers, and
// failingSocket what an application sends.
func failingHandler(t *testing.T) *failingQueue {
	wire := &endlessWire{}
	r := newSendRig(t, rigConfig{wire: wire})
	pool, err := newPagePool(r.nic.mem, 210, 256)
	require.NoError(t, err)
	s := &steadySender{pool: pool}
	r.q.home(pool)
	r.dev.resume()
	r.nic.start([]handler{s}, false, nil)
	return &failingQueue{n: r.nic, d: r.dev, wire: wire, q: func() *sendQueue { return r.q },
		run: s.on.Store, want: s.sent.Load, lost: map[string]bool{"tx_queue_dropped": true}}
}

func failingProgram(t *testing.T) *failingQueue {
	wire := &endlessWire{frame: make([]byte, 100)}
	fillNumbered(wire.frame, 1, 1)
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: 1, promisc: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	program, err := parseProgram("tx")
	require.NoError(t, err)
	n.start([]handler{dropWork{}}, false, nil)
	require.NoError(t, n.attach(program))
	return &failingQueue{n: n, d: d, wire: wire, q: func() *sendQueue { return n.channels[0].xdp },
		run: wire.open.Store, want: wire.given.Load, lost: map[string]bool{"rx_xdp_tx_err": true, "rx_xdp_tx_full": true}}
}

func failingSocket(t *testing.T) *failingQueue {
	wire := &endlessWire{}
	r := newXSKRig(t, xskConfig{wire: wire})
	r.dev.resume()
	r.nic.start([]handler{dropWork{}}, false, nil)
	a, put, came := r.app, uint64(0), uint64(0)
	back := func() bool {
		n, _ := a.comp.ready(1 << 16)
		a.comp.took(n)
		came += uint64(n)
		return came == put
	}
	work := func() {
		back()
		for k := 0; k < 8 && put-came < 256; k++ {
			at := put % 512 * 2048
			copy(r.mem.b[at:], numberedFrame(64, 1))
			a.tx.descs[a.tx.at&a.tx.mask] = xdpDesc{addr: at, len: 64}
			a.tx.gave(1)
			put++
		}
	}
	var on atomic.Bool
	var done chan struct{}
	run := func(start bool) {
		if on.Store(start); start {
			done = make(chan struct{})
			go func() {
				defer close(done)
				for on.Load() {
					r.c.do(work) // two goroutines of one process must not share the rings
				}
			}()
			return
		}
		<-done
		require.Eventually(t, func() (all bool) {
			r.c.do(func() { all = back() })
			return all
		}, 30*time.Second, time.Millisecond)
	}
	return &failingQueue{n: r.nic, d: r.dev, wire: wire, q: func() *sendQueue { return r.c.xsk.tx },
		run: run, want: func() uint64 { return put }, lost: map[string]bool{"tx_xsk_err": true}}
}

// While each burst of a running queue fails there are no more commands than resets a
// recoverGap apart have; nothing is lost without a name, and when the error is gone
// the queue sends by itself.
func TestErrorsOfEveryBurstKeepNobodyBusy(t *testing.T) {
	for _, k := range []struct {
		name string
		make func(*testing.T) *failingQueue
	}{{"handler", failingHandler}, {"program", failingProgram}, {"socket", failingSocket}} {
		t.Run(k.name, func(t *testing.T) {
			f := k.make(t)
			c := f.n.channels[0]
			c.do(func() { f.q().lkey += wrongKey })
			log := &commandLog{fail: -1}
			f.d.m.SetScript(log.script())
			begun := time.Now()
			f.run(true)
			var resets uint64
			require.Eventually(t, func() bool {
				c.do(func() { resets = f.q().stats.recover.get() + f.q().tally.recovered })
				return resets >= 4
			}, 30*time.Second, time.Millisecond, "it is not reset again")
			require.LessOrEqual(t, log.sendQueues(), 4*int(time.Since(begun)/recoverGap+2))
			require.Zero(t, f.wire.sent.Load())
			c.do(func() { f.q().lkey -= wrongKey })
			require.Eventually(t, func() bool { return f.wire.sent.Load() > 1000 }, 30*time.Second, time.Millisecond, "it does not send again")
			f.run(false)
			f.n.stop()
			require.Zero(t, f.q().owed())
			stats := newStatReader(f.n)
			require.NoError(t, stats.update())
			sum := f.wire.sent.Load()
			for name, n := range drops(stats.read()) {
				require.True(t, n == 0 || f.lost[name], "%s: %d", name, n)
				sum += n
			}
			require.Equal(t, f.want(), sum)
			require.Greater(t, sum, f.wire.sent.Load(), "nothing was lost: the test looks at nothing")
			t.Logf("%d commands, %d resets, %d of %d left", log.sendQueues(), resets, f.wire.sent.Load(), sum)
		})
	}
}
