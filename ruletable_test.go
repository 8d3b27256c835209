package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// pushWire gives the frames that a test pushes.
type pushWire struct {
	mu     sync.Mutex
	frames [][]byte
	lossy  bool
}

func (w *pushWire) push(frames ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames = append(w.frames, frames...)
}

func (w *pushWire) Peek(time.Time) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.frames) == 0 {
		return nil
	}
	return w.frames[0]
}

func (w *pushWire) Take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames = w.frames[1:]
}

func (w *pushWire) Lossless() bool  { return !w.lossy }
func (w *pushWire) Transmit([]byte) {}
func (w *pushWire) Done() bool      { return false }
func (w *pushWire) LinkUp() bool    { return true }
func (w *pushWire) Close() error    { return nil }

// ruleRig is a running NIC whose rules can be changed.
type ruleRig struct {
	t     testing.TB
	d     *emulatedDevice
	n     *nic
	wire  *pushWire
	col   *collector
	stats *statReader
	sent  int
}

const wentNowhere = -1

func newRuleRig(t testing.TB, profile string, w wishes, texts ...string) *ruleRig {
	t.Helper()
	r := &ruleRig{t: t, wire: &pushWire{}, col: &collector{queue: map[uint32][]int{}}}
	r.d = testDevice(t, model.Config{Profile: profile, Wire: r.wire})
	var err error
	r.n, err = openNIC(context.Background(), r.d, r.d.virtual(), openOptions{wishes: w, cpus: 2, rules: mustRules(t, texts...)})
	require.NoError(t, err)
	t.Cleanup(func() { r.n.close() })
	r.stats = newStatReader(r.n)
	handlers := make([]handler, len(r.n.channels))
	for i := range handlers {
		handlers[i] = &collectorHandler{c: r.col, scratch: make([]byte, r.n.params.rxLayout.room())}
	}
	r.n.start(handlers, false, nil)
	return r
}

// counter is a counter now.
func (r *ruleRig) counter(name string) uint64 {
	r.t.Helper()
	require.NoError(r.t, r.stats.update())
	for _, s := range r.stats.read() {
		if s.name == name {
			return s.value
		}
	}
	return 0
}

// send gives frames to the device and returns the queue that each came to, or
// wentNowhere. It returns when each is accounted for by name.
func (r *ruleRig) send(frames ...[]byte) (queues []int) {
	r.t.Helper()
	first := r.sent
	for i, f := range frames {
		r.wire.push(marked(f, first+i))
	}
	r.sent += len(frames)
	r.settle()
	r.col.mu.Lock()
	defer r.col.mu.Unlock()
	for i := range frames {
		q := r.col.queue[uint32(first+i)]
		switch len(q) {
		case 0:
			queues = append(queues, wentNowhere)
		case 1:
			queues = append(queues, q[0])
		default:
			r.t.Fatalf("frame %d came %d times", i, len(q))
		}
	}
	return queues
}

// marked is a copy of a frame, of the least length at least, that ends in a number.
func marked(f []byte, n int) []byte {
	f = append(slices.Clone(f), make([]byte, max(60-len(f), 0))...)
	binary.BigEndian.PutUint32(f[len(f)-4:], uint32(n))
	return f
}

// settle waits until what was sent is delivered or counted as dropped.
func (r *ruleRig) settle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.col.mu.Lock()
		came := r.col.total
		r.col.mu.Unlock()
		return uint64(came)+r.counter("rx_rule_dropped")+r.counter("rx_steer_missed_packets")+r.counter("rx_out_of_buffer")+
			r.counter("rx_xsk_out_of_buffer") == uint64(r.sent)
	}, 20*time.Second, 200*time.Microsecond, "%d frames sent", r.sent)
}

func (r *ruleRig) close() {
	r.t.Helper()
	require.NoError(r.t, r.n.close())
	requireClean(r.t, r.d)
	require.Zero(r.t, r.d.m.Stats().CommandFails, r.d.m.Stats().LastRefusal)
}

