package proc_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"temper/internal/proc"
)

func TestTreeCountsDescendants(t *testing.T) {
	alone := proc.Tree(os.Getpid())
	if alone < 1<<20 {
		t.Fatalf("own memory is %d bytes, want at least 1 MiB", alone)
	}
	// A shell whose child holds 64 MiB: the grandchild counts, too.
	cmd := exec.Command("sh", "-c", `head -c 67108864 /dev/zero | tail -c 67108864 | (sleep 30; cat >/dev/null); true`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	deadline := time.Now().Add(10 * time.Second)
	for proc.Tree(os.Getpid()) < alone+(48<<20) {
		if time.Now().After(deadline) {
			t.Fatalf("tree is %d bytes, want %d more than %d", proc.Tree(os.Getpid()), 48<<20, alone)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestPeakOutlivesItsWatcher: a process that starts again goes on from the figure
// of the one before.
func TestPeakOutlivesItsWatcher(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peak")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	first := proc.Peak{File: file}
	first.Watch(ended, os.Getpid(), time.Hour)
	if first.Bytes() < 1<<20 {
		t.Fatalf("peak of %d bytes", first.Bytes())
	}
	if err := os.WriteFile(file, []byte("123456789012345"), 0o600); err != nil { // it had been more
		t.Fatal(err)
	}
	second := proc.Peak{File: file}
	second.Watch(ended, os.Getpid(), time.Hour)
	if second.Bytes() != 123456789012345 {
		t.Errorf("peak %d, want that of the process before", second.Bytes())
	}
}
