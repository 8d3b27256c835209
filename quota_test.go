package main

// quota_test.go owns the proof that -count is exact wherever packets are received and
// sent, whatever is in their way and however many queues share it.

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// Many takers share one quota: together they get it all and no more.
func TestQuotaIsShared(t *testing.T) {
	for _, most := range []uint64{1, 63, 64, 100000} {
		q := newQuota(most, make(chan struct{}))
		var used atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for turn := i; !q.over(); turn++ {
					n := q.take(64)
					k := n * (turn % 3) / 2 // none, half, all
					used.Add(int64(k))
					q.settle(n, k)
				}
			})
		}
		all.Wait()
		<-q.full
		require.EqualValues(t, most, used.Load())
		require.Zero(t, q.take(64))
	}
	require.False(t, (*quota)(nil).over())
}

// Every mode that receives stops behind exactly so many packets, and what forwards has
// sent as many, on every data path, with every kind of receive queue, and with a program.
func TestCountIsExactInEveryMode(t *testing.T) {
	for _, args := range []string{
		"-mode rxdrop", "-mode rxdrop -priv-flags rx_striding_rq=on", "-mode rxdrop -priv-flags rx_cqe_compress=on",
		"-mode rxdrop -datapath xdp", "-mode rxdrop -datapath xsk", "-mode rxdrop -xdp pass", "-mode rxdrop -xdp tx -profile cx4",
		"-mode rxdrop -trap-queue on", "-mode rxdrop -busy-poll", "-mode rxdrop -mtu 9000 -profile cx4",
		"-mode l2fwd", "-mode l2fwd -mtu 9000", "-mode l2fwd -datapath xdp", "-mode l2fwd -datapath xsk", "-mode l2fwd -datapath xsk -tx-ring 64 -xsk-frames 256",
		"-mode echo -addr 10.0.0.1", "-mode echo -addr 10.0.0.1 -priv-flags rx_striding_rq=on",
		"-mode rxdrop -toggle rx_striding_rq=2ms", "-mode l2fwd -toggle rx_cqe_compress=2ms",
	} {
		for _, count := range []uint64{1, 100, 12345} {
			list := append(strings.Fields(args), "-emulate", "-promisc", "-queues", "3", "-wire", "gen:count=0", "-json", "-count", strconv.FormatUint(count, 10))
			code, out, errs := cli(t, list...)
			require.Equal(t, exitDone, code, "%s: %s", args, errs)
			var s countSummary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			require.Equal(t, count, s.RxPackets, "%s", args)
			if s.Mode == modeForward {
				require.Equal(t, count, s.TxPackets+s.TxDropped, "%s", args)
			}
			for _, name := range []string{"rx_wqe_err", "rx_xdp_redirect_full", "rx_xsk_ring_full"} {
				require.Zero(t, s.Drops[name], "%s: %s", args, name)
			}
		}
	}
}

// So does a process that has a queue of another one.
func TestCountOfAnAttachedProcessIsExact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	wire, err := model.ParseWire("gen:count=0,size=64")
	require.NoError(t, err)
	d := testDevice(t, model.Config{Wire: wire})
	n, err := testOpen(d, wishes{queues: 1, promisc: true, xsk: true, xskSpread: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.close()) }()
	n.start([]handler{dropWork{}}, false, nil)
	s, err := listenXSK(path, []*nic{n}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	for _, mode := range []string{modeDrop, modeForward, modeSend} {
		for _, count := range []uint64{1, 100, 5000} {
			args := []string{"-attach", path, "-mode", mode, "-json", "-stats", "-count", strconv.FormatUint(count, 10)}
			code, out, errs := cli(t, args...)
			require.Equal(t, exitDone, code, errs)
			all := jsonLines(t, out)
			require.Len(t, all, 2)
			require.EqualValues(t, index(mode != modeSend)*int(count), all[0]["rx_packets"], mode)
			require.EqualValues(t, index(mode != modeDrop)*int(count), all[0]["tx_packets"], mode)
			require.Contains(t, all[0]["drops"], "rx_ring_full")
			require.Len(t, all[1]["counters"], len(xskCountNames))
		}
	}
}

