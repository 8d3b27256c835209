package main

// pci_test.go checks discovery and binding on a sysfs tree made of plain files,
// whose bind and unbind attributes behave as the kernel's do.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeTree is a machine's sysfs and /dev below a temporary directory.
type fakeTree struct {
	t      *testing.T
	root   string
	fs     sysfs
	writes []string           // "driver_override 0000:03:00.0 vfio-pci", in order
	fail   map[string][]error // what the next writes to "vfio-pci/bind" give
	failAt int                // the write with this number gives EIO
	slept  time.Duration
}

// fakeFunction is one PCI function of the tree.
type fakeFunction struct {
	addr           string
	vendor, device uint16
	class          uint32 // 0 is Ethernet
	driver, group  string
	numa, vfs      string
}

func newTree(t *testing.T, functions ...fakeFunction) *fakeTree {
	ft := &fakeTree{t: t, root: t.TempDir(), fail: map[string][]error{}}
	ft.fs = sysfs{sys: filepath.Join(ft.root, "sys"), dev: filepath.Join(ft.root, "dev"), proc: filepath.Join(ft.root, "proc"), write: ft.write, sleep: func(d time.Duration) { ft.slept += d }}
	ft.mkdir("sys/bus/pci/devices")
	ft.put("dev/vfio/vfio", "")
	ft.mkdir("sys/module/vfio_iommu_type1")
	for _, d := range []string{"vfio-pci", "mlx5_core", "pcieport"} {
		ft.addDriver(d)
	}
	for _, f := range functions {
		ft.add(f)
	}
	return ft
}

func (ft *fakeTree) path(p string) string { return filepath.Join(ft.root, p) }
func (ft *fakeTree) mkdir(p string)       { require.NoError(ft.t, os.MkdirAll(ft.path(p), 0o755)) }
func (ft *fakeTree) put(p, text string) {
	ft.mkdir(filepath.Dir(p))
	require.NoError(ft.t, os.WriteFile(ft.path(p), []byte(text), 0o644))
}
func (ft *fakeTree) link(p, to string) {
	ft.mkdir(filepath.Dir(p))
	require.NoError(ft.t, os.Symlink(to, ft.path(p)))
}
func (ft *fakeTree) remove(p string) { require.NoError(ft.t, os.RemoveAll(ft.path(p))) }
func (ft *fakeTree) addDriver(d string) {
	ft.put("sys/bus/pci/drivers/"+d+"/bind", "")
	ft.put("sys/bus/pci/drivers/"+d+"/unbind", "")
}

func (ft *fakeTree) add(f fakeFunction) {
	if f.vendor == 0 {
		f.vendor = vendorMellanox
	}
	if f.class == 0 {
		f.class = 0x020000
	}
	if f.numa == "" {
		f.numa = "-1"
	}
	dir := "sys/devices/pci0000:00/" + f.addr
	ft.put(dir+"/vendor", fmt.Sprintf("0x%04x\n", f.vendor))
	ft.put(dir+"/device", fmt.Sprintf("0x%04x\n", f.device))
	ft.put(dir+"/resource", "0x00000000fb000000 0x00000000fb0fffff 0x000000000014220c\n0x0000000000000000 0x0000000000000000 0x0000000000000000\n")
	ft.put(dir+"/class", fmt.Sprintf("0x%06x\n", f.class))
	ft.put(dir+"/numa_node", f.numa+"\n")
	ft.put(dir+"/driver_override", "(null)\n")
	if f.vfs != "" {
		ft.put(dir+"/sriov_numvfs", f.vfs+"\n")
	}
	ft.link("sys/bus/pci/devices/"+f.addr, "../../../devices/pci0000:00/"+f.addr)
	if f.driver != "" {
		ft.addDriver(f.driver)
		ft.setDriver(f.addr, f.driver)
	}
	if f.group != "" {
		ft.link(dir+"/iommu_group", "../../../kernel/iommu_groups/"+f.group)
		ft.link("sys/kernel/iommu_groups/"+f.group+"/devices/"+f.addr, "../../../../devices/pci0000:00/"+f.addr)
		if isVFIODriver(f.driver) {
			ft.put("dev/vfio/"+f.group, "")
		}
	}
}

// drop takes a function out, as when virtual functions are switched off.
func (ft *fakeTree) drop(addr string) {
	ft.remove("sys/bus/pci/devices/" + addr)
	ft.remove("sys/devices/pci0000:00/" + addr)
}

