package model

// control_life_test.go makes one object of every kind, uses the commands that
// change and query it, and takes everything down: nothing may be left. It also
// covers pages, reset, and the two ways to reach BAR0.

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// objects makes one object of each kind and returns how to destroy them in
// order.
func (h *ctlHost) objects() (destroy [][]byte) {
	h.t.Helper()
	last := func(b []byte) { destroy = append([][]byte{b}, destroy...) }
	mk := h.ok(h.mkeyMsg(), 16)
	last(num(0x202, mk))
	qc := h.ok(msg(0x771, 16), 16) & 0xff
	last(num(0x772, qc))
	cqn := h.ok(h.cqMsg(), 16)
	last(num(0x401, cqn))
	tisn := h.ok(msg(0x912, 192, inside(createTISCtx, tiscTransportDomain), int(h.td), inside(createTISCtx, tiscPrio), 2), 16)
	last(num(0x914, tisn))
	sqn := h.ok(h.sqMsg(cqn, tisn), 16)
	last(num(0x906, sqn))
	rmpn := h.ok(h.wq(msg(0x90c, 272, inside(createRMPCtx, rmpcState), 1), createRMPCtx, 1, 6, 5), 16)
	last(num(0x90e, rmpn))
	in := h.rqMsg(cqn)
	inside(createRQCtx, rqcCounterSetId).set(in, uint64(qc))
	rqn := h.ok(in, 16)
	last(num(0x90a, rqn))
	pooled := h.ok(msg(0x908, 272, inside(createRQCtx, rqcCqn), int(cqn), inside(createRQCtx, rqcMemRqType), 1, inside(createRQCtx, rqcRmpn), int(rmpn)), 16)
	last(num(0x90a, pooled))
	rqtn := h.ok(h.rqtMsg(256, rqn, pooled), 16)
	last(num(0x918, rqtn))
	tirn := h.ok(h.tirMsg(rqtn), 16)
	last(num(0x902, tirn))
	h.changeObjects(cqn, sqn, rqn, rqtn, tirn, tisn, mk, qc)
	return append(h.steering(tirn), destroy...)
}

// changeObjects modifies and queries what objects made.
func (h *ctlHost) changeObjects(cqn, sqn, rqn, rqtn, tirn, tisn, mk, qc uint32) {
	t := h.t
	t.Helper()
	in := num(0x905, sqn)
	in = append(in, make([]byte, 272-16)...)
	inside(modifySQCtx, sqcState).set(in, sqRDY)
	h.ok(in, 16)
	h.ok(num(0x907, sqn), 272)
	require.EqualValues(t, sqRDY, inside(querySQOutCtx, sqcState).get(h.out))
	require.EqualValues(t, cqn, inside(querySQOutCtx, sqcCqn).get(h.out))
	require.EqualValues(t, tisn, inside(querySQOutCtx, sqcTisNum0).get(h.out))

	in = append(num(0x909, rqn), make([]byte, 272-16)...)
	inside(modifyRQCtx, rqcState).set(in, rqRDY)
	h.ok(in, 16)
	in = append(num(0x909, rqn), make([]byte, 272-16)...)
	modifyRQRqState.set(in, rqRDY)
	modifyRQModifyBitmask.set(in, rqModifyVSD)
	inside(modifyRQCtx, rqcState).set(in, rqRDY)
	inside(modifyRQCtx, rqcVsd).set(in, 1)
	h.ok(in, 16)
	h.ok(num(0x90b, rqn), 272)
	require.EqualValues(t, 1, inside(queryRQOutCtx, rqcVsd).get(h.out))
	require.EqualValues(t, qc, inside(queryRQOutCtx, rqcCounterSetId).get(h.out))

	in = append(num(0x403, cqn), make([]byte, 272-16)...)
	modifyCQSelect.set(in, cqModifyPeriod|cqModifyCount)
	inside(modifyCQCqContext, cqcCqPeriod).set(in, 8)
	inside(modifyCQCqContext, cqcCqMaxCount).set(in, 32)
	h.ok(in, 16)
	h.ok(num(0x402, cqn), 272)
	require.EqualValues(t, 8, inside(queryCQOutCqContext, cqcCqPeriod).get(h.out))
	require.EqualValues(t, h.eqn, inside(queryCQOutCqContext, cqcCEqn).get(h.out))

	h.changeTransport(rqn, rqtn, tirn, tisn)
	h.ok(num(0x201, mk), 304)
	require.EqualValues(t, h.pd, inside(queryMkeyOutMemoryKeyMkeyEntry, mkcPd).get(h.out))
	h.ok(num(0x303, h.eqn), 272)
	require.EqualValues(t, 4, inside(queryEQOutEqContextEntry, eqcIntr).get(h.out))
	h.ok(msg(0x773, 32, qcounterInCounterSetId, int(qc)), 256)
	h.ok(msg(0x203, 16), 32)
}

