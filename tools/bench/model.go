package bench

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/queueing"
	"temper/tools/bench/sandboxbench"
)

// The paper's figures: calls of a step, the time one may take, and what its 32
// send workers of 64 calls hold in flight.
const (
	paperCalls    = 45000
	paperInFlight = 32 * 64
	paperMean     = 300 * time.Millisecond
	paperStep     = 20 * time.Minute
	paperRollout  = 2 * time.Minute // a busy tenth of the step
)

func modelCommand() *cobra.Command {
	var node nodeFlags
	var cfg sandboxbench.CheckConfig
	var api, mix string
	var own time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Predict response times from the cost of a call, check the predictions, and say how many cores a step needs",
		Args:  cobra.NoArgs,
	}
	node.register(cmd)
	f := cmd.Flags()
	f.StringVar(&api, "api", string(loadgen.APIStream), fmt.Sprintf("interface, one of %v", loadgen.APIs()))
	f.StringVar(&mix, "mix", "trivial", "programs")
	f.IntVar(&cfg.Calls, "calls", 2000, "calls of each closed loop")
	f.DurationVar(&cfg.Duration, "duration", 20*time.Second, "length of each open stream")
	f.Uint64Var(&cfg.Seed, "seed", 1, "draws the arrivals")
	f.DurationVar(&own, "own", 0, "CPU that a program of the step uses itself, beyond the mix's")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Calls < 10 || cfg.Duration <= 0 || own < 0 {
			return cli.Usagef("--calls is %d, --duration %v and --own %v: want at least 10, more than 0, and no less than 0", cfg.Calls, cfg.Duration, own)
		}
		var err error
		if cfg.Mix, err = loadgen.NamedMix(mix, cfg.Seed); err != nil {
			return cli.Usagef("--mix: %w", err)
		}
		cfg.Cores, cfg.Slots, cfg.Prefix = runtime.NumCPU(), node.slots, uniquePrefix("model")
		return withNode(cmd, node, api, func(target loadgen.Target, node *sandboxbench.Child) error {
			cfg.Target, cfg.CPU = target, loadgen.CPU{PIDs: []int{node.PID()}}
			r, err := sandboxbench.CheckModel(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			printChecks(cmd.OutOrStdout(), r)
			return printCores(cmd.OutOrStdout(), r, own)
		})
	}
	return cmd
}

func printChecks(out io.Writer, r sandboxbench.CheckReport) {
	s := r.Station
	fmt.Fprintf(out, "station: %d cores, demand of a call %v (service %v, client %v), off the cores %v, variation %.2f\n",
		s.Cores, round(s.Overhead+s.Own), round(r.Service.CPU), round(r.Service.ClientCPU), round(s.Idle), s.Variation)
	fmt.Fprintf(out, "%-32s %12s %12s %8s %8s\n", "load", "predicted", "measured", "error", "failed")
	for _, c := range r.Checks {
		fmt.Fprintf(out, "%-32s %12v %12v %+7.1f%% %8d\n", c.Load, round(c.Predicted), round(c.Measured), 100*c.Error, c.Failed)
	}
}

// printCores turns the measured demand into cores. It assumes that the client runs
// on another machine.
func printCores(out io.Writer, r sandboxbench.CheckReport, own time.Duration) error {
	s := r.Station
	s.Overhead, s.Own, s.Slots = r.Service.CPU, own, 0
	fmt.Fprintf(out, "cores for a mean of %v at %v of CPU a call:\n", paperMean, round(s.Overhead+s.Own))
	for _, row := range []struct {
		name    string
		predict func(queueing.Station) (queueing.Prediction, error)
	}{
		{fmt.Sprintf("%d calls always in flight", paperInFlight), func(s queueing.Station) (queueing.Prediction, error) { return s.Closed(paperInFlight) }},
		{fmt.Sprintf("%d calls over a step of %v, at random", paperCalls, paperStep), func(s queueing.Station) (queueing.Prediction, error) {
			return s.Open(paperCalls / paperStep.Seconds())
		}},
		{fmt.Sprintf("%d calls within %v, at random", paperCalls, paperRollout), func(s queueing.Station) (queueing.Prediction, error) {
			return s.Open(paperCalls / paperRollout.Seconds())
		}},
		{fmt.Sprintf("%d calls at one moment", paperCalls), func(s queueing.Station) (queueing.Prediction, error) { return s.Burst(paperCalls) }},
	} {
		cores, err := s.CoresFor(paperMean, row.predict)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%6d  %s\n", cores, row.name)
	}
	return nil
}
