// Package gateway spreads sandbox calls over many nodes. It owns the queue of
// calls that no node has a slot for yet, the turns that runs take, the choice of
// a node, the repetition of calls whose node died, the place and the record of
// each session, and the list of nodes. How a call travels belongs to package
// httpapi, how it runs to the node; repeated call IDs of clients are answered by
// the window of httpapi in front of it. DESIGN.md gives the reasons and figures.
//
// Invariant: every admitted call gets exactly one answer, a Result or an error,
// and no node is ever sent more calls than it has announced free slots for, plus
// the prefetch.
package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// Link is a live connection to one node; *httpapi.Stream implements it.
type Link interface {
	// Execute answers with an error that is sandbox.ErrUnavailable when the
	// connection ends first.
	sandbox.Executor
	// Load returns the load that the node last announced. It does not block.
	Load() httpapi.Load
	// Done is closed when the connection is gone.
	Done() <-chan struct{}
	// Err returns why the connection is gone, nil while it lives. It does not lag
	// behind the errors of calls on the link.
	Err() error
	Close()
}

// Dial opens a link to the node at address and returns when its load is known.
type Dial func(ctx context.Context, address string) (Link, error)

// Config sizes a gateway. Zero fields take the stated defaults; Dial has none.
type Config struct {
	Dial Dial
	// Nodes are the addresses that are dialled for as long as the gateway lives.
	Nodes []string
	// Queue is the number of calls that may wait: 65,536.
	Queue int
	// QueueBytes bounds the code, input, fixtures and histories of the calls
	// inside, waiting or running: 512 MiB.
	QueueBytes int64
	// Prefetch is the number of calls beyond its free slots that a node gets, which
	// hides the network latency: 2; negative for none.
	Prefetch int
	// Patience is how long calls wait while no node takes calls: 30 s.
	Patience time.Duration
	Sessions SessionLimits
	Logger   *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Queue <= 0 {
		c.Queue = 1 << 16
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = 512 << 20
	}
	switch {
	case c.Prefetch == 0:
		c.Prefetch = 2
	case c.Prefetch < 0:
		c.Prefetch = 0
	}
	if c.Patience <= 0 {
		c.Patience = 30 * time.Second
	}
	c.Sessions = c.Sessions.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Gateway implements sandbox.Executor over many nodes. Its dispatcher owns the one lock
// over the calls, nodes and sessions; the registry of nodes uses the same lock.
type Gateway struct {
	cfg Config
	end context.CancelFunc // ends the life of calls, links and background work
	*background

	registry *registry
	dispatch *dispatcher
}

// background is shared by the parts of a gateway: its life, and the goroutines that Close
// waits for.
type background struct {
	life  context.Context // ends when the last call has its answer; stored because calls and nodes outlive New
	tasks sync.WaitGroup  // one for each listed node, and one for tick
	calls sync.WaitGroup
}

var _ sandbox.Executor = (*Gateway)(nil)

// New returns a gateway that starts to dial its nodes. The error names every
// malformed address. Close ends it; only the values of ctx are used.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	addresses, err := parseAddresses(cfg.Nodes)
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, background: &background{}}
	g.life, g.end = context.WithCancel(context.WithoutCancel(ctx))
	g.dispatch = newDispatcher(cfg, g.background)
	g.registry = newRegistry(cfg, g.background, g.dispatch)
	for _, address := range addresses {
		if _, err := g.registry.list(address, forever); err != nil { //nolint:contextcheck // the link lives as long as the gateway
			g.end()
			g.tasks.Wait()
			return nil, err
		}
	}
	g.tasks.Go(g.tick)
	return g, nil
}

// call is one request inside the gateway; dispatcher.mu guards all but the first fields.
type call struct {
	req     sandbox.Request
	size    int64
	arrived time.Time
	granted chan grant // holds one
	// res or err is the answer, written once and read by the goroutine of Execute.
	res *sandbox.Result
	err error

	seq      uint64
	queue    *fairQueue // the queue in which it waits; nil otherwise
	line     *runLine
	prev     *call
	next     *call
	returned bool     // waits again after an attempt
	waits    bool     // counted in waitingCalls.n
	session  *session // nil for a call without a session
	node     *node    // the node on which it runs
	attempts int      // attempts that ended without an answer
	deaths   int      // nodes that died while it ran on them
}

