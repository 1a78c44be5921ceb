package workers

import (
	"context"
	"log/slog"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/trainer/cpu/decode"
	"temper/trainer/cpu/kernels"
	"temper/trainer/engine"
	"temper/trainer/weights/sharedmem"
)

// engineFactory makes the engines of a process, one for each run, and shows what
// they count. An engine that another process serves would be made here as well.
type engineFactory struct {
	store   blob.Store
	backend string
	// slots is how many sequences an engine samples at a time. Its capacity has room for so
	// many of full length, so mostly also for those that wait for tools.
	slots int
	// capacity is the number of tokens that the caches of an engine hold; 0 is room for
	// as many whole contexts as there are slots.
	capacity int
	log      *slog.Logger
	// weights are those that a trainer of this host shares; nil for the store alone.
	weights *sharedmem.Segments

	mu     sync.Mutex
	open   map[*engine.Engine]*sharedmem.Reader
	closed engine.Stats // counts of engines that are gone
	moved  sharedmem.Moved
}

// mostSlots bounds what an engine samples at a time. More rollouts than that may live: most
// of them wait for tools.
const mostSlots = 128

// DefaultRollouts is how many rollouts live at a time by default. It bounds memory: 1,024
// of 12,000 tokens are about 300 MB.
const DefaultRollouts = 1024

func newEngineFactory(store blob.Store, backend string, slots int, log *slog.Logger) *engineFactory {
	return &engineFactory{store: store, backend: backend, slots: min(slots, mostSlots), log: log, open: map[*engine.Engine]*sharedmem.Reader{}}
}

func (f *engineFactory) make(r *run.Loaded) (sampling.Engine, error) {
	if r.Config.Rollout.Engine.External() {
		return externalEngine(f.store, f.backend, r, f.log)
	}
	reader := &sharedmem.Reader{Store: f.store, Segments: f.weights, Log: f.log}
	e, err := engine.New(engine.Config{
		Model: r.Model, MaxContext: r.Config.EngineContext(), Backend: f.backend, Slots: f.slots, Log: f.log,
		Capacity: f.capacity, Shards: f.shards(r.Config.EngineContext()),
		Kernels: kernels.Choice(r.Config.Trainer.Kernels),
		OpenWeights: func(ctx context.Context, ref blob.Ref) (engine.Source, error) {
			w, err := reader.Open(ctx, ref)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	})
	if err != nil {
		return nil, err
	}
	reader.Keep = e.Native() && decode.LayoutOf(r.Model) == decode.InPlace
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[e] = reader
	return countedEngine{e, f, reader}, nil
}

// shards keeps the parts of a small cache large enough for one context; 0 leaves the
// number to the engine.
func (f *engineFactory) shards(maxContext int) int {
	if whole := f.capacity / maxContext; f.capacity > 0 && whole < runtime.GOMAXPROCS(0) {
		return max(1, whole)
	}
	return 0
}

// countedEngine leaves its counts behind when it is closed.
type countedEngine struct {
	*engine.Engine
	factory *engineFactory
	reader  *sharedmem.Reader
}

// Prefetch implements policy.Prefetcher.
func (e countedEngine) Prefetch(ctx context.Context, ref blob.Ref, _ int64) {
	e.reader.Prefetch(ctx, ref)
}

// Close implements sampling.Engine.
func (e countedEngine) Close() {
	e.Engine.Close()
	e.reader.Close()
	f := e.factory
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[e.Engine] != nil {
		delete(f.open, e.Engine)
		f.closed = addCounts(f.closed, e.Stats())
		f.moved = f.moved.Plus(e.reader.Moved())
	}
}

func addCounts(a, b engine.Stats) engine.Stats {
	a.Generated += b.Generated
	a.Prefilled += b.Prefilled
	a.Steps += b.Steps
	a.Rows += b.Rows
	a.Evictions += b.Evictions
	a.Shared += b.Shared
	a.Preempted += b.Preempted
	return a
}

var (
	engineTokens    = prometheus.NewDesc("rl_engine_tokens_total", "Tokens that went through the engines: sampled, or fed as context.", []string{"kind"}, nil)
	enginePasses    = prometheus.NewDesc("rl_engine_passes_total", "Device passes of the engines.", nil, nil)
	engineRows      = prometheus.NewDesc("rl_engine_rows_total", "Rows of all passes, with padding.", nil, nil)
	engineEvictions = prometheus.NewDesc("rl_engine_evictions_total", "Idle sessions that lost their cache to others.", nil, nil)
	engineSlots     = prometheus.NewDesc("rl_engine_slots", "Slots of the engines by state.", []string{"state"}, nil)
	engineWeights   = prometheus.NewDesc("rl_engine_weight_bytes_total", "Bytes of weights by the way on which engines got them: mapped from the trainer in this process, or from one on this host; read from the store; kept from the policy before.", []string{"way"}, nil)
	engineRequests  = prometheus.NewDesc("rl_engine_requests", "Requests that run or wait.", nil, nil)
	engineCount     = prometheus.NewDesc("rl_engines", "Engines in memory, one for each run.", nil, nil)
)

// Describe implements prometheus.Collector.
func (f *engineFactory) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{engineTokens, enginePasses, engineRows, engineEvictions, engineWeights, engineSlots, engineRequests, engineCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (f *engineFactory) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	sum, moved, count := f.closed, f.moved, len(f.open)
	for e, reader := range f.open {
		moved = moved.Plus(reader.Moved())
		s := e.Stats()
		sum = addCounts(sum, s)
		sum.Slots += s.Slots
		sum.Active += s.Active
		sum.Idle += s.Idle
		sum.Requests += s.Requests
	}
	f.mu.Unlock()
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counter(engineTokens, sum.Generated, "sampled")
	counter(engineTokens, sum.Prefilled, "context")
	counter(enginePasses, sum.Steps)
	counter(engineRows, sum.Rows)
	counter(engineEvictions, sum.Evictions)
	gauge(engineSlots, sum.Slots-sum.Active, "free") // sessions that are kept hold blocks and no slot
	gauge(engineSlots, sum.Active, "generating")
	gauge(engineSlots, sum.Idle, "kept")
	counter(engineWeights, moved.Process, "process")
	counter(engineWeights, moved.Host, "host")
	counter(engineWeights, moved.Store, "store")
	counter(engineWeights, moved.Kept, "kept")
	gauge(engineRequests, sum.Requests)
	gauge(engineCount, count)
}
