// Package model is an emulated ConnectX: a PCI function seen only as hardware
// sees a host. It owns BAR0, its own objects, a port and a wire; it reaches the
// host through memory that the host mapped for DMA and through interrupts.
//
// It is strict. Whatever silicon would refuse it refuses the same way: as a
// command status with a syndrome, an error completion or an event. It never
// panics on what a host writes, and it counts every DMA that missed a mapping.
//
// It does not know the driver: bit places come from tables of its own, so that
// one wrong number cannot cancel itself out.
//
// This file owns the objects and their life. Reading order: model.go, device.go
// (BAR0, turns), command.go and the cmd_*.go files (firmware; cmd_steer.go and
// cmd_fte.go are flow tables), walk.go (what these do with a packet), queue.go (rings,
// CQs, EQs), blueflame.go, send.go, receive.go, wire*.go.
package model

import (
	"net"
	"sync"
	"time"
)

// Config describes one emulated function.
type Config struct {
	Profile string           // cx4, cx5, cx6dx or cx5-vf
	MAC     net.HardwareAddr // permanent address; nil means 02:00:00:00:00:01
	Wire    Wire             // what is plugged into the port; nil is an unplugged port
	Script  *Script          // scripted misbehaviour; nil for a healthy device
	PCI     PCISettings      // what bus traffic is counted for; zero fields are defaults
	Between func()           // called by Run between two turns, unlocked; may be nil
	Hurry   func() bool      // asked every few frames whether to end the turn; may be nil
}

// Wire is what is plugged into the port. The device calls it under its lock
// from one goroutine at a time; nothing may block.
type Wire interface {
	// Peek returns the next frame that has arrived by now, without FCS, or nil.
	// The bytes stay valid, and Peek repeats them, until Take.
	Peek(now time.Time) []byte
	// Take consumes the frame of the last Peek.
	Take()
	// Lossless reports whether a frame may wait at the wire until a host that serves
	// its queue has posted a buffer (hold.go). Where not, what finds no buffer is lost
	// and counted.
	Lossless() bool
	// Transmit carries one frame away. The bytes are valid during the call only.
	Transmit(frame []byte)
	// Done reports that no frame will ever come again.
	Done() bool
	// LinkUp reports whether there is anything at the other end.
	LinkUp() bool
	Close() error
}

// Script makes the device misbehave on purpose. Every field is optional; the
// functions are called with the device locked.
type Script struct {
	// Command sees each command before it is executed and may alter its fate.
	Command func(c CommandInfo) Verdict
	// Answer sees each answer before the host does and may spoil it.
	Answer func(opcode uint16, out []byte)
	// NotReady keeps the "initializing" bit set for so long after a reset;
	// negative means for ever.
	NotReady time.Duration
	// MissDoorbell makes the device overlook a send doorbell register write.
	MissDoorbell func(sqn uint32) bool
	// StallSQ keeps a send queue from making progress while it returns true.
	StallSQ func(sqn uint32) bool
	// Vanish makes every register read as all ones while it returns true.
	Vanish func() bool
	// HealthSyndrome is shown in the health buffer when not zero.
	HealthSyndrome uint8
	// Infiniband makes the port say that its link type is InfiniBand.
	Infiniband bool
}

// CommandInfo is what a Script is shown of a command.
type CommandInfo struct {
	Seq    int // commands since the device was created, from 0
	Slot   int
	Opcode uint16
	OpMod  uint16
	In     []byte
}

// Verdict is a Script's answer to a command. The zero value executes it.
type Verdict struct {
	Status   uint8  // command status to fail with; the command is not executed
	Syndrome uint32 // goes with Status
	Delivery uint8  // delivery status (cmd_delivery_status) to fail with
	Swallow  bool   // never complete it
	Delay    time.Duration
}

// Device is one emulated function. All methods may be called from any
// goroutine; d.mu orders them.
type Device struct {
	mu     sync.Mutex
	cfg    Config
	prof   *profile
	script Script

	bar    []byte // BAR0, shared memory; registers live in it big endian
	barFD  int    // the memfd behind bar
	config [4096]byte
	mem    hostMemory
	irq    []func() // by MSI-X vector; nil entries are masked

	cmd    cmdUnit
	hca    hcaState
	pages  pageBook
	uars   table[uar]
	pds    table[pd]
	tds    table[td]
	mkeys  table[mkey] // by mkey index (key >> 8)
	eqs    table[eq]
	cqs    table[cq]
	sqs    table[sq]
	rqs    table[rq]
	rmps   table[rmp]
	tirs   table[tir]
	tises  table[tis]
	rqts   table[rqt]
	qctrs  table[queueCounter]
	tables table[flowTable]
	groups table[flowGroup]
	fctrs  table[flowCounter]
	rootRX uint32 // id of the NIC receive root table; 0 is none set
	rootTX uint32
	// flowEntries is the number of entries in all flow groups.
	flowEntries int
	// steerRev is raised by every change to flow tables, groups, entries and the
	// roots, so that the walk knows when what it compiled is old.
	steerRev uint64
	port     port
	vport    vport
	stats    Stats
	started  time.Time
	work     scratch
}

