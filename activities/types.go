package activities

import (
	"encoding/json"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rl"
)

// RunInput is the input of the workflow RLRun, as a person writes it:
// {"config": "configs/demo.yaml", "seed": 1, "set": {"rl.roc.enabled": "false"}}.
type RunInput struct {
	// RunID names the run; empty takes the workflow id without its prefix.
	RunID string `json:"run_id,omitempty"`
	// Config is a string (path of a YAML file readable by the control worker, or
	// YAML text of several lines) or an object (the configuration itself).
	Config json.RawMessage `json:"config"`
	// Seed overrides the configuration's seed.
	Seed *uint64 `json:"seed,omitempty"`
	// Set overrides single keys: "rl.roc.enabled" -> "false".
	Set Settings `json:"set,omitempty"`
	// Fork goes on from a checkpoint of another run; Config may be left out then.
	Fork *ForkFrom `json:"fork,omitempty"`
	// Priority among runs that wait for the same workers: 1 (first) to 5; 0 = 3.
	Priority int `json:"priority,omitempty"`
}

// Settings are keys of a configuration with their values as text. In JSON a
// value may be a number or a boolean as well.
type Settings map[string]string

// UnmarshalJSON takes an object of texts, numbers and booleans.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("set: want an object of keys and values: %w", err)
	}
	out := make(Settings, len(raw))
	for key, value := range raw {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		out[key] = text
	}
	*s = out
	return nil
}

// ForkFrom names a checkpoint of a run.
type ForkFrom struct {
	RunID string `json:"run_id"`
	// Step of the checkpoint, unless From says which; 0 = after SFT.
	Step int `json:"step,omitempty"`
	// From is "best" (highest mean reward of the step after it) or "last".
	From string `json:"from,omitempty"`
}

// The values of ForkFrom.From.
const (
	FromBest = "best"
	FromLast = "last"
)

