package export

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"temper/internal/run"
	"temper/internal/series"
)

// StepLine is the progress line of one step.
func StepLine(r run.StepRecord, eta time.Duration) string {
	m := r.Metrics
	return fmt.Sprintf("step %*d/%d  %-8s  reward %.2f  tool errors %5.1f%%  length %5.1f  dropped %2.0f/%.0f  %7s tok/s  %.2f s  eta %s",
		len(fmt.Sprint(r.NumSteps)), r.Step, r.NumSteps, r.StageName,
		m[series.Reward], 100*m[series.ToolErrors], m[series.Response],
		m[series.GroupsDropped], m[series.Groups],
		Count(m[series.Throughput]), m[series.StepSeconds], Duration(eta))
}

// ETA estimates what is left of the RL steps from the records so far: the mean
// of the last ten steps for each step to come.
func ETA(records []run.StepRecord) time.Duration {
	if len(records) == 0 {
		return 0
	}
	recent := records[max(0, len(records)-10):]
	sum := 0.0
	for _, r := range recent {
		sum += r.Metrics[series.StepSeconds]
	}
	last := records[len(records)-1]
	left := float64(last.NumSteps-last.Step) * sum / float64(len(recent))
	return time.Duration(left * float64(time.Second))
}

// Count writes a number with a unit of thousands: 843, 9.8k, 1.2M.
func Count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// Number writes a measured number with some digits after the point. A number that was
// not measured is blank.
func Number(v *float64, digits int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}

func percent(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100**v)
}

// Duration rounds to seconds: 45s, 1m32s.
func Duration(d time.Duration) string { return d.Round(time.Second).String() }

// Size writes bytes with a binary unit.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d B", n)
	}
}

// Links are the places that the final table points to.
type Links struct {
	RunDir, SummaryPath, WebUI string
}

// Summary writes the closing tables of a run.
func Summary(w io.Writer, s run.Summary, links Links) error {
	var b strings.Builder
	if err := stageTable(&b, s.Stages); err != nil {
		return err
	}
	fmt.Fprintln(&b, "\nbefore = after SFT, before any RL; stage end = when the stage was done;")
	fmt.Fprintln(&b, "after = at the end of the run; on held-out problems; accuracy, tokens and turns")
	fmt.Fprintln(&b, "decoded greedily, tool errors sampled at the training temperature")
	for _, st := range s.Stages {
		if st.ProblemsTotal > 0 {
			why := "solved by every rollout"
			if st.FilterRule != "" {
				why = "since " + st.FilterRule + " stay"
			}
			fmt.Fprintf(&b, "filter before %s: %d of %d problems removed, %s\n", st.Name, st.ProblemsFiltered, st.ProblemsTotal, why)
		}
	}
	split := s.TimeSplit
	fmt.Fprintf(&b, "\nwall time %s: sample %.1f s, tools %.1f s, train %.1f s, other %.1f s\n",
		Duration(time.Duration(s.WallSeconds*float64(time.Second))), split.Sample, split.Tool, split.Train, split.Other)
	fmt.Fprintf(&b, "orchestration %.0f ms a step, %.1f%% of the median step; peak memory %s in all\n",
		s.OrchestrationMSPerStep, 100*s.OrchestrationShare, Size(s.PeakRSSBytes))
	if s.Stopped {
		fmt.Fprintln(&b, "the run was stopped before its last step")
	}
	fmt.Fprintf(&b, "\nrun     %s (seed %d)\nfolder  %s\nsummary %s\n", s.RunID, s.Seed, links.RunDir, links.SummaryPath)
	if links.WebUI != "" {
		fmt.Fprintf(&b, "web UI  %s\n", links.WebUI)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stageTable gives each stage four lines, so that it fits a narrow terminal.
func stageTable(w io.Writer, stages []run.StageSummary) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\tsteps\t\tbefore\tstage end\tafter\t")
	for _, st := range stages {
		fmt.Fprintf(t, "%s\t%d\taccuracy\t%s\t%s\t%s\t\n", st.Name, st.Steps,
			Number(st.AccuracyBefore, 2), Number(st.AccuracyStageEnd, 2), Number(st.AccuracyAfter, 2))
		fmt.Fprintf(t, "\t\ttool errors\t%s\t%s\t%s\t\n",
			percent(st.ToolErrorRateBefore), percent(st.ToolErrorRateStageEnd), percent(st.ToolErrorRateAfter))
		fmt.Fprintf(t, "\t\ttokens\t%s\t\t%s\t\n", Number(st.MeanTokensBefore, 1), Number(st.MeanTokens, 1))
		fmt.Fprintf(t, "\t\tturns\t%s\t\t%s\t\n", Number(st.MeanTurnsBefore, 1), Number(st.MeanTurns, 1))
	}
	return t.Flush()
}