// changeTransport modifies and queries an RQT, a TIR and a TIS.
func (h *ctlHost) changeTransport(rqn, rqtn, tirn, tisn uint32) {
	t := h.t
	t.Helper()
	in := append(num(0x917, rqtn), make([]byte, 272-16)...)
	rqtMaskRqnList.set(modifyRQTBitmask.in(in), 1)
	inside(modifyRQTCtx, rqtcRqtActualSize).set(in, 3)
	for range 3 {
		in = binary.BigEndian.AppendUint32(in, rqn)
	}
	h.ok(in, 16)
	h.ok(num(0x919, rqtn), 272+12)
	require.EqualValues(t, 3, inside(queryRQTOutCtx, rqtcRqtActualSize).get(h.out))
	require.EqualValues(t, rqn, binary.BigEndian.Uint32(h.out[272+8:]))

	in = append(num(0x901, tirn), make([]byte, 272-16)...)
	tirMaskHash.set(modifyTIRBitmask.in(in), 1)
	inside(modifyTIRCtx, tircRxHashFn).set(in, hashToeplitz)
	key := inside(modifyTIRCtx, tircRxHashToeplitzKey).in(in)
	for i := range key {
		key[i] = byte(i + 1)
	}
	h.ok(in, 16)
	h.ok(num(0x903, tirn), 272)
	require.Equal(t, key, inside(queryTIROutCtx, tircRxHashToeplitzKey).in(h.out))
	h.ok(num(0x915, tisn), 176)
	require.EqualValues(t, 2, inside(queryTISOutCtx, tiscPrio).get(h.out))
}

// steering makes two tables, groups, a counter and entries that lead to a TIR.
func (h *ctlHost) steering(tirn uint32) (destroy [][]byte) {
	t := h.t
	t.Helper()
	chained := ftpIdentifiedMissTableMode.on(h.d.tableCap(tableNICRX))
	second := h.ok(h.tableMsg(10, 7), 16)
	first := h.ok(h.tableMsg(5, 16), 16)
	if chained {
		in := h.tableMsg(0, 0)
		binary.BigEndian.PutUint16(in, 0x93c)
		tableRefTableId.set(in, uint64(first))
		modifyTableModifyFieldSelect.set(in, modifyMissTable)
		inside(modifyTableCtx, ftxTableMissAction).set(in, missForward)
		inside(modifyTableCtx, ftxTableMissId).set(in, uint64(second))
		h.ok(in, 16)
	}
	h.ok(msg(0x92f, 64, tableRefTableId, int(first)), 16)
	h.ok(msg(0x932, 64, tableRefTableId, int(first)), 64)
	require.EqualValues(t, 5, inside(queryTableOutCtx, ftxLevel).get(h.out))
	byMAC := h.ok(h.groupMsg(first, 0, 99, matchOuter, inside(matchOuterHeaders, lyrDmac4716), 0xffffffff, inside(matchOuterHeaders, lyrDmac150), 0xffff), 16)
	rest := h.ok(h.groupMsg(second, 0, 0, 0), 16)
	h.ok(msg(0x935, 64, tableRefTableId, int(first), groupRefGroupId, int(byMAC)), 1024)
	require.EqualValues(t, 99, queryGroupOutEndFlowIndex.get(h.out))
	action, counter := actionForward, uint32(0)
	in := h.fteMsg(first, byMAC, 7, action, flowDest{destTable, second})
	if chained {
		counter = h.ok(msg(0x939, 16), 16)
		inside(setFTECtx, flowAction).set(in, actionForward|actionCount)
		inside(setFTECtx, flowFlowCounterListSize).set(in, 1)
		in = binary.BigEndian.AppendUint32(in, counter)
		in = append(in, 0, 0, 0, 0)
	}
	inside(inside(setFTECtx, flowMatchValue), inside(matchOuterHeaders, lyrDmac4716)).set(in, 0x02000000)
	h.ok(in, 16)
	h.ok(h.fteMsg(second, rest, 0, action, flowDest{destTIR, tirn}), 16)
	h.ok(msg(0x937, 64, tableRefTableId, int(first), setFTEFlowIndex, 7), 848)
	require.EqualValues(t, byMAC, inside(queryFTEOutCtx, flowGroupId).get(h.out))
	require.Equal(t, []byte{destTable, 0, 0, byte(second)}, h.out[832:836])
	destroy = [][]byte{
		msg(0x938, 64, tableRefTableId, int(first), setFTEFlowIndex, 7),
		msg(0x938, 64, tableRefTableId, int(second), setFTEFlowIndex, 0),
		msg(0x934, 64, tableRefTableId, int(first), groupRefGroupId, int(byMAC)),
		msg(0x934, 64, tableRefTableId, int(second), groupRefGroupId, int(rest)),
		msg(0x931, 64, tableRefTableId, int(first)),
		msg(0x931, 64, tableRefTableId, int(second)),
	}
	if chained {
		h.ok(msg(0x93b, 32, queryCounterFlowCounterId, int(counter)), 32)
		destroy = append(destroy, msg(0x93a, 16, deallocCounterFlowCounterId, int(counter)))
	}
	return destroy
}

