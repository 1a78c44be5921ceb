// Package modeldir writes a policy of a run as a model directory in Hugging Face layout:
// weights, tokenizer, chat template, and the files that tell other programs how the run
// prompts, samples and stops. It reads the store and writes one directory.
//
// Invariant: a directory appears whole or not at all.
package modeldir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// Source names a policy of a run.
type Source struct {
	RunID string
	// Step names a checkpoint as ParseStep reads it; "" is the newest.
	Step string
	// Version, if not nil, is the version of a published policy in place of a checkpoint.
	Version *int64
}

// Suffix tells the source from the others of its run in a label: "@3", "@step-best", or ""
// for the newest checkpoint.
func (s Source) Suffix() string {
	switch {
	case s.Version != nil:
		return fmt.Sprintf("@%d", *s.Version)
	case s.Step == run.FromBest:
		return "@best"
	case s.Step != "":
		return "@step-" + s.Step
	default:
		return ""
	}
}

// ParseStep reads the name of a checkpoint: the number of a step, "sft" for step 0, "best"
// for the highest reward of the step after it, or "last". from is "" for a number.
func ParseStep(text string) (step int, from string, err error) {
	switch text {
	case run.FromBest, run.FromLast:
		return 0, text, nil
	case "sft":
		return 0, "", nil
	}
	step, err = strconv.Atoi(text)
	if err != nil || step < 0 {
		return 0, "", fault.Newf(fault.InvalidConfig, "--step: is %q, want the number of a step, sft, best or last", text)
	}
	return step, "", nil
}

// Write writes the source into dir, which is empty or absent, and describes it in about.
func Write(ctx context.Context, store blob.Store, s Source, dir string, dtype safetensors.DType) (about string, err error) {
	if err := refuseFull(dir); err != nil {
		return "", err
	}
	what, policy, err := s.read(ctx, store)
	if err != nil {
		return "", err
	}
	files, err := describe(ctx, store, s.RunID, policy, dtype)
	if err != nil {
		return "", err
	}
	if err := hf.Create(dir, policy.Model, model.ByName(policy.Weights), hf.Layout{DType: dtype, Files: files}); err != nil {
		return "", existsIsUsers(err)
	}
	return fmt.Sprintf("%s: %s of run %s, %d parameters in %s", dir, what, s.RunID, policy.Model.NumParameters(), hf.TorchName(dtype)), nil
}

// WriteAdapter writes the adapters of a checkpoint of a run with trainer.lora as a PEFT
// directory, and describes them in about.
func WriteAdapter(ctx context.Context, store blob.Store, s Source, dir string, dtype safetensors.DType) (about string, err error) {
	if err := refuseFull(dir); err != nil {
		return "", err
	}
	step, manifest, err := s.find(ctx, store)
	if err != nil {
		return "", err
	}
	network, weights, err := checkpoint.LoadModel(ctx, store, manifest)
	if err != nil {
		return "", err
	}
	if len(network.Adapters()) == 0 {
		return "", fault.Newf(fault.InvalidConfig, "--adapter: run %s trains its weights themselves: it has no trainer.lora", s.RunID)
	}
	loaded, err := load(ctx, store, s.RunID)
	if err != nil {
		return "", err
	}
	base := cmp.Or(loaded.Config.Model.Path, loaded.Config.Model.Run)
	if err := hf.CreateAdapter(dir, network, base, model.ByName(weights), dtype); err != nil {
		return "", existsIsUsers(err)
	}
	return fmt.Sprintf("%s: adapters of rank %d of step %d of run %s in %s, for %s", dir, network.LoRA.Rank, step, s.RunID, hf.TorchName(dtype), base), nil
}

// Opened is a model directory that is there to be read.
type Opened struct {
	Dir string
	// Rollout says how the run samples; nil for a directory that belongs to no run.
	Rollout *config.Rollout
	// Close removes the directory if it was made for the occasion.
	Close func()
}

