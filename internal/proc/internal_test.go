package proc

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
	s.open()
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

func TestTailHasNoStacks(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"panic":       {"before\npanic: no room\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:3 +0x1d\n" + strings.Repeat("deep\n", 20000), "  before\n  panic: no room"},
		"fatal error": {"fatal error: out of memory\n\nruntime stack:\nruntime.throw({0x1, 0x2})\n", "  fatal error: out of memory"},
		"python":      {"before\nTraceback (most recent call last):\n  File \"a.py\", line 1\n    import b\nImportError: no b\n", "  before\n  ImportError: no b"},
		"none":        {"a goroutine ended\n", "  a goroutine ended"},
	} {
		path := t.TempDir() + "/log"
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tail(path, 0); got != c.want {
			t.Errorf("%s: tail = %q, want %q", name, got, c.want)
		}
	}
}

// TestClockStopsWhileTheProcessIsBusy, whether it runs or waits for a processor.
func TestClockStopsWhileTheProcessIsBusy(t *testing.T) {
	if busyTime(os.Getpid()) == 0 {
		t.Skip("this system does not say for how long a thread was busy")
	}
	const span = 500 * time.Millisecond
	busy := startClock(os.Getpid(), span)
	busy.busy = busyTime(os.Getpid())
	for end := time.Now().Add(2 * span); time.Now().Before(end); {
		if busy.expired() {
			t.Fatal("a process that works the whole time stood still")
		}
	}
	if busy.limit = span / 100; !busy.expired() {
		t.Error("a process may be busy without an end")
	}
	idle := startClock(1<<30, span) // nobody
	if idle.expired() {
		t.Error("expired at once")
	}
	time.Sleep(span + 10*time.Millisecond)
	if !idle.expired() {
		t.Error("a process that does nothing has all the time there is")
	}
}
