package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// Command is the argument of every command, as a signal and as an update: one
// JSON object. Each command takes Reason and By and what its description names;
// nothing at all, or an empty object, is a command without a reason.
type Command struct {
	// Reason is shown in the status and in the run's event log.
	Reason string `json:"reason,omitempty"`
	// By says who gives the command; the server does not tell the run.
	By string `json:"by,omitempty"`
	// Now interrupts the work in flight: pause, stop and restart.
	Now bool `json:"now,omitempty"`
	// Stage by name: skip_stage and repeat_stage.
	Stage string `json:"stage,omitempty"`
	// Set are keys and values: amend and restart.
	Set run.Settings `json:"set,omitempty"`
	// FromStep is the first step under an amendment; 0 = the next one.
	FromStep int `json:"from_step,omitempty"`
	// From is the checkpoint of a restart: "best", "last" or the number of a step.
	From Checkpoint `json:"from,omitempty"`
	// RunID of the run that a restart begins; empty makes one.
	RunID string `json:"run_id,omitempty"`
	// WithoutAmendments restarts under the configuration that the run was opened with.
	WithoutAmendments bool `json:"without_amendments,omitempty"`

	stated []string // the keys of the JSON object
	size   int      // in bytes
	wrong  error    // why it could not be read
}

// Checkpoint is "best", "last" or a step in digits; JSON may state a number.
type Checkpoint string

// UnmarshalJSON takes a text or a number.
func (c *Checkpoint) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	*c = Checkpoint(text)
	return nil
}

// UnmarshalJSON remembers which keys were stated and what is wrong, so that a command
// is refused in the words of its sender and not in those of the decoder.
func (c *Command) UnmarshalJSON(data []byte) error {
	type plain Command
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) != nil {
		*c = Command{wrong: errors.New(`want one JSON object such as {"reason": "..."}`)}
		return nil
	}
	var read plain
	if err := json.Unmarshal(data, &read); err != nil {
		*c = Command{wrong: malformed(err)}
		return nil
	}
	*c = Command(read)
	c.stated, c.size = slices.Sorted(maps.Keys(keys)), len(data)
	return nil
}

const (
	// maxCommandBytes bounds a command as JSON. It lies in histories, and passes from the
	// run to its stage.
	maxCommandBytes = 64 << 10
	// maxTextBytes bounds each text that is shown or becomes a name.
	maxTextBytes = 2000
)

// check reports what no run can carry out. It is asked of new commands alone: what a
// history holds was accepted.
func (c Command) check() error {
	if c.size > maxCommandBytes {
		return fmt.Errorf("the command has %d bytes, want at most %d", c.size, maxCommandBytes)
	}
	var wrong []string
	for _, text := range []struct{ key, value string }{{"reason", c.Reason}, {"by", c.By}, {"stage", c.Stage}} {
		if len(text.value) > maxTextBytes {
			wrong = append(wrong, fmt.Sprintf("%s has %d bytes, want at most %d", text.key, len(text.value), maxTextBytes))
		}
	}
	if c.RunID != "" && RunIDFromWorkflowID(c.RunID) != c.RunID {
		wrong = append(wrong, fmt.Sprintf("run_id %q: want letters, digits, '.', '_' and '-', at most %d, none of the signs first", shorten(c.RunID), maxRunID))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// grammar lists the fields that a command takes besides reason and by, and its effect.
type grammar struct {
	keys  []string
	about string // for the web UI
}

// grammars of the commands of a run; stageCommands are those that a stage knows, too.
func grammars() map[string]grammar {
	return map[string]grammar{
		CommandPause: {[]string{"now"}, `Holds the run at the next safe point: after the current step, chunk of SFT or evaluation. ` +
			`With {"now": true} the work in flight is interrupted and made again after resume, with the same result.`},
		CommandResume:     {nil, `Lets the paused run go on.`},
		CommandStop:       {[]string{"now"}, `Ends the run at the next safe point, or with {"now": true} at once, and writes its summary.`},
		CommandCheckpoint: {nil, `Saves a checkpoint after the current step; at once where the run is paused.`},
		CommandSkipStage:  {[]string{"stage", "now"}, `Ends the current stage at the next safe point, or with {"now": true} at once; {"stage": "name"} leaves out a later one. Forks of the run do the same.`},
		CommandRepeatStage: {[]string{"stage"}, `Runs a stage, {"stage": "name"} or the current one, once more after all others. ` +
			`Steps count on, and no problem is met twice within an epoch.`},
		CommandAmend: {[]string{"set", "from_step"}, `Changes keys of the configuration from a step on, the next one if "from_step" is missing: ` +
			`{"set": {"rl.optimizer.lr": 1e-4}, "reason": "..."}.`},
		CommandRestart: {[]string{"from", "set", "run_id", "now", "without_amendments"}, `Ends the run at the next safe point, or with {"now": true} at once, and starts another from its checkpoint: ` +
			`{"from": "best" | "last" | step, "set": {...}, "run_id": "...", "without_amendments": true}. Without "from" it is the best, and the answer names the new run.`},
	}
}

// commands lists the commands of a run in the order in which signals that
// arrive together are applied.
func commands() []string {
	return []string{
		CommandPause, CommandResume, CommandStop, CommandCheckpoint,
		CommandSkipStage, CommandRepeatStage, CommandAmend, CommandRestart,
	}
}

// stageCommands are those that a stage takes itself.
func stageCommands() []string {
	return []string{CommandPause, CommandResume, CommandStop, CommandCheckpoint}
}

// describe is the description of a command for the web UI.
func describe(name string) string {
	return grammars()[name].about + ` Argument: one JSON object; "reason" and "by" are optional.`
}

// checkKeys reports what the command does not take; nil when it takes everything.
func checkKeys(name string, c Command) error {
	if c.wrong != nil {
		return fmt.Errorf("%s: %w", name, c.wrong)
	}
	takes := append([]string{"by", "reason"}, grammars()[name].keys...)
	for _, key := range c.stated {
		if !slices.Contains(takes, key) {
			slices.Sort(takes)
			return fmt.Errorf("%s takes no %q: it takes %s", name, key, strings.Join(takes, ", "))
		}
	}
	return nil
}

// byWhom says who gave a command and why, for the event log.
func byWhom(reason, by string) string {
	text := because(reason)
	if by != "" {
		text += " (by " + by + ")"
	}
	return text
}

// nowText is the present in words.
func nowText(ctx workflow.Context) string { return workflow.Now(ctx).UTC().Format(time.RFC3339) }
