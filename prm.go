package main

// prm.go owns the places and values of the device interface: where a field of a
// command, context or register lies, opcodes, states, and the names of statuses
// and syndromes. It is data only; nothing here acts.
// Manual: chapters Command Reference, Registers, Initialization Segment.
//
// Places are in the manual's coordinates: byte offset of a big-endian dword,
// highest and lowest bit in it (31 is the dword's first bit on the wire).
// The comment above a group is the manual's structure, the one behind a line its
// field. prm_test.go compares each with the published layout and looks for
// overlaps.

import (
	"encoding/binary"
	"fmt"
)

// field is a bit field of at most 32 bits inside one dword.
type field struct {
	off    int
	hi, lo uint8
}

// wide is a 64-bit value, big endian.
type wide struct{ off int }

// area is a nested structure or a byte string: offset and length in bytes. A
// length of 0 means that it runs to the end of the message.
type area struct{ off, n int }

func (f field) mask() uint32 { return uint32(1<<(f.hi-f.lo+1)-1) << f.lo }

func (f field) get(b []byte) uint32 {
	return binary.BigEndian.Uint32(b[f.off:]) & f.mask() >> f.lo
}

// set replaces the field. v must fit: a value that does not is a fault of ours
// that must not reach the device as a different, smaller value.
func (f field) set(b []byte, v uint32) {
	m := f.mask()
	if v<<f.lo&m>>f.lo != v {
		panic(fmt.Sprintf("value %#x does not fit into bits %d:%d", v, f.hi, f.lo))
	}
	binary.BigEndian.PutUint32(b[f.off:], binary.BigEndian.Uint32(b[f.off:])&^m|v<<f.lo)
}

// on reads or sets a flag.
func (f field) on(b []byte) bool { return f.get(b) != 0 }

func (f field) flag(b []byte, v bool) {
	if v {
		f.set(b, 1)
	} else {
		f.set(b, 0)
	}
}

func (w wide) get(b []byte) uint64    { return binary.BigEndian.Uint64(b[w.off:]) }
func (w wide) set(b []byte, v uint64) { binary.BigEndian.PutUint64(b[w.off:], v) }

// in returns the nested bytes of b.
func (a area) in(b []byte) []byte {
	if a.n == 0 {
		return b[a.off:]
	}
	return b[a.off : a.off+a.n : a.off+a.n]
}

// Every command starts and every answer starts like this.
var (
	cmdOpcode   = field{0x00, 31, 16}
	cmdOpMod    = field{0x04, 15, 0}
	cmdStatus   = field{0x00, 31, 24}
	cmdSyndrome = field{0x04, 31, 0}
	// cmdObject is the number of the object that a command made or is about:
	// a QPN, CQN, TIRN and so on, in the answer and in the question alike.
	cmdObject = field{0x08, 23, 0}
)

// Command opcodes and their names, as the manual writes them.
const (
	opQueryHCACap            = 0x100
	opQueryAdapter           = 0x101
	opInitHCA                = 0x102
	opTeardownHCA            = 0x103
	opEnableHCA              = 0x104
	opDisableHCA             = 0x105
	opQueryPages             = 0x107
	opManagePages            = 0x108
	opSetHCACap              = 0x109
	opQueryISSI              = 0x10a
	opSetISSI                = 0x10b
	opSetDriverVersion       = 0x10d
	opCreateMkey             = 0x200
	opDestroyMkey            = 0x202
	opCreateEQ               = 0x301
	opDestroyEQ              = 0x302
	opCreateCQ               = 0x400
	opDestroyCQ              = 0x401
	opQueryCQ                = 0x402
	opModifyCQ               = 0x403
	opQueryVportState        = 0x750
	opModifyVportState       = 0x751
	opQueryNicVportContext   = 0x754
	opModifyNicVportContext  = 0x755
	opQueryVnicEnv           = 0x76f
	opQueryVportCounter      = 0x770
	opAllocQCounter          = 0x771
	opDeallocQCounter        = 0x772
	opQueryQCounter          = 0x773
	opAllocPD                = 0x800
	opDeallocPD              = 0x801
	opAllocUAR               = 0x802
	opDeallocUAR             = 0x803
	opAccessReg              = 0x805
	opAllocTransportDomain   = 0x816
	opDeallocTransportDomain = 0x817
	opCreateTIR              = 0x900
	opModifyTIR              = 0x901
	opDestroyTIR             = 0x902
	opCreateSQ               = 0x904
	opModifySQ               = 0x905
	opDestroySQ              = 0x906
	opQuerySQ                = 0x907
	opCreateRQ               = 0x908
	opModifyRQ               = 0x909
	opDestroyRQ              = 0x90a
	opQueryRQ                = 0x90b
	opCreateTIS              = 0x912
	opDestroyTIS             = 0x914
	opCreateRQT              = 0x916
	opModifyRQT              = 0x917
	opDestroyRQT             = 0x918
	opSetFlowTableRoot       = 0x92f
	opCreateFlowTable        = 0x930
	opDestroyFlowTable       = 0x931
	opCreateFlowGroup        = 0x933
	opDestroyFlowGroup       = 0x934
	opSetFlowTableEntry      = 0x936
	opDeleteFlowTableEntry   = 0x938
	opAllocFlowCounter       = 0x939
	opDeallocFlowCounter     = 0x93a
	opQueryFlowCounter       = 0x93b
)

