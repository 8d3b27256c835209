package model

// wire.go owns the words in which a user says what is plugged into the port
// (ParseWire), the error that tells a user's mistake from a failure, and the
// pacing that replayed and generated traffic share. The wires themselves are in
// wire_replay.go, wire_gen.go, wire_join.go (loop, join) and wire_linux.go (tap,
// if). None of this is in the manual: it stands for the cable and what is
// behind it.
//
// Besides Wire a wire may have these methods; any goroutine may call them:
//
//	Err() error       what ended or damaged the traffic, nil while there is nothing
//	Skipped() uint64  records of a capture that are not Ethernet
//	Dropped() uint64  frames that the wire lost, not the device

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// InputError marks what the user has to correct: a malformed SPEC, a missing or
// damaged file, an interface that does not exist. Find it with errors.As.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

// inputError is fmt.Errorf for an *InputError.
func inputError(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}

// wireKind is one kind of wire: how it is written and how it is opened.
type wireKind struct {
	name    string
	arg     string // what stands behind the colon; "" is nothing but options
	options []wireOption
	open    func(s *wireSpec) (Wire, error)
}

// wireOption is one option. Exactly one of number, word and flag is its kind.
type wireOption struct {
	name   string
	hint   string // what the value looks like; "" is a flag without a value
	lo, hi uint64 // bounds of a number; hi 0 is a word that open checks
}

// wireSpec is a parsed SPEC.
type wireSpec struct {
	kind   string
	arg    string
	number map[string]uint64 // options that are numbers; a flag is 1
	word   map[string]string
}

const (
	maxPacketRate = 1e9
	maxBitRate    = 1e12
	// maxRepeats bounds loop= and count=: about ten years at 50 million a second.
	maxRepeats = 1 << 54
)

var (
	optionPPS  = wireOption{"pps", "N", 1, maxPacketRate}
	optionRate = wireOption{"rate", "BITS", 1, maxBitRate}
)

// wireKinds says all that ParseWire knows. Numbers may end in k, M or G.
func wireKinds() []wireKind {
	return []wireKind{
		{name: "replay", arg: "FILE", open: openReplay, options: []wireOption{
			optionPPS, optionRate, {name: "realtime"}, {"loop", "N", 0, maxRepeats}}},
		{name: "gen", open: openGen, options: []wireOption{
			{"mode", "imix|SIZE", 0, 0}, {"size", "N", genSizeMin, genSizeMax}, {"count", "N", 0, maxRepeats},
			{"flows", "N", 1, genFlowsMax}, {"seed", "N", 0, 1 << 62}, {"dst", "MAC", 0, 0}, optionPPS, optionRate}},
		{name: "loop", open: func(*wireSpec) (Wire, error) { return newLoop(), nil }},
		{name: "tap", arg: "NAME", open: openTap},
		{name: "if", arg: "NAME", open: openPacket},
		{name: "none", open: func(*wireSpec) (Wire, error) { return unplugged{}, nil }},
	}
}

// ParseWire opens what SPEC names. SPEC is kind[:arg][,option=value]...:
//
//	replay:FILE[,pps=N|,rate=BITS|,realtime][,loop=N]
//	gen[:mode=imix|SIZE][,size=N][,count=N][,flows=N][,seed=N][,dst=MAC][,pps=N|,rate=BITS]
//	loop
//	tap:NAME
//	if:NAME
//	none
//
// pps= is frames and rate= bits per second, a frame counted with FCS, preamble
// and gap (24 bytes more); realtime keeps the distances of a capture's time
// stamps. With none of these three the traffic comes as fast as it is taken and
// none of it is lost for a queue that the host serves (hold.go). loop=0 and
// count=0 mean for ever. SIZE and size= count the FCS, as frame sizes are usually
// told. A FILE or NAME cannot hold a comma.
//
// A mistake of the user's is an *InputError in one line; any other error is the
// system's, such as a missing permission.
func ParseWire(spec string) (Wire, error) {
	name, rest := spec, ""
	if i := strings.IndexAny(spec, ":,"); i >= 0 {
		name, rest = spec[:i], spec[i:]
	}
	kinds := wireKinds()
	for i := range kinds {
		if kinds[i].name == name {
			s, err := kinds[i].parse(rest)
			if err != nil {
				return nil, inputError("wire %q: %w", spec, err)
			}
			return kinds[i].open(s)
		}
	}
	return nil, inputError("wire %q: unknown kind %q; use %s", spec, name, wireUsage(kinds))
}

// wireUsage lists every form of SPEC in one line.
func wireUsage(kinds []wireKind) string {
	forms := make([]string, len(kinds))
	for i := range kinds {
		forms[i] = kinds[i].usage()
	}
	return strings.Join(forms, ", ")
}

func (k *wireKind) usage() string {
	s := k.name
	if k.arg != "" {
		s += ":" + k.arg
	}
	for i := range k.options {
		s += "[," + k.options[i].usage() + "]"
	}
	return s
}

func (o *wireOption) usage() string {
	if o.hint == "" {
		return o.name
	}
	return o.name + "=" + o.hint
}

// parse takes apart what follows the kind's name, its colon or comma included.
// Behind a colon stands the argument, or the first option where the kind has no
// argument.
func (k *wireKind) parse(rest string) (*wireSpec, error) {
	s := &wireSpec{kind: k.name, number: map[string]uint64{}, word: map[string]string{}}
	more := rest != ""
	if tail, colon := strings.CutPrefix(rest, ":"); colon && k.arg != "" {
		s.arg, rest, more = strings.Cut(tail, ",")
	} else {
		rest = rest[min(len(rest), 1):]
	}
	if k.arg != "" && s.arg == "" {
		return nil, fmt.Errorf("%s is missing; write %s", k.arg, k.usage())
	}
	if !more {
		return s, nil
	}
	for _, part := range strings.Split(rest, ",") {
		if err := k.parseOption(s, part); err != nil {
			return nil, err
		}
	}
	return s, s.onePace()
}

