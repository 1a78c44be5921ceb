package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/placement"
	"temper/internal/run"
	"temper/internal/run/chain"
)

// StepInput says which step to make and from which policy.
type StepInput struct {
	Run      run.Ref    `json:"run"`
	Stage    run.Stage  `json:"stage"`
	Step     int        `json:"step"`
	NumSteps int        `json:"num_steps"`
	Policy   run.Policy `json:"policy"`
	// Save asks for a checkpoint after the update.
	Save      bool `json:"save,omitempty"`
	NumShards int  `json:"num_shards"`
	// Priority of the run, 0 for the default.
	Priority int `json:"priority,omitempty"`
	// Queues are the run's own; zero values mean the queues that all runs share.
	Queues placement.Queues `json:"queues,omitzero"`
}

// StepResult is the policy that the step published and its numbers.
type StepResult struct {
	Policy  run.Policy  `json:"policy"`
	Numbers StepNumbers `json:"numbers"`
	// Watched is what the watch says of the step.
	Watched run.Watched `json:"watched,omitzero"`
}

// step is one step under way: sample, then learn.
type step struct {
	in  StepInput
	log activities.LogStepInput
	// asked is true once rollout workers were asked for all groups.
	asked bool
	// span, when set, waits for the policy of the i-th span of the step's trajectories,
	// from 0, and says where that ends. Without it the policy of the input samples all.
	span func(ctx workflow.Context, i int) (run.PolicySpan, error)
}

func newStep(ctx workflow.Context, in StepInput) *step {
	return &step{in: in, log: activities.LogStepInput{
		Run: in.Run, Stage: in.Stage.Index, StageName: in.Stage.Name,
		Step: in.Step, NumSteps: in.NumSteps, Started: workflow.Now(ctx),
	}}
}

// sample selects the problems of the step, samples their groups with the policy of
// the input and builds the batch.
func (s *step) sample(ctx workflow.Context) (run.BuiltBatch, error) {
	problems, err := s.selectProblems(ctx)
	if err != nil {
		return run.BuiltBatch{}, err
	}
	shards, err := s.sampleGroups(ctx, problems)
	if err != nil {
		return run.BuiltBatch{}, err
	}
	want := len(problems)
	for round := 1; round <= s.in.Stage.Refill && s.log.Sample.Signals < want; round++ {
		more, err := s.selectMore(ctx, round, want-s.log.Sample.Signals)
		if err != nil {
			return run.BuiltBatch{}, err
		}
		if len(more) == 0 {
			break
		}
		first := s.log.Sample
		added, err := s.sampleGroups(ctx, more)
		if err != nil {
			return run.BuiltBatch{}, err
		}
		s.log.Sample = addRound(first, s.log.Sample)
		problems, shards = append(problems, more...), append(shards, added...)
	}
	return s.buildBatch(ctx, problems, shards)
}

// learn applies the batch, publishes the policy that comes of it and writes the
// record of the step.
func (s *step) learn(ctx workflow.Context, batch run.BuiltBatch) (StepResult, error) {
	var err error
	if s.log.Train, err = s.train(ctx, batch); err != nil {
		return StepResult{}, err
	}
	var control *activities.Control
	s.log.Ended = workflow.Now(ctx)
	out := StepResult{Policy: s.log.Train.Policy, Numbers: numbersOf(s.log)}
	err = doControl(ctx, fmt.Sprintf("step %d: write the record", s.in.Step), control.LogStep, s.log, &out.Watched)
	return out, err
}

func (s *step) selectProblems(ctx workflow.Context) ([]string, error) {
	var control *activities.Control
	var out activities.SelectProblemsResult
	err := doControl(ctx, fmt.Sprintf("step %d: select problems", s.in.Step), control.SelectProblems, activities.SelectProblemsInput{
		Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step,
		StageStep: s.in.Stage.Offset + s.in.Step - s.in.Stage.FirstStep + 1,
	}, &out)
	return out.ProblemIDs, err
}

// selectMore names further problems of the step, in a round from 1.
func (s *step) selectMore(ctx workflow.Context, round, n int) ([]string, error) {
	var control *activities.Control
	var out activities.SelectProblemsResult
	err := doControl(ctx, fmt.Sprintf("step %d: select %d more problems, round %d", s.in.Step, n, round), control.SelectProblems, activities.SelectProblemsInput{
		Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step,
		StageStep: s.in.Stage.Offset + s.in.Step - s.in.Stage.FirstStep + 1, Round: round, Num: n,
	}, &out)
	return out.ProblemIDs, err
}

// addRound adds a round of sampling, which begins when the one before has ended.
func addRound(sum, part run.Sampled) run.Sampled {
	wall, sampling, tools := sum.Wall+part.Wall, sum.SampleTime+part.SampleTime, sum.ToolTime+part.ToolTime
	sum = addSampled(sum, part)
	sum.Wall, sum.SampleTime, sum.ToolTime = wall, sampling, tools
	return sum
}

