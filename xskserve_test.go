package main

// xskserve_test.go owns the proof of sockets in other processes: what is refused,
// that packets go both ways, and that a client which dies takes nothing with it.
// A client process is this test binary, started again with MLX5D_XSK_CLIENT.
//
// MLX5D_XSK_KILLS sets how many clients are killed; a thousand take a minute and a half.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlx5d/model"
)

const xskClientEnv = "MLX5D_XSK_CLIENT"

// init is the client process: the command line's -attach with the arguments given.
func init() {
	if args := os.Getenv(xskClientEnv); args != "" {
		os.Exit(run(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
}

// startClient starts a client process.
func startClient(t testing.TB, args string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), xskClientEnv+"="+args)
	require.NoError(t, cmd.Start())
	return cmd
}

// splitWire gives packets for two UDP ports. Those for the regular queue are
// numbered and wait for credit, so that none is lost; the others come without end
// and are lost where nobody takes them.
type splitWire struct {
	regular int // to give
	given   int
	taken   *atomic.Int64 // of these, seen by the handler
	turn    int
	frame   []byte
	noise   []byte
	sent    atomic.Int64 // frames that left
}

const noisePort = 5000

func newSplitWire(regular int, taken *atomic.Int64) *splitWire {
	w := &splitWire{regular: regular, taken: taken, frame: make([]byte, 200), noise: numberedUDP(0, 300)}
	w.noise[36], w.noise[37] = noisePort>>8, noisePort&0xff
	return w
}

func (w *splitWire) Peek(time.Time) []byte {
	if w.turn%2 == 0 && w.given < w.regular && int64(w.given)-w.taken.Load() < 100 {
		fillNumbered(w.frame, uint64(w.given), 9)
		return w.frame
	}
	if w.turn%2 == 0 {
		w.turn++
	}
	return w.noise
}

func (w *splitWire) Take() {
	if w.turn%2 == 0 {
		w.given++
	}
	w.turn++
}

func (w *splitWire) Lossless() bool  { return false }
func (w *splitWire) Transmit([]byte) { w.sent.Add(1) }
func (w *splitWire) Done() bool      { return false }
func (w *splitWire) LinkUp() bool    { return true }
func (w *splitWire) Close() error    { return nil }

// orderWork asserts that numbered packets come whole and in order.
type orderWork struct {
	taken *atomic.Int64
	bad   atomic.Int64
	want  []byte
}

func (w *orderWork) handle(_ *channel, packets []packet) {
	for i := range packets {
		fillNumbered(w.want, uint64(w.taken.Load()), 9)
		if string(w.want) != string(packets[i].b) {
			w.bad.Add(1)
		}
		w.taken.Add(1)
	}
}
func (w *orderWork) turn(*channel) int { return 0 }
func (w *orderWork) idle(*channel)     {}

// serveRig is a running NIC of so many queues that listens; noise goes to the
// socket of queue 0.
type serveRig struct {
	dev    *emulatedDevice
	nic    *nic
	path   string
	server *xskServer
	work   []*orderWork
}

func newServeRig(t testing.TB, queues int, wire model.Wire, taken *atomic.Int64) *serveRig {
	return newServeRigOf(t, wishes{queues: queues}, wire, taken)
}

func newServeRigOf(t testing.TB, w wishes, wire model.Wire, taken *atomic.Int64) *serveRig {
	queues := w.queues
	w.rxRing, w.promisc, w.xsk = 256, true, true
	r := &serveRig{dev: testDevice(t, model.Config{Wire: wire}), path: filepath.Join(t.TempDir(), "xsk.sock")}
	lead, err := parseRule(fmt.Sprintf("flow-type udp4 dst-port %d action %d", noisePort, queues))
	require.NoError(t, err)
	rules, err := placeRules([]rule{lead})
	require.NoError(t, err)
	r.nic, err = openNIC(context.Background(), r.dev, false, openOptions{wishes: w,
		cpus: 2, rules: rules, flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
	require.NoError(t, err)
	var handlers []handler
	for range r.nic.channels {
		w := &orderWork{taken: taken, want: make([]byte, 200)}
		r.work, handlers = append(r.work, w), append(handlers, w)
	}
	r.nic.start(handlers, false, nil)
	r.server, err = listenXSK(r.path, []*nic{r.nic}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.server.close())
		require.Zero(t, r.nic.mem.guestMemory())
		require.NoError(t, r.nic.close())
		requireClean(t, r.dev)
	})
	return r
}

// filled waits until the socket of queue 0 has buffers.
func (r *serveRig) filled() {
	c, posted := r.nic.channels[0], uint32(0)
	for end := time.Now().Add(time.Minute); posted == 0 && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		c.do(func() { posted = c.xsk.recv.posted })
	}
}

