package main

// loss.go owns the sentence about lost packets: which counters say that who lost
// them, and what to do about it. A pure function of counters; it does not own these
// (stats.go).

import (
	"fmt"
	"slices"
)

// loser is one who can lose packets on their way to us.
type loser struct {
	who      string
	counters []string
	advice   string
}

// losers are tried in this order where they lost as many.
var losers = []loser{
	{"the NIC or its PCIe link, not the host", []string{"rx_discards_phy"},
		"it had nowhere to put them, which is not for want of receive buffers: check width and speed of the slot (lspci -vv: LnkSta), and spread over fewer or more -queues"},
	{"the host", []string{"rx_out_of_buffer"},
		"receive rings ran out of buffers since the loops were too slow or kept from running: a larger -rx-ring, more -queues, -busy-poll on CPUs of their own"},
	{"the wire", []string{"rx_crc_errors_phy", "rx_symbol_err_phy", "rx_in_range_len_errors_phy", "rx_out_of_range_len_phy", "rx_fragments_phy", "rx_jabbers_phy", "rx_undersize_pkts_phy"},
		"frames came damaged: check cable, module and the other end"},
	{"the MTU", []string{"rx_oversize_pkts_phy", "rx_oversize_pkts_sw_drop"},
		"senders use longer frames than we take: a larger -mtu"},
	{"the filter, as asked", []string{"rx_steer_missed_packets"},
		"they were for other addresses: -promisc takes them"},
	{"a rule, as asked", []string{"rx_rule_dropped"},
		"it says action -1"},
	{"a program, as asked", []string{"rx_xdp_drop", "rx_xsk_xdp_drop"},
		"its verdict was drop (-xdp, -bpf)"},
	{"a program that failed", []string{"rx_xdp_aborted", "rx_xsk_xdp_aborted"},
		"it gave no verdict for them, for example since they were cut short"},
	{"what stands behind a program", []string{"rx_xdp_redirect_full", "rx_xdp_tx_full", "rx_xdp_tx_err"},
		"the queue, port or socket it sends to had no room: a larger -tx-ring, more -queues, or an application that empties and fills its rings faster"},
	{"a socket without buffers", []string{"rx_xsk_out_of_buffer"},
		"no application is attached to the queue from -queues on that a rule names, or it does not fill its ring fast enough: start it (-attach PATH -queue N), give it more -xsk-frames"},
	{"a socket that nobody holds", []string{"rx_xdp_redirect_no_socket"},
		"a program redirects to it: start its application (-attach PATH -queue N)"},
	{"who keeps packets", []string{"rx_xsk_xdp_no_page"},
		"a program passed on packets of a socket, and no page was free to copy them into: a full send queue, or packets on their way to other queues, hold them: a larger -tx-ring"},
	{"the send ring", []string{"tx_queue_dropped", "tx_xdp_err", "tx_xsk_err"},
		"it had no room for them, they were not fit to send, or the queue was reset under them: a larger -tx-ring, and see the messages about queues that were reset"},
	{"the port they were to leave by", []string{"tx_discards_phy", "tx_errors_phy"},
		"it could not send what it was given: check the link and pause frames"},
	{"the end of the run", []string{"rx_stop_drop", "tx_xsk_stop_drop"},
		"they had come and were not done with when it ended, since the wire went on or the device did not complete what was sent"},
	{"an application behind a socket", []string{"rx_xsk_ring_full"},
		"it reads its RX ring too slowly"},
	{"the frames of a UMEM", []string{"rx_xsk_oversize_pkts_sw_drop"},
		"packets were longer: -xsk-frame 4096, or -xsk-multi-buffer"},
	{"the end of an application", []string{"rx_xsk_detach_drop"},
		"they were in its frames when it went away"},
	{"the port, which was down", []string{"rx_discards_vport_down"},
		"they came before it was up or after its end"},
	{"errors of receive queues", []string{"rx_wqe_err", "rx_xsk_wqe_err"},
		"what a queue had received when it was reset is lost: see the messages about that"},
	{"the capture's writer", []string{"writer_dropped"},
		"the file is written too slowly: a shorter -snaplen, a faster disk"},
	{"the emulated wire", []string{"wire_dropped"},
		"it has no queue to hold what it cannot carry: a lower rate"},
}

// lossVerdict says who lost packets, most first: a line each, empty where nothing was
// lost.
func lossVerdict(lost map[string]uint64) (lines []string) {
	type share struct {
		n uint64
		l loser
	}
	var shares []share
	for _, l := range losers {
		n := uint64(0)
		for _, name := range l.counters {
			n += lost[name]
		}
		if n > 0 {
			shares = append(shares, share{n, l})
		}
	}
	slices.SortStableFunc(shares, func(a, b share) int {
		switch {
		case a.n > b.n:
			return -1
		case a.n < b.n:
			return 1
		}
		return 0
	})
	for _, s := range shares {
		lines = append(lines, fmt.Sprintf("%d dropped by %s: %s", s.n, s.l.who, s.l.advice))
	}
	return lines
}
