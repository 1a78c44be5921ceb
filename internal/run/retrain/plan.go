// Package retrain makes scheduled re-trainings: it finds new problems, plans the
// run on a snapshot of them, and judges the policy that comes of it. It does not
// run anything.
//
// Invariant: everything of a schedule lies under its folder, and its pointer to
// the last good policy moves by compare-and-swap alone.
package retrain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// MakePlan looks for problems that no re-training of the schedule was judged on with this
// recipe yet, freezes them in the store and composes the configuration of the run. A retry
// gets the plan of the first attempt, even if the data has changed since. Errors:
// InvalidConfig, Dataset.
func MakePlan(ctx context.Context, store blob.Store, in PlanInput) (Plan, error) {
	s := artifact.Schedule{ID: in.Retrain.ID}
	recipe, err := readRecipe(in.Retrain)
	if err != nil {
		return Plan{}, err
	}
	if plan, ok, err := artifact.Lookup[Plan](ctx, store, s.Plan(in.RunID)); ok || err != nil {
		return plan, err
	}
	files, err := findProblems(ctx, store, in.Retrain.Data)
	if err != nil {
		return Plan{}, err
	}
	problems, err := readProblemFiles(files)
	if err != nil {
		return Plan{}, err
	}
	p := retraining{store: store, schedule: s, recipe: recipe, problems: problems}
	if err := p.composeConfig(ctx, in.Retrain); err != nil {
		return Plan{}, err
	}
	if err := (run.Input{Config: json.RawMessage(p.plan.Config)}).CheckSize(); err != nil {
		return Plan{}, fault.New(fault.InvalidConfig, err)
	}
	p.plan.RunID, p.plan.NumFiles, p.plan.NumProblems = in.RunID, len(files), len(problems)
	if p.plan.Nothing, err = p.reasonForNothing(ctx, in.Retrain.Data); err != nil || p.plan.Nothing != "" {
		return Plan{RunID: in.RunID, Nothing: p.plan.Nothing}, err
	}
	if _, err := blob.PutBytes(ctx, store, p.plan.Data.Key, p.data, blob.IfAbsent); err != nil && !errors.Is(err, blob.ErrExists) {
		return Plan{}, err
	}
	return artifact.PutOnce(ctx, store, s.Plan(in.RunID), p.plan)
}

// readRecipe reads the recipe and checks all that the input says about it.
// Errors: InvalidConfig, with every mistake.
func readRecipe(in Input) (config.Run, error) {
	bad := []error{artifact.CheckScheduleID(in.ID)}
	recipe, err := run.LoadConfig(run.Input{Config: in.Config, Set: in.Set})
	bad = append(bad, err)
	var file string
	if json.Unmarshal(in.Config, &file) == nil && !strings.Contains(file, "\n") && !filepath.IsAbs(file) {
		bad = append(bad, fmt.Errorf("config: %q is relative: want an absolute path", file))
	}
	if len(in.Data) == 0 {
		bad = append(bad, errors.New(`data is empty: want at least one file, folder, glob or store:PREFIX`))
	}
	var stages []string
	for _, s := range recipe.Stages {
		stages = append(stages, s.Name)
	}
	for _, name := range in.Stages {
		if len(stages) > 0 && !slices.Contains(stages, name) {
			bad = append(bad, fmt.Errorf("stages: no stage %q in the recipe, want one of %s", name, strings.Join(stages, ", ")))
		}
	}
	_, err = rules.ParseGates(in.Gate, stages)
	bad = append(bad, err)
	if err := errors.Join(bad...); err != nil {
		return recipe, fault.New(fault.InvalidConfig, err)
	}
	return recipe, nil
}

// Check finds out what is wrong with the input of a schedule before one is
// made: everything in it, and with data also the problems that it names now.
func Check(ctx context.Context, store blob.Store, in Input, data bool) error {
	_, bad := readRecipe(in)
	if !data {
		return bad
	}
	files, err := findProblems(ctx, store, in.Data)
	if err == nil && len(files) == 0 && len(in.Data) > 0 {
		err = fmt.Errorf("data: no file matches %s", strings.Join(in.Data, ", "))
	}
	if err == nil {
		_, err = readProblemFiles(files)
	}
	return errors.Join(bad, err)
}

// retraining is a plan in the making.
type retraining struct {
	store    blob.Store
	schedule artifact.Schedule
	recipe   config.Run
	problems []rl.Problem
	data     []byte // the problems as JSONL
	plan     Plan
}

// composeConfig makes the configuration of the run: the recipe on the snapshot of the
// data, from the last good policy if there is one.
func (p *retraining) composeConfig(ctx context.Context, in Input) error {
	var buf bytes.Buffer
	if err := dataset.Write(&buf, p.problems); err != nil {
		return err
	}
	p.data = buf.Bytes()
	p.plan.Data = blob.RefOf("", p.data)
	p.plan.Data.Key = p.schedule.Data(p.plan.Data.SHA256)
	for i, s := range p.recipe.Stages {
		if len(in.Stages) == 0 || slices.Contains(in.Stages, s.Name) {
			p.recipe.Stages[i].Data.Path = config.StorePath(p.plan.Data.Key)
		}
	}
	cold, err := p.recipe.YAML()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(cold)
	p.plan.Hash, p.plan.Config = hex.EncodeToString(sum[:]), string(cold)
	good, ref, err := readGood(ctx, p.store, p.schedule)
	if err != nil || ref.IsZero() {
		return err
	}
	p.plan.From, p.plan.Good = config.PolicyName(good.RunID, good.Policy.Version), ref
	warm, err := p.recipe.From(p.plan.From, nil)
	if err != nil {
		return fault.Newf(fault.InvalidConfig, "recipe from the policy %s: %w", p.plan.From, err)
	}
	text, err := warm.YAML()
	p.plan.Config = string(text)
	return err
}

// reasonForNothing says why there is nothing to train on, "" when there is.
func (p *retraining) reasonForNothing(ctx context.Context, patterns []string) (string, error) {
	n := len(p.problems)
	if n == 0 {
		return "no problems at " + strings.Join(patterns, ", "), nil
	}
	judged, ok, err := artifact.Lookup[Outcome](ctx, p.store, p.schedule.Judged(p.plan.Hash))
	if err != nil {
		return "", err
	}
	if ok {
		return fmt.Sprintf("nothing new: run %s was %s on the same %d problems and recipe", judged.RunID, judged.Outcome, n), nil
	}
	if train := n - min(p.recipe.Eval.NumProblems, n/2); train < p.recipe.RL.ProblemsPerStep {
		return fmt.Sprintf("%d problems leave %d to train on, rl.problems_per_step is %d", n, train, p.recipe.RL.ProblemsPerStep), nil
	}
	return "", nil
}
