package learner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
)

// readBatch reads the samples of a batch group by group and whitens their advantages
// where the batch has a Whitening. At most one group is in memory twice. Errors: Corrupt.
func readBatch(ctx context.Context, store blob.Store, ref blob.Ref) (rl.Batch, error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return rl.Batch{}, err
	}
	var stored run.StoredBatch
	if err := json.Unmarshal(data, &stored); err != nil {
		return rl.Batch{}, fmt.Errorf("%s: %w: %w", store.Locate(ref.Key), err, blob.ErrCorrupt)
	}
	batch := rl.Batch{Step: stored.Step}
	for i := range stored.Groups {
		g := &stored.Groups[i]
		if g.NumSamples == 0 {
			continue
		}
		data, err := blob.ReadRef(ctx, store, g.Samples)
		if err != nil {
			return rl.Batch{}, fmt.Errorf("samples of problem %s: %w", g.ProblemID, err)
		}
		samples, err := rl.ReadSamples(bytes.NewReader(data))
		if err == nil && len(samples) != g.NumSamples {
			err = fmt.Errorf("%d samples, want %d", len(samples), g.NumSamples)
		}
		if err != nil {
			return rl.Batch{}, fmt.Errorf("%s: %w: %w", store.Locate(g.Samples.Key), err, blob.ErrCorrupt)
		}
		for k := range samples {
			samples[k].Advantage = float32(stored.Whitening.Apply(float64(samples[k].Advantage)))
		}
		batch.Samples = append(batch.Samples, samples...)
	}
	return batch, nil
}
