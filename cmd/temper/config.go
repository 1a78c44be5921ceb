package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/service/runclient"
	"temper/workers"
)

func configCommand(p *config.Process) *cobra.Command {
	return group("config", "Check configurations of runs, and describe their keys", configCheckCommand(p), configShowCommand(), configSchemaCommand())
}

// overrideFlag adds --set.
func overrideFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringArray("set", nil, "key=value over the configuration; repeatable; relative paths in it count from the working folder")
}

func configCheckCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Find every mistake that would stop a run, and start nothing",
		Long: `Finds every mistake in a configuration that would stop a run, and starts nothing: unknown keys, values out of
range, missing files, bad lines of data, prompts and dialogues that do not fit the context. It reads the data and
the description of model.path, never the weights, and prints what the run would be. The store is opened only for
model.run and for data at store:KEY.`,
		Args: cobra.ExactArgs(1),
	}
	set := overrideFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := runclient.LoadConfig(args[0], *set)
		if err != nil {
			return cli.Usage(errors.Join(err, runclient.CheckData(cfg)))
		}
		var store blob.Store = memblob.New()
		if runclient.NeedsStore(cfg) {
			if store, err = workers.OpenStore(cmd.Context(), p); err != nil {
				return err
			}
		}
		found, err := runclient.CheckRun(cmd.Context(), store, cfg)
		if err != nil {
			return err
		}
		return export.Checked(cmd.OutOrStdout(), args[0], cfg, found)
	}
	return cmd
}

func configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show FILE", Short: "Print a configuration with every key, as a run stores it", Args: cobra.ExactArgs(1),
	}
	set := overrideFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := runclient.LoadConfig(args[0], *set)
		if err != nil {
			return cli.Usage(err)
		}
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

func configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configurations, for editors",
		Long: `Prints the JSON Schema (draft 2020-12) of configurations. Editors with yaml-language-server complete and check
keys in files that begin with

  # yaml-language-server: $schema=temper.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), config.Schema())
			return err
		},
	}
}
