package workers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/placement/placementtest"
	"temper/sandbox/gateway"
)

// TestRoleOfOneRun polls the queues of the run and no others.
func TestRoleOfOneRun(t *testing.T) {
	q := placement.QueuesOf("a")
	if got := Trainer(TrainerOptions{Queue: q.Trainer}).Queues; !slices.Equal(got, []string{"temper-trainer-a"}) {
		t.Errorf("trainer polls %v", got)
	}
	if got := Rollout(RolloutOptions{Queue: q.Rollout}).Queues; !slices.Equal(got, []string{"temper-rollout-a"}) {
		t.Errorf("rollout polls %v", got)
	}
}

// TestReplacedProcessPollsNoMore: the role of a lost instance ends in order when another
// has its place; one that is current goes on, also while nobody can say so.
func TestReplacedProcessPollsNoMore(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(2)...)
	job := placement.Job{ID: "trainer-a", Run: "a", Role: placement.RoleTrainer, Epoch: 1, Instances: 1, Each: placement.Resources{Devices: map[string]int{"amd/gpu": 8}}}
	if _, err := f.Start(t.Context(), job, 0); err != nil {
		t.Fatal(err)
	}
	state, err := f.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	old := state.Instances[0]
	var polls atomic.Int32
	role := Role{Name: "trainer", Run: func(ctx context.Context, _ *Vitals) error {
		polls.Add(1)
		<-ctx.Done()
		return nil
	}}
	ended := make(chan error, 1)
	asks := &counted{Records: f}
	go func() {
		ended <- Standing{Records: asks, Instance: old.ID, Every: time.Millisecond, Log: discard}.While(role).Run(t.Context(), nil)
	}()
	asks.await(5)
	f.Flaw(placementtest.Flaws{Away: true})
	asks.await(5)
	select {
	case err := <-ended:
		t.Fatalf("it ended while it was current: %v", err)
	default:
	}
	f.Flaw(placementtest.Flaws{})
	f.LoseNode(old.Node)
	if err := <-ended; err != nil || polls.Load() != 1 {
		t.Errorf("ended with %v after %d starts", err, polls.Load())
	}
}

type counted struct {
	placement.Records
	n atomic.Int64
}

func (c *counted) Instance(ctx context.Context, id string) (placement.Instance, error) {
	c.n.Add(1)
	return c.Records.Instance(ctx, id)
}

// await waits for n more questions.
func (c *counted) await(n int64) {
	for until := c.n.Load() + n; c.n.Load() < until; {
		time.Sleep(time.Millisecond)
	}
}

// TestNewsOfTheCluster: each change is told, and a scheduler that is away is asked again.
func TestNewsOfTheCluster(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(1)...)
	ctx, stop := context.WithCancel(t.Context())
	told := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchCluster(ctx, f, func(_ context.Context, message string, _ any) error { told <- message; return nil }, discard)
	}()
	if got := <-told; got != activities.MessageNews {
		t.Errorf("told %q", got)
	}
	f.LoseNode("node-000")
	<-told
	stop()
	<-done
}

// TestLoadOfTheGateway is what scaling is decided by.
func TestLoadOfTheGateway(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(gateway.Stats{Waiting: 6, DrainRate: 3, Nodes: []gateway.NodeStats{
			{Address: "a:1", Up: true, Slots: 8, InFlight: 8}, {Address: "b:1", Up: false, Slots: 8}, {Address: "c:1", Up: true, Slots: 4, Busy: 1},
		}})
	}))
	defer server.Close()
	f := placementtest.NewFake()
	f.AddService("sandbox", 3, 1, 6)
	rules := []placement.Rule{{Job: "sandbox", Kind: placement.BySlots, Least: 1, Most: 6}, {Job: "nobody", Kind: placement.BySlots, Least: 1, Most: 6}}
	got := loads{backend: f, rules: rules, gateway: strings.TrimPrefix(server.URL, "http://")}.measure(t.Context())
	want := placement.Load{Job: "sandbox", Count: 3, Answering: 2, Slots: 12, Busy: 9, Waiting: 6, WaitSeconds: 2}
	if len(got) != 2 || got[0] != want || got[1].Unknown == "" {
		t.Errorf("%+v, want %+v and an unknown one", got, want)
	}
}
