package main

// cpio.go owns the archive format of an initramfs: "newc" of cpio, as the kernel's
// driver-api/early-userspace/buffer-format describes it. Names have no leading
// slash; a folder comes before what lies in it.

import (
	"bytes"
	"fmt"
)

// archive is an initramfs in the making. Its zero value is empty.
type archive struct {
	buf   bytes.Buffer
	inode int
}

const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeChar = 0o020000
)

func (a *archive) dir(name string) { a.entry(name, typeDir|0o755, nil, 0, 0) }

func (a *archive) file(name string, mode uint32, data []byte) {
	a.entry(name, typeFile|mode, data, 0, 0)
}

func (a *archive) char(name string, mode uint32, major, minor int) {
	a.entry(name, typeChar|mode, nil, major, minor)
}

// entry writes a header of 13 fields in hexadecimal, the name and the data, each
// padded to 4 bytes. Owner, time and device are 0.
func (a *archive) entry(name string, mode uint32, data []byte, major, minor int) {
	a.inode++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad(4)
	a.buf.Write(data)
	a.pad(4)
}

func (a *archive) pad(to int) {
	for a.buf.Len()%to != 0 {
		a.buf.WriteByte(0)
	}
}

// close ends the archive and returns it. Nothing may be added after.
func (a *archive) close() []byte {
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	a.pad(512)
	return a.buf.Bytes()
}
