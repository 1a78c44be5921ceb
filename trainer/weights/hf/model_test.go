package hf_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// contents reads a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

// tensors reads all weights.
func tiny() model.Config {
	return model.Config{VocabSize: 64, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 16, MaxPositionEmbeddings: 128, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
}

func tensors(t *testing.T, m *hf.Model) []model.Tensor {
	t.Helper()
	var out []model.Tensor
	for tensor, err := range m.All() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tensor)
	}
	return out
}

// copied returns a copy of a directory with other files; "" removes one.
func copied(t *testing.T, dir string, changes map[string]string) string {
	t.Helper()
	files := contents(t, dir)
	for name, data := range changes {
		files[name] = data
	}
	out := t.TempDir()
	for name, data := range files {
		if data == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(out, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestCreateKeepsEveryBit: what is written in the type of its source holds the
// same tensors, and bfloat16 that was widened comes back.
func TestCreateKeepsEveryBit(t *testing.T) {
	for source, types := range map[string][]safetensors.DType{
		"testdata/tied": {safetensors.F32}, "testdata/untied": {safetensors.F32, safetensors.BF16},
	} {
		dir, weights := source, tensors(t, load(t, source))
		for _, dtype := range types {
			m := load(t, dir)
			values := tensors(t, m)
			dir = filepath.Join(t.TempDir(), "out")
			if err := hf.Create(dir, m.Config.Config, model.ByName(values), hf.Layout{DType: dtype}); err != nil {
				t.Fatal(err)
			}
			written := load(t, dir)
			if written.Config.DType != hf.TorchName(dtype) {
				t.Errorf("%s as %s: config.json says %q", source, dtype, written.Config.DType)
			}
			got := tensors(t, written)
			if diff := cmp.Diff(weights, got); diff != "" {
				t.Errorf("%s as %s: want (-) got (+):\n%.500s", source, dtype, diff)
			}
		}
	}
}

// TestCreateRounds to the nearest value, ties to even.
func TestCreateRounds(t *testing.T) {
	m := load(t, "testdata/untied")
	weights := tensors(t, m)
	const name = "model.layers.1.self_attn.q_norm.weight"
	value, _ := model.ByName(weights)(name)
	value.Data[3] = 1 + 3.0/256 // a tie in bfloat16
	out := filepath.Join(t.TempDir(), "out")
	if err := hf.Create(out, m.Config.Config, model.ByName(weights), hf.Layout{DType: safetensors.BF16}); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, out).Tensor(name)
	if err != nil || got.Data[3] != 1+4.0/256 {
		t.Errorf("got %v, error %v, want %v", got.Data, err, 1+4.0/256)
	}
}

// TestTiedHeadMayBeStored: some tools write the head of a tied model. It must
// equal the embedding.
func TestTiedHeadMayBeStored(t *testing.T) {
	source := load(t, "testdata/tied")
	stored := func(change float32) string {
		file := source.Shards()[0]
		embed, err := source.Tensor("model.embed_tokens.weight")
		if err != nil {
			t.Fatal(err)
		}
		embed.Data[0] += change
		infos := append([]safetensors.Info{{Name: "lm_head.weight", DType: safetensors.F32, Shape: embed.Shape}}, file.Tensors...)
		header, err := safetensors.NewHeader(file.Metadata, infos)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err = header.Write(&out, func(w io.Writer, info safetensors.Info) error {
			if info.Name == "lm_head.weight" {
				return safetensors.PutFloat32s(w, info.DType, embed.Data)
			}
			original, _ := file.Lookup(info.Name)
			_, err := io.Copy(w, file.Section(original))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return copied(t, "testdata/tied", map[string]string{"model.safetensors": out.String()})
	}
	load(t, stored(0))
	if _, err := hf.Load(stored(1)); err == nil || !strings.Contains(err.Error(), "lm_head.weight differs from model.embed_tokens.weight") {
		t.Errorf("another head: error %v", err)
	}
}

// TestCreateIsWholeOrNothing: a tensor of a wrong shape, a missing one and a full
// disk end the writing in the middle.
func TestCreateIsWholeOrNothing(t *testing.T) {
	parent := t.TempDir()
	out := filepath.Join(parent, "out")
	weights, err := model.InitialTensors(tiny(), 1)
	if err != nil {
		t.Fatal(err)
	}
	create := func(change func(name string, value model.Tensor) (model.Tensor, bool)) error {
		return hf.Create(out, tiny(), func(name string) (model.Tensor, bool) {
			value, _ := model.ByName(weights)(name)
			return change(name, value)
		}, hf.Layout{DType: safetensors.F32})
	}
	same := func(_ string, value model.Tensor) (model.Tensor, bool) { return value, true }
	const norm = "model.norm.weight"
	for want, change := range map[string]func(string, model.Tensor) (model.Tensor, bool){
		norm + ": shape [2], want [": func(name string, value model.Tensor) (model.Tensor, bool) {
			if name == norm {
				value.Shape, value.Data = []int{2}, []float32{1, 2}
			}
			return value, true
		},
		norm + ": it is missing": func(name string, value model.Tensor) (model.Tensor, bool) { return value, name != norm },
	} {
		if err := create(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := withFileLimit(t, 64<<10, func() error { return create(same) }); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("full: error %v, want EFBIG", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	if err := create(same); err != nil {
		t.Fatal(err)
	}
	if err := create(same); !errors.Is(err, os.ErrExist) {
		t.Errorf("again: error %v, want ErrExist", err)
	}
}

// withFileLimit runs f while no file may grow beyond limit bytes, which stands
// in for a full disk.
func withFileLimit(t *testing.T, limit uint64, f func() error) error {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := f()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	return err
}

// TestCreateInShards: what Create writes loads, with the values that it got.
func TestCreateInShards(t *testing.T) {
	weights, err := model.InitialTensors(tiny(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 30_000} {
		out := filepath.Join(t.TempDir(), "a", "out")
		err := hf.Create(out, tiny(), model.ByName(weights), hf.Layout{DType: safetensors.F32, MaxShard: limit})
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, out)
		if n := len(m.Shards()); (limit == 0) != (n == 1) {
			t.Errorf("limit %d: %d shards", limit, n)
		}
		got := tensors(t, m)
		if diff := cmp.Diff(weights, got); diff != "" {
			t.Errorf("limit %d: want (-) got (+):\n%.500s", limit, diff)
		}
	}
}
