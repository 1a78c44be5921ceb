package workers

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/buildinfo"
	"temper/internal/cputime"
	"temper/internal/learner"
	"temper/trainer/device"
	"temper/workflows"
)

// savePatience is the time that a save under way gets after the worker has drained.
// The supervisor kills 15 s after it asked, and draining may take 10 of them.
const savePatience = 3 * time.Second

// TrainerOptions are what a trainer role can be told.
type TrainerOptions struct {
	Place
	// Queue is that of the one run which the role works for; "" works for all runs that
	// have no workers of their own.
	Queue string
	// Backend for tensors; empty is the Go backend.
	Backend string
	// Mesh of devices; the zero value is one device.
	Mesh device.Mesh
	// ResidentRuns is how many runs keep their state in memory while another one is
	// trained, and ResidentBytes what the states of all may take together.
	ResidentRuns  int
	ResidentBytes int64
}

// Trainer updates policies, one activity at a time: it owns its device, and a policy
// is updated in order. It does not sample.
func Trainer(o TrainerOptions) Role {
	return Role{
		Name: "trainer", Needs: []Need{NeedTemporal, NeedStore, NeedDevice}, Queues: []string{o.queue()},
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
	v.Need(string(NeedDevice), func(context.Context) error { return device.Check(o.Backend) })
	o.Log.Info("trainer starts", "build", buildinfo.Line(), "backend", o.Backend, "mesh", o.Mesh.String(), "temporal", o.TemporalAddress)
	service := learner.NewService(learner.Config{
		Store: conn.store, New: learnerFactory{backend: o.Backend, mesh: o.Mesh}.make, Now: time.Now, Log: o.Log,
		MaxResident: o.ResidentRuns, MaxResidentBytes: o.ResidentBytes,
		MadeBy: makerOf("trainer", onMesh(o.Backend, o.Mesh)), Meter: cputime.New(o.Supervisor),
	})
	defer service.Close(savePatience)
	return trainerWorker(&activities.Trainer{Learner: service}, o.queue()).serve(ctx, conn.client, func() { v.Serving(o.queue()) })
}

func trainerWorker(trainer *activities.Trainer, queue string) queueWorker {
	return queueWorker{
		queue: queue, options: activityOptions(1),
		register: func(r worker.Registry) { r.RegisterActivity(trainer) },
	}
}
