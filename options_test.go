package main

// options_test.go owns the proof that a command line means what it says: no flag is
// ignored, words of ethtool are understood, what cannot be is refused before a device is
// touched, and standard output holds what was asked for and nothing else.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every flag belongs somewhere, once.
func TestEveryFlagHasAUse(t *testing.T) {
	uses := map[string]runKind{}
	for _, u := range flagUses {
		require.Equal(t, u.runs == kindAny, u.where == "", u.names)
		for _, name := range strings.Fields(u.names) {
			require.NotContains(t, uses, name)
			uses[name] = u.runs
		}
	}
	var o options
	newFlags(&o).VisitAll(func(f *flag.Flag) {
		require.Contains(t, uses, f.Name)
		delete(uses, f.Name)
	})
	require.Empty(t, uses, "these are no flags")
	require.Equal(t, bits.Len16(uint16(kindAny)), bits.OnesCount16(uint16(kindAny)))
}

// refusals are command lines that would do less than they say, and the reason.
var refusals = map[string]string{
	"-emulate -queue 2":                                                           "-queue has no effect with -mode inspect: it goes with -attach",
	"-emulate -port 0":                                                            "-port has no effect",
	"-emulate -xsk-multi-buffer":                                                  "-xsk-multi-buffer has no effect",
	"-emulate -xsk-frame 4096":                                                    "-xsk-frame has no effect with -mode inspect",
	"-emulate -mode l2fwd -xsk-frame 4096":                                        "-xsk-frame has no effect without -datapath xsk",
	"-emulate -mode rxdrop -size 60":                                              "-size has no effect with -mode rxdrop: it goes with -mode txonly",
	"-emulate -mode rxdrop -addr 1.2.3.4":                                         "-addr has no effect",
	"-emulate -mode rxdrop -w x.pcap":                                             "-w has no effect with -mode rxdrop",
	"-emulate -mode echo -addr 1.2.3.4 -flows 5":                                  "-flows has no effect",
	"-emulate -snaplen 9":                                                         "-snaplen has no effect without -w",
	"-emulate -r x":                                                               "-r has no effect with -mode inspect",
	"-emulate -mode txonly -r x -size 60":                                         "-size has no effect with -r",
	"-emulate -mode txonly -r x -datapath xsk -offload csum":                      "-offload does not go with -datapath xsk",
	"-emulate -mmap-doorbells":                                                    "it goes with -serve",
	"-pci 03:00.0 -wire gen":                                                      "-wire has no effect with hardware",
	"-attach x -mode rxdrop -rule x":                                              "-rule has no effect with -attach in mode rxdrop",
	"-attach x -mode rxdrop -size 60":                                             "-size has no effect",
	"-attach x -mode txonly -r x":                                                 "-r has no effect",
	"-attach x -mode txonly -size 2049":                                           "-size 2049: 15 to 2048 can be sent from a frame",
	"-serve x -duration 5":                                                        "-duration has no effect with -serve",
	"-serve x -pci 03:00.0":                                                       "-pci has no effect with -serve",
	"-bench tx -queues 2":                                                         "-queues has no effect with -bench",
	"-list -serve x":                                                              "-serve has no effect with -list",
	"-emulate -duration 5x":                                                       "a time such as 10s or 1m30s, or seconds",
	"-emulate -tx-inline 973":                                                     "-tx-inline 973: 0 to 972 bytes",
	"-emulate -tx-inline -2":                                                      "-tx-inline -2",
	"-emulate -priv-flags skb_tx_mpwqe=on,skb_tx_mpwqe=off":                       "skb_tx_mpwqe stands twice",
	"-emulate -priv-flags skb_tx_mpwqe=on -priv-flags skb_tx_mpwqe=off":           "skb_tx_mpwqe stands twice",
	"-emulate -priv-flags skb_tx_mpwqe":                                           "NAME on|off",
	"-emulate -priv-flags skb_tx_mpwqe=maybe":                                     "on or off",
	"-emulate -coalesce adaptive-rx=on -adaptive-rx off":                          "-coalesce says adaptive-rx on and -adaptive-rx off",
	"-emulate -toggle skb_tx_mpwqe":                                               "NAME=PERIOD",
	"-emulate -toggle skb_tx_mpwqe=0":                                             "NAME=PERIOD",
	"-emulate -toggle no_such=1":                                                  "private flag \"no_such\"",
	"-emulate -toggle skb_tx_mpwqe=1 -toggle skb_tx_mpwqe=2":                      "-toggle: skb_tx_mpwqe stands twice",
	"-emulate -mode rxdrop -datapath xsk -mtu 9000":                               "-mtu 9000: with -datapath xsk at most 3822 (-xsk-frame 4096)",
	"-emulate -mode rxdrop -datapath xsk -mtu 1775":                               "up to 1774: -xsk-frame 4096 takes up to 3822",
	"-emulate -mode rxdrop -datapath xsk -xsk-headroom 600":                       "up to 1174: -xsk-frame 4096",
	"-emulate -mode txonly -size 1519":                                            "-size 1519: 15 to 1518 can be sent (the MTU is 1500: -mtu)",
	"-emulate -mode txonly -size 14":                                              "15 to 1518",
	"-emulate -mode txonly -mtu 9000 -size 4097":                                  "15 to 4096 can be sent (a page)",
	"-emulate -mode txonly -datapath xsk -mtu 3822 -xsk-frame 4096 -size 3841":    "15 to 3840",
	"-emulate -queues 2 -xdp redirect:9":                                          "queues are 0 to 1",
	"-emulate -queues 2 -xdp redirect:4 -xsk-listen x":                            "queues are 0 to 3",
	"-emulate -xsk-listen /nowhere/x.sock":                                        "/nowhere/x.sock",
	"-emulate -w /nowhere/x.pcap":                                                 "/nowhere/x.pcap",
	"-emulate -mode txonly -r /nowhere/x.pcap":                                    "/nowhere/x.pcap",
	"-emulate -xdp redirect:999":                                                  "a redirect to queue 999",
	"-emulate -profile cx4 -toggle skb_tx_mpwqe=2ms":                              "-toggle skb_tx_mpwqe: the device has no enhanced multi-packet send WQE",
	"-emulate -profile cx4 -toggle rx_cqe_moder=2ms":                              "-toggle rx_cqe_moder: on this device it can only be set at start",
	"-emulate -profile cx4 -tx-inline 60":                                         "-tx-inline 60: it is for multi-packet send WQEs",
	"-emulate -profile cx4 -toggle rx_cqe_compress=1s -toggle rx_striding_rq=2ms": "-toggle rx_striding_rq: the device has no",
}

