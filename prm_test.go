package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// place is one line of prm.go's groups: the manual's structure and field, and
// where the line says that it lies.
type place struct {
	goName, structure, field, kind string
	n                              []int // the literal's numbers
}

// readPlaces parses prm.go: the comment above a var group names the structure,
// the comment behind a line the field.
func readPlaces(t *testing.T) (out []place) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "prm.go", nil, parser.ParseComments)
	require.NoError(t, err)
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR || g.Doc == nil {
			continue
		}
		structure := strings.TrimSpace(g.Doc.Text())
		if strings.Contains(structure, " ") {
			continue // prose: not a group of places
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			lit := v.Values[0].(*ast.CompositeLit)
			require.NotNil(t, v.Comment, "%s has no field name behind it", v.Names[0].Name)
			p := place{goName: v.Names[0].Name, structure: structure, field: strings.TrimSpace(v.Comment.Text()),
				kind: lit.Type.(*ast.Ident).Name}
			for _, e := range lit.Elts {
				n, err := strconv.ParseInt(e.(*ast.BasicLit).Value, 0, 32)
				require.NoError(t, err)
				p.n = append(p.n, int(n))
			}
			out = append(out, p)
		}
	}
	return out
}

// bits is what a place covers, counted from the structure's start.
func (p place) bits() (first, width int) {
	switch p.kind {
	case "field":
		return p.n[0]*8 + 31 - p.n[1], p.n[1] - p.n[2] + 1
	case "wide":
		return p.n[0] * 8, 64
	default:
		return p.n[0] * 8, p.n[1] * 8
	}
}

// Every place in use lies where the published layout has it.
func TestPlacesEqualThePublishedLayout(t *testing.T) {
	type row struct{ off, width, array int }
	layout := map[string]row{}
	for _, r := range readTSV(t, sharedFile(t, "prm", "layout.tsv")) {
		n := [3]int{}
		for i := range n {
			v, err := strconv.Atoi(r[2+i])
			require.NoError(t, err)
			n[i] = v
		}
		layout[r[0]+"."+r[1]] = row{n[0], n[1], n[2]}
	}
	places := readPlaces(t)
	require.Greater(t, len(places), 200)
	for _, p := range places {
		want, ok := layout[p.structure+"."+p.field]
		require.True(t, ok, "%s: the manual has no %s.%s", p.goName, p.structure, p.field)
		first, width := p.bits()
		full := want.width * want.array
		if strings.HasSuffix(p.field, "_high") && p.kind == "wide" {
			low := layout[p.structure+"."+strings.TrimSuffix(p.field, "high")+"low"]
			require.Equal(t, want.off+32, low.off, p.goName)
			full = 64
		}
		require.Equal(t, want.off, first, "%s starts at another bit", p.goName)
		require.Equal(t, full, width, "%s has another width", p.goName)
	}
}

// No two places of one structure share a bit.
func TestPlacesDoNotOverlap(t *testing.T) {
	taken := map[string]string{}
	for _, p := range readPlaces(t) {
		first, width := p.bits()
		for b := first; b < first+width; b++ {
			key := fmt.Sprintf("%s bit %d", p.structure, b)
			require.Empty(t, taken[key], "%s and %s share %s", p.goName, taken[key], key)
			taken[key] = p.goName
		}
	}
}

