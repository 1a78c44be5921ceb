package run

import (
	"time"
)

// Event records something worth reading in the run's event log.
type Event struct {
	Run  Ref       `json:"run"`
	Time time.Time `json:"time"`
	// Kind is one word: stage, pause, resume, stop, filter, checkpoint, skip, amend, repeat, fork, restart.
	Kind string `json:"kind"`
	Text string `json:"text"`
	// ID tells entries of the same words apart: the workflow's type and the place of
	// the activity in it. LogEvent fills it in.
	ID string `json:"id,omitempty"`
	// Skip is set where a stage is told to end; forks read it.
	Skip *Skip `json:"skip,omitempty"`
}

// EventSkip is the kind of the event that holds a Skip.
const EventSkip = "skip"

// Skip is a stage that was told to end before its last step, or to be left out.
type Skip struct {
	Stage int `json:"stage"` // index from 1
	// After is the number of its steps that are made; 0 leaves the stage out.
	After int    `json:"after"`
	Why   string `json:"why,omitempty"`
}
