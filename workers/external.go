package workers

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/inference/external"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/trainer/checkpoint"
	"temper/trainer/weights/hf"
)

// externalEngine makes the engine of a run that samples with servers of others.
func externalEngine(store blob.Store, backend string, r *run.Loaded, log *slog.Logger) (sampling.Engine, error) {
	c := r.Config.Rollout.Engine
	key, err := engineKey(c)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(c.Folder, r.Ref.RunID)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("rollout.engine.folder: %w", err)
	}
	log.Warn("an engine of others samples", "run_id", r.Ref.RunID, "engine", c.Kind, "not_promised", r.Config.NotPromised())
	return external.New(external.Config{
		Kind: c.Kind, URLs: c.URLs, Command: c.Command, Folder: folder, Key: key, Tolerance: c.Tolerance, Patience: c.Patience,
		MaxContext: r.Config.EngineContext(), Vocab: r.Model.VocabSize, Log: log,
		Publisher: checkpoint.Exporter{Store: store, Backend: backend, Generation: generationOf(r)},
	})
}

// generationOf describes how the policies of a run talk, for programs that read them.
func generationOf(r *run.Loaded) *hf.Generation {
	token := func(id int32) hf.Token { return hf.Token{ID: id, Text: r.Format.Tokenizer().Decode([]int32{id})} }
	g := &hf.Generation{Pad: token(r.Format.Pad()), Template: r.Format.Source(), Temperature: r.Config.Rollout.Temperature}
	for _, id := range r.Format.Stop() {
		g.Stop = append(g.Stop, token(id))
	}
	return g
}

// engineKey reads the key of the servers, "" for none.
func engineKey(c config.RolloutEngine) (string, error) {
	switch {
	case c.KeyEnv != "":
		key := os.Getenv(c.KeyEnv)
		if key == "" {
			return "", fmt.Errorf("rollout.engine.key_env: the environment has no %s", c.KeyEnv)
		}
		return key, nil
	case c.KeyFile != "":
		data, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return "", fmt.Errorf("rollout.engine.key_file: %w", err)
		}
		return strings.TrimSpace(string(data)), nil
	default:
		return "", nil
	}
}
