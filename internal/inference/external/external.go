// Package external lets third-party inference servers sample for a run: vLLM, SGLang
// and llama.cpp. Token ids go in, token ids and log-probabilities come out; text is
// never read. It owns their wire contracts, how a policy gets into them, and the proof
// that it is there. It computes no log-probability itself: that is injected.
//
// Invariant: tokens leave this package only if the server said that they come from the
// policy that was asked for, and that server has proved before that it computes this
// policy.
package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/inference"
)

// Publisher puts policies where servers find them, and knows what they compute.
type Publisher interface {
	// Write makes the policy at ref a new model directory in Hugging Face layout.
	Write(ctx context.Context, ref blob.Ref, dir string) error
	// Convert makes a directory that Write made a GGUF file.
	Convert(ctx context.Context, dir, file string) error
	// Logprobs returns the log-probability of each of ids[from:] after the ids before it, by the policy of a
	// directory that Write made: the logarithm of softmax(logits / temperature).
	Logprobs(ctx context.Context, dir string, ids []int32, from int, temperature float32) ([]float32, error)
}

// Config is what an Engine works with.
type Config struct {
	// Kind is one of the kinds of config.RolloutEngine.
	Kind string
	// URLs of the servers, all with the same model; empty for llama.cpp.
	URLs []string
	// Command starts a llama.cpp server; see processes. Empty for the others.
	Command []string
	// Folder is where policies are written, under the same path for the servers.
	Folder string
	// Key goes with each request as a bearer token; "" for none.
	Key string
	// MaxContext and Vocab describe the model, in tokens.
	MaxContext, Vocab int
	// Tolerance is the largest difference of a log-probability that rounding explains;
	// 0 is DefaultTolerance.
	Tolerance float64
	// Patience bounds how long a request waits for a server that does not answer, and
	// a load for one that starts; 0 is DefaultPatience.
	Patience time.Duration
	// Publisher writes policies and computes what they must answer.
	Publisher Publisher
	// Log may be nil.
	Log *slog.Logger
}

// Defaults of a Config.
const (
	// DefaultTolerance is for servers that compute in float32.
	DefaultTolerance = 1e-4
	DefaultPatience  = 5 * time.Minute
)

// Engine samples with third-party servers. Create it with New.
type Engine struct {
	cfg      Config
	replicas []*replica

	// loads serializes Load. changes serializes whatever changes the policies of servers: a Load, while no request runs,
	// and the repairs that running requests make.
	loads, changes mutex

	mu       sync.Mutex
	current  heldPolicy
	resumed  chan struct{} // closed while requests may start
	running  int
	drained  chan struct{} // not nil while a Load waits for running to be 0
	waiting  int
	sessions map[string]*replica

	tokens  atomic.Int64
	closing chan struct{}
	repairs sync.WaitGroup
}

// heldPolicy is a policy that the servers have loaded.
type heldPolicy struct {
	ref     blob.Ref
	version int64
	label   string // what servers call it
}

var (
	_ inference.Loader   = (*Engine)(nil)
	_ inference.Reporter = (*Engine)(nil)
)

// New makes an engine without weights. It asks no server yet.
func New(cfg Config) (*Engine, error) {
	if cfg.Tolerance == 0 {
		cfg.Tolerance = DefaultTolerance
	}
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, loads: make(mutex, 1), changes: make(mutex, 1), current: heldPolicy{version: -1}, resumed: make(chan struct{}), sessions: map[string]*replica{},
		closing: make(chan struct{}),
	}
	close(e.resumed)
	servers, err := newServers(cfg)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		e.replicas = append(e.replicas, &replica{server: s})
	}
	return e, nil
}

func (c Config) validate() error {
	var errs []error
	if c.MaxContext < 2 || c.Vocab < 2 {
		errs = append(errs, fmt.Errorf("engine: max_context %d and vocabulary %d, want at least 2", c.MaxContext, c.Vocab))
	}
	if !(c.Tolerance > 0) || math.IsInf(c.Tolerance, 0) {
		errs = append(errs, fmt.Errorf("engine: tolerance %v, want more than 0", c.Tolerance))
	}
	if c.Folder == "" {
		errs = append(errs, errors.New("engine: no folder for policies"))
	}
	if c.Publisher == nil {
		errs = append(errs, errors.New("engine: no publisher"))
	}
	return errors.Join(errs...)
}

// newServers makes the clients of the servers.
func newServers(c Config) ([]server, error) {
	var out []server
	switch c.Kind {
	case config.EngineVLLM, config.EngineSGLang:
		if len(c.URLs) == 0 {
			return nil, fmt.Errorf("engine %s: no url", c.Kind)
		}
		for _, url := range c.URLs {
			w, err := newWire(url, c.Key)
			if err != nil {
				return nil, err
			}
			if c.Kind == config.EngineVLLM {
				out = append(out, &vllm{w})
			} else {
				out = append(out, &sglang{w})
			}
		}
	case config.EngineLlamaCpp:
		if len(c.Command) == 0 {
			return nil, errors.New("engine llamacpp: no command that starts a server")
		}
		out = append(out, newLlamaCpp(c))
	default:
		return nil, fmt.Errorf("engine kind %q, want %s, %s or %s", c.Kind, config.EngineVLLM, config.EngineSGLang, config.EngineLlamaCpp)
	}
	return out, nil
}

// Version implements inference.Engine.
func (e *Engine) Version() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current.version
}

// MaxContext implements inference.Engine.
func (e *Engine) MaxContext() int { return e.cfg.MaxContext }

// Release implements inference.Engine. Servers find shared beginnings by themselves, so
// all that is kept for a session is its server.
func (e *Engine) Release(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, session)
}

// Close ends processes that the engine has started. No call may be under way.
func (e *Engine) Close() {
	close(e.closing)
	e.repairs.Wait()
	for _, s := range e.replicas {
		s.server.close()
	}
}

// nan stands for a log-probability that a server left out.
var nan = float32(math.NaN())

// unknownRequests is how many requests of full length a server that states no capacity
// is taken to hold.
const unknownRequests = 16

// Status implements inference.Reporter. It sums up all servers that answer, and is an
// error when none does, or when one states a capacity with which nothing could run.
func (e *Engine) Status(ctx context.Context) (inference.Status, error) {
	e.mu.Lock()
	out := inference.Status{
		Version: e.current.version, MaxContext: e.cfg.MaxContext, Running: e.running, Waiting: e.waiting, Tokens: e.tokens.Load(),
	}
	e.mu.Unlock()
	var errs []error
	for _, s := range e.replicas {
		l, err := s.server.status(ctx)
		if err == nil {
			l, err = l.checked(s, e.cfg.MaxContext)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Capacity += l.capacity
		out.Used += l.used
	}
	err := errors.Join(errs...)
	if len(errs) == len(e.replicas) || errors.Is(err, errRefused) {
		return inference.Status{}, fmt.Errorf("engine %s: status: %w", e.cfg.Kind, err)
	}
	return out, nil
}

// checked replaces what a server does not say and refuses what cannot be.
func (l load) checked(s *replica, maxContext int) (load, error) {
	if l.capacity < 0 {
		l.capacity = int64(maxContext) * unknownRequests
	}
	if l.capacity < int64(maxContext) {
		return l, fmt.Errorf("%s: its cache holds %d tokens, model.max_context is %d (%w)", s.server.address(), l.capacity, maxContext, errRefused)
	}
	l.used = min(max(l.used, 0), l.capacity)
	return l, nil
}
