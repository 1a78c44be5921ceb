package setup

import (
	"context"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Forked is what a fork would begin with.
type Forked struct {
	// Step of the checkpoint.
	Step   int
	Config config.Run
	// Inherited are the amendments of the parent that hold in the fork.
	Inherited []config.Amendment
}

// CheckFork finds out whether a fork would start, and with what. With pin it pins
// the checkpoint for the fork, which unpins it when it has its own. A retry gives
// the same. Errors: InvalidConfig, which changes nothing.
func CheckFork(ctx context.Context, store blob.Store, in run.Input, pin bool) (Forked, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return Forked{}, fault.New(fault.InvalidConfig, err)
	}
	_, taken, err := artifact.Lookup[run.Plan](ctx, store, artifact.Layout{RunID: in.RunID}.Plan())
	if err == nil && taken {
		err = fault.Newf(fault.RunExists, "run id %q exists already: choose another", in.RunID)
	}
	if err != nil {
		return Forked{}, err
	}
	f, err := findFork(ctx, store, in)
	if err == nil && pin {
		err = f.pin(ctx, store, in.RunID)
	}
	return f.forked(), err
}

// ResolveFork is CheckFork for a program that has the store and does not know the
// run id of the fork yet.
func ResolveFork(ctx context.Context, store blob.Store, in run.Input) (Forked, error) {
	f, err := findFork(ctx, store, in)
	return f.forked(), err
}

// fork is a run that is to start from a checkpoint of another.
type fork struct {
	parent     run.Plan
	parentCfg  config.Run
	cfg        config.Run // its own
	from       config.Fork
	checkpoint blob.Ref
	skips      []run.Skip // of the parent, where the configuration is the parent's
	inherited  []config.Amendment
}

func (f *fork) forked() Forked {
	return Forked{Step: f.from.Step, Config: f.cfg, Inherited: f.inherited}
}

// findFork reads the parent, finds the checkpoint and makes the configuration.
func findFork(ctx context.Context, store blob.Store, in run.Input) (fork, error) {
	var f fork
	if err := artifact.CheckRunID(in.Fork.RunID); err != nil {
		return f, fault.Newf(fault.InvalidConfig, "fork: %w", err)
	}
	parent, ok, err := run.StoredPlan(ctx, store, in.Fork.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "fork: no run %q is stored (temper run list shows what there is)", in.Fork.RunID)
	}
	if err != nil {
		return f, err
	}
	f.parent = parent
	if f.parentCfg, err = run.ReadConfig(ctx, store, run.Ref{RunID: parent.RunID, Config: parent.Config}); err != nil {
		return f, err
	}
	if err := f.chooseCheckpoint(ctx, store, *in.Fork); err != nil {
		return f, err
	}
	if !configured(in) {
		if f.skips, err = readSkips(ctx, store, parent); err != nil {
			return f, err
		}
	}
	return f, f.makeConfig(in)
}

// chooseCheckpoint finds the checkpoint that is asked for.
func (f *fork) chooseCheckpoint(ctx context.Context, store blob.Store, from run.ForkFrom) error {
	step, manifest, err := run.PickCheckpoint(ctx, store, f.parent, from)
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	f.from, f.checkpoint = config.Fork{RunID: f.parent.RunID, Step: step}, manifest
	return nil
}

// makeConfig makes the fork's configuration: its own, or the parent's as it is
// at the next step with what comes later, less what is set anew.
func (f *fork) makeConfig(in run.Input) error {
	var err error
	if configured(in) {
		in.Fork = nil
		f.cfg, err = run.LoadConfig(in)
	} else {
		parent := f.parentCfg
		if in.Fork.WithoutAmendments {
			parent.Amendments = nil
		}
		f.inherited = inheritedAmendments(parent, in.Set)
		f.cfg, err = inheritConfig(parent, f.from.Step+1, in)
	}
	if err != nil {
		return fault.New(fault.InvalidConfig, err)
	}
	f.cfg.Fork = f.from
	return f.checkCompatible()
}

