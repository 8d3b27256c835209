package main

// barrier_arm64.go owns the order of a doorbell record before its register on
// arm64: a store-release lets later stores pass, so a barrier must stand between.
// Manual: none; Arm ARM, chapter Memory ordering.

// storeBarrier makes every store before it visible to devices before any store
// after it (DMB ST).
func storeBarrier()
