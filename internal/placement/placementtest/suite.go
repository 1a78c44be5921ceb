package placementtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"temper/internal/placement"
)

// Subject is a cluster under the suite.
type Subject struct {
	Backend placement.Backend
	// Each is room of which exactly one instance fits on each node of Pool.
	Each placement.Resources
	Pool string
	// NumNodes is the number of nodes, 2 or more.
	NumNodes int
	// Scaled is a service with a count of 1 and bounds of 1 to 3; "" where the cluster has none.
	Scaled string
	// Patience bounds each wait; 0 is a minute.
	Patience time.Duration
}

// Run proves that clusters keep the promises of the port. Each call of open gives an
// empty cluster, or one where the runs of earlier calls have been stopped.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, Subject){
		"a job starts whole, is counted, and ends":   startAndStop,
		"a repeated Start finds its own job":         startTwice,
		"a job that does not fit is not registered":  noRoom,
		"another epoch is refused while a job lives": otherEpoch,
		"Stop leaves a later epoch alone":            lateStop,
		"Stop and Job of what is not there":          absent,
		"a closed node takes nobody":                 closedNode,
		"a drained node loses its instances":         drainedNode,
		"an instance knows that it was replaced":     replacedMember,
		"Scale keeps the bounds and the count":       scale,
		"Watch tells of a change":                    watch,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if s.Patience == 0 {
				s.Patience = time.Minute
			}
			test(t, s)
		})
	}
}

// Job is a job of a run for the subject's nodes.
func (s Subject) Job(runID string, epoch, instances int) placement.Job {
	return placement.Job{
		ID: placement.JobID(placement.RoleTrainer, runID), Run: runID, Role: placement.RoleTrainer, Epoch: epoch, Instances: instances,
		Each: s.Each, Pool: s.Pool, Queues: placement.QueuesOf(runID), Priority: 3,
	}
}

func (s Subject) start(t *testing.T, job placement.Job) uint64 {
	t.Helper()
	index, err := s.Backend.Start(t.Context(), job, 0)
	if err != nil {
		t.Fatalf("start %s: %v", job.ID, err)
	}
	t.Cleanup(func() { // the next subject finds the room free
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), s.Patience)
		defer cancel()
		if err := s.Backend.Stop(ctx, job.ID, 1<<30); err != nil {
			t.Error(err)
		}
	})
	return index
}

// await waits until done, which fails the test where it cannot tell.
func (s Subject) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(s.Patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", s.Patience, what)
		}
	}
}

func (s Subject) job(t *testing.T, id string) placement.JobState {
	t.Helper()
	state, err := s.Backend.Job(t.Context(), id)
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	return state
}

func (s Subject) nodes(t *testing.T) []placement.Node {
	t.Helper()
	nodes, err := s.Backend.Nodes(t.Context())
	if err != nil {
		t.Fatalf("nodes: %v", err)
	}
	return nodes
}

// free counts the nodes on which one more instance would fit.
func (s Subject) free(t *testing.T) int {
	t.Helper()
	n := 0
	for _, node := range s.nodes(t) {
		if node.State == placement.NodeReady && (s.Pool == "" || node.Pool == s.Pool) && node.Free.Holds(s.Each) {
			n++
		}
	}
	return n
}

func (s Subject) awaitRunning(t *testing.T, job placement.Job) placement.JobState {
	t.Helper()
	var state placement.JobState
	s.await(t, fmt.Sprintf("%d instances of %s run", job.Instances, job.ID), func() bool {
		state = s.job(t, job.ID)
		return state.Running() == job.Instances
	})
	return state
}

func startAndStop(t *testing.T, s Subject) {
	job := s.Job("whole", 1, 2)
	s.await(t, "all nodes are free", func() bool { return s.free(t) == s.NumNodes })
	index := s.start(t, job)
	state := s.awaitRunning(t, job)
	if state.Index < index || state.Epoch != 1 || state.Count != 2 || state.Stopped {
		t.Errorf("state %+v after Start gave index %d", state, index)
	}
	on := map[string]bool{}
	for _, m := range state.Instances {
		on[m.Node] = true
		if m.Job != job.ID || m.Epoch != 1 || !m.Current() {
			t.Errorf("instance %+v", m)
		}
	}
	if len(on) != 2 {
		t.Errorf("instances on nodes %v, want 2 nodes", on)
	}
	if got := s.free(t); got != s.NumNodes-2 {
		t.Errorf("%d nodes are free, want %d", got, s.NumNodes-2)
	}
	seen := 0
	for _, node := range s.nodes(t) {
		for _, m := range node.Instances {
			if m.Job == job.ID && m.Node == node.ID && m.Each.Holds(s.Each) {
				seen++
			}
		}
	}
	if seen != 2 {
		t.Errorf("nodes list %d instances of the job, want 2 with their room", seen)
	}
	if err := s.Backend.Stop(t.Context(), job.ID, 1); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the room is free again", func() bool { return s.free(t) == s.NumNodes })
	if state, err := s.Backend.Job(t.Context(), job.ID); err == nil && (!state.Stopped || state.Running() != 0) {
		t.Errorf("stopped job %+v", state)
	}
	// The next admission takes the same id.
	again := s.Job("whole", 2, 1)
	s.start(t, again)
	if state := s.awaitRunning(t, again); state.Epoch != 2 {
		t.Errorf("epoch %d, want 2", state.Epoch)
	}
}