// sampleGroups asks every shard for its part of the problems at once, span after span until
// all trajectories have ended, and adds up. It returns the refs of the records of the
// groups.
func (s *step) sampleGroups(ctx workflow.Context, problems []string) ([]blob.Ref, error) {
	parts := shard(problems, s.in.NumShards)
	sampled := make([]run.Sampled, len(parts))
	var spans []run.PolicySpan
	for left := true; left; {
		span := run.PolicySpan{Policy: s.in.Policy}
		if s.span != nil {
			var err error
			if span, err = s.span(ctx, len(spans)); err != nil {
				return nil, err
			}
		}
		var err error
		if left, err = s.sampleSpan(ctx, parts, sampled, span, spans); err != nil {
			return nil, err
		}
		spans = append(spans, span)
	}
	s.log.Sample = run.Sampled{}
	var shards []blob.Ref
	for _, part := range sampled {
		shards = append(shards, part.Shards...)
		s.log.Sample = addSampled(s.log.Sample, part)
	}
	return shards, nil
}

// sampleSpan samples a span of the open trajectories, after the spans before, and reports
// whether some remain open.
func (s *step) sampleSpan(ctx workflow.Context, parts [][]string, sampled []run.Sampled, span run.PolicySpan, before []run.PolicySpan) (left bool, err error) {
	futures := make([]workflow.Future, len(parts))
	goesOn := func(i int) bool { return len(before) == 0 || sampled[i].Open > 0 }
	for i := range parts {
		if goesOn(i) {
			futures[i] = s.beginSampling(ctx, i, parts[i], span, before)
		}
	}
	s.asked = true
	for i := range parts {
		if !goesOn(i) {
			continue
		}
		var part run.Sampled
		begun := true
		err := withRepair(ctx, s.in.Queues, s.in.Run, func() error {
			if !begun {
				futures[i] = s.beginSampling(ctx, i, parts[i], span, before)
			}
			begun = false
			return futures[i].Get(ctx, &part)
		})
		if err != nil {
			return false, err
		}
		sampled[i] = sampled[i].Then(part)
		left = left || part.Open > 0
	}
	return left, nil
}

// beginSampling asks a shard, counted from 0, for its part of the problems.
func (s *step) beginSampling(ctx workflow.Context, i int, ids []string, span run.PolicySpan, before []run.PolicySpan) workflow.Future {
	var rollouts *activities.Rollouts
	what := fmt.Sprintf("step %d: sample %d problems, shard %d", s.in.Step, len(ids), i+1)
	if span.Until > 0 || len(before) > 0 {
		what += fmt.Sprintf(", span %d", len(before)+1)
	}
	ctx = workflow.WithPriority(onRollouts(ctx, s.in.Queues, what), priority(s.in.Priority))
	return workflow.ExecuteActivity(ctx, rollouts.SampleGroups, activities.SampleGroupsInput{
		Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step, ProblemIDs: ids, Policy: span.Policy, Until: span.Until, Before: before,
	})
}

func (s *step) buildBatch(ctx workflow.Context, problems []string, shards []blob.Ref) (run.BuiltBatch, error) {
	var control *activities.Control
	var out run.BuiltBatch
	in := activities.BuildBatchInput{Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step, ProblemIDs: problems, Shards: shards}
	err := withRepair(ctx, s.in.Queues, s.in.Run, func() error {
		return doControl(ctx, fmt.Sprintf("step %d: build the batch of %d problems", s.in.Step, len(problems)), control.BuildBatch, in, &out)
	})
	s.log.Rollouts = out.Stats
	return out, err
}

func (s *step) train(ctx workflow.Context, batch run.BuiltBatch) (run.Trained, error) {
	var trainer *activities.Trainer
	in := activities.TrainStepInput{Run: s.in.Run, Step: s.in.Step, Save: s.in.Save}
	if batch.Samples > 0 {
		in.Batch = batch.Batch
	}
	var out run.Trained
	ctx = workflow.WithPriority(onTrainer(ctx, s.in.Queues, fmt.Sprintf("step %d: train on %d samples", s.in.Step, batch.Samples)), priority(s.in.Priority))
	err := withRepair(ctx, s.in.Queues, s.in.Run, func() error { return workflow.ExecuteActivity(ctx, trainer.TrainStep, in).Get(ctx, &out) })
	return out, err
}

// shard cuts ids into at most n contiguous parts whose sizes differ by one at most.
func shard(ids []string, n int) [][]string {
	n = max(1, min(n, len(ids)))
	parts := make([][]string, 0, n)
	for i := range n {
		parts = append(parts, ids[i*len(ids)/n:(i+1)*len(ids)/n])
	}
	return parts
}

// addSampled adds a shard. Shards run side by side: the sum has the wall time of the
// slowest one and its split.
func addSampled(sum, part run.Sampled) run.Sampled {
	sum.Groups += part.Groups
	sum.Reused += part.Reused
	sum.Resumed += part.Resumed
	sum.Trajectories += part.Trajectories
	sum.Tokens += part.Tokens
	sum.ToolCalls += part.ToolCalls
	sum.InfraErrors += part.InfraErrors
	sum.Signals += part.Signals
	sum.Busy = append(sum.Busy, part.Busy...)
	for _, m := range part.MadeBy {
		sum.MadeBy = chain.AddMaker(sum.MadeBy, m)
	}
	if part.Wall > sum.Wall {
		sum.Wall, sum.SampleTime, sum.ToolTime = part.Wall, part.SampleTime, part.ToolTime
	}
	return sum
}
