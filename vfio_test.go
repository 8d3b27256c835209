package main

// vfio_test.go checks vfio.go on a fake sysfs tree (pci_test.go) and a fake kernel
// (vfiofake_test.go).

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// vfioTree is a machine with one function that is ready.
func vfioTree(t *testing.T, others ...fakeFunction) *fakeTree {
	return newTree(t, append(others, fakeFunction{addr: nic0, device: 0x1017, driver: "vfio-pci", group: "7"})...)
}

// openFake opens nic0 on a fake machine.
func openFake(t *testing.T, k *fakeKernel) (*vfioDevice, *vfioGroups) {
	t.Helper()
	gs := newVFIOGroups(k)
	v, err := gs.openFunction(vfioTree(t).fs, "03:00.0")
	require.NoError(t, err)
	return v, gs
}

// reserveMemory returns n bytes of address space that nothing ever touches.
func reserveMemory(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// The life of a function, from open to close, in the kernel's order.
func TestVFIOLife(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	require.Equal(t, nic0, v.name())
	require.Equal(t, "ConnectX-5", v.info.model.name)
	require.Len(t, v.bar0(), 1<<20)
	require.Equal(t, 64, v.vectors())
	require.Equal(t, []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}, v.iovaRanges())
	d := k.files[v.fd]
	require.Equal(t, uint16(commandMemory), d.command, "memory on, DMA off")

	mem := reserveMemory(t, 8<<20)
	require.NoError(t, v.mapDMA(mem[:4<<20], 1<<32))
	require.NoError(t, v.mapDMA(mem[4<<20:], 1<<32+4<<20))
	require.Equal(t, uint64(8<<20), gs.locked)
	require.NoError(t, v.setBusMaster(true))
	require.Equal(t, uint16(commandMemory|commandMaster), d.command)
	fds, err := v.enableVectors(3)
	require.NoError(t, err)
	require.Equal(t, fds, d.vectors)
	require.Equal(t, 1, k.count["3b6e"], "enabled in one go")

	require.NoError(t, v.setBusMaster(false))
	require.NoError(t, v.unmapDMA(1<<32, 4<<20))
	require.Equal(t, uint64(4<<20), gs.locked)
	require.NoError(t, v.setBusMaster(true))
	require.NoError(t, v.close())
	require.NoError(t, v.close())
	k.requireClean(t, gs)
	require.Equal(t, k.count["3b71"], k.count["3b72"], "every map has its unmap")

	for _, err := range []error{
		v.setBusMaster(true), v.reset(), v.mapDMA(mem, 1<<32), v.unmapDMA(1<<32, 4096),
	} {
		require.ErrorIs(t, err, errVFIOClosed)
	}
	_, err = v.enableVectors(1)
	require.ErrorIs(t, err, errVFIOClosed)
	k.requireClean(t, gs)
}

// wholeLife does everything once and reports the first failure.
func wholeLife(s sysfs, gs *vfioGroups, mem []byte) error {
	v, err := gs.openFunction(s, nic0)
	if err != nil {
		return err
	}
	use := func() error {
		if err := v.mapDMA(mem[:len(mem)/2], 1<<32); err != nil {
			return err
		}
		if err := v.mapDMA(mem[len(mem)/2:], 2<<32); err != nil {
			return err
		}
		if _, err := v.enableVectors(2); err != nil {
			return err
		}
		if _, err := v.enableVectors(4); err != nil {
			return err
		}
		if _, err := v.removalEvent(); err != nil {
			return err
		}
		if _, err := v.combining(); err != nil {
			return err
		}
		restore, err := v.combine(0x10)
		if err != nil {
			return err
		}
		if _, err := v.combine(0x11); err != nil { // left for close to take back
			return err
		}
		if err := restore(); err != nil {
			return err
		}
		if err := v.reset(); err != nil {
			return err
		}
		if err := v.setBusMaster(true); err != nil {
			return err
		}
		if err := v.setBusMaster(false); err != nil {
			return err
		}
		return v.unmapDMA(2<<32, uint64(len(mem)/2))
	}
	err = use()
	return joinLine(err, v.close())
}

