// Command xdptx attaches a small XDP program to an interface's driver and keeps
// it there until it is told to end. The program swaps the two MAC addresses of
// every frame and sends it back out of the port that it came in by (XDP_TX).
//
//	xdptx INTERFACE
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// instruction is one of the kernel's virtual machine: see its documentation of
// the eBPF instruction set, version 1.
type instruction struct {
	op       uint8
	dst, src uint8
	off      int16
	imm      int32
}

const (
	ldw   = 0x61 // 32-bit load
	ldh   = 0x69
	stw   = 0x63
	sth   = 0x6b
	movR  = 0xbf
	movI  = 0xb7
	addI  = 0x07
	jgtR  = 0x2d
	exit  = 0x95
	xdpTX = 3
	pass  = 2
)

// swap: r1 is the context {data, data_end}.
var swap = []instruction{
	{ldw, 2, 1, 0, 0},   // r2 = data
	{ldw, 3, 1, 4, 0},   // r3 = data_end
	{movR, 4, 2, 0, 0},  // r4 = r2
	{addI, 4, 0, 0, 14}, // r4 += 14
	{movI, 0, 0, 0, pass},
	{jgtR, 4, 3, 9, 0}, // to the exit: shorter than a header: leave it alone
	{ldw, 5, 2, 0, 0},  // destination
	{ldh, 6, 2, 4, 0},
	{ldw, 7, 2, 6, 0}, // source
	{ldh, 8, 2, 10, 0},
	{stw, 2, 7, 0, 0},
	{sth, 2, 8, 4, 0},
	{stw, 2, 5, 6, 0},
	{sth, 2, 6, 10, 0},
	{movI, 0, 0, 0, xdpTX},
	{exit, 0, 0, 0, 0},
}

func assemble(list []instruction) []byte {
	var b []byte
	for _, i := range list {
		b = append(b, i.op, i.dst|i.src<<4)
		b = binary.LittleEndian.AppendUint16(b, uint16(i.off))
		b = binary.LittleEndian.AppendUint32(b, uint32(i.imm))
	}
	return b
}

// bpf is the system call; attr is its argument, laid out by hand.
func bpf(cmd int, attr []byte) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(cmd), uintptr(unsafe.Pointer(&attr[0])), uintptr(len(attr)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func load(code []byte) (int, error) {
	license, log := []byte("GPL\x00"), make([]byte, 16<<10)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&code[0])
	pins.Pin(&license[0])
	pins.Pin(&log[0])
	attr := make([]byte, 48)
	le := binary.LittleEndian
	le.PutUint32(attr, unix.BPF_PROG_TYPE_XDP)
	le.PutUint32(attr[4:], uint32(len(code)/8))
	le.PutUint64(attr[8:], uint64(uintptr(unsafe.Pointer(&code[0]))))
	le.PutUint64(attr[16:], uint64(uintptr(unsafe.Pointer(&license[0]))))
	le.PutUint32(attr[24:], 1)
	le.PutUint32(attr[28:], uint32(len(log)))
	le.PutUint64(attr[32:], uint64(uintptr(unsafe.Pointer(&log[0]))))
	fd, err := bpf(unix.BPF_PROG_LOAD, attr)
	if err != nil {
		return -1, fmt.Errorf("loading the program: %w\n%s", err, unix.ByteSliceToString(log))
	}
	return fd, nil
}

// attach makes a link, which holds the program for as long as this process lives.
func attach(prog, ifindex int) error {
	const driverMode = 1 << 2
	attr := make([]byte, 48)
	le := binary.LittleEndian
	le.PutUint32(attr, uint32(prog))
	le.PutUint32(attr[4:], uint32(ifindex))
	le.PutUint32(attr[8:], unix.BPF_XDP)
	le.PutUint32(attr[12:], driverMode)
	if _, err := bpf(unix.BPF_LINK_CREATE, attr); err != nil {
		return fmt.Errorf("attaching to the driver: %w", err)
	}
	return nil
}

func run(name string) error {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	prog, err := load(assemble(swap))
	if err != nil {
		return err
	}
	if err := attach(prog, dev.Index); err != nil {
		return err
	}
	fmt.Println("attached")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: xdptx INTERFACE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "xdptx:", err)
		os.Exit(1)
	}
}
