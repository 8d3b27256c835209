package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// fakeCard is a device of plain memory without anything behind it: what it
// answers to commands is up to the test.
type fakeCard struct {
	bar    []byte
	ranges []iovaRange

	mu   sync.Mutex
	maps map[uint64][]byte // by bus address
}

// Shape of a command queue of 32 entries of 64 bytes, as it reads back.
const queueShape32 = 0x56

func newFakeCard() *fakeCard {
	c := &fakeCard{bar: make([]byte, 64<<10), maps: map[uint64][]byte{}, ranges: []iovaRange{{0, 1<<48 - 1}}}
	putBE32(c.bar, 0, 35<<16|16)
	putBE32(c.bar, 4, cmdIfRev<<16|4030)
	putBE32(c.bar, segCmdqLo.off, queueShape32)
	return c
}

func (c *fakeCard) name() string                       { return "fake" }
func (c *fakeCard) bar0() []byte                       { return c.bar }
func (c *fakeCard) iovaRanges() []iovaRange            { return c.ranges }
func (c *fakeCard) vectors() int                       { return 0 }
func (c *fakeCard) enableVectors(n int) ([]int, error) { return nil, fmt.Errorf("%d vectors", n) }
func (c *fakeCard) combining() (int, error)            { return 0, errors.New("no combining") }
func (c *fakeCard) combine(int) (func() error, error)  { return nil, errors.New("no combining") }
func (c *fakeCard) setBusMaster(bool) error            { return nil }
func (c *fakeCard) wantedBack() (bool, error)          { return false, nil }
func (c *fakeCard) reset() error                       { return errNoReset }
func (c *fakeCard) close() error                       { return nil }

func (c *fakeCard) mapDMA(mem []byte, iova uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, b := range c.maps {
		if iova < at+uint64(len(b)) && at < iova+uint64(len(mem)) {
			return fmt.Errorf("%#x is mapped already", iova)
		}
	}
	c.maps[iova] = mem
	return nil
}

func (c *fakeCard) unmapDMA(iova, size uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uint64(len(c.maps[iova])) != size {
		return fmt.Errorf("%#x was not mapped with %d bytes", iova, size)
	}
	delete(c.maps, iova)
	return nil
}

// at returns n bytes of host memory by bus address, nil where none is mapped.
func (c *fakeCard) at(iova uint64, n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for first, b := range c.maps {
		if off := iova - first; iova >= first && off < uint64(len(b)) && uint64(len(b))-off >= uint64(n) {
			return b[off : off+uint64(n) : off+uint64(n)]
		}
	}
	return nil
}

// entry is slot n of the command queue, nil before there is one.
func (c *fakeCard) entry(n int) []byte {
	queue := uint64(regRead32(c.bar, segCmdqHi.off))<<32 | uint64(regRead32(c.bar, segCmdqLo.off)&^0xfff)
	return c.at(queue+uint64(n*cmdEntrySize), cmdEntrySize)
}

// question is one command as the device sees it.
type question struct {
	slot   int
	token  byte
	in     []byte // the whole message
	outLen int
	entry  []byte
	boxes  [][]byte // output mailboxes
}

func (q *question) op() uint16 { return be16(q.in, 0) }

// read decodes the entry in a slot and checks all that a device may check.
func (c *fakeCard) read(slot int, e []byte) (q question, err error) {
	q = question{slot: slot, token: e[entryToken], outLen: int(be32(e, entryOutLen)), entry: e}
	switch {
	case e[entryType] != cmdEntryType || e[1]|e[2]|e[3]|e[62] != 0:
		return q, fmt.Errorf("slot %d: entry starts with % x", slot, e[:4])
	case q.token == 0:
		return q, fmt.Errorf("slot %d: token 0", slot)
	}
	inLen := int(be32(e, entryInLen))
	in, err := c.chain(be64(e, entryInPtr), blocksFor(inLen), q.token)
	if err != nil {
		return q, fmt.Errorf("slot %d: input: %w", slot, err)
	}
	q.in = append(q.in, e[entryIn:entryIn+min(inLen, cmdInline)]...)
	for _, b := range in {
		q.in = append(q.in, b[:min(inLen-len(q.in), cmdBlockData)]...)
	}
	if q.boxes, err = c.chain(be64(e, entryOutPtr), blocksFor(q.outLen), q.token); err != nil {
		return q, fmt.Errorf("slot %d: output: %w", slot, err)
	}
	return q, nil
}

