package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/workflows"
)

// newEnv registers the workflows and the fakes under the names of the real ones.
func newEnv(t *testing.T, w *world) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	workflows.Register(env)
	env.RegisterWorkflow(workflows.StageAlone)
	env.RegisterActivity(&fakeControl{w})
	env.RegisterActivity(&fakeTrainer{w})
	env.RegisterActivity(&fakeRollouts{w})
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(patient())
	return env
}

// patient tells a busy machine from a workflow that blocks.
func patient() worker.Options {
	return worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: workflows.Interceptors()}
}

func runDemo(env *testsuite.TestWorkflowEnvironment) {
	env.ExecuteWorkflow(workflows.RLRun, run.Input{RunID: "demo"})
}

func resultOf(t *testing.T, env *testsuite.TestWorkflowEnvironment) workflows.RunResult {
	t.Helper()
	if err := env.GetWorkflowError(); err != nil {
		t.Fatalf("run: %v", err)
	}
	var out workflows.RunResult
	if err := env.GetWorkflowResult(&out); err != nil {
		t.Fatalf("result: %v", err)
	}
	return out
}

// TestPlaceDecidesHowSamplingIsCut: the plan of who opened the run counts.
func TestPlaceDecidesHowSamplingIsCut(t *testing.T) {
	for shards, want := range map[int]int{0: 1, 1: 1, 2: 2} {
		w := newWorld(1)
		w.plan.NumRolloutShards = shards
		env := newEnv(t, w)
		runDemo(env)
		resultOf(t, env)
		if got := w.count("sample 1 "); got != want {
			t.Errorf("%d shards: %d calls for the first step, want %d: %v", shards, got, want, w.log())
		}
	}
}

