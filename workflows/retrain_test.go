package workflows_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/retrain"
	"temper/workflows"
)

// retrainMethods are what Retrain calls beside its run; see controlMethods.
type retrainMethods interface {
	PlanRetrain(context.Context, activities.PlanRetrainInput) (retrain.Plan, error)
	JudgeRetrain(context.Context, activities.JudgeRetrainInput) (retrain.Outcome, error)
	LogRetrain(context.Context, retrain.Event) error
}

var (
	_ retrainMethods = (*activities.Control)(nil)
	_ retrainMethods = (*fakeControl)(nil)
)

// PlanRetrain finds nothing new in the data "old".
func (c *fakeControl) PlanRetrain(_ context.Context, in activities.PlanRetrainInput) (retrain.Plan, error) {
	err := c.w.called("plan %s", in.RunID)
	if len(in.Retrain.Data) > 0 && in.Retrain.Data[0] == "old" {
		return retrain.Plan{RunID: in.RunID, Nothing: "nothing new"}, err
	}
	return retrain.Plan{RunID: in.RunID, NumProblems: 9, NumFiles: 2, From: "before@7", Config: "name: nightly\n"}, err
}

func (c *fakeControl) JudgeRetrain(_ context.Context, in activities.JudgeRetrainInput) (retrain.Outcome, error) {
	err := c.w.called("judge %s policy %d stopped %v", in.Plan.RunID, in.Policy.Version, in.Stopped)
	return retrain.Outcome{RunID: in.Plan.RunID, Outcome: retrain.Published, Reason: "better", Policy: in.Policy}, err
}

func (c *fakeControl) LogRetrain(_ context.Context, in retrain.Event) error {
	return c.LogEvent(context.Background(), run.Event{Kind: in.ID + "/" + in.Kind, Text: in.Text})
}

const retrainWorkflow = "retrain/nightly-2026-11-21T03:00:00Z"

func runRetrain(t *testing.T, w *world, data string, change func(*testsuite.TestWorkflowEnvironment)) (retrain.Outcome, error) {
	t.Helper()
	env := newEnv(t, w)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: retrainWorkflow, TaskQueue: workflows.QueueControl})
	if change != nil {
		change(env)
	}
	env.ExecuteWorkflow(workflows.Retrain, retrain.Input{ID: "nightly", Data: []string{data}})
	var out retrain.Outcome
	err := env.GetWorkflowError()
	if err == nil {
		err = env.GetWorkflowResult(&out)
	}
	return out, err
}

// TestRetrain plans, makes an ordinary run of a readable id and judges its last
// policy; infrastructure errors on the way change nothing.
func TestRetrain(t *testing.T) {
	const run = "nightly-2026-11-21T03-00-00Z"
	for name, faults := range map[string]map[string][]error{
		"undisturbed": {},
		"disturbed":   {"plan " + run: {infraError()}, "judge " + run + " policy 3 stopped false": {infraError(), infraError()}, "train 2": {infraError()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, 1)
			w.faults = faults
			out, err := runRetrain(t, w, "new", nil)
			if err != nil || out.RunID != run || out.Policy.Version != 3 {
				t.Fatalf("outcome %+v, error %v", out, err)
			}
			calls := w.log()
			if calls[0] != "plan "+run || w.count("finish") != 1 || calls[len(calls)-1] != "judge "+run+" policy 3 stopped false" {
				t.Errorf("calls %v", calls)
			}
			want := "nightly/start: run " + run + " begins: 9 problems of 2 files, from policy before@7"
			if len(w.events) == 0 || w.events[0] != want {
				t.Errorf("events %v, want first %q", w.events, want)
			}
		})
	}
}

func TestRetrainWithoutNewProblems(t *testing.T) {
	w := newWorld(1)
	out, err := runRetrain(t, w, "old", nil)
	if err != nil || out.Outcome != retrain.Nothing || out.Reason != "nothing new" {
		t.Errorf("outcome %+v, error %v", out, err)
	}
	if w.count("open") != 0 || w.count("judge") != 0 {
		t.Errorf("calls %v, want the plan alone", w.log())
	}
	if diff := cmp.Diff(w.events, []string{"nightly/nothing: nothing new"}); diff != "" {
		t.Errorf("events: got -, want +\n%s", diff)
	}
}

// TestRetrainWhoseRunFails fails with the run's reason, which pauses a schedule
// that asks for it, and publishes nothing.
func TestRetrainWhoseRunFails(t *testing.T) {
	w := newWorld(2)
	w.faults["train 2"] = []error{finalError(string(fault.Diverged), "loss is NaN")}
	_, err := runRetrain(t, w, "new", nil)
	if err == nil || !strings.Contains(err.Error(), "loss is NaN") || w.count("judge") != 0 {
		t.Errorf("error %v, calls %v", err, w.log())
	}
	if last := w.events[len(w.events)-1]; !strings.HasPrefix(last, "nightly/fail: run nightly-2026-11-21T03-00-00Z: loss is NaN") {
		t.Errorf("last event %q", last)
	}
}

// TestRetrainWhoseRunIsStopped tells the judgement so.
func TestRetrainWhoseRunIsStopped(t *testing.T) {
	w := newWorld(3)
	_, err := runRetrain(t, w, "new", func(env *testsuite.TestWorkflowEnvironment) {
		s := &scenario{t: t, w: w, env: env}
		s.when("TrainStep", 2, func() {
			if err := env.SignalWorkflowByID("rl/nightly-2026-11-21T03-00-00Z", workflows.CommandStop, nil); err != nil {
				t.Error(err)
			}
		})
	})
	if n := w.count("judge nightly-2026-11-21T03-00-00Z policy 2 stopped true"); err != nil || n != 1 {
		t.Errorf("error %v, calls %v", err, w.log())
	}
}

// TestRetrainCancelled ends its run first and judges nothing.
func TestRetrainCancelled(t *testing.T) {
	w := newWorld(3)
	_, err := runRetrain(t, w, "new", func(env *testsuite.TestWorkflowEnvironment) {
		s := &scenario{t: t, w: w, env: env}
		s.when("TrainStep", 2, env.CancelWorkflow)
	})
	if err == nil || !strings.Contains(err.Error(), "cancel") || w.count("train 3") != 0 || w.count("judge") != 0 {
		t.Errorf("error %v, calls %v", err, w.log())
	}
}
