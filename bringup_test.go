package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// watchedDevice is an emulated device that notes what the driver does with DMA
// memory and its bus.
type watchedDevice struct {
	*emulatedDevice
	t      testing.TB
	ranges []iovaRange // instead of the device's own, when not nil

	mu     sync.Mutex
	mapped map[uint64]uint64
	master bool
}

func watch(t testing.TB, d *emulatedDevice) *watchedDevice {
	return &watchedDevice{emulatedDevice: d, t: t, mapped: map[uint64]uint64{}}
}

func (d *watchedDevice) iovaRanges() []iovaRange {
	if d.ranges != nil {
		return d.ranges
	}
	return d.emulatedDevice.iovaRanges()
}

func (d *watchedDevice) mapDMA(mem []byte, iova uint64) error {
	d.mu.Lock()
	d.mapped[iova] = uint64(len(mem))
	d.mu.Unlock()
	for _, r := range d.iovaRanges() {
		if iova >= r.first && iova+uint64(len(mem))-1 <= r.last {
			return d.emulatedDevice.mapDMA(mem, iova)
		}
	}
	d.t.Errorf("%d bytes at %#x are outside of what the IOMMU allows", len(mem), iova)
	return errors.New("not allowed")
}

func (d *watchedDevice) unmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.master {
		d.t.Errorf("memory at %#x is freed while the device may reach it", iova)
	}
	if d.mapped[iova] != size {
		d.t.Errorf("%#x was mapped with %d bytes and is unmapped with %d", iova, d.mapped[iova], size)
	}
	delete(d.mapped, iova)
	return d.emulatedDevice.unmapDMA(iova, size)
}

func (d *watchedDevice) setBusMaster(on bool) error {
	d.mu.Lock()
	d.master = on
	d.mu.Unlock()
	return d.emulatedDevice.setBusMaster(on)
}

// requireFreed asserts that the driver holds nothing of this machine.
func (d *watchedDevice) requireFreed() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Empty(d.t, d.mapped, "DMA memory is still mapped")
	require.False(d.t, d.master, "the device may still do DMA")
}

// small are wishes that make bring-up quick.
var small = wishes{queues: 1, rxRing: 64, txRing: 64, promisc: true}

func (d *watchedDevice) open(ctx context.Context, o openOptions) (*nic, error) {
	if o.wishes.rxRing == 0 {
		o.wishes = small
	}
	if o.cpus == 0 {
		o.cpus = 2
	}
	return openNIC(ctx, d, d.virtual(), o)
}

// requireWorks opens and closes the NIC: whatever was, the next start works.
func (d *watchedDevice) requireWorks() {
	d.t.Helper()
	d.m.SetScript(nil)
	before := d.m.Stats()
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(d.t, err)
	require.NoError(d.t, n.close())
	s := d.m.Stats()
	require.Empty(d.t, s.Objects)
	require.Zero(d.t, s.Pages)
	require.Equal(d.t, before.CommandFails, s.CommandFails, s.LastRefusal)
	require.Equal(d.t, before.DMAFaults, s.DMAFaults, s.LastFault)
	require.Equal(d.t, before.BadDoorbells, s.BadDoorbells)
	d.requireFreed()
}

// shortTimeout lets firmware commands fail soon for the rest of a test.
func shortTimeout(t testing.TB, d time.Duration) {
	old := commandTimeout
	commandTimeout = d
	t.Cleanup(func() { commandTimeout = old })
}

// requireNothingRuns asserts that no more goroutines run than before.
func requireNothingRuns(t testing.TB, goroutines int) {
	t.Helper()
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			var b [1 << 16]byte
			t.Fatalf("goroutines are left:\n%s", b[:runtime.Stack(b[:], true)])
		}
	}
}

