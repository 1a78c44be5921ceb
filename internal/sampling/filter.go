package sampling

import (
	"context"
	"fmt"
	"path"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/proc/failpoint"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// FilterInput asks for the offline filter of a stage with the given policy.
type FilterInput struct {
	Run    run.Ref    `json:"run"`
	Stage  int        `json:"stage"`
	Policy run.Policy `json:"policy"`
}

// Filter samples every training problem of a stage with the current policy and
// removes those that all rollouts solve (recipe, RL stage 3), or whose pass rates are out
// of the filter's range. With stored pass rates it samples nothing.
func (r *Service) Filter(ctx context.Context, in FilterInput, progress *Progress) (run.FilterResult, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.Stage(in.Stage).Filter()
	if done, ok, err := artifact.Lookup[run.StoredFilter](ctx, r.Store, key); ok || err != nil {
		return done.FilterResult, err
	}
	started := r.Now()
	var out run.StoredFilter
	cfg, err := run.ReadConfig(ctx, r.Store, in.Run)
	if err != nil {
		return run.FilterResult{}, err
	}
	if cfg.Stages[in.Stage-1].Filter.Rates != "" {
		out, err = filterByRates(ctx, r.Store, cfg, in)
	} else {
		err = r.withEngine(ctx, target{in.Run, in.Policy, int(in.Policy.Version) + 1, fmt.Sprintf("filter of stage %d", in.Stage)}, progress, func(s *sampler) (err error) {
			out, err = s.filter(ctx, in.Stage)
			return err
		})
	}
	if err != nil {
		return run.FilterResult{}, err
	}
	out.Wall = r.Now().Sub(started)
	failpoint.Hit("filter/before-result")
	out, err = artifact.PutOnce(ctx, r.Store, key, out)
	return out.FilterResult, err
}

// filteredProblem is the filter's result for a problem. It is stored as soon as the
// rollouts of the problem have ended, so that another attempt makes only the rest.
type filteredProblem struct {
	Rollouts int  `json:"rollouts"`
	Solved   bool `json:"solved"` // by all of them
	// Rate is the share that solved it, where the filter has a range of rates.
	Rate *float64 `json:"pass_rate,omitempty"`
}

// removes reports whether a filter removes the problem.
func (f filteredProblem) removes(by config.Filter) bool {
	if f.Rate == nil {
		return f.Solved
	}
	return !by.Keeps(*f.Rate)
}

// passRate is the share of trajectories that earned the full reward. One that is
// excluded does not count.
func passRate(ts []rl.Trajectory) float64 {
	n, solved := 0, 0
	for i := range ts {
		if ts[i].Excluded() {
			continue
		}
		n++
		if ts[i].Reward == 1 {
			solved++
		}
	}
	return float64(solved) / float64(max(1, n))
}

// filterByRates removes problems by the pass rates that were stored with the data.
func filterByRates(ctx context.Context, store blob.Store, cfg config.Run, in FilterInput) (run.StoredFilter, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	problems, err := run.ReadProblems(ctx, store, layout.Stage(in.Stage).Train())
	if err != nil {
		return run.StoredFilter{}, err
	}
	rates, err := run.ReadPassRates(ctx, store, layout.Stage(in.Stage).PassRates())
	if err != nil {
		return run.StoredFilter{}, err
	}
	done := make(map[string]filteredProblem, len(problems))
	for _, p := range problems {
		rate, ok := rates[p.ID]
		if !ok {
			return run.StoredFilter{}, fault.Newf(fault.Corrupt, "%s: no pass rate of problem %s", store.Locate(layout.Stage(in.Stage).PassRates()), p.ID)
		}
		done[p.ID] = filteredProblem{Rate: &rate}
	}
	by := cfg.Stages[in.Stage-1].Filter
	out := run.StoredFilter{PolicyVersion: in.Policy.Version, RemovedIDs: removable(problems, done, by, cfg.RL.ProblemsPerStep)}
	out.Problems, out.Removed, out.Rule = len(problems), len(out.RemovedIDs), by.Rule()
	out.Left = out.Problems - out.Removed
	return out, nil
}

// splitFiltered separates the problems that an earlier attempt has sampled from the
// others.
func (s *sampler) splitFiltered(ctx context.Context, stage int, problems []rl.Problem) (done map[string]filteredProblem, todo []rl.Problem, err error) {
	done = map[string]filteredProblem{}
	key := func(p rl.Problem) string { return s.run.Layout.Stage(stage).FilterProblem(p.ID) }
	there, err := listed(ctx, s.store, path.Dir(s.run.Layout.Stage(stage).FilterProblem("")))
	if err != nil {
		return nil, nil, err
	}
	var known []string
	var ids []string
	for _, p := range problems {
		if there[key(p)] {
			known, ids = append(known, key(p)), append(ids, p.ID)
		} else {
			todo = append(todo, p)
		}
	}
	found, err := artifact.Gather[filteredProblem](ctx, s.store, known)
	if err != nil {
		return nil, nil, err
	}
	for i, id := range ids {
		done[id] = found[i]
	}
	return done, todo, nil
}

func (s *sampler) filter(ctx context.Context, stage int) (run.StoredFilter, error) {
	problems, err := run.ReadProblems(ctx, s.store, s.run.Layout.Stage(stage).Train())
	if err != nil {
		return run.StoredFilter{}, err
	}
	done, todo, err := s.splitFiltered(ctx, stage, problems)
	if err != nil {
		return run.StoredFilter{}, err
	}
	var outage error // nil once a problem has a scored rollout
	scored := len(done) > 0
	by := s.cfg.Stages[stage-1].Filter
	err = s.sampleProblems(ctx, s.spec("filter", stage, 0), todo, by.Rollouts, func(g rl.Group) error {
		if err := allLost(g.Trajectories); err != nil { // nothing is stored: another attempt samples it again
			outage = err
			return nil
		}
		scored = true
		found := filteredProblem{Rollouts: len(g.Trajectories), Solved: solvedByAll(g.Trajectories)}
		if by.Rule() != "" {
			rate := passRate(g.Trajectories)
			found.Rate = &rate
		}
		var err error
		done[g.Problem.ID], err = artifact.PutOnce(ctx, s.store, s.run.Layout.Stage(stage).FilterProblem(g.Problem.ID), found)
		failpoint.Hit("filter/after-group")
		return err
	})
	if err == nil && !scored {
		err = outage
	}
	if err != nil {
		return run.StoredFilter{}, err
	}
	out := run.StoredFilter{PolicyVersion: s.policy.Version, RemovedIDs: removable(problems, done, by, s.cfg.RL.ProblemsPerStep)}
	for _, p := range problems {
		found, ok := done[p.ID]
		if !ok {
			continue
		}
		ref, err := artifact.RefOf(s.run.Layout.Stage(stage).FilterProblem(p.ID), found)
		if err != nil {
			return out, err
		}
		out.Found = append(out.Found, ref)
	}
	out.Problems, out.Removed, out.Rule = len(problems), len(out.RemovedIDs), by.Rule()
	out.Left = out.Problems - out.Removed
	return out, nil
}

// removable lists the solved problems that the stage can do without. A stage needs
// the problems of one step: where fewer are unsolved, the last solved ones stay. When
// all are solved, nothing is left to learn and all go.
func removable(problems []rl.Problem, done map[string]filteredProblem, by config.Filter, perStep int) []string {
	ids := []string{}
	for _, p := range problems {
		if done[p.ID].removes(by) {
			ids = append(ids, p.ID)
		}
	}
	left := len(problems) - len(ids)
	if left == 0 {
		return ids
	}
	return ids[:len(ids)-max(0, perStep-left)]
}

// solvedByAll reports whether all rollouts solved the problem. One that is
// excluded is no evidence for it.
func solvedByAll(ts []rl.Trajectory) bool {
	for i := range ts {
		if ts[i].Reward != 1 || ts[i].Excluded() {
			return false
		}
	}
	return len(ts) > 0
}
