package main

// xskproto.go owns the bytes of the attach protocol, which a process speaks on the
// socket of -xsk-listen to get a queue: requests, answers, and how file descriptors
// come with them. It does not own what a request leads to (xskserve.go).
//
// Every message is little endian and starts with 16 bytes: magic, version, kind,
// length of all of it, 0. The client speaks first and gets one answer to each
// request. Unknown kinds, versions, flags and bytes that should be 0 are refused, so
// that later versions can use them. When the socket closes, the queue is free again.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	xskMagic   = 0x4b53584d // "MXSK"
	xskVersion = 1
	xskHeader  = 16
	xskMessage = 1024 // the longest

	// Kinds of message.
	xskAttach  = 1
	xskGiven   = 2 // what was given: flags, as in the answer to attach
	xskCounts  = 3 // AF_XDP's statistics of this socket
	xskAnswer  = 0x8000
	xskRefused = 0xffff // a reason in words follows; the queue stays as it is
	xskClosed  = 0xfffe // the same, and the socket ends with it

	// Flags of a request and its answer.
	xskNeedWakeup  = 1 << 0 // the client looks at need-wakeup flags
	xskZeroCopy    = 1 << 1 // request: refuse where there is none; answer: there is
	xskMultiBuffer = 1 << 2 // packets may take several frames
	xskKnownFlags  = xskNeedWakeup | xskZeroCopy | xskMultiBuffer

	xskAttachSize = xskHeader + 4*12
	xskAnswerSize = xskHeader + 4*6 + 8*2 + xskRings*(4*8+8)

	// Places in the answer that were 0 at first, and are where a client knows nothing
	// of them: the word before the files' sizes and the last one of the first ring.
	xskMACFirst = xskHeader + 4*5 // bytes 0 to 3 of the address
	xskMACRest  = xskHeader + 4*6 + 8*2 + 4*8 + 4
	xskIndexAt  = xskMACRest + 2
)

// File descriptors of the answer to attach, in this order.
const (
	xskFDUMEM  = iota // memfd: the frames
	xskFDRings        // memfd: the four rings
	xskFDKick         // eventfd: the client wakes the driver
	xskFDWake         // eventfd: the driver wakes the client
	xskFDs
)

// xskRequest asks for a queue.
type xskRequest struct {
	port    uint32 // which NIC, in the order of -pci
	queue   uint32
	umem    umemConfig
	entries [xskRings]int
	flags   uint32
}

// xskGrant is the answer.
type xskGrant struct {
	flags    uint32
	queue    uint32 // number for rules: behind the regular ones
	mtu      uint32
	start    uint32  // of received data in a frame
	room     uint32  // bytes of a received packet that a frame holds
	mac      [6]byte // of the port that it sends through; 0 is not told
	index    uint16  // number of the queue among those of sockets
	umemSize uint64
	ringSize uint64
	places   [xskRings]ringPlace
}

var le = binary.LittleEndian

// wakeOne is one wake-up, as an eventfd takes it.
var wakeOne = [8]byte{1}

// errXSKProtocol marks what breaks the protocol.
var errXSKProtocol = errors.New("attach protocol")

// putHeader starts a message of n bytes.
func putHeader(b []byte, kind, n int) {
	clear(b[:n])
	le.PutUint32(b, xskMagic)
	le.PutUint16(b[4:], xskVersion)
	le.PutUint16(b[6:], uint16(kind))
	le.PutUint32(b[8:], uint32(n))
}

// encode writes the request as a message.
func (r *xskRequest) encode() []byte {
	b := make([]byte, xskAttachSize)
	putHeader(b, xskAttach, len(b))
	words := []uint32{r.port, r.queue, uint32(r.umem.frame), uint32(r.umem.frames), uint32(r.umem.headroom),
		uint32(r.entries[0]), uint32(r.entries[1]), uint32(r.entries[2]), uint32(r.entries[3]), r.flags, 0, 0}
	for i, w := range words {
		le.PutUint32(b[xskHeader+4*i:], w)
	}
	return b
}

// decodeRequest reads an attach message; its header was checked.
func decodeRequest(b []byte) (r xskRequest, err error) {
	if len(b) != xskAttachSize {
		return r, fmt.Errorf("%w: an attach request of %d bytes, not %d", errXSKProtocol, len(b), xskAttachSize)
	}
	var w [12]uint32
	for i := range w {
		w[i] = le.Uint32(b[xskHeader+4*i:])
	}
	if w[10] != 0 || w[11] != 0 || w[9]&^xskKnownFlags != 0 {
		return r, fmt.Errorf("%w: flags %#x or bytes that should be 0 are not known", errXSKProtocol, w[9])
	}
	r = xskRequest{port: w[0], queue: w[1], umem: umemConfig{frame: int(w[2]), frames: int(w[3]), headroom: int(w[4])}, flags: w[9]}
	for i := range r.entries {
		r.entries[i] = int(w[5+i])
	}
	return r, nil
}

// encode writes the answer as a message.
func (g *xskGrant) encode() []byte {
	b := make([]byte, xskAnswerSize)
	putHeader(b, xskAttach|xskAnswer, len(b))
	for i, w := range []uint32{g.flags, g.queue, g.mtu, g.start, g.room} {
		le.PutUint32(b[xskHeader+4*i:], w)
	}
	at := xskHeader + 4*6
	copy(b[xskMACFirst:], g.mac[:4])
	copy(b[xskMACRest:], g.mac[4:])
	le.PutUint16(b[xskIndexAt:], g.index)
	le.PutUint64(b[at:], g.umemSize)
	le.PutUint64(b[at+8:], g.ringSize)
	for i, p := range g.places {
		o := b[at+16+40*i:]
		le.PutUint64(o, p.producer)
		le.PutUint64(o[8:], p.consumer)
		le.PutUint64(o[16:], p.flags)
		le.PutUint64(o[24:], p.desc)
		le.PutUint32(o[32:], p.entries)
	}
	return b
}

