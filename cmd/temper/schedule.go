package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	_ "time/tzdata" // time zones of cron lines, also where the machine has none

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/rules"
	"temper/internal/run/retrain"
	"temper/internal/service/runclient"
	"temper/internal/temporalclient"
	"temper/workflows"
)

func scheduleCommand(p *config.Process) *cobra.Command {
	cmd := group("schedule", "Re-train on new problems at set times", scheduleCreateCommand(p), scheduleShowCommand(p))
	pause := scheduleAction(p, "pause", "Start no further re-training; one that is going on goes on",
		func(ctx context.Context, h client.ScheduleHandle, note string) error {
			return h.Pause(ctx, client.SchedulePauseOptions{Note: note})
		})
	resume := scheduleAction(p, "resume", "Let a paused schedule go on",
		func(ctx context.Context, h client.ScheduleHandle, note string) error {
			return h.Unpause(ctx, client.ScheduleUnpauseOptions{Note: note})
		})
	trigger := scheduleAction(p, "trigger", "Re-train now, unless a re-training is going on (overlap policy)",
		func(ctx context.Context, h client.ScheduleHandle, _ string) error {
			return h.Trigger(ctx, client.ScheduleTriggerOptions{})
		})
	remove := scheduleAction(p, "delete", "Delete a schedule; its runs, its last good policy and a re-training that is going on stay",
		func(ctx context.Context, h client.ScheduleHandle, _ string) error { return h.Delete(ctx) })
	cmd.AddCommand(pause, resume, trigger, remove)
	return cmd
}

// scheduleOrder holds the flags of a schedule.
type scheduleOrder struct {
	runclient.Submission // file and set
	data                 []string
	spec                 workflows.ScheduleSpec
}

func scheduleCreateCommand(p *config.Process) *cobra.Command {
	var o scheduleOrder
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create ID --config FILE --data GLOB --cron \"CRON_TZ=Europe/Berlin 0 3 * * *\"",
		Short: "Make a schedule of re-trainings: warm start from the last good policy, publish behind a gate",
		Args:  cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.File, "config", "", "base recipe (YAML), read again by each re-training")
	f.StringArrayVar(&o.Set, "set", nil, "key=value over the recipe; repeatable")
	f.StringArrayVar(&o.data, "data", nil, "problems: a JSONL file, a folder, a glob or store:PREFIX; repeatable")
	f.StringArrayVar(&o.spec.Retrain.Stages, "stage", nil, "stage of the recipe that takes the data; repeatable; default is all")
	f.StringArrayVar(&o.spec.Retrain.Gate, "gate", nil, "rule that a policy has to pass, such as accuracy>=+0.01 (against the last good policy), accuracy>=-0.02, STAGE/accuracy>=0.5, tool_error_rate<=0.1; repeatable; default "+rules.DefaultRule)
	f.StringArrayVar(&o.spec.Cron, "cron", nil, "when: a cron line, UTC unless it begins with CRON_TZ=Area/City; repeatable")
	f.DurationVar(&o.spec.Every, "every", 0, "when: an interval, for example 6h")
	f.StringVar(&o.spec.Overlap, "overlap", workflows.Overlaps()[0], "when a re-training is due while another one is going on: "+strings.Join(workflows.Overlaps(), ", "))
	f.DurationVar(&o.spec.Catchup, "catchup", workflows.DefaultCatchup, "how late a re-training may start after the server was down")
	f.BoolVar(&o.spec.PauseOnFailure, "pause-on-failure", false, "pause the schedule when a re-training fails; a policy that the gate refuses is no failure")
	f.BoolVar(&o.spec.Paused, "paused", false, "make it paused, also when there is no data yet")
	f.StringVar(&o.spec.Note, "note", "", "shown in the web UI")
	f.BoolVar(&asJSON, "json", false, "print the schedule as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.spec.Retrain.ID = args[0]
		c, store, err := runclient.Connect(cmd.Context(), p, o.check)
		if err != nil {
			return err
		}
		defer c.Close()
		err = workflows.CreateSchedule(cmd.Context(), c, o.spec)
		var refused *serviceerror.InvalidArgument
		if errors.Is(err, workflows.ErrScheduleExists) || errors.As(err, &refused) {
			return cli.Usage(err)
		}
		if err != nil {
			return err
		}
		found, err := workflows.FindSchedule(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		v, err := temporalclient.DescribeWhole(cmd.Context(), store, found)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), v)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "schedule %s made, %s\n%s\n", v.ID, v.DueWords(), scheduleUI(p, v.ID))
		return err
	}
	return cmd
}

