package placement_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/placement"
	"temper/internal/placement/placementtest"
)

func (s *sim) ticks(n int) {
	for range n {
		s.look()
		s.tick()
		s.check()
	}
}

func (s *sim) phase(run string) placement.Phase {
	t, _ := s.floor.Find(run)
	return t.Phase
}

func (s *sim) why(run string) string {
	t, _ := s.floor.Find(run)
	return t.Why
}

// TestByPriorityThenTime: two runs of one priority take turns in the order in which they
// came, and a more urgent one goes before both.
func TestByPriorityThenTime(t *testing.T) {
	s := newSim(t, 2, placement.Policy{NoPreemption: true})
	s.submit("a", 3, 2, 10)
	s.ticks(1)
	s.submit("b", 3, 2, 10)
	s.ticks(1)
	s.submit("c", 3, 1, 10)
	s.submit("d", 1, 2, 10)
	s.ticks(1)
	if got := s.why("d"); !strings.Contains(got, "0 of 1 instances of the trainer have room (8 amd/gpu each, pool gpu)") {
		t.Errorf("d waits for %q", got)
	}
	if got := s.why("c"); got != "run d is before it" {
		t.Errorf("c waits for %q", got)
	}
	s.ticks(60)
	if diff := cmp.Diff([]string{"a", "d", "b", "c"}, s.order); diff != "" {
		t.Errorf("order of admissions (-want +got):\n%s", diff)
	}
}

// TestNoRunPassesOneThatWaits, though it would fit, unless the operator wants that.
func TestNoRunPassesOneThatWaits(t *testing.T) {
	for _, backfill := range []bool{false, true} {
		s := newSim(t, 2, placement.Policy{Backfill: backfill})
		s.submit("small", 3, 1, 20)
		s.ticks(1)
		s.submit("big", 3, 2, 10)
		s.submit("tiny", 3, 1, 5)
		s.ticks(2)
		want := placement.Waiting
		if backfill {
			want = placement.Holding
		}
		if got := s.phase("tiny"); got != want {
			t.Errorf("backfill %v: tiny is %s, want %s", backfill, got, want)
		}
	}
}

// TestTooBigHoldsUpNobody, and says why it waits.
func TestTooBigHoldsUpNobody(t *testing.T) {
	s := newSim(t, 2, placement.Policy{})
	s.submit("huge", 1, 3, 5)
	s.submit("small", 5, 1, 5)
	s.ticks(2)
	if got := s.phase("small"); got != placement.Holding {
		t.Errorf("small is %s", got)
	}
	if got := s.why("huge"); !strings.Contains(got, "too small for it now: 1 of 2 instances of the engine have room") {
		t.Errorf("huge waits for %q", got)
	}
}

// TestPreemption: the run that counts least saves and leaves, no more than are needed do,
// and it comes back before those that came later.
func TestPreemption(t *testing.T) {
	s := newSim(t, 4, placement.Policy{})
	for _, run := range []string{"a", "b", "c"} {
		s.submit(run, 3, 1, 200)
		s.ticks(1)
	}
	s.submit("idle", 5, 1, 200)
	s.ticks(3)
	s.submit("urgent", 1, 2, 20)
	s.ticks(1)
	if a, b, c, idle := s.phase("a"), s.phase("b"), s.phase("c"), s.phase("idle"); a != placement.Holding || b != placement.Holding || c != placement.Yielding || idle != placement.Yielding {
		t.Errorf("a %s, b %s, c %s, idle %s", a, b, c, idle)
	}
	if got := s.why("urgent"); !strings.Contains(got, "make") {
		t.Errorf("urgent waits for %q", got)
	}
	s.submit("later", 3, 1, 10)
	s.ticks(6)
	if got := s.phase("urgent"); got != placement.Holding {
		t.Errorf("urgent is %s: %v", got, s.floor.Tenants)
	}
	s.ticks(25)
	if c, idle := s.phase("c"), s.phase("idle"); c != placement.Holding || idle == placement.Holding && s.phase("later") == placement.Waiting {
		t.Errorf("c %s, idle %s, later %s", c, idle, s.phase("later"))
	}
	if s.wasted != 0 {
		t.Errorf("%d minutes of work were lost: all came to a safe point", s.wasted)
	}
	if s.jobs["a"].granted != 1 || s.jobs["c"].granted != 2 {
		t.Errorf("a was admitted %d times, c %d times", s.jobs["a"].granted, s.jobs["c"].granted)
	}
}

