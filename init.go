package main

// init.go owns being process 1 of a machine that runs nothing else: mounts, the
// console, kernel modules, the command line, starting the appliance and watching
// it, and the end of the machine. It does not own what the appliance does: that
// is a second process of the same binary, so that whatever becomes of it (a panic
// on any goroutine, a fatal signal, the kernel's out-of-memory killer) process 1
// is there to end the machine as -on-exit says. A process 1 that ends would be a
// kernel panic.
//
// Order: mounts come first, since all else is found through /proc, /sys and /dev;
// then the console, so that failures can be seen; then the command line; then
// modules, whose parameters it holds. A step that fails is reported and the next
// one is tried: a machine that comes up halfway tells more than one that does not.
//
// Limits: the kernel itself refuses to boot with more than 32 words behind `--`
// (-flag=value is one word), and on amd64 its command line has 2048 bytes.
// Linux: admin-guide/kernel-parameters, init/main.c; proc(5), reboot(2).

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// moduleDir holds the kernel modules that the image carries, and *.order files
	// with their names in the order to load them, one a line.
	moduleDir = "/modules"
	// firstPIDNamespace is what /proc/self/ns/pid is outside of containers
	// (PROC_PID_INIT_INO of Linux).
	firstPIDNamespace = "pid:[4026531836]"

	initFailed  = 1                // exit code when the appliance could not be started
	rebootPause = 3 * time.Second  // after a failure, so that it can be read before the screen goes
	drainLimit  = 10 * time.Second // a console with flow control may never take the rest
)

// exitAction is a value of -on-exit.
type exitAction struct {
	name    string
	command int // of reboot(2)
}

// exitActions holds them all, the default first.
var exitActions = []exitAction{
	{onExitPowerOff, unix.LINUX_REBOOT_CMD_POWER_OFF},
	{onExitReboot, unix.LINUX_REBOOT_CMD_RESTART},
	{onExitHalt, unix.LINUX_REBOOT_CMD_HALT},
}

// initMount is a file system of the kernel's that process 1 mounts.
type initMount struct {
	kind, target string
	flags        uintptr
	data         string
}

var initMounts = []initMount{
	{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"devtmpfs", "/dev", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755"},
	{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=0755"},
}

// initCalls is what process 1 asks of the kernel. Tests give their own.
type initCalls struct {
	mount      func(m initMount) error // EBUSY: mounted already
	console    func() error            // makes /dev/console files 0 to 2
	readFile   func(path string) ([]byte, error)
	list       func(dir string) ([]string, error)
	exists     func(path string) bool
	loadModule func(path, params string) error // EEXIST: loaded or built in
	prepare    []initStep                      // what else the appliance needs
	start      func(args []string) (pid int, err error)
	wait       func() (pid int, status unix.WaitStatus, err error)
	kill       func(pid int, sig syscall.Signal) error
	sleep      func(time.Duration)
	settle     func() // returns when files and console have all that was written
	reboot     func(command int) error
	rest       func() // never returns
}

// initStep is one step with the words for its failure.
type initStep struct {
	what string
	do   func() error
}

// initProcess is process 1.
type initProcess struct {
	initCalls
	out     io.Writer
	own     []string         // arguments from the kernel, when /proc does not tell
	signals <-chan os.Signal // from ctrl-alt-del and other processes
}

// isMachineInit tells process 1 of a machine from process 1 of a container,
// which has a /proc and a namespace of its own. pidNamespace is "" without /proc.
func isMachineInit(pid int, pidNamespace string) bool {
	return pid == 1 && (pidNamespace == "" || pidNamespace == firstPIDNamespace)
}

// runAsInit does nothing in an ordinary process. As process 1 of a machine it
// runs it and never returns.
func runAsInit() {
	ns, _ := os.Readlink("/proc/self/ns/pid") // "" when there is no /proc yet
	if !isMachineInit(os.Getpid(), ns) {
		return
	}
	// Ctrl-Z and a hang-up of the console must not stop the appliance, which
	// inherits this; job control must not stop process 1 from writing.
	signal.Ignore(unix.SIGHUP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGPWR, unix.SIGUSR1)
	p := &initProcess{initCalls: linuxInit(), out: os.Stderr, own: os.Args[1:], signals: signals}
	p.run()
}

// say prints one line.
func (p *initProcess) say(format string, a ...any) {
	fmt.Fprintf(p.out, "mlx5d: "+format+"\n", a...)
}

// run is the life of process 1. Whatever fails, the machine ends as wished.
func (p *initProcess) run() {
	args, code := p.own, initFailed
	p.guard(func() {
		var modules []string
		modules, args = p.bringUp()
		p.loadModules(modules, args)
		code = p.supervise(args)
	})
	p.guard(func() { p.end(chooseExit(args), code) })
	p.rest()
}

// guard keeps a panic of process 1 itself from ending it.
func (p *initProcess) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			p.say("process 1 failed: %v\n%s", r, debug.Stack())
		}
	}()
	f()
}

