package model

// data_fuzz_test.go gives the data path bytes that no driver would write:
// work requests, rings, records, frames. It must not panic, must end, and must
// not touch memory that was not mapped: a guard page lies around the mapping.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded is a rig whose memory is followed by pages that can't be touched.
func guarded(t testing.TB) *rig {
	r := newRig(t)
	r.wire.keep = false
	all, err := unix.Mmap(-1, 0, rigSize+2*4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(all) })
	mem := all[4096 : 4096+rigSize : 4096+rigSize]
	require.NoError(t, unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE))
	r.d.mem.clear()
	require.NoError(t, r.d.mem.add(rigBase, mem[:rigSize/2], true))
	require.NoError(t, r.d.mem.add(rigBase+rigSize/2, mem[rigSize/2:], true))
	r.mem = mem
	return r
}

func FuzzSend(f *testing.F) {
	key := uint32(0x40<<8 | 0x5a)
	seed := func(opcode uint8, body []byte) []byte {
		b := make([]byte, 16, 16+len(body))
		b[3] = opcode
		b[7] = byte(1 + len(body)/16)
		b[11] = wantCQE
		return append(b, body...)
	}
	f.Add(seed(opSend, append(rigEseg(0xf0, 0, nil), rigSeg(60, key, rigBase)...)), uint16(1), uint8(0))
	f.Add(seed(opSend, append(rigEseg(0xf0, 0, make([]byte, 18)), rigSeg(60, key, rigBase+rigSize-10)...)), uint16(1), uint8(1))
	f.Add(seed(opMPSW, append(rigEseg(0xc0, 0, nil), append(rigSeg(60, key, rigBase+rigSize/2-7), rigSeg(1500, key, rigBase)...)...)), uint16(2), uint8(3))
	f.Add(seed(opLSO, append(rigEseg(0xf0, 1, rigTCP(0, true, 0)), rigSeg(5000, key, rigBase)...)), uint16(3), uint8(0))
	f.Add(seed(opLSO, append(rigEseg(0xf0, 100, vxlan(rigTCP(0, false, 0))), rigSeg(5000, key, rigBase)...)), uint16(3), uint8(7))
	f.Add(seed(opUMR, umrWQE(umrIsInline|umrHasOffset, 4, 4, ^uint64(0), nil, make([]byte, 64))), uint16(4), uint8(2))
	f.Add(seed(opUMR, umrWQE(0, 0xfffc, 0, 0, nil, rigSeg(-1, key, rigBase))), uint16(4), uint8(0))
	f.Add([]byte{0, 0, 0, opNOP, 0, 0, 0, 63}, uint16(63), uint8(0))
	f.Fuzz(func(t *testing.T, wqes []byte, producer uint16, mode uint8) {
		r := guarded(t)
		r.d.port.mtu = 1522
		e, _ := r.eq(6)
		c := r.cq(6, e)
		q := r.sq(6, c)
		c.oi = mode&1 != 0
		q.minInline = mode >> 1 & 3
		q.flushErr = mode&8 == 0
		r.key(mkey{pd: rigPD, mode: accessPA, lr: true, lw: true, length64: true, umr: mode&16 != 0, klms: make([]klm, 8)})
		r.key(mkey{pd: rigPD, mode: accessMTT + mode>>5&3, lr: true, lw: true, umr: true, logPage: 12, length: 1 << 20, mtt: make([]uint64, 64), klms: make([]klm, 64)})
		// The queue number and index are right, or nothing gets far.
		copy(r.mem[q.at:q.at+4096], wqes)
		for i := range 64 {
			b := r.mem[q.at+i*64:]
			putBE32(b, 0, be32(b, 0)&0xff0000ff|uint32(i)<<8)
			putBE32(b, 4, q.n<<8|be32(b, 4)&0xff)
		}
		putBE32(r.mem, q.rec+4, uint32(producer))
		start := time.Now()
		r.d.doorbellSQ(uint64(q.n) << 8)
		r.d.pollRecords()
		require.Less(t, time.Since(start), 5*time.Second)
		require.True(t, q.ci == q.pi || q.state == sqERR)
	})
}

func FuzzReceive(f *testing.F) {
	for i, s := range parseSamples(f) {
		f.Add(s, rigSeg(2048, 0x40<<8|0x5a, rigBase), uint16(1), uint8(i))
		f.Add(s, rigSeg(30, 0x40<<8|0x5a, rigBase+rigSize-16), uint16(3), uint8(i<<4|i))
	}
	f.Add(make([]byte, 9000), append(rigSeg(256, 0x40<<8|0x5a, rigBase), rigSeg(256, 0x41<<8|0x5a, 0)...), uint16(0xffff), uint8(0xff))
	f.Fuzz(func(t *testing.T, frame, wqes []byte, producer uint16, mode uint8) {
		r := guarded(t)
		e, _ := r.eq(6)
		c := r.cq(5, e)
		q := r.rq(3, 6, c, 64)
		r.direct(q.rq)
		r.key(mkey{pd: rigPD, mode: accessPA, lr: true, lw: true, length64: true})
		r.key(mkey{pd: rigPD, mode: accessMTT, lr: true, lw: true, logPage: 12, length: 1 << 20, mtt: []uint64{rigBase | 3, 7, ^uint64(0), 0}})
		q.cyclic, q.wqType = mode&1 == 0, mode&3
		if mode&2 != 0 && !q.cyclic {
			q.logStride, q.logStrides = 6+mode>>6, 3+mode>>5
		}
		q.vsd, q.scatterFCS, q.shift, q.flushErr = mode&4 == 0, mode&8 != 0, mode&16 != 0, mode&32 != 0
		c.compress, c.miniFmt = mode&64 != 0, mode>>6
		copy(r.mem[q.at:q.at+512], wqes)
		putBE32(r.mem, q.rec, uint32(producer))
		r.wire.lossless = mode&128 != 0
		for range 40 {
			r.receive(frame)
		}
		if !r.wire.lossless {
			require.Empty(t, r.wire.in)
		}
		account(t, r.d)
	})
}
