package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/hf"
	"temper/trainer/model"
)

// modelReport is what `temper model inspect` found.
type modelReport struct {
	Path       string            `json:"path"`
	Config     model.Config      `json:"config"`
	Parameters int               `json:"parameters"`
	Bytes      int64             `json:"bytes"`  // of the weights on disk
	DTypes     map[string]int64  `json:"dtypes"` // parameters by type
	Shards     []shardReport     `json:"shards"`
	Tokenizer  hf.TokenizerFacts `json:"tokenizer"`
	Notes      []string          `json:"notes"`
	Problems   []string          `json:"problems"`
}

type shardReport struct {
	File    string `json:"file"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

func modelInspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Show what a model directory holds, and what is wrong with it",
		Long: `Reads the headers and the small files of DIR, not the weights. What keeps the model from being
loaded is the error, all of it at once; what only keeps it from talking (no tokenizer, no chat
template) is listed as a problem.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := hf.Load(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		defer m.Close() //nolint:errcheck // read only
		report := inspectModel(args[0], m)
		if asJSON {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(report)
		}
		return report.write(cmd.OutOrStdout())
	}
	return cmd
}

func inspectModel(path string, m *hf.Model) modelReport {
	r := modelReport{
		Path: path, Config: m.Config.Config, Parameters: m.Config.NumParameters(), DTypes: map[string]int64{},
		Notes: append([]string{}, m.Config.Notes...), Problems: []string{},
	}
	for _, file := range m.Shards() {
		shard := shardReport{File: file.Name(), Tensors: len(file.Tensors)}
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

// write prints the report for people.
func (r modelReport) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	c := r.Config
	head := "own head"
	if c.TieWordEmbeddings {
		head = "head tied to the embedding"
	}
	row("architecture", "%s, %d layers, hidden %d, intermediate %d, %s", c.Family().Class, c.NumHiddenLayers, c.HiddenSize, c.IntermediateSize, head)
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
