package main

// barrier_arm64.go owns the order of stores on arm64: of a doorbell record before
// its register, where a store-release lets later stores pass, so that a barrier
// must stand between; and of what a shared index tells of before the index.
// Manual: none; Arm ARM, chapter Memory ordering.

import "sync/atomic"

// storeBarrier makes every store before it visible to devices before any store
// after it (DMB ST).
func storeBarrier()

// storeFence has stores leave for the device before any that follow (DSB ST).
func storeFence()

// storeLine copies 64 bytes to a device in eight stores, ascending, and fences.
//
//go:noescape
func storeLine(to *byte, from *uint64)

// storeRelease stores v behind all loads and stores before it.
func storeRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// fullBarrier does nothing: an atomic load does not pass an atomic store.
func fullBarrier() {}
