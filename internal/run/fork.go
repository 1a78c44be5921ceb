package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/trainer/checkpoint"
)

// Forked is what a fork would begin with.
type Forked struct {
	// Step of the checkpoint.
	Step   int
	Config config.Run
	// Inherited are the amendments of the parent that hold in the fork.
	Inherited []config.Amendment
}

// CheckFork finds out whether a fork would start, and with what. With hold it pins
// the checkpoint for the fork, which unpins it when it has its own. A retry gives
// the same. Errors: InvalidConfig, which changes nothing.
func CheckFork(ctx context.Context, store blob.Store, in Input, hold bool) (Forked, error) {
	if err := artifact.CheckRunID(in.RunID); err != nil {
		return Forked{}, fault.New(fault.InvalidConfig, err)
	}
	_, taken, err := artifact.Lookup[Plan](ctx, store, artifact.Layout{RunID: in.RunID}.Plan())
	if err == nil && taken {
		err = fault.Newf(fault.RunExists, "run id %q exists already: choose another", in.RunID)
	}
	if err != nil {
		return Forked{}, err
	}
	f, err := findFork(ctx, store, in)
	if err == nil && hold {
		err = f.hold(ctx, store, in.RunID)
	}
	return f.forked(), err
}

// held is the reason of the pin on a checkpoint that a fork will begin with.
func held(runID string) string { return "run " + runID + " begins with it" }

// hold pins the checkpoint for the fork, unless somebody has pinned it.
func (f *fork) hold(ctx context.Context, store blob.Store, runID string) error {
	layout, cursor := artifact.Layout{RunID: f.parent.RunID}, f.parent.SFTSteps+f.at.Step
	pins, err := checkpoint.Pins(ctx, store, layout.Checkpoints())
	if _, pinned := pins[cursor]; pinned || err != nil {
		return err
	}
	return checkpoint.Pin(ctx, store, layout.Checkpoints(), cursor, held(runID))
}

// release takes back what hold did.
func (p Plan) release(ctx context.Context, store blob.Store) error {
	return unpinFor(ctx, store, p.Fork.RunID, p.SFTSteps+p.Fork.Step, p.RunID)
}

// unpinFor removes the pin on a parent's checkpoint that a fork has made.
func unpinFor(ctx context.Context, store blob.Store, parent string, cursor int, runID string) error {
	dir := artifact.Layout{RunID: parent}.Checkpoints()
	pins, err := checkpoint.Pins(ctx, store, dir)
	if err != nil || pins[cursor].Reason != held(runID) {
		return err
	}
	return checkpoint.Unpin(ctx, store, dir, cursor)
}

// ResolveFork is CheckFork for a program that has the store and does not know the
// run id of the fork yet.
func ResolveFork(ctx context.Context, store blob.Store, in Input) (Forked, error) {
	f, err := findFork(ctx, store, in)
	return f.forked(), err
}

// fork is a run that is to go on from a checkpoint of another.
type fork struct {
	parent     Plan
	parentCfg  config.Run
	cfg        config.Run // its own
	at         config.Fork
	checkpoint blob.Ref
	skips      []Skip // of the parent, where the configuration is the parent's
	inherited  []config.Amendment
}

func (f *fork) forked() Forked {
	return Forked{Step: f.at.Step, Config: f.cfg, Inherited: f.inherited}
}

// findFork reads the parent, finds the checkpoint and makes the configuration.
func findFork(ctx context.Context, store blob.Store, in Input) (fork, error) {
	var f fork
	if err := artifact.CheckRunID(in.Fork.RunID); err != nil {
		return f, fault.Newf(fault.InvalidConfig, "fork: %w", err)
	}
	parent, ok, err := StoredPlan(ctx, store, in.Fork.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "fork: no run %q is stored (temper run list shows what there is)", in.Fork.RunID)
	}
	if err != nil {
		return f, err
	}
	f.parent = parent
	if f.parentCfg, err = ReadConfig(ctx, store, Ref{RunID: parent.RunID, Config: parent.Config}); err != nil {
		return f, err
	}
	if err := f.choose(ctx, store, *in.Fork); err != nil {
		return f, err
	}
	if !in.configured() {
		if f.skips, err = skips(ctx, store, parent); err != nil {
			return f, err
		}
	}
	return f, f.configure(in)
}

