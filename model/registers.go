package model

// registers.go owns the port and what is told of it through ACCESS_REG: link
// modes, MTU, admin state, pause, FEC, clock, sensors and which registers there
// are. Counters are in ppcnt.go, the plugged module in module.go, the virtual
// port in cmd_vport.go. Manual: chapter "Registers".

import (
	"math/bits"
	"time"
)

// register is one register: what reading puts into b and writing takes from
// it. b is the register as the command carries it, of any length.
type register struct {
	id    uint16
	name  string
	port  field // local_port, where the register has one
	read  func(d *Device, b []byte) *refusal
	write func(d *Device, b []byte) *refusal
	vf    bool // a virtual function may write it
	// shared belongs to the port, not to a virtual function: its write is
	// accepted, as every driver start writes it, and changes nothing.
	shared bool
}

// registers lists all. Linux names and numbers are those of reg_id.
var registers = []register{
	{id: regHostEndianness, name: "HOST_ENDIANNESS", read: zeroRegister, write: acceptRegister, vf: true},
	{id: regPTYS, name: "PTYS", port: ptysLocalPort, read: (*Device).readPTYS, write: (*Device).writePTYS},
	{id: regPMTU, name: "PMTU", port: pmtuLocalPort, read: (*Device).readPMTU, write: (*Device).writePMTU, shared: true},
	{id: regPAOS, name: "PAOS", port: paosLocalPort, read: (*Device).readPAOS, write: (*Device).writePAOS, shared: true},
	{id: regPFCC, name: "PFCC", port: pfccLocalPort, read: (*Device).readPFCC, write: (*Device).writePFCC},
	{id: regPPCNT, name: "PPCNT", port: ppcntLocalPort, read: (*Device).readPPCNT},
	{id: regPPLM, name: "PPLM", port: pplmLocalPort, read: (*Device).readPPLM, write: (*Device).writePPLM},
	{id: regPMLP, name: "PMLP", port: pmlpLocalPort, read: (*Device).readPMLP},
	{id: regPMAOS, name: "PMAOS", read: (*Device).readPMAOS},
	{id: regPCMR, name: "PCMR", port: pcmrLocalPort, read: zeroRegister, write: (*Device).writePCMR},
	{id: regPCAM, name: "PCAM", read: (*Device).readPCAM},
	{id: regMCAM, name: "MCAM", read: (*Device).readMCAM},
	{id: regQCAM, name: "QCAM", read: zeroRegister},
	{id: regMCIA, name: "MCIA", read: (*Device).readMCIA},
	{id: regMPCNT, name: "MPCNT", read: (*Device).readMPCNT},
	{id: regMTCAP, name: "MTCAP", read: (*Device).readMTCAP},
	{id: regMTMP, name: "MTMP", read: (*Device).readMTMP, write: acceptRegister},
	{id: regMLCR, name: "MLCR", port: mlcrLocalPort, read: zeroRegister, write: acceptRegister},
	{id: regMRTC, name: "MRTC", read: (*Device).readMRTC, write: acceptRegister}, // a write dates the firmware's own log
	{id: regMTUTC, name: "MTUTC", read: zeroRegister, write: (*Device).writeMTUTC},
	{id: regNodeDesc, name: "NODE_DESC", read: (*Device).readNodeDesc, write: (*Device).writeNodeDesc, vf: true},
}

func findRegister(id uint16) *register {
	for i := range registers {
		if registers[i].id == id {
			return &registers[i]
		}
	}
	return nil
}

// cmdAccessReg reads or writes a register. The answer has the layout of the
// question; a read leaves what selects a part of the register in place.
func (d *Device) cmdAccessReg(in, out []byte) *refusal {
	id := uint16(regRegisterId.get(in))
	r := findRegister(id)
	if r == nil {
		return badParam(codeNumber, "there is no register %#x", id)
	}
	b := regRegisterData.in(out)
	copy(b, regRegisterData.in(in))
	if port := r.port.get(b); r.port.width != 0 && len(b) > 1 && port != 1 {
		syndrome := uint32(codeFunction)
		if id == regPPCNT {
			syndrome = synPPCNTPort
		}
		return badParam(syndrome, "%s of local port %d", r.name, port)
	}
	if cmdOpMod.get(in) == regRead {
		return r.read(d, b)
	}
	switch {
	case r.write == nil:
		return badParam(codeReserved, "%s can't be written", r.name)
	case d.prof.vf && r.shared:
		return r.read(d, b)
	case d.prof.vf && !r.vf:
		return refuse(statBadParam, codeFunction, "a virtual function may not write %s", r.name)
	}
	return r.write(d, b)
}

