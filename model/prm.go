package model

// prm.go owns the places of bit fields and the numbers of the device's
// interface, in the manual's coordinates: bit 0 is the top bit of the first
// big-endian word, a nested structure is entered with in. It decides nothing.
// It is the model's own table: the driver has another, and a test holds each
// against the layout files. Manual: "Programmer's Reference Manual", the
// chapters named below.
//
// get, set and in accept a message of any length: what is missing reads as
// zero and is not written.

// field is one bit field of a structure. Plain fields are at most 64 bits
// wide; wider ones, and width 0 for a list that ends the message, are entered
// with in.
type field struct {
	of    string // structure.field, as in the manual
	bit   uint32
	width uint32
}

// get reads the field from b, the structure that holds it.
func (f field) get(b []byte) uint64 {
	var v uint64
	for bit, left := f.bit, f.width; left > 0; {
		n := min(8-bit%8, left)
		if int(bit/8) < len(b) {
			v = v<<n | uint64(b[bit/8]>>(8-bit%8-n))&(1<<n-1)
		} else {
			v <<= n
		}
		bit, left = bit+n, left-n
	}
	return v
}

// set writes the field into b. Bits of v above the field's width are dropped.
func (f field) set(b []byte, v uint64) {
	for end, left := f.bit+f.width, f.width; left > 0; {
		n := min((end-1)%8+1, left)
		if i := int((end - 1) / 8); i < len(b) {
			shift := 8 - ((end-1)%8 + 1)
			mask := byte(1<<n-1) << shift
			b[i] = b[i]&^mask | byte(v<<shift)&mask
		}
		v >>= n
		end, left = end-n, left-n
	}
}

// on reports whether the field is not zero.
func (f field) on(b []byte) bool { return f.get(b) != 0 }

// in enters the structure that stands in the field. It is as long as the field
// or as what is there of it; a field of width 0 runs to the end of b.
func (f field) in(b []byte) []byte {
	from := int(f.bit / 8)
	if from >= len(b) {
		return nil
	}
	to := from + int(f.width/8)
	if f.width == 0 || to > len(b) {
		to = len(b)
	}
	return b[from:to:to]
}

// u32 is get for the many fields of up to 32 bits.
func (f field) u32(b []byte) uint32 { return uint32(f.get(b)) }

// u8 is get for the fields of up to 8 bits.
func (f field) u8(b []byte) uint8 { return uint8(f.get(b)) }

// flag writes a single bit.
func (f field) flag(b []byte, on bool) {
	if on {
		f.set(b, 1)
	} else {
		f.set(b, 0)
	}
}

// Every command begins alike, and so does every answer.
var (
	cmdOpMod = field{"query_issi_in.op_mod", 48, 16}

	cmdUid = field{"create_cq_in.uid", 16, 16}

	cmdStatus   = field{"query_issi_out.status", 0, 8}
	cmdSyndrome = field{"query_issi_out.syndrome", 32, 32}
)

// Most object numbers stand in the same 24 bits, both ways; EQ and queue counter
// numbers in 8.
var (
	inNumber = field{"destroy_cq_in.cqn", 72, 24}

	outNumber = field{"create_cq_out.cqn", 72, 24}

	inNumber8 = field{"destroy_eq_in.eq_number", 88, 8}

	outNumber8 = field{"create_eq_out.eq_number", 88, 8}

	inOtherVport  = field{"query_nic_vport_context_in.other_vport", 64, 1}
	inVportNumber = field{"query_nic_vport_context_in.vport_number", 80, 16}
)

// Function life and capabilities (chapter "HCA commands").
var (
	enableHCAFunctionId          = field{"enable_hca_in.function_id", 80, 16}
	enableHCAEmbeddedCpuFunction = field{"enable_hca_in.embedded_cpu_function", 64, 1}

	teardownProfile = field{"teardown_hca_in.profile", 80, 16}

	teardownOutState = field{"teardown_hca_out.state", 127, 1}

	issiOutCurrentIssi      = field{"query_issi_out.current_issi", 80, 16}
	issiOutSupportedIssiDw0 = field{"query_issi_out.supported_issi_dw0", 864, 32}

	issiInCurrentIssi = field{"set_issi_in.current_issi", 80, 16}

	queryPagesInFunctionId          = field{"query_pages_in.function_id", 80, 16}
	queryPagesInEmbeddedCpuFunction = field{"query_pages_in.embedded_cpu_function", 64, 1}

	queryPagesOutNumPages = field{"query_pages_out.num_pages", 96, 32}

	managePagesInFunctionId          = field{"manage_pages_in.function_id", 80, 16}
	managePagesInEmbeddedCpuFunction = field{"manage_pages_in.embedded_cpu_function", 64, 1}
	managePagesInInputNumEntries     = field{"manage_pages_in.input_num_entries", 96, 32}
	managePagesInPas                 = field{"manage_pages_in.pas", 128, 0}

	managePagesOutOutputNumEntries = field{"manage_pages_out.output_num_entries", 64, 32}
	managePagesOutPas              = field{"manage_pages_out.pas", 128, 0}

	queryCapInOtherFunction = field{"query_hca_cap_in.other_function", 64, 1}
	queryCapInFunctionId    = field{"query_hca_cap_in.function_id", 80, 16}

	queryCapOutCapability = field{"query_hca_cap_out.capability", 128, 32768}

	setCapInOtherFunction = field{"set_hca_cap_in.other_function", 64, 1}
	setCapInFunctionId    = field{"set_hca_cap_in.function_id", 80, 16}
	setCapInCapability    = field{"set_hca_cap_in.capability", 128, 32768}

	adapterOutQueryAdapterStruct = field{"query_adapter_out.query_adapter_struct", 128, 2048}

	adapterIeeeVendorId = field{"query_adapter_param_block.ieee_vendor_id", 200, 24}
	adapterVsdVendorId  = field{"query_adapter_param_block.vsd_vendor_id", 240, 16}
	adapterVsdContdPsid = field{"query_adapter_param_block.vsd_contd_psid", 1920, 128}

	driverVersionInDriverVersion = field{"set_driver_version_in.driver_version", 128, 512}
)

// General capabilities that the model itself acts on (chapter "HCA capabilities").
var (
	capLogMaxCq                  = field{"cmd_hca_cap.log_max_cq", 219, 5}
	capLogMaxCqSz                = field{"cmd_hca_cap.log_max_cq_sz", 200, 8}
	capLogMaxEq                  = field{"cmd_hca_cap.log_max_eq", 252, 4}
	capLogMaxEqSz                = field{"cmd_hca_cap.log_max_eq_sz", 224, 8}
	capLogMaxMkey                = field{"cmd_hca_cap.log_max_mkey", 234, 6}
	capLogMaxKlmListSize         = field{"cmd_hca_cap.log_max_klm_list_size", 282, 6}
	capLogMaxSq                  = field{"cmd_hca_cap.log_max_sq", 875, 5}
	capLogMaxRq                  = field{"cmd_hca_cap.log_max_rq", 867, 5}
	capLogMaxRmp                 = field{"cmd_hca_cap.log_max_rmp", 899, 5}
	capLogMaxTir                 = field{"cmd_hca_cap.log_max_tir", 883, 5}
	capLogMaxTis                 = field{"cmd_hca_cap.log_max_tis", 891, 5}
	capLogMaxRqt                 = field{"cmd_hca_cap.log_max_rqt", 907, 5}
	capLogMaxRqtSize             = field{"cmd_hca_cap.log_max_rqt_size", 915, 5}
	capLogMaxPd                  = field{"cmd_hca_cap.log_max_pd", 811, 5}
	capLogMaxTransportDomain     = field{"cmd_hca_cap.log_max_transport_domain", 803, 5}
	capLogMaxWqSz                = field{"cmd_hca_cap.log_max_wq_sz", 987, 5}
	capLogMaxStrideSzRq          = field{"cmd_hca_cap.log_max_stride_sz_rq", 931, 5}
	capLogMinStrideSzRq          = field{"cmd_hca_cap.log_min_stride_sz_rq", 939, 5}
	capLogMaxCurrentUcList       = field{"cmd_hca_cap.log_max_current_uc_list", 1019, 5}
	capLogMaxCurrentMcList       = field{"cmd_hca_cap.log_max_current_mc_list", 1011, 5}
	capLogMaxVlanList            = field{"cmd_hca_cap.log_max_vlan_list", 1003, 5}
	capLogMaxL2Table             = field{"cmd_hca_cap.log_max_l2_table", 1155, 5}
	capMaxNumEqs                 = field{"cmd_hca_cap.max_num_eqs", 1136, 16}
	capPortType                  = field{"cmd_hca_cap.port_type", 438, 2}
	capCmdifChecksum             = field{"cmd_hca_cap.cmdif_checksum", 528, 2}
	capDriverVersion             = field{"cmd_hca_cap.driver_version", 609, 1}
	capStridingRq                = field{"cmd_hca_cap.striding_rq", 513, 1}
	capExtStrideNumRange         = field{"cmd_hca_cap.ext_stride_num_range", 928, 1}
	capBasicCyclicRcvWqe         = field{"cmd_hca_cap.basic_cyclic_rcv_wqe", 896, 1}
	capEndPad                    = field{"cmd_hca_cap.end_pad", 352, 1}
	capCqOi                      = field{"cmd_hca_cap.cq_oi", 544, 1}
	capCqModeration              = field{"cmd_hca_cap.cq_moderation", 546, 1}
	capCqPeriodModeModify        = field{"cmd_hca_cap.cq_period_mode_modify", 547, 1}
	capCqPeriodStartFromCqe      = field{"cmd_hca_cap.cq_period_start_from_cqe", 555, 1}
	capCqEqRemap                 = field{"cmd_hca_cap.cq_eq_remap", 550, 1}
	capCqeCompression            = field{"cmd_hca_cap.cqe_compression", 1471, 1}
	capMiniCqeRespStrideIndex    = field{"cmd_hca_cap.mini_cqe_resp_stride_index", 1468, 1}
	capEnhancedCqeCompression    = field{"cmd_hca_cap.enhanced_cqe_compression", 1456, 1}
	capScqeBreakModeration       = field{"cmd_hca_cap.scqe_break_moderation", 554, 1}
	capSqTsFormat                = field{"cmd_hca_cap.sq_ts_format", 1088, 2}
	capRqTsFormat                = field{"cmd_hca_cap.rq_ts_format", 1090, 2}
	capForceTeardown             = field{"cmd_hca_cap.force_teardown", 272, 1}
	capFastTeardown              = field{"cmd_hca_cap.fast_teardown", 251, 1}
	capModifyRqCounterSetId      = field{"cmd_hca_cap.modify_rq_counter_set_id", 388, 1}
	capRqDelayDrop               = field{"cmd_hca_cap.rq_delay_drop", 389, 1}
	capVportCounters             = field{"cmd_hca_cap.vport_counters", 385, 1}
	capEswitchManager            = field{"cmd_hca_cap.eswitch_manager", 423, 1}
	capNicVportChangeEvent       = field{"cmd_hca_cap.nic_vport_change_event", 992, 1}
	capMaxFlowCounter150         = field{"cmd_hca_cap.max_flow_counter_15_0", 848, 16}
	capRelaxedOrderingWrite      = field{"cmd_hca_cap.relaxed_ordering_write", 232, 1}
	capRelaxedOrderingRead       = field{"cmd_hca_cap.relaxed_ordering_read", 810, 1}
	capNicReceiveSteeringDiscard = field{"cmd_hca_cap.nic_receive_steering_discard", 832, 1}
	capTransmitDiscardVportDown  = field{"cmd_hca_cap.transmit_discard_vport_down", 834, 1}
	capEqOverrunCount            = field{"cmd_hca_cap.eq_overrun_count", 835, 1}
	capInvalidCommandCount       = field{"cmd_hca_cap.invalid_command_count", 837, 1}
	capVnicEnvCqOverrun          = field{"cmd_hca_cap.vnic_env_cq_overrun", 313, 1}
	capDisableLocalLbUc          = field{"cmd_hca_cap.disable_local_lb_uc", 993, 1}
	capDisableLocalLbMc          = field{"cmd_hca_cap.disable_local_lb_mc", 994, 1}
	capShampo                    = field{"cmd_hca_cap.shampo", 683, 1}
	capLogMaxQp                  = field{"cmd_hca_cap.log_max_qp", 155, 5}
	capGidTableSize              = field{"cmd_hca_cap.gid_table_size", 368, 16}
	capPkeyTableSize             = field{"cmd_hca_cap.pkey_table_size", 400, 16}
	capLogUarPageSz              = field{"cmd_hca_cap.log_uar_page_sz", 1168, 16}

	ethLroCap                  = field{"per_protocol_networking_offload_caps.lro_cap", 2, 1}
	ethSelfLbEnModifiable      = field{"per_protocol_networking_offload_caps.self_lb_en_modifiable", 8, 1}
	ethMultiPktSendWqe         = field{"per_protocol_networking_offload_caps.multi_pkt_send_wqe", 16, 2}
	ethWqeInlineMode           = field{"per_protocol_networking_offload_caps.wqe_inline_mode", 18, 2}
	ethRegUmrSq                = field{"per_protocol_networking_offload_caps.reg_umr_sq", 24, 1}
	ethScatterFcs              = field{"per_protocol_networking_offload_caps.scatter_fcs", 25, 1}
	ethEnhancedMultiPktSendWqe = field{"per_protocol_networking_offload_caps.enhanced_multi_pkt_send_wqe", 26, 1}
	ethSwp                     = field{"per_protocol_networking_offload_caps.swp", 32, 1}
	ethTunnelStatelessGre      = field{"per_protocol_networking_offload_caps.tunnel_stateless_gre", 30, 1}
	ethTunnelStatelessVxlan    = field{"per_protocol_networking_offload_caps.tunnel_stateless_vxlan", 31, 1}
	ethMaxVxlanUdpPorts        = field{"per_protocol_networking_offload_caps.max_vxlan_udp_ports", 48, 8}

	ftcFlowTablePropertiesNicReceive         = field{"flow_table_nic_cap.flow_table_properties_nic_receive", 512, 512}
	ftcFlowTablePropertiesNicReceiveSniffer  = field{"flow_table_nic_cap.flow_table_properties_nic_receive_sniffer", 1536, 512}
	ftcFlowTablePropertiesNicTransmit        = field{"flow_table_nic_cap.flow_table_properties_nic_transmit", 2048, 512}
	ftcFlowTablePropertiesNicTransmitSniffer = field{"flow_table_nic_cap.flow_table_properties_nic_transmit_sniffer", 3072, 512}

	ftpFtSupport               = field{"flow_table_prop_layout.ft_support", 0, 1}
	ftpFlowCounter             = field{"flow_table_prop_layout.flow_counter", 2, 1}
	ftpFlowModifyEn            = field{"flow_table_prop_layout.flow_modify_en", 3, 1}
	ftpModifyRoot              = field{"flow_table_prop_layout.modify_root", 4, 1}
	ftpIdentifiedMissTableMode = field{"flow_table_prop_layout.identified_miss_table_mode", 5, 1}
	ftpFlowTableModify         = field{"flow_table_prop_layout.flow_table_modify", 6, 1}
	ftpPopVlan                 = field{"flow_table_prop_layout.pop_vlan", 10, 1}
	ftpPushVlan                = field{"flow_table_prop_layout.push_vlan", 11, 1}
	ftpPopVlan2                = field{"flow_table_prop_layout.pop_vlan_2", 13, 1}
	ftpPushVlan2               = field{"flow_table_prop_layout.push_vlan_2", 14, 1}
	ftpIgnoreFlowLevel         = field{"flow_table_prop_layout.ignore_flow_level", 21, 1}
	ftpLogMaxFtSize            = field{"flow_table_prop_layout.log_max_ft_size", 34, 6}
	ftpMaxFtLevel              = field{"flow_table_prop_layout.max_ft_level", 56, 8}
	ftpLogMaxFtNum             = field{"flow_table_prop_layout.log_max_ft_num", 120, 8}
	ftpLogMaxFlowCounter       = field{"flow_table_prop_layout.log_max_flow_counter", 144, 8}
	ftpLogMaxDestination       = field{"flow_table_prop_layout.log_max_destination", 152, 8}
	ftpLogMaxFlow              = field{"flow_table_prop_layout.log_max_flow", 184, 8}
	ftpFtFieldSupport          = field{"flow_table_prop_layout.ft_field_support", 256, 128}
	ftpFtFieldBitmaskSupport   = field{"flow_table_prop_layout.ft_field_bitmask_support", 384, 128}
)