// A11: firmware that is still initializing is waited for, with progress once a
// second; for ever it is not, and a stop ends the wait at once.
func TestFirmwareStillInitializing(t *testing.T) {
	t.Run("comes up", func(t *testing.T) {
		d := watch(t, testDevice(t, model.Config{Script: &model.Script{NotReady: 1200 * time.Millisecond}}))
		var told []string
		begun := time.Now()
		n, err := d.open(context.Background(), openOptions{progress: func(s string) { told = append(told, s) }})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), 1200*time.Millisecond)
		require.NotEmpty(t, told)
		require.Contains(t, told[0], "emulated cx5: firmware is initializing (1s of at most 2m0s)")
		require.NoError(t, n.close())
	})
	t.Run("soon", func(t *testing.T) {
		d := watch(t, testDevice(t, model.Config{Script: &model.Script{NotReady: 300 * time.Millisecond}}))
		begun := time.Now()
		n, err := d.open(context.Background(), openOptions{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
		require.NoError(t, n.close())
	})
	t.Run("never", func(t *testing.T) {
		was := firmwareWait
		defer func() { firmwareWait = was }()
		firmwareWait = 150 * time.Millisecond
		d := watch(t, testDevice(t, model.Config{Script: &model.Script{NotReady: -1}}))
		for range 2 {
			begun := time.Now()
			_, err := d.open(context.Background(), openOptions{})
			require.ErrorContains(t, err, "firmware is still initializing after 150ms: try again")
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, time.Since(begun), 3*time.Second)
			d.requireFreed()
		}
		firmwareWait = was
		d.requireWorks()
	})
	t.Run("stopped", func(t *testing.T) {
		d := watch(t, testDevice(t, model.Config{Script: &model.Script{NotReady: -1}}))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		begun := time.Now()
		_, err := d.open(ctx, openOptions{})
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, time.Since(begun), 3*time.Second)
		d.requireFreed()
		d.requireWorks()
	})
}

// A stop takes effect between any two steps of opening.
func TestOpeningIsStopped(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	for _, at := range []int{0, 3, 9, 20, 33} {
		ctx, cancel := context.WithCancel(context.Background())
		seen := 0
		d.m.SetScript(&model.Script{Command: func(model.CommandInfo) model.Verdict {
			if seen++; seen > at {
				cancel()
			}
			return model.Verdict{}
		}})
		_, err := d.open(ctx, openOptions{})
		require.ErrorIs(t, err, context.Canceled)
		requireClean(t, d.emulatedDevice)
		d.requireFreed()
		cancel()
	}
	d.requireWorks()
}

// A13: a refusal says which command, which status, which syndrome; what was made
// is taken back, and the next start works (a refusal must not stick).
func TestRefusedCommandSaysWhichAndWhy(t *testing.T) {
	for _, op := range []uint16{opCreateCQ, opCreateEQ, opCreateSQ, opCreateRQ, opCreateTIR, opCreateMkey, opInitHCA, opSetFlowTableEntry, opModifySQ} {
		t.Run(opcodeNames[op], func(t *testing.T) {
			d := watch(t, testDevice(t, model.Config{}))
			for range 2 {
				d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
					if c.Opcode == op {
						return model.Verdict{Status: 8, Syndrome: 0x5f12c9}
					}
					return model.Verdict{}
				}})
				_, err := d.open(context.Background(), openOptions{})
				require.ErrorContains(t, err, "firmware command "+opcodeNames[op]+" failed: EXCEED_LIM (status 0x8), syndrome 0x5f12c9")
				require.NotContains(t, err.Error(), "\n")
				require.NotContains(t, err.Error(), "taking back", "teardown failed too")
				requireClean(t, d.emulatedDevice)
				d.requireFreed()
			}
			d.requireWorks()
		})
	}
}

