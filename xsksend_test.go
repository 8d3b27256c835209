package main

// xsksend_test.go owns the proof of a socket's TX ring: packets in several pieces, what
// is refused, and that nothing that is put there goes unseen while the driver falls
// asleep.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

// chainWriter puts packets into a TX ring and remembers what must leave.
type chainWriter struct {
	r       *xskRig
	m       *rand.Rand
	want    [][]byte
	entries uint64 // of packets that must be refused
	out     map[uint64]int
}

// put writes a packet of so many pieces, each somewhere in a frame of its own. It
// returns false, and has done nothing, where a ring or the frames do not suffice.
func (w *chainWriter) put(pieces int, good bool) bool {
	a := w.r.app
	if room, _ := a.tx.room(a.tx.at, uint32(pieces)); int(room) < pieces || len(a.free) < pieces {
		return false
	}
	var whole []byte
	for i := range pieces {
		frame := a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
		size := 1 + w.m.IntN(700)
		if i == 0 {
			size += 60
		}
		addr := frame + uint64(w.m.IntN(int(a.frame)-size+1))
		b := w.r.mem.b[addr:][:size]
		for k := range b {
			b[k] = byte(w.m.Uint32())
		}
		if i == 0 {
			copy(b, numberedFrame(14, 0))
		}
		d := xdpDesc{addr: addr, len: uint32(size)}
		if i < pieces-1 {
			d.options = xdpContinue
		}
		a.tx.descs[(a.tx.at+uint32(i))&a.tx.mask] = d
		whole = append(whole, b...)
		if good {
			w.out[addr]++
		} else {
			a.free = append([]uint64{frame}, a.free...)
		}
	}
	if good {
		w.want = append(w.want, whole)
	} else {
		w.entries += uint64(pieces)
	}
	a.tx.gave(uint32(pieces))
	return true
}

// takeBack takes what the completion ring has.
func (w *chainWriter) takeBack() {
	a := w.r.app
	n, _ := a.comp.ready(1 << 16)
	for i := range n {
		addr := a.comp.addrs[(a.comp.at+i)&a.comp.mask]
		require.NotZero(w.r.t, w.out[addr], "%#x was not sent", addr)
		if w.out[addr]--; w.out[addr] == 0 {
			delete(w.out, addr)
		}
		a.free = append([]uint64{addr &^ (a.frame - 1)}, a.free...)
	}
	a.comp.took(n)
}

// D9: packets in one to four pieces leave whole and in order, wherever the ring or a
// batch ends in them, and each piece's frame comes back. Without multi-buffer every
// entry of one in several pieces is refused and counted, and its neighbours leave.
func TestXSKSendsChains(t *testing.T) {
	for _, profile := range model.Profiles() {
		for _, c := range []struct {
			multi bool
			ring  int
		}{{true, 128}, {true, 512}, {false, 128}} {
			t.Run(fmt.Sprintf("%s/multi=%v/ring%d", profile, c.multi, c.ring), func(t *testing.T) {
				sent := &recordWire{}
				r := newXSKRig(t, xskConfig{profile: profile, wire: &twoWires{&listWire{}, sent}, multi: c.multi, ring: c.ring, w: wishes{mtu: 3000},
					umem: umemConfig{frame: 4096, frames: 512}})
				r.c.setHandler(dropWork{})
				w := &chainWriter{r: r, m: rand.New(rand.NewPCG(9, uint64(c.ring))), out: map[uint64]int{}}
				for len(w.want) < 1500 {
					for range w.m.IntN(100) {
						pieces := 1 + w.m.IntN(4)
						if !w.put(pieces, pieces == 1 || c.multi) {
							break
						}
					}
					r.turn()
					w.takeBack()
				}
				for range 8 {
					r.turn()
					w.takeBack()
				}
				got := sent.frames()
				require.Len(t, got, len(w.want))
				for i := range got {
					require.True(t, bytes.Equal(w.want[i], got[i]), "packet %d", i)
				}
				require.Empty(t, w.out, "frames that did not come back")
				require.Equal(t, w.entries, r.c.xsk.stats.badDescs.get())
				require.Equal(t, c.multi, w.entries == 0)
				require.EqualValues(t, len(w.want), r.c.xsk.tx.stats.packets.get())
			})
		}
	}
}

// D5: an entry of the TX or the fill ring that comes at any point between the last
// poll and the sleep, with the client's look at the flag at any later point, is known
// to the client by the flag or to the driver by its second look.
func TestXSKNoEntryIsLostFallingAsleep(t *testing.T) {
	points := len(sleepSteps) + 1
	for _, fill := range []bool{false, true} {
		for put := range points {
			for look := put; look < points; look++ {
				r := newXSKRig(t, xskConfig{wire: &twoWires{&listWire{}, &recordWire{}}, wakeups: true, umem: umemConfig{frame: 2048, frames: 64}})
				r.c.setHandler(dropWork{})
				r.turn()
				for round := range 3 { // what came once must not hide what comes next
					told, again := false, false
					ring := &r.app.tx
					if fill {
						ring = &r.app.fill
					}
					for at := range points {
						if at == put && fill {
							r.app.giveFrames(1)
						} else if at == put {
							require.Equal(t, 1, r.app.send(1, 60))
						}
						if at == look {
							told = ring.wants()
						}
						if at < len(sleepSteps) {
							again = sleepSteps[at](r.c.xsk) || again
						}
					}
					require.True(t, told || again, "fill %v, round %d: put before step %d, looked before step %d, and nobody knows", fill, round, put, look)
					r.turn() // what either leads to
					have, _ := r.sock.tx.ready(1)
					more, _ := r.sock.fill.ready(1)
					require.Zero(t, have+more, "not taken")
				}
			}
		}
	}
}

// The steps are what sleep does, and it does not ask where nobody looks at flags.
func TestXSKSleepTakesItsSteps(t *testing.T) {
	for _, wakeups := range []bool{false, true} {
		r := newXSKRig(t, xskConfig{wire: &twoWires{&listWire{}, &recordWire{}}, wakeups: wakeups})
		r.c.setHandler(dropWork{})
		r.turn()
		require.Equal(t, 1, r.app.send(1, 60))
		require.Equal(t, wakeups, r.c.xsk.sleep(), "the second look")
		require.Equal(t, wakeups, r.app.tx.wants() && r.app.fill.wants())
		require.False(t, r.c.xsk.sleep(), "what cannot be worked on wakes once")
		r.app.giveFrames(1)
		require.Equal(t, wakeups, r.c.xsk.sleep())
	}
}