func TestLifeCycle(t *testing.T) {
	for _, profile := range Profiles() {
		for _, mapped := range []bool{false, true} {
			h := newCtlHost(t, profile, nil)
			h.mapped = mapped
			for round := range 3 {
				h.up()
				destroy := h.objects()
				s := h.d.Stats()
				for _, kind := range []string{"eq", "cq", "sq", "rq", "tir", "tis", "rqt", "pd", "td", "mkey", "uar", "flow_table", "flow_group", "flow_entry", "q_counter", "rmp"} {
					require.Contains(t, s.Objects, kind)
				}
				require.Equal(t, h.d.prof.bootPages+h.d.prof.initPages, s.Pages)
				require.Equal(t, s.Objects["flow_counter"], b2i(profile != "cx4"))
				for _, in := range destroy {
					h.ok(in, 16)
				}
				h.down()
				s = h.d.Stats()
				require.Empty(t, s.Objects, "%s, round %d", profile, round)
				require.Zero(t, s.Pages)
				require.Zero(t, s.DMAFaults, s.LastFault)
				require.Zero(t, s.CommandFails, s.LastRefusal)
			}
		}
	}
}

// TestNumbers looks at where object numbers start and that they are not used
// again at once.
func TestNumbers(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	require.EqualValues(t, 0x10, h.uar)
	require.EqualValues(t, 16, h.eqn)
	first := h.ok(h.cqMsg(), 16)
	require.EqualValues(t, 1024, first)
	h.ok(num(0x401, first), 16)
	require.Equal(t, first+1, h.ok(h.cqMsg(), 16))
}

// TestTableReuse fills a small table, empties it and fills it again.
func TestTableReuse(t *testing.T) {
	tab := newTable[pd](5, 3)
	build := func(n uint32) *pd { return &pd{n: n} }
	for want := uint32(5); want < 8; want++ {
		require.Equal(t, want, tab.add(build).n)
	}
	require.Nil(t, tab.add(build))
	tab.remove(6)
	require.Nil(t, tab.get(6))
	require.Nil(t, tab.get(4))
	require.Nil(t, tab.get(8))
	require.Equal(t, uint32(6), tab.add(build).n)
	var seen []uint32
	tab.each(func(p *pd) { seen = append(seen, p.n) })
	require.Equal(t, []uint32{5, 7, 6}, seen)
	tab.remove(99)
	require.Equal(t, 3, tab.live)
}

