package checkpoint_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
)

func TestCheckpointsKeepEveryBit(t *testing.T) {
	s := memblob.New()
	want := state(3)
	for i, bits := range []uint32{0x80000000, 1, 0x807fffff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001} {
		want.Weights[0].Data[i] = math.Float32frombits(bits)
	}
	_, got, err := checkpoint.Load(t.Context(), s, save(t, s, 1, want))
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range got.Weights {
		if tensor.Name != want.Weights[0].Name {
			continue
		}
		for i, x := range want.Weights[0].Data {
			if a, b := math.Float32bits(tensor.Data[i]), math.Float32bits(x); a != b {
				t.Errorf("value %d has bits %#x, want %#x", i, a, b)
			}
		}
	}
}

// TestBrokenShardIsCorrupt: the bytes are the ones that the Ref names, and no
// safetensors file.
func TestBrokenShardIsCorrupt(t *testing.T) {
	s := memblob.New()
	p := checkpoint.Policy{Model: network(), Weights: randomTensors(1)}
	ref, err := publish(t.Context(), s, "p", p)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := blob.ReadKey(t.Context(), s, ref.Key)
	if err != nil {
		t.Fatal(err)
	}
	good, err := blob.ReadKey(t.Context(), s, "p/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	short := good[:len(good)-4]
	bad, err := blob.PutBytes(t.Context(), s, "p/model.safetensors", short, blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	was := blob.RefOf(bad.Key, good)
	text := strings.Replace(string(manifest), was.SHA256, bad.SHA256, 1)
	text = strings.Replace(text, fmt.Sprint(was.Size), fmt.Sprint(bad.Size), 1)
	ref, err = blob.PutBytes(t.Context(), s, ref.Key, []byte(text), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	_, err = checkpoint.LoadWeights(t.Context(), s, ref)
	if !errors.Is(err, checkpoint.ErrCorrupt) || !errors.Is(err, blob.ErrCorrupt) || !strings.Contains(err.Error(), "reach beyond") {
		t.Errorf("error %v, want ErrCorrupt with the tensor's offsets", err)
	}
}
