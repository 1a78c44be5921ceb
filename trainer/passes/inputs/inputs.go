package inputs

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/packing"
)

// Scoring returns the inputs of a pass that only scores targets.
func Scoring(mb packing.Microbatch) []any {
	tokens := scatter(mb, func(r *packing.Row) []int32 { return r.Sample.Tokens })
	targets := scatter(mb, func(r *packing.Row) []int32 { return r.Sample.Tokens[1:] })
	if mb.Packed {
		return []any{tensors.FromFlatDataAndDimensions(withSegments(mb, tokens), 3, mb.Rows, mb.Length), tokenTensor(mb, targets)}
	}
	return []any{tokenTensor(mb, tokens), tokenTensor(mb, targets)}
}

// Supervised returns the inputs of the supervised objective.
func Supervised(mb packing.Microbatch, denominator int) []any {
	mask := scatter(mb, func(r *packing.Row) []bool { return r.Sample.LossMask[1:] })
	return append(Scoring(mb), tokenTensor(mb, mask), tensors.FromScalar(float32(denominator)))
}

// Policy returns the inputs of a policy update whose objective has the given extras.
func Policy(mb packing.Microbatch, denominator int, extras Extras) []any {
	rollout := scatter(mb, func(r *packing.Row) []float32 {
		return r.Sample.RolloutLogprobs[min(1, len(r.Sample.RolloutLogprobs)):]
	})
	old := scatter(mb, func(r *packing.Row) []float32 { return r.Old })
	hasOld := slices.ContainsFunc(mb.Members, func(r *packing.Row) bool { return r.Old != nil })
	args := append(Supervised(mb, denominator), advantages(mb), tokenTensor(mb, rollout), tokenTensor(mb, old), tensors.FromScalar(hasOld))
	for _, e := range extras {
		args = append(args, extra(mb, e))
	}
	return args
}

// extra makes the tensor of an extra input.
func extra(mb packing.Microbatch, e Extra) *tensors.Tensor {
	switch e {
	case Sequences:
		return tokenTensor(mb, sequenceNumbers(mb))
	case Selected:
		return tokenTensor(mb, scatter(mb, func(r *packing.Row) []bool { return r.Selected }))
	case ReferenceLogprobs:
		return tokenTensor(mb, scatter(mb, func(r *packing.Row) []float32 { return r.Reference }))
	case GroupTokens:
		return tokenTensor(mb, scatter(mb, func(r *packing.Row) []float32 {
			return slices.Repeat([]float32{float32(r.GroupTokens)}, r.Length)
		}))
	}
	panic(fmt.Sprintf("extra input %d is not defined", e))
}

// advantages is one number per row, [B, 1], or one per token where a row holds
// several sequences, [B, T].
func advantages(mb packing.Microbatch) *tensors.Tensor {
	if mb.Packed {
		return tokenTensor(mb, scatter(mb, func(r *packing.Row) []float32 { return slices.Repeat([]float32{r.Sample.Advantage}, r.Length) }))
	}
	out := make([]float32, mb.Rows)
	for i, r := range mb.Members {
		out[i] = r.Sample.Advantage
	}
	return tensors.FromFlatDataAndDimensions(out, mb.Rows, 1)
}

// sequenceNumbers numbers the members and gives each token the number of its member.
func sequenceNumbers(mb packing.Microbatch) []int32 {
	out := make([]int32, mb.Rows*mb.Length)
	for i, r := range mb.Members {
		for p := range r.Length {
			out[mb.Starts[i]+p] = int32(i)
		}
	}
	return out
}

// withSegments adds positions and segments, which separate packed sequences, to the tokens:
// int32 [3, B, T]. Segment 0 is padding.
func withSegments(mb packing.Microbatch, tokens []int32) []int32 {
	n := len(tokens)
	out := make([]int32, 3*n)
	copy(out, tokens)
	for i, r := range mb.Members {
		for p := range r.Length {
			out[n+mb.Starts[i]+p], out[2*n+mb.Starts[i]+p] = int32(p), int32(i+1)
		}
	}
	return out
}

// scatter copies the values of each member to its place among the B*T tokens.
// Everything else is zero, and so are values that a member lacks.
func scatter[T bool | int32 | float32](mb packing.Microbatch, values func(*packing.Row) []T) []T {
	out := make([]T, mb.Rows*mb.Length)
	for i, r := range mb.Members {
		copy(out[mb.Starts[i]:][:r.Length], values(r))
	}
	return out
}

// tokenTensor makes a tensor of one value per token: [B, T].
func tokenTensor[T bool | int32 | float32](mb packing.Microbatch, values []T) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(values, mb.Rows, mb.Length)
}
