package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/model"
)

// small is a network in which every dimension differs from every other.
func small(tied bool) model.Config {
	return model.Config{
		VocabSize: 23, HiddenSize: 20, IntermediateSize: 28, NumHiddenLayers: 3, NumAttentionHeads: 6,
		NumKeyValueHeads: 2, HeadDim: 8, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6,
		TieWordEmbeddings: tied, InitializerRange: 0.4,
	}
}

func TestInitIsDeterministicAndPerTensor(t *testing.T) {
	a, _ := model.InitialTensors(small(false), 1)
	b, _ := model.InitialTensors(small(false), 1)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("same seed (-first +second):\n%s", diff)
	}
	tied, _ := model.InitialTensors(small(true), 1)
	if diff := cmp.Diff(a[:len(tied)], tied); diff != "" {
		t.Errorf("the head changes the draws of other tensors:\n%s", diff)
	}
	other, _ := model.InitialTensors(small(false), 2)
	if cmp.Equal(a[0].Data, other[0].Data) {
		t.Error("another seed gives the same weights")
	}
	sum := 0.0
	for _, v := range a[0].Data {
		sum += float64(v) * float64(v)
	}
	if std := math.Sqrt(sum / float64(len(a[0].Data))); math.Abs(std-0.4) > 0.04 {
		t.Errorf("standard deviation %v, want 0.4", std)
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	cfg := small(true)
	cfg.HeadDim, cfg.NumKeyValueHeads, cfg.RopeTheta, cfg.VocabSize = 7, 4, 0, -1
	err := cfg.Validate()
	for _, want := range []string{"head_dim: 7", "num_attention_heads: 6", "rope_theta: 0", "vocab_size: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if err := small(false).Validate(); err != nil {
		t.Errorf("valid configuration: %v", err)
	}
}
