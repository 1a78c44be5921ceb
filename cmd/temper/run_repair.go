package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
)

// repairing is what a repair came to.
type repairing struct {
	// Objects are those that were damaged or missing.
	Objects []replay.Repaired `json:"objects"`
}

func runRepairCommand(p *config.Process) *cobra.Command {
	var dry, asJSON bool
	var f remakeFlags
	cmd := &cobra.Command{
		Use: "repair RUN", Short: "Make again what is damaged or missing of a run, and put back what comes out with the recorded bytes", Args: cobra.ExactArgs(1),
	}
	f.addMeans(cmd, p)
	cli.PythonFlag(cmd.Flags(), p)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "make the objects again, and put none of them back")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		out, err := f.repair(cmd, r.Store(), r.ID(), dry)
		if err != nil {
			return err
		}
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), out)
		} else {
			printRepaired(cmd.OutOrStdout(), out, dry)
		}
		if n := out.left(); err == nil && n > 0 && !dry {
			err = fmt.Errorf("%d objects of run %s are still damaged or missing", n, r.ID())
		}
		return err
	}
	return cmd
}

// repair looks for damage and makes it again, until a look finds nothing new: a damaged
// list hides what it names.
func (f *remakeFlags) repair(cmd *cobra.Command, store blob.Store, runID string, dry bool) (repairing, error) {
	var out repairing
	bench, stop, err := f.bench(cmd, store)
	if err != nil {
		return out, err
	}
	defer stop()
	known := map[string]bool{}
	for {
		damaged, err := damagedRefs(cmd.Context(), store, runID, known)
		if err != nil || len(damaged) == 0 {
			return out, err
		}
		done, err := bench.Repair(cmd.Context(), runID, damaged, dry)
		out.Objects = append(out.Objects, done...)
		if err != nil {
			return out, err
		}
	}
}

// damagedRefs are the objects of a run that are not as its chain says, except those
// that are known; they are known from then on.
func damagedRefs(ctx context.Context, store blob.Store, runID string, known map[string]bool) ([]blob.Ref, error) {
	report, err := chain.Verify(ctx, store, runID, chain.Options{All: true})
	if err != nil {
		return nil, err
	}
	var out []blob.Ref
	for _, d := range report.Damage {
		if known[d.Key] || d.Problem != chain.Damaged && d.Problem != chain.Missing {
			continue
		}
		known[d.Key] = true
		out = append(out, blob.Ref{Key: d.Key, SHA256: d.Want})
	}
	return out, nil
}

// left counts the objects that were not put back.
func (r repairing) left() int {
	n := 0
	for _, o := range r.Objects {
		if !o.Done {
			n++
		}
	}
	return n
}

func printRepaired(out io.Writer, r repairing, dry bool) {
	for _, o := range r.Objects {
		state := " is left"
		if o.Done {
			state = " is whole again"
		}
		if dry {
			state = ""
		}
		fmt.Fprintf(out, "%s%s: %s\n", o.Key, state, o.How)
	}
	if len(r.Objects) == 0 {
		fmt.Fprintln(out, "nothing is damaged")
		return
	}
	if dry {
		fmt.Fprintf(out, "%d objects are damaged or missing; nothing was put back\n", len(r.Objects))
		return
	}
	fmt.Fprintf(out, "%d of %d objects are whole again\n", len(r.Objects)-r.left(), len(r.Objects))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