// TestNobodyLeavesInVain: runs keep their room where giving it up would not be enough.
func TestNobodyLeavesInVain(t *testing.T) {
	s := newSim(t, 3, placement.Policy{})
	s.submit("low", 5, 1, 100)
	s.submit("equal", 2, 2, 100)
	s.ticks(2)
	s.submit("urgent", 2, 2, 10)
	s.ticks(3)
	if got := s.phase("low"); got != placement.Holding {
		t.Errorf("low is %s, and urgent could not start with its room", got)
	}
}

// TestUrged: a run that does not come to a safe point is interrupted, and one that does
// not answer loses its room.
func TestUrged(t *testing.T) {
	s := newSim(t, 1, placement.Policy{YieldPatience: 10 * time.Minute})
	s.steps = 1000
	s.submit("slow", 3, 1, 2000)
	s.ticks(5)
	s.submit("urgent", 1, 1, 5)
	s.ticks(9)
	if got := s.phase("slow"); got != placement.Yielding {
		t.Errorf("slow is %s", got)
	}
	s.ticks(4)
	if got := s.phase("urgent"); got != placement.Holding {
		t.Errorf("urgent is %s: %v", got, s.floor.Tenants)
	}
	if s.wasted == 0 {
		t.Error("nothing was interrupted")
	}
	s = newSim(t, 1, placement.Policy{YieldPatience: 10 * time.Minute})
	s.submit("deaf", 3, 1, 2000)
	s.ticks(1)
	delete(s.jobs, "deaf")
	s.submit("urgent", 1, 1, 5)
	s.jobs["deaf"] = &job{done: true}
	s.ticks(25)
	if got := s.phase("urgent"); got == placement.Waiting {
		t.Errorf("urgent is %s: %v", got, s.floor.Tenants)
	}
}

// TestAgeBeatsAStream: a stream of urgent runs does not hold up the others for ever.
func TestAgeBeatsAStream(t *testing.T) {
	s := newSim(t, 1, placement.Policy{AgeEvery: time.Hour, Tenure: 20 * time.Minute})
	s.submit("patient", 5, 1, 10)
	patient := s.jobs["patient"]
	for i := range 60 {
		s.submit("urgent-"+string(rune('A'+i/26))+string(rune('a'+i%26)), 1, 1, 10)
		s.ticks(10)
		if patient.done {
			if waited := patient.waited; waited < 30*time.Minute {
				t.Errorf("it waited %s only", waited)
			}
			return
		}
	}
	t.Errorf("after 10 hours patient is %s: %s", s.phase("patient"), s.why("patient"))
}

// TestLoss: a lost instance is replaced by the scheduler, or the gang gives up its room and
// is admitted whole later.
func TestLoss(t *testing.T) {
	s := newSim(t, 3, placement.Policy{LossGrace: 2 * time.Minute})
	s.submit("a", 3, 2, 50)
	s.ticks(2)
	s.cluster.LoseNode("node-000")
	s.ticks(1)
	if got, epoch := s.phase("a"), s.jobs["a"].Epoch; got != placement.Holding || epoch != 1 {
		t.Errorf("with a node to spare a is %s, epoch %d", got, epoch)
	}
	s.cluster.LoseNode("node-001")
	s.ticks(1)
	if got := s.phase("a"); got != placement.Holding {
		t.Errorf("within the grace a is %s", got)
	}
	s.ticks(3)
	if got := s.phase("a"); got != placement.Waiting {
		t.Errorf("with one node left a is %s", got)
	}
	nodes, _ := s.cluster.Nodes(t.Context())
	if len(nodes[2].Instances) != 0 {
		t.Errorf("half a gang burns: %+v", nodes[2].Instances)
	}
	s.cluster.ReturnNode("node-000")
	s.ticks(3)
	if got, epoch := s.phase("a"), s.jobs["a"].Epoch; got != placement.Holding || epoch != 2 {
		t.Errorf("with two nodes a is %s, epoch %d", got, epoch)
	}
}

