package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"temper/trainer/weights/safetensors"
)

// open opens the files of the weights and finds each tensor's. It reports every
// problem of the index and of the files at once.
func (m *Model) open() error {
	_, single := os.Stat(filepath.Join(m.path, weightsFile))
	data, err := m.read(indexFile, maxIndex)
	switch {
	case errors.Is(err, os.ErrNotExist) && single != nil:
		return fmt.Errorf("neither %s nor %s is there", weightsFile, indexFile)
	case errors.Is(err, os.ErrNotExist):
		return m.openShards([]string{weightsFile}, nil)
	case err != nil:
		return err
	}
	placed, err := parseIndex(data)
	if err != nil {
		return err
	}
	files := slices.Compact(slices.Sorted(maps.Values(placed)))
	if single == nil && !slices.Contains(files, weightsFile) {
		return fmt.Errorf("%s does not name %s: it is not clear which weights count", indexFile, weightsFile)
	}
	return m.openShards(files, placed)
}

// parseIndex returns the file of each tensor.
func parseIndex(data []byte) (map[string]string, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is missing or empty", indexFile)
	}
	for name, file := range index.WeightMap {
		if !filepath.IsLocal(file) || filepath.Base(file) != file {
			return nil, fmt.Errorf("%s: tensor %s: file %q is not in this directory", indexFile, name, file)
		}
	}
	return index.WeightMap, nil
}

// openShards opens the files; placed, when not nil, maps each tensor to the file that the
// index names for it.
func (m *Model) openShards(files []string, placed map[string]string) error {
	var errs []error
	broken := map[string]bool{} // tensors of such a file are not reported one by one
	for _, name := range files {
		file, err := safetensors.Open(filepath.Join(m.path, name))
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%s names %s, which is not there", indexFile, name)
			}
			errs, broken[name] = append(errs, err), true
			continue
		}
		m.shards = append(m.shards, file)
		for _, t := range file.Tensors {
			if first, twice := m.at[t.Name]; twice {
				errs = append(errs, fmt.Errorf("tensor %s is in %s and in %s", t.Name, first.Name(), name))
				continue
			}
			m.at[t.Name] = file
		}
	}
	if placed == nil {
		return errors.Join(errs...)
	}
	for _, tensor := range slices.Sorted(maps.Keys(placed)) {
		want := placed[tensor]
		if file, ok := m.at[tensor]; (!ok || file.Name() != want) && !broken[want] {
			errs = append(errs, fmt.Errorf("%s places tensor %s in %s, which does not hold it", indexFile, tensor, want))
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(m.at)) {
		if _, ok := placed[tensor]; !ok {
			errs = append(errs, fmt.Errorf("%s: tensor %s is not in %s", m.at[tensor].Name(), tensor, indexFile))
		}
	}
	return errors.Join(errs...)
}
