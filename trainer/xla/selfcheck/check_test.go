package selfcheck_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/trainer/device"
	"temper/trainer/xla/selfcheck"
)

// TestTheGoBackendIsLikeItself: the same numbers, bit for bit, so that every difference
// that a check finds is the other backend's.
func TestTheGoBackendIsLikeItself(t *testing.T) {
	r, err := selfcheck.Run(t.Context(), "go", device.Mesh{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Logprobs != 0 || r.Generated != 0 || r.Weights != 0 || r.Loss != r.LossGo || r.Loss == 0 || r.Graphs == 0 {
		t.Errorf("report %+v", r)
	}
}

// TestAProcessThatDies is told apart from one that says what is wrong; both in one line.
func TestAProcessThatDies(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'corrupted size vs. prev_size' >&2; kill -ABRT $$": `backend "xla:x": the self-check did not end well: signal: aborted (core dumped): corrupted size vs. prev_size. The plugin does not fit`,
		"kill -SEGV $$": "it wrote nothing",
		"echo 'temper: backend \"xla:x\": no GPU' >&2; exit 1":  `backend "xla:x": no GPU`,
		"echo 'panic: x\n\ngoroutine 1 [running]:' >&2; exit 2": "exit status 2: panic: x",
		"echo text": "no report",
	} {
		_, err := selfcheck.Child(t.Context(), "xla:x", []string{"sh", "-c", script})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(strings.Replace(err.Error(), "aborted:", "aborted (core dumped):", 1), want) {
			t.Errorf("%s: %v, want one line with %q", script, err, want)
		}
		if dies := !strings.Contains(script, "no GPU"); dies != errors.Is(err, selfcheck.ErrFailed) {
			t.Errorf("%s: %v", script, err)
		}
	}
	r, err := selfcheck.Child(t.Context(), "xla:x", []string{"echo", `{"backend": "xla:x", "graphs": 4}`})
	if err != nil || r.Graphs != 4 {
		t.Errorf("report %+v, error %v", r, err)
	}
}

// TestOnceNeedsNoCheckOfTheGoBackend: it goes through no plugin.
func TestOnceNeedsNoCheckOfTheGoBackend(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	if err := selfcheck.Once(t.Context(), "go", []string{"sh", "-c", "touch " + mark}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the Go backend was checked")
	}
}
