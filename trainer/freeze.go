package trainer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"temper/internal/config"
	"temper/trainer/qwen3"
)

// CheckOptimizer reports what Config.Validate cannot know of an optimizer
// without the model: patterns of Freeze that match no tensor, and a Freeze that
// leaves nothing to train. The error is config.Problems, with the given key
// before that of each problem.
func CheckOptimizer(m qwen3.Config, key string, o config.Optimizer) error {
	_, problems := trainable(m, o.Freeze)
	for i := range problems {
		problems[i].Path = strings.TrimPrefix(key+"."+problems[i].Path, ".")
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// trainable returns the tensors that no pattern freezes, in the order of
// qwen3.Config.Tensors.
func trainable(m qwen3.Config, freeze []string) ([]qwen3.TensorSpec, config.Problems) {
	var problems config.Problems
	specs := m.Tensors()
	frozen := make([]bool, len(specs))
	for i, pattern := range freeze {
		key, hits := fmt.Sprintf("freeze[%d]", i), 0
		for at, spec := range specs {
			hit, err := path.Match(pattern, spec.Name)
			if err != nil {
				problems = append(problems, config.Problem{Path: key, Msg: fmt.Sprintf("pattern %q: %v", pattern, err)})
				hits = -1
				break
			}
			if hit {
				hits++
				frozen[at] = true
			}
		}
		if hits == 0 {
			problems = append(problems, config.Problem{
				Path: key, Msg: fmt.Sprintf("%q matches no tensor; the model has %s", pattern, strings.Join(kinds(specs), ", "))})
		}
	}
	var out []qwen3.TensorSpec
	for at, spec := range specs {
		if !frozen[at] {
			out = append(out, spec)
		}
	}
	if len(out) == 0 && len(problems) == 0 {
		problems = config.Problems{{Path: "freeze", Msg: "freezes every tensor of the model, which leaves nothing to train"}}
	}
	return out, problems
}

// kinds names the tensors with those of all layers as one: model.layers.0-27.mlp.up_proj.weight.
func kinds(specs []qwen3.TensorSpec) []string {
	layer := regexp.MustCompile(`^model\.layers\.(\d+)\.`)
	last := 0
	var out []string
	for _, spec := range specs {
		at := layer.FindStringSubmatch(spec.Name)
		if at == nil {
			out = append(out, spec.Name)
			continue
		}
		last, _ = strconv.Atoi(at[1]) // the expression admits digits only
		if last == 0 {
			out = append(out, spec.Name)
		}
	}
	if last > 0 {
		for i, name := range out {
			out[i] = strings.Replace(name, "model.layers.0.", fmt.Sprintf("model.layers.0-%d.", last), 1)
		}
	}
	return out
}

// tune makes the trainer ready for updates by an optimizer: graphs that fit its
// switches, and moments for the tensors that it trains and no others. While the
// moments count, that is between two resets, the trained tensors must not change.
func (t *Trainer) tune(o config.Optimizer) error {
	trained, problems := trainable(t.cfg.Model, o.Freeze)
	if len(problems) > 0 {
		return problems
	}
	if t.counters.Updates > 0 {
		if err := t.sameTrained(trained); err != nil {
			return err
		}
	}
	next := tuning{trained: trained, decayVectors: o.DecayVectors, decayEmbeddings: o.DecayEmbeddings}
	if !t.tuning.equal(next) {
		t.dropUpdates()
	}
	t.tuning = next
	return t.holdMoments(trained)
}

// tuning is what graphs of updates are built for.
type tuning struct {
	trained                       []qwen3.TensorSpec // in the order of qwen3.Config.Tensors
	decayVectors, decayEmbeddings bool
}

func (a tuning) equal(b tuning) bool {
	return a.decayVectors == b.decayVectors && a.decayEmbeddings == b.decayEmbeddings &&
		slices.EqualFunc(a.trained, b.trained, func(x, y qwen3.TensorSpec) bool { return x.Name == y.Name })
}

// sameTrained compares the tensors to train with those that have moments.
func (t *Trainer) sameTrained(trained []qwen3.TensorSpec) error {
	for _, spec := range t.cfg.Model.Tensors() {
		now := slices.ContainsFunc(trained, func(s qwen3.TensorSpec) bool { return s.Name == spec.Name })
		before := t.store.GetVariable(firstMomentPath(spec.Name)) != nil
		if now != before {
			was := map[bool]string{true: "trained", false: "frozen"}
			return fmt.Errorf("optimizer: %s is %s but was %s in the %d updates before; reset the moments where freeze changes",
				spec.Name, was[now], was[before], t.counters.Updates)
		}
	}
	return nil
}
