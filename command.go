package main

// command.go owns the command interface: the queue of 32 entries and their
// signatures, mailbox chains, tokens, waiting, and the error that a failed command
// is. Mailboxes carry no signatures: capabilities are set without (params.go). It
// does not know what commands mean (firmware.go) nor who reads the command
// event queue (events.go): that one calls finish.
// Manual: chapter Command Interface.

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	commandSlots = 32
	// maxMessage bounds a message; the longest in use gives all init pages at once.
	maxMessage = 1 << 20
)

// commandTimeout is how long firmware may take for a command, as long as Linux waits;
// firmwareWait how long it may initialize. They are not constants so that tests need
// not wait as long.
var (
	commandTimeout = 60 * time.Second
	firmwareWait   = 120 * time.Second
)

var errDeviceLost = errors.New("the device does not answer (registers read as all ones): it was removed, reset or lost power: start again when it is back")

// cmdError is a command that failed. It is the only kind of error for which the
// device itself gave a reason.
type cmdError struct {
	op       uint16
	opMod    uint16
	delivery uint8 // delivery status; when not 0 the command was not executed
	status   uint8
	syndrome uint32
}

func (e *cmdError) Error() string {
	name := nameOf(opcodeNames, e.op)
	if e.opMod != 0 {
		name += fmt.Sprintf("(%#x)", e.opMod)
	}
	if e.delivery != 0 {
		return fmt.Sprintf("firmware command %s was not delivered: %s (%#x)", name, nameOf(deliveryNames, e.delivery), e.delivery)
	}
	return fmt.Sprintf("firmware command %s failed: %s (status %#x), syndrome %#x", name, nameOf(statusNames, e.status), e.status, e.syndrome)
}

// slot is one entry of the command queue. Its owner is who took it from
// commander.take; an abandoned slot belongs to the device until it answers.
type slot struct {
	busy      bool
	abandoned bool
	bell      *bell    // rings when a completion event names the slot
	blocks    []dmaMem // mailbox blocks in use: input, then output
}

// commander issues commands. Any goroutine may call exec.
type commander struct {
	bar     []byte
	mem     *arena
	queue   dmaMem
	timeout time.Duration

	events atomic.Bool // completions come as events too
	lost   atomic.Bool // the device answered with all ones once

	mu     sync.Mutex
	freed  *sync.Cond
	slots  [commandSlots]slot
	usable int      // slots the device offers
	spare  []dmaMem // mailbox blocks not in use
	pages  []dmaMem // what spare was cut from
	token  uint8
}

// newCommander waits until firmware is ready and gives it the command queue.
// progress is called about once a second while it waits.
func newCommander(ctx context.Context, bar []byte, mem *arena, wait time.Duration, progress func(time.Duration)) (*commander, error) {
	c := &commander{bar: bar, mem: mem, timeout: commandTimeout}
	c.freed = sync.NewCond(&c.mu)
	if err := c.waitReady(ctx, wait, progress); err != nil {
		return nil, err
	}
	seg := c.segment()
	switch rev := segCmdRev.get(seg); {
	case be32(seg, 0) == ^uint32(0):
		return nil, errDeviceLost
	case rev != cmdIfRev:
		return nil, fmt.Errorf("command interface revision %d, this driver speaks %d: update the card's firmware", rev, cmdIfRev)
	}
	size, stride := segLogCmdqSize.get(seg), segLogCmdqStride.get(seg)
	if size > 5 || stride != 6 {
		return nil, fmt.Errorf("command queue of 2^%d entries of 2^%d bytes, this driver knows up to 2^5 of 2^6", size, stride)
	}
	c.usable = 1 << size
	if err := c.hangBells(); err != nil {
		return nil, err
	}
	q, err := mem.alloc(pageSize)
	if err != nil {
		c.takeBells()
		return nil, fmt.Errorf("command queue: %w", err)
	}
	c.queue = q
	regWrite32(bar, segCmdqHi.off, uint32(q.iova>>32))
	regWrite32(bar, segCmdqLo.off, uint32(q.iova)) // low bits: interface 0, full driver
	return c, nil
}

// hangBells gives every slot that the device offers its bell; takeBells closes them.
func (c *commander) hangBells() (err error) {
	for i := range c.slots[:c.usable] {
		if c.slots[i].bell, err = newBell(); err != nil {
			c.takeBells()
			return fmt.Errorf("command queue: %w", err)
		}
	}
	return nil
}

func (c *commander) takeBells() {
	for i := range c.slots {
		if b := c.slots[i].bell; b != nil {
			_ = b.close()
			c.slots[i].bell = nil
		}
	}
}

// segment reads the initialization segment's fixed words into our own memory.
func (c *commander) segment() []byte {
	b := make([]byte, 0x20)
	for off := 0; off < len(b); off += 4 {
		putBE32(b, off, regRead32(c.bar, off))
	}
	return b
}

