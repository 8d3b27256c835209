package model

// control_port_test.go covers the port, its registers and counters, the virtual
// port, BAR0 and configuration space, and a device that is ill or gone.

import (
	"encoding/binary"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asyncEQ makes an EQ for one type of event and returns a reader of its
// entries.
func (h *ctlHost) asyncEQ(mask uint64) func() []byte {
	in := h.eqMsg(mask, 2)
	ring := binary.BigEndian.Uint64(in[272:])
	h.ok(in, 16)
	n := uint64(0)
	for i := range uint64(64) {
		h.at(ring+i*64, 64)[63] = 1
	}
	return func() []byte {
		e := h.at(ring+n*64, 64)
		if e[63] != 0 {
			return nil
		}
		n++
		return e
	}
}

func (h *ctlHost) read(id uint16, n int, pairs ...any) []byte {
	h.t.Helper()
	data := make([]byte, n)
	for i := 0; i+1 < len(pairs); i += 2 {
		pairs[i].(field).set(data, uint64(pairs[i+1].(int)))
	}
	status, _ := h.reg(id, regRead, data)
	require.Zero(h.t, status, h.d.Stats().LastRefusal)
	return h.out[16:]
}

func (h *ctlHost) write(id uint16, n int, pairs ...any) uint8 {
	h.t.Helper()
	data := make([]byte, n)
	for i := 0; i+1 < len(pairs); i += 2 {
		pairs[i].(field).set(data, uint64(pairs[i+1].(int)))
	}
	status, _ := h.reg(id, regWrite, data)
	return status
}

func TestPortState(t *testing.T) {
	wire := &ctlWire{up: true}
	h := newCtlHost(t, "cx5", wire).up()
	next := h.asyncEQ(1 << eventPortChange)
	state := func() (up, oper uint64) {
		h.ok(msg(0x750, 16), 16)
		up = vportStateOutState.get(h.out)
		require.EqualValues(t, adminUp, vportStateOutAdminState.get(h.out))
		return up, paosOperStatus.get(h.read(regPAOS, 16, paosLocalPort, 1))
	}
	up, oper := state()
	require.Zero(t, up)
	require.EqualValues(t, portStatusDown, oper)
	require.Zero(t, h.d.LinkSpeed())

	require.Zero(t, h.write(regPAOS, 16, paosLocalPort, 1, paosAdminStatus, portStatusUp))
	require.Nil(t, next(), "without ase nothing changes")
	require.Zero(t, h.write(regPAOS, 16, paosLocalPort, 1, paosAdminStatus, portStatusUp, paosAse, 1))
	e := next()
	require.Equal(t, []byte{eventPortChange, portActive, 1 << 4}, []byte{e[1], e[3], e[40]})
	up, oper = state()
	require.EqualValues(t, 1, up)
	require.EqualValues(t, portStatusUp, oper)
	require.Equal(t, 100000, h.d.LinkSpeed())

	h.d.SetLink(false)
	e = next()
	require.Equal(t, []byte{eventPortChange, portDown, 1 << 4}, []byte{e[1], e[3], e[40]})
	up, _ = state()
	require.Zero(t, up)
	h.d.SetLink(true)
	require.EqualValues(t, portActive, next()[3])
	wire.up = false
	deadline := time.Now().Add(5 * time.Second)
	for e = nil; e == nil && time.Now().Before(deadline); e = next() {
		h.d.Step()
	}
	require.NotNil(t, e, "the device notices that the other end went away")
	require.EqualValues(t, portDown, e[3])
	wire.up = true
	require.Zero(t, h.write(regPAOS, 16, paosLocalPort, 1, paosAdminStatus, portStatusDown, paosAse, 1))
	require.Nil(t, next())
	require.EqualValues(t, 2, physLinkDownEvents.get(ppcntCounterSet.in(h.read(regPPCNT, 256, ppcntLocalPort, 1, ppcntGrp, groupPhysical))))
}

func TestLinkModes(t *testing.T) {
	for _, row := range []struct {
		profile string
		speed   int
		ext     bool
		slower  uint32
		slow    int
	}{{"cx4", 25000, false, 1 << 12, 10000}, {"cx5", 100000, false, 1 << 27, 25000}, {"cx6dx", 100000, true, 1 << 6, 25000}} {
		h := newCtlHost(t, row.profile, &ctlWire{up: true}).up()
		h.write(regPAOS, 16, paosLocalPort, 1, paosAdminStatus, portStatusUp, paosAse, 1)
		b := h.read(regPTYS, 64, ptysLocalPort, 1, ptysProtoMask, ptysEthernet)
		oper := ptysEthProtoOper.u32(b)
		require.EqualValues(t, 1, onesCount(oper))
		require.Zero(t, oper&^ptysEthProtoCapability.u32(b))
		require.Equal(t, row.speed, h.d.LinkSpeed())
		require.Equal(t, row.ext, ptysExtEthProtoOper.on(b))
		admin := ptysEthProtoAdmin
		if row.ext {
			admin = ptysExtEthProtoAdmin
		}
		require.Zero(t, h.write(regPTYS, 64, ptysLocalPort, 1, ptysProtoMask, ptysEthernet, admin, int(row.slower)))
		require.Equal(t, row.slow, h.d.LinkSpeed())
		b = h.read(regPTYS, 64, ptysLocalPort, 1, ptysProtoMask, ptysEthernet)
		require.Equal(t, row.slower, admin.u32(b))
		require.EqualValues(t, statBadParam, h.write(regPTYS, 64, ptysLocalPort, 1, ptysProtoMask, ptysEthernet, ptysEthProtoAdmin, 1<<11))
	}
}

func onesCount(v uint32) (n int) {
	for ; v != 0; v &= v - 1 {
		n++
	}
	return n
}

func TestMTU(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	b := h.read(regPMTU, 16, pmtuLocalPort, 1)
	require.EqualValues(t, 10240, pmtuMaxMtu.get(b))
	require.Zero(t, h.write(regPMTU, 16, pmtuLocalPort, 1, pmtuAdminMtu, 9022))
	require.EqualValues(t, 9022, pmtuOperMtu.get(h.read(regPMTU, 16, pmtuLocalPort, 1)))
	require.EqualValues(t, statBadParam, h.write(regPMTU, 16, pmtuLocalPort, 1, pmtuAdminMtu, 10241))
	require.EqualValues(t, statBadParam, h.write(regPMTU, 16, pmtuLocalPort, 1, pmtuAdminMtu, 3))
	require.EqualValues(t, 9022, h.d.port.mtu)
}

// TestPortCounters compares every group with the counters behind it.
func TestPPCNTGroups(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	h.d.port.rxPackets, h.d.port.rxBytes, h.d.port.rxMulti, h.d.port.rxBroad = 1<<33+10, 5<<33, 4, 3
	h.d.port.txPackets, h.d.port.txBytes, h.d.port.txMulti, h.d.port.txBroad = 20, 3000, 2, 1
	h.d.port.undersize, h.d.port.oversize, h.d.port.discards = 7, 8, 9
	for i := range h.d.port.sizes {
		h.d.port.sizes[i] = uint64(100 + i)
	}
	group := func(g, prio int) []byte {
		return ppcntCounterSet.in(h.read(regPPCNT, 256, ppcntLocalPort, 1, ppcntGrp, g, ppcntPrioTc, prio))
	}
	be := binary.BigEndian.Uint64
	c := group(groupIEEE8023, 0)
	require.Equal(t, []uint64{20, 1<<33 + 10}, []uint64{be(c), be(c[8:])})
	c = group(groupRFC2863, 0)
	require.EqualValues(t, 1<<33+3, c2863IfInUcastPkts.get(c))
	require.EqualValues(t, 9, c2863IfInDiscards.get(c))
	require.EqualValues(t, 15, c2863IfInErrors.get(c))
	c = group(groupRFC2819, 0)
	for i := range 10 {
		require.EqualValues(t, 100+i, be(c[88+8*i:]))
	}
	require.EqualValues(t, 7, c2819EtherStatsUndersizePkts.get(c))
	require.EqualValues(t, 8, c2819EtherStatsOversizePkts.get(c))
	require.EqualValues(t, 8, c3635Dot3statsFrameTooLongs.get(group(groupRFC3635, 0)))
	require.EqualValues(t, 9, prioRxDiscards.get(group(groupPerPriority, 0)))
	require.Zero(t, be(group(groupPerPriority, 3)))
	require.EqualValues(t, 5<<36, physStatPhyReceivedBits.get(group(groupPhysicalStat, 0)))
	for _, g := range []int{groupEthExtended, groupPerTC, groupCongestion, groupPhysical} {
		group(g, 0)
	}
	for _, bad := range [][]any{{ppcntGrp, 0x3f}, {ppcntGrp, groupPerPriority, ppcntPrioTc, 9}, {ppcntClr, 1}} {
		data := make([]byte, 256)
		ppcntLocalPort.set(data, 1)
		for i := 0; i < len(bad); i += 2 {
			bad[i].(field).set(data, uint64(bad[i+1].(int)))
		}
		status, _ := h.reg(regPPCNT, regRead, data)
		require.EqualValues(t, statBadParam, status)
	}
}

// TestRegisters reads all others once, on every profile, and short.
func TestRegisters(t *testing.T) {
	for _, profile := range Profiles() {
		h := newCtlHost(t, profile, &ctlWire{up: true}).up()
		for _, r := range registers {
			for _, n := range []int{256, 64, 20, 4} {
				data := make([]byte, n)
				if r.port.width != 0 {
					r.port.set(data, 1)
				}
				status, _ := h.reg(r.id, regRead, data)
				require.Zero(t, status, "%s: %s", r.name, h.d.Stats().LastRefusal)
			}
			if r.write == nil {
				require.EqualValues(t, statBadParam, h.write(r.id, 64, field{"", 8, 8}, b2i(r.port.width != 0)), r.name)
			}
		}
	}
	h := newCtlHost(t, "cx6dx", nil).up()
	require.EqualValues(t, 1, pcamFeaturePtysExtendedEthernet.get(pcamFeatures.in(h.read(regPCAM, 80))))
	require.EqualValues(t, 1, mcamRegMtutc.get(mcamRegs.in(h.read(regMCAM, 72))))
	require.Zero(t, mcamRegMtutc.get(mcamRegs.in(h.read(regMCAM, 72, mcamAccessRegGroup, 1))))
	b := h.read(regPMLP, 64, pmlpLocalPort, 1)
	require.EqualValues(t, 4, pmlpWidth.get(b))
	require.Equal(t, []byte{3, 3, 0, 0}, b[16:20])
	require.Zero(t, h.write(regPFCC, 32, pfccLocalPort, 1, pfccPptx, 1))
	b = h.read(regPFCC, 32, pfccLocalPort, 1)
	require.Equal(t, []uint64{1, 0}, []uint64{pfccPptx.get(b), pfccPprx.get(b)})
	require.Zero(t, h.write(regPPLM, 80, pplmLocalPort, 1, pplmFecOverrideAdmin100g, fecRS))
	require.EqualValues(t, fecRS, pplmFecOverrideAdmin100g.get(h.read(regPPLM, 80, pplmLocalPort, 1)))
	require.EqualValues(t, statBadParam, h.write(regPPLM, 80, pplmLocalPort, 1, pplmFecOverrideAdmin100g, fecFirecode))
	require.EqualValues(t, chipTemperature, mtmpTemperature.get(h.read(regMTMP, 32)))
	require.Zero(t, h.write(regNodeDesc, 64, field{"", 0, 32}, 0x61626364))
	require.Equal(t, "abcd", string(h.read(regNodeDesc, 64)[:4]))
}

func TestModule(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	var all []byte
	for at := 0; at < 256; at += 32 {
		b := h.read(regMCIA, 144, mciaI2cDeviceAddress, i2cLow, mciaDeviceAddress, at, mciaSize, 32)
		require.Zero(t, mciaStatus.get(b))
		all = append(all, b[16:48]...)
	}
	require.EqualValues(t, moduleQSFP28, all[0])
	require.EqualValues(t, moduleQSFP28, all[128])
	require.Equal(t, "Emulated        ", string(all[148:164]))
	for _, sum := range [][2]int{{128, 191}, {192, 223}} {
		var s byte
		for _, v := range all[sum[0]:sum[1]] {
			s += v
		}
		require.Equal(t, s, all[sum[1]])
	}
	status, _ := h.reg(regMCIA, regRead, append([]byte{0, 0, 0, 0, 0x50, 0, 0, 250, 0, 0, 0, 32}, make([]byte, 132)...))
	require.EqualValues(t, statBadParam, status)
	b := h.read(regMCIA, 144, mciaI2cDeviceAddress, 0x20, mciaSize, 4)
	require.EqualValues(t, mciaUnsupported, mciaStatus.get(b))
	h.d.SetLink(false)
	b = h.read(regMCIA, 144, mciaI2cDeviceAddress, i2cLow, mciaSize, 4)
	require.EqualValues(t, mciaNoDevice, mciaStatus.get(b))
}

func TestClocks(t *testing.T) {
	h := newCtlHost(t, "cx6dx", nil).up()
	seconds := func() uint64 { return mrtcTimeH.get(h.read(regMRTC, 16)) }
	require.InDelta(t, time.Now().Unix(), seconds(), 1)
	require.Zero(t, h.write(regMTUTC, 28, mtutcOperation, clockSetTime, mtutcUtcSec, 1000))
	require.InDelta(t, 1000, seconds(), 1)
	require.Zero(t, h.write(regMTUTC, 28, mtutcOperation, clockAdjustRate, mtutcFreqAdjustment, 500))
	require.Zero(t, h.write(regMTUTC, 28, mtutcOperation, clockAdjustTime, mtutcTimeAdjustment, 1500))
	require.InDelta(t, 1000, seconds(), 2)
	require.EqualValues(t, statBadParam, h.write(regMTUTC, 28, mtutcOperation, 9))
	require.EqualValues(t, statBadParam, h.write(regMTUTC, 28, mtutcOperation, clockAdjustTime, mtutcTimeAdjustment, 1<<30))
	old := newCtlHost(t, "cx5", nil).up()
	require.EqualValues(t, statBadParam, old.write(regMTUTC, 28, mtutcOperation, clockSetTime))

	start := h.d.started
	require.Zero(t, h.d.clock(start))
	require.EqualValues(t, 3_000_000_000, h.d.clock(start.Add(3*time.Second)), "1 GHz")
	require.EqualValues(t, 156_250_000*40, old.d.clock(old.d.started.Add(40*time.Second)))
	year := 365 * 24 * time.Hour
	require.EqualValues(t, uint64(year.Seconds())*156_250_000, old.d.clock(old.d.started.Add(year)), "no overflow")
}

func TestVportContext(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	next := h.asyncEQ(1 << eventVportChange)
	ctx := modifyVportNicVportContext
	sel := func(f field) field { return field{"", 96 + f.bit, 1} }
	list := func(kind, n int) []byte {
		in := msg(0x755, 512, sel(vportSelectAddressesList), 1, inside(ctx, nvcAllowedListType), kind, inside(ctx, nvcAllowedListSize), n)
		for i := range n {
			in = append(in, 0, 0, 2, 0, 0, 0, byte(kind), byte(i))
		}
		return in
	}
	h.ok(msg(0x755, 512, sel(vportSelectChangeEvent), 1, inside(ctx, nvcArmChangeEvent), 1, inside(ctx, nvcEventOnMcAddressChange), 1), 16)
	h.ok(list(listUC, 3), 16)
	require.Nil(t, next())
	h.ok(list(listMC, 5), 16)
	e := next()
	require.EqualValues(t, eventVportChange, e[1])
	h.ok(list(listMC, 4), 16)
	require.Nil(t, next(), "one event for each arm")
	h.ok(list(listVLAN, 2), 16)
	for kind, n := range map[int]int{listUC: 3, listMC: 4, listVLAN: 2} {
		h.ok(msg(0x754, 16, queryVportAllowedListType, kind), 272+8*16)
		require.EqualValues(t, n, inside(queryVportOutNicVportContext, nvcAllowedListSize).get(h.out))
		if kind != listVLAN {
			require.Equal(t, []byte{0, 0, 2, 0, 0, 0, byte(kind), byte(n - 1)}, h.out[272+8*(n-1):][:8])
		}
	}
	h.ok(msg(0x755, 512, sel(vportSelectPromisc), 1, inside(ctx, nvcPromiscAll), 1, sel(vportSelectMtu), 1, inside(ctx, nvcMtu), 9000), 16)
	h.ok(msg(0x755, 512, sel(vportSelectDisableUcLocalLb), 1, inside(ctx, nvcDisableUcLocalLb), 1), 16)
	h.ok(msg(0x754, 16), 272)
	require.EqualValues(t, 1, inside(queryVportOutNicVportContext, nvcPromiscAll).get(h.out))
	require.EqualValues(t, 9000, inside(queryVportOutNicVportContext, nvcMtu).get(h.out))
	require.NotZero(t, inside(queryVportOutNicVportContext, nvcPortGuid).get(h.out))

	h.d.vport.rxUni = counterPair{packets: 5, bytes: 500}
	h.ok(msg(0x770, 32, vportCounterInClear, 1), 528)
	require.EqualValues(t, 500, trafficOctets.get(vportCounterOutReceivedEthUnicast.in(h.out)))
	h.ok(msg(0x770, 32), 528)
	require.Zero(t, trafficOctets.get(vportCounterOutReceivedEthUnicast.in(h.out)))
	h.d.vport.steerMiss = 77
	h.ok(msg(0x76f, 16), 528)
	require.EqualValues(t, 77, envNicReceiveSteeringDiscard.get(vnicEnvOutVportEnv.in(h.out)))

	mac := [6]byte{2, 1, 2, 3, 4, 5}
	set := msg(0x829, 64, l2TableIndex, 9)
	copy(set[34:], mac[:])
	h.ok(set, 16)
	h.ok(set, 16) // again is a replacement
	require.Equal(t, 1, h.d.hca.l2ByMAC[mac])
	h.ok(msg(0x82a, 64, l2TableIndex, 9), 64)
	require.Equal(t, mac[:], h.out[34:40])
	h.ok(msg(0x82b, 64, l2TableIndex, 9), 16)
	require.Empty(t, h.d.hca.l2ByMAC)

	h.ok(msg(0x827, 16, vxlanVxlanUdpPort, 8472), 16)
	status, _ := h.exec(msg(0x827, 16, vxlanVxlanUdpPort, 8472), 16)
	require.EqualValues(t, statBadParam, status)
	h.ok(msg(0x828, 16, vxlanVxlanUdpPort, 8472), 16)
}

// word reads a register through trapped access.
func (h *ctlHost) word(off int) uint32 {
	var b [4]byte
	h.d.Read(off, b[:])
	return binary.BigEndian.Uint32(b[:])
}

func TestInitializationSegment(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	require.EqualValues(t, 35<<16|16, h.word(0))
	require.EqualValues(t, 5<<16|4030, h.word(4))
	require.EqualValues(t, 0x56, h.word(0x14)&0xff)
	require.EqualValues(t, h.queue, uint64(h.word(0x10))<<32|uint64(h.word(0x14)&^0xfff))
	require.Zero(t, h.word(0x1fc)>>31)
	require.NotEqual(t, uint32(0xffffffff), h.word(0x230))
	a := h.word(0x1010)
	require.NotEqual(t, a, h.word(0x1010), "the health counter moves at every read")
	t0 := uint64(h.word(0x1000))<<32 | uint64(h.word(0x1004))
	time.Sleep(2 * time.Millisecond)
	require.Greater(t, uint64(h.word(0x1000))<<32|uint64(h.word(0x1004)), t0)
	require.Zero(t, h.word(0xff8))
	b := make([]byte, 8)
	h.d.Read(barSize-4, b)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, b)

	// As memory: a bare address is given its size back, and the health counter
	// moves by itself.
	bar := h.d.BAR()
	binary.BigEndian.PutUint32(bar[0x14:], uint32(h.queue))
	require.Eventually(t, func() bool { h.d.Step(); return bar[0x17] == 0x56 }, 5*time.Second, time.Millisecond)
	first := binary.BigEndian.Uint32(bar[0x1010:])
	require.Eventually(t, func() bool { h.d.Step(); return binary.BigEndian.Uint32(bar[0x1010:]) != first }, 5*time.Second, time.Millisecond)
}

