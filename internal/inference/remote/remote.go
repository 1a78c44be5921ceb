package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
)

// ErrGarbage marks an answer that cannot be true. An engine that gives one is not
// to be used any more.
var ErrGarbage = errors.New("engine is not to be trusted")

// Expect is what an engine must be to serve a caller.
type Expect struct {
	// Run whose policies are asked for.
	Run string
	// Model is the fingerprint of the run's model; see Identity.
	Model string
	// Vocab is the number of token ids of the run.
	Vocab int
}

// Config says where an engine is and what it must be.
type Config struct {
	// Address is host:port, an http or https URL, or unix:/path of a socket.
	Address string
	Options Options
	Expect  Expect
	// Doubt, when set, is called with each ErrGarbage.
	Doubt func(error)
}

// Engine is an engine of another process. It is safe for concurrent use.
type Engine struct {
	call   *caller
	expect Expect

	who        atomic.Pointer[Identity]
	maxContext atomic.Int64
	version    atomic.Int64
	prefix     string // of the ids of this client's requests
	requests   atomic.Uint64
	releases   *releases

	loading sync.Mutex // held while this client loads

	mu      sync.Mutex
	loaded  LoadRequest    // the last policy that was loaded through this client
	ahead   LoadRequest    // the last one that it was asked to read ahead
	reading sync.WaitGroup // of such requests
}

var (
	_ inference.Loader     = (*Engine)(nil)
	_ inference.Reporter   = (*Engine)(nil)
	_ inference.Prefetcher = (*Engine)(nil)
)

// Dial asks an engine who it is and refuses one that cannot serve the caller. The
// caller closes the engine. Errors: ErrGarbage for an engine of another run or model.
func Dial(ctx context.Context, c Config) (*Engine, error) {
	call, err := newCaller(c.Address, c.Options)
	if err != nil {
		return nil, err
	}
	call.doubt = c.Doubt
	e := &Engine{call: call, expect: c.Expect, prefix: rand.Text()[:16] + "-"}
	if _, err := e.status(ctx); err != nil {
		call.close()
		return nil, err
	}
	e.releases = newReleases(e.call) //nolint:contextcheck // it continues after the dial, until Close
	return e, nil
}

// Identity returns the engine's last stated identity.
func (e *Engine) Identity() Identity { return *e.who.Load() }

// Close ends the connections. It does not end the engine.
func (e *Engine) Close() {
	e.reading.Wait()
	e.releases.close()
	e.call.close()
}

// Version implements inference.Engine. It is what the engine said last.
func (e *Engine) Version() int64 { return e.version.Load() }

// MaxContext implements inference.Engine.
func (e *Engine) MaxContext() int { return int(e.maxContext.Load()) }

// Release implements inference.Engine. It does not wait for the engine.
func (e *Engine) Release(session string) {
	if session != "" {
		e.releases.add(session)
	}
}

// Status implements inference.Reporter. Errors: ErrGarbage.
func (e *Engine) Status(ctx context.Context) (inference.Status, error) {
	st, err := e.status(ctx)
	return st.Status, err
}

// statusTime bounds a question that an engine answers from memory.
const statusTime = 5 * time.Second

func (e *Engine) status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var st Status
	if err := e.call.get(ctx, PathStatus, &st); err != nil {
		return Status{}, err
	}
	if err := e.checkStatus(st); err != nil {
		return Status{}, e.call.garbage(err)
	}
	e.who.Store(&st.Identity) // another process may have taken the address
	e.maxContext.Store(int64(st.MaxContext))
	e.version.Store(st.Version)
	return st, nil
}

// Load implements inference.Loader: the engine reads the policy from the store, which may
// take long, and first ends what it has under way. Errors: ErrGarbage for one that
// serves something else afterwards, blob.ErrCorrupt and blob.ErrNotExist of the store.
func (e *Engine) Load(ctx context.Context, ref blob.Ref, version int64) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	return e.load(ctx, ref, version)
}

// Prefetch implements inference.Prefetcher.
func (e *Engine) Prefetch(ctx context.Context, ref blob.Ref, version int64) {
	in := LoadRequest{Ref: ref, Version: version}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ahead == in || e.loaded == in {
		return
	}
	e.ahead = in
	ctx = context.WithoutCancel(ctx)
	e.reading.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		_ = e.call.post(ctx, PathPrefetch, in, nil) // else the Load reads it
	})
}

// load is Load for one that holds e.loading.
func (e *Engine) load(ctx context.Context, ref blob.Ref, version int64) error {
	in := LoadRequest{Ref: ref, Version: version}
	var out Loaded
	if err := e.call.post(ctx, PathLoad, in, &out); err != nil {
		return fmt.Errorf("load policy %d: %w", version, err)
	}
	if out.Version != version || out.SHA256 != ref.SHA256 {
		return e.call.garbage(fmt.Errorf("loaded version %d with sha256 %.12q, want %d with %.12s", out.Version, out.SHA256, version, ref.SHA256))
	}
	e.mu.Lock()
	e.loaded = in
	e.mu.Unlock()
	e.version.Store(version)
	return nil
}

// Drain lets the engine end what it has and take nothing new.
func (e *Engine) Drain(ctx context.Context) error {
	return e.call.post(ctx, PathDrain, struct{}{}, nil)
}

// newID returns a unique name for a request.
func (e *Engine) newID() string {
	return e.prefix + strconv.FormatUint(e.requests.Add(1), 10)
}
