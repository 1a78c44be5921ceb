package loss

import (
	. "github.com/gomlx/gomlx/core/graph"
)

// SFT is the supervised loss: the negative log-likelihood of the tokens where
// mask is true, over the denominator.
//
//	L = -sum_t mask_t log p_t / denominator
func SFT(logprobs, mask, denominator *Node) *Node {
	mask.AssertDims(logprobs.Shape().Dimensions...)
	denominator.AssertScalar()
	return Neg(Div(MaskedSum(logprobs, mask), denominator))
}
