package model

// profile.go owns what a function advertises: identity, port and every
// capability, one column a profile. A bit is set only where both the command
// and the data path behind it exist, save in cx4, which answers as a real
// ConnectX-4 Lx did (firmware 14.12.1220); what that promises and the model
// refuses is RDMA and options that change no Ethernet packet.
// Manual: chapter "HCA capabilities".

import "net"

// Columns of the capability tables.
const (
	colCX4 = iota
	colCX5
	colCX6Dx
	colCX5VF
	columns
)

// profile is one kind of function.
type profile struct {
	name      string
	column    int
	deviceID  uint16
	fwMajor   uint32
	fwMinor   uint32
	fwSub     uint32
	hwID      uint32 // in the health buffer
	psid      string
	vf        bool
	pcieGen   int    // 3: 8 GT/s, 4: 16 GT/s
	khz       uint32 // of the internal timer
	bootPages int
	initPages int
	minInline uint8 // wqe_inline_mode that the virtual port demands
	maxMTU    uint16
	speed     uint32 // Mbit/s
	modes     uint32 // eth_proto_capability
	modeOper  uint32 // the mode of a link that is up
	extModes  uint32 // ext_eth_proto_capability; 0 where there is no extended table
	extOper   uint32
	module    uint8 // identifier of the plugged module
	lanes     int
}

// profiles lists all functions. Link modes: bit 27 is 25GBASE-CR, 28 and 29 its
// other media; 20 is 100GBASE-CR4, 21 to 23 its other media, 30 and 31 50GBASE.
var profiles = [columns]profile{
	{name: "cx4", column: colCX4, deviceID: 0x1015, fwMajor: 14, fwMinor: 12, fwSub: 1220, hwID: 0x20b, psid: "MT_2430110027", pcieGen: 3, khz: 275_000,
		bootPages: 6, initPages: 12868, minInline: inlineL2, maxMTU: 10240, speed: 25_000,
		modes: 1<<27 | 1<<28 | 1<<29 | 1<<12 | 1<<13 | 1<<4 | 1<<1, modeOper: 1 << 27, module: moduleSFP, lanes: 1},
	{name: "cx5", column: colCX5, deviceID: 0x1017, fwMajor: 16, fwMinor: 35, fwSub: 4030, hwID: 0x20d, psid: "MT_0000000012", pcieGen: 3, khz: 156_250,
		bootPages: 6, initPages: 1024, maxMTU: 10240, speed: 100_000,
		modes: 1<<20 | 1<<21 | 1<<22 | 1<<23 | 1<<30 | 1<<31 | 1<<27 | 1<<28 | 1<<29 | 1<<6 | 1<<7 | 1<<12 | 1<<1, modeOper: 1 << 20, module: moduleQSFP28, lanes: 4},
	{name: "cx6dx", column: colCX6Dx, deviceID: 0x101d, fwMajor: 22, fwMinor: 36, fwSub: 1010, hwID: 0x212, psid: "MT_0000000359", pcieGen: 4, khz: 1_000_000,
		bootPages: 8, initPages: 1024, maxMTU: 10240, speed: 100_000,
		modes: 1<<20 | 1<<21 | 1<<22 | 1<<23 | 1<<30 | 1<<31 | 1<<27 | 1<<28 | 1<<29 | 1<<6 | 1<<12 | 1<<1, modeOper: 1 << 20,
		extModes: 1<<9 | 1<<10 | 1<<7 | 1<<8 | 1<<6 | 1<<5 | 1<<4 | 1<<1, extOper: 1 << 9, module: moduleQSFP28, lanes: 4},
	{name: "cx5-vf", column: colCX5VF, deviceID: 0x1018, fwMajor: 16, fwMinor: 35, fwSub: 4030, hwID: 0x20d, psid: "MT_0000000012", vf: true, pcieGen: 3, khz: 156_250,
		bootPages: 2, initPages: 256, maxMTU: 10240, speed: 100_000,
		modes: 1<<20 | 1<<21 | 1<<22 | 1<<23 | 1<<30 | 1<<31 | 1<<27 | 1<<28 | 1<<29 | 1<<6 | 1<<7 | 1<<12 | 1<<1, modeOper: 1 << 20, module: moduleQSFP28, lanes: 4},
}

