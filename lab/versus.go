package main

// This file owns the scenario appliance-vs-linux: our binary in one guest, over
// VFIO, and Linux in the other, two wires between them. Linux pings us, floods
// us and talks TCP to itself through us; every frame is accounted for on both
// sides.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"
)

// versus is the two guests. Functions 0 and 2 are Linux's, 1 and 3 ours.
type versus struct {
	s          *server
	linux, box *guest
	one, two   address // Linux's ends
}

// boxRun is what our binary printed of a run: packets, and what was dropped by
// name. Mode inspect has other names than the rest.
type boxRun struct {
	Packets      uint64            `json:"packets"`
	Protocols    map[string]uint64 `json:"protocols"`
	DecodeErrors map[string]uint64 `json:"decode_errors"`

	RxPackets uint64            `json:"rx_packets"`
	TxPackets uint64            `json:"tx_packets"`
	TxDropped uint64            `json:"tx_dropped"`
	Drops     map[string]uint64 `json:"drops"`

	text []string // all lines, with those of -stats
}

// parseRun reads what our binary printed with -json, and perhaps -stats.
func parseRun(out string) (r boxRun, err error) {
	r.text = strings.Split(out, "\n")
	for _, line := range r.text {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return r, fmt.Errorf("no JSON summary: %w: %s", err, line)
			}
			r.RxPackets += r.Packets
			return r, nil
		}
	}
	return r, fmt.Errorf("no JSON summary: %s", lastLine(out))
}

// counters are those of -stats: lines of text, or an object with -json.
func (r *boxRun) counters() map[string]uint64 {
	all := map[string]uint64{}
	for _, line := range r.text {
		var port struct{ Counters map[string]uint64 }
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &port) == nil {
			maps.Copy(all, port.Counters)
		}
		if m := counterLine.FindStringSubmatch(line); m != nil {
			all[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
		}
	}
	return all
}

// unwritten counts frames that were received but not written to a file.
const unwritten = "writer_dropped"

// dropped is what was lost on the way in.
func (r *boxRun) dropped() (n uint64) {
	for name, d := range r.Drops {
		if name != unwritten {
			n += d
		}
	}
	return n
}

// face boots Linux and a guest for our binary, with wires between them, and
// brings Linux's driver up. files are put into both guests.
func (l *lab) face(ctx context.Context, wires int, files map[string][]byte, args ...string) (*versus, error) {
	binary, err := os.ReadFile(l.binary)
	if err != nil {
		return nil, err
	}
	s, err := l.serve(ctx, 2*wires, args...)
	if err != nil {
		return nil, err
	}
	v := &versus{s: s}
	var theirs, ours []string
	for i := range wires {
		theirs, ours = append(theirs, s.sockets[2*i]), append(ours, s.sockets[2*i+1])
	}
	v.linux, err = l.boot(ctx, machine{name: "linux", posted: true, sockets: theirs, append: "mitigations=off", files: files})
	if err != nil {
		return nil, err
	}
	own := map[string][]byte{"bin/mlx5d": binary}
	maps.Copy(own, files)
	v.box, err = l.boot(ctx, machine{name: "box", posted: true, sockets: ours, iommu: true, append: "intel_iommu=on iommu=pt mitigations=off hugepages=120", files: own})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(v.linux.ready(), v.box.ready()); err != nil {
		return nil, err
	}
	return v, steps(ctx,
		step{"modules", func() error { return v.box.all("load vfio_iommu_type1 vfio-pci") }},
		step{"probe", func() error { return v.linux.loadDriver(wires) }},
	)
}

// part ends a scenario: nothing is left on the devices, no kernel complained.
func (v *versus) part(ctx context.Context) error {
	return steps(ctx,
		step{"kernel messages", v.linux.complaints},
		step{"unload", v.linux.unloadDriver},
		step{"devices left clean", func() error { return leftClean(v.s) }},
		step{"no faults", func() error { return noFaults(v.box.transcript()) }},
		step{"power off", func() error { return errors.Join(v.linux.off(), v.box.off()) }},
	)
}

func applianceVersusLinux(ctx context.Context, l *lab) error {
	v, err := l.face(ctx, 2, nil)
	if err != nil {
		return err
	}
	return steps(ctx,
		step{"link", func() (err error) { v.one, v.two, err = v.linux.pair(1500); return err }},
		step{"echo", v.echo},
		step{"flood", v.flood},
		step{"link again", v.ungenerate},
		step{"forward", func() error { return v.forward("") }},
		step{"end", func() error { return v.part(ctx) }},
	)
}

// during runs our binary while do happens, and returns what it printed and what
// the devices counted meanwhile.
func (v *versus) during(args string, do func() error) (r boxRun, before, after []counts, err error) {
	if before, err = v.s.stats(); err != nil {
		return r, nil, nil, err
	}
	err = v.box.all("rm -f /tmp/err; mlx5d -json -bind "+args+" >/tmp/out 2>/tmp/err & echo $! >/tmp/pid",
		"i=0; until grep -q 'NIC is up' /tmp/err; do i=$((i+1)); [ $i -lt 200 ] || break; kill -0 $(cat /tmp/pid) || break; sleep 0.1; done; cat /tmp/err; grep -q 'NIC is up' /tmp/err")
	if err != nil {
		return r, nil, nil, err
	}
	if err := errors.Join(v.linux.carrier(v.one), do()); err != nil {
		out, _ := v.box.run("cat /tmp/err; kill -INT $(cat /tmp/pid); sleep 2; cat /tmp/out")
		return r, nil, nil, fmt.Errorf("%w (our binary: %s)", err, lastLine(out))
	}
	time.Sleep(settle)
	out, err := v.box.run("kill -INT $(cat /tmp/pid); wait $(cat /tmp/pid); c=$?; cat /tmp/err /tmp/out; [ $c = 0 ]")
	if err != nil {
		return r, nil, nil, err
	}
	if r, err = parseRun(out); err != nil {
		return r, nil, nil, err
	}
	after, err = v.s.stats()
	return r, before, after, err
}

