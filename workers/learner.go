package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/trainer"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
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
