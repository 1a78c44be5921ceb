package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"temper/internal/supervise"
)

// screen is the status screen of `temper up`. On a terminal the services stay
// in a block below the lines that scroll; elsewhere every change is a line.
//
// Invariant: on a terminal the cursor stands at the start of the line below the
// block, and no line of the block is wider than the terminal.
type screen struct {
	out      io.Writer
	live     bool
	size     func() (width, height int)
	snapshot func() []supervise.ChildState

	mu      sync.Mutex
	block   []string // what is drawn now
	status  string   // the progress line of the run
	partial []byte
	last    map[string]string // state of each service as last shown
	closed  bool

	stop    chan struct{}
	stopped chan struct{}
}

const (
	redrawInterval = 250 * time.Millisecond
	// maxStatusLines bounds the progress on a narrow terminal.
	maxStatusLines = 4
)

func newScreen(out io.Writer, snapshot func() []supervise.ChildState) *screen {
	s := &screen{
		out: out, live: isTerminal(out), size: sizeOf(out), snapshot: snapshot, last: map[string]string{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go s.loop()
	return s
}

// isTerminal reports whether w is a terminal that understands cursor movement.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// sizeOf asks the terminal each time: a person may resize it.
func sizeOf(w io.Writer) func() (int, int) {
	return func() (int, int) {
		if f, ok := w.(*os.File); ok {
			if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
				return width, height
			}
		}
		return 80, 24
	}
}

func (s *screen) loop() {
	defer close(s.stopped)
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.show("")
		}
	}
}

// line adds a line above the block.
func (s *screen) line(text string) { s.show(text + "\n") }

// Write splits text into lines, so that writers need not know the screen.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.partial = append(s.partial, p...)
	end := bytes.LastIndexByte(s.partial, '\n') + 1
	whole := string(s.partial[:end])
	s.partial = append([]byte(nil), s.partial[end:]...)
	s.mu.Unlock()
	if whole != "" {
		s.show(whole)
	}
	return len(p), nil
}

// setStatus shows the progress of the run in the block.
func (s *screen) setStatus(text string) {
	if !s.live {
		s.line(text)
		return
	}
	s.mu.Lock()
	s.status = text
	s.mu.Unlock()
	s.show("")
}

// show writes lines that stay, if any, and brings the block up to date, all in
// one write so that nothing flickers.
func (s *screen) show(lines string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	switch {
	case s.closed:
		b.WriteString(lines)
	case !s.live:
		b.WriteString(s.changes())
		b.WriteString(lines)
	default:
		width, height := s.size()
		block := s.layout(width, height)
		if lines == "" && equal(block, s.block) {
			return
		}
		b.WriteString(erase(s.block, width))
		b.WriteString(lines)
		for _, l := range block {
			b.WriteString(l + "\n")
		}
		s.block = block
	}
	_, _ = io.WriteString(s.out, b.String()) // a terminal that is gone takes the process with it
}

// layout is the block for a terminal of the given size.
func (s *screen) layout(width, height int) []string {
	block := []string{"", fmt.Sprintf("  %-9s %-10s %8s  %s", "service", "state", "pid", "restarts")}
	for _, c := range s.snapshot() {
		block = append(block, fmt.Sprintf("  %-9s %-10s %8d  %d %s", c.Name, c.State, c.PID, c.Restarts, c.LastExit))
	}
	if s.status != "" {
		block = append(block, wrapFields(s.status, width-3, maxStatusLines)...)
	}
	// The last line of the terminal is the cursor's.
	block = block[:max(1, min(len(block), height-1))]
	for i, l := range block {
		block[i] = truncate(strings.TrimRight(l, " "), width-1)
	}
	return block
}

// wrapFields breaks a text between its fields, which are two spaces apart.
func wrapFields(text string, width, maxLines int) []string {
	var lines []string
	line := " "
	for _, field := range strings.Split(text, "  ") {
		field = strings.TrimSpace(field)
		switch {
		case field == "":
		case line != " " && len(line)+2+len(field) > width && len(lines) < maxLines-1:
			lines = append(lines, line)
			line = "    " + field
		case line == " ":
			line += " " + field
		default:
			line += "  " + field
		}
	}
	return append(lines, line)
}

func truncate(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= max(0, width) {
		return text
	}
	return string(runes[:max(0, width)])
}

// erase removes the block that was drawn. A terminal that became narrower has
// wrapped its lines.
func erase(block []string, width int) string {
	rows := 0
	for _, l := range block {
		rows += max(1, (len([]rune(l))+width-1)/width)
	}
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", rows)
}

func equal(a, b []string) bool {
	return len(a) == len(b) && strings.Join(a, "\n") == strings.Join(b, "\n")
}

// changes is one line for every service whose state changed. What every start
// and every stop goes through is left out.
func (s *screen) changes() string {
	var b strings.Builder
	for _, c := range s.snapshot() {
		switch c.State {
		case supervise.StateWaiting, supervise.StateStarting, supervise.StateStopping, supervise.StateStopped:
			continue
		default:
		}
		text := fmt.Sprintf("%s (pid %d)", c.State, c.PID)
		switch {
		case c.State == supervise.StateBackoff, c.State == supervise.StateFailed:
			text = fmt.Sprintf("%s: %s", c.State, c.LastExit)
		case c.LastExit != "":
			text += fmt.Sprintf(", restart %d after: %s", c.Restarts, c.LastExit)
		}
		if s.last[c.Name] != text {
			s.last[c.Name] = text
			fmt.Fprintf(&b, "service %s: %s\n", c.Name, text)
		}
	}
	return b.String()
}

// close removes the block, so that the lines end the terminal's text, and stops
// redrawing. Lines may still follow.
func (s *screen) close() {
	close(s.stop)
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		width, _ := s.size()
		_, _ = io.WriteString(s.out, erase(s.block, width)) // see show
	}
	s.block, s.closed = nil, true
}
