package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/device"
	"temper/trainer/estimate"
)

// planFlags are the words of a question to the estimator.
type planFlags struct {
	model, devices, mesh string
	run, about           string // a configuration file, and what it says
	f32, measure         bool
	minibatches          int
	request              estimate.Request
	asJSON               bool
}

// trainerPlanCommand answers whether a step fits, from arithmetic alone.
func trainerPlanCommand() *cobra.Command {
	var p planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Add up the memory and the time of a training step, and say whether it fits",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&p.model, "model", "0.6b", "config.json of a Qwen3 (or its folder), or 0.6b, 1.7b, 4b, 8b, 14b, 32b")
	f.StringVar(&p.run, "run", "", "configuration of a run, which answers what the other flags leave open")
	f.StringVar(&p.devices, "devices", "CPU", "number and kind, like 8xMI300X; kinds: MI300X, H200, H100, A100-80, A100-40, CPU")
	f.StringVar(&p.mesh, "mesh", "", "data x model axis, like 4x2; chosen when empty")
	f.IntVar(&p.request.Length, "tokens", 4096, "tokens of a row, of one sequence or several packed ones")
	f.IntVar(&p.request.Rows, "sequences", 1, "rows in a device pass of each data replica")
	f.BoolVar(&p.request.Remat, "remat", false, "recompute each layer in the backward pass")
	f.BoolVar(&p.f32, "f32", false, "compute in float32 on a GPU too")
	f.BoolVar(&p.request.Accumulate, "accumulate", false, "add up the gradients of several passes before an update")
	f.BoolVar(&p.request.Packed, "pack", false, "several sequences in a row (rl.pack)")
	f.BoolVar(&p.request.Reference, "reference", false, "keep a reference policy (rl.loss.kl)")
	f.IntVar(&p.minibatches, "minibatches", 1, "updates in a step (rl.num_minibatches); with several the state before it is kept")
	f.BoolVar(&p.request.InPlace, "in-place", false, "assume that XLA overwrites donated weights and moments")
	f.IntVar(&p.request.LogitsChunk, "logits-chunk", 0, "vocabulary entries scored at a time; 0 = all")
	f.IntVar(&p.request.Slots, "slots", 0, "concurrent rollouts of an engine on the same devices; 0 = none")
	f.IntVar(&p.request.Context, "context", 0, "tokens of a slot; 0 = --tokens")
	f.IntVar(&p.request.StepTokens, "step-tokens", 0, "tokens of a whole step, for its time; 0 = one pass")
	f.IntVar(&p.request.MeanLength, "mean-tokens", 0, "mean tokens of a sequence, for the time of attention; 0 = --tokens")
	f.Float64Var(&p.request.MFU, "mfu", 0.35, "model FLOP utilisation that the time assumes")
	f.BoolVar(&p.measure, "measure", false, "make the step on this machine's CPU and compare its peak with the estimate")
	f.BoolVar(&p.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.resolve(cmd.Flags().Changed); err != nil {
			return cli.Usage(err)
		}
		s, err := estimate.Plan(p.request)
		if err != nil {
			return cli.Usage(fmt.Errorf("plan: %w", err))
		}
		switch {
		case p.measure:
			return comparePlan(cmd, p.request, s, p.asJSON)
		case p.asJSON:
			return cli.PrintJSON(cmd.OutOrStdout(), s)
		}
		fmt.Fprint(cmd.OutOrStdout(), p.about)
		s.Text(cmd.OutOrStdout())
		return nil
	}
	return cmd
}

// resolve reads the flags that are names. stated tells which ones the user gave.
func (p *planFlags) resolve(stated func(flag string) bool) error {
	var errs []error
	add := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	r := &p.request
	var err error
	r.Model, err = estimate.Model(p.model)
	add("model", err)
	r.NumDevices, r.Device, err = estimate.ParseDevices(p.devices)
	add("devices", err)
	r.Mesh, err = parseMesh(p.mesh)
	add("mesh", err)
	if p.run != "" && len(errs) == 0 {
		add("run", p.fromRun(stated))
	}
	if p.measure && r.Device.Fused {
		add("measure", errors.New("only on the CPU"))
	}
	if p.minibatches < 1 {
		add("minibatches", fmt.Errorf("%d, want at least 1", p.minibatches))
	}
	if p.measure && (r.Accumulate || r.LogitsChunk > 0 || r.Packed || r.Reference || p.minibatches > 1) {
		add("measure", errors.New("makes plain steps: leave out --accumulate, --logits-chunk, --pack, --reference and --minibatches"))
	}
	r.SeveralUpdates = p.minibatches > 1
	r.Half = !p.f32
	if r.Context == 0 {
		r.Context = r.Length
	}
	return errors.Join(errs...)
}

// parseMesh reads "4x2"; the empty mesh is to be chosen.
func parseMesh(s string) (device.Mesh, error) {
	if s == "" {
		return device.Mesh{}, nil
	}
	data, model, _ := strings.Cut(s, "x")
	d, err1 := strconv.Atoi(data)
	m, err2 := strconv.Atoi(model)
	if err1 != nil || err2 != nil || d < 1 || m < 1 {
		return device.Mesh{}, fmt.Errorf("%q, want data x model, like 4x2", s)
	}
	return device.Mesh{Data: d, Model: m, FSDP: d > 1}, nil
}
