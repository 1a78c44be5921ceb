package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"temper/internal/blob"
	"temper/internal/policy"
	backends "temper/trainer/device"
	"temper/trainer/kernels"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

// Config of an Engine.
type Config struct {
	// Model is the network's dimensions. Every policy that is loaded must have them.
	Model qwen3.Config
	// LoadWeights reads a published policy. Only Load uses it.
	LoadWeights func(ctx context.Context, ref blob.Ref) ([]tensor.Named, error)
	// Backend is a GoMLX backend string; "" means "go".
	Backend string
	// Kernels of the CPU backend: native, also when empty, or portable.
	Kernels kernels.Choice
	// Slots is the number of sequences in the caches, 64 when 0. Requests beyond it
	// wait for a slot, or take that of an idle session.
	Slots int
	// Shards splits the slots over independent devices of the CPU backend, each
	// with one thread. 0 means one per CPU for the CPU backend, else one.
	Shards int
	// MaxContext bounds the tokens of a context together with its generation. 0 is
	// the model's max_position_embeddings.
	MaxContext int
	// Queue bounds the requests that run or wait in a shard, 1024 when 0.
	Queue int
	// Log receives start-up facts; nil discards them.
	Log *slog.Logger
}

// Engine generates tokens with a Qwen3 network.
type Engine struct {
	cfg     Config
	shards  []*shard
	wg      sync.WaitGroup
	version atomic.Int64
	next    atomic.Uint64 // numbers requests without a session
	loading sync.Mutex
	close   sync.Once
	closed  chan struct{}
}

var (
	_ policy.Loader   = (*Engine)(nil)
	_ policy.Reporter = (*Engine)(nil)
)

// New starts an engine without weights: it refuses requests until Load or
// LoadTensors. The caller must Close it.
func New(cfg Config) (*Engine, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, closed: make(chan struct{})}
	e.version.Store(-1)
	var shapes []shape
	for i := range cfg.Shards {
		dev, err := openDevice(cfg)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if shapes, err = invariantShapes(dev); err != nil {
				return nil, fmt.Errorf("check step shapes: %w", err)
			}
		}
		e.shards = append(e.shards, newShard(dev, shapes, cfg.Queue))
	}
	cfg.Log.Info("policy engine ready", "backend", cfg.Backend, "shards", cfg.Shards, "slots", cfg.Slots,
		"max_context", cfg.MaxContext, "step_shapes", fmt.Sprint(shapes))
	for _, s := range e.shards {
		e.wg.Go(s.serve)
	}
	return e, nil
}

// setDefaults fills zero fields and reports everything that is wrong.
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
	set(&c.Queue, 1024)
	set(&c.Shards, c.defaultShards())
	var errs []error
	if err := backends.CheckKernels(c.Backend, c.Kernels); err != nil {
		errs = append(errs, fmt.Errorf("engine: %w", err))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"slots", c.Slots}, {"shards", c.Shards}, {"max context", c.MaxContext}, {"queue", c.Queue}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("engine %s: %d, want at least 1", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// defaultShards is one per CPU, or fewer where the steps of a shard would be so
// small that they are mostly overhead.
func (c *Config) defaultShards() int {
	if !cpuBackend(c.Backend) {
		return 1
	}
	return max(1, min(runtime.GOMAXPROCS(0), c.Slots/8))
}

// cpuBackend reports whether a backend string names the pure Go backend.
func cpuBackend(config string) bool { return config == "go" || strings.HasPrefix(config, "go:") }

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
		// A shard has one thread. Handing parts of operations that take 50 microseconds
		// to others costs 10 to 25 % more CPU.
		backends.HelpersOf(backend).Rest()
	}
	slots := (cfg.Slots + cfg.Shards - 1) / cfg.Shards
	d, err := newDevice(backend, cfg.Model, slots, max(cfg.MaxContext, maxRows))
	if err != nil {
		return nil, err
	}
	d.kernels = cfg.Kernels
	return d, nil
}

// Generate implements policy.Engine. Two requests of one session at the same
// time are served correctly, but only one of them uses the session's cache.
// Greedy generations report log-probabilities at temperature 1.
func (e *Engine) Generate(ctx context.Context, req policy.Request) (policy.Generation, error) {
	if err := e.check(req); err != nil {
		return policy.Generation{}, err
	}
	if ctx.Err() != nil {
		a := cancelled(ctx, policy.Generation{Version: e.Version()})
		return a.gen, a.err
	}
	s := e.shards[e.route(req.Session)]
	if s.stats.queued.Add(1) > int64(e.cfg.Queue) {
		s.stats.queued.Add(-1)
		return policy.Generation{}, fmt.Errorf("%d requests under way: %w", e.cfg.Queue, policy.ErrOverloaded)
	}
	j := &job{ctx: ctx, req: req, done: make(chan answer, 1)}
	j.context = append(make([]int32, 0, len(req.Tokens)+req.MaxTokens), req.Tokens...)
	j.scale, j.greedy = scaleOf(req.Temperature)
	s.jobs <- j // the channel holds as many as may be under way
	select {
	case a := <-j.done:
		return a.gen, a.err
	case <-ctx.Done():
		if !errors.Is(context.Cause(ctx), policy.ErrCut) {
			return policy.Generation{}, ctx.Err()
		}
	case <-e.closed:
		return policy.Generation{}, errClosed
	}
	select { // the shard answers with what it has before its next pass
	case a := <-j.done:
		return a.gen, a.err
	case <-e.closed:
		return policy.Generation{}, errClosed
	}
}

