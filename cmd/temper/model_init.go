package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

func modelInitCommand() *cobra.Command {
	var config, dtype string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a model directory with random weights",
		Long: `Makes DIR with config.json as --config gives it and random weights of the seed: normal with the
standard deviation initializer_range, projections back into the residual stream smaller by
sqrt(2*layers), norms at one. The same seed gives the same bytes. DIR must be empty or absent.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&config, "config", "", "config.json of the model to make")
	f.Uint64Var(&seed, "seed", 1, "seed")
	f.StringVar(&dtype, "dtype", "", "float32, bfloat16 or float16; empty means what the config says, else float32")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if config == "" {
			return cli.Usagef("--config is missing")
		}
		data, err := os.ReadFile(config)
		if err != nil {
			return cli.Usage(err)
		}
		parsed, err := model.ParseConfig(data)
		if err != nil {
			return cli.Usage(fmt.Errorf("%s: %w", config, err))
		}
		for _, name := range []string{dtype, parsed.DType, "float32"} {
			if name != "" {
				dtype = name
				break
			}
		}
		d, err := dtypeNamed(dtype)
		if err != nil {
			return err
		}
		if data, err = hf.WithDType(data, d); err != nil {
			return cli.Usage(err)
		}
		weights, err := model.InitialTensors(parsed.Config, seed)
		if err != nil {
			return err
		}
		layout := hf.Layout{DType: d, Files: map[string][]byte{hf.ConfigFile: data}}
		if err := hf.Create(args[0], parsed.Config, model.ByName(weights), layout); errors.Is(err, os.ErrExist) {
			return cli.Usage(err)
		} else if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d parameters in %s\n", args[0], parsed.NumParameters(), dtype)
		return nil
	}
	return cmd
}

// dtypeNamed finds a type by torch's word for it or by its own.
func dtypeNamed(name string) (safetensors.DType, error) {
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16} {
		if hf.TorchName(d) == name || strings.EqualFold(string(d), name) {
			return d, nil
		}
	}
	return "", cli.Usagef("dtype %q, want float32 (f32), bfloat16 (bf16) or float16 (f16)", name)
}
