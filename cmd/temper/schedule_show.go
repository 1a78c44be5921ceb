package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/promotion"
	"temper/internal/retrain"
	"temper/workflows"
)

func scheduleListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the schedules of re-trainings", Args: cobra.NoArgs}
	p := cli.ProcessFlags(cmd)
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
			good, _, err := retrain.ReadGood(cmd.Context(), store, s.ID)
			if err != nil {
				return err
			}
			last, err := lastOutcome(cmd.Context(), store, s.ID)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.ID, strings.TrimPrefix(strings.TrimPrefix(nextTime(s), ", "), "next at "), goodName(good), last)
		}
		return t.Flush()
	}
	return cmd
}

func goodName(good retrain.GoodPolicy) string {
	if good.RunID == "" {
		return "none yet"
	}
	return config.PolicyName(good.RunID, good.Policy.Version)
}

// maxEvents is the number of events that show prints.
const maxEvents = 20

func scheduleShowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a schedule: its argument, its last good policy and what its re-trainings did", Args: cobra.ExactArgs(1)}
	p := cli.ProcessFlags(cmd)
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
		good, ok, err := retrain.ReadGood(cmd.Context(), store, s.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "good policy  %s\n", goodName(good))
		if ok {
			fmt.Fprintf(out, "published    %s, %s\n\n", good.Published.Format(time.RFC3339), store.Locate(good.Policy.Ref.Key))
			if err := showScores(out, good.Scores); err != nil {
				return err
			}
		}
		events, err := retrain.Events(cmd.Context(), store, s.ID)
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		for _, e := range events[max(0, len(events)-maxEvents):] {
			fmt.Fprintf(out, "%s  %-8s %s\n", e.Time.Format(time.RFC3339), e.Kind, e.Text)
		}
		_, err = fmt.Fprintf(out, "\n%s\n", scheduleUI(p, s.ID))
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
	fmt.Fprintf(out, "when         %s\n", strings.Join(s.When, "; "))
	fmt.Fprintf(out, "recipe       %s\ndata         %s\ngate         %s\n", recipeName(in), strings.Join(in.Data, ", "), strings.Join(gate, ", "))
	if len(in.Stages) > 0 {
		fmt.Fprintf(out, "stages       %s\n", strings.Join(in.Stages, ", "))
	}
	fmt.Fprintf(out, "overlap      %s; catch-up %s after an outage", s.Overlap, s.Catchup)
	if s.PauseOnFailure {
		fmt.Fprint(out, "; pauses on a failure")
	}
	fmt.Fprintln(out)
	if s.Skipped+s.Missed > 0 {
		fmt.Fprintf(out, "left out     %d while another one was going on, %d later than the catch-up\n", s.Skipped, s.Missed)
	}
	if len(s.Running) > 0 {
		fmt.Fprintf(out, "going on     %s\n", strings.Join(s.Running, ", "))
	}
}

// recipeName is the path of a recipe, or the beginning of its text, and what is set over it.
func recipeName(in retrain.Input) string {
	var text string
	if json.Unmarshal(in.Config, &text) != nil {
		text = string(in.Config)
	}
	if strings.Contains(text, "\n") {
		text = fmt.Sprintf("%.60q", text)
	}
	for _, key := range slices.Sorted(maps.Keys(in.Set)) {
		text += fmt.Sprintf(" --set %s=%s", key, in.Set[key])
	}
	return text
}

// showScores prints a line for each stage.
func showScores(out io.Writer, scores []promotion.Score) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	for i, s := range scores {
		names := slices.Sorted(maps.Keys(s.Metrics))
		if i == 0 {
			fmt.Fprintf(t, "stage\tproblems\t%s\t\n", strings.Join(names, "\t"))
		}
		fmt.Fprintf(t, "%s\t%d\t", s.Stage, s.Problems)
		for _, name := range names {
			fmt.Fprintf(t, "%.4g\t", s.Metrics[name])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
