package model

// data_prm_test.go holds every number of the data side against the public
// layout files: a constant whose comment names a place or a value there must
// be that. It does not know what the numbers are for.

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dataFiles are the files whose constants are checked.
var dataFiles = []string{"queue.go", "send.go", "offload.go", "umr.go", "receive.go", "rss.go", "walk.go", "compress.go"}

// dataShared opens a file of the shared layout material. Without it the test
// is skipped, and fails in CI.
func dataShared(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("shared material is missing: %v", err)
		}
		t.Skipf("shared material is missing: %v", err)
	}
	return path
}

// readTSV returns the rows of a tab-separated file by its first two columns.
func readTSV(t testing.TB, path string) map[string][]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	rows := map[string][]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if c := strings.Split(s.Text(), "\t"); len(c) > 2 {
			rows[c[0]+"."+c[1]] = c[2:]
		}
	}
	return rows
}

// constValue evaluates the few forms that the constants have.
func constValue(e ast.Expr) (uint64, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		v, err := strconv.ParseUint(e.Value, 0, 64)
		return v, err == nil
	case *ast.BinaryExpr:
		x, ok1 := constValue(e.X)
		y, ok2 := constValue(e.Y)
		switch e.Op {
		case token.SHL:
			return x << y, ok1 && ok2
		case token.SUB:
			return x - y, ok1 && ok2
		}
	}
	return 0, false
}

var namesPlace = regexp.MustCompile(`^([a-z0-9_]+(?:\.[A-Za-z0-9_]+)+)(.*)`)

func TestDataConstants(t *testing.T) {
	values := readTSV(t, dataShared(t, "prm", "values.tsv"))
	places := readTSV(t, dataShared(t, "prm", "datapath.tsv"))
	layout := readTSV(t, dataShared(t, "prm", "layout.tsv"))
	checked := 0
	for _, name := range dataFiles {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				m := namesPlace.FindStringSubmatch(strings.TrimSpace(v.Comment.Text()))
				if m == nil || len(v.Names) != 1 {
					continue
				}
				got, ok := constValue(v.Values[0])
				require.True(t, ok, "%s: %s has no value that can be read", name, v.Names[0])
				want, ok := wantConst(values, places, layout, v.Names[0].Name, m[1], m[2])
				require.True(t, ok, "%s: %s names %q, which is nowhere", name, v.Names[0], m[1])
				require.Equal(t, want, got, "%s: %s is not %s", name, v.Names[0], m[1])
				checked++
			}
		}
	}
	require.Greater(t, checked, 150, "too few constants name their source")
}

// wantConst is what the constant called name must be, by what it names and how.
func wantConst(values, places, layout map[string][]string, name, ref, how string) (uint64, bool) {
	if row, ok := values[ref]; ok {
		v, err := strconv.ParseUint(row[0], 0, 64)
		switch {
		case strings.Contains(how, "as a mask"):
			v = 1 << v
		case strings.Contains(how, ">> 28"):
			v >>= 28
		}
		return v, err == nil
	}
	if row, ok := places[ref]; ok {
		col := 0
		if strings.Contains(how, "its size") {
			col = 1
		}
		v, err := strconv.ParseUint(row[col], 0, 64)
		return v, err == nil
	}
	row, ok := layout[ref]
	if !ok {
		return 0, false
	}
	bit, err1 := strconv.ParseUint(row[0], 10, 64)
	width, err2 := strconv.ParseUint(row[1], 10, 64)
	shift := 32 - width - bit%32
	switch {
	case strings.Contains(how, "in sets"):
		shift = bit / 512
	case strings.HasPrefix(name, "bit"):
		shift = 1 << shift
	}
	return shift, err1 == nil && err2 == nil
}

// TestMatchPlaces sets every field of a match parameter that packets have at
// its place in the layout file and compares with what the walk fills in.
func TestMatchPlaces(t *testing.T) {
	layout := readTSV(t, dataShared(t, "prm", "layout.tsv"))
	f := dataFrame(t, "0180c2000001 0a0b0c0d0e0f 88a8 6123 8100 a456 0800"+
		"46b90030000000002a060000c0a80105c0a80206 94040000"+
		"1f90 0050 01020304 05060708 51d2 0000 0000 0000")
	var p packet
	p.parse(f, true)
	var got matchParam
	got.fill(&p, matchOuter|matchMisc|matchInner)
	var want [512]byte
	set := func(base uint64, field string, v uint64) {
		row, ok := layout[field]
		require.True(t, ok, field)
		bit, _ := strconv.ParseUint(row[0], 10, 64)
		width, _ := strconv.ParseUint(row[1], 10, 64)
		for i := range width {
			if v>>(width-1-i)&1 != 0 {
				at := base + bit + i
				want[at/8] |= 0x80 >> (at % 8)
			}
		}
	}
	l := func(field string, v uint64) { set(0, "fte_match_set_lyr_2_4."+field, v) }
	l("dmac_47_16", 0x0180c200)
	l("dmac_15_0", 0x0001)
	l("smac_47_16", 0x0a0b0c0d)
	l("smac_15_0", 0x0e0f)
	l("ethertype", 0x0800)
	l("first_prio", 3)
	l("first_vid", 0x123)
	l("svlan_tag", 1)
	l("ip_version", 4)
	l("ip_protocol", 6)
	l("ip_dscp", 0xb9>>2)
	l("ip_ecn", 0xb9&3)
	l("ipv4_ihl", 6)
	l("ttl_hoplimit", 0x2a)
	l("tcp_sport", 8080)
	l("tcp_dport", 80)
	l("tcp_flags", 0x1d2)
	l("l4_type", 1)
	set(256, "ipv4_layout.ipv4", 0xc0a80105)
	set(384, "ipv4_layout.ipv4", 0xc0a80206)
	misc := func(field string, v uint64) { set(512, "fte_match_set_misc."+field, v) }
	misc("outer_second_prio", 5)
	misc("outer_second_vid", 0x456)
	misc("outer_second_cvlan_tag", 1)
	for i := range 48 {
		require.Equalf(t, be32(want[:], i*4), got[i], "word %d", i)
	}
}
