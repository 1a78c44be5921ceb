package history

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/record"
)

// Columns are those of the index of a step, undecoded; ok is false where none was
// recorded. See Index.
func (o Rollouts) Columns(ctx context.Context, step int) (c record.Columns, ok bool, err error) {
	key := o.run.layout.Index(step)
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
	return c, true, nil
}

// IndexVersion tells one index of a step from another, so that a reader can keep what it
// has read; ok is false where none was recorded.
func (o Rollouts) IndexVersion(ctx context.Context, step int) (version string, ok bool, err error) {
	info, err := o.run.store.Stat(ctx, o.run.layout.Index(step))
	if errors.Is(err, blob.ErrNotExist) {
		return "", false, nil
	}
	return fmt.Sprintf("%d.%d", info.Size, info.ModTime.UnixNano()), err == nil, err
}