// table holds the objects of one kind by number. Numbers start at first, count
// up and are reused only when max is reached. The zero table is not usable.
type table[T any] struct {
	first, max uint32
	next       uint32
	items      []*T // index is number - first
	live       int
	list       []*T // the live ones, oldest first
}

// uar is one allocated page of doorbell registers.
type uar struct {
	n    uint32           // page index in BAR0
	refs int              // queues that ring here
	rung [bfRegisters]int // the buffer of each register that a trapped store went to last
}

type pd struct {
	n    uint32
	refs int
}

type td struct {
	n    uint32
	refs int
}

// mkey translates what a WQE names to bus addresses.
type mkey struct {
	n        uint32 // whole key: index << 8 | variant
	pd       uint32
	home     uint32 // PD of its creation, which it keeps alive; UMR may change pd
	mode     uint8  // mkey_access_mode: 0 PA, 1 MTT, 2 KLM, 3 KSM
	lr, lw   bool   // local read is implied on silicon; kept as given
	umr      bool   // may be changed by UMR work requests
	free     bool
	length64 bool
	start    uint64
	length   uint64
	logPage  uint8
	mtt      []uint64 // MTT mode: page addresses with permission bits; KLM/KSM keep klms
	klms     []klm
}

type klm struct {
	bytes uint32
	key   uint32
	va    uint64
}

// ring is a work, completion or event queue buffer in host memory.
type ring struct {
	pas     []uint64 // one address per page
	logPage uint8    // log2 of the page size in bytes, 12 or more
	offset  uint64   // of the first entry in the first page
	logSize uint8    // log2 of the number of entries
	stride  uint8    // log2 of the entry size in bytes
	gen     uint64   // generation of hostMemory for which host is right
	host    [][]byte // translated in pieces of 4 KiB, nil where unmapped
	write   bool     // host was translated for writing
}

type eq struct {
	n      uint32
	ring   ring
	uar    uint32
	vector int
	mask   uint64 // event_bitmask: types that come to this EQ
	oi     bool   // overrun ignore
	pi     uint32 // EQEs written
	ci     uint32 // as last told by a doorbell
	armed  bool
	failed bool // overrun
	refs   int  // CQs that report here
}

type cq struct {
	n        uint32
	ring     ring
	eqn      uint32
	uar      uint32
	dbr      uint64 // bus address of the doorbell record: [0] consumer, [1] arm
	oi       bool
	cqeSize  int // 64 or 128
	pi       uint32
	armSN    uint32 // sequence number of the last arm
	armed    bool
	armSol   bool // solicited only
	failed   bool
	period   uint16 // moderation, microseconds
	maxCount uint16
	fromCQE  bool // period starts at the CQE, not at the event
	pending  uint16
	due      time.Time // when moderation lets the event go
	compress bool
	miniFmt  uint8 // cqe_mini_format
	layout   uint8
	session  compression
	users    int // SQs and RQs that complete here
	run      cqRun
}

type sq struct {
	n         uint32
	ring      ring // WQEBBs of 64 bytes
	cqn       uint32
	tis       []uint32
	uar       uint32
	pd        uint32
	dbr       uint64
	state     uint8 // sq_state
	mpw       bool
	minInline uint8
	flushErr  bool
	tsFormat  uint8
	userIndex uint32
	ci        uint32 // WQEBBs executed; 16 bits are seen by the host
	pi        uint32 // producer as last read from the record
	reg       bool   // register UMR allowed (ICO SQ)
	sent      SQStats
	run       sqRun
}

type rq struct {
	n          uint32
	ring       ring
	cyclic     bool  // wq_type 1; otherwise striding (2)
	wqType     uint8 // wq_type as given: 0 and 2 are linked lists, 1 and 3 cyclic
	rmp        uint32
	cqn        uint32
	pd         uint32
	dbr        uint64
	state      uint8
	vsd        bool // VLAN stripping disabled
	scatterFCS bool
	flushErr   bool
	counterSet uint32
	userIndex  uint32
	tsFormat   uint8
	endPad     bool
	ci         uint32 // WQEs consumed
	pi         uint32
	logStride  uint8 // striding: log2 of the stride in bytes
	logStrides uint8 // striding: log2 of strides a WQE
	stride     uint32
	shift      bool // two_byte_shift_en
	starved    bool
	refs       int // RQTs and TIRs that lead here
	run        rqRun
	hold       hold
}

type rmp struct {
	n      uint32
	ring   ring
	dbr    uint64
	pd     uint32
	refs   int // RQs that take buffers here
	wqType uint8
	run    rqRun
}

type tir struct {
	n        uint32
	td       uint32
	direct   bool
	rqn      uint32
	rqt      uint32
	hash     uint8 // rss_hash_fn
	sym      bool
	key      [40]byte
	outer    hashFields
	inner    hashFields
	lroMask  uint8
	selfLB   uint8
	tunneled bool
	refs     int            // flow entries that lead here
	lut      *toeplitzTable // for key; rebuilt when key changes
}

// hashFields says what of a packet goes into the RSS hash.
type hashFields struct {
	ip6  bool
	udp  bool
	sel  uint32 // rss_hash_field_sel
	have bool
}

