package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChatIsInterruptedWhileItOpens: a talk that has not begun has no answer that ctrl-c could cut.
func TestChatIsInterruptedWhileItOpens(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nexec sleep 20\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"data": [{"id": "m"}]}`) // to a client of this test
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	cmd := chatCommand(place())
	cmd.SetArgs([]string{"--url", server.URL, "--python", python})
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(io.Discard)
	begin := time.Now()
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the interruption", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it ended after %v", took)
	}
}