// zeroRegister reads as it was asked for: all that is not there is zero.
func zeroRegister(*Device, []byte) *refusal { return nil }

// acceptRegister takes a write that changes nothing here.
func acceptRegister(*Device, []byte) *refusal { return nil }

// Port.

// resetPort puts the port into its power-on state; its counters stay. A
// virtual function's port is already up.
func (d *Device) resetPort() {
	p, prof := &d.port, d.prof
	p.adminUp = prof.vf
	p.operUp = false
	p.maxMTU = prof.maxMTU
	p.mtu = 1522 // 1500 and an Ethernet header, a tag and the FCS
	if prof.vf {
		p.mtu = prof.maxMTU
	}
	p.protoCap = prof.modes
	p.admProto = prof.modes
	p.pauseRX, p.pauseTX = true, true
	d.hca.extAdmin = prof.extModes
	d.followWire()
}

// followWire makes the port operational while it is up and something is at the
// other end, and tells the host of a change.
func (d *Device) followWire() {
	p := &d.port
	up := p.adminUp && p.cable && d.cfg.Wire != nil && d.cfg.Wire.LinkUp()
	p.proto = 0
	if up {
		p.proto = chooseMode(p.admProto&p.protoCap, d.prof.modeOper)
	}
	if up == p.operUp {
		return
	}
	p.operUp = up
	sub := uint8(portActive)
	if !up {
		sub = portDown
		p.linkDowns++
	}
	var data [28]byte
	data[8] = 1 << 4 // port number
	d.event(eventPortChange, sub, data[:])
}

// SetLink plugs the cable in or pulls it, for those who test a driver.
func (d *Device) SetLink(up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.port.cable = up
	d.followWire()
}

// linkModeSpeed is the speed of each legacy link mode, in Mbit/s.
// Source: ptys_link_speed_mbps.
var linkModeSpeed = [32]int{
	0: 1000, 1: 1000, 2: 10000, 3: 10000, 4: 10000, 5: 20000, 6: 40000, 7: 40000, 8: 56000,
	12: 10000, 13: 10000, 14: 10000, 15: 40000, 16: 40000, 18: 50000,
	20: 100000, 21: 100000, 22: 100000, 23: 100000, 24: 100, 25: 1000, 26: 10000,
	27: 25000, 28: 25000, 29: 25000, 30: 50000, 31: 50000,
}

// extModeSpeed is the same for the extended modes the profiles have.
// Source: ptys_ext_link_speed_mbps.
var extModeSpeed = [32]int{0: 100, 1: 1000, 3: 5000, 4: 10000, 5: 40000, 6: 25000, 7: 50000, 8: 50000, 9: 100000, 10: 100000, 11: 100000}

// chooseMode is the mode that a link comes up in: the preferred one if allowed,
// else the fastest.
func chooseMode(allowed, prefer uint32) uint32 {
	if allowed&prefer != 0 {
		return prefer
	}
	best, speed := uint32(0), 0
	for m := allowed; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); linkModeSpeed[i] > speed {
			best, speed = 1<<i, linkModeSpeed[i]
		}
	}
	return best
}

