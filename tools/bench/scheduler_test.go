package bench_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/tools/bench/schedulerbench"
)

func TestBenchScheduler(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "s.svg")
	small := []string{"bench", "scheduler", "--engines", "2", "--problems", "16", "--seeds", "1", "--ahead", "0"}
	var out, errs bytes.Buffer
	if code := execute(t, append(small, "--svg", svg), &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, word := range []string{"stage 1: bound", "stage 3: bound", "least requests", "oracle", "expected need takes"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the table lacks %q:\n%s", word, out.String())
		}
	}
	if text, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(text, []byte("<svg")) {
		t.Errorf("the plot is %.20q, error %v", text, err)
	}
	out.Reset()
	if code := execute(t, append(small, "--json", "--policies", "oracle"), &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var results []schedulerbench.Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != 2 {
		t.Errorf("%d results, error %v: want the oracle in two stages", len(results), err)
	}
}

func TestBenchSchedulerRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"--engines", "0"}, {"--problems", "-1"}, {"--problems", "1000000", "--rollouts", "1000"}, {"--seeds", "0"}, {"--past", "-1"}, {"--ahead", "1"},
		{"--tool-seconds", "NaN"}, {"--margin", "NaN"}, {"--bandwidth", "0"}, {"--compute", "NaN"}, {"--overhead", "-1"}, {"--capacity", "0"}, {"--policies", "nobody"},
	} {
		var out, errs bytes.Buffer
		if code := execute(t, append([]string{"bench", "scheduler"}, args...), &out, &errs); code != 2 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, want 2 and one line: %s", args, code, errs.String())
		}
	}
}
