package artifact

import (
	"fmt"
	"path"
)

// StepKeys makes the keys of one step.
type StepKeys struct {
	l    Layout
	step int
}

// Dir is the folder of the step.
func (s StepKeys) Dir() string { return runKey(s.l, "steps", fmt.Sprintf("%06d", s.step)) }

func stepKey(s StepKeys, parts ...string) string {
	return path.Join(append([]string{s.Dir()}, parts...)...)
}

// Groups is the folder of the trajectories.
func (s StepKeys) Groups() string { return stepKey(s, "trajectories") }

// Group holds the trajectories of one problem: one JSON object a line, or a compact record
// where there are many tokens (package record).
func (s StepKeys) Group(problemID string) string {
	return stepKey(s, "trajectories", problemID+".jsonl")
}

// Samples holds the samples of one problem for the trainer.
func (s StepKeys) Samples(problemID string) string { return stepKey(s, "samples", problemID+".bin") }

// Shard holds the groups that one call has sampled, named by their problems. It is deleted
// when the batch is stored.
func (s StepKeys) Shard(sha256 string) string {
	return stepKey(s, "shards", fmt.Sprintf("%.16s.json", sha256))
}

// EndedFolder is the folder of trajectories that ended before others of their groups. It is
// deleted when the batch is stored.
func (s StepKeys) EndedFolder() string { return stepKey(s, "ended") }

// Ended holds some of those trajectories, named by their content.
func (s StepKeys) Ended(sha256 string) string {
	return stepKey(s, "ended", fmt.Sprintf("%.16s.bin", sha256))
}

// PartsFolder is the folder of groups whose trajectories were cut and continue under a newer
// policy. It is deleted when the batch is stored.
func (s StepKeys) PartsFolder() string { return stepKey(s, "parts") }

// Part holds the group of one problem after so many parts.
func (s StepKeys) Part(parts int, problemID string) string {
	return stepKey(s, "parts", fmt.Sprintf("%02d", parts), problemID+".bin")
}

// Batch lists the groups and samples of the step.
func (s StepKeys) Batch() string { return stepKey(s, "batch.json") }

// Index has a row for each trajectory; it stays when the trajectories are deleted.
func (s StepKeys) Index() string { return stepKey(s, "index.zst") }

// Entropies holds the mean entropies of the trajectories whose tokens the trainer recorded.
// It stays when the trajectories are deleted.
func (s StepKeys) Entropies() string { return stepKey(s, "entropies.zst") }

// TimesFolder is the folder of the times of trajectories. They are no part of the run's bits.
func (s StepKeys) TimesFolder() string { return stepKey(s, "times") }

// Times holds some of those times, named by their content.
func (s StepKeys) Times(sha256 string) string {
	return stepKey(s, "times", fmt.Sprintf("%.12s.zst", sha256))
}

// OutputsFolder is the folder of the whole outputs of tool calls, where the run keeps them.
func (s StepKeys) OutputsFolder() string { return stepKey(s, "outputs") }

// Outputs holds some of those outputs, named by their content.
func (s StepKeys) Outputs(sha256 string) string {
	return stepKey(s, "outputs", fmt.Sprintf("%.12s.zst", sha256))
}

// TokensFolder is the folder of the trainer's figures for tokens, where the run records them.
func (s StepKeys) TokensFolder() string { return stepKey(s, "tokens") }

// Tokens holds those figures for one problem.
func (s StepKeys) Tokens(problemID string) string { return stepKey(s, "tokens", problemID+".zst") }

// BatchStats is the result of building the batch.
func (s StepKeys) BatchStats() string { return stepKey(s, "rollouts.json") }

// TrainResult is the result of the update.
func (s StepKeys) TrainResult() string { return stepKey(s, "train.json") }

// Watch is the state of the run's watch after the step.
func (s StepKeys) Watch() string { return stepKey(s, "watch.json") }

// Log is the record of the step with its numbers.
func (s StepKeys) Log() string { return stepKey(s, "step.json") }

// Selection names the problems that the step took in a round, from 0, where that depends on
// the steps before.
func (s StepKeys) Selection(round int) string {
	return stepKey(s, fmt.Sprintf("selection-%02d.json", round))
}

// Verdict reports what became of the stage after the step, where its steps are judged.
func (s StepKeys) Verdict() string { return stepKey(s, "verdict.json") }

// Manifest lists all objects of the step with their SHA-256.
func (s StepKeys) Manifest() string { return stepKey(s, "manifest.json") }
