package checkpoint

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/trainer/qwen3"
	"temper/trainer/safetensors"
)

// ErrCorrupt means that bytes are no valid checkpoint, policy or safetensors file.
var ErrCorrupt = fmt.Errorf("checkpoint is corrupt: %w", blob.ErrCorrupt)

// Source gives tensors by name, one at a time: nobody keeps one after asking for
// the next. It is asked for each tensor more than once and must give the same.
type Source func(name string) (qwen3.Tensor, error)

// SourceOf is a Source of tensors in memory.
func SourceOf(tensors []qwen3.Tensor) Source {
	lookup := qwen3.ByName(tensors)
	return func(name string) (qwen3.Tensor, error) {
		t, ok := lookup(name)
		if !ok {
			return t, fmt.Errorf("no tensor %s", name)
		}
		return t, nil
	}
}

// tensorFile is a safetensors file in F32 that is made while it is written, with
// one tensor in memory at a time. Equal tensors give equal bytes, whatever their order.
func tensorFile(specs []qwen3.TensorSpec, source Source) (content, error) {
	infos := make([]safetensors.Info, len(specs))
	for i, t := range specs {
		infos[i] = safetensors.Info{Name: t.Name, DType: safetensors.F32, Shape: t.Shape}
	}
	header, err := safetensors.NewHeader(map[string]string{"format": "pt"}, infos)
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return func(w io.Writer) error {
		err := header.Write(w, func(w io.Writer, info safetensors.Info) error {
			t, err := source(info.Name)
			if err != nil {
				return err
			}
			return safetensors.PutFloat32s(w, info.DType, t.Data)
		})
		if err != nil {
			return fmt.Errorf("encode safetensors: %w", err)
		}
		return nil
	}, nil
}

// readTensors reads a safetensors file of F32, F16 or BF16 tensors and checks it
// against its Ref. It returns them as float32, sorted by name.
func readTensors(ctx context.Context, store blob.Store, ref blob.Ref) ([]qwen3.Tensor, error) {
	out, err := readShard(ctx, store, ref, sha256Of(ref))
	slices.SortFunc(out, func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}
