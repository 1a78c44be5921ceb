//go:build integration

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/proc/failpoint"
	"temper/internal/proc/testbin"
)

// TestEveryFailPoint lets a service die once at every named point and by the
// hand of the harness, over few runs, and wants the bits of an undisturbed one.
func TestEveryFailPoint(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "temper-bench"), "chaos", "--config", "../../configs/ci.yaml", "--set", "sft.steps=80", "--set", "checkpoint.keep_policies=3", "--set", "checkpoint.shard_policies=1",
		// After fewer supervised updates no group teaches anything, and weights stay as they are.
		// Every kind of call: a gate, a stage judged by its figures, trajectories in spans.
		"--set", "sft.gate={max_reward: 1}", "--set", "stages[0].until={steps: 4, plateau: {window: 2, min_gain: 0, clip_min: 1}}",
		"--set", "rl.window=1", "--set", "rl.partial_rollout_tokens=16", "--set", "rl.loss.correction.level=token", "--set", "rl.loss.correction.cap=2",
		"--runs", "5", "--kills", "1", "--points", "all", "--timeout", "6m", "--json", "--dir", t.TempDir())
	cmd.Env = testbin.Environment()
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

// soak runs a command of the harness and returns its report.
func soak(t *testing.T, args ...string) (report struct {
	Bits     int64 `json:"differing_bits"`
	Compared int   `json:"compared_objects"`
	Elastic  int   `json:"elastic_runs"`
	Samplers int   `json:"elastic_samplers"`
	Kills    int   `json:"kills"`
	Moves    int   `json:"moves"`
}) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "temper-bench"), append([]string{"chaos"}, args...)...)
	cmd.Env = testbin.Environment()
	var progress strings.Builder
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, progress.String(), out)
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", progress.String())
	return report
}

// TestElasticServiceKeepsItsBits lets rollout workers, sandbox nodes, control workers
// and the gateway come and go under kills, and wants the bits of `temper up` with one
// process that samples. Its ledger, read twice, says what the harness said.
func TestElasticServiceKeepsItsBits(t *testing.T) {
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.jsonl")
	args := []string{"--config", "../../configs/ci.yaml", "--set", "sft.steps=12", "--elastic", "--runs", "1", "--kills", "3",
		"--seed", "2", "--timeout", "5m", "--json", "--ledger", ledger, "--dir", dir}
	first := soak(t, args...)
	if first.Bits != 0 || first.Compared < 100 || first.Elastic != 1 || first.Samplers < 2 || first.Kills < 3 || first.Moves < 10 {
		t.Errorf("%+v, want an elastic run with kills and moves, in which several processes sampled", first)
	}
	if again := soak(t, "report", "--json", ledger, ledger); again != first {
		t.Errorf("the ledger says %+v, the harness said %+v", again, first)
	}
}
