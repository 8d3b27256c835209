package model

// pcapfile.go owns the reading of capture files: pcap with microseconds or
// nanoseconds, and pcapng, each in either byte order. It trusts no length and
// holds one record in memory. It does not own what becomes of the records
// (wire_replay.go) and does not write files. Formats: the IETF drafts
// draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the manual has no say.

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

const (
	// maxCaptured bounds the bytes of one record; the largest snapshot length
	// in use is 262144.
	maxCaptured = 256 << 10
	// maxInterfaces bounds the interfaces of one pcapng section.
	maxInterfaces = 1 << 16
	// lastSecond is the end of the year 9999, in Unix time. Stamps beyond it are
	// noise and are held there, so that arithmetic on them cannot overflow.
	lastSecond = 253402300799

	magicMicro   = 0xa1b2c3d4
	magicNano    = 0xa1b23c4d
	magicSection = 0x0a0d0d0a // reads the same in both byte orders
	magicOrder   = 0x1a2b3c4d

	blockInterface = 1
	blockPacket    = 2 // obsolete, still met
	blockSimple    = 3
	blockEnhanced  = 6
)

// Record is one captured frame.
type Record struct {
	Time      time.Time // UTC; zero in a simple packet block, which has none
	CapLen    int       // bytes captured, len(Data)
	OrigLen   int       // bytes on the wire as the file says
	LinkType  LinkType
	Interface int    // number in its section; 0 in pcap
	FCSLen    int    // bytes of frame check sequence the file declares, often 0
	Data      []byte // valid until the next call of Next
}

// CutError says that a capture ends inside a record or a block.
type CutError struct {
	Record uint64 // the one being read, counted from 1
	Block  bool   // it was a block that holds no record, before that record
}

func (e *CutError) Error() string {
	if e.Block {
		return fmt.Sprintf("cut short in the middle of a block before record %d", e.Record)
	}
	return fmt.Sprintf("cut short in the middle of record %d", e.Record)
}

// Unwrap makes errors.Is(err, io.ErrUnexpectedEOF) true.
func (e *CutError) Unwrap() error { return io.ErrUnexpectedEOF }

// CaptureReader reads a pcap or pcapng stream record by record.
type CaptureReader struct {
	in      *bufio.Reader
	order   binary.ByteOrder
	ng      bool
	ifaces  []captureInterface // of the current section
	links   []LinkType         // distinct, in the order of appearance
	records uint64             // records returned
	left    uint32             // bytes of the current block's body not yet read
	block   bool               // the current block holds no record
	buf     []byte
	small   [24]byte
	err     error // once set, every Next returns it
}

type captureInterface struct {
	link    LinkType
	snapLen uint32
	ticks   uint64 // units of a time stamp per second
	offset  int64  // seconds to add
	fcs     int
}

// NewReader reads the file header and fails if this is not a capture.
func NewReader(in io.Reader) (*CaptureReader, error) {
	r := &CaptureReader{in: bufio.NewReaderSize(in, 64<<10)}
	magic, err := r.in.Peek(4)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case len(magic) == 0:
		return nil, errors.New("the file is empty, not a capture")
	case len(magic) < 4:
		return nil, fmt.Errorf("not a capture: only %d bytes", len(magic))
	}
	if binary.LittleEndian.Uint32(magic) == magicSection {
		r.ng = true
		return r, r.openSection()
	}
	return r, r.openPcap(magic)
}

// LinkTypes lists the link types of the interfaces seen so far, each once.
func (r *CaptureReader) LinkTypes() []LinkType { return r.links }

// Next returns the next record. It returns io.EOF at the end of the file, a
// *CutError where the file stops short, and another error where it is damaged;
// it repeats whichever it was when called again.
func (r *CaptureReader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	var rec Record
	if r.ng {
		rec, r.err = r.nextBlock()
	} else {
		rec, r.err = r.nextPcap()
	}
	if r.err == nil {
		r.records++
	}
	return rec, r.err
}

// openPcap reads the 24-byte header of the older format.
func (r *CaptureReader) openPcap(magic []byte) error {
	ticks, ok := r.pcapMagic(magic)
	switch {
	case ok:
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return errors.New("compressed with gzip: unpack it first")
	case binary.LittleEndian.Uint32(magic) == 0xfd2fb528:
		return errors.New("compressed with zstd: unpack it first")
	default:
		return fmt.Errorf("not a capture: it starts with % x, which is neither pcap nor pcapng", magic)
	}
	h := r.small[:24]
	if n, err := io.ReadFull(r.in, h); err != nil {
		return headerError(n, 24, err)
	}
	if major, minor := r.order.Uint16(h[4:]), r.order.Uint16(h[6:]); major != 2 {
		return fmt.Errorf("pcap version %d.%d: only version 2 is known", major, minor)
	}
	i := captureInterface{ticks: ticks, snapLen: r.order.Uint32(h[16:])}
	network := r.order.Uint32(h[20:])
	i.link = LinkType(network & 0xffff)
	if network&(1<<26) != 0 { // the top four bits count 16-bit words of FCS
		i.fcs = int(network>>28) * 2
	}
	r.addInterface(i)
	return nil
}

