package run

import (
	"context"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/tokenizer"
	"temper/trainer/qwen3"
)

// Loaded is what a worker needs to know of a run, all of it immutable.
type Loaded struct {
	Ref    Ref
	Layout artifact.Layout
	Config config.Run
	Format *chat.Format
	Model  qwen3.Config
	// Start is where the weights come from; nil for random ones.
	Start *Start
	// TokenizerJSON and Files are published beside the weights.
	TokenizerJSON []byte
	Files         map[string][]byte
}

// Load reads a run whose data is prepared.
func Load(ctx context.Context, store blob.Store, run Ref) (*Loaded, error) {
	cfg, err := ReadConfig(ctx, store, run)
	if err != nil {
		return nil, err
	}
	r := &Loaded{Ref: run, Layout: artifact.Layout{RunID: run.RunID}, Config: cfg}
	if r.TokenizerJSON, err = blob.ReadKey(ctx, store, r.Layout.Tokenizer()); err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tok, err := tokenizer.Parse(r.TokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tmpl, err := readTemplate(ctx, store, r.Layout, cfg)
	if err != nil {
		return nil, err
	}
	if r.Format, err = chat.New(tok, chatConfig(cfg, tmpl)); err != nil {
		return nil, err
	}
	if err := r.readStart(ctx, store); err != nil {
		return nil, err
	}
	r.addTemplate(tmpl)
	return r, nil
}

// NumParameters counts the weights of the run's model.
func (r *Loaded) NumParameters() int64 { return int64(r.Model.NumParameters()) }
