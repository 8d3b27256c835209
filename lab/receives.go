package main

// This file owns the scenario appliance-receives: Linux sends frames of every
// size, datagrams of every length and TCP into each kind of receive queue of
// ours. What we write to a capture is compared byte for byte, what we count is
// what was sent, and TCP that we forward arrives unchanged.

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// receiveRun is one kind of receive queue.
type receiveRun struct {
	name     string
	args     string
	mtu      int
	says     []string // what our binary must report of its flags
	grow     []string // counters of ours that must grow
	still    []string
	forwards bool // TCP is sent through it too
}

var receiveRuns = []receiveRun{
	{"legacy", "-priv-flags rx_striding_rq=off", 1500, []string{`"rx_striding_rq":false`}, nil, []string{"rx_cqe_compress_blks"}, true},
	{"striding", "-priv-flags rx_striding_rq=on", 1500, []string{`"rx_striding_rq":true`}, nil, []string{"rx_cqe_compress_blks"}, true},
	{"compressed", "-priv-flags rx_striding_rq=on,rx_cqe_compress=on", 1500, []string{`"rx_striding_rq":true`, `"rx_cqe_compress":true`}, []string{"rx_cqe_compress_blks"}, nil, true},
	{"compressed, legacy", "-priv-flags rx_striding_rq=off,rx_cqe_compress=on", 1500, []string{`"rx_striding_rq":false`}, []string{"rx_cqe_compress_blks"}, nil, false},
	{"legacy, jumbo", "-priv-flags rx_striding_rq=off", 9000, []string{`"rx_striding_rq":false`}, nil, nil, false},
	{"striding, jumbo", "-priv-flags rx_striding_rq=on", 9000, nil, nil, nil, false},
}

// wireFrames is how many frames the wire holds, and wireBytes how much.
const (
	wireFrames = 4000
	wireBytes  = 6 << 20
)

// receiveTraffic makes frames from the smallest to the longest, shapes in turn.
func receiveTraffic(mtu int) *traffic {
	var t traffic
	bytes := 0
	for turn := 0; len(t.sent) < wireFrames-1 && bytes < wireBytes; turn++ {
		step := 1
		if mtu > 1500 {
			step = 13
		}
		for n := 60 + turn; n <= mtu+14 && len(t.sent) < wireFrames && bytes < wireBytes; n += step {
			s := shapes[(n/step+turn)%8]
			size, extra := n-s.overhead(), 0
			if s.tag {
				extra = 4
			}
			if size+extra >= 0 {
				t.add(s, [6]byte{2, 0, 0, 0, 0, 2}, size+extra, mtu)
				bytes += n
			}
		}
		if turn == 3 {
			break
		}
	}
	return &t
}

func applianceReceives(ctx context.Context, l *lab) error {
	tool, err := l.guestTool(ctx, "frames")
	if err != nil {
		return err
	}
	files := map[string][]byte{"bin/frames": tool}
	mixes := map[int]*traffic{}
	for _, r := range receiveRuns {
		if mixes[r.mtu] == nil {
			mixes[r.mtu] = receiveTraffic(r.mtu)
			files[fmt.Sprintf("sent.%d", r.mtu)] = capture(mixes[r.mtu].sent)
		}
	}
	v, err := l.face(ctx, 2, files)
	if err != nil {
		return err
	}
	list := []step{{"link", func() (err error) { v.one, v.two, err = v.linux.pair(1500); return err }},
		{"neighbours", func() error {
			return v.linux.all(v.one.where+"ip neigh add 10.0.0.9 lladdr "+boxMAC+" dev eth0", v.one.where+"ip neigh add fd00::9 lladdr "+boxMAC+" dev eth0")
		}}}
	for _, r := range receiveRuns {
		list = append(list, step{r.name, func() error {
			if err := v.linux.all(fmt.Sprintf("%sip link set eth0 mtu %d", v.one.where, r.mtu)); err != nil {
				return err
			}
			return v.receives(r, mixes[r.mtu])
		}})
		if r.forwards {
			list = append(list, step{r.name + ", TCP", func() error { return v.forward(r.args) }})
		}
	}
	return steps(ctx, append(list, step{"end", func() error { return v.part(ctx) }})...)
}

// talkPort is where datagrams of all lengths go to, from Linux's sockets: their
// checksums are its device's work.
const talkPort = 5001