// Whichever call fails, all that was opened is closed once, all that was mapped
// is gone, and the error is one line with the function's address.
func TestVFIOFailureAtEveryCall(t *testing.T) {
	ft, mem := vfioTree(t), reserveMemory(t, 8<<20)
	for at := 1; ; at++ {
		k := newFakeKernel()
		k.failAt = at
		gs := newVFIOGroups(k)
		err := wholeLife(ft.fs, gs, mem)
		k.requireClean(t, gs)
		if k.calls < at {
			require.NoError(t, err)
			require.Greater(t, at, 40)
			return
		}
		require.Error(t, err, "call %d", at)
		require.NotContains(t, err.Error(), "\n")
		if k.count["open container"] == 1 && k.count["close device"] == 1 {
			require.Contains(t, err.Error(), nic0)
		}
	}
}

// Each refusal names cause and remedy, and leaves nothing open.
func TestVFIOOpenErrors(t *testing.T) {
	sibling := fakeFunction{addr: nic1, device: 0x1017, driver: "mlx5_core", group: "7"}
	bridge := fakeFunction{addr: "0000:00:01.0", vendor: 0x8086, device: 1, class: 0x060400, driver: "pcieport", group: "7"}
	for _, c := range []struct {
		name   string
		others []fakeFunction
		change func(ft *fakeTree, k *fakeKernel)
		parts  []string
	}{
		{"not viable (A1)", []fakeFunction{sibling, bridge}, func(_ *fakeTree, k *fakeKernel) { k.notViable = true }, []string{"group 7", nic1 + " (mlx5_core)", "unbind"}},
		{"not viable, nobody to blame", []fakeFunction{bridge}, func(_ *fakeTree, k *fakeKernel) { k.notViable = true }, []string{"group 7 is not viable", "iommu_groups/7"}},
		{"found out late (A1)", []fakeFunction{sibling}, failWith("3b68", unix.EPERM), []string{nic1 + " (mlx5_core)"}},
		{"found out at the device (A1)", []fakeFunction{sibling}, failWith("3b6a", unix.EPERM), []string{nic1 + " (mlx5_core)"}},
		{"no container node", nil, failWith("open container", unix.ENOENT), []string{"vfio/vfio is missing", "modprobe vfio-pci"}},
		{"container not allowed", nil, failWith("open container", unix.EACCES), []string{"vfio/vfio", "run as root"}},
		{"no group node", nil, failWith("open group", unix.ENOENT), []string{"vfio/7 is missing"}},
		{"group not allowed", nil, failWith("open group", unix.EACCES), []string{"no permission", "vfio/7", "chown"}},
		{"group busy (A20)", nil, failWith("open group", unix.EBUSY), []string{"vfio/7 is already open", "fuser"}},
		{"not VFIO", nil, failWith("3b64", unix.ENOTTY), []string{"not VFIO's container"}},
		{"other version", nil, func(_ *fakeTree, k *fakeKernel) { k.version = 1 }, []string{"version 1"}},
		{"no type 1", nil, func(_ *fakeTree, k *fakeKernel) { k.noType1 = true }, []string{"modprobe vfio_iommu_type1"}},
		{"no status", nil, failWith("3b67", unix.EIO), []string{"status"}},
		{"no container for it", nil, failWith("3b68", unix.EINVAL), []string{"group 7", "container"}},
		{"no interrupt remapping", nil, failWith("3b66", unix.EPERM), []string{"interrupt remapping", "allow_unsafe_interrupts=1"}},
		{"no IOMMU in container", nil, failWith("3b66", unix.EINVAL), []string{"type 1", "dmesg"}},
		{"no IOMMU info", nil, failWith("3b70", unix.EINVAL), []string{"IOMMU"}},
		{"IOMMU info too long", nil, func(_ *fakeTree, k *fakeKernel) {
			k.iommu = append(k.iommu, make([]byte, maxIOMMUInfo)...)
			native.PutUint32(k.iommu, uint32(len(k.iommu)))
		}, []string{"makes no sense"}},
		{"VF token", nil, failWith("3b6a", unix.EACCES), []string{"VF token"}},
		{"binding lost (I7)", nil, failWith("3b6a", unix.ENODEV), []string{"lost its vfio-pci binding", "-bind"}},
		{"device busy", nil, failWith("3b6a", unix.EBUSY), []string{"already open"}},
		{"device broken", nil, failWith("3b6a", unix.EIO), []string{"dmesg"}},
		{"not PCI", nil, func(_ *fakeTree, k *fakeKernel) { k.deviceFlags = 0 }, []string{"not a PCI function"}},
		{"BAR too small", nil, func(_ *fakeTree, k *fakeKernel) { k.bar.size = minBAR0 - 4096 }, []string{"BAR0 too small", "61440", "65536", "BIOS"}},
		{"no BAR", nil, func(_ *fakeTree, k *fakeKernel) { k.bar.size = 0 }, []string{"BAR0 too small"}},
		{"huge BAR", nil, func(_ *fakeTree, k *fakeKernel) { k.bar.size = 1 << 63 }, []string{"BAR0 can't be mapped"}},
		{"BAR not mappable", nil, func(_ *fakeTree, k *fakeKernel) { k.bar.flags &^= regionMmap }, []string{"BAR0 can't be mapped"}},
		{"mmap fails", nil, failWith("mmap", unix.EINVAL), []string{"BAR0", "Linux 4.16"}},
		{"no answer", nil, func(_ *fakeTree, k *fakeKernel) { k.gone = true }, []string{"does not answer"}},
		{"DMA can't be stopped", nil, func(_ *fakeTree, k *fakeKernel) { k.sticky = true }, []string{"bus master false"}},
		{"no IOMMU", nil, func(ft *fakeTree, _ *fakeKernel) { ft.remove("sys/devices/pci0000:00/" + nic0 + "/iommu_group") }, []string{"no IOMMU", "intel_iommu=on", "amd_iommu=on", "VT-d"}},
		{"no-IOMMU (A7)", nil, func(ft *fakeTree, _ *fakeKernel) { ft.put("dev/vfio/noiommu-7", "") }, []string{"no-IOMMU mode", "move pages"}},
		{"kernel driver (I7)", nil, func(ft *fakeTree, _ *fakeKernel) { ft.setDriver(nic0, "mlx5_core") }, []string{"the driver is mlx5_core", "-bind"}},
		{"no driver", nil, func(ft *fakeTree, _ *fakeKernel) { ft.setDriver(nic0, "") }, []string{"the driver is -", "-bind"}},
		{"not there (A19)", nil, func(ft *fakeTree, _ *fakeKernel) { ft.drop(nic0) }, []string{"no PCI device"}},
		{"too few addresses", []fakeFunction{{addr: nic1, device: 0x1017, driver: "vfio-pci", group: "7"}}, func(_ *fakeTree, k *fakeKernel) {
			k.iommu = iommuAnswer([]iovaRange{{addressShare, 2*addressShare - 1}}, 9)
		}, []string{"no bus addresses left"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, ft := newFakeKernel(), vfioTree(t, c.others...)
			c.change(ft, k)
			gs := newVFIOGroups(k)
			_, err := gs.openFunction(ft.fs, nic0)
			oneLine(t, err, append(c.parts, nic0)...)
			require.NotErrorIs(t, err, errBadAddress)
			k.requireClean(t, gs)
		})
	}
}

