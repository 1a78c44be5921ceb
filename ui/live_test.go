package ui

import (
	"fmt"
	"testing"

	"temper/internal/history"
	"temper/internal/run"
)

// TestWatcherForgets what is older than its backlog, and says so to a page that was there
// before; every place of the backlog has what comes behind it.
func TestWatcherForgets(t *testing.T) {
	w := &watcher{run: "r", hub: &hub{}, clients: map[*client]bool{}}
	const entries = maxBacklog + 100
	places := []place{{}}
	for i := range entries {
		e := history.Entry{Key: fmt.Sprint("events/", i), Event: &run.Event{}}
		if i%3 == 0 {
			e = history.Entry{Key: fmt.Sprint("steps/", i), Step: &run.StepRecord{Step: i/3 + 1}}
		}
		w.add(e)
		places = append(places, w.at)
	}
	for _, seen := range []int{0, 1, 99, 100, 101, 500, entries - 1, entries} {
		missed, known := w.since(places[seen])
		if known != (seen >= 100) || known && len(missed) != entries-seen {
			t.Errorf("after %d of %d entries: %d missed, known %v", seen, entries, len(missed), known)
		}
	}
	for name, p := range map[string]place{
		"another order": {w.at.step, w.at.num - 1, w.at.sum}, "a later step": {w.at.step + 1, w.at.num, w.at.sum}, "more entries": {w.at.step, w.at.num + 1, w.at.sum + 1},
	} {
		if _, known := w.since(p); known {
			t.Errorf("%s is known", name)
		}
	}
}