// Memory keys (chapter "Memory key").
var (
	createMkeyMkeyUmemValid                 = field{"create_mkey_in.mkey_umem_valid", 97, 1}
	createMkeyDataDirect                    = field{"create_mkey_in.data_direct", 98, 1}
	createMkeyMemoryKeyMkeyEntry            = field{"create_mkey_in.memory_key_mkey_entry", 128, 512}
	createMkeyTranslationsOctwordActualSize = field{"create_mkey_in.translations_octword_actual_size", 768, 32}
	createMkeyKlmPasMtt                     = field{"create_mkey_in.klm_pas_mtt", 2176, 0}

	queryMkeyOutMemoryKeyMkeyEntry = field{"query_mkey_out.memory_key_mkey_entry", 128, 512}

	mkcFree                    = field{"mkc.free", 1, 1}
	mkcAccessMode42            = field{"mkc.access_mode_4_2", 3, 3}
	mkcRelaxedOrderingWrite    = field{"mkc.relaxed_ordering_write", 13, 1}
	mkcUmrEn                   = field{"mkc.umr_en", 16, 1}
	mkcLw                      = field{"mkc.lw", 20, 1}
	mkcLr                      = field{"mkc.lr", 21, 1}
	mkcAccessMode10            = field{"mkc.access_mode_1_0", 22, 2}
	mkcQpn                     = field{"mkc.qpn", 32, 24}
	mkcMkey70                  = field{"mkc.mkey_7_0", 56, 8}
	mkcLength64                = field{"mkc.length64", 96, 1}
	mkcBsfEn                   = field{"mkc.bsf_en", 97, 1}
	mkcSyncUmr                 = field{"mkc.sync_umr", 98, 1}
	mkcPd                      = field{"mkc.pd", 104, 24}
	mkcStartAddr               = field{"mkc.start_addr", 128, 64}
	mkcLen                     = field{"mkc.len", 192, 64}
	mkcBsfOctwordSize          = field{"mkc.bsf_octword_size", 256, 32}
	mkcTranslationsOctwordSize = field{"mkc.translations_octword_size", 416, 32}
	mkcRelaxedOrderingRead     = field{"mkc.relaxed_ordering_read", 473, 1}
	mkcLogPageSize             = field{"mkc.log_page_size", 474, 6}

	specialResdLkey = field{"query_special_contexts_out.resd_lkey", 96, 32}
)

// Queues (chapters "Event queue", "Completion queue", "Work queues").
var (
	createEQEqContextEntry = field{"create_eq_in.eq_context_entry", 128, 512}
	createEQEventBitmask   = field{"create_eq_in.event_bitmask", 704, 256}
	createEQPas            = field{"create_eq_in.pas", 2176, 0}

	queryEQOutEqContextEntry = field{"query_eq_out.eq_context_entry", 128, 512}
	queryEQOutEventBitmask   = field{"query_eq_out.event_bitmask", 704, 64}

	eqcStatus          = field{"eqc.status", 0, 4}
	eqcEc              = field{"eqc.ec", 13, 1}
	eqcOi              = field{"eqc.oi", 14, 1}
	eqcSt              = field{"eqc.st", 20, 4}
	eqcPageOffset      = field{"eqc.page_offset", 84, 6}
	eqcLogEqSize       = field{"eqc.log_eq_size", 99, 5}
	eqcUarPage         = field{"eqc.uar_page", 104, 24}
	eqcIntr            = field{"eqc.intr", 180, 12}
	eqcLogPageSize     = field{"eqc.log_page_size", 195, 5}
	eqcConsumerCounter = field{"eqc.consumer_counter", 328, 24}
	eqcProducerCounter = field{"eqc.producer_counter", 360, 24}

	createCQCqContext   = field{"create_cq_in.cq_context", 128, 512}
	createCQCqUmemValid = field{"create_cq_in.cq_umem_valid", 736, 1}
	createCQPas         = field{"create_cq_in.pas", 2176, 0}

	queryCQOutCqContext = field{"query_cq_out.cq_context", 128, 512}

	modifyCQSelect    = field{"modify_cq_in.modify_field_select_resize_field_select", 96, 32}
	modifyCQCqContext = field{"modify_cq_in.cq_context", 128, 512}

	cqcStatus                = field{"cqc.status", 0, 4}
	cqcDbrUmemValid          = field{"cqc.dbr_umem_valid", 6, 1}
	cqcApuCq                 = field{"cqc.apu_cq", 7, 1}
	cqcCqeSz                 = field{"cqc.cqe_sz", 8, 3}
	cqcScqeBreakModerationEn = field{"cqc.scqe_break_moderation_en", 13, 1}
	cqcOi                    = field{"cqc.oi", 14, 1}
	cqcCqPeriodMode          = field{"cqc.cq_period_mode", 15, 2}
	cqcCqeCompEn             = field{"cqc.cqe_comp_en", 17, 1}
	cqcMiniCqeResFormat      = field{"cqc.mini_cqe_res_format", 18, 2}
	cqcSt                    = field{"cqc.st", 20, 4}
	cqcCqeCompressionLayout  = field{"cqc.cqe_compression_layout", 30, 2}
	cqcPageOffset            = field{"cqc.page_offset", 84, 6}
	cqcLogCqSize             = field{"cqc.log_cq_size", 99, 5}
	cqcUarPage               = field{"cqc.uar_page", 104, 24}
	cqcCqPeriod              = field{"cqc.cq_period", 132, 12}
	cqcCqMaxCount            = field{"cqc.cq_max_count", 144, 16}
	cqcCEqn                  = field{"cqc.c_eqn_or_apu_element", 160, 32}
	cqcLogPageSize           = field{"cqc.log_page_size", 195, 5}
	cqcConsumerCounter       = field{"cqc.consumer_counter", 328, 24}
	cqcProducerCounter       = field{"cqc.producer_counter", 360, 24}
	cqcDbrAddr               = field{"cqc.dbr_addr", 448, 64}

	createSQCtx = field{"create_sq_in.ctx", 256, 1920}

	querySQOutCtx = field{"query_sq_out.sq_context", 256, 1920}

	modifySQSqState       = field{"modify_sq_in.sq_state", 64, 4}
	modifySQModifyBitmask = field{"modify_sq_in.modify_bitmask", 128, 64}
	modifySQCtx           = field{"modify_sq_in.ctx", 256, 1920}

	sqcRlky                       = field{"sqc.rlky", 0, 1}
	sqcCdMaster                   = field{"sqc.cd_master", 1, 1}
	sqcFre                        = field{"sqc.fre", 2, 1}
	sqcFlushInErrorEn             = field{"sqc.flush_in_error_en", 3, 1}
	sqcAllowMultiPktSendWqe       = field{"sqc.allow_multi_pkt_send_wqe", 4, 1}
	sqcMinWqeInlineMode           = field{"sqc.min_wqe_inline_mode", 5, 3}
	sqcState                      = field{"sqc.state", 8, 4}
	sqcRegUmr                     = field{"sqc.reg_umr", 12, 1}
	sqcAllowSwp                   = field{"sqc.allow_swp", 13, 1}
	sqcHairpin                    = field{"sqc.hairpin", 14, 1}
	sqcNonWire                    = field{"sqc.non_wire", 15, 1}
	sqcTsFormat                   = field{"sqc.ts_format", 26, 2}
	sqcUserIndex                  = field{"sqc.user_index", 40, 24}
	sqcCqn                        = field{"sqc.cqn", 72, 24}
	sqcHairpinPeerRq              = field{"sqc.hairpin_peer_rq", 104, 24}
	sqcHairpinPeerVhca            = field{"sqc.hairpin_peer_vhca", 144, 16}
	sqcTsCqeToDestCqn             = field{"sqc.ts_cqe_to_dest_cqn", 200, 24}
	sqcPacketPacingRateLimitIndex = field{"sqc.packet_pacing_rate_limit_index", 240, 16}
	sqcTisLstSz                   = field{"sqc.tis_lst_sz", 256, 16}
	sqcQosQueueGroupId            = field{"sqc.qos_queue_group_id", 272, 16}
	sqcTisNum0                    = field{"sqc.tis_num_0", 360, 24}
	sqcWq                         = field{"sqc.wq", 384, 1536}

	createRQCtx = field{"create_rq_in.ctx", 256, 1920}

	queryRQOutCtx = field{"query_rq_out.rq_context", 256, 1920}

	modifyRQRqState       = field{"modify_rq_in.rq_state", 64, 4}
	modifyRQModifyBitmask = field{"modify_rq_in.modify_bitmask", 128, 64}
	modifyRQCtx           = field{"modify_rq_in.ctx", 256, 1920}

	rqcRlky           = field{"rqc.rlky", 0, 1}
	rqcDelayDropEn    = field{"rqc.delay_drop_en", 1, 1}
	rqcScatterFcs     = field{"rqc.scatter_fcs", 2, 1}
	rqcVsd            = field{"rqc.vsd", 3, 1}
	rqcMemRqType      = field{"rqc.mem_rq_type", 4, 4}
	rqcState          = field{"rqc.state", 8, 4}
	rqcFlushInErrorEn = field{"rqc.flush_in_error_en", 13, 1}
	rqcHairpin        = field{"rqc.hairpin", 14, 1}
	rqcTsFormat       = field{"rqc.ts_format", 26, 2}
	rqcUserIndex      = field{"rqc.user_index", 40, 24}
	rqcCqn            = field{"rqc.cqn", 72, 24}
	rqcCounterSetId   = field{"rqc.counter_set_id", 96, 8}
	rqcRmpn           = field{"rqc.rmpn", 136, 24}
	rqcWq             = field{"rqc.wq", 384, 1536}

	createRMPCtx = field{"create_rmp_in.ctx", 256, 1920}

	queryRMPOutCtx = field{"query_rmp_out.rmp_context", 256, 1920}

	modifyRMPRmpState = field{"modify_rmp_in.rmp_state", 64, 4}
	modifyRMPBitmask  = field{"modify_rmp_in.bitmask", 128, 64}
	modifyRMPCtx      = field{"modify_rmp_in.ctx", 256, 1920}

	rmpcState             = field{"rmpc.state", 8, 4}
	rmpcBasicCyclicRcvWqe = field{"rmpc.basic_cyclic_rcv_wqe", 32, 1}
	rmpcWq                = field{"rmpc.wq", 384, 1536}

	wqType               = field{"wq.wq_type", 0, 4}
	wqSignature          = field{"wq.wq_signature", 4, 1}
	wqEndPaddingMode     = field{"wq.end_padding_mode", 5, 2}
	wqPageOffset         = field{"wq.page_offset", 43, 5}
	wqPd                 = field{"wq.pd", 72, 24}
	wqUarPage            = field{"wq.uar_page", 104, 24}
	wqDbrAddr            = field{"wq.dbr_addr", 128, 64}
	wqHwCounter          = field{"wq.hw_counter", 192, 32}
	wqSwCounter          = field{"wq.sw_counter", 224, 32}
	wqLogWqStride        = field{"wq.log_wq_stride", 268, 4}
	wqLogWqPgSz          = field{"wq.log_wq_pg_sz", 275, 5}
	wqLogWqSz            = field{"wq.log_wq_sz", 283, 5}
	wqDbrUmemValid       = field{"wq.dbr_umem_valid", 288, 1}
	wqWqUmemValid        = field{"wq.wq_umem_valid", 289, 1}
	wqLogWqeNumOfStrides = field{"wq.log_wqe_num_of_strides", 308, 4}
	wqTwoByteShiftEn     = field{"wq.two_byte_shift_en", 312, 1}
	wqLogWqeStrideSize   = field{"wq.log_wqe_stride_size", 317, 3}
	wqShampoEnable       = field{"wq.shampo_enable", 480, 1}
	wqPas                = field{"wq.pas", 1536, 0}
)