// constants maps what prm.go and its neighbours call a value to the group and
// name of the published one.
var constants = []struct {
	value uint64
	group string
	name  string
}{
	{cmdIfRev, "cmd_interface", "CMD_IF_REV"},
	{cmdEntryType, "cmd_interface", "MLX5_PCI_CMD_XPORT"},
	{cmdEntrySize, "cmd_interface", "CMD_QUEUE_ENTRY_BYTES"},
	{cmdInline, "cmd_interface", "CMD_INLINE_BYTES"},
	{cmdBlockData, "cmd_interface", "MLX5_CMD_DATA_BLOCK_SIZE"},
	{cmdBlockSize, "cmd_interface", "CMD_MAILBOX_BLOCK_BYTES"},
	{cmdBlockStride, "cmd_interface", "CMD_MAILBOX_BLOCK_ALIGN"},
	{commandSlots, "cmd_interface", "MLX5_MAX_COMMANDS"},
	{uarPageSize, "uar", "UAR_PAGE_BYTES"},
	{uarCQArm, "uar", "UAR_CQ_DOORBELL_OFFSET"},
	{uarEQArm, "uar", "UAR_EQ_DOORBELL_ARM_OFFSET"},
	{uarSQ, "uar", "UAR_BLUEFLAME_OFFSET"},
	{eqnShift, "uar", "EQ_DOORBELL_EQN_SHIFT"},
	{cqArmSN, "uar", "CQ_DOORBELL_SN_SHIFT"},
	{indexMask24, "uar", "CQ_DOORBELL_CI_MASK"},
	{recordRQ, "db_record", "DB_RECORD_RQ_DWORD"},
	{recordSQ, "db_record", "DB_RECORD_SQ_DWORD"},
	{recordCQ, "db_record", "DB_RECORD_CQ_SET_CI_DWORD"},
	{recordCQArm, "db_record", "DB_RECORD_CQ_ARM_DWORD"},
	{cqArmAny, "cq_doorbell_cmd", "MLX5_CQ_DB_REQ_NOT"},
	{pagesCantGive, "manage_pages_op_mod", "MLX5_PAGES_CANT_GIVE"},
	{pagesGive, "manage_pages_op_mod", "MLX5_PAGES_GIVE"},
	{pagesTake, "manage_pages_op_mod", "MLX5_PAGES_TAKE"},
	{queryPagesBoot, "query_pages_op_mod", "MLX5_QUERY_PAGES_IN_OP_MOD_BOOT_PAGES"},
	{queryPagesInit, "query_pages_op_mod", "MLX5_QUERY_PAGES_IN_OP_MOD_INIT_PAGES"},
	{capMax, "hca_cap_mode", "HCA_CAP_OPMOD_GET_MAX"},
	{capCurrent, "hca_cap_mode", "HCA_CAP_OPMOD_GET_CUR"},
	{capGroupGeneral, "hca_cap_type", "MLX5_CAP_GENERAL"},
	{capGroupEthernet, "hca_cap_type", "MLX5_CAP_ETHERNET_OFFLOADS"},
	{capGroupFlowTable, "hca_cap_type", "MLX5_CAP_FLOW_TABLE"},
	{regWrite, "access_reg_op_mod", "MLX5_ACCESS_REGISTER_IN_OP_MOD_WRITE"},
	{regRead, "access_reg_op_mod", "MLX5_ACCESS_REGISTER_IN_OP_MOD_READ"},
	{regPMTU, "reg_id", "MLX5_REG_PMTU"},
	{regPTYS, "reg_id", "MLX5_REG_PTYS"},
	{regPAOS, "reg_id", "MLX5_REG_PAOS"},
	{regPPCNT, "reg_id", "MLX5_REG_PPCNT"},
	{regHostEndianness, "reg_id", "MLX5_REG_HOST_ENDIANNESS"},
	{ppcntIEEE8023, "ppcnt_group", "MLX5_IEEE_802_3_COUNTERS_GROUP"},
	{ppcntRFC2863, "ppcnt_group", "MLX5_RFC_2863_COUNTERS_GROUP"},
	{ppcntRFC2819, "ppcnt_group", "MLX5_RFC_2819_COUNTERS_GROUP"},
	{ppcntPhysical, "ppcnt_group", "MLX5_PHYSICAL_LAYER_COUNTERS_GROUP"},
	{queueReset, "sq_state", "MLX5_SQC_STATE_RST"},
	{queueReady, "sq_state", "MLX5_SQC_STATE_RDY"},
	{queueError, "sq_state", "MLX5_SQC_STATE_ERR"},
	{queueReset, "rq_state", "MLX5_RQC_STATE_RST"},
	{queueReady, "rq_state", "MLX5_RQC_STATE_RDY"},
	{queueError, "rq_state", "MLX5_RQC_STATE_ERR"},
	{wqCyclic, "wq_type", "MLX5_WQ_TYPE_CYCLIC"},
	{wqStriding, "wq_type", "MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ"},
	{miniChecksum, "cqe_mini_format", "MLX5_CQE_FORMAT_CSUM"},
	{miniStrideIndex, "cqe_mini_format", "MLX5_CQE_FORMAT_CSUM_STRIDX"},
	{miniArray, "cqe_mini_format", "MLX5_MINI_CQE_ARRAY_SIZE"},
	{stridesBase, "striding_rq", "MLX5_MPWQE_LOG_NUM_STRIDES_BASE"},
	{stridesExtBase, "striding_rq", "MLX5_MPWQE_LOG_NUM_STRIDES_EXT_BASE"},
	{strideSizeBase, "striding_rq", "MLX5_MPWQE_LOG_STRIDE_SZ_BASE"},
	{mkeyMTT, "mkey_access_mode", "MLX5_MKC_ACCESS_MODE_MTT"},
	{cqeCompressed, "cqe_format", "MLX5_COMPRESSED"},
	{fillerBit - strideShift, "cqe_shift", "CQE_MPWRQ_FILLER_BIT"},
	{strideMask, "cqe_shift", "CQE_MPWRQ_CONSUMED_STRIDES_MASK"},
	{syndromeLength, "cqe_syndrome", "MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR"},
	{umrInline, "wqe_umr", "MLX5_UMR_INLINE"},
	{umrHasOffset, "wqe_umr", "MLX5_UMR_TRANSLATION_OFFSET_EN"},
	{umrMaskFree, "mkey_mask", "MLX5_MKEY_MASK_FREE"},
	{umrEntries, "wqe_umr", "MLX5_UMR_MTT_NUM_ENTRIES_ALIGNMENT"},
	{invalidLkey, "wqe_data_flag", "MLX5_TERMINATE_SCATTER_LIST_LKEY"},
	{portTypeEthernet, "cap_port_type", "MLX5_CAP_PORT_TYPE_ETH"},
	{portUp, "port_status", "MLX5_PORT_UP"},
	{portDown, "port_status", "MLX5_PORT_DOWN"},
	{portUp, "vport_state", "VPORT_STATE_UP"},
	{protoEthernet, "ptys_proto_mask", "MLX5_PTYS_EN"},
	{inlineNone, "wqe_inline_mode", "MLX5_INLINE_MODE_NONE"},
	{inlineL2, "wqe_inline_mode", "MLX5_INLINE_MODE_L2"},
	{inlineIP, "wqe_inline_mode", "MLX5_INLINE_MODE_IP"},
	{inlineTCP, "wqe_inline_mode", "MLX5_INLINE_MODE_TCP_UDP"},
	{inlineVport, "cap_inline_mode", "MLX5_CAP_INLINE_MODE_VPORT_CONTEXT"},
	{tirIndirect, "tir_disp_type", "MLX5_TIRC_DISP_TYPE_INDIRECT"},
	{hashToeplitz, "rss_hash_fn", "MLX5_RX_HASH_FN_TOEPLITZ"},
	{hashSrcIP, "rss_hash_field_sel", "MLX5_HASH_FIELD_SEL_SRC_IP"},
	{hashDstIP, "rss_hash_field_sel", "MLX5_HASH_FIELD_SEL_DST_IP"},
	{hashSrcPort, "rss_hash_field_sel", "MLX5_HASH_FIELD_SEL_L4_SPORT"},
	{hashDstPort, "rss_hash_field_sel", "MLX5_HASH_FIELD_SEL_L4_DPORT"},
	{hashIPv6, "rss_l3_prot_type", "MLX5_L3_PROT_TYPE_IPV6"},
	{hashUDP, "rss_l4_prot_type", "MLX5_L4_PROT_TYPE_UDP"},
	{tableNICReceive, "flow_table_type", "MLX5_FLOW_TABLE_TYPE_NIC_RX"},
	{missToTable, "flow_table_miss_action", "MLX5_FLOW_TABLE_MISS_ACTION_FWD"},
	{destTable, "flow_dest_type", "MLX5_FLOW_CONTEXT_DEST_TYPE_FLOW_TABLE"},
	{destTIR, "flow_dest_type", "MLX5_FLOW_CONTEXT_DEST_TYPE_TIR"},
	{actionDrop, "flow_action", "MLX5_FLOW_CONTEXT_ACTION_DROP"},
	{actionForward, "flow_action", "MLX5_FLOW_CONTEXT_ACTION_FWD_DEST"},
	{actionCount, "flow_action", "MLX5_FLOW_CONTEXT_ACTION_COUNT"},
	{enableOuter, "flow_match_enable", "MLX5_MATCH_OUTER_HEADERS"},
	{enableMisc, "flow_match_enable", "MLX5_MATCH_MISC_PARAMETERS"},
	{vportListUC, "vport_list_type", "MLX5_NVPRT_LIST_TYPE_UC"},
	{vportListMC, "vport_list_type", "MLX5_NVPRT_LIST_TYPE_MC"},
	{timestampFree, "timestamp_format", "MLX5_TIMESTAMP_FORMAT_FREE_RUNNING"},
	{timestampReal, "timestamp_format", "MLX5_TIMESTAMP_FORMAT_REAL_TIME"},
	{eventComp, "event_type", "MLX5_EVENT_TYPE_COMP"},
	{eventCQError, "event_type", "MLX5_EVENT_TYPE_CQ_ERROR"},
	{eventWQCatas, "event_type", "MLX5_EVENT_TYPE_WQ_CATAS_ERROR"},
	{eventWQInvalid, "event_type", "MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR"},
	{eventWQAccess, "event_type", "MLX5_EVENT_TYPE_WQ_ACCESS_ERROR"},
	{eventFromRQ, "event_queue_type", "MLX5_EVENT_QUEUE_TYPE_RQ"},
	{eventFromSQ, "event_queue_type", "MLX5_EVENT_QUEUE_TYPE_SQ"},
	{eventInternal, "event_type", "MLX5_EVENT_TYPE_INTERNAL_ERROR"},
	{eventPortChange, "event_type", "MLX5_EVENT_TYPE_PORT_CHANGE"},
	{eventCommand, "event_type", "MLX5_EVENT_TYPE_CMD"},
	{eventPageRequest, "event_type", "MLX5_EVENT_TYPE_PAGE_REQUEST"},
	{eventVportChange, "event_type", "MLX5_EVENT_TYPE_NIC_VPORT_CHANGE"},
	{portSubDown, "event_subtype_port_change", "MLX5_PORT_CHANGE_SUBTYPE_DOWN"},
	{portSubActive, "event_subtype_port_change", "MLX5_PORT_CHANGE_SUBTYPE_ACTIVE"},
	{wqeNOP, "wqe_opcode", "MLX5_OPCODE_NOP"},
	{wqeSend, "wqe_opcode", "MLX5_OPCODE_SEND"},
	{wqeLSO, "wqe_opcode", "MLX5_OPCODE_LSO"},
	{wqeUMR, "wqe_opcode", "MLX5_OPCODE_UMR"},
	{wqeMPSW, "wqe_opcode", "MLX5_OPCODE_ENHANCED_MPSW"},
	{ctrlCQE, "wqe_ctrl_flag", "MLX5_WQE_CTRL_CQ_UPDATE"},
	{maxDS, "wqe_ctrl_mask", "MLX5_WQE_CTRL_DS_MASK"},
	{csumL3Inner, "wqe_eth_csum_flag", "MLX5_ETH_WQE_L3_INNER_CSUM"},
	{csumL4Inner, "wqe_eth_csum_flag", "MLX5_ETH_WQE_L4_INNER_CSUM"},
	{csumL3, "wqe_eth_csum_flag", "MLX5_ETH_WQE_L3_CSUM"},
	{csumL4, "wqe_eth_csum_flag", "MLX5_ETH_WQE_L4_CSUM"},
	{insertVLAN, "wqe_eth_insert_flag", "MLX5_ETH_WQE_INSERT_VLAN"},
	{swpInnerIPv6, "wqe_eth_swp_flag", "MLX5_ETH_WQE_SWP_INNER_L3_IPV6"},
	{swpInnerUDP, "wqe_eth_swp_flag", "MLX5_ETH_WQE_SWP_INNER_L4_UDP"},
	{swpOuterIPv6, "wqe_eth_swp_flag", "MLX5_ETH_WQE_SWP_OUTER_L3_IPV6"},
	{swpOuterUDP, "wqe_eth_swp_flag", "MLX5_ETH_WQE_SWP_OUTER_L4_UDP"},
	{cqeReq, "cqe_opcode", "MLX5_CQE_REQ"},
	{cqeRecv, "cqe_opcode", "MLX5_CQE_RESP_SEND"},
	{cqeReqErr, "cqe_opcode", "MLX5_CQE_REQ_ERR"},
	{cqeRespErr, "cqe_opcode", "MLX5_CQE_RESP_ERR"},
	{cqeInvalid, "cqe_opcode", "MLX5_CQE_INVALID"},
	{hardMTU, "limit", "MLX5E_ETH_HARD_MTU"},
}

