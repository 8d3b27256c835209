package model

// walk_test.go builds flow tables, among them the chain that the Linux driver
// programs, and follows frames through them; look-ups against plain search.

import (
	"encoding/binary"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// word sets word i of a match parameter.
func word(i int, v uint32) []byte {
	b := make([]byte, 512)
	putBE32(b, i*4, v)
	return b
}

// join ors match parameters.
func join(list ...[]byte) []byte {
	b := make([]byte, 512)
	for _, l := range list {
		for i, v := range l {
			b[i] |= v
		}
	}
	return b
}

// rigTIR is a direct TIR to a queue of its own.
func (r *rig) rigTIR(c *rigCQ) (*rigRQ, flowDest) {
	q := r.rq(3, 6, c, 2048)
	x := r.d.tirs.add(func(n uint32) *tir { return &tir{n: n, direct: true, rqn: q.n} })
	return q, flowDest{destTIR, x.n}
}

// TestLinuxChain is VLAN table, address table and traffic types, by levels and
// miss actions, without a root set.
func TestLinuxChain(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(8, e)
	udp, toUDP := r.rigTIR(c)
	tcp6, toTCP6 := r.rigTIR(c)
	other, toOther := r.rigTIR(c)
	vlan, l2, ttc := r.table(4), r.table(5), r.table(6)
	fwd := func(value []byte, d flowDest) *flowEntry {
		return &flowEntry{value: value, action: actionForward, dests: []flowDest{d}}
	}
	r.group(vlan, 1, join(word(4, bitCVLAN), word(3, 0xfff)))
	r.group(vlan, 1, word(4, bitCVLAN), fwd(word(4, 0), flowDest{destTable, l2.n}))
	mac := join(word(2, 0xffffffff), word(3, 0xffff0000))
	r.group(l2, 1, mac,
		fwd(join(word(2, 0x02000000), word(3, 0x00010000)), flowDest{destTable, ttc.n}),
		fwd(join(word(2, 0xffffffff), word(3, 0xffff0000)), flowDest{destTable, ttc.n}))
	r.group(l2, 1, word(2, 0x01000000), fwd(word(2, 0x01000000), flowDest{destTable, ttc.n}))
	types := join(word(4, 0xff<<shiftProto), word(4, 0xf<<shiftVersion))
	r.group(ttc, 1, types,
		fwd(word(4, 17<<shiftProto|4<<shiftVersion), toUDP), fwd(word(4, 6<<shiftProto|6<<shiftVersion), toTCP6))
	r.group(ttc, 1, word(4, 0xf<<shiftVersion), fwd(word(4, 4<<shiftVersion), toOther))
	r.group(ttc, 0, make([]byte, 512), fwd(nil, toOther))
	key := r.pa()
	for range 8 {
		udp.post(key, 1)
		tcp6.post(key, 1)
		other.post(key, 1)
	}
	foreign := rigUDP(40, 1)
	foreign[5] = 9
	tagged := append(append(append([]byte(nil), foreign[:12]...), 0x81, 0, 0, 5), foreign[12:]...)
	arp := dataFrame(t, "ffffffffffff 020000000002 0806 0001080006040001 020000000002 0a000001 000000000000 0a000002")
	multi := rigTCP(1, true, 0)
	copy(multi, []byte{0x33, 0x33, 0, 0, 0, 1})
	r.receive(rigUDP(40, 1), foreign, tagged, arp, multi, rigTCP(4, true, 0), rigTCP(4, false, 0))
	require.Equal(t, uint32(1), udp.ci)
	require.Equal(t, uint32(2), tcp6.ci)
	require.Equal(t, uint32(2), other.ci)
	require.Equal(t, uint64(2), r.d.vport.steerMiss)
	account(t, r.d)

	// A miss action leads on; a new root cuts the start off.
	vlan.missAction, vlan.missTable = missForward, ttc.n
	r.d.steerRev++
	r.receive(tagged)
	require.Equal(t, uint32(2), udp.ci)
	r.d.rootRX = ttc.n
	r.d.steerRev++
	r.receive(foreign)
	require.Equal(t, uint32(3), udp.ci)

	// A function that can set its root has none before it does.
	r.d.rootRX = 0
	ftpModifyRoot.set(r.d.tableCap(tableNICRX), 1)
	r.d.steerRev++
	r.receive(foreign)
	require.Equal(t, uint64(3), r.d.vport.steerMiss)
	account(t, r.d)
}

func TestFlowActions(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(8, e)
	a, toA := r.rigTIR(c)
	b, toB := r.rigTIR(c)
	count := r.d.fctrs.add(func(n uint32) *flowCounter { return &flowCounter{n: n} })
	drops := r.d.fctrs.add(func(n uint32) *flowCounter { return &flowCounter{n: n} })
	table := r.table(0)
	port := func(p uint32) []byte { return word(7, p) }
	r.group(table, 1, word(7, 0xffff),
		&flowEntry{value: port(53), action: actionForward | actionCount, tag: 0xabcdef, dests: []flowDest{toA, toB}, counter: count.n},
		&flowEntry{value: port(54), action: actionDrop | actionCount, counter: drops.n},
		&flowEntry{value: port(55), action: actionForward | actionPopVLAN, dests: []flowDest{toA}},
		&flowEntry{value: port(56), action: actionForward | actionPushVLAN, dests: []flowDest{toA}, vlan: [2][4]byte{{0x81, 0, 0, 7}}},
		&flowEntry{value: port(57), action: actionForward, dests: []flowDest{{destTable, 0xffff}}},
		&flowEntry{value: port(58), action: actionForward, dests: []flowDest{{destTable, table.n}}},
		&flowEntry{value: port(59), action: actionAllow})
	key := r.pa()
	for range 8 {
		a.post(key, 1)
		b.post(key, 1)
	}
	to := func(p uint16) []byte {
		f := rigUDP(60, 1)
		putBE16(f, 36, p)
		return f
	}
	f := to(53)
	r.receive(f)
	for range 2 {
		cqe := c.poll()
		require.Equal(t, uint32(0xabcdef), be32(cqe, 56))
	}
	require.Equal(t, f, a.buf(0)[:len(f)])
	require.Equal(t, f, b.buf(0)[:len(f)])
	require.Equal(t, uint64(1), count.packets)
	require.Equal(t, uint64(len(f)), count.bytes)
	r.receive(to(54))
	require.Equal(t, uint64(1), drops.packets)
	require.Equal(t, uint64(1), r.d.vport.ruleDrops)
	f = to(55)
	r.receive(append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0, 5), f[12:]...))
	require.Equal(t, f, a.buf(1)[:len(f)])
	f = to(56)
	r.receive(f)
	require.Equal(t, append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0, 7), f[12:]...), a.buf(2)[:len(f)+4])
	r.receive(to(57), to(58), to(59))
	require.Equal(t, uint64(3), r.d.vport.steerMiss, "no table, a loop, nowhere to go")
	require.Equal(t, uint64(3), r.d.stats.RxDelivered)
	require.Equal(t, uint64(1), r.d.stats.RxCopies)
	account(t, r.d)
}

