package model

// umr.go owns what memory keys mean: from key and address to bus addresses, and
// the user-mode registration (UMR) that changes them. CREATE_MKEY is in
// cmd_objects.go. Manual: chapters "Memory keys" and "UMR WQE".

// Places in a UMR WQE, in bytes.
const (
	umrCtrl      = 16  // umr_wqe.uctrl
	umrMkc       = 64  // umr_wqe.mkc
	umrInline    = 128 // umr_wqe.inline_mtts
	umrFlags     = 0   // wqe_umr_ctrl_seg.flags
	umrOctowords = 4   // wqe_umr_ctrl_seg.xlt_octowords
	umrOffset    = 6   // wqe_umr_ctrl_seg.xlt_offset
	umrMask      = 8   // wqe_umr_ctrl_seg.mkey_mask
	umrOffsetHi  = 16  // wqe_umr_ctrl_seg.xlt_offset_47_16

	segStatus  = 0  // mkey_seg.status
	segFlags   = 2  // mkey_seg.flags
	segKey     = 4  // mkey_seg.qpn_mkey7_0
	segPD      = 12 // mkey_seg.flags_pd
	segStart   = 16 // mkey_seg.start_addr
	segLen     = 24 // mkey_seg.len
	segLogPage = 59 // mkey_seg.log2_page_size

	klmBytes = 0 // klm.bcount
	klmKey   = 4 // klm.key
	klmVA    = 8 // klm.va
)

// Values in it.
const (
	umrIsInline     = 0x80 // wqe_umr.MLX5_UMR_INLINE
	umrCheckFree    = 0x40 // wqe_umr.MLX5_UMR_CHECK_FREE
	umrCheckNotFree = 0x20 // wqe_umr.MLX5_UMR_CHECK_NOT_FREE
	umrHasOffset    = 0x10 // wqe_umr.MLX5_UMR_TRANSLATION_OFFSET_EN
	umrFlex         = 0x40 // wqe_umr.MLX5_UMR_FLEX_ALIGNMENT
	octoword        = 16   // limit.MLX5_OCTWORD

	maskLen   = 0x1        // mkey_mask.MLX5_MKEY_MASK_LEN
	maskPage  = 0x2        // mkey_mask.MLX5_MKEY_MASK_PAGE_SIZE
	maskStart = 0x40       // mkey_mask.MLX5_MKEY_MASK_START_ADDR
	maskPD    = 0x80       // mkey_mask.MLX5_MKEY_MASK_PD
	maskKey   = 0x2000     // mkey_mask.MLX5_MKEY_MASK_KEY
	maskLR    = 0x20000    // mkey_mask.MLX5_MKEY_MASK_LR
	maskLW    = 0x40000    // mkey_mask.MLX5_MKEY_MASK_LW
	maskFree  = 0x20000000 // mkey_mask.MLX5_MKEY_MASK_FREE

	mkeyFree    = 0x40 // mkey_flag.MLX5_MKEY_STATUS_FREE
	mkeyLR      = 0x4  // mkey_perm.MLX5_PERM_LOCAL_READ
	mkeyLW      = 0x8  // mkey_perm.MLX5_PERM_LOCAL_WRITE
	mttRead     = 0x1  // mtt_perm.MLX5_MTT_PERM_READ
	mttWrite    = 0x2  // mtt_perm.MLX5_MTT_PERM_WRITE
	mttFlags    = 0x7  // low bits of a translation entry that are no address
	keyDepth    = 4    // keys that lead to keys: more is a loop
	mkeyVariant = 8    // low bits of a key that its owner chooses
)

// readKey fills p from what key names at addr, on behalf of protection domain
// pd. False: no such right.
func (d *Device) readKey(pd, key uint32, addr uint64, p []byte) bool {
	return d.access(pd, key, addr, p, false, keyDepth)
}

// writeKey stores p where key names addr.
func (d *Device) writeKey(pd, key uint32, addr uint64, p []byte) bool {
	return d.access(pd, key, addr, p, true, keyDepth)
}

// access moves p one way or the other through one memory key.
func (d *Device) access(pd, key uint32, addr uint64, p []byte, write bool, depth int) bool {
	m := d.mkeys.get(key >> mkeyVariant)
	if m == nil || m.n != key || m.pd != pd || m.free || write && !m.lw || depth == 0 {
		return false
	}
	if !m.length64 && (addr-m.start > m.length || uint64(len(p)) > m.length-(addr-m.start)) {
		return false
	}
	switch m.mode {
	case accessPA:
		return d.dma(addr, p, write)
	case accessMTT:
		return d.accessPages(m, addr, p, write)
	case accessKLM:
		return d.accessList(m, addr-m.start, p, write, depth-1)
	case accessKSM:
		return d.accessEqual(m, addr-m.start, p, write, depth-1)
	}
	return false
}

func (d *Device) dma(addr uint64, p []byte, write bool) bool {
	if write {
		return d.dmaWrite(addr, p)
	}
	return d.dmaRead(addr, p)
}

// accessPages goes through a page list.
func (d *Device) accessPages(m *mkey, addr uint64, p []byte, write bool) bool {
	need, size := uint64(mttRead), uint64(1)<<(m.logPage&63)
	if write {
		need = mttWrite
	}
	base := m.start &^ (size - 1)
	for len(p) > 0 {
		i, off := (addr-base)>>(m.logPage&63), addr&(size-1)
		if i >= uint64(len(m.mtt)) || m.mtt[i]&need == 0 {
			return false
		}
		n := min(uint64(len(p)), size-off)
		if !d.dma(m.mtt[i]&^mttFlags+off, p[:n], write) {
			return false
		}
		p, addr = p[n:], addr+n
	}
	return true
}