func TestIllAndGone(t *testing.T) {
	gone := false
	h := newCtlHost(t, "cx5", nil).up()
	h.d.SetScript(&Script{HealthSyndrome: 7, Vanish: func() bool { return gone }})
	before := h.word(0x1010)
	require.Equal(t, before, h.word(0x1010), "a dead device's counter stands still")
	require.EqualValues(t, 7, h.word(0x23c)>>16&0xff)
	gone = true
	require.EqualValues(t, 0xffffffff, h.word(0))
	require.False(t, h.d.Step())
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, h.d.BAR()[0x1010:0x1014])
	cfg := make([]byte, 4)
	h.d.ReadConfig(0, cfg)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, cfg)
	h.ring(1)
	gone = false
	require.EqualValues(t, 35<<16|16, h.word(0))
	require.Empty(t, h.d.Stats().Objects, "it comes back as if powered on")

	h.d.SetScript(&Script{NotReady: -1})
	h.d.Reset()
	h.setQueue()
	require.EqualValues(t, 1, h.word(0x1fc)>>31)
	h.post(0, msg(0x104, 16), 12)
	_, delivery := h.collect(0, 12)
	require.EqualValues(t, 0xff, delivery)
	h.d.SetScript(&Script{NotReady: time.Millisecond})
	time.Sleep(2 * time.Millisecond)
	h.ok(msg(0x104, 16), 12)

	h.d.SetScript(&Script{Infiniband: true})
	h.d.Reset()
	h.setQueue()
	h.ok(msg(0x104, 16), 12)
	h.ok(mod(msg(0x100, 16), 1), 4112)
	require.Zero(t, inside(queryCapOutCapability, capPortType).get(h.out))
}

