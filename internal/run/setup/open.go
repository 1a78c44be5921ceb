// Package setup does what a run needs before its first step, and changes its configuration
// later: it opens and forks runs, prepares their data, checks a configuration without a
// run, and adds amendments. It reads and writes the store alone and runs nothing.
//
// Invariant: a repeated call gets the result of the first call, and a refused call has
// changed nothing but the list of runs.
package setup

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/proc/buildinfo"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Open validates the configuration, claims the run id and freezes the configuration in the
// store; without a configuration it finds the plan of a stored run, which is the owner's
// from then on. A retry by the same owner, or by a later execution of its chain, gets the
// plan of the first attempt, even if the configuration has changed since. A refusal is in
// the list of runs, too. Errors: InvalidConfig, RunExists.
func Open(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	plan, err := open(ctx, store, in, by)
	if err != nil && !by.Visits {
		listRefusal(ctx, store, in.RunID, err, by.At)
	}
	return plan, err
}

func open(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return run.Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if in.Priority < 0 || in.Priority > MaxPriority {
		return run.Plan{}, fault.Newf(fault.InvalidConfig, "priority: is %d, want 1 (first) to %d (last)", in.Priority, MaxPriority)
	}
	if in.Placement != nil {
		if wrong := in.Placement.Check(); len(wrong) > 0 {
			return run.Plan{}, fault.New(fault.InvalidConfig, errors.New(strings.Join(wrong, "\n")))
		}
	}
	if in.TakeOver && (in.Fork != nil || configured(in)) {
		return run.Plan{}, fault.Newf(fault.InvalidConfig, "take_over: goes on with run %s as it is stored: leave out config and fork", in.RunID)
	}
	if in.Fork != nil {
		return openFork(ctx, store, in, by)
	}
	if !configured(in) {
		return resume(ctx, store, in, by)
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
	if err := countEpochs(ctx, store, &cfg); err != nil {
		return run.Plan{}, err
	}
	plan := run.PlanOf(in.RunID, cfg)
	plan.Priority = in.Priority
	return claim(ctx, store, plan, cfg, claimant{by, in})
}

// MaxPriority is the priority of the runs that are scheduled last; 1 is scheduled first.
const MaxPriority = 5

// configured reports whether a configuration is given.
func configured(in run.Input) bool {
	text := bytes.TrimSpace(in.Config)
	return len(text) > 0 && string(text) != "null"
}

// claimant is who asks for a run, and what for.
type claimant struct {
	Claim
	in run.Input
}

// claim stores the plan under the run id, unless another run has it.
func claim(ctx context.Context, store blob.Store, plan run.Plan, cfg config.Run, by claimant) (run.Plan, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	data, err := cfg.YAML()
	if err != nil {
		return run.Plan{}, err
	}
	mine := run.Opened{Plan: plan, Format: run.Format, Version: buildinfo.Version, Owner: by.Owner, OwnerWorkflow: by.Workflow, OwnerNamespace: by.Namespace, ConfigYAML: string(data)}
	mine.Config = blob.RefOf(layout.Config().Opened(), data)
	mine.SearchAttributes, mine.ProgressAttributes = by.SearchAttributes, by.SearchAttributes
	stored, err := artifact.PutOnce(ctx, store, layout.Plan(), mine)
	if err == nil {
		err = stored.CheckFormat()
	}
	if err != nil {
		return run.Plan{}, err
	}
	if err := by.takeOwnership(ctx, store, &stored, by.in); err != nil {
		return run.Plan{}, err
	}
	if _, err := blob.PutBytes(ctx, store, layout.Config().Opened(), []byte(stored.ConfigYAML), blob.Always); err != nil {
		return run.Plan{}, err
	}
	var entry run.CatalogEntry
	entry.AddPlan(stored.Plan, cfg.Name, by.At)
	return stored.Plan, listRun(ctx, store, entry)
}
