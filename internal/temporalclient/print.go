package temporalclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"temper/internal/rules"
	"temper/internal/run/retrain"
)

// PrintTable writes a line for each schedule.
func PrintTable(out io.Writer, views []View) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SCHEDULE\tNEXT\tGOOD POLICY\tLAST")
	for _, v := range views {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.ID, v.Due(), cmp.Or(v.Good, "none yet"), v.Last)
	}
	return t.Flush()
}

// Print writes a schedule with its Details.
func Print(out io.Writer, v View) error {
	d, in := v.Details, v.Retrain
	fmt.Fprintf(out, "schedule     %s, %s\n", v.ID, v.DueWords())
	if v.Note != "" {
		fmt.Fprintf(out, "note         %s\n", v.Note)
	}
	gate := in.Gate
	if len(gate) == 0 {
		gate = []string{rules.DefaultRule}
	}
	fmt.Fprintf(out, "when         %s\n", strings.Join(d.When, "; "))
	fmt.Fprintf(out, "recipe       %s\ndata         %s\ngate         %s\n", recipeName(in), strings.Join(in.Data, ", "), strings.Join(gate, ", "))
	if len(in.Stages) > 0 {
		fmt.Fprintf(out, "stages       %s\n", strings.Join(in.Stages, ", "))
	}
	fmt.Fprintf(out, "overlap      %s; catch-up %s after an outage", d.Overlap, time.Duration(d.CatchupSeconds*float64(time.Second)))
	if d.PauseOnFailure {
		fmt.Fprint(out, "; pauses on a failure")
	}
	fmt.Fprintln(out)
	if d.Skipped+d.Missed > 0 {
		fmt.Fprintf(out, "left out     %d while another one was going on, %d later than the catch-up\n", d.Skipped, d.Missed)
	}
	if len(d.Running) > 0 {
		fmt.Fprintf(out, "going on     %s\n", strings.Join(d.Running, ", "))
	}
	fmt.Fprintf(out, "good policy  %s\n", cmp.Or(v.Good, "none yet"))
	if d.Policy != nil {
		fmt.Fprintf(out, "published    %s, %s\n\n", d.Policy.Published.Format(time.RFC3339), d.PolicyPath)
		if err := printScores(out, d.Policy.Scores); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	for _, e := range d.Events {
		_, err = fmt.Fprintf(out, "%s  %-8s %s\n", e.Time.Format(time.RFC3339), e.Kind, e.Text)
	}
	return err
}

// DueWords is Due in a sentence.
func (v View) DueWords() string {
	if !v.Paused && v.Next != nil {
		return "next at " + v.Due()
	}
	return v.Due()
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

// printScores prints a line for each stage.
func printScores(out io.Writer, scores []rules.GateScore) error {
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
