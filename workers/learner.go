package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
	"temper/internal/sampling"
	"temper/internal/series"
	"temper/sandbox"
	"temper/trainer"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/hosts"
	"temper/trainer/model"
	"temper/trainer/packing"
)

var _ learner.Learner = (*trainer.Trainer)(nil)

// learnerFactory makes the learners of a process.
type learnerFactory struct {
	backend string
	mesh    device.Mesh
	hub     *hosts.Hub // nil without members
	log     *slog.Logger
}

// noteLease tells members whose trainer this is.
func (f learnerFactory) noteLease(run string, epoch int64) {
	if f.hub != nil {
		f.hub.Lead(run, epoch)
	}
}

func (f learnerFactory) make(r *run.Loaded) (learner.Learner, error) {
	cfg, m := r.Config, r.Model
	if l := cfg.Trainer.LoRA; l.Rank > 0 {
		var err error
		if m.LoRA, err = model.NewLoRA(l.Rank, l.Scale(), l.Targets); err != nil {
			return nil, fmt.Errorf("trainer.lora: %w", err)
		}
	}
	if err := errors.Join(
		trainer.CheckOptimizer(m, "sft.optimizer", cfg.SFT.Optimizer),
		trainer.CheckOptimizer(m, "rl.optimizer", cfg.RL.Optimizer)); err != nil {
		return nil, err
	}
	if f.mesh.Several() {
		if _, err := device.Shardings(m, f.mesh); err != nil { // no retry makes it divide
			return nil, fault.Newf(fault.InvalidConfig, "mesh %v: %w", f.mesh, err)
		}
	}
	c := trainer.Config{
		Backend: f.backend, Mesh: f.mesh, Model: m, Seed: rl.Seed(cfg.Seed, "trainer"),
		MicrobatchTokens: cfg.RL.MicrobatchTokens, Temperature: cfg.Rollout.Temperature, Loss: cfg.RL.Loss, Entropies: cfg.Tracker.TokenStats > 0,
		Kernels: kernels.Choice(cfg.Trainer.Kernels), Pack: cfg.RL.Pack, Compute: cfg.Model.Compute, Remat: cfg.Model.Remat,
		Work: packing.WorkOf(cfg), Log: f.log,
	}
	if f.hub != nil {
		c.Remote = f.hub.Session(r.Ref.RunID)
	}
	limitMemory(&c, cfg.RL.NumMinibatches, memoryLimit(os.DirFS("/")))
	return trainer.New(c)
}

// makerOf describes this process for the manifests of the runs that it works for.
func makerOf(role, backend string, mesh device.Mesh) func(config.Run) chain.Maker {
	m := chain.ThisMaker(role, onMesh(backend, mesh))
	return func(cfg config.Run) chain.Maker {
		m := m
		m.Kernels, _ = bitsOf(backend, cfg) // a run continues where its device cannot be described
		return m
	}
}

// bitsOf is one line with all that decides bits on the device of a backend under a run's
// configuration.
func bitsOf(backend string, cfg config.Run) (string, error) {
	if device.Threads(backend) {
		return kernels.Describe(kernels.Choice(cfg.Trainer.Kernels)).Bits(), nil
	}
	return device.Bits(backend)
}

// onMesh names a backend with its mesh, which decides bits as well: it orders the sums over devices.
func onMesh(backend string, m device.Mesh) string {
	if !m.Several() {
		return backend
	}
	return backend + " on " + m.String()
}

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

// RemakeOptions configure the processes with which steps are made again.
type RemakeOptions struct {
	Store blob.Store
	// Backend for tensors; empty is the Go backend.
	Backend string
	// Mesh of devices; the zero value is one device.
	Mesh device.Mesh
	// Concurrent is the number of trajectories under way at a time.
	Concurrent int
	// Executor runs the tools.
	Executor sandbox.Executor
	Log      *slog.Logger
}

// Remake is a bench that makes steps again with the engines and learners that a
// rollout role and a trainer role would have.
func Remake(o RemakeOptions) *replay.Bench {
	return &replay.Bench{
		Store: o.Store, Now: time.Now,
		Makers: func(cfg config.Run) []chain.Maker {
			return []chain.Maker{makerOf("rollout", o.Backend, device.Mesh{})(cfg), makerOf("trainer", o.Backend, o.Mesh)(cfg)}
		},
		NewSampling: func(store blob.Store) *sampling.Service {
			return sampling.New(sampling.Config{
				Store: store, Executor: o.Executor, NewEngine: newEngineFactory(store, o.Backend, o.Concurrent, o.Log).make,
				MaxConcurrent: o.Concurrent, Now: time.Now,
			})
		},
		NewLearner: func(store blob.Store) *learner.Service {
			return learner.NewService(learner.Config{
				Store: store, New: learnerFactory{backend: o.Backend, mesh: o.Mesh}.make, Now: time.Now, Log: o.Log,
				Background: func(task func()) { task() }, Rehearsal: true, Sharing: learner.Sharing{Published: o.Store},
			})
		},
	}
}
