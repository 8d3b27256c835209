package main

// xskfaults_test.go owns the proof that sockets which nobody serves cost nobody
// else anything: not the wire, not memory, not a clear count, and that what the
// user sets reaches sockets as it does other queues.

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlx5d/model"
)

// ranOnce is the summary of a run of the command line, and its text.
func ranOnce(t *testing.T, args string, more ...string) (s countSummary, text string) {
	t.Helper()
	for _, form := range []string{"-json=true", "-json=false"} {
		var out, log strings.Builder
		require.Zero(t, run(context.Background(), append(strings.Fields(args+" "+form), more...), &out, &log), "%s", &log)
		if text = out.String(); form == "-json=true" {
			text, _, _ = strings.Cut(text, "\n")
			require.NoError(t, json.Unmarshal([]byte(text), &s))
		}
	}
	return s, text
}

// The wire of a socket that nobody has attached to goes on: what the rule leads there
// is lost by its own name, all else comes, and the advice is about the application.
func TestAnAbsentClientStopsNobody(t *testing.T) {
	const frames = 20_000
	path := filepath.Join(t.TempDir(), "xsk.sock")
	s, text := ranOnce(t, fmt.Sprintf("-emulate -mode rxdrop -promisc -queues 2 -wire gen:count=%d,size=64 -xsk-listen %s", frames, path), "-rule", "flow-type udp4 action 2")
	lost := s.Drops["rx_xsk_out_of_buffer"]
	require.NotZero(t, lost)
	require.NotZero(t, s.RxPackets)
	require.EqualValues(t, frames, s.RxPackets+lost)
	require.Zero(t, s.Drops["rx_out_of_buffer"])
	require.Contains(t, text, "no application is attached to the queue")
	require.NotContains(t, text, "-rx-ring")
}

// A frame that a program redirects to a socket nobody holds is counted once, as
// lost, wherever it came in.
func TestRedirectsToNobodyCountOnce(t *testing.T) {
	const frames = 1000
	path := filepath.Join(t.TempDir(), "xsk.sock")
	s, text := ranOnce(t, fmt.Sprintf("-emulate -mode rxdrop -promisc -queues 2 -wire gen:count=%d -xsk-listen %s -xdp redirect:2 -stats", frames, path))
	require.EqualValues(t, frames, s.RxPackets)
	require.EqualValues(t, frames, s.Drops["rx_xdp_redirect_no_socket"])
	sum := uint64(0)
	for _, n := range s.Drops {
		sum += n
	}
	require.EqualValues(t, frames, sum)
	require.Contains(t, text, " rx_xdp_redirect: 0\n")
	for _, queue := range []string{"rx0", "rx1"} {
		require.NotContains(t, text, " "+queue+"_xdp_redirect_no_socket: 0\n", "who redirected it counts it")
	}
	require.Contains(t, text, "dropped by a socket that nobody holds")
	require.NotContains(t, text, "-tx-ring")
}

// mixedWire gives numbered frames for the regular queue and others for the socket in
// turn, as fast as they are taken, and waits for who is at work.
type mixedWire struct {
	given  uint64
	turn   int
	frame  []byte
	noise  []byte
	others atomic.Uint64 // taken, for the socket
	half   atomic.Bool   // the regular ones alone
}

func (w *mixedWire) Peek(time.Time) []byte {
	if w.turn%2 == 0 && !w.half.Load() {
		return w.noise
	}
	w.turn |= 1
	fillNumbered(w.frame, w.given, 9)
	return w.frame
}

func (w *mixedWire) Take() {
	if w.turn%2 == 1 {
		w.given++
	} else {
		w.others.Add(1)
	}
	w.turn++
}

func (w *mixedWire) Lossless() bool  { return true }
func (w *mixedWire) Transmit([]byte) {}
func (w *mixedWire) Done() bool      { return false }
func (w *mixedWire) LinkUp() bool    { return true }
func (w *mixedWire) Close() error    { return nil }

