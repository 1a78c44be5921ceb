// Package paperrun writes the records of a run of the paper's size into a store: 510
// steps of 512 problems times 32 rollouts, with their index, batches, series, events and
// evaluations, and the texts of the newest steps. No policy samples and nothing is
// trained: readers of runs are measured on it.
//
// Invariant: equal configurations give equal bytes, and no more than one step is in
// memory.
package paperrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/series"
)

// Config says how large the run is.
type Config struct {
	Store blob.Store
	RunID string
	// Steps are at least one for each of the three stages.
	Steps, Problems, Rollouts int
	// TextSteps is of how many steps, the newest, the trajectories are stored.
	TextSteps int
	// MeanTokens is the mean length of a response.
	MeanTokens int
	// Others is the number of small runs beside it: an entry of the catalog, a plan and
	// three steps each.
	Others int
	Seed   uint64
	// Say gets a line now and then.
	Say func(string)
}

// Paper is the size of the paper's run.
func Paper() Config {
	return Config{RunID: "paper", Steps: 510, Problems: 512, Rollouts: 32, TextSteps: 2, MeanTokens: 5000, Seed: 1}
}

// check finds what is wrong with a size.
func (c *Config) check() error {
	if err := artifact.CheckRunID(c.RunID); err != nil {
		return err
	}
	for name, n := range map[string]int{"steps": c.Steps - numStages + 1, "problems": c.Problems, "rollouts": c.Rollouts - leastRollouts + 1, "tokens": c.MeanTokens - leastTokens + 1} {
		if n < 1 {
			return fmt.Errorf("%s: too few, want at least %d steps, 1 problem, %d rollouts and %d tokens", name, numStages, leastRollouts, leastTokens)
		}
	}
	if c.TextSteps < 0 || c.TextSteps > c.Steps || c.Others < 0 {
		return fmt.Errorf("texts of %d steps and %d other runs: want 0 to %d, and none or more", c.TextSteps, c.Others, c.Steps)
	}
	return nil
}

const (
	numStages = 3
	// pool is how many problems a stage has for each one of a step, so that a problem
	// comes back: the paper has 42 K.
	pool = 82
	// leastRollouts are those of a group of which some can be left out.
	leastRollouts = 4
	// leastTokens is the shortest mean of a response.
	leastTokens = 64
	// begun is when the first step began.
	begun = 1_780_000_000
	// stepTime is what a step takes.
	stepTime = 17 * time.Minute
)

// writer writes one run.
type writer struct {
	Config
	layout artifact.Layout
	plan   run.Plan
	words  *words
}

