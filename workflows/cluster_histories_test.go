//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/placement/placementtest"
	"temper/internal/run"
	"temper/workflows"
)

// TestClusterHistories plays two runs that want the same two nodes, a drain under the second
// one, a node's loss and a scaling on a real server; see TestHistories.
func TestClusterHistories(t *testing.T) {
	c := dialServer(t)
	w := newWorld(3)
	w.plan.SFTSteps, w.plan.CheckpointEvery = 0, 100
	w.hold = 300 * time.Millisecond
	fake := placementtest.NewFake(placementtest.GPUNodes(3)...)
	fake.AddService("sandbox", 1, 1, 3)
	service := &placement.Service{Backend: fake, Runs: workflows.FindHolders(c)}
	service.Settings = placement.Settings{LookEvery: time.Second, Policy: placement.Policy{LossGrace: time.Second}}
	placed := run.Input{Placement: asks("", 0, 2).Placement}
	r := recorder{T: t, c: c, w: w}
	first, second := uniqueRun(t, "turn-a"), uniqueRun(t, "turn-b")
	serveQueue(t, c, workflows.QueueControl, false, &fakeControl{w}, &activities.Placement{Cluster: service, Announce: workflows.AnnounceCluster(c)})
	for _, id := range []string{first, second} {
		serveQueue(t, c, workflows.QueueTrainer+"-"+id, true, &fakeTrainer{w})
		serveQueue(t, c, workflows.QueueRollout+"-"+id, true, &fakeRollouts{w})
	}
	submit := func(id string) {
		placed.RunID = id
		input, err := json.Marshal(placed)
		if err != nil {
			t.Fatal(err)
		}
		start(r, c, workflows.RunWorkflowID(id), workflows.TypeRun, string(input))
	}
	submit(first)
	awaitCluster(r, first, placement.Holding)
	submit(second)
	awaitCluster(r, second, placement.Waiting)
	await(r, "end of "+first, closed(c, workflows.RunWorkflowID(first)))
	awaitCluster(r, second, placement.Holding)
	await(r, "the second run's first step", func() bool { return r.status(second).Step >= 1 })
	node := nodeOf(t, fake, placement.JobID(placement.RoleTrainer, second))
	if _, err := workflows.MoveNode(t.Context(), c, workflows.CommandDrain, workflows.NodeCommand{Node: node, Reason: "new kernel", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	await(r, "end of "+second, closed(c, workflows.RunWorkflowID(second)))
	if s := r.status(second); s.Step != 3 {
		t.Errorf("the second run ended at step %d, want 3", s.Step)
	}
	if got := nodeOf(t, fake, placement.JobID(placement.RoleTrainer, second)); got == node {
		t.Errorf("a trainer is still on %s", node)
	}
	if _, err := workflows.MoveNode(t.Context(), c, workflows.CommandUndrain, workflows.NodeCommand{Node: node}); err != nil {
		t.Fatal(err)
	}
	r.keep("placed-run", workflows.RunWorkflowID(second))
	r.keep("placed-stage", workflows.StageWorkflowID(second, 1, w.plan.Stages[0].Name))
	events := eventNames(r.keep("cluster", workflows.ClusterWorkflowID))
	for _, want := range []string{"MarkerRecorded ObserveCluster", "MarkerRecorded StartGang", "MarkerRecorded StopGang", "MarkerRecorded MoveNode"} {
		if !slices.Contains(events, want) {
			t.Errorf("the cluster's history has no %q", want)
		}
	}
	if err := c.TerminateWorkflow(context.WithoutCancel(t.Context()), workflows.ClusterWorkflowID, "", "the test is over"); err != nil {
		t.Error(err)
	}
}

// serveQueue serves activities on a queue until the test ends, and workflows where they are not left out.
func serveQueue(t *testing.T, c client.Client, queue string, activitiesOnly bool, services ...any) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{DisableWorkflowWorker: activitiesOnly, WorkerStopTimeout: time.Second, Interceptors: workflows.Interceptors()})
	if !activitiesOnly {
		workflows.Register(w)
	}
	for _, s := range services {
		w.RegisterActivity(s)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
}

// awaitCluster waits until the workflow of the cluster says that of a run.
func awaitCluster(r recorder, run string, phase placement.Phase) {
	r.Helper()
	await(r, "run "+run+" "+string(phase), func() bool {
		s, err := workflows.StatusOfCluster(r.Context(), r.c)
		if err != nil {
			return false // it has not been started yet
		}
		return slices.ContainsFunc(s.Runs, func(t placement.Tenant) bool { return t.Run == run && t.Phase == phase })
	})
}

// nodeOf is the node of a job's member on record; "" for none.
func nodeOf(t *testing.T, f *placementtest.Fake, job string) string {
	t.Helper()
	nodes, err := f.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		for _, m := range n.Instances {
			if m.Current() && strings.HasPrefix(m.Job, job) {
				return n.ID
			}
		}
	}
	return ""
}
