package model

// pci.go owns the count of PCI Express transactions by kind, so that what a
// queue costs on the bus can be told without a bus: how many requests and packets
// the bus's rules make of each access. It does not know what a packet costs on a
// link; pcilink.go does.
// Source: PCI Express Base Specification 4.0, chapters Transaction Layer (2.2.7,
// 2.3.1.1) and Data Link Layer (2.6.1, 3.6).
//
// The paper: Neugebauer et al., "Understanding PCIe performance for end host
// networking", SIGCOMM 2018.
//
// Counted is what queues cause. Not counted are firmware commands and their
// mailboxes, the host's reads of registers, and reads of contexts and address
// translations, which a device has in its caches while a queue works.

import (
	"fmt"
	"math/bits"
)

// PCISettings are what two ends of a link agree on or are free to choose. A zero
// field stands for its default. The defaults are one server and are the same for
// every figure; the lab's virtual root port, which would say 128 bytes, is not
// asked.
type PCISettings struct {
	// MaxPayload is the most bytes in one packet, read or written. 256: what root
	// ports of servers allow, of the 512 that the card offers; the paper has it so.
	MaxPayload int
	// MaxReadRequest is the most bytes that one request asks for. 512: the value
	// after reset (Device Control), which servers leave; the paper has it so.
	MaxReadRequest int
	// CompletionBoundary (RCB) is where the host may cut what it answers: at
	// multiples of it, so that the first piece of an unaligned read is shorter.
	// 64: the value after reset (Link Control) and the line of a server's caches.
	CompletionBoundary int
	// MaxCompletion is the longest piece of an answer. MaxPayload: today's hosts
	// put lines together as far as they may. Older ones answer line by line (seen
	// by the paper's authors), which is CompletionBoundary here.
	MaxCompletion int
	// AckEvery is how many packets one Ack covers. 1: a receiver acknowledges a
	// packet at once unless its own transmitter is busy with another packet just
	// then (so Efinix's controller, "Aggregating ACK DLLPs"). The limits in chapter
	// 3.6.3 would let ten wait at the rates of our figures.
	AckEvery int
	// CreditEvery is how many packets of one type the UpdateFC that returns their
	// credits covers. 1: hosts give credits back as they take packets, and only
	// updates of the same type can become one (so PLX's PEX 8532, data book
	// 8.4.5.3: one a packet even with short timers). A read takes credits for
	// non-posted and a write for posted packets, never both. Completions take
	// none: an endpoint has to advertise endless credits for them (2.6.1).
	CreditEvery int
}

// pciDefaults are the settings of a device that is given none. MaxCompletion
// follows MaxPayload.
var pciDefaults = PCISettings{MaxPayload: 256, MaxReadRequest: 512, CompletionBoundary: 64, AckEvery: 1, CreditEvery: 1}

// Filled is s with defaults for what it leaves out.
func (s PCISettings) Filled() PCISettings {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&s.MaxPayload, pciDefaults.MaxPayload)
	or(&s.MaxReadRequest, pciDefaults.MaxReadRequest)
	or(&s.CompletionBoundary, pciDefaults.CompletionBoundary)
	or(&s.MaxCompletion, s.MaxPayload)
	or(&s.AckEvery, pciDefaults.AckEvery)
	or(&s.CreditEvery, pciDefaults.CreditEvery)
	return s
}

// check is an error for settings that no link can have.
func (s PCISettings) check() error {
	power := func(v, lo, hi int) bool { return v >= lo && v <= hi && v&(v-1) == 0 }
	switch {
	case !power(s.MaxPayload, 128, pciPage):
		return fmt.Errorf("PCI: payload of %d bytes: it is a power of two from 128 to 4096", s.MaxPayload)
	case !power(s.MaxReadRequest, 128, pciPage):
		return fmt.Errorf("PCI: read requests of %d bytes: they are a power of two from 128 to 4096", s.MaxReadRequest)
	case !power(s.MaxCompletion, 64, s.MaxPayload):
		return fmt.Errorf("PCI: completions of %d bytes: they are a power of two from 64 to the payload, %d", s.MaxCompletion, s.MaxPayload)
	case !power(s.CompletionBoundary, 64, s.MaxCompletion):
		return fmt.Errorf("PCI: completion boundary of %d bytes: it is a power of two from 64 to the longest completion, %d", s.CompletionBoundary, s.MaxCompletion)
	case s.AckEvery < 1 || s.CreditEvery < 1:
		return fmt.Errorf("PCI: acknowledgements every %d packets, credits every %d: at least 1", s.AckEvery, s.CreditEvery)
	}
	return nil
}

