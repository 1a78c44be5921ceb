package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/service/runclient"
	"temper/jobs/fleet"
	"temper/workers"
	"temper/workflows"
)

// drainOptions say how a node is emptied.
type drainOptions struct {
	deadline, patience time.Duration
	reason             string
	now                bool
}

func (f *clusterFlags) drainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move everything off a node", Args: cobra.ExactArgs(1),
		Long: `Moves everything off a node, named by its name or the beginning of its id, and waits until it is gone. Runs with
workers of their own there come to a safe point first, save a checkpoint and go elsewhere; a process of the others
gets SIGTERM and the time of its role's drain, and a step that a shared trainer is in is made again elsewhere.`,
	}
	var undo bool
	o := drainOptions{deadline: 10 * time.Minute, patience: 2 * time.Hour}
	cmd.Flags().DurationVar(&o.deadline, "deadline", o.deadline, "after which what still runs is killed")
	cmd.Flags().DurationVar(&o.patience, "patience", o.patience, "how long runs may take to come to a safe point and save")
	cmd.Flags().StringVar(&o.reason, "reason", "", "what runs and people are told")
	cmd.Flags().BoolVar(&o.now, "now", false, "do not ask the runs: a step in flight is made again elsewhere")
	cmd.Flags().BoolVar(&undo, "undo", false, "let a drained node take work again")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, args []string) error {
		if o.deadline <= 0 || o.patience <= 0 {
			return cli.Usagef("--deadline and --patience: are %v and %v, want more than 0", o.deadline, o.patience)
		}
		say := sayTo(cmd.OutOrStdout())
		if undo {
			return o.undrain(ctx, fl, args[0], say)
		}
		if err := o.moveRuns(ctx, fl, args[0], say); err != nil {
			return err
		}
		return fl.Drain(ctx, args[0], o.deadline, say)
	})
	return cmd
}

// undrain lets a node take work again.
func (o drainOptions) undrain(ctx context.Context, fl *fleet.Fleet, node string, say func(string)) error {
	if err := fl.Undrain(ctx, node); err != nil {
		return err
	}
	if err := o.sendCommand(ctx, fl, workflows.CommandUndrain, node, say); err != nil {
		return err
	}
	say("node " + node + " takes work again")
	return nil
}

// moveRuns has the runs on a node save and leave it.
func (o drainOptions) moveRuns(ctx context.Context, fl *fleet.Fleet, node string, say func(string)) error {
	id, err := fleet.NewRuns(fl).Node(ctx, node)
	if err != nil {
		return err
	}
	if err := o.sendCommand(ctx, fl, workflows.CommandDrain, node, say); err != nil || o.now || !fleet.NewRuns(fl).Placed() {
		return err
	}
	left, err := fleet.NewRuns(fl).Await(ctx, id, o.patience, say)
	if len(left) > 0 && err == nil {
		say(fmt.Sprintf("%v did not leave within %s: their steps in flight are made again elsewhere", left, o.patience))
	}
	return err
}

// sendCommand sends a command for a node to the workflow of the cluster, if there is one.
func (o drainOptions) sendCommand(ctx context.Context, fl *fleet.Fleet, command, node string, say func(string)) error {
	if o.now || !fleet.NewRuns(fl).Placed() {
		return nil
	}
	id, err := fleet.NewRuns(fl).Node(ctx, node)
	if err != nil {
		return err
	}
	c, err := dialCluster(ctx, fl)
	if err != nil {
		return fmt.Errorf("%w; --now does it without the runs, whose steps in flight are then made again", err)
	}
	defer c.Close()
	answer, err := workflows.MoveNode(ctx, c, command, workflows.NodeCommand{Node: id, Reason: o.reason, By: runclient.Operator()})
	if workflows.NoCluster(err) { // no run has ever asked for room
		return nil
	}
	if err == nil {
		say(answer)
	}
	return err
}

// dialCluster reaches the Temporal server of a cluster: the one of the environment, else that
// of the file, else the cluster's own.
func dialCluster(ctx context.Context, fl *fleet.Fleet) (client.Client, error) {
	p := config.DefaultProcess()
	if os.Getenv("TEMPORAL_ADDRESS") == "" {
		address, err := fleet.NewRuns(fl).TemporalAddress(ctx)
		if err != nil {
			return nil, err
		}
		p.TemporalAddress = address
	}
	return workers.Dial(ctx, &p, cli.NewLogger("client"))
}