// The packets of the tests below.
var (
	ruleBody = numberedBody(0)
	udp4     = tos(ethFrame(ethIPv4, ip4Packet(ipUDP, 0, udpDatagram(1000, 5000, ruleBody))), 0x28)
	tcp4     = tos(ethFrame(ethIPv4, ip4Packet(ipTCP, 0, tcpSegment(1000, 5000, 1, 0x10, ruleBody))), 0x28)
	udp6     = ethFrame(ethIPv6, ip6Packet(ipUDP, udpDatagram(1000, 5000, ruleBody)))
	tcp6     = ethFrame(ethIPv6, ip6Packet(ipTCP, tcpSegment(1000, 5000, 1, 0x10, ruleBody)))
	plainARP = arpRequest()
)

// tos sets the type of service of an IPv4 frame.
func tos(f []byte, v byte) []byte { return changed(f, 15, v) }

// changed is a copy of a frame with other bytes at an offset.
func changed(f []byte, at int, b ...byte) []byte {
	f = slices.Clone(f)
	copy(f[at:], b)
	return f
}

// inTag puts a VLAN tag into a frame.
func inTag(f []byte, tpid, tci uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tpid), tci)
	return slices.Concat(f[:12], tag, f[12:])
}

// ip4Of and ip6Of are packets of a protocol that has no builder here.
func ip4Of(proto uint8) []byte { return ethFrame(ethIPv4, ip4Packet(proto, 0, spiBody)) }
func ip6Of(proto uint8) []byte { return ethFrame(ethIPv6, ip6Packet(proto, spiBody)) }

var spiBody = append([]byte{0x12, 0x34, 0x56, 0x78}, numberedBody(0)...)

// Offsets in the packets above.
const (
	atSrc4, atDst4, atPorts4 = 26, 30, 34
	atSrc6, atDst6, atPorts6 = 22, 38, 54
)

