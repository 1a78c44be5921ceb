//go:build integration

package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/proc"
)

// TestStagesEndByTheirFigures: one stage ends by a plateau, one by its bound, and one when
// the policy collapses under a learning rate of its own. Each says why, and a run whose
// processes are killed in between ends them at the same steps with the same bits.
func TestStagesEndByTheirFigures(t *testing.T) {
	p, calm := newPlace(t), newPlace(t)
	probe := filepath.Join(t.TempDir(), "probe.jsonl")
	generate := p.launch("temper", "data", "generate", "--env", "chase", "--levels", "1", "--num", "6", "--heldout", "--seed", "9")
	generate.end(0, runTimeout)
	if err := os.WriteFile(probe, []byte(generate.text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
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
	up.killService("control")
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
	evaluateAnywhere(t, p, probe)
	noOrphans(t, 5*time.Second)
}

// evaluateAnywhere: an evaluation has the same samples through the engine of this process
// and through a server of the model that is killed in the middle and comes back.
func evaluateAnywhere(t *testing.T, p *place, probe string) {
	t.Helper()
	const policy = "4"
	dir := t.TempDir()
	evaluation := func(out string, more ...string) []string {
		return append([]string{
			"eval", "--home", p.home, "--set", "own=" + probe, "--rollouts", "6", "--temperature", "1", "--max-turns", "4", "--max-tokens", "72",
			"--mode", "env", "--parallel", "2", "--tool", "python", "--out", filepath.Join(dir, out),
		}, more...)
	}
	p.launch("temper", evaluation("engine", "--model", "figures", "--policy-version", policy)...).end(0, runTimeout)
	address := freeAddress(t)
	serve := func() *running {
		s := p.launch("temper", "serve", "--home", p.home, "--model", "figures", "--policy-version", policy, "--name", "m", "--listen", address)
		s.await(`"url":"([^"]+)"`, runTimeout)
		return s
	}
	server := serve()
	eval := p.launch("temper", evaluation("server", "--url", "http://"+address)...)
	samples := filepath.Join(dir, "server", "samples.jsonl")
	for deadline := time.Now().Add(runTimeout); ; time.Sleep(10 * time.Millisecond) {
		data, _ := os.ReadFile(samples) // not there yet
		if strings.Count(string(data), "\n") >= 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no samples:\n%s", eval.text())
		}
	}
	server.signal(syscall.SIGKILL)
	server = serve()
	eval.end(0, runTimeout)
	server.signal(syscall.SIGTERM)
	server.end(0, time.Minute)
	if d := cmp.Diff(sortedLines(t, filepath.Join(dir, "engine", "samples.jsonl")), sortedLines(t, samples)); d != "" {
		t.Errorf("samples of the engine (-) and of a server that was killed (+):\n%s", d)
	}
	again := p.launch("temper", evaluation("engine", "--model", "figures", "--policy-version", policy, "--reverify", "--against", filepath.Join(dir, "server"))...)
	again.await(`36 samples judged again, 0 verdicts changed`, runTimeout)
	again.end(0, runTimeout)
	if text := again.text(); !strings.Contains(text, "| own | 6 | +0.00 (+0.00 to +0.00) | 0 | 0 | 1.0000 |") {
		t.Errorf("compared with itself:\n%s", text)
	}
	p.launch("temper", evaluation("server", "--url", "http://"+address, "--temperature", "2")...).end(1, runTimeout)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

func sortedLines(t *testing.T, name string) []string {
	t.Helper()
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(string(readAll(t, name))), "\n")))
}
