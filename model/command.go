package model

// command.go owns the command interface: slots, mailboxes, tokens, checksums,
// the order in which an answer appears, and who may send what when. What each
// command does is in pages.go and the cmd_*.go files; the table at the end
// names them. Manual: chapter "Command interface".
//
// An answer is written outputs first, ownership last, as one atomic store;
// then comes the event. A command event is sent only if there was a command EQ
// before the command and still is one after it: the commands that create and
// destroy it are polled for.

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// Places in a command queue entry and in a mailbox, in bytes.
const (
	entryType   = 0
	entryInLen  = 4
	entryInPtr  = 8
	entryIn     = 16
	entryOut    = 32
	entryOutPtr = 48
	entryOutLen = 56
	entryToken  = 60
	entrySig    = 61
	entryOwner  = 63

	mailboxRest    = 512 // reserved, zero
	mailboxNext    = 560
	mailboxNumber  = 568
	mailboxToken   = 573
	mailboxCtrlSig = 574
	mailboxSig     = 575

	mailboxAlign = 512
	ownerHW      = 1
	// longestMessage bounds a command either way: the longest real one gives
	// 65536 pages of 8 bytes.
	longestMessage = 2 << 20
	shortestAnswer = 8 // status and syndrome
)

// cmdUnit is the command interface of one function.
type cmdUnit struct {
	seq   int
	held  uint32 // slots whose answer waits, by bit
	stuck uint32 // slots that will never be answered
	slots [cmdSlots]slot
	in    []byte // the message being executed
	entry [cmdEntrySize]byte
	block [mailboxSize]byte
}

// slot is one command in flight.
type slot struct {
	addr   uint64 // of the entry
	token  uint8
	status uint8 // delivery status
	out    []byte
	boxes  []uint64 // output mailboxes
	event  bool     // a command EQ existed before
	due    time.Time
}

// refusal is why a command fails. A code below 0x100 becomes a syndrome of the
// model's own, opcode << 8 | code; larger ones were seen on real cards.
type refusal struct {
	status   uint8
	syndrome uint32
	why      string
}

// Codes of the model's own syndromes.
const (
	codeNumber     = 1 // an object that does not exist
	codeRange      = 2 // a value out of range
	codeReserved   = 3 // a field that must be zero
	codeState      = 4 // not now
	codeInUse      = 5 // something still refers to it
	codeCapability = 6 // not advertised
	codeLength     = 7 // message too short
	codeAlign      = 8 // an address with low bits
	codeLimit      = 9 // as many as there may be
	codeOpcode     = 10
	codeMismatch   = 11 // two fields contradict each other
	codeFunction   = 12 // another function, or not for this one
)

// Syndromes published for the same faults on real cards.
const (
	synEQContext       = 0x8fef
	synPageOffset      = 0x357275
	synTimestampFormat = 0xd61c0b
	synTIRInner        = 0x562b00
	synKSMEmpty        = 0x3bf6f
	synFTENoAction     = 0x144b7a
	synFTEOutsideMask  = 0x3ad328
	synGroupOuterEmpty = 0x7e1580
	synGroupInnerOff   = 0x17faa8
	synDropAndModify   = 0x8708c3
	synTableVport      = 0x754a4
	synGroupInUse      = 0x563e2f
	synTableInUse      = 0x389e56
	synPDInUse         = 0x31b635
	synCQInUse         = 0x1870ad
	synUCListTooLong   = 0x537801
	synGroupUnknown    = 0x5add95
	synPPCNTPort       = 0x1e5585
	synRoCEOff         = 0xc1f678
)

func refuse(status uint8, syndrome uint32, format string, args ...any) *refusal {
	return &refusal{status, syndrome, fmt.Sprintf(format, args...)}
}

// badParam is the refusal for a value that is wrong in itself.
func badParam(code uint32, format string, args ...any) *refusal {
	return refuse(statBadParam, code, format, args...)
}

// noObject is the refusal for a number that names nothing.
func noObject(kind string, n uint32) *refusal {
	return refuse(statBadRes, codeNumber, "there is no %s %#x", kind, n)
}

