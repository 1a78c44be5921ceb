package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run/setup"
)

func configCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check configurations of runs, and describe their keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configCheckCommand(p), configShowCommand(), configSchemaCommand())
	return cmd
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
		cfg, err := loadConfig(args[0], *set)
		if err != nil {
			return cli.Usage(errors.Join(err, checkData(cfg)))
		}
		var store blob.Store = memblob.New()
		if needsStore(cfg) {
			if store, err = openStore(cmd.Context(), p); err != nil {
				return err
			}
		}
		found, err := checkRun(cmd.Context(), store, cfg)
		if err != nil {
			return err
		}
		return describeRun(cmd.OutOrStdout(), args[0], cfg, found)
	}
	return cmd
}

func configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show FILE", Short: "Print a configuration with every key, as a run stores it", Args: cobra.ExactArgs(1),
	}
	set := overrideFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := loadConfig(args[0], *set)
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

func loadConfig(file string, set []string) (config.Run, error) {
	overrides, err := cli.ParseSet(set)
	cfg, loadErr := config.LoadFile(file, overrides)
	return cfg, errors.Join(err, loadErr)
}

// needsStore reports whether a run starts from the store or has data there.
func needsStore(cfg config.Run) bool {
	_, stored := config.StoreKey(cfg.SFT.Data.Path)
	for _, m := range cfg.Data.Mix {
		_, at := config.StoreKey(m.Path)
		stored = stored || at
	}
	for _, s := range cfg.Stages {
		_, at := config.StoreKey(s.Data.Path)
		stored = stored || at
	}
	for _, s := range cfg.Eval.Sets {
		_, at := config.StoreKey(s.Path)
		stored = stored || at
	}
	return stored || cfg.Model.Run != ""
}

// checkRun is setup.Check with the user's mistakes marked. A store that fails is not
// one of them.
func checkRun(ctx context.Context, store blob.Store, cfg config.Run) (setup.Checked, error) {
	found, err := setup.Check(ctx, store, cfg)
	if err != nil && !fault.IsUsers(err) && (errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrMisconfigured) || ctx.Err() != nil) {
		return found, err
	}
	if err != nil {
		return found, cli.Usage(err)
	}
	return found, nil
}
