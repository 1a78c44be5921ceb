package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"temper/internal/fault"
	"temper/trainer/model"
)

// ErrMismatch means that a checkpoint is whole, but belongs to another run, configuration or
// architecture.
var ErrMismatch = fault.Newf(fault.Conflict, "checkpoint does not fit")

// Fits fails for a checkpoint that another run, configuration or architecture made. want
// describes the run's own checkpoint of the step; for an adopted checkpoint it describes the
// run that it comes from. Errors: ErrMismatch, with all differences.
func (d Description) Fits(want About, network model.Config) error {
	var differs []string
	differ := func(what string, have, want any) {
		if !reflect.DeepEqual(have, want) {
			differs = append(differs, fmt.Sprintf("%s is %v, want %v", what, have, want))
		}
	}
	if !d.Adopted {
		differ("run", d.About.Run, want.Run)
		differ("seed", d.About.Seed, want.Seed)
		differ("config_sha256", fmt.Sprintf("%.12s", d.About.ConfigSHA256), fmt.Sprintf("%.12s", want.ConfigSHA256))
	}
	have, need := fields(d.Model), fields(network)
	for _, key := range slices.Sorted(maps.Keys(need)) {
		differ("model."+key, have[key], need[key])
	}
	if len(differs) > 0 {
		return fmt.Errorf("%s: %w", strings.Join(differs, "; "), ErrMismatch)
	}
	return nil
}

// fields returns a model's configuration by the keys of config.json.
func fields(network model.Config) map[string]any {
	data, err := json.Marshal(network)
	if err != nil {
		panic(err) // a number is not finite
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}