// waitReady waits for the "initializing" bit to clear.
func (c *commander) waitReady(ctx context.Context, wait time.Duration, progress func(time.Duration)) error {
	start, told := time.Now(), time.Duration(0)
	for {
		v := regRead32(c.bar, segInitializing.off)
		if v == ^uint32(0) && !present(c.bar) {
			return errDeviceLost
		}
		if v&segInitializing.mask() == 0 {
			return nil
		}
		since := time.Since(start)
		if since >= wait {
			return fmt.Errorf("firmware is still initializing after %v: try again, and if it stays so power-cycle the machine or reflash the card", wait.Round(time.Millisecond))
		}
		if progress != nil && since-told >= time.Second {
			told = since
			progress(since)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped while firmware was initializing: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// close takes the command queue back. No command may be running, and nobody may
// call finish any more. When firmware still owes an answer it may write it any time:
// the memory stays unused then, until the arena is closed.
func (c *commander) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeBells()
	for n := range c.slots {
		if c.slots[n].abandoned && !c.lost.Load() && loadByte(c.entry(n), entryStatus)&entryOwnerBit != 0 {
			return
		}
	}
	for _, p := range c.pages {
		c.mem.free(p)
	}
	c.mem.free(c.queue)
	c.pages, c.spare, c.queue = nil, nil, dmaMem{}
}

// exec runs the command in in, whose first 16 bytes hold opcode and modifier,
// and returns outLen bytes of answer. The error is a *cmdError when firmware
// refused, errDeviceLost when the device is gone, or a time-out.
func (c *commander) exec(in []byte, outLen int) ([]byte, error) {
	op, mod := uint16(cmdOpcode.get(in)), uint16(cmdOpMod.get(in))
	if len(in) > maxMessage || outLen > maxMessage {
		return nil, fmt.Errorf("firmware command %s: message of %d and %d bytes is too long", nameOf(opcodeNames, op), len(in), outLen)
	}
	if c.lost.Load() {
		return nil, errDeviceLost
	}
	underway.Add(1)
	defer underway.Add(-1)
	n, err := c.take(op == opManagePages)
	if err != nil {
		return nil, fmt.Errorf("firmware command %s: %w", nameOf(opcodeNames, op), err)
	}
	if err := c.post(n, in, outLen); err != nil {
		c.release(n)
		return nil, fmt.Errorf("firmware command %s: %w", nameOf(opcodeNames, op), err)
	}
	if err := c.wait(n, op); err != nil {
		return nil, err
	}
	out := c.collect(n, outLen)
	delivery := c.entry(n)[entryStatus] >> 1
	c.release(n)
	if status := uint8(cmdStatus.get(out)); delivery != 0 || status != 0 {
		return out, &cmdError{op: op, opMod: mod, delivery: delivery, status: status, syndrome: cmdSyndrome.get(out)}
	}
	return out, nil
}

// take waits for a free slot. The last is kept for MANAGE_PAGES, so that the
// device can always be given pages even when every other slot waits for just
// that. It fails when firmware owes an answer for every slot there is.
func (c *commander) take(forPages bool) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, last := 0, c.usable-2
	if forPages || c.usable == 1 {
		first, last = c.usable-1, c.usable-1
	}
	for {
		if c.lost.Load() {
			return 0, errDeviceLost
		}
		stuck := 0
		for n := first; n <= last; n++ {
			s := &c.slots[n]
			if s.abandoned && loadByte(c.entry(n), entryStatus)&entryOwnerBit == 0 {
				c.recycle(s) // the answer came late; nobody waits for it any more
			}
			if s.abandoned {
				stuck++
			}
			if !s.busy {
				s.busy = true
				return n, nil
			}
		}
		if stuck == last-first+1 {
			return 0, errors.New("firmware answers no command any more: reset the card or power-cycle the machine")
		}
		c.freed.Wait()
	}
}

// recycle makes a slot usable again. c.mu is held.
func (c *commander) recycle(s *slot) {
	c.spare = append(c.spare, s.blocks...)
	s.blocks, s.busy, s.abandoned = nil, false, false
	s.bell.hush() // an event that nobody took
}

func (c *commander) release(n int) {
	c.mu.Lock()
	c.recycle(&c.slots[n])
	c.mu.Unlock()
	c.freed.Broadcast()
}

func (c *commander) entry(n int) []byte {
	return c.queue.b[n*cmdEntrySize : (n+1)*cmdEntrySize]
}

// post fills slot n and rings the doorbell. All of the entry is written before
// its last word, which gives the entry to the device.
func (c *commander) post(n int, in []byte, outLen int) error {
	inBlocks, outBlocks := blocksFor(len(in)), blocksFor(outLen)
	c.mu.Lock()
	blocks, err := c.takeBlocks(inBlocks + outBlocks)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	if c.token++; c.token == 0 {
		c.token = 1
	}
	token := c.token
	c.slots[n].blocks = blocks
	c.mu.Unlock()

	e := c.entry(n)
	clear(e)
	copy(e[entryIn:], in[:min(len(in), cmdInline)])
	for i := range inBlocks {
		copy(blocks[i].b[:cmdBlockData], in[cmdInline+i*cmdBlockData:])
	}
	chain(blocks[:inBlocks], token)
	chain(blocks[inBlocks:], token)
	e[entryType] = cmdEntryType
	putBE32(e, entryInLen, uint32(len(in)))
	putBE32(e, entryOutLen, uint32(outLen))
	if inBlocks > 0 {
		putBE64(e, entryInPtr, blocks[0].iova)
	}
	if outBlocks > 0 {
		putBE64(e, entryOutPtr, blocks[inBlocks].iova)
	}
	signature := ^(xor8(e[:entryToken]) ^ token ^ entryOwnerBit)
	storeBE32(e, entryToken, uint32(token)<<24|uint32(signature)<<16|entryOwnerBit)
	regWrite32(c.bar, segDoorbell.off, 1<<n)
	return nil
}

// blocksFor is the number of mailbox blocks behind the inline part.
func blocksFor(n int) int { return (max(n-cmdInline, 0) + cmdBlockData - 1) / cmdBlockData }

// takeBlocks hands out zeroed mailbox blocks. c.mu is held.
func (c *commander) takeBlocks(n int) ([]dmaMem, error) {
	if missing := n - len(c.spare); missing > 0 {
		const each = pageSize / cmdBlockStride
		m, err := c.mem.alloc((missing + each - 1) / each * pageSize)
		if err != nil {
			return nil, err
		}
		c.pages = append(c.pages, m)
		for off := 0; off < len(m.b); off += cmdBlockStride {
			c.spare = append(c.spare, m.slice(off, cmdBlockSize))
		}
	}
	cut := len(c.spare) - n
	out := append([]dmaMem(nil), c.spare[cut:]...)
	c.spare = c.spare[:cut]
	for _, b := range out {
		clear(b.b)
	}
	return out, nil
}

// chain links blocks into one mailbox.
func chain(blocks []dmaMem, token uint8) {
	for i, m := range blocks {
		b := m.b
		if i+1 < len(blocks) {
			putBE64(b, cmdBlockNext, blocks[i+1].iova)
		}
		putBE32(b, cmdBlockNum, uint32(i))
		b[cmdBlockToken] = token
	}
}

func xor8(b []byte) (x byte) {
	for _, v := range b {
		x ^= v
	}
	return x
}

// wait returns when the device has given slot n back. The owner bit is what
// counts; an event only wakes us early, so a lost one costs time, not a hang.
func (c *commander) wait(n int, op uint16) error {
	e, s := c.entry(n), &c.slots[n]
	start := time.Now()
	deadline := start.Add(c.timeout)
	for spin, nap := 0, 20*time.Microsecond; ; spin++ {
		late := time.Now().After(deadline) // asked before: an answer that is there counts
		if loadByte(e, entryStatus)&entryOwnerBit == 0 {
			return nil
		}
		if spin < 64 && !c.events.Load() {
			continue
		}
		if !present(c.bar) {
			c.lost.Store(true)
			c.abandon(n)
			return errDeviceLost
		}
		if late {
			c.abandon(n)
			beat, syndrome := readHealth(c.bar)
			return fmt.Errorf("firmware command %s: no answer within %v (health syndrome %#x, counter %#x): reset the card or power-cycle the machine",
				nameOf(opcodeNames, op), c.timeout, syndrome, beat)
		}
		if c.events.Load() {
			s.bell.wait(5 * time.Millisecond)
			continue
		}
		time.Sleep(nap)
		nap = min(nap*2, time.Millisecond)
	}
}

// readHealth is what firmware shows of itself: a counter that it moves several times
// a second, and why it is ill, 0 when it is not.
func readHealth(bar []byte) (beat uint32, syndrome uint8) {
	word := regRead32(bar, segHealth+healthSyndrome.off)
	return regRead32(bar, segHealthCounter.off) & segHealthCounter.mask(), uint8(word & healthSyndrome.mask() >> healthSyndrome.lo)
}

// present reports whether there is a device behind the registers: where there is none
// all of them read as ones.
func present(bar []byte) bool { return regRead32(bar, 0) != ^uint32(0) }

// abandon leaves slot n and its mailboxes to the device, which may still write
// to them. take gives the slot out again only after the late answer; whoever
// waits in it must look again, since this slot may have been the last hope.
func (c *commander) abandon(n int) {
	c.mu.Lock()
	c.slots[n].abandoned = true
	c.mu.Unlock()
	c.freed.Broadcast()
}

// collect copies the answer out of DMA memory. The chain is the one we built,
// not the one the device may have written.
func (c *commander) collect(n, outLen int) []byte {
	out := make([]byte, max(outLen, cmdInline))
	copy(out, c.entry(n)[entryOut:entryOut+cmdInline])
	blocks := c.slots[n].blocks
	blocks = blocks[len(blocks)-blocksFor(outLen):]
	for i, b := range blocks {
		copy(out[cmdInline+i*cmdBlockData:], b.b[:cmdBlockData])
	}
	return out
}

// finish is told by a command completion event which slots are done.
func (c *commander) finish(slots uint32) {
	for ; slots != 0; slots &= slots - 1 {
		if b := c.slots[bits.TrailingZeros32(slots)].bell; b != nil {
			b.ring()
		}
	}
	c.freed.Broadcast()
}
