package model

// compress_test.go expands compressed completions as the Linux driver and DPDK
// do and compares with the completions of a queue that does not compress.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// expand reads the completions at c, compressed or not, one each.
func (c *rigCQ) expand(t *testing.T, striding bool) (list [][]byte) {
	size := uint32(1) << c.ring.logSize
	slot := func(i uint32) []byte { return c.r.mem[c.at+int(i&(size-1))*64:][:64] }
	for {
		first := slot(c.cc)
		if first[63]&1 != byte(c.cc>>c.ring.logSize)&1 || first[63]>>4 == 0xf {
			return list
		}
		n := uint32(1)
		if first[63]>>2&3 == formatCompressed {
			n = be32(first, 44)
			require.Greater(t, n, uint32(1))
			require.LessOrEqual(t, n, size)
			counter := be16(first, 60)
			for i := range n {
				array := slot(c.cc + max(1, i&^7))
				m := array[i%8*8:][:8]
				e := append([]byte(nil), first...)
				copy(e[44:48], m[4:])
				switch c.miniFmt {
				case miniHash:
					copy(e[12:16], m[:4])
				case miniStrideIndex:
					copy(e[60:62], m[2:4])
					fallthrough
				default:
					copy(e[20:22], m[:2])
				}
				if c.miniFmt != miniStrideIndex {
					putBE16(e, 60, counter)
					if striding {
						counter += be16(m, 4)
					} else {
						counter++
					}
				}
				e[63] = e[63] & 0xf0
				list = append(list, e)
			}
		} else {
			list = append(list, append([]byte(nil), first...))
		}
		for i := range n { // what the host owes the device
			slot(c.cc + i)[63] = byte((c.cc+i)>>c.ring.logSize) & 1
		}
		c.cc += n
		putBE32(c.r.mem, c.rec, c.cc&0xffffff)
	}
}

// compressRig is a device whose one CQ compresses, or does not.
type compressRig struct {
	r        *rig
	c        *rigCQ
	q        *rigRQ
	key      uint32
	striding bool
}

func newCompressRig(t *testing.T, format uint8, striding, compress bool) *compressRig {
	x := &compressRig{striding: striding}
	if striding {
		x.r, x.c, x.q, x.key = rigStriding(t, 2)
	} else {
		x.r, x.c, x.q, x.key = rigRX(t, 7, 6, 1024)
	}
	x.c.compress, x.c.miniFmt = compress, format
	return x
}

// refill posts what was consumed, and what never was.
func (x *compressRig) refill() {
	for x.striding && uint16(x.q.pc-x.q.ci) < 4 {
		at := x.q.pc % 4
		x.q.postStrides(at, (at+1)%4, x.key)
	}
	for !x.striding && uint16(x.q.pc-x.q.ci) < 40 {
		x.q.post(x.key, 1)
	}
}

func TestCompression(t *testing.T) {
	for _, format := range []uint8{miniHash, miniCsum, miniStrideIndex} {
		for _, striding := range []bool{false, true} {
			short, long := newCompressRig(t, format, striding, true), newCompressRig(t, format, striding, false)
			for round := range 30 {
				var frames [][]byte
				for i := range 1 + round*5%13*2 {
					f := rigUDP(20+i%3*200, uint16(i))
					if (round+i)%9 == 8 {
						f = rigTCP(100, false, tcpACK) // does not fit the session
					}
					frames = append(frames, f)
				}
				for _, x := range []*compressRig{short, long} {
					x.refill()
					x.r.receive(frames...)
				}
				sameCompletions(t, format, long.c.expand(t, striding), short.c.expand(t, striding))
				require.Zero(t, short.c.session.n, "nothing waits for the next turn")
			}
			limit := long.r.d.work.pci.counts[PCICQEWrite].Ops / 2
			if striding {
				limit = limit * 3 / 2 // sessions end with the WQE, of 16 strides here
			}
			require.Less(t, short.r.d.work.pci.counts[PCICQEWrite].Ops, limit)
			require.Equal(t, long.r.d.stats.RxDelivered, short.r.d.stats.RxDelivered)
			require.False(t, short.c.failed)
		}
	}
}

// sameCompletions compares all that a small completion keeps.
func sameCompletions(t *testing.T, format uint8, want, got [][]byte) {
	t.Helper()
	same := [][2]int{{0, 12}, {16, 20}, {22, 44}, {44, 48}, {56, 62}, {20, 22}}
	if format == miniHash {
		same[5] = [2]int{12, 16}
	}
	require.Len(t, got, len(want))
	for i := range want {
		for _, s := range same {
			require.Equal(t, want[i][s[0]:s[1]], got[i][s[0]:s[1]], "format %d, completion %d, bytes %v", format, i, s)
		}
	}
}

// TestCompressedVLAN has tagged and untagged frames in turn, whose stripping is
// not in the small form: they must not share a session.
func TestCompressedVLAN(t *testing.T) {
	r, c, q, key := rigRX(t, 7, 6, 1024)
	c.compress, c.miniFmt, q.vsd = true, miniCsum, false
	f := rigUDP(40, 1)
	tagged := append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0, 5), f[12:]...)
	for range 12 {
		q.post(key, 1)
	}
	r.receive(f, tagged, f, tagged, tagged, f, f, f)
	for i, b := range c.expand(t, false) {
		want := byte(0)
		if i == 1 || i == 3 || i == 4 {
			want = 1
		}
		require.Equal(t, want, b[29]&1, i)
	}
}

func TestCompressedOverrun(t *testing.T) {
	r, c, q, key := rigRX(t, 3, 6, 1024)
	c.compress, c.miniFmt = true, miniCsum
	for range 20 {
		q.post(key, 1)
	}
	f := rigUDP(40, 1)
	r.receive(f, f, f, f, f, f, f, f, f, f)
	require.True(t, c.failed)
	require.Equal(t, uint64(1), r.d.stats.Overruns)
	require.Equal(t, uint64(8), r.d.stats.RxDelivered)
	account(t, r.d)
}
