package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/placement/placementtest"
	"temper/internal/run"
	"temper/workflows"
)

// town is a cluster with its workflow and the runs on it, in virtual time: a step samples
// for 14 minutes and trains for 6.
type town struct {
	*testing.T
	w       *world
	env     *testsuite.TestWorkflowEnvironment
	cluster *placementtest.Fake
	service *placement.Service
	queues  map[string]map[string]bool // of activities, by run
	// hooks are called once, when a run begins to train a step.
	hooks   map[string]func()
	updates int
	errs    map[string]error
	results map[string]workflows.RunResult
	began   time.Time
	ends    map[string]time.Duration
}

// arrival is a run and when it comes.
type arrival struct {
	After time.Duration
	Input run.Input
}

func newTown(t *testing.T, nodes, steps int) *town {
	t.Helper()
	return newTownAt(t, nodes, steps, 14*time.Minute, 6*time.Minute)
}

// newTownAt is a town whose steps take other times.
func newTownAt(t *testing.T, nodes, steps int, sampling, training time.Duration) *town {
	t.Helper()
	w := newWorld(steps)
	w.plan.SFTSteps, w.plan.CheckpointEvery = 0, 100
	c := &town{
		T: t, w: w, cluster: placementtest.NewFake(placementtest.GPUNodes(nodes)...), queues: map[string]map[string]bool{},
		hooks: map[string]func(){}, errs: map[string]error{}, results: map[string]workflows.RunResult{}, ends: map[string]time.Duration{},
	}
	c.service = &placement.Service{Backend: c.cluster}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(silent{})
	c.env = suite.NewTestWorkflowEnvironment()
	c.env.SetWorkerOptions(patient())
	c.env.SetTestTimeout(5 * time.Minute)
	workflows.Register(c.env)
	c.env.RegisterWorkflow(c.live)
	c.env.RegisterActivity(&fakeControl{w})
	trainer, rollouts := &fakeTrainer{w}, &fakeRollouts{w}
	c.env.RegisterActivity(trainer)
	c.env.RegisterActivity(rollouts)
	c.env.RegisterActivity(&activities.Placement{Cluster: c.service, Announce: func(context.Context, string, any) error { return nil }})
	c.env.OnActivity(rollouts.SampleGroups, anything, anything).After(sampling).Return(rollouts.SampleGroups)
	c.env.OnActivity(trainer.TrainStep, anything, anything).After(training).Return(trainer.TrainStep)
	// The environment wants to be asked by its own thread.
	c.env.SetOnLocalActivityStartedListener(func(info *activity.Info, _ context.Context, args []any) {
		message := map[string]string{"AcquirePlacement": activities.MessageAsk, "ReleasePlacement": activities.MessageRelease}[info.ActivityType.Name]
		if message == "" {
			for _, arg := range args {
				switch arg.(type) {
				case placement.Request:
					message = activities.MessageAsk
				case activities.ReleasePlacementInput:
					message = activities.MessageRelease
				}
			}
		}
		if message != "" {
			if err := c.env.SignalWorkflowByID(workflows.ClusterWorkflowID, message, args[0]); err != nil {
				t.Errorf("%s: %v", message, err)
			}
		}
	})
	c.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		runID := strings.TrimPrefix(info.WorkflowExecution.ID, "rl/")
		runID, _, _ = strings.Cut(runID, "/")
		if c.queues[runID] == nil {
			c.queues[runID] = map[string]bool{}
		}
		c.queues[runID][info.TaskQueue] = true
		var in activities.TrainStepInput
		if info.ActivityType.Name == "TrainStep" && args.Get(&in) == nil {
			key := fmt.Sprintf("%s %d", runID, in.Step)
			if hook := c.hooks[key]; hook != nil {
				delete(c.hooks, key)
				hook()
			}
		}
	})
	return c
}