// TestNICInterface disables and resets the function through the command queue
// address register.
func TestNICInterface(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	low := h.word(0x14)
	set := func(state uint32) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], low&^0xfff|state<<8)
		h.d.Write(0x14, b[:])
	}
	set(nicDisabled)
	require.EqualValues(t, nicDisabled, h.word(0x14)>>8&7)
	require.Empty(t, h.d.Stats().Objects)
	h.post(0, msg(0x80d, 16), 16)
	_, delivery := h.collect(0, 16)
	require.EqualValues(t, 0xff, delivery, "a disabled interface takes no commands")
	set(nicFullDriver)
	h.ok(msg(0x80d, 16), 16)
	set(nicSWReset)
	require.EqualValues(t, nicDisabled, h.word(0x14)>>8&7)
	set(nicFullDriver)
	h.ok(msg(0x104, 16), 12)
}

func TestConfigurationSpace(t *testing.T) {
	for profile, id := range map[string]uint16{"cx4": 0x1015, "cx5": 0x1017, "cx6dx": 0x101d, "cx5-vf": 0x1018} {
		d, err := New(Config{Profile: profile})
		require.NoError(t, err)
		rd := func(off, n int) uint32 {
			b := make([]byte, 4)
			d.ReadConfig(off, b[:n])
			return binary.LittleEndian.Uint32(b)
		}
		require.EqualValues(t, 0x15b3, rd(0, 2))
		require.EqualValues(t, id, rd(2, 2))
		require.EqualValues(t, 0x020000, rd(8, 4)>>8)
		d.WriteConfig(0x10, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		require.EqualValues(t, ^uint32(barSize-1)|0xc, rd(0x10, 4), "size of BAR0")
		require.EqualValues(t, 0xffffffff, rd(0x14, 4))
		d.WriteConfig(0x18, []byte{0xff, 0xff, 0xff, 0xff})
		require.Zero(t, rd(0x18, 4), "there is no BAR2")
		found := map[byte]int{}
		for at := int(rd(0x34, 1)); at != 0; at = int(rd(at+1, 1)) {
			found[byte(rd(at, 1))] = at
			require.Less(t, len(found), 10)
		}
		require.Contains(t, found, byte(0x01))
		require.Contains(t, found, byte(0x10))
		require.Contains(t, found, byte(0x11))
		express, msix := found[0x10], found[0x11]
		require.EqualValues(t, 2, rd(express+2, 2)&0xf)
		require.NotZero(t, rd(express+4, 4)&(1<<28), "function level reset")
		speed := uint32(3)
		if profile == "cx6dx" {
			speed = 4
		}
		require.Equal(t, speed, rd(express+0x12, 2)&0xf)
		require.EqualValues(t, 16, rd(express+0x12, 2)>>4&0x3f)
		require.Equal(t, uint32(1)<<(speed+1)-2, rd(express+0x2c, 4))
		require.EqualValues(t, 63, rd(msix+2, 2)&0x7ff)
		require.EqualValues(t, 0x2000, rd(msix+4, 4))
		require.EqualValues(t, 0x3000, rd(msix+8, 4))
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
		d.Write(0, []byte{1})
		require.False(t, d.Step())
	}
	_, err := New(Config{Profile: "cx9"})
	require.ErrorContains(t, err, "cx6dx")
	_, err = New(Config{Profile: "cx5", MAC: []byte{1, 2}})
	require.Error(t, err)
}

// TestRun checks that an idle device sleeps but still serves a doorbell soon.
func TestRun(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { h.d.Run(stop); close(done) }()
	time.Sleep(20 * time.Millisecond)
	h.d.mu.Lock()
	h.place(0, msg(0x104, 16), 12)
	h.d.mu.Unlock()
	e := h.at(h.queue, 64)
	h.d.putWord(barCmdDoorbell, 1)
	require.Eventually(t, func() bool { return load32(e, 60)&1 == 0 }, 5*time.Second, 100*time.Microsecond)
	close(stop)
	<-done
}

// LinkSpeed is the speed of the link in Mbit/s, 0 while it is down.
func (d *Device) LinkSpeed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.port.operUp {
		return 0
	}
	return linkModeSpeed[bits.TrailingZeros32(d.port.proto)&31]
}
