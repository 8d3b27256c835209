package model

// cmd_caps.go owns the commands that tell and choose capabilities and that
// identify the adapter and the driver. The values are in profile.go.
// Manual: chapter "HCA capabilities".

// ownFunction refuses capabilities of other functions: there are none.
func ownFunction(other, id field, in []byte) *refusal {
	if other.on(in) && id.on(in) {
		return badParam(codeFunction, "function %d", id.get(in))
	}
	return nil
}

func (d *Device) cmdQueryHCACap(in, out []byte) *refusal {
	if no := ownFunction(queryCapInOtherFunction, queryCapInFunctionId, in); no != nil {
		return no
	}
	mod := cmdOpMod.get(in)
	set, ok := d.hca.caps[uint16(mod>>1)]
	if !ok {
		return badParam(synGroupUnknown, "capability group %#x", mod>>1)
	}
	from := set.max
	if mod&1 == 1 {
		from = set.current
	}
	copy(queryCapOutCapability.in(out), from)
	return nil
}

// cmdSetHCACap replaces the current values of a group. A value may be anything
// up to the maximum; bits without a name may not be set beyond it.
func (d *Device) cmdSetHCACap(in, _ []byte) *refusal {
	if no := ownFunction(setCapInOtherFunction, setCapInFunctionId, in); no != nil {
		return no
	}
	group := uint16(cmdOpMod.get(in))
	set, ok := d.hca.caps[group]
	if !ok || (group != groupGeneral && group != groupAtomic && group != groupRoCE && group != groupEthernet) {
		return badParam(synGroupUnknown, "capability group %#x can't be set", group)
	}
	next := make([]byte, capBytes)
	copy(next, setCapInCapability.in(in))
	rest := make([]byte, capBytes)
	copy(rest, next)
	for _, r := range capRows(group) {
		if v := r.f.get(next); v > r.f.get(set.max) {
			code := uint32(codeRange)
			if r.f == capLogMaxCurrentUcList {
				code = synUCListTooLong
			}
			return badParam(code, "%s is %d, %d is the most", r.f.of, v, r.f.get(set.max))
		}
		r.f.set(rest, 0)
	}
	if !allZero(rest) {
		return badParam(codeReserved, "a capability is set that the function does not have")
	}
	copy(set.current, next)
	return nil
}

// capRows lists the known fields of a group.
func capRows(group uint16) []capRow {
	switch group {
	case groupGeneral:
		return generalCaps
	case groupEthernet:
		return ethernetCaps
	case groupRoCE:
		return roceCaps
	}
	return atomicCaps
}

// ieeeVendor is the organization that the adapter names.
const ieeeVendor = 0x0002c9

func (d *Device) cmdQueryAdapter(_, out []byte) *refusal {
	b := adapterOutQueryAdapterStruct.in(out)
	adapterIeeeVendorId.set(b, ieeeVendor)
	adapterVsdVendorId.set(b, vendorID)
	copy(adapterVsdContdPsid.in(b), d.prof.psid)
	return nil
}

// cmdSetDriverVersion takes "OS,driver,version" as text that ends with a zero.
func (d *Device) cmdSetDriverVersion(in, _ []byte) *refusal {
	text := driverVersionInDriverVersion.in(in)
	end := 0
	for end < len(text) && text[end] != 0 {
		end++
	}
	if !d.gen(capDriverVersion) {
		return badParam(codeCapability, "driver versions")
	}
	if end == 0 || end == len(text) {
		return badParam(codeRange, "%d bytes of driver version", end)
	}
	d.hca.driver = string(text[:end])
	return nil
}