// live runs the cluster and the runs, and ends with the last of them.
func (c *town) live(ctx workflow.Context, arrivals []arrival) error {
	c.began = workflow.Now(ctx)
	clusterCtx, cancel := workflow.WithCancel(ctx)
	cluster := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(clusterCtx, workflow.ChildWorkflowOptions{WorkflowID: workflows.ClusterWorkflowID, WaitForCancellation: true}),
		workflows.Cluster, workflows.ClusterInput{})
	if err := cluster.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		return err
	}
	done := workflow.NewWaitGroup(ctx)
	for _, a := range arrivals {
		done.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer done.Done()
			if err := workflow.Sleep(ctx, a.After+time.Second); err != nil {
				c.errs[a.Input.RunID] = err
				return
			}
			var out workflows.RunResult
			child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: workflows.RunWorkflowID(a.Input.RunID)})
			err := workflow.ExecuteChildWorkflow(child, workflows.RLRun, a.Input).Get(ctx, &out)
			c.errs[a.Input.RunID], c.results[a.Input.RunID] = err, out
			c.ends[a.Input.RunID] = workflow.Now(ctx).Sub(c.began)
		})
	}
	done.Wait(ctx)
	if err := workflow.Sleep(ctx, 10*time.Minute); err != nil { // the cluster takes note
		return err
	}
	cancel()
	_ = cluster.Get(ctx, nil) // cancelled
	return nil
}

