package runtest

import (
	"fmt"
	"testing"
	"time"

	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/sampling"
)

// Whole plays a prepared run as its workflow does, from SFT to the summary. It stops
// before the summary when end is false. Each step takes a second.
func (h *Run) Whole(t testing.TB, steps int, end bool) {
	t.Helper()
	p := player{t: t, h: h, trainer: Boot(h.Store, &Fate{}), chain: &run.Chain{}}
	p.sampler, _ = h.NewSampling(t)
	defer p.sampler.Close()
	p.teach()
	for _, s := range h.Plan.Stages {
		p.evaluate(s.Index, "before")
	}
	var reports []run.StageReport
	for _, s := range h.Plan.Stages {
		p.event("stage", "stage "+s.Name)
		if s.Filter && s.FirstStep <= steps {
			p.filter(s.Index)
		}
		for n := s.FirstStep; n < s.FirstStep+s.Steps && n <= steps; n++ {
			p.step(s, n)
		}
		reports = append(reports, run.StageReport{Plan: s})
	}
	p.trainer.Close(time.Minute)
	if !end {
		return
	}
	p.evaluate(1, "final")
	in := run.FinishInput{Run: h.Ref, Started: Still(), Ended: Still().Add(time.Minute), Stages: reports, Policy: p.policy}
	if _, err := run.Finish(t.Context(), h.Store, in, p.chain, 0); err != nil {
		t.Fatal(err)
	}
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
	sampled, err := p.sampler.SampleGroups(ctx, sampling.GroupsInput{Run: p.h.Ref, Stage: s.Index, Step: n, ProblemIDs: ids, Policy: p.policy}, p.sampler.NewProgress())
	p.must(what, err)
	built, err := sampling.BuildBatch(ctx, p.h.Store, sampling.BatchInput{Run: p.h.Ref, Stage: s.Index, Step: n, ProblemIDs: ids, Shards: sampled.Shards})
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
	p.must(what, run.LogStep(ctx, p.h.Store, log))
	_, err = run.WatchStep(ctx, p.h.Store, log)
	p.must(what, err)
	p.must(what, p.chain.AddStep(ctx, p.h.Store, log))
}