// Transport objects (chapter "Transport interface receive and send").
var (
	createTIRCtx = field{"create_tir_in.ctx", 256, 1920}

	queryTIROutCtx = field{"query_tir_out.tir_context", 256, 1920}

	modifyTIRBitmask = field{"modify_tir_in.bitmask", 128, 64}
	modifyTIRCtx     = field{"modify_tir_in.ctx", 256, 1920}

	tirMaskSelfLbEn    = field{"modify_tir_bitmask.self_lb_en", 59, 1}
	tirMaskHash        = field{"modify_tir_bitmask.hash", 61, 1}
	tirMaskPacketMerge = field{"modify_tir_bitmask.packet_merge", 63, 1}

	tircDispType                 = field{"tirc.disp_type", 32, 4}
	tircTlsEn                    = field{"tirc.tls_en", 36, 1}
	tircPacketMergeMask          = field{"tirc.packet_merge_mask", 148, 4}
	tircInlineRqn                = field{"tirc.inline_rqn", 232, 24}
	tircRxHashSymmetric          = field{"tirc.rx_hash_symmetric", 256, 1}
	tircTunneledOffloadEn        = field{"tirc.tunneled_offload_en", 258, 1}
	tircIndirectTable            = field{"tirc.indirect_table", 264, 24}
	tircRxHashFn                 = field{"tirc.rx_hash_fn", 288, 4}
	tircSelfLbBlock              = field{"tirc.self_lb_block", 294, 2}
	tircTransportDomain          = field{"tirc.transport_domain", 296, 24}
	tircRxHashToeplitzKey        = field{"tirc.rx_hash_toeplitz_key", 320, 320}
	tircRxHashFieldSelectorOuter = field{"tirc.rx_hash_field_selector_outer", 640, 32}
	tircRxHashFieldSelectorInner = field{"tirc.rx_hash_field_selector_inner", 672, 32}

	hashFieldL3ProtType     = field{"rx_hash_field_select.l3_prot_type", 0, 1}
	hashFieldL4ProtType     = field{"rx_hash_field_select.l4_prot_type", 1, 1}
	hashFieldSelectedFields = field{"rx_hash_field_select.selected_fields", 2, 30}

	createTISCtx = field{"create_tis_in.ctx", 256, 1280}

	queryTISOutCtx = field{"query_tis_out.tis_context", 128, 1280}

	modifyTISBitmask = field{"modify_tis_in.bitmask", 128, 64}
	modifyTISCtx     = field{"modify_tis_in.ctx", 256, 1280}

	tisMaskPrio                    = field{"modify_tis_bitmask.prio", 63, 1}
	tisMaskLagTxPortAffinity       = field{"modify_tis_bitmask.lag_tx_port_affinity", 61, 1}
	tisMaskStrictLagTxPortAffinity = field{"modify_tis_bitmask.strict_lag_tx_port_affinity", 62, 1}

	tiscStrictLagTxPortAffinity = field{"tisc.strict_lag_tx_port_affinity", 0, 1}
	tiscTlsEn                   = field{"tisc.tls_en", 1, 1}
	tiscLagTxPortAffinity       = field{"tisc.lag_tx_port_affinity", 4, 4}
	tiscPrio                    = field{"tisc.prio", 12, 4}
	tiscTransportDomain         = field{"tisc.transport_domain", 296, 24}
	tiscUnderlayQpn             = field{"tisc.underlay_qpn", 328, 24}
	tiscPd                      = field{"tisc.pd", 360, 24}

	createRQTCtx = field{"create_rqt_in.rqt_context", 256, 1920}

	queryRQTOutCtx = field{"query_rqt_out.rqt_context", 256, 1920}

	modifyRQTBitmask = field{"modify_rqt_in.bitmask", 128, 64}
	modifyRQTCtx     = field{"modify_rqt_in.ctx", 256, 1920}

	rqtMaskRqnList = field{"rqt_bitmask.rqn_list", 63, 1}

	rqtcListQType      = field{"rqtc.list_q_type", 165, 3}
	rqtcRqtMaxSize     = field{"rqtc.rqt_max_size", 176, 16}
	rqtcRqVhcaIdFormat = field{"rqtc.rq_vhca_id_format", 192, 1}
	rqtcRqtActualSize  = field{"rqtc.rqt_actual_size", 208, 16}
	rqtcRqNum          = field{"rqtc.rq_num", 1920, 0}

	qcounterInClear        = field{"query_q_counter_in.clear", 192, 1}
	qcounterInAggregate    = field{"query_q_counter_in.aggregate", 193, 1}
	qcounterInCounterSetId = field{"query_q_counter_in.counter_set_id", 248, 8}

	qcounterOutOutOfBuffer = field{"query_q_counter_out.out_of_buffer", 384, 32}
)

