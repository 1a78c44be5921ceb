package main

import (
	"github.com/spf13/cobra"
)

func modelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "model", Short: "Look into, make and run model directories in Hugging Face layout", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(modelInspectCommand(), modelInitCommand(), modelTokenizeCommand(), modelRenderCommand(), modelLogitsCommand(), modelGGUFCommand())
	return cmd
}
