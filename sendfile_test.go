package main

// sendfile_test.go owns the proof that mode txonly with -r sends what a plain
// software NIC makes of the file's frames when it fills in checksums, inserts
// tags and cuts TCP, and that no file makes it fail otherwise than with a clear
// error. The reference is txmodel_test.go's.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tempPcap writes frames as a capture file and returns its name.
func tempPcap(t testing.TB, frames [][]byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "frames.pcap")
	writePcap(t, name, frames)
	return name
}

// fileFrame is a random frame as it stands in a file, and what leaves for it.
func fileFrame(m *mixer, mtu int, swp bool) softFrame {
	for {
		f, _ := m.next()
		f.b = bytes.Clone(f.b)
		f.csum, f.tag, f.header, f.mss = 0, false, 0, 0
		if !asParsed(&f) {
			continue
		}
		tunnel := f.inner.l3 != 0
		if tunnel && !swp {
			f.outer, f.inner = headers{}, headers{}
		}
		if last := f.last(); last.l4 != 0 && len(f.b)-f.outer.l3 > mtu && !last.udp {
			f.header = last.l4 + int(f.b[last.l4+12]>>4)*4
			f.mss = mtu + f.outer.l3 - f.header
		}
		if !f.whole() && len(f.b)-f.outer.l3 > mtu || len(f.b) <= 14 || f.header == 0 && len(f.b) > mtu+14 {
			continue // not whole, or dropped
		}
		f.ask()
		if m.chance(3) && be16(f.b, 12) != 0x8100 {
			f.tag, f.tci = true, uint16(m.Uint32())
		}
		return f
	}
}

// asParsed moves f's headers to where they are without tags in front, and
// reports whether the frame can be told apart at all: a file has no hints.
func asParsed(f *softFrame) bool {
	var p parsed
	parseFrame(&p, f.b, len(f.b), &packetMeta{})
	if p.reason != reasonNone || len(f.b) < 16 || be16(f.b, 12) == 0x8100 {
		return false
	}
	return (p.tunnel != tunnelNone) == (f.inner.l3 != 0)
}

// whole reports whether nothing follows the IP packet; what something follows is
// not cut.
func (f *softFrame) whole() bool {
	h := f.outer
	switch {
	case h.l3 == 0:
		return true
	case h.v6:
		return h.l3+40+int(be16(f.b, h.l3+4)) == len(f.b)
	}
	return h.l3+int(be16(f.b, h.l3+2)) == len(f.b)
}

func (f *softFrame) last() headers {
	if f.inner.l3 != 0 {
		return f.inner
	}
	return f.outer
}

// ask sets the checksums that -offload csum means.
func (f *softFrame) ask() {
	if f.outer.l3 == 0 {
		return
	}
	if !f.outer.v6 {
		f.csum |= csumL3
	}
	if f.inner.l3 == 0 || be16(f.b, f.outer.l4+6) != 0 {
		f.csum |= csumL4
	}
	if f.inner.l3 != 0 {
		f.csum |= csumL4Inner
		if !f.inner.v6 {
			f.csum |= csumL3Inner
		}
	}
}

// inFile is the frame with its tag as a file has it.
func (f *softFrame) inFile() []byte {
	if !f.tag {
		return f.b
	}
	b := append(bytes.Clone(f.b[:12]), 0x81, 0, byte(f.tci>>8), byte(f.tci))
	return append(b, f.b[12:]...)
}

func TestFileIsSentLikeASoftwareNIC(t *testing.T) {
	for _, profile := range []string{"cx4", "cx5", "cx6dx"} {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%s/%d", profile, mtu), func(t *testing.T) { sendRandomFile(t, profile, mtu) })
		}
	}
}

func sendRandomFile(t *testing.T, profile string, mtu int) {
	r := newSendRig(t, rigConfig{profile: profile, ring: 256})
	r.nic.params.mtu = mtu
	c := r.nic.channels[0]
	m := &mixer{Rand: rand.New(rand.NewPCG(7, uint64(mtu)))}
	var want recordWire
	ref := softNIC{wire: &want, longest: 1 << 20}
	var file [][]byte
	for range 700 {
		f := fileFrame(m, mtu, r.nic.caps.swp)
		file = append(file, f.inFile())
		ref.send(&f)
	}
	left := len(file)
	w, err := newFileWork(c, fileWish{path: tempPcap(t, file), offloads: offloadCsum | offloadVLAN | offloadTSO, queues: 1}, func(n int) int {
		n = min(n, left)
		left -= n
		return n
	})
	require.NoError(t, err)
	for left > 0 {
		before := left
		w.turn(c)
		r.drain()
		require.Less(t, left, before, "nothing was sent")
	}
	r.requireHealthy()
	require.Zero(t, c.tx.stats.dropped.get())
	at, what := r.wire.firstDifference(&want)
	require.Empty(t, what, "at %d", at)
	require.NotZero(t, c.tx.stats.tso.get())
	require.NotZero(t, c.tx.stats.vlans.get())
	require.Equal(t, r.nic.caps.swp, c.tx.stats.csumIn.get() > 0, "inner checksums")
}

