package hf

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"temper/trainer/model"
)

// Report describes the content of a model directory and its problems.
type Report struct {
	Path       string           `json:"path"`
	Config     model.Config     `json:"config"`
	Parameters int              `json:"parameters"`
	Bytes      int64            `json:"bytes"`  // of the weights on disk
	DTypes     map[string]int64 `json:"dtypes"` // parameters by type
	Shards     []ShardReport    `json:"shards"`
	Tokenizer  TokenizerFacts   `json:"tokenizer"`
	Notes      []string         `json:"notes"`
	Problems   []string         `json:"problems"`
}

// ShardReport is a file of weights.
type ShardReport struct {
	File    string `json:"file"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// Inspect reads the headers and the small files of an opened directory, not the weights.
func Inspect(path string, m *Model) Report {
	r := Report{
		Path: path, Config: m.Config.Config, Parameters: m.Config.NumParameters(), DTypes: map[string]int64{},
		Notes: append([]string{}, m.Config.Notes...), Problems: []string{},
	}
	for _, file := range m.Shards() {
		shard := ShardReport{File: file.Name(), Tensors: len(file.Tensors)}
		for _, t := range file.Tensors {
			r.DTypes[string(t.DType)] += t.Size() / t.DType.Size()
			shard.Bytes += t.Size()
		}
		r.Shards = append(r.Shards, shard)
		r.Bytes += shard.Bytes
	}
	facts, problems := m.Tokenizer()
	r.Tokenizer = facts
	for _, err := range problems {
		r.Problems = append(r.Problems, err.Error())
	}
	return r
}

// Print prints the report.
func (r Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	c := r.Config
	head := "own head"
	if c.TieWordEmbeddings {
		head = "head tied to the embedding"
	}
	row("architecture", "Qwen3, %d layers, hidden %d, intermediate %d, %s", c.NumHiddenLayers, c.HiddenSize, c.IntermediateSize, head)
	row("attention", "%d query heads, %d key/value heads of %d, rope theta %v", c.NumAttentionHeads, c.NumKeyValueHeads, c.HeadDim, c.RopeTheta)
	row("vocabulary", "%d ids, at most %d positions", c.VocabSize, c.MaxPositionEmbeddings)
	row("parameters", "%d in %d bytes", r.Parameters, r.Bytes)
	for _, dtype := range slices.Sorted(maps.Keys(r.DTypes)) {
		row("dtype", "%s: %d values", dtype, r.DTypes[dtype])
	}
	for _, s := range r.Shards {
		row("file", "%s: %d tensors, %d bytes", s.File, s.Tensors, s.Bytes)
	}
	if t := r.Tokenizer; t.Model != "" {
		row("tokenizer", "%s, %d tokens, %d merges, %d added tokens, largest id %d", t.Model, t.Vocabulary, t.Merges, t.AddedTokens, t.MaxID)
		row("splits by", "%s", strings.Join(t.PreTokenizers, ", "))
	}
	if t := r.Tokenizer; t.Template != "" {
		row("template", "%d bytes in %s; ends with %q, pads with %q", t.TemplateBytes, t.Template, t.EOS, t.Pad)
	}
	for _, note := range r.Notes {
		row("note", "%s", note)
	}
	for _, problem := range r.Problems {
		row("problem", "%s", problem)
	}
	return w.Flush()
}
