// Package history reads what runs leave in a store: plans, records of steps,
// events, evaluations, trajectories, checkpoints, policies, summaries, and the
// catalog of all runs. The command line, the dashboard and the checks of runs read
// through it. It decides nothing, and writes nothing but the catalog.
//
// Invariant: no reader lists what lies below the steps of a run, which is most of
// it: what is numbered is found by its number.
package history

import (
	"context"
	"sync"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Folder is where the folders of all runs are.
const Folder = artifact.Root

// CheckRunID says what is wrong with a run id, if anything.
func CheckRunID(id string) error { return artifact.CheckRunID(id) }

// Exists reports whether a run id is taken.
func Exists(ctx context.Context, store blob.Store, id string) (bool, error) {
	_, ok, err := artifact.Lookup[struct{}](ctx, store, artifact.Layout{RunID: id}.Plan())
	return ok, err
}

// Place is the folder of a run for people, whether or not it is there.
func Place(store blob.Store, id string) string { return store.Locate(artifact.Layout{RunID: id}.Dir()) }

// Run is a run in a store.
type Run struct {
	// Plan is the plan with all amendments, as it was when the run was opened.
	Plan run.Plan

	store  blob.Store
	layout artifact.Layout
	texts  texts
	known  struct {
		sync.Mutex
		config *config.Run // nil until the first use
	}
}

// Open finds a run. Errors: InvalidConfig, when there is none of that id.
func Open(ctx context.Context, store blob.Store, id string) (*Run, error) {
	if err := artifact.CheckRunID(id); err != nil {
		return nil, fault.New(fault.InvalidConfig, err)
	}
	plan, ok, err := run.StoredPlan(ctx, store, id)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q in %s (temper run list shows what is there)", id, store.Locate(artifact.Root))
	}
	if err != nil {
		return nil, err
	}
	return &Run{Plan: plan, store: store, layout: artifact.Layout{RunID: id}}, nil
}

// ID is the id of the run.
func (r *Run) ID() string { return r.layout.RunID }

// Store is the store that the run lies in.
func (r *Run) Store() blob.Store { return r.store }

// Dir is the folder of the run for people.
func (r *Run) Dir() string { return r.store.Locate(r.layout.Dir()) }

// SummaryPath is the place of the summary for people.
func (r *Run) SummaryPath() string { return r.store.Locate(r.layout.Summary()) }

// Config is the configuration with all amendments.
func (r *Run) Config(ctx context.Context) (config.Run, error) {
	return run.ReadConfig(ctx, r.store, run.Ref{RunID: r.ID(), Config: r.Plan.Config})
}

// Summary is the outcome; ok is false while there is none.
func (r *Run) Summary(ctx context.Context) (s run.Summary, ok bool, err error) {
	return artifact.Lookup[run.Summary](ctx, r.store, r.layout.Summary())
}

// Records are the records of all steps, in order.
func (r *Run) Records(ctx context.Context) ([]run.StepRecord, error) {
	return run.Records(ctx, r.store, r.Plan)
}

// Policies are the versions that the run has, in order.
func (r *Run) Policies(ctx context.Context) ([]int64, error) {
	return artifact.Policies(ctx, r.store, r.layout)
}

// NewestPolicy is the newest version that a run has. Errors: InvalidConfig, when it
// has published none.
func NewestPolicy(ctx context.Context, store blob.Store, id string) (int64, error) {
	layout := artifact.Layout{RunID: id}
	have, err := artifact.Policies(ctx, store, layout)
	if err == nil && len(have) == 0 {
		err = fault.Newf(fault.InvalidConfig, "run %q has published no policy at %s (temper run list shows the runs)", id, store.Locate(layout.Dir()))
	}
	if err != nil {
		return 0, err
	}
	return have[len(have)-1], nil
}