// ruleCases are what rules fit, and what differs from that in just the thing that
// the rule names.
var ruleCases = []struct {
	words string
	fits  [][]byte
	not   [][]byte
}{
	{"ether src 02:00:00:00:00:02", [][]byte{udp4, plainARP}, [][]byte{changed(udp4, 6, 6), changed(udp4, 11, 3)}},
	{"ether src 02:00:00:00:00:00 m 00:00:00:00:00:ff", [][]byte{udp4, changed(udp4, 11, 3)}, [][]byte{changed(udp4, 10, 1)}},
	{"ether dst 02:00:00:00:00:01", [][]byte{udp4, plainARP}, [][]byte{changed(udp4, 0, 6), changed(udp4, 5, 2)}},
	{"ether proto 0x88b5", [][]byte{ethFrame(0x88b5, ruleBody), inTag(ethFrame(0x88b5, ruleBody), ethVLAN, 9)}, [][]byte{ethFrame(0x88b6, ruleBody), udp4}},
	{"ether proto 0x800", [][]byte{udp4, inTag(udp4, ethVLAN, 9)}, [][]byte{udp6, plainARP}},
	{"ether", [][]byte{udp4, udp6, plainARP, inTag(udp4, ethVLAN, 9)}, nil},
	{"ip4", [][]byte{udp4, tcp4, ip4Of(47), inTag(udp4, ethVLAN, 9)}, [][]byte{udp6, plainARP}},
	{"ip4 src-ip 10.0.0.1", [][]byte{udp4, tcp4}, [][]byte{changed(udp4, atSrc4, 11), changed(udp4, atSrc4+3, 3), udp6}},
	{"ip4 src-ip 10.0.0.0 m 0.0.0.255", [][]byte{udp4, changed(udp4, atSrc4+3, 77)}, [][]byte{changed(udp4, atSrc4+2, 1)}},
	{"ip4 dst-ip 10.0.0.2", [][]byte{udp4, tcp4}, [][]byte{changed(udp4, atDst4, 11), changed(udp4, atDst4+3, 1)}},
	{"ip4 tos 0x28", [][]byte{udp4}, [][]byte{tos(udp4, 0x29), tos(udp4, 0x2c), tos(udp4, 0xa8)}},
	{"ip4 tos 0x28 m 0x3", [][]byte{udp4, tos(udp4, 0x2b)}, [][]byte{tos(udp4, 0x2c)}},
	{"ip4 l4proto 47", [][]byte{ip4Of(47)}, [][]byte{ip4Of(46), udp4}},
	{"tcp4", [][]byte{tcp4}, [][]byte{udp4, tcp6}},
	{"tcp4 src-port 1000", [][]byte{tcp4}, [][]byte{changed(tcp4, atPorts4, 2), changed(tcp4, atPorts4+1, 1), udp4}},
	{"tcp4 dst-port 5000", [][]byte{tcp4}, [][]byte{changed(tcp4, atPorts4+2, 2), changed(tcp4, atPorts4+3, 1), udp4, tcp6}},
	{"udp4", [][]byte{udp4, ethFrame(ethIPv4, ip4Packet(ipUDP, 185, ruleBody))}, [][]byte{tcp4, udp6}},
	{"udp4 src-port 1000", [][]byte{udp4}, [][]byte{changed(udp4, atPorts4, 2), changed(udp4, atPorts4+1, 1), tcp4}},
	{"udp4 dst-port 5000", [][]byte{udp4}, [][]byte{changed(udp4, atPorts4+2, 2), changed(udp4, atPorts4+3, 1), tcp4, ethFrame(ethIPv4, ip4Packet(ipUDP, 185, udp4[34:]))}},
	{"udp4 dst-port 0x1300 m 0xff", [][]byte{udp4, changed(udp4, atPorts4+3, 1)}, [][]byte{changed(udp4, atPorts4+2, 0x14)}},
	{"udp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 tos 0x28 src-port 1000 dst-port 5000 dst-mac 02:00:00:00:00:01", [][]byte{udp4},
		[][]byte{changed(udp4, 5, 2), tos(udp4, 0), changed(udp4, atSrc4, 9), changed(udp4, atDst4, 9), changed(udp4, atPorts4, 9), changed(udp4, atPorts4+2, 9)}},
	{"sctp4", [][]byte{ip4Of(ipSCTP)}, [][]byte{udp4, ip6Of(ipSCTP)}},
	{"ah4", [][]byte{ip4Of(ipAH)}, [][]byte{ip4Of(ipESP)}},
	{"esp4", [][]byte{ip4Of(ipESP)}, [][]byte{ip4Of(ipAH), ip6Of(ipESP)}},
	{"esp4 spi 0x12345678", [][]byte{ip4Of(ipESP)}, [][]byte{changed(ip4Of(ipESP), 34, 9), changed(ip4Of(ipESP), 37, 9), ip4Of(ipAH)}},
	{"ip6", [][]byte{udp6, tcp6, ip6Of(58)}, [][]byte{udp4, plainARP}},
	{"ip6 src-ip fd00::1", [][]byte{udp6}, [][]byte{changed(udp6, atSrc6, 0xfc), changed(udp6, atSrc6+5, 1), changed(udp6, atSrc6+10, 1), changed(udp6, atSrc6+15, 9)}},
	{"ip6 dst-ip fd00::2", [][]byte{udp6}, [][]byte{changed(udp6, atDst6, 0xfc), changed(udp6, atDst6+5, 1), changed(udp6, atDst6+10, 1), changed(udp6, atDst6+15, 9)}},
	{"ip6 src-ip fd00:: m ::ffff:ffff:ffff:ffff", [][]byte{udp6, changed(udp6, atSrc6+8, 1, 2, 3, 4, 5, 6, 7, 8)}, [][]byte{changed(udp6, atSrc6+7, 1)}},
	{"ip6 tclass 0x28", [][]byte{changed(udp6, 14, 0x62, 0x80)}, [][]byte{udp6, changed(udp6, 14, 0x62, 0x90)}},
	{"ip6 l4proto 58", [][]byte{ip6Of(58)}, [][]byte{ip6Of(59), udp6}},
	{"tcp6 src-port 1000 dst-port 5000", [][]byte{tcp6}, [][]byte{changed(tcp6, atPorts6, 9), changed(tcp6, atPorts6+2, 9), udp6, tcp4}},
	{"udp6 src-port 1000 dst-port 5000", [][]byte{udp6}, [][]byte{changed(udp6, atPorts6, 9), changed(udp6, atPorts6+2, 9), tcp6, udp4}},
	{"sctp6", [][]byte{ip6Of(ipSCTP)}, [][]byte{udp6}},
	{"ah6", [][]byte{ip6Of(ipAH)}, [][]byte{ip6Of(ipESP)}},
	{"esp6 spi 0x12345678", [][]byte{ip6Of(ipESP)}, [][]byte{changed(ip6Of(ipESP), 54, 9), ip6Of(ipAH)}},
	{"ether vlan 5", [][]byte{inTag(udp4, ethVLAN, 5), inTag(plainARP, ethVLAN, 5)},
		[][]byte{udp4, inTag(udp4, ethVLAN, 6), inTag(udp4, ethVLAN, 0x2005), inTag(udp4, ethVLAN, 0x1005), inTag(udp4, ethQinQ, 5)}},
	{"udp4 vlan 5 m 0xf000", [][]byte{inTag(udp4, ethVLAN, 5), inTag(udp4, ethVLAN, 0xe005)}, [][]byte{udp4, inTag(udp4, ethVLAN, 7), inTag(tcp4, ethVLAN, 5)}},
	{"udp4 vlan 0x2000 m 0x1fff", [][]byte{inTag(udp4, ethVLAN, 0x2abc)}, [][]byte{udp4, inTag(udp4, ethVLAN, 0x4abc)}},
	{"udp4 vlan-etype 0x88a8 vlan 5", [][]byte{inTag(udp4, ethQinQ, 5)}, [][]byte{inTag(udp4, ethVLAN, 5), inTag(udp4, ethQinQ, 6)}},
	{"ether vlan-etype 0x8100", [][]byte{inTag(udp4, ethVLAN, 5), inTag(udp4, ethVLAN, 0)}, [][]byte{udp4, inTag(udp4, ethQinQ, 5)}},
	{"udp6 dst-mac 02:00:00:00:00:01", [][]byte{udp6}, [][]byte{changed(udp6, 5, 9), tcp6}},
}