type tis struct {
	n, td, pd uint32
	prio      uint8
	refs      int
}

type rqt struct {
	n       uint32
	max     int
	entries []uint32
	refs    int
}

type queueCounter struct {
	n           uint32
	outOfBuffer uint64
	refs        int // RQs that count here
}

type flowTable struct {
	n          uint32
	kind       uint8 // flow_table_type
	level      uint8
	logSize    uint8
	missAction uint8
	missTable  uint32
	groups     []*flowGroup // by start index
	refs       int          // entries and miss actions that lead here
}

type flowGroup struct {
	n          uint32
	table      *flowTable
	start, end uint32
	enable     uint8
	mask       []byte // fte_match_param
	entries    map[uint32]*flowEntry
	prog       matchProgram // compiled for the walk at Device.steerRev
}

type flowEntry struct {
	index   uint32
	value   []byte
	action  uint16
	tag     uint32
	dests   []flowDest
	counter uint32
	vlan    [2][4]byte // pushed tags
}

type flowDest struct {
	kind uint8 // flow_dest_type
	id   uint32
}

type flowCounter struct {
	n              uint32
	packets, bytes uint64
	refs           int // flow entries that count here
}

// port is the physical side.
type port struct {
	adminUp   bool
	operUp    bool
	mtu       uint16 // oper MTU, frame with FCS
	maxMTU    uint16
	proto     uint32 // eth_proto_oper
	protoCap  uint32
	admProto  uint32
	pauseRX   bool
	pauseTX   bool
	rxPackets uint64
	rxBytes   uint64 // with FCS, as PPCNT counts
	txPackets uint64
	txBytes   uint64
	rxMulti   uint64
	rxBroad   uint64
	txMulti   uint64
	txBroad   uint64
	undersize uint64 // under 14 bytes without FCS
	oversize  uint64 // above the MTU
	discards  uint64 // rx_discards_phy
	sizes     [10]uint64
	cable     bool   // plugged in, see Device.SetLink
	linkDowns uint64 // times the link went down
	txDropped uint64 // sent while the link was down or longer than the MTU allows
}

// vport is the function's own side of the port.
type vport struct {
	mac        net.HardwareAddr
	permanent  net.HardwareAddr
	mtu        uint16
	adminState uint8
	promiscUC  bool
	promiscMC  bool
	promiscAll bool
	uc, mc     [][6]byte
	vlans      []uint16
	localLBOff bool
	watch      uint8 // changes that raise an event, see cmd_vport.go
	minInline  uint8
	rxUni      counterPair
	rxMulti    counterPair
	rxBroad    counterPair
	txUni      counterPair
	txMulti    counterPair
	txBroad    counterPair
	steerMiss  uint64 // no flow entry led to a queue
	filtered   uint64 // of these: destination address not ours and not promiscuous
	ruleDrops  uint64 // a flow entry said drop
}

type counterPair struct{ packets, bytes uint64 }

// Stats is what the model counted; read it with Device.Stats.
type Stats struct {
	Objects      map[string]int // live objects by kind; empty after a clean teardown
	Pages        int            // pages the host lent and has not got back
	DMAFaults    uint64         // DMA to addresses the host had not mapped
	LastFault    string
	LastRefusal  string // why the last command failed, for a person to read
	BadDoorbells uint64 // doorbells for queues that do not exist or out of range
	BadDoorbell  string // what was wrong with the first of them
	Commands     uint64
	CommandFails uint64 // answered with a status other than OK
	Overruns     uint64 // CQ and EQ overruns
	Interrupts   uint64
	Doorbells    uint64 // SQ doorbell register writes seen
	TornFlames   uint64 // BlueFlame in BAR0 as memory that was not, or not yet, what the ring has
	TornFlame    string // what the first of them was
	CQArms       uint64
	EQArms       uint64
	CQEs         uint64
	EQEs         uint64
	RxFrames     uint64 // frames taken from the wire
	RxDelivered  uint64 // frames written to a receive queue
	RxNoBuffer   uint64 // lost: no posted buffer, or the queue was not ready
	RxBadBuffer  uint64 // lost: the buffer was too small or not reachable
	RxCopies     uint64 // deliveries beyond the first of a frame
	TxFrames     uint64
	WireDropped  uint64  // of them, those that the wire lost
	SQ           SQStats // sum over all send queues ever
}

// SQStats is the work of send queues, in units that PCI accounting needs.
type SQStats struct {
	WQEs       uint64
	MPWQEs     uint64
	MPWPackets uint64
	NOPs       uint64
	UMRs       uint64
	Packets    uint64 // frames on the wire, TSO segments counted one by one
	WQEBytes   uint64 // ds * 16
	RingBytes  uint64 // WQEBBs * 64
	DataBytes  uint64 // gathered by DMA
	DataReads  uint64 // gather reads
	Inline     uint64 // bytes taken from the WQE
	Metadata   uint64 // for flow tables, the words of all frames added up
	Doorbells  uint64
	Flames     uint64 // WQEs that came with their doorbell
	CQEs       uint64
	Errors     uint64
}
