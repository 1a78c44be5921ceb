package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rl"
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

func (f learnerFactory) make(cfg config.Run, m qwen3.Config) (activities.Learner, error) {
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

func (f engineFactory) make(cfg config.Run, m qwen3.Config) (activities.Engine, error) {
	return engine.New(engine.Config{
		Model: m, MaxContext: cfg.Model.MaxContext, Backend: f.backend, Slots: f.slots, Log: f.log,
		LoadWeights: func(ctx context.Context, ref blob.Ref) ([]qwen3.Tensor, error) {
			p, err := checkpoint.LoadWeights(ctx, f.store, ref)
			return p.Weights, err
		},
	})
}
