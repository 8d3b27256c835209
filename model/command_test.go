package model

// command_test.go covers how commands travel: mailboxes, tokens, lengths,
// checksums, several in flight, events, and scripted misbehaviour.

import (
	"encoding/binary"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDelivery breaks one thing at a time in the way a command is delivered.
func TestDelivery(t *testing.T) {
	be := binary.BigEndian
	in := long(msg(0x100, 16), 16+600) // two input mailboxes
	for _, row := range []struct {
		name  string
		spoil func(h *ctlHost, e []byte)
		want  uint8
	}{
		{"nothing", func(*ctlHost, []byte) {}, deliverOK},
		{"entry type", func(_ *ctlHost, e []byte) { e[0] = 6 }, deliverDescriptor},
		{"reserved byte", func(_ *ctlHost, e []byte) { e[2] = 1 }, deliverReserved},
		{"reserved byte at the end", func(_ *ctlHost, e []byte) { e[62] = 1 }, deliverReserved},
		{"short input", func(_ *ctlHost, e []byte) { be.PutUint32(e[4:], 8) }, deliverInLength},
		{"huge input", func(_ *ctlHost, e []byte) { be.PutUint32(e[4:], 1<<30) }, deliverInLength},
		{"input longer than its chain", func(_ *ctlHost, e []byte) { be.PutUint32(e[4:], 16+3*512) }, deliverInLength},
		{"odd input", func(_ *ctlHost, e []byte) { be.PutUint32(e[4:], 17) }, deliverInLength},
		{"no output", func(_ *ctlHost, e []byte) { be.PutUint32(e[56:], 0) }, deliverOutLength},
		{"output longer than its chain", func(_ *ctlHost, e []byte) { be.PutUint32(e[56:], 16+9*512) }, deliverOutLength},
		{"input pointer", func(_ *ctlHost, e []byte) { e[15] |= 4 }, deliverInPointer},
		{"output pointer", func(_ *ctlHost, e []byte) { e[55] |= 4 }, deliverOutPointer},
		{"input pointer to nowhere", func(_ *ctlHost, e []byte) { e[8] = 0x77 }, deliverFirmware},
		{"token of an input mailbox", func(h *ctlHost, e []byte) { h.at(be.Uint64(e[8:]), 576)[573]++ }, deliverToken},
		{"token of an output mailbox", func(h *ctlHost, e []byte) { h.at(be.Uint64(e[48:]), 576)[573]++ }, deliverToken},
		{"number of a mailbox", func(h *ctlHost, e []byte) { h.at(be.Uint64(e[8:]), 576)[571] = 9 }, deliverBlockNumber},
		{"next pointer", func(h *ctlHost, e []byte) { h.at(be.Uint64(e[8:]), 576)[567] |= 1 }, deliverInPointer},
		{"chain in a circle", func(h *ctlHost, e []byte) { copy(h.at(be.Uint64(e[8:]), 576)[560:568], e[8:16]) }, deliverBlockNumber},
	} {
		h := newCtlHost(t, "cx5", nil)
		h.ok(msg(0x104, 16), 12)
		h.place(3, in, 4112)
		e := h.at(h.queue+3*64, 64)
		row.spoil(h, e)
		h.ring(1 << 3)
		_, got := h.collect(3, 16)
		require.Equal(t, row.want, got, row.name)
		e[63] = 1 // ownership came back: a stray doorbell finds nothing
		e[63] = 0
		bad := h.d.Stats().BadDoorbells
		h.ring(1 << 3)
		require.Equal(t, bad+1, h.d.Stats().BadDoorbells, row.name)
	}
}

// TestOutputBounds asks for answers of every length: no byte beyond is written.
func TestOutputBounds(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	h.ok(msg(0x104, 16), 12)
	for n := 16; n < 4200; n += 52 {
		h.place(0, mod(msg(0x100, 16), 1), n)
		e := h.at(h.queue, 64)
		box := binary.BigEndian.Uint64(e[48:])
		for left := n - 16; left > 0; left -= 512 {
			b := h.at(box, 576)
			for i := max(0, min(left, 512)); i < 512; i++ {
				b[i] = 0xa5
			}
			box = binary.BigEndian.Uint64(b[560:])
		}
		h.ring(1)
		out, delivery := h.collect(0, n)
		require.Zero(t, delivery)
		require.Len(t, out, n)
		box = binary.BigEndian.Uint64(e[48:])
		for left := n - 16; left > 0; left -= 512 {
			b := h.at(box, 576)
			for i := min(left, 512); i < 512; i++ {
				require.EqualValues(t, 0xa5, b[i], "byte %d of an answer of %d", i, n)
			}
			box = binary.BigEndian.Uint64(b[560:])
		}
	}
	// 12 bytes are enough for a status, and the 4 behind them stay.
	h.ok(msg(0x10b, 16, issiInCurrentIssi, 1), 16)
	e := h.at(h.queue, 64)
	h.place(0, msg(0x80d, 16), 8)
	for i := 32; i < 48; i++ {
		e[i] = 0xa5
	}
	h.ring(1)
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5}, e[32:48])
}

