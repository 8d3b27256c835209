package model

// control_refuse_test.go is the list of what the control side refuses: each row
// is a right message with one thing wrong, and the status and syndrome for it.

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refuseHost is a function with one object of each kind that rows build on.
type refuseHost struct {
	*ctlHost
	cqn, tisn, sqn, rqn, rqtn, tirn, first, second, group, qc uint32
}

func newRefuseHost(t *testing.T, profile string) *refuseHost {
	h := &refuseHost{ctlHost: newCtlHost(t, profile, nil).up()}
	h.cqn = h.ok(h.cqMsg(), 16)
	h.tisn = h.ok(msg(0x912, 192, inside(createTISCtx, tiscTransportDomain), int(h.td)), 16)
	h.sqn = h.ok(h.sqMsg(h.cqn, h.tisn), 16)
	h.rqn = h.ok(h.rqMsg(h.cqn), 16)
	h.rqtn = h.ok(h.rqtMsg(16, h.rqn), 16)
	h.tirn = h.ok(h.tirMsg(h.rqtn), 16)
	h.second = h.ok(h.tableMsg(10, 4), 16)
	h.first = h.ok(h.tableMsg(5, 10), 16)
	h.group = h.ok(h.groupMsg(h.first, 10, 19, matchOuter, inside(matchOuterHeaders, lyrEthertype), 0xffff), 16)
	h.qc = h.ok(msg(0x771, 16), 16)
	return h
}

// with sets fields of a message.
func with(in []byte, pairs ...any) []byte {
	for i := 0; i+1 < len(pairs); i += 2 {
		pairs[i].(field).set(in, uint64(pairs[i+1].(int)))
	}
	return in
}

// long makes a message of n bytes from a short one.
func long(in []byte, n int) []byte { return append(in, make([]byte, n-len(in))...) }

type refuseRow struct {
	name     string
	in       []byte
	status   uint8
	syndrome uint32 // 0: any
}

func (h *refuseHost) queueRows() []refuseRow {
	eq, cq := createEQEqContextEntry, createCQCqContext
	short := h.cqMsg()
	noDBR := with(h.cqMsg(), inside(cq, cqcDbrAddr), 4)
	unaligned := h.cqMsg()
	unaligned[len(unaligned)-1] |= 8
	return []refuseRow{
		{"EQ with a status", with(h.eqMsg(0, 1), inside(eq, eqcStatus), 1), statBadParam, synEQContext},
		{"EQ on vector 64", h.eqMsg(0, 64), statBadParam, synEQContext},
		{"EQ too large", with(h.eqMsg(0, 1), inside(eq, eqcLogEqSize), 31), statBadParam, synEQContext},
		{"EQ on no UAR", with(h.eqMsg(0, 1), inside(eq, eqcUarPage), 0x999), statBadRes, 0},
		{"EQ with fewer pages than entries need", with(h.eqMsg(0, 1), inside(eq, eqcLogEqSize), 7), statBadInLen, 0},
		{"EQ that CQs use", num(0x302, h.eqn), statBadResState, 0},
		{"EQ that does not exist", num(0x302, 99), statBadRes, 0},
		{"UAR that queues use", num(0x803, h.uar), statBadResState, 0},
		{"PD that queues use", num(0x801, h.pd), statBadResState, synPDInUse},
		{"PD that does not exist", num(0x801, 0x1234), statBadRes, 0},
		{"transport domain in use", num(0x817, h.td), statBadResState, 0},

		{"CQ without an EQ", with(h.cqMsg(), inside(cq, cqcCEqn), 200), statBadRes, 0},
		{"CQ too large", with(h.cqMsg(), inside(cq, cqcLogCqSize), 25), statBadParam, 0},
		{"CQ with an odd doorbell record", noDBR, statBadParam, 0},
		{"CQ on an unaligned page", unaligned, statBadParam, 0},
		{"CQ without its page", short[:272], statBadInLen, 0},
		{"CQ in user memory", with(h.cqMsg(), createCQCqUmemValid, 1), statBadParam, 0},
		{"CQ with enhanced compression", with(h.cqMsg(), inside(cq, cqcCqeCompEn), 1, inside(cq, cqcCqeCompressionLayout), 1), statBadParam, 0},
		{"CQ with an unknown mini CQE", with(h.cqMsg(), inside(cq, cqcCqeCompEn), 1, inside(cq, cqcMiniCqeResFormat), 2), statBadParam, 0},
		{"CQ that queues use", num(0x401, h.cqn), statBadResState, synCQInUse},
		{"resize of a CQ", mod(long(num(0x403, h.cqn), 272), 1), statBadParam, 0},
		{"MODIFY_CQ of unknown fields", with(long(num(0x403, h.cqn), 272), modifyCQSelect, 0x40), statBadParam, 0},
	}
}

