package main

import (
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/history"
	"temper/trainer/checkpoint"
)

func storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "store", Short: "Look after the store", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(storeGCCommand(), storeVerifyCommand(), storeIndexCommand())
	return cmd
}

func storeGCCommand() *cobra.Command {
	var o checkpoint.CollectOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Delete the shards that no checkpoint of any run names; runs may go on meanwhile", Args: cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
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

func storeIndexCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "index", Short: "Write the list of runs anew from what the runs have left; runs may go on meanwhile", Args: cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
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

func storeVerifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify [RUN]", Short: "Read all checkpoints, of all runs or one, and hold every byte to its SHA-256", Args: cobra.MaximumNArgs(1),
	}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		folder := history.Folder
		if len(args) > 0 {
			r, err := openRun(cmd.Context(), store, args[0])
			if err != nil {
				return err
			}
			folder = r.CheckpointFolder()
		}
		found, err := checkpoint.Verify(cmd.Context(), store, folder)
		if err != nil {
			return err
		}
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), found)
		} else {
			printVerified(cmd.OutOrStdout(), found)
		}
		if n := len(found.Damaged); err == nil && n > 0 {
			err = fmt.Errorf("%d objects are damaged: a run goes on from its newest whole checkpoint by itself; "+
				"bring the objects back from a copy of the store, or delete the manifests that name them", n)
		}
		return err
	}
	return cmd
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
