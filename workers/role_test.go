package workers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/role"
	"temper/internal/run"
	"temper/trainer/model"
)

var discard = slog.New(slog.DiscardHandler)

// waiter is a role that serves one queue until it is told to end.
func waiter(name string, need role.Need) Role {
	return Role{Row: role.Row{Name: name, Needs: []role.Need{need, role.NeedStore}}, Queues: []string{"q-" + name}, Run: func(ctx context.Context, v *Vitals) error {
		v.Serving("q-" + name)
		<-ctx.Done()
		return nil
	}}
}

// TestServeAnswersWhileTheRoleRuns at one address, for all roles of a process.
func TestServeAnswersWhileTheRoleRuns(t *testing.T) {
	both := Together("both", waiter("a", role.NeedDevice), waiter("b", role.NeedSandbox))
	if want := []role.Need{role.NeedDevice, role.NeedStore, role.NeedSandbox}; !slices.Equal(both.Needs, want) {
		t.Errorf("needs %v, want %v", both.Needs, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- both.Serve(ctx, ServeOptions{Listen: "127.0.0.1:0", Log: discard, OnReady: func(address string) { ready <- address }})
	}()
	address := <-ready
	p := &proc.Probe{Address: address}
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	if text := get(t, "http://"+address+PathMetrics); !strings.Contains(text, `rl_role_info{build=`) || !strings.Contains(text, `role="both"`) || !strings.Contains(text, "process_resident_memory_bytes") {
		t.Errorf("metrics:\n%s", text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := p.Alive(t.Context()); err == nil {
		t.Error("a role that ended answers")
	}
}

// TestRoleThatFailsEndsTheOthers, and Serve says why.
func TestRoleThatFailsEndsTheOthers(t *testing.T) {
	broken := Role{Row: role.Row{Name: "broken"}, Queues: []string{"q"}, Run: func(context.Context, *Vitals) error { return errors.New("no server") }}
	err := Together("both", waiter("a", role.NeedStore), broken).Serve(t.Context(), ServeOptions{Listen: "127.0.0.1:0", Log: discard,
		OnReady: func(string) { t.Error("it is ready") }})
	if err == nil || err.Error() != "no server" {
		t.Errorf("error %v, want that of the role", err)
	}
	err = waiter("a", role.NeedStore).Serve(t.Context(), ServeOptions{Listen: "0.0.0.0:0", Log: discard})
	if err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("error %v of an address for everybody", err)
	}
}

// TestRolesNameWhatTheyNeed: who starts roles elsewhere reads it here.
func TestRolesNameWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		role   Role
		needs  []role.Need
		queues []string
		own    bool
	}{
		{Control(ControlOptions{}), []role.Need{role.NeedTemporal, role.NeedStore}, []string{"temper"}, false},
		{Trainer(TrainerOptions{}), []role.Need{role.NeedTemporal, role.NeedStore, role.NeedDevice}, []string{"temper-trainer"}, false},
		{Rollout(RolloutOptions{}), []role.Need{role.NeedTemporal, role.NeedStore, role.NeedSandbox, role.NeedDevice}, []string{"temper-rollout"}, false},
		{Sandbox(SandboxOptions{}), nil, nil, true},
		{Gateway(GatewayOptions{}), []role.Need{role.NeedSandbox}, nil, true},
	} {
		if r := c.role; !slices.Equal(r.Needs, c.needs) || !slices.Equal(r.Queues, c.queues) || r.OwnListener != c.own || r.Name == "" {
			t.Errorf("%v needs %v, polls %v, own listener %v; want %v, %v, %v", r, r.Needs, r.Queues, r.OwnListener, c.needs, c.queues, c.own)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", url, resp.StatusCode, err)
	}
	return string(text)
}

// gathered are the series of a registry in the text format, without their help.
func gathered(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b.WriteString(f.GetName() + " " + m.String() + "\n")
		}
	}
	return b.String()
}

// TestSDKMetrics: the SDK names its counts as it likes, also twice in one process.
func TestSDKMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 {
		var h client.MetricsHandler = sdkMetrics{registry: registry}
		h = h.WithTags(map[string]string{"namespace": "default", "task_queue": "none"}).WithTags(map[string]string{"task_queue": "q"})
		h.Counter("temporal_request").Inc(2)
		h.WithTags(map[string]string{"worker_type": "ActivityWorker"}).Gauge("temporal_num_pollers").Update(3)
		h.Timer("temporal_request_latency").Record(time.Second)
	}
	text := gathered(t, registry)
	for _, want := range []string{"temporal_request_total", "counter:{value:4", `value:"q"`, `value:"ActivityWorker"`, "temporal_request_latency_seconds", "sample_count:2"} {
		if !strings.Contains(strings.ReplaceAll(text, "  ", " "), want) {
			t.Errorf("series\n%swant %q", text, want)
		}
	}
}

// TestEngineCountsOutliveTheEngine: a counter that goes down is a lie.
func TestEngineCountsOutliveTheEngine(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newEngineFactory(memblob.New(), "go", 3, discard)
	registry.MustRegister(f)
	f.closed.Generated = 7 // of an engine before
	r := run.Loaded{Config: config.Default(), Model: model.Config{
		VocabSize: 16, HiddenSize: 8, IntermediateSize: 16, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 4, MaxPositionEmbeddings: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}}
	r.Config.Model.MaxContext = 32
	e, err := f.make(&r)
	if err != nil {
		t.Fatal(err)
	}
	check := func(engines, slots string) {
		t.Helper()
		text := strings.ReplaceAll(gathered(t, registry), "  ", " ")
		for _, want := range []string{"rl_engines gauge:{value:" + engines + "}", `value:"sampled"} counter:{value:7}`, `value:"free"} gauge:{value:` + slots + "}"} {
			if !strings.Contains(text, want) {
				t.Errorf("series\n%swant %q", text, want)
			}
		}
	}
	check("1", "3")
	e.Close()
	check("0", "0")
}