func failWith(call string, err error) func(*fakeTree, *fakeKernel) {
	return func(_ *fakeTree, k *fakeKernel) { k.fail[call] = err }
}

// A sibling's driver is no reason when the kernel says the group is viable, and
// a group that is not viable is left before its device is touched (A1, A2).
func TestVFIOTrustsViableFlag(t *testing.T) {
	k := newFakeKernel()
	ft := vfioTree(t,
		fakeFunction{addr: "0000:00:01.0", vendor: 0x8086, device: 1, class: 0x060400, driver: "pcieport", group: "7"},
		fakeFunction{addr: nic1, device: 0x1017, driver: "new_driver_that_leaves_dma_alone", group: "7"})
	gs := newVFIOGroups(k)
	v, err := gs.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	require.NoError(t, v.close())
	k.requireClean(t, gs)

	k = newFakeKernel()
	k.notViable = true
	_, err = newVFIOGroups(k).openFunction(ft.fs, nic0)
	require.Error(t, err)
	require.Zero(t, k.count["3b6a"]+k.count["3b68"])
}

// A second process gets EBUSY explained; the first goes on (A20).
func TestVFIOSecondProcess(t *testing.T) {
	k, ft := newFakeKernel(), vfioTree(t)
	first, second := newVFIOGroups(k), newVFIOGroups(k)
	v, err := first.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	_, err = second.openFunction(ft.fs, nic0)
	oneLine(t, err, "already open", "another program")
	require.ErrorIs(t, err, unix.EBUSY)
	require.NoError(t, v.setBusMaster(true))
	require.NoError(t, v.close())
	v, err = second.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	require.NoError(t, v.close())
	k.requireClean(t, first)
	k.requireClean(t, second)
}