// A14 on the whole NIC: one command is answered late; others go on meanwhile
// through other slots, and the slot comes back after the answer.
func TestLateAnswerOnAnOpenNIC(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(t, err)
	var mu sync.Mutex
	var slots []int
	first := true
	const late = 800 * time.Millisecond
	d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
		mu.Lock()
		defer mu.Unlock()
		slots = append(slots, c.Slot)
		if first {
			first = false
			return model.Verdict{Delay: late}
		}
		return model.Verdict{}
	}})
	n.fw.timeout = 50 * time.Millisecond
	begun := time.Now()
	_, err = n.fw.queryVport()
	require.ErrorContains(t, err, "QUERY_NIC_VPORT_CONTEXT: no answer within 50ms")
	n.fw.timeout = 20 * time.Second
	for time.Since(begun) < late/2 {
		ctx, err := n.fw.queryVport()
		require.NoError(t, err)
		require.Equal(t, []byte(n.mac), vportPermanent.in(ctx)[2:8])
	}
	mu.Lock()
	require.Zero(t, slots[0])
	require.NotContains(t, slots[1:], 0, "the slot was reused while its answer was due")
	slots = slots[:0]
	mu.Unlock()
	time.Sleep(late)
	_, err = n.fw.queryVport()
	require.NoError(t, err)
	mu.Lock()
	require.Equal(t, []int{0}, slots)
	mu.Unlock()
	require.NoError(t, n.close())
	requireClean(t, d.emulatedDevice)
	d.requireFreed()
}

// A command that is never answered ends bring-up with a clear error and leaves
// nothing behind, whichever command it is.
func TestUnansweredCommandEndsBringUp(t *testing.T) {
	shortTimeout(t, 150*time.Millisecond)
	d := watch(t, testDevice(t, model.Config{}))
	whole := &commandLog{fail: -1}
	d.m.SetScript(whole.script())
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(t, err)
	total := whole.count()
	require.NoError(t, n.close())
	goroutines := runtime.NumGoroutine()
	for at := 0; at < total; at += 1 + at/4 {
		seen := 0
		d.m.SetScript(&model.Script{Command: func(model.CommandInfo) model.Verdict {
			seen++
			return model.Verdict{Swallow: seen == at+1}
		}})
		begun := time.Now()
		_, err := d.open(context.Background(), openOptions{})
		require.Error(t, err, "command %d was never answered and nobody noticed", at)
		require.ErrorContains(t, err, "no answer within 150ms", "command %d", at)
		require.ErrorContains(t, err, nameOf(opcodeNames, whole.seen[at].Opcode))
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, time.Since(begun), 5*time.Second)
		d.requireFreed()
		requireNothingRuns(t, goroutines)
	}
	shortTimeout(t, 20*time.Second)
	d.requireWorks()
}

// A device that vanishes in the middle of bring-up ends it as lost, with all of
// our memory freed; when it comes back it works.
func TestDeviceVanishesDuringBringUp(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	whole := &commandLog{fail: -1}
	d.m.SetScript(whole.script())
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(t, err)
	total := whole.count()
	require.NoError(t, n.close())
	goroutines := runtime.NumGoroutine()
	for at := 0; at < total; at += 1 + at/12 {
		var gone atomic.Bool
		seen := 0
		d.m.SetScript(&model.Script{Vanish: gone.Load, Command: func(model.CommandInfo) model.Verdict {
			if seen++; seen == at+1 {
				gone.Store(true)
			}
			return model.Verdict{Swallow: gone.Load()}
		}})
		begun := time.Now()
		_, err := d.open(context.Background(), openOptions{})
		require.ErrorIs(t, err, errDeviceLost, "command %d", at)
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, time.Since(begun), 5*time.Second)
		d.requireFreed()
		requireNothingRuns(t, goroutines)
	}
	d.requireWorks()
}

// The same in the middle of closing.
func TestDeviceVanishesDuringTeardown(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(t, err)
	whole := &commandLog{fail: -1}
	d.m.SetScript(whole.script())
	require.NoError(t, n.close())
	total := whole.count()
	require.Greater(t, total, 30)
	goroutines := runtime.NumGoroutine()
	for at := 0; at < total; at += 1 + at/8 {
		d.m.SetScript(nil)
		n, err := d.open(context.Background(), openOptions{})
		require.NoError(t, err)
		var gone atomic.Bool
		seen := 0
		d.m.SetScript(&model.Script{Vanish: gone.Load, Command: func(model.CommandInfo) model.Verdict {
			if seen++; seen == at+1 {
				gone.Store(true)
			}
			return model.Verdict{Swallow: gone.Load()}
		}})
		begun := time.Now()
		require.ErrorIs(t, n.close(), errDeviceLost)
		require.Less(t, time.Since(begun), 5*time.Second)
		require.NoError(t, n.close(), "closing twice")
		d.requireFreed()
		requireNothingRuns(t, goroutines)
	}
	d.requireWorks()
}

