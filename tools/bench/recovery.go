package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob/fileblob"
	"temper/internal/cli"
	"temper/sandbox/httpapi"
	"temper/tools/bench/recoverybench"
	"temper/workers"
)

// recoveryOptions say what `temper bench recovery` does.
type recoveryOptions struct {
	plan       recoverybench.Plan
	config     string
	set        []string
	concurrent int
	svg        string
	asJSON     bool
	backend    string
	node       nodeFlags
}

func recoveryCommand() *cobra.Command {
	var o recoveryOptions
	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "Measure how drawing interrupted trajectories anew shortens them, beside repeating their draws",
		Long: `Carries out the same run undisturbed, with interrupted trajectories sampled again by
the draws they had, as this service does, and with fresh draws: for the interrupted
trajectories alone, or for their whole groups. Each sampled token is the last one of
its attempt with the same probability. Prints lengths, rewards and lost tokens.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "configs/recovery.yaml", "run configuration (YAML); its supervised part and its first stage are made")
	f.StringArrayVar(&o.set, "set", nil, "key=value over the configuration; repeatable")
	f.IntVar(&o.plan.Steps, "steps", 16, "steps of each run")
	f.Float64SliceVar(&o.plan.Rates, "rates", []float64{0.05, 0.2}, "mean interruptions of a trajectory of mean length")
	f.IntVar(&o.plan.Repeats, "repeats", 3, "runs of each kind, with draws of their own")
	f.BoolVar(&o.plan.Train, "train", false, "make the updates, too; without it one policy samples all steps")
	f.StringVar(&o.backend, "backend", "go", "device of the trainer and the engine")
	f.IntVar(&o.concurrent, "concurrent", 128, "trajectories under way at a time")
	f.StringVar(&o.svg, "svg", "", "file for a plot of the distribution of lengths")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	o.node.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.carryOut(cmd) }
	return cmd
}

func (o *recoveryOptions) validate() error {
	switch {
	case o.plan.Steps < 1:
		return cli.Usagef("--steps is %d, want at least 1", o.plan.Steps)
	case o.plan.Repeats < 1:
		return cli.Usagef("--repeats is %d, want at least 1", o.plan.Repeats)
	case o.concurrent < 1:
		return cli.Usagef("--concurrent is %d, want at least 1", o.concurrent)
	}
	for _, rate := range o.plan.Rates {
		if rate <= 0 || rate > 2 {
			return cli.Usagef("--rates: %g is not above 0 and at most 2", rate)
		}
	}
	return nil
}

func (o *recoveryOptions) carryOut(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	set, err := cli.ParseSet(o.set)
	if err != nil {
		return cli.Usage(err)
	}
	text, err := os.ReadFile(o.config)
	if err != nil {
		return cli.Usage(err)
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "temper-recovery-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	store, err := fileblob.New(dir)
	if err != nil {
		return err
	}
	node, err := o.node.start(cmd)
	if err != nil {
		return err
	}
	defer node.Stop(15 * time.Second) //nolint:errcheck // its work is done
	executor, err := httpapi.NewClient(node.Address, httpapi.Options{})
	if err != nil {
		return err
	}
	defer executor.Close()
	o.plan.Log = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
	results, err := recoverybench.Compare(cmd.Context(), recoverybench.Config{
		Store: store, Executor: executor, Run: quoted, Set: set, Concurrent: o.concurrent,
		NewEngine: workers.Engines(store, o.backend, o.concurrent), NewLearner: workers.Learners(o.backend),
	}, o.plan)
	if err != nil {
		return err
	}
	return o.print(cmd.OutOrStdout(), results)
}

func (o *recoveryOptions) print(w io.Writer, results []recoverybench.Result) error {
	if o.svg != "" {
		if err := os.WriteFile(o.svg, recoverybench.Plot(results), 0o644); err != nil { //nolint:gosec // a picture for anybody
			return err
		}
	}
	if o.asJSON {
		return cli.PrintJSON(w, results)
	}
	_, err := io.WriteString(w, recoverybench.Table(results))
	return err
}