// readValues returns the published constants by group and name.
func readValues(t *testing.T) map[string]uint64 {
	values := map[string]uint64{}
	for _, r := range readTSV(t, sharedFile(t, "prm", "values.tsv")) {
		if v, err := strconv.ParseUint(r[2], 0, 64); err == nil {
			values[r[0]+" "+r[1]] = v
		}
	}
	return values
}

func TestConstantsEqualThePublishedValues(t *testing.T) {
	values := readValues(t)
	for _, c := range constants {
		v, ok := values[c.group+" "+c.name]
		require.True(t, ok, "no value %s %s", c.group, c.name)
		require.Equal(t, v, c.value, "%s %s", c.group, c.name)
	}
}

// All opcodes, statuses and syndromes that have a name here have that number
// there.
func TestNamesEqualThePublishedOnes(t *testing.T) {
	values := readValues(t)
	known := func(group string, want uint64) bool {
		for k, v := range values {
			if strings.HasPrefix(k, group+" ") && v == want {
				return true
			}
		}
		return false
	}
	for op, name := range opcodeNames {
		v, ok := values["cmd_opcode MLX5_CMD_OP_"+name]
		require.True(t, ok, "no opcode %s", name)
		require.Equal(t, v, uint64(op), name)
	}
	for n := range statusNames {
		require.True(t, known("cmd_status", uint64(n)), "status %#x", n)
	}
	for n := range deliveryNames {
		require.True(t, known("cmd_delivery_status", uint64(n)), "delivery status %#x", n)
	}
	for n := range syndromeNames {
		require.True(t, known("cqe_syndrome", uint64(n)), "syndrome %#x", n)
	}
	for table, group := range []string{"ptys_link_mode", "ptys_ext_link_mode"} {
		speeds := map[int]int{}
		speedGroup := strings.Replace(group, "link_mode", "link_speed_mbps", 1)
		for k, bit := range values {
			if name, ok := strings.CutPrefix(k, group+" "); ok {
				speeds[int(bit)] = int(values[speedGroup+" "+name])
			}
		}
		for bit, mbit := range linkSpeeds[table] {
			require.Equal(t, speeds[bit], mbit, "%s bit %d", group, bit)
		}
	}
	for _, m := range models {
		require.True(t, known("pci_id", uint64(m.device)), "PCI device %#x", m.device)
	}
}

