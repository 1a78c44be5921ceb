package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/trainer/cpu/kernels"
	backends "temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// Config of an Engine.
type Config struct {
	// Model has the network's dimensions. Every loaded policy must have them.
	Model model.Config
	// LoadWeights reads a published policy. Only Load uses it.
	LoadWeights func(ctx context.Context, ref blob.Ref) ([]tensor.Named, error)
	// OpenWeights, when not nil, replaces LoadWeights: it opens a published policy with its
	// weights in place.
	OpenWeights func(ctx context.Context, ref blob.Ref) (Source, error)
	// Backend is a GoMLX backend string; "" means "go".
	Backend string
	// Kernels of the CPU backend: native, also when empty, or portable.
	Kernels kernels.Choice
	// Graph makes all passes by the backend's graph, also where package decode has the same
	// bits for less, or an XLA device could make several tokens in one call.
	Graph bool
	// Ahead is the number of tokens of a request that an XLA device makes in one call, 16
	// when 0. Other backends make one.
	Ahead int
	// Slots bounds the requests that run at the same time, 64 when 0. Other requests wait.
	Slots int
	// Capacity is the number of tokens in the caches, including tokens of idle sessions. 0 is
	// enough for Slots contexts of MaxContext.
	Capacity int
	// Shards divides slots and capacity among independent devices of the CPU backend, each
	// with one thread. 0 means one a CPU for the CPU backend, else one.
	Shards int
	// MaxContext bounds the tokens of a context with its generation. 0 is the model's
	// max_position_embeddings.
	MaxContext int
	// Queue bounds the requests that run or wait, 1<<17 when 0. A waiting request costs its
	// tokens and a goroutine of the caller. Callers bound themselves; this limit stops a
	// runaway client with an error before it takes all memory.
	Queue int
	// Log receives facts about the start; nil discards them.
	Log *slog.Logger
}

// Engine generates tokens with a decoder.
type Engine struct {
	cfg     Config
	shards  []*shard
	router  *router
	wg      sync.WaitGroup
	version atomic.Int64
	loading sync.Mutex
	release func() error // releases weights that are read in place; guarded by loading
	close   sync.Once
	closed  chan struct{}
}

var (
	_ inference.Loader   = (*Engine)(nil)
	_ inference.Reporter = (*Engine)(nil)
)

// New starts an engine without weights: it refuses requests until Load or
// LoadTensors. The caller must Close it.
func New(cfg Config) (*Engine, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, router: newRouter(cfg.Queue), closed: make(chan struct{})}
	e.version.Store(-1)
	devices, shapes, err := openDevices(cfg)
	if err != nil {
		return nil, err
	}
	for i, dev := range devices {
		e.shards = append(e.shards, newShard(dev, shapes, cfg.shardSlots()))
		e.router.add(e.shards[i])
	}
	cfg.Log.Info("policy engine ready", "backend", cfg.Backend, "shards", cfg.Shards, "slots", cfg.Slots,
		"capacity", cfg.Capacity, "max_context", cfg.MaxContext, "native", e.Native(), "step_shapes", fmt.Sprint(shapes))
	for _, s := range e.shards {
		e.wg.Go(s.serve)
	}
	return e, nil
}

