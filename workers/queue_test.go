package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
)

func lazyClient(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// queues are the workers of all roles.
func queues() map[string]queueWorker {
	return map[string]queueWorker{
		"control": controlWorker(&activities.Control{}, &activities.Placement{}), "trainer": trainerWorker(&activities.Trainer{}, "temper-trainer"),
		"rollout": rolloutWorker(&activities.Rollouts{}, "temper-rollout", 0),
	}
}

// TestEverythingRegistersTogether uses a real worker, which panics when two
// workflows or activities have one name; in the test environment the second one
// would win in silence.
func TestEverythingRegistersTogether(t *testing.T) {
	w := worker.New(lazyClient(t, "127.0.0.1:1"), "all", worker.Options{})
	for _, q := range queues() {
		q.register(w)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second registration passed: the worker does not check names")
		}
	}()
	w.RegisterActivity(&activities.Trainer{})
}

func TestSlots(t *testing.T) {
	for name, c := range map[string]struct {
		got            worker.Options
		slots, pollers int
	}{
		"trainer":          {trainerWorker(nil, "q").options, 1, 1},
		"rollout":          {rolloutWorker(nil, "q", 0).options, 1, 1},
		"rollout of two":   {rolloutWorker(nil, "q", 2).options, 2, 2},
		"rollout of a lot": {rolloutWorker(nil, "q", 100).options, 100, numPollers},
	} {
		o := c.got
		if o.MaxConcurrentActivityExecutionSize != c.slots || o.MaxConcurrentActivityTaskPollers != c.pollers || !o.DisableWorkflowWorker {
			t.Errorf("%s: slots %d, pollers %d, workflow worker disabled %v; want %d, %d and true", name,
				o.MaxConcurrentActivityExecutionSize, o.MaxConcurrentActivityTaskPollers, o.DisableWorkflowWorker, c.slots, c.pollers)
		}
	}
}

// TestWorkersNameTheirBuild without opting into versioning, under which a run
// would wait for the build that it began on.
func TestWorkersNameTheirBuild(t *testing.T) {
	for name, q := range queues() {
		if d := q.options.DeploymentOptions; d.Version.BuildID != buildinfo.Build() || d.Version.DeploymentName == "" || d.UseVersioning || q.options.UseBuildIDForVersioning { //nolint:staticcheck // must stay off
			t.Errorf("%s: %+v, want the build and no versioning", name, d)
		}
	}
}

// TestStopTimeoutIsSet guards against the SDK's default of zero, which kills
// running activities when a worker drains.
func TestStopTimeoutIsSet(t *testing.T) {
	for name, q := range queues() {
		if q.options.WorkerStopTimeout != stopTimeout {
			t.Errorf("%s: stop timeout %v, want %v", name, q.options.WorkerStopTimeout, stopTimeout)
		}
		if every := q.options.MaxHeartbeatThrottleInterval; every <= 0 || every > 5*time.Second {
			t.Errorf("%s: heartbeat throttle %v: a cancellation comes that late", name, every)
		}
	}
}

// TestUnreachableServerIsAnError: a worker that cannot start says which queue.
func TestUnreachableServerIsAnError(t *testing.T) {
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q := trainerWorker(&activities.Trainer{}, "temper-trainer")
	q.options.WorkerStopTimeout = time.Second
	err = q.serve(ctx, lazyClient(t, addrs[0]), func() { t.Error("it polls") })
	if err == nil || !strings.Contains(err.Error(), "temper-trainer") {
		t.Errorf("error %v, want one that names the queue", err)
	}
}
