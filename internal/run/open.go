package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
)

// storedPlan is all that OpenRun decides, in one blob, so that no crash leaves a
// plan without its configuration.
type storedPlan struct {
	Plan
	// Owner is the workflow execution that has the run id.
	Owner string `json:"owner"`
	// ConfigYAML is the content of the frozen configuration.
	ConfigYAML string `json:"config_yaml"`
}

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
// whatever the configuration says by now. Errors: InvalidConfig, RunExists.
func Open(ctx context.Context, store blob.Store, in Input, by Claim) (Plan, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if in.Priority < 0 || in.Priority > maxPriority {
		return Plan{}, fault.Newf(fault.InvalidConfig, "priority: is %d, want 1 (first) to %d (last)", in.Priority, maxPriority)
	}
	if in.Fork != nil {
		return openFork(ctx, store, in, by)
	}
	if !in.configured() {
		return Reopen(ctx, store, in.RunID)
	}
	cfg, err := LoadConfig(in)
	if err != nil {
		return Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if cfg.Fork.RunID != "" {
		return Plan{}, fault.New(fault.InvalidConfig, errors.New(`fork: say it beside the configuration ({"fork": {"run_id": ...}}) or use temper run fork`))
	}
	if err := checkStart(ctx, store, cfg); err != nil {
		return Plan{}, err
	}
	plan := PlanOf(in.RunID, cfg)
	plan.Priority = in.Priority
	return claim(ctx, store, plan, cfg, by)
}

// maxPriority is the priority of the runs that come last.
const maxPriority = 5

// configured reports whether a configuration is given.
func (in Input) configured() bool {
	text := bytes.TrimSpace(in.Config)
	return len(text) > 0 && string(text) != "null"
}

// LoadConfig reads the configuration that a Input names or holds. A string
// with a line break is YAML, another string a path, an object the configuration.
func LoadConfig(in Input) (config.Run, error) {
	if err := in.CheckSize(); err != nil {
		return config.Run{}, err
	}
	set := map[string]string{}
	maps.Copy(set, in.Set)
	if in.Seed != nil {
		set["seed"] = fmt.Sprint(*in.Seed)
	}
	var text string
	switch {
	case json.Unmarshal(in.Config, &text) != nil:
		return config.Load("config", in.Config, set)
	case strings.Contains(text, "\n"):
		return config.Load("config", []byte(text), set)
	case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(text)):
		return config.Run{}, fmt.Errorf("config %q: want a path ending in .yaml, .yml or .json", text)
	default:
		return config.LoadFile(text, set)
	}
}

// claim stores the plan under the run id, unless somebody has it.
func claim(ctx context.Context, store blob.Store, plan Plan, cfg config.Run, by Claim) (Plan, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	data, err := cfg.YAML()
	if err != nil {
		return Plan{}, err
	}
	mine := storedPlan{Plan: plan, Owner: by.Owner, ConfigYAML: string(data)}
	mine.Config = blob.RefOf(layout.Config(), data)
	mine.SearchAttributes, mine.ProgressAttributes = by.SearchAttributes, by.SearchAttributes
	stored, err := artifact.PutOnce(ctx, store, layout.Plan(), mine)
	if err != nil {
		return Plan{}, err
	}
	if stored.Owner != by.Owner {
		return Plan{}, fault.Newf(fault.RunExists, "run id %q exists already at %s: choose another", plan.RunID, store.Locate(layout.Dir()))
	}
	if _, err := blob.PutBytes(ctx, store, layout.Config(), []byte(stored.ConfigYAML), blob.Always); err != nil {
		return Plan{}, err
	}
	var entry CatalogEntry
	entry.AddPlan(stored.Plan, cfg.Name, by.At)
	if err = PutEntry(ctx, store, entry, blob.IfAbsent); errors.Is(err, blob.ErrExists) {
		err = nil // of an earlier attempt; the run may have gone on since
	}
	return stored.Plan, err
}

// Reopen returns the plan of a run that is in the store. Errors: InvalidConfig
// when there is none.
func Reopen(ctx context.Context, store blob.Store, runID string) (Plan, error) {
	plan, ok, err := StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, `"config" is missing and no run %q is stored: want {"config": "file.yaml"}, YAML text or an object`, runID)
	}
	return plan, err
}

// StoredPlan is the plan of a run in the store with all amendments; ok is false
// when there is no such run.
func StoredPlan(ctx context.Context, store blob.Store, runID string) (plan Plan, ok bool, err error) {
	layout := artifact.Layout{RunID: runID}
	stored, ok, err := artifact.Lookup[storedPlan](ctx, store, layout.Plan())
	if err != nil || !ok {
		return Plan{}, ok, err
	}
	newest, amended, err := artifact.Lookup[blob.Ref](ctx, store, layout.NewestConfig())
	if err != nil || !amended {
		return stored.Plan, true, err
	}
	cfg, err := ReadConfig(ctx, store, Ref{RunID: runID, Config: newest})
	if err != nil {
		return Plan{}, true, err
	}
	plan = stored.Plan
	plan.Config, plan.Stages = newest, PlanOf(runID, cfg.Newest()).Stages
	return plan, true, nil
}

// PlanOf is what the workflows need to know of a configuration.
func PlanOf(runID string, cfg config.Run) Plan {
	p := Plan{RunID: runID, Seed: cfg.Seed, SFTSteps: cfg.SFT.Steps, CheckpointEvery: cfg.Checkpoint.EverySteps}
	next := 1
	for i, s := range cfg.Stages {
		p.Stages = append(p.Stages, Stage{
			Index: i + 1, Name: s.Name, FirstStep: next, Steps: s.Until.Steps, Filter: s.Filter.Rollouts > 0,
		})
		next += s.Until.Steps
	}
	times := map[int]int{}
	for _, i := range cfg.Repeated() {
		s := cfg.Stages[i]
		times[i]++
		p.Stages = append(p.Stages, Stage{
			Index: len(p.Stages) + 1, Name: fmt.Sprintf("%s.%d", s.Name, times[i]+1), FirstStep: next, Steps: s.Until.Steps, Of: i + 1,
		})
		next += s.Until.Steps
	}
	return p
}

// stageAt is the stage that a step belongs to.
func (p Plan) stageAt(step int) (Stage, bool) {
	for _, s := range p.Stages {
		if step >= s.FirstStep && step < s.FirstStep+s.Steps {
			return s, true
		}
	}
	return Stage{}, false
}

// ReadConfig loads the frozen configuration and checks it against its Ref.
func ReadConfig(ctx context.Context, store blob.Store, run Ref) (config.Run, error) {
	data, err := blob.ReadRef(ctx, store, run.Config)
	if err != nil {
		return config.Run{}, fmt.Errorf("configuration of run %s: %w", run.RunID, err)
	}
	return config.Load(run.Config.Key, data, nil)
}