// Two functions of one group share its container and never a bus address.
func TestVFIOSharedGroup(t *testing.T) {
	k := newFakeKernel()
	ft := vfioTree(t, fakeFunction{addr: nic1, device: 0x1017, driver: "vfio-pci", group: "7"})
	gs := newVFIOGroups(k)
	a, err := gs.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	b, err := gs.openFunction(ft.fs, nic1)
	require.NoError(t, err)
	_, err = gs.openFunction(ft.fs, nic1)
	oneLine(t, err, nic1, "open already")
	require.Equal(t, 1, k.count["open group"])
	require.Equal(t, []iovaRange{{0, 0xfedfffff}, {0xfef00000, addressShare - 1}}, a.iovaRanges())
	require.Equal(t, []iovaRange{{addressShare, 2*addressShare - 1}}, b.iovaRanges())

	for _, v := range []*vfioDevice{a, b} {
		mem := newArena(v)
		for range 3 {
			_, err := mem.alloc(4096)
			require.NoError(t, err)
		}
		t.Cleanup(func() { _ = mem.close() })
	}
	require.Len(t, k.files[a.group.container].maps, 2)
	require.NoError(t, a.close())
	require.Len(t, k.files[b.group.container].maps, 1)
	require.NoError(t, b.setBusMaster(true))
	a, err = gs.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	require.Equal(t, uint64(addressShare-1), a.iovaRanges()[1].last, "its share is free again")
	require.NoError(t, b.close())
	require.NoError(t, a.close())
	k.requireClean(t, gs)
}