func (ft *fakeTree) driver(addr string) string { return linkName(ft.fs.device(addr, "driver")) }
func (ft *fakeTree) setDriver(addr, driver string) {
	p := "sys/devices/pci0000:00/" + addr + "/driver"
	ft.remove(p)
	if driver != "" {
		ft.link(p, "../../../bus/pci/drivers/"+driver)
	}
}

// write is what the kernel does with a write to an attribute.
func (ft *fakeTree) write(path, text string) error {
	attr, owner := filepath.Base(path), filepath.Base(filepath.Dir(path))
	ft.writes = append(ft.writes, strings.TrimSpace(owner+"/"+attr+" "+strings.TrimSpace(text)))
	bad := func(err error) error { return &fs.PathError{Op: "write", Path: path, Err: err} }
	if len(ft.writes) == ft.failAt {
		return bad(unix.EIO)
	}
	if list := ft.fail[owner+"/"+attr]; len(list) > 0 {
		ft.fail[owner+"/"+attr] = list[1:]
		if list[0] != nil {
			return bad(list[0])
		}
	}
	if _, err := os.Stat(path); err != nil {
		return bad(unix.ENOENT)
	}
	if attr == "driver_override" {
		if text = strings.TrimSpace(text); text == "" {
			text = "(null)"
		}
		return os.WriteFile(path, []byte(text+"\n"), 0o644)
	}
	now, override := ft.driver(text), ft.fs.readOverride(text)
	switch attr {
	case "unbind":
		if now != owner {
			return bad(unix.ENODEV)
		}
		ft.setDriver(text, "")
	case "bind":
		if now != "" {
			return bad(unix.EBUSY)
		}
		if override != "" && override != owner || owner == vfioPCI && override != owner {
			return bad(unix.ENODEV)
		}
		ft.setDriver(text, owner)
	}
	return nil
}

// oneLine checks an error for form and content.
func oneLine(t *testing.T, err error, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	for _, p := range parts {
		require.Contains(t, err.Error(), p)
	}
}

const (
	nic0 = "0000:03:00.0"
	nic1 = "0000:03:00.1"
)

func TestParsePCIAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:03:00.0": "0000:03:00.0", "03:00.0": "0000:03:00.0", "0000:AF:1f.7": "0000:af:1f.7",
		"10000:01:00.0": "10000:01:00.0", "00010000:01:00.0": "10000:01:00.0",
	} {
		got, err := parsePCIAddress(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, in := range []string{"", "3", "eth0", "03:00", "03:00.8", "03:20.0", "3:0.0", "+3:00.0", "000:03:00.0", "0000:03:00.0\n",
		"0000:03:00.00", "0000:03:00.0:1", "../../etc:03:00.0", "000000000:03:00.0", "0000:0x:00.0", "0000:03:-1.0", "0000:03:00.g"} {
		_, err := parsePCIAddress(in)
		require.ErrorIs(t, err, errBadAddress, "%q", in)
		oneLine(t, err)
	}
}

// What is not ours gets one line that says so (A19).
func TestFindFunctionErrors(t *testing.T) {
	ft := newTree(t,
		fakeFunction{addr: nic0, device: 0x1003, driver: "mlx4_core", group: "1"},
		fakeFunction{addr: "0000:05:00.0", vendor: 0x8086, device: 0x1572, driver: "i40e", group: "2"},
		fakeFunction{addr: "0000:06:00.0", device: 0x1017})
	ft.put("sys/devices/pci0000:00/0000:06:00.0/device", "what?\n")
	for addr, parts := range map[string][]string{
		nic0:           {nic0, "15b3:1003", "not supported", "ConnectX-4"},
		"05:00.0":      {"0000:05:00.0", "vendor 8086", "-list"},
		"07:00.0":      {"0000:07:00.0", "no PCI device", "-list"},
		"0000:06:00.0": {"0000:06:00.0", "no number"},
		"nonsense":     {"nonsense", "0000:03:00.0 or 03:00.0"},
	} {
		_, err := findFunction(ft.fs, addr)
		oneLine(t, err, parts...)
		require.Equal(t, addr == "nonsense", errors.Is(err, errBadAddress))
	}
}

// Every model of the table is found under its id, virtual functions marked.
func TestFindEveryModel(t *testing.T) {
	for _, m := range models {
		ft := newTree(t, fakeFunction{addr: nic0, device: m.device, group: "1"})
		f, err := findFunction(ft.fs, "03:00.0")
		require.NoError(t, err)
		require.Equal(t, m, f.model)
		require.Equal(t, m.vf, strings.HasSuffix(f.title(), " VF"))
	}
}

// Lists of 0, 1 and 3 functions (A22), compared by their columns.
func TestListFunctions(t *testing.T) {
	ft := newTree(t)
	list, err := listFunctions(ft.fs)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Contains(t, formatFunctions(list), "no supported NIC found")

	ft.add(fakeFunction{addr: nic0, device: 0x1017, driver: "vfio-pci", group: "12", numa: "1"})
	rows := listRows(t, ft)
	require.Equal(t, [][]string{
		{"ADDRESS", "MODEL", "DRIVER", "GROUP", "NUMA", "USABLE"},
		{nic0, "ConnectX-5", "vfio-pci", "12", "1", "yes"},
	}, rows)

	ft.add(fakeFunction{addr: "10000:01:00.0", device: 0x1018, numa: "0"})
	ft.add(fakeFunction{addr: "0000:81:00.0", device: 0xa2dc, driver: "mlx5_core", group: "30"})
	ft.add(fakeFunction{addr: "0000:02:00.0", vendor: 0x8086, device: 0x1572, driver: "i40e", group: "2"})
	ft.add(fakeFunction{addr: "0000:02:00.1", device: 0x1003, driver: "mlx4_core", group: "2"})
	ft.link("sys/bus/pci/devices/0000:04:00.0", "../../../devices/pci0000:00/0000:04:00.0") // just removed
	rows = listRows(t, ft)
	require.Len(t, rows, 4)
	require.Equal(t, []string{nic0, "ConnectX-5", "vfio-pci", "12", "1", "yes"}, rows[1])
	require.Equal(t, []string{"0000:81:00.0", "BlueField-3", "mlx5_core", "30", "-", "not yet: mlx5_core has it: add -bind"}, rows[2])
	require.Equal(t, []string{"10000:01:00.0", "ConnectX-5 VF", "-", "-", "0"}, rows[3][:5])
	require.Contains(t, rows[3][5], "no: no IOMMU: boot with intel_iommu=on")

	ft.remove("sys")
	_, err = listFunctions(ft.fs)
	oneLine(t, err, "mount -t sysfs")
}

// listRows cuts the list at runs of two spaces or more, as its columns are.
func listRows(t *testing.T, ft *fakeTree) (rows [][]string) {
	list, err := listFunctions(ft.fs)
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSuffix(formatFunctions(list), "\n"), "\n") {
		var row []string
		for _, cell := range strings.Split(line, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				row = append(row, cell)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func TestAdvice(t *testing.T) {
	const bridge = 0x060400
	sibling := func(driver string) fakeFunction {
		return fakeFunction{addr: nic1, device: 0x1017, driver: driver, group: "7"}
	}
	for _, c := range []struct {
		name   string
		driver string
		with   []fakeFunction
		change func(ft *fakeTree)
		usable bool
		parts  []string
	}{
		{"ready", "vfio-pci", nil, nil, true, []string{"yes"}},
		{"variant driver", "mlx5_vfio_pci", nil, nil, true, []string{"yes"}},
		{"sibling without driver", "vfio-pci", []fakeFunction{sibling("")}, nil, true, []string{"yes"}},
		{"sibling on vfio", "vfio-pci", []fakeFunction{sibling("vfio-pci")}, nil, true, []string{"yes"}},
		{"bridge (A2)", "vfio-pci", []fakeFunction{{addr: "0000:00:01.0", vendor: 0x8086, device: 1, class: bridge, driver: "pcieport", group: "7"}}, nil, true, []string{"yes"}},
		{"bridge, other driver (A2)", "vfio-pci", []fakeFunction{{addr: "0000:00:01.0", vendor: 0x8086, device: 1, class: bridge, driver: "shpchp", group: "7"}}, nil, true, []string{"yes"}},
		{"sibling on mlx5_core (A1)", "vfio-pci", []fakeFunction{sibling("mlx5_core")}, nil, false, []string{"no: ", "group 7", nic1 + " (mlx5_core)", "-bind"}},
		{"ISA bridge on a driver", "vfio-pci", []fakeFunction{{addr: "0000:00:1f.0", vendor: 0x8086, device: 2, class: 0x060100, driver: "lpc_ich", group: "7"}}, nil, false, []string{"0000:00:1f.0 (lpc_ich)"}},
		{"no-IOMMU by name (A7)", "vfio-pci", nil, func(ft *fakeTree) { ft.put("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n") }, false, []string{"no-IOMMU mode", "amd_iommu=on"}},
		{"no-IOMMU by node (A7)", "vfio-pci", nil, func(ft *fakeTree) { ft.put("dev/vfio/noiommu-7", "") }, false, []string{"no-IOMMU mode"}},
		{"kernel driver", "mlx5_core", nil, nil, false, []string{"not yet: mlx5_core has it", "-bind"}},
		{"no driver", "", nil, nil, false, []string{"not yet: no driver has it", "-bind"}},
		{"vfio-pci absent", "mlx5_core", nil, func(ft *fakeTree) { ft.remove("sys/bus/pci/drivers/vfio-pci") }, false, []string{"modprobe vfio-pci", "-bind"}},
		{"has VFs", "mlx5_core", nil, func(ft *fakeTree) { ft.put("sys/devices/pci0000:00/"+nic0+"/sriov_numvfs", "4\n") }, false, []string{"4 virtual functions", "sriov_numvfs"}},
		{"no container node", "vfio-pci", nil, func(ft *fakeTree) { ft.remove("dev/vfio/vfio") }, false, []string{"vfio/vfio is missing", "modprobe vfio-pci"}},
		{"no type 1", "vfio-pci", nil, func(ft *fakeTree) { ft.remove("sys/module/vfio_iommu_type1") }, false, []string{"no: ", "modprobe vfio_iommu_type1"}},
		{"iommufd in its place", "vfio-pci", nil, func(ft *fakeTree) {
			ft.remove("sys/module/vfio_iommu_type1")
			ft.put("sys/module/iommufd/refcnt", "1\n")
		}, true, []string{"yes"}},
		{"no group node", "vfio-pci", nil, func(ft *fakeTree) { ft.remove("dev/vfio/7") }, false, []string{"vfio/7 is missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ft := newTree(t, append(c.with, fakeFunction{addr: nic0, device: 0x101d, driver: c.driver, group: "7"})...)
			if c.change != nil {
				c.change(ft)
			}
			f, err := findFunction(ft.fs, nic0)
			require.NoError(t, err)
			require.Equal(t, c.usable, f.usable, f.advice)
			oneLine(t, errors.New(f.advice), c.parts...)
		})
	}
}

func TestExplainNode(t *testing.T) {
	for err, part := range map[error]string{
		unix.ENOENT: "modprobe vfio-pci", unix.ENODEV: "modprobe vfio-pci", unix.EACCES: "run as root",
		unix.EPERM: "run as root", unix.EBUSY: "already open", unix.EIO: "dmesg",
	} {
		got := explainNode("/dev/vfio/7", err)
		oneLine(t, got, "/dev/vfio/7", part)
		require.ErrorIs(t, got, err)
	}
}

func TestNameMembers(t *testing.T) {
	var list []groupMember
	for i := range 7 {
		list = append(list, groupMember{addr: fmt.Sprintf("0000:04:00.%d", i), driver: "d"})
	}
	require.Equal(t, "0000:04:00.0 (d), 0000:04:00.1 (d), 0000:04:00.2 (d), 0000:04:00.3 (d), 3 more", nameMembers(list))
}

func kernelNIC(group string) fakeFunction {
	return fakeFunction{addr: nic0, device: 0x1017, driver: "mlx5_core", group: group}
}

// requireState checks who has the function and what would take it next.
func (ft *fakeTree) requireState(addr, driver, override string) {
	ft.t.Helper()
	require.Equal(ft.t, driver, ft.driver(addr))
	require.Equal(ft.t, override, ft.fs.readOverride(addr))
}

func TestBindAndRelease(t *testing.T) {
	ft := newTree(t, kernelNIC("7"))
	b, err := bindFunctions(ft.fs, []string{"03:00.0", nic0}) // the same twice
	require.NoError(t, err)
	ft.requireState(nic0, vfioPCI, vfioPCI)
	require.Equal(t, []string{
		nic0 + "/driver_override vfio-pci", "mlx5_core/unbind " + nic0, "vfio-pci/bind " + nic0,
	}, ft.writes)
	require.NoError(t, b.release(time.Second))
	ft.requireState(nic0, "mlx5_core", "")
	n := len(ft.writes)
	require.NoError(t, b.release(time.Second))
	require.Len(t, ft.writes, n, "a second release does nothing")
	require.NoError(t, (*binding)(nil).release(time.Second))
	require.Zero(t, ft.slept)
}

// What was there before comes back exactly: no driver stays no driver, and an
// administrator's driver_override stays.
func TestReleaseRestoresWhatWas(t *testing.T) {
	ft := newTree(t, fakeFunction{addr: nic0, device: 0x1017, group: "7"}, fakeFunction{addr: nic1, device: 0x1017, driver: "other", group: "7"})
	ft.put("sys/devices/pci0000:00/"+nic1+"/driver_override", "other\n")
	b, err := bindFunctions(ft.fs, []string{nic0, nic1})
	require.NoError(t, err)
	ft.requireState(nic0, vfioPCI, vfioPCI)
	ft.requireState(nic1, vfioPCI, vfioPCI)
	require.NoError(t, b.release(time.Second))
	ft.requireState(nic0, "", "")
	ft.requireState(nic1, "other", "other")
}

func TestBindLeavesBoundFunctionsAlone(t *testing.T) {
	ft := newTree(t, fakeFunction{addr: nic0, device: 0x1017, driver: "vfio-pci", group: "7"})
	b, err := bindFunctions(ft.fs, []string{nic0})
	require.NoError(t, err)
	require.NoError(t, b.release(time.Second))
	require.Empty(t, ft.writes)
	require.Equal(t, vfioPCI, ft.driver(nic0))
}

// Each of these is refused before the first write.
func TestBindRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		addrs  []string
		change func(ft *fakeTree)
		parts  []string
	}{
		{"address", []string{nic0, "x"}, nil, []string{`"x"`}},
		{"no IOMMU", []string{nic0, "0000:09:00.0"}, nil, []string{"0000:09:00.0", "no IOMMU", "intel_iommu=on"}},
		{"sibling (A1)", []string{nic0}, func(ft *fakeTree) {
			ft.add(fakeFunction{addr: nic1, device: 0x1017, driver: "mlx5_core", group: "7"})
		}, []string{nic0, nic1 + " (mlx5_core)"}},
		{"driver not loaded", []string{nic0}, func(ft *fakeTree) { ft.remove("sys/bus/pci/drivers/vfio-pci") }, []string{"modprobe vfio-pci"}},
		{"virtual functions", []string{nic0}, func(ft *fakeTree) { ft.put("sys/devices/pci0000:00/"+nic0+"/sriov_numvfs", "2\n") }, []string{"2 virtual functions", "echo 0 >"}},
		{"no-IOMMU (A7)", []string{nic0}, func(ft *fakeTree) { ft.put("dev/vfio/noiommu-7", "") }, []string{"no-IOMMU mode"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ft := newTree(t, kernelNIC("7"), fakeFunction{addr: "0000:09:00.0", device: 0x1017, driver: "mlx5_core"})
			if c.change != nil {
				c.change(ft)
			}
			_, err := bindFunctions(ft.fs, c.addrs)
			oneLine(t, err, c.parts...)
			require.Empty(t, ft.writes)
			require.Equal(t, "mlx5_core", ft.driver(nic0))
		})
	}
}

// A bind that fails gives the function back at once, with one line (A10).
func TestBindFailureRestores(t *testing.T) {
	ft := newTree(t, kernelNIC("7"))
	ft.fail["vfio-pci/bind"] = []error{unix.EIO}
	_, err := bindFunctions(ft.fs, []string{nic0})
	oneLine(t, err, nic0, "vfio-pci refuses it", "input/output error")
	require.ErrorIs(t, err, unix.EIO)
	ft.requireState(nic0, "mlx5_core", "")
}

// Two functions, any one write of the whole fails: both are as they were.
func TestBindFailureAtEveryWrite(t *testing.T) {
	for at := 1; ; at++ {
		ft := newTree(t, kernelNIC("7"), fakeFunction{addr: nic1, device: 0x1017, driver: "mlx5_core", group: "7"})
		ft.failAt = at
		b, err := bindFunctions(ft.fs, []string{nic0, nic1})
		if err == nil {
			err = b.release(time.Second) // failures here are tried again
			require.NoError(t, err)
		} else {
			oneLine(t, err, "input/output error")
		}
		ft.requireState(nic0, "mlx5_core", "")
		ft.requireState(nic1, "mlx5_core", "")
		if len(ft.writes) < at {
			require.Greater(t, at, 12)
			return
		}
	}
}

// A driver that refuses right after the exit is asked again, for a bounded time
// (I5).
func TestReleaseRetries(t *testing.T) {
	ft := newTree(t, kernelNIC("7"))
	b, err := bindFunctions(ft.fs, []string{nic0})
	require.NoError(t, err)
	ft.fail["mlx5_core/bind"] = []error{unix.EIO, unix.EIO, unix.ENODEV, unix.EBUSY}
	require.NoError(t, b.release(releaseTimeout))
	ft.requireState(nic0, "mlx5_core", "")
	require.Greater(t, ft.slept, 100*time.Millisecond)
	require.Less(t, ft.slept, 5*time.Second)

	b, err = bindFunctions(ft.fs, []string{nic0})
	require.NoError(t, err)
	ft.slept = 0
	for range 10000 {
		ft.fail["mlx5_core/bind"] = append(ft.fail["mlx5_core/bind"], unix.EIO)
	}
	oneLine(t, b.release(releaseTimeout), nic0, "mlx5_core", "echo "+nic0, "input/output error")
	require.InDelta(t, releaseTimeout, ft.slept, float64(2*time.Second))
}

func TestReleaseInAChangedWorld(t *testing.T) {
	bound := func(t *testing.T) (*fakeTree, *binding) {
		ft := newTree(t, kernelNIC("7"))
		b, err := bindFunctions(ft.fs, []string{nic0})
		require.NoError(t, err)
		return ft, b
	}
	t.Run("function removed", func(t *testing.T) {
		ft, b := bound(t)
		ft.drop(nic0)
		require.NoError(t, b.release(time.Second))
	})
	t.Run("driver unloaded", func(t *testing.T) {
		ft, b := bound(t)
		ft.remove("sys/bus/pci/drivers/mlx5_core")
		oneLine(t, b.release(releaseTimeout), "mlx5_core", "no such file")
		require.Zero(t, ft.slept)
	})
	t.Run("taken by another", func(t *testing.T) {
		ft, b := bound(t)
		ft.addDriver("uio")
		ft.setDriver(nic0, "uio")
		require.NoError(t, b.release(time.Second))
		ft.requireState(nic0, "uio", "")
	})
	t.Run("back already", func(t *testing.T) {
		ft, b := bound(t)
		ft.setDriver(nic0, "mlx5_core")
		require.NoError(t, b.release(time.Second))
		ft.requireState(nic0, "mlx5_core", "")
	})
}

// Someone moves the function between our bind and our check (I7).
func TestBindLostAtOnce(t *testing.T) {
	ft := newTree(t, kernelNIC("7"))
	write := ft.fs.write
	s := ft.fs
	s.write = func(path, text string) error {
		err := write(path, text)
		if strings.HasSuffix(path, "vfio-pci/bind") {
			ft.addDriver("thief")
			ft.setDriver(nic0, "thief")
		}
		return err
	}
	_, err := bindFunctions(s, []string{nic0})
	oneLine(t, err, nic0, "now on thief")
}

func TestWriteAttribute(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a")
	require.ErrorIs(t, writeAttribute(p, "x"), fs.ErrNotExist, "attributes are never made")
	require.NoError(t, os.WriteFile(p, nil, 0o644))
	require.NoError(t, writeAttribute(p, "vfio-pci"))
	b, err := os.ReadFile(p)
	require.NoError(t, err)
	require.Equal(t, "vfio-pci", string(b))
}

func TestJoinLine(t *testing.T) {
	require.NoError(t, joinLine(nil, nil))
	require.Equal(t, unix.EIO, joinLine(nil, unix.EIO))
	err := joinLine(unix.EIO, nil, unix.EBUSY, unix.ENOMEM)
	for _, e := range []error{unix.EIO, unix.EBUSY, unix.ENOMEM} {
		require.ErrorIs(t, err, e)
	}
	oneLine(t, err)
}
