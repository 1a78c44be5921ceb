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
	"temper/sandbox/drain"
	"temper/sandbox/httpapi"
)

// Link is a live connection to one node; *httpapi.Stream is one.
type Link interface {
	// Execute answers with an error that is sandbox.ErrUnavailable when the
	// connection ends first.
	sandbox.Executor
	// Load is what the node last announced. It does not block.
	Load() httpapi.Load
	// Done is closed when the connection is gone.
	Done() <-chan struct{}
	// Err says why the connection is gone, nil while it is not. It does not lag
	// behind the errors that calls on the link get.
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
	// Prefetch is the number of calls a node gets beyond its free slots, which
	// hides the way there and back: 2; negative for none.
	Prefetch int
	// Patience is how long calls wait while no node takes any: 30 s.
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

// Gateway implements sandbox.Executor over many nodes.
type Gateway struct {
	cfg Config

	life   context.Context // ends when the last call has been answered; stored because calls and nodes outlive New
	end    context.CancelFunc
	owners sync.WaitGroup // the keepers of the nodes and the clock
	calls  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	members  map[string]*member
	parting  map[string]*member // unlisted, with calls still on them
	nodes    []*node
	lonely   time.Time // since when no node takes calls; zero while one does
	shared   turns     // calls that any node may run
	openings turns     // calls of sessions that have no node
	suspects turns     // calls that saw two nodes die
	ward     *node     // where suspects run alone; nil while there are none
	waiting  int       // in all queues, also behind their own session
	bytes    int64     // of all calls inside
	running  int
	seq      uint64
	depth    map[string]int // waiting calls by run
	sessions sessions
	totals   Totals
	drained  rate
}

var _ sandbox.Executor = (*Gateway)(nil)

// New returns a gateway that starts to dial its nodes. The error names every
// address that cannot be understood. Close ends it; ctx gives only values.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	g := &Gateway{
		cfg: cfg, members: make(map[string]*member), parting: make(map[string]*member), depth: make(map[string]int),
		sessions: newSessions(cfg.Sessions), lonely: time.Now(),
	}
	addresses, err := parseAddresses(cfg.Nodes)
	if err != nil {
		return nil, err
	}
	g.life, g.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, address := range addresses {
		if _, err := g.enroll(address, forever); err != nil { //nolint:contextcheck // the keeper lives as long as the gateway
			g.end()
			g.owners.Wait()
			return nil, err
		}
	}
	g.owners.Go(g.tick)
	return g, nil
}

// call is one request inside the gateway; all but the first fields are guarded
// by Gateway.mu.
type call struct {
	req     sandbox.Request
	size    int64
	arrived time.Time
	granted chan grant // holds one
	// The answer, written once and read by the call's own goroutine.
	res *sandbox.Result
	err error

	seq      uint64
	queue    *turns // where it waits, nil elsewhere
	line     *line
	prev     *call
	next     *call
	returned bool     // waits not for the first time
	waits    bool     // counted in Gateway.waiting
	session  *session // nil for a call of its own
	node     *node    // where it runs
	attempts int      // that ended without an answer
	deaths   int      // of nodes that it was on
}

// grant is what a waiting call gets: a node to run on, or the error that ends it.
type grant struct {
	node *node
	err  error
}

// maxAttempts is the number of nodes a call may see fail, and suspicious the
// number of deaths after which it runs alone on a node, so that the next death
// tells who is to blame.
const (
	maxAttempts = 3
	suspicious  = 2
)

// Execute implements sandbox.Executor. Its own goroutine waits for the grant and
// then talks to the node: an attempt is over when it returns, so that a call has
// one attempt at a time and nothing can answer twice.
//
// What a waiting call keeps on its stack is small on purpose, see DESIGN.md.
func (g *Gateway) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	c := &call{req: req, granted: make(chan grant, 1)}
	if g.admit(c) {
		g.serve(ctx, c)
		g.calls.Done()
	}
	if c.err != nil {
		return sandbox.Result{}, c.err
	}
	return *c.res, nil
}

// serve gets c its answer.
func (g *Gateway) serve(ctx context.Context, c *call) {
	for {
		n := g.await(ctx, c)
		if n == nil || g.attempt(ctx, c, n) {
			return
		}
	}
}

// await returns the node that c may run on; without one c has its answer.
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
	g.abandon(c, err)
	return nil
}

// attempt runs c on n and reports whether that gave it its answer. It ends with
// the caller's context, with the node and with the gateway, whichever is first.
func (g *Gateway) attempt(ctx context.Context, c *call, n *node) bool {
	queued := time.Since(c.arrived)
	attempt, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.life, stop)() //nolint:contextcheck // a call has its caller's context and ends with its node too
	req := c.req
	req.ID = idAtNode(&c.req)
	res, err := n.link.Execute(attempt, req)
	if err == nil && res.ID != req.ID {
		// The answer of another call must never pass for this one's.
		err = fmt.Errorf("%w: node answered another call", sandbox.ErrUnavailable)
	}
	res.ID = c.req.ID
	res.Usage.Queue += queued
	return g.settle(ctx, c, &res, err)
}

// longestID is the length above which the ID at a node is a hash; a node takes longer
// ones, too.
const longestID = 256

// idAtNode is the ID of a call at its node. All runs share the stream to a node, where
// answers are known by their IDs alone: calls of two runs must not have the same one.
// It depends on the call only, so that a call that is sent again gets its first answer.
func idAtNode(req *sandbox.Request) string {
	if req.ID == "" {
		return "" // the stream makes one up
	}
	id := fmt.Sprintf("%d:%s:%s", len(req.Run), req.Run, req.ID)
	if len(id) > longestID {
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:])
	}
	return id
}

// Drain refuses new calls from now on and announces it; those inside go on.
func (g *Gateway) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *Gateway) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running + g.waiting
}

// Close refuses new calls, lets those inside finish until ctx ends, answers the
// rest as unavailable, and returns when every link is closed. The error is
// ctx.Err() when calls had to be given up.
func (g *Gateway) Close(ctx context.Context) error {
	g.Drain()
	err := drain.Wait(ctx, &g.calls, g.end)
	g.owners.Wait()
	return err
}
