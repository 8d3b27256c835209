package main

// device.go owns what the driver asks of a PCI function, and the list of
// functions it knows. Two kinds stand behind the interface: VFIO (vfio.go) and
// the embedded model (emulated.go); nothing above this file knows which.
// It does not own DMA memory (dma.go).

import "errors"

// device is one PCI function, opened. All that is read through it is untrusted.
// Its methods are for the control plane and may be called from any goroutine;
// the data path touches only bar0 and memory that was mapped before.
type device interface {
	// name says which function this is, in the user's words: 0000:03:00.0.
	name() string
	// bar0 is the register window, mapped shared and uncached but for pages that
	// combine was called for. Words in it are
	// big endian and go through the reg functions of dma.go only.
	bar0() []byte
	dmaSpace
	// vectors is the number of MSI-X vectors there are.
	vectors() int
	// enableVectors binds vectors 0..n-1 to eventfds and returns these. They are
	// non-blocking and belong to the device.
	enableVectors(n int) ([]int, error)
	// combining is how many more pages of 4096 bytes of BAR0 can be made to combine
	// stores: to gather those that follow each other into one write on the bus.
	// Where that is none, the error says why.
	combining() (pages int, err error)
	// combine makes page n of BAR0 one of these, until the function that it returns
	// is called. Only what may leave late, before a fence, belongs there.
	combine(n int) (restore func() error, err error)
	// setBusMaster allows or forbids DMA. Forbidding it is the first step of
	// every close: memory is freed only after.
	setBusMaster(on bool) error
	// wantedBack reports whether the host asks for the function: it is to be closed
	// soon then, and the host waits for that.
	wantedBack() (bool, error)
	// reset puts the function back to its power-on state.
	// It returns errNoReset where the function cannot do that.
	reset() error
	// close unmaps, disables and gives back everything. It may be called once.
	close() error
}

// errNoReset is returned by reset where there is no function reset.
var errNoReset = errors.New("the function has no reset of its own")

const vendorMellanox = 0x15b3

// pciModel is a supported function.
type pciModel struct {
	device uint16
	name   string
	vf     bool
}

// models lists the functions that the driver accepts, by PCI device id
// (vendor 15b3). Source: the manual's list of device ids, pci_id in Linux.
var models = []pciModel{
	{0x1013, "ConnectX-4", false},
	{0x1014, "ConnectX-4", true},
	{0x1015, "ConnectX-4 Lx", false},
	{0x1016, "ConnectX-4 Lx", true},
	{0x1017, "ConnectX-5", false},
	{0x1018, "ConnectX-5", true},
	{0x1019, "ConnectX-5 Ex", false},
	{0x101a, "ConnectX-5 Ex", true},
	{0x101b, "ConnectX-6", false},
	{0x101c, "ConnectX-6", true},
	{0x101d, "ConnectX-6 Dx", false},
	{0x101e, "ConnectX family (mlx5Gen)", true},
	{0x101f, "ConnectX-6 Lx", false},
	{0x1021, "ConnectX-7", false},
	{0x1023, "ConnectX-8", false},
	{0xa2d2, "BlueField", false},
	{0xa2d3, "BlueField", true},
	{0xa2d6, "BlueField-2", false},
	{0xa2dc, "BlueField-3", false},
}

// findModel returns the supported function with this PCI device id.
func findModel(id uint16) (pciModel, bool) {
	for _, m := range models {
		if m.device == id {
			return m, true
		}
	}
	return pciModel{}, false
}