// setDefaults fills zero fields and reports all mistakes.
func (c *Config) setDefaults() error {
	if err := c.Model.Validate(); err != nil {
		return fmt.Errorf("engine model: %w", err)
	}
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	if c.Backend == "" {
		c.Backend = "go"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	set(&c.Slots, 64)
	set(&c.MaxContext, c.Model.MaxPositionEmbeddings)
	set(&c.Queue, 1<<17)
	set(&c.Shards, c.defaultShards())
	set(&c.Capacity, c.Shards*c.shardSlots()*blocksOf(c.MaxContext)*blockTokens)
	var errs []error
	if err := backends.CheckKernels(c.Backend, c.Kernels); err != nil {
		errs = append(errs, fmt.Errorf("engine: %w", err))
	}
	if c.Ahead < 0 {
		errs = append(errs, fmt.Errorf("engine ahead: %d tokens, want 0 or more", c.Ahead))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"slots", c.Slots}, {"shards", c.Shards}, {"max context", c.MaxContext}, {"queue", c.Queue}, {"capacity", c.Capacity}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("engine %s: %d, want at least 1", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// shardSlots returns the number of slots of a shard.
func (c *Config) shardSlots() int { return (c.Slots + c.Shards - 1) / max(c.Shards, 1) }

// shardBlocks returns the number of blocks of a shard, enough for the check of step shapes.
func (c *Config) shardBlocks() int { return max(blocksOf(c.Capacity/c.Shards), 4) }

// defaultShards returns one a CPU, or fewer where the steps of a shard would be so small that
// they are mostly overhead.
func (c *Config) defaultShards() int {
	if !cpuBackend(c.Backend) {
		return 1
	}
	return max(1, min(runtime.GOMAXPROCS(0), c.Slots/8))
}

// cpuBackend reports whether a backend string names the pure Go backend.
func cpuBackend(config string) bool { return config == "go" || strings.HasPrefix(config, "go:") }

// openDevices opens the devices of all shards, and returns the shapes of their steps.
func openDevices(cfg Config) ([]*device, []shape, error) {
	native, err := nativeWorks(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("check native passes: %w", err)
	}
	var shapes []shape
	devices := make([]*device, cfg.Shards)
	for i := range devices {
		if native {
			devices[i], shapes = newNativeDevice(cfg), []shape{nativeShape}
			continue
		}
		if decodesAhead(cfg) {
			if devices[i], err = newAheadDevice(cfg); err != nil {
				for _, d := range devices[:i] {
					d.close()
				}
				return nil, nil, err
			}
			continue
		}
		if devices[i], err = openDevice(cfg); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			continue
		}
		if shapes, err = shapesOf(cfg, devices[0]); err != nil {
			return nil, nil, fmt.Errorf("check step shapes: %w", err)
		}
	}
	return devices, shapes, nil
}

// openDevice starts the backend of one shard.
func openDevice(cfg Config) (*device, error) {
	config := cfg.Backend
	if config == "go" {
		config = "go:ops_sequential"
	}
	backend, err := backends.Open(config)
	if err != nil {
		return nil, fmt.Errorf("open compute backend %q: %w", cfg.Backend, err)
	}
	if cpuBackend(cfg.Backend) {
		// A shard has one thread. Distributing operations of 50 microseconds over more threads
		// costs 10 to 25 % more CPU.
		backends.HelpersOf(backend).Rest()
	}
	d, err := newDevice(backend, cfg.Model, cfg.shardBlocks(), max(cfg.MaxContext, probeTokens))
	if err != nil {
		return nil, err
	}
	d.kernels = cfg.Kernels
	return d, nil
}

// Generate implements inference.Engine. Two requests of one session at the same
// time are served correctly, but only one of them uses the session's cache.
// Greedy generations report log-probabilities at temperature 1.
func (e *Engine) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	if err := e.check(req); err != nil {
		return inference.Generation{}, err
	}
	if ctx.Err() != nil {
		a := cancelled(ctx, inference.Generation{Version: e.Version()})
		return a.gen, a.err
	}
	j := &job{ctx: ctx, req: req, done: make(chan answer, 1)}
	j.context = append(make([]int32, 0, len(req.Tokens)+min(req.MaxTokens, 4096)), req.Tokens...)
	j.scale, j.greedy = scaleOf(req.Temperature)
	if err := e.router.submit(j); err != nil {
		return inference.Generation{}, err
	}
	select {
	case a := <-j.done:
		return a.gen, a.err
	case <-ctx.Done():
		if e.router.withdraw(j) || !errors.Is(context.Cause(ctx), inference.ErrCut) {
			a := cancelled(ctx, inference.Generation{Version: e.Version()})
			return a.gen, a.err
		}
	case <-e.closed:
		return inference.Generation{}, errClosed
	}
	select { // the shard answers with its tokens before its next pass
	case a := <-j.done:
		return a.gen, a.err
	case <-e.closed:
		return inference.Generation{}, errClosed
	}
}

// check rejects requests that no load allows.
func (e *Engine) check(req inference.Request) error {
	switch {
	case len(req.Tokens) == 0:
		return errors.New("generate: no context tokens")
	case req.MaxTokens < 1:
		return fmt.Errorf("generate: max tokens %d, want at least 1", req.MaxTokens)
	case len(req.Tokens)+req.MaxTokens > e.MaxContext():
		return fmt.Errorf("generate: context of %d and %d new tokens exceed the limit of %d: %w",
			len(req.Tokens), req.MaxTokens, e.MaxContext(), inference.ErrTooLarge)
	case !(req.Temperature >= 0):
		return fmt.Errorf("generate: temperature %v, want 0 or more", req.Temperature)
	}
	if req.TopLogprobs < 0 || req.TopLogprobs > inference.MaxTopLogprobs {
		return fmt.Errorf("generate: top_logprobs %d, want 0 to %d", req.TopLogprobs, inference.MaxTopLogprobs)
	}
	if req.Sampler != nil {
		if err := req.Sampler.Validate(); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	for i, t := range req.Tokens {
		if t < 0 || int(t) >= e.cfg.Model.VocabSize {
			return fmt.Errorf("generate: token %d at position %d is outside the vocabulary of %d", t, i, e.cfg.Model.VocabSize)
		}
	}
	return nil
}

// Release implements inference.Engine.
func (e *Engine) Release(session string) {
	if s := e.router.release(session); s != nil {
		s.commands.release(session)
	}
}

// Version implements inference.Engine. It is -1 before the first Load.
func (e *Engine) Version() int64 { return e.version.Load() }

// Native reports whether passes are computed without a graph.
func (e *Engine) Native() bool { return e.shards[0].dev.native != nil }

// MaxContext implements inference.Engine. A shard holds a whole context, so its capacity is
// a limit, too.
func (e *Engine) MaxContext() int { return min(e.cfg.MaxContext, e.cfg.shardBlocks()*blockTokens) }

// Load implements inference.Loader.
func (e *Engine) Load(ctx context.Context, ref blob.Ref, version int64) error {
	if version == e.Version() {
		return nil
	}
	if e.cfg.OpenWeights != nil {
		from, err := e.cfg.OpenWeights(ctx, ref)
		if err != nil {
			return fmt.Errorf("read policy version %d: %w", version, err)
		}
		return e.LoadFrom(ctx, from, version)
	}
	if e.cfg.LoadWeights == nil {
		return errors.New("load policy: the engine was made without a reader of published policies")
	}
	weights, err := e.cfg.LoadWeights(ctx, ref)
	if err != nil {
		return fmt.Errorf("read policy version %d: %w", version, err)
	}
	return e.LoadTensors(ctx, weights, version)
}

// Close ends all requests with an error and waits for the shards.
func (e *Engine) Close() {
	e.close.Do(func() {
		for _, s := range e.shards {
			s.commands.close()
		}
		e.wg.Wait()
		for _, s := range e.shards {
			s.dev.close()
		}
		close(e.closed)
		e.loading.Lock() // a concurrent load learns that the engine is closed
		defer e.loading.Unlock()
		if e.release != nil {
			if err := e.release(); err != nil {
				e.cfg.Log.Warn("release weights", "err", err)
			}
		}
	})
	<-e.closed
}

// Status implements inference.Reporter. Blocks in use count whole.
func (e *Engine) Status(context.Context) (inference.Status, error) {
	st := e.Stats()
	return inference.Status{
		Version: e.Version(), MaxContext: e.MaxContext(), Capacity: st.Capacity, Used: st.Used,
		Running: st.Active, Waiting: max(st.Requests-st.Active, 0), Passes: st.Steps, Tokens: st.Generated, Exact: !decodesAhead(e.cfg),
	}, nil
}

// Stats are counts since the start, and current gauges.
type Stats struct {
	Generated int64 // tokens sampled
	Prefilled int64 // context tokens fed without sampling
	Shared    int64 // context tokens not fed because another context has the same beginning
	Steps     int64 // device passes
	Rows      int64 // rows of all passes with padding; (Generated+Prefilled)/Rows is the fill
	Evictions int64 // idle sessions that lost their cache to other sequences
	Preempted int64 // running requests that lost their cache and were fed again
	Capacity  int64 // tokens that the caches hold
	Used      int64 // tokens of the blocks that requests and idle sessions hold
	Slots     int   // most running requests
	Active    int   // running requests
	Idle      int   // idle sessions that have blocks
	Requests  int   // running and waiting
	Ahead     AheadStats
}

// Stats sums over the shards.
func (e *Engine) Stats() Stats {
	st := Stats{}
	for _, s := range e.shards {
		st.Generated += s.stats.generated.Load()
		st.Prefilled += s.stats.prefilled.Load()
		st.Shared += s.stats.shared.Load()
		st.Steps += s.stats.steps.Load()
		st.Rows += s.stats.rows.Load()
		st.Evictions += s.stats.evictions.Load()
		st.Preempted += s.stats.preempted.Load()
		st.Capacity += int64(s.dev.blocks) * blockTokens
		st.Used += s.stats.held.Load() * blockTokens
		st.Slots += s.sequences.slots
		st.Active += int(s.stats.active.Load())
		st.Idle += int(s.stats.idle.Load())
		if a := s.stats.ahead.Load(); a != nil {
			st.Ahead.add(*a)
		}
	}
	st.Requests, _ = e.router.counts()
	return st
}
