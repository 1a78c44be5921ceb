package workers_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/workers"
)

// TestASandboxThatDoesNotStart ends when its caller has gone.
func TestASandboxThatDoesNotStart(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nexec sleep 20\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	s, err := workers.StartSandbox(ctx, python, 1, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sandbox %v, error %v, want that of the caller's context", s, err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the start ended after %v", took)
	}
}
