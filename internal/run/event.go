package run

import (
	"strings"
	"time"
)

// Event records something worth reading in the run's event log.
type Event struct {
	Run  Ref       `json:"run"`
	Time time.Time `json:"time"`
	// Kind is one word: stage, pause, resume, stop, filter, checkpoint, skip, amend, repeat, fork, restart.
	Kind string `json:"kind"`
	Text string `json:"text"`
	// ID distinguishes entries of the same words: the workflow's type and the place of the
	// activity in it. LogEvent fills it in.
	ID string `json:"id,omitempty"`
	// Skip is set where a command ends a stage. Forks read it.
	Skip *Skip `json:"skip,omitempty"`
}

// Plain is the text without the types that Temporal adds to a failure.
func (e Event) Plain() string {
	if e.Kind != EventFail {
		return e.Text
	}
	plain, _, _ := strings.Cut(e.Text, " (type: ")
	return plain
}

// Kinds of events that are read back: EventSkip holds a Skip, the others say what
// becomes of the run.
const (
	EventSkip   = "skip"
	EventPause  = "pause"
	EventResume = "resume"
	EventStop   = "stop"
	EventCancel = "cancel"
	EventFail   = "fail"
)

// Skip is a stage that a command ended before its last step, or left out.
type Skip struct {
	Stage int `json:"stage"` // index from 1
	// After is the number of its steps that are made; 0 leaves the stage out.
	After int    `json:"after"`
	Why   string `json:"why,omitempty"`
}
