package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/trainer/checkpoint"
)

func storeCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "store", Short: "Look after the store", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(storeGCCommand(p), storeVerifyCommand(p), storeIndexCommand(p))
	return cmd
}

func storeGCCommand(p *config.Process) *cobra.Command {
	var o checkpoint.CollectOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Delete the shards that no checkpoint and no policy of any run names; runs may go on meanwhile", Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be deleted")
	cmd.Flags().DurationVar(&o.Grace, "grace", checkpoint.Grace, "leave younger shards alone")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Grace < time.Minute {
			return cli.Usagef("--grace is %v, want at least 1m", o.Grace)
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		found, err := checkpoint.Collect(cmd.Context(), store, history.Folder, o)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), found)
		}
		verb, more := "deleted", ""
		if o.DryRun {
			verb = "would delete"
		}
		if found.Unfinished {
			more = "; the time of a collection was over: repeat it"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d checkpoints, %d shards of %.1f MiB; %s %d of %.1f MiB, %d are too young%s\n",
			found.Checkpoints, found.Shards, float64(found.Bytes)/(1<<20), verb, found.Deleted, float64(found.Freed)/(1<<20), found.Young, more)
		return err
	}
	return cmd
}

func storeIndexCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "index", Short: "Write the list of runs anew from what the runs have left; runs may go on meanwhile", Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		n, err := history.Index(cmd.Context(), store)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d runs are in the list\n", n)
		return err
	}
	return cmd
}

func storeVerifyCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify [RUN]", Short: "Read all that a run has stored, or all runs, and hold every byte to its SHA-256", Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		folder := history.Folder
		runs, err := history.RunIDs(cmd.Context(), store)
		if err != nil {
			return err
		}
		if len(args) > 0 {
			r, err := openRun(cmd.Context(), store, args[0])
			if err != nil {
				return err
			}
			folder, runs = path.Dir(r.CheckpointFolder()), []string{r.ID()} // policies name shards, too
		}
		found, err := verifyStore(cmd.Context(), store, folder, runs)
		if err != nil {
			return err
		}
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), found)
		} else {
			err = found.print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return found.err()
	}
	return cmd
}

// verified is what was found in a store.
type verified struct {
	checkpoint.Verified
	Runs []chain.Report `json:"runs"`
	// Refused says which runs another build has stored in a form that this one does not read.
	Refused []string `json:"refused,omitempty"`
}

// verifyStore reads all shards of checkpoints and policies, and what else the runs have stored.
func verifyStore(ctx context.Context, store blob.Store, folder string, runs []string) (verified, error) {
	var out verified
	var err error
	if out.Verified, err = checkpoint.Verify(ctx, store, folder); err != nil {
		return out, err
	}
	for _, id := range runs {
		if _, _, err := run.ReadOpened(ctx, store, id); fault.Of(err) == fault.InvalidConfig {
			out.Refused = append(out.Refused, err.Error())
			continue
		}
		report, err := chain.Verify(ctx, store, id, chain.Options{All: true, WithoutShards: true})
		if err != nil {
			return out, err
		}
		out.Runs = append(out.Runs, report)
	}
	return out, nil
}

func (v verified) print(out io.Writer) error {
	printVerified(out, v.Verified)
	for _, why := range v.Refused {
		fmt.Fprintln(out, why)
	}
	for _, r := range v.Runs {
		if r.Manifests == 0 {
			fmt.Fprintf(out, "run %s has no chain, so that nothing but its checkpoints can be checked\n", r.RunID)
			continue
		}
		if err := printProof(out, r); err != nil {
			return err
		}
	}
	return nil
}

func (v verified) err() error {
	if n := len(v.Damaged); n > 0 {
		return fmt.Errorf("%d objects are damaged: a run goes on from its newest whole checkpoint by itself; "+
			"bring the objects back from a copy of the store, or delete the manifests that name them", n)
	}
	n := 0
	for _, r := range v.Runs {
		n += len(r.Damage)
	}
	if n > 0 {
		return fmt.Errorf("%d objects are not what the chain of their run says: bring them back from a copy of the store", n)
	}
	if n := len(v.Refused); n > 0 {
		return fmt.Errorf("%d runs were not checked: builds of other formats stored them", n)
	}
	return nil
}

func printVerified(out io.Writer, v checkpoint.Verified) {
	fmt.Fprintf(out, "%d checkpoints, %d shards of %.1f MiB; %d damaged\n", v.Checkpoints, v.Shards, float64(v.Bytes)/(1<<20), len(v.Damaged))
	for _, d := range v.Damaged {
		fmt.Fprintf(out, "%s: %s\n", d.Key, d.Problem)
		for _, manifest := range d.Checkpoints {
			fmt.Fprintf(out, "  is part of %s\n", path.Dir(manifest))
		}
	}
}