// chain walks mailboxes and checks their trailers.
func (c *fakeCard) chain(next uint64, n int, token byte) (out [][]byte, err error) {
	for i := range n {
		b := c.at(next, cmdBlockSize)
		switch {
		case b == nil || next%cmdBlockStride != 0:
			return nil, fmt.Errorf("block %d of %d at %#x", i, n, next)
		case b[cmdBlockToken] != token:
			return nil, fmt.Errorf("block %d: token %d, the entry's is %d", i, b[cmdBlockToken], token)
		case be32(b, cmdBlockNum) != uint32(i):
			return nil, fmt.Errorf("block %d: number %d", i, be32(b, cmdBlockNum))
		case !allZero(b[cmdBlockData:cmdBlockNext]):
			return nil, fmt.Errorf("block %d: reserved bytes are used", i)
		}
		out = append(out, b)
		next = be64(b, cmdBlockNext)
	}
	if next != 0 {
		return nil, fmt.Errorf("the chain of %d goes on to %#x", n, next)
	}
	return out, nil
}

// answer writes an answer and gives the entry back, ownership last.
func (q *question) answer(delivery byte, out []byte) {
	copy(q.entry[entryOut:entryOut+cmdInline], out[:min(len(out), cmdInline)])
	for i, b := range q.boxes {
		if from := cmdInline + i*cmdBlockData; from < len(out) {
			copy(b[:cmdBlockData], out[from:])
		}
	}
	q.giveBack(delivery)
}

func (q *question) giveBack(delivery byte) {
	storeBE32(q.entry, entryToken, uint32(q.entry[entryToken])<<24|uint32(q.entry[entrySig])<<16|uint32(delivery<<1))
}

// serve calls answer for every new command, from one goroutine, until the test
// ends. The signature shows when an entry is whole, so no doorbell gets lost.
func (c *fakeCard) serve(t testing.TB, answer func(q question)) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		var seen [commandSlots]byte // token of what answer has
		for {
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
			for n := range commandSlots {
				e := c.entry(n)
				if e == nil || loadByte(e, entryStatus)&entryOwnerBit == 0 {
					seen[n] = 0
					continue
				}
				if whole := bytes.Clone(e); xor8(whole) != 0xff || seen[n] == whole[entryToken] {
					continue
				}
				q, err := c.read(n, e)
				if err != nil {
					t.Error(err)
					q.giveBack(0x10)
					continue
				}
				seen[n] = q.token
				answer(q)
			}
		}
	})
	t.Cleanup(func() { close(stop); done.Wait() })
}

// fakeCommander is a commander on a fake card.
func fakeCommander(t testing.TB, c *fakeCard, timeout time.Duration) *commander {
	t.Helper()
	mem := newArena(c)
	cmd, err := newCommander(context.Background(), c.bar, mem, time.Second, nil)
	require.NoError(t, err)
	cmd.timeout = timeout
	t.Cleanup(func() {
		cmd.close()
		require.Zero(t, mem.used(), "memory left after close")
		require.NoError(t, mem.close())
		require.Empty(t, c.maps)
	})
	return cmd
}

// numbered is a question of n bytes that carries id.
func numbered(op uint16, id uint32, n int) []byte {
	in := request(op, 0, n)
	cmdObject.set(in, id)
	for i := cmdInline; i < n; i++ {
		in[i] = byte(i*7) ^ byte(id) ^ byte(i>>9)
	}
	return in
}

