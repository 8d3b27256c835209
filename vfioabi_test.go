package main

// vfioabi_test.go checks numbers and layouts against the kernel's header, the
// parser of the IOMMU's description, and the real system calls where they need
// no VFIO.

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Numbers and sizes as a C program prints them from linux/vfio.h.
func TestVFIONumbers(t *testing.T) {
	for name, v := range map[string][2]uint64{
		"VFIO_GET_API_VERSION":              {0x3b64, vfioGetAPIVersion},
		"VFIO_CHECK_EXTENSION":              {0x3b65, vfioCheckExtension},
		"VFIO_SET_IOMMU":                    {0x3b66, vfioSetIOMMU},
		"VFIO_GROUP_GET_STATUS":             {0x3b67, vfioGroupGetStatus},
		"VFIO_GROUP_SET_CONTAINER":          {0x3b68, vfioGroupSetContainer},
		"VFIO_GROUP_UNSET_CONTAINER":        {0x3b69, vfioGroupUnsetContainer},
		"VFIO_GROUP_GET_DEVICE_FD":          {0x3b6a, vfioGroupGetDeviceFD},
		"VFIO_DEVICE_GET_INFO":              {0x3b6b, vfioDeviceGetInfo},
		"VFIO_DEVICE_GET_REGION_INFO":       {0x3b6c, vfioDeviceGetRegionInfo},
		"VFIO_DEVICE_GET_IRQ_INFO":          {0x3b6d, vfioDeviceGetIRQInfo},
		"VFIO_DEVICE_SET_IRQS":              {0x3b6e, vfioDeviceSetIRQs},
		"VFIO_DEVICE_RESET":                 {0x3b6f, vfioDeviceReset},
		"VFIO_IOMMU_GET_INFO":               {0x3b70, vfioIOMMUGetInfo},
		"VFIO_IOMMU_MAP_DMA":                {0x3b71, vfioIOMMUMapDMA},
		"VFIO_IOMMU_UNMAP_DMA":              {0x3b72, vfioIOMMUUnmapDMA},
		"VFIO_API_VERSION":                  {0, vfioAPIVersion},
		"VFIO_TYPE1v2_IOMMU":                {3, vfioType1v2},
		"VFIO_GROUP_FLAGS_VIABLE":           {1, groupViable},
		"VFIO_GROUP_FLAGS_CONTAINER_SET":    {2, groupHasContainer},
		"VFIO_DEVICE_FLAGS_RESET":           {1, deviceCanReset},
		"VFIO_DEVICE_FLAGS_PCI":             {2, deviceIsPCI},
		"VFIO_PCI_BAR0_REGION_INDEX":        {0, regionBAR0},
		"VFIO_PCI_CONFIG_REGION_INDEX":      {7, regionConfig},
		"VFIO_REGION_INFO_FLAG_READ":        {1, regionRead},
		"VFIO_REGION_INFO_FLAG_WRITE":       {2, regionWrite},
		"VFIO_REGION_INFO_FLAG_MMAP":        {4, regionMmap},
		"VFIO_PCI_MSIX_IRQ_INDEX":           {2, irqMSIX},
		"VFIO_PCI_REQ_IRQ_INDEX":            {4, irqRequest},
		"VFIO_IRQ_INFO_EVENTFD":             {1, irqEventFD},
		"DATA_NONE|ACTION_TRIGGER":          {0x21, irqSetNone},
		"DATA_EVENTFD|ACTION_TRIGGER":       {0x24, irqSetEventFD},
		"VFIO_IOMMU_INFO_PGSIZES":           {1, iommuPageSizes},
		"VFIO_IOMMU_INFO_CAPS":              {2, iommuCaps},
		"TYPE1_INFO_CAP_IOVA_RANGE":         {1, capIOVARange},
		"TYPE1_INFO_DMA_AVAIL":              {3, capDMAAvail},
		"DMA_MAP_FLAG_READ|WRITE":           {3, dmaReadWrite},
		"sizeof vfio_group_status":          {8, sizeGroupStatus},
		"sizeof vfio_device_info":           {20, sizeDeviceInfo},
		"sizeof vfio_region_info":           {32, sizeRegionInfo},
		"sizeof vfio_irq_info":              {16, sizeIRQInfo},
		"sizeof vfio_irq_set":               {20, sizeIRQSet},
		"sizeof vfio_iommu_type1_info":      {24, sizeIOMMUInfo},
		"sizeof vfio_iommu_type1_dma_map":   {32, sizeDMAMap},
		"sizeof vfio_iommu_type1_dma_unmap": {24, sizeDMAUnmap},
		"sizeof vfio_info_cap_header":       {8, sizeCapHeader},
		"sizeof vfio_iova_range":            {16, sizeIOVARange},
	} {
		require.Equal(t, v[0], v[1], name)
	}
}