// Flow steering (chapter "Flow table").
var (
	createTableTableType = field{"create_flow_table_in.table_type", 128, 8}
	createTableCtx       = field{"create_flow_table_in.flow_table_context", 192, 320}

	modifyTableModifyFieldSelect = field{"modify_flow_table_in.modify_field_select", 112, 16}
	modifyTableCtx               = field{"modify_flow_table_in.flow_table_context", 192, 320}

	queryTableOutCtx = field{"query_flow_table_out.flow_table_context", 192, 320}

	tableRefTableType = field{"destroy_flow_table_in.table_type", 128, 8}
	tableRefTableId   = field{"destroy_flow_table_in.table_id", 168, 24}

	setRootTableType                    = field{"set_flow_table_root_in.table_type", 128, 8}
	setRootUnderlayQpn                  = field{"set_flow_table_root_in.underlay_qpn", 200, 24}
	setRootTableEswitchOwnerVhcaIdValid = field{"set_flow_table_root_in.table_eswitch_owner_vhca_id_valid", 224, 1}
	setRootTableOfOtherVport            = field{"set_flow_table_root_in.table_of_other_vport", 143, 1}

	ftxReformatEn       = field{"flow_table_context.reformat_en", 0, 1}
	ftxDecapEn          = field{"flow_table_context.decap_en", 1, 1}
	ftxSwOwner          = field{"flow_table_context.sw_owner", 2, 1}
	ftxTerminationTable = field{"flow_table_context.termination_table", 3, 1}
	ftxTableMissAction  = field{"flow_table_context.table_miss_action", 4, 4}
	ftxLevel            = field{"flow_table_context.level", 8, 8}
	ftxRtcValid         = field{"flow_table_context.rtc_valid", 16, 1}
	ftxLogSize          = field{"flow_table_context.log_size", 24, 8}
	ftxTableMissId      = field{"flow_table_context.table_miss_id", 40, 24}

	createGroupGroupType                     = field{"create_flow_group_in.group_type", 140, 4}
	createGroupStartFlowIndex                = field{"create_flow_group_in.start_flow_index", 224, 32}
	createGroupEndFlowIndex                  = field{"create_flow_group_in.end_flow_index", 288, 32}
	createGroupMatchDefinerId                = field{"create_flow_group_in.match_definer_id", 336, 16}
	createGroupMatchCriteriaEnable           = field{"create_flow_group_in.match_criteria_enable", 504, 8}
	createGroupMatchCriteria                 = field{"create_flow_group_in.match_criteria", 512, 4096}
	createGroupSourceEswitchOwnerVhcaIdValid = field{"create_flow_group_in.source_eswitch_owner_vhca_id_valid", 192, 1}

	groupRefGroupId = field{"destroy_flow_group_in.group_id", 192, 32}

	queryGroupOutStartFlowIndex      = field{"query_flow_group_out.start_flow_index", 224, 32}
	queryGroupOutEndFlowIndex        = field{"query_flow_group_out.end_flow_index", 288, 32}
	queryGroupOutMatchCriteriaEnable = field{"query_flow_group_out.match_criteria_enable", 504, 8}
	queryGroupOutMatchCriteria       = field{"query_flow_group_out.match_criteria", 512, 4096}

	setFTEIgnoreFlowLevel  = field{"set_fte_in.ignore_flow_level", 192, 1}
	setFTEModifyEnableMask = field{"set_fte_in.modify_enable_mask", 216, 8}
	setFTEFlowIndex        = field{"set_fte_in.flow_index", 256, 32}
	setFTECtx              = field{"set_fte_in.flow_context", 512, 6144}

	queryFTEOutCtx = field{"query_fte_out.flow_context", 512, 6144}

	flowPushVlan            = field{"flow_context.push_vlan", 0, 32}
	flowGroupId             = field{"flow_context.group_id", 32, 32}
	flowFlowTag             = field{"flow_context.flow_tag", 72, 24}
	flowAction              = field{"flow_context.action", 112, 16}
	flowExtendedDestination = field{"flow_context.extended_destination", 128, 1}
	flowUplinkHairpinEn     = field{"flow_context.uplink_hairpin_en", 129, 1}
	flowFlowSource          = field{"flow_context.flow_source", 130, 2}
	flowDestinationListSize = field{"flow_context.destination_list_size", 136, 24}
	flowFlowCounterListSize = field{"flow_context.flow_counter_list_size", 168, 24}
	flowPacketReformatId    = field{"flow_context.packet_reformat_id", 192, 32}
	flowPushVlan2           = field{"flow_context.push_vlan_2", 256, 32}
	flowMatchValue          = field{"flow_context.match_value", 512, 4096}
	flowDestination         = field{"flow_context.destination", 6144, 0}

	destDestinationType                    = field{"dest_format_struct.destination_type", 0, 8}
	destDestinationId                      = field{"dest_format_struct.destination_id", 8, 24}
	destDestinationEswitchOwnerVhcaIdValid = field{"dest_format_struct.destination_eswitch_owner_vhca_id_valid", 32, 1}
	destPacketReformat                     = field{"dest_format_struct.packet_reformat", 33, 1}

	counterListFlowCounterId = field{"flow_counter_list.flow_counter_id", 0, 32}

	allocCounterFlowCounterBulkLogSize = field{"alloc_flow_counter_in.flow_counter_bulk_log_size", 115, 5}
	allocCounterFlowCounterBulk        = field{"alloc_flow_counter_in.flow_counter_bulk", 120, 8}

	allocCounterOutFlowCounterId = field{"alloc_flow_counter_out.flow_counter_id", 64, 32}

	deallocCounterFlowCounterId = field{"dealloc_flow_counter_in.flow_counter_id", 64, 32}

	queryCounterClear         = field{"query_flow_counter_in.clear", 192, 1}
	queryCounterNumOfCounters = field{"query_flow_counter_in.num_of_counters", 208, 16}
	queryCounterFlowCounterId = field{"query_flow_counter_in.flow_counter_id", 224, 32}

	queryCounterOutFlowStatistics = field{"query_flow_counter_out.flow_statistics", 128, 0}

	trafficPackets = field{"traffic_counter.packets", 0, 64}
	trafficOctets  = field{"traffic_counter.octets", 64, 64}

	lyrSmac4716    = field{"fte_match_set_lyr_2_4.smac_47_16", 0, 32}
	lyrSmac150     = field{"fte_match_set_lyr_2_4.smac_15_0", 32, 16}
	lyrEthertype   = field{"fte_match_set_lyr_2_4.ethertype", 48, 16}
	lyrDmac4716    = field{"fte_match_set_lyr_2_4.dmac_47_16", 64, 32}
	lyrDmac150     = field{"fte_match_set_lyr_2_4.dmac_15_0", 96, 16}
	lyrFirstPrio   = field{"fte_match_set_lyr_2_4.first_prio", 112, 3}
	lyrFirstCfi    = field{"fte_match_set_lyr_2_4.first_cfi", 115, 1}
	lyrFirstVid    = field{"fte_match_set_lyr_2_4.first_vid", 116, 12}
	lyrIpProtocol  = field{"fte_match_set_lyr_2_4.ip_protocol", 128, 8}
	lyrIpDscp      = field{"fte_match_set_lyr_2_4.ip_dscp", 136, 6}
	lyrIpEcn       = field{"fte_match_set_lyr_2_4.ip_ecn", 142, 2}
	lyrCvlanTag    = field{"fte_match_set_lyr_2_4.cvlan_tag", 144, 1}
	lyrSvlanTag    = field{"fte_match_set_lyr_2_4.svlan_tag", 145, 1}
	lyrFrag        = field{"fte_match_set_lyr_2_4.frag", 146, 1}
	lyrIpVersion   = field{"fte_match_set_lyr_2_4.ip_version", 147, 4}
	lyrTcpFlags    = field{"fte_match_set_lyr_2_4.tcp_flags", 151, 9}
	lyrTcpSport    = field{"fte_match_set_lyr_2_4.tcp_sport", 160, 16}
	lyrTcpDport    = field{"fte_match_set_lyr_2_4.tcp_dport", 176, 16}
	lyrTtlHoplimit = field{"fte_match_set_lyr_2_4.ttl_hoplimit", 216, 8}
	lyrUdpSport    = field{"fte_match_set_lyr_2_4.udp_sport", 224, 16}
	lyrUdpDport    = field{"fte_match_set_lyr_2_4.udp_dport", 240, 16}
	lyrSrc         = field{"fte_match_set_lyr_2_4.src_ipv4_src_ipv6", 256, 128}
	lyrDst         = field{"fte_match_set_lyr_2_4.dst_ipv4_dst_ipv6", 384, 128}

	miscSourcePort          = field{"fte_match_set_misc.source_port", 48, 16}
	miscOuterSecondPrio     = field{"fte_match_set_misc.outer_second_prio", 64, 3}
	miscOuterSecondCfi      = field{"fte_match_set_misc.outer_second_cfi", 67, 1}
	miscOuterSecondVid      = field{"fte_match_set_misc.outer_second_vid", 68, 12}
	miscInnerSecondPrio     = field{"fte_match_set_misc.inner_second_prio", 80, 3}
	miscInnerSecondCfi      = field{"fte_match_set_misc.inner_second_cfi", 83, 1}
	miscInnerSecondVid      = field{"fte_match_set_misc.inner_second_vid", 84, 12}
	miscOuterSecondCvlanTag = field{"fte_match_set_misc.outer_second_cvlan_tag", 96, 1}
	miscInnerSecondCvlanTag = field{"fte_match_set_misc.inner_second_cvlan_tag", 97, 1}
	miscOuterSecondSvlanTag = field{"fte_match_set_misc.outer_second_svlan_tag", 98, 1}
	miscInnerSecondSvlanTag = field{"fte_match_set_misc.inner_second_svlan_tag", 99, 1}
	miscGreCPresent         = field{"fte_match_set_misc.gre_c_present", 0, 1}
	miscGreKPresent         = field{"fte_match_set_misc.gre_k_present", 2, 1}
	miscGreSPresent         = field{"fte_match_set_misc.gre_s_present", 3, 1}
	miscGreProtocol         = field{"fte_match_set_misc.gre_protocol", 112, 16}
	miscGreKey              = field{"fte_match_set_misc.gre_key", 128, 32}
	miscVxlanVni            = field{"fte_match_set_misc.vxlan_vni", 160, 24}
	miscGeneveVni           = field{"fte_match_set_misc.geneve_vni", 192, 24}
	miscGeneveOam           = field{"fte_match_set_misc.geneve_oam", 223, 1}
	miscOuterIpv6FlowLabel  = field{"fte_match_set_misc.outer_ipv6_flow_label", 236, 20}
	miscInnerIpv6FlowLabel  = field{"fte_match_set_misc.inner_ipv6_flow_label", 268, 20}
	miscGeneveOptLen        = field{"fte_match_set_misc.geneve_opt_len", 298, 6}
	miscGeneveProtocolType  = field{"fte_match_set_misc.geneve_protocol_type", 304, 16}
	miscOuterEspSpi         = field{"fte_match_set_misc.outer_esp_spi", 384, 32}

	matchOuterHeaders    = field{"fte_match_param.outer_headers", 0, 512}
	matchMiscParameters  = field{"fte_match_param.misc_parameters", 512, 512}
	matchInnerHeaders    = field{"fte_match_param.inner_headers", 1024, 512}
	matchMiscParameters2 = field{"fte_match_param.misc_parameters_2", 1536, 512}
	matchMiscParameters3 = field{"fte_match_param.misc_parameters_3", 2048, 512}
	matchMiscParameters4 = field{"fte_match_param.misc_parameters_4", 2560, 512}
	matchMiscParameters5 = field{"fte_match_param.misc_parameters_5", 3072, 512}
)

