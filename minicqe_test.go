package main

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlx5d/model"
)

func testCQ(t testing.TB, log uint8) *compQueue {
	d := testDevice(t, model.Config{})
	mem := newArena(d)
	t.Cleanup(func() { require.NoError(t, mem.close()) })
	q, err := newCompQueue(mem, log, make([]byte, uarPageSize))
	require.NoError(t, err)
	return q
}

// swap16 and swap32 make the machine word that is v in memory, big endian.
func swap16(v uint16) uint16 { return bits.ReverseBytes16(v) }
func swap32(v uint32) uint32 { return bits.ReverseBytes32(v) }

// writeCQE completes entry ci as the device does.
func writeCQE(q *compQueue, ci uint32, e cqe, opcode, format uint8, counter uint16) {
	e.tail = uint64(opcode<<4|format<<2|uint8(ci>>q.log&1))<<56 | uint64(swap16(counter))<<32
	q.cqes[ci&q.mask] = e
}

// writeSession completes n entries from ci on as one compressed session.
func writeSession(q *compQueue, ci uint32, title cqe, counter uint16, minis []miniCQE) {
	for k := 0; k < len(minis); k += miniArray {
		array := q.minis(ci + uint32(max(k, 1)))
		copy(array[:], minis[k:])
	}
	title.byteCount = swap32(uint32(len(minis)))
	writeCQE(q, ci, title, cqeRecv, cqeCompressed, counter)
}

// A session gives its completions back in order, each with what its small form
// said, and leaves the ring ready for the next lap.
func TestSessionsExpandInOrder(t *testing.T) {
	for _, format := range []uint8{miniHash, miniChecksum, miniStrideIndex} {
		q := testCQ(t, 7)
		s := miniCQEs{format: format}
		ci := uint32(0)
		for round := range 60 {
			n := []int{2, 7, 8, 9, 16, 17, 63, 64}[round%8]
			minis := make([]miniCQE, n)
			for i := range minis {
				minis[i] = miniCQE{swap32(uint32(round<<16 | i)), swap32(uint32(100 + i))}
			}
			title := cqe{info: 0x11223344, hashType: 9, wqeID: swap16(5)}
			writeSession(q, ci, title, uint16(1000+round), minis)
			e, w := q.peek(ci)
			require.NotNil(t, e)
			require.EqualValues(t, cqeCompressed, tailFormat(w))
			require.EqualValues(t, n, s.open(q, ci, e, w))
			for i := range n {
				require.Equal(t, n-i, s.left())
				e, w := s.take()
				require.EqualValues(t, 100+i, be32word(e.byteCount))
				require.EqualValues(t, 0x11223344, e.info)
				require.EqualValues(t, 0, tailFormat(w))
				require.EqualValues(t, cqeRecv, tailOpcode(w))
				word := uint32(round<<16 | i)
				counter := uint16(1000 + round + i)
				switch format {
				case miniHash:
					require.Equal(t, word, be32word(e.hash))
					require.EqualValues(t, 9, e.hashType)
				case miniStrideIndex:
					counter = uint16(word)
					fallthrough
				default:
					require.EqualValues(t, word>>16, be16word(e.checksum))
					require.Zero(t, e.hashType, "there is no hash")
				}
				require.Equal(t, counter, tailCounter(w))
				s.advance(1)
			}
			ci += uint32(n)
			q.ci = ci
			for i := range q.mask + 1 {
				e, _ := q.peek(ci + i)
				require.Nil(t, e, "round %d: entry %d looks written", round, i)
			}
		}
	}
}

// A title that makes no sense is refused.
func TestBadSessionsAreRefused(t *testing.T) {
	q := testCQ(t, 5)
	var s miniCQEs
	for _, n := range []uint32{0, 33, 65, 1 << 31, 0xffffffff} {
		e := cqe{byteCount: swap32(n)}
		writeCQE(q, 0, e, cqeRecv, cqeCompressed, 0)
		p, w := q.peek(0)
		require.Zero(t, s.open(q, 0, p, w), "%d completions", n)
		require.Zero(t, s.left())
	}
}

// rxRig is a NIC of one channel whose device and loop stand still.
func rxRig(t *testing.T, wire model.Wire, w wishes) (*emulatedDevice, *nic, *channel) {
	d := testDevice(t, model.Config{Wire: wire})
	w.queues, w.promisc = 1, true
	n, err := testOpen(d, w)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	c := n.channels[0]
	c.rx.finish()
	d.pause()
	t.Cleanup(d.resume)
	return d, n, c
}

// completionsBeyond completes 64 frames where only so many buffers are posted, or
// strides of the last WQE: as one session, or one by one.
func completionsBeyond(q *recvQueue, posted uint32, session bool) {
	const n = 64
	wqe, stride, count, mask := uint32(0), uint32(0), uint32(60), uint32(0)
	if r := q.ring; r != nil {
		mask = r.mask
		if r.head, r.stride = r.posted, 0; posted > 0 {
			r.head, r.stride = r.posted-1, 1<<r.layout.logStrides-posted
		}
		wqe, stride, count = r.head, r.stride, count|1<<strideShift
	} else {
		q.head = q.posted - posted
		stride = q.head
	}
	if session {
		minis := make([]miniCQE, n)
		for i := range minis {
			minis[i] = miniCQE{0, swap32(count)}
			if q.ring != nil {
				minis[i].word = swap32(stride + uint32(i))
			}
		}
		writeSession(q.cq, q.cq.ci, cqe{wqeID: swap16(uint16(wqe & mask))}, uint16(stride), minis)
		return
	}
	for i := range uint32(n) {
		if q.ring != nil && i == posted && posted > 0 { // the strides of the next WQE
			wqe, stride = wqe+1, stride-1<<q.ring.layout.logStrides
		}
		writeCQE(q.cq, q.cq.ci+i, cqe{byteCount: swap32(count), wqeID: swap16(uint16(wqe & mask))}, cqeRecv, 0, uint16(stride+i))
	}
}

