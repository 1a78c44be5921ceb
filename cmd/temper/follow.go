package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/report"
	"temper/workflows"
)

const followInterval = 300 * time.Millisecond

// follow prints what a run writes to the store until its workflow ends, and
// returns the workflow's error.
func follow(ctx context.Context, c client.Client, store blob.Store, runID string, out io.Writer) error {
	ended := make(chan error, 1)
	go func() { ended <- c.GetWorkflow(ctx, workflows.RunWorkflowID(runID), "").Get(ctx, nil) }()
	t := tail{store: store, layout: artifact.Layout{RunID: runID}, out: out, seen: map[string]bool{}}
	if s, ok := out.(*screen); ok {
		t.progress = s.setStatus
	} else {
		t.progress = t.line
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if e := t.poll(ctx); e != nil && err == nil {
				err = e
			}
			return runFailure(err, runID)
		case <-tick.C:
			if err := t.poll(ctx); err != nil {
				return err
			}
			t.complain(ctx, c, runID)
			// The summary is the run's last act; the server may tell of the end late.
			if _, err := store.Stat(ctx, t.layout.Summary()); err == nil {
				return t.poll(ctx)
			}
		}
	}
}

// runFailure turns a failed workflow into one line; user mistakes keep exit code 2.
func runFailure(err error, runID string) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	switch app.Type() {
	case activities.ErrTypeInvalidConfig, activities.ErrTypeRunExists, activities.ErrTypeDataset:
		return usageError{errors.New(app.Message())}
	default:
		return fmt.Errorf("run %s: %s", runID, app.Message())
	}
}

// tail prints new records of a run in the order in which they appear.
type tail struct {
	store  blob.Store
	layout artifact.Layout
	out    io.Writer
	// progress shows a line that the next one may replace.
	progress func(string)
	seen     map[string]bool
	records  []artifact.StepRecord
	asked    time.Time // when trouble was last asked for
}

// troubleInterval is how often the server is asked for activities that fail and
// are retried: a run that waits for something says for what.
const troubleInterval = 3 * time.Second

// complain prints each new failure of a retried activity of the run once.
func (t *tail) complain(ctx context.Context, c client.Client, runID string) {
	if time.Since(t.asked) < troubleInterval {
		return
	}
	t.asked = time.Now()
	for _, trouble := range workflows.Troubles(ctx, c, runID) {
		if text := fmt.Sprintf("retrying %s: %s", trouble.Activity, trouble.Message); !t.seen[text] {
			t.seen[text] = true
			t.line(text)
		}
	}
}

func (t *tail) poll(ctx context.Context) error {
	if err := t.pollSFT(ctx); err != nil {
		return err
	}
	if err := t.pollEvents(ctx); err != nil {
		return err
	}
	if err := t.pollSteps(ctx); err != nil {
		return err
	}
	return t.pollEvals(ctx)
}

func (t *tail) pollSFT(ctx context.Context) error {
	if len(t.records) > 0 {
		return nil
	}
	infos, err := t.store.List(ctx, t.layout.Dir()+"/sft/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if t.seen[info.Key] {
			continue
		}
		var r activities.SFTRecord
		if err := blob.ReadJSON(ctx, t.store, info.Key, &r); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.progress(fmt.Sprintf("sft  %d/%d  loss %.3f  %s tok/s", r.To, r.Total, r.Result.Metrics.Loss, report.Count(r.Result.TokensPerSec)))
	}
	return nil
}

func (t *tail) pollEvents(ctx context.Context) error {
	infos, err := t.store.List(ctx, t.layout.Events()+"/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if t.seen[info.Key] {
			continue
		}
		var e activities.LogEventInput
		if err := blob.ReadJSON(ctx, t.store, info.Key, &e); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.line(e.Kind + ": " + e.Text)
	}
	return nil
}

func (t *tail) pollEvals(ctx context.Context) error {
	infos, err := t.store.List(ctx, t.layout.Dir()+"/evals/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if t.seen[info.Key] || !strings.HasSuffix(info.Key, ".json") {
			continue
		}
		var e activities.EvalResult
		if err := blob.ReadJSON(ctx, t.store, info.Key, &e); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.line(fmt.Sprintf("eval: stage %d %s, policy %d: accuracy %.2f, tool errors %.1f%%, %.1f tokens, %.1f turns (%d problems, %.1f s)",
			e.Stage, e.Label, e.PolicyVersion, e.Accuracy, 100*e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.NumProblems, e.Wall.Seconds()))
	}
	return nil
}

func (t *tail) pollSteps(ctx context.Context) error {
	for {
		rec, ok, err := artifact.Lookup[artifact.StepRecord](ctx, t.store, t.layout.StepLog(len(t.records)+1))
		if err != nil || !ok {
			return err
		}
		t.records = append(t.records, rec)
		t.progress(report.StepLine(rec, report.ETA(t.records)))
	}
}

// line adds a line that stays.
func (t *tail) line(text string) {
	fmt.Fprintln(t.out, strings.TrimRight(text, "\n"))
}
