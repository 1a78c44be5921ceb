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
	"time"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// Steerer reaches the workflows of runs. With a nil Steerer the dashboard only reads.
type Steerer interface {
	// Status returns the status that a run reports.
	Status(ctx context.Context, runID string) (workflows.RunStatus, error)
	// Open returns the runs that Temporal has open.
	Open(ctx context.Context) ([]workflows.OpenRun, error)
	// Send gives a run a command and returns its answer.
	Send(ctx context.Context, runID, command string, arg workflows.Command) (string, error)
}

// Config configures a Server.
type Config struct {
	Store blob.Store
	Steer Steerer
	Place Place
	// PutNotes stores the tags and the note of a run; nil for a dashboard that only reads.
	PutNotes func(ctx context.Context, runID string, n run.Notes) error
	// Token authorizes commands; an empty one forbids them.
	Token string
	// ReadNeedsToken asks for the token for reading too.
	ReadNeedsToken bool
	// Hosts are the names, beside the loopback ones, under which browsers may open the page.
	Hosts []string
	// TemporalUI is the address of Temporal's own page, empty for none.
	TemporalUI string
	// Namespace is the namespace of the runs in Temporal.
	Namespace string
	Build     string
	Log       *slog.Logger
	Now       func() time.Time
}

// Server answers the requests of the dashboard. Its fields are the groups of handlers,
// each with the state that its handlers share; routes is their map. Close ends its
// watchers.
type Server struct {
	handler http.Handler
	hub     *hub

	access  access
	table   runTable
	runs    runPages
	steps   stepPages
	evals   evalPages
	finder  finder
	steer   steering
	service servicePages
	events  eventStreams
}

// New makes a server.
func New(c Config) (*Server, error) {
	if c.Store == nil || c.Log == nil || c.Now == nil {
		return nil, errors.New("dashboard: store, log or clock is missing")
	}
	page, err := newPage()
	if err != nil {
		return nil, err
	}
	reader := &runReader{store: c.Store, cache: newCache(cacheBytes)}
	hub := newHub(c.Store, c.Log)
	s := &Server{
		hub:     hub,
		access:  access{token: c.Token, readNeedsToken: c.ReadNeedsToken, hosts: c.Hosts, now: c.Now, log: c.Log},
		table:   runTable{reader: reader, lister: history.NewLister(c.Store), fill: newFiller(), hub: hub, steer: c.Steer},
		runs:    runPages{reader: reader, temporalUI: c.TemporalUI, namespace: c.Namespace, storeNotes: c.PutNotes, now: c.Now, log: c.Log},
		steps:   stepPages{reader: reader},
		evals:   evalPages{reader: reader},
		finder:  finder{reader: reader, packed: newCache(tableBytes), searching: make(chan struct{}, maxSearches)},
		steer:   steering{reader: reader, steer: c.Steer, log: c.Log},
		service: servicePages{build: c.Build, store: c.Store, temporalUI: c.TemporalUI, steer: c.Steer, token: c.Token, place: c.Place},
		events:  eventStreams{store: c.Store, hub: hub},
	}
	mux := http.NewServeMux()
	for _, r := range routes(s) {
		mux.Handle(r.Method+" "+r.Path, s.access.serveRoute(r))
	}
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	mux.Handle("GET /", page)
	s.handler = s.access.guard(mux)
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all streams and waits for the watchers.
func (s *Server) Close() { s.hub.close() }
