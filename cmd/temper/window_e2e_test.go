//go:build integration

package main_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRunThatSamplesAhead has the same bits whether its processes are killed or not,
// and its steps come out again from the policies that sampled them, where most of the
// trajectories are of two policies.
func TestRunThatSamplesAhead(t *testing.T) {
	settings := []string{"--run", ciConfig, "--run-id", "ahead", "--exit"}
	for _, set := range []string{
		"rl.window=1", "rl.partial_rollout_tokens=20", "rl.loss.correction.level=token", "rl.loss.correction.cap=2", "sft.steps=40",
		"stages[0].until.steps=9", "stages[1].until.steps=1", "stages[2].until.steps=2",
	} {
		settings = append(settings, "--set", set)
	}
	p, calm := newPlace(t), newPlace(t)
	up := p.start(slices.Insert(slices.Clone(settings), 0, "up")...)
	up.await(`^step +2/`, runTimeout)
	up.killService("trainer")
	up.await(`^step +5/`, runTimeout)
	up.killService("control")
	up.end(0, runTimeout)
	calm.start(slices.Insert(slices.Clone(settings), 0, "up")...).end(0, runTimeout)
	for _, pattern := range []string{"policies/*/model.safetensors", "steps/*/trajectories/*.jsonl", "steps/*/batch.json"} {
		sameFiles(t, calm.home, p.home, filepath.Join("store/runs/ahead", pattern))
	}
	record := string(readAll(t, filepath.Join(p.home, "store/runs/ahead/steps/000004/step.json")))
	if !strings.Contains(record, `"sampled_by": 2`) || !strings.Contains(record, `"rollout/staleness_max": 1`) || !strings.Contains(record, `"until": 20`) {
		t.Errorf("record of step 4:\n%s", record)
	}
	if data := string(readAll(t, filepath.Join(p.home, "store/runs/ahead/steps/000004/batch.json"))); strings.Count(data, `"partial":`) < 4 {
		t.Errorf("the groups of step 4 have trajectories of one policy alone:\n%s", data)
	}
	if out := p.temper(0, "run", "verify", "ahead", "--step", "2,4,10"); strings.Count(out, "objects are equal") != 3 {
		t.Errorf("run verify of three steps:\n%s", out)
	}
	noOrphans(t, 5*time.Second)
}
