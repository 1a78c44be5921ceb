package checkpoint

import (
	"bytes"
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

// encodeTensors returns the tensors as the bytes of a safetensors file in F32.
// Equal tensors give equal bytes, whatever their order.
func encodeTensors(tensors []qwen3.Tensor) ([]byte, error) {
	values := make(map[string][]float32, len(tensors))
	infos := make([]safetensors.Info, len(tensors))
	for i, t := range tensors {
		values[t.Name] = t.Data
		infos[i] = safetensors.Info{Name: t.Name, DType: safetensors.F32, Shape: t.Shape}
	}
	header, err := safetensors.NewHeader(map[string]string{"format": "pt"}, infos)
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	var out bytes.Buffer
	out.Grow(int(header.FileSize()))
	err = header.Write(&out, func(w io.Writer, t safetensors.Info) error {
		return safetensors.PutFloat32s(w, t.DType, values[t.Name])
	})
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return out.Bytes(), nil
}

// decodeTensors reads a safetensors file of F32, F16 or BF16 tensors. It
// returns them as float32, sorted by name. Errors wrap ErrCorrupt.
func decodeTensors(data []byte) ([]qwen3.Tensor, error) {
	file, err := safetensors.New(bytes.NewReader(data), int64(len(data)), "safetensors")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	out := make([]qwen3.Tensor, len(file.Tensors))
	for i, t := range file.Tensors {
		values, err := file.Float32s(t.Name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
		}
		out[i] = qwen3.Tensor{Name: t.Name, Shape: t.Shape, Data: values}
	}
	slices.SortFunc(out, func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
