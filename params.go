package main

// params.go owns decisions: what the device can do and what the user wishes
// become sizes, strides and modes. Everything here is a pure function of its
// arguments; nic.go acts on the result. It knows no firmware command.
// Manual: chapter HCA Capabilities.

import (
	"fmt"
	"math/bits"
	"strings"
)

// Sizes that frames and the wire give. Bytes.
const (
	etherHeader = 14
	vlanTag     = 4
	fcs         = 4
	// hardMTU is what the port's MTU counts beside the payload: the header, one
	// VLAN tag and the FCS. Linux calls it the hard MTU.
	hardMTU    = etherHeader + vlanTag + fcs
	minMTU     = 68 // RFC 791
	defaultMTU = 1500

	// rxHeadroom stands before every received packet, so that headers can grow
	// in place. It is XDP's.
	rxHeadroom  = 256
	rxFragSmall = 2048
	maxFrags    = 4
	// maxPayload is what four pages hold behind the headroom.
	maxPayload   = maxFrags*4096 - rxHeadroom - etherHeader - vlanTag
	napiBudget   = 64
	maxQueues    = 64
	minBulk      = 8 // receive WQEs posted at once, at least
	defaultRing  = 1024
	minRing      = 64
	maxRing      = 8192
	controlEQLog = 8
	asyncEQLog   = 9
	channelEQLog = 7
)

// EtherTypes.
const (
	ethIPv4 = 0x0800
	ethARP  = 0x0806
	ethVLAN = 0x8100
	ethIPv6 = 0x86dd
	ethQinQ = 0x88a8 // outer tag, IEEE 802.1ad

	ipv6Header = 40
)

// IP protocols and IPv6 next headers. IANA's numbers.
const (
	ipHopOpts  = 0
	ipICMP     = 1
	ipIPv4     = 4
	ipTCP      = 6
	ipUDP      = 17
	ipDCCP     = 33
	ipIPv6     = 41
	ipRouting  = 43
	ipFragment = 44
	ipGRE      = 47
	ipESP      = 50
	ipAH       = 51
	ipICMPv6   = 58
	ipNoNext   = 59
	ipDstOpts  = 60
	ipSCTP     = 132
	ipUDPLite  = 136
	ipMPLS     = 137
)

// caps is what the driver wants to know of the device's capabilities.
type caps struct {
	ethernet   bool
	nicTables  bool
	portOwner  bool  // may change the port itself, not only its own vport
	logMaxCQ   uint8 // entries of a CQ
	logMaxWQ   uint8 // entries of a work queue
	maxEQs     int
	maxRQT     int // entries of an indirection table
	mpw        bool
	inlineMode uint8 // least inline header of a send WQE (inlineNone...)
	inlineAsk  bool  // the vport context says how much
	csum, vlan bool
	insertVLAN bool
	maxLSO     int // bytes, 0 is no LSO
	swp        bool
	swpLSO     bool
	striding   bool
	strideMin  bool // strides down to 2^3 a WQE
	compress   bool
	miniStride bool // small completions may carry the stride index
	moderation bool
	fromCQE    bool
	moderMode  bool // where the period starts can be changed while a CQ works
	clockKHz   uint32
	sqTime     uint8 // timestamp format to ask for
	rqTime     uint8
	version    bool // driver version is welcome
	steerDrops bool
	downDrops  bool
	outerVer   bool // rules may match the IP version
	outerFrag  bool
	matchable  [16]byte // header fields that rules may look at (flow_table_fields_supported)
	maskable   [16]byte // and those at single bits of which
	flowCounts bool     // rules may count what they match
	setRoot    bool
	tableLevel int
	logTable   uint8
	flame      int // bytes of a BlueFlame register; 0 is none
}

