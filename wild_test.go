package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wildRecord is one record of a public bug report: bytes of a real device.
type wildRecord struct {
	Kind     string            `json:"kind"`
	Hex      string            `json:"hex"`
	Context  string            `json:"context"`
	Decoded  map[string]string `json:"decoded"`
	Opcode   string            `json:"opcode"`
	Name     string            `json:"name"`
	OpMod    string            `json:"op_mod"`
	Status   uint8             `json:"status"`
	Syndrome string            `json:"syndrome"`
	Output   string            `json:"output"`
	Pair     string            `json:"pair"`
	bytes    []byte
}

func (r *wildRecord) field(t *testing.T, name string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(r.Decoded[name], 0, 64)
	require.NoError(t, err, "%s: %s", r.Context, name)
	return v
}

// wild returns the records of one kind.
func wild(t *testing.T, kind string) (out []wildRecord) {
	t.Helper()
	b, err := os.ReadFile(sharedFile(t, "traces", "wild.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(b) {
		var r wildRecord
		require.NoError(t, json.Unmarshal(line, &r))
		if r.Kind != kind {
			continue
		}
		digits := r.Hex
		if len(digits)%2 != 0 {
			digits += "0" // one report lost half a byte at its end
		}
		r.bytes, err = hex.DecodeString(digits)
		require.NoError(t, err)
		out = append(out, r)
	}
	require.NotEmpty(t, out)
	return out
}

// wildQueue is a completion queue of 16 entries; put makes b the next completion
// of a lap whose owner bit is b's.
func wildQueue(t *testing.T) (put func(b []byte) (*cqe, uint64)) {
	c := newFakeCard()
	mem := newArena(c)
	q, err := newCompQueue(mem, 4, c.bar)
	require.NoError(t, err)
	t.Cleanup(func() {
		q.free(mem)
		require.Zero(t, mem.used())
		require.NoError(t, mem.close())
	})
	return func(b []byte) (*cqe, uint64) {
		require.Len(t, b, cqeSize)
		ci := uint32(b[63]&1) << 4
		q.reset()
		e, _ := q.peek(ci)
		require.Nil(t, e, "an entry of the device's")
		copy(q.buf.b, b)
		e, _ = q.peek(ci ^ 1<<4)
		require.Nil(t, e, "an entry of the lap before")
		e, w := q.peek(ci)
		require.NotNil(t, e)
		return e, w
	}
}

// Error completions of real devices say through our overlay what is known of
// them, and their text names it all (B19).
func TestWildErrorCompletions(t *testing.T) {
	put := wildQueue(t)
	for _, r := range wild(t, "err_cqe") {
		e, w := put(r.bytes)
		require.Equal(t, r.field(t, "opcode"), uint64(tailOpcode(w)), r.Context)
		require.Equal(t, r.field(t, "owner"), uint64(tailOwner(w)), r.Context)
		require.Equal(t, r.field(t, "wqe_counter"), uint64(tailCounter(w)), r.Context)
		require.Equal(t, r.field(t, "qpn"), uint64(tailQueue(w)), r.Context)
		require.Equal(t, r.field(t, "signature"), uint64(w>>48&0xff), r.Context)
		got := decodeError(e, w)
		require.Equal(t, r.field(t, "syndrome"), uint64(got.syndrome), r.Context)
		require.Equal(t, r.field(t, "vendor_syndrome"), uint64(got.vendor), r.Context)
		require.Equal(t, r.field(t, "hw_error"), uint64(got.hardware), r.Context)
		require.Equal(t, r.field(t, "hw_type"), uint64(got.hwType), r.Context)
		require.Equal(t, r.field(t, "qpn"), uint64(got.queue), r.Context)
		require.Equal(t, r.field(t, "opcode"), uint64(got.opcode), r.Context)
		require.Equal(t, r.field(t, "wqe_opcode"), uint64(got.wqeOpcode), r.Context)
		require.Equal(t, r.field(t, "wqe_counter"), uint64(got.counter), r.Context)
		name, known := syndromeNames[got.syndrome]
		require.True(t, known, "no name for syndrome %#x: %s", got.syndrome, r.Context)
		require.Contains(t, got.Error(), name)
		require.Contains(t, got.Error(), fmt.Sprintf("%#x", got.vendor))
		require.NotContains(t, got.Error(), "\n")
	}
}

// A receive-side error completion still describes the frame.
func TestWildReceiveErrorDescribesTheFrame(t *testing.T) {
	put := wildQueue(t)
	checked := 0
	for _, r := range wild(t, "err_cqe") {
		if !bytes.Contains([]byte(r.Context), []byte("RQ: ")) {
			continue
		}
		e, w := put(r.bytes)
		if tailOpcode(w) != cqeRespErr {
			continue
		}
		checked++
		require.EqualValues(t, 0x20009332, be32word(e.hash))
		require.EqualValues(t, 0x55, e.hashType)
		require.EqualValues(t, 0xfbcc, be16word(e.checksum))
		require.EqualValues(t, 0x07, uint8(e.info), "l2, l3 and l4 are good")
		require.EqualValues(t, 0x18, uint8(e.info>>8), "TCP over IPv4")
		require.EqualValues(t, 0x4a, be32word(e.byteCount))
		require.EqualValues(t, 0, be16word(e.wqeID))
	}
	require.Equal(t, 2, checked)
}

// Our WQE builders make the bytes that real devices were given.
func TestWildWQEs(t *testing.T) {
	checked := 0
	for _, r := range wild(t, "wqe") {
		c := newFakeCard()
		mem := newArena(c)
		m, err := mem.alloc(pageSize)
		require.NoError(t, err)
		segs := segments(m)
		switch {
		case r.Pair == "A": // a SEND of 43 bytes
			segs[0] = ctrlSeg(wqeSend, 0xf, 0x1dbb, 3, ctrlCQE)
			segs[2] = dataSeg(43, 0x80000, 0x59ee30800)
			require.Equal(t, r.bytes, m.b[:64])
		case r.Pair == "B": // a UMR; its immediate is an mkey, which ctrlSeg leaves 0
			segs[0] = ctrlSeg(wqeUMR, 0, 0x104f, 12, 0)
			require.Equal(t, r.bytes[:12], m.b[:12])
			require.Len(t, r.bytes, 12*segment)
		case len(r.bytes) == segment: // a receive buffer
			segs[0] = dataSeg(2048|1<<31, 0x4000, 0x7800000)
			require.Equal(t, r.bytes, m.b[:segment])
		default:
			continue // translation entries that the device took for a WQE
		}
		checked++
		require.NoError(t, mem.close())
	}
	require.Equal(t, 3, checked)
}

// The version and the command queue's shape of a real initialization segment.
func TestWildInitializationSegment(t *testing.T) {
	seg := make([]byte, 0x20)
	copy(seg, wild(t, "init_seg")[0].bytes)
	putBE32(seg, segCmdqLo.off, 0x0baca156) // from the record's context
	require.EqualValues(t, 0x10, segFwMajor.get(seg))
	require.EqualValues(t, 0x23, segFwMinor.get(seg))
	require.EqualValues(t, 4030, segFwSubminor.get(seg))
	require.EqualValues(t, cmdIfRev, segCmdRev.get(seg))
	require.EqualValues(t, 5, segLogCmdqSize.get(seg))
	require.EqualValues(t, 6, segLogCmdqStride.get(seg))
}

// answered runs one command whose answer a real device gave.
func answered(t *testing.T, in, out []byte) ([]byte, error) {
	t.Helper()
	c := newFakeCard()
	cmd := fakeCommander(t, c, 10*time.Second)
	c.serve(t, func(q question) { q.answer(0, out) })
	return cmd.exec(in, max(16, len(out)))
}

// Refusals of real firmware: status and syndrome are read from the right places
// and the text names the command, the status and the syndrome.
func TestWildCommandErrors(t *testing.T) {
	for _, r := range wild(t, "cmd_err") {
		if r.Opcode == "" {
			r.Opcode = "0x400" // any of several; the report does not say which
		}
		op, err := strconv.ParseUint(r.Opcode, 0, 16)
		require.NoError(t, err)
		mod, syndrome := uint64(0), uint64(0)
		if r.OpMod != "" {
			mod, err = strconv.ParseUint(r.OpMod, 0, 16)
			require.NoError(t, err)
		}
		syndrome, err = strconv.ParseUint(r.Syndrome, 0, 32)
		require.NoError(t, err)
		answer := r.bytes
		if r.Output != "" {
			answer, err = hex.DecodeString(r.Output)
			require.NoError(t, err)
		}
		out, err := answered(t, request(uint16(op), uint16(mod), 16), answer)
		var ce *cmdError
		require.True(t, errors.As(err, &ce), "%s: %v", r.Context, err)
		require.Equal(t, cmdError{op: uint16(op), opMod: uint16(mod), status: r.Status, syndrome: uint32(syndrome)}, *ce, r.Context)
		require.Equal(t, answer, out[:len(answer)])
		require.Contains(t, err.Error(), fmt.Sprintf("%s (status %#x), syndrome %#x", statusNames[r.Status], r.Status, syndrome))
		if name, ours := opcodeNames[uint16(op)]; ours {
			require.Contains(t, err.Error(), "firmware command "+name)
			if r.Name == name {
				continue
			}
			require.Contains(t, r.Name, "/", "the manual's name is %s, ours %s", r.Name, name)
		} else {
			require.Contains(t, err.Error(), "firmware command "+r.Opcode, "a command that we never send")
		}
	}
}

// Commands that real firmware accepted.
func TestWildCommands(t *testing.T) {
	for _, r := range wild(t, "cmd") {
		answer, err := hex.DecodeString(r.Output)
		require.NoError(t, err)
		switch r.Name {
		case "CREATE_QP":
			out, err := answered(t, r.bytes[:16], answer)
			require.NoError(t, err)
			require.EqualValues(t, 0x40122, cmdObject.get(out), "the new object's number")
		case "TEARDOWN_HCA": // whole entries
			require.Len(t, r.bytes, cmdEntrySize)
			require.EqualValues(t, 0xff, xor8(r.bytes))
			require.EqualValues(t, cmdEntryType, r.bytes[entryType])
			require.EqualValues(t, 16, be32(r.bytes, entryInLen))
			require.EqualValues(t, 16, be32(r.bytes, entryOutLen))
			require.EqualValues(t, opTeardownHCA, cmdOpcode.get(r.bytes[entryIn:]))
			require.EqualValues(t, 0x3f, r.bytes[entryToken])
			require.EqualValues(t, entryOwnerBit, r.bytes[entryStatus])
			require.Zero(t, answer[entryStatus], "given back, delivered")
			require.Equal(t, r.bytes[entrySig], answer[entrySig], "the device leaves the signature alone")
			require.EqualValues(t, 1, be32(answer, entryOut+12), "state: it could not be forced")
			out, err := answered(t, r.bytes[entryIn:entryIn+16], answer[entryOut:entryOut+16])
			require.NoError(t, err)
			require.Equal(t, answer[entryOut:entryOut+16], out)
		default:
			t.Fatalf("no test for %s", r.Name)
		}
	}
}
