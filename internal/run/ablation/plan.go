package ablation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Plan is what an ablation compares. It is stored once, and every later attempt has to
// ask for the same.
type Plan struct {
	ID string `json:"id"`
	// Config is the base recipe with the overrides of all arms, as YAML.
	Config string   `json:"config"`
	Arms   []Arm    `json:"arms"`
	Seeds  []uint64 `json:"seeds"`
}

// Planned is one run of a plan.
type Planned struct {
	RunID string `json:"run_id"`
	Arm   string `json:"arm"`
	Seed  uint64 `json:"seed"`
}

// Runs are the runs in the order in which they are made: all arms of a seed before the
// next seed, so that what is there at any time compares like with like.
func (p Plan) Runs() []Planned {
	var out []Planned
	for _, seed := range p.Seeds {
		for _, a := range p.Arms {
			out = append(out, Planned{RunID: RunID(p.ID, a.Name, seed), Arm: a.Name, Seed: seed})
		}
	}
	return out
}

// Arm finds an arm by its name.
func (p Plan) Arm(name string) Arm {
	i := slices.IndexFunc(p.Arms, func(a Arm) bool { return a.Name == name })
	return p.Arms[i]
}

// Input is what RLRun gets for a run that the store does not have.
func (p Plan) Input(r Planned, priority int) (run.Input, error) {
	text, err := json.Marshal(p.Config)
	if err != nil {
		return run.Input{}, err
	}
	return run.Input{RunID: r.RunID, Config: text, Set: p.Arm(r.Arm).settings(r.Seed), Priority: priority}, nil
}

// MakePlan reads the base recipe, checks every arm on it and that no run of the ablation is
// taken by another configuration, and stores the plan. A repeated call with the same input
// gets the same plan. Errors: InvalidConfig, RunExists.
func MakePlan(ctx context.Context, store blob.Store, in Input) (Plan, error) {
	plan, configs, err := Check(in)
	if err != nil {
		return Plan{}, fault.New(fault.InvalidConfig, err)
	}
	if err := checkTaken(ctx, store, plan, configs); err != nil {
		return Plan{}, err
	}
	stored, err := artifact.PutOnce(ctx, store, artifact.Ablation{ID: plan.ID}.Plan(), plan)
	if err != nil {
		return Plan{}, err
	}
	if what := plan.differs(stored); what != "" {
		return Plan{}, fault.Newf(fault.RunExists, "ablation %s exists already at %s with other %s: choose another id", plan.ID, store.Locate(artifact.Ablation{ID: plan.ID}.Dir()), what)
	}
	return stored, nil
}

// differs names what two plans of one id do not share.
func (p Plan) differs(o Plan) string {
	same := func(a, b any) bool {
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		return errX == nil && errY == nil && string(x) == string(y)
	}
	switch {
	case p.Config != o.Config:
		return "settings (the base configuration)"
	case !same(p.Arms, o.Arms):
		return "arms"
	case !same(p.Seeds, o.Seeds):
		return "seeds"
	default:
		return ""
	}
}

// Check plans without a store: it finds everything that is wrong with the input itself,
// and returns the configuration of each run by its id.
func Check(in Input) (Plan, map[string]config.Run, error) {
	bad := []error{in.Validate()}
	base, err := run.LoadConfig(run.Input{Config: in.Config, Set: in.Set})
	if err = errors.Join(append(bad, err)...); err != nil {
		return Plan{}, nil, err
	}
	text, err := base.YAML()
	if err != nil {
		return Plan{}, nil, err
	}
	plan := Plan{ID: in.ID, Config: string(text), Arms: in.Arms, Seeds: in.Seeds}
	configs, byHash := map[string]config.Run{}, map[string]string{}
	for _, a := range plan.Arms {
		for _, seed := range plan.Seeds {
			cfg, err := config.Load("arm "+a.Name, text, a.settings(seed))
			if err != nil {
				bad = append(bad, err)
				break // each seed has the same mistakes
			}
			hash, err := cfg.Hash()
			if other, ok := byHash[hash]; ok {
				err = fmt.Errorf("arms %q and %q are the same configuration: a comparison of them shows nothing", other, a.Name)
			}
			if err != nil {
				bad = append(bad, err)
				break
			}
			byHash[hash], configs[RunID(in.ID, a.Name, seed)] = a.Name, cfg
		}
	}
	bad = append(bad, run.Input{Config: json.RawMessage(plan.Config)}.CheckSize())
	return plan, configs, errors.Join(bad...)
}

