package trainer

import (
	"github.com/gomlx/gomlx/core/tensors"
)

// feed builds the inputs of a microbatch in the order of the in constants.
func (mb microbatch) feed(p program, denominator int) []any {
	n := mb.rows * mb.length
	tokens, targets := make([]int32, n), make([]int32, n)
	for i, r := range mb.members {
		copy(tokens[i*mb.length:], r.sample.Tokens[:r.length])
		copy(targets[i*mb.length:], r.sample.Tokens[1:r.length+1])
	}
	dims := []int{mb.rows, mb.length}
	args := []any{tensors.FromFlatDataAndDimensions(tokens, dims...), tensors.FromFlatDataAndDimensions(targets, dims...)}
	if p.pass == passScore {
		return args
	}
	mask := make([]bool, n)
	for i, r := range mb.members {
		copy(mask[i*mb.length:], r.sample.LossMask[1:r.length+1])
	}
	args = append(args, tensors.FromFlatDataAndDimensions(mask, dims...), tensors.FromScalar(float32(denominator)))
	if p.objective == objectiveSFT {
		return args
	}
	advantages, rollout, old := make([]float32, mb.rows), make([]float32, n), make([]float32, n)
	hasOld := false
	for i, r := range mb.members {
		advantages[i] = r.sample.Advantage
		if r.sample.RolloutLogprobs != nil {
			copy(rollout[i*mb.length:], r.sample.RolloutLogprobs[1:r.length+1])
		}
		if r.old != nil {
			copy(old[i*mb.length:], r.old)
			hasOld = true
		}
	}
	return append(args, tensors.FromFlatDataAndDimensions(advantages, mb.rows, 1),
		tensors.FromFlatDataAndDimensions(rollout, dims...), tensors.FromFlatDataAndDimensions(old, dims...), tensors.FromScalar(hasOld))
}