func (h *refuseHost) workQueueRows() []refuseRow {
	sq, rq := createSQCtx, createRQCtx
	wqs := field{"", createSQCtx.bit + sqcWq.bit, 1536}
	wqr := field{"", createRQCtx.bit + rqcWq.bit, 1536}
	return []refuseRow{
		{"SQ without a CQ", h.sqMsg(0x7777, h.tisn), statBadRes, 0},
		{"SQ without a TIS", h.sqMsg(h.cqn, 0x7777), statBadRes, 0},
		{"SQ without a PD", with(h.sqMsg(h.cqn, h.tisn), inside(wqs, wqPd), 0x777), statBadRes, 0},
		{"SQ that starts ready", with(h.sqMsg(h.cqn, h.tisn), inside(sq, sqcState), 1), statBadParam, 0},
		{"SQ of linked lists", with(h.sqMsg(h.cqn, h.tisn), inside(wqs, wqType), 0), statBadParam, 0},
		{"SQ with strides of 32", with(h.sqMsg(h.cqn, h.tisn), inside(wqs, wqLogWqStride), 5), statBadParam, 0},
		{"SQ too large", with(h.sqMsg(h.cqn, h.tisn), inside(wqs, wqLogWqSz), 16), statBadParam, 0},
		{"SQ with two TIS", with(h.sqMsg(h.cqn, h.tisn), inside(sq, sqcTisLstSz), 2), statBadParam, 0},
		{"hairpin SQ", with(h.sqMsg(h.cqn, h.tisn), inside(sq, sqcHairpin), 1), statBadParam, 0},
		{"SQ with a rate limit", with(h.sqMsg(h.cqn, h.tisn), inside(sq, sqcPacketPacingRateLimitIndex), 1), statBadParam, 0},
		{"SQ with wrong timestamps", with(h.sqMsg(h.cqn, h.tisn), inside(sq, sqcTsFormat), tsRealTime), statBadParam, synTimestampFormat},
		{"SQ from the wrong state", with(long(num(0x905, h.sqn), 272), modifySQSqState, 1, inside(modifySQCtx, sqcState), 1), statBadResState, 0},
		{"SQ to no state", with(long(num(0x905, h.sqn), 272), inside(modifySQCtx, sqcState), 2), statBadResState, 0},
		{"SQ with a modify mask", with(long(num(0x905, h.sqn), 272), modifySQModifyBitmask, 1), statBadParam, 0},
		{"TIS that SQs use", num(0x914, h.tisn), statBadResState, 0},
		{"SQ that does not exist", num(0x906, 0x9999), statBadRes, 0},

		{"RQ without a CQ", h.rqMsg(0x7777), statBadRes, 0},
		{"RQ that starts ready", with(h.rqMsg(h.cqn), inside(rq, rqcState), 1), statBadParam, 0},
		{"RQ with strides of 8", with(h.rqMsg(h.cqn), inside(wqr, wqLogWqStride), 3), statBadParam, 0},
		{"RQ with FCS", with(h.rqMsg(h.cqn), inside(rq, rqcScatterFcs), 1), statBadParam, 0},
		{"RQ with delay drop", with(h.rqMsg(h.cqn), inside(rq, rqcDelayDropEn), 1), statBadParam, 0},
		{"RQ without its counter", with(h.rqMsg(h.cqn), inside(rq, rqcCounterSetId), 99), statBadRes, 0},
		{"RQ without its pool", with(h.rqMsg(h.cqn), inside(rq, rqcMemRqType), 1, inside(rq, rqcRmpn), 77), statBadRes, 0},
		{"striding RQ with little room", with(h.rqMsg(h.cqn), inside(wqr, wqType), 2, inside(wqr, wqLogWqStride), 5, inside(wqr, wqLogWqeNumOfStrides), 0xa), statBadParam, 0},
		{"RQ with signatures", with(h.rqMsg(h.cqn), inside(wqr, wqSignature), 1), statBadParam, 0},
		{"RQ from the wrong state", with(long(num(0x909, h.rqn), 272), modifyRQRqState, 3, inside(modifyRQCtx, rqcState), 0), statBadResState, 0},
		{"RQ with an unknown modify mask", with(long(num(0x909, h.rqn), 272), modifyRQModifyBitmask, 1), statBadParam, 0},
		{"RQ that an RQT uses", num(0x90a, h.rqn), statBadResState, 0},
		{"page offset that splits entries", with(h.rqMsg(h.cqn), inside(wqr, wqLogWqStride), 9, inside(wqr, wqLogWqSz), 2, inside(wqr, wqPageOffset), 1), statBadParam, synPageOffset},
	}
}

