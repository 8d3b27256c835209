package main

// health_test.go owns the proof that an operator hears of what happens beside the
// packets: a device that is lost or asked for ends the run, firmware that is ill or
// stands still is told of once, and a receive queue that breaks in silence works again.

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func TestPulse(t *testing.T) {
	steady := []vitals{{true, 1, 0}, {true, 1, 0}, {true, 1, 0}, {true, 1, 0}, {true, 1, 0}, {true, 1, 0}, {true, 1, 0}}
	for _, c := range []struct {
		name  string
		looks []vitals
		want  []condition
	}{
		{"well", []vitals{{true, 1, 0}, {true, 2, 0}, {true, 0, 0}, {true, 0xffffff, 0}}, []condition{fit, fit, fit, fit}},
		{"still", steady, []condition{fit, fit, fit, fit, fit, stopped, fit}},
		{"goes on, stands again", append(append([]vitals{{true, 0, 0}}, steady[:3]...), append([]vitals{{true, 9, 0}}, steady[:6]...)...),
			[]condition{fit, fit, fit, fit, fit, fit, fit, fit, fit, fit, stopped}},
		{"ill once", []vitals{{true, 1, 0}, {true, 2, 1}, {true, 3, 1}, {true, 4, 0}, {true, 5, 1}}, []condition{fit, ill, fit, fit, ill}},
		{"another illness", []vitals{{true, 1, 7}, {true, 2, 8}}, []condition{ill, ill}},
		{"gone", []vitals{{true, 1, 0}, {false, 0xffffff, 0xff}}, []condition{fit, lost}},
	} {
		var p pulse
		for i, v := range c.looks {
			require.Equal(t, c.want[i], p.judge(v), "%s, look %d", c.name, i)
		}
	}
}

// Every syndrome that is published has words.
func TestHealthSyndromesHaveNames(t *testing.T) {
	found := 0
	for _, r := range readTSV(t, sharedFile(t, "prm", "values.tsv")) {
		if r[0] == "init_seg_health_syndrome" {
			v, err := strconv.ParseUint(r[2], 0, 8)
			require.NoError(t, err)
			require.Contains(t, healthNames, uint8(v), r[1])
			found++
		}
	}
	require.Equal(t, len(healthNames), found)
}

// healthRig is a NIC whose watch is turned by hand.
func healthRig(t *testing.T, wire string) (*emulatedDevice, *nic, *health) {
	w, err := model.ParseWire(wire)
	require.NoError(t, err)
	d := testDevice(t, model.Config{Wire: w})
	n, err := openNIC(t.Context(), d, d.virtual(), openOptions{wishes: wishes{queues: 1, promisc: true, rxRing: 64}, cpus: 2})
	require.NoError(t, err)
	t.Cleanup(func() {
		d.m.SetScript(nil)
		_ = n.close() // some lose their device
	})
	return d, n, newHealth(n)
}

func TestDeviceThatVanishes(t *testing.T) {
	d, n, h := healthRig(t, "none")
	require.True(t, h.look(time.Now()))
	require.NoError(t, h.over())
	d.m.SetScript(&model.Script{Vanish: func() bool { return true }})
	require.Eventually(t, func() bool { return !h.look(time.Now()) }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, h.over(), errDeviceLost)
	_, err := n.fw.queryVportCounters()
	require.ErrorIs(t, err, errDeviceLost, "commands fail without asking")
}

