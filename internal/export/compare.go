package export

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"temper/internal/run"
	"temper/internal/series"
)

// Compared is a finished run in a comparison.
type Compared struct {
	RunID   string           `json:"run_id"`
	Label   string           `json:"settings"` // what distinguishes it, for example "RoC on, seed 1"
	Summary run.Summary      `json:"summary"`
	Records []run.StepRecord `json:"records"`
}

// compareWindow is the number of steps that "early" and "final" average over.
const compareWindow = 10

// Compare writes one line a run: tool errors in correct trajectories (before
// resampling) over the first and the last steps, accuracy and response tokens
// of each stage at its end.
func Compare(w io.Writer, runs []Compared) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "run\tsettings\terrors in correct, steps 1-%d\tsteps 11-%d\tlast %d\tall tool errors, last %d\taccuracy by stage\ttokens by stage\tseconds\t\n",
		compareWindow, 2*compareWindow, compareWindow, compareWindow)
	for _, r := range runs {
		n := len(r.Records)
		accuracy, tokens := "", ""
		for _, st := range r.Summary.Stages {
			accuracy += " " + known(Number(st.AccuracyAfter, 3))
			tokens += " " + known(Number(st.MeanTokens, 1))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f\t\n", r.RunID, r.Label,
			mean(r.Records, 0, compareWindow, series.CorrectErrors),
			mean(r.Records, compareWindow, 2*compareWindow, series.CorrectErrors),
			mean(r.Records, n-compareWindow, n, series.CorrectErrors),
			mean(r.Records, n-compareWindow, n, series.ToolErrors),
			accuracy, tokens, r.Summary.WallSeconds)
	}
	return t.Flush()
}

// known marks the place of a number that does not exist.
func known(text string) string { return cmp.Or(text, "-") }

// mean averages a series over the records from, inclusive, to to, as far as they have it.
func mean(records []run.StepRecord, from, to int, metric string) string {
	from, to = max(0, from), min(len(records), to)
	sum, num := 0.0, 0
	for at := from; at < to; at++ {
		if v, ok := series.Known(records[at].Metrics, metric); ok {
			sum += v
			num++
		}
	}
	if num == 0 {
		return known("")
	}
	average := sum / float64(num)
	return Number(&average, 3)
}

// comparedSeries are the columns of CSV.
var comparedSeries = [...]string{
	series.Reward, series.ToolErrors, series.CorrectErrors, series.KeptErrors,
	series.Response, series.Turns, series.Entropy, series.GradNorm,
	series.GroupsDropped, series.StepSeconds, series.OtherSeconds,
}

// CSV writes the series of all runs, one line a step. A value that a step does not have is
// empty.
func CSV(w io.Writer, runs []Compared) error {
	out := csv.NewWriter(w)
	if err := out.Write(append([]string{"run", "settings", "stage", "step"}, comparedSeries[:]...)); err != nil {
		return err
	}
	for _, r := range runs {
		for _, rec := range r.Records {
			line := []string{r.RunID, r.Label, rec.StageName, strconv.Itoa(rec.Step)}
			for _, name := range comparedSeries {
				text := ""
				if v, ok := series.Known(rec.Metrics, name); ok {
					text = strconv.FormatFloat(v, 'g', 6, 64)
				}
				line = append(line, text)
			}
			if err := out.Write(line); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}