// accessList goes through entries of different lengths.
func (d *Device) accessList(m *mkey, off uint64, p []byte, write bool, depth int) bool {
	for _, k := range m.klms {
		if len(p) == 0 {
			return true
		}
		if off >= uint64(k.bytes) {
			off -= uint64(k.bytes)
			continue
		}
		n := min(uint64(len(p)), uint64(k.bytes)-off)
		if !d.access(m.pd, k.key, k.va+off, p[:n], write, depth) {
			return false
		}
		p, off = p[n:], 0
	}
	return len(p) == 0
}

// accessEqual goes through entries of equal length.
func (d *Device) accessEqual(m *mkey, off uint64, p []byte, write bool, depth int) bool {
	size := uint64(1) << (m.logPage & 63)
	for len(p) > 0 {
		i := off >> (m.logPage & 63)
		if i >= uint64(len(m.klms)) {
			return false
		}
		within := off & (size - 1)
		n := min(uint64(len(p)), size-within)
		if !d.access(m.pd, m.klms[i].key, m.klms[i].va+within, p[:n], write, depth) {
			return false
		}
		p, off = p[n:], off+n
	}
	return true
}

// umrAllowed reports whether q may execute UMR.
func umrAllowed(q *sq) bool { return q.reg }

// umr executes a UMR work request: translation entries and the fields of the
// memory key that its mask names.
func (d *Device) umr(q *sq, w *sendWQE) failure {
	if !umrAllowed(q) || len(w.b) < umrInline {
		return failOpcode
	}
	d.work.sum.UMRs++
	ctrl := w.b[umrCtrl:umrMkc]
	m := d.mkeys.get(be32(w.b, ctrlImm) >> mkeyVariant)
	if m == nil || !m.umr {
		return failUMRGone
	}
	flags := ctrl[umrFlags]
	if flags&umrCheckFree != 0 && !m.free || flags&umrCheckNotFree != 0 && m.free {
		return failUMRGone
	}
	if n := int(be16(ctrl, umrOctowords)) * octoword; n > 0 {
		offset := uint64(0)
		if flags&umrHasOffset != 0 {
			offset = uint64(be16(ctrl, umrOffset)) | uint64(be32(ctrl, umrOffsetHi))<<16
		}
		if n%umrFlex != 0 {
			return failUMRSize
		}
		list, fail := d.umrList(q, w, flags, n)
		if fail != failNone {
			return fail
		}
		if fail := m.update(offset, list); fail != failNone {
			return fail
		}
	}
	m.modify(be64(ctrl, umrMask), w.b[umrMkc:umrInline])
	return failNone
}

// umrList returns the n bytes of translation entries: in the WQE, or where its
// data segment points.
func (d *Device) umrList(q *sq, w *sendWQE, flags uint8, n int) ([]byte, failure) {
	if flags&umrIsInline != 0 {
		if umrInline+n > len(w.b) {
			return nil, failUMRSize
		}
		return w.b[umrInline : umrInline+n], failNone
	}
	if umrInline+dsBytes > len(w.b) {
		return nil, failOpcode
	}
	if uint64(be32(w.b, umrInline+dsegCount)) < uint64(n) {
		return nil, failUMRSize
	}
	list := make([]byte, n)
	from := be64(w.b, umrInline+dsegAddr)
	d.work.pci.count(PCIDataRead, from, n)
	if !d.readKey(q.pd, be32(w.b, umrInline+dsegKey), from, list) {
		return nil, failProtection
	}
	return list, failNone
}

// update stores translation entries from octoword offset on.
func (m *mkey) update(offset uint64, list []byte) failure {
	words := uint64(len(list) / octoword)
	switch m.mode {
	case accessMTT:
		if offset > uint64(len(m.mtt)) || (offset+words)*2 > uint64(len(m.mtt)) {
			return failUMRSmall
		}
		for i := range m.mtt[offset*2 : (offset+words)*2] {
			m.mtt[offset*2+uint64(i)] = be64(list, i*8)
		}
	case accessKLM, accessKSM:
		if offset > uint64(len(m.klms)) || offset+words > uint64(len(m.klms)) {
			return failUMRSmall
		}
		for i := range m.klms[offset : offset+words] {
			b := list[i*octoword:]
			m.klms[offset+uint64(i)] = klm{be32(b, klmBytes), be32(b, klmKey), be64(b, klmVA)}
		}
	default:
		return failUMRSmall
	}
	return failNone
}

// modify takes over the fields of a memory key segment that mask names.
func (m *mkey) modify(mask uint64, seg []byte) {
	if mask&maskLen != 0 {
		m.length = be64(seg, segLen)
	}
	if mask&maskPage != 0 {
		m.logPage = seg[segLogPage] & 63
	}
	if mask&maskStart != 0 {
		m.start = be64(seg, segStart)
	}
	if mask&maskPD != 0 {
		m.pd = be32(seg, segPD) & 0xffffff
	}
	if mask&maskKey != 0 {
		m.n = m.n&^0xff | be32(seg, segKey)&0xff
	}
	if mask&maskLR != 0 {
		m.lr = seg[segFlags]&mkeyLR != 0
	}
	if mask&maskLW != 0 {
		m.lw = seg[segFlags]&mkeyLW != 0
	}
	if mask&maskFree != 0 {
		m.free = seg[segStatus]&mkeyFree != 0
	}
}
