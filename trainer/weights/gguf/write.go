package gguf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// Result describes the written file.
type Result struct {
	Parameters int
	Bytes      int64
	// Notes are facts that a person should know.
	Notes []string
}

// Options select the content of the file.
type Options struct {
	// DType of the matrices: F32, F16 or BF16.
	DType safetensors.DType
	// IDsOnly leaves the texts of tokens and the chat template out. llama.cpp keeps tokens
	// back whose text is half a character, and does not start with a template that it
	// cannot parse: both are in the way where only ids are exchanged.
	IDsOnly bool
}

// Write converts a model directory into a file. It
// reads one tensor at a time. The file appears whole or not at all, and takes the
// place of one that is there.
func Write(path string, m *hf.Model, o Options) (Result, error) {
	kind, err := kindOf(o.DType)
	if err != nil {
		return Result{}, err
	}
	if err := check(m.Config.Config); err != nil {
		return Result{}, err
	}
	fields, notes, err := describe(m, kind, o)
	if err != nil {
		return Result{}, err
	}
	entries, err := entriesOf(m.Config.Config, kind)
	if err != nil {
		return Result{}, err
	}
	start, err := header(fields, entries)
	if err != nil {
		return Result{}, err
	}
	out := Result{Parameters: m.Config.NumParameters(), Notes: notes}
	out.Bytes, err = replaceFile(path, func(w io.Writer) error {
		if _, err := w.Write(start); err != nil {
			return err
		}
		for _, e := range entries {
			if err := writeTensor(w, m, e); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// check returns an error for networks that the file cannot express.
func check(c model.Config) error {
	f := c.Family()
	switch {
	case f.GGUF == "":
		return fmt.Errorf("a network of family %s is not written as GGUF yet", f.ModelType)
	case c.Rope.Kind != "" && c.Rope.Kind != model.RopeDynamic:
		return fmt.Errorf("rotations of type %s are not written as GGUF yet", c.Rope.Kind)
	}
	return nil
}

func writeTensor(w io.Writer, m *hf.Model, e entry) error {
	t, err := m.Tensor(e.source)
	if err != nil {
		return err
	}
	if e.headDim > 0 {
		t.Data = interleaved(t.Data, t.Shape[0], e.headDim)
	}
	if err := safetensors.PutFloat32s(w, e.kind.dtype, t.Data); err != nil {
		return fmt.Errorf("write tensor %s: %w", e.name, err)
	}
	size := int64(len(t.Data)) * e.kind.dtype.Size()
	_, err = w.Write(make([]byte, padding(size)))
	return err
}

// describe makes the metadata.
func describe(m *hf.Model, kind tensorKind, o Options) ([]field, []string, error) {
	config, err := m.ReadFile(hf.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	end, hasEnd, err := endToken(config)
	if err != nil {
		return nil, nil, err
	}
	text, err := m.ReadFile(hf.TokenizerFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if o.IDsOnly {
		text = nil
	}
	v, err := readVocabulary(text, m.Config.VocabSize)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", hf.TokenizerFile, err)
	}
	fields := append(network(m.Config.Config, kind),
		field{"tokenizer.ggml.model", "gpt2"},
		field{"tokenizer.ggml.pre", v.pre},
		field{"tokenizer.ggml.tokens", v.tokens},
		field{"tokenizer.ggml.token_type", v.kinds},
		field{"tokenizer.ggml.merges", v.merges},
		field{"tokenizer.ggml.add_bos_token", false},
	)
	if hasEnd {
		fields = append(fields, field{"tokenizer.ggml.eos_token_id", end})
	}
	if o.IDsOnly {
		return fields, v.notes, nil
	}
	template, err := m.ReadFile(hf.TemplateFile)
	switch {
	case err == nil:
		fields = append(fields, field{"tokenizer.chat_template", string(template)})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	return fields, v.notes, nil
}

// network describes the dimensions.
func network(c model.Config, kind tensorKind) []field {
	arch := c.Family().GGUF
	return []field{
		{"general.architecture", arch},
		{"general.type", "model"},
		{"general.alignment", uint32(alignment)},
		{"general.file_type", kind.file},
		{arch + ".vocab_size", uint32(c.VocabSize)},
		{arch + ".block_count", uint32(c.NumHiddenLayers)},
		{arch + ".context_length", uint32(c.MaxPositionEmbeddings)},
		{arch + ".embedding_length", uint32(c.HiddenSize)},
		{arch + ".feed_forward_length", uint32(c.IntermediateSize)},
		{arch + ".attention.head_count", uint32(c.NumAttentionHeads)},
		{arch + ".attention.head_count_kv", uint32(c.NumKeyValueHeads)},
		{arch + ".attention.key_length", uint32(c.HeadDim)},
		{arch + ".attention.value_length", uint32(c.HeadDim)},
		{arch + ".attention.layer_norm_rms_epsilon", float32(c.RMSNormEps)},
		{arch + ".rope.freq_base", float32(c.RopeTheta)},
	}
}

// replaceFile writes a file beside its place, and moves it there when it is on disk.
func replaceFile(path string, write func(io.Writer) error) (size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return 0, err
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644), f.Sync()); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return info.Size(), os.Rename(f.Name(), path)
}