// pcapMagic sets the byte order and returns the time stamp units per second.
func (r *CaptureReader) pcapMagic(magic []byte) (ticks uint64, ok bool) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		r.order = order
		switch order.Uint32(magic) {
		case magicMicro:
			return 1e6, true
		case magicNano:
			return 1e9, true
		}
	}
	return 0, false
}

func headerError(n, want int, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("cut short in the file header: %d of %d bytes", n, want)
	}
	return fmt.Errorf("file header: %w", err)
}

func (r *CaptureReader) addInterface(i captureInterface) {
	r.ifaces = append(r.ifaces, i)
	for _, l := range r.links {
		if l == i.link {
			return
		}
	}
	r.links = append(r.links, i.link)
}

// nextPcap reads one record of the older format.
func (r *CaptureReader) nextPcap() (Record, error) {
	h := r.small[:16]
	n, err := io.ReadFull(r.in, h)
	if n == 0 && err == io.EOF {
		return Record{}, io.EOF
	}
	if err != nil {
		return Record{}, r.short(err)
	}
	sec, frac := r.order.Uint32(h), r.order.Uint32(h[4:])
	captured, original := r.order.Uint32(h[8:]), r.order.Uint32(h[12:])
	data, err := r.data(captured)
	if err != nil {
		return Record{}, err
	}
	i := &r.ifaces[0]
	// A fraction of a second or more occurs in damaged files; it is added as is.
	stamp := time.Unix(int64(sec), int64(frac)*int64(1e9/i.ticks)).UTC()
	return Record{Time: stamp, CapLen: len(data), OrigLen: int(original),
		LinkType: i.link, FCSLen: i.fcs, Data: data}, nil
}

// data reads the captured bytes of a record into the reader's own buffer.
func (r *CaptureReader) data(n uint32) ([]byte, error) {
	if n > maxCaptured {
		return nil, fmt.Errorf("record %d claims %d captured bytes, more than %d", r.records+1, n, maxCaptured)
	}
	if int(n) > cap(r.buf) {
		r.buf = make([]byte, 1<<bits.Len32(n-1))
	}
	b := r.buf[:n:n]
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, r.short(err)
	}
	return b, nil
}

// short turns the end of the file in the wrong place into a *CutError.
func (r *CaptureReader) short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &CutError{Record: r.records + 1, Block: r.block}
	}
	return fmt.Errorf("record %d: %w", r.records+1, err)
}

// nextBlock reads pcapng blocks up to and including the next packet.
func (r *CaptureReader) nextBlock() (Record, error) {
	for {
		h := r.small[:8]
		r.block = false
		n, err := io.ReadFull(r.in, h)
		if n == 0 && err == io.EOF {
			return Record{}, io.EOF
		}
		if err != nil {
			return Record{}, r.short(err)
		}
		kind, total := r.order.Uint32(h), r.order.Uint32(h[4:])
		r.block = kind != blockEnhanced && kind != blockSimple && kind != blockPacket
		var rec Record
		switch {
		case kind == magicSection:
			err = r.section(binary.LittleEndian.Uint32(h[4:]))
		default:
			if err = r.startBlock(total); err == nil {
				rec, err = r.body(kind)
			}
			if err == nil {
				err = r.endBlock(total)
			}
		}
		if err != nil || !r.block {
			return rec, err
		}
	}
}

// body reads what matters of one block and leaves the rest to endBlock.
func (r *CaptureReader) body(kind uint32) (Record, error) {
	switch kind {
	case blockInterface:
		return Record{}, r.describe()
	case blockEnhanced, blockPacket:
		return r.packet(kind)
	case blockSimple:
		return r.simplePacket()
	}
	return Record{}, nil
}

func (r *CaptureReader) startBlock(total uint32) error {
	if total < 12 || total%4 != 0 {
		return fmt.Errorf("a block before record %d claims %d bytes: not a multiple of 4 from 12 up", r.records+1, total)
	}
	r.left = total - 12
	return nil
}

