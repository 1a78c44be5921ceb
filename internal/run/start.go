package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/fault"
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

// start is what a run can start from: an open checkpoint directory, or a policy
// of another run of the store.
type start struct {
	key           string // of the configuration that names it
	model         qwen3.Config
	tokenizerJSON []byte
	template      *chat.Template // nil for the small ChatML
	format        *chat.Format
	files         map[string][]byte // of checkpoint.DescriptionFiles, those there are
	weights       func() (checkpoint.Source, error)
	close         func() error
}

// Close frees what the start holds.
func (s *start) Close() error { return s.close() }

// openStart opens what the model starts from and checks that the run can use it,
// without reading the weights. Errors: config.Problems, InvalidConfig; the caller
// closes the rest.
func openStart(ctx context.Context, store blob.Store, cfg config.Run) (*start, error) {
	open := openDirectory
	if cfg.Model.Run != "" {
		open = openPolicy
	}
	s, err := open(ctx, store, cfg.Model)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(cfg.Model.Run, cfg.Model.Path)
	var problems config.Problems
	if most := s.model.MaxPositionEmbeddings; cfg.Model.MaxContext > most {
		problems = append(problems, config.Problem{Path: "model.max_context", Msg: fmt.Sprintf(
			"is %d, but the model in %s has %d positions", cfg.Model.MaxContext, name, most)})
	}
	tok, err := s.readTokenizer()
	if err != nil {
		problems = append(problems, config.Problem{Path: s.key, Msg: fmt.Sprintf("%s: %v", name, err)})
	}
	if s.template, err = findTemplate(cfg, name, s.files); err != nil {
		problems = append(problems, templateProblem(err))
	} else if tok != nil {
		problems = append(problems, s.readFormat(cfg, name, tok)...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems, s.Close())
	}
	return s, nil
}

func openDirectory(_ context.Context, _ blob.Store, model config.Model) (*start, error) {
	const key = "model.path"
	m, err := hf.Load(model.Path)
	if err != nil {
		return nil, config.Problems{{Path: key, Msg: err.Error()}}
	}
	s := &start{key: key, model: m.Config.Config, files: map[string][]byte{}, weights: func() (checkpoint.Source, error) { return m.Tensor, nil }, close: m.Close}
	if s.tokenizerJSON, err = m.ReadFile(hf.TokenizerFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, m.Close())
	}
	for _, name := range checkpoint.DescriptionFiles() {
		data, err := m.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		s.files[name] = data
	}
	return s, nil
}

// openPolicy opens a published policy of another run.
func openPolicy(ctx context.Context, store blob.Store, model config.Model) (*start, error) {
	const key = "model.run"
	runID, version, err := config.ParsePolicy(model.Run)
	if err != nil {
		return nil, config.Problems{{Path: key, Msg: err.Error()}}
	}
	layout := artifact.Layout{RunID: runID}
	published, ok, err := artifact.Lookup[Policy](ctx, store, layout.PolicyRef(version))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, asProblem(key, model.Run, MissingPolicy(ctx, store, fault.InvalidConfig, runID, version))
	}
	p, err := checkpoint.LoadDescription(ctx, store, published.Ref)
	if err = vanished(ctx, store, runID, version, err); fault.IsUsers(err) {
		return nil, asProblem(key, model.Run, err)
	}
	if errors.Is(err, blob.ErrNotExist) {
		return nil, config.Problems{{Path: key, Msg: fmt.Sprintf("is %s, but the policy is not whole: %v", model.Run, err)}}
	}
	if err != nil {
		return nil, err
	}
	weights := func() (checkpoint.Source, error) {
		p, err := checkpoint.LoadWeights(ctx, store, published.Ref)
		return checkpoint.SourceOf(p.Weights), asProblem(key, model.Run, vanished(ctx, store, runID, version, err))
	}
	return &start{
		key: key, model: p.Model, tokenizerJSON: p.Tokenizer, files: p.Files, weights: weights,
		close: func() error { return nil },
	}, nil
}

