package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"temper/jobs"
)

// TestClientFiles: the folder that commands are told is right wherever they run, and the
// key is for its owner alone, whatever lay there before. The function is inside of the
// package: what calls it needs a scheduler.
func TestClientFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir("tls", 0o755), os.WriteFile("tls/key.pem", []byte("old"), 0o644)); err != nil {
		t.Fatal(err)
	}
	items := map[string]string{jobs.ItemCA: "ca", "control_" + jobs.ItemCert: "cert", "control_" + jobs.ItemKey: "key"}
	folder, err := writeFiles("tls", items)
	if err != nil || folder != filepath.Join(here, "tls") {
		t.Fatalf("folder %q, %v", folder, err)
	}
	info, err := os.Stat("tls/key.pem")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v (%v)", info.Mode(), err)
	}
	if data, err := os.ReadFile("tls/key.pem"); err != nil || string(data) != "key" {
		t.Errorf("the key is %q (%v)", data, err)
	}
	delete(items, jobs.ItemCA)
	if _, err := writeFiles("tls", items); !errors.Is(err, ErrNoSecrets) {
		t.Errorf("without an authority: %v", err)
	}
}