func (d *Device) readPTYS(b []byte) *refusal {
	p := &d.port
	if ptysProtoMask.get(b)&ptysEthernet == 0 {
		return nil // no InfiniBand modes
	}
	ptysEthProtoCapability.set(b, uint64(p.protoCap))
	ptysEthProtoAdmin.set(b, uint64(p.admProto))
	ptysEthProtoOper.set(b, uint64(p.proto))
	ptysExtEthProtoCapability.set(b, uint64(d.prof.extModes))
	ptysExtEthProtoAdmin.set(b, uint64(d.hca.extAdmin))
	ptysAnDisableCap.set(b, 1)
	ptysAnDisableAdmin.flag(b, d.hca.anOff)
	ptysConnectorType.set(b, connectorDA)
	ptysAnStatus.set(b, anLinkDown)
	if p.operUp {
		ptysAnStatus.set(b, anComplete)
		ptysEthProtoLpAdvertise.set(b, uint64(p.protoCap))
		ptysDataRateOper.set(b, uint64(linkModeSpeed[bits.TrailingZeros32(p.proto)&31]/100))
		if d.prof.extModes != 0 {
			ptysExtEthProtoOper.set(b, uint64(d.extMode()))
		}
	}
	return nil
}

// extMode is the extended mode with the speed of the link.
func (d *Device) extMode() uint32 {
	speed := linkModeSpeed[bits.TrailingZeros32(d.port.proto)&31]
	if extModeSpeed[bits.TrailingZeros32(d.prof.extOper)&31] == speed {
		return d.prof.extOper
	}
	for m := d.prof.extModes; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); extModeSpeed[i] == speed {
			return 1 << i
		}
	}
	return 0
}

// writePTYS restricts the link modes. They take effect when the link comes up.
func (d *Device) writePTYS(b []byte) *refusal {
	legacy, ext := uint32(ptysEthProtoAdmin.get(b)), uint32(ptysExtEthProtoAdmin.get(b))
	switch {
	case ptysProtoMask.get(b) != ptysEthernet:
		return badParam(codeCapability, "protocol mask %d", ptysProtoMask.get(b))
	case legacy&^d.port.protoCap != 0 || ext&^d.prof.extModes != 0:
		return badParam(codeCapability, "link modes %#x and %#x", legacy, ext)
	}
	d.hca.anOff = ptysAnDisableAdmin.on(b)
	if ext != 0 {
		d.hca.extAdmin = ext
		legacy = legacyModes(ext) & d.port.protoCap
	}
	if legacy == 0 {
		legacy = d.port.protoCap
	}
	d.port.admProto = legacy
	d.followWire()
	return nil
}

// legacyModes are the legacy modes with the speeds of extended ones.
func legacyModes(ext uint32) uint32 {
	var legacy uint32
	for m := ext; m != 0; m &= m - 1 {
		for i, speed := range linkModeSpeed {
			if speed != 0 && speed == extModeSpeed[bits.TrailingZeros32(m)&31] {
				legacy |= 1 << i
			}
		}
	}
	return legacy
}

func (d *Device) readPMTU(b []byte) *refusal {
	pmtuMaxMtu.set(b, uint64(d.port.maxMTU))
	pmtuAdminMtu.set(b, uint64(d.port.mtu))
	pmtuOperMtu.set(b, uint64(d.port.mtu))
	return nil
}

// leastMTU is the shortest frame with FCS that the port can be limited to.
const leastMTU = 64

func (d *Device) writePMTU(b []byte) *refusal {
	mtu := pmtuAdminMtu.get(b)
	if mtu < leastMTU || mtu > uint64(d.port.maxMTU) {
		return badParam(codeRange, "MTU %d, from %d to %d", mtu, leastMTU, d.port.maxMTU)
	}
	d.port.mtu = uint16(mtu)
	return d.readPMTU(b)
}

func (d *Device) readPAOS(b []byte) *refusal {
	paosAdminStatus.set(b, portStatus(d.port.adminUp))
	paosOperStatus.set(b, portStatus(d.port.operUp))
	return nil
}

func portStatus(up bool) uint64 {
	if up {
		return portStatusUp
	}
	return portStatusDown
}

// writePAOS sets the admin state if the write enables it.
func (d *Device) writePAOS(b []byte) *refusal {
	status := paosAdminStatus.get(b)
	if status != portStatusUp && status != portStatusDown {
		return badParam(codeRange, "admin status %d", status)
	}
	if paosAse.on(b) {
		d.port.adminUp = status == portStatusUp
		d.followWire()
	}
	return nil
}

