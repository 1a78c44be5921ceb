package trainerbench_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/tools/bench/trainerbench"
)

// python writes a program that stands for an interpreter: it is called with -c and a text.
func python(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return name
}

// TestTorchTakesTurns: each mode makes a first step and then those of each round, and its
// rates are those that it says of itself.
func TestTorchTakesTurns(t *testing.T) {
	c := tiny(t)
	asked := filepath.Join(t.TempDir(), "asked")
	c.Torch = python(t, `while read -r line; do
	echo "$line" >> `+asked+`
	echo '{"version": "9.9", "device": "cpu", "wall": 0.5, "cpu": 0.75, "loss": 3, "peak": 1048576}'
done
`)
	r, err := trainerbench.Train(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Torch) != 2 || r.Torch[0].Mode != "eager" || r.Torch[1].Mode != "compile" {
		t.Fatalf("reports %+v, want one of each mode", r.Torch)
	}
	for _, p := range r.Torch {
		if len(p.Rounds) != c.Rounds || p.Step.Wall != 500*time.Millisecond || p.Step.CPU != 750*time.Millisecond || p.PeakRSS != 1<<20 || p.Version != "9.9" {
			t.Errorf("%s: %+v", p.Mode, p)
		}
		if want := 3 * 16 / 0.5; p.TokensPerSecond != want || p.Ratio != r.TokensPerSecond/want || p.TokensPerCPUSecond != 64 {
			t.Errorf("%s: %g tokens/s, %g tokens/CPU-s, ratio %g; want %g, 64 and ours by it", p.Mode, p.TokensPerSecond, p.TokensPerCPUSecond, p.Ratio, want)
		}
	}
	lines, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(lines), "\n"), 2*(1+c.Rounds*c.Steps); got != want || !strings.Contains(string(lines), `"hidden":16`) {
		t.Errorf("%d lines, want %d, the first with the dimensions:\n%s", got, want, lines)
	}
}

// TestTorchSaysWhyItEnded: the last line of what the interpreter said is in the error.
func TestTorchSaysWhyItEnded(t *testing.T) {
	for name, script := range map[string]string{
		"at the start":  "read -r line; echo 'ModuleNotFoundError: no torch' >&2; exit 1\n",
		"in a step":     "read -r line; echo '{}'; read -r line; echo 'ModuleNotFoundError: no torch' >&2; exit 1\n",
		"without words": "exit 0\n",
	} {
		c := tiny(t)
		c.Torch = python(t, script)
		_, err := trainerbench.Train(t.Context(), c, nil)
		if err == nil || name != "without words" && !strings.Contains(err.Error(), "no torch") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