func TestFirmwareThatIsIll(t *testing.T) {
	d, n, h := healthRig(t, "none")
	require.True(t, h.look(time.Now()))
	d.m.SetScript(&model.Script{HealthSyndrome: 0x10}) // the model's counter stands still then
	require.Eventually(t, func() bool { return readVitals(d.bar0()).syndrome != 0 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "too hot (syndrome 0x10)")
	for range 3 * stillLooks {
		require.True(t, h.look(time.Now()))
	}
	require.EqualValues(t, 1, n.control.illness.get())
	require.EqualValues(t, 1, n.control.stops.get())
	require.Contains(t, strings.Join(notices(n), "\n"), "firmware has stood still for 5s")
	d.m.SetScript(nil)
	require.Eventually(t, func() bool { return readVitals(d.bar0()).syndrome == 0 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.Empty(t, notices(n))
	require.NoError(t, h.over())
}

// What is counted is told at once and then not again for a while; the link whenever it
// changes.
func TestEventsAreTold(t *testing.T) {
	d, n, h := healthRig(t, "loop")
	at := time.Now()
	require.True(t, h.look(at))
	require.Empty(t, notices(n))
	for _, up := range []bool{false, true} {
		d.m.SetLink(up)
		require.Eventually(t, func() bool { return n.control.linkUp.Load() == up }, 10*time.Second, time.Millisecond)
		require.True(t, h.look(at))
		require.Contains(t, strings.Join(notices(n), "\n"), map[bool]string{true: "the link is up", false: "the link is down"}[up])
	}
	n.control.take(hwEvent{kind: eventInternal})
	require.True(t, h.look(at))
	require.Contains(t, strings.Join(notices(n), "\n"), "internal error (1 so far)")
	n.control.take(hwEvent{kind: eventInternal})
	require.True(t, h.look(at.Add(tellEvery-1)))
	require.Empty(t, notices(n))
	require.True(t, h.look(at.Add(tellEvery)))
	require.Contains(t, strings.Join(notices(n), "\n"), "internal error (2 so far)")
}

// A completion queue that fails is named; numbers that are nobody's do no harm, nor
// does a flood.
func TestBrokenQueuesAreNamed(t *testing.T) {
	_, n, h := healthRig(t, "none")
	event := func(kind uint8, at int, number uint32) hwEvent {
		ev := hwEvent{kind: kind}
		ev.data[20], ev.data[11] = eventFromRQ, 1
		putBE32(ev.data[:], at, number)
		return ev
	}
	for i := range uint32(1000) {
		n.control.take(event(eventCQError, 0, i<<12|0xabc))
		n.control.take(event(eventWQAccess, 24, i<<12|0xabc))
	}
	n.control.take(event(eventWQCatas, 24, n.channels[0].rx.n)) // it is not in error
	for range 3 {
		require.True(t, h.look(time.Now()))
	}
	said := strings.Join(notices(n), "\n")
	require.Contains(t, said, "completion queues have failed (1000 so far)")
	require.NotContains(t, said, "out of service")
	require.NotContains(t, said, "reset")
	n.control.take(event(eventCQError, 0, n.channels[0].tx.cq.n))
	require.True(t, h.look(time.Now()))
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "completion queue of send queue tx0")
}

// A receive queue that breaks where no completion tells it, here by a doorbell record
// that makes no sense, works again.
func TestBrokenReceiveQueueIsReset(t *testing.T) {
	_, n, h := healthRig(t, "gen:size=64,count=0")
	n.start([]handler{dropWork{}}, false, nil)
	t.Cleanup(n.stop)
	c := n.channels[0]
	require.Eventually(t, func() bool { return c.rxStats.packets.get() > 0 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	c.do(func() {
		for end := time.Now().Add(10 * time.Second); !n.inError(c.rx.n) && time.Now().Before(end); {
			c.rx.rec.store(recordRQ, (c.rx.posted+5000)&0xffff)
		}
	})
	require.Eventually(t, func() bool { return n.control.wqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "catastrophic error: reset and filled again")
	at := c.rxStats.packets.get()
	require.Eventually(t, func() bool { return c.rxStats.packets.get() > at+1000 }, 10*time.Second, time.Millisecond)
}

// A receive queue whose completion queue failed is replaced, if need be the second time,
// and what comes is received again.
func TestReceiveQueueIsReplaced(t *testing.T) {
	for _, striding := range []bool{false, true} {
		d, n, h := healthRig(t, "gen:size=64,count=0")
		n.start([]handler{dropWork{}}, false, nil)
		if striding {
			require.NoError(t, n.setPrivFlag("rx_striding_rq", true))
		}
		c, now := n.channels[0], time.Now()
		flows := func() {
			at := c.rxStats.packets.get()
			require.Eventually(t, func() bool { return c.rxStats.packets.get() > at+1000 }, 10*time.Second, time.Millisecond)
		}
		flows()
		h.replace(now)
		old, _ := c.queues()
		require.True(t, d.m.FailCQ(old.cq.n))
		require.Eventually(t, func() bool { return n.control.cqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
		require.True(t, h.look(now))
		require.Contains(t, strings.Join(notices(n), "\n"), "completion queue of receive queue rx0: overrun: receive queues are replaced")
		d.m.SetScript(&model.Script{Command: func(i model.CommandInfo) model.Verdict {
			return model.Verdict{Status: uint8(8 * index(i.Opcode == opCreateCQ))}
		}})
		h.replace(now)
		require.Contains(t, strings.Join(notices(n), "\n"), "cannot be replaced, tried again in 5s: channel 0: ")
		d.m.SetScript(nil)
		h.replace(now.Add(txTimeout - 1))
		same, _ := c.queues()
		require.Same(t, old, same, "it is too early")
		h.replace(now.Add(txTimeout))
		renewed, other := c.queues()
		require.NotSame(t, old, renewed)
		require.Nil(t, other)
		require.Contains(t, strings.Join(notices(n), "\n"), "receive queues are replaced and work again")
		flows()
		h.replace(now.Add(time.Hour))
		last, _ := c.queues()
		require.Same(t, renewed, last, "once is enough")
		require.Zero(t, d.m.Stats().DMAFaults, d.m.Stats().LastFault)
		require.NoError(t, n.close())
		requireClean(t, d)
	}
}

// sendingRig is a healthRig that sends all the time, but for while quiet is set.
func sendingRig(t *testing.T, quiet *atomic.Bool) (*emulatedDevice, *nic, *health) {
	d, n, h := healthRig(t, "none")
	w, ok := newSendWork(n.channels[0], [6]byte(n.mac), 64, func(n int) int { return n * index(!quiet.Load()) })
	require.True(t, ok)
	n.start([]handler{w}, false, nil)
	require.True(t, h.look(time.Now()))
	require.Eventually(t, func() bool { return n.channels[0].tx.stats.packets.get() > 1000 }, 10*time.Second, time.Millisecond)
	return d, n, h
}

// A send queue whose completion queue failed drops what it is given, by name, holds
// nobody up and is not tried again.
func TestSendQueueWithoutCompletions(t *testing.T) {
	d, n, h := sendingRig(t, new(atomic.Bool))
	c := n.channels[0]
	require.True(t, d.m.FailCQ(c.tx.cq.n))
	require.Eventually(t, func() bool { return n.control.cqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "overrun: the queue is out of service until the next start")
	posted, resets, rests := uint64(0), uint64(0), false
	c.do(func() {
		c.tx.publish()
		posted, resets = c.tx.stats.packets.get(), c.tx.stats.recover.get()
		rests = c.tx.owed() == 0 && !c.pending() && c.tx.fhead == c.tx.ftail
	})
	require.True(t, rests, "nothing is waited for, and pages are given back")
	lost := c.tx.stats.dropped.get()
	require.Eventually(t, func() bool { return c.tx.stats.dropped.get() > lost+10_000 }, 10*time.Second, time.Millisecond)
	c.do(func() {
		c.tx.again = time.Time{}
		n.watchTX(c.tx)
	})
	n.control.take(hwEvent{kind: eventCQError, data: cqErrorOf(c.tx.cq.n)})
	require.True(t, h.look(time.Now()))
	require.Empty(t, notices(n), "it is told once")
	require.Equal(t, resets, c.tx.stats.recover.get())
	require.Equal(t, posted, c.tx.stats.packets.get())
	require.NoError(t, n.close())
	requireClean(t, d)
}

// Where the reset fails too, the pages stay with the device, and all else is the same.
func TestSendQueueThatCannotBeReset(t *testing.T) {
	d, n, h := sendingRig(t, new(atomic.Bool))
	c := n.channels[0]
	d.m.SetScript(&model.Script{Command: func(i model.CommandInfo) model.Verdict {
		return model.Verdict{Status: uint8(8 * index(i.Opcode == opQuerySQ))}
	}})
	require.True(t, d.m.FailCQ(c.tx.cq.n))
	require.Eventually(t, func() bool { return n.control.cqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "its pages stay with it: ")
	lost := c.tx.stats.dropped.get()
	require.Eventually(t, func() bool { return c.tx.stats.dropped.get() > lost+10_000 }, 10*time.Second, time.Millisecond)
	d.m.SetScript(nil)
	require.NoError(t, n.close())
	requireClean(t, d)
}

// Numbers are a device's own: what one says of a queue through which another port's
// channel sends, is about that one and no other of that number.
func TestForwardQueueWithoutCompletions(t *testing.T) {
	var devices [2]*emulatedDevice
	for i := range devices {
		devices[i] = testDevice(t, model.Config{Wire: &pushWire{}})
	}
	mem := newArena(devices[0])
	require.NoError(t, mem.share(devices[1]))
	var ports [2]*nic
	for i, d := range devices {
		var err error
		ports[i], err = openNIC(t.Context(), d, false, openOptions{wishes: wishes{queues: 2, promisc: true}, cpus: 2, mem: mem, index: i})
		require.NoError(t, err)
	}
	for i, n := range ports {
		for _, c := range n.channels {
			require.NoError(t, n.newForward(c, ports[1-i]))
		}
	}
	for _, n := range ports {
		n.start([]handler{newForwardWork(), newForwardWork()}, false, nil)
	}
	failed := ports[0].channels[1].forward
	require.Equal(t, failed.cq.n, ports[1].channels[1].forward.cq.n, "else this shows nothing")
	require.True(t, devices[1].m.FailCQ(failed.cq.n))
	require.Eventually(t, func() bool { return ports[1].control.cqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
	for _, n := range ports {
		require.True(t, newHealth(n).look(time.Now()))
	}
	var severed []*sendQueue
	for _, n := range ports {
		for _, c := range n.channels {
			c.do(func() {
				for _, q := range c.sendQueues() {
					if q.severed {
						severed = append(severed, q)
					}
				}
			})
		}
	}
	require.Len(t, severed, 1)
	require.Same(t, failed, severed[0])
	require.Contains(t, strings.Join(notices(ports[1]), "\n"), "tx1 from another port")
	for i := range ports {
		require.NoError(t, ports[1-i].close())
	}
	require.NoError(t, mem.close())
	for _, d := range devices {
		requireClean(t, d)
	}
}

// cqErrorOf is the data of the event that a completion queue overran.
func cqErrorOf(cqn uint32) (data [28]byte) {
	putBE32(data[:], 0, cqn)
	data[11] = 1
	return data
}

// A send queue that breaks where no completion tells it, here by a doorbell record that
// makes no sense, works again long before it would count as stalled.
func TestBrokenSendQueueIsReset(t *testing.T) {
	var quiet atomic.Bool // what it sends later would complete in error, and that tells it
	d, n, h := sendingRig(t, &quiet)
	c := n.channels[0]
	quiet.Store(true)
	require.Eventually(t, func() (rests bool) {
		c.do(func() { rests = c.tx.owed() == 0 })
		return rests
	}, 10*time.Second, time.Millisecond)
	inError := func() bool {
		state, err := n.fw.querySQ(c.tx.n)
		return err == nil && state == queueError
	}
	c.do(func() {
		for end := time.Now().Add(10 * time.Second); !inError() && time.Now().Before(end); {
			c.tx.rec.store(recordSQ, (c.tx.pi+5000)&0xffff)
			regWrite64(c.tx.uar, uarSQ, be64word(c.tx.wqes[c.tx.last&c.tx.mask][0].a))
		}
	})
	require.Eventually(t, func() bool { return n.control.wqErrors.get() == 1 }, 10*time.Second, time.Millisecond)
	require.True(t, h.look(time.Now()))
	require.True(t, h.look(time.Now()))
	require.Contains(t, strings.Join(notices(n), "\n"), "catastrophic error: reset")
	at := c.tx.stats.packets.get()
	quiet.Store(false)
	require.Eventually(t, func() bool { return c.tx.stats.packets.get() > at+10_000 }, 10*time.Second, time.Millisecond)
	require.Zero(t, d.m.Stats().DMAFaults, d.m.Stats().LastFault)
}

// upWriter tells when a NIC is up.
type upWriter struct {
	bytes.Buffer
	up chan struct{}
}

func (w *upWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("NIC is up")) {
		close(w.up)
	}
	return w.Buffer.Write(b)
}

// A run whose device is lost, or asked for, ends by itself with its report and exit code
// 3, whatever it does.
func TestRunEndsWithoutItsDevice(t *testing.T) {
	lose := func(d *emulatedDevice) { d.m.SetScript(&model.Script{Vanish: func() bool { return true }}) }
	ask := func(d *emulatedDevice) { d.wanted.Store(true) }
	for _, c := range []struct {
		name string
		args string
		end  func(*emulatedDevice)
		want error
	}{
		{"lost while idle", "-wire loop", lose, errDeviceLost},
		{"lost under load", "-mode l2fwd -promisc -wire gen:count=0,size=64", lose, errDeviceLost},
		{"lost with sockets", "-mode rxdrop -datapath xsk -promisc -wire gen:count=0,size=64", lose, errDeviceLost},
		{"asked for while idle", "-wire loop", ask, errWantedBack},
		{"asked for under load", "-mode rxdrop -promisc -wire gen:count=0,size=64", ask, errWantedBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			o, _, err := parseOptions(append([]string{"-emulate"}, strings.Fields(c.args)...))
			require.NoError(t, err)
			logs, out := &upWriter{up: make(chan struct{})}, &bytes.Buffer{}
			a := newAppliance(o, logger(logs, "text"), out)
			go func() {
				<-logs.up
				time.Sleep(10 * time.Millisecond) // mostly amid traffic; any moment will do
				c.end(a.ports[0].emulated)
			}()
			err = a.run(ctx)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "emulated cx5: ")
			require.Equal(t, exitLost, exitCode(err))
			require.NoError(t, ctx.Err(), "it ended only when told to")
			require.NotEmpty(t, out.String(), "the report is printed")
		})
	}
}
