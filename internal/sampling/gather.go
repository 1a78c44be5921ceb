package sampling

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"temper/internal/fault"
	"temper/internal/proc/failpoint"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/tool"
)

// gathering holds the unfinished groups of one call. Trajectories end in any order and wait,
// packed, for the others of their group; the last one stores the group. The stored bytes do
// not depend on the order.
type gathering struct {
	*sampler
	in       GroupsInput
	spec     rollout.Spec
	recorder recorder
	journal  *journal
	times    *timeRecorder
	// storing bounds the groups that are unpacked at a time.
	storing chan struct{}

	mu      sync.Mutex // guards what follows
	out     run.Sampled
	open    map[string]*openGroup
	records map[string]run.GroupRecord
}

// openGroup is a group of which some trajectories have not ended.
type openGroup struct {
	problem rl.Problem
	ended   []record.Packed // by rollout; Tokens is 0 for those that have not
	left    int
	// before and cells say by rollout where this call continues trajectories that an earlier
	// call has cut; cells then holds the same for the trajectories that this call cuts.
	before []rl.Trajectory
	cells  [][]tool.Cell
	cut    int
}

func newGathering(s *sampler, in GroupsInput) *gathering {
	return &gathering{
		sampler: s, in: in, spec: s.spec("train", in.Stage, in.Step),
		recorder: newRecorder(s.store, s.run.Layout, in.Stage, in.Step, s.run.Config),
		journal:  newJournal(s.store, s.run.Layout, in.Step),
		times:    &timeRecorder{store: s.store, layout: s.run.Layout, step: in.Step, part: len(in.Before)},
		storing:  make(chan struct{}, 1+runtime.GOMAXPROCS(0)),
		open:     map[string]*openGroup{}, records: map[string]run.GroupRecord{},
	}
}

func (g *gathering) key(problemID string) string {
	return g.run.Layout.Step(g.in.Step).Group(problemID)
}

// keep adds the record of a stored group.
func (g *gathering) keep(ctx context.Context, stored storedGroup) error {
	made, err := g.recorder.record(ctx, stored)
	g.mu.Lock()
	defer g.mu.Unlock()
	addGroup(&g.out, stored.Group)
	if g.recorder.signals && made.NumSamples > 0 {
		g.out.Signals++
	}
	g.records[stored.Problem.ID] = made
	return err
}

// sample samples the groups of problems, except for trajectories that an earlier
// attempt has stored.
func (g *gathering) sample(ctx context.Context, problems []rl.Problem) error {
	for _, p := range problems {
		n := g.cfg.RL.RolloutsPerProblem
		g.open[p.ID] = &openGroup{problem: p, ended: make([]record.Packed, n), left: n, cells: make([][]tool.Cell, n)}
	}
	if err := g.takeParts(ctx, problems); err != nil {
		return err
	}
	if err := g.restoreEnded(ctx); err != nil {
		return err
	}
	g.journal.start(ctx)
	err := g.runner.Each(ctx, g.missing(problems), func(s rollout.Spec, t rl.Trajectory) error { return g.end(ctx, s, t) })
	g.journal.stop(ctx, err != nil)
	g.times.write(ctx)
	return err
}

// missing yields the trajectories that are not sampled yet, in the order of problems.
func (g *gathering) missing(problems []rl.Problem) iter.Seq[rollout.Spec] {
	var specs []rollout.Spec
	for _, p := range problems {
		group, ok := g.open[p.ID]
		for i := range g.cfg.RL.RolloutsPerProblem {
			if ok && group.ended[i].Tokens() == 0 {
				specs = append(specs, g.specOf(group, i))
			}
		}
	}
	return func(yield func(rollout.Spec) bool) {
		for _, s := range specs {
			if !yield(s) {
				return
			}
		}
	}
}

