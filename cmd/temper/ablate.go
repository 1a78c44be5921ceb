package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run/ablation"
	"temper/workflows"
)

func ablateCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ablate", Short: "Compare variants of a recipe over several seeds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(ablateSubmitCommand(p), ablateStatusCommand(p), ablateReportCommand(p),
		ablateAction(p, workflows.CommandPause, "Begin no further run, and pause those that go on at their next safe point"),
		ablateAction(p, workflows.CommandResume, "Let a paused ablation and its runs go on"),
		ablateAction(p, workflows.CommandStop, "Begin no further run, stop those that go on, and store what there is"))
	return cmd
}

// ablationOrder is what a person asks for.
type ablationOrder struct {
	file, config string
	arms, set    []string
	seeds        string
	in           ablation.Input
}

func ablateSubmitCommand(p *config.Process) *cobra.Command {
	var o ablationOrder
	var wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "submit --config FILE --arm NAME[=KEY=VALUE[;KEY=VALUE]] --seeds 1-5",
		Short: "Make the runs of several arms over several seeds, and figure, table and series of them",
		Long: `Makes one run of each arm with each seed, as one workflow, and stores what comes out below
ablations/ID: table.md, figure.png, series.csv and result.json. The first arm is what the others
are compared with. A run that fails is reported and the others go on. Whoever submits the same
again finds the runs that are whole, and goes on with those that are not.

  temper ablate submit --config configs/ablation.yaml --arm roc --arm grpo=rl.roc.enabled=false --seeds 1-5 --wait`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "YAML with id, config, set, arms (name, set), seeds and parallel, in place of the flags or below them")
	f.StringVar(&o.config, "config", "", "base recipe (YAML)")
	f.StringArrayVar(&o.arms, "arm", nil, "an arm: its name alone, or with the keys that it sets, NAME=KEY=VALUE;KEY=VALUE; repeatable")
	f.StringArrayVar(&o.set, "set", nil, "key=value over the recipe for every arm; repeatable")
	f.StringVar(&o.seeds, "seeds", "", "seeds with commas, and ranges: 1-5 or 1,2,7")
	f.StringVar(&o.in.ID, "id", "", "id of the ablation; default is the recipe's name")
	f.IntVar(&o.in.Parallel, "parallel", 0, "runs that go on at a time (default 1)")
	f.IntVar(&o.in.Priority, "priority", 0, "of its runs among others that wait for the same workers: 1 (first) to 5 (last); 0 is the middle")
	f.BoolVar(&wait, "wait", false, "wait for the end and print the table")
	f.BoolVar(&asJSON, "json", false, "print the ablation as JSON")
	cmd.MarkFlagsMutuallyExclusive("wait", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, store, err := connect(cmd.Context(), p, o.check)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := workflows.StartAblation(cmd.Context(), c, o.in); err != nil {
			if errors.Is(err, workflows.ErrRunning) {
				return cli.Usage(err)
			}
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, map[string]any{"id": o.in.ID, "workflow_id": workflows.AblateWorkflowID(o.in.ID), "runs": len(o.in.Arms) * len(o.in.Seeds)})
		}
		fmt.Fprintf(out, "ablation %s started: %d arms, %d seeds, %d runs\n", o.in.ID, len(o.in.Arms), len(o.in.Seeds), len(o.in.Arms)*len(o.in.Seeds))
		if !wait {
			_, err := fmt.Fprintln(out, webUI(p, workflows.AblateWorkflowID(o.in.ID)))
			return err
		}
		return awaitAblation(cmd, c, store, o.in.ID)
	}
	return cmd
}

