package trainer

import (
	"slices"

	"github.com/gomlx/gomlx/core/tensors"
)

// feed builds the inputs of a microbatch in the order of the in constants.
func (mb microbatch) feed(p program, denominator int) []any {
	tokens := laid(mb, func(r *row) []int32 { return r.sample.Tokens })
	targets := laid(mb, func(r *row) []int32 { return r.sample.Tokens[1:] })
	args := []any{shaped(mb, tokens), shaped(mb, targets)}
	if mb.packed {
		args[inTokens] = tensors.FromFlatDataAndDimensions(mb.layout(tokens), 3, mb.rows, mb.length)
	}
	if p.pass < passGradient { // scoring
		return args
	}
	mask := laid(mb, func(r *row) []bool { return r.sample.LossMask[1:] })
	args = append(args, shaped(mb, mask), tensors.FromScalar(float32(denominator)))
	if p.objective == objectiveSFT {
		return args
	}
	rollout := laid(mb, func(r *row) []float32 { return r.sample.RolloutLogprobs[min(1, len(r.sample.RolloutLogprobs)):] })
	old := laid(mb, func(r *row) []float32 { return r.old })
	hasOld := slices.ContainsFunc(mb.members, func(r *row) bool { return r.old != nil })
	return append(args, mb.advantages(), shaped(mb, rollout), shaped(mb, old), tensors.FromScalar(hasOld))
}

// advantages is one number per row, [B, 1], or per token where a row holds
// several sequences, [B, T].
func (mb microbatch) advantages() *tensors.Tensor {
	if mb.packed {
		return shaped(mb, laid(mb, func(r *row) []float32 { return slices.Repeat([]float32{r.sample.Advantage}, r.length) }))
	}
	out := make([]float32, mb.rows)
	for i, r := range mb.members {
		out[i] = r.sample.Advantage
	}
	return tensors.FromFlatDataAndDimensions(out, mb.rows, 1)
}

// laid puts the values of the members' positions where they stand among the B*T
// tokens; everything else is zero. Missing values are zero too.
func laid[T bool | int32 | float32](mb microbatch, values func(*row) []T) []T {
	out := make([]T, mb.rows*mb.length)
	for i, r := range mb.members {
		copy(out[mb.starts[i]:][:r.length], values(r))
	}
	return out
}

// shaped makes a tensor of one value per token: [B, T].
func shaped[T bool | int32 | float32](mb microbatch, values []T) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(values, mb.rows, mb.length)
}