// Make writes the run. Errors: those of the store; ErrExists, where the id is taken.
func Make(ctx context.Context, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	w := &writer{Config: c, layout: artifact.Layout{RunID: c.RunID}}
	cfg, err := sized(c)
	if err != nil {
		return err
	}
	if err := w.open(ctx, cfg); err != nil {
		return err
	}
	if w.words, err = newWords(); err != nil {
		return err
	}
	tokenizer, err := w.words.tok.Marshal()
	if err == nil {
		_, err = blob.PutBytes(ctx, c.Store, w.layout.Tokenizer(), tokenizer, blob.Always)
	}
	for _, s := range w.plan.Stages {
		if err == nil {
			_, err = run.PutLines(ctx, c.Store, w.layout.Stage(s.Index).Train(), w.problems())
		}
	}
	if err != nil {
		return err
	}
	var last run.StepRecord
	for step := 1; step <= c.Steps; step++ {
		if last, err = w.step(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if step%50 == 0 || step == c.Steps {
			c.Say(fmt.Sprintf("step %d of %d", step, c.Steps))
		}
	}
	if err := w.finish(ctx, last); err != nil {
		return err
	}
	return others(ctx, c)
}

// sized is the configuration of a run of that size: the paper's three stages.
func sized(c Config) (config.Run, error) {
	first := max(1, c.Steps*300/510)
	second := max(1, c.Steps*85/510)
	if first+second >= c.Steps {
		first--
	}
	text := fmt.Sprintf("name: paper-sized\nseed: %d\nrl: {problems_per_step: %d, rollouts_per_problem: %d, group_size: %d}\nstages:\n", c.Seed, c.Problems, c.Rollouts, max(1, c.Rollouts/2))
	for i, steps := range []int{first, second, c.Steps - first - second} {
		text += fmt.Sprintf("  - {name: %s, data: {env: chase, levels: [1], num: %d}, max_response_tokens: 80, max_turns: 10, until: {steps: %d}}\n", stageNames[i], c.Problems, steps)
	}
	return config.Load("paper-sized", []byte(text), nil)
}

var stageNames = []string{"8k", "12k", "12k-hard"}

// open stores what a run has before its first step.
func (w *writer) open(ctx context.Context, cfg config.Run) error {
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	w.plan = run.PlanOf(w.RunID, cfg)
	w.plan.Config = blob.RefOf(w.layout.Config().Opened(), text)
	if _, err := blob.PutJSON(ctx, w.Store, w.layout.Plan(), run.Opened{Plan: w.plan, Owner: "paper-sized", ConfigYAML: string(text)}, blob.IfAbsent); err != nil {
		if errors.Is(err, blob.ErrExists) {
			err = fmt.Errorf("run %s is in %s already: %w", w.RunID, w.Store.Locate(artifact.Root), err)
		}
		return err
	}
	_, err = blob.PutBytes(ctx, w.Store, w.layout.Config().Opened(), text, blob.Always)
	return err
}

// problems are those of a stage.
func (w *writer) problems() []rl.Problem {
	out := make([]rl.Problem, w.Problems*pool)
	for i := range out {
		out[i] = rl.Problem{
			ID: problemID(i), Env: "math", Level: 1 + i%5, Answer: fmt.Sprint(i % 1000),
			Prompt: fmt.Sprintf("Let a(1) = %d and a(n+1) = a(n)^2 mod 1009. Which remainder does the sum of the first %d terms leave when it is divided by 1000?", i%1009, 3+i%40),
		}
	}
	return out
}

func problemID(i int) string { return fmt.Sprintf("problem-%06d", i) }

// step writes a step. The texts of a group are made while others are compressed.
func (w *writer) step(ctx context.Context, step int) (run.StepRecord, error) {
	s := w.sample(step)
	index, err := s.index()
	if err != nil {
		return run.StepRecord{}, err
	}
	batch, err := json.Marshal(run.StoredBatch{Step: step, Groups: s.groups})
	if err != nil {
		return run.StepRecord{}, err
	}
	record := w.record(step, s)
	g, inGroup := errgroup.WithContext(ctx)
	g.SetLimit(writersAtOnce)
	put := func(key string, data []byte) {
		g.Go(func() error {
			_, err := blob.PutBytes(inGroup, w.Store, key, data, blob.Always)
			return err
		})
	}
	put(w.layout.Step(step).Index(), index)
	put(w.layout.Step(step).Batch(), batch)
	if step > w.Steps-w.TextSteps {
		for i := range s.groups {
			g.Go(func() error {
				data, err := w.texts(step, s.rows[i*w.Rollouts:][:w.Rollouts])
				if err == nil {
					_, err = blob.PutBytes(inGroup, w.Store, w.layout.Step(step).Group(s.groups[i].ProblemID), data, blob.Always)
				}
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return record, err
	}
	if _, err = blob.PutJSON(ctx, w.Store, w.layout.Step(step).Log(), record, blob.Always); err == nil {
		run.StoreBlock(ctx, w.Store, w.layout, step)
	}
	return record, err
}

// writersAtOnce bounds the groups in memory.
const writersAtOnce = 4

// stageOf is the stage of a step.
func (w *writer) stageOf(step int) run.Stage {
	at := w.plan.Stages[0]
	for _, s := range w.plan.Stages {
		if step >= s.FirstStep {
			at = s
		}
	}
	return at
}

// record is the line of numbers of a step: every series that the table knows.
func (w *writer) record(step int, s *sampled) run.StepRecord {
	stage := w.stageOf(step)
	start := time.Unix(begun, 0).UTC().Add(time.Duration(step-1) * stepTime)
	r := run.StepRecord{
		Step: step, Stage: stage.Index, StageName: stage.Name, NumSteps: w.Steps, Started: start, Ended: start.Add(stepTime), Metrics: series.Values{},
	}
	for i, m := range series.All() {
		u := float64(rl.Uniform(w.Seed, step*1000+i))
		r.Metrics[m.Name] = math.Exp(-float64(step)/400)*(1+float64(i%7)) + 0.2*u
	}
	reward, tokens, calls, failed := 0.0, 0, 0, 0
	for i := range s.rows {
		reward += s.rows[i].Reward
		tokens += s.rows[i].ResponseTokens
		calls += s.rows[i].Calls
		failed += s.rows[i].FailedCalls
	}
	r.Metrics[series.Reward] = reward / float64(len(s.rows))
	r.Metrics[series.ToolErrors] = float64(failed) / float64(max(1, calls))
	r.Metrics["perf/total_num_tokens"] = float64(tokens)
	return r
}

// finish writes what comes after the last step.
func (w *writer) finish(ctx context.Context, last run.StepRecord) error {
	sum := run.Summary{
		RunID: w.RunID, Seed: w.Seed, ConfigSHA256: w.plan.Config.SHA256, Steps: w.Steps, Started: time.Unix(begun, 0).UTC(), Ended: last.Ended,
		WallSeconds: last.Ended.Sub(time.Unix(begun, 0)).Seconds(),
	}
	before, after := 0.24, 0.8
	for _, s := range w.plan.Stages {
		sum.Stages = append(sum.Stages, run.StageSummary{Name: s.Name, Steps: s.Steps, AccuracyBefore: &before, AccuracyAfter: &after})
		event := run.Event{Run: run.Ref{RunID: w.RunID}, Time: time.Unix(begun, 0).UTC().Add(time.Duration(s.FirstStep-1) * stepTime), Kind: "stage", Text: "stage " + s.Name + " begins"}
		if err := run.LogEvent(ctx, w.Store, event); err != nil {
			return err
		}
	}
	if _, err := blob.PutJSON(ctx, w.Store, w.layout.Summary(), sum, blob.Always); err != nil {
		return err
	}
	var entry run.CatalogEntry
	entry.AddPlan(w.plan, "paper-sized", sum.Started)
	entry.AddStep(last)
	entry.AddSummary(sum)
	return run.PutEntry(ctx, w.Store, entry, blob.Always)
}

// others writes the small runs.
func others(ctx context.Context, c Config) error {
	for i := range c.Others {
		o := &writer{Config: c}
		o.RunID, o.Steps, o.Problems, o.Rollouts = fmt.Sprintf("small-%05d", i), numStages, 1, leastRollouts
		o.Seed = c.Seed + uint64(i) + 1 //nolint:gosec // a number of runs
		o.layout = artifact.Layout{RunID: o.RunID}
		cfg, err := sized(o.Config)
		if err != nil {
			return err
		}
		if err := o.open(ctx, cfg); err != nil {
			return err
		}
		var last run.StepRecord
		for step := 1; step <= o.Steps; step++ {
			s := o.sample(step)
			last = o.record(step, s)
			if _, err := blob.PutJSON(ctx, c.Store, o.layout.Step(step).Log(), last, blob.Always); err != nil {
				return err
			}
		}
		if err := o.finish(ctx, last); err != nil {
			return err
		}
	}
	return nil
}
