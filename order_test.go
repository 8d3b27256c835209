package main

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fileOrder is the reading order of the house: a file uses only files below it.
var fileOrder = []string{
	"main.go", "init.go", "xskattach.go", "appliance.go", "report.go", "serve.go", "options.go", "flaguse.go", "toggle.go", "xskflags.go", "bench.go",
	"benchxsk.go", "benchpci.go", "benchtx.go", "benchxdp.go", "benchrx.go", "benchbaseline.go", "benchnapi.go", "benchkit.go", "benchquiet.go",
	"xskwork.go", "xskfile.go", "xskclient.go", "xskserve.go", "xskwake.go", "xskmemory.go", "xskproto.go", "xskapp.go", "sendfile.go", "modes.go", "echo.go",
	"inspect.go", "summary.go", "protocols.go", "flows.go", "capture.go", "parse.go", "ethtool.go", "coalesce.go", "loss.go", "stats.go", "xskbind.go",
	"rebuild.go", "attach.go", "health.go", "channel.go", "xskverdicts.go", "verdicts.go", "nic.go", "quota.go", "flameprobe.go", "events.go", "port.go",
	"ruletable.go", "rules.go", "bpfcode.go", "bpf.go", "xsktx.go", "xsk.go", "umem.go", "xskwide_amd64.go", "xskrules.go", "xskring.go", "xdp.go",
	"guests.go", "metadata.go", "lend.go", "lendwide_amd64.go", "rxrecover.go", "rxpath.go", "strides.go", "minicqe.go", "txrecover.go", "txpath.go",
	"blueflame.go", "mpwqe.go", "pagepool.go", "burst_amd64.go", "frame.go",
	"steering.go", "sink.go", "napi.go", "moderation.go", "clock.go", "queue.go", "params.go",
	"fwpages.go", "firmware.go", "command.go", "prm.go",
	"emulated.go", "vfio.go", "mtrr.go", "vfioabi.go", "pci.go", "device.go", "prompt.go", "dma.go", "barrier_amd64.go", "undo.go",
}

const (
	maxFileLines = 900
	maxFuncLines = 60
)

var (
	mayImportUnsafe   = []string{"dma.go", "queue.go", "vfio.go", "vfioabi.go"}
	mayImportGopacket = []string{"inspect.go", "capture.go"}
	exemptFromLength  = []string{"prm.go"}
)

// house is the package's non-test files, parsed and type-checked.
type house struct {
	fset  *token.FileSet
	files map[string]*ast.File
	info  types.Info
}

// loadHouse type-checks once: from source, imports included, that takes a while.
func loadHouse(t *testing.T) house {
	t.Helper()
	loadOnce.Do(func() { loaded = readHouse(t) })
	require.NotEmpty(t, loaded.files)
	return loaded
}

var (
	loadOnce sync.Once
	loaded   house
)

func readHouse(t *testing.T) house {
	t.Helper()
	h := house{fset: token.NewFileSet(), files: map[string]*ast.File{}}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var list []*ast.File
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") || strings.HasSuffix(n, "_arm64.go") {
			continue // the other architecture's twin stands where this one's does
		}
		f, err := parser.ParseFile(h.fset, n, nil, parser.ParseComments)
		require.NoError(t, err)
		h.files[n] = f
		list = append(list, f)
	}
	h.info = types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(h.fset, "source", nil)}
	_, err = conf.Check("mlx5d", h.fset, list, &h.info)
	require.NoError(t, err)
	return h
}

func TestFileOrder(t *testing.T) {
	h := loadHouse(t)
	for name := range h.files {
		require.Contains(t, fileOrder, name, "a file without a place in the house")
	}
	for _, name := range fileOrder {
		require.Contains(t, h.files, name, "the house names a file that is not there")
	}
	for id, obj := range h.info.Uses {
		if obj.Pkg() == nil || obj.Pkg().Path() != "mlx5d" || !obj.Pos().IsValid() {
			continue
		}
		user := h.fset.Position(id.Pos()).Filename
		owner := h.fset.Position(obj.Pos()).Filename
		if slices.Index(fileOrder, user) > slices.Index(fileOrder, owner) {
			t.Errorf("%s uses %s of %s, which stands above it", h.fset.Position(id.Pos()), id.Name, owner)
		}
	}
}

// What figures are compared with is in no packet's way.
func TestBaselinesAreOnlyMeasured(t *testing.T) {
	h := loadHouse(t)
	used := 0
	for id, obj := range h.info.Uses {
		user := h.fset.Position(id.Pos()).Filename
		if obj.Pos().IsValid() && h.fset.Position(obj.Pos()).Filename == "benchbaseline.go" && user != "benchbaseline.go" {
			require.Equal(t, "benchrx.go", user, "%s uses %s", user, id.Name)
			used++
		}
	}
	require.NotZero(t, used)
}

func TestFileAndFunctionLengths(t *testing.T) {
	h := loadHouse(t)
	for name, f := range h.files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		if n := bytes.Count(b, []byte("\n")); n > maxFileLines && !slices.Contains(exemptFromLength, name) {
			t.Errorf("%s has %d lines, more than %d", name, n, maxFileLines)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := h.fset.Position(fn.End()).Line - h.fset.Position(fn.Pos()).Line + 1
			if n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, more than %d", name, fn.Name.Name, n, maxFuncLines)
			}
		}
	}
}

func TestFilesOpenWithTheirPurpose(t *testing.T) {
	for name := range loadHouse(t).files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(b), "\n// "+name+" owns ", "%s must open with what it owns", name)
	}
}

func TestImports(t *testing.T) {
	for name, f := range loadHouse(t).files {
		for _, im := range f.Imports {
			path := strings.Trim(im.Path.Value, `"`)
			switch {
			case path == "unsafe":
				require.Contains(t, mayImportUnsafe, name)
			case path == "C":
				t.Errorf("%s uses cgo", name)
			case strings.HasPrefix(path, "github.com/google/gopacket"):
				require.Contains(t, mayImportGopacket, name)
			}
		}
	}
}
