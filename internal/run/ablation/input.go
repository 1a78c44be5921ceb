// Package ablation compares variants of a recipe: it plans the runs of several arms over
// several seeds, says which of them the store has already, and turns what they left into
// series with bands, a table and a picture. It runs nothing.
//
// Invariant: the id of a run is a function of ablation, arm and seed, and a run of that id
// whose configuration is another one is never taken for it.
package ablation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Input is the input of the workflow Ablate, as a person writes it:
//
//	{"id": "roc", "config": "configs/roc.yaml", "seeds": [1, 2, 3],
//	 "arms": [{"name": "roc"}, {"name": "grpo", "set": {"rl.roc.enabled": "false"}}]}
type Input struct {
	// ID names the ablation: its folder in the store and its runs.
	ID string `json:"id"`
	// Config is the base recipe, as in run.Input.
	Config json.RawMessage `json:"config,omitempty"`
	// Set overrides single keys of the recipe for every arm.
	Set run.Settings `json:"set,omitempty"`
	// Arms are the variants, at least one. The first is what the others are compared with.
	Arms []Arm `json:"arms,omitempty"`
	// Seeds are the seeds of the runs of each arm.
	Seeds []uint64 `json:"seeds,omitempty"`
	// Parallel is how many runs are open at a time; 0 = 1.
	Parallel int `json:"parallel,omitempty"`
	// Priority of the runs among others, as in run.Input.
	Priority int `json:"priority,omitempty"`
	// Continued is the state that one execution of the workflow hands to the next; users do
	// not set it.
	Continued *Progress `json:"continued,omitempty"`

	wrong config.Problems // of the JSON that it was decoded from
}

// Arm is a variant of the recipe.
type Arm struct {
	// Name is a part of the ids of the arm's runs.
	Name string `json:"name" yaml:"name"`
	// Set overrides single keys: "rl.roc.enabled" -> "false".
	Set run.Settings `json:"set,omitempty" yaml:"set"`

	wrong config.Problems
}

// UnmarshalJSON decodes what a person wrote and remembers what is wrong with it; see
// CheckKeys.
func (in *Input) UnmarshalJSON(data []byte) error {
	in.wrong = config.DecodeInput(data, in)
	return nil
}

// UnmarshalJSON decodes an arm and keeps its problems for Input.CheckKeys.
func (a *Arm) UnmarshalJSON(data []byte) error {
	a.wrong = config.DecodeInput(data, a)
	return nil
}

// CheckKeys reports unknown keys and values of another form in the JSON that the input
// was decoded from.
func (in Input) CheckKeys() error {
	bad := slices.Clone(in.wrong)
	for i, a := range in.Arms {
		for _, p := range a.wrong {
			p.Path = strings.TrimSuffix(fmt.Sprintf("arms[%d].%s", i, p.Path), ".")
			bad = append(bad, p)
		}
	}
	return bad.Err()
}

// MaxRuns bounds the runs of an ablation, so that its plan passes through Temporal.
const MaxRuns = 100

var armForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,15}$`)

// seedKey is the key that an ablation sets by itself.
const seedKey = "seed"

// Validate reports everything that is wrong with arms and seeds, without the recipe.
func (in Input) Validate() error {
	bad := []error{artifact.CheckAblationID(in.ID)}
	if len(in.Arms) == 0 {
		bad = append(bad, errors.New("arms: none is named: want at least one name with the keys that it sets"))
	}
	seen := map[string]bool{}
	for _, a := range in.Arms {
		if !armForm.MatchString(a.Name) {
			bad = append(bad, fmt.Errorf("arm %q: want 1 to 16 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit", a.Name))
		}
		if seen[a.Name] {
			bad = append(bad, fmt.Errorf("arm %q is named twice: give each arm a name of its own", a.Name))
		}
		seen[a.Name] = true
		if _, ok := a.Set[seedKey]; ok {
			bad = append(bad, fmt.Errorf("arm %q sets %s: every arm has the same seeds, name them in seeds", a.Name, seedKey))
		}
	}
	if _, ok := in.Set[seedKey]; ok {
		bad = append(bad, fmt.Errorf("set: %s is set for every run: name the seeds in seeds", seedKey))
	}
	bad = append(bad, in.checkSeeds())
	if in.Parallel < 0 || in.Parallel > MaxRuns {
		bad = append(bad, fmt.Errorf("parallel: is %d, want 1 to %d", in.Parallel, MaxRuns))
	}
	return errors.Join(bad...)
}

func (in Input) checkSeeds() error {
	var bad []error
	if len(in.Seeds) == 0 {
		bad = append(bad, errors.New("seeds: none is named: want at least one; a band needs two"))
	}
	counts := map[uint64]int{}
	for _, s := range in.Seeds {
		if counts[s]++; counts[s] == 2 {
			bad = append(bad, fmt.Errorf("seed %d is named twice: a run that is counted twice makes bands narrower than they are", s))
		}
	}
	if n := len(in.Seeds) * len(in.Arms); n > MaxRuns {
		bad = append(bad, fmt.Errorf("%d arms with %d seeds are %d runs, want at most %d: split the ablation", len(in.Arms), len(in.Seeds), n, MaxRuns))
	}
	for _, a := range in.Arms {
		for _, s := range in.Seeds {
			if id := RunID(in.ID, a.Name, s); artifact.CheckAblationID(in.ID) == nil && armForm.MatchString(a.Name) && artifact.CheckRunID(id) != nil {
				bad = append(bad, fmt.Errorf("run id %s is longer than 64 characters: choose shorter names", id))
			}
		}
	}
	return errors.Join(bad...)
}

// RunID names the run of an arm with a seed.
func RunID(id, arm string, seed uint64) string { return fmt.Sprintf("%s-%s-s%d", id, arm, seed) }

// settings are the overrides of a run over the base recipe.
func (a Arm) settings(seed uint64) map[string]string {
	set := map[string]string{}
	maps.Copy(set, a.Set)
	set[seedKey] = fmt.Sprint(seed)
	return set
}

// File is an ablation as a file of YAML states it. Paths in it count from its folder.
type File struct {
	// ID names the ablation.
	ID string `yaml:"id"`
	// Config is the path of the base recipe.
	Config string `yaml:"config"`
	// Set overrides keys of the recipe for every arm.
	Set map[string]string `yaml:"set"`
	// Arms are the variants.
	Arms []FileArm `yaml:"arms"`
	// Seeds are the seeds of the runs of each arm.
	Seeds []uint64 `yaml:"seeds"`
	// Parallel is how many runs are open at a time.
	Parallel int `yaml:"parallel"`
}

// FileArm is an arm of a File.
type FileArm struct {
	Name string            `yaml:"name"`
	Set  map[string]string `yaml:"set"`
}

// ReadFile decodes a File strictly. The error names line and key of each mistake.
func ReadFile(name string, data []byte) (File, error) {
	var f File
	return f, config.Decode(name, data, &f, nil)
}