func (h *refuseHost) objectRows() []refuseRow {
	mk, tir, tis, rqt := createMkeyMemoryKeyMkeyEntry, createTIRCtx, createTISCtx, createRQTCtx
	return []refuseRow{
		{"mkey without a PD", with(h.mkeyMsg(), inside(mk, mkcPd), 0x777), statBadRes, 0},
		{"mkey of a QP", with(h.mkeyMsg(), inside(mk, mkcQpn), 5), statBadParam, 0},
		{"KSM without entries", with(h.mkeyMsg(), inside(mk, mkcLength64), 0, inside(mk, mkcAccessMode10), accessKSM), statBadParam, synKSMEmpty},
		{"page list too short for its length", with(h.mkeyMsg(), inside(mk, mkcLength64), 0, inside(mk, mkcAccessMode10), accessMTT, inside(mk, mkcLogPageSize), 12,
			inside(mk, mkcTranslationsOctwordSize), 1, inside(mk, mkcLen), 3*4096), statBadParam, 0},
		{"page list of tiny pages", with(h.mkeyMsg(), inside(mk, mkcLength64), 0, inside(mk, mkcAccessMode10), accessMTT, inside(mk, mkcLogPageSize), 6), statBadParam, 0},
		{"translation entries that are missing", with(h.mkeyMsg(), inside(mk, mkcLength64), 0, inside(mk, mkcAccessMode10), accessMTT, inside(mk, mkcLogPageSize), 12,
			inside(mk, mkcTranslationsOctwordSize), 4, createMkeyTranslationsOctwordActualSize, 4), statBadInLen, 0},
		{"software memory", with(h.mkeyMsg(), inside(mk, mkcAccessMode42), 1), statBadParam, 0},
		{"free key without UMR", with(h.mkeyMsg(), inside(mk, mkcFree), 1), statBadParam, 0},
		{"mkey that does not exist", num(0x202, 0x9999), statBadRes, 0},

		{"TIR without a transport domain", with(h.tirMsg(h.rqtn), inside(tir, tircTransportDomain), 0x99), statBadRes, 0},
		{"TIR without its table", h.tirMsg(0x99), statBadRes, 0},
		{"indirect TIR without a hash", with(h.tirMsg(h.rqtn), inside(tir, tircRxHashFn), 0), statBadParam, 0},
		{"direct TIR with a hash", with(h.tirMsg(h.rqtn), inside(tir, tircDispType), 0, inside(tir, tircInlineRqn), int(h.rqn)), statBadParam, 0},
		{"direct TIR without its queue", with(h.tirMsg(h.rqtn), inside(tir, tircDispType), 0, inside(tir, tircRxHashFn), 0, inside(tir, tircInlineRqn), 0x999), statBadRes, 0},
		{"TIR with TLS", with(h.tirMsg(h.rqtn), inside(tir, tircTlsEn), 1), statBadParam, 0},
		{"TIR that merges", with(h.tirMsg(h.rqtn), inside(tir, tircPacketMergeMask), 1), statBadParam, 0},
		{"RQT that a TIR uses", num(0x918, h.rqtn), statBadResState, 0},
		{"TIS without a transport domain", with(msg(0x912, 192), inside(tis, tiscTransportDomain), 0x99), statBadRes, 0},
		{"TIS with TLS", with(msg(0x912, 192), inside(tis, tiscTransportDomain), int(h.td), inside(tis, tiscTlsEn), 1), statBadParam, 0},
		{"RQT of nothing", h.rqtMsg(16), statBadParam, 0},
		{"RQT larger than it may be", h.rqtMsg(1, h.rqn, h.rqn), statBadParam, 0},
		{"RQT larger than any", with(h.rqtMsg(16, h.rqn), inside(rqt, rqtcRqtMaxSize), 4096), statBadParam, 0},
		{"RQT of a queue that does not exist", h.rqtMsg(16, 0x999), statBadRes, 0},
		{"RQT with a missing list", with(h.rqtMsg(16, h.rqn), inside(rqt, rqtcRqtActualSize), 4), statBadInLen, 0},
		{"other port's counters", with(msg(0x773, 32), qcounterInCounterSetId, int(h.qc), inOtherVport, 1), statBadParam, 0},
		{"user context", with(msg(0x800, 16), cmdUid, 5), statBadParam, 0},
	}
}

