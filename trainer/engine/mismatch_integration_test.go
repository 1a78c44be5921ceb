//go:build integration

package engine_test

import "testing"

// TestTrainerFollowsTheEngineAtMillions is TestTrainerFollowsTheEngine for
// networks of 0.9 and 5 million parameters.
func TestTrainerFollowsTheEngineAtMillions(t *testing.T) {
	one := ci()
	one.VocabSize, one.HiddenSize, one.IntermediateSize, one.NumHiddenLayers, one.HeadDim, one.MaxPositionEmbeddings = 1024, 128, 384, 4, 32, 512
	follows(t, one, 0.7, trajectories(t, one, 0.7, []int{300, 60, 33, 100, 200}))
	five := one
	five.HiddenSize, five.IntermediateSize, five.NumHiddenLayers, five.NumAttentionHeads, five.NumKeyValueHeads = 256, 768, 6, 8, 4
	follows(t, five, 1, trajectories(t, five, 1, []int{400, 60, 300}))
}