// specOf returns the Spec of a trajectory, or of its part.
func (g *gathering) specOf(group *openGroup, i int) rollout.Spec {
	s := g.spec
	s.Problem, s.Rollout = group.problem, i
	if g.in.Until > 0 || len(g.in.Before) > 0 {
		s.Part = &rollout.Part{Until: g.in.Until, Cells: group.cells[i]}
		if group.before != nil {
			s.Part.Before = &group.before[i]
		}
	}
	return s
}

// restoreEnded places the trajectories that earlier attempts have stored, and stores the
// groups that are complete with them.
func (g *gathering) restoreEnded(ctx context.Context) error {
	var complete []*openGroup
	err := g.journal.read(ctx, func(t *rl.Trajectory) error {
		group, ok := g.open[t.ProblemID]
		if !ok || !g.isOurs(group, t) {
			return nil
		}
		packed, err := record.Pack(t)
		if err != nil {
			return err
		}
		g.out.Resumed++
		if g.place(group, packed) {
			complete = append(complete, group)
		}
		return nil
	})
	for _, group := range complete {
		if err == nil {
			err = g.storeGroup(ctx, group)
		}
	}
	return err
}

// isOurs reports whether a stored trajectory equals the one to sample.
func (g *gathering) isOurs(group *openGroup, t *rl.Trajectory) bool {
	if t.Rollout < 0 || t.Rollout >= len(group.ended) || group.ended[t.Rollout].Tokens() > 0 {
		return false
	}
	s := g.spec
	s.Problem, s.Rollout = group.problem, t.Rollout
	return t.Stage == s.Stage && t.Step == s.Step && t.Seed == s.TrajectorySeed() && len(t.Tokens) > 0 && g.in.sampledAs(t)
}

// place puts a trajectory into its group, and reports whether the group is complete and so
// no longer open.
func (g *gathering) place(group *openGroup, packed record.Packed) (complete bool) {
	group.ended[packed.Rollout] = packed
	if group.left--; group.left > 0 {
		return false
	}
	delete(g.open, group.problem.ID)
	return true
}

// end places a trajectory that has ended or was cut.
func (g *gathering) end(ctx context.Context, s rollout.Spec, t rl.Trajectory) error {
	packed, err := record.Pack(&t)
	if err != nil {
		return fault.Newf(fault.Corrupt, "step %d: %w", g.in.Step, err)
	}
	g.times.add(ctx, &t)
	g.mu.Lock()
	g.out.SampleTime += t.SampleTime
	g.out.ToolTime += t.ToolTime
	g.calls.add(&t)
	group := g.open[t.ProblemID]
	complete := g.place(group, packed)
	switch t.StopReason {
	case rl.StopInfraError: // another attempt may have more luck
	case rl.StopCut:
		group.cells[t.Rollout] = s.Part.Cells
		group.cut++
	default:
		g.journal.add(packed)
	}
	g.mu.Unlock()
	if complete {
		return g.storeGroup(ctx, group)
	}
	return nil
}

// storeGroup stores a complete group, its samples and its record.
func (g *gathering) storeGroup(ctx context.Context, group *openGroup) error {
	g.storing <- struct{}{}
	defer func() { <-g.storing }()
	if group.cut > 0 {
		return g.storePart(ctx, group)
	}
	whole := rl.Group{Problem: group.problem, Trajectories: make([]rl.Trajectory, len(group.ended))}
	for i := range group.ended {
		var err error
		if whole.Trajectories[i], err = group.ended[i].Unpack(); err != nil {
			return fmt.Errorf("group %s: %w", group.problem.ID, err)
		}
	}
	if err := allLost(whole.Trajectories); err != nil {
		return fmt.Errorf("group %s: %w", group.problem.ID, err)
	}
	failpoint.Hit("sampling/before-group")
	stored, err := g.groups.writeGroup(ctx, g.key(group.problem.ID), whole, group.ended)
	if err != nil {
		return err
	}
	g.journal.drop(group.problem.ID) // after a failure they wait on for the journal
	failpoint.Hit("sampling/after-group")
	g.progress.groups.Add(1)
	return g.keep(ctx, stored)
}
