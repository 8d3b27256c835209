package main

// txinline_test.go owns the proof of how much of a frame stands in its WQE where the
// device asks for headers there.

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// B6: in mode L2 a frame's first 18 bytes are in its WQE, with a tag of its own, with
// one that is put in, and without, however its pieces are cut; a shorter frame is there
// whole.
func TestL2InlineHoldsATag(t *testing.T) {
	plain := numberedFrame(120, 1)
	tagged := append(append(bytes.Clone(plain[:12]), 0x81, 0x00, 0x20, 0x07), plain[12:]...)
	for _, c := range []struct {
		what   string
		b      []byte
		insert bool
		want   int
	}{{"tagged", tagged, false, 18}, {"plain", plain, false, 18}, {"to be tagged", plain, true, 18}, {"short", plain[:16], false, 16}} {
		for _, cut := range []int{0, 1, 12, 14, 15, 17, 18, 19} {
			if cut >= len(c.b) {
				continue
			}
			r := newSendRig(t, rigConfig{profile: "cx4", script: answerInline(inlineL2)})
			require.EqualValues(t, inlineL2, r.q.inline)
			pieces := [][]byte{c.b}
			if cut > 0 {
				pieces = [][]byte{c.b[:cut], c.b[cut:]}
			}
			before := r.dev.m.Stats().SQ.Inline
			require.Equal(t, len(pieces), r.q.send(r.place(txOffload{insert: c.insert, vlan: 0x2007}, pieces...)))
			r.drain()
			require.GreaterOrEqual(t, int(r.dev.m.Stats().SQ.Inline-before), c.want, "%s, cut at %d", c.what, cut)
			want := c.b
			if c.insert {
				want = tagged
			}
			want = append(bytes.Clone(want), make([]byte, max(0, softPadded-len(want)))...)
			require.Equal(t, [][]byte{want}, r.wire.frames(), "%s, cut at %d", c.what, cut)
			r.requireHome()
			r.requireHealthy()
		}
	}
}
