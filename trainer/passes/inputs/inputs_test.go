package inputs_test

import (
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/packing"
	"temper/trainer/passes/inputs"
)

// sample has tokens 100*k+1, 100*k+2, ... and everything after the first in the loss.
func sample(k, length int) rl.Sample {
	s := rl.Sample{Advantage: float32(k), Tokens: make([]int32, length), LossMask: make([]bool, length), RolloutLogprobs: make([]float32, length)}
	for p := range length {
		s.Tokens[p], s.LossMask[p], s.RolloutLogprobs[p] = int32(100*k+p+1), p > 0, -float32(p)
	}
	return s
}

// oneMicrobatch puts samples of the given lengths into one pass.
func oneMicrobatch(t *testing.T, pack bool, lengths ...int) packing.Microbatch {
	t.Helper()
	var samples []rl.Sample
	for k, n := range lengths {
		samples = append(samples, sample(k+1, n))
	}
	rows, err := packing.Rows(samples, packing.Limits{VocabSize: 1000, MaxTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	micros := packing.Plan{Tokens: 1 << 14, Pack: pack}.Microbatches(rows)
	if len(micros) != 1 {
		t.Fatalf("%d passes, want one", len(micros))
	}
	return micros[0]
}

func values[T int32 | float32 | bool](t *testing.T, x any) []T {
	t.Helper()
	flat, err := tensors.CopyFlatData[T](x.(*tensors.Tensor))
	if err != nil {
		t.Fatal(err)
	}
	return flat
}

// TestInputsStandWhereTheirSamplesStand reads each input back by the places of the
// microbatch. Whatever belongs to no sample is zero.
func TestInputsStandWhereTheirSamplesStand(t *testing.T) {
	extras := inputs.Extras{inputs.Sequences, inputs.Selected, inputs.ReferenceLogprobs, inputs.GroupTokens}
	for _, pack := range []bool{false, true} {
		mb := oneMicrobatch(t, pack, 20, 30, 9, 17, 25)
		for _, r := range mb.Members {
			r.GroupTokens = 1000 + r.Index
			r.Selected, r.Reference = make([]bool, r.Length), make([]float32, r.Length)
			for p := range r.Length {
				r.Selected[p], r.Reference[p] = p%2 == 0, float32(p)/2
			}
		}
		in := inputs.Policy(mb, 50, extras)
		if want := inputs.NumFixed + len(extras); len(in) != want {
			t.Fatalf("%d inputs, want %d", len(in), want)
		}
		n := mb.Rows * mb.Length
		tokens, targets, rollout := values[int32](t, in[inputs.Tokens]), values[int32](t, in[inputs.Targets]), values[float32](t, in[inputs.RolloutLogprobs])
		sequences, selected, reference := values[int32](t, in[inputs.NumFixed]), values[bool](t, in[inputs.NumFixed+1]), values[float32](t, in[inputs.NumFixed+2])
		groups := values[float32](t, in[inputs.NumFixed+3])
		real := make([]bool, n)
		for i, r := range mb.Members {
			for p := range r.Length {
				at := mb.Starts[i] + p
				real[at] = true
				if tokens[at] != r.Sample.Tokens[p] || targets[at] != r.Sample.Tokens[p+1] || rollout[at] != r.Sample.RolloutLogprobs[p+1] ||
					sequences[at] != int32(i) || selected[at] != r.Selected[p] || reference[at] != r.Reference[p] || groups[at] != float32(1000+r.Index) {
					t.Fatalf("pack %v: position %d of sample %d is not at %d", pack, p, r.Index, at)
				}
				if pack && (tokens[n+at] != int32(p) || tokens[2*n+at] != int32(i+1)) {
					t.Fatalf("position %d of sample %d: position %d of segment %d", p, r.Index, tokens[n+at], tokens[2*n+at])
				}
			}
		}
		for at := range real {
			if !real[at] && (tokens[at] != 0 || targets[at] != 0 || rollout[at] != 0 || groups[at] != 0 || selected[at] || reference[at] != 0 || pack && tokens[2*n+at] != 0) {
				t.Fatalf("pack %v: padding at %d is not zero", pack, at)
			}
		}
		if slices.Index(real, false) < 0 {
			t.Fatal("no padding: the test has no teeth")
		}
	}
}

// TestExtrasFollowTheObjective: what an objective does not use is not fed.
func TestExtrasFollowTheObjective(t *testing.T) {
	if got := inputs.ExtrasOf(config.Loss{}); len(got) != 0 {
		t.Errorf("the recipe has extras %v", got)
	}
	if got, want := inputs.ExtrasOf(config.Loss{Aggregation: config.AggregateGroups}), (inputs.Extras{inputs.GroupTokens}); !slices.Equal(got, want) {
		t.Errorf("extras %v of a mean over groups, want %v", got, want)
	}
	l := config.Loss{Aggregation: config.AggregateSequences, EntropyFraction: 0.5, KL: config.KL{Coefficient: 0.1}}
	if got, want := inputs.ExtrasOf(l), (inputs.Extras{inputs.Sequences, inputs.Selected, inputs.ReferenceLogprobs}); !slices.Equal(got, want) {
		t.Errorf("extras %v, want %v", got, want)
	}
}

// TestAdvantagesByRowOrToken: one for each row, or one for each token where rows
// hold several samples.
func TestAdvantagesByRowOrToken(t *testing.T) {
	for _, pack := range []bool{false, true} {
		mb := oneMicrobatch(t, pack, 20, 30, 9)
		got := values[float32](t, inputs.Policy(mb, 1, nil)[inputs.Advantages])
		for i, r := range mb.Members {
			at := i
			if pack {
				at = mb.Starts[i] + r.Length - 1
			}
			if got[at] != r.Sample.Advantage {
				t.Errorf("pack %v: advantage %v at %d, want %v", pack, got[at], at, r.Sample.Advantage)
			}
		}
	}
}
