package main

// mtrr_test.go checks memory type registers on the fake kernel: that a page and no
// other gets one, that what cannot work is refused before it is tried, and that
// nothing stays behind.

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// barPage is the first page of BAR0 on the fake machine (pci_test.go).
const barPage = 0xfb000

func TestCombinePages(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	pages, err := v.combining()
	require.NoError(t, err)
	require.Equal(t, 6, pages)
	first, err := v.combine(0x10)
	require.NoError(t, err)
	second, err := v.combine(0xff)
	require.NoError(t, err)
	require.Equal(t, []mtrrRange{{barPage + 0x10, 1, 1}, {barPage + 0xff, 1, 1}}, k.types[1:3])
	pages, err = v.combining()
	require.NoError(t, err, "our own are not in the way")
	require.Equal(t, 4, pages)
	require.NoError(t, second())
	require.Equal(t, mtrrRange{}, k.types[2])
	oneLine(t, second(), nic0, "can't be freed")
	for _, n := range []int{-1, 0x100} {
		_, err = v.combine(n)
		oneLine(t, err, nic0, "no page")
	}
	require.Equal(t, 1, k.count["open types"], "opened once")
	require.NoError(t, v.close(), "takes back the rest")
	k.requireClean(t, gs)
	require.ErrorIs(t, first(), errVFIOClosed)
	_, err = v.combining()
	require.ErrorIs(t, err, errVFIOClosed)
}

// A process that dies leaves no register behind: its file is closed.
func TestCombineEndsWithTheFile(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	_, err := v.combine(0x10)
	require.NoError(t, err)
	require.NoError(t, k.close(v.types.fd))
	require.Equal(t, mtrrRange{}, k.types[1])
	v.undo.steps = v.undo.steps[:len(v.undo.steps)-1]
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

// Each refusal is one line with the reason, and leaves nothing.
func TestCombineRefusals(t *testing.T) {
	cover := func(r mtrrRange) func(*fakeTree, *fakeKernel) {
		return func(_ *fakeTree, k *fakeKernel) { k.types[5] = r }
	}
	resource := func(text string) func(*fakeTree, *fakeKernel) {
		return func(ft *fakeTree, _ *fakeKernel) { ft.put("sys/devices/pci0000:00/"+nic0+"/resource", text) }
	}
	for _, c := range []struct {
		name   string
		change func(*fakeTree, *fakeKernel)
		parts  []string
	}{
		{"no registers", func(_ *fakeTree, k *fakeKernel) { k.types = nil }, []string{"there is no", "proc/mtrr", "x86", "CONFIG_MTRR"}},
		{"not allowed", failWith("open types", unix.EPERM), []string{"CAP_SYS_ADMIN"}},
		{"not allowed at all", failWith("open types", unix.EACCES), []string{"run as root"}},
		{"off", failWith("open types", unix.EIO), []string{"leaves the memory type registers alone"}},
		{"off otherwise", failWith("open types", unix.ENXIO), []string{"leaves the memory type registers alone"}},
		{"broken", failWith("open types", unix.EMFILE), []string{"too many open files"}},
		{"not readable", failWith("c0184d08", unix.EIO), []string{"register 0 can't be read"}},
		{"none free", func(_ *fakeTree, k *fakeKernel) { k.types = k.types[:1] }, []string{"no memory type register is free"}},
		{"uncached by firmware", cover(mtrrRange{barPage - 0x1000, 0x8000, 0}), []string{"register 5", "as uncachable", "firmware"}},
		{"uncached in part", cover(mtrrRange{barPage + 0xff, 1, 0}), []string{"register 5", "as uncachable"}},
		{"combining as a whole", cover(mtrrRange{barPage, 0x100, 1}), []string{"register 5", "as write-combining"}},
		{"of a strange type", cover(mtrrRange{barPage, 1, 3}), []string{"register 5", "as type 3"}},
		{"no resource", func(ft *fakeTree, _ *fakeKernel) { ft.remove("sys/devices/pci0000:00/" + nic0 + "/resource") }, []string{"resource", "no such file"}},
		{"empty resource", resource(""), []string{"resource", "address range"}},
		{"senseless resource", resource("0xfb000000 tomorrow 0\n"), []string{"resource", "address range"}},
		{"no BAR", resource("0x0 0x0 0x0\n"), []string{"resource", "VFIO has 1048576 bytes"}},
		{"another BAR", resource("0xfb000000 0xfb1fffff 0x0\n"), []string{"resource", "VFIO has 1048576 bytes"}},
		{"a crooked BAR", resource("0xfb000800 0xfb1007ff 0x0\n"), []string{"resource", "VFIO has 1048576 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, ft := newFakeKernel(), vfioTree(t)
			gs := newVFIOGroups(k)
			v, err := gs.openFunction(ft.fs, nic0)
			require.NoError(t, err)
			c.change(ft, k)
			pages, err := v.combining()
			require.Zero(t, pages)
			oneLine(t, err, append(c.parts, nic0)...)
			require.Zero(t, k.count["40104d05"], "nothing was tried")
			require.NoError(t, v.close())
			k.requireClean(t, gs)
		})
	}
}

// What the kernel refuses, or takes without keeping it, is told.
func TestCombineFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fakeTree, *fakeKernel)
		parts  []string
	}{
		{"another type there", func(_ *fakeTree, k *fakeKernel) { k.types[5] = mtrrRange{barPage, 0x100, 6} }, []string{"page 0xfb010", "invalid argument"}},
		{"none free", func(_ *fakeTree, k *fakeKernel) { k.types = k.types[:1] }, []string{"no memory type register is free", "fewer queues"}},
		{"not supported", failWith("40104d05", unix.ENOSYS), []string{"page 0xfb010"}},
		{"not kept", func(_ *fakeTree, k *fakeKernel) { k.lazy = true }, []string{"does not hold what was put in"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, ft := newFakeKernel(), vfioTree(t)
			gs := newVFIOGroups(k)
			v, err := gs.openFunction(ft.fs, nic0)
			require.NoError(t, err)
			c.change(ft, k)
			restore, err := v.combine(0x10)
			oneLine(t, err, append(c.parts, nic0)...)
			require.Nil(t, restore)
			require.NoError(t, v.close())
			k.requireClean(t, gs)
		})
	}
}