func (h *refuseHost) steerRows() []refuseRow {
	type2 := inside(matchOuterHeaders, lyrEthertype)
	value := inside(setFTECtx, flowMatchValue)
	fwd := flowDest{destTable, h.second}
	tirDest := flowDest{destTIR, h.tirn}
	other := with(h.tableMsg(5, 4), inOtherVport, 1, inVportNumber, 1)
	return []refuseRow{
		{"table of another port", other, statBadParam, synTableVport},
		{"table of the switch", with(h.tableMsg(5, 4), createTableTableType, 4), statBadParam, 0},
		{"table too large", h.tableMsg(5, 17), statBadParam, 0},
		{"table too deep", h.tableMsg(81, 4), statBadParam, 0},
		{"miss to a lower level", with(h.tableMsg(12, 4), inside(createTableCtx, ftxTableMissAction), 1, inside(createTableCtx, ftxTableMissId), int(h.second)), statBadParam, 0},
		{"miss to no table", with(h.tableMsg(12, 4), inside(createTableCtx, ftxTableMissAction), 1, inside(createTableCtx, ftxTableMissId), 0x99), statBadRes, 0},
		{"table that has groups", msg(0x931, 64, tableRefTableId, int(h.first)), statBadParam, synTableInUse},
		{"table that does not exist", msg(0x931, 64, tableRefTableId, 0x99), statBadRes, 0},
		{"table of the wrong type", msg(0x931, 64, tableRefTableId, int(h.second), tableRefTableType, 1), statBadRes, 0},
		{"root that does not exist", msg(0x92f, 64, tableRefTableId, 0x99), statBadRes, 0},

		{"group beyond its table", h.groupMsg(h.second, 0, 16, 0), statBadParam, 0},
		{"group backwards", h.groupMsg(h.second, 3, 2, 0), statBadParam, 0},
		{"group over another", h.groupMsg(h.first, 19, 30, 0), statBadParam, 0},
		{"outer headers enabled, mask zero", h.groupMsg(h.first, 20, 30, matchOuter), statBadParam, synGroupOuterEmpty},
		{"inner mask, not enabled", h.groupMsg(h.first, 20, 30, 0, inside(matchInnerHeaders, lyrEthertype), 0xffff), statBadParam, synGroupInnerOff},
		{"outer mask, not enabled", h.groupMsg(h.first, 20, 30, 0, type2, 0xffff), statBadParam, 0},
		{"metadata", h.groupMsg(h.first, 20, 30, 8, field{"", matchMiscParameters2.bit + 352, 32}, 0xffff), statBadParam, 0},
		{"a field that can't be matched", h.groupMsg(h.first, 20, 30, matchMisc, field{"", matchMiscParameters.bit + 8, 24}, 0xffffff), statBadParam, 0},
		{"source port of receive", h.groupMsg(h.first, 20, 30, matchMisc, inside(matchMiscParameters, miscSourcePort), 0xffff), statBadParam, 0},
		{"group of another table", msg(0x934, 64, tableRefTableId, int(h.second), groupRefGroupId, int(h.group)), statBadRes, 0},

		{"entry without an action", h.fteMsg(h.first, h.group, 10, 0, fwd), statBadParam, synFTENoAction},
		{"value outside the mask", with(h.fteMsg(h.first, h.group, 10, actionForward, fwd), inside(value, inside(matchOuterHeaders, lyrIpProtocol)), 6), statBadParam, synFTEOutsideMask},
		{"drop and modify header", h.fteMsg(h.first, h.group, 10, actionDrop|actionModifyHeader), statBadParam, synDropAndModify},
		{"forward to nothing", h.fteMsg(h.first, h.group, 10, actionForward), statBadParam, 0},
		{"drop and forward", h.fteMsg(h.first, h.group, 10, actionForward|actionDrop, fwd), statBadParam, 0},
		{"entry outside its group", h.fteMsg(h.first, h.group, 20, actionForward, fwd), statIndex, 0},
		{"entry of another table's group", h.fteMsg(h.second, h.group, 10, actionForward, tirDest), statBadRes, 0},
		{"destination that does not exist", h.fteMsg(h.first, h.group, 10, actionForward, flowDest{destTIR, 0x999}), statBadRes, 0},
		{"destination on the same level", h.fteMsg(h.first, h.group, 10, actionForward, flowDest{destTable, h.first}), statBadParam, 0},
		{"destination that is a port", h.fteMsg(h.first, h.group, 10, actionForward, flowDest{0, 1}), statBadParam, 0},
		{"destinations that are missing", with(h.fteMsg(h.first, h.group, 10, actionForward, fwd), inside(setFTECtx, flowDestinationListSize), 2), statBadInLen, 0},
		{"count without a counter", h.fteMsg(h.first, h.group, 10, actionForward|actionCount, fwd), statBadParam, 0},
		{"encapsulation", h.fteMsg(h.first, h.group, 10, actionForward|0x10, fwd), statBadParam, 0},
		{"change of an entry that does not exist", mod(h.fteMsg(h.first, h.group, 12, actionForward, fwd), 1), statBadRes, 0},
		{"removal of an entry that does not exist", msg(0x938, 64, tableRefTableId, int(h.first), setFTEFlowIndex, 12), statBadRes, 0},
		{"counters in bulk", msg(0x939, 16, allocCounterFlowCounterBulk, 1), statBadParam, 0},
	}
}