// echo is the answer to a question: OK, its id, and its bytes turned.
func echo(q question) []byte {
	out := make([]byte, q.outLen)
	copy(out[8:16], q.in[8:16])
	for i := cmdInline; i < len(out); i++ {
		out[i] = ^q.in[i%len(q.in)]
	}
	return out
}

// Messages of every length around block borders arrive whole, both ways; the
// longest lends 12868 pages as a recorded card asked for. The entry's bytes XOR
// to 0xff; blocks carry no signatures.
func TestMessagesArriveWhole(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	var blocks [][]byte
	c.serve(t, func(q question) {
		blocks = blocks[:0]
		in, _ := c.chain(be64(q.entry, entryInPtr), blocksFor(len(q.in)), q.token)
		for _, b := range append(in, q.boxes...) {
			blocks = append(blocks, bytes.Clone(b))
		}
		q.answer(0, echo(q))
	})
	lengths := []int{16, 20, 512, 527, 528, 529, 532, 1040, 1044, 16 + 4096, 16 + 8*12868}
	for i, in := range lengths {
		for j, out := range []int{16, 528, 532, lengths[len(lengths)-1-i]} {
			id := uint32(i*16 + j + 1)
			ask := numbered(0x100, id, in)
			got, err := cmd.exec(ask, out)
			require.NoError(t, err)
			require.Equal(t, echo(question{in: ask, outLen: out}), got)
			require.Len(t, blocks, blocksFor(in)+blocksFor(out))
			for _, b := range blocks {
				require.Zero(t, b[cmdBlockCtlSig]|b[cmdBlockSig])
			}
		}
	}
	require.Equal(t, uint32(1), regRead32(c.bar, segDoorbell.off), "one command at a time goes through slot 0")
}

// An old answer never shines through: blocks are empty when they are given out.
func TestMailboxesStartEmpty(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	var short atomic.Bool
	c.serve(t, func(q question) {
		if short.Load() {
			q.answer(0, make([]byte, 16)) // says nothing about the rest
		} else {
			q.answer(0, append(make([]byte, 16), bytes.Repeat([]byte{0xee}, q.outLen-16)...))
		}
	})
	_, err := cmd.exec(request(0x100, 0, 16), 4112)
	require.NoError(t, err)
	short.Store(true)
	for _, in := range []int{16, 4112} {
		out, err := cmd.exec(request(0x100, 0, in), 4112)
		require.NoError(t, err)
		require.True(t, allZero(out))
	}
}

func TestTokensAreNeverZeroAndFollowEachOther(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	var tokens []byte
	c.serve(t, func(q question) { // read has refused token 0
		tokens = append(tokens, q.token)
		q.answer(0, echo(q))
	})
	for i := range 520 {
		_, err := cmd.exec(numbered(0x100, uint32(i), 16), 16)
		require.NoError(t, err)
	}
	require.Len(t, tokens, 520)
	for i, token := range tokens {
		require.EqualValues(t, i%255+1, token)
	}
}

