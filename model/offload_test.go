package model

// offload_test.go checks checksums, VLAN insertion and segmentation by an
// independent sum, and frames rebuilt from their segments.

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowSum is RFC 1071 as written there.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 != 0 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestSum(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for n := range 300 {
		b := make([]byte, n)
		rnd.Read(b)
		require.Equal(t, slowSum(b), fold(sum(b)), n)
	}
	require.Equal(t, uint16(0), fold(sum(make([]byte, 64))))
	require.Equal(t, uint16(0xffff), fold(sum(bytes.Repeat([]byte{0xff}, 65536))))
}

// checkSums fails unless every checksum at place p is right.
func checkSums(t *testing.T, f []byte, h *l3Header) {
	t.Helper()
	_, ok := verify(f, h)
	require.Equal(t, uint8(okL3|okL4), ok)
	end := h.end
	pseudo := make([]byte, 0, 40)
	if h.version == 4 {
		require.Equal(t, uint16(0xffff), slowSum(f[h.l3:h.l3+h.l3Len]))
		pseudo = append(pseudo, f[h.l3+12:h.l3+20]...)
	} else {
		pseudo = append(pseudo, f[h.l3+8:h.l3+40]...)
	}
	n := end - h.l4
	pseudo = append(pseudo, byte(n>>24), byte(n>>16), byte(n>>8), byte(n), 0, 0, 0, h.proto)
	require.Equal(t, uint16(0xffff), slowSum(append(pseudo, f[h.l4:end]...)))
}

// vxlan wraps a frame.
func vxlan(inner []byte) []byte {
	f := rigUDP(8+len(inner), 5555)
	putBE16(f, 36, portVXLAN)
	copy(f[42:], []byte{8, 0, 0, 0, 0x12, 0x34, 0x56, 0})
	copy(f[50:], inner)
	return f
}

func TestChecksumOffload(t *testing.T) {
	for name, inner := range map[string][]byte{
		"udp": rigUDP(31, 9), "tcp4": rigTCP(100, false, tcpACK), "tcp6": rigTCP(33, true, tcpACK), "odd": rigTCP(1, false, 0),
	} {
		for _, tunnel := range []bool{false, true} {
			for _, swp := range []bool{false, true} {
				f := append([]byte(nil), inner...)
				e := eseg{csum: csumL3 | csumL4}
				if tunnel {
					f = vxlan(f)
					e.csum |= csumInnerL3 | csumInnerL4
				}
				var p packet
				p.parse(f, true)
				if swp {
					e.swp = [4]uint8{uint8(p.outer.l4 / 2), uint8(p.outer.l3 / 2), uint8(p.inner.l4 / 2), uint8(p.inner.l3 / 2)}
					kind := func(h *l3Header, v6, udp uint8) (m uint8) {
						if h.version == 6 {
							m |= v6
						}
						if h.proto == protoUDP {
							m |= udp
						}
						return m
					}
					e.swpFlags = kind(&p.outer, swpOuterIPv6, swpOuterUDP) | kind(&p.inner, swpInnerIPv6, swpInnerUDP)
				}
				for _, h := range []*l3Header{&p.outer, &p.inner} {
					if h.version == 4 {
						putBE16(f, h.l3+10, 0xdead)
					}
					switch {
					case h.isUDP():
						putBE16(f, h.l4+6, 0xdead)
					case h.isTCP():
						putBE16(f, h.l4+16, 0xdead)
					}
				}
				f = offload(f, &e)
				p.parse(f, true)
				t.Run(name, func(t *testing.T) {
					checkSums(t, f, &p.outer)
					if tunnel {
						require.Equal(t, uint8(tunnelVXLAN), p.tunnel)
						checkSums(t, f, &p.inner)
					}
				})
			}
		}
	}
}

func TestVLANInsert(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	q := r.sq(6, r.cq(6, e))
	f := rigUDP(60, 1)
	for _, kind := range []uint16{insertVLAN, insertVLAN | insertSVLAN} {
		b := rigEseg(csumL3|csumL4, 0, nil)
		putBE16(b, 12, kind)
		putBE16(b, 14, 0x6123)
		q.post(opSend, 0, 0, append(b, rigSeg(len(f), r.pa(), r.put(f))...))
		q.kick()
	}
	want := append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0x61, 0x23), f[12:]...)
	require.Equal(t, want, r.wire.out[0])
	want[12], want[13] = 0x88, 0xa8
	require.Equal(t, want, r.wire.out[1])
	// An empty UDP checksum that comes out as 0 is sent as ffff.
	g := rigUDP(2, 0)
	putBE16(g, 42, be16(g, 40)) // payload that makes the sum 0
	putBE16(g, 42, ^fold(uint64(^be16(offload(append([]byte(nil), append(g[:42], 0, 0)...), &eseg{csum: csumL4}), 40))))
	g = offload(g, &eseg{csum: csumL4})
	require.Equal(t, uint16(0xffff), be16(g, 40))
}

func TestLSO(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, tunnel := range []bool{false, true} {
			for _, n := range []int{1, 500, 1000, 1001, 64000} {
				lsoCase(t, v6, tunnel, n)
			}
		}
	}
}

func lsoCase(t *testing.T, v6, tunnel bool, n int) {
	const mss = 500
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	header := rigTCP(0, v6, tcpFIN|tcpPSH|tcpACK|tcpCWR)
	flags := uint8(csumL3 | csumL4)
	if tunnel {
		header = vxlan(header)
		flags |= csumInnerL3 | csumInnerL4
	}
	payload := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(payload)
	at := r.put(payload)
	body := rigEseg(flags, mss, header)
	body = append(body, rigSeg(n/2+1, r.pa(), at)...)
	if n/2+1 < n {
		body = append(body, rigSeg(n-n/2-1, r.pa(), at+uint64(n/2+1))...)
	}
	q.post(opLSO, wantCQE, 0, body)
	q.kick()
	require.NotNil(t, c.poll())
	require.Len(t, r.wire.out, (n+mss-1)/mss)
	var got []byte
	for i, f := range r.wire.out {
		var p packet
		p.parse(f, true)
		h := &p.outer
		if tunnel {
			checkSums(t, f, h)
			require.Equal(t, 0, h.l4+int(be16(f, h.l4+4))-len(f), "outer UDP length")
			h = &p.inner
		}
		checkSums(t, f, h)
		require.True(t, h.isTCP())
		require.Equal(t, 0xfffffff0+uint32(i*mss), be32(f, h.l4+4))
		want := byte(tcpACK)
		if i == 0 {
			want |= tcpCWR
		}
		if i == len(r.wire.out)-1 {
			want |= tcpFIN | tcpPSH
		}
		require.Equal(t, want, f[h.l4+13])
		if !v6 {
			require.Equal(t, uint16(0x1234+i), be16(f, h.l3+4))
		}
		got = append(got, f[h.l4+20:h.end]...)
	}
	require.Equal(t, payload, got)
	require.Equal(t, uint64(len(r.wire.out)), q.sent.Packets)
}
