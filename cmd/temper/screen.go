package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"temper/internal/supervise"
)

// screen is the status screen of `temper up`. On a terminal the services stay
// in a block below the lines that scroll; elsewhere every change is a line.
type screen struct {
	out      io.Writer
	live     bool
	snapshot func() []supervise.ChildState

	mu      sync.Mutex
	drawn   int    // lines of the block on the terminal now
	status  string // the progress line of the run
	partial []byte
	last    map[string]string // state of each service as last shown

	stop    chan struct{}
	stopped chan struct{}
}

const redrawInterval = 250 * time.Millisecond

func newScreen(out io.Writer, snapshot func() []supervise.ChildState) *screen {
	s := &screen{
		out: out, live: isTerminal(out), snapshot: snapshot, last: map[string]string{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go s.loop()
	return s
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
			s.mu.Lock()
			s.refresh()
			s.mu.Unlock()
		}
	}
}

// line adds a line above the block.
func (s *screen) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintln(s.out, text)
	s.refresh()
}

// Write splits text into lines, so that writers need not know the screen.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, p...)
	end := bytes.LastIndexByte(s.partial, '\n')
	if end < 0 {
		return len(p), nil
	}
	s.erase()
	if _, err := s.out.Write(s.partial[:end+1]); err != nil {
		return 0, err
	}
	s.partial = append([]byte(nil), s.partial[end+1:]...)
	s.refresh()
	return len(p), nil
}

// setStatus shows the progress of the run in the block.
func (s *screen) setStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = text
	if !s.live {
		fmt.Fprintln(s.out, text)
		return
	}
	s.refresh()
}

func (s *screen) refresh() {
	states := s.snapshot()
	if !s.live {
		s.changes(states)
		return
	}
	s.erase()
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %-9s %-10s %8s  %s\n", "service", "state", "pid", "restarts")
	for _, c := range states {
		fmt.Fprintf(&b, "  %-9s %-10s %8d  %d %s\n", c.Name, c.State, c.PID, c.Restarts, c.LastExit)
	}
	if s.status != "" {
		fmt.Fprintf(&b, "  %s\n", s.status)
	}
	s.drawn = strings.Count(b.String(), "\n")
	_, _ = io.WriteString(s.out, b.String()) // a terminal that is gone takes the process with it
}

// changes writes one line for every service whose state changed.
func (s *screen) changes(states []supervise.ChildState) {
	for _, c := range states {
		text := fmt.Sprintf("%s (pid %d)", c.State, c.PID)
		if c.Restarts > 0 && c.LastExit != "" {
			text += fmt.Sprintf(", restart %d after: %s", c.Restarts, c.LastExit)
		}
		if s.last[c.Name] == text || c.State == supervise.StateWaiting || c.State == supervise.StateStarting {
			continue
		}
		s.last[c.Name] = text
		fmt.Fprintf(s.out, "service %s: %s\n", c.Name, text)
	}
}

func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// close leaves the last block on the terminal and stops redrawing.
func (s *screen) close() {
	close(s.stop)
	<-s.stopped
}
