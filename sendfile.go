package main

// sendfile.go owns mode txonly with -r FILE: the frames of a capture, laid out in
// DMA memory, what the device is asked to do to each of them (-offload), and the
// channel's handler. It does not own how frames are posted (txpath.go, mpwqe.go)
// or where headers lie (parse.go).
//
// What is asked for depends on the frame alone, so it is decided once, before the
// first is sent. Frames longer than a page are sent in pieces of a page.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"mlx5d/model"
)

// offloadSet is what -offload lets the device do.
type offloadSet uint8

const (
	offloadCsum offloadSet = 1 << iota // checksums are filled in, whatever the file has there
	offloadVLAN                        // an outer 802.1Q tag is taken out and inserted by the device
	offloadTSO                         // TCP that is longer than the MTU is cut by the device
)

var offloadNames = []string{"csum", "vlan", "tso"}

// parseOffloads reads -offload.
func parseOffloads(list string) (set offloadSet, err error) {
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		bit := offloadSet(0)
		for i, name := range offloadNames {
			if word == name {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, wishf("-offload %s: %s", word, strings.Join(offloadNames, ", "))
		}
		set |= bit
	}
	return set, nil
}

// can is an error where the device has not what set asks for. Where headers must
// stand in the WQE, the tag stands among them and the device need not know how.
func (set offloadSet) can(c caps, minInline uint8) error {
	for i, has := range []bool{c.csum, c.insertVLAN || minInline != inlineNone, c.maxLSO > 0} {
		if set&(1<<i) != 0 && !has {
			return wishf("-offload %s: this device cannot", offloadNames[i])
		}
	}
	return nil
}

// sendPlan is how a frame is sent.
type sendPlan struct {
	b       []byte // without the tag that the device inserts
	offload txOffload
	header  int // bytes before what is cut; 0 is sent as it is
}

// planFrame decides what the device does to frame b, which it may change. swp
// says that the device takes header offsets from software; only then are the
// headers inside a tunnel its business. Frames that cannot be decoded are sent as
// they are.
func planFrame(b []byte, set offloadSet, mtu int, swp bool) (p sendPlan) {
	if set&offloadVLAN != 0 && len(b) >= etherHeader+vlanTag && be16(b, 12) == ethVLAN {
		p.offload.insert, p.offload.vlan = true, be16(b, 14)
		copy(b[vlanTag:], b[:12])
		b = b[vlanTag:]
	}
	p.b = b
	var f parsed
	parseFrame(&f, b, len(b), &packetMeta{})
	outer, inner := &f.hdr[levelOuter], &f.hdr[levelInner]
	if f.reason != reasonNone || outer.l4off == 0 || outer.l3 == l3ARP {
		return p
	}
	tunnel := f.tunnel == tunnelVXLAN || f.tunnel == tunnelGeneve
	if tunnel && !swp {
		return p
	}
	last := outer
	if tunnel {
		last = inner
	}
	cut := set&offloadTSO != 0 && len(b)-outer.l3off > mtu && last.cuttable(len(b))
	if mss := mtu + outer.l3off - last.payload; cut && mss > 0 && last.payload <= maxInline {
		p.header, p.offload.mss = last.payload, uint16(mss)
	}
	if set&offloadCsum != 0 || p.header > 0 { // what is cut cannot keep its sums
		p.sums(outer, inner, tunnel)
	}
	return p
}

// cuttable reports whether what the headers carry is TCP in one piece up to the
// frame's end, which is n.
func (h *ipHeaders) cuttable(n int) bool {
	return h.proto == ipTCP && h.summable() && h.payload < n && (h.end == n || h.flags&flagNoLength != 0)
}

// summable reports whether layer 4 has a checksum over all that is in the frame.
func (h *ipHeaders) summable() bool {
	return h.flags&flagPayload != 0 && h.flags&(flagFragFirst|flagFragLater|flagCut) == 0 && (h.proto == ipTCP || h.proto == ipUDP)
}

// sums asks for checksums. Those of a tunnel are found through offsets from
// software, so that any kind of tunnel will do. A UDP checksum of 0 around a
// tunnel means that there is none, and none is filled in.
func (p *sendPlan) sums(outer, inner *ipHeaders, tunnel bool) {
	o := &p.offload
	if outer.l3 == l3IPv4 {
		o.csum |= csumL3
	}
	if outer.summable() && (!tunnel || be16(p.b, outer.l4off+6) != 0) {
		o.csum |= csumL4
	}
	if !tunnel || inner.l4off == 0 || inner.l4off > 2*255 {
		return
	}
	if inner.l3 == l3IPv4 {
		o.csum |= csumL3Inner
	}
	if inner.summable() {
		o.csum |= csumL4Inner
	}
	o.swp = [4]uint8{uint8(outer.l4off / 2), uint8(outer.l3off / 2), uint8(inner.l4off / 2), uint8(inner.l3off / 2)}
	o.swpFlags = swpOuterUDP
	for _, k := range []struct {
		is  bool
		bit uint8
	}{{outer.l3 == l3IPv6, swpOuterIPv6}, {inner.l3 == l3IPv6, swpInnerIPv6}, {inner.proto == ipUDP, swpInnerUDP}} {
		if k.is {
			o.swpFlags |= k.bit
		}
	}
}

// maxFileBytes bounds the frames of a file, which stand in DMA memory.
const maxFileBytes = 256 << 20

