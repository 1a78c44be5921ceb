package loss

import (
	"github.com/gomlx/compute/dtypes"
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

// MaskedSum adds the values where mask is true up to a scalar. What stands
// elsewhere has no influence, not even when it is infinite.
func MaskedSum(values, mask *Node) *Node {
	return ReduceAllSum(Where(mask, values, ZerosLike(values)))
}

// maskedCount is the number of tokens at which both conditions hold, as float32.
func maskedCount(condition, mask *Node) *Node {
	return ReduceAllSum(ConvertDType(LogicalAnd(condition, mask), dtypes.Float32))
}