func (h *refuseHost) otherRows() []refuseRow {
	roce := with(msg(0x755, 512), field{"", 126, 1}, 1, inside(modifyVportNicVportContext, nvcRoceEn), 1)
	return []refuseRow{
		{"an unknown opcode", msg(0x7ff, 16), statBadOp, 0},
		{"ENABLE_HCA again", msg(0x104, 16), statBadSysState, 0},
		{"INIT_HCA again", msg(0x102, 16), statBadSysState, 0},
		{"DISABLE_HCA before TEARDOWN_HCA", msg(0x105, 16), statBadSysState, 0},
		{"SET_ISSI after INIT_HCA", msg(0x10b, 16, issiInCurrentIssi, 1), statBadSysState, 0},
		{"SET_HCA_CAP after INIT_HCA", long(msg(0x109, 16), 4112), statBadSysState, 0},
		{"TEARDOWN_HCA with objects left", msg(0x103, 16), statBadResState, 0},
		{"TEARDOWN_HCA with no profile", msg(0x103, 16, teardownProfile, 9), statBadParam, 0},
		{"a group of capabilities that is not there", mod(msg(0x100, 16), 0x40), statBadParam, synGroupUnknown},
		{"pages of another function", with(mod(msg(0x107, 16), 1), queryPagesInFunctionId, 3), statBadParam, 0},
		{"an operation modifier that is not there", mod(msg(0x800, 16), 1), statBadParam, 0},
		{"RoCE on a function without", roce, statBadParam, synRoCEOff},
		{"another virtual port", with(msg(0x754, 16), inOtherVport, 1, inVportNumber, 1), statBadParam, 0},
		{"an address list of no type", with(msg(0x754, 16), queryVportAllowedListType, 5), statBadParam, 0},
		{"a list that is missing", with(msg(0x755, 512), field{"", 125, 1}, 1, inside(modifyVportNicVportContext, nvcAllowedListSize), 3), statBadInLen, 0},
		{"an MTU beyond the port's", with(msg(0x755, 512), field{"", 121, 1}, 1, inside(modifyVportNicVportContext, nvcMtu), 20000), statBadParam, 0},
		{"an L2 entry beyond the table", with(msg(0x829, 64), l2TableIndex, 1<<16), statIndex, 0},
		{"an L2 entry that is not there", msg(0x82b, 64), statBadRes, 0},
		{"a VXLAN port that is not there", msg(0x828, 16, vxlanVxlanUdpPort, 99), statBadRes, 0},
		{"a register that is not there", long(msg(0x805, 16, regRegisterId, 0x5555), 32), statBadParam, 0},
		{"counters of a port that is not there", long(mod(msg(0x805, 16, regRegisterId, regPPCNT), 1), 272), statBadParam, synPPCNTPort},
	}
}

