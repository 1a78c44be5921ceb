package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/weights/gguf"
	"temper/trainer/weights/hf"
)

func modelGGUFCommand() *cobra.Command {
	var dtype string
	var idsOnly bool
	cmd := &cobra.Command{
		Use:   "gguf DIR FILE",
		Short: "Convert a model directory into the file of llama.cpp",
		Long: `Writes the model of a directory, with its tokenizer and chat template, as one GGUF file; a FILE that is there is replaced. Vectors
stay in float32; matrices have the type of --dtype. In float32 it is the same network to the last bit.`,
		Args: cobra.ExactArgs(2),
	}
	f := cmd.Flags()
	f.StringVar(&dtype, "dtype", "float32", "float32, bfloat16 or float16")
	f.BoolVar(&idsOnly, "ids-only", false, "leave out the texts of tokens and the chat template, for programs that exchange token ids")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		model, out := args[0], args[1]
		d, err := dtypeNamed(dtype)
		if err != nil {
			return err
		}
		m, err := hf.Load(model)
		if err != nil {
			return cli.Usage(err)
		}
		defer m.Close() //nolint:errcheck // read only
		result, err := gguf.Write(out, m, gguf.Options{DType: d, IDsOnly: idsOnly})
		if err != nil {
			return err
		}
		for _, note := range result.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", note)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d parameters in %s, %d bytes\n", out, result.Parameters, hf.TorchName(d), result.Bytes)
		return nil
	}
	return cmd
}
