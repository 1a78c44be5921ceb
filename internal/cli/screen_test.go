package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"temper/internal/proc"
	"temper/workflows"
)

// TestBlockStaysWholeOnATerminal draws on a small terminal with long names,
// long lines above the block, progress and a resize; what a person sees then is
// every line once, and the block once, below them.
func TestBlockStaysWholeOnATerminal(t *testing.T) {
	v := &vt{width: 40, height: 30}
	s := newTestScreen(v)
	s.states = []proc.ChildState{
		{Name: "temporal", State: proc.StateHealthy, PID: 11},
		{Name: "trainer", State: proc.StateBackoff, Restarts: 2, LastExit: "signal: killed (core dumped) and more text than fits"},
	}
	s.Line("first")
	s.SetStatus("step 1/9  hops-1  reward 0.10  tool errors 10.0%  length 20.0  eta 9s")
	s.Line("second " + strings.Repeat("long ", 20))
	if _, err := s.Write([]byte("third\nfour")); err != nil {
		t.Fatal(err)
	}
	s.SetStatus("step 2/9  hops-1  reward 0.20")
	if _, err := s.Write([]byte("th\n")); err != nil {
		t.Fatal(err)
	}
	v.width = 30
	s.show("")
	text := v.text()
	for _, want := range []string{"first", "third", "fourth", "service", "temporal", "trainer", "step 2/9"} {
		if n := strings.Count(text, want); n != 1 {
			t.Errorf("%q is there %d times, want once:\n%s", want, n, text)
		}
	}
	if strings.Contains(text, "step 1/9") {
		t.Errorf("old progress is left:\n%s", text)
	}
	if strings.Index(text, "fourth") > strings.Index(text, "service") {
		t.Errorf("a line is below the block:\n%s", text)
	}
	s.Close()
	if text := v.text(); strings.Contains(text, "service") || !strings.HasSuffix(strings.TrimSpace(text), "fourth") {
		t.Errorf("after close the lines do not end the text:\n%s", text)
	}
}

// TestBlockFitsTheTerminal: what is too much for it is cut, never wrapped by it.
func TestBlockFitsTheTerminal(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {20, 24}, {5, 3}, {1, 1}} {
		v := &vt{width: size.width, height: size.height}
		s := newTestScreen(v)
		for i := range 6 {
			s.states = append(s.states, proc.ChildState{Name: fmt.Sprint("child", i), State: proc.StateHealthy, LastExit: "exit status 1"})
		}
		s.status = strings.Repeat("a field of text  ", 30)
		block := s.layout(size.width, size.height)
		if len(block) > max(1, size.height-1) {
			t.Errorf("%v: %d lines, want at most %d", size, len(block), size.height-1)
		}
		for _, l := range block {
			if len(l) >= max(size.width, 1) {
				t.Errorf("%v: line of %d columns: %q", size, len(l), l)
			}
		}
		s.Close()
	}
}

// TestEveryRunIsShown, in 80 columns and with as many lines as there are; runs for
// which there is no room are counted.
func TestEveryRunIsShown(t *testing.T) {
	v := &vt{width: 80, height: 24}
	s := newTestScreen(v)
	s.states = []proc.ChildState{
		{Name: "rollout-10", State: proc.StateHealthy, PID: 7},
		{Name: "trainer", State: proc.StateHealthy, PID: 12345, Restarts: 3, LastExit: "killed: no answer for 1m0s, 10 checks (no good answer for 1m15s: context deadline exceeded)"},
	}
	var runs []string
	for i := range 4 {
		runs = append(runs, runLine(workflows.RunStatus{
			RunID: fmt.Sprintf("chase-2026-11-22-run-%d", i), State: workflows.StateTraining, StageName: "hops-and-verbs", Step: i, NumSteps: 100,
			Last: workflows.StepNumbers{Seconds: 2, Reward: 0.5, ToolErrorRate: 0.25}, ETASeconds: 3600,
		}))
	}
	s.setRuns(runs)
	text := v.text()
	for i := range 4 {
		for _, want := range []string{fmt.Sprintf("run chase-2026-11-22-run-%d", i), fmt.Sprintf("step %d/100", i)} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%q is not there once:\n%s", want, text)
			}
		}
	}
	for _, want := range []string{"deadline exceeded)", "eta 1h0m0s", "tool errors 25.0%"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is cut off:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if len(strings.TrimRight(line, "\n")) > 79 {
			t.Errorf("line of %d columns: %s", len(line), line)
		}
	}
	block := strings.Join(s.layout(80, 12), "\n")
	if !strings.Contains(block, "run chase-2026-11-22-run-1") || !strings.Contains(block, "and 2 more: temper run list") {
		t.Errorf("on 12 lines:\n%s", block)
	}
	s.Line("retrying SampleGroups: " + strings.Repeat("the sandbox does not answer ", 5) + "http://127.0.0.1:8233/" + strings.Repeat("long", 20))
	if text := v.text(); !strings.Contains(text, "\n    http://127.0.0.1:8233/") {
		t.Errorf("a long line is not folded before its address:\n%s", text)
	}
}

