package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/proc/buildinfo"
	"temper/internal/run/artifact"
)

// Plan is what the workflows know of a run: small, derived once by OpenRun.
type Plan struct {
	RunID string `json:"run_id"`
	Seed  uint64 `json:"seed"`
	// Config is the frozen configuration in the store.
	Config blob.Ref `json:"config"`
	// SFTSteps is the number of supervised updates.
	SFTSteps int `json:"sft_steps"`
	// CheckpointEvery is the number of RL steps between checkpoints.
	CheckpointEvery int     `json:"checkpoint_every"`
	Stages          []Stage `json:"stages"`
	// SearchAttributes says whether the server knows RunID, Stage and Step; an
	// upsert of an unknown attribute would block the workflow for good.
	SearchAttributes bool `json:"search_attributes"`
	// ProgressAttributes says the same of Reward and RunStatus.
	ProgressAttributes bool `json:"progress_attributes,omitempty"`
	// Priority of Input.
	Priority int `json:"priority,omitempty"`
	// Fork is set for a run that starts from a checkpoint of another.
	Fork *ForkPlan `json:"fork,omitempty"`
	// NumRolloutShards is into how many parts the sampling of a step is cut; 0 is one.
	// It belongs to the place, not to the run: it is not stored, and no bit depends on it.
	NumRolloutShards int `json:"num_rollout_shards,omitempty"`
	// Window is how many steps sampling runs ahead of learning.
	Window int `json:"window,omitempty"`
	// PartialTokens is how many response tokens of a trajectory one policy samples before
	// the next one continues it; 0 = one policy samples all.
	PartialTokens int `json:"partial_rollout_tokens,omitempty"`
	// EvalSets are evaluated beside the held-out problems of the stages.
	EvalSets []EvalSet `json:"eval_sets,omitempty"`
	// Gate says that the policy after SFT must pass before RL begins.
	Gate bool `json:"gate,omitempty"`
}

// EvalSet is a set of problems with separate settings.
type EvalSet struct {
	Name string `json:"name"`
	// EverySteps is the number of steps between evaluations within stages; 0 = none.
	EverySteps int `json:"every_steps,omitempty"`
}

// NumSteps is the number of RL steps of all stages.
func (p Plan) NumSteps() int {
	n := 0
	for _, s := range p.Stages {
		n += s.Steps
	}
	return n
}

// sampledWith is the first step that samples with a policy: the one after it, and with a
// window so many more after that. A policy that is published near the end of its stage
// samples nothing.
func (p Plan) sampledWith(version int) (step int, ok bool) {
	step = version + 1
	if p.Window == 0 {
		return step, true
	}
	for _, s := range p.Stages {
		last := s.FirstStep + s.Steps - 1
		if step < s.FirstStep || step > last {
			continue
		}
		if step > s.FirstStep {
			step += p.Window
		}
		return step, step <= last
	}
	return 0, false
}

// FirstOf is the first step of a stage that this run makes: a fork may begin within it.
func (p Plan) FirstOf(s Stage) int {
	if p.Fork != nil {
		return max(s.FirstStep, p.Fork.Step+1)
	}
	return s.FirstStep
}

// ForkPlan is where a fork begins and what its parent had by then.
type ForkPlan struct {
	RunID string `json:"run_id"`
	Step  int    `json:"step"`
	// Made counts the steps that each stage had made, by plan.
	Made []int `json:"made,omitempty"`
	// Reports hold the parent's evaluations and filters of the stages.
	Reports []StageReport `json:"reports,omitempty"`
	// Skips are the parent's, also those that its later steps are to come to.
	Skips []Skip `json:"skips,omitempty"`
}

// Stage is one RL stage. Steps are numbered through the whole run, from 1.
type Stage struct {
	Index     int    `json:"index"` // from 1
	Name      string `json:"name"`
	FirstStep int    `json:"first_step"`
	Steps     int    `json:"steps"`
	// Filter is set when problems are filtered by the current policy first.
	Filter bool `json:"filter,omitempty"`
	// Judged says that the stage may end, or be held, by the figures of its steps.
	Judged bool `json:"judged,omitempty"`
	// Refill bounds the rounds in which a step replaces groups that teach nothing.
	Refill int `json:"refill,omitempty"`
	// Of is the stage that this one repeats, from 1; 0 = none.
	Of int `json:"of,omitempty"`
	// Offset is the number of steps that earlier runs of the stage have made: the ledger
	// continues after them.
	Offset int `json:"offset,omitempty"`
}

// Source is the stage, from 1, whose problems and limits this one has.
func (p Stage) Source() int {
	if p.Of > 0 {
		return p.Of
	}
	return p.Index
}

// Policy is a published policy. Version 0 is the result of SFT; version n was
// published by step n.
type Policy struct {
	Version int64    `json:"version"`
	Ref     blob.Ref `json:"ref"`
}

// PolicySpan is a stretch of each trajectory of a step: its response tokens up to Until
// that the spans before it have not, sampled by one policy. Until 0 is the end.
type PolicySpan struct {
	Until  int    `json:"until,omitempty"`
	Policy Policy `json:"policy"`
}

// Ref names a run and its frozen configuration; every activity takes it.
type Ref struct {
	RunID  string   `json:"run_id"`
	Config blob.Ref `json:"config"`
}

