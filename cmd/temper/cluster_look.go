package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/jobs/fleet"
	"temper/workflows"
)

// askPatience bounds what a status asks of Temporal.
const askPatience = 10 * time.Second

// printTenants shows which runs have room, and what the others wait for, as far as Temporal answers.
func printTenants(ctx context.Context, out io.Writer, fl *fleet.Fleet) {
	if !fleet.NewRuns(fl).Placed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	c, err := dialCluster(ctx, fl)
	if err != nil {
		fmt.Fprintf(out, "runs: unknown: %v\n", err)
		return
	}
	defer c.Close()
	s, err := workflows.StatusOfCluster(ctx, c)
	if workflows.NoCluster(err) {
		return // no run has ever asked for room
	}
	if err != nil {
		fmt.Fprintf(out, "runs: unknown: %v\n", err)
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTATE\tPRIORITY\tSINCE\tWAITS FOR")
	for _, t := range s.Runs {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", t.Run, t.Phase, t.Priority, t.Since.UTC().Format(time.DateTime), t.Why)
	}
	_ = w.Flush() // the writer below reports
	for _, d := range s.Scaled {
		if d.Refused != "" {
			fmt.Fprintf(out, "not scaled: %s (%s)\n", d.Scaling, d.Refused)
		}
	}
	if s.Trouble != "" {
		fmt.Fprintf(out, "nothing is decided: %s\n", s.Trouble)
	}
}

func (f *clusterFlags) envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "env", Short: "Print the variables with which commands of this machine reach the cluster", Args: cobra.NoArgs,
		Long: `Prints, in the words of a shell, the variables with which temper run and the other commands reach the cluster's
Temporal, its store and its sandbox, tokens included:

  eval "$(temper cluster env)"`,
	}
	folder := cmd.Flags().String("files", "temper-tls", "folder for certificates, with tls: true")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		env, err := fl.Environment(ctx, *folder)
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(env)) {
			fmt.Fprintf(cmd.OutOrStdout(), "export %s='%s'\n", key, strings.ReplaceAll(env[key], "'", `'\''`))
		}
		return nil
	})
	return cmd
}