func startTwice(t *testing.T, s Subject) {
	job := s.Job("twice", 1, 1)
	first := s.start(t, job)
	before := s.awaitRunning(t, job)
	if again, err := s.Backend.Start(t.Context(), job, 0); err != nil || again < first {
		t.Fatalf("second Start: index %d, %v; the first gave %d", again, err, first)
	}
	after := s.awaitRunning(t, job)
	if len(before.Instances) != 1 || len(after.Instances) != 1 || before.Instances[0].ID != after.Instances[0].ID {
		t.Errorf("instances %+v, then %+v", before.Instances, after.Instances)
	}
}

func noRoom(t *testing.T, s Subject) {
	job := s.Job("toobig", 1, s.NumNodes+1)
	_, err := s.Backend.Start(t.Context(), job, 0)
	var full *placement.NoCapacityError
	if !errors.As(err, &full) || len(full.Why) == 0 || full.Why[0] == "" {
		t.Errorf("error %v, want one that says why there is no room", err)
	}
	if state, err := s.Backend.Job(t.Context(), job.ID); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("the job is there: %+v, %v", state, err)
	}
}

func otherEpoch(t *testing.T, s Subject) {
	s.start(t, s.Job("epochs", 2, 1))
	for _, epoch := range []int{1, 3} {
		_, err := s.Backend.Start(t.Context(), s.Job("epochs", epoch, 1), 0)
		var conflict *placement.ConflictError
		if !errors.As(err, &conflict) || conflict.Epoch != 2 {
			t.Errorf("epoch %d beside epoch 2: %v", epoch, err)
		}
	}
}

func lateStop(t *testing.T, s Subject) {
	job := s.Job("late", 5, 1)
	s.start(t, job)
	s.awaitRunning(t, job)
	if err := s.Backend.Stop(t.Context(), job.ID, 4); err != nil {
		t.Fatal(err)
	}
	if state := s.job(t, job.ID); state.Stopped || state.Running() != 1 {
		t.Errorf("a stop of epoch 4 has hit epoch 5: %+v", state)
	}
}

func absent(t *testing.T, s Subject) {
	ctx := t.Context()
	if err := s.Backend.Stop(ctx, "trainer-nobody", 1); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := s.Backend.Job(ctx, "trainer-nobody"); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("job: %v", err)
	}
	const unknown = "00000000-0000-0000-0000-000000000000"
	if _, err := s.Backend.Instance(ctx, unknown); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("instance: %v", err)
	}
	if err := s.Backend.SetEligible(ctx, unknown, false, "test"); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("eligible: %v", err)
	}
	if err := s.Backend.Drain(ctx, unknown, time.Second); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("drain: %v", err)
	}
}

// readyNode is some node that an instance would fit on, which is open again afterwards.
func (s Subject) readyNode(t *testing.T) placement.Node {
	t.Helper()
	nodes := s.nodes(t)
	i := slices.IndexFunc(nodes, func(n placement.Node) bool {
		return n.State == placement.NodeReady && (s.Pool == "" || n.Pool == s.Pool) && n.Has.Holds(s.Each)
	})
	if i < 0 {
		t.Fatalf("no node is ready: %+v", nodes)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), s.Patience)
		defer cancel()
		if err := s.Backend.SetEligible(ctx, nodes[i].ID, true, "test"); err != nil {
			t.Error(err)
		}
	})
	return nodes[i]
}

func (s Subject) stateOf(t *testing.T, id string) placement.NodeState {
	t.Helper()
	for _, n := range s.nodes(t) {
		if n.ID == id {
			return n.State
		}
	}
	return ""
}