func (k *wireKind) parseOption(s *wireSpec, part string) error {
	name, value, given := strings.Cut(part, "=")
	for i := range k.options {
		o := &k.options[i]
		if o.name != name {
			continue
		}
		_, twice := s.number[name]
		if _, also := s.word[name]; also || twice {
			return fmt.Errorf("option %s is given twice", name)
		}
		if given != (o.hint != "") {
			return fmt.Errorf("option %q: write %s", part, o.usage())
		}
		return o.parse(s, value)
	}
	if len(k.options) == 0 {
		return fmt.Errorf("unknown option %q; %s takes none", part, k.name)
	}
	return fmt.Errorf("unknown option %q; write %s", part, k.usage())
}

func (o *wireOption) parse(s *wireSpec, value string) error {
	switch {
	case o.hint == "":
		s.number[o.name] = 1
	case o.hi == 0:
		s.word[o.name] = value
	default:
		n, ok := parseCount(value)
		if !ok || n < o.lo || n > o.hi {
			return fmt.Errorf("%s=%s: write a whole number from %d to %d; k, M and G may follow it", o.name, value, o.lo, o.hi)
		}
		s.number[o.name] = n
	}
	return nil
}

// parseCount reads a decimal number with an optional k, M or G (powers of 1000).
func parseCount(s string) (uint64, bool) {
	scale := uint64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			scale = 1e3
		case 'M':
			scale = 1e6
		case 'G':
			scale = 1e9
		}
		if scale > 1 {
			s = s[:n-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > ^uint64(0)/scale {
		return 0, false
	}
	return n * scale, true
}

// onePace refuses two answers to the question how fast.
func (s *wireSpec) onePace() error {
	var given []string
	for _, name := range []string{"pps", "rate", "realtime"} {
		if _, ok := s.number[name]; ok {
			given = append(given, name)
		}
	}
	if len(given) > 1 {
		return fmt.Errorf("options %s exclude each other", strings.Join(given, " and "))
	}
	return nil
}

// numberOr is the option's number, or fallback where it was not given.
func (s *wireSpec) numberOr(name string, fallback uint64) uint64 {
	if n, ok := s.number[name]; ok {
		return n
	}
	return fallback
}

// macOr is the option's Ethernet address, or fallback where it was not given.
func (s *wireSpec) macOr(name string, fallback [6]byte) ([6]byte, error) {
	text, ok := s.word[name]
	if !ok {
		return fallback, nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return fallback, errors.New(name + "=" + text + ": write an Ethernet address such as 02:00:00:00:00:01")
	}
	return [6]byte(mac), nil
}

// pacer says when the next frame is due. Its clock is the one given to Peek and
// starts with the first call; the zero pacer lets everything go at once.
// A frame asked for too late does not delay those after it: what was missed comes
// at twice the pace. No wire would send it in one burst, which a receiver that kept
// the pace could lose.
type pacer struct {
	rate     uint64 // units per second: frames, or bits where bits is set; 0 is none
	bits     bool
	realtime bool
	started  bool
	start    time.Time
	due      time.Duration // of the next frame, from start
	soon     time.Duration // when it may come if that was missed
	rest     uint64        // part of a nanosecond not yet in due, in 1/rate ns
}

// frameOverhead is FCS, preamble and gap: what a frame takes on a wire beyond
// its bytes (IEEE 802.3).
const frameOverhead = 24

// newPacer chooses the pace that the options ask for.
func newPacer(s *wireSpec) pacer {
	if n := s.number["pps"]; n != 0 {
		return pacer{rate: n}
	}
	if n := s.number["rate"]; n != 0 {
		return pacer{rate: n, bits: true}
	}
	return pacer{realtime: s.number["realtime"] != 0}
}

// paced reports whether frames come by the clock, so that a receiver which is
// not ready loses them.
func (p *pacer) paced() bool { return p.rate != 0 || p.realtime }

// ready reports whether the next frame is due.
func (p *pacer) ready(now time.Time) bool {
	if !p.paced() {
		return true
	}
	if !p.started {
		p.started, p.start = true, now
	}
	t := now.Sub(p.start)
	p.soon = max(p.soon, t-pacerBurst)
	return t >= p.due && t >= p.soon
}

// pacerBurst is how much of what was missed may come at once: as much as in twice
// the time.
const pacerBurst = time.Millisecond

// wait adds the distance of the next frame from the one before, which realtime
// alone keeps.
func (p *pacer) wait(gap time.Duration) {
	if p.realtime {
		p.due += gap
		p.soon += gap / 2
	}
}

// sent moves on after a frame of n bytes.
func (p *pacer) sent(n int) {
	if p.rate == 0 {
		return
	}
	cost := uint64(1e9)
	if p.bits {
		cost *= uint64(n+frameOverhead) * 8 // below 2^52 for the longest frame
	}
	cost += p.rest
	p.due += time.Duration(cost / p.rate)
	p.soon += time.Duration(cost / p.rate / 2)
	p.rest = cost % p.rate
}

// unplugged is a port without a cable. It is never done: a real port without a
// cable does not tell that none will come.
type unplugged struct{}

func (unplugged) Peek(time.Time) []byte { return nil }
func (unplugged) Take()                 {}
func (unplugged) Lossless() bool        { return true }
func (unplugged) Transmit([]byte)       {}
func (unplugged) Done() bool            { return false }
func (unplugged) LinkUp() bool          { return false }
func (unplugged) Close() error          { return nil }