// take reads n bytes of the block's body. They stay until the next take.
func (r *CaptureReader) take(n uint32) ([]byte, error) {
	if n > r.left {
		return nil, fmt.Errorf("a block before record %d is %d bytes too short for what it must hold", r.records+1, n-r.left)
	}
	b := r.small[:n]
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, r.short(err)
	}
	r.left -= n
	return b, nil
}

// skip drops n bytes of the block's body.
func (r *CaptureReader) skip(n uint32) error {
	if n > r.left {
		return fmt.Errorf("a block before record %d is %d bytes too short for its padding", r.records+1, n-r.left)
	}
	r.left -= n
	for n > 0 {
		step := min(n, 1<<30)
		if _, err := r.in.Discard(int(step)); err != nil {
			return r.short(err)
		}
		n -= step
	}
	return nil
}

// endBlock drops what is left and compares the length behind the body.
func (r *CaptureReader) endBlock(total uint32) error {
	if err := r.skip(r.left); err != nil {
		return err
	}
	r.left = 4
	b, err := r.take(4)
	if err != nil {
		return err
	}
	if again := r.order.Uint32(b); again != total {
		return fmt.Errorf("a block before record %d has length %d in front and %d behind", r.records+1, total, again)
	}
	return nil
}

// openSection reads the section header that makes the file a pcapng file.
func (r *CaptureReader) openSection() error {
	h := r.small[:8]
	if n, err := io.ReadFull(r.in, h); err != nil {
		return headerError(n, 28, err)
	}
	r.block = true
	err := r.section(binary.LittleEndian.Uint32(h[4:]))
	var cut *CutError
	if errors.As(err, &cut) {
		return errors.New("cut short in the file header: the section header is not whole")
	}
	return err
}

// section starts a section: its byte order holds and its interfaces count from
// 0. The length came before the byte order was known, read as little endian.
func (r *CaptureReader) section(total uint32) error {
	r.left = 16
	b, err := r.take(16)
	if err != nil {
		return err
	}
	switch {
	case binary.LittleEndian.Uint32(b) == magicOrder:
		r.order = binary.LittleEndian
	case binary.BigEndian.Uint32(b) == magicOrder:
		r.order = binary.BigEndian
		total = bits.ReverseBytes32(total)
	default:
		return fmt.Errorf("a section header has % x where its byte order should be", b[:4])
	}
	if major, minor := r.order.Uint16(b[4:]), r.order.Uint16(b[6:]); major != 1 {
		return fmt.Errorf("pcapng version %d.%d: only version 1 is known", major, minor)
	}
	if total < 28 {
		return fmt.Errorf("a section header claims %d bytes: it needs 28", total)
	}
	if err := r.startBlock(total); err != nil {
		return err
	}
	r.left -= 16
	r.ifaces = r.ifaces[:0]
	return r.endBlock(total)
}

