package main

// options.go owns the command line's flags: their names, defaults, help text and
// what contradicts what. What a flag leads to is appliance.go's and others'.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"mlx5d/model"
)

// options are the flags as parsed.
type options struct {
	xskOptions
	list, bind, emulate, showVersion bool
	pci, profile, wire, mode         string
	write, logForm, serve            string
	mmapDoorbells                    bool
	bench, onExit                    string
	asJSON, stats, busy              bool
	queues, rxRing, txRing, mtu      int
	privFlags, coalesceList          string
	coalesce                         coalesceWish
	adaptive, strip, trap            bool
	txInline                         int
	blueflame                        bool
	flagWishes                       map[string]bool
	toggleTexts                      listFlag
	toggles                          []*toggle
	snaplen, flows, size             int
	read, offloadList                string
	fileFrames, fileLongest          int // of -r, once it was read
	offloads                         offloadSet
	addresses                        string
	xdp, bpf, datapath               string
	filter                           []bpfInsn // of -bpf
	ruleTexts                        listFlag
	rules                            []rule
	addrs                            []netip.Addr
	promisc                          bool
	allMulti                         bool
	set                              map[string]bool // flags that were given
	duration                         time.Duration
	count                            uint64
}

// flagGroup is a part of -h: flags by task with an example.
type flagGroup struct {
	title, example string
	names          []string
}

var flagGroups = []flagGroup{
	{"Choose a device", "mlx5d -bind -pci 0000:03:00.0", []string{"list", "pci", "bind"}},
	{"Run without hardware", "mlx5d -emulate -profile cx5 -wire replay:traffic.pcap", []string{"emulate", "profile", "wire"}},
	{"Serve virtual machines", "mlx5d -serve a.sock,b.sock -profile cx5", []string{"serve", "mmap-doorbells"}},
	{"What to do", "mlx5d -emulate -mode inspect -json -duration 10s", []string{"mode", "duration", "count", "addr", "size", "r", "offload"}},
	{"Steer packets to queues", "mlx5d -emulate -queues 4 -rule 'flow-type udp4 dst-port 5000 action 3' " +
		"-rule 'flow-type tcp4 src-ip 10.0.0.0 m 0.255.255.255 action -1'", []string{"rule"}},
	{"Programs in front of the handler (XDP)", "mlx5d -emulate -bpf <(tcpdump -ddd 'udp port 53')", []string{"xdp", "bpf", "datapath"}},
	{"Give queues to other processes, without a copy", "mlx5d -attach xsk.sock -mode rxdrop -queue 2", xskFlagNames},
	{"Output", "mlx5d -emulate -wire gen:count=1000 -w capture.pcapng", []string{"json", "w", "snaplen", "stats", "log"}},
	{"Size and tune", "mlx5d -emulate -queues 4 -rx-ring 2048 -mtu 9000", []string{"queues", "rx-ring", "tx-ring", "mtu", "promisc", "allmulti",
		"busy-poll", "coalesce", "adaptive-rx", "rx-vlan-offload", "trap-queue", "flows", "priv-flags", "toggle", "tx-inline", "blueflame"}},
	{"Measure", "mlx5d -bench tx -json", []string{"bench"}},
	{"Run as /init, flags on the kernel's command line", "console=ttyS0 -- -bind -pci 0000:03:00.0 -on-exit reboot", []string{"on-exit"}},
	{"About", "mlx5d -version", []string{"version"}},
}

// onOffFlag is a flag that takes the word on or off.
type onOffFlag struct{ on *bool }

func (f onOffFlag) String() string {
	if f.on == nil {
		return "off"
	}
	return onOff(*f.on)
}

func (f onOffFlag) Set(s string) error {
	if s != "on" && s != "off" {
		return errors.New("on or off")
	}
	*f.on = s == "on"
	return nil
}

// Values of -datapath.
const (
	datapathPlain = "plain"
	datapathXDP   = "xdp" // programs and the XDP send queues
)

var datapaths = []string{datapathPlain, datapathXDP, datapathXSK}

// programs reports whether programs will see frames.
func (o *options) programs() bool { return o.xdp != "" || o.bpf != "" || o.datapath == datapathXDP }