// decodeCaps reads the three groups of capabilities that matter to us.
func decodeCaps(general, ether, tables []byte, vf bool) caps {
	rx := ftCapRx.in(tables)
	c := caps{
		ethernet:   capPortType.get(general) == portTypeEthernet && capEthNetOffloads.on(general),
		nicTables:  capNicFlowTable.on(general) && ftPropFtSupport.on(rx),
		portOwner:  !vf,
		logMaxCQ:   uint8(capLogMaxCqSz.get(general)),
		logMaxWQ:   uint8(capLogMaxWqSz.get(general)),
		maxEQs:     int(capMaxNumEqs.get(general)),
		maxRQT:     1 << min(capLogMaxRqtSize.get(general), 16),
		mpw:        ethCapEnhancedMultiPktSendWqe.on(ether),
		csum:       ethCapCsumCap.on(ether),
		vlan:       ethCapVlanCap.on(ether),
		insertVLAN: ethCapWqeVlanInsert.on(ether),
		swp:        ethCapSwp.on(ether) && ethCapSwpCsum.on(ether),
		swpLSO:     ethCapSwpLso.on(ether),
		striding:   capStridingRq.on(general) && capUmrPtrRlky.on(general) && ethCapRegUmrSq.on(ether),
		strideMin:  capExtStrideNumRange.on(general),
		compress:   capCqeCompression.on(general),
		miniStride: capMiniCqeRespStrideIndex.on(general),
		moderation: capCqModeration.on(general),
		fromCQE:    capCqPeriodStartFromCqe.on(general),
		moderMode:  capCqPeriodModeModify.on(general),
		clockKHz:   capDeviceFrequencyKhz.get(general),
		sqTime:     timestampFormat(capSqTsFormat.get(general)),
		rqTime:     timestampFormat(capRqTsFormat.get(general)),
		version:    capDriverVersion.on(general),
		steerDrops: capNicReceiveSteeringDiscard.on(general),
		downDrops:  capReceiveDiscardVportDown.on(general),
	}
	c.decodeTables(rx)
	if capBf.on(general) {
		c.flame = 1 << capLogBfRegSize.get(general)
	}
	if c.clockKHz == 0 { // older firmware
		c.clockKHz = min(capDeviceFrequencyMhz.get(general), 1<<20) * 1000
	}
	if c.maxEQs == 0 {
		c.maxEQs = 1 << capLogMaxEq.get(general)
	}
	if n := ethCapMaxLsoCap.get(ether); n > 0 {
		c.maxLSO = 1 << n
	}
	switch ethCapWqeInlineMode.get(ether) {
	case 0:
		c.inlineMode = inlineL2
	case inlineVport:
		c.inlineAsk, c.inlineMode = true, inlineL2
	default:
		c.inlineMode = inlineNone
	}
	return c
}

// decodeTables reads what receive flow tables can do.
func (c *caps) decodeTables(rx []byte) {
	fields := ftPropFtFieldSupport.in(rx)
	c.outerVer = ftFieldOuterIpVersion.on(fields)
	c.outerFrag = ftFieldOuterFrag.on(fields)
	c.matchable = [16]byte(fields)
	c.maskable = [16]byte(ftPropFtFieldBitmask.in(rx))
	c.flowCounts = ftPropFlowCounter.on(rx)
	c.setRoot = ftPropModifyRoot.on(rx)
	c.tableLevel = int(ftPropMaxFtLevel.get(rx))
	c.logTable = uint8(ftPropLogMaxFtSize.get(rx))
}

// timestampFormat chooses what to ask for from timestamp capabilities: real time
// where offered. A device that only knows the free-running clock is asked for
// nothing, since older firmware has no such field.
func timestampFormat(cap uint32) uint8 {
	switch cap {
	case 1: // real time only
		return timestampReal
	case 2: // both
		return timestampReal
	default:
		return timestampFree
	}
}

// wantedCaps is what we ask of the device: what it has now, with 64-bit CQE
// layout 1, command signatures off and doorbell pages of 4096 bytes.
func wantedCaps(most, now []byte) []byte {
	want := append([]byte(nil), now...)
	capCmdifChecksum.set(want, 0)
	capLogUarPageSz.set(want, 0)
	if n := capCqeVersion.get(most); n > 0 {
		capCqeVersion.set(want, 1)
	}
	if capUar4k.on(most) {
		capUar4k.set(want, 1)
	}
	return want
}

