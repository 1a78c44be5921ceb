package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

// States of a run in the catalog. The workflow of an open run knows its state more
// precisely.
const (
	StatePreparing = "preparing"
	StateTraining  = "training"
	StatePaused    = "paused"
	StateDone      = "done"
	StateStopped   = "stopped"
	StateFailed    = "failed"
	// StateDamaged is the state of a run whose folder cannot be read, for the reason given.
	StateDamaged = "damaged"
)

// CatalogEntry is what the list of runs says of one. It is an index: everything in
// it lies in the run's folder, too. Facts may be added again and in any order of
// writers; the newest counts, by the time of the run's workflow.
type CatalogEntry struct {
	RunID string `json:"run_id"`
	// Format is the run's; see Format. An entry of another format counts as absent.
	Format int    `json:"format"`
	Name   string `json:"name,omitempty"`
	Seed   uint64 `json:"seed"`
	State  string `json:"state"`
	// Reason is why the run stands, was stopped or failed.
	Reason string `json:"reason,omitempty"`
	// Refused marks a run that was never opened; it has no folder.
	Refused bool `json:"refused,omitempty"`
	// Trouble is the first rule of the watch that is broken; see config.Watch.
	Trouble string `json:"trouble,omitempty"`
	Stage   string `json:"stage,omitempty"`
	// Step is the newest that has a record, of NumSteps, Reward its mean reward.
	Step     int       `json:"step"`
	NumSteps int       `json:"num_steps"`
	Reward   *float64  `json:"reward,omitempty"`
	Fork     *ForkFrom `json:"fork,omitempty"`
	// Stages are the accuracies of a run that has ended.
	Stages  []StageAccuracy `json:"stages,omitempty"`
	Tags    []string        `json:"tags,omitempty"`
	Started time.Time       `json:"started,omitzero"`
	Updated time.Time       `json:"updated,omitzero"`
}

// StageAccuracy is what a stage changed; nil where it was not measured.
type StageAccuracy struct {
	Name   string   `json:"name"`
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
}

// Ended reports whether the run has ended, in whatever way.
func (e *CatalogEntry) Ended() bool {
	return e.State == StateDone || e.State == StateStopped || e.State == StateFailed || e.State == StateDamaged
}

// AddPlan adds what is known of a run when it is opened.
func (e *CatalogEntry) AddPlan(plan Plan, name string, at time.Time) {
	e.RunID, e.Format, e.Name, e.Seed, e.NumSteps = plan.RunID, Format, name, plan.Seed, plan.NumSteps()
	if f := plan.Fork; f != nil {
		e.Fork = &ForkFrom{RunID: f.RunID, Step: f.Step}
		e.Step = max(e.Step, f.Step)
	}
	if e.State == "" {
		e.State, e.Started = StatePreparing, at // not Updated: another clock made this time
	}
}

// AddStep adds the record of a step.
func (e *CatalogEntry) AddStep(r StepRecord) {
	if r.Step < e.Step {
		return
	}
	e.Step, e.NumSteps, e.Stage, e.Reward = r.Step, r.NumSteps, r.StageName, nil
	if reward := r.Metrics[series.Reward]; !math.IsNaN(reward) && !math.IsInf(reward, 0) {
		e.Reward = &reward
	}
	if e.Started.IsZero() {
		e.Started = r.Started
	}
	e.turn(StateTraining, "", r.Ended)
}

// ChangesState reports whether events of a kind say what becomes of a run.
func ChangesState(kind string) bool {
	switch kind {
	case EventPause, EventResume, EventStop, EventCancel, EventFail, EventTakeOver:
		return true
	default:
		return false
	}
}

// AddEvent adds an entry of the event log.
func (e *CatalogEntry) AddEvent(ev Event) {
	switch ev.Kind {
	case EventPause:
		e.turn(StatePaused, ev.Text, ev.Time)
	case EventStop, EventCancel:
		e.turn(StateStopped, ev.Text, ev.Time)
	case EventFail:
		e.turn(StateFailed, ev.Plain(), ev.Time)
	case EventResume, EventTakeOver:
		state := StateTraining
		if e.Reward == nil { // no step was made yet
			state = StatePreparing
		}
		e.turn(state, "", ev.Time)
	}
}

// AddSummary adds the outcome of a run. The event of a stop has said why.
func (e *CatalogEntry) AddSummary(s Summary) {
	state, reason := StateDone, ""
	if s.Stopped {
		state = StateStopped
		if e.State == StateStopped {
			reason = e.Reason
		}
	}
	e.Started, e.Stages = s.Started, nil
	for _, st := range s.Stages {
		e.Stages = append(e.Stages, StageAccuracy{Name: st.Name, Before: st.AccuracyBefore, After: st.AccuracyAfter})
	}
	e.turn(state, reason, s.Ended)
}

