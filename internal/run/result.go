package run

import (
	"fmt"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run/chain"
	"temper/internal/series"
)

// Prepared counts what was made.
type Prepared struct {
	Dialogues   int `json:"dialogues"`
	Problems    int `json:"problems"`
	VocabSize   int `json:"vocab_size"`
	DurationMS  int `json:"duration_ms"`
	NumHeldOut  int `json:"num_held_out"`
	TokenBudget int `json:"token_budget"` // longest prompt + response that a stage allows
	// Start is the stored copy of model.path; nil for a run from random weights.
	Start *Start `json:"start,omitempty"`
	// Files are the tokenizer, the chat template and all data.
	Files []blob.Ref `json:"files,omitempty"`
	// Dropped are the rows that preparation did not take.
	Dropped []Dropped `json:"dropped,omitempty"`
}

// Dropped counts rows of a set that preparation did not take.
type Dropped struct {
	// Set is the key of the configuration that names the set.
	Set    string `json:"set"`
	Reason string `json:"reason"`
	Rows   int    `json:"rows"`
	Of     int    `json:"of"`
	// First says what the first of them is.
	First string `json:"first"`
}

// String is one line.
func (d Dropped) String() string {
	return fmt.Sprintf("%s: %d of %d dropped, %s; the first: %s", d.Set, d.Rows, d.Of, d.Reason, d.First)
}

// SFTResult is the last update's metrics.
type SFTResult struct {
	Metrics      rl.TrainMetrics `json:"metrics"`
	TokensPerSec float64         `json:"tokens_per_sec"`
	TrainTime    time.Duration   `json:"train_ns"`
}

// Evaluation is what one evaluation measured. Accuracy, MeanTokens and
// MeanTurns are of greedy rollouts; ToolErrorRate is of sampled ones, since
// greedy decoding hides the errors that sampling makes.
type Evaluation struct {
	Stage            int           `json:"stage"`
	Label            string        `json:"label"`
	PolicyVersion    int64         `json:"policy_version"`
	NumProblems      int           `json:"num_problems"`
	Accuracy         float64       `json:"accuracy"`
	SampledAccuracy  float64       `json:"sampled_accuracy"`
	ToolErrorRate    float64       `json:"tool_error_rate"`
	GreedyErrorRate  float64       `json:"greedy_tool_error_rate"`
	MeanTokens       float64       `json:"mean_tokens"` // response tokens
	MeanTurns        float64       `json:"mean_turns"`
	MeanCalls        float64       `json:"mean_calls"`
	InfraErrors      int           `json:"infra_errors"`
	SampleTime       time.Duration `json:"sample_ns"`
	ToolTime         time.Duration `json:"tool_ns"`
	Wall             time.Duration `json:"wall_ns"`
	TrajectoriesPath string        `json:"trajectories"`
	// Record is the Ref of the trajectories.
	Record blob.Ref `json:"record,omitzero"`
	// Set is the name of the set of eval.sets that was measured; Stage is 0 then.
	Set string `json:"set,omitempty"`
	// Copied is the share of sampled answers after a call that worked which equal the result
	// of the last one, and Copies how many such answers there are. Both are for the gate
	// before RL, and 0 without one.
	Copied float64 `json:"copied,omitempty"`
	Copies int     `json:"copies,omitempty"`
}

// SFTRecord is the stored outcome of a stretch of supervised updates.
type SFTRecord struct {
	To     int       `json:"to"`
	Total  int       `json:"total"`
	Result SFTResult `json:"result"`
	// Saved is true when a checkpoint was asked for.
	Saved bool `json:"saved,omitempty"`
}

// FilterResult counts what the filter did. Left == 0 ends the stage at once.
type FilterResult struct {
	Problems int           `json:"problems"`
	Removed  int           `json:"removed"`
	Left     int           `json:"left"`
	Wall     time.Duration `json:"wall_ns"`
	// Rule is the range of pass rates of problems that stay; "" where only solved ones go.
	Rule string `json:"rule,omitempty"`
}

