package procmem_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"temper/internal/procmem"
)

func TestTreeCountsDescendants(t *testing.T) {
	alone := procmem.Tree(os.Getpid())
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
	for procmem.Tree(os.Getpid()) < alone+(48<<20) {
		if time.Now().After(deadline) {
			t.Fatalf("tree is %d bytes, want %d more than %d", procmem.Tree(os.Getpid()), 48<<20, alone)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
