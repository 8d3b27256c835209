package model

// pcilink.go owns what counted transactions cost on a PCI Express link: packets
// with their framing, and the link-layer packets that they cause on the other
// side. It only computes; pci.go counts.
// Source: PCI Express Base Specification 3.1, chapters Transaction Layer, Data
// Link Layer, Physical Layer.
//
// The settings are the same for every generation and every figure:
//   - MaxPayload 256 and MaxReadRequest 512 bytes, completions in pieces of
//     MaxPayload (pci.go);
//   - a memory request has a header of 16 bytes (64-bit addresses), a completion
//     one of 12; framing, sequence number and LCRC take 8 more;
//   - each packet is acknowledged, and its credits are returned by an UpdateFC
//     for posted and one for non-posted requests, 8 bytes each: links that are
//     far from full have nothing to gather acknowledgements for.

const (
	tlpFraming    = 8
	tlpRequest    = 16 + tlpFraming
	tlpCompletion = 12 + tlpFraming
	dllpBytes     = 8
	dllpsPerTLP   = 3 // Ack, UpdateFC-P, UpdateFC-NP
)

// PCILink is a link of 16 lanes.
type PCILink struct {
	Name  string
	Bytes float64 // a second and direction, line coding taken off
}

// PCILinks are the generations that figures are given for: 5 GT/s with 8b/10b,
// 8 and 16 GT/s with 128b/130b.
var PCILinks = []PCILink{
	{"gen2", 5e9 * 16 / 10},
	{"gen3", 8e9 * 16 / 8 * 128 / 130},
	{"gen4", 16e9 * 16 / 8 * 128 / 130},
}

// PCILoad is what crosses a link, in bytes, each way as the device sees it.
type PCILoad struct{ In, Out float64 }

// pciReads are the kinds that the device asks for and the host answers.
var pciReads = [pciKinds]bool{PCIWQEFetch: true, PCIRxWQEFetch: true, PCIDataRead: true, PCIRecordRead: true}

// Load is what the counted transactions put on a link.
func (c *PCICounts) Load() (l PCILoad) {
	for k := range c {
		t := &c[k]
		bytes, packets, asks := float64(t.Bytes), float64(t.Packets), float64(t.Asks)
		switch {
		case pciReads[k]:
			l.Out += asks * tlpRequest
			l.In += asks * dllpsPerTLP * dllpBytes
			l.In += bytes + packets*tlpCompletion
			l.Out += packets * dllpBytes // acknowledged; completions have no credits to return
		case PCIKind(k) == PCIDoorbell:
			l.In += bytes + packets*tlpRequest
			l.Out += packets * dllpsPerTLP * dllpBytes
		default:
			l.Out += bytes + packets*tlpRequest
			l.In += packets * dllpsPerTLP * dllpBytes
		}
	}
	return l
}

// Sub is what was counted since an earlier look.
func (c PCICounts) Sub(then PCICounts) PCICounts {
	for k := range c {
		c[k].Ops -= then[k].Ops
		c[k].Bytes -= then[k].Bytes
		c[k].Packets -= then[k].Packets
		c[k].Asks -= then[k].Asks
		for i := range c[k].Sizes {
			c[k].Sizes[i] -= then[k].Sizes[i]
		}
	}
	return c
}

// Percent is the share of the link that n times the load of one takes.
func (p PCILink) Percent(bytes, perSecond float64) float64 { return 100 * bytes * perSecond / p.Bytes }