var opcodeNames = map[uint16]string{
	opQueryHCACap:            "QUERY_HCA_CAP",
	opQueryAdapter:           "QUERY_ADAPTER",
	opInitHCA:                "INIT_HCA",
	opTeardownHCA:            "TEARDOWN_HCA",
	opEnableHCA:              "ENABLE_HCA",
	opDisableHCA:             "DISABLE_HCA",
	opQueryPages:             "QUERY_PAGES",
	opManagePages:            "MANAGE_PAGES",
	opSetHCACap:              "SET_HCA_CAP",
	opQueryISSI:              "QUERY_ISSI",
	opSetISSI:                "SET_ISSI",
	opSetDriverVersion:       "SET_DRIVER_VERSION",
	opCreateMkey:             "CREATE_MKEY",
	opDestroyMkey:            "DESTROY_MKEY",
	opCreateEQ:               "CREATE_EQ",
	opDestroyEQ:              "DESTROY_EQ",
	opCreateCQ:               "CREATE_CQ",
	opDestroyCQ:              "DESTROY_CQ",
	opQueryCQ:                "QUERY_CQ",
	opModifyCQ:               "MODIFY_CQ",
	opQueryVportState:        "QUERY_VPORT_STATE",
	opModifyVportState:       "MODIFY_VPORT_STATE",
	opQueryNicVportContext:   "QUERY_NIC_VPORT_CONTEXT",
	opModifyNicVportContext:  "MODIFY_NIC_VPORT_CONTEXT",
	opQueryVnicEnv:           "QUERY_VNIC_ENV",
	opQueryVportCounter:      "QUERY_VPORT_COUNTER",
	opAllocQCounter:          "ALLOC_Q_COUNTER",
	opDeallocQCounter:        "DEALLOC_Q_COUNTER",
	opQueryQCounter:          "QUERY_Q_COUNTER",
	opAllocPD:                "ALLOC_PD",
	opDeallocPD:              "DEALLOC_PD",
	opAllocUAR:               "ALLOC_UAR",
	opDeallocUAR:             "DEALLOC_UAR",
	opAccessReg:              "ACCESS_REG",
	opAllocTransportDomain:   "ALLOC_TRANSPORT_DOMAIN",
	opDeallocTransportDomain: "DEALLOC_TRANSPORT_DOMAIN",
	opCreateTIR:              "CREATE_TIR",
	opModifyTIR:              "MODIFY_TIR",
	opDestroyTIR:             "DESTROY_TIR",
	opCreateSQ:               "CREATE_SQ",
	opModifySQ:               "MODIFY_SQ",
	opDestroySQ:              "DESTROY_SQ",
	opQuerySQ:                "QUERY_SQ",
	opCreateRQ:               "CREATE_RQ",
	opModifyRQ:               "MODIFY_RQ",
	opDestroyRQ:              "DESTROY_RQ",
	opQueryRQ:                "QUERY_RQ",
	opCreateTIS:              "CREATE_TIS",
	opDestroyTIS:             "DESTROY_TIS",
	opCreateRQT:              "CREATE_RQT",
	opModifyRQT:              "MODIFY_RQT",
	opDestroyRQT:             "DESTROY_RQT",
	opSetFlowTableRoot:       "SET_FLOW_TABLE_ROOT",
	opCreateFlowTable:        "CREATE_FLOW_TABLE",
	opDestroyFlowTable:       "DESTROY_FLOW_TABLE",
	opCreateFlowGroup:        "CREATE_FLOW_GROUP",
	opDestroyFlowGroup:       "DESTROY_FLOW_GROUP",
	opSetFlowTableEntry:      "SET_FLOW_TABLE_ENTRY",
	opDeleteFlowTableEntry:   "DELETE_FLOW_TABLE_ENTRY",
	opAllocFlowCounter:       "ALLOC_FLOW_COUNTER",
	opDeallocFlowCounter:     "DEALLOC_FLOW_COUNTER",
	opQueryFlowCounter:       "QUERY_FLOW_COUNTER",
}

// initial_seg
var (
	segFwMinor       = field{0x00, 31, 16}  // fw_rev_minor
	segFwMajor       = field{0x00, 15, 0}   // fw_rev_major
	segCmdRev        = field{0x04, 31, 16}  // cmd_interface_rev
	segFwSubminor    = field{0x04, 15, 0}   // fw_rev_subminor
	segCmdqHi        = field{0x10, 31, 0}   // cmdq_phy_addr_63_32
	segCmdqLo        = field{0x14, 31, 12}  // cmdq_phy_addr_31_12
	segLogCmdqSize   = field{0x14, 7, 4}    // log_cmdq_size
	segLogCmdqStride = field{0x14, 3, 0}    // log_cmdq_stride
	segDoorbell      = field{0x18, 31, 0}   // command_doorbell_vector
	segInitializing  = field{0x1fc, 31, 31} // initializing
	segHealthCounter = field{0x1010, 23, 0} // health_counter
)

// segHealth is where the health buffer begins in the initialization segment.
const segHealth = 0x200

// health_buffer
var (
	healthSyndrome = field{0x3c, 23, 16} // synd
)

// query_issi_out
var (
	issiOutSupported = field{0x6c, 31, 0} // supported_issi_dw0
)

// set_issi_in
var (
	setISSIInIssi = field{0x08, 15, 0} // current_issi
)

// query_pages_out
var (
	queryPagesOutFunctionId = field{0x08, 15, 0} // function_id
	queryPagesOutNumPages   = field{0x0c, 31, 0} // num_pages
)

// manage_pages_in
var (
	managePagesInFunctionId = field{0x08, 15, 0} // function_id
	managePagesInNum        = field{0x0c, 31, 0} // input_num_entries
	managePagesInPas        = area{0x10, 0}      // pas
)

// manage_pages_out
var (
	managePagesOutNum = field{0x08, 31, 0} // output_num_entries
	managePagesOutPas = area{0x10, 0}      // pas
)

// set_driver_version_in
var (
	driverVersionInText = area{0x10, 64} // driver_version
)

// query_adapter_param_block
var (
	adapterPsid = area{0xf0, 16} // vsd_contd_psid
)

// access_register_in
var (
	accessInId   = field{0x08, 15, 0} // register_id
	accessInData = area{0x10, 0}      // register_data
)

// access_register_out
var (
	accessOutData = area{0x10, 0} // register_data
)

// create_eq_in
var (
	createEQInCtx          = area{0x10, 64} // eq_context_entry
	createEQInEventBitmask = area{0x58, 32} // event_bitmask
	createEQInPas          = area{0x110, 0} // pas
)

