package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"temper/internal/export"
	"temper/workflows"
)

// runsInterval is how often the screen asks for the open runs.
const runsInterval = 2 * time.Second

// ShowRuns begins to keep a line in the block for every run that list names. The
// returned function ends that. While list fails, what is shown stays.
func (s *Screen) ShowRuns(ctx context.Context, list func(context.Context) ([]workflows.RunStatus, error)) (stop func()) {
	if !s.live {
		return func() {} // a log has the lines of the followed run alone
	}
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(runsInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			if runs, err := list(ctx); err == nil {
				var lines []string
				for _, run := range runs {
					lines = append(lines, runLine(run))
				}
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
		line += "  eta " + export.Duration(time.Duration(s.ETASeconds*float64(time.Second)))
	}
	if len(s.Alerts) > 0 {
		line += "  trouble: " + strings.Join(s.Alerts, "; ")
	}
	return line
}
