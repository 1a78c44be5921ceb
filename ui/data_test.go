package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"temper/ui"
)

// TestTimesOfATrajectory are in its answer, turn by turn.
func TestTimesOfATrajectory(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	got := read[ui.TrajectoryView](t, s, fmt.Sprintf("/runs/demo/steps/1/%s/0", firstGroup(t, h, 1).ProblemID))
	if got.Times != "" || got.Spent == nil || len(got.Spent.Turns) != len(got.TurnViews) {
		t.Fatalf("times %q, %+v of %d turns", got.Times, got.Spent, len(got.TurnViews))
	}
	for i, turn := range got.TurnViews {
		if len(got.Spent.Turns[i].Calls) != len(turn.Calls) {
			t.Errorf("turn %d: %d calls have times, want %d", i, len(got.Spent.Turns[i].Calls), len(turn.Calls))
		}
	}
}

// TestSearchStreams lines, the last of which says that it is done.
func TestSearchStreams(t *testing.T) {
	s := newSite(t, playedRun(t).Store, nil)
	resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/search?q=%3Canswer%3E&limit=2", "")
	lines := strings.Split(strings.TrimSpace(body), "\n")
	var end struct {
		Done, Truncated bool
		Hits            int
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || resp.StatusCode != http.StatusOK || !end.Done || end.Hits != 2 || !end.Truncated {
		t.Errorf("%s: %.400s", resp.Status, body)
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/search?q=(&regex=1", ""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "regular expression") {
		t.Errorf("a broken expression: %s: %.200s", resp.Status, body)
	}
}
