package workers

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"temper/activities"
	"temper/internal/learner"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/trainer/device"
	"temper/workflows"
)

// savePatience is the time that a save under way gets after the worker has drained.
// The supervisor kills 15 s after it asked, and draining may take 10 of them.
const savePatience = 3 * time.Second

// TrainerOptions configure a trainer role.
type TrainerOptions struct {
	Place
	// Queue is the queue of the one run that the role works for; "" works for all runs without
	// dedicated workers.
	Queue string
	// Backend for tensors; empty is the Go backend.
	Backend string
	// Mesh of devices; the zero value is one device.
	Mesh device.Mesh
	// Hosts is host:port or unix:/path where processes of other machines join to make
	// passes; "" takes none. With HostsTLS both sides show certificates.
	Hosts    string
	HostsTLS PeerTLS
	// ResidentRuns is how many runs keep their state in memory while another one is
	// trained, and ResidentBytes what the states of all may take together.
	ResidentRuns  int
	ResidentBytes int64
}

// Trainer updates policies, one activity at a time: it owns its device, and a policy
// is updated in order. It does not sample.
func Trainer(o TrainerOptions) Role {
	return Role{
		Row: role.Of(role.Trainer), Queues: []string{o.queue()},
		Run: func(ctx context.Context, v *Vitals) error { return serveTrainer(ctx, o, v) },
	}
}

// queue is the one that the role polls.
func (o TrainerOptions) queue() string { return cmp.Or(o.Queue, workflows.QueueTrainer) }

func serveTrainer(ctx context.Context, o TrainerOptions, v *Vitals) error {
	conn, err := o.connect(ctx, "trainer", v)
	if err != nil {
		return err
	}
	defer conn.close()
	v.Need(string(role.NeedDevice), func(context.Context) error { return device.Check(o.Backend) })
	o.Log.Info("trainer starts", "build", buildinfo.Line(), "backend", o.Backend, "mesh", o.Mesh.String(), "temporal", o.TemporalAddress)
	hub, listener, err := hubOf(o, v)
	if err != nil {
		return err
	}
	factory := learnerFactory{backend: o.Backend, mesh: o.Mesh, hub: hub, log: o.Log}
	v.Metrics.MustRegister(graphMetrics{})
	service := learner.NewService(learner.Config{
		Store: conn.store, New: factory.make, OnLease: factory.noteLease, Now: time.Now, Log: o.Log,
		MaxResident: o.ResidentRuns, MaxResidentBytes: o.ResidentBytes,
		MadeBy: makerOf("trainer", o.Backend, o.Mesh), Meter: proc.NewMeter(o.Supervisor),
		Sharing: learner.Sharing{Memory: o.Weights.ForRun},
		Graphs:  graphsOf(o.Backend), Work: workOf(ctx, o.Backend, o.Mesh),
	})
	defer o.Weights.Close()
	defer service.Close(savePatience)
	worker := trainerWorker(&activities.Trainer{Learner: service}, o.queue())
	if hub == nil {
		return worker.serve(ctx, conn.client, func() { v.Serving(o.queue()) })
	}
	// Hosts stay until the worker has drained.
	hosting, dismiss := context.WithCancel(context.WithoutCancel(ctx))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return hub.Serve(hosting, listener) })
	g.Go(func() error {
		defer dismiss()
		return worker.serve(ctx, conn.client, func() { v.Serving(o.queue()) })
	})
	return g.Wait()
}

func trainerWorker(trainer *activities.Trainer, queue string) queueWorker {
	return queueWorker{
		queue: queue, options: activityOptions(1),
		register: func(r worker.Registry) { r.RegisterActivity(trainer) },
	}
}
