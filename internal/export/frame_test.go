package export_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"temper/internal/export"
	"temper/internal/run"
	"temper/internal/series"
)

// TestFrameFitsTheTerminal, whatever the run says, and shows the newest of all.
func TestFrameFitsTheTerminal(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f := export.Frame{
		Entry: run.CatalogEntry{RunID: "demo", State: run.StateTraining, Step: 300, NumSteps: 510, Stage: "hops", Updated: now.Add(-3 * time.Second), Trouble: "bad \x1b[2J\u202e" + strings.Repeat("x", 500)},
		Now:   now,
	}
	for i := range 300 {
		v := float64(i)
		if i == 280 {
			v = math.NaN()
		}
		f.Records = append(f.Records, run.StepRecord{Step: i + 1, NumSteps: 510, Metrics: series.Values{series.Reward: v, series.StepSeconds: 1}})
		f.Log = append(f.Log, strings.Repeat("line ", 40))
	}
	f.Log = append(f.Log, "newest\x00line")
	lines := f.Lines(80, 24)
	text := strings.Join(lines, "\n")
	if len(lines) != 24 || strings.ContainsAny(text, "\x1b\x00\u202e") {
		t.Errorf("%d lines: %q", len(lines), text)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("%d letters: %q", utf8.RuneCountInString(line), line)
		}
	}
	for _, want := range []string{"demo  training  step 300/510", "newest entry 3s ago", "eta 3m30s", "299 ", "?", "█", `newest\x00line`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := (export.Frame{Entry: run.CatalogEntry{RunID: "new", State: run.StatePreparing}}).Lines(10, 2); len(got) != 2 {
		t.Errorf("a small terminal gets %q", got)
	}
}
