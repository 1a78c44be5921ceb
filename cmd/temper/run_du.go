package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
)

func runDuCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "du RUN", Short: "Add up the bytes of a run in the store by kind, and for a step", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		u, err := r.Usage(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), u)
		}
		return printUsage(cmd.OutOrStdout(), u)
	}
	return cmd
}

func printUsage(out io.Writer, u history.Usage) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "kind\tobjects\tMB\tkB for each\t\t")
	var objects int
	var bytes int64
	for _, k := range u.Kinds {
		each := "\t\t"
		if k.Count > 0 {
			each = fmt.Sprintf("%.1f\tof %d (%s)\t", float64(k.Bytes)/float64(k.Count)/1e3, k.Count, k.Unit)
		}
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%s\n", k.Kind, k.Objects, float64(k.Bytes)/1e6, each)
		objects += k.Objects
		bytes += k.Bytes
	}
	fmt.Fprintf(t, "all\t%d\t%.3f\t\t\t\n", objects, float64(bytes)/1e6)
	return t.Flush()
}
