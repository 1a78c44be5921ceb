package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/config"
	"temper/internal/promotion"
	"temper/workflows"
)

func scheduleListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the schedules of re-trainings", Args: cobra.NoArgs}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, store, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		found, err := workflows.Schedules(cmd.Context(), c)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "SCHEDULE\tNEXT\tGOOD POLICY\tLAST")
		for _, s := range found {
			good, _, err := activities.ReadGood(cmd.Context(), store, s.ID)
			if err != nil {
				return err
			}
			last, err := lastOutcome(cmd.Context(), store, s.ID)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.ID, strings.TrimPrefix(nextTime(s), ", "), goodName(good), last)
		}
		return t.Flush()
	}
	return cmd
}

func goodName(good activities.GoodPolicy) string {
	if good.RunID == "" {
		return "none yet"
	}
	return config.PolicyName(good.RunID, good.Policy.Version)
}

// maxEvents is the number of events that show prints.
const maxEvents = 20

func scheduleShowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a schedule: its argument, its last good policy and what its re-trainings did", Args: cobra.ExactArgs(1)}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, store, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := workflows.FindSchedule(cmd.Context(), c, args[0])
		if err != nil {
			return unknownSchedule(err, args[0])
		}
		out := cmd.OutOrStdout()
		showSchedule(out, s)
		good, ok, err := activities.ReadGood(cmd.Context(), store, s.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "good policy  %s\n", goodName(good))
		if ok {
			fmt.Fprintf(out, "published    %s, %s\n\n%s\n", good.Published.Format(time.RFC3339), store.Locate(good.Policy.Ref.Key), promotion.Table(good.Scores, nil))
		}
		events, err := activities.RetrainEvents(cmd.Context(), store, artifact.Schedule{ID: s.ID})
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		for _, e := range events[max(0, len(events)-maxEvents):] {
			fmt.Fprintf(out, "%s  %-8s %s\n", e.Time.Format(time.RFC3339), e.Kind, e.Text)
		}
		_, err = fmt.Fprintln(out, scheduleUI(p, s.ID))
		return err
	}
	return cmd
}

func showSchedule(out io.Writer, s workflows.Schedule) {
	in := s.Retrain
	fmt.Fprintf(out, "schedule     %s%s\n", s.ID, nextTime(s))
	if s.Note != "" {
		fmt.Fprintf(out, "note         %s\n", s.Note)
	}
	gate := in.Gate
	if len(gate) == 0 {
		gate = []string{promotion.DefaultRule}
	}
	fmt.Fprintf(out, "recipe       %.200s %v\ndata         %s\ngate         %s\n", in.Config, in.Set, strings.Join(in.Data, ", "), strings.Join(gate, ", "))
	fmt.Fprintf(out, "policies     overlap %s, catch-up %s, pause on failure %v\n", s.Overlap, s.Catchup, s.PauseOnFailure)
	fmt.Fprintf(out, "left out     %d for overlap, %d missed for longer than the catch-up window\n", s.Skipped, s.Missed)
	if len(s.Running) > 0 {
		fmt.Fprintf(out, "going on     %s\n", strings.Join(s.Running, ", "))
	}
}
