package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// Layout selects how Create writes a directory.
type Layout struct {
	DType safetensors.DType // F32, F16 or BF16
	// MaxShard bounds the bytes of the tensors in a file; a larger tensor has its
	// own. 0 means 5 GB, as transformers has long done.
	MaxShard int64
	// Files are written as they are, by name: the tokenizer, a chat template. A
	// config.json among them stands in for the one that the model's fields make.
	Files map[string][]byte
}

// Create writes a model as a new directory. weight is asked once for each tensor
// of the configuration, so that it can make them one at a time. The directory
// appears whole or not at all. One that is there and not empty is os.ErrExist.
func Create(dir string, network model.Config, weight func(name string) (model.Tensor, bool), layout Layout) error {
	if err := network.Validate(); err != nil {
		return named(ConfigFile, err)
	}
	if !layout.DType.IsFloat() {
		return fmt.Errorf("create %s: dtype %q, want F32, F16 or BF16", dir, layout.DType)
	}
	files := map[string][]byte{}
	config, err := model.EncodeConfig(network, TorchName(layout.DType))
	if err != nil {
		return err
	}
	files[ConfigFile] = config
	for name, data := range layout.Files {
		files[name] = data
	}
	shards := divide(network.Tensors(), layout)
	if len(shards) > 1 {
		if files[indexFile], err = encodeIndex(shards, layout); err != nil {
			return err
		}
	}
	err = stage(dir, func(tmp string) error {
		for i, shard := range shards {
			if err := createShard(filepath.Join(tmp, shardName(i, len(shards))), shard, weight, layout); err != nil {
				return err
			}
		}
		for name, data := range files {
			err := writeFile(filepath.Join(tmp, name), func(w io.Writer) error {
				_, err := w.Write(data)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	return nil
}

// divide cuts the tensors into files.
func divide(specs []model.TensorSpec, layout Layout) [][]model.TensorSpec {
	limit := layout.MaxShard
	if limit == 0 {
		limit = 5e9
	}
	var out [][]model.TensorSpec
	size := int64(0)
	for _, spec := range specs {
		n := int64(spec.Size()) * layout.DType.Size()
		if len(out) == 0 || size+n > limit && size > 0 {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], spec)
		size += n
	}
	return out
}

func shardName(i, n int) string {
	if n == 1 {
		return weightsFile
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

func encodeIndex(shards [][]model.TensorSpec, layout Layout) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.WeightMap = map[string]string{}
	for i, shard := range shards {
		for _, spec := range shard {
			index.WeightMap[spec.Name] = shardName(i, len(shards))
			index.Metadata.TotalSize += int64(spec.Size()) * layout.DType.Size()
		}
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", indexFile, err)
	}
	return append(data, '\n'), nil
}

func createShard(path string, specs []model.TensorSpec, weight func(string) (model.Tensor, bool), layout Layout) error {
	var infos []safetensors.Info
	for _, spec := range specs {
		infos = append(infos, safetensors.Info{Name: spec.Name, DType: layout.DType, Shape: spec.Shape})
	}
	header, err := safetensors.NewHeader(map[string]string{"format": "pt"}, infos)
	if err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error {
		return header.Write(w, func(w io.Writer, t safetensors.Info) error {
			value, ok := weight(t.Name)
			if !ok {
				return errors.New("it is missing")
			}
			if !slices.Equal(value.Shape, t.Shape) {
				return fmt.Errorf("shape %v, want %v", value.Shape, t.Shape)
			}
			return safetensors.PutFloat32s(w, t.DType, value.Data)
		})
	})
}
