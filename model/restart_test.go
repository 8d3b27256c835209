package model

// This file owns the test of a send queue that is started again: Linux does so
// after an error completion, and does not touch the doorbell record until it
// has new work.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRestartedSendQueueForgetsItsRecord(t *testing.T) {
	r := newRig(t)
	e, _ := r.eq(6)
	c := r.cq(6, e)
	q := r.sq(6, c)
	f := rigUDP(58, 1)
	send := append(rigEseg(0, 0, nil), rigSeg(len(f), r.pa(), r.put(f))...)
	q.post(opSend, wantCQE, 0, send)
	q.post(opSend, wantCQE, 0, send)
	q.kick()
	require.Len(t, r.wire.out, 2)

	q.state = sqRST
	r.d.resetSQ(q.sq)
	q.state = sqRDY
	require.False(t, r.d.pollRecords(), "the record is that of the life before")
	require.Len(t, r.wire.out, 2)

	q.pc = 0
	q.post(opSend, wantCQE, 0, send)
	putBE32(r.mem, q.rec+4, q.pc)
	require.True(t, r.d.pollRecords(), "it has changed")
	require.Len(t, r.wire.out, 3)

	q.state = sqRST
	r.d.resetSQ(q.sq)
	q.state = sqRDY
	q.pc = 0
	q.post(opSend, wantCQE, 0, send)
	q.kick()
	require.Len(t, r.wire.out, 4, "a doorbell counts even if the record looks the same")
}
