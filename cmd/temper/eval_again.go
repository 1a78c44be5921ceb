package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/evaluate"
)

// judgeAgain judges the samples of a folder again, and samples nothing.
func (e *modelEval) judgeAgain(cmd *cobra.Command, asJSON bool) error {
	cfg := evaluate.Config{Label: e.label()}
	cfg.Folder = e.folder(cfg.Label)
	stored, missing, err := evaluate.Stored(cfg.Folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := evaluate.ReadSamples(cfg.Folder); err != nil {
			return cli.Usagef("--reverify: %w", err)
		}
		err = e.setsOfFlags(cmd, &cfg)
	case err == nil:
		for _, text := range missing {
			fmt.Fprintln(cmd.ErrOrStderr(), "set "+text)
		}
		err = e.storedSets(cmd, &cfg, stored)
	}
	if err != nil {
		return err
	}
	samples, changed, err := evaluate.Reverify(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d samples judged again, %d verdicts changed\n", len(samples), changed)
	return e.report(cmd, cfg, samples, asJSON)
}

// setsOfFlags takes the sets from the flags and the suites, for a folder that does not
// record how its samples were made.
func (e *modelEval) setsOfFlags(cmd *cobra.Command, cfg *evaluate.Config) error {
	cfg.Seed, cfg.System = e.seed, e.chat.system
	if err := e.readSets(cmd, cfg, (*config.Rollout)(nil)); err != nil {
		return err
	}
	for _, s := range cfg.Sets {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s has no settings: set %s is taken to have %d samples of each problem at temperature %g, judged by %s\n", cfg.Folder, s.Name, s.Rollouts, s.Temperature, s.Mode)
	}
	return nil
}

// storedSets takes from the settings of a folder what no flag states. A flag that states
// something else about how the samples were made is refused.
func (e *modelEval) storedSets(cmd *cobra.Command, cfg *evaluate.Config, stored evaluate.Settings) error {
	changed := cmd.Flags().Changed
	var wrong []error
	if cfg.Label != "" && cfg.Label != stored.Model {
		wrong = append(wrong, fmt.Errorf("%s has samples of the model %q, not of %q", cfg.Folder, stored.Model, cfg.Label))
	}
	if changed("eval-seed") && e.seed != stored.Seed {
		wrong = append(wrong, fmt.Errorf("%s has samples of --eval-seed %d, not %d", cfg.Folder, stored.Seed, e.seed))
	}
	if changed("system") && e.chat.system != stored.System {
		wrong = append(wrong, fmt.Errorf("%s has samples of another system message", cfg.Folder))
	}
	cfg.Label, cfg.Seed, cfg.System = stored.Model, stored.Seed, stored.System
	for _, text := range e.sets {
		named, err := evaluate.ParseSet(text, e.plain)
		if err == nil && slices.ContainsFunc(cfg.Sets, func(s evaluate.Set) bool { return s.Name == named.Name }) {
			err = fmt.Errorf("%s: the name is used twice", text)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--set %w", err))
			continue
		}
		set, err := stored.Again(named.Name, named.Path)
		if err == nil {
			e.plain.Mode = evaluate.Mode(e.mode)
			e.override(cmd, &set)
			set, err = evaluate.ReadSet(set)
		}
		if err == nil {
			err = stored.CheckAgain(set)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--set %w", err))
		}
		cfg.Sets = append(cfg.Sets, set)
	}
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	return nil
}