// TestInFlight has commands in all slots, with one doorbell and with many.
func TestInFlight(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		h := newCtlHost(t, "cx5", nil).up()
		h.mapped = mapped
		for slot := range ctlSlots - 1 {
			h.place(slot, msg(0x800, 16), 16)
		}
		h.ring(1<<31 - 1)
		seen := map[uint32]bool{}
		for slot := range ctlSlots - 1 {
			out, delivery := h.collect(slot, 16)
			require.Zero(t, delivery)
			seen[binary.BigEndian.Uint32(out[8:])] = true
		}
		require.Len(t, seen, 31)
		require.EqualValues(t, 32, h.d.Stats().Objects["pd"])
	}
}

// TestCommandEvents checks which commands are told by an event: not the one
// that makes the command EQ nor the one that destroys it.
func TestCommandEvents(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	h.init()
	h.uar = h.ok(msg(0x802, 16), 16)
	in := h.eqMsg(1<<eventCommand, 1)
	ring := binary.BigEndian.Uint64(in[272:])
	eqn := h.ok(in, 16)
	require.Zero(t, h.d.Stats().EQEs)
	var arm [4]byte
	binary.BigEndian.PutUint32(arm[:], eqn<<24)
	h.d.Write(int(h.uar)*4096+uarEQArm, arm[:])
	h.post(5, msg(0x800, 16), 16)
	require.EqualValues(t, 1, h.d.Stats().EQEs)
	require.Equal(t, 1, h.irqs)
	e := h.at(ring, 64)
	require.EqualValues(t, eventCommand, e[1])
	require.Equal(t, []byte{0, 0, 0, 1 << 5}, e[32:36])
	h.post(6, msg(0x7ff, 16), 16) // a refused command is told as well
	require.EqualValues(t, 2, h.d.Stats().EQEs)
	require.Equal(t, 1, h.irqs, "one interrupt for each arm")
	h.ok(num(0x302, eqn), 16)
	require.EqualValues(t, 2, h.d.Stats().EQEs)
}

func TestScript(t *testing.T) {
	h := newCtlHost(t, "cx5", nil).up()
	var seen []CommandInfo
	verdict := map[uint16]Verdict{
		0x800: {Status: statBadRes, Syndrome: 0x123456},
		0x816: {Delivery: deliverFirmware},
		0x802: {Swallow: true},
		0x771: {Delay: 30 * time.Millisecond},
	}
	h.d.SetScript(&Script{Command: func(c CommandInfo) Verdict {
		c.In = append([]byte{}, c.In...)
		seen = append(seen, c)
		return verdict[c.Opcode]
	}})
	objects := h.d.Stats().Objects
	status, syndrome := h.exec(msg(0x800, 16), 16)
	require.EqualValues(t, statBadRes, status)
	require.EqualValues(t, 0x123456, syndrome)
	h.post(1, msg(0x816, 16), 16)
	_, delivery := h.collect(1, 16)
	require.EqualValues(t, deliverFirmware, delivery)
	h.post(2, msg(0x802, 16), 16)
	_, delivery = h.collect(2, 16)
	require.EqualValues(t, 0xff, delivery)
	require.Equal(t, objects, h.d.Stats().Objects, "none of them was executed")

	h.post(3, msg(0x771, 16), 16)
	_, delivery = h.collect(3, 16)
	require.EqualValues(t, 0xff, delivery)
	h.ok(msg(0x80d, 16), 8) // others are not held up
	bad := h.d.Stats().BadDoorbells
	h.ring(1<<3 | 1<<2) // nor can their slots be used again
	require.Equal(t, bad+2, h.d.Stats().BadDoorbells)
	deadline := time.Now().Add(5 * time.Second)
	for delivery == 0xff && time.Now().Before(deadline) {
		h.d.Step()
		_, delivery = h.collect(3, 16)
	}
	require.Zero(t, delivery)
	require.Equal(t, 4, seen[3].Seq-seen[0].Seq+1)
	require.Equal(t, 3, seen[3].Slot)
	require.EqualValues(t, 0x771, seen[3].Opcode)
	h.d.SetScript(nil)
	h.d.Reset() // a reset frees the slot that was never answered
	h.setQueue()
	h.post(2, msg(0x104, 16), 12)
	_, delivery = h.collect(2, 12)
	require.Zero(t, delivery)
}