// Virtual port (chapter "NIC virtual port").
var (
	vportStateOutAdminState = field{"query_vport_state_out.admin_state", 120, 4}
	vportStateOutState      = field{"query_vport_state_out.state", 124, 4}

	vportStateInAdminState = field{"modify_vport_state_in.admin_state", 120, 4}

	queryVportAllowedListType = field{"query_nic_vport_context_in.allowed_list_type", 101, 3}

	queryVportOutNicVportContext = field{"query_nic_vport_context_out.nic_vport_context", 128, 2048}

	modifyVportFieldSelect     = field{"modify_nic_vport_context_in.field_select", 96, 32}
	modifyVportNicVportContext = field{"modify_nic_vport_context_in.nic_vport_context", 2048, 2048}

	vportSelectAffiliation      = field{"modify_nic_vport_field_select.affiliation", 18, 1}
	vportSelectDisableUcLocalLb = field{"modify_nic_vport_field_select.disable_uc_local_lb", 20, 1}
	vportSelectDisableMcLocalLb = field{"modify_nic_vport_field_select.disable_mc_local_lb", 21, 1}
	vportSelectNodeGuid         = field{"modify_nic_vport_field_select.node_guid", 22, 1}
	vportSelectPortGuid         = field{"modify_nic_vport_field_select.port_guid", 23, 1}
	vportSelectMinInline        = field{"modify_nic_vport_field_select.min_inline", 24, 1}
	vportSelectMtu              = field{"modify_nic_vport_field_select.mtu", 25, 1}
	vportSelectChangeEvent      = field{"modify_nic_vport_field_select.change_event", 26, 1}
	vportSelectPromisc          = field{"modify_nic_vport_field_select.promisc", 27, 1}
	vportSelectPermanentAddress = field{"modify_nic_vport_field_select.permanent_address", 28, 1}
	vportSelectAddressesList    = field{"modify_nic_vport_field_select.addresses_list", 29, 1}
	vportSelectRoceEn           = field{"modify_nic_vport_field_select.roce_en", 30, 1}

	nvcMinWqeInlineMode       = field{"nic_vport_context.min_wqe_inline_mode", 5, 3}
	nvcDisableMcLocalLb       = field{"nic_vport_context.disable_mc_local_lb", 29, 1}
	nvcDisableUcLocalLb       = field{"nic_vport_context.disable_uc_local_lb", 30, 1}
	nvcRoceEn                 = field{"nic_vport_context.roce_en", 31, 1}
	nvcArmChangeEvent         = field{"nic_vport_context.arm_change_event", 32, 1}
	nvcEventOnMtu             = field{"nic_vport_context.event_on_mtu", 59, 1}
	nvcEventOnPromiscChange   = field{"nic_vport_context.event_on_promisc_change", 60, 1}
	nvcEventOnVlanChange      = field{"nic_vport_context.event_on_vlan_change", 61, 1}
	nvcEventOnMcAddressChange = field{"nic_vport_context.event_on_mc_address_change", 62, 1}
	nvcEventOnUcAddressChange = field{"nic_vport_context.event_on_uc_address_change", 63, 1}
	nvcMtu                    = field{"nic_vport_context.mtu", 304, 16}
	nvcSystemImageGuid        = field{"nic_vport_context.system_image_guid", 320, 64}
	nvcPortGuid               = field{"nic_vport_context.port_guid", 384, 64}
	nvcNodeGuid               = field{"nic_vport_context.node_guid", 448, 64}
	nvcPromiscUc              = field{"nic_vport_context.promisc_uc", 1920, 1}
	nvcPromiscMc              = field{"nic_vport_context.promisc_mc", 1921, 1}
	nvcPromiscAll             = field{"nic_vport_context.promisc_all", 1922, 1}
	nvcAllowedListType        = field{"nic_vport_context.allowed_list_type", 1925, 3}
	nvcAllowedListSize        = field{"nic_vport_context.allowed_list_size", 1940, 12}
	nvcPermanentAddress       = field{"nic_vport_context.permanent_address", 1952, 64}
	nvcCurrentUcMacAddress    = field{"nic_vport_context.current_uc_mac_address", 2048, 0}

	vlanEntryVlan = field{"vlan_layout.vlan", 20, 12}

	vportCounterInClear = field{"query_vport_counter_in.clear", 192, 1}

	vportCounterOutReceivedEthBroadcast    = field{"query_vport_counter_out.received_eth_broadcast", 896, 128}
	vportCounterOutTransmittedEthBroadcast = field{"query_vport_counter_out.transmitted_eth_broadcast", 1024, 128}
	vportCounterOutReceivedEthUnicast      = field{"query_vport_counter_out.received_eth_unicast", 1152, 128}
	vportCounterOutTransmittedEthUnicast   = field{"query_vport_counter_out.transmitted_eth_unicast", 1280, 128}
	vportCounterOutReceivedEthMulticast    = field{"query_vport_counter_out.received_eth_multicast", 1408, 128}
	vportCounterOutTransmittedEthMulticast = field{"query_vport_counter_out.transmitted_eth_multicast", 1536, 128}

	vnicEnvOutVportEnv = field{"query_vnic_env_out.vport_env", 128, 4096}

	envTotalErrorQueues          = field{"vnic_diagnostic_statistics.total_error_queues", 32, 32}
	envNicReceiveSteeringDiscard = field{"vnic_diagnostic_statistics.nic_receive_steering_discard", 128, 64}
	envTransmitDiscardVportDown  = field{"vnic_diagnostic_statistics.transmit_discard_vport_down", 256, 64}
	envAsyncEqOverrun            = field{"vnic_diagnostic_statistics.async_eq_overrun", 320, 32}
	envCompEqOverrun             = field{"vnic_diagnostic_statistics.comp_eq_overrun", 352, 32}
	envInvalidCommand            = field{"vnic_diagnostic_statistics.invalid_command", 416, 32}
	envCqOverrun                 = field{"vnic_diagnostic_statistics.cq_overrun", 512, 32}

	l2TableIndex      = field{"set_l2_table_entry_in.table_index", 168, 24}
	l2VlanValid       = field{"set_l2_table_entry_in.vlan_valid", 243, 1}
	l2Vlan            = field{"set_l2_table_entry_in.vlan", 244, 12}
	l2MacAddress      = field{"set_l2_table_entry_in.mac_address", 256, 64}
	l2SilentModeValid = field{"set_l2_table_entry_in.silent_mode_valid", 240, 1}

	l2OutVlanValid  = field{"query_l2_table_entry_out.vlan_valid", 243, 1}
	l2OutVlan       = field{"query_l2_table_entry_out.vlan", 244, 12}
	l2OutMacAddress = field{"query_l2_table_entry_out.mac_address", 256, 64}

	vxlanVxlanUdpPort = field{"add_vxlan_udp_dport_in.vxlan_udp_port", 112, 16}
)

// Registers (chapter "Registers"); reached through ACCESS_REG.
var (
	regRegisterId   = field{"access_register_in.register_id", 80, 16}
	regRegisterData = field{"access_register_in.register_data", 128, 0}

	ptysAnDisableAdmin        = field{"ptys_reg.an_disable_admin", 1, 1}
	ptysAnDisableCap          = field{"ptys_reg.an_disable_cap", 2, 1}
	ptysLocalPort             = field{"ptys_reg.local_port", 8, 8}
	ptysProtoMask             = field{"ptys_reg.proto_mask", 29, 3}
	ptysAnStatus              = field{"ptys_reg.an_status", 32, 4}
	ptysDataRateOper          = field{"ptys_reg.data_rate_oper", 48, 16}
	ptysExtEthProtoCapability = field{"ptys_reg.ext_eth_proto_capability", 64, 32}
	ptysEthProtoCapability    = field{"ptys_reg.eth_proto_capability", 96, 32}
	ptysExtEthProtoAdmin      = field{"ptys_reg.ext_eth_proto_admin", 160, 32}
	ptysEthProtoAdmin         = field{"ptys_reg.eth_proto_admin", 192, 32}
	ptysExtEthProtoOper       = field{"ptys_reg.ext_eth_proto_oper", 256, 32}
	ptysEthProtoOper          = field{"ptys_reg.eth_proto_oper", 288, 32}
	ptysConnectorType         = field{"ptys_reg.connector_type", 380, 4}
	ptysEthProtoLpAdvertise   = field{"ptys_reg.eth_proto_lp_advertise", 384, 32}

	pmtuLocalPort = field{"pmtu_reg.local_port", 8, 8}
	pmtuMaxMtu    = field{"pmtu_reg.max_mtu", 32, 16}
	pmtuAdminMtu  = field{"pmtu_reg.admin_mtu", 64, 16}
	pmtuOperMtu   = field{"pmtu_reg.oper_mtu", 96, 16}

	paosLocalPort   = field{"paos_reg.local_port", 8, 8}
	paosAdminStatus = field{"paos_reg.admin_status", 20, 4}
	paosOperStatus  = field{"paos_reg.oper_status", 28, 4}
	paosAse         = field{"paos_reg.ase", 32, 1}

	pfccLocalPort = field{"pfcc_reg.local_port", 8, 8}
	pfccPptx      = field{"pfcc_reg.pptx", 64, 1}
	pfccPfctx     = field{"pfcc_reg.pfctx", 72, 8}
	pfccPprx      = field{"pfcc_reg.pprx", 96, 1}
	pfccPfcrx     = field{"pfcc_reg.pfcrx", 104, 8}

	ppcntLocalPort  = field{"ppcnt_reg.local_port", 8, 8}
	ppcntGrp        = field{"ppcnt_reg.grp", 26, 6}
	ppcntClr        = field{"ppcnt_reg.clr", 32, 1}
	ppcntPrioTc     = field{"ppcnt_reg.prio_tc", 59, 5}
	ppcntCounterSet = field{"ppcnt_reg.counter_set", 64, 1984}

	pplmLocalPort              = field{"pplm_reg.local_port", 8, 8}
	pplmFecModeActive          = field{"pplm_reg.fec_mode_active", 104, 24}
	pplmFecOverrideCap100g     = field{"pplm_reg.fec_override_cap_100g", 144, 4}
	pplmFecOverrideCap50g      = field{"pplm_reg.fec_override_cap_50g", 148, 4}
	pplmFecOverrideCap25g      = field{"pplm_reg.fec_override_cap_25g", 152, 4}
	pplmFecOverrideCap10g40g   = field{"pplm_reg.fec_override_cap_10g_40g", 156, 4}
	pplmFecOverrideAdmin100g   = field{"pplm_reg.fec_override_admin_100g", 176, 4}
	pplmFecOverrideAdmin50g    = field{"pplm_reg.fec_override_admin_50g", 180, 4}
	pplmFecOverrideAdmin25g    = field{"pplm_reg.fec_override_admin_25g", 184, 4}
	pplmFecOverrideAdmin10g40g = field{"pplm_reg.fec_override_admin_10g_40g", 188, 4}

	pmlpLocalPort          = field{"pmlp_reg.local_port", 8, 8}
	pmlpWidth              = field{"pmlp_reg.width", 24, 8}
	pmlpLane0ModuleMapping = field{"pmlp_reg.lane0_module_mapping", 32, 32}

	laneRxLane = field{"lane_2_module_mapping.rx_lane", 4, 4}
	laneTxLane = field{"lane_2_module_mapping.tx_lane", 12, 4}
	laneModule = field{"lane_2_module_mapping.module", 24, 8}

	pcmrLocalPort = field{"pcmr_reg.local_port", 8, 8}
	pcmrFcsChk    = field{"pcmr_reg.fcs_chk", 94, 1}

	pmaosModule      = field{"pmaos_reg.module", 8, 8}
	pmaosAdminStatus = field{"pmaos_reg.admin_status", 20, 4}
	pmaosOperStatus  = field{"pmaos_reg.oper_status", 28, 4}

	mciaModule           = field{"mcia_reg.module", 8, 8}
	mciaStatus           = field{"mcia_reg.status", 24, 8}
	mciaI2cDeviceAddress = field{"mcia_reg.i2c_device_address", 32, 8}
	mciaPageNumber       = field{"mcia_reg.page_number", 40, 8}
	mciaDeviceAddress    = field{"mcia_reg.device_address", 48, 16}
	mciaSize             = field{"mcia_reg.size", 80, 16}
	mciaDwords           = field{"mcia_reg.dwords", 128, 1024}

	mpcntGrp        = field{"mpcnt_reg.grp", 26, 6}
	mpcntCounterSet = field{"mpcnt_reg.counter_set", 64, 1984}

	pcieLifeTimeCounterHigh = field{"pcie_perf_cntrs_grp_data_layout.life_time_counter_high", 0, 32}

	mtcapSensorCount = field{"mtcap_reg.sensor_count", 25, 7}
	mtcapSensorMap   = field{"mtcap_reg.sensor_map", 64, 64}

	mtmpSensorIndex     = field{"mtmp_reg.sensor_index", 20, 12}
	mtmpTemperature     = field{"mtmp_reg.temperature", 48, 16}
	mtmpMte             = field{"mtmp_reg.mte", 64, 1}
	mtmpMaxTemperature  = field{"mtmp_reg.max_temperature", 80, 16}
	mtmpTempThresholdHi = field{"mtmp_reg.temp_threshold_hi", 112, 16}
	mtmpSensorNameHi    = field{"mtmp_reg.sensor_name_hi", 192, 32}

	pcamFeatureGroup   = field{"pcam_reg.feature_group", 8, 8}
	pcamAccessRegGroup = field{"pcam_reg.access_reg_group", 24, 8}
	pcamRegs           = field{"pcam_reg.port_access_reg_cap_mask.regs_5000_to_507f", 64, 128}
	pcamFeatures       = field{"pcam_reg.feature_cap_mask.enhanced_features", 320, 128}

	pcamRegPplm  = field{"pcam_regs_5000_to_507f.pplm", 92, 1}
	pcamRegPpcnt = field{"pcam_regs_5000_to_507f.ppcnt", 119, 1}

	pcamFeaturePtysExtendedEthernet  = field{"pcam_enhanced_features.ptys_extended_ethernet", 114, 1}
	pcamFeaturePtysConnectorType     = field{"pcam_enhanced_features.ptys_connector_type", 124, 1}
	pcamFeaturePpcntStatisticalGroup = field{"pcam_enhanced_features.ppcnt_statistical_group", 127, 1}

	mcamFeatureGroup   = field{"mcam_reg.feature_group", 8, 8}
	mcamAccessRegGroup = field{"mcam_reg.access_reg_group", 24, 8}
	mcamRegs           = field{"mcam_reg.mng_access_reg_cap_mask.access_regs", 64, 128}
	mcamFeatures       = field{"mcam_reg.mng_feature_cap_mask.enhanced_features", 320, 128}

	mcamRegMtutc = field{"mcam_access_reg.mtutc", 42, 1}
	mcamRegMrtc  = field{"mcam_access_reg.mrtc", 82, 1}
	mcamRegMtmp  = field{"mcam_access_reg.mtmp", 117, 1}

	mcamFeaturePciePerformanceGroup  = field{"mcam_enhanced_features.pcie_performance_group", 127, 1}
	mcamFeaturePtpcyc2realtimeModify = field{"mcam_enhanced_features.ptpcyc2realtime_modify", 107, 1}

	mtutcOperation      = field{"mtutc_reg.operation", 28, 4}
	mtutcFreqAdjustment = field{"mtutc_reg.freq_adjustment", 32, 32}
	mtutcUtcSec         = field{"mtutc_reg.utc_sec", 128, 32}
	mtutcUtcNsec        = field{"mtutc_reg.utc_nsec", 162, 30}
	mtutcTimeAdjustment = field{"mtutc_reg.time_adjustment", 192, 32}

	mrtcTimeH = field{"mrtc_reg.time_h", 64, 32}
	mrtcTimeL = field{"mrtc_reg.time_l", 96, 32}

	mlcrLocalPort = field{"mlcr_reg.local_port", 8, 8}
)

