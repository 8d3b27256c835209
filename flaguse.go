package main

// flaguse.go owns which flags mean something in which kind of run, so that one that
// would do nothing is refused with the reason; and what of their values can be held
// against the NIC's sizes: before anything is touched as far as the flags tell these,
// and again when the NIC has chosen them. It does not own the flags (options.go).

import (
	"fmt"
	"strings"
)

// runKind is a kind of run, or several.
type runKind uint16

const (
	kindInspect runKind = 1 << iota
	kindDrop
	kindSend
	kindForward
	kindEcho
	kindAttachDrop
	kindAttachSend
	kindAttachForward
	kindServe
	kindBench
	kindList

	kindNIC    = kindInspect | kindDrop | kindSend | kindForward | kindEcho
	kindAttach = kindAttachDrop | kindAttachSend | kindAttachForward
	kindAny    = kindList<<1 - 1
)

// flagUses says where flags belong, each flag once, and in words where that is.
var flagUses = []struct {
	names string
	runs  runKind
	where string
}{
	{"log on-exit version", kindAny, ""},
	{"list", kindList, "itself"},
	{"bench", kindBench, "itself"},
	{"serve mmap-doorbells", kindServe, "-serve"},
	{"attach queue port xsk-multi-buffer", kindAttach, "-attach"},
	{"json", kindAny, ""},
	{"mode duration count stats busy-poll", kindNIC | kindAttach, "a run with a NIC or with -attach"},
	{"xsk-frame xsk-frames xsk-headroom", kindDrop | kindSend | kindForward | kindAttach, "-datapath xsk and -attach"},
	{"size", kindSend | kindAttachSend, "-mode txonly"},
	{"r offload", kindSend, "-mode txonly with a NIC"},
	{"addr", kindEcho, "-mode echo"},
	{"w snaplen flows", kindInspect, "-mode inspect"},
	{"emulate profile wire", kindNIC | kindServe, "-emulate and -serve"},
	{"pci bind queues rx-ring tx-ring mtu promisc allmulti coalesce adaptive-rx rx-vlan-offload trap-queue " +
		"priv-flags toggle tx-inline blueflame rule xdp bpf datapath xsk-listen", kindNIC, "a run with a NIC"},
}

// attachKinds are the modes of -attach.
var attachKinds = map[string]runKind{modeDrop: kindAttachDrop, modeSend: kindAttachSend, modeForward: kindAttachForward}

// runFacts are what the use of flags depends on.
type runFacts struct {
	kind   runKind
	what   string          // that kind in words
	set    map[string]bool // flags that were given
	pci    bool            // the NIC is hardware
	socket bool            // there are sockets of our own: -datapath xsk or -attach
	writes bool            // -w
	reads  bool            // -r
}

// checkUse refuses flags that would do nothing.
func (r *runFacts) checkUse() error {
	for _, use := range flagUses {
		for _, name := range strings.Fields(use.names) {
			if r.set[name] && use.runs&r.kind == 0 {
				return wishf("-%s has no effect with %s: it goes with %s", name, r.what, use.where)
			}
		}
	}
	for _, need := range []struct {
		names string
		has   bool
		what  string
	}{
		{"profile wire", !r.pci, "with hardware: it goes with -emulate and -serve"},
		{"xsk-frame xsk-frames xsk-headroom", r.socket, "without -datapath xsk or -attach (with -xsk-listen each client says what it wants)"},
		{"snaplen", r.writes, "without -w FILE"},
		{"size", !r.reads, "with -r FILE, whose frames have sizes of their own"},
	} {
		for _, name := range strings.Fields(need.names) {
			if r.set[name] && !need.has {
				return wishf("-%s has no effect %s", name, need.what)
			}
		}
	}
	return nil
}

// frameWish is what frames and programs need of a NIC's sizes.
type frameWish struct {
	sends   bool   // test frames
	size    int    // of these
	program string // of -xdp
	sockets bool   // of other processes: -xsk-listen
	socket  bool   // -datapath xsk
	frames  int    // of -r FILE
	longest int    // of these
	umem    umemConfig
}

// fits refuses what does not go with these sizes: the MTU and the number of queues,
// each 0 where it is not known yet.
func (w *frameWish) fits(mtu, queues int) error {
	if queue, ok := redirectQueue(w.program); ok && queues > 0 {
		if err := checkRedirect(queue, queues, w.sockets); err != nil {
			return err
		}
	}
	if mtu < minMTU { // not known, or refused anyway
		return nil
	}
	frame, why := mtu+etherHeader+vlanTag, fmt.Sprintf("the MTU is %d: -mtu", mtu)
	if w.socket {
		if err := w.socketFits(mtu); err != nil {
			return err
		}
		if err := w.fileFits(min(frame, w.umem.frame), queues); err != nil {
			return err
		}
		if w.umem.frame < frame {
			frame, why = w.umem.frame, "a frame of the UMEM: -xsk-frame"
		}
	}
	if frame > pageSize {
		frame, why = pageSize, "a page"
	}
	if w.sends && (w.size <= etherHeader || w.size > frame) {
		return wishf("-size %d: %d to %d can be sent (%s)", w.size, etherHeader+1, frame, why)
	}
	return nil
}

// socketFits holds an MTU against the frames of -datapath xsk.
func (w *frameWish) socketFits(mtu int) error {
	most := func(frame int) int { return frame - rxHeadroom - w.umem.headroom - etherHeader - vlanTag }
	switch {
	case mtu <= most(w.umem.frame):
		return nil
	case mtu <= most(maxUMEMFrame):
		return wishf("-mtu %d: with -datapath xsk a packet lies in one frame of %d bytes, up to %d: -xsk-frame %d takes up to %d",
			mtu, w.umem.frame, most(w.umem.frame), maxUMEMFrame, most(maxUMEMFrame))
	}
	return wishf("-mtu %d: with -datapath xsk at most %d (-xsk-frame %d), since a packet lies in one frame", mtu, most(maxUMEMFrame), maxUMEMFrame)
}

// fileFits holds the frames of -r FILE, which queues share, against UMEM frames, of
// which a packet fills up to most bytes of one.
func (w *frameWish) fileFits(most, queues int) error {
	switch {
	case w.longest > most:
		return wishf("-r: its longest frame has %d bytes: with -datapath xsk and this MTU at most %d (-xsk-frame %d, -mtu)", w.longest, most, maxUMEMFrame)
	case queues > 0 && (w.frames+queues-1)/queues > w.umem.frames:
		return wishf("-r: %d frames for %d queues: with -datapath xsk a queue holds -xsk-frames, which is %d", w.frames, queues, w.umem.frames)
	}
	return nil
}