// bringUp makes the machine usable. It returns the words of the kernel's command
// line that are for modules and those that are for the appliance.
func (p *initProcess) bringUp() (modules, args []string) {
	var failed []string
	for _, m := range initMounts {
		if err := p.mount(m); err != nil && !errors.Is(err, unix.EBUSY) {
			failed = append(failed, fmt.Sprintf("cannot mount %s on %s: %v", m.kind, m.target, err))
		}
	}
	if err := p.console(); err != nil {
		failed = append(failed, fmt.Sprintf("cannot open the console: %v", err))
	}
	for _, s := range p.prepare {
		if err := s.do(); err != nil {
			failed = append(failed, fmt.Sprintf("cannot %s: %v", s.what, err))
		}
	}
	line, err := p.readFile("/proc/cmdline")
	if err != nil {
		failed = append(failed, fmt.Sprintf("cannot read the kernel's command line, process 1's own arguments are taken: %v", err))
		args = p.own
	} else {
		modules, args = splitAtDashes(kernelWords(strings.TrimSuffix(string(line), "\n")))
	}
	for _, f := range failed {
		p.say("%s", f)
	}
	return modules, args
}

// loadModules loads what the image carries. Nothing of it is needed without
// hardware, and a kernel may have it built in.
func (p *initProcess) loadModules(params, args []string) {
	names, err := p.moduleList()
	if err != nil {
		p.say("cannot read the list of modules: %v", err)
	}
	for _, name := range names {
		file := path.Join(moduleDir, name)
		if err := p.loadModule(file, moduleParams(params, name)); err != nil && !errors.Is(err, unix.EEXIST) {
			p.say("cannot load the module %s: %v", file, explainModule(err))
		}
	}
	if wantsHardware(args) && !p.exists("/sys/bus/pci/drivers/vfio-pci") {
		p.say("this kernel has no vfio-pci, without which no NIC can be opened: build the image with MODULES=/lib/modules/VERSION of this kernel")
	}
}

