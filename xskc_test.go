package main

// xskc_test.go owns the proof that a program in another language can attach by what
// is documented of the protocol and the rings: testdata/xskclient.c shares no line
// with us.

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// needTool finds a program that a test runs. Without it the test is skipped and
// says so; in CI it must be there.
func needTool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed: this test needs it", name)
	}
	return path
}

// returnWire gives numbered packets of all lengths for the socket and asserts that
// each comes back once, in order, with its addresses swapped and nothing else
// changed. The device's goroutine calls it.
type returnWire struct {
	packets int
	given   int
	frame   []byte
	want    []byte
	back    atomic.Int64
	wrong   atomic.Int64
}

// returnFrame is packet i; it reuses b.
func returnFrame(b []byte, i int) []byte {
	b = b[:60+i*7%1455]
	fillNumbered(b, uint64(i), 9)
	binary.BigEndian.PutUint16(b[36:], noisePort)
	return b
}

func (w *returnWire) Peek(time.Time) []byte {
	if w.given == w.packets || int64(w.given)-w.back.Load() >= 200 { // fewer than the client's ring holds
		return nil
	}
	w.frame = returnFrame(w.frame[:cap(w.frame)], w.given)
	return w.frame
}

func (w *returnWire) Take()          { w.given++ }
func (w *returnWire) Lossless() bool { return true }
func (w *returnWire) Done() bool     { return w.given == w.packets }
func (w *returnWire) LinkUp() bool   { return true }
func (w *returnWire) Close() error   { return nil }

func (w *returnWire) Transmit(b []byte) {
	w.want = returnFrame(w.want[:cap(w.want)], int(w.back.Load()))
	swapAddresses(w.want)
	if string(w.want) != string(b) {
		w.wrong.Add(1)
	}
	w.back.Add(1)
}

// A C program attaches, receives and sends back from where packets lie: it has
// seen every byte, and so has the wire.
func TestXSKClientInC(t *testing.T) {
	gcc := needTool(t, "gcc")
	const packets = 50_000
	client := filepath.Join(t.TempDir(), "xskclient")
	out, err := exec.Command(gcc, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", client, filepath.Join("testdata", "xskclient.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	wire := &returnWire{packets: packets, frame: make([]byte, 2048), want: make([]byte, 2048)}
	gate := &gatedWire{Wire: wire}
	r := newServeRig(t, 1, gate, new(atomic.Int64))
	r.opens(gate)

	out, err = exec.Command(client, r.path, "7", "1").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "xskclient: refused: queue 7: there are 0 to 0, or as rules count them 1 to 1\n", string(out))

	out, err = exec.Command(client, r.path, "0", fmt.Sprint(packets)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	bytes, sum, b := 0, fnv.New64a(), make([]byte, 2048)
	for i := range packets {
		b = returnFrame(b[:cap(b)], i)
		bytes += len(b)
		_, _ = sum.Write(b)
	}
	require.Equal(t, fmt.Sprintf("packets=%d bytes=%d sum=%016x rx_dropped=0 rx_invalid_descs=0 tx_invalid_descs=0 rx_ring_full=0\n", packets, bytes, sum.Sum64()), string(out))
	require.EqualValues(t, packets, wire.back.Load())
	require.Zero(t, wire.wrong.Load(), "packets that came back otherwise")
	require.Eventually(t, func() bool { return r.server.lives.Load() == 0 && r.nic.mem.guestMemory() == 0 }, 10*time.Second, time.Millisecond)
}