// checkProgram finds contradictions about programs and reads the filter.
func (o *options) checkProgram() (err error) {
	switch {
	case !slices.Contains(datapaths, o.datapath):
		return wishf("-datapath %s: %s", o.datapath, strings.Join(datapaths, ", "))
	case o.xdp != "" && o.bpf != "":
		return wishf("-xdp and -bpf exclude each other: there is one program at a time")
	case o.datapath != datapathPlain && (o.xdp != "" || o.bpf != ""):
		return wishf("-datapath %s has a program of its own: leave -xdp and -bpf out", o.datapath)
	case o.datapath != datapathPlain && !slices.Contains([]string{modeDrop, modeSend, modeForward}, o.mode):
		return wishf("-datapath %s is for -mode %s, %s and %s, not %s", o.datapath, modeDrop, modeSend, modeForward, o.mode)
	}
	if _, err := parseProgram(o.xdp); err != nil {
		return err
	}
	if o.bpf != "" {
		o.filter, err = loadBPF(o.bpf)
	}
	return err
}

// listFlag is a flag that can be given again and again.
type listFlag []string

func (l *listFlag) String() string { return strings.Join(*l, "; ") }

func (l *listFlag) Set(s string) error {
	*l = append(*l, s)
	return nil
}

// joinFlag is a list behind commas; given again it grows.
type joinFlag struct{ list *string }

func (f joinFlag) String() string {
	if f.list == nil {
		return ""
	}
	return *f.list
}

func (f joinFlag) Set(s string) error {
	if *f.list != "" {
		s = *f.list + "," + s
	}
	*f.list = s
	return nil
}

// timeFlag is a time with its unit, or in seconds.
type timeFlag struct{ time *time.Duration }

func (f timeFlag) String() string {
	if f.time == nil {
		return "0s"
	}
	return f.time.String()
}

func (f timeFlag) Set(s string) (err error) {
	if *f.time, err = parseTime(s); err != nil {
		return errors.New("a time such as 10s or 1m30s, or seconds")
	}
	return nil
}

// Values of -on-exit.
const (
	onExitPowerOff = "poweroff"
	onExitReboot   = "reboot"
	onExitHalt     = "halt"
)

var onExitNames = []string{onExitPowerOff, onExitReboot, onExitHalt}

