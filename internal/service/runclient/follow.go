package runclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// closeTimeout is what a run may take from its summary to its end.
const closeTimeout = 10 * time.Second

// Follow prints what a run writes to the store until its workflow ends, and
// returns the workflow's error.
func Follow(ctx context.Context, c client.Client, store blob.Store, runID string, out io.Writer) error {
	workflowID, err := workflows.FindRun(ctx, c, runID)
	if err != nil {
		return UnknownRun(err, runID)
	}
	t := newFollower(store, runID, out)
	t.look = func(ctx context.Context) { t.complain(ctx, c, workflowID) }
	waiting, cancel := context.WithCancel(ctx)
	var result error
	var waiter sync.WaitGroup
	waiter.Go(func() {
		defer cancel()
		result = workflows.AwaitEnd(waiting, c, workflowID, nil)
	})
	err = t.until(waiting)
	ended := waiting.Err() != nil // by the workflow, unless ctx has ended
	cancel()
	waiter.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: run %s goes on while the service is up; temper run follow %s shows it", cli.ErrInterrupted, runID, runID)
	}
	if ended && err == nil {
		err = cmp.Or(result, t.last(ctx))
	}
	return Failure(err, runID)
}

// until prints until ctx ends, or the summary has been there for a while: the server
// may tell of the end late.
func (t *follower) until(ctx context.Context) error {
	for entries, err := range t.feed.Entries(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if err := t.tolerateSilence(err); err != nil {
			return err
		}
		t.show(entries)
		t.look(ctx)
		if !t.closed.IsZero() && time.Since(t.closed) > closeTimeout {
			return nil
		}
	}
	return nil
}

// tolerateSilence returns nil for a store that does not answer, as the run itself
// continues, and prints one line about it.
func (t *follower) tolerateSilence(err error) error {
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

// last shows the remaining lines after the run has ended, and waits some time for a store
// that does not answer.
func (t *follower) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for entries, err := range t.feed.Entries(ctx) {
		if err == nil {
			t.show(entries)
			return nil
		}
		if t.tolerateSilence(err) != nil {
			return err
		}
	}
	return ctx.Err()
}

