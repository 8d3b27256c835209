package model

// module.go owns the plugged module: the bytes of its memory and register
// MCIA that reads them. It does not own the list of registers (registers.go). It is a
// passive copper cable with plausible data.
// Sources: SFF-8636 for QSFP28, SFF-8472 for SFP28, SFF-8024 for codes.

// moduleDwords is how many 32-bit words one MCIA read returns at most.
const moduleDwords = 12

// QSFP28 and SFP28 memory as text fields: offset in the lower 256 bytes (page
// 00h is at 128) and content, padded with spaces.
var moduleText = map[uint8][]struct {
	at, n int
	s     string
}{
	moduleQSFP28: {{148, 16, "Emulated"}, {168, 16, "MCP1600-E001"}, {184, 2, "A4"}, {196, 16, "EM2000000001"}, {212, 8, "260101"}},
	moduleSFP:    {{20, 16, "Emulated"}, {40, 16, "MCP2M00-A001"}, {56, 4, "A4"}, {68, 16, "EM2000000002"}, {84, 8, "260101"}},
}

// moduleBytes are the other bytes: identifier, connector, cable length in
// metres, type of transceiver.
var moduleBytes = map[uint8]map[int]byte{
	moduleQSFP28: {0: moduleQSFP28, 1: 0x08, 2: 0x04, 128: moduleQSFP28, 130: 0x23, 131: 0x80, 140: 0xff, 146: 1, 147: 0xa0, 165: 0x00, 166: 0x02, 167: 0xc9, 192: 0x0b, 222: 0x68},
	moduleSFP:    {0: moduleSFP, 1: 0x04, 2: 0x21, 8: 0x04, 12: 0xff, 18: 1, 36: 0x0d, 37: 0x00, 38: 0x02, 39: 0xc9, 66: 0x67},
}

// moduleMemory builds the lower memory and page 00h of a module.
func moduleMemory(kind uint8) (m [256]byte) {
	for at, v := range moduleBytes[kind] {
		m[at] = v
	}
	for _, t := range moduleText[kind] {
		field := m[t.at : t.at+t.n]
		for i := range field {
			field[i] = ' '
		}
		copy(field, t.s)
	}
	sums := [2][3]int{{128, 191, 191}, {192, 223, 223}} // from, to (not in), place
	if kind == moduleSFP {
		sums = [2][3]int{{0, 63, 63}, {64, 95, 95}}
	}
	for _, s := range sums {
		var sum byte
		for _, v := range m[s[0]:s[1]] {
			sum += v
		}
		m[s[2]] = sum
	}
	return m
}

// Status codes of MCIA.
const (
	mciaOK          = 0
	mciaNoDevice    = 1 // no answer from the module's bus
	mciaUnsupported = 2 // a page or device that the module does not have
)

// readMCIA reads part of the module's memory. What goes wrong with the module
// is told in the register, not as a refusal.
func (d *Device) readMCIA(b []byte) *refusal {
	at, n, page := int(mciaDeviceAddress.get(b)), int(mciaSize.get(b)), mciaPageNumber.get(b)
	data := mciaDwords.in(b)
	clear(data)
	switch {
	case mciaModule.on(b):
		return badParam(codeNumber, "module %d", mciaModule.get(b))
	case n > 4*moduleDwords || at+n > 256:
		return badParam(codeRange, "%d bytes at %d of the module", n, at)
	case !d.port.cable:
		mciaStatus.set(b, mciaNoDevice)
		return nil
	case mciaI2cDeviceAddress.get(b) != i2cLow:
		mciaStatus.set(b, mciaUnsupported)
		return nil
	}
	mciaStatus.set(b, mciaOK)
	m := moduleMemory(d.prof.module)
	if page != 0 && at+n > 128 {
		clear(m[128:]) // the other pages of a copper cable are empty
	}
	copy(data[:min(n, len(data))], m[at:at+n])
	return nil
}
