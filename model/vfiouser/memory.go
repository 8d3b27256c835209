package vfiouser

// This file owns the client's memory while it is lent: the files behind it,
// each mapped once, and the ranges of bus addresses that are slices of them.
// It does not read or write any of it.

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// fileKey tells memory files apart.
type fileKey struct{ dev, ino uint64 }

// lentFile is one memory file, mapped whole.
type lentFile struct {
	key      fileKey
	mem      []byte
	writable bool
	refs     int // ranges that are slices of it
}

// span is one DMA range. A range that came without a file (the client's own
// device memory) has none: the device can't reach it.
type span struct {
	iova, size uint64
	file       *lentFile
}

// memory is what one client lent.
type memory struct {
	spans []span // by address, never overlapping
	files map[fileKey]*lentFile
}

// rangeFault says which errno a refused range is answered with.
func rangeFault(iova, size uint64) error {
	if size == 0 || iova%pageSize != 0 || size%pageSize != 0 || iova+size-1 < iova {
		return unix.EINVAL
	}
	return nil
}

// find is the place of the first span that ends behind iova.
func (m *memory) find(iova uint64) int {
	i, _ := slices.BinarySearchFunc(m.spans, iova, func(s span, a uint64) int {
		if s.iova+s.size-1 < a {
			return -1
		}
		return 1
	})
	return i
}

// place checks a new range and returns its index among the spans.
func (m *memory) place(iova, size uint64) (int, error) {
	if err := rangeFault(iova, size); err != nil {
		return 0, err
	}
	if len(m.spans) >= maxRanges {
		return 0, unix.ENOSPC
	}
	i := m.find(iova)
	if i < len(m.spans) && m.spans[i].iova <= iova+size-1 {
		return 0, unix.EEXIST
	}
	return i, nil
}

// lend takes a file's bytes at offset as a DMA range and hands them to dev.
// fd stays the caller's.
func (m *memory) lend(dev Device, fd int, offset, iova, size uint64, writable bool) error {
	i, err := m.place(iova, size)
	if err != nil {
		return err
	}
	if fd < 0 {
		m.spans = slices.Insert(m.spans, i, span{iova: iova, size: size})
		return nil
	}
	f, err := m.open(fd, writable)
	if err != nil {
		return err
	}
	if offset%pageSize != 0 || size > uint64(len(f.mem)) || offset > uint64(len(f.mem))-size {
		m.release(f)
		return unix.EINVAL
	}
	end := offset + size
	if err := dev.MapDMA(iova, f.mem[offset:end:end], writable); err != nil {
		m.release(f)
		return errors.Join(unix.EINVAL, err)
	}
	m.spans = slices.Insert(m.spans, i, span{iova: iova, size: size, file: f})
	return nil
}

// open maps the file behind fd, or finds it mapped, and takes a reference.
func (m *memory) open(fd int, writable bool) (*lentFile, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, unix.EBADF
	}
	key := fileKey{dev: uint64(st.Dev), ino: st.Ino}
	if f := m.files[key]; f != nil && int64(len(f.mem)) == st.Size && (f.writable || !writable) {
		f.refs++
		return f, nil
	} else if f != nil {
		return nil, unix.EINVAL
	}
	if st.Size <= 0 || int64(int(st.Size)) != st.Size {
		return nil, unix.EINVAL
	}
	if !sealedAgainstShrinking(fd) {
		return nil, fmt.Errorf("%w: memory must be a memfd that can be sealed against shrinking", unix.EPERM)
	}
	mem, canWrite, err := mapFile(fd, int(st.Size), writable)
	if err != nil {
		return nil, err
	}
	f := &lentFile{key: key, mem: mem, writable: canWrite, refs: 1}
	if m.files == nil {
		m.files = make(map[fileKey]*lentFile)
	}
	m.files[key] = f
	return f, nil
}

// mapFile maps a whole file, writable where it lets us: later ranges of the
// same file may need it even if this one does not.
func mapFile(fd, size int, writable bool) (mem []byte, canWrite bool, err error) {
	mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		return mem, true, nil
	}
	if writable {
		return nil, false, err
	}
	mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return mem, false, err
}

// release gives one reference back; the last one unmaps the file.
func (m *memory) release(f *lentFile) {
	f.refs--
	if f.refs > 0 {
		return
	}
	delete(m.files, f.key)
	_ = unix.Munmap(f.mem)
}

// takeBack ends the ranges inside [iova, iova+size). A range that would be
// cut in two stops it before anything is done, as in VFIO.
func (m *memory) takeBack(dev Device, iova, size uint64) error {
	if err := rangeFault(iova, size); err != nil {
		return err
	}
	last := iova + size - 1
	i := m.find(iova)
	j := i
	for ; j < len(m.spans) && m.spans[j].iova <= last; j++ {
		if s := m.spans[j]; s.iova < iova || s.iova+s.size-1 > last {
			return unix.EINVAL
		}
	}
	var failed error
	for _, s := range m.spans[i:j] {
		if s.file == nil {
			continue
		}
		if err := dev.UnmapDMA(s.iova, s.size); err != nil {
			failed = errors.Join(failed, unix.EINVAL, err)
		}
		m.release(s.file)
	}
	m.spans = slices.Delete(m.spans, i, j)
	return failed
}

// drop takes everything back at once.
func (m *memory) drop(dev Device) {
	dev.UnmapAllDMA()
	for _, f := range m.files {
		_ = unix.Munmap(f.mem)
	}
	m.files, m.spans = nil, nil
}
