package model

// blueflame_test.go rings as hosts do: by 8 bytes, by 64, by 64 in pieces, trapped
// and as memory, and wrongly.

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// flameRig is a send queue with a UAR page of its own.
type flameRig struct {
	*rig
	q *rigSQ
	c *rigCQ
	u *uar
	f []byte
	// key and at are where the frame is.
	key uint32
	at  uint64
}

func newFlameRig(t *testing.T, logSize uint8) *flameRig {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(8, e)
	s := &flameRig{rig: r, c: c, q: r.sq(logSize, c), f: rigUDP(58, 1000), key: r.pa()}
	s.u = r.d.uars.add(func(n uint32) *uar { return &uar{n: n} })
	s.q.uar = s.u.n
	s.at = r.put(s.f)
	r.d.hca.phase = phaseReady
	return s
}

// post puts one frame into the ring and the record and returns its block.
func (s *flameRig) post() []byte {
	at := s.q.at + int(s.q.pc&(1<<s.q.sq.ring.logSize-1))*64
	s.q.post(opSend, wantCQE, 0, append(rigEseg(0, 0, nil), rigSeg(len(s.f), s.key, s.at)...))
	putBE32(s.mem, s.q.rec+4, uint32(uint16(s.q.pc)))
	return append([]byte(nil), s.mem[at:at+64]...)
}

func (s *flameRig) page() int { return int(s.u.n) * uarPageSize }

// store stores 8 bytes at a time to BAR0 as memory.
func (s *flameRig) store(in int, b []byte) {
	for i := 0; i < len(b); i += 8 {
		atomic.StoreUint64(s.d.long(s.page()+in+i), binary.NativeEndian.Uint64(b[i:]))
	}
}

// look lets the device look at its registers without looking at records.
func (s *flameRig) look() { s.d.takeDoorbells() }

func (s *flameRig) fetched() uint64 { return s.d.work.pci.counts[PCIWQEFetch].Bytes }

func (s *flameRig) requireSent(t *testing.T, n int) {
	t.Helper()
	require.Len(t, s.wire.out, n)
	for _, out := range s.wire.out {
		require.Equal(t, s.f, out)
	}
	for range n {
		b := s.c.poll()
		require.NotNil(t, b)
		require.Equal(t, byte(cqeReq), b[63]>>4)
	}
	require.Nil(t, s.c.poll())
	s.wire.out = nil
}

// flameWays are the ways by which a whole WQE reaches the device.
var flameWays = map[string]func(s *flameRig, in int, b []byte){
	"trapped": func(s *flameRig, in int, b []byte) { s.d.Write(s.page()+in, b) },
	"memory":  func(s *flameRig, in int, b []byte) { s.store(in, b); s.look() },
}

// A WQE that comes with its doorbell is not fetched: 64 bytes cross the bus and no
// read. A plain doorbell between works as ever, in either buffer.
func TestFlame(t *testing.T) {
	for way, write := range flameWays {
		t.Run(way, func(t *testing.T) {
			s := newFlameRig(t, 3)
			for i := range 40 { // five laps
				in, fetched, rung := uarSend+i%2*uarSendGap, s.fetched(), s.d.work.pci.counts[PCIDoorbell].Bytes
				b := s.post()
				if i%5 == 4 {
					write(s, in, b[:8])
					require.EqualValues(t, 64, s.fetched()-fetched)
					require.EqualValues(t, 8, s.d.work.pci.counts[PCIDoorbell].Bytes-rung)
				} else {
					write(s, in, b)
					require.Zero(t, s.fetched()-fetched)
					require.EqualValues(t, 64, s.d.work.pci.counts[PCIDoorbell].Bytes-rung)
				}
				s.requireSent(t, 1)
			}
			require.EqualValues(t, 32, s.q.sent.Flames)
			require.EqualValues(t, 40, s.q.sent.Doorbells)
			require.Zero(t, s.d.stats.BadDoorbells, s.d.stats.BadDoorbell)
			require.Zero(t, s.d.stats.TornFlames, s.d.stats.TornFlame)
		})
	}
}

