package runtest

import (
	"fmt"
	"testing"
	"time"

	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/sampling"
)

// Whole plays a prepared run as its workflow does, from SFT to a step and, with end, to
// the summary. Each step takes a second.
func (h *Run) Whole(t testing.TB, last int, end bool) {
	t.Helper()
	p := h.newPlayer(t)
	defer p.sampler.Close()
	p.teach()
	for _, s := range h.Plan.Stages {
		p.evaluate(s.Index, "before")
	}
	p.play(1, last)
	p.trainer.Close(time.Minute)
	if end {
		p.finish()
	}
}

// Continue resumes the run that Whole left, in other processes, or begins a fork, to the
// summary.
func (h *Run) Continue(t testing.TB, first, last int) {
	t.Helper()
	p := h.newPlayer(t)
	defer p.sampler.Close()
	var err error
	p.policy, err = p.trainer.Publish(t.Context(), learner.PublishInput{Run: h.Ref, Step: first - 1})
	p.must("policy", err)
	p.play(first, last)
	p.trainer.Close(time.Minute)
	p.finish()
}

func (h *Run) newPlayer(t testing.TB) *player {
	p := &player{t: t, h: h, trainer: Boot(h.Store, &Fate{}), chain: &run.Chain{}}
	p.sampler, _ = h.NewSampling(t)
	return p
}

// play makes the steps from first to last with what comes before each stage.
func (p *player) play(first, last int) {
	p.t.Helper()
	for _, s := range p.h.Plan.Stages {
		for n := max(first, s.FirstStep); n < s.FirstStep+s.Steps && n <= last; n++ {
			if n == s.FirstStep {
				p.event("stage", "stage "+s.Name)
			}
			if n == s.FirstStep && s.Filter {
				p.filter(s.Index)
			}
			p.step(s, n)
		}
	}
}

// finish evaluates the last policy and writes the summary.
func (p *player) finish() {
	p.t.Helper()
	p.evaluate(1, "final")
	in := run.FinishInput{Run: p.h.Ref, Started: Still(), Ended: Still().Add(time.Minute), Policy: p.policy}
	for _, s := range p.h.Plan.Stages {
		in.Stages = append(in.Stages, run.StageReport{Plan: s})
	}
	_, err := run.Finish(p.t.Context(), p.h.Store, in, p.chain, 0)
	p.must("summary", err)
}

// player is a run under way.
type player struct {
	t       testing.TB
	h       *Run
	trainer *Machine
	sampler *sampling.Service
	chain   *run.Chain
	policy  run.Policy
}

func (p *player) must(what string, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// teach makes the supervised updates and policy 0.
func (p *player) teach() {
	_, err := p.trainer.TrainSFT(p.t.Context(), learner.SFTInput{Run: p.h.Ref, From: 0, To: p.h.Plan.SFTSteps, Save: true})
	p.must("SFT", err)
	p.policy, err = p.trainer.Publish(p.t.Context(), learner.PublishInput{Run: p.h.Ref})
	p.must("policy 0", err)
}

func (p *player) evaluate(stage int, label string) {
	_, err := p.sampler.Evaluate(p.t.Context(), sampling.EvaluateInput{Run: p.h.Ref, Stage: stage, Policy: p.policy, Label: label}, p.sampler.NewProgress())
	p.must("evaluation "+label, err)
}

func (p *player) filter(stage int) {
	_, err := p.sampler.Filter(p.t.Context(), sampling.FilterInput{Run: p.h.Ref, Stage: stage, Policy: p.policy}, p.sampler.NewProgress())
	p.must("filter", err)
}

func (p *player) event(kind, text string) {
	p.must("event", run.LogEvent(p.t.Context(), p.h.Store, run.Event{Run: p.h.Ref, Time: Still(), Kind: kind, Text: text}))
}

// step makes a step as workflows do.
func (p *player) step(s run.Stage, n int) {
	ctx, what := p.t.Context(), fmt.Sprintf("step %d", n)
	ids := p.h.Selected(p.t, s.Index, n)
	sampled, err := p.sampler.SampleGroups(ctx, sampling.GroupsInput{Run: p.h.Ref, Stage: s.Source(), Step: n, ProblemIDs: ids, Policy: p.policy}, p.sampler.NewProgress())
	p.must(what, err)
	built, err := sampling.BuildBatch(ctx, p.h.Store, sampling.BatchInput{Run: p.h.Ref, Stage: s.Source(), Step: n, ProblemIDs: ids, Shards: sampled.Shards})
	p.must(what, err)
	in := learner.StepInput{Run: p.h.Ref, Step: n, Save: n%2 == 0}
	if built.Samples > 0 {
		in.Batch = built.Batch
	}
	trained, err := p.trainer.TrainStep(ctx, in)
	p.must(what, err)
	p.policy = trained.Policy
	log := run.StepInput{
		Run: p.h.Ref, Stage: s.Index, StageName: s.Name, Step: n, NumSteps: p.h.Plan.NumSteps(), Sample: sampled, Rollouts: built.Stats, Train: trained,
		Started: Still().Add(time.Duration(n) * time.Second), Ended: Still().Add(time.Duration(n+1) * time.Second),
	}
	_, err = run.LogStep(ctx, p.h.Store, p.h.Config, log)
	p.must(what, err)
	p.must(what, p.chain.AddStep(ctx, p.h.Store, log))
}
