package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/checkpoint"
	"temper/trainer/hf"
	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// exporting is what a person asks of an export.
type exporting struct {
	runID, dir, dtype, step string
	policy                  int64
	best, last, adapter     bool
}

func runExportCommand(p *config.Process) *cobra.Command {
	e := exporting{}
	cmd := &cobra.Command{
		Use: "export RUN DIR", Short: "Write a checkpoint or a policy of a run as a Hugging Face directory",
		Long: `Writes DIR with the weights, the tokenizer, the chat template, and what tells transformers, vLLM and
temper model how the run prompts, samples and stops. DIR must be empty or absent; it appears whole or
not at all. Without a choice it is the newest checkpoint.`,
		Args: cobra.ExactArgs(2),
	}
	flags := cmd.Flags()
	flags.StringVar(&e.step, "step", "", "the checkpoint of this step; 0 or sft is the one after SFT")
	flags.Int64Var(&e.policy, "policy", 0, "this published policy instead of a checkpoint")
	flags.BoolVar(&e.best, "best", false, "the checkpoint with the highest reward of the step after it")
	flags.BoolVar(&e.last, "last", false, "the newest checkpoint")
	flags.BoolVar(&e.adapter, "adapter", false, "the adapters alone, of a run with trainer.lora, as a PEFT directory beside the model that the run started from")
	flags.StringVar(&e.dtype, "dtype", "bf16", "type of the weights: bf16, f32 (all bits of the training) or f16")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.runID, e.dir = args[0], args[1]
		if err := onlyOne(cmd, "step", "policy", "best", "last"); err != nil {
			return err
		}
		if err := onlyOne(cmd, "policy", "adapter"); err != nil {
			return err
		}
		dtype, err := dtypeNamed(e.dtype)
		if err != nil {
			return err
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		return e.export(cmd.Context(), store, dtype, cmd.Flags().Changed("policy"), cmd.OutOrStdout())
	}
	return cmd
}

// export writes what was asked for, and says what it is.
func (e *exporting) export(ctx context.Context, store blob.Store, dtype safetensors.DType, published bool, out io.Writer) error {
	if _, err := openRun(ctx, store, e.runID); err != nil {
		return err
	}
	if e.adapter {
		return e.exportAdapter(ctx, store, dtype, out)
	}
	what, policy, err := e.read(ctx, store, published)
	if err != nil {
		return usersError(err)
	}
	files, err := e.describe(ctx, store, policy, dtype)
	if err != nil {
		return err
	}
	err = hf.Create(e.dir, policy.Model, model.ByName(policy.Weights), hf.Layout{DType: dtype, Files: files})
	if errors.Is(err, os.ErrExist) {
		return cli.Usage(err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s of run %s, %d parameters in %s\n", e.dir, what, e.runID, policy.Model.NumParameters(), hf.TorchName(dtype))
	return err
}

// describe makes the files beside the weights. A stored policy holds only what
// the run itself needs; what other programs need is added here.
func (e *exporting) describe(ctx context.Context, store blob.Store, policy checkpoint.Policy, dtype safetensors.DType) (map[string][]byte, error) {
	plan, ok, err := run.StoredPlan(ctx, store, e.runID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, cli.Usagef("run %s has no plan: it was never opened", e.runID)
	}
	loaded, err := run.Load(ctx, store, run.Ref{RunID: e.runID, Config: plan.Config})
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

// onlyOne refuses several flags that exclude each other.
func onlyOne(cmd *cobra.Command, names ...string) error {
	given := slices.DeleteFunc(names, func(name string) bool { return !cmd.Flags().Changed(name) })
	if len(given) > 1 {
		return cli.Usagef("--%s exclude each other: want one", strings.Join(given, " and --"))
	}
	return nil
}

// read finds what is to be exported and says what it is.
func (e *exporting) read(ctx context.Context, store blob.Store, published bool) (what string, p checkpoint.Policy, err error) {
	if err := refuseFull(e.dir); err != nil {
		return "", p, err
	}
	if published {
		p, err = run.PublishedPolicy(ctx, store, e.runID, e.policy)
		return fmt.Sprintf("policy %d", e.policy), p, err
	}
	step, manifest, err := e.findCheckpoint(ctx, store)
	if err != nil {
		return "", p, err
	}
	p, err = run.CheckpointPolicy(ctx, store, e.runID, manifest)
	return fmt.Sprintf("checkpoint of step %d", step), p, err
}

// findCheckpoint finds the one that was asked for.
func (e *exporting) findCheckpoint(ctx context.Context, store blob.Store) (step int, manifest blob.Ref, err error) {
	from := run.ForkFrom{RunID: e.runID, From: run.FromLast}
	switch {
	case e.best:
		from.From = run.FromBest
	case e.step != "":
		from.From = ""
		if from.Step, err = parseStep(e.step); err != nil {
			return 0, blob.Ref{}, err
		}
	}
	return run.FindCheckpoint(ctx, store, from)
}

// exportAdapter writes the adapters of a checkpoint.
func (e *exporting) exportAdapter(ctx context.Context, store blob.Store, dtype safetensors.DType, out io.Writer) error {
	if err := refuseFull(e.dir); err != nil {
		return err
	}
	step, manifest, err := e.findCheckpoint(ctx, store)
	if err != nil {
		return usersError(err)
	}
	network, weights, err := checkpoint.LoadModel(ctx, store, manifest)
	if err != nil {
		return usersError(err)
	}
	if len(network.Adapters()) == 0 {
		return cli.Usagef("--adapter: run %s trains its weights themselves: it has no trainer.lora", e.runID)
	}
	plan, ok, err := run.StoredPlan(ctx, store, e.runID)
	if err != nil {
		return err
	}
	if !ok {
		return cli.Usagef("run %s has no plan: it was never opened", e.runID)
	}
	loaded, err := run.Load(ctx, store, run.Ref{RunID: e.runID, Config: plan.Config})
	if err != nil {
		return err
	}
	base := cmp.Or(loaded.Config.Model.Path, loaded.Config.Model.Run)
	err = hf.CreateAdapter(e.dir, network, base, model.ByName(weights), dtype)
	if errors.Is(err, os.ErrExist) {
		return cli.Usage(err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: adapters of rank %d of step %d of run %s in %s, for %s\n", e.dir, network.LoRA.Rank, step, e.runID, hf.TorchName(dtype), base)
	return err
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
	return cli.Usagef("%s: want an empty directory or none: %w", dir, err)
}

// parseStep reads the step of a checkpoint as people name it.
func parseStep(text string) (int, error) {
	if text == "sft" {
		return 0, nil
	}
	step, err := strconv.Atoi(text)
	if err != nil || step < 0 {
		return 0, cli.Usagef("--step: is %q, want the number of a step, or sft", text)
	}
	return step, nil
}