// A host whose stores do not combine rings with the first, and the rest is noise.
func TestFlameInPieces(t *testing.T) {
	s := newFlameRig(t, 4)
	for i := range 20 {
		b := s.post()
		for off := 0; off < 64; off += 8 {
			s.d.Write(s.page()+uarSend+i%2*uarSendGap+off, b[off:off+8])
		}
		s.requireSent(t, 1)
	}
	require.Zero(t, s.q.sent.Flames)
	require.EqualValues(t, 20, s.q.sent.Doorbells)
	require.EqualValues(t, 20*64, s.fetched())
	require.Zero(t, s.d.stats.BadDoorbells, s.d.stats.BadDoorbell)
}

// Seen halfway, at whichever word, it is a doorbell; the words that come after do
// not make the next one worse than torn.
func TestFlameCaughtHalfway(t *testing.T) {
	for words := 1; words < 8; words++ {
		t.Run(fmt.Sprint(words), func(t *testing.T) {
			s := newFlameRig(t, 4)
			b := s.post()
			s.store(uarSend, b[:8*words])
			s.look()
			s.requireSent(t, 1)
			// The frame's WQE has 48 bytes: with six words it is whole.
			require.Equal(t, words >= 6, s.q.sent.Flames == 1)
			require.Equal(t, words > 1 && words < 6, s.d.stats.TornFlames == 1, "%d", s.d.stats.TornFlames)
			s.store(uarSend+8*words, b[8*words:])
			s.look()
			require.Empty(t, s.wire.out)
			plain := s.post()
			s.store(uarSend, plain[:8])
			s.look()
			s.requireSent(t, 1)
			whole := s.post()
			s.store(uarSend, whole)
			s.look()
			s.requireSent(t, 1)
			require.Zero(t, s.d.stats.BadDoorbells, s.d.stats.BadDoorbell)
		})
	}
}

// Where the queue has other work in hand, the ring is read; each WQE is executed
// once.
func TestFlameNotNext(t *testing.T) {
	for way, write := range flameWays {
		t.Run(way, func(t *testing.T) {
			s := newFlameRig(t, 4)
			s.post()
			b := s.post()
			write(s, uarSend, b)
			s.requireSent(t, 2)
			require.Zero(t, s.q.sent.Flames)
			require.EqualValues(t, 128, s.fetched())
			write(s, uarSend+uarSendGap, b) // late: it has been executed
			require.Empty(t, s.wire.out)
			// The first of several is taken, the others are read.
			first := s.post()
			s.post()
			write(s, uarSend, first)
			s.requireSent(t, 2)
			require.EqualValues(t, 1, s.q.sent.Flames)
			require.EqualValues(t, 192, s.fetched())
			require.Zero(t, s.d.stats.BadDoorbells, s.d.stats.BadDoorbell)
		})
	}
}

// What is wrong is told, and does no harm.
func TestFlameRefused(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		spoil        func(s *flameRig, b []byte)
		sent, torn   int
	}{
		{"another byte", "in the ring", func(_ *flameRig, b []byte) { b[40] ^= 1 }, 1, 1},
		{"another flag", "in the ring", func(_ *flameRig, b []byte) { b[ctrlFlags] = 0 }, 1, 1},
		{"too long", "of 80 bytes", func(_ *flameRig, b []byte) { b[7] = 5 }, 1, 1},
		{"another page", "its own is", func(s *flameRig, _ []byte) { s.q.uar++ }, 0, 0},
		{"no such queue", "is not there", func(_ *flameRig, b []byte) { b[4] = 0x7f }, 0, 0},
		{"a queue that was reset", "was reset", func(s *flameRig, _ []byte) { s.q.state = sqRST }, 0, 0},
	} {
		for way, write := range flameWays {
			t.Run(c.name+", "+way, func(t *testing.T) {
				s := newFlameRig(t, 4)
				b := s.post()
				c.spoil(s, b)
				write(s, uarSend, b)
				s.requireSent(t, c.sent)
				require.Zero(t, s.q.sent.Flames)
				if way == "memory" && c.torn > 0 {
					require.EqualValues(t, c.torn, s.d.stats.TornFlames)
					require.Contains(t, s.d.stats.TornFlame, c.reason)
					require.Zero(t, s.d.stats.BadDoorbells)
					return
				}
				require.EqualValues(t, 1, s.d.stats.BadDoorbells)
				require.Contains(t, s.d.stats.BadDoorbell, c.reason)
				require.Zero(t, s.d.stats.TornFlames)
			})
		}
	}
}