// Port counters (PPCNT groups); each is 64 bits wide, named by its high word.
var (
	c8023AFramesTransmittedOk       = field{"eth_802_3_cntrs_grp_data_layout.a_frames_transmitted_ok_high", 0, 64}
	c8023AFramesReceivedOk          = field{"eth_802_3_cntrs_grp_data_layout.a_frames_received_ok_high", 64, 64}
	c8023AOctetsTransmittedOk       = field{"eth_802_3_cntrs_grp_data_layout.a_octets_transmitted_ok_high", 256, 64}
	c8023AOctetsReceivedOk          = field{"eth_802_3_cntrs_grp_data_layout.a_octets_received_ok_high", 320, 64}
	c8023AMulticastFramesXmittedOk  = field{"eth_802_3_cntrs_grp_data_layout.a_multicast_frames_xmitted_ok_high", 384, 64}
	c8023ABroadcastFramesXmittedOk  = field{"eth_802_3_cntrs_grp_data_layout.a_broadcast_frames_xmitted_ok_high", 448, 64}
	c8023AMulticastFramesReceivedOk = field{"eth_802_3_cntrs_grp_data_layout.a_multicast_frames_received_ok_high", 512, 64}
	c8023ABroadcastFramesReceivedOk = field{"eth_802_3_cntrs_grp_data_layout.a_broadcast_frames_received_ok_high", 576, 64}
	c8023AFrameTooLongErrors        = field{"eth_802_3_cntrs_grp_data_layout.a_frame_too_long_errors_high", 768, 64}

	c2863IfInOctets         = field{"eth_2863_cntrs_grp_data_layout.if_in_octets_high", 0, 64}
	c2863IfInUcastPkts      = field{"eth_2863_cntrs_grp_data_layout.if_in_ucast_pkts_high", 64, 64}
	c2863IfInDiscards       = field{"eth_2863_cntrs_grp_data_layout.if_in_discards_high", 128, 64}
	c2863IfInErrors         = field{"eth_2863_cntrs_grp_data_layout.if_in_errors_high", 192, 64}
	c2863IfOutOctets        = field{"eth_2863_cntrs_grp_data_layout.if_out_octets_high", 320, 64}
	c2863IfOutUcastPkts     = field{"eth_2863_cntrs_grp_data_layout.if_out_ucast_pkts_high", 384, 64}
	c2863IfInMulticastPkts  = field{"eth_2863_cntrs_grp_data_layout.if_in_multicast_pkts_high", 576, 64}
	c2863IfInBroadcastPkts  = field{"eth_2863_cntrs_grp_data_layout.if_in_broadcast_pkts_high", 640, 64}
	c2863IfOutMulticastPkts = field{"eth_2863_cntrs_grp_data_layout.if_out_multicast_pkts_high", 704, 64}
	c2863IfOutBroadcastPkts = field{"eth_2863_cntrs_grp_data_layout.if_out_broadcast_pkts_high", 768, 64}

	c2819EtherStatsOctets        = field{"eth_2819_cntrs_grp_data_layout.ether_stats_octets_high", 64, 64}
	c2819EtherStatsPkts          = field{"eth_2819_cntrs_grp_data_layout.ether_stats_pkts_high", 128, 64}
	c2819EtherStatsBroadcastPkts = field{"eth_2819_cntrs_grp_data_layout.ether_stats_broadcast_pkts_high", 192, 64}
	c2819EtherStatsMulticastPkts = field{"eth_2819_cntrs_grp_data_layout.ether_stats_multicast_pkts_high", 256, 64}
	c2819EtherStatsUndersizePkts = field{"eth_2819_cntrs_grp_data_layout.ether_stats_undersize_pkts_high", 384, 64}
	c2819EtherStatsOversizePkts  = field{"eth_2819_cntrs_grp_data_layout.ether_stats_oversize_pkts_high", 448, 64}
	c2819EtherStatsPkts64octets  = field{"eth_2819_cntrs_grp_data_layout.ether_stats_pkts64octets_high", 704, 64}

	c3635Dot3statsFrameTooLongs = field{"eth_3635_cntrs_grp_data_layout.dot3stats_frame_too_longs_high", 640, 64}

	prioRxOctets   = field{"eth_per_prio_grp_data_layout.rx_octets_high", 0, 64}
	prioRxFrames   = field{"eth_per_prio_grp_data_layout.rx_frames_high", 256, 64}
	prioTxOctets   = field{"eth_per_prio_grp_data_layout.tx_octets_high", 320, 64}
	prioTxFrames   = field{"eth_per_prio_grp_data_layout.tx_frames_high", 576, 64}
	prioRxDiscards = field{"eth_per_prio_grp_data_layout.rx_discards_high", 960, 64}

	physTimeSinceLastClear = field{"phys_layer_cntrs.time_since_last_clear_high", 0, 64}
	physLinkDownEvents     = field{"phys_layer_cntrs.link_down_events", 1536, 32}

	physStatTimeSinceLastClear = field{"phys_layer_statistical_cntrs.time_since_last_clear_high", 0, 64}
	physStatPhyReceivedBits    = field{"phys_layer_statistical_cntrs.phy_received_bits_high", 64, 64}
)

// Command opcodes.
const (
	opQueryHCACap          = 0x100 // cmd_opcode.MLX5_CMD_OP_QUERY_HCA_CAP
	opQueryAdapter         = 0x101 // cmd_opcode.MLX5_CMD_OP_QUERY_ADAPTER
	opInitHCA              = 0x102 // cmd_opcode.MLX5_CMD_OP_INIT_HCA
	opTeardownHCA          = 0x103 // cmd_opcode.MLX5_CMD_OP_TEARDOWN_HCA
	opEnableHCA            = 0x104 // cmd_opcode.MLX5_CMD_OP_ENABLE_HCA
	opDisableHCA           = 0x105 // cmd_opcode.MLX5_CMD_OP_DISABLE_HCA
	opQueryPages           = 0x107 // cmd_opcode.MLX5_CMD_OP_QUERY_PAGES
	opManagePages          = 0x108 // cmd_opcode.MLX5_CMD_OP_MANAGE_PAGES
	opSetHCACap            = 0x109 // cmd_opcode.MLX5_CMD_OP_SET_HCA_CAP
	opQueryISSI            = 0x10a // cmd_opcode.MLX5_CMD_OP_QUERY_ISSI
	opSetISSI              = 0x10b // cmd_opcode.MLX5_CMD_OP_SET_ISSI
	opSetDriverVersion     = 0x10d // cmd_opcode.MLX5_CMD_OP_SET_DRIVER_VERSION
	opCreateMkey           = 0x200 // cmd_opcode.MLX5_CMD_OP_CREATE_MKEY
	opQueryMkey            = 0x201 // cmd_opcode.MLX5_CMD_OP_QUERY_MKEY
	opDestroyMkey          = 0x202 // cmd_opcode.MLX5_CMD_OP_DESTROY_MKEY
	opQuerySpecialContexts = 0x203 // cmd_opcode.MLX5_CMD_OP_QUERY_SPECIAL_CONTEXTS
	opCreateEQ             = 0x301 // cmd_opcode.MLX5_CMD_OP_CREATE_EQ
	opDestroyEQ            = 0x302 // cmd_opcode.MLX5_CMD_OP_DESTROY_EQ
	opQueryEQ              = 0x303 // cmd_opcode.MLX5_CMD_OP_QUERY_EQ
	opCreateCQ             = 0x400 // cmd_opcode.MLX5_CMD_OP_CREATE_CQ
	opDestroyCQ            = 0x401 // cmd_opcode.MLX5_CMD_OP_DESTROY_CQ
	opQueryCQ              = 0x402 // cmd_opcode.MLX5_CMD_OP_QUERY_CQ
	opModifyCQ             = 0x403 // cmd_opcode.MLX5_CMD_OP_MODIFY_CQ
	opQueryVportState      = 0x750 // cmd_opcode.MLX5_CMD_OP_QUERY_VPORT_STATE
	opModifyVportState     = 0x751 // cmd_opcode.MLX5_CMD_OP_MODIFY_VPORT_STATE
	opQueryNICVport        = 0x754 // cmd_opcode.MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT
	opModifyNICVport       = 0x755 // cmd_opcode.MLX5_CMD_OP_MODIFY_NIC_VPORT_CONTEXT
	opQueryVnicEnv         = 0x76f // cmd_opcode.MLX5_CMD_OP_QUERY_VNIC_ENV
	opQueryVportCounter    = 0x770 // cmd_opcode.MLX5_CMD_OP_QUERY_VPORT_COUNTER
	opAllocQCounter        = 0x771 // cmd_opcode.MLX5_CMD_OP_ALLOC_Q_COUNTER
	opDeallocQCounter      = 0x772 // cmd_opcode.MLX5_CMD_OP_DEALLOC_Q_COUNTER
	opQueryQCounter        = 0x773 // cmd_opcode.MLX5_CMD_OP_QUERY_Q_COUNTER
	opAllocPD              = 0x800 // cmd_opcode.MLX5_CMD_OP_ALLOC_PD
	opDeallocPD            = 0x801 // cmd_opcode.MLX5_CMD_OP_DEALLOC_PD
	opAllocUAR             = 0x802 // cmd_opcode.MLX5_CMD_OP_ALLOC_UAR
	opDeallocUAR           = 0x803 // cmd_opcode.MLX5_CMD_OP_DEALLOC_UAR
	opAccessReg            = 0x805 // cmd_opcode.MLX5_CMD_OP_ACCESS_REG
	opNop                  = 0x80d // cmd_opcode.MLX5_CMD_OP_NOP
	opAllocTD              = 0x816 // cmd_opcode.MLX5_CMD_OP_ALLOC_TRANSPORT_DOMAIN
	opDeallocTD            = 0x817 // cmd_opcode.MLX5_CMD_OP_DEALLOC_TRANSPORT_DOMAIN
	opAddVXLANPort         = 0x827 // cmd_opcode.MLX5_CMD_OP_ADD_VXLAN_UDP_DPORT
	opDeleteVXLANPort      = 0x828 // cmd_opcode.MLX5_CMD_OP_DELETE_VXLAN_UDP_DPORT
	opSetL2Entry           = 0x829 // cmd_opcode.MLX5_CMD_OP_SET_L2_TABLE_ENTRY
	opQueryL2Entry         = 0x82a // cmd_opcode.MLX5_CMD_OP_QUERY_L2_TABLE_ENTRY
	opDeleteL2Entry        = 0x82b // cmd_opcode.MLX5_CMD_OP_DELETE_L2_TABLE_ENTRY
	opCreateTIR            = 0x900 // cmd_opcode.MLX5_CMD_OP_CREATE_TIR
	opModifyTIR            = 0x901 // cmd_opcode.MLX5_CMD_OP_MODIFY_TIR
	opDestroyTIR           = 0x902 // cmd_opcode.MLX5_CMD_OP_DESTROY_TIR
	opQueryTIR             = 0x903 // cmd_opcode.MLX5_CMD_OP_QUERY_TIR
	opCreateSQ             = 0x904 // cmd_opcode.MLX5_CMD_OP_CREATE_SQ
	opModifySQ             = 0x905 // cmd_opcode.MLX5_CMD_OP_MODIFY_SQ
	opDestroySQ            = 0x906 // cmd_opcode.MLX5_CMD_OP_DESTROY_SQ
	opQuerySQ              = 0x907 // cmd_opcode.MLX5_CMD_OP_QUERY_SQ
	opCreateRQ             = 0x908 // cmd_opcode.MLX5_CMD_OP_CREATE_RQ
	opModifyRQ             = 0x909 // cmd_opcode.MLX5_CMD_OP_MODIFY_RQ
	opDestroyRQ            = 0x90a // cmd_opcode.MLX5_CMD_OP_DESTROY_RQ
	opQueryRQ              = 0x90b // cmd_opcode.MLX5_CMD_OP_QUERY_RQ
	opCreateRMP            = 0x90c // cmd_opcode.MLX5_CMD_OP_CREATE_RMP
	opModifyRMP            = 0x90d // cmd_opcode.MLX5_CMD_OP_MODIFY_RMP
	opDestroyRMP           = 0x90e // cmd_opcode.MLX5_CMD_OP_DESTROY_RMP
	opQueryRMP             = 0x90f // cmd_opcode.MLX5_CMD_OP_QUERY_RMP
	opCreateTIS            = 0x912 // cmd_opcode.MLX5_CMD_OP_CREATE_TIS
	opModifyTIS            = 0x913 // cmd_opcode.MLX5_CMD_OP_MODIFY_TIS
	opDestroyTIS           = 0x914 // cmd_opcode.MLX5_CMD_OP_DESTROY_TIS
	opQueryTIS             = 0x915 // cmd_opcode.MLX5_CMD_OP_QUERY_TIS
	opCreateRQT            = 0x916 // cmd_opcode.MLX5_CMD_OP_CREATE_RQT
	opModifyRQT            = 0x917 // cmd_opcode.MLX5_CMD_OP_MODIFY_RQT
	opDestroyRQT           = 0x918 // cmd_opcode.MLX5_CMD_OP_DESTROY_RQT
	opQueryRQT             = 0x919 // cmd_opcode.MLX5_CMD_OP_QUERY_RQT
	opSetFlowTableRoot     = 0x92f // cmd_opcode.MLX5_CMD_OP_SET_FLOW_TABLE_ROOT
	opCreateFlowTable      = 0x930 // cmd_opcode.MLX5_CMD_OP_CREATE_FLOW_TABLE
	opDestroyFlowTable     = 0x931 // cmd_opcode.MLX5_CMD_OP_DESTROY_FLOW_TABLE
	opQueryFlowTable       = 0x932 // cmd_opcode.MLX5_CMD_OP_QUERY_FLOW_TABLE
	opCreateFlowGroup      = 0x933 // cmd_opcode.MLX5_CMD_OP_CREATE_FLOW_GROUP
	opDestroyFlowGroup     = 0x934 // cmd_opcode.MLX5_CMD_OP_DESTROY_FLOW_GROUP
	opQueryFlowGroup       = 0x935 // cmd_opcode.MLX5_CMD_OP_QUERY_FLOW_GROUP
	opSetFTE               = 0x936 // cmd_opcode.MLX5_CMD_OP_SET_FLOW_TABLE_ENTRY
	opQueryFTE             = 0x937 // cmd_opcode.MLX5_CMD_OP_QUERY_FLOW_TABLE_ENTRY
	opDeleteFTE            = 0x938 // cmd_opcode.MLX5_CMD_OP_DELETE_FLOW_TABLE_ENTRY
	opAllocFlowCounter     = 0x939 // cmd_opcode.MLX5_CMD_OP_ALLOC_FLOW_COUNTER
	opDeallocFlowCounter   = 0x93a // cmd_opcode.MLX5_CMD_OP_DEALLOC_FLOW_COUNTER
	opQueryFlowCounter     = 0x93b // cmd_opcode.MLX5_CMD_OP_QUERY_FLOW_COUNTER
	opModifyFlowTable      = 0x93c // cmd_opcode.MLX5_CMD_OP_MODIFY_FLOW_TABLE
)

