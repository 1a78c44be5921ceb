// Package runtest is test support for what works on the runs of a store: prepared
// runs, a learner whose state shows every update, an engine that follows a script,
// and a store whose writes may be the last thing that a process does. It is used in
// tests alone.
//
// Invariant: all that it makes is a function of its arguments.
package runtest

import (
	"encoding/json"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/setup"
	"temper/internal/sampling"
	"temper/trainer/checkpoint"
)

// Run is a prepared run in a store.
type Run struct {
	Store  *memblob.Store
	Layout artifact.Layout
	Plan   run.Plan
	Ref    run.Ref
	Config config.Run
}

// Recipe is the configuration of most test runs: two short stages from random weights.
const Recipe = `
name: test
seed: 5
model: {hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: 400}
tokenizer: {num_merges: 20}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 4, steps: 4}
rl:
  problems_per_step: 3
  rollouts_per_problem: 6
  group_size: 4
  roc: {min_positive: 1, min_negative: 1}
stages:
  - {name: first, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 4}}
  - {name: second, data: {env: verbs, levels: [1, 2], num: 6}, max_response_tokens: 120, max_turns: 3, until: {steps: 2}, filter: {rollouts: 2}, reset_optimizer: true}
eval: {num_problems: 4}
checkpoint: {every_steps: 2, keep: 1, best: 0}
`

// Text writes a configuration as the JSON string that run.Input takes.
func Text(t testing.TB, yaml string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(yaml)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Open opens a run for a workflow execution that is the same for all calls.
func Open(t testing.TB, store blob.Store, in run.Input) (run.Plan, error) {
	t.Helper()
	return setup.Open(t.Context(), store, in, setup.Claim{Owner: "the test", SearchAttributes: true})
}

// New opens and prepares the run "demo" of the Recipe in a new store.
func New(t testing.TB, set map[string]string) *Run {
	t.Helper()
	return Prepare(t, memblob.New(), "demo", set)
}

// Prepare opens and prepares a run of the Recipe.
func Prepare(t testing.TB, store *memblob.Store, runID string, set map[string]string) *Run {
	t.Helper()
	return PrepareConfig(t, store, runID, Recipe, set)
}

// PrepareConfig opens and prepares a run of a configuration.
func PrepareConfig(t testing.TB, store *memblob.Store, runID, cfg string, set map[string]string) *Run {
	t.Helper()
	h := &Run{Store: store, Layout: artifact.Layout{RunID: runID}}
	in := run.Input{RunID: runID, Config: Text(t, cfg), Set: set}
	var err error
	if h.Plan, err = Open(t, h.Store, in); err != nil {
		t.Fatal(err)
	}
	if h.Config, err = run.LoadConfig(in); err != nil {
		t.Fatal(err)
	}
	h.Ref = run.Ref{RunID: runID, Config: h.Plan.Config}
	if _, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return h
}

// Selected names the problems of a step of a stage of the plan, from 1.
func (h *Run) Selected(t testing.TB, stage, step int) []string {
	t.Helper()
	var selector sampling.Selector
	s := h.Plan.Stages[stage-1]
	ids, err := selector.Select(t.Context(), h.Store, sampling.SelectInput{
		Run: h.Ref, Stage: s.Source(), Step: step, StageStep: s.Offset + step - s.FirstStep + 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Problems reads a stored set of problems.
func (h *Run) Problems(t testing.TB, key string) []rl.Problem {
	t.Helper()
	return ReadLines[rl.Problem](t, h.Store, key)
}

// Fork opens and prepares a fork of the run.
func (h *Run) Fork(t testing.TB, runID string, from run.ForkFrom, set map[string]string) *Run {
	t.Helper()
	child := &Run{Store: h.Store, Layout: artifact.Layout{RunID: runID}, Config: h.Config}
	var err error
	if child.Plan, err = Open(t, h.Store, run.Input{RunID: runID, Fork: &from, Set: set}); err != nil {
		t.Fatal(err)
	}
	child.Ref = run.Ref{RunID: runID, Config: child.Plan.Config}
	if _, err := setup.Prepare(t.Context(), h.Store, child.Ref, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return child
}

// Amend changes the run from a step on. Ref then names the amended configuration.
func (h *Run) Amend(t testing.TB, a config.Amendment) (run.Amended, error) {
	t.Helper()
	out, err := setup.AddAmendment(t.Context(), h.Store, run.AmendInput{Run: h.Ref, Amendment: a})
	if err == nil {
		h.Ref.Config = out.Config
	}
	return out, err
}

// Repeat makes a stage part of the plan once more, behind the others, as the workflow does.
func (h *Run) Repeat(t testing.TB, stage string) {
	t.Helper()
	_, err := h.Amend(t, config.Amendment{FromStep: h.Plan.NumSteps() + 1, Repeat: stage})
	if err == nil {
		h.Plan, err = run.Reopen(t.Context(), h.Store, h.Ref.RunID)
	}
	if err == nil {
		h.Config, err = run.ReadConfig(t.Context(), h.Store, h.Ref)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Checkpoints lists the cursors that have one.
func (h *Run) Checkpoints(t testing.TB) []int {
	t.Helper()
	saved, err := checkpoint.List(t.Context(), h.Store, h.Layout.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range saved {
		out = append(out, e.Step)
	}
	return out
}