// inheritedAmendments are the amendments of a parent, less the keys that the fork
// sets anew.
func inheritedAmendments(parent config.Run, set run.Settings) []config.Amendment {
	var out []config.Amendment
	for _, a := range parent.Amendments {
		kept := map[string]string{}
		for key, value := range a.Set {
			if _, anew := set[key]; !anew {
				kept[key] = value
			}
		}
		if a.Set = kept; len(kept) > 0 || a.Repeat != "" {
			out = append(out, a)
		}
	}
	return out
}

// inheritConfig is the parent's configuration as it is at a step, with the amendments
// of later steps and with what the fork sets anew.
func inheritConfig(parent config.Run, step int, in run.Input) (config.Run, error) {
	base := parent.At(step)
	base.Fork = config.Fork{}
	for _, a := range inheritedAmendments(parent, in.Set) {
		if a.FromStep > step {
			base.Amendments = append(base.Amendments, a)
		}
	}
	data, err := base.YAML()
	if err != nil {
		return config.Run{}, err
	}
	set := map[string]string{}
	for key, value := range in.Set {
		set[key] = value
	}
	if in.Seed != nil {
		set["seed"] = fmt.Sprint(*in.Seed)
	}
	return config.Load("configuration of run "+in.Fork.RunID, data, set)
}

// checkCompatible refuses what the parent's weights and steps do not allow.
func (f *fork) checkCompatible() error {
	var out config.Problems
	differ := func(key string, same bool, why string) {
		if !same {
			out = append(out, config.Problem{Path: key, Msg: fmt.Sprintf("differs from run %s, which is forked: %s", f.parent.RunID, why)})
		}
	}
	p := f.parentCfg
	differ("model", f.cfg.Model == p.Model, "its weights have another shape; submit a run of its own")
	differ("tokenizer", f.cfg.Tokenizer == p.Tokenizer, "its weights know other tokens; submit a run of its own")
	differ("rollout.chat_template", f.cfg.Rollout.ChatTemplate == p.Rollout.ChatTemplate, "its weights know this form of conversation; submit a run of its own")
	differ("sft.steps", f.cfg.SFT.Steps == p.SFT.Steps, "its supervised updates are made")
	own := run.PlanOf("", f.cfg.At(f.from.Step+1))
	if !hasStep(own, f.from.Step+1) {
		out = append(out, config.Problem{Path: "stages", Msg: fmt.Sprintf(
			"end with step %d, and the fork begins after step %d: nothing is left to do; raise the last stage's until.steps", own.NumSteps(), f.from.Step)})
	}
	for i, s := range run.PlanOf("", p.At(f.from.Step)).Stages {
		if s.FirstStep > f.from.Step || s.Of > 0 {
			break
		}
		same := i < len(own.Stages) && own.Stages[i].FirstStep == s.FirstStep && own.Stages[i].Name == s.Name
		differ(fmt.Sprintf("stages[%d]", i), same, "the stages that it has begun keep their name and their first step")
	}
	if len(out) > 0 {
		return out
	}
	return nil
}

// readSkips reads the stages that commands ended early or left out of a run, with those
// that it has from its own parent.
func readSkips(ctx context.Context, store blob.Store, plan run.Plan) ([]run.Skip, error) {
	var out []run.Skip
	if plan.Fork != nil {
		out = append(out, plan.Fork.Skips...)
	}
	events, err := store.List(ctx, artifact.Layout{RunID: plan.RunID}.Events().Dir()+"/")
	if err != nil {
		return nil, err
	}
	for _, info := range events {
		if artifact.EventKind(info.Key) != run.EventSkip {
			continue
		}
		var e run.Event
		if err := blob.ReadJSON(ctx, store, info.Key, &e); err != nil {
			return nil, err
		}
		if e.Skip != nil {
			out = append(out, *e.Skip)
		}
	}
	return out, nil
}

// hasStep reports whether a step belongs to a stage of the plan.
func hasStep(plan run.Plan, step int) bool {
	return slices.ContainsFunc(plan.Stages, func(s run.Stage) bool { return step >= s.FirstStep && step < s.FirstStep+s.Steps })
}
