package model

// pcilink.go owns what counted transactions cost on a PCI Express link: packets
// with their framing, and the link-layer packets that they cause on the other
// side. It only computes; pci.go counts and has the settings.
// Source: PCI Express Base Specification 4.0, chapters Transaction Layer (2.2),
// Data Link Layer (3.5, 3.6), Physical Layer (4.2). Header and framing sizes are
// also those of the paper that pci.go names; it takes a flat share of the link for
// link-layer packets, where each is put down to its cause here.
//
// A memory request has a header of 16 bytes, since a server's memory and the
// card's registers lie above 4 GiB, a completion one of 12. No digest (ECRC).
// Framing, sequence number and LCRC take 8 bytes more in every generation up to
// 5: 1+2+4+1 with 8b/10b, 4+4 with 128b/130b. A link-layer packet has 6 bytes,
// framed 8.

const (
	tlpFraming    = 8
	tlpRequest    = 16 + tlpFraming
	tlpCompletion = 12 + tlpFraming
	dllpBytes     = 8
)

// PCILink is a link of 16 lanes.
type PCILink struct {
	Name  string
	Bytes float64 // a second and direction, line coding and clock compensation taken off
}

// PCILinks are the generations that figures are given for. So that clocks may
// differ, a SKP ordered set goes out on every lane again and again: 4 symbols
// every 1180 to 1538 with 8b/10b, one block every 370 to 375 with 128b/130b
// (4.2.7). The middle of either is taken.
var PCILinks = []PCILink{
	{"gen2", linkRate(5e9*8/10, 4/((1180+1538)/2.0))},
	{"gen3", linkRate(8e9*128/130, 1/((370+375)/2.0))},
	{"gen4", linkRate(16e9*128/130, 1/((370+375)/2.0))},
}

// linkRate is bytes a second of 16 lanes with so many bits a second each, of which
// a share is not for packets.
func linkRate(bits, skips float64) float64 { return bits / 8 * 16 * (1 - skips) }

// Percent is the share of the link that packets take which put so many bytes on
// it each.
func (p PCILink) Percent(bytes, perSecond float64) float64 { return 100 * bytes * perSecond / p.Bytes }

// PCIPublished is what the authors of Linux's multi-packet WQEs published: the
// share of a 16-lane link that 64-byte packets take towards the device when the
// kernel's packet generator sends them in bursts of 32 on 24 CPUs.
type PCIPublished struct {
	Link    string
	Rate    float64 // packets a second
	Off, On float64 // percent, without and with multi-packet WQEs
}

// PCILinux has their figures. Generation 4 has none.
var PCILinux = []PCIPublished{
	{"gen2", 36.864e6, 80.3, 59.0},
	{"gen3", 56.064e6, 65.4, 49.3},
}

// PCILoad is what crosses a link, in bytes, each way as the device sees it.
type PCILoad struct{ In, Out float64 }

// Per is the load of one of n packets.
func (l PCILoad) Per(n uint64) PCILoad { return PCILoad{l.In / float64(n), l.Out / float64(n)} }

// Load is what the counted transactions put on a link with settings s.
func (c *PCICounts) Load(s PCISettings) (l PCILoad) {
	s = s.Filled()
	ack := dllpBytes / float64(s.AckEvery)
	taken := ack + dllpBytes/float64(s.CreditEvery) // what a request is answered with by the link
	for k := range c {
		t := &c[k]
		bytes, packets, asks := float64(t.Carried), float64(t.Packets), float64(t.Asks)
		switch {
		case pciReads[k]:
			l.Out += asks * tlpRequest
			l.In += asks * taken
			l.In += bytes + packets*tlpCompletion
			l.Out += packets * ack
		case PCIKind(k) == PCIDoorbell || PCIKind(k) == PCIArm:
			l.In += bytes + packets*tlpRequest
			l.Out += packets * taken
		default:
			l.Out += bytes + packets*tlpRequest
			l.In += packets * taken
		}
	}
	return l
}

// Sub is what was counted since an earlier look.
func (c PCICounts) Sub(then PCICounts) PCICounts {
	for k := range c {
		c[k].Ops -= then[k].Ops
		c[k].Bytes -= then[k].Bytes
		c[k].Carried -= then[k].Carried
		c[k].Packets -= then[k].Packets
		c[k].Asks -= then[k].Asks
		for i := range c[k].Sizes {
			c[k].Sizes[i] -= then[k].Sizes[i]
		}
	}
	return c
}
