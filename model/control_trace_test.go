package model

// control_trace_test.go replays the bring-up that was recorded on a real
// ConnectX-4 Lx against profile cx4, and holds the answers against the recorded
// ones byte for byte. Only addresses are our own.

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type traceRecord struct {
	Seq          int    `json:"seq"`
	Name         string `json:"name"`
	Input        string `json:"input"`
	Output       string `json:"output"`
	InputLen     int    `json:"input_len"`
	OutputLen    int    `json:"output_len"`
	Slot         int    `json:"slot"`
	InputMissing int    `json:"input_missing"`
	Completion   string `json:"completion"`
}

func loadTrace(t testing.TB) []traceRecord {
	f, err := os.Open(sharedFile(t, "traces", "connectx4-fw14.12.1220.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	var out []traceRecord
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		var r traceRecord
		require.NoError(t, json.Unmarshal(s.Bytes(), &r))
		out = append(out, r)
	}
	require.NoError(t, s.Err())
	return out
}

// ownAddresses puts addresses of h into a recorded message.
func (h *ctlHost) ownAddresses(r traceRecord, in []byte) {
	switch r.Name {
	case "MANAGE_PAGES":
		for i := 16; i+8 <= len(in); i += 8 {
			binary.BigEndian.PutUint64(in[i:], h.alloc(4096))
		}
	case "CREATE_EQ":
		c := createEQEqContextEntry.in(in)
		size := 4096 << eqcLogPageSize.get(c)
		h.used = (h.used + size - 1) / size * size // pages are aligned to their size
		at := ctlBase + uint64(h.used)
		h.used += size
		binary.BigEndian.PutUint64(in[272:], at)
	}
}

func TestRecordedBringUp(t *testing.T) {
	trace := loadTrace(t)
	require.Len(t, trace, 42)
	for _, mapped := range []bool{false, true} {
		h := newCtlHost(t, "cx4", nil)
		h.mapped = mapped
		events := 0
		for _, r := range trace {
			in, err := hex.DecodeString(r.Input)
			require.NoError(t, err)
			in = append(in, make([]byte, r.InputLen-len(in))...)
			want, err := hex.DecodeString(r.Output)
			require.NoError(t, err)
			h.ownAddresses(r, in)
			h.post(r.Slot, in, r.OutputLen)
			out, delivery := h.collect(r.Slot, r.OutputLen)
			require.Zero(t, delivery, "%d %s", r.Seq, r.Name)
			require.Equal(t, want, out[:len(want)], "%d %s: %s", r.Seq, r.Name, h.d.Stats().LastRefusal)
			require.LessOrEqual(t, r.OutputLen-len(want), 16, "%d %s", r.Seq, r.Name)
			events += b2i(r.Completion == "eq")
		}
		s := h.d.Stats()
		require.Equal(t, map[string]int{"uar": 4, "eq": 15}, s.Objects)
		require.Equal(t, 6+12868, s.Pages)
		require.Zero(t, s.DMAFaults, s.LastFault)
		require.EqualValues(t, events, s.EQEs, "one event for each command after the command EQ exists")
	}
}