// Every word leads exactly what it names to the rule's action, on every profile;
// what differs in that alone goes on as if there were no rule. A rule that a device
// cannot have is refused.
func TestRulesFitWhatTheyName(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			r := newRuleRig(t, profile, wishes{queues: 2, promisc: true})
			for _, c := range ruleCases {
				rules := mustRules(t, "flow-type "+c.words+" action -1")
				if err := checkRules(rules, r.n.caps, 2, 0); err != nil {
					require.Equal(t, "cx4", profile)
					require.ErrorContains(t, err, "spi: the device cannot match it")
					continue
				}
				require.NoError(t, r.n.rules.set(rules), c.words)
				before := r.counter("rx_rule_dropped")
				for i, q := range r.send(slices.Concat(c.fits, c.not)...) {
					if i < len(c.fits) {
						require.Equal(t, wentNowhere, q, "%s: frame %d should fit", c.words, i)
					} else {
						require.NotEqual(t, wentNowhere, q, "%s: frame %d should not fit", c.words, i-len(c.fits))
					}
				}
				require.EqualValues(t, len(c.fits), r.counter("rx_rule_dropped")-before, c.words)
			}
			r.close()
		})
	}
}

// Rules lead to regular queues and to the upper ones, which nothing else does, and
// the lowest location decides.
func TestRulesLeadToQueues(t *testing.T) {
	for _, profile := range model.Profiles() {
		t.Run(profile, func(t *testing.T) {
			// The queue for control traffic stands in for an upper one.
			r := newRuleRig(t, profile, wishes{queues: 3, promisc: true, trap: true}, "flow-type tcp4 action 1")
			r.n.rules.rqn = func(q int) uint32 { return r.n.channels[q].rx.n }
			require.Equal(t, []int{1, 1, 1}, r.send(tcp4, changed(tcp4, atSrc4+3, 9), changed(tcp4, atPorts4, 9)))
			port := func(p byte) []byte { return changed(udp4, atPorts4+2, 0, p) }
			require.NoError(t, r.n.rules.set(mustRules(t,
				"flow-type udp4 dst-port 1 action 2 loc 10",
				"flow-type udp4 dst-port 2 action 3 loc 11",
				"flow-type udp4 dst-port 3 action -1 loc 12",
				"flow-type udp4 action 0 loc 20",
				"flow-type udp4 dst-port 4 action 1 loc 21", // never reached
				"flow-type tcp6 action 1",
				"flow-type tcp6 dst-port 5000 action 2", // looked at before the one above
			)))
			require.Equal(t, []int{2, 3, wentNowhere, 0, 0}, r.send(port(1), port(2), port(3), port(4), port(5)))
			require.Equal(t, []int{2, 1}, r.send(tcp6, changed(tcp6, atPorts6+2, 0, 1)))
			require.EqualValues(t, 1, r.counter("rx_rule_dropped"))
			require.NoError(t, r.n.rules.set(nil))
			require.NotContains(t, r.send(tcp4, udp4, udp6), wentNowhere)
			require.EqualValues(t, 1, r.counter("rx_rule_dropped"), "what was counted stays when rules go")
			r.close()
		})
	}
}