// TestChecksums turns checksums on through SET_HCA_CAP: bad ones are refused,
// and answers carry good ones.
func TestChecksums(t *testing.T) {
	h := newCtlHost(t, "cx5", nil)
	h.ok(msg(0x104, 16), 12)
	h.ok(msg(0x10b, 16, issiInCurrentIssi, 1), 16)
	h.givePages(1)
	h.ok(mod(msg(0x100, 16), 1), 4112)
	in := append(msg(0x109, 16), h.out[16:]...)
	inside(setCapInCapability, capCmdifChecksum).set(in, checksumOn)
	h.ok(in, 16)
	h.givePages(2)
	h.ok(msg(0x102, 16), 16)

	h.post(0, mod(msg(0x100, 16), 1), 4112)
	e := h.at(h.queue, 64)
	require.EqualValues(t, 0xff, xorOf(e))
	for box := binary.BigEndian.Uint64(e[48:]); box != 0; {
		b := h.at(box, 576)
		require.EqualValues(t, 0xff, xorOf(b[512:575]))
		require.EqualValues(t, 0xff, xorOf(b))
		box = binary.BigEndian.Uint64(b[560:])
	}
	for _, spoil := range []func(){func() { e[61]++ }, func() { h.at(binary.BigEndian.Uint64(e[8:]), 576)[0]++ }, func() { h.at(binary.BigEndian.Uint64(e[8:]), 576)[574]++ }} {
		h.place(0, long(msg(0x80d, 16), 40), 16)
		spoil()
		h.ring(1)
		_, delivery := h.collect(0, 16)
		require.EqualValues(t, deliverSignature, delivery)
	}
	h.ok(long(msg(0x80d, 16), 40), 16)
}

// TestCapabilities sets what may and may not be set.
func TestCapabilities(t *testing.T) {
	for _, profile := range Profiles() {
		h := newCtlHost(t, profile, nil)
		h.ok(msg(0x104, 16), 12)
		h.ok(mod(msg(0x100, 16), 0), 4112)
		most := append([]byte{}, h.out[16:]...)
		h.ok(mod(msg(0x100, 16), 1), 4112)
		current := append([]byte{}, h.out[16:]...)
		set := func(f field, v uint64) (uint8, uint32) {
			in := append(msg(0x109, 16), current...)
			inside(setCapInCapability, f).set(in, v)
			return h.exec(in, 16)
		}
		status, syndrome := set(capLogMaxCurrentUcList, capLogMaxCurrentUcList.get(most)+1)
		require.EqualValues(t, statBadParam, status)
		require.EqualValues(t, synUCListTooLong, syndrome)
		status, _ = set(capShampo, 1)
		require.EqualValues(t, statBadParam, status, "a bit that is not advertised")
		status, _ = set(field{"", 200 * 8, 8}, 1)
		require.EqualValues(t, statBadParam, status, "a bit without a name")
		status, _ = set(capLogMaxCq, 10)
		require.Zero(t, status)
		h.ok(mod(msg(0x100, 16), 1), 4112)
		capLogMaxCq.set(current, 10)
		require.Equal(t, current, h.out[16:])
		h.ok(mod(msg(0x100, 16), 0), 4112)
		require.Equal(t, most, h.out[16:])
	}
}

