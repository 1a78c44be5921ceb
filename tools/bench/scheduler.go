package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/inference/scheduler"
	"temper/tools/bench/schedulerbench"
)

// schedulerOptions say what `temper-bench scheduler` simulates.
type schedulerOptions struct {
	plan               schedulerbench.Plan
	problems, rollouts int
	toolSeconds        float64
	run                string
	step               int
	policies           []string
	sensitivity        bool
	svg, png           string
	asJSON             bool
	openRun            func(ctx context.Context) (*history.Run, error)
}

// schedulerCommand reads stored steps from the store that open returns.
func schedulerCommand(open func(context.Context, *config.Process) (blob.Store, error)) *cobra.Command {
	o := schedulerOptions{plan: schedulerbench.Plan{Hardware: schedulerbench.MI300X(), Config: scheduler.DefaultConfig(), Contenders: schedulerbench.Contenders()}}
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Simulate how trajectories are placed on many engines, and compare policies with a bound",
		Long: `Runs the scheduler of the service under simulated time, on engines by a roofline: an overhead,
the weights or the products, and the cached tokens of each pass. Rollouts are drawn, or those of a
stored step. The bound is the work of all rollouts divided by the engines, or the longest rollout
alone. The oracle is the same policy with the lengths known.`,
		Args: cobra.NoArgs,
	}
	f, h := cmd.Flags(), &o.plan.Hardware
	f.IntVar(&o.plan.Engines, "engines", 64, "engines")
	f.IntVar(&o.problems, "problems", 512, "problems of a step")
	f.IntVar(&o.rollouts, "rollouts", 32, "rollouts of a problem")
	f.IntVar(&o.plan.Seeds, "seeds", 5, "draws of the workload")
	f.IntVar(&o.plan.Past, "past", 2, "steps whose lengths the scheduler has seen before")
	f.IntVar(&o.plan.Ahead, "ahead", 8, "steps of the continuous policy; 0 leaves it out")
	f.Float64Var(&o.toolSeconds, "tool-seconds", 0.3, "time of a tool call")
	f.Float64Var(&o.plan.Config.Margin, "margin", o.plan.Config.Margin, "standard deviations that the forecast adds")
	f.Float64Var(&h.Bandwidth, "bandwidth", h.Bandwidth, "bytes a second that decoding reads")
	f.Float64Var(&h.Compute, "compute", h.Compute, "operations a second of products")
	f.Float64Var(&h.Overhead, "overhead", h.Overhead, "seconds of a pass beside reads and products")
	f.Int64Var(&h.Capacity, "capacity", h.Capacity, "tokens of KV cache that an engine holds")
	f.StringVar(&o.run, "run", "", "take the rollouts of this run, in place of drawn ones")
	f.IntVar(&o.step, "step", 1, "step of --run")
	f.StringSliceVar(&o.policies, "policies", nil, "only rows whose names contain one of these")
	f.BoolVar(&o.sensitivity, "sensitivity", false, "repeat with bandwidth and overhead 30 % lower and higher")
	f.StringVar(&o.svg, "svg", "", "file for a plot")
	f.StringVar(&o.png, "png", "", "file for a picture")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	p := cli.ProcessFlags(cmd)
	o.openRun = func(ctx context.Context) (*history.Run, error) {
		store, err := open(ctx, p)
		if err != nil {
			return nil, err
		}
		return history.Open(ctx, store, o.run)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.carryOut(cmd) }
	return cmd
}

func (o *schedulerOptions) validate() error {
	switch {
	case o.plan.Engines < 1 || o.plan.Engines > 4096:
		return cli.Usagef("--engines is %d, want 1 to 4096", o.plan.Engines)
	case o.problems < 1 || o.rollouts < 1 || o.problems*o.rollouts > 1<<20:
		return cli.Usagef("--problems is %d and --rollouts %d: want at least 1 each, at most %d trajectories", o.problems, o.rollouts, 1<<20)
	case o.plan.Seeds < 1 || o.plan.Seeds > 1000:
		return cli.Usagef("--seeds is %d, want 1 to 1000", o.plan.Seeds)
	case o.plan.Past < 0 || o.plan.Past > 100:
		return cli.Usagef("--past is %d, want 0 to 100", o.plan.Past)
	case o.plan.Ahead != 0 && (o.plan.Ahead < 2 || o.plan.Ahead > 100):
		return cli.Usagef("--ahead is %d, want 0, or 2 to 100", o.plan.Ahead)
	case !(o.toolSeconds >= 0 && o.toolSeconds < 3600):
		return cli.Usagef("--tool-seconds is %g, want 0 to 3600", o.toolSeconds)
	case !(o.plan.Config.Margin >= 0 && o.plan.Config.Margin <= 10):
		return cli.Usagef("--margin is %g, want 0 to 10", o.plan.Config.Margin)
	}
	if err := o.plan.Hardware.Validate(); err != nil {
		return cli.Usage(err)
	}
	return nil
}

