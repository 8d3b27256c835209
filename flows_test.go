package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// findFlow parses a frame and finds its flow.
func findFlow(t testing.TB, table *flowTable, b []byte, ts int64) (*flow, int) {
	t.Helper()
	p := parseTest(b)
	return table.find(p, p.best(), ts)
}

// addressed sets the IPv4 addresses of an untagged frame.
func addressed(b []byte, src, dst uint32) []byte {
	binary.BigEndian.PutUint32(b[26:], src)
	binary.BigEndian.PutUint32(b[30:], dst)
	return b
}

func tcpFrame(src, dst uint32, sport, dport uint16) []byte {
	return addressed(ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(sport, dport, 1, tcpACK, nil))), src, dst)
}

func TestFlowDirectionsMeet(t *testing.T) {
	table := newFlowTable(1 << 13)
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 1000 {
		src, dst, sport, dport := rnd.Uint32(), rnd.Uint32(), uint16(rnd.Uint32()), uint16(rnd.Uint32())
		if i%10 == 0 {
			dst = src // both ends on one host: ports decide
		}
		there, d1 := findFlow(t, table, tcpFrame(src, dst, sport, dport), 1)
		back, d2 := findFlow(t, table, tcpFrame(dst, src, dport, sport), 2)
		require.Same(t, there, back)
		require.NotEqual(t, d1, d2)
	}
	require.Equal(t, uint64(1000), table.created)
	require.Equal(t, 1000, table.live)
}

func TestFlowKeyParts(t *testing.T) {
	table := newFlowTable(64)
	udp := ip4Packet(17, 0, udpDatagram(5, 6, nil))
	vxlan := func(vni byte) []byte {
		body := append([]byte{8, 0, 0, 0, 0, 0, vni, 0}, ethFrame(ethIPv4, udp)...)
		return ethFrame(ethIPv4, ip4Packet(17, 0, udpDatagram(uint16(vni)+1000, 4789, body)))
	}
	frames := map[string][]byte{
		"plain":    ethFrame(ethIPv4, udp),
		"tcp":      ethFrame(ethIPv4, ip4Packet(6, 0, tcpSegment(5, 6, 0, 0, nil))),
		"vlan 5":   ethFrame(ethVLAN, vlanTagged(5, ethIPv4, udp)),
		"vlan 6":   ethFrame(ethVLAN, vlanTagged(6, ethIPv4, udp)),
		"qinq 5 6": ethFrame(ethVLAN, vlanTagged(5, ethVLAN, vlanTagged(6, ethIPv4, udp))),
		"vni 1":    vxlan(1),
		"vni 2":    vxlan(2),
		"ipip":     ethFrame(ethIPv4, ip4Packet(4, 0, udp)),
	}
	seen := map[*flow]string{}
	for name, b := range frames {
		f, _ := findFlow(t, table, b, 1)
		require.Empty(t, seen[f], name)
		seen[f] = name
	}
	// Priority is not part of the key, and priority-tagged is untagged.
	f, _ := findFlow(t, table, ethFrame(ethVLAN, vlanTagged(0xe005, ethIPv4, udp)), 1)
	require.Equal(t, "vlan 5", seen[f])
	f, _ = findFlow(t, table, ethFrame(ethVLAN, vlanTagged(0xe000, ethIPv4, udp)), 1)
	require.Equal(t, "plain", seen[f])
}

