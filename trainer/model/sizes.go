package model

// Sizes returns the dense models of the Qwen3 family (arXiv 2505.09388, table 1) by size, with
// the values of their config.json files.
func Sizes() map[string]Config {
	const tied, untied = true, false
	size := func(hidden, feed, layers, heads int, tie bool) Config {
		return Config{VocabSize: 151936, HiddenSize: hidden, IntermediateSize: feed, NumHiddenLayers: layers,
			NumAttentionHeads: heads, NumKeyValueHeads: 8, HeadDim: 128, MaxPositionEmbeddings: 40960,
			RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: tie, InitializerRange: 0.02}
	}
	return map[string]Config{
		"0.6b": size(1024, 3072, 28, 16, tied),
		"1.7b": size(2048, 6144, 28, 16, tied),
		"4b":   size(2560, 9728, 36, 32, tied),
		"8b":   size(4096, 12288, 36, 32, untied),
		"14b":  size(5120, 17408, 40, 40, untied),
		"32b":  size(5120, 25600, 64, 64, untied),
	}
}