// The queues of zero-copy sockets are the upper half of the numbers. Where nobody
// listens there the device drops and counts.
func TestRulesLeadToSockets(t *testing.T) {
	r := newRuleRig(t, "cx5", wishes{queues: 2, promisc: true, xsk: true}, "flow-type udp4 action 3", "flow-type tcp4 action 1")
	require.Equal(t, []int{wentNowhere, 1, wentNowhere}, r.send(udp4, tcp4, udp4))
	require.EqualValues(t, 2, r.counter("rx_xsk_out_of_buffer"))
	require.Zero(t, r.counter("rx_out_of_buffer"))
	require.Equal(t, r.n.channels[1].xsk.recv.n, r.n.queueOf(3))
	require.Contains(t, r.n.formatRules(), "4 RX rings available")
	r.close()
	_, err := openNIC(context.Background(), testDevice(t, model.Config{}), false, openOptions{wishes: wishes{queues: 2, xsk: true}, cpus: 2, rules: mustRules(t, "flow-type udp4 action 4")})
	require.ErrorContains(t, err, "action 4: queues are 0 to 3, or -1 to drop")
}

// A rule leads to a queue's number: when the receive queue behind it is replaced,
// by one of another kind, packets follow, and none goes elsewhere.
func TestRulesFollowReplacedQueues(t *testing.T) {
	r := newRuleRig(t, "cx5", wishes{queues: 3, promisc: true}, "flow-type udp4 action 1", "flow-type tcp6 action -1")
	for i := range 10 {
		before := r.n.queueOf(1)
		for range 50 {
			r.wire.push(marked(udp4, r.sent))
			r.sent++
		}
		require.NoError(t, r.n.setPrivFlag("rx_striding_rq", i%2 == 0))
		require.NotEqual(t, before, r.n.queueOf(1))
		r.settle()
	}
	for id, q := range r.col.queue {
		require.Equal(t, []int{1}, q, "frame %d", id)
	}
	require.NoError(t, r.n.rules.set(mustRules(t, "flow-type udp4 action 2", "flow-type tcp4 action 1")))
	require.Equal(t, []int{2, 1}, r.send(udp4, tcp4), "a way to a queue that no rule led to before")
	r.close()
}