// Too little lockable memory is found before the kernel is asked (A4), counted
// over all functions of the process; the kernel's own ENOMEM says the same.
func TestVFIOMemlock(t *testing.T) {
	k := newFakeKernel()
	k.limit, k.limited = 4<<20, true
	v, gs := openFake(t, k)
	mem := reserveMemory(t, 64<<20)
	oneLine(t, v.mapDMA(mem, 1<<32), nic0, "65536 KiB", "4096 KiB", "RLIMIT_MEMLOCK", "ulimit -l", "CAP_IPC_LOCK")
	require.Zero(t, k.count["3b71"])
	require.NoError(t, v.mapDMA(mem[:3<<20], 1<<32))
	oneLine(t, v.mapDMA(mem[:2<<20], 2<<32), "5120 KiB", "4096 KiB")
	require.NoError(t, v.mapDMA(mem[:1<<20], 2<<32), "exactly the limit")
	require.NoError(t, v.unmapDMA(2<<32, 1<<20))
	k.fail["3b71"] = unix.ENOMEM
	oneLine(t, v.mapDMA(mem[:4096], 2<<32), "3076 KiB", "4096 KiB")
	k.limited = false
	oneLine(t, v.mapDMA(mem[:4096], 2<<32), "free memory")
	require.Equal(t, uint64(3<<20), gs.locked)
	delete(k.fail, "3b71")
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

// The container's limit of entries is named, whoever finds it (A5).
func TestVFIOEntryLimit(t *testing.T) {
	ft := vfioTree(t)
	ft.put("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "2\n")
	k := newFakeKernel()
	k.iommu = iommuAnswer([]iovaRange{{0, 1<<39 - 1}}, 2)
	gs := newVFIOGroups(k)
	v, err := gs.openFunction(ft.fs, nic0)
	require.NoError(t, err)
	mem := reserveMemory(t, 3<<20)
	require.NoError(t, v.mapDMA(mem[:1<<20], 1<<32))
	k.fail["3b71"] = unix.ENOSPC
	err = v.mapDMA(mem[1<<20:2<<20], 2<<32)
	oneLine(t, err, "dma_entry_limit of vfio_iommu_type1 is 2", "after 1 mappings")
	require.ErrorIs(t, err, unix.ENOSPC)
	delete(k.fail, "3b71")
	require.NoError(t, v.mapDMA(mem[1<<20:2<<20], 2<<32))
	oneLine(t, v.mapDMA(mem[2<<20:], 3<<32), "dma_entry_limit", "after 2 mappings")
	require.Equal(t, 3, k.count["3b71"], "the last one was not tried")
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

// Much memory in small pieces takes few mappings (A5).
func TestVFIOFewMappings(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	a := newArena(v)
	const total, piece = 64 << 20, 64 << 10
	for range total / piece {
		_, err := a.alloc(piece)
		require.NoError(t, err)
	}
	require.Equal(t, total/chunkSize, k.count["3b71"])
	require.NoError(t, a.close())
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

// Whole gigabytes are one mapping of the right size (A8).
func TestVFIOHugeMapping(t *testing.T) {
	for _, size := range []int{2 << 20, 3 << 30, 5 << 30} {
		k := newFakeKernel()
		v, gs := openFake(t, k)
		mem := reserveMemory(t, size)
		require.NoError(t, v.mapDMA(mem, 1<<32))
		require.Equal(t, 1, k.count["3b71"])
		require.Equal(t, map[uint64]fakeMap{1 << 32: {k.address(mem), uint64(size)}}, k.files[v.group.container].maps)
		require.NoError(t, v.unmapDMA(1<<32, uint64(size)))
		require.NoError(t, v.close())
		k.requireClean(t, gs)
	}
}

func TestVFIOBadMappings(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	mem := reserveMemory(t, 8<<20)
	for _, c := range []struct {
		mem  []byte
		iova uint64
		part string
	}{
		{nil, 1 << 32, "multiples of 4096"},
		{mem[:100], 1 << 32, "multiples of 4096"},
		{mem[1 : 1+4096], 1 << 32, "multiples of 4096"},
		{mem[:4096], 1<<32 + 8, "multiples of 4096"},
		{mem, 0xfee00000, "outside"},
		{mem, 0xfedff000, "outside"},
		{mem, 1<<39 - 4096, "outside"},
		{mem, 1<<64 - 4096, "outside"},
	} {
		oneLine(t, v.mapDMA(c.mem, c.iova), nic0, c.part)
	}
	require.Zero(t, k.count["3b71"])
	require.NoError(t, v.mapDMA(mem, 1<<32))
	oneLine(t, v.mapDMA(mem, 1<<32), "mapped already")
	for _, r := range []dmaRange{{1 << 32, 4096}, {1<<32 + 4096, 4096}, {1 << 33, 8 << 20}} {
		oneLine(t, v.unmapDMA(r.iova, r.size), "not mapped as a whole")
	}
	k.files[v.group.container].maps[1<<32] = fakeMap{1, 4096} // the kernel lost some
	oneLine(t, v.unmapDMA(1<<32, 8<<20), "0 of 8388608 bytes")
	k.files[v.group.container].maps[1<<32] = fakeMap{1, 8 << 20}
	require.NoError(t, v.unmapDMA(1<<32, 8<<20))
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

// An IOMMU with 64 KiB pages takes no less.
func TestVFIOLargeIOMMUPages(t *testing.T) {
	k := newFakeKernel()
	native.PutUint64(k.iommu[8:], 64<<10|512<<20)
	v, gs := openFake(t, k)
	mem := reserveMemory(t, 128<<10)
	oneLine(t, v.mapDMA(mem[:4096], 1<<32), "multiples of 65536")
	at := (64<<10 - int(k.address(mem)&(64<<10-1))) & (64<<10 - 1)
	require.NoError(t, v.mapDMA(mem[at:at+64<<10], 1<<32))
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

func TestVFIOVectors(t *testing.T) {
	k := newFakeKernel()
	k.vectors = 8
	v, gs := openFake(t, k)
	require.Equal(t, 8, v.vectors())
	for _, n := range []int{-1, 0, 9} {
		_, err := v.enableVectors(n)
		oneLine(t, err, nic0, "the function has 8", "fewer queues")
	}
	require.Zero(t, k.count["eventfd"])
	two, err := v.enableVectors(2)
	require.NoError(t, err)
	again, err := v.enableVectors(2)
	require.NoError(t, err)
	require.Equal(t, two, again)
	require.Equal(t, 1, k.count["3b6e"], "nothing to do")
	four, err := v.enableVectors(4)
	require.NoError(t, err)
	require.Equal(t, two, four[:2], "what was given out stays")
	require.Equal(t, four, k.files[v.fd].vectors)
	one, err := v.enableVectors(1)
	require.NoError(t, err)
	require.Equal(t, one, k.files[v.fd].vectors)

	k.vectorsLeft = 3
	_, err = v.enableVectors(6)
	oneLine(t, err, "3 interrupt vectors left", "6")
	require.Empty(t, k.files[v.fd].vectors)
	_, err = v.enableVectors(3)
	require.NoError(t, err, "fewer work")
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

func TestVFIOReset(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	require.NoError(t, v.reset())
	require.Equal(t, uint16(commandMemory), k.files[v.fd].command, "BAR0 answers, DMA is off")
	k.gone = true
	oneLine(t, v.setBusMaster(true), nic0, "does not answer")
	oneLine(t, v.close(), nic0, "does not answer")
	k.requireClean(t, gs)

	k = newFakeKernel()
	k.deviceFlags = deviceIsPCI
	v, gs = openFake(t, k)
	require.ErrorIs(t, v.reset(), errNoReset)
	require.Zero(t, k.count["3b6f"])
	require.NoError(t, v.close())
	k.requireClean(t, gs)
}

func TestVFIORemovalEvent(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	fd, err := v.removalEvent()
	require.NoError(t, err)
	require.Equal(t, fd, k.files[v.fd].request)
	again, err := v.removalEvent()
	require.NoError(t, err)
	require.Equal(t, fd, again)
	for _, asks := range []bool{false, true, true} { // the answer stays
		if asks {
			k.files[fd].rung = true
		}
		wanted, err := v.wantedBack()
		require.NoError(t, err)
		require.Equal(t, asks, wanted)
	}
	require.NoError(t, v.close())
	_, err = v.wantedBack()
	require.Error(t, err)
	k.requireClean(t, gs)
}

// Control-plane calls from several goroutines while the function is closed.
func TestVFIOConcurrentClose(t *testing.T) {
	k := newFakeKernel()
	v, gs := openFake(t, k)
	mem := reserveMemory(t, 4<<20)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			iova := uint64(i+1) << 32
			for range 50 {
				if err := v.mapDMA(mem, iova); err == nil {
					_ = v.unmapDMA(iova, uint64(len(mem)))
				}
				_, _ = v.enableVectors(1 + i)
			}
		})
	}
	wg.Go(func() { require.NoError(t, v.close()) })
	wg.Wait()
	k.requireClean(t, gs)
}

func TestShareRanges(t *testing.T) {
	all := []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}
	var covered uint64
	for i := range 8 {
		for _, r := range shareRanges(all, i) {
			covered += r.last - r.first + 1
		}
	}
	require.Equal(t, uint64(1<<39-1<<20), covered)
	require.Empty(t, shareRanges(all, 8))
}

// The way main takes, as far as it goes on any machine.
func TestOpenVFIOErrors(t *testing.T) {
	d, err := openVFIO(realSysfs(), "03:00")
	require.ErrorIs(t, err, errBadAddress)
	require.Nil(t, d)
	d, err = openVFIO(vfioTree(t).fs, nic0) // a plain file is no container
	oneLine(t, err, nic0, "not VFIO's container")
	require.ErrorIs(t, err, unix.ENOTTY)
	require.Nil(t, d)
	require.False(t, errors.Is(err, errBadAddress))
}