// C2: a session that is longer than what is posted does not reach beyond it, however it
// is taken: what has a buffer is delivered, the rest is counted and the queue set up
// anew. The same with completions one by one.
func TestCompletionsBeyondPostedBuffers(t *testing.T) {
	for _, striding := range []bool{false, true} {
		for _, session := range []bool{false, true} {
			for _, drop := range []bool{false, true} {
				for _, posted := range []uint32{0, 5} {
					t.Run(fmt.Sprintf("striding=%v/session=%v/drop=%v/posted%d", striding, session, drop, posted), func(t *testing.T) {
						d, n, c := rxRig(t, nil, wishes{rxCompress: true, rxStriding: striding, rxRing: 64})
						q := c.rx
						require.Equal(t, striding, q.ring != nil)
						completionsBeyond(q, posted, session)
						got := uint64(0)
						for !q.failed {
							done := 0
							if drop {
								done = q.drop(napiBudget)
							} else {
								var packets []packet
								packets, done = q.poll(napiBudget)
								got += uint64(len(packets))
							}
							require.NotZero(t, done, "the rest is not looked at")
						}
						d.resume()
						n.recoverRX(c)
						d.pause()
						require.False(t, q.failed)
						q.publish()
						require.EqualValues(t, posted, q.stats.packets.get())
						require.True(t, drop || got == uint64(posted))
						require.EqualValues(t, 64-posted, q.stats.wqeErr.get(), "each of the rest")
						require.EqualValues(t, 1, q.stats.recover.get())
					})
				}
			}
		}
	}
}

// listWire sends given frames.
type listWire struct {
	frames [][]byte
	next   int
	shut   bool // nothing comes yet; changed only while the device is paused
}

func (w *listWire) Peek(time.Time) []byte {
	if w.shut || w.next == len(w.frames) {
		return nil
	}
	return w.frames[w.next]
}
func (w *listWire) Take()           { w.next++ }
func (w *listWire) Lossless() bool  { return true }
func (w *listWire) Transmit([]byte) {}
func (w *listWire) Done() bool      { return w.next == len(w.frames) }
func (w *listWire) LinkUp() bool    { return true }
func (w *listWire) Close() error    { return nil }

func numberedUDP(number uint64, size int) []byte {
	b := make([]byte, size)
	fillNumbered(b, number, uint16(number))
	return b
}

// withTag puts a VLAN tag into a frame.
func withTag(b []byte, tci uint16) []byte {
	out := append(append([]byte(nil), b[:12]...), 0x81, 0x00, 0, 0)
	binary.BigEndian.PutUint16(out[14:], tci)
	return append(out, b[12:]...)
}

// settleDevice lets a paused device do all there is to do.
func settleDevice(d *emulatedDevice) {
	for d.m.Step() {
	}
}

// With compression every frame is flagged right: tag, length, and the checks.
func TestCompressedFlagsOfMixedTraffic(t *testing.T) {
	for _, w := range []wishes{{rxCompress: true, strip: true}, {rxCompress: true, rxStriding: true, strip: true}} {
		wire := &listWire{}
		for i := range 256 {
			f := numberedUDP(uint64(i), 60+i%3)
			if i%7 < 3 && i%2 == 0 || i > 200 {
				f = withTag(f, uint16(i))
			}
			wire.frames = append(wire.frames, f)
		}
		d, _, c := rxRig(t, wire, w)
		settleDevice(d)
		seen := 0
		for range 8 {
			packets, _ := c.rx.poll(napiBudget)
			for i := range packets {
				p := &packets[i]
				tagged := seen%7 < 3 && seen%2 == 0 || seen > 200
				require.Equal(t, tagged, p.stripped(), "frame %d", seen)
				if tagged {
					require.EqualValues(t, seen, p.vlan())
				}
				require.EqualValues(t, 60+seen%3, p.size)
				require.EqualValues(t, 7, p.ok())
				require.EqualValues(t, 2<<4|2<<2, p.headers()&^1, "UDP over IPv4")
				require.EqualValues(t, seen, binary.BigEndian.Uint64(p.b[numberAt:]))
				seen++
			}
			c.rx.finish()
			settleDevice(d)
		}
		require.Equal(t, 256, seen)
		c.rx.publish()
		require.NotZero(t, c.rx.stats.small.get())
		require.Less(t, c.rx.stats.small.get(), uint64(256), "some were not compressed")
	}
}

// A burst is as long as asked for as long as there are completions, compressed or
// not.
func TestBurstsAreFullWithMixedCompletions(t *testing.T) {
	wire := &listWire{}
	for i := range 256 {
		f := numberedUDP(uint64(i), 60)
		if i%10 == 0 {
			f = numberedUDP(uint64(i), 90)
			f[14] = 0x46 // options: another completion, so not of the session
			f = withTag(f, 5)
		}
		wire.frames = append(wire.frames, f)
	}
	d, _, c := rxRig(t, wire, wishes{rxCompress: true, strip: true})
	settleDevice(d)
	for range 4 {
		packets, done := c.rx.poll(64)
		require.Equal(t, 64, done)
		require.Equal(t, 64, len(packets))
		c.rx.finish()
	}
	_, done := c.rx.poll(64)
	require.Zero(t, done)
}
