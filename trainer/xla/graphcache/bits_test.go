package graphcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBitsTellDevices apart by all that decides bits, in fields that can be compared.
func TestBitsTellDevices(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	check := func(name, library, device string) {
		t.Helper()
		path := filepath.Join(dir, "plugin.so")
		if err := os.WriteFile(path, []byte(library), 0o600); err != nil {
			t.Fatal(err)
		}
		line, err := Bits(path, device)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[line]; ok {
			t.Errorf("%s and %s are both %s", name, other, line)
		}
		seen[line] = name
		for _, field := range strings.Split(line, " ") {
			if key, _, ok := strings.Cut(field, "="); !ok || key == "" {
				t.Errorf("%s: %q is no field of %s", name, field, line)
			}
		}
	}
	t.Setenv("XLA_FLAGS", "")
	check("the first", "a", `cpu 1.0, "kind"`)
	check("another plugin", "b", `cpu 1.0, "kind"`)
	check("another version", "a", `cpu 1.1, "kind"`)
	check("another kind", "a", `cpu 1.0, "kind b"`)
	check("one with an underscore", "a", `cpu 1.0, "kind_b"`)
	check("a long kind", "a", "cpu "+strings.Repeat("x", 100))
	check("a longer kind", "a", "cpu "+strings.Repeat("x", 101))
	check("drivers in place of a processor", "a", `cuda 1.0, "kind"`)
	t.Setenv("XLA_FLAGS", "--other")
	check("other flags", "a", `cpu 1.0, "kind"`)
	if _, err := Bits(filepath.Join(dir, "none"), "cpu"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a plugin: error %v", err)
	}
}
