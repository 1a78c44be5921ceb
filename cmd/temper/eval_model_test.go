package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"temper/internal/cli"
)

// answering is a server of the model "m" that always says the same. asked counts questions.
func answering(t *testing.T, said string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
			return
		}
		asked.Add(1)
		_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": %q}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n", said)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// evaluation runs temper eval without tools.
func evaluation(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := evalCommand()
	var text bytes.Buffer
	cmd.SetArgs(append([]string{"--no-tools"}, args...))
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return text.String(), err
}

// problemFile is a file with one problem a line, of these answers.
func problemFile(t *testing.T, answers ...string) string {
	t.Helper()
	var lines strings.Builder
	for i, a := range answers {
		fmt.Fprintf(&lines, `{"id": "p%d", "env": "math", "prompt": "question %d?", "answer": %q}`+"\n", i, i, a)
	}
	name := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := os.WriteFile(name, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEvalOfAnotherServer with the same model's name is refused by the folder of the first,
// and prints none of its figures.
func TestEvalOfAnotherServer(t *testing.T) {
	a, _ := answering(t, `\boxed{4}`)
	b, asked := answering(t, `\boxed{5}`)
	t.Chdir(t.TempDir())
	set := "s=" + problemFile(t, "4")
	if out, err := evaluation(t, "--url", a, "--set", set); err != nil || !strings.Contains(out, "| s | 1 | 1 | 100.00 ") {
		t.Fatalf("%s: %v", out, err)
	}
	out, err := evaluation(t, "--url", b, "--set", set)
	if cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), "server \""+a+"\", now \""+b+"\"") || strings.Contains(out, "100.00") {
		t.Errorf("another server: %s: %v", out, err)
	}
	if out, err = evaluation(t, "--url", b, "--set", set, "--out", "b"); err != nil || !strings.Contains(out, "| s | 1 | 1 | 0.00 ") || asked.Load() != 1 {
		t.Errorf("in a folder of its own: %s: %v", out, err)
	}
}