// fuzzCommand lets data choose entries, mailboxes and doorbells. It fails on a
// panic and where the device forgets how to execute a command.
func fuzzCommand(t testing.TB, data []byte) {
	h := newFuzzHost(t)
	defer h.d.Close()
	next := func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}
	for len(data) > 0 {
		slot := int(next()) % ctlSlots
		c := commands[int(binary.BigEndian.Uint16([]byte{next(), next()}))%len(commands)]
		n := c.inLen
		if k := next(); k > 200 {
			n += int(k-200) * 8
		}
		in := msg(c.op, n)
		in[7] = next() & 3
		// Numbers near those of real objects, at places where numbers stand.
		for k := next() % 12; k > 0; k-- {
			at := int(binary.BigEndian.Uint16([]byte{next(), next()})) % max(n-8, 1)
			in[8+min(at, n-9)] = next()
		}
		outLen := c.outLen + int(next())*4
		h.place(slot, in, max(outLen, 8))
		e := h.at(h.queue+uint64(slot)*64, 64)
		if k := next(); k > 240 {
			e[int(next())%64] = next()
		}
		h.ring(1 << slot)
		h.d.Step()
	}
	h.d.Reset()
	h.setQueue()
	h.ok(msg(0x104, 16), 12)
}

// newFuzzHost is a function with one object of each kind.
func newFuzzHost(t testing.TB) *ctlHost {
	h := &ctlHost{t: t}
	d, err := New(Config{Profile: "cx6dx", Wire: &ctlWire{up: true}})
	require.NoError(t, err)
	h.d = d
	h.mem = make([]byte, 12<<20)
	require.NoError(t, d.MapDMA(ctlBase, h.mem, true))
	d.WriteConfig(4, []byte{6, 0})
	h.queue = h.alloc(4096)
	for range 512 {
		h.boxes = append(h.boxes, h.alloc(1024))
	}
	h.setQueue()
	h.up()
	h.objects()
	return h
}

func FuzzCommand(f *testing.F) {
	for seed := range int64(24) {
		r := rand.New(rand.NewSource(seed))
		b := make([]byte, 400)
		r.Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzCommand(t, data[:min(len(data), 4000)]) })
}

// FuzzEntry lets data be the command queue entry and its first mailboxes.
func FuzzEntry(f *testing.F) {
	for seed := range int64(8) {
		r := rand.New(rand.NewSource(seed))
		b := make([]byte, 64+1200)
		r.Read(b)
		b[0], b[63], b[1], b[2], b[3], b[62] = 7, 1, 0, 0, 0, 0
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newFuzzHost(t)
		defer h.d.Close()
		e := h.at(h.queue, 64)
		copy(e, data)
		binary.BigEndian.PutUint64(e[8:], h.boxes[0])
		binary.BigEndian.PutUint64(e[48:], h.boxes[1])
		copy(h.at(h.boxes[0], 1152), data[min(64, len(data)):])
		h.ring(1)
		h.d.Step()
		h.post(1, msg(0x80d, 16), 16)
		_, delivery := h.collect(1, 16)
		require.Zero(t, delivery)
	})
}

// FuzzBAR lets data be accesses to BAR0 and configuration space.
func FuzzBAR(f *testing.F) {
	for seed := range int64(8) {
		r := rand.New(rand.NewSource(seed))
		b := make([]byte, 300)
		r.Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newFuzzHost(t)
		defer h.d.Close()
		for len(data) >= 12 {
			off := int(binary.BigEndian.Uint32(data)) % (barSize + 4096)
			if data[4]&1 != 0 {
				off = int(h.uar)*4096 + off%4096
			}
			p := data[5:][:data[4]>>4%8]
			switch data[4] >> 1 & 3 {
			case 0:
				h.d.Read(off, append([]byte{}, p...))
			case 1, 2:
				h.d.Write(off, p)
			default:
				h.d.WriteConfig(off%5000-100, p)
				h.d.ReadConfig(off%5000-100, append([]byte{}, p...))
			}
			data = data[12:]
		}
		h.d.Step()
	})
}
