package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedFile finds reference material that lies beside the repository. Without
// it a test is skipped and says so; in CI it must be there.
func sharedFile(t testing.TB, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing", path)
		}
		t.Skipf("%s is not here: this test compares with reference material beside the repository", path)
	}
	return path
}

// readTSV returns the rows behind the header line, split at tabs.
func readTSV(t testing.TB, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var rows [][]string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		rows = append(rows, strings.Split(s.Text(), "\t"))
	}
	require.NoError(t, s.Err())
	return rows[1:]
}
