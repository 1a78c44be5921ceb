package workers

import (
	"log/slog"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
	"temper/internal/sampling"
	"temper/sandbox"
	"temper/trainer/device"
)

// RemakeOptions say with what steps are made again.
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
