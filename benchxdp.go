package main

// benchxdp.go owns the benchmarks of programs: dropping, answering, filtering
// before a frame is a packet. It does not own how a section is made and timed
// (benchrx.go): that is the channel's own turn, with the program in it.

import (
	"fmt"
	"strings"
)

// benchFilter is what tcpdump -ddd prints for "ip and udp and not port 7".
const benchFilter = `13
40 0 0 12
21 0 10 2048
48 0 0 23
21 0 8 17
40 0 0 20
69 5 0 8191
177 0 0 14
72 0 0 14
21 3 0 7
72 0 0 16
21 1 0 7
6 0 0 262144
6 0 0 0`

// xdpVariants are what is timed, by the figure's name. Handlers look at nothing:
// what passes costs its view and no more.
var xdpVariants = []struct {
	name    string
	program func() (xdpProgramMaker, error)
}{
	{"xdp.drop", func() (xdpProgramMaker, error) { return parseProgram("drop") }},
	{"xdp.tx", func() (xdpProgramMaker, error) { return parseProgram("tx") }},
	{"xdp.bpf", func() (xdpProgramMaker, error) {
		filter, err := parseBPF(strings.NewReader(benchFilter))
		if err == nil {
			err = verifyBPF(filter)
		}
		return filterBy(filter), err
	}},
}

// newXDPBench prepares one of xdpVariants.
func newXDPBench(name string) (*rxBench, error) {
	for _, v := range xdpVariants {
		if v.name != name {
			continue
		}
		program, err := v.program()
		if err != nil {
			return nil, err
		}
		r, err := newBenchRigFor("cx5", "gen:size=64,count=0", wishes{queues: 1, promisc: true, xdp: true})
		if err != nil {
			return nil, err
		}
		b := &rxBench{r, r.nic.channels[0]}
		b.c.setHandler(dropWork{})
		r.nic.applyFlags()
		r.dev.resume() // the device answers commands
		err = r.nic.attach(program)
		r.dev.pause()
		if err != nil {
			_ = b.close()
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("no benchmark %s", name)
}

// benchXDP measures programs.
func benchXDP() (out []figure, err error) {
	var names []string
	for _, v := range xdpVariants {
		names = append(names, v.name)
	}
	benches, out, err := measureAll(names, newXDPBench, "xdp.allocs")
	defer closeAll(benches)
	if err != nil {
		return nil, err
	}
	counted, err := instructionFigures(names...)
	return append(out, counted...), err
}

// isXDP tells the benchmarks of programs from the others by name.
func isXDP(name string) bool { return strings.HasPrefix(name, "xdp.") }