// A17: a port in InfiniBand mode is refused, with the way to switch it.
func TestInfinibandPortIsRefused(t *testing.T) {
	for _, profile := range model.Profiles() {
		d := watch(t, testDevice(t, model.Config{Profile: profile, Script: &model.Script{Infiniband: true}}))
		_, err := d.open(context.Background(), openOptions{})
		require.ErrorContains(t, err, "link type is InfiniBand")
		require.ErrorContains(t, err, "set LINK_TYPE_P1=2")
		require.NotContains(t, err.Error(), "\n")
		requireClean(t, d.emulatedDevice)
		d.requireFreed()
	}
}

// goldenStep is a run of commands, and which kinds of function see it.
type goldenStep struct {
	commands string
	only     string // profiles, "" is all
}

const (
	notCX4 = "cx5 cx6dx cx5-vf"
	notVF  = "cx4 cx5 cx6dx"
	onlyVF = "cx5-vf"
)

// The commands that bring up a NIC with two channels, and take it down. A change
// here is a change of what some generation of cards sees (A16). That the start is
// the recorded driver's is checked apart, by TestBringUpOrderIsTheRecordedOne.
var goldenUp = []goldenStep{
	{"ENABLE_HCA QUERY_ISSI SET_ISSI QUERY_PAGES(0x1) MANAGE_PAGES(0x1)", ""},
	{"ACCESS_REG", notVF}, // host endianness
	{"QUERY_HCA_CAP QUERY_HCA_CAP(0x1) SET_HCA_CAP QUERY_PAGES(0x2) MANAGE_PAGES(0x1) INIT_HCA", ""},
	{"QUERY_HCA_CAP(0x1) QUERY_HCA_CAP(0x3) QUERY_HCA_CAP(0xf)", ""},
	{"SET_DRIVER_VERSION", notCX4},
	{"QUERY_ADAPTER", ""},
	{"ACCESS_REG(0x1)", notVF}, // the port's largest MTU
	{"QUERY_NIC_VPORT_CONTEXT", onlyVF},
	{"QUERY_NIC_VPORT_CONTEXT ALLOC_UAR CREATE_EQ ALLOC_UAR CREATE_EQ ALLOC_UAR CREATE_EQ", ""},
	{"ALLOC_PD ALLOC_TRANSPORT_DOMAIN ALLOC_Q_COUNTER CREATE_MKEY CREATE_TIS", ""},
	{"ACCESS_REG ACCESS_REG(0x1)", notVF}, // set the MTU and read it back
	{"MODIFY_NIC_VPORT_CONTEXT MODIFY_NIC_VPORT_CONTEXT", ""},
	{goldenChannel, ""},
	{goldenChannel, ""},
	{"CREATE_RQT CREATE_FLOW_TABLE", ""},
	{"CREATE_TIR CREATE_FLOW_GROUP SET_FLOW_TABLE_ENTRY CREATE_TIR SET_FLOW_TABLE_ENTRY", ""},
	{"CREATE_TIR CREATE_FLOW_GROUP SET_FLOW_TABLE_ENTRY CREATE_TIR SET_FLOW_TABLE_ENTRY", ""},
	{"CREATE_TIR SET_FLOW_TABLE_ENTRY CREATE_TIR SET_FLOW_TABLE_ENTRY", ""},
	{"CREATE_TIR CREATE_FLOW_GROUP SET_FLOW_TABLE_ENTRY CREATE_TIR SET_FLOW_TABLE_ENTRY", ""},
	{"CREATE_TIR CREATE_FLOW_GROUP SET_FLOW_TABLE_ENTRY", ""},
	{"CREATE_FLOW_TABLE CREATE_FLOW_GROUP CREATE_FLOW_GROUP CREATE_FLOW_GROUP", ""},
	{"MODIFY_NIC_VPORT_CONTEXT", ""}, // promiscuous
	{"SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY", ""},
	// Only now: a VF's link is up already, and no packet shall meet half a filter.
	{"SET_FLOW_TABLE_ROOT", ""},
	{"ACCESS_REG", notVF}, // port up
	{"QUERY_VPORT_STATE", ""},
}

