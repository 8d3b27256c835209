package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestKernelWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                                 nil,
		" \t\n":                            nil,
		"console=ttyS0 quiet\n":            {"console=ttyS0", "quiet"},
		`a "b c" d`:                        {"a", "b c", "d"},
		`-filter="tcp port 80" x`:          {"-filter=tcp port 80", "x"},
		`"-filter=tcp port 80" x`:          {"-filter=tcp port 80", "x"},
		`-w=a"b c"d e`:                     {`-w=a"b c"d`, "e"}, // quotes inside stay, and still join
		`a"b c"d e`:                        {`a"b c"d`, "e"},
		`"never closed and on`:             {"never closed and on"},
		`x="never closed and on`:           {"x=never closed and on"},
		`"" x`:                             {"", "x"},
		`x="" y`:                           {"x=", "y"},
		`x=" y`:                            {"x= y"},
		`a=b="c d"`:                        {`a=b="c d"`}, // only the first = counts
		`=x="a b"`:                         {"=x=a b"},
		"-wire\vgen:count=1000\f-json\r\n": {"-wire", "gen:count=1000", "-json"},
	} {
		require.Equal(t, want, kernelWords(line), "%q", line)
	}
}

// What Linux 6.12 itself made of these lines, as the arguments of process 1.
func TestKernelWordsAsLinuxSplitsThem(t *testing.T) {
	for line, want := range map[string][]string{
		`-a "b c" -w="d e" x"y z"w "q=r s" k="" "" a=b="c d" e="f g`: {"-a", "b c", "-w=d e", `x"y z"w`, "q=r s", "k=", "", `a=b="c d"`, "e=f g"},
		`=x="a b" ==y="a b" "p="b" x" z="`:                           {"=x=a b", `==y="a b"`, `p=b" x`, "z="},
	} {
		require.Equal(t, want, kernelWords(line), line)
	}
}

func FuzzKernelWords(f *testing.F) {
	for _, s := range []string{`a "b c" d="e f"`, `"`, `="`, `"="`, "a\x00b", "\xff\xa0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := kernelWords(line)
		size := 0
		for _, w := range words {
			size += len(w)
		}
		require.LessOrEqual(t, size, len(line))
		if !strings.Contains(line, `"`) {
			require.Equal(t, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(kernelSpace, r) }), append([]string{}, words...))
		}
		_ = chooseExit(words)
		_ = moduleParams(words, "vfio-pci.ko")
	})
}

func TestSplitAtDashes(t *testing.T) {
	for line, want := range map[string][2][]string{
		"console=ttyS0 -- -list":          {{"console=ttyS0"}, {"-list"}},
		"quiet -- -w -- -json":            {{"quiet"}, {"-w", "--", "-json"}}, // the first one only
		"-- -list":                        {{}, {"-list"}},
		"console=ttyS0":                   {{"console=ttyS0"}, nil},
		`quiet --x "a -- b" -- --list=no`: {{"quiet", "--x", "a -- b"}, {"--list=no"}},
		"quiet --":                        {{"quiet"}, {}},
	} {
		before, after := splitAtDashes(kernelWords(line))
		require.Equal(t, want, [2][]string{before, after}, line)
	}
}

func TestChooseExit(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "poweroff",
		"-list":                            "poweroff",
		"-on-exit reboot":                  "reboot",
		"--on-exit halt -list":             "halt",
		"-on-exit=reboot":                  "reboot",
		"-nosuch -on-exit reboot":          "reboot", // the wish holds when the rest is wrong
		"-on-exit reboot -on-exit=halt":    "halt",
		"-on-exit":                         "poweroff",
		"-on-exit shell":                   "poweroff",
		"-on-exit=":                        "poweroff",
		"-on-exit= reboot":                 "poweroff",
		"on-exit reboot":                   "poweroff",
		"-emulate -on-exit reboot -list":   "reboot",
		"-emulate -on-exitt=reboot - -- -": "poweroff",
	} {
		require.Equal(t, want, chooseExit(strings.Fields(args)).name, args)
	}
	for _, name := range onExitNames { // what the flag takes is what is done
		require.Equal(t, name, chooseExit([]string{"-on-exit", name}).name)
	}
}

func TestIsMachineInit(t *testing.T) {
	require.True(t, isMachineInit(1, ""), "before /proc is mounted")
	require.True(t, isMachineInit(1, firstPIDNamespace))
	require.False(t, isMachineInit(1, "pid:[4026532201]"), "a container's process 1 must not end the machine")
	require.False(t, isMachineInit(2, ""))
	runAsInit() // returns in a test, which is no process 1
}