// PCIKind is one reason for a transaction.
type PCIKind int

// Reads are requests of the device that the host answers; writes of the device
// are posted; doorbells and arms are posted writes of the host.
const (
	PCIWQEFetch   PCIKind = iota // read of send WQEs, in whole 64-byte blocks
	PCIRxWQEFetch                // read of receive WQEs
	PCIDataRead                  // gather of packet data
	PCIDataWrite                 // scatter of packet data
	PCICQEWrite
	PCIEQEWrite
	PCIRecordRead // doorbell record
	PCIDoorbell   // register write by the host: a send queue has work
	PCIInterrupt  // MSI-X message
	PCIArm        // register write by the host: a CQ or EQ may report again
	pciKinds
)

// pciReads are the kinds that the device asks for and the host answers.
var pciReads = [pciKinds]bool{PCIWQEFetch: true, PCIRxWQEFetch: true, PCIDataRead: true, PCIRecordRead: true}

// pciPage is what no request may cross (2.2.7), pciWord the unit of all that
// packets carry, and pciSizes the number of size classes.
const (
	pciPage  = 4096
	pciWord  = 4
	pciSizes = 17
)

// PCITraffic is the traffic of one kind.
type PCITraffic struct {
	Ops     uint64           // accesses
	Bytes   uint64           // that were wanted
	Carried uint64           // payload that crossed the bus: whole words of 4 bytes
	Packets uint64           // packets with payload
	Asks    uint64           // requests, were it reads
	Sizes   [pciSizes]uint64 // by size: Sizes[k] counts accesses of up to 1<<k bytes, the last all larger
}

// PCICounts is the traffic of a device by kind since it was created.
type PCICounts [pciKinds]PCITraffic

// pciMeter counts under fixed settings.
type pciMeter struct {
	set    PCISettings
	counts PCICounts
}

// count adds one access of n bytes at bus address addr.
func (m *pciMeter) count(k PCIKind, addr uint64, n int) {
	if n <= 0 {
		return
	}
	t := &m.counts[k]
	t.Ops++
	t.Bytes += uint64(n)
	t.Sizes[min(bits.Len32(uint32(n-1)), pciSizes-1)]++
	// Nothing but the place within a page matters for what follows.
	from := int(addr % pciPage)
	to := (from + n + pciWord - 1) &^ (pciWord - 1)
	from &^= pciWord - 1
	t.Carried += uint64(to - from)
	if !pciReads[k] {
		t.Packets += pieces(from, to, m.set.MaxPayload)
		return
	}
	for from < to {
		end := pieceEnd(from, to, m.set.MaxReadRequest)
		t.Asks++
		t.Packets += m.set.completions(from, end)
		from = end
	}
}

// pieceEnd is where the first request of the bytes from..to ends.
func pieceEnd(from, to, most int) int {
	return min(to, from+most, from&^(pciPage-1)+pciPage)
}

// pieces is how many requests of at most so many bytes it takes.
func pieces(from, to, most int) (n uint64) {
	for ; from < to; n++ {
		from = pieceEnd(from, to, most)
	}
	return n
}

// completions is in how many packets the host answers one request.
func (s *PCISettings) completions(from, to int) (n uint64) {
	for ; from < to; n++ {
		from = min(to, (from+s.MaxCompletion)&^(s.CompletionBoundary-1))
	}
	return n
}

// fetch is how many of the entries from entry i of ring r on one read brings, of
// those that are posted: up to a read request, the ring's end or a page's.
func (m *pciMeter) fetch(r *ring, i, posted uint32) uint32 {
	size := uint32(1) << r.logSize
	at := i & (size - 1)
	page := uint32(max(1, (pciPage-int(r.place(at)%pciPage))>>r.stride))
	return min(posted, size-at, page, max(1, uint32(m.set.MaxReadRequest)>>r.stride))
}

// PCI returns the counts so far.
func (d *Device) PCI() PCICounts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.work.pci.counts
}

// PCISettings returns what the counts hold for.
func (d *Device) PCISettings() PCISettings { return d.cfg.PCI }
