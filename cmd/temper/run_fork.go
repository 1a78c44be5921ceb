package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/setup"
)

// forking is what a person asks of a fork.
type forking struct {
	parent, runID, config string
	step                  int
	best, last            bool
	withoutAmendments     bool
	set                   []string
	priority              int
	placement             string
	starting
}

func forkCommand(p *config.Process) *cobra.Command {
	var f forking
	cmd := &cobra.Command{
		Use: "fork RUN (--step N | --best | --last)", Short: "Start a run from a checkpoint of another, with changed configuration",
		Long: "Start a run from a checkpoint of another, with changed configuration.\n\n" +
			"The new run goes on behind the step of the checkpoint, with the weights, the optimizer, the tokenizer and the problems of the other one. " +
			"Everything may change but the model, its tokenizer, the supervised stage and the stages that have begun. Without a change it makes the same steps, bit for bit.",
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.IntVar(&f.step, "step", 0, "fork behind this step; it must have a checkpoint; 0 is the policy after SFT")
	flags.BoolVar(&f.best, "best", false, "fork the checkpoint with the highest reward of the step after it")
	flags.BoolVar(&f.last, "last", false, "fork the newest checkpoint")
	flags.StringVar(&f.config, "config", "", "another configuration (YAML) instead of the run's own")
	flags.StringVar(&f.runID, "run-id", "", "id of the new run; default is the other's, the step and the time")
	flags.StringArrayVar(&f.set, "set", nil, "key=value over the configuration; repeatable")
	flags.IntVar(&f.priority, "priority", 0, priorityUsage)
	flags.StringVar(&f.placement, "placement", "", placementUsage)
	amendmentsFlag(cmd, &f.withoutAmendments)
	f.starting.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.parent = args[0]
		if err := f.check(cmd.Flags().Changed("step")); err != nil {
			return err
		}
		in, err := f.input()
		if err != nil {
			return err
		}
		var begin setup.Forked
		c, store, err := connect(cmd.Context(), p, func(ctx context.Context, store blob.Store) (err error) {
			begin, err = f.resolve(ctx, store, &in)
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := start(cmd.Context(), c, in); err != nil {
			return err
		}
		return f.follow(cmd, c, store, p, in.RunID, f.describe(begin))
	}
	return cmd
}

func amendmentsFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "without-amendments", false, "take the configuration with which the run was opened, without what run amend and run repeat-stage changed")
}

// describe says what the fork begins with, and what it takes over that a person may
// have forgotten.
func (f *forking) describe(begin setup.Forked) string {
	text := fmt.Sprintf("fork of run %s, step %d", f.parent, begin.Step)
	for _, a := range begin.Inherited {
		text += "\ninherits the amendment " + a.Order()
	}
	return text
}

// check reports all that is wrong with the flags.
func (f *forking) check(stepped bool) error {
	var bad []error
	ways := 0
	for _, chosen := range []bool{stepped, f.best, f.last} {
		if chosen {
			ways++
		}
	}
	if ways != 1 {
		bad = append(bad, errors.New("want one of --step, --best and --last: which checkpoint is forked"))
	}
	if f.withoutAmendments && f.config != "" {
		bad = append(bad, errors.New("--without-amendments is for the run's own configuration: leave out --config"))
	}
	if f.step < 0 {
		bad = append(bad, fmt.Errorf("--step: is %d, want 0 or more", f.step))
	}
	bad = append(bad, history.CheckRunID(f.parent), checkPriority(f.priority))
	if f.runID != "" {
		bad = append(bad, history.CheckRunID(f.runID))
	}
	if err := errors.Join(bad...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

func (f *forking) input() (run.Input, error) {
	spec, err := parsePlacement(f.placement)
	if err != nil {
		return run.Input{}, err
	}
	in := run.Input{RunID: f.runID, Priority: f.priority, Placement: spec, Fork: &run.ForkFrom{RunID: f.parent, Step: f.step, WithoutAmendments: f.withoutAmendments}}
	switch {
	case f.best:
		in.Fork.From = run.FromBest
	case f.last:
		in.Fork.From = run.FromLast
	}
	set, err := cli.ParseSet(f.set)
	if err != nil {
		return in, cli.Usage(err)
	}
	in.Set = set
	if f.config == "" {
		return in, nil
	}
	run, err := config.LoadFile(f.config, set)
	if err := errors.Join(err, checkData(run)); err != nil {
		return in, cli.Usage(err)
	}
	text, err := run.YAML()
	if err != nil {
		return in, err
	}
	in.Set = nil // they are in the text
	in.Config, err = json.Marshal(string(text))
	return in, err
}

// resolve finds the step, so that mistakes are told before anything starts.
func (f *forking) resolve(ctx context.Context, store blob.Store, in *run.Input) (setup.Forked, error) {
	asked := *in
	from := *in.Fork
	asked.Fork = &from
	begin, err := setup.ResolveFork(ctx, store, asked)
	if err != nil {
		return begin, usersError(err)
	}
	if err := checkData(begin.Config); err != nil {
		return begin, cli.Usage(err)
	}
	in.Fork.Step, in.Fork.From = begin.Step, ""
	if in.RunID == "" {
		suffix := fmt.Sprintf("-s%d-%s", begin.Step, time.Now().UTC().Format("0102-150405"))
		in.RunID = f.parent[:min(len(f.parent), 64-len(suffix))] + suffix
	}
	taken, err := history.Exists(ctx, store, in.RunID)
	if err == nil && taken {
		err = cli.Usagef("run id %q exists already: choose another", in.RunID)
	}
	return begin, err
}

// usersError tells a mistake of the user from a store that fails.
func usersError(err error) error {
	if fault.IsUsers(err) {
		return cli.Usage(err)
	}
	return err
}
