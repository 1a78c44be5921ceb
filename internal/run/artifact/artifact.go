// Package artifact owns the only key layout of a run in the store and the
// typed access to what lies there: configuration, data, trajectories, batches,
// checkpoints, policies, numbers. It knows no algorithm.
//
// Invariant: everything of a run lies under one folder, except its entry in the
// catalog, which can be made again from the folder. No other package makes keys.
package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
)

// Root is the folder of all runs, CatalogRoot that of their entries in the catalog.
const (
	Root        = "runs"
	CatalogRoot = "catalog"
)

var runIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckRunID says what is wrong with a run id, if anything.
func CheckRunID(id string) error {
	if !runIDForm.MatchString(id) {
		return fmt.Errorf("run id %q: want 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit", id)
	}
	return nil
}

// Layout makes the keys of one run.
type Layout struct{ RunID string }

// Dir is the folder of the run.
func (l Layout) Dir() string { return path.Join(Root, l.RunID) }

func (l Layout) key(parts ...string) string {
	return path.Join(append([]string{Root, l.RunID}, parts...)...)
}

// Catalog is what the list of runs says of this one, beside the runs' folders so
// that one short listing finds all entries.
func (l Layout) Catalog() string { return path.Join(CatalogRoot, l.RunID+".json") }

// Config is the frozen configuration.
func (l Layout) Config() string { return l.key("config.yaml") }

// AmendedConfig is the configuration with its first n amendments, named by its
// content.
func (l Layout) AmendedConfig(n int, sha256 string) string {
	return l.key("config", fmt.Sprintf("config-%03d-%.12s.yaml", n, sha256))
}

// NewestConfig says which amended configuration counts.
func (l Layout) NewestConfig() string { return l.key("config", "newest.json") }

// Plan is what was decided when the run was opened.
func (l Layout) Plan() string { return l.key("plan.json") }

// Notes are what people say of the run. They may be replaced at any time.
func (l Layout) Notes() string { return l.key("notes.json") }

// Owner is who has taken the run over from the execution that opened it; most runs
// have none.
func (l Layout) Owner() string { return l.key("owner.json") }

// Tokenizer is the tokenizer.json of the run.
func (l Layout) Tokenizer() string { return l.key("tokenizer.json") }

// DataReady marks that all data of the run is complete.
func (l Layout) DataReady() string { return l.key("data", "ready.json") }

// Dialogues is the supervised data.
func (l Layout) Dialogues() string { return l.key("data", "sft.jsonl") }

// TrainProblems is the training set of a stage (from 1).
func (l Layout) TrainProblems(stage int) string {
	return l.key("data", fmt.Sprintf("stage-%02d-train.jsonl", stage))
}

// HeldOutProblems is the evaluation set of a stage.
func (l Layout) HeldOutProblems(stage int) string {
	return l.key("data", fmt.Sprintf("stage-%02d-heldout.jsonl", stage))
}

// Filter is the result of the offline filter of a stage.
func (l Layout) Filter(stage int) string {
	return l.key("data", fmt.Sprintf("stage-%02d-filter.json", stage))
}

// FilterProblem is what the filter of a stage found of one problem.
func (l Layout) FilterProblem(stage int, problemID string) string {
	return l.key("data", fmt.Sprintf("stage-%02d-filter", stage), problemID+".json")
}

// Steps is the folder of all steps.
func (l Layout) Steps() string { return l.key("steps") }

// Step makes keys within a step's folder.
func (l Layout) Step(step int, parts ...string) string {
	return l.key(append([]string{"steps", fmt.Sprintf("%06d", step)}, parts...)...)
}

// Groups is the folder of the trajectories of a step.
func (l Layout) Groups(step int) string { return l.Step(step, "trajectories") }

// Group is the trajectories of one problem in a step: one JSON object a line, or a
// compact record where there are many tokens (package record).
func (l Layout) Group(step int, problemID string) string {
	return l.Step(step, "trajectories", problemID+".jsonl")
}

// Samples is what the trainer gets of one problem in a step.
func (l Layout) Samples(step int, problemID string) string {
	return l.Step(step, "samples", problemID+".bin")
}

// Shard is what one call has sampled in a step, named by its problems. It is deleted
// when the batch is stored.
func (l Layout) Shard(step int, sha256 string) string {
	return l.Step(step, "shards", fmt.Sprintf("%.16s.json", sha256))
}

// EndedFolder is the folder of trajectories that have ended while others of their groups
// have not. It is deleted when the batch is stored.
func (l Layout) EndedFolder(step int) string { return l.Step(step, "ended") }

// Ended is some of those trajectories, named by their content.
func (l Layout) Ended(step int, sha256 string) string {
	return l.Step(step, "ended", fmt.Sprintf("%.16s.bin", sha256))
}

// PartsFolder is the folder of groups of which trajectories were cut and go on under a
// newer policy, after so many parts. It is deleted when the batch is stored.
func (l Layout) PartsFolder(step, parts int) string {
	return l.Step(step, "parts", fmt.Sprintf("%02d", parts))
}