// Many goroutines share the slots. Answers come in any order, as events or not,
// with some events lost and some that say nothing true.
func TestManyCommandsInFlight(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events=%v", events), func(t *testing.T) {
			c := newFakeCard()
			cmd := fakeCommander(t, c, 20*time.Second)
			cmd.events.Store(events)
			rng := rand.New(rand.NewPCG(1, 2))
			var waiting []question
			most, rounds := 0, 0
			c.serve(t, func(q question) {
				if forPages := q.op() == opManagePages; forPages != (q.slot == 31) {
					t.Errorf("opcode %#x came through slot %d", q.op(), q.slot)
				}
				waiting = append(waiting, q)
				most = max(most, len(waiting))
				// Hold answers back while the other side can still fill slots.
				if rounds++; len(waiting) < 8 && rounds < 200 {
					return
				}
				rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
				for _, w := range waiting {
					w.answer(0, echo(w))
					if rng.IntN(4) > 0 {
						cmd.finish(1 << w.slot)
					} else {
						cmd.finish(rng.Uint32())
					}
				}
				waiting = waiting[:0]
			})
			const callers = 12
			var wg sync.WaitGroup
			for g := range callers {
				wg.Go(func() {
					for i := range 40 {
						op, n := uint16(0x100), 16+(g*131+i*17)%3000
						if g == 0 {
							op = opManagePages
						}
						ask := numbered(op, uint32(g<<8|i), n)
						got, err := cmd.exec(ask, 16+(i*97)%2000)
						if err != nil {
							t.Errorf("caller %d: %v", g, err)
							return
						}
						if !bytes.Equal(echo(question{in: ask, outLen: len(got)}), got) {
							t.Errorf("caller %d got the answer of another", g)
						}
					}
				})
				if g == callers-1 {
					wg.Go(func() { // lets the last ones go, when fewer than 8 are left
						for i := range 400 {
							_, _ = cmd.exec(numbered(0x100, uint32(0x8000+i), 16), 16)
						}
					})
				}
			}
			wg.Wait()
			require.GreaterOrEqual(t, most, 8)
		})
	}
}

// The emulated device completes what several goroutines ask at once, polled for
// and by event. It runs beside us, so a doorbell must not wipe out another.
func TestCommandsInFlightOnTheModel(t *testing.T) {
	d := testDevice(t, model.Config{})
	n, err := testOpen(d, wishes{queues: 1})
	require.NoError(t, err)
	n.fw.timeout = 5 * time.Second
	for _, events := range []bool{true, false} {
		n.fw.events.Store(events)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 100 {
					ctx, err := n.fw.queryVport()
					if err != nil {
						t.Error(err)
						return
					}
					if mac := vportPermanent.in(ctx)[2:8]; !bytes.Equal(mac, n.mac) {
						t.Errorf("answer of another command: % x", mac)
					}
				}
			})
		}
		wg.Wait()
	}
	require.NoError(t, n.close())
	requireClean(t, d)
}

// A command that timed out keeps its slot and its mailboxes until the device has
// answered; the late answer touches nobody else's (kernel commit c34ffd2378aa).
func TestAbandonedSlotIsNotReused(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 30*time.Millisecond)
	var late question
	var held atomic.Bool
	slots := make(chan int, 64)
	c.serve(t, func(q question) {
		if be32(q.in, 8) == 0xdead {
			late = q
			held.Store(true)
			return
		}
		slots <- q.slot
		q.answer(0, echo(q))
	})
	_, err := cmd.exec(numbered(0x100, 0xdead, 4112), 4112)
	require.ErrorContains(t, err, "QUERY_HCA_CAP")
	require.ErrorContains(t, err, "no answer within 30ms")
	require.True(t, held.Load())
	require.Zero(t, late.slot)

	cmd.timeout = 10 * time.Second
	ask := func(id uint32) {
		in := numbered(0x101, id, 4112)
		got, err := cmd.exec(in, 4112)
		require.NoError(t, err)
		require.Equal(t, echo(question{in: in, outLen: 4112}), got)
	}
	for i := range 20 {
		ask(uint32(i))
		require.NotZero(t, <-slots, "slot 0 belongs to the device")
	}
	// The late answer comes while another command is under way.
	late.answer(0, bytes.Repeat([]byte{0xbb}, 4112))
	cmd.finish(1)
	ask(100)
	require.Zero(t, <-slots, "the slot is of use again")
	late.answer(0, bytes.Repeat([]byte{0xcc}, 16)) // and a second time
	ask(101)
	require.Zero(t, <-slots)
}

