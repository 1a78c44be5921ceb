package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

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
