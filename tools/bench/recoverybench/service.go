// Package recoverybench measures what recovery does to a run: whether trajectories
// that were interrupted and sampled again are still the ones that the policy would
// have made, or shorter ones.
//
// A service that draws an interrupted trajectory anew favours short ones: a long
// one is in danger for longer, and its replacement is any. The package carries out
// the same run with several ways of recovery, all with the sampler, the sandbox and
// the trainer of the service, and compares lengths and rewards.
package recoverybench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/internal/sampling"
	"temper/sandbox"
)

// Config is what the package works with.
type Config struct {
	Store    blob.Store
	Executor sandbox.Executor
	// NewEngine and NewLearner are those of the service.
	NewEngine  func(*run.Loaded) (sampling.Engine, error)
	NewLearner func(*run.Loaded) (learner.Learner, error)
	// Run is a configuration as JSON or a JSON string of YAML. Its first stage counts.
	Run json.RawMessage
	Set map[string]string
	// Concurrent is the number of trajectories under way at a time.
	Concurrent int
}

// service carries out runs in this process.
type service struct {
	Config
	salts   *salts
	sampler *sampling.Service
	trainer *learner.Service
	base    run.Plan
	policy0 run.Policy
}

// baseRun is the run whose policy after SFT all others start from.
const baseRun = "base"

func newService(c Config) *service {
	s := &service{Config: c, salts: &salts{}}
	s.salts.reset(0)
	s.sampler = sampling.New(sampling.Config{
		Store: c.Store, Executor: c.Executor, MaxConcurrent: c.Concurrent, Now: time.Now,
		NewEngine: func(r *run.Loaded) (sampling.Engine, error) {
			e, err := c.NewEngine(r)
			return salted{e, s.salts}, err
		},
	})
	s.trainer = learner.NewService(learner.Config{Store: c.Store, New: c.NewLearner, Now: time.Now, MaxResident: 1})
	return s
}

func (s *service) close() {
	s.trainer.Close(time.Minute)
	s.sampler.Close()
}

// open opens and prepares a run.
func (s *service) open(ctx context.Context, in run.Input) (run.Plan, error) {
	plan, err := setup.Open(ctx, s.Store, in, setup.Claim{Owner: "bench recovery"})
	if err != nil {
		return plan, err
	}
	_, err = setup.Prepare(ctx, s.Store, run.Ref{RunID: plan.RunID, Config: plan.Config}, func(string) {})
	return plan, err
}

// start makes the base run: SFT and its policy 0.
func (s *service) start(ctx context.Context) (err error) {
	if s.base, err = s.open(ctx, run.Input{RunID: baseRun, Config: s.Run, Set: s.Set}); err != nil {
		return err
	}
	ref := run.Ref{RunID: baseRun, Config: s.base.Config}
	loaded, err := run.Load(ctx, s.Store, ref)
	if err != nil {
		return err
	}
	if steps := loaded.Config.SFT.Steps; steps > 0 {
		if _, err := s.trainer.TrainSFT(ctx, learner.SFTInput{Run: ref, To: steps, Save: true}); err != nil {
			return err
		}
	}
	s.policy0, err = s.trainer.Publish(ctx, learner.PublishInput{Run: ref})
	return err
}

// branch is a run of its own that begins with the policy after SFT.
func (s *service) branch(ctx context.Context, id string) (*branch, error) {
	plan, err := s.open(ctx, run.Input{RunID: id, Fork: &run.ForkFrom{RunID: baseRun}})
	if err != nil {
		return nil, err
	}
	b := &branch{service: s, plan: plan, ref: run.Ref{RunID: id, Config: plan.Config}, layout: artifact.Layout{RunID: id}}
	loaded, err := run.Load(ctx, s.Store, b.ref)
	if err != nil {
		return nil, err
	}
	b.seed = loaded.Config.Seed
	b.policy, err = s.trainer.Publish(ctx, learner.PublishInput{Run: b.ref})
	return b, err
}

// branch is one run of the comparison.
type branch struct {
	*service
	plan   run.Plan
	ref    run.Ref
	layout artifact.Layout
	seed   uint64
	policy run.Policy

	selector sampling.Selector
}

// sample makes the groups of a step, and makes up for interruptions.
func (b *branch) sample(ctx context.Context, step int, how Recovery, h hazard) (*sampled, error) {
	stage := b.plan.Stages[0]
	ids, err := b.selector.Select(ctx, b.Store, sampling.SelectInput{Run: b.ref, Stage: stage.Index, Step: step, StageStep: step - stage.FirstStep + 1})
	if err != nil {
		return nil, err
	}
	out := &sampled{problems: ids, groups: map[string]*group{}}
	for {
		in := sampling.GroupsInput{Run: b.ref, Stage: stage.Index, Step: step, ProblemIDs: ids, Policy: b.policy}
		made, err := b.sampler.SampleGroups(ctx, in, b.sampler.NewProgress())
		if err != nil {
			return nil, err
		}
		out.shards = made.Shards
		again, err := b.interrupt(ctx, out, step, how, h)
		if err != nil || !again {
			return out, err
		}
	}
}

// interrupt decides which groups were interrupted, and removes those that have to be
// drawn anew. It reports whether there are any.
func (b *branch) interrupt(ctx context.Context, out *sampled, step int, how Recovery, h hazard) (again bool, err error) {
	for _, id := range out.problems {
		g := out.groups[id]
		if g != nil && g.stored {
			continue
		}
		ts, err := run.ReadTrajectories(ctx, b.Store, b.layout.Step(step).Group(id))
		if err != nil {
			return false, err
		}
		if g == nil {
			g = newGroup(len(ts))
			out.groups[id] = g
		}
		g.trajectories = ts
		if g.stored = g.settle(how, h, func(i int) { b.salts.fresh(seedOf(b.seed, &ts[i])) }); g.stored {
			continue
		}
		again = true
		for _, key := range []string{b.layout.Step(step).Group(id), b.layout.Step(step).Samples(id)} {
			if err := b.Store.Delete(ctx, key); err != nil {
				return false, err
			}
		}
	}
	return again, nil
}

// train makes the update of a step and goes on with the policy that comes of it.
func (b *branch) train(ctx context.Context, step int, s *sampled) error {
	built, err := sampling.BuildBatch(ctx, b.Store, sampling.BatchInput{
		Run: b.ref, Stage: b.plan.Stages[0].Index, Step: step, ProblemIDs: s.problems, Shards: s.shards,
	})
	if err != nil {
		return fmt.Errorf("batch of step %d: %w", step, err)
	}
	trained, err := b.trainer.TrainStep(ctx, learner.StepInput{Run: b.ref, Step: step, Batch: built.Batch})
	if err != nil {
		return fmt.Errorf("update of step %d: %w", step, err)
	}
	b.policy = trained.Policy
	return nil
}
