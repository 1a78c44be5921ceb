//go:build xla

package selfcheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/trainer/xla/selfcheck"
)

// TestXLAChangedPluginIsNotLoaded: what was installed and is something else now is refused
// before anything opens it; what nobody described is for the check to find out.
func TestXLAChangedPluginIsNotLoaded(t *testing.T) {
	library := filepath.Join(t.TempDir(), "pjrt_c_api_cpu_plugin.so")
	mark := filepath.Join(t.TempDir(), "ran")
	command := []string{"sh", "-c", "touch " + mark + "; echo '{}'"}
	if err := os.WriteFile(library, []byte("another library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := selfcheck.Child(t.Context(), "xla:"+library, command); err != nil {
		t.Errorf("a library of somebody else: %v", err)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library+".json", []byte(`{"package": "maker", "version": "1.2", "sha256": "00", "size": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := selfcheck.Child(t.Context(), "xla:"+library, command)
	if err == nil || !strings.Contains(err.Error(), "has changed since it was installed from maker 1.2; install it again") {
		t.Errorf("a changed library: %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the check began")
	}
}