// receives has Linux send a run's frames and datagrams, and looks at what our
// binary got.
func (v *versus) receives(r receiveRun, t *traffic) error {
	talks := []struct {
		to   string
		most int
	}{{"10.0.0.9", r.mtu - 28}, {"fd00::9", r.mtu - 48}}
	sent := len(t.sent)
	ring := 8192
	if r.mtu > 1500 { // of frames so long wire and memory hold fewer
		talks, ring = nil, 1024
	}
	run, before, after, err := v.during(fmt.Sprintf("-mode inspect -queues 1 -rx-ring %d -w /tmp/got -stats -mtu %d %s -pci %s", ring, r.mtu, r.args, slot0), func() error {
		if err := v.sendAndWait(len(t.sent), "frames send eth0 /sent.%d", r.mtu); err != nil {
			return err
		}
		for _, k := range talks {
			if err := v.sendAndWait(k.most+1, "frames talk %s %d %d", k.to, talkPort, k.most); err != nil {
				return err
			}
			sent += k.most + 1
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := balance(run, before, after, 1); err != nil {
		return err
	}
	lost := int(run.dropped() + run.Drops[unwritten] + after[0].WireDropped - before[0].WireDropped)
	if lost > sent/4 {
		return fmt.Errorf("%d of %d frames were dropped (%v)", lost, sent, run.Drops)
	}
	if err := v.captured(r, t, sent, lost); err != nil {
		return err
	}
	return run.agrees(r, t, sent-len(t.sent), lost)
}

// sendAndWait has Linux send n frames and waits until the device has them all:
// the wire holds no more than so many.
func (v *versus) sendAndWait(n int, format string, args ...any) error {
	before, err := v.s.stats()
	if err != nil {
		return err
	}
	if _, err := v.linux.run(v.one.where+format, args...); err != nil {
		return err
	}
	got := uint64(0)
	for deadline := time.Now().Add(commandPatience); time.Now().Before(deadline); time.Sleep(settle / 3) {
		after, err := v.s.stats()
		if err != nil {
			return err
		}
		if got = after[1].RxFrames - before[1].RxFrames + after[0].WireDropped - before[0].WireDropped; got >= uint64(n) {
			return nil
		}
	}
	return fmt.Errorf("%d of %d frames came to us", got, n)
}

// captured compares the file that our binary wrote. lost is what may be missing
// in it.
func (v *versus) captured(r receiveRun, t *traffic, sent, lost int) error {
	equal, missing, err := v.judge("frames compare /sent.%d /tmp/got", r.mtu)
	if err != nil {
		return err
	}
	if sent > len(t.sent) {
		e, m, err := v.judge("frames audit /tmp/got %d %d", talkPort, r.mtu-28)
		if err != nil {
			return err
		}
		equal, missing = equal+e, missing+m-20 // the longest over IPv6 are 20 bytes shorter
	}
	if equal+missing != sent || missing > lost {
		return fmt.Errorf("captured: of %d frames %d are there and %d are missing, %d were dropped by name", sent, equal, missing, lost)
	}
	return nil
}

var verdict = regexp.MustCompile(`^equal (\d+) missing (\d+)$`)

// judge runs the guest's tool and reads its verdict.
func (v *versus) judge(format string, args ...any) (equal, missing int, err error) {
	out, err := v.box.run(format, args...)
	m := verdict.FindStringSubmatch(lastLine(out))
	if err != nil || m == nil {
		return 0, 0, fmt.Errorf("captured: %s", lastLine(out))
	}
	equal, _ = strconv.Atoi(m[1])
	missing, _ = strconv.Atoi(m[2])
	return equal, missing, nil
}

// agrees holds what our binary counted against what was sent, less what was lost.
func (b *boxRun) agrees(r receiveRun, t *traffic, talked, lost int) error {
	tcp, tagged := 0, 0
	for _, s := range t.kinds {
		if s.tcp {
			tcp++
		}
		if s.tag {
			tagged++
		}
	}
	for _, k := range []struct {
		name string
		want int
	}{{"tcp", tcp}, {"udp", len(t.sent) - tcp + talked}, {"vlan", tagged}} {
		if got := int(b.Protocols[k.name]); got > k.want || got+lost < k.want {
			return fmt.Errorf("inspection saw %d %s packets of %d, %d were lost", got, k.name, k.want, lost)
		}
	}
	if len(b.DecodeErrors) != 0 {
		return fmt.Errorf("inspection could not decode: %v", b.DecodeErrors)
	}
	if err := says("our binary", strings.Join(b.text, "\n"), r.says...); err != nil {
		return err
	}
	return moved(nil, b.counters(), r.grow, r.still)
}
