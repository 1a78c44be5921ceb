package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/service"
)

func doctorCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine and this binary can do, and what is missing",
		Args:  cobra.NoArgs,
	}
	cli.PythonFlag(cmd.Flags(), p)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.Validate(); err != nil {
			return err
		}
		findings := service.Examine(cmd.Context(), p)
		show := service.Print
		if asJSON {
			show = func(out io.Writer, f []service.Finding) error { return cli.PrintJSON(out, f) }
		}
		if err := show(cmd.OutOrStdout(), findings); err != nil {
			return err
		}
		if n := service.NumMissing(findings); n > 0 {
			return fmt.Errorf("%d finding(s) are missing", n)
		}
		return nil
	}
	return cmd
}
