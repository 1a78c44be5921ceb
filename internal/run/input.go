package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/placement"
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
	// Fork starts from a checkpoint of another run; Config may be left out then.
	Fork *ForkFrom `json:"fork,omitempty"`
	// TakeOver goes on with a stored run whose workflow, of another id than this one,
	// has ended. Config, Seed, Set and Fork are left out then.
	TakeOver bool `json:"take_over,omitempty"`
	// Priority among runs that wait for the same workers: 1 (first) to 5; 0 = 3.
	Priority int `json:"priority,omitempty"`
	// Placement gives the run its own workers on a cluster; without it the run shares
	// existing workers.
	Placement *placement.Spec `json:"placement,omitempty"`

	wrong config.Problems // of the JSON that it was decoded from
}

// UnmarshalJSON decodes what a person wrote and remembers what is wrong with it; see
// CheckKeys.
func (in *Input) UnmarshalJSON(data []byte) error {
	in.wrong = config.DecodeInput(data, in)
	return nil
}

// CheckKeys reports unknown keys and values of another form in the JSON that the input
// was decoded from.
func (in Input) CheckKeys() error { return in.wrong.Err() }

// Settings are keys of a configuration with their values as text. In JSON a
// value may be a number, a boolean or a list as well.
type Settings map[string]string

// UnmarshalJSON takes an object of texts, numbers, booleans and lists.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return errors.New(`set: want an object of keys and values, such as {"seed": 2}`)
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

// Payloads through Temporal stay below 64 KiB, a thirtieth of the server's limit: they lie
// in histories and are sent again at each replay.
const (
	// MaxConfigBytes bounds a configuration that is sent as text or as an object.
	MaxConfigBytes = 48 << 10
	// MaxStepIDBytes bounds the ids of the problems of one step, as JSON.
	MaxStepIDBytes = 48 << 10
)

// CheckSize reports a configuration that is too long to be sent.
func (in Input) CheckSize() error {
	if n := len(in.Config); n > MaxConfigBytes {
		return fmt.Errorf("config: %s as text, want at most %s: shorten rollout.system_prompt, or name a file that the control worker can read",
			config.Bytes(n), config.Bytes(MaxConfigBytes))
	}
	return nil
}

// LoadConfig reads the configuration that an Input names or holds. A string
// with a line break is YAML, another string a path, an object the configuration.
func LoadConfig(in Input) (config.Run, error) {
	if err := in.CheckSize(); err != nil {
		return config.Run{}, err
	}
	set := map[string]string{}
	maps.Copy(set, in.Set)
	if in.Seed != nil {
		set["seed"] = fmt.Sprint(*in.Seed)
	}
	var text string
	switch {
	case json.Unmarshal(in.Config, &text) != nil:
		return config.Load("config", in.Config, set)
	case strings.Contains(text, "\n"):
		return config.Load("config", []byte(text), set)
	case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(text)):
		return config.Run{}, fmt.Errorf("config %q: want a path ending in .yaml, .yml or .json", text)
	default:
		return config.LoadFile(text, set)
	}
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

// AmendInput asks for a new amendment of a run's configuration.
type AmendInput struct {
	Run       Ref              `json:"run"`
	Amendment config.Amendment `json:"amendment"`
}

// Amended is the configuration with the amendment and the plan by it.
type Amended struct {
	Config blob.Ref `json:"config"`
	Stages []Stage  `json:"stages"`
	// CheckpointEvery is the number of steps between checkpoints, from FromStep on.
	CheckpointEvery int `json:"checkpoint_every"`
	// Text is the amendment in one line.
	Text string `json:"text"`
	// Warnings are changes that are probably mistakes, one line each.
	Warnings []string `json:"warnings,omitempty"`
}