func newFlags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("mlx5d", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.list, "list", false, "list supported `functions`, whether each can be used now, and if not what to do")
	f.StringVar(&o.pci, "pci", "", "open the functions at PCI `ADDR[,ADDR]`, such as 0000:03:00.0; mode l2fwd forwards between two")
	f.BoolVar(&o.bind, "bind", false, "bind it to vfio-pci first and give it back to its driver at exit")
	f.BoolVar(&o.emulate, "emulate", false, "use the embedded emulated ConnectX instead of hardware")
	f.StringVar(&o.profile, "profile", "cx5", "what is emulated: "+strings.Join(model.Profiles(), ", "))
	f.StringVar(&o.wire, "wire", "gen", "what is plugged into the emulated port: `SPEC` is gen, replay:FILE, loop, tap:NAME, if:NAME or none, with options behind commas")
	f.StringVar(&o.serve, "serve", "", "serve emulated devices over vfio-user at `SOCKET[,SOCKET]`, their ports joined in pairs")
	f.BoolVar(&o.mmapDoorbells, "mmap-doorbells", false, "share doorbell pages as memory instead of trapping each access")
	f.StringVar(&o.mode, "mode", "inspect", "what to do with packets: "+strings.Join(modeNames(), ", "))
	f.Var(joinFlag{&o.addresses}, "addr", "in mode echo, answer ARP, ping and neighbour discovery for `IP[,IP]`")
	f.IntVar(&o.size, "size", 60, "in mode txonly, frames of `BYTES` without FCS")
	f.StringVar(&o.read, "r", "", "in mode txonly, send the frames of `FILE` (pcap or pcapng) in order, again and again; with several queues each sends a share")
	f.Var(joinFlag{&o.offloadList}, "offload", "with -r, let the device do `LIST`: csum fills in checksums, vlan inserts the outer tag, tso cuts TCP frames longer than the MTU")
	f.Var(timeFlag{&o.duration}, "duration", "stop after this `TIME`, such as 10s or 1m30s, a number alone is seconds; 0 is not at all")
	f.Uint64Var(&o.count, "count", 0, "stop after exactly `N` packets: received, in mode txonly sent; 0 is not at all")
	f.BoolVar(&o.asJSON, "json", false, "print the summary as one JSON object, counters and functions too, one a line")
	f.StringVar(&o.write, "w", "", "write received frames to `FILE` (pcapng when it ends in .pcapng, else pcap; - is standard output)")
	f.IntVar(&o.snaplen, "snaplen", 0, "cut frames in FILE to `N` bytes; 0 is not at all")
	f.BoolVar(&o.stats, "stats", false, "print all counters at the end, as ethtool -S does; on standard error where frames go to standard output")
	f.StringVar(&o.logForm, "log", "text", "`FORM` of messages: text or json")
	f.IntVar(&o.queues, "queues", 0, "`N` receive queues; 0 is one for each CPU, which ports share")
	f.IntVar(&o.rxRing, "rx-ring", defaultRing, "`N` receive buffers a queue")
	f.IntVar(&o.txRing, "tx-ring", defaultRing, "`N` send descriptors a queue, 64 bytes each")
	f.IntVar(&o.mtu, "mtu", 0, "largest payload in `BYTES`; 0 is the largest that works when inspecting without -xsk-listen, else 1500")
	f.BoolVar(&o.allMulti, "allmulti", true, "take all multicast; off takes only what -addr needs for neighbour discovery")
	f.BoolVar(&o.promisc, "promisc", false, "take frames for other addresses too; on by default when inspecting")
	f.BoolVar(&o.busy, "busy-poll", false, "spin instead of waiting for interrupts")
	f.IntVar(&o.flows, "flows", 0, "`N` flows a queue can hold; 0 is the default")
	f.StringVar(&o.bench, "bench", "", "measure `LIST`: all, "+strings.Join(benchNames(), ", ")+", or single figures by name")
	f.StringVar(&o.onExit, "on-exit", onExitPowerOff, "as process 1, what the machine does when the run is over, however it ends: `ACTION` is "+strings.Join(onExitNames, ", "))
	f.IntVar(&o.txInline, "tx-inline", -1, fmt.Sprintf("put frames of up to `BYTES`, at most %d, into the send WQE: less for the bus, more for the CPU; -1 decides by the number of queues", maxInlineFrame))
	f.BoolVar(&o.blueflame, "blueflame", false, "send a burst of one small work request to the device together with its doorbell: lone packets leave sooner. On hardware this needs a memory type register (MTRR) a queue")
	f.Var(joinFlag{&o.privFlags}, "priv-flags", "set private flags: `NAME=on|off[,...]` with ethtool's names for mlx5; NAME on|off as ethtool writes it will do too")
	f.Var(&o.toggleTexts, "toggle", "switch a private flag on and off all the time: `NAME=PERIOD`, such as skb_tx_mpwqe=10ms; can be given again for another flag")
	f.Var(joinFlag{&o.coalesceList}, "coalesce", "hold interrupts back: `LIST` is rx-usecs N rx-frames N tx-usecs N tx-frames N adaptive-rx on|off, as many of them as you like")
	f.Var(onOffFlag{&o.adaptive}, "adaptive-rx", "let the load choose rx-usecs and rx-frames: `on|off`")
	f.Var(onOffFlag{&o.strip}, "rx-vlan-offload", "let the NIC take VLAN tags out of received frames: `on|off`")
	f.Var(onOffFlag{&o.trap}, "trap-queue", "a further queue for control traffic (LLDP, slow protocols, STP, BGP, all but IP), so that a flood of it does not disturb the rest: `on|off`")
	f.Var(&o.ruleTexts, "rule", "lead what `WORDS` fit to a queue (action N) or drop it (action -1), in the words of ethtool -N; can be given again and again, and the lowest loc is looked at first")
	f.StringVar(&o.xdp, "xdp", "", "run a `PROGRAM` on every frame before it is a packet: drop, pass, tx (send it back, addresses swapped) or redirect:QUEUE (to that queue's handler; from -queues on, to the socket of -xsk-listen)")
	f.StringVar(&o.bpf, "bpf", "", "drop frames that the filter in `FILE` does not keep; tcpdump -ddd EXPRESSION prints such a file")
	f.StringVar(&o.datapath, "datapath", datapathPlain, "how modes rxdrop, txonly and l2fwd work: `PATH` is "+strings.Join(datapaths, ", "))
	o.xskOptions.addFlags(f)
	f.BoolVar(&o.showVersion, "version", false, "print the version")
	return f
}

