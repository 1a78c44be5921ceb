package estimate

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/trainer/model"
)

// Model returns the dimensions of a size such as 0.6b, or of a config.json, or of a folder with
// one.
func Model(name string) (model.Config, error) {
	if cfg, ok := model.Sizes()[strings.ToLower(name)]; ok {
		return cfg, nil
	}
	path := name
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	data, err := readConfig(path)
	if errors.Is(err, os.ErrNotExist) {
		return model.Config{}, fmt.Errorf("model %q: neither a file nor one of %s", name, strings.Join(slices.Sorted(maps.Keys(model.Sizes())), ", "))
	}
	if err != nil {
		return model.Config{}, fmt.Errorf("model: %w", err)
	}
	cfg, err := model.ParseConfig(data)
	if err != nil {
		return model.Config{}, fmt.Errorf("model %s: %w", path, err)
	}
	return cfg.Config, nil
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