// The frames of a file leave as they are and in their order on every data path, again
// and again, each through its own queue, and as many as were asked for.
func TestFileIsSentOnEveryDataPath(t *testing.T) {
	var file [][]byte
	for i := range 37 {
		file = append(file, numberedFrame(60+i*39, uint32(i)))
	}
	path := tempPcap(t, file)
	for _, c := range []struct {
		datapath, profile string
		inline            int
	}{
		{datapathPlain, "cx5", 0}, {datapathPlain, "cx5", maxInlineFrame}, {datapathPlain, "cx4", 0},
		{datapathXDP, "cx5", 0}, {datapathXDP, "cx4", 0},
		{datapathXSK, "cx5", 0}, {datapathXSK, "cx5", 100}, {datapathXSK, "cx4", 0},
	} {
		t.Run(fmt.Sprint(c.datapath, c.profile, c.inline), func(t *testing.T) {
			wire := &recordWire{}
			n, err := openToSend(testDevice(t, model.Config{Profile: c.profile, Wire: wire}), wishes{queues: 1, txRing: minRing, txInline: c.inline, xsk: c.datapath == datapathXSK})
			require.NoError(t, err)
			const count = 1000
			var left atomic.Int64
			left.Store(count)
			var u undo
			h := fileHandler(t, n, c.datapath, path, &u, func(k int) int {
				k = min(k, int(left.Load()))
				left.Add(int64(-k))
				return k
			})
			n.start([]handler{h}, false, nil)
			require.Eventually(t, func() bool { return left.Load() == 0 }, 20*time.Second, time.Millisecond)
			n.stop()
			require.NoError(t, u.run())
			q := map[string]*sendQueue{datapathPlain: n.channels[0].tx, datapathXDP: n.channels[0].xdp}[c.datapath]
			if c.datapath == datapathXSK {
				q = n.channels[0].xsk.tx
			}
			require.EqualValues(t, count, q.stats.packets.get())
			require.Zero(t, q.stats.dropped.get())
			require.NoError(t, n.close())
			sent := wire.frames()
			require.Len(t, sent, count)
			for i, b := range sent {
				require.Equal(t, file[i%len(file)], b, "%d", i)
			}
		})
	}
}

// fileHandler is the appliance's for -r.
func fileHandler(t *testing.T, n *nic, datapath, path string, u *undo, left func(int) int) handler {
	t.Helper()
	c := n.channels[0]
	if datapath == datapathXSK {
		frames, err := readFrames(path, 0, 1)
		require.NoError(t, err)
		umem := umemConfig{frame: 2048, frames: 100} // the file fits twice, and some stay unused
		w, err := newXSKWork(c, xskWorkConfig{mode: modeSend, umem: umem, file: newXSKFile(frames, umem), left: left}, u)
		require.NoError(t, err)
		return w
	}
	if datapath == datapathXDP {
		require.NoError(t, n.readyForXDP())
	}
	w, err := newFileWork(c, fileWish{path: path, queues: 1, xdp: datapath == datapathXDP}, left)
	require.NoError(t, err)
	return w
}

// From the command line the frames of a file go through the queues of the data path that
// was asked for.
func TestFileGoesByTheDataPathAskedFor(t *testing.T) {
	path := tempPcap(t, [][]byte{numberedFrame(60, 1), numberedFrame(1500, 2), numberedFrame(61, 3)})
	for datapath, counter := range map[string]string{datapathPlain: "tx_packets", datapathXDP: "tx_xdp_xmit", datapathXSK: "tx_xsk_xmit"} {
		code, out, errs := cli(t, "-emulate", "-mode", "txonly", "-datapath", datapath, "-r", path, "-count", "1000", "-queues", "2", "-json", "-stats", "-wire", "none")
		require.Equal(t, exitDone, code, errs)
		all := jsonLines(t, out)
		require.EqualValues(t, 1000, all[0]["tx_packets"])
		require.EqualValues(t, 1000, all[1]["counters"].(map[string]any)[counter], datapath)
	}
	for _, args := range []string{"-mtu 1000", "-xsk-frames 2 -queues 1"} {
		code, _, errs := cli(t, append(strings.Fields(args), "-emulate", "-mode", "txonly", "-datapath", datapathXSK, "-r", path)...)
		require.Equal(t, exitUsage, code, errs)
		require.Contains(t, errs, "mlx5d: -r: ")
		require.NotContains(t, errs, "NIC is up")
	}
}
