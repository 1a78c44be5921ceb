package workflows

import (
	"time"

	"temper/activities"
	"temper/internal/run"
)

// State tells what a run or a stage is doing.
type State string

// The states of a run, in the order in which a run meets them.
const (
	// StateScheduled means that a cron schedule has not started the execution yet.
	StateScheduled State = "scheduled"
	StatePreparing State = "preparing"
	// StateQueued means that the run waits for room on the cluster.
	StateQueued     State = "queued"
	StateSFT        State = "sft"
	StateEvaluating State = "evaluating"
	StateTraining   State = "training"
	StatePausing    State = "pausing" // a pause was asked for; the work in flight ends first
	StatePaused     State = "paused"
	StateStopping   State = "stopping"
	StateDone       State = "done"
	// StateFailed and StateStopped end a run that did not come to its last step; a
	// stop by command ends in StateDone.
	StateFailed  State = "failed"
	StateStopped State = "stopped"
)

// RunStatus is the answer to the query status of RLRun and RLStage. A run
// knows the outcome of its stages and the id of the current one; the numbers
// of single steps come from that stage. See Status for both at once.
type RunStatus struct {
	RunID string `json:"run_id"`
	State State  `json:"state"`
	// Opened means that the configuration is accepted and the run id taken, Prepared
	// that all data is there, too.
	Opened   bool `json:"opened,omitempty"`
	Prepared bool `json:"prepared,omitempty"`
	// NotPromised tells which bits another run of the same configuration may have
	// otherwise. The command that shows a status adds it.
	NotPromised string `json:"not_promised,omitempty"`
	// Child is the workflow id of the stage that runs now; ask it for the steps.
	Child string `json:"child,omitempty"`
	// Stage counts from 1; 0 before the first stage.
	Stage     int    `json:"stage"`
	StageName string `json:"stage_name,omitempty"`
	// Step is the last finished step of the run, of NumSteps.
	Step     int `json:"step"`
	NumSteps int `json:"num_steps"`
	SFTStep  int `json:"sft_step"`
	SFTSteps int `json:"sft_steps"`
	// Last holds the numbers of step Step; zero before the first step.
	Last StepNumbers `json:"last"`
	// ETASeconds is the time that the remaining steps need at the current pace,
	// evaluations not counted; 0 = not known.
	ETASeconds    float64 `json:"eta_seconds"`
	PolicyVersion int64   `json:"policy_version"`
	// Reason, By and Since describe a pause or stop: the reason given, the person if known,
	// and the time.
	Reason string     `json:"reason,omitempty"`
	By     string     `json:"by,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Frozen is the server's own pause: of the run, its stage or the workflow that started
	// it.
	Frozen *Freeze `json:"frozen,omitempty"`
	// Amendments are the changes of the configuration, one line each.
	Amendments []string `json:"amendments,omitempty"`
	// Alerts are the troubles that stand, one line each; see config.Watch.
	Alerts []string `json:"alerts,omitempty"`
	// Checkpoint is the step of the newest checkpoint that the run knows of; nil
	// for none, 0 after SFT.
	Checkpoint *int `json:"checkpoint,omitempty"`
	// Fork is the checkpoint that the run began with, Restarted the run that goes
	// on instead of it.
	Fork      *run.ForkFrom `json:"fork,omitempty"`
	Restarted string        `json:"restarted,omitempty"`
	// Priority among runs, 1 (first) to 5; 0 = the middle.
	Priority int `json:"priority,omitempty"`
	// Room is the run's room on the cluster, or what it waits for; "" for a run without one.
	Room string `json:"room,omitempty"`
	// Stages lists accuracy and tool errors of every stage, as far as measured.
	Stages []StageStatus `json:"stages,omitempty"`
	// SummaryPath is set when the run is done.
	SummaryPath string `json:"summary_path,omitempty"`
}

// StageStatus is one line of the table of stages.
type StageStatus struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
	// Before and After are nil until measured.
	Before *Outcome `json:"before,omitempty"`
	After  *Outcome `json:"after,omitempty"`
	// Note tells why a stage ended early.
	Note string `json:"note,omitempty"`
}

// Outcome is the short form of an evaluation.
type Outcome struct {
	Accuracy      float64 `json:"accuracy"`
	ToolErrorRate float64 `json:"tool_error_rate"`
}

func outcomeOf(e run.Evaluation) *Outcome {
	return &Outcome{Accuracy: e.Accuracy, ToolErrorRate: e.ToolErrorRate}
}

// StepNumbers are the numbers of one step that a person watches.
type StepNumbers struct {
	Step           int     `json:"step"`
	Reward         float64 `json:"reward"`
	ToolErrorRate  float64 `json:"tool_error_rate"`
	ResponseTokens float64 `json:"response_tokens"` // mean of a trajectory
	TokensPerSec   float64 `json:"tokens_per_sec"`  // response tokens over the time of sampling
	Loss           float64 `json:"loss"`
	Seconds        float64 `json:"seconds"` // wall time of the step
}

func numbersOf(in activities.LogStepInput) StepNumbers {
	n := StepNumbers{
		Step:           in.Step,
		Reward:         in.Rollouts.RewardMean,
		ToolErrorRate:  in.Rollouts.ToolErrorRate,
		ResponseTokens: in.Rollouts.MeanResponseTokens,
		Loss:           in.Train.Metrics.Loss,
		Seconds:        in.Ended.Sub(in.Started).Seconds(),
	}
	if s := in.Sample.Wall.Seconds(); s > 0 {
		n.TokensPerSec = float64(in.Sample.Tokens) / s
	}
	return n
}

// paceWeight is the weight of the newest step in the running mean of step times.
const paceWeight = 0.3

// pace updates the running mean of step times in seconds; 0 means none yet.
func pace(mean, seconds float64) float64 {
	if mean == 0 {
		return seconds
	}
	return (1-paceWeight)*mean + paceWeight*seconds
}

// stateOf returns the state to show: a command counts before what the workflow does.
func stateOf(g *gate, doing State) State {
	switch {
	case doing == StateDone:
		return StateDone
	case g.Stopping:
		return StateStopping
	case g.Yield != nil && g.waiting && !g.Paused && g.Frozen == nil:
		return StateQueued
	case g.held() && g.waiting, g.Frozen != nil && g.Frozen.Below:
		return StatePaused
	case g.held():
		return StatePausing
	default:
		return doing
	}
}
