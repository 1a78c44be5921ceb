package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
)

// storedPlan is a RunPlan with the workflow execution that owns the run id.
type storedPlan struct {
	RunPlan
	Owner string `json:"owner"`
	Hash  string `json:"config_sha256"`
}

// OpenRun validates the configuration, claims the run id and freezes the
// configuration in the store; without a configuration it finds the plan of a
// stored run. Errors: InvalidConfig, RunExists.
func (c *Control) OpenRun(ctx context.Context, in RunInput) (RunPlan, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return RunPlan{}, userError(ErrTypeInvalidConfig, err)
	}
	if len(in.Config) == 0 {
		plan, err := c.reopen(ctx, in.RunID)
		return plan, toTemporal(err)
	}
	cfg, err := LoadConfig(in)
	if err != nil {
		return RunPlan{}, userError(ErrTypeInvalidConfig, err)
	}
	plan, err := c.claim(ctx, in.RunID, cfg, activity.GetInfo(ctx).WorkflowExecution.RunID)
	return plan, toTemporal(err)
}

// LoadConfig reads the configuration that a RunInput names or holds. A string
// with a line break is YAML, another string a path, an object the configuration.
func LoadConfig(in RunInput) (config.Run, error) {
	set := map[string]string{}
	for k, v := range in.Set {
		set[k] = v
	}
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

func (c *Control) claim(ctx context.Context, runID string, cfg config.Run, owner string) (RunPlan, error) {
	layout := artifact.Layout{RunID: runID}
	data, err := cfg.YAML()
	if err != nil {
		return RunPlan{}, err
	}
	hash, err := cfg.Hash()
	if err != nil {
		return RunPlan{}, err
	}
	mine := storedPlan{RunPlan: planOf(runID, cfg), Owner: owner, Hash: hash}
	mine.Config = blob.RefOf(layout.Config(), data)
	mine.SearchAttributes = c.SearchAttributes
	stored, err := artifact.PutOnce(ctx, c.Store, layout.Plan(), mine)
	if err != nil {
		return RunPlan{}, err
	}
	if stored.Owner != owner {
		return RunPlan{}, userError(ErrTypeRunExists, fmt.Errorf("run id %q exists already at %s: choose another", runID, c.Store.Locate(layout.Dir())))
	}
	_, err = blob.PutBytes(ctx, c.Store, layout.Config(), data, blob.Always)
	return stored.RunPlan, err
}

// reopen returns the plan of a run that is in the store.
func (c *Control) reopen(ctx context.Context, runID string) (RunPlan, error) {
	stored, ok, err := artifact.Lookup[storedPlan](ctx, c.Store, artifact.Layout{RunID: runID}.Plan())
	if err == nil && !ok {
		err = userError(ErrTypeInvalidConfig, fmt.Errorf(`"config" is missing and no run %q is stored: want {"config": "file.yaml"}, YAML text or an object`, runID))
	}
	return stored.RunPlan, err
}

func planOf(runID string, cfg config.Run) RunPlan {
	p := RunPlan{RunID: runID, Seed: cfg.Seed, SFTSteps: cfg.SFT.Steps, CheckpointEvery: cfg.Checkpoint.EverySteps}
	next := 1
	for i, s := range cfg.Stages {
		p.Stages = append(p.Stages, StagePlan{
			Index: i + 1, Name: s.Name, FirstStep: next, Steps: s.Until.Steps, Filter: s.Filter.Rollouts > 0,
		})
		next += s.Until.Steps
	}
	return p
}

// readConfig loads the frozen configuration and checks it against its Ref.
func readConfig(ctx context.Context, store blob.Store, run RunRef) (config.Run, error) {
	data, err := blob.ReadRef(ctx, store, run.Config)
	if err != nil {
		return config.Run{}, fmt.Errorf("configuration of run %s: %w", run.RunID, err)
	}
	return config.Load(run.Config.Key, data, nil)
}