func TestRefusals(t *testing.T) {
	h := newRefuseHost(t, "cx5")
	rows := slices.Concat(h.queueRows(), h.workQueueRows(), h.objectRows(), h.steerRows(), h.otherRows())
	before := h.d.Stats()
	for _, r := range rows {
		outLen := 16
		if r.in[0] == 8 && r.in[1] == 5 || r.in[0] == 7 {
			outLen = 528
		}
		status, syndrome := h.exec(r.in, outLen)
		require.Equal(t, r.status, status, "%s: %s", r.name, h.d.Stats().LastRefusal)
		require.NotZero(t, syndrome, r.name)
		if r.syndrome > 0xff {
			require.Equal(t, r.syndrome, syndrome, r.name)
		}
		for i, v := range h.out[8:] {
			require.Zero(t, v, "%s: byte %d of a refusal", r.name, i+8)
		}
		require.NotContains(t, h.d.Stats().LastRefusal, "unknown command (0x8", r.name)
	}
	after := h.d.Stats()
	require.Equal(t, before.CommandFails+uint64(len(rows)), after.CommandFails)
	require.Equal(t, before.Objects, after.Objects, "a refused command left something behind")
}

// TestSyndromes holds the syndromes against those published for real cards.
func TestSyndromes(t *testing.T) {
	data, err := os.ReadFile(sharedFile(t, "traces", "wild.jsonl"))
	require.NoError(t, err)
	wild := map[uint32]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r struct{ Syndrome string }
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if v, err := strconv.ParseUint(r.Syndrome, 0, 32); err == nil {
			wild[uint32(v)] = true
		}
	}
	for _, syndrome := range []uint32{
		synEQContext, synPageOffset, synTimestampFormat, synTIRInner, synKSMEmpty, synFTENoAction, synFTEOutsideMask, synGroupOuterEmpty, synGroupInnerOff,
		synDropAndModify, synTableVport, synGroupInUse, synTableInUse, synPDInUse, synCQInUse, synUCListTooLong, synGroupUnknown, synPPCNTPort, synRoCEOff,
	} {
		require.True(t, wild[syndrome], "%#x was not seen on a card", syndrome)
	}
}

