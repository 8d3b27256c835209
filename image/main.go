// Command image packs the appliance: an initramfs with the static binary as
// /init and, when a kernel's module tree is given, the modules it loads.
//
//	go run ./image [-modules /lib/modules/VERSION] [-load NAME,NAME] -o FILE BINARY
//
// The same inputs give the same bytes: no time, owner, path or order of the
// machine that builds gets into the file.
package main

// main.go owns what lies where in the image, its largest size, and what is
// printed. The format of the archive is cpio.go's, modules are modules.go's.

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSize is the most that an image without modules may take, in bytes, packed
// and in memory alike.
const maxSize = 16 << 20

// defaultModules are what opening a NIC takes; what they need comes with them.
const defaultModules = "vfio_iommu_type1,vfio-pci"

const (
	// modulesDir and its list are where process 1 looks (init.go of the appliance).
	modulesDir = "modules"
	orderFile  = "modules/mlx5d.order"
)

func main() {
	tree := flag.String("modules", "", "module `TREE` of the kernel that will boot, such as /lib/modules/VERSION; none: no modules")
	load := flag.String("load", defaultModules, "`NAMES` of modules to carry and load, with what they need")
	out := flag.String("o", "mlx5d.img", "`FILE` to write")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: image [flags] BINARY")
		flag.PrintDefaults()
		os.Exit(2)
	}
	report, err := build(flag.Arg(0), *tree, strings.Split(*load, ","), *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Print(report)
}

// build writes the image and returns what to print about it.
func build(binary, tree string, names []string, out string) (string, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	if err := checkStatic(program); err != nil {
		return "", fmt.Errorf("%s: %w", binary, err)
	}
	var set moduleSet
	if tree != "" {
		if set, err = readModules(tree, names); err != nil {
			return "", err
		}
	}
	packed, size, err := pack(program, moduleSet{})
	if err != nil {
		return "", err
	}
	if size > maxSize || len(packed) > maxSize {
		return "", fmt.Errorf("without modules the image takes %d bytes packed and %d in memory, more than %d", len(packed), size, maxSize)
	}
	report := fmt.Sprintf("without modules: %s packed, %s in memory\n", mib(len(packed)), mib(size))
	if tree != "" {
		if packed, size, err = pack(program, set); err != nil {
			return "", err
		}
		report += fmt.Sprintf("with modules:    %s packed, %s in memory: %s\n", mib(len(packed)), mib(size), set)
	}
	if err := writeFile(out, packed); err != nil {
		return "", err
	}
	return report + fmt.Sprintf("%s is the image: boot a kernel with it as its initrd and the appliance's flags behind -- on the command line\n", out), nil
}

func mib(n int) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }

// checkStatic refuses what a kernel cannot start without other files.
func checkStatic(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("not a program for Linux: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it needs a loader and shared libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// pack makes the archive and compresses it. size is what it takes in memory.
// Kernels that can unpack an initramfs at all can unpack gzip.
func pack(program []byte, set moduleSet) (packed []byte, size int, err error) {
	var a archive
	for _, dir := range []string{"dev", "proc", "run", "sys"} {
		a.dir(dir)
	}
	// The kernel opens the console before devtmpfs is mounted, and the runtime of
	// Go needs /dev/null in place of a console that is not there.
	a.char("dev/console", 0o600, 5, 1)
	a.char("dev/null", 0o666, 1, 3)
	a.file("init", 0o755, program)
	if len(set.files) > 0 {
		a.dir(modulesDir)
		var order strings.Builder
		for _, m := range set.files {
			a.file(modulesDir+"/"+m.name, 0o644, m.data)
			fmt.Fprintln(&order, m.name)
		}
		a.file(orderFile, 0o644, []byte(order.String()))
	}
	whole := a.close()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, 0, err
	}
	if _, err := z.Write(whole); err != nil {
		return nil, 0, err
	}
	if err := z.Close(); err != nil {
		return nil, 0, err
	}
	return b.Bytes(), len(whole), nil
}

// writeFile replaces path as a whole: no half image is ever there.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(data))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
