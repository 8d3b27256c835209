package main

// pci.go owns PCI functions as Linux shows them in sysfs: which there are,
// whether they can be used, and which driver holds them; it moves a function to
// vfio-pci and back. It does not open functions (vfio.go) and reads nothing from
// the device itself. Loading modules is left to the administrator: it only says
// which one is missing.
// Linux: Documentation/ABI/testing/sysfs-bus-pci, driver-api/vfio.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// errBadAddress marks an address that is not one: wrong use, not a fault.
var errBadAddress = errors.New("not a PCI address, write 0000:03:00.0 or 03:00.0")

const (
	vfioPCI       = "vfio-pci"
	remedyIOMMU   = "boot with intel_iommu=on or amd_iommu=on and switch VT-d or AMD-Vi on in the BIOS"
	remedyVFIOPCI = "modprobe vfio-pci"
	remedyType1   = "modprobe vfio_iommu_type1"
	reasonNoIOMMU = "IOMMU group %s is in no-IOMMU mode, where the device reaches all memory and the kernel may move pages under it: " + remedyIOMMU
)

// sysfs is where the kernel shows and takes things: the mount points of sysfs,
// devtmpfs and procfs, and the two acts that tests replace.
type sysfs struct {
	sys, dev, proc string
	write          func(path, text string) error // one write to an attribute
	sleep          func(time.Duration)
}

// realSysfs is this machine's.
func realSysfs() sysfs {
	return sysfs{sys: "/sys", dev: "/dev", proc: "/proc", write: writeAttribute, sleep: time.Sleep}
}

func writeAttribute(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (s sysfs) device(addr, attr string) string {
	return filepath.Join(s.sys, "bus/pci/devices", addr, attr)
}

func (s sysfs) driverDir(driver, attr string) string {
	return filepath.Join(s.sys, "bus/pci/drivers", driver, attr)
}

// functionInfo is one PCI function as it stands now.
type functionInfo struct {
	addr    string // 0000:03:00.0
	vendor  uint16
	device  uint16
	model   pciModel
	driver  string // "" when none holds it
	group   string // IOMMU group number, "" when there is no IOMMU
	noIOMMU bool   // the group was made up by VFIO and protects nothing
	numa    int    // -1 when the machine has one node
	vfs     int    // virtual functions that are switched on
	others  []groupMember
	usable  bool   // can be opened now
	advice  string // "yes", or why not and what to do
}

// groupMember is another device in the same IOMMU group.
type groupMember struct {
	addr, driver string
	bridge       bool // PCI-to-PCI bridge: header type 1
}

// title is the model's name in lists.
func (f functionInfo) title() string {
	if f.model.vf {
		return f.model.name + " VF"
	}
	return f.model.name
}

// parsePCIAddress brings an address into the form sysfs uses. The domain may be
// left out; it has up to 8 digits (VMD uses 5). Errors wrap errBadAddress.
func parsePCIAddress(s string) (string, error) {
	bad := fmt.Errorf("%q is %w", s, errBadAddress)
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 {
		return "", bad
	}
	slot, fn, ok := strings.Cut(parts[2], ".")
	if !ok || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(slot) != 2 || len(fn) != 1 {
		return "", bad
	}
	var n [4]uint64
	for i, part := range []string{parts[0], parts[1], slot, fn} {
		v, err := strconv.ParseUint(part, 16, 32)
		if err != nil {
			return "", bad
		}
		n[i] = v
	}
	if n[2] > 0x1f || n[3] > 7 {
		return "", bad
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3]), nil
}

// findFunction returns the supported function at an address given by the user.
func findFunction(s sysfs, address string) (functionInfo, error) {
	addr, err := parsePCIAddress(address)
	if err != nil {
		return functionInfo{}, err
	}
	f, err := s.readFunction(addr)
	switch {
	case isGone(err):
		return f, fmt.Errorf("%s: there is no PCI device here: -list shows what there is", addr)
	case err != nil:
		return f, err
	case f.vendor != vendorMellanox:
		return f, fmt.Errorf("%s: this is a device of vendor %04x (%04x:%04x), not an NVIDIA/Mellanox NIC (15b3): -list shows what can be used",
			addr, f.vendor, f.vendor, f.device)
	case f.model.name == "":
		return f, fmt.Errorf("%s: device %04x:%04x is not supported: ConnectX-4 and later and BlueField are", addr, f.vendor, f.device)
	}
	f.usable, f.advice = advise(f, s.readState(f))
	return f, nil
}

