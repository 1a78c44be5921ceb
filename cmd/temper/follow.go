package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/fault"
	"temper/internal/report"
	"temper/internal/run"
	"temper/workflows"
)

const (
	followInterval = 300 * time.Millisecond
	// closeTimeout is what a run may take from its summary to its end.
	closeTimeout = 10 * time.Second
)

// follow prints what a run writes to the store until its workflow ends, and
// returns the workflow's error.
func follow(ctx context.Context, c client.Client, store blob.Store, runID string, out io.Writer) error {
	workflowID, err := workflows.FindRun(ctx, c, runID)
	if err != nil {
		return unknownRun(err, runID)
	}
	t := tail{store: store, layout: artifact.Layout{RunID: runID}, out: out, seen: map[string]bool{}}
	if s, ok := out.(*screen); ok {
		t.progress = s.setStatus
	} else {
		t.progress = t.line
	}
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { ended <- c.GetWorkflow(waiting, workflowID, "").Get(waiting, nil) })
	defer waiter.Wait()
	defer cancel()
	err = t.until(ctx, c, workflowID, ended)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: run %s goes on while the service is up; temper run follow %s shows it", cli.ErrInterrupted, runID, runID)
	}
	return runFailure(err, runID)
}

// until prints until the workflow ends, and returns its error.
func (t *tail) until(ctx context.Context, c client.Client, workflowID string, ended <-chan error) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	var late <-chan time.Time
	for {
		select {
		case err := <-ended:
			return cmp.Or(err, t.last(ctx))
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return nil
		case <-tick.C:
			if err := t.patient(t.poll(ctx)); err != nil {
				return err
			}
			t.complain(ctx, c, workflowID)
			// The summary is the run's last act; the server may tell of the end late.
			if _, err := t.store.Stat(ctx, t.layout.Summary()); err == nil && late == nil {
				late = time.After(closeTimeout)
			}
		}
	}
}

// patient lets a store that does not answer pass, as the run itself does, and
// tells of it once.
func (t *tail) patient(err error) error {
	if err == nil {
		t.silent = false
	}
	if !errors.Is(err, blob.ErrUnavailable) {
		return err
	}
	if !t.silent {
		t.silent = true
		t.line("waiting for the store: " + err.Error())
	}
	return nil
}

// last polls once more when the run has ended, and gives a store that comes back
// some time.
func (t *tail) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for {
		err := t.poll(ctx)
		if err == nil || t.patient(err) != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(followInterval):
		}
	}
}

// runFailure turns a failed workflow into one line; user mistakes keep exit code 2.
func runFailure(err error, runID string) error {
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	var terminated *temporal.TerminatedError
	switch {
	case errors.As(err, &app):
	case errors.As(err, &canceled):
		return fmt.Errorf("run %s was cancelled", runID)
	case errors.As(err, &terminated):
		return fmt.Errorf("run %s was terminated: %s", runID, terminated.Error())
	default:
		return err
	}
	switch app.Type() {
	case string(fault.InvalidConfig), string(fault.RunExists), string(fault.Dataset):
		return cli.Usage(errors.New(app.Message()))
	default:
		return fmt.Errorf("run %s: %s", runID, app.Message())
	}
}

// tail prints new records of a run in the order in which they were made.
type tail struct {
	store  blob.Store
	layout artifact.Layout
	out    io.Writer
	// progress shows a line that the next one may replace.
	progress func(string)
	seen     map[string]bool
	records  []artifact.StepRecord
	found    []finding // since the last poll
	asked    time.Time // when trouble was last asked for
	silent   bool      // the store was silent at the last poll, and that was told
}

// finding is a new record as a line.
type finding struct {
	at    time.Time
	stays bool
	text  string
}

// troubleInterval is how often the server is asked for activities that fail and
// are retried: a run that waits for something says for what.
const troubleInterval = 3 * time.Second

// complain prints each new failure of a retried activity of the run once.
func (t *tail) complain(ctx context.Context, c client.Client, workflowID string) {
	if time.Since(t.asked) < troubleInterval {
		return
	}
	t.asked = time.Now()
	for _, trouble := range workflows.Troubles(ctx, c, workflowID) {
		if text := fmt.Sprintf("retrying %s: %s", trouble.Activity, trouble.Message); !t.seen[text] {
			t.seen[text] = true
			t.line(text)
		}
	}
}

func (t *tail) poll(ctx context.Context) error {
	t.found = t.found[:0]
	for _, look := range []func(context.Context) error{t.pollSFT, t.pollEvents, t.pollSteps, t.pollEvals} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	slices.SortStableFunc(t.found, func(a, b finding) int { return a.at.Compare(b.at) })
	for _, f := range t.found {
		if f.stays {
			t.line(f.text)
		} else {
			t.progress(f.text)
		}
	}
	return nil
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
		var r run.SFTRecord
		if err := blob.ReadJSON(ctx, t.store, info.Key, &r); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.found = append(t.found, finding{at: info.ModTime, text: fmt.Sprintf("sft  %d/%d  loss %.3f  %s tok/s",
			r.To, r.Total, r.Result.Metrics.Loss, report.Count(r.Result.TokensPerSec))})
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
		var e run.Event
		if err := blob.ReadJSON(ctx, t.store, info.Key, &e); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.found = append(t.found, finding{at: e.Time, stays: true, text: e.Kind + ": " + e.Text})
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
		var e run.Evaluation
		if err := blob.ReadJSON(ctx, t.store, info.Key, &e); err != nil {
			return err
		}
		t.seen[info.Key] = true
		t.found = append(t.found, finding{at: info.ModTime, stays: true, text: fmt.Sprintf("eval: stage %d %s, policy %d: accuracy %.2f, tool errors %.1f%%, %.1f tokens, %.1f turns (%d problems, %.1f s)",
			e.Stage, e.Label, e.PolicyVersion, e.Accuracy, 100*e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.NumProblems, e.Wall.Seconds())})
	}
	return nil
}

func (t *tail) pollSteps(ctx context.Context) error {
	for {
		next, err := t.nextStep(ctx)
		if err != nil || next == nil {
			return err
		}
		t.records = append(t.records, *next)
		t.found = append(t.found, finding{at: next.Ended, text: report.StepLine(*next, report.ETA(t.records))})
	}
}

// nextStep is the record after the last one that was seen: of the step that
// follows, or of the first step of a later stage, when a stage ended early.
func (t *tail) nextStep(ctx context.Context) (*artifact.StepRecord, error) {
	last := 0
	if n := len(t.records); n > 0 {
		last = t.records[n-1].Step
	}
	plan, _, err := run.StoredPlan(ctx, t.store, t.layout.RunID)
	if err != nil {
		return nil, err
	}
	if plan.Fork != nil {
		last = max(last, plan.Fork.Step)
	}
	candidates := []int{last + 1}
	for _, s := range plan.Stages {
		if s.FirstStep > last+1 {
			candidates = append(candidates, s.FirstStep)
		}
	}
	for _, step := range candidates {
		rec, ok, err := artifact.Lookup[artifact.StepRecord](ctx, t.store, t.layout.StepLog(step))
		if ok || err != nil {
			return &rec, err
		}
	}
	return nil, nil
}

// line adds a line that stays.
func (t *tail) line(text string) {
	fmt.Fprintln(t.out, strings.TrimRight(text, "\n"))
}