// moduleList reads all lists there are. An image without modules has none.
func (p *initProcess) moduleList() ([]string, error) {
	entries, err := p.list(moduleDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var lists []string
	for _, e := range entries {
		if !strings.HasSuffix(e, ".order") {
			continue
		}
		b, failed := p.readFile(path.Join(moduleDir, e))
		err = errors.Join(err, failed)
		lists = append(lists, string(b))
	}
	return moduleOrder(lists), err
}

// moduleOrder joins lists of modules. A module that several lists name is loaded
// where it is first named: each list has what its modules need before them.
func moduleOrder(lists []string) (names []string) {
	for _, list := range lists {
		for _, name := range strings.Fields(list) {
			if name = path.Base(name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// moduleName is the name that the kernel gives the module in a file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// moduleParams picks a module's parameters out of the kernel's command line, where
// they stand as module.parameter=value, as modprobe does.
func moduleParams(words []string, file string) string {
	var out []string
	for _, w := range words {
		name, param, ok := strings.Cut(w, ".")
		if !ok || strings.ContainsRune(name, '=') || strings.ReplaceAll(name, "-", "_") != moduleName(file) {
			continue
		}
		if key, value, ok := strings.Cut(param, "="); ok && strings.ContainsAny(value, kernelSpace) {
			param = key + `="` + value + `"`
		}
		out = append(out, param)
	}
	return strings.Join(out, " ")
}

// explainModule says what a failed load means.
func explainModule(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it or one that it needs is not in the image", err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("%w: it was made for another kernel, build the image with MODULES of this one", err)
	case errors.Is(err, unix.EKEYREJECTED), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: this kernel takes only modules signed with its own key", err)
	}
	return err
}

// wantsHardware reports whether args are about real NICs.
func wantsHardware(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, ok := flagWord(a)
		return ok && (name == "pci" || name == "bind" || name == "list")
	})
}

// supervise runs the appliance until it ends and returns its exit code.
func (p *initProcess) supervise(args []string) int {
	child, err := p.start(args)
	if err != nil {
		p.say("cannot start the appliance: %v", err)
		return initFailed
	}
	type ending struct {
		status unix.WaitStatus
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		status, err := p.reap(child)
		ended <- ending{status, err}
	}()
	for stops := 0; ; {
		select {
		case e := <-ended:
			if e.err != nil {
				p.say("the appliance is lost: %v", e.err)
				return initFailed
			}
			code, why := exitOf(e.status)
			if why != "" {
				p.say("the appliance was %s", why)
			}
			return code
		case sig := <-p.signals:
			send := forwarded(sig, stops)
			if sig != unix.SIGUSR1 {
				stops++
			}
			if err := p.kill(child, send); err != nil && !errors.Is(err, unix.ESRCH) {
				p.say("cannot stop the appliance: %v", err)
			}
		}
	}
}

// forwarded chooses what the appliance gets for a signal to process 1, after some
// that asked it to stop. Ctrl-alt-del is SIGINT. A second wish to stop waits no more.
func forwarded(sig os.Signal, stops int) syscall.Signal {
	switch {
	case sig == unix.SIGUSR1:
		return unix.SIGUSR1
	case stops > 0:
		return unix.SIGKILL
	}
	return unix.SIGTERM
}

// reap takes in all that end, orphans too, until child has.
func (p *initProcess) reap(child int) (unix.WaitStatus, error) {
	for {
		pid, status, err := p.wait()
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case pid == child && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}

// exitOf is the exit code of a process that has ended; of one that a signal
// ended it is 128 and the signal's number, as in shells, and why says so.
func exitOf(s unix.WaitStatus) (code int, why string) {
	if s.Signaled() {
		return 128 + int(s.Signal()), fmt.Sprintf("ended by %s (%v)", unix.SignalName(s.Signal()), s.Signal())
	}
	return s.ExitStatus(), ""
}

// end ends the machine. The line with the exit code is for programs that read
// the console: its form is fixed.
func (p *initProcess) end(a exitAction, code int) {
	p.say("exit code %d", code)
	if code != 0 && a.name == onExitReboot {
		p.sleep(rebootPause)
	}
	p.guard(p.settle)
	if err := p.reboot(a.command); err != nil {
		p.say("cannot %s: %v; it is safe to switch off", a.name, err)
	}
}

// chooseExit finds -on-exit among args, whatever else is wrong with them. The
// last one counts. A value that there is not is the appliance's to complain about.
func chooseExit(args []string) exitAction {
	chosen := exitActions[0]
	for i, arg := range args {
		name, value, ok := flagWord(arg)
		if !ok || name != "on-exit" {
			continue
		}
		if !strings.Contains(arg, "=") && i+1 < len(args) {
			value = args[i+1]
		}
		if n := slices.IndexFunc(exitActions, func(a exitAction) bool { return a.name == value }); n >= 0 {
			chosen = exitActions[n]
		}
	}
	return chosen
}

// flagWord takes apart -name, --name, -name=value.
func flagWord(arg string) (name, value string, ok bool) {
	name, ok = strings.CutPrefix(arg, "-")
	if !ok {
		return "", "", false
	}
	name, value, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
	return name, value, true
}

// kernelSpace is what separates words of the kernel's command line.
const kernelSpace = " \t\n\v\f\r"

// kernelWords splits a kernel command line as the kernel does: space between
// double quotes does not separate, and quotes around a word or around what
// follows its first = are dropped. Other quotes stay, and there is no escape.
func kernelWords(line string) (words []string) {
	for {
		line = strings.TrimLeft(line, kernelSpace)
		if line == "" {
			return words
		}
		var w string
		w, line = nextKernelWord(line)
		words = append(words, w)
	}
}

// nextKernelWord takes the word at the front of s, which is not empty.
func nextKernelWord(s string) (word, rest string) {
	s, quoted := strings.CutPrefix(s, `"`)
	inside := quoted
	end := 0
	for ; end < len(s) && (inside || !strings.Contains(kernelSpace, s[end:end+1])); end++ {
		if s[end] == '"' {
			inside = !inside
		}
	}
	word, rest = s[:end], s[end:]
	closed := false
	// A = in first place is part of the name.
	if i := strings.IndexByte(word[min(1, len(word)):], '=') + 1; i > 0 && strings.HasPrefix(word[i+1:], `"`) {
		value := word[i+2:]
		value, closed = strings.CutSuffix(value, `"`)
		word = word[:i+1] + value
	}
	if quoted && !closed {
		word = strings.TrimSuffix(word, `"`)
	}
	return word, rest
}

// splitAtDashes parts the words for the kernel from those for process 1.
func splitAtDashes(words []string) (before, after []string) {
	if i := slices.Index(words, "--"); i >= 0 {
		return words[:i], words[i+1:]
	}
	return words, nil
}

// linuxInit is the real kernel.
func linuxInit() initCalls {
	hasTerminal := false
	return initCalls{
		mount: mountKernelFS,
		console: func() (err error) {
			hasTerminal, err = openConsole()
			return err
		},
		readFile:   os.ReadFile,
		list:       listNames,
		exists:     func(path string) bool { _, err := os.Stat(path); return err == nil },
		loadModule: loadModuleFile,
		prepare: []initStep{
			{"lift the limit on locked memory", liftMemlock},
			{"get ctrl-alt-del as a signal", func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) }},
			{"bring up the loopback interface", bringUpLoopback},
		},
		start: func(args []string) (int, error) { return startSelf(args, hasTerminal) },
		wait: func() (pid int, status unix.WaitStatus, err error) {
			pid, err = unix.Wait4(-1, &status, 0, nil)
			return pid, status, err
		},
		kill:   syscall.Kill,
		sleep:  time.Sleep,
		settle: settleOutput,
		reboot: unix.Reboot,
		rest: func() {
			for {
				_ = unix.Pause()
			}
		},
	}
}

func mountKernelFS(m initMount) error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	return unix.Mount(m.kind, m.target, m.kind, m.flags, m.data)
}