// eqc
var (
	eqcLogEqSize = field{0x0c, 28, 24} // log_eq_size
	eqcUarPage   = field{0x0c, 23, 0}  // uar_page
	eqcIntr      = field{0x14, 11, 0}  // intr
)

// create_mkey_in
var (
	createMkeyInCtx = area{0x10, 64} // memory_key_mkey_entry
	createMkeyInMtt = area{0x110, 0} // klm_pas_mtt
)

// mkc
var (
	mkcFree        = field{0x00, 30, 30} // free
	mkcUmrEn       = field{0x00, 15, 15} // umr_en
	mkcLw          = field{0x00, 11, 11} // lw
	mkcLr          = field{0x00, 10, 10} // lr
	mkcModeLo      = field{0x00, 9, 8}   // access_mode_1_0
	mkcQpn         = field{0x04, 31, 8}  // qpn
	mkcLength64    = field{0x0c, 31, 31} // length64
	mkcPd          = field{0x0c, 23, 0}  // pd
	mkcLength      = wide{0x18}          // len
	mkcOctwords    = field{0x34, 31, 0}  // translations_octword_size
	mkcLogPageSize = field{0x38, 5, 0}   // log_page_size
)

// create_cq_in
var (
	createCQInCtx = area{0x10, 64} // cq_context
	createCQInPas = area{0x110, 0} // pas
)

// cqc
var (
	cqcPeriodMode = field{0x00, 16, 15} // cq_period_mode
	cqcCompEn     = field{0x00, 14, 14} // cqe_comp_en
	cqcMiniFormat = field{0x00, 13, 12} // mini_cqe_res_format
	cqcLogSize    = field{0x0c, 28, 24} // log_cq_size
	cqcUarPage    = field{0x0c, 23, 0}  // uar_page
	cqcPeriod     = field{0x10, 27, 16} // cq_period
	cqcMaxCount   = field{0x10, 15, 0}  // cq_max_count
	cqcEqn        = field{0x14, 31, 0}  // c_eqn_or_apu_element
	cqcDbrAddr    = wide{0x38}          // dbr_addr
)

// modify_cq_in
var (
	modifyCQInCqn    = field{0x08, 23, 0} // cqn
	modifyCQInSelect = area{0x0c, 4}      // modify_field_select_resize_field_select
	modifyCQInCtx    = area{0x10, 64}     // cq_context
)

// create_sq_in
var (
	createSQInCtx = area{0x20, 240} // ctx
)

// modify_sq_in
var (
	modifySQInState = field{0x08, 31, 28} // sq_state
	modifySQInSqn   = field{0x08, 23, 0}  // sqn
	modifySQInCtx   = area{0x20, 240}     // ctx
)

// query_sq_out
var (
	querySQOutCtx = area{0x20, 240} // sq_context
)

// sqc
var (
	sqcFlush     = field{0x00, 28, 28} // flush_in_error_en
	sqcMpw       = field{0x00, 27, 27} // allow_multi_pkt_send_wqe
	sqcMinInline = field{0x00, 26, 24} // min_wqe_inline_mode
	sqcState     = field{0x00, 23, 20} // state
	sqcRegUmr    = field{0x00, 19, 19} // reg_umr
	sqcAllowSwp  = field{0x00, 18, 18} // allow_swp
	sqcTsFormat  = field{0x00, 5, 4}   // ts_format
	sqcCqn       = field{0x08, 23, 0}  // cqn
	sqcTisCount  = field{0x20, 31, 16} // tis_lst_sz
	sqcTis       = field{0x2c, 23, 0}  // tis_num_0
	sqcWq        = area{0x30, 192}     // wq
)

// create_rq_in
var (
	createRQInCtx = area{0x20, 240} // ctx
)

// modify_rq_in
var (
	modifyRQInState = field{0x08, 31, 28} // rq_state
	modifyRQInRqn   = field{0x08, 23, 0}  // rqn
	modifyRQInCtx   = area{0x20, 240}     // ctx
)

// query_rq_out
var (
	queryRQOutCtx = area{0x20, 240} // rq_context
)

// rqc
var (
	rqcVsd          = field{0x00, 28, 28} // vsd
	rqcState        = field{0x00, 23, 20} // state
	rqcFlush        = field{0x00, 18, 18} // flush_in_error_en
	rqcTsFormat     = field{0x00, 5, 4}   // ts_format
	rqcCqn          = field{0x08, 23, 0}  // cqn
	rqcCounterSetId = field{0x0c, 31, 24} // counter_set_id
	rqcWq           = area{0x30, 192}     // wq
)

// wq
var (
	wqType       = field{0x00, 31, 28} // wq_type
	wqPd         = field{0x08, 23, 0}  // pd
	wqUarPage    = field{0x0c, 23, 0}  // uar_page
	wqDbrAddr    = wide{0x10}          // dbr_addr
	wqLogStride  = field{0x20, 19, 16} // log_wq_stride
	wqLogSize    = field{0x20, 4, 0}   // log_wq_sz
	wqNumStrides = field{0x24, 11, 8}  // log_wqe_num_of_strides
	wqStrideSize = field{0x24, 2, 0}   // log_wqe_stride_size
	wqPas        = area{0xc0, 0}       // pas
)

// create_tis_in
var (
	createTISInCtx = area{0x20, 160} // ctx
)

// tisc
var (
	tiscTd = field{0x24, 23, 0} // transport_domain
)

// create_rqt_in
var (
	createRQTInCtx = area{0x20, 240} // rqt_context
)

// modify_rqt_in
var (
	modifyRQTInRqtn = field{0x08, 23, 0} // rqtn
	modifyRQTInMask = area{0x10, 8}      // bitmask
	modifyRQTInCtx  = area{0x20, 240}    // ctx
)

// rqt_bitmask
var (
	rqtMaskList = field{0x04, 0, 0} // rqn_list
)

