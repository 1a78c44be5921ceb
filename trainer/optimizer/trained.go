package optimizer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"temper/internal/config"
	"temper/trainer/model"
)

// Tuning is the part of an optimizer that is compiled into the graphs of updates.
type Tuning struct {
	Trained                       []model.TensorSpec // in the order of model.Config.Tensors
	DecayVectors, DecayEmbeddings bool
}

// TuningOf returns the tuning of an optimizer's configuration. The error is config.Problems.
func TuningOf(m model.Config, o config.Optimizer) (Tuning, error) {
	trained, problems := trainable(m, o.Freeze)
	if len(problems) > 0 {
		return Tuning{}, problems
	}
	return Tuning{Trained: trained, DecayVectors: o.DecayVectors, DecayEmbeddings: o.DecayEmbeddings}, nil
}

// Equal reports whether the same graphs serve both tunings.
func (t Tuning) Equal(o Tuning) bool {
	return t.DecayVectors == o.DecayVectors && t.DecayEmbeddings == o.DecayEmbeddings &&
		slices.EqualFunc(t.Trained, o.Trained, func(x, y model.TensorSpec) bool { return x.Name == y.Name })
}

// Trains reports whether a tensor is among the trained ones.
func (t Tuning) Trains(name string) bool {
	return slices.ContainsFunc(t.Trained, func(s model.TensorSpec) bool { return s.Name == name })
}

// decays reports whether weight decay applies to a tensor. It always applies to matrices. Two
// switches decide for norms and biases, which are vectors, and for the embedding table, whose
// rows of rare tokens get no gradient to counter the decay.
func (t Tuning) decays(spec model.TensorSpec) bool {
	switch {
	case len(spec.Shape) < 2:
		return t.DecayVectors
	case spec.IsEmbedding():
		return t.DecayEmbeddings
	default:
		return true
	}
}

// Check finds the mistakes of an optimizer that depend on the model: patterns of Freeze that
// match no tensor, and a Freeze that leaves nothing to train. The error is config.Problems,
// with the given key before each problem's key.
func Check(m model.Config, key string, o config.Optimizer) error {
	_, problems := trainable(m, o.Freeze)
	for i := range problems {
		problems[i].Path = strings.TrimPrefix(key+"."+problems[i].Path, ".")
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// trainable returns the tensors that no pattern freezes, or the adapters if there are some,
// in the order of model.Config.Tensors.
func trainable(m model.Config, freeze []string) ([]model.TensorSpec, config.Problems) {
	var problems config.Problems
	if adapters := m.Adapters(); len(adapters) > 0 {
		if len(freeze) > 0 {
			problems = config.Problems{{Path: "freeze", Msg: "has no part beside trainer.lora, which trains its adapters alone: leave one of them out"}}
		}
		return adapters, problems
	}
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
	var out []model.TensorSpec
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

// kinds names the tensors, with one name for equal tensors of all layers:
// model.layers.0-27.mlp.up_proj.weight.
func kinds(specs []model.TensorSpec) []string {
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