// check completes the order and reports everything that is wrong with it.
func (o *scheduleOrder) check(ctx context.Context, store blob.Store) error {
	var bad []error
	if o.File == "" {
		bad = append(bad, errors.New("--config is missing: name the YAML file of the recipe"))
	}
	in := &o.spec.Retrain
	var err error
	in.Set, err = o.Overrides()
	bad = append(bad, err, o.spec.Validate(), temporalclient.CheckCrons(o.spec.Cron))
	for _, pattern := range o.data {
		if _, stored := config.StoreKey(pattern); !stored {
			if pattern, err = filepath.Abs(pattern); err != nil {
				bad = append(bad, err)
			}
		}
		in.Data = append(in.Data, pattern)
	}
	file, err := filepath.Abs(o.File)
	bad = append(bad, err)
	if in.Config, err = json.Marshal(file); err != nil {
		return err
	}
	if o.File != "" {
		// A paused schedule may wait for its data.
		bad = append(bad, retrain.Check(ctx, store, *in, !o.spec.Paused))
	}
	if err := errors.Join(bad...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// scheduleAction is a command that takes the id of a schedule.
func scheduleAction(p *config.Process, name, short string, act func(context.Context, client.ScheduleHandle, string) error) *cobra.Command {
	var note string
	cmd := &cobra.Command{Use: name + " ID", Short: short, Args: cobra.ExactArgs(1)}
	if name == "pause" || name == "resume" {
		cmd.Flags().StringVar(&note, "note", "", "shown in the web UI and by temper schedule show")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := runclient.Connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := workflows.FindSchedule(cmd.Context(), c, args[0])
		if err != nil {
			return unknownSchedule(err, args[0])
		}
		if name == "trigger" && len(s.Running) > 0 && s.Overlap == workflows.Overlaps()[0] {
			return cli.Usagef("schedule %s: re-training %s is going on, and the overlap policy is skip: wait for its end", s.ID, s.Running[0])
		}
		if err := act(cmd.Context(), c.ScheduleClient().GetHandle(cmd.Context(), args[0]), note); err != nil {
			return fmt.Errorf("%s schedule %s: %w", name, args[0], err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "schedule %s: %s\n", args[0], map[string]string{
			"pause": "paused", "resume": "goes on", "trigger": "a re-training begins", "delete": "deleted",
		}[name])
		return nil
	}
	return cmd
}

func unknownSchedule(err error, id string) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return cli.Usagef("no schedule %q of re-trainings on this Temporal server (temper schedule show lists them)", id)
	}
	return err
}

// scheduleUI is the link to a schedule's page, "" without a web UI.
func scheduleUI(p *config.Process, id string) string {
	if p.UIAddress == "" {
		return ""
	}
	return fmt.Sprintf("http://%s/namespaces/%s/schedules/%s", p.UIAddress, p.Namespace, id)
}

func scheduleShowCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [ID]", Short: "List the schedules of re-trainings, or show one: its argument, its last good policy and what its re-trainings did", Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		c, store, err := runclient.Connect(ctx, p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		if len(args) == 0 {
			views, err := temporalclient.All(ctx, c, store, temporalclient.Describe)
			if err != nil {
				return err
			}
			return show(cmd, *asJSON, views, temporalclient.PrintTable)
		}
		found, err := workflows.FindSchedule(ctx, c, args[0])
		if err != nil {
			return unknownSchedule(err, args[0])
		}
		v, err := temporalclient.DescribeWhole(ctx, store, found)
		if err != nil {
			return err
		}
		if err := show(cmd, *asJSON, v, temporalclient.Print); err != nil || *asJSON {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", scheduleUI(p, v.ID))
		return err
	}
	return cmd
}