// What cannot be is one line and exit code 2, and no NIC came up before.
func TestRefusedBeforeAnythingIsUp(t *testing.T) {
	for line, says := range refusals {
		code, out, errs := cli(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, "%s: %s", line, errs)
		require.Empty(t, out, line)
		require.Contains(t, errs, says, line)
		require.Equal(t, 1, strings.Count(errs, "\n"), "%s: %s", line, errs)
	}
}

// The words that ethtool takes are understood, also one behind the other and again.
func TestWordsOfEthtool(t *testing.T) {
	for _, c := range []struct {
		args  []string
		check func(o *options)
	}{
		{[]string{"-priv-flags", "skb_tx_mpwqe off"}, func(o *options) { require.Equal(t, map[string]bool{"skb_tx_mpwqe": false}, o.flagWishes) }},
		{[]string{"-priv-flags", "skb_tx_mpwqe off rx_striding_rq on,xdp_tx_mpwqe=off"}, func(o *options) {
			require.Equal(t, map[string]bool{"skb_tx_mpwqe": false, "rx_striding_rq": true, "xdp_tx_mpwqe": false}, o.flagWishes)
		}},
		{[]string{"-priv-flags", "skb_tx_mpwqe=off", "-priv-flags", "rx_striding_rq=on"}, func(o *options) { require.Len(t, o.flagWishes, 2) }},
		{[]string{"-coalesce", "rx-usecs 8 rx-frames 128"}, func(o *options) { require.Equal(t, coalesceWish{"rx-usecs": 8, "rx-frames": 128}, o.coalesce) }},
		{[]string{"-coalesce", "adaptive-rx on"}, func(o *options) { require.True(t, o.adaptive) }},
		{[]string{"-coalesce", "adaptive-rx off tx-usecs 1", "-adaptive-rx", "off"}, func(o *options) { require.False(t, o.adaptive) }},
		{[]string{"-duration", "5"}, func(o *options) { require.Equal(t, 5*time.Second, o.duration) }},
		{[]string{"-duration", "0.25"}, func(o *options) { require.Equal(t, 250*time.Millisecond, o.duration) }},
		{[]string{"-duration", "1m5s"}, func(o *options) { require.Equal(t, 65*time.Second, o.duration) }},
		{[]string{"-toggle", "skb_tx_mpwqe=10ms", "-toggle", "rx_cqe_compress 2"}, func(o *options) {
			require.Len(t, o.toggles, 2)
			require.Equal(t, 10*time.Millisecond, o.toggles[0].period)
			require.Equal(t, 2*time.Second, o.toggles[1].period)
		}},
		{[]string{"-mode", "echo", "-addr", "1.2.3.4", "-addr", "::1"}, func(o *options) { require.Len(t, o.addrs, 2) }},
	} {
		o, _, err := parseOptions(append([]string{"-emulate"}, c.args...))
		require.NoError(t, err, "%v", c.args)
		c.check(&o)
	}
}