func TestFlowFragmentsStayTogether(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		frame := func(id uint16, offset uint16, more bool, body []byte) []byte {
			if v6 {
				word := offset << 3
				if more {
					word |= 1
				}
				h := []byte{17, 0, byte(word >> 8), byte(word), 0, 0, byte(id >> 8), byte(id)}
				return ethFrame(ethIPv6, ip6Packet(44, append(h, body...)))
			}
			if more {
				offset |= 0x2000
			}
			b := ethFrame(ethIPv4, ip4Packet(17, offset, body))
			binary.BigEndian.PutUint16(b[18:], id)
			return b
		}
		table := newFlowTable(64)
		udp := udpDatagram(7, 8, make([]byte, 40))
		first, _ := findFlow(t, table, frame(1, 0, true, udp[:24]), 1)
		later, _ := findFlow(t, table, frame(1, 3, false, udp[24:]), 2)
		require.Same(t, first, later)
		require.Zero(t, table.fragOrphans)
		orphan, _ := findFlow(t, table, frame(2, 3, false, udp[24:]), 3)
		require.NotSame(t, first, orphan, "its ports are not known")
		require.Equal(t, uint64(1), table.fragOrphans)
		stale, _ := findFlow(t, table, frame(1, 3, false, udp[24:]), 2+fragLife)
		require.Same(t, orphan, stale, "an identification is used again")
		require.Equal(t, uint64(2), table.created)
	}
}

// A flood of lone first fragments keeps to its memory and is counted.
func TestFlowFragmentFlood(t *testing.T) {
	table := newFlowTable(64)
	b := ethFrame(ethIPv4, ip4Packet(17, 0x2000, udpDatagram(1, 2, make([]byte, 8))))
	for i := range 50_000 {
		binary.BigEndian.PutUint16(b[18:], uint16(i))
		addressed(b, uint32(i>>16)+1, 2)
		findFlow(t, table, b, int64(i))
	}
	require.Greater(t, table.fragEvicted, uint64(40_000))
}

func TestFlowEviction(t *testing.T) {
	const size = 256
	table := newFlowTable(size)
	big, _ := findFlow(t, table, tcpFrame(1, 2, 3, 4), 1)
	big.account(fromA, 1_000_000, 1)
	bigKey := big.key
	for i := range uint32(10_000) {
		f, dir := findFlow(t, table, tcpFrame(0x0b000000+i, 2, 3, 4), int64(i)+2)
		f.account(dir, 60, int64(i)+2)
	}
	require.LessOrEqual(t, table.live, size)
	require.Equal(t, table.created, uint64(table.live)+table.evictedIdle+table.evictedActive)
	require.NotZero(t, table.evictedActive)
	require.Zero(t, table.evictedIdle)
	kept := false
	table.each(func(f *flow) { kept = kept || f.key == bigKey && f.total() == 1_000_000 })
	require.True(t, kept, "the largest flow is remembered")

	before := table.evictedActive
	for i := range uint32(100) {
		findFlow(t, table, tcpFrame(0x0c000000+i, 2, 3, 4), int64(i)+20_000+flowIdle)
	}
	require.NotZero(t, table.evictedIdle)
	require.LessOrEqual(t, table.evictedActive-before, uint64(60))
}

// The oldest of a bucket goes first.
func TestFlowEvictsOldest(t *testing.T) {
	table := newFlowTable(flowWays) // one bucket
	for i := range uint32(flowWays) {
		findFlow(t, table, tcpFrame(100+i, 2, 3, 4), int64(i)+1)
	}
	f, dir := findFlow(t, table, tcpFrame(100, 2, 3, 4), 50)
	f.account(dir, 60, 50)
	findFlow(t, table, tcpFrame(200, 2, 3, 4), 60)
	created := table.created
	findFlow(t, table, tcpFrame(100, 2, 3, 4), 61)
	require.Equal(t, created, table.created, "the refreshed flow is still there")
	findFlow(t, table, tcpFrame(101, 2, 3, 4), 62)
	require.Equal(t, created+1, table.created, "the oldest one was put out")
}

func TestFlowNoAllocations(t *testing.T) {
	table := newFlowTable(64)
	p := parseTest(tcpFrame(1, 2, 3, 4))
	i := uint32(0)
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		i++
		binary.BigEndian.PutUint32(p.hdr[0].src[12:], i)
		f, dir := table.find(p, p.best(), int64(i))
		f.account(dir, 60, int64(i))
	}))
	require.Greater(t, table.created, uint64(2000))
}