// Open opens the directory model, or writes the run model to a temporary directory with
// all bits of its weights. open opens the store; s chooses the policy of a run.
func Open(ctx context.Context, model string, s Source, open func(context.Context) (blob.Store, error)) (Opened, error) {
	_, err := os.Stat(filepath.Join(model, hf.ConfigFile))
	if err == nil {
		return Opened{Dir: model, Close: func() {}}, nil
	}
	if info, statErr := os.Stat(model); statErr == nil && info.IsDir() {
		return Opened{}, fault.Newf(fault.InvalidConfig, "--model %s: no model: %w", model, errors.Unwrap(err))
	} else if !errors.Is(statErr, fs.ErrNotExist) {
		return Opened{}, fault.New(fault.InvalidConfig, fmt.Errorf("--model: %w", statErr))
	}
	store, err := open(ctx)
	if err != nil {
		return Opened{}, err
	}
	tmp, err := os.MkdirTemp("", "temper-model-")
	if err != nil {
		return Opened{}, err
	}
	o := Opened{Dir: filepath.Join(tmp, "model"), Close: func() { _ = os.RemoveAll(tmp) }}
	s.RunID = model
	about, err := Write(ctx, store, s, o.Dir, safetensors.F32)
	if err == nil {
		fmt.Fprintln(os.Stderr, about)
		o.Rollout, err = rollout(ctx, store, model)
	}
	if err != nil {
		o.Close()
		return Opened{}, fmt.Errorf("--model %s: %w", model, err)
	}
	return o, nil
}

// rollout reads how a run samples.
func rollout(ctx context.Context, store blob.Store, runID string) (*config.Rollout, error) {
	ref, err := stored(ctx, store, runID)
	if err != nil {
		return nil, err
	}
	cfg, err := run.ReadConfig(ctx, store, ref)
	return &cfg.Rollout, err
}

func load(ctx context.Context, store blob.Store, runID string) (*run.Loaded, error) {
	ref, err := stored(ctx, store, runID)
	if err != nil {
		return nil, err
	}
	return run.Load(ctx, store, ref)
}

func stored(ctx context.Context, store blob.Store, runID string) (run.Ref, error) {
	plan, ok, err := run.StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q is stored", runID)
	}
	return run.Ref{RunID: runID, Config: plan.Config}, err
}

// describe makes the files beside the weights. A stored policy holds only what
// the run itself needs; what other programs need is added here.
func describe(ctx context.Context, store blob.Store, runID string, policy checkpoint.Policy, dtype safetensors.DType) (map[string][]byte, error) {
	loaded, err := load(ctx, store, runID)
	if err != nil {
		return nil, err
	}
	format := loaded.Format
	token := func(id int32) hf.Token { return hf.Token{ID: id, Text: format.Tokenizer().Decode([]int32{id})} }
	generation := hf.Generation{Pad: token(format.Pad()), Template: format.Source(), Temperature: loaded.Config.Rollout.Temperature}
	for _, id := range format.Stop() {
		generation.Stop = append(generation.Stop, token(id))
	}
	files := maps.Clone(policy.Files)
	if files == nil {
		files = map[string][]byte{}
	}
	files[hf.TokenizerFile] = policy.Tokenizer
	return hf.Describe(policy.Model, dtype, files, generation)
}

// read reads the policy and describes it in what.
func (s Source) read(ctx context.Context, store blob.Store) (what string, p checkpoint.Policy, err error) {
	if s.Version != nil {
		p, err = run.PublishedPolicy(ctx, store, s.RunID, *s.Version)
		return fmt.Sprintf("policy %d", *s.Version), p, err
	}
	step, manifest, err := s.find(ctx, store)
	if err != nil {
		return "", p, err
	}
	p, err = run.CheckpointPolicy(ctx, store, s.RunID, manifest)
	return fmt.Sprintf("checkpoint of step %d", step), p, err
}

// find finds the checkpoint.
func (s Source) find(ctx context.Context, store blob.Store) (step int, manifest blob.Ref, err error) {
	from := run.ForkFrom{RunID: s.RunID}
	if from.Step, from.From, err = ParseStep(cmp.Or(s.Step, run.FromLast)); err != nil {
		return 0, blob.Ref{}, err
	}
	return run.FindCheckpoint(ctx, store, from)
}

// refuseFull spares the reading of weights that cannot be written.
func refuseFull(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err == nil {
		err = os.ErrExist
	}
	return fault.Newf(fault.InvalidConfig, "%s: want an empty directory or none: %w", dir, err)
}

func existsIsUsers(err error) error {
	if errors.Is(err, os.ErrExist) {
		return fault.New(fault.InvalidConfig, err)
	}
	return err
}