func (d *Device) readPFCC(b []byte) *refusal {
	pfccPptx.flag(b, d.port.pauseTX)
	pfccPprx.flag(b, d.port.pauseRX)
	pfccPfctx.set(b, uint64(d.hca.pfcTX))
	pfccPfcrx.set(b, uint64(d.hca.pfcRX))
	return nil
}

// writePFCC sets pause. Global pause and pause by priority exclude each other.
func (d *Device) writePFCC(b []byte) *refusal {
	tx, rx := pfccPfctx.u8(b), pfccPfcrx.u8(b)
	if (tx != 0 && pfccPptx.on(b)) || (rx != 0 && pfccPprx.on(b)) {
		return badParam(codeMismatch, "global pause and pause by priority")
	}
	d.port.pauseTX, d.port.pauseRX = pfccPptx.on(b), pfccPprx.on(b)
	d.hca.pfcTX, d.hca.pfcRX = tx, rx
	return nil
}

// FEC modes, as bits.
const (
	fecNone     = 1 << 0
	fecFirecode = 1 << 1
	fecRS       = 1 << 2
)

// fecRows are the speeds whose FEC can be chosen.
var fecRows = []struct {
	able, admin field
	modes       uint64
}{
	{pplmFecOverrideCap100g, pplmFecOverrideAdmin100g, fecNone | fecRS},
	{pplmFecOverrideCap50g, pplmFecOverrideAdmin50g, fecNone | fecFirecode | fecRS},
	{pplmFecOverrideCap25g, pplmFecOverrideAdmin25g, fecNone | fecFirecode | fecRS},
	{pplmFecOverrideCap10g40g, pplmFecOverrideAdmin10g40g, fecNone | fecFirecode},
}

func (d *Device) readPPLM(b []byte) *refusal {
	for i, r := range fecRows {
		r.able.set(b, r.modes)
		r.admin.set(b, d.hca.fec[i])
	}
	active := uint64(fecNone)
	if d.port.operUp && linkModeSpeed[bits.TrailingZeros32(d.port.proto)&31] >= 25000 {
		active = fecRS
	}
	if admin := d.hca.fec[0]; admin != 0 && d.port.operUp {
		active = admin
	}
	pplmFecModeActive.set(b, active)
	return nil
}

func (d *Device) writePPLM(b []byte) *refusal {
	for _, r := range fecRows {
		if v := r.admin.get(b); v&^r.modes != 0 || bits.OnesCount64(v) > 1 {
			return badParam(codeCapability, "FEC %#x in %s", v, r.admin.of)
		}
	}
	for i, r := range fecRows {
		d.hca.fec[i] = r.admin.get(b)
	}
	return nil
}

func (d *Device) readPMLP(b []byte) *refusal {
	pmlpWidth.set(b, uint64(d.prof.lanes))
	for i := range d.prof.lanes {
		lane := field{pmlpLane0ModuleMapping.of, pmlpLane0ModuleMapping.bit + 32*uint32(i), 32}.in(b)
		laneTxLane.set(lane, uint64(i))
		laneRxLane.set(lane, uint64(i))
		laneModule.set(lane, 0)
	}
	return nil
}

func (d *Device) readPMAOS(b []byte) *refusal {
	if pmaosModule.on(b) {
		return badParam(codeNumber, "module %d", pmaosModule.get(b))
	}
	pmaosAdminStatus.set(b, 1) // enabled
	pmaosOperStatus.set(b, 1)  // plugged, enabled
	return nil
}

// writePCMR accepts the settings that can't be changed.
func (d *Device) writePCMR(b []byte) *refusal {
	if pcmrFcsChk.on(b) {
		return badParam(codeCapability, "the FCS check can't be changed")
	}
	return nil
}

// Which registers and features there are.