// inUse is the refusal to destroy what others refer to.
func inUse(kind string, n uint32, refs int) *refusal {
	return refuse(statBadResState, codeInUse, "%s %#x is referred to %d times", kind, n, refs)
}

// tooMany is the refusal to make more objects than advertised.
func tooMany(kind string, live int) *refusal {
	return refuse(statLimit, codeLimit, "all %d objects of kind %s exist", live, kind)
}

// ringCommands starts the commands whose bits are set, lowest slot first.
func (d *Device) ringCommands(slots uint32) {
	d.work.now = time.Now()
	for ; slots != 0; slots &= slots - 1 {
		d.startCommand(bits.TrailingZeros32(slots))
	}
}

// postedCommands finds the slots that the host has given to the device. Where the
// doorbell is memory, a host that rings for two slots at once may overwrite one
// bit by the other, so the bits only say that there is something to look for.
func (d *Device) postedCommands() (slots uint32) {
	base := uint64(d.getWord(barCmdQueueHigh))<<32 | uint64(d.getWord(barCmdQueueLow)&^0xfff)
	for i := range cmdSlots {
		owner := d.mem.at(base+uint64(i)*cmdEntrySize+entryOwner, 1, false)
		if owner != nil && owner[0]&ownerHW != 0 && (d.cmd.held|d.cmd.stuck)>>i&1 == 0 {
			slots |= 1 << i
		}
	}
	return slots
}

// startCommand fetches the entry in a slot, executes it, and answers at once
// unless the script says otherwise. A doorbell for a slot that the host does
// not own the right way is lost and counted.
func (d *Device) startCommand(i int) {
	if d.hca.nicState == nicDisabled || d.hca.nicState == nicSWReset {
		d.badDoorbell("command in slot %d: the interface is off", i)
		return
	}
	s := &d.cmd.slots[i]
	base := uint64(d.getWord(barCmdQueueHigh))<<32 | uint64(d.getWord(barCmdQueueLow)&^0xfff)
	e := d.cmd.entry[:]
	addr := base + uint64(i)*cmdEntrySize
	busy := (d.cmd.held|d.cmd.stuck)>>i&1 != 0
	if busy || base == 0 || !d.dmaRead(addr, e) || e[entryOwner]&ownerHW == 0 {
		d.badDoorbell("command in slot %d: busy %v, queue at %#x, owner %#x", i, busy, base, e[entryOwner])
		return
	}
	*s = slot{addr: addr, token: e[entryToken], event: d.commandEQ(), out: s.out[:0], boxes: s.boxes[:0]}
	d.stats.Commands++
	verdict := Verdict{}
	if s.status = d.fetch(s, e); s.status == deliverOK {
		verdict = d.judge(i)
		s.status = verdict.Delivery
	}
	if verdict.Swallow {
		d.cmd.stuck |= 1 << i
		return
	}
	if s.status == deliverOK {
		d.execute(s, verdict)
	} else {
		d.stats.CommandFails++
		d.stats.LastRefusal = fmt.Sprintf("slot %d: delivery status %#x", i, s.status)
	}
	if verdict.Delay > 0 {
		d.cmd.held |= 1 << i
		s.due = d.work.now.Add(verdict.Delay)
		return
	}
	d.answer(i)
}

// judge asks the script.
func (d *Device) judge(i int) Verdict {
	seq := d.cmd.seq
	d.cmd.seq++
	if d.script.Command == nil {
		return Verdict{}
	}
	in := d.cmd.in
	return d.script.Command(CommandInfo{Seq: seq, Slot: i, Opcode: be16(in, 0), OpMod: be16(in, 6), In: in})
}

