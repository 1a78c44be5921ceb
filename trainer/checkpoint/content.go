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
	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// content writes the bytes of a blob, always the same.
type content func(w io.Writer) error

// bytesOf is a content in memory.
func bytesOf(data []byte) content {
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
}

// storedContent is the content of a stored blob.
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

// ref returns the Ref of the content under key.
func (c content) ref(key string) (blob.Ref, error) {
	sum, n := sha256.New(), &length{}
	if err := c(io.MultiWriter(sum, n)); err != nil {
		return blob.Ref{}, err
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n.bytes}, nil
}

// length is a writer that counts bytes.
type length struct{ bytes int64 }

func (l *length) Write(p []byte) (int, error) {
	l.bytes += int64(len(p))
	return len(p), nil
}

// put streams the content into the store. Content that differs from want is an error; no
// manifest names that blob.
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

// ErrCorrupt means that bytes are not a valid checkpoint, policy or safetensors file.
var ErrCorrupt = fmt.Errorf("checkpoint is corrupt: %w", blob.ErrCorrupt)

// Source returns tensors by name, one at a time: the caller drops each one before it asks for
// the next. It is called several times for a tensor and must return the same values.
type Source func(name string) (model.Tensor, error)

// SourceOf returns a Source of tensors in memory.
func SourceOf(tensors []model.Tensor) Source {
	lookup := model.ByName(tensors)
	return func(name string) (model.Tensor, error) {
		t, ok := lookup(name)
		if !ok {
			return t, fmt.Errorf("no tensor %s", name)
		}
		return t, nil
	}
}

// tensorFile writes a safetensors file in F32 with one tensor in memory at a time. Equal
// tensors give equal bytes, in any order.
func tensorFile(specs []model.TensorSpec, source Source) (content, error) {
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

// readTensors reads a safetensors file of F32, F16 or BF16 tensors and checks it against its
// Ref. It returns float32 tensors, sorted by name.
func readTensors(ctx context.Context, store blob.Store, ref blob.Ref) ([]model.Tensor, error) {
	out, err := readShard(ctx, store, ref, sha256Of(ref))
	return byName(out), err
}

// byName sorts tensors.
func byName(tensors []model.Tensor) []model.Tensor {
	slices.SortFunc(tensors, func(a, b model.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return tensors
}

// fileHeader returns the header of a file of weights.
func fileHeader(infos []safetensors.Info) (*safetensors.Header, error) {
	header, err := safetensors.NewHeader(map[string]string{"format": "pt"}, infos)
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	return header, nil
}

// encodeJSON encodes v as blob.PutJSON does.
func encodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