// choose finds the checkpoint that is asked for.
func (f *fork) choose(ctx context.Context, store blob.Store, from ForkFrom) error {
	step, manifest, err := pickCheckpoint(ctx, store, f.parent, from)
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	f.at, f.checkpoint = config.Fork{RunID: f.parent.RunID, Step: step}, manifest
	return nil
}

// pickCheckpoint finds a checkpoint of a run from the end of SFT on.
func pickCheckpoint(ctx context.Context, store blob.Store, run Plan, from ForkFrom) (step int, manifest blob.Ref, err error) {
	refuse := func(format string, args ...any) (int, blob.Ref, error) {
		return 0, blob.Ref{}, fault.Newf(fault.InvalidConfig, format, args...)
	}
	saved, err := checkpoint.List(ctx, store, artifact.Layout{RunID: run.RunID}.Checkpoints())
	if err != nil {
		return 0, blob.Ref{}, err
	}
	saved = slices.DeleteFunc(saved, func(e checkpoint.Entry) bool { return e.Step < run.SFTSteps })
	if len(saved) == 0 {
		return refuse("run %s has no checkpoint after SFT yet: wait for one, or submit its configuration as a run of its own", run.RunID)
	}
	step = from.Step
	switch from.From {
	case "":
	case FromLast:
		step = saved[len(saved)-1].Step - run.SFTSteps
	case FromBest:
		if step, err = bestCheckpoint(ctx, store, run, saved); err != nil {
			return 0, blob.Ref{}, err
		}
	default:
		return refuse("from is %q, want %s or %s, or a step", from.From, FromBest, FromLast)
	}
	var steps []string
	for _, e := range saved {
		if e.Step == run.SFTSteps+step {
			return step, e.Ref, nil
		}
		steps = append(steps, fmt.Sprint(e.Step-run.SFTSteps))
	}
	return refuse("run %s has no checkpoint of step %d: name one of %s", run.RunID, step, strings.Join(steps, ", "))
}

// bestCheckpoint is the first in the order of rewards of BestCursors.
func bestCheckpoint(ctx context.Context, store blob.Store, run Plan, saved []checkpoint.Entry) (int, error) {
	var cursors []int
	for _, e := range saved {
		cursors = append(cursors, e.Step)
	}
	best, err := BestCursors(ctx, store, run.RunID, run.SFTSteps, cursors, math.MaxInt)
	if err != nil {
		return 0, err
	}
	if len(best) == 0 {
		return 0, fault.Newf(fault.InvalidConfig,
			"no step of run %s was made from a checkpoint that is left, so that none is known to be best: name a step or %s", run.RunID, FromLast)
	}
	return best[0] - run.SFTSteps, nil
}

// configure makes the fork's configuration: its own, or the parent's as it is
// at the next step with what comes later, less what is set anew.
func (f *fork) configure(in Input) error {
	var err error
	if in.configured() {
		in.Fork = nil
		f.cfg, err = LoadConfig(in)
	} else {
		parent := f.parentCfg
		if in.Fork.WithoutAmendments {
			parent.Amendments = nil
		}
		f.inherited = inheritedAmendments(parent, in.Set)
		f.cfg, err = inherit(parent, f.at.Step+1, in)
	}
	if err != nil {
		return fault.New(fault.InvalidConfig, err)
	}
	f.cfg.Fork = f.at
	return f.compatible()
}

