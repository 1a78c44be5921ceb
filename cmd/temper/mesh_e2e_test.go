//go:build integration && xla

package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/internal/proc/testbin"
	"temper/trainer/xla/plugin"
)

// meshRun is a small run that learns: some groups of its steps have a signal. Its heads and
// vocabulary divide by four.
const meshRun = `
name: mesh
seed: 1
model: {hidden_size: 64, num_layers: 2, num_heads: 4, num_kv_heads: 4, head_dim: 16, intermediate_size: 192, max_context: 128, tie_embeddings: true, initializer_range: 0.05}
tokenizer: {num_merges: 149}
sft: {data: {env: chase, levels: [1], num: 2048}, batch_size: 24, steps: 100, optimizer: {lr: 6e-3, warmup_steps: 5, schedule: cosine}}
rl: {problems_per_step: 4, rollouts_per_problem: 8, group_size: 4, optimizer: {lr: 4e-4, warmup_steps: 2, schedule: constant}}
stages: [{name: hops, data: {env: chase, levels: [1], num: 32}, max_response_tokens: 56, max_turns: 3, until: {steps: 4}}]
eval: {num_problems: 4}
checkpoint: {every_steps: 2}
`

// TestMeshSurvives trains a run over a mesh of XLA's CPU plugin three times. With its
// trainer killed twice it ends in the same bits. Stopped and gone on with over another
// mesh, it ends as well, from the checkpoint that the first mesh has left.
func TestMeshSurvives(t *testing.T) {
	if _, err := plugin.Find("cpu"); err != nil {
		t.Skipf("%v (2026-11-26: temper backend install cpu)", err)
	}
	plain := bin
	bin = t.TempDir()
	t.Cleanup(func() { bin = plain })
	if err := testbin.Build("../..", bin, "xla"); err != nil {
		t.Fatal(err)
	}
	const patience = 10 * time.Minute
	mesh := func(m string) []string {
		return []string{"up", "--backend", "xla:cpu", "--mesh", m, "--rollout-workers", "1"}
	}
	begin := func(p *place) []string {
		file := filepath.Join(p.home, "mesh.yaml")
		if err := os.WriteFile(file, []byte(meshRun), 0o600); err != nil {
			t.Fatal(err)
		}
		return append(mesh("data=2,model=2"), "--run", file, "--run-id", "mesh", "--exit")
	}
	whole, killed, changed := newPlace(t), newPlace(t), newPlace(t)
	up := whole.start(begin(whole)...)
	up.end(0, patience)

	up = killed.start(begin(killed)...)
	up.await(`^sft +50/100`, patience)
	up.killService("trainer")
	up.await(`^step 2/4`, patience)
	up.killRestarted("trainer")
	up.end(0, patience)
	if a, b := killed.policy("mesh"), whole.policy("mesh"); !bytes.Equal(a, b) {
		t.Error("killed twice, the run ended in other bits")
	}

	up = changed.start(begin(changed)...)
	up.await(`^step 2/4`, patience)
	up.signal(syscall.SIGTERM)
	up.end(130, time.Minute)
	up = changed.start(mesh("model=4")...)
	up.await(`^all services up`, patience)
	changed.temper(0, "run", "follow", "mesh")
	up.signal(syscall.SIGTERM)
	up.end(0, time.Minute)
	if a, b := changed.policy("mesh"), whole.policy("mesh"); bytes.Equal(a, b) {
		t.Error("the other mesh has the same bits: it did not train")
	}

	refused := newPlace(t)
	out := refused.temper(1, "up", "--backend", "xla:cpu", "--mesh", "data=8,model=8")
	if !strings.Contains(out, "64 devices, the backend xla:cpu drives 4") {
		t.Errorf("a mesh of 64 devices: %s", out)
	}
}

// killRestarted is killService for one that was started again.
func (r *running) killRestarted(name string) {
	r.t.Helper()
	m := r.await(`^service `+name+`: healthy \(pid (\d+)\), restart`, time.Minute)
	pid, err := strconv.Atoi(m[1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		r.t.Fatalf("kill %s: %v", name, err)
	}
}

// policy are the bytes of a finished run's policy.
func (p *place) policy(run string) []byte {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.home, "store", "runs", run, "summary.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	var s struct {
		Steps  int    `json:"steps"`
		Policy string `json:"policy_path"`
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Steps != 4 {
		p.t.Fatalf("%d steps, error %v: want 4", s.Steps, err)
	}
	weights, err := os.ReadFile(filepath.Join(s.Policy, "model.safetensors"))
	if err != nil {
		p.t.Fatal(err)
	}
	return weights
}
