package export

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"temper/internal/run"
	"temper/internal/series"
)

// StepTime prints where the time of a step went: who was waited for, and what was busy.
func StepTime(w io.Writer, r run.StepRecord) error {
	m := r.Metrics
	if _, err := fmt.Fprintf(w, "step %d of %d (%s), %.2f s\n", r.Step, r.NumSteps, r.StageName, m[series.StepSeconds]); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	waits := []row{
		{"sampling, waiting for the engine", m[series.GenSeconds]}, {"sampling, waiting for tools", m[series.ToolSeconds]},
		{"training", m[series.TrainSeconds]}, {"saving", m[series.SaveSeconds]}, {"other", m[series.OtherSeconds]},
	}
	tableRows(t, "wall seconds", waits, m[series.StepSeconds])
	if _, measured := m[series.EngineCPU]; !measured {
		fmt.Fprintln(t, "the step was made by a program that did not measure what was busy")
		return t.Flush()
	}
	work := []row{
		{"engine and rollouts", m[series.EngineCPU]}, {"sandbox", m[series.SandboxCPU]}, {"trainer", m[series.TrainerCPU]},
		{"all else on the machines", m[series.RestCPU]}, {"idle", m[series.IdleCPU]},
	}
	total := 0.0
	for _, r := range work {
		total += r.value
	}
	tableRows(t, "seconds of cores", work, total)
	fmt.Fprintf(t, "passes of the engine\t%.0f\n  requests in a pass, mean\t%.1f\n  all but a tenth, at least\t%.0f\n",
		m[series.EnginePasses], m[series.BusyRows], m[series.BusyRowsP10])
	if err := t.Flush(); err != nil || len(r.Busy) < 2 {
		return err
	}
	return workerTable(w, r.Busy)
}

type row struct {
	name  string
	value float64
}

func tableRows(t io.Writer, title string, all []row, whole float64) {
	fmt.Fprintln(t, title)
	for _, r := range all {
		share := ""
		if whole > 0 {
			share = fmt.Sprintf("%3.0f%%", 100*r.value/whole)
		}
		fmt.Fprintf(t, "  %s\t%.2f\t%s\n", r.name, r.value, share)
	}
}

// workerTable has a line for each process that sampled.
func workerTable(w io.Writer, parts []series.Busy) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.Join([]string{"worker", "cores", "wall s", "own s", "programs s", "sandbox s", "machine s", "idle s", ""}, "\t"))
	for _, p := range parts {
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", p.Worker, p.Cores,
			p.Wall.Seconds(), p.Process.Seconds(), p.Programs.Seconds(), p.Sandbox.Seconds(), p.Machine.Seconds(), p.Idle.Seconds())
	}
	return t.Flush()
}
