package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/tools/bench/chaos"
)

// harness carries out the runs.
type harness struct {
	*chaosOptions
	temper   string    // path of the binary
	input    run.Input // of every run
	progress io.Writer
	chaos    map[bool]chaos.Config // by whether members join and leave
	points   []string
	hash     string // of the run's configuration
	build    string
	calm     runtest.Contents
	pace     chaos.Outcome // of the undisturbed run
	book     *chaos.Ledger // nil without --ledger
	lines    []chaos.Line  // without one
}

// tryAll makes the undisturbed run and the trials that the ledger does not have, and
// reports on all that it has.
func (h *harness) tryAll(ctx context.Context) (report *chaos.Report, err error) {
	if h.build, err = buildLine(h.temper); err != nil {
		return nil, err
	}
	if h.ledger != "" {
		if h.book, err = chaos.OpenLedger(h.ledger); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.book.Close()) }()
		h.lines = h.book.Lines()
	}
	calm, err := h.tryCalm(ctx)
	if err != nil {
		return nil, err
	}
	for i := range h.runs {
		if len(h.only) > 0 && !slices.Contains(h.only, i+1) || h.book != nil && h.book.Done(h.setting(i), i+1) {
			continue
		}
		err := h.tryOne(ctx, i, calm.Objects)
		if err != nil && ctx.Err() != nil {
			break // the report is of what was done
		}
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
	}
	return chaos.SumUp(h.lines), nil
}

// tryCalm makes the run that the others are compared with.
func (h *harness) tryCalm(ctx context.Context) (chaos.Trial, error) {
	calm, err := h.try(ctx, trialOptions{name: "calm"})
	if err != nil {
		return calm, fmt.Errorf("undisturbed run: %w", err)
	}
	if calm.Failure != "" {
		return calm, fmt.Errorf("the undisturbed run failed: %s; its home is %s", calm.Failure, filepath.Join(h.dir, "calm"))
	}
	h.pace = calm.Outcome
	fmt.Fprintf(h.progress, "undisturbed run: %.1f s, %d objects\n", calm.Wall, calm.Objects)
	return calm, h.record(chaos.Line{
		Kind: chaos.LineCalm, ID: newID(), Setting: h.setting(0), Result: h.calm.Digest(), Objects: calm.Objects, Wall: calm.Wall,
	})
}

// tryOne makes one disturbed run, counted from 0.
func (h *harness) tryOne(ctx context.Context, i, expect int) error {
	elastic := h.isElastic(i)
	o := trialOptions{name: fmt.Sprintf("seed-%d-run-%03d", h.seed, i+1), points: h.share(i), elastic: elastic}
	o.plan = chaos.Plan{Kills: h.chaos[elastic].Schedule(i), Expect: expect}
	if elastic {
		o.plan.Moves = h.chaos[elastic].Timeline(i)
	}
	line := chaos.Line{Kind: chaos.LineBegin, ID: newID(), Setting: h.setting(i), Run: i + 1}
	if err := h.record(line); err != nil {
		return err
	}
	trial, err := h.try(ctx, o)
	if err != nil {
		return err
	}
	trial.Beside(&h.pace)
	line.Kind, line.Trial = chaos.LineTrial, &trial
	fmt.Fprintf(h.progress, "run %d/%d: %.1f s, %d kills, %d moves, %d objects differ\n", i+1, h.runs, trial.Wall, len(trial.Blows), len(trial.Moves), len(trial.Differences))
	return h.record(line)
}

// record adds a line to the report, and to the ledger if there is one.
func (h *harness) record(line chaos.Line) error {
	h.lines = append(h.lines, line)
	if h.book == nil {
		return nil
	}
	if err := h.book.Append(line); err != nil {
		return fmt.Errorf("--ledger %s: %w", h.ledger, err)
	}
	return nil
}

// setting is what decides a trial, counted from 0, beside its number.
func (h *harness) setting(run int) chaos.Setting {
	elastic := h.isElastic(run)
	s := chaos.Setting{
		Build: h.build, Machine: machineLine(), Config: filepath.Base(h.config), Digest: h.hash, Store: cmp.Or(h.store, "file"),
		Seed: h.seed, Kills: h.kills, Victims: victimNames(h.chaos[elastic].Victims), Elastic: elastic,
	}
	if len(h.points) > 0 {
		s.Points = append([]string{fmt.Sprintf("dealt out over %d runs", h.runs)}, h.points...)
	}
	return s
}

// share returns the fail points of one run: they are dealt out in order.
func (h *harness) share(run int) []string {
	var out []string
	for i := run; i < len(h.points); i += h.runs {
		out = append(out, h.points[i])
	}
	return out
}

// trialOptions say what one run goes through.
type trialOptions struct {
	name    string
	points  []string
	elastic bool
	plan    chaos.Plan
}

// try carries out one run in a home of its own and looks at what it left. The home of
// a run that is not good stays.
func (h *harness) try(ctx context.Context, o trialOptions) (t chaos.Trial, err error) {
	home := filepath.Join(h.dir, o.name)
	if err := clearHome(home); err != nil {
		return t, err
	}
	host, err := h.newHost(ctx, home, o)
	if err != nil {
		return t, err
	}
	defer host.close()
	bounded, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	t.Name, t.Elastic = o.name, o.elastic
	t.Outcome, err = chaos.Try(bounded, host, o.plan)
	if ctx.Err() != nil && !h.keep {
		return t, errors.Join(err, ctx.Err(), os.RemoveAll(home))
	}
	if err != nil || ctx.Err() != nil || t.Failure != "" {
		return t, errors.Join(err, ctx.Err())
	}
	t.Unreached = host.unreached()
	if err := h.inspect(ctx, host, &t); err != nil {
		return t, err
	}
	if !h.keep && t.Good() {
		return t, os.RemoveAll(home)
	}
	return t, nil
}

// clearHome removes what a harness that was killed left of a trial.
func clearHome(home string) error {
	_, err := os.Stat(filepath.Join(home, serviceLog))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(home)
}

// inspect compares what a run left, when its service is gone.
func (h *harness) inspect(ctx context.Context, host *chaosHost, t *chaos.Trial) error {
	stop, err := host.serveStore(ctx)
	if err != nil {
		return err
	}
	defer stop()
	contents, err := runtest.ReadContents(ctx, host.store, host.Run())
	if err != nil {
		return err
	}
	if h.calm == nil {
		h.calm = contents
	}
	t.Differences, t.Compared = runtest.CompareContents(h.calm, contents), len(contents)
	if t.Prompts, err = chaos.CheckPrompts(ctx, host.store, host.Run()); err != nil {
		return err
	}
	if t.Checkpoints, t.Torn, err = chaos.CheckCheckpoints(ctx, host.store, host.Run()); err != nil {
		return err
	}
	return nil
}