const goldenChannel = "ALLOC_UAR ALLOC_UAR CREATE_EQ CREATE_CQ CREATE_RQ MODIFY_RQ ALLOC_UAR CREATE_CQ CREATE_SQ MODIFY_SQ"

var goldenDown = []goldenStep{
	{"ACCESS_REG", notVF}, // port down
	{"DELETE_FLOW_TABLE_ENTRY DELETE_FLOW_TABLE_ENTRY DELETE_FLOW_TABLE_ENTRY DELETE_FLOW_TABLE_ENTRY", ""},
	{"MODIFY_NIC_VPORT_CONTEXT", ""},
	{"DESTROY_FLOW_GROUP DESTROY_FLOW_GROUP DESTROY_FLOW_GROUP DESTROY_FLOW_TABLE", ""},
	{"DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DESTROY_TIR", ""},
	{"DELETE_FLOW_TABLE_ENTRY DESTROY_TIR DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DESTROY_TIR", ""},
	{"DELETE_FLOW_TABLE_ENTRY DESTROY_TIR DELETE_FLOW_TABLE_ENTRY DESTROY_TIR", ""},
	{"DELETE_FLOW_TABLE_ENTRY DESTROY_TIR DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DESTROY_TIR", ""},
	{"DELETE_FLOW_TABLE_ENTRY DESTROY_TIR DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DESTROY_TIR", ""},
	{"DESTROY_FLOW_TABLE DESTROY_RQT", ""},
	{goldenChannelDown, ""},
	{goldenChannelDown, ""},
	{"DESTROY_TIS DESTROY_MKEY DEALLOC_Q_COUNTER DEALLOC_TRANSPORT_DOMAIN DEALLOC_PD", ""},
	{"DESTROY_EQ DEALLOC_UAR DESTROY_EQ DEALLOC_UAR DESTROY_EQ DEALLOC_UAR", ""},
	{"TEARDOWN_HCA MANAGE_PAGES(0x2) DISABLE_HCA", ""},
}

const goldenChannelDown = "DESTROY_SQ DESTROY_CQ DEALLOC_UAR DESTROY_RQ DESTROY_CQ DESTROY_EQ DEALLOC_UAR DEALLOC_UAR"

// golden is a table as one function sees it.
func golden(steps []goldenStep, profile string) (words []string) {
	for _, s := range steps {
		if s.only == "" || slices.Contains(strings.Fields(s.only), profile) {
			words = append(words, strings.Fields(s.commands)...)
		}
	}
	return words
}

// asGolden writes commands as the tables do. How often pages are asked back for
// depends on how many there were: it counts once.
func asGolden(seen []model.CommandInfo) (words []string) {
	for _, c := range seen {
		word := nameOf(opcodeNames, c.Opcode)
		if c.OpMod != 0 {
			word += fmt.Sprintf("(%#x)", c.OpMod)
		}
		if c.Opcode == opManagePages && c.OpMod == pagesTake && words[len(words)-1] == word {
			continue
		}
		words = append(words, word)
	}
	return words
}

func TestCommandOrderIsGolden(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			log := &commandLog{fail: -1}
			d := testDevice(t, model.Config{Profile: profile, Script: log.script()})
			n, err := testOpen(d, wishes{queues: 2, promisc: true})
			require.NoError(t, err)
			up := log.count()
			require.NoError(t, n.close())
			require.Equal(t, golden(goldenUp, profile), asGolden(log.seen[:up]))
			require.Equal(t, golden(goldenDown, profile), asGolden(log.seen[up:]))
		})
	}
}

