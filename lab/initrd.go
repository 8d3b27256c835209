package main

// This file owns the small archive that turns the lab's base image into one
// guest's: the kernel takes several initramfs archives in a row. The source is
// the "newc" format of cpio, as the kernel documents it.

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// archive is an initramfs in the making.
type archive struct {
	buf bytes.Buffer
	ino int
}

const (
	modeFile = 0o100755
	modeDir  = 0o040755
)

// add writes one entry. Names are relative, without a leading slash.
func (a *archive) add(name string, mode uint32, data []byte) {
	a.ino++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// close ends the archive and returns it.
func (a *archive) close() []byte {
	a.add("TRAILER!!!", 0, nil)
	for a.buf.Len()%512 != 0 {
		a.buf.WriteByte(0)
	}
	return a.buf.Bytes()
}

// initrd writes path: base, and behind it the files.
func initrd(path, base string, files map[string][]byte) error {
	var a archive
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	made := map[string]bool{".": true}
	for _, n := range names {
		a.parents(n, made)
		a.add(n, modeFile, files[n])
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	if err := appendFile(out, base); err != nil {
		return err
	}
	if _, err := out.Write(a.close()); err != nil {
		return err
	}
	return out.Close()
}

// parents adds the folders above name that are not there yet.
func (a *archive) parents(name string, made map[string]bool) {
	dir := filepath.Dir(name)
	if made[dir] {
		return
	}
	a.parents(dir, made)
	made[dir] = true
	a.add(dir, modeDir, nil)
}

func appendFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}
