// Package ui owns the dashboard: an HTTP API over the runs of a store, one event
// stream for each page, the commands that steer runs, and the page itself, which is
// embedded. It reads through internal/history, writes nothing to the store, and works
// without Temporal, but for the commands.
//
// Invariant: no request decides a key of the store, no GET changes anything, and
// nothing that a model wrote reaches a browser as anything but JSON text.
package ui

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// Steerer reaches the workflows of runs. A nil Steerer makes a dashboard that reads
// alone.
type Steerer interface {
	// Status is what a run says of itself.
	Status(ctx context.Context, runID string) (workflows.RunStatus, error)
	// Open are the runs that the server has open, by id.
	Open(ctx context.Context) ([]workflows.OpenRun, error)
	// Send gives a run a command and returns its answer.
	Send(ctx context.Context, runID, command string, arg workflows.Command) (string, error)
}

// Config is what a Server works with.
type Config struct {
	Store blob.Store
	Steer Steerer
	Place Place
	// PutNotes stores the tags and the note of a run; nil for a dashboard that only reads.
	PutNotes func(ctx context.Context, runID string, n run.Notes) error
	// Token is what commands need; empty forbids them.
	Token string
	// ReadNeedsToken closes reading as well.
	ReadNeedsToken bool
	// Hosts are names, beside those of the loopback address, under which browsers may open
	// the page.
	Hosts []string
	// TemporalUI is the address of Temporal's own page, empty for none.
	TemporalUI string
	// Namespace is that of the runs in Temporal.
	Namespace string
	Build     string
	Log       *slog.Logger
	Now       func() time.Time
}

// Server answers the requests of the dashboard. Close ends its watchers.
type Server struct {
	Config
	handler http.Handler
	hub     *hub
	cache   *cache
	packed  *cache // of filters over a whole run
	runs    *history.Lister
	fill    *filler
	// searching has a value for each search under way.
	searching chan struct{}
	fails     failures
}

// New makes a server.
func New(c Config) (*Server, error) {
	if c.Store == nil || c.Log == nil || c.Now == nil {
		return nil, errors.New("dashboard: store, log or clock is missing")
	}
	s := &Server{
		Config: c, cache: newCache(cacheBytes), packed: newCache(tableBytes), runs: history.NewLister(c.Store), fill: newFiller(),
		searching: make(chan struct{}, mostSearches),
	}
	s.hub = newHub(c.Store, c.Log)
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.Handle(r.Method+" "+r.Path, s.serveRoute(r))
	}
	page, err := newPage()
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	mux.Handle("GET /", page)
	s.handler = s.guard(mux)
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all streams and waits for the watchers.
func (s *Server) Close() { s.hub.close() }

// cacheBytes bounds what the server keeps of steps that have ended.
const cacheBytes = 128 << 20

// cache keeps what never changes: the newest uses stay. Sizes are estimates.
type cache struct {
	mu    sync.Mutex
	most  int
	used  int
	clock int
	items map[string]*cached
}

type cached struct {
	value any
	size  int
	last  int
}

func newCache(most int) *cache { return &cache{most: most, items: map[string]*cached{}} }

func (c *cache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[key]
	if !ok {
		return nil, false
	}
	c.clock++
	item.last = c.clock
	return item.value, true
}

func (c *cache) put(key string, value any, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.items[key]; ok {
		c.used -= old.size
	}
	if size > c.most {
		delete(c.items, key)
		return
	}
	c.clock++
	c.items[key] = &cached{value, size, c.clock}
	c.used += size
	for c.used > c.most {
		oldest := ""
		for k, item := range c.items {
			if oldest == "" || item.last < c.items[oldest].last {
				oldest = k
			}
		}
		c.used -= c.items[oldest].size
		delete(c.items, oldest)
	}
}