// rqtc
var (
	rqtcMaxSize    = field{0x14, 15, 0} // rqt_max_size
	rqtcActualSize = field{0x18, 15, 0} // rqt_actual_size
	rqtcRqNum      = area{0xf0, 0}      // rq_num
)

// create_tir_in
var (
	createTIRInCtx = area{0x20, 240} // ctx
)

// tirc
var (
	tircDispType      = field{0x04, 31, 28} // disp_type
	tircIndirectTable = field{0x20, 23, 0}  // indirect_table
	tircHashFn        = field{0x24, 31, 28} // rx_hash_fn
	tircTd            = field{0x24, 23, 0}  // transport_domain
	tircKey           = area{0x28, 40}      // rx_hash_toeplitz_key
	tircOuter         = area{0x50, 4}       // rx_hash_field_selector_outer
)

// rx_hash_field_select
var (
	rxHashL3     = field{0x00, 31, 31} // l3_prot_type
	rxHashL4     = field{0x00, 30, 30} // l4_prot_type
	rxHashFields = field{0x00, 29, 0}  // selected_fields
)

// create_flow_table_in
var (
	createTableInType = field{0x10, 31, 24} // table_type
	createTableInCtx  = area{0x18, 40}      // flow_table_context
)

// flow_table_context
var (
	tableCtxMissAction = field{0x00, 27, 24} // table_miss_action
	tableCtxLevel      = field{0x00, 23, 16} // level
	tableCtxLogSize    = field{0x00, 7, 0}   // log_size
	tableCtxMissId     = field{0x04, 23, 0}  // table_miss_id
)

// destroy_flow_table_in
var (
	destroyTableInType  = field{0x10, 31, 24} // table_type
	destroyTableInTable = field{0x14, 23, 0}  // table_id
)

// set_flow_table_root_in
var (
	setRootInType  = field{0x10, 31, 24} // table_type
	setRootInTable = field{0x14, 23, 0}  // table_id
)

// create_flow_group_in
var (
	createGroupInType     = field{0x10, 31, 24} // table_type
	createGroupInTable    = field{0x14, 23, 0}  // table_id
	createGroupInStart    = field{0x1c, 31, 0}  // start_flow_index
	createGroupInEnd      = field{0x24, 31, 0}  // end_flow_index
	createGroupInEnable   = field{0x3c, 7, 0}   // match_criteria_enable
	createGroupInCriteria = area{0x40, 512}     // match_criteria
)

// destroy_flow_group_in
var (
	destroyGroupInType  = field{0x10, 31, 24} // table_type
	destroyGroupInTable = field{0x14, 23, 0}  // table_id
	destroyGroupInGroup = field{0x18, 31, 0}  // group_id
)

// set_fte_in
var (
	setFTEInType  = field{0x10, 31, 24} // table_type
	setFTEInTable = field{0x14, 23, 0}  // table_id
	setFTEInIndex = field{0x20, 31, 0}  // flow_index
	setFTEInCtx   = area{0x40, 768}     // flow_context
)

// delete_fte_in
var (
	deleteFTEInType  = field{0x10, 31, 24} // table_type
	deleteFTEInTable = field{0x14, 23, 0}  // table_id
	deleteFTEInIndex = field{0x20, 31, 0}  // flow_index
)

// flow_context
var (
	flowCtxGroup    = field{0x04, 31, 0} // group_id
	flowCtxAction   = field{0x0c, 15, 0} // action
	flowCtxDests    = field{0x10, 23, 0} // destination_list_size
	flowCtxCounters = field{0x14, 23, 0} // flow_counter_list_size
	flowCtxValue    = area{0x40, 512}    // match_value
	flowCtxDest     = area{0x300, 0}     // destination
)

// dest_format_struct
var (
	dstType = field{0x00, 31, 24} // destination_type
	dstId   = field{0x00, 23, 0}  // destination_id
)

// flow_counter_list
var (
	counterListId = field{0x00, 31, 0} // flow_counter_id
)

// alloc_flow_counter_out
var (
	allocCounterOutId = field{0x08, 31, 0} // flow_counter_id
)

// dealloc_flow_counter_in
var (
	deallocCounterInId = field{0x08, 31, 0} // flow_counter_id
)

// query_flow_counter_in
var (
	queryCounterInId = field{0x1c, 31, 0} // flow_counter_id
)

// query_flow_counter_out
var (
	queryCounterOutStats = area{0x10, 0} // flow_statistics
)

// fte_match_param
var (
	matchOuter = area{0x00, 64} // outer_headers
	matchMisc  = area{0x40, 64} // misc_parameters
)

// fte_match_set_lyr_2_4
var (
	l2l4SmacHi     = field{0x00, 31, 0}  // smac_47_16
	l2l4SmacLo     = field{0x04, 31, 16} // smac_15_0
	l2l4Ethertype  = field{0x04, 15, 0}  // ethertype
	l2l4DmacHi     = field{0x08, 31, 0}  // dmac_47_16
	l2l4DmacLo     = field{0x0c, 31, 16} // dmac_15_0
	l2l4FirstPrio  = field{0x0c, 15, 13} // first_prio
	l2l4FirstCfi   = field{0x0c, 12, 12} // first_cfi
	l2l4FirstVid   = field{0x0c, 11, 0}  // first_vid
	l2l4IpProtocol = field{0x10, 31, 24} // ip_protocol
	l2l4IpDscp     = field{0x10, 23, 18} // ip_dscp
	l2l4IpEcn      = field{0x10, 17, 16} // ip_ecn
	l2l4Cvlan      = field{0x10, 15, 15} // cvlan_tag
	l2l4Svlan      = field{0x10, 14, 14} // svlan_tag
	l2l4Frag       = field{0x10, 13, 13} // frag
	l2l4IpVersion  = field{0x10, 12, 9}  // ip_version
	l2l4TcpSport   = field{0x14, 31, 16} // tcp_sport
	l2l4TcpDport   = field{0x14, 15, 0}  // tcp_dport
	l2l4UdpSport   = field{0x1c, 31, 16} // udp_sport
	l2l4UdpDport   = field{0x1c, 15, 0}  // udp_dport
	l2l4Src        = area{0x20, 16}      // src_ipv4_src_ipv6
	l2l4Dst        = area{0x30, 16}      // dst_ipv4_dst_ipv6
)