func (o *schedulerOptions) carryOut(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	workloads := schedulerbench.Stages()
	for i := range workloads {
		workloads[i].Problems, workloads[i].Rollouts, workloads[i].ToolSeconds = o.problems, o.rollouts, o.toolSeconds
	}
	if o.run != "" {
		w, err := o.readStored(cmd.Context())
		if err != nil {
			return err
		}
		workloads = []schedulerbench.Workload{w}
	}
	if err := o.chooseContenders(); err != nil {
		return err
	}
	o.plan.Log = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	results, err := o.plan.CompareAll(workloads)
	if err != nil {
		return err
	}
	if err := o.draw(results); err != nil {
		return err
	}
	if o.asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), results)
	}
	fmt.Fprint(cmd.OutOrStdout(), schedulerbench.Table(results), schedulerbench.Goals(results))
	if o.sensitivity {
		return o.vary(cmd.OutOrStdout(), workloads)
	}
	return nil
}

// draw writes the pictures that were asked for.
func (o *schedulerOptions) draw(results []schedulerbench.Result) error {
	if o.svg != "" {
		if err := os.WriteFile(o.svg, schedulerbench.Plot(results), 0o644); err != nil { //nolint:gosec // a picture for anybody
			return err
		}
	}
	if o.png == "" {
		return nil
	}
	data, err := schedulerbench.PNG(results)
	if err != nil {
		return err
	}
	return os.WriteFile(o.png, data, 0o644) //nolint:gosec // a picture for anybody
}

// chooseContenders leaves out what was not asked for.
func (o *schedulerOptions) chooseContenders() error {
	o.plan.Contenders = slices.DeleteFunc(o.plan.Contenders, func(c schedulerbench.Contender) bool {
		if c.Continuous && (o.plan.Ahead == 0 || o.run != "") {
			return true
		}
		wanted := func(part string) bool { return strings.Contains(c.Name, part) }
		return len(o.policies) > 0 && !slices.ContainsFunc(o.policies, wanted)
	})
	if len(o.plan.Contenders) == 0 {
		return cli.Usagef("--policies %q leaves none", o.policies)
	}
	return nil
}

// readStored makes a workload of a stored step. Its lengths are the scheduler's limits.
func (o *schedulerOptions) readStored(ctx context.Context) (schedulerbench.Workload, error) {
	run, err := o.openRun(ctx)
	if err != nil {
		return schedulerbench.Workload{}, err
	}
	rollouts, err := schedulerbench.ReadStep(ctx, run, o.step, o.toolSeconds)
	if err != nil {
		return schedulerbench.Workload{}, err
	}
	o.plan.Stored, o.plan.Seeds, o.plan.Config.Longest = rollouts, 1, rollouts[0].Limit
	return schedulerbench.Workload{Name: fmt.Sprintf("step %d of %s", o.step, o.run)}, nil
}

// vary prints the order of the policies under each cost model.
func (o *schedulerOptions) vary(w io.Writer, workloads []schedulerbench.Workload) error {
	plan := o.plan
	plan.Seeds = 1
	for _, v := range schedulerbench.Variants(plan.Hardware) {
		plan.Hardware = v.Hardware
		results, err := plan.CompareAll(workloads)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\nWith %s:\n%s", v.Name, schedulerbench.Table(results))
		for _, workload := range workloads {
			fmt.Fprintf(w, "  %s, fastest first: %q\n", workload.Name, schedulerbench.Order(results, workload.Name))
		}
	}
	return nil
}
