package sampling

import (
	"context"
	"sync"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/record"
	"temper/internal/rl"
)

// Bounds of what is beside the trajectories of a step.
const (
	// asideBytes of outputs are written at once.
	asideBytes = 8 << 20
	// asidePatience bounds the writing.
	asidePatience = 5 * time.Second
)

// aside collects what a call knows of the trajectories that it samples and that is not
// part of the run's bits: times, and whole outputs where the run keeps them. Each call
// writes what it has sampled itself, under the sum of the content. Nothing depends on it:
// what cannot be written is not recorded, and a failure is nobody's.
type aside struct {
	store  blob.Store
	layout artifact.Layout
	step   int
	part   int // calls that sampled a part of the trajectories before

	mu      sync.Mutex
	times   []record.Times
	outputs []record.Output
	size    int // of outputs
}

// add takes what is known of a trajectory that has ended or was cut.
func (a *aside) add(ctx context.Context, t *rl.Trajectory) {
	outputs := record.OutputsOf(t)
	times := record.TimesOf(t, a.part)
	a.mu.Lock()
	a.times = append(a.times, times)
	a.outputs = append(a.outputs, outputs...)
	for i := range outputs {
		a.size += len(outputs[i].Stdout) + len(outputs[i].Stderr)
	}
	var full []record.Output
	if a.size >= asideBytes {
		full, a.outputs, a.size = a.outputs, nil, 0
	}
	a.mu.Unlock()
	a.putOutputs(ctx, full)
}

// write stores what is left, also when the call was taken away.
func (a *aside) write(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asidePatience)
	defer cancel()
	if len(a.times) > 0 {
		data, err := record.EncodeTimes(a.times)
		a.put(ctx, a.layout.Times, data, err)
	}
	a.putOutputs(ctx, a.outputs)
	a.times, a.outputs, a.size = nil, nil, 0
}

func (a *aside) putOutputs(ctx context.Context, outputs []record.Output) {
	if len(outputs) == 0 {
		return
	}
	data, err := record.EncodeOutputs(outputs)
	a.put(ctx, a.layout.Outputs, data, err)
}

// put stores what was encoded. An error loses it, see aside.
func (a *aside) put(ctx context.Context, key func(step int, sha256 string) string, data []byte, err error) {
	if err == nil {
		_, _ = blob.PutBytes(ctx, a.store, key(a.step, blob.RefOf("", data).SHA256), data, blob.IfAbsent)
	}
}
