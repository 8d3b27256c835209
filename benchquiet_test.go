package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestQuietRepetitionsCount(t *testing.T) {
	q := &quietPlace{fastest: 100 * time.Microsecond}
	var of []repetition
	for i := range 8 {
		of = append(of, repetition{float64(10 + i%2), 105 * time.Microsecond})
	}
	require.True(t, q.enough([][]repetition{of, of}))
	for range 5 {
		of = append(of, repetition{20, 180 * time.Microsecond})
	}
	f := q.choose(of).figure("x", "ns")
	require.Equal(t, figure{Name: "x", Value: 11, Unit: "ns", Runs: 8, Min: 10, Max: 11, Disturbed: 5, All: 11}, f)

	require.False(t, q.enough([][]repetition{of, of[6:]}), "each benchmark needs its own")
	f = q.choose(of[6:]).figure("x", "ns")
	require.Equal(t, figure{Name: "x", Value: 20, Unit: "ns", Runs: 7, Min: 10, Max: 20}, f, "too few count: all do")
}

// What measures stays on its thread and gives the thread back as it was.
func TestQuietPlaceGoesBack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	q := newQuietPlace()
	q.move()
	if before.Count() > 1 {
		require.NoError(t, unix.SchedGetaffinity(0, &after))
		require.Equal(t, 1, after.Count())
		require.Equal(t, before.Count()-1, q.others.Count(), "a client has the rest")
		require.NoError(t, q.elsewhere(func() error { return unix.SchedGetaffinity(0, &after) }))
		require.Equal(t, q.others, after)
	}
	q.leave()
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, before, after)
}