// jsonLines requires that out is JSON objects, one a line, and returns them.
func jsonLines(t *testing.T, out string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		all = append(all, v)
	}
	return all
}

// With -json all of standard output is JSON, whatever else is asked for.
func TestJSONIsAllJSON(t *testing.T) {
	for _, mode := range modeNames() {
		args := []string{"-emulate", "-mode", mode, "-promisc", "-wire", "gen:count=1000", "-queues", "2", "-count", "1000", "-json", "-stats", "-rule", "flow-type udp4 action 1"}
		if mode == modeEcho {
			args = append(args, "-addr", "10.0.0.1")
		}
		code, out, errs := cli(t, args...)
		require.Equal(t, exitDone, code, errs)
		all := jsonLines(t, out)
		require.Len(t, all, 2)
		require.Contains(t, all[0], "drops")
		counters := all[1]["counters"].(map[string]any)
		require.Equal(t, "emulated cx5", all[1]["device"])
		if mode != modeSend {
			require.EqualValues(t, 1000, counters["rx_packets"])
		} else {
			require.EqualValues(t, 1000, counters["tx_packets"])
		}
		require.Contains(t, counters, "rx1_packets")
		require.Equal(t, true, all[1]["priv_flags"].(map[string]any)["skb_tx_mpwqe"])
		require.EqualValues(t, 3, all[1]["coalesce"].(map[string]any)["rx-usecs"])
		require.Equal(t, []any{"flow-type udp4 action 1 loc 1023"}, all[1]["rules"])
	}
	_, out, _ := cli(t, "-list", "-json")
	for _, f := range jsonLines(t, out) {
		require.Contains(t, f, "address")
	}
	var b bytes.Buffer
	require.NoError(t, printFunctions(&b, []functionInfo{{addr: "0000:03:00.0", model: pciModel{name: "ConnectX-5"}, numa: -1, usable: true, advice: "yes"}, {addr: "0000:03:00.1"}}, true))
	list := jsonLines(t, b.String())
	require.Len(t, list, 2)
	require.Equal(t, "0000:03:00.0", list[0]["address"])
	require.Equal(t, "ConnectX-5", list[0]["model"])
	require.Equal(t, true, list[0]["usable"])
	require.EqualValues(t, -1, list[0]["numa_node"])
}

