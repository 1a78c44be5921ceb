// Package setup does what a run needs before its first step, and what changes its
// configuration later: it opens and forks runs, prepares their data, checks a
// configuration without a run, and adds amendments. It reads and writes the store
// alone and runs nothing.
//
// Invariant: whoever repeats a call gets what the first call made, and a call that is
// refused has changed nothing but the list of runs.
package setup

import (
	"bytes"
	"context"
	"errors"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
)

// Claim is who opens a run, and what the server of its workflow can do.
type Claim struct {
	// Owner is the workflow execution that gets the run id.
	Owner string
	// SearchAttributes says whether the server knows the attributes of runs.
	SearchAttributes bool
	// At is when, for the list of runs.
	At time.Time
}

// Open validates the configuration, claims the run id and freezes the
// configuration in the store; without a configuration it finds the plan of a
// stored run. A retry by the same owner gets the plan of the first attempt,
// whatever the configuration says by now. A refusal is in the list of runs, too.
// Errors: InvalidConfig, RunExists.
func Open(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	plan, err := open(ctx, store, in, by)
	if err != nil {
		listRefusal(ctx, store, in.RunID, err, by.At)
	}
	return plan, err
}

func open(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return run.Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if in.Priority < 0 || in.Priority > maxPriority {
		return run.Plan{}, fault.Newf(fault.InvalidConfig, "priority: is %d, want 1 (first) to %d (last)", in.Priority, maxPriority)
	}
	if in.Fork != nil {
		return openFork(ctx, store, in, by)
	}
	if !configured(in) {
		return run.Reopen(ctx, store, in.RunID)
	}
	cfg, err := run.LoadConfig(in)
	if err != nil {
		return run.Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if cfg.Fork.RunID != "" {
		return run.Plan{}, fault.New(fault.InvalidConfig, errors.New(`fork: say it beside the configuration ({"fork": {"run_id": ...}}) or use temper run fork`))
	}
	if err := checkStart(ctx, store, cfg); err != nil {
		return run.Plan{}, err
	}
	plan := run.PlanOf(in.RunID, cfg)
	plan.Priority = in.Priority
	return claim(ctx, store, plan, cfg, by)
}

// maxPriority is the priority of the runs that come last.
const maxPriority = 5

// configured reports whether a configuration is given.
func configured(in run.Input) bool {
	text := bytes.TrimSpace(in.Config)
	return len(text) > 0 && string(text) != "null"
}

// claim stores the plan under the run id, unless somebody has it.
func claim(ctx context.Context, store blob.Store, plan run.Plan, cfg config.Run, by Claim) (run.Plan, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	data, err := cfg.YAML()
	if err != nil {
		return run.Plan{}, err
	}
	mine := run.Opened{Plan: plan, Owner: by.Owner, ConfigYAML: string(data)}
	mine.Config = blob.RefOf(layout.Config(), data)
	mine.SearchAttributes, mine.ProgressAttributes = by.SearchAttributes, by.SearchAttributes
	stored, err := artifact.PutOnce(ctx, store, layout.Plan(), mine)
	if err != nil {
		return run.Plan{}, err
	}
	if stored.Owner != by.Owner {
		return run.Plan{}, fault.Newf(fault.RunExists, "run id %q exists already at %s: choose another", plan.RunID, store.Locate(layout.Dir()))
	}
	if _, err := blob.PutBytes(ctx, store, layout.Config(), []byte(stored.ConfigYAML), blob.Always); err != nil {
		return run.Plan{}, err
	}
	var entry run.CatalogEntry
	entry.AddPlan(stored.Plan, cfg.Name, by.At)
	return stored.Plan, listRun(ctx, store, entry)
}