func closedNode(t *testing.T, s Subject) {
	s.await(t, "all nodes are free", func() bool { return s.free(t) == s.NumNodes })
	node := s.readyNode(t)
	if err := s.Backend.SetEligible(t.Context(), node.ID, false, "test"); err != nil {
		t.Fatal(err)
	}
	if got := s.stateOf(t, node.ID); got != placement.NodeClosed {
		t.Errorf("the node is %s, want closed", got)
	}
	var full *placement.NoCapacityError
	if _, err := s.Backend.Start(t.Context(), s.Job("closed", 1, s.NumNodes), 0); !errors.As(err, &full) {
		t.Errorf("start on all nodes, of which one is closed: %v", err)
	}
	if err := s.Backend.SetEligible(t.Context(), node.ID, true, "test"); err != nil {
		t.Fatal(err)
	}
	job := s.Job("closed", 1, s.NumNodes)
	s.start(t, job)
	s.awaitRunning(t, job)
}

func drainedNode(t *testing.T, s Subject) {
	s.await(t, "all nodes are free", func() bool { return s.free(t) == s.NumNodes })
	job := s.Job("drained", 1, s.NumNodes)
	s.start(t, job)
	s.awaitRunning(t, job)
	node := s.readyNode(t)
	if err := s.Backend.Drain(t.Context(), node.ID, s.Patience); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the node has lost its instance", func() bool {
		for _, m := range s.job(t, job.ID).Instances {
			if m.Node == node.ID && m.Current() {
				return false
			}
		}
		return true
	})
	if got := s.stateOf(t, node.ID); got != placement.NodeDraining && got != placement.NodeClosed {
		t.Errorf("the node is %s", got)
	}
}

func replacedMember(t *testing.T, s Subject) {
	s.await(t, "all nodes are free", func() bool { return s.free(t) == s.NumNodes })
	job := s.Job("moved", 1, 1)
	s.start(t, job)
	old := s.awaitRunning(t, job).Instances[0]
	if m, err := s.Backend.Instance(t.Context(), old.ID); err != nil || !m.Current() || m.Node != old.Node {
		t.Fatalf("instance %+v, %v", m, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), s.Patience)
		defer cancel()
		if err := s.Backend.SetEligible(ctx, old.Node, true, "test"); err != nil {
			t.Error(err)
		}
	})
	if err := s.Backend.Drain(t.Context(), old.Node, s.Patience); err != nil {
		t.Fatal(err)
	}
	s.await(t, "another instance runs elsewhere", func() bool {
		for _, m := range s.job(t, job.ID).Instances {
			if m.ID != old.ID && m.Current() && m.State == placement.InstanceRunning && m.Node != old.Node {
				return true
			}
		}
		return false
	})
	if m, err := s.Backend.Instance(t.Context(), old.ID); err != nil || m.Current() {
		t.Errorf("the instance that was replaced is %+v, %v", m, err)
	}
}

func scale(t *testing.T, s Subject) {
	if s.Scaled == "" {
		t.Skip("the cluster has no service to scale")
	}
	to := func(from, to int) error {
		return s.Backend.Scale(t.Context(), placement.Scaling{Job: s.Scaled, Group: s.Scaled, From: from, To: to, Reason: "test", Figures: map[string]float64{"load": 0.9}})
	}
	if err := to(1, 3); err != nil {
		t.Fatal(err)
	}
	if state := s.job(t, s.Scaled); state.Count != 3 || state.Least != 1 || state.Most != 3 {
		t.Errorf("state %+v, want 3 of 1 to 3", state)
	}
	var conflict *placement.ConflictError
	if err := to(1, 2); !errors.As(err, &conflict) {
		t.Errorf("scale from a count that is another: %v", err)
	}
	if err := to(3, 99); !errors.Is(err, placement.ErrOutOfBounds) {
		t.Errorf("scale beyond the bounds: %v", err)
	}
	if err := to(-1, 1); err != nil {
		t.Error(err)
	}
	if err := s.Backend.Scale(t.Context(), placement.Scaling{Job: "nobody", Group: "nobody", To: 1}); !errors.Is(err, placement.ErrNotExist) {
		t.Errorf("scale of nobody: %v", err)
	}
}

func watch(t *testing.T, s Subject) {
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	defer cancel()
	index, err := s.Backend.Watch(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		index uint64
		err   error
	}
	woken := make(chan answer, 1)
	go func() {
		next, err := s.Backend.Watch(ctx, index)
		woken <- answer{next, err}
	}()
	job := s.Job("watched", 1, 1)
	s.start(t, job)
	if got := <-woken; got.err != nil || got.index <= index {
		t.Errorf("watch from %d: %d, %v", index, got.index, got.err)
	}
	brief, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Backend.Watch(brief, 1<<60); err == nil {
		t.Error("a watch outlives its context")
	}
}