// childArgs, in the environment, makes the test binary the program with these arguments.
const childArgs = "MLX5D_TEST_ARGS"

// startChild starts the program in a process of its own, as it is outside of tests.
func startChild(t *testing.T, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestBeTheProgram$")
	cmd.Env = append(os.Environ(), childArgs+"="+strings.Join(args, "\n"))
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout = out
	ready := make(chan struct{})
	cmd.Stderr = &upWatch{b: errs, up: ready}
	heard := make(chan os.Signal, 1) // a hang-up that we ignore the child would too
	signal.Notify(heard, syscall.SIGHUP)
	err := cmd.Start()
	signal.Stop(heard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop() })
	select {
	case <-ready:
	case <-time.After(time.Minute):
		require.Fail(t, "it does not come up")
	}
	return cmd, out, errs
}

// upWatch closes up when the NIC is.
type upWatch struct {
	b    *bytes.Buffer
	up   chan struct{}
	seen bool
}

func (w *upWatch) Write(p []byte) (int, error) {
	w.b.Write(p)
	if !w.seen && bytes.Contains(w.b.Bytes(), []byte("NIC is up")) {
		w.seen = true
		close(w.up)
	}
	return len(p), nil
}

// TestBeTheProgram is not a test but the process that startChild starts.
func TestBeTheProgram(t *testing.T) {
	list, ok := os.LookupEnv(childArgs)
	if !ok {
		t.Skip("not started by a test")
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	code := run(ctx, strings.Split(list, "\n"), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// A hang-up ends a run as Ctrl-C does: the summary is there and the socket of
// -xsk-listen, like all else, is taken back. Under nohup it does not end.
func TestHangUpEndsARunWithItsCleanUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	cmd, out, errs := startChild(t, "-emulate", "-wire", "none", "-json", "-xsk-listen", path)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Wait(), errs)
	require.Len(t, jsonLines(t, out.String()), 1)
	require.NoFileExists(t, path)

	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	require.NotContains(t, stopSignals(), os.Signal(syscall.SIGHUP))
}

// Frames on standard output are a capture from the first byte to the last, whatever is
// printed meanwhile and at the end.
func TestFramesOnStandardOutputStayACapture(t *testing.T) {
	cmd, out, errs := startChild(t, "-emulate", "-wire", "gen:count=0,pps=2000", "-stats", "-w", "-", "-duration", "1.5")
	for range 5 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, cmd.Wait(), errs)
	c, err := parseCapture(out.Bytes())
	require.NoError(t, err)
	require.False(t, c.cutShort)
	require.Greater(t, len(c.frames), 100)
	require.Greater(t, strings.Count(errs.String(), "NIC statistics ("), 1, "SIGUSR1 and -stats")
	require.Contains(t, errs.String(), "packets, ")
}

// With -json so are the counters that SIGUSR1 asks for.
func TestSignalPrintsJSONWithJSON(t *testing.T) {
	cmd, out, errs := startChild(t, "-emulate", "-wire", "none", "-json", "-duration", "1")
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	require.NoError(t, cmd.Wait(), errs)
	all := jsonLines(t, out.String())
	require.Len(t, all, 2)
	require.Contains(t, all[0], "counters")
	require.Contains(t, all[1], "packets")
}

// A file that is there keeps what it holds until a NIC is up, and is written anew then.
func TestAFailedStartLeavesTheFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious.pcap")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("precious"), 10000), 0o600))
	code, _, _ := cli(t, "-emulate", "-w", path, "-queues", "1000")
	require.Equal(t, exitUsage, code)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, b, 80000)
	code, _, errs := cli(t, "-emulate", "-w", path, "-wire", "gen:count=3")
	require.Equal(t, exitDone, code, errs)
	require.Len(t, frameHashes(t, path), 3)
}

