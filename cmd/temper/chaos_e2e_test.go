//go:build integration

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/failpoint"
)

// TestEveryFailPoint lets a service die once at every named point and by the
// hand of the harness, over few runs, and wants the bits of an undisturbed one.
func TestEveryFailPoint(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "temper"), "bench", "chaos", "--config", ciConfig, "--set", "sft.steps=12", "--set", "checkpoint.keep_policies=2",
		"--runs", "5", "--kills", "1", "--points", "all", "--timeout", "6m", "--json", "--dir", t.TempDir())
	cmd.Env = environment()
	var progress strings.Builder
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, progress.String(), out)
	}
	var report struct {
		Bits   int64 `json:"differing_bits"`
		Trials []struct {
			Unreached []string `json:"unreached"`
			Blows     []struct {
				Point string `json:"point"`
			} `json:"blows"`
		} `json:"trials"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	died := map[string]bool{}
	kills := 0
	for _, trial := range report.Trials {
		for _, b := range trial.Blows {
			kills++
			died[b.Point] = true
		}
		if len(trial.Unreached) > 0 {
			t.Errorf("the run never came to %v", trial.Unreached)
		}
	}
	for name := range failpoint.Points() {
		if !died[string(name)] {
			t.Errorf("nothing died at %s", name)
		}
	}
	if kills < len(failpoint.Points())+3 {
		t.Errorf("%d kills only", kills)
	}
	t.Logf("%d kills\n%s", kills, progress.String())
}

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
			cmd.Env = environment()
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
