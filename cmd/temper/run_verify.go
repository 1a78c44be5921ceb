package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
)

func runVerifyCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	var o chain.Options
	var f remakeFlags
	cmd := &cobra.Command{
		Use: "verify RUN", Short: "Check the chain of a run: each manifest, and what the manifests name; temper store verify reads every byte", Args: cobra.ExactArgs(1),
		Long: `Check the chain of a run: each manifest against the one after it, and what the
manifests name against its SHA-256. Of large objects only the size is asked for;
temper store verify RUN reads every byte. A run that goes on is checked up to its
newest manifest.

The link is equal for two runs of one id, configuration and seed that made the same
bits. The seal is that of this very run. Who notes either finds out later, by --head,
whether the run is still the same.

With --step or --sample it also makes steps again: it samples with the policy before,
from the same seed, learns from the nearest checkpoint on, and compares every object.
Nothing of the run is written. It starts a sandbox of its own unless --sandbox names
one.`,
	}
	f.add(cmd, p)
	cli.PythonFlag(cmd.Flags(), p)
	cmd.Flags().StringVar(&o.Head, "head", "", "a link or a seal that the chain must have, or its first 8 digits or more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if n := len(o.Head); n > 0 && n < 8 || strings.Trim(o.Head, "0123456789abcdef") != "" {
			return cli.Usagef("--head is %q, want 8 to 64 hexadecimal digits of a link or a seal", o.Head)
		}
		if err := f.check(); err != nil {
			return err
		}
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		o.CanRemake = func(key string) bool { return replay.CanRemake(r.ID(), key) }
		found, err := chain.Verify(cmd.Context(), r.Store(), r.ID(), o)
		if err != nil {
			return err
		}
		steps, err := f.verify(cmd, r.Store(), r.ID())
		if err != nil {
			return err
		}
		if err := printVerdicts(cmd.OutOrStdout(), found, steps, asJSON); err != nil {
			return err
		}
		return errors.Join(proofError(found), damagedSteps(steps))
	}
	return cmd
}

// printVerdicts prints what was found of a chain, and of the steps that were made
// again.
func printVerdicts(out io.Writer, found chain.Report, steps []replay.Report, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(out, struct {
			chain.Report
			Remade []replay.Report `json:"remade,omitempty"`
		}{found, steps})
	}
	if err := printProof(out, found); err != nil {
		return err
	}
	for i := range steps {
		printRemade(out, steps[i])
	}
	return nil
}

// proofError is the error of a run that is not what its chain says.
func proofError(r chain.Report) error {
	switch {
	case len(r.Damage) > 0:
		return fmt.Errorf("run %s: %d objects are not what the chain says", r.RunID, len(r.Damage))
	case r.Manifests == 0:
		return fmt.Errorf("run %s has no chain yet: it begins with the first step", r.RunID)
	default:
		return nil
	}
}

// maxRemarks is how many objects that are no damage are printed.
const maxRemarks = 10

// printProof prints what was found, one object a line.
func printProof(out io.Writer, r chain.Report) error {
	var b strings.Builder
	state := "goes on, or ended without a summary"
	if r.Ended {
		state = "ended"
	}
	fmt.Fprintf(&b, "run %s (%s): %d steps (%d to %d), %d manifests, %d objects, %.1f MB read; %d damaged\n",
		r.RunID, state, r.Steps, r.First, r.Last, r.Manifests, r.Objects, float64(r.Bytes)/1e6, len(r.Damage))
	if r.Deleted > 0 {
		fmt.Fprintf(&b, "%d objects were deleted by retention, as the chain says\n", r.Deleted)
	}
	for _, m := range r.MadeBy {
		fmt.Fprintf(&b, "made by %s\n", m)
	}
	for _, f := range r.Damage {
		fmt.Fprintln(&b, f)
	}
	for i, f := range r.Remarks {
		if i == maxRemarks { // a step under way has as many as it has objects
			fmt.Fprintf(&b, "%d more objects changed later or came later: --json has them\n", len(r.Remarks)-i)
			break
		}
		fmt.Fprintln(&b, f)
	}
	if r.Manifests > 0 {
		fmt.Fprintf(&b, "link %s\nseal %s\n", r.Head.Link, r.Head.Seal)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