func TestPages(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	h.ok(msg(0x104, 16), 12)
	h.ok(msg(0x10b, 16, issiInCurrentIssi, 1), 16)
	status, _ := h.exec(msg(0x102, 16), 16)
	require.EqualValues(t, statNoRes, status, "INIT_HCA without pages")
	require.Equal(t, 6, h.givePages(1))
	require.Zero(t, h.givePages(1))
	require.Equal(t, 1024, h.givePages(2))
	h.ok(msg(0x102, 16), 16)
	require.Zero(t, h.take(10), "nothing was offered")

	h.uar = h.ok(msg(0x802, 16), 16)
	require.False(t, h.d.RequestPages(1), "no EQ for it yet")
	in := h.eqMsg(1<<eventPageRequest, 2)
	eqn := h.ok(in, 16)
	ring := binary.BigEndian.Uint64(in[272:])
	require.True(t, h.d.RequestPages(20))
	e := h.at(ring, 64)
	require.EqualValues(t, eventPageRequest, e[1])
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 20}, e[32:40])
	h.give(20)
	require.Equal(t, 1050, h.d.Stats().Pages)
	require.True(t, h.d.RequestPages(-5))
	require.EqualValues(t, 0xfffffffb, binary.BigEndian.Uint32(h.at(ring+64, 64)[36:]))
	require.Equal(t, 5, h.take(100))
	require.Zero(t, h.take(100))
	h.ok(mod(msg(0x108, 16), 0), 16) // can't give

	twice := mod(msg(0x108, 16+16), 1)
	twice[15] = 2
	page := h.alloc(4096)
	binary.BigEndian.PutUint64(twice[16:], page)
	binary.BigEndian.PutUint64(twice[24:], page)
	status, _ = h.exec(twice, 16)
	require.EqualValues(t, statBadParam, status, "a page given twice")
	require.Equal(t, 1045, h.d.Stats().Pages)

	h.d.mu.Lock()
	lent := h.d.pages.held[len(h.d.pages.held)-1]
	h.d.mu.Unlock()
	h.at(lent, 1)[0] ^= 1 // the host scribbles on what it lent
	h.ok(num(0x302, eqn), 16)
	h.ok(num(0x803, h.uar), 16)
	h.ok(msg(0x103, 16), 16)
	total := 0
	for n := h.take(300); n > 0; n = h.take(300) {
		total += n
	}
	require.Equal(t, 1045, total)
	require.EqualValues(t, 1, h.d.Stats().DMAFaults)
	require.Contains(t, h.d.Stats().LastFault, "while it was lent")
	h.ok(msg(0x105, 16), 12)
}

func TestResetForgets(t *testing.T) {
	h := newCtlHost(t, "cx6dx", &ctlWire{up: true}).up()
	h.objects()
	h.d.Reset()
	s := h.d.Stats()
	require.Empty(t, s.Objects)
	require.Zero(t, s.Pages)
	h.setQueue()
	h.freePgs = nil
	h.uar = 0
	h.up()
	h.objects()
	// A function level reset through configuration space does the same, and
	// takes bus mastering with it.
	h.d.WriteConfig(0x60+8, []byte{0, 0x80})
	require.Empty(t, h.d.Stats().Objects)
	h.setQueue()
	h.post(0, msg(0x104, 16), 12)
	_, delivery := h.collect(0, 12)
	require.EqualValues(t, 0xff, delivery, "without bus mastering nothing is fetched")
	h.d.WriteConfig(4, []byte{6, 0})
	h.ok(msg(0x104, 16), 12)
}

// TestForcedTeardown destroys what is left.
func TestForcedTeardown(t *testing.T) {
	for _, profile := range []uint16{teardownForce, teardownFast} {
		h := newCtlHost(t, "cx5", nil).up()
		h.objects()
		h.ok(msg(0x103, 16, teardownProfile, int(profile)), 16)
		require.Zero(t, teardownOutState.get(h.out))
		require.Empty(t, h.d.Stats().Objects)
	}
	h := newCtlHost(t, "cx4", nil).up() // as recorded: the status is OK, the state is not
	h.ok(msg(0x103, 16, teardownProfile, teardownForce), 16)
	require.EqualValues(t, 1, teardownOutState.get(h.out))
	require.NotEmpty(t, h.d.Stats().Objects)
}
