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
