package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run/modeldir"
	"temper/internal/service/runclient"
)

func runExportCommand(p *config.Process) *cobra.Command {
	var source modeldir.Source
	var adapter bool
	cmd := &cobra.Command{
		Use: "export RUN DIR", Short: "Write a checkpoint or a policy of a run as a Hugging Face directory",
		Long: `Writes DIR with the weights, the tokenizer, the chat template, and what tells transformers, vLLM and
temper model how the run prompts, samples and stops. DIR must be empty or absent; it appears whole or
not at all. Without a choice it is the newest checkpoint.`,
		Args: cobra.ExactArgs(2),
	}
	sourceFlags(cmd.Flags(), &source)
	cmd.Flags().BoolVar(&adapter, "adapter", false, "the adapters alone, of a run with trainer.lora, as a PEFT directory beside the model that the run started from")
	dtypeName := cmd.Flags().String("dtype", "bf16", "type of the weights: bf16, f32 (all bits of the training) or f16")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, pair := range [][]string{{"step", "policy-version"}, {"policy-version", "adapter"}} {
			if err := onlyOne(cmd, pair...); err != nil {
				return err
			}
		}
		dtype, err := dtypeNamed(*dtypeName)
		if err != nil {
			return err
		}
		r, err := runclient.Find(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		source.RunID = r.ID()
		write := modeldir.Write
		if adapter {
			write = modeldir.WriteAdapter
		}
		about, err := write(cmd.Context(), r.Store(), source, args[1], dtype)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), about)
		return err
	}
	return cmd
}

// sourceFlags add the flags that choose a policy of a run.
func sourceFlags(f *pflag.FlagSet, s *modeldir.Source) {
	f.StringVar(&s.Step, "step", "", "checkpoint of the run: the number of its step, sft, best (highest reward of the step after it) or last (default last)")
	f.Func("policy-version", "published policy of the run in place of a checkpoint", func(text string) error {
		version, err := strconv.ParseInt(text, 10, 64)
		s.Version = &version
		return err
	})
}

// modelFlags choose a model: a directory, or a policy of a run.
type modelFlags struct {
	model  string
	source modeldir.Source
}

func (m *modelFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.model, "model", "", "directory in Hugging Face layout, or the id of a run")
	sourceFlags(f, &m.source)
}

// onlyOne refuses several flags that exclude each other.
func onlyOne(cmd *cobra.Command, names ...string) error {
	given := slices.DeleteFunc(names, func(name string) bool { return !cmd.Flags().Changed(name) })
	if len(given) > 1 {
		return cli.Usagef("--%s exclude each other: want one", strings.Join(given, " and --"))
	}
	return nil
}
