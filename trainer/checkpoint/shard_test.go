package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/trainer/model"
)

func someTensors() []model.Tensor {
	return []model.Tensor{
		{Name: "a", Shape: []int{3}, Data: []float32{1, 2, 3}}, {Name: "empty", Shape: []int{0}},
		{Name: "b", Shape: []int{2, 2}, Data: []float32{4, 5, 6, 7}},
	}
}

// TestFormatOnDiskStays pins the bytes of a policy's weights and with them of
// every checkpoint: builds of one format read them and equal tensors must go
// on sharing their shards.
func TestFormatOnDiskStays(t *testing.T) {
	tensors := []model.Tensor{{Name: "b", Shape: []int{2}, Data: []float32{1, -2}}, {Name: "a", Shape: []int{1, 1}, Data: []float32{0.5}}}
	file, err := tensorFile([]model.TensorSpec{{Name: "b", Shape: []int{2}}, {Name: "a", Shape: []int{1, 1}}}, SourceOf(tensors))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := file(&got); err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := string([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}) + header + "\x00\x00\x00\x3f\x00\x00\x80\x3f\x00\x00\x00\xc0"
	if got.String() != want {
		t.Errorf("bytes\n%q, want\n%q", got.String(), want)
	}
}

// TestShardReadsTheSameInEveryWay: drivers choose how they read.
func TestShardReadsTheSameInEveryWay(t *testing.T) {
	s, err := newShard(someTensors())
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Join(s.parts, nil)
	if err := iotest.TestReader(&reader{shard: s}, want); err != nil {
		t.Error(err)
	}
	for at := range int64(len(want)) + 1 {
		r := &reader{shard: s}
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		n, err := r.WriteTo(&got)
		if err != nil || n != int64(len(want))-at || !bytes.Equal(got.Bytes(), want[at:]) || r.at != int64(len(want)) {
			t.Errorf("from %d on: wrote %d bytes (%d), then at %d, error %v", at, n, got.Len(), r.at, err)
		}
	}
	if _, err := (&reader{shard: s}).WriteTo(failing{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that fails: error %v", err)
	}
}

// failing is a writer that takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// spoiling changes a value of the state after it was hashed.
type spoiling struct {
	*fileblob.Store
	spoil func()
}

func (s *spoiling) PutHashed(ctx context.Context, want blob.Ref, r io.Reader) error {
	s.spoil()
	return s.Store.PutHashed(ctx, want, r)
}

// TestStateThatChangedWhileItWasSavedIsNotLoaded: the store believes the hash,
// the load does not, and a repair brings the right bytes.
func TestStateThatChangedWhileItWasSavedIsNotLoaded(t *testing.T) {
	files, err := fileblob.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	state := State{Weights: someTensors()}
	value := &state.Weights[0].Data[0]
	store := &spoiling{Store: files, spoil: func() { *value = 8 }}
	ref, err := Save(t.Context(), store, "runs/r/checkpoints", 1, state)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(t.Context(), store, ref); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	*value, store.spoil = 1, func() {}
	if ref, err = SaveWith(t.Context(), store, "runs/r/checkpoints", 1, state, SaveOptions{Repair: true}); err != nil {
		t.Fatal(err)
	}
	if _, got, err := Load(t.Context(), store, ref); err != nil || got.Weights[0].Data[0] != 1 {
		t.Errorf("after the repair: %+v, error %v", got.Weights, err)
	}
}
