package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"temper/internal/buildinfo"
	"temper/tools/bench/chaos"
)

// harness carries out the runs.
type harness struct {
	*chaosOptions
	service  Service
	progress io.Writer
	chaos    chaos.Config
	points   []string
	calm     chaos.Contents
	pace     chaos.Outcome // of the undisturbed run
}

func (h *harness) tryAll(ctx context.Context) (*chaos.Report, error) {
	report := &chaos.Report{Build: buildinfo.Line(), Config: filepath.Base(h.config), Store: cmp.Or(h.store, "file"), Seed: h.chaos.Seed}
	calm, err := h.try(ctx, "calm", nil, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("undisturbed run: %w", err)
	}
	if calm.Failure != "" {
		return nil, fmt.Errorf("the undisturbed run failed: %s; its home is %s", calm.Failure, filepath.Join(h.dir, "calm"))
	}
	report.Calm, report.Objects, h.pace = calm.Wall, calm.Objects, calm.Outcome
	fmt.Fprintf(h.progress, "undisturbed run: %.1f s, %d objects\n", calm.Wall, calm.Objects)
	for i := range h.runs {
		trial, err := h.try(ctx, fmt.Sprintf("run-%03d", i+1), h.share(i), h.chaos.Schedule(i), calm.Objects)
		if err != nil && ctx.Err() != nil {
			break // the report is of what was done
		}
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		trial.Beside(&h.pace)
		report.Trials = append(report.Trials, trial)
		fmt.Fprintf(h.progress, "run %d/%d: %.1f s, %d kills, %d objects differ\n", i+1, h.runs, trial.Wall, len(trial.Blows), len(trial.Differences))
	}
	report.Sum()
	return report, nil
}

// share returns the fail points of one run: they are dealt out in order.
func (h *harness) share(run int) []string {
	var out []string
	for i := run; i < len(h.points); i += h.runs {
		out = append(out, h.points[i])
	}
	return out
}

// try carries out one run in a home of its own and looks at what it left.
func (h *harness) try(ctx context.Context, name string, points []string, kills []chaos.Kill, expect int) (chaos.Trial, error) {
	host, err := h.newHost(ctx, name, points)
	if err != nil {
		return chaos.Trial{}, err
	}
	defer host.close()
	bounded, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	var t chaos.Trial
	if t.Outcome, err = chaos.Try(bounded, host, kills, expect); err != nil || ctx.Err() != nil || t.Failure != "" {
		return t, errors.Join(err, ctx.Err())
	}
	t.Unreached = host.unreached()
	if err := h.inspect(ctx, host, &t); err != nil {
		return t, err
	}
	if !h.keep && len(t.Differences)+t.Prompts.Lost+t.Prompts.Doubled+len(t.Torn)+len(t.Orphans) == 0 {
		return t, os.RemoveAll(host.process.Home)
	}
	return t, nil
}

// inspect compares what a run left, when its service is gone.
func (h *harness) inspect(ctx context.Context, host *chaosHost, t *chaos.Trial) error {
	stop, err := host.serveStore(ctx)
	if err != nil {
		return err
	}
	defer stop()
	contents, err := chaos.Read(ctx, host.store, host.Run())
	if err != nil {
		return err
	}
	if h.calm == nil {
		h.calm = contents
	}
	t.Differences = chaos.Compare(h.calm, contents)
	if t.Prompts, err = chaos.CheckPrompts(ctx, host.store, host.Run()); err != nil {
		return err
	}
	if t.Checkpoints, t.Torn, err = chaos.CheckCheckpoints(ctx, host.store, host.Run()); err != nil {
		return err
	}
	return nil
}