func (c *town) run(arrivals ...arrival) {
	c.Helper()
	c.env.ExecuteWorkflow(c.live, arrivals)
	if err := c.env.GetWorkflowError(); err != nil {
		c.Fatal(err)
	}
	for _, a := range arrivals {
		if err := c.errs[a.Input.RunID]; err != nil {
			c.Errorf("run %s: %v", a.Input.RunID, err)
		}
	}
	nodes, err := c.cluster.Nodes(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for _, n := range nodes {
		for _, m := range n.Instances {
			if m.State != placement.InstanceLost {
				c.Errorf("in the end node %s has %+v", n.ID, m)
			}
		}
	}
}

// asks is a run that asks for n whole nodes.
func asks(id string, priority, nodes int) run.Input {
	whole := map[string]int{"amd/gpu": 8}
	spec := &placement.Spec{Trainer: &placement.Group{Count: 1, Devices: whole}}
	if nodes > 1 {
		spec.Engine = &placement.Group{Count: nodes - 1, Devices: whole}
	}
	return run.Input{RunID: id, Priority: priority, Placement: spec}
}

func (c *town) status(id string) workflows.RunStatus {
	c.Helper()
	return decodeStatus(c.T)(c.env.QueryWorkflowByID(workflows.RunWorkflowID(id), workflows.QueryStatus))
}

func (c *town) clusterStatus() (s workflows.ClusterStatus) {
	c.Helper()
	v, err := c.env.QueryWorkflowByID(workflows.ClusterWorkflowID, workflows.QueryStatus)
	if err == nil {
		err = v.Get(&s)
	}
	if err != nil {
		c.Error(err)
	}
	return s
}

func (c *town) update(workflowID, name string, arg any) *answer {
	c.updates++
	a := &answer{}
	err := c.env.UpdateWorkflowByID(workflowID, name, fmt.Sprint(c.updates), &testsuite.TestUpdateCallback{
		OnAccept: func() {}, OnReject: func(err error) { a.refused = err },
		OnComplete: func(v any, err error) { a.text, a.failed = v, err },
	}, arg)
	if err != nil {
		c.Errorf("update %s: %v", name, err)
	}
	return a
}

func (c *town) after(d time.Duration, f func()) { c.env.RegisterDelayedCallback(f, d) }

// trained are the steps that a run trained, in their order.
func (c *town) trained(id string) (steps []int) {
	for _, in := range c.w.trains {
		if in.Run.RunID == id {
			steps = append(steps, in.Step)
		}
	}
	return steps
}

// TestPlacedRun: a run that asks for placement works on queues of its own, and leaves
// nothing behind.
func TestPlacedRun(t *testing.T) {
	c := newTown(t, 2, 2)
	c.w.plan.SFTSteps = 30
	c.w.plan.Stages[0].Filter = true
	c.hooks["a 1"] = func() {
		if s := c.status("a"); s.Room != "has its room, admission 1" || s.State != workflows.StateTraining {
			t.Errorf("status %s, room %q", s.State, s.Room)
		}
	}
	c.run(arrival{Input: asks("a", 0, 2)})
	want := map[string]bool{"temper": true, "temper-trainer-a": true, "temper-rollout-a": true}
	if diff := cmp.Diff(want, c.queues["a"]); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// TestRunsWithoutPlacementShareQueues beside those that have their own.
func TestRunsWithoutPlacementShareQueues(t *testing.T) {
	c := newTown(t, 1, 1)
	c.run(arrival{Input: asks("a", 0, 1)}, arrival{Input: run.Input{RunID: "b"}})
	want := map[string]bool{"temper": true, "temper-trainer": true, "temper-rollout": true}
	if diff := cmp.Diff(want, c.queues["b"]); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// TestTakingTurns: two runs need all nodes; the second says what it waits for, and goes
// on when the first has ended.
func TestTakingTurns(t *testing.T) {
	c := newTown(t, 2, 3)
	c.hooks["a 2"] = func() {
		s := c.status("b")
		if s.State != workflows.StateQueued || !strings.Contains(s.Room, "waits for room: 0 of 1 instances of the trainer have room") {
			t.Errorf("b is %s: %q", s.State, s.Room)
		}
		runs := c.clusterStatus().Runs
		if len(runs) != 2 || runs[0].Phase != placement.Holding || runs[1].Phase != placement.Waiting {
			t.Errorf("runs %v", runs)
		}
	}
	c.run(arrival{Input: asks("a", 0, 2)}, arrival{After: time.Minute, Input: asks("b", 0, 2)})
	if a, b := c.ends["a"], c.ends["b"]; a > 65*time.Minute || b < a+60*time.Minute || b > a+62*time.Minute {
		t.Errorf("a ended after %s, b after %s", a, b)
	}
}

// TestUrgentRunGetsTheRoom: the other one ends its step, saves, leaves, and goes on with
// the next step when the urgent one has ended. No step is made twice.
func TestUrgentRunGetsTheRoom(t *testing.T) {
	c := newTown(t, 2, 4)
	c.hooks["urgent 1"] = func() {
		s := c.status("low")
		if s.State != workflows.StateQueued || s.Checkpoint == nil || *s.Checkpoint != 2 || s.Reason != "run urgent (priority 1) needs the room" || s.By != "the cluster" {
			t.Errorf("low is %s for %q by %s, checkpoint %v", s.State, s.Reason, s.By, s.Checkpoint)
		}
	}
	c.run(arrival{Input: asks("low", 5, 2)}, arrival{After: 25 * time.Minute, Input: asks("urgent", 1, 1)})
	if got := c.trained("low"); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("low trained %v", got)
	}
	if c.w.count("save 2") != 1 {
		t.Errorf("calls %v, want a checkpoint after step 2", c.w.log())
	}
	if low, urgent := c.ends["low"], c.ends["urgent"]; urgent > 125*time.Minute || low < urgent+35*time.Minute {
		t.Errorf("urgent ended after %s, low after %s", urgent, low)
	}
	if !slices.Contains(c.w.events, "yield: the room on the cluster was given back: run urgent (priority 1) needs the room") {
		t.Errorf("events %q", c.w.events)
	}
}

// TestLostNode: with a node to spare the scheduler replaces the member, and the run does
// not notice. Without one the run gives up its room, and goes on when the node is back;
// the step in flight is made again.
func TestLostNode(t *testing.T) {
	for name, spare := range map[string]int{"to spare": 1, "none to spare": 0} {
		t.Run(name, func(t *testing.T) {
			c := newTown(t, 1+spare, 3)
			c.after(30*time.Minute, func() { c.cluster.LoseNode("node-000") })
			c.after(3*time.Hour, func() {
				if s := c.status("a"); spare == 0 && (s.State != workflows.StateQueued || !strings.Contains(s.Reason, "instances are lost")) {
					t.Errorf("a is %s for %q", s.State, s.Reason)
				}
				c.cluster.ReturnNode("node-000")
			})
			c.run(arrival{Input: asks("a", 0, 1)})
			if end := c.ends["a"]; spare == 1 && end > 62*time.Minute || spare == 0 && (end < 3*time.Hour || end > 4*time.Hour) {
				t.Errorf("a ended after %s", end)
			}
			if got := c.results["a"].Policy.Version; got != 3 {
				t.Errorf("policy %d, want 3", got)
			}
		})
	}
}

// TestDrainOfANode in mid-step saves first, and the run goes on elsewhere.
func TestDrainOfANode(t *testing.T) {
	c := newTown(t, 2, 3)
	var drain, wrong *answer
	c.after(30*time.Minute, func() {
		drain = c.update(workflows.ClusterWorkflowID, workflows.CommandDrain, workflows.NodeCommand{Node: "node-000", Reason: "new kernel", By: "ann"})
		wrong = c.update(workflows.ClusterWorkflowID, workflows.CommandDrain, workflows.NodeCommand{Node: "node-999"})
	})
	c.after(2*time.Hour, func() {
		c.update(workflows.ClusterWorkflowID, workflows.CommandUndrain, workflows.NodeCommand{Node: "node-000"})
	})
	c.hooks["a 3"] = func() {
		nodes, err := c.cluster.Nodes(t.Context())
		if err != nil || nodes[0].State != placement.NodeDraining || len(nodes[1].Instances) != 1 {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
	}
	c.run(arrival{Input: asks("a", 0, 1)}, arrival{After: 150 * time.Minute, Input: asks("b", 0, 2)})
	if got := fmt.Sprint(drain.text); got != "node node-000 is closed; when a have come to a safe point, saved and left, it is emptied" {
		t.Errorf("answer %q, %v", got, drain.failed)
	}
	if wrong.refused == nil || wrong.refused.Error() != "no node node-999: the cluster has node-000, node-001" {
		t.Errorf("refusal %v", wrong.refused)
	}
	if got := c.trained("a"); !slices.Equal(got, []int{1, 2, 3}) || c.w.count("save 2") != 1 {
		t.Errorf("a trained %v, calls %v", got, c.w.log())
	}
	if end := c.ends["a"]; end > 63*time.Minute {
		t.Errorf("a ended after %s", end)
	}
}

// TestParkedRun: a run that stays paused gives its room to whoever waits, and asks for it
// again when it is resumed.
func TestParkedRun(t *testing.T) {
	c := newTown(t, 1, 3)
	c.after(30*time.Minute, func() {
		c.update(workflows.RunWorkflowID("a"), workflows.CommandPause, workflows.Command{Reason: "look"})
	})
	c.after(5*time.Hour, func() {
		if s := c.status("a"); s.State != workflows.StatePaused || s.Reason != "look" || !strings.Contains(s.Room, "given back") {
			t.Errorf("a is %s for %q, room %q", s.State, s.Reason, s.Room)
		}
		c.update(workflows.RunWorkflowID("a"), workflows.CommandResume, workflows.Command{})
	})
	c.run(arrival{Input: asks("a", 0, 1)}, arrival{After: 40 * time.Minute, Input: asks("b", 0, 1)})
	if a, b := c.ends["a"], c.ends["b"]; b > 3*time.Hour || a < 5*time.Hour || a > 6*time.Hour {
		t.Errorf("a ended after %s, b after %s", a, b)
	}
	if got := c.trained("a"); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("a trained %v", got)
	}
}

// TestStopWhileItWaits ends a run that has no room.
func TestStopWhileItWaits(t *testing.T) {
	c := newTown(t, 1, 3)
	c.after(10*time.Minute, func() {
		c.update(workflows.RunWorkflowID("b"), workflows.CommandStop, workflows.Command{Reason: "wrong data"})
	})
	c.run(arrival{Input: asks("a", 0, 1)}, arrival{After: time.Minute, Input: asks("b", 0, 1)})
	if got := c.results["b"]; !got.Stopped || c.ends["b"] > 12*time.Minute || len(c.trained("b")) > 0 {
		t.Errorf("b: %+v after %s", got, c.ends["b"])
	}
}

// TestClusterAway: what cannot be seen decides nothing, and a run waits until it can.
func TestClusterAway(t *testing.T) {
	c := newTown(t, 1, 1)
	c.cluster.Flaw(placementtest.Flaws{Away: true})
	c.after(20*time.Minute, func() {
		if s := c.clusterStatus(); !strings.Contains(s.Trouble, "the scheduler does not answer") {
			t.Errorf("trouble %q", s.Trouble)
		}
		c.cluster.Flaw(placementtest.Flaws{})
	})
	c.run(arrival{Input: asks("a", 0, 1)})
	if end := c.ends["a"]; end < 40*time.Minute || end > 45*time.Minute {
		t.Errorf("a ended after %s", end)
	}
}

// TestClusterScales a group by its load, with reasons and figures.
func TestClusterScales(t *testing.T) {
	c := newTown(t, 1, 9)
	c.cluster.AddService("sandbox", 1, 1, 6)
	c.service.Settings.Rules = []placement.Rule{{Job: "sandbox", Kind: placement.BySlots, Least: 1, Most: 6}}
	c.service.Loads = func(ctx context.Context) []placement.Load {
		state, err := c.cluster.Job(ctx, "sandbox")
		if err != nil {
			return []placement.Load{{Job: "sandbox", Unknown: err.Error()}}
		}
		busy := 3
		if at := c.env.Now().Sub(c.began); at > 30*time.Minute && at < time.Hour {
			busy = 32
		}
		return []placement.Load{{Job: "sandbox", Count: state.Count, Answering: state.Count, Slots: 8 * state.Count, Busy: min(busy, 8*state.Count), Waiting: max(0, busy-8*state.Count)}}
	}
	c.after(50*time.Minute, func() {
		if s := c.clusterStatus().Scaled; len(s) != 1 || s[0].To != 6 || s[0].Figures["busy"] != 8 || s[0].Reason == "" {
			t.Errorf("scalings %+v", s)
		}
	})
	c.run(arrival{Input: asks("a", 0, 1)})
	var counts []int
	for _, s := range c.cluster.Scalings() {
		counts = append(counts, s.To)
	}
	if diff := cmp.Diff([]int{6, 5, 4, 3, 2, 1}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// TestClusterContinuesAsNew with all that it knows but the nodes, which it sees anew.
func TestClusterContinuesAsNew(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(silent{})
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(patient())
	workflows.Register(env)
	f := placementtest.NewFake(placementtest.GPUNodes(1)...)
	env.RegisterActivity(&activities.Placement{Cluster: &placement.Service{Backend: f}})
	env.OnSignalExternalWorkflow(anything, anything, anything, anything, anything).Return(nil)
	ask := func(id string) {
		in := asks(id, 2, 1)
		env.SignalWorkflow(activities.MessageAsk, placement.Request{Run: id, Holder: "rl/" + id, Need: *in.Placement, Priority: 2})
	}
	env.RegisterDelayedCallback(func() { ask("a"); ask("b") }, time.Minute)
	env.RegisterDelayedCallback(func() { env.SignalWorkflow(activities.MessageAsk, map[string]any{"run": "../etc"}) }, time.Minute)
	env.RegisterDelayedCallback(func() { env.SetCurrentHistoryLength(5000) }, 10*time.Minute)
	env.ExecuteWorkflow(workflows.Cluster, workflows.ClusterInput{})
	var next *workflow.ContinueAsNewError
	if err := env.GetWorkflowError(); !errors.As(err, &next) {
		t.Fatalf("error %v", err)
	}
	var in workflows.ClusterInput
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
		t.Fatal(err)
	}
	if len(in.Floor.Tenants) != 2 || in.Floor.Tenants[0].Phase != placement.Holding || in.Floor.Tenants[1].Phase != placement.Waiting || !in.Began || in.Floor.Nodes != nil {
		t.Errorf("handed on: %+v", in)
	}
}
