package runclient

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/runtest"
)

// TestWatchDrawsBeforeAnythingHappens: a run that has left nothing yet is no empty terminal.
func TestWatchDrawsBeforeAnythingHappens(t *testing.T) {
	h := runtest.New(t, nil)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if err := (&watching{run: r, out: &out, draw: true}).until(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "demo") || !strings.Contains(out.String(), "no step has ended yet") {
		t.Errorf("the terminal shows %q", out.String())
	}
}

// TestWatchEndsWithARunThatFails, which leaves no summary; one that another execution has taken over goes on.
func TestWatchEndsWithARunThatFails(t *testing.T) {
	event := func(kind string) history.Entry { return history.Entry{Event: &run.Event{Kind: kind}} }
	for name, c := range map[string]struct {
		entries []history.Entry
		want    bool
	}{
		"failed":     {[]history.Entry{event(run.EventPause), event(run.EventFail)}, true},
		"cancelled":  {[]history.Entry{event(run.EventCancel)}, true},
		"taken over": {[]history.Entry{event(run.EventFail), event(run.EventTakeOver)}, false},
		"paused":     {[]history.Entry{event(run.EventPause)}, false},
	} {
		var out bytes.Buffer
		if ended, err := (&watching{out: &out}).show(t.Context(), c.entries); err != nil || ended != c.want {
			t.Errorf("%s: ended %v (%v)", name, ended, err)
		}
	}
}

// TestWatchOutlivesAnOutageWhileItDraws, and draws the end of the run when the store is there again.
func TestWatchOutlivesAnOutageWhileItDraws(t *testing.T) {
	h := runtest.New(t, nil)
	left := 0
	r, err := history.Open(t.Context(), outage{h.Store, &left, blob.ErrUnavailable}, "demo")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := &watching{run: r, out: &out, draw: true}
	left = 1
	if ended, err := w.show(t.Context(), []history.Entry{{Summary: &run.Summary{}}}); err != nil || ended {
		t.Fatalf("in the outage: ended %v (%v)", ended, err)
	}
	if ended, err := w.show(t.Context(), nil); err != nil || !ended || !strings.Contains(out.String(), "the run has ended") {
		t.Errorf("after the outage: ended %v (%v), and the terminal shows %q", ended, err, out.String())
	}
}