func TestStreamSlot(t *testing.T) {
	want := make([]byte, streamBytes)
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range want {
		want[i] = byte(rnd.Uint32())
	}
	slot := new(streamSlot)
	put := func(off, n int) (int, bool) {
		data := make([]byte, n)
		for i := range data {
			if at := off + i; at >= 0 && at < len(want) {
				data[i] = want[at]
			}
		}
		return slot.put(off, data)
	}
	for _, c := range []struct {
		off, n, ready int
		kept          bool
	}{
		{10, 10, 0, true},
		{30, 10, 0, true},
		{50, 10, 0, true},
		{70, 10, 0, true},
		{90, 10, 0, false}, // too many gaps
		{0, 5, 0, false},
		{20, 10, 0, true}, // joins two
		{0, 5, 5, true},
		{-3, 8, 5, true}, // retransmission from before the base
		{3, 10, 40, true},
		{40, 30, 80, true},
		{80, 5000, 5080, true},
		{9000, 100, 5080, true},
		{-100, 50, 5080, true},
	} {
		ready, kept := put(c.off, c.n)
		require.Equal(t, fmt.Sprint(c.ready, c.kept), fmt.Sprint(ready, kept), "%+v", c)
	}
	ready, _ := slot.put(5000, make([]byte, 9000))
	require.Equal(t, streamBytes, ready)
	require.Equal(t, want[:5000], slot.buf[:5000])
}

// Any order of segments, cut anywhere, gives the same bytes.
func TestStreamSlotRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	want := make([]byte, 3000)
	for i := range want {
		want[i] = byte(rnd.Uint32())
	}
	for range 2000 {
		// Up to 8 segments leave at most 4 runs at a time.
		at := []int{0, len(want)}
		for range rnd.IntN(8) {
			at = append(at, rnd.IntN(len(want)))
		}
		slices.Sort(at)
		slot, ready := new(streamSlot), 0
		for _, i := range rnd.Perm(len(at) - 1) {
			// Some reach into their neighbour, as retransmissions do.
			from, to := at[i], min(at[i+1]+rnd.IntN(2)*rnd.IntN(200), len(want))
			var kept bool
			ready, kept = slot.put(from, want[from:to])
			require.True(t, kept)
			require.Equal(t, want[:ready], slot.buf[:ready])
		}
		require.Equal(t, len(want), ready)
	}
}

func TestStreamPoolTakesBack(t *testing.T) {
	table := newFlowTable(1024)
	var flows []*flow
	for i := range uint32(streamSlots + 1) {
		f, dir := findFlow(t, table, tcpFrame(100+i, 2, 3, 4), int64(i))
		table.lend(f, dir, 0)
		flows = append(flows, f)
	}
	require.Equal(t, uint64(1), table.streamStolen)
	require.Equal(t, int16(noSlot), flows[0].streams[0].slot)
	require.Equal(t, int16(noSlot), flows[0].streams[1].slot)
	for _, f := range flows[1:] {
		table.release(f)
	}
	for i := range table.pool.slots {
		require.Equal(t, int32(noSlot), table.pool.slots[i].owner)
	}
}

func TestNameTable(t *testing.T) {
	table := &nameTable{seed: rand.Uint64()}
	for range 1000 {
		table.add([]byte("often.example"))
	}
	long := make([]byte, 1000)
	table.add(long)
	for i := range 20_000 { // a flood of names that occur once
		table.add(fmt.Appendf(nil, "%d.random.example", i))
		if i%100 == 0 {
			table.add([]byte("often.example"))
		}
	}
	found := false
	for i := range table.entries {
		e := &table.entries[i]
		found = found || string(e.name[:e.size]) == "often.example" && e.count >= 1200
	}
	require.True(t, found)
	require.Zero(t, testing.AllocsPerRun(100, func() { table.add(long[:300]) }))
}

func BenchmarkFlowFind(b *testing.B) {
	table := newFlowTable(0)
	p := parseTest(tcpFrame(1, 2, 3, 4))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint16(p.hdr[0].src[14:], uint16(i)&4095)
		table.find(p, p.best(), 1)
	}
}