// Command status, in the first byte of an answer.
const (
	statBadOp       = 0x2  // cmd_status.MLX5_CMD_STAT_BAD_OP_ERR
	statBadParam    = 0x3  // cmd_status.MLX5_CMD_STAT_BAD_PARAM_ERR
	statBadSysState = 0x4  // cmd_status.MLX5_CMD_STAT_BAD_SYS_STATE_ERR
	statBadRes      = 0x5  // cmd_status.MLX5_CMD_STAT_BAD_RES_ERR
	statLimit       = 0x8  // cmd_status.MLX5_CMD_STAT_LIM_ERR
	statBadResState = 0x9  // cmd_status.MLX5_CMD_STAT_BAD_RES_STATE_ERR
	statIndex       = 0xa  // cmd_status.MLX5_CMD_STAT_IX_ERR
	statNoRes       = 0xf  // cmd_status.MLX5_CMD_STAT_NO_RES_ERR
	statBadInLen    = 0x50 // cmd_status.MLX5_CMD_STAT_BAD_INP_LEN_ERR
	statBadOutLen   = 0x51 // cmd_status.MLX5_CMD_STAT_BAD_OUTP_LEN_ERR
)

// Delivery status, in the last byte of a command entry.
const (
	deliverOK          = 0x0  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_OK
	deliverSignature   = 0x1  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_SIGNAT_ERR
	deliverToken       = 0x2  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_TOK_ERR
	deliverBlockNumber = 0x3  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_BAD_BLK_NUM_ERR
	deliverOutPointer  = 0x4  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_OUT_PTR_ALIGN_ERR
	deliverInPointer   = 0x5  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_IN_PTR_ALIGN_ERR
	deliverFirmware    = 0x6  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_FW_ERR
	deliverInLength    = 0x7  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_IN_LENGTH_ERR
	deliverOutLength   = 0x8  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_OUT_LENGTH_ERR
	deliverReserved    = 0x9  // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_RES_FLD_NOT_CLR_ERR
	deliverDescriptor  = 0x10 // cmd_delivery_status.MLX5_CMD_DELIVERY_STAT_CMD_DESCR_ERR
)

// The command interface itself.
const (
	cmdifRevision = 0x5    // cmd_interface.CMD_IF_REV
	cmdEntryType  = 0x7    // cmd_interface.MLX5_PCI_CMD_XPORT
	cmdSlots      = 0x20   // cmd_interface.MLX5_MAX_COMMANDS
	cmdInline     = 0x10   // cmd_interface.CMD_INLINE_BYTES
	cmdEntrySize  = 0x40   // cmd_interface.CMD_QUEUE_ENTRY_BYTES
	mailboxSize   = 0x240  // cmd_interface.CMD_MAILBOX_BLOCK_BYTES
	mailboxData   = 0x200  // cmd_interface.MLX5_CMD_DATA_BLOCK_SIZE
	sharedUID     = 0xffff // cmd_interface.MLX5_SHARED_RESOURCE_UID
	checksumOn    = 0x3    // cmd_checksum_cap.MLX5_CMD_HCA_CAP_CMDIF_CHECKSUM_ENABLED
)

// Initialization segment.
const (
	nicFullDriver = 0x0 // init_seg_nic_interface.MLX5_INITIAL_SEG_NIC_INTERFACE_FULL_DRIVER
	nicDisabled   = 0x1 // init_seg_nic_interface.MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED
	nicSWReset    = 0x7 // init_seg_nic_interface.MLX5_INITIAL_SEG_NIC_INTERFACE_SW_RESET
)

// Capability groups.
const (
	groupGeneral          = 0x0 // hca_cap_type.MLX5_CAP_GENERAL
	groupEthernet         = 0x1 // hca_cap_type.MLX5_CAP_ETHERNET_OFFLOADS
	groupAtomic           = 0x3 // hca_cap_type.MLX5_CAP_ATOMIC
	groupRoCE             = 0x4 // hca_cap_type.MLX5_CAP_ROCE
	groupFlowTable        = 0x7 // hca_cap_type.MLX5_CAP_FLOW_TABLE
	groupEswitchFlowTable = 0x8 // hca_cap_type.MLX5_CAP_ESWITCH_FLOW_TABLE
	groupEswitch          = 0x9 // hca_cap_type.MLX5_CAP_ESWITCH
)

// Operation modifiers.
const (
	bootPagesMod     = 0x1 // query_pages_op_mod.MLX5_QUERY_PAGES_IN_OP_MOD_BOOT_PAGES
	initPagesMod     = 0x2 // query_pages_op_mod.MLX5_QUERY_PAGES_IN_OP_MOD_INIT_PAGES
	regularPagesMod  = 0x3 // query_pages_op_mod.MLX5_QUERY_PAGES_IN_OP_MOD_REGULAR_PAGES
	pagesGive        = 0x1 // manage_pages_op_mod.MLX5_PAGES_GIVE
	pagesTake        = 0x2 // manage_pages_op_mod.MLX5_PAGES_TAKE
	teardownGraceful = 0x0 // teardown_profile.MLX5_TEARDOWN_HCA_IN_PROFILE_GRACEFUL_CLOSE
	teardownForce    = 0x1 // teardown_profile.MLX5_TEARDOWN_HCA_IN_PROFILE_FORCE_CLOSE
	teardownFast     = 0x2 // teardown_profile.MLX5_TEARDOWN_HCA_IN_PROFILE_PREPARE_FAST_TEARDOWN
	regWrite         = 0x0 // access_reg_op_mod.MLX5_ACCESS_REGISTER_IN_OP_MOD_WRITE
	regRead          = 0x1 // access_reg_op_mod.MLX5_ACCESS_REGISTER_IN_OP_MOD_READ
)

// Events.
const (
	eventPortChange  = 0x9 // event_type.MLX5_EVENT_TYPE_PORT_CHANGE
	eventCommand     = 0xa // event_type.MLX5_EVENT_TYPE_CMD
	eventPageRequest = 0xb // event_type.MLX5_EVENT_TYPE_PAGE_REQUEST
	eventVportChange = 0xd // event_type.MLX5_EVENT_TYPE_NIC_VPORT_CHANGE
	portDown         = 0x1 // event_subtype_port_change.MLX5_PORT_CHANGE_SUBTYPE_DOWN
	portActive       = 0x4 // event_subtype_port_change.MLX5_PORT_CHANGE_SUBTYPE_ACTIVE
)