// describe reads an interface description.
func (r *CaptureReader) describe() error {
	if len(r.ifaces) == maxInterfaces {
		return fmt.Errorf("more than %d interfaces in one section", maxInterfaces)
	}
	b, err := r.take(8)
	if err != nil {
		return err
	}
	i := captureInterface{link: LinkType(r.order.Uint16(b)), snapLen: r.order.Uint32(b[4:]), ticks: 1e6}
	for r.left >= 4 {
		more, err := r.option(&i)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	r.addInterface(i)
	return nil
}

// option reads one option of an interface description; false was the last.
func (r *CaptureReader) option(i *captureInterface) (bool, error) {
	const endOfOptions, resolution, fcsLength, timeOffset = 0, 9, 13, 14
	b, err := r.take(4)
	if err != nil {
		return false, err
	}
	code, size := r.order.Uint16(b), uint32(r.order.Uint16(b[2:]))
	want, known := map[uint16]uint32{resolution: 1, fcsLength: 1, timeOffset: 8}[code]
	switch {
	case code == endOfOptions:
		return false, nil
	case !known:
		return true, r.skip((size + 3) &^ 3)
	case size != want:
		return false, fmt.Errorf("interface %d: option %d has %d bytes, not %d", len(r.ifaces), code, size, want)
	}
	if b, err = r.take((size + 3) &^ 3); err != nil {
		return false, err
	}
	switch code {
	case fcsLength:
		i.fcs = int(b[0])
	case timeOffset:
		i.offset = int64(r.order.Uint64(b))
	case resolution:
		if i.ticks = ticksPerSecond(b[0]); i.ticks == 0 {
			return false, fmt.Errorf("interface %d: time resolution 0x%02x is finer than 64 bits can count", len(r.ifaces), b[0])
		}
	}
	return true, nil
}

// ticksPerSecond decodes if_tsresol: a power of ten, or of two where the top
// bit is set. It returns 0 where the number does not fit 64 bits.
func ticksPerSecond(v byte) uint64 {
	n := int(v & 0x7f)
	if v&0x80 != 0 {
		if n > 63 {
			return 0
		}
		return 1 << n
	}
	if n > 19 {
		return 0
	}
	ticks := uint64(1)
	for range n {
		ticks *= 10
	}
	return ticks
}

// packet reads an enhanced packet block or the obsolete packet block, which
// differ in their first word alone.
func (r *CaptureReader) packet(kind uint32) (Record, error) {
	b, err := r.take(20)
	if err != nil {
		return Record{}, err
	}
	n := r.order.Uint32(b)
	if kind == blockPacket {
		n = uint32(r.order.Uint16(b)) // 16 bits of drop count follow
	}
	stamp := uint64(r.order.Uint32(b[4:]))<<32 | uint64(r.order.Uint32(b[8:]))
	captured, original := r.order.Uint32(b[12:]), r.order.Uint32(b[16:])
	if n >= uint32(len(r.ifaces)) {
		return Record{}, fmt.Errorf("record %d names interface %d of %d", r.records+1, n, len(r.ifaces))
	}
	rec, err := r.blockData(captured)
	if err != nil {
		return Record{}, err
	}
	i := &r.ifaces[n]
	rec.Time, rec.LinkType, rec.FCSLen = i.time(stamp), i.link, i.fcs
	rec.Interface, rec.OrigLen = int(n), int(original)
	return rec, nil
}

// simplePacket reads a simple packet block: interface 0, no time stamp, and the
// captured length follows from the snapshot length.
func (r *CaptureReader) simplePacket() (Record, error) {
	b, err := r.take(4)
	if err != nil {
		return Record{}, err
	}
	if len(r.ifaces) == 0 {
		return Record{}, fmt.Errorf("record %d names interface 0 of none", r.records+1)
	}
	i := &r.ifaces[0]
	original := r.order.Uint32(b)
	captured := original
	if i.snapLen != 0 {
		captured = min(captured, i.snapLen)
	}
	rec, err := r.blockData(captured)
	if err != nil {
		return Record{}, err
	}
	rec.LinkType, rec.FCSLen, rec.OrigLen = i.link, i.fcs, int(original)
	return rec, nil
}

// blockData reads captured bytes out of a block's body.
func (r *CaptureReader) blockData(captured uint32) (Record, error) {
	if captured <= maxCaptured && captured > r.left {
		return Record{}, fmt.Errorf("record %d claims %d captured bytes in a block with room for %d", r.records+1, captured, r.left)
	}
	data, err := r.data(captured)
	if err != nil {
		return Record{}, err
	}
	r.left -= captured
	return Record{CapLen: len(data), Data: data}, nil
}

// time turns a stamp in the interface's units into a time.
func (i *captureInterface) time(stamp uint64) time.Time {
	sec, frac := stamp/i.ticks, stamp%i.ticks
	hi, lo := bits.Mul64(frac, 1e9)
	ns, _ := bits.Div64(hi, lo, i.ticks) // frac < ticks, so this fits
	s := int64(min(sec, lastSecond)) + max(min(i.offset, lastSecond), -lastSecond)
	return time.Unix(max(min(s, lastSecond), 0), int64(ns)).UTC()
}

// LinkType is a number of the registry of link-layer header types.
type LinkType uint32

// LinkEthernet is the one link type that can be put on a wire.
const LinkEthernet LinkType = 1

var linkNames = map[LinkType]string{
	0: "NULL", 1: "EN10MB", 6: "IEEE802_5", 9: "PPP", 10: "FDDI", 50: "PPP_HDLC",
	51: "PPP_ETHER", 100: "ATM_RFC1483", 101: "RAW", 104: "C_HDLC",
	105: "IEEE802_11", 107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL", 117: "PFLOG",
	119: "IEEE802_11_PRISM", 127: "IEEE802_11_RADIOTAP", 147: "USER0",
	187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 192: "PPI",
	195: "IEEE802_15_4_WITHFCS", 220: "USB_LINUX_MMAPPED", 227: "CAN_SOCKETCAN",
	228: "IPV4", 229: "IPV6", 239: "NFLOG", 247: "INFINIBAND", 249: "USBPCAP",
	253: "NETLINK", 276: "LINUX_SLL2",
}

// String gives the registry's name and the number: RAW (101).
func (l LinkType) String() string {
	name := linkNames[l]
	if name == "" {
		name = "unknown link type"
	}
	return fmt.Sprintf("%s (%d)", name, uint32(l))
}