// The recorded driver's commands come in its order: of each kind that both send,
// the first comes where the recorded first one does.
func TestBringUpOrderIsTheRecordedOne(t *testing.T) {
	log := &commandLog{fail: -1}
	d := testDevice(t, model.Config{Profile: "cx4", Script: log.script()})
	n, err := testOpen(d, wishes{queues: 1})
	require.NoError(t, err)
	require.NoError(t, n.close())
	ours := map[string]int{}
	for i, c := range log.seen {
		key := fmt.Sprintf("%#x/%#x", c.Opcode, c.OpMod)
		if _, ok := ours[key]; !ok {
			ours[key] = i
		}
	}
	seen := map[string]bool{}
	last, common := -1, 0
	for _, r := range readTrace(t) {
		op, mod := parseHex(t, r.Opcode), parseHex(t, r.OpMod)
		if op == opQueryHCACap && mod > 1 {
			continue // other groups are read in no order that matters
		}
		key := fmt.Sprintf("%#x/%#x", op, mod)
		at, both := ours[key]
		if !both || seen[key] {
			continue
		}
		seen[key] = true
		common++
		require.Greater(t, at, last, "%s %#x comes earlier than in the recorded bring-up", r.Name, mod)
		last = at
	}
	require.GreaterOrEqual(t, common, 13)
}

func parseHex(t *testing.T, s string) (v uint64) {
	_, err := fmt.Sscanf(s, "0x%x", &v)
	require.NoError(t, err)
	return v
}

// Firmware may ask for pages, and offer some back, at any time.
func TestPageRequestsAtRunTime(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	n, err := d.open(context.Background(), openOptions{})
	require.NoError(t, err)
	base, used := n.pages.lent(), n.mem.used()
	settle := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool { return n.pages.lent() == want && d.m.Stats().Pages == want }, 10*time.Second, time.Millisecond)
	}
	for _, k := range []int{1, 7, 600, 1300} {
		require.True(t, d.m.RequestPages(k))
		settle(base + k)
		require.True(t, d.m.RequestPages(-k))
		settle(base)
	}
	// Many requests at once, and memory that comes back in pieces.
	for range 10 {
		require.True(t, d.m.RequestPages(50))
	}
	settle(base + 500)
	for range 10 {
		require.True(t, d.m.RequestPages(-50))
	}
	settle(base)
	require.Zero(t, n.control.failures.get())
	require.LessOrEqual(t, n.mem.used(), used+64*pageSize, "memory that came back is not free")

	// A confused firmware gets nothing, and the NIC lives on.
	for i, k := range []int{maxGive + 1, 1 << 30, 1<<31 - 1} {
		require.True(t, d.m.RequestPages(k))
		require.Eventually(t, func() bool { return n.control.failures.get() == uint64(i+1) }, 10*time.Second, time.Millisecond)
		require.Equal(t, base, n.pages.lent())
	}
	_, err = n.fw.queryVport()
	require.NoError(t, err)
	require.NoError(t, n.close())
	requireClean(t, d.emulatedDevice)
	d.requireFreed()
}

// Pages that firmware was given without ever saying so may be in use: they are
// not handed out again. Pages that it refused are.
func TestPagesOfAnUnansweredGift(t *testing.T) {
	for _, verdict := range []model.Verdict{{Status: 3, Syndrome: 1}, {Swallow: true}} {
		d := watch(t, testDevice(t, model.Config{}))
		n, err := d.open(context.Background(), openOptions{})
		require.NoError(t, err)
		base, used := n.pages.lent(), n.mem.used()
		n.fw.timeout = 30 * time.Millisecond
		d.m.SetScript(&model.Script{Command: func(c model.CommandInfo) model.Verdict {
			if c.Opcode == opManagePages && c.OpMod == pagesGive {
				return verdict
			}
			return model.Verdict{}
		}})
		require.True(t, d.m.RequestPages(300))
		require.Eventually(t, func() bool { return n.control.failures.get() == 1 }, 10*time.Second, time.Millisecond)
		require.Equal(t, base, n.pages.lent())
		n.fw.timeout = 20 * time.Second
		if verdict.Swallow {
			require.GreaterOrEqual(t, n.mem.used(), used+300*pageSize, "firmware may write to these pages any time")
			require.ErrorContains(t, n.close(), "firmware answers no command any more")
		} else {
			require.Less(t, n.mem.used(), used+300*pageSize)
			require.NoError(t, n.close())
			requireClean(t, d.emulatedDevice)
		}
		d.requireFreed()
		d.requireWorks()
	}
}

