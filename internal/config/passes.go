package config

import "math/bits"

// The types in which matrices are multiplied.
const (
	ComputeFloat32  = "float32"
	ComputeBFloat16 = "bfloat16"
)

// passes checks how training computes a device pass.
func (c *checker) passes(r Run) {
	c.switchOf("model.compute", r.Model.Compute, ComputeFloat32, ComputeBFloat16)
	if r.Model.Compute == ComputeBFloat16 && r.RL.Loss.OldLogprobs == OldRollout {
		c.add("model.compute", "is bfloat16, but rl.loss.old_logprobs is rollout: the engine computes in float32, "+
			"and its rounding would count as a change of the policy; want old_logprobs recompute, with rl.loss.correction if need be")
	}
	if row := packedRow(r.Model.MaxContext); r.RL.Pack && row > r.RL.MicrobatchTokens {
		c.add("rl.pack", "makes rows of up to %d tokens (model.max_context %d, rounded up to a power of two), above rl.microbatch_tokens (%d)",
			row, r.Model.MaxContext, r.RL.MicrobatchTokens)
	}
}

// packedRow is the longest row that packing makes of contexts of so many
// tokens, the last of which is a target and no input.
func packedRow(maxContext int) int { return max(64, 1<<bits.Len(uint(max(2, maxContext)-2))) }