// privFlags are the driver's private flags, by Linux's names; ethtool.go has the
// table of them.
type privFlags struct {
	rxCQEModer       bool // rx_cqe_moder
	txCQEModer       bool // tx_cqe_moder
	rxCompress       bool // rx_cqe_compress
	rxStriding       bool // rx_striding_rq
	rxNoCsumComplete bool // rx_no_csum_complete
	xdpTxMPWQE       bool // xdp_tx_mpwqe
	skbTxMPWQE       bool // skb_tx_mpwqe
}

// refusesMPWQE says why multi-packet send WQEs cannot be used; "" is that they can.
func (c caps) refusesMPWQE() string {
	switch {
	case !c.mpw:
		return "the device has no enhanced multi-packet send WQE"
	case c.inlineMode != inlineNone:
		return "the device needs packet headers inline in each send WQE"
	}
	return ""
}

// mpwqe reports whether they can.
func (c caps) mpwqe() bool { return c.refusesMPWQE() == "" }

// defaultFlags are the private flags where the user says nothing. They are what
// Linux 6.12 has in force on a port that its bus is fast enough for, but for striding
// receive queues, which it has on: frames cost more in them here (rx.drop.striding).
// Its ethtool shows rx_cqe_moder off until somebody sets it, while the period does
// start at the completion ("CQE mode RX: on"); ours shows what is in force.
//
// Linux moderates adaptively from the start, we when asked to (-adaptive-rx): the
// period is else the one that Linux has without it, the same in every run; loops that
// are busy wait for no interrupt either way; and firmware gets no command while
// packets flow.
func defaultFlags(c caps) privFlags {
	return privFlags{rxCQEModer: c.fromCQE, xdpTxMPWQE: c.mpwqe(), skbTxMPWQE: c.mpwqe()}
}

// wishes are what the user asks for; zero means "decide".
type wishes struct {
	queues     int
	rxRing     int
	txRing     int
	mtu        int // payload bytes; 0 is the default of the mode
	promisc    bool
	noAllMulti bool // only these multicast groups
	groups     [][6]byte
	largest    bool // mtu 0 means the port's largest, not 1500
	txInline   int  // bytes of frames to put into send WQEs; negative decides
	blueflame  bool // lone WQEs go to the device with their doorbell
	strip      bool // strip VLAN tags on receive
	trap       bool // a channel of its own for control traffic
	xsk        bool // queues for a zero-copy socket beside every channel's
	xskSpread  bool // and all traffic that no rule leads elsewhere goes to these

	coalesce coalesceWish
	adaptive bool // let the load choose the moderation of receive queues

	xdp bool // a program will see frames before they are packets

	rxStriding bool  // receive into strides of multi-packet WQEs where that can be
	rxCompress bool  // let the device compress receive completions
	rxMini     uint8 // what compressed completions carry: 1 + miniHash..., 0 decides; tests ask for each
}

// params are the sizes a NIC is built with.
type params struct {
	queues     int
	mtu        int // payload bytes
	frame      int // largest frame with header and VLAN tag, without FCS
	rxLayout   rxLayout
	rxStrides  strideLayout // zero where the queues are not striding
	rxWhy      string       // why a wished striding or compression is not there
	rxCompress bool
	rxMini     uint8 // what compressed completions carry (miniHash...)
	logRing    uint8 // as wished, in frames
	logRQ      uint8
	logRxCQ    uint8
	logSQ      uint8 // WQEBBs
	logTxCQ    uint8
	rqt        int
	promisc    bool
	noAllMulti bool
	groups     [][6]byte
	strip      bool
	trap       bool          // there is a channel for control traffic, behind the others
	xsk        bool          // channels have queues for a socket, numbered from queues on
	xskSpread  bool          // these are what is spread over
	moder      [2]moderation // of receive and send completions
	adaptive   bool          // receive moderation follows the load
	minInline  uint8
	txInline   int  // longest frame that is put into a send WQE
	flame      int  // bytes of a BlueFlame buffer; 0 is without
	xdp        bool // programs see frames before they are packets: these must lie in one piece
	flags      privFlags
}