func TestTunnelMatch(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(8)
	c := r.cq(8, e)
	a, toA := r.rigTIR(c)
	r.d.tirs.get(toA.id).tunneled = true
	table := r.table(0)
	vni := join(word(16+5, 0x123456<<8), word(32+4, 6<<shiftProto), word(4, 17<<shiftProto))
	mask := join(word(16+5, 0xffffff<<8), word(32+4, 0xff<<shiftProto), word(4, 0xff<<shiftProto))
	r.group(table, 7, mask, &flowEntry{value: vni, action: actionForward, dests: []flowDest{toA}})
	key := r.pa()
	a.post(key, 1)
	a.post(key, 1)
	f := vxlan(rigTCP(10, true, tcpACK))
	f = offload(f, &eseg{csum: csumL4})
	other := append([]byte(nil), f...)
	other[46]++ // another VNI
	r.receive(f, other, rigTCP(10, false, 0))
	require.Equal(t, uint64(1), r.d.stats.RxDelivered)
	require.Equal(t, uint64(2), r.d.vport.steerMiss)
	b := c.poll()
	require.Equal(t, byte(1), b[0]&1, "tunneled")
	require.Equal(t, byte(7), b[28])
	require.Equal(t, byte(4<<4|1<<2), b[29], "inner headers")
	require.Equal(t, slowSum(f[14:]), be16(b, 20), "sum of the outer packet")
	// A bad inner checksum shows.
	f[len(f)-1]++
	f = offload(f, &eseg{csum: csumL4})
	r.receive(f)
	require.Equal(t, byte(3), c.poll()[28])
}

// TestLookupAgainstSearch compares compiled look-ups with a plain search over
// random masks, values and packets, with rules changing between.
func TestLookupAgainstSearch(t *testing.T) {
	rnd := rand.New(rand.NewSource(2))
	r := newRig(t)
	table := r.table(0)
	for round := range 200 {
		if round%20 == 0 {
			table.groups = nil
			for range 1 + rnd.Intn(4) {
				mask := make([]byte, 512)
				for range rnd.Intn(4) {
					putBE32(mask, rnd.Intn(48)*4, 3<<rnd.Intn(30))
				}
				r.group(table, uint8(rnd.Intn(8)), mask)
			}
		}
		g := table.groups[rnd.Intn(len(table.groups))]
		if v := make([]byte, 512); rnd.Intn(3) > 0 {
			rnd.Read(v)
			i := uint32(rnd.Intn(50))
			g.entries[i] = &flowEntry{index: i, value: v}
		} else {
			delete(g.entries, uint32(rnd.Intn(50)))
		}
		r.d.steerRev++
		for range 20 {
			m := &r.d.work.match
			for i := range 48 {
				m[i] = rnd.Uint32()
			}
			require.Same(t, searchTable(table, m), r.d.lookup(table))
		}
	}
}

// TestResetForgetsTables has a reset take the tables away.
func TestResetForgetsTables(t *testing.T) {
	r, _, q, key := rigRX(t, 6, 3, 2048)
	q.post(key, 1)
	r.receive(rigUDP(40, 1))
	require.Equal(t, uint64(1), r.d.stats.RxDelivered)
	r.d.Reset()
	r.d.port.adminUp, r.d.port.operUp, r.d.port.mtu = true, true, 10240
	r.wire.lossless = true
	r.receive(rigUDP(40, 1))
	require.Len(t, r.wire.in, 1, "nothing to receive with: it waits")
}

// searchTable is the rule in one sentence: first group, lowest entry that
// equals the packet under the mask.
func searchTable(t *flowTable, m *matchParam) *flowEntry {
	for _, g := range t.groups {
		var best *flowEntry
		for _, e := range g.entries {
			hit := true
			for i := range 128 {
				if g.enable>>(i/16)&1 == 0 {
					continue
				}
				mask := binary.BigEndian.Uint32(g.mask[i*4:])
				hit = hit && m[i]&mask == binary.BigEndian.Uint32(e.value[i*4:])&mask
			}
			if hit && (best == nil || e.index < best.index) {
				best = e
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}