// Part is the group of one problem after so many parts.
func (l Layout) Part(step, parts int, problemID string) string {
	return l.Step(step, "parts", fmt.Sprintf("%02d", parts), problemID+".bin")
}

// Batch says what the trainer got in a step, and what it did not get.
func (l Layout) Batch(step int) string { return l.Step(step, "batch.json") }

// Index has a row for each trajectory of a step; it stays when these are deleted.
func (l Layout) Index(step int) string { return l.Step(step, "index.zst") }

// Entropies are the mean entropies of the trajectories of which the trainer has recorded
// tokens. They stay when these are deleted.
func (l Layout) Entropies(step int) string { return l.Step(step, "entropies.zst") }

// TimesFolder has what the trajectories of a step took, as far as those know who sampled
// them. It is no part of the run's bits.
func (l Layout) TimesFolder(step int) string { return l.Step(step, "times") }

// Times is a part of that, by the sum of its content.
func (l Layout) Times(step int, sha256 string) string {
	return path.Join(l.TimesFolder(step), fmt.Sprintf("%.12s.zst", sha256))
}

// OutputsFolder has the whole outputs of the calls of a step, where the run keeps them.
func (l Layout) OutputsFolder(step int) string { return l.Step(step, "outputs") }

// Outputs is a part of that, by the sum of its content.
func (l Layout) Outputs(step int, sha256 string) string {
	return path.Join(l.OutputsFolder(step), fmt.Sprintf("%.12s.zst", sha256))
}

// TokensFolder has what the trainer says of the tokens of a step, where the run records it.
func (l Layout) TokensFolder(step int) string { return l.Step(step, "tokens") }

// Tokens is that of one problem.
func (l Layout) Tokens(step int, problemID string) string {
	return path.Join(l.TokensFolder(step), problemID+".zst")
}

// SeriesSteps is how many steps a block of records has.
const SeriesSteps = 64

// Series is a block of the records of steps, a line each, of which block n ends with step
// n*SeriesSteps: a reader of a long run needs one request for all of them.
func (l Layout) Series(n int) string {
	return l.key("series", fmt.Sprintf("%06d.jsonl", n))
}

// TensorBoard is an event file of TensorBoard with a step: TensorBoard reads the files of a folder in the order
// of their names.
func (l Layout) TensorBoard(step int, ended time.Time) string {
	return l.key("tensorboard", fmt.Sprintf("events.out.tfevents.%010d.step-%06d", ended.Unix(), step))
}

// BatchStats is the result of building that batch.
func (l Layout) BatchStats(step int) string { return l.Step(step, "rollouts.json") }

// TrainResult is what the update of a step did.
func (l Layout) TrainResult(step int) string { return l.Step(step, "train.json") }

// Watch is what the rules of the run's watch know after a step.
func (l Layout) Watch(step int) string { return l.Step(step, "watch.json") }

// StepLog is the line of numbers of a step.
func (l Layout) StepLog(step int) string { return l.Step(step, "step.json") }

// SFTResults is the folder of what supervised updates did.
func (l Layout) SFTResults() string { return l.key("sft") }

// SFTResult is what the supervised updates up to n did.
func (l Layout) SFTResult(n int) string { return l.key("sft", fmt.Sprintf("%06d.json", n)) }

// Policy is the folder of a published policy in Hugging Face layout.
func (l Layout) Policy(version int64) string { return l.key("policies", fmt.Sprintf("v%06d", version)) }

// PolicyRef says where the published policy of a version is.
func (l Layout) PolicyRef(version int64) string {
	return l.key("policies", fmt.Sprintf("v%06d.json", version))
}

// Checkpoints is the folder of all checkpoints.
func (l Layout) Checkpoints() string { return l.key("checkpoints") }

// Head says who may write to the run and which checkpoint is its newest.
func (l Layout) Head() string { return l.key("head.json") }

// Diverged is the report of an update that was refused, by its cursor.
func (l Layout) Diverged(cursor int) string {
	return l.key("diverged", fmt.Sprintf("%06d.json", cursor))
}

// Evals is the folder of all evaluations.
func (l Layout) Evals() string { return l.key("evals") }

// Eval is one evaluation's result; label says when in the run it was made.
func (l Layout) Eval(stage int, label string, version int64) string {
	return l.key("evals", fmt.Sprintf("stage-%02d-%s-v%06d.json", stage, label, version))
}

// EvalTrajectories is the record of an evaluation's rollouts.
func (l Layout) EvalTrajectories(stage int, label string, version int64) string {
	return l.key("evals", fmt.Sprintf("stage-%02d-%s-v%06d.jsonl", stage, label, version))
}

// EvalGroup is the trajectories of one problem while the evaluation is under way. how
// names the way of sampling: greedy or sampled.
func (l Layout) EvalGroup(stage int, label string, version int64, how, problemID string) string {
	return l.key("evals", fmt.Sprintf("stage-%02d-%s-v%06d", stage, label, version), how, problemID+".jsonl")
}

