package vfiouser

// This file owns the wire format of the protocol: message numbers, layouts and
// the framing of one message with its file descriptors. It decides nothing
// about devices. All integers are little endian; the source is the vfio-user
// specification, version 0, and VFIO's own structures that it embeds.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Commands, sent by the client.
const (
	cmdVersion     = 1
	cmdDMAMap      = 2
	cmdDMAUnmap    = 3
	cmdDeviceInfo  = 4
	cmdRegionInfo  = 5
	cmdIRQInfo     = 7
	cmdSetIRQs     = 8
	cmdRegionRead  = 9
	cmdRegionWrite = 10
	cmdReset       = 13
)

// Header flags: the low four bits are the message type.
const (
	typeMask    = 0xf
	typeCommand = 0
	typeReply   = 1
	flagNoReply = 1 << 4
	flagError   = 1 << 5
)

// Regions and interrupt kinds, numbered as VFIO numbers those of a PCI device.
const (
	regionBAR0   = 0
	regionConfig = 7
	numRegions   = 9

	irqPin   = 0
	irqMSIX  = 2
	irqError = 3
	numIRQs  = 5
)

// Limits, told to the client in VERSION where it has a name for them.
const (
	headerSize  = 16
	maxFDs      = 16      // file descriptors in one message
	maxTransfer = 1 << 20 // bytes of one REGION_READ or REGION_WRITE
	maxMessage  = headerSize + 16 + maxTransfer
	maxRanges   = 65535 // DMA ranges
	pageSize    = 4096
)

// replyPatience is how long a client may leave a reply unread.
const replyPatience = 3 * time.Second

var le = binary.LittleEndian

type header struct {
	id    uint16
	cmd   uint16
	size  uint32 // of the whole message
	flags uint32
	errno uint32
}

func (h header) put(b []byte) {
	le.PutUint16(b, h.id)
	le.PutUint16(b[2:], h.cmd)
	le.PutUint32(b[4:], h.size)
	le.PutUint32(b[8:], h.flags)
	le.PutUint32(b[12:], h.errno)
}

func readHeader(b []byte) header {
	return header{
		id: le.Uint16(b), cmd: le.Uint16(b[2:]), size: le.Uint32(b[4:]),
		flags: le.Uint32(b[8:]), errno: le.Uint32(b[12:]),
	}
}

// message is one received command. Its bytes are reused by the next one. What
// is still in fds when it has been handled is closed; whoever keeps a file
// descriptor takes it out with takeFD.
type message struct {
	header
	body []byte
	fds  []int
}

func (m *message) takeFD(i int) int {
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

func (m *message) closeFDs() {
	for _, fd := range m.fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	m.fds = m.fds[:0]
}

// channel frames messages on one connection. It is used by one goroutine.
type channel struct {
	conn *net.UnixConn
	in   []byte // grows to the largest message seen, at most maxMessage
	out  []byte
	oob  []byte
	msg  message
}

func newChannel(conn *net.UnixConn) *channel {
	return &channel{conn: conn, in: make([]byte, 4096), out: make([]byte, 0, 4096), oob: make([]byte, unix.CmsgSpace(4*maxFDs))}
}

// errRubbish marks what no reply can mend: the stream has lost its framing.
var errRubbish = errors.New("vfio-user: the client broke the protocol")

// next reads one message. The result is valid until the next call; its file
// descriptors are the caller's to close. On error none are left open.
func (c *channel) next() (*message, error) {
	c.msg.fds = c.msg.fds[:0]
	var head [headerSize]byte
	for n := 0; n < headerSize; {
		k, err := c.receive(head[n:])
		if err != nil {
			c.msg.closeFDs()
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		n += k
	}
	m := &c.msg
	m.header = readHeader(head[:])
	if m.size < headerSize || m.size > maxMessage {
		m.closeFDs()
		return nil, fmt.Errorf("%w: a message of %d bytes", errRubbish, m.size)
	}
	if err := c.readBody(int(m.size) - headerSize); err != nil {
		m.closeFDs()
		return nil, err
	}
	return m, nil
}

func (c *channel) readBody(n int) error {
	if n > len(c.in) {
		c.in = make([]byte, n)
	}
	c.msg.body = c.in[:n]
	// A plain read makes the kernel close descriptors that come late: they
	// belong to the first byte of a message.
	_, err := io.ReadFull(c.conn, c.msg.body)
	if errors.Is(err, io.EOF) && n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// receive reads some bytes of a header and the descriptors that came with them.
func (c *channel) receive(p []byte) (int, error) {
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(p, c.oob)
	if oobn > 0 {
		c.collect(c.oob[:oobn])
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	if flags&unix.MSG_CTRUNC != 0 || len(c.msg.fds) > maxFDs {
		return 0, fmt.Errorf("%w: more than %d file descriptors in one message", errRubbish, maxFDs)
	}
	return n, nil
}

func (c *channel) collect(oob []byte) {
	cms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range cms {
		fds, err := unix.ParseUnixRights(&cms[i])
		if err == nil {
			c.msg.fds = append(c.msg.fds, fds...)
		}
	}
}

// reply answers m with body, or with an error when errno is not 0, and passes
// fd unless it is negative.
func (c *channel) reply(m *message, errno unix.Errno, body []byte, fd int) error {
	h := header{id: m.id, cmd: m.cmd, flags: typeReply}
	if errno != 0 {
		h.flags |= flagError
		h.errno = uint32(errno)
		body, fd = nil, -1
	}
	h.size = uint32(headerSize + len(body))
	c.out = append(c.out[:0], make([]byte, headerSize)...)
	h.put(c.out)
	c.out = append(c.out, body...)
	if err := c.conn.SetWriteDeadline(time.Now().Add(replyPatience)); err != nil {
		return err
	}
	if fd < 0 {
		_, err := c.conn.Write(c.out)
		return err
	}
	return c.writeWith(fd)
}

func (c *channel) writeWith(fd int) error {
	n, _, err := c.conn.WriteMsgUnix(c.out, unix.UnixRights(fd), nil)
	if err != nil || n == len(c.out) {
		return err
	}
	_, err = c.conn.Write(c.out[n:])
	return err
}
