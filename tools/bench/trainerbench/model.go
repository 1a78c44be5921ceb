package trainerbench

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"temper/trainer/estimate"
	"temper/trainer/model"
)

// presets are the sizes that docs/benchmarks.md has figures for, by their
// parameters.
func presets() map[string]model.Config {
	network := func(hidden, layers, heads, kv, feed int) model.Config {
		return model.Config{
			VocabSize: 1024, HiddenSize: hidden, IntermediateSize: feed, NumHiddenLayers: layers,
			NumAttentionHeads: heads, NumKeyValueHeads: kv, HeadDim: 32, MaxPositionEmbeddings: 512,
			RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
		}
	}
	return map[string]model.Config{
		"1m":  network(128, 4, 4, 2, 384),
		"5m":  network(256, 6, 8, 4, 768),
		"20m": network(384, 12, 12, 6, 1152),
	}
}

// dimension is one part of a size such as "d128 L4 H4 KV2 ff384 V1024".
var dimension = regexp.MustCompile(`^(d|L|H|KV|E|ff|V)([0-9]+)$`)

// Model returns the dimensions of a size: "1m", "5m", dimensions such as
// "d128,L4,H4,KV2,ff384,V1024" (what is left out is as in "1m"; E is the head's
// dimension), or what estimate.Model knows: a model of the Qwen3 family or a
// folder with a config.json.
func Model(name string) (model.Config, error) {
	if cfg, ok := presets()[strings.ToLower(name)]; ok {
		return cfg, nil
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == ',' || r == ' ' })
	if len(parts) == 0 || !dimension.MatchString(parts[0]) {
		cfg, err := estimate.Model(name)
		if err != nil {
			return model.Config{}, fmt.Errorf("%w, nor %s, nor dimensions such as d128,L4,H4,KV2,E32,ff384,V1024",
				err, strings.Join(slices.Sorted(maps.Keys(presets())), " or "))
		}
		return cfg, nil
	}
	cfg := presets()["1m"]
	fields := map[string]*int{
		"d": &cfg.HiddenSize, "L": &cfg.NumHiddenLayers, "H": &cfg.NumAttentionHeads, "KV": &cfg.NumKeyValueHeads,
		"E": &cfg.HeadDim, "ff": &cfg.IntermediateSize, "V": &cfg.VocabSize,
	}
	for _, part := range parts {
		m := dimension.FindStringSubmatch(part)
		if m == nil {
			return model.Config{}, fmt.Errorf("model dimension %q: want d, L, H, KV, E, ff or V and a number", part)
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return model.Config{}, fmt.Errorf("model dimension %q: %w", part, err)
		}
		*fields[m[1]] = n
	}
	if err := cfg.Validate(); err != nil {
		return model.Config{}, fmt.Errorf("model %s: %w", name, err)
	}
	return cfg, nil
}