// The two buffers of a register are used in turn.
func TestFlameBuffersInTurn(t *testing.T) {
	s := newFlameRig(t, 4)
	for i, in := range []int{0x800, 0x900, 0x800, 0xa00, 0xb00, 0x900} {
		s.d.Write(s.page()+in, s.post())
		s.requireSent(t, 1)
		require.EqualValues(t, i+1, s.q.sent.Flames)
	}
	require.Zero(t, s.d.stats.BadDoorbells, s.d.stats.BadDoorbell)
	s.d.Write(s.page()+0x900, s.post())
	s.requireSent(t, 1)
	require.EqualValues(t, 6, s.q.sent.Flames)
	require.EqualValues(t, 1, s.d.stats.BadDoorbells)
	require.Contains(t, s.d.stats.BadDoorbell, "twice in a row")
	s.d.Write(s.page()+0x800, s.post()[:8]) // a plain one takes its turn too
	s.requireSent(t, 1)
	s.d.Write(s.page()+0x900, s.post())
	s.requireSent(t, 1)
	require.EqualValues(t, 7, s.q.sent.Flames)
	require.EqualValues(t, 1, s.d.stats.BadDoorbells)
	s.d.Write(s.page()+0x880, s.post()) // between the buffers there is no doorbell
	require.Empty(t, s.wire.out)
}

// A host finds out whether its stores combine by a NOP that is to complete only in
// the copy.
func TestFlameTrial(t *testing.T) {
	for way, write := range flameWays {
		s := newFlameRig(t, 4)
		s.q.post(opNOP, 0, 0, nil)
		putBE32(s.mem, s.q.rec+4, s.q.pc)
		b := append([]byte(nil), s.mem[s.q.at:s.q.at+64]...)
		b[ctrlFlags] = wantCQE
		write(s, uarSend, b)
		require.NotNil(t, s.c.poll(), way)
		require.EqualValues(t, 1, s.q.sent.Flames)
		require.Zero(t, s.d.stats.BadDoorbells+s.d.stats.TornFlames)
	}
}

// Whatever is written where: no panic, and only what is posted is sent.
func TestFlameNoise(t *testing.T) {
	s := newFlameRig(t, 6)
	rnd := uint32(1)
	next := func() int { rnd = rnd*1664525 + 1013904223; return int(rnd >> 8) }
	sent := 0
	for range 20000 {
		b := s.post()
		for range next() % 3 {
			b[next()%64] ^= byte(next())
		}
		n := 1 + next()%64
		in := next() % (uarPageSize - n)
		if next()%2 == 0 {
			in = uarSend + next()%16*0x80
		}
		if in+n > uarPageSize {
			n = uarPageSize - in
		}
		if next()%2 == 0 {
			s.d.Write(s.page()+in, b[:n])
		} else {
			s.store(in&^7, b[:n&^7])
		}
		s.d.Step()
		sent++
		if s.q.state != sqRDY {
			s.q.state, s.q.ci, s.q.pi = sqRDY, s.q.pc, s.q.pc
		}
		for s.c.poll() != nil {
		}
	}
	require.LessOrEqual(t, len(s.wire.out), sent)
	require.NotZero(t, s.q.sent.Flames)
	require.NotZero(t, len(s.wire.out))
}
