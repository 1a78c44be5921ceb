package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run/replay"
	"temper/internal/service"
	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/workers"
)

// remakeFlags ask for steps that are made again.
type remakeFlags struct {
	process    *config.Process
	steps      []string
	sample     string
	seed       uint64
	backend    string
	concurrent int
}

func (f *remakeFlags) add(cmd *cobra.Command, p *config.Process) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.steps, "step", nil, "make these steps again on this machine and compare every object: numbers and ranges, such as 3,5-7")
	flags.StringVar(&f.sample, "sample", "", "make a share of the steps again, such as 1%; at least one")
	flags.Uint64Var(&f.seed, "sample-seed", 0, "chooses the steps of --sample")
	f.addMeans(cmd, p)
}

// addMeans adds what says by which means steps are made again.
func (f *remakeFlags) addMeans(cmd *cobra.Command, p *config.Process) {
	f.process = p
	cmd.Flags().StringVar(&f.backend, "backend", "go", "GoMLX backend that makes steps again")
	cmd.Flags().IntVar(&f.concurrent, "concurrent-rollouts", workers.DefaultRollouts, "trajectories that live at a time when steps are made again")
}

// check finds mistakes in the flags.
func (f *remakeFlags) check() error {
	if len(f.steps) > 0 && f.sample != "" {
		return cli.Usagef("give --step or --sample, not both")
	}
	if _, err := replay.ParseSteps(f.steps); err != nil {
		return cli.Usagef("--step: %w", err)
	}
	if f.concurrent < 1 {
		return cli.Usagef("--concurrent-rollouts: is %d, want at least 1", f.concurrent)
	}
	if f.sample == "" {
		return nil
	}
	if _, err := replay.ParseShare(f.sample); err != nil {
		return cli.Usagef("--sample: %w", err)
	}
	return nil
}

// choose names the steps.
func (f *remakeFlags) choose(ctx context.Context, store blob.Store, runID string) ([]int, error) {
	if f.sample == "" {
		return replay.ParseSteps(f.steps)
	}
	made, err := replay.Made(ctx, store, runID)
	if err == nil && len(made) == 0 {
		err = cli.Usagef("run %s has not made a step yet", runID)
	}
	if err != nil {
		return nil, err
	}
	share, err := replay.ParseShare(f.sample)
	return replay.Sample(made, share, f.seed), err
}

// verify makes the steps again, one after another, and prints what comes of each.
func (f *remakeFlags) verify(cmd *cobra.Command, store blob.Store, runID string) ([]replay.Report, error) {
	if len(f.steps) == 0 && f.sample == "" {
		return nil, nil
	}
	steps, err := f.choose(cmd.Context(), store, runID)
	if err != nil {
		return nil, err
	}
	bench, stop, err := f.bench(cmd, store)
	if err != nil {
		return nil, err
	}
	defer stop()
	var out []replay.Report
	for _, step := range steps {
		report, err := bench.Step(cmd.Context(), runID, step)
		if _, damaged := blob.DamagedRef(err); damaged {
			return out, fmt.Errorf("make step %d again: %w: it is needed for the step; temper run repair %s makes again what can be", step, err, runID)
		}
		if err != nil {
			return out, fmt.Errorf("make step %d again: %w", step, usersError(err))
		}
		out = append(out, report)
	}
	return out, nil
}

// damagedSteps is the error of steps that did not come out as they are stored.
func damagedSteps(reports []replay.Report) error {
	n, objects := 0, 0
	for i := range reports {
		if d := len(reports[i].Damaged()); d > 0 {
			n++
			objects += d
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d steps did not come out as they are stored: %d objects differ or are missing (temper run repair makes again what the chain holds)", n, len(reports), objects)
}

// bench is what makes steps of a store again.
func (f *remakeFlags) bench(cmd *cobra.Command, store blob.Store) (*replay.Bench, func(), error) {
	executor, stop, err := f.openSandbox(cmd.Context(), cmd.Flags().Changed("sandbox"))
	if err != nil {
		return nil, nil, err
	}
	return workers.Remake(workers.RemakeOptions{
		Store: store, Backend: f.backend, Concurrent: f.concurrent, Executor: executor,
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}), stop, nil
}

// openSandbox is the one that --sandbox names, or one of its own: that of temper up has a
// token that nobody else knows. What programs do is the same in either.
func (f *remakeFlags) openSandbox(ctx context.Context, named bool) (client *httpapi.Client, stop func(), err error) {
	if named {
		client, err := f.namedSandbox(ctx)
		if err == nil {
			return client, client.Close, nil
		}
		if os.Getenv(workers.SandboxTokenKey) != "" {
			return nil, nil, err
		}
	}
	if err := cli.FindPython(f.process.Python); err != nil {
		return nil, nil, cli.Usage(err)
	}
	client, end, err := service.StartSandbox(ctx, f.process)
	if err != nil {
		return nil, nil, fmt.Errorf("start a sandbox: %w", err)
	}
	return client, func() { _ = end() }, nil // a sandbox that had to be killed has no part in what was found
}

// namedSandbox connects to the one that --sandbox names, and sees that it takes calls.
func (f *remakeFlags) namedSandbox(ctx context.Context) (*httpapi.Client, error) {
	options, err := workers.SandboxClientOptions()
	if err != nil {
		return nil, cli.Usage(err)
	}
	client, err := httpapi.NewClient(f.process.SandboxAddress, options)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if _, err := client.Execute(ctx, sandbox.Request{Code: "pass"}); err != nil {
		client.Close()
		return nil, fmt.Errorf("sandbox at %s: %w", f.process.SandboxAddress, err)
	}
	return client, nil
}

// printRemade prints what a step made again came to. It lists what is not equal.
func printRemade(out io.Writer, r replay.Report) {
	counts := map[replay.Verdict]int{}
	for _, o := range r.Objects {
		counts[o.Verdict]++
	}
	from := "from the start"
	if r.Checkpoint >= 0 {
		from = fmt.Sprintf("from the checkpoint of step %d", r.Checkpoint)
	}
	fmt.Fprintf(out, "step %d: %d of %d objects are equal; made in %s (%s by the run), after %s of loading %s\n", r.Step, counts[replay.Equal], len(r.Objects),
		seconds(r.Took), seconds(r.Original), seconds(r.Prepared), from)
	for _, o := range r.Objects {
		if o.Verdict != replay.Equal {
			fmt.Fprintf(out, "  %-8s %s: %s\n", o.Verdict, o.Key, o.Note)
		}
	}
	for _, k := range r.Kernels {
		fmt.Fprintf(out, "  other kernels, so that bits are held to bounds: %s\n", k)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "  note: %s\n", note)
	}
}