// awaitAblation waits for the end of an ablation, and prints the table. What is not whole
// makes it an error.
func awaitAblation(cmd *cobra.Command, c client.Client, store blob.Store, id string) error {
	var end ablation.Outcome
	err := workflows.AwaitEnd(cmd.Context(), c, workflows.AblateWorkflowID(id), &end)
	if cmd.Context().Err() != nil {
		return fmt.Errorf("%w: ablation %s goes on while the service is up; temper ablate status %s shows it", cli.ErrInterrupted, id, id)
	}
	if err != nil {
		return usersError(workflows.Failure(err))
	}
	result, err := ablation.Collect(cmd.Context(), store, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n%s\n", result.Markdown(), end.Place)
	if end.Whole < end.Of {
		return fmt.Errorf("ablation %s: %d of %d runs are not whole; submit it again to go on with them", id, end.Of-end.Whole, end.Of)
	}
	return nil
}

// check completes the order and reports everything that is wrong with it.
func (o *ablationOrder) check(ctx context.Context, store blob.Store) error {
	bad := []error{o.readFile(), o.readArms(), o.readSeeds()}
	set, err := cli.ParseSet(o.set)
	bad = append(bad, err)
	for key, value := range set {
		if o.in.Set == nil {
			o.in.Set = map[string]string{}
		}
		o.in.Set[key] = value
	}
	if o.config == "" {
		bad = append(bad, errors.New("--config is missing: name the YAML file of the base recipe"))
		return cli.Usage(errors.Join(bad...))
	}
	base, err := config.LoadFile(o.config, o.in.Set)
	if err = errors.Join(append(bad, err)...); err != nil {
		return cli.Usage(err)
	}
	if o.in.ID == "" {
		o.in.ID = base.Name
	}
	text, err := base.YAML()
	if err != nil {
		return err
	}
	if o.in.Config, err = json.Marshal(string(text)); err != nil {
		return err
	}
	o.in.Set = nil // they are in the text
	plan, configs, err := ablation.Check(o.in)
	if err != nil {
		return cli.Usage(err)
	}
	for _, a := range plan.Arms {
		cfg := configs[ablation.RunID(plan.ID, a.Name, plan.Seeds[0])]
		if err := checkData(cfg); err != nil {
			bad = append(bad, fmt.Errorf("arm %s: %w", a.Name, err))
		} else if _, err := checkRun(ctx, store, cfg); err != nil {
			bad = append(bad, fmt.Errorf("arm %s: %w", a.Name, err))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// readFile takes what the flags do not say from the file.
func (o *ablationOrder) readFile() error {
	if o.file == "" {
		return nil
	}
	data, err := os.ReadFile(o.file) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	f, err := ablation.ReadFile(o.file, data)
	if err != nil {
		return err
	}
	if o.config == "" && f.Config != "" {
		o.config = f.Config
		if !filepath.IsAbs(o.config) {
			o.config = filepath.Join(filepath.Dir(o.file), o.config)
		}
	}
	if o.in.ID == "" {
		o.in.ID = f.ID
	}
	if o.in.Parallel == 0 {
		o.in.Parallel = f.Parallel
	}
	o.in.Set, o.in.Seeds = f.Set, f.Seeds
	for _, a := range f.Arms {
		o.in.Arms = append(o.in.Arms, ablation.Arm{Name: a.Name, Set: a.Set})
	}
	return nil
}

// readArms takes arms from the flags, after those of the file.
func (o *ablationOrder) readArms() error {
	var bad []error
	for _, text := range o.arms {
		name, keys, _ := strings.Cut(text, "=")
		var pairs []string
		for pair := range strings.SplitSeq(keys, ";") {
			if pair = strings.TrimSpace(pair); pair != "" {
				pairs = append(pairs, pair)
			}
		}
		set, err := cli.ParseSet(pairs)
		if err != nil {
			bad = append(bad, fmt.Errorf("--arm %s: %w", name, err))
		}
		o.in.Arms = append(o.in.Arms, ablation.Arm{Name: name, Set: set})
	}
	return errors.Join(bad...)
}

// readSeeds takes the seeds of the flag in place of those of the file.
func (o *ablationOrder) readSeeds() error {
	if o.seeds == "" {
		return nil
	}
	o.in.Seeds = nil
	for part := range strings.SplitSeq(o.seeds, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || last < first || last-first >= ablation.MaxRuns {
			return fmt.Errorf("--seeds %s: %q is neither a number nor a range such as 1-5 of at most %d seeds", o.seeds, part, ablation.MaxRuns)
		}
		for n := range last - first + 1 { // the largest seed has none above it to stop at
			o.in.Seeds = append(o.in.Seeds, first+n)
		}
	}
	return nil
}

func ablateStatusCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "status ID", Short: "Show the runs of an ablation and how each is", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the status as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := workflows.StatusOfAblation(cmd.Context(), c, args[0])
		if err != nil {
			return unknownAblation(err, args[0])
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, s)
		}
		fmt.Fprintln(out, s)
		for _, r := range s.Runs {
			line := fmt.Sprintf("  %-40s %s", r.RunID, r.State)
			if r.Reason != "" {
				line += ": " + r.Reason
			}
			fmt.Fprintln(out, line)
		}
		return nil
	}
	return cmd
}

// ablateAction is a command that an ablation obeys.
func ablateAction(p *config.Process, name, short string) *cobra.Command {
	arg := workflows.Command{By: operator()}
	cmd := &cobra.Command{Use: name + " ID", Short: short, Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&arg.Reason, "reason", "", "shown in the status and in the event logs of the runs")
	if name != workflows.CommandResume {
		cmd.Flags().BoolVar(&arg.Now, "now", false, "interrupt what is in flight in its runs")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err := workflows.CommandAblation(cmd.Context(), c, args[0], name, arg)
		if err != nil {
			return unknownAblation(workflows.Failure(err), args[0])
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ablation %s: %s\n", args[0], answer)
		return err
	}
	return cmd
}

func unknownAblation(err error, id string) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return cli.Usagef("no ablation %q goes on, or ended lately, on this Temporal server; temper ablate report %s reads the store", id, id)
	}
	return err
}

func ablateReportCommand(p *config.Process) *cobra.Command {
	var asCSV, asJSON bool
	var folder string
	cmd := &cobra.Command{
		Use: "report ID", Short: "Print the table of an ablation, of what is whole by now", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print the series with their bands as CSV")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON, the series of each run too")
	cmd.Flags().StringVarP(&folder, "output", "o", "", "write table.md, figure.png, series.csv and result.json into this folder")
	cmd.MarkFlagsMutuallyExclusive("csv", "json", "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		result, err := ablation.Collect(cmd.Context(), store, args[0])
		if fault.Of(err) != "" {
			return cli.Usage(err)
		}
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case asJSON:
			return cli.PrintJSON(out, result)
		case asCSV:
			data, err := result.CSV()
			if err != nil {
				return err
			}
			_, err = out.Write(data)
			return err
		case folder != "":
			return writeOutputs(result, folder)
		default:
			_, err := fmt.Fprint(out, result.Markdown())
			return err
		}
	}
	return cmd
}

func writeOutputs(result ablation.Result, folder string) error {
	files, err := result.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of the user's, as mkdir makes it
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o644); err != nil { //nolint:gosec // as cp makes it
			return err
		}
	}
	return nil
}
