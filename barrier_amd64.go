package main

// barrier_amd64.go owns the order of stores on amd64: of a doorbell record before
// its register, and of what a shared index tells of before the index.
// Manual: none; Intel SDM volume 3, memory ordering.

// storeBarrier does nothing: the record's atomic store is a locked instruction,
// after which nothing may pass.
func storeBarrier() {}

// storeFence has stores leave for the device before any that follow, also where
// stores combine (SFENCE).
func storeFence()

// storeLine copies 64 bytes to a device in eight stores, ascending, and fences.
//
//go:noescape
func storeLine(to *byte, from *uint64)

// storeRelease stores v behind all loads and stores before it, which is how this
// processor stores anyway; that it is a call keeps the compiler from moving them.
// Unlike an atomic store it does not wait until they are visible, and loads may
// pass it: see fullBarrier.
//
//go:noescape
func storeRelease(p *uint32, v uint32)

// fullBarrier keeps loads behind it from passing stores before it.
func fullBarrier()