// StoredFilter is a FilterResult with the problems that were removed.
type StoredFilter struct {
	FilterResult
	PolicyVersion int64    `json:"policy_version"`
	RemovedIDs    []string `json:"removed_ids"`
	// Found are what the filter found of each problem.
	Found []blob.Ref `json:"found,omitempty"`
}

// Sampled sums up what was sampled; the groups are in the store.
type Sampled struct {
	Groups int `json:"groups"`
	Reused int `json:"reused"` // groups found from an earlier attempt
	// Resumed are the trajectories found from an earlier attempt whose groups it left open.
	Resumed      int           `json:"resumed,omitempty"`
	Trajectories int           `json:"trajectories"`
	Tokens       int           `json:"tokens"` // response tokens
	ToolCalls    int           `json:"tool_calls"`
	InfraErrors  int           `json:"infra_errors"`
	Wall         time.Duration `json:"wall_ns"`
	// SampleTime and ToolTime split Wall by what the rollouts waited for.
	SampleTime time.Duration `json:"sample_ns"`
	ToolTime   time.Duration `json:"tool_ns"`
	// Busy says what the machines were busy with, a part for each worker.
	Busy []series.Busy `json:"busy,omitempty"`
	// Signals counts the groups that teach something, where the run refills.
	Signals int `json:"signals,omitempty"`
	// Open are the groups with trajectories that were cut and continue under a newer
	// policy. The call that ends these makes their records.
	Open int `json:"open,omitempty"`
	// Shards point to the records of the groups, which BuildBatch reads.
	Shards []blob.Ref `json:"shards,omitempty"`
	// MadeBy are the programs and machines that sampled.
	MadeBy []chain.Maker `json:"made_by,omitempty"`
}

// Then is the sum with what the next call has sampled for the same groups, under a newer
// policy. The last call counts all groups, whichever call ended them.
func (s Sampled) Then(next Sampled) Sampled {
	next.Reused += s.Reused
	next.Resumed += s.Resumed
	next.Wall += s.Wall
	next.SampleTime += s.SampleTime
	next.ToolTime += s.ToolTime
	next.Busy = append(slices.Clip(s.Busy), next.Busy...)
	makers := slices.Clone(s.MadeBy)
	for _, m := range next.MadeBy {
		makers = chain.AddMaker(makers, m)
	}
	next.MadeBy = makers
	return next
}

// BuiltBatch points to the batch; Samples == 0 means that no group had a
// signal and the step makes no update.
type BuiltBatch struct {
	Batch   blob.Ref     `json:"batch"`
	Samples int          `json:"samples"`
	Stats   StepRollouts `json:"stats"`
}

// StepRollouts are the rollout numbers of a step.
type StepRollouts = series.Rollouts

// Trained is what the update did and the policy it published.
type Trained struct {
	Metrics   rl.TrainMetrics `json:"metrics"`
	Policy    Policy          `json:"policy"`
	TrainTime time.Duration   `json:"train_ns"`
	// PublishTime is the part of TrainTime in which the policy was stored.
	PublishTime time.Duration `json:"publish_ns,omitempty"`
	// SaveTime is what the step waited for its checkpoint.
	SaveTime time.Duration `json:"save_ns"`
	// Saved is true when a checkpoint was asked for.
	Saved bool `json:"saved,omitempty"`
	// Busy says what the machine was busy with during TrainTime.
	Busy *series.Busy `json:"busy,omitempty"`
	// MadeBy is the program and machine that made the update.
	MadeBy chain.Maker `json:"made_by,omitzero"`
}

// StageReport is the outcome of one stage for the summary.
type StageReport struct {
	Plan   Stage        `json:"plan"`
	Before Evaluation   `json:"before"` // after SFT, before any RL
	After  Evaluation   `json:"after"`  // at the end of the stage
	Final  Evaluation   `json:"final"`  // at the end of the run
	Filter FilterResult `json:"filter"`
}