// usage is -h: every flag, by task.
func usage(f *flag.FlagSet) string {
	var b strings.Builder
	b.WriteString("mlx5d drives a ConnectX NIC from user space and inspects what it receives.\n\nusage: mlx5d [flags]\n")
	for _, g := range flagGroups {
		fmt.Fprintf(&b, "\n%s: %s\n", g.title, g.example)
		for _, name := range g.names {
			fl := f.Lookup(name)
			arg, text := flag.UnquoteUsage(fl)
			if fl.DefValue != "" && fl.DefValue != "false" && fl.DefValue != "0" && fl.DefValue != "0s" {
				text += " (default " + fl.DefValue + ")"
			}
			fmt.Fprintf(&b, "  -%-18s %s\n", strings.TrimSpace(name+" "+arg), text)
		}
	}
	b.WriteString("\nExit codes: 0 done, 1 failed while running, 2 wrong use or bad input, 3 device lost.\n")
	return b.String()
}

// parseOptions reads the command line. flag.ErrHelp asks for usage.
func parseOptions(args []string) (o options, f *flag.FlagSet, err error) {
	f = newFlags(&o)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, f, err
		}
		return o, f, wishf("%v (-h lists the flags)", err)
	}
	o.set = map[string]bool{}
	f.Visit(func(fl *flag.Flag) { o.set[fl.Name] = true })
	return o, f, o.check(f.Args())
}

// check finds contradictions before anything is touched.
func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return wishf("%q is not a flag (-h lists them)", rest[0])
	case o.logForm != "text" && o.logForm != "json":
		return wishf("-log %s: text or json", o.logForm)
	case !slices.Contains(modeNames(), o.mode):
		return wishf("-mode %s: %s", o.mode, strings.Join(modeNames(), ", "))
	case !slices.Contains(model.Profiles(), o.profile):
		return wishf("-profile %s: %s", o.profile, strings.Join(model.Profiles(), ", "))
	case !slices.Contains(onExitNames, o.onExit):
		return wishf("-on-exit %s: %s", o.onExit, strings.Join(onExitNames, ", "))
	case o.duration < 0:
		return wishf("-duration %v is negative", o.duration)
	case o.snaplen < 0 || o.flows < 0:
		return wishf("-snaplen and -flows cannot be negative")
	case o.txInline < -1 || o.txInline > maxInlineFrame:
		return wishf("-tx-inline %d: 0 to %d bytes, or -1", o.txInline, maxInlineFrame)
	case o.showVersion:
		return nil
	case o.list || o.serve != "" || o.bench != "":
		return o.run().checkUse()
	case o.attach != "":
		if err := o.xskOptions.check(o.mode, o.datapath); err != nil {
			return err
		}
		if o.mode == modeSend && (o.size <= etherHeader || o.size > o.frame) {
			return wishf("-size %d: %d to %d can be sent from a frame (-xsk-frame)", o.size, etherHeader+1, o.frame)
		}
		return o.run().checkUse()
	case o.emulate && o.pci != "":
		return wishf("-emulate and -pci exclude each other")
	case o.bind && o.pci == "":
		return wishf("-bind needs -pci ADDR")
	case !o.emulate && o.pci == "":
		return wishf("no device: -pci ADDR opens one (-list shows them), -emulate runs without hardware")
	case o.mode == modeEcho && o.addresses == "":
		return wishf("-mode echo needs -addr IP[,IP]: the addresses to answer for")
	case o.offloadList != "" && o.read == "":
		return wishf("-offload needs -r FILE: the frames to do it to")
	case o.offloadList != "" && o.datapath == datapathXSK:
		return wishf("-offload does not go with -datapath xsk: the descriptors of AF_XDP ask for nothing")
	case o.write == "-" && o.asJSON:
		return wishf("-w - and -json exclude each other: standard output is the capture, and -json promises that all of it is JSON; write frames to a file (-w FILE)")
	}
	if err := o.run().checkUse(); err != nil {
		return err
	}
	if err := o.parseLists(); err != nil {
		return err
	}
	return o.fits(o.likelyMTU(), o.queues)
}

