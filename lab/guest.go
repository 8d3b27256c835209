package main

// This file owns one virtual machine: the emulator's command line, its serial
// ports and their log, and the conversation with the guest's agent. It knows
// nothing of scenarios.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// machine describes a guest before it starts.
type machine struct {
	name    string
	sockets []string // vfio-user sockets, one function each
	cpus    int      // default 1
	memory  int      // MiB, default 768
	iommu   bool     // an emulated VT-d in caching mode
	posted  bool     // register writes do not wait for the device
	icount  bool     // guest time is instructions executed
	plugin  string   // argument of -plugin
	append  string   // more for the kernel's command line
	kernel  string   // default: the lab's
	initrd  string   // default: the lab's base image with the agent
	files   map[string][]byte
}

// guest is a running machine.
type guest struct {
	name  string
	log   string // file with both serial ports
	image string // the image made for it alone, or nothing
	cmd   *exec.Cmd
	in    io.WriteCloser // second serial port, to the guest

	lines chan string // second serial port, from the guest
	ended chan struct{}
	err   error // how the emulator ended; read after ended

	began   time.Time // what the log's seconds count from
	mu      sync.Mutex
	file    *os.File
	console []string // first serial port, whole lines
	grown   chan struct{}
}

// arguments is the emulator's command line.
func (m *machine) arguments(l *lab, initrd string) []string {
	accel := "accel=" + l.accel
	if m.icount {
		accel = "accel=tcg"
	}
	memory := strconv.Itoa(m.memory) + "M"
	args := []string{
		"-machine", "q35," + accel + ",kernel-irqchip=" + irqchip(l.accel, m.icount) + ",memory-backend=mem",
		"-object", "memory-backend-memfd,id=mem,share=on,size=" + memory, "-m", memory,
		"-cpu", "max", "-smp", strconv.Itoa(m.cpus),
		"-L", filepath.Join(l.root, "usr/share/seabios"), "-L", filepath.Join(l.root, "usr/share/qemu"),
		"-display", "none", "-vga", "none", "-no-reboot", "-nic", "none", "-no-user-config", "-nodefaults",
		"-chardev", "file,id=console,path=/dev/fd/3", "-serial", "chardev:console",
		"-chardev", "stdio,id=agent,signal=off", "-serial", "chardev:agent",
	}
	if m.iommu {
		args = append(args, "-device", "intel-iommu,caching-mode=on,intremap=on,aw-bits=48")
	}
	if m.icount {
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	if m.plugin != "" {
		args = append(args, "-plugin", m.plugin)
	}
	for i, s := range m.sockets {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d", i, i+1, i+1), "-device", functionJSON(s, i, m.posted))
	}
	kernelLine := "console=ttyS0 panic=-1 loglevel=6 tsc=reliable random.trust_cpu=on net.ifnames=0 " + m.append
	return append(args, "-kernel", m.kernel, "-initrd", initrd, "-append", kernelLine)
}

func irqchip(accel string, icount bool) string {
	if accel == "kvm" && !icount {
		return "split"
	}
	return "off"
}

// functionJSON is the device option: the socket property is a structure, so
// only the JSON form will do.
func functionJSON(socket string, i int, posted bool) string {
	b, _ := json.Marshal(map[string]any{
		"driver": "vfio-user-pci", "bus": fmt.Sprintf("rp%d", i), "rombar": 0, "x-no-posted-writes": !posted,
		"socket": map[string]string{"type": "unix", "path": socket},
	})
	return string(b)
}

// start boots m and waits for its agent. The guest is killed when ctx ends.
func (l *lab) start(ctx context.Context, m machine) (*guest, error) {
	g, err := l.boot(ctx, m)
	if err != nil {
		return nil, err
	}
	return g, g.ready()
}

// boot starts m and returns at once.
func (l *lab) boot(ctx context.Context, m machine) (*guest, error) {
	if m.cpus == 0 {
		m.cpus = 1
	}
	if m.memory == 0 {
		m.memory = 768
	}
	if m.kernel == "" {
		m.kernel = filepath.Join(l.cache, "vmlinuz")
	}
	rd := m.initrd
	if rd == "" {
		rd = filepath.Join(l.out, m.name+".cpio")
		files := map[string][]byte{"init": l.agent}
		for n, b := range m.files {
			files[n] = b
		}
		if err := initrd(rd, filepath.Join(l.cache, "base.cpio"), files); err != nil {
			return nil, fmt.Errorf("packing the guest image: %w", err)
		}
	}
	own := ""
	if m.initrd == "" {
		own = rd
	}
	g := &guest{name: m.name, image: own, began: time.Now(), log: filepath.Join(l.out, m.name+".log"), lines: make(chan string, 4096), ended: make(chan struct{}), grown: make(chan struct{}, 1)}
	if err := g.launch(ctx, l, m.arguments(l, rd)); err != nil {
		return nil, fmt.Errorf("starting guest %s: %w", m.name, err)
	}
	l.guests = append(l.guests, g)
	return g, nil
}

// launch runs the emulator out of the lab's own root, with that root's loader
// and libraries: no chroot is entered.
func (g *guest) launch(ctx context.Context, l *lab, args []string) error {
	var err error
	if g.file, err = os.Create(g.log); err != nil {
		return err
	}
	loader := filepath.Join(l.root, "lib64/ld-linux-x86-64.so.2")
	libs := filepath.Join(l.root, "usr/lib/x86_64-linux-gnu")
	full := append([]string{"--library-path", libs, filepath.Join(l.root, "usr/bin/qemu-system-x86_64")}, args...)
	g.cmd = exec.CommandContext(ctx, loader, full...)
	g.cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(libs, "qemu"))
	fmt.Fprintf(g.file, "%s\n", strings.Join(g.cmd.Args, " "))
	conR, conW, err := os.Pipe()
	if err != nil {
		return err
	}
	g.cmd.ExtraFiles = []*os.File{conW}
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	g.cmd.Stderr = logWriter{g}
	if err := g.cmd.Start(); err != nil {
		_ = conR.Close()
		_ = conW.Close()
		return err
	}
	_ = conW.Close()
	var readers sync.WaitGroup
	readers.Add(2)
	go func() { defer readers.Done(); g.follow(out) }()
	go func() { defer readers.Done(); g.watch(conR) }()
	go func() {
		readers.Wait()
		g.err = g.cmd.Wait()
		close(g.ended)
	}()
	return nil
}

