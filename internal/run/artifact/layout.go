package artifact

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// Layout makes the keys of one run, each in one place: here, and in the values that Step,
// Stage, Eval and the like return for a part of the run.
type Layout struct{ RunID string }

// Dir is the folder of the run.
func (l Layout) Dir() string { return path.Join(Root, l.RunID) }

func runKey(l Layout, parts ...string) string {
	return path.Join(append([]string{Root, l.RunID}, parts...)...)
}

// Catalog is the entry of the run in the catalog, which stands beside the folders of runs so
// that one short listing finds all entries.
func (l Layout) Catalog() string { return path.Join(CatalogRoot, l.RunID+".json") }

// Config makes the keys of the configuration.
func (l Layout) Config() ConfigKeys { return ConfigKeys{l} }

// Plan is the plan that was made when the run was opened.
func (l Layout) Plan() string { return runKey(l, "plan.json") }

// Notes holds the tags and the note that people gave the run; it may be replaced at any time.
func (l Layout) Notes() string { return runKey(l, "notes.json") }

// Owner names the execution that took the run over from the one that opened it; most runs
// have none.
func (l Layout) Owner() string { return runKey(l, "owner.json") }

// Head names the writer of the run and its newest checkpoint.
func (l Layout) Head() string { return runKey(l, "head.json") }

// Tokenizer is the tokenizer.json of the run.
func (l Layout) Tokenizer() string { return runKey(l, "tokenizer.json") }

// Data makes the keys of data that belongs to no stage.
func (l Layout) Data() DataKeys { return DataKeys{l} }

// Stage makes the keys of the data of a stage, from 1.
func (l Layout) Stage(stage int) StageKeys { return StageKeys{l, stage} }

// SFT makes the keys of supervised training.
func (l Layout) SFT() SFTKeys { return SFTKeys{l} }

// Steps is the folder of all steps.
func (l Layout) Steps() string { return runKey(l, "steps") }

// Step makes the keys of a step.
func (l Layout) Step(step int) StepKeys { return StepKeys{l, step} }

// SeriesSteps is the number of steps in a block of records.
const SeriesSteps = 64

// Series is block n of the records of steps, a line each; it ends with step n*SeriesSteps.
// A reader of a long run needs one request a block.
func (l Layout) Series(n int) string { return runKey(l, "series", fmt.Sprintf("%06d.jsonl", n)) }

// TensorBoard is an event file of TensorBoard with a step: TensorBoard reads the files of a
// folder in the order of their names.
func (l Layout) TensorBoard(step int, ended time.Time) string {
	return runKey(l, "tensorboard", fmt.Sprintf("events.out.tfevents.%010d.step-%06d", ended.Unix(), step))
}

// Policy makes the keys of a published policy.
func (l Layout) Policy(version int64) PolicyKeys { return PolicyKeys{l, version} }

// Checkpoints is the folder of all checkpoints.
func (l Layout) Checkpoints() string { return runKey(l, "checkpoints") }

// Diverged is the report of a refused update, by its cursor.
func (l Layout) Diverged(cursor int) string {
	return runKey(l, "diverged", fmt.Sprintf("%06d.json", cursor))
}

// Evals is the folder of all evaluations.
func (l Layout) Evals() string { return runKey(l, "evals") }

// Eval makes the keys of the evaluation of a stage; label says when in the run it was made.
func (l Layout) Eval(stage int, label string, version int64) EvalKeys {
	return EvalKeys{l, fmt.Sprintf("stage-%02d-%s-v%06d", stage, label, version)}
}

// EvalSet makes the keys of the evaluation of a policy on a set of eval.sets.
func (l Layout) EvalSet(name string, version int64) EvalKeys {
	return EvalKeys{l, fmt.Sprintf("set-%s-v%06d", name, version)}
}

// Events makes the keys of the event log.
func (l Layout) Events() EventKeys { return EventKeys{l} }

// Chain makes the keys of the chain of manifests, and says which keys it holds.
func (l Layout) Chain() ChainKeys { return ChainKeys{l} }

// Metrics is the series of all steps, one JSON object a line, written at the end.
func (l Layout) Metrics() string { return runKey(l, "metrics.jsonl") }

// Summary is the outcome of the run.
func (l Layout) Summary() string { return runKey(l, "summary.json") }

// StepOf returns the step whose folder has a key; ok is false for other keys.
func StepOf(l Layout, key string) (step int, ok bool) {
	name, ok := strings.CutPrefix(key, l.Steps()+"/")
	if !ok {
		return 0, false
	}
	number, _, ok := strings.Cut(name, "/")
	step, err := strconv.Atoi(number)
	return step, ok && err == nil && path.Base(l.Step(step).Dir()) == number
}

