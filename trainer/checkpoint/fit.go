package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"temper/internal/fault"
	"temper/trainer/qwen3"
)

// ErrMismatch means that a checkpoint is whole, but belongs to another run, configuration or
// architecture.
var ErrMismatch = fault.Newf(fault.Conflict, "checkpoint does not fit")

// Fits returns an error for a checkpoint of another run, configuration or architecture. want
// describes the run's own checkpoint of the step. An adopted checkpoint names its original
// run, and one of format 1 names none: both skip that comparison. Errors: ErrMismatch, with
// all differences.
func (d Description) Fits(want About, model qwen3.Config) error {
	var differs []string
	differ := func(what string, have, want any) {
		if have != want {
			differs = append(differs, fmt.Sprintf("%s is %v, want %v", what, have, want))
		}
	}
	if !d.Adopted && d.Format > 1 {
		differ("run", d.About.Run, want.Run)
		differ("seed", d.About.Seed, want.Seed)
		differ("config_sha256", fmt.Sprintf("%.12s", d.About.ConfigSHA256), fmt.Sprintf("%.12s", want.ConfigSHA256))
	}
	have, need := fields(d.Model), fields(model)
	for _, key := range slices.Sorted(maps.Keys(need)) {
		differ("model."+key, have[key], need[key])
	}
	if len(differs) > 0 {
		return fmt.Errorf("%s: %w", strings.Join(differs, "; "), ErrMismatch)
	}
	return nil
}

// fields returns a model's configuration by the keys of config.json.
func fields(model qwen3.Config) map[string]any {
	data, err := json.Marshal(model)
	if err != nil {
		panic(err) // a number is not finite
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}
