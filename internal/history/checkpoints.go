package history

import (
	"cmp"
	"context"

	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// Checkpoint is a checkpoint of a run and why it stays.
type Checkpoint struct {
	// Step is the RL step; 0 up to the end of SFT.
	Step int `json:"step"`
	// Cursor counts all updates, those of SFT too.
	Cursor int    `json:"cursor"`
	Bytes  int64  `json:"bytes"`
	Epoch  int64  `json:"epoch"` // of the lease under which it was written
	Kept   string `json:"kept"`
	// Damage is what is wrong with a manifest that cannot be read.
	Damage string `json:"damage,omitempty"`
}

// CheckpointFolder is where the checkpoints of the run are.
func (r *Run) CheckpointFolder() string { return r.layout.Checkpoints() }

// NewestCheckpoint is the step of the newest checkpoint, 0 up to the end of SFT;
// ok is false when the run has none.
func (r *Run) NewestCheckpoint(ctx context.Context) (step int, ok bool, err error) {
	entries, err := checkpoint.List(ctx, r.store, r.CheckpointFolder())
	if err != nil || len(entries) == 0 {
		return 0, false, err
	}
	return max(0, entries[len(entries)-1].Step-r.Plan.SFTSteps), true, nil
}

// Checkpoints are the checkpoints of the run, the oldest first.
func (r *Run) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	cfg, err := r.Config(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := checkpoint.List(ctx, r.store, r.CheckpointFolder())
	if err != nil {
		return nil, err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	newest := cfg.SFT.Steps
	if len(cursors) > 0 {
		newest = cursors[len(cursors)-1]
	}
	cfg = cfg.At(max(0, newest-cfg.SFT.Steps)) // as the newest save saw it
	kept, err := run.Retained(ctx, r.store, r.ID(), cfg, cursors)
	if err != nil {
		return nil, err
	}
	out := make([]Checkpoint, 0, len(entries))
	for _, e := range entries {
		c := Checkpoint{Step: max(0, e.Step-cfg.SFT.Steps), Cursor: e.Step, Kept: cmp.Or(kept[e.Step], "until the next save")}
		if d, err := checkpoint.Describe(ctx, r.store, e.Ref); err != nil {
			c.Damage = err.Error()
		} else {
			c.Bytes, c.Epoch = d.Size, d.Epoch
		}
		out = append(out, c)
	}
	return out, nil
}
