package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/artifact"
	"temper/trainer/checkpoint"
)

func storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "store", Short: "Look after the store", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(storeGCCommand())
	return cmd
}

func storeGCCommand() *cobra.Command {
	var o checkpoint.CollectOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Delete the shards that no checkpoint of any run names; runs may go on meanwhile", Args: cobra.NoArgs,
	}
	p := processFlags(cmd)
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be deleted")
	cmd.Flags().DurationVar(&o.Grace, "grace", checkpoint.Grace, "leave younger shards alone")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Grace < time.Minute {
			return usagef("--grace is %v, want at least 1m", o.Grace)
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		found, err := checkpoint.Collect(cmd.Context(), store, artifact.Root, o)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), found)
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
