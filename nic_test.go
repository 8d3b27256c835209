package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// testDevice is an emulated device whose state is checked when the test ends.
func testDevice(t testing.TB, cfg model.Config) *emulatedDevice {
	t.Helper()
	if cfg.Profile == "" {
		cfg.Profile = "cx5"
	}
	if cfg.Wire == nil {
		w, err := model.ParseWire("none")
		require.NoError(t, err)
		cfg.Wire = w
	}
	d, err := openEmulated(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	return d
}

// requireClean asserts that the device holds nothing any more.
func requireClean(t testing.TB, d *emulatedDevice) {
	t.Helper()
	s := d.m.Stats()
	require.Empty(t, s.Objects, "objects left in the device")
	require.Zero(t, s.Pages, "pages left with firmware")
	require.Zero(t, s.DMAFaults, "DMA fault: %s", s.LastFault)
	require.Zero(t, s.BadDoorbells, s.BadDoorbell)
}

func testOpen(d *emulatedDevice, w wishes) (*nic, error) {
	return openNIC(context.Background(), d, d.virtual(), openOptions{wishes: w, cpus: 2})
}

func TestBringUpAndTeardownLeaveNothing(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			d := testDevice(t, model.Config{Profile: profile})
			for range 2 { // the second time shows that the device was left clean
				n, err := testOpen(d, wishes{promisc: true, largest: true})
				require.NoError(t, err)
				require.NotEmpty(t, d.m.Stats().Objects)
				require.NotZero(t, n.pages.lent())
				require.NoError(t, n.close())
				requireClean(t, d)
				require.Zero(t, n.pages.lent())
			}
		})
	}
}

// commandLog records what a driver asks.
type commandLog struct {
	mu   sync.Mutex
	seen []model.CommandInfo
	fail int // command to fail; -1 none
}

func (l *commandLog) script() *model.Script {
	return &model.Script{Command: func(c model.CommandInfo) model.Verdict {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := len(l.seen)
		c.In = bytes.Clone(c.In)
		l.seen = append(l.seen, c)
		if n == l.fail {
			return model.Verdict{Status: 0x8, Syndrome: 0x1234}
		}
		return model.Verdict{}
	}}
}

func (l *commandLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// Bring-up that fails at any command takes back all that came before.
func TestBringUpCutAtEveryCommand(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5", "cx5-vf"} {
		whole := &commandLog{fail: -1}
		d := testDevice(t, model.Config{Profile: profile, Script: whole.script()})
		n, err := testOpen(d, wishes{queues: 2, promisc: true, rxRing: 64, txRing: 64})
		require.NoError(t, err)
		total := whole.count()
		require.NoError(t, n.close())
		require.Greater(t, total, 60)
		for at := range total {
			cut := &commandLog{fail: at}
			d.m.SetScript(cut.script())
			_, err := testOpen(d, wishes{queues: 2, promisc: true, rxRing: 64, txRing: 64})
			require.Error(t, err, "%s: command %d failed and nobody noticed", profile, at)
			var ce *cmdError
			require.True(t, errors.As(err, &ce), "command %d: %v", at, err)
			require.EqualValues(t, 0x8, ce.status)
			require.Contains(t, err.Error(), "EXCEED_LIM")
			require.Contains(t, err.Error(), "0x1234")
			require.Contains(t, err.Error(), nameOf(opcodeNames, whole.seen[at].Opcode))
			requireClean(t, d)
		}
	}
}

// recorded is one command of the recorded bring-up.
type recorded struct {
	Name   string `json:"name"`
	Opcode string `json:"opcode"`
	OpMod  string `json:"op_mod"`
	Input  string `json:"input"`
	InLen  int    `json:"input_len"`
	Missed int    `json:"input_missing"`
}

func readTrace(t *testing.T) (out []recorded) {
	b, err := os.ReadFile(sharedFile(t, "traces", "connectx4-fw14.12.1220.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(b) {
		var r recorded
		require.NoError(t, json.Unmarshal(line, &r))
		out = append(out, r)
	}
	return out
}

// explained lists where our commands may differ from the recorded ones: bytes
// from..to of a command, and why.
var explained = []struct {
	op       uint16
	from, to int
	why      string
}{
	{opManagePages, 12, 1 << 20, "number and addresses of pages"},
	{opSetHCACap, 16, 16 + 4096, "each side takes the capabilities it read and edits them: compared apart"},
	{opCreateEQ, 16 + 12, 16 + 16, "size of the ring and the UAR page: each of our event queues has its own"},
	{opCreateEQ, 16 + 20, 16 + 24, "interrupt vector: all our control queues share vector 0"},
	{opCreateEQ, 16 + 24, 16 + 28, "log page size: our rings are lists of 4096-byte pages, the recorded one is a page of many"},
	{opCreateEQ, 88, 96, "the async mask: we ask for the events that we handle"},
	{opCreateEQ, 272, 1 << 20, "addresses of the ring's pages"},
}

// Commands that both we and the recorded driver send have the same length and
// set the same bytes, but for what is explained.
func TestCommandsLookLikeRecordedOnes(t *testing.T) {
	log := &commandLog{fail: -1}
	d := testDevice(t, model.Config{Profile: "cx4", Script: log.script()})
	n, err := testOpen(d, wishes{queues: 1})
	require.NoError(t, err)
	require.NoError(t, n.close())
	compared := 0
	for _, r := range readTrace(t) {
		op, err := strconv.ParseUint(r.Opcode, 0, 16)
		require.NoError(t, err)
		mod, err := strconv.ParseUint(r.OpMod, 0, 16)
		require.NoError(t, err)
		in, err := hex.DecodeString(r.Input)
		require.NoError(t, err)
		ours := findCommand(log.seen, uint16(op), uint16(mod), in)
		if ours == nil {
			continue
		}
		compared++
		what := fmt.Sprintf("%s(%#x)", r.Name, mod)
		if op != opManagePages && op != opCreateEQ {
			require.Equal(t, r.InLen, len(ours), "%s: length", what)
		}
		for i := range min(len(in), len(ours)) {
			if (in[i] != 0) != (ours[i] != 0) && !isExplained(uint16(op), i) {
				t.Errorf("%s byte %#x: recorded %#02x, ours %#02x", what, i, in[i], ours[i])
			}
		}
	}
	require.Greater(t, compared, 25, "too few commands in common to mean anything")
}

func isExplained(op uint16, at int) bool {
	for _, e := range explained {
		if e.op == op && at >= e.from && at < e.to {
			return true
		}
	}
	return false
}

// findCommand picks our command that corresponds to a recorded one; event queues
// correspond by whether they take events.
func findCommand(seen []model.CommandInfo, op, mod uint16, in []byte) []byte {
	for _, c := range seen {
		if c.Opcode != op || c.OpMod != mod {
			continue
		}
		if op == opCreateEQ && (be64(createEQInEventBitmask.in(in), 0) != 0) != (be64(createEQInEventBitmask.in(c.In), 0) != 0) {
			continue
		}
		return c.In
	}
	return nil
}

// lent is the number of pages that firmware has.
func (p *firmwarePages) lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.given)
}