// When firmware owes an answer for every slot, commands fail at once and say so,
// also those that were waiting for a slot. Late answers bring the slots back.
func TestEverySlotAbandoned(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 100*time.Millisecond)
	var mu sync.Mutex
	var held []question
	healthy := false
	c.serve(t, func(q question) {
		mu.Lock()
		defer mu.Unlock()
		if healthy {
			q.answer(0, echo(q))
			return
		}
		held = append(held, q)
	})
	errs := make(chan error, 64)
	begun := time.Now()
	for i := range 48 {
		go func() {
			_, err := cmd.exec(numbered(0x100, uint32(i), 32), 32)
			errs <- err
		}()
	}
	timeouts, stuck := 0, 0
	for range 48 {
		select {
		case err := <-errs:
			require.Error(t, err)
			if bytes.Contains([]byte(err.Error()), []byte("no answer within")) {
				timeouts++
			} else {
				require.ErrorContains(t, err, "firmware answers no command any more")
				stuck++
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of 48 commands hang", 48-timeouts-stuck)
		}
	}
	require.Equal(t, []int{31, 17}, []int{timeouts, stuck})
	require.Less(t, time.Since(begun), 5*time.Second)

	_, err := cmd.exec(numbered(opManagePages, 1, 16), 16)
	require.ErrorContains(t, err, "no answer", "pages have a slot of their own, which was free")
	mu.Lock()
	require.Len(t, held, 32)
	healthy = true
	for _, q := range held {
		q.answer(0, echo(q))
	}
	mu.Unlock()
	cmd.timeout = 10 * time.Second
	for i := range 40 {
		_, err := cmd.exec(numbered(0x100, uint32(i), 16), 16)
		require.NoError(t, err)
	}
	_, err = cmd.exec(numbered(opManagePages, 1, 16), 16)
	require.NoError(t, err)
}

// A device that is gone ends every command, also those that wait for a slot, and
// all later ones at once.
func TestDeviceLostUnderCommands(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 20*time.Second)
	var inFlight atomic.Int32
	c.serve(t, func(question) { inFlight.Add(1) })
	errs := make(chan error, 64)
	for i := range 40 {
		go func() {
			_, err := cmd.exec(numbered(0x100, uint32(i), 32), 32)
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return inFlight.Load() == 31 }, 10*time.Second, time.Millisecond)
	regWrite32(c.bar, 0, ^uint32(0))
	for range 40 {
		select {
		case err := <-errs:
			require.ErrorIs(t, err, errDeviceLost)
		case <-time.After(10 * time.Second):
			t.Fatal("a command outlives the device")
		}
	}
	begun := time.Now()
	_, err := cmd.exec(numbered(0x100, 1, 16), 16)
	require.ErrorIs(t, err, errDeviceLost)
	require.Less(t, time.Since(begun), time.Second)
}

func TestCommandErrorsSayWhatFailed(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	var delivery, status byte
	c.serve(t, func(q question) {
		out := make([]byte, q.outLen)
		out[0] = status
		putBE32(out, 4, 0xbadc0de)
		q.answer(delivery, out)
	})
	check := func(parts ...string) *cmdError {
		_, err := cmd.exec(request(opCreateCQ, 3, 528), 16)
		var ce *cmdError
		require.ErrorAs(t, err, &ce)
		require.NotContains(t, err.Error(), "\n")
		for _, p := range append(parts, "CREATE_CQ(0x3)") {
			require.ErrorContains(t, err, p)
		}
		return ce
	}
	for s, name := range statusNames {
		status = s
		ce := check(name, fmt.Sprintf("status %#x", s), "syndrome 0xbadc0de")
		require.Equal(t, s, ce.status)
		require.EqualValues(t, 0xbadc0de, ce.syndrome)
	}
	status = 0x77 // a status of tomorrow
	check("status 0x77", "syndrome 0xbadc0de")
	status = 0
	for s, name := range deliveryNames {
		delivery = s
		require.Equal(t, s, check("was not delivered", name, fmt.Sprintf("%#x", s)).delivery)
	}
	delivery = 0x7f
	check("was not delivered", "0x7f")
}

