package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// entry is what a reader of the archive finds.
type entry struct {
	name         string
	mode, mtime  uint64
	uid, gid     uint64
	major, minor uint64
	data         []byte
}

// readArchive is a strict reader, written from the format's description.
func readArchive(t *testing.T, b []byte) (list []entry) {
	t.Helper()
	pos := 0
	take := func(n int) []byte {
		require.LessOrEqual(t, pos+n, len(b))
		pos += n
		return b[pos-n : pos]
	}
	align := func() {
		for pos%4 != 0 {
			require.Zero(t, take(1)[0])
		}
	}
	inodes := map[uint64]bool{}
	for {
		require.Equal(t, "070701", string(take(6)))
		var f [13]uint64
		for i := range f {
			v, err := strconv.ParseUint(string(take(8)), 16, 32)
			require.NoError(t, err)
			f[i] = v
		}
		name := take(int(f[11]))
		require.Zero(t, name[len(name)-1])
		align()
		e := entry{string(name[:len(name)-1]), f[1], f[5], f[2], f[3], f[9], f[10], take(int(f[6]))}
		align()
		if e.name == "TRAILER!!!" {
			require.Zero(t, len(bytes.Trim(b[pos:], "\x00")))
			return list
		}
		require.False(t, inodes[f[0]], "two entries of one inode number would be one file")
		require.EqualValues(t, 1, f[4])
		inodes[f[0]] = true
		list = append(list, e)
	}
}

func unpack(t *testing.T, file string) []entry {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.True(t, z.ModTime.IsZero())
	require.Empty(t, z.Name)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return readArchive(t, b)
}

// program is a small static program, or one with a loader.
func program(loader bool) []byte {
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56, Phnum: 1, Phoff: 64, Shentsize: 64}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', 2, 1, 1})
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Filesz: 120, Memsz: 120}
	if loader {
		p.Type = uint32(elf.PT_INTERP)
	}
	_ = binary.Write(&b, binary.LittleEndian, h)
	_ = binary.Write(&b, binary.LittleEndian, p)
	return b.Bytes()
}

const fakeModule = "\x7fELF module "

// write makes a tree of files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o755))
	}
	return dir
}

// tool finds a program. Without it a test is skipped and says so; in CI it must
// be there.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing", name)
		}
		t.Skipf("the program %s is not here: this test packs or lists files with it", name)
	}
	return path
}

