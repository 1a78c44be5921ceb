package supervise

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoffDoublesAndBeginsAnew(t *testing.T) {
	b := Backoff{Initial: 1, Max: 10, ResetAfter: 100}
	var got []time.Duration
	deaths := 0
	for _, healthyFor := range []time.Duration{0, 0, 0, 0, 0, 0, 100, 0} {
		var pause time.Duration
		deaths, pause = b.next(deaths, healthyFor)
		got = append(got, pause)
	}
	want := []time.Duration{1, 2, 4, 8, 10, 10, 1, 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// TestChildThatServedIsBackSoon: the time of its health counts as pause.
func TestChildThatServedIsBackSoon(t *testing.T) {
	b := Backoff{Initial: 1, Max: 10, ResetAfter: 100}
	var got []time.Duration
	deaths := 0
	for _, healthyFor := range []time.Duration{50, 50, 50, 50, 3, 0, 50} {
		var pause time.Duration
		deaths, pause = b.next(deaths, healthyFor)
		got = append(got, pause)
	}
	want := []time.Duration{1, 1, 1, 1, 7, 10, 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// A child must not die with the thread that happened to ask for it.
func TestProcessSurvivesTheThreadOfItsCaller(t *testing.T) {
	s := newSpawner()
	s.run()
	defer s.close()
	started := make(chan *process)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		p, err := s.start(Child{Path: "sleep", Args: []string{"60"}, LogFile: t.TempDir() + "/log"})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		return
	}
	select {
	case <-p.exited:
		t.Errorf("the process ended with its caller's thread: %s", p.status)
	case <-time.After(100 * time.Millisecond):
	}
	if p.stop(10*time.Second, nil) {
		t.Error("sleep did not stop on SIGTERM")
	}
}

func TestTailKeepsTheLastLinesOfThisLife(t *testing.T) {
	path := t.TempDir() + "/log"
	old := "old life\n"
	text := old + strings.Repeat("noise\n", 5000) + strings.Repeat("x\n", tailLines-1) + "end\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("  x\n", tailLines-1) + "  end"
	if got := tail(path, int64(len(old))); got != want {
		t.Errorf("tail = %q, want %q", got, want)
	}
	if got := tail(path, int64(len(text))); got != "" {
		t.Errorf("tail of a life that wrote nothing = %q", got)
	}
}
