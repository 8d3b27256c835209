package model

// pci.go owns the count of PCI Express transactions by kind, so that what a
// queue costs on the bus can be told without a bus. It counts payload bytes and
// packets of at most 256 bytes; headers and link rates are the reader's affair.
// Source: PCI Express Base Specification, transaction layer packets.

import "math/bits"

// PCIKind is one reason for a transaction.
type PCIKind int

// Reads are requests of the device that the host answers; writes of the device
// are posted; doorbells are posted writes of the host.
const (
	PCIWQEFetch   PCIKind = iota // read of a send WQE, in whole 64-byte blocks
	PCIRxWQEFetch                // read of a receive WQE
	PCIDataRead                  // gather of packet data
	PCIDataWrite                 // scatter of packet data
	PCICQEWrite
	PCIEQEWrite
	PCIRecordRead // doorbell record
	PCIDoorbell   // register write by the host
	PCIInterrupt  // MSI-X message
	pciKinds
)

// pciPacket is the largest payload of one packet (MaxPayload), pciRequest the
// most that one read asks for (MaxReadRequest): what servers set up. The host
// answers a read in packets of pciPacket, its completion boundary. pciSizes is
// the number of size classes: class k counts payloads of up to 1<<k bytes.
const (
	pciPacket  = 256
	pciRequest = 512
	pciSizes   = 17
)

// PCITraffic is the traffic of one kind.
type PCITraffic struct {
	Ops     uint64           // transactions
	Bytes   uint64           // payload
	Packets uint64           // packets with payload, at most 256 bytes each
	Asks    uint64           // requests, were it reads: at most 512 bytes each
	Sizes   [pciSizes]uint64 // by size: Sizes[k] counts payloads of up to 1<<k bytes, the last all larger
}

// PCICounts is the traffic of a device by kind since it was created.
type PCICounts [pciKinds]PCITraffic

// count adds one transaction of n bytes.
func (c *PCICounts) count(k PCIKind, n int) {
	if n <= 0 {
		return
	}
	t := &c[k]
	t.Ops++
	t.Bytes += uint64(n)
	t.Packets += uint64(n+pciPacket-1) / pciPacket
	t.Asks += uint64(n+pciRequest-1) / pciRequest
	t.Sizes[min(bits.Len32(uint32(n-1)), pciSizes-1)]++
}

// ToDevice and FromDevice sum the payload that crosses the bus each way.
func (c *PCICounts) ToDevice() uint64 {
	return c[PCIWQEFetch].Bytes + c[PCIRxWQEFetch].Bytes + c[PCIDataRead].Bytes + c[PCIRecordRead].Bytes + c[PCIDoorbell].Bytes
}

// FromDevice is the payload that the device wrote.
func (c *PCICounts) FromDevice() uint64 {
	return c[PCIDataWrite].Bytes + c[PCICQEWrite].Bytes + c[PCIEQEWrite].Bytes + c[PCIInterrupt].Bytes
}

// PCI returns the counts so far.
func (d *Device) PCI() PCICounts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.work.pci
}
