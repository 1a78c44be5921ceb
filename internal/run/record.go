package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/proc/failpoint"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

// StepInput is everything a step has to say.
type StepInput struct {
	Run       Ref          `json:"run"`
	Stage     int          `json:"stage"`
	StageName string       `json:"stage_name"`
	Step      int          `json:"step"`
	NumSteps  int          `json:"num_steps"`
	Sample    Sampled      `json:"sample"`
	Rollouts  StepRollouts `json:"rollouts"`
	Train     Trained      `json:"train"`
	Started   time.Time    `json:"started"`
	Ended     time.Time    `json:"ended"`
	// SampledBy is the policy that sampled the step, where that is not the one that the
	// step before published, and Staleness by how many updates it is older.
	SampledBy Policy `json:"sampled_by,omitzero"`
	Staleness int    `json:"staleness,omitempty"`
	// Spans are the policies that sample the trajectories of the step one after another,
	// the first of which is SampledBy; none where one samples all. Each is one update newer
	// than the one before. Short trajectories may have ended before the last.
	Spans []PolicySpan `json:"spans,omitempty"`
}

// usedSpans are the spans up to the last in which a token was sampled; none where that is
// the first.
func (in *StepInput) usedSpans() []PolicySpan {
	used := in.Spans
	for n := len(used); n > 1; n-- {
		if slices.ContainsFunc(in.Rollouts.Versions, func(v series.VersionTokens) bool { return v.Version == used[n-1].Policy.Version }) {
			return used[:n]
		}
	}
	return nil
}

// stalenessOf is by how many updates the version that sampled some tokens is older than the
// policy that learned.
func (in *StepInput) stalenessOf(version int64) int {
	for i, s := range in.Spans {
		if s.Policy.Version == version {
			return max(0, in.Staleness-i)
		}
	}
	return in.Staleness
}

// LogStep writes the record of a step and tests the step by the rules of the run's watch,
// each once. A retry returns the same and writes nothing. Independent objects are written
// concurrently, so that a disk syncs them together; the entry of the list of runs is one of
// them, since a retry writes it again.
func LogStep(ctx context.Context, store blob.Store, cfg config.Run, in StepInput) (Watched, error) {
	failpoint.Hit("record/before-step")
	w, err := newWatching(ctx, store, cfg, in)
	if err != nil {
		return Watched{}, err
	}
	layout, record, trouble := artifact.Layout{RunID: in.Run.RunID}, recordOf(in), firstTrouble(w.after)
	record.NotPromised = cfg.NotPromised()
	writes := []func(context.Context) error{
		func(ctx context.Context) error {
			stored, err := artifact.PutOnce(ctx, store, layout.Step(in.Step).Log(), record)
			if err == nil && cfg.At(in.Step).Tracker.TensorBoard {
				err = putEventFile(ctx, store, layout, stored)
			}
			return err
		},
		func(ctx context.Context) (err error) {
			w.after, err = artifact.PutOnce(ctx, store, layout.Step(in.Step).Watch(), w.after)
			return err
		},
		func(ctx context.Context) error {
			return noteInCatalog(ctx, store, in.Run.RunID, func(e *CatalogEntry) {
				e.AddStep(record)
				e.Trouble = trouble
			})
		},
	}
	if err := artifact.Each(ctx, len(writes), func(ctx context.Context, i int) error { return writes[i](ctx) }); err != nil {
		return Watched{}, err
	}
	StoreBlock(ctx, store, layout, in.Step)
	return w.report(ctx, store)
}

// putEventFile writes the event file of a step of its stored record: the time is in its name, and
// a step that was made again by another process has another one.
func putEventFile(ctx context.Context, store blob.Store, layout artifact.Layout, r StepRecord) error {
	data := series.Append(series.File(r.Started), r.Step, r.Ended, r.Metrics.Known())
	_, err := blob.PutBytes(ctx, store, layout.TensorBoard(r.Step, r.Ended), data, blob.Always)
	return err
}

// Event records something worth reading in the run's event log.
type Event struct {
	Run  Ref       `json:"run"`
	Time time.Time `json:"time"`
	// Kind is one word: stage, pause, resume, stop, filter, checkpoint, skip, amend, repeat, fork, restart, ignored, repair, takeover.
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
	// EventTakeOver records that another workflow execution continues the run.
	EventTakeOver = "takeover"
	// EventRepair says that a damaged or missing object was made again.
	EventRepair = "repair"
)

