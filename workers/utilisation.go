package workers

import (
	"context"
	"strings"

	"temper/internal/run"
	"temper/internal/series"
	"temper/trainer/device"
	"temper/trainer/estimate"
)

// workOf counts what updates compute, for a backend of whose devices the driver says the
// kind; nil for any other.
func workOf(ctx context.Context, backend string, mesh device.Mesh) func(*run.Loaded, int, int) *series.Work {
	_, plugin, _ := strings.Cut(backend, ":")
	plugin, _, _ = strings.Cut(plugin, ",")
	kind, ok := estimate.OfPlugin(ctx, plugin)
	if !ok {
		return nil
	}
	peak := float64(max(1, mesh.NumDevices())) * kind.FLOPS
	return func(r *run.Loaded, tokens, sequences int) *series.Work {
		if r.Config.Trainer.LoRA.Rank > 0 { // most weights need no gradient
			return nil
		}
		return &series.Work{FLOPs: estimate.Train(r.Model, tokens, tokens/sequences, r.Config.Model.Remat).Model, Peak: peak}
	}
}
