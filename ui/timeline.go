package ui

import (
	"fmt"
	"slices"
	"time"

	"temper/internal/history"
	"temper/internal/series"
)

// Span is something of a run that took time.
type Span struct {
	// Kind is sft, filter, stage, evaluation, pause or save.
	Kind  string    `json:"kind"`
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Open says that it goes on.
	Open bool   `json:"open,omitempty"`
	Text string `json:"text,omitempty"`
	// Step is the last step of a stage, for a link.
	Step int `json:"step,omitempty"`
}

// Mark is something of a run at one moment.
type Mark struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
}

// TimelineView is a run on one axis of time.
type TimelineView struct {
	Spans []Span `json:"spans"`
	Marks []Mark `json:"marks"`
	// Missing names what this run does not record.
	Missing []string `json:"missing"`
}

func (s *Server) showTimeline(r *request) (TimelineView, error) {
	h, err := s.run(r)
	if err != nil {
		return TimelineView{}, err
	}
	entries, err := history.Follow(s.Store, h.ID(), history.Cursor{}).Poll(r.Context())
	if err != nil {
		return TimelineView{}, err
	}
	return timelineOf(entries), nil
}

func timelineOf(entries []history.Entry) TimelineView {
	out := TimelineView{Spans: []Span{}, Marks: []Mark{}, Missing: []string{"restarts of processes", "retries of activities", "times of saves and publications"}}
	stages := map[string]int{} // place among the spans
	var sft, pause *Span
	var last time.Time
	add := func(s *Span) {
		if s != nil {
			out.Spans = append(out.Spans, *s)
		}
	}
	for _, e := range entries {
		if e.At.After(last) {
			last = e.At
		}
		switch {
		case e.SFT != nil:
			if sft == nil {
				sft = &Span{Kind: "sft", Name: "SFT", Start: e.At.Add(-e.SFT.Result.TrainTime)}
			}
			sft.End, sft.Text = e.At, fmt.Sprintf("%d of %d updates, loss %.3f", e.SFT.To, e.SFT.Total, e.SFT.Result.Metrics.Loss)
		case e.Step != nil:
			at, ok := stages[e.Step.StageName]
			if !ok {
				at = len(out.Spans)
				stages[e.Step.StageName] = at
				out.Spans = append(out.Spans, Span{Kind: "stage", Name: e.Step.StageName, Start: e.Step.Started})
			}
			out.Spans[at].End, out.Spans[at].Step = e.Step.Ended, e.Step.Step
			out.Spans[at].Text = fmt.Sprintf("up to step %d of %d", e.Step.Step, e.Step.NumSteps)
		case e.Evaluation != nil:
			v := e.Evaluation
			add(&Span{
				Kind: "evaluation", Name: fmt.Sprintf("stage %d %s, policy %d", v.Stage, v.Label, v.PolicyVersion), Start: e.At.Add(-v.Wall), End: e.At,
				Text: fmt.Sprintf("accuracy %.2f on %d problems", v.Accuracy, v.NumProblems),
			})
		case e.Event != nil:
			out.Marks = append(out.Marks, Mark{At: e.At, Kind: e.Event.Kind, Text: e.Event.Plain()})
			switch e.Event.Kind {
			case "pause":
				if pause == nil {
					pause = &Span{Kind: "pause", Name: "paused", Start: e.At, Text: e.Event.Plain()}
				}
			case "resume", "stop", "cancel", "fail":
				if pause != nil {
					pause.End = e.At
					add(pause)
					pause = nil
				}
			}
		case e.Summary != nil:
			out.Marks = append(out.Marks, Mark{At: e.At, Kind: "end", Text: "the run has ended"})
		}
	}
	if pause != nil {
		pause.End, pause.Open = last, true
		add(pause)
	}
	add(sft)
	slices.SortStableFunc(out.Spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

// CheckpointRow is a checkpoint with the reward of the step that was made from it.
type CheckpointRow struct {
	history.Checkpoint
	Reward *Number `json:"reward,omitempty"`
}

// CheckpointsView are the checkpoints and policies of a run.
type CheckpointsView struct {
	Folder      string          `json:"folder"`
	Checkpoints []CheckpointRow `json:"checkpoints"`
	Policies    []int64         `json:"policies"`
}

func (s *Server) showCheckpoints(r *request) (CheckpointsView, error) {
	ctx := r.Context()
	out := CheckpointsView{Checkpoints: []CheckpointRow{}}
	h, err := s.run(r)
	if err != nil {
		return out, err
	}
	out.Folder = s.Store.Locate(h.CheckpointFolder())
	list, err := h.Checkpoints(ctx)
	if err != nil {
		return out, err
	}
	records, err := s.records(ctx, h)
	if err != nil {
		return out, err
	}
	reward := map[int]Number{}
	for _, rec := range records {
		if v, ok := rec.Metrics[series.Reward]; ok {
			reward[rec.Step] = Number(v)
		}
	}
	for _, c := range list {
		row := CheckpointRow{Checkpoint: c}
		if v, ok := reward[c.Step+1]; ok && h.Plan.Window == 0 { // with a window another step sampled with it
			row.Reward = &v
		}
		out.Checkpoints = append(out.Checkpoints, row)
	}
	out.Policies, err = h.Policies(ctx)
	out.Policies = orEmpty(out.Policies)
	return out, err
}
