package hf

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/trainer/qwen3"
	"temper/trainer/safetensors"
)

// SaveOptions change what Save keeps.
type SaveOptions struct {
	// DType of all weights; "" keeps the type of each. With another type than the
	// files have, config.json and the index say so.
	DType safetensors.DType
}

// Save writes the model as a new directory with the same files. Tensors for
// which changed answers true are rounded to nearest, ties to even; all others
// have the bytes that they had. changed is called once for each weight, in the
// files' order, so that it can read them one at a time; nil means none.
//
// The directory appears whole or not at all. One that is there and not empty is
// an error.
func (m *Model) Save(dir string, changed func(name string) (qwen3.Tensor, bool), opts SaveOptions) error {
	if changed == nil {
		changed = func(string) (qwen3.Tensor, bool) { return qwen3.Tensor{}, false }
	}
	if opts.DType != "" && !opts.DType.IsFloat() {
		return fmt.Errorf("save %s: dtype %s, want F32, F16 or BF16", dir, opts.DType)
	}
	err := stage(dir, func(tmp string) error {
		var total int64
		for _, shard := range m.shards {
			size, err := m.saveShard(filepath.Join(tmp, shard.Name()), shard, changed, opts)
			if err != nil {
				return fmt.Errorf("%s: %w", shard.Name(), err)
			}
			total += size
		}
		return m.saveFiles(tmp, total, opts)
	})
	if err != nil {
		return fmt.Errorf("save %s: %w", dir, err)
	}
	return nil
}

// saveShard writes one file of weights and returns the bytes of its tensors.
func (m *Model) saveShard(path string, shard *safetensors.File, changed func(string) (qwen3.Tensor, bool), opts SaveOptions) (int64, error) {
	header := &shard.Header
	if opts.DType != "" && slices.ContainsFunc(shard.Tensors, func(t safetensors.Info) bool { return t.DType != opts.DType }) {
		converted := slices.Clone(shard.Tensors)
		for i := range converted {
			converted[i].DType = opts.DType
		}
		var err error
		if header, err = safetensors.NewHeader(shard.Metadata, converted); err != nil {
			return 0, err
		}
	}
	var total int64
	err := writeFile(path, func(w io.Writer) error {
		return header.Write(w, func(w io.Writer, t safetensors.Info) error {
			total += t.Size()
			return m.putTensor(w, t, shard, changed)
		})
	})
	return total, err
}

// putTensor writes a tensor as t describes it.
func (m *Model) putTensor(w io.Writer, t safetensors.Info, shard *safetensors.File, changed func(string) (qwen3.Tensor, bool)) error {
	source := t.Name
	if source == nameHead && m.tiedHead {
		source = nameEmbed
	}
	if value, ok := changed(source); ok {
		if !slices.Equal(value.Shape, t.Shape) {
			return fmt.Errorf("shape %v, want %v", value.Shape, t.Shape)
		}
		return safetensors.PutFloat32s(w, t.DType, value.Data)
	}
	stored, _ := shard.Lookup(t.Name)
	if stored.DType == t.DType {
		_, err := io.Copy(w, shard.Section(stored))
		return err
	}
	values, err := shard.Float32s(t.Name)
	if err != nil {
		return err
	}
	return safetensors.PutFloat32s(w, t.DType, values)
}

// saveFiles copies the files beside the weights; total is the bytes of all
// tensors.
func (m *Model) saveFiles(tmp string, total int64, opts SaveOptions) error {
	names := m.other
	if _, err := os.Stat(filepath.Join(m.path, indexFile)); err == nil {
		names = append(slices.Clone(names), indexFile)
	}
	for _, name := range names {
		data, err := m.read(name, maxOther)
		if err != nil {
			return err
		}
		if opts.DType != "" {
			if data, err = retyped(name, data, opts.DType, total); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		err = writeFile(filepath.Join(tmp, name), func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TorchName returns the type in torch's words, as config.json has it.
func TorchName(d safetensors.DType) string {
	switch d {
	case safetensors.F32:
		return "float32"
	case safetensors.F16:
		return "float16"
	case safetensors.BF16:
		return "bfloat16"
	default:
		return strings.ToLower(string(d))
	}
}

// retyped returns a file that says another type of the weights, and is
// otherwise as it was to the byte.
func retyped(name string, data []byte, d safetensors.DType, total int64) ([]byte, error) {
	switch name {
	case ConfigFile:
		return WithDType(data, d)
	case indexFile:
		return replaced(data, "metadata", func(metadata json.RawMessage) ([]byte, error) {
			return replaced(metadata, "total_size", func(json.RawMessage) ([]byte, error) { return json.Marshal(total) })
		})
	}
	return data, nil
}

// WithDType returns a config.json that names another type of the weights, if it
// names one. Every other byte stays.
func WithDType(config []byte, d safetensors.DType) (_ []byte, err error) {
	for _, key := range []string{"dtype", "torch_dtype"} {
		config, err = replaced(config, key, func(json.RawMessage) ([]byte, error) { return json.Marshal(TorchName(d)) })
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}

// replaced puts another value for a key of a JSON object, if the key is there,
// and keeps every other byte.
func replaced(object []byte, key string, value func(old json.RawMessage) ([]byte, error)) ([]byte, error) {
	dec := json.NewDecoder(strings.NewReader(string(object)))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		found, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var old json.RawMessage
		if err := dec.Decode(&old); err != nil {
			return nil, err
		}
		if found != key {
			continue
		}
		end := int(dec.InputOffset())
		fresh, err := value(old)
		if err != nil {
			return nil, err
		}
		return slices.Concat(object[:end-len(old)], fresh, object[end:]), nil
	}
	return object, nil
}
