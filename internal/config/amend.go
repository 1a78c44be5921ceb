package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Amendment is a change of a run from a step on. After a crash, earlier steps are
// made again as the configuration was then.
type Amendment struct {
	// FromStep is the first step under the change, counted through the run from 1.
	FromStep int `yaml:"from_step" json:"from_step" range:"1.." unit:"step" required:"yes"`
	// Set holds keys that can be amended and their new values, for example
	// {rl.optimizer.lr: "1e-4"}.
	Set map[string]string `yaml:"set,omitempty" json:"set,omitempty"`
	// Repeat is the name of a stage that runs once more, after all others.
	Repeat string `yaml:"repeat,omitempty" json:"repeat,omitempty"`
	// Reason is the operator's reason.
	Reason string `yaml:"reason,omitempty" json:"reason,omitempty"`
	// By is who gave the order.
	By string `yaml:"by,omitempty" json:"by,omitempty"`
	// At is the time of the order, as RFC 3339.
	At string `yaml:"at,omitempty" json:"at,omitempty"`
}

// String is one line for people.
func (a Amendment) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(a.Set)) {
		parts = append(parts, key+"="+a.Set[key])
	}
	if a.Repeat != "" {
		parts = append(parts, "stage "+a.Repeat+" once more")
	}
	return fmt.Sprintf("from step %d: %s", a.FromStep, strings.Join(parts, ", "))
}

// Order is String with who gave the order and why.
func (a Amendment) Order() string {
	text := a.String()
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if a.By != "" {
		text += " (by " + a.By + ")"
	}
	return text
}

// Amendable says why a key cannot be amended; nil means that it can be. The tags
// "amend" of the fields along the key decide:
//
//	yes        this key, and every key below it that has no tag
//	some: WHY  not this key; keys below it have a tag that says yes
//	no: WHY    neither this key nor any key below it
//
// A key without a tag follows the section that it is in. A section as a whole is
// never amendable, so that an amendment names every value that it changes.
func Amendable(key string) error {
	t := reflect.TypeFor[Run]()
	verdict, why := "", ""
	for _, part := range strings.Split(key, ".") {
		name, index := splitIndex(part)
		if t.Kind() != reflect.Struct {
			break
		}
		f, ok := typeByKey(t, name)
		if !ok {
			return fmt.Errorf("unknown key %q%s", name, known(name, t))
		}
		if t = f.Type; index >= 0 && t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if tag := f.Tag.Get("amend"); tag != "" && verdict != "no" {
			verdict, why, _ = strings.Cut(tag, ": ")
		}
	}
	switch {
	case verdict == "yes" && t.Kind() == reflect.Struct:
		return fmt.Errorf("is a section: name the keys in it one by one (%s)", strings.Join(keysOf(t), ", "))
	case verdict == "yes":
		return nil
	case why != "":
		why = ": " + why
	}
	return fmt.Errorf("cannot be changed during a run%s; fork the run instead (temper run fork --set %s=...)", why, key)
}

// lrJump is the factor by which an amendment may move the learning rate without
// a warning.
const lrJump = 10

// Warnings lists what is allowed but probably a mistake in a change of a run's
// configuration, one line each. before and after are the configurations of the
// step before the change and of the first one under it.
func Warnings(before, after Run) []string {
	var out []string
	from, to := before.RL.Optimizer.LR, after.RL.Optimizer.LR
	low, high := min(from, to), max(from, to)
	if high > low*lrJump*(1+1e-9) { // ten times, whatever the rounding, is no jump
		out = append(out, fmt.Sprintf("rl.optimizer.lr: moves from %g to %g, by a factor of %.3g: more than %d at once is usually a mistake",
			from, to, high/low, lrJump))
	}
	return out
}

// At is the configuration of a step, counted through the run from 1. The only
// amendments left in it are those that repeat stages.
func (r Run) At(step int) Run {
	if len(r.Amendments) == 0 {
		return r
	}
	out := r.clone()
	out.Amendments = nil
	for _, a := range r.Amendments {
		if a.FromStep > step {
			continue
		}
		b := &binder{at: map[string]position{}}
		for _, key := range slices.Sorted(maps.Keys(a.Set)) {
			b.override(&out, key, a.Set[key])
		}
		if a.Repeat != "" {
			out.Amendments = append(out.Amendments, Amendment{FromStep: a.FromStep, Repeat: a.Repeat})
		}
	}
	return out
}

// Newest is the configuration with all amendments.
func (r Run) Newest() Run { return r.At(math.MaxInt) }

// Repeated lists the stages that run once more, by index from 0, in order.
func (r Run) Repeated() []int {
	var out []int
	for _, a := range r.Amendments {
		at := slices.IndexFunc(r.Stages, func(s Stage) bool { return s.Name == a.Repeat })
		if a.Repeat != "" && at >= 0 {
			out = append(out, at)
		}
	}
	return out
}

// clone is a copy whose lists can be changed.
func (r Run) clone() Run {
	r.Stages = slices.Clone(r.Stages)
	r.Amendments = slices.Clone(r.Amendments)
	return r
}

// amendments checks each amendment and the configuration that it leads to.
func (r Run) amendments(c *checker) {
	for i, a := range r.Amendments {
		path := fmt.Sprintf("amendments[%d]", i)
		if len(a.Set) == 0 && a.Repeat == "" {
			c.add(path+".set", "is empty, want keys and values")
		}
		if a.Repeat != "" && !slices.ContainsFunc(r.Stages, func(s Stage) bool { return s.Name == a.Repeat }) {
			c.add(path+".repeat", "no stage %q", a.Repeat)
		}
		before := len(c.out)
		r.amendedKeys(c, a)
		if len(c.out) > before {
			continue
		}
		under := r.At(a.FromStep)
		under.Amendments = nil
		for _, p := range under.problems() {
			c.add(p.Path, "from step %d: %s", a.FromStep, p.Msg)
		}
	}
}

func (r Run) amendedKeys(c *checker, a Amendment) {
	probe := r.clone()
	for _, key := range slices.Sorted(maps.Keys(a.Set)) {
		if _, problem := field(reflect.ValueOf(&probe).Elem(), key); problem != "" {
			c.add(key, "%s", problem)
			continue
		}
		if err := Amendable(key); err != nil {
			c.add(key, "%v", err)
			continue
		}
		b := &binder{at: map[string]position{}}
		b.override(&probe, key, a.Set[key])
		for _, p := range b.problems {
			c.add(key, "%s", p.Msg)
		}
	}
}
