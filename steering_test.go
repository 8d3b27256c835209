package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// What a class matches in the spread table, by the manual's places: a device
// that knows IP versions is asked for them, another for the EtherType.
func TestMatchFor(t *testing.T) {
	for _, c := range rssClasses {
		for _, byVersion := range []bool{true, false} {
			mask, value := matchFor(c, byVersion)
			require.Len(t, mask, matchOuter.n)
			require.Len(t, value, matchOuter.n)
			for i := range mask {
				require.Zero(t, value[i]&^mask[i], "%s: value outside of the mask at byte %d", c.name, i)
			}
			group := spreadGroups[c.group]
			version, etherType := uint32(0), uint32(0)
			switch {
			case group.version && byVersion:
				version = uint32(c.version)
			case group.version && c.version == 4:
				etherType = 0x0800
			case group.version:
				etherType = 0x86dd
			}
			require.Equal(t, version, l2l4IpVersion.get(value), c.name)
			require.Equal(t, etherType, l2l4Ethertype.get(value), c.name)
			require.EqualValues(t, c.proto, l2l4IpProtocol.get(value), c.name)
			require.Equal(t, c.frag, l2l4Frag.on(value), c.name)
			require.Equal(t, c.name == "other", allZero(mask), "only the last class takes all")
			l2l4IpVersion.set(mask, 0)
			l2l4Ethertype.set(mask, 0)
			l2l4IpProtocol.set(mask, 0)
			l2l4Frag.set(mask, 0)
			require.True(t, allZero(mask), "%s looks at something else too", c.name)
		}
	}
}

// Classes of one group look at the same bits, stand side by side, and no rule
// hides behind a wider one of an earlier group.
func TestSpreadTableIsOrdered(t *testing.T) {
	require.LessOrEqual(t, len(rssClasses), 1<<spreadLog)
	for _, byVersion := range []bool{true, false} {
		masks := map[int][]byte{}
		seen := map[string]string{}
		last := 0
		for _, c := range rssClasses {
			require.GreaterOrEqual(t, c.group, last, "%s stands before its group", c.name)
			last = c.group
			mask, value := matchFor(c, byVersion)
			if m, ok := masks[c.group]; ok {
				require.Equal(t, m, mask, "%s: a group has one mask", c.name)
			}
			masks[c.group] = mask
			key := string(mask) + string(value)
			require.NotContains(t, seen, key, "%s can never match", c.name)
			seen[key] = c.name
			require.NotZero(t, c.hash.fields&hashAddrs)
			if c.frag || c.proto == 0 {
				require.Zero(t, c.hash.fields&^hashAddrs, "%s has no ports to hash", c.name)
			}
		}
		require.Equal(t, "other", rssClasses[len(rssClasses)-1].name)
	}
}

func TestQueueSpread(t *testing.T) {
	require.Equal(t, []uint32{7, 7, 7, 7}, queueSpread([]uint32{7}, 4))
	require.Equal(t, []uint32{5, 9, 6, 5, 9, 6, 5, 9}, queueSpread([]uint32{5, 9, 6}, 8))
	for _, queues := range []int{1, 3, 4, 63, 64} {
		count := map[uint32]int{}
		rqns := make([]uint32, queues)
		for i := range rqns {
			rqns[i] = uint32(1000 + i)
		}
		for _, q := range queueSpread(rqns, 256) {
			count[q]++
		}
		require.Len(t, count, queues)
		for _, n := range count {
			require.InDelta(t, 256/queues, n, 1, "queues differ by one entry at most")
		}
	}
}

func TestMACMatch(t *testing.T) {
	b := macMatch([6]byte{0x02, 0x34, 0x56, 0x78, 0x9a, 0xbc})
	require.EqualValues(t, 0x02345678, l2l4DmacHi.get(b))
	require.EqualValues(t, 0x9abc, l2l4DmacLo.get(b))
	l2l4DmacHi.set(b, 0)
	l2l4DmacLo.set(b, 0)
	require.True(t, allZero(b))
	require.True(t, allZero(macMatch([6]byte{})))
}

// toeplitz is the hash as RFC-less practice defines it (Microsoft RSS): the key
// moves on one bit per input bit, and is added where that bit is one.
func toeplitz(key, in []byte) (h uint32) {
	window := binary.BigEndian.Uint32(key)
	next := 32
	for _, b := range in {
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 != 0 {
				h ^= window
			}
			window = window<<1 | uint32(key[next/8]>>(7-next%8)&1)
			next++
		}
	}
	return h
}