// TestPlainLinesTellChangesOnce: a log of a run says when a service came up or
// died, and not what every start goes through.
func TestPlainLinesTellChangesOnce(t *testing.T) {
	v := &vt{width: 80, height: 100}
	s := newTestScreen(v)
	s.live = false
	for _, state := range []proc.ChildState{
		{State: proc.StateWaiting}, {State: proc.StateStarting, PID: 5}, {State: proc.StateHealthy, PID: 5},
		{State: proc.StateHealthy, PID: 5}, {State: proc.StateBackoff, LastExit: "signal: killed"},
		{State: proc.StateStarting, PID: 6, Restarts: 1, LastExit: "signal: killed"},
		{State: proc.StateHealthy, PID: 6, Restarts: 1, LastExit: "signal: killed"},
		{State: proc.StateStopping, PID: 6, Restarts: 1}, {State: proc.StateStopped, Restarts: 1},
	} {
		state.Name = "trainer"
		s.states = []proc.ChildState{state}
		s.show("")
	}
	s.Close()
	want := "service trainer: healthy (pid 5)\nservice trainer: backoff: signal: killed\n" +
		"service trainer: healthy (pid 6), restart 1 after: signal: killed\n"
	if got := strings.TrimRight(v.text(), "\n") + "\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

type testScreen struct {
	*Screen
	states []proc.ChildState
}

func newTestScreen(v *vt) *testScreen {
	ts := &testScreen{}
	ts.Screen = &Screen{
		out: v, live: true, size: func() (int, int) { return v.width, v.height }, last: map[string]string{},
		snapshot: func() []proc.ChildState { return ts.states },
		stop:     make(chan struct{}), stopped: make(chan struct{}),
	}
	close(ts.stopped) // nobody redraws behind the test's back
	return ts
}

// vt is a terminal with what the screen uses: text that wraps, newline, return,
// cursor up and erase below.
type vt struct {
	width, height int

	mu   sync.Mutex
	rows []string
	row  int
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)([AJ])`)

func (v *vt) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reflow()
	for text := string(p); text != ""; {
		if m := escape.FindStringSubmatch(text); m != nil {
			v.control(m[1], m[2])
			text = text[len(m[0]):]
			continue
		}
		v.put(text[0])
		text = text[1:]
	}
	return len(p), nil
}

func (v *vt) control(arg, code string) {
	if code == "J" {
		v.rows = v.rows[:min(v.row, len(v.rows))]
		return
	}
	n, _ := strconv.Atoi(arg) // the pattern lets only digits through
	v.row = max(0, v.row-n)
}

func (v *vt) put(c byte) {
	for len(v.rows) <= v.row {
		v.rows = append(v.rows, "")
	}
	switch {
	case c == '\r':
	case c == '\n':
		v.row++
	case len(v.rows[v.row]) == v.width:
		v.row++
		v.put(c)
	default:
		v.rows[v.row] += string(c)
	}
}

// reflow wraps rows that are wider than the terminal has become.
func (v *vt) reflow() {
	var rows []string
	cursor := v.row
	for i, r := range v.rows {
		for len(r) > v.width {
			rows = append(rows, r[:v.width])
			r = r[v.width:]
			if i < cursor {
				v.row++
			}
		}
		rows = append(rows, r)
	}
	v.rows = rows
}

func (v *vt) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.rows, "\n")
}