// fte_match_set_misc
var (
	miscOuterEspSpi = field{0x30, 31, 0} // outer_esp_spi
)

// query_nic_vport_context_out
var (
	vportCtxOutCtx = area{0x10, 256} // nic_vport_context
)

// modify_nic_vport_context_in
var (
	modVportInSelect = area{0x0c, 4}    // field_select
	modVportInCtx    = area{0x100, 256} // nic_vport_context
)

// modify_nic_vport_field_select
var (
	vportSelectMtu     = field{0x00, 6, 6} // mtu
	vportSelectPromisc = field{0x00, 4, 4} // promisc
	vportSelectList    = field{0x00, 2, 2} // addresses_list
)

// nic_vport_context
var (
	vportMinInline  = field{0x00, 26, 24} // min_wqe_inline_mode
	vportMtu        = field{0x24, 15, 0}  // mtu
	vportPromiscUc  = field{0xf0, 31, 31} // promisc_uc
	vportPromiscMc  = field{0xf0, 30, 30} // promisc_mc
	vportPromiscAll = field{0xf0, 29, 29} // promisc_all
	vportList       = field{0xf0, 26, 24} // allowed_list_type
	vportListSize   = field{0xf0, 11, 0}  // allowed_list_size
	vportPermanent  = area{0xf4, 8}       // permanent_address
	vportCurrent    = area{0x100, 0}      // current_uc_mac_address
)

// query_vport_state_out
var (
	vportStateOutState = field{0x0c, 3, 0} // state
)

// query_vport_counter_out
var (
	vportCounterOutRxBroad = area{0x70, 16} // received_eth_broadcast
	vportCounterOutTxBroad = area{0x80, 16} // transmitted_eth_broadcast
	vportCounterOutRxUni   = area{0x90, 16} // received_eth_unicast
	vportCounterOutTxUni   = area{0xa0, 16} // transmitted_eth_unicast
	vportCounterOutRxMulti = area{0xb0, 16} // received_eth_multicast
	vportCounterOutTxMulti = area{0xc0, 16} // transmitted_eth_multicast
)

// traffic_counter
var (
	trafficPackets = wide{0x00} // packets
	trafficOctets  = wide{0x08} // octets
)

// query_q_counter_in
var (
	qCounterInSet = field{0x1c, 7, 0} // counter_set_id
)

// query_q_counter_out
var (
	qCounterOutOutOfBuffer = field{0x30, 31, 0} // out_of_buffer
)

// query_vnic_env_out
var (
	vnicEnvOutEnv = area{0x10, 512} // vport_env
)

// vnic_diagnostic_statistics
var (
	vnicEnvSteerDiscard = wide{0x10} // nic_receive_steering_discard
	vnicEnvRxVportDown  = wide{0x18} // receive_discard_vport_down
)

// pmtu_reg
var (
	pmtuPort  = field{0x00, 23, 16} // local_port
	pmtuMax   = field{0x04, 31, 16} // max_mtu
	pmtuAdmin = field{0x08, 31, 16} // admin_mtu
	pmtuOper  = field{0x0c, 31, 16} // oper_mtu
)

// paos_reg
var (
	paosPort  = field{0x00, 23, 16} // local_port
	paosAdmin = field{0x00, 11, 8}  // admin_status
	paosAse   = field{0x04, 31, 31} // ase
)

// ptys_reg
var (
	ptysPort      = field{0x00, 23, 16} // local_port
	ptysProtoMask = field{0x00, 2, 0}   // proto_mask
	ptysExtOper   = field{0x20, 31, 0}  // ext_eth_proto_oper
	ptysOper      = field{0x24, 31, 0}  // eth_proto_oper
)

// ppcnt_reg
var (
	ppcntPort  = field{0x00, 23, 16} // local_port
	ppcntGroup = field{0x00, 5, 0}   // grp
	ppcntSet   = area{0x08, 248}     // counter_set
)

// cmd_hca_cap
var (
	capLogMaxCqSz                = field{0x18, 23, 16} // log_max_cq_sz
	capLogMaxEq                  = field{0x1c, 3, 0}   // log_max_eq
	capNicFlowTable              = field{0x34, 25, 25} // nic_flow_table
	capPortType                  = field{0x34, 9, 8}   // port_type
	capCqeVersion                = field{0x3c, 3, 0}   // cqe_version
	capStridingRq                = field{0x40, 30, 30} // striding_rq
	capCmdifChecksum             = field{0x40, 15, 14} // cmdif_checksum
	capEthNetOffloads            = field{0x40, 3, 3}   // eth_net_offloads
	capCqModeration              = field{0x44, 29, 29} // cq_moderation
	capCqPeriodModeModify        = field{0x44, 28, 28} // cq_period_mode_modify
	capCqPeriodStartFromCqe      = field{0x44, 20, 20} // cq_period_start_from_cqe
	capUar4k                     = field{0x48, 31, 31} // uar_4k
	capBf                        = field{0x4c, 31, 31} // bf
	capLogBfRegSize              = field{0x4c, 20, 16} // log_bf_reg_size
	capDriverVersion             = field{0x4c, 30, 30} // driver_version
	capLogMaxRqtSize             = field{0x70, 12, 8}  // log_max_rqt_size
	capLogMaxWqSz                = field{0x78, 4, 0}   // log_max_wq_sz
	capExtStrideNumRange         = field{0x74, 31, 31} // ext_stride_num_range
	capLogUarPageSz              = field{0x90, 15, 0}  // log_uar_page_sz
	capDeviceFrequencyMhz        = field{0x98, 31, 0}  // device_frequency_mhz
	capDeviceFrequencyKhz        = field{0x9c, 31, 0}  // device_frequency_khz
	capSqTsFormat                = field{0x88, 31, 30} // sq_ts_format
	capRqTsFormat                = field{0x88, 29, 28} // rq_ts_format
	capMaxNumEqs                 = field{0x8c, 15, 0}  // max_num_eqs
	capCqeCompression            = field{0xb4, 0, 0}   // cqe_compression
	capMiniCqeRespStrideIndex    = field{0xb4, 3, 3}   // mini_cqe_resp_stride_index
	capNicReceiveSteeringDiscard = field{0x68, 31, 31} // nic_receive_steering_discard
	capUmrPtrRlky                = field{0x44, 15, 15} // umr_ptr_rlky
	capReceiveDiscardVportDown   = field{0x68, 30, 30} // receive_discard_vport_down
)

