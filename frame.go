package main

// frame.go owns what a burst is made of: frames to send and the pages that they
// lie in, by name. It does not own how they go out (txpath.go, mpwqe.go) or who
// has the pages (pagepool.go). Manual: chapter Send WQE.

// txFrame is a frame to send, or a piece of one, in DMA memory: half a cache line.
// It holds no pointer, so that bursts of it cost the garbage collector nothing.
type txFrame struct {
	addr uint64  // where the device finds it
	eseg seg     // what shall be done to it; the zero value is nothing
	form txForm  // bytes, and what keeps it from sharing a WQE
	page pageRef // given back when it has left; noPage when nobody waits
}

// txForm is txSize(n), with what is special about the frame: txMore, txAlone and
// txHeader(n). A frame in one piece with nothing special is just its size, so
// that one unsigned comparison refuses all others with the sizes that do not fit.
type txForm uint32

const (
	txSizeMask  txForm = 1<<20 - 1
	txMore      txForm = 1 << 20 // the next element is a further piece of this frame
	txAlone     txForm = 1 << 21 // wants a WQE of its own: for who sends what no session takes, such as TLS
	headerShift        = 22
)

// txSize is the form of a piece of n bytes. What is beyond the field is beyond
// every port as well.
func txSize(n uint32) txForm { return min(txForm(n), txSizeMask) }

// txHeader marks a frame that the device shall cut into segments (LSO), and says
// how long the headers are which every cut repeats.
func txHeader(n uint32) txForm { return txForm(min(n, 1<<(32-headerShift)-1)) << headerShift }

// size is how many bytes the piece has.
func (f txForm) size() uint32 { return uint32(f & txSizeMask) }

// plain reports whether nothing is special.
func (f txForm) plain() bool { return f <= txSizeMask }

// header is the length of the headers to repeat, 0 when the frame is sent as is.
func (f txForm) header() uint32 { return uint32(f >> headerShift) }

// tagged reports whether an eth segment has a VLAN tag to insert.
func tagged(eseg seg) bool { return eseg.b&be64word(insertVLAN<<16) != 0 }

// sizeRange says which frames can be sent as they are: from a header up to what
// the port takes. One unsigned comparison checks both ends, and of a form that
// the frame is plain too.
type sizeRange uint32

func upTo(frame int) sizeRange { return sizeRange(frame - etherHeader) }

func (r sizeRange) refuses(size uint32) bool { return size-etherHeader > uint32(r) }

// with is the range for frames with this eth segment: a tag that the device
// inserts counts too.
func (r sizeRange) with(eseg seg) sizeRange {
	if tagged(eseg) {
		return r - vlanTag
	}
	return r
}

// pageRef names a page of a pool: the pool's number in the upper 8 bits, the
// page in the lower 24. noPage belongs to nobody.
type pageRef uint32

const (
	noPage   = ^pageRef(0)
	pageMask = 1<<24 - 1
)

func (r pageRef) page() uint32 { return uint32(r & pageMask) }
