package main

// modules.go owns finding kernel modules in a tree that depmod has indexed, what
// they need, the order to load them in, and their unpacked bytes. It does not
// load any. Formats: modules.dep(5), modules.builtin of kbuild.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// module is one to carry: NAME.ko and its bytes.
type module struct {
	name string
	data []byte
}

// moduleSet is modules in the order to load them in, and the names of those that
// the kernel has built in.
type moduleSet struct {
	files   []module
	builtin []string
}

func (s moduleSet) String() string {
	var names []string
	for _, m := range s.files {
		names = append(names, m.name)
	}
	for _, n := range s.builtin {
		names = append(names, n+" (built in)")
	}
	return strings.Join(names, ", ")
}

// readModules finds the named modules and all that they need.
func readModules(tree string, names []string) (moduleSet, error) {
	dep, err := os.ReadFile(filepath.Join(tree, "modules.dep"))
	if errors.Is(err, fs.ErrNotExist) {
		return moduleSet{}, fmt.Errorf("%w: MODULES is a folder such as /lib/modules/VERSION, indexed by depmod", err)
	} else if err != nil {
		return moduleSet{}, err
	}
	builtin, err := os.ReadFile(filepath.Join(tree, "modules.builtin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return moduleSet{}, err
	}
	paths, inKernel, err := resolve(parseDep(string(dep)), strings.Fields(string(builtin)), names)
	if err != nil {
		return moduleSet{}, fmt.Errorf("%s: %w", tree, err)
	}
	set := moduleSet{builtin: inKernel}
	for _, p := range paths {
		data, err := readModule(filepath.Join(tree, p))
		if err != nil {
			return moduleSet{}, err
		}
		set.files = append(set.files, module{fileName(p), data})
	}
	return set, nil
}

// dependencies is modules.dep: a module's file to those it needs, in the tree.
type dependencies map[string][]string

func parseDep(text string) dependencies {
	d := dependencies{}
	for line := range strings.Lines(text) {
		if file, needs, ok := strings.Cut(line, ":"); ok {
			d[file] = strings.Fields(needs)
		}
	}
	return d
}

// fileName is NAME.ko of a module's file, compressed or not.
func fileName(p string) string {
	base, _, _ := strings.Cut(path.Base(p), ".ko")
	return base + ".ko"
}

// sameName is a module's name as the kernel compares it: - and _ are one.
func sameName(s string) string {
	return strings.ReplaceAll(strings.TrimSuffix(fileName(s), ".ko"), "-", "_")
}

// resolve chooses the files for names and orders them: what is needed comes
// before what needs it, else as named. It returns apart what is built in.
func resolve(d dependencies, builtin, names []string) (files, inKernel []string, err error) {
	byName := map[string]string{}
	for file := range d {
		byName[sameName(file)] = file
	}
	present := map[string]bool{}
	for _, file := range builtin {
		present[sameName(file)] = true
	}
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(file string) error
	visit = func(file string) error {
		needs, known := d[file]
		switch {
		case state[file] == done:
			return nil
		case state[file] == visiting:
			return fmt.Errorf("modules.dep goes round in circles at %s", file)
		case !known:
			return fmt.Errorf("modules.dep needs %s and does not list it: run depmod", file)
		}
		state[file] = visiting
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		state[file] = done
		files = append(files, file)
		return nil
	}
	for _, name := range names {
		file, ok := byName[sameName(name)]
		switch {
		case ok:
			if err := visit(file); err != nil {
				return nil, nil, err
			}
		case present[sameName(name)]:
			inKernel = append(inKernel, name)
		default:
			return nil, nil, fmt.Errorf("this kernel has no module %s", name)
		}
	}
	return files, inKernel, nil
}

// readModule reads a module and unpacks it: the image is compressed as a whole.
func readModule(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(file) {
	case ".ko":
	case ".gz":
		data, err = gunzip(data)
	case ".xz", ".zst":
		data, err = unpackWith(strings.TrimPrefix(strings.Replace(filepath.Ext(file), "zst", "zstd", 1), "."), data)
	default:
		err = errors.New("unknown compression")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if !bytes.HasPrefix(data, []byte("\x7fELF")) {
		return nil, fmt.Errorf("%s holds no module", file)
	}
	return data, nil
}

func gunzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// unpackWith pipes data through xz or zstd.
func unpackWith(tool string, data []byte) ([]byte, error) {
	cmd := exec.Command(tool, "-dc")
	var complaint bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), &complaint
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the program %s is needed to unpack it: %w", tool, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}