// A client that is stopped, goes on and is killed holds the wire for a moment at
// most, and not one frame of the regular queue is lost meanwhile, also while that is
// replaced by one of another kind.
func TestAStoppedClientStopsNobody(t *testing.T) {
	var taken atomic.Int64
	wire := &mixedWire{frame: make([]byte, 200), noise: numberedUDP(0, 300)}
	wire.noise[36], wire.noise[37] = noisePort>>8, noisePort&0xff
	r := newServeRig(t, 1, wire, &taken)
	goesOn := func(what string) {
		t.Helper()
		at := taken.Load()
		require.Eventually(t, func() bool { return taken.Load() > at+5000 }, 60*time.Second, time.Millisecond, what)
		require.NoError(t, r.nic.setPrivFlag("rx_striding_rq", !r.nic.params.flags.rxStriding))
		at = taken.Load()
		require.Eventually(t, func() bool { return taken.Load() > at+1000 }, 60*time.Second, time.Millisecond, what)
	}
	goesOn("nobody is attached")
	for range 2 {
		client := startClient(t, "-attach "+r.path+" -mode rxdrop -queue 1")
		require.Eventually(t, func() bool { return r.nic.channels[0].xsk.stats.redirect.get() > 1000 }, 20*time.Second, time.Millisecond)
		goesOn("a client is at work")
		require.NoError(t, client.Process.Signal(unix.SIGSTOP))
		goesOn("it is stopped")
		others := wire.others.Load()
		goesOn("for longer")
		require.Greater(t, wire.others.Load(), others, "what is for it goes by")
		require.NoError(t, client.Process.Signal(unix.SIGCONT))
		goesOn("it goes on")
		require.NoError(t, client.Process.Signal(unix.SIGSTOP))
		goesOn("again")
		require.NoError(t, client.Process.Kill())
		require.Error(t, client.Wait())
		goesOn("it is dead")
		require.Eventually(t, func() bool { return r.server.lives.Load() == 0 }, 20*time.Second, time.Millisecond)
	}
	wire.half.Store(true)
	goesOn("what is for the regular queue alone")
	r.nic.stop()
	require.Zero(t, r.work[0].bad.Load(), "regular frames that were lost or out of order")
	require.Zero(t, statOf(t, r.nic, "rx_out_of_buffer"))
	require.NotZero(t, statOf(t, r.nic, "rx_xsk_out_of_buffer"))
}

// mostResident is the most memory that this process has had, in bytes.
func mostResident(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	require.True(t, ok)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return n << 10
}

// Whoever is refused has cost no memory: for a busy queue, for an MTU that does not
// fit, for more than all may have together.
func TestRefusalsCostNoMemory(t *testing.T) {
	r := newServeRig(t, 2, nil, new(atomic.Int64))
	holder, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	fds, before := countFDs(t), mostResident(t)
	huge := askFor(0)
	huge.umem = umemConfig{frame: 4096, frames: 131072} // half a gigabyte
	for _, c := range []struct {
		spoil func(*xskRequest)
		says  string
	}{
		{func(*xskRequest) {}, "queue 0 has a socket already"},
		{func(q *xskRequest) { q.umem.headroom = 3000 }, "MTU 1500 is too large"},
		{func(q *xskRequest) {
			r.server.mem.mu.Lock()
			defer r.server.mem.mu.Unlock()
			q.queue, r.server.mem.most = 1, r.server.mem.taken+64<<20
		}, "all may have together"},
	} {
		q := huge
		c.spoil(&q)
		for range 3 {
			_, err := dialXSK(r.path, q)
			require.ErrorContains(t, err, c.says)
		}
	}
	require.Less(t, mostResident(t)-before, 128<<20)

	fits := askFor(1) // a queue whose client was refused is free, and its memory is not taken
	fits.umem = umemConfig{frame: 4096, frames: 2048}
	for range 5 {
		c, err := dialXSK(r.path, fits)
		require.NoError(t, err)
		require.NoError(t, c.close())
		require.Eventually(t, func() bool { _, err := dialAndClose(r.path, fits); return err == nil }, 10*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return r.server.lives.Load() == 1 }, 10*time.Second, time.Millisecond)
	}
	require.NoError(t, holder.close())
	taken := func() int {
		r.server.mem.mu.Lock()
		defer r.server.mem.mu.Unlock()
		return r.server.mem.taken
	}
	require.Eventually(t, func() bool { return taken() == 0 && countFDs(t) <= fds }, 10*time.Second, time.Millisecond)
}

func dialAndClose(path string, q xskRequest) (*xskClient, error) {
	c, err := dialXSK(path, q)
	if err != nil {
		return nil, err
	}
	return c, c.close()
}

// Of many who want one queue at once one gets it.
func TestOneClientGetsTheQueue(t *testing.T) {
	r := newServeRig(t, 1, nil, new(atomic.Int64))
	var got, refused atomic.Int32
	var all sync.WaitGroup
	keep := make(chan struct{})
	for range 20 {
		all.Go(func() {
			c, err := dialXSK(r.path, askFor(0))
			if err != nil {
				refused.Add(1)
				return
			}
			got.Add(1)
			<-keep
			_ = c.close()
		})
	}
	require.Eventually(t, func() bool { return got.Load()+refused.Load() == 20 }, 20*time.Second, time.Millisecond)
	close(keep)
	all.Wait()
	require.EqualValues(t, 1, got.Load())
}