// PlanOf is what the workflows need to know of a configuration.
func PlanOf(runID string, cfg config.Run) Plan {
	p := Plan{RunID: runID, Seed: cfg.Seed, SFTSteps: cfg.SFT.Steps, CheckpointEvery: cfg.Checkpoint.EverySteps, Window: cfg.RL.Window, Gate: cfg.SFT.Gate.On(), PartialTokens: cfg.RL.PartialRolloutTokens}
	for _, s := range cfg.Eval.Sets {
		p.EvalSets = append(p.EvalSets, EvalSet{Name: s.Name, EverySteps: s.EverySteps})
	}
	next := 1
	for i, s := range cfg.Stages {
		p.Stages = append(p.Stages, Stage{
			Index: i + 1, Name: s.Name, FirstStep: next, Steps: s.Until.Steps, Filter: s.Filter.On(),
			Judged: cfg.Judged(i), Refill: cfg.RL.Refill.Rounds,
		})
		next += s.Until.Steps
	}
	times := map[int]int{}
	for _, i := range cfg.Repeated() {
		s := cfg.Stages[i]
		times[i]++
		p.Stages = append(p.Stages, Stage{
			Index: len(p.Stages) + 1, Name: fmt.Sprintf("%s.%d", s.Name, times[i]+1), FirstStep: next, Steps: s.Until.Steps, Of: i + 1,
			Judged: cfg.Judged(i), Refill: cfg.RL.Refill.Rounds,
		})
		next += s.Until.Steps
	}
	return p
}

// Opened is all that is decided when a run is opened, in one blob, so that no crash
// leaves a plan without its configuration.
type Opened struct {
	Plan
	// Format is the form in which the run is stored; see Format.
	Format int `json:"format"`
	// Version is the release that opened the run.
	Version string `json:"version"`
	// Owner is the workflow execution that opened the run; see OwnerOf.
	Owner string `json:"owner"`
	// OwnerWorkflow and OwnerNamespace are where the server has it.
	OwnerWorkflow  string `json:"owner_workflow,omitempty"`
	OwnerNamespace string `json:"owner_namespace,omitempty"`
	// ConfigYAML is the content of the frozen configuration.
	ConfigYAML string `json:"config_yaml"`
}

// Owner is the workflow execution that a run belongs to.
type Owner struct {
	// Execution is the server's id of the execution, its "run id".
	Execution string `json:"execution"`
	Workflow  string `json:"workflow,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Since and Why are set where the run was taken over.
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// OwnerOf is who the run belongs to now, with the Ref of its record. That is zero
// where the run belongs to the execution that opened it.
func OwnerOf(ctx context.Context, store blob.Store, opened Opened) (Owner, blob.Ref, error) {
	key := artifact.Layout{RunID: opened.RunID}.Owner()
	data, err := blob.ReadKey(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return Owner{Execution: opened.Owner, Workflow: opened.OwnerWorkflow, Namespace: opened.OwnerNamespace}, blob.Ref{}, nil
	}
	var owner Owner
	if err == nil {
		if err = json.Unmarshal(data, &owner); err != nil {
			err = fmt.Errorf("decode %s: %w: %w", store.Locate(key), err, blob.ErrCorrupt)
		}
	}
	return owner, blob.RefOf(key, data), err
}

// Format is the form in which this build stores runs. A change after which a build reads
// only its own runs raises it.
const Format = 1

// CheckFormat refuses a run that another build has stored in a form that this one does not
// read. Errors: InvalidConfig.
func (o Opened) CheckFormat() error {
	switch {
	case o.Format == Format:
		return nil
	case o.Format == 0:
		return fault.Newf(fault.InvalidConfig, "run %s was stored by a build before v0.1.0, which temper %s does not read: read it with that build, or submit its config.yaml as a new run",
			o.RunID, buildinfo.Version)
	default:
		return fault.Newf(fault.InvalidConfig, "run %s is stored in format %d by temper %s, and temper %s reads format %d: read it with temper %s, or submit its config.yaml as a new run",
			o.RunID, o.Format, cmp.Or(o.Version, "of an unknown version"), buildinfo.Version, Format, cmp.Or(o.Version, "of that version"))
	}
}

// ReadOpened reads what was decided when a run was opened; ok is false when there is no
// such run. Errors: InvalidConfig for a run of another format.
func ReadOpened(ctx context.Context, store blob.Store, runID string) (opened Opened, ok bool, err error) {
	opened, ok, err = artifact.Lookup[Opened](ctx, store, artifact.Layout{RunID: runID}.Plan())
	if err != nil || !ok {
		return opened, ok, err
	}
	opened.RunID = runID
	return opened, true, opened.CheckFormat()
}

// StoredPlan is the plan of a run in the store with all amendments; ok is false
// when there is no such run. Errors: InvalidConfig for a run of another format.
func StoredPlan(ctx context.Context, store blob.Store, runID string) (plan Plan, ok bool, err error) {
	layout := artifact.Layout{RunID: runID}
	stored, ok, err := ReadOpened(ctx, store, runID)
	if err != nil || !ok {
		return Plan{}, ok, err
	}
	newest, amended, err := artifact.Lookup[blob.Ref](ctx, store, layout.Config().Newest())
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

// Reopen returns the plan of a run that is in the store. Errors: InvalidConfig
// when there is none.
func Reopen(ctx context.Context, store blob.Store, runID string) (Plan, error) {
	plan, ok, err := StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, `"config" is missing and no run %q is stored: want {"config": "file.yaml"}, YAML text or an object`, runID)
	}
	return plan, err
}

// ReadConfig loads the frozen configuration and checks it against its Ref.
func ReadConfig(ctx context.Context, store blob.Store, run Ref) (config.Run, error) {
	data, err := blob.ReadRef(ctx, store, run.Config)
	if err != nil {
		return config.Run{}, fmt.Errorf("configuration of run %s: %w", run.RunID, err)
	}
	return config.Load(run.Config.Key, data, nil)
}