func TestModuleOrder(t *testing.T) {
	got := moduleOrder([]string{
		"vfio.ko\nvfio_iommu_type1.ko\n",
		"irqbypass.ko\n\n vfio.ko\nvfio-pci-core.ko\nvfio-pci.ko",
		"../../etc/x.ko\n",
	})
	require.Equal(t, []string{"vfio.ko", "vfio_iommu_type1.ko", "irqbypass.ko", "vfio-pci-core.ko", "vfio-pci.ko", "x.ko"}, got)
	require.Empty(t, moduleOrder(nil))
}

func TestModuleParams(t *testing.T) {
	words := kernelWords(`quiet vfio_iommu_type1.allow_unsafe_interrupts=1 vfio-pci.ids=15b3:1017 vfio_pci.disable_idle_d3 vfio.x="a b" console=vfio.y=1`)
	require.Equal(t, "allow_unsafe_interrupts=1", moduleParams(words, "vfio_iommu_type1.ko"))
	require.Equal(t, "ids=15b3:1017 disable_idle_d3", moduleParams(words, "vfio-pci.ko"))
	require.Equal(t, `x="a b"`, moduleParams(words, "vfio.ko"))
	require.Empty(t, moduleParams(words, "irqbypass.ko"))
}

func TestExitOf(t *testing.T) {
	for status, want := range map[unix.WaitStatus]struct {
		code int
		why  string
	}{
		0:                    {0, ""},
		3 << 8:               {3, ""},
		255 << 8:             {255, ""},
		9:                    {137, "ended by SIGKILL (killed)"},
		6 | 0x80 /* core */ : {134, "ended by SIGABRT (aborted)"},
	} {
		code, why := exitOf(status)
		require.Equal(t, want.code, code)
		require.Equal(t, want.why, why)
	}
}

func TestForwarded(t *testing.T) {
	require.Equal(t, unix.SIGTERM, forwarded(unix.SIGINT, 0))
	require.Equal(t, unix.SIGTERM, forwarded(unix.SIGPWR, 0))
	require.Equal(t, unix.SIGKILL, forwarded(unix.SIGINT, 1))
	require.Equal(t, unix.SIGUSR1, forwarded(unix.SIGUSR1, 5))
}

func TestApplianceEnv(t *testing.T) {
	require.Equal(t, []string{"HOME=/", "GOTRACEBACK=crash"}, applianceEnv([]string{"HOME=/"}))
	require.Equal(t, []string{"GOTRACEBACK=none"}, applianceEnv([]string{"GOTRACEBACK=none"}))
}

// fakeMachine is a kernel for process 1. It records what is asked of it in order
// and fails what is named in fail.
type fakeMachine struct {
	mu      sync.Mutex
	asked   []string
	fail    map[string]error
	panics  string
	files   map[string]string
	drivers bool // vfio-pci is registered once its module is loaded
	waits   []fakeWait
	killed  chan struct{} // the appliance ends when it is killed
	signals chan os.Signal
	out     strings.Builder
}

type fakeWait struct {
	pid    int
	status unix.WaitStatus
	err    error
}

const (
	fakeChild   = 7
	fakeCmdline = "console=ttyS0 vfio-pci.ids=15b3:1017 -- -bind -pci 0000:01:00.0 -on-exit \"reboot\n"
)

func newFakeMachine() *fakeMachine {
	return &fakeMachine{
		fail:    map[string]error{},
		drivers: true,
		waits:   []fakeWait{{pid: fakeChild}},
		signals: make(chan os.Signal, 4),
		files: map[string]string{
			"/proc/cmdline":              fakeCmdline,
			"/modules/vfio-pci.order":    "irqbypass.ko\nvfio.ko\nvfio-pci-core.ko\nvfio-pci.ko\n",
			"/modules/vfio_type1.order":  "vfio.ko\nvfio_iommu_type1.ko\n",
			"/modules/vfio.ko":           "x",
			"/modules/vfio_iommu.ignore": "nosuch.ko",
		},
	}
}

// ask records a call and answers it.
func (m *fakeMachine) ask(format string, a ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	what := fmt.Sprintf(format, a...)
	m.asked = append(m.asked, what)
	if what == m.panics {
		panic("boom")
	}
	return m.fail[what]
}

