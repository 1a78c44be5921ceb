package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/engine"
	"temper/trainer/qwen3"
)

// placement is where training runs.
type placement struct {
	backend string
	mesh    device.Mesh
}

type learnerFactory struct {
	store blob.Store
	on    placement
}

func (f learnerFactory) make(r *run.Loaded) (learner.Learner, error) {
	cfg, m := r.Config, r.Model
	if err := errors.Join(
		trainer.CheckOptimizer(m, "sft.optimizer", cfg.SFT.Optimizer),
		trainer.CheckOptimizer(m, "rl.optimizer", cfg.RL.Optimizer)); err != nil {
		return nil, err
	}
	c := trainer.Config{
		Backend: f.on.backend, Mesh: f.on.mesh, Model: m, Seed: rl.Seed(cfg.Seed, "trainer"),
		MicrobatchTokens: cfg.RL.MicrobatchTokens, Temperature: cfg.Rollout.Temperature, Loss: cfg.RL.Loss,
		Pack: cfg.RL.Pack, Compute: cfg.Model.Compute, Remat: cfg.Model.Remat,
	}
	limitMemory(&c, cfg.RL.NumMinibatches, memoryLimit(os.DirFS("/")))
	return trainer.New(c)
}

type engineFactory struct {
	store   blob.Store
	backend string
	// slots is the number of concurrent rollouts: with fewer, the caches of
	// trajectories that wait for a tool are evicted and filled again.
	slots int
	log   *slog.Logger
}

func (f engineFactory) make(r *run.Loaded) (sampling.Engine, error) {
	return engine.New(engine.Config{
		Model: r.Model, MaxContext: r.Config.Model.MaxContext, Backend: f.backend, Slots: f.slots, Log: f.log,
		LoadWeights: func(ctx context.Context, ref blob.Ref) ([]qwen3.Tensor, error) {
			p, err := checkpoint.LoadWeights(ctx, f.store, ref)
			return p.Weights, err
		},
	})
}
