package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVendorNeedsARegistry: without the address of a registry nothing is fetched, and the
// line says how to find it.
func TestVendorNeedsARegistry(t *testing.T) {
	for value, want := range map[string]string{"": "npm config get registry", "registry": "want an http or https address"} {
		t.Setenv(registryKey, value)
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "vendor"), 0o750); err != nil {
			t.Fatal(err)
		}
		libraries := []byte(`[{"name": "preact", "version": "1.0.0"}]`)
		if err := os.WriteFile(filepath.Join(root, "vendor", "vendor.json"), libraries, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := vendor(t.Context(), root, "preact@2.0.0"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s=%q: error %v, want %q", registryKey, value, err, want)
		}
	}
}
