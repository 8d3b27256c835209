package model

// umr_test.go checks what memory keys allow and how UMR changes them.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// umrWQE is the body of a UMR work request for translation entries.
func umrWQE(flags uint8, octowords int, offset uint64, mask uint64, seg func(b []byte), list []byte) []byte {
	b := make([]byte, umrInline-16, umrInline+len(list))
	b[umrFlags] = flags
	putBE16(b, umrOctowords, uint16(octowords))
	putBE16(b, umrOffset, uint16(offset))
	putBE32(b, umrOffsetHi, uint32(offset>>16))
	putBE64(b, umrMask, mask)
	if seg != nil {
		seg(b[umrMkc-16:])
	}
	return append(b, list...)
}

func TestUMR(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	pages := []int{r.alloc(4096), r.alloc(4096)}
	k := r.key(mkey{pd: rigPD, mode: accessMTT, umr: true, free: true, lr: true, lw: true, length: 16 * 4096, logPage: 12, mtt: make([]uint64, 16)})
	m := r.d.mkeys.get(k >> 8)
	list := make([]byte, 64)
	putBE64(list, 0, r.bus(pages[0])|mttWrite)
	putBE64(list, 8, r.bus(pages[1])|mttWrite|mttRead)
	require.False(t, r.d.writeKey(rigPD, k, 8*4096, []byte{1}), "free")
	q.post(opUMR, wantCQE, k, umrWQE(umrIsInline|umrHasOffset, 4, 4, maskFree, nil, list))
	q.kick()
	require.Equal(t, byte(0), c.poll()[63]>>4)
	require.False(t, m.free)
	require.True(t, r.d.writeKey(rigPD, k, 8*4096+4090, []byte("across the edge")))
	require.Equal(t, "across", string(r.mem[pages[0]+4090:pages[0]+4096]))
	require.Equal(t, " the edge", string(r.mem[pages[1]:pages[1]+9]))
	got := make([]byte, 4)
	require.False(t, r.d.readKey(rigPD, k, 8*4096, got), "no read permission")
	require.True(t, r.d.readKey(rigPD, k, 9*4096+5, got))
	require.Equal(t, "edge", string(got))
	require.False(t, r.d.writeKey(rigPD, k, 16*4096-1, got), "beyond the length")
	require.False(t, r.d.writeKey(rigPD, k, 0, got), "no page there")
	require.False(t, r.d.writeKey(rigPD+1, k, 8*4096, got), "another domain")

	// Fields by mask, entries by pointer.
	at := r.put(append(list, make([]byte, 64)...))
	body := umrWQE(umrCheckNotFree, 4, 0, maskKey|maskStart|maskLen|maskPD|maskLW|maskPage, func(b []byte) {
		b[segKey+3] = 0x77
		putBE64(b, segStart, 0x10000)
		putBE64(b, segLen, 8192)
		putBE32(b, segPD, rigPD+1)
		b[segLogPage] = 12
	}, rigSeg(64, r.pa(), at))
	q.post(opUMR, wantCQE, k, body)
	q.kick()
	require.Equal(t, byte(0), c.poll()[63]>>4)
	require.Equal(t, k&^0xff|0x77, m.n)
	require.False(t, r.d.writeKey(rigPD+1, m.n, 0x11000, got), "local write taken away")
	require.True(t, r.d.readKey(rigPD+1, m.n, 0x11000+5, got))
	require.Equal(t, "edge", string(got))
}

func TestUMRErrors(t *testing.T) {
	list := make([]byte, 64)
	for _, c := range []struct {
		name string
		want failure
		do   func(r *rig, k uint32) (uint32, []byte)
	}{
		{"beyond the key", failUMRSmall, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(umrIsInline|umrHasOffset, 4, 8, 0, nil, list)
		}},
		{"far beyond", failUMRSmall, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(umrIsInline|umrHasOffset, 4, 1<<48-1, 0, nil, list)
		}},
		{"no such key", failUMRGone, func(r *rig, k uint32) (uint32, []byte) {
			return k + 0x100, umrWQE(umrIsInline, 4, 0, 0, nil, list)
		}},
		{"not aligned", failUMRSize, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(umrIsInline, 2, 0, 0, nil, list)
		}},
		{"list shorter than told", failUMRSize, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(umrIsInline, 8, 0, 0, nil, list)
		}},
		{"must be free", failUMRGone, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(umrIsInline|umrCheckFree, 4, 0, 0, nil, list)
		}},
		{"list unreadable", failProtection, func(r *rig, k uint32) (uint32, []byte) {
			return k, umrWQE(0, 4, 0, 0, nil, rigSeg(64, 1, 0))
		}},
		{"cut short", failOpcode, func(r *rig, k uint32) (uint32, []byte) { return k, make([]byte, 32) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.eq(6)
			cq := r.cq(6, e)
			q := r.sq(6, cq)
			k := r.key(mkey{pd: rigPD, mode: accessMTT, umr: true, length: 1 << 20, logPage: 12, mtt: make([]uint64, 16)})
			imm, body := c.do(r, k)
			q.post(opUMR, 0, imm, body)
			q.kick()
			b := cq.poll()
			require.NotNil(t, b)
			require.Equal(t, []byte{c.want.hw, c.want.kind, c.want.vendor, c.want.syndrome}, b[52:56])
		})
	}
}

func TestIndirectKeys(t *testing.T) {
	r := newRig(t)
	pa := r.pa()
	at := r.alloc(8192)
	parts := []klm{{100, pa, r.bus(at)}, {50, pa, r.bus(at + 4096)}}
	list := r.key(mkey{pd: rigPD, mode: accessKLM, lw: true, lr: true, start: 0x1000, length: 150, klms: parts})
	data := make([]byte, 150)
	for i := range data {
		data[i] = byte(i + 1)
	}
	require.True(t, r.d.writeKey(rigPD, list, 0x1000, data))
	require.Equal(t, data[:100], r.mem[at:at+100])
	require.Equal(t, data[100:], r.mem[at+4096:at+4146])
	got := make([]byte, 20)
	require.True(t, r.d.readKey(rigPD, list, 0x1000+90, got))
	require.Equal(t, data[90:110], got)
	require.False(t, r.d.readKey(rigPD, list, 0x1000+140, got))
	equal := r.key(mkey{pd: rigPD, mode: accessKSM, lw: true, length64: true, logPage: 12, klms: []klm{{0, pa, r.bus(at + 4096)}, {0, pa, r.bus(at)}}})
	require.True(t, r.d.readKey(rigPD, equal, 4096, got))
	require.Equal(t, data[:20], got)
	require.False(t, r.d.readKey(rigPD, equal, 8192, got))
	loop := r.key(mkey{pd: rigPD, mode: accessKSM, lw: true, length64: true, logPage: 12})
	r.d.mkeys.get(loop >> 8).klms = []klm{{0, loop, 0}}
	require.False(t, r.d.readKey(rigPD, loop, 0, got), "a key that leads to itself ends")
}
