package qwen3_test

import (
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/qwen3"
)

func TestSmoke(t *testing.T) {
	cfg := qwen3.Config{VocabSize: 11, HiddenSize: 8, IntermediateSize: 12, NumHiddenLayers: 2, NumAttentionHeads: 4,
		NumKeyValueHeads: 2, HeadDim: 4, MaxPositionEmbeddings: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.3}
	be, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	store := model.NewStore()
	if err := qwen3.Init(store, cfg, 1); err != nil {
		t.Fatal(err)
	}
	e, err := model.NewExec(be, store, func(s *model.Scope, tok, seg *Node) *Node {
		h := qwen3.Forward(s, cfg, qwen3.Inputs{Tokens: tok, Segments: seg}, qwen3.Options{})
		return qwen3.Logits(s, cfg, h)
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Call([][]int32{{1, 2, 3, 4}, {3, 2, 3, 0}}, [][]int32{{1, 1, 1, 1}, {1, 1, 1, 0}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out[0])
}