// parseLists reads the flags whose values have a form of their own.
func (o *options) parseLists() (err error) {
	if o.flagWishes, err = parsePrivFlags(o.privFlags); err != nil {
		return err
	}
	if o.offloads, err = parseOffloads(o.offloadList); err != nil {
		return err
	}
	if err := o.parseModeration(); err != nil {
		return err
	}
	if o.toggles, err = parseToggles(o.toggleTexts); err != nil {
		return err
	}
	if err := o.xskOptions.check(o.mode, o.datapath); err != nil {
		return err
	}
	if !o.set["promisc"] {
		o.promisc = o.mode == modeInspect
	}
	if err := o.checkProgram(); err != nil {
		return err
	}
	for _, text := range o.ruleTexts {
		r, err := parseRule(text)
		if err != nil {
			return wishf("-rule %q: %v", text, err)
		}
		o.rules = append(o.rules, r)
	}
	if o.rules, err = placeRules(o.rules); err != nil {
		return err
	}
	for _, a := range strings.FieldsFunc(o.addresses, func(r rune) bool { return r == ',' }) {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			return wishf("-addr %s: not an IP address", a)
		}
		o.addrs = append(o.addrs, ip)
	}
	return nil
}

// parseModeration reads -coalesce, which may say what -adaptive-rx says too.
func (o *options) parseModeration() error {
	wish, adaptive, err := parseCoalesce(o.coalesceList)
	switch {
	case err != nil:
		return err
	case adaptive != "" && o.set["adaptive-rx"] && onOff(o.adaptive) != adaptive:
		return wishf("-coalesce says adaptive-rx %s and -adaptive-rx %s", adaptive, onOff(o.adaptive))
	case adaptive != "":
		o.adaptive = adaptive == "on"
	}
	o.coalesce = wish
	return nil
}

// run is what the flags ask for.
func (o *options) run() *runFacts {
	r := &runFacts{set: o.set, pci: o.pci != "", socket: o.datapath == datapathXSK || o.attach != "", writes: o.write != "", reads: o.read != ""}
	switch {
	case o.list:
		r.kind, r.what = kindList, "-list"
	case o.bench != "":
		r.kind, r.what = kindBench, "-bench"
	case o.serve != "":
		r.kind, r.what = kindServe, "-serve"
	case o.attach != "":
		r.kind, r.what = attachKinds[o.mode], "-attach in mode "+o.mode
	default:
		r.kind, r.what = 1<<slices.Index(modeNames(), o.mode), "-mode "+o.mode
	}
	return r
}

// fits says why sizes that the NIC has, or will have as far as it is known, do not go
// with the frames that are asked for.
func (o *options) fits(mtu, queues int) error {
	w := frameWish{sends: o.mode == modeSend && o.read == "", size: o.size, program: o.xdp, sockets: o.listen != "",
		socket: o.datapath == datapathXSK, umem: o.umemConfig(), frames: o.fileFrames, longest: o.fileLongest}
	return w.fits(mtu, queues)
}

// likelyMTU is the MTU that flags lead to, 0 where the port decides.
func (o *options) likelyMTU() int {
	if o.mtu == 0 && o.mode != modeInspect {
		return defaultMTU
	}
	return o.mtu
}

// accepts says why a NIC of these sizes will not do.
func (o *options) accepts(c caps, p *params) error {
	for _, t := range o.toggles {
		if err := t.suits(c, p); err != nil {
			return err
		}
	}
	return o.fits(p.mtu, p.queues)
}