// readFrames reads the frames of a capture that queue number queue of queues
// sends: every queues-th.
func readFrames(path string, queue, queues int) (frames [][]byte, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, wishf("-r: %v", err)
	}
	defer func() { _ = in.Close() }()
	r, err := model.NewReader(in)
	if err != nil {
		return nil, wishf("-r %s: %v", path, err)
	}
	for i, size := 0, 0; ; i++ {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && len(frames) == 0:
			return nil, wishf("-r %s: %d frames for %d queues", path, i, queues)
		case errors.Is(err, io.EOF):
			return frames, nil
		case err != nil:
			return nil, wishf("-r %s: %v", path, err)
		case rec.LinkType != ethernetLink:
			return nil, wishf("-r %s: record %d is %v, not Ethernet", path, i+1, rec.LinkType)
		case rec.CapLen <= etherHeader || rec.CapLen < rec.OrigLen:
			return nil, wishf("-r %s: record %d is no whole frame: %d bytes of %d", path, i+1, rec.CapLen, rec.OrigLen)
		case size+rec.CapLen > maxFileBytes:
			return nil, wishf("-r %s: more than %d MiB of frames", path, maxFileBytes>>20)
		}
		if i%queues == queue {
			frames = append(frames, append([]byte(nil), rec.Data...))
			size += rec.CapLen
		}
	}
}

// ethernetLink is the link type of Ethernet in capture files.
const ethernetLink = 1

// fileWork sends the frames of a file in order, again and again. Mode txonly with
// -r.
type fileWork struct {
	sendQuota
	q      *sendQueue
	xdp    bool      // q is the channel's XDP send queue
	elems  []txFrame // of all frames
	ends   []uint32  // where each frame ends in elems
	blocks []uint8   // WQEBBs that each takes at most in a WQE of its own
	next   int       // frame
}

// fileWish is what newFileWork is asked for.
type fileWish struct {
	path          string
	offloads      offloadSet
	queue, queues int  // this channel's place among all
	xdp           bool // send through the channel's XDP send queue
}

// newFileWork reads the file and lays out the channel's part of it in memory,
// which is the arena's until that is closed: the device may read it for as long
// as the queue is there.
func newFileWork(c *channel, want fileWish, left func(int) int) (*fileWork, error) {
	if err := want.offloads.can(c.n.caps, c.n.params.minInline); err != nil {
		return nil, err
	}
	frames, err := readFrames(want.path, want.queue, want.queues)
	if err != nil {
		return nil, err
	}
	swp := c.n.caps.swp && c.n.caps.swpLSO
	var plans []sendPlan
	at, places := uint32(0), make([]uint32, len(frames))
	for i, b := range frames {
		p := planFrame(b, want.offloads, c.n.params.mtu, swp)
		plans = append(plans, p)
		places[i] = frameAt(at, uint32(len(p.b)))
		at = places[i] + uint32(len(p.b))
	}
	pool, err := newPagePool(c.n.mem, int(c.rx.pool.id>>24), int(at/pageSize)+1)
	if err != nil {
		return nil, fmt.Errorf("frames of %s: %w", want.path, err)
	}
	w := &fileWork{sendQuota: sendQuota{left: left}, q: c.tx}
	if want.xdp {
		w.q, w.xdp, c.generates = c.xdp, true, true
	}
	w.q.home(pool)
	for i := range plans {
		copy(pool.cut(places[i], uint32(len(plans[i].b))), plans[i].b)
		w.add(pool, places[i], &plans[i])
	}
	return w, nil
}

// frameAt is where a frame of n bytes is put when what lies before at is taken: on
// a cache line, and not over a page's end if it fits in a page.
func frameAt(at, n uint32) uint32 {
	at = (at + wqebb - 1) &^ (wqebb - 1)
	if off := at % pageSize; off+n > pageSize && off != 0 {
		at += pageSize - off
	}
	return at
}

// add makes a frame's elements: one for each page that it lies in.
func (w *fileWork) add(pool *pagePool, at uint32, p *sendPlan) {
	first, n := len(w.elems), uint32(len(p.b))
	for off := uint32(0); off < n; off += pageSize {
		f := txFrame{addr: pool.mem.iova + uint64(at+off), eseg: p.offload.eseg(), form: txSize(min(n-off, pageSize)), page: noPage}
		if off+pageSize < n {
			f.form |= txMore
		}
		w.elems = append(w.elems, f)
	}
	w.elems[first].form |= txHeader(uint32(p.header))
	w.ends = append(w.ends, uint32(len(w.elems)))
	segs := 2 + mostInline + len(w.elems) - first
	w.blocks = append(w.blocks, uint8(min((segs+segsPerBlock-1)/segsPerBlock, mostBlocks)))
}

// mostBlocks is the largest number of WQEBBs that a frame can take;
// one in more pieces is dropped.
const mostBlocks = (2 + mostInline + maxPieces + segsPerBlock - 1) / segsPerBlock

func (w *fileWork) handle(*channel, []packet) {}
func (w *fileWork) idle(*channel)             {}

// turn sends as many frames as surely fit.
func (w *fileWork) turn(*channel) int {
	if w.xdp {
		w.q.watchInline()
	}
	n := w.take(w.fits(w.q))
	if n == 0 {
		return 0
	}
	from := uint32(0)
	if w.next > 0 {
		from = w.ends[w.next-1]
	}
	w.q.sendOrDrop(w.elems[from:w.ends[w.next+n-1]])
	if w.next += n; w.next == len(w.ends) {
		w.next = 0
	}
	return w.sent(n)
}

// fits is how many of the frames that come next q has room for, in a session or in
// WQEs of their own; NOPs may take some before the ring's edge.
func (w *fileWork) fits(q *sendQueue) (n int) {
	free, least := int(q.free())-mostBlocks, int(q.mostBlocksOf(1))
	for ; n < napiBudget && w.next+n < len(w.ends); n++ {
		if free -= max(least, int(w.blocks[w.next+n])); free < 0 {
			break
		}
	}
	if n == 0 {
		q.stop()
	}
	return n
}