// EvalSet is the result of a policy on a set of eval.sets.
func (l Layout) EvalSet(name string, version int64) string {
	return l.key("evals", fmt.Sprintf("set-%s-v%06d.json", name, version))
}

// EvalSetTrajectories is the record of its rollouts.
func (l Layout) EvalSetTrajectories(name string, version int64) string {
	return l.key("evals", fmt.Sprintf("set-%s-v%06d.jsonl", name, version))
}

// EvalSetGroup is EvalGroup of such a set.
func (l Layout) EvalSetGroup(name string, version int64, how, problemID string) string {
	return l.key("evals", fmt.Sprintf("set-%s-v%06d", name, version), how, problemID+".jsonl")
}

// EvalSetProblems is the problems of a set of eval.sets.
func (l Layout) EvalSetProblems(name string) string { return l.key("data", "eval-"+name+".jsonl") }

// PassRates are the pass rates by which a stage filters its problems.
func (l Layout) PassRates(stage int) string {
	return l.key("data", fmt.Sprintf("stage-%02d-rates.jsonl", stage))
}

// Selection is what a step, in a round from 0, took from the problems of its stage,
// where that depends on the steps before.
func (l Layout) Selection(step, round int) string {
	return l.Step(step, fmt.Sprintf("selection-%02d.json", round))
}

// Verdict is what became of the stage after a step, where its steps are judged.
func (l Layout) Verdict(step int) string { return l.Step(step, "verdict.json") }

// GateResult is the verdict on the policy before RL.
func (l Layout) GateResult() string { return l.key("sft-gate.json") }

// Event is one entry of the run's event log. Two entries of one moment differ in
// kind or text.
func (l Layout) Event(unixNano int64, kind, text string) string {
	return l.key("events", eventName(unixNano, kind, text))
}

// SameEvent reports whether two keys differ in nothing but the time of the event.
func SameEvent(a, b string) bool {
	_, a, _ = strings.Cut(path.Base(a), "-")
	_, b, _ = strings.Cut(path.Base(b), "-")
	return a == b
}

// EventKind is the kind in the key of an event.
func EventKind(key string) string {
	_, name, _ := strings.Cut(path.Base(key), "-")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		name = name[:i]
	}
	return name
}

// Events is the folder of the event log.
func (l Layout) Events() string { return l.key("events") }

// Metrics is the series of all steps, one JSON object a line, written at the end.
func (l Layout) Metrics() string { return l.key("metrics.jsonl") }

// Summary is the outcome of the run.
func (l Layout) Summary() string { return l.key("summary.json") }

// RunIDs lists the runs in a store, sorted: those that have a folder and those
// that have an entry in the catalog.
func RunIDs(ctx context.Context, s blob.Store) (ids, cataloged []string, err error) {
	var entries []blob.Info
	lists := []func(context.Context) error{
		func(ctx context.Context) (err error) { _, ids, err = s.ListFolder(ctx, Root); return err },
		func(ctx context.Context) (err error) { entries, _, err = s.ListFolder(ctx, CatalogRoot); return err },
	}
	if err := Each(ctx, len(lists), func(ctx context.Context, i int) error { return lists[i](ctx) }); err != nil {
		return nil, nil, fmt.Errorf("list runs: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(path.Base(e.Key), ".json"); ok && CheckRunID(id) == nil {
			cataloged = append(cataloged, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return CheckRunID(id) != nil })
	return ids, cataloged, nil
}

// PutOnce stores v as JSON under key unless something is there already, and
// returns what is there afterwards. It makes a step's result stick: the first
// attempt that finishes wins, and later ones get its answer.
// Errors: blob.ErrCorrupt when what is there is no JSON of the type.
func PutOnce[T any](ctx context.Context, s blob.Store, key string, v T) (T, error) {
	_, err := blob.PutJSON(ctx, s, key, v, blob.IfAbsent)
	if err == nil || !errors.Is(err, blob.ErrExists) {
		return v, err
	}
	var stored T
	return stored, readJSON(ctx, s, key, &stored)
}

// RefOf is the Ref of v under a key as PutOnce stores it.
func RefOf(key string, v any) (blob.Ref, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return blob.Ref{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return blob.RefOf(key, append(data, '\n')), nil
}

// Lookup reads the JSON under key; ok is false when nothing is there.
// Errors: blob.ErrCorrupt, as PutOnce returns it.
func Lookup[T any](ctx context.Context, s blob.Store, key string) (v T, ok bool, err error) {
	err = readJSON(ctx, s, key, &v)
	if errors.Is(err, blob.ErrNotExist) {
		return v, false, nil
	}
	return v, err == nil, err
}

// readJSON reports bytes that will never decode as blob.ErrCorrupt, unlike a store
// that fails.
func readJSON(ctx context.Context, s blob.Store, key string, v any) error {
	data, err := blob.ReadKey(ctx, s, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w: %w", s.Locate(key), err, blob.ErrCorrupt)
	}
	return nil
}