// smallFrame is the longest frame that is put into a session itself when nobody
// says otherwise: the smallest that Ethernet knows, without FCS. Through the WQE
// it takes 81 bytes of the bus towards the device instead of 120
// (-bench pci), which is what lets 100 Gbit/s of such frames through a PCIe
// 3.0 x16 link. Longer frames save no more bytes but cost a longer copy.
const (
	smallFrame = 60
	// inlineQueues is from how many queues on the bus and not the CPU is what
	// runs out. DPDK's mlx5 draws the line at 8 too (txqs_min_inline).
	inlineQueues = 8
)

// chooseInline is the longest frame that is put into a session.
func chooseInline(wish, queues int) int {
	switch {
	case wish >= 0:
		return wish
	case queues >= inlineQueues:
		return smallFrame
	}
	return 0
}

// inlineInForce is the longest frame that the channels' own send queues put into a
// WQE now: only sessions do.
func (p *params) inlineInForce() int {
	if p.minInline != inlineNone || !p.flags.skbTxMPWQE {
		return 0
	}
	return p.txInline
}

// maxInlineFrame is what a WQE of 63 segments holds beside its head.
const maxInlineFrame = (maxDS-2)*segment - 4

// wishError is a wish that cannot be met: wrong use, not a failure.
type wishError struct{ what string }

func (e wishError) Error() string { return e.what }

func wishf(format string, a ...any) error { return wishError{fmt.Sprintf(format, a...)} }

// mostQueues is how many channels a device can have: each takes an interrupt
// vector, an event queue and a place in the indirection table; control takes
// one vector and three event queues.
func mostQueues(c caps, vectors int) int {
	return min(maxQueues, vectors-1, c.maxEQs-3, c.maxRQT)
}

// chooseParams sizes a NIC. cpus is how many the machine has, vectors how many
// interrupts the function has, portMTU the port's largest MTU (with hardMTU).
func chooseParams(c caps, w wishes, cpus, vectors, portMTU int) (params, error) {
	most := mostQueues(c, vectors)
	if most < 1 {
		return params{}, fmt.Errorf("the device offers %d interrupt vectors and %d event queues; one for control and one a queue are needed", vectors, c.maxEQs)
	}
	p := params{queues: w.queues, xdp: w.xdp, xsk: w.xsk || w.xskSpread, xskSpread: w.xskSpread, promisc: w.promisc, noAllMulti: w.noAllMulti, groups: w.groups, strip: w.strip, trap: w.trap, minInline: c.inlineMode, flags: defaultFlags(c)}
	if p.trap {
		most--
	}
	switch {
	case most < 1:
		return params{}, wishf("-trap-queue: the device has room for one queue only")
	case p.trap && c.tableLevel < trapLevels:
		return params{}, wishf("-trap-queue: the device has %d levels of flow tables, %d are needed", c.tableLevel, trapLevels)
	case p.strip && !c.vlan:
		return params{}, wishf("-rx-vlan-offload: the device strips no VLAN tags")
	case w.txInline > maxInlineFrame:
		return params{}, wishf("-tx-inline %d: at most %d bytes have room in a WQE", w.txInline, maxInlineFrame)
	case w.txInline > 0 && !c.mpwqe():
		return params{}, wishf("-tx-inline %d: it is for multi-packet send WQEs, which this device has not or cannot fill so: leave it out", w.txInline)
	case p.queues < 0 || p.queues > most:
		return params{}, wishf("-queues %d: this device and driver can do 1 to %d", w.queues, most)
	case p.queues == 0:
		p.queues = min(cpus, most)
	}
	var err error
	if p.mtu, err = chooseMTU(w, min(portMTU-hardMTU, maxPayload)); err != nil {
		return params{}, err
	}
	p.frame = p.mtu + etherHeader + vlanTag
	p.txInline = chooseInline(w.txInline, p.queues)
	p.rxLayout = chooseRxLayout(p.frame)
	if p.logRing, err = chooseRing("-rx-ring", w.rxRing, c.logMaxWQ); err != nil {
		return params{}, err
	}
	if p.logSQ, err = chooseRing("-tx-ring", w.txRing, c.logMaxWQ); err != nil {
		return params{}, err
	}
	p.logTxCQ = p.logSQ
	p.rqt = min(256, c.maxRQT)
	return p, p.chooseRX(c, w.rxStriding, w.rxCompress, w.rxMini)
}

