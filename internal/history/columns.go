package history

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/run/record"
)

// Columns returns the undecoded columns of a step's index; ok is false if none was
// recorded. See Index.
func (o Rollouts) Columns(ctx context.Context, step int) (c record.Columns, ok bool, err error) {
	key := o.run.layout.Step(step).Index()
	data, err := blob.ReadKey(ctx, o.run.store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	if c, err = record.ReadColumns(data); err != nil {
		return c, false, fmt.Errorf("%s: %w: %w", o.run.store.Locate(key), err, blob.ErrCorrupt)
	}
	return c, true, o.addEntropies(ctx, step, c.AddEntropies)
}

// addEntropies passes the stored entropies of a step to add, if the trainer was asked for
// them. It leaves out damaged ones: nothing depends on them.
func (o Rollouts) addEntropies(ctx context.Context, step int, add func([]byte) error) error {
	asked, err := asksForTokens(ctx, o.run, step)
	if err != nil || !asked {
		return err
	}
	data, err := blob.ReadKey(ctx, o.run.store, o.run.layout.Step(step).Entropies())
	if err == nil {
		_ = add(data) // see above
	}
	if blob.IsDamage(err) {
		return nil
	}
	return err
}

// asksForTokens reports whether the trainer was to record what it says of tokens in a step.
func asksForTokens(ctx context.Context, r *Run, step int) (bool, error) {
	r.known.Lock()
	defer r.known.Unlock()
	if r.known.config == nil {
		cfg, err := r.Config(ctx)
		if err != nil {
			return false, err
		}
		r.known.config = &cfg
	}
	return r.known.config.At(step).Tracker.TokenStats > 0, nil
}

// IndexVersion tells one index of a step from another, so that a reader can keep what it
// has read; ok is false where none was recorded.
func (o Rollouts) IndexVersion(ctx context.Context, step int) (version string, ok bool, err error) {
	info, err := o.run.store.Stat(ctx, o.run.layout.Step(step).Index())
	if errors.Is(err, blob.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	version = fmt.Sprintf("%d.%d", info.Size, info.ModTime.UnixNano())
	if asked, err := asksForTokens(ctx, o.run, step); err != nil || !asked {
		return version, err == nil, err
	}
	beside, err := o.run.store.Stat(ctx, o.run.layout.Step(step).Entropies())
	if errors.Is(err, blob.ErrNotExist) {
		return version, true, nil
	}
	return fmt.Sprintf("%s.%d", version, beside.ModTime.UnixNano()), err == nil, err
}
