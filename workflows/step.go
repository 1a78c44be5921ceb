package workflows

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/placement"
	"temper/internal/proof"
	"temper/internal/run"
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
	// Queues are those of the run; zero values are shared by all runs.
	Queues placement.Queues `json:"queues,omitzero"`
}

// StepResult is the policy that the step published and its numbers.
type StepResult struct {
	Policy  run.Policy  `json:"policy"`
	Numbers StepNumbers `json:"numbers"`
	// Watched is what the watch says of the step.
	Watched run.Watched `json:"watched,omitzero"`
}

// RLStep makes one step as a workflow of its own. Stages that began under an older
// program go on with it; today's make their steps themselves, see stage.step.
func RLStep(ctx workflow.Context, in StepInput) (StepResult, error) {
	if err := cmp.Or(refuseAlone(ctx, TypeStep), in.check()); err != nil {
		return StepResult{}, err
	}
	s := newStep(ctx, in)
	batch, err := s.sample(ctx)
	if err != nil {
		return StepResult{}, err
	}
	return s.learn(ctx, batch)
}

// step is one step under way: sample, then learn.
type step struct {
	in  StepInput
	log activities.LogStepInput
	// asked is true once rollout workers were asked for all groups.
	asked bool
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
	err = bookkeep(ctx, fmt.Sprintf("step %d: write the record", s.in.Step), control.LogStep, s.log, &out.Watched)
	return out, err
}

func (s *step) selectProblems(ctx workflow.Context) ([]string, error) {
	var control *activities.Control
	var out activities.SelectProblemsResult
	err := bookkeep(ctx, fmt.Sprintf("step %d: select problems", s.in.Step), control.SelectProblems, activities.SelectProblemsInput{
		Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step,
		StageStep: s.in.Stage.Offset + s.in.Step - s.in.Stage.FirstStep + 1,
	}, &out)
	return out.ProblemIDs, err
}

// sampleGroups asks every shard for its part of the problems at once and adds up.
// It returns where the records of the groups are.
func (s *step) sampleGroups(ctx workflow.Context, problems []string) ([]blob.Ref, error) {
	parts := shard(problems, s.in.NumShards)
	var futures []workflow.Future
	for i := range parts {
		futures = append(futures, s.beginSampling(ctx, i, parts[i]))
	}
	s.asked = true
	var sum run.Sampled
	var shards []blob.Ref
	for i := range parts {
		var part run.Sampled
		begun := true
		err := mending(ctx, s.in.Queues, s.in.Run, func() error {
			if !begun {
				futures[i] = s.beginSampling(ctx, i, parts[i])
			}
			begun = false
			return futures[i].Get(ctx, &part)
		})
		if err != nil {
			return nil, err
		}
		shards = append(shards, part.Shards...)
		sum = addSampled(sum, part)
	}
	s.log.Sample = sum
	return shards, nil
}

// beginSampling asks a shard, counted from 0, for its part of the problems.
func (s *step) beginSampling(ctx workflow.Context, i int, ids []string) workflow.Future {
	var rollouts *activities.Rollouts
	ctx = workflow.WithPriority(onRollouts(ctx, s.in.Queues, fmt.Sprintf("step %d: sample %d problems, shard %d", s.in.Step, len(ids), i+1)), priority(s.in.Priority))
	return workflow.ExecuteActivity(ctx, rollouts.SampleGroups, activities.SampleGroupsInput{
		Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step, ProblemIDs: ids, Policy: s.in.Policy,
	})
}

func (s *step) buildBatch(ctx workflow.Context, problems []string, shards []blob.Ref) (run.BuiltBatch, error) {
	var control *activities.Control
	var out run.BuiltBatch
	in := activities.BuildBatchInput{Run: s.in.Run, Stage: s.in.Stage.Source(), Step: s.in.Step, ProblemIDs: problems, Shards: shards}
	err := mending(ctx, s.in.Queues, s.in.Run, func() error {
		return bookkeep(ctx, fmt.Sprintf("step %d: build the batch of %d problems", s.in.Step, len(problems)), control.BuildBatch, in, &out)
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
	err := mending(ctx, s.in.Queues, s.in.Run, func() error { return workflow.ExecuteActivity(ctx, trainer.TrainStep, in).Get(ctx, &out) })
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

// addSampled adds a shard. Shards run side by side: the wall time and its split
// are those of the slowest one.
func addSampled(sum, part run.Sampled) run.Sampled {
	sum.Groups += part.Groups
	sum.Reused += part.Reused
	sum.Resumed += part.Resumed
	sum.Trajectories += part.Trajectories
	sum.Tokens += part.Tokens
	sum.ToolCalls += part.ToolCalls
	sum.InfraErrors += part.InfraErrors
	sum.Busy = append(sum.Busy, part.Busy...)
	for _, m := range part.MadeBy {
		sum.MadeBy = proof.AddMaker(sum.MadeBy, m)
	}
	if part.Wall > sum.Wall {
		sum.Wall, sum.SampleTime, sum.ToolTime = part.Wall, part.SampleTime, part.ToolTime
	}
	return sum
}
