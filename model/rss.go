package model

// rss.go owns receive-side scaling: which bytes of a packet are hashed, the
// Toeplitz hash, its symmetric form, and the queue that the indirection table
// names. It does not own the commands that set them (cmd_transport.go). Manual:
// chapters "TIR" and "RQT"; Microsoft's "RSS hashing types".

// Fields that a TIR can select.
const (
	selSrcIP    = 0x1  // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_SRC_IP
	selDstIP    = 0x2  // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_DST_IP
	selSrcPort  = 0x4  // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_L4_SPORT
	selDstPort  = 0x8  // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_L4_DPORT
	selIPsecSPI = 0x10 // rss_hash_field_sel.MLX5_HASH_FIELD_SEL_IPSEC_SPI
)

// Hash types in a completion. Each field is told for source and destination:
// bits 1:0 and 3:2 IP, 5:4 and 7:6 L4 (recorded completions have 0x55 for TCP
// over IPv4; the public headers name the destination bits only).
const (
	htypeIPv4  = 0x1 // cqe_rss_hash_type.CQE_RSS_IPV4
	htypeIPv6  = 0x2 // cqe_rss_hash_type.CQE_RSS_IPV6
	htypeTCP   = 0x1 // cqe_rss_hash_type.CQE_RSS_L4_TCP
	htypeUDP   = 0x2 // cqe_rss_hash_type.CQE_RSS_L4_UDP
	htypeIPsec = 0x3 // cqe_rss_hash_type.CQE_RSS_L4_IPSEC
)

const (
	hashKeyBytes = 40
	hashInputMax = 36 // two IPv6 addresses and two ports
	lutsKept     = 4  // different keys in use at a time that stay cached
)

// toeplitzTable has the hash of every byte value at every input position.
type toeplitzTable struct {
	key  [hashKeyBytes]byte
	part [hashInputMax][256]uint32
}

// newToeplitz precomputes the table for key.
func newToeplitz(key *[hashKeyBytes]byte) *toeplitzTable {
	t := &toeplitzTable{key: *key}
	for i := range t.part {
		// window holds key bits i*8 .. i*8+63; bit j of the input byte
		// contributes the 32 bits from i*8+j on.
		var window uint64
		for j := range 8 {
			window = window<<8 | uint64(key[(i+j)%hashKeyBytes])
		}
		for v := range 256 {
			var h uint32
			for j := range 8 {
				if v>>(7-j)&1 != 0 {
					h ^= uint32(window << j >> 32)
				}
			}
			t.part[i][v] = h
		}
	}
	return t
}

// hash is the Toeplitz hash of in, at most 36 bytes.
func (t *toeplitzTable) hash(in []byte) uint32 {
	var h uint32
	for i, c := range in[:min(len(in), hashInputMax)] {
		h ^= t.part[i][c]
	}
	return h
}

// toeplitz returns the table for t's key.
func (d *Device) toeplitz(t *tir) *toeplitzTable {
	if t.lut != nil && t.lut.key == t.key {
		return t.lut
	}
	for _, l := range d.work.luts {
		if l.key == t.key {
			t.lut = l
			return l
		}
	}
	t.lut = newToeplitz(&t.key)
	if len(d.work.luts) == lutsKept {
		copy(d.work.luts, d.work.luts[1:])
		d.work.luts = d.work.luts[:lutsKept-1]
	}
	d.work.luts = append(d.work.luts, t.lut)
	return t.lut
}

// hashInput collects what sel selects of the headers h: addresses, then ports
// or SPI. kind is the type for the completion; 0 means that nothing is hashed.
func hashInput(buf *[hashInputMax]byte, b []byte, h *l3Header, f hashFields, symmetric bool) (n int, kind uint8) {
	if h.version == 0 || f.ip6 != (h.version == 6) {
		return 0, 0
	}
	both := f.sel&(selSrcIP|selDstIP) == selSrcIP|selDstIP
	if h.version == 4 {
		src, dst := be32(b, h.l3+12), be32(b, h.l3+16)
		if symmetric && both && src > dst {
			src, dst = dst, src
		}
		if f.sel&selSrcIP != 0 {
			putBE32(buf[:], 0, src)
			n, kind = 4, htypeIPv4
		}
		if f.sel&selDstIP != 0 {
			putBE32(buf[:], n, dst)
			n, kind = n+4, kind|htypeIPv4<<2
		}
	} else {
		src, dst := b[h.l3+8:h.l3+24], b[h.l3+24:h.l3+40]
		if symmetric && both && string(src) > string(dst) {
			src, dst = dst, src
		}
		if f.sel&selSrcIP != 0 {
			n, kind = copy(buf[:], src), htypeIPv6
		}
		if f.sel&selDstIP != 0 {
			n, kind = n+copy(buf[n:], dst), kind|htypeIPv6<<2
		}
	}
	if f.sel&(selSrcPort|selDstPort|selIPsecSPI) == 0 {
		return n, kind
	}
	return hashL4(buf, b, h, f, symmetric, n, kind)
}

// hashL4 adds ports or SPI, where the packet has them, to the hash input.
func hashL4(buf *[hashInputMax]byte, b []byte, h *l3Header, f hashFields, symmetric bool, n int, kind uint8) (int, uint8) {
	if spi, ok := h.spi(b); ok {
		if f.sel&selIPsecSPI != 0 {
			putBE32(buf[:], n, spi)
			return n + 4, kind | htypeIPsec<<4 | htypeIPsec<<6
		}
		return n, kind
	}
	l4 := uint8(htypeTCP)
	if f.udp {
		l4 = htypeUDP
	}
	if f.udp && !h.isUDP() || !f.udp && !h.isTCP() {
		return n, kind
	}
	src, dst := be16(b, h.l4), be16(b, h.l4+2)
	if symmetric && f.sel&(selSrcPort|selDstPort) == selSrcPort|selDstPort && src > dst {
		src, dst = dst, src
	}
	if f.sel&selSrcPort != 0 {
		putBE16(buf[:], n, src)
		n, kind = n+2, kind|l4<<4
	}
	if f.sel&selDstPort != 0 {
		putBE16(buf[:], n, dst)
		n, kind = n+2, kind|l4<<6
	}
	return n, kind
}

// pickRQ is the receive queue that t sends packet p to (0 is none), with hash
// and hash type for the completion.
func (d *Device) pickRQ(t *tir, p *packet) (rqn, hash uint32, kind uint8) {
	if t.direct {
		return t.rqn, 0, 0
	}
	r := d.rqts.get(t.rqt)
	if r == nil || len(r.entries) == 0 {
		return 0, 0, 0
	}
	if t.hash == hashToeplitz {
		h, f := &p.outer, t.outer
		if p.tunnel != tunnelNone && t.inner.have {
			h, f = &p.inner, t.inner
		}
		var buf [hashInputMax]byte
		n, k := hashInput(&buf, p.b, h, f, t.sym)
		if n > 0 {
			hash, kind = d.toeplitz(t).hash(buf[:n]), k
		}
	}
	size := uint32(len(r.entries))
	if size&(size-1) == 0 {
		return r.entries[hash&(size-1)], hash, kind
	}
	return r.entries[hash%size], hash, kind
}
