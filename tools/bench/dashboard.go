package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/paperrun"
	"temper/ui"
)

// dashboardFlags say what is written and how it is read.
type dashboardFlags struct {
	make   bool
	asJSON bool
	size   paperrun.Config
	probe  dashboardProbe
}

func dashboardCommand(service Service) *cobra.Command {
	o := dashboardFlags{size: paperrun.Paper()}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Measure the dashboard on a run of the paper's size, which --make writes",
		Long: `Asks a dashboard for what its pages show, each from a cold and from a warm start, and prints what an answer
takes and how many requests to the store it needs. --make first writes a run of 510 steps of 512 problems
times 32 rollouts, with the texts of its newest steps (0.3 GB a step, and as much for all else); no policy samples it.
--delay adds a time to each request to the store, as a far one takes.`,
		Args: cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.make, "make", false, "write the run first")
	f.StringVar(&o.size.RunID, "run", o.size.RunID, "id of the run")
	f.IntVar(&o.size.Steps, "steps", o.size.Steps, "with --make: steps, at least 3")
	f.IntVar(&o.size.Problems, "problems", o.size.Problems, "with --make: problems of a step")
	f.IntVar(&o.size.Rollouts, "rollouts", o.size.Rollouts, "with --make: rollouts of a problem")
	f.IntVar(&o.size.TextSteps, "texts", o.size.TextSteps, "with --make: steps, the newest, whose trajectories are stored")
	f.IntVar(&o.size.MeanTokens, "tokens", o.size.MeanTokens, "with --make: mean length of a response")
	f.IntVar(&o.size.Others, "others", 199, "with --make: small runs beside it")
	f.DurationVar(&o.probe.delay, "delay", 0, "time that is added to each request to the store")
	f.IntVar(&o.probe.rounds, "rounds", 5, "rounds, of which the median counts")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.probe.rounds < 1 || o.probe.delay < 0 {
			return cli.Usagef("--rounds is %d and --delay %v: want at least 1 and no negative time", o.probe.rounds, o.probe.delay)
		}
		return runDashboard(cmd, service, p, o)
	}
	return cmd
}

func runDashboard(cmd *cobra.Command, service Service, p *config.Process, o dashboardFlags) error {
	ctx := cmd.Context()
	store, err := service.OpenStore(ctx, p)
	if err != nil {
		return err
	}
	if o.make {
		o.size.Store, o.size.Say = store, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
		begin := time.Now()
		if err := paperrun.Make(ctx, o.size); err != nil {
			if errors.Is(err, blob.ErrExists) {
				return cli.Usagef("%w: measure it without --make, or name another with --run", err)
			}
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "written in %v\n", time.Since(begin).Round(time.Second))
	}
	o.probe.store, o.probe.run = store, o.size.RunID
	rows, err := o.probe.measure(ctx)
	if err != nil {
		return err
	}
	if o.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(rows)
	}
	return printDashboard(cmd.OutOrStdout(), rows)
}

func printDashboard(out io.Writer, rows []dashboardRow) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tcold\tCPU\trequests\twarm\tCPU\tanswer")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%v\t%v\t%d\t%v\t%v\t%s\n", r.What, round(r.Cold), round(r.ColdCPU), r.Requests, round(r.Warm), round(r.WarmCPU), config.Bytes(r.Bytes))
	}
	return t.Flush()
}

// newDashboard is a dashboard that has read nothing yet.
func newDashboard(store blob.Store) (*ui.Server, error) {
	return ui.New(ui.Config{Store: store, Build: "bench", Log: slog.New(slog.DiscardHandler), Now: time.Now})
}
