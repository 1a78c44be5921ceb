package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob/fileblob"
	"temper/internal/cli"
	"temper/tools/bench/rolloutbench"
)

func rolloutsCommand() *cobra.Command {
	var p rolloutbench.Plan
	var asJSON bool
	var dir, cpuProfile string
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Measure what it costs to drive and store the rollouts of a large step, with an engine that costs nothing",
		Long: `Samples one step through the service of the rollout workers, with a fake engine and a fake sandbox
in this process, into a store in a folder. What is left is what each turn costs beside the model:
processor time, heap and stored bytes. With faults, engines and sandboxes fail and the step is
taken away from its worker; no trajectory may be lost or doubled.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.IntVar(&p.Problems, "problems", 512, "problems of the step")
	f.IntVar(&p.Rollouts, "rollouts", 32, "rollouts of a problem")
	f.IntVar(&p.Tokens, "tokens", 7000, "mean tokens of a response")
	f.IntVar(&p.Turns, "turns", 8, "mean turns of a rollout, about")
	f.IntVar(&p.ToolChars, "tool-chars", 300, "characters of a tool's answer")
	f.DurationVar(&p.TokenTime, "token-time", 2*time.Millisecond, "time of a token")
	f.DurationVar(&p.ToolTime, "tool-time", 300*time.Millisecond, "time of a tool call")
	f.IntVar(&p.Concurrent, "concurrent", 0, "rollouts under way at a time; 0 is all")
	f.IntVar(&p.Faults.Engine, "engine-faults", 0, "of so many generations one fails; 0 is none")
	f.IntVar(&p.Faults.Lies, "engine-lies", 0, "of so many generations one breaks the contract; 0 is none")
	f.IntVar(&p.Faults.Sandbox, "sandbox-faults", 0, "of so many calls one finds no sandbox; 0 is none")
	f.IntVar(&p.Faults.Cancels, "cancels", 0, "how often the step is taken away from its worker")
	f.IntVar(&p.Faults.Calls, "cancel-after", 10000, "generations of each such attempt")
	f.StringVar(&dir, "dir", "", "folder for the store, which is deleted afterwards (default: a new one for temporary files)")
	f.StringVar(&cpuProfile, "cpuprofile", "", "file for a CPU profile of the whole measurement")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if min(p.Problems, p.Rollouts, p.Tokens, p.Turns) < 1 || p.Rollouts < 2 {
			return cli.Usagef("--problems %d, --rollouts %d, --tokens %d, --turns %d: want at least 1, 2, 1 and 1", p.Problems, p.Rollouts, p.Tokens, p.Turns)
		}
		folder, err := os.MkdirTemp(dir, "temper-rollouts-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		if p.Store, err = fileblob.New(folder); err != nil {
			return err
		}
		stop, err := profile(cpuProfile)
		if err != nil {
			return err
		}
		r, err := p.Measure(cmd.Context())
		stop()
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), r)
		}
		printRollouts(cmd.OutOrStdout(), r)
		return nil
	}
	return cmd
}

func printRollouts(out io.Writer, r rolloutbench.Result) {
	tokens := float64(max(1, r.Tokens))
	fmt.Fprintf(out, "%d trajectories, %d turns, %.1f million tokens, %.1f s\n", r.Trajectories, r.Turns, tokens/1e6, r.Wall)
	fmt.Fprintf(out, "CPU              %8.1f us a turn\n", r.CPU)
	size := func(name string, bytes int64) {
		fmt.Fprintf(out, "%-16s %8.1f MB, %.2f bytes a token\n", name, float64(bytes)/1e6, float64(bytes)/tokens)
	}
	size("heap in use", r.LiveHeap)
	size("heap allocated", r.Heap)
	size("groups", r.Stored)
	size("samples", r.Samples)
	fmt.Fprintf(out, "%d attempts, %d injected faults, %.4f tokens sampled for each one stored\n", r.Attempts, r.Injected, float64(r.Sampled)/float64(max(1, r.Needed)))
	fmt.Fprintf(out, "%d lost, %d doubled\n", r.Lost, r.Doubled)
}
