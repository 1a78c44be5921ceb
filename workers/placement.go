package workers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/activities"
	"temper/internal/placement"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/workflows"
)

// ClusterOptions define where a control role gives runs dedicated workers.
type ClusterOptions struct {
	// Backend is nil where there is no cluster.
	Backend  placement.Backend
	Settings placement.Settings
	// Sandbox is how to ask the gateway at Place.SandboxAddress for its load.
	Sandbox httpapi.Options
}

// placing is the service of a control role that the activities use; nil without a cluster.
func (o ClusterOptions) placing(c client.Client, place Place) *placement.Service {
	if o.Backend == nil {
		return nil
	}
	s := &placement.Service{Backend: o.Backend, Settings: o.Settings, Runs: workflows.FindHolders(c)}
	s.Loads = loads{backend: o.Backend, rules: o.Settings.Rules, temporal: c, namespace: place.Namespace, gateway: place.SandboxAddress, sandbox: o.Sandbox}.measure
	return s
}

const (
	// newsPause lies between two pieces of news for the workflow of the cluster: each is a
	// few events of its history.
	newsPause = time.Second
	// newsRetry lies between two attempts at a scheduler that does not answer.
	newsRetry = 5 * time.Second
)

// watchCluster tells the workflow of the cluster when something changes there, until ctx
// ends. It looks now and then by itself as well, so that news that is lost costs time only.
func watchCluster(ctx context.Context, backend placement.Backend, announce func(context.Context, string, any) error, log *slog.Logger) {
	var index uint64
	silent := false
	for ctx.Err() == nil {
		next, err := backend.Watch(ctx, index)
		if err == nil {
			err = announce(ctx, activities.MessageNews, struct{}{})
		}
		pause := newsPause
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = newsRetry
			if !silent {
				log.Warn("the cluster is not watched", "err", err)
			}
		default:
			index = next
		}
		silent = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// loads measures the groups of the rules.
type loads struct {
	backend   placement.Backend
	rules     []placement.Rule
	temporal  client.Client
	namespace string
	gateway   string
	sandbox   httpapi.Options
}

// loadTimeout bounds one measurement.
const loadTimeout = 5 * time.Second

func (l loads) measure(ctx context.Context) []placement.Load {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var out []placement.Load
	for _, r := range l.rules {
		load := placement.Load{Job: r.Job}
		state, err := l.backend.Job(ctx, r.Job)
		if err == nil {
			load.Count, load.Answering = state.Count, state.Running()
			switch r.Kind {
			case placement.BySlots:
				err = l.bySlots(ctx, &load)
			case placement.ByBacklog:
				err = l.byBacklog(ctx, &load)
			}
		}
		if err != nil {
			load.Unknown = err.Error()
		}
		out = append(out, load)
	}
	return out
}

// bySlots asks the gateway before the sandbox nodes.
func (l loads) bySlots(ctx context.Context, load *placement.Load) error {
	c, err := httpapi.NewClient(l.gateway, l.sandbox)
	if err != nil {
		return err
	}
	defer c.Close()
	var stats gateway.Stats
	if err := c.Status(ctx, &stats); err != nil {
		return err
	}
	if stats.Nodes == nil {
		return errors.New("the sandbox at " + l.gateway + " is a node: scaling asks a gateway")
	}
	load.Answering = 0
	load.Waiting = stats.Waiting
	for _, n := range stats.Nodes {
		if !n.Up || n.Draining {
			continue
		}
		load.Answering++
		load.Slots += n.Slots
		load.Busy += max(n.Busy, n.InFlight)
	}
	if stats.DrainRate > 0 { // by Little's law, since a gateway keeps no times
		load.WaitSeconds = float64(stats.Waiting) / stats.DrainRate
	}
	return nil
}

// byBacklog asks the server for the tasks that wait for a control worker.
func (l loads) byBacklog(ctx context.Context, load *placement.Load) error {
	for _, kind := range []enums.TaskQueueType{enums.TASK_QUEUE_TYPE_WORKFLOW, enums.TASK_QUEUE_TYPE_ACTIVITY} {
		got, err := l.temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: l.namespace, TaskQueue: &taskqueue.TaskQueue{Name: workflows.QueueControl}, TaskQueueType: kind, ReportStats: true,
		})
		if err != nil {
			return err
		}
		load.Waiting += int(got.GetStats().GetApproximateBacklogCount())
		load.WaitSeconds = max(load.WaitSeconds, got.GetStats().GetApproximateBacklogAge().AsDuration().Seconds())
	}
	return nil
}

// Standing tells a role whether the scheduler has replaced its process.
type Standing struct {
	Records placement.Records
	// Instance is the id of the process for the scheduler: NOMAD_ALLOC_ID.
	Instance string
	// Every is the time between two questions; 0 is 10 s.
	Every time.Duration
	Log   *slog.Logger
}

// While runs the role until its process is replaced. When another has taken its place, it
// stops polling, drains and ends without an error: it does not fight for a lease that
// the other one has. A scheduler that does not answer changes nothing.
func (s Standing) While(r Role) Role {
	run := r.Run
	r.Run = func(ctx context.Context, v *Vitals) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			if s.awaitReplacement(ctx) {
				stop()
			}
		}()
		err := run(ctx, v)
		stop()
		<-asked
		return err
	}
	return r
}

// standingEvery is below the time after which a scheduler counts a silent node as lost.
const standingEvery = 10 * time.Second

// awaitReplacement returns true when the process does not count any more, and false
// when ctx has ended.
func (s Standing) awaitReplacement(ctx context.Context) bool {
	tick := time.NewTicker(cmp.Or(s.Every, standingEvery))
	defer tick.Stop()
	for {
		m, err := s.Records.Instance(ctx, s.Instance)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, placement.ErrNotExist), err == nil && !m.Current():
			s.Log.Warn("another process has replaced this one: it polls no more", "instance", s.Instance, "state", m.State, "wanted", m.Wanted)
			return true
		case err != nil:
			s.Log.Info("the scheduler does not say whether this process counts", "instance", s.Instance, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}
