package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"temper/internal/proc"
)

// Screen is the status screen of `temper up`. On a terminal the services and the
// runs stay in a block below the lines that scroll; elsewhere every change of a
// service is a line. Its methods may be called at the same time.
type Screen struct {
	out      io.Writer
	live     bool
	size     func() (width, height int)
	snapshot func() []proc.ChildState

	mu      sync.Mutex
	block   []string // what is drawn now
	status  string   // the progress of the run that is followed
	runs    []string // the progress of the others
	partial []byte
	last    map[string]string // state of each service as last shown
	closed  bool

	stop    chan struct{}
	stopped chan struct{}
}

const (
	redrawInterval = 250 * time.Millisecond
	// maxFold bounds the lines of one run or service on a narrow terminal.
	maxFold = 4
)

// New begins to show the services of snapshot on out; Close ends that.
func New(out io.Writer, snapshot func() []proc.ChildState) *Screen {
	s := &Screen{
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

// sizeOf asks the terminal each time, because a person may resize it.
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

func (s *Screen) loop() {
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

// Line adds a line above the block.
func (s *Screen) Line(text string) { s.show(text + "\n") }

// Write splits text into lines, so that writers need not know the screen.
func (s *Screen) Write(p []byte) (int, error) {
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

// Live reports whether the screen is a terminal with a block.
func (s *Screen) Live() bool { return s.live }

// SetStatus shows the progress of the run in the block.
func (s *Screen) SetStatus(text string) {
	if !s.live {
		s.Line(text)
		return
	}
	s.mu.Lock()
	s.status = text
	s.mu.Unlock()
	s.show("")
}

// setRuns shows the progress of further runs in the block.
func (s *Screen) setRuns(lines []string) {
	s.mu.Lock()
	s.runs = lines
	s.mu.Unlock()
	s.show("")
}

// show writes lines that stay, if any, and brings the block up to date, all in
// one write so that nothing flickers.
func (s *Screen) show(lines string) {
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
		b.WriteString(foldLines(lines, width-1))
		for _, l := range block {
			b.WriteString(l + "\n")
		}
		s.block = block
	}
	_, _ = io.WriteString(s.out, b.String()) // a terminal that is gone takes the process with it
}

// layout returns the block for a terminal of the given size. It names the runs that do not
// fit.
func (s *Screen) layout(width, height int) []string {
	states := s.snapshot()
	name := len("service")
	for _, c := range states {
		name = max(name, len(c.Name))
	}
	block := []string{"", fmt.Sprintf("  %-*s %-10s %8s  %s", name, "service", "state", "pid", "restarts")}
	for _, c := range states {
		block = append(block, foldBlock(fmt.Sprintf("%-*s %-10s %8d  %d", name, c.Name, c.State, c.PID, c.Restarts), c.LastExit, width-1)...)
	}
	if s.status != "" {
		block = append(block, foldBlock("", s.status, width-1)...)
	}
	// The last line of the terminal is the cursor's.
	for i, run := range s.runs {
		lines := foldBlock("", run, width-1)
		if left := len(s.runs) - i; len(block)+len(lines) > height-2 && (left > 1 || len(block)+len(lines) > height-1) {
			block = append(block, fmt.Sprintf("  and %d more: temper run list", left))
			break
		}
		block = append(block, lines...)
	}
	block = block[:max(1, min(len(block), height-1))]
	for i, l := range block {
		block[i] = truncate(strings.TrimRight(l, " "), width-1)
	}
	return block
}

// foldBlock is one entry of the block: a head that keeps its columns, and text.
func foldBlock(head, text string, width int) []string {
	f := folder{width: width, first: "  ", rest: "      ", cut: true}
	if head != "" {
		f.first += head + " "
	}
	lines := f.fold(text)
	return lines[:min(len(lines), maxFold)]
}

// foldLines folds lines that stay.
func foldLines(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) > width {
			f := folder{width: width, rest: "    "}
			line = strings.Join(f.fold(line), "\n")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func truncate(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= max(0, width) {
		return text
	}
	return string(runes[:max(0, width)])
}

// erase removes the block that was drawn. A terminal that has become narrower has
// wrapped the block's lines.
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

// changes returns one line for every service whose state changed. It leaves out the states
// that every start and every stop passes through.
func (s *Screen) changes() string {
	var b strings.Builder
	for _, c := range s.snapshot() {
		switch c.State {
		case proc.StateWaiting, proc.StateStarting, proc.StateStopping, proc.StateStopped:
			continue
		default:
		}
		text := fmt.Sprintf("%s (pid %d)", c.State, c.PID)
		switch {
		case c.State == proc.StateBackoff, c.State == proc.StateFailed:
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

// Close removes the block, so that the lines end the terminal's text, and stops
// redrawing. Lines may still follow.
func (s *Screen) Close() {
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
