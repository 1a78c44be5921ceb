// Package codejudge speaks the HTTP API of Code-Judge, so that clients written for that
// service (rStar2-Agent's tools and rewards, verl's reward managers) work unchanged against a
// node or a gateway. It owns that API's shapes, its validation and the queue of its calls;
// the given sandbox.Executor runs the programs. It does not compile C++ and does not serve
// the original's generated documentation pages.
//
// Endpoints: POST /run, /judge and their /batch and /long-batch; GET /status, /ping.
//
// Intended differences from the original:
//   - One bad item of a batch is answered with success=false, reason
//     "invalid_input" and the error in stderr, and the others run; the original
//     refuses the whole batch with 422. A broken envelope is still a 422.
//   - Types "cpp" and "math" are answered "internal_error", as the
//     original answers for a type that it cannot run, with one line in stderr.
//   - A call that the executor refuses for load waits in a queue, first come first
//     served, until the original's time for a call (19 s; an hour for
//     long batches) is over; then it is a "queue_timeout". When the queue is
//     full, the answer is 429 with Retry-After. A program that runs at that time may
//     take 30 s more on a busy machine.
//   - When no executor can be reached, the answer is 503 with Retry-After. If only
//     some items of a batch are affected, they are answered "queue_timeout", the
//     one reason for which clients retry.
//   - Bodies are bounded (413), a client that disconnects frees its slots, output is
//     never taken for a marker, and invalid UTF-8 in a text does not fail the call.
//
// Invariant: every submission of a request that is answered with 200 has exactly
// one result, in its position, and a failure of the sandbox is never reported as
// a failure of the program.
package codejudge

import (
	"crypto/subtle"
	"log/slog"
	"net/http"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// Load is the answer to GET /status.
type Load struct {
	Queue   int `json:"queue"`       // calls that wait
	Workers int `json:"num_workers"` // calls that can run at once
}

// Limits bound every program of this API, whose requests state no limits. The original
// takes them from its environment, as MAX_EXECUTION_TIME and MAX_MEMORY.
type Limits struct {
	// Execution bounds the wall and the CPU time of a program; 10 s when zero.
	Execution time.Duration
	// Memory bounds its memory in bytes; the executor's own limit when zero.
	Memory int64
}

// Config configures a handler. The zero value behaves like the original with its defaults.
type Config struct {
	// Token, when set, is the bearer token that every call except /ping must carry.
	Token string
	Limits
	// Wait bounds how long a call of /run, /judge and their batches waits in the queue;
	// Execution + 9 s when zero. A call that the executor has accepted is answered
	// within sandbox.Slack of Execution after that time.
	Wait time.Duration
	// LongWait is the same for a long batch; an hour + Execution + 5 s when zero.
	LongWait time.Duration
	// MaxBody bounds the body of a batch in bytes; 256 MiB when zero, and never more
	// than one caller may hold of Budget. A single submission may have 8 MiB.
	MaxBody int64
	// Budget bounds the bytes held for callers; budget.New(0) when nil.
	Budget *budget.Budget
	// MaxCalls bounds the submissions of a caller at a time, running or waiting,
	// and the length of a batch; 100,000 when zero, and less with a small Budget. All
	// callers together may have twice as many.
	MaxCalls int
	// Patience is how long 64 KiB of a body may take to arrive. The whole body may take
	// twelve times as long. 10 s when zero.
	Patience time.Duration
	// Load reports the executor's queue and slots; zeros when nil.
	Load func() Load
	// Logger receives failures of the sandbox; nil discards them. It never receives
	// code, input or output of programs.
	Logger *slog.Logger
}

// Parts of the original's time for a call, besides the execution.
const (
	processTime = 5 * time.Second // start of a process and transport of its answer
	queueLife   = 4 * time.Second
	longQueue   = time.Hour
)

const (
	maxSingleBody = 8 << 20
	// stall is how long the client may take to read a part of an answer.
	stall = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Execution <= 0 {
		c.Execution = 10 * time.Second
	}
	if c.Wait <= 0 {
		c.Wait = c.Execution + processTime + queueLife
	}
	if c.LongWait <= 0 {
		c.LongWait = c.Execution + processTime + longQueue
	}
	if c.Budget == nil {
		c.Budget = budget.New(0)
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 256 << 20
	}
	c.MaxBody = min(c.MaxBody, c.Budget.Bodies.Half()/budget.Weight)
	if c.MaxCalls <= 0 {
		c.MaxCalls = 100_000
	}
	c.MaxCalls = min(c.MaxCalls, int(c.Budget.Bodies.Half()/2/itemBytes)) // the other half holds their texts
	if c.Patience <= 0 {
		c.Patience = budget.Patience
	}
	if c.Load == nil {
		c.Load = func() Load { return Load{} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Paths lists every path of a handler, for a mux that serves others too.
func Paths() []string {
	return []string{
		"/run", "/run/batch", "/run/long-batch",
		"/judge", "/judge/batch", "/judge/long-batch",
		"/status", "/ping",
	}
}

// handler serves the API over one executor.
type handler struct {
	cfg  Config
	exec sandbox.Executor
	line *line
	// room counts submissions; the budget counts the bytes of their bodies.
	room *budget.Account
}

// NewHandler returns the API over exec. It is safe for concurrent use, and its goroutines
// end with the requests that they serve.
func NewHandler(exec sandbox.Executor, cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	h := &handler{
		cfg: cfg, exec: exec, line: newLine(), room: budget.NewAccount(2 * int64(cfg.MaxCalls)),
	}
	mux := http.NewServeMux()
	for _, view := range []struct {
		path string
		view view
	}{{"/run", viewRun}, {"/judge", viewJudge}} {
		mux.HandleFunc("POST "+view.path, h.guard(h.single(view.view)))
		mux.HandleFunc("POST "+view.path+"/batch", h.guard(h.batch(view.view, cfg.Wait)))
		mux.HandleFunc("POST "+view.path+"/long-batch", h.guard(h.batch(view.view, cfg.LongWait)))
	}
	mux.HandleFunc("GET /status", h.guard(h.status))
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { h.write(w, http.StatusOK, "pong") })
	h.refuseOthers(mux)
	return mux
}

// refuseOthers answers requests that match no other route, in the shape of the original.
func (h *handler) refuseOthers(mux *http.ServeMux) {
	for _, path := range Paths() {
		allow := http.MethodPost
		if path == "/status" || path == "/ping" {
			allow = http.MethodGet
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allow)
			h.fail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { h.fail(w, http.StatusNotFound, "Not Found") })
}

// guard refuses callers without the token.
func (h *handler) guard(next http.HandlerFunc) http.HandlerFunc {
	want := []byte("Bearer " + h.cfg.Token)
	return func(w http.ResponseWriter, r *http.Request) {
		got := []byte(r.Header.Get("Authorization"))
		if h.cfg.Token != "" && subtle.ConstantTimeCompare(got, want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			h.fail(w, http.StatusUnauthorized, "Not authenticated")
			return
		}
		next(w, r)
	}
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	load := h.cfg.Load()
	load.Queue += h.line.waiting()
	h.write(w, http.StatusOK, load)
}