// Rules come before the filter: they take what is not for us too. What none of them
// takes and the filter does not want is counted as missed.
func TestRulesComeBeforeTheFilter(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5", "cx6dx"} {
		r := newRuleRig(t, profile, wishes{queues: 2, noAllMulti: true}, "flow-type udp4 dst-port 5000 action 1", "flow-type udp4 dst-port 5001 action -1")
		group := []byte{1, 0, 0x5e, 1, 2, 3}
		multicast := changed(udp4, 0, group...)
		if profile != "cx4" { // there the vport takes all that comes, to count it
			require.NoError(t, r.n.fw.setVportList(vportListMC, [][6]byte{[6]byte(group)}))
		}
		require.Equal(t, []int{1, wentNowhere, wentNowhere}, r.send(multicast, changed(multicast, atPorts4+3, 0x89), changed(multicast, atPorts4+3, 0x90)))
		require.EqualValues(t, 1, r.counter("rx_rule_dropped"))
		require.EqualValues(t, 1, r.counter("rx_steer_missed_packets"))
		r.close()
	}
}

// A thousand rules, one at every location, each for a port of its own.
func TestRulesAtEveryLocation(t *testing.T) {
	r := newRuleRig(t, "cx5", wishes{queues: 4, promisc: true})
	var rules []rule
	for i := range maxRules {
		rules = append(rules, mustRules(t, fmt.Sprintf("flow-type udp4 dst-port %d action %d loc %d", 2000+i, i%4, i))...)
	}
	require.NoError(t, r.n.rules.set(rules))
	var frames [][]byte
	var want []int
	for i := 0; i < maxRules; i += 7 {
		frames = append(frames, changed(udp4, atPorts4+2, byte((2000+i)>>8), byte(2000+i)))
		want = append(want, i%4)
	}
	require.Equal(t, want, r.send(frames...))
	r.close()
}

// While rules change, every packet meets either the old ones or the new ones: a
// flow that both lead somewhere never goes where no rule would send it.
func TestNoPacketMeetsHalfTheRules(t *testing.T) {
	r := newRuleRig(t, "cx5", wishes{queues: 3, promisc: true})
	flow := udp4
	for port := byte(1); r.send(flow)[0] != 2; port++ { // what goes to queue 2 by itself
		flow = changed(flow, atPorts4, 0, port)
	}
	sets := [2][]rule{
		mustRules(t, "flow-type udp4 action 0", "flow-type tcp4 dst-port 1 action 1", "flow-type ip6 action -1"),
		mustRules(t, "flow-type tcp6 action 0", "flow-type ether src 02:00:00:00:00:02 action 1"),
	}
	require.NoError(t, r.n.rules.set(sets[0]))
	came := map[int]int{}
	for i := range 300 {
		require.NoError(t, r.n.rules.set(sets[(i+1)%2]))
		for range 20 {
			r.wire.push(marked(flow, r.sent))
			r.sent++
		}
	}
	r.settle()
	r.col.mu.Lock()
	for id, q := range r.col.queue {
		if id >= uint32(r.sent-6000) {
			require.Len(t, q, 1)
			came[q[0]]++
		}
	}
	r.col.mu.Unlock()
	require.Equal(t, 6000, came[0]+came[1], "%v", came)
	require.Zero(t, came[2])
	r.close()
}