func squeeze(t *testing.T, with, data string) string {
	t.Helper()
	cmd := exec.Command(tool(t, with), "-c")
	cmd.Stdin = strings.NewReader(data)
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// moduleTree is a tree as depmod leaves it, with every compression there is.
func moduleTree(t *testing.T) string {
	return write(t, map[string]string{
		"modules.dep": "kernel/vfio.ko.xz:\n" +
			"kernel/vfio_iommu_type1.ko.zst: kernel/vfio.ko.xz\n" +
			"kernel/pci/vfio-pci-core.ko.gz: kernel/vfio.ko.xz kernel/irqbypass.ko\n" +
			"kernel/pci/vfio-pci.ko: kernel/pci/vfio-pci-core.ko.gz kernel/vfio.ko.xz kernel/irqbypass.ko\n" +
			"kernel/irqbypass.ko:\n",
		"modules.builtin":                "kernel/iommu/iova.ko\n",
		"kernel/vfio.ko.xz":              squeeze(t, "xz", fakeModule+"vfio"),
		"kernel/vfio_iommu_type1.ko.zst": squeeze(t, "zstd", fakeModule+"vfio_iommu_type1"),
		"kernel/pci/vfio-pci-core.ko.gz": squeeze(t, "gzip", fakeModule+"vfio-pci-core"),
		"kernel/pci/vfio-pci.ko":         fakeModule + "vfio-pci",
		"kernel/irqbypass.ko":            fakeModule + "irqbypass",
	})
}

func TestImage(t *testing.T) {
	dir := write(t, map[string]string{"mlx5d": string(program(false))})
	out := filepath.Join(dir, "build", "image")
	report, err := build(filepath.Join(dir, "mlx5d"), moduleTree(t), strings.Split(defaultModules, ","), out)
	require.NoError(t, err)
	require.Contains(t, report, "without modules: ")
	require.Contains(t, report, "vfio.ko, vfio_iommu_type1.ko, irqbypass.ko, vfio-pci-core.ko, vfio-pci.ko")

	list := unpack(t, out)
	var names []string
	for _, e := range list {
		names = append(names, e.name)
		require.Zero(t, e.mtime+e.uid+e.gid, e.name)
		if dir := filepath.Dir(e.name); dir != "." {
			require.Contains(t, names, dir, "the folder comes first")
		}
	}
	at := func(name string) entry {
		i := slices.Index(names, name)
		require.GreaterOrEqual(t, i, 0, name)
		return list[i]
	}
	require.Equal(t, program(false), at("init").data)
	require.EqualValues(t, 0o100755, at("init").mode)
	require.EqualValues(t, 0o040755, at("proc").mode)
	require.Equal(t, [3]uint64{0o020600, 5, 1}, [3]uint64{at("dev/console").mode, at("dev/console").major, at("dev/console").minor})
	require.Equal(t, [3]uint64{0o020666, 1, 3}, [3]uint64{at("dev/null").mode, at("dev/null").major, at("dev/null").minor})
	order := strings.Fields(string(at("modules/mlx5d.order").data))
	require.Equal(t, []string{"vfio.ko", "vfio_iommu_type1.ko", "irqbypass.ko", "vfio-pci-core.ko", "vfio-pci.ko"}, order)
	for _, m := range order {
		require.Equal(t, fakeModule+strings.TrimSuffix(m, ".ko"), string(at("modules/"+m).data))
	}
	for _, e := range list {
		if e.mode&0o111 != 0 && e.mode&typeFile != 0 {
			require.Equal(t, "init", e.name, "the only program")
		}
	}
}

// Other paths, times and umask, same bytes.
func TestImageIsReproducible(t *testing.T) {
	var images [2][]byte
	for i := range images {
		dir, tree := write(t, map[string]string{"mlx5d": string(program(false))}), moduleTree(t)
		when := time.Unix(int64(1e9*(i+1)), 0)
		for _, f := range []string{filepath.Join(dir, "mlx5d"), filepath.Join(tree, "kernel/irqbypass.ko")} {
			require.NoError(t, os.Chtimes(f, when, when))
			require.NoError(t, os.Chmod(f, 0o600|os.FileMode(i*0o55)))
		}
		out := filepath.Join(dir, "image")
		_, err := build(filepath.Join(dir, "mlx5d"), tree, strings.Split(defaultModules, ","), out)
		require.NoError(t, err)
		images[i], err = os.ReadFile(out)
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(images[0], images[1]))
}

func TestImageRefuses(t *testing.T) {
	big := append(program(false), make([]byte, maxSize)...)
	dir := write(t, map[string]string{"dynamic": string(program(true)), "script": "#!/bin/sh\n", "big": string(big), "mlx5d": string(program(false))})
	for name, want := range map[string]string{
		"dynamic": "needs a loader",
		"script":  "not a program",
		"big":     "more than 16777216",
		"nosuch":  "no such file",
	} {
		_, err := build(filepath.Join(dir, name), "", nil, filepath.Join(dir, "out"))
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(dir, "out"))
	}
	_, err := build(filepath.Join(dir, "mlx5d"), dir, []string{"vfio"}, filepath.Join(dir, "out"))
	require.ErrorContains(t, err, "MODULES is a folder such as")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 4)
}

func TestResolve(t *testing.T) {
	d := parseDep("a/top.ko: b/mid-dle.ko c/low.ko\nb/mid-dle.ko: c/low.ko\nc/low.ko:\nx.ko: y.ko\ny.ko: x.ko\nz.ko: gone.ko\n")
	for _, c := range []struct {
		names         string
		files, kernel []string
		err           string
	}{
		{names: "top", files: []string{"c/low.ko", "b/mid-dle.ko", "a/top.ko"}},
		{names: "mid_dle top low", files: []string{"c/low.ko", "b/mid-dle.ko", "a/top.ko"}},
		{names: "vfio-pci low", files: []string{"c/low.ko"}, kernel: []string{"vfio-pci"}},
		{names: "nosuch", err: "no module nosuch"},
		{names: "x", err: "in circles"},
		{names: "z", err: "does not list it"},
	} {
		files, kernel, err := resolve(d, []string{"kernel/vfio_pci.ko"}, strings.Fields(c.names))
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.files, files, c.names)
		require.Equal(t, c.kernel, kernel, c.names)
	}
}

func TestReadModuleRefuses(t *testing.T) {
	dir := write(t, map[string]string{"a.ko": "text", "b.ko.xz": "no xz", "c.ko.gz": "this is no gzip", "d.ko.lzma": "x"})
	for name, want := range map[string]string{"a.ko": "holds no module", "b.ko.xz": "xz", "c.ko.gz": "invalid header", "d.ko.lzma": "unknown compression", "e.ko": "no such file"} {
		_, err := readModule(filepath.Join(dir, name))
		require.ErrorContains(t, err, want)
	}
}

// A program that nobody here wrote reads the archive too.
func TestCpioReadsIt(t *testing.T) {
	cpio := tool(t, "cpio")
	var a archive
	a.dir("dev")
	a.char("dev/null", 0o666, 1, 3)
	a.file("odd", 0o644, []byte("12345"))
	a.file("init", 0o755, []byte("x"))
	cmd := exec.Command(cpio, "-it", "--quiet")
	cmd.Stdin = bytes.NewReader(a.close())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "dev\ndev/null\nodd\ninit\n", string(out))
}