// grant ends the wait of a call: with a node to run on, or with an error.
type grant struct {
	node *node
	err  error
}

// maxAttempts is the number of failed attempts after which a call is given up, and
// suspicious the number of node deaths after which it runs alone on a node, so that the
// next death shows whether the call causes it.
const (
	maxAttempts = 3
	suspicious  = 2
)

// Execute implements sandbox.Executor. The caller's goroutine waits for the grant and
// then talks to the node. An attempt ends when it returns, so that a call has
// one attempt at a time and cannot get two answers.
//
// A waiting call needs little stack on purpose, see DESIGN.md.
func (g *Gateway) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	c := &call{req: req, granted: make(chan grant, 1)}
	if g.dispatch.admit(c) {
		g.serve(ctx, c)
		g.calls.Done()
	}
	if c.err != nil {
		return sandbox.Result{}, c.err
	}
	return *c.res, nil
}

// serve runs attempts until c has its answer.
func (g *Gateway) serve(ctx context.Context, c *call) {
	for {
		n := g.await(ctx, c)
		if n == nil || g.attempt(ctx, c, n) {
			return
		}
	}
}

// await returns the node that c may run on, or nil when c has its answer.
func (g *Gateway) await(ctx context.Context, c *call) *node {
	var err error
	select {
	case got := <-c.granted:
		if got.err == nil {
			return got.node
		}
		err = got.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-g.life.Done():
		err = errShutdown
	}
	g.dispatch.abandon(c, err)
	return nil
}

// attempt runs c on n and reports whether c has its answer. It ends with the caller's
// context, the node or the gateway, whichever is first.
func (g *Gateway) attempt(ctx context.Context, c *call, n *node) bool {
	queued := time.Since(c.arrived)
	attempt, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.life, stop)() //nolint:contextcheck // a call has its caller's context and also ends with its node
	req := c.req
	req.ID = idAtNode(&c.req)
	res, err := n.link.Execute(attempt, req)
	if err == nil && res.ID != req.ID {
		// The call must never get the answer of another call.
		err = fmt.Errorf("%w: node answered another call", sandbox.ErrUnavailable)
	}
	res.ID = c.req.ID
	res.Usage.Queue += queued
	return g.dispatch.settle(ctx, c, &res, err)
}

// longestID is the length above which the ID at a node is a hash; nodes accept longer
// IDs too.
const longestID = 256

// idAtNode returns the ID of a call at its node. All runs share the stream to a node, and
// answers are matched by ID: calls of two runs must have different IDs. The ID depends only
// on the call, so that a repeated call gets its first answer.
func idAtNode(req *sandbox.Request) string {
	if req.ID == "" {
		return "" // the stream makes an ID
	}
	id := fmt.Sprintf("%d:%s:%s", len(req.Run), req.Run, req.ID)
	if len(id) > longestID {
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:])
	}
	return id
}

// Drain refuses new calls from now on and announces it; calls inside continue.
func (g *Gateway) Drain() { g.dispatch.close() }

// Stats returns a snapshot.
func (g *Gateway) Stats() Stats { return g.dispatch.stats(g.registry) }

// Load returns the load that the gateway announces to its clients, as a node does.
func (g *Gateway) Load() httpapi.Load { return g.dispatch.load() }

// Close refuses new calls, waits for calls inside until ctx ends, answers the rest as
// unavailable, and returns when every link is closed. The error is ctx.Err() when calls
// were given up.
func (g *Gateway) Close(ctx context.Context) error {
	g.Drain()
	err := sandbox.Drain(ctx, &g.calls, g.end)
	g.tasks.Wait()
	return err
}

// CloseSession forgets the session of that name in run, here and on its node, and
// reports whether there was one.
func (g *Gateway) CloseSession(run, name string) bool {
	key := sessionKey{run, name}
	return g.dispatch.closeSession(key, func(home *node) {
		if closer, ok := home.link.(sandbox.SessionCloser); ok {
			g.tasks.Go(func() { g.closeAt(home, closer, key) })
		}
	})
}

// refreshPeriod bounds how late the gateway reads the announced load of a node on which no
// call ends.
const refreshPeriod = 100 * time.Millisecond

// tick handles the changes over time: announced loads, ended pauses, expired patience.
func (g *Gateway) tick() {
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case now := <-ticker.C:
			g.dispatch.refresh(now)
		}
	}
}