// inheritedAmendments are the amendments of a parent, less the keys that the fork
// sets anew.
func inheritedAmendments(parent config.Run, set Settings) []config.Amendment {
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

// inherit is the parent's configuration as it is at a step, with the amendments of
// later steps and with what the fork sets anew.
func inherit(parent config.Run, step int, in Input) (config.Run, error) {
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

// compatible refuses what the parent's weights and steps do not allow.
func (f *fork) compatible() error {
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
	own := PlanOf("", f.cfg.At(f.at.Step+1))
	if _, ok := own.stageAt(f.at.Step + 1); !ok {
		out = append(out, config.Problem{Path: "stages", Msg: fmt.Sprintf(
			"end with step %d, and the fork begins after step %d: nothing is left to do; raise the last stage's until.steps", own.NumSteps(), f.at.Step)})
	}
	for i, s := range PlanOf("", p.At(f.at.Step)).Stages {
		if s.FirstStep > f.at.Step || s.Of > 0 {
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

// openFork claims the run id for a fork and takes the checkpoint over, so that
// the parent may delete its own.
func openFork(ctx context.Context, store blob.Store, in Input, by Claim) (Plan, error) {
	layout := artifact.Layout{RunID: in.RunID}
	mine, again, err := artifact.Lookup[storedPlan](ctx, store, layout.Plan())
	if err != nil {
		return Plan{}, err
	}
	if again && mine.Owner == by.Owner && mine.Fork != nil { // an attempt died behind the claim: the step is chosen
		if mine.has(ctx, store) {
			return mine.Plan, mine.release(ctx, store)
		}
		in.Fork = &ForkFrom{RunID: mine.Fork.RunID, Step: mine.Fork.Step, WithoutAmendments: in.Fork.WithoutAmendments}
	}
	f, err := findAndHold(ctx, store, in)
	if err != nil {
		return Plan{}, err
	}
	plan := PlanOf(in.RunID, f.cfg.Newest())
	plan.CheckpointEvery = f.cfg.At(f.at.Step + 1).Checkpoint.EverySteps
	plan.Priority = in.Priority
	if plan.Fork, err = f.plan(ctx, store); err == nil {
		plan, err = claim(ctx, store, plan, f.cfg, by)
	}
	if err != nil {
		return Plan{}, errors.Join(err, f.letGo(ctx, store, in.RunID))
	}
	if err := f.adopt(ctx, store, layout); err != nil {
		return Plan{}, err
	}
	return plan, plan.release(ctx, store)
}

// maxChoices bounds how often a checkpoint is chosen that is deleted before it is
// pinned.
const maxChoices = 5

// findAndHold finds the checkpoint and pins it until it is adopted: a parent that
// goes on deletes old ones. Where one was deleted before the pin, the choice is made
// again, and a step that was named is refused with those that are left.
func findAndHold(ctx context.Context, store blob.Store, in Input) (f fork, err error) {
	for range maxChoices {
		if f, err = findFork(ctx, store, in); err != nil {
			return f, err
		}
		if err = f.hold(ctx, store, in.RunID); !errors.Is(err, blob.ErrNotExist) {
			return f, err
		}
	}
	return f, err
}

// letGo takes back what hold did.
func (f *fork) letGo(ctx context.Context, store blob.Store, runID string) error {
	return unpinFor(ctx, store, f.parent.RunID, f.parent.SFTSteps+f.at.Step, runID)
}

// has reports whether the fork's own copy of the checkpoint is there.
func (p storedPlan) has(ctx context.Context, store blob.Store) bool {
	saved, err := checkpoint.List(ctx, store, artifact.Layout{RunID: p.RunID}.Checkpoints())
	return err == nil && slices.ContainsFunc(saved, func(e checkpoint.Entry) bool { return e.Step == p.SFTSteps+p.Fork.Step })
}

// plan is what the workflow needs to know of the parent.
func (f *fork) plan(ctx context.Context, store blob.Store) (*ForkPlan, error) {
	layout := artifact.Layout{RunID: f.parent.RunID}
	out := &ForkPlan{RunID: f.at.RunID, Step: f.at.Step, Skips: f.skips}
	for i, s := range f.parent.Stages {
		made := 0
		if f.parent.Fork != nil && i < len(f.parent.Fork.Made) {
			made = f.parent.Fork.Made[i]
		}
		for step := s.FirstStep; step < s.FirstStep+s.Steps && step <= f.at.Step; step++ {
			_, err := store.Stat(ctx, layout.BatchStats(step))
			if err == nil {
				made++
			} else if !errors.Is(err, blob.ErrNotExist) {
				return nil, err
			}
		}
		out.Made = append(out.Made, made)
		report, err := f.report(ctx, store, i, s)
		if err != nil {
			return nil, err
		}
		out.Reports = append(out.Reports, report)
	}
	return out, nil
}

// report is what the parent measured of a stage, as far as it holds for the fork.
func (f *fork) report(ctx context.Context, store blob.Store, i int, s Stage) (StageReport, error) {
	out := StageReport{Plan: s}
	if f.parent.Fork != nil && i < len(f.parent.Fork.Reports) {
		out = f.parent.Fork.Reports[i]
		out.Plan = s
	}
	if !f.sameProblems(s.Source()) {
		return StageReport{Plan: s}, nil
	}
	layout := artifact.Layout{RunID: f.parent.RunID}
	for label, into := range map[string]*Evaluation{"before": &out.Before, "after": &out.After} {
		version := int64(0)
		if label == "after" {
			version = f.lastOf(s)
		}
		if version > int64(f.at.Step) {
			continue
		}
		found, ok, err := artifact.Lookup[Evaluation](ctx, store, layout.Eval(s.Source(), label, version))
		if err != nil {
			return out, err
		}
		if ok {
			*into = found
		}
	}
	if s.FirstStep > f.at.Step {
		return out, nil
	}
	filter, ok, err := artifact.Lookup[StoredFilter](ctx, store, layout.Filter(s.Source()))
	if ok {
		out.Filter = filter.FilterResult
	}
	return out, err
}

// lastOf is the last step that the parent made of a stage, or is to make.
func (f *fork) lastOf(s Stage) int64 {
	for _, skip := range f.skips {
		if skip.Stage == s.Index {
			return int64(s.FirstStep + skip.After - 1)
		}
	}
	return int64(s.FirstStep + s.Steps - 1)
}

// skips are the stages that a run was told to end early or leave out, with those
// that it has from its own parent.
func skips(ctx context.Context, store blob.Store, run Plan) ([]Skip, error) {
	var out []Skip
	if run.Fork != nil {
		out = append(out, run.Fork.Skips...)
	}
	events, err := store.List(ctx, artifact.Layout{RunID: run.RunID}.Events()+"/")
	if err != nil {
		return nil, err
	}
	for _, info := range events {
		if artifact.EventKind(info.Key) != EventSkip {
			continue
		}
		var e Event
		if err := blob.ReadJSON(ctx, store, info.Key, &e); err != nil {
			return nil, err
		}
		if e.Skip != nil {
			out = append(out, *e.Skip)
		}
	}
	return out, nil
}

// sameProblems reports whether the fork has the parent's problems of a stage, from 1.
func (f *fork) sameProblems(index int) bool {
	if index > len(f.cfg.Stages) || index > len(f.parentCfg.Stages) {
		return false
	}
	a, b := f.cfg.Stages[index-1].Data, f.parentCfg.Stages[index-1].Data
	return f.cfg.Seed == f.parentCfg.Seed && f.cfg.Eval.NumProblems == f.parentCfg.Eval.NumProblems &&
		a.Path == b.Path && a.Env == b.Env && a.Num == b.Num && slices.Equal(a.Levels, b.Levels)
}

// adopt makes the parent's checkpoint one of the fork's, and the one after SFT
// where the objective refers to it.
func (f *fork) adopt(ctx context.Context, store blob.Store, layout artifact.Layout) error {
	from := artifact.Layout{RunID: f.parent.RunID}.Checkpoints()
	saved, err := checkpoint.List(ctx, store, from)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(saved, func(e checkpoint.Entry) bool { return e.Step == f.cfg.SFT.Steps+f.at.Step }) {
		return fmt.Errorf("fork of run %s, step %d: its checkpoint was deleted meanwhile: %w", f.parent.RunID, f.at.Step, blob.ErrNotExist)
	}
	for _, e := range saved {
		wanted := e.Step == f.cfg.SFT.Steps+f.at.Step || f.cfg.RL.Loss.KL.Coefficient > 0 && e.Step == f.cfg.SFT.Steps
		if !wanted {
			continue
		}
		if _, err := checkpoint.Adopt(ctx, store, e.Ref, layout.Checkpoints()); err != nil {
			return fmt.Errorf("fork of run %s, step %d: %w", f.parent.RunID, f.at.Step, err)
		}
	}
	return nil
}

// prepareFork copies the parent's start, tokenizer and what of its data still
// holds: the fork does not need the parent's folder from here on.
func (p *preparation) prepareFork(ctx context.Context, run Ref) error {
	parent, ok, err := StoredPlan(ctx, p.store, p.cfg.Fork.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.NotFound, "run %s, which run %s is a fork of, is gone", p.cfg.Fork.RunID, run.RunID)
	}
	if err != nil {
		return err
	}
	from := Ref{RunID: parent.RunID, Config: parent.Config}
	f := fork{parent: parent, cfg: p.cfg, at: p.cfg.Fork}
	if f.parentCfg, err = ReadConfig(ctx, p.store, from); err != nil {
		return err
	}
	theirs := artifact.Layout{RunID: parent.RunID}
	ready, ok, err := artifact.Lookup[Prepared](ctx, p.store, theirs.DataReady())
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("data of run %s: %w", parent.RunID, blob.ErrNotExist))
	}
	if err := copyBlob(ctx, p.store, theirs.Tokenizer(), p.layout.Tokenizer()); err != nil {
		return err
	}
	if p.cfg.Rollout.ChatTemplate != "" {
		if err := copyBlob(ctx, p.store, templateKey(theirs), templateKey(p.layout)); err != nil {
			return err
		}
	}
	rc, err := Load(ctx, p.store, from)
	if err != nil {
		return err
	}
	p.format, p.out.VocabSize = rc.Format, ready.VocabSize
	if p.out.Start, err = ready.Start.copyTo(ctx, p.store, p.layout); err != nil {
		return err
	}
	return p.inheritStages(ctx, &f)
}

func (p *preparation) inheritStages(ctx context.Context, f *fork) error {
	theirs := artifact.Layout{RunID: f.parent.RunID}
	for i, s := range p.cfg.Stages {
		index := i + 1
		if !f.sameProblems(index) {
			if err := p.stage(ctx, index, s); err != nil {
				return err
			}
			continue
		}
		keys := [][2]string{
			{theirs.TrainProblems(index), p.layout.TrainProblems(index)},
			{theirs.HeldOutProblems(index), p.layout.HeldOutProblems(index)},
		}
		if f.parent.Stages[i].FirstStep <= f.at.Step {
			keys = append(keys, [2]string{theirs.Filter(index), p.layout.Filter(index)})
		}
		for _, k := range keys {
			if err := copyBlob(ctx, p.store, k[0], k[1]); err != nil && (k[0] != theirs.Filter(index) || !errors.Is(err, blob.ErrNotExist)) {
				return err
			}
		}
	}
	return nil
}

func copyBlob(ctx context.Context, store blob.Store, from, to string) error {
	data, err := blob.ReadKey(ctx, store, from)
	if err != nil {
		return err
	}
	_, err = blob.PutBytes(ctx, store, to, data, blob.Always)
	return err
}
