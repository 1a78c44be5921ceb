//go:build integration

package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStagesEndByTheirFigures: one stage ends by a plateau, one by its bound, and one when
// the policy collapses under a learning rate of its own. Each says why, and a run whose
// processes are killed in between ends them at the same steps with the same bits.
func TestStagesEndByTheirFigures(t *testing.T) {
	p, calm := newPlace(t), newPlace(t)
	probe := filepath.Join(t.TempDir(), "probe.jsonl")
	if out := p.temper(0, "data", "generate", "--env", "chase", "--levels", "1", "--num", "6", "--heldout", "--seed", "9"); os.WriteFile(probe, []byte(out), 0o600) != nil {
		t.Fatal("the probe cannot be written")
	}
	settings := []string{"--run", ciConfig, "--run-id", "figures", "--exit"}
	for _, set := range []string{
		"eval.sets=[{name: probe, path: " + probe + ", rollouts: 2, temperature: 0.6, max_turns: 4, max_response_tokens: 72, every_steps: 1}]",
		"watch.collapse={window: 2, reward_drop: 0.8, then: end_stage}",
		"stages[0].until={steps: 9, plateau: {window: 2, min_gain: 1, eval: probe, evals: 1}}",
		"stages[1].until={steps: 4, plateau: {window: 2, min_gain: 0, clip_min: 1}}",
		"stages[2].until.steps=16", "stages[2].lr=0.03", "stages[2].temperature=0.9", "stages[2].filter.rollouts=0", "sft.epochs=1.875",
		"sft.gate={max_reward: 0.99}",
	} {
		settings = append(settings, "--set", set)
	}
	up := p.start(slices.Insert(slices.Clone(settings), 0, "up")...)
	up.await(`^step +2/`, runTimeout)
	up.killService("worker")
	up.await(`^step +11/`, runTimeout)
	up.killService("trainer")
	up.end(0, runTimeout)
	calm.start(slices.Insert(slices.Clone(settings), 0, "up")...).end(0, runTimeout)
	for _, pattern := range []string{"policies/*/model.safetensors", "steps/*/trajectories/*.jsonl", "steps/*/batch.json", "evals/set-*.jsonl"} {
		sameFiles(t, calm.home, p.home, filepath.Join("store/runs/figures", pattern))
	}
	events, err := filepath.Glob(filepath.Join(p.home, "store/runs/figures/events/*"))
	if err != nil {
		t.Fatal(err)
	}
	log := ""
	for _, e := range events {
		log += string(readAll(t, e))
	}
	for _, want := range []string{
		"stage hops-1 ends after step 4 by plateau: mean reward", "best of the newest 1 evaluations of probe",
		"stage hops-2 ends after step 13 by bound: its bound of 4 steps, without a plateau", "clip ratio",
		"stage mixed ends after step ", " by collapse: mean reward 0", "the best checkpoint is that of step", "the policy after SFT passes",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	noOrphans(t, 5*time.Second)
}
