package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// steering is what the flags of the commands to a running run say.
type steering struct {
	workflows.Command
	set    []string
	from   string
	noWait bool // restart
	asJSON bool
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
		{name: workflows.CommandResume, short: "Let a paused run go on"},
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
			long: "Steps count on, and the ledger goes on behind the steps that the stage has made: no problem is met twice within an epoch.", flags: stageFlag,
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
				cmd.Flags().StringVar(&s.from, "from", run.FromBest, "checkpoint: best (highest reward of the step after it), last, or a step")
				amendmentsFlag(cmd, &s.WithoutAmendments)
				cmd.Flags().BoolVar(&s.noWait, "no-wait", false, "do not wait until the other run begins, which is when this one has ended")
				cmd.Flags().StringVar(&s.RunID, "run-id", "", "id of the new run; default is made from this one's")
			},
			check: checkRestart,
		},
	}
}

func checkRestart(s *steering) error {
	if _, err := strconv.ParseUint(s.from, 10, 31); err != nil && s.from != run.FromBest && s.from != run.FromLast {
		return cli.Usagef("--from: is %q, want best, last or the number of a step", s.from)
	}
	if s.RunID != "" {
		if err := history.CheckRunID(s.RunID); err != nil {
			return cli.Usage(err)
		}
	}
	s.From = workflows.Checkpoint(s.from)
	return nil
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
	cmd.Flags().StringVar(&s.By, "by", operator(), "who gives the command; shown beside the reason")
	cmd.Flags().BoolVar(&s.asJSON, "json", false, `print {"run_id": ..., "answer": ...}`)
	if about.flags != nil {
		about.flags(cmd, &s)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := history.CheckRunID(args[0])
		set, setErr := cli.ParseSet(s.set)
		if err := errors.Join(err, setErr); err != nil {
			return cli.Usage(err)
		}
		s.Set = set
		if about.check != nil {
			if err := about.check(&s); err != nil {
				return err
			}
		}
		if about.name == workflows.CommandRestart && s.RunID == "" {
			s.RunID = successor(args[0])
		}
		return s.send(cmd, p, about.name, args[0])
	}
	return cmd
}

func (s *steering) send(cmd *cobra.Command, p *config.Process, name, runID string) error {
	c, store, err := connect(cmd.Context(), p, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if name == workflows.CommandStop && s.Now {
		return s.stopNow(cmd, c, store, runID)
	}
	answer, err := s.give(cmd.Context(), c, p, name, runID)
	if err != nil {
		return unknownRun(err, runID)
	}
	if s.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"run_id": runID, "command": name, "answer": answer})
	}
	if _, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s: %s\n", runID, answer); err != nil || name != workflows.CommandRestart || s.noWait {
		return err
	}
	status, err := awaitStart(cmd.Context(), c, s.RunID, cmd.ErrOrStderr())
	if err == nil && status.Opened {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s started\n", s.RunID)
	}
	return err
}

// give sends the command and returns the answer. A resume takes back the server's own
// pauses first, of the run and of its stage.
func (s *steering) give(ctx context.Context, c client.Client, p *config.Process, name, runID string) (string, error) {
	if name != workflows.CommandResume {
		return workflows.Send(ctx, c, runID, name, s.Command)
	}
	lifted, err := temporalclient.Lift(ctx, c, p.Namespace, runID, s.By, s.Reason)
	if err != nil {
		return "", err
	}
	var was []string
	for _, f := range lifted {
		was = append(was, f.String())
	}
	if len(was) > 0 {
		status, err := workflows.Status(ctx, c, runID)
		if err == nil && status.State != workflows.StatePaused && status.State != workflows.StatePausing {
			return "the run goes on: " + strings.Join(was, "; ") + "; unpaused", nil
		}
	}
	answer, err := workflows.Send(ctx, c, runID, name, s.Command)
	if err == nil && len(was) > 0 {
		answer += ": " + strings.Join(was, "; ") + "; unpaused, and the pause by command is over"
	}
	return answer, err
}

// successor makes the id of the run that goes on instead of another.
func successor(runID string) string {
	suffix := "-r" + time.Now().UTC().Format("0102150405")
	return runID[:min(len(runID), 64-len(suffix))] + suffix
}

// operator is who runs this program, as far as the machine knows.
func operator() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + strings.SplitN(host, ".", 2)[0]
	}
	return name
}