// openConsole makes the console files 0 to 2, where the kernel may have put
// nothing, and the terminal of process 1's session: Ctrl-C then reaches the
// appliance. It must not be the appliance's session: the end of a session's
// leader hangs its terminal up, and what was written last is lost.
func openConsole() (terminal bool, err error) {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	for i := range 3 {
		if fd != i {
			if err := unix.Dup3(fd, i, 0); err != nil {
				return false, err
			}
		}
	}
	if fd > 2 {
		_ = unix.Close(fd) // nothing was written through it
	}
	// Both fail harmlessly: process 1 may lead a session, a console be no terminal.
	_, _ = unix.Setsid()
	return unix.IoctlSetInt(0, unix.TIOCSCTTY, 0) == nil, nil
}

// listNames are the names in a folder, sorted.
func listNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func loadModuleFile(path, params string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.FinitModule(fd, params, 0)
}

func liftMemlock() error {
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

// bringUpLoopback sets lo up; the kernel then gives it its addresses.
func bringUpLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// startSelf starts the appliance: this binary again, in the terminal's foreground
// when there is one.
func startSelf(args []string, terminal bool) (pid int, err error) {
	attr := &syscall.ProcAttr{Env: applianceEnv(os.Environ()), Files: []uintptr{0, 1, 2}}
	if terminal {
		attr.Sys = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	}
	argv := append([]string{"mlx5d"}, args...)
	if pid, err = syscall.ForkExec("/proc/self/exe", argv, attr); err == nil {
		return pid, nil
	}
	attr.Sys = nil
	return syscall.ForkExec(os.Args[0], argv, attr)
}

// applianceEnv makes a panic end the appliance with SIGABRT, not with the exit
// code that stands for wrong use.
func applianceEnv(env []string) []string {
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "GOTRACEBACK=") }) {
		return env
	}
	return append(slices.Clone(env), "GOTRACEBACK=crash")
}

// settleOutput writes files to disks and waits until the console has sent what it
// was given: the end of the machine does not wait for a serial line.
func settleOutput() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		unix.Sync()
		_ = unix.IoctlSetInt(2, unix.TCSBRK, 1) // tcdrain(3); fails where no terminal is
	}()
	select {
	case <-done:
	case <-time.After(drainLimit):
	}
}