// What is not a command interface of ours is refused before it is used.
func TestCommandInterfaceThatWeDoNotKnow(t *testing.T) {
	for _, bad := range []struct {
		what  string
		spoil func(bar []byte)
		says  string
	}{
		{"revision", func(b []byte) { putBE32(b, 4, 6<<16) }, "command interface revision 6, this driver speaks 5"},
		{"too many entries", func(b []byte) { putBE32(b, 0x14, 0x66) }, "2^6 entries"},
		{"large entries", func(b []byte) { putBE32(b, 0x14, 0x57) }, "2^7 bytes"},
		{"nobody there", func(b []byte) { putBE32(b, 0, ^uint32(0)) }, errDeviceLost.Error()},
	} {
		c := newFakeCard()
		bad.spoil(c.bar)
		mem := newArena(c)
		_, err := newCommander(context.Background(), c.bar, mem, time.Second, nil)
		require.ErrorContains(t, err, bad.says, bad.what)
		require.NoError(t, mem.close())
		require.Empty(t, c.maps)
	}
}

// A queue of few slots serves pages and all else.
func TestSmallCommandQueues(t *testing.T) {
	for log := range uint32(3) {
		c := newFakeCard()
		putBE32(c.bar, segCmdqLo.off, log<<4|6)
		cmd := fakeCommander(t, c, 10*time.Second)
		c.serve(t, func(q question) {
			if q.slot >= 1<<log {
				t.Errorf("slot %d of %d", q.slot, 1<<log)
			}
			q.answer(0, echo(q))
		})
		var wg sync.WaitGroup
		for _, op := range []uint16{opManagePages, 0x100, 0x101, 0x107} {
			wg.Go(func() {
				for i := range 30 {
					if _, err := cmd.exec(numbered(op, uint32(i), 100), 600); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestTooLongMessagesAreRefused(t *testing.T) {
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	_, err := cmd.exec(request(0x100, 0, maxMessage+8), 16)
	require.ErrorContains(t, err, "too long")
	_, err = cmd.exec(request(0x100, 0, 16), maxMessage+8)
	require.ErrorContains(t, err, "too long")
}

// Ways in which a device answers badly.
const (
	badNothing = iota // a good answer
	badDelivery
	badStatus
	badToken
	badPointers
	badLengths
	badBlocks
	badEverything
	badTwice
	badLate
	badNever
	badKinds
)

// spoil answers q in one of the bad ways, driven by noise.
func spoil(q question, kind int, noise *rand.Rand) (late bool) {
	out := make([]byte, q.outLen)
	for i := 8; i < len(out); i++ {
		out[i] = byte(noise.Uint32())
	}
	junk := func(b []byte) {
		for i := range b {
			b[i] = byte(noise.Uint32())
		}
	}
	delivery := byte(0)
	switch kind {
	case badDelivery:
		delivery = byte(1 + noise.IntN(127))
	case badStatus:
		out[0] = byte(1 + noise.IntN(255))
		junk(out[4:8])
	case badToken:
		q.entry[entryToken] ^= byte(1 + noise.IntN(255))
		for _, b := range q.boxes {
			junk(b[cmdBlockToken:cmdBlockSize])
		}
	case badPointers:
		junk(q.entry[entryInPtr : entryInPtr+8])
		junk(q.entry[entryOutPtr : entryOutPtr+8])
		for _, b := range q.boxes {
			junk(b[cmdBlockNext : cmdBlockNext+8])
		}
	case badLengths:
		junk(q.entry[entryInLen : entryInLen+4])
		junk(q.entry[entryOutLen : entryOutLen+4])
	case badBlocks:
		for _, b := range q.boxes {
			junk(b)
		}
		junk(q.entry[entryOut : entryOut+cmdInline])
	case badEverything:
		junk(q.entry[:entryStatus])
		for _, b := range q.boxes {
			junk(b)
		}
		delivery = byte(noise.IntN(128))
	case badLate, badNever:
		return kind == badLate
	}
	if kind == badBlocks || kind == badEverything {
		q.giveBack(delivery)
		return false
	}
	q.answer(delivery, out)
	if kind == badTwice {
		q.answer(delivery, out)
	}
	return false
}

// FuzzCommander lets a device answer with garbage. Whatever it does, a command
// ends in time with the answer's length or an error of ours, memory that is not
// the command interface's stays as it was, and all memory comes back.
func FuzzCommander(f *testing.F) {
	for kind := range badKinds {
		f.Add([]byte{byte(kind)}, uint64(kind))
		f.Add([]byte{byte(kind), 0, byte(kind), 0, 0}, uint64(kind)*7)
	}
	f.Add([]byte{badNever, badNever, badLate, badLate, badTwice, badTwice, 0, 0}, uint64(3))
	f.Add([]byte{badEverything, badEverything, badNothing, badEverything}, uint64(4))
	f.Fuzz(func(t *testing.T, kinds []byte, seed uint64) {
		kinds = kinds[:min(len(kinds), 8)]
		noise := rand.New(rand.NewPCG(seed, 99))
		c := newFakeCard()
		mem := newArena(c)
		canary, err := mem.alloc(4 * pageSize)
		require.NoError(t, err)
		for i := range canary.b {
			canary.b[i] = 0xa5
		}
		cmd, err := newCommander(context.Background(), c.bar, mem, time.Second, nil)
		require.NoError(t, err)
		cmd.timeout = 4 * time.Millisecond
		cmd.events.Store(seed&1 != 0)
		stop := make(chan struct{})
		var done sync.WaitGroup
		var turn atomic.Int32 // commands that were asked
		done.Go(func() {
			answered := int32(0)
			var late []question
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
				if turn.Load() == answered {
					continue
				}
				for n := range commandSlots {
					e := c.entry(n)
					if loadByte(e, entryStatus)&entryOwnerBit == 0 || xor8(bytes.Clone(e)) != 0xff {
						continue
					}
					held := false
					for i := range late {
						held = held || late[i].slot == n && late[i].token == e[entryToken]
					}
					if held {
						continue
					}
					q, err := c.read(n, e)
					if err != nil {
						t.Error(err)
						return
					}
					kind := int(kinds[answered%int32(len(kinds))]) % badKinds
					if spoil(q, kind, noise) || kind == badNever {
						late = append(late, q)
					}
					cmd.finish(noise.Uint32())
					answered++
					break
				}
				if len(late) > 2 && kinds[0]%2 == 1 {
					late[0].answer(0, bytes.Repeat([]byte{7}, late[0].outLen))
					late = late[1:]
				}
			}
		})
		for i := range kinds {
			in := numbered(uint16(0x100+i), uint32(i), 16+noise.IntN(2000))
			want := 16 + noise.IntN(2000)
			turn.Add(1)
			begun := time.Now()
			out, err := cmd.exec(in, want)
			var ce *cmdError
			switch {
			case err == nil:
				require.Len(t, out, want)
			case errors.As(err, &ce):
				require.NotZero(t, ce.delivery|ce.status)
			default:
				require.Regexp(t, "no answer within|answers no command", err.Error())
			}
			require.Less(t, time.Since(begun), 10*time.Second, "a command hangs")
			if err != nil && ce == nil {
				turn.Store(int32(i + 1)) // it may or may not have been seen in time
			}
		}
		close(stop)
		done.Wait()
		require.Equal(t, bytes.Repeat([]byte{0xa5}, len(canary.b)), canary.b, "memory of another was written")
		mem.free(canary)
		owed := false
		for i := range cmd.slots {
			owed = owed || cmd.slots[i].abandoned && cmd.entry(i)[entryStatus]&entryOwnerBit != 0
		}
		cmd.close()
		require.Equal(t, owed, mem.used() != 0, "memory is kept only while the device may write to it")
		require.NoError(t, mem.close())
		require.Empty(t, c.maps)
	})
}
