package model_test

import (
	"math"
	"slices"
	"testing"

	"temper/trainer/model"
)

// TestTinyByHand follows two tokens through a network of one layer, one head
// of two dimensions and three words, whose matrices are ones and zeros. Norm
// weights are 1 and the scale of every norm, sqrt(2), comes from a vector with
// one element: (1, 0) / rms = (sqrt 2, 0).
func TestTinyByHand(t *testing.T) {
	cfg := model.Config{
		VocabSize: 3, HiddenSize: 2, IntermediateSize: 1, NumHiddenLayers: 1, NumAttentionHeads: 1, NumKeyValueHeads: 1, HeadDim: 2,
		MaxPositionEmbeddings: 8, RopeTheta: 1e4, RMSNormEps: 1e-12, InitializerRange: 1,
	}
	identity := []float32{1, 0, 0, 1}
	const layer = "model.layers.0."
	ts := []model.Tensor{
		{Name: "model.embed_tokens.weight", Shape: []int{3, 2}, Data: []float32{1, 0, 0, 1, 1, 1}},
		{Name: layer + "input_layernorm.weight", Shape: []int{2}, Data: []float32{1, 1}},
		{Name: layer + "self_attn.q_proj.weight", Shape: []int{2, 2}, Data: identity},
		{Name: layer + "self_attn.k_proj.weight", Shape: []int{2, 2}, Data: identity},
		{Name: layer + "self_attn.v_proj.weight", Shape: []int{2, 2}, Data: identity},
		{Name: layer + "self_attn.o_proj.weight", Shape: []int{2, 2}, Data: identity},
		{Name: layer + "self_attn.q_norm.weight", Shape: []int{2}, Data: []float32{1, 1}},
		{Name: layer + "self_attn.k_norm.weight", Shape: []int{2}, Data: []float32{1, 1}},
		{Name: layer + "post_attention_layernorm.weight", Shape: []int{2}, Data: []float32{1, 1}},
		{Name: layer + "mlp.gate_proj.weight", Shape: []int{1, 2}, Data: []float32{1, 0}},
		{Name: layer + "mlp.up_proj.weight", Shape: []int{1, 2}, Data: []float32{1, 1}},
		{Name: layer + "mlp.down_proj.weight", Shape: []int{2, 1}, Data: []float32{0, 1}},
		{Name: "model.norm.weight", Shape: []int{2}, Data: []float32{1, 1}},
		{Name: "lm_head.weight", Shape: []int{3, 2}, Data: []float32{1, 0, 0, 1, 1, -1}},
	}
	root := math.Sqrt2
	// after is the network behind attention, for a residual stream (a, b):
	// the gate is the first element, the value the sum of both, and what passes
	// is added to the second.
	after := func(a, b float64) []float64 {
		scale := 1 / math.Sqrt((a*a+b*b)/2)
		gate := a * scale
		b += gate / (1 + math.Exp(-gate)) * (a + b) * scale
		scale = 1 / math.Sqrt((a*a+b*b)/2)
		return []float64{a * scale, b * scale, (a - b) * scale}
	}
	// Token 0 is (1, 0), becomes (sqrt 2, 0), and attends to itself alone.
	first := after(1+root, 0)
	if want := []float64{1.176836, 0.784257, 0.392579}; math.Abs(first[0]-want[0])+math.Abs(first[1]-want[1])+math.Abs(first[2]-want[2]) > 1e-5 {
		t.Fatalf("the derivation gives %v, worked out on paper %v", first, want)
	}
	// Token 1 is (0, 1), becomes (0, sqrt 2), and at position 1 its query and key
	// turn by one radian to sqrt(2) (-sin 1, cos 1). Its scores over sqrt(2) are
	// -sqrt(2) sin 1 with token 0 and sqrt(2) with itself.
	own := 1 / (1 + math.Exp(-root*math.Sin(1)-root))
	second := after((1-own)*root, 1+own*root)

	want := [][]float64{first, second}
	tokens := []int32{0, 1}
	near(t, "forward", forward(t, storeOf(t, cfg, ts), cfg, model.Options{}, [][]int32{tokens}, nil, nil), want, 1e-5)
	near(t, "reference", newReference(cfg, ts).logits(tokens), want, 1e-9)
	twice := forward(t, storeOf(t, cfg, ts), cfg, model.Options{}, [][]int32{{0, 1, 0, 1}}, [][]int32{{0, 1, 0, 1}}, [][]int32{{1, 1, 2, 2}})
	near(t, "packed", twice, slices.Concat(want, want), 1e-5)
	c := newCached(t, cfg, ts, 1, 16, false)
	for i, token := range tokens {
		got := c.step(t, 1, [][]int32{{token}}, []int{i})[0]
		near(t, "decoded", [][]float64{got[0][:3]}, want[i:i+1], 1e-5)
	}
}

// TestForwardEqualsReferenceAcrossShapes varies what a checkpoint may vary.
func TestForwardEqualsReferenceAcrossShapes(t *testing.T) {
	for name, change := range map[string]func(*model.Config){
		"one head each":        func(c *model.Config) { c.NumAttentionHeads, c.NumKeyValueHeads = 1, 1 },
		"no sharing":           func(c *model.Config) { c.NumKeyValueHeads = 6 },
		"all heads share":      func(c *model.Config) { c.NumKeyValueHeads = 1 },
		"base of a million":    func(c *model.Config) { c.RopeTheta = 1e6 },
		"low base":             func(c *model.Config) { c.RopeTheta = 3 },
		"large epsilon":        func(c *model.Config) { c.RMSNormEps = 0.1 },
		"wide heads":           func(c *model.Config) { c.HeadDim = 32 },
		"narrowest heads":      func(c *model.Config) { c.HeadDim = 2 },
		"one layer, tied head": func(c *model.Config) { c.NumHiddenLayers, c.TieWordEmbeddings = 1, true },
	} {
		cfg := small(false)
		change(&cfg)
		ts := weightsOf(t, cfg)
		ref, tokens := newReference(cfg, ts), [][]int32{sentence(1, 19), sentence(2, 19)}
		want := slices.Concat(ref.logits(tokens[0]), ref.logits(tokens[1]))
		near(t, name, forward(t, storeOf(t, cfg, ts), cfg, model.Options{}, tokens, nil, nil), want, rounding)
	}
}