// Arguments byte by byte; 64-bit little endian machines are the only ones.
func TestVFIOArguments(t *testing.T) {
	require.Equal(t, []byte{
		32, 0, 0, 0, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0,
	}, dmaMapArg(0x0102030405060708, 1<<32, 3<<30))
	require.Equal(t, []byte{
		24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0,
	}, dmaUnmapArg(1<<32, 3<<30))
	require.Equal(t, []byte{
		28, 0, 0, 0, 0x24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 11, 0, 0, 0,
	}, irqSetArg(irqMSIX, []int{9, 11}))
	require.Equal(t, []byte{20, 0, 0, 0, 0x21, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, irqSetArg(irqMSIX, nil))
	require.Equal(t, []byte{16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, indexedArg(sizeIRQInfo, irqMSIX))
}

func TestParseIOMMUInfo(t *testing.T) {
	two := []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<48 - 1}}
	info, err := parseIOMMUInfo(iommuAnswer(two, 65535))
	require.NoError(t, err)
	require.Equal(t, iommuInfo{4096 | 2<<20 | 1<<30, two, 65535}, info)
	info, err = parseIOMMUInfo(iommuAnswer([]iovaRange{two[1], two[0]}, 0))
	require.NoError(t, err)
	require.Equal(t, two, info.ranges, "in order")
	require.Zero(t, info.avail)

	info, err = parseIOMMUInfo(newVFIOArg(sizeIOMMUInfo)) // before Linux 5.4
	require.NoError(t, err)
	require.Equal(t, iommuInfo{4096, []iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<64 - 1}}, -1}, info)

	const rangeAt = sizeIOMMUInfo + 16 // of the second capability
	for name, change := range map[string]func(b []byte) []byte{
		"short":                func(b []byte) []byte { return b[:23] },
		"into the fixed part":  func(b []byte) []byte { native.PutUint32(b[16:], 8); return b },
		"behind the end":       func(b []byte) []byte { native.PutUint32(b[16:], uint32(len(b)-7)); return b },
		"far away":             func(b []byte) []byte { native.PutUint32(b[16:], 1<<32-1); return b },
		"to itself":            func(b []byte) []byte { native.PutUint32(b[rangeAt+4:], rangeAt); return b },
		"backwards":            func(b []byte) []byte { native.PutUint32(b[rangeAt+4:], sizeIOMMUInfo); return b },
		"no ranges":            func(b []byte) []byte { native.PutUint32(b[rangeAt+8:], 0); return b },
		"too many ranges":      func(b []byte) []byte { native.PutUint32(b[rangeAt+8:], 4); return b },
		"ranges without end":   func(b []byte) []byte { native.PutUint32(b[rangeAt+8:], 1<<32-1); return b },
		"range backwards":      func(b []byte) []byte { native.PutUint64(b[rangeAt+16:], 1<<40); return b },
		"ranges overlap":       func(b []byte) []byte { native.PutUint64(b[rangeAt+32:], 0xfedfffff); return b },
		"range list cut":       func(b []byte) []byte { return b[:rangeAt+40] },
		"range header cut":     func(b []byte) []byte { return b[:rangeAt+12] },
		"entries left cut off": func(b []byte) []byte { return b[:len(b)-1] },
	} {
		_, err := parseIOMMUInfo(change(iommuAnswer(two, 65535)))
		require.ErrorIs(t, err, errIOMMUInfo, name)
	}
}

// Whatever the kernel writes: no panic, and ranges that are usable as they are.
func FuzzIommuInfo(f *testing.F) {
	f.Add(iommuAnswer([]iovaRange{{0, 0xfedfffff}, {0xfef00000, 1<<48 - 1}}, 65535))
	f.Add(newVFIOArg(sizeIOMMUInfo))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := parseIOMMUInfo(b)
		if err != nil {
			require.ErrorIs(t, err, errIOMMUInfo)
			return
		}
		require.NotEmpty(t, info.ranges)
		require.LessOrEqual(t, len(info.ranges), max(2, len(b)/sizeIOVARange))
		for i, r := range info.ranges {
			require.LessOrEqual(t, r.first, r.last)
			require.True(t, i == 0 || info.ranges[i-1].last < r.first)
		}
	})
}

// The real calls, as far as they go without VFIO.
func TestLinuxKernel(t *testing.T) {
	var k linuxKernel
	_, err := k.open(filepath.Join(t.TempDir(), "vfio"))
	require.ErrorIs(t, err, unix.ENOENT)
	p := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(p, make([]byte, 8192), 0o600))
	fd, err := k.open(p)
	require.NoError(t, err)
	require.NoError(t, k.pwrite(fd, []byte{1, 2}, 4096))
	b, err := k.mmap(fd, 4096, 4096)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2}, b[:2])
	b[0] = 9
	var got [2]byte
	require.NoError(t, k.pread(fd, got[:], 4096))
	require.Equal(t, [2]byte{9, 2}, got)
	require.Error(t, k.pread(fd, got[:], 8191), "half a read is an error")
	require.NotZero(t, k.address(b))
	require.Zero(t, k.address(b)%4096)
	require.Zero(t, k.address(nil))
	_, err = k.ioctl(fd, vfioGroupGetStatus, newVFIOArg(sizeGroupStatus))
	require.ErrorIs(t, err, unix.ENOTTY)
	_, err = k.ioctlValue(fd, vfioGetAPIVersion, 0)
	require.ErrorIs(t, err, unix.ENOTTY)
	require.NoError(t, k.munmap(b))
	require.NoError(t, k.close(fd))
	require.ErrorIs(t, k.close(fd), unix.EBADF)

	ev, err := k.eventfd()
	require.NoError(t, err)
	_, err = unix.Read(ev, make([]byte, 8))
	require.ErrorIs(t, err, unix.EAGAIN, "non-blocking")
	// An answer arrives in the argument: a pipe tells what it holds.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	_, err = w.Write(make([]byte, 300))
	require.NoError(t, err)
	arg := make([]byte, 4)
	_, err = k.ioctl(int(r.Fd()), unix.TIOCINQ, arg)
	require.NoError(t, err)
	require.Equal(t, uint32(300), native.Uint32(arg))
	require.NoError(t, k.close(ev))
	limit, limited := k.memlock()
	require.True(t, !limited || limit < unix.RLIM_INFINITY)
}
