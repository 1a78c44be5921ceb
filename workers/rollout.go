package workers

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/sandbox/httpapi"
	"temper/trainer/device"
	"temper/workflows"
)

// RolloutOptions configure a rollout role.
type RolloutOptions struct {
	Place
	// Queue is the queue of the one run that the role works for; "" works for all runs without
	// dedicated workers.
	Queue string
	// Backend for tensors; empty is the Go backend.
	Backend string
	// Concurrent is the number of trajectories of a run that live at a time: sampled,
	// waiting for the engine or waiting for a tool.
	Concurrent int
	// Slots is the number of activities at a time. With several, runs share the
	// device; with one, the shards of a step spread over the rollout roles that are
	// free. 0 is one.
	Slots int
	// Sandbox is how to call the sandbox at Place.SandboxAddress.
	Sandbox httpapi.Options
	// Engines of other processes sample in place of one in this process.
	Engines EnginesOptions
}

// Rollout samples trajectories and evaluates policies. Several rollout roles share
// the shards of each step; each loads the policy by itself.
func Rollout(o RolloutOptions) Role {
	return Role{
		Row: role.Of(role.Rollout), Queues: []string{o.queue()},
		Run: func(ctx context.Context, v *Vitals) error { return serveRollout(ctx, o, v) },
	}
}

// queue is the one that the role polls.
func (o RolloutOptions) queue() string { return cmp.Or(o.Queue, workflows.QueueRollout) }

func serveRollout(ctx context.Context, o RolloutOptions, v *Vitals) error {
	conn, err := o.connect(ctx, "rollout", v)
	if err != nil {
		return err
	}
	defer conn.close()
	executor, err := httpapi.NewClient(o.SandboxAddress, o.Sandbox)
	if err != nil {
		return err
	}
	defer executor.Close()
	v.Need(string(role.NeedSandbox), executor.Health)
	v.Need(string(role.NeedDevice), func(context.Context) error { return device.Check(o.Backend) })
	o.Log.Info("rollouts start", "build", buildinfo.Line(), "backend", o.Backend, "temporal", o.TemporalAddress, "sandbox", o.SandboxAddress)
	service := sampling.New(sampling.Config{
		Store: conn.store, Executor: executor, NewEngine: o.engines(conn.store, v), MaxConcurrent: o.Concurrent, Now: time.Now,
		Policies: o.policies,
		MadeBy:   makerOf("rollout", o.Backend, device.Mesh{}), Meter: proc.NewMeter(o.Supervisor),
	})
	defer service.Close()
	mender := Remake(RemakeOptions{Store: conn.store, Backend: o.Backend, Concurrent: o.Concurrent, Executor: executor, Log: o.Log})
	return rolloutWorker(&activities.Rollouts{Sampling: service, Mender: mender}, o.queue(), o.Slots).serve(ctx, conn.client, func() { v.Serving(o.queue()) })
}

// policies is how many policies of a run with rl.window are sampled with at a time. Two
// engines of this process hold the policy of a step's tail and the policy of the steps after it.
// Engines of other processes serve one.
func (o RolloutOptions) policies(r *run.Loaded) int {
	if o.Engines.Used() || r.Config.Rollout.Engine.External() {
		return 1
	}
	return 2
}

// engines makes the engines of runs, in this process or of others.
func (o RolloutOptions) engines(store blob.Store, v *Vitals) func(*run.Loaded) (sampling.Engine, error) {
	if o.Engines.Used() {
		others := newRemoteEngines(store, o.Engines, o.Log)
		v.Metrics.MustRegister(others.counts)
		return others.make
	}
	own := newEngineFactory(store, o.Backend, o.Concurrent, o.Log)
	own.weights = o.Weights
	v.Metrics.MustRegister(own)
	return own.make
}

func rolloutWorker(rollouts *activities.Rollouts, queue string, slots int) queueWorker {
	return queueWorker{
		queue: queue, options: activityOptions(max(1, slots)),
		register: func(r worker.Registry) { r.RegisterActivity(rollouts) },
	}
}