// Queue and object states, types and modes.
const (
	eqStateArmed       = 0x9  // eq_state.MLX5_EQ_STATE_ARMED
	eqStateFired       = 0xa  // eq_state.MLX5_EQ_STATE_FIRED
	eqStatusFailed     = 0xa  // eq_status.MLX5_EQC_STATUS_EQ_WRITE_FAILURE
	cqStateSolicited   = 0x6  // cq_state.MLX5_CQC_ST_SOLICITED_NOTIFICATION_REQUEST_ARMED
	cqStateArmed       = 0x9  // cq_state.MLX5_CQ_STATE_ARMED
	cqStateFired       = 0xa  // cq_state.MLX5_CQ_STATE_FIRED
	cqStatusOverflow   = 0x9  // cq_status.MLX5_CQC_STATUS_CQ_OVERFLOW
	sqRST              = 0x0  // sq_state.MLX5_SQC_STATE_RST
	sqRDY              = 0x1  // sq_state.MLX5_SQC_STATE_RDY
	sqERR              = 0x3  // sq_state.MLX5_SQC_STATE_ERR
	rqRST              = 0x0  // rq_state.MLX5_RQC_STATE_RST
	rqRDY              = 0x1  // rq_state.MLX5_RQC_STATE_RDY
	rqERR              = 0x3  // rq_state.MLX5_RQC_STATE_ERR
	rmpRDY             = 0x1  // rmp_state.MLX5_RMPC_STATE_RDY
	cqModifyPeriod     = 0x1  // cq_modify.MLX5_CQ_MODIFY_PERIOD
	cqModifyCount      = 0x2  // cq_modify.MLX5_CQ_MODIFY_COUNT
	cqModifyOverrun    = 0x4  // cq_modify.MLX5_CQ_MODIFY_OVERRUN
	cqModifyEQN        = 0x8  // cq_modify.MLX5_MODIFY_FIELD_SELECT_MODIFY_FIELD_SELECT_C_EQN
	cqModifyPeriodMode = 0x10 // cq_modify.MLX5_CQ_MODIFY_PERIOD_MODE
	rqModifyVSD        = 0x2  // rq_modify_bitmask.MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD
	rqModifyCounter    = 0x8  // rq_modify_bitmask.MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_RQ_COUNTER_SET_ID
	wqLinkedList       = 0x0  // wq_type.MLX5_WQ_TYPE_LINKED_LIST
	wqCyclic           = 0x1  // wq_type.MLX5_WQ_TYPE_CYCLIC
	wqStriding         = 0x2  // wq_type.MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ
	rqInline           = 0x0  // rq_mem_type.MLX5_RQC_MEM_RQ_TYPE_MEMORY_RQ_INLINE
	rqInRMP            = 0x1  // rq_mem_type.MLX5_RQC_MEM_RQ_TYPE_MEMORY_RQ_RMP
	tirDirect          = 0x0  // tir_disp_type.MLX5_TIRC_DISP_TYPE_DIRECT
	tirIndirect        = 0x1  // tir_disp_type.MLX5_TIRC_DISP_TYPE_INDIRECT
	hashNone           = 0x0  // rss_hash_fn.MLX5_RX_HASH_FN_NONE
	hashXOR8           = 0x1  // rss_hash_fn.MLX5_RX_HASH_FN_INVERTED_XOR8
	hashToeplitz       = 0x2  // rss_hash_fn.MLX5_RX_HASH_FN_TOEPLITZ
	hashESPSPI         = 0x10 // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_IPSEC_SPI
	tsFreeRunning      = 0x0  // timestamp_format.MLX5_TIMESTAMP_FORMAT_FREE_RUNNING
	tsDefault          = 0x1  // timestamp_format.MLX5_TIMESTAMP_FORMAT_DEFAULT
	tsRealTime         = 0x2  // timestamp_format.MLX5_TIMESTAMP_FORMAT_REAL_TIME
	tsCapFreeRunning   = 0x0  // cap_timestamp_format.MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING
	tsCapRealTime      = 0x1  // cap_timestamp_format.MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME
	tsCapBoth          = 0x2  // cap_timestamp_format.MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING_AND_REAL_TIME
	inlineFromVport    = 0x1  // cap_inline_mode.MLX5_CAP_INLINE_MODE_VPORT_CONTEXT
	inlineL2           = 0x1  // wqe_inline_mode.MLX5_INLINE_MODE_L2
	inlineTCPUDP       = 0x3  // wqe_inline_mode.MLX5_INLINE_MODE_TCP_UDP
	miniCsum           = 0x1  // cqe_mini_format.MLX5_CQE_FORMAT_CSUM
	miniStrideIndex    = 0x3  // cqe_mini_format.MLX5_CQE_FORMAT_CSUM_STRIDX
	accessPA           = 0x0  // mkey_access_mode.MLX5_MKC_ACCESS_MODE_PA
	accessMTT          = 0x1  // mkey_access_mode.MLX5_MKC_ACCESS_MODE_MTT
	accessKLM          = 0x2  // mkey_access_mode.MLX5_MKC_ACCESS_MODE_KLMS
	accessKSM          = 0x3  // mkey_access_mode.MLX5_MKC_ACCESS_MODE_KSM
	periodFromCQE      = 0x1  // cq_period_mode.MLX5_CQ_PERIOD_MODE_START_FROM_CQE
	stridesBase        = 9    // striding_rq.MLX5_MPWQE_LOG_NUM_STRIDES_BASE
	stridesExtBase     = 3    // striding_rq.MLX5_MPWQE_LOG_NUM_STRIDES_EXT_BASE
	strideSizeBase     = 6    // striding_rq.MLX5_MPWQE_LOG_STRIDE_SZ_BASE
)

// Flow steering.
const (
	tableNICRX         = 0x0   // flow_table_type.MLX5_FLOW_TABLE_TYPE_NIC_RX
	tableNICTX         = 0x1   // flow_table_type.MLX5_FLOW_TABLE_TYPE_NIC_TX
	missDefault        = 0x0   // flow_table_miss_action.MLX5_FLOW_TABLE_MISS_ACTION_DEF
	missForward        = 0x1   // flow_table_miss_action.MLX5_FLOW_TABLE_MISS_ACTION_FWD
	modifyMissTable    = 0x1   // flow_table_modify.MLX5_MODIFY_FLOW_TABLE_MISS_TABLE_ID
	actionAllow        = 0x1   // flow_action.MLX5_FLOW_CONTEXT_ACTION_ALLOW
	actionDrop         = 0x2   // flow_action.MLX5_FLOW_CONTEXT_ACTION_DROP
	actionForward      = 0x4   // flow_action.MLX5_FLOW_CONTEXT_ACTION_FWD_DEST
	actionCount        = 0x8   // flow_action.MLX5_FLOW_CONTEXT_ACTION_COUNT
	actionModifyHeader = 0x40  // flow_action.MLX5_FLOW_CONTEXT_ACTION_MOD_HDR
	actionPopVLAN      = 0x80  // flow_action.MLX5_FLOW_CONTEXT_ACTION_VLAN_POP
	actionPushVLAN     = 0x100 // flow_action.MLX5_FLOW_CONTEXT_ACTION_VLAN_PUSH
	actionPopVLAN2     = 0x400 // flow_action.MLX5_FLOW_CONTEXT_ACTION_VLAN_POP_2
	actionPushVLAN2    = 0x800 // flow_action.MLX5_FLOW_CONTEXT_ACTION_VLAN_PUSH_2
	destTable          = 0x1   // flow_dest_type.MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE
	destTIR            = 0x2   // flow_dest_type.MLX5_IFC_FLOW_DESTINATION_TYPE_TIR
	matchOuter         = 0x1   // flow_match_enable.MLX5_MATCH_OUTER_HEADERS
	matchMisc          = 0x2   // flow_match_enable.MLX5_MATCH_MISC_PARAMETERS
	matchInner         = 0x4   // flow_match_enable.MLX5_MATCH_INNER_HEADERS
	fteModifyAction    = 0x0   // flow_fte_modify.MLX5_SET_FTE_MODIFY_ENABLE_MASK_ACTION
	fteModifyTag       = 0x1   // flow_fte_modify.MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_TAG
	fteModifyDests     = 0x2   // flow_fte_modify.MLX5_SET_FTE_MODIFY_ENABLE_MASK_DESTINATION_LIST
	fteModifyCounters  = 0x3   // flow_fte_modify.MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_COUNTERS
)

// Virtual port lists and states.
const (
	listUC    = 0x0 // vport_list_type.MLX5_NVPRT_LIST_TYPE_UC
	listMC    = 0x1 // vport_list_type.MLX5_NVPRT_LIST_TYPE_MC
	listVLAN  = 0x2 // vport_list_type.MLX5_NVPRT_LIST_TYPE_VLAN
	adminDown = 0x0 // vport_admin_state.MLX5_VPORT_ADMIN_STATE_DOWN
	adminUp   = 0x1 // vport_admin_state.MLX5_VPORT_ADMIN_STATE_UP
	adminAuto = 0x2 // vport_admin_state.MLX5_VPORT_ADMIN_STATE_AUTO
)

// Registers and what stands in them.
const (
	regQCAM           = 0x4019 // reg_id.MLX5_REG_QCAM
	regPMTU           = 0x5003 // reg_id.MLX5_REG_PMTU
	regPTYS           = 0x5004 // reg_id.MLX5_REG_PTYS
	regPAOS           = 0x5006 // reg_id.MLX5_REG_PAOS
	regPFCC           = 0x5007 // reg_id.MLX5_REG_PFCC
	regPPCNT          = 0x5008 // reg_id.MLX5_REG_PPCNT
	regPMAOS          = 0x5012 // reg_id.MLX5_REG_PMAOS
	regPCMR           = 0x5041 // reg_id.MLX5_REG_PCMR
	regPMLP           = 0x5002 // reg_id.MLX5_REG_PMLP
	regPPLM           = 0x5023 // reg_id.MLX5_REG_PPLM
	regPCAM           = 0x507f // reg_id.MLX5_REG_PCAM
	regMTCAP          = 0x9009 // reg_id.MLX5_REG_MTCAP
	regMTMP           = 0x900a // reg_id.MLX5_REG_MTMP
	regMCIA           = 0x9014 // reg_id.MLX5_REG_MCIA
	regMPCNT          = 0x9051 // reg_id.MLX5_REG_MPCNT
	regMTUTC          = 0x9055 // reg_id.MLX5_REG_MTUTC
	regMRTC           = 0x902d // reg_id.MLX5_REG_MRTC
	regMCAM           = 0x907f // reg_id.MLX5_REG_MCAM
	regMLCR           = 0x902b // reg_id.MLX5_REG_MLCR
	regNodeDesc       = 0x6001 // reg_id.MLX5_REG_NODE_DESC
	regHostEndianness = 0x7004 // reg_id.MLX5_REG_HOST_ENDIANNESS
	portStatusUp      = 0x1    // port_status.MLX5_PORT_UP
	portStatusDown    = 0x2    // port_status.MLX5_PORT_DOWN
	ptysEthernet      = 0x4    // ptys_proto_mask.MLX5_PTYS_EN
	anComplete        = 0x1    // ptys_an_status.MLX5_AN_COMPLETE
	anLinkDown        = 0x4    // ptys_an_status.MLX5_AN_LINK_DOWN
	connectorDA       = 0x7    // ptys_connector_type.MLX5E_PORT_DA
	groupIEEE8023     = 0x0    // ppcnt_group.MLX5_IEEE_802_3_COUNTERS_GROUP
	groupRFC2863      = 0x1    // ppcnt_group.MLX5_RFC_2863_COUNTERS_GROUP
	groupRFC2819      = 0x2    // ppcnt_group.MLX5_RFC_2819_COUNTERS_GROUP
	groupRFC3635      = 0x3    // ppcnt_group.MLX5_RFC_3635_COUNTERS_GROUP
	groupEthExtended  = 0x5    // ppcnt_group.MLX5_ETHERNET_EXTENDED_COUNTERS_GROUP
	groupPerPriority  = 0x10   // ppcnt_group.MLX5_PER_PRIORITY_COUNTERS_GROUP
	groupPerTC        = 0x11   // ppcnt_group.MLX5_PER_TRAFFIC_CLASS_COUNTERS_GROUP
	groupPhysical     = 0x12   // ppcnt_group.MLX5_PHYSICAL_LAYER_COUNTERS_GROUP
	groupCongestion   = 0x13   // ppcnt_group.MLX5_PER_TRAFFIC_CLASS_CONGESTION_GROUP
	groupPhysicalStat = 0x16   // ppcnt_group.MLX5_PHYSICAL_LAYER_STATISTICAL_GROUP
	groupPCIe         = 0x0    // mpcnt_group.MLX5_PCIE_PERFORMANCE_COUNTERS_GROUP
	moduleQSFP28      = 0x11   // port_module_id.MLX5_MODULE_ID_QSFP28
	moduleSFP         = 0x3    // port_module_id.MLX5_MODULE_ID_SFP
	i2cLow            = 0x50   // port_module_id.MLX5_I2C_ADDR_LOW
	clockSetTime      = 0x1    // mtutc.MLX5_MTUTC_OPERATION_SET_TIME_IMMEDIATE
	clockAdjustTime   = 0x2    // mtutc.MLX5_MTUTC_OPERATION_ADJUST_TIME
	clockAdjustRate   = 0x3    // mtutc.MLX5_MTUTC_OPERATION_ADJUST_FREQ_UTC
)
