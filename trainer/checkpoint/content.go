package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/trainer/qwen3"
	"temper/trainer/weights/safetensors"
)

// content writes the bytes of a blob, the same ones each time.
type content func(w io.Writer) error

// bytesOf is the content of bytes in memory.
func bytesOf(data []byte) content {
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
}

// storedContent is the content of another blob.
func storedContent(ctx context.Context, store blob.Store, key string) content {
	return func(w io.Writer) error {
		r, err := store.Get(ctx, key)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // nothing was written through this handle
		_, err = io.Copy(w, r)
		return err
	}
}

// ref is the Ref that the content has under key.
func (c content) ref(key string) (blob.Ref, error) {
	sum, n := sha256.New(), &length{}
	if err := c(io.MultiWriter(sum, n)); err != nil {
		return blob.Ref{}, err
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n.bytes}, nil
}

// length counts the bytes that are written to it.
type length struct{ bytes int64 }

func (l *length) Write(p []byte) (int, error) {
	l.bytes += int64(len(p))
	return len(p), nil
}

// put stores the content as it is made. Content that differs from want is an
// error; no manifest names that blob.
func (c content) put(ctx context.Context, store blob.Store, want blob.Ref) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c(w)
		w.CloseWithError(err)
		done <- err
	}()
	got, err := store.Put(ctx, want.Key, r, blob.Always)
	r.Close() //nolint:errcheck // always nil; ends a writer whose reader has given up
	if writeErr := <-done; err == nil && writeErr != nil {
		err = writeErr
	}
	if err == nil && got != want {
		err = fmt.Errorf("%s: content changed while it was stored: %w", want.Key, blob.ErrCorrupt)
	}
	return err
}

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
	header, err := fileHeader(infos)
	if err != nil {
		return nil, err
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
	return byName(out), err
}

// byName sorts tensors.
func byName(tensors []qwen3.Tensor) []qwen3.Tensor {
	slices.SortFunc(tensors, func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return tensors
}

// fileHeader is the header of a file of weights.
func fileHeader(infos []safetensors.Info) (*safetensors.Header, error) {
	header, err := safetensors.NewHeader(map[string]string{"format": "pt"}, infos)
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return header, nil
}

// encodeJSON is v as blob.PutJSON writes it.
func encodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
