package placement_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"temper/internal/placement"
	"temper/internal/placement/placementtest"
)

var began = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// job is a run in the simulation: it works while it holds room, and comes to a safe
// point at the end of each step.
type job struct {
	placement.Request
	work, step int // ticks left, and ticks to the next safe point
	holds      bool
	yield      *placement.Decision
	done       bool
	waited     time.Duration
	granted    int
}

// sim carries decisions out on a cluster in memory.
type sim struct {
	testing.TB
	floor   placement.Admission
	cluster *placementtest.Fake
	now     time.Time
	jobs    map[string]*job
	order   []string // of admissions
	wasted  int      // ticks of work that were lost
	steps   int      // ticks of a step
}

func newSim(t testing.TB, nodes int, policy placement.Policy) *sim {
	return &sim{TB: t, cluster: placementtest.NewFake(placementtest.GPUNodes(nodes)...), now: began, jobs: map[string]*job{}, floor: placement.Admission{Policy: policy}, steps: 5}
}

// need is a gang of engines and a trainer of 8 devices each.
func need(nodes int) placement.Spec {
	whole := map[string]int{"amd/gpu": 8}
	s := placement.Spec{Trainer: &placement.Group{Count: 1, Devices: whole, Pool: "gpu"}}
	if nodes > 1 {
		s.Engine = &placement.Group{Count: nodes - 1, Devices: whole, Pool: "gpu"}
	}
	return s
}

func (s *sim) submit(run string, priority, nodes, work int) *job {
	j := &job{Request: placement.Request{Run: run, Holder: "rl/" + run, Need: need(nodes), Priority: priority}, work: work}
	s.jobs[run] = j
	s.floor.Ask(s.now, j.Request)
	return j
}

// look shows the floor the cluster, if it can be seen.
func (s *sim) look() {
	nodes, err := s.cluster.Nodes(context.Background())
	if err == nil {
		s.floor.Look(s.now, nodes)
	}
}

// settle decides and acts until nothing is left to be done now.
func (s *sim) settle() {
	for range 100 {
		if s.floor.NeedsLook() || len(s.floor.Nodes) == 0 {
			s.look()
		}
		decisions := s.floor.Decide(s.now)
		acted := false
		for _, d := range decisions {
			acted = s.act(d) || acted
		}
		if !acted {
			return
		}
	}
	s.Fatalf("decisions without end: %+v", s.floor.Decide(s.now))
}

// act carries out a decision and reports whether that changed anything.
func (s *sim) act(d placement.Decision) bool {
	ctx := context.Background()
	switch d.Do {
	case placement.Start:
		return s.start(ctx, d)
	case placement.Stop:
		if err := s.stop(ctx, d); err != nil {
			return false
		}
		s.floor.Stopped(d.Run, d.Epoch)
	case placement.Shrink:
		state, err := s.cluster.Job(ctx, d.Jobs[0].ID)
		if err != nil || s.cluster.Scale(ctx, placement.Scaling{Job: d.Jobs[0].ID, From: state.Count, To: d.Jobs[0].Instances, Reason: d.Why}) != nil {
			return false
		}
		s.floor.Shrunk()
	case placement.CloseNode, placement.OpenNode, placement.EmptyNode:
		var err error
		if d.Do == placement.EmptyNode {
			err = s.cluster.Drain(ctx, d.Node, time.Minute)
		} else {
			err = s.cluster.SetEligible(ctx, d.Node, d.Do == placement.OpenNode, d.Why)
		}
		if errors.Is(err, placement.ErrUnavailable) {
			return false
		}
		s.floor.Moved(d)
	case placement.Grant:
		j := s.jobs[d.Run]
		j.holds, j.yield, j.Epoch = true, nil, d.Epoch
		j.granted++
		j.step = s.steps
	case placement.Yield:
		j := s.jobs[d.Run]
		if j.yield = &d; !j.holds && !j.done { // it has nothing to save
			j.Epoch = d.Epoch
			s.giveWay(j)
		}
	case placement.Ask:
		if j := s.jobs[d.Run]; j != nil && !j.done {
			again := j.Request
			again.Holds = j.holds
			s.floor.Ask(s.now, again)
		} else {
			s.floor.Ended(s.now, d.Run, d.Epoch)
		}
	case placement.Tell:
		if d.Why == "" {
			s.Errorf("run %s is told nothing", d.Run)
		}
	}
	return true
}

func (s *sim) start(ctx context.Context, d placement.Decision) bool {
	s.order = append(s.order, d.Run)
	for _, j := range d.Jobs {
		_, err := s.cluster.Start(ctx, j, 0)
		if errors.Is(err, placement.ErrUnavailable) {
			_, err = s.cluster.Start(ctx, j, 0) // the activity is repeated
		}
		if err != nil {
			if s.stop(ctx, d) != nil {
				s.Fatal("no way to undo a start")
			}
			s.floor.Started(s.now, d.Run, d.Epoch, err.Error())
			return true
		}
	}
	s.floor.Started(s.now, d.Run, d.Epoch, "")
	return true
}

func (s *sim) stop(ctx context.Context, d placement.Decision) error {
	for _, role := range []placement.Role{placement.RoleTrainer, placement.RoleRollout, placement.RoleEngine} {
		if err := s.cluster.Stop(ctx, placement.JobID(role, d.Run), d.Epoch); err != nil {
			return err
		}
	}
	return nil
}