// per_protocol_networking_offload_caps
var (
	ethCapCsumCap                 = field{0x00, 31, 31} // csum_cap
	ethCapVlanCap                 = field{0x00, 30, 30} // vlan_cap
	ethCapWqeVlanInsert           = field{0x00, 24, 24} // wqe_vlan_insert
	ethCapMaxLsoCap               = field{0x00, 20, 16} // max_lso_cap
	ethCapWqeInlineMode           = field{0x00, 13, 12} // wqe_inline_mode
	ethCapRegUmrSq                = field{0x00, 7, 7}   // reg_umr_sq
	ethCapEnhancedMultiPktSendWqe = field{0x00, 5, 5}   // enhanced_multi_pkt_send_wqe
	ethCapSwp                     = field{0x04, 31, 31} // swp
	ethCapSwpCsum                 = field{0x04, 30, 30} // swp_csum
	ethCapSwpLso                  = field{0x04, 29, 29} // swp_lso
)

// flow_table_nic_cap
var (
	ftCapRx = area{0x40, 64} // flow_table_properties_nic_receive
)

// flow_table_prop_layout
var (
	ftPropFtSupport      = field{0x00, 31, 31} // ft_support
	ftPropFlowCounter    = field{0x00, 29, 29} // flow_counter
	ftPropModifyRoot     = field{0x00, 27, 27} // modify_root
	ftPropLogMaxFtSize   = field{0x04, 29, 24} // log_max_ft_size
	ftPropMaxFtLevel     = field{0x04, 7, 0}   // max_ft_level
	ftPropFtFieldSupport = area{0x20, 16}      // ft_field_support
	ftPropFtFieldBitmask = area{0x30, 16}      // ft_field_bitmask_support
)

// flow_table_fields_supported
var (
	ftFieldOuterDmac       = field{0x00, 31, 31} // outer_dmac
	ftFieldOuterSmac       = field{0x00, 30, 30} // outer_smac
	ftFieldOuterEtherType  = field{0x00, 29, 29} // outer_ether_type
	ftFieldOuterIpVersion  = field{0x00, 28, 28} // outer_ip_version
	ftFieldOuterFirstPrio  = field{0x00, 27, 27} // outer_first_prio
	ftFieldOuterFirstCfi   = field{0x00, 26, 26} // outer_first_cfi
	ftFieldOuterFirstVid   = field{0x00, 25, 25} // outer_first_vid
	ftFieldOuterSip        = field{0x00, 19, 19} // outer_sip
	ftFieldOuterDip        = field{0x00, 18, 18} // outer_dip
	ftFieldOuterFrag       = field{0x00, 17, 17} // outer_frag
	ftFieldOuterIpProtocol = field{0x00, 16, 16} // outer_ip_protocol
	ftFieldOuterIpEcn      = field{0x00, 15, 15} // outer_ip_ecn
	ftFieldOuterIpDscp     = field{0x00, 14, 14} // outer_ip_dscp
	ftFieldOuterUdpSport   = field{0x00, 13, 13} // outer_udp_sport
	ftFieldOuterUdpDport   = field{0x00, 12, 12} // outer_udp_dport
	ftFieldOuterTcpSport   = field{0x00, 11, 11} // outer_tcp_sport
	ftFieldOuterTcpDport   = field{0x00, 10, 10} // outer_tcp_dport
	ftFieldOuterEspSpi     = field{0x08, 8, 8}   // outer_esp_spi
)

// eth_2819_cntrs_grp_data_layout
var (
	rfc2819Undersize = wide{0x30} // ether_stats_undersize_pkts_high
	rfc2819Fragments = wide{0x40} // ether_stats_fragments_high
	rfc2819Jabbers   = wide{0x48} // ether_stats_jabbers_high
	rfc2819To64      = wide{0x58} // ether_stats_pkts64octets_high
	rfc2819To127     = wide{0x60} // ether_stats_pkts65to127octets_high
	rfc2819To255     = wide{0x68} // ether_stats_pkts128to255octets_high
	rfc2819To511     = wide{0x70} // ether_stats_pkts256to511octets_high
	rfc2819To1023    = wide{0x78} // ether_stats_pkts512to1023octets_high
	rfc2819To1518    = wide{0x80} // ether_stats_pkts1024to1518octets_high
	rfc2819To2047    = wide{0x88} // ether_stats_pkts1519to2047octets_high
	rfc2819To4095    = wide{0x90} // ether_stats_pkts2048to4095octets_high
	rfc2819To8191    = wide{0x98} // ether_stats_pkts4096to8191octets_high
	rfc2819To10239   = wide{0xa0} // ether_stats_pkts8192to10239octets_high
)