// chooseRX sizes the receive queues: striding or not, with compressed completions
// or not. It may be called again for other wishes.
func (p *params) chooseRX(c caps, striding, compress bool, mini uint8) error {
	// One completion a receive WQE or stride and at most one a WQEBB: neither can
	// overrun.
	p.rxStrides, p.rxWhy, p.rxMini = strideLayout{}, "", 0
	p.logRQ, p.logRxCQ = p.logRing, p.logRing
	if striding {
		p.rxStrides, p.logRQ, p.rxWhy = chooseStrides(c, p.frame, p.logRing)
		if p.xdp && p.rxStrides.on() && !p.rxStrides.linear {
			p.rxStrides, p.logRQ, p.rxWhy = strideLayout{}, p.logRing, "no stride holds a whole frame, which an XDP program needs"
		}
		p.logRxCQ = p.logRQ + p.rxStrides.logStrides
	}
	p.rxCompress = compress && c.compress
	if compress && !c.compress {
		p.rxWhy = strings.TrimPrefix(p.rxWhy+"; the device has no CQE compression", "; ")
	}
	if p.rxCompress {
		p.rxMini = chooseMini(c, mini, p.rxStrides.on())
	}
	if p.logRxCQ > c.logMaxCQ || p.logTxCQ > c.logMaxCQ {
		return wishf("rings of %d and %d entries: the device's completion queues hold %d", 1<<p.logRQ, 1<<p.logSQ, 1<<c.logMaxCQ)
	}
	return nil
}

// ringPages is how many pages a receive queue of these sizes holds.
func (p *params) ringPages() int {
	if p.rxStrides.on() {
		return p.rxStrides.pages() << p.logRQ
	}
	bytes := 0
	for _, n := range p.rxLayout.size[:p.rxLayout.frags] {
		bytes += n
	}
	return bytes << p.logRQ / pageSize
}

// poolPages is the most that a channel's pages may become: those of its receive
// queue, of whichever kind it is or may turn into, and what consumers may hold
// while the ring stays full. At least half as many again: so much of a new ring
// can be filled while the old one still has its pages.
func (p params) poolPages(c caps) int {
	other := p
	ring := p.ringPages()
	if other.chooseRX(c, !p.rxStrides.on(), false, 0) == nil {
		ring = max(ring, other.ringPages())
	}
	return ring + max(ring/2, min(3*ring, 1536))
}

// sockets is how many queues for a socket there are.
func (p *params) sockets() int {
	if p.xsk {
		return p.queues
	}
	return 0
}

// channels is how many channels there are, the one for control traffic included.
func (p *params) channels() int {
	if p.trap {
		return p.queues + 1
	}
	return p.queues
}

// trapLevels is the deepest level of the flow tables when control traffic is set
// apart or there are rules of the user's (steering.go).
const trapLevels = 3

// coalesceWish is the user's moderation by ethtool's names: rx-usecs, rx-frames,
// tx-usecs, tx-frames.
type coalesceWish map[string]uint16

// Moderation where the user says nothing: receive with the period from the event
// and from the completion, and send. Source: Linux mlx5e (figures).
var (
	defaultRxModer = [2]moderation{{16, 32}, {3, 32}}
	defaultTxModer = moderation{16, 32}
)

// chooseModeration applies a wish to the defaults: receive, send.
func chooseModeration(c caps, w coalesceWish, fromCQE bool) (m [2]moderation, err error) {
	if !c.moderation {
		if len(w) > 0 {
			return m, wishf("-coalesce: the device does not moderate completions")
		}
		return m, nil
	}
	m = [2]moderation{defaultRxModer[0], defaultTxModer}
	if fromCQE {
		m[0] = defaultRxModer[1]
	}
	for name, field := range map[string]*uint16{"rx-usecs": &m[0].usecs, "rx-frames": &m[0].frames,
		"tx-usecs": &m[1].usecs, "tx-frames": &m[1].frames} {
		if v, ok := w[name]; ok {
			*field = v
		}
	}
	return m, nil
}