// fetch reads the message of entry e into d.cmd.in and finds the output
// mailboxes. It returns the delivery status.
func (d *Device) fetch(s *slot, e []byte) uint8 {
	inLen, outLen := be32(e, entryInLen), be32(e, entryOutLen)
	switch {
	case e[entryType] != cmdEntryType:
		return deliverDescriptor
	case e[1]|e[2]|e[3]|e[62] != 0:
		return deliverReserved
	case d.hca.checksum && xor8(e) != 0xff:
		return deliverSignature
	case inLen < cmdInline || inLen > longestMessage || inLen%4 != 0:
		return deliverInLength
	case outLen < shortestAnswer || outLen > longestMessage || outLen%4 != 0:
		return deliverOutLength
	}
	d.cmd.in = append(d.cmd.in[:0], e[entryIn:entryIn+cmdInline]...)
	next := be64(e, entryInPtr)
	for n := uint32(0); len(d.cmd.in) < int(inLen); n++ {
		status := d.openBox(next, n, s.token)
		if status != deliverOK {
			if status == deliverOutPointer {
				status = deliverInPointer
			}
			return status
		}
		part := min(int(inLen)-len(d.cmd.in), mailboxData)
		d.cmd.in = append(d.cmd.in, d.cmd.block[:part]...)
		next = be64(d.cmd.block[:], mailboxNext)
	}
	next = be64(e, entryOutPtr)
	for got := cmdInline; got < int(outLen); got += mailboxData {
		if status := d.openBox(next, uint32(len(s.boxes)), s.token); status != deliverOK {
			if status == deliverInLength {
				status = deliverOutLength
			}
			return status
		}
		s.boxes = append(s.boxes, next)
		next = be64(d.cmd.block[:], mailboxNext)
	}
	s.out = append(s.out, make([]byte, outLen)...)
	return deliverOK
}

// openBox reads one mailbox into d.cmd.block and checks what surrounds the
// data. A chain that ends early is a wrong length; a pointer with low bits is
// reported as the output's.
func (d *Device) openBox(addr uint64, n uint32, token uint8) uint8 {
	b := d.cmd.block[:]
	switch {
	case addr == 0:
		return deliverInLength
	case addr%mailboxAlign != 0:
		return deliverOutPointer
	case !d.dmaRead(addr, b):
		return deliverFirmware
	case b[mailboxToken] != token:
		return deliverToken
	case be32(b, mailboxNumber) != n:
		return deliverBlockNumber
	case d.hca.checksum && (xor8(b[mailboxRest:mailboxCtrlSig+1]) != 0xff || xor8(b) != 0xff):
		return deliverSignature
	}
	return deliverOK
}

// execute runs the command in d.cmd.in and fills s.out.
func (d *Device) execute(s *slot, v Verdict) {
	op := be16(d.cmd.in, 0)
	if d.script.Answer != nil {
		defer func() { d.script.Answer(op, s.out) }()
	}
	no := d.run(op, d.cmd.in, s.out, v)
	if no == nil {
		return
	}
	clear(s.out)
	if no.syndrome < 0x100 {
		no.syndrome |= uint32(op) << 8
	}
	cmdStatus.set(s.out, uint64(no.status))
	cmdSyndrome.set(s.out, uint64(no.syndrome))
	d.stats.CommandFails++
	d.stats.LastRefusal = fmt.Sprintf("%s (%#x): status %#x, syndrome %#x: %s", opName(op), op, no.status, no.syndrome, no.why)
}

// run checks what holds for every command and calls its function. out is all
// zero, which says OK.
func (d *Device) run(op uint16, in, out []byte, v Verdict) *refusal {
	if v.Status != 0 {
		return refuse(v.Status, v.Syndrome, "as scripted")
	}
	c := findCommand(op)
	if c == nil {
		return refuse(statBadOp, codeOpcode, "the opcode is unknown")
	}
	if d.hca.phase&c.phases == 0 {
		return refuse(statBadSysState, codeState, "not before or after the function is up as it must be")
	}
	if c.issi1 && d.hca.issi == 0 {
		return refuse(statBadOp, codeState, "unknown in interface revision 0: send SET_ISSI first")
	}
	if c.pfOnly && d.prof.vf {
		return refuse(statBadOp, codeFunction, "not for a virtual function")
	}
	if len(in) < c.inLen {
		return refuse(statBadInLen, codeLength, "%d bytes of input, %d are needed", len(in), c.inLen)
	}
	if len(out) < c.outLen {
		return refuse(statBadOutLen, codeLength, "%d bytes of output, %d are needed", len(out), c.outLen)
	}
	if mod := cmdOpMod.get(in); mod > c.mods {
		return badParam(codeReserved, "operation modifier %#x", mod)
	}
	if uid := cmdUid.get(in); uid != 0 && uid != sharedUID {
		return badParam(codeReserved, "user context %#x does not exist", uid)
	}
	return c.run(d, in, out)
}

