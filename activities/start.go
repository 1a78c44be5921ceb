package activities

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/tokenizer"
	"temper/trainer/checkpoint"
	"temper/trainer/hf"
	"temper/trainer/qwen3"
)

// Start is the checkpoint that a run starts from, as the run's store has it:
// from here on the run does not depend on the directory that it came from.
type Start struct {
	Model qwen3.Config `json:"model"`
	// Policy is the weights, published in float32 like any policy of the run.
	Policy blob.Ref `json:"policy"`
	// Files are those that each policy of the run takes along, by name.
	Files map[string]blob.Ref `json:"files,omitempty"`
}

// modelOf is the architecture that a run's dimensions give, in Hugging Face's terms.
func modelOf(cfg config.Run, vocabSize int) qwen3.Config {
	m := cfg.Model
	return qwen3.Config{
		HiddenSize: m.HiddenSize, NumHiddenLayers: m.NumLayers, NumAttentionHeads: m.NumHeads,
		NumKeyValueHeads: m.NumKVHeads, HeadDim: m.HeadDim, IntermediateSize: m.IntermediateSize,
		VocabSize: vocabSize, RopeTheta: m.RopeTheta, RMSNormEps: m.RMSNormEps,
		TieWordEmbeddings: m.TieEmbeddings, MaxPositionEmbeddings: m.MaxContext,
		InitializerRange: m.InitializerRange,
	}
}

// directory is an open checkpoint directory that a run can start from.
type directory struct {
	*hf.Model
	tokenizerJSON []byte
	format        *chat.Format
}

// openDirectory opens model.path and checks that the run can use it, without
// reading the weights. The error is config.Problems; the caller closes the rest.
func openDirectory(cfg config.Run) (*directory, error) {
	m, err := hf.Load(cfg.Model.Path)
	if err != nil {
		return nil, config.Problems{{Path: "model.path", Msg: err.Error()}}
	}
	var problems config.Problems
	if most := m.Config.MaxPositionEmbeddings; cfg.Model.MaxContext > most {
		problems = append(problems, config.Problem{Path: "model.max_context", Msg: fmt.Sprintf(
			"is %d, but the model in %s has %d positions", cfg.Model.MaxContext, cfg.Model.Path, most)})
	}
	d := &directory{Model: m}
	if err := d.readTokenizer(cfg); err != nil {
		problems = append(problems, config.Problem{Path: "model.path", Msg: fmt.Sprintf("%s: %v", cfg.Model.Path, err)})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems, m.Close())
	}
	return d, nil
}

func (d *directory) readTokenizer(cfg config.Run) error {
	var err error
	if d.tokenizerJSON, err = d.ReadFile(hf.TokenizerFile); err != nil {
		return err
	}
	tok, err := tokenizer.Parse(d.tokenizerJSON)
	if err != nil {
		return fmt.Errorf("%s: %w", hf.TokenizerFile, err)
	}
	if n := tok.VocabSize(); n > d.Config.VocabSize {
		return fmt.Errorf("%s: %d tokens, but the model's vocabulary is %d", hf.TokenizerFile, n, d.Config.VocabSize)
	}
	if d.format, err = chat.New(tok, chatConfig(cfg)); err != nil {
		return fmt.Errorf("%s: %w", hf.TokenizerFile, err)
	}
	return nil
}

// checkStart finds out whether a run can start from its model.path, if it has one.
func checkStart(cfg config.Run) error {
	if cfg.Model.Path == "" {
		return nil
	}
	d, err := openDirectory(cfg)
	if err != nil {
		return err
	}
	return d.Close()
}

// store puts the checkpoint into the run's store. A directory that changed since
// an earlier attempt is blob.ErrExists.
func (d *directory) store(ctx context.Context, store blob.Store, layout artifact.Layout) (*Start, error) {
	dir := path.Join(layout.Dir(), "start")
	p := checkpoint.Policy{Model: d.Config.Config, Tokenizer: d.tokenizerJSON, Files: map[string][]byte{}}
	s := &Start{Model: p.Model, Files: map[string]blob.Ref{}}
	for _, name := range checkpoint.DescriptionFiles() {
		data, err := d.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.Files[name] = data
		s.Files[name] = blob.RefOf(path.Join(dir, name), data)
	}
	var err error
	if p.Weights, err = d.Tensors(); err != nil {
		return nil, err
	}
	s.Policy, err = checkpoint.Publish(ctx, store, dir, p)
	return s, err
}

// readStart gives a run the architecture: that of the stored checkpoint which it
// starts from, or the one of its dimensions.
func (r *runContext) readStart(ctx context.Context, store blob.Store) error {
	r.model = modelOf(r.cfg, r.format.Tokenizer().VocabSize())
	if r.cfg.Model.Path == "" {
		return nil
	}
	ready, _, err := artifact.Lookup[PrepareDataResult](ctx, store, r.layout.DataReady())
	if err == nil && ready.Start == nil {
		err = blob.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("start of run %s: %w", r.run.RunID, err)
	}
	r.start, r.model, r.files = ready.Start, ready.Start.Model, map[string][]byte{}
	for name, ref := range ready.Start.Files {
		if r.files[name], err = blob.ReadRef(ctx, store, ref); err != nil {
			return fmt.Errorf("start of run %s: %w", r.run.RunID, err)
		}
	}
	return nil
}
