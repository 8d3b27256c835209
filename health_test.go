package main

// health_test.go owns the proof that an operator hears of what happens beside the
// packets: a device that is lost or asked for ends the run, firmware that is ill or
// stands still is told of once, and a receive queue that breaks in silence works again.

import (
	"bytes"
	"context"
	"strconv"
	"strings"
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