// inFlight is how many frames may lie on a wire whose other end is not there
// (yet or any more): Linux sends some of its own.
const inFlight = 16

// balance requires that of what Linux sent on our wires each frame came to us or
// is counted by the wire, that each that came was received or is named as
// dropped, and that what we sent is what the other end got.
func balance(r boxRun, before, after []counts, ports ...int) error {
	var got, sent uint64
	for _, p := range ports {
		got += after[p].RxFrames - before[p].RxFrames
		sent += after[p].TxFrames - before[p].TxFrames
		for _, end := range [][2]int{{p, p - 1}, {p - 1, p}} {
			out := after[end[0]].TxFrames - after[end[0]].WireDropped
			if in := after[end[1]].RxFrames; in > out || in+inFlight < out {
				return fmt.Errorf("device %d put %d frames on the wire, device %d got %d", end[0], out, end[1], in)
			}
		}
		if err := after[p].sound(); err != nil {
			return err
		}
		if err := after[p].clean(); err != nil {
			return err
		}
	}
	if r.RxPackets+r.dropped() != got {
		return fmt.Errorf("%d frames came over the wire, %d were received and %d dropped by name (%v)", got, r.RxPackets, r.dropped(), r.Drops)
	}
	if r.TxPackets != sent {
		return fmt.Errorf("we say that we sent %d frames, the device sent %d", r.TxPackets, sent)
	}
	return nil
}

// echo has Linux ping our responder.
func (v *versus) echo() error {
	r, before, after, err := v.during("-mode echo -pci "+slot0+" -addr 10.0.0.2,fd00::2", func() error {
		for _, size := range []int{64, 65, 128, 1000, 1452, 1472} {
			for _, to := range []string{"10.0.0.2", "fd00::2"} {
				if size > 1452 && strings.Contains(to, ":") {
					continue // would be fragments
				}
				if err := v.linux.ping(v.one, to, size, 5); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r.TxPackets < 55 {
		return fmt.Errorf("%d replies", r.TxPackets)
	}
	return balance(r, before, after, 1)
}

// boxMAC is that of the second device.
const boxMAC = "02:00:00:00:00:02"

// floodFrames is more than our ring holds, so that some may be dropped: by name.
const floodFrames = 20000

// floods are the receive queues that are flooded.
var floods = []string{"", "-priv-flags rx_striding_rq=off", "-priv-flags rx_striding_rq=on,rx_cqe_compress=on -rx-ring 256"}

func (v *versus) flood() error {
	// The generator works in the first network namespace only.
	if err := v.linux.all(v.one.where+"ip link set eth0 netns 1", "ip link set eth0 up"); err != nil {
		return err
	}
	v.one.where = ""
	for _, args := range floods {
		if err := v.floodInto(args); err != nil {
			return fmt.Errorf("%s: %w", args, err)
		}
	}
	return nil
}

func (v *versus) floodInto(args string) error {
	sent := 0
	r, before, after, err := v.during("-mode rxdrop -pci "+slot0+" "+args, func() (err error) {
		_, sent, err = v.linux.pktgen("eth0", pktgenRun{count: floodFrames, burst: 32, clone: 1000, mac: boxMAC})
		return err
	})
	if err != nil {
		return err
	}
	if n := after[0].TxFrames - before[0].TxFrames; n < uint64(sent) {
		return fmt.Errorf("the generator sent %d frames, the device %d", sent, n)
	}
	if r.RxPackets == 0 {
		return errors.New("not one frame of the flood was received")
	}
	return balance(r, before, after, 1)
}

// ungenerate puts the first end back where it was before the flood.
func (v *versus) ungenerate() error {
	if err := v.linux.all("ip link set eth0 netns one"); err != nil {
		return err
	}
	v.one.where = "ip netns exec one "
	return v.linux.configure(v.one, 1500)
}

// forward has Linux talk TCP from one of its ends to the other through us.
func (v *versus) forward(args string) error {
	var sum string
	r, before, after, err := v.during("-mode l2fwd -promisc -pci "+slot0+",0000:02:00.0 "+args, func() error {
		if err := v.linux.ping(v.one, v.two.ip4, 1000, 5); err != nil {
			return err
		}
		if err := v.linux.serveIperf(v.two.where); err != nil {
			return err
		}
		if err := v.linux.iperf(v.one.where, nothing, v.two.ip4); err != nil {
			return err
		}
		out, err := v.linux.run("dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null; [ -p /tmp/pipe ] || mkfifo /tmp/pipe; (%snc -l -p 5300 <>/tmp/pipe >/tmp/got) & job=$!; %s; wait $job; cmp /tmp/data /tmp/got && sha256sum </tmp/got", v.two.where, persist(v.one.where+"nc "+v.two.ip4+" 5300 </tmp/data"))
		sum = out
		return err
	})
	if err != nil {
		return err
	}
	if digest.FindString(sum) == "" || r.RxPackets < 1000 {
		return fmt.Errorf("%d packets were forwarded; the file: %s", r.RxPackets, sum)
	}
	return balance(r, before, after, 1, 3)
}
