package learner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// archive is what the store holds of a run's training. It knows nothing of the
// learner: a session, its restore and its lease ask it.
type archive struct {
	*run.Loaded
	store  blob.Store
	now    func() time.Time
	frozen frozenConfig
}

func (a *archive) timetable() timetable { return timetable{a.Config} }

// checkFits refuses a checkpoint of another run. An older checkpoint would not help: the
// folder mixes files of different runs.
func (a *archive) checkFits(ctx context.Context, c checkpoint.Entry) error {
	d, err := checkpoint.Describe(ctx, a.store, c.Ref)
	if err != nil {
		return err
	}
	want, err := a.about(ctx, c.Step)
	if err != nil {
		return err
	}
	if err := d.Fits(want, a.Model); err != nil {
		return fmt.Errorf("checkpoint of %s in %s: %w: put back the configuration that it was made with, or move the folder away and the run goes on from an older one",
			a.timetable().name(c.Step), a.store.Locate(path.Dir(c.Ref.Key)), err)
	}
	return nil
}

// about describes where in the run a cursor is.
func (a *archive) about(ctx context.Context, cursor int) (checkpoint.About, error) {
	step := max(0, cursor-a.Config.SFT.Steps)
	out := checkpoint.About{Run: a.Ref.RunID, Seed: a.Config.Seed, MetricsStep: step}
	var err error
	if out.ConfigSHA256, err = a.frozen.hash(ctx, a.store, a.Loaded, step); err != nil {
		return out, err
	}
	cfg := a.Config.At(step)
	for _, p := range run.PlanOf(a.Ref.RunID, cfg).Stages {
		if step >= p.FirstStep && step < p.FirstStep+p.Steps {
			out.Stage, out.StageStep = p.Index, step-p.FirstStep+1
			out.LedgerProblems = out.StageStep * cfg.RL.ProblemsPerStep
		}
	}
	return out, nil
}

// frozenConfig is the stored config.yaml of a run; nil until hash has read it.
type frozenConfig []byte

// hash is the hash of config.yaml, and of the keys that amendments up to the step have
// changed. It covers stored bytes alone, so a program with other defaults gets the same.
func (f *frozenConfig) hash(ctx context.Context, store blob.Store, r *run.Loaded, step int) (string, error) {
	if *f == nil {
		data, err := blob.ReadKey(ctx, store, r.Layout.Config().Opened())
		if err != nil {
			return "", fmt.Errorf("configuration of run %s: %w", r.Ref.RunID, err)
		}
		*f = data
	}
	sum := sha256.New()
	sum.Write(*f)
	for _, amendment := range r.Config.Amendments {
		if amendment.FromStep > step || len(amendment.Set) == 0 {
			continue
		}
		data, err := json.Marshal(amendment.Set)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "from step %d: %s\n", amendment.FromStep, data)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// wasSaved reports whether the stored result of a cursor says that a checkpoint
// was asked for there.
func (a *archive) wasSaved(ctx context.Context, cursor int) (bool, error) {
	if cursor <= a.Config.SFT.Steps {
		r, ok, err := artifact.Lookup[run.SFTRecord](ctx, a.store, a.Layout.SFT().Result(cursor))
		return ok && r.Saved, err
	}
	r, ok, err := artifact.Lookup[run.Trained](ctx, a.store, a.Layout.Step(cursor-a.Config.SFT.Steps).TrainResult())
	return ok && r.Saved, err
}

// checkLeftOut tells a step that was left out from one whose batch is gone: a step that
// was made has a result. Errors: NotFound, with the key of the batch.
func checkLeftOut(ctx context.Context, store blob.Store, layout artifact.Layout, step int) error {
	_, err := store.Stat(ctx, layout.Step(step).TrainResult())
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return missingBatch(layout, step)
}

// missingBatch is the error of a step whose batch is not stored.
func missingBatch(layout artifact.Layout, step int) error {
	return &blob.RefError{
		Ref: blob.Ref{Key: layout.Step(step).BatchStats()},
		Err: fault.Newf(fault.NotFound, "run %s has no batch of step %d", layout.RunID, step),
	}
}

// warnOperator enters a warning into the run's event log.
func (a *archive) warnOperator(ctx context.Context, text string) error {
	now := a.now()
	_, err := artifact.PutOnce(ctx, a.store, a.Layout.Events().Entry(now.UnixNano(), "warning", text),
		run.Event{Run: a.Ref, Time: now, Kind: "warning", Text: text})
	return err
}

// reportDivergence stores the report of an update that diverged under key, and adds
// to the error where it is.
func reportDivergence(ctx context.Context, store blob.Store, key string, err error) error {
	var diverged divergence
	if !errors.As(err, &diverged) {
		return err
	}
	where, saveErr := diverged.Save(ctx, store, key)
	if saveErr != nil {
		return fmt.Errorf("%w; no report: %v", err, saveErr) //nolint:errorlint // the divergence decides what happens next
	}
	return fmt.Errorf("%w; report in %s", err, where)
}

// newestEpoch is the highest epoch that wrote a checkpoint of the run. A lease
// without a head begins after it.
func newestEpoch(ctx context.Context, store blob.Store, layout artifact.Layout) (int64, error) {
	entries, err := checkpoint.List(ctx, store, layout.Checkpoints())
	if err != nil {
		return 0, err
	}
	newest := int64(0)
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, store, e.Ref)
		if err == nil {
			newest = max(newest, d.Epoch)
		} else if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
			return 0, err
		}
	}
	return newest, nil
}