// Failure turns a failed workflow into one line; user mistakes keep exit code 2.
func Failure(err error, runID string) error {
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

// follower prints new records of a run in the order in which they were made.
type follower struct {
	feed *history.Feed
	out  io.Writer
	// progress shows a line that the next one may replace.
	progress func(string)
	look     func(context.Context) // at each poll, for what is not in the store
	told     map[string]bool       // troubles
	records  []run.StepRecord
	closed   time.Time // when the summary was seen
	asked    time.Time // when trouble was last asked for
	silent   bool      // the store was silent at the last poll, and that was told
}

func newFollower(store blob.Store, runID string, out io.Writer) *follower {
	t := &follower{feed: history.Follow(store, runID), out: out, told: map[string]bool{}, look: func(context.Context) {}}
	t.progress = t.line
	if s, ok := out.(*cli.Screen); ok {
		t.progress = s.SetStatus
	}
	return t
}

// troubleInterval is how often the server is asked for activities that fail and
// are retried: a run that waits for something says for what.
const troubleInterval = 3 * time.Second

// complain prints each new failure of a retried activity of the run once.
func (t *follower) complain(ctx context.Context, c client.Client, workflowID string) {
	if time.Since(t.asked) < troubleInterval {
		return
	}
	t.asked = time.Now()
	for _, trouble := range workflows.Troubles(ctx, c, workflowID) {
		what := trouble // the number of the attempt is no news
		what.Attempt = 0
		if text := trouble.String(); !t.told[what.String()] {
			t.told[what.String()] = true
			t.line(text)
		}
	}
}

// show prints entries of the run.
func (t *follower) show(entries []history.Entry) {
	for _, e := range entries {
		switch {
		case e.SFT != nil:
			t.progress(fmt.Sprintf("sft  %d/%d  loss %.3f  %s tok/s",
				e.SFT.To, e.SFT.Total, e.SFT.Result.Metrics.Loss, export.Count(e.SFT.Result.TokensPerSec)))
		case e.Event != nil:
			t.line(e.Event.Kind + ": " + e.Event.Plain())
		case e.Step != nil:
			t.records = append(t.records, *e.Step)
			t.progress(export.StepLine(*e.Step, export.ETA(t.records)))
		case e.Evaluation != nil:
			v := e.Evaluation
			what := fmt.Sprintf("stage %d %s", v.Stage, v.Label)
			if v.Set != "" {
				what = "set " + v.Set
			}
			t.line(fmt.Sprintf("eval: %s, policy %d: accuracy %.2f, tool errors %.1f%%, %.1f tokens, %.1f turns (%d problems, %.1f s)",
				what, v.PolicyVersion, v.Accuracy, 100*v.ToolErrorRate, v.MeanTokens, v.MeanTurns, v.NumProblems, v.Wall.Seconds()))
		case e.Summary != nil:
			t.closed = time.Now()
		}
	}
}

// line adds a line that stays.
func (t *follower) line(text string) {
	fmt.Fprintln(t.out, strings.TrimRight(text, "\n"))
}

// Attend shows a run from where it is to its closing tables.
func Attend(ctx context.Context, c client.Client, store blob.Store, p *config.Process, runID string, out io.Writer) error {
	if err := Follow(ctx, c, store, runID, out); err != nil {
		return err
	}
	id, err := workflows.FindRun(ctx, c, runID)
	if err != nil {
		id = workflows.RunWorkflowID(runID) // the server has forgotten it since
	}
	return Finish(ctx, store, Page(p, id), runID, out)
}

// Finish prints the closing tables, the path of the summary last. page is the
// run's in the web UI, if any.
func Finish(ctx context.Context, store blob.Store, page, runID string, out io.Writer) error {
	r, err := history.Open(ctx, store, runID)
	if err != nil {
		return err
	}
	s, ok, err := r.Summary(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("run %s has no summary at %s", runID, r.SummaryPath())
	}
	if err != nil {
		return err
	}
	return writeSummary(out, r, s, page)
}

func writeSummary(out io.Writer, r *history.Run, s run.Summary, page string) error {
	fmt.Fprintln(out)
	if err := export.Summary(out, s, export.Links{RunDir: r.Dir(), SummaryPath: r.SummaryPath(), WebUI: page}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, r.SummaryPath())
	return err
}

// WriteRun prints the steps of a run, and its summary or state.
func WriteRun(ctx context.Context, out io.Writer, p *config.Process, r *history.Run, records []run.StepRecord) error {
	for i, record := range records {
		fmt.Fprintln(out, export.StepLine(record, export.ETA(records[:i+1])))
	}
	s, ok, err := r.Summary(ctx)
	if err != nil {
		return err
	}
	if ok {
		return writeSummary(out, r, s, Page(p, workflows.RunWorkflowID(r.ID())))
	}
	return writeState(ctx, out, r)
}

// writeState says how a run without a summary stands, when the store knows.
func writeState(ctx context.Context, out io.Writer, r *history.Run) error {
	e, err := r.Entry(ctx)
	if err == nil && e.Reason != "" {
		_, err = fmt.Fprintf(out, "run %s %s: %s\n", r.ID(), e.State, e.Reason)
	}
	return err
}

func compared(ctx context.Context, store blob.Store, id string) (export.Compared, error) {
	r, err := history.Open(ctx, store, id)
	if err != nil {
		return export.Compared{}, err
	}
	summary, done, err := r.Summary(ctx)
	if err == nil && !done {
		err = cli.Usagef("run %q has no summary yet", id)
	}
	if err != nil {
		return export.Compared{}, err
	}
	cfg, err := r.Config(ctx)
	if err != nil {
		return export.Compared{}, err
	}
	records, err := r.Records(ctx)
	return export.Compared{RunID: id, Label: variant(cfg), Summary: summary, Records: records}, err
}

// variant names what tells a run from the others of a comparison.
func variant(cfg config.Run) string {
	roc := "RoC off"
	if cfg.RL.RoC.Enabled {
		roc = "RoC " + cfg.RL.RoC.Mode
	}
	return fmt.Sprintf("%s, seed %d", roc, cfg.Seed)
}

// Compare reads finished runs.
func Compare(ctx context.Context, store blob.Store, ids []string) ([]export.Compared, error) {
	var out []export.Compared
	for _, id := range ids {
		c, err := compared(ctx, store, id)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
