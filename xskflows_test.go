package main

// xskflows_test.go owns the proof that the sockets of all queues work at once, each
// with a flow of its own.

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// flowsWire gives numbered frames of several flows in turn and keeps, by flow, the
// numbers of those that come back as they were.
type flowsWire struct {
	listWire
	mu   sync.Mutex
	back map[uint16][]uint64
	odd  int // that came back otherwise
	want []byte
}

func (w *flowsWire) Transmit(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number, flow := binary.BigEndian.Uint64(b[numberAt:]), be16(b, 36)
	want := w.want[:len(b)]
	flowFrame(want, number, flow)
	if string(want) != string(b) {
		w.odd++
		return
	}
	w.back[flow] = append(w.back[flow], number)
}

// flowFrame is a numbered frame to UDP port.
func flowFrame(b []byte, number uint64, port uint16) {
	fillNumbered(b, number, uint16(number))
	binary.BigEndian.PutUint16(b[36:], port)
}

// D8: four sockets, each with a rule that leads a flow to it: every one receives its
// own flow, whole and in order, and sends it back.
func TestXSKFourSocketsHaveTheirFlows(t *testing.T) {
	const queues, each = 4, 1000
	wire := &flowsWire{back: map[uint16][]uint64{}, want: make([]byte, 2000)}
	wire.shut = true
	var list []rule
	for i := range queues {
		list = append(list, mustRule(t, fmt.Sprintf("flow-type udp4 dst-port %d action %d", 7000+i, queues+(i+1)%queues)))
	}
	for i := range queues * each {
		b := make([]byte, 60+i%900)
		flowFrame(b, uint64(i), uint16(7000+i%queues))
		wire.frames = append(wire.frames, b)
	}
	rules, err := placeRules(list)
	require.NoError(t, err)
	d := testDevice(t, model.Config{Wire: wire})
	n, err := openNIC(context.Background(), d, false, openOptions{wishes: wishes{queues: queues, rxRing: 256, promisc: true, xsk: true}, cpus: queues, rules: rules})
	require.NoError(t, err)
	handlers := make([]handler, queues)
	for i := range handlers {
		handlers[i] = dropWork{}
	}
	n.start(handlers, false, nil)
	path := filepath.Join(t.TempDir(), "xsk.sock")
	server, err := listenXSK(path, []*nic{n}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, server.close())
		require.NoError(t, n.close())
		requireClean(t, d)
	})
	var clients [queues]*xskClient
	for i := range clients {
		clients[i], err = dialXSK(path, askFor(i))
		require.NoError(t, err)
		clients[i].app.giveFrames(512)
		clients[i].nudge()
	}
	for _, c := range n.channels { // the wire waits for queues that have had buffers
		require.Eventually(t, func() (yes bool) {
			c.do(func() { yes = c.xsk.recv.posted > 0 })
			return yes
		}, 10*time.Second, time.Millisecond)
	}
	d.pause()
	wire.shut = false
	d.resume()
	var work sync.WaitGroup
	end := time.Now().Add(time.Minute)
	for _, c := range clients {
		work.Go(func() {
			for time.Now().Before(end) {
				k := c.app.forward(napiBudget, false)
				c.nudge()
				if packets, _ := c.app.left(); packets == each {
					return
				}
				if k == 0 {
					c.sleep(time.Second)
				}
			}
		})
	}
	work.Wait()
	for i, c := range clients {
		require.EqualValues(t, each, c.app.packets, "received by socket %d", i)
		packets, _ := c.app.left()
		require.EqualValues(t, each, packets, "sent by socket %d", i)
		require.NoError(t, c.close())
		require.EqualValues(t, each, statOf(t, n, fmt.Sprintf("rx%d_xsk_packets", i)))
		require.EqualValues(t, each, statOf(t, n, fmt.Sprintf("tx%d_xsk_xmit", i)))
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	require.Zero(t, wire.odd)
	for i := range queues {
		got := wire.back[uint16(7000+i)]
		require.Len(t, got, each, "flow %d", i)
		for k, number := range got {
			require.EqualValues(t, k*queues+i, number, "flow %d", i)
		}
	}
	require.Zero(t, statOf(t, n, "rx_packets"), "nothing else was there")
}