// eth_802_3_cntrs_grp_data_layout
var (
	ieeeTxFrames         = wide{0x00} // a_frames_transmitted_ok_high
	ieeeRxFrames         = wide{0x08} // a_frames_received_ok_high
	ieeeFcsErrors        = wide{0x10} // a_frame_check_sequence_errors_high
	ieeeTxOctets         = wide{0x20} // a_octets_transmitted_ok_high
	ieeeRxOctets         = wide{0x28} // a_octets_received_ok_high
	ieeeTxMulticast      = wide{0x30} // a_multicast_frames_xmitted_ok_high
	ieeeTxBroadcast      = wide{0x38} // a_broadcast_frames_xmitted_ok_high
	ieeeRxMulticast      = wide{0x40} // a_multicast_frames_received_ok_high
	ieeeRxBroadcast      = wide{0x48} // a_broadcast_frames_received_ok_high
	ieeeInRangeLength    = wide{0x50} // a_in_range_length_errors_high
	ieeeOutOfRangeLength = wide{0x58} // a_out_of_range_length_field_high
	ieeeTooLong          = wide{0x60} // a_frame_too_long_errors_high
	ieeeSymbolErrors     = wide{0x68} // a_symbol_error_during_carrier_high
	ieeeTxControl        = wide{0x70} // a_mac_control_frames_transmitted_high
	ieeeRxControl        = wide{0x78} // a_mac_control_frames_received_high
	ieeeUnsupported      = wide{0x80} // a_unsupported_opcodes_received_high
	ieeeRxPause          = wide{0x88} // a_pause_mac_ctrl_frames_received_high
	ieeeTxPause          = wide{0x90} // a_pause_mac_ctrl_frames_transmitted_high
)

// eth_2863_cntrs_grp_data_layout
var (
	rfc2863InDiscards  = wide{0x10} // if_in_discards_high
	rfc2863OutDiscards = wide{0x38} // if_out_discards_high
	rfc2863OutErrors   = wide{0x40} // if_out_errors_high
)

// phys_layer_cntrs
var (
	physLinkDowns = field{0xc0, 31, 0} // link_down_events
)

// What MODIFY_CQ changes (modify_field_select).
const (
	cqModifyPeriod     = 0x01
	cqModifyCount      = 0x02
	cqModifyPeriodMode = 0x10
)

// Clocks behind the initialization segment: the upper of two 32-bit registers.
const (
	regInternalTimer = 0x1000 // ticks
	regRealTime      = 0x1040 // seconds, then nanoseconds
)

// Objects and limits of the command interface (Initialization Segment, Command
// Interface chapters). Lengths in bytes.
const (
	cmdIfRev       = 5
	cmdEntryType   = 0x07
	cmdEntrySize   = 64
	cmdInline      = 16
	cmdBlockData   = 512
	cmdBlockSize   = 576
	cmdBlockStride = 1024 // blocks are aligned to this
	cmdBlockNext   = 560
	cmdBlockNum    = 568
	cmdBlockToken  = 573
	cmdBlockCtlSig = 574
	cmdBlockSig    = 575
)

// Places in a command queue entry.
const (
	entryType     = 0
	entryInLen    = 4
	entryInPtr    = 8
	entryIn       = 16
	entryOut      = 32
	entryOutPtr   = 48
	entryOutLen   = 56
	entryToken    = 60
	entrySig      = 61
	entryStatus   = 63 // delivery status << 1 | owner
	entryOwnerBit = 1
)

// Registers of a UAR page and words of a doorbell record.
const (
	uarPageSize = 4096
	uarCQArm    = 0x20
	uarEQArm    = 0x40 // tells the consumer index and asks for an interrupt
	uarSQ       = 0x800

	recordRQ    = 0
	recordSQ    = 1
	recordCQ    = 0
	recordCQArm = 1

	eqnShift    = 24
	cqArmSN     = 28
	cqArmAny    = 0 << 24
	cqArmNever  = 2 << cqArmSN // of a record that was never armed
	indexMask24 = 0xffffff
)

// Operation modifiers.
const (
	pagesCantGive = 0
	pagesGive     = 1
	pagesTake     = 2

	queryPagesBoot = 1
	queryPagesInit = 2

	capMax     = 0
	capCurrent = 1

	capGroupGeneral   = 0
	capGroupEthernet  = 1
	capGroupFlowTable = 7

	regWrite = 0
	regRead  = 1

	vportOwn = 0
)

// Registers behind ACCESS_REG.
const (
	regPMTU           = 0x5003
	regPTYS           = 0x5004
	regPAOS           = 0x5006
	regPPCNT          = 0x5008
	regHostEndianness = 0x7004
)

// Counter groups of PPCNT.
const (
	ppcntIEEE8023 = 0x00
	ppcntRFC2863  = 0x01
	ppcntRFC2819  = 0x02
	ppcntPhysical = 0x12
)

// Sizes of answers, in bytes, where the driver reads them whole.
const (
	vportCounterOutSize = 528
	trafficCounterSize  = 16
	qCounterOutSize     = 256
)

// Values of context fields.
const (
	queueReset = 0 // SQ and RQ states
	queueReady = 1
	queueError = 3

	wqCyclic    = 1
	wqStriding  = 2     // linked list of striding WQEs
	invalidLkey = 0x100 // ends a scatter list

	miniHash        = 0 // mini_cqe_res_format: what small completions carry
	miniChecksum    = 1
	miniStrideIndex = 3

	stridesBase    = 9 // log_wqe_num_of_strides counts from here, signed
	stridesExtBase = 3 // the least with ext_stride_num_range
	strideSizeBase = 6 // log_wqe_stride_size counts from here

	mkeyMTT = 1 // access_mode: a list of pages

	portTypeEthernet = 1
	portUp           = 1
	portDown         = 2
	protoEthernet    = 4

	inlineNone  = 0
	inlineL2    = 1
	inlineIP    = 2
	inlineTCP   = 3
	inlineVport = 1 // wqe_inline_mode: ask the vport context

	tirIndirect  = 1
	hashToeplitz = 2
	hashSrcIP    = 1 << 0
	hashDstIP    = 1 << 1
	hashSrcPort  = 1 << 2
	hashDstPort  = 1 << 3
	hashIPv6     = 1
	hashUDP      = 1

	tableNICReceive = 0
	missToTable     = 1
	destTable       = 1
	destTIR         = 2
	actionDrop      = 2
	actionForward   = 4
	actionCount     = 8
	enableOuter     = 1 // match_criteria_enable: a bit for each set of headers
	enableMisc      = 2
	vportListUC     = 0
	vportListMC     = 1
	timestampFree   = 0
	timestampReal   = 2
)