// answer writes the result of slot i and returns it to the host.
func (d *Device) answer(i int) {
	s := &d.cmd.slots[i]
	d.cmd.held &^= 1 << i
	if s.status == deliverOK && !d.writeAnswer(s) {
		s.status = deliverFirmware
	}
	word := d.mem.at(s.addr+entryToken, 4, true)
	if word == nil {
		d.fault(s.addr+entryToken, 4, "command ownership write")
		return
	}
	last := [4]byte{s.token, word[entrySig-entryToken], 0, s.status << 1}
	if d.hca.checksum {
		last[1] = 0
		last[1] = d.entrySignature(s.addr, last)
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&word[0])), binary.NativeEndian.Uint32(last[:]))
	if s.event && d.commandEQ() {
		var vector [4]byte
		putBE32(vector[:], 0, 1<<i)
		d.event(eventCommand, 0, vector[:])
	}
}

// writeAnswer stores the output, never a byte beyond its length. Tokens and
// block numbers are in place already.
func (d *Device) writeAnswer(s *slot) bool {
	first := min(len(s.out), cmdInline)
	if !d.dmaWrite(s.addr+entryOut, s.out[:first]) {
		return false
	}
	rest := s.out[first:]
	for _, box := range s.boxes {
		part := min(len(rest), mailboxData)
		if !d.dmaWrite(box, rest[:part]) {
			return false
		}
		rest = rest[part:]
		if d.hca.checksum && !d.signBox(box) {
			return false
		}
	}
	return true
}

// signBox puts both checksums on an output mailbox.
func (d *Device) signBox(addr uint64) bool {
	b := d.cmd.block[:]
	if !d.dmaRead(addr, b) {
		return false
	}
	b[mailboxCtrlSig] = ^xor8(b[mailboxRest:mailboxCtrlSig])
	b[mailboxSig] = ^xor8(b[:mailboxSig])
	return d.dmaWrite(addr+mailboxCtrlSig, b[mailboxCtrlSig:])
}

// entrySignature is the checksum of an entry that ends in the given 4 bytes.
func (d *Device) entrySignature(addr uint64, last [4]byte) uint8 {
	e := d.cmd.entry[:]
	if !d.dmaRead(addr, e) {
		return 0
	}
	copy(e[entryToken:], last[:])
	return ^xor8(e)
}

// releaseAnswers sends the delayed answers that are due.
func (d *Device) releaseAnswers(now time.Time) bool {
	did := false
	for held := d.cmd.held; held != 0; held &= held - 1 {
		i := bits.TrailingZeros32(held)
		if !now.Before(d.cmd.slots[i].due) {
			d.work.now = now
			d.answer(i)
			did = true
		}
	}
	return did
}

// commandEQ reports whether an EQ takes command events.
func (d *Device) commandEQ() bool {
	for _, e := range d.eqs.list {
		if e.mask>>eventCommand&1 != 0 {
			return true
		}
	}
	return false
}

// xor8 is the checksum of commands and mailboxes.
func xor8(b []byte) uint8 {
	var x uint8
	for _, v := range b {
		x ^= v
	}
	return x
}

// command is one opcode: who may send it when, and how long its messages are
// at least.
type command struct {
	op     uint16
	name   string
	run    func(d *Device, in, out []byte) *refusal
	phases hcaPhase
	mods   uint64 // highest operation modifier
	inLen  int
	outLen int
	issi1  bool // part of interface revision 1 only
	pfOnly bool
}