func TestRunOrder(t *testing.T) {
	w := newWorld(2, 1)
	w.empty[2] = true
	env := newEnv(t, w)
	runDemo(env)
	got := resultOf(t, env)
	want := workflows.RunResult{RunID: "demo", SummaryPath: "runs/demo/summary.json", Policy: policyAt(3)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	order := []string{
		"open", "prepare", "sft 0-25", "sft 25-30", "publish 0",
		"eval stage 1 before with 0", "eval stage 2 before with 0",
		"select 1/1", "sample 1 with 0: p1,p2,p3", "batch 1", "train 1", "log 1",
		"select 2/2", "sample 2 with 1: p1,p2,p3", "batch 2", "train 2", "log 2",
		"eval stage 1 after with 2",
		"select 3/1", "sample 3 with 2: p1,p2,p3", "batch 3", "train 3", "log 3",
		"eval stage 2 after with 3",
		"eval stage 1 final with 3", "finish", // stage 2 has just been measured with the same policy
	}
	if diff := cmp.Diff(order, w.log()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	checkTraining(t, w)
	checkReports(t, w)
}

// checkTraining: a batch without samples makes no update, and checkpoints lie
// on every second step and at the end of each stage.
func checkTraining(t *testing.T, w *world) {
	t.Helper()
	for i, in := range w.trains {
		if got, want := in.Batch.IsZero(), in.Step == 2; got != want {
			t.Errorf("train %d: batch absent = %v, want %v", in.Step, got, want)
		}
		if got, want := in.Save, []bool{false, true, true}[i]; got != want {
			t.Errorf("train %d: save = %v, want %v", in.Step, got, want)
		}
	}
	for _, in := range w.sft {
		if !in.Save {
			t.Errorf("sft %d-%d: no checkpoint", in.From, in.To)
		}
	}
}

func checkReports(t *testing.T, w *world) {
	t.Helper()
	in := w.finish[0]
	if in.Stopped || in.Policy != policyAt(3) || in.SFT.Metrics.Loss != 1.5 {
		t.Errorf("finish: stopped %v policy %d sft loss %g", in.Stopped, in.Policy.Version, in.SFT.Metrics.Loss)
	}
	if in.SFT.TrainTime != 2*time.Second {
		t.Errorf("SFT took %v, want the sum of two chunks of 1s", in.SFT.TrainTime)
	}
	for i, r := range in.Stages {
		if r.Before.PolicyVersion != 0 || r.Before.Label != "before" {
			t.Errorf("stage %d before: %+v", i+1, r.Before)
		}
		if want := int64(i + 2); r.After.PolicyVersion != want || r.After.Label != "after" {
			t.Errorf("stage %d after: policy %d label %q, want %d after", i+1, r.After.PolicyVersion, r.After.Label, want)
		}
		if r.Final.PolicyVersion != 3 || r.Final.Label != "final" {
			t.Errorf("stage %d final: policy %d label %q, want 3 final", i+1, r.Final.PolicyVersion, r.Final.Label)
		}
	}
}

func TestRunIDComesFromTheWorkflowID(t *testing.T) {
	w := newWorld(1)
	env := newEnv(t, w)
	env.SetStartWorkflowOptions(startOptions("rl/night run"))
	env.ExecuteWorkflow(workflows.RLRun, run.Input{})
	if got := resultOf(t, env).RunID; got != "night-run" {
		t.Errorf("run id %q, want night-run", got)
	}
}

func TestInfrastructureErrorsAreSurvived(t *testing.T) {
	w := newWorld(1)
	for _, call := range []string{"open", "prepare", "sft 0-25", "sample 1 with 0: p1,p2,p3", "batch 1", "train 1", "log 1", "finish"} {
		w.faults[call] = []error{infraError(), infraError()}
	}
	env := newEnv(t, w)
	runDemo(env)
	resultOf(t, env)
	for call := range w.faults {
		if got := w.count(call); got != 3 {
			t.Errorf("%s: %d attempts, want 3", call, got)
		}
	}
}

// TestAnOutageOfTheStoreIsWaitedFor: many failed attempts of each kind of
// activity end in the same run. (The test environment gives up after a minute,
// the server does not.)
func TestAnOutageOfTheStoreIsWaitedFor(t *testing.T) {
	const attempts = 8
	w := newWorld(1)
	calls := []string{"prepare", "sample 1 with 0: p1,p2,p3", "batch 1", "train 1", "log 1", "finish"}
	for _, call := range calls {
		for range attempts {
			w.faults[call] = append(w.faults[call], fmt.Errorf("put runs/r/x: the server does not answer: %w", blob.ErrUnavailable))
		}
	}
	env := newEnv(t, w)
	runDemo(env)
	resultOf(t, env)
	for _, call := range calls {
		if got := w.count(call); got != attempts+1 {
			t.Errorf("%s: %d attempts, want %d", call, got, attempts+1)
		}
	}
}

func TestFinalErrorsFailTheRunAtOnce(t *testing.T) {
	for call, kind := range map[string]string{
		"open":                       string(fault.InvalidConfig),
		"prepare":                    string(fault.Dataset),
		"train 1":                    string(fault.Diverged),
		"eval stage 1 before with 0": string(fault.Corrupt),
		"batch 1":                    string(fault.Store),
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(1)
			w.faults[call] = []error{finalError(kind, "rl.group_size: 32 above 16")}
			env := newEnv(t, w)
			runDemo(env)
			var app *temporal.ApplicationError
			if !asApplication(env.GetWorkflowError(), &app) {
				t.Fatalf("error %v, want an application error", env.GetWorkflowError())
			}
			if app.Type() != kind || app.Message() != "rl.group_size: 32 above 16" {
				t.Errorf("failure %q of type %q", app.Message(), app.Type())
			}
			if got := w.count(call); got != 1 {
				t.Errorf("%d attempts of %s, want 1", got, call)
			}
			if w.count("finish") != 0 {
				t.Error("a failed run wrote a summary")
			}
			if wrote := slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, "fail: ") }); wrote == (call == "open") {
				t.Errorf("fail event written = %v after %s", wrote, call)
			}
		})
	}
}