// The key hashes both directions of any connection to the same value.
func TestSymmetricKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	values := map[uint32]bool{}
	for range 2000 {
		addr := 4 << (2 * rng.IntN(2)) // 4 or 16 bytes
		in, back := make([]byte, 2*addr+4), make([]byte, 2*addr+4)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		copy(back, in[addr:2*addr])
		copy(back[addr:], in[:addr])
		copy(back[2*addr:], in[2*addr+2:])
		copy(back[2*addr+2:], in[2*addr:2*addr+2])
		h := toeplitz(symmetricKey[:], in)
		require.Equal(t, h, toeplitz(symmetricKey[:], back))
		values[h&0xff] = true
	}
	require.Len(t, values, 256, "the hash does not spread")
	// The published test vector shows that toeplitz itself is right.
	key := []byte{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa}
	require.EqualValues(t, 0x51ccc178, toeplitz(key, []byte{66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6}))
}

// collector notes on which queue each frame came; a frame's last 4 bytes are its
// number.
type collector struct {
	mu    sync.Mutex
	queue map[uint32][]int
	total int
}

// collectorHandler is a channel's part of it.
type collectorHandler struct {
	c       *collector
	scratch []byte
}

func (h *collectorHandler) handle(c *channel, packets []packet) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for i := range packets {
		b := c.rx.contiguous(&packets[i], h.scratch)
		id := binary.BigEndian.Uint32(b[len(b)-4:])
		h.c.queue[id] = append(h.c.queue[id], c.index)
		h.c.total++
	}
}

func (h *collectorHandler) turn(*channel) int { return 0 }
func (h *collectorHandler) idle(*channel)     {}

// gatedWire holds its frames back until it is opened: a VF's port is up before
// its driver is, and what comes meanwhile is not for us.
type gatedWire struct {
	model.Wire
	open atomic.Bool
}

func (w *gatedWire) Peek(now time.Time) []byte {
	if !w.open.Load() {
		return nil
	}
	return w.Wire.Peek(now)
}

func (w *gatedWire) Done() bool { return w.open.Load() && w.Wire.Done() }

// received replays frames into an emulated NIC and returns where each went, and
// the counters at the end. wait says how many must come.
func received(t *testing.T, profile string, w wishes, frames [][]byte, wait int) (map[uint32][]int, map[string]uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "frames.pcap")
	writePcap(t, path, frames)
	replay, err := model.ParseWire("replay:" + path)
	require.NoError(t, err)
	wire := &gatedWire{Wire: replay}
	d := testDevice(t, model.Config{Profile: profile, Wire: wire})
	n, err := testOpen(d, w)
	require.NoError(t, err)
	col := &collector{queue: map[uint32][]int{}}
	handlers := make([]handler, len(n.channels))
	for i := range handlers {
		handlers[i] = &collectorHandler{c: col, scratch: make([]byte, n.params.rxLayout.room())}
	}
	n.start(handlers, false, nil)
	wire.open.Store(true)
	require.Eventually(t, func() bool {
		col.mu.Lock()
		defer col.mu.Unlock()
		return d.m.WireDone() && col.total >= wait && d.m.Stats().RxFrames == uint64(len(frames))
	}, 20*time.Second, time.Millisecond)
	n.stop()
	stats := newStatReader(n)
	require.NoError(t, stats.update())
	counters := map[string]uint64{}
	for _, s := range stats.read() {
		counters[s.name] = s.value
	}
	require.NoError(t, n.close())
	requireClean(t, d)
	require.Equal(t, wait, col.total, "more came than should")
	return col.queue, counters
}

// flowKind is one kind of traffic in which the two directions must meet.
type flowKind struct {
	name string
	// build makes a frame of one direction around body.
	build func(src, dst []byte, sport, dport uint16, body []byte) []byte
}

func ip4Between(src, dst []byte, proto uint8, frag uint16, body []byte) []byte {
	b := ip4Packet(proto, frag, body)
	copy(b[12:], src[:4])
	copy(b[16:], dst[:4])
	return ethFrame(ethIPv4, b)
}

func ip6Between(src, dst []byte, next uint8, body []byte) []byte {
	b := ip6Packet(next, body)
	copy(b[8:], src)
	copy(b[24:], dst)
	return ethFrame(ethIPv6, b)
}

// ip6Fragment is a fragment header before body.
func ip6Fragment(next uint8, offset uint16, more bool, body []byte) []byte {
	h := []byte{next, 0, byte(offset >> 8), byte(offset), 0, 0, 0, 1}
	if more {
		h[3] |= 1
	}
	return append(h, body...)
}

