package trainer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/internal/fault"
	"temper/trainer/device"
	"temper/trainer/qwen3"
)

// Errors of the package. Callers use errors.Is.
var (
	// ErrDiverged means that a loss or a gradient was not finite. The state is
	// as it was before the call; the same call fails again.
	ErrDiverged = fault.Newf(fault.Diverged, "training diverged")
	// ErrNoState means that the trainer holds no weights, or that a failed device
	// call consumed them: Init or Restore first.
	ErrNoState = errors.New("trainer holds no state")
)

// GraphError is a failure to build or run a computation graph.
type GraphError struct {
	Op    string // what was being computed
	Err   error
	Stack string // where the graph was being built
}

// Error returns one line without the stack.
func (e *GraphError) Error() string { return e.Op + " graph: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *GraphError) Unwrap() error { return e.Err }

// Config of a Trainer.
type Config struct {
	// Backend is GoMLX's name of the device, "go" when empty.
	Backend string
	// Mesh of the backend's devices; the zero mesh is one device. The rows of a
	// pass are dealt over its data axis. Only XLA backends have several devices.
	Mesh  device.Mesh
	Model qwen3.Config
	// Seed orders the samples of a step into minibatches.
	Seed uint64
	// MicrobatchTokens bounds the padded tokens of one device pass. A single
	// longer trajectory still makes a pass of its own.
	MicrobatchTokens int
	// Temperature at which the rollouts are sampled; the objective sees the same
	// distribution. Supervised updates use 1.
	Temperature float64
	// Loss is the objective of Update.
	Loss config.Loss
	// Pack puts several trajectories into one row of a device pass, kept apart by
	// segments, instead of padding each to a row of its own: few shapes, whatever
	// the lengths; see MaxGraphs. Log-probabilities keep their bits on the CPU while
	// rows stay within one panel of its products, and agree within rounding beyond.
	Pack bool
	// MemoryLimit, in bytes of device memory, refuses a step before it starts where
	// StepBytes estimates more. Without both of them nothing is refused.
	MemoryLimit int64
	StepBytes   StepBytes
	// Remat halves the memory of activations for about 15 % more time.
	Remat bool
	// Lanes is the most device passes side by side on the Go backend; 0 is one for
	// each core. No bit of a result depends on it.
	Lanes int
	// LaneTokens bounds the padded tokens of a pass of the Go backend where
	// MicrobatchTokens allows more; 0 is 512. It decides how gradients add up.
	LaneTokens int
	// Compute is the type in which matrices are multiplied: float32, also when
	// empty, or bfloat16. Weights, moments, gradients and the loss are float32 in
	// any case. On the CPU float32 is faster.
	Compute string
}

// options are the settings of the network.
func (c Config) options() (qwen3.Options, error) {
	o := qwen3.Options{Remat: c.Remat}
	switch c.Compute {
	case "", "float32":
		o.Compute = dtypes.Float32
	case "bfloat16":
		o.Compute = dtypes.BFloat16
	default:
		return o, fmt.Errorf("compute: %q, want float32 or bfloat16", c.Compute)
	}
	return o, nil
}

// Validate reports every field that no trainer can work with.
func (c Config) Validate() error {
	var errs []error
	if err := c.Model.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("model: %w", err))
	}
	if c.MicrobatchTokens < 1 {
		errs = append(errs, fmt.Errorf("microbatch tokens: %d, want at least 1", c.MicrobatchTokens))
	}
	if !(c.Temperature > 0) {
		errs = append(errs, fmt.Errorf("temperature: %v, want more than 0", c.Temperature))
	}
	if _, err := c.options(); err != nil {
		errs = append(errs, err)
	}
	if err := device.CheckMesh(c.Backend, c.Mesh); err != nil {
		errs = append(errs, err)
	}
	if c.Loss != (config.Loss{}) { // supervised updates need none
		if err := c.Loss.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Trainer trains one policy on one device. Its methods may be called from
// several goroutines; they run one after another.
type Trainer struct {
	cfg     Config
	backend compute.Backend
	helpers device.Helpers // of the backend
	spread  *spread        // over several devices; nil on one

	mu       sync.Mutex // owns the device and everything below
	store    *model.Store
	counters counters
	tuning   tuning // what graphs of updates are built for
	ready    bool   // the store holds a complete state
	programs map[program]*model.Exec
	// reference holds the weights of the reference policy; nil without one.
	reference *model.Store
	graphs    map[graphKey]bool // what was compiled
}

// New opens the device. The trainer has no weights yet: Init or Restore.
func New(cfg Config) (*Trainer, error) {
	if cfg.Backend == "" {
		cfg.Backend = "go"
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	var backend compute.Backend
	err := guard("backend "+cfg.Backend, func() (err error) {
		backend, err = device.Open(device.InOrder(cfg.Backend))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	several, err := newSpread(cfg, backend)
	if err != nil {
		backend.Finalize()
		return nil, fmt.Errorf("trainer: %w", err)
	}
	return &Trainer{
		cfg: cfg, backend: backend, helpers: device.HelpersOf(backend), spread: several, store: model.NewStore(),
		programs: map[program]*model.Exec{}, graphs: map[graphKey]bool{},
	}, nil
}

// Close releases the device. The trainer is unusable afterwards.
func (t *Trainer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = false
	for _, exec := range t.programs {
		exec.Finalize()
	}
	t.programs = nil
	t.store.Finalize()
	if t.reference != nil {
		t.reference.Finalize()
	}
	t.backend.Finalize()
}

// NumGraphs is the number of graphs compiled so far. Bucketed shapes keep it
// below MaxGraphs.
func (t *Trainer) NumGraphs() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.graphs)
}

// Model returns the architecture.
func (t *Trainer) Model() qwen3.Config { return t.cfg.Model }
