package chaos

import (
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// CheckCheckpoints loads every checkpoint of a run and says how many are whole and
// what is wrong with the others.
func CheckCheckpoints(ctx context.Context, store blob.Store, run artifact.Layout) (good int, torn []string, err error) {
	entries, err := checkpoint.List(ctx, store, run.Checkpoints())
	if err != nil {
		return 0, nil, err
	}
	if len(entries) == 0 {
		torn = append(torn, "no checkpoint is left")
	}
	for _, e := range entries {
		if _, _, err := checkpoint.Load(ctx, store, e.Ref); err != nil {
			torn = append(torn, fmt.Sprintf("checkpoint %d: %v", e.Step, err))
			continue
		}
		good++
	}
	return good, torn, nil
}
