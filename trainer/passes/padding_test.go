package passes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/config"
	"temper/trainer/packing"
	"temper/trainer/passes/inputs"
)

// TestGarbageInPaddingChangesNothing writes other tokens, targets and
// log-probabilities where no sample stands. Sums and gradients must keep their
// bits.
func TestGarbageInPaddingChangesNothing(t *testing.T) {
	for _, pack := range []bool{false, true} {
		cfg := tinyConfig()
		cfg.Loss = config.Default().RL.Loss
		p := open(t, cfg, adam())
		mb := packing.Plan{Tokens: 1 << 14, Pack: pack}.Microbatches(rowsOf(t, cfg.Network, 40, 23, 9, 17, 30))[0]
		real := make([]bool, mb.Rows*mb.Length)
		for i, r := range mb.Members {
			for at := range r.Length {
				real[mb.Starts[i]+at] = true
			}
		}
		if len(mb.Members) < 3 || !slices.Contains(real, false) {
			t.Fatalf("%d members, padding %v: the test has no teeth", len(mb.Members), slices.Contains(real, false))
		}
		for program, operands := range map[Program]func() []any{
			{Supervised, Gradient}: func() []any { return inputs.Supervised(mb, 50) },
			{Policy, Gradient}:     func() []any { return inputs.Policy(mb, 50, inputs.ExtrasOf(cfg.Loss)) },
		} {
			clean, dirty := operands(), operands()
			for _, i := range []int{inputs.Tokens, inputs.Targets, inputs.RolloutLogprobs, inputs.OldLogprobs} {
				if i < len(dirty) {
					spoil(dirty[i].(*tensors.Tensor), real)
				}
			}
			want, got := flatCall(t, p, program, mb, clean), flatCall(t, p, program, mb, dirty)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("pack %v, %v: output %d depends on the padding", pack, program, i)
				}
			}
		}
	}
}

// flatCall makes a pass and copies the values of each result.
func flatCall(t *testing.T, p *Passes, program Program, mb packing.Microbatch, args []any) [][]float32 {
	t.Helper()
	out, err := p.Call(program, mb.Shape, args...)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]float32
	for _, x := range out {
		flat, err := x.Floats()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, flat)
	}
	return all
}

// spoil changes the values of tokens that are not real. Positions and segments,
// which follow the tokens of packed rows, say what is padding and stay.
func spoil(x *tensors.Tensor, real []bool) {
	switch x.DType().String() {
	case "Int32":
		tensors.MustMutableFlatData(x, func(flat []int32) {
			for i := range real {
				if !real[i] {
					flat[i] = int32(7+3*i) % 29
				}
			}
		})
	case "Float32":
		tensors.MustMutableFlatData(x, func(flat []float32) {
			for i := range real {
				if !real[i] {
					flat[i] = -1e9
				}
			}
		})
	default:
		panic(fmt.Sprintf("input of type %s", x.DType()))
	}
}