// Profiles lists the names that Config.Profile accepts.
func Profiles() []string {
	names := make([]string, 0, columns)
	for _, p := range profiles {
		names = append(names, p.name)
	}
	return names
}

func findProfile(name string) *profile {
	for i := range profiles {
		if profiles[i].name == name {
			return &profiles[i]
		}
	}
	return nil
}

// capRow is one capability and its value in each profile.
type capRow struct {
	f field
	v [columns]uint64
}

// initialCaps is where the current value after reset differs from the most
// that SET_HCA_CAP accepts.
var initialCaps = []capRow{
	{capLogMaxQp, [columns]uint64{14, 0, 0, 0}},
	{capGidTableSize, [columns]uint64{}},
	{capPkeyTableSize, [columns]uint64{}},
	{capCmdifChecksum, [columns]uint64{}},
	{capLogUarPageSz, [columns]uint64{}},
}

// generalCaps is the general group. Names that start with reserved are bits
// that the recorded card sets and the public headers do not name.
var generalCaps = []capRow{
	{field{"cmd_hca_cap.log_max_srq_sz", 128, 8}, [columns]uint64{15, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_qp_sz", 136, 8}, [columns]uint64{15, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_qp", 155, 5}, [columns]uint64{23, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_srq", 171, 5}, [columns]uint64{23, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_cq_sz", 200, 8}, [columns]uint64{22, 22, 22, 22}},
	{field{"cmd_hca_cap.log_max_cq", 219, 5}, [columns]uint64{24, 24, 24, 20}},
	{field{"cmd_hca_cap.log_max_eq_sz", 224, 8}, [columns]uint64{22, 22, 22, 22}},
	{field{"cmd_hca_cap.relaxed_ordering_write", 232, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.log_max_mkey", 234, 6}, [columns]uint64{24, 24, 24, 20}},
	{field{"cmd_hca_cap.fast_teardown", 251, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"cmd_hca_cap.log_max_eq", 252, 4}, [columns]uint64{8, 8, 8, 8}},
	{field{"cmd_hca_cap.max_indirection", 256, 8}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.fixed_buffer_size", 264, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.log_max_mrw_sz", 265, 7}, [columns]uint64{64, 64, 64, 64}},
	{field{"cmd_hca_cap.force_teardown", 272, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"cmd_hca_cap.log_max_bsf_list_size", 274, 6}, [columns]uint64{16, 0, 0, 0}},
	{field{"cmd_hca_cap.umr_extended_translation_offset", 280, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.log_max_klm_list_size", 282, 6}, [columns]uint64{16, 16, 16, 16}},
	{field{"cmd_hca_cap.log_max_ra_req_dc", 298, 6}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.vnic_env_cq_overrun", 313, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.log_max_ra_res_dc", 314, 6}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_ra_req_qp", 330, 6}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_ra_res_qp", 346, 6}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.end_pad", 352, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.cc_query_allowed", 353, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.cc_modify_allowed", 354, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.qcam_reg", 367, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"cmd_hca_cap.gid_table_size", 368, 16}, [columns]uint64{4, 0, 0, 0}},
	{field{"cmd_hca_cap.vport_counters", 385, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.modify_rq_counter_set_id", 388, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.max_qp_cnt", 390, 10}, [columns]uint64{255, 0, 0, 0}},
	{field{"cmd_hca_cap.pkey_table_size", 400, 16}, [columns]uint64{5, 0, 0, 0}},
	{field{"cmd_hca_cap.vport_group_manager", 416, 1}, [columns]uint64{1, 1, 1, 0}},
	{field{"cmd_hca_cap.vhca_group_manager", 417, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.ets", 421, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.nic_flow_table", 422, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.eswitch_manager", 423, 1}, [columns]uint64{1, 1, 1, 0}},
	{field{"cmd_hca_cap.mcam_reg", 425, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.pcam_reg", 426, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.local_ca_ack_delay", 427, 5}, [columns]uint64{16, 0, 0, 0}},
	{field{"cmd_hca_cap.ports_check", 434, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"cmd_hca_cap.beacon_led", 437, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"cmd_hca_cap.port_type", 438, 2}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.num_ports", 440, 8}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.log_max_msg", 451, 5}, [columns]uint64{30, 30, 30, 30}},
	{field{"cmd_hca_cap.stat_rate_support", 480, 16}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.cqe_version", 508, 4}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.compact_address_vector", 512, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.striding_rq", 513, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.reserved_at_20d", 525, 2}, [columns]uint64{3, 0, 0, 0}},
	{field{"cmd_hca_cap.cmdif_checksum", 528, 2}, [columns]uint64{3, 3, 3, 3}},
	{field{"cmd_hca_cap.wq_signature", 532, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.sctr_data_cqe", 533, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.eth_net_offloads", 540, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.roce", 541, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.atomic", 542, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.cq_oi", 544, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.cq_resize", 545, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.cq_moderation", 546, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.cq_period_mode_modify", 547, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.cq_eq_remap", 550, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.block_lb_mc", 552, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.reserved_at_229", 553, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.scqe_break_moderation", 554, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.cq_period_start_from_cqe", 555, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.cd", 556, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.apm", 558, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.umr_ptr_rlky", 560, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.qkv", 566, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.pkv", 567, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.xrc", 572, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.ud", 573, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.uc", 574, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.rc", 575, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.uar_sz", 586, 6}, [columns]uint64{5, 5, 5, 5}},
	{field{"cmd_hca_cap.log_pg_sz", 600, 8}, [columns]uint64{12, 12, 12, 12}},
	{field{"cmd_hca_cap.bf", 608, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.driver_version", 609, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.pad_tx_eth_packet", 610, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"cmd_hca_cap.log_bf_reg_size", 619, 5}, [columns]uint64{9, 9, 9, 9}},
	{field{"cmd_hca_cap.max_wqe_sz_sq", 656, 16}, [columns]uint64{1024, 1024, 1024, 1024}},
	{field{"cmd_hca_cap.max_wqe_sz_rq", 688, 16}, [columns]uint64{512, 512, 512, 512}},
	{field{"cmd_hca_cap.max_wqe_sz_sq_dc", 720, 16}, [columns]uint64{256, 0, 0, 0}},
	{field{"cmd_hca_cap.max_qp_mcg", 743, 25}, [columns]uint64{48, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_mcg", 792, 8}, [columns]uint64{21, 0, 0, 0}},
	{field{"cmd_hca_cap.log_max_transport_domain", 803, 5}, [columns]uint64{16, 16, 16, 16}},
	{field{"cmd_hca_cap.relaxed_ordering_read", 810, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.log_max_pd", 811, 5}, [columns]uint64{24, 24, 24, 20}},
	{field{"cmd_hca_cap.log_max_xrcd", 827, 5}, [columns]uint64{24, 0, 0, 0}},
	{field{"cmd_hca_cap.nic_receive_steering_discard", 832, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.receive_discard_vport_down", 833, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.transmit_discard_vport_down", 834, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"cmd_hca_cap.eq_overrun_count", 835, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.invalid_command_count", 837, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.max_flow_counter_15_0", 848, 16}, [columns]uint64{0, 32768, 32768, 4096}},
	{field{"cmd_hca_cap.log_max_rq", 867, 5}, [columns]uint64{23, 23, 23, 16}},
	{field{"cmd_hca_cap.log_max_sq", 875, 5}, [columns]uint64{23, 23, 23, 16}},
	{field{"cmd_hca_cap.log_max_tir", 883, 5}, [columns]uint64{23, 23, 23, 16}},
	{field{"cmd_hca_cap.log_max_tis", 891, 5}, [columns]uint64{23, 23, 23, 16}},
	{field{"cmd_hca_cap.basic_cyclic_rcv_wqe", 896, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.log_max_rmp", 899, 5}, [columns]uint64{23, 23, 23, 16}},
	{field{"cmd_hca_cap.log_max_rqt", 907, 5}, [columns]uint64{16, 16, 16, 12}},
	{field{"cmd_hca_cap.log_max_rqt_size", 915, 5}, [columns]uint64{9, 11, 11, 9}},
	{field{"cmd_hca_cap.ext_stride_num_range", 928, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.log_max_stride_sz_rq", 931, 5}, [columns]uint64{9, 9, 9, 9}},
	{field{"cmd_hca_cap.log_min_stride_sz_rq", 939, 5}, [columns]uint64{4, 4, 4, 4}},
	{field{"cmd_hca_cap.log_max_stride_sz_sq", 947, 5}, [columns]uint64{6, 6, 6, 6}},
	{field{"cmd_hca_cap.log_min_stride_sz_sq", 955, 5}, [columns]uint64{6, 6, 6, 6}},
	{field{"cmd_hca_cap.log_max_wq_sz", 987, 5}, [columns]uint64{15, 15, 15, 15}},
	{field{"cmd_hca_cap.nic_vport_change_event", 992, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.disable_local_lb_uc", 993, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.disable_local_lb_mc", 994, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.log_max_vlan_list", 1003, 5}, [columns]uint64{12, 12, 12, 12}},
	{field{"cmd_hca_cap.log_max_current_mc_list", 1011, 5}, [columns]uint64{14, 14, 14, 10}},
	{field{"cmd_hca_cap.log_max_current_uc_list", 1019, 5}, [columns]uint64{10, 10, 10, 7}},
	{field{"cmd_hca_cap.sq_ts_format", 1088, 2}, [columns]uint64{0, 0, 2, 0}},
	{field{"cmd_hca_cap.rq_ts_format", 1090, 2}, [columns]uint64{0, 0, 2, 0}},
	{field{"cmd_hca_cap.max_num_eqs", 1136, 16}, [columns]uint64{0, 64, 64, 64}},
	{field{"cmd_hca_cap.log_max_l2_table", 1155, 5}, [columns]uint64{16, 16, 16, 0}},
	{field{"cmd_hca_cap.log_uar_page_sz", 1168, 16}, [columns]uint64{8, 0, 0, 0}},
	{field{"cmd_hca_cap.device_frequency_mhz", 1216, 32}, [columns]uint64{275, 156, 1000, 156}},
	{field{"cmd_hca_cap.device_frequency_khz", 1248, 32}, [columns]uint64{0, 156250, 1000000, 156250}},
	{field{"cmd_hca_cap.mini_cqe_resp_stride_index", 1468, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"cmd_hca_cap.cqe_compression", 1471, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"cmd_hca_cap.cqe_compression_timeout", 1472, 16}, [columns]uint64{8, 8, 8, 8}},
	{field{"cmd_hca_cap.cqe_compression_max_num", 1488, 16}, [columns]uint64{16, 64, 64, 64}},
}

// ethernetCaps is the group of Ethernet offloads.
var ethernetCaps = []capRow{
	{field{"per_protocol_networking_offload_caps.csum_cap", 0, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.vlan_cap", 1, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.lro_cap", 2, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.lro_time_stamp", 4, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.wqe_vlan_insert", 7, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.self_lb_en_modifiable", 8, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.reserved_at_9", 9, 2}, [columns]uint64{3, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.max_lso_cap", 11, 5}, [columns]uint64{18, 18, 18, 18}},
	{field{"per_protocol_networking_offload_caps.multi_pkt_send_wqe", 16, 2}, [columns]uint64{1, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.wqe_inline_mode", 18, 2}, [columns]uint64{1, 2, 2, 1}},
	{field{"per_protocol_networking_offload_caps.rss_ind_tbl_cap", 20, 4}, [columns]uint64{9, 11, 11, 9}},
	{field{"per_protocol_networking_offload_caps.reg_umr_sq", 24, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.enhanced_multi_pkt_send_wqe", 26, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.tunnel_stateless_gre", 30, 1}, [columns]uint64{1, 1, 1, 0}},
	{field{"per_protocol_networking_offload_caps.tunnel_stateless_vxlan", 31, 1}, [columns]uint64{1, 1, 1, 0}},
	{field{"per_protocol_networking_offload_caps.swp", 32, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.swp_csum", 33, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.swp_lso", 34, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"per_protocol_networking_offload_caps.tunnel_stateless_geneve_tx", 36, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"per_protocol_networking_offload_caps.max_vxlan_udp_ports", 48, 8}, [columns]uint64{0, 4, 8, 0}},
	{field{"per_protocol_networking_offload_caps.tunnel_stateless_geneve_rx", 63, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"per_protocol_networking_offload_caps.lro_min_mss_size", 80, 16}, [columns]uint64{1348, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.lro_timer_supported_periods[0]", 384, 32}, [columns]uint64{8, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.lro_timer_supported_periods[1]", 416, 32}, [columns]uint64{16, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.lro_timer_supported_periods[2]", 448, 32}, [columns]uint64{32, 0, 0, 0}},
	{field{"per_protocol_networking_offload_caps.lro_timer_supported_periods[3]", 480, 32}, [columns]uint64{512, 0, 0, 0}},
}

// tableCaps is the layout that each direction of flow tables has.
var tableCaps = []capRow{
	{field{"flow_table_prop_layout.ft_support", 0, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_prop_layout.reserved_at_1", 1, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"flow_table_prop_layout.flow_counter", 2, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_prop_layout.flow_modify_en", 3, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_prop_layout.modify_root", 4, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_prop_layout.identified_miss_table_mode", 5, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_prop_layout.flow_table_modify", 6, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_prop_layout.pop_vlan", 10, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"flow_table_prop_layout.push_vlan", 11, 1}, [columns]uint64{0, 1, 1, 0}},
	{field{"flow_table_prop_layout.pop_vlan_2", 13, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"flow_table_prop_layout.push_vlan_2", 14, 1}, [columns]uint64{0, 0, 1, 0}},
	{field{"flow_table_prop_layout.log_max_ft_size", 34, 6}, [columns]uint64{16, 16, 16, 16}},
	{field{"flow_table_prop_layout.max_ft_level", 56, 8}, [columns]uint64{255, 80, 80, 80}},
	{field{"flow_table_prop_layout.log_max_ft_num", 120, 8}, [columns]uint64{9, 10, 10, 9}},
	{field{"flow_table_prop_layout.log_max_flow_counter", 144, 8}, [columns]uint64{0, 0, 0, 0}},
	{field{"flow_table_prop_layout.log_max_destination", 152, 8}, [columns]uint64{10, 8, 8, 6}},
	{field{"flow_table_prop_layout.log_max_flow", 184, 8}, [columns]uint64{25, 22, 22, 18}},
}

// matchCaps lists the header fields that a flow group may match.
var matchCaps = []capRow{
	{field{"flow_table_fields_supported.outer_dmac", 0, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_smac", 1, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ether_type", 2, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ip_version", 3, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_first_prio", 4, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_first_cfi", 5, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_first_vid", 6, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ipv4_ttl", 7, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_second_prio", 8, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_second_cfi", 9, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_second_vid", 10, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_sip", 12, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_dip", 13, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_frag", 14, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ip_protocol", 15, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ip_ecn", 16, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_ip_dscp", 17, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_udp_sport", 18, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_udp_dport", 19, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_tcp_sport", 20, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_tcp_dport", 21, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_tcp_flags", 22, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_gre_protocol", 23, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_gre_key", 24, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_vxlan_vni", 25, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_geneve_vni", 26, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_geneve_oam", 27, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_geneve_protocol_type", 28, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_geneve_opt_len", 29, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.source_eswitch_port", 31, 1}, [columns]uint64{1, 0, 0, 0}},
	{field{"flow_table_fields_supported.inner_dmac", 32, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_smac", 33, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_ether_type", 34, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_ip_version", 35, 1}, [columns]uint64{0, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_first_prio", 36, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_first_cfi", 37, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_first_vid", 38, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_second_prio", 40, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_second_cfi", 41, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_second_vid", 42, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_sip", 44, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_dip", 45, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_frag", 46, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_ip_protocol", 47, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_ip_ecn", 48, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_ip_dscp", 49, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_udp_sport", 50, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_udp_dport", 51, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_tcp_sport", 52, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_tcp_dport", 53, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.inner_tcp_flags", 54, 1}, [columns]uint64{1, 1, 1, 1}},
	{field{"flow_table_fields_supported.outer_esp_spi", 87, 1}, [columns]uint64{0, 1, 1, 1}},
}

// roceCaps and atomicCaps are RDMA groups, answered by cx4 as recorded.
var roceCaps = []capRow{
	{field{"roce_cap.reserved_at_1", 1, 3}, [columns]uint64{4, 0, 0, 0}},
	{field{"roce_cap.l3_type", 140, 4}, [columns]uint64{7, 0, 0, 0}},
	{field{"roce_cap.roce_version", 152, 8}, [columns]uint64{7, 0, 0, 0}},
	{field{"roce_cap.r_roce_dest_udp_port", 176, 16}, [columns]uint64{4791, 0, 0, 0}},
	{field{"roce_cap.r_roce_max_src_udp_port", 192, 16}, [columns]uint64{65535, 0, 0, 0}},
	{field{"roce_cap.r_roce_min_src_udp_port", 208, 16}, [columns]uint64{49152, 0, 0, 0}},
	{field{"roce_cap.roce_address_table_size", 240, 16}, [columns]uint64{256, 0, 0, 0}},
}

var atomicCaps = []capRow{
	{field{"atomic_caps.atomic_operations", 144, 16}, [columns]uint64{15, 0, 0, 0}},
	{field{"atomic_caps.atomic_size_qp", 176, 16}, [columns]uint64{60, 0, 0, 0}},
	{field{"atomic_caps.atomic_size_dc", 208, 16}, [columns]uint64{60, 0, 0, 0}},
}

const capBytes = 4096

// capSet is one capability group.
type capSet struct {
	max, current []byte
}

func newCapSet() capSet { return capSet{make([]byte, capBytes), make([]byte, capBytes)} }

// put writes rows into both values of the group; at enters a nested layout.
func (c capSet) put(rows []capRow, column int, at field) {
	for _, r := range rows {
		r.f.set(at.in(c.max), r.v[column])
		r.f.set(at.in(c.current), r.v[column])
	}
}

// whole enters a capability group itself.
var whole = field{"", 0, capBytes * 8}

// newCaps builds the groups as they are after reset.
func (p *profile) newCaps() map[uint16]capSet {
	g, e, f := newCapSet(), newCapSet(), newCapSet()
	g.put(generalCaps, p.column, whole)
	for _, r := range initialCaps {
		r.f.set(g.current, r.v[p.column])
	}
	e.put(ethernetCaps, p.column, whole)
	p.putTableCaps(f)
	caps := map[uint16]capSet{groupGeneral: g, groupEthernet: e, groupFlowTable: f}
	if p.column == colCX4 {
		caps[groupRoCE], caps[groupAtomic] = newCapSet(), newCapSet()
		caps[groupRoCE].put(roceCaps, p.column, whole)
		caps[groupAtomic].put(atomicCaps, p.column, whole)
	}
	if capEswitchManager.on(g.max) {
		// There is no embedded switch to configure: all its fields are zero.
		caps[groupEswitchFlowTable], caps[groupEswitch] = newCapSet(), newCapSet()
	}
	return caps
}

// tableDirections lists the flow table layouts of a group; the sniffers exist
// in cx4 only.
var tableDirections = []struct {
	at      field
	cx4Only bool
}{
	{ftcFlowTablePropertiesNicReceive, false},
	{ftcFlowTablePropertiesNicReceiveSniffer, true},
	{ftcFlowTablePropertiesNicTransmit, true},
	{ftcFlowTablePropertiesNicTransmitSniffer, true},
}

func (p *profile) putTableCaps(c capSet) {
	for i, dir := range tableDirections {
		if dir.cx4Only && p.column != colCX4 {
			continue
		}
		c.put(tableCaps, p.column, dir.at)
		if dir.at == ftcFlowTablePropertiesNicTransmit {
			c.put([]capRow{{field{"flow_table_prop_layout.reserved_at_1", 1, 1}, [columns]uint64{}}}, p.column, dir.at)
		}
		for _, b := range [][]byte{dir.at.in(c.max), dir.at.in(c.current)} {
			for _, r := range matchCaps {
				v := r.v[p.column]
				port := r.f.of == matchSourcePort
				if !port || i == 0 {
					r.f.set(ftpFtFieldSupport.in(b), v)
				}
				if !port {
					r.f.set(ftpFtFieldBitmaskSupport.in(b), v)
				}
			}
		}
	}
}

// matchSourcePort can be matched by received packets only, and only whole.
const matchSourcePort = "flow_table_fields_supported.source_eswitch_port"

// genVal is the current value of a general capability.
func (d *Device) genVal(f field) uint64 { return f.get(d.hca.caps[groupGeneral].current) }

// gen reports whether a general capability is set.
func (d *Device) gen(f field) bool { return d.genVal(f) != 0 }

// ethVal is the value of an Ethernet capability.
func (d *Device) ethVal(f field) uint64 { return f.get(d.hca.caps[groupEthernet].current) }

// eth reports whether an Ethernet capability is set.
func (d *Device) eth(f field) bool { return d.ethVal(f) != 0 }

// tableCap is the flow table layout of a table type; empty where the profile
// has no such tables.
func (d *Device) tableCap(kind uint8) []byte {
	at := ftcFlowTablePropertiesNicReceive
	switch kind {
	case tableNICRX:
	case tableNICTX:
		at = ftcFlowTablePropertiesNicTransmit
	default:
		return nil
	}
	b := at.in(d.hca.caps[groupFlowTable].current)
	if !ftpFtSupport.on(b) {
		return nil
	}
	return b
}

// limit is 2 to the power of a capability: how many objects there may be.
func (p *profile) limit(f field) uint32 {
	for _, r := range generalCaps {
		if r.f == f {
			return 1 << r.v[p.column]
		}
	}
	return 0
}

// flowTables and flowCounters are the limits that are not powers in the general
// group.
func (p *profile) flowTables() uint32 {
	for _, r := range tableCaps {
		if r.f == ftpLogMaxFtNum {
			return 1 << r.v[p.column]
		}
	}
	return 0
}

func (p *profile) flowCounters() uint32 {
	for _, r := range generalCaps {
		if r.f == capMaxFlowCounter150 {
			return uint32(r.v[p.column])
		}
	}
	return 0
}

// maxEQs is the number of event queues: max_num_eqs, or the logarithm where
// firmware is too old for it.
func (p *profile) maxEQs() uint32 {
	for _, r := range generalCaps {
		if r.f == capMaxNumEqs && r.v[p.column] != 0 {
			return uint32(r.v[p.column])
		}
	}
	return min(p.limit(capLogMaxEq), 256-firstEQ)
}

// firstEQ is the lowest EQ number, as recorded; numbers have 8 bits.
const firstEQ = 16

// guid derives a 64-bit identifier from a MAC address (RFC 4291, appendix A).
func guid(mac net.HardwareAddr) uint64 {
	var v uint64
	for _, b := range []byte{mac[0], mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]} {
		v = v<<8 | uint64(b)
	}
	return v
}