// RunPlan is what the workflows know of a run: small, derived once by OpenRun.
type RunPlan struct {
	RunID string `json:"run_id"`
	Seed  uint64 `json:"seed"`
	// Config is the frozen configuration in the store.
	Config blob.Ref `json:"config"`
	// SFTSteps is the number of supervised updates.
	SFTSteps int `json:"sft_steps"`
	// CheckpointEvery is the number of RL steps between checkpoints.
	CheckpointEvery int         `json:"checkpoint_every"`
	Stages          []StagePlan `json:"stages"`
	// SearchAttributes says whether the server knows RunID, Stage and Step; an
	// upsert of an unknown attribute would block the workflow for good.
	SearchAttributes bool `json:"search_attributes"`
	// ProgressAttributes says the same of Reward and RunStatus. A plan of an older
	// program knows nothing of them, and its workflow must not tell them.
	ProgressAttributes bool `json:"progress_attributes,omitempty"`
	// Priority of RunInput.
	Priority int `json:"priority,omitempty"`
	// Fork is set for a run that goes on from a checkpoint of another.
	Fork *ForkPlan `json:"fork,omitempty"`
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

// NumSteps is the number of RL steps of all stages.
func (p RunPlan) NumSteps() int {
	n := 0
	for _, s := range p.Stages {
		n += s.Steps
	}
	return n
}

// StagePlan is one RL stage. Steps are numbered through the whole run, from 1.
type StagePlan struct {
	Index     int    `json:"index"` // from 1
	Name      string `json:"name"`
	FirstStep int    `json:"first_step"`
	Steps     int    `json:"steps"`
	// Filter is set when problems are filtered by the current policy first.
	Filter bool `json:"filter,omitempty"`
	// Of is the stage that this one repeats, from 1; 0 = none.
	Of int `json:"of,omitempty"`
	// Offset is the number of steps that earlier runs of the stage have made: the
	// ledger goes on behind them.
	Offset int `json:"offset,omitempty"`
}

// Source is the stage, from 1, whose problems and limits this one has.
func (p StagePlan) Source() int {
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

// RunRef names a run and its frozen configuration; every activity takes it.
type RunRef struct {
	RunID  string   `json:"run_id"`
	Config blob.Ref `json:"config"`
}

// PrepareDataInput asks for problem sets, dialogues and the tokenizer of a run.
type PrepareDataInput struct{ Run RunRef }

// PrepareDataResult counts what was made.
type PrepareDataResult struct {
	Dialogues   int `json:"dialogues"`
	Problems    int `json:"problems"`
	VocabSize   int `json:"vocab_size"`
	DurationMS  int `json:"duration_ms"`
	NumHeldOut  int `json:"num_held_out"`
	TokenBudget int `json:"token_budget"` // longest prompt + response that a stage allows
	// Start is the stored copy of model.path; nil for a run from random weights.
	Start *Start `json:"start,omitempty"`
}

// TrainSFTInput asks for supervised updates From+1..To. A retry resumes.
type TrainSFTInput struct {
	Run      RunRef `json:"run"`
	From, To int
	// Save asks for a checkpoint at To.
	Save bool `json:"save"`
}

// TrainSFTResult is the last update's metrics.
type TrainSFTResult struct {
	Metrics      rl.TrainMetrics `json:"metrics"`
	TokensPerSec float64         `json:"tokens_per_sec"`
	TrainTime    time.Duration   `json:"train_ns"`
}

// PublishInput asks for the weights at Step as a served policy.
type PublishInput struct {
	Run  RunRef `json:"run"`
	Step int    `json:"step"` // 0 = after SFT
}

// EvaluateInput asks for held-out accuracy of a policy on one stage's problems.
type EvaluateInput struct {
	Run    RunRef `json:"run"`
	Stage  int    `json:"stage"` // index from 1
	Policy Policy `json:"policy"`
	// Label names the result: "before" or "after" of a stage, or "final".
	Label string `json:"label"`
}

// EvalResult is what one evaluation measured. Accuracy, MeanTokens and
// MeanTurns are of greedy rollouts; ToolErrorRate is of sampled ones, since
// greedy decoding hides the errors that sampling makes.
type EvalResult struct {
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
}

// FilterInput asks for the offline filter of a stage with the given policy.
type FilterInput struct {
	Run    RunRef `json:"run"`
	Stage  int    `json:"stage"`
	Policy Policy `json:"policy"`
}

// FilterResult counts what the filter did. Left == 0 ends the stage at once.
type FilterResult struct {
	Problems int           `json:"problems"`
	Removed  int           `json:"removed"`
	Left     int           `json:"left"`
	Wall     time.Duration `json:"wall_ns"`
}

// SelectProblemsInput asks for the problems of a step.
type SelectProblemsInput struct {
	Run   RunRef `json:"run"`
	Stage int    `json:"stage"`
	Step  int    `json:"step"`
	// StageStep counts the step within its stage, from 1.
	StageStep int `json:"stage_step"`
}

// SelectProblemsResult lists problem ids, unique within the step.
type SelectProblemsResult struct {
	ProblemIDs []string `json:"problem_ids"`
}

// SampleGroupsInput asks for the groups of some problems of a step.
type SampleGroupsInput struct {
	Run        RunRef   `json:"run"`
	Stage      int      `json:"stage"`
	Step       int      `json:"step"`
	ProblemIDs []string `json:"problem_ids"`
	Policy     Policy   `json:"policy"`
}

// SampleGroupsResult sums up what was sampled; the groups are in the store.
type SampleGroupsResult struct {
	Groups       int           `json:"groups"`
	Reused       int           `json:"reused"` // groups found from an earlier attempt
	Trajectories int           `json:"trajectories"`
	Tokens       int           `json:"tokens"` // response tokens
	ToolCalls    int           `json:"tool_calls"`
	InfraErrors  int           `json:"infra_errors"`
	Wall         time.Duration `json:"wall_ns"`
	// SampleTime and ToolTime split Wall by what the rollouts waited for.
	SampleTime time.Duration `json:"sample_ns"`
	ToolTime   time.Duration `json:"tool_ns"`
}

// BuildBatchInput asks for the batch of a step from its stored groups.
type BuildBatchInput struct {
	Run        RunRef   `json:"run"`
	Stage      int      `json:"stage"`
	Step       int      `json:"step"`
	ProblemIDs []string `json:"problem_ids"`
}

// BuildBatchResult points to the batch; Samples == 0 means that no group had a
// signal and the step makes no update.
type BuildBatchResult struct {
	Batch   blob.Ref     `json:"batch"`
	Samples int          `json:"samples"`
	Stats   StepRollouts `json:"stats"`
}

// StepRollouts are the rollout numbers of a step that a person watches.
type StepRollouts struct {
	RewardMean         float64 `json:"reward_mean"`
	ToolErrorRate      float64 `json:"tool_error_rate"`      // over all calls of all trajectories
	CorrectErrorRate   float64 `json:"correct_error_rate"`   // over the calls of correct trajectories, sampled
	KeptErrorRate      float64 `json:"kept_error_rate"`      // the same after resampling
	MeanResponseTokens float64 `json:"mean_response_tokens"` //
	MeanTurns          float64 `json:"mean_turns"`
	MeanCalls          float64 `json:"mean_calls"`
	ClipRatio          float64 `json:"clip_ratio"` // share of trajectories that hit the token limit
	Groups             int     `json:"groups"`
	GroupsAllCorrect   int     `json:"groups_all_correct"`
	GroupsAllWrong     int     `json:"groups_all_wrong"`
	Trajectories       int     `json:"trajectories"`
	Kept               int     `json:"kept"`
	InfraErrors        int     `json:"infra_errors"`
	PErrMean           float64 `json:"p_err_mean"`    // over correct trajectories
	PFormatMean        float64 `json:"p_format_mean"` // over correct trajectories
}

// TrainStepInput asks for the update of a step. It is applied exactly once.
type TrainStepInput struct {
	Run   RunRef   `json:"run"`
	Stage int      `json:"stage"`
	Step  int      `json:"step"`
	Batch blob.Ref `json:"batch"` // zero: the step makes no update
	// Save asks for a checkpoint after the step.
	Save bool `json:"save"`
}

// SaveCheckpointInput asks for a checkpoint after Step (0 = after SFT).
type SaveCheckpointInput struct {
	Run  RunRef `json:"run"`
	Step int    `json:"step"`
}

// AmendRunInput asks for a new amendment of a run's configuration.
type AmendRunInput struct {
	Run       RunRef           `json:"run"`
	Amendment config.Amendment `json:"amendment"`
}

// AmendRunResult is the configuration with the amendment and the plan by it.
type AmendRunResult struct {
	Config blob.Ref    `json:"config"`
	Stages []StagePlan `json:"stages"`
	// CheckpointEvery is the number of steps between checkpoints, from FromStep on.
	CheckpointEvery int `json:"checkpoint_every"`
	// Text is the amendment in one line.
	Text string `json:"text"`
}

// CheckForkInput asks whether a fork would start.
type CheckForkInput struct {
	Input RunInput `json:"input"`
	// Hold keeps the checkpoint until the fork has begun.
	Hold bool `json:"hold,omitempty"`
}

// CheckForkResult is the step that the fork would start from.
type CheckForkResult struct {
	Step int `json:"step"`
}

// TrainStepResult is what the update did and the policy it published.
type TrainStepResult struct {
	Metrics   rl.TrainMetrics `json:"metrics"`
	Policy    Policy          `json:"policy"`
	TrainTime time.Duration   `json:"train_ns"`
	// SaveTime is what the step waited for its checkpoint.
	SaveTime time.Duration `json:"save_ns"`
	// Saved is true when a checkpoint was asked for.
	Saved bool `json:"saved,omitempty"`
}

// LogStepInput is everything a step has to say.
type LogStepInput struct {
	Run       RunRef             `json:"run"`
	Stage     int                `json:"stage"`
	StageName string             `json:"stage_name"`
	Step      int                `json:"step"`
	NumSteps  int                `json:"num_steps"`
	Sample    SampleGroupsResult `json:"sample"`
	Rollouts  StepRollouts       `json:"rollouts"`
	Train     TrainStepResult    `json:"train"`
	Started   time.Time          `json:"started"`
	Ended     time.Time          `json:"ended"`
}

// StageReport is the outcome of one stage for the summary.
type StageReport struct {
	Plan   StagePlan    `json:"plan"`
	Before EvalResult   `json:"before"` // after SFT, before any RL
	After  EvalResult   `json:"after"`  // at the end of the stage
	Final  EvalResult   `json:"final"`  // at the end of the run
	Filter FilterResult `json:"filter"`
}

// FinishRunInput closes a run.
type FinishRunInput struct {
	Run     RunRef         `json:"run"`
	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended"`
	SFT     TrainSFTResult `json:"sft"`
	Stages  []StageReport  `json:"stages"`
	Policy  Policy         `json:"policy"`
	// Stopped is set when the run was asked to stop early.
	Stopped bool `json:"stopped,omitempty"`
	// Fork is where the run came from, Restarted the run that goes on instead of it.
	Fork      *ForkFrom `json:"fork,omitempty"`
	Restarted string    `json:"restarted,omitempty"`
}

// FinishRunResult points to the summary.
type FinishRunResult struct {
	SummaryPath string `json:"summary_path"`
}

// LogEventInput records something worth reading in the run's event log.
type LogEventInput struct {
	Run  RunRef    `json:"run"`
	Time time.Time `json:"time"`
	// Kind is one word: stage, pause, resume, stop, filter, checkpoint, skip, amend, repeat, fork, restart.
	Kind string `json:"kind"`
	Text string `json:"text"`
	// ID tells entries of the same words apart: the workflow's type and the place of
	// the activity in it. LogEvent fills it in.
	ID string `json:"id,omitempty"`
	// Skip is set where a stage is told to end; forks read it.
	Skip *Skip `json:"skip,omitempty"`
}

// EventSkip is the kind of the event that holds a Skip.
const EventSkip = "skip"

// Skip is a stage that was told to end before its last step, or to be left out.
type Skip struct {
	Stage int `json:"stage"` // index from 1
	// After is the number of its steps that are made; 0 leaves the stage out.
	After int    `json:"after"`
	Why   string `json:"why,omitempty"`
}