// chooseMTU picks the payload MTU; largest is the port's.
func chooseMTU(w wishes, largest int) (int, error) {
	if w.xdp {
		largest = min(largest, xdpMTU)
	}
	switch {
	case w.xdp && w.mtu > xdpMTU:
		return 0, errXDPMTU(w.mtu)
	case w.mtu != 0 && (w.mtu < minMTU || w.mtu > largest):
		return 0, wishf("-mtu %d: this port can do %d to %d", w.mtu, minMTU, largest)
	case w.mtu != 0:
		return w.mtu, nil
	case w.largest:
		return largest, nil
	default:
		return min(defaultMTU, largest), nil
	}
}

// xdpMTU is the largest payload of frames that lie in one page with their
// headroom: an XDP program sees no further.
const xdpMTU = pageSize - rxHeadroom - etherHeader - vlanTag

func errXDPMTU(mtu int) error {
	return wishf("-mtu %d: with an XDP program at most %d", mtu, xdpMTU)
}

// refusesXDP says why a program cannot work on queues of this make.
func (p *params) refusesXDP() error {
	switch {
	case p.mtu > xdpMTU:
		return errXDPMTU(p.mtu)
	case p.rxStrides.on() && !p.rxStrides.linear:
		return wishf("no stride holds a whole frame, which an XDP program needs: -priv-flags rx_striding_rq=off")
	}
	return nil
}

// chooseRing turns a wished number of entries into its log2, rounded up.
func chooseRing(flag string, n int, logMax uint8) (uint8, error) {
	if n == 0 {
		n = defaultRing
	}
	most := min(maxRing, 1<<logMax)
	if n < minRing || n > most {
		return 0, wishf("%s %d: this device and driver can do %d to %d", flag, n, minRing, most)
	}
	return logCeil(n), nil
}

// logCeil is the log2 of n rounded up to a power of two.
func logCeil(n int) uint8 { return uint8(bits.Len(uint(n - 1))) }

// rxLayout is how a receive WQE's buffers lie in order-0 pages. Fragment i of a
// WQE has size[i] bytes; 4096 is a page of its own and 2048 half a page, which
// it shares with the next half. Every fragment that starts a packet leaves
// headroom before it.
type rxLayout struct {
	frags     int
	size      [maxFrags]int // bytes of memory, headroom included
	headroom  int
	logStride uint8 // of the WQE: 16 bytes a fragment, a power of two
	bulk      int   // WQEs that share no page with another bulk
}

// linear reports whether a packet always lies in one piece.
func (l rxLayout) linear() bool { return l.frags == 1 }

// room is the longest frame that fits.
func (l rxLayout) room() int {
	n := -l.headroom
	for _, s := range l.size[:l.frags] {
		n += s
	}
	return n
}

// chooseRxLayout lays out buffers for frames of up to frame bytes in the least
// memory: halves of pages first, whole pages last, at most four pieces.
// (Linux: mlx5e_build_rq_frags_info.)
func chooseRxLayout(frame int) rxLayout {
	l := rxLayout{headroom: rxHeadroom}
	need := frame + rxHeadroom
	if need <= pageSize {
		l.frags = 1
		l.size[0] = rxFragSmall
		if need > rxFragSmall {
			l.size[0] = pageSize
		}
	} else {
		halves := (need + rxFragSmall - 1) / rxFragSmall
		whole := max(halves-maxFrags, 0)
		l.frags = min(halves-whole, maxFrags)
		for i := range l.frags {
			l.size[i] = rxFragSmall
			if i >= l.frags-whole {
				l.size[i] = pageSize
			}
		}
	}
	l.logStride = 4 + logCeil(l.frags)
	l.bulk = minBulk // an even number of WQEs has an even number of halves
	return l
}