const moreFragments = 0x2000

var flowKinds = []flowKind{
	{"tcp4", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip4Between(s, d, ipTCP, 0, tcpSegment(sp, dp, 1, 0x10, b))
	}},
	{"udp4", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip4Between(s, d, ipUDP, 0, udpDatagram(sp, dp, b))
	}},
	{"tcp6", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip6Between(s, d, ipTCP, tcpSegment(sp, dp, 1, 0x10, b))
	}},
	{"udp6", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip6Between(s, d, ipUDP, udpDatagram(sp, dp, b))
	}},
	{"icmp4", func(s, d []byte, _, _ uint16, b []byte) []byte {
		return ip4Between(s, d, 1, 0, append([]byte{8, 0, 0, 0, 0, 0, 0, 0}, b...))
	}},
	{"first fragment of udp4", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip4Between(s, d, ipUDP, moreFragments, udpDatagram(sp, dp, b))
	}},
	{"later fragment of udp4", func(s, d []byte, _, _ uint16, b []byte) []byte {
		return ip4Between(s, d, ipUDP, 185, b)
	}},
	{"first fragment of udp6", func(s, d []byte, sp, dp uint16, b []byte) []byte {
		return ip6Between(s, d, 44, ip6Fragment(ipUDP, 0, true, udpDatagram(sp, dp, b)))
	}},
	{"later fragment of udp6", func(s, d []byte, _, _ uint16, b []byte) []byte {
		return ip6Between(s, d, 44, ip6Fragment(ipUDP, 1480, false, b))
	}},
}

// numberedBody fills a packet up beyond the least frame and ends in a number.
func numberedBody(id uint32) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 40), id)
}

// C22: both directions of 1000 flows meet on one queue, whatever they carry, and
// flows spread over all queues. Fragments of a flow, which are known by their
// addresses alone, meet with each other.
func TestBothDirectionsMeetOnOneQueue(t *testing.T) {
	const flows, queues = 1000, 4
	rng := rand.New(rand.NewPCG(7, 8))
	var frames [][]byte
	kindOf := make([]int, flows)
	for i := range flows {
		k := i % len(flowKinds)
		src, dst := make([]byte, 16), make([]byte, 16)
		for j := range src {
			src[j], dst[j] = byte(rng.Uint32()), byte(rng.Uint32())
		}
		src[0], dst[0] = 0x20, 0x20
		sport, dport := uint16(rng.Uint32()), uint16(rng.Uint32())
		if k == 6 || k == 8 { // fragments of the flow before: the same addresses
			kindOf[i] = k
			continue
		}
		kindOf[i] = k
		add := func(kind, id int) {
			build := flowKinds[kind].build
			frames = append(frames, build(src, dst, sport, dport, numberedBody(uint32(id))), build(dst, src, dport, sport, numberedBody(uint32(id))))
		}
		add(k, i)
		if k == 5 || k == 7 {
			add(k+1, i)
		}
	}
	rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			went, _ := received(t, profile, wishes{queues: queues, promisc: true}, frames, len(frames))
			spread := map[int]map[int]int{}
			for id, list := range went {
				kind := kindOf[id]
				require.GreaterOrEqual(t, len(list), 2)
				for _, q := range list {
					require.Equal(t, list[0], q, "%s, flow %d: %v", flowKinds[kind].name, id, list)
				}
				if spread[kind] == nil {
					spread[kind] = map[int]int{}
				}
				spread[kind][list[0]]++
			}
			for kind, count := range spread {
				require.Len(t, count, queues, "%s does not use all queues: %v", flowKinds[kind].name, count)
				for q, n := range count {
					require.Greater(t, n, 8, "%s: queue %d gets next to nothing: %v", flowKinds[kind].name, q, count)
				}
			}
		})
	}
}

// toMAC is a frame to an address.
func toMAC(mac [6]byte, id uint32) []byte {
	b := ip4Between([]byte{10, 0, 0, 1}, []byte{10, 0, 0, 2}, ipUDP, 0, udpDatagram(1, uint16(id), numberedBody(id)))
	copy(b, mac[:])
	return b
}

