package gguf_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"temper/internal/chat/tokenizer"
	"temper/trainer/model"
	"temper/trainer/weights/gguf"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

func network(tied bool) model.Config {
	return model.Config{
		VocabSize: 300, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16,
		MaxPositionEmbeddings: 64, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: tied, InitializerRange: 0.1,
	}
}

// directory is a model directory of random weights.
func directory(t *testing.T, m model.Config, files map[string][]byte) *hf.Model {
	t.Helper()
	weights, err := model.InitialTensors(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := hf.Create(dir, m, model.ByName(weights), hf.Layout{DType: safetensors.F32, Files: files}); err != nil {
		t.Fatal(err)
	}
	opened, err := hf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// reader reads a file as its specification says, and knows nothing of the writer.
type reader struct {
	t    *testing.T
	data []byte
	at   int
}

func (r *reader) u32() uint32 { r.at += 4; return binary.LittleEndian.Uint32(r.data[r.at-4:]) }
func (r *reader) u64() uint64 { r.at += 8; return binary.LittleEndian.Uint64(r.data[r.at-8:]) }
func (r *reader) text() string {
	n := int(r.u64())
	r.at += n
	return string(r.data[r.at-n : r.at])
}

func (r *reader) value(kind uint32) any {
	switch kind {
	case 4:
		return r.u32()
	case 5:
		return int32(r.u32())
	case 6:
		return math.Float32frombits(r.u32())
	case 7:
		r.at++
		return r.data[r.at-1] == 1
	case 8:
		return r.text()
	case 9:
		elem, n := r.u32(), r.u64()
		out := make([]any, n)
		for i := range out {
			out[i] = r.value(elem)
		}
		return out
	default:
		r.t.Fatalf("value of kind %d", kind)
		return nil
	}
}

type tensor struct {
	shape  []uint64 // innermost first
	kind   uint32
	offset uint64
}

// parse returns the metadata, the tensors, and their data.
func parse(t *testing.T, data []byte) (meta map[string]any, tensors map[string]tensor, body []byte) {
	t.Helper()
	r := &reader{t: t, data: data, at: 4}
	if string(data[:4]) != "GGUF" || r.u32() != 3 {
		t.Fatalf("starts with %q", data[:8])
	}
	n, fields := r.u64(), r.u64()
	meta, tensors = map[string]any{}, map[string]tensor{}
	for range fields {
		key := r.text()
		meta[key] = r.value(r.u32())
	}
	for range n {
		name := r.text()
		x := tensor{shape: make([]uint64, r.u32())}
		for i := range x.shape {
			x.shape[i] = r.u64()
		}
		x.kind, x.offset = r.u32(), r.u64()
		tensors[name] = x
	}
	return meta, tensors, data[(r.at+31)/32*32:]
}

// TestFile reads back what was written, with a tied head and without.
func TestFile(t *testing.T) {
	for _, tied := range []bool{true, false} {
		m := directory(t, network(tied), nil)
		path := filepath.Join(t.TempDir(), "m.gguf")
		result, err := gguf.Write(path, m, gguf.Options{DType: safetensors.F32})
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || int64(len(data)) != result.Bytes {
			t.Fatalf("%d bytes, error %v, want %d", len(data), err, result.Bytes)
		}
		meta, tensors, body := parse(t, data)
		for key, want := range map[string]any{
			"general.architecture": "qwen3", "qwen3.block_count": uint32(2), "qwen3.context_length": uint32(64), "qwen3.attention.head_count_kv": uint32(2),
			"qwen3.attention.key_length": uint32(16), "qwen3.rope.freq_base": float32(1e6), "tokenizer.ggml.model": "gpt2",
		} {
			if meta[key] != want {
				t.Errorf("%s is %v, want %v", key, meta[key], want)
			}
		}
		if _, head := tensors["output.weight"]; head == tied {
			t.Errorf("tied %v, output.weight is there: %v", tied, head)
		}
		for name, source := range map[string]string{
			"token_embd.weight": "model.embed_tokens.weight", "blk.1.attn_q_norm.weight": "model.layers.1.self_attn.q_norm.weight",
			"blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight", "output_norm.weight": "model.norm.weight",
		} {
			want, err := m.Tensor(source)
			if err != nil {
				t.Fatal(err)
			}
			x := tensors[name]
			shape := []uint64{}
			for _, d := range slices.Backward(want.Shape) {
				shape = append(shape, uint64(d))
			}
			if !slices.Equal(x.shape, shape) || x.offset%32 != 0 || !bytes.HasPrefix(body[x.offset:], safetensors.F32Bytes(want.Data)) {
				t.Errorf("%s: shape %v at %d, or other values", name, x.shape, x.offset)
			}
		}
	}
}

// TestLlamaFile: neighbouring rows of queries and keys are the pairs that turn together, with
// their biases. Values and outputs stay as they are.
func TestLlamaFile(t *testing.T) {
	c := network(true)
	c.FamilyName, c.NoQKNorm, c.QKVBias, c.OBias = "llama", true, true, true
	m := directory(t, c, nil)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := gguf.Write(path, m, gguf.Options{DType: safetensors.F32}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta, tensors, body := parse(t, data)
	if meta["general.architecture"] != "llama" || meta["llama.block_count"] != uint32(2) {
		t.Errorf("architecture %v of %v blocks", meta["general.architecture"], meta["llama.block_count"])
	}
	half := c.HeadDim / 2
	for name, from := range map[string]func(row int) int{
		"blk.1.attn_q.weight": func(row int) int { // row 2j + b of a head is row j of its half b
			head, at := row/c.HeadDim, row%c.HeadDim
			return head*c.HeadDim + at%2*half + at/2
		},
		"blk.1.attn_v.weight":      func(row int) int { return row },
		"blk.1.attn_output.weight": func(row int) int { return row },
	} {
		source := map[string]string{"blk.1.attn_q.weight": "q_proj", "blk.1.attn_v.weight": "v_proj", "blk.1.attn_output.weight": "o_proj"}[name]
		want, x := weights(t, m, "model.layers.1.self_attn."+source+".weight"), tensors[name]
		width := int(x.shape[0])
		for row := range int(x.shape[1]) {
			stored := body[int(x.offset)+4*row*width:][:4*width]
			if !bytes.Equal(stored, safetensors.F32Bytes(want[from(row)*width:][:width])) {
				t.Fatalf("%s: row %d is not row %d of the checkpoint", name, row, from(row))
			}
		}
	}
	if tensors["blk.0.attn_k.bias"].shape == nil {
		t.Error("the bias of keys is missing")
	}
	c.Rope = model.Rope{Kind: model.RopeLinear, Factor: 2}
	if _, err := gguf.Write(path, directory(t, c, nil), gguf.Options{DType: safetensors.F32}); err == nil {
		t.Error("linear rotations are written")
	}
}

// TestTypes: matrices have the type, vectors stay in float32.
func TestTypes(t *testing.T) {
	m := directory(t, network(true), nil)
	for dtype, want := range map[safetensors.DType]uint32{safetensors.F16: 1, safetensors.BF16: 30} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if _, err := gguf.Write(path, m, gguf.Options{DType: dtype}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, tensors, body := parse(t, data)
		x, values := tensors["blk.0.ffn_up.weight"], weights(t, m, "model.layers.0.mlp.up_proj.weight")
		half, err := safetensors.AppendFloat32s(nil, dtype, values)
		if err != nil {
			t.Fatal(err)
		}
		if x.kind != want || !bytes.HasPrefix(body[x.offset:], half) || tensors["output_norm.weight"].kind != 0 {
			t.Errorf("%s: matrix of kind %d, vector of kind %d", dtype, x.kind, tensors["output_norm.weight"].kind)
		}
	}
	if _, err := gguf.Write(filepath.Join(t.TempDir(), "m.gguf"), m, gguf.Options{DType: "I8"}); err == nil {
		t.Error("I8 is written")
	}
}

func weights(t *testing.T, m *hf.Model, name string) []float32 {
	t.Helper()
	x, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x.Data
}

// TestTokenizer: ids keep their text, added tokens their kind, and merges their order.
func TestTokenizer(t *testing.T) {
	tok, err := tokenizer.Train(slices.Values([]string{"the cat the hat the mat"}), 5, []string{"<|im_start|>", "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := gguf.Write(path, directory(t, network(true), map[string][]byte{hf.TokenizerFile: text}), gguf.Options{DType: safetensors.F32}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta, _, _ := parse(t, data)
	tokens, kinds, merges := meta["tokenizer.ggml.tokens"].([]any), meta["tokenizer.ggml.token_type"].([]any), meta["tokenizer.ggml.merges"].([]any)
	id, _ := tok.Special("<|im_end|>")
	if len(tokens) != 300 || len(kinds) != 300 || len(merges) != 5 {
		t.Fatalf("%d tokens, %d kinds, %d merges", len(tokens), len(kinds), len(merges))
	}
	if tokens[id] != "<|im_end|>" || kinds['a'] != int32(1) || tokens['a'] != "a" || tokens[' '] != "\u0120" || kinds[299] != int32(5) {
		t.Errorf("token %d is %v, 'a' is %v of kind %v, ' ' is %v, padding is of kind %v", id, tokens[id], tokens['a'], kinds['a'], tokens[' '], kinds[299])
	}
	if first := merges[0].(string); strings.Count(first, " ") != 1 {
		t.Errorf("first merge %q", first)
	}
	small := network(true)
	small.VocabSize = 100
	if _, err := gguf.Write(path, directory(t, small, map[string][]byte{hf.TokenizerFile: text}), gguf.Options{DType: safetensors.F32}); err == nil || !strings.Contains(err.Error(), "vocab_size is 100") {
		t.Errorf("error %v for a tokenizer larger than the model", err)
	}
}

// TestTemplate goes into the file unless it is left out.
func TestTemplate(t *testing.T) {
	m := directory(t, network(true), map[string][]byte{hf.TemplateFile: []byte("{{ messages }}")})
	for _, without := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if _, err := gguf.Write(path, m, gguf.Options{DType: safetensors.F32, IDsOnly: without}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		meta, _, _ := parse(t, data)
		if _, has := meta["tokenizer.chat_template"]; has == without {
			t.Errorf("left out %v, template is there: %v", without, has)
		}
	}
}
