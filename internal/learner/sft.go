package learner

import (
	"bytes"
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
)

// sftData is the supervised data of a run as rows of tokens.
type sftData struct {
	seed  uint64
	rows  []rl.Sample
	epoch int   // of order
	order []int // of rows
}

// readSFT reads and renders the run's dialogues.
func readSFT(ctx context.Context, store blob.Store, r *run.Loaded) (*sftData, error) {
	key := r.Layout.SFT().Dialogues()
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	dialogues, err := dataset.ReadDialogues(bytes.NewReader(data), store.Locate(key))
	if err != nil {
		return nil, fault.New(fault.Corrupt, err)
	}
	rows, err := renderRows(r.Format, dialogues, r.Config.Model.MaxContext)
	return &sftData{seed: r.Config.Seed, rows: rows}, err
}

// renderRows turns dialogues into rows. A dialogue that does not fit the context is an
// error: cut short, it would teach the policy to stop in the middle.
func renderRows(format *chat.Format, dialogues []chat.Dialogue, maxContext int) ([]rl.Sample, error) {
	rows := make([]rl.Sample, 0, len(dialogues))
	for i, d := range dialogues {
		t, err := format.Render(d)
		if err != nil {
			return nil, fault.Newf(fault.Dataset, "dialogue %d: %w", i+1, err)
		}
		if n := len(t.Tokens()); n > maxContext {
			return nil, config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf("is %d, but dialogue %d has %d tokens", maxContext, i+1, n)}}
		}
		rows = append(rows, rl.Sample{
			ProblemID: "sft", Rollout: i, Tokens: t.Tokens(), LossMask: t.LossMask(), RolloutLogprobs: t.Logprobs(),
		})
	}
	return rows, nil
}

// batch is the part of the shuffled data that update n, from 1, learns from.
func (d *sftData) batch(n, size int) []rl.Sample {
	out := make([]rl.Sample, size)
	for i := range out {
		at := (n-1)*size + i
		out[i] = d.rows[d.orderOf(at / len(d.rows))[at%len(d.rows)]]
	}
	return out
}

// orderOf is the order of the rows in a pass over the data.
func (d *sftData) orderOf(epoch int) []int {
	if d.order == nil || d.epoch != epoch {
		d.epoch, d.order = epoch, rl.Rand(rl.Seed(d.seed, "sft-order", uint64(epoch))).Perm(len(d.rows))
	}
	return d.order
}
