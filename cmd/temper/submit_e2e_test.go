//go:build integration

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/testbin"
)

// TestTwoSubmitsOfOneID at the same moment: one wins, the other is told why it
// did not.
func TestTwoSubmitsOfOneID(t *testing.T) {
	p := newPlace(t)
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	var wg sync.WaitGroup
	codes, texts := make([]int, 2), make([]string, 2)
	for i := range codes {
		wg.Go(func() {
			args := append([]string{"run", "submit", "--config", ciConfig, "--run-id", "twin"}, p.flags()...)
			cmd := exec.Command(filepath.Join(bin, "temper"), args...)
			cmd.Env = testbin.Environment()
			out, _ := cmd.CombinedOutput() // the exit code is looked at
			codes[i], texts[i] = cmd.ProcessState.ExitCode(), string(out)
		})
	}
	wg.Wait()
	loser := 0
	if codes[0] == 0 {
		loser = 1
	}
	if codes[0]+codes[1] != 2 || !strings.Contains(texts[loser], "twin") {
		t.Errorf("exit codes %v, want 0 and 2, and a loser that knows why:\n%s", codes, strings.Join(texts, "\n"))
	}
	if !strings.Contains(texts[loser], "going on already") && !strings.Contains(texts[loser], "exists already") {
		t.Errorf("the loser says:\n%s", texts[loser])
	}
	// A submit returns when the server has the run; its first activity opens it.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(p.home, "store/runs/twin/config.yaml")); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the winner left no run: %v", err)
		}
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 5*time.Second)
}