// A client that keeps the memory of a socket that it gave back keeps nothing: what
// it has mapped holds no page any more.
func TestMemoryGivenBackIsGone(t *testing.T) {
	r := newServeRig(t, 1, nil, new(atomic.Int64))
	c, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	defer func() { _ = c.close() }()
	c.mem[5000] = 7
	require.NoError(t, c.conn.Close())
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return c.mem[5000] == 0 }, 10*time.Second, time.Millisecond)
}

// The limit is a share of what the machine has, or the control group allows.
func TestMachineMemory(t *testing.T) {
	dir := t.TempDir()
	whole := machineMemory(dir)
	require.Greater(t, whole, 64<<20)
	limit := func(text string) int {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.max"), []byte(text), 0o600))
		return machineMemory(dir)
	}
	require.Equal(t, whole, limit("max\n"))
	require.Equal(t, 33554432, limit("33554432\n"))
	require.Equal(t, whole, limit("9223372036854771712\n"))
}

// A queue may be named as sockets are counted and as rules count them; the answer
// says both, with and without a queue for control traffic, which has neither.
func TestBothNumbersOfASocketQueue(t *testing.T) {
	for _, trap := range []bool{false, true} {
		r := newServeRigOf(t, wishes{queues: 2, trap: trap}, nil, new(atomic.Int64))
		for asked, index := range map[uint32]int{0: 0, 1: 1, 2: 0, 3: 1} {
			var c *xskClient
			require.Eventually(t, func() (ok bool) {
				var err error
				c, err = dialXSK(r.path, askFor(int(asked)))
				return err == nil
			}, 10*time.Second, time.Millisecond)
			require.EqualValues(t, index, c.grant.index)
			require.EqualValues(t, 2+index, c.grant.queue)
			require.Equal(t, r.nic.mac, net.HardwareAddr(c.grant.mac[:]))
			held := false
			k := r.nic.channels[index]
			k.do(func() { held = k.xsk.sock != nil })
			require.True(t, held, "queue %d", asked)
			require.NoError(t, c.close())
		}
		_, err := dialXSK(r.path, askFor(4))
		require.ErrorContains(t, err, "queue 4: there are 0 to 1, or as rules count them 2 to 3")
		seen := map[uint16]bool{}
		for _, c := range r.nic.channels {
			require.False(t, seen[c.number])
			seen[c.number] = true
			if c.xsk != nil {
				require.EqualValues(t, 2+c.index, c.xsk.number)
				require.False(t, seen[c.xsk.number], "a program can tell a socket's queue from all others")
				seen[c.xsk.number] = true
			}
		}
	}
}

// What -attach sends comes from the port's address, and an appliance that does not
// tell its address is taken as before.
func TestAttachSendsFromThePort(t *testing.T) {
	sent := &recordWire{}
	r := newServeRig(t, 2, sent, new(atomic.Int64))
	var out, log strings.Builder
	require.Zero(t, run(context.Background(), strings.Fields("-attach "+r.path+" -mode txonly -queue 3 -count 10"), &out, &log), "%s", &log)
	require.Contains(t, log.String(), "queue=1 rule_queue=3 address="+r.nic.mac.String())
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 }, 10*time.Second, time.Millisecond)
	r.dev.pause()
	require.Len(t, sent.ends, 10)
	for i := range sent.ends {
		f := sent.frame(i)
		require.Equal(t, r.nic.mac, net.HardwareAddr(f[6:12]))
		require.EqualValues(t, 1, f[14], "the queue's number")
	}
	r.dev.resume()
}

// The address travels in words that were 0 and meant nothing before.
func TestGrantIsCompatible(t *testing.T) {
	places, size, err := layoutRings([xskRings]int{64, 64, 64, 64})
	require.NoError(t, err)
	g := xskGrant{flags: 3, queue: 5, mtu: 1500, start: 256, room: 1792, umemSize: 1 << 20, ringSize: uint64(size), places: places}
	old := g.encode()
	g.mac, g.index = [6]byte{2, 3, 4, 5, 6, 7}, 1
	b := g.encode()
	var differ []int
	for i := range b {
		if b[i] != old[i] {
			differ = append(differ, i)
		}
	}
	require.Equal(t, []int{36, 37, 38, 39, 92, 93, 94}, differ)
	require.Equal(t, []byte{2, 3, 4, 5}, b[36:40])
	require.Equal(t, []byte{6, 7, 1, 0}, b[92:96])
	got, err := decodeGrant(b)
	require.NoError(t, err)
	require.Equal(t, g, got)
	got, err = decodeGrant(old)
	require.NoError(t, err)
	require.Zero(t, got.mac)
}

