package workflows_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
	"temper/workflows"
)

func stageInput(w *world, perExecution int) workflows.StageInput {
	return workflows.StageInput{
		Run: run.Ref{RunID: "demo"}, Plan: w.plan.Stages[0], NumSteps: w.plan.NumSteps(),
		CheckpointEvery: 2, NumShards: 1, StepsPerExecution: perExecution,
		Progress: workflows.StageProgress{NextStep: 1},
	}
}

// runStage runs a stage through all its executions, changing each environment
// first, and returns its result and the number of executions.
func runStage(t *testing.T, w *world, in workflows.StageInput, change func(*testsuite.TestWorkflowEnvironment)) (workflows.StageResult, int) {
	t.Helper()
	for n := 1; ; n++ {
		env := newEnv(t, w)
		change(env)
		env.ExecuteWorkflow(workflows.StageAlone, in)
		err := env.GetWorkflowError()
		var again *workflow.ContinueAsNewError
		if errors.As(err, &again) {
			in = workflows.StageInput{}
			if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &in); err != nil {
				t.Fatalf("input of execution %d: %v", n+1, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("execution %d: %v", n, err)
		}
		var out workflows.StageResult
		if err := env.GetWorkflowResult(&out); err != nil {
			t.Fatal(err)
		}
		return out, n
	}
}

// TestStageContinuesAsNew: the executions together make every step once, with
// the filter only in the first one and the same result as a single execution.
func TestStageContinuesAsNew(t *testing.T) {
	single, many := newWorld(5), newWorld(5)
	for _, w := range []*world{single, many} {
		w.plan.Stages[0].Filter = true
	}
	nothing := func(*testsuite.TestWorkflowEnvironment) {}
	want, _ := runStage(t, single, stageInput(single, 100), nothing)
	got, n := runStage(t, many, stageInput(many, 2), nothing)
	if n != 3 {
		t.Errorf("%d executions for 5 steps by 2, want 3", n)
	}
	if diff := cmp.Diff(single.log(), many.log()); diff != "" {
		t.Errorf("calls (-single +many):\n%s", diff)
	}
	if got.Policy != want.Policy || got.Step != 5 || got.Filter != want.Filter {
		t.Errorf("result %+v, want that of one execution %+v", got, want)
	}
}

func TestStageFollowsTheServersSuggestion(t *testing.T) {
	w := newWorld(2)
	suggested := false
	_, n := runStage(t, w, stageInput(w, 100), func(env *testsuite.TestWorkflowEnvironment) {
		env.SetContinueAsNewSuggested(!suggested)
		suggested = true
	})
	if n != 2 || w.count("train") != 2 {
		t.Errorf("%d executions, %d steps; want 2 and 2", n, w.count("train"))
	}
}

// TestPauseCrossesContinueAsNew: a pause that arrives in the last step of an
// execution holds the next one.
func TestPauseCrossesContinueAsNew(t *testing.T) {
	w := newWorld(2)
	execution := 0
	_, n := runStage(t, w, stageInput(w, 1), func(env *testsuite.TestWorkflowEnvironment) {
		execution++
		s := &scenario{t: t, w: w, env: env}
		if execution == 1 {
			s.when("TrainStep", 1, func() { env.SignalWorkflow(workflows.CommandPause, workflows.Command{Reason: "lunch"}) })
			return
		}
		env.RegisterDelayedCallback(func() {
			if got := w.count("train"); got != 1 {
				t.Errorf("%d steps while paused, want 1", got)
			}
			env.SignalWorkflow(workflows.CommandResume, nil)
		}, days)
	})
	if n != 2 || w.count("train") != 2 {
		t.Errorf("%d executions, %d steps; want 2 and 2", n, w.count("train"))
	}
}

// TestShardsCoverEveryProblemOnce reads what the shards were asked for.
func TestShardsCoverEveryProblemOnce(t *testing.T) {
	for n, want := range map[int][]string{
		1: {"p1,p2,p3"}, 2: {"p1", "p2,p3"}, 3: {"p1", "p2", "p3"}, 7: {"p1", "p2", "p3"},
	} {
		w := newWorld(1)
		in := stageInput(w, 100)
		in.NumShards = n
		runStage(t, w, in, func(*testsuite.TestWorkflowEnvironment) {})
		if got := w.count("sample"); got != len(want) {
			t.Errorf("%d shards: %d calls, want %d", n, got, len(want))
		}
		for _, ids := range want {
			if w.count(fmt.Sprintf("sample 1 with 0: %s", ids)) == 0 {
				t.Errorf("%d shards: nobody sampled %s: %v", n, ids, w.log())
			}
		}
	}
}
