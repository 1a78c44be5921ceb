package runclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/modeldir"
	"temper/internal/run/setup"
)

// Fork is a user's request for a fork.
type Fork struct {
	Parent, RunID     string // "" makes a RunID from the parent, the step and the time
	File              string // of another configuration; "" is the parent's own
	Step              string // the checkpoint, as modeldir.ParseStep reads it
	WithoutAmendments bool
	Set               []string // KEY=VALUE over the configuration
	Priority          int
	Placement         string
}

// Describe reports what the fork begins with, and what it inherits.
func (f *Fork) Describe(begin setup.Forked) string {
	text := fmt.Sprintf("fork of run %s, step %d", f.Parent, begin.Step)
	for _, a := range begin.Inherited {
		text += "\ninherits the amendment " + a.Order()
	}
	return text
}

// Input checks the request, with a line for each mistake, and returns it as a workflow
// takes it.
func (f *Fork) Input() (run.Input, error) {
	in := run.Input{RunID: f.RunID, Priority: f.Priority, Fork: &run.ForkFrom{RunID: f.Parent, WithoutAmendments: f.WithoutAmendments}}
	var bad []error
	var err error
	if f.Step == "" {
		bad = append(bad, errors.New("--step is missing: the checkpoint that is forked, as the number of its step, best or last"))
	} else if in.Fork.Step, in.Fork.From, err = modeldir.ParseStep(f.Step); err != nil {
		bad = append(bad, err)
	}
	if f.WithoutAmendments && f.File != "" {
		bad = append(bad, errors.New("--without-amendments is for the run's own configuration: leave out --config"))
	}
	bad = append(bad, history.CheckRunID(f.Parent), CheckPriority(f.Priority))
	if f.RunID != "" {
		bad = append(bad, history.CheckRunID(f.RunID))
	}
	in.Placement, err = ParsePlacement(f.Placement)
	bad = append(bad, err)
	in.Set, err = cli.ParseSet(f.Set)
	if err = errors.Join(append(bad, err)...); err != nil {
		return in, cli.Usage(err)
	}
	if f.File == "" {
		return in, nil
	}
	run, err := config.LoadFile(f.File, in.Set)
	if err := errors.Join(err, CheckData(run)); err != nil {
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

// Resolve finds the step and completes in, so that mistakes are reported before anything
// starts.
func (f *Fork) Resolve(ctx context.Context, store blob.Store, in *run.Input) (setup.Forked, error) {
	asked := *in
	from := *in.Fork
	asked.Fork = &from
	begin, err := setup.ResolveFork(ctx, store, asked)
	if err != nil {
		return begin, err
	}
	if err := CheckData(begin.Config); err != nil {
		return begin, cli.Usage(err)
	}
	in.Fork.Step, in.Fork.From = begin.Step, ""
	if in.RunID == "" {
		suffix := fmt.Sprintf("-s%d-%s", begin.Step, time.Now().UTC().Format("0102-150405"))
		in.RunID = f.Parent[:min(len(f.Parent), 64-len(suffix))] + suffix
	}
	taken, err := history.Exists(ctx, store, in.RunID)
	if err == nil && taken {
		err = cli.Usagef("run id %q exists already: choose another", in.RunID)
	}
	return begin, err
}
