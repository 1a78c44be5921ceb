package recoverybench

import (
	"context"
	"sync"

	"temper/internal/policy"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/sampling"
)

// salted is an engine whose draws can be made anew for single trajectories, as a
// service does that keeps no seeds. Salt 0 leaves the draws as they are.
type salted struct {
	sampling.Engine
	salts *salts
}

// Generate implements policy.Engine.
func (e salted) Generate(ctx context.Context, req policy.Request) (policy.Generation, error) {
	req.Seed = e.salts.apply(req.Seed)
	return e.Engine.Generate(ctx, req)
}

// salts counts by trajectory how often its draws were made anew.
type salts struct {
	mu sync.Mutex
	of map[uint64]uint64 // by the trajectory's seed
	// repeat numbers the experiment: each has draws of its own.
	repeat uint64
}

func (s *salts) reset(repeat uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of, s.repeat = map[uint64]uint64{}, repeat
}

// fresh makes the draws of a trajectory anew.
func (s *salts) fresh(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[seed]++
}

func (s *salts) apply(seed uint64) uint64 {
	s.mu.Lock()
	salt, repeat := s.of[seed], s.repeat
	s.mu.Unlock()
	if repeat > 0 {
		seed = rl.Seed(seed, "repeat", repeat)
	}
	if salt > 0 {
		seed = rl.Seed(seed, "fresh", salt)
	}
	return seed
}

// seedOf is the seed that a trajectory asks the engine with.
func seedOf(run uint64, t *rl.Trajectory) uint64 {
	spec := rollout.Spec{
		Seed: run, Purpose: "train", Stage: t.Stage, Step: t.Step,
		Problem: rl.Problem{ID: t.ProblemID}, Rollout: t.Rollout,
	}
	return spec.TrajectorySeed()
}
