package passes

import (
	"context"
	"errors"
	"testing"

	"temper/trainer/device"
	"temper/trainer/packing"
	"temper/trainer/passes/inputs"
)

// promised are lanes that never get ready.
type promised int

var _ RemotePasses = promised(0)

// Acquire implements Remote.
func (p promised) Acquire(RemoteSetup) (lanes int, gather func(context.Context, func(Lane))) {
	return int(p), func(ctx context.Context, _ func(Lane)) { <-ctx.Done() }
}

// TestCancelWithLanesElsewhere: passes that wait for a lane when a call is cancelled are not
// made, however many were promised elsewhere.
func TestCancelWithLanesElsewhere(t *testing.T) {
	cfg := tinyConfig()
	cfg.Lanes, cfg.Remote = 1, promised(64)
	p := open(t, cfg, adam())
	micros := packing.Plan{Tokens: 16}.Microbatches(rowsOf(t, cfg.Network, 12, 12, 12, 12, 12, 12, 12, 12))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fed, made := 0, 0
	err := p.Each(ctx, Program{Kind: Gradient, Objective: Supervised}, micros, func(mb packing.Microbatch) []any {
		if fed++; fed == len(micros) {
			cancel()
		}
		return inputs.Supervised(mb, 64)
	}, func(_ packing.Microbatch, out []device.Value) error {
		made++
		device.Release(out...)
		return nil
	})
	if !errors.Is(err, context.Canceled) || made == len(micros) {
		t.Errorf("%d of %d passes were collected after the call was cancelled, error %v", made, len(micros), err)
	}
}