// tick lets a minute pass: runs work, come to safe points, and end.
func (s *sim) tick() {
	s.now = s.now.Add(time.Minute)
	for _, run := range s.runs() {
		j := s.jobs[run]
		switch {
		case j.done:
		case !j.holds:
			j.waited += time.Minute
		case j.yield != nil && (j.yield.Now || j.step == s.steps):
			if j.yield.Now {
				s.wasted += s.steps - j.step
				j.work += s.steps - j.step
			}
			s.giveWay(j)
		case s.whole(j):
			j.step--
			if j.work--; j.work <= 0 {
				j.done = true
				j.holds = false
				s.floor.Release(s.now, run, j.Epoch, false)
			} else if j.step == 0 {
				j.step = s.steps
			}
		}
	}
	s.settle()
}

// giveWay releases and asks again.
func (s *sim) giveWay(j *job) {
	j.holds, j.yield = false, nil
	s.floor.Release(s.now, j.Run, j.Epoch, true)
	s.floor.Ask(s.now, j.Request)
}

// whole reports whether all instances of a run work.
func (s *sim) whole(j *job) bool {
	for _, want := range j.Need.Jobs(j.Run, j.Epoch, j.Priority) {
		state, err := s.cluster.Job(context.Background(), want.ID)
		if err != nil || state.Epoch != j.Epoch || state.Running() < want.Instances {
			return false
		}
	}
	return true
}

func (s *sim) runs() []string {
	var out []string
	for run := range s.jobs {
		out = append(out, run)
	}
	slices.Sort(out)
	return out
}

// check proves what must hold at any time.
func (s *sim) check() {
	s.Helper()
	starting := 0
	for _, t := range s.floor.Tenants {
		if t.Phase == placement.Starting {
			starting++
		}
	}
	if starting > 1 {
		s.Errorf("%d runs start at a time", starting)
	}
	nodes, err := s.cluster.Nodes(context.Background())
	if err != nil {
		return
	}
	for _, n := range nodes {
		holders := map[string]bool{}
		for _, m := range n.Instances {
			if m.State == placement.InstanceRunning || m.State == placement.InstancePending {
				holders[m.Job] = true
			}
		}
		if len(holders) > 1 {
			s.Errorf("node %s has whole-node instances of %d jobs", n.ID, len(holders))
		}
	}
}

// TestNoDeadlockNoStarvation: whatever comes in whatever order, and whatever is lost,
// each run ends, and in the end the cluster is empty.
func TestNoDeadlockNoStarvation(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { playRandom(t, seed) })
	}
}

func playRandom(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 15))
	numNodes := 2 + r.IntN(7)
	s := newSim(t, numNodes, placement.Policy{YieldPatience: 20 * time.Minute, AgeEvery: 2 * time.Hour, Tenure: 10 * time.Minute, Backfill: seed%5 == 4})
	flaws := placementtest.Flaws{SlowStart: r.IntN(2) == 0, SlowStop: r.IntN(2) == 0, NeverReplace: r.IntN(3) == 0}
	s.cluster.Flaw(flaws)
	node := func() string { return fmt.Sprintf("node-%03d", r.IntN(numNodes)) }
	numJobs := 4 + r.IntN(8)
	for minute := range 400 {
		if minute%10 == 0 && len(s.jobs) < numJobs {
			s.submit(fmt.Sprintf("run-%02d", len(s.jobs)), 1+r.IntN(5), 1+r.IntN(numNodes), 1+r.IntN(60))
		}
		switch r.IntN(40) {
		case 0:
			s.cluster.LoseNode(node())
		case 1, 2:
			s.cluster.ReturnNode(node())
		case 3:
			s.floor.DrainNode(s.now, node(), "new kernel", "ann")
		case 4, 5:
			s.floor.UndrainNode(node())
		case 6:
			flaws.LoseAnswers = 1
			s.cluster.Flaw(flaws)
			flaws.LoseAnswers = 0
		case 7:
			s.floor = placement.Admission{Policy: s.floor.Policy} // somebody has terminated the workflow
			for _, run := range s.runs() {
				if j := s.jobs[run]; !j.done { // a new one asks all runs who they are
					again := j.Request
					again.Holds = j.holds
					s.floor.Ask(s.now, again)
				}
			}
		case 8:
			if run := fmt.Sprintf("run-%02d", r.IntN(numJobs)); s.jobs[run] != nil && !s.jobs[run].done { // cancelled
				s.jobs[run].done, s.jobs[run].holds = true, false
				s.floor.Release(s.now, run, s.jobs[run].Epoch, false)
			}
		}
		if r.IntN(2) == 0 {
			s.cluster.RunMembers()
		}
		if r.IntN(2) == 0 {
			s.cluster.EndMembers()
		}
		s.look()
		s.tick()
		s.check()
	}
	// All is well again.
	s.cluster.Flaw(placementtest.Flaws{})
	for i := range numNodes {
		s.cluster.ReturnNode(fmt.Sprintf("node-%03d", i))
		s.floor.UndrainNode(fmt.Sprintf("node-%03d", i))
	}
	left := func() (names []string) {
		for _, run := range s.runs() {
			if !s.jobs[run].done {
				names = append(names, run)
			}
		}
		return names
	}
	for minute := 0; len(left()) > 0; minute++ {
		if minute > 3000 {
			t.Fatalf("runs %v never end: %v", left(), s.floor.Tenants)
		}
		s.cluster.RunMembers()
		s.cluster.EndMembers()
		s.look()
		s.tick()
		s.check()
	}
	for range 3 {
		s.cluster.EndMembers()
		s.look()
		s.settle()
	}
	if nodes, err := s.cluster.Nodes(t.Context()); err != nil || slices.ContainsFunc(nodes, func(n placement.Node) bool { return len(n.Instances) > 0 }) || len(s.floor.Tenants) > 0 {
		t.Errorf("in the end the nodes are %+v, %v, the runs %v", nodes, err, s.floor.Tenants)
	}
}