// opens opens the gate as soon as the socket of queue 0 has buffers.
func (r *serveRig) opens(gate *gatedWire) {
	go func() {
		r.filled()
		gate.open.Store(true)
	}()
}

func askFor(queue int) xskRequest {
	return xskRequest{queue: uint32(queue), umem: umemConfig{frame: 2048, frames: 512}, entries: [xskRings]int{512, 512, 512, 512}, flags: xskNeedWakeup | xskZeroCopy}
}

// D8, D12: every queue can be attached to, others are refused with the range, one
// socket a queue; zero copy is said.
func TestXSKServeQueues(t *testing.T) {
	r := newServeRig(t, 4, nil, new(atomic.Int64))
	st, err := os.Stat(r.path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
	var clients []*xskClient
	for i := range 4 {
		c, err := dialXSK(r.path, askFor(i))
		require.NoError(t, err)
		require.NotZero(t, c.grant.flags&xskZeroCopy)
		require.EqualValues(t, 4+i, c.grant.queue)
		require.EqualValues(t, 256, c.grant.start)
		clients = append(clients, c)
		b, err := c.ask(xskGiven)
		require.NoError(t, err)
		require.Equal(t, c.grant.flags, le.Uint32(b))
		b, err = c.ask(xskCounts)
		require.NoError(t, err)
		require.Len(t, b, 8*len(xskCountNames))
	}
	for _, c := range []struct {
		spoil func(*xskRequest)
		says  string
	}{
		{func(r *xskRequest) { r.queue = 9 }, "queue 9: there are 0 to 3"},
		{func(r *xskRequest) { r.queue = 1 << 31 }, "there are 0 to 3"},
		{func(r *xskRequest) { r.port = 1 }, "port 1: there are 0 to 0"},
		{func(r *xskRequest) {}, "queue 0 has a socket already"},
		{func(r *xskRequest) { r.umem.frame = 1000 }, "2048 or 4096"},
		{func(r *xskRequest) { r.umem.frames = 1 << 30 }, "1 to"},
		{func(r *xskRequest) { r.umem.headroom = 4000 }, "headroom"},
		{func(r *xskRequest) { r.entries[ringTX] = 3 }, "TX ring of 3 entries"},
		{func(r *xskRequest) { r.flags = 1 << 7 }, "not known"},
	} {
		q := askFor(0)
		c.spoil(&q)
		_, err := dialXSK(r.path, q)
		require.ErrorContains(t, err, c.says)
	}
	for _, c := range clients {
		require.NoError(t, c.close())
	}
	require.Eventually(t, func() bool { return r.nic.mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err, "a queue that was given back can be taken again")
	require.NoError(t, c.close())
}

// Bytes that are no request, cut at every length and spoiled at every place, are
// refused; the server goes on.
func TestXSKServeRubbish(t *testing.T) {
	r := newServeRig(t, 1, nil, new(atomic.Int64))
	good := askFor(0)
	whole := good.encode()
	m := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * len(whole) {
		b := append([]byte(nil), whole...)
		if i < len(b) {
			b = b[:i]
		} else {
			b[i%len(b)] ^= byte(1 + m.IntN(255))
		}
		conn, err := net.Dial("unix", r.path)
		require.NoError(t, err)
		_, err = conn.Write(b)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		_, _ = io.Copy(io.Discard, conn)
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 }, 10*time.Second, time.Millisecond)
	c, err := dialXSK(r.path, good)
	require.NoError(t, err)
	require.NoError(t, c.close())
}

// onlyWakeUps has the driver's loops look at nothing by themselves for the test.
func onlyWakeUps(t testing.TB) {
	was := idleWait
	idleWait = time.Hour
	t.Cleanup(func() { idleWait = was })
}

// D5: one packet in flight, around the loop a hundred thousand times, with both
// sides asleep whenever they like. Nothing stalls.
func TestXSKPingPong(t *testing.T) {
	const mostOwn = 3
	rounds := envNumber(t, "MLX5D_XSK_ROUNDS", 100_000)
	onlyWakeUps(t)
	wire, err := model.ParseWire("loop")
	require.NoError(t, err)
	r := newServeRig(t, 1, wire, new(atomic.Int64))
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	frame := numberedUDP(0, 100)
	frame[36], frame[37] = noisePort>>8, noisePort&0xff
	copy(c.mem, frame)
	c.app.free = c.app.free[:len(c.app.free)-1] // frame 0 is the ball
	c.app.giveFrames(4)
	c.app.tx.descs[0] = xdpDesc{addr: 0, len: 100}
	c.app.tx.gave(1)
	c.app.out++
	c.nudge()
	own := 0
	for got := 0; got < rounds; {
		n := c.app.forward(1, false)
		c.nudge()
		if got += n; n == 0 && !c.sleep(time.Second) {
			own++
			require.LessOrEqual(t, own, mostOwn, "after %d rounds nothing but our own wake-up helps: driver at RX %d, TX %d", got, *c.app.rx.producer, *c.app.tx.consumer)
		}
	}
}

// Clients are killed at random under load, from attach to full work, in every mode.
// No page, mapping or frame is lost, and the regular queue's packets all come,
// whole and in order.
func TestXSKClientsKilled(t *testing.T) {
	kills := envNumber(t, "MLX5D_XSK_KILLS", 50)
	var taken atomic.Int64
	wire := newSplitWire(1<<40, &taken)
	r := newServeRig(t, 1, wire, &taken)
	before := r.nic.mem.used()
	m := rand.New(rand.NewPCG(7, 7))
	fds := countFDs(t)
	for i := range kills {
		mode := []string{modeDrop, modeSend, modeForward}[m.IntN(3)]
		client := startClient(t, "-attach "+r.path+" -mode "+mode+" -queue 0")
		if i%3 > 0 { // else at any time, also before it has attached
			require.Eventually(t, func() bool { return r.server.lives.Load() == 1 }, 20*time.Second, 100*time.Microsecond)
		}
		time.Sleep(time.Duration(m.IntN(20_000)) * time.Microsecond)
		require.NoError(t, client.Process.Signal(unix.SIGKILL))
		require.Error(t, client.Wait())
		require.Eventually(t, func() bool { return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 }, 20*time.Second, 100*time.Microsecond, "kill %d", i)
	}
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err, "the queue still works")
	c.app.giveFrames(512)
	c.nudge()
	require.Eventually(t, func() bool { return c.app.drop(64) > 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.close())
	require.Eventually(t, func() bool { return r.nic.mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, before, r.nic.mem.used(), "DMA memory")
	require.Eventually(t, func() bool { return countFDs(t) <= fds }, 10*time.Second, time.Millisecond)
	r.nic.stop()
	require.Zero(t, r.work[0].bad.Load(), "regular packets that were wrong or out of order")
	require.NotZero(t, taken.Load())
	require.Zero(t, r.dev.m.Stats().DMAFaults, r.dev.m.Stats().LastFault)
	requirePagesHome(t, r.nic.channels[0].rx)
}

func countFDs(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// A hostile client that writes anything anywhere in the rings, at any time, loses
// its own queue at most.
func TestXSKServeHostileClient(t *testing.T) {
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	m := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		c, err := dialXSK(r.path, askFor(0))
		require.NoError(t, err)
		var spoiler sync.WaitGroup
		spoils := rand.NewPCG(m.Uint64(), 5)
		spoiler.Go(func() {
			m := rand.New(spoils)
			for range 2000 {
				le.PutUint32(c.rings[m.IntN(len(c.rings)/4)*4:], m.Uint32()>>uint(m.IntN(32)))
				if m.IntN(10) == 0 {
					_, _ = unix.Write(c.kick, wakeOne[:])
				}
			}
		})
		c.app.giveFrames(256)
		for range 200 {
			c.app.send(8, 60)
			c.app.tx.descs[m.IntN(512)].len = m.Uint32()
		}
		spoiler.Wait()
		require.NoError(t, c.close())
		require.Eventually(t, func() bool { return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
	}
	at := taken.Load()
	require.Eventually(t, func() bool { return taken.Load() > at+1000 }, 10*time.Second, time.Millisecond, "the regular queue goes on")
	require.Zero(t, r.work[0].bad.Load())
	require.Zero(t, r.dev.m.Stats().DMAFaults, r.dev.m.Stats().LastFault)
}

// The summary of -attach says how many packets and bytes came and left.
func TestXSKAttachSummary(t *testing.T) {
	const packets = 3000
	wire := &returnWire{packets: packets, frame: make([]byte, 2048), want: make([]byte, 2048)}
	gate := &gatedWire{Wire: wire}
	r := newServeRig(t, 1, gate, new(atomic.Int64))
	r.opens(gate)
	summary := func(args string) (s countSummary) {
		var out, log strings.Builder
		require.Zero(t, run(context.Background(), strings.Fields("-attach "+r.path+" -json "+args), &out, &log), "%s", &log)
		require.NoError(t, json.Unmarshal([]byte(out.String()), &s))
		return s
	}
	bytes := uint64(0)
	for i := range packets {
		bytes += uint64(len(returnFrame(wire.want[:cap(wire.want)], i)))
	}
	s := summary(fmt.Sprintf("-mode l2fwd -count %d", packets))
	require.Equal(t, []uint64{packets, bytes, packets, bytes}, []uint64{s.RxPackets, s.RxBytes, s.TxPackets, s.TxBytes})
	require.Zero(t, wire.wrong.Load())
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 }, 10*time.Second, time.Millisecond)
	s = summary("-mode txonly -size 100 -count 1000")
	require.Equal(t, []uint64{0, 0, 1000, 100_000}, []uint64{s.RxPackets, s.RxBytes, s.TxPackets, s.TxBytes})
}

// Counters that come after nobody waits for them any more do not end a client: it
// keeps the newest and hears why the other side ends it.
func TestXSKLateCounts(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(f)
		require.NoError(t, errors.Join(err, f.Close()))
		t.Cleanup(func() { _ = conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	const answers = 3
	for i := range uint64(answers) {
		b := make([]byte, xskHeader+8)
		putHeader(b, xskCounts|xskAnswer, len(b))
		le.PutUint64(b[xskHeader:], i)
		require.NoError(t, writeMessage(ends[1], b))
	}
	require.NoError(t, writeMessage(ends[1], xskRefusal(xskClosed, "the port closes")))
	c := &xskClient{conn: ends[0], over: make(chan error, 1), said: make(chan []byte, 1)}
	c.listen()
	require.EqualError(t, <-c.over, "the appliance has taken the queue back: the port closes")
	require.Equal(t, uint64(answers-1), le.Uint64(<-c.said))
}

// Of what was put into the TX ring only what the driver has told is counted as
// sent, in whole packets, wherever the rings begin again.
func TestXSKAppCountsWhatLeft(t *testing.T) {
	places, size, err := layoutRings([xskRings]int{8, 8, 8, 8})
	require.NoError(t, err)
	a := newXSKApp(make([]byte, 8*2048), 2048, make([]byte, size), places)
	packets, bytes := uint64(0), uint64(0)
	for round := range uint32(20) {
		for i := range uint32(3) { // a packet in two pieces, and one in one
			a.rx.descs[(a.rx.at+i)&a.rx.mask] = xdpDesc{addr: uint64(i) * 2048, len: 100 + round + i, options: [3]uint32{xdpContinue, 0, 0}[i]}
		}
		*a.rx.producer += 3
		require.Equal(t, 3, a.forward(64, false))
		gotPackets, gotBytes := a.left()
		require.Equal(t, []uint64{packets, bytes}, []uint64{gotPackets, gotBytes})
		*a.tx.consumer += 3
		*a.comp.producer += 2 // the packet in two pieces has left
		a.refill()
		*a.fill.consumer += 2
		gotPackets, gotBytes = a.left()
		require.Equal(t, []uint64{packets + 1, bytes + uint64(201+2*round)}, []uint64{gotPackets, gotBytes})
		*a.comp.producer += 1
		a.refill()
		*a.fill.consumer += 1
		packets, bytes = packets+2, bytes+uint64(303+3*round)
	}
}
