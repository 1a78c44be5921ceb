package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
)

// runReader opens the runs that requests name, and keeps what never changes of them: the
// records, indexes, times and problems of steps that have ended.
type runReader struct {
	store blob.Store
	cache *cache
}

// open returns the run that the path names.
func (rd *runReader) open(r *request) (*history.Run, error) {
	return history.Open(r.Context(), rd.store, r.PathValue("run"))
}

// openStep returns the run and the step that the path names.
func (rd *runReader) openStep(r *request) (*history.Run, int, error) {
	step, err := r.number("step")
	if err != nil {
		return nil, 0, err
	}
	h, err := rd.open(r)
	return h, step, err
}

// records returns the records of all steps of a run. It caches the records of an ended run.
func (rd *runReader) records(ctx context.Context, h *history.Run) ([]run.StepRecord, error) {
	key := "records/" + h.ID()
	if known, ok := rd.cache.get(key); ok {
		return known.([]run.StepRecord), nil //nolint:forcetypeassert // the key is of this type alone
	}
	_, ended, _ := h.Summary(ctx) // first: the run may end while its records are read
	out, err := h.Records(ctx)
	if err != nil {
		return nil, err
	}
	if ended {
		size := 0
		for i := range out {
			size += 200 + 100*len(out[i].Metrics)
		}
		rd.cache.put(key, out, size)
	}
	return out, nil
}

// index returns the index of a step, ordered by problem and rollout; ok is false where the
// step has none. It is cached: the pages of one step are opened one after another.
func (rd *runReader) index(ctx context.Context, h *history.Run, step int) (rows []record.Row, ok bool, err error) {
	version, ok, err := history.RolloutsOf(h).IndexVersion(ctx, step)
	if err != nil || !ok {
		return nil, false, err
	}
	key := fmt.Sprintf("index/%s/%d/%s", h.ID(), step, version)
	if known, ok := rd.cache.get(key); ok {
		return known.([]record.Row), true, nil //nolint:forcetypeassert // the key is of this type alone
	}
	rows, ok, err = history.RolloutsOf(h).Index(ctx, step)
	if err != nil || !ok {
		return nil, false, err
	}
	byPlace := func(a, b record.Row) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Rollout, b.Rollout))
	}
	if !slices.IsSortedFunc(rows, byPlace) {
		slices.SortFunc(rows, byPlace)
	}
	rd.cache.put(key, rows, rowBytes*len(rows)+1000)
	return rows, true, nil
}

// rowBytes estimates the memory of a row.
const rowBytes = 350

// timesKey names a trajectory of a step.
type timesKey struct {
	problem string
	rollout int
}

// timesBytes estimates the memory of the times of a trajectory.
const timesBytes = 500

// times returns the times of all trajectories of a step. It caches the times of an ended step.
func (rd *runReader) times(ctx context.Context, h *history.Run, step int) (map[timesKey]record.Times, error) {
	key := fmt.Sprintf("times/%s/%d", h.ID(), step)
	if known, ok := rd.cache.get(key); ok {
		return known.(map[timesKey]record.Times), nil //nolint:forcetypeassert // the key is of this type alone
	}
	_, ended, _ := history.RolloutsOf(h).Record(ctx, step) // first: the step may end while its times are read
	list, err := history.RolloutsOf(h).Times(ctx, step)
	if err != nil {
		return nil, err
	}
	out := make(map[timesKey]record.Times, len(list))
	for _, t := range record.JoinAll(list) {
		out[timesKey{t.Problem, t.Rollout}] = t
	}
	if ended {
		rd.cache.put(key, out, timesBytes*(1+len(out)))
	}
	return out, nil
}

// groupRows returns the rows of one group, where they come from, and the group's record in
// the batch.
func (rd *runReader) groupRows(ctx context.Context, h *history.Run, step int, id string) (rows []record.Row, source string, group run.GroupRecord, err error) {
	var batch run.StoredBatch
	var all []record.Row
	var listed, ok bool
	g, inGroup := errgroup.WithContext(ctx)
	g.Go(func() (err error) { batch, listed, err = history.RolloutsOf(h).Batch(inGroup, step); return err })
	g.Go(func() (err error) { all, ok, err = rd.index(inGroup, h, step); return err })
	if err := g.Wait(); err != nil {
		return nil, "", group, err
	}
	if listed {
		i := slices.IndexFunc(batch.Groups, func(g run.GroupRecord) bool { return g.ProblemID == id })
		if i < 0 {
			return nil, "", group, missing("step %d of run %s has no problem %s", step, h.ID(), brief(id))
		}
		group = batch.Groups[i]
	}
	if ok {
		from, _ := slices.BinarySearchFunc(all, id, func(r record.Row, id string) int { return cmp.Compare(r.Problem, id) })
		to := from
		for to < len(all) && all[to].Problem == id {
			to++
		}
		return all[from:to], fromIndex, group, nil
	}
	cfg, err := h.Config(ctx)
	if err != nil {
		return nil, "", group, err
	}
	rows, err = oldRows(ctx, h, cfg.At(step), step, id)
	return rows, fromRecords, group, err
}

// problem returns a problem of a step. Where the stage's data lacks it, only its id is set.
func (rd *runReader) problem(ctx context.Context, h *history.Run, step int, id string) (rl.Problem, error) {
	stage := 0
	for _, st := range h.Plan.Stages {
		if step >= st.FirstStep && step < st.FirstStep+st.Steps {
			stage = st.Index
		}
	}
	if stage == 0 {
		return rl.Problem{}, missing("run %s has no step %d", h.ID(), step)
	}
	return rd.findProblem(ctx, h, problemsOf{stage: stage}, id)
}

// problemsOf names a set of problems: the training or the held-out problems of a stage, or
// a set of eval.sets.
type problemsOf struct {
	stage   int
	heldOut bool
	set     string
}

// findProblem returns a problem of a set. Where the set lacks it, only its id is set.
func (rd *runReader) findProblem(ctx context.Context, h *history.Run, of problemsOf, id string) (rl.Problem, error) {
	key := fmt.Sprintf("problems/%s/%d/%v/%s", h.ID(), of.stage, of.heldOut, of.set)
	known, ok := rd.cache.get(key)
	if !ok {
		data, err := readProblems(ctx, history.RolloutsOf(h), of)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return rl.Problem{}, err
		}
		rd.cache.put(key, data, len(data))
		known = data
	}
	data, _ := known.([]byte)
	if len(data) == 0 { // a set that is gone hides no trajectory
		return rl.Problem{ID: id}, nil
	}
	p, ok, err := run.FindProblem(data, id)
	if !ok {
		p = rl.Problem{ID: id}
	}
	return p, err
}

func readProblems(ctx context.Context, o history.Rollouts, of problemsOf) ([]byte, error) {
	if of.set != "" {
		return o.EvalSetProblems(ctx, of.set)
	}
	return o.ProblemSet(ctx, of.stage, of.heldOut)
}