// checkTaken reports every run of the plan whose id another configuration has.
func checkTaken(ctx context.Context, store blob.Store, plan Plan, configs map[string]config.Run) error {
	var bad []error
	for _, r := range plan.Runs() {
		_, err := find(ctx, store, r.RunID, configs[r.RunID])
		if err != nil && fault.Of(err) == "" {
			return err
		}
		bad = append(bad, err)
	}
	return fault.New(fault.RunExists, errors.Join(bad...))
}

// Stored says what the store has of a run.
type Stored string

// States of a run in the store.
const (
	StoredNothing Stored = "nothing" // the store has nothing of it
	StoredBegun   Stored = "begun"   // the store has it without its end: it resumes
	StoredDone    Stored = "done"    // the store has all of it
)

// FindInput asks for a run of a plan.
type FindInput struct {
	ID    string `json:"id"`
	RunID string `json:"run_id"`
}

// Find says what the store has of a run. Errors: RunExists where the run is another one.
func Find(ctx context.Context, store blob.Store, in FindInput) (Stored, error) {
	plan, err := ReadPlan(ctx, store, in.ID)
	if err != nil {
		return "", err
	}
	for _, r := range plan.Runs() {
		if r.RunID == in.RunID {
			cfg, err := config.Load("arm "+r.Arm, []byte(plan.Config), plan.Arm(r.Arm).settings(r.Seed))
			if err != nil {
				return "", fault.New(fault.InvalidConfig, err)
			}
			return find(ctx, store, r.RunID, cfg)
		}
	}
	return "", fault.Newf(fault.NotFound, "ablation %s has no run %s", in.ID, in.RunID)
}

func find(ctx context.Context, store blob.Store, runID string, want config.Run) (Stored, error) {
	stored, ok, err := run.StoredPlan(ctx, store, runID)
	if err != nil || !ok {
		return StoredNothing, err
	}
	have, err := run.ReadConfig(ctx, store, run.Ref{RunID: runID, Config: stored.Config})
	if err != nil {
		return "", err
	}
	same, err := alike(have, want)
	if err != nil {
		return "", err
	}
	if !same {
		return "", fault.Newf(fault.RunExists, "run id %s is taken by another configuration at %s: choose another id for the ablation", runID, history.Place(store, runID))
	}
	r, err := history.Open(ctx, store, runID)
	if err != nil {
		return "", err
	}
	summary, ended, err := r.Summary(ctx)
	if err != nil {
		return "", err
	}
	if ended && !summary.Stopped {
		return StoredDone, nil
	}
	return StoredBegun, nil
}

// alike compares what a run was opened with. The number of updates that stated epochs come
// to is counted when a run opens.
func alike(have, want config.Run) (bool, error) {
	if want.SFT.Epochs > 0 {
		have.SFT.Steps, want.SFT.Steps = 0, 0
	}
	a, err := have.Hash()
	if err != nil {
		return false, err
	}
	b, err := want.Hash()
	return a == b, err
}

// ReadPlan reads the stored plan of an ablation. Errors: InvalidConfig where there is none.
func ReadPlan(ctx context.Context, store blob.Store, id string) (Plan, error) {
	if err := artifact.CheckAblationID(id); err != nil {
		return Plan{}, fault.New(fault.InvalidConfig, err)
	}
	plan, ok, err := artifact.Lookup[Plan](ctx, store, artifact.Ablation{ID: id}.Plan())
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no ablation %q in %s", id, store.Locate(artifact.AblationRoot))
	}
	return plan, err
}

// States of a run of an ablation.
const (
	RunWaiting = "waiting" // its turn has not come
	RunGoing   = "running"
	RunDone    = "done"
	RunFound   = "found" // it was in the store, whole
	RunStopped = "stopped"
	RunFailed  = "failed"
)

// Ended says how a run of an ablation ended.
type Ended struct {
	ID    string `json:"id"`
	RunID string `json:"run_id"`
	State string `json:"state"`
	// Reason says why it failed, or what became of it.
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// RecordEnd stores how a run ended; a later end replaces it.
func RecordEnd(ctx context.Context, store blob.Store, e Ended) error {
	_, err := blob.PutJSON(ctx, store, artifact.Ablation{ID: e.ID}.Ended(e.RunID), e, blob.Always)
	return err
}

// Progress is what is known of the runs of a plan, in their order.
type Progress struct {
	Plan    Plan     `json:"plan"`
	States  []string `json:"states"`
	Reasons []string `json:"reasons"`
	// Paused, Reason, By and Since describe a pause.
	Paused bool       `json:"paused,omitempty"`
	Reason string     `json:"reason,omitempty"`
	By     string     `json:"by,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}
