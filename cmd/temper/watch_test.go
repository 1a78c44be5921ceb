package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"temper/internal/history"
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
