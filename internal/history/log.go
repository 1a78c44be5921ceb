package history

import (
	"context"
	"path"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Events are the entries of the event log, in order of time.
func (r *Run) Events(ctx context.Context) ([]run.Event, error) {
	infos, err := r.store.List(ctx, r.layout.Events().Dir()+"/")
	if err != nil {
		return nil, err
	}
	return gather[run.Event](ctx, r.store, infos)
}

// stateEvents are the events that say what became of the run, in order of time.
func (r *Run) stateEvents(ctx context.Context) ([]run.Event, error) {
	infos, err := r.store.List(ctx, r.layout.Events().Dir()+"/")
	if err != nil {
		return nil, err
	}
	var telling []blob.Info
	for _, info := range infos {
		if run.ChangesState(artifact.EventKind(info.Key)) {
			telling = append(telling, info)
		}
	}
	return gather[run.Event](ctx, r.store, telling)
}

// Evaluations are the evaluations that have ended, by stage, label and policy.
func (r *Run) Evaluations(ctx context.Context) ([]run.Evaluation, error) {
	infos, err := results(ctx, r.store, r.layout.Evals())
	if err != nil {
		return nil, err
	}
	return gather[run.Evaluation](ctx, r.store, infos)
}

// Problems are the ids of the problems of a step whose trajectories are stored.
func (r *Run) Problems(ctx context.Context, step int) ([]string, error) {
	infos, _, err := r.store.ListFolder(ctx, r.layout.Step(step).Groups())
	var out []string
	for _, info := range infos {
		name := path.Base(info.Key)
		out = append(out, name[:len(name)-len(path.Ext(name))])
	}
	return out, err
}

// Group are the trajectories of a problem in a step, by rollout, with their text in
// either stored form. Errors: blob.ErrNotExist, also when they were deleted since.
func (r *Run) Group(ctx context.Context, step int, problemID string) ([]rl.Trajectory, error) {
	out, err := run.ReadTrajectories(ctx, r.store, r.layout.Step(step).Group(problemID))
	if err != nil {
		return nil, err
	}
	return out, r.texts.add(ctx, r.store, r.layout, out)
}

// results lists the JSON files directly in a folder.
func results(ctx context.Context, store blob.Store, folder string) ([]blob.Info, error) {
	infos, _, err := store.ListFolder(ctx, folder)
	var out []blob.Info
	for _, info := range infos {
		if path.Ext(info.Key) == ".json" {
			out = append(out, info)
		}
	}
	return out, err
}

// gather reads what was listed.
func gather[T any](ctx context.Context, store blob.Store, infos []blob.Info) ([]T, error) {
	keys := make([]string, len(infos))
	for i, info := range infos {
		keys[i] = info.Key
	}
	return artifact.Gather[T](ctx, store, keys)
}