// A change that fails at any command leaves the old rules in force and nothing else
// in the device.
func TestFailedChangeKeepsTheOldRules(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		r := newRuleRig(t, profile, wishes{queues: 3, promisc: true}, "flow-type udp4 action 1", "flow-type tcp4 action 2", "flow-type tcp6 action -1")
		next := mustRules(t, "flow-type udp4 action 2", "flow-type udp4 dst-port 80 action 1 loc 3", "flow-type ip6 action -1")
		whole := &commandLog{fail: -1}
		objects := r.d.m.Stats().Objects
		r.d.m.SetScript(whole.script())
		require.NoError(t, r.n.rules.set(next))
		up := slices.IndexFunc(whole.seen, func(c model.CommandInfo) bool { return c.Opcode == opSetFlowTableRoot })
		require.Positive(t, up)
		r.d.m.SetScript(nil)
		require.NoError(t, r.n.rules.set(mustRules(t, "flow-type udp4 action 1", "flow-type tcp4 action 2", "flow-type tcp6 action -1")))
		require.True(t, maps.Equal(objects, r.d.m.Stats().Objects))
		for at := range up + 1 {
			cut := &commandLog{fail: at}
			r.d.m.SetScript(cut.script())
			err := r.n.rules.set(next)
			r.d.m.SetScript(nil)
			require.ErrorContains(t, err, "EXCEED_LIM", "%s: command %d", profile, at)
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, "flow-type tcp6 action -1 loc 1021", r.n.rules.rules[0].String())
			require.True(t, maps.Equal(objects, r.d.m.Stats().Objects), "%s: command %d: %v, before %v", profile, at, r.d.m.Stats().Objects, objects)
		}
		require.Equal(t, []int{1, 2, wentNowhere}, r.send(udp4, tcp4, tcp6))
		require.NoError(t, r.n.close())
		requireClean(t, r.d)
	}
}

// Bring-up with rules that fails at any command takes back all that came before.
func TestBringUpWithRulesCutAtEveryCommand(t *testing.T) {
	rules := mustRules(t, "flow-type udp4 dst-port 5000 action 1", "flow-type tcp4 action -1", "flow-type udp6 dst-port 7 action 0", "flow-type udp4 action -1 loc 3")
	for _, profile := range []string{"cx4", "cx5", "cx5-vf"} {
		open := func(d *emulatedDevice) (*nic, error) {
			return openNIC(context.Background(), d, d.virtual(), openOptions{wishes: wishes{queues: 2, rxRing: 64, txRing: 64}, cpus: 2, rules: rules})
		}
		whole := &commandLog{fail: -1}
		d := testDevice(t, model.Config{Profile: profile, Script: whole.script()})
		n, err := open(d)
		require.NoError(t, err)
		total := whole.count()
		require.NoError(t, n.close())
		requireClean(t, d)
		// What comes before steering is the same without rules (TestBringUpCutAtEveryCommand).
		first := slices.IndexFunc(whole.seen, func(c model.CommandInfo) bool { return c.Opcode == opCreateFlowTable })
		for at := first; at < total; at++ {
			cut := &commandLog{fail: at}
			d.m.SetScript(cut.script())
			_, err := open(d)
			require.ErrorContains(t, err, "EXCEED_LIM", "%s: command %d", profile, at)
			require.ErrorContains(t, err, nameOf(opcodeNames, whole.seen[at].Opcode))
			require.NotContains(t, err.Error(), "\n")
			requireClean(t, d)
		}
	}
}

