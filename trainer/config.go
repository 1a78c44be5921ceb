package trainer

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/gomlx/compute/dtypes"

	"temper/internal/config"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/packing"
	"temper/trainer/passes"
)

// Config of a Trainer.
type Config struct {
	// Backend is GoMLX's name of the device, "go" when empty.
	Backend string
	// Kernels of the CPU backend: native, also when empty, or portable.
	Kernels kernels.Choice
	// Mesh of the backend's devices; the zero mesh is one device. The rows of a pass are
	// divided over its data axis. Only XLA backends have several devices.
	Mesh  device.Mesh
	Model model.Config
	// Seed orders the samples of a step into minibatches.
	Seed uint64
	// MicrobatchTokens bounds the padded tokens of one device pass. A longer trajectory makes
	// a pass alone.
	MicrobatchTokens int
	// Temperature of the rollouts; the objective uses the same distribution. Supervised
	// updates use 1.
	Temperature float64
	// Loss is the objective of Update.
	Loss config.Loss
	// Entropies makes Scores return the entropy of the policy at each token.
	Entropies bool
	// Pack puts several trajectories into one row of a device pass, separated by segments,
	// instead of padding each row. Then there are few shapes, whatever the lengths; see
	// MaxGraphs. On the CPU, log-probabilities keep their bits while a row stays within one
	// panel of the products; beyond that they agree within rounding.
	Pack bool
	// MemoryLimit, in bytes of device memory, refuses a step before its start if StepBytes
	// estimates more. Without one of them no step is refused.
	MemoryLimit int64
	StepBytes   StepBytes
	// Remat halves the memory of activations for about 15 % more time.
	Remat bool
	// Lanes bounds the concurrent device passes on the Go backend; 0 is one a core. It
	// changes no bit of a result.
	Lanes int
	// LaneTokens bounds the padded tokens of a pass of the Go backend, below MicrobatchTokens;
	// 0 is DefaultLaneTokens. It decides the order in which gradients are added.
	LaneTokens int
	// Compute is the type in which matrices are multiplied: float32, also when
	// empty, or bfloat16. Weights, moments, gradients and the loss are float32 in
	// any case. On the CPU float32 is faster.
	Compute string
	// Remote makes passes over microbatches in other processes, which changes no bit of a
	// result; nil makes all of them here. Not with a Mesh.
	Remote passes.RemotePasses
	// Work is the expected work of the run. An accelerator makes passes of a few shapes chosen
	// for it, and compiles them before the first step. The Go backend ignores it.
	Work packing.Work
	// Log gets a line about each program compiled ahead; nil is silent.
	Log *slog.Logger
}

// DefaultLaneTokens is low enough that a usual minibatch has a pass for each of several cores,
// and none of them waits long for the last one.
const DefaultLaneTokens = 512

// StepBytes estimates the memory of a step; see passes.StepBytes.
type StepBytes = passes.StepBytes

// Validate reports every invalid field.
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
	if c.Remote != nil && c.Mesh.Several() {
		errs = append(errs, fmt.Errorf("mesh %v: other hosts help a trainer on one device only", c.Mesh))
	}
	if err := device.CheckKernels(c.Backend, c.Kernels); err != nil {
		errs = append(errs, err)
	}
	if c.Loss != (config.Loss{}) { // supervised updates need none
		if err := c.Loss.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// MaxGraphs bounds the number of graphs that a trainer compiles, whatever the lengths of its
// samples. With contexts and microbatches of up to 12288 tokens it is 3163, and 475 with
// packing; on the Go backend, which cuts smaller passes, 819 and 131. A run meets few of them.
// With Work it is the number of chosen graphs; a sequence longer than Work's adds one.
func (c Config) MaxGraphs() int {
	if choice, ok := c.Choice(); ok {
		return choice.Graphs
	}
	return passes.MaxGraphs(c.plan().NumShapes(c.Model.MaxPositionEmbeddings))
}

// plan returns how minibatches are cut into passes. It depends only on the configuration, so
// no bit of the sum of gradients depends on cores or memory.
func (c Config) plan() packing.Plan {
	p := packing.Plan{Tokens: c.MicrobatchTokens, Pack: c.Pack}
	if device.Threads(c.Backend) {
		limit := c.LaneTokens
		if limit <= 0 {
			limit = DefaultLaneTokens
		}
		p.Tokens = min(p.Tokens, limit)
	}
	if c.Mesh.Several() {
		p.RowsMultiple = c.Mesh.Data
	}
	return p
}

// Choice returns the shapes of the passes; ok is false if they are not bounded.
func (c Config) Choice() (choice packing.Shapes, ok bool) {
	if c.Work == (packing.Work{}) || device.Threads(c.Backend) {
		return packing.Shapes{}, false
	}
	return packing.ChooseShapes(c.Work, c.machine(), c.plan()), true
}

func (c Config) machine() packing.Machine {
	return packing.Machine{
		Backend: c.Backend, Devices: max(1, c.Mesh.NumDevices()),
		Parameters: c.Model.NumParameters(), Layers: c.Model.NumHiddenLayers,
	}
}

// plans returns the plans of the two objectives.
func (c Config) plans() plans {
	out := plans{passes.Supervised: c.plan(), passes.Policy: c.plan()}
	if choice, ok := c.Choice(); ok {
		out[passes.Supervised].Buckets, out[passes.Policy].Buckets = choice.Supervised, choice.Policy
		if len(choice.Supervised) == 0 { // the run has no such updates
			out[passes.Supervised].Buckets = choice.Policy
		}
	}
	return out
}

// plans are the plans of the two objectives.
type plans [2]packing.Plan

// passes returns the configuration of the device passes. Validate has accepted c.
func (c Config) passes() (passes.Config, error) {
	options, err := c.options()
	return passes.Config{
		Backend: c.Backend, Kernels: c.Kernels, Mesh: c.Mesh, Network: c.Model, Options: options, Loss: c.Loss, Entropies: c.Entropies, Temperature: c.Temperature,
		Lanes: c.Lanes, Memory: passes.Memory{Limit: c.MemoryLimit, Bytes: c.StepBytes},
		Remote: c.Remote,
	}, err
}

// options returns the settings of the network.
func (c Config) options() (graphs.Options, error) {
	o := graphs.Options{Remat: c.Remat, PlainSoftmax: c.Kernels == kernels.Portable}
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