func (d *Device) readPCAM(b []byte) *refusal {
	if pcamAccessRegGroup.get(b) == 0 {
		regs := pcamRegs.in(b)
		pcamRegPplm.set(regs, 1)
		pcamRegPpcnt.set(regs, 1)
	}
	if pcamFeatureGroup.get(b) == 0 {
		features := pcamFeatures.in(b)
		pcamFeaturePtysConnectorType.set(features, 1)
		pcamFeaturePpcntStatisticalGroup.set(features, 1)
		pcamFeaturePtysExtendedEthernet.flag(features, d.prof.extModes != 0)
	}
	return nil
}

func (d *Device) readMCAM(b []byte) *refusal {
	realTime := d.genVal(capRqTsFormat) == tsCapBoth
	if mcamAccessRegGroup.get(b) == 0 {
		regs := mcamRegs.in(b)
		mcamRegMtmp.flag(regs, !d.prof.vf)
		mcamRegMrtc.flag(regs, realTime)
		mcamRegMtutc.flag(regs, realTime)
	}
	if mcamFeatureGroup.get(b) == 0 {
		features := mcamFeatures.in(b)
		mcamFeaturePciePerformanceGroup.set(features, 1)
		mcamFeaturePtpcyc2realtimeModify.flag(features, realTime)
	}
	return nil
}

// Sensors.

// chipTemperature is 45 °C and hottest 52 °C, in eighths of a degree.
const (
	chipTemperature = 45 * 8
	chipHottest     = 52 * 8
	chipTooHot      = 105 * 8
	chipSensor      = 0x61736963 // "asic"
)

func (d *Device) readMTCAP(b []byte) *refusal {
	mtcapSensorCount.set(b, 1)
	mtcapSensorMap.set(b, 1)
	return nil
}

// moduleSensor is the first sensor number of transceivers. A copper cable has
// none and reads as 0 degrees, which says so.
const moduleSensor = 64

func (d *Device) readMTMP(b []byte) *refusal {
	if mtmpSensorIndex.get(b) == moduleSensor {
		return nil
	}
	if mtmpSensorIndex.on(b) {
		return badParam(codeNumber, "sensor %d", mtmpSensorIndex.get(b))
	}
	mtmpTemperature.set(b, chipTemperature)
	mtmpMaxTemperature.set(b, chipHottest)
	mtmpMte.set(b, 1)
	mtmpTempThresholdHi.set(b, chipTooHot)
	mtmpSensorNameHi.set(b, chipSensor)
	return nil
}

// Clock.

func (d *Device) readMRTC(b []byte) *refusal {
	sec, nsec := d.realTime(time.Now())
	mrtcTimeH.set(b, uint64(sec))
	mrtcTimeL.set(b, uint64(nsec))
	return nil
}

// longestAdjust bounds a relative change of the clock, in nanoseconds.
const longestAdjust = 200_000

// writeMTUTC sets, moves or disciplines the real-time clock.
func (d *Device) writeMTUTC(b []byte) *refusal {
	if d.genVal(capRqTsFormat) == tsCapFreeRunning {
		return badParam(codeCapability, "there is no real-time clock")
	}
	now := time.Now()
	sec, nsec := d.realTime(now)
	offset := time.Unix(int64(sec), int64(nsec)).Sub(now)
	switch op := mtutcOperation.get(b); op {
	case clockSetTime:
		to := time.Unix(int64(mtutcUtcSec.get(b)), int64(mtutcUtcNsec.get(b)))
		offset = to.Sub(now)
	case clockAdjustTime:
		by := int32(mtutcTimeAdjustment.get(b))
		if by > longestAdjust || by < -longestAdjust {
			return badParam(codeRange, "adjust by %d ns", by)
		}
		offset += time.Duration(by)
	case clockAdjustRate:
		d.hca.rtcRate = int64(int32(mtutcFreqAdjustment.get(b)))
	default:
		return badParam(codeRange, "clock operation %d", op)
	}
	d.hca.rtcOffset, d.hca.rtcFrom = offset, now
	return nil
}

func (d *Device) readNodeDesc(b []byte) *refusal {
	copy(b, d.hca.nodeDesc[:])
	return nil
}

func (d *Device) writeNodeDesc(b []byte) *refusal {
	copy(d.hca.nodeDesc[:], b)
	return nil
}