// Skip is a stage that a command ended before its last step, or left out.
type Skip struct {
	Stage int `json:"stage"` // index from 1
	// After is the number of its steps that are made; 0 leaves the stage out.
	After int    `json:"after"`
	Why   string `json:"why,omitempty"`
}

// LogEvent writes one entry of the run's event log, once where it has an ID: its
// time is part of its key, and differs when the task of a dead worker is repeated.
func LogEvent(ctx context.Context, store blob.Store, in Event) error {
	layout := artifact.Layout{RunID: in.Run.RunID}
	key := layout.Events().Entry(in.Time.UnixNano(), in.Kind, in.Text)
	there := false
	if in.ID != "" {
		var err error
		if there, err = hasEvent(ctx, store, layout, key, in.ID); err != nil {
			return err
		}
	}
	if !there {
		if _, err := artifact.PutOnce(ctx, store, key, in); err != nil {
			return err
		}
	}
	if !ChangesState(in.Kind) {
		return nil
	}
	return noteInCatalog(ctx, store, in.Run.RunID, func(e *CatalogEntry) { e.AddEvent(in) })
}

// hasEvent reports whether the entry with an id is there, under the key of any time.
func hasEvent(ctx context.Context, store blob.Store, layout artifact.Layout, key, id string) (bool, error) {
	infos, err := store.List(ctx, layout.Events().Dir()+"/")
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		if !artifact.SameEvent(info.Key, key) {
			continue
		}
		e, ok, err := artifact.Lookup[Event](ctx, store, info.Key)
		if err != nil || ok && e.ID == id {
			return true, err
		}
	}
	return false, nil
}

func recordOf(in StepInput) StepRecord {
	_, tools := splitWall(in.Sample.Wall, in.Sample.SampleTime, in.Sample.ToolTime)
	numbers := series.Step{
		Rollouts: in.Rollouts, Train: in.Train.Metrics, PolicyVersion: in.Train.Policy.Version, Staleness: in.Staleness, Tokens: in.Sample.Tokens,
		Wall: in.Ended.Sub(in.Started), Sampling: in.Sample.Wall, Tools: tools, Training: in.Train.TrainTime, Saving: in.Train.SaveTime, Publishing: in.Train.PublishTime,
		SamplingBusy: in.Sample.Busy, TrainingBusy: in.Train.Busy,
	}
	if numbers.TokenStaleness = float64(in.Staleness); len(in.Spans) > 0 {
		var sum, tokens float64
		for _, v := range in.Rollouts.Versions {
			sum += float64(v.Tokens * in.stalenessOf(v.Version))
			tokens += float64(v.Tokens)
		}
		numbers.TokenStaleness = sum / max(1, tokens)
	}
	var sampler *int64
	if in.Staleness > 0 {
		sampler = &in.SampledBy.Version
	}
	return StepRecord{
		SampledBy: sampler, Spans: versionSpans(in.usedSpans()),
		Step: in.Step, Stage: in.Stage, StageName: in.StageName, NumSteps: in.NumSteps,
		Started: in.Started, Ended: in.Ended, Metrics: numbers.Values(), Busy: in.Sample.Busy,
	}
}

func versionSpans(spans []PolicySpan) []VersionSpan {
	var out []VersionSpan
	for _, s := range spans {
		out = append(out, VersionSpan{Until: s.Until, Version: s.Policy.Version})
	}
	return out
}

// splitWall divides wall time of concurrent rollouts by what they waited for.
func splitWall(wall, sample, tool time.Duration) (gen, tools time.Duration) {
	if sample+tool <= 0 {
		return wall, 0
	}
	tools = time.Duration(float64(wall) * float64(tool) / float64(sample+tool))
	return wall - tools, tools
}

// RecordOf returns the record of a step alone.
func RecordOf(records []StepRecord, step int) ([]StepRecord, error) {
	at := slices.IndexFunc(records, func(r StepRecord) bool { return r.Step == step })
	if at < 0 {
		return nil, fmt.Errorf("has the records of %d steps", len(records))
	}
	return records[at : at+1], nil
}
