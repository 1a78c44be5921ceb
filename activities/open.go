package activities

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

	"go.temporal.io/sdk/activity"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
)

// storedPlan is all that OpenRun decides, in one blob, so that no crash leaves a
// plan without its configuration.
type storedPlan struct {
	RunPlan
	// Owner is the workflow execution that has the run id.
	Owner string `json:"owner"`
	// ConfigYAML is the content of the frozen configuration.
	ConfigYAML string `json:"config_yaml"`
}

// OpenRun validates the configuration, claims the run id and freezes the
// configuration in the store; without a configuration it finds the plan of a
// stored run. A retry by the same workflow gets the plan of the first attempt,
// whatever the configuration says by now. Errors: InvalidConfig, RunExists.
func (c *Control) OpenRun(ctx context.Context, in RunInput) (RunPlan, error) {
	plan, err := c.openRun(ctx, in)
	return plan, toTemporal(err)
}

func (c *Control) openRun(ctx context.Context, in RunInput) (RunPlan, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return RunPlan{}, permanent(ErrTypeInvalidConfig, err)
	}
	if in.Priority < 0 || in.Priority > maxPriority {
		return RunPlan{}, permanent(ErrTypeInvalidConfig, fmt.Errorf("priority: is %d, want 1 (first) to %d (last)", in.Priority, maxPriority))
	}
	owner := activity.GetInfo(ctx).WorkflowExecution.RunID
	if in.Fork != nil {
		return c.openFork(ctx, in, owner)
	}
	if !in.configured() {
		return c.reopen(ctx, in.RunID)
	}
	cfg, err := loadConfig(in)
	if err != nil {
		return RunPlan{}, permanent(ErrTypeInvalidConfig, err)
	}
	if cfg.Fork.RunID != "" {
		return RunPlan{}, permanent(ErrTypeInvalidConfig, errors.New(`fork: say it beside the configuration ({"fork": {"run_id": ...}}) or use temper run fork`))
	}
	if err := checkStart(ctx, c.Store, cfg); err != nil {
		return RunPlan{}, err
	}
	plan := planOf(in.RunID, cfg)
	plan.Priority = in.Priority
	return c.claim(ctx, plan, cfg, owner)
}

// maxPriority is the priority of the runs that come last.
const maxPriority = 5

// configured reports whether a configuration is given.
func (in RunInput) configured() bool {
	text := bytes.TrimSpace(in.Config)
	return len(text) > 0 && string(text) != "null"
}

// loadConfig reads the configuration that a RunInput names or holds. A string
// with a line break is YAML, another string a path, an object the configuration.
func loadConfig(in RunInput) (config.Run, error) {
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
func (c *Control) claim(ctx context.Context, plan RunPlan, cfg config.Run, owner string) (RunPlan, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	data, err := cfg.YAML()
	if err != nil {
		return RunPlan{}, err
	}
	mine := storedPlan{RunPlan: plan, Owner: owner, ConfigYAML: string(data)}
	mine.Config = blob.RefOf(layout.Config(), data)
	mine.SearchAttributes, mine.ProgressAttributes = c.SearchAttributes, c.SearchAttributes
	stored, err := artifact.PutOnce(ctx, c.Store, layout.Plan(), mine)
	if err != nil {
		return RunPlan{}, err
	}
	if stored.Owner != owner {
		return RunPlan{}, permanent(ErrTypeRunExists, fmt.Errorf("run id %q exists already at %s: choose another", plan.RunID, c.Store.Locate(layout.Dir())))
	}
	_, err = blob.PutBytes(ctx, c.Store, layout.Config(), []byte(stored.ConfigYAML), blob.Always)
	return stored.RunPlan, err
}

// reopen returns the plan of a run that is in the store.
func (c *Control) reopen(ctx context.Context, runID string) (RunPlan, error) {
	plan, ok, err := StoredPlan(ctx, c.Store, runID)
	if err == nil && !ok {
		err = permanent(ErrTypeInvalidConfig, fmt.Errorf(`"config" is missing and no run %q is stored: want {"config": "file.yaml"}, YAML text or an object`, runID))
	}
	return plan, err
}

// StoredPlan is the plan of a run in the store with all amendments; ok is false
// when there is no such run.
func StoredPlan(ctx context.Context, store blob.Store, runID string) (plan RunPlan, ok bool, err error) {
	layout := artifact.Layout{RunID: runID}
	stored, ok, err := artifact.Lookup[storedPlan](ctx, store, layout.Plan())
	if err != nil || !ok {
		return RunPlan{}, ok, err
	}
	newest, amended, err := artifact.Lookup[blob.Ref](ctx, store, layout.NewestConfig())
	if err != nil || !amended {
		return stored.RunPlan, true, err
	}
	cfg, err := readConfig(ctx, store, RunRef{RunID: runID, Config: newest})
	if err != nil {
		return RunPlan{}, true, err
	}
	plan = stored.RunPlan
	plan.Config, plan.Stages = newest, planOf(runID, cfg.Newest()).Stages
	return plan, true, nil
}

// planOf is what the workflows need to know of a configuration.
func planOf(runID string, cfg config.Run) RunPlan {
	p := RunPlan{RunID: runID, Seed: cfg.Seed, SFTSteps: cfg.SFT.Steps, CheckpointEvery: cfg.Checkpoint.EverySteps}
	next := 1
	for i, s := range cfg.Stages {
		p.Stages = append(p.Stages, StagePlan{
			Index: i + 1, Name: s.Name, FirstStep: next, Steps: s.Until.Steps, Filter: s.Filter.Rollouts > 0,
		})
		next += s.Until.Steps
	}
	times := map[int]int{}
	for _, i := range cfg.Repeated() {
		s := cfg.Stages[i]
		times[i]++
		p.Stages = append(p.Stages, StagePlan{
			Index: len(p.Stages) + 1, Name: fmt.Sprintf("%s.%d", s.Name, times[i]+1), FirstStep: next, Steps: s.Until.Steps, Of: i + 1,
		})
		next += s.Until.Steps
	}
	return p
}

// stageAt is the stage that a step belongs to.
func (p RunPlan) stageAt(step int) (StagePlan, bool) {
	for _, s := range p.Stages {
		if step >= s.FirstStep && step < s.FirstStep+s.Steps {
			return s, true
		}
	}
	return StagePlan{}, false
}

// readConfig loads the frozen configuration and checks it against its Ref.
func readConfig(ctx context.Context, store blob.Store, run RunRef) (config.Run, error) {
	data, err := blob.ReadRef(ctx, store, run.Config)
	if err != nil {
		return config.Run{}, fmt.Errorf("configuration of run %s: %w", run.RunID, err)
	}
	return config.Load(run.Config.Key, data, nil)
}