// ConfigKeys makes the keys of the configuration of a run.
type ConfigKeys struct{ l Layout }

// Opened is the configuration with which the run was opened; it never changes.
func (c ConfigKeys) Opened() string { return runKey(c.l, "config.yaml") }

// Amended is the configuration with its first n amendments, named by its content.
func (c ConfigKeys) Amended(n int, sha256 string) string {
	return runKey(c.l, "config", fmt.Sprintf("config-%03d-%.12s.yaml", n, sha256))
}

// Newest names the amended configuration in force.
func (c ConfigKeys) Newest() string { return runKey(c.l, "config", "newest.json") }

// DataKeys makes the keys of data that belongs to no stage.
type DataKeys struct{ l Layout }

// Ready marks that all data of the run is complete.
func (d DataKeys) Ready() string { return runKey(d.l, "data", "ready.json") }

// EvalSet holds the problems of a set of eval.sets.
func (d DataKeys) EvalSet(name string) string { return runKey(d.l, "data", "eval-"+name+".jsonl") }

// StageKeys makes the keys of the data of a stage.
type StageKeys struct {
	l     Layout
	stage int
}

func (s StageKeys) key(suffix string) string {
	return runKey(s.l, "data", fmt.Sprintf("stage-%02d-%s", s.stage, suffix))
}

// Train is the training set.
func (s StageKeys) Train() string { return s.key("train.jsonl") }

// HeldOut is the evaluation set.
func (s StageKeys) HeldOut() string { return s.key("heldout.jsonl") }

// Filter is the result of the offline filter.
func (s StageKeys) Filter() string { return s.key("filter.json") }

// FilterProblem is the result of the filter for one problem.
func (s StageKeys) FilterProblem(problemID string) string {
	return path.Join(s.key("filter"), problemID+".json")
}

// PassRates holds the pass rates by which the stage filters its problems.
func (s StageKeys) PassRates() string { return s.key("rates.jsonl") }

// SFTKeys makes the keys of supervised training.
type SFTKeys struct{ l Layout }

// Dialogues is the supervised data.
func (s SFTKeys) Dialogues() string { return runKey(s.l, "data", "sft.jsonl") }

// Dir is the folder of the results of supervised updates.
func (s SFTKeys) Dir() string { return runKey(s.l, "sft") }

// Result is the result of the supervised updates up to n.
func (s SFTKeys) Result(n int) string { return runKey(s.l, "sft", fmt.Sprintf("%06d.json", n)) }

// Gate is the verdict on the policy before RL.
func (s SFTKeys) Gate() string { return runKey(s.l, "sft-gate.json") }

// PolicyKeys makes the keys of a published policy.
type PolicyKeys struct {
	l       Layout
	version int64
}

// Dir is the folder of the policy in Hugging Face layout.
func (p PolicyKeys) Dir() string { return runKey(p.l, "policies", fmt.Sprintf("v%06d", p.version)) }

// Ref names the files of the policy; a policy without it is not published.
func (p PolicyKeys) Ref() string {
	return runKey(p.l, "policies", fmt.Sprintf("v%06d.json", p.version))
}

// EvalKeys makes the keys of an evaluation.
type EvalKeys struct {
	l    Layout
	name string
}

// Result is the result of the evaluation.
func (e EvalKeys) Result() string { return runKey(e.l, "evals", e.name+".json") }

// Trajectories holds the trajectories of the evaluation.
func (e EvalKeys) Trajectories() string { return runKey(e.l, "evals", e.name+".jsonl") }

// Group holds the trajectories of one problem while the evaluation runs. how names the way
// of sampling: greedy or sampled.
func (e EvalKeys) Group(how, problemID string) string {
	return runKey(e.l, "evals", e.name, how, problemID+".jsonl")
}

// EventKeys makes the keys of the event log of a run.
type EventKeys struct{ l Layout }

// Dir is the folder of the event log.
func (e EventKeys) Dir() string { return runKey(e.l, "events") }

// Entry is one entry of the log. Two entries of one moment differ in kind or text.
func (e EventKeys) Entry(unixNano int64, kind, text string) string {
	return runKey(e.l, "events", eventName(unixNano, kind, text))
}

// SameEvent reports whether two keys differ only in the time of the event.
func SameEvent(a, b string) bool {
	_, a, _ = strings.Cut(path.Base(a), "-")
	_, b, _ = strings.Cut(path.Base(b), "-")
	return a == b
}

// EventKind returns the kind in the key of an event.
func EventKind(key string) string {
	_, name, _ := strings.Cut(path.Base(key), "-")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		name = name[:i]
	}
	return name
}
