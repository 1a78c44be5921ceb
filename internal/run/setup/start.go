package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
)

// start is the start of a run: an open checkpoint directory, or a policy of another run of
// the store.
type start struct {
	key           string // of the configuration that names it
	model         model.Config
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
// without reading the weights. functions are the run's own tools. Errors: config.Problems, InvalidConfig; the caller
// closes the rest.
func openStart(ctx context.Context, store blob.Store, cfg config.Run, functions []chat.FunctionTool) (*start, error) {
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
	if most := s.model.MaxPositionEmbeddings; cfg.EngineContext() > most {
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
		problems = append(problems, s.readFormat(run.ChatConfig(cfg, s.template, functions), name, tok)...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems, s.Close())
	}
	return s, nil
}

func openDirectory(_ context.Context, _ blob.Store, section config.Model) (*start, error) {
	const key = "model.path"
	m, err := hf.Load(section.Path)
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
func openPolicy(ctx context.Context, store blob.Store, section config.Model) (*start, error) {
	const key = "model.run"
	runID, version, err := config.ParsePolicy(section.Run)
	if err != nil {
		return nil, config.Problems{{Path: key, Msg: err.Error()}}
	}
	layout := artifact.Layout{RunID: runID}
	published, ok, err := artifact.Lookup[run.Policy](ctx, store, layout.Policy(version).Ref())
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, asProblem(key, section.Run, run.MissingPolicy(ctx, store, fault.InvalidConfig, runID, version))
	}
	p, err := checkpoint.LoadDescription(ctx, store, published.Ref)
	if err = run.ExplainMissing(ctx, store, runID, version, err); fault.IsUsers(err) {
		return nil, asProblem(key, section.Run, err)
	}
	if errors.Is(err, blob.ErrNotExist) {
		return nil, config.Problems{{Path: key, Msg: fmt.Sprintf("is %s, but the policy is not whole: %v", section.Run, err)}}
	}
	if err != nil {
		return nil, err
	}
	weights := func() (checkpoint.Source, error) {
		p, err := checkpoint.LoadWeights(ctx, store, published.Ref)
		return checkpoint.SourceOf(p.Weights), asProblem(key, section.Run, run.ExplainMissing(ctx, store, runID, version, err))
	}
	return &start{
		key: key, model: p.Model, tokenizerJSON: p.Tokenizer, files: p.Files, weights: weights,
		close: func() error { return nil },
	}, nil
}

// asProblem reports which key names a start that cannot be, if that is the error.
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
func (s *start) readFormat(cfg chat.Config, name string, tok *tokenizer.Tokenizer) config.Problems {
	var err error
	s.format, err = chat.New(tok, cfg)
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
// anything, prompt with its chat template, and use the code that it names.
func checkStart(ctx context.Context, store blob.Store, cfg config.Run) error {
	code, err := findCode(cfg)
	if err != nil {
		return err
	}
	if !cfg.Model.Starts() {
		return checkChat(cfg, code.Functions())
	}
	s, err := openStart(ctx, store, cfg, code.Functions())
	if err != nil {
		return err
	}
	return s.Close()
}

// store puts what the run starts from into the run's own folder. A directory that
// changed since an earlier attempt is blob.ErrExists.
func (s *start) store(ctx context.Context, store blob.Store, layout artifact.Layout, cfg config.Checkpoint) (*run.Start, error) {
	dir := startDir(layout)
	p := checkpoint.Policy{Model: s.model, Tokenizer: s.tokenizerJSON, Files: s.files, Form: checkpoint.Form{ShardFrom: int64(cfg.ShardPolicies)}}
	out := &run.Start{Model: p.Model, Files: map[string]blob.Ref{}}
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

// copyStart copies the start of a run into the folder of another one.
func copyStart(ctx context.Context, store blob.Store, s *run.Start, layout artifact.Layout) (*run.Start, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // the parent began with random weights, and so does the other
	}
	dir := startDir(layout)
	out := &run.Start{Model: s.Model, Files: map[string]blob.Ref{}}
	for name, ref := range s.Files {
		ref.Key = path.Join(dir, name)
		out.Files[name] = ref
	}
	var err error
	out.Policy, err = checkpoint.CopyPolicy(ctx, store, s.Policy, dir)
	return out, err
}

func startDir(layout artifact.Layout) string { return path.Join(layout.Dir(), "start") }