// What is in force is said: the ring in frames whatever holds them, and how long frames
// are that go into a WQE.
func TestNICIsUpSaysWhatIsInForce(t *testing.T) {
	for args, says := range map[string]string{
		"-rx-ring 64 -priv-flags rx_striding_rq=on":   " rx=64 ",
		"-rx-ring 100 -priv-flags rx_striding_rq=off": " rx=128 ",
		"-tx-inline 100": " tx-inline=100 ",
		"-tx-inline 100 -priv-flags skb_tx_mpwqe=off": "-tx-inline 100 has no effect while skb_tx_mpwqe is off",
		"-queues 8":               " tx-inline=60 ",
		"-queues 8 -profile cx4":  " tx-inline=0 ",
		"-queues 8 -tx-inline 0":  " tx-inline=0 ",
		"-queues 2 -tx-inline -1": " tx-inline=0 ",
	} {
		code, _, errs := cli(t, append([]string{"-emulate", "-wire", "gen:count=1"}, strings.Fields(args)...)...)
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, errs, says, args)
	}
}

// Several flags are switched, each in its own time, and the end says how often.
func TestTogglesAreCounted(t *testing.T) {
	code, _, errs := cli(t, "-emulate", "-mode", "rxdrop", "-promisc", "-wire", "gen:count=0", "-duration", "0.5",
		"-toggle", "skb_tx_mpwqe=5ms", "-toggle", "rx_no_csum_complete=40ms")
	require.Equal(t, exitDone, code, errs)
	for _, name := range []string{"skb_tx_mpwqe", "rx_no_csum_complete"} {
		i := strings.Index(errs, "msg=toggled flag="+name)
		require.GreaterOrEqual(t, i, 0, errs)
		var n, failed int
		_, err := fmt.Sscanf(errs[i:], "msg=toggled flag="+name+" switches=%d failed=%d", &n, &failed)
		require.NoError(t, err)
		require.Positive(t, n)
		require.Zero(t, failed)
	}
}

// What is due first comes first, and one that is late does not come twice for it.
func TestToggleTimes(t *testing.T) {
	now := time.Unix(1000, 0)
	_, ok := untilNext(nil, now)
	require.False(t, ok)
	all, err := parseToggles([]string{"skb_tx_mpwqe=3 xdp_tx_mpwqe=1"})
	require.NoError(t, err)
	for _, x := range all {
		x.next = now.Add(x.period)
	}
	d, ok := untilNext(all, now)
	require.True(t, ok)
	require.Equal(t, time.Second, d)
	switchDue(all, nil, now.Add(5*time.Second))
	require.Equal(t, now.Add(6*time.Second), all[0].next)
	require.Equal(t, now.Add(5*time.Second), all[1].next)
	d, _ = untilNext(all, now.Add(9*time.Second))
	require.Zero(t, d)
}

// Who sends on a link that is down is told, once.
func TestSendingOnADeadLinkIsTold(t *testing.T) {
	const says = "the link is down: nothing that is sent leaves the port"
	for wire, times := range map[string]int{"none": 1, "loop": 0} {
		code, _, errs := cli(t, "-emulate", "-mode", "txonly", "-wire", wire, "-count", "100", "-stats")
		require.Equal(t, exitDone, code, errs)
		require.Equal(t, times, strings.Count(errs, says), errs)
	}
}

// On hardware the loop that waits looks for nothing often, and with an emulated wire ever
// less often.
func TestTheWireIsLookedAtLessAndLess(t *testing.T) {
	a := &appliance{ports: []*onePort{{}}}
	require.Equal(t, slowCheck, a.checkAfter(0))
	a.ports[0].emulated = &emulatedDevice{}
	require.Equal(t, wireCheck, a.checkAfter(0))
	require.Equal(t, 10*time.Millisecond, a.checkAfter(500*time.Millisecond))
	require.Equal(t, slowCheck, a.checkAfter(time.Hour))
}
