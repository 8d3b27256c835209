package main

// xskflags.go owns the flags of zero-copy sockets: names, defaults, what
// contradicts what. All others are options.go's.

import (
	"flag"
	"fmt"
	"slices"
)

// datapathXSK is the value of -datapath for sockets on every channel.
const datapathXSK = "xsk"

// xskOptions are these flags as parsed.
type xskOptions struct {
	listen, attach          string
	frame, frames, headroom int
	attachQueue, attachPort int
	multi                   bool
}

// xskFlagNames are those flags, for -h.
var xskFlagNames = []string{"xsk-listen", "attach", "queue", "port", "xsk-frame", "xsk-frames", "xsk-headroom", "xsk-multi-buffer"}

// addFlags defines them.
func (o *xskOptions) addFlags(f *flag.FlagSet) {
	f.StringVar(&o.listen, "xsk-listen", "", "give zero-copy queues to processes that attach at the socket `PATH`; rules lead packets to them by numbers from -queues on")
	f.StringVar(&o.attach, "attach", "", "be such a process: attach to a queue of the appliance that listens at `PATH`, for -mode rxdrop, txonly or l2fwd")
	f.IntVar(&o.attachQueue, "queue", 0, "with -attach, the socket queue `N`: from 0, or as rules count it, from the appliance's -queues on")
	f.IntVar(&o.attachPort, "port", 0, "with -attach, the port `N`, in the order of the appliance's -pci")
	f.IntVar(&o.frame, "xsk-frame", minUMEMFrame, fmt.Sprintf("frames of `BYTES`: %d or %d", minUMEMFrame, maxUMEMFrame))
	f.IntVar(&o.frames, "xsk-frames", 4096, "`N` frames a socket")
	f.IntVar(&o.headroom, "xsk-headroom", 0, "leave `BYTES` before received data, beside XDP's 256")
	f.BoolVar(&o.multi, "xsk-multi-buffer", false, "with -attach, take packets that fill several frames")
}

// umemConfig is the UMEM they describe.
func (o *xskOptions) umemConfig() umemConfig {
	return umemConfig{frame: o.frame, frames: o.frames, headroom: o.headroom}
}

// check finds contradictions with each other and with other flags.
func (o *xskOptions) check(mode, datapath string) error {
	switch {
	case o.attach != "" && o.listen != "":
		return wishf("-attach and -xsk-listen exclude each other: one process listens, others attach")
	case o.attach != "" && !slices.Contains([]string{modeDrop, modeSend, modeForward}, mode):
		return wishf("-attach is for -mode %s, %s and %s, not %s", modeDrop, modeSend, modeForward, mode)
	case o.listen != "" && datapath == datapathXSK:
		return wishf("-xsk-listen and -datapath xsk exclude each other: a queue has one socket")
	case o.attachQueue < 0 || o.attachPort < 0:
		return wishf("-queue and -port cannot be negative")
	}
	return o.umemConfig().check()
}