// NICs that share memory outlive one whose device is lost: nothing of the shared
// memory goes with it.
func TestLostDeviceGivesSharedMemoryBack(t *testing.T) {
	d := watch(t, testDevice(t, model.Config{}))
	mem := newArena(d)
	var gone atomic.Bool
	for range 2 {
		n, err := d.open(context.Background(), openOptions{mem: mem})
		require.NoError(t, err)
		require.NotZero(t, mem.used())
		gone.Store(true)
		d.m.SetScript(&model.Script{Vanish: gone.Load})
		require.Eventually(t, func() bool { return regRead32(d.bar0(), 0) == ^uint32(0) }, 10*time.Second, time.Millisecond)
		require.ErrorIs(t, n.close(), errDeviceLost)
		require.Zero(t, mem.used(), "memory that went with the device")
		gone.Store(false)
		require.Eventually(t, func() bool { return regRead32(d.bar0(), 0) != ^uint32(0) }, 10*time.Second, time.Millisecond)
	}
	require.NoError(t, mem.close())
	d.requireFreed()
	d.requireWorks()
}

// answers spoils the answers of one command.
func answers(op uint16, spoil func(out []byte)) *model.Script {
	return &model.Script{Answer: func(seen uint16, out []byte) {
		if seen == op {
			spoil(out)
		}
	}}
}

// What firmware says is checked before it is believed.
func TestAbsurdAnswersAreRefused(t *testing.T) {
	for _, c := range []struct {
		what   string
		script *model.Script
		says   string
	}{
		{"2^31-1 pages", answers(opQueryPages, func(b []byte) { queryPagesOutNumPages.set(b, 1<<31-1) }), "firmware asks for 2147483647 pages"},
		{"one page too many", answers(opQueryPages, func(b []byte) { queryPagesOutNumPages.set(b, maxGive+1) }), "refused"},
		// -2^31 pages is none at this stage; firmware then has too few to start.
		{"2^31 pages", answers(opQueryPages, func(b []byte) { queryPagesOutNumPages.set(b, 1<<31) }), "INIT_HCA failed: NO_RESOURCES"},
		{"UAR beyond BAR0", answers(opAllocUAR, func(b []byte) { cmdObject.set(b, 8192) }), "UAR 0x2000 lies beyond BAR0 of 32 MiB"},
		{"last UAR of all", answers(opAllocUAR, func(b []byte) { cmdObject.set(b, 0xffffff) }), "UAR 0xffffff lies beyond BAR0"},
		{"interface steps", answers(opQueryISSI, func(b []byte) { issiOutSupported.set(b, 1) }), "needs step 1: update the card's firmware"},
		{"no capabilities", answers(opQueryHCACap, func(b []byte) { clear(b[16:]) }), ""},
		{"all capabilities", answers(opQueryHCACap, func(b []byte) {
			for i := range b[16:] {
				b[16+i] = 0xff
			}
		}), ""},
		{"port MTU 0", answers(opAccessReg, func(b []byte) { clear(b[16:]) }), "port MTU: the port says that it takes 0 bytes at most"},
		{"more pages than asked for", answers(opManagePages, func(b []byte) {
			if len(b) > 16 {
				managePagesOutNum.set(b, 1<<31)
			}
		}), "firmware returned"},
		{"pages that were never lent", answers(opManagePages, func(b []byte) {
			if len(b) > 16 {
				putBE64(b, managePagesOutPas.off, 0x1234000)
			}
		}), "page 0x1234000, which it was never given"},
		{"one page twice", answers(opManagePages, func(b []byte) {
			if len(b) > 24 {
				copy(b[managePagesOutPas.off+8:], b[managePagesOutPas.off:managePagesOutPas.off+8])
			}
		}), "which it was never given"},
		{"no page back", answers(opManagePages, func(b []byte) { managePagesOutNum.set(b, 0) }), "firmware keeps"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := watch(t, testDevice(t, model.Config{Script: c.script}))
			n, err := d.open(context.Background(), openOptions{})
			if err == nil {
				err = n.close()
			}
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\n")
			require.ErrorContains(t, err, c.says)
			d.requireFreed()
			d.requireWorks()
		})
	}
}

