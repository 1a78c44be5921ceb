package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/series"
	"temper/workflows"
)

// Span is something of a run that took time.
type Span struct {
	// Kind is sft, filter, stage, evaluation, pause or save.
	Kind  string    `json:"kind"`
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Open means that it has not ended.
	Open bool   `json:"open,omitempty"`
	Text string `json:"text,omitempty"`
	// Step is the last step of a stage, for a link.
	Step int `json:"step,omitempty"`
	// Link is the page of its workflow in Temporal's UI, where that address is known.
	Link string `json:"link,omitempty"`
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

func (rp *runPages) showTimeline(r *request) (TimelineView, error) {
	h, err := rp.reader.open(r)
	if err != nil {
		return TimelineView{}, err
	}
	entries, err := history.Follow(rp.reader.store, h.ID()).Poll(r.Context())
	if err != nil {
		return TimelineView{}, err
	}
	out := timelineOf(entries)
	for i := range out.Spans {
		out.Spans[i].Link = rp.workflowPage(h.Plan, out.Spans[i])
	}
	return out, nil
}

// workflowPage returns the page of the workflow behind a span: of its stage or of the run.
func (rp *runPages) workflowPage(plan run.Plan, span Span) string {
	if rp.temporalUI == "" {
		return ""
	}
	id := workflows.RunWorkflowID(plan.RunID)
	if span.Kind == "stage" {
		for _, stage := range plan.Stages {
			if stage.Name == span.Name {
				id = workflows.StageWorkflowID(plan.RunID, stage.Index, stage.Name)
			}
		}
	}
	return fmt.Sprintf("http://%s/namespaces/%s/workflows/%s", rp.temporalUI, url.PathEscape(rp.namespace), url.PathEscape(id))
}

func timelineOf(entries []history.Entry) TimelineView {
	l := timeline{out: TimelineView{Spans: []Span{}, Marks: []Mark{}, Missing: []string{"restarts of processes", "retries of activities", "times of saves and publications"}}, stages: map[string]int{}}
	var last time.Time
	for _, e := range entries {
		if e.At.After(last) {
			last = e.At
		}
		l.add(e)
	}
	if l.pause != nil {
		l.pause.Open = true
		l.endPause(last)
	}
	if l.sft != nil {
		l.out.Spans = append(l.out.Spans, *l.sft)
	}
	slices.SortStableFunc(l.out.Spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return l.out
}

// timeline builds a TimelineView.
type timeline struct {
	out        TimelineView
	stages     map[string]int // index in out.Spans
	sft, pause *Span          // begun and not ended
}

func (l *timeline) add(e history.Entry) {
	switch {
	case e.SFT != nil:
		if l.sft == nil {
			l.sft = &Span{Kind: "sft", Name: "SFT", Start: e.At.Add(-e.SFT.Result.TrainTime)}
		}
		l.sft.End, l.sft.Text = e.At, fmt.Sprintf("%d of %d updates, loss %.3f", e.SFT.To, e.SFT.Total, e.SFT.Result.Metrics.Loss)
	case e.Step != nil:
		l.addStep(e.Step)
	case e.Evaluation != nil:
		v := e.Evaluation
		l.out.Spans = append(l.out.Spans, Span{
			Kind: "evaluation", Name: fmt.Sprintf("%s %s, policy %d", cmp.Or(v.Set, fmt.Sprintf("stage %d", v.Stage)), v.Label, v.PolicyVersion), Start: e.At.Add(-v.Wall), End: e.At,
			Text: fmt.Sprintf("accuracy %.2f on %d problems", v.Accuracy, v.NumProblems),
		})
	case e.Event != nil:
		l.addEvent(e.At, e.Event)
	case e.Summary != nil:
		l.out.Marks = append(l.out.Marks, Mark{At: e.At, Kind: "end", Text: "the run has ended"})
	}
}

func (l *timeline) addStep(r *run.StepRecord) {
	at, ok := l.stages[r.StageName]
	if !ok {
		at = len(l.out.Spans)
		l.stages[r.StageName] = at
		l.out.Spans = append(l.out.Spans, Span{Kind: "stage", Name: r.StageName, Start: r.Started})
	}
	l.out.Spans[at].End, l.out.Spans[at].Step = r.Ended, r.Step
	l.out.Spans[at].Text = fmt.Sprintf("up to step %d of %d", r.Step, r.NumSteps)
}

func (l *timeline) addEvent(at time.Time, e *run.Event) {
	l.out.Marks = append(l.out.Marks, Mark{At: at, Kind: e.Kind, Text: e.Plain()})
	switch e.Kind {
	case run.EventPause:
		if l.pause == nil {
			l.pause = &Span{Kind: "pause", Name: "paused", Start: at, Text: e.Plain()}
		}
	case run.EventResume, run.EventStop, run.EventCancel, run.EventFail:
		l.endPause(at)
	}
}

func (l *timeline) endPause(at time.Time) {
	if l.pause == nil {
		return
	}
	l.pause.End = at
	l.out.Spans = append(l.out.Spans, *l.pause)
	l.pause = nil
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

func (rp *runPages) showCheckpoints(r *request) (CheckpointsView, error) {
	ctx := r.Context()
	out := CheckpointsView{Checkpoints: []CheckpointRow{}}
	h, err := rp.reader.open(r)
	if err != nil {
		return out, err
	}
	out.Folder = rp.reader.store.Locate(h.CheckpointFolder())
	list, err := h.Checkpoints(ctx)
	if err != nil {
		return out, err
	}
	records, err := rp.reader.records(ctx, h)
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