// listFunctions returns every supported function, by address. One that goes
// away meanwhile, as virtual functions do, is left out.
func listFunctions(s sysfs) ([]functionInfo, error) {
	entries, err := os.ReadDir(filepath.Join(s.sys, "bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("cannot list PCI devices: %w (mount -t sysfs sysfs /sys)", err)
	}
	var list []functionInfo
	for _, e := range entries {
		f, err := s.readFunction(e.Name())
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.vendor == vendorMellanox && f.model.name != "" {
			f.usable, f.advice = advise(f, s.readState(f))
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b functionInfo) int { return comparePCI(a.addr, b.addr) })
	return list, nil
}

// comparePCI orders addresses; a longer domain is a higher one.
func comparePCI(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// formatFunctions is the text of -list: one line each, columns aligned.
func formatFunctions(list []functionInfo) string {
	if len(list) == 0 {
		return "no supported NIC found: ConnectX-4 and later and BlueField are (lspci -d 15b3: shows what the machine sees)\n"
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ADDRESS\tMODEL\tDRIVER\tGROUP\tNUMA\tUSABLE")
	for _, f := range list {
		numa := "-"
		if f.numa >= 0 {
			numa = strconv.Itoa(f.numa)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", f.addr, f.title(), orDash(f.driver), orDash(f.group), numa, f.advice)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return out.String()
}

// functionLine is a function as -list -json prints it.
type functionLine struct {
	Address string `json:"address"`
	Model   string `json:"model"`
	Driver  string `json:"driver"`
	Group   string `json:"iommu_group"`
	NUMA    int    `json:"numa_node"` // -1 where the machine has one
	Usable  bool   `json:"usable"`
	Advice  string `json:"advice"` // what to do where it is not
}

// printFunctions prints -list: a table, or one JSON object a line.
func printFunctions(out io.Writer, list []functionInfo, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(out, formatFunctions(list))
		return err
	}
	lines := json.NewEncoder(out)
	for _, f := range list {
		if err := lines.Encode(functionLine{f.addr, f.title(), f.driver, f.group, f.numa, f.usable, f.advice}); err != nil {
			return err
		}
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// readFunction reads one function. A device that is not there gives an error
// for which isGone holds; one of another maker is returned without an error.
func (s sysfs) readFunction(addr string) (functionInfo, error) {
	f := functionInfo{addr: addr, numa: -1}
	var id [2]uint64
	for i, attr := range []string{"vendor", "device"} {
		v, err := s.readNumber(s.device(addr, attr), 16)
		if err != nil {
			return f, fmt.Errorf("%s: %w", addr, err)
		}
		id[i] = v
	}
	f.vendor, f.device = uint16(id[0]), uint16(id[1])
	if f.vendor != vendorMellanox {
		return f, nil
	}
	f.model, _ = findModel(f.device)
	f.driver = linkName(s.device(addr, "driver"))
	f.group = linkName(s.device(addr, "iommu_group"))
	f.numa = s.readInt(s.device(addr, "numa_node"), -1)
	f.vfs = s.readInt(s.device(addr, "sriov_numvfs"), 0)
	if f.group != "" {
		f.noIOMMU = s.isNoIOMMU(f.group)
		f.others = s.readGroup(f.group, addr)
	}
	return f, nil
}

// readNumber reads an attribute such as 0x15b3.
func (s sysfs) readNumber(path string, bits int) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%s holds no number: %w", path, err)
	}
	return v, nil
}

// readInt reads an attribute that not every machine or function has.
func (s sysfs) readInt(path string, otherwise int) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return otherwise
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return otherwise
	}
	return v
}

// barBase is where BAR0, of so many bytes, lies for the processor.
func (s sysfs) barBase(addr string, size uint64) (uint64, error) {
	path := s.device(addr, "resource")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var first, last, flags uint64
	if _, err := fmt.Sscanf(string(b), "0x%x 0x%x 0x%x", &first, &last, &flags); err != nil {
		return 0, fmt.Errorf("%s does not start with an address range: %w", path, err)
	}
	if first == 0 || first%4096 != 0 || last-first != size-1 {
		return 0, fmt.Errorf("%s has BAR0 from %#x to %#x, VFIO has %d bytes", path, first, last, size)
	}
	return first, nil
}

// linkName is the last part of a link's target, "" when there is no link.
func linkName(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// isNoIOMMU tells the groups that VFIO makes up when enable_unsafe_noiommu_mode
// is set: they carry a name, and their node is called noiommu-N.
func (s sysfs) isNoIOMMU(group string) bool {
	name, _ := os.ReadFile(filepath.Join(s.sys, "kernel/iommu_groups", group, "name"))
	if strings.TrimSpace(string(name)) == "vfio-noiommu" {
		return true
	}
	_, err := os.Stat(filepath.Join(s.dev, "vfio", "noiommu-"+group))
	return err == nil
}

// readGroup lists who else is in the group.
func (s sysfs) readGroup(group, except string) []groupMember {
	dir := filepath.Join(s.sys, "kernel/iommu_groups", group, "devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []groupMember
	for _, e := range entries {
		if e.Name() == except {
			continue
		}
		class, _ := s.readNumber(filepath.Join(dir, e.Name(), "class"), 32)
		list = append(list, groupMember{
			addr:   e.Name(),
			driver: linkName(filepath.Join(dir, e.Name(), "driver")),
			bridge: class>>8 == 0x0604 || class>>8 == 0x0609,
		})
	}
	return list
}

// isVFIODriver tells vfio-pci and its kin such as mlx5_vfio_pci.
func isVFIODriver(driver string) bool {
	return strings.HasPrefix(driver, "vfio-") || strings.HasSuffix(driver, "vfio_pci")
}

// offenders are the members whose kernel driver keeps the group from being
// used. Bridges never are, nor drivers that promise to leave DMA alone
// (driver_managed_dma in Linux). The kernel's viable flag has the last word:
// this only predicts it and names names.
func offenders(members []groupMember) []groupMember {
	var list []groupMember
	for _, m := range members {
		if m.driver == "" || m.bridge || isVFIODriver(m.driver) || m.driver == "pci-stub" || m.driver == "pcieport" {
			continue
		}
		list = append(list, m)
	}
	return list
}

// nameMembers writes members as "0000:03:00.1 (mlx5_core)", at most four.
func nameMembers(list []groupMember) string {
	const most = 4
	var names []string
	for _, m := range list[:min(len(list), most)] {
		names = append(names, fmt.Sprintf("%s (%s)", m.addr, orDash(m.driver)))
	}
	if len(list) > most {
		names = append(names, fmt.Sprintf("%d more", len(list)-most))
	}
	return strings.Join(names, ", ")
}

// notIsolated says why f's DMA could reach memory that is not ours; nil when an
// IOMMU prevents it.
func notIsolated(f functionInfo) error {
	if f.group == "" {
		return fmt.Errorf("no IOMMU: %s", remedyIOMMU)
	}
	if f.noIOMMU {
		return fmt.Errorf(reasonNoIOMMU, f.group)
	}
	return nil
}

// refusal says why no program can use f, whichever driver holds it; nil when
// there is no such reason. The functions in taken count as given away.
func refusal(f functionInfo, taken []string) error {
	if err := notIsolated(f); err != nil {
		return err
	}
	bad := slices.DeleteFunc(offenders(f.others), func(m groupMember) bool { return slices.Contains(taken, m.addr) })
	if len(bad) > 0 {
		return errNotViable(f.group, bad)
	}
	return nil
}

func errNotViable(group string, bad []groupMember) error {
	if len(bad) == 0 {
		return fmt.Errorf("IOMMU group %s is not viable: a kernel driver uses one of its devices (ls /sys/kernel/iommu_groups/%s/devices)", group, group)
	}
	return fmt.Errorf("IOMMU group %s is shared with %s: unbind that driver, or list its function in -pci too and add -bind", group, nameMembers(bad))
}

// hostState is what decides, besides the function itself, about its use.
type hostState struct {
	vfioLoaded bool   // the vfio-pci driver is registered
	type1      bool   // something answers for IOMMUs of type 1: VFIO's own driver or iommufd
	node       error  // why a node below /dev/vfio can't be opened, or nil
	nodePath   string // that node
}

func (s sysfs) readState(f functionInfo) hostState {
	var st hostState
	_, err := os.Stat(s.driverDir(vfioPCI, ""))
	st.vfioLoaded = err == nil
	for _, module := range []string{"vfio_iommu_type1", "iommufd"} {
		_, err := os.Stat(filepath.Join(s.sys, "module", module))
		st.type1 = st.type1 || err == nil
	}
	for _, node := range []string{"vfio", f.group} {
		st.nodePath = filepath.Join(s.dev, "vfio", node)
		if st.node = unix.Access(st.nodePath, unix.R_OK|unix.W_OK); st.node != nil {
			break
		}
	}
	return st
}

// advise tells in words whether f can be used now and, if not, what to do.
func advise(f functionInfo, st hostState) (bool, string) {
	if err := refusal(f, nil); err != nil {
		return false, "no: " + err.Error()
	}
	if isVFIODriver(f.driver) {
		if st.node != nil {
			return false, "no: " + explainNode(st.nodePath, st.node).Error()
		}
		if !st.type1 {
			return false, "no: " + errNoType1.Error()
		}
		return true, "yes"
	}
	if f.vfs > 0 {
		return false, "not yet: " + errHasVFs(f).Error()
	}
	holder := "no driver has it"
	if f.driver != "" {
		holder = f.driver + " has it"
	}
	if !st.vfioLoaded {
		return false, fmt.Sprintf("not yet: %s: %s, then add -bind", holder, remedyVFIOPCI)
	}
	return false, fmt.Sprintf("not yet: %s: add -bind", holder)
}

func errHasVFs(f functionInfo) error {
	return fmt.Errorf("%d virtual functions depend on it: remove them first (echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs)", f.vfs, f.addr)
}

var errNoType1 = errors.New("the kernel has no type 1 IOMMU driver for VFIO: " + remedyType1)

// explainNode says what a failed open of a node below /dev/vfio means.
func explainNode(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s is missing: %s (and devtmpfs must be mounted on /dev): %w", path, remedyVFIOPCI, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("no permission to open %s: run as root, or give the node to your user (chown): %w", path, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s is already open: another program uses a function of this IOMMU group (fuser -v %s names it): %w", path, path, err)
	}
	return fmt.Errorf("cannot open %s (dmesg may say more): %w", path, err)
}

// binding is the functions that were moved to vfio-pci. They go back with
// release, which must come after they are closed: the kernel blocks until then.
type binding struct {
	fs    sysfs
	taken []takenFunction
}

// takenFunction remembers what a function had before: its driver and its
// driver_override, each "" for none.
type takenFunction struct{ addr, driver, override string }

// releaseTimeout bounds the wait for a former driver to take a function back.
// Right after vfio-pci let go, firmware may refuse for a few seconds.
const releaseTimeout = 15 * time.Second

// bindFunctions moves the functions to vfio-pci. Those that are there already
// stay as they are and are not given back later. All are checked before the
// first is touched; when one fails, all that was moved goes back.
func bindFunctions(s sysfs, addresses []string) (*binding, error) {
	var list []functionInfo
	var addrs []string
	for _, a := range addresses {
		f, err := findFunction(s, a)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(addrs, f.addr) {
			list, addrs = append(list, f), append(addrs, f.addr)
		}
	}
	for _, f := range list {
		if err := s.mayBind(f, addrs); err != nil {
			return nil, fmt.Errorf("%s: cannot bind to vfio-pci: %w", f.addr, err)
		}
	}
	b := &binding{fs: s}
	for _, f := range list {
		if isVFIODriver(f.driver) {
			continue
		}
		if err := b.take(f); err != nil {
			return nil, joinLine(fmt.Errorf("%s: %w", f.addr, err), b.release(releaseTimeout))
		}
	}
	return b, nil
}

// mayBind checks all that can be known before the first write.
func (s sysfs) mayBind(f functionInfo, all []string) error {
	if err := refusal(f, all); err != nil {
		return err
	}
	if isVFIODriver(f.driver) {
		return nil
	}
	if f.vfs > 0 {
		return errHasVFs(f)
	}
	if _, err := os.Stat(s.driverDir(vfioPCI, "bind")); err != nil {
		return fmt.Errorf("the driver is not loaded: %s", remedyVFIOPCI)
	}
	return nil
}

// take moves one function. From its first write on it is on the list of what
// release gives back, so a failure half way is undone there.
func (b *binding) take(f functionInfo) error {
	s := b.fs
	t := takenFunction{addr: f.addr, driver: f.driver, override: s.readOverride(f.addr)}
	if err := s.write(s.device(f.addr, "driver_override"), vfioPCI); err != nil {
		return fmt.Errorf("cannot set driver_override (binding needs root): %w", err)
	}
	b.taken = append(b.taken, t)
	if f.driver != "" {
		if err := s.write(s.driverDir(f.driver, "unbind"), f.addr); err != nil {
			return fmt.Errorf("%s does not let go of it: %w", f.driver, err)
		}
	}
	if err := s.write(s.driverDir(vfioPCI, "bind"), f.addr); err != nil {
		return fmt.Errorf("vfio-pci refuses it, dmesg may say why: %w", err)
	}
	if now := linkName(s.device(f.addr, "driver")); now != vfioPCI {
		return fmt.Errorf("bound to vfio-pci, but now on %s: another program changes drivers (udev, driverctl)", orDash(now))
	}
	return nil
}

// readOverride reads driver_override, where the kernel writes "(null)" for none.
func (s sysfs) readOverride(addr string) string {
	b, err := os.ReadFile(s.device(addr, "driver_override"))
	if text := strings.TrimSpace(string(b)); err == nil && text != "(null)" {
		return text
	}
	return ""
}

// release gives every function back to the driver it had, last taken first.
// For each it tries until that driver has it or the time is over. A second
// call, or one on nil, does nothing.
func (b *binding) release(timeout time.Duration) error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, t := range slices.Backward(b.taken) {
		errs = append(errs, b.fs.giveBack(t, timeout))
	}
	b.taken = nil
	return joinLine(errs...)
}

func (s sysfs) giveBack(t takenFunction, timeout time.Duration) error {
	const firstPause, longestPause = 50 * time.Millisecond, time.Second
	pause := firstPause
	for waited := time.Duration(0); ; waited += pause {
		err := s.tryGiveBack(t)
		if err == nil {
			return nil
		}
		if waited >= timeout || errors.Is(err, fs.ErrNotExist) { // the latter: its module was unloaded
			return fmt.Errorf("%s: could not be given back to %s (try: echo %s > /sys/bus/pci/drivers/%s/bind): %w",
				t.addr, orDash(t.driver), t.addr, t.driver, err)
		}
		pause = min(2*pause, longestPause)
		s.sleep(pause)
	}
}

// tryGiveBack does what is still missing, so it may be repeated. A function
// that is gone, or that someone else has taken since, is left alone.
func (s sysfs) tryGiveBack(t takenFunction) error {
	if _, err := os.Stat(s.device(t.addr, "")); isGone(err) {
		return nil
	}
	old := t.override
	if old == "" {
		old = "\n"
	}
	if err := s.write(s.device(t.addr, "driver_override"), old); err != nil {
		return err
	}
	now := linkName(s.device(t.addr, "driver"))
	if now == t.driver || now != "" && !isVFIODriver(now) {
		return nil
	}
	if now != "" {
		if err := s.write(s.driverDir(now, "unbind"), t.addr); err != nil {
			return err
		}
	}
	if t.driver == "" {
		return nil
	}
	err := s.write(s.driverDir(t.driver, "bind"), t.addr)
	if now := linkName(s.device(t.addr, "driver")); now == t.driver {
		return nil
	} else if err == nil {
		err = fmt.Errorf("the driver is still %s", orDash(now))
	}
	return err
}

// joinLine joins errors in one line; nil when there is none.
func joinLine(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
