//go:build xla

package engine

import (
	"testing"

	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
)

// TestXLACloseGivesTheDeviceBack: the backend is nowhere but inside of the package.
func TestXLACloseGivesTheDeviceBack(t *testing.T) {
	e, err := New(Config{Backend: xlatest.Backend(t), Slots: 2, Shards: 2, MaxContext: 64, Model: model.Config{
		VocabSize: 90, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 1, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 8,
		MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	e.Close()
	for i, s := range e.shards {
		if !s.dev.backend.IsFinalized() {
			t.Errorf("the backend of shard %d is open after Close", i)
		}
	}
}