// The commands for rules, in order: the table beside the others, its ways to queues
// once each, the root behind all of it; and backwards.
func TestRuleCommandOrderIsGolden(t *testing.T) {
	log := &commandLog{fail: -1}
	d := testDevice(t, model.Config{Script: log.script()})
	n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: 2, promisc: true}, cpus: 2,
		rules: mustRules(t, "flow-type udp4 dst-port 1 action 1 loc 1", "flow-type udp4 dst-port 2 action 1 loc 2", "flow-type tcp4 action -1 loc 3")})
	require.NoError(t, err)
	up := log.count()
	require.NoError(t, n.close())
	words := strings.Join(asGolden(log.seen[:up]), " ")
	require.Contains(t, words, "CREATE_FLOW_GROUP CREATE_FLOW_GROUP CREATE_FLOW_GROUP "+ // the filter's
		"CREATE_FLOW_TABLE CREATE_FLOW_GROUP CREATE_RQT CREATE_TIR SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY "+
		"CREATE_FLOW_GROUP ALLOC_FLOW_COUNTER SET_FLOW_TABLE_ENTRY "+
		"MODIFY_NIC_VPORT_CONTEXT SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ENTRY SET_FLOW_TABLE_ROOT ACCESS_REG QUERY_VPORT_STATE")
	words = strings.Join(asGolden(log.seen[up:]), " ")
	require.Contains(t, words, "MODIFY_NIC_VPORT_CONTEXT SET_FLOW_TABLE_ROOT "+
		"DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DELETE_FLOW_TABLE_ENTRY DELETE_FLOW_TABLE_ENTRY DESTROY_FLOW_GROUP DESTROY_FLOW_TABLE "+
		"DEALLOC_FLOW_COUNTER DESTROY_TIR DESTROY_RQT DESTROY_FLOW_GROUP")
}

// From the command line: rules are in force from the first packet, their drops are
// among the summary's, and a wrong one is wrong use.
func TestRulesFromTheCommandLine(t *testing.T) {
	for _, profile := range model.Profiles() {
		code, out, errs := cli(t, "-emulate", "-profile", profile, "-wire", "gen:count=3000", "-mode", "rxdrop", "-queues", "2", "-promisc", "-json",
			"-rule", "flow-type udp4 action -1", "-rule", "flow-type ether action 1 loc 1023")
		require.Equal(t, exitDone, code, errs)
		var s countSummary
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		require.NotZero(t, s.Drops["rx_rule_dropped"])
		require.EqualValues(t, 3000, s.RxPackets+s.Drops["rx_rule_dropped"])
		require.Contains(t, errs, "flow-type udp4 action -1 loc 1022", "the location it got is told")
	}
	code, out, errs := cli(t, "-emulate", "-wire", "gen:count=200", "-mode", "rxdrop", "-queues", "2", "-promisc", "-stats", "-rule", "flow-type ether action 1")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "rx1_packets: 200\n")
	require.Contains(t, out, "Filter: 1023\n\tFlow Type: Raw Ethernet\n")
	for _, c := range []struct{ rule, says string }{
		{"flow-type tcp4 dst-port 80 action 9", "action 9: queues are 0 to 3, or -1 to drop"},
		{"flow-type tcp4 dst-prot 80 action 1", "dst-prot: flow-type tcp4 has"},
	} {
		code, _, errs := cli(t, "-emulate", "-queues", "4", "-rule", c.rule)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, c.says)
		require.Equal(t, 1, strings.Count(strings.TrimSpace(errs), "\n")+1, errs)
	}
}

// A lossy wire: what the sink takes costs nobody else a buffer.
func TestDropsAreCountedOnALossyWire(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5"} {
		r := newRuleRig(t, profile, wishes{queues: 1, promisc: true, rxRing: 1024}, "flow-type udp4 action -1")
		r.wire.lossy = true
		var frames [][]byte
		for i := range 5000 {
			frames = append(frames, [][]byte{udp4, tcp4}[index(i%10 == 0)])
		}
		queues := r.send(frames...)
		require.EqualValues(t, 4500, r.counter("rx_rule_dropped"))
		require.Equal(t, 500, bytes.Count(intsAsBytes(queues), []byte{1}))
		r.close()
	}
}

// intsAsBytes is each number plus one.
func intsAsBytes(n []int) (out []byte) {
	for _, v := range n {
		out = append(out, byte(v+1))
	}
	return out
}