const (
	anyPhase   = phaseOff | phaseEnabled | phaseReady
	phasesUp   = phaseEnabled | phaseReady
	manyMods   = 0xffff
	statusOnly = 12
)

// commands lists what the function executes, sorted when the program starts.
var commands = sortCommands([]command{
	{op: opEnableHCA, name: "ENABLE_HCA", run: (*Device).cmdEnableHCA, phases: phaseOff, inLen: 16, outLen: statusOnly},
	{op: opDisableHCA, name: "DISABLE_HCA", run: (*Device).cmdDisableHCA, phases: phaseEnabled, inLen: 16, outLen: statusOnly},
	{op: opInitHCA, name: "INIT_HCA", run: (*Device).cmdInitHCA, phases: phaseEnabled, inLen: 16, outLen: statusOnly},
	{op: opTeardownHCA, name: "TEARDOWN_HCA", run: (*Device).cmdTeardownHCA, phases: phaseReady, inLen: 16, outLen: 16},
	{op: opQueryISSI, name: "QUERY_ISSI", run: (*Device).cmdQueryISSI, phases: phasesUp, inLen: 16, outLen: 112},
	{op: opSetISSI, name: "SET_ISSI", run: (*Device).cmdSetISSI, phases: phaseEnabled, inLen: 16, outLen: statusOnly},
	{op: opQueryPages, name: "QUERY_PAGES", run: (*Device).cmdQueryPages, phases: phasesUp, mods: 3, inLen: 16, outLen: 16},
	{op: opManagePages, name: "MANAGE_PAGES", run: (*Device).cmdManagePages, phases: phasesUp, mods: 2, inLen: 16, outLen: 16},
	{op: opQueryHCACap, name: "QUERY_HCA_CAP", run: (*Device).cmdQueryHCACap, phases: phasesUp, mods: manyMods, inLen: 16, outLen: 16},
	{op: opSetHCACap, name: "SET_HCA_CAP", run: (*Device).cmdSetHCACap, phases: phaseEnabled, mods: manyMods, inLen: 4112, outLen: statusOnly},
	{op: opQueryAdapter, name: "QUERY_ADAPTER", run: (*Device).cmdQueryAdapter, phases: phasesUp, inLen: 16, outLen: 272},
	{op: opSetDriverVersion, name: "SET_DRIVER_VERSION", run: (*Device).cmdSetDriverVersion, phases: phaseReady, inLen: 80, outLen: statusOnly},
	{op: opNop, name: "NOP", run: (*Device).cmdNop, phases: anyPhase, inLen: 16, outLen: shortestAnswer},
	{op: opAccessReg, name: "ACCESS_REG", run: (*Device).cmdAccessReg, phases: phasesUp, mods: 1, inLen: 16, outLen: 16},

	{op: opAllocUAR, name: "ALLOC_UAR", run: (*Device).cmdAllocUAR, phases: phaseReady, inLen: 16, outLen: 16},
	{op: opDeallocUAR, name: "DEALLOC_UAR", run: (*Device).cmdDeallocUAR, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opAllocPD, name: "ALLOC_PD", run: (*Device).cmdAllocPD, phases: phaseReady, inLen: 16, outLen: 16},
	{op: opDeallocPD, name: "DEALLOC_PD", run: (*Device).cmdDeallocPD, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opAllocTD, name: "ALLOC_TRANSPORT_DOMAIN", run: (*Device).cmdAllocTD, phases: phaseReady, inLen: 16, outLen: 16, issi1: true},
	{op: opDeallocTD, name: "DEALLOC_TRANSPORT_DOMAIN", run: (*Device).cmdDeallocTD, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opAllocQCounter, name: "ALLOC_Q_COUNTER", run: (*Device).cmdAllocQCounter, phases: phaseReady, inLen: 16, outLen: 16},
	{op: opDeallocQCounter, name: "DEALLOC_Q_COUNTER", run: (*Device).cmdDeallocQCounter, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opQueryQCounter, name: "QUERY_Q_COUNTER", run: (*Device).cmdQueryQCounter, phases: phaseReady, inLen: 32, outLen: 256},
	{op: opCreateMkey, name: "CREATE_MKEY", run: (*Device).cmdCreateMkey, phases: phaseReady, inLen: 272, outLen: 16},
	{op: opQueryMkey, name: "QUERY_MKEY", run: (*Device).cmdQueryMkey, phases: phaseReady, inLen: 16, outLen: 80},
	{op: opDestroyMkey, name: "DESTROY_MKEY", run: (*Device).cmdDestroyMkey, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opQuerySpecialContexts, name: "QUERY_SPECIAL_CONTEXTS", run: (*Device).cmdQuerySpecialContexts, phases: phaseReady, inLen: 16, outLen: 16},

	{op: opCreateEQ, name: "CREATE_EQ", run: (*Device).cmdCreateEQ, phases: phaseReady, inLen: 272, outLen: 16},
	{op: opQueryEQ, name: "QUERY_EQ", run: (*Device).cmdQueryEQ, phases: phaseReady, inLen: 16, outLen: 272},
	{op: opDestroyEQ, name: "DESTROY_EQ", run: (*Device).cmdDestroyEQ, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opCreateCQ, name: "CREATE_CQ", run: (*Device).cmdCreateCQ, phases: phaseReady, inLen: 272, outLen: 16},
	{op: opQueryCQ, name: "QUERY_CQ", run: (*Device).cmdQueryCQ, phases: phaseReady, inLen: 16, outLen: 272},
	{op: opModifyCQ, name: "MODIFY_CQ", run: (*Device).cmdModifyCQ, phases: phaseReady, mods: 1, inLen: 272, outLen: statusOnly},
	{op: opDestroyCQ, name: "DESTROY_CQ", run: (*Device).cmdDestroyCQ, phases: phaseReady, inLen: 16, outLen: statusOnly},
	{op: opCreateSQ, name: "CREATE_SQ", run: (*Device).cmdCreateSQ, phases: phaseReady, inLen: 272, outLen: 16, issi1: true},
	{op: opQuerySQ, name: "QUERY_SQ", run: (*Device).cmdQuerySQ, phases: phaseReady, inLen: 16, outLen: 272, issi1: true},
	{op: opModifySQ, name: "MODIFY_SQ", run: (*Device).cmdModifySQ, phases: phaseReady, inLen: 272, outLen: statusOnly, issi1: true},
	{op: opDestroySQ, name: "DESTROY_SQ", run: (*Device).cmdDestroySQ, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opCreateRQ, name: "CREATE_RQ", run: (*Device).cmdCreateRQ, phases: phaseReady, inLen: 272, outLen: 16, issi1: true},
	{op: opQueryRQ, name: "QUERY_RQ", run: (*Device).cmdQueryRQ, phases: phaseReady, inLen: 16, outLen: 272, issi1: true},
	{op: opModifyRQ, name: "MODIFY_RQ", run: (*Device).cmdModifyRQ, phases: phaseReady, inLen: 272, outLen: statusOnly, issi1: true},
	{op: opDestroyRQ, name: "DESTROY_RQ", run: (*Device).cmdDestroyRQ, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opCreateRMP, name: "CREATE_RMP", run: (*Device).cmdCreateRMP, phases: phaseReady, inLen: 272, outLen: 16, issi1: true},
	{op: opQueryRMP, name: "QUERY_RMP", run: (*Device).cmdQueryRMP, phases: phaseReady, inLen: 16, outLen: 272, issi1: true},
	{op: opModifyRMP, name: "MODIFY_RMP", run: (*Device).cmdModifyRMP, phases: phaseReady, inLen: 272, outLen: statusOnly, issi1: true},
	{op: opDestroyRMP, name: "DESTROY_RMP", run: (*Device).cmdDestroyRMP, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opCreateTIR, name: "CREATE_TIR", run: (*Device).cmdCreateTIR, phases: phaseReady, inLen: 272, outLen: 16, issi1: true},
	{op: opQueryTIR, name: "QUERY_TIR", run: (*Device).cmdQueryTIR, phases: phaseReady, inLen: 16, outLen: 272, issi1: true},
	{op: opModifyTIR, name: "MODIFY_TIR", run: (*Device).cmdModifyTIR, phases: phaseReady, inLen: 272, outLen: statusOnly, issi1: true},
	{op: opDestroyTIR, name: "DESTROY_TIR", run: (*Device).cmdDestroyTIR, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opCreateTIS, name: "CREATE_TIS", run: (*Device).cmdCreateTIS, phases: phaseReady, inLen: 192, outLen: 16, issi1: true},
	{op: opQueryTIS, name: "QUERY_TIS", run: (*Device).cmdQueryTIS, phases: phaseReady, inLen: 16, outLen: 176, issi1: true},
	{op: opModifyTIS, name: "MODIFY_TIS", run: (*Device).cmdModifyTIS, phases: phaseReady, inLen: 192, outLen: statusOnly, issi1: true},
	{op: opDestroyTIS, name: "DESTROY_TIS", run: (*Device).cmdDestroyTIS, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opCreateRQT, name: "CREATE_RQT", run: (*Device).cmdCreateRQT, phases: phaseReady, inLen: 272, outLen: 16, issi1: true},
	{op: opQueryRQT, name: "QUERY_RQT", run: (*Device).cmdQueryRQT, phases: phaseReady, inLen: 16, outLen: 272, issi1: true},
	{op: opModifyRQT, name: "MODIFY_RQT", run: (*Device).cmdModifyRQT, phases: phaseReady, inLen: 272, outLen: statusOnly, issi1: true},
	{op: opDestroyRQT, name: "DESTROY_RQT", run: (*Device).cmdDestroyRQT, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},

	{op: opSetFlowTableRoot, name: "SET_FLOW_TABLE_ROOT", run: (*Device).cmdSetFlowTableRoot, phases: phaseReady, mods: 1, inLen: 64, outLen: statusOnly, issi1: true},
	{op: opCreateFlowTable, name: "CREATE_FLOW_TABLE", run: (*Device).cmdCreateFlowTable, phases: phaseReady, inLen: 64, outLen: 16, issi1: true},
	{op: opModifyFlowTable, name: "MODIFY_FLOW_TABLE", run: (*Device).cmdModifyFlowTable, phases: phaseReady, inLen: 64, outLen: statusOnly, issi1: true},
	{op: opQueryFlowTable, name: "QUERY_FLOW_TABLE", run: (*Device).cmdQueryFlowTable, phases: phaseReady, inLen: 64, outLen: 64, issi1: true},
	{op: opDestroyFlowTable, name: "DESTROY_FLOW_TABLE", run: (*Device).cmdDestroyFlowTable, phases: phaseReady, inLen: 64, outLen: statusOnly, issi1: true},
	{op: opCreateFlowGroup, name: "CREATE_FLOW_GROUP", run: (*Device).cmdCreateFlowGroup, phases: phaseReady, inLen: 1024, outLen: 16, issi1: true},
	{op: opQueryFlowGroup, name: "QUERY_FLOW_GROUP", run: (*Device).cmdQueryFlowGroup, phases: phaseReady, inLen: 64, outLen: 1024, issi1: true},
	{op: opDestroyFlowGroup, name: "DESTROY_FLOW_GROUP", run: (*Device).cmdDestroyFlowGroup, phases: phaseReady, inLen: 64, outLen: statusOnly, issi1: true},
	{op: opSetFTE, name: "SET_FLOW_TABLE_ENTRY", run: (*Device).cmdSetFTE, phases: phaseReady, mods: 1, inLen: 832, outLen: statusOnly, issi1: true},
	{op: opQueryFTE, name: "QUERY_FLOW_TABLE_ENTRY", run: (*Device).cmdQueryFTE, phases: phaseReady, inLen: 64, outLen: 832, issi1: true},
	{op: opDeleteFTE, name: "DELETE_FLOW_TABLE_ENTRY", run: (*Device).cmdDeleteFTE, phases: phaseReady, inLen: 64, outLen: statusOnly, issi1: true},
	{op: opAllocFlowCounter, name: "ALLOC_FLOW_COUNTER", run: (*Device).cmdAllocFlowCounter, phases: phaseReady, inLen: 16, outLen: 16, issi1: true},
	{op: opDeallocFlowCounter, name: "DEALLOC_FLOW_COUNTER", run: (*Device).cmdDeallocFlowCounter, phases: phaseReady, inLen: 16, outLen: statusOnly, issi1: true},
	{op: opQueryFlowCounter, name: "QUERY_FLOW_COUNTER", run: (*Device).cmdQueryFlowCounter, phases: phaseReady, inLen: 32, outLen: 32, issi1: true},

	{op: opQueryVportState, name: "QUERY_VPORT_STATE", run: (*Device).cmdQueryVportState, phases: phaseReady, mods: 2, inLen: 16, outLen: 16},
	{op: opModifyVportState, name: "MODIFY_VPORT_STATE", run: (*Device).cmdModifyVportState, phases: phaseReady, mods: 2, inLen: 16, outLen: statusOnly, pfOnly: true},
	{op: opQueryNICVport, name: "QUERY_NIC_VPORT_CONTEXT", run: (*Device).cmdQueryNICVport, phases: phaseReady, inLen: 16, outLen: 272},
	{op: opModifyNICVport, name: "MODIFY_NIC_VPORT_CONTEXT", run: (*Device).cmdModifyNICVport, phases: phaseReady, inLen: 512, outLen: statusOnly},
	{op: opQueryVnicEnv, name: "QUERY_VNIC_ENV", run: (*Device).cmdQueryVnicEnv, phases: phaseReady, inLen: 16, outLen: 528},
	{op: opQueryVportCounter, name: "QUERY_VPORT_COUNTER", run: (*Device).cmdQueryVportCounter, phases: phaseReady, inLen: 32, outLen: 528},
	{op: opSetL2Entry, name: "SET_L2_TABLE_ENTRY", run: (*Device).cmdSetL2Entry, phases: phaseReady, inLen: 64, outLen: statusOnly, pfOnly: true},
	{op: opQueryL2Entry, name: "QUERY_L2_TABLE_ENTRY", run: (*Device).cmdQueryL2Entry, phases: phaseReady, inLen: 64, outLen: 64, pfOnly: true},
	{op: opDeleteL2Entry, name: "DELETE_L2_TABLE_ENTRY", run: (*Device).cmdDeleteL2Entry, phases: phaseReady, inLen: 64, outLen: statusOnly, pfOnly: true},
	{op: opAddVXLANPort, name: "ADD_VXLAN_UDP_DPORT", run: (*Device).cmdAddVXLANPort, phases: phaseReady, inLen: 16, outLen: statusOnly, pfOnly: true},
	{op: opDeleteVXLANPort, name: "DELETE_VXLAN_UDP_DPORT", run: (*Device).cmdDeleteVXLANPort, phases: phaseReady, inLen: 16, outLen: statusOnly, pfOnly: true},
})

// sortCommands orders the table by opcode.
func sortCommands(c []command) []command {
	slices.SortFunc(c, func(a, b command) int { return int(a.op) - int(b.op) })
	return c
}

// findCommand looks an opcode up; nil if there is no such command.
func findCommand(op uint16) *command {
	i, ok := slices.BinarySearchFunc(commands, op, func(c command, op uint16) int { return int(c.op) - int(op) })
	if !ok {
		return nil
	}
	return &commands[i]
}

// opName is the manual's name of an opcode.
func opName(op uint16) string {
	if c := findCommand(op); c != nil {
		return c.name
	}
	return "unknown command"
}

func (d *Device) cmdNop(_, _ []byte) *refusal { return nil }