// Event types (chapter Events).
const (
	eventComp        = 0x00
	eventCQError     = 0x04
	eventWQCatas     = 0x05
	eventInternal    = 0x08
	eventPortChange  = 0x09
	eventCommand     = 0x0a
	eventPageRequest = 0x0b
	eventVportChange = 0x0d
	eventWQInvalid   = 0x10
	eventWQAccess    = 0x11

	portSubDown   = 1
	portSubActive = 4

	eventFromRQ = 1 // event_queue_type
	eventFromSQ = 2
)

// WQE opcodes and control flags (chapter Work Queues).
const (
	wqeNOP   = 0x00
	wqeSend  = 0x0a
	wqeLSO   = 0x0e
	wqeUMR   = 0x25
	wqeMPSW  = 0x29 // enhanced multi-packet send
	ctrlCQE  = 0x08 // fm_ce_se: always a completion
	wqebb    = 64
	segment  = 16 // one DS
	maxDS    = 63
	dsInline = 1 << 31

	csumL3Inner = 0x10
	csumL4Inner = 0x20
	csumL3      = 0x40
	csumL4      = 0x80
	insertVLAN  = 0x8000

	swpInnerIPv6 = 0x01 // software parser: what the headers at its offsets are
	swpInnerUDP  = 0x02
	swpOuterIPv6 = 0x10
	swpOuterUDP  = 0x20
)

// CQE opcodes (chapter Completion Queues).
const (
	cqeReq     = 0x0
	cqeRecv    = 0x2
	cqeReqErr  = 0xd
	cqeRespErr = 0xe
	cqeInvalid = 0xf

	cqeCompressed = 3 // format: title of a session of small completions

	// byte_cnt of a striding receive queue: strides in the upper half, with a
	// mark on what only fills up a WQE.
	fillerBit   = 31
	strideShift = 16
	strideMask  = 0x7fff

	syndromeLength = 0x01 // longer than the posted buffer
)

// UMR work requests (chapter UMR WQE): places in bytes, flags and masks.
const (
	umrInline    = 0x80 // flags: the entries stand in the WQE
	umrHasOffset = 0x10 // flags: they are not the first
	umrMaskFree  = 1 << 29
	umrEntries   = 8    // translation entries come in multiples of this
	umrWQEMax    = 1008 // bytes of a WQE: 63 segments
	umrWQEHeader = 128
	mttReadWrite = 3 // low bits of a translation entry
)

// statusNames are the command statuses with the manual's short name and what it
// says. Source: chapter Command Interface, table of statuses.
var statusNames = map[uint8]string{
	0x01: "INTERNAL_ERR",
	0x02: "BAD_OP",
	0x03: "BAD_PARAM",
	0x04: "BAD_SYS_STATE",
	0x05: "BAD_RESOURCE",
	0x06: "RESOURCE_BUSY",
	0x07: "NOT_READY",
	0x08: "EXCEED_LIM",
	0x09: "BAD_RES_STATE",
	0x0a: "BAD_INDEX",
	0x0f: "NO_RESOURCES",
	0x10: "BAD_QP_STATE",
	0x30: "BAD_PKT",
	0x40: "BAD_SIZE_OUTSTANDING_CQES",
	0x50: "BAD_INPUT_LEN",
	0x51: "BAD_OUTPUT_LEN",
}

// deliveryNames are the delivery statuses of a command queue entry.
var deliveryNames = map[uint8]string{
	0x01: "SIGNATURE_ERR",
	0x02: "TOKEN_ERR",
	0x03: "BAD_BLOCK_NUMBER",
	0x04: "BAD_OUTPUT_POINTER",
	0x05: "BAD_INPUT_POINTER",
	0x06: "INTERNAL_ERR",
	0x07: "INPUT_LEN_ERR",
	0x08: "OUTPUT_LEN_ERR",
	0x09: "RESERVED_NOT_ZERO",
	0x10: "BAD_CMD_TYPE",
}

// healthNames are the syndromes of the health buffer: why firmware is ill.
var healthNames = map[uint8]string{
	0x01: "firmware met an internal error",
	0x07: "one of its processors is dead",
	0x08: "fatal hardware error",
	0x09: "firmware's memory does not match its checksum",
	0x0a: "PCI error while it read its pages",
	0x0b: "fault of its pages",
	0x0c: "the queue of asynchronous events overran",
	0x0d: "an event queue is in error",
	0x0e: "invalid event queue",
	0x0f: "fatal error of a link to other parts of the chip",
	0x10: "too hot",
	0x12: "its pages were poisoned on the PCI bus",
}

// workQueueErrors are the events of queues that broke where no completion tells it.
var workQueueErrors = map[uint8]string{
	eventWQCatas:   "catastrophic error",
	eventWQInvalid: "invalid request",
	eventWQAccess:  "access violation",
}

// cqErrors are the syndromes of completion queue errors.
var cqErrors = map[uint8]string{
	1: "overrun",
	2: "access violation",
}

// syndromeNames are the syndromes of error CQEs.
var syndromeNames = map[uint8]string{
	0x01: "local length error",
	0x02: "local queue operation error",
	0x04: "local protection error",
	0x05: "flushed",
	0x06: "memory window bind error",
	0x10: "bad response error",
	0x11: "local access error",
	0x12: "remote invalid request",
	0x13: "remote access error",
	0x14: "remote operation error",
	0x15: "transport retries exceeded",
	0x16: "receiver-not-ready retries exceeded",
	0x22: "aborted by the other side",
}

// nameOf looks n up and falls back to its number.
func nameOf[K uint8 | uint16](names map[K]string, n K) string {
	if s, ok := names[n]; ok {
		return s
	}
	return fmt.Sprintf("%#x", n)
}