// FuzzBringUp spoils the answers of firmware at random. Opening and closing end
// with or without an error, never with a panic or a hang, and all memory is
// freed; a healthy device works right after.
func FuzzBringUp(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed, uint16(seed*5), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, from uint16, kind uint8) {
		shortTimeout(t, 2*time.Second)
		d := watch(t, testDevice(t, model.Config{Profile: model.Profiles()[seed%4]}))
		noise := rand.New(rand.NewPCG(seed, 5))
		seen := 0
		d.m.SetScript(&model.Script{Answer: func(op uint16, out []byte) {
			if seen++; seen < int(from%128) || seen > int(from%128)+1+int(kind%8) {
				return
			}
			from := 8 // leave status and syndrome
			if kind&0x80 != 0 {
				from = 0
			}
			for i := from; i < len(out); i++ {
				switch kind >> 3 % 4 {
				case 0:
					out[i] = byte(noise.Uint32())
				case 1:
					out[i] = 0xff
				case 2:
					out[i] ^= 1 << noise.IntN(8)
				default:
					if noise.IntN(16) == 0 {
						out[i] = byte(noise.Uint32())
					}
				}
			}
			if op == opQueryPages { // memory is this machine's, not ours to fill
				queryPagesOutNumPages.set(out, queryPagesOutNumPages.get(out)&0x80000fff)
			}
		}})
		n, err := d.open(context.Background(), openOptions{})
		if err == nil {
			err = n.close()
		}
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
		d.requireFreed()
		d.requireWorks()
	})
}

// Whatever bus addresses the IOMMU allows: enough is used, too few are refused.
func TestBusAddressRanges(t *testing.T) {
	for _, c := range []struct {
		what   string
		ranges []iovaRange
		says   string // "" works
	}{
		{"none", []iovaRange{}, "no room for"},
		{"one page", []iovaRange{{0x1000, 0x1fff}}, "no room for"},
		{"many crumbs", []iovaRange{{0, 0xfffff}, {0x200001, 0x3fffff}, {1 << 40, 1<<40 + 99}}, "no room for"},
		{"upside down", []iovaRange{{1 << 33, 1 << 32}}, "no room for"},
		{"odd ends", []iovaRange{{3, 200<<20 + 5}}, ""},
		{"low alone", []iovaRange{{0, 1<<28 - 1}}, ""},
		{"pieces of 8 MiB", rangePieces(16, 8<<20, 64<<20), ""},
		{"up to the last address", []iovaRange{{^uint64(0) - 128<<20 + 1, ^uint64(0)}}, ""},
		{"beyond 4 GiB", []iovaRange{{1<<32 - 4096, 1 << 40}}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := watch(t, testDevice(t, model.Config{}))
			d.ranges = c.ranges
			n, err := d.open(context.Background(), openOptions{})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "\n")
			} else {
				require.NoError(t, err)
				require.NoError(t, n.close())
				requireClean(t, d.emulatedDevice)
			}
			clear(d.mapped) // a mapping that was refused is noted too
			d.requireFreed()
		})
	}
}

// rangePieces are n ranges of size bytes, gap apart.
func rangePieces(n int, size, gap uint64) (out []iovaRange) {
	for i := range uint64(n) {
		out = append(out, iovaRange{1<<33 + i*gap, 1<<33 + i*gap + size - 1})
	}
	return out
}