// decodeGrant reads the answer to attach.
func decodeGrant(b []byte) (g xskGrant, err error) {
	if len(b) != xskAnswerSize {
		return g, fmt.Errorf("%w: an answer of %d bytes, not %d", errXSKProtocol, len(b), xskAnswerSize)
	}
	for i, w := range []*uint32{&g.flags, &g.queue, &g.mtu, &g.start, &g.room} {
		*w = le.Uint32(b[xskHeader+4*i:])
	}
	copy(g.mac[:4], b[xskMACFirst:])
	copy(g.mac[4:], b[xskMACRest:xskIndexAt])
	g.index = le.Uint16(b[xskIndexAt:])
	at := xskHeader + 4*6
	g.umemSize, g.ringSize = le.Uint64(b[at:]), le.Uint64(b[at+8:])
	for i := range g.places {
		o := b[at+16+40*i:]
		g.places[i] = ringPlace{le.Uint64(o), le.Uint64(o[8:]), le.Uint64(o[16:]), le.Uint64(o[24:]), le.Uint32(o[32:])}
	}
	return g, g.check()
}

// check makes sure that what the answer says lies inside the files.
func (g *xskGrant) check() error {
	for i, p := range g.places {
		n := uint64(p.entries)
		for _, at := range []uint64{p.producer, p.consumer, p.flags} {
			if at%4 != 0 || at > g.ringSize || g.ringSize-at < 4 {
				return fmt.Errorf("%w: a word of the %s ring lies outside the file", errXSKProtocol, xskRingNames[i])
			}
		}
		if n == 0 || n > maxXSKRing || n&(n-1) != 0 || p.desc%8 != 0 || p.desc > g.ringSize || g.ringSize-p.desc < n*uint64(entrySize(i)) {
			return fmt.Errorf("%w: the %s ring lies outside the file", errXSKProtocol, xskRingNames[i])
		}
	}
	return nil
}

// xskRefusal is an error as a message.
func xskRefusal(kind int, why string) []byte {
	why = why[:min(len(why), xskMessage-xskHeader)]
	b := make([]byte, xskHeader+len(why))
	putHeader(b, kind, len(b))
	copy(b[xskHeader:], why)
	return b
}

// xskCountNames are what an xskCounts answer holds, 8 bytes each, in this order.
var xskCountNames = []string{"rx_dropped", "rx_invalid_descs", "tx_invalid_descs", "rx_ring_full", "rx_fill_ring_empty_descs", "tx_ring_empty_descs"}

// countsOf are the statistics of a queue's sockets by those names.
func (s *xskStats) countsOf() []uint64 {
	return []uint64{s.oversize.get() + s.wqeErr.get(), s.badFill.get(), s.badDescs.get(), s.ringFull.get(), s.allocErr.get(), s.txEmpty.get()}
}

// readMessage reads one message and the file descriptors that came with it, which
// are the caller's to close. It ends with io.EOF between two messages.
func readMessage(conn *net.UnixConn, most int) (kind int, b []byte, fds []int, err error) {
	head, oob := make([]byte, xskHeader), make([]byte, unix.CmsgSpace(4*max(most, 1)))
	defer func() {
		if err != nil {
			closeFDs(fds)
			fds = nil
		}
	}()
	for n := 0; n < xskHeader; {
		k, oobn, _, _, err := conn.ReadMsgUnix(head[n:], oob)
		if oobn > 0 {
			fds = append(fds, rightsIn(oob[:oobn])...)
		}
		if err != nil {
			return 0, nil, fds, err
		}
		if k == 0 && n == 0 {
			return 0, nil, fds, io.EOF
		}
		if k == 0 {
			return 0, nil, fds, io.ErrUnexpectedEOF
		}
		n += k
	}
	size := le.Uint32(head[8:])
	switch {
	case le.Uint32(head) != xskMagic:
		err = fmt.Errorf("%w: not a message of it", errXSKProtocol)
	case le.Uint16(head[4:]) != xskVersion:
		err = fmt.Errorf("%w: version %d, this is %d", errXSKProtocol, le.Uint16(head[4:]), xskVersion)
	case size < xskHeader || size > xskMessage || le.Uint32(head[12:]) != 0:
		err = fmt.Errorf("%w: a message of %d bytes", errXSKProtocol, size)
	case len(fds) > most:
		err = fmt.Errorf("%w: %d file descriptors", errXSKProtocol, len(fds))
	}
	if err != nil {
		return 0, nil, fds, err
	}
	b = append(head, make([]byte, size-xskHeader)...)
	if _, err = io.ReadFull(conn, b[xskHeader:]); err != nil {
		return 0, nil, fds, err
	}
	return int(le.Uint16(head[6:])), b, fds, nil
}

// rightsIn are the file descriptors in control messages.
func rightsIn(oob []byte) (fds []int) {
	list, _ := unix.ParseSocketControlMessage(oob)
	for i := range list {
		if got, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// xskPatience is how long a peer may take to read an answer.
const xskPatience = 5 * time.Second

// writeMessage sends b and passes fds with it.
func writeMessage(conn *net.UnixConn, b []byte, fds ...int) error {
	if err := conn.SetWriteDeadline(time.Now().Add(xskPatience)); err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	return err
}