// asProblem says which key names a start that cannot be, if that is the error.
func asProblem(key, name string, err error) error {
	if !fault.IsUsers(err) {
		return err
	}
	return config.Problems{{Path: key, Msg: fmt.Sprintf("is %s, but %v", name, err)}}
}

func (s *start) readTokenizer() (*tokenizer.Tokenizer, error) {
	if s.tokenizerJSON == nil {
		return nil, fmt.Errorf("%s: no such file", hf.TokenizerFile)
	}
	tok, err := tokenizer.Parse(s.tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", hf.TokenizerFile, err)
	}
	if n := tok.VocabSize(); n > s.model.VocabSize {
		return nil, fmt.Errorf("%s: %d tokens, but the model's vocabulary is %d", hf.TokenizerFile, n, s.model.VocabSize)
	}
	return tok, nil
}

// readFormat puts template and tokenizer together.
func (s *start) readFormat(cfg config.Run, name string, tok *tokenizer.Tokenizer) config.Problems {
	var err error
	s.format, err = chat.New(tok, chatConfig(cfg, s.template))
	switch {
	case err == nil:
		return nil
	case s.template != nil:
		return config.Problems{templateProblem(err)}
	default:
		return config.Problems{{Path: s.key, Msg: fmt.Sprintf("%s: %s: %v", name, hf.TokenizerFile, err)}}
	}
}

// checkStart finds out whether a run can start from what its model names, if
// anything, and prompt with its chat template.
func checkStart(ctx context.Context, store blob.Store, cfg config.Run) error {
	if !cfg.Model.Starts() {
		return checkChat(cfg)
	}
	s, err := openStart(ctx, store, cfg)
	if err != nil {
		return err
	}
	return s.Close()
}

// store puts what the run starts from into the run's own folder. A directory that
// changed since an earlier attempt is blob.ErrExists.
func (s *start) store(ctx context.Context, store blob.Store, layout artifact.Layout) (*Start, error) {
	dir := startDir(layout)
	p := checkpoint.Policy{Model: s.model, Tokenizer: s.tokenizerJSON, Files: s.files}
	out := &Start{Model: p.Model, Files: map[string]blob.Ref{}}
	for name, data := range s.files {
		out.Files[name] = blob.RefOf(path.Join(dir, name), data)
	}
	weights, err := s.weights()
	if err != nil {
		return nil, err
	}
	out.Policy, err = checkpoint.PublishFrom(ctx, store, dir, p, weights)
	return out, err
}

// copyTo makes the start of a run that of another too, with files of its own.
func (s *Start) copyTo(ctx context.Context, store blob.Store, layout artifact.Layout) (*Start, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // the parent began with random weights, and so does the other
	}
	dir := startDir(layout)
	out := &Start{Model: s.Model, Files: map[string]blob.Ref{}}
	for name, ref := range s.Files {
		ref.Key = path.Join(dir, name)
		out.Files[name] = ref
	}
	var err error
	out.Policy, err = checkpoint.CopyPolicy(ctx, store, s.Policy, dir)
	return out, err
}

func startDir(layout artifact.Layout) string { return path.Join(layout.Dir(), "start") }

// readStart gives a run the architecture: that of the stored checkpoint which it
// starts from, or the one of its dimensions.
func (r *Loaded) readStart(ctx context.Context, store blob.Store) error {
	r.Model = modelOf(r.Config, r.Format.Tokenizer().VocabSize())
	if !r.Config.Model.Starts() {
		return nil
	}
	ready, _, err := artifact.Lookup[Prepared](ctx, store, r.Layout.DataReady())
	if err == nil && ready.Start == nil {
		err = blob.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("start of run %s: %w", r.Ref.RunID, err)
	}
	r.Start, r.Model, r.Files = ready.Start, ready.Start.Model, map[string][]byte{}
	for name, ref := range ready.Start.Files {
		if r.Files[name], err = blob.ReadRef(ctx, store, ref); err != nil {
			return fmt.Errorf("start of run %s: %w", r.Ref.RunID, err)
		}
	}
	return nil
}
