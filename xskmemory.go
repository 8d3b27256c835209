package main

// xskmemory.go owns how much memory the clients of -xsk-listen may have together. It
// does not own that memory (umem.go) nor who asks for it (xskserve.go).

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// xskMemoryShare is the part of the machine's memory that sockets of other processes
// may have: one in so many.
const xskMemoryShare = 4

// memoryLimit is what may be taken, and what is. Any goroutine may use it.
type memoryLimit struct {
	mu    sync.Mutex
	most  int
	taken int
}

// take asks for n bytes; what is refused is not taken.
func (l *memoryLimit) take(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.most-l.taken {
		return wishf("a socket of %d MiB: of the %d MiB that all may have together (a quarter of this machine's memory) %d MiB are taken: fewer or smaller frames (-xsk-frames, -xsk-frame)",
			n>>20, l.most>>20, l.taken>>20)
	}
	l.taken += n
	return nil
}

// give gives back what was taken.
func (l *memoryLimit) give(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken -= n
}

// machineMemory is the memory that we may use, in bytes: the machine's, or what the
// control group allows where that is less. cgroup is /sys/fs/cgroup.
func machineMemory(cgroup string) int {
	most := math.MaxInt
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err == nil {
		most = int(uint64(s.Totalram) * uint64(s.Unit))
	}
	b, err := os.ReadFile(filepath.Join(cgroup, "memory.max"))
	if err != nil {
		return most // no such group, or not limited in this way
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
		most = min(most, n)
	}
	return most
}
