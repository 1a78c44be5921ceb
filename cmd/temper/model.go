package main

import (
	"github.com/spf13/cobra"
)

func modelCommand() *cobra.Command {
	return group("model", "Look into, make and run model directories in Hugging Face layout",
		modelInspectCommand(), modelInitCommand(), modelTokenizeCommand(), modelRenderCommand(), modelLogitsCommand(), modelGGUFCommand())
}