// check rejects requests that cannot be served whatever the load.
func (e *Engine) check(req policy.Request) error {
	switch {
	case len(req.Tokens) == 0:
		return errors.New("generate: no context tokens")
	case req.MaxTokens < 1:
		return fmt.Errorf("generate: max tokens %d, want at least 1", req.MaxTokens)
	case len(req.Tokens)+req.MaxTokens > e.cfg.MaxContext:
		return fmt.Errorf("generate: context of %d and %d new tokens exceed the limit of %d: %w",
			len(req.Tokens), req.MaxTokens, e.cfg.MaxContext, policy.ErrTooLarge)
	case !(req.Temperature >= 0):
		return fmt.Errorf("generate: temperature %v, want 0 or more", req.Temperature)
	}
	for i, t := range req.Tokens {
		if t < 0 || int(t) >= e.cfg.Model.VocabSize {
			return fmt.Errorf("generate: token %d at position %d is outside the vocabulary of %d", t, i, e.cfg.Model.VocabSize)
		}
	}
	return nil
}

// route chooses the shard of a session.
func (e *Engine) route(session string) int {
	if session == "" {
		return int(e.next.Add(1) % uint64(len(e.shards)))
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(session)) // hash.Hash never returns an error
	return int(h.Sum32() % uint32(len(e.shards)))
}

// Release implements policy.Engine.
func (e *Engine) Release(session string) {
	if session == "" {
		return
	}
	select {
	case e.shards[e.route(session)].releases <- session:
	case <-e.closed:
	}
}

// Version implements policy.Engine. It is -1 before the first Load.
func (e *Engine) Version() int64 { return e.version.Load() }

// MaxContext implements policy.Engine.
func (e *Engine) MaxContext() int { return e.cfg.MaxContext }

// Load implements policy.Loader.
func (e *Engine) Load(ctx context.Context, ref blob.Ref, version int64) error {
	if version == e.Version() {
		return nil
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

// LoadTensors is Load with weights that the caller has read. It returns when every
// request that was under way has ended and the new weights are in use. A swap that
// has begun goes on after ctx is done, so that all shards serve one version.
func (e *Engine) LoadTensors(ctx context.Context, weights []tensor.Named, version int64) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	if version < 0 {
		return fmt.Errorf("load policy: version %d, want 0 or more", version)
	}
	if version == e.Version() {
		return nil
	}
	if err := errors.Join(ctx.Err(), e.cfg.Model.CheckTensors(tensor.ByName(weights))); err != nil {
		return fmt.Errorf("load policy version %d: %w", version, err)
	}
	done := make(chan error, len(e.shards))
	for _, s := range e.shards {
		select {
		case s.swaps <- &swap{weights: weights, version: version, done: done}:
		case <-e.closed:
			return errClosed
		}
	}
	var errs []error
	for range e.shards {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-e.closed:
			return errClosed
		}
	}
	if err := errors.Join(errs...); err != nil {
		e.version.Store(-1)
		return fmt.Errorf("load policy version %d: %w", version, err)
	}
	e.version.Store(version)
	return nil
}

// Close ends all requests with an error and waits for the shards.
func (e *Engine) Close() {
	e.close.Do(func() {
		for _, s := range e.shards {
			close(s.quit)
		}
		e.wg.Wait()
		close(e.closed)
	})
	<-e.closed
}

// Status implements policy.Reporter.
func (e *Engine) Status(context.Context) (policy.Status, error) {
	st := e.Stats()
	out := policy.Status{
		Version: e.Version(), MaxContext: e.cfg.MaxContext, Capacity: int64(st.Slots) * int64(e.cfg.MaxContext),
		Running: st.Active, Waiting: st.Requests - st.Active, Passes: st.Steps, Tokens: st.Generated, Exact: true,
	}
	for _, s := range e.shards {
		out.Used += s.stats.cached.Load()
	}
	return out, nil
}

// Stats are counts since the start, and gauges of the moment.
type Stats struct {
	Generated int64 // tokens sampled
	Prefilled int64 // context tokens fed without sampling
	Steps     int64 // device passes
	Rows      int64 // rows of all passes with padding; (Generated+Prefilled)/Rows is the fill
	Evictions int64 // idle sessions that lost their cache to others
	Slots     int   // capacity
	Active    int   // slots that generate
	Idle      int   // slots kept for idle sessions
	Requests  int   // running and waiting
}

// Stats sums over the shards.
func (e *Engine) Stats() Stats {
	st := Stats{}
	for _, s := range e.shards {
		st.Generated += s.stats.generated.Load()
		st.Prefilled += s.stats.prefilled.Load()
		st.Steps += s.stats.steps.Load()
		st.Rows += s.stats.rows.Load()
		st.Evictions += s.stats.evictions.Load()
		st.Slots += s.dev.rows - 1
		st.Active += int(s.stats.active.Load())
		st.Idle += int(s.stats.idle.Load())
		st.Requests += int(s.stats.queued.Load())
	}
	return st
}
