package run

import (
	"encoding/json"
	"fmt"
)

// Input is the input of the workflow RLRun, as a person writes it:
// {"config": "configs/demo.yaml", "seed": 1, "set": {"rl.roc.enabled": "false"}}.
type Input struct {
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
	// WithoutAmendments takes the configuration as it was when the run was opened,
	// also for the steps that its amendments have changed already.
	WithoutAmendments bool `json:"without_amendments,omitempty"`
}

// The values of ForkFrom.From.
const (
	FromBest = "best"
	FromLast = "last"
)
