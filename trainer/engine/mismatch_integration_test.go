//go:build integration

package engine_test

import "testing"

// TestTrainerFollowsTheEngineAtFiveMillion is TestTrainerFollowsTheEngine for a
// network of 5 million parameters.
func TestTrainerFollowsTheEngineAtFiveMillion(t *testing.T) {
	five := ci()
	five.VocabSize, five.HiddenSize, five.IntermediateSize, five.NumHiddenLayers = 1024, 256, 768, 6
	five.NumAttentionHeads, five.NumKeyValueHeads, five.HeadDim, five.MaxPositionEmbeddings = 8, 4, 32, 512
	follows(t, five, 1, trajectories(t, five, 1, []int{400, 60, 300}))
}