func TestFilterThatLeavesNothingEndsTheStage(t *testing.T) {
	w := newWorld(1, 2)
	w.plan.Stages[1].Filter = true
	w.left = 0
	env := newEnv(t, w)
	runDemo(env)
	if got := resultOf(t, env).Policy.Version; got != 1 {
		t.Errorf("policy %d, want 1: no step of the second stage", got)
	}
	if w.count("select 2") != 0 || w.count("eval stage 2 after with 1") != 1 || w.count("filter stage 2 with 1") != 1 {
		t.Errorf("calls: %v", w.log())
	}
	status := statusOf(t, env)
	if note := status.Stages[1].Note; !strings.Contains(note, "no problem left") {
		t.Errorf("note %q, want the reason", note)
	}
	if got := w.finish[0].Stages[1].Filter.Removed; got != 8 {
		t.Errorf("report says %d removed, want 8", got)
	}
}

func TestCancelledRunLeavesItsSummary(t *testing.T) {
	w := newWorld(500)
	env := newEnv(t, w)
	w.hold = time.Millisecond
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Millisecond)
	runDemo(env)
	if err := env.GetWorkflowError(); !temporal.IsCanceledError(err) {
		t.Fatalf("error %v, want a cancellation", err)
	}
	if len(w.finish) != 1 || !w.finish[0].Stopped {
		t.Errorf("finish inputs: %+v, want one of a stopped run", w.finish)
	}
}

// TestRunCancelledWhileItOpens: what OpenRun may have claimed by then gets its end.
func TestRunCancelledWhileItOpens(t *testing.T) {
	w := newWorld(2)
	env := newEnv(t, w)
	w.opening = func(ctx context.Context) error {
		if w.count("open") == 1 {
			env.CancelWorkflow()
			<-ctx.Done()
		}
		return ctx.Err()
	}
	runDemo(env)
	if err := env.GetWorkflowError(); !temporal.IsCanceledError(err) {
		t.Fatalf("error %v, want a cancellation", err)
	}
	if len(w.finish) != 1 || !w.finish[0].Stopped || w.finish[0].Run.RunID != "demo" {
		t.Errorf("finish inputs: %+v, want one of a stopped run", w.finish)
	}
	if want := []string{"cancel: the run was cancelled"}; !slices.Equal(w.events, want) {
		t.Errorf("events %q, want %q", w.events, want)
	}
}

func TestEvaluateRun(t *testing.T) {
	third := int64(3)
	for name, tt := range map[string]struct {
		in    workflows.EvaluateRunInput
		want  int
		label string
	}{
		"last":  {workflows.EvaluateRunInput{RunID: "demo"}, 5, "step-000005"},
		"third": {workflows.EvaluateRunInput{RunID: "demo", Version: &third}, 3, "step-000003"},
		"end":   {workflows.EvaluateRunInput{RunID: "demo", Version: &third, Final: true}, 3, "final"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, 3)
			env := newEnv(t, w)
			env.ExecuteWorkflow(workflows.EvaluateRun, tt.in)
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			order := []string{
				"open", fmt.Sprintf("publish %d", tt.want),
				fmt.Sprintf("eval stage 1 %s with %d", tt.label, tt.want), fmt.Sprintf("eval stage 2 %s with %d", tt.label, tt.want),
			}
			if diff := cmp.Diff(order, w.log()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvaluationOfAnAbsentPolicyGivesUp: a mistyped version must not be retried for ever.
func TestEvaluationOfAnAbsentPolicyGivesUp(t *testing.T) {
	w := newWorld(1)
	for range 100 {
		w.faults["publish 9"] = append(w.faults["publish 9"], infraError())
	}
	env := newEnv(t, w)
	version := int64(9)
	env.ExecuteWorkflow(workflows.EvaluateRun, workflows.EvaluateRunInput{RunID: "demo", Version: &version})
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v, want the trainer's", err)
	}
	if got := w.count("publish"); got != 5 {
		t.Errorf("%d attempts, want 5", got)
	}
}
