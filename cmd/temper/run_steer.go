package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/modeldir"
	"temper/internal/service/runclient"
	"temper/workflows"
)

// steering holds the flags of the commands to a running run.
type steering struct {
	workflows.Command
	set    []string
	step   string // restart
	noWait bool   // restart
}

// steer is one command to a running run.
type steer struct {
	name, use, short, long string
	flags                  func(*cobra.Command, *steering)
	check                  func(*steering) error
}

// now adds the flag of the commands that may interrupt.
func now(cmd *cobra.Command, s *steering) {
	cmd.Flags().BoolVar(&s.Now, "now", false, "interrupt the work in flight instead of waiting for the safe point; finished groups are kept, and what is made again has the same bits")
}

func stageFlag(cmd *cobra.Command, s *steering) {
	cmd.Flags().StringVar(&s.Stage, "stage", "", "the stage by name; default is the current one")
}

func setFlag(cmd *cobra.Command, s *steering) {
	cmd.Flags().StringArrayVar(&s.set, "set", nil, "key=value, for example rl.optimizer.lr=1e-4; repeatable")
}

// steers lists the commands, in the order of their use.
func steers() []steer {
	return []steer{
		{name: workflows.CommandPause, short: "Hold a run at the next safe point", flags: now},
		{name: workflows.CommandResume, short: "Let a paused run continue"},
		{
			name: workflows.CommandStop, short: "End a run at the next safe point", flags: now,
			long: "With --now the command waits until the run has ended. A run that does not answer, or does not end within a minute, is cancelled, and terminated if that does not end it.",
		},
		{name: workflows.CommandCheckpoint, short: "Save a checkpoint after the current step; at once while the run is paused"},
		{
			name: workflows.CommandSkipStage, use: "skip-stage", short: "End the current stage, or leave out a later one",
			flags: func(cmd *cobra.Command, s *steering) { stageFlag(cmd, s); now(cmd, s) },
		},
		{
			name: workflows.CommandRepeatStage, use: "repeat-stage", short: "Run a stage once more after all others",
			long: "Steps count on, and the ledger continues after the steps that the stage has made: no problem is met twice within an epoch.", flags: stageFlag,
		},
		{
			name: workflows.CommandAmend, short: "Change keys of a run's configuration from a step on",
			long: "What was made before stays as it was, also when it is made again after a crash. Keys that the weights, the data or earlier steps depend on are refused: fork the run for them.",
			flags: func(cmd *cobra.Command, s *steering) {
				setFlag(cmd, s)
				cmd.Flags().IntVar(&s.FromStep, "from-step", 0, "the first step under the change; default is the next one that has not begun")
			},
			check: func(s *steering) error {
				if len(s.set) == 0 {
					return cli.Usagef("--set is missing: say what changes, for example --set rl.optimizer.lr=1e-4")
				}
				return nil
			},
		},
		{
			name: workflows.CommandRestart, short: "End a run and start another from its checkpoint",
			long: "The new run is a fork whose id the answer names; this one ends with its summary.",
			flags: func(cmd *cobra.Command, s *steering) {
				setFlag(cmd, s)
				now(cmd, s)
				cmd.Flags().StringVar(&s.step, "step", run.FromBest, "checkpoint of the new run: the number of its step, sft, best (highest reward of the step after it) or last")
				amendmentsFlag(cmd, &s.WithoutAmendments)
				cmd.Flags().BoolVar(&s.noWait, "no-wait", false, "do not wait until the other run begins, which is when this one has ended")
				cmd.Flags().StringVar(&s.RunID, "run-id", "", "id of the new run; default is made from this one's")
			},
			check: checkRestart,
		},
	}
}

func checkRestart(s *steering) error {
	step, from, err := modeldir.ParseStep(s.step)
	if s.RunID != "" {
		err = errors.Join(err, history.CheckRunID(s.RunID))
	}
	s.From = workflows.Checkpoint(cmp.Or(from, fmt.Sprint(step)))
	return err
}

func steerCommands(p *config.Process) []*cobra.Command {
	var out []*cobra.Command
	for _, s := range steers() {
		out = append(out, steerCommand(p, s))
	}
	return out
}

func steerCommand(p *config.Process, about steer) *cobra.Command {
	var s steering
	cmd := &cobra.Command{Use: cmp.Or(about.use, about.name) + " RUN", Short: about.short, Args: cobra.ExactArgs(1)}
	if about.long != "" {
		cmd.Long = about.short + ".\n\n" + about.long
	}
	cmd.Flags().StringVar(&s.Reason, "reason", "", "shown in the status and the event log")
	asJSON := jsonFlag(cmd)
	if about.flags != nil {
		about.flags(cmd, &s)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := history.CheckRunID(args[0])
		set, setErr := cli.ParseSet(s.set)
		if err := errors.Join(err, setErr); err != nil {
			return cli.Usage(err)
		}
		s.Set, s.By = set, runclient.Operator()
		if about.check != nil {
			if err := about.check(&s); err != nil {
				return cli.Usage(err)
			}
		}
		if about.name == workflows.CommandRestart {
			s.RunID = cmp.Or(s.RunID, runclient.Successor(args[0]))
		}
		return s.send(cmd, p, about.name, args[0], *asJSON)
	}
	return cmd
}

// steered is the answer to a command, for programs.
type steered struct {
	RunID   string `json:"run_id"`
	Command string `json:"command"`
	Answer  string `json:"answer"`
	// Forced tells why the run was terminated, "" if it ended by itself.
	Forced string `json:"forced,omitempty"`
}

func (s *steering) send(cmd *cobra.Command, p *config.Process, name, runID string, asJSON bool) error {
	ctx := cmd.Context()
	c, store, err := runclient.Connect(ctx, p, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if name == workflows.CommandStop && s.Now {
		say := func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "run %s: %s\n", runID, text) }
		stopped, err := runclient.StopNow(ctx, c, store, runID, s.Command, say)
		if err != nil {
			return err
		}
		return show(cmd, asJSON, steered{runID, name, stopped.Answer, stopped.Forced}, writeStopped)
	}
	answer, err := runclient.Send(ctx, c, p.Namespace, runID, name, s.Command)
	if err != nil {
		return runclient.UnknownRun(err, runID)
	}
	if err := show(cmd, asJSON, steered{RunID: runID, Command: name, Answer: answer}, writeSteered); err != nil || asJSON || name != workflows.CommandRestart || s.noWait {
		return err
	}
	status, err := runclient.AwaitStart(ctx, c, s.RunID, cmd.ErrOrStderr())
	if err == nil && status.Opened {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s started\n", s.RunID)
	}
	return err
}

func writeSteered(out io.Writer, a steered) error {
	_, err := fmt.Fprintf(out, "run %s: %s\n", a.RunID, a.Answer)
	return err
}

func writeStopped(out io.Writer, a steered) error {
	if a.Answer != "" {
		fmt.Fprintf(out, "run %s: %s\n", a.RunID, a.Answer)
	}
	end := "has ended"
	if a.Forced != "" {
		end = "was terminated: " + a.Forced + "; it has no summary, and its checkpoints are there (temper run fork)"
	}
	_, err := fmt.Fprintf(out, "run %s %s\n", a.RunID, end)
	return err
}
