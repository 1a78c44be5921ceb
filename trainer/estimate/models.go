package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/trainer/qwen3"
)

// family returns the dense models of the Qwen3 family (arXiv 2505.09388, table 1),
// with the values of their config.json files.
func family() map[string]qwen3.Config {
	const tied, untied = true, false
	model := func(hidden, feed, layers, heads int, tie bool) qwen3.Config {
		return qwen3.Config{VocabSize: 151936, HiddenSize: hidden, IntermediateSize: feed, NumHiddenLayers: layers,
			NumAttentionHeads: heads, NumKeyValueHeads: 8, HeadDim: 128, MaxPositionEmbeddings: 40960,
			RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: tie, InitializerRange: 0.02}
	}
	return map[string]qwen3.Config{
		"0.6b": model(1024, 3072, 28, 16, tied),
		"1.7b": model(2048, 6144, 28, 16, tied),
		"4b":   model(2560, 9728, 36, 32, tied),
		"8b":   model(4096, 12288, 36, 32, untied),
		"14b":  model(5120, 17408, 40, 40, untied),
		"32b":  model(5120, 25600, 64, 64, untied),
	}
}

// Model returns the dimensions of a size such as 0.6b, or of a config.json, or of a folder with
// one.
func Model(name string) (qwen3.Config, error) {
	if cfg, ok := family()[strings.ToLower(name)]; ok {
		return cfg, nil
	}
	path := name
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	data, err := readConfig(path)
	if errors.Is(err, os.ErrNotExist) {
		return qwen3.Config{}, fmt.Errorf("model %q: neither a file nor one of %s", name, strings.Join(slices.Sorted(maps.Keys(family())), ", "))
	}
	if err != nil {
		return qwen3.Config{}, fmt.Errorf("model: %w", err)
	}
	cfg := qwen3.Config{InitializerRange: 0.02}
	if err := json.Unmarshal(data, &cfg); err != nil {
		return qwen3.Config{}, fmt.Errorf("model %s: %w", path, err)
	}
	if err := cfg.Validate(); err != nil {
		return qwen3.Config{}, fmt.Errorf("model %s: %w", path, err)
	}
	return cfg, nil
}

// maxConfig bounds a config.json, in bytes.
const maxConfig = 1 << 20

// readConfig reads a file of the user, which may be anything.
func readConfig(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxConfig:
		return nil, fmt.Errorf("%s is no config.json: want a regular file of at most %d bytes", path, maxConfig)
	}
	return os.ReadFile(path) //nolint:gosec // the user's file
}
