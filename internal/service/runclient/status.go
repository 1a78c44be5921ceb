package runclient

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workers"
	"temper/workflows"
)

// Status asks the workflow of a run, and the store for what that does not know: how
// the run ended, and its checkpoints. The store alone tells of a run that has ended
// and that no server remembers.
func Status(ctx context.Context, p *config.Process, runID string) (workflows.RunStatus, error) {
	store, err := workers.OpenStore(ctx, p)
	if err != nil {
		return workflows.RunStatus{}, err
	}
	status, askErr := askStatus(ctx, p, runID)
	r, err := history.Open(ctx, store, runID)
	if fault.IsUsers(err) { // it has no folder yet, or lies in another store
		return status, askErr
	}
	if err != nil {
		return status, err
	}
	entry, err := r.Entry(ctx)
	if err != nil {
		return status, err
	}
	if askErr != nil && !entry.Ended() {
		return status, askErr
	}
	status = withPlace(status, entry)
	if cfg, err := r.Config(ctx); err == nil { // a status is shown whatever is damaged
		status.NotPromised = cfg.NotPromised()
	}
	step, saved, err := r.NewestCheckpoint(ctx)
	if saved {
		status.Checkpoint = &step
	}
	return withEntry(status, entry), err
}

func askStatus(ctx context.Context, p *config.Process, runID string) (workflows.RunStatus, error) {
	c, _, err := Connect(ctx, p, nil)
	if err != nil {
		return workflows.RunStatus{}, err
	}
	defer c.Close()
	status, err := workflows.Status(ctx, c, runID)
	if err != nil {
		err = UnknownRun(err, runID)
	}
	return status, err
}

// withEntry adds what the catalog knows of a run that has ended.
func withEntry(s workflows.RunStatus, e run.CatalogEntry) workflows.RunStatus {
	if !e.Ended() {
		return s
	}
	s.State, s.Reason, s.By = workflows.State(e.State), e.Reason, ""
	s.Since = &e.Updated
	if s.RunID == "" { // nothing else is known
		s.RunID, s.NumSteps, s.StageName = e.RunID, e.NumSteps, e.Stage
	}
	if s.Step < e.Step { // a stage that failed has not told the run
		s.Step, s.PolicyVersion = e.Step, max(s.PolicyVersion, int64(e.Step))
	}
	return s
}

// withPlace adds the progress of a run that does not answer: it is stuck, or the server has
// paused its workflow or its stage.
func withPlace(s workflows.RunStatus, e run.CatalogEntry) workflows.RunStatus {
	if s.Frozen == nil && s.State != workflows.StateStuck || e.Step <= s.Step {
		return s
	}
	s.Step, s.NumSteps, s.PolicyVersion, s.Last = e.Step, e.NumSteps, int64(e.Step), workflows.StepNumbers{}
	if s.StageName == "" {
		s.StageName = e.Stage
	}
	return s
}

// WriteStatus prints what is known of a run, one fact a line.
func WriteStatus(out io.Writer, s workflows.RunStatus) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(key, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	line("run", "%s", s.RunID)
	line("state", "%s", s.State)
	if s.Since != nil {
		line("since", "%s", s.Since.UTC().Format(time.RFC3339))
	}
	for key, text := range ordered("by", s.By, "reason", s.Reason) {
		line(key, "%s", strings.ReplaceAll(text, "\n", "; "))
	}
	if s.Frozen != nil {
		line("way out", "temper run resume %s, or Unpause on the page of %s in the web UI", s.RunID, s.Frozen.Workflow)
	}
	for _, a := range s.Alerts {
		line("trouble", "%s", a)
	}
	if s.SFTStep < s.SFTSteps {
		line("sft", "update %d of %d", s.SFTStep, s.SFTSteps)
	}
	if s.Stage > 0 {
		line("stage", "%d (%s)", s.Stage, s.StageName)
	}
	line("step", "%d of %d, policy %d", s.Step, s.NumSteps, s.PolicyVersion)
	if s.Last.Seconds > 0 {
		line("last step", "reward %.3f, tool errors %.3f, %.0f tokens, loss %.4f, %.1f s",
			s.Last.Reward, s.Last.ToolErrorRate, s.Last.ResponseTokens, s.Last.Loss, s.Last.Seconds)
	}
	if s.ETASeconds > 0 {
		line("remaining", "%s", time.Duration(s.ETASeconds*float64(time.Second)).Round(time.Second))
	}
	if s.NotPromised != "" {
		line("not promised", "%s", s.NotPromised)
	}
	writeOrigins(line, s)
	for _, g := range s.Stages {
		text := fmt.Sprintf("%d steps", g.Steps)
		if g.Before != nil && g.After != nil {
			text += fmt.Sprintf(", accuracy %s -> %s", export.Number(&g.Before.Accuracy, 2), export.Number(&g.After.Accuracy, 2))
		}
		if g.Note != "" {
			text += ", " + g.Note
		}
		line("  "+g.Name, "%s", text)
	}
	return t.Flush()
}

// writeOrigins writes the parent of a run, its changes and its successor.
func writeOrigins(line func(key, format string, args ...any), s workflows.RunStatus) {
	switch {
	case s.SFTStep > 0 && s.SFTStep < s.SFTSteps: // each chunk of SFT ends with one
		line("checkpoint", "after SFT update %d", s.SFTStep)
	case s.Checkpoint != nil:
		line("checkpoint", "after step %d", *s.Checkpoint)
	}
	if s.Room != "" {
		line("cluster", "%s", s.Room)
	}
	if s.Priority > 0 {
		line("priority", "%d", s.Priority)
	}
	if s.Fork != nil {
		line("fork of", "run %s, step %d", s.Fork.RunID, s.Fork.Step)
	}
	for _, a := range s.Amendments {
		line("amended", "%s", a)
	}
	for key, text := range ordered("restarted", s.Restarted, "summary", s.SummaryPath) {
		line(key, "%s", text)
	}
}

// ordered yields keys and values in turn, without the empty ones.
func ordered(pairs ...string) func(yield func(key, text string) bool) {
	return func(yield func(key, text string) bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] != "" && !yield(pairs[i], pairs[i+1]) {
				return
			}
		}
	}
}