// turn changes the state unless a later fact is known.
func (e *CatalogEntry) turn(state, reason string, at time.Time) {
	if at.Before(e.Updated) {
		return
	}
	e.State, e.Reason, e.Updated = state, reason, at
}

// EntryOfPlan is the entry of a run by its plan alone. Errors: blob.ErrNotExist.
func EntryOfPlan(ctx context.Context, store blob.Store, runID string) (CatalogEntry, Plan, error) {
	var e CatalogEntry
	plan, ok, err := StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fmt.Errorf("plan of run %s: %w", runID, blob.ErrNotExist)
	}
	if err != nil {
		return e, plan, err
	}
	opened, err := store.Stat(ctx, artifact.Layout{RunID: runID}.Plan())
	if err != nil {
		return e, plan, err
	}
	cfg, err := ReadConfig(ctx, store, Ref{RunID: runID, Config: plan.Config})
	e.AddPlan(plan, cfg.Name, opened.ModTime)
	if notes, err := ReadNotes(ctx, store, runID); err == nil && len(notes.Tags) > 0 { // without them the list is still right
		e.Tags = notes.Tags
	}
	return e, plan, err
}

// noteInCatalog adds a fact to the entry of a run. It costs a read and, where the
// fact is news, a write of one small object. Of two writers at once the last one
// wins, and what the other one knew is added with the next fact.
func noteInCatalog(ctx context.Context, store blob.Store, runID string, add func(*CatalogEntry)) error {
	var e CatalogEntry
	key := artifact.Layout{RunID: runID}.Catalog()
	old, err := blob.ReadKey(ctx, store, key)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	if err != nil || json.Unmarshal(old, &e) != nil || e.Format != Format { // it is missing or damaged
		e, _, err = EntryOfPlan(ctx, store, runID)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return err
		}
	}
	e.RunID, e.Format = runID, Format
	add(&e)
	data, err := json.Marshal(e)
	if err != nil || bytes.Equal(data, old) {
		return err
	}
	_, err = blob.PutBytes(ctx, store, key, data, blob.Always)
	return err
}

// PutEntry stores the entry of a run.
func PutEntry(ctx context.Context, store blob.Store, e CatalogEntry, cond blob.Condition) error {
	e.Format = Format
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = blob.PutBytes(ctx, store, artifact.Layout{RunID: e.RunID}.Catalog(), data, cond)
	return err
}

// Notes are what people say of a run. Nothing that a run does depends on them.
type Notes struct {
	Tags []string  `json:"tags"`
	Text string    `json:"text"`
	By   string    `json:"by,omitempty"`
	Time time.Time `json:"time,omitzero"`
}

// Bounds of notes.
const (
	maxTags    = 20
	maxTag     = 40
	maxNote    = 20_000
	maxBy      = 200
	tagSymbols = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// Validate says what is wrong with notes.
func (n Notes) Validate() error {
	if len(n.Tags) > maxTags || len(n.Text) > maxNote {
		return fault.Newf(fault.Refused, "%d tags and a note of %d bytes: at most %d and %d are kept", len(n.Tags), len(n.Text), maxTags, maxNote)
	}
	if len(n.By) > maxBy {
		return fault.Newf(fault.Refused, "by %.80q and more: a name of at most %d bytes is kept", n.By, maxBy)
	}
	for _, tag := range n.Tags {
		if tag == "" || len(tag) > maxTag || strings.Trim(tag, tagSymbols) != "" {
			return fault.Newf(fault.Refused, "tag %.80q: want 1 to %d letters, digits, dots, underscores and hyphens", tag, maxTag)
		}
	}
	return nil
}

// ReadNotes reads the notes of a run; there may be none.
func ReadNotes(ctx context.Context, store blob.Store, runID string) (Notes, error) {
	n, _, err := artifact.Lookup[Notes](ctx, store, artifact.Layout{RunID: runID}.Notes())
	if n.Tags == nil {
		n.Tags = []string{}
	}
	return n, err
}

// PutNotes replaces the notes of a run, and its tags in the catalog. Errors: Refused.
func PutNotes(ctx context.Context, store blob.Store, runID string, n Notes) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if _, err := blob.PutJSON(ctx, store, artifact.Layout{RunID: runID}.Notes(), n, blob.Always); err != nil {
		return err
	}
	return noteInCatalog(ctx, store, runID, func(e *CatalogEntry) { e.Tags = n.Tags })
}
