package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/estimate"
	"temper/trainer/estimate/question"
)

// planWithGraphs is a plan and the programs of its run.
type planWithGraphs struct {
	estimate.Summary
	Graphs *question.Graphs `json:"graphs,omitempty"`
}

// planCommand answers whether a step fits, from arithmetic alone.
func planCommand() *cobra.Command {
	var q question.Question
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Add up the memory and the time of a training step, and say whether it fits",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&q.Model, "model", "0.6b", "config.json of a Qwen3 (or its folder), or 0.6b, 1.7b, 4b, 8b, 14b, 32b")
	f.StringVar(&q.Run, "run", "", "configuration of a run, which answers what the other flags leave open")
	f.StringVar(&q.Devices, "devices", "CPU", "number and kind, like 8xMI300X; kinds: MI300X, H200, H100, A100-80, A100-40, CPU")
	f.StringVar(&q.Mesh, "mesh", "", "data x model axis, like 4x2; chosen when empty")
	f.IntVar(&q.Request.Length, "tokens", 4096, "tokens of a row, of one sequence or several packed ones")
	f.IntVar(&q.Request.Rows, "sequences", 1, "rows in a device pass of each data replica")
	f.BoolVar(&q.Request.Remat, "remat", false, "recompute each layer in the backward pass")
	f.BoolVar(&q.F32, "f32", false, "compute in float32 on a GPU too")
	f.BoolVar(&q.Request.Accumulate, "accumulate", false, "add up the gradients of several passes before an update")
	f.BoolVar(&q.Request.Packed, "pack", false, "several sequences in a row (rl.pack)")
	f.BoolVar(&q.Request.Reference, "reference", false, "keep a reference policy (rl.loss.kl)")
	f.IntVar(&q.Minibatches, "minibatches", 1, "updates in a step (rl.num_minibatches); with several the state before it is kept")
	f.IntVar(&q.Request.LogitsChunk, "logits-chunk", 0, "vocabulary entries scored at a time; 0 = all")
	f.IntVar(&q.Request.Slots, "slots", 0, "concurrent rollouts of an engine on the same devices; 0 = none")
	f.IntVar(&q.Request.Context, "context", 0, "tokens of a slot; 0 = --tokens")
	f.IntVar(&q.Request.StepTokens, "step-tokens", 0, "tokens of a whole step, for its time; 0 = one pass")
	f.IntVar(&q.Request.MeanLength, "mean-tokens", 0, "mean tokens of a sequence, for the time of attention; 0 = --tokens")
	f.Float64Var(&q.Request.MFU, "mfu", 0.35, "model FLOP utilisation that the time assumes")
	f.StringVar(&q.Compile, "compile", "", "XLA backend, such as xla:cpu, whose compiler says what the step needs, beside the plan; nothing is run and no weight is made")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := q.Resolve(cmd.Flags().Changed); err != nil {
			return cli.Usage(err)
		}
		s, err := estimate.Plan(q.Request)
		if err != nil {
			return cli.Usage(fmt.Errorf("plan: %w", err))
		}
		switch {
		case q.Compile != "":
			return compilePlan(cmd.OutOrStdout(), q, s, asJSON)
		case asJSON:
			return cli.PrintJSON(cmd.OutOrStdout(), planWithGraphs{s, q.Graphs(s.Over)})
		}
		fmt.Fprint(cmd.OutOrStdout(), q.About)
		s.Text(cmd.OutOrStdout())
		fmt.Fprint(cmd.OutOrStdout(), q.GraphsText(q.Graphs(s.Over)))
		return nil
	}
	return cmd
}