func TestFileWithoutOffloadsIsSentAsItIs(t *testing.T) {
	r := newSendRig(t, rigConfig{})
	c := r.nic.channels[0]
	file := [][]byte{numberedFrame(60, 1), numberedFrame(9014, 2), numberedFrame(15, 3), numberedFrame(9030, 4)}
	w, err := newFileWork(c, fileWish{path: tempPcap(t, file), queues: 1}, func(n int) int { return n })
	require.NoError(t, err)
	w.turn(c)
	r.drain()
	w.turn(c) // from the start
	r.drain()
	r.requireHealthy()
	require.EqualValues(t, 2, c.tx.stats.dropped.get(), "a frame longer than the MTU")
	var want [][]byte
	for range 2 {
		want = append(want, file[0], file[1], append(bytes.Clone(file[2]), make([]byte, 45)...))
	}
	require.Equal(t, want, r.wire.frames())
}

func TestFileIsShared(t *testing.T) {
	name := tempPcap(t, [][]byte{numberedFrame(60, 0), numberedFrame(60, 1), numberedFrame(60, 2), numberedFrame(60, 3), numberedFrame(60, 4)})
	var all [][]byte
	for q := range 3 {
		part, err := readFrames(name, q, 3)
		require.NoError(t, err)
		all = append(all, part...)
	}
	require.Len(t, all, 5)
	_, err := readFrames(name, 5, 6)
	require.ErrorContains(t, err, "5 frames for 6 queues")
}

func TestFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("not a capture at all, is it"), "short": {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0}} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		_, err := readFrames(path, 0, 1)
		require.Equal(t, exitUsage, exitCode(err), "%s: %v", name, err)
	}
	_, err := readFrames(filepath.Join(dir, "missing"), 0, 1)
	require.Equal(t, exitUsage, exitCode(err))
	_, err = readFrames(tempPcap(t, [][]byte{make([]byte, 13)}), 0, 1)
	require.ErrorContains(t, err, "record 1 is no whole frame")
}

func TestOffloadList(t *testing.T) {
	set, err := parseOffloads("csum,tso")
	require.NoError(t, err)
	require.Equal(t, offloadCsum|offloadTSO, set)
	_, err = parseOffloads("csum,gso")
	require.EqualError(t, err, "-offload gso: csum, vlan, tso")
	require.ErrorContains(t, offloadSet(offloadTSO).can(caps{csum: true}, inlineNone), "-offload tso")
	for _, args := range [][]string{{"-emulate", "-r", "x"}, {"-emulate", "-mode", "txonly", "-offload", "csum"}} {
		_, _, err := parseOptions(args)
		require.Equal(t, exitUsage, exitCode(err), "%v", args)
	}
}

// FuzzPlanFrame holds that no frame is planned beyond its own bytes.
func FuzzPlanFrame(f *testing.F) {
	m := &mixer{Rand: rand.New(rand.NewPCG(3, 4))}
	for range 64 {
		s, _ := m.next()
		f.Add(bytes.Clone(s.b), 1500)
	}
	f.Fuzz(func(t *testing.T, b []byte, mtu int) {
		if len(b) <= etherHeader {
			return
		}
		mtu = 68 + mtu&0x3fff
		was := bytes.Clone(b)
		p := planFrame(b, offloadCsum|offloadVLAN|offloadTSO, mtu, true)
		tag := 0
		if p.offload.insert {
			tag = vlanTag
		}
		require.Len(t, p.b, len(was)-tag)
		require.Equal(t, was[12+tag:], p.b[12:])
		if p.header > 0 {
			require.Greater(t, len(p.b), p.header)
			require.NotZero(t, p.offload.mss)
			require.NotZero(t, p.offload.csum&(csumL4|csumL4Inner))
		}
	})
}
