package main

// metadata.go owns what a receive completion says about its frame beyond where it
// lies: the checksum verdict, the hash, the stripped tag. It does not own the
// completion's layout (queue.go) or the time (clock.go).
// Manual: chapter Completion Queues (CQE fields).

// csumVerdict is what the device knows about a frame's checksums.
type csumVerdict uint8

const (
	// csumNone: nothing. Whoever cares must look at the frame.
	csumNone csumVerdict = iota
	// csumUnnecessary: the device has checked layers 3 and 4 and both are right.
	csumUnnecessary
	// csumComplete: the device has summed the whole IP packet; packet.checksum is the
	// sum, from which software can check any layer.
	csumComplete
	csumVerdicts
)

// csumStats counts verdicts, by mlx5e's names.
type csumStats [csumVerdicts]counter

// note counts the verdicts of a batch; noComplete as with verdict.
func (s *csumStats) note(packets []packet, noComplete bool) {
	var n [csumVerdicts]uint64
	for i := range packets {
		n[packets[i].verdict(noComplete)]++
	}
	for i := range n {
		s[i].add(n[i])
	}
}

const (
	l3OK, l4OK = 1 << 1, 1 << 2 // of packet.ok()
	ipv4Proto  = 9              // offset of the protocol in an IPv4 header
	ipv6Next   = 6              // of the next header in an IPv6 header
	// paddedFrame is the longest frame that may hold padding behind its packet, which
	// some firmware sums as well.
	paddedFrame = 60
)

// verdict is what the device says about p's checksums. noComplete is the private
// flag rx_no_csum_complete. (Linux: mlx5e_handle_csum.)
func (p *packet) verdict(noComplete bool) csumVerdict {
	if !noComplete && p.checksum != 0 && p.size > paddedFrame && p.summable() {
		return csumComplete
	}
	if p.ok()&(l3OK|l4OK) == l3OK|l4OK {
		return csumUnnecessary
	}
	return csumNone
}

// summable reports whether a ones' complement sum says anything about p: it is an
// IP packet, behind at most two tags, of another protocol than SCTP, whose
// checksum is a CRC.
func (p *packet) summable() bool {
	b, at := p.b, 12
	for range 3 {
		if len(b) < at+2 {
			return false
		}
		switch be16(b, at) {
		case ethIPv4:
			return len(b) > at+2+ipv4Proto && b[at+2+ipv4Proto] != ipSCTP
		case ethIPv6:
			return len(b) > at+2+ipv6Next && b[at+2+ipv6Next] != ipSCTP
		case ethVLAN, ethQinQ:
			at += vlanTag
		default:
			return false
		}
	}
	return false
}

// rssHash is the receive-side scaling hash, 0 where the device made none.
func (p *packet) rssHash() uint32 {
	if p.hashType == 0 {
		return 0
	}
	return p.hash
}