// Moderation and its flags are in force on sockets' completion queues, at start and
// later, and adaptive moderation counts what sockets receive.
func TestModerationReachesSockets(t *testing.T) {
	log := &commandLog{fail: -1}
	d := testDevice(t, model.Config{Script: log.script()})
	n, err := openNIC(t.Context(), d, false, openOptions{wishes: wishes{queues: 1, xsk: true}, cpus: 2,
		flags: func(c caps) (privFlags, error) { return choosePrivFlags(c, nil) }})
	require.NoError(t, err)
	c := n.channels[0]
	log.reset()
	require.NoError(t, n.setCoalesce([2]moderation{{1, 2}, {3, 4}}, false))
	moved := func() (cqns []uint32) {
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, s := range log.seen {
			if s.Opcode == opModifyCQ {
				cqns = append(cqns, be32(s.In, 8)&indexMask24)
			}
		}
		return cqns
	}
	require.ElementsMatch(t, []uint32{c.rx.cq.n, c.xsk.recv.cq.n, c.tx.cq.n, c.xsk.tx.cq.n}, moved())
	log.reset()
	require.NoError(t, n.setPrivFlag("tx_cqe_moder", true))
	require.NoError(t, n.setPrivFlag("rx_cqe_moder", false))
	require.Len(t, moved(), 8)

	log.reset()
	require.NoError(t, n.setCoalesce([2]moderation{{1, 2}, {3, 4}}, true))
	a := &c.adapt
	log.reset()
	a.sample(loadSample{at: time.Unix(1, 0)}) // the first profile
	require.Eventually(t, func() bool { return n.moder.changes.get() == 1 && !a.asked.Load() }, 10*time.Second, time.Millisecond)
	require.ElementsMatch(t, []uint32{c.rx.cq.n, c.xsk.recv.cq.n}, moved())
	require.True(t, a.covers(c.xsk.recv.cq.n))
	require.False(t, a.covers(c.xsk.tx.cq.n))

	c.xsk.tally.packets, c.xsk.tally.bytes = 5, 700
	c.xsk.publish()
	packets, bytes := c.load()
	require.Equal(t, []uint64{5, 700}, []uint64{packets, bytes})
	require.NoError(t, n.close())
	requireClean(t, d)
}

// What a handler forwards to another port goes by skb_tx_mpwqe, what a program does
// by xdp_tx_mpwqe: whose counters count it.
func TestForwardingGoesByItsFlag(t *testing.T) {
	nics, _ := twoPorts(t, "cx5", [2]model.Wire{&pushWire{}, &pushWire{}}, wishes{queues: 1, promisc: true})
	n, c := nics[0], nics[0].channels[0]
	for _, k := range nics {
		k.start([]handler{newForwardWork()}, false, nil)
	}
	shares := func() (on bool) {
		c.do(func() {})
		require.Eventually(t, func() bool {
			same := false
			c.do(func() { same = c.have == c.want.Load() })
			return same
		}, 10*time.Second, time.Millisecond)
		c.do(func() { on = c.forward.limit > 0 })
		return on
	}
	set := func(skb, xdp bool) {
		require.NoError(t, n.setPrivFlag("skb_tx_mpwqe", skb))
		require.NoError(t, n.setPrivFlag("xdp_tx_mpwqe", xdp))
	}
	for _, on := range []bool{true, false, true} {
		set(on, !on)
		require.Equal(t, on, shares(), "a handler's")
	}
	require.NoError(t, n.attach(toPeer))
	require.False(t, shares(), "a program's, at once")
	for _, on := range []bool{true, false} {
		set(!on, on)
		require.Equal(t, on, shares(), "a program's")
	}
	for _, k := range nics {
		k.stop()
	}
}

// A client that is started anew while its own remains are still being taken back, or
// while another one's request is half done, waits for the queue and gets it.
func TestXSKNextClientWaitsForTheQueue(t *testing.T) {
	var taken atomic.Int64
	r := newServeRig(t, 1, newSplitWire(1<<40, &taken), &taken)
	c := r.nic.channels[0]
	shape := umemConfig{frame: 2048, frames: 512}.shape()
	require.NoError(t, c.reserveXSK(&shape, false))
	freed := time.AfterFunc(100*time.Millisecond, c.freeXSK)
	defer freed.Stop()
	client, err := dialXSK(r.path, askFor(0))
	require.NoError(t, err)
	require.NoError(t, client.close())
}