// TestPhases runs every command in every phase: what is out of order is
// refused, and nothing else is refused for that.
func TestPhases(t *testing.T) {
	for _, phase := range []hcaPhase{phaseOff, phaseEnabled, phaseReady} {
		for _, c := range commands {
			d, err := New(Config{Profile: "cx5"})
			require.NoError(t, err)
			d.hca.phase, d.hca.issi = phase, 1
			no := d.run(c.op, msg(c.op, c.inLen), make([]byte, c.outLen), Verdict{})
			refused := no != nil && no.status == statBadSysState
			require.Equal(t, phase&c.phases == 0, refused, "%s in phase %d: %v", c.name, phase, no)
			if c.issi1 && phase&c.phases != 0 {
				d.hca.issi = 0
				no = d.run(c.op, msg(c.op, c.inLen), make([]byte, c.outLen), Verdict{})
				require.True(t, no != nil && no.status == statBadOp, c.name)
			}
			require.NoError(t, d.Close())
		}
	}
}

// TestLimits fills the tables that are small enough to be filled.
func TestLimits(t *testing.T) {
	h := newCtlHost(t, "cx5-vf", nil).up()
	for {
		status, _ := h.exec(msg(0x771, 16), 16)
		if status == 0 {
			continue
		}
		require.EqualValues(t, statLimit, status)
		break
	}
	require.Equal(t, 255, h.d.Stats().Objects["q_counter"])
	in := h.eqMsg(0, 1)
	for n := 1; ; n++ {
		status, _ := h.exec(in, 16)
		if status != 0 {
			require.EqualValues(t, statLimit, status)
			require.Equal(t, 64, n)
			break
		}
	}
}

// TestVirtualFunction is what a VF may not do.
func TestVirtualFunction(t *testing.T) {
	h := newCtlHost(t, "cx5-vf", &ctlWire{up: true}).up()
	for _, in := range [][]byte{msg(0x829, 64), msg(0x82b, 64), msg(0x827, 16, vxlanVxlanUdpPort, 4789), msg(0x751, 16)} {
		status, _ := h.exec(in, 16)
		require.EqualValues(t, statBadOp, status)
	}
	// Linux writes these at every start of a VF; they change nothing.
	status, _ := h.reg(regPAOS, regWrite, []byte{0, 1, 2, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	require.Zero(t, status)
	require.True(t, h.d.port.adminUp)
	mtu := h.d.port.mtu
	status, _ = h.reg(regPMTU, regWrite, []byte{0, 1, 0, 0, 0, 0, 0, 0, 5, 0xf2, 0, 0, 0, 0, 0, 0})
	require.Zero(t, status)
	require.Equal(t, mtu, h.d.port.mtu)
	status, _ = h.reg(regPFCC, regWrite, long([]byte{0, 1}, 32))
	require.EqualValues(t, statBadParam, status)
	h.ok(msg(0x754, 16), 272)
	require.Equal(t, []byte{2, 0, 0, 0, 0, 1}, inside(queryVportOutNicVportContext, nvcPermanentAddress).in(h.out)[2:])
	h.ok(msg(0x750, 16), 16)
	require.EqualValues(t, 1, vportStateOutState.get(h.out), "the port is up without the VF's doing")
	require.Zero(t, capVportGroupManagerBit(h))
}

func capVportGroupManagerBit(h *ctlHost) uint64 {
	h.ok(mod(msg(0x100, 16), 1), 4112)
	return uint64(binary.BigEndian.Uint32(h.out[16+52:]) >> 31)
}
