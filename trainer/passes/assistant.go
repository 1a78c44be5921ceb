package passes

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/device"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/weights/tensor"
)

// Assistant makes passes over microbatches for a trainer in another process. It has the
// weights and neither moments nor counters. Make may be called by several goroutines.
type Assistant struct {
	passes    *Passes
	state     *optimizer.State
	reference *optimizer.Reference

	mu        sync.RWMutex // passes read the weights, Follow writes them
	compiling sync.Mutex
}

// NewAssistant opens the device with the settings of the trainer.
func NewAssistant(cfg Config) (*Assistant, error) {
	cfg.Remote, cfg.Memory = nil, Memory{}
	a := &Assistant{state: optimizer.NewState(cfg.Network), reference: optimizer.NewReference(cfg.Network)}
	var err error
	if a.passes, err = Open(cfg, a.state, a.reference); err != nil {
		return nil, err
	}
	if NumAssistantLanes(cfg.Backend) > 1 {
		a.passes.helpers.Rest()
	}
	return a, nil
}

// NumAssistantLanes returns the number of concurrent passes that suit a backend: one a core on
// the CPU.
func NumAssistantLanes(backend string) int {
	if device.Threads(backend) {
		return runtime.GOMAXPROCS(0)
	}
	return 1
}

// Close releases the device after the last pass.
func (a *Assistant) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Close()
	a.reference.Close()
	a.passes.Close()
}

// Follow sets new weights, and the names of the tensors that have gradients.
func (a *Assistant) Follow(weights []tensor.Named, trained []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := optimizer.Follow(a.state, weights, trained); err != nil {
		return err
	}
	a.passes.forgetStale()
	return nil
}

// Make makes a pass. The caller owns the results.
func (a *Assistant) Make(p Program, shape packing.Shape, args []*tensors.Tensor) ([]device.Value, error) {
	if p.Kind != Score && p.Kind != Gradient {
		return nil, fmt.Errorf("%s: an assistant scores and makes gradients", p)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.state.Ready() {
		return nil, fmt.Errorf("%s: %w", p, optimizer.ErrNone)
	}
	exec, err := a.compile(p, shape)
	if err != nil {
		return nil, err
	}
	inputs := make([]any, len(args))
	for i, x := range args {
		inputs[i] = x
	}
	return a.passes.execute(p, exec, inputs)
}

func (a *Assistant) compile(p Program, shape packing.Shape) (*model.Exec, error) {
	a.compiling.Lock()
	defer a.compiling.Unlock()
	a.passes.graphs[graphKey{p, shape}] = true
	return a.passes.compile(p)
}