// The overlays of completions lie as the manual says.
func TestOverlaysEqualThePublishedLayout(t *testing.T) {
	at := map[string]uintptr{}
	for _, r := range readTSV(t, sharedFile(t, "prm", "datapath.tsv")) {
		n, err := strconv.Atoi(r[2])
		require.NoError(t, err)
		at[r[0]+"."+r[1]] = uintptr(n)
	}
	typ := reflect.TypeFor[cqe]()
	for goName, name := range map[string]string{
		"wqeID": "wqe_id", "hash": "rss_hash_result", "hashType": "rss_hash_type", "checksum": "check_sum",
		"info": "hds_ip_ext", "byteCount": "byte_cnt",
		"timestamp": "timestamp_h", "tail": "sop_drop_qpn",
	} {
		f, ok := typ.FieldByName(goName)
		require.True(t, ok, goName)
		require.Equal(t, at["cqe64."+name], f.Offset, goName)
	}
	for name, off := range map[string]int{
		"type": entryType, "inlen": entryInLen, "in_ptr": entryInPtr, "in": entryIn, "out": entryOut,
		"out_ptr": entryOutPtr, "outlen": entryOutLen, "token": entryToken, "sig": entrySig, "status_own": entryStatus,
	} {
		require.Equal(t, at["cmd_layout."+name], uintptr(off), name)
	}
	for name, off := range map[string]int{
		"next": cmdBlockNext, "block_num": cmdBlockNum, "token": cmdBlockToken, "ctrl_sig": cmdBlockCtlSig, "sig": cmdBlockSig,
	} {
		require.Equal(t, at["cmd_prot_block."+name], uintptr(off), name)
	}
}
