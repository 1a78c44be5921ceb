// Package rolloutbench measures what the storing side of a step costs: it samples a
// whole step through the service of the rollout workers, with an engine and a sandbox
// that cost next to nothing, and counts processor time, heap and stored bytes.
//
// Invariant: what the engine says is a function of the request, so that a step with
// faults must end with the bytes of one without.
package rolloutbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/internal/sampling"
	"temper/tools/bench/meter"
)

// Plan says what is sampled.
type Plan struct {
	Store blob.Store
	// Problems of the step and Rollouts of each; an even number of both right and wrong
	// answers is likely.
	Problems, Rollouts int
	// Tokens is the mean length of a response and Turns the mean number of turns.
	Tokens, Turns int
	// ToolChars is the length of a tool's answer.
	ToolChars int
	// TokenTime and ToolTime are how long a token and a call take. They cost no processor
	// time, and decide how many trajectories are in memory at once.
	TokenTime, ToolTime time.Duration
	// Concurrent trajectories; 0 is all.
	Concurrent int
	Faults     Faults
}

// Result is what the step took.
type Result struct {
	Trajectories int     `json:"trajectories"`
	Turns        int64   `json:"turns"`
	Tokens       int64   `json:"tokens"` // of responses, as stored
	CPU          float64 `json:"cpu_us_per_turn"`
	Wall         float64 `json:"wall_s"`
	// LiveHeap is the most that the garbage collector found in use, above what was in use
	// before; Heap the most that was allocated, garbage included.
	LiveHeap int64 `json:"live_heap_bytes"`
	Heap     int64 `json:"heap_bytes"`
	RSS      int64 `json:"rss_bytes"`
	// Stored are the bytes of the step's groups, Samples those of what the trainer gets.
	Stored   int64 `json:"stored_bytes"`
	Samples  int64 `json:"samples_bytes"`
	Objects  int   `json:"objects"`
	Attempts int   `json:"attempts"`
	Injected int64 `json:"injected_faults"`
	// Sampled are the tokens that the engine made, over all attempts.
	Sampled int64 `json:"sampled_tokens"`
	Census
}

// runID names the run of a measurement.
const runID = "rollouts"

// recipe is the run that is sampled for; only its limits matter.
const recipe = `
name: rollouts
seed: 5
model: {hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: %d}
tokenizer: {num_merges: 1000}
sft: {data: {env: chase, levels: [1, 2, 3], num: 200}, batch_size: 4, steps: 4}
rl: {problems_per_step: %d, rollouts_per_problem: %d, group_size: %d}
stages:
  - {name: only, data: {env: chase, levels: [1, 2, 3], num: %d}, max_response_tokens: %d, max_turns: 64, until: {steps: 4}}
eval: {num_problems: 4}
checkpoint: {every_steps: 2, keep: 1, best: 0}
`

// longest is the longest response, as a multiple of the mean.
const longest = 2

// prepare opens and prepares the run.
func (p *Plan) prepare(ctx context.Context) (run.Ref, []string, error) {
	limit := longest*p.Tokens + 4*p.ToolChars
	text, err := json.Marshal(fmt.Sprintf(recipe, limit+2000, p.Problems, p.Rollouts, max(2, p.Rollouts/2), p.Problems, limit))
	if err != nil {
		return run.Ref{}, nil, err
	}
	plan, err := setup.Open(ctx, p.Store, run.Input{RunID: runID, Config: text}, setup.Claim{Owner: "bench", SearchAttributes: true})
	if err != nil {
		return run.Ref{}, nil, err
	}
	ref := run.Ref{RunID: runID, Config: plan.Config}
	if _, err := setup.Prepare(ctx, p.Store, ref, func(string) {}); err != nil {
		return ref, nil, err
	}
	var selector sampling.Selector
	ids, err := selector.Select(ctx, p.Store, sampling.SelectInput{Run: ref, Stage: 1, Step: 1, StageStep: 1})
	return ref, ids, err
}

// Measure samples a step in an empty store.
func (p *Plan) Measure(ctx context.Context) (Result, error) {
	out := Result{Trajectories: p.Problems * p.Rollouts}
	ref, ids, err := p.prepare(ctx)
	if err != nil {
		return out, err
	}
	m, err := newMachine(ctx, p, ref)
	if err != nil {
		return out, err
	}
	in := sampling.GroupsInput{
		Run: ref, Stage: 1, Step: 1, ProblemIDs: ids,
		Policy: run.Policy{Ref: blob.RefOf("policies/0", nil)},
	}
	watch := watchHeap()
	started := meter.Now()
	sampled, err := m.sampleAll(ctx, in, &out)
	cost := started.Since(1)
	out.LiveHeap, out.Heap = watch.stop()
	if err != nil {
		return out, err
	}
	layout := artifact.Layout{RunID: runID}
	if err := out.countBytes(ctx, p.Store, layout); err != nil {
		return out, err
	}
	if out.Census, err = takeCensus(ctx, p, layout, ids); err != nil {
		return out, err
	}
	if _, err := sampling.BuildBatch(ctx, p.Store, sampling.BatchInput{Run: ref, Stage: 1, Step: 1, ProblemIDs: ids, Shards: sampled.Shards}); err != nil {
		return out, err
	}
	out.Turns, out.Sampled, out.Injected = m.engine.turns.Load(), m.engine.tokens.Load(), m.faults.injected.Load()
	out.Tokens = int64(sampled.Tokens)
	out.CPU = float64(cost.CPU.Microseconds()) / float64(max(1, out.Turns))
	out.Wall, out.RSS = cost.Wall.Seconds(), meter.PeakRSS()
	return out, nil
}

// sampleAll samples the step, attempt after attempt, as the service does.
func (m *machine) sampleAll(ctx context.Context, in sampling.GroupsInput, out *Result) (run.Sampled, error) {
	for {
		out.Attempts++
		attempt, end := m.faults.attempt(ctx, out.Attempts)
		service := m.newService()
		sampled, err := service.SampleGroups(attempt, in, service.NewProgress())
		end()
		service.Close()
		if err == nil || ctx.Err() != nil || out.Attempts >= maxAttempts {
			return sampled, err
		}
		if m.plan.Faults.none() && !errors.Is(err, context.Canceled) {
			return sampled, err
		}
	}
}

// maxAttempts ends a step that does not come to its end.
const maxAttempts = 100

// countBytes adds up what the step has stored.
func (r *Result) countBytes(ctx context.Context, store blob.Store, layout artifact.Layout) error {
	infos, err := store.List(ctx, layout.Step(1).Groups()+"/")
	if err != nil {
		return err
	}
	for _, i := range infos {
		r.Stored += i.Size
		r.Objects++
	}
	infos, err = store.List(ctx, layout.Step(1).Dir()+"/samples"+"/")
	for _, i := range infos {
		r.Samples += i.Size
	}
	return err
}