// TestDrain: the run on a node comes to a safe point, goes elsewhere, and only then is
// the node emptied.
func TestDrain(t *testing.T) {
	s := newSim(t, 3, placement.Policy{})
	s.submit("a", 3, 1, 100)
	s.submit("b", 3, 1, 100)
	s.ticks(2)
	s.floor.DrainNode(s.now, "node-000", "new kernel", "ann")
	s.ticks(1)
	states := func() (out []placement.NodeState) {
		nodes, err := s.cluster.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			out = append(out, n.State)
		}
		return out
	}
	if got, state := s.phase("a"), states()[0]; got != placement.Yielding || state != placement.NodeClosed {
		t.Errorf("a is %s, its node %s", got, state)
	}
	if got := s.why("a"); got != "node node-000 is emptied, drain: new kernel (by ann)" {
		t.Errorf("a leaves for %q", got)
	}
	s.ticks(8)
	if got, state, other := s.phase("a"), states()[0], s.phase("b"); got != placement.Holding || state != placement.NodeDraining || other != placement.Holding {
		t.Errorf("a is %s, its old node %s, b %s", got, state, other)
	}
	if s.wasted != 0 || s.jobs["b"].granted != 1 {
		t.Errorf("%d minutes lost, b admitted %d times", s.wasted, s.jobs["b"].granted)
	}
	s.floor.UndrainNode("node-000")
	s.ticks(1)
	if state := states()[0]; state != placement.NodeReady || len(s.floor.Drains) != 0 {
		t.Errorf("the node is %s, drains %v", state, s.floor.Drains)
	}
}

// TestGrownEnginesGoFirst: engines beyond a run's need make room before any run does.
func TestGrownEnginesGoFirst(t *testing.T) {
	s := newSim(t, 4, placement.Policy{})
	j := s.submit("a", 3, 2, 100)
	j.Need.Engine.Most = 3
	s.ticks(2)
	if err := s.cluster.Scale(context.Background(), placement.Scaling{Job: "engine-a", From: 1, To: 3, Reason: "trajectories wait"}); err != nil {
		t.Fatal(err)
	}
	s.submit("b", 3, 2, 10)
	s.ticks(2)
	if a, b := s.phase("a"), s.phase("b"); a != placement.Holding || b != placement.Holding {
		t.Errorf("a %s, b %s", a, b)
	}
	if state, err := s.cluster.Job(t.Context(), "engine-a"); err != nil || state.Count != 1 {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestAdmissionIsPlainData: it crosses into the next execution of a workflow as JSON.
func TestAdmissionIsPlainData(t *testing.T) {
	s := newSim(t, 3, placement.Policy{})
	s.submit("a", 3, 2, 50)
	s.submit("b", 1, 2, 50)
	s.floor.DrainNode(s.now, "node-001", "x", "y")
	s.ticks(3)
	data, err := json.Marshal(s.floor)
	if err != nil {
		t.Fatal(err)
	}
	var again placement.Admission
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.floor, again); diff != "" {
		t.Errorf("what is left of a floor (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(s.floor.Decide(s.now), again.Decide(s.now)); diff != "" {
		t.Errorf("decisions:\n%s", diff)
	}
}

// TestRepeatedRequests change nothing and are answered again.
func TestRepeatedRequests(t *testing.T) {
	s := newSim(t, 1, placement.Policy{})
	a := s.submit("a", 3, 1, 50)
	s.ticks(1)
	s.floor.Ask(s.now, a.Request)
	granted := slices.ContainsFunc(s.floor.Decide(s.now), func(d placement.Decision) bool { return d.Do == placement.Grant && d.Run == "a" && d.Epoch == 1 })
	if !granted || s.phase("a") != placement.Holding {
		t.Errorf("a is %s, told again: %v", s.phase("a"), granted)
	}
	s.floor.Release(s.now, "a", 0, false) // of an earlier admission
	s.floor.Release(s.now, "nobody", 1, false)
	if got := s.phase("a"); got != placement.Holding {
		t.Errorf("a is %s", got)
	}
}

// TestSlowStartIsTakenBack: a gang whose instances do not all run in time gives back what
// it has.
func TestSlowStartIsTakenBack(t *testing.T) {
	s := newSim(t, 2, placement.Policy{StartPatience: 3 * time.Minute})
	s.cluster.Flaw(placementtest.Flaws{SlowStart: true})
	s.submit("a", 3, 2, 50)
	s.ticks(2)
	if got := s.phase("a"); got != placement.Starting {
		t.Errorf("a is %s", got)
	}
	s.ticks(2)
	if nodes, _ := s.cluster.Nodes(t.Context()); s.phase("a") != placement.Waiting && s.phase("a") != placement.Starting || s.jobs["a"].holds {
		t.Errorf("a is %s on %+v", s.phase("a"), nodes)
	}
	s.cluster.Flaw(placementtest.Flaws{})
	s.cluster.RunMembers()
	s.ticks(5)
	if got := s.phase("a"); got != placement.Holding || s.jobs["a"].Epoch < 2 {
		t.Errorf("a is %s, epoch %d", got, s.jobs["a"].Epoch)
	}
}
