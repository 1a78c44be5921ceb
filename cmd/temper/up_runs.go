package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/report"
	"temper/workflows"
)

const (
	// runsInterval is how often the screen asks for the runs that are going on.
	runsInterval = 2 * time.Second
	// runsTimeout bounds one question about a run.
	runsTimeout = 2 * time.Second
	// maxRunsAsked bounds the runs that are asked; the others are shown by what the
	// server lists.
	maxRunsAsked = 16
)

// nameOpenRuns names the runs that an earlier service left open: they go on now.
// A server that does not let us list is no reason not to serve.
func nameOpenRuns(ctx context.Context, c client.Client, s *screen, log *slog.Logger) {
	open, err := workflows.OpenRuns(ctx, c)
	if err != nil {
		log.Warn("open runs are unknown", "err", err)
	}
	for _, run := range open {
		s.line(fmt.Sprintf("run %s goes on: temper run follow %s shows it", run.RunID, run.RunID))
	}
}

// showRuns begins to keep a line for every run that is going on in the screen's
// block, except for the run that is followed there. The returned function ends that.
func showRuns(ctx context.Context, c client.Client, s *screen, followed string) (stop func()) {
	if !s.live {
		return func() {} // a log has the lines of the followed run alone
	}
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(runsInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			if lines, err := runLines(ctx, c, followed); err == nil { // else what is shown stays
				s.setRuns(lines)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); watcher.Wait() }
}

func runLines(ctx context.Context, c client.Client, followed string) ([]string, error) {
	list, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	open, err := workflows.OpenRuns(list, c)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i, run := range open {
		if run.RunID == followed {
			continue
		}
		status := workflows.RunStatus{RunID: run.RunID, State: run.State, StageName: run.Stage}
		if i < maxRunsAsked {
			ask, cancel := context.WithTimeout(ctx, runsTimeout)
			if known, err := workflows.Status(ask, c, run.RunID); err == nil { // else the list must do
				status = known
			}
			cancel()
		}
		lines = append(lines, runLine(status))
	}
	return lines, nil
}

// runLine is the progress of a run in fields, with what matters most first.
func runLine(s workflows.RunStatus) string {
	line := "run " + s.RunID + "  " + string(s.State)
	if s.StageName != "" {
		line += "  " + s.StageName
	}
	switch {
	case s.SFTStep < s.SFTSteps:
		line += fmt.Sprintf("  sft %d/%d", s.SFTStep, s.SFTSteps)
	case s.NumSteps > 0:
		line += fmt.Sprintf("  step %d/%d", s.Step, s.NumSteps)
	}
	if s.Last.Seconds > 0 {
		line += fmt.Sprintf("  reward %.2f  tool errors %.1f%%", s.Last.Reward, 100*s.Last.ToolErrorRate)
	}
	if s.ETASeconds > 0 {
		line += "  eta " + report.Duration(time.Duration(s.ETASeconds*float64(time.Second)))
	}
	return line
}