// C25: without promiscuous mode the own address, broadcast and multicast come
// in, the rest is counted by name; with it everything comes.
// (C26 does not apply: the addresses that a NIC listens to are those it was opened
// with; none is removed while it runs.)
func TestAddressFilter(t *testing.T) {
	kinds := []struct {
		mac  [6]byte
		ours bool
	}{
		{[6]byte{2, 0, 0, 0, 0, 1}, true}, // the model's
		{[6]byte{255, 255, 255, 255, 255, 255}, true},
		{[6]byte{1, 0, 0x5e, 1, 2, 3}, true},
		{[6]byte{0x33, 0x33, 0, 0, 0, 1}, true},
		{[6]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, true}, // LLDP
		{[6]byte{2, 0, 0, 0, 0, 2}, false},
		{[6]byte{2, 0, 0, 0, 1, 1}, false},
		{[6]byte{0, 0x11, 0x22, 0x33, 0x44, 0x55}, false},
		{[6]byte{}, false},
	}
	var frames [][]byte
	ours := 0
	for i := range 450 {
		k := kinds[i%len(kinds)]
		frames = append(frames, toMAC(k.mac, uint32(i)))
		if k.ours {
			ours++
		}
	}
	for _, profile := range model.Profiles() {
		for _, promisc := range []bool{false, true} {
			name := profile + "/own"
			wait := ours
			if promisc {
				name, wait = profile+"/all", len(frames)
			}
			t.Run(name, func(t *testing.T) {
				went, counters := received(t, profile, wishes{queues: 4, promisc: promisc}, frames, wait)
				for id := range frames {
					_, came := went[uint32(id)]
					require.Equal(t, promisc || kinds[id%len(kinds)].ours, came, "frame to % x", kinds[id%len(kinds)].mac)
				}
				require.EqualValues(t, wait, counters["rx_packets"])
				if profile == "cx4" && promisc {
					require.NotContains(t, counters, "rx_steer_missed_packets", "nothing is missed and nothing would count it")
				} else {
					require.EqualValues(t, len(frames)-wait, counters["rx_steer_missed_packets"])
				}
				lost := uint64(0)
				for name := range dropNames() {
					lost += counters[name]
				}
				require.EqualValues(t, len(frames), counters["rx_packets"]+lost, "wire = delivered + named drops")
			})
		}
	}
}

// Without all-multicast only the groups given pass.
func TestAllMulticastOff(t *testing.T) {
	var frames [][]byte
	for _, last := range []byte{1, 9} {
		frames = append(frames, append([]byte{0x33, 0x33, 0, 0, 0, last, 2, 0, 0, 0, 0, 7, 0x86, 0xdd}, make([]byte, 46)...))
	}
	path := filepath.Join(t.TempDir(), "multi.pcap")
	writePcap(t, path, frames)
	for _, profile := range model.Profiles() {
		for _, all := range []bool{true, false} {
			code, out, errs := cli(t, "-emulate", "-profile", profile, "-wire", "replay:"+path, "-json", "-promisc=false", fmt.Sprintf("-allmulti=%v", all))
			require.Equal(t, exitDone, code, errs)
			var s summary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			require.EqualValues(t, map[bool]int{true: 2, false: 1}[all], s.Packets, "%s allmulti=%v", profile, all)
		}
	}
}

// C20: an indirection table of 256 entries, each of which counts: traffic goes where
// the entry of its hash leads, whatever stands there. After closing and opening again
// the table is the one it was at first.
func TestTrafficFollowsEveryEntry(t *testing.T) {
	const entries, queues = 256, 4
	rng := rand.New(rand.NewPCG(20, 20))
	var frames [][]byte
	var at []int // entry of each frame
	for count := [entries]int{}; len(frames) < 2*entries; {
		f := ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(uint16(rng.Uint32()), uint16(rng.Uint32()), numberedBody(0))))
		for i := range 8 {
			f[26+i] = byte(rng.Uint32())
		}
		e := int(toeplitz(symmetricKey[:], f[26:38]) % entries)
		if count[e]++; count[e] <= 2 {
			frames, at = append(frames, f), append(at, e)
		}
	}
	for _, profile := range model.Profiles() {
		for range 2 {
			r := newRuleRig(t, profile, wishes{queues: queues, promisc: true})
			for i, q := range r.send(frames...) {
				require.Equal(t, at[i]%queues, q, "entry %d, as opened", at[i])
			}
			table := r.n.steering.tables[0]
			require.Len(t, table.rqns, entries)
			want := make([]int, entries)
			rqns := make([]uint32, entries)
			for i := range want {
				want[i] = rng.IntN(queues)
				rqns[i] = r.n.queueOf(want[i])
			}
			require.NoError(t, r.n.fw.modifyRQT(table.n, rqns))
			for i, q := range r.send(frames...) {
				require.Equal(t, want[at[i]], q, "entry %d", at[i])
			}
			r.close()
		}
	}
}
