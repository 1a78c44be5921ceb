package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Starts reports whether the model starts from stored weights and not from
// random ones.
func (m Model) Starts() bool { return m.Path != "" || m.Run != "" }

// besideStart are the keys of the model that a checkpoint leaves to the run.
var besideStart = []string{"path", "run", "max_context", "compute", "remat"}

// dimension is a field of Model that a checkpoint brings along.
type dimension struct {
	path  string
	value reflect.Value
}

// dimensions lists the fields of the model that come from Path or Run.
func (m *Model) dimensions() []dimension {
	var out []dimension
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if key := keyOf(v.Type().Field(i)); !slices.Contains(besideStart, key) {
			out = append(out, dimension{"model." + key, v.Field(i)})
		}
	}
	return out
}

// forgetDefaults zeroes the dimensions that the configuration does not state when a
// checkpoint brings its own, so that stated ones can be refused.
func (m *Model) forgetDefaults(stated func(path string) bool) {
	if !m.Starts() {
		return
	}
	for _, d := range m.dimensions() {
		if !stated(d.path) {
			d.value.SetZero()
		}
	}
}

// start checks a model that starts from stored weights.
func (c *checker) start(m Model) {
	key, value := "model.path", m.Path
	if m.Run != "" {
		key, value = "model.run", m.Run
		if m.Path != "" {
			c.add(key, "is %s beside model.path (%s): a run has one start", m.Run, m.Path)
		}
		if _, _, err := ParsePolicy(m.Run); err != nil {
			c.add(key, "%v", err)
		}
	}
	for _, d := range m.dimensions() {
		if !d.value.IsZero() {
			c.add(d.path, "is %v, but %s (%s) has its own: leave it out", d.value, key, value)
		}
	}
}

// policyForm is a run id, as package artifact has it, and a version.
var policyForm = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,63})@([0-9]{1,15})$`)

// ParsePolicy splits RUN@POLICY into a run id and a version.
func ParsePolicy(name string) (runID string, version int64, err error) {
	m := policyForm.FindStringSubmatch(name)
	if m == nil {
		return "", 0, fmt.Errorf("is %q, want RUN@POLICY, a run id and the version of a policy, for example demo@120", name)
	}
	version, err = strconv.ParseInt(m[2], 10, 64)
	return m[1], version, err
}

// PolicyName is the inverse of ParsePolicy.
func PolicyName(runID string, version int64) string { return fmt.Sprintf("%s@%d", runID, version) }

// From returns the run with a policy of another run as its start. The dimensions
// come from the policy, and there are no supervised updates, since the policy knows
// the format. set are the overrides that made r: sft.steps in it is kept, and a
// dimension in it is an error. Errors: Problems.
func (r Run) From(policy string, set map[string]string) (Run, error) {
	var bad Problems
	for _, d := range r.Model.dimensions() {
		if value, ok := set[d.path]; ok {
			bad = append(bad, Problem{Path: d.path, Msg: fmt.Sprintf("is set to %s, but the policy %s has its own: leave it out", value, policy)})
		}
		d.value.SetZero()
	}
	r.Model.Path, r.Model.Run = "", policy
	if _, stated := set["sft.steps"]; !stated {
		r.SFT.Steps, r.SFT.Epochs = 0, 0
	}
	if bad = append(bad, r.problems()...); len(bad) > 0 {
		return r, bad
	}
	return r, nil
}

// storePrefix marks a path that is a key of the store.
const storePrefix = "store:"

// StoreKey returns the key of a path of the form store:KEY; ok is false for a path on disk.
func StoreKey(path string) (key string, ok bool) { return strings.CutPrefix(path, storePrefix) }

// StorePath is the inverse of StoreKey.
func StorePath(key string) string { return storePrefix + key }
