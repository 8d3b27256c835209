package main

// ending_test.go owns the end of a channel's loop: what is owed then is waited for,
// what does not come is counted. The device is stepped by hand.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const endingFrames = 1000 // more than the send ring holds, less than the receive ring

// newEndingRig is a channel that forwards by a datapath through the smallest send
// ring, and has all its frames in its receive queue.
func newEndingRig(t *testing.T, datapath string) (*benchRig, *channel) {
	t.Helper()
	r, err := newBenchRigFor("cx5", fmt.Sprintf("gen:size=64,count=%d", endingFrames),
		wishes{queues: 1, promisc: true, txRing: minRing, xdp: datapath == datapathXDP, xskSpread: datapath == datapathXSK})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.close()) })
	c := r.nic.channels[0]
	c.setHandler(newForwardWork())
	switch datapath {
	case datapathXDP:
		c.setHandler(dropWork{})
		program, err := parseProgram("tx")
		require.NoError(t, err)
		r.dev.resume()
		require.NoError(t, r.nic.attach(program))
		r.dev.pause()
	case datapathXSK:
		w, err := newXSKWork(c, xskWorkConfig{mode: modeForward, umem: umemConfig{frame: minUMEMFrame, frames: xskBenchFrames}}, &r.u)
		require.NoError(t, err)
		r.u.add("device's goroutine", func() error { r.dev.resume(); return nil }) // detaching asks firmware
		c.setHandler(w)
		require.NoError(t, r.letIn())
	}
	r.settle()
	return r, c
}

// endingSums are what such a channel counted.
func endingSums(c *channel) (received, sent, stopped, woken, dropped uint64) {
	c.publish()
	t := (&appliance{ports: []*onePort{{nic: c.n}}}).traffic()
	q := c.tx
	if c.xdp != nil {
		q = c.xdp
	} else if c.xsk != nil {
		q = c.xsk.tx
	}
	return t.rxPackets, t.txPackets, q.stats.stopped.get(), q.stats.wake.get(), t.txDropped
}

// Who works on a channel's queues when it has stopped, as the end of a client does, has
// them alone: the last look waits.
func TestStopWaitsForCallers(t *testing.T) {
	r, c := newEndingRig(t, datapathPlain)
	c.setHandler(dropWork{})
	entered, leave, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go c.do(func() {
		close(entered)
		<-leave
	})
	<-entered
	go func() {
		r.nic.stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("stop did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	<-stopped
	require.EqualValues(t, endingFrames, c.rx.stats.ended.get())
}

// A turn that finds nothing while the send ring is full is not the last: the device
// takes its time, and everything that had come leaves.
func TestLastTurnsWaitForTheDevice(t *testing.T) {
	for _, datapath := range []string{datapathPlain, datapathXDP, datapathXSK} {
		t.Run(datapath, func(t *testing.T) {
			r, c := newEndingRig(t, datapath)
			empty, settled := 0, 0
			c.lastTurns(func() bool {
				if empty == 3 { // so many turns find nothing
					r.settle()
					settled++
					empty = 0
				}
				worked := c.turn(c)
				if !worked {
					empty++
				}
				return worked
			})
			require.Greater(t, settled, 2, "the ring was never full")
			c.abandon()
			received, sent, stopped, woken, dropped := endingSums(c)
			require.EqualValues(t, endingFrames, received)
			require.EqualValues(t, endingFrames, sent)
			require.Zero(t, dropped)
			require.Zero(t, c.rxStats.ended.get())
			if datapath != datapathXSK { // a socket's entries wait in its ring
				require.Greater(t, stopped, uint64(1), "the ring was full and nobody was told")
				require.InDelta(t, stopped, woken, 1)
				require.LessOrEqual(t, stopped, uint64(settled)+1, "a queue that is stopped cannot stop")
			}
			r.dev.resume()
			require.EqualValues(t, endingFrames, statOf(t, r.nic, "tx_packets_phy"))
		})
	}
}

// A device that does nothing any more is not waited for, and what it keeps is counted,
// once.
func TestLastTurnsGiveUp(t *testing.T) {
	for _, datapath := range []string{datapathPlain, datapathXDP, datapathXSK} {
		t.Run(datapath, func(t *testing.T) {
			_, c := newEndingRig(t, datapath)
			c.lastTurns(func() bool { return c.turn(c) })
			for range 2 {
				c.abandon()
				received, sent, _, _, dropped := endingSums(c)
				require.NotZero(t, sent)
				unsent := uint64(0)
				if datapath == datapathXSK {
					unsent = c.xsk.stats.unsent.get()
					require.EqualValues(t, endingFrames, received)
				} else {
					require.EqualValues(t, endingFrames, received+c.rxStats.ended.get())
					require.Equal(t, received, sent)
				}
				require.Equal(t, received, sent+unsent)
				require.Equal(t, sent+unsent, dropped, "what was posted and never left is lost as well")
			}
		})
	}
}

// A handler that sends by itself begins nothing at the end, and a wire that goes on
// is not waited for.
func TestLastTurnsEnd(t *testing.T) {
	r, err := newBenchRig("cx5", "gen:size=64,count=0")
	require.NoError(t, err)
	defer func() { require.NoError(t, r.close()) }()
	c := r.nic.channels[0]
	w, ok := newSendWork(c, [6]byte{2}, 60, func(n int) int { return n })
	require.True(t, ok)
	for _, h := range []handler{w, dropWork{}, newForwardWork()} {
		c.setHandler(h)
		from, most := c.looked()
		c.lastTurns(func() bool {
			r.dev.m.Step()
			return c.turn(c)
		})
		at, _ := c.looked()
		require.Less(t, at-from, most+2*napiBudget, "%T", h)
		require.Equal(t, h, c.handler)
		for range 10 {
			r.settle()
			c.completeAll(napiBudget)
		}
	}
	require.Zero(t, w.take(64), "it could go on")
}

// What -count let through and the ring did not take is sent later, and no more.
func TestQuotaIsKept(t *testing.T) {
	left := 10
	q := sendQuota{left: func(n int) int { n = min(n, left); left -= n; return n }}
	require.Equal(t, 6, q.take(6))
	require.Equal(t, 2, q.sent(2))
	require.Equal(t, 3, q.take(3), "of what it has")
	require.Equal(t, 4, left)
	require.Equal(t, 8, q.take(20))
	require.Equal(t, 3, q.sent(3))
	q.end()
	left = 100
	require.Equal(t, 5, q.take(20), "what was let through before the end")
	q.sent(5)
	require.Zero(t, q.take(20))
}