// strideLayout is how a multi-packet receive WQE is cut. Its pages need not be
// neighbours: a memory key makes them so for the device.
type strideLayout struct {
	logStride  uint8 // bytes
	logStrides uint8 // strides a WQE
	headroom   int   // before every frame
	linear     bool  // every frame lies in one stride, else in up to four pages
}

func (l strideLayout) on() bool { return l.logStrides != 0 }

// bytes is what one WQE offers.
func (l strideLayout) bytes() int { return 1 << (l.logStride + l.logStrides) }

// pages is how many pages that is.
func (l strideLayout) pages() int { return l.bytes() / pageSize }

const (
	// logStrideWQE is log2 of a WQE's bytes if nothing else decides. Cards refuse
	// less than 2^14, although stride and count are each in range.
	logStrideWQE   = 16
	logSmallStride = 8 // where frames do not lie in one stride
	minStrideWQEs  = 4 // of which one is never posted
	maxStridePages = 1 << 15
)

// chooseStrides lays out multi-packet WQEs for frames of up to frame bytes and a
// ring that holds 2^logRing of the largest, and the log2 of the WQEs in it.
// Where that cannot be, it says why, and logRing is returned as it is.
func chooseStrides(c caps, frame int, logRing uint8) (l strideLayout, logWQEs uint8, why string) {
	if !c.striding {
		return strideLayout{}, logRing, "the device has no striding receive queues that UMR can fill"
	}
	fewest := uint8(stridesBase)
	if c.strideMin {
		fewest = stridesExtBase
	}
	l = linearStrides(frame, fewest)
	if !l.linear {
		if frame > (maxFrags-1)*pageSize+1<<logSmallStride {
			return strideLayout{}, logRing, fmt.Sprintf("frames of %d bytes do not fit %d pages from any stride on", frame, maxFrags)
		}
		l = strideLayout{logStride: logSmallStride, logStrides: max(logStrideWQE-logSmallStride, fewest)}
	}
	perFrame := (frame + l.headroom + 1<<l.logStride - 1) >> l.logStride
	perWQE := 1 << l.logStrides / perFrame
	if perWQE == 0 {
		return strideLayout{}, logRing, fmt.Sprintf("frames of %d bytes are longer than a WQE", frame)
	}
	logWQEs = logCeil(max((1<<logRing+perWQE-1)/perWQE, minStrideWQEs))
	switch {
	case logWQEs > c.logMaxWQ:
		return strideLayout{}, logRing, fmt.Sprintf("the device's work queues hold 2^%d WQEs, fewer than needed", c.logMaxWQ)
	case logWQEs+l.logStrides > c.logMaxCQ:
		return strideLayout{}, logRing, fmt.Sprintf("the device's completion queues hold 2^%d entries, fewer than there are strides", c.logMaxCQ)
	case l.pages()<<logWQEs > maxStridePages:
		return strideLayout{}, logRing, fmt.Sprintf("a ring of %d pages: at most %d", l.pages()<<logWQEs, maxStridePages)
	}
	return l, logWQEs, ""
}

// linearStrides are strides that hold a frame each, with headroom, within a page;
// not linear where there are none. The fewest strides a WQE may have bound what
// of its pages one UMR work request can name.
func linearStrides(frame int, fewest uint8) strideLayout {
	stride := logCeil(frame + rxHeadroom)
	l := strideLayout{logStride: stride, headroom: rxHeadroom, linear: true}
	l.logStrides = max(fewest, logStrideWQE-min(stride, logStrideWQE))
	if stride > logPage || umrWQEHeader+8*l.pages() > umrWQEMax {
		return strideLayout{}
	}
	return l
}

// chooseMini picks what compressed completions carry beside the length. Without
// a wish: what cannot be had otherwise, the stride index of a striding queue,
// and the hash elsewhere, which flow tables use.
func chooseMini(c caps, wish uint8, striding bool) uint8 {
	able := striding && c.miniStride
	switch {
	case wish != 0 && (wish-1 != miniStrideIndex || able):
		return wish - 1
	case able:
		return miniStrideIndex
	case striding:
		return miniChecksum
	}
	return miniHash
}
