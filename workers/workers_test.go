package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/buildinfo"
	"temper/internal/freeport"
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

// TestEverythingRegistersTogether uses a real worker, which panics when two
// workflows or activities have one name; the test environment would let the
// second one win in silence.
func TestEverythingRegistersTogether(t *testing.T) {
	c := lazyClient(t, "127.0.0.1:1")
	w := worker.New(c, "all", worker.Options{})
	registerControl(w, &activities.Control{})
	w.RegisterActivity(&activities.Trainer{})
	w.RegisterActivity(&activities.Rollouts{})
	defer func() {
		if recover() == nil {
			t.Error("a second registration passed: the worker does not check names")
		}
	}()
	w.RegisterActivity(&activities.Trainer{})
}

func TestTrainerHasOneSlot(t *testing.T) {
	o := trainerOptions(Options{})
	if o.MaxConcurrentActivityExecutionSize != 1 || !o.DisableWorkflowWorker {
		t.Errorf("slots %d, workflow worker disabled %v; want 1 and true", o.MaxConcurrentActivityExecutionSize, o.DisableWorkflowWorker)
	}
}

// TestWorkersTellTheirBuild without opting into versioning, under which a run
// would wait for the build that it began on.
func TestWorkersTellTheirBuild(t *testing.T) {
	for name, o := range map[string]worker.Options{
		"control": controlOptions(Options{}), "trainer": trainerOptions(Options{}), "rollout": rolloutOptions(0, Options{}),
	} {
		if d := o.DeploymentOptions; d.Version.BuildID != buildinfo.Version() || d.Version.DeploymentName == "" || d.UseVersioning || o.UseBuildIDForVersioning { //nolint:staticcheck // must stay off
			t.Errorf("%s: %+v, want the build and no versioning", name, d)
		}
	}
}

// TestStopTimeoutIsSet guards against the SDK's default of zero, which kills
// running activities when a worker drains.
func TestStopTimeoutIsSet(t *testing.T) {
	for name, o := range map[string]worker.Options{
		"control": controlOptions(Options{}), "trainer": trainerOptions(Options{}), "rollout": rolloutOptions(0, Options{}),
	} {
		if o.WorkerStopTimeout != DefaultStopTimeout {
			t.Errorf("%s: stop timeout %v, want %v", name, o.WorkerStopTimeout, DefaultStopTimeout)
		}
		if o.MaxHeartbeatThrottleInterval <= 0 || o.MaxHeartbeatThrottleInterval > 5*time.Second {
			t.Errorf("%s: heartbeat throttle %v: a cancellation comes that late", name, o.MaxHeartbeatThrottleInterval)
		}
	}
}

// TestUnreachableServerIsAnError: a worker that cannot start says which queue.
func TestUnreachableServerIsAnError(t *testing.T) {
	addrs, err := freeport.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = RunTrainer(ctx, lazyClient(t, addrs[0]), &activities.Trainer{}, Options{StopTimeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "temper-trainer") {
		t.Errorf("error %v, want one that names the queue", err)
	}
}
