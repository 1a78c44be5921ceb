package workflows_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/run"
	"temper/workflows"
)

// The shape of the paper's run: stages of 300, 85 and 125 steps, 512 problems of
// 32 rollouts each, about 20 minutes a step.
const (
	paperProblems   = 512
	paperRollouts   = 32
	paperSampleTime = 14 * time.Minute
	paperTrainTime  = 6 * time.Minute
)

func paperStages() []int { return []int{300, 85, 125} }

// paperControl deals out as many problems as the paper's steps have, with ids of
// the length that the paper's data set has (uuids).
type paperControl struct{ *fakeControl }

func (c paperControl) SelectProblems(ctx context.Context, in activities.SelectProblemsInput) (activities.SelectProblemsResult, error) {
	out, err := c.fakeControl.SelectProblems(ctx, in)
	out.ProblemIDs = make([]string, paperProblems)
	for i := range out.ProblemIDs {
		out.ProblemIDs[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", in.Step, i)
	}
	return out, err
}

func (c paperControl) BuildBatch(ctx context.Context, in activities.BuildBatchInput) (run.BuiltBatch, error) {
	out, err := c.fakeControl.BuildBatch(ctx, in)
	out.Stats.Groups, out.Stats.Trajectories = paperProblems, paperProblems*paperRollouts
	return out, err
}

// anything matches every argument of a mocked activity; it is testify's mark.
const anything = "mock.Anything"

// newPaperEnv runs paper's shape on the fakes in virtual time.
func newPaperEnv(t *testing.T, w *world, weights *scale) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(silent{})
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(patient())
	workflows.Register(env)
	env.RegisterActivity(&paperControl{&fakeControl{w}})
	trainer, rollouts := &fakeTrainer{w}, &fakeRollouts{w}
	env.RegisterActivity(trainer)
	env.RegisterActivity(rollouts)
	env.SetDataConverter(weights)
	env.OnActivity(rollouts.SampleGroups, anything, anything).After(paperSampleTime).Return(rollouts.SampleGroups)
	env.OnActivity(trainer.TrainStep, anything, anything).After(paperTrainTime).Return(trainer.TrainStep)
	env.SetTestTimeout(5 * time.Minute)
	return env
}

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// TestSmallPayloads: nothing that crosses Temporal grows beyond the project's own
// limit at the paper's shape. Its numbers do not depend on the number of steps.
func TestSmallPayloads(t *testing.T) { virtualRun(t, 12, 4, 5).check(t) }

// virtualRun makes a run of the paper's shape with realistic times: each step
// once and in order, in as much virtual time as its steps need.
func virtualRun(t *testing.T, stages ...int) *scale {
	t.Helper()
	weights, w := newScale(), newWorld(stages...)
	w.plan.CheckpointEvery = 10
	want := w.plan.NumSteps()
	env := newPaperEnv(t, w, weights)
	began := env.Now()
	runDemo(env)
	if got := resultOf(t, env).Policy.Version; got != int64(want) {
		t.Errorf("policy %d, want %d", got, want)
	}
	least := time.Duration(want) * (paperSampleTime + paperTrainTime)
	if elapsed := env.Now().Sub(began); elapsed < least || elapsed > least+time.Hour {
		t.Errorf("the run took %v, want %v", elapsed, least)
	}
	checkEachStepOnce(t, w, want)
	return weights
}

func checkEachStepOnce(t testing.TB, w *world, want int) {
	t.Helper()
	for i, in := range w.trains {
		if in.Step != i+1 {
			t.Fatalf("step %d is trained as number %d", in.Step, i+1)
		}
	}
	if len(w.trains) != want {
		t.Errorf("%d steps trained, want %d", len(w.trains), want)
	}
}