// logWriter puts what the emulator itself says into the log.
type logWriter struct{ g *guest }

func (w logWriter) Write(p []byte) (int, error) {
	w.g.note(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func (g *guest) note(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fmt.Fprintf(g.file, "%7.2f %s\n", time.Since(g.began).Seconds(), s)
}

// follow hands on the agent's lines.
func (g *guest) follow(r io.Reader) {
	defer close(g.lines)
	in := bufio.NewReader(r)
	for {
		s, err := in.ReadString('\n')
		if s = strings.TrimRight(s, "\r\n"); s != "" || err == nil {
			g.note(s)
			g.lines <- s
		}
		if err != nil {
			return
		}
	}
}

// watch keeps the console's lines.
func (g *guest) watch(r io.ReadCloser) {
	defer func() { _ = r.Close() }()
	in := bufio.NewReader(r)
	for {
		s, err := in.ReadString('\n')
		if s = strings.TrimRight(s, "\r\n"); s != "" {
			g.note("| " + s)
			g.mu.Lock()
			g.console = append(g.console, s)
			g.mu.Unlock()
			select {
			case g.grown <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// errGone says that the emulator ended while something was expected of it.
var errGone = errors.New("the virtual machine ended")

const bootPatience = 90 * time.Second

func (g *guest) ready() error {
	deadline := time.After(bootPatience)
	for {
		select {
		case s, ok := <-g.lines:
			if !ok {
				return fmt.Errorf("guest %s: %w while booting", g.name, errGone)
			}
			if strings.HasSuffix(s, "@@ready") {
				return nil
			}
		case <-deadline:
			return fmt.Errorf("guest %s: no agent after %v", g.name, bootPatience)
		}
	}
}

// result is what a command in the guest gave.
type result struct {
	out  string
	code int
}

var exitLine = regexp.MustCompile(`^@@exit (\d+)$`)

// try runs a command in the guest's shell and waits for its end.
func (g *guest) try(patience time.Duration, command string) (result, error) {
	if err := g.tell(command); err != nil {
		return result{}, err
	}
	return g.await(patience, command)
}

// tell starts a command; await gets its result.
func (g *guest) tell(command string) error {
	if strings.ContainsAny(command, "\n\r") {
		return fmt.Errorf("a guest command is one line: %q", command)
	}
	g.note("$ " + command)
	if _, err := io.WriteString(g.in, command+"\n"); err != nil {
		return fmt.Errorf("guest %s: %w", g.name, errGone)
	}
	return nil
}

func (g *guest) await(patience time.Duration, command string) (result, error) {
	var out []string
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case s, ok := <-g.lines:
			if !ok {
				return result{}, fmt.Errorf("guest %s: %w during %q", g.name, errGone, command)
			}
			if m := exitLine.FindStringSubmatch(s); m != nil {
				code, _ := strconv.Atoi(m[1])
				return result{out: strings.TrimSpace(strings.Join(out, "\n")), code: code}, nil
			}
			out = append(out, s)
		case <-deadline.C:
			return result{}, fmt.Errorf("guest %s: %q did not end within %v", g.name, command, patience)
		}
	}
}

// commandPatience is enough for whatever has no time of its own.
const commandPatience = 60 * time.Second

// run is try for a command that has to succeed; it returns the output.
func (g *guest) run(format string, args ...any) (string, error) {
	return g.runFor(commandPatience, format, args...)
}

func (g *guest) runFor(patience time.Duration, format string, args ...any) (string, error) {
	command := fmt.Sprintf(format, args...)
	r, err := g.try(patience, command)
	if err != nil {
		return "", err
	}
	if r.code != 0 {
		return r.out, fmt.Errorf("guest %s: %q gave %d: %s", g.name, command, r.code, lastLine(r.out))
	}
	return r.out, nil
}

// all runs commands in order and stops at the first that fails.
func (g *guest) all(commands ...string) error {
	for _, c := range commands {
		if _, err := g.run("%s", c); err != nil {
			return err
		}
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// expect waits until a console line matches and returns its submatches. Lines
// before from are not looked at; it returns where to go on.
func (g *guest) expect(ctx context.Context, from int, re *regexp.Regexp) (match []string, next int, err error) {
	for {
		g.mu.Lock()
		lines := g.console
		g.mu.Unlock()
		for ; from < len(lines); from++ {
			if m := re.FindStringSubmatch(lines[from]); m != nil {
				return m, from + 1, nil
			}
		}
		select {
		case <-g.grown:
		case <-g.ended:
			g.mu.Lock()
			more := len(g.console) > from
			g.mu.Unlock()
			if !more {
				return nil, from, fmt.Errorf("guest %s: %w before its console said %q", g.name, errGone, re)
			}
		case <-ctx.Done():
			return nil, from, fmt.Errorf("guest %s: its console never said %q", g.name, re)
		}
	}
}

// transcript is the console so far.
func (g *guest) transcript() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.console
}

// off powers the guest off and waits.
func (g *guest) off() error {
	if err := g.tell("sync; poweroff -f"); err != nil {
		return err
	}
	return g.wait(commandPatience)
}

// wait waits for the emulator's own end.
func (g *guest) wait(patience time.Duration) error {
	go func() {
		for range g.lines {
		}
	}()
	select {
	case <-g.ended:
		if g.err != nil {
			return fmt.Errorf("guest %s: the emulator: %w", g.name, g.err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("guest %s does not power off", g.name)
	}
}

// kill ends the emulator whatever it does.
func (g *guest) kill() {
	if g.cmd.Process != nil {
		_ = g.cmd.Process.Kill()
	}
	go func() {
		for range g.lines {
		}
	}()
	<-g.ended
	_ = g.file.Close()
	if g.image != "" {
		_ = os.Remove(g.image)
	}
}
