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

	"temper/trainer/hf"
	"temper/trainer/qwen3"
	"temper/trainer/safetensors"
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

// TestRoundTripIsByteIdentical also when every tensor goes through float32.
func TestRoundTripIsByteIdentical(t *testing.T) {
	extra := map[string]string{"tokenizer.json": " {}\n", "tokenizer_config.json": "{ }", "chat_template.jinja": "x", "merges.txt": "a b\n", "LICENSE": "l"}
	for _, source := range []string{"testdata/tied", "testdata/untied"} {
		source = copied(t, source, extra)
		m := load(t, source)
		tensors, err := m.Tensors()
		if err != nil {
			t.Fatal(err)
		}
		for name, changed := range map[string]func(string) (qwen3.Tensor, bool){"copied": nil, "converted": qwen3.ByName(tensors)} {
			out := filepath.Join(t.TempDir(), "out")
			if err := m.Save(out, changed, hf.SaveOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(contents(t, source), contents(t, out)); diff != "" {
				t.Errorf("%s, %s: want (-) got (+):\n%.2000s", source, name, diff)
			}
		}
	}
}

func TestSaveLeavesOtherWeightsBehind(t *testing.T) {
	m := load(t, copied(t, "testdata/tied", map[string]string{"pytorch_model.bin": "x", "pytorch_model.bin.index.json": "{}", ".hidden": "x"}))
	out := filepath.Join(t.TempDir(), "out")
	if err := m.Save(out, nil, hf.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, "testdata/tied"), contents(t, out)); diff != "" {
		t.Errorf("want (-) got (+):\n%.1000s", diff)
	}
}

// TestSaveChangesOneTensor: it is rounded to its type, and the rest of its file
// and the other files stay.
func TestSaveChangesOneTensor(t *testing.T) {
	m := load(t, "testdata/untied")
	const name = "model.layers.1.self_attn.q_norm.weight"
	value, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	value.Data[3] = 1 + 3.0/256 // a tie in bfloat16
	out := filepath.Join(t.TempDir(), "out")
	if err := m.Save(out, qwen3.ByName([]qwen3.Tensor{value}), hf.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	got, want := load(t, out), load(t, "testdata/untied")
	for _, spec := range want.Config.Tensors() {
		a, err := got.Tensor(spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.Tensor(spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Name == name {
			b.Data[3] = 1 + 4.0/256
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s: want (-) got (+):\n%.500s", spec.Name, diff)
		}
	}
}

// TestSaveInAnotherType widens bfloat16 to float32 and comes back to the bytes
// of before.
func TestSaveInAnotherType(t *testing.T) {
	source := load(t, "testdata/untied")
	wide := filepath.Join(t.TempDir(), "wide")
	if err := source.Save(wide, nil, hf.SaveOptions{DType: safetensors.F32}); err != nil {
		t.Fatal(err)
	}
	m := load(t, wide)
	if m.Config.DType != "float32" {
		t.Errorf("config.json says %q", m.Config.DType)
	}
	if index := contents(t, wide)["model.safetensors.index.json"]; !strings.Contains(index, `"total_size": 103296`) {
		t.Errorf("index %.200s, want total_size of 4 bytes for each of 25824 parameters", index)
	}
	back := filepath.Join(t.TempDir(), "back")
	if err := m.Save(back, nil, hf.SaveOptions{DType: safetensors.BF16}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, "testdata/untied"), contents(t, back)); diff != "" {
		t.Errorf("want (-) got (+):\n%.2000s", diff)
	}
}

// TestTiedHeadMayBeStored: some tools write the head of a tied model. It must
// be the embedding, and stays it when the embedding changes.
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
	m := load(t, stored(0))
	value, err := m.Tensor("model.embed_tokens.weight")
	if err != nil {
		t.Fatal(err)
	}
	value.Data[5]++
	out := filepath.Join(t.TempDir(), "out")
	if err := m.Save(out, qwen3.ByName([]qwen3.Tensor{value}), hf.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	load(t, out) // refuses two that differ
	if _, err := hf.Load(stored(1)); err == nil || !strings.Contains(err.Error(), "lm_head.weight differs from model.embed_tokens.weight") {
		t.Errorf("another head: error %v", err)
	}
}

// TestSaveIsWholeOrNothing: a tensor of a wrong shape and a full disk end the
// writing in the middle.
func TestSaveIsWholeOrNothing(t *testing.T) {
	m := load(t, "testdata/tied")
	parent := t.TempDir()
	out := filepath.Join(parent, "out")
	wrong := qwen3.Tensor{Name: "model.norm.weight", Shape: []int{2}, Data: []float32{1, 2}}
	err := m.Save(out, qwen3.ByName([]qwen3.Tensor{wrong}), hf.SaveOptions{})
	if err == nil || !strings.Contains(err.Error(), "model.safetensors: write tensor model.norm.weight: shape [2], want [32]") {
		t.Errorf("wrong shape: error %v", err)
	}
	err = withFileLimit(t, 64<<10, func() error { return m.Save(out, nil, hf.SaveOptions{}) })
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("full: error %v, want EFBIG", err)
	}
	err = withFileLimit(t, 64<<10, func() error {
		weights, err := qwen3.InitialTensors(tiny(), 1)
		if err != nil {
			return err
		}
		return hf.Create(out, tiny(), qwen3.ByName(weights), hf.Layout{DType: safetensors.F32})
	})
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("full: error %v, want EFBIG", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	if err := m.Save(out, nil, hf.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Save(out, nil, hf.SaveOptions{}); !errors.Is(err, os.ErrExist) {
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
	weights, err := qwen3.InitialTensors(tiny(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 30_000} {
		out := filepath.Join(t.TempDir(), "a", "out")
		err := hf.Create(out, tiny(), qwen3.ByName(weights), hf.Layout{DType: safetensors.F32, MaxShard: limit})
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, out)
		if n := len(m.Shards()); (limit == 0) != (n == 1) {
			t.Errorf("limit %d: %d shards", limit, n)
		}
		got, err := m.Tensors()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(weights, got); diff != "" {
			t.Errorf("limit %d: want (-) got (+):\n%.500s", limit, diff)
		}
	}
}
