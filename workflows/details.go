package workflows

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// details renders a run for the web UI, in Markdown.
func (s RunStatus) details(namespace string) string {
	head := fmt.Sprintf("**%s**", s.State)
	if s.SFTSteps > 0 && s.Stage == 0 {
		head += fmt.Sprintf(", SFT update %d of %d", s.SFTStep, s.SFTSteps)
	}
	if s.Stage > 0 {
		head += fmt.Sprintf(", stage %d (%s)", s.Stage, s.StageName)
		if s.Child == "" || s.State == StatePaused { // else only the stage knows
			head += fmt.Sprintf(", step %d of %d", s.Step, s.NumSteps)
		}
	}
	parts := []string{head + s.pauseText()}
	if s.Child != "" {
		parts = append(parts, fmt.Sprintf("The steps are on the page of [`%s`](%s).", s.Child, pageURL(namespace, s.Child)))
	}
	parts = append(parts, s.facts()...)
	if len(s.Stages) > 0 {
		parts = append(parts, stageTable(s.Stages))
	}
	return strings.Join(parts, "\n\n")
}

// pageURL is the page of a workflow in the web UI, as seen from another.
func pageURL(namespace, workflowID string) string {
	return fmt.Sprintf("namespaces/%s/workflows/%s", url.PathEscape(namespace), url.PathEscape(workflowID))
}

// pauseText says why, by whom and since when the run is paused or stopping.
func (s RunStatus) pauseText() string {
	text := escapeCell(byWhom(s.Reason, s.By))
	if s.Since != nil {
		text += ", since " + s.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// facts are the lines that an operator looks for: the parent of the run, its changes, its
// newest checkpoint and its successor.
func (s RunStatus) facts() []string {
	var out []string
	if s.Fork != nil {
		out = append(out, fmt.Sprintf("Fork of run `%s`, step %d", s.Fork.RunID, s.Fork.Step))
	}
	if s.Priority != 0 {
		out = append(out, fmt.Sprintf("Priority %d", s.Priority))
	}
	if s.Room != "" {
		out = append(out, "On the cluster it "+escapeCell(s.Room))
	}
	if s.Checkpoint != nil && (s.Child == "" || s.State == StatePaused) { // else only the stage knows
		out = append(out, fmt.Sprintf("A checkpoint is saved after step %d", *s.Checkpoint))
	}
	for _, a := range s.Alerts {
		out = append(out, "**Trouble**: "+escapeCell(a))
	}
	for _, a := range s.Amendments {
		out = append(out, "Amended "+escapeCell(a))
	}
	if s.Restarted != "" {
		out = append(out, fmt.Sprintf("Run `%s` goes on instead", s.Restarted))
	}
	return out
}

func stageTable(stages []StageStatus) string {
	rows := []string{
		"| stage | steps | accuracy before | after | tool errors before | after | note |",
		"|---|---|---|---|---|---|---|",
	}
	for _, g := range stages {
		rows = append(rows, fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s |", escapeCell(g.Name), g.Steps,
			g.Before.accuracy(), g.After.accuracy(), g.Before.toolErrors(), g.After.toolErrors(), escapeCell(g.Note)))
	}
	return strings.Join(rows, "\n")
}

// escapeCell keeps text within its cell: a stage's name is the user's, a note quotes
// the reason of a command.
func escapeCell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}

func (o *Outcome) accuracy() string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", o.Accuracy)
}

func (o *Outcome) toolErrors() string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", o.ToolErrorRate)
}

// stageDetails renders a stage with its newest steps for the web UI.
func stageDetails(s RunStatus, recent []StepNumbers) string {
	rows := []string{
		fmt.Sprintf("**%s**, stage %d (%s), step %d of %d%s", s.State, s.Stage, s.StageName, s.Step, s.NumSteps, s.pauseText()),
		"",
	}
	if s.Checkpoint != nil {
		rows = append(rows, fmt.Sprintf("A checkpoint is saved after step %d", *s.Checkpoint), "")
	}
	for _, a := range s.Alerts {
		rows = append(rows, "**Trouble**: "+escapeCell(a), "")
	}
	rows = append(rows,
		"| step | reward | tool errors | tokens | tokens/s | loss | time |",
		"|---|---|---|---|---|---|---|",
	)
	for _, n := range recent {
		rows = append(rows, fmt.Sprintf("| %d | %.3f | %.3f | %.0f | %.0f | %.4f | %s |", n.Step, n.Reward, n.ToolErrorRate,
			n.ResponseTokens, n.TokensPerSec, n.Loss, time.Duration(n.Seconds*float64(time.Second)).Round(time.Millisecond)))
	}
	return strings.Join(rows, "\n")
}
