package ablation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"temper/internal/config"
)

// Order is a user's request for an ablation, by flags and a file.
type Order struct {
	File, Recipe string   // YAML files; the recipe is the base of all arms
	Arms, Set    []string // NAME=KEY=VALUE;KEY=VALUE, and KEY=VALUE for every arm
	Seeds        string   // such as 1-5 or 1,2,7
	Input        Input
}

// Complete completes the input and returns the plan with the configuration of each run.
// parseSet reads KEY=VALUE. The error has a line for each mistake.
func (o *Order) Complete(parseSet func([]string) (map[string]string, error)) (Plan, map[string]config.Run, error) {
	bad := []error{o.readFile(), o.readArms(parseSet), o.readSeeds()}
	set, err := parseSet(o.Set)
	bad = append(bad, err)
	for key, value := range set {
		if o.Input.Set == nil {
			o.Input.Set = map[string]string{}
		}
		o.Input.Set[key] = value
	}
	if o.Recipe == "" {
		bad = append(bad, errors.New("--config is missing: name the YAML file of the base recipe"))
		return Plan{}, nil, errors.Join(bad...)
	}
	base, err := config.LoadFile(o.Recipe, o.Input.Set)
	if err = errors.Join(append(bad, err)...); err != nil {
		return Plan{}, nil, err
	}
	if o.Input.ID == "" {
		o.Input.ID = base.Name
	}
	text, err := base.YAML()
	if err != nil {
		return Plan{}, nil, err
	}
	if o.Input.Config, err = json.Marshal(string(text)); err != nil {
		return Plan{}, nil, err
	}
	o.Input.Set = nil // they are in the text
	return Check(o.Input)
}

// readFile takes what the flags do not say from the file.
func (o *Order) readFile() error {
	if o.File == "" {
		return nil
	}
	data, err := os.ReadFile(o.File) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	f, err := ReadFile(o.File, data)
	if err != nil {
		return err
	}
	if o.Recipe == "" && f.Config != "" {
		o.Recipe = f.Config
		if !filepath.IsAbs(o.Recipe) {
			o.Recipe = filepath.Join(filepath.Dir(o.File), o.Recipe)
		}
	}
	if o.Input.ID == "" {
		o.Input.ID = f.ID
	}
	if o.Input.Parallel == 0 {
		o.Input.Parallel = f.Parallel
	}
	o.Input.Set, o.Input.Seeds = f.Set, f.Seeds
	for _, a := range f.Arms {
		o.Input.Arms = append(o.Input.Arms, Arm{Name: a.Name, Set: a.Set})
	}
	return nil
}

// readArms takes arms from the flags, after those of the file.
func (o *Order) readArms(parseSet func([]string) (map[string]string, error)) error {
	var bad []error
	for _, text := range o.Arms {
		name, keys, _ := strings.Cut(text, "=")
		var pairs []string
		for pair := range strings.SplitSeq(keys, ";") {
			if pair = strings.TrimSpace(pair); pair != "" {
				pairs = append(pairs, pair)
			}
		}
		set, err := parseSet(pairs)
		if err != nil {
			bad = append(bad, fmt.Errorf("--arm %s: %w", name, err))
		}
		o.Input.Arms = append(o.Input.Arms, Arm{Name: name, Set: set})
	}
	return errors.Join(bad...)
}

// readSeeds takes the seeds of the flag in place of those of the file.
func (o *Order) readSeeds() error {
	if o.Seeds == "" {
		return nil
	}
	o.Input.Seeds = nil
	for part := range strings.SplitSeq(o.Seeds, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || last < first || last-first >= MaxRuns {
			return fmt.Errorf("--seeds %s: %q is neither a number nor a range such as 1-5 of at most %d seeds", o.Seeds, part, MaxRuns)
		}
		for n := range last - first + 1 { // the largest seed has none above it to stop at
			o.Input.Seeds = append(o.Input.Seeds, first+n)
		}
	}
	return nil
}

// WriteFolder writes the files of a result into a folder.
func (r Result) WriteFolder(folder string) error {
	files, err := r.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of the user's, as mkdir makes it
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o644); err != nil { //nolint:gosec // as cp makes it
			return err
		}
	}
	return nil
}
