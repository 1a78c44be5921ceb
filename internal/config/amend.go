package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Amendment changes a run on its way. It says from which step on; what was made
// before it is made again, after a crash, as the configuration was then.
type Amendment struct {
	// FromStep is the first step under the change, counted through the run from 1.
	FromStep int `yaml:"from_step" json:"from_step"`
	// Set holds keys and their values, for example "rl.optimizer.lr": "1e-4". See
	// Amendable for the keys.
	Set map[string]string `yaml:"set,omitempty" json:"set,omitempty"`
	// Repeat names a stage that is run once more, after all others.
	Repeat string `yaml:"repeat,omitempty" json:"repeat,omitempty"`
	Reason string `yaml:"reason,omitempty" json:"reason,omitempty"`
	By     string `yaml:"by,omitempty" json:"by,omitempty"`
	// At is the time of the order, RFC 3339.
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

// amendable are the keys that a run can change on its way. The other keys decide
// what the weights, the data or the steps before were.
var amendable = regexp.MustCompile(`^(` + strings.Join([]string{
	`rl\.optimizer\.(lr|beta1|beta2|eps|weight_decay|max_grad_norm|skip_grad_norm|warmup_steps|schedule|min_lr_ratio|decay_steps)`,
	`rl\.(num_minibatches|microbatch_tokens|rollouts_per_problem|group_size)`,
	`rl\.loss\.(clip_low|clip_high|dual_clip|overlong|entropy_fraction|max_logits|aggregation|constant_tokens)`,
	`rl\.roc\.[a-z_]+`,
	`rollout\.(temperature|tool_timeout|tool_memory|max_tool_response_chars|max_calls_per_turn)`,
	`stages\[\d+\]\.(max_response_tokens|max_turns|until\.steps)`,
	`checkpoint\.[a-z_.]+`,
	`eval\.[a-z_.]+`,
}, "|") + `)$`)

// fixed says why a key cannot be changed, by its beginning; the longest one counts.
var fixed = []struct{ prefix, why string }{
	{"seed", "every draw of the run so far came from it"},
	{"model.", "the weights have this shape"},
	{"tokenizer.", "the weights know these tokens"},
	{"sft.", "the supervised updates are made"},
	{"eval.num_problems", "the held-out problems are set aside"},
	{"rl.problems_per_step", "the ledger counts in it: problems of the epoch would be met twice or never"},
	{"rl.loss.kl.", "the reference policy is chosen at the start"},
	{"rollout.", "the prompts of the run have this form"},
	{"stages", "the problems of the stages are made and dealt out"},
}

// Amendable says why a key cannot be amended; nil means that it can be.
func Amendable(key string) error {
	for _, f := range fixed {
		if strings.HasPrefix(key, f.prefix) && (key == f.prefix || !amendable.MatchString(key) || f.prefix == "eval.num_problems") {
			return fmt.Errorf("cannot be changed on the way: %s; fork the run instead (temper run fork --set %s=...)", f.why, key)
		}
	}
	if !amendable.MatchString(key) {
		return fmt.Errorf("cannot be changed on the way: fork the run instead (temper run fork --set %s=...)", key)
	}
	return nil
}

// At is the configuration that step works under, counted through the run from
// 1; it has no amendments any more but those that repeat stages.
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

// Repeated lists the stages that are run once more, by their index from 0, in order.
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

// amendments checks each amendment, and the configuration as it is under it.
func (r Run) amendments(c *checker) {
	for i, a := range r.Amendments {
		path := fmt.Sprintf("amendments[%d]", i)
		c.atLeast(path+".from_step", a.FromStep, 1)
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
