package main

import (
	"fmt"
	"path"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/trainer/checkpoint"
	"temper/workers"
)

func storeCommand(p *config.Process) *cobra.Command {
	return group("store", "Look after the store",
		storeGCCommand(p), storeVerifyCommand(p), storeIndexCommand(p))
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
		store, err := workers.OpenStore(cmd.Context(), p)
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
		store, err := workers.OpenStore(cmd.Context(), p)
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
		store, err := workers.OpenStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		folder := history.Folder
		runs, err := history.RunIDs(cmd.Context(), store)
		if err != nil {
			return err
		}
		if len(args) > 0 {
			r, err := history.Open(cmd.Context(), store, args[0])
			if err != nil {
				return err
			}
			folder, runs = path.Dir(r.CheckpointFolder()), []string{r.ID()} // policies name shards, too
		}
		found, err := history.VerifyStore(cmd.Context(), store, folder, runs)
		if err != nil {
			return err
		}
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), found)
		} else {
			err = found.Print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return found.Err()
	}
	return cmd
}