func (m *fakeMachine) readFile(path string) ([]byte, error) {
	b, ok := m.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(b), m.ask("read %s", path)
}

func (m *fakeMachine) list(dir string) (names []string, err error) {
	for f := range m.files {
		if n, ok := strings.CutPrefix(f, dir+"/"); ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	if names == nil {
		err = fs.ErrNotExist
	}
	return names, errors.Join(err, m.fail["list "+dir])
}

func (m *fakeMachine) wait() (int, unix.WaitStatus, error) {
	if len(m.waits) == 0 {
		<-m.killed
		return fakeChild, unix.WaitStatus(unix.SIGKILL), nil
	}
	w := m.waits[0]
	m.waits = m.waits[1:]
	return w.pid, w.status, w.err
}

func (m *fakeMachine) calls() initCalls {
	return initCalls{
		mount:      func(f initMount) error { return m.ask("mount %s %s", f.kind, f.target) },
		console:    func() error { return m.ask("console") },
		readFile:   m.readFile,
		list:       m.list,
		exists:     func(string) bool { return m.drivers },
		loadModule: func(path, params string) error { return m.ask("%s", strings.TrimSpace("load "+path+" "+params)) },
		prepare:    []initStep{{"lift limits", func() error { return m.ask("limits") }}},
		start: func(args []string) (int, error) {
			return fakeChild, m.ask("start %s", strings.Join(args, " "))
		},
		wait: m.wait,
		kill: func(pid int, sig syscall.Signal) error {
			err := m.ask("kill %d %s", pid, unix.SignalName(sig))
			if sig == unix.SIGKILL {
				close(m.killed)
			}
			return err
		},
		sleep:  func(d time.Duration) { _ = m.ask("sleep %v", d) },
		settle: func() { _ = m.ask("settle") },
		reboot: func(command int) error { return m.ask("reboot %#x", command) },
		rest:   func() { _ = m.ask("rest") },
	}
}

// run is a whole life. In tests rest returns.
func (m *fakeMachine) run() {
	p := initProcess{initCalls: m.calls(), out: &m.out, own: []string{"-own"}, signals: m.signals}
	p.run()
}

const (
	powerOff = "reboot 0x4321fedc"
	restart  = "reboot 0x1234567"
)

var fakeLife = []string{
	"mount proc /proc", "mount sysfs /sys", "mount devtmpfs /dev", "mount tmpfs /run",
	"console", "limits", "read /proc/cmdline",
	"read /modules/vfio-pci.order", "read /modules/vfio_type1.order",
	"load /modules/irqbypass.ko", "load /modules/vfio.ko", "load /modules/vfio-pci-core.ko", "load /modules/vfio-pci.ko ids=15b3:1017",
	"load /modules/vfio_iommu_type1.ko",
	"start -bind -pci 0000:01:00.0 -on-exit reboot",
	"settle", restart, "rest",
}

func TestInitLife(t *testing.T) {
	m := newFakeMachine()
	m.waits = []fakeWait{{pid: 99}, {err: unix.EINTR}, {pid: fakeChild, status: 0x137f}, {pid: fakeChild}} // an orphan; nothing; a stop; the end
	m.run()
	require.Equal(t, fakeLife, m.asked)
	require.Equal(t, "mlx5d: exit code 0\n", m.out.String())
}

// Each call fails in turn: the machine comes up all the same and says what failed.
func TestInitFailuresDoNotStopIt(t *testing.T) {
	for _, what := range fakeLife {
		m := newFakeMachine()
		m.fail[what] = unix.EIO
		m.run()
		last := m.asked[len(m.asked)-2:]
		switch {
		case what == "settle" || what == "rest":
			continue
		case what == "read /proc/cmdline":
			require.Contains(t, m.asked, "start -own")
			require.Equal(t, []string{powerOff, "rest"}, last)
		case strings.HasPrefix(what, "read /modules"):
			require.Equal(t, restart, last[0])
		case strings.HasPrefix(what, "start"):
			require.Contains(t, m.out.String(), "mlx5d: exit code 1\n")
			require.Contains(t, m.asked, "sleep 3s")
			require.Equal(t, restart, last[0])
		default:
			require.Equal(t, fakeLife, m.asked, what)
		}
		require.Contains(t, m.out.String(), unix.EIO.Error(), what)
		require.Contains(t, m.out.String(), "mlx5d: exit code ", what)
	}
}

func TestInitTakesWhatIsThereAlready(t *testing.T) {
	m := newFakeMachine()
	m.fail["mount devtmpfs /dev"] = unix.EBUSY
	m.fail["load /modules/vfio.ko"] = unix.EEXIST
	m.run()
	require.Equal(t, fakeLife, m.asked)
	require.Equal(t, "mlx5d: exit code 0\n", m.out.String())
}

func TestInitSaysWhatIsMissing(t *testing.T) {
	m := newFakeMachine()
	m.fail["load /modules/vfio.ko"] = unix.ENOENT
	m.fail["load /modules/vfio-pci-core.ko"] = unix.ENOEXEC
	m.fail["load /modules/vfio_iommu_type1.ko"] = unix.EKEYREJECTED
	m.drivers = false
	m.run()
	for _, line := range []string{
		"cannot load the module /modules/vfio.ko: no such file or directory: it or one that it needs is not in the image\n",
		"cannot load the module /modules/vfio-pci-core.ko: exec format error: it was made for another kernel",
		"cannot load the module /modules/vfio_iommu_type1.ko: key was rejected by service: this kernel takes only modules signed",
		"this kernel has no vfio-pci, without which no NIC can be opened: build the image with MODULES=",
	} {
		require.Contains(t, m.out.String(), "mlx5d: "+line)
	}
	require.Contains(t, m.asked, "start -bind -pci 0000:01:00.0 -on-exit reboot")
}

// Without hardware nothing is said about modules.
func TestInitWithoutModules(t *testing.T) {
	m := newFakeMachine()
	m.files = map[string]string{"/proc/cmdline": "console=ttyS0 -- -emulate -wire gen:count=1000 -json"}
	m.drivers = false
	m.run()
	require.Equal(t, "mlx5d: exit code 0\n", m.out.String())
	require.Equal(t, []string{"start -emulate -wire gen:count=1000 -json", "settle", powerOff, "rest"}, m.asked[len(m.asked)-4:])
}

func TestInitTellsHowTheApplianceEnded(t *testing.T) {
	m := newFakeMachine()
	m.waits = []fakeWait{{pid: fakeChild, status: unix.WaitStatus(unix.SIGABRT)}}
	m.run()
	require.Equal(t, "mlx5d: the appliance was ended by SIGABRT (aborted)\nmlx5d: exit code 134\n", m.out.String())
	require.Equal(t, []string{"sleep 3s", "settle", restart, "rest"}, m.asked[len(m.asked)-4:])

	m = newFakeMachine()
	m.waits = []fakeWait{{err: unix.ECHILD}}
	m.run()
	require.Contains(t, m.out.String(), "the appliance is lost: no child processes")
	require.Contains(t, m.out.String(), "mlx5d: exit code 1\n")
}

// Ctrl-alt-del asks first and insists the second time.
func TestInitSignals(t *testing.T) {
	m := newFakeMachine()
	m.waits, m.killed = nil, make(chan struct{})
	for _, s := range []os.Signal{unix.SIGUSR1, unix.SIGINT, unix.SIGINT} {
		m.signals <- s
	}
	m.run()
	n := slices.Index(m.asked, "kill 7 SIGUSR1")
	require.Equal(t, []string{"kill 7 SIGUSR1", "kill 7 SIGTERM", "kill 7 SIGKILL"}, m.asked[n:n+3])
	require.Contains(t, m.out.String(), "mlx5d: exit code 137\n")
}

// A panic of process 1 itself ends the machine too.
func TestInitPanic(t *testing.T) {
	for i, what := range fakeLife[:len(fakeLife)-1] {
		m := newFakeMachine()
		m.panics = what
		m.run()
		require.Contains(t, m.out.String(), "process 1 failed: boom\n", what)
		require.Equal(t, "rest", m.asked[len(m.asked)-1], what)
		if what == restart {
			continue // that was the end
		}
		want := restart
		if i < slices.Index(fakeLife, "read /proc/cmdline")+1 {
			want = powerOff // its wish was not known yet
		}
		require.Equal(t, want, m.asked[len(m.asked)-2], what)
	}
}

// Process 1 outlives a machine that cannot be ended.
func TestInitThatCannotReboot(t *testing.T) {
	m := newFakeMachine()
	m.fail[restart] = unix.EPERM
	m.run()
	require.Contains(t, m.out.String(), "mlx5d: cannot reboot: operation not permitted; it is safe to switch off\n")
	require.Equal(t, "rest", m.asked[len(m.asked)-1])
}
