package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/proc/buildinfo"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the revision, Go and the build tags of this binary", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildinfo.Line())
			return err
		},
	}
}
