// Package workflows owns the order of things in a run: RLRun opens it, teaches
// the format by SFT and runs one RLStage per stage, which makes its steps one
// after another. It owns ids, queues, commands, status, time-outs and retries. It does
// no work itself: that is the activities'.
//
// Invariant: only references and small summaries pass through it, and every
// decision depends on inputs and history alone, so that a replay of a recorded
// history gives the same commands.
package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// Task queues. Each is served by the workers of one role.
const (
	// QueueControl serves the workflows and the activities of activities.Control.
	QueueControl = "temper"
	// QueueTrainer serves activities.Trainer, one at a time per device.
	QueueTrainer = "temper-trainer"
	// QueueRollout serves activities.Rollouts.
	QueueRollout = "temper-rollout"
)

// Workflow types as registered. They are part of stored histories.
const (
	TypeRun      = "RLRun"
	TypeStage    = "RLStage"
	TypeEvaluate = "EvaluateRun"
	TypeRetrain  = "Retrain"
	TypeAblate   = "Ablate"
)

// Messages that RLRun understands, and RLStage in part. Each command is both a
// signal and an update and takes one Command.
const (
	// QueryStatus answers a RunStatus.
	QueryStatus = "status"
	// CommandPause holds the run at the next safe point.
	CommandPause = "pause"
	// CommandResume resumes a paused run.
	CommandResume = "resume"
	// CommandStop ends the run, or the stage it is sent to, at the next safe point.
	CommandStop = "stop"
	// CommandCheckpoint saves the state at the next safe point.
	CommandCheckpoint = "checkpoint"
	// CommandSkipStage ends the current stage, or leaves out a later one.
	CommandSkipStage = "skip_stage"
	// CommandRepeatStage runs a stage once more after all others.
	CommandRepeatStage = "repeat_stage"
	// CommandAmend changes keys of the configuration from a step on.
	CommandAmend = "amend"
	// CommandRestart ends the run and starts another from its checkpoint.
	CommandRestart = "restart"
)

// Signals of RLRun, its stage and the control worker; not meant for people. See
// Interceptors.
const (
	signalGate      = "gate"       // run -> stage: the state to take over
	signalStageGate = "stage_gate" // stage -> run: paused or going again
	signalOrder     = "order"      // run -> stage: a command that the stage carries out
	signalReceipt   = "receipt"    // stage -> run: what came of it
	signalFreeze    = "freeze"     // control worker -> run and stage: what the server has paused
)

func internalSignals() []string {
	return []string{
		signalGate, signalStageGate, signalOrder, signalReceipt, signalFreeze,
		signalPlacement, activities.MessageAsk, activities.MessageRelease, activities.MessageNews,
	}
}

// Search attributes, when the server knows them; see RunPlan.SearchAttributes.
const (
	AttributeRun   = "RunID" // keyword
	AttributeStage = "Stage" // keyword, the stage's name
	AttributeStep  = "Step"  // int, counted through the run
	// AttributeReward is the mean reward of the newest step that is told: double.
	AttributeReward = "Reward"
	// AttributeStatus is the State, kept by the run alone: keyword.
	AttributeStatus = "RunStatus"
)

// SearchAttributes are the attributes with their types, for the server.
func SearchAttributes() map[string]enums.IndexedValueType {
	return map[string]enums.IndexedValueType{
		AttributeRun:   enums.INDEXED_VALUE_TYPE_KEYWORD,
		AttributeStage: enums.INDEXED_VALUE_TYPE_KEYWORD,
		AttributeStep:  enums.INDEXED_VALUE_TYPE_INT,

		AttributeReward: enums.INDEXED_VALUE_TYPE_DOUBLE,
		AttributeStatus: enums.INDEXED_VALUE_TYPE_KEYWORD,
	}
}

const runPrefix = "rl/"

// RunWorkflowID is the workflow id of a run.
func RunWorkflowID(runID string) string { return runPrefix + runID }

// StageWorkflowID is the workflow id of a stage; index counts from 1.
func StageWorkflowID(runID string, index int, name string) string {
	return fmt.Sprintf("%s%s/stage-%02d-%s", runPrefix, runID, index, safeName(name))
}

// EvaluateWorkflowID is the workflow id of an evaluation of a finished run. One
// evaluation of a version runs at a time; it may be repeated afterwards.
func EvaluateWorkflowID(runID string, version *int64) string {
	if version == nil {
		return runPrefix + runID + "/eval-last"
	}
	return fmt.Sprintf("%s%s/eval-%06d", runPrefix, runID, *version)
}

// maxRunID bounds run ids: they become folder names.
const maxRunID = 64

// RunIDFromWorkflowID derives the run id of a run that was started without
// one: the workflow id less its prefix, with every character that does not
// belong in a folder name replaced by '-'.
func RunIDFromWorkflowID(workflowID string) string {
	id := safeName(strings.TrimPrefix(workflowID, runPrefix))
	if len(id) > maxRunID {
		id = id[:maxRunID]
	}
	if id == "" {
		return "run"
	}
	return id
}

// runIDOfStart is the run id of an execution: its own name, and where a cron schedule
// starts one execution after another, also when this one was started. A Temporal
// Schedule makes workflow ids of that form by itself.
func runIDOfStart(info *workflow.Info, name string) string {
	if info.CronSchedule == "" {
		return name
	}
	suffix := info.WorkflowStartTime.UTC().Format("-2006-01-02T15-04-05Z")
	return name[:min(len(name), maxRunID-len(suffix))] + suffix
}

// safeName keeps letters, digits, '.', '_' and '-', and starts with none of
// '.', '_' and '-'.
func safeName(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		default:
			return '-'
		}
	}, s)
	return strings.TrimLeft(clean, "._-")
}
