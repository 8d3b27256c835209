package model

// config.go owns the function's configuration space: identity, BAR0 sizing,
// the power management, PCI Express and MSI-X capabilities, and what writing
// there sets off. It does not own what a reset does to the device (device.go). Source:
// PCI Express Base Specification, chapter "Software initialization"; the places of the
// capabilities are those of real cards.

import (
	"encoding/binary"
	"time"
)

// Registers of the header and of the capabilities.
const (
	cfgCommand = 0x04
	cfgStatus  = 0x06
	cfgBAR0    = 0x10
	cfgIntLine = 0x3c
	cfgPM      = 0x40
	cfgExpress = 0x60
	cfgMSIX    = 0x9c

	cfgPMControl      = cfgPM + 4
	cfgDeviceControl  = cfgExpress + 8
	cfgLinkControl    = cfgExpress + 16
	cfgDeviceControl2 = cfgExpress + 40
	cfgMSIXControl    = cfgMSIX + 2

	commandBusMaster = 1 << 2
	deviceFLR        = 1 << 15

	vendorID    = 0x15b3
	subsystemID = 0x0020
)

// cfgWritable lists the bits that a host may change, by 16-bit register.
var cfgWritable = []struct {
	off  int
	mask uint16
}{
	{cfgCommand, 0x0546}, // memory space, bus master, parity, SERR, INTx disable
	{0x0c, 0x00ff},       // cache line size
	{cfgIntLine, 0x00ff},
	{cfgPMControl, 0x0103},
	{cfgDeviceControl, 0x7fff},
	{cfgLinkControl, 0x0fff},
	{cfgDeviceControl2, 0xffff},
	{cfgMSIXControl, 0xc000},
}

// powerOnConfig fills configuration space as it is before a host touches it.
func (d *Device) powerOnConfig() {
	le := binary.LittleEndian
	c := d.config[:]
	clear(c)
	le.PutUint16(c[0x00:], vendorID)
	le.PutUint16(c[0x02:], d.prof.deviceID)
	le.PutUint16(c[cfgStatus:], 0x0010) // there is a capability list
	c[0x0b] = 0x02                      // class: network, Ethernet
	le.PutUint32(c[cfgBAR0:], 0xc)      // 64-bit, prefetchable memory
	le.PutUint16(c[0x2c:], vendorID)
	le.PutUint16(c[0x2e:], subsystemID)
	c[0x34] = cfgPM
	c[0x3d] = 1 // INTA, unused

	c[cfgPM], c[cfgPM+1] = 0x01, cfgExpress
	le.PutUint16(c[cfgPM+2:], 0x0003) // version 3, D0 and D3 only
	le.PutUint16(c[cfgPMControl:], 0x0008)

	c[cfgExpress], c[cfgExpress+1] = 0x10, cfgMSIX
	le.PutUint16(c[cfgExpress+2:], 0x0002)     // endpoint, version 2
	le.PutUint32(c[cfgExpress+4:], 0x10008fe2) // FLR, 512-byte payload, extended tags
	le.PutUint16(c[cfgDeviceControl:], 0x2910) // 512-byte reads, 128-byte payload until the host allows more
	link := uint32(d.prof.pcieGen) | 16<<4     // this speed, x16
	le.PutUint32(c[cfgExpress+12:], link)
	le.PutUint16(c[cfgExpress+18:], uint16(link)|1<<12)
	le.PutUint32(c[cfgExpress+36:], 0x0000001f)              // completion timeout ranges
	le.PutUint32(c[cfgExpress+44:], 1<<(d.prof.pcieGen+1)-2) // LNKCAP2: all speeds up to this

	c[cfgMSIX], c[cfgMSIX+1] = 0x11, 0
	le.PutUint16(c[cfgMSIXControl:], vectorCount-1)
	le.PutUint32(c[cfgMSIX+4:], 0x2000) // table in BAR0
	le.PutUint32(c[cfgMSIX+8:], 0x3000) // pending bits in BAR0
}

// busMaster reports whether the host lets the function do DMA and send MSI-X.
func (d *Device) busMaster() bool { return d.config[cfgCommand]&commandBusMaster != 0 }

// ReadConfig reads configuration space; beyond its end it reads as ones.
func (d *Device) ReadConfig(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := d.bar == nil || d.vanish()
	for i := range p {
		p[i] = 0xff
		if at := off + i; !gone && at >= 0 && at < len(d.config) {
			p[i] = d.config[at]
		}
	}
}

// WriteConfig writes configuration space: only what a host may change, and a
// function level reset where the PCI Express capability asks for one.
func (d *Device) WriteConfig(off int, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil || d.vanish() {
		return
	}
	flr := false
	for i, v := range p {
		at := off + i
		if at < 0 || at >= len(d.config) {
			continue
		}
		if at == cfgDeviceControl+1 && v&(deviceFLR>>8) != 0 {
			flr = true
		}
		mask := writableByte(at)
		d.config[at] = d.config[at]&^mask | v&mask
	}
	if flr {
		d.powerOnConfig()
		d.reset(time.Now())
	}
}

// writableByte is the mask of writable bits of one byte.
func writableByte(at int) byte {
	switch {
	case at == cfgBAR0+3: // BAR0 is 32 MiB: bits 25 and up
		return byte(^uint32(barSize-1) >> 24)
	case at >= cfgBAR0+4 && at < cfgBAR0+8:
		return 0xff
	}
	for _, w := range cfgWritable {
		if at&^1 == w.off {
			return byte(w.mask >> (8 * (at & 1)))
		}
	}
	return 0
}
